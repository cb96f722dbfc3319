"""``GreedyRankRLS``: greedy forward selection of features by exact cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, all_or_nothing, takes_queries
from rankrls._validation import check_option, check_positive, is_integer, is_number, show
from rankrls.core.preferences.costs import Loss, query_factor
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.greedy import select_leave_one_out, select_leave_query_out
from rankrls.estimators.ranker import Preferences, QueryRequests
from rankrls.estimators.rankrls import RankRLS

__all__ = ["GreedyRankRLS"]

Array = NDArray[Any]


class GreedyRankRLS(QueryRequests, SelectorMixin, BaseEstimator):
    """Select features for linear RankRLS by greedy forward selection with exact cross-validation.

    The selection starts without features and adds, one at a time, the feature with the smallest
    hold-out error. This error equals that of models refitted without the held-out rows for each
    candidate feature, but no model is refitted.

    Parameters
    ----------
    n_features_to_select : int or float
        Number of features to select, or as a float in (0, 1] the fraction of the features (rounded
        down, at least one).
    alpha, cost, ties, query_weighting, verbose
        As for `RankRLS`.
    cv : {"leave-query-out", "leave-one-out"}, default="leave-query-out"
        What is held out: each query, or (always without qid) each row of a single ranking.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features_to_select,)
        Hold-out error after each added feature, a mean squared error; lower is better. They are
        optimistic, because the features were chosen by them.
    selected_features_ : ndarray of shape (n_features_to_select,), int
        The features in the order in which they were added.
    ranking_ : ndarray of shape (n_features,), int
        1 for the feature added first, 2 for the second …; n_features_to_select + 1 for all
        that were not selected.
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights of RankRLS on the selected features and all rows; zero for the others.
    cv_ : str
        What was held out: "leave-query-out" or "leave-one-out".
    n_refits_ : int
        Number of folds that were refitted because the shortcut would have been inaccurate.

    Notes
    -----
    Leave-query-out minimises the weighted mean squared error of held-out pairs. Without qid,
    RankRLS on all pairs of the remaining rows is ridge regression with a free intercept, and the
    criterion is the mean squared error of held-out rows; this needs ``cost="magnitude"`` with ties
    kept (or without ties in y) and equal sample weights. Several outputs must share their pairs;
    the criterion is summed over them. Each added feature takes O(n_rows · n_features) time, and the
    selection two dense float64 matrices of the shape of X.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import GreedyRankRLS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 8))
    >>> y = X[:, 5] - 2 * X[:, 2] + 0.1 * rng.standard_normal(60)
    >>> selector = GreedyRankRLS(2).fit(X, y, qid=np.arange(60) // 6)
    >>> selector.selected_features_
    array([2, 5])
    >>> selector.transform(X).shape
    (60, 2)
    """

    def __init__(
        self,
        n_features_to_select: float,
        alpha: float = 1.0,
        *,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: Any = "pair",
        cv: str = "leave-query-out",
        verbose: int = 0,
    ) -> None:
        self._set(locals())

    @takes_queries
    @all_or_nothing
    def fit(
        self, X: Any, y: Any, *, qid: Any = None, sample_weight: ArrayLike | None = None
    ) -> GreedyRankRLS:
        """Select the features.

        Parameters
        ----------
        X, y, qid, sample_weight
            As for `RankRLS.fit`, without given pairs. X is dense; without qid all weights must be
            equal, or zero.
        """
        check_option("cv", self.cv, ("leave-query-out", "leave-one-out"))
        alpha = check_positive("alpha", self.alpha)
        if sparse.issparse(X):
            raise ValueError(
                "GreedyRankRLS does not take sparse data, because it needs dense n_rows × "
                "n_features matrices. Pass X.toarray() if that fits into memory, or select "
                "features by a cheaper criterion first"
            )
        loss = {"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting}
        ranker = RankRLS(alpha, **loss)
        kernel, X, graph = ranker._prepare(X, Preferences(y, qid, sample_weight=sample_weight))
        self.__dict__.pop("feature_names_in_", None)
        names = ("n_features_in_", "feature_names_in_")
        self.__dict__.update({name: vars(ranker)[name] for name in names if name in vars(ranker)})
        X = X.astype(np.float64, copy=False)
        n_select = _count(self.n_features_to_select, X.shape[1])
        codes = graph.query_codes if graph.has_qid else None
        objectives = graph.objectives(ranker._loss)
        if graph.n_given_pairs:
            raise ValueError(
                "GreedyRankRLS holds out queries and cannot use given pairs; use scores y"
            )
        if self.cv == "leave-one-out" and graph.has_qid:
            raise ValueError("cv='leave-one-out' needs a single ranking: leave out qid")
        if len(objectives) > 1:
            raise ValueError(
                f"the {graph.n_outputs} outputs have {len(objectives)} different sets of pairs "
                "(their ties differ), so they share no hold-out error: use cost='magnitude' "
                "with ties='keep', or one selector for each output"
            )
        progress = Progress(type(self).__name__, self.verbose)
        if codes is not None:
            degree = objectives[0].degree()
            if len(np.unique(codes[degree > 0])) < 2:
                raise ValueError(
                    "leave-query-out needs at least two queries with a pair, but there is only one "
                    "(leave out qid for a single ranking)"
                )
            selected, errors, self.n_refits_ = select_leave_query_out(
                objectives[0], codes, X, alpha, n_select, progress
            )
            self.scores_ = errors / (degree.sum() / 2)
        else:
            rows, scores, penalty = _one_ranking(graph, X, alpha, ranker._loss)
            selected, errors, self.n_refits_ = select_leave_one_out(
                scores, rows, penalty, n_select, progress
            )
            self.scores_ = errors / len(scores)
        self.cv_ = "leave-query-out" if graph.has_qid else "leave-one-out"
        self.selected_features_ = selected
        self.ranking_ = np.full(X.shape[1], n_select + 1)
        self.ranking_[selected] = np.arange(1, n_select + 1)
        self.support_ = self.ranking_ <= n_select
        ranker._fit_prepared(kernel, X[:, selected], graph, np.array([alpha]))
        self.coef_ = np.zeros((*ranker.coef_.shape[:-1], X.shape[1]))
        self.coef_[..., selected] = ranker.coef_
        return self

    def _get_support_mask(self) -> Array:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = False
        return tags


def _count(value: Any, n: int) -> int:
    """Return the number of features to select out of n."""
    if is_integer(value) and 1 <= int(value) <= n:
        return int(value)
    if is_number(value) and not is_integer(value) and 0 < float(value) <= 1:
        return max(1, int(n * float(value)))
    raise ValueError(
        f"n_features_to_select must be a number of features (int, from 1 to {n}) or a fraction of "
        f"them (float, above 0.0 up to 1.0); got {show(value)}"
    )


def _one_ranking(
    graph: PreferenceGraph, X: Array, alpha: float, loss: Loss
) -> tuple[Array, Array, float]:
    """Rows and scores with weight, and the penalty of their ridge regression without one row."""
    s, weights = graph.scores, graph.sample_weight
    assert s is not None
    weight = 1.0
    if weights is not None:
        X, s, weights = X[weights > 0], s[weights > 0], weights[weights > 0]
        weight = float(weights[0])
    m = len(s)
    tied = any(len(np.unique(column)) < m for column in s.T)
    other_pairs = not loss.keeps_ties and (tied or not loss.cost.linear)
    if other_pairs or m < 3 or (weights is not None and (weights != weight).any()):
        raise ValueError(
            f"without qid each of {m} rows (n_samples) with weight is held out, which needs at "
            "least 3 of them, equal sample_weight, and cost='magnitude' with ties='keep' or "
            "without ties: otherwise there is no exact shortcut, so give qid"
        )
    # The squared loss over all pairs of the remaining m − 1 rows is this multiple of their squared
    # deviations.
    N, edge_weight = weight * (m - 1), weight**2 * (m - 1) * (m - 2) / 2
    kappa = weight * N * float(query_factor(loss.query_weighting, N, edge_weight))
    return X, s, alpha / kappa
