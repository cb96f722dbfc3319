"""Commands in process."""

import io
import json
import os
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

import rankrls
from rankrls import RankRLS
from rankrls.cli import main
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import save_model


class Told(NamedTuple):
    """What a command has printed."""

    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command, one string or its words, in the current folder."""

    def call(*words, code=0, stdin=None):
        capsys.readouterr()
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        found = main(shlex.split(words[0]) if len(words) == 1 else list(map(str, words)))
        told = Told(*capsys.readouterr())
        assert found == code, told.err
        return told

    return call


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder, the current one, with rows and a model of them."""
    monkeypatch.chdir(tmp_path)
    X, y, qid = make_ranking(n_queries=10, n_features=3, random_state=0, return_X_y_qid=True)
    dump_letor(X, y, "train.dat", qid=qid)
    save_model(RankRLS().fit(X, y, qid=qid), "model")
    return tmp_path


@pytest.fixture(scope="session")
def start():
    """Start a program, by default rankrls, as a process with pipes."""
    root = os.path.dirname(os.path.dirname(rankrls.__file__))

    def call(*words, program=(sys.executable, "-m", "rankrls"), environment=None, **options):
        given = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **(environment or {})}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen([*program, *words], env=given, **pipes)

    return call


@pytest.fixture(scope="session")
def shell(start):
    """Exit code, stdout and stderr of a command line of bash in which rankrls is the program."""

    def call(command):
        script = f'rankrls() {{ "{sys.executable}" -m rankrls "$@"; }}\n{command}'
        process = start("-c", script, program=("bash",))
        out, err = process.communicate()
        return process.returncode, out.decode(), err.decode()

    return call
