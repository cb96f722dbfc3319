"""Text of files: blocks of whole lines, plain or compressed, and what a cell of text says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._streams import DamagedError, PathOrFile, name_of, opened
from rankrls._validation import written_integer

Array = NDArray[Any]

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


# -- cells --------------------------------------------------------------------------------------

#: A decimal number; unlike ``float``, neither "nan", "inf" nor "1_000".
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:([,_ '\u00a0\u202f])[0-9]{3})(?:\1[0-9]{3})*(?:\.\d*)?")
_BOOLEANS = {"true": 1.0, "false": 0.0}  # in any case

#: Spellings of a number that is not there, in any case; in text they are words like any other.
_MISSING = ("", "na", "n/a", "nan", "null", "none")
_INFINITE = ("inf", "infinity")

#: All of them: pyarrow tells upper and lower case apart.
NULLS = ["".join(w) for word in _MISSING for w in product(*({c, c.upper()} for c in word))]

#: The end of the error of a missing feature.
REMEDY = (
    "; to keep missing values pass missing='nan', and fill them by sklearn.impute.SimpleImputer "
    "(rankrls fit --missing mean or --missing zero does both)"
)


def number_of(text: str) -> float:
    """The number that a word spells in decimal digits, infinite if it is too large; or NaN."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def cell_number(text: str) -> float:
    """The finite number in a cell, 1 and 0 for true and false; or NaN."""
    text = text.strip()
    number = number_of(text)
    return number if math.isfinite(number) else _BOOLEANS.get(text.lower(), math.nan)


def is_missing(text: str) -> bool:
    """Whether a cell stands for a number that is not there."""
    return text.strip().lower() in _MISSING


def is_word(text: str) -> bool:
    """Whether a cell is text: neither a number, also an infinite one, nor missing."""
    word = text.strip().lower()
    is_number = _NUMBER.fullmatch(word) or word.lstrip("+-") in _INFINITE or word in _BOOLEANS
    return not (is_number or word in _MISSING)


def number_hint(text: str) -> str:
    """What may be wrong with a cell that should be a number, for the end of an error."""
    return " (write numbers without thousands separators)" * bool(_THOUSANDS.fullmatch(text))


def shown(value: Any, most: int = 40) -> str:
    """A cell in quotes, shortened."""
    if isinstance(value, bytes):
        value = value[: most + 1].decode("utf-8", "backslashreplace")
    text = str(value)
    return repr(text if len(text) <= most else text[:most] + "…")


def text_of(value: Any) -> str:
    """How a cell is written; whole numbers without a decimal point."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


class Vocabulary:
    """Distinct names, numbered as they come; cells that are written alike are one name."""

    def __init__(self) -> None:
        self.cells: list[Any] = []  # by number, as they came first
        self._numbers: dict[str | None, int] = {}

    def encode(self, cells: Sequence[Any], name: str, place: Callable[[int], str]) -> Array:
        """Numbers of cells, shape (n,), new ones after those that were seen."""
        kinds, texts = set(map(type, cells)), list[str | None](cells)
        if kinds - {str}:
            for row, cell in enumerate(cells):
                if isinstance(cell, list | dict):
                    kind = type(cell).__name__
                    raise ValueError(f"{place(row)}: column {name!r} holds a {kind}, not a name")
            texts = [None if cell is None else text_of(cell) for cell in cells]
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in texts]
        first = dict(zip(reversed(numbers), reversed(cells), strict=True))
        self.cells += [first[number] for number in range(len(self.cells), len(self._numbers))]
        return np.array(numbers, dtype=np.int64)


def integers_of(words: Any) -> dict[Any, int | None]:
    """The 64-bit integer that each different word is written as (007 is not); None if none."""
    found = {word: written_integer(word) for word in dict.fromkeys(words)}
    return {word: None if number is None or not -(2**63) <= number < 2**63 else number
            for word, number in found.items()}  # fmt: skip
