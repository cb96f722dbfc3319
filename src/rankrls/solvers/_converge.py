"""Conjugate gradients to a tolerance, for one alpha or a whole grid."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls.solvers._iterations import Equations, History, Iteration, IterationOptions
from rankrls.solvers._krylov import MultiShiftCG, overflow_error

__all__ = ["converge"]

Array = NDArray[Any]

#: How often a solution whose true residual is above tol is improved by solving for the rest.
MAX_REFINEMENTS = 3


def converge(
    systems: Sequence[Equations], alphas: Array, options: IterationOptions
) -> tuple[list[Array], History]:
    """Solutions of shape (n_alphas, n, k) for every system, all alphas from one Krylov run.

    A single alpha is preconditioned by the diagonal of G + alpha I. True residuals are computed
    at the end; a `ConvergenceWarning` tells of one above the tolerance, or above what the
    precision of X allows.
    """
    order = np.argsort(alphas)
    solutions, residual, excess, n_iter = [], np.zeros(len(alphas)), np.zeros(len(alphas)), 0
    stopped = False
    for system in systems:
        run = _Run(system, alphas[order], options)
        W = np.empty_like(run.solutions)
        W[order] = run.solutions
        solutions.append(W)
        residual[order] = np.maximum(residual[order], run.residual)
        excess[order] = np.maximum(excess[order], run.residual / run.allowed)
        n_iter, stopped = max(n_iter, run.n_iter), stopped or run.stopped
    if (excess > 1).any() and not stopped:
        at = int(np.argmax(excess))
        warnings.warn(
            f"conjugate gradients ended after {n_iter} iterations with a relative residual of "
            f"{residual[at]:.2g} > tol={options.tol:g} at alpha={alphas[at]:g}: raise max_iter, "
            f"tol or alpha, {_advice(systems[0])}, or use early_stopping=True",
            ConvergenceWarning,
            stacklevel=2,
        )
    return solutions, History(n_iter, residual=residual)


def _advice(system: Equations) -> str:
    if system.dtype == np.float32:
        return "centre and scale the features, pass them as float64"
    return "centre and scale the features"


class _Run:
    """Solve one system for increasing alphas.

    Attributes
    ----------
    solutions : ndarray of shape (n_alphas, n, k)
    residual, allowed : ndarray of shape (n_alphas,)
        True ‖residual‖/‖c‖, the worst of the columns, and what it may be.
    n_iter : int
    stopped : bool
        Whether the callback asked for it.
    """

    def __init__(self, system: Equations, alphas: Array, options: IterationOptions) -> None:
        self.system, self.options = system, options
        self.n_iter, self.stopped = 0, False
        n, k = system.C.shape
        S = len(alphas)
        # One column for every (alpha, output) from here on.
        self.alphas = np.repeat(alphas, k)
        self.C = np.tile(system.C, S)
        norms = np.linalg.norm(self.C, axis=0)
        self.size = np.where(norms > 0, norms, 1.0)
        self.d: Array | None = None
        if S == 1:
            diagonal = system.diagonal() + alphas[0]
            if not np.isfinite(diagonal).all():
                raise overflow_error()
            self.d = 1.0 / np.sqrt(diagonal)[:, None]
            W = np.zeros((n, k))
            W += self._correction(self.C, np.full(k, options.tol))
        else:
            run = MultiShiftCG(system.G, system.C, alphas, tol=options.tol)
            self._iterate(run)
            W = np.moveaxis(run.solutions(), 0, 1).reshape(n, -1)
        residual, allowed = self._refine(W)
        self.solutions = np.moveaxis(W.reshape(n, S, k), 1, 0)
        self.residual = residual.reshape(S, k).max(axis=1)
        self.allowed = allowed.reshape(S, k).max(axis=1)

    def _refine(self, W: Array) -> tuple[Array, Array]:
        """Solve for what is left of the right side, in place: it mends the shared run's rounding.

        Returns the true residuals and what they may be, one for each column.
        """
        tol = self.options.tol
        for attempt in range(MAX_REFINEMENTS + 1):
            R = self.C - self.system.G(W) - self.alphas * W
            residual = np.linalg.norm(R, axis=0) / self.size
            allowed = np.full(len(residual), tol)
            bad = np.flatnonzero(residual > tol)
            if not len(bad):
                break
            allowed = np.maximum(tol, self._rounding(W))
            bad = np.flatnonzero(residual > allowed)
            over = attempt == MAX_REFINEMENTS or self.n_iter >= self.options.max_iter
            if not len(bad) or over or self.stopped:
                break
            W[:, bad] += self._correction(R[:, bad], tol / residual[bad], bad)
        return residual, allowed

    def _correction(self, R: Array, tol: Array, columns: Any = slice(None)) -> Array:
        """(G + alpha I)⁻¹R, every column to its own alpha."""
        G, d, alphas = self.system.G, self.d, self.alphas[columns]
        if d is None:
            run = MultiShiftCG(G, R, alphas[None], tol=float(tol.min()))
            self._iterate(run)
            return run.solutions()[0]
        run = MultiShiftCG(
            lambda V: d * (G(d * V) + alphas[0] * (d * V)),
            d * R,
            np.zeros(1),
            tol=float(tol.min()),
            metric=1.0 / d,
        )
        self._iterate(run)
        return d * run.solutions()[0]

    def _rounding(self, W: Array) -> Array:
        """What rounding of Xᵀ(L(Xw)) leaves of a residual, about: 10 eps ‖X‖ ‖L‖ ‖Xw‖/‖c‖.

        At most eps^(2/3): more than that is not passed over in silence.
        """
        eps = float(np.finfo(self.system.dtype).eps)
        size = self.system.magnitude(W) / self.size
        return np.minimum(10 * eps * size, eps ** (2 / 3))

    def _iterate(self, run: MultiShiftCG) -> None:
        options, before = self.options, self.n_iter
        while self.n_iter < options.max_iter and not self.stopped and run.step():
            self.n_iter = before + run.n_iter
            residual = float(run.residual.max(where=~run.frozen, initial=0.0))
            options.progress.bar(self.n_iter, options.max_iter, f"residual {residual:.2g}")
            if options.callback is not None:
                self.stopped = bool(options.callback(Iteration(self.n_iter, residual)))
