"""Rankers in pipelines of `PyTerrier <https://pyterrier.readthedocs.io>`_.

With ``form="ltr"`` PyTerrier passes sizes of queries and validation queries as LightGBM expects
them; `PyTerrierLearner` takes these. This module does not import PyTerrier.
"""

from __future__ import annotations

from typing import Any

from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import queries_of_sizes
from rankrls.metrics import pairwise_accuracy
from rankrls.rankings import predicts_by_query

__all__ = ["PyTerrierLearner"]


class PyTerrierLearner(BaseEstimator):
    """A ranker as the learner of ``pt.ltr.apply_learned_model(learner, form="ltr")``.

    Parameters
    ----------
    ranker : estimator
        `RankRLS`, `RankRLSCV`, `RankSVM`, or a pipeline that ends in one of them. PyTerrier gives
        ``predict`` no queries, which `AutoRanker` and `QueryScaler` need.

    Attributes
    ----------
    ranker_ : estimator
        A clone that was fitted with the queries: save this one by `rankrls.io.save_model`.
    n_queries_ : int
        Queries that it was fitted to.
    validation_score_ : float
        Pairwise accuracy within the validation queries, which the ranker does not learn from; NaN
        without.
    """

    def __init__(self, ranker: Any) -> None:
        self.ranker = ranker

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        group: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        **options: Any,
    ) -> PyTerrierLearner:
        """Fit a clone of the ranker with its queries.

        Parameters
        ----------
        X, y : array-like of shape (n_rows, n_features) and (n_rows,)
        group : array-like of int
            Sizes of consecutive queries.
        eval_set, eval_group : list of one (X, y), list of one array-like of int, optional
            Rows of validation queries, and the sizes of these queries.
        **options
            Further arguments of the ranker's ``fit``: ``fit_kwargs`` of PyTerrier.

        Returns
        -------
        self : PyTerrierLearner
        """
        if group is None:
            raise ValueError(
                "fit was called without queries, as PyTerrier's default form does; write "
                'pt.ltr.apply_learned_model(PyTerrierLearner(ranker), form="ltr")'
            )
        with config_context(enable_metadata_routing=True):
            if predicts_by_query(self.ranker):
                raise ValueError(
                    f"{type(self.ranker).__name__} compares a row with the others of its query, "
                    "and PyTerrier gives predict no queries: use a ranker that scores rows one by "
                    "one, such as RankRLSCV, and StandardScaler instead of QueryScaler"
                )
            qid = queries_of_sizes(group, {"X": X})
            self.ranker_ = clone(self.ranker).fit(X, y, qid=qid, **options)
        self.n_queries_ = len(group)
        self.validation_score_ = float("nan")
        if eval_set is not None:
            if eval_group is None:
                raise ValueError("eval_set needs eval_group, the sizes of its queries")
            rows, labels = eval_set[0]
            held_out = queries_of_sizes(eval_group[0], {"X": rows})
            scores = self.ranker_.predict(rows)
            self.validation_score_ = float(pairwise_accuracy(labels, scores, qid=held_out))
        return self

    def predict(self, X: Any) -> Any:
        """Scores of rows X (n_rows, n_features), comparable within a query, shape (n_rows,)."""
        check_is_fitted(self)
        return self.ranker_.predict(X)
