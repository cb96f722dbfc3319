"""Exact counts of concordant, discordant and tied pairs, for all queries at once.

The engine room of the pairwise metrics. Arrays come in already checked; there is no loop over
queries or rows, only over blocks of them that fit into a cache. The work is a few sorts and one
pass for every *bit* of the smaller of the two numbers of levels, so O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._sorting import stable_argsort

__all__ = ["PairCounts", "count_inversions", "count_pairs", "sorted_levels"]

Array = NDArray[Any]

#: Rows that are counted together; a query is never divided.
BLOCK = 2**17


@dataclass(frozen=True)
class PairCounts:
    """How the comparable pairs (different labels, same query) of every query are predicted.

    Attributes
    ----------
    comparable, discordant, tied : ndarray of shape (n_queries,)
        Number (int64) or total weight (float64) of all such pairs, of those predicted in the
        wrong order, and of those with equal scores.
    """

    comparable: Array
    discordant: Array
    tied: Array

    @property
    def concordant(self) -> Array:
        """Pairs predicted in the right order, shape (n_queries,)."""
        return np.maximum(self.comparable - self.discordant - self.tied, 0)


def count_pairs(
    y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None = None
) -> PairCounts:
    """Count the pairs of every query by how ``score`` orders them.

    Parameters
    ----------
    y, score : ndarray of shape (n_rows,)
        Labels and predictions, finite. The counts are symmetric in the two but for ``tied``.
    codes : ndarray of shape (n_rows,), int
        Query number of every row, in ``range(n_queries)``, in any order.
    n_queries : int
        Number of queries; a query may be empty.
    weight : ndarray of shape (n_rows,), optional
        Non-negative row weights ω; a pair (i, j) then counts ω_i ω_j.

    Returns
    -------
    PairCounts
        Exact integers without ``weight``, float64 with it.

    Notes
    -----
    With the rows of a query in ascending order of (score, y), a discordant pair is an inversion
    of y. With groups of sizes n_a inside N rows, Σ_a n_a (N − n_a) / 2 pairs lie in different
    groups: labels within the query give the comparable pairs, labels within a level of equal
    scores give the tied ones; the rest is concordant.
    """
    if n_queries == 1 or len(y) <= BLOCK:
        return PairCounts(*_count_block(y, score, codes, n_queries, weight))
    if (codes[1:] < codes[:-1]).any():
        order = stable_argsort(codes, n_queries)
        y, score, codes = y[order], score[order], codes[order]
        weight = None if weight is None else weight[order]
    bounds = np.searchsorted(codes, np.arange(n_queries + 1))
    result = np.zeros((3, n_queries), dtype=np.int64 if weight is None else np.float64)
    first = 0
    while first < n_queries:
        fitting = int(np.searchsorted(bounds, bounds[first] + BLOCK, side="right")) - 1
        last = min(max(first + 1, fitting), n_queries)
        rows = slice(bounds[first], bounds[last])
        part = None if weight is None else weight[rows]
        counts = _count_block(y[rows], score[rows], codes[rows] - first, last - first, part)
        result[:, first:last] = counts
        first = last
    return PairCounts(*result)


def count_inversions(rank: Array, target: Array, starts: Array) -> Array:
    """Count i < j with ``rank[i] > rank[j]`` inside every segment.

    Parameters
    ----------
    rank : ndarray of shape (n_rows,), unsigned int
        Any non-negative integers, the segments one after the other.
    target : ndarray of shape (n_rows,), unsigned int
        The same with every segment in ascending order.
    starts : ndarray of shape (n_segments,), int
        First row of every segment; no segment is empty.

    Returns
    -------
    ndarray of shape (n_segments,), int64

    Notes
    -----
    A radix sort from the highest bit: the pass for a bit moves the zeros of every block of equal
    higher bits, in their order, before its ones. A zero moves left by exactly the number of ones
    that precede it in its block, and these are the inversions that this bit decides. Blocks keep
    their places, so the j-th zero of the whole array goes to the j-th place where ``target`` has
    a zero, whatever the blocks. Hence with b the bit at place i and t that of ``target``

        inversions = Σ_bits Σ_i i · (t_i − b_i).
    """
    shift = np.zeros(len(rank), dtype=np.int8)
    for bit in _bits(target):
        one, slot = (rank & bit) != 0, (target & bit) != 0
        shift += slot
        shift -= one
        if bit > 1:
            moved = np.empty_like(rank)
            moved[np.flatnonzero(slot)] = rank[np.flatnonzero(one)]
            np.logical_not(one, out=one)
            np.logical_not(slot, out=slot)
            moved[np.flatnonzero(slot)] = rank[np.flatnonzero(one)]
            rank = moved
    return np.add.reduceat(np.arange(len(rank)) * shift, starts)


def _weigh_inversions(rank: Array, target: Array, starts: Array, weight: Array) -> Array:
    """`count_inversions` with pair (i, j) counting ``weight[i] * weight[j]``.

    In place of i stands the weight of all rows before i, so that a zero moves left by the weight
    of the ones that precede it in its block. A zero that keeps its place has none of them: its
    move is zero, not the rounding error of two sums.
    """
    gathered = np.zeros(len(rank))
    before = _cumulate(weight)
    for bit in _bits(target):
        one, slot = (rank & bit) != 0, (target & bit) != 0
        from_1, to_1 = np.flatnonzero(one), np.flatnonzero(slot)
        from_0, to_0 = np.flatnonzero(~one), np.flatnonzero(~slot)
        moved_rank, moved_weight = np.empty_like(rank), np.empty_like(weight)
        moved_rank[to_1], moved_rank[to_0] = rank[from_1], rank[from_0]
        moved_weight[to_1], moved_weight[to_0] = weight[from_1], weight[from_0]
        moved_before = _cumulate(moved_weight)
        ahead = (before[from_0] - moved_before[to_0]) * (from_0 != to_0)
        gathered[to_0] += moved_weight[to_0] * ahead
        rank, weight, before = moved_rank, moved_weight, moved_before
    return np.maximum(np.add.reduceat(gathered, starts), 0.0)


def _bits(target: Array) -> Array:
    """Powers of two from the highest bit of ``target`` down, in its dtype."""
    n_bits = int(target.max()).bit_length()
    return (1 << np.arange(n_bits)[::-1]).astype(target.dtype)


def _cumulate(weight: Array) -> Array:
    """Weight of the rows before each row."""
    total = np.empty_like(weight)
    total[0] = 0.0
    np.cumsum(weight[:-1], out=total[1:])
    return total


def _count_block(
    y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None
) -> Array:
    """Comparable, discordant and tied pairs of some queries, shape (3, n_queries).

    With weights, rows of weight zero are dropped, and every query is scaled to total weight one.
    """
    if weight is None:
        if not len(y):
            return np.zeros((3, n_queries), dtype=np.int64)
        return np.stack(_count(y, score, codes, n_queries, None))
    keep = weight > 0
    if not keep.all():
        y, score, codes, weight = y[keep], score[keep], codes[keep], weight[keep]
    totals = np.bincount(codes, weights=weight, minlength=n_queries)
    result = np.zeros((3, n_queries))
    if len(y):
        result[:] = _count(y, score, codes, n_queries, weight / totals[codes])
    return result * totals**2


def _count(
    y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None
) -> tuple[Array, Array, Array]:
    """Count comparable, discordant and tied pairs by query, each of shape (n_queries,)."""
    sizes = np.bincount(codes, minlength=n_queries)
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]

    # Rows by (query, score), then the places of these rows by (query, y).
    order, score_level = sorted_levels(score, codes, n_queries)
    codes = codes[order]
    place, y_level = sorted_levels(y[order], codes, n_queries)
    score_rank, y_rank = (_within(level, starts, sizes) for level in (score_level, y_level))

    # Inversions do not care which variable orders the rows and which one is walked bit by bit:
    # walk the one with fewer levels.
    walk_y = int(y_rank.max()) <= int(score_rank.max())
    if walk_y:
        outer, target, rank = score_level, y_rank, np.empty_like(y_rank)
        rank[place] = y_rank
    else:
        outer, target, rank = y_level, score_rank, score_rank[place]
        order = order[place]
    if weight is not None:
        weight = weight[order]
    rank, weight = _break_ties(outer, rank, weight)

    if weight is None:
        inversions = count_inversions(rank, target, starts)
    else:
        inversions = _weigh_inversions(rank, target, starts, weight)
    result = np.zeros((3, n_queries), dtype=inversions.dtype)
    result[1, filled] = inversions
    result[0], result[2] = _pairs_between(
        outer, rank, codes, n_queries, weight, starts=starts, outer_is_score=walk_y
    )
    return result[0], result[1], result[2]


def sorted_levels(values: Array, codes: Array, n_queries: int) -> tuple[Array, Array]:
    """Order of the rows by (query, value), and the number of the distinct (query, value) there."""
    order = np.argsort(values)
    if n_queries > 1:
        order = order[stable_argsort(codes[order], n_queries)]
    values = values[order]
    change = values[1:] != values[:-1]
    if n_queries > 1:
        codes = codes[order]
        change |= codes[1:] != codes[:-1]
    level = np.empty(len(values), dtype=np.int64)
    level[0] = 0
    np.cumsum(change, out=level[1:])
    return order, level


def _within(level: Array, starts: Array, sizes: Array) -> Array:
    """Levels counted from the first level of the query, in the smallest unsigned type."""
    if len(starts) > 1:
        level = level - np.repeat(level[starts], sizes[sizes > 0])
    return level.astype(np.min_scalar_type(int(level.max())))


def _break_ties(outer: Array, rank: Array, weight: Array | None) -> tuple[Array, Array | None]:
    """Sort ``rank`` (and ``weight``) within the runs of equal ``outer``, itself ascending."""
    if outer[-1] == len(outer) - 1:
        return rank, weight
    shift = int(rank.max()).bit_length()
    keys = (outer << shift) | rank
    if weight is not None:
        order = np.argsort(keys)
        return rank[order], weight[order]
    keys.sort()
    keys &= (1 << shift) - 1
    return keys.astype(rank.dtype), None


def _pairs_between(
    outer: Array,
    rank: Array,
    codes: Array,
    n_queries: int,
    weight: Array | None,
    *,
    starts: Array,
    outer_is_score: bool,
) -> tuple[Array, Array]:
    """Count comparable and tied pairs by query, from the cells of equal (query, outer, rank).

    With T the weight of a cell, W that of its query, Y that of the rows of the query with its
    label and S with its score:

        comparable = Σ_cells T (W − Y) / 2,      tied = Σ_cells T (S − T) / 2.
    """
    first = np.flatnonzero(
        np.concatenate([[True], (outer[1:] != outer[:-1]) | (rank[1:] != rank[:-1])])
    )
    # The levels of rank, numbered over all queries.
    query = codes[first]
    inner = rank[first].astype(np.int64)
    if n_queries > 1:
        n_levels = np.maximum.reduceat(rank, starts).astype(np.int64) + 1
        offset = np.zeros(n_queries, dtype=np.int64)
        offset[codes[starts]] = np.cumsum(n_levels) - n_levels
        inner += offset[query]
    cell = np.diff(first, append=len(rank)) if weight is None else np.add.reduceat(weight, first)

    def total(groups: Array) -> Array:
        return np.bincount(groups, weights=cell).astype(cell.dtype, copy=False)[groups]

    by_outer = cell if outer[-1] == len(cell) - 1 else total(outer[first])
    by_inner = total(inner)
    by_score, by_y = (by_outer, by_inner) if outer_is_score else (by_inner, by_outer)
    cells = np.flatnonzero(np.concatenate([[True], query[1:] != query[:-1]]))
    comparable, tied = np.zeros((2, n_queries), dtype=cell.dtype)
    comparable[query[cells]] = np.add.reduceat(cell * (total(query) - by_y), cells)
    tied[query[cells]] = np.add.reduceat(cell * (by_score - cell), cells)
    if weight is None:
        return comparable // 2, tied // 2
    return comparable / 2, np.maximum(tied, 0.0) / 2
