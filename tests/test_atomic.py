"""Writing files: complete or not there, links followed, pipes and devices never replaced."""

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls._atomic import atomic_file
from rankrls.datasets import dump_letor, make_ranking
from rankrls.export import to_svmrank
from rankrls.io import load_model, save_model
from rankrls.report import write_report

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs pipes and links")

X, Y, QID = make_ranking(n_queries=6, n_docs=5, random_state=0, return_X_y_qid=True)
MODEL = RankRLS().fit(X, Y, qid=QID)


WRITERS = {
    "dump_letor gz": lambda path: dump_letor(X, Y, path, qid=QID),
    "save_model": lambda path: save_model(MODEL, path),
    "to_svmrank": lambda path: to_svmrank(MODEL, path=path),
    "write_report": lambda path: write_report(path, X, Y, qid=QID),
}


@pytest.fixture(params=WRITERS)
def writer(request):
    return WRITERS[request.param]


@pytest.fixture
def name(request):
    return "out.gz" if request.node.callspec.params["writer"].endswith("gz") else "out"


def read_all(path, into):
    with open(path, "rb") as file:
        into.append(file.read())


def test_a_fifo_is_written_to(tmp_path, writer, name):
    plain, fifo, got = tmp_path / name, tmp_path / f"fifo-{name}", []
    os.mkfifo(fifo)
    writer(plain)
    reader = threading.Thread(target=read_all, args=(fifo, got))
    reader.start()
    writer(fifo)
    reader.join()
    assert stat.S_ISFIFO(os.stat(fifo).st_mode)
    assert sorted(os.listdir(tmp_path)) == sorted([name, fifo.name])
    if got[0][:2] == b"PK":  # an archive tells when it was made
        plain.write_bytes(got[0])
        np.testing.assert_array_equal(load_model(plain).predict(X), MODEL.predict(X))
    elif b"<html" in got[0]:  # a page tells when it was made
        assert abs(len(got[0]) - plain.stat().st_size) < 100
    else:
        assert got[0] == plain.read_bytes()


def test_a_device_is_not_replaced(tmp_path, writer, name):
    device = tmp_path / name
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # a copy of /dev/null
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("needs the right to make devices")
    writer(device)
    assert stat.S_ISCHR(os.stat(device).st_mode)
    assert os.listdir(tmp_path) == [name]


def test_links_are_followed(tmp_path, writer, name):
    (tmp_path / "real").mkdir()
    target, link, second = tmp_path / "real" / name, tmp_path / name, tmp_path / f"second-{name}"
    target.write_bytes(b"old")
    link.symlink_to(target)
    second.symlink_to(link.name)
    writer(second)
    assert link.is_symlink()
    assert second.is_symlink()
    assert not target.is_symlink()
    assert target.stat().st_size > 3
    assert len(os.listdir(tmp_path)) == 3


def test_what_cannot_be_written_to(tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match=r"a socket or a disk, not the name of a file.*/s'"):
            save_model(MODEL, tmp_path / "s")
    assert stat.S_ISSOCK(os.stat(tmp_path / "s").st_mode)
    with pytest.raises(FileNotFoundError, match=r"no such directory.*nowhere"):
        save_model(MODEL, tmp_path / "nowhere" / "m")


def test_mode_and_owner_are_kept(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    os.chmod(path, 0o640)
    before = os.stat(path)
    seen = []
    with atomic_file(str(path)) as file:
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        file.write(b"new")
    after = os.stat(path)
    assert seen == [0o640]  # never readable by more than before
    for kept in ("st_mode", "st_uid", "st_gid"):
        assert getattr(after, kept) == getattr(before, kept)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("where", ["open", "fsync", "replace", "chmod"])
def test_a_signal_right_after_a_call(tmp_path, monkeypatch, where):
    """Nothing is left behind, and the signal is what is reported."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    real = getattr(os, where)

    def interrupted(*args, **options):
        result = real(*args, **options)
        if where != "open" or str(args[0]).endswith(".tmp"):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(os, where, interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_file(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == (b"new" if where == "replace" else b"old")
    assert os.listdir(tmp_path) == ["f"]


def run(script, **options):
    code = f"from rankrls._atomic import atomic_file\n{script}"
    return subprocess.run([sys.executable, "-c", code], check=False, **options)


def test_a_later_call_clears_what_a_killed_call_left(tmp_path):
    kill = 'import os\nwith atomic_file("f") as file:\n    os.kill(os.getpid(), 9)'
    run(kill, cwd=tmp_path)
    (left,) = os.listdir(tmp_path)
    (tmp_path / ".g.0123456789abcdef.tmp").write_bytes(b"of another file")
    with atomic_file(str(tmp_path / "f")) as file:  # it may still be written
        file.write(b"first")
    assert (tmp_path / left).exists()
    for name in os.listdir(tmp_path):
        os.utime(tmp_path / name, (0, 0))
    with atomic_file(str(tmp_path / "f")) as file:
        file.write(b"second")
    assert sorted(os.listdir(tmp_path)) == [".g.0123456789abcdef.tmp", "f"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_named(writer):
    with pytest.raises(OSError, match=r"No space left on device: .*/dev/full") as caught:
        writer("/dev/full")
    assert caught.value.filename == "/dev/full"


def test_an_open_file_is_written_on(tmp_path):
    """/dev/stdout may be the end of a file that others have written to."""
    if not os.path.exists("/dev/stdout"):
        pytest.skip("needs /dev/stdout")
    script = 'with atomic_file("/dev/stdout") as file:\n    file.write(b"new\\n")'
    log = tmp_path / "log"
    log.write_bytes(b"old\n")
    inode = log.stat().st_ino
    with open(log, "ab") as file:
        run(script, stdout=file)
    assert log.read_bytes() == b"old\nnew\n"
    assert log.stat().st_ino == inode
    assert run(script, stdout=subprocess.PIPE).stdout == b"new\n"
