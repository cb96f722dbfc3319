"""Centring of rows, and products with explicit features, X V and XᵀU, distributed over threads.

Preferences do not change if a constant is added to a column. So constants are subtracted from
columns before any product: all means from dense rows of which a copy in double precision is needed
anyway (`centre`), otherwise only means that are large compared with the spread (`Offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from sklearn.utils import gen_batches

from rankrls import _resources

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Number of blocks for each thread, so that threads finish at about the same time.
BLOCKS_PER_THREAD = 4

#: Minimum number of stored entries for each thread.
ENTRIES_PER_THREAD = 100_000

#: A column has an offset if its mean is more than this many times its standard deviation, in double
#: and in single precision.
FAR = {8: 100.0, 4: 10.0}

#: Number of rows of a dense matrix that are centred at once.
ROWS = 4096


@dataclass(frozen=True)
class Offsets:
    """Columns (b,) whose mean is far from zero, and the means to subtract, rounded as X is.

    ``constant``: constant up to rounding in float64; ``lost``: rounding error of the entries
    relative to the standard deviation of the column, zero for constant ones.
    """

    columns: Array
    values: Array
    constant: Array
    lost: Array

    @classmethod
    def of(cls, X: Any) -> Offsets | None:
        """Compute the offsets of X, shape (m, n); None if there are none, or too little memory."""
        (m, n), limit = X.shape, FAR[X.dtype.itemsize]
        columns, part = np.arange(n), X
        if sparse.issparse(X):
            # |mean| > limit · deviation is possible only if nearly all entries are stored.
            stored = X.indices if X.format == "csr" else np.repeat(columns, np.diff(X.indptr))
            columns = np.flatnonzero(np.bincount(stored, minlength=n) >= m * (1 - limit**-2))
            part = X[:, columns].tocsr() if len(columns) else X
        if not m or not len(columns):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            # Differences to the first row are exactly zero in constant columns.
            first = dense(part[:1]).astype(np.float64)[0]
            mean = first + _sums(part, first) / m
            deviation = np.sqrt(_sums(part, mean, power=2) / m)
            far = np.abs(mean) > limit * deviation
        columns, mean, deviation = columns[far], mean[far], deviation[far]
        width = len(columns) + X.nnz // m if sparse.issparse(X) else n
        if not len(columns) or not _resources.fits(m, width, itemsize=X.dtype.itemsize):
            return None
        eps = float(np.finfo(X.dtype).eps)
        values = mean.astype(X.dtype).astype(np.float64)
        constant = deviation <= 10 * EPS * np.abs(values)
        lost = np.divide(eps * np.abs(values), deviation, out=np.zeros(len(mean)), where=~constant)
        return cls(columns, values, constant, lost)

    def subtract(self, X: Any) -> Any:
        """Return a copy of X with these columns centred, in the dtype of X."""
        part = dense(X[:, self.columns]) - self.values.astype(X.dtype)
        part[:, self.constant] = 0.0
        if sparse.issparse(X):
            centred = replace_columns(X, self.columns, part)
            return centred.tocsc() if X.format == "csc" else centred
        centred = X.copy()
        centred[:, self.columns] = part
        return centred


def centre(X: Any) -> tuple[Any, Any]:
    """X − 1cᵀ in double precision, and c, (n,), or 0.0; of sparse columns only those far from 0."""
    if not sparse.issparse(X):
        shift = X.mean(axis=0, dtype=np.float64)
        return X - shift, shift
    offsets = Offsets.of(X)
    if offsets is None:
        return X.astype(np.float64, copy=False), 0.0
    shift = np.zeros(X.shape[1])
    shift[offsets.columns] = offsets.values
    return subtract(X, shift), shift


def subtract(X: Any, shift: Any) -> Any:
    """X − 1cᵀ in double precision for the shift c of `centre`; sparse X stays sparse."""
    if not isinstance(shift, np.ndarray):
        return X.astype(np.float64, copy=False)
    if not sparse.issparse(X):
        return X - shift
    columns = np.flatnonzero(shift)
    return replace_columns(X, columns, X[:, columns].toarray() - shift[columns])


def replace_columns(X: Any, columns: Array, D: Array) -> sparse.csr_array:
    """Replace some columns of sparse X, shape (m, n), by values of shape (m, k)."""
    rows = np.repeat(np.arange(len(D)), len(columns))
    moved = sparse.csr_array((D.ravel(), (rows, np.tile(columns, len(D)))), shape=X.shape)
    others = np.ones(X.shape[1])
    others[columns] = 0.0
    out = (sparse.csr_array(X @ sparse.diags_array(others)) + moved).tocsr()
    # scikit-learn's kernels of sparse rows only accept 32-bit indices.
    if max(out.nnz, *out.shape) <= np.iinfo(np.int32).max:
        out.indices, out.indptr = out.indices.astype(np.int32), out.indptr.astype(np.int32)
    return out


class Products(LinearOperator):
    """X of shape (m, n) as an operator: ``matmat`` is X V, ``rmatmat`` is XᵀU, both in float64.

    X is not copied: dense X is multiplied by BLAS, sparse X by threads, and only results are
    converted to float64.
    """

    def __init__(self, X: Any, threads: int = 1) -> None:
        super().__init__(np.dtype(np.float64), X.shape)
        self.X, self.blocks = X, list[RowBlock]()
        self.by_columns = sparse.issparse(X) and X.format == "csc"
        if sparse.issparse(X):
            self.threads = max(1, min(threads, X.nnz // ENTRIES_PER_THREAD))
            A = X.T if self.by_columns else X
            self.blocks = list(_row_blocks(A, self.threads * BLOCKS_PER_THREAD))

    def _rmatvec(self, u: Array) -> Array:
        return self._rmatmat(np.reshape(u, (-1, 1)))[:, 0]

    def _matmat(self, V: Array) -> Array:
        return self._product(V, transposed=False)

    def _rmatmat(self, U: Array) -> Array:
        return self._product(U, transposed=True)

    def _product(self, V: Array, *, transposed: bool) -> Array:
        V = np.ascontiguousarray(V, dtype=self.X.dtype)
        if not self.blocks:
            return np.asarray((self.X.T if transposed else self.X) @ V, dtype=np.float64)
        # CSC is CSR of Xᵀ, with the two products exchanged.
        return (self._stack if transposed == self.by_columns else self._gather)(V)

    def column_squares(self, weight: Array) -> Array:
        """Σ_i weight_i (x_ij − x̄_j)² for every column, x̄ the weighted mean, shape (n,)."""
        total = float(weight.sum())
        if not total > 0:
            return np.zeros(self.shape[1])
        mean = self._product(weight[:, None], transposed=True)[:, 0] / total
        if sparse.issparse(self.X):
            # Large means have been subtracted, so that little cancels in the difference.
            squares = np.maximum(self.X.power(2).T @ weight - total * mean**2, 0.0)
        else:
            squares = _sums(self.X, mean, weight, power=2)
        return squares

    def _stack(self, V: Array) -> Array:
        """A V for the rows A of X or Xᵀ, block by block."""
        out = np.empty((self.blocks[-1].rows.stop, V.shape[1]))

        def multiply(block: RowBlock) -> None:
            out[block.rows] = _times(block.A, V)

        self._each(multiply, self.blocks)
        return out

    def _gather(self, U: Array) -> Array:
        """AᵀU, summed over the blocks of each thread and then over threads."""

        def multiply(blocks: list[RowBlock]) -> Array:
            total = np.zeros((blocks[0].A.shape[1], U.shape[1]))
            for block in blocks:
                total += _times(block.A_T, U[block.rows])
            return total

        shares = [self.blocks[i :: self.threads] for i in range(self.threads)]
        return sum(self._each(multiply, [share for share in shares if share]))

    def _each(self, work: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
        if self.threads == 1:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(work, parts))


class RowBlock(NamedTuple):
    """Some rows A of a sparse matrix, and Aᵀ, both sharing its memory."""

    rows: slice
    A: Any
    A_T: Any


def _row_blocks(A: Any, n_blocks: int) -> Iterator[RowBlock]:
    """Slices of the rows of a CSR matrix with about the same number of entries, sharing memory."""
    m, n = A.shape
    cuts = np.searchsorted(A.indptr, np.linspace(0, A.indptr[-1], n_blocks + 1)[1:-1])
    for start, stop in zip([0, *cuts], [*cuts, m], strict=True):
        if start == stop and m:
            continue
        first, last = A.indptr[start], A.indptr[stop]
        part = sparse.csr_array((stop - start, n), dtype=A.dtype)
        transposed = sparse.csc_array((n, stop - start), dtype=A.dtype)
        indptr = A.indptr[start : stop + 1] - first
        for view in (part, transposed):
            # Set attributes directly, because the constructor checks all indices and may copy them.
            view.data, view.indices = A.data[first:last], A.indices[first:last]
            view.indptr = indptr
        yield RowBlock(slice(int(start), int(stop)), part, transposed)


def _sums(X: Any, centre: Array, weight: Array | None = None, power: int = 1) -> Array:
    """Σ_i weight_i (x_ij − centre_j)^power by blocks of rows, in float64, shape (n,)."""
    total = np.zeros(X.shape[1])
    for rows in gen_batches(X.shape[0], ROWS):
        part = dense(X[rows]) - centre
        if power == 2:
            part *= part
        total += part.sum(axis=0) if weight is None else weight[rows] @ part
    return total


def dense(X: Any) -> Array:
    """X as an ndarray."""
    return X.toarray() if sparse.issparse(X) else X


def _times(A: Any, V: Array) -> Array:
    """A V; a single column is multiplied as a vector, which is faster."""
    return (A @ V[:, 0])[:, None] if V.shape[1] == 1 else A @ V
