"""Posterior variances of pairs, for the model as a Gaussian process with covariance K ⊗ G.

The noise of a label has variance alpha. With S = K ⊗ G + alpha I over the observed pairs and free
offsets T (flat prior), the variance of f at a pair with kernel values k is

    k₀ − kᵀ Q k,     Q = S⁻¹ − S⁻¹T (TᵀS⁻¹T)⁺ TᵀS⁻¹,

and that of f + c with a free constant c is k₀ − kᵀS⁻¹k + (1 − kᵀS⁻¹1)²/1ᵀS⁻¹1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped
from rankrls.core.relations.incomplete import CellKernel
from rankrls.core.relations.labels import Cells
from rankrls.core.relations.problem import RelationProblem

__all__ = ["MAX_CELLS", "CellPoints", "cell_variances"]

Array = NDArray[Any]

#: Maximal number of observed pairs of an incomplete relation for which variances are computed.
MAX_CELLS = 3000

#: Numbers in a block of kernel values between new and observed cells.
WORK = 2**24


@dataclass(frozen=True)
class CellPoints:
    """Pairs of row and column objects, or differences of two columns for a row object.

    Attributes
    ----------
    left : ndarray of shape (p', p)
        Kernel values between the row objects and the training row objects.
    right : ndarray of shape (g', g)
        Kernel values between the column objects and the training column objects, or differences
        of the kernel values of two column objects.
    left_prior : ndarray of shape (p',)
        k(x, x).
    right_prior : ndarray of shape (g',)
        g(z, z), or g(a, a) + g(b, b) − 2 g(a, b).
    level : float
        Coefficient of the constant offset: 1, or 0 for differences.
    """

    left: Array
    right: Array
    left_prior: Array
    right_prior: Array
    level: float = 1.0


def cell_variances(problem: RelationProblem, alpha: float, points: CellPoints) -> Array:
    """Compute posterior variances of all pairs of ``points``, shape (p', g').

    Parameters
    ----------
    problem : RelationProblem
        A problem without a sign, without offsets of columns, and without offsets of rows except
        those of the ranking loss. Its labels are not used.
    alpha : float
    points : CellPoints
    """
    block = problem.block()
    prior = np.outer(points.left_prior, points.right_prior)
    if block is not None and block.Y.shape == problem.observations.shape:
        form = closed_form(*problem.sides, block.Y, problem.loss)
        assert isinstance(form, CompleteSpectrum)
        explained = _explained_by_all(form, alpha / block.multiplicity, points)
    else:
        explained = _explained_by_cells(problem, alpha, points)
    return np.maximum(prior - explained, 0.0)


def _explained_by_all(form: CompleteSpectrum, alpha: float, points: CellPoints) -> Array:
    left, right = form.left.range, form.right.range
    D = damped(np.outer(left.values, right.values), alpha)
    a, b = points.left @ left.vectors, points.right @ right.vectors
    explained = a**2 @ D @ (b**2).T
    if form.constant:
        ones, (_, size) = form._ones
        weighted = ones * D
        total = float(np.vdot(weighted, ones)) + size / alpha
        explained -= (points.level - a @ weighted @ b.T) ** 2 / total
    return explained


def _explained_by_cells(problem: RelationProblem, alpha: float, points: CellPoints) -> Array:
    cells = problem.observations.cells
    rows, columns = problem.sides
    S = CellKernel((rows.values, columns.values), cells, problem.loss).dense()
    S[np.diag_indices_from(S)] += alpha / cells.weight
    factor = cho_factor(S, lower=True, check_finite=False)
    T = _offset_columns(problem, cells)
    solved = cho_solve(factor, T)
    inverse = np.linalg.pinv(T.T @ solved, hermitian=True)
    p, g = len(points.left), len(points.right)
    out = np.empty((p, g))
    size = max(1, WORK // max(len(cells) * g, 1))
    for start in range(0, p, size):
        left = points.left[start : start + size][:, cells.rows]
        k = (left[:, None] * points.right[:, cells.cols]).reshape(-1, len(cells))
        explained = np.vecdot(k, cho_solve(factor, k.T).T)
        rest = k @ solved
        if problem.free.constant:
            rest = points.level - rest
        explained -= np.vecdot(rest @ inverse, rest)
        out[start : start + size] = explained.reshape(-1, g)
    return out


def _offset_columns(problem: RelationProblem, cells: Cells) -> Array:
    """Build T of shape (q, n_offsets)."""
    if problem.free.rows:
        return (cells.rows[:, None] == np.unique(cells.rows)).astype(float)
    return np.ones((len(cells), int(problem.free.constant)))
