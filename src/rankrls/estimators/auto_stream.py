"""Streams of raw tables for `AutoRanker`: a sample of whole queries, and parts of whole queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from rankrls._frames import RawTable, take_rows
from rankrls._validation import check_length, check_scores, check_weights, label_array
from rankrls.estimators.stream import Batch, named_batch, read_batches, stacked

__all__ = ["TableRows", "sample_queries", "whole_queries"]

Array = NDArray[Any]


class TableRows(NamedTuple):
    """Rows of a table, or encoded rows, with labels, names of queries and weights."""

    X: Any
    y: Any
    qid: Any = None
    sample_weight: Array | None = None

    @classmethod
    def of_batch(cls, batch: Batch) -> TableRows:
        """Check a batch; arrays with feature names become tables."""
        X, n = batch.X, batch.X.shape[0]
        if batch.names is not None and isinstance(X, np.ndarray):
            X = RawTable([str(name) for name in batch.names], X, {})
        qid = None if batch.qid is None else label_array("qid", batch.qid)
        if qid is not None:
            check_length("qid", qid, n)
        weight = batch.sample_weight
        weight = None if weight is None else check_weights("sample_weight", weight, n)
        return cls(X, check_scores(batch.y, n), qid, weight)

    def take(self, rows: Array) -> TableRows:
        """Select rows."""
        X = take_rows(self.X, rows)
        return TableRows(X, *(None if part is None else part[rows] for part in self[1:]))

    @staticmethod
    def joined(parts: list[TableRows]) -> TableRows:
        """Concatenate rows."""
        X: Any = [part.X for part in parts]
        if isinstance(X[0], RawTable):
            X = RawTable.concatenate(X)
        elif hasattr(X[0], "columns"):
            X = nw.concat([nw.from_native(one, eager_only=True) for one in X]).to_native()
        else:
            X = stacked(X)
        columns = list(zip(*(part[1:] for part in parts), strict=True))
        if any(len({part is None for part in column}) > 1 for column in columns):
            raise ValueError("some batches have qid or sample_weight, and others do not")
        return TableRows(X, *(None if c[0] is None else np.concatenate(c) for c in columns))


def sample_queries(batches: Any, most: int, rng: np.random.RandomState) -> TableRows:
    """Draw whole queries, of about ``most`` rows together; without queries, rows.

    Each query has a random number, and those with the smallest numbers are kept.
    """
    kept: list[tuple[TableRows, Array]] = []  # rows and their random numbers
    limit, last = np.inf, (object(), 0.0)

    def smallest() -> tuple[float, list[tuple[TableRows, Array]]]:
        numbers = np.sort(np.concatenate([drawn for _, drawn in kept]))
        limit = float(numbers[most]) if len(numbers) > most else np.inf
        some = ((rows, drawn, np.flatnonzero(drawn < limit)) for rows, drawn in kept)
        return limit, [(rows.take(few), drawn[few]) for rows, drawn, few in some if len(few)]

    for batch in read_batches(batches):
        with named_batch(batch.number):
            rows = TableRows.of_batch(batch)
            names = np.arange(len(rows.y)) if rows.qid is None else rows.qid
            labels, codes = np.unique(names, return_inverse=True)
            drawn = rng.random_sample(len(labels))
            if rows.qid is not None:
                drawn[labels == last[0]] = last[1]  # the last query of the batch before goes on
                last = (names[-1], drawn[codes[-1]])
            few = np.flatnonzero(drawn[codes] < limit)
            if len(few):
                kept.append((rows.take(few), drawn[codes][few]))
        if sum(len(drawn) for _, drawn in kept) > 2 * most:
            limit, kept = smallest()
    if not kept:
        raise ValueError("there is no batch with rows to learn from")
    return TableRows.joined([rows for rows, _ in smallest()[1]])


def whole_queries(batches: Any, encode: Callable[[Any], Any]) -> Iterator[TableRows]:
    """Generate encoded rows of whole queries; the last query of a batch may go on in the next."""
    rest: list[TableRows] = []
    for batch in read_batches(batches):
        with named_batch(batch.number):
            rows = TableRows.of_batch(batch)
            rows = TableRows.joined([*rest, rows._replace(X=encode(rows.X))])
        rest = []
        if rows.qid is not None:
            last = rows.qid == rows.qid[-1]
            rest, rows = [rows.take(np.flatnonzero(last))], rows.take(np.flatnonzero(~last))
        if len(rows.y):
            yield rows
    yield from rest
