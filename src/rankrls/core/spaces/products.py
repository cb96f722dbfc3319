"""Products with explicit features, X V and XᵀU, by blocks of rows over threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

__all__ = ["Products"]

Array = NDArray[Any]

#: Blocks for each thread, so that they end at about the same time.
BLOCKS_PER_THREAD = 4

#: Fewer stored entries than this for a thread are not worth starting it.
ENTRIES_PER_THREAD = 100_000


class Products(LinearOperator):
    """X of shape (m, n) as an operator: ``matmat`` is X V, ``rmatmat`` is XᵀU, both in float64.

    X is neither copied, centred, densified nor converted: the blocks of a sparse X share its
    arrays, and take one more integer for each row (each column of CSC). X of float32 is multiplied
    in float32; only sums over blocks and results are float64. Dense X is left to BLAS.

    Parameters
    ----------
    X : ndarray, or sparse CSR or CSC
    threads : int
        Threads for sparse X; SciPy's products release the interpreter's lock.

    Notes
    -----
    Use it as ``with Products.of(X, threads) as product: …``: the threads end with the block.
    """

    def __init__(self, X: Any, threads: int = 1, pool: Executor | None = None) -> None:
        super().__init__(np.dtype(np.float64), X.shape)
        self.X = X
        self.pool = pool
        # CSC is CSR of Xᵀ: the roles of the two products are exchanged.
        self.by_columns = sparse.issparse(X) and X.format == "csc"
        self.blocks: list[Block] = []
        if sparse.issparse(X):
            self.threads = max(1, min(threads, X.nnz // ENTRIES_PER_THREAD))
            A = X.T if self.by_columns else X
            self.blocks = list(_row_blocks(A, self.threads * BLOCKS_PER_THREAD))

    @classmethod
    @contextmanager
    def of(cls, X: Any, threads: int) -> Iterator[Products]:
        """Products with a pool of threads that lives as long as the ``with`` block."""
        if threads == 1 or not sparse.issparse(X):
            yield cls(X)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield cls(X, threads, pool)

    def _matvec(self, v: Array) -> Array:
        return self._matmat(np.reshape(v, (-1, 1)))[:, 0]

    def _rmatvec(self, u: Array) -> Array:
        return self._rmatmat(np.reshape(u, (-1, 1)))[:, 0]

    def _matmat(self, V: Array) -> Array:
        if not self.blocks:
            return _float64(self.X @ _as(V, self.X.dtype))
        return self._gather(V) if self.by_columns else self._stack(V)

    def _rmatmat(self, U: Array) -> Array:
        if not self.blocks:
            return _float64(self.X.T @ _as(U, self.X.dtype))
        return self._stack(U) if self.by_columns else self._gather(U)

    def column_squares(self, weight: Array) -> Array:
        """Σ_i weight_i (x_ij − x̄_j)² for every column, x̄ the weighted mean, shape (n,)."""
        total = float(weight.sum())
        if not total > 0:
            return np.zeros(self.shape[1])
        mean = self._rmatmat(weight[:, None])[:, 0] / total
        if not self.blocks:
            squares = np.zeros(self.shape[1])
            for start in range(0, self.shape[0], 4096):
                part = self.X[start : start + 4096] - mean
                squares += weight[start : start + 4096] @ (part * part)
            return squares
        squares = np.zeros(self.shape[1])
        for block in self.blocks:
            A = block.A.copy()
            A.data = A.data.astype(np.float64) ** 2
            if self.by_columns:
                squares[block.rows] = A @ weight
            else:
                squares += A.T @ weight[block.rows]
        return np.maximum(squares - total * mean**2, 0.0)

    def _stack(self, V: Array) -> Array:
        """A V for the rows A (of X, or of Xᵀ), every block in its place."""
        V = _as(V, self.X.dtype)
        out = np.empty((self.blocks[-1].rows.stop, V.shape[1]))

        def multiply(block: Block) -> None:
            out[block.rows] = _times(block.A, V)

        self._each(multiply, self.blocks)
        return out

    def _gather(self, U: Array) -> Array:
        """AᵀU: every thread adds up its blocks, then the threads' sums are added."""
        U = _as(U, self.X.dtype)

        def multiply(blocks: list[Block]) -> Array:
            total = np.zeros((blocks[0].A.shape[1], U.shape[1]))
            for block in blocks:
                total += _times(block.A_T, U[block.rows])
            return total

        shares = [self.blocks[i :: self.threads] for i in range(self.threads)]
        first, *others = self._each(multiply, [share for share in shares if share])
        for other in others:
            first += other
        return first

    def _each(self, work: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
        if self.pool is None or self.threads == 1:
            return [work(part) for part in parts]
        return list(self.pool.map(work, parts))


class Block(NamedTuple):
    """Some rows A of a sparse matrix, and Aᵀ, both sharing its memory."""

    rows: slice
    A: Any
    A_T: Any


def _row_blocks(A: Any, n_blocks: int) -> Iterator[Block]:
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
            # Attributes, because the constructor looks at all indices, and may copy them.
            view.data, view.indices = A.data[first:last], A.indices[first:last]
            view.indptr = indptr
        yield Block(slice(int(start), int(stop)), part, transposed)


def _times(A: Any, V: Array) -> Array:
    """A V; a single column goes the way of vectors, which is faster."""
    return (A @ V[:, 0])[:, None] if V.shape[1] == 1 else A @ V


def _as(V: Array, dtype: Any) -> Array:
    return np.ascontiguousarray(V, dtype=dtype)


def _float64(V: Any) -> Array:
    return np.asarray(V, dtype=np.float64)
