"""CSV files: readers, the whole file or batch by batch.

pyarrow reads blocks of whole records, several at a time. It takes more for CSV than the ``csv``
module does ("1"2 is 12, any carriage return ends a line), and its errors name no lines: the ``csv``
module reads what the two would read differently, and what has an error.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from rankrls._resources import in_order
from rankrls._streams import PathOrFile, name_of
from rankrls._validation import check_integer, check_option
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
from rankrls.datasets._columns import Columns, Source, TableReader, droppable, pyarrow
from rankrls.datasets._rows import FileRows, iterate, load
from rankrls.datasets._source import as_utf8, blocks, require_loadable

__all__ = ["CsvSource", "iter_csv", "load_csv"]

Array = NDArray[Any]

_DELIMITERS = ",\t;|"
_BLANKS = " \t\v\f\x1c\x1d\x1e\x1f\r\n"  # a line of nothing else is skipped
_BLANK_LINE = re.compile(rb"^[ \t]+\r?$", re.MULTILINE)

_MAX_THREADS = 8
_HEAD_BYTES = 1 << 20  # that are searched for the delimiter
_ROWS = 10_000  # of a block that the csv module reads
_SAMPLE = 1000  # rows that are searched for columns of text, for an error message
_MAX_CELL_BYTES = csv.field_size_limit()
_MAX_WAITING_BYTES = 1 << 24  # of a record that has not ended


def load_csv(
    path: PathOrFile,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    dtype: DTypeLike = np.float64,
    header: bool = True,
    delimiter: str | None = None,
    missing: str = "error",
    unlabelled: str = "error",
) -> Bunch:
    r"""Read a ranking from a CSV file.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like or binary file
        File to read, in UTF-8, plain or compressed by gzip, bzip2, xz or zstd, which is
        detected from its content. An open file is read from its current position, and is left open.
    target : str or None
        Column of the labels. None: there are none, as in rows to predict.
    qid : str, optional
        Column of the query ids. None: there are no queries.
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers.
        An empty list reads none: labels and query ids alone.
    drop : str or sequence of str, optional
        Columns that are not features, such as text and ids, if ``features`` is not given.
    sample_weight : str, optional
        Column of the row weights.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    header : bool, default=True
        Whether the first line has the names of the columns. False: they are called "1", "2", …
    delimiter : str, optional
        One character. By default the one of comma, tab, semicolon and bar that the first line
        has most of.
    missing : {"error", "nan"}, default="error"
        How to handle missing features (empty cells, NA, N/A, NaN, NULL and None, in any case):
        raise an error, or return NaN. Weights and query ids must not be missing.
    unlabelled : {"error", "drop"}, default="error"
        How to handle rows without a label: raise an error, or leave them out and warn of how many.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
            Features.
        target : ndarray of shape (n_rows,), float64, or None
            Labels.
        qid : ndarray of shape (n_rows,), int64 or str, or None
            Integers if all of them are (within 64 bits, and no two of them the same integer
            written differently), otherwise strings, in an array of objects if some are so long
            that this takes less memory.
        sample_weight : ndarray of shape (n_rows,), float64, or None
            Row weights.
        feature_names : list of str of length n_features
            Names of the columns.

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is), or a line has too few or too
        many cells, or a cell that should hold a finite number does not; the message begins with
        ``file:line:``. Cells in double quotes may hold anything, line ends included. Empty lines
        are skipped. True and False (also true, TRUE, false, FALSE) are the numbers 1 and 0.
        Lines of more than 64 MiB, quoted cells of more than 131,072 characters and NUL bytes are
        errors, too.
    MemoryError
        If the rows do not fit into the memory of the process.

    See Also
    --------
    iter_csv : Read a file that does not fit in memory.
    load_ranking : Read a file of any kind.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_csv
    >>> file = io.BytesIO(b"query,label,bm25,clicks\nred shoes,1,5.5,3\nred shoes,0,6,0\n")
    >>> table = load_csv(file, target="label", qid="query")
    >>> table.data
    array([[5.5, 3. ],
           [6. , 0. ]])
    >>> table.qid.tolist(), table.feature_names
    (['red shoes', 'red shoes'], ['bm25', 'clicks'])
    """
    how: dict[str, Any] = {"dtype": dtype, "missing": missing, "unlabelled": unlabelled}
    how |= {"target": target, "qid": qid, "sample_weight": sample_weight}
    source = CsvSource(path, header, delimiter)
    return load(source.reader(features=features, drop=drop, **how))


def iter_csv(
    path: PathOrFile,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    rows: int = 100_000,
    dtype: DTypeLike = np.float64,
    header: bool = True,
    delimiter: str | None = None,
    missing: str = "error",
    unlabelled: str = "error",
    by_query: bool = True,
) -> Iterator[Bunch]:
    r"""Read a CSV file in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path, target, qid, features, drop, sample_weight, dtype, header, delimiter, missing, unlabelled
        As in :func:`load_csv`. The rows of a query must be consecutive.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without ``qid`` a batch has just this many rows.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_csv`. Whether query ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_csv`; also if a query id reappears after another query, naming
        the line.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_csv
    >>> file = io.BytesIO(b"qid;y;f\n1;1;5\n1;0;6\n2;1;7\n3;0;8\n")
    >>> for batch in iter_csv(file, target="y", qid="qid", rows=3):
    ...     print(batch.qid, batch.data.ravel())
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    rows = check_integer("rows", rows, least=1)
    how: dict[str, Any] = {"dtype": dtype, "missing": missing, "unlabelled": unlabelled}
    how |= {"target": target, "qid": qid, "sample_weight": sample_weight}
    source = CsvSource(path, header, delimiter)
    reader = source.reader(features=features, drop=drop, **how)
    return iterate(reader, rows, by_query=by_query)


@dataclass
class _Block:
    """Consecutive records of a file: text from a line on, or cells and the numbers of their lines.

    ``data`` is empty if pyarrow may read it differently.
    """

    source: CsvSource
    line: int
    data: bytes = b""
    _cells: list[list[str]] | None = None
    _lines: list[int] = field(default_factory=list)

    @property
    def cells(self) -> list[list[str]]:
        """The cells of all records; an error with its line if a record is no CSV."""
        if self._cells is None:
            found = list(self.source.records(self.line, _lines(self.data)))
            self._lines, self._cells = [line for line, _ in found], [row for _, row in found]
        return self._cells

    def place(self, row: int) -> str:
        """File and line of a record."""
        assert self.cells
        return f"{self.source.file}:{self._lines[int(row)]}"

    @property
    def n_bytes(self) -> int:
        """Memory, about."""
        return len(self.data) + sum(60 * len(row) for row in self._cells or ())


class CsvSource(Source):
    """One CSV file: the names of its columns, and its records from the first to the last."""

    def __init__(self, path: PathOrFile, header: bool, delimiter: str | None) -> None:
        arrow = pyarrow()
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one character; got {delimiter!r}")
        if not isinstance(header, bool):
            raise ValueError(f"header must be True or False; got {header!r}")
        super().__init__(name_of(path), "CSV", arrow.schema([]))
        self._text = ((n, as_utf8(self.file, n, data)) for n, data in blocks(path, n_blocks=2))
        self._line, self._data = self._first_block()
        # Delimiters in quoted cells, which may have several lines, are not counted.
        while self._data.count(b'"') % 2 and len(self._data) < _HEAD_BYTES:
            more = next(self._text, None)
            if more is None:
                break
            self._data += more[1]
        unquoted = re.sub(rb'"[^"]*("|$)', b"", self._data[:_HEAD_BYTES]).split(b"\n", 1)[0]
        self.delimiter = delimiter or max(
            _DELIMITERS, key=unquoted.decode("utf-8", "replace").count
        )
        reader = csv.reader(self._rest(), delimiter=self.delimiter, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            self._unreadable(self._line, error)
        self.names = [str(column) for column in range(1, len(cells) + 1)]
        if header:
            self.names = [cell.strip() for cell in cells]
            self._check_header()
            self._line += reader.line_num
            for _ in range(reader.line_num):
                self._data = self._data.partition(b"\n")[2]
        self._place = {name: column for column, name in enumerate(self.names)}
        self._odd: set[str] = set()  # columns of numbers that pyarrow cannot read, such as true
        self._blocks: Iterable[_Block] | None = None  # those that have been read already

    def reader(self, others: Iterable[Any] = (), text: Any = None, **how: Any) -> TableReader:
        """Reader of this file and of others like it; ``how`` are arguments of `Columns`."""
        check_option("unlabelled", how["unlabelled"], ("error", "drop"))
        auto = isinstance(text, str)
        columns = Columns(self, text=[] if auto else text, **how)
        rest = [opened() for opened in others] if auto else others
        if auto:  # what is text in one row is so in all
            words = set().union(*(source._find_text(columns) for source in (self, *rest)))
            columns.text = [name for name in columns.features if name in words]
        return TableReader([self, *rest], columns)

    def rows(self, columns: Columns, most: float) -> Iterator[FileRows]:
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
        names = list(dict.fromkeys(columns))
        for block in self.blocks():
            arrays = {n: _stripped(cells) for n, cells in self._strings(block, names).items()}
            if arrays and len(arrays[names[0]]):
                yield [arrays[name].to_pylist() for name in columns], block.place

    # ------------------------------------------------------------------ text

    def _first_block(self) -> tuple[int, bytes]:
        """The text from the first line that is not empty, and the number of that line."""
        for line, block in self._text:
            start = len(block) - len(block.lstrip(_BLANKS.encode()))
            if start < len(block):
                start = block.rfind(b"\n", 0, start) + 1
                return line + block.count(b"\n", 0, start), block[start:]
        raise ValueError(f"{self.file}: no data: the file is empty")

    def _rest(self) -> Iterator[str]:
        """The lines that are left; those of the first block stay where they are."""
        yield from _lines(self._data)
        for _, block in self._text:
            self._data += block
            yield from _lines(block)

    def _check_header(self) -> None:
        if not any(np.isnan(number_of(name)) for name in self.names):
            raise ValueError(
                f"{self.file}:{self._line}: the first line has numbers where the names of the "
                "columns should be; pass header=False if there are none"
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(
                f"{self.file}:{self._line}: two columns are named {shown(twice[0], 80)}"
            )

    def blocks(self) -> Iterator[_Block]:
        """All records but the header."""
        line, waiting = self._line, b""
        for number, data in chain([(line, self._data)], self._text):
            line, waiting = (line, waiting + data) if waiting else (number, data)
            end = self._plain_bytes(waiting)
            if end is None:
                break
            if end:
                yield _Block(self, line, waiting[:end] if end < len(waiting) else waiting)
                if waiting := waiting[end:]:
                    line = number + data.count(b"\n") - waiting.count(b"\n")
        if not waiting:
            return
        # The csv module reads the rest of the file.
        rest = (one for _, data in chain([(line, waiting)], self._text) for one in _lines(data))
        numbers: list[int] = []
        cells: list[list[str]] = []
        for number, row in self.records(line, rest):
            numbers.append(number)
            cells.append(row)
            if len(cells) == _ROWS:
                yield _Block(self, numbers[0], b"", cells, numbers)
                numbers, cells = [], []
        if cells:
            yield _Block(self, numbers[0], b"", cells, numbers)

    def records(self, line: int, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """Number of the first line and cells of every record; empty lines are skipped."""
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            number = line + reader.line_num
            try:
                row = next(reader, None)
            except csv.Error as error:
                self._unreadable(number, error)
            if row is None:
                return
            may_be_blank = len(row) <= 1 or self.delimiter in _BLANKS
            if may_be_blank and not any(cell.strip(_BLANKS) for cell in row):
                continue
            if len(row) != len(self.names):
                raise ValueError(
                    f"{self.file}:{number}: this line has {len(row)} cell{'s' * (len(row) != 1)}, "
                    f"and the first one has {len(self.names)} (separated by {self.delimiter!r})"
                )
            yield number, row

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

    def _plain_bytes(self, data: bytes) -> int | None:
        """Bytes of the records that end in ``data``; None if pyarrow may read them otherwise."""
        if not self.delimiter.isascii() or data.startswith(b"\xef\xbb\xbf") or len(self.names) == 1:
            return None
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return None
        if self.delimiter in " \t":  # a line of delimiters is blank
            may_be_blank = data[:1] in b" \t" or b"\n\t" in data or b"\n " in data
            if may_be_blank and _BLANK_LINE.search(data):
                return None
        if b'"' not in data:
            return len(data)
        quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord('"'))
        if not self._are_well_placed(data, quotes):
            return None
        if len(quotes) % 2 == 0:
            return len(data)
        for k in range(len(quotes) - 1, -1, -2):  # between a closing mark and the next opening one
            closed = int(quotes[k - 1]) if k else 0
            end = data.rfind(b"\n", closed, int(quotes[k])) + 1
            if end:
                return end
        return 0 if len(data) <= _MAX_WAITING_BYTES else None

    def _are_well_placed(self, data: bytes, quotes: Array) -> bool:
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

    # ------------------------------------------------------------------ values

    def _batch(self, block: _Block, columns: Columns, strict: bool = False) -> Any:
        """The columns as a RecordBatch: features, labels and weights are float64.

        ``strict``: look at each cell.
        """
        arrow = pyarrow()
        text = {*(columns.text or ()), columns.qid}
        numbers = [name for name in columns.names if name not in text]
        nulls = NULLS if columns.keep_missing or columns.unlabelled == "drop" else []
        arrays = None
        if not strict:
            arrays = self._read(block, columns.names, set(numbers) - self._odd, nulls)
        if arrays is None:
            arrays = self._strings(block, columns.names)
        wrong: list[tuple[int, int, str]] = []
        for place, name in enumerate(columns.names):
            if name in text:
                arrays[name] = _stripped(arrays[name])
            elif arrow.types.is_string(arrays[name].type):
                nullable = columns.keep_missing and name in columns.features
                nullable |= name == columns.target and columns.unlabelled == "drop"
                arrays[name], row, is_odd = _as_numbers(arrays[name], nullable, strict)
                self._odd |= {name} if is_odd else set()
                wrong += [] if row is None else [(row, place, name)]
        if wrong:
            row, _, name = min(wrong)
            self._refuse(block, row, name, columns)
        return arrow.RecordBatch.from_arrays(
            [arrays[n] for n in columns.names], names=columns.names
        )

    def _strings(self, block: _Block, names: list[str]) -> dict[str, Any]:
        """Columns by name, as text."""
        arrays, arrow = self._read(block, names, set(), []), pyarrow()
        if arrays is None:
            cells = block.cells
            arrays = {name: arrow.array([row[self._place[name]] for row in cells], arrow.string())
                      for name in names}  # fmt: skip
        return arrays

    def _read(
        self, block: _Block, names: list[str], numbers: set[str], nulls: list[str]
    ) -> dict[str, Any] | None:
        """Columns by name, some as numbers and the others as strings; None if pyarrow fails."""
        if not block.data or not names:
            return None if names else {}
        arrow, data = pyarrow(), block.data
        at = {str(self._place[name]): name for name in names}
        types = {i: arrow.float64() if n in numbers else arrow.string() for i, n in at.items()}
        try:
            table = arrow.csv.read_csv(
                arrow.BufferReader(data),
                arrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=len(data) + 1,
                    column_names=[str(column) for column in range(len(self.names))],
                ),
                arrow.csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char='"' if b'"' in data else False,
                    newlines_in_values=True,
                ),
                arrow.csv.ConvertOptions(
                    check_utf8=False,
                    column_types=types,
                    include_columns=list(types),
                    null_values=nulls,
                ),
            )
        except arrow.ArrowInvalid:
            return None
        batch = table.combine_chunks()
        if not len(batch):
            return {name: arrow.array([], types[i]) for i, name in at.items()}
        return {name: batch.column(i).chunk(0) for i, name in at.items()}

    def _find_text(self, columns: Columns) -> set[str]:
        """Features that have a cell of text in some row; all rows are kept for `rows`."""
        kept, found, n_bytes = [], set(), 0
        for block in self.blocks():
            kept.append(block)
            n_bytes += block.n_bytes
            require_loadable(partial(block.place, 0), n_bytes, "iter_ranking")
            left = [name for name in columns.features if name not in found]
            if self._read(block, left, set(left), NULLS) is None:
                for name, cells in self._strings(block, left).items():
                    if any(map(is_word, cells.unique().to_pylist())):
                        found.add(name)
        self._blocks = kept
        return found

    def _refuse(self, block: _Block, row: int, name: str, columns: Columns) -> NoReturn:
        """Raise for a cell that is not a number."""
        text, hint = block.cells[row][self._place[name]].strip(), ""
        is_feature = name in columns.features
        if is_feature and not columns.chosen:
            # Columns to leave out: this one, and those of text in rows near it.
            first = max(0, row - _SAMPLE // 2)
            near = list(zip(*block.cells[first : first + _SAMPLE], strict=True))
            known = columns.text or ()
            others = [n for n in columns.features if n not in known
                      and (n == name or any(map(is_word, set(near[self._place[n]]))))]  # fmt: skip
            hint = droppable(others, text=is_word(text))
        what = f"is {shown(text)}, not a finite number{number_hint(text)}"
        if not text:
            what = "is empty; every row needs a number there"
        raise ValueError(
            f"{block.place(row)}: column {shown(name, 80)} {what}"
            f"{REMEDY * (is_feature and is_missing(text))}{hint}"
        )


def _as_numbers(cells: Any, nullable: bool, strict: bool) -> tuple[Any, int | None, bool]:
    """Cells as numbers, the first row that is none but should be, and whether pyarrow needs help.

    True and false are numbers, and so is one with spaces around it.
    """
    arrow = pyarrow()
    with suppress(arrow.ArrowInvalid):
        numbers = cells.cast(arrow.float64())
        if not strict and np.isfinite(numbers.to_numpy()).all():
            return numbers, None, False
    coded = cells.dictionary_encode()
    words = coded.dictionary.to_pylist()
    numbers = np.array([cell_number(word) for word in words])
    missing = np.array([nullable and is_missing(word) for word in words], dtype=bool)
    bad = np.isnan(numbers) & ~missing
    codes = coded.indices.to_numpy()
    first = int(np.argmax(bad[codes])) if bad.any() else None
    is_odd = any(word.strip().lower() in ("true", "false") for word in words)
    values = numbers[codes]
    return arrow.array(values, mask=np.isnan(values)), first, is_odd


def _stripped(cells: Any) -> Any:
    """Text without the white space around it, null where nothing is left."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    return compute.if_else(compute.equal(words, ""), pyarrow().scalar(None, words.type), words)


def _lines(data: bytes) -> Iterator[str]:
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    return (line + "\n" for line in lines)
