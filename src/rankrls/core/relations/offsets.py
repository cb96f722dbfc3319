"""Offsets of the labels that no kernel explains: one for all pairs, for each row, for each column.

They are free: nothing penalises them. The loss over the observed pairs is then that of residuals
from which the best offsets have been subtracted, a projection. The ranking loss has an offset for
each row, which rankings do not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.observations import Cells

__all__ = ["NO_OFFSETS", "FittedOffsets", "FreeOffsets", "TableOffsets", "free_offsets"]

Array = NDArray[Any]


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

    The larger side is eliminated, and the system of the smaller one, which is singular (a
    constant can be moved from a to b), solved by its pseudo-inverse.
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
    def _pseudo_inverse(self) -> Array:
        """Of the system of the smaller side, shape (n, n)."""
        first, second = (0, 1) if self.by_rows else (1, 0)
        W = self._table
        S = W.T @ (W * self.shares[first][:, None])
        S = -(S.toarray() if hasattr(S, "toarray") else S)
        diagonal = np.einsum("ii->i", S)
        diagonal += self.totals[second]
        return np.linalg.pinv(S, rcond=len(S) * np.finfo(np.float64).eps * 16, hermitian=True)

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
        b = self._pseudo_inverse @ (sums[second] - W.T @ (self.shares[first] * sums[first]))
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
        constant = 0.0
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
