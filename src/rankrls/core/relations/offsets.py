"""Offsets of the labels that no kernel explains: one for all pairs, for each row, for each column.

They are free: nothing penalises them. The loss over the observed pairs is then that of residuals
from which the best offsets have been subtracted, a projection. The ranking loss has an offset for
each row, which rankings do not see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components

from rankrls.core.relations.observations import Cells

__all__ = ["NO_OFFSETS", "FittedOffsets", "FreeOffsets", "TableOffsets", "free_offsets"]

Array = NDArray[Any]


#: Tables with more than one weight in so many are dense.
DENSE = 20


class FreeOffsets(NamedTuple):
    """Which offsets there are; those of rows or columns contain the constant.

    Attributes
    ----------
    rows, columns, constant : bool
    """

    rows: bool = False
    columns: bool = False
    constant: bool = False

    @property
    def T(self) -> FreeOffsets:
        """The same, seen from the columns."""
        return FreeOffsets(self.columns, self.rows, self.constant)


NO_OFFSETS = FreeOffsets()


def free_offsets(offsets: FreeOffsets, *, ranking: bool) -> FreeOffsets:
    """All offsets of a loss: the ranking loss has those of rows."""
    rows = offsets.rows or ranking
    return FreeOffsets(rows, offsets.columns, offsets.constant and not (rows or offsets.columns))


class TableOffsets:
    """The best offsets of tables of shape (p, g) with weights.

    Parameters
    ----------
    weight : ndarray of shape (p, g), or Cells
        Weights of the pairs, zero where a pair is unobserved.
    free : FreeOffsets

    Notes
    -----
    With weights W, rows of total weight Ω and columns of total weight Ψ, the offsets a, b of
    residuals E solve

        Ω a + W b = (W∘E) 1,     Wᵀ a + Ψ b = (W∘E)ᵀ 1.

    The larger side is eliminated. The system of the smaller one is singular (a constant can be
    moved from a to b), and its shortest solution is taken.
    """

    def __init__(self, weight: Array | Cells, free: FreeOffsets) -> None:
        if isinstance(weight, Cells):
            shape = weight.shape
            rows = np.bincount(weight.rows, weight.weight, minlength=shape[0])
            columns = np.bincount(weight.cols, weight.weight, minlength=shape[1])
        else:
            shape = weight.shape
            rows, columns = weight.sum(axis=1), weight.sum(axis=0)
        self.shape, self.free = shape, free
        self.totals = rows, columns
        self.shares = _inverse(rows), _inverse(columns)
        self.by_rows = shape[0] > shape[1]  # which side is eliminated
        self._weight = weight if free.rows and free.columns else None

    @cached_property
    def _table(self) -> Any:
        """The weights with the eliminated side as rows: a matrix or a sparse one."""
        weight = self._weight
        if isinstance(weight, Cells):
            weight = sparse.csr_array((weight.weight, (weight.rows, weight.cols)), self.shape)
        assert weight is not None
        return weight if self.by_rows else weight.T

    @cached_property
    def _even(self) -> float:
        """The weight of all pairs if it is the same for all, otherwise 0."""
        weight = self._weight
        values = weight.weight if isinstance(weight, Cells) else weight
        assert values is not None
        full = values.size == self.shape[0] * self.shape[1] > 0
        first = float(values.flat[0]) if full else 0.0
        return first if full and bool((values == first).all()) else 0.0

    @cached_property
    def _solve_smaller(self) -> Callable[[Array], Array]:
        """Right sides (n,) to the shortest solutions of the system of the smaller side.

        Its null space are the constants on each connected part of the graph of observed pairs.
        With the projections on them added it is positive definite, and right sides without these
        constants have the same solution.
        """
        part = self._parts
        counts = np.bincount(part)
        try:
            S = self._grounded(part, counts)
            factor = cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:  # parts that are hardly connected, because weights differ very much
            S, rounding = self._grounded(part, counts), 16 * np.finfo(np.float64).eps
            inverse = np.linalg.pinv(S, rcond=len(S) * rounding, hermitian=True)
            return lambda right: inverse @ right

        def solve(right: Array) -> Array:
            right = right - (np.bincount(part, right) / counts)[part]
            return cho_solve(factor, right, check_finite=False)

        return solve

    def _grounded(self, part: Array, counts: Array) -> Array:
        """The system of the smaller side plus projections on constants of its parts, (n, n)."""
        first, second = (0, 1) if self.by_rows else (1, 0)
        W = self._table
        if sparse.issparse(W) and DENSE * W.nnz > W.shape[0] * W.shape[1]:
            W = W.toarray()
        root = W * np.sqrt(self.shares[first])[:, None]
        S = root.T @ root
        S = -(S.toarray() if sparse.issparse(S) else S)
        np.einsum("ii->i", S)[:] += self.totals[second]
        size = float(np.trace(S)) / len(S) or 1.0
        if len(counts) == 1:
            S += size / len(S)
            return S
        for members in np.split(np.argsort(part, kind="stable"), np.cumsum(counts)[:-1]):
            S[np.ix_(members, members)] += size / len(members)
        return S

    @cached_property
    def _parts(self) -> Array:
        """The connected part of every object of the smaller side, shape (n,)."""
        W = self._table
        if not sparse.issparse(W):
            seen = W != 0
            if (seen.sum(axis=0) * 2 > len(W)).all():  # any two have a neighbour in common
                return np.zeros(W.shape[1], dtype=np.int64)
            W = sparse.csr_array(seen)
        both = sparse.block_array([[None, W], [W.T, None]])
        part = connected_components(both, directed=False)[1][W.shape[0] :]
        return np.unique(part, return_inverse=True)[1]

    def solve(self, row_sums: Array, column_sums: Array) -> tuple[Array, Array]:
        """Offsets (p,) and (g,) from the sums of weighted residuals by row and by column."""
        p, g = self.shape
        if self.free.constant:
            total = self.totals[0].sum()
            return np.full(p, row_sums.sum() / total if total else 0.0), np.zeros(g)
        if not self.free.columns:
            a = row_sums * self.shares[0] if self.free.rows else np.zeros(p)
            return a, np.zeros(g)
        if not self.free.rows:
            return np.zeros(p), column_sums * self.shares[1]
        first, second = (0, 1) if self.by_rows else (1, 0)
        sums = row_sums, column_sums
        if self._even:  # the offsets are means
            b = sums[second] / (self._even * self.shape[first])
            b -= b.mean()
            a = sums[first] / (self._even * self.shape[second])
            return (a, b) if self.by_rows else (b, a)
        W = self._table
        b = self._solve_smaller(sums[second] - W.T @ (self.shares[first] * sums[first]))
        a = self.shares[first] * (sums[first] - W @ b)
        return (a, b) if self.by_rows else (b, a)

    def subtract(self, table: Array, weight: Array) -> None:
        """Subtract weighted offsets from a table of weighted residuals (p, g), in place."""
        rows, columns = self.free.rows, self.free.columns
        if not (rows or columns or self.free.constant):
            return
        row_sums = table.sum(axis=1)
        if rows and not columns:
            table -= weight * (row_sums * self.shares[0].astype(table.dtype, copy=False))[:, None]
            return
        column_sums = table.sum(axis=0) if columns else np.zeros(self.shape[1])
        a, b = self.solve(row_sums, column_sums)
        dtype = table.dtype
        if rows or self.free.constant:
            table -= weight * a.astype(dtype, copy=False)[:, None]
        if columns:
            table -= weight * b.astype(dtype, copy=False)

    def fit(self, cells: Cells, residual: Array) -> FittedOffsets:
        """The offsets of residuals (q,) of cells, as a constant and deviations from it."""
        p, g = self.shape
        weighted = cells.weight * residual
        a, b = self.solve(
            np.bincount(cells.rows, weighted, minlength=p),
            np.bincount(cells.cols, weighted, minlength=g),
        )
        return self.split(a, b)

    def split(self, rows: Array, columns: Array) -> FittedOffsets:
        """Offsets (p,) and (g,) as a constant and deviations from it."""
        a, b, constant = rows.copy(), columns.copy(), 0.0
        for values, total in ((a, self.totals[0]), (b, self.totals[1])):
            seen = total > 0
            mean = float(values[seen].mean()) if seen.any() else 0.0
            values[seen] -= mean
            values[~seen] = 0.0
            constant += mean
        return FittedOffsets(constant, a, b)


@dataclass(frozen=True)
class FittedOffsets:
    """Offsets of the pairs of p × g objects: constant + rows_i + columns_j.

    Attributes
    ----------
    constant : float
    rows : ndarray of shape (p,)
    columns : ndarray of shape (g,)
        With mean zero over the objects that have labels; zero for the others, as for new objects.
    """

    constant: float
    rows: Array
    columns: Array

    @property
    def T(self) -> FittedOffsets:
        """The same, seen from the columns."""
        return FittedOffsets(self.constant, self.columns, self.rows)

    def at(self, rows: Array, cols: Array) -> Array:
        """Offsets of pairs, shape (n,)."""
        return self.constant + self.rows[rows] + self.columns[cols]

    def without_rows(self) -> FittedOffsets:
        """Those that rankings of the columns see."""
        return FittedOffsets(0.0, np.zeros_like(self.rows), self.columns)


def _inverse(totals: Array) -> Array:
    return np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
