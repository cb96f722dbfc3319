"""Scorers for scikit-learn's model selection that pass ``qid`` to the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn import config_context
from sklearn.metrics import make_scorer

from rankrls.metrics._pairwise import pairwise_accuracy
from rankrls.metrics.metric_names import LIST_METRICS, PAIR_METRICS, parse_metric
from rankrls.rankings import predicts_by_query

_Scorer: Any = type(make_scorer(pairwise_accuracy))


class _RankingScorer(_Scorer):
    """A scikit-learn scorer that raises an error if ``qid`` was not routed to it."""

    def _score(self, method_caller: Any, estimator: Any, X: Any, y_true: Any, **kwargs: Any) -> Any:
        if kwargs.get("qid", self._kwargs.get("qid")) is None:
            steps = getattr(estimator, "steps", None)  # of a pipeline
            ranker = steps[-1][1] if steps else estimator
            if getattr(ranker, "_with_qid", False):
                raise ValueError(
                    "the model was fitted with qid, but no qid reached the scorer, so rows of "
                    "different queries would be compared. Enable metadata routing, "
                    "sklearn.set_config(enable_metadata_routing=True), and pass qid"
                )
        elif predicts_by_query(estimator):
            options = {**self._kwargs, **kwargs}
            scores = estimator.predict(X, qid=options["qid"])
            return self._sign * self._score_func(y_true, scores, **options)
        return super()._score(method_caller, estimator, X, y_true, **kwargs)


def make_ranking_scorer(
    metric: str | Callable[..., Any], *, greater_is_better: bool = True, **kwargs: Any
) -> Any:
    """Make a scikit-learn scorer that requests ``qid``.

    Parameters
    ----------
    metric : str or callable
        Name of a metric, such as "ndcg@10", as in :func:`evaluate`; or a function
        ``metric(y_true, y_score, *, qid=None, **kwargs) -> float``.
    greater_is_better : bool, default=True
        Set to False for an error or a loss; the scorer then returns its negative.
    **kwargs : dict
        Additional arguments of ``metric``, such as ``k=10``.

    Returns
    -------
    callable
        A scorer ``scorer(estimator, X, y, *, qid=None) -> float`` of the output of ``predict``, for
        use as ``scoring=``.

    Notes
    -----
    Inside a search or cross-validation, ``qid`` reaches the scorer through scikit-learn's metadata
    routing: enable it with ``sklearn.set_config(enable_metadata_routing=True)``, and pass ``qid``
    in ``params`` (or to ``fit`` of a search).
    """
    if isinstance(metric, str):
        named = parse_metric(metric, allowed=(*PAIR_METRICS, *LIST_METRICS))
        if named.options.keys() & kwargs.keys():
            raise ValueError(f"metric={metric!r} has a cut-off: leave out k={kwargs['k']!r}")
        metric, kwargs = named.function, {**named.options, **kwargs}
    if not callable(metric):
        raise ValueError(
            "metric must be a name such as 'ndcg@10', or a function such as ndcg, with k=… for a "
            f"cut-off; got {metric!r}"
        )
    plain = make_scorer(metric, greater_is_better=greater_is_better, **kwargs)
    scorer = _RankingScorer(plain._score_func, plain._sign, plain._kwargs, plain._response_method)
    # A request can only be set while routing is enabled; it has no effect otherwise.
    with config_context(enable_metadata_routing=True):
        return scorer.set_score_request(qid=True)


pairwise_accuracy_scorer = make_ranking_scorer("pairwise_accuracy")
concordance_index_scorer = make_ranking_scorer("concordance_index")
ndcg_scorer = make_ranking_scorer("ndcg")
average_precision_scorer = make_ranking_scorer("average_precision")
reciprocal_rank_scorer = make_ranking_scorer("reciprocal_rank")
precision_scorer = make_ranking_scorer("precision")
recall_scorer = make_ranking_scorer("recall")
expected_reciprocal_rank_scorer = make_ranking_scorer("expected_reciprocal_rank")
