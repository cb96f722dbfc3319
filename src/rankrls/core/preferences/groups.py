"""Rows gathered into groups (queries, or the levels of a query): sums, means, deviations.

Everything here costs O(m) per column, for groups in any row order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Groups", "row_blocks", "sums"]

Array = NDArray[Any]

#: Above this density a sparse product costs more than a dense one.
DENSE_ENOUGH = 0.05


def sums(codes: Array, values: Array | None, n: int) -> Array:
    """Sum of ``values`` (of ones, if None) for every code in ``range(n)``, in float64."""
    return np.bincount(codes, weights=values, minlength=n).astype(np.float64)


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of rows whose work space stays in cache, yet large enough for level-3 BLAS."""
    size = max(2**18 // max(n_columns, 1), 4 * n_columns, 256)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Groups:
    """A partition of m weighted rows into g groups.

    Parameters
    ----------
    codes : ndarray of shape (m,), int
        Group number of every row, in ``range(n_groups)``.
    weight : ndarray of shape (m,) or None
        Row weights ω >= 0; None means ones.
    n_groups : int
    """

    def __init__(self, codes: Array, weight: Array | None, n_groups: int) -> None:
        self.codes = codes
        self.n_groups = n_groups
        self.weighted = weight is not None
        self.weight = np.ones(len(codes)) if weight is None else weight
        self.total = sums(codes, weight, n_groups)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def share(self) -> Array:
        """ω_i/Ω_a, shape (m,): the part of its group's weight that a row carries."""
        total = self.total[self.codes]
        return np.divide(self.weight, total, out=np.zeros_like(total), where=total > 0)

    @cached_property
    def averaging(self) -> sparse.csr_array:
        """P, shape (g, m): P V are the group means of V."""
        m = len(self.codes)
        if (self.codes[1:] >= self.codes[:-1]).all():  # rows of a group stand together
            starts = np.searchsorted(self.codes, np.arange(self.n_groups + 1))
            return sparse.csr_array((self.share, np.arange(m), starts), shape=(self.n_groups, m))
        return self._indicator(self.share).T.tocsr()

    @cached_property
    def isometry(self) -> sparse.csr_array:
        """U, shape (m, g), U_ia = √(ω_i/Ω_a): orthonormal columns, one per group."""
        return self._indicator(np.sqrt(self.share))

    def _indicator(self, values: Array) -> sparse.csr_array:
        m = len(self.codes)
        return sparse.csr_array((values, self.codes, np.arange(m + 1)), shape=(m, self.n_groups))

    def mean(self, V: Any) -> Any:
        """Group means P V of the rows of V, shape (g, k); sparse if V is sparse.

        float32 rows are summed in float64, block by block.
        """
        if sparse.issparse(V) or V.dtype == np.float64:
            return self.averaging @ V
        spread = self.averaging.T.tocsr()
        means = np.zeros((self.n_groups, V.shape[1]))
        for block in row_blocks(*V.shape):
            means += spread[block].T @ V[block].astype(np.float64)
        return means

    def deviations(self, V: Array) -> Array:
        """V minus the mean of each row's group, shape (m, k); a new array."""
        V = V if V.dtype.kind == "f" else V.astype(np.float64)
        means = self.mean(V).astype(V.dtype, copy=False)
        out = np.empty_like(V)
        for block in row_blocks(*V.shape):
            np.subtract(V[block], means[self.codes[block]], out=out[block])
        return out

    def scatter(self, X: Any, means: Any, scale: Array, r: Array) -> tuple[Array, Array, float]:
        """Σ_i scale_i (x_i − x̄_a)(x_i − x̄_a)ᵀ, shape (n, n), and Σ_i (x_i − x̄_a) r_iᵀ, in float64.

        ``scale``/ω must be constant in a group, and ``r`` of shape (m, k) sum to zero in it.
        Dense rows are centred block by block before they are multiplied, so that an offset of
        the features costs no accuracy. Sparse rows are neither centred nor densified: what
        cancels then leaves rounding, whose size is the third value.
        """
        if sparse.issparse(X):
            # Σ scale x xᵀ − Σ_a (Σ_{i∈a} scale_i) x̄_a x̄_aᵀ
            mass = sums(self.codes, scale, self.n_groups)
            gram = _sparse_gram(X, scale)
            noise = np.finfo(X.dtype).eps * gram.diagonal().max(initial=0.0)
            gram -= _sparse_gram(means, mass)
            return gram, X.T @ r, float(noise)
        m, n = X.shape
        gram, cross = np.zeros((n, n)), np.zeros((n, r.shape[1]))
        constant = m > 0 and bool((scale == scale[0]).all())
        root = np.sqrt(scale).astype(X.dtype)
        r = r.astype(X.dtype, copy=False)
        means = means.astype(X.dtype, copy=False)
        work = np.empty((0, n), dtype=X.dtype)
        for block in row_blocks(m, n):
            size = block.stop - block.start
            work = np.empty((size, n), dtype=X.dtype) if len(work) < size else work
            part = work[:size]
            np.take(means, self.codes[block], axis=0, out=part, mode="clip")
            np.subtract(X[block], part, out=part)
            cross += part.T @ r[block]
            if not constant:
                part *= root[block, None]
            gram += part.T @ part
        if constant:
            gram *= scale[0]
        return gram, cross, 0.0


def _sparse_gram(X: sparse.csr_array, weight: Array) -> Array:
    """Xᵀ diag(weight) X, shape (n, n); what is not so sparse is multiplied in dense blocks."""
    m, n = X.shape
    if X.nnz <= DENSE_ENOUGH * m * n:
        return (X.T @ (sparse.diags_array(weight) @ X)).toarray()
    gram = np.zeros((n, n))
    for block in row_blocks(m, n):
        part = X[block].toarray()
        gram += part.T @ (weight[block, None] * part)
    return gram
