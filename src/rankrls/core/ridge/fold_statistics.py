"""Models without each fold of whole queries, and their held-out loss, from sums over folds.

The model without a fold is that of the sum of the other folds, so that nothing cancels. Its loss is

    Σ_edges w² (z − (f(x_h) − f(x_j)))² = wᵀ(ΦᵀLΦ)w − 2 wᵀΦᵀr + Σ_edges w² z².
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.laplacian import Objective
from rankrls.core.preferences.query_weights import Groups
from rankrls.core.preferences.statistics import Statistics, add_batch
from rankrls.core.ridge.models import PrimalSolver

Array = NDArray[Any]


class FoldStatistics:
    """Statistics of k folds of whole queries, for all outputs; ``scaled`` as in `factorize`."""

    def __init__(self, folds: Sequence[Sequence[Statistics]], *, scaled: bool) -> None:
        self.folds, self._scaled = folds, scaled
        self.n_outputs = sum(len(part.outputs) for part in folds[0])

    def total(self) -> list[Statistics]:
        """Sum the statistics of all folds, in new arrays."""
        return self._sum(range(len(self.folds)))

    def size(self) -> float:
        """Trace of ΦᵀLΦ, an upper bound of its largest eigenvalue."""
        traces = np.zeros(self.n_outputs)
        for part in (part for fold in self.folds for part in fold):
            traces[part.outputs] += np.trace(part.gram)
        return float(traces.max())

    @np.errstate(over="ignore", invalid="ignore")
    def weights_without(self, fold: int, alphas: Array) -> Array:
        """Compute weights of the models without a fold, shape (n_alphas, n, n_outputs)."""
        rest = self._sum(other for other in range(len(self.folds)) if other != fold)
        n = len(rest[0].gram)
        W = np.empty((len(alphas), n, self.n_outputs))
        for part in rest:
            solver = PrimalSolver(part, alphas, for_path=len(alphas) > 1, scaled=self._scaled)
            W[..., part.outputs] = solver.coefficients(alphas)
        return W

    def explained_part(self, alphas: Array) -> Array:
        """1 − (held-out squared loss)/(sum of squared targets), (n_alphas, n_outputs)."""
        loss, energy = np.zeros((len(alphas), self.n_outputs)), np.zeros(self.n_outputs)
        for number, fold in enumerate(self.folds):
            W = self.weights_without(number, alphas)
            for part in fold:
                w = W[..., part.outputs]
                squares = np.einsum("ank,ank->ak", w, part.gram @ w)
                products = np.einsum("ank,nk->ak", w, part.cross)
                loss[:, part.outputs] += squares - 2 * products + part.energy
                energy[part.outputs] += part.energy
        return _one_minus(loss, energy)

    def _sum(self, numbers: Any) -> list[Statistics]:
        total: list[Statistics] | None = None
        for number in numbers:
            fold = self.folds[number]
            total = [p.copy() for p in fold] if total is None else add_batch(total, fold)
        assert total is not None
        return total


def explained_part(objectives: Sequence[Objective], lists: Array, values: Array) -> Array:
    """The same from held-out predictions ``values``, shape (n_alphas, m, n_outputs).

    ``lists``, of shape (m,), is the list of every row, inside which edges lie.
    """
    n_alphas, _, n_outputs = values.shape
    loss, energy = np.empty((n_alphas, n_outputs)), np.empty(n_outputs)
    groups = Groups(lists, None, int(lists.max()) + 1)
    for objective in objectives:
        L, outputs = objective.laplacian, objective.outputs
        energy[outputs] = objective.energy
        for a in range(n_alphas):
            f = values[a][:, outputs]
            f = f - groups.mean(f)[lists]  # L ignores the mean, which may be large
            loss[a, outputs] = (f * (L.apply(f) - 2 * L.r)).sum(axis=0) + objective.energy
    return _one_minus(loss, energy)


def _one_minus(loss: Array, energy: Array) -> Array:
    if not (energy > 0).all():
        raise ValueError("no held-out pair of rows has different scores: there is no loss to score")
    return 1 - loss / energy
