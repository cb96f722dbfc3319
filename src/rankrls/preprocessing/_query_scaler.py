"""Scaling of features within each query, a common first step for LETOR data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from rankrls._calls import all_or_nothing, takes_queries, warn
from rankrls._frames import check_same_rows, clear_errors
from rankrls._validation import Queries, check_option, encode_qid

_METHODS = ("minmax", "standard", "maxabs", "rank")


class QueryScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale each feature within each query, using the rows of the query only.

    Parameters
    ----------
    method : {"minmax", "standard", "maxabs", "rank"}, default="minmax"
        ``"minmax"`` maps the values of a feature in a query to 0 … 1, ``"standard"`` to mean 0 and
        variance 1. ``"maxabs"`` divides by the largest absolute value. ``"rank"`` takes
        (rank − (n + 1)/2)/n of the n rows of the query; equal values share their mean rank.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all names are strings.

    Notes
    -----
    A feature that is constant within a query becomes 0 there, except with ``"maxabs"``. Missing
    values (NaN) are ignored, and stay missing. ``qid`` is metadata: a pipeline passes it on if
    scikit-learn's metadata routing is enabled.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.preprocessing import QueryScaler
    >>> X = np.array([[1.0, 10.0], [5.0, 0.0], [3.0, 10.0], [4.0, 7.0]])
    >>> QueryScaler().fit_transform(X, qid=["a", "b", "a", "b"])
    array([[0., 0.],
           [1., 0.],
           [1., 0.],
           [0., 1.]])
    """

    __metadata_request__transform = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)

    def __init__(self, method: str = "minmax") -> None:
        self.method = method

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> QueryScaler:
        """Validate X, of shape (n_rows, n_features); nothing is learned, and y is ignored."""
        self._check(X, reset=True)
        self._with_qid: bool | None = None  # known if training rows are scaled
        return self

    @takes_queries
    def transform(self, X: Any, *, qid: Any = None) -> NDArray[Any]:
        """Scale the rows of each query.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        qid : array-like of shape (n_rows,), default=None
            Query label of each row, in any order. If None, all rows form one query; this raises an
            error after `fit_transform` with qid, and qid is a warning after one without.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            float32 if X is float32 and float64 otherwise.
        """
        check_same_rows(X, qid=qid)
        X = self._check(X, reset=False)
        if qid is None and getattr(self, "_with_qid", False):
            raise ValueError(
                "the training rows were scaled by query, so these need qid too: pass qid to "
                "transform (or to predict and score of the pipeline, with metadata routing)"
            )
        if qid is not None and getattr(self, "_with_qid", None) is False:
            warn(
                "the training rows were scaled as one query, because QueryScaler was given no qid, "
                "and these are scaled by query: pass qid to fit_transform, too (to fit of a "
                "pipeline, as queryscaler__qid or with metadata routing)"
            )
        return scale_by_query(X, encode_qid(qid, X.shape[0]), self.method)

    @takes_queries
    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, *, qid: Any = None) -> NDArray[Any]:
        """Validate the data and scale the rows of each query; arguments as for `transform`."""
        scaled = self.fit(X, y).transform(X, qid=qid)
        self._with_qid = qid is not None
        return scaled

    def _check(self, X: Any, *, reset: bool) -> Any:
        check_option("method", self.method, _METHODS)
        with clear_errors(X):
            kinds = [np.float64, np.float32]
            return validate_data(self, X, reset=reset, dtype=kinds, ensure_all_finite="allow-nan")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def scale_by_query(X: NDArray[Any], queries: Queries, method: str) -> NDArray[Any]:
    """Scale checked, dense rows of shape (n_rows, n_features) by query; NaN stays NaN."""
    order = np.argsort(queries.codes, kind="stable")
    n_rows = np.bincount(queries.codes, minlength=len(queries))
    starts = np.cumsum(n_rows) - n_rows  # first position of each query in the sorted rows
    scaled = np.empty_like(X)
    if method == "rank":
        for size in np.unique(n_rows):  # queries of the same size are sorted together
            of_size = starts[n_rows == size]
            per_step = max(1, 2**17 // max(size * X.shape[1], 1))
            for first in range(0, len(of_size), per_step):
                rows = order[of_size[first : first + per_step, None] + np.arange(size)]
                n_known = np.maximum((~np.isnan(X[rows])).sum(axis=1, keepdims=True), 1)
                ranks = rankdata(X[rows], axis=1, nan_policy="omit")
                scaled[rows] = (ranks - (n_known + 1) / 2) / n_known
        return scaled

    def of_rows(of_queries: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(of_queries, n_rows, axis=0)

    values = X[order]
    missing = np.isnan(values)
    n_known = np.maximum(np.add.reduceat(~missing, starts, axis=0, dtype=np.int64), 1)
    low = np.nan_to_num(np.fmin.reduceat(values, starts, axis=0), copy=False)
    high = np.nan_to_num(np.fmax.reduceat(values, starts, axis=0), copy=False)
    spread = np.maximum(-low, high)
    if missing.any():
        values[missing] = of_rows(low)[missing]
    if method != "maxabs":
        exponents = np.frexp(spread)[1]
        if (np.abs(exponents) > np.finfo(X.dtype).maxexp // 4).any():
            # In a unit of 2^e no difference or square overflows, and underflow is harmless.
            values, low = np.ldexp(values, of_rows(-exponents)), np.ldexp(low, -exponents)
        values -= of_rows(low)  # exactly 0 if the feature is constant in the query
        if method == "standard":
            sums = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
            values = values - of_rows(sums / n_known)
            values[missing] = 0.0
            spread = np.sqrt(np.add.reduceat(values**2, starts, axis=0) / n_known)
        else:
            spread = np.maximum.reduceat(values, starts, axis=0)
    values /= of_rows(np.where(spread == 0, 1, spread))
    values[missing] = np.nan
    scaled[order] = values
    return scaled
