"""Parquet and Arrow files, in record batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankrls._streams import name_of
from rankrls.datasets._arrow import pyarrow, readable, type_kind
from rankrls.datasets.formats import SUFFIXES

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CHUNK_BYTES = 1 << 21  # of the features that are read at a time, about

_CONTINUATION = b"\xff\xff\xff\xff"

_FOREIGN = {
    b"": "the file is empty",
    b"FEA1": "version 1 of Feather is not read; write it as Parquet or Arrow",
    b"PARE": "the Parquet file is encrypted",
}


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


class ArrowSource:
    """A Parquet file in row groups, or an Arrow file or stream in record batches."""

    threads = 1

    def __init__(self, file: str) -> None:
        with open(file, "rb") as handle:
            magic = handle.read(8)
            handle.seek(-min(8, os.path.getsize(file)), os.SEEK_END)
            end = handle.read()
        if not magic.startswith((b"PAR1", b"ARROW1", _CONTINUATION)):
            what = (
                f"neither a Parquet nor an Arrow file: it begins with {magic!r} (for LETOR text, "
            )
            what += "plain or compressed, there is iter_letor)"
            raise ValueError(f"{file}: {_FOREIGN.get(magic[:4], what)}")
        self.file, self.kind = file, "Parquet" if magic.startswith(b"PAR1") else "Arrow"
        with readable(lambda: file, self.kind):
            is_stream = magic.startswith(_CONTINUATION)
            if is_stream and end != _CONTINUATION + bytes(4):  # rows may be missing unnoticed
                raise ValueError("the stream has no end mark")
            self.ends: list[int] = []  # of row groups or record batches
            self.metadata: Any = None  # of Parquet files
            if self.kind == "Parquet":
                with self._open_parquet() as reader:
                    self.schema, self.metadata = reader.schema_arrow, reader.metadata
                sizes = [self._group(i).num_rows for i in range(self.metadata.num_row_groups)]
                self.ends = np.cumsum(sizes, dtype=np.int64).tolist()
            else:
                self._handle = pyarrow().OSFile(file)
                ipc = pyarrow().ipc
                self._reader = (ipc.open_stream if is_stream else ipc.open_file)(self._handle)
                self.schema = self._reader.schema
            self.names = self.schema.names

    def _group(self, number: int) -> Any:
        return self.metadata.row_group(number)

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
                groups = map(self._group, range(metadata.num_row_groups))
                sizes = [(group.column(i).num_values, group.num_rows) for group in groups]
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
