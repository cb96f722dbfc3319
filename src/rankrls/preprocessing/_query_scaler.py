"""Scaling of features within each query, a common first step for LETOR data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from rankrls._calls import all_or_nothing, takes_queries, warn
from rankrls._frames import check_same_rows, clear_errors
from rankrls._validation import Queries, check_option, encode_qid

_METHODS = ("minmax", "standard", "maxabs", "rank")


class QueryScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Scale each feature within each query.

    Often features are not comparable between queries: a text match score, for example, grows with
    the length of the query. Each query is scaled using its own rows only; ``fit`` learns nothing.

    Parameters
    ----------
    method : {"minmax", "standard", "maxabs", "rank"}, default="minmax"
        ``"minmax"`` maps the values of a feature in a query to 0 … 1, ``"standard"`` to mean 0 and
        variance 1. ``"maxabs"`` divides by the largest absolute value, also of sparse data.
        ``"rank"`` takes ranks, scaled to between −½ and ½; equal values share their mean rank.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all names are strings.

    Notes
    -----
    ``"standard"`` divides by the number of rows of the query in the variance, and ranks are
    :math:`(\mathrm{rank}_Q(x_i) - (|Q| + 1) / 2) / |Q|`. A feature that is constant within a query
    becomes 0 there, except with ``"maxabs"``. Missing values (NaN) are ignored, and stay missing.
    ``qid`` is metadata: a pipeline passes it on if scikit-learn's metadata routing is enabled.

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
        """Validate the data; nothing is learned from them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
            Features; sparse only with ``method="maxabs"``.
        y : ignored
            Present for compatibility with pipelines.

        Returns
        -------
        self : QueryScaler
        """
        self._check(X, reset=True)
        self._with_qid: bool | None = None  # known if training rows are scaled
        return self

    @takes_queries
    def transform(self, X: Any, *, qid: Any = None) -> Any:
        """Scale the rows of each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
            As for `fit`.
        qid : array-like of shape (n_rows,), default=None
            Query label of each row, in any order. If None, all rows form one query; this raises an
            error after `fit_transform` with qid, and qid is a warning after one without.

        Returns
        -------
        X_scaled : {ndarray, sparse matrix} of shape (n_rows, n_features)
            The scaled rows, float32 if X is float32 and float64 otherwise. X is not modified.
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
        queries = encode_qid(qid, X.shape[0])
        if sp.issparse(X):
            return _maxabs_sparse(X, queries)
        return scale_by_query(X, queries, self.method)

    @takes_queries
    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, *, qid: Any = None) -> Any:
        """Validate the data and scale the rows of each query.

        Parameters
        ----------
        X, y, qid
            As for `fit` and `transform`.

        Returns
        -------
        X_scaled : {ndarray, sparse matrix} of shape (n_rows, n_features)
        """
        scaled = self.fit(X, y).transform(X, qid=qid)
        self._with_qid = qid is not None
        return scaled

    def _check(self, X: Any, *, reset: bool) -> Any:
        check_option("method", self.method, _METHODS)
        if sp.issparse(X) and self.method != "maxabs":
            raise ValueError(
                f"method={self.method!r} does not take sparse data: subtracting the minimum or "
                "the mean would fill in the zeros; use method='maxabs', or pass a dense array"
            )
        with clear_errors(X):
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=True if sp.issparse(X) else "allow-nan",
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = self.method == "maxabs"
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


def _maxabs_sparse(X: Any, queries: Queries) -> Any:
    """Divide each stored value by the largest absolute value of its query and column."""
    X = X.copy()
    X.sum_duplicates()
    cells = np.repeat(queries.codes, np.diff(X.indptr)) * X.shape[1] + X.indices
    cells, places = np.unique(cells, return_inverse=True)
    largest = np.zeros(len(cells), dtype=X.dtype)
    np.maximum.at(largest, places, np.abs(X.data))
    X.data /= np.where(largest > 0, largest, 1)[places]
    return X
