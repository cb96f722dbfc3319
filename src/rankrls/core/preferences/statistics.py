"""Sufficient statistics: all that a primal solver needs to know of rows and their preferences.

They add up over sets of rows without a preference between them (whole queries), which is why a
model can be trained batch by batch, and unlearn a batch, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.objectives import Objective

__all__ = ["Statistics"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Statistics:
    """ΦᵀLΦ, Φᵀr and counts, in float64, for the outputs that share one preference graph.

    Attributes
    ----------
    outputs : ndarray of shape (k,), int
        The columns of y that they cover.
    gram : ndarray of shape (n, n)
        ΦᵀLΦ.
    cross : ndarray of shape (n, k)
        Φᵀr.
    mean : ndarray of shape (n,)
        The mean row over the rows that have an edge, with their weights.
    mass : float
        The sum of those weights.
    energy : ndarray of shape (k,)
        Σ_edges w² z².
    n_pairs : int
        Number of edges.
    log_weight : float
        Σ_edges log w².
    noise : float
        Size of rounding errors in ``gram`` where it is more than that of any matrix product.
    """

    outputs: Array
    gram: Array
    cross: Array
    mean: Array
    mass: float
    energy: Array
    n_pairs: int
    log_weight: float
    noise: float = 0.0

    @classmethod
    def of(cls, objective: Objective, Phi: Any) -> Statistics:
        """Compute them for features Φ, dense or sparse, of shape (m, n)."""
        moments = objective.system.moments(Phi)
        k = len(objective.outputs)
        return cls(
            objective.outputs,
            moments.gram,
            np.repeat(moments.cross, k // moments.cross.shape[1], axis=1),
            moments.mean,
            float(objective.system.row_weight().sum()),
            np.repeat(objective.energy, k // len(objective.energy)),
            objective.n_pairs,
            objective.log_weight,
            moments.noise,
        )

    @classmethod
    def empty(cls, outputs: Array, n: int) -> Statistics:
        """Those of no rows of n features."""
        k = len(outputs)
        gram, cross, mean = np.zeros((n, n)), np.zeros((n, k)), np.zeros(n)
        return cls(outputs, gram, cross, mean, 0.0, np.zeros(k), 0, 0.0)

    def copy(self) -> Statistics:
        """The same in new arrays."""
        arrays = {name: getattr(self, name).copy() for name in ("gram", "cross", "mean", "energy")}
        return replace(self, **arrays)

    def __add__(self, other: Statistics) -> Statistics:
        return self._combine(other, 1)

    def __sub__(self, other: Statistics) -> Statistics:
        return self._combine(other, -1)

    def _combine(self, other: Statistics, sign: int) -> Statistics:
        mass = self.mass + sign * other.mass
        mean = self.mass * self.mean + sign * other.mass * other.mean
        return replace(
            self,
            gram=self.gram + sign * other.gram,
            cross=self.cross + sign * other.cross,
            mean=mean / mass if mass > 0 else np.zeros_like(mean),
            mass=mass,
            energy=self.energy + sign * other.energy,
            n_pairs=self.n_pairs + sign * other.n_pairs,
            log_weight=self.log_weight + sign * other.log_weight,
            noise=self.noise + other.noise,
        )
