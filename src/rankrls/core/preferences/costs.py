"""Costs: the loss w²(d) (z(d) − (f_h − f_j))² of a preference of magnitude d."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_option
from rankrls.core.preferences.query_weights import (
    Levels,
    QueryWeighting,
    QueryWeights,
    check_query_weighting,
)

Array = NDArray[Any]

TIES = ("keep", "drop")


def _normalised_ranks(levels: Levels, weights: QueryWeights) -> tuple[Array, float]:
    """(Ω_lower − Ω_higher)/N of every level, shape (g,), and Σ_edges w² of all queries."""
    Omega, N = weights.Omega, weights.N[levels.query]
    lower = np.cumsum(Omega) - Omega - (np.cumsum(weights.N) - weights.N)[levels.query]
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


@dataclass(frozen=True)
class Loss:
    """The squared loss of preferences: the options ``cost``, ``ties`` and ``query_weighting``."""

    cost: str = "magnitude"
    ties: str = "keep"
    query_weighting: QueryWeighting = "pair"

    def __post_init__(self) -> None:
        check_option("cost", self.cost, COSTS)
        check_option("ties", self.ties, TIES)
        check_query_weighting(self.query_weighting)

    @property
    def of_pair(self) -> Cost:
        """The cost as an object."""
        return COSTS[self.cost]

    @property
    def keeps_ties(self) -> bool:
        """Whether all rows of a query are compared, with r = L y for the scores y."""
        return self.of_pair.linear and self.ties == "keep"
