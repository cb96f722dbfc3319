"""Bytes of a LETOR file, plain or gzip, in blocks of whole lines."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

__all__ = ["PathOrFile", "blocks", "name_of", "rewindable"]

PathOrFile = str | os.PathLike[str] | BinaryIO

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 28  # some 20 million features in one row
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


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


def rewindable(path: PathOrFile) -> bool:
    """Whether the file can be read twice; a pipe cannot."""
    if isinstance(path, str | os.PathLike):
        return os.path.isfile(path) or not os.path.exists(path)  # opening tells what is missing
    return bool(getattr(path, "seekable", lambda: False)())


def blocks(path: PathOrFile) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number of the first line, whole lines)`` until the file ends.

    A file passed open is read from where it stands and stays open.
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            yield from _blocks(file, name_of(path))
    else:
        yield from _blocks(path, name_of(path))


def _blocks(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    head = _read(file, 2, name)
    if len(head) == 1:
        head += _read(file, 1, name)
    source: Any = _Prefixed(head, file, name)
    if head == _GZIP_MAGIC:
        source = gzip.GzipFile(fileobj=source, mode="rb")

    line = 1
    pending: list[bytes] = []  # the pieces of a line that has not ended yet
    pending_bytes = 0
    while True:
        try:
            piece = source.read(_BLOCK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{name}:{line}: the gzip data is truncated or corrupt at or after this line "
                f"({error}); get the file again"
            ) from error
        if not piece:
            break
        cut = piece.rfind(b"\n") + 1
        if cut:
            block = b"".join([*pending, piece[:cut]])
            yield line, _without_bom(line, block)
            line += block.count(b"\n")
            pending, pending_bytes = [], 0
        pending.append(piece[cut:])
        pending_bytes += len(piece) - cut
        if pending_bytes > _MAX_LINE_BYTES:
            raise ValueError(
                f"{name}:{line}: this line is longer than {_MAX_LINE_BYTES >> 20} MiB; "
                "this is not a LETOR file"
            )
    if pending_bytes:
        yield line, _without_bom(line, b"".join(pending))


def _without_bom(line: int, block: bytes) -> bytes:
    return block.removeprefix(_BOM) if line == 1 else block


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
