"""RankSVM models: from preferences and data to coefficients, for a path of alphas."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _memory
from rankrls._progress import Progress
from rankrls._threads import n_threads
from rankrls.core.hinge.losses import HingeLoss, hinge_losses
from rankrls.core.hinge.minimize import HingeSolution, minimise_hinge
from rankrls.core.hinge.spaces import MAX_DIMENSION, FeatureSpace, Gram, KernelSpace, Space
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.choice import choose_solver
from rankrls.core.ridge.models import of_alpha
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import Basis, choose_basis
from rankrls.core.spaces.products import Products

__all__ = ["HINGE_SOLVERS", "HingeFit", "HingeModel", "HingeOptions", "fit_hinge"]

Array = NDArray[Any]

HINGE_SOLVERS = ("auto", "primal", "dual", "nystroem")

#: Features are centred if their mean is more than this many standard deviations, for float64 and
#: for float32: an offset costs digits.
OFFSET = {np.dtype(np.float64): 1e3, np.dtype(np.float32): 4.0}

#: A gap of this size is left by rounding, and is not complained about.
ROUNDING = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-5}


@dataclass(frozen=True)
class HingeOptions:
    """What to minimise, and how far.

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


@dataclass
class HingeModel:
    """f(x) = ⟨w, x⟩, or Σ_i a_i k(x, x_i) over training rows or basis vectors.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    coef : ndarray of shape (n_alphas, n_features, n_outputs) or None
        Weights of the features, if the kernel is linear.
    dual_coef : ndarray of shape (n_alphas, n_kernel_rows, n_outputs) or None
        Coefficients of all training rows, or of all basis vectors.
    kernel : Kernel
    rows : rows of the coefficients that are not zero for certain, or None
        None for a linear and for a precomputed kernel.
    kept : ndarray of int or None
        Which of the coefficients they have.
    basis : Basis or None
    """

    alphas: Array
    coef: Array | None
    dual_coef: Array | None
    kernel: Kernel
    rows: Any = None
    kept: Array | None = None
    basis: Basis | None = None

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        values = self.dual_coef if self.coef is None else self.coef
        assert values is not None
        return values.shape[-1]

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """Scores for ``alphas[index]``, shape (n, n_outputs); None: for all, side by side."""
        if self.coef is not None:
            return X @ of_alpha(self.coef, index)
        assert self.dual_coef is not None
        a = of_alpha(self.dual_coef, index)[self.kept]
        if self.rows is None:
            columns = self.kept if self.basis is None else self.basis.indices[self.kept]
            return np.asarray(X)[:, columns] @ a
        return self.kernel.product(X, self.rows, a)


@dataclass(frozen=True)
class HingeFit:
    """A fitted model and how it was found; the last three have shape (n_alphas, n_outputs).

    Attributes
    ----------
    model : HingeModel
    solver : str
    n_pairs : int
    objective, gap, n_iter : ndarray
    """

    model: HingeModel
    solver: str
    n_pairs: int
    objective: Array
    gap: Array
    n_iter: Array


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by the solver
def fit_hinge(
    graph: PreferenceGraph,
    kernel: Kernel,
    X: Any,
    alphas: Array,
    *,
    options: HingeOptions,
    solver: str,
    basis: Any,
    random_state: np.random.RandomState,
    progress: Progress,
    n_jobs: int | None,
) -> HingeFit:
    """Fit for all ``alphas``, each starting from the next larger one.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    kernel : Kernel
    X : ndarray or sparse array of shape (m, n); the kernel matrix if it is precomputed
    alphas : ndarray of shape (n_alphas,)
    options : HingeOptions
    solver, basis
        As given by the user.
    random_state : RandomState
        Draws the basis vectors.
    progress : Progress
    n_jobs : int or None
        Threads of sparse products.
    """
    m = X.shape[0]
    losses = hinge_losses(graph, options.query_weighting)
    used = np.flatnonzero(np.any([loss.used() for loss in losses], axis=0))
    if not all(np.isfinite(loss.total) and loss.total > 0 for loss in losses):
        raise ValueError("the weights are too small or too large for their products: scale them")
    indices = None
    if basis is not None or solver == "nystroem":
        indices = choose_basis(basis, m, random_state)
    solver = _choose(solver, kernel, X, len(used), indices)
    n_pairs = sum(loss.n_pairs for loss in losses)
    progress(f"{m:,} rows, {n_pairs:,} pairs: solver {solver}")
    if solver == "dual" and len(used) < m:
        losses = hinge_losses(graph[used], options.query_weighting)
    if solver == "nystroem" and indices is None:
        indices = choose_basis(None, m, random_state)
    nystroem = Basis.of(kernel, X, indices) if indices is not None else None
    with _space(kernel, X, solver, used, nystroem, n_threads(n_jobs)) as space:
        solutions = [_path(loss, space, alphas, options, progress) for loss in losses]
    found = np.stack([[s.coefficients for s in path] for path in solutions], axis=-1)
    model = _model(kernel, X, alphas, found, used=used, solver=solver, basis=nystroem)
    objective, gap, n_iter = (
        np.array([[getattr(s, name) for s in path] for path in solutions]).T
        for name in ("objective", "gap", "n_iter")
    )
    progress(f"solved to a gap of {gap.max():.1e} in {n_iter.sum()} iterations")
    _complain(gap, n_iter, options, X.dtype)
    return HingeFit(model, solver, n_pairs, objective, gap, n_iter)


def _choose(solver: str, kernel: Kernel, X: Any, m: int, basis: Array | None) -> str:
    """As for least squares, but a linear kernel needs neither an n × n nor an m × m matrix."""
    if kernel.linear and basis is None and solver in ("auto", "primal", "dual"):
        if solver == "auto":
            solver = "primal" if X.shape[1] <= m else "dual"
        return solver
    return choose_solver(solver, kernel, X, m, basis=basis)


@contextmanager
def _space(
    kernel: Kernel, X: Any, solver: str, used: Array, basis: Basis | None, threads: int
) -> Iterator[Space]:
    """The functions that are searched."""
    part = solver == "dual" and len(used) < X.shape[0]
    if solver == "dual" and kernel.precomputed:
        yield KernelSpace(_centred_kernel(X[np.ix_(used, used)] if part else X))
        return
    rows = X[used] if part else X
    if solver == "dual" and not kernel.linear:
        yield KernelSpace(_centred_kernel(kernel(rows)))
        return
    Phi = _centred(rows if basis is None else basis.features(rows))
    if solver == "dual" and _forms_gram(Phi):
        yield KernelSpace(kernel(Phi))
        return
    with Products.of(Phi, threads) as products:
        yield KernelSpace(Gram(products)) if solver == "dual" else FeatureSpace(products)


def _forms_gram(X: Any) -> bool:
    """Whether X Xᵀ is better formed: it is small, or has fewer entries than two products with X."""
    m = X.shape[0]
    entries = X.nnz if sparse.issparse(X) else X.size
    return m <= MAX_DIMENSION or (m**2 < 2 * entries and _memory.fits(m, m, copies=2))


def _path(
    loss: HingeLoss, space: Space, alphas: Array, options: HingeOptions, progress: Progress
) -> list[HingeSolution]:
    """Solutions for all alphas, from the largest down."""
    solutions: dict[int, HingeSolution] = {}
    start = None
    for index in np.argsort(-alphas, kind="stable"):
        solution = minimise_hinge(
            loss,
            space,
            float(alphas[index]),
            squared=options.squared,
            tol=options.tol,
            max_iter=options.max_iter,
            start=start,
        )
        start = solution.coefficients
        solutions[int(index)] = solution
        if len(alphas) > 1:
            progress(f"alpha {alphas[index]:g}: {solution.n_iter} iterations")
    return [solutions[index] for index in range(len(alphas))]


def _model(
    kernel: Kernel,
    X: Any,
    alphas: Array,
    found: Array,
    *,
    used: Array,
    solver: str,
    basis: Basis | None,
) -> HingeModel:
    """The model of coefficients of shape (n_alphas, n or number of rows, n_outputs)."""
    if solver == "primal":
        return HingeModel(alphas, found.astype(X.dtype), None, kernel)
    if basis is not None:
        length, kept, rows = len(basis.indices), basis.map.kept, basis.rows
        found = basis.map.coefficients(found)
    else:
        length, kept = X.shape[0], used
        rows = None if kernel.precomputed else X[used]
    a = found.astype(X.dtype)
    dual_coef = np.zeros((len(alphas), length, a.shape[-1]), dtype=X.dtype)
    dual_coef[:, kept] = a
    coef = None
    if kernel.linear:
        # The coefficients of all rows sum to zero, so that centred rows give the same weights.
        features = _centred(rows) if basis is None else rows
        coef = np.stack([features.T @ part for part in a])
        rows = None
    return HingeModel(alphas, coef, dual_coef, kernel, rows, kept, basis)


def _centred(Phi: Any) -> Any:
    """Dense features less their means, if those would cost digits; leads do not change."""
    if sparse.issparse(Phi):
        return Phi
    mean, deviation = Phi.mean(axis=0, dtype=np.float64), Phi.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, deviation.max(initial=0.0))
    if (np.abs(mean) <= OFFSET[Phi.dtype] * scale).all():
        return Phi
    return (Phi - mean).astype(Phi.dtype)


def _centred_kernel(K: Array) -> Array:
    """C K C with C the centering, if a constant in K would cost digits.

    All coefficients sum to zero, so that f changes by a constant and ‖f‖² not at all.
    """
    mean = K.mean(dtype=np.float64)
    if np.abs(mean) <= OFFSET[K.dtype] * K.std(dtype=np.float64):
        return K
    columns = K.mean(axis=0, dtype=np.float64)
    return (K - columns - columns[:, None] + mean).astype(K.dtype)


def _complain(gap: Array, n_iter: Array, options: HingeOptions, dtype: Any) -> None:
    if gap.max() <= max(options.tol, ROUNDING[dtype]):
        return
    warnings.warn(
        f"stopped after {n_iter.max()} iterations at a relative duality gap of {gap.max():.1e}, "
        f"above tol={options.tol:g}: raise max_iter or alpha, or scale the features",
        ConvergenceWarning,
        stacklevel=6,
    )
