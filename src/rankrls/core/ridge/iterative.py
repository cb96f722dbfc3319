"""Linear models by conjugate gradients, up to a tolerance or the best iterate on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls._calls import warn
from rankrls._resources import at_most
from rankrls.core.linalg.krylov import (
    COLUMNS,
    History,
    IterationOptions,
    converge,
    stop_early,
)
from rankrls.core.preferences.laplacian import Objective
from rankrls.core.ridge.models import FittedFunction, join_outputs
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

    def __init__(self, product: Products, objective: Objective, rows: Array | None = None) -> None:
        self.X = product
        self.system = objective.laplacian
        self.rows = rows
        self.outputs = objective.outputs
        k = len(objective.outputs)
        r = self.system.r
        self.C = self._backward(np.repeat(r, k // r.shape[1], axis=1))

    @property
    def dtype(self) -> Any:
        """Data type of the products."""
        return self.X.X.dtype

    @property
    def n_entries(self) -> int:
        """Number of stored values of X."""
        return self.X.X.nnz if hasattr(self.X.X, "nnz") else self.X.X.size

    @property
    def rank(self) -> int:
        """Number of rows that have an edge."""
        return int(np.count_nonzero(self.system.degree()))

    def G(self, V: Array) -> Array:
        """XᵀL(X V) for V of shape (n, k')."""
        if V.shape[1] > COLUMNS:
            starts = range(0, V.shape[1], COLUMNS)
            return np.hstack([self.G(V[:, start : start + COLUMNS]) for start in starts])
        U = self.X.matmat(V)
        return self._backward(self.system.apply(U if self.rows is None else U[self.rows]))

    def diagonal(self) -> Array:
        """Approximate diagonal of G, shape (n,): that of Xᵀ diag(L) X for centred columns."""
        return self._squares

    def magnitude(self, W: Array) -> Array:
        """Approximate ‖L^½ x_j‖ ‖L^½‖ ‖X w‖ for each column x_j of X, shape (n, k')."""
        starts = range(0, W.shape[1], COLUMNS)
        norms = [
            np.linalg.norm(self.X.matmat(W[:, start : start + COLUMNS]), axis=0) for start in starts
        ]
        return self._sizes[:, None] * np.concatenate(norms)

    @cached_property
    def _squares(self) -> Array:
        return self.X.column_squares(self._spread(self.system.degree()))

    @cached_property
    def _sizes(self) -> Array:
        """‖D^½ x_j‖ max D^½ with D = diag(L), columns not centred, shape (n,)."""
        degree = self._spread(self.system.degree())
        total = max(float(degree.sum()), np.finfo(float).tiny)
        means = self.X.rmatmat(degree[:, None])[:, 0] / total
        return np.sqrt((self._squares + total * means**2) * degree.max())

    def _backward(self, U: Array) -> Array:
        return self.X.rmatmat(self._spread(U))

    def _spread(self, U: Array) -> Array:
        if self.rows is None:
            return U
        out = np.zeros((self.X.shape[0], *U.shape[1:]))
        out[self.rows] = U
        return out


def fit_iterative(
    objectives: Sequence[Objective],
    X: Any,
    alphas: Array,
    *,
    options: IterationOptions,
    threads: int,
    held_out: HeldOutRows | None = None,
) -> tuple[FittedFunction, History]:
    """Fit for all ``alphas``, or, with held-out rows, return the best (alpha, iteration)."""
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
    with at_most(threads), Products.of(X, threads, offsets) as product:
        rows = None if held_out is None else held_out.rows
        systems = [LinearSystem(product, objective, rows) for objective in objectives]
        outputs = [system.outputs for system in systems]
        if held_out is None:
            W, history = converge(systems, alphas, options)
        else:
            n_outputs = sum(map(len, outputs))
            with Products.of(held_out.X, threads, offsets) as held:
                W, history = stop_early(systems, alphas, options, held, held_out.score, n_outputs)
            assert history.best is not None
            alphas = alphas[[history.best]]
    return FittedFunction(
        alphas, coef=join_outputs(outputs, W).astype(X.dtype, copy=False)
    ), history
