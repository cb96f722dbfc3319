"""Observed relations and Kronecker products over them, never written out."""

from rankrls.kronecker._factor import EdgeFactor
from rankrls.kronecker._observations import Block, Cells, Observations
from rankrls.kronecker._operators import EdgeKernel, KroneckerOperator, choose_form

__all__ = [
    "Block",
    "Cells",
    "EdgeFactor",
    "EdgeKernel",
    "KroneckerOperator",
    "Observations",
    "choose_form",
]
