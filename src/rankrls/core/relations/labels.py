"""Unpenalised offsets of the labels of pairs."""

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

from rankrls._relation_labels import Cells, CompleteBlock, Observations

__all__ = [
    "NO_OFFSETS",
    "Cells",
    "CompleteBlock",
    "FittedOffsets",
    "FreeOffsets",
    "Observations",
    "TableOffsets",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: A table is stored densely if at least one in this many entries has a weight.
DENSE = 20


class FreeOffsets(NamedTuple):
    """The offsets that a model has; those of rows or columns include the constant."""

    rows: bool = False
    columns: bool = False
    constant: bool = False

    @property
    def T(self) -> FreeOffsets:
        """The offsets of the transposed relation."""
        return FreeOffsets(self.columns, self.rows, self.constant)


NO_OFFSETS = FreeOffsets()


class TableOffsets:
    """Least-squares offsets a of the rows and b of the columns of weighted cells (p, g).

    With weights W and their sums Ω of rows and Ψ of columns, the offsets of residuals E solve
    Ω a + W b = (W∘E) 1 and Wᵀ a + Ψ b = (W∘E)ᵀ 1. The larger side is eliminated.
    """

    def __init__(self, cells: Cells, free: FreeOffsets) -> None:
        self.cells, self.free, self.shape = cells, free, cells.shape
        self.totals = cells.sums(cells.weight)
        self.shares = tuple(
            np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
            for total in self.totals
        )

    @cached_property
    def _eliminated(self) -> tuple[Any, Callable[[Array], Array]]:
        """The weights with the larger side as rows, and the solution for the smaller side."""
        W = self.cells.table(self.cells.weight)
        first, second = self._sides
        W = W if first == 0 else W.T.tocsr()
        # The null space has the constants on each connected component of the observed pairs.
        # Projections on these make the system positive definite.
        both = sparse.block_array([[None, W], [W.T, None]])
        part = connected_components(both, directed=False)[1][W.shape[0] :]
        part = np.unique(part, return_inverse=True)[1]
        counts = np.bincount(part)
        dense = DENSE * W.nnz > W.shape[0] * W.shape[1]
        root = (W.toarray() if dense else W) * np.sqrt(self.shares[first])[:, None]
        S = root.T @ root
        S = -(S if dense else S.toarray())
        np.einsum("ii->i", S)[:] += self.totals[second]
        size = float(np.trace(S)) / len(S) or 1.0
        for members in np.split(np.argsort(part, kind="stable"), np.cumsum(counts)[:-1]):
            S[np.ix_(members, members)] += size / len(members)
        try:
            factor = cho_factor(S, lower=True, check_finite=False)
        except LinAlgError:  # weights differ so much that components are hardly connected
            inverse = np.linalg.pinv(S, rcond=16 * len(S) * EPS, hermitian=True)
            return W, lambda right: inverse @ right

        def solve(right: Array) -> Array:
            right = right - (np.bincount(part, right) / counts)[part]
            return cho_solve(factor, right, check_finite=False)

        return W, solve

    @property
    def _sides(self) -> tuple[int, int]:
        """The larger and the smaller side: 0 for rows, 1 for columns."""
        return (0, 1) if self.shape[0] > self.shape[1] else (1, 0)

    def solve(self, row_sums: Array, column_sums: Array) -> tuple[Array, Array]:
        """Compute offsets (p,) and (g,) from sums of weighted residuals by row and column."""
        if self.free.rows and self.free.columns:
            first, second = self._sides
            sums, (W, solve) = (row_sums, column_sums), self._eliminated
            b = solve(sums[second] - W.T @ (self.shares[first] * sums[first]))
            a = self.shares[first] * (sums[first] - W @ b)
            return (a, b) if first == 0 else (b, a)
        rows, columns = (np.zeros(n) for n in self.shape)
        if self.free.constant:
            total = self.totals[0].sum()
            rows += row_sums.sum() / total if total else 0.0
        elif self.free.rows:
            rows = row_sums * self.shares[0]
        elif self.free.columns:
            columns = column_sums * self.shares[1]
        return rows, columns

    def fit(self, cells: Cells, residual: Array) -> FittedOffsets:
        """Fit offsets to residuals (q,) of cells, as a constant and deviations from it."""
        return self.split(*self.solve(*cells.sums(cells.weight * residual)))

    def split(self, rows: Array, columns: Array) -> FittedOffsets:
        """Split offsets into a constant and deviations, which are 0 on a side without offsets."""
        constant, parts = 0.0, []
        for values, total, fitted in zip((rows, columns), self.totals, self.free[:2], strict=True):
            seen = total > 0
            mean = float((values[seen] if fitted else values[:1]).mean()) if seen.any() else 0.0
            parts.append(np.where(seen & fitted, values - mean, 0.0))
            constant += mean
        return FittedOffsets(constant, *parts)


@dataclass(frozen=True)
class FittedOffsets:
    """Offsets constant + rows_i + columns_j; those of objects without labels are zero."""

    constant: float
    rows: Array
    columns: Array

    @property
    def T(self) -> FittedOffsets:
        """The offsets of the transposed relation."""
        return FittedOffsets(self.constant, self.columns, self.rows)

    def at(self, rows: Array, cols: Array) -> Array:
        """Return the offsets of pairs, shape (n,)."""
        return self.constant + self.rows[rows] + self.columns[cols]
