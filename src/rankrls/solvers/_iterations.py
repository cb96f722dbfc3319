"""Large linear problems (XᵀLX + alpha I) w = Xᵀr, known by products with X and L only.

`_converge.py` solves them to a tolerance; `_early_stopping.py` keeps the best iterate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rankrls._progress import Progress
from rankrls.feature_maps import Products
from rankrls.preferences import Objective

__all__ = ["Equations", "History", "Iteration", "IterationOptions", "LinearSystem"]

Array = NDArray[Any]

DEFAULT_MAX_ITER = 1000

#: Columns that are multiplied at once, which bounds the work space of m numbers for each.
COLUMNS = 8


class Iteration(NamedTuple):
    """What a callback gets after every iteration.

    Attributes
    ----------
    n_iter : int
    residual : float
        The largest ‖residual‖/‖right side‖ of what is still being solved.
    error : float or None
        Validation error of the best alpha at this iteration (early stopping).
    best_error : float or None
        The best so far.
    best_iteration : int or None
        Where it was.
    """

    n_iter: int
    residual: float
    error: float | None = None
    best_error: float | None = None
    best_iteration: int | None = None


@dataclass(frozen=True)
class IterationOptions:
    """How to iterate: parameters of the estimators, checked."""

    tol: float = 1e-6
    max_iter: int = DEFAULT_MAX_ITER
    patience: int = 10
    callback: Callable[[Iteration], Any] | None = None
    progress: Progress = field(default_factory=lambda: Progress("", 0))


@dataclass(frozen=True)
class History:
    """How a run of conjugate gradients went.

    Attributes
    ----------
    n_iter : int
        Iterations that were made.
    residual : ndarray of shape (n_alphas,) or None
        True ‖residual‖/‖right side‖, the worst of the outputs; None if stopped early.
    iterations : ndarray of shape (n_checks,), int
        Iterations at which the validation error was computed.
    errors : ndarray of shape (n_checks, n_alphas)
        Validation errors; NaN for an alpha that was no longer followed.
    best_iteration : int or None
        The iteration of the model that was kept.
    best : int or None
        The number of its alpha.
    """

    n_iter: int
    residual: Array | None = None
    iterations: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    errors: Array = field(default_factory=lambda: np.empty((0, 0)))
    best_iteration: int | None = None
    best: int | None = None


class Equations(Protocol):
    """(G + alpha I) W = C, as far as an iterative solver must know them.

    Attributes
    ----------
    C : ndarray of shape (n, k)
    outputs : ndarray of shape (k,), int
        The outputs that the columns are about.
    dtype : of the products
    n_entries : int
        Numbers that a product with G reads, about.
    """

    C: Array
    outputs: Array

    @property
    def dtype(self) -> Any:
        """Of the products."""

    @property
    def n_entries(self) -> int:
        """Numbers that a product with G reads, about."""

    def G(self, V: Array) -> Array:
        """G V for V of shape (n, k')."""

    def diagonal(self) -> Array:
        """About the diagonal of G, shape (n,)."""

    def magnitude(self, W: Array) -> Array:
        """What rounding of G W is relative to, for every column, shape (k',)."""


class LinearSystem:
    """G = XᵀLX and C = Xᵀr of one objective, G as a product.

    Parameters
    ----------
    product : Products of all rows
    objective : Objective over ``rows``
    rows : ndarray of int, or None for all
        The rows of X that the objective is about.
    """

    def __init__(self, product: Products, objective: Objective, rows: Array | None = None) -> None:
        self.X = product
        self.system = objective.system
        self.rows = rows
        self.outputs = objective.outputs
        k = len(objective.outputs)
        r = self.system.r
        self.C = self._backward(np.repeat(r, k // r.shape[1], axis=1))

    @property
    def dtype(self) -> Any:
        """Of the products."""
        return self.X.X.dtype

    @property
    def n_entries(self) -> int:
        """Numbers that are stored of X."""
        return self.X.X.nnz if hasattr(self.X.X, "nnz") else self.X.X.size

    def G(self, V: Array) -> Array:
        """XᵀL(X V) for V of shape (n, k')."""
        if V.shape[1] > COLUMNS:
            starts = range(0, V.shape[1], COLUMNS)
            return np.hstack([self.G(V[:, start : start + COLUMNS]) for start in starts])
        U = self.X.matmat(V)
        return self._backward(self.system.apply(U if self.rows is None else U[self.rows]))

    def diagonal(self) -> Array:
        """About the diagonal of G, shape (n,): that of Xᵀ diag(L) X for centred columns."""
        return self.X.column_squares(self._spread(self.system.degree()))

    def magnitude(self, W: Array) -> Array:
        """About ‖X‖ ‖L‖ ‖X w‖ for every column, shape (k',): what rounding is relative to."""
        degree = self._spread(self.system.degree())
        mean = self.X.rmatmat(degree[:, None])[:, 0]
        total = max(float(degree.sum()), np.finfo(float).tiny)
        squares = self.X.column_squares(degree) + mean**2 / total
        starts = range(0, W.shape[1], COLUMNS)
        norms = [
            np.linalg.norm(self.X.matmat(W[:, start : start + COLUMNS]), axis=0) for start in starts
        ]
        return np.sqrt(squares.sum() * degree.max()) * np.concatenate(norms)

    def _backward(self, U: Array) -> Array:
        return self.X.rmatmat(self._spread(U))

    def _spread(self, U: Array) -> Array:
        if self.rows is None:
            return U
        out = np.zeros((self.X.shape[0], *U.shape[1:]))
        out[self.rows] = U
        return out
