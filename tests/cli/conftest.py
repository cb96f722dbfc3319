"""Commands in process."""

import io
import json
import shlex
import sys
from typing import NamedTuple

import pytest

from rankrls.cli import main


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
