"""Levels of equal score, and how much every query, level and row counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.groups import sums

__all__ = ["Levels", "Weighing"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Levels:
    """Rows of equal score in the same query, numbered by (query, score).

    Attributes
    ----------
    codes : ndarray of shape (m,)
    score, query : ndarray of shape (g,)
    """

    codes: Array
    score: Array
    query: Array

    @classmethod
    def of(cls, s: Array, query: Array) -> Levels:
        """Find the levels of scores ``s`` in queries ``query``, both of shape (m,)."""
        order = np.lexsort((s, query))
        sorted_s, sorted_q = s[order], query[order]
        new = np.empty(len(s), dtype=bool)
        new[:1] = True
        new[1:] = (sorted_s[1:] != sorted_s[:-1]) | (sorted_q[1:] != sorted_q[:-1])
        codes = np.empty(len(s), dtype=np.int64)
        codes[order] = np.cumsum(new) - 1
        return cls(codes, sorted_s[new], sorted_q[new])

    def __len__(self) -> int:
        return len(self.score)


class Weighing:
    """Counts and weights of queries and levels, and the query weighting c.

    Everything follows from totals over groups of rows, wherever the rows are. The groups are
    levels where tied pairs are dropped, and whole queries where they are kept.

    Parameters
    ----------
    how : {"pair", "size", "query"}
        The query weighting.
    query : ndarray of shape (g,)
        Query of every group.
    n_queries : int
    n, Omega : ndarray of shape (g,)
        Number of rows with ω > 0, and Σω.
    squares : ndarray of shape (g,), or None
        Σω² where tied pairs are kept; None where they are dropped.
    log_omega : ndarray of shape (g,), or None
        Σ log ω over the rows with ω > 0; None if all ω = 1.

    Attributes
    ----------
    n_q, N : ndarray of shape (n_queries,)
        Rows with ω > 0 of every query, and their weight.
    n_a, Omega : ndarray of shape (g,)
        The same of every group.
    edges, edge_weight, c : ndarray of shape (n_queries,)
        Number of edges, Σ_edges ω_i ω_j, and the factor of the query's edges; c = 0 without an
        edge.
    """

    def __init__(
        self,
        how: str,
        query: Array,
        n_queries: int,
        n: Array,
        Omega: Array,
        squares: Array | None,
        log_omega: Array | None,
    ) -> None:
        self.query, self.n_a, self.Omega = query, n, Omega
        self.kept = squares is not None
        self.log_omega = log_omega
        self.n_q = sums(query, n, n_queries)
        self.N = sums(query, Omega, n_queries)
        # Edges: all pairs less the pairs inside a level, or less the rows themselves.
        inside = sums(query, n if squares is not None else n**2, n_queries)
        inside_w = sums(query, Omega**2 if squares is None else squares, n_queries)
        self.edges = (self.n_q**2 - inside) / 2
        self.edge_weight = np.where(self.edges > 0, (self.N**2 - inside_w) / 2, 0.0)
        divisor = {"pair": np.ones(n_queries), "size": self.N, "query": self.edge_weight}[how]
        self.c = np.divide(1.0, divisor, out=np.zeros(n_queries), where=self.edges > 0)

    @classmethod
    def of_rows(
        cls, how: str, query: Array, n_queries: int, weight: Array | None, levels: Levels | None
    ) -> Weighing:
        """Count rows: by level, or by query if ``levels`` is None."""
        codes, size = (query, n_queries) if levels is None else (levels.codes, len(levels))
        squares = log_omega = None
        if weight is None:
            n = Omega = sums(codes, None, size)
            squares = n if levels is None else None
        else:
            positive = weight > 0
            n = sums(codes, positive.astype(float), size)
            Omega = sums(codes, weight, size)
            squares = sums(codes, weight**2, size) if levels is None else None
            log_omega = sums(codes[positive], np.log(weight[positive]), size)
        group_query = np.arange(n_queries) if levels is None else levels.query
        return cls(how, group_query, n_queries, n, Omega, squares, log_omega)

    @property
    def n_pairs(self) -> int:
        """Number of edges of all queries, an exact integer."""
        inside = int(self.n_a.sum()) if self.kept else _sum_of_squares(self.n_a)
        return (_sum_of_squares(self.n_q) - inside) // 2

    @property
    def log_weight(self) -> float:
        """Σ_edges log(c ω_i ω_j)."""
        used = self.edges > 0
        total = float(self.edges[used] @ np.log(self.c[used]))
        if self.log_omega is not None:
            partners = self.n_q[self.query] - (1.0 if self.kept else self.n_a)
            total += float(partners @ self.log_omega)
        return total

    @cached_property
    def energy(self) -> Array:
        """Σ_edges w² z² where z² w² = c ω_i ω_j on every edge (`unit` and `relative`)."""
        return np.array([self.c @ self.edge_weight])


def _sum_of_squares(n: Array) -> int:
    """Σ n² of whole numbers, exact beyond 2⁵³ and 2⁶³."""
    whole = n.astype(np.int64)
    if float(n @ n) < 2.0**62:
        return int(whole @ whole)
    return sum(int(size) ** 2 for size in whole)
