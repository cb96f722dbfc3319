"""Options to estimators, and model files to something that scores rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from rankrls import RankRLS, RankRLSCV, RankSVM
from rankrls.cli._options import ModelOptions
from rankrls.io import load_model
from rankrls.preprocessing import QueryScaler

__all__ = [
    "Scorer",
    "fit_scaler",
    "make_cv",
    "make_ranker",
    "make_scaler",
    "name_features",
    "scaled",
    "with_scaler",
]


def make_scaler(options: ModelOptions, is_sparse: bool) -> Any:
    """The scaler that was asked for, or None; sparse rows stay sparse."""
    kind = options.scale
    if is_sparse and kind in ("minmax", "query-minmax", "query-standard"):
        other = "query-maxabs" if kind.startswith("query") else "maxabs or standard"
        raise ValueError(f"--scale {kind} would fill in all zeros of sparse data: use {other}")
    if kind.startswith("query-"):
        with config_context(enable_metadata_routing=True):
            return QueryScaler(kind.removeprefix("query-")).set_transform_request(qid=True)
    return {
        "none": lambda: None,
        "standard": lambda: StandardScaler(with_mean=not is_sparse),
        "minmax": MinMaxScaler,
        "maxabs": MaxAbsScaler,
    }[kind]()


def fit_scaler(scaler: Any, rows: Any) -> Any:
    """Fit a scaler, if there is one, and return the scaled rows."""
    if scaler is None:
        return rows.data
    if isinstance(scaler, QueryScaler):
        return scaler.fit_transform(rows.data, qid=rows.qid)
    return scaler.fit_transform(rows.data)


def scaled(scaler: Any, rows: Any) -> Any:
    """The features of rows as a fitted scaler, if there is one, gives them."""
    if scaler is None:
        return rows.data
    if isinstance(scaler, QueryScaler):
        return scaler.transform(rows.data, qid=rows.qid)
    return scaler.transform(rows.data)


def _shared(options: ModelOptions) -> dict[str, Any]:
    given = {
        "kernel": options.kernel,
        "gamma": options.gamma,
        "degree": options.degree,
        "coef0": options.coef0,
        "query_weighting": options.query_weighting,
        "solver": options.solver,
        "basis": options.n_components,
        "random_state": options.seed,
    }
    if options.max_iter is not None:
        given["max_iter"] = options.max_iter
    if options.tol is not None:
        given["tol"] = options.tol
    return given


def _least_squares(options: ModelOptions) -> dict[str, Any]:
    return {"cost": options.cost, "ties": options.ties, **_shared(options)}


def make_ranker(options: ModelOptions, alpha: float, loss: str = "squared") -> Any:
    """RankRLS or, with the hinge loss, RankSVM."""
    if loss == "squared":
        return RankRLS(alpha, **_least_squares(options))
    for name, default in (("cost", "magnitude"), ("ties", "keep")):
        if getattr(options, name) != default:
            raise ValueError(f"--{name} is for --loss squared: the hinge loss has no such choice")
    return RankSVM(alpha, **_shared(options))


def make_cv(options: ModelOptions, alphas: Any, cv: str, scoring: str) -> RankRLSCV:
    """RankRLSCV; ``cv`` is a number of folds or a name."""
    grid = {} if alphas is None else {"alphas": alphas}
    folds = int(cv) if cv.isdigit() else cv
    return RankRLSCV(**grid, cv=folds, scoring=scoring, **_least_squares(options))


def with_scaler(scaler: Any, ranker: Any, with_qid: bool) -> Any:
    """The ranker, or both as a pipeline whose ranker is given qid."""
    if scaler is None:
        return ranker
    if with_qid:
        with config_context(enable_metadata_routing=True):
            ranker.set_fit_request(qid=True)
            ranker.set_score_request(qid=True)
    return Pipeline([("scale", scaler), ("rank", ranker)])


def name_features(estimator: Any, names: list[str] | None) -> None:
    """Note down the names of the columns, as scikit-learn does for data frames."""
    if names is not None:
        first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator
        first.feature_names_in_ = np.array(names, dtype=object)


class Scorer:
    """A model from a file, and what it needs to know of rows.

    Attributes
    ----------
    model : estimator
    n_features : int
    names : list of str or None
        Names of the features, if it was fitted to columns with names.
    needs_qid : bool
        Whether features are scaled within queries.
    ignores_new : bool
        Whether a feature that was never there in training cannot change a score.
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            raise ValueError("the model is read from a file, not from stdin")
        self.model = load_model(path)
        steps = self.model.steps if isinstance(self.model, Pipeline) else [("", self.model)]
        self._scalers = [step for _, step in steps[:-1]]
        self._ranker: BaseEstimator = steps[-1][1]
        if not hasattr(self._ranker, "predict") or not hasattr(self.model, "n_features_in_"):
            kind = type(self._ranker).__name__
            raise ValueError(f"{path}: a {kind} does not score rows; use it in Python")
        if type(self._ranker).__name__.startswith("Conditional"):
            raise ValueError(f"{path}: a ranker of pairs of objects is used in Python")
        self.n_features = int(self.model.n_features_in_)
        names = getattr(self.model, "feature_names_in_", None)
        self.names = None if names is None else [str(name) for name in names]
        self.needs_qid = any(isinstance(step, QueryScaler) for step in self._scalers)
        self._dense = any(_needs_dense(step) for step in self._scalers)
        self.ignores_new = getattr(self._ranker, "kernel", "linear") == "linear"

    def scores(self, X: Any, qid: Any = None, *, name: str) -> Any:
        """Scores of rows of the file ``name``, shape (n,) or (n, n_outputs)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"{name}: the rows have {X.shape[1]} feature{'s' * (X.shape[1] != 1)}, and the "
                f"model was fitted to {self.n_features}"
            )
        if sparse.issparse(X) and self._dense:
            X = X.toarray()
        with warnings.catch_warnings():
            # The columns were chosen by their names.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            for step in self._scalers:
                by_query = isinstance(step, QueryScaler)
                X = step.transform(X, qid=qid) if by_query else step.transform(X)
            return self._ranker.predict(X)


def _needs_dense(scaler: Any) -> bool:
    """Whether a scaler moves zeros."""
    if isinstance(scaler, QueryScaler):
        return scaler.method != "maxabs"
    return isinstance(scaler, MinMaxScaler) or bool(getattr(scaler, "with_mean", False))
