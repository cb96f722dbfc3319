"""The Nyström map: r basis vectors span the model (sparse RankRLS)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from sklearn.utils.random import sample_without_replacement

from rankrls._validation import show
from rankrls.core.spaces.kernels import Kernel

__all__ = ["Basis", "NystroemMap", "choose_basis"]

Array = NDArray[Any]

#: How many basis vectors are drawn when solver="nystroem" and ``basis`` is None.
DEFAULT_BASIS = 1000


@dataclass(frozen=True)
class NystroemMap:
    """φ(x) = Z⁻¹ k(R, x) with K_RR = Z Zᵀ, for basis rows R.

    Z comes from a pivoted Cholesky factorisation: basis vectors that depend on the others to
    rounding (duplicates, singular kernels) are left out, and get the coefficient zero.

    Attributes
    ----------
    Z : ndarray of shape (q, q), lower triangular
    kept : ndarray of shape (q,), int
        Positions in the basis, in pivot order. Kernel blocks have one column for each.
    """

    Z: Array
    kept: Array

    @classmethod
    def from_gram(cls, K_RR: Array) -> NystroemMap:
        """Factor the kernel matrix of the basis, shape (r, r)."""
        pstrf = lapack.spstrf if K_RR.dtype == np.float32 else lapack.dpstrf
        factor, pivots, rank, info = pstrf(K_RR, lower=1)
        if info < 0 or rank == 0:
            raise ValueError(
                "the kernel matrix of the basis vectors is zero or not positive semi-definite"
            )
        return cls(np.tril(factor[:rank, :rank]), pivots[:rank] - 1)

    def features(self, block: Array) -> Array:
        """Φ = K_MR Z⁻ᵀ of shape (m, q) from the kernel block of shape (m, q)."""
        return self._solve(block.T).T

    @property
    def rounding(self) -> float:
        """Relative error of `whiten`: eps cond(K_RR), from the pivots."""
        pivots = np.abs(self.Z.diagonal())
        return float(np.finfo(self.Z.dtype).eps * (pivots[0] / pivots[-1]) ** 2)

    def whiten(self, gram: Array, cross: Array, mean: Array) -> tuple[Array, Array, Array]:
        """ΦᵀLΦ, Φᵀr and φ̄ from K_RM L K_MR, K_RM r and k̄: spares the m × q features."""
        gram = self._solve(self._solve(gram).T)
        return (gram + gram.T) / 2, self._solve(cross), self._solve(mean)

    def _solve(self, V: Array, trans: str = "N") -> Array:
        """Z⁻¹V, or Z⁻ᵀV."""
        return solve_triangular(self.Z, V, lower=True, trans=trans, check_finite=False)

    def coefficients(self, weights: Array) -> Array:
        """Kernel coefficients a = Z⁻ᵀ w for feature weights, both (n_alphas, q, k)."""
        n_alphas, q, k = weights.shape
        stacked = np.moveaxis(weights, 0, 1).reshape(q, -1)
        a = self._solve(stacked, trans="T")
        return np.moveaxis(a.reshape(q, n_alphas, k), 1, 0)


@dataclass(frozen=True)
class Basis:
    """Basis vectors of a kernel and the Nyström map that they make.

    Attributes
    ----------
    kernel : Kernel
    indices : ndarray of shape (r,), int
        Rows of the training data that are basis vectors.
    map : NystroemMap
    rows : features of the q basis vectors that the map keeps; None for a precomputed kernel
    """

    kernel: Kernel
    indices: Array
    map: NystroemMap
    rows: Any

    @classmethod
    def of(cls, kernel: Kernel, X: Any, indices: Array) -> Basis:
        """Take rows of X (of the kernel matrix, if it is precomputed)."""
        if kernel.precomputed:
            K_RR = np.array(X[np.ix_(indices, indices)])
            return cls(kernel, indices, NystroemMap.from_gram(K_RR), None)
        return cls.from_rows(kernel, X[indices], indices)

    @classmethod
    def from_rows(cls, kernel: Kernel, rows: Any, indices: Array) -> Basis:
        """Take basis vectors by their features, shape (r, n)."""
        nystroem = NystroemMap.from_gram(kernel(rows))
        return cls(kernel, indices, nystroem, rows[nystroem.kept])

    @property
    def kept(self) -> Array:
        """Training rows that the map keeps, in its order, shape (q,)."""
        return self.indices[self.map.kept]

    def block(self, X: Any) -> Array:
        """Kernel values with the basis vectors that are kept, shape (n, q)."""
        return np.asarray(X[:, self.kept]) if self.rows is None else self.kernel(X, self.rows)

    def features(self, X: Any) -> Array:
        """Φ of shape (n, q)."""
        return self.map.features(self.block(X))


def choose_basis(basis: Any, n_rows: int, random_state: np.random.RandomState) -> Array:
    """Row numbers of the basis vectors: given, or drawn at random without replacement."""
    if basis is None:
        basis = min(DEFAULT_BASIS, n_rows)
    if isinstance(basis, (int, np.integer)) and not isinstance(basis, bool):
        if basis < 1:
            raise ValueError(f"basis must be at least 1; got {basis}")
        if basis > n_rows:
            warnings.warn(
                f"basis={basis} is more than the {n_rows} rows: all rows are used", stacklevel=4
            )
        n_basis = min(int(basis), n_rows)
        return np.sort(sample_without_replacement(n_rows, n_basis, random_state=random_state))
    try:
        rows = np.asarray(basis)
    except ValueError:
        rows = np.empty(0)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            "basis must be a number of basis vectors or a 1-D array of row numbers; got "
            f"{show(basis)}"
        )
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"basis has row numbers outside 0 to {n_rows - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ValueError("basis names a row twice")
    return rows.astype(np.int64)
