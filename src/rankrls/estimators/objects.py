"""The objects of one side of a relation: their features and their kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _memory
from rankrls._validation import show
from rankrls.core.relations.sides import Side
from rankrls.core.spaces.spaces import Kernel, check_gram
from rankrls.estimators.ranker import canonical

__all__ = ["Objects", "check_numbers"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Objects:
    """Training objects of one side, and their kernel.

    Attributes
    ----------
    kernel : Kernel
    X : ndarray or CSR of shape (n, d); the kernel matrix if it is precomputed
    """

    kernel: Kernel
    X: Any

    @classmethod
    def of(cls, kernel: Kernel, X: Any) -> Objects:
        """Training objects; a precomputed kernel matrix is checked."""
        X = canonical(X, dense=kernel.precomputed)
        if kernel.precomputed:
            check_gram(X)
        return cls(kernel, X)

    def __len__(self) -> int:
        return self.X.shape[0]

    def gram(self) -> Array:
        """Kernel matrix of shape (n, n), in float64."""
        if self.kernel.precomputed:
            return np.asarray(self.X, dtype=np.float64)
        return self.kernel(self.X).astype(np.float64, copy=False)

    def side(self) -> Side:
        """The objects as a side of a relation; the kernel matrix is made when it is needed."""
        X, n = self.X, len(self)
        advice = "use fewer objects: all n × n kernel values are needed"
        _memory.require(f"the kernel matrix of {n:,} objects", n, n, copies=3, advice=advice)
        if not self.kernel.linear:
            return Side(self.gram())
        if not sparse.issparse(X):
            return Side(self.gram, X)
        # No larger than the kernel matrix: its columns keep their digits as a dense array.
        dense = X.toarray() if X.shape[1] <= X.shape[0] else None
        return Side(self.gram, dense, multiplies=False) if dense is not None else Side(self.gram())

    def others(self, X: Any) -> Any:
        """Other objects, checked features of shape (n', d), as this side's kernel takes them."""
        return canonical(X, dense=self.kernel.precomputed)

    def values(self, X: Any, *, explicit: bool = False) -> Array:
        """Kernel values of shape (n', n) with other objects; their features if ``explicit``."""
        if explicit:
            return X.toarray() if sparse.issparse(X) else X
        return self.kernel(X, self.X)

    def product(self, X: Any, coefficients: Array, *, explicit: bool = False) -> Array:
        """Kernel values (features, if ``explicit``) times coefficients (n or d, k): (n', k)."""
        return X @ coefficients if explicit else self.kernel.product(X, self.X, coefficients)


def check_numbers(name: str, values: Any, n: int) -> Array:
    """Row numbers as an int64 array of shape (n_edges,)."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be row numbers (integers, 1-D); got {show(values)}")
    if array.size and (array.min() < 0 or array.max() >= n):
        bad = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} has {bad}, but rows are numbered 0 to {n - 1}")
    return array.astype(np.int64)
