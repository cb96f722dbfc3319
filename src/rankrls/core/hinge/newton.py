"""Newton's linear systems: 2 alpha w + adjoint(L forward(w)) = b, L the Laplacian of some pairs.

Each function factorises once and returns a solver for right-hand sides: ``solve(b)`` includes a
step of iterative refinement, ``solve(b, False)`` does not.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, LinAlgWarning, cho_factor, cho_solve, lu_factor, lu_solve
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf, dpotri

from rankrls.core.hinge.losses import PairHinge

__all__ = ["Inverse", "Solve", "laplacian", "solver_of"]

Array = NDArray[Any]


class Solve(Protocol):
    """Solver that returns x for a right-hand side b."""

    def __call__(self, b: Array, refine: bool = True) -> Array:
        """Solve, with or without a step of iterative refinement."""
        ...


#: A Laplacian with more than this fraction of non-zero entries is multiplied as a dense matrix.
DENSE = 0.01

#: ε as a fraction of the mean diagonal of the kernel matrix, and the largest acceptable relative
#: size of the refinement; the remaining error due to ε is about its square.
RIDGE = 1e-10
CORRECTION = 0.01


def laplacian(pairs: PairHinge, theta: Array) -> Any:
    """DᵀΘD in terms of f, of shape (m, m): dense or sparse."""
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


def solver_of(matrix: Array) -> Solve | None:
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
        if not refine:
            return x
        return x + once(factor, b - matrix @ x, check_finite=False)

    return solve


class Inverse:
    """(K + ε I)⁻¹ of a kernel matrix, for (2 alpha I + L K) a = b.

    With f = K a it is (2 alpha K⁻¹ + L) f = b, symmetric and positive definite: one Cholesky
    factorisation for each L, where 2 alpha I + L K would need a matrix product as well. ε makes a
    singular K invertible; its effect is corrected by a step of iterative refinement.

    Parameters
    ----------
    K : ndarray of shape (m, m)

    Attributes
    ----------
    trusted : bool
        Whether the effect of ε has been negligible so far, which holds if ε L is small compared
        with 2 alpha wherever K is singular.
    """

    def __init__(self, K: Array) -> None:
        self.K = K
        self.trusted = True

    @cached_property
    def lower(self) -> Array | None:
        """The lower triangle of (K + ε I)⁻¹; None if K is not positive semi-definite."""
        K = self.K
        ridge = RIDGE * float(np.trace(K, dtype=np.float64)) / len(K)
        # K is symmetric, so its transpose has LAPACK's memory order and is copied.
        shifted = K.T.astype(np.float64)
        shifted[np.diag_indices_from(shifted)] += ridge
        factor, info = dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        inverse, info = dpotri(factor, lower=1, overwrite_c=1)
        return inverse if info == 0 else None

    def solver(self, alpha: float, pairs: PairHinge, theta: Array) -> Solve | None:
        """Solver of (2 alpha I + L K) a = b; None if there is no inverse, or L is not finite."""
        if self.lower is None or not np.isfinite(theta).all():
            return None
        lower, m = self.lower, pairs.n_rows
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
            f = self.K @ a.astype(self.K.dtype, copy=False)
            Lf = pairs.spread(theta * pairs.differences(f))
            correction = once(b - 2 * alpha * a - Lf)
            self.trusted &= bool(norm(correction) <= CORRECTION * norm(a))
            return a + correction

        return solve
