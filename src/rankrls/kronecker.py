"""Products with Kronecker products of kernels or features, over some of all pairs."""

from rankrls.core.relations.kronecker_operator import KroneckerOperator

__all__ = ["KroneckerOperator"]
