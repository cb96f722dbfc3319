"""``RankingFeatures``: unsupervised transformations of features for linear and kernel rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import all_or_nothing, takes_queries
from rankrls._frames import check_same_rows, clear_errors
from rankrls._validation import Queries, check_integer, check_option, encode_qid
from rankrls.preprocessing._query_scaler import scale_by_query
from rankrls.preprocessing._texts import unit_rows
from rankrls.preprocessing.trees import Forest

Array = NDArray[Any]

#: Names of the blocks.
BLOCKS = ("log", "standard", "rank", "quantile", "uniform", "hats", "partitions")

#: Blocks that compare a row with the other rows of its query.
WITHIN_QUERY = ("standard", "rank")

#: Number of quantiles, and the maximum number of rows from which they are computed.
N_QUANTILES, QUANTILE_ROWS = 200, 100_000

#: Normal quantiles are clipped at this tail probability.
MOST_EXTREME = 1e-7

#: Number of hat functions of a feature; they sum to a constant, so one of them is redundant.
KNOTS = np.linspace(0.0, 1.0, 5)


class RankingFeatures(TransformerMixin, BaseEstimator):
    r"""Transform features for ranking by logarithms, quantiles, ranks within queries or partitions.

    Labels are not used, so that exact cross-validation of a ranker on the transformed rows remains
    exact. Blocks are concatenated; each column has mean 0 and variance 1 over the training rows.

    Parameters
    ----------
    blocks : sequence of str, default=("log", "standard", "rank")
        ``"log"`` is :math:`\mathrm{sign}(x) \log(1 + |x| / s)`, with s the median absolute value of
        the non-zero values. ``"standard"`` and ``"rank"`` are those of `QueryScaler`, within each
        query. ``"quantile"`` maps the quantiles of the training rows to a normal distribution,
        ``"uniform"`` to 0 … 1. ``"hats"`` are piecewise linear functions of the uniform quantiles,
        for additive models. ``"partitions"`` are the leaves of random trees
        (:class:`sklearn.ensemble.RandomTreesEmbedding`) grown on logarithms and, with qid, on ranks
        within the query; this block is sparse and cannot be combined with others.
    n_trees : int, default=300
        Number of trees of ``"partitions"``.
    depth : int, default=6
        Depth of the trees, at most 12.
    random_state : int, RandomState instance or None, default=None
        Seed of the trees, and of the sample of 100,000 rows for quantiles of more rows.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all names are strings.

    Notes
    -----
    Sparse X takes the block ``"log"`` only: columns are then divided by their largest absolute
    value and not centred, and rows are scaled to length 1.

    Examples
    --------
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.preprocessing import RankingFeatures
    >>> X, y, qid = make_ranking(n_queries=20, n_features=5, random_state=0, return_X_y_qid=True)
    >>> RankingFeatures(("log", "rank")).fit_transform(X, qid=qid).shape
    (400, 10)
    """

    __metadata_request__fit = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)
    __metadata_request__transform = {"qid": True}  # noqa: RUF012

    def __init__(
        self,
        blocks: Sequence[str] = ("log", "standard", "rank"),
        *,
        n_trees: int = 300,
        depth: int = 6,
        random_state: Any = None,
    ) -> None:
        self.blocks = blocks
        self.n_trees = n_trees
        self.depth = depth
        self.random_state = random_state

    @takes_queries
    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, qid: ArrayLike | None = None) -> RankingFeatures:
        """Learn scales, quantiles and trees.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_rows, n_features)
            Finite numbers; use `TableEncoder` for raw tables.
        y : ignored
        qid : array-like of shape (n_rows,), optional
            Query label of each row; required by blocks that work within queries.
        """
        self._check_options()
        self._learn(*self._check(X, qid, reset=True))
        return self

    @takes_queries
    def transform(self, X: Any, *, qid: ArrayLike | None = None) -> Any:
        """Transform rows, as for `fit`, and concatenate the blocks, (n_rows, n_columns)."""
        check_is_fitted(self, "_centres")
        return self._view(tuple(self.blocks), *self._check(X, qid, reset=False), {})

    @takes_queries
    def fit_transform(self, X: Any, y: Any = None, *, qid: ArrayLike | None = None) -> Any:
        """Fit to the rows and transform them."""
        return self.fit(X, y, qid=qid).transform(X, qid=qid)

    def _check_options(self) -> None:
        if isinstance(self.blocks, str) or not len(self.blocks):
            raise ValueError(f"blocks must be a sequence of names such as {BLOCKS[:3]}")
        for block in self.blocks:
            check_option("blocks", block, BLOCKS)
        check_integer("n_trees", self.n_trees, least=1)
        if check_integer("depth", self.depth, least=1) > 12:
            raise ValueError(f"depth must be at most 12; got {self.depth}")

    def _check(self, X: Any, qid: Any, *, reset: bool) -> tuple[Any, Queries | None]:
        """Check rows and their queries."""
        check_same_rows(X, qid=qid)
        with clear_errors(X):
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        if sparse.issparse(X) and tuple(self.blocks) != ("log",):
            raise ValueError(
                "sparse X needs blocks=('log',), because the other blocks fill in zeros"
            )
        if reset:
            self._with_qid = qid is not None
        if qid is not None:
            return X, encode_qid(qid, X.shape[0])
        for block in self.blocks:
            if block in WITHIN_QUERY or (block == "partitions" and self._with_qid):
                fitted = ", fitted with qid," * (block == "partitions")
                raise ValueError(
                    f"block {block!r}{fitted} compares rows within their queries; pass qid"
                )
        return X, None

    def _learn(self, X: Any, queries: Queries | None) -> None:
        """Learn scales, quantiles and trees of checked rows."""
        rng = check_random_state(self.random_state)
        self.n_features_in_, self._with_qid = X.shape[1], queries is not None
        self._centres: dict[str, Array] = {}
        self._widths: dict[str, Array] = {}
        if sparse.issparse(X):
            largest = abs(X).max(axis=0).toarray().ravel()
            self._sizes = np.where(largest > 0, largest, 1.0)
            return
        nonzero = (np.abs(column[column != 0]) for column in X.T)
        self._sizes = np.array([np.median(some) if len(some) else 1.0 for some in nonzero])
        if {"quantile", "uniform", "hats"} & set(self.blocks):
            rows: Any = slice(None)
            if len(X) > QUANTILE_ROWS:
                rows = np.sort(rng.choice(len(X), QUANTILE_ROWS, replace=False))
            self._quantiles = np.quantile(X[rows], np.linspace(0.0, 1.0, N_QUANTILES), axis=0)
        cache: dict[str, Array] = {}
        for block in self.blocks:
            if block == "partitions":
                below = self._split_by(X, queries, cache)
                self._trees = Forest.random(below, self.n_trees, self.depth, rng)
            else:
                self._standardized(block, X, queries, cache)

    def _standardized(
        self, block: str, X: Array, queries: Queries | None, cache: dict[str, Array]
    ) -> Array:
        """Standardise the columns of a block; the scales are learned at the first call."""
        if block not in cache:
            values = self._raw(block, X, queries, cache)
            if block not in self._centres:
                self._centres[block] = values.mean(axis=0)
                spread = values.std(axis=0)
                self._widths[block] = np.where(spread > 1e-9, spread, np.inf)
            standard = values - self._centres[block]
            cache[block] = np.divide(standard, self._widths[block], out=standard)
        return cache[block]

    def _raw(self, block: str, X: Array, queries: Queries | None, cache: dict[str, Array]) -> Array:
        if block == "log":
            return np.sign(X) * np.log1p(np.abs(X) / self._sizes)
        if block in WITHIN_QUERY:
            assert queries is not None
            return scale_by_query(X, queries, block)
        if "quantiles" not in cache:  # shared by the remaining blocks
            cache["quantiles"] = _interpolated(X, self._quantiles)
        places = cache["quantiles"]
        if block == "quantile":
            return ndtri(np.clip(places, MOST_EXTREME, 1 - MOST_EXTREME))
        if block == "uniform":
            return places
        hats = places[:, :, None] - KNOTS
        np.abs(hats, out=hats)  # in place: memory is what takes time here
        hats /= KNOTS[0] - KNOTS[1]
        hats += 1.0
        return np.maximum(hats, 0.0, out=hats).reshape(len(X), -1)

    def _split_by(self, X: Array, queries: Queries | None, cache: dict[str, Array]) -> Array:
        """Return features for the random trees: logarithms and, with queries, ranks within them."""
        blocks = ("log",) if queries is None else ("log", "rank")
        return np.hstack([self._standardized(block, X, queries, cache) for block in blocks])

    def _view(
        self, blocks: Sequence[str], X: Any, queries: Queries | None, cache: dict[str, Array]
    ) -> Any:
        """Concatenate blocks; ``cache`` keeps blocks of the same rows for other views."""
        if sparse.issparse(X):
            X = sparse.csr_array(X, copy=True)
            X.data = np.sign(X.data) * np.log1p(np.abs(X.data) / self._sizes[X.indices])
            return unit_rows(X)
        if "partitions" in blocks:
            if len(blocks) > 1:
                raise ValueError("block 'partitions' is sparse and cannot be combined with others")
            return self._trees.indicators(self._split_by(X, queries, cache))
        parts = [self._standardized(block, X, queries, cache) for block in blocks]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tuple(self.blocks) == ("log",)
        return tags


def _interpolated(X: Array, quantiles: Array) -> Array:
    """Return the position of each value among the quantiles, 0 … 1; the middle of equal ones."""
    places = np.linspace(0.0, 1.0, len(quantiles))
    result = np.empty_like(X)
    for j, column in enumerate(X.T):
        ascending = np.ascontiguousarray(quantiles[:, j])
        result[:, j] = np.interp(column, ascending, places)
        if (np.diff(ascending) == 0).any():
            result[:, j] += 1.0 - np.interp(-column, -ascending[::-1], places)
            result[:, j] /= 2
    return result
