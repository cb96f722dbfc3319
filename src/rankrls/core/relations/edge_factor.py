"""The loss over observed cells as a factor L = F Fᵀ: weights and centring by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from rankrls.core.relations.observations import Cells

__all__ = ["EdgeFactor"]

Array = NDArray[Any]


class EdgeFactor(LinearOperator):
    """F of shape (q, q), where (y − f)ᵀ F Fᵀ (y − f) is the loss over q cells.

    Parameters
    ----------
    cells : Cells
        Sorted by row.
    centred : bool
        Whether every row has a free offset (ranking), or none (regression).

    Notes
    -----
    With weights ω and the unit vectors u_r = √(ω/Ω_r) over the cells of row r,

        F = D_ω^{1/2} (I − Σ_r u_r u_rᵀ),

    because min_c Σ_e ω_e (y_e − c − f_e)² is the squared length of (I − u uᵀ) D_ω^{1/2} (y − f).
    Regression has F = D_ω^{1/2}. A row with one cell has F = 0: it has nothing to compare.
    """

    def __init__(self, cells: Cells, *, centred: bool) -> None:
        q = len(cells)
        super().__init__(np.dtype(np.float64), (q, q))
        self.cells = cells
        self.centred = centred
        self.root = np.sqrt(cells.weight)
        rows = cells.rows
        self.starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[:q])
        self.lengths = np.diff(np.concatenate([self.starts, [q]]))
        # One row after the other and all of one length: a mean is a mean over an axis.
        self.even = len(self.lengths) > 0 and bool((self.lengths == self.lengths[0]).all())
        total = np.add.reduceat(cells.weight, self.starts) if q else np.empty(0)
        self.unit = self.root / np.repeat(np.sqrt(total), self.lengths)
        self.plain = bool((cells.weight == 1.0).all())

    def project(self, v: Array) -> Array:
        """(I − Σ u uᵀ) v, shape (q,); v itself for regression."""
        if not self.centred or not len(v):
            return v
        if self.plain and self.even:
            table = v.reshape(len(self.lengths), -1)
            return (table - table.mean(axis=1, keepdims=True)).ravel()
        sums = np.add.reduceat(self.unit * v, self.starts)
        return v - self.unit * np.repeat(sums, self.lengths)

    def _matvec(self, v: Array) -> Array:
        v = self.project(np.ravel(v))
        return v if self.plain else self.root * v

    def _rmatvec(self, v: Array) -> Array:
        v = np.ravel(v)
        return self.project(v if self.plain else self.root * v)

    @property
    def target(self) -> Array:
        """Fᵀ y, shape (q,)."""
        y = self.cells.y
        if self.centred and len(y):
            # Any offset of a row is taken off first, so that large ones cost no digits.
            y = y - np.repeat(y[self.starts], self.lengths)
        return self._rmatvec(y)
