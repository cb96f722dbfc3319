"""Where a model lives: weights of features, or coefficients of a kernel.

The two products that a solver needs, f = Φ w and Φᵀδ (or K δ), are made here and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.hinge.losses import PairHinge
from rankrls.core.hinge.newton import Inverse, Solve, laplacian, solver_of
from rankrls.core.spaces.products import Products

__all__ = ["MAX_DIMENSION", "FeatureSpace", "Gram", "KernelSpace", "Space"]

Array = NDArray[Any]

#: The largest matrix that is formed by products of matrices and factorised, and the largest for
#: which a Cholesky factorisation is all that is needed.
MAX_DIMENSION = 3000
MAX_CHOLESKY = 8000

#: Rows without a pair are left out of products with the features if there are so many.
MOST_ROWS = 0.8


class Space(ABC):
    """Vectors w that stand for functions, with their inner product; always float64.

    Attributes
    ----------
    n_rows : int
        Number m of training rows.
    dimension : int
        Number of coefficients: the size of Newton's linear systems.
    """

    n_rows: int
    dimension: int

    @property
    def has_newton(self) -> bool:
        """Whether `newton` may be asked: the systems are not too large for it."""
        return self.dimension <= MAX_DIMENSION

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

    def norm2(self, w: Array) -> float:
        """‖w‖²; rounding does not make it negative."""
        return max(self.inner(w, w), 0.0)

    @abstractmethod
    def coefficients(self, w: Array) -> Array:
        """What is stored of w: weights (n,), or kernel coefficients (m,)."""

    @abstractmethod
    def from_coefficients(self, coefficients: Array) -> Array:
        """The vector with these coefficients."""

    @abstractmethod
    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Solver of 2 alpha w + adjoint(L forward(w)) = b, in coefficients.

        L is the Laplacian of ``pairs`` with the weights ``theta``. None: not to be solved.
        """


class FeatureSpace(Space):
    """f = Φ w.

    Parameters
    ----------
    Phi : Products
        Of features of shape (m, n); float32 is multiplied in float32.
    """

    def __init__(self, Phi: Products) -> None:
        self.Phi = Phi
        self.n_rows, self.dimension = Phi.shape

    def zero(self) -> Array:
        """See `Space`."""
        return np.zeros(self.dimension)

    def forward(self, w: Array) -> Array:
        """See `Space`."""
        return self.Phi.matvec(w)

    def adjoint(self, delta: Array) -> Array:
        """See `Space`."""
        return self.Phi.rmatvec(delta)

    def inner(self, u: Array, v: Array) -> float:
        """See `Space`."""
        return float(u @ v)

    def coefficients(self, w: Array) -> Array:
        """See `Space`."""
        return w

    def from_coefficients(self, coefficients: Array) -> Array:
        """See `Space`."""
        return coefficients.astype(np.float64)

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """By 2 alpha I + ΦᵀLΦ, from the rows that have a pair."""
        Phi, L = self.Phi.X, laplacian(pairs, theta)
        if sparse.issparse(L):
            rows = np.flatnonzero(np.diff(L.indptr))
            if len(rows) < MOST_ROWS * self.n_rows:
                Phi, L = Phi[rows], L[rows][:, rows]
        product = Phi.T @ (L @ Phi)
        matrix = product.toarray() if sparse.issparse(product) else np.asarray(product)
        matrix = matrix.astype(np.float64, copy=False)
        matrix = 0.5 * (matrix + matrix.T)  # rounding
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return solver_of(matrix)


class Gram:
    """K = X Xᵀ of explicit features, multiplied and never formed.

    Parameters
    ----------
    X : Products
    """

    def __init__(self, X: Products) -> None:
        self.X = X
        self.shape = (X.shape[0], X.shape[0])
        self.dtype = X.dtype

    def __matmul__(self, v: Array) -> Array:
        return self.X.matvec(self.X.rmatvec(v))


class KernelSpace(Space):
    """f = K a. A vector holds a and K a, so that only `adjoint` costs a product with K.

    Parameters
    ----------
    K : ndarray of shape (m, m), or Gram
        Symmetric, positive semi-definite; may be singular.
    """

    def __init__(self, K: Array | Gram) -> None:
        self.K = K
        self.n_rows = self.dimension = K.shape[0]
        self.inverse = Inverse(K) if isinstance(K, np.ndarray) else None

    @property
    def has_newton(self) -> bool:
        """See `Space`."""
        return self.inverse is not None and self.dimension <= MAX_CHOLESKY

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

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """By 2 alpha K⁻¹ + L, or by 2 alpha I + L K if the inverse cannot be trusted."""
        assert isinstance(self.K, np.ndarray)
        assert self.inverse is not None
        if self.inverse.trusted or self.dimension > MAX_DIMENSION:
            solve = self.inverse.solver(alpha, pairs, theta)
            if solve is not None or self.dimension > MAX_DIMENSION:
                return solve
        matrix = np.asarray(laplacian(pairs, theta) @ self.K, dtype=np.float64)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return solver_of(matrix)
