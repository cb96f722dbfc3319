"""Exact counts of concordant, discordant and tied pairs, for all queries at once.

Arrays are already checked. There is no loop over queries or rows, only over blocks that fit into
the cache. The cost is O(n log m) for n rows and a largest query of m rows: a few sorts, and one
pass for each *bit* of the number of distinct labels or scores, whichever is smaller.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._sorting import argsort_within, stable_argsort

__all__ = ["PairCounts", "count_pairs", "sorted_levels"]

Array = NDArray[Any]

#: Number of rows, of whole queries, that are counted together.
BLOCK = 2**15

#: Fewer rows than this are sorted by NumPy alone.
FEW = 300

#: Part of the squared weight of a query below which its pairs have less than six right digits.
LOST = 1e-9


class PairCounts(NamedTuple):
    """Numbers (int64) or total weights (float64) of pairs, arrays of shape (n_queries,)."""

    comparable: Array  # with different labels
    discordant: Array  # of these, in the wrong order
    tied: Array  # of these, with equal scores


def count_pairs(
    y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None = None
) -> PairCounts:
    """Count the comparable, discordant and tied pairs of each query.

    ``codes`` are query numbers in any order; a query may be empty. With non-negative row weights ω,
    a pair (i, j) counts ω_i ω_j.
    """
    if len(y) <= BLOCK or n_queries == 1:
        return PairCounts(*_count(y, score, codes, n_queries, weight))
    if (codes[1:] < codes[:-1]).any():
        order = stable_argsort(codes, n_queries)
        y, score, codes = y[order], score[order], codes[order]
        weight = None if weight is None else weight[order]
    sizes = np.bincount(codes, minlength=n_queries)
    block = (np.cumsum(sizes) - sizes) // BLOCK  # a query belongs to the block where it begins
    queries = np.searchsorted(block, np.arange(int(block[-1]) + 2))
    rows = np.append(0, np.cumsum(sizes))[queries]
    result = np.zeros((3, n_queries), dtype=np.int64 if weight is None else np.float64)
    for (q, q_end), (i, i_end) in zip(pairwise(queries.tolist()), pairwise(rows), strict=True):
        part = slice(i, i_end)
        own = None if weight is None else weight[part]
        result[:, q:q_end] = _count(y[part], score[part], codes[part] - q, q_end - q, own)
    return PairCounts(*result)


def _count(y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None) -> Array:
    """Comparable, discordant and tied pairs of some queries, shape (3, n_queries).

    With the rows of a query in ascending order of (score, y), a discordant pair is an inversion
    of y. With weights, rows of weight zero are dropped, and every query has total weight one.
    """
    scale: Array = np.ones(n_queries)
    if weight is not None:
        keep = weight > 0
        if not keep.all():
            y, score, codes, weight = y[keep], score[keep], codes[keep], weight[keep]
        scale = np.bincount(codes, weights=weight, minlength=n_queries)
        weight = weight / scale[codes]
    result = np.zeros((3, n_queries), dtype=np.int64 if weight is None else np.float64)
    if not len(y):
        return result
    sizes = np.bincount(codes, minlength=n_queries)
    filled = np.flatnonzero(sizes)
    sizes = sizes[filled]
    starts = np.cumsum(sizes) - sizes

    # Rows by (query, score), then the places of these rows by (query, y).
    order, outer = sorted_levels(score, codes, n_queries)
    place, inner = sorted_levels(y[order], codes if n_queries == 1 else codes[order], n_queries)
    target = inner if n_queries == 1 else inner - np.repeat(inner[starts], sizes)
    target = target.astype(np.min_scalar_type(int(target.max())))
    rank = np.empty_like(target)
    rank[place] = target
    rank, weight = _break_ties(outer, rank, None if weight is None else weight[order])
    result[1, filled] = _inversions(rank, target, starts, weight)

    # Cells of rows with equal (query, score, y), and for each cell the query and both levels.
    first = np.flatnonzero(
        np.concatenate([[True], (outer[1:] != outer[:-1]) | (rank[1:] != rank[:-1])])
    )
    cell = np.diff(first, append=len(rank)) if weight is None else np.add.reduceat(weight, first)
    cells = np.searchsorted(first, starts)
    query = np.repeat(np.arange(len(cells)), np.diff(cells, append=len(first)))
    of_score, of_y, of_query = (
        np.bincount(level, weights=cell).astype(cell.dtype, copy=False)[level]
        for level in (outer[first], rank[first] + inner[starts][query], query)
    )
    # comparable = Σ_cells T (W − Y) / 2, tied = Σ_cells T (S − T) / 2
    result[0, filled] = np.add.reduceat(cell * (of_query - of_y), cells)
    result[2, filled] = np.add.reduceat(cell * (of_score - cell), cells)
    if weight is None:
        result[::2] = result[::2] // 2
        return result
    result[::2] = np.maximum(result[::2], 0.0) / 2
    if ((inner[starts + sizes - 1] > inner[starts]) & (result[0, filled] < LOST)).any():
        warn(
            "the weights of the rows of a query differ by so many orders of magnitude that its "
            "error has few right digits: clip sample_weight, or leave out rows of little weight"
        )
    return result * scale**2


def sorted_levels(values: Array, codes: Array, n_queries: int) -> tuple[Array, Array]:
    """Order of the rows by (query, value), and the index of the distinct (query, value) of each."""
    few = len(values) < FEW
    order = np.lexsort((values, codes)) if few else argsort_within(values, codes, n_queries)
    values = values[order]
    change = values[1:] != values[:-1]
    if n_queries > 1:
        codes = codes[order]
        change |= codes[1:] != codes[:-1]
    level = np.zeros(len(values), dtype=np.int64)
    np.cumsum(change, out=level[1:])
    return order, level


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


def _inversions(rank: Array, target: Array, starts: Array, weight: Array | None) -> Array:
    """Number or weight ω_i ω_j of i < j with ``rank[i] > rank[j]`` inside every segment.

    ``target`` is ``rank`` with every segment in ascending order; ``starts`` the first rows of the
    segments, of which none is empty. A radix sort from the highest bit: the pass for a bit moves
    the zeros of every block of equal higher bits, in their order, before its ones. A zero moves
    left by the number of ones that precede it in its block: the inversions that this bit decides.
    Blocks keep their places, so the j-th zero of the array goes to the j-th place where ``target``
    has a zero. Hence with b the bit at place i and t that of ``target``

        inversions = Σ_bits Σ_i i · (t_i − b_i).

    With weights, the total weight of the rows before i replaces i; the move of a zero that keeps
    its place is set to zero rather than to the rounding of two sums.
    """
    bits = (1 << np.arange(int(target.max()).bit_length())[::-1]).astype(target.dtype)
    total: Array = np.zeros(len(rank), dtype=np.int8 if weight is None else np.float64)
    before: Any = None if weight is None else np.cumsum(weight) - weight
    for bit in bits:
        one, slot = (rank & bit) != 0, (target & bit) != 0
        if weight is None:
            total += slot
            total -= one
            if bit == 1:
                break
        moved = np.empty_like(rank)
        from_1, to_1 = one.nonzero()[0], slot.nonzero()[0]
        from_0, to_0 = (~one).nonzero()[0], (~slot).nonzero()[0]
        moved[to_1], moved[to_0] = rank[from_1], rank[from_0]
        rank = moved
        if weight is not None:
            moved_weight = np.empty_like(weight)
            moved_weight[to_1], moved_weight[to_0] = weight[from_1], weight[from_0]
            moved_before = np.cumsum(moved_weight) - moved_weight
            ahead = (before[from_0] - moved_before[to_0]) * (from_0 != to_0)
            total[to_0] += moved_weight[to_0] * ahead
            weight, before = moved_weight, moved_before
    if weight is None:
        return np.add.reduceat(np.arange(len(rank)) * total, starts)
    return np.maximum(np.add.reduceat(total, starts), 0.0)
