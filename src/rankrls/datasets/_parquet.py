"""Parquet and Arrow files in batches of whole queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from rankrls.datasets._arrow import Chunk, PathOrPaths, Source, ahead, find_files, open_source
from rankrls.datasets._checks import check_count
from rankrls.datasets._columns import Columns

__all__ = ["iter_parquet"]

Array = NDArray[Any]


def iter_parquet(
    path: PathOrPaths,
    *,
    target: str,
    qid: str | None = None,
    features: Any = None,
    sample_weight: str | None = None,
    rows: int = 100_000,
    dtype: DTypeLike = np.float64,
) -> Iterator[Bunch]:
    """Read Parquet or Arrow files in batches of whole queries, one batch in memory at a time.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like, or a sequence of them
        Parquet files, Arrow IPC files or streams, Feather files (version 2), as their content
        tells; a directory stands for all such files below it, sorted by name. The rows of all
        files follow each other, and those of a query must stand together.
    target : str
        Column of the labels.
    qid : str, optional
        Column of the query ids: integers or strings. None: there are no queries.
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers. A
        column of lists of equal length (an embedding, say) gives as many features.
    sample_weight : str, optional
        Column of the row weights.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without ``qid`` a batch has just this many rows.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
        target : ndarray of shape (n_rows,), float64
        qid : ndarray of shape (n_rows,), int64 or str, or None
        sample_weight : ndarray of shape (n_rows,), float64, or None
        feature_names : list of str of length n_features

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is) or is not of a type that can be
        read; if a value is null, NaN or infinite, or a query id comes back after another query,
        naming file, row group and row, both counted from 0; if a file is truncated, damaged, or
        something else. Only the ids of the queries already read are kept to notice the second.

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
    [1 1] [5. 6.]
    [2 3] [7. 8.]
    """
    rows = check_count("rows", rows)
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32; got {dtype}")
    files = find_files(path)
    first = open_source(files[0])
    columns = Columns(first, target, qid, sample_weight, features, dtype)
    return _iter_batches(files, first, columns, rows)


class _Table(NamedTuple):
    """Rows in memory; ``starts`` are those that begin a query."""

    data: Array
    target: Array
    qid: Array | None
    sample_weight: Array | None
    starts: Array

    def rest(self, done: int) -> _Table:
        """Rows from ``done`` on, in arrays of their own."""
        return _Table(
            self.data[done:].copy(),
            self.target[done:].copy(),
            None if self.qid is None else self.qid[done:].copy(),
            None if self.sample_weight is None else self.sample_weight[done:].copy(),
            self.starts[self.starts >= done] - done,
        )


def _iter_batches(files: list[str], first: Source, columns: Columns, rows: int) -> Iterator[Bunch]:
    assembler = _Assembler(columns)
    table: _Table | None = None
    waiting: list[Chunk] = []
    for chunk in ahead(_chunks(files, first, columns, rows)):
        waiting.append(chunk)
        n_left = 0 if table is None else len(table.target)
        if n_left + sum(len(part.batch) for part in waiting) < rows:
            continue
        table = assembler.join(table, waiting)
        waiting = []
        done = 0
        for stop in _cuts(table, rows):
            yield assembler.bunch(table, done, stop)
            done = stop
        table = table.rest(done)
    if waiting:
        table = assembler.join(table, waiting)
    if table is None:
        raise ValueError(f"{files[0]}: no data: there are no rows")
    done = 0
    for stop in [*_cuts(table, rows), len(table.target)]:
        if stop > done:
            yield assembler.bunch(table, done, stop)
        done = stop


def _chunks(files: list[str], first: Source, columns: Columns, rows: int) -> Iterator[Chunk]:
    """All rows of all files."""
    for number, file in enumerate(files):
        source = open_source(file) if number else first
        columns.check(source)
        yield from source.chunks(columns.names, rows)


def _cuts(table: _Table, rows: int) -> Iterator[int]:
    """Ends of the batches that are full, but for a query that may not have ended yet."""
    start, end, starts = 0, len(table.target), table.starts
    while end - start >= rows:
        stop = start + rows
        if table.qid is not None:
            # The last query that begins at or before start + rows; a larger query is whole.
            at = int(np.searchsorted(starts, stop, side="right")) - 1
            if starts[at] == start:
                at += 1
            if at == len(starts):
                return
            stop = int(starts[at])
        yield stop
        start = stop


class _Assembler:
    """Chunks to tables; it knows the queries that have been read."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.seen: set[Any] = set()
        self.last: Any = None

    def join(self, before: _Table | None, chunks: list[Chunk]) -> _Table:
        """One table of the rows that were left and of those that follow."""
        columns = self.columns
        columns.measure(chunks[0])
        n_before = 0 if before is None else len(before.target)
        n_rows = n_before + sum(len(chunk.batch) for chunk in chunks)
        data = np.empty((n_rows, columns.n_features), dtype=columns.dtype)
        parts: dict[str, list[Array]] = {"target": [], "qid": [], "sample_weight": [], "starts": []}
        if before is not None:
            data[:n_before] = before.data
            for name in parts:
                parts[name].append(getattr(before, name))
        at = n_before
        for chunk in chunks:
            m = len(chunk.batch)
            parts["target"].append(columns.values(chunk, columns.target))
            if columns.qid is not None:
                labels = columns.labels(chunk)
                parts["qid"].append(labels)
                parts["starts"].append(at + self._starts(chunk, labels))
            if columns.sample_weight is not None:
                parts["sample_weight"].append(columns.values(chunk, columns.sample_weight))
            columns.fill(chunk, data[at : at + m])
            at += m
        with_qid, weighted = columns.qid is not None, columns.sample_weight is not None
        return _Table(
            data,
            np.concatenate(parts["target"]),
            np.concatenate(parts["qid"]) if with_qid else None,
            np.concatenate(parts["sample_weight"]) if weighted else None,
            np.concatenate(parts["starts"]) if with_qid else np.zeros(0, dtype=np.intp),
        )

    def _starts(self, chunk: Chunk, labels: Array) -> Array:
        """Rows that begin a query; a query that was there before is an error."""
        new = np.empty(len(labels), dtype=bool)
        new[0] = labels[0] != self.last
        np.not_equal(labels[1:], labels[:-1], out=new[1:])
        starts = np.flatnonzero(new)
        begun = labels[starts].tolist()
        if len(set(begun)) < len(begun) or not self.seen.isdisjoint(begun):
            for row, label in zip(starts.tolist(), begun, strict=True):
                if label in self.seen:
                    raise ValueError(
                        f"{chunk.place(row)}: query {label!r} comes back after another query; "
                        "sort the rows by query"
                    )
                self.seen.add(label)
        self.seen.update(begun)
        self.last = labels[-1]
        return starts

    def bunch(self, table: _Table, start: int, stop: int) -> Bunch:
        """What the user gets."""
        qid, weight = table.qid, table.sample_weight
        return Bunch(
            data=table.data[start:stop],
            target=table.target[start:stop],
            qid=None if qid is None else qid[start:stop],
            sample_weight=None if weight is None else weight[start:stop],
            feature_names=self.columns.feature_names,
        )
