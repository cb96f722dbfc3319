"""CSV text in blocks of whole records, and a careful look at records by the ``csv`` module.

pyarrow takes more for CSV than the ``csv`` module does ("1"2 is 12, any carriage return ends a
line) and its errors name no lines. So `CsvText` gives it blocks that both read alike. From the
first other one on, the ``csv`` module reads the rest of the file.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankrls._streams import PathOrFile, name_of
from rankrls.datasets._columns import named
from rankrls.datasets._numbers import NUMBER
from rankrls.datasets._source import as_utf8, blocks

__all__ = ["CsvRecords", "CsvText", "without_blank_lines"]

_DELIMITERS = ",\t;|"

_ROWS = 10_000  # of a chunk that the csv module reads

#: White space; a line of nothing else is skipped. Its start tells quickly that there is none.
_BLANKS = " \t\v\f\x1c\x1d\x1e\x1f\r\n"
_BLANK_LINE = re.compile(rb"^[ \t\v\f\x1c-\x1f\r]+$", re.MULTILINE)
_IS_BLANK = np.isin(np.arange(256), [*_BLANKS[:-2].encode()])  # pyarrow skips empty lines itself

_MAX_CELL_BYTES = csv.field_size_limit()
_MAX_WAITING_BYTES = 1 << 24  # of a record that has not ended


class CsvRecords:
    """Consecutive records of a file: their bytes, or their cells and the numbers of their lines.

    Parameters
    ----------
    text : CsvText
    line : int
        Number of the first line.
    data : bytes
        Lines that pyarrow and the ``csv`` module read alike; white lines are left to be skipped.
    rows : list of list of str, optional
        The cells instead, read by the ``csv`` module, and the ``numbers`` of their lines.
    """

    def __init__(
        self,
        text: CsvText,
        line: int,
        data: bytes = b"",
        rows: list[list[str]] | None = None,
        numbers: list[int] | None = None,
    ) -> None:
        self.text, self.line, self.data = text, line, data
        self._rows, self._numbers = rows, numbers

    @property
    def is_plain(self) -> bool:
        """Whether pyarrow can read ``data``."""
        return bool(self.data)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of all records; an error with its line if a record is no CSV."""
        if self._rows is None:
            found = list(self.text.records(self.line, _lines(self.data)))
            self._numbers = [number for number, _ in found]
            self._rows = [row for _, row in found]
        return self._rows

    def place(self, row: int) -> str:
        """File and line of a record."""
        assert self.rows
        assert self._numbers is not None
        return f"{self.text.file}:{self._numbers[int(row)]}"

    @property
    def n_bytes(self) -> int:
        """Memory, about."""
        return len(self.data) + sum(60 * len(row) for row in self._rows or ())


class CsvText:
    """One file: the names of its columns, and its records from the first to the last.

    Parameters
    ----------
    path : str, path-like or binary file
    header : bool
    delimiter : str or None
        None: the one of comma, tab, semicolon and bar that the first line has most of.
    """

    def __init__(self, path: PathOrFile, header: bool, delimiter: str | None) -> None:
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one character; got {delimiter!r}")
        if not isinstance(header, bool):
            raise ValueError(f"header must be True or False; got {header!r}")
        self.file = name_of(path)
        self._blocks = ((n, as_utf8(self.file, n, block)) for n, block in blocks(path, n_blocks=2))
        self._line, self._data = self._first_block()
        line = self._data.split(b"\n", 1)[0].decode()
        self.delimiter = delimiter or max(_DELIMITERS, key=line.count)
        self.names: list[str] = []
        reader = self._reader(self._rest())
        try:
            cells = next(reader)
        except csv.Error as error:
            self._unreadable(self._line, error)
        if header:
            self.names = [cell.strip() for cell in cells]
            self._check_header()
            self._line += reader.line_num
            for _ in range(reader.line_num):
                self._data = self._data.partition(b"\n")[2]
        else:
            self.names = [str(column) for column in range(1, len(cells) + 1)]

    def _first_block(self) -> tuple[int, bytes]:
        """The text from the first line that is not empty, and the number of that line."""
        for line, block in self._blocks:
            start = len(block) - len(block.lstrip(_BLANKS.encode()))
            if start < len(block):
                start = block.rfind(b"\n", 0, start) + 1
                return line + block.count(b"\n", 0, start), block[start:]
        raise ValueError(f"{self.file}: no data: the file is empty")

    def _rest(self) -> Iterator[str]:
        """The lines that are left; those of the first block stay where they are."""
        yield from _lines(self._data)
        for _, block in self._blocks:
            self._data += block
            yield from _lines(block)

    def _check_header(self) -> None:
        if all(NUMBER.fullmatch(name.encode()) for name in self.names):
            raise ValueError(
                f"{self.file}:{self._line}: the first line has numbers where the names of the "
                "columns should be; pass header=False if there are none"
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(f"{self.file}:{self._line}: two columns are named {named(twice[0])}")

    # ------------------------------------------------------------------ records

    def chunks(self) -> Iterator[CsvRecords]:
        """All records but the header."""
        line, waiting = self._line, b""
        for number, block in chain([(line, self._data)], self._blocks):
            line, waiting = (line, waiting + block) if waiting else (number, block)
            end = self._plain_bytes(waiting)
            if end is None:
                yield from self._carefully(line, waiting)
                return
            if end:
                yield CsvRecords(self, line, waiting[:end])
                if waiting := waiting[end:]:
                    line = number + block.count(b"\n") - waiting.count(b"\n")
        if waiting:
            yield from self._carefully(line, waiting)

    def _carefully(self, line: int, data: bytes) -> Iterator[CsvRecords]:
        """The rest of the file, read by the csv module."""
        rest = (one for _, block in chain([(line, data)], self._blocks) for one in _lines(block))
        numbers: list[int] = []
        rows: list[list[str]] = []
        for number, row in self.records(line, rest):
            numbers.append(number)
            rows.append(row)
            if len(rows) == _ROWS:
                yield CsvRecords(self, numbers[0], rows=rows, numbers=numbers)
                numbers, rows = [], []
        if rows:
            yield CsvRecords(self, numbers[0], rows=rows, numbers=numbers)

    def records(self, line: int, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """Cells and number of the first line of every record; empty lines are skipped."""
        reader = self._reader(lines)
        while True:
            number = line + reader.line_num
            try:
                row = next(reader, None)
            except csv.Error as error:
                self._unreadable(number, error)
            if row is None:
                return
            if self._is_blank(row):
                continue
            if len(row) != len(self.names):
                raise ValueError(
                    f"{self.file}:{number}: this line has {len(row)} cell{'s' * (len(row) != 1)}, "
                    f"and the first one has {len(self.names)} (separated by {self.delimiter!r})"
                )
            yield number, row

    def _is_blank(self, row: list[str]) -> bool:
        """Whether the line is nothing but white space."""
        may_be = len(row) <= 1 or self.delimiter in _BLANKS
        return may_be and not any(cell.strip(_BLANKS) for cell in row)

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def _unreadable(self, number: int, error: csv.Error) -> NoReturn:
        """Raise for a line that is no CSV."""
        if "new-line character" in str(error):
            raise ValueError(
                f"{self.file}:{number}: a carriage return stands inside this line; lines must end "
                "in \\n or \\r\\n"
            )
        raise ValueError(
            f"{self.file}:{number}: this line cannot be read ({error}); is a quotation mark "
            "missing?"
        ) from error

    # ------------------------------------------------------------------ what pyarrow may read

    def _plain_bytes(self, data: bytes) -> int | None:
        """Bytes of the records that end in ``data``; None if pyarrow may read them otherwise."""
        if not self.delimiter.isascii() or data.startswith(b"\xef\xbb\xbf"):
            return None
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return None
        if b'"' not in data:
            return len(data)
        if len(self.names) == 1 or has_blank_lines(data):
            return None
        quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"'))
        if not self._are_well_placed(data, quotes):
            return None
        end = _end_of_records(data, quotes)
        return end if end or len(data) <= _MAX_WAITING_BYTES else None

    def _are_well_placed(self, data: bytes, quotes: NDArray[np.intp]) -> bool:
        """Whether cells are quoted as a whole, and quotation marks inside them doubled."""
        bytes_ = np.frombuffer(b"\n" + data + b"\n", dtype=np.uint8)  # shifted by one
        before, after = bytes_[quotes[::2]], bytes_[quotes[1::2] + 2]
        fine = np.zeros(256, dtype=bool)
        fine[[*b'"\n', ord(self.delimiter)]] = True
        if not fine[before].all():
            return False
        fine[ord("\r")] = True
        closed = np.append(quotes[1::2], len(data))[: len(quotes[::2])]
        return bool(fine[after].all() and (closed - quotes[::2]).max() <= _MAX_CELL_BYTES)


def has_blank_lines(data: bytes) -> bool:
    """Whether there is a line of white space alone; pyarrow skips those without any."""
    bytes_ = np.frombuffer(data, dtype=np.uint8)
    starts = bytes_[np.flatnonzero(bytes_[:-1] == ord("\n")) + 1]
    if not _IS_BLANK[starts].any() and not _IS_BLANK[bytes_[:1]].any():
        return False
    return _BLANK_LINE.search(data) is not None


def without_blank_lines(data: bytes) -> bytes:
    """The same lines; those of white space alone are empty."""
    return _BLANK_LINE.sub(b"", data) if has_blank_lines(data) else data


def _end_of_records(data: bytes, quotes: NDArray[np.intp]) -> int:
    """Where the last record ends that ends in ``data``: all of it, but for an open quote."""
    if len(quotes) % 2 == 0:
        return len(data)
    for k in range(len(quotes) - 1, -1, -2):  # between a closing mark and the next opening one
        closed = int(quotes[k - 1]) if k else 0
        end = data.rfind(b"\n", closed, int(quotes[k])) + 1
        if end:
            return end
    return 0


def _lines(data: bytes) -> Iterator[str]:
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    return (line + "\n" for line in lines)
