"""Bytes and text of a file, plain or compressed, in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rankrls import _resources
from rankrls._streams import DamagedError, PathOrFile, name_of, opened

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 26  # some 5 million features in one row
_BYTES_PER_BYTE = 32  # memory that cutting a line into words may take


def require_loadable(place: Callable[[], str], n_bytes: int, instead: str) -> None:
    """Raise if the rows that have been read leave no room for the arrays to be made of them."""
    if n_bytes > _resources.budget():
        raise MemoryError(
            f"{place()}: the rows up to here take {n_bytes / 2**30:.1f} GiB, and all of them do "
            f"not fit into the memory of this process ({_resources.available() / 2**30:.1f} GiB): "
            f"read them in smaller batches, with {instead}"
        )


def blocks(
    path: PathOrFile, longest: int | None = None, n_blocks: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number of the first line, whole lines)`` until the file ends."""
    name, line = name_of(path), 1
    room = max(_resources.budget() // _BYTES_PER_BYTE, _BLOCK_BYTES)
    longest = min(longest or _MAX_LINE_BYTES, room)
    pending: list[bytes] = []  # the pieces of a line that has not ended yet
    with opened(path) as file:
        while True:
            try:
                piece = file.read(n_blocks * _BLOCK_BYTES)
            except DamagedError as error:
                raise ValueError(
                    f"{name}:{line}: {error} at or after this line ({error.args[1]}); get the "
                    "file again"
                ) from error
            cut = piece.rfind(b"\n") + 1 if piece else 0
            if cut or not piece:
                block = b"".join([*pending, memoryview(piece)[:cut]])
                if block:
                    yield line, block.removeprefix(b"\xef\xbb\xbf") if line == 1 else block
                line += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))
                pending = []
            if not piece:
                return
            pending.append(piece[cut:])
            if sum(map(len, pending)) > longest:
                raise ValueError(
                    f"{name}:{line}: this line is longer than {longest >> 20} MiB; are the ends "
                    "of lines missing?"
                )


def text_blocks(path: PathOrFile, longest: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """`blocks` of UTF-8 text as lists of lines."""
    name = name_of(path)
    for number, block in blocks(path, longest):
        yield number, as_utf8(name, number, block).decode("utf-8").removesuffix("\n").split("\n")


def as_utf8(name: str, number: int, block: bytes) -> bytes:
    """The same block, or an error with the line, counted from ``number``, that is no text."""
    at, what = block.find(b"\0"), "binary data, not text"
    if at < 0 and not block.isascii():
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            at, what = error.start, "not UTF-8 text; save the file in UTF-8"
    if at >= 0:
        line = number + block.count(b"\n", 0, at)
        raise ValueError(f"{name}:{line}: this is {what}")
    return block


def place_of(name: str, numbers: Sequence[int], row: int) -> str:
    """File and line of a row, of which the numbers of lines are known."""
    return f"{name}:{numbers[row]}"
