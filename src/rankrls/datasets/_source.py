"""Bytes and text of a file, plain or compressed, in blocks of whole lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rankrls import _resources
from rankrls._streams import DamagedError, PathOrFile, name_of, opened

__all__ = ["as_utf8", "blocks", "require_loadable", "rewindable", "text_blocks"]

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 26  # some 5 million features in one row
_BYTES_PER_BYTE = 32  # memory that cutting a line into words may take
_BOM = b"\xef\xbb\xbf"


def rewindable(path: PathOrFile) -> bool:
    """Whether the file can be read twice; a pipe cannot."""
    if isinstance(path, str | os.PathLike):
        return os.path.isfile(path) or not os.path.exists(path)  # opening tells what is missing
    return bool(getattr(path, "seekable", lambda: False)())


def require_loadable(place: str | Callable[[], str], n_bytes: int, instead: str) -> None:
    """Raise if the rows that have been read leave no room for the arrays to be made of them."""
    if n_bytes > _resources.budget():
        where = place if isinstance(place, str) else place()
        raise MemoryError(
            f"{where}: the rows up to here take {n_bytes / 2**30:.1f} GiB, and all of them do not "
            f"fit into the memory of this process ({_resources.available() / 2**30:.1f} GiB): read "
            f"them in smaller batches, with {instead}"
        )


def blocks(
    path: PathOrFile, longest: int | None = None, n_blocks: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number of the first line, whole lines)`` until the file ends.

    A file passed open is read from where it stands and stays open. A line of more than ``longest``
    bytes (64 MiB, or what memory allows) is an error.
    """
    with opened(path) as file:
        size = n_blocks * _BLOCK_BYTES
        yield from _blocks(file, name_of(path), longest or _MAX_LINE_BYTES, size)


def text_blocks(path: PathOrFile, longest: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """`blocks` of UTF-8 text as lists of lines."""
    name = name_of(path)
    for number, block in blocks(path, longest):
        lines = as_utf8(name, number, block).decode("utf-8").split("\n")
        if not lines[-1]:
            lines.pop()
        yield number, lines


def as_utf8(name: str, number: int, block: bytes) -> bytes:
    """The same block, or an error with the line, counted from ``number``, that is no text."""
    if b"\0" in block:
        line = number + block[: block.index(b"\0")].count(b"\n")
        raise ValueError(f"{name}:{line}: this is binary data, not text")
    if not block.isascii():
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + block[: error.start].count(b"\n")
            raise ValueError(
                f"{name}:{line}: this is not UTF-8 text; save the file in UTF-8"
            ) from error
    return block


def _blocks(file: Any, name: str, longest: int, size: int) -> Iterator[tuple[int, bytes]]:
    line = 1
    longest = min(longest, max(_resources.budget() // _BYTES_PER_BYTE, _BLOCK_BYTES))
    pending: list[bytes] = []  # the pieces of a line that has not ended yet
    pending_bytes = 0
    while True:
        try:
            piece = file.read(size)
        except DamagedError as error:
            raise ValueError(
                f"{name}:{line}: {error} at or after this line ({error.args[1]}); get the file "
                "again"
            ) from error
        if not piece:
            break
        cut = piece.rfind(b"\n") + 1
        if cut:
            block = b"".join([*pending, memoryview(piece)[:cut]])
            yield line, _without_bom(line, block)
            line += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))
            pending, pending_bytes = [], 0
        pending.append(piece[cut:])
        pending_bytes += len(piece) - cut
        if pending_bytes > longest:
            raise ValueError(
                f"{name}:{line}: this line is longer than {longest >> 20} MiB; are the ends of "
                "lines missing?"
            )
    if pending_bytes:
        yield line, _without_bom(line, b"".join(pending))


def _without_bom(line: int, block: bytes) -> bytes:
    return block.removeprefix(_BOM) if line == 1 else block
