"""A fitted pipeline as one affine map of the features and a ranker; one weight per feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
        MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, TruncatedSVD, feature selectors, and first a
        SimpleImputer that fills with 0.
    output : int, optional
        Index of the output to export, for a model with several.
    missing : {"zero", "ignore"}, default="zero"
        "zero": a missing feature counts as 0, so only an imputer that fills with 0 can be folded
        into the weights. "ignore": rows have no missing features.

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
    return fold(estimator).linear(output, complete=missing == "ignore")


@dataclass(frozen=True)
class Folded:
    """A ranker of z = x A + shift in float64, where ``fill`` takes the place of NaN in x.

    A is dense, or sparse with one number in each column: the scale of the feature in its row.
    """

    fill: Array | None
    matrix: Any
    shift: Array
    ranker: Any
    feature_names: list[str] | None

    def coef(self, output: int | None) -> Array:
        """Return the ranker's weights of its own features."""
        if not hasattr(self.ranker, "coef_"):
            raise ValueError(
                f"kernel={self.ranker.kernel!r} has no feature weights, and the format holds "
                "nothing else; fit with kernel='linear', or export with to_onnx"
            )
        W = np.atleast_2d(_float64(self.ranker.coef_))
        return W[choose_output(len(W), output)]

    def linear(self, output: int | None, complete: bool = False) -> LinearScores:
        """Return weights of x; unless rows are ``complete``, missing values must count as 0."""
        if self.fill is not None and self.fill.any() and not complete:
            raise ValueError(
                "a SimpleImputer cannot be folded into the weights, because a missing feature "
                "counts as 0 in a weighted sum; use SimpleImputer(strategy='constant', "
                "fill_value=0), or export with to_onnx or to_sql"
            )
        w = self.coef(output)
        with np.errstate(invalid="ignore"):  # told below
            w, constant = self.matrix @ w, float(self.shift @ w)
        if not (np.isfinite(w).all() and np.isfinite(constant)):
            where = np.flatnonzero(~np.isfinite(w))
            what = f"weight of feature {where[0]} (from 0)" if len(where) else "constant"
            raise ValueError(
                f"the {what} is not finite after folding the scaling into it; check the model for "
                "NaN, and the scaler for features that are nearly constant"
            )
        return LinearScores(w, constant, self.feature_names)


def fold(estimator: Any) -> Folded:
    """Combine the steps of an estimator, after checking that it is fitted and can be exported."""
    check_is_fitted(estimator)
    *steps, ranker = _flatten(estimator)
    if not isinstance(ranker, BaseRanker | GreedyRankRLS):
        reason = ", because it compares rows within their query"
        raise ValueError(
            f"{type(ranker).__name__} cannot be exported"
            f"{reason if isinstance(ranker, AutoRanker) else ''}: give a fitted RankRLS, "
            "RankRLSCV, RankSVM or GreedyRankRLS (rankrls fit without --auto makes one), a "
            "Pipeline that ends in one, or a search over it that was not made with refit=False"
        )
    first = next((step for step in steps if hasattr(step, "n_features_in_")), ranker)
    n_features, names = int(first.n_features_in_), getattr(first, "feature_names_in_", None)
    fill, matrix = None, _columns(np.arange(n_features), n_features)
    if steps and type(steps[0]) is SimpleImputer:
        fill, matrix = _filled(first)
        steps = steps[1:]
    shift = np.zeros(matrix.shape[1])
    for step in steps:
        scale, moved = _affine(step)
        matrix, shift = matrix @ scale, shift @ scale + moved
    if sparse.issparse(matrix) and matrix.nnz < matrix.shape[1]:  # a scale that is zero
        matrix = matrix.toarray()
    return Folded(fill, matrix, shift, ranker, None if names is None else list(map(str, names)))


def _flatten(estimator: Any) -> list[Any]:
    """Return the steps of (nested) pipelines and searches, with the final estimator last."""
    if hasattr(estimator, "best_estimator_"):
        return _flatten(estimator.best_estimator_)
    if not isinstance(estimator, Pipeline):
        identity = type(estimator) is FunctionTransformer and estimator.func is None
        return [] if identity or estimator in (None, "passthrough") else [estimator]
    return [inner for _, step in estimator.steps for inner in _flatten(step)]


def _affine(step: Any) -> tuple[Any, Any]:
    """Return A and shift of the map x A + shift that a fitted transformer is."""
    if isinstance(step, SelectorMixin) and type(step).transform is SelectorMixin.transform:
        support = step.get_support()
        return _columns(np.flatnonzero(support), len(support)), 0.0
    if type(step) not in STEPS:
        known = ", ".join(kind.__name__ for kind in STEPS)
        reason = ", because it scales a row by the other documents of its query"
        raise ValueError(
            f"a {type(step).__name__} cannot be folded into the weights"
            f"{reason if isinstance(step, QueryScaler) else ''}; only {known}, feature selectors "
            "and, as the first step, SimpleImputer can. Apply it to the features beforehand, and "
            "export the steps after it"
        )
    _refuse_options(step)
    return STEPS[type(step)](step)


def _refuse_options(step: Any) -> None:
    for option in ("clip", "whiten", "add_indicator"):
        if getattr(step, option, False):
            kind = type(step).__name__
            raise ValueError(f"{kind}({option}=True) cannot be exported; fit it without {option}")


def _columns(columns: Array, n: int, scale: Any = None) -> Any:
    """Return A of x A = x[columns] ∘ scale, for n features x."""
    data = (np.ones(len(columns)) if scale is None else scale, columns, np.arange(len(columns) + 1))
    return sparse.csc_array(data, shape=(n, len(columns)))


def _scaled(scale: Any, shift: Any) -> tuple[Any, Any]:
    return _columns(np.arange(len(scale)), len(scale), scale), shift


def _centred(step: Any, centre: Any = None) -> tuple[Any, Any]:
    """(x − centre)/scale, where either may be None."""
    scale = 1.0 / _float64(np.ones(step.n_features_in_) if step.scale_ is None else step.scale_)
    return _scaled(scale, 0.0 if centre is None else -_float64(centre) * scale)


def _filled(step: Any) -> tuple[Array, Any]:
    """Return what a SimpleImputer fills in, and the matrix of the columns that it keeps."""
    missing = step.missing_values
    if step._fit_dtype.kind == "O" or not (isinstance(missing, float) and np.isnan(missing)):
        raise ValueError(
            "a SimpleImputer is exported with missing_values=np.nan only, fitted to numbers"
        )
    _refuse_options(step)
    values = _float64(step.statistics_)
    empty = np.isnan(values) & (not step.keep_empty_features)  # SimpleImputer drops these
    return np.where(empty, 0.0, values), _columns(np.flatnonzero(~empty), len(values))


def _projected(step: Any, mean: Any = 0.0) -> tuple[Any, Any]:
    matrix = _float64(step.components_).T
    return matrix, -np.broadcast_to(_float64(mean), len(matrix)) @ matrix


#: Exact types only: a subclass can behave differently.
STEPS: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    StandardScaler: lambda step: _centred(step, step.mean_ if step.with_mean else None),
    RobustScaler: lambda step: _centred(step, step.center_),
    MinMaxScaler: lambda step: _scaled(_float64(step.scale_), _float64(step.min_)),
    MaxAbsScaler: _centred,
    PCA: lambda step: _projected(step, step.mean_),
    TruncatedSVD: _projected,
}


def _float64(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


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
