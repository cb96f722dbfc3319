"""A fitted pipeline as maps of the features and a ranker, and one weight for each feature."""

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
        Constant term, equal for all rows, so it does not change the ranking. It is zero if no
        scaler shifts the features.
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
        SimpleImputer that fills with 0 (see ``missing``).
    output : int, optional
        Index of the output to export, for a model with several.
    missing : {"zero", "ignore"}, default="zero"
        "zero" assumes that a missing feature counts as 0 in the weighted sum, so only imputers that
        fill with 0 can be folded into the weights. "ignore" assumes that rows have no missing
        features and ignores imputers.

    Returns
    -------
    LinearScores

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


# ---------------------------------------------------------------- parts of an estimator


@dataclass(frozen=True)
class Step:
    """z = (x[columns] M) ∘ scale + shift in float64, after ``missing`` was replaced by ``fill``.

    Parts that are None are omitted. ``n_in`` is the number of features of x, ``matrix`` has shape
    (len(columns) or n_in, n_out).
    """

    n_in: int
    columns: Array | None = None
    fill: Array | None = None
    missing: float = np.nan
    matrix: Array | None = None
    scale: Array | None = None
    shift: Array | None = None

    def weights_before(self, w: Array) -> tuple[Array, float]:
        """Return weights and constant of x, without missing values, for the scores ⟨w, z⟩."""
        constant = 0.0 if self.shift is None else float(self.shift @ w)
        if self.scale is not None:
            w = self.scale * w
        if self.matrix is not None:
            w = self.matrix @ w
        if self.columns is not None:
            chosen, w = w, np.zeros(self.n_in)
            w[self.columns] = chosen
        return w, constant


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


def decompose(estimator: Any) -> Parts:
    """Decompose an estimator, after checking that it is fitted and can be exported."""
    *transformers, ranker = _flatten(estimator)
    if not isinstance(ranker, BaseRanker | GreedyRankRLS):
        reason = ", because it compares rows within their query"
        raise ValueError(
            f"{type(ranker).__name__} cannot be exported"
            f"{reason if isinstance(ranker, AutoRanker) else ''}: give a fitted RankRLS, "
            "RankRLSCV, RankSVM or GreedyRankRLS (rankrls fit without --auto makes one), a "
            "Pipeline that ends in one, or a search over it"
        )
    check_is_fitted(ranker)
    steps = [made for step in transformers if (made := _step(step)) is not None]
    first = next((step for step in transformers if hasattr(step, "n_features_in_")), ranker)
    names = getattr(first, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    return Parts(steps, ranker, int(first.n_features_in_), names)


def _flatten(estimator: Any) -> list[Any]:
    """Return the steps of (nested) pipelines, with the final estimator last."""
    if hasattr(estimator, "best_estimator_"):  # a search of scikit-learn or of another library
        return _flatten(estimator.best_estimator_)
    if hasattr(estimator, "refit") and hasattr(estimator, "estimator"):
        check_is_fitted(estimator, "cv_results_")
        raise ValueError(
            f"this {type(estimator).__name__} has no fitted model: it was made with refit=False. "
            "Fit it with refit=True, or export a model with the best parameters"
        )
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
    return [inner for step in steps for inner in _flatten(step)]


def _step(step: Any) -> Step | None:
    """Return the map of a fitted transformer; None if it leaves the features unchanged."""
    if isinstance(step, QueryScaler):
        raise ValueError(
            "QueryScaler cannot be exported: it scales a document by the other documents of the "
            "same query, and the exported model sees one document at a time. Fit with a scaler "
            "that is the same for all rows (StandardScaler, MinMaxScaler), or scale the features "
            "by query beforehand and export the ranker alone"
        )
    if type(step) is FunctionTransformer and step.func is None:
        return None
    selects = isinstance(step, SelectorMixin) and type(step).transform is SelectorMixin.transform
    if not selects and type(step) not in STEPS:
        known = ", ".join(kind.__name__ for kind in STEPS)
        raise ValueError(
            f"a {type(step).__name__} cannot be folded into the weights; only {known} and feature "
            "selectors can. Apply it to the features beforehand, and export the steps after it"
        )
    check_is_fitted(step)
    for option in ("clip", "whiten", "add_indicator"):
        if getattr(step, option, False):
            raise ValueError(
                f"{type(step).__name__}({option}=True) cannot be exported; fit it with "
                f"{option}=False"
            )
    if selects:
        support = step.get_support()
        return Step(len(support), columns=np.flatnonzero(support))
    return STEPS[type(step)](step)


def _centred(step: Any, centre: Any) -> Step:
    """(x − centre)/scale, where either may be None."""
    scale = None if step.scale_ is None else 1.0 / _float64(step.scale_)
    shift = None if centre is None else -_float64(centre) * (1.0 if scale is None else scale)
    return Step(step.n_features_in_, scale=scale, shift=shift)


def _projected(step: Any, mean: Any = None) -> Step:
    matrix = _float64(step.components_).T
    shift = None if mean is None else -_float64(mean) @ matrix
    return Step(step.n_features_in_, matrix=matrix, shift=shift)


def _filled(step: Any) -> Step:
    number = isinstance(step.missing_values, int | float | np.integer | np.floating)
    if not number or step._fit_dtype.kind == "O":
        raise ValueError(
            "a SimpleImputer of values that are not numbers is not exported: fit it to numbers, "
            "with missing_values=np.nan"
        )
    values, columns = _float64(step.statistics_), None
    if not step.keep_empty_features and np.isnan(values).any():  # SimpleImputer drops these
        columns = np.flatnonzero(~np.isnan(values))
        values = values[columns]
    return Step(step.n_features_in_, columns, values, float(step.missing_values))


#: Exact types only: a subclass can behave differently.
STEPS: dict[type, Callable[[Any], Step]] = {
    StandardScaler: lambda step: _centred(step, step.mean_ if step.with_mean else None),
    RobustScaler: lambda step: _centred(step, step.center_),
    MinMaxScaler: lambda step: Step(
        step.n_features_in_, scale=_float64(step.scale_), shift=_float64(step.min_)
    ),
    MaxAbsScaler: lambda step: _centred(step, None),
    PCA: lambda step: _projected(step, step.mean_),
    TruncatedSVD: _projected,
    SimpleImputer: _filled,
}


def _float64(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


# ---------------------------------------------------------------- folding


def fold(parts: Parts, *, output: int | None, complete: bool = False) -> LinearScores:
    """Compute `linear_scores` from the parts of an estimator."""
    ranker = parts.ranker
    if not hasattr(ranker, "coef_"):
        raise ValueError(
            f"kernel={ranker.kernel!r} has no feature weights, and the format holds nothing else; "
            "fit with kernel='linear' (with more features, if needed), or export the kernel model "
            "with to_onnx"
        )
    w, constant = parts.weights(output), 0.0
    for i, step in reversed(list(enumerate(parts.steps))):
        if step.fill is not None and not complete:
            # A missing value counts as 0 if no step before shifts it.
            shifted = any(before.shift is not None for before in parts.steps[:i])
            if shifted or step.fill.any() or not np.isnan(step.missing):
                raise ValueError(
                    "a SimpleImputer cannot be folded into the weights, because a missing feature "
                    "counts as 0 in a weighted sum; make it the first step with "
                    "SimpleImputer(strategy='constant', fill_value=0), export with to_onnx, or "
                    "fill missing values beforehand and export the steps after the imputer"
                )
        w, shift = step.weights_before(w)
        constant += shift
    if not (np.isfinite(w).all() and np.isfinite(constant)):
        where = np.flatnonzero(~np.isfinite(w))
        what = f"the weight of feature {where[0]} (from 0) is" if len(where) else "the constant is"
        raise ValueError(
            f"{what} not finite after folding the scaling into it; check the model for NaN, and "
            "the scaler for features that are nearly constant"
        )
    return LinearScores(w, constant, parts.feature_names)


def elementwise(parts: Parts) -> tuple[Array, Array, Array]:
    """Combine steps that scale single features into z = x[columns] ∘ scale + shift."""
    columns = np.arange(parts.n_features)
    scale, shift = np.ones(len(columns)), np.zeros(len(columns))
    for step in parts.steps:
        if step.matrix is not None:
            raise ValueError(
                "normalizers=True needs scalers of single features, and the pipeline mixes "
                "features (PCA, TruncatedSVD); use normalizers=False"
            )
        if step.columns is not None:
            chosen = step.columns
            columns, scale, shift = columns[chosen], scale[chosen], shift[chosen]
        if step.scale is not None:
            scale, shift = scale * step.scale, shift * step.scale
        if step.shift is not None:
            shift = shift + step.shift
    return columns, scale, shift


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
