"""The grid of alphas and the folds that the cross-validating estimators share."""

import numpy as np
import pytest

from rankrls import RankRLS, RankRLSCV
from rankrls.estimators.choosing import (
    best_of,
    choose_alpha,
    continuation,
    read_splits,
)
from rankrls.metrics import evaluate
from rankrls.model_selection import leave_query_out_predict


@pytest.mark.parametrize(
    ("cv", "complement", "message"),
    [
        ([], False, "cv gives no split"),
        ([(0, 1, 2)], False, "split 0 of cv must be a pair"),
        ([5], False, "split 0 of cv must be a pair"),
        (
            [([0], [1]), ([0], [6])],
            False,
            "test rows of split 1 of cv has 6",
        ),
        ([([0, 1], [1])], False, "rows both in train and in test"),
        ([([0, 1], [1])], True, "does not train on all rows except the test rows"),
        ([([0, 1], [2])], True, "does not train on all rows except the test rows"),
        ([([0.5], [2])], False, "train rows of split 0 of cv must be row numbers"),
        ([([0], [])], False, "test rows of split 0 of cv must be row numbers"),
        ([([0, 0], [1])], False, "train rows of split 0 of cv names a row twice"),
        ([([0], np.ones(5, bool))], False, "must be row numbers"),
    ],
)
def test_splits_that_are_refused(cv, complement, message):
    with pytest.raises(ValueError, match=message):
        read_splits(cv, 6, None, complement=complement)


def test_scores_that_differ_by_rounding_are_a_plateau():
    grid = 2.0 ** np.arange(6)
    falling = np.array([-0.3, -0.3 - 1e-9, -0.3 - 2e-9, -0.4, -0.5, -0.6])
    assert best_of(falling) == choose_alpha(grid, falling) == 2  # without a warning
    assert len(continuation(grid, {"mean_score": falling}, 1e3)) == 0
    rising = falling[::-1]
    assert best_of(rising) == choose_alpha(grid, rising) == 5
    assert len(continuation(grid, {"mean_score": rising}, 1.0)) == 0
    assert len(continuation(grid, {"mean_score": rising}, 1e3)) == 10
    assert best_of(np.array([0.3, 0.2, 0.3 - 1e-9])) == 0
    assert best_of(np.array([0.3, 0.2, 0.3])) == best_of(np.array([0.3, 0.2, 0.3 - 1e-16])) == 2


def test_default_grid_is_not_to_be_extended():
    """The log loss falls by ever less to the smallest alpha that means anything."""
    rng = np.random.default_rng(3)
    X, pairs = rng.standard_normal((30, 40)), rng.integers(0, 30, (20, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    search = RankRLSCV(scoring="log_loss").fit(X, pairs=pairs)
    assert search.alpha_ == search.alphas_[0] < 1e-8
    with pytest.warns(UserWarning, match="is the smallest of the grid: extend alphas"):
        RankRLSCV(np.array([0.01, 0.1, 1.0]), scoring="log_loss").fit(X, pairs=pairs)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("scoring", ["ndcg", "ndcg@3", "map", "mrr", "err@5", "pairwise_accuracy"])
def test_best_score_leaves_out_the_queries_that_evaluate_leaves_out(scoring):
    rng = np.random.default_rng(7)
    X, y, qid = rng.standard_normal((90, 3)), rng.integers(0, 3, 90), np.repeat(np.arange(18), 5)
    y[qid < 5] = 0  # queries without a relevant row
    ranker = RankRLSCV([0.1, 1.0, 10.0], scoring=scoring).fit(X, y, qid=qid)
    held_out = leave_query_out_predict(RankRLS(ranker.alpha_), X, y, qid=qid)
    expected = evaluate(y, held_out, qid=qid, metrics=scoring)[scoring]
    assert ranker.best_score_ == pytest.approx(expected, rel=1e-12)
