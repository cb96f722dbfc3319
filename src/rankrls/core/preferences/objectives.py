"""From scores or pairs and a cost to L, r and the counts of the objective.

Costs, for an edge of magnitude y (weight w², target z): `magnitude` z = y, w = 1;
`unit` z = 1, w = 1; `relative` z = y, w = 1/y. Scores give an edge of magnitude s_i − s_j to
every pair of a query, weighted by c ω_i ω_j with c the query's weighting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.groups import Groups, sums
from rankrls.core.preferences.laplacian import (
    EdgeSystem,
    PooledSystem,
    ScatterSystem,
    SumSystem,
    System,
)
from rankrls.core.preferences.query_weights import Levels, Weighing

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
        weighing = Weighing.of_rows(query_weighting, query, n_queries, weight, None)
        groups = Groups(query, weight, n_queries)
        system = ScatterSystem(groups, weighing.c * weighing.N, s)
        return [Objective(system, np.arange(n_outputs), weighing.n_pairs, weighing.log_weight)]
    objectives = []
    for levels, outputs in shared_levels(s, query, cost):
        weighing = Weighing.of_rows(query_weighting, query, n_queries, weight, levels)
        build = _relative if cost == "relative" else _between_levels
        rows = Groups(levels.codes, weight, len(levels))
        objectives.append(build(s[:, outputs], levels, weighing, rows, outputs, cost))
    return objectives


def shared_levels(s: Array, query: Array, cost: str) -> list[tuple[Levels, Array]]:
    """Levels of every column of s, shape (m, k), with the outputs that share them (and so L)."""
    shared: dict[bytes, tuple[Levels, list[int]]] = {}
    for j in range(s.shape[1]):
        levels = Levels.of(s[:, j], query)
        key = levels.codes.tobytes() if cost != "relative" else s[:, j].tobytes()
        shared.setdefault(key, (levels, []))[1].append(j)
    return [(levels, np.asarray(outputs)) for levels, outputs in shared.values()]


def level_targets(scores: Array, levels: Levels, weighing: Weighing, cost: str) -> Array:
    """What stands for the score of a level where tied pairs are dropped, shape (g, k).

    `unit` is `magnitude` with the scores replaced by (Ω_lower − Ω_higher)/N, the normalised
    rank of a level: then L ŝ = r (and L is the same).
    """
    if cost == "magnitude":
        return scores
    Omega, N = weighing.Omega, weighing.N[levels.query]
    lower = np.cumsum(Omega) - Omega - (np.cumsum(weighing.N) - weighing.N)[levels.query]
    rank = np.divide(2 * lower + Omega - N, N, out=np.zeros(len(levels)), where=N > 0)
    return np.repeat(rank[:, None], scores.shape[1], axis=1)


def _between_levels(
    s: Array, levels: Levels, weighing: Weighing, rows: Groups, outputs: Array, cost: str
) -> Objective:
    """`magnitude` and `unit` with tied pairs dropped: level means against each other."""
    g, k = len(levels), s.shape[1]
    scores = np.empty((g, k))
    scores[levels.codes] = s
    target = level_targets(scores, levels, weighing, cost)
    kappa = weighing.c * weighing.N
    system: System
    if g == len(s):
        weight = rows.weight if rows.weighted else None
        single = Groups(levels.query[levels.codes], weight, len(kappa))
        system = ScatterSystem(single, kappa, target[levels.codes])
    else:
        pooled = Groups(levels.query, weighing.Omega, len(kappa))
        within = weighing.c[levels.query] * (weighing.N[levels.query] - weighing.Omega)
        system = PooledSystem(rows, within, ScatterSystem(pooled, kappa, target))
    if cost == "unit":
        system.energy = np.repeat(weighing.energy, k)
    return Objective(system, outputs, weighing.n_pairs, weighing.log_weight)


def _relative(
    s: Array, levels: Levels, weighing: Weighing, rows: Groups, outputs: Array, cost: str
) -> Objective:
    """`relative`: the levels of a query joined by edges of weight c Ω_a Ω_b/(s_a − s_b)²."""
    between, kappa = relative_edges(levels, weighing.Omega, weighing.c)
    system = PooledSystem(rows, kappa, between)
    system.r = np.repeat(system.r, s.shape[1], axis=1)
    system.energy = np.repeat(weighing.energy, s.shape[1])
    log_weight = weighing.log_weight - 2 * log_magnitudes(between, weighing)
    return Objective(system, outputs, weighing.n_pairs, log_weight)


def relative_edges(levels: Levels, Omega: Array, c: Array) -> tuple[EdgeSystem, Array]:
    """The edges between levels of weight Ω, and κ, the weight that a level's rows meet, (g,)."""
    g = len(levels)
    head, tail = _level_pairs(levels.query)
    weighted = (Omega[head] > 0) & (Omega[tail] > 0)
    head, tail = head[weighted], tail[weighted]
    y = levels.score[head] - levels.score[tail]
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        inverse = 1.0 / y**2
    if not np.isfinite(inverse).all():
        raise ValueError(
            f"cost='relative' divides by squared score differences, and the smallest one, "
            f"{y.min():g}, is too small for that: round the scores or use cost='unit'"
        )
    strength = c[levels.query[head]] * inverse
    # A level's rows all meet level b with c Ω_b/(s_a − s_b)².
    kappa = sums(head, strength * Omega[tail], g) + sums(tail, strength * Omega[head], g)
    weight = strength * Omega[head] * Omega[tail]
    return EdgeSystem(head, tail, weight, y, g, simple=True), kappa


def log_magnitudes(between: EdgeSystem, weighing: Weighing) -> float:
    """Σ log y over the edges between the rows of two levels."""
    counts = weighing.n_a[between.head] * weighing.n_a[between.tail]
    return float(counts @ np.log(between.z))


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
