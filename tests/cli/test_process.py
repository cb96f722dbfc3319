"""The program as a process: its start, pipes, and signals."""

import os
import signal
import subprocess
import sys
import time

import pytest


def test_help_imports_nothing_heavy(start):
    code = (
        "import sys; from rankrls.cli import main; assert main(['fit', '--help']) == 0; "
        "heavy = {'numpy', 'scipy', 'sklearn', 'rich', 'matplotlib'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    process = start("-c", code, program=(sys.executable,))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert b"Usage: rankrls fit" in out


def test_a_pipe_that_nobody_reads_is_quiet(small, start):
    (small / "many.dat").write_bytes(b"1 qid:1 1:2 2:1\n" * 20_000)
    with start("predict", "many.dat", "-m", "model") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_work_leaves_nothing(small, start, sent, code):
    """The process waits for input that does not come, with its output begun."""
    before = sorted(os.listdir(small))
    words = ("predict", "-", "-m", "model", "-o", "new.txt")
    with start(*words, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"1 qid:1 1:2\n")
        process.stdin.flush()
        for _ in range(6000):  # until the temporary file is there
            if len(os.listdir(small)) > len(before):
                break
            time.sleep(0.05)
        assert len(os.listdir(small)) == len(before) + 1
        process.send_signal(sent)
        assert process.wait(300) == code
        process.stdin.close()
        assert process.stderr.read() == b""
    assert sorted(os.listdir(small)) == before


def test_words_are_completed(start):
    words = {"COMP_WORDS": "rankrls ev", "COMP_CWORD": "1", "_RANKRLS_COMPLETE": "bash_complete"}
    out, _ = start(environment=words).communicate()
    assert b"plain,evaluate" in out
    words |= {"COMP_WORDS": "rankrls fit --ker", "COMP_CWORD": "2"}
    out, _ = start(environment=words).communicate()
    assert b"plain,--kernel" in out


def test_named_pipes_are_read_and_written(small, start):
    if not os.path.exists("/dev/fd"):
        pytest.skip("needs /dev/fd")
    read, write = os.pipe()
    with open(write, "wb") as file:
        file.write((small / "train.dat").read_bytes())
    words = ("predict", f"/dev/fd/{read}", "-m", "model", "-o", "/dev/stdout")
    process = start(*words, pass_fds=[read])
    os.close(read)
    out, err = process.communicate()
    assert err == b""
    plain, _ = start("predict", "train.dat", "-m", "model").communicate()
    assert out == plain
    assert out.count(b"\n") > 10
