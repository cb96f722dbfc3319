"""Ranking metrics, computed for each query.

Rows may be in any order. Where predictions tie, a metric is the expected value over all orders
of the tied rows, so it never depends on the order in which rows are stored. Sizes of consecutive
queries can be given as ``group`` instead of ``qid``.
"""

from rankrls.metrics._compare import (
    RankerComparison,
    compare_rankers,
    compare_runs,
    mean_interval,
)
from rankrls.metrics._evaluate import conditional_scores, evaluate, evaluate_run
from rankrls.metrics._lists import (
    average_precision,
    expected_reciprocal_rank,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from rankrls.metrics._pairwise import concordance_index, pairwise_accuracy, pairwise_error
from rankrls.metrics._scorers import (
    average_precision_scorer,
    concordance_index_scorer,
    expected_reciprocal_rank_scorer,
    make_ranking_scorer,
    ndcg_scorer,
    pairwise_accuracy_scorer,
    precision_scorer,
    recall_scorer,
    reciprocal_rank_scorer,
)

__all__ = [
    "RankerComparison",
    "average_precision",
    "average_precision_scorer",
    "compare_rankers",
    "compare_runs",
    "concordance_index",
    "concordance_index_scorer",
    "conditional_scores",
    "evaluate",
    "evaluate_run",
    "expected_reciprocal_rank",
    "expected_reciprocal_rank_scorer",
    "make_ranking_scorer",
    "mean_interval",
    "ndcg",
    "ndcg_scorer",
    "pairwise_accuracy",
    "pairwise_accuracy_scorer",
    "pairwise_error",
    "precision",
    "precision_scorer",
    "recall",
    "recall_scorer",
    "reciprocal_rank",
    "reciprocal_rank_scorer",
]
