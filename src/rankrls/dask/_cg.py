"""Conjugate gradients on a cluster: the equations, as the solvers want them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.dask._partitioned_problem import DistributedOperator
from rankrls.dask._work import Summary

__all__ = ["DistributedEquations"]

Array = NDArray[Any]


class DistributedEquations:
    """G = XᵀLX, never formed, and C = Xᵀr of one group of outputs: `Equations`.

    G V costs one round trip, for any number of columns.

    Parameters
    ----------
    operator : DistributedOperator
    group : int
        Group of outputs whose L it is.
    summary : Summary
    dtype : float32 or float64
    n_rows : int
        Of all partitions.
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

    #: Round trips are what costs: held-out rows may be looked at after each of them.
    n_entries = 2**62

    def G(self, V: Array) -> Array:
        """XᵀLX V of shape (n, k')."""
        return self.operator.product(V, self.group)

    def diagonal(self) -> Array:
        """About the diagonal of G, shape (n,)."""
        return self.squares

    def magnitude(self, W: Array) -> Array:
        """About ‖L^½ x_j‖ Σ_i ‖L^½ x_i‖ |w_i| for every column x_j of X, shape (n, k')."""
        root = np.sqrt(self.squares)[:, None]
        return root * (root.T @ np.abs(W))
