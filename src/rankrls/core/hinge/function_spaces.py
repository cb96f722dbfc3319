"""Function spaces of RankSVM: weights w of features Φ, or coefficients a of a kernel matrix K.

The products that a solver needs, f = Φ w and Φᵀδ (or K δ), and the linear systems of Newton's
method, 2 alpha w + adjoint(L f) = b with L the Laplacian of some pairs, are only in this module.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import (
    LinAlgError,
    LinAlgWarning,
    cho_factor,
    cho_solve,
    lstsq,
    lu_factor,
    lu_solve,
)
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf, dpotri

from rankrls.core.hinge.losses import PairHinge
from rankrls.core.spaces.products import Products
from rankrls.core.spaces.spaces import NystroemMap

__all__ = [
    "MAX_DIMENSION",
    "FeatureSpace",
    "FunctionSpace",
    "GramOperator",
    "KernelSpace",
    "Solve",
    "factored",
    "with_row_coefficients",
]

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)

#: Size of the largest matrix that is formed by matrix products and factorised, and of the largest
#: that only needs a Cholesky factorisation.
MAX_DIMENSION = 3000
MAX_CHOLESKY = 8000

#: Rows without a pair are excluded from products with the features if less than this fraction of
#: the rows has a pair.
MOST_ROWS = 0.8

#: A Laplacian with more than this fraction of non-zero entries is multiplied as a dense matrix.
DENSE = 0.01

#: Tolerance for stored products K a, relative to their largest entry, and in units of their
#: rounding error.
DRIFT = 1e-9
ROUNDING_UNITS = 16.0

#: ε as a fraction of the mean diagonal of the kernel matrix, and the largest acceptable relative
#: size of the refinement; the remaining error due to ε is about its square.
RIDGE = 1e-10
CORRECTION = 0.01


class Solve(Protocol):
    """Solver that returns x for a right-hand side b."""

    def __call__(self, b: Array, refine: bool = True) -> Array:
        """Solve, with or without a step of iterative refinement."""
        ...


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
    has_newton : bool
        Whether the systems are small enough for `newton`.
    """

    n_rows: int
    dimension: int
    rounding: float = 0.0
    has_newton: bool

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

    @abstractmethod
    def row_coefficients(self, w: Array) -> Array | None:
        """Kernel coefficients of rows or basis vectors, shape (m,) or (q,), if w has them."""

    @abstractmethod
    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Solver of 2 alpha w + adjoint(L forward(w)) = b, in coefficients.

        L is the Laplacian of ``pairs`` with the weights ``theta``. None if it cannot be solved.
        """

    def coefficients(self, w: Array) -> Array:
        """The coefficients of w, which are stored and for which `newton` solves."""
        return w

    def from_coefficients(self, coefficients: Array) -> Array:
        """The vector with these coefficients."""
        return coefficients.astype(np.float64)

    def adjoint(self, delta: Array) -> Array:
        """The function Σ_i δ_i k(x_i, ·), so that ⟨w, adjoint(δ)⟩ = fᵀδ."""
        return self.from_coefficients(self.representer(delta))

    def norm2(self, w: Array) -> float:
        """‖w‖²; rounding does not make it negative."""
        return max(self.inner(w, w), 0.0)

    def weights(self, w: Array) -> Array | None:
        """Weights of explicit features, shape (n,), if w has them."""
        return None

    def stored(self, w: Array) -> tuple[Array, float] | None:
        """f and ‖f‖² computed from the stored coefficients; None if these are w itself."""
        return None

    def consistent(self, w: Array) -> bool:
        """Whether the product in w agrees with its coefficients, up to rounding."""
        return True


class FeatureSpace(FunctionSpace):
    """f = Φ w.

    Parameters
    ----------
    Phi : Products
        Products with features of shape (m, n); float32 is multiplied in float32.
    to_rows : function, optional
        Kernel coefficients of rows or basis vectors that represent w.
    rounding : float
        Rounding error of an entry of the kernel matrix, if Φ was computed from one.
    kernel_space : KernelSpace, optional
        The space of the kernel matrix from which Φ was computed.
    """

    def __init__(
        self,
        Phi: Products,
        to_rows: Callable[[Array], Array] | None = None,
        rounding: float = 0.0,
        kernel_space: KernelSpace | None = None,
    ) -> None:
        self.Phi, self.to_rows, self.rounding = Phi, to_rows, rounding
        self.kernel_space = kernel_space
        self.n_rows, self.dimension = Phi.shape
        self.has_newton = self.dimension <= MAX_DIMENSION

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

    def row_coefficients(self, w: Array) -> Array | None:
        """See `FunctionSpace`."""
        return None if self.to_rows is None else self.to_rows(w)

    def weights(self, w: Array) -> Array | None:
        """See `FunctionSpace`."""
        return w if self.kernel_space is None else None

    def stored(self, w: Array) -> tuple[Array, float] | None:
        """K a and aᵀK a, which include the rounding errors of a large a."""
        if self.kernel_space is None or self.to_rows is None:
            return None
        a = self.to_rows(w)
        f = self.kernel_space.times(a)
        return f, max(float(a @ f), 0.0)

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Factorise 2 alpha I + ΦᵀLΦ, from the rows that have a pair."""
        Phi, L = self.Phi.X, _laplacian(pairs, theta)
        if sparse.issparse(L):
            rows = np.flatnonzero(np.diff(L.indptr))
            if len(rows) < MOST_ROWS * self.n_rows:
                Phi, L = Phi[rows], L[rows][:, rows]
        product = Phi.T @ (L @ Phi)
        matrix = product.toarray() if sparse.issparse(product) else np.asarray(product)
        matrix = matrix.astype(np.float64, copy=False)
        matrix = 0.5 * (matrix + matrix.T)  # rounding
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return _solver_of(matrix)


class GramOperator:
    """The operator K = X Xᵀ of explicit features; the matrix is never formed."""

    def __init__(self, X: Products) -> None:
        self.X = X
        self.shape = (X.shape[0], X.shape[0])

    def __matmul__(self, v: Array) -> Array:
        return self.X.matvec(self.X.rmatvec(v))

    def diagonal(self) -> Array:
        """‖x_i‖², shape (m,)."""
        X = self.X.X
        product = X.multiply(X) if sparse.issparse(X) else X * X
        return np.asarray(product.sum(axis=1), dtype=np.float64).ravel()


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
        self.centred = scale is not None
        self.trusted = True
        self.rounding = EPS * (float(np.abs(K.diagonal()).max()) if scale is None else scale)
        self.has_newton = isinstance(K, np.ndarray) and self.dimension <= MAX_CHOLESKY

    @classmethod
    def of(cls, K: Array, far: float) -> KernelSpace:
        """Make the space, with K centred to C K C if a constant would reduce the precision.

        All coefficients sum to zero, so f changes by a constant and ‖f‖² does not change.
        """
        mean = K.mean()
        if np.abs(mean) <= far * K.std():
            return cls(K)
        columns = K.mean(axis=0)
        scale = float(np.abs(K.diagonal()).max())
        return cls(K - columns - columns[:, None] + mean, scale)

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
        """K a."""
        return np.asarray(self.K @ a, dtype=np.float64)

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
        if self.trusted or self.dimension > MAX_DIMENSION:
            solve = self._by_inverse(alpha, pairs, theta)
            if solve is not None or self.dimension > MAX_DIMENSION:
                return solve
        matrix = np.asarray(_laplacian(pairs, theta) @ self.K)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        return _solver_of(matrix)

    @cached_property
    def inverse(self) -> Array | None:
        """The lower triangle of (K + ε I)⁻¹; None if K is not positive semi-definite.

        ε makes a singular K invertible; its effect is corrected by a step of iterative refinement.
        """
        assert isinstance(self.K, np.ndarray)
        # K is symmetric, so its transpose has LAPACK's memory order and is copied.
        shifted = self.K.T.astype(np.float64)
        shifted[np.diag_indices_from(shifted)] += RIDGE * float(np.trace(self.K)) / self.n_rows
        factor, info = dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        inverse, info = dpotri(factor, lower=1, overwrite_c=1)
        return inverse if info == 0 else None

    def _by_inverse(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Solver of (2 alpha K⁻¹ + L) f = b, f = K a: one Cholesky factorisation.

        2 alpha I + L K would need a matrix product as well. ``trusted`` becomes false if the effect
        of ε is not negligible: if ε L is not small compared with 2 alpha where K is singular.
        """
        if self.inverse is None or not np.isfinite(theta).all():
            return None
        lower, m = self.inverse, self.n_rows
        G = (2 * alpha) * lower
        if len(theta):
            # Position (first row, last row) in the lower triangle, column by column.
            place = np.minimum(pairs.head, pairs.tail)
            place *= m
            place += np.maximum(pairs.head, pairs.tail)
            np.subtract.at(G.reshape(-1, order="F"), place, theta)
        G[np.diag_indices(m)] += pairs.degrees(theta)
        factor, info = dpotrf(G, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None

        def once(b: Array) -> Array:
            f = cho_solve((factor, True), b, check_finite=False)
            return dsymv(1.0, lower, f, lower=1)

        def solve(b: Array, refine: bool = True) -> Array:
            a = once(b)
            if not refine:
                return a
            Lf = pairs.spread(theta * pairs.differences(self.times(a)))
            correction = once(b - 2 * alpha * a - Lf)
            self.trusted &= bool(norm(correction) <= CORRECTION * norm(a))
            return a + correction

        return solve


def factored(kernel_space: KernelSpace) -> FeatureSpace | None:
    """The space of a kernel matrix as features, K = ΦΦᵀ, which do not square the condition number.

    Φ comes from a pivoted Cholesky factorisation, without the null space. None if K is zero, or not
    positive semi-definite.
    """
    assert isinstance(kernel_space.K, np.ndarray)
    K = kernel_space.K
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

    def to_rows(w: Array) -> Array:
        """Zero for rows not kept, or with sum zero if K was centred."""
        a = np.zeros(len(K))
        a[nystroem.kept] = nystroem.coefficients(w[None, :, None])[0, :, 0]
        return a - a.mean() if kernel_space.centred else a

    return FeatureSpace(Products(Phi), to_rows, kernel_space.rounding, kernel_space)


def with_row_coefficients(features: Products) -> FeatureSpace:
    """The space f = Φ w with w = Φᵀa, which also provides the coefficients a of the rows."""

    def to_rows(w: Array) -> Array:
        """The shortest a with Φᵀa = w and sum zero, of shape (m,)."""
        X = features.X
        Phi = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
        Phi -= Phi.mean(axis=0)
        norms = np.sqrt(np.einsum("ij,ij->j", Phi, Phi))
        scale = 1.0 / np.where(norms > 0, norms, 1.0)
        cut = max(X.shape) * float(np.finfo(X.dtype).eps)
        system, target = (Phi * scale).T, scale * w
        a = lstsq(system, target, cond=cut, lapack_driver="gelsy", check_finite=False)[0]
        return a - a.mean()

    return FeatureSpace(features, to_rows)


def _laplacian(pairs: PairHinge, theta: Array) -> Any:
    """L = DᵀΘD in terms of f, of shape (m, m): dense or sparse."""
    m, head, tail = pairs.n_rows, pairs.head, pairs.tail
    if len(theta) > DENSE * m * m:
        L = np.bincount(head * m + tail, -theta, minlength=m * m).reshape(m, m)
        L = L + L.T
        L[np.diag_indices(m)] = -L.sum(axis=1)
        return L
    degrees = pairs.degrees(theta)
    rows = np.flatnonzero(degrees)
    entries = np.concatenate([-theta, -theta, degrees[rows]])
    i, j = np.concatenate([head, tail, rows]), np.concatenate([tail, head, rows])
    return sparse.coo_array((entries, (i, j)), shape=(m, m)).tocsr()


def _solver_of(matrix: Array) -> Solve | None:
    """Solver of matrix x = b, by Cholesky if positive definite, else by LU; None if not finite."""
    if not np.isfinite(matrix).all():
        return None
    symmetric = np.array_equal(matrix, matrix.T)
    factor: Any = None
    if symmetric:
        try:
            factor = cho_factor(matrix, check_finite=False)
        except LinAlgError:
            symmetric = False
    if not symmetric:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)
            factor = lu_factor(matrix, check_finite=False)
    once = cho_solve if symmetric else lu_solve

    def solve(b: Array, refine: bool = True) -> Array:
        x = once(factor, b, check_finite=False)
        return x + once(factor, b - matrix @ x, check_finite=False) if refine else x

    return solve
