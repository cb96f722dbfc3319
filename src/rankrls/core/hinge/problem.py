"""The RankSVM problem: preferences, a function space and a hinge loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls._resources import n_threads
from rankrls.core.hinge.losses import hinge_losses
from rankrls.core.hinge.minimize import (
    MAX_DIMENSION,
    FeatureSpace,
    KernelSpace,
    minimize_hinge,
)
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import row_blocks
from rankrls.core.ridge.models import FittedFunction
from rankrls.core.spaces.products import Offsets, Products
from rankrls.core.spaces.spaces import Kernel, Space, choose_space

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)

HINGE_SOLVERS = ("auto", "primal", "dual", "nystroem")

#: A gap of this size is due to rounding errors of products, and no warning is issued.
ROUNDING = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-5}

#: Float32 rows are converted to float64 if their scores have larger errors.
SINGLE_ERROR = 1e-4

#: Limits of the total weight of all pairs, so that its square neither overflows nor underflows.
MAX_WEIGHT = 1e100

#: ``auto`` does not form X Xᵀ if the scales of features differ by more than this: it loses digits.
UNEQUAL = 1e3


class HingeFit(NamedTuple):
    """A fitted model; objective, gap and n_iter have shape (n_alphas, n_outputs)."""

    model: FittedFunction
    solver: str
    n_pairs: int
    objective: Array
    gap: Array
    n_iter: Array


@np.errstate(over="ignore", invalid="ignore")  # overflow raises an error
def fit_hinge(
    graph: PreferenceGraph,
    kernel: Kernel,
    X: Any,
    alphas: Array,
    *,
    query_weighting: str,
    squared: bool,
    tol: float,
    max_iter: int,
    solver: str,
    basis: Any,
    random_state: np.random.RandomState,
    progress: Progress,
    n_jobs: int | None,
) -> HingeFit:
    """Fit for all ``alphas``, each starting from the solution of the next larger one.

    X, of shape (m, n), is the kernel matrix if it is precomputed; ``tol`` limits the relative
    duality gap, and ``solver`` and ``basis`` are as given by the user.
    """
    with np.errstate(divide="ignore"):
        losses = hinge_losses(graph, query_weighting)
    if not all(1 / MAX_WEIGHT < loss.total < MAX_WEIGHT for loss in losses):
        raise ValueError("the products of the weights underflow or overflow; scale the weights")
    used = np.unique(np.concatenate([loss.used() for loss in losses]))
    space = _choose(solver, kernel, X, basis, random_state, len(used))
    n_pairs = sum(loss.n_pairs for loss in losses)
    progress(f"solver {space.solver}, {n_pairs:,} pairs")
    if space.solver == "dual" and len(used) < X.shape[0]:  # the others have no coefficients
        losses = hinge_losses(graph[used], query_weighting)
        space = Space(kernel, X[used][:, used] if kernel.precomputed else X[used], "dual")
    options: dict[str, Any] = {"squared": squared, "tol": tol, "max_iter": max_iter}
    shape, repeat = (len(alphas), len(losses)), True
    (objective, gap, rounding), n_iter = np.empty((3, *shape)), np.empty(shape, dtype=int)
    while repeat:
        functions, coefficients = _functions(space, n_threads(n_jobs)), np.empty(0)
        for j, loss in enumerate(losses):
            start = None
            for a in np.argsort(-alphas, kind="stable").tolist():
                alpha = float(alphas[a])
                found = minimize_hinge(loss, functions, alpha, start=start, **options)
                objective[a, j], gap[a, j] = found.objective, found.gap
                rounding[a, j], n_iter[a, j], start = found.rounding, found.n_iter, found.w
                kept: Any = found.row_coefficients if space.solver == "dual" else found.w
                if not coefficients.size:
                    coefficients = np.empty((len(alphas), len(kept), len(losses)))
                coefficients[a, :, j] = kept
                if len(alphas) > 1:
                    progress(f"alpha {alpha:g}: {found.n_iter} iterations")
        single = X.dtype == np.float32 and space.solver == "primal"
        repeat = single and _lost_in_single(functions, X, coefficients[-1])
        if repeat:
            X = X.astype(np.float64)
            space = Space(kernel, X, "primal")
    progress(f"solved to a gap of {gap.max():.1e} in {n_iter.sum()} iterations")
    worst = np.unravel_index(np.argmax(gap), gap.shape)
    if gap[worst] > max(tol, ROUNDING[X.dtype]):
        text = f"stopped after {n_iter.max()} iterations at"
        advice = "raise max_iter or alpha, or scale the features"
        if rounding[worst] > 0.5 * gap[worst]:
            text = "rounding errors of the kernel matrix leave"
            advice = "raise alpha, or centre and scale the features"
        size = f"a relative duality gap of {gap[worst]:.1e}, above tol={tol:g}"
        warn(f"{text} {size}: {advice}", ConvergenceWarning)
    model = _model(space, alphas, coefficients, X, used)
    return HingeFit(model, space.solver, n_pairs, objective, gap, n_iter)


def _lost_in_single(functions: FeatureSpace, X: Any, W: Array) -> bool:
    """Whether scores X w of float32 rows have errors that matter beside margins of 1."""
    exact = np.concatenate([X[rows].astype(np.float64) @ W for rows in row_blocks(*X.shape)])
    error = np.column_stack([functions.forward(w) for w in W.T]) - exact
    return bool(np.abs(error - error.mean(axis=0)).max() > SINGLE_ERROR)  # up to a constant


def _choose(
    solver: str,
    kernel: Kernel,
    X: Any,
    basis: Any,
    random_state: np.random.RandomState,
    m: int,
) -> Space:
    """Choose as for least squares, but a linear kernel needs no n × n matrix."""
    if not kernel.linear or basis is not None or solver == "nystroem":
        return choose_space(solver, kernel, X, basis=basis, random_state=random_state, used=m)
    if solver == "auto":
        # X Xᵀ is small, or has fewer entries than two products with X.
        n, entries = X.shape[1], X.nnz if sparse.issparse(X) else X.size
        small = m <= MAX_DIMENSION or (m**2 < 2 * entries and _resources.fits(m, m, copies=4))
        solver = "dual" if n > m and small else "primal"
        if solver == "dual" and n <= MAX_DIMENSION:
            rows = X.toarray() if sparse.issparse(X) else X
            sizes = np.ptp(rows, axis=0)
            if sizes.max() > UNEQUAL * sizes[sizes > 0].min(initial=np.inf):
                solver = "primal"
    return Space(kernel, X, solver)


def _functions(space: Space, threads: int) -> FeatureSpace:
    """The functions to search; all are changed by a constant at most."""
    X = space.X
    if space.basis is not None:
        basis = space.basis
        rounding = EPS * float(np.square(basis.Z).sum(axis=1).max())
        Phi = space.features - space.features.mean(axis=0)

        def to_rows(w: Array) -> Array:
            return basis.coefficients(w[None, :, None])[0, :, 0]

        return FeatureSpace(Products(Phi), to_rows, rounding=rounding)
    if space.solver != "dual":
        offsets = Offsets.of(X)
        return FeatureSpace(Products(X if offsets is None else offsets.subtract(X), threads))
    return KernelSpace(space.gram)


def _model(space: Space, alphas: Array, a: Array, X: Any, kept: Array) -> FittedFunction:
    """The function of coefficients (n_alphas, q, n_outputs) of features, or of rows ``kept``."""
    if space.solver == "primal":
        return FittedFunction(alphas, coef=a.astype(X.dtype))
    if space.basis is not None:
        return FittedFunction.of_weights(space.basis, alphas, a, np.float64)
    dual_coef = np.zeros((len(alphas), X.shape[0], a.shape[-1]))
    dual_coef[:, kept] = a
    model = FittedFunction(alphas, space.kernel, dual_coef=dual_coef, kept=kept)
    if space.kernel.linear:
        # The coefficients of all rows sum to zero: centred rows give the same weights.
        model.coef = np.stack([space.rows.T @ part for part in a]).astype(X.dtype)
    else:
        model.rows, model.shift = space.rows, space.shift
    return model
