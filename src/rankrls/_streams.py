"""Files given by name or open, plain or gzip, read in pieces."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

__all__ = ["DAMAGED", "PathOrFile", "name_of", "opened"]

PathOrFile = str | os.PathLike[str] | BinaryIO

#: What reading from `opened` raises where gzip data are truncated or corrupt.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)

_GZIP_MAGIC = b"\x1f\x8b"


def name_of(path: PathOrFile) -> str:
    """Return how error messages call the file."""
    if isinstance(path, str | os.PathLike):
        return os.fspath(path)
    if not hasattr(path, "read"):
        raise ValueError(
            f"path must be a file name or a file opened in binary mode; got {type(path).__name__}"
        )
    name = getattr(path, "name", None)
    return name if isinstance(name, str) else "<stream>"


@contextmanager
def opened(path: PathOrFile) -> Iterator[Any]:
    """The bytes of a file, unpacked if they are gzip (which is recognised by content).

    A file passed open is read from where it stands and stays open.
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            yield _unpacked(file, name_of(path))
    else:
        yield _unpacked(path, name_of(path))


def _unpacked(file: BinaryIO, name: str) -> Any:
    head = _read(file, 2, name)
    if len(head) == 1:
        head += _read(file, 1, name)
    source: Any = _Prefixed(head, file, name)
    return gzip.GzipFile(fileobj=source, mode="rb") if head == _GZIP_MAGIC else source


def _read(file: BinaryIO, n_bytes: int, name: str) -> bytes:
    data = file.read(n_bytes)
    if not isinstance(data, bytes):
        raise ValueError(f"{name}: open the file in binary mode ('rb'); read() gave {type(data)}")
    return data


class _Prefixed:
    """A file whose first bytes have been read already: ``read`` gives them again."""

    def __init__(self, head: bytes, file: BinaryIO, name: str) -> None:
        self._head, self._file, self._name = head, file, name

    def read(self, n_bytes: int) -> bytes:
        head, self._head = self._head, b""
        if head:
            return head + _read(self._file, max(n_bytes - len(head), 0), self._name)
        return _read(self._file, n_bytes, self._name)
