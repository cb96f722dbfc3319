"""Rows of each query sorted by score, with the groups of tied scores.

Where scores tie, the order of the rows is arbitrary. The list metrics return the expected value
over all orders of the tied rows, which they compute from the tie groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.metrics._counting import sorted_levels

__all__ = ["RankedLists", "rank_lists"]

Array = NDArray[Any]


@dataclass(frozen=True)
class RankedLists:
    """Rows sorted by (query, descending score), cut into groups of equal (query, score).

    Attributes
    ----------
    order : ndarray of shape (n_rows,), int
        Row numbers in sorted order; within a group in no particular order.
    rank : ndarray of shape (n_rows,), int
        Place in the query of every sorted row, from 1.
    group : ndarray of shape (n_rows,), int
        Number of the group of every sorted row.
    first_row : ndarray of shape (n_groups,), int
        First sorted row of every group.
    size : ndarray of shape (n_groups,), int
        Number of rows of every group.
    first_group : ndarray of shape (n_queries,), int
        First group of every query; no query is empty.
    query_size : ndarray of shape (n_queries,), int
        Number of rows of every query.
    places : ndarray of shape (n_queries,), int
        Number of places of each query that count: the retrieved rows, up to the cut-off.
    """

    order: Array
    rank: Array
    group: Array
    first_row: Array
    size: Array
    first_group: Array
    query_size: Array
    places: Array

    def sum_groups(self, values: Array) -> Array:
        """Sum ``values`` of sorted rows, shape (n_rows,), over groups."""
        if len(self.size) == len(self.rank):
            return values
        return np.add.reduceat(values, self.first_row)

    def sum_queries(self, values: Array) -> Array:
        """Sum ``values`` of groups, shape (n_groups,), over queries."""
        return np.add.reduceat(values, self.first_group)

    def at_places(self, values: Array) -> Array:
        """Set ``values`` of sorted rows beyond the places that count to zero."""
        if self.places is not self.query_size:
            values[self.rank > np.repeat(self.places, self.query_size)] = 0.0
        return values

    @property
    def inside(self) -> Array:
        """Number of places of each group that count, shape (n_groups,)."""
        if self.places is self.query_size:
            return self.size
        n_groups = np.diff(self.first_group, append=len(self.size))
        return np.clip(np.repeat(self.places, n_groups) - self.before, 0, self.size)

    @property
    def before(self) -> Array:
        """Number of rows ranked above each group in its query, shape (n_groups,)."""
        return self.rank[self.first_row] - 1

    def sum_before(self, values: Array) -> Array:
        """Sum integer ``values`` of the groups above each group in its query."""
        above = np.cumsum(values) - values
        return above - np.repeat(
            above[self.first_group], np.diff(self.first_group, append=len(self.size))
        )


def rank_lists(
    score: Array,
    codes: Array,
    n_queries: int,
    k: int | None = None,
    retrieved: Array | None = None,
) -> RankedLists:
    """Sort the rows of every query by descending score.

    Parameters
    ----------
    score : ndarray of shape (n_rows,)
        Finite scores, higher = earlier.
    codes : ndarray of shape (n_rows,), int
        Query number of every row; each of ``range(n_queries)`` occurs.
    n_queries : int
        Number of queries.
    k : int, optional
        Cut-off. If None, all places count.
    retrieved : ndarray of shape (n_rows,), bool, optional
        Rows that are in a list; the others have lower scores. If None, all rows are.

    Returns
    -------
    RankedLists
    """
    order, group = sorted_levels(-score, codes, n_queries)
    query_size = np.bincount(codes, minlength=n_queries)
    starts = np.cumsum(query_size) - query_size
    rank = np.arange(1, len(score) + 1) - np.repeat(starts, query_size)
    first_row = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff(first_row, append=len(score))
    places = query_size
    if retrieved is not None:
        places = np.bincount(codes[retrieved], minlength=n_queries)
    if k is not None:
        places = np.minimum(places, k)
    return RankedLists(order, rank, group, first_row, size, group[starts], query_size, places)
