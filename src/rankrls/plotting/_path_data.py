"""Coefficients along the regularisation path, for plots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_integer
from rankrls.estimators import RankRLS, regularization_path

__all__ = ["deviations", "path_coefficients"]

Array = NDArray[Any]


def path_coefficients(
    estimator: Any, X: Any, y: Any, alphas: Array, output: int, fit_params: dict[str, Any]
) -> Array:
    """Return coefficients of a fitted `RankRLSCV` for each alpha, (n_alphas, n_features)."""
    names = set(RankRLS().get_params()) & set(estimator.get_params(deep=False))
    parameters = {name: getattr(estimator, name) for name in names}
    if getattr(estimator, "kernel", None) != "linear":
        raise ValueError(
            f"kernel={getattr(estimator, 'kernel', None)!r} has no feature coefficients; "
            "leave out X and y to show the scores only"
        )
    if estimator.early_stopping:
        raise ValueError(
            "coefficients of early-stopped models depend on the number of iterations as well as on "
            "alpha; leave out X and y, or use EarlyStoppingDisplay"
        )
    path = regularization_path(RankRLS(**parameters), X, y, alphas=alphas, **fit_params)
    coef = path.coef
    if coef.ndim == 3:
        column = check_integer("output", output, least=0)
        if column >= coef.shape[2]:
            raise ValueError(f"output={column}, but the model has {coef.shape[2]} outputs")
        coef = coef[:, :, column]
    return coef


def deviations(X: Any) -> Array:
    """Return the standard deviation of each column without densifying sparse matrices."""
    if hasattr(X, "tocsc"):
        mean = np.asarray(X.mean(axis=0)).ravel()
        squares = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        return np.sqrt(np.maximum(squares - mean**2, 0.0))
    return np.asarray(X, dtype=np.float64).std(axis=0)
