"""Lines of a CSV file to cells and numbers.

Blocks without quotes are split into lines, and NumPy reads the numbers of all of them at once. From
the first quote on, the ``csv`` module reads the rest of the file. Where a cell is not a number, the
cells of the block are read one at a time, to find what they stand for or to name the place.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankrls._streams import PathOrFile, name_of
from rankrls._validation import as_text
from rankrls.datasets._columns import choose_features, droppable, missing_column, named
from rankrls.datasets._missing import REMEDY, check_missing, is_missing
from rankrls.datasets._numbers import NUMBER, parse_cells
from rankrls.datasets._query_ids import as_objects, integers_of
from rankrls.datasets._source import require_loadable, text_blocks

__all__ = ["CsvChunk", "CsvColumns", "CsvSource", "guess_delimiter", "plain_number"]

Array = NDArray[Any]

_DELIMITERS = ",\t;|"

_ROWS = 10_000  # of a chunk that the csv module reads

_BOOLEANS = {"true": 1.0, "false": 0.0}  # in any case


def guess_delimiter(line: str) -> str:
    """The character that separates the cells of a line; a comma if there is no telling."""
    return max(_DELIMITERS, key=line.count)


class CsvChunk:
    """Rows that follow each other; ``batch`` has one string, or list of cells, for each."""

    def __init__(self, source: CsvSource, numbers: list[int] | range, batch: list[Any]) -> None:
        self.source, self.batch = source, batch
        self.numbers = numbers  # of the lines
        self._table: Array | None = None

    def place(self, row: int) -> str:
        """File and line of a row."""
        return f"{self.source.file}:{self.numbers[int(row)]}"

    def cells(self, column: int) -> list[str]:
        """The text of a column."""
        if self.batch and isinstance(self.batch[0], str):
            delimiter = self.source.delimiter
            return [line.split(delimiter, column + 1)[column].strip() for line in self.batch]
        return [row[column].strip() for row in self.batch]

    def rows(self) -> list[list[str]]:
        """The cells row by row."""
        if isinstance(self.batch[0], str):
            return [line.split(self.source.delimiter) for line in self.batch]
        return self.batch

    def columns_with_words(self, columns: list[int]) -> list[int]:
        """Those of some columns that have a cell of text: no number, and not missing."""
        if not columns or self._read_lines(columns) is not None:
            return []
        rows = self.rows()
        return [c for c in columns if _any_word([row[c] for row in rows])]

    def table(self, columns: list[int]) -> Array:
        """Numbers of these columns, shape (n_rows, n_columns); made once."""
        if not columns:
            return np.empty((len(self.batch), 0))
        if self._table is None:
            self._table = self._read_lines(columns)
        if self._table is None:
            self._table = self._read_cells(columns)
        return self._table

    def _read_lines(self, columns: list[int]) -> Array | None:
        """All numbers of lines without quotes; None unless they are plain finite numbers."""
        if not isinstance(self.batch[0], str):
            return None
        delimiter = self.source.delimiter
        try:
            table = np.loadtxt(
                self.batch, delimiter=delimiter, usecols=columns, comments=None, ndmin=2
            )
        except ValueError:
            return None
        return table if np.isfinite(table).all() else None

    def _read_cells(self, columns: list[int]) -> Array:
        rows = self.rows()
        cells = [row[column] for row in rows for column in columns]
        numbers = parse_cells(cells)
        if numbers is not None:
            return numbers.reshape(len(rows), len(columns))
        value = {text: plain_number(text.strip()) for text in set(cells)}
        table = np.array([value[text] for text in cells], dtype=np.float64)  # NaN for None
        table = table.reshape(len(rows), len(columns))
        wrong = np.isnan(table)
        if self.source.keep_missing and not any(
            value[text] is None and not is_missing(text) for text in value
        ):
            wrong &= [column not in self.source.features for column in columns]
        for row, place in np.argwhere(wrong):
            self._refuse(rows[row][columns[place]].strip(), row, columns[place])
        return table

    def _refuse(self, text: str, row: int, column: int) -> None:
        """Raise for a cell that is not a number, unless it is missing and may be."""
        missing = is_missing(text) and column in self.source.features
        if missing and self.source.keep_missing:
            return
        name, hint = named(self.source.names[column]), self._hint(row, column)
        remedy = REMEDY if missing else ""
        if not text:
            raise ValueError(
                f"{self.place(row)}: column {name} is empty; every row needs a number "
                f"there{remedy}{hint}"
            )
        shown = _shown(text)
        raise ValueError(
            f"{self.place(row)}: column {name} is {shown}, not a finite number{remedy}{hint}"
        )

    def _hint(self, row: int, column: int) -> str:
        """Which columns to leave out: those that are no number in this row."""
        free = self.source.droppable
        if column not in free:
            return ""
        line = self.batch[row]
        cells = line.split(self.source.delimiter) if isinstance(line, str) else line
        wrong = [j for j in sorted(free) if plain_number(cells[j].strip()) is None]
        return droppable([self.source.names[j] for j in wrong])


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
        self.features: set[int] = set()  # columns whose cells may be missing
        self.keep_missing = False
        self.droppable: set[int] = set()  # columns that nobody has asked for
        self._blocks = text_blocks(path)
        self._first = next(self._blocks, None)
        number, lines = self._first_lines()
        self.delimiter = delimiter or guess_delimiter(lines[0])
        reader = self._split(line + "\n" for line in lines)
        try:
            cells = next(reader)
        except csv.Error as error:
            self._unreadable(number, error)
        if header:
            self.names = [cell.strip() for cell in cells]
            self._check_header(number)
            self._skip = number + reader.line_num - 1
        else:
            self.names = [str(column) for column in range(1, len(cells) + 1)]
            self._skip = 0

    def _first_lines(self) -> tuple[int, list[str]]:
        """The lines of a block from the first one that is not empty, and the number of that."""
        while self._first is not None:
            number, lines = self._first
            for offset, line in enumerate(lines):
                if line.strip():
                    return number + offset, lines[offset:]
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
            raise ValueError(f"{self.file}:{number}: there are two columns {named(twice[0])}")

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
                    if "\r" in line and "\r" in line.rstrip("\r"):
                        self._carriage_return(numbers[row])
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
                self._unreadable(number, error)
            if row is None:
                break
            if number <= self._skip or not any(map(str.strip, row)):
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

    def _unreadable(self, number: int, error: csv.Error) -> NoReturn:
        """Raise for a line that is no CSV."""
        if "new-line character" in str(error):
            self._carriage_return(number)
        raise ValueError(
            f"{self.file}:{number}: this line cannot be read ({error}); is a quotation mark "
            "missing?"
        ) from error

    def _carriage_return(self, number: int) -> NoReturn:
        raise ValueError(
            f"{self.file}:{number}: a carriage return stands inside this line; lines must end in "
            "\\n or \\r\\n"
        )

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
        missing: str,
        text: Any = None,
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
        at = {name: column for column, name in enumerate(source.names)}
        for role, name in [*given.items(), *(("features", name) for name in names)]:
            if name is not None and name not in at:
                raise ValueError(f"{source.file}: {missing_column(role, name, source.names)}")
        self.feature_names = names
        self.n_features = len(names)
        if features is None:
            source.droppable = {at[name] for name in names}
        numbers = [name for name in (target, sample_weight) if name is not None]
        source.keep_missing = check_missing(missing)
        source.features = {at[name] for name in names if name not in numbers}
        self._at, self._numbers = at, numbers
        self.take_as_text(None if text is None else [] if text == "auto" else text)
        self._qid = None if qid is None else at[qid]
        self._file = source.file
        self._integers: bool | None = None

    def take_as_text(self, names: list[str] | None) -> None:
        """Set which features are text; None: all are numbers, and ``data`` is an array."""
        known = set() if names is None else set(names)
        self.text = None if names is None else [n for n in self.feature_names if n in known]
        numeric = [j for j, name in enumerate(self.feature_names) if name not in known]
        self._numeric = np.array(numeric, dtype=np.intp)
        features = [self.feature_names[j] for j in numeric]
        self._used = [self._at[name] for name in [*features, *self._numbers]]
        self._place = {name: len(features) + k for k, name in enumerate(self._numbers)}

    def find_text(self, chunks: Iterable[CsvChunk]) -> list[CsvChunk]:
        """All chunks; columns with a cell that is neither a number nor missing are text."""
        kept, found, n_bytes = [], set(), 0
        for chunk in chunks:
            kept.append(chunk)
            n_bytes += sum(map(len, chunk.batch)) * (1 if isinstance(chunk.batch[0], str) else 60)
            require_loadable(chunk.place(len(chunk.batch) - 1), n_bytes, "iter_ranking")
            left = [self._at[name] for name in self.feature_names if self._at[name] not in found]
            found.update(chunk.columns_with_words(left))
        self.take_as_text([name for name in self.feature_names if self._at[name] in found])
        return kept

    def measure(self, chunk: CsvChunk) -> None:
        """Nothing: the header has told everything."""

    def fill(self, chunk: CsvChunk, data: Array) -> None:
        """Write the features of a chunk into ``data`` of shape (m, n)."""
        n_numeric = len(self._numeric)
        with np.errstate(over="ignore"):
            if n_numeric == self.n_features:
                data[:] = chunk.table(self._used)[:, :n_numeric]
            else:
                data[:] = np.nan
                data[:, self._numeric] = chunk.table(self._used)[:, :n_numeric]
        if self.dtype == np.float32 and np.isinf(data).any():
            row, column = np.argwhere(np.isinf(data))[0]
            name = self.feature_names[column]
            raise ValueError(
                f"{chunk.place(row)}: column {named(name)} is too large for {self.dtype}"
            )

    def values(self, chunk: CsvChunk, name: str) -> Array:
        """A column of numbers: target or weights."""
        return chunk.table(self._used)[:, self._place[name]].copy()

    def words(self, chunk: CsvChunk) -> Array:
        """Text of shape (n_rows, n_text), None where there is none."""
        once: dict[str, str] = {}  # equal words are one object
        found = np.empty((len(chunk.batch), len(self.text or ())), dtype=object)
        for k, name in enumerate(self.text or ()):
            cells = chunk.cells(self._at[name])
            found[:, k] = [None if is_missing(w) else once.setdefault(w, w) for w in cells]
        return found

    def labels(self, chunk: CsvChunk) -> Array:
        """Query ids as text."""
        assert self._qid is not None
        labels = chunk.cells(self._qid)
        if "" in labels:
            row = labels.index("")
            raise ValueError(f"{chunk.place(row)}: column {self.qid!r}, the query id, is empty")
        once: dict[str, str] = {}  # equal ids are one object
        return as_objects([once.setdefault(label, label) for label in labels])

    def settle(self, labels: Array) -> Array:
        """Query ids as integers if those of the first batch all are; as text otherwise."""
        words = labels.tolist()
        if self._integers is False:
            return as_text(words)
        numbers = integers_of(words)
        if self._integers is None:
            self._integers = None not in numbers.values() and len(set(numbers.values())) == len(
                numbers
            )
            if not self._integers:
                return as_text(words)
        bad = next((word for word, number in numbers.items() if number is None), None)
        if bad is not None:
            raise ValueError(
                f"{self._file}: query id {_shown(bad)} is not a 64-bit integer as those of the "
                "first batch are; use load_csv, which reads all ids before it decides"
            )
        return np.array([numbers[word] for word in words], dtype=np.int64)


def plain_number(text: str) -> float | None:
    """The finite number that a cell spells; 1 and 0 for true and false; otherwise None."""
    if NUMBER.fullmatch(text.encode()):
        number = float(text)
        return number if math.isfinite(number) else None
    return _BOOLEANS.get(text.lower())


def _any_word(cells: list[str]) -> bool:
    """Whether a cell is text."""
    known = [cell for cell in cells if cell and not is_missing(cell)]
    if not known or parse_cells(known) is not None:
        return False
    return any(_is_word(cell.strip()) for cell in known)


def _is_word(text: str) -> bool:
    """Whether a cell is text; one that spells infinity, or a number out of range, is not."""
    if plain_number(text) is not None or is_missing(text):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _shown(text: str) -> str:
    """The text in quotes, shortened."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
