"""Parquet and Arrow files in batches of whole queries."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._streams import name_of
from rankrls._validation import check_integer, check_option
from rankrls.datasets._columns import Columns, Source, TableReader, pyarrow, readable, text_columns
from rankrls.datasets._rows import FileRows, iterate
from rankrls.datasets.formats import SUFFIXES

__all__ = ["BinarySource", "find_files", "iter_parquet", "open_source", "parquet_reader"]

PathOrPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Read buffer of one column: pages are read when they are needed, not whole row groups.
_BUFFER_BYTES = 1 << 16

_CHUNK_BYTES = 1 << 23  # of the features that are read at a time, about

_CONTINUATION = b"\xff\xff\xff\xff"


def iter_parquet(
    path: PathOrPaths,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    rows: int = 100_000,
    dtype: DTypeLike = np.float64,
    by_query: bool = True,
    missing: str = "error",
    text: Any = None,
    unlabelled: str = "error",
) -> Iterator[Bunch]:
    """Read Parquet or Arrow files in batches of whole queries, one batch in memory at a time.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like, or a sequence of them
        Parquet files, Arrow IPC files or streams, Feather files (version 2), as their content
        tells; a directory stands for all such files below it, sorted by name. The rows of all
        files follow each other, and those of a query must be consecutive.
    target : str or None
        Column of the labels. None: there are none, as in rows to predict.
    qid : str, optional
        Column of the query ids: integers or strings. None: there are no queries.
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers. A
        column of lists of equal length (an embedding, say) gives as many features. An empty
        list reads none: labels and query ids alone.
    drop : str or sequence of str, optional
        Columns that are not features, such as text and ids, if ``features`` is not given.
    sample_weight : str, optional
        Column of the row weights.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without ``qid`` a batch has just this many rows.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.
    missing : {"error", "nan"}, default="error"
        How to handle features that are null or NaN: raise an error, or return NaN. Weights and
        query ids must not be missing.
    text : None, "auto" or sequence of str, default=None
        Columns that may hold text, as in :func:`load_ranking`.
    unlabelled : {"error", "drop"}, default="error"
        How to handle rows without a label: raise an error, or leave them out and warn of how many.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
        target : ndarray of shape (n_rows,), float64, or None
        qid : ndarray of shape (n_rows,), int64 or str, or None
        sample_weight : ndarray of shape (n_rows,), float64, or None
        feature_names : list of str of length n_features

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is) or is not of a type that can be
        read; if a value is infinite, null or NaN (but for ``missing``), or a query id comes back
        after another query, naming file, row group and row, both counted from 0; if a file is
        truncated, damaged, or something else. Only the ids of the queries already read are kept to
        notice the second.

    See Also
    --------
    iter_letor : The same for LETOR text.
    rankrls.RankRLS.fit_stream : Fit a model to the batches.

    Examples
    --------
    >>> import os, tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> from rankrls.datasets import iter_parquet
    >>> table = pa.table({"query": [1, 1, 2, 3], "label": [1, 0, 1, 0], "bm25": [5, 6, 7, 8]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "train.parquet")
    ...     pa.parquet.write_table(table, file)
    ...     for batch in iter_parquet(file, target="label", qid="query", rows=3):
    ...         print(batch.qid, batch.data.ravel())
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    rows = check_integer("rows", rows, least=1)
    files = find_files(path)
    roles = {"target": target, "qid": qid, "sample_weight": sample_weight}
    how = {"dtype": dtype, "missing": missing, "text": text, "unlabelled": unlabelled}
    reader = parquet_reader(files, features=features, drop=drop, **roles, **how)
    return iterate(reader, rows, by_query=by_query)


def parquet_reader(files: list[str], **how: Any) -> TableReader:
    """Reader of some files; ``how`` are arguments of `Columns`."""
    check_option("unlabelled", how["unlabelled"], ("error", "drop"))
    first = open_source(files[0])
    if isinstance(how.get("text"), str):  # "auto": what is text in one file is so in all
        how["text"] = [name for file in files for name in text_columns(open_source(file).schema)]
    others = [partial(open_source, file) for file in files[1:]]
    return TableReader([first, *others], Columns(first, **how))


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
    if hasattr(path, "read"):
        raise ValueError(f"{name_of(cast(Any, path))}: Parquet and Arrow files are opened by name")
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

    def __init__(self, file: str, kind: str, part: str, schema: Any) -> None:
        super().__init__(file, kind, schema)
        self.part = part
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def place(self, first: int, row: int) -> str:
        """File, row group and row (both counted from 0) of a row that follows ``first``."""
        at = first + int(row)
        number = int(np.searchsorted(self._ends, at, side="right"))
        return f"{self.file}: {self.part} {number}, row {at}"

    def require_memory(self, columns: list[str], rows: int) -> None:
        """Raise if ``rows`` rows are known to need more memory than there is."""
        return  # not known before they are read

    def rows(self, columns: Columns, most: float) -> Iterator[FileRows]:
        """Read all rows, the next ones while the last ones are converted."""
        widths = [columns.widths.get(n) or self.numbers_in_a_row(n) for n in columns.features]
        size = min(_CHUNK_BYTES // (8 * max(sum(widths), 1)), most // 4)
        read = self.batches(columns.names, int(min(max(size, 256), most)))
        return _ahead(columns.rows(batch, place) for place, batch in read)

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

    def _parts(self, columns: list[str], rows: int) -> Iterator[Any]:
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


class _ArrowSource(BinarySource):
    def __init__(self, file: str, opener: str) -> None:
        self.handle = pyarrow().OSFile(file)
        self.reader = getattr(pyarrow().ipc, opener)(self.handle)
        super().__init__(file, "Arrow", "record batch", self.reader.schema)

    def _parts(self, columns: list[str], rows: int) -> Iterator[Any]:
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


def open_source(file: str) -> BinarySource:
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


def _ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, the next one being made while the last one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
