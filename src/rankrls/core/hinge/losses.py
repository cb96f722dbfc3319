"""Hinge losses of preferences: value and subgradient in O(m log m), whatever the number of pairs.

An edge h → j of weight c has the violation z = 1 − (f_h − f_j). A loss returns sums over dual
variables β_e >= 0: δ = Σ β_e (e_h − e_j), which is minus the (sub)gradient, and Σ β_e. Pairs of
scores are not materialised (unless they are few): `Dominance` counts those that violate a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._sorting import stable_argsort
from rankrls.core.preferences.costs import Levels, QueryWeights
from rankrls.core.preferences.graph import PreferenceGraph

Array = NDArray[Any]

#: Pairs of scores are materialised if there are at most this many, in total or for each row, which
#: is then faster than counting.
MAX_PAIRS = 2**15
PAIRS_PER_ROW = 8

#: The same for the pairs with a violation between 0 and mu, of the smoothed hinge.
SMOOTHED_PER_ROW = 16


class Violations(NamedTuple):
    """Dual variables β of all edges at some f, as sums, and the loss there."""

    delta: Array  # δ = Σ_e β_e (e_h − e_j), shape (m,)
    beta: float  # Σ_e β_e
    loss: float
    value: float  # of the function whose (sub)gradient is −δ: the loss, or the smoothed hinge
    slack: float = 0.0  # loss − Σ β z >= 0 for the hinge: how far β is from maximising Σ β z
    conjugate: float = 0.0  # Σ β²/(4c) of the squared hinge, which the dual objective subtracts


class Sums(NamedTuple):
    """δ and Σβ as in `Violations`, and Σ_e β_e (f_h − f_j)."""

    delta: Array
    beta: float
    difference: float


class PairHinge:
    """Edges head → tail of weight c > 0, arrays of shape (l,); ``total`` is Σ_e c_e."""

    def __init__(self, head: Array, tail: Array, weight: Array, n_rows: int) -> None:
        self.head, self.tail, self.weight = head, tail, weight
        self.n_rows, self.n_pairs = n_rows, len(head)
        self.total = float(weight.sum())

    def differences(self, f: Array) -> Array:
        """f_h − f_j of every edge, of shape (l,)."""
        return f[self.head] - f[self.tail]

    def spread(self, beta: Array) -> Array:
        """δ = Σ_e β_e (e_h − e_j), of shape (m,)."""
        delta = np.bincount(self.head, beta, minlength=self.n_rows).astype(float, copy=False)
        delta -= np.bincount(self.tail, beta, minlength=self.n_rows)
        return delta

    def degrees(self, theta: Array) -> Array:
        """Σ of theta over the edges of every row, of shape (m,)."""
        degrees = np.bincount(self.head, theta, minlength=self.n_rows).astype(float)
        degrees += np.bincount(self.tail, theta, minlength=self.n_rows)
        return degrees

    def step(self, f: Array, t: float) -> Sums:
        """Sums for β = c where f_h − f_j < t, and 0 elsewhere; f has shape (m,)."""
        beta = np.where(f[self.head] < f[self.tail] + t, self.weight, 0.0)
        return Sums(self.spread(beta), float(beta.sum()), float(beta @ self.differences(f)))

    def ramp(self, f: Array, t: float) -> Sums:
        """Sums for β = c max(0, t − (f_h − f_j))."""
        beta = self.weight * np.maximum((f[self.tail] + t) - f[self.head], 0.0)
        return Sums(self.spread(beta), float(beta.sum()), float(beta @ self.differences(f)))

    def hinge(self, f: Array) -> Violations:
        """Σ c max(0, z) and its subgradient: β = c where z > 0."""
        delta, beta, difference = self.step(f, 1.0)
        return Violations(delta, beta, beta - difference, beta - difference)

    def squared(self, f: Array) -> Violations:
        """Σ c max(0, z)² and its gradient: β = 2 c max(0, z), so that Σ β²/(4c) is the loss."""
        delta, beta, difference = self.ramp(f, 1.0)
        loss = beta - difference
        return Violations(2 * delta, 2 * beta, loss, loss, conjugate=loss)

    def smoothed(self, f: Array, mu: float) -> Violations:
        """Σ c max(0, z), with β = c clip(z/mu, 0, 1): the gradient of the smoothed hinge."""
        # Its value is c z²/(2 mu) for 0 < z < mu, and c (z − mu/2) above.
        z = (f[self.tail] + 1.0) - f[self.head]
        loss = float(self.weight @ np.maximum(z, 0.0))
        beta = self.weight * np.clip(z / mu, 0.0, 1.0)
        certified = float(beta @ z)
        # β z − mu β²/(2c) for every edge
        value = certified - 0.5 * mu * float(beta @ (beta / self.weight))
        slack = max(loss - certified, 0.0)
        return Violations(self.spread(beta), float(beta.sum()), loss, value, slack)

    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """Materialise the edges with low <= f_h − f_j < high; None if more than ``limit``."""
        upper, lower = f[self.head], f[self.tail]
        inside = np.flatnonzero((upper < lower + high) & ~(upper < lower + low))
        if len(inside) > limit:
            return None
        return PairHinge(self.head[inside], self.tail[inside], self.weight[inside], self.n_rows)

    def used(self) -> Array:
        """Rows that have an edge, some of them several times."""
        return np.concatenate([self.head, self.tail])


class ScoreHinge(PairHinge):
    """The edges between all rows of a query with different scores, and ``given`` ones.

    Only the given edges are materialised. Other arrays have one entry for each row with an edge of
    scores, in the order of (query, score). The edge of rows i and j has weight row_scale_i u_j,
    with u the row weights divided by their sum over the query; ``u`` is None without weights.
    """

    def __init__(
        self,
        given: PairHinge,
        s: Array,
        query: Array,
        weight: Array | None,
        query_weighting: str,
    ) -> None:
        super().__init__(given.head, given.tail, given.weight, given.n_rows)
        levels = Levels.of(s, query)
        n_queries = int(query.max(initial=-1)) + 1
        counts = QueryWeights(query_weighting, query, n_queries, weight, levels)
        kept = counts.edges[query] > 0
        if weight is not None:
            kept &= weight > 0
        rows = np.flatnonzero(kept)
        self.order = order = rows[stable_argsort(levels.codes[rows], len(levels))]
        code, q = levels.codes[order], query[order]
        # Positions at which the query, or the level, changes, the first included.
        self.starts = np.flatnonzero(np.diff(q, prepend=-1))
        level_starts = np.flatnonzero(np.diff(code, prepend=-1))
        self.sizes = np.diff(self.starts, append=len(order))
        level_sizes = np.diff(level_starts, append=len(order))
        self.start = np.repeat(self.starts, self.sizes)
        self.level = code - code[self.start]
        self.below = np.repeat(level_starts, level_sizes) - self.start  # rows of lower score
        self.n_pairs += int(self.below.sum(dtype=np.int64))
        self.u, self.row_scale = None, counts.c[q]
        if weight is None:
            self.total += float(self.row_scale @ self.below)
        else:
            N = counts.N[q]
            self.u = weight[order] / N
            self.row_scale = self.row_scale * N * N * self.u  # N² may underflow
            cumulated = np.concatenate([[0.0], np.cumsum(self.u)])
            lower = cumulated[self.start + self.below] - cumulated[self.start]
            self.total += float(self.row_scale @ lower)

    @cached_property
    def dominance(self) -> Dominance:
        """Sums over the pairs that violate a margin."""
        return Dominance(self.level, self.starts)

    def step(self, f: Array, t: float) -> Sums:
        """See `PairHinge`."""
        given, f = super().step(f, t), f[self.order]
        if self.u is None:
            below, above = self.dominance.count(f, t)
        else:
            (below,), (above,) = self.dominance.weigh(f, t, self.u[None])
        return self._sums(given, self._centred(f), below, above)

    def ramp(self, f: Array, t: float) -> Sums:
        """Σ_j ω_j (t − f_h + f_j) = (t − f_h) Σ ω_j + Σ ω_j f_j."""
        given, f = super().ramp(f, t), f[self.order]
        centred = self._centred(f)
        u = np.ones_like(f) if self.u is None else self.u
        below, above = self.dominance.weigh(f, t, np.stack([u, u * centred]))
        ramp_below = np.maximum((t - centred) * below[0] + below[1], 0.0)
        ramp_above = np.maximum((t + centred) * above[0] - above[1], 0.0)
        return self._sums(given, centred, ramp_below, ramp_above)

    def _centred(self, f: Array) -> Array:
        """f minus its mean over the query."""
        means = np.add.reduceat(f, self.starts) / self.sizes
        return f - np.repeat(means, self.sizes)

    def _sums(self, given: Sums, f: Array, below: Array, above: Array) -> Sums:
        """Add δ_i = c ω_i (Σ_j β_ij/c − Σ_h β_hi/c) from the sums over each row's partners."""
        below = self.row_scale * below
        difference = below - self.row_scale * above
        given.delta[self.order] += difference
        beta = given.beta + float(below.sum())
        return Sums(given.delta, beta, given.difference + float(difference @ f))

    def smoothed(self, f: Array, mu: float) -> Violations:
        """See `PairHinge`; the pairs with 0 < z <= mu are materialised if they are few."""
        limit = SMOOTHED_PER_ROW * len(self.order) + len(self.head)
        pairs = self.between(f, 1.0 - mu, 1.0, limit)
        if pairs is not None:
            beyond, near = self.step(f, 1.0 - mu), pairs.smoothed(f, mu)
            return Violations(
                beyond.delta + near.delta,
                beyond.beta + near.beta,
                beyond.beta - beyond.difference + near.loss,
                (1.0 - 0.5 * mu) * beyond.beta - beyond.difference + near.value,
                near.slack,
            )
        # β is the difference of two ramps, and the slack is Σ c z (1 − z/mu) over 0 < z < mu.
        upper, lower = self.ramp(f, 1.0), self.ramp(f, 1.0 - mu)
        beta = (upper.beta - lower.beta) / mu
        difference = (upper.difference - lower.difference) / mu
        # Σ c max(0, z)² and Σ c max(0, z − mu)²
        above = upper.beta - upper.difference
        beyond_mu = (1.0 - mu) * lower.beta - lower.difference
        slack = max(upper.beta - (beta - difference), 0.0)
        delta = (upper.delta - lower.delta) / mu
        return Violations(delta, beta, upper.beta, (above - beyond_mu) / (2 * mu), slack)

    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """See `PairHinge`."""
        given = super().between(f, low, high, limit)
        if low == -np.inf and high == np.inf:
            pairs = self._all_pairs() if self.n_pairs <= limit else None
        else:
            pairs = self.dominance.between(f[self.order], low, high, limit)
        if pairs is None or given is None or len(pairs[0]) + given.n_pairs > limit:
            return None
        upper, lower = pairs
        weight = self.row_scale[upper] * (1.0 if self.u is None else self.u[lower])
        return PairHinge(
            np.append(self.order[upper], given.head),
            np.append(self.order[lower], given.tail),
            np.append(weight, given.weight),
            self.n_rows,
        )

    def _all_pairs(self) -> tuple[Array, Array]:
        """Positions in the sorted rows of all edges of scores, found without comparing rows."""
        upper = np.repeat(np.arange(len(self.order)), self.below)
        first = np.cumsum(self.below) - self.below
        return upper, np.arange(len(upper)) - (first - self.start)[upper]

    def used(self) -> Array:
        """See `PairHinge`."""
        return np.append(super().used(), self.order)


def hinge_losses(graph: PreferenceGraph, query_weighting: str) -> list[PairHinge]:
    """Make the loss of each output; the margin of each preference is 1, whatever its magnitude."""
    if graph.pair_features is not None:
        raise ValueError("RankSVM takes no pair_features; RankRLS and RankRLSCV do")
    used = graph.preferring
    head, tail = graph.pairs[used].T
    given = PairHinge(head, tail, graph.pair_weight[used], graph.n_rows)
    if graph.scores is None or graph.query_codes is None:
        return [given]
    losses: list[PairHinge] = []
    for s in graph.scores.T:
        loss = ScoreHinge(given, s, graph.query_codes, graph.sample_weight, query_weighting)
        limit = max(MAX_PAIRS, PAIRS_PER_ROW * len(loss.order)) + given.n_pairs
        losses.append(loss.between(s, -np.inf, np.inf, limit) or loss)
    return losses


# -- counting ----------------------------------------------------------------------------------

MAX_INT32 = 2**31

#: Callback for each bit: the number n of zeros (rows :n; the ones are n:), the position arrays
#: before the split, the number of ones before each of these positions, and the carried arrays.
Collect = Callable[[int, list[Array], list[Array], list[Array]], None]


class Dominance:
    """Sums over the pairs of rows that violate a margin, in O(m log m), without materialising any.

    Rows h, j of one query with level_h > level_j violate the margin t if f_h < f_j + t, an
    expression that is the same everywhere, so that rounding affects both rows in the same way. Rows
    are sorted by (query, level). ``level``, of shape (m,), is the level of each row within its
    query, from 0, and ``starts``, of shape (n_queries,), the first row of every query.

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
