"""Sums of statistics over batches of rows: of whole queries, and of one ranking in pieces.

`Accumulator` adds and takes away batches without a preference between them. `RankingAccumulator`
joins the pieces of one ranking, where every row is compared with the rows of all other pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.groups import Groups
from rankrls.core.preferences.laplacian import ScatterSystem
from rankrls.core.preferences.statistics import Statistics

__all__ = ["Accumulator", "RankingAccumulator", "batch_statistics"]

Array = NDArray[Any]


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused below
def batch_statistics(graph: PreferenceGraph, Phi: Any, loss: dict[str, str]) -> list[Statistics]:
    """Statistics of features Φ of shape (m, n), for the outputs that have an edge in ``graph``.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    Phi : ndarray or sparse array of shape (m, n)
    loss : dict
        cost, ties and query_weighting.
    """
    parts = []
    for objective in graph.objectives(**loss):
        if objective.n_pairs == 0:
            continue
        if not objective.system.row_weight().any():
            raise ValueError("the weights are so small that their products vanish: scale them up")
        part = Statistics.of(objective, Phi)
        _require_finite(part)
        parts.append(part)
    return parts


class Accumulator:
    """A running sum of statistics, one for every group of outputs that share all their graphs.

    Which outputs share a graph may differ from batch to batch (equal levels here, other levels
    there): groups are split as soon as a batch tells their outputs apart.

    Parameters
    ----------
    parts : iterable of Statistics, together covering all outputs
        Their arrays are changed in place.
    """

    def __init__(self, parts: Iterable[Statistics]) -> None:
        self.parts = list(parts)

    @classmethod
    def zero(cls, n_features: int, n_outputs: int) -> Accumulator:
        """The sum of no batch."""
        return cls([Statistics.empty(np.arange(n_outputs), n_features)])

    @property
    def n_pairs(self) -> int:
        """Edges, summed over the graphs of the outputs."""
        return sum(part.n_pairs for part in self.parts)

    def add(self, batch: Sequence[Statistics]) -> None:
        """Add the statistics of more rows."""
        self.parts = [_added(mine, theirs) for mine, theirs in self._refine(batch)]
        for part in self.parts:
            _require_finite(part)

    def subtract(self, batch: Sequence[Statistics], eps: float, tolerance: float) -> None:
        """Take the statistics of rows away, or raise if they cannot be part of the sum.

        Parameters
        ----------
        batch : sequence of Statistics
        eps : float
            Relative rounding of the products that the statistics come from.
        tolerance : float
            How much of a sum, relative to what it was, may be left where it should be zero.
        """
        self.parts = [
            _subtracted(mine, theirs, eps, tolerance) for mine, theirs in self._refine(batch)
        ]

    def _refine(self, batch: Sequence[Statistics]) -> list[tuple[Statistics, Statistics | None]]:
        """Pairs (mine, theirs) over the same outputs; None where the batch has nothing."""
        pairs: list[tuple[Statistics, Statistics | None]] = []
        for mine in self.parts:
            rest = mine
            for theirs in batch:
                shared = np.intersect1d(rest.outputs, theirs.outputs)
                if len(shared) == 0:
                    continue
                others = np.setdiff1d(rest.outputs, shared)
                pairs.append((_select(rest, shared, copy=len(others) > 0), _select(theirs, shared)))
                rest = _select(rest, others)
            if len(rest.outputs):
                pairs.append((rest, None))
        return pairs


class RankingAccumulator:
    """One ranking in pieces, for cost="magnitude" with ties kept.

    Such a ranking is κ times a weighted scatter, and scatters of pieces A and B join by

        S = S_A + S_B + N_A N_B/(N_A + N_B) (x̄_A − x̄_B)(x̄_A − x̄_B)ᵀ,

    a sum of non-negative terms (Chan, Golub and LeVeque). The scores are joined in the same way.
    """

    def __init__(self) -> None:
        self.total: Statistics | None = None
        self.score_mean: Array = np.zeros(0)
        self.n_weighted = 0
        self.square_weight = 0.0
        self.log_weight = 0.0

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, Phi: Any, s: Array, weight: Array | None) -> None:
        """Add rows Φ of shape (m, n) with scores of shape (m, k) and weights of shape (m,)."""
        if weight is not None:
            used = weight > 0
            if not used.all():
                Phi, s, weight = Phi[used], s[used], weight[used]
        m, k = s.shape
        if m == 0:
            return
        groups = Groups(np.zeros(m, dtype=np.int64), weight, 1)
        system = ScatterSystem(groups, np.ones(1), s)
        moments = system.moments(Phi)
        piece = Statistics(
            np.arange(k),
            moments.gram,
            moments.cross,
            moments.mean,
            float(groups.total[0]),
            system.energy,
            0,
            0.0,
            moments.noise,
        )
        score_mean = groups.mean(s)[0]
        self.n_weighted += m
        self.square_weight += float(groups.weight @ groups.weight)
        self.log_weight += float(np.log(groups.weight).sum())
        _require_finite(piece)
        if self.total is None:
            self.total, self.score_mean = piece, score_mean
            return
        x, y = piece.mean - self.total.mean, score_mean - self.score_mean
        share = piece.mass / (self.total.mass + piece.mass)
        between = self.total.mass * share
        self.total = _added(self.total, piece)
        self.total.gram[...] += between * np.outer(x, x)
        self.total.cross[...] += between * np.outer(x, y)
        self.total.energy[...] += between * y**2
        self.score_mean = self.score_mean + share * y
        _require_finite(self.total)

    def statistics(self, query_weighting: str) -> Statistics:
        """Statistics of the whole ranking, which take over the arrays."""
        assert self.total is not None
        n, N = self.n_weighted, self.total.mass
        n_pairs = n * (n - 1) // 2
        if n_pairs == 0:
            return Statistics.empty(self.total.outputs, len(self.total.gram))
        edge_weight = (N**2 - self.square_weight) / 2
        c = 1.0 / {"pair": 1.0, "size": N, "query": edge_weight}[query_weighting]
        kappa = c * N
        for array in (self.total.gram, self.total.cross, self.total.energy):
            array *= kappa
        return replace(
            self.total,
            n_pairs=n_pairs,
            log_weight=n_pairs * float(np.log(c)) + (n - 1) * self.log_weight,
            noise=kappa * self.total.noise,
        )


def _select(part: Statistics, outputs: Array, *, copy: bool = False) -> Statistics:
    """The statistics of some of its outputs; ``copy``: with a Gram matrix of its own."""
    if not copy and np.array_equal(part.outputs, outputs):
        return part
    where = [int(np.flatnonzero(part.outputs == output)[0]) for output in outputs]
    return replace(
        part,
        outputs=outputs,
        gram=part.gram.copy() if copy else part.gram,
        cross=part.cross[:, where],
        mean=part.mean.copy(),
        energy=part.energy[where],
    )


def _added(mine: Statistics, theirs: Statistics | None) -> Statistics:
    """The sum, in the arrays of ``mine``."""
    if theirs is None:
        return mine
    for ours, other in _arrays(mine, theirs):
        ours += other
    mass = mine.mass + theirs.mass
    mine.mean[...] += (theirs.mass / mass) * (theirs.mean - mine.mean)
    return replace(
        mine,
        mass=mass,
        n_pairs=mine.n_pairs + theirs.n_pairs,
        log_weight=mine.log_weight + theirs.log_weight,
        noise=mine.noise + theirs.noise,
    )


def _subtracted(
    mine: Statistics, theirs: Statistics | None, eps: float, tolerance: float
) -> Statistics:
    """The difference, in the arrays of ``mine``; exactly zero where no edge is left."""
    if theirs is None:
        return mine
    n_pairs, mass = mine.n_pairs - theirs.n_pairs, mine.mass - theirs.mass
    before, energy = mine.gram.diagonal().copy(), mine.energy.copy()
    for ours, other in _arrays(mine, theirs):
        ours -= other
    after = mine.gram.diagonal()
    rounding = eps * float(before.max(initial=0.0))
    slack = tolerance * before + 1e3 * rounding + len(before) * (mine.noise + theirs.noise)
    too_much = n_pairs < 0 or mass < -tolerance * mine.mass or (n_pairs > 0 and mass <= 0)
    too_much |= bool((after < -slack).any() or (mine.energy < -tolerance * energy).any())
    if n_pairs == 0:  # all edges go: all else must go with them
        too_much |= mass > tolerance * mine.mass or bool((after > slack).any())
    if too_much:
        raise ValueError(
            f"the model has not learned from these rows as they are: of {mine.n_pairs:,} pairs "
            f"{theirs.n_pairs:,} were to be forgotten, and what would be left is no sum of pairs. "
            "Forget rows with the features, scores, weights and pairs that they were added with"
        )
    if n_pairs == 0:
        return Statistics.empty(mine.outputs, len(before))
    mine.mean[...] -= (theirs.mass / mass) * (theirs.mean - mine.mean)
    np.maximum(mine.energy, 0.0, out=mine.energy)
    return replace(
        mine,
        mass=mass,
        n_pairs=n_pairs,
        log_weight=mine.log_weight - theirs.log_weight,
        # The Gram matrix keeps the rounding of the larger one that it came from.
        noise=float(np.sqrt(mine.noise**2 + theirs.noise**2 + rounding**2)),
    )


def _arrays(mine: Statistics, theirs: Statistics) -> Iterable[tuple[Array, Array]]:
    yield mine.gram, theirs.gram
    yield mine.cross, theirs.cross
    yield mine.energy, theirs.energy


def _require_finite(part: Statistics) -> None:
    """Raise if numbers overflowed; the diagonal of a Gram matrix bounds all of it."""
    if not (np.isfinite(part.gram.diagonal()).all() and np.isfinite(part.cross).all()):
        raise ValueError(
            "the numbers overflow float64: scale the features, the scores or the weights down"
        )
