"""Atomic writing of files: a file is complete or not there. Pipes are written to directly."""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

__all__ = ["atomic_file", "is_stream"]

#: A temporary file that was not written to for so long was left by a call that was killed.
LEFTOVER_SECONDS = 3600


@contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` when it is complete, and is deleted after an error.

    It is created in the same directory, written, flushed to the disk, and renamed, so that a
    reader sees either the old or the new content. What a call that was killed left behind is
    deleted by a later call. Links are followed, and the mode and owner of an existing file are
    kept. Pipes and devices are not replaced but written to directly.
    """
    try:
        with _stream(path) if is_stream(path) else _replacement(os.path.realpath(path)) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:  # a full disk
            error.filename = path
        raise


def is_stream(path: str) -> bool:
    """Whether ``path`` is a pipe, a terminal or another character device, or an open file."""
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
def _replacement(path: str) -> Iterator[IO[bytes]]:
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such directory", folder)
    before = os.stat(path) if os.path.exists(path) else None
    prefix = os.path.join(folder, f".{name[:100]}.")
    for leftover in glob.glob(f"{glob.escape(prefix)}{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):  # not ours, or already deleted
            if time.time() - os.stat(leftover).st_mtime > LEFTOVER_SECONDS:
                os.unlink(leftover)
    temporary = f"{prefix}{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:  # the name is set before the file exists, so that it is deleted after any interrupt
        with open(os.open(temporary, flags, 0o600 if before else 0o666), "wb") as file:
            if before is not None and os.name == "posix":
                with suppress(PermissionError):  # only the administrator can change the owner
                    os.chown(temporary, before.st_uid, before.st_gid)
                with suppress(PermissionError):
                    os.chmod(temporary, stat.S_IMODE(before.st_mode) & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):  # already renamed, or never created
            os.unlink(temporary)
        raise


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
    """File descriptor of this process that /dev/stdout, /dev/fd/3 or a link to them refers to."""
    for _ in range(40):
        found = re.fullmatch(rf"(?:/dev|/proc/(?:self|{os.getpid()}))/fd/(\d+)", path)
        if found:
            return int(found[1])
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:  # no link
            return None
    return None
