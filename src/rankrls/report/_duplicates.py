"""Detection of equal rows and columns in O(n log n), by hashing and comparing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["equal_columns", "equal_rows", "rows_in_common"]

Array = NDArray[Any]

#: Values hashed at a time: 64 MB.
_BLOCK = 1 << 23


def equal_rows(X: Any) -> Array:
    """Assign the same number to equal rows, int64 of shape (n_rows,).

    The number is the index of the first of the equal rows. −0 equals 0.
    """
    keys = _hash_rows(X)
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    # Equal keys may be collisions, so compare neighbouring rows.
    candidates = np.flatnonzero(same)
    same[candidates] = _equal(X, order[candidates], order[candidates + 1])
    starts = np.concatenate([[True], ~same])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = order[first]
    return number


def equal_columns(X: Any) -> Array:
    """Assign the same number to equal columns; see `equal_rows`."""
    return equal_rows(X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T))


def rows_in_common(X: Any, other: Any) -> Array:
    """Whether each row of ``X`` is also a row of ``other``, bool of shape (n_rows,)."""
    if sparse.issparse(X) or sparse.issparse(other):
        both: Any = sparse.csr_array(
            sparse.vstack([sparse.csr_array(X), sparse.csr_array(other)], format="csr")
        )
    else:
        both = np.vstack([other[:0], X, other])
    number = equal_rows(both)
    n = X.shape[0]
    return np.isin(number[:n], number[n:])


def _hash_rows(X: Any) -> Array:
    """Compute 64-bit keys, equal for equal rows; zeros are ignored, so that sparse = dense."""
    rng = np.random.default_rng(20_240_229)
    factors = rng.integers(1, 2**63, size=X.shape[1], dtype=np.uint64) | np.uint64(1)
    if sparse.issparse(X):
        keys = np.zeros(X.shape[0], dtype=np.uint64)
        mixed = _mix(X.data) * factors[X.indices]
        filled = np.flatnonzero(np.diff(X.indptr))
        if len(filled):
            keys[filled] = np.add.reduceat(mixed, X.indptr[filled])
        return keys
    step = max(1, _BLOCK // max(1, X.shape[1]))
    parts = [_mix(X[i : i + step]) @ factors for i in range(0, X.shape[0], step)]
    return np.concatenate(parts)


def _mix(values: Array) -> Array:
    """Spread the bits of floats over 64; 0 stays 0 (the finaliser of splitmix64)."""
    # Adding zero makes −0 into 0, and copies.
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def _equal(X: Any, a: Array, b: Array) -> Array:
    """Whether rows ``a[k]`` and ``b[k]`` are equal."""
    if not len(a):
        return np.zeros(0, dtype=bool)
    if sparse.issparse(X):
        difference = sparse.csr_array(X[a] != X[b])
        return np.diff(difference.indptr) == 0
    step = max(1, _BLOCK // max(1, X.shape[1]))
    parts = [(X[a[i : i + step]] == X[b[i : i + step]]).all(axis=1) for i in range(0, len(a), step)]
    return np.concatenate(parts)
