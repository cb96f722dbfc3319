"""Incomplete relations and multigraphs: the dual system over the observed pairs.

With F the factor of the loss (L = F Fᵀ) and Γ the pairwise kernel between observed pairs, the
coefficients are a = F (FᵀΓF + alpha I)⁻¹ Fᵀy. Small systems are formed and decomposed; large
ones are solved by conjugate gradients with products that never form Γ.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls.kronecker import Cells, EdgeFactor, EdgeKernel
from rankrls.metrics import pairwise_accuracy
from rankrls.relations._krylov import shifted_cg
from rankrls.solvers import SpectralState, factorise

__all__ = ["Iteration", "Validation", "iterate", "solve_dual"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Iteration:
    """How an iterative solution was found.

    Attributes
    ----------
    coefficients : ndarray of shape (n_alphas, p, g)
    n_iter : int
        Iterations of the solution that was kept.
    validation_scores : ndarray of shape (n_iterations,) or None
        Pairwise accuracy on the held-out edges after every iteration.
    """

    coefficients: Array
    n_iter: int
    validation_scores: Array | None = None


@dataclass(frozen=True)
class Validation:
    """Held-out edges for early stopping.

    Attributes
    ----------
    rows, cols : ndarray of shape (n_edges,), int
    y : ndarray of shape (n_edges,)
    patience : int
        Stop after so many iterations without improvement.
    """

    rows: Array
    cols: Array
    y: Array
    patience: int


def solve_dual(
    K: Array, G: Array, cells: Cells, alphas: Array, *, ranking: bool, sign: int
) -> Array:
    """Coefficients of shape (n_alphas, p, g), by one factorisation over the q cells."""
    factor = EdgeFactor(cells, centred=ranking)
    kernel = EdgeKernel(K, G, (cells.rows, cells.cols), sign=sign)
    gram = kernel.dense()
    S = _columns(factor, _columns(factor, gram).T)
    S = 0.5 * (S + S.T)
    b = factor.target[:, None]
    noise = float(np.finfo(np.float64).eps * np.abs(gram.diagonal()).max(initial=0.0))
    state = factorise(S, alphas, b, in_range=False, noise=noise * float(cells.weight.max()))
    if isinstance(state, SpectralState):
        x = state.solve_path(b, alphas)[:, :, 0]
    else:
        x = state.solve(b, float(alphas[0])).T
    return np.stack([kernel.scatter(factor @ solution) for solution in x])


def iterate(
    K: Array,
    G: Array,
    cells: Cells,
    alphas: Array,
    *,
    ranking: bool,
    sign: int,
    max_iter: int,
    tol: float,
    validation: Validation | None = None,
) -> Iteration:
    """Coefficients by conjugate gradients, all alphas from the same products.

    Parameters
    ----------
    K : ndarray of shape (p, p)
    G : ndarray of shape (g, g)
    cells : Cells
        Training pairs.
    alphas : ndarray of shape (n_alphas,)
        One, if there is a ``validation``; it may then be zero.
    ranking : bool
    sign : {0, 1, −1}
    max_iter : int
    tol : float
        On the residual, relative to the right-hand side. Where it is missed there is a
        `ConvergenceWarning`, unless the validation edges stopped the iteration.
    validation : Validation, optional
        Edges that choose the iteration to keep.
    """
    factor = EdgeFactor(cells, centred=ranking)
    train = (cells.rows, cells.cols)
    to = train
    if validation is not None:
        to = tuple(np.concatenate(pair) for pair in zip(train, _ends(validation), strict=True))
    kernel = EdgeKernel(K, G, train, None if to is train else to, sign=sign)
    q = len(cells)
    monitor = None if validation is None else Monitor(validation)

    def apply(v: Array) -> Array:
        product = kernel @ (factor @ v)
        if monitor is not None:
            monitor.along = product[q:]
        return factor._rmatvec(product[:q])

    after = None if monitor is None else monitor.after
    found = shifted_cg(
        apply, factor.target, alphas, max_iter=max_iter, tol=tol, after=after
    )
    x, n_iter = found.x, found.n_iter
    if monitor is not None:
        n_iter = monitor.best_iteration
        x = monitor.best_x[None] if n_iter else np.zeros((1, q))
    elif (found.residuals > tol).any():
        _warn(found.residuals, alphas, n_iter, tol)
    coefficients = np.stack([kernel.scatter(factor @ solution) for solution in x])
    scores = None if monitor is None else np.array(monitor.scores)
    return Iteration(coefficients, n_iter, scores)


class Monitor:
    """Predictions of the held-out edges, advanced with the solution; the best one is kept."""

    def __init__(self, validation: Validation) -> None:
        self.validation = validation
        self.predictions = np.zeros(len(validation.y))
        self.along = self.predictions
        self.scores: list[float] = []
        self.best_iteration = 0
        self.best_x = np.empty(0)

    def after(self, iteration: int, step: float, x: Array) -> bool:
        """Score this iteration; True when it is time to stop."""
        held = self.validation
        self.predictions = self.predictions + step * self.along
        self.scores.append(float(pairwise_accuracy(held.y, self.predictions, qid=held.rows)))
        best = self.scores[self.best_iteration - 1] if self.best_iteration else -np.inf
        if self.scores[-1] > best:
            self.best_iteration, self.best_x = iteration, x.copy()
        return iteration - self.best_iteration >= held.patience


def _ends(validation: Validation) -> tuple[Array, Array]:
    return validation.rows, validation.cols


def _columns(factor: EdgeFactor, M: Array) -> Array:
    """Fᵀ M, column by column in one go."""
    M = M if factor.plain else factor.root[:, None] * M
    if not factor.centred:
        return M
    sums = np.add.reduceat(factor.unit[:, None] * M, factor.starts, axis=0)
    return M - factor.unit[:, None] * np.repeat(sums, factor.lengths, axis=0)


def _warn(residuals: Array, alphas: Array, n_iter: int, tol: float) -> None:
    worst = int(np.argmax(residuals))
    warnings.warn(
        f"not converged after {n_iter} iterations: the residual is {residuals[worst]:.1e} of the "
        f"right-hand side at alpha={alphas[worst]:g} (tol={tol:g}). Increase max_iter or alpha, "
        "or use early_stopping=True",
        ConvergenceWarning,
        stacklevel=5,
    )
