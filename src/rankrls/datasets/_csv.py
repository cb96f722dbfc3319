"""CSV files: blocks of whole records, which pyarrow cuts into cells, several at a time.

Errors of pyarrow name no lines: what it cannot read, or may read differently, is read by the
``csv`` module, which finds the error and its line.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from rankrls._resources import pyarrow
from rankrls._streams import PathOrFile, name_of
from rankrls.datasets._arrow import csv_numbers, missing_cells
from rankrls.datasets._text import as_utf8, blocks, is_word, number_of, require_loadable, shown
from rankrls.datasets.formats import delimiter_of

_BLANK_LINE = re.compile(rb"^[ \t]+\r?$", re.MULTILINE)

_MAX_THREADS = 8
_HEAD_BYTES = 1 << 20  # that are searched for the delimiter
_MAX_WAITING_BYTES = 1 << 24  # of a record that has not ended


class CsvSource:
    """One CSV file: the names of its columns, and its records from the first to the last."""

    kind, schema = "CSV", None

    def __init__(self, path: PathOrFile, header: bool = True, delimiter: str | None = None) -> None:
        self.threads = min(pyarrow().cpu_count(), _MAX_THREADS)
        if delimiter is not None and not (
            isinstance(delimiter, str) and re.fullmatch(r'[^"\r\n\x80-\U0010ffff]', delimiter)
        ):
            raise ValueError(f"delimiter must be one character of ASCII; got {delimiter!r}")
        if not isinstance(header, bool):
            raise ValueError(f"header must be True or False; got {header!r}")
        self.file = name_of(path)
        self._text = ((n, as_utf8(self.file, n, data)) for n, data in blocks(path, n_blocks=2))
        line, data = next((part for part in self._text if part[1].strip()), (0, b""))
        if not data:
            raise ValueError(f"{self.file}: no data: the file is empty")
        start = data.rfind(b"\n", 0, len(data) - len(data.lstrip())) + 1
        self._line, self._data = line + data.count(b"\n", 0, start), data[start:]
        # Delimiters in quoted cells, which may have several lines, are not counted.
        while self._data.count(b'"') % 2 and len(self._data) < _HEAD_BYTES:
            _, more = next(self._text, (0, b""))
            if not more:
                break
            self._data += more
        head = self._data[:_HEAD_BYTES].decode("utf-8", "replace")
        self.delimiter = delimiter or delimiter_of(head)
        reader = csv.reader(_lines(self._data), delimiter=self.delimiter, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            self.unreadable(self._line, error)
        self.names = [str(column) for column in range(1, len(cells) + 1)]
        if header:
            self.names = [cell.strip() for cell in cells]
            self._check_header()
            self._line += reader.line_num
            for _ in range(reader.line_num):
                self._data = self._data.partition(b"\n")[2]
        self.place_of = {name: column for column, name in enumerate(self.names)}
        self._kept: list[_Block] | None = None  # blocks that have been read already

    def _check_header(self) -> None:
        place = f"{self.file}:{self._line}"
        if not any(np.isnan(number_of(name)) for name in self.names):
            raise ValueError(
                f"{place}: the first line has numbers where the names of the columns should be; "
                "pass header=False if there are none"
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(f"{place}: two columns are named {shown(twice[0], 80)}")

    def parts(self, columns: list[str], *_: Any) -> Iterator[tuple[Callable[[], Any], Any]]:
        """Functions that load some columns, arrays of text by name, and what names a row."""
        return ((partial(block.strings, columns), block.place)
                for block in (self._kept or self._blocks()))  # fmt: skip

    def numbers_in_a_row(self, column: str) -> int:
        """Return 1: there are no lists."""
        return 1

    def find_text(self, names: list[str]) -> set[str]:
        """Columns that have a cell of text in some row; all rows are kept for `parts`."""
        self._kept, found, n_bytes = [], set[str](), 0
        for block in self._blocks():
            self._kept.append(block)
            n_bytes += len(block.data)
            require_loadable(partial(block.place, 0), n_bytes, "iter_ranking")
            for name, cells in block.strings([n for n in names if n not in found]).items():
                unclear = ~(np.isfinite(csv_numbers(cells)) | missing_cells(cells))
                if unclear.any() and any(map(is_word, cells.filter(unclear).unique().to_pylist())):
                    found.add(name)
        return found

    def _blocks(self) -> Iterator[_Block]:
        """All records but the header."""
        line, waiting = self._line, b""
        for number, data in chain([(line, self._data)], self._text):
            line, waiting = (line, waiting + data) if waiting else (number, data)
            end = _ended(waiting) or len(waiting) * (len(waiting) > _MAX_WAITING_BYTES)
            if end:
                yield _Block(self, line, waiting[:end])
                line += waiting.count(b"\n", 0, end) if end < len(waiting) else 0
                waiting = waiting[end:]
        if waiting:
            yield _Block(self, line, waiting)

    def unreadable(self, number: int, error: csv.Error) -> NoReturn:
        """Raise for a line that is no CSV."""
        what = f"this line cannot be read ({error}); is a quotation mark missing?"
        if "new-line character" in str(error):
            what = "a carriage return stands inside this line; lines must end in \\n or \\r\\n"
        raise ValueError(f"{self.file}:{number}: {what}") from error


class _Block:
    """Consecutive records of a file, from a line on."""

    def __init__(self, source: CsvSource, line: int, data: bytes) -> None:
        self.source, self.line, self.data = source, line, data

    @cached_property
    def _records(self) -> list[tuple[int, list[str]]]:
        """Number of the first line and cells of every record, read by the ``csv`` module."""
        source, records = self.source, list[tuple[int, list[str]]]()
        reader = csv.reader(_lines(self.data), delimiter=source.delimiter, strict=True)
        while True:
            number = self.line + reader.line_num
            try:
                row = next(reader, None)
            except csv.Error as error:
                source.unreadable(number, error)
            if row is None:
                return records
            may_be_blank = len(row) <= 1 or source.delimiter.isspace()
            if may_be_blank and not any(cell.strip() for cell in row):
                continue
            if len(row) != len(source.names):
                raise ValueError(
                    f"{source.file}:{number}: this line has {len(row)} cell{'s' * (len(row) != 1)},"
                    f" and the first one has {len(source.names)} (separated by "
                    f"{source.delimiter!r})"
                )
            records.append((number, row))

    def place(self, row: int) -> str:
        """File and line of a record."""
        return f"{self.source.file}:{self._records[int(row)][0]}"

    def strings(self, names: list[str]) -> dict[str, Any]:
        """Columns by name, as text; by the ``csv`` module where pyarrow may read another thing."""
        arrow, at = pyarrow(), [self.source.place_of[name] for name in names]
        table = self._table(at) if names else None
        if table is not None and len(table):
            return {name: table.column(i).chunk(0) for i, name in enumerate(names)}
        rows = [row for _, row in self._records] if names else []
        columns = [arrow.array([row[i] for row in rows], arrow.string()) for i in at]
        return dict(zip(names, columns, strict=True))

    def _table(self, columns: list[int]) -> Any:
        """Columns by number as text, read by pyarrow; None if it cannot, or may be wrong."""
        arrow, source, data = pyarrow(), self.source, self.data
        # Quotation marks inside cells, or missing ones, and what pyarrow takes for other lines.
        blank = source.delimiter.isspace()
        blank = blank and (source.delimiter not in " \t" or _BLANK_LINE.search(data) is not None)
        is_odd = b"\r" in data and data.count(b"\r") != data.count(b"\r\n")
        is_odd = is_odd or (b'"' in data and data.count(b'"') % 2 == 1)
        if is_odd or blank or len(source.names) == 1 or data.startswith(b"\xef\xbb\xbf"):
            return None
        keys = [str(column) for column in range(len(source.names))]
        reading = arrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=keys
        )
        parsing = arrow.csv.ParseOptions(
            delimiter=source.delimiter,
            quote_char='"' if b'"' in data else False,
            newlines_in_values=True,
        )
        converting = arrow.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(keys, arrow.string()),
            include_columns=[keys[column] for column in columns],
            null_values=[],
        )
        with suppress(arrow.ArrowInvalid):
            file = arrow.BufferReader(data)
            return arrow.csv.read_csv(file, reading, parsing, converting).combine_chunks()
        return None


def _ended(data: bytes) -> int:
    """Length of the records that end in ``data``; a quoted cell may hold line ends."""
    if b'"' not in data or data.count(b'"') % 2 == 0:
        return len(data)
    quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"')).tolist()
    for k in range(len(quotes) - 1, -1, -2):  # between a closing mark and the next opening one
        end = data.rfind(b"\n", quotes[k - 1] if k else 0, quotes[k]) + 1
        if end:
            return end
    return 0


def _lines(data: bytes) -> Iterable[str]:
    return (line + "\n" for line in data.decode().removesuffix("\n").split("\n"))
