"""Scored rows, sorted for counting: levels, weights, and how much a query's pairs count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScoredRows"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ScoredRows:
    """The rows of one output that have an edge, sorted by (query, score).

    The edge between two rows i, j of query q weighs scale_q u_i u_j, with u the row weights
    divided by their sum over the query, or 1 without weights.

    Attributes
    ----------
    order : ndarray of shape (k,), int
        Row numbers.
    level : ndarray of shape (k,), int
        Number of the score among the different scores of the query.
    below : ndarray of shape (k,), int
        How many rows of the query have a lower score.
    starts : ndarray of shape (n_queries,), int
        First of every query.
    weight : ndarray of shape (k,) or None
        u.
    scale : ndarray of shape (n_queries,)
    """

    order: Array
    level: Array
    below: Array
    starts: Array
    weight: Array | None
    scale: Array

    @classmethod
    def of(cls, s: Array, query: Array, weight: Array | None, query_weighting: str) -> ScoredRows:
        """Sort scores s, all arrays of shape (m,); rows without weight or an edge are left out."""
        order = np.lexsort((s, query))
        if weight is not None:
            order = order[weight[order] > 0]
        level, below, starts = _levels(s[order], query[order])
        # The last row of a query has the highest level.
        top = np.append(starts[1:], len(order)) - 1
        with_edge = np.repeat(level[top] > 0, np.diff(starts, append=len(order)))
        order = order[with_edge]
        level, below, starts = _levels(s[order], query[order])
        sizes = np.diff(starts, append=len(order))
        u = None
        # scale_q = c_q (Σω)² with c = 1, 1/Σω or 1/Σ_edges ω_i ω_j.
        if weight is None:
            edges = np.add.reduceat(below, starts).astype(np.float64)
            scale = {"pair": np.ones(len(starts)), "size": 1.0 / sizes, "query": 1.0 / edges}
        else:
            N = np.add.reduceat(weight[order], starts)
            u = weight[order] / np.repeat(N, sizes)
            mass = np.concatenate([[0.0], np.cumsum(u)])
            first = np.repeat(starts, sizes)
            edges = np.add.reduceat(u * (mass[first + below] - mass[first]), starts)
            scale = {"pair": N**2, "size": N, "query": 1.0 / edges}
        return cls(order, level, below, starts, u, scale[query_weighting])

    @property
    def n_pairs(self) -> int:
        """Number of edges."""
        return int(self.below.sum(dtype=np.int64))

    @property
    def total_weight(self) -> float:
        """Σ_edges of their weights."""
        if self.weight is None:
            return float(self.row_scale @ self.below)
        mass = np.concatenate([[0.0], np.cumsum(self.weight)])
        first = np.repeat(self.starts, self.sizes)
        return float(self.row_scale @ (mass[first + self.below] - mass[first]))

    @cached_property
    def sizes(self) -> Array:
        """Rows of every query."""
        return np.diff(self.starts, append=len(self.order))

    @cached_property
    def row_scale(self) -> Array:
        """scale_q u_i, shape (k,)."""
        scale = np.repeat(self.scale, self.sizes)
        return scale if self.weight is None else scale * self.weight

    def centred(self, f: Array) -> Array:
        """f less its mean over the query, shape (k,)."""
        means = np.add.reduceat(f, self.starts) / self.sizes
        return f - np.repeat(means, self.sizes)

    def edges(self) -> tuple[Array, Array]:
        """All edges as positions (upper, lower) in the sorted rows, each of shape (n_pairs,)."""
        upper = np.repeat(np.arange(len(self.order)), self.below)
        first = np.cumsum(self.below) - self.below
        start = np.repeat(self.starts, self.sizes)
        return upper, np.arange(len(upper)) - np.repeat(first - start, self.below)

    def edge_weight(self, upper: Array, lower: Array) -> Array:
        """Weights of edges that `edges` or a part of it gives."""
        return self.row_scale[upper] * (1.0 if self.weight is None else self.weight[lower])


def _levels(s: Array, query: Array) -> tuple[Array, Array, Array]:
    """Levels, rows below, and starts of the queries, of sorted rows."""
    new_query = np.ones(len(s), dtype=bool)
    new_query[1:] = query[1:] != query[:-1]
    new = new_query.copy()
    new[1:] |= s[1:] != s[:-1]
    starts = np.flatnonzero(new_query)
    sizes = np.diff(starts, append=len(s))
    number = np.cumsum(new) - 1
    level = number - np.repeat(number[starts], sizes)
    below = np.flatnonzero(new)[number] - np.repeat(starts, sizes)
    return level, below, starts
