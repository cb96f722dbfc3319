"""Parquet and Arrow files as record batches, each with the place that it comes from.

pyarrow is an extra: it is imported here when a file is opened, and nowhere else.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls.datasets.formats import SUFFIXES

__all__ = ["NumberedBatch", "Source", "ahead", "find_files", "open_source", "pyarrow", "readable"]

PathOrPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CONTINUATION = b"\xff\xff\xff\xff"


def pyarrow() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "CSV, Parquet and Arrow files are read by pyarrow, which is not installed: "
            "pip install 'rankrls[arrow]'"
        ) from error
    return pyarrow


def find_files(path: PathOrPaths) -> list[str]:
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
    if not isinstance(path, Sequence):
        raise ValueError(
            "path must be the name of a file or directory, or a list of them; got a "
            f"{type(path).__name__}"
        )
    files = [file for part in path for file in find_files(part)]
    if not files:
        raise ValueError("path is an empty list: name at least one file")
    return files


@dataclass(frozen=True)
class NumberedBatch:
    """Consecutive rows of a file: ``batch`` is a RecordBatch that begins at row ``first``."""

    source: _BinarySource
    first: int
    batch: Any

    def place(self, row: int) -> str:
        """How an error calls a row of the batch."""
        return self.source.place(self.first + int(row))


class Source(ABC):
    """One open file: its schema, and its rows from the first to the last.

    Parameters
    ----------
    file : str
    kind : str
        "CSV", "Parquet" or "Arrow".
    schema : pyarrow.Schema
    """

    def __init__(self, file: str, kind: str, schema: Any) -> None:
        self.file, self.kind, self.schema = file, kind, schema
        self.names: list[str] = schema.names

    def expect(self, columns: Any) -> None:
        """Learn what `Columns` are read, and as what; most files know what they hold."""
        return

    def numbers_in_a_row(self, column: str) -> int:
        """How long a list of the column must be at least, before any is read."""
        return 0

    @abstractmethod
    def chunks(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Read some columns, about ``rows`` rows at a time: `TableChunk`, none of them empty."""


class _BinarySource(Source):
    """A file in parts: "row group" or "record batch"."""

    def __init__(self, file: str, kind: str, part: str, schema: Any) -> None:
        super().__init__(file, kind, schema)
        self.part = part
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def place(self, row: int) -> str:
        """File, row group and row (both counted from 0)."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        return f"{self.file}: {self.part} {number}, row {row}"

    def require_memory(self, columns: list[str], rows: int) -> None:
        """Raise if ``rows`` rows are known to need more memory than there is."""
        return  # not known before they are read

    def chunks(self, columns: list[str], rows: int) -> Iterator[NumberedBatch]:
        """Read some columns, at most ``rows`` rows at a time."""
        first = 0
        self.require_memory(columns, rows)
        batches = self._batches(columns, rows)
        while True:
            with readable(f"{self.place(first)} or after", self.kind):
                batch = next(batches, None)
            if batch is None:
                return
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield NumberedBatch(self, first + start, part)
            first += batch.num_rows

    @abstractmethod
    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Record batches of some columns."""


class _ParquetSource(_BinarySource):
    def __init__(self, file: str) -> None:
        self.file = file
        self.reader = self._open([])
        super().__init__(file, "Parquet", "row group", self.reader.schema_arrow)
        metadata = self.reader.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._ends = np.cumsum(np.array(sizes, dtype=np.int64))

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
        metadata, schema = self.reader.metadata, self.reader.schema
        lists = [
            i
            for i in range(metadata.num_columns)
            if schema.column(i).max_repetition_level
            and schema.column(i).path.rsplit(".", 2)[0] in columns
        ]
        groups = map(metadata.row_group, range(metadata.num_row_groups if lists else 0))
        return [
            (group.num_rows, sum(group.column(i).num_values for i in lists)) for group in groups
        ]

    def _open(self, texts: list[str]) -> Any:
        return pyarrow().parquet.ParquetFile(
            self.file, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=texts
        )

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        missing = int(self._ends[-1]) if len(self._ends) else 0
        self.reader.close()
        # Strings stay numbers of a dictionary: a long one is not repeated for every row.
        kinds = {name: self.schema.field(name).type for name in columns}
        texts = [name for name, kind in kinds.items() if pyarrow().types.is_string(kind)]
        with self._open(texts) as reader:
            for batch in reader.iter_batches(batch_size=rows, columns=columns):
                missing -= batch.num_rows
                yield batch
        if missing:
            raise ValueError(f"its row groups promise {missing} rows more")


class _ArrowSource(_BinarySource):
    def __init__(self, file: str, opener: str) -> None:
        self.handle = pyarrow().OSFile(file)
        self.reader = getattr(pyarrow().ipc, opener)(self.handle)
        super().__init__(file, "Arrow", "record batch", self.reader.schema)

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        with self.handle, self.reader:
            ends: list[int] = []
            for batch in _ipc_batches(self.reader):
                ends.append(batch.num_rows + (ends[-1] if ends else 0))
                self._ends = np.array(ends, dtype=np.int64)
                batch.validate(full=True)  # offsets that point outside would crash, not raise
                yield batch.select(columns)


def _ipc_batches(reader: Any) -> Iterator[Any]:
    if not hasattr(reader, "num_record_batches"):  # a stream
        yield from reader
        return
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def open_source(file: str) -> Source:
    """Open a file; its format is detected from its content."""
    with open(file, "rb") as handle:
        magic = handle.read(8)
    if magic.startswith(b"PAR1"):
        with readable(file, "Parquet"):
            return _ParquetSource(file)
    if magic.startswith(b"ARROW1"):
        with readable(file, "Arrow"):
            return _ArrowSource(file, "open_file")
    if magic.startswith(_CONTINUATION):
        with readable(file, "Arrow"):
            _require_end(file)
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


def _require_end(file: str) -> None:
    """Raise unless a stream has its end mark: without it, rows may be missing unnoticed."""
    with open(file, "rb") as handle:
        handle.seek(-min(8, os.path.getsize(file)), os.SEEK_END)
        if handle.read() != _CONTINUATION + bytes(4):
            raise ValueError("the stream has no end mark")


@contextmanager
def readable(place: str | Callable[[], str], kind: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into one ``ValueError``."""
    try:
        yield
    except (OSError, ValueError, MemoryError, OverflowError, pyarrow().ArrowException) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        where = place if isinstance(place, str) else place()
        raise ValueError(
            f"{where}: the {kind} file is truncated or damaged ({what}); get it again"
        ) from error


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, the next one being made while the last one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
