"""The equations of conjugate gradients on a cluster, in the form the solvers use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.dask._partitioned_problem import DistributedOperator
from rankrls.dask._work import Summary

__all__ = ["DistributedEquations"]

Array = NDArray[Any]


class DistributedEquations:
    """G = XᵀLX, never formed, and C = Xᵀr for one group of outputs; implements `Equations`.

    A product G V takes one round trip, for any number of columns.

    Parameters
    ----------
    operator : DistributedOperator
    group : int
        Group of outputs that share L.
    summary : Summary
    dtype : float32 or float64
    n_rows : int
        Number of rows in all partitions.
    """

    def __init__(
        self,
        operator: DistributedOperator,
        group: int,
        summary: Summary,
        dtype: Any,
        n_rows: int,
    ) -> None:
        self.operator = operator
        self.group = group
        self.outputs = operator.outputs[group]
        self.C = summary.cross[group]
        self.squares = summary.squares[group]
        self.dtype = dtype
        self.rank = n_rows

    #: Round trips dominate the cost, so held-out rows can be scored after each of them.
    n_entries = 2**62

    def G(self, V: Array) -> Array:
        """Return XᵀLX V of shape (n, k')."""
        return self.operator.product(V, self.group)

    def diagonal(self) -> Array:
        """Return the approximate diagonal of G, shape (n,)."""
        return self.squares

    def magnitude(self, W: Array) -> Array:
        """Return about ‖L^½ x_j‖ Σ_i ‖L^½ x_i‖ |w_i| for each column x_j of X, shape (n, k')."""
        root = np.sqrt(self.squares)[:, None]
        return root * (root.T @ np.abs(W))
