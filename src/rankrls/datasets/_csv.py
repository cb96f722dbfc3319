"""CSV files: blocks of whole records, which pyarrow reads, several at a time.

Errors of pyarrow name no lines: what it cannot read is read again by the ``csv`` module, which
finds the error, or gives cells that are numbers after all, such as true.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from rankrls._resources import in_order
from rankrls._streams import PathOrFile, name_of
from rankrls.datasets._cells import (
    NULLS,
    REMEDY,
    cell_number,
    is_missing,
    is_word,
    number_hint,
    number_of,
    shown,
)
from rankrls.datasets._columns import TableReader, droppable, pyarrow
from rankrls.datasets._rows import FileRows
from rankrls.datasets._source import as_utf8, blocks, require_loadable

_DELIMITERS = ",\t;|"
_BLANK_LINE = re.compile(rb"^[ \t]+\r?$", re.MULTILINE)

_MAX_THREADS = 8
_HEAD_BYTES = 1 << 20  # that are searched for the delimiter
_SAMPLE = 1000  # rows that are searched for columns of text, for an error message
_MAX_WAITING_BYTES = 1 << 24  # of a record that has not ended


class CsvSource:
    """One CSV file: the names of its columns, and its records from the first to the last."""

    def __init__(self, path: PathOrFile, header: bool, delimiter: str | None) -> None:
        pyarrow()
        if delimiter is not None and (
            not isinstance(delimiter, str)
            or len(delimiter) != 1
            or delimiter in '"\r\n'
            or not delimiter.isascii()
        ):
            raise ValueError(f"delimiter must be one character of ASCII; got {delimiter!r}")
        if not isinstance(header, bool):
            raise ValueError(f"header must be True or False; got {header!r}")
        self.file, self.kind = name_of(path), "CSV"
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
        first_line = re.sub(rb'"[^"]*("|$)', b"", self._data[:_HEAD_BYTES]).partition(b"\n")[0]
        self.delimiter = delimiter or max(
            _DELIMITERS, key=first_line.decode("utf-8", "replace").count
        )
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
        self._blocks: list[_Block] | None = None  # those that have been read already

    def rows(self, columns: TableReader, most: float) -> Iterator[FileRows]:
        """All rows, a block at a time."""

        def read(block: _Block) -> FileRows:
            try:
                return columns.rows(self._batch(block, columns), block.place)
            except ValueError:
                self._batch(block, columns, strict=True)  # an error with the cell as it is written
                raise

        threads = min(pyarrow().cpu_count(), _MAX_THREADS)
        found = in_order(read, iter(self._blocks or self.blocks()), threads)
        return (rows for rows in found if len(rows))

    def cells(self, columns: list[str]) -> Iterator[tuple[list[list[str | None]], Any]]:
        """Some columns as text, None where it is blank, and a function that names a row."""
        for block in self.blocks():
            arrays = {n: _stripped(cells) for n, cells in block.strings(columns).items()}
            if arrays and len(arrays[columns[0]]):
                yield [arrays[name].to_pylist() for name in columns], block.place

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

    def blocks(self) -> Iterator[_Block]:
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
        place = f"{self.file}:{number}"
        if "new-line character" in str(error):
            raise ValueError(
                f"{place}: a carriage return stands inside this line; lines must end in \\n or "
                "\\r\\n"
            )
        raise ValueError(
            f"{place}: this line cannot be read ({error}); is a quotation mark missing?"
        ) from error

    def _batch(self, block: _Block, columns: TableReader, strict: bool = False) -> Any:
        """The columns as a RecordBatch: features, labels and weights are float64."""
        arrays, wrong = block.strings(columns.names), list[tuple[int, int, str]]()
        for place, (name, cells) in enumerate(arrays.items()):
            if name == columns.qid or name in (columns.text or ()):
                arrays[name] = _stripped(cells)
                continue
            nullable = columns.keep_missing and name in columns.features
            nullable |= name == columns.target and columns.drop_unlabelled
            numbers = None if strict else _plain_numbers(cells, nullable)
            if numbers is None:
                numbers, row = _as_numbers(cells, nullable)
                wrong += [] if row is None else [(row, place, name)]
            arrays[name] = numbers
        if wrong:
            row, _, name = min(wrong)
            self._refuse(block, row, name, columns)
        return pyarrow().RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def find_text(self, names: list[str]) -> set[str]:
        """Columns that have a cell of text in some row; all rows are kept for `rows`."""
        self._blocks, found, n_bytes = [], set[str](), 0
        for block in self.blocks():
            self._blocks.append(block)
            n_bytes += len(block.data)
            require_loadable(partial(block.place, 0), n_bytes, "iter_ranking")
            for name, cells in block.strings([n for n in names if n not in found]).items():
                plain = _plain_numbers(cells, nullable=True) is not None
                if not plain and any(map(is_word, cells.unique().to_pylist())):
                    found.add(name)
        return found

    def _refuse(self, block: _Block, row: int, name: str, columns: TableReader) -> NoReturn:
        """Raise for a cell that is not a number."""
        cells = block.cells
        text, hint = cells[row][self.place_of[name]].strip(), ""
        is_feature = name in columns.features
        if is_feature and not columns.chosen:
            # Columns to leave out: this one, and those of text in rows near it.
            first = max(0, row - _SAMPLE // 2)
            near = list(zip(*cells[first : first + _SAMPLE], strict=True))
            known = columns.text or ()
            words = {n: near[self.place_of[n]] for n in columns.features if n not in known}
            others = [n for n in words if n == name or any(map(is_word, set(words[n])))]
            hint = droppable(others, text=is_word(text))
        what = f"is {shown(text)}, not a finite number{number_hint(text)}"
        if not text:
            what = "is empty; every row needs a number there"
        raise ValueError(
            f"{block.place(row)}: column {shown(name, 80)} {what}"
            f"{REMEDY * (is_feature and is_missing(text))}{hint}"
        )


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

    @property
    def cells(self) -> list[list[str]]:
        """The cells of all records."""
        return [row for _, row in self._records]

    def place(self, row: int) -> str:
        """File and line of a record."""
        return f"{self.source.file}:{self._records[int(row)][0]}"

    def strings(self, names: list[str]) -> dict[str, Any]:
        """Columns by name, as text; by the ``csv`` module where pyarrow may read another thing."""
        arrow, at = pyarrow(), [self.source.place_of[name] for name in names]
        table = self._table(at) if names else None
        if table is not None and len(table):
            return {name: table.column(i).chunk(0) for i, name in enumerate(names)}
        rows = self.cells if names else []
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


def _plain_numbers(cells: Any, nullable: bool) -> Any:
    """Cells as numbers, infinite ones among them, if pyarrow can read all of them; or None."""
    arrow = pyarrow()
    for trim in (False, True):
        words = arrow.compute.utf8_trim_whitespace(cells) if trim else cells
        if nullable:
            missing = arrow.compute.is_in(words, value_set=arrow.array(NULLS))
            words = arrow.compute.if_else(missing, arrow.scalar(None, words.type), words)
        with suppress(arrow.ArrowInvalid):
            return words.cast(arrow.float64())
    return None


def _as_numbers(cells: Any, nullable: bool) -> tuple[Any, int | None]:
    """Cells as numbers, true and false among them, and the first row that has none but should."""
    coded = cells.dictionary_encode()
    words = coded.dictionary.to_pylist()
    numbers = np.array([cell_number(word) for word in words])
    missing = np.array([nullable and is_missing(word) for word in words], dtype=bool)
    bad = np.isnan(numbers) & ~missing
    codes = coded.indices.to_numpy()
    values = numbers[codes]
    first = int(np.argmax(bad[codes])) if bad.any() else None
    return pyarrow().array(values, mask=np.isnan(values)), first


def _stripped(cells: Any) -> Any:
    """Text without the white space around it, null where nothing is left."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    return compute.if_else(compute.equal(words, ""), pyarrow().scalar(None, words.type), words)


def _lines(data: bytes) -> Iterable[str]:
    return (line + "\n" for line in data.decode().removesuffix("\n").split("\n"))
