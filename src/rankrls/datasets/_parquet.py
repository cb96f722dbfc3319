"""Parquet and Arrow files, in record batches."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankrls import _resources
from rankrls._streams import name_of
from rankrls.datasets._columns import Columns, Source, pyarrow, readable
from rankrls.datasets._rows import FileRows
from rankrls.datasets.formats import SUFFIXES

__all__ = ["BinarySource", "find_files", "open_source"]

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


class BinarySource(Source):
    """A file in parts: "row group" or "record batch"."""

    part: str

    def __init__(self, file: str, kind: str, reader: Any, schema: Any) -> None:
        super().__init__(file, kind, schema)
        self.reader = reader
        self.ends: list[int] = []  # of the parts

    def place(self, first: int, row: int) -> str:
        """File, row group and row (both counted from 0) of a row that follows ``first``."""
        at = first + int(row)
        number = int(np.searchsorted(self.ends, at, side="right"))
        return f"{self.file}: {self.part} {number}, row {at}"

    def require_memory(self, columns: list[str], rows: int) -> None:
        """Raise if ``rows`` rows are known to need more memory than there is."""
        return  # not known before they are read

    def rows(self, columns: Columns, most: float) -> Iterator[FileRows]:
        """Read all rows, the next ones while the last ones are converted."""
        widths = [columns.widths.get(n) or self.numbers_in_a_row(n) for n in columns.features]
        size = min(_CHUNK_BYTES // (8 * max(sum(widths), 1)), most // 16)
        read = self.batches(columns.names, int(min(max(size, 256), most)))
        return _resources.in_order(lambda one: columns.rows(one[1], one[0]), read, 1)

    def batches(self, columns: list[str], rows: int) -> Iterator[tuple[Any, Any]]:
        """Some columns, at most ``rows`` rows at a time: what names a row, and a RecordBatch."""
        first = 0
        self.require_memory(columns, rows)
        parts = self._parts(columns, rows)
        while True:
            with readable(f"{self.place(first, 0)} or after", self.kind):
                batch = next(parts, None)
            if batch is None:
                return
            for start in range(0, batch.num_rows, rows):
                yield partial(self.place, first + start), batch.slice(start, rows)
            first += batch.num_rows

    @abstractmethod
    def _parts(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Record batches of some columns."""


class _ParquetSource(BinarySource):
    part = "row group"

    def __init__(self, file: str) -> None:
        reader = self._open(file, [])
        super().__init__(file, "Parquet", reader, reader.schema_arrow)
        groups = map(reader.metadata.row_group, range(reader.metadata.num_row_groups))
        self.ends = np.cumsum([group.num_rows for group in groups], dtype=np.int64).tolist()

    def numbers_in_a_row(self, column: str) -> int:
        """The mean of a row group, rounded up; few bytes may stand for many equal numbers."""
        sizes = self._list_sizes([column])
        return max((-(-numbers // max(rows, 1)) for rows, numbers in sizes), default=0)

    def require_memory(self, columns: list[str], rows: int) -> None:
        """Raise unless the lists of ``rows`` rows can be held: pyarrow decodes them at once."""
        for number, (n_rows, numbers) in enumerate(self._list_sizes(columns)):
            read = min(rows, n_rows)
            n_bytes = 8 * numbers * read // max(n_rows, 1)
            if n_bytes > (left := _resources.budget()):
                raise MemoryError(
                    f"{self.file}: the lists in {read:,} rows of row group {number} take "
                    f"{n_bytes / 2**30:.1f} GiB, more than half of the memory of this process or "
                    f"what is left of it, {left / 2**30:.1f} GiB: read fewer rows at a "
                    "time, with iter_ranking, or leave columns of long lists out"
                )

    def _list_sizes(self, columns: list[str]) -> list[tuple[int, int]]:
        """Rows of every row group, and numbers in the lists of these columns together."""
        metadata = self.reader.metadata
        fields = [(i, self.reader.schema.column(i)) for i in range(metadata.num_columns)]
        lists = [i for i, field in fields if field.max_repetition_level]
        lists = [i for i in lists if fields[i][1].path.rsplit(".", 2)[0] in columns]
        groups = map(metadata.row_group, range(metadata.num_row_groups if lists else 0))
        return [
            (group.num_rows, sum(group.column(i).num_values for i in lists)) for group in groups
        ]

    @staticmethod
    def _open(file: str, texts: list[str]) -> Any:
        return pyarrow().parquet.ParquetFile(
            file, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=texts
        )

    def _parts(self, columns: list[str], rows: int) -> Iterator[Any]:
        missing = self.ends[-1] if self.ends else 0
        self.reader.close()
        # Strings stay numbers of a dictionary: a long one is not repeated for every row.
        texts = [name for name in columns if str(self.schema.field(name).type) == "string"]
        with self._open(self.file, texts) as reader:
            for batch in reader.iter_batches(batch_size=rows, columns=columns):
                missing -= batch.num_rows
                yield batch
        if missing:
            raise ValueError(f"its row groups promise {missing} rows more")


class _ArrowSource(BinarySource):
    part = "record batch"

    def __init__(self, file: str, opener: str) -> None:
        self.handle = pyarrow().OSFile(file)
        reader = getattr(pyarrow().ipc, opener)(self.handle)
        super().__init__(file, "Arrow", reader, reader.schema)

    def _parts(self, columns: list[str], rows: int) -> Iterator[Any]:
        with self.handle, self.reader as reader:
            batches = reader
            if hasattr(reader, "num_record_batches"):  # not a stream
                batches = map(reader.get_batch, range(reader.num_record_batches))
            for batch in batches:
                self.ends.append(batch.num_rows + (self.ends[-1] if self.ends else 0))
                batch.validate(full=True)  # offsets that point outside would crash, not raise
                yield batch.select(columns)


def open_source(file: str) -> BinarySource:
    """Open a file; its format is detected from its content."""
    with open(file, "rb") as handle:
        magic = handle.read(8)
        handle.seek(-min(8, os.path.getsize(file)), os.SEEK_END)
        end = handle.read()
    if magic.startswith(b"PAR1"):
        with readable(file, "Parquet"):
            return _ParquetSource(file)
    if magic.startswith(b"ARROW1"):
        with readable(file, "Arrow"):
            return _ArrowSource(file, "open_file")
    if magic.startswith(_CONTINUATION):
        with readable(file, "Arrow"):
            if end != _CONTINUATION + bytes(4):  # without it, rows may be missing unnoticed
                raise ValueError("the stream has no end mark")
            return _ArrowSource(file, "open_stream")
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
