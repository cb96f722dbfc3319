"""Rows of tables, chunk by chunk, to batches of whole queries: what CSV and Parquet share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from rankrls._frames import RawTable
from rankrls.datasets._source import require_loadable

__all__ = ["TableChunk", "TableColumns", "check_dtype", "iter_batches"]

Array = NDArray[Any]


class TableChunk(Protocol):
    """Some consecutive rows of a file."""

    @property
    def batch(self) -> Any:
        """The rows; ``len`` tells how many."""

    def place(self, row: int) -> str:
        """How an error calls a row of the chunk."""


class TableColumns(Protocol):
    """Which columns are what, and how they become arrays."""

    target: Any
    qid: Any
    sample_weight: Any
    #: Features that are text; None: all are numbers, and ``data`` is an array.
    text: list[str] | None

    @property
    def n_features(self) -> int:
        """Columns of ``data``."""

    @property
    def feature_names(self) -> list[str]:
        """Their names."""

    def measure(self, chunk: Any) -> None:
        """Find out what only the rows tell."""

    def data(self, chunk: Any) -> Array:
        """The features of a chunk; NaN for text."""

    def words(self, chunk: Any) -> Array:
        """Text of shape (n_rows, n_text): str, None where there is none."""

    def values(self, chunk: Any, name: str) -> Array:
        """A column of numbers, float64."""

    def labels(self, chunk: Any) -> Array:
        """Query ids."""

    def settle(self, labels: Array) -> Array:
        """Query ids of a batch in the type that users get."""


def check_dtype(dtype: Any) -> np.dtype:
    """Return ``dtype`` as a NumPy type if it is float64 or float32."""
    checked = np.dtype(dtype)
    if checked not in (np.float32, np.float64):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32; got {checked}")
    return checked


class _Table(NamedTuple):
    """Rows in memory; ``starts`` are those that begin a query."""

    data: Array
    target: Array | None
    qid: Array | None
    sample_weight: Array | None
    words: Array | None
    starts: Array

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays, without that of query ids and text that are objects."""
        return sum(array.nbytes for array in self if array is not None)

    def rest(self, done: int) -> _Table:
        """Rows from ``done`` on, in arrays of their own."""

        def tail(values: Array | None) -> Array | None:
            return None if values is None else values[done:].copy()

        return _Table(
            self.data[done:].copy(),
            tail(self.target),
            tail(self.qid),
            tail(self.sample_weight),
            tail(self.words),
            self.starts[self.starts >= done] - done,
        )

    @staticmethod
    def concatenate(tables: list[_Table]) -> _Table:
        """The rows of all tables, of which there is at least one."""
        if len(tables) == 1:
            return tables[0]

        def joined(field: str) -> Array | None:
            parts = [getattr(table, field) for table in tables]
            return None if parts[0] is None else np.concatenate(parts)

        first = np.cumsum([0, *(len(table.data) for table in tables[:-1])])
        starts = [table.starts + at for table, at in zip(tables, first, strict=True)]
        return _Table(
            np.concatenate([table.data for table in tables]),
            joined("target"),
            joined("qid"),
            joined("sample_weight"),
            joined("words"),
            np.concatenate(starts),
        )


def iter_batches(
    chunks: Iterable[Any], columns: Any, rows: float, *, by_query: bool, name: str
) -> Iterator[Bunch]:
    """Batches of at most ``rows`` rows, cut between queries if there are any.

    Parameters
    ----------
    chunks : iterable of TableChunk
        None of them is empty.
    columns : TableColumns
    rows : int or inf
    by_query : bool
        False: queries may be cut, and come in any order.
    name : str
        How an error calls the data if there are no rows.
    """
    assembler = _Assembler(columns, by_query and columns.qid is not None)
    smaller = "by_query=False" if assembler.by_query else "fewer rows"
    instead = "iter_ranking" if rows == np.inf else smaller
    tables: list[_Table] = []
    n_rows = n_bytes = last_start = 0
    for chunk in chunks:
        table = assembler.table(chunk)
        if len(table.starts):
            last_start = n_rows + int(table.starts[-1])
        tables.append(table)
        n_rows += len(table.data)
        n_bytes += table.n_bytes
        require_loadable(partial(chunk.place, len(table.data) - 1), n_bytes, instead)
        if n_rows < rows or (assembler.by_query and last_start == 0):
            continue
        whole = _Table.concatenate(tables)
        done = 0
        for stop in _cuts(whole, rows, assembler.by_query):
            yield assembler.bunch(whole, done, stop)
            done = stop
        rest = whole.rest(done)
        tables, n_rows, n_bytes, last_start = [rest], n_rows - done, rest.n_bytes, last_start - done
    if not tables:
        raise ValueError(f"{name}: no data: there are no rows")
    whole = _Table.concatenate(tables)
    tables.clear()
    done = 0
    for stop in [*_cuts(whole, rows, assembler.by_query), len(whole.data)]:
        if stop > done:
            yield assembler.bunch(whole, done, stop)
        done = stop


def _cuts(table: _Table, rows: float, by_query: bool) -> Iterator[int]:
    """Ends of the batches that are full, but for a query that may not have ended yet."""
    start, end, starts = 0, len(table.data), table.starts
    while end - start >= rows:
        stop = start + int(rows)
        if by_query:
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

    def __init__(self, columns: Any, by_query: bool) -> None:
        self.columns = columns
        self.by_query = by_query
        self.seen: set[Any] = set()
        self.last: Any = None

    def table(self, chunk: Any) -> _Table:
        """The arrays of a chunk."""
        columns = self.columns
        columns.measure(chunk)
        target = qid = weight = words = None
        starts: Array = np.zeros(0, dtype=np.intp)
        if columns.target is not None:
            target = columns.values(chunk, columns.target)
        if columns.qid is not None:
            qid = columns.labels(chunk)
            if self.by_query:
                starts = self._starts(chunk, qid)
        if columns.sample_weight is not None:
            weight = columns.values(chunk, columns.sample_weight)
        if columns.text:
            words = columns.words(chunk)
        return _Table(columns.data(chunk), target, qid, weight, words, starts)

    def _starts(self, chunk: Any, labels: Array) -> Array:
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
        target, qid, weight = table.target, table.qid, table.sample_weight
        return Bunch(
            data=self._data(table, slice(start, stop)),
            target=None if target is None else target[start:stop],
            qid=None if qid is None else self.columns.settle(qid[start:stop]),
            sample_weight=None if weight is None else weight[start:stop],
            feature_names=self.columns.feature_names,
        )

    def _data(self, table: _Table, rows: slice) -> Any:
        if self.columns.text is None:
            return table.data[rows]
        names, text = self.columns.feature_names, {}
        if table.words is not None:
            words = table.words[rows]
            text = {names.index(name): words[:, k] for k, name in enumerate(self.columns.text)}
        return RawTable(names, table.data[rows], text)
