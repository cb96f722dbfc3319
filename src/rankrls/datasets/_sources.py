"""Files with columns: Parquet and Arrow in record batches, CSV in blocks that pyarrow reads.

Errors of pyarrow name no lines of CSV: what it cannot read, or may read differently, is read by
the ``csv`` module, which finds the error and its line.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._resources import pyarrow
from rankrls._streams import PathOrFile, name_of
from rankrls._validation import as_objects
from rankrls.datasets.formats import (
    NULLS,
    SUFFIXES,
    as_utf8,
    blocks,
    cell_number,
    delimiter_of,
    is_word,
    number_of,
    parsed,
    require_loadable,
    shown,
)

Array = NDArray[Any]

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CHUNK_BYTES = 1 << 21  # of the features that are read at a time, about


@contextmanager
def readable(place: Callable[[], str], kind: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into one ``ValueError``."""
    try:
        yield
    except (OSError, ValueError, MemoryError, OverflowError, pyarrow().ArrowException) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"{place()}: the {kind} file is truncated or damaged ({what}); get it again"
        ) from error


def type_kind(type: Any, *, within_lists: bool = False) -> str:
    """What values of an Arrow type are, also those that are stored as a dictionary."""
    types = pyarrow().types
    type = type.value_type if types.is_dictionary(type) else type
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return type_kind(type.value_type) if within_lists else "lists"
    if types.is_integer(type):
        return "integers"
    if types.is_floating(type) or types.is_boolean(type) or types.is_decimal(type):
        return "numbers"
    if str(type) in ("string", "large_string", "string_view"):
        return "strings"
    if types.is_date(type) or types.is_time(type) or types.is_timestamp(type):
        return "times"
    return "nulls" if types.is_null(type) else "others"


def decoded(column: Any) -> Any:
    """The values of a column that is stored as a dictionary; others as they are."""
    return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column


def words_of(column: Any) -> Array:
    """Cells as text, one object for equal ones however long; None where they are null."""
    arrow = pyarrow()
    if type_kind(column.type) != "strings":
        column = decoded(column).cast(arrow.large_string())
    coded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    words, numbers = coded.dictionary, coded.indices.cast(arrow.int64()).fill_null(-1)
    if str(words.type) == "string_view":  # which polars writes, and pyarrow cannot `take`
        words = words.cast(arrow.large_string())
    # The dictionary may be that of many chunks.
    used, codes = np.unique(numbers.to_numpy(), return_inverse=True)
    found = words.take(arrow.array(used[used >= 0])).to_pylist()
    return as_objects([None, *found])[codes + (-1 not in used)]


# -- files --------------------------------------------------------------------------------------


def find_files(path: Any) -> list[str]:
    """The files that ``path`` stands for: a file, a directory (sorted), or several of them."""
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        if not os.path.isdir(name):
            return [name]
        found = sorted(
            str(file)
            for file in Path(name).rglob("*")
            if file.suffix.lower() in SUFFIXES
            and not any(part[0] in "._" for part in file.relative_to(name).parts)
        )
        if not found:
            raise ValueError(f"{name}: no file in this directory ends in {', '.join(SUFFIXES)}")
        return found
    if hasattr(path, "read"):
        raise ValueError(f"{name_of(path)}: Parquet and Arrow files are opened by name")
    if not isinstance(path, Sequence) or not path:
        raise ValueError(
            f"path must be the name of a file or directory, or a list of them; got {path!r:.60}"
        )
    return [file for part in path for file in find_files(part)]


class ArrowSource:
    """A Parquet file in row groups, or an Arrow file in record batches."""

    threads = 1

    def __init__(self, file: str) -> None:
        with open(file, "rb") as handle:
            magic = handle.read(8)
        if not magic.startswith((b"PAR1", b"ARROW1")):
            raise ValueError(
                f"{file}: this is neither a Parquet nor an Arrow file: it begins with {magic!r} "
                "(load_ranking finds the format of text; encrypted files, streams of Arrow and "
                "version 1 of Feather are not read)"
            )
        self.file, self.kind = file, "Parquet" if magic.startswith(b"PAR1") else "Arrow"
        self.ends: list[int] = []  # of row groups or record batches
        self.metadata: Any = None  # of Parquet files
        with readable(lambda: file, self.kind):
            if self.kind == "Parquet":
                with self._open_parquet() as reader:
                    self.schema, self.metadata = reader.schema_arrow, reader.metadata
                sizes = [group.num_rows for group in self._groups()]
                self.ends = np.cumsum(sizes, dtype=np.int64).tolist()
            else:
                with pyarrow().ipc.open_file(file) as reader:
                    self.schema = reader.schema
            self.names = self.schema.names

    def _groups(self) -> Iterator[Any]:
        return map(self.metadata.row_group, range(self.metadata.num_row_groups))

    def place(self, first: int, row: int) -> str:
        """File, row group and row (both counted from 0) of a row that follows ``first``."""
        at = first + int(row)
        part = "row group" if self.kind == "Parquet" else "record batch"
        number = int(np.searchsorted(self.ends, at, side="right"))
        return f"{self.file}: {part} {number}, row {at}"

    def find_text(self, names: list[str]) -> set[str]:
        """Columns of text, dates and times."""
        types = {field.name: type_kind(field.type) for field in self.schema}
        return {name for name in names if types.get(name) in ("strings", "times")}

    def numbers_in_a_row(self, column: str) -> int:
        """How long a list of the column must be at least, before any is read."""
        longest, metadata = 0, self.metadata  # few bytes may stand for many equal numbers
        for i in range(0 if metadata is None else metadata.num_columns):
            field = metadata.schema.column(i)
            if field.max_repetition_level and field.path.rsplit(".", 2)[0] == column:
                sizes = [(group.column(i).num_values, group.num_rows) for group in self._groups()]
                longest = max([longest, *(-(-numbers // max(n, 1)) for numbers, n in sizes)])
        return longest

    def parts(
        self, columns: list[str], rows: float, width: int = 1, numbers: Collection[str] = ()
    ) -> Iterator[tuple[Callable[[], Any], Any]]:
        """Functions that load some columns, arrays by name, and what names a row.

        A part has at most ``rows`` rows, and fewer if ``width``, the numbers in each, is large.
        """
        size = max(_CHUNK_BYTES // (8 * max(width, 1)), 1)
        size = int(min(size, max(rows // 16, 256), rows))
        read = self._read_arrow if self.metadata is None else self._read_parquet
        first, batches = 0, read(columns, size)
        while True:
            with readable(lambda: f"{self.place(first, 0)} or after", self.kind):  # noqa: B023
                batch = next(batches, None)
            if batch is None:
                return
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                arrays = dict(zip(columns, part.columns, strict=True))
                yield partial(dict, arrays), partial(self.place, first + start)
            first += batch.num_rows

    def _open_parquet(self, texts: Sequence[str] = ()) -> Any:
        return pyarrow().parquet.ParquetFile(
            self.file, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=list(texts)
        )

    def _read_parquet(self, columns: list[str], rows: int) -> Iterator[Any]:
        missing = self.ends[-1] if self.ends else 0
        # Strings stay numbers of a dictionary: a long one is not repeated for every row.
        texts = [name for name in columns if str(self.schema.field(name).type) == "string"]
        with self._open_parquet(texts) as reader:
            for batch in reader.iter_batches(batch_size=rows, columns=columns):
                missing -= batch.num_rows
                yield batch.select(columns)
        if missing:
            raise ValueError(f"its row groups promise {missing} rows more")

    def _read_arrow(self, columns: list[str], rows: int) -> Iterator[Any]:
        with pyarrow().ipc.open_file(self.file) as reader:
            for batch in map(reader.get_batch, range(reader.num_record_batches)):
                self.ends.append(batch.num_rows + (self.ends[-1] if self.ends else 0))
                batch.validate(full=True)  # offsets that point outside would crash, not raise
                batch = batch.select(columns)
                for column in batch.columns:
                    _check_views(column)
                yield batch


def _check_views(column: Any) -> None:
    """Raise if the different texts of views, which may share bytes, do not fit into memory."""
    column = column.dictionary if pyarrow().types.is_dictionary(column.type) else column
    if str(column.type) == "string_view":
        views = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)[: len(column)]
        lengths = np.unique(views, axis=0)[:, 0] & 0x7FFFFFFF
        if lengths.sum() > _resources.budget():
            raise ValueError(f"texts that share bytes take {lengths.sum() / 2**30:.1f} GiB apart")


# -- cells of CSV files, all of them text -------------------------------------------------------


def stripped(cells: Any) -> Any:
    """Text without the white space around it, null where nothing is left."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    return compute.if_else(compute.equal(words, ""), pyarrow().scalar(None, words.type), words)


def missing_cells(cells: Any) -> Array:
    """Whether cells stand for numbers that are not there."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(words, value_set=pyarrow().array(NULLS))
    return np.asarray(missing.to_numpy(zero_copy_only=False))


def csv_numbers(cells: Any) -> Array:
    """Cells as numbers, 1 and 0 for true and false; NaN or infinite where there is none."""
    arrow = pyarrow()
    with suppress(arrow.ArrowInvalid):
        return np.asarray(cells.cast(arrow.float64()).to_numpy())
    words = arrow.compute.utf8_trim_whitespace(cells)
    with suppress(arrow.ArrowInvalid):
        nothing = arrow.scalar(None, words.type)
        words = arrow.compute.if_else(arrow.array(missing_cells(words)), nothing, words)
        return np.asarray(words.cast(arrow.float64()).to_numpy(zero_copy_only=False))
    coded = cells.dictionary_encode()
    numbers = np.array([cell_number(word) for word in coded.dictionary.to_pylist()])
    return numbers[coded.indices.to_numpy()]


# -- CSV files ----------------------------------------------------------------------------------

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
        self.has_numbers = True  # where numbers are asked for, as far as they have been read

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

    def parts(
        self, columns: list[str], rows: float, width: int = 1, numbers: Collection[str] = ()
    ) -> Iterator[tuple[Callable[[], Any], Any]]:
        """Functions that load some columns, and what names a row.

        Columns are text; ``numbers`` are float64 in parts where all of them are finite numbers.
        """
        return ((partial(block.columns, columns, numbers), block.place)
                for block in (self._kept or self._blocks()))  # fmt: skip

    def find_text(self, names: list[str]) -> set[str]:
        """Columns that have a cell of text in some row; all rows are kept for `parts`."""
        self._kept, found, n_bytes = [], set[str](), 0
        for block in self._blocks():
            self._kept.append(block)
            n_bytes += len(block.data)
            require_loadable(partial(block.place, 0), n_bytes, "iter_ranking")
            for name, cells in block.columns([n for n in names if n not in found]).items():
                unclear = ~(np.isfinite(csv_numbers(cells)) | missing_cells(cells))
                texts = cells.filter(pyarrow().array(unclear)).unique().to_pylist()
                if any(map(is_word, texts)):
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

    def columns(self, names: list[str], numbers: Collection[str] = ()) -> dict[str, Any]:
        """Columns by name; by the ``csv`` module where pyarrow may read another thing."""
        arrow, at = pyarrow(), [self.source.place_of[name] for name in names]
        if numbers and self.source.has_numbers:
            types = [arrow.float64() if name in numbers else arrow.string() for name in names]
            table = self._table(at, types)
            if table is not None and len(table):
                found = {name: table.column(i).chunk(0) for i, name in enumerate(names)}
                with np.errstate(over="ignore", invalid="ignore"):
                    if all(np.isfinite(found[name].to_numpy().sum()) for name in numbers):
                        return found
            self.source.has_numbers = False
        table = self._table(at, [arrow.string()] * len(names)) if names else None
        if table is not None and len(table):
            return {name: table.column(i).chunk(0) for i, name in enumerate(names)}
        rows = [row for _, row in self._records] if names else []
        columns = [arrow.array([row[i] for row in rows], arrow.string()) for i in at]
        return dict(zip(names, columns, strict=True))

    def _table(self, columns: list[int], types: list[Any]) -> Any:
        """Columns by number, read by pyarrow; None if it cannot, or may be wrong."""
        source, data = self.source, self.data
        # Quotation marks inside cells, or missing ones, and what pyarrow takes for other lines.
        blank = source.delimiter.isspace()
        blank = blank and (source.delimiter not in " \t" or _BLANK_LINE.search(data) is not None)
        is_odd = b"\r" in data and data.count(b"\r") != data.count(b"\r\n")
        is_odd = is_odd or (b'"' in data and data.count(b'"') % 2 == 1)
        if is_odd or blank or len(source.names) == 1 or data.startswith(b"\xef\xbb\xbf"):
            return None
        keys = [str(column) for column in range(len(source.names))]
        typed = {keys[k]: kind for k, kind in zip(columns, types, strict=True)}
        return parsed(data, keys, typed, source.delimiter, b'"' in data, [])


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
