"""Function spaces of RankSVM: weights of features, or coefficients of a kernel.

The two products that a solver needs, f = Φ w and Φᵀδ (or K δ), are computed only in this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lstsq

from rankrls.core.hinge.losses import PairHinge
from rankrls.core.hinge.newton import Inverse, Solve, laplacian, solver_of
from rankrls.core.spaces.products import Products
from rankrls.core.spaces.spaces import NystroemMap

__all__ = [
    "MAX_DIMENSION",
    "BasisFunctionSpace",
    "FactoredKernelSpace",
    "FeatureSpace",
    "FunctionSpace",
    "GramOperator",
    "KernelSpace",
    "RowFeatureSpace",
]

Array = NDArray[Any]

#: Size of the largest matrix that is formed by matrix products and factorised, and of the largest
#: that only needs a Cholesky factorisation.
MAX_DIMENSION = 3000
MAX_CHOLESKY = 8000

#: Rows without a pair are excluded from products with the features if less than this fraction of
#: the rows has a pair.
MOST_ROWS = 0.8

#: Tolerance for stored products K a, relative to their largest entry, and in units of their
#: rounding error.
DRIFT = 1e-9
ROUNDING_UNITS = 16.0


class FunctionSpace(ABC):
    """Vectors w that represent functions, with their inner product, in float64.

    Attributes
    ----------
    n_rows : int
        Number m of training rows.
    dimension : int
        Size of Newton's linear systems.
    rounding : float
        Rounding error of an entry of the kernel matrix; 0 if there is no kernel matrix.
    """

    n_rows: int
    dimension: int
    rounding: float = 0.0

    @property
    def has_newton(self) -> bool:
        """Whether the systems are small enough for `newton`."""
        return self.dimension <= MAX_DIMENSION

    @abstractmethod
    def zero(self) -> Array:
        """The function 0."""

    @abstractmethod
    def forward(self, w: Array) -> Array:
        """f = (f(x_1), …, f(x_m)) of the function w."""

    @abstractmethod
    def representer(self, delta: Array) -> Array:
        """Coefficients of the function Σ_i δ_i k(x_i, ·)."""

    @abstractmethod
    def inner(self, u: Array, v: Array) -> float:
        """⟨u, v⟩."""

    def adjoint(self, delta: Array) -> Array:
        """The function Σ_i δ_i k(x_i, ·), so that ⟨w, adjoint(δ)⟩ = fᵀδ."""
        return self.from_coefficients(self.representer(delta))

    def norm2(self, w: Array) -> float:
        """‖w‖²; rounding does not make it negative."""
        return max(self.inner(w, w), 0.0)

    def coefficients(self, w: Array) -> Array:
        """The coefficients of w, which are stored and for which `newton` solves."""
        return w

    def from_coefficients(self, coefficients: Array) -> Array:
        """The vector with these coefficients."""
        return coefficients.astype(np.float64)

    def weights(self, w: Array) -> Array | None:
        """Weights of the features, shape (n,), if w has them."""
        return None

    def row_coefficients(self, w: Array) -> Array | None:
        """Kernel coefficients of rows or basis vectors, shape (m,) or (q,), if w has them."""
        return None

    def stored(self, w: Array) -> tuple[Array, float] | None:
        """f and ‖f‖² computed from the stored coefficients; None if these are w itself."""
        return None

    def consistent(self, w: Array) -> bool:
        """Whether the cached product in w agrees with its coefficients, up to rounding."""
        return True

    @abstractmethod
    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Solver of 2 alpha w + adjoint(L forward(w)) = b, in coefficients.

        L is the Laplacian of ``pairs`` with the weights ``theta``. None if it cannot be solved.
        """


class FeatureSpace(FunctionSpace):
    """f = Φ w.

    Parameters
    ----------
    Phi : Products
        Products with features of shape (m, n); float32 is multiplied in float32.
    """

    def __init__(self, Phi: Products) -> None:
        self.Phi = Phi
        self.n_rows, self.dimension = Phi.shape

    def zero(self) -> Array:
        """See `FunctionSpace`."""
        return np.zeros(self.dimension)

    def forward(self, w: Array) -> Array:
        """See `FunctionSpace`."""
        return self.Phi.matvec(w)

    def representer(self, delta: Array) -> Array:
        """Φᵀδ."""
        return self.Phi.rmatvec(delta)

    def inner(self, u: Array, v: Array) -> float:
        """See `FunctionSpace`."""
        return float(u @ v)

    def weights(self, w: Array) -> Array | None:
        """See `FunctionSpace`."""
        return w[: self.dimension]

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Factorise 2 alpha I + ΦᵀLΦ, from the rows that have a pair."""
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


class BasisFunctionSpace(FeatureSpace):
    """f = Φ w of Nyström features, w = Zᵀa with a the coefficients of the basis vectors.

    Parameters
    ----------
    Phi : Products
        Products with features of shape (m, q).
    nystroem : NystroemMap
    scale : float
        Largest entry of the kernel matrix of the basis vectors.
    """

    def __init__(self, Phi: Products, nystroem: NystroemMap, scale: float) -> None:
        super().__init__(Phi)
        self.nystroem = nystroem
        self.rounding = float(np.finfo(Phi.X.dtype).eps) * scale

    def weights(self, w: Array) -> None:
        """None, because Φ are not the user's features."""

    def row_coefficients(self, w: Array) -> Array:
        """a = Z⁻ᵀw."""
        return self.nystroem.coefficients(w[None, :, None])[0, :, 0]


class FactoredKernelSpace(BasisFunctionSpace):
    """f = K a with K = ΦΦᵀ, by a pivoted Cholesky factorisation without the null space.

    Parameters
    ----------
    Phi : Products
        Products with features of shape (m, q).
    nystroem : NystroemMap
        Map of all m rows, of which q are kept.
    kernel_space : KernelSpace
        The kernel space that was factored.
    """

    def __init__(self, Phi: Products, nystroem: NystroemMap, kernel_space: KernelSpace) -> None:
        super().__init__(Phi, nystroem, scale=0.0)
        self.kernel_space, self.rounding = kernel_space, kernel_space.rounding

    @classmethod
    def of(cls, kernel_space: KernelSpace) -> FactoredKernelSpace | None:
        """Factor a kernel matrix; None if it is zero, or not positive semi-definite."""
        K = np.asarray(kernel_space.K, dtype=np.float64)
        try:
            nystroem = NystroemMap.from_gram(K)
        except ValueError:
            return None
        Phi = nystroem.features(K[:, nystroem.kept])
        # The factorisation ends when the largest pivot is not positive.
        signs, product = kernel_space.probe
        error = float(np.abs(Phi @ (Phi.T @ signs) - product).max())
        if error > len(K) ** 1.5 * ROUNDING_UNITS * kernel_space.rounding:
            return None
        return cls(Products(Phi), nystroem, kernel_space)

    def row_coefficients(self, w: Array) -> Array:
        """Coefficients a of all rows: zero for rows not kept, or with sum zero if K was centred."""
        a = np.zeros(self.n_rows)
        a[self.nystroem.kept] = super().row_coefficients(w)
        return a - a.mean() if self.kernel_space.centred else a

    def stored(self, w: Array) -> tuple[Array, float]:
        """K a and aᵀK a, which include the rounding errors of a large a."""
        a = self.row_coefficients(w)
        f = self.kernel_space.times(a)
        return f, max(float(a @ f), 0.0)


class RowFeatureSpace(FeatureSpace):
    """f = Φ w with w = Φᵀa, which also provides the coefficients a of the rows.

    Unlike K = ΦΦᵀ, the features do not square the condition number: f is computed as in
    `FeatureSpace`, and a from w.
    """

    def row_coefficients(self, w: Array) -> Array:
        """The shortest a with Φᵀa = w and sum zero, of shape (m,)."""
        X = self.Phi.X
        Phi = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
        Phi -= Phi.mean(axis=0)
        norms = np.sqrt(np.einsum("ij,ij->j", Phi, Phi))
        scale = 1.0 / np.where(norms > 0, norms, 1.0)
        cut = max(X.shape) * float(np.finfo(X.dtype).eps)
        a = lstsq((Phi * scale).T, scale * w, cond=cut, lapack_driver="gelsy", check_finite=False)[
            0
        ]
        return a - a.mean()


class GramOperator:
    """The operator K = X Xᵀ of explicit features; the matrix is never formed.

    Parameters
    ----------
    X : Products
    """

    def __init__(self, X: Products) -> None:
        self.X = X
        self.shape = (X.shape[0], X.shape[0])
        self.dtype = X.X.dtype

    def __matmul__(self, v: Array) -> Array:
        return self.X.matvec(self.X.rmatvec(v))

    def diagonal(self) -> Array:
        """‖x_i‖², shape (m,)."""
        X = self.X.X
        if not sparse.issparse(X):
            return np.einsum("ij,ij->i", X, X)
        X = X.tocsr()
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        return np.bincount(rows, np.square(X.data), minlength=X.shape[0])


class KernelSpace(FunctionSpace):
    """f = K a. A vector holds a and K a, so that only `adjoint` costs a product with K.

    Parameters
    ----------
    K : ndarray of shape (m, m), or GramOperator
        Symmetric, positive semi-definite; may be singular.
    scale : float, optional
        Largest entry of the kernel matrix before centring; None if K was not centred.
    """

    def __init__(self, K: Array | GramOperator, scale: float | None = None) -> None:
        self.K = K
        self.n_rows = self.dimension = K.shape[0]
        self.inverse = Inverse(K) if isinstance(K, np.ndarray) else None
        self.centred = scale is not None
        if scale is None:
            scale = float(np.abs(K.diagonal()).max())
        self.rounding = float(np.finfo(K.dtype).eps) * scale

    @property
    def has_newton(self) -> bool:
        """See `FunctionSpace`."""
        return self.inverse is not None and self.dimension <= MAX_CHOLESKY

    def zero(self) -> Array:
        """See `FunctionSpace`."""
        return np.zeros(2 * self.n_rows)

    def forward(self, w: Array) -> Array:
        """See `FunctionSpace`."""
        return w[self.n_rows :]

    def representer(self, delta: Array) -> Array:
        """δ."""
        return delta

    def inner(self, u: Array, v: Array) -> float:
        """See `FunctionSpace`."""
        return float(u[: self.n_rows] @ v[self.n_rows :])

    def coefficients(self, w: Array) -> Array:
        """See `FunctionSpace`."""
        return w[: self.n_rows]

    def from_coefficients(self, coefficients: Array) -> Array:
        """See `FunctionSpace`; the coefficients are centred, since every δ sums to zero."""
        a = coefficients - coefficients.mean()
        return np.concatenate([a, self.times(a)])

    def row_coefficients(self, w: Array) -> Array:
        """See `FunctionSpace`."""
        return w[: self.n_rows]

    def times(self, a: Array) -> Array:
        """K a, in float64."""
        return np.asarray(self.K @ a.astype(self.K.dtype, copy=False), dtype=np.float64)

    def consistent(self, w: Array) -> bool:
        """Compare sᵀ(K a) with (K s)ᵀa for a fixed vector s of random signs."""
        a, f = w[: self.n_rows], w[self.n_rows :]
        signs, product = self.probe
        error = abs(float(signs @ f - product @ a))
        # An entry of K a has an error of about rounding ‖a‖₁; the signs add m of them at random.
        tolerated = ROUNDING_UNITS * self.rounding * float(np.abs(a).sum())
        tolerated += DRIFT * float(np.abs(f).max(initial=0.0))
        return bool(error <= np.sqrt(self.n_rows) * tolerated)

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """A fixed vector of random signs, and K times it."""
        signs = np.where(np.random.default_rng(0).random(self.n_rows) < 0.5, -1.0, 1.0)
        return signs, self.times(signs)

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Factorise 2 alpha K⁻¹ + L, or 2 alpha I + L K if the inverse is unreliable."""
        assert isinstance(self.K, np.ndarray)
        assert self.inverse is not None
        if self.inverse.trusted or self.dimension > MAX_DIMENSION:
            solve = self.inverse.solver(alpha, pairs, theta)
            if solve is not None or self.dimension > MAX_DIMENSION:
                return solve
        matrix = np.asarray(laplacian(pairs, theta) @ self.K, dtype=np.float64)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return solver_of(matrix)
