"""Lines of a CSV file to cells and numbers.

Blocks without quotes are split into lines, and NumPy reads the numbers of all of them at once. From
the first quote on, the ``csv`` module reads the rest of the file. What is not a number is looked
for only when that has failed, to name its place.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankrls._streams import PathOrFile, name_of
from rankrls.datasets._columns import choose_features, droppable, missing_column
from rankrls.datasets._numbers import NUMBER
from rankrls.datasets._source import blocks

__all__ = ["CsvChunk", "CsvColumns", "CsvSource", "guess_delimiter"]

Array = NDArray[Any]

_DELIMITERS = ",\t;|"

_ROWS = 10_000  # of a chunk that the csv module reads

_UNIT = "\x1f"  # joins cells that were in quotes, for NumPy


def guess_delimiter(line: str) -> str:
    """The character that separates the cells of a line; a comma if there is no telling."""
    return max(_DELIMITERS, key=line.count)


class CsvChunk:
    """Rows that follow each other; ``batch`` has one string, or list of cells, for each."""

    def __init__(self, source: CsvSource, numbers: list[int] | range, batch: list[Any]) -> None:
        self.source, self.batch = source, batch
        self._numbers = numbers
        self._table: Array | None = None

    def place(self, row: int) -> str:
        """File and line of a row."""
        return f"{self.source.file}:{self._numbers[int(row)]}"

    def cells(self, column: int) -> list[str]:
        """The text of a column."""
        if self.batch and isinstance(self.batch[0], str):
            delimiter = self.source.delimiter
            return [line.split(delimiter, column + 1)[column].strip() for line in self.batch]
        return [row[column].strip() for row in self.batch]

    def table(self, columns: list[int]) -> Array:
        """Numbers of these columns, shape (n_rows, n_columns); made once."""
        if self._table is None:
            lines, delimiter, used = self.batch, self.source.delimiter, columns
            if not isinstance(lines[0], str):
                lines = [_UNIT.join([row[j] for j in columns]) for row in lines]
                delimiter, used = _UNIT, list(range(len(columns)))
            try:
                self._table = np.loadtxt(
                    lines, delimiter=delimiter, usecols=used, comments=None, ndmin=2
                )
            except ValueError:
                self._complain(columns)
            if not np.isfinite(self._table).all():
                self._complain(columns)
        return self._table

    def _complain(self, columns: list[int]) -> NoReturn:
        """Raise for the first cell that is not a finite number."""
        cells = [self.cells(column) for column in columns]
        for row in range(len(self.batch)):
            for column, texts in zip(columns, cells, strict=True):
                text, name = texts[row], self.source.names[column][:80]
                if _is_number(text):
                    continue
                hint = self._hint(row, column)
                if not text:
                    raise ValueError(
                        f"{self.place(row)}: column {name!r} is empty; every row needs a number "
                        f"there{hint}"
                    )
                shown = text if len(text) <= 40 else text[:40] + "…"
                raise ValueError(
                    f"{self.place(row)}: column {name!r} is {shown!r}, not a finite number{hint}"
                )
        raise ValueError(f"{self.place(0)}: the numbers cannot be read")  # pragma: no cover

    def _hint(self, row: int, column: int) -> str:
        """Which columns to leave out: those that are no number in this row."""
        free = self.source.droppable
        if column not in free:
            return ""
        line = self.batch[row]
        cells = line.split(self.source.delimiter) if isinstance(line, str) else line
        return droppable([self.source.names[j] for j in sorted(free) if not _is_number(cells[j])])


class CsvSource:
    """One file: the names of its columns, and its rows from the first to the last.

    Parameters
    ----------
    path : str, path-like or binary file
    header : bool
    delimiter : str or None
    """

    def __init__(self, path: PathOrFile, header: bool, delimiter: str | None) -> None:
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one character; got {delimiter!r}")
        if not isinstance(header, bool):
            raise ValueError(f"header must be True or False; got {header!r}")
        self.file = name_of(path)
        self.droppable: set[int] = set()  # columns that nobody has asked for
        self._blocks = self._text(path)
        self._first = next(self._blocks, None)
        number, line = self._first_line()
        self.delimiter = delimiter or guess_delimiter(line)
        try:
            cells = next(self._split([line]))
        except csv.Error as error:
            raise ValueError(f"{self.file}:{number}: this line cannot be read ({error})") from error
        if header:
            self.names = [cell.strip() for cell in cells]
            self._check_header(number)
            self._skip = number
        else:
            self.names = [str(column) for column in range(1, len(cells) + 1)]
            self._skip = 0

    def _text(self, path: PathOrFile) -> Iterator[tuple[int, list[str]]]:
        """Blocks of lines, each with the number of the first one."""
        for number, block in blocks(path):
            if b"\0" in block:
                raise ValueError(f"{self.file}:{number}: this is binary data, not text")
            try:
                text = block.decode("utf-8")
            except UnicodeDecodeError as error:
                line = number + block[: error.start].count(b"\n")
                raise ValueError(
                    f"{self.file}:{line}: this is not UTF-8 text; save the file in UTF-8"
                ) from error
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            yield number, lines

    def _first_line(self) -> tuple[int, str]:
        """The first line that is not empty, and its number; later blocks are not needed."""
        while self._first is not None:
            number, lines = self._first
            for offset, line in enumerate(lines):
                if line.strip():
                    return number + offset, line
            self._first = next(self._blocks, None)
        raise ValueError(f"{self.file}: no data: the file is empty")

    def _split(self, lines: Any) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def _check_header(self, number: int) -> None:
        if all(NUMBER.fullmatch(name.encode()) for name in self.names):
            raise ValueError(
                f"{self.file}:{number}: the first line has numbers where the names of the columns "
                "should be; pass header=False if there are none"
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(f"{self.file}:{number}: there are two columns {twice[0]!r}")

    def chunks(self) -> Iterator[CsvChunk]:
        """All rows but the header; none of the chunks is empty."""
        while self._first is not None:
            number, lines = self._first
            if any('"' in line for line in lines):
                yield from self._quoted()
                return
            self._first = next(self._blocks, None)
            numbers: list[int] | range = range(number, number + len(lines))
            if number <= self._skip:
                lines = lines[self._skip - number + 1 :]
                numbers = numbers[-len(lines) :] if lines else []
            if not all(map(str.strip, lines)):
                kept = [(n, line) for n, line in zip(numbers, lines, strict=True) if line.strip()]
                numbers, lines = [n for n, _ in kept], [line for _, line in kept]
            if lines:
                n_cells = len(self.names)
                for row, line in enumerate(lines):
                    if line.count(self.delimiter) != n_cells - 1:
                        self._wrong_length(numbers[row], line.count(self.delimiter) + 1)
                yield CsvChunk(self, numbers, lines)

    def _quoted(self) -> Iterator[CsvChunk]:
        """The rest of the file, read by the csv module."""
        assert self._first is not None
        before = self._first[0] - 1
        reader = self._split(self._rest())
        numbers: list[int] = []
        rows: list[list[str]] = []
        while True:
            number = before + reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise ValueError(
                    f"{self.file}:{number}: this line cannot be read ({error}); is a quotation "
                    "mark missing?"
                ) from error
            if row is None:
                break
            if number <= self._skip or not any(cell.strip() for cell in row):
                continue
            if len(row) != len(self.names):
                self._wrong_length(number, len(row))
            numbers.append(number)
            rows.append(row)
            if len(rows) == _ROWS:
                yield CsvChunk(self, numbers, rows)
                numbers, rows = [], []
        if rows:
            yield CsvChunk(self, numbers, rows)

    def _rest(self) -> Iterator[str]:
        while self._first is not None:
            for line in self._first[1]:
                yield line + "\n"
            self._first = next(self._blocks, None)

    def _wrong_length(self, number: int, n_cells: int) -> NoReturn:
        raise ValueError(
            f"{self.file}:{number}: this line has {n_cells} cell{'s' * (n_cells != 1)}, and the "
            f"first one has {len(self.names)} (separated by {self.delimiter!r})"
        )


class CsvColumns:
    """Which columns are what, and how they become arrays: see `TableColumns`."""

    def __init__(
        self,
        source: CsvSource,
        target: Any,
        qid: Any,
        sample_weight: Any,
        features: Any,
        drop: Any,
        dtype: np.dtype,
    ) -> None:
        self.target, self.qid, self.sample_weight = target, qid, sample_weight
        self.dtype = dtype
        given = {"target": target, "qid": qid, "sample_weight": sample_weight}
        others = [name for name in given.values() if name is not None]
        for name in others:
            if not isinstance(name, str):
                raise ValueError(
                    f"target, qid and sample_weight are names of columns; got {name!r}"
                )
        names = choose_features(source.file, source.names, others, features, drop)
        for name in names if features is None else ():
            if name in ("", "Unnamed: 0"):  # as pandas writes, and reads, a row index
                raise ValueError(
                    f"{source.file}: column {name!r} looks like the row numbers of a data frame; "
                    f"write the file with index=False, leave it out by drop={name!r}, or name the "
                    "features in features="
                )
        for role, name in [*given.items(), *(("features", name) for name in names)]:
            if name is not None and name not in source.names:
                raise ValueError(f"{source.file}: {missing_column(role, name, source.names)}")
        self.feature_names = names
        self.n_features = len(names)
        at = {name: column for column, name in enumerate(source.names)}
        if features is None:
            source.droppable = {at[name] for name in names}
        numbers = [name for name in (target, sample_weight) if name is not None]
        self._used = [at[name] for name in [*names, *numbers]]
        self._place = {name: len(names) + place for place, name in enumerate(numbers)}
        self._qid = None if qid is None else at[qid]
        self._file = source.file
        self._integers: bool | None = None

    def measure(self, chunk: CsvChunk) -> None:
        """Nothing: the header has told everything."""

    def fill(self, chunk: CsvChunk, data: Array) -> None:
        """Write the features of a chunk into ``data`` of shape (m, n)."""
        with np.errstate(over="ignore"):
            data[:] = chunk.table(self._used)[:, : self.n_features]
        if self.dtype == np.float32 and not np.isfinite(data).all():
            row, column = np.argwhere(~np.isfinite(data))[0]
            name = self.feature_names[column]
            raise ValueError(f"{chunk.place(row)}: column {name!r} is too large for {self.dtype}")

    def values(self, chunk: CsvChunk, name: str) -> Array:
        """A column of numbers: target or weights."""
        return chunk.table(self._used)[:, self._place[name]].copy()

    def labels(self, chunk: CsvChunk) -> Array:
        """Query ids as text."""
        assert self._qid is not None
        labels = chunk.cells(self._qid)
        if "" in labels:
            row = labels.index("")
            raise ValueError(f"{chunk.place(row)}: column {self.qid!r}, the query id, is empty")
        return np.array(labels, dtype=np.str_)

    def settle(self, labels: Array) -> Array:
        """Query ids as integers if those of the first batch all are; as text otherwise."""
        if self._integers is False:
            return labels
        words, codes = np.unique(labels, return_inverse=True)
        numbers = [_as_int64(word) for word in words.tolist()]
        if self._integers is None:
            self._integers = None not in numbers and len(set(numbers)) == len(numbers)
            if not self._integers:
                return labels
        if None in numbers:
            bad = words[numbers.index(None)]
            raise ValueError(
                f"{self._file}: query id {str(bad)!r} is not a 64-bit integer as those of the "
                "first batch are; use load_csv, which reads all ids before it decides"
            )
        return np.array(numbers, dtype=np.int64)[codes]


def _is_number(text: str) -> bool:
    text = text.strip()
    return bool(NUMBER.fullmatch(text.encode())) and math.isfinite(float(text))


def _as_int64(word: str) -> int | None:
    if not word.isascii() or not word.removeprefix("-").isdigit() or len(word) > 20:
        return None
    number = int(word)
    return number if -(2**63) <= number < 2**63 else None
