"""Costs of preferences, levels of equal score, and the weights of queries, levels and pairs.

The loss of a preference of magnitude d is w²(d) (z(d) − (f_h − f_j))². The weighting of queries
(``query_weighting`` of the estimators) is defined only in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_option

Array = NDArray[Any]


def sums(codes: Array, values: Array | None, n: int) -> Array:
    """Sum ``values`` (ones, if None) for each code in ``range(n)``, in float64."""
    return np.bincount(codes, weights=values, minlength=n).astype(np.float64)


@dataclass(frozen=True)
class Levels:
    """Groups of rows with equal score in the same query, numbered by (query, score)."""

    codes: Array  # (m,)
    score: Array  # (g,)
    query: Array  # (g,)

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


#: What a query's edges are divided by, from the weights of its rows and of its edges, by name.
DIVISORS: dict[str, Callable[[Array, Array], Any]] = {
    "pair": lambda rows, edges: 1.0,
    "size": lambda rows, edges: rows,
    "query": lambda rows, edges: edges,
}


def query_factor(how: Any, weight: Any, edge_weight: Any) -> Any:
    """Factor c of a query's edges: 1 ("pair"), 1/Σω ("size") or 1/Σ_edges ω_iω_j ("query").

    A function is called with both arrays, for the queries that have an edge; c is 0 for the others.
    """
    weight, edge_weight = np.asarray(weight, dtype=float), np.asarray(edge_weight, dtype=float)
    c, some = np.zeros(weight.shape), edge_weight > 0
    if not callable(how):
        return np.divide(1.0, DIVISORS[how](weight, edge_weight), out=c, where=some)
    values = np.asarray(how(weight[some], edge_weight[some]), dtype=float)
    if values.ndim > 1 or values.size not in (1, some.sum()) or not (values > 0).all():
        raise ValueError(
            f"query_weighting must return a positive weight for each of the {some.sum():,} "
            f"queries; got {values}"
        )
    c[some] = values
    return c


def pair_weights(group: Array, weight: Array, n_groups: int) -> tuple[Array, Array]:
    """Σ_{j≠i} ω_j of each member of a group, shape (g,), and Σ_{i<j} ω_i ω_j, shape (n_groups,)."""
    # The largest ω of a group is treated apart: N − ω and N² − Σω² would cancel if it dominates.
    top = np.zeros(n_groups)
    np.maximum.at(top, group, weight)
    largest = np.flatnonzero(weight == top[group])
    member = np.zeros(n_groups, dtype=np.int64)
    member[group[largest]] = largest  # one of them
    rest = weight.copy()
    rest[member[group[largest]]] = 0.0
    R = sums(group, rest, n_groups)
    others = (R + top)[group] - weight
    others[member[group[largest]]] = R[group[largest]]
    return others, top * R + np.maximum(R**2 - sums(group, rest**2, n_groups), 0.0) / 2


class QueryWeights:
    """Counts and weights of queries and of groups of their rows, and the query weighting c.

    The groups are ``levels`` if tied pairs are dropped, and whole queries if they are kept (None).
    ``n_a`` and ``Omega``, (g,), are the number of rows with ω > 0 of each group, and Σω; ``n_q``
    and ``N``, (n_queries,), the same of each query; ``edges``, ``edge_weight`` and ``c`` its number
    of edges, Σ_edges ω_i ω_j, and their factor, 0 without edges. All pairs of a query add up to
    ``kappa`` times its scatter, and those of a level with others to ``level_kappa`` times its own.
    """

    def __init__(
        self,
        how: str,
        query: Array,
        n_queries: int,
        weight: Array | None,
        levels: Levels | None,
    ) -> None:
        codes, group, g = query, np.arange(n_queries), n_queries
        if levels is not None:
            codes, group, g = levels.codes, levels.query, len(levels)
        positive = np.ones(len(codes), dtype=bool) if weight is None else weight > 0
        self.n_a = sums(codes, positive.astype(float), g)
        self.Omega = self.n_a if weight is None else sums(codes, weight, g)
        self.n_q = sums(group, self.n_a, n_queries)
        self.N = sums(group, self.Omega, n_queries)
        # All pairs minus the pairs within a level, or minus the rows themselves.
        inside = self.n_a if levels is None else self.n_a**2
        self.edges = (self.n_q**2 - sums(group, inside, n_queries)) / 2
        if levels is not None:
            others, between = pair_weights(group, self.Omega, n_queries)
        elif weight is None:
            between = self.edges
        else:
            between = pair_weights(query, weight, n_queries)[1]
        self.edge_weight = np.where(self.edges > 0, between, 0.0)
        lost = (self.edges > 0) & ~((self.edge_weight > 0) & np.isfinite(self.edge_weight))
        if lost.any() and how not in ("pair", "size"):
            raise ValueError("the products of the weights underflow or overflow; scale the weights")
        self.c = query_factor(how, self.N, np.where(lost, 1.0, self.edge_weight))
        self.kappa = self.c * self.N
        if levels is not None:
            self.level_kappa = self.c[group] * others
        n_q, inside = self.n_q.astype(np.int64), inside.astype(np.int64)
        self.n_pairs = int((n_q**2).sum() - inside.sum()) // 2  # exact, unlike edges
        used = self.edges > 0
        self.log_weight = float(self.edges[used] @ np.log(self.c[used]))
        if weight is not None:
            logarithms = sums(codes[positive], np.log(weight[positive]), g)
            partners = self.n_q[group] - (1.0 if levels is None else self.n_a)
            self.log_weight += float(partners @ logarithms)


def _normalised_ranks(levels: Levels, weights: QueryWeights) -> tuple[Array, float]:
    """(Ω_lower − Ω_higher)/N of every level, shape (g,), and Σ_edges w² of all queries."""
    # In units of about N, powers of two, so that heavy queries before it do not swamp a light one.
    unit = np.ldexp(1.0, np.frexp(weights.N)[1])
    Omega, totals = weights.Omega / unit[levels.query], weights.N / unit
    N = totals[levels.query]
    lower = np.cumsum(Omega) - Omega - (np.cumsum(totals) - totals)[levels.query]
    rank = np.divide(2 * lower + Omega - N, N, out=np.zeros(len(levels)), where=N > 0)
    return rank, float(weights.c @ weights.edge_weight)


@dataclass(frozen=True)
class Cost:
    """Target and weight of a preference of magnitude d > 0."""

    name: str
    #: z(d); z(0) = 0 is the target of a given tie.
    target: Callable[[Array], Array]
    #: w²(d); None: 1.
    weight: Callable[[Array], Array] | None = None
    #: Whether z(d) = d and w² = 1, so that r = L y for the scores y, and tied pairs can be kept.
    linear: bool = False
    #: Scores ŝ of the levels (groups of equal score in a query) with L ŝ = r, shape (g,), and
    #: Σ_edges w² z², for w² = 1; without this closed form pairs of levels are materialised.
    level_scores: Callable[[Levels, QueryWeights], tuple[Array, float]] | None = None

    @property
    def by_pairs(self) -> bool:
        """Whether pairs of levels are materialised, because there is no closed form."""
        return not self.linear and self.level_scores is None

    def edges(self, d: Array, weight: Any) -> tuple[Array, Array]:
        """Targets z(d) and weights w²(d) times ``weight`` of preferences of magnitude d."""
        if self.weight is None:
            return self.target(d), weight * np.ones(len(d))
        with np.errstate(over="ignore", divide="ignore", under="ignore", invalid="ignore"):
            weight = self.weight(d) * weight
        wrong = np.flatnonzero(~np.isfinite(weight))
        if len(wrong):
            where = wrong[np.argmin(d[wrong])]
            what = "0 (a tie)," if d[where] == 0 else f"{d[where]:g},"
            raise ValueError(
                f"cost={self.name!r} has no finite weight for a magnitude of {what} which is too "
                "small; round the scores, leave such pairs out, or use cost='unit'"
            )
        return self.target(d), weight


#: The costs by name.
COSTS = {
    cost.name: cost
    for cost in (
        Cost("magnitude", lambda d: d, linear=True),
        Cost("unit", np.sign, level_scores=_normalised_ranks),
        Cost("relative", lambda d: d, weight=lambda d: 1.0 / d**2),
    )
}


class Loss:
    """The squared loss of preferences: the options ``cost``, ``ties`` and ``query_weighting``.

    ``keeps_ties``: whether all rows of a query are compared, with r = L y for the scores y.
    """

    def __init__(
        self, cost: str = "magnitude", ties: str = "keep", query_weighting: Any = "pair"
    ) -> None:
        self.cost = COSTS[check_option("cost", cost, COSTS)]
        self.ties = check_option("ties", ties, ("keep", "drop"))
        if not callable(query_weighting):
            check_option("query_weighting", query_weighting, DIVISORS)
        self.query_weighting = query_weighting
        self.keeps_ties = self.cost.linear and ties == "keep"
