"""CSV files as record batches: numbers read by pyarrow, cells by name, errors with their line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._resources import in_order
from rankrls._streams import PathOrFile
from rankrls._validation import as_text
from rankrls.datasets._arrow import Source, pyarrow
from rankrls.datasets._columns import Columns, droppable, named
from rankrls.datasets._csv_text import CsvRecords, CsvText, without_blank_lines
from rankrls.datasets._missing import MISSING_WORDS, REMEDY, is_missing
from rankrls.datasets._numbers import parse_cells, plain_number
from rankrls.datasets._query_ids import integers_of
from rankrls.datasets._source import require_loadable

__all__ = ["CsvColumns", "CsvSource"]

Array = NDArray[Any]

_MAX_THREADS = 8

#: Number of rows that are searched for columns of text, for an error message.
_SAMPLE = 1000

#: All spellings of missing values: pyarrow tells upper and lower case apart.
_NULLS = ["".join(word) for missing in sorted(MISSING_WORDS)
          for word in product(*({c, c.upper()} for c in missing))]  # fmt: skip


@dataclass(frozen=True)
class CsvChunk:
    """Consecutive rows of a file: a RecordBatch, its features and its query ids."""

    records: CsvRecords
    batch: Any
    data: Any = None
    labels: Any = None

    def place(self, row: int) -> str:
        """File and line of a row."""
        return self.records.place(row)


class CsvSource(Source):
    """One CSV file.

    Parameters
    ----------
    path : str, path-like or binary file
    header : bool
    delimiter : str or None

    Attributes
    ----------
    kinds : dict of str to {"feature", "number", "text", "cell"}
        What columns are. Features and numbers are finite float64, features null where they are
        missing, if ``keep_missing``. Texts and cells are null where they are blank.
    droppable : list of str
        Columns that nobody has asked for.
    """

    def __init__(self, path: PathOrFile, header: bool, delimiter: str | None) -> None:
        arrow = pyarrow()
        self.text = CsvText(path, header, delimiter)
        self._at = {name: str(column) for column, name in enumerate(self.text.names)}
        super().__init__(self.text.file, "CSV", arrow.schema([]))
        self.names = self.text.names
        self.kinds: dict[str, str] = {}
        self.keep_missing = False
        self.droppable: list[str] = []
        self._odd: set[str] = set()  # columns of numbers that pyarrow cannot read, such as true

    def expect(self, columns: Columns) -> None:
        """Learn what the columns are."""
        text, numbers = set(columns.text or ()), {columns.target, columns.sample_weight}
        self.kinds = {name: "text" if name in text else "feature" for name in columns.features}
        self.kinds |= {name: "number" for name in columns.names if name in numbers}
        if columns.qid is not None:
            if columns.qid in self.kinds:
                raise ValueError(
                    f"{self.file}: column {columns.qid!r} for qid is also read as numbers"
                )
            self.kinds[columns.qid] = "cell"
        self.keep_missing = columns.keep_missing
        self.droppable = [] if columns.chosen else columns.features
        arrow = pyarrow()
        types = {"text": arrow.string(), "cell": arrow.string()}
        self.schema = arrow.schema(
            [(name, types.get(self.kinds.get(name, ""), arrow.float64())) for name in self.names]
        )

    def chunks(
        self,
        columns: list[str],
        rows: int = 0,
        *,
        of: Iterable[CsvRecords] | None = None,
        finish: Callable[[CsvChunk], CsvChunk] = lambda chunk: chunk,
    ) -> Iterator[CsvChunk]:
        """All rows; ``of`` are records that have been cut already, ``finish`` completes a chunk."""

        def read(records: CsvRecords) -> CsvChunk:
            return finish(CsvChunk(records, self._batch(records, columns)))

        records = self.text.chunks() if of is None else iter(of)
        threads = min(pyarrow().cpu_count(), _MAX_THREADS)
        return (chunk for chunk in in_order(read, records, threads) if len(chunk.batch))

    def words_in(self, records: CsvRecords, columns: list[str]) -> list[str]:
        """Those of some columns that have a cell of text: no number, and not missing."""
        arrays = self._parsed(records, columns, set(columns))
        if arrays is not None and all(_is_clean(a, True) for a in arrays.values()):
            return []
        cells = self._parsed(records, columns, set())
        return [
            name
            for name in columns
            if any(map(_is_word, cells[name].dictionary_encode().dictionary.to_pylist()))
        ]

    # ------------------------------------------------------------------ batches

    def _batch(self, records: CsvRecords, columns: list[str]) -> Any:
        numeric = [name for name in columns if self.kinds[name] in ("feature", "number")]
        arrays = self._parsed(records, columns, set(numeric) - self._odd)
        if arrays is None or not all(self._is_clean(name, arrays[name]) for name in numeric):
            arrays = self._parsed(records, columns, set())
            self._odd.update(name for name in numeric if self._is_odd(records, name))
        wrong: list[tuple[int, int, str]] = []
        for place, name in enumerate(sorted(columns, key=lambda name: self.kinds[name])):
            if pyarrow().types.is_string(arrays[name].type):
                arrays[name], bad = self._convert(arrays[name], self.kinds[name])
                if bad is not None:
                    wrong.append((bad, place, name))
        if wrong:
            row, _, name = min(wrong)
            self._refuse(records, row, name)
        return pyarrow().RecordBatch.from_arrays([arrays[name] for name in columns], names=columns)

    def _parsed(self, records: CsvRecords, columns: list[str], numbers: set[str]) -> Any:
        """Columns by name, some as numbers and the others as strings; None if some are not."""
        arrow = pyarrow()
        if records.is_plain:
            data = without_blank_lines(records.data)
            at = {self._at[name]: name for name in columns}
            types = {i: arrow.float64() if n in numbers else arrow.string() for i, n in at.items()}
            csv = arrow.csv
            try:
                table = csv.read_csv(
                    arrow.BufferReader(data),
                    csv.ReadOptions(
                        use_threads=False,
                        block_size=len(data) + 1,
                        column_names=[str(column) for column in range(len(self.names))],
                    ),
                    csv.ParseOptions(
                        delimiter=self.text.delimiter,
                        quote_char='"' if b'"' in data else False,
                        newlines_in_values=True,
                    ),
                    csv.ConvertOptions(
                        check_utf8=False,
                        column_types=types,
                        include_columns=list(types),
                        null_values=_NULLS if self.keep_missing else [],
                    ),
                )
                batch = table.combine_chunks()
                return {name: batch.column(i).chunk(0) for i, name in at.items()}
            except (arrow.ArrowInvalid, IndexError):
                if numbers:
                    return None
        if numbers:
            return None
        rows, place = records.rows, {name: int(self._at[name]) for name in columns}
        return {n: arrow.array([row[j] for row in rows], arrow.string()) for n, j in place.items()}

    def _is_clean(self, name: str, array: Any) -> bool:
        return _is_clean(array, self.kinds[name] == "feature")

    def _is_odd(self, records: CsvRecords, name: str) -> bool:
        """Whether pyarrow cannot read a column of numbers."""
        found = self._parsed(records, [name], {name})
        return found is None or not self._is_clean(name, found[name])

    def _convert(self, cells: Any, kind: str) -> tuple[Any, int | None]:
        """Cells as what they are, and the first row that is no number but should be."""
        arrow = pyarrow()
        coded = cells.dictionary_encode()
        words = coded.dictionary.to_pylist()
        if kind in ("text", "cell"):
            known = [word.strip() or None for word in words]
            return arrow.array(known, arrow.string()).take(coded.indices), None
        numbers = parse_cells(words)
        if numbers is None:
            numbers = np.array([plain_number(word.strip()) for word in words], dtype=np.float64)
        bad = np.isnan(numbers)
        if kind == "feature" and self.keep_missing:
            bad &= np.array([not is_missing(word) for word in words], dtype=bool)
        codes = coded.indices.to_numpy(zero_copy_only=False)
        values = numbers[codes]
        first = int(np.argmax(bad[codes])) if bad.any() else None
        return arrow.array(values, mask=np.isnan(values)), first

    def _refuse(self, records: CsvRecords, row: int, name: str) -> None:
        """Raise for a cell that is not a number."""
        cells = dict(zip(self.names, map(str.strip, records.rows[row]), strict=True))
        text, hint = cells[name], ""
        if name in self.droppable:
            hint = droppable(self._text_columns(records, row, name), text=_is_word(text))
        missing = is_missing(text) and self.kinds[name] == "feature"
        what = f"is {_shown(text)}, not a finite number"
        if not text:
            what = "is empty; every row needs a number there"
        raise ValueError(
            f"{records.place(row)}: column {named(name)} {what}{REMEDY * missing}{hint}"
        )

    def _text_columns(self, records: CsvRecords, row: int, name: str) -> list[str]:
        """Columns to leave out: the one of a bad cell, and those of text in rows near it."""
        first = max(0, row - _SAMPLE // 2)
        columns = dict(zip(self.names, zip(*records.rows[first : first + _SAMPLE], strict=True),
                           strict=True))  # fmt: skip
        return [n for n in self.droppable if n == name or any(map(_is_word, set(columns[n])))]


class CsvColumns(Columns):
    """Which columns of a CSV file are what; ``text`` may be "auto" if `find_text` follows."""

    def __init__(self, source: CsvSource, *args: Any, **options: Any) -> None:
        super().__init__(source, *args, **options)
        self._source = source
        self._integers: bool | None = None
        for name in () if self.chosen else self.features:
            if name in ("", "Unnamed: 0"):  # as pandas writes, and reads, a row index
                raise ValueError(
                    f"{source.file}: column {name!r} looks like the row numbers of a data frame; "
                    f"write the file with index=False, leave it out by drop={name!r}, or name the "
                    "features in features="
                )

    def chunks(self) -> Iterator[CsvChunk]:
        """All rows, of the columns that are read."""
        return self._source.chunks(self.names, finish=self._finished)

    def find_text(self) -> Iterator[CsvChunk]:
        """The same, once all rows have told which features are text."""
        kept, found, n_bytes = [], set(), 0
        for records in self._source.text.chunks():
            kept.append(records)
            n_bytes += records.n_bytes
            require_loadable(partial(records.place, 0), n_bytes, "iter_ranking")
            left = [name for name in self.features if name not in found]
            found.update(self._source.words_in(records, left))
        self.text = [name for name in self.features if name in found]
        self._source.expect(self)
        return self._source.chunks(self.names, of=kept, finish=self._finished)

    def _finished(self, chunk: CsvChunk) -> CsvChunk:
        """A chunk with its features and query ids, which are found in the threads that read."""
        return replace(chunk, data=super().data(chunk), labels=self._labels(chunk))

    def data(self, chunk: Any) -> Array:
        """The features that have been found."""
        return chunk.data

    def labels(self, chunk: Any) -> Array:
        """The query ids that have been found, as text."""
        return chunk.labels

    def _numbers(self, column: Any, name: str, place: Callable[[int], str]) -> Array:
        """Features as numbers; `CsvSource` has seen that they are finite."""
        if self.dtype == np.float64:
            return column.to_numpy(zero_copy_only=False)
        return super()._numbers(column, name, place)

    def _labels(self, chunk: CsvChunk) -> Array | None:
        if self.qid is None or not len(chunk.batch):
            return None
        column = chunk.batch.column(self.qid)
        if column.null_count:
            row = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
            raise ValueError(f"{chunk.place(row)}: column {self.qid!r}, the query id, is empty")
        return super().labels(chunk)

    def settle(self, labels: Array) -> Array:
        """Query ids as integers if those of the first batch all are; as text otherwise."""
        if self._integers is False:
            return as_text(labels.tolist())
        starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
        words = labels[starts].tolist()
        numbers = integers_of(words)
        if self._integers is None:
            self._integers = None not in numbers.values()
            if not self._integers:
                return as_text(labels.tolist())
        bad = next((word for word, number in numbers.items() if number is None), None)
        if bad is not None:
            raise ValueError(
                f"{self._source.file}: query id {_shown(bad)} is no 64-bit integer, written as "
                "those of the first batch; use load_csv, which reads all ids before it decides"
            )
        found = np.array([numbers[word] for word in words], dtype=np.int64)
        return np.repeat(found, np.diff(starts, append=len(labels)))


def _is_clean(array: Any, nullable: bool) -> bool:
    """Whether numbers are finite, or null where they may be; strings are looked at later."""
    if not pyarrow().types.is_floating(array.type):
        return True
    if array.null_count and not nullable:
        return False
    values = array.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        if not array.null_count and np.isfinite(values.sum()):  # if the sum is, all of them are
            return True
    return int(np.count_nonzero(~np.isfinite(values))) == array.null_count


def _is_word(text: str) -> bool:
    """Whether a cell is text; one that spells infinity, or a number out of range, is not."""
    if plain_number(text.strip()) is not None or is_missing(text):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _shown(text: str) -> str:
    """The text in quotes, shortened."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
