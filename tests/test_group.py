"""Sizes of consecutive queries, ``group``, in the place of ``qid``."""

import inspect
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import (
    GreedyRankRLS,
    PreferenceGraph,
    RankRLS,
    RankRLSCV,
    RankSVM,
    metrics,
    rank,
    streaming,
)
from rankrls.model_selection import (
    cross_val_predict,
    cross_val_score,
    holdout_predict,
    leave_query_out_predict,
    permutation_test,
)
from rankrls.preprocessing import QueryScaler, TableEncoder
from rankrls.rankings import RankTable
from rankrls.reranking import best_candidates, reranking_scores

RNG = np.random.default_rng(0)
SIZES = [3, 1, 6, 0, 4, 2, 5]
QID = np.repeat(np.arange(len(SIZES)), SIZES)
N = len(QID)
X = RNG.normal(size=(N, 3))
Y = RNG.integers(0, 4, N).astype(float)
SCORE = RNG.integers(0, 5, N).astype(float)
FITTED = RankRLS().fit(X, Y, qid=QID)
PIPELINE = make_pipeline(StandardScaler(), RankRLS())

#: What is called with queries, and what of the result is compared.
CALLS = {
    "fit": lambda **q: RankRLS().fit(X, Y, **q).coef_,
    "fit of a frame": lambda **q: RankRLS().fit(pd.DataFrame(X), Y, **q).coef_,
    "RankRLSCV": lambda **q: RankRLSCV().fit(X, Y, **q).alpha_,
    "RankSVM": lambda **q: RankSVM().fit(X, Y, **q).coef_,
    "GreedyRankRLS": lambda **q: GreedyRankRLS(2).fit(X, Y, **q).scores_,
    "score": lambda **q: FITTED.score(X, Y, **q),
    "graph": lambda **q: PreferenceGraph.from_scores(Y, **q).query_codes,
    "transform": lambda **q: QueryScaler().fit_transform(X, **q),
    "leave_query_out_predict": lambda **q: leave_query_out_predict(RankRLS(), X, Y, **q),
    "holdout_predict": lambda **q: holdout_predict(RankRLS(), X, Y, [np.arange(3)], **q)[0],
    "cross_val_score": lambda **q: cross_val_score(RankRLS(), X, Y, cv=2, **q),
    "cross_val_predict": lambda **q: cross_val_predict(RankRLS(), X, Y, cv=2, **q),
    "permutation_test": lambda **q: permutation_test(
        RankRLS(), X, Y, n_permutations=5, cv="leave-query-out", random_state=0, **q
    ).score,
    "compare": lambda **q: metrics.compare_rankers(Y, SCORE, Y, random_state=0, **q).p_value,
    "evaluate": lambda **q: metrics.evaluate(Y, SCORE, metrics="map", **q)["map"],
    "rank": lambda **q: rank(FITTED, X, **q).rank,
    "rank of a Bunch": lambda **q: rank(FITTED, {"data": X}, **q).rank,
    "best_candidates": lambda **q: list(best_candidates(SCORE, **q).items()),
    "reranking_scores": lambda **q: reranking_scores(Y, SCORE, **q).first_choice,
    "TableEncoder": lambda **q: TableEncoder().fit(X, **q).transform(X),
    "table": lambda **q: RankTable.from_scores(SCORE, **q).rank,
    **{
        metric.__name__: partial(metric, Y, SCORE)
        for metric in (
            metrics.ndcg, metrics.average_precision, metrics.reciprocal_rank, metrics.precision,
            metrics.recall, metrics.expected_reciprocal_rank, metrics.pairwise_error,
            metrics.pairwise_accuracy, metrics.concordance_index,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_sizes_are_queries(name):
    call = CALLS[name]
    expected = call(qid=QID)
    for group in (SIZES, np.array(SIZES), pd.Series(SIZES), tuple(SIZES)):
        np.testing.assert_array_equal(call(group=group), expected)
    if name not in ("leave_query_out_predict", "compare", "permutation_test"):
        np.testing.assert_array_equal(call(qid=QID, group=None), expected)
    with pytest.raises(ValueError, match=r"pass either qid, .* or group, .* not both"):
        call(qid=QID, group=SIZES)
    with pytest.raises(ValueError, match=rf"the 2 sizes in group add up to 7 rows, but .* {N}"):
        call(group=[3, 4])


def test_wrong_sizes():
    for group, message in (
        (QID, rf"add up to {QID.sum()} rows, but X has {N} \(pass the query of each row as qid"),
        ([1.0, 20.0], "one-dimensional array of integers, .*; got float64 of shape"),
        ([[3, 18]], r"one-dimensional array of integers, .*; got int64 of shape \(1, 2\)"),
        ([22, -1], "negative size -1"),
    ):
        with pytest.raises(ValueError, match=message):
            RankRLS().fit(X, Y, group=group)
    with pytest.raises(ValueError, match="pass sizes of consecutive queries as group"):
        RankRLS().fit(X, Y, qid=[10, 11])


def test_updates_need_ids():
    """Sizes would give queries of different calls the same numbers."""
    for update in (RankRLS().partial_fit, FITTED.forget, partial(streaming.forget, PIPELINE)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'group'"):
            update(X, Y, group=SIZES)
    by_size = RankRLS().fit(X, Y, group=SIZES)
    last = max(QID) == QID
    rest = RankRLS().fit(X[~last], Y[~last], qid=QID[~last])
    by_size.forget(X[last], Y[last], qid=QID[last])
    np.testing.assert_allclose(by_size.coef_, rest.coef_, rtol=1e-9)


def test_signatures_stay():
    """Metadata routing reads them, and sizes cannot be split with the rows."""
    assert "group" not in inspect.signature(RankRLS.fit).parameters
    assert not hasattr(RankRLS().get_metadata_routing().fit, "group")
