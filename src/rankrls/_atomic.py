"""Files that are there as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` when all is written, and disappears otherwise.

    It is made in the same directory, written, flushed to the disk, and renamed. Whoever opens
    ``path`` finds what was there before or all that is new, whatever happens on the way.
    """
    path = os.path.realpath(path)  # a link stays a link
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "a directory, not the name of a file", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such directory", folder)
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the new name last, where directories can be flushed."""
    if os.name != "posix":  # pragma: no cover
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # pragma: no cover - some network file systems cannot
        pass
    finally:
        os.close(descriptor)
