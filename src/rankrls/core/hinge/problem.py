"""The RankSVM problem, defined by preferences, a function space and a loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls._resources import n_threads
from rankrls.core.hinge.function_spaces import (
    MAX_DIMENSION,
    FeatureSpace,
    FunctionSpace,
    GramOperator,
    KernelSpace,
    factored,
    with_row_coefficients,
)
from rankrls.core.hinge.losses import HingeLoss, hinge_losses
from rankrls.core.hinge.minimize import HingeSolution, minimize_hinge
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import FittedFunction
from rankrls.core.spaces.products import FAR, Offsets, Products, subtract
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


@dataclass(frozen=True)
class HingeOptions:
    """Options of the loss and the solver.

    Attributes
    ----------
    query_weighting : str
    squared : bool
        Whether violations are squared.
    tol : float
        Relative duality gap.
    max_iter : int
    """

    query_weighting: str
    squared: bool
    tol: float
    max_iter: int


@dataclass(frozen=True)
class HingeFit:
    """A fitted model and information about the solution.

    Attributes
    ----------
    model : FittedFunction
    solver : str
    n_pairs : int
    objective, gap, n_iter : ndarray of shape (n_alphas, n_outputs)
    """

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
            space, accurate = self._spaces(stack)
            paths = [self._path(loss, space, accurate, alphas) for loss in self.losses]
        objective, gap, rounding, n_iter = (
            np.array([[getattr(s, name) for s in path] for path in paths]).T
            for name in ("objective", "gap", "rounding", "n_iter")
        )
        self.progress(f"solved to a gap of {gap.max():.1e} in {n_iter.sum()} iterations")
        self._check_gap(gap, rounding, n_iter)
        return HingeFit(
            self._model(alphas, paths), self.solver, self.n_pairs, objective, gap, n_iter
        )

    def _spaces(self, stack: ExitStack) -> tuple[FunctionSpace, Callable[[], FunctionSpace] | None]:
        """The function space to search, and a slower one of the same functions, or None.

        The latter does not square the condition number; None if it has no advantage, or if it is
        too large.
        """
        if self.solver == "nystroem":
            assert self.basis is not None
            nystroem = self.basis.map
            scale = float(np.square(nystroem.Z).sum(axis=1).max())
            Phi = _without_offsets(NystroemSpace(self.basis, self.X).features)

            def to_rows(w: Array) -> Array:
                return nystroem.coefficients(w[None, :, None])[0, :, 0]

            return FeatureSpace(Products(Phi), to_rows, EPS * scale), None
        if self.solver == "primal":
            rows = _without_offsets(self.X)
            return FeatureSpace(stack.enter_context(Products.of(rows, self.threads))), None
        if not self.kernel.linear:
            dual = DualSpace(self.kernel, self._rows())
            self.rows, self.shift, K = dual.rows, dual.shift, dual.gram
            space = KernelSpace.of(K[:, self.used] if self.kernel.precomputed else K, FAR[8])
        else:
            rows = self.rows = _without_offsets(self._rows())
            products = stack.enter_context(Products.of(rows, self.threads))
            gram = self.kernel(rows) if _forms_gram(rows) else GramOperator(products)
            space = KernelSpace(gram)
            m, n = rows.shape
            if n <= MAX_DIMENSION and m * n**2 <= MAX_DIMENSION**3:
                return space, cache(lambda: with_row_coefficients(products))
        if isinstance(space.K, np.ndarray) and space.n_rows <= MAX_DIMENSION:
            return space, cache(lambda: factored(space) or space)
        return space, None

    def _rows(self) -> Any:
        """Rows of X that are compared, if the solver is dual."""
        return self.X[self.used] if len(self.used) < self.X.shape[0] else self.X

    def _path(
        self,
        loss: HingeLoss,
        space: FunctionSpace,
        accurate: Callable[[], FunctionSpace] | None,
        alphas: Array,
    ) -> list[HingeSolution]:
        """Compute solutions for all alphas, in descending order.

        If the gap cannot be closed, the ``accurate`` space is used from then on.
        """
        options, solutions, start = self.options, {}, None
        for index in np.argsort(-alphas, kind="stable"):
            minimize = partial(
                minimize_hinge,
                loss,
                alpha=float(alphas[index]),
                squared=options.squared,
                tol=options.tol,
            )
            solution = minimize(
                space, max_iter=options.max_iter, start=start, thorough=accurate is None
            )
            start = solution.coefficients
            left = options.max_iter - solution.n_iter
            if accurate is not None and solution.gap > self._tolerated and left > 0:
                space, accurate = accurate(), None
                again = minimize(space, max_iter=left)
                start = again.coefficients
                n_iter = solution.n_iter + again.n_iter
                solution = replace(min(solution, again, key=attrgetter("gap")), n_iter=n_iter)
            solutions[int(index)] = solution
            if len(alphas) > 1:
                self.progress(f"alpha {alphas[index]:g}: {solution.n_iter} iterations")
        return [solutions[index] for index in range(len(alphas))]

    @property
    def _tolerated(self) -> float:
        """The largest relative duality gap without a warning."""
        return max(self.options.tol, ROUNDING[self.X.dtype])

    def _model(self, alphas: Array, paths: list[list[HingeSolution]]) -> FittedFunction:
        """Build the function from the solutions of every output and alpha."""
        X, kernel, basis = self.X, self.kernel, self.basis

        def gather(values: Callable[[HingeSolution], Any]) -> Array:
            """Stack coefficients, shape (n_alphas, n or number of rows, n_outputs)."""
            return np.stack([[values(s) for s in path] for path in paths], axis=-1)

        if self.solver == "primal":
            return FittedFunction(alphas, coef=gather(lambda s: s.weights).astype(X.dtype))
        a = gather(lambda s: s.row_coefficients)
        length, kept = X.shape[0], self.used
        if basis is not None:
            length, kept = len(basis.indices), basis.map.kept
        dual_coef = np.zeros((len(alphas), length, a.shape[-1]))
        dual_coef[:, kept] = a
        model = FittedFunction(alphas, kernel, dual_coef=dual_coef, kept=kept, basis=basis)
        if kernel.linear and basis is not None:
            model.coef = np.stack([basis.rows.T @ part for part in a]).astype(X.dtype)
        elif kernel.linear:
            # The coefficients of all rows sum to zero: centred rows give the same weights.
            rows = self.rows
            coef = gather(lambda s: rows.T @ s.row_coefficients if s.weights is None else s.weights)
            model.coef = coef.astype(X.dtype)
        elif basis is None:
            model.rows, model.shift = self.rows, self.shift
        return model

    def _check_gap(self, gap: Array, rounding: Array, n_iter: Array) -> None:
        tol = self.options.tol
        worst = np.unravel_index(np.argmax(gap), gap.shape)
        if gap[worst] <= self._tolerated:
            return
        if rounding[worst] > 0.5 * gap[worst]:
            message = (
                "rounding errors of the kernel matrix leave a relative duality gap of "
                f"{gap[worst]:.1e}, above tol={tol:g}: raise alpha, or centre and scale the "
                "features"
            )
        else:
            message = (
                f"stopped after {n_iter.max()} iterations at a relative duality gap of "
                f"{gap[worst]:.1e}, above tol={tol:g}: raise max_iter or alpha, or scale the "
                "features"
            )
        warn(message, ConvergenceWarning)


def _choose(solver: str, kernel: Kernel, X: Any, m: int, basis: Array | None) -> str:
    """Choose as for least squares, but a linear kernel needs no n × n or m × m matrix."""
    if kernel.linear and basis is None and solver in ("auto", "primal", "dual"):
        if solver == "auto":
            solver = "primal" if X.shape[1] <= m else "dual"
        return solver
    return choose_solver(solver, kernel, X, m, basis=basis)


def _forms_gram(X: Any) -> bool:
    """Whether to form X Xᵀ: it is small, or has fewer entries than two products with X."""
    m = X.shape[0]
    entries = X.nnz if sparse.issparse(X) else X.size
    return m <= MAX_DIMENSION or (m**2 < 2 * entries and _resources.fits(m, m, copies=2))


def _without_offsets(X: Any) -> Any:
    """X, or X with offsets subtracted, in double precision; f changes by a constant."""
    offsets = Offsets.of(X)
    if offsets is None:
        return X
    shift = np.zeros(X.shape[1])
    shift[offsets.columns] = offsets.values
    return subtract(X, shift)
