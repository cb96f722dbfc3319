"""From scores or pairs and a cost to L, r and the counts of the objective.

Costs, for an edge of magnitude y (weight w², target z): `magnitude` z = y, w = 1;
`unit` z = 1, w = 1; `relative` z = y, w = 1/y. Scores give an edge of magnitude s_i − s_j to
every pair of a query, weighted by c ω_i ω_j with c the query's weighting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.preferences._groups import Groups, sums
from rankrls.preferences._systems import (
    EdgeSystem,
    PooledSystem,
    ScatterSystem,
    SumSystem,
    System,
)

__all__ = ["COSTS", "QUERY_WEIGHTINGS", "TIES", "Objective", "add", "from_edges", "from_scores"]

Array = NDArray[Any]

COSTS = ("magnitude", "unit", "relative")
TIES = ("keep", "drop")
QUERY_WEIGHTINGS = ("pair", "size", "query")

#: `relative` works with every pair of distinct scores of a query; more than this many pairs
#: (about 4500 distinct scores in one query) are refused.
MAX_LEVEL_PAIRS = 10_000_000


@dataclass(frozen=True)
class Objective:
    """The data term of the objective for the outputs that share one preference graph.

    Attributes
    ----------
    system : System
        L and r (one column for each of ``outputs``).
    outputs : ndarray of int
        The columns of y that it covers.
    n_pairs : int
        Number of edges, tied ones included when they are kept.
    log_weight : float
        Σ_edges log w², for the marginal likelihood.
    """

    system: System
    outputs: Array
    n_pairs: int
    log_weight: float

    @property
    def energy(self) -> Array:
        """Σ_edges w² z², shape (k,), or (1,) where all outputs have the same target."""
        return self.system.energy


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


class _Weighing:
    """Counts and weights of rows, levels and queries, and the query weighting c."""

    def __init__(
        self, query: Array, n_queries: int, weight: Array | None, levels: Levels | None, how: str
    ) -> None:
        self.query, self.weight, self.levels = query, weight, levels
        counted = None if weight is None else (weight > 0).astype(float)
        self.n_q = sums(query, counted, n_queries)
        self.N = sums(query, weight, n_queries)
        # Σ over edges of 1 and of ω_i ω_j: all pairs less the pairs inside a level (or a row).
        if levels is None:
            squares_n = self.n_q
            squares_w = self.n_q if weight is None else sums(query, weight**2, n_queries)
        else:
            self.n_a = sums(levels.codes, counted, len(levels))
            self.Omega = sums(levels.codes, weight, len(levels))
            squares_n = sums(levels.query, self.n_a**2, n_queries)
            squares_w = sums(levels.query, self.Omega**2, n_queries)
        self.edges = (self.n_q**2 - squares_n) / 2
        self.edge_weight = np.where(self.edges > 0, (self.N**2 - squares_w) / 2, 0.0)
        divisor = {"pair": np.ones(n_queries), "size": self.N, "query": self.edge_weight}[how]
        self.c = np.divide(1.0, divisor, out=np.zeros(n_queries), where=self.edges > 0)

    @property
    def n_pairs(self) -> int:
        return int(np.rint(self.edges).astype(np.int64).sum())

    @property
    def log_weight(self) -> float:
        used = self.edges > 0
        total = float(self.edges[used] @ np.log(self.c[used]))
        if self.weight is not None:
            inside = 1.0 if self.levels is None else self.n_a[self.levels.codes]
            partners = self.n_q[self.query] - inside
            positive = self.weight > 0
            total += float(partners[positive] @ np.log(self.weight[positive]))
        return total

    @cached_property
    def energy(self) -> Array:
        """Σ_edges w² z² where z² w² = c ω_i ω_j on every edge (`unit` and `relative`)."""
        return np.array([self.c @ self.edge_weight])


def from_scores(
    s: Array,
    query: Array,
    n_queries: int,
    weight: Array | None,
    *,
    cost: str,
    ties: str,
    query_weighting: str,
) -> list[Objective]:
    """Objectives of scores ``s`` of shape (m, k): one for every group of outputs that share L."""
    n_outputs = s.shape[1]
    if cost == "magnitude" and ties == "keep":
        weighing = _Weighing(query, n_queries, weight, None, query_weighting)
        groups = Groups(query, weight, n_queries)
        system = ScatterSystem(groups, weighing.c * weighing.N, s)
        return [Objective(system, np.arange(n_outputs), weighing.n_pairs, weighing.log_weight)]
    shared: dict[bytes, tuple[Levels, list[int]]] = {}
    for j in range(n_outputs):
        levels = Levels.of(s[:, j], query)
        key = levels.codes.tobytes() if cost != "relative" else s[:, j].tobytes()
        shared.setdefault(key, (levels, []))[1].append(j)
    build = _relative if cost == "relative" else _between_levels
    objectives = []
    for levels, outputs in shared.values():
        weighing = _Weighing(query, n_queries, weight, levels, query_weighting)
        objectives.append(build(s[:, outputs], levels, weighing, np.asarray(outputs), cost))
    return objectives


def _between_levels(
    s: Array, levels: Levels, weighing: _Weighing, outputs: Array, cost: str
) -> Objective:
    """`magnitude` and `unit` with tied pairs dropped: level means against each other.

    `unit` is `magnitude` with the scores replaced by (Ω_lower − Ω_higher)/N, the normalised
    rank of a level: then L ŝ = r (and L is the same).
    """
    g, k = len(levels), s.shape[1]
    if cost == "unit":
        upto = np.cumsum(weighing.Omega)
        lower = upto - weighing.Omega - (np.cumsum(weighing.N) - weighing.N)[levels.query]
        N = weighing.N[levels.query]
        rank = np.divide(2 * lower + weighing.Omega - N, N, out=np.zeros(g), where=N > 0)
        target = np.repeat(rank[:, None], k, axis=1)
    else:
        target = np.empty((g, k))
        target[levels.codes] = s
    kappa = weighing.c * weighing.N
    system: System
    if g == len(s):
        rows = Groups(weighing.query, weighing.weight, len(weighing.N))
        system = ScatterSystem(rows, kappa, target[levels.codes])
    else:
        pooled = Groups(levels.query, weighing.Omega, len(weighing.N))
        within = weighing.c[levels.query] * (weighing.N[levels.query] - weighing.Omega)
        rows = Groups(levels.codes, weighing.weight, g)
        system = PooledSystem(rows, within, ScatterSystem(pooled, kappa, target))
    if cost == "unit":
        system.energy = np.repeat(weighing.energy, k)
    return Objective(system, outputs, weighing.n_pairs, weighing.log_weight)


def _relative(
    s: Array, levels: Levels, weighing: _Weighing, outputs: Array, cost: str
) -> Objective:
    """`relative`: the levels of a query joined by edges of weight c Ω_a Ω_b/(s_a − s_b)²."""
    g, k = len(levels), s.shape[1]
    head, tail = _level_pairs(levels.query)
    weighted = (weighing.Omega[head] > 0) & (weighing.Omega[tail] > 0)
    head, tail = head[weighted], tail[weighted]
    y = levels.score[head] - levels.score[tail]
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        inverse = 1.0 / y**2
    if not np.isfinite(inverse).all():
        raise ValueError(
            f"cost='relative' divides by squared score differences, and the smallest one, "
            f"{y.min():g}, is too small for that: round the scores or use cost='unit'"
        )
    c = weighing.c[levels.query[head]]
    # A level's rows all meet level b with c Ω_b/(s_a − s_b)².
    kappa = sums(head, c * inverse * weighing.Omega[tail], g)
    kappa += sums(tail, c * inverse * weighing.Omega[head], g)
    weight = c * inverse * weighing.Omega[head] * weighing.Omega[tail]
    between = EdgeSystem(head, tail, weight, y, g, simple=True)
    system = PooledSystem(Groups(levels.codes, weighing.weight, g), kappa, between)
    system.r = np.repeat(system.r, k, axis=1)
    system.energy = np.repeat(weighing.energy, k)
    log_magnitudes = (weighing.n_a[head] * weighing.n_a[tail]) @ np.log(y)
    log_weight = weighing.log_weight - 2 * float(log_magnitudes)
    return Objective(system, outputs, weighing.n_pairs, log_weight)


def _level_pairs(query: Array) -> tuple[Array, Array]:
    """All (higher, lower) pairs of levels of the same query; levels are sorted by query."""
    g = len(query)
    sizes = np.bincount(query)
    n_pairs = int((sizes.astype(object) * (sizes - 1)).sum()) // 2
    if n_pairs > MAX_LEVEL_PAIRS:
        raise ValueError(
            f"cost='relative' needs every pair of distinct scores of a query: {n_pairs:,} pairs "
            f"here (the largest query has {sizes.max():,} distinct scores), more than the "
            f"{MAX_LEVEL_PAIRS:,} allowed. Round the scores, or use cost='magnitude' or 'unit', "
            "which cost O(rows)"
        )
    above = np.cumsum(sizes)[query] - np.arange(g) - 1
    tail = np.repeat(np.arange(g), above)
    first = np.cumsum(above) - above
    head = tail + 1 + np.arange(len(tail)) - first[tail]
    return head, tail


def from_edges(
    pairs: Array, magnitude: Array, weight: Array, n_rows: int, *, cost: str
) -> Objective:
    """The objective of given pairs (preferred, other), one output."""
    used = weight > 0
    pairs, magnitude, weight = pairs[used], magnitude[used], weight[used]
    if cost == "unit":
        magnitude = np.ones_like(magnitude)
    elif cost == "relative":
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            weight = weight / magnitude**2
        if not np.isfinite(weight).all():
            raise ValueError(
                f"cost='relative' divides by squared magnitudes, and the smallest one, "
                f"{magnitude.min():g}, is too small for that"
            )
    system = EdgeSystem(pairs[:, 0], pairs[:, 1], weight, magnitude, n_rows, simple=False)
    return Objective(system, np.arange(1), len(pairs), float(np.log(weight).sum()))


def add(scored: Objective, edges: Objective) -> Objective:
    """Scores and pairs together, for the outputs of ``scored``; pairs alone if it has no edge."""
    assert isinstance(edges.system, EdgeSystem)
    if scored.n_pairs == 0:
        return Objective(edges.system, scored.outputs, edges.n_pairs, edges.log_weight)
    return Objective(
        SumSystem(scored.system, edges.system),
        scored.outputs,
        scored.n_pairs + edges.n_pairs,
        scored.log_weight + edges.log_weight,
    )
