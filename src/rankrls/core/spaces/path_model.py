"""Fitted functions for a path of alphas: coefficients and predictions, for any loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.spaces.spaces import Basis, Kernel, subtract

__all__ = ["PathModel", "linear_product", "of_alpha", "predict_path"]

Array = NDArray[Any]

#: Weight vectors that are multiplied one by one.
FEW = 8


def linear_product(X: Any, coef: Array) -> Array:
    """X w, of shape (n, k); for a few w, rows (in C order) that are equal get equal scores.

    BLAS adds the products of some rows in another order, and its threads would wait for those that
    read a file.
    """
    few = coef.shape[1] <= FEW
    if few and isinstance(X, np.ndarray) and X.strides[1] == X.itemsize:
        return np.stack([np.vecdot(X, w) for w in coef.T], axis=1)
    return X @ coef


def of_alpha(coefficients: Array, index: int | None) -> Array:
    """Select one alpha of an array (n_alphas, k, n_outputs), or all as (k, n_alphas n_outputs)."""
    if index is not None:
        return coefficients[index]
    return np.concatenate(list(coefficients), axis=1)


def predict_path(model: Any, X: Any) -> Array:
    """Predict scores of shape (n_alphas, n, n_outputs), computing kernel values only once."""
    joined = model.predict(X, None)
    return np.stack(np.split(joined, len(model.alphas), axis=1))


@dataclass
class PathModel:
    """f(x) = ⟨w, x⟩, or Σ_i a_i k(x, x_i) over training rows or basis vectors, for each alpha.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    coef : ndarray of shape (n_alphas, n_features, n_outputs) or None
        Weights of the features, if the kernel is linear.
    dual_coef : ndarray of shape (n_alphas, n_kernel_rows, n_outputs) or None
        Coefficients of all training rows, or of all basis vectors.
    kernel : Kernel
    rows : features of shape (q, n) of the rows or basis vectors ``kept``, or None
        None for a linear and for a precomputed kernel.
    kept : ndarray of shape (q,), int, or None
        Indices of the ``dual_coef`` that may be non-zero; None without ``dual_coef``.
    basis : Basis or None
    """

    alphas: Array
    coef: Array | None
    dual_coef: Array | None
    kernel: Kernel
    rows: Any = None
    kept: Array | None = None
    basis: Basis | None = None

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        values = self.dual_coef if self.coef is None else self.coef
        assert values is not None
        return values.shape[-1]

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """Predict for ``alphas[index]``, shape (n, n_outputs); for all alphas if None."""
        if self.coef is not None:
            return linear_product(X, of_alpha(self.coef, index))
        assert self.dual_coef is not None
        a = of_alpha(self.dual_coef, index)[self.kept]
        if self.rows is None:
            return linear_product(self._given_values(X), a)
        return self.kernel.product(self._shifted(X), self.rows, a)

    def kernel_terms(self, X: Any) -> tuple[Array, Array, Array]:
        """Training rows (q,), kernel values with them (n, q) and coefficients (q, n_outputs)."""
        assert self.dual_coef is not None
        assert self.kept is not None
        rows = self.kept if self.basis is None else self.basis.kept
        K = self._given_values(X) if self.rows is None else self.kernel(self._shifted(X), self.rows)
        return rows, K, self.dual_coef[0][self.kept]

    def _given_values(self, X: Any) -> Array:
        """Precomputed kernel values with the rows ``kept``, shape (n, q)."""
        if self.basis is not None:
            return self.basis.block(X)
        assert self.kept is not None
        return np.take(X, self.kept, axis=1)

    def _shifted(self, X: Any) -> Any:
        return subtract(X, 0.0 if self.basis is None else self.basis.shift)
