"""What a file is: LETOR text, CSV, JSON lines, or Parquet and Arrow, by first bytes and name."""

from __future__ import annotations

import io
import os
import re
from typing import Any

from rankrls._streams import DamagedError, PathOrFile, name_of, opened, unpacked, without_suffix

__all__ = ["FORMATS", "SUFFIXES", "TABLE_FORMATS", "sniff", "sniff_table"]

FORMATS = ("letor", "csv", "parquet")

#: Tables whose columns have names and may hold text.
TABLE_FORMATS = ("csv", "parquet", "jsonl")

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

#: How the names of columnar files end.
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".arrows", ".feather", ".ipc")

_HEAD_BYTES = 1 << 16

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
    head = _head(path)
    if head.startswith(_COLUMNAR) or lower.endswith(SUFFIXES):
        return "parquet"
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise ValueError(f"{name}: this is {what}")
    if lower.endswith((".csv", ".tsv")):
        return "csv"
    return "letor" if _looks_like_letor(_text(path, head)) else "csv"


def sniff_table(path: PathOrFile) -> str:
    """The format of a table with names of columns: "csv", "parquet" or "jsonl"."""
    lower = without_suffix(name_of(path)).lower()
    if lower.endswith(_JSON_SUFFIXES):
        return "jsonl"
    kind = sniff(path)
    if kind == "parquet" or lower.endswith((".csv", ".tsv")):
        return kind
    return "jsonl" if _text(path, _head(path)).lstrip().startswith(("{", "[")) else "csv"


def _head(path: PathOrFile) -> bytes:
    if isinstance(path, str | os.PathLike):
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(
                f"{name_of(path)}: this is a pipe or a device, not a file; name its format"
            )
        with open(path, "rb") as file:
            return file.read(_HEAD_BYTES)
    if getattr(path, "seekable", lambda: False)():
        start = path.tell()
        head = path.read(_HEAD_BYTES)
        path.seek(start)
    elif hasattr(path, "peek"):
        head = path.peek(_HEAD_BYTES)
    else:
        raise ValueError(f"{name_of(path)}: a stream cannot be looked at twice; name its format")
    if not isinstance(head, bytes):
        raise ValueError(f"{name_of(path)}: open the file in binary mode ('rb')")
    return head


def _text(path: PathOrFile, head: bytes) -> str:
    """Return the first text of a file, decompressed; damaged data are reported later."""
    name = name_of(path)
    if isinstance(path, str | os.PathLike):
        with opened(path) as file:
            found = _first_bytes(file)
    elif getattr(path, "seekable", lambda: False)():
        start = path.tell()
        found = _first_bytes(unpacked(path, name))
        path.seek(start)
    else:
        found = _first_bytes(unpacked(io.BytesIO(head), name))
        if head and not found:
            raise ValueError(f"{name}: the compressed stream does not tell its format; name it")
    return found.decode("utf-8-sig", "replace")


def _first_bytes(file: Any) -> bytes:
    found = b""
    try:
        while len(found) < _HEAD_BYTES and (more := file.read(_HEAD_BYTES // 16)):
            found += more
    except DamagedError:
        pass
    return found


def _looks_like_letor(text: str) -> bool:
    """By the first line that is neither empty nor a comment; LETOR text if there is none."""
    for line in text.split("\n"):
        body = line.split("#", 1)[0].strip()
        if body:
            if _LETOR.match(body):
                return True
            return not any(mark in line for mark in ",\t;|")
    return True
