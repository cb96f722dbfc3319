"""What a file is: LETOR text, CSV, JSON lines, or Parquet and Arrow, by first bytes and name."""

from __future__ import annotations

import difflib
import io
import os
import re
from contextlib import suppress
from typing import Any

from rankrls._streams import DamagedError, PathOrFile, name_of, unpacked, without_suffix
from rankrls.datasets._text import shown

FORMATS = ("letor", "csv", "parquet")

#: Tables whose columns have names and may hold text.
TABLE_FORMATS = ("csv", "parquet", "jsonl")

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

#: How the names of columnar files end.
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".arrows", ".feather", ".ipc")

_HEAD_BYTES = 1 << 16
_MAX_GUESSES = 1000  # names that are looked at for one like another

_COLUMNAR = (b"PAR1", b"PARE", b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")

#: Files that people have, and that are none of ours.
_FOREIGN = {
    b"PK\x03\x04": "a zip file (of Excel, NumPy or a model?), not data",
    b"\x93NUMPY": "an array of NumPy, which has no labels: save it as CSV or Parquet",
    b"\x89HDF": "an HDF5 file: save it as CSV or Parquet",
    b"\xff\xfe": "text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "text in UTF-16: save it in UTF-8",
}

#: A label, then the query id or a feature; or a label alone.
_LETOR = re.compile(r"\S+\s+(qid:|\d+:)|[+-]?[\d.]+(e[+-]?\d+)?$", re.IGNORECASE)


def sniff(path: PathOrFile) -> str:
    """The format of a file: "letor", "csv" or "parquet"; an open one is set back or peeked at."""
    name = name_of(path)
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        return "parquet"
    lower = without_suffix(name).lower()
    head, text = _head(path)
    if head.startswith(_COLUMNAR) or lower.endswith(SUFFIXES):
        return "parquet"
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise ValueError(f"{name}: this is {what}")
    if lower.endswith((".csv", ".tsv")):
        return "csv"
    # The first line that is neither empty nor a comment tells; LETOR text if there is none.
    lines = ((line, line.split("#", 1)[0].strip()) for line in text.split("\n"))
    line, body = next(((line, body) for line, body in lines if body), ("", "0"))
    is_letor = _LETOR.match(body) or not any(mark in line for mark in ",\t;|")
    return "letor" if is_letor else "csv"


def sniff_table(path: PathOrFile) -> str:
    """The format of a table with names of columns: "csv", "parquet" or "jsonl"."""
    lower = without_suffix(name_of(path)).lower()
    if lower.endswith(_JSON_SUFFIXES):
        return "jsonl"
    kind = sniff(path)
    if kind == "parquet" or lower.endswith((".csv", ".tsv")):
        return kind
    return "jsonl" if _head(path)[1].lstrip().startswith(("{", "[")) else "csv"


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
