"""Posterior variances of pairs, for the model as a Gaussian process with covariance K ⊗ G.

With S = K ⊗ G + alpha I over the observed pairs and free offsets T, f at a pair with kernel values
k has the variance k₀ − kᵀ Q k with Q = S⁻¹ − S⁻¹T (TᵀS⁻¹T)⁺ TᵀS⁻¹.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped
from rankrls.core.relations.incomplete import CellKernel
from rankrls.core.relations.problem import RelationProblem

__all__ = ["MAX_CELLS", "CellPosterior"]

Array = NDArray[Any]

#: Maximal number of observed pairs of an incomplete relation for which variances are computed.
MAX_CELLS = 3000

#: Numbers in a block of kernel values between new and observed cells.
WORK = 2**24


class CellPosterior:
    """Posterior variances of pairs; what they have in common is factorised once."""

    def __init__(self, problem: RelationProblem, alpha: float) -> None:
        self.problem, self.alpha = problem, alpha

    @cached_property
    def _form(self) -> CompleteSpectrum | None:
        """The closed form of a complete relation, or None."""
        Y = self.problem.labels()
        return None if Y is None else closed_form(*self.problem.sides, Y, self.problem.loss)

    @cached_property
    def _factor(self) -> tuple[Any, Array, Array]:
        """The Cholesky factor of S, S⁻¹T, and (TᵀS⁻¹T)⁺."""
        cells = self.problem.observations.cells
        S = CellKernel(self.problem.sides, cells, self.problem.loss).dense()
        S[np.diag_indices_from(S)] += self.alpha / cells.weight
        factor = cho_factor(S, lower=True, check_finite=False)
        T = np.ones((len(cells), int(self.problem.free.constant)))
        if self.problem.free.rows:
            T = (cells.rows[:, None] == np.unique(cells.rows)).astype(float)
        solved = cho_solve(factor, T)
        return factor, solved, np.linalg.pinv(T.T @ solved, hermitian=True)

    def variances(self, left: Any, right: Any, *, level: float = 1.0) -> Array:
        """Compute the variances of all pairs, or of differences of columns, shape (p', g').

        Objects of both sides have kernel values with the training objects, (n', n), and with
        themselves, (n',). ``level`` is the coefficient of a free constant, 0 for differences.
        """
        (left, left_prior), (right, right_prior) = left, right
        prior = np.outer(left_prior, right_prior)
        form, alpha = self._form, self.alpha
        if form is None:
            return np.maximum(prior - self._explained_by_cells(left, right, level), 0.0)
        V, U = form.left.range, form.right.range
        D = damped(np.outer(V.values, U.values), alpha)
        a, b = left @ V.vectors, right @ U.vectors
        explained = a**2 @ D @ (b**2).T
        if form.constant:
            ones, (_, size) = form.ones
            weighted = ones * D
            total = float(np.vdot(weighted, ones)) + size / alpha
            explained -= (level - a @ weighted @ b.T) ** 2 / total
        return np.maximum(prior - explained, 0.0)

    def _explained_by_cells(self, left: Array, right: Array, level: float) -> Array:
        cells = self.problem.observations.cells
        factor, solved, inverse = self._factor
        p, g = len(left), len(right)
        out = np.empty((p, g))
        size = max(1, WORK // max(len(cells) * g, 1))
        for start in range(0, p, size):
            part = left[start : start + size][:, cells.rows]
            k = (part[:, None] * right[:, cells.cols]).reshape(-1, len(cells))
            explained = np.vecdot(k, cho_solve(factor, k.T).T)
            rest = k @ solved
            if self.problem.free.constant:
                rest = level - rest
            explained -= np.vecdot(rest @ inverse, rest)
            out[start : start + size] = explained.reshape(-1, g)
        return out
