"""The program as a process: its start, pipes, and signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

import rankrls
from rankrls import RankRLS
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import save_model

ROOT = os.path.dirname(os.path.dirname(rankrls.__file__))
COMMAND = [sys.executable, "-m", "rankrls"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    X, y, qid = make_ranking(n_queries=10, n_features=3, random_state=0, return_X_y_qid=True)
    dump_letor(X, y, folder / "train.dat", qid=qid)
    save_model(RankRLS().fit(X, y, qid=qid), folder / "model")
    (folder / "many.dat").write_bytes(b"1 qid:1 1:2 2:1\n" * 20_000)
    return folder


def start(folder, *words, **options):
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    environment |= options.pop("environment", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([*COMMAND, *words], cwd=folder, env=environment, **pipes)


def test_help_imports_nothing_heavy(folder):
    code = (
        "import sys; from rankrls.cli import main; assert main(['fit', '--help']) == 0; "
        "heavy = {'numpy', 'scipy', 'sklearn', 'rich', 'matplotlib'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"Usage: rankrls fit" in done.stdout


def test_a_pipe_that_nobody_reads_is_quiet(folder):
    with start(folder, "predict", "many.dat", "-m", "model") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_work_leaves_nothing(folder, sent, code):
    """The process waits for input that does not come, with its output begun."""
    before = sorted(os.listdir(folder))
    words = ("predict", "-", "-m", "model", "-o", "new.txt")
    with start(folder, *words, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"1 qid:1 1:2\n")
        process.stdin.flush()
        for _ in range(6000):  # until the temporary file is there
            if len(os.listdir(folder)) > len(before):
                break
            time.sleep(0.05)
        assert len(os.listdir(folder)) == len(before) + 1
        process.send_signal(sent)
        assert process.wait(300) == code
        process.stdin.close()
        assert process.stderr.read() == b""
    assert sorted(os.listdir(folder)) == before


def test_words_are_completed(folder):
    words = {"COMP_WORDS": "rankrls ev", "COMP_CWORD": "1", "_RANKRLS_COMPLETE": "bash_complete"}
    out, _ = start(folder, environment=words).communicate()
    assert b"plain,evaluate" in out
    words |= {"COMP_WORDS": "rankrls fit --ker", "COMP_CWORD": "2"}
    out, _ = start(folder, environment=words).communicate()
    assert b"plain,--kernel" in out


def test_named_pipes_are_read_and_written(folder):
    if not os.path.exists("/dev/fd"):
        pytest.skip("needs /dev/fd")
    read, write = os.pipe()
    with open(write, "wb") as file:
        file.write((folder / "train.dat").read_bytes())
    words = ("predict", f"/dev/fd/{read}", "-m", "model", "-o", "/dev/stdout")
    process = start(folder, *words, pass_fds=[read])
    os.close(read)
    out, err = process.communicate()
    assert err == b""
    plain, _ = start(folder, "predict", "train.dat", "-m", "model").communicate()
    assert out == plain
    assert out.count(b"\n") > 10
