"""Counts of the preferences in each part of a data set, from which the whole is assembled.

See `_parts.py` for the method. This module does not use features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import encode_qid
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import shared_levels
from rankrls.core.preferences.query_weights import Groups, Levels, sums

__all__ = ["Census", "Counts", "Crossing", "by_score", "fragment_rows", "preferred_alike", "scored"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Census:
    """Rows and queries of one part.

    Attributes
    ----------
    n_rows, n_weighted : int
        Number of rows, and number of rows with positive weight.
    labels : ndarray or list of length g
        Queries of the part, in the order of their codes.
    alike : ndarray of shape (k,), int
        For every output, the first output with the same preferences in this part.
    sizes : ndarray of shape (g,), int
        Number of rows of each query in this part.
    varies : ndarray of shape (g, k), bool
        Whether an output prefers some row of a query to another, among the rows of this part.
    """

    n_rows: int
    n_weighted: int
    labels: Any
    alike: Array
    sizes: Array
    varies: Array

    @classmethod
    def of(cls, graph: PreferenceGraph, *, cost: str, ties: str) -> Census:
        """Count the rows and queries of one part, given as a graph of scores."""
        s, query, weight = scored(graph)
        alike = np.zeros(s.shape[1], dtype=np.int64)
        if s.shape[1] > 1 and by_score(cost, ties):
            alike = preferred_alike(s, query, cost)
        n_weighted = len(s) if weight is None else np.count_nonzero(weight)
        labels = graph.query_labels
        sizes = np.bincount(query, minlength=len(labels))
        return cls(len(s), int(n_weighted), labels, alike, sizes, graph.varying_queries())


class Crossing:
    """Queries that cross part boundaries.

    Parameters
    ----------
    censuses : sequence of Census, one for each part
    with_qid : bool
        Whether the parts have query ids; otherwise all rows form one ranking.

    Attributes
    ----------
    n_queries : int
        Number of distinct queries in all parts.
    labels : ndarray or list of length n_queries
    sizes : ndarray of shape (n_queries,), int
        Number of rows of each query in all parts.
    n_crossing : int
    numbers : list of ndarray
        For every part, the index of each of its queries among the crossing queries, or −1.
    codes : list of ndarray
        For every part, the index of each of its queries among all queries.
    """

    def __init__(self, censuses: Sequence[Census], *, with_qid: bool) -> None:
        sizes = [len(census.labels) for census in censuses]
        labels = _join([c.labels for c in censuses]) if with_qid else None
        queries = encode_qid(labels, sum(sizes))
        codes = queries.codes
        places = np.bincount(codes)
        rows = np.concatenate([census.sizes for census in censuses])
        self.labels, self.sizes = queries.labels, sums(codes, rows, len(queries)).astype(np.int64)
        crosses = places > 1
        number = np.where(crosses, np.cumsum(crosses) - 1, -1)
        self.n_queries = len(places)
        self.n_crossing = int(crosses.sum())
        borders = np.cumsum(sizes)[:-1]
        self.numbers = np.split(number[codes], borders)
        self.codes = np.split(codes, borders)


@dataclass(frozen=True)
class Counts:
    """Counts of the crossing queries of one part, without rows of zero weight.

    An entry is a query, or a distinct (query, scores) combination if tied pairs are dropped.

    Attributes
    ----------
    query : ndarray of shape (e,), int, ascending
        Index among the crossing queries.
    scores : ndarray of shape (e, k)
        The scores, or their mean if an entry is a query.
    example : ndarray of shape (e, k)
        The scores of one of the rows.
    n, Omega, squares, log_omega : ndarray of shape (e,)
        Number of rows, Σω, Σω², Σ log ω.
    """

    query: Array
    scores: Array
    example: Array
    n: Array
    Omega: Array
    squares: Array
    log_omega: Array

    @classmethod
    def of(cls, graph: PreferenceGraph, numbers: Array, *, cost: str, ties: str) -> Counts:
        """Count one part; ``numbers`` are the indices from `Crossing` for its queries."""
        rows = fragment_rows(graph, numbers)
        s, query, weight = scored(graph)
        s, number = s[rows], numbers[query[rows]]
        omega = np.ones(len(rows)) if weight is None else weight[rows]
        codes = np.unique(number, return_inverse=True)[1]
        if by_score(cost, ties):
            for column in s.T:  # refine the entries by one output at a time
                codes = Levels.of(column, codes).codes
        e = int(codes.max(initial=-1)) + 1
        example, entry_query = np.empty((e, s.shape[1])), np.empty(e, dtype=np.int64)
        example[codes], entry_query[codes] = s, number
        return cls(
            entry_query,
            example if by_score(cost, ties) else Groups(codes, omega, e).mean(s),
            example,
            sums(codes, None, e),
            sums(codes, omega, e),
            sums(codes, omega**2, e),
            sums(codes, np.log(omega), e),
        )

    @classmethod
    def none(cls, n_outputs: int) -> Counts:
        """Return the counts of a part without crossing queries."""
        scores, values = np.empty((0, n_outputs)), np.empty(0)
        query = np.empty(0, dtype=np.int64)
        return cls(query, scores, scores, values, values, values, values)

    @classmethod
    def join(cls, counts: Sequence[Counts]) -> Counts:
        """Concatenate the entries of all parts."""
        columns = (
            np.concatenate([getattr(c, name) for c in counts]) for name in cls.__annotations__
        )
        return cls(*columns)


def by_score(cost: str, ties: str) -> bool:
    """Return whether entries are split by score; not needed if all pairs of a query count alike."""
    return not Loss(cost, ties).keeps_ties


def fragment_rows(graph: PreferenceGraph, numbers: Array) -> Array:
    """Return the rows of a part that have weight and belong to a crossing query."""
    _, query, weight = scored(graph)
    crosses = numbers[query] >= 0
    return np.flatnonzero(crosses if weight is None else crosses & (weight > 0))


def scored(graph: PreferenceGraph) -> tuple[Array, Array, Array | None]:
    if graph.scores is None or graph.query_codes is None or graph.n_given_pairs:
        raise ValueError("only preferences that come from scores can be cut into parts")
    return graph.scores, graph.query_codes, graph.sample_weight


def preferred_alike(s: Array, query: Array, cost: str) -> Array:
    alike = np.zeros(s.shape[1], dtype=np.int64)
    for _, outputs in shared_levels(s, query, Loss(cost)):
        alike[outputs] = outputs[0]
    return alike


def _join(labels: Sequence[Any]) -> Array:
    """Return all labels in one array that preserves types, which `encode_qid` compares."""
    labels = [part for part in labels if len(part)]
    kinds = {part.dtype.kind if isinstance(part, np.ndarray) else "O" for part in labels}
    if len(kinds) == 1 and kinds != {"O"}:
        return np.concatenate(labels)
    joined = np.empty(sum(len(part) for part in labels), dtype=object)
    joined[:] = [
        label
        for part in labels
        for label in (part.tolist() if isinstance(part, np.ndarray) else part)
    ]
    return joined
