"""Parquet and Arrow files, in record batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankrls import _resources
from rankrls._streams import name_of
from rankrls.datasets._columns import TableReader, pyarrow, readable, type_kind
from rankrls.datasets._rows import FileRows
from rankrls.datasets.formats import SUFFIXES

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CHUNK_BYTES = 1 << 21  # of the features that are read at a time, about

_CONTINUATION = b"\xff\xff\xff\xff"


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
    if not isinstance(path, Sequence):
        raise ValueError(
            "path must be the name of a file or directory, or a list of them; got a "
            f"{type(path).__name__}"
        )
    files = [file for part in path for file in find_files(part)]
    if not files:
        raise ValueError("path is an empty list: name at least one file")
    return files


class BinarySource:
    """A file in parts: "row group" or "record batch"; ``read(columns, rows)`` yields batches."""

    def __init__(self, file: str, kind: str, schema: Any, part: str, read: Any) -> None:
        self.file, self.kind, self.schema, self.names = file, kind, schema, schema.names
        self.part, self._read = part, read
        self.ends: list[int] = []  # of the parts
        self.metadata: Any = None  # of Parquet files

    def place(self, first: int, row: int) -> str:
        """File, row group and row (both counted from 0) of a row that follows ``first``."""
        at = first + int(row)
        number = int(np.searchsorted(self.ends, at, side="right"))
        return f"{self.file}: {self.part} {number}, row {at}"

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
                groups = map(metadata.row_group, range(metadata.num_row_groups))
                sizes = [(group.column(i).num_values, group.num_rows) for group in groups]
                longest = max([longest, *(-(-numbers // max(n, 1)) for numbers, n in sizes)])
        return longest

    def rows(self, columns: TableReader, most: float) -> Iterator[FileRows]:
        """Read all rows, the next ones while the last ones are converted."""
        widths = [columns.widths.get(n) or self.numbers_in_a_row(n) for n in columns.features]
        size = max(_CHUNK_BYTES // (8 * max(sum(widths), 1)), 1)
        read = self.batches(columns.names, int(min(size, max(most // 16, 256), most)))
        return _resources.in_order(lambda one: columns.rows(one[1], one[0]), read, 1)

    def batches(self, columns: list[str], rows: int) -> Iterator[tuple[Any, Any]]:
        """Some columns, at most ``rows`` rows at a time: what names a row, and a RecordBatch."""
        first, parts = 0, self._read(columns, rows)
        while True:
            with readable(lambda: f"{self.place(first, 0)} or after", self.kind):  # noqa: B023
                batch = next(parts, None)
            if batch is None:
                return
            for start in range(0, batch.num_rows, rows):
                yield partial(self.place, first + start), batch.slice(start, rows)
            first += batch.num_rows


def _open_parquet(file: str) -> BinarySource:
    def open_file(texts: Sequence[str] = ()) -> Any:
        return pyarrow().parquet.ParquetFile(
            file, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=list(texts)
        )

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        missing = source.ends[-1] if source.ends else 0
        # Strings stay numbers of a dictionary: a long one is not repeated for every row.
        texts = [name for name in columns if str(source.schema.field(name).type) == "string"]
        with open_file(texts) as reader:
            for batch in reader.iter_batches(batch_size=rows, columns=columns):
                missing -= batch.num_rows
                yield batch
        if missing:
            raise ValueError(f"its row groups promise {missing} rows more")

    with open_file() as reader:
        source = BinarySource(file, "Parquet", reader.schema_arrow, "row group", read)
        source.metadata = metadata = reader.metadata
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    source.ends = np.cumsum([group.num_rows for group in groups], dtype=np.int64).tolist()
    return source


def _open_arrow(file: str, opener: str) -> BinarySource:
    handle = pyarrow().OSFile(file)
    reader = getattr(pyarrow().ipc, opener)(handle)

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        with handle, reader:
            batches = reader
            if hasattr(reader, "num_record_batches"):  # not a stream
                batches = map(reader.get_batch, range(reader.num_record_batches))
            for batch in batches:
                source.ends.append(batch.num_rows + (source.ends[-1] if source.ends else 0))
                batch.validate(full=True)  # offsets that point outside would crash, not raise
                yield batch.select(columns)

    source = BinarySource(file, "Arrow", reader.schema, "record batch", read)
    return source


def open_source(file: str) -> BinarySource:
    """Open a file; its format is detected from its content."""
    with open(file, "rb") as handle:
        magic = handle.read(8)
        handle.seek(-min(8, os.path.getsize(file)), os.SEEK_END)
        end = handle.read()
    if magic.startswith(b"PAR1"):
        with readable(lambda: file, "Parquet"):
            return _open_parquet(file)
    if magic.startswith(b"ARROW1"):
        with readable(lambda: file, "Arrow"):
            return _open_arrow(file, "open_file")
    if magic.startswith(_CONTINUATION):
        with readable(lambda: file, "Arrow"):
            if end != _CONTINUATION + bytes(4):  # without it, rows may be missing unnoticed
                raise ValueError("the stream has no end mark")
            return _open_arrow(file, "open_stream")
    if not magic:
        raise ValueError(f"{file}: the file is empty")
    if magic.startswith(b"FEA1"):
        raise ValueError(f"{file}: version 1 of Feather is not read; write it as Parquet or Arrow")
    if magic.startswith(b"PARE"):
        raise ValueError(f"{file}: the Parquet file is encrypted")
    raise ValueError(
        f"{file}: neither a Parquet nor an Arrow file: it begins with {magic!r} (for LETOR text, "
        "plain or compressed, there is iter_letor)"
    )
