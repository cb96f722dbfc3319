"""Rows of tables, chunk by chunk, to batches of whole queries: what CSV and Parquet share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

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
    dtype: np.dtype

    @property
    def n_features(self) -> int:
        """Columns of ``data``."""

    @property
    def feature_names(self) -> list[str]:
        """Their names."""

    def measure(self, chunk: Any) -> None:
        """Find out what only the rows tell."""

    def fill(self, chunk: Any, data: Array) -> None:
        """Write the features of a chunk into ``data``."""

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
    starts: Array

    def rest(self, done: int) -> _Table:
        """Rows from ``done`` on, in arrays of their own."""

        def tail(values: Array | None) -> Array | None:
            return None if values is None else values[done:].copy()

        return _Table(
            self.data[done:].copy(),
            tail(self.target),
            tail(self.qid),
            tail(self.sample_weight),
            self.starts[self.starts >= done] - done,
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
    table: _Table | None = None
    waiting: list[Any] = []
    n_waiting = 0
    for chunk in chunks:
        waiting.append(chunk)
        n_waiting += len(chunk.batch)
        n_left = 0 if table is None else len(table.data)
        if n_left + n_waiting < rows:
            continue
        table = assembler.join(table, waiting)
        waiting, n_waiting = [], 0
        done = 0
        for stop in _cuts(table, rows, assembler.by_query):
            yield assembler.bunch(table, done, stop)
            done = stop
        table = table.rest(done)
    if waiting:
        table = assembler.join(table, waiting)
    if table is None:
        raise ValueError(f"{name}: no data: there are no rows")
    done = 0
    for stop in [*_cuts(table, rows, assembler.by_query), len(table.data)]:
        if stop > done:
            yield assembler.bunch(table, done, stop)
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

    def join(self, before: _Table | None, chunks: list[Any]) -> _Table:
        """One table of the rows that were left and of those that follow."""
        columns = self.columns
        columns.measure(chunks[0])
        n_before = 0 if before is None else len(before.data)
        n_rows = n_before + sum(len(chunk.batch) for chunk in chunks)
        data = np.empty((n_rows, columns.n_features), dtype=columns.dtype)
        given = {
            "target": columns.target is not None,
            "qid": columns.qid is not None,
            "sample_weight": columns.sample_weight is not None,
        }
        parts: dict[str, list[Array]] = {name: [] for name, there in given.items() if there}
        starts: list[Array] = [np.zeros(0, dtype=np.intp)]
        if before is not None:
            data[:n_before] = before.data
            starts.append(before.starts)
            for name, values in parts.items():
                values.append(getattr(before, name))
        at = n_before
        for chunk in chunks:
            m = len(chunk.batch)
            if given["target"]:
                parts["target"].append(columns.values(chunk, columns.target))
            if given["qid"]:
                labels = columns.labels(chunk)
                parts["qid"].append(labels)
                if self.by_query:
                    starts.append(at + self._starts(chunk, labels))
            if given["sample_weight"]:
                parts["sample_weight"].append(columns.values(chunk, columns.sample_weight))
            columns.fill(chunk, data[at : at + m])
            at += m
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        return _Table(
            data,
            joined.get("target"),
            joined.get("qid"),
            joined.get("sample_weight"),
            np.concatenate(starts),
        )

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
            data=table.data[start:stop],
            target=None if target is None else target[start:stop],
            qid=None if qid is None else self.columns.settle(qid[start:stop]),
            sample_weight=None if weight is None else weight[start:stop],
            feature_names=self.columns.feature_names,
        )
