"""What is done to the features before they are ranked: filling in and scaling.

Both learn from the features of all rows and never from labels; they become part of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from rankrls._resources import SCALER_VECTORS, require_features
from rankrls.cli._column_warnings import warn_about_columns_of, warn_about_empty_columns
from rankrls.cli._options import DataOptions, ModelOptions
from rankrls.preprocessing import QueryScaler

__all__ = ["Preparation", "scale_of", "transformed"]

#: Kernels of features >= 0, which must stay so.
NON_NEGATIVE = ("chi2", "additive_chi2")


def scale_of(options: ModelOptions) -> str:
    """The scaling: what was asked for, or the default of the kernel."""
    if options.scale is not None:
        return options.scale
    if options.kernel == "precomputed":
        return "none"
    return "maxabs" if options.kernel in NON_NEGATIVE else "standard"


class Preparation:
    """An imputer, a scaler, both or none.

    Parameters
    ----------
    model_options : ModelOptions
    data_options : DataOptions
    is_sparse : bool
        Whether the rows are sparse: they stay so.

    Attributes
    ----------
    imputer, scaler : transformer or None
    """

    def __init__(
        self, model_options: ModelOptions, data_options: DataOptions, is_sparse: bool
    ) -> None:
        self._options = data_options
        self._precomputed = model_options.kernel == "precomputed"
        self.imputer = _imputer(data_options.missing)
        self.scaler = _scaler(scale_of(model_options), is_sparse)

    @property
    def steps(self) -> list[tuple[str, Any]]:
        """Names and transformers, in their order."""
        both = (("impute", self.imputer), ("scale", self.scaler))
        return [(name, step) for name, step in both if step is not None]

    def fit_transform(self, rows: Any) -> Any:
        """Learn from all rows and return their features, prepared; warn of columns like ids."""
        X = rows.data
        if self.imputer is not None:
            warn_about_empty_columns(rows, self._options)
            X = self.imputer.fit_transform(X)
        self.warn_about_columns(rows, X)
        if isinstance(self.scaler, QueryScaler):
            return self.scaler.fit_transform(X, qid=rows.qid)
        if self.scaler is not None:
            require_features(X.shape[1], copies=SCALER_VECTORS)
            return self.scaler.fit_transform(X)
        return X

    def warn_about_columns(self, rows: Any, X: Any) -> None:
        """Warn of columns like ids and, if there is no scaler, of unequal scales."""
        features = not self._precomputed
        scales = self.scaler is None and features
        if features:
            warn_about_columns_of(rows, X, self._options, scales=scales)

    def begin(self, rows: Any) -> None:
        """Look at the first batch of a stream: warn of columns like ids, and of too many."""
        X = rows.data if self.imputer is None else clone(self.imputer).fit_transform(rows.data)
        self.warn_about_columns(rows, X)
        require_features(X.shape[1], copies=SCALER_VECTORS)

    def with_ranker(self, ranker: Any, with_qid: bool) -> Any:
        """The ranker, or a pipeline that ends in it and gives it qid."""
        if not self.steps:
            return ranker
        if with_qid:
            with config_context(enable_metadata_routing=True):
                ranker.set_fit_request(qid=True)
                ranker.set_score_request(qid=True)
        return Pipeline([*self.steps, ("rank", ranker)])


def transformed(steps: Iterable[Any], X: Any, qid: Any) -> Any:
    """Features after fitted steps; sparse ones become dense only where zeros are moved."""
    for step in steps:
        if sparse.issparse(X) and _needs_dense(step):
            X = X.toarray()
        X = step.transform(X, qid=qid) if isinstance(step, QueryScaler) else step.transform(X)
    return X


def _imputer(missing: str | None) -> Any:
    if missing in (None, "error"):
        return None
    how = {"strategy": "mean"} if missing == "mean" else {"strategy": "constant", "fill_value": 0.0}
    return SimpleImputer(**how, keep_empty_features=True)


def _scaler(kind: str, is_sparse: bool) -> Any:
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


def _needs_dense(step: Any) -> bool:
    """Whether a step moves zeros."""
    if isinstance(step, QueryScaler):
        return step.method != "maxabs"
    return isinstance(step, MinMaxScaler) or bool(getattr(step, "with_mean", False))
