"""Atomic writing of files: a file is complete or not there. Pipes are written to directly."""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None

__all__ = ["atomic_file", "is_stream"]

#: Errors of writing that do not name the file.
_ERRNOS = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT)

_MAX_LINKS = 40


@contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` when it is complete, and is deleted after an error.

    It is created in the same directory, written, flushed to the disk, and renamed. A reader of
    ``path`` therefore sees either the old or the new content. What a call that was killed left
    behind is deleted by the next. Links are followed, and the mode and owner of an existing file
    are kept. Pipes and devices are not replaced but written to directly.
    """
    with _named(path):
        if is_stream(path):
            with _stream(path) as file:
                yield file
        else:
            with _replacement(os.path.realpath(path)) as file:
                yield file


def is_stream(path: str) -> bool:
    """Whether ``path`` is a pipe, a terminal or another character device, or an open file.

    Directories, sockets and block devices (disks) are errors.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not the name of a file", path)
    if stat.S_ISREG(mode):
        return _descriptor(path) is not None
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return True
    raise OSError(errno.EINVAL, "a socket or a disk, not the name of a file", path)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the file name to errors such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in _ERRNOS and error.filename is None:
            error.filename = path
        raise


@contextmanager
def _replacement(path: str) -> Iterator[IO[bytes]]:
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "a directory, not the name of a file", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such directory", folder)
    prefix = os.path.join(folder, f".{name[:100]}.")
    _clear_leftovers(prefix)
    temporary = f"{prefix}{secrets.token_hex(8)}.tmp"
    try:  # the name is set before the file exists, so that it is deleted after any interrupt
        with _created(temporary, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while the file is locked
                os.replace(temporary, path)
        if fcntl is None:  # pragma: no cover - open files cannot be renamed
            os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):  # already renamed, or never created
            os.unlink(temporary)
        raise
    if os.name == "posix":  # flush the directory, so that the new name is permanent
        with suppress(OSError):  # the file itself is already complete
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _created(temporary: str, path: str) -> IO[bytes]:
    """Create and lock a file with the owner and the permissions of ``path``, if that exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    before = os.stat(path) if os.path.exists(path) else None
    while True:
        descriptor = os.open(temporary, flags, 0o666 if before is None else 0o600)
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)  # another call deleted it as a leftover before it was locked
    if before is not None and os.name == "posix":
        with suppress(PermissionError):  # only the administrator can change the owner
            os.chown(temporary, before.st_uid, before.st_gid)
        with suppress(PermissionError):
            os.chmod(temporary, stat.S_IMODE(before.st_mode) & 0o777)
    return open(descriptor, "wb")


def _clear_leftovers(prefix: str) -> None:
    """Delete temporary files of calls that were killed: nobody holds their locks."""
    if fcntl is None:  # pragma: no cover - not POSIX
        return
    for path in glob.glob(f"{glob.escape(prefix)}{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):  # in use, not ours, or already deleted
            descriptor = os.open(path, os.O_WRONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(descriptor)


class _Forward(io.FileIO):
    """A file without seek, as a pipe."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("a stream has no position")

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation("a stream has no position")


def _stream(path: str) -> IO[bytes]:
    own = _descriptor(path)
    target = path if own is None else os.dup(own)  # opening it again would truncate it
    return io.BufferedWriter(_Forward(target, "wb"))


def _descriptor(path: str) -> int | None:
    """File descriptor of this process that a path such as /dev/stdout or /dev/fd/3 refers to."""
    for _ in range(_MAX_LINKS):
        folder = os.path.realpath(os.path.dirname(path))
        name = os.path.basename(path)
        if name.isdecimal() and re.fullmatch(
            rf"/dev/fd|/proc/{os.getpid()}(/task/\d+)?/fd", folder
        ):
            return int(name)
        try:
            path = os.path.join(folder, os.readlink(path))
        except OSError:  # no link
            return None
    return None
