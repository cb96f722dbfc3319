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
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.exceptions import ConvergenceWarning

from rankrls._progress import Progress
from rankrls.core.linalg.factorizations import SpectralState, factorise
from rankrls.core.linalg.krylov import MultiShiftCG
from rankrls.core.relations.complete import damped
from rankrls.core.relations.edge_factor import EdgeFactor
from rankrls.core.relations.observations import Cells
from rankrls.core.relations.operators import EdgeKernel
from rankrls.core.relations.spectrum import centred_spectrum, spectrum
from rankrls.metrics import pairwise_error

__all__ = ["Found", "Validation", "iterate", "solve_dual"]

Array = NDArray[Any]

#: From this part of all pairs on, the system of the complete relation is a good preconditioner.
NEARLY_COMPLETE = 0.9


@dataclass(frozen=True)
class Found:
    """An iterative solution.

    Attributes
    ----------
    coefficients : ndarray of shape (n_alphas, p, g)
    n_iter : int
        Iterations that were made.
    errors : ndarray of shape (n_iter,) or None
        Pairwise error on the held-out edges after every iteration.
    best_iteration : int or None
        The iteration that was kept, by these errors.
    """

    coefficients: Array
    n_iter: int
    errors: Array | None = None
    best_iteration: int | None = None


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
    progress: Progress | None = None,
) -> Found:
    """Coefficients by conjugate gradients.

    Parameters
    ----------
    K : ndarray of shape (p, p)
    G : ndarray of shape (g, g)
    cells : Cells
        Training pairs.
    alphas : ndarray of shape (n_alphas,)
        All of them are solved for by the same products. One, if there is a ``validation``; it
        may then be zero.
    ranking : bool
    sign : {0, 1, −1}
    max_iter : int
    tol : float
        On the residual, relative to the right-hand side. Where it is missed there is a
        `ConvergenceWarning`.
    validation : Validation, optional
        Edges that choose the iteration to keep.
    progress : Progress, optional
    """
    factor = EdgeFactor(cells, centred=ranking)
    progress = Progress("", 0) if progress is None else progress
    if validation is not None:
        return _stop_early(K, G, factor, float(alphas[0]), sign, max_iter, validation, progress)
    kernel = EdgeKernel(K, G, (cells.rows, cells.cols), sign=sign)
    nearly = len(cells) >= NEARLY_COMPLETE * len(K) * len(G)
    if nearly and len(alphas) == 1:
        x, n_iter, residuals = _preconditioned(kernel, factor, float(alphas[0]), max_iter, tol)
    else:
        order = np.argsort(alphas, kind="stable")
        run = MultiShiftCG(
            lambda v: factor.rmatmat(kernel @ factor.matmat(v)),
            factor.target[:, None],
            alphas[order],
            tol=tol,
        )
        while run.n_iter < max_iter and run.step():
            progress.bar(run.n_iter, max_iter, f"residual {run.residual.max():.1e}")
        x, residuals, n_iter = (
            np.empty((len(alphas), len(cells))),
            np.empty(len(alphas)),
            run.n_iter,
        )
        x[order], residuals[order] = run.solutions()[:, :, 0], run.residual[:, 0]
    if (residuals > tol).any():
        worst = int(np.argmax(residuals))
        warnings.warn(
            f"conjugate gradients ended after {n_iter} iterations with a relative residual of "
            f"{residuals[worst]:.2g} > tol={tol:g} at alpha={alphas[worst]:g}: raise max_iter, tol "
            "or alpha, or use early_stopping=True",
            ConvergenceWarning,
            stacklevel=5,
        )
    return Found(np.stack([kernel.scatter(factor @ solution) for solution in x]), n_iter)


def _preconditioned(
    kernel: EdgeKernel, factor: EdgeFactor, alpha: float, max_iter: int, tol: float
) -> tuple[Array, int, Array]:
    """One alpha of a nearly complete relation, preconditioned by the complete one.

    The inverse of K ⊗ CGC + alpha I (or K ⊗ G + alpha I), restricted to the observed pairs: few
    missing pairs are a small change of it. With a sign it is that of the symmetric (reciprocal)
    kernel, which acts on the symmetric (antisymmetric) part and is alpha I on the rest (P5,
    Lemma 4.6). Pairs that are observed several times count their mean multiplicity.
    """
    q, sign = len(factor.cells), kernel.sign
    left = spectrum(kernel.K)
    if sign or not factor.centred:
        right = left if kernel.G is kernel.K else spectrum(kernel.G)
    else:
        right = centred_spectrum(kernel.G)
    products = float(factor.cells.weight.mean()) * np.outer(left.values, right.values)
    D = damped(products, alpha)
    V, U = left.vectors, right.vectors

    def system(v: Array) -> Array:
        return factor.rmatvec(kernel.matvec(factor.matvec(v))) + alpha * v

    def precondition(v: Array) -> Array:
        v = factor.project(v)
        M = kernel.scatter(v)
        inner = V.T @ M @ U
        inner *= D
        values = (V @ inner @ U.T).ravel()[kernel.flat]
        if sign:
            values += (v - M.ravel()[kernel.flat]) / alpha
        return factor.project(values)

    count = 0

    def counting(_: Array) -> None:
        nonlocal count
        count += 1

    b = factor.target
    S, M = (LinearOperator((q, q), matvec=f, dtype=float) for f in (system, precondition))
    x, _ = cg(S, b, rtol=tol, maxiter=max_iter, M=M, callback=counting)
    size = max(float(np.linalg.norm(b)), np.finfo(float).tiny)
    residual = np.linalg.norm(b - system(x)) / size
    # What rounding leaves of a residual, about: 10 eps ‖S‖ ‖x‖/‖b‖.
    rounding = 10 * np.finfo(float).eps * products.max() * np.linalg.norm(x) / size
    return x[None], count, np.array([max(residual - rounding, 0.0)])


def _stop_early(
    K: Array,
    G: Array,
    factor: EdgeFactor,
    alpha: float,
    sign: int,
    max_iter: int,
    held: Validation,
    progress: Progress,
) -> Found:
    """Predictions of the held-out edges advance with the solution; the best one is kept.

    A product gives the values of the direction at the training edges and at the held-out ones,
    so that looking at the latter costs no further product.
    """
    cells, q = factor.cells, len(factor.cells)
    train = (cells.rows, cells.cols)
    ends = np.concatenate([cells.rows, held.rows]), np.concatenate([cells.cols, held.cols])
    kernel = EdgeKernel(K, G, train, ends, sign=sign)
    along = np.empty(len(held.y))

    def product(v: Array) -> Array:
        values = kernel @ (factor @ v[:, 0])
        along[:] = values[q:]
        return factor.rmatvec(values[:q])[:, None]

    run = MultiShiftCG(product, factor.target[:, None], np.array([alpha]), tol=0.0)
    predictions = np.zeros(len(held.y))
    errors: list[float] = []
    best, x = 0, np.zeros(q)
    while run.n_iter < max_iter and run.n_iter - best < held.patience and run.step():
        predictions += run.a[0] * along
        errors.append(float(pairwise_error(held.y, predictions, qid=held.rows)))
        if best == 0 or errors[-1] < errors[best - 1]:
            best, x = run.n_iter, run.solution(0)[:, 0]
        progress.bar(run.n_iter, max_iter, f"validation error {errors[-1]:.4f}")
    if run.n_iter == max_iter and run.n_iter - best < held.patience:
        warnings.warn(
            f"early stopping reached max_iter={max_iter} before the validation error had stopped "
            f"improving for {held.patience} iterations: raise max_iter",
            ConvergenceWarning,
            stacklevel=6,
        )
    coefficients = kernel.scatter(factor @ x)[None]
    return Found(coefficients, run.n_iter, np.array(errors), best)


def _columns(factor: EdgeFactor, M: Array) -> Array:
    """Fᵀ M, column by column in one go."""
    M = M if factor.plain else factor.root[:, None] * M
    if not factor.centred:
        return M
    sums = np.add.reduceat(factor.unit[:, None] * M, factor.starts, axis=0)
    return M - factor.unit[:, None] * np.repeat(sums, factor.lengths, axis=0)
