"""Bytes of a LETOR file, plain or gzip, in blocks of whole lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rankrls._streams import DAMAGED, PathOrFile, name_of, opened

__all__ = ["blocks", "rewindable"]

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 28  # some 20 million features in one row
_BOM = b"\xef\xbb\xbf"


def rewindable(path: PathOrFile) -> bool:
    """Whether the file can be read twice; a pipe cannot."""
    if isinstance(path, str | os.PathLike):
        return os.path.isfile(path) or not os.path.exists(path)  # opening tells what is missing
    return bool(getattr(path, "seekable", lambda: False)())


def blocks(path: PathOrFile) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number of the first line, whole lines)`` until the file ends.

    A file passed open is read from where it stands and stays open.
    """
    with opened(path) as file:
        yield from _blocks(file, name_of(path))


def _blocks(file: Any, name: str) -> Iterator[tuple[int, bytes]]:
    line = 1
    pending: list[bytes] = []  # the pieces of a line that has not ended yet
    pending_bytes = 0
    while True:
        try:
            piece = file.read(_BLOCK_BYTES)
        except DAMAGED as error:
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
