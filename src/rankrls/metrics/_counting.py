"""Exact counts of concordant, discordant and tied pairs, for all queries at once.

Arrays are already checked. There is no loop over queries or rows, only over blocks that fit into
the cache. The cost is O(n log m) for n rows and a largest query of m rows: a few sorts, and one
pass for each *bit* of the number of distinct labels or scores, whichever is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._sorting import argsort_within, distribute, value_parts

__all__ = ["PairCounts", "count_inversions", "count_pairs", "sorted_levels"]

Array = NDArray[Any]

#: Number of rows, of whole queries, that are counted together.
BLOCK = 2**15

#: A query with more rows than this is divided into parts,
LARGE = 2**17

#: of about so many rows each,
PART = 2**14

#: but of no more than about so many parts (each with each of them is a number).
MAX_PARTS = 2**11


#: Fewer rows than this are sorted by NumPy alone.
FEW = 300


@dataclass(frozen=True)
class PairCounts:
    """Counts of the comparable pairs (same query, different labels) of each query.

    Attributes
    ----------
    comparable, discordant, tied : ndarray of shape (n_queries,)
        Number (int64) or total weight (float64) of all comparable pairs, of those predicted in the
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
    """Count the concordant, discordant and tied pairs of each query.

    Parameters
    ----------
    y, score : ndarray of shape (n_rows,)
        Finite labels and predictions. Except for ``tied``, the counts are symmetric in the two.
    codes : ndarray of shape (n_rows,), int
        Query number of each row, in ``range(n_queries)``, in any order.
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
    sizes = np.bincount(codes, minlength=n_queries)
    # A query belongs to the block in which it begins.
    block = (np.cumsum(sizes) - sizes) // BLOCK
    n_blocks = int(block[-1]) + 1
    if (codes[1:] < codes[:-1]).any():
        arrays = (y, score, codes) if weight is None else (y, score, codes, weight)
        part = block.astype(np.min_scalar_type(n_blocks))[codes]
        _, (y, score, codes, *weights) = distribute(part, n_blocks, *arrays)
        weight = weights[0] if weights else None
    queries = np.searchsorted(block, np.arange(n_blocks + 1))
    rows = np.append(0, np.cumsum(sizes))[queries]
    result = np.zeros((3, n_queries), dtype=np.int64 if weight is None else np.float64)
    for (q, q_end), (i, i_end) in zip(pairwise(queries.tolist()), pairwise(rows), strict=True):
        own = None if weight is None else weight[i:i_end]
        counts = _count_block(y[i:i_end], score[i:i_end], codes[i:i_end] - q, q_end - q, own)
        result[:, q:q_end] = counts
    return PairCounts(*result)


def _count_block(
    y: Array, score: Array, codes: Array, n_queries: int, weight: Array | None
) -> Array:
    """Comparable, discordant and tied pairs of some queries, shape (3, n_queries).

    With weights, rows of weight zero are dropped, and every query is scaled to total weight one.
    """
    totals: Array = np.ones(n_queries)
    if weight is not None:
        keep = weight > 0
        if not keep.all():
            y, score, codes, weight = y[keep], score[keep], codes[keep], weight[keep]
        totals = np.bincount(codes, weights=weight, minlength=n_queries)
        weight = weight / (totals[codes] if n_queries > 1 else totals)
    if not len(y):
        result = np.zeros((3, n_queries), dtype=np.int64)
    elif n_queries > 1:
        result = _count(y, score, codes, n_queries, weight)
    elif len(y) > LARGE:
        result = _count_parts(y, score, weight)
    else:
        result = _count(y, score, None, 1, weight)
    return result if weight is None else result * totals**2


def _count_parts(y: Array, score: Array, weight: Array | None) -> Array:
    """Comparable, discordant and tied pairs of one large query, shape (3, 1).

    The ranges of the scores and of the labels are divided into parts, with equal values in the
    same part. A pair is

    - in the same part of the scores: counted there;
    - in different parts of the scores and the same part of the labels: counted there, with the
      number of the part in place of the score;
    - in different parts of both: N_ac N_bd of them, with N_ac the rows in part a of the scores
      and c of the labels, are in the wrong order if a < b and c > d.
    """
    size = max(PART, len(y) // MAX_PARTS)
    (a, n_a), (c, n_c) = value_parts(score, size), value_parts(y, size)
    weights = () if weight is None else (weight,)
    comparable = discordant = tied = 0

    bounds, (scores, labels, *rest) = distribute(a, n_a, score, y, *weights)
    for rows in map(slice, bounds[:-1], bounds[1:]):
        counts = _count_part(labels[rows], scores[rows], rest[0][rows] if rest else None)
        discordant, tied = discordant + counts[1], tied + counts[2]
    del scores

    bounds, (labels, parts, *rest) = distribute(c, n_c, y, a, *weights)
    for rows in map(slice, bounds[:-1], bounds[1:]):
        counts = _count_part(labels[rows], parts[rows], rest[0][rows] if rest else None)
        comparable, discordant = comparable + counts[0], discordant + counts[1]
    del labels, parts, rest

    N = _joint_counts(a, n_a, c, n_c, weight)
    # Number of rows in lower parts of the scores and higher parts of the labels than each (b, d).
    ahead = np.zeros_like(N)
    ahead[1:, :-1] = np.cumsum(np.cumsum(N[:, ::-1], axis=1)[:, ::-1], axis=0)[:-1, 1:]
    discordant += (N * ahead).sum()
    by_label = N.sum(axis=0)
    twice = (by_label * (by_label.sum() - by_label)).sum()
    comparable += twice // 2 if weight is None else twice / 2
    return np.array([[comparable], [discordant], [tied]])


def _count_part(y: Array, score: Array, weight: Array | None) -> Array:
    """Comparable, discordant and tied pairs of rows of one query, shape (3,)."""
    if len(y) < 2 or (y == y[0]).all():
        return np.zeros(3, dtype=np.int64)
    if (score == score[0]).all():
        comparable = _pairs_of_levels(y, weight)
        return np.array([comparable, 0, comparable])
    if len(y) > LARGE:  # most of the values are in a small part of their range
        return _count_parts(y, score.astype(np.float64, copy=False), weight)[:, 0]
    return _count(y, score, None, 1, weight)[:, 0]


def _pairs_of_levels(y: Array, weight: Array | None) -> Any:
    """Σ_a Ω_a (Ω − Ω_a) / 2: number or weight of the pairs of different values."""
    if weight is None:
        first = np.flatnonzero(np.diff(np.sort(y), prepend=np.nan))
        level = np.diff(first, append=len(y))
        return int((level * (len(y) - level)).sum()) // 2
    order, level = sorted_levels(y, None, 1)
    of_level = np.bincount(level, weights=weight[order])
    return float(of_level @ (of_level.sum() - of_level)) / 2


def _joint_counts(a: Array, n_a: int, c: Array, n_c: int, weight: Array | None) -> Array:
    """Number or weight of the rows with each (a, c), shape (n_a, n_c)."""
    N = np.zeros(n_a * n_c, dtype=np.int64 if weight is None else np.float64)
    step = max(PART, len(N))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        cells = a[rows].astype(np.int64)
        cells *= n_c
        cells += c[rows]
        own = None if weight is None else weight[rows]
        N += np.bincount(cells, weights=own, minlength=len(N))
    return N.reshape(n_a, n_c)


def _count(
    y: Array, score: Array, codes: Array | None, n_queries: int, weight: Array | None
) -> Array:
    """Count comparable, discordant and tied pairs by query, shape (3, n_queries).

    Parameters
    ----------
    y, score : ndarrays of shape (n_rows,)
    codes : ndarray of shape (n_rows,), int, or None if there is one query
    n_queries : int
    weight : ndarray of shape (n_rows,), > 0, or None
    """
    sizes = np.array([len(y)]) if codes is None else np.bincount(codes, minlength=n_queries)
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]

    # Rows by (query, score), then the places of these rows by (query, y).
    order, score_level = sorted_levels(score, codes, n_queries)
    codes = None if codes is None else codes[order]
    place, y_level = sorted_levels(y[order], codes, n_queries)
    score_rank, y_rank = (_within(level, starts, sizes) for level in (score_level, y_level))

    # The number of inversions is the same if the two variables swap roles: process bit by bit the
    # one with fewer levels.
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
    return result


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
            moved[slot.nonzero()[0]] = rank[one.nonzero()[0]]
            np.logical_not(one, out=one)
            np.logical_not(slot, out=slot)
            moved[slot.nonzero()[0]] = rank[one.nonzero()[0]]
            rank = moved
    return np.add.reduceat(np.arange(len(rank)) * shift, starts)


def _weigh_inversions(rank: Array, target: Array, starts: Array, weight: Array) -> Array:
    """`count_inversions` with pair (i, j) counting ``weight[i] * weight[j]``.

    The total weight of the rows before i replaces i, so a zero moves left by the weight of the
    ones that precede it in its block. A zero that keeps its place is preceded by no ones, and its
    move is set to exactly zero rather than the rounding error of two sums.
    """
    gathered = np.zeros(len(rank))
    before = _cumulate(weight)
    for bit in _bits(target):
        one, slot = (rank & bit) != 0, (target & bit) != 0
        from_1, to_1 = one.nonzero()[0], slot.nonzero()[0]
        from_0, to_0 = (~one).nonzero()[0], (~slot).nonzero()[0]
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


def sorted_levels(values: Array, codes: Array | None, n_queries: int) -> tuple[Array, Array]:
    """Order of the rows by (query, value), and the index of the distinct (query, value) of each.

    Without ``codes``, all rows are one query.
    """
    if values.dtype.kind == "u":  # parts
        order = np.argsort(values, kind="stable")
    elif len(values) < FEW:
        order = np.lexsort((values,) if codes is None else (values, codes))
    else:
        order = argsort_within(values, codes, n_queries)
    values = values[order]
    change = values[1:] != values[:-1]
    if codes is not None:
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
    codes: Array | None,
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
    query = np.zeros(len(first), dtype=np.int64) if codes is None else codes[first]
    # The levels of rank, numbered over all queries.
    inner = rank[first].astype(np.int64)
    n_levels = np.maximum.reduceat(rank, starts).astype(np.int64) + 1
    if codes is not None:
        offset = np.zeros(n_queries, dtype=np.int64)
        offset[codes[starts]] = np.cumsum(n_levels) - n_levels
        inner += offset[query]
    cell = np.diff(first, append=len(rank)) if weight is None else np.add.reduceat(weight, first)

    def total(groups: Array, n_groups: int) -> Array:
        if n_groups == len(cell):  # one cell in each
            return cell
        return np.bincount(groups, weights=cell).astype(cell.dtype, copy=False)[groups]

    by_outer = total(outer[first], int(outer[-1]) + 1)
    by_inner = total(inner, int(n_levels.sum()))
    by_score, by_y = (by_outer, by_inner) if outer_is_score else (by_inner, by_outer)
    cells = np.flatnonzero(np.concatenate([[True], query[1:] != query[:-1]]))
    comparable, tied = np.zeros((2, n_queries), dtype=cell.dtype)
    comparable[query[cells]] = np.add.reduceat(cell * (total(query, len(cells)) - by_y), cells)
    tied[query[cells]] = np.add.reduceat(cell * (by_score - cell), cells)
    if weight is None:
        return comparable // 2, tied // 2
    return comparable / 2, np.maximum(tied, 0.0) / 2
