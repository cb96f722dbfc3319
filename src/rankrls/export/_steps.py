"""Decomposition of a fitted estimator into maps of the features and a final ranker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.greedy import GreedyRankRLS
from rankrls.estimators.ranker import BaseRanker
from rankrls.preprocessing import QueryScaler

__all__ = ["Affine", "Imputation", "Parts", "take_apart"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Affine:
    """Affine map z = (x[columns] M) ∘ scale + shift, in float64; a part that is None is omitted.

    Attributes
    ----------
    n_in : int
        Number of features of x.
    columns : ndarray of int or None
    matrix : ndarray of shape (len(columns) or n_in, n_out) or None
    scale, shift : ndarray of shape (n_out,) or None
    """

    n_in: int
    columns: Array | None = None
    matrix: Array | None = None
    scale: Array | None = None
    shift: Array | None = None

    def pull(self, W: Array) -> tuple[Array, Array]:
        """Return weights of x and constant of the scores z W, shapes (n_in, k) and (k,)."""
        constant = np.zeros(W.shape[1]) if self.shift is None else self.shift @ W
        if self.scale is not None:
            W = self.scale[:, None] * W
        if self.matrix is not None:
            W = self.matrix @ W
        if self.columns is not None:
            W_in = np.zeros((self.n_in, W.shape[1]))
            W_in[self.columns] = W
            W = W_in
        return W, constant


@dataclass(frozen=True)
class Imputation:
    """Imputation z = x[columns], where entries equal to ``missing`` are replaced by ``values``.

    Attributes
    ----------
    columns : ndarray of int, or None for all
    values : ndarray of shape (len(columns) or n_in,), float64
    missing : float
        NaN, or the number that marks a missing value.
    affine : Affine
        Map of the rows without missing values.
    """

    columns: Array | None
    values: Array
    missing: float
    affine: Affine

    def takes_zero(self, before: list[Affine | Imputation]) -> bool:
        """Return whether a missing value counts as 0 in the input rows.

        ``before`` holds the preceding steps, which must not shift that zero.
        """
        shifted = any(isinstance(s, Affine) and s.shift is not None for s in before)
        return bool(np.isnan(self.missing)) and not self.values.any() and not shifted


@dataclass(frozen=True)
class Parts:
    """An estimator decomposed into a sequence of maps of the features and a ranker.

    Attributes
    ----------
    steps : list of Affine or Imputation
    ranker : BaseRanker or GreedyRankRLS, fitted
    n_features : int
        Number of features of the input rows.
    feature_names : list of str or None
        Names of the input features, if the estimator was fitted to rows that have names.
    """

    steps: list[Affine | Imputation]
    ranker: Any
    n_features: int
    feature_names: list[str] | None


def take_apart(estimator: Any) -> Parts:
    """Decompose an estimator, after checking that it is fitted and can be exported."""
    transformers, ranker = _flatten(estimator)
    if isinstance(ranker, AutoRanker):
        raise ValueError(
            "an AutoRanker cannot be exported, because it averages rankers on features that "
            "compare "
            "rows within their query; export a RankRLS, RankRLSCV, RankSVM or GreedyRankRLS "
            "instead, "
            "alone or at the end of a Pipeline (rankrls fit without --auto makes one)"
        )
    if not isinstance(ranker, BaseRanker | GreedyRankRLS):
        raise ValueError(
            f"a {type(ranker).__name__} cannot be exported: give a fitted RankRLS, RankRLSCV, "
            "RankSVM or GreedyRankRLS, a Pipeline that ends in one, or a search over it"
        )
    check_is_fitted(ranker)
    steps = [made for step in transformers if (made := _map(step)) is not None]
    first = next((step for step in transformers if _has_features(step)), ranker)
    names = getattr(first, "feature_names_in_", None)
    return Parts(
        steps=steps,
        ranker=ranker,
        n_features=int(first.n_features_in_),
        feature_names=None if names is None else [str(name) for name in names],
    )


def _flatten(estimator: Any) -> tuple[list[Any], Any]:
    """Return the transformers of (nested) pipelines, and the final estimator."""
    if hasattr(estimator, "best_estimator_"):  # a search of scikit-learn or of another library
        return _flatten(estimator.best_estimator_)
    if hasattr(estimator, "refit") and hasattr(estimator, "estimator"):
        check_is_fitted(estimator, "cv_results_")
        raise ValueError(
            f"this {type(estimator).__name__} has no fitted model: it was made with refit=False. "
            "Fit it with refit=True, or export a model with the best parameters"
        )
    if not isinstance(estimator, Pipeline):
        return [], estimator
    if not estimator.steps:
        raise ValueError("the Pipeline has no steps")
    transformers: list[Any] = []
    for _, step in estimator.steps[:-1]:
        if isinstance(step, Pipeline):
            inner, last = _flatten(step)
            transformers += [*inner, last]
        elif step is not None and step != "passthrough":
            transformers.append(step)
    inner, last = _flatten(estimator.steps[-1][1])
    return [*transformers, *inner], last


def _has_features(step: Any) -> bool:
    return step is not None and hasattr(step, "n_features_in_")


# ---------------------------------------------------------------- maps of transformers


def _standard(step: Any) -> Affine:
    scale = None if step.scale_ is None else 1.0 / _float64(step.scale_)
    shift = None
    if step.mean_ is not None and step.with_mean:
        shift = -_float64(step.mean_) * (1.0 if scale is None else scale)
    return Affine(step.n_features_in_, scale=scale, shift=shift)


def _robust(step: Any) -> Affine:
    scale = None if step.scale_ is None else 1.0 / _float64(step.scale_)
    shift = None
    if step.center_ is not None:
        shift = -_float64(step.center_) * (1.0 if scale is None else scale)
    return Affine(step.n_features_in_, scale=scale, shift=shift)


def _min_max(step: Any) -> Affine:
    _refuse_clip(step)
    return Affine(step.n_features_in_, scale=_float64(step.scale_), shift=_float64(step.min_))


def _max_abs(step: Any) -> Affine:
    _refuse_clip(step)
    return Affine(step.n_features_in_, scale=1.0 / _float64(step.scale_))


def _pca(step: Any) -> Affine:
    if step.whiten:
        raise ValueError(
            "PCA(whiten=True) is not exported: use PCA() and a StandardScaler after it"
        )
    matrix = _float64(step.components_).T
    shift = None if step.mean_ is None else -_float64(step.mean_) @ matrix
    return Affine(step.n_features_in_, matrix=matrix, shift=shift)


def _truncated_svd(step: Any) -> Affine:
    return Affine(step.n_features_in_, matrix=_float64(step.components_).T)


#: Exact types only: a subclass can behave differently.
AFFINE: dict[type, Callable[[Any], Affine]] = {
    StandardScaler: _standard,
    RobustScaler: _robust,
    MinMaxScaler: _min_max,
    MaxAbsScaler: _max_abs,
    PCA: _pca,
    TruncatedSVD: _truncated_svd,
}


def _imputation(step: Any) -> Imputation:
    check_is_fitted(step)
    if step.add_indicator:
        raise ValueError(
            "SimpleImputer(add_indicator=True) is not exported: fit it with add_indicator=False"
        )
    number = isinstance(step.missing_values, int | float | np.integer | np.floating)
    if not number or step._fit_dtype.kind == "O":
        raise ValueError(
            "a SimpleImputer of values that are not numbers is not exported: fit it to numbers, "
            "with missing_values=np.nan"
        )
    values, n = _float64(step.statistics_), step.n_features_in_
    columns = None
    if not step.keep_empty_features and np.isnan(values).any():  # SimpleImputer drops these
        columns = np.flatnonzero(~np.isnan(values))
        values = values[columns]
    return Imputation(columns, values, float(step.missing_values), Affine(n, columns=columns))


def _map(step: Any) -> Affine | Imputation | None:
    """Return the map of a fitted transformer; None if it leaves the features unchanged."""
    if isinstance(step, QueryScaler):
        raise ValueError(
            "QueryScaler cannot be exported: it scales a document by the other documents of the "
            "same query, and the exported model sees one document at a time. Fit with a scaler "
            "that "
            "is the same for all rows (StandardScaler, MinMaxScaler), or scale the features "
            "by query beforehand and export the ranker alone"
        )
    if type(step) is FunctionTransformer and step.func is None:
        return None
    if type(step) is SimpleImputer:
        return _imputation(step)
    selects = isinstance(step, SelectorMixin) and type(step).transform is SelectorMixin.transform
    if not selects and type(step) not in AFFINE:
        known = ", ".join(kind.__name__ for kind in AFFINE)
        raise ValueError(
            f"a {type(step).__name__} cannot be folded into the weights; only {known} and feature "
            "selectors can. Apply it to the features beforehand, and export the steps after it"
        )
    check_is_fitted(step)
    if selects:
        columns = np.flatnonzero(step.get_support())
        return Affine(len(step.get_support()), columns=columns)
    return AFFINE[type(step)](step)


def _refuse_clip(step: Any) -> None:
    if getattr(step, "clip", False):
        raise ValueError(
            f"{type(step).__name__}(clip=True) cannot be folded into the weights, because "
            "clipping is "
            "not linear. Fit it with clip=False"
        )


def _float64(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)
