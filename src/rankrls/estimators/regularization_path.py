"""Regularisation path: models for a grid of alphas from one decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from rankrls._calls import tells
from rankrls.core.ridge.models import predict_path
from rankrls.estimators.choosing import check_alphas
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import RankRLS
from rankrls.estimators.ranksvm import RankSVM

__all__ = ["RegularizationPath", "regularization_path"]

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class RegularizationPath:
    """Models for a grid of alphas.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    coef : ndarray of shape (n_alphas, n_features[, n_outputs]) or None
        Weights, for the linear kernel; the last axis is that of the outputs.
    dual_coef : ndarray of shape (n_alphas, n_rows[, n_outputs]) or None
        Kernel coefficients, for solvers "dual" and "nystroem".
    pair_coef : ndarray of shape (n_alphas, n_pair_features[, n_outputs]) or None
        Effects of ``pair_features``.
    solver : str
        The solver that was used.
    """

    alphas: Array
    coef: Array | None
    dual_coef: Array | None
    pair_coef: Array | None
    solver: str
    _estimator: RankRLS | RankSVM

    def __repr__(self) -> str:
        low, high = self.alphas.min(), self.alphas.max()
        return (
            f"RegularizationPath(n_alphas={len(self.alphas)}, alphas={low:g}…{high:g}, "
            f"solver={self.solver!r})"
        )

    def predict(self, X: Any) -> Array:
        """Predict scores for each alpha, shape (n_alphas, n[, n_outputs])."""
        ranker = self._estimator
        X = ranker._check_new(X)
        return ranker._outputs(predict_path(ranker._model, X))


@tells("the models of all alphas")
def regularization_path(
    estimator: Any, X: Any, y: Any = None, *, alphas: ArrayLike, **fit_params: Any
) -> Any:
    """Fit an estimator for each alpha of a grid, from one eigendecomposition.

    `RankSVM` has no such shortcut: it solves from the largest alpha on, with warm starts.

    Parameters
    ----------
    estimator : RankRLS, RankSVM or ConditionalRankRLS
        Defines all parameters except alpha; it need not be fitted.
    X, y : as for ``fit``
    alphas : array-like of shape (n_alphas,), > 0
    **fit_params
        qid, pairs, magnitude, pair_weight, pair_features and sample_weight (Z for a
        `ConditionalRankRLS`), as for ``fit``.

    Returns
    -------
    RegularizationPath
        The models. For a `ConditionalRankRLS`, ``dual_coef`` has shape (n_alphas, p, g) and
        ``predict`` takes (X, Z=None).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS, regularization_path
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> path = regularization_path(RankRLS(), X, [0, 1, 2, 3], alphas=[0.1, 1.0, 10.0])
    >>> path.coef.round(2)
    array([[0.99, 0.01],
           [0.91, 0.06],
           [0.57, 0.21]])
    """
    conditional = hasattr(estimator, "condition_on") and hasattr(estimator, "alpha")
    if not (conditional or isinstance(estimator, RankRLS | RankSVM)):
        raise ValueError(
            "estimator must be a RankRLS, a RankSVM or a ConditionalRankRLS; got a "
            f"{type(estimator).__name__}"
        )
    grid = check_alphas("alphas", alphas, as_given=True)
    if conditional:
        for name in sorted(fit_params.keys() - {"Z"}):
            raise TypeError(f"fit has no argument {name!r}; it has Z")
        from rankrls.estimators.conditional import conditional_path

        return conditional_path(estimator, X, y, fit_params.get("Z"), grid)
    ranker = clone(estimator)
    ranker._fit_prepared(*ranker._prepare(X, Preferences.of(y, **fit_params)), grid)
    model = ranker._model
    return RegularizationPath(
        alphas=grid,
        coef=None if model.coef is None else ranker._outputs(model.coef),
        dual_coef=None if model.dual_coef is None else ranker._outputs(model.dual_coef),
        pair_coef=None if model.pair_coef is None else ranker._outputs(model.pair_coef),
        solver=ranker.solver_,
        _estimator=ranker,
    )
