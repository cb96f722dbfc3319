"""Conjugate gradients on a cluster: the equations, as the solvers want them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.dask._problem import HeldProblem
from rankrls.dask._work import Summary

__all__ = ["HeldEquations"]

Array = NDArray[Any]


class HeldEquations:
    """G = XᵀLX, never formed, and C = Xᵀr of one group of outputs; see `solvers.Equations`.

    G V costs one round trip, for any number of columns.

    Parameters
    ----------
    held : HeldProblem
    group : int
        Group of outputs whose L it is.
    summary : Summary
    dtype : float32 or float64
    """

    def __init__(self, held: HeldProblem, group: int, summary: Summary, dtype: Any) -> None:
        self.held = held
        self.group = group
        self.outputs = held.outputs[group]
        self.C = summary.cross[group]
        self.squares = summary.squares[group]
        self.dtype = dtype

    #: Round trips are what costs: held-out rows may be looked at after each of them.
    n_entries = 2**62

    def G(self, V: Array) -> Array:
        """XᵀLX V of shape (n, k')."""
        return self.held.product(V, self.group)

    def diagonal(self) -> Array:
        """About the diagonal of G, shape (n,)."""
        return self.squares

    def magnitude(self, W: Array) -> Array:
        """At most ‖G‖ ‖w‖ for every column, shape (k',): what rounding is relative to."""
        return self.squares.sum() * np.linalg.norm(W, axis=0)
