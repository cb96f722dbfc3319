"""Functions f = Φ w with the norm of w: their products, and the systems of Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, blas, cho_factor, cho_solve, lapack, solve_triangular

from rankrls.core.hinge.losses import PairHinge
from rankrls.core.spaces.products import Products

__all__ = ["MAX_DIMENSION", "FeatureSpace", "KernelSpace"]

Array = NDArray[Any]
Map = Callable[[Array], Array]
EPS = float(np.finfo(np.float64).eps)

#: Largest dimension whose matrix is formed by products with Φ, and largest kernel matrix whose
#: inverse is used instead, if the pivots of the factor, squared, differ by less than this.
MAX_DIMENSION, MAX_INVERSE, MAX_CONDITION = 3000, 8000, 1e8

#: A Laplacian with more than this fraction of non-zero entries is multiplied as a dense matrix.
DENSE = 0.01


class FeatureSpace:
    """f = Φ w for features Φ of shape (m, q); ``forward`` is Φ w and ``adjoint`` is Φᵀδ.

    ``to_rows`` computes kernel coefficients of rows or basis vectors from w, and ``rounding`` is
    the rounding error of an entry of the kernel matrix, if Φ was computed from one.
    """

    def __init__(self, Phi: Products, to_rows: Map | None = None, rounding: float = 0.0) -> None:
        self.Phi, self.to_rows, self.rounding = Phi, to_rows, rounding
        self.n_rows, self.dimension = Phi.shape
        self.forward: Map = Phi.matvec
        self.adjoint: Map = Phi.rmatvec
        #: Whether the systems of `newton` are small enough.
        self.has_newton = self.dimension <= MAX_DIMENSION

    def stored(self, w: Array) -> tuple[Array | None, Array, float]:
        """Kernel coefficients, if any, and f and ‖f‖² as they follow from what is stored."""
        return None if self.to_rows is None else self.to_rows(w), self.forward(w), float(w @ w)

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Callable[..., Array] | None:
        """Solver of (2 alpha I + ΦᵀLΦ) w = b, with L the Laplacian of ``pairs`` weighted by theta.

        None if the matrix cannot be factorised; ``refine=False`` omits iterative refinement.
        """
        once = self._factorized(alpha, pairs, theta) if np.isfinite(theta).all() else None
        if once is None:
            return None

        def solve(b: Array, refine: bool = True) -> Array:
            w = once(b)
            if refine:
                Lf = pairs.spread(theta * pairs.differences(self.forward(w)))
                w = w + once(b - 2 * alpha * w - self.adjoint(Lf))
            return w

        return solve

    def _factorized(self, alpha: float, pairs: PairHinge, theta: Array) -> Map | None:
        m = self.n_rows
        A = sparse.coo_array((theta, (pairs.head, pairs.tail)), shape=(m, m)).tocsr()
        degrees = pairs.degrees(theta)
        rows = np.flatnonzero(degrees)
        L = (sparse.diags_array(degrees) - A - A.T).tocsr()[rows][:, rows]
        Phi = self.Phi.X[rows]
        product = Phi.T @ ((L.toarray() if L.nnz > DENSE * len(rows) ** 2 else L) @ Phi)
        matrix = product.toarray() if sparse.issparse(product) else np.asarray(product)
        matrix = 0.5 * (matrix.astype(np.float64, copy=False) + matrix.T)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        try:
            factor = cho_factor(matrix)
        except (LinAlgError, ValueError):
            return None
        return lambda b: cho_solve(factor, b, check_finite=False)


class KernelSpace(FeatureSpace):
    """f = K a, with K = ΦΦᵀ, symmetric (m, m), by a pivoted Cholesky factorisation.

    All δ sum to zero, so K is centred first: f changes by a constant, ‖f‖² does not change. The
    constant functions are added as one more dimension, so that K keeps its rank.
    """

    def __init__(self, K: Array) -> None:
        m, scale = len(K), float(np.abs(K.diagonal()).max())
        means, constant = K.mean(axis=0), max(K.trace() / m - K.mean(), 0.0) / m
        K = K - means
        K -= (means - means.mean() - constant)[:, None]
        # K is symmetric, so its transpose has LAPACK's memory order.
        factor, pivots, rank, _ = lapack.dpstrf(K.T, lower=1, tol=m * EPS * scale)
        self.K, self.factor, self.pivots = K, factor[:, :rank], pivots - 1
        self.invertible = False
        if rank < m:
            super().__init__(self.Phi, self._rows, EPS * scale)
        else:  # Φ is triangular: half of it is read; its inverse is used if it is accurate
            self.n_rows = self.dimension = m
            self.to_rows, self.rounding = self._rows, EPS * scale
            self.forward, self.adjoint = self._forward, self._adjoint
            if m <= MAX_INVERSE:
                self.invertible = bool(factor[0, 0] ** 2 <= MAX_CONDITION * factor[-1, -1] ** 2)
            self.has_newton = self.invertible or m <= MAX_DIMENSION
        signs = np.where(np.random.default_rng(0).random(m) < 0.5, -1.0, 1.0)
        error = np.abs(self.forward(self.adjoint(signs)) - K @ signs).max()
        if error > np.sqrt(m) * (16 * m * EPS * scale + 1e-4 * np.abs(K.diagonal()).max()):
            raise ValueError(
                "the kernel matrix is not positive semi-definite, so ‖f‖² can be negative; use "
                "another kernel, or other kernel parameters"
            )

    @cached_property
    def Phi(self) -> Products:  # type: ignore[override]
        """Products with Φ."""
        Phi = np.empty((len(self.K), self.factor.shape[1]))
        Phi[self.pivots] = np.tril(self.factor)
        return Products(Phi)

    def _forward(self, w: Array) -> Array:
        f = np.empty(self.n_rows)
        f[self.pivots] = blas.dtrmv(self.factor, w, lower=1)
        return f

    def _adjoint(self, delta: Array) -> Array:
        return blas.dtrmv(self.factor, delta[self.pivots], lower=1, trans=1)

    def _rows(self, w: Array) -> Array:
        a = np.zeros(self.n_rows)
        a[self.pivots[: self.dimension]] = self._solve(w, "T")
        return a - a.mean()

    def _solve(self, b: Array, trans: str = "N") -> Array:
        Z = self.factor[: self.dimension]
        return solve_triangular(Z, b, lower=True, trans=trans, check_finite=False)

    def stored(self, w: Array) -> tuple[Array, Array, float]:
        """a, K a and aᵀK a, which include the rounding errors of a large a."""
        a = self._rows(w)
        f = self.K @ a
        return a, f, max(float(a @ f), 0.0)

    @cached_property
    def inverse(self) -> Array:
        """Lower triangle of K⁻¹, rows in the order of the pivots."""
        return lapack.dpotri(self.factor, lower=1)[0]

    def _factorized(self, alpha: float, pairs: PairHinge, theta: Array) -> Map | None:
        """Φᵀ(2 alpha K⁻¹ + L)Φ for a square Φ: one factorisation and no matrix product."""
        if not self.invertible:
            return super()._factorized(alpha, pairs, theta)
        m = self.n_rows
        position = np.argsort(self.pivots)
        head, tail = position[pairs.head], position[pairs.tail]
        G = 2 * alpha * self.inverse
        # Entry (first row, last row) of the lower triangle, column by column.
        np.subtract.at(
            G.reshape(-1, order="F"), np.minimum(head, tail) * m + np.maximum(head, tail), theta
        )
        G[np.diag_indices(m)] += pairs.degrees(theta)[self.pivots]
        factor, info = lapack.dpotrf(G, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        return lambda b: self._solve(
            cho_solve((factor, True), self._solve(b, "T"), check_finite=False)
        )
