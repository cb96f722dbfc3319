"""Linear models by conjugate gradients, up to a tolerance or the best iterate on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls._calls import warn
from rankrls._resources import at_most
from rankrls.core.linalg.krylov import COLUMNS, History, IterationOptions, converge, stop_early
from rankrls.core.preferences.laplacian import Laplacian
from rankrls.core.ridge.models import FittedFunction, join_outputs
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.spaces.products import Offsets, Products

Array = NDArray[Any]


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows X, a score of predictions, and the other rows if X is part of the data."""

    X: Any
    score: Callable[[Array], float]
    rows: Array | None = None


class LinearSystem:
    """G = XᵀLX, as a product only, and C = Xᵀr of an objective over ``rows`` (None: all) of X."""

    def __init__(self, product: Products, objective: Laplacian, rows: Array | None = None) -> None:
        self.X, self.rows = product, rows
        self.system, self.outputs = objective, objective.outputs
        self.dtype, data = product.X.dtype, product.X
        self.n_entries = data.nnz if hasattr(data, "nnz") else data.size
        self.rank = int(np.count_nonzero(self.system.degree()))
        r = self.system.r
        self.C = product.rmatmat(
            self._spread(np.repeat(r, len(self.outputs) // r.shape[1], axis=1))
        )

    def G(self, V: Array) -> Array:
        """XᵀL(X V) for V of shape (n, k')."""
        if V.shape[1] > COLUMNS:
            starts = range(0, V.shape[1], COLUMNS)
            return np.hstack([self.G(V[:, start : start + COLUMNS]) for start in starts])
        U = self.X.matmat(V)
        return self.X.rmatmat(
            self._spread(self.system.apply(U if self.rows is None else U[self.rows]))
        )

    def diagonal(self) -> Array:
        """Approximate diagonal of G, shape (n,): that of Xᵀ diag(L) X for centred columns."""
        return self._squares

    def magnitude(self, W: Array) -> Array:
        """Approximate ‖L^½ x_j‖ ‖L^½‖ ‖X w‖ for each column x_j of X, not centred, (n, k')."""
        starts, degree = range(0, W.shape[1], COLUMNS), self._spread(self.system.degree())
        norms = [
            np.linalg.norm(self.X.matmat(W[:, start : start + COLUMNS]), axis=0) for start in starts
        ]
        total = max(float(degree.sum()), np.finfo(float).tiny)
        means = self.X.rmatmat(degree[:, None])[:, 0] / total
        sizes = np.sqrt((self._squares + total * means**2) * degree.max())
        return sizes[:, None] * np.concatenate(norms)

    @cached_property
    def _squares(self) -> Array:
        return self.X.column_squares(self._spread(self.system.degree()))

    def _spread(self, U: Array) -> Array:
        if self.rows is None:
            return U
        out = np.zeros((self.X.shape[0], *U.shape[1:]))
        out[self.rows] = U
        return out


@np.errstate(over="ignore", invalid="ignore")
def iterate(
    problem: RidgeProblem,
    alphas: Array,
    options: IterationOptions,
    threads: int,
    held_out: HeldOutRows | None = None,
) -> tuple[FittedFunction, History]:
    """Solve for all ``alphas``; with held-out rows, return the best (alpha, iteration).

    For kernels the unknowns are weights of Nyström features, so iterates are those in the space of
    functions.
    """
    basis, X = problem.space.basis, problem.space.features
    problem.warn_of_lost_digits([], float(alphas.min()))
    offsets = Offsets.of(X)
    if offsets is not None:
        at, eps = int(np.argmax(offsets.lost)), float(np.finfo(X.dtype).eps)
        if offsets.lost[at] > max(options.tol, eps ** (2 / 3)):
            advice = ", pass them as float64" if X.dtype == np.float32 else ""
            warn(
                f"the mean of column {offsets.columns[at]} of X is {offsets.values[at]:.3g}, which "
                "leaves its deviations from the mean a relative precision of "
                f"{offsets.lost[at]:.2g} > tol={options.tol:g} in {X.dtype}: centre and scale the "
                f"features{advice} before they are rounded",
                ConvergenceWarning,
            )
    centred = X if offsets is None else offsets.subtract(X)
    with at_most(threads):
        product, rows = Products(centred, threads), None if held_out is None else held_out.rows
        systems = [LinearSystem(product, objective, rows) for objective in problem.objectives]
        if held_out is None:
            W, history = converge(systems, alphas, options)
        else:
            X_held = held_out.X if basis is None else basis.features(held_out.X)
            held = Products(X_held if offsets is None else offsets.subtract(X_held), threads)
            W, history = stop_early(
                systems, alphas, options, held, held_out.score, problem.graph.n_outputs
            )
            assert history.best is not None
            alphas = alphas[[history.best]]
    weights = join_outputs([system.outputs for system in systems], W).astype(X.dtype, copy=False)
    if basis is not None:
        return FittedFunction.of_weights(basis, alphas, weights, X.dtype), history
    return FittedFunction(alphas, coef=weights), history
