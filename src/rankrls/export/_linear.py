"""A fitted pipeline as maps of the features and a ranker, and one weight for each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
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

from rankrls._validation import check_integer, check_option
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.greedy import GreedyRankRLS
from rankrls.estimators.ranker import BaseRanker
from rankrls.preprocessing import QueryScaler

Array = NDArray[Any]


@dataclass(frozen=True)
class LinearScores:
    """Scores ⟨weights, x⟩ + constant for rows x in the form passed to the estimator's ``fit``.

    Attributes
    ----------
    weights : ndarray of shape (n_features,), float64
    constant : float
        Equal for all rows, so it does not change the ranking; zero if no scaler shifts features.
    feature_names : list of str or None
        Feature names seen in ``fit``.
    """

    weights: Array
    constant: float
    feature_names: list[str] | None


def linear_scores(
    estimator: Any, *, output: int | None = None, missing: str = "zero"
) -> LinearScores:
    """Compute weights of the original features that give the scores of a fitted estimator.

    With z = s ∘ x + t from a scaler, ⟨w, z⟩ = ⟨w ∘ s, x⟩ + ⟨w, t⟩: the scale of the features is
    multiplied into the weights, and their shift becomes one constant.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        `RankRLS`, `RankRLSCV`, `RankSVM`, `GreedyRankRLS`, a ``Pipeline`` that ends in one of them,
        or a search with its best estimator. Steps of a pipeline can be StandardScaler,
        MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, TruncatedSVD, feature selectors, and a
        SimpleImputer that fills with 0.
    output : int, optional
        Index of the output to export, for a model with several.
    missing : {"zero", "ignore"}, default="zero"
        "zero": a missing feature counts as 0 in the weighted sum, so only imputers that fill with 0
        can be folded into the weights. "ignore": rows have no missing features.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from rankrls import RankRLS
    >>> from rankrls.export import linear_scores
    >>> X = np.array([[1.0, 200.0], [2.0, 100.0], [3.0, 400.0], [4.0, 300.0]])
    >>> ranker = make_pipeline(StandardScaler(), RankRLS()).fit(X, [0, 1, 2, 3])
    >>> folded = linear_scores(ranker)
    >>> bool(np.allclose(X @ folded.weights + folded.constant, ranker.predict(X)))
    True
    """
    check_option("missing", missing, ("zero", "ignore"))
    return fold(decompose(estimator), output=output, complete=missing == "ignore")


@dataclass(frozen=True)
class Step:
    """z = x A + shift in float64, after ``missing`` was replaced by ``fill``, if that is given.

    A is dense, or sparse with one number in each column: the scale of the feature in its row.
    """

    matrix: Any
    shift: Any = 0.0
    fill: Array | None = None
    missing: float = np.nan


@dataclass(frozen=True)
class Parts:
    """An estimator as a sequence of maps of the features and a fitted ranker."""

    steps: list[Step]
    ranker: Any
    n_features: int
    feature_names: list[str] | None

    def weights(self, output: int | None) -> Array:
        """Return the ranker's weights of its own features."""
        W = np.atleast_2d(_float64(self.ranker.coef_))
        return W[choose_output(len(W), output)]

    def affine(self) -> tuple[Any, Array]:
        """Combine all steps, without missing values, into one matrix and shift."""
        matrix, shift = _columns(self.n_features).matrix, np.zeros(self.n_features)
        for step in self.steps:
            matrix, shift = matrix @ step.matrix, shift @ step.matrix + step.shift
        return matrix, shift


def decompose(estimator: Any) -> Parts:
    """Decompose an estimator, after checking that it is fitted and can be exported."""
    check_is_fitted(estimator)
    *transformers, ranker = _flatten(estimator)
    if not isinstance(ranker, BaseRanker | GreedyRankRLS):
        reason = ", because it compares rows within their query"
        raise ValueError(
            f"{type(ranker).__name__} cannot be exported"
            f"{reason if isinstance(ranker, AutoRanker) else ''}: give a fitted RankRLS, "
            "RankRLSCV, RankSVM or GreedyRankRLS (rankrls fit without --auto makes one), a "
            "Pipeline that ends in one, or a search over it that was not made with refit=False"
        )
    steps = [_step(step) for step in transformers]
    first = next((step for step in transformers if hasattr(step, "n_features_in_")), ranker)
    names = getattr(first, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    return Parts(steps, ranker, int(first.n_features_in_), names)


def _flatten(estimator: Any) -> list[Any]:
    """Return the steps of (nested) pipelines and searches, with the final estimator last."""
    if hasattr(estimator, "best_estimator_"):
        return _flatten(estimator.best_estimator_)
    if not isinstance(estimator, Pipeline):
        identity = type(estimator) is FunctionTransformer and estimator.func is None
        return [] if identity or estimator in (None, "passthrough") else [estimator]
    return [inner for _, step in estimator.steps for inner in _flatten(step)]


def _step(step: Any) -> Step:
    """Return the map of a fitted transformer."""
    selects = isinstance(step, SelectorMixin) and type(step).transform is SelectorMixin.transform
    if not selects and type(step) not in STEPS:
        known = ", ".join(kind.__name__ for kind in STEPS)
        reason = ", because it scales a row by the other documents of its query"
        raise ValueError(
            f"a {type(step).__name__} cannot be folded into the weights"
            f"{reason if isinstance(step, QueryScaler) else ''}; only {known} and feature "
            "selectors can. Apply it to the features beforehand, and export the steps after it"
        )
    for option in ("clip", "whiten", "add_indicator"):
        if getattr(step, option, False):
            raise ValueError(
                f"{type(step).__name__}({option}=True) cannot be exported; fit it with "
                f"{option}=False"
            )
    if selects:
        support = step.get_support()
        return _columns(len(support), np.flatnonzero(support))
    return STEPS[type(step)](step)


def _columns(n: int, columns: Any = None, scale: Any = None, shift: Any = 0.0) -> Step:
    """z = x[columns] ∘ scale + shift, for n features x."""
    columns = np.arange(n) if columns is None else columns
    data = (np.ones(len(columns)) if scale is None else scale, columns, np.arange(len(columns) + 1))
    return Step(sparse.csc_array(data, shape=(n, len(columns))), shift)


def _centred(step: Any, centre: Any = None) -> Step:
    """(x − centre)/scale, where either may be None."""
    scale = 1.0 / _float64(np.ones(step.n_features_in_) if step.scale_ is None else step.scale_)
    shift = 0.0 if centre is None else -_float64(centre) * scale
    return _columns(step.n_features_in_, scale=scale, shift=shift)


def _filled(step: Any) -> Step:
    number = isinstance(step.missing_values, int | float | np.integer | np.floating)
    if not number or step._fit_dtype.kind == "O":
        raise ValueError(
            "a SimpleImputer of values that are not numbers is not exported: fit it to numbers, "
            "with missing_values=np.nan"
        )
    values = _float64(step.statistics_)
    empty = np.isnan(values) & (not step.keep_empty_features)  # SimpleImputer drops these
    kept = _columns(len(values), np.flatnonzero(~empty))
    fill = np.where(empty, 0.0, values)
    return replace(kept, fill=fill, missing=float(step.missing_values))


#: Exact types only: a subclass can behave differently.
STEPS: dict[type, Callable[[Any], Step]] = {
    StandardScaler: lambda step: _centred(step, step.mean_ if step.with_mean else None),
    RobustScaler: lambda step: _centred(step, step.center_),
    MinMaxScaler: lambda step: _columns(
        step.n_features_in_, scale=_float64(step.scale_), shift=_float64(step.min_)
    ),
    MaxAbsScaler: _centred,
    PCA: lambda step: Step(
        _float64(step.components_).T, -_float64(step.mean_) @ _float64(step.components_).T
    ),
    TruncatedSVD: lambda step: Step(_float64(step.components_).T),
    SimpleImputer: _filled,
}


def _float64(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def fold(parts: Parts, *, output: int | None, complete: bool = False) -> LinearScores:
    """Compute `linear_scores` from the parts of an estimator."""
    ranker = parts.ranker
    if not hasattr(ranker, "coef_"):
        raise ValueError(
            f"kernel={ranker.kernel!r} has no feature weights, and the format holds nothing else; "
            "fit with kernel='linear' (with more features, if needed), or export the kernel model "
            "with to_onnx"
        )
    shifted = False  # a missing value counts as 0 if no step before shifts it
    for step in parts.steps:
        zero = step.fill is None or not (shifted or step.fill.any() or not np.isnan(step.missing))
        if not (zero or complete):
            raise ValueError(
                "a SimpleImputer cannot be folded into the weights, because a missing feature "
                "counts as 0 in a weighted sum; make it the first step with "
                "SimpleImputer(strategy='constant', fill_value=0), export with to_onnx, or "
                "fill missing values beforehand and export the steps after the imputer"
            )
        shifted = shifted or bool(np.any(step.shift))
    matrix, shift = parts.affine()
    w = parts.weights(output)
    with np.errstate(invalid="ignore"):  # told below
        w, constant = matrix @ w, float(shift @ w)
    if not (np.isfinite(w).all() and np.isfinite(constant)):
        where = np.flatnonzero(~np.isfinite(w))
        what = f"the weight of feature {where[0]} (from 0) is" if len(where) else "the constant is"
        raise ValueError(
            f"{what} not finite after folding the scaling into it; check the model for NaN, and "
            "the scaler for features that are nearly constant"
        )
    return LinearScores(w, constant, parts.feature_names)


def choose_output(n_outputs: int, output: int | None) -> int:
    """Return the column to export; ``output`` is required if there are several."""
    if output is None and n_outputs > 1:
        raise ValueError(
            f"the model has {n_outputs} outputs, and one ranking is exported at a time; choose "
            f"one by output=0 … {n_outputs - 1}"
        )
    column = check_integer("output", 0 if output is None else output, least=0)
    if column >= n_outputs:
        raise ValueError(f"output={column}, but the model has {n_outputs} output(s), from 0")
    return column
