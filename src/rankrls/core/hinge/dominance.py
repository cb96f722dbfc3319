"""Sums over the pairs of rows that violate a margin, in O(m log m), without materialising a pair.

Rows h, j of one query with level_h > level_j violate the margin t if f_h < f_j + t, an expression
that is the same everywhere, so that rounding affects both rows in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._sorting import stable_argsort

__all__ = ["Dominance"]

Array = NDArray[Any]

MAX_INT32 = 2**31


#: Callback for each bit: the number n of zeros (rows :n; the ones are n:), the position arrays
#: before the split, the number of ones before each of these positions, and the carried arrays.
Collect = Callable[[int, list[Array], list[Array], list[Array]], None]


class Dominance:
    """Rows of several queries, sorted by (query, level).

    ``level``, of shape (m,), is the level of each row within its query, from 0, and ``starts``, of
    shape (n_queries,), the first row of every query.

    With the rows of each query sorted by f, the lower rows j that violate a pair with h are at
    positions P_h and later, and the higher rows h that violate a pair with j are before position
    Q_j. From the highest bit of the levels to the lowest, the rows with equal higher bits form a
    block; the bit decides the pairs of a one (h) with a zero (j) of the same block, and they are
    counted by a running sum of the bits, read at P and at Q. Then all zeros are moved before all
    ones, which keeps the order of f within the new blocks, and P and Q are renumbered by the same
    running sum. This is a wavelet tree, traversed by all rows at once, in about twenty passes over
    m values for each bit.
    """

    def __init__(self, level: Array, starts: Array) -> None:
        m = len(level)
        bits = int(level.max(initial=0)).bit_length()
        # The largest value is the sum of a position over all bits.
        self.dtype: Any = np.int32 if (m + 1) * max(bits, 1) < MAX_INT32 else np.int64
        self.bits = [1 << b for b in reversed(range(bits))]
        self.level = level.astype(self.dtype)
        sizes = np.diff(starts, append=m)
        self.n_queries = len(starts)
        self.query = np.repeat(np.arange(self.n_queries), sizes)
        self.start = np.repeat(starts, sizes).astype(self.dtype)
        self.end = np.repeat(starts + sizes, sizes).astype(self.dtype)
        # Pairs are counted from the blocks' ends (h) and starts (j), which do not depend on f.
        self.zeros_to_end, self.ones_to_start = self._read(
            np.arange(m), self.end.copy(), self.start.copy()
        )

    def count(self, f: Array, t: float) -> tuple[Array, Array]:
        """For each row, the numbers of lower and of higher rows that violate a pair with it."""
        # #{j : level_j < level_i, f_i < f_j + t} and #{h : level_h > level_i, f_h < f_i + t}
        zeros, ones = self._read(*self._positions(f, t))
        np.subtract(self.zeros_to_end, zeros, out=zeros)
        np.subtract(ones, self.ones_to_start, out=ones)
        return zeros, ones

    def weigh(self, f: Array, t: float, V: Array) -> tuple[Array, Array]:
        """Sum weights V of shape (k, m) over the rows that `count` counts, exactly 0 if none."""
        k, m = V.shape
        rows, P, Q = self._positions(f, t)
        total = np.zeros(m + 1)

        def collect(n: int, at: list[Array], ones: list[Array], carried: list[Array]) -> None:
            P, E = at[0][n:] - ones[0][n:], at[1][n:] - ones[1][n:]
            Q, S = ones[2][:n], ones[3][:n]
            for i in range(k):
                v, below, above = carried[i], carried[k + i], carried[2 * k + i]
                np.cumsum(v[:n], out=total[1 : n + 1])
                below[n:] += total[E] - total[P]
                np.cumsum(v[n:], out=total[1 : m - n + 1])
                above[:n] += total[Q] - total[S]

        at = [P, self.end[rows], Q, self.start[rows]]
        sums = self._walk(rows, at, [*V[:, rows], *np.zeros((2 * k, m))], collect)[k:]
        return np.stack(sums[:k]), np.stack(sums[k:])

    def between(self, f: Array, low: float, high: float, limit: int) -> tuple[Array, Array] | None:
        """The pairs (h, j) with low <= f_h − f_j < high; None if that needs many comparisons."""
        rows, first, _ = self._positions(f, high)
        after = self._positions(f, low)[1]
        sizes = np.maximum(after - first, 0).astype(np.int64)
        n_candidates = int(sizes.sum())
        if n_candidates > 4 * limit:
            return None
        offset = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        upper = np.repeat(rows, sizes)
        lower = rows[np.arange(n_candidates) + offset]
        chosen = self.level[upper] > self.level[lower]
        return upper[chosen], lower[chosen]

    def _positions(self, f: Array, t: float) -> tuple[Array, Array, Array]:
        """Rows in the order of (query, f), and their P and Q, each of shape (m,)."""
        m = len(f)
        rows = np.argsort(f)
        upper = f[rows]
        lower = upper + t
        # Number of lower rows with f_j + t <= f_h, and of upper rows with f_h < f_j + t.
        P = np.searchsorted(lower, upper, side="right")
        if self.n_queries > 1:
            # Both are replaced by their ranks among all 2m values, sorted by query first.
            rank = np.arange(m)
            upper, lower = P + rank, _below(P, m) + rank
            query = self.query[rows].astype(np.int64) * (2 * m)
            by_query = stable_argsort(self.query[rows], self.n_queries)
            rows = rows[by_query]
            P = np.searchsorted((query + lower)[by_query], (query + upper)[by_query])
        return rows, P.astype(self.dtype), _below(P, m).astype(self.dtype)

    def _read(self, rows: Array, P: Array, Q: Array) -> tuple[Array, Array]:
        """Sum over the bits: zeros before P for rows with a one, ones before Q for a zero."""

        def collect(n: int, at: list[Array], ones: list[Array], carried: list[Array]) -> None:
            zeros_sum, ones_sum = carried
            zeros_sum[n:] += at[0][n:]
            zeros_sum[n:] -= ones[0][n:]
            ones_sum[:n] += ones[1][:n]

        zeros, ones = self._walk(rows, [P, Q], [*np.zeros((2, len(rows)), self.dtype)], collect)
        return zeros, ones

    def _walk(
        self, rows: Array, positions: list[Array], carried: list[Array], collect: Collect
    ) -> list[Array]:
        """Split the blocks bit by bit; ``carried`` in the order of the rows at the end."""
        m, k = len(rows), len(positions)
        arrays = [*positions, self.level[rows], *carried, rows.astype(self.dtype)]
        moved = [np.empty_like(array) for array in arrays]
        before = [np.empty(m, dtype=self.dtype) for _ in positions]
        total = np.zeros(m + 1, dtype=self.dtype)
        for bit in self.bits:
            one = (arrays[k] & self.dtype(bit)) != 0
            np.cumsum(one, out=total[1:])
            ones = np.flatnonzero(one)
            zeros = np.flatnonzero(np.logical_not(one, out=one))
            n = len(zeros)
            for array, target in zip(arrays, moved, strict=True):
                array.take(zeros, out=target[:n], mode="clip")
                array.take(ones, out=target[n:], mode="clip")
            arrays, moved = moved, arrays
            for position, count in zip(arrays[:k], before, strict=True):
                total.take(position, out=count, mode="clip")
            collect(n, arrays[:k], before, arrays[k + 1 : -1])
            for position, count in zip(arrays[:k], before, strict=True):
                position[:n] -= count[:n]
                np.add(count[n:], self.dtype(n), out=position[n:])
        for array, target in zip(arrays[k + 1 : -1], moved[k + 1 : -1], strict=True):
            target[arrays[-1]] = array
        return moved[k + 1 : -1]


def _below(P: Array, m: int) -> Array:
    """#{h : P_h <= i} for i in range(m): where P_h counts the j <= h, this counts the h > j."""
    return np.cumsum(np.bincount(P, minlength=m + 1)[:m])
