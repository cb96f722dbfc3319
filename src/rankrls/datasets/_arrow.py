"""Parquet and Arrow files in record batches; types of columns, and cells of text as numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._resources import pyarrow
from rankrls._streams import name_of
from rankrls.datasets._text import NULLS, cell_number
from rankrls.datasets.formats import SUFFIXES

Array = NDArray[Any]

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CHUNK_BYTES = 1 << 21  # of the features that are read at a time, about

_CONTINUATION = b"\xff\xff\xff\xff"

_NO_FRACTION = re.compile(r"\.0+(?!\d)")  # of a second


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
    if types.is_temporal(type) and not types.is_interval(type):
        return "times"
    return "nulls" if types.is_null(type) else "others"


def decoded(column: Any) -> Any:
    """The values of a column that is stored as a dictionary; others as they are."""
    return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column


def as_text(column: Any) -> list[str | None]:
    """Cells as text, None where they are null."""
    column = decoded(column)
    words = column.cast(pyarrow().large_string()).to_pylist()
    if type_kind(column.type) != "times":
        return words
    unit = f" {column.type.unit}" if pyarrow().types.is_duration(column.type) else ""
    return [None if word is None else _NO_FRACTION.sub("", word) + unit for word in words]


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
    """A Parquet file in row groups, or an Arrow file or stream in record batches."""

    threads = 1

    def __init__(self, file: str) -> None:
        with open(file, "rb") as handle:
            magic = handle.read(8)
            handle.seek(-min(8, os.path.getsize(file)), os.SEEK_END)
            end = handle.read()
        if not magic.startswith((b"PAR1", b"ARROW1", _CONTINUATION)):
            raise ValueError(
                f"{file}: this is neither a Parquet nor an Arrow file: it begins with {magic!r} "
                "(encrypted files and version 1 of Feather are not read)"
            )
        self.file, self.kind = file, "Parquet" if magic.startswith(b"PAR1") else "Arrow"
        self.ends: list[int] = []  # of row groups or record batches
        self.metadata: Any = None  # of Parquet files
        with readable(lambda: file, self.kind):
            is_stream = magic.startswith(_CONTINUATION)
            if is_stream and end != _CONTINUATION + bytes(4):  # rows may be missing unnoticed
                raise ValueError("the stream has no end mark")
            if self.kind == "Parquet":
                with self._open_parquet() as reader:
                    self.schema, self.metadata = reader.schema_arrow, reader.metadata
                sizes = [group.num_rows for group in self._groups()]
                self.ends = np.cumsum(sizes, dtype=np.int64).tolist()
            else:
                self._handle = pyarrow().OSFile(file)
                ipc = pyarrow().ipc
                self._reader = (ipc.open_stream if is_stream else ipc.open_file)(self._handle)
                self.schema = self._reader.schema
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
        self, columns: list[str], rows: float, width: int = 1
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
        with self._handle, self._reader as reader:
            batches = reader
            if hasattr(reader, "num_record_batches"):  # not a stream
                batches = map(reader.get_batch, range(reader.num_record_batches))
            for batch in batches:
                self.ends.append(batch.num_rows + (self.ends[-1] if self.ends else 0))
                batch.validate(full=True)  # offsets that point outside would crash, not raise
                yield batch.select(columns)


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
