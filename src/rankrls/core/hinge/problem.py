"""The RankSVM problem, defined by preferences, a function space and a loss."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls._resources import n_threads
from rankrls.core.hinge.function_spaces import MAX_DIMENSION, FeatureSpace, KernelSpace, reduced
from rankrls.core.hinge.losses import HingeLoss, hinge_losses
from rankrls.core.hinge.minimize import HingeSolution, minimize_hinge
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import FittedFunction
from rankrls.core.spaces.products import Offsets, Products, subtract
from rankrls.core.spaces.spaces import (
    Basis,
    DualSpace,
    Kernel,
    NystroemSpace,
    choose_basis,
    choose_solver,
)

__all__ = ["HINGE_SOLVERS", "HingeFit", "HingeOptions", "HingeProblem"]

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)

HINGE_SOLVERS = ("auto", "primal", "dual", "nystroem")

#: A gap of this size is due to rounding errors of products, and no warning is issued.
ROUNDING = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-5}

#: Limits of the total weight of all pairs, so that its square neither overflows nor underflows.
MAX_WEIGHT = 1e100

#: Features whose scales differ by more than this are reduced by a QR factorisation, which is more
#: accurate than X Xᵀ, up to this m n min(m, n).
UNEQUAL, MAX_QR = 1e3, 4e9


@dataclass(frozen=True)
class HingeOptions:
    """Options of the loss and the solver."""

    query_weighting: str
    squared: bool  # violations are squared
    tol: float  # relative duality gap
    max_iter: int


@dataclass(frozen=True)
class HingeFit:
    """A fitted model; objective, gap and n_iter have shape (n_alphas, n_outputs)."""

    model: FittedFunction
    solver: str
    n_pairs: int
    objective: Array
    gap: Array
    n_iter: Array


class HingeProblem:
    """Preferences over rows of X, to be fitted by a hinge loss for any alphas.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    kernel : Kernel
    X : ndarray or sparse array of shape (m, n); the kernel matrix if it is precomputed
    options : HingeOptions
    solver, basis
        As given by the user.
    random_state : RandomState
        Controls the choice of basis vectors.
    progress : Progress
    n_jobs : int or None
        Number of threads for sparse products.

    Attributes
    ----------
    solver : str
        The solver that is used.
    basis : Basis or None
    used : ndarray of shape (m',), int
        The rows that have a pair; the dual solver drops the others.
    n_pairs : int
        Total number of pairs over all outputs.
    """

    def __init__(
        self,
        graph: PreferenceGraph,
        kernel: Kernel,
        X: Any,
        *,
        options: HingeOptions,
        solver: str,
        basis: Any,
        random_state: np.random.RandomState,
        progress: Progress,
        n_jobs: int | None,
    ) -> None:
        self.kernel, self.X, self.options, self.progress = kernel, X, options, progress
        self.threads = n_threads(n_jobs)
        m = X.shape[0]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            self.losses = hinge_losses(graph, options.query_weighting)
        if not all(1 / MAX_WEIGHT < loss.total < MAX_WEIGHT for loss in self.losses):
            raise ValueError("the products of the weights underflow or overflow; scale the weights")
        self.used = np.flatnonzero(np.any([loss.used() for loss in self.losses], axis=0))
        indices = None
        if basis is not None or solver == "nystroem":
            indices = choose_basis(basis, m, random_state)
        self.solver = _choose(solver, kernel, X, len(self.used), indices)
        self.n_pairs = sum(loss.n_pairs for loss in self.losses)
        progress(f"solver {self.solver}, {self.n_pairs:,} pairs")
        if self.solver == "dual" and len(self.used) < m:
            self.losses = hinge_losses(graph[self.used], options.query_weighting)
        if self.solver == "nystroem" and indices is None:
            indices = choose_basis(None, m, random_state)
        self.basis = None if indices is None else Basis.of(kernel, X, indices)

    @np.errstate(over="ignore", invalid="ignore")  # the minimizer raises an error on overflow
    def solve(self, alphas: Array) -> HingeFit:
        """Solve for all ``alphas``, each starting from the solution of the next larger one."""
        with ExitStack() as stack:
            space = self._space(stack)
            paths = [self._path(loss, space, alphas) for loss in self.losses]
        objective, gap, rounding, n_iter = (
            np.array([[getattr(s, name) for s in path] for path in paths]).T
            for name in ("objective", "gap", "rounding", "n_iter")
        )
        self.progress(f"solved to a gap of {gap.max():.1e} in {n_iter.sum()} iterations")
        self._check_gap(gap, rounding, n_iter)
        model = self._model(space, alphas, paths)
        return HingeFit(model, self.solver, self.n_pairs, objective, gap, n_iter)

    def _space(self, stack: ExitStack) -> FeatureSpace:
        """The function space to search."""
        if self.solver == "primal":
            X, offsets = self.X, Offsets.of(self.X)
            if offsets is not None:  # f changes by a constant
                shift = np.zeros(X.shape[1])
                shift[offsets.columns] = offsets.values
                X = subtract(X, shift)
            return FeatureSpace(stack.enter_context(Products.of(X, self.threads)))
        if self.basis is not None:
            nystroem = self.basis.map
            rounding = EPS * float(np.square(nystroem.Z).sum(axis=1).max())
            Phi = NystroemSpace(self.basis, self.X).features
            Phi -= Phi.mean(axis=0)  # f changes by a constant

            def to_rows(w: Array) -> Array:
                return nystroem.coefficients(w[None, :, None])[0, :, 0]

            return FeatureSpace(Products(Phi), to_rows, rounding=rounding)
        used = self.used
        dual = self.dual = DualSpace(
            self.kernel, self.X[used] if len(used) < self.X.shape[0] else self.X
        )
        m, n = dual.X.shape
        if self.kernel.linear and m * n * min(m, n) <= MAX_QR:
            rows = dual.rows
            squares = rows.multiply(rows) if sparse.issparse(rows) else rows * rows
            squares = np.sqrt(np.asarray(squares.sum(axis=0)).ravel())
            if squares.max() > UNEQUAL * squares[squares > 0].min(initial=np.inf):
                rows = rows.toarray() if sparse.issparse(rows) else rows
                return reduced(rows - rows.mean(axis=0))
        return KernelSpace(dual.gram[:, used] if self.kernel.precomputed else dual.gram)

    def _path(self, loss: HingeLoss, space: FeatureSpace, alphas: Array) -> list[HingeSolution]:
        """Compute solutions for all alphas, in descending order."""
        options, solutions, start = self.options, {}, None
        for index in np.argsort(-alphas, kind="stable"):
            solution = minimize_hinge(
                loss,
                space,
                float(alphas[index]),
                squared=options.squared,
                tol=options.tol,
                max_iter=options.max_iter,
                start=start,
            )
            start, solutions[int(index)] = solution.w, solution
            if len(alphas) > 1:
                self.progress(f"alpha {alphas[index]:g}: {solution.n_iter} iterations")
        return [solutions[index] for index in range(len(alphas))]

    def _model(
        self, space: FeatureSpace, alphas: Array, paths: list[list[HingeSolution]]
    ) -> FittedFunction:
        """Build the function from the solutions of every output and alpha."""
        X, kernel, basis = self.X, self.kernel, self.basis
        w = np.stack([[s.w for s in path] for path in paths], axis=-1)
        if self.solver == "primal":
            return FittedFunction(alphas, coef=w.astype(X.dtype))
        a = np.stack([np.array([s.row_coefficients for s in path]) for path in paths], axis=-1)
        length, kept = X.shape[0], self.used
        if basis is not None:
            length, kept = len(basis.indices), basis.map.kept
        dual_coef = np.zeros((len(alphas), length, a.shape[-1]))
        dual_coef[:, kept] = a
        model = FittedFunction(alphas, kernel, dual_coef=dual_coef, kept=kept, basis=basis)
        if kernel.linear and space.to_weights is not None:
            weights = [[space.to_weights(s.w) for s in path] for path in paths]
            model.coef = np.stack(weights, axis=-1).astype(X.dtype)
        elif kernel.linear:
            # The coefficients of all rows sum to zero: centred rows give the same weights.
            rows = basis.rows if basis is not None else self.dual.rows
            model.coef = np.stack([rows.T @ part for part in a]).astype(X.dtype)
        elif basis is None:
            model.rows, model.shift = self.dual.rows, self.dual.shift
        return model

    def _check_gap(self, gap: Array, rounding: Array, n_iter: Array) -> None:
        tol = self.options.tol
        worst = np.unravel_index(np.argmax(gap), gap.shape)
        if gap[worst] <= max(tol, ROUNDING[self.X.dtype]):
            return
        found = f"a relative duality gap of {gap[worst]:.1e}, above tol={tol:g}"
        if rounding[worst] > 0.5 * gap[worst]:
            message = (
                f"rounding errors of the kernel matrix leave {found}: raise alpha, or centre and "
                "scale the features"
            )
        else:
            message = (
                f"stopped after {n_iter.max()} iterations at {found}: raise max_iter or alpha, or "
                "scale the features"
            )
        warn(message, ConvergenceWarning)


def _choose(solver: str, kernel: Kernel, X: Any, m: int, basis: Array | None) -> str:
    """Choose as for least squares, but a linear kernel needs no n × n matrix."""
    if kernel.linear and basis is None and solver == "auto":
        # X Xᵀ is small, or has fewer entries than two products with X.
        entries = X.nnz if sparse.issparse(X) else X.size
        small = m <= MAX_DIMENSION or (m**2 < 2 * entries and _resources.fits(m, m, copies=4))
        return "dual" if X.shape[1] > m and small else "primal"
    if kernel.linear and basis is None and solver in ("primal", "dual"):
        return solver
    return choose_solver(solver, kernel, X, m, basis=basis)
