"""The grid of alphas and the folds that the cross-validating estimators share."""

import numpy as np
import pytest

from rankrls import RankRLS, RankRLSCV
from rankrls.estimators.choosing import (
    best_of,
    choose_alpha,
    continuation,
    random_folds,
    read_splits,
)
from rankrls.metrics import evaluate
from rankrls.model_selection import leave_query_out_predict


def test_random_folds_partition():
    folds = random_folds(11, 3, np.random.RandomState(0))
    assert sorted(map(len, folds)) == [3, 4, 4]
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(11))
    assert all((np.diff(fold) > 0).all() for fold in folds)
    with pytest.raises(ValueError, match=r"5 queries cannot be held out in 6 folds: .* 2 to 5"):
        random_folds(5, 6, np.random.RandomState(0), what="queries")
    with pytest.raises(ValueError, match="5 columns cannot be held out in 3 folds of at least 2"):
        random_folds(5, 3, np.random.RandomState(0), what="columns", least=2)
    with pytest.raises(ValueError, match="1 rows are too few"):
        random_folds(1, 2, np.random.RandomState(0))


@pytest.mark.parametrize(
    ("cv", "complement", "message"),
    [
        ([], False, "cv gives no split"),
        ([(0, 1, 2)], False, "split 0 of cv must be a pair"),
        ([5], False, "split 0 of cv must be a pair"),
        ([([0], [1]), ([0], [6])], False, "test rows of split 1 of cv must be from 0 to 5"),
        ([([0, 1], [1])], False, "rows both in train and in test"),
        ([([0, 1], [1])], True, "does not train on all rows except the test rows"),
        ([([0, 1], [2])], True, "does not train on all rows except the test rows"),
        ([([0.5], [2])], False, "train rows of split 0 of cv must be row numbers of X"),
        ([([0], [])], False, "test rows of split 0 of cv must be row numbers of X"),
        ([([0, 0], [1])], False, "train rows of split 0 of cv name a row twice"),
        ([([0], np.ones(5, bool))], False, "a boolean mask of its 6 rows"),
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
