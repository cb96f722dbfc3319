"""Where a model lives: weights of features, or coefficients of a kernel.

The two products of a linear model, f = Φ w and Φᵀδ, are made here and nowhere else, so that a
faster product has one place to go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FeatureSpace", "KernelSpace", "Space"]

Array = NDArray[Any]


class Space(ABC):
    """Vectors w that stand for functions, with their inner product; always float64.

    Attributes
    ----------
    n_rows : int
        Number m of training rows.
    dimension : int
        Size of the linear systems that are solved for a Newton step.
    """

    n_rows: int
    dimension: int

    @abstractmethod
    def zero(self) -> Array:
        """The function 0."""

    @abstractmethod
    def forward(self, w: Array) -> Array:
        """f = (f(x_1), …, f(x_m)) of the function w."""

    @abstractmethod
    def adjoint(self, delta: Array) -> Array:
        """The function Σ_i δ_i k(x_i, ·), so that ⟨w, adjoint(δ)⟩ = fᵀδ."""

    @abstractmethod
    def inner(self, u: Array, v: Array) -> float:
        """⟨u, v⟩."""

    @abstractmethod
    def coefficients(self, w: Array) -> Array:
        """What is stored of w: weights (n,), or kernel coefficients (m,)."""

    @abstractmethod
    def from_coefficients(self, coefficients: Array) -> Array:
        """The vector with these coefficients."""

    @abstractmethod
    def newton(self, alpha: float, L: Any) -> Array:
        """The matrix of 2 alpha w + adjoint(L forward(w)) in coefficients; ``L`` may be sparse."""


class FeatureSpace(Space):
    """f = Φ w.

    Parameters
    ----------
    Phi : ndarray or sparse array of shape (m, n)
        float32 is multiplied in float32.
    """

    def __init__(self, Phi: Any) -> None:
        self.Phi = Phi
        self.n_rows, self.dimension = Phi.shape

    def zero(self) -> Array:
        """See `Space`."""
        return np.zeros(self.dimension)

    def forward(self, w: Array) -> Array:
        """See `Space`."""
        return (self.Phi @ w.astype(self.Phi.dtype, copy=False)).astype(np.float64, copy=False)

    def adjoint(self, delta: Array) -> Array:
        """See `Space`."""
        product = self.Phi.T @ delta.astype(self.Phi.dtype, copy=False)
        return product.astype(np.float64, copy=False)

    def inner(self, u: Array, v: Array) -> float:
        """See `Space`."""
        return float(u @ v)

    def coefficients(self, w: Array) -> Array:
        """See `Space`."""
        return w

    def from_coefficients(self, coefficients: Array) -> Array:
        """See `Space`."""
        return coefficients.astype(np.float64)

    def newton(self, alpha: float, L: Any) -> Array:
        """2 alpha I + ΦᵀLΦ, symmetric."""
        product = self.Phi.T @ (L @ self.Phi)
        matrix = product.toarray() if hasattr(product, "toarray") else product
        matrix = matrix.astype(np.float64, copy=False)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return matrix


class KernelSpace(Space):
    """f = K a. A vector holds a and K a, so that only `adjoint` costs a product with K.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Symmetric, positive semi-definite; may be singular.
    """

    def __init__(self, K: Array) -> None:
        self.K = K
        self.n_rows = self.dimension = len(K)

    def zero(self) -> Array:
        """See `Space`."""
        return np.zeros(2 * self.n_rows)

    def forward(self, w: Array) -> Array:
        """See `Space`."""
        return w[self.n_rows :]

    def adjoint(self, delta: Array) -> Array:
        """See `Space`."""
        return np.concatenate([delta, self.K @ delta.astype(self.K.dtype, copy=False)])

    def inner(self, u: Array, v: Array) -> float:
        """See `Space`."""
        return float(u[: self.n_rows] @ v[self.n_rows :])

    def coefficients(self, w: Array) -> Array:
        """See `Space`."""
        return w[: self.n_rows]

    def from_coefficients(self, coefficients: Array) -> Array:
        """See `Space`."""
        return self.adjoint(coefficients.astype(np.float64))

    def newton(self, alpha: float, L: Any) -> Array:
        """2 alpha I + L K, not symmetric."""
        matrix = np.asarray(L @ self.K, dtype=np.float64)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return matrix
