"""Files as text: which format they have, blocks of whole lines, and what a cell says.

The format is LETOR text, CSV, JSON lines, or Parquet and Arrow, by first bytes and name.
"""

from __future__ import annotations

import difflib
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._streams import DamagedError, PathOrFile, name_of, opened, unpacked, without_suffix
from rankrls._validation import written_integer

Array = NDArray[Any]

FORMATS = ("letor", "csv", "parquet")

#: Tables whose columns have names and may hold text.
TABLE_FORMATS = ("csv", "parquet", "jsonl")

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_JSON = re.compile(r"\s*(\[\s*)?{")

#: How the names of columnar files end.
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".feather", ".ipc")

_HEAD_BYTES = 1 << 16
_MAX_GUESSES = 1000  # names that are looked at for one like another

_COLUMNAR = (b"PAR1", b"PARE", b"ARROW1", b"FEA1")

#: A label, then the query id or a feature; or a label alone.
_LETOR = re.compile(r"\S+\s+(qid:|\d+:)|[+-]?[\d.]+(e[+-]?\d+)?$", re.IGNORECASE)


def sniff(path: PathOrFile, *, named: bool = False) -> str:
    """The format of a file: "letor", "csv" or "parquet"; an open one is set back or peeked at.

    ``named``: that of a table whose columns have names, "csv", "parquet" or "jsonl".
    """
    name = name_of(path)
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        return "parquet"
    lower = without_suffix(name).lower()
    if named and lower.endswith(_JSON_SUFFIXES):
        return "jsonl"
    head, text = _head(path)
    if head.startswith(_COLUMNAR) or lower.endswith(SUFFIXES):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        raise ValueError(f"{name}: this is a zip file (of Excel, NumPy or a model?), not data")
    if lower.endswith((".csv", ".tsv")):
        return "csv"
    if named:
        return "jsonl" if text.lstrip().startswith(("{", "[")) else "csv"
    if _JSON.match(text):
        raise ValueError(
            f"{name}: this is JSON, and rows to rank are read from LETOR text, CSV, Parquet and "
            "Arrow files (pandas.read_json and DataFrame.to_parquet convert it)"
        )
    # The first line that is neither empty nor a comment tells; LETOR text if there is none.
    lines = ((line, line.split("#", 1)[0].strip()) for line in text.split("\n"))
    line, body = next(((line, body) for line, body in lines if body), ("", "0"))
    is_letor = _LETOR.match(body) or not any(mark in line for mark in ",\t;|")
    return "letor" if is_letor else "csv"


def find_delimiter(path: PathOrFile) -> str:
    """The one of comma, tab, semicolon and bar that the first line of a CSV file has most of."""
    return delimiter_of(_head(path)[1].lstrip())


def delimiter_of(text: str) -> str:
    """The same for text; delimiters in quoted cells, which may have several lines, do not count."""
    first_line = re.sub(r'"[^"]*("|$)', "", text).partition("\n")[0]
    return max(",\t;|", key=first_line.count)


def _head(path: Any) -> tuple[bytes, str]:
    """First bytes of a file, and its text if they are compressed; damage is reported later."""
    name, file = name_of(path), path
    if isinstance(path, str | os.PathLike):
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(f"{name}: this is a pipe or a device, not a file; name its format")
        with open(name, "rb") as file:
            return _head(file)
    if not getattr(path, "seekable", lambda: False)():
        if not hasattr(path, "peek"):
            raise ValueError(f"{name}: a stream cannot be looked at twice; name its format")
        file = io.BytesIO(path.peek(_HEAD_BYTES))
    start = file.tell()
    head, text = file.read(_HEAD_BYTES), b""
    if not isinstance(head, bytes):
        raise ValueError(f"{name}: open the file in binary mode ('rb')")
    file.seek(start)
    with suppress(DamagedError):
        unpacked_file = unpacked(file, name)
        while len(text) < _HEAD_BYTES and (more := unpacked_file.read(_HEAD_BYTES // 16)):
            text += more
    file.seek(start)
    if file is not path and head and not text:
        raise ValueError(f"{name}: the compressed stream does not tell its format; name it")
    return head, text.decode("utf-8-sig", "replace")


# -- names of columns ---------------------------------------------------------------------------


def missing_column(role: str, name: str, names: list[str]) -> str:
    """Say what columns there are, and which one may be meant."""
    lower = {known.lower(): known for known in names[:_MAX_GUESSES]}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f" (did you mean {named(lower[near[0]])}?)" if near else ""
    return f"no column {name!r} for {role}{hint}; the columns are {listed(names)}"


def listed(names: list[str]) -> str:
    """The first names of columns, and how many there are."""
    return ", ".join(map(named, names[:20])) + f", … {len(names)} in all" * (len(names) > 20)


def named(name: str) -> str:
    """The name of a column in quotes."""
    return shown(name, 80)


# -- blocks of lines ----------------------------------------------------------------------------

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
    at, what = block.find(b"\0"), "binary data, or text in UTF-16 (save it in UTF-8)"
    if at < 0 and not block.isascii():
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            at, what = error.start, "not UTF-8 text; save the file in UTF-8"
    if at >= 0:
        line = number + block.count(b"\n", 0, at)
        raise ValueError(f"{name}:{line}: this is {what}")
    return block


def parsed(
    data: bytes, names: list[str], types: dict[str, Any], delimiter: str, quoted: bool, nulls: Any
) -> Any:
    """Columns of lines with cells, by pyarrow: those that ``types`` has; None if it cannot."""
    import pyarrow
    from pyarrow import csv

    reading = csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
    quote = '"' if quoted else False
    parsing = csv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=quoted)
    converting = csv.ConvertOptions(
        check_utf8=False, column_types=types, include_columns=list(types), null_values=nulls
    )
    with suppress(pyarrow.ArrowInvalid):
        file = pyarrow.BufferReader(data)
        return csv.read_csv(file, reading, parsing, converting).combine_chunks()
    return None


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


def spells_missing(text: str) -> bool:
    """Whether a cell spells a number that is not there."""
    return text.strip().lower() in _MISSING


def is_word(text: str) -> bool:
    """Whether a cell is text: neither a number, also an infinite one, nor missing."""
    word = text.strip().lower()
    is_number = _NUMBER.fullmatch(word) or word.lstrip("+-") in _INFINITE or word in _BOOLEANS
    return not (is_number or word in _MISSING)


def number_hint(text: str) -> str:
    """What may be wrong with a cell that should be a number, for the end of an error."""
    if _THOUSANDS.fullmatch(text):
        return " (write numbers without thousands separators)"
    is_number = text.count(",") == 1 and _NUMBER.fullmatch(text.replace(",", "."))
    return " (write a decimal point)" * bool(is_number)


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


def integers_of(words: Any) -> dict[Any, int | None]:
    """The 64-bit integer that each different word is written as (007 is not); None if none."""
    found = {word: written_integer(word) for word in dict.fromkeys(words)}
    return {word: None if number is None or not -(2**63) <= number < 2**63 else number
            for word, number in found.items()}  # fmt: skip
