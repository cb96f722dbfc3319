"""ΦᵀLΦ, Φᵀr and counts: sums over sets of rows without preferences between them (whole queries).

`RankingStatistics` merges the parts of one ranking, whose rows are compared with those of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.costs import Loss, query_factor
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import CentredLaplacian, Groups, Laplacian

Array = NDArray[Any]

UNDERFLOW = "the weights are so small that their products underflow; scale them up"

EPS = float(np.finfo(np.float64).eps)


@dataclass
class Statistics:
    """ΦᵀLΦ, Φᵀr and counts, in float64, for the outputs that share one preference graph.

    ``a += b`` adds the statistics of other rows, ``a -= b`` subtracts them again; both modify the
    arrays of ``a`` in place and require the same outputs.
    """

    outputs: Array  # the columns of y to which they apply, (k,), int
    gram: Array  # ΦᵀLΦ, (n, n)
    cross: Array  # Φᵀr, (n, k)
    mean: Array  # the weighted mean row over the rows that have an edge, (n,)
    mass: float  # and the sum of these weights
    energy: Array  # Σ_edges w² z², (k,)
    n_pairs: int  # number of edges
    log_weight: float  # Σ_edges log w²
    #: The largest values that the diagonal of ``gram``, (n,), and ``energy``, (k,), have ever had.
    #: Rounding errors in the sums are relative to them, even after rows are subtracted; |Φᵀr| is at
    #: most the square root of their product.
    largest: Array
    largest_energy: Array
    #: Relative rounding error of the products: more than eps for float32 and Nyström features.
    rounding: float = EPS

    @classmethod
    def of(cls, objective: Laplacian, Phi: Any) -> Statistics:
        """Compute the statistics of features Φ, (m, n); covariates of given pairs are appended."""
        k = len(objective.outputs)
        gram, cross, mean = objective.moments(Phi)
        cross = np.repeat(cross, k // cross.shape[1], axis=1)
        energy = np.repeat(objective.energy, k // len(objective.energy))
        return cls(
            objective.outputs,
            gram,
            cross,
            mean,
            float(objective.row_weight().sum()),
            energy,
            objective.n_pairs,
            objective.log_weight,
            gram.diagonal().copy(),
            energy.copy(),
            float(np.finfo(Phi.dtype).eps),
        )

    @classmethod
    def empty(cls, outputs: Array, n: int) -> Statistics:
        """Statistics of zero rows with n features."""
        k = len(outputs)
        gram, cross, mean, energy = np.zeros((n, n)), np.zeros((n, k)), np.zeros(n), np.zeros(k)
        return cls(outputs, gram, cross, mean, 0.0, energy, 0, 0.0, np.zeros(n), np.zeros(k))

    def copy(self) -> Statistics:
        """Return a copy."""
        return self.select(self.outputs)

    def select(self, outputs: Array) -> Statistics:
        """Copy the statistics of some outputs."""
        where = [int(np.flatnonzero(self.outputs == output)[0]) for output in outputs]
        return replace(
            self,
            outputs=outputs,
            gram=self.gram.copy(),
            cross=self.cross[:, where],
            mean=self.mean.copy(),
            energy=self.energy[where],
            largest=self.largest.copy(),
            largest_energy=self.largest_energy[where],
        )

    def __iadd__(self, other: Statistics) -> Statistics:
        self.gram += other.gram
        self.cross += other.cross
        self.energy += other.energy
        self.mean, _, _ = merged_means(self.mass, self.mean, other.mass, other.mean)
        self.mass += other.mass
        self.n_pairs += other.n_pairs
        self.log_weight += other.log_weight
        self.rounding = max(self.rounding, other.rounding)
        for largest in (other.largest, self.gram.diagonal()):
            np.maximum(self.largest, largest, out=self.largest)
        for largest in (other.largest_energy, self.energy):
            np.maximum(self.largest_energy, largest, out=self.largest_energy)
        return self

    def __isub__(self, other: Statistics) -> Statistics:
        """Subtract rows; raise an error if they cannot be part of the sum."""
        rounding = max(self.rounding, other.rounding)
        # Tolerance of half the digits: features with an offset are less accurate, and a false error
        # for rows that were added would be worse than a missed one.
        tolerance = 100 * float(np.sqrt(rounding))
        n_pairs, mass = self.n_pairs - other.n_pairs, self.mass - other.mass
        before, energy = self.gram.diagonal().copy(), self.energy.copy()
        self.gram -= other.gram
        self.cross -= other.cross
        self.energy -= other.energy
        after = self.gram.diagonal()
        slack = tolerance * before + 1e3 * rounding * np.maximum(self.largest, other.largest)
        too_much = n_pairs < 0 or mass < -tolerance * self.mass or (n_pairs > 0 and mass <= 0)
        too_much |= bool((after < -slack).any() or (self.energy < -tolerance * energy).any())
        if n_pairs == 0:  # without edges, everything else must be zero as well
            too_much |= mass > tolerance * self.mass or bool((after > slack).any())
        if too_much:
            raise ValueError(
                "the model was not trained on these rows in this form: subtracting "
                f"{other.n_pairs:,} of {self.n_pairs:,} pairs does not leave a valid sum over "
                "pairs. Forget rows with the features, scores, weights and pairs with which they "
                "were added"
            )
        if n_pairs == 0:
            self.__dict__.update(vars(Statistics.empty(self.outputs, len(self.gram))))
            return self
        self.mean -= (other.mass / mass) * (other.mean - self.mean)
        np.maximum(self.energy, 0.0, out=self.energy)
        self.mass, self.n_pairs, self.rounding = mass, n_pairs, rounding
        self.log_weight -= other.log_weight
        return self

    def rescale(self, factor: Array, offset: Array) -> None:
        """Transform to the statistics of (Φ − offset) · factor, of shape (n,) each, in place."""
        self.gram *= factor[:, None]
        self.gram *= factor
        self.cross *= factor[:, None]
        self.mean = (self.mean - offset) * factor
        self.largest *= factor**2

    def lost_digits(self, alpha: float) -> float:
        """Ratio of the rounding errors in the sums to those of a new fit."""
        # Of the past to the present diagonal plus alpha; for Φᵀr also of the squared targets.
        present = np.maximum(self.gram.diagonal(), 0.0) + alpha
        features = float((self.largest / present).max(initial=1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            targets = np.nan_to_num(self.largest_energy / self.energy, nan=1.0, posinf=np.inf)
        return max(features, float(np.sqrt(features * targets.max(initial=1.0))))

    def require_finite(self) -> None:
        """Raise an error on overflow; the diagonal of a Gram matrix bounds all entries."""
        if not (np.isfinite(self.gram.diagonal()).all() and np.isfinite(self.cross).all()):
            raise ValueError(
                "the numbers overflow float64; scale the features, the scores or the weights down"
            )


@np.errstate(over="ignore", invalid="ignore")  # overflow raises an error below
def batch_statistics(graph: PreferenceGraph, Phi: Any, loss: Loss) -> list[Statistics]:
    """Statistics of features Φ of shape (m, n), for the outputs that have an edge in ``graph``."""
    parts = []
    for objective in graph.objectives(loss):
        if objective.n_pairs == 0:
            continue
        if not objective.row_weight().any():
            raise ValueError(UNDERFLOW)
        part = Statistics.of(objective, Phi)
        part.require_finite()
        parts.append(part)
    return parts


def add_batch(
    total: Sequence[Statistics], batch: Sequence[Statistics], sign: int = 1
) -> list[Statistics]:
    """Add the statistics of a batch to a sum (overwritten), or subtract them (sign −1).

    The sum has one part for each group of outputs that have shared all their graphs.
    """
    parts = []
    for rest in total:
        for other in batch:
            shared = np.intersect1d(rest.outputs, other.outputs)
            if not len(shared):
                continue
            others = np.setdiff1d(rest.outputs, shared)
            mine = rest.select(shared) if len(others) else rest
            theirs = other if len(shared) == len(other.outputs) else other.select(shared)
            if sign < 0:
                mine -= theirs
            else:
                mine += theirs
            mine.require_finite()
            parts.append(mine)
            rest = rest.select(others)
        if len(rest.outputs):
            parts.append(rest)
    return parts


def merged_means(a: Any, mean_a: Array, b: Any, mean_b: Array) -> tuple[Array, Any, Array]:
    """Mean of two sets of rows of weights a and b; ab/(a + b); and δ, the difference of means."""
    # Scatters merge as S = S_a + S_b + ab/(a + b) δδᵀ (Chan, Golub and LeVeque).
    share = np.divide(b, a + b, out=np.zeros(np.shape(a + b)), where=np.asarray(a + b) > 0)
    step = mean_b - mean_a
    return mean_a + share * step, a * share, step


class RankingStatistics:
    """Statistics of one ranking given in parts, for cost="magnitude" with ties kept: a scatter."""

    def __init__(self) -> None:
        self.total: Statistics | None = None
        self.score_mean: Array = np.zeros(0)
        self.n_weighted = 0
        self.edge_weight = 0.0  # Σ_{i<j} ω_i ω_j, as a sum of positive terms
        self.log_weight = 0.0
        self.low, self.high = np.array(np.inf), np.array(-np.inf)  # scores of each output

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, Phi: Any, s: Array, weight: Array | None) -> RankingStatistics:
        """Statistics of rows Φ, shape (m, n), with scores, (m, k), and weights, (m,)."""
        part = cls()
        if weight is not None and not weight.all():
            used = weight > 0
            Phi, s, weight = Phi[used], s[used], weight[used]
        m, k = s.shape
        if m:
            groups = Groups(np.zeros(m, dtype=np.int64), weight, 1)
            scatter = CentredLaplacian(groups, np.ones(1), s)
            scatter.outputs, scatter.n_pairs, scatter.log_weight = np.arange(k), 0, 0.0
            part.total = Statistics.of(scatter, Phi)
            part.total.require_finite()
            part.score_mean, part.n_weighted = groups.mean(s)[0], m
            part.edge_weight = float(groups.weight[1:] @ np.cumsum(groups.weight)[:-1])
            part.log_weight = float(np.log(groups.weight).sum())
            part.low, part.high = s.min(axis=0), s.max(axis=0)
        return part

    @np.errstate(over="ignore", invalid="ignore")
    def merge(self, other: RankingStatistics) -> RankingStatistics:
        """Add the rows of another part; arrays of both may be overwritten."""
        if self.total is None or other.total is None:
            return other if self.total is None else self
        mass, rest = self.total.mass, other.total.mass
        _, between, x = merged_means(mass, self.total.mean, rest, other.total.mean)
        self.score_mean, _, y = merged_means(mass, self.score_mean, rest, other.score_mean)
        other.total.gram += between * np.outer(x, x)
        other.total.cross += between * np.outer(x, y)
        other.total.energy += between * y**2
        self.total += other.total
        self.total.require_finite()
        self.n_weighted += other.n_weighted
        self.edge_weight += other.edge_weight + mass * rest
        self.log_weight += other.log_weight
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return self

    @property
    def n_preferences(self) -> Array:
        """1 for each output that prefers some row to another, shape (k,), int."""
        return (self.low < self.high).astype(np.int64)

    @property
    def n_pairs(self) -> int:
        """Number of edges."""
        return self.n_weighted * (self.n_weighted - 1) // 2

    def kappa(self, query_weighting: Any) -> float:
        """κ = c N, the factor of the scatter."""
        assert self.total is not None
        c = float(query_factor(query_weighting, self.total.mass, self.edge_weight))
        if not c * self.total.mass > 0:
            raise ValueError(UNDERFLOW)
        return c * self.total.mass

    def statistics(self, query_weighting: Any) -> Statistics:
        """Statistics of the whole ranking, which share the arrays."""
        assert self.total is not None
        if self.n_pairs == 0:
            return Statistics.empty(self.total.outputs, len(self.total.gram))
        kappa = self.kappa(query_weighting)
        sums = (self.total.gram, self.total.cross, self.total.energy)
        for array in (*sums, self.total.largest, self.total.largest_energy):
            array *= kappa
        log_c = float(np.log(kappa / self.total.mass))
        log_weight = self.n_pairs * log_c + (self.n_weighted - 1) * self.log_weight
        return replace(self.total, n_pairs=self.n_pairs, log_weight=log_weight)
