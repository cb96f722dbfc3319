"""Generated data have the properties that their documentation promises."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import Ridge

from rankrls._validation import check_magnitudes, check_pairs
from rankrls.datasets import make_preference_pairs, make_ranking


def centred(values, qid):
    means = np.array([values[qid == query].mean(axis=0) for query in range(qid.max() + 1)])
    return values - means[qid]


def pair_accuracy(scores, target, qid):
    """Part of the ordered pairs within queries that the scores order alike."""
    right = total = 0
    for query in set(qid.tolist()):
        rows = qid == query
        better = target[rows][:, None] > target[rows]
        right += (better & (scores[rows][:, None] > scores[rows])).sum()
        total += better.sum()
    return right / total


def accuracies(seed, **options):
    """Test accuracy of plain regression and of regression within queries."""
    ranking = make_ranking(n_queries=200, random_state=seed, **options)
    X, y, qid = ranking.data, ranking.target, ranking.qid
    train = qid < 100
    pooled = Ridge().fit(X[train], y[train])
    within = Ridge().fit(centred(X[train], qid[train]), centred(y[train], qid[train]))
    return [pair_accuracy(m.predict(X[~train]), y[~train], qid[~train]) for m in (pooled, within)]


@pytest.mark.parametrize("n_levels", [5, None])
@pytest.mark.parametrize("seed", range(3))
def test_query_effect_hurts_plain_regression_only(seed, n_levels):
    pooled, within = accuracies(seed, n_levels=n_levels)
    assert within > pooled + 0.05
    assert within > 0.8
    pooled, within = accuracies(seed, n_levels=n_levels, query_effect=0)
    assert abs(within - pooled) < 0.02


def test_shapes_and_levels():
    ranking = make_ranking(50, (3, 9), 7, n_informative=2, n_levels=4, random_state=0)
    sizes = np.bincount(ranking.qid)
    assert ranking.data.shape == (sizes.sum(), 7)
    assert (len(sizes), sizes.min(), sizes.max()) == (50, 3, 9)
    assert np.count_nonzero(ranking.coef) == 2
    assert len(ranking.feature_names) == 7
    counts = np.bincount(ranking.target.astype(int))
    assert len(counts) == 4
    assert (counts[1:] < 0.6 * counts[:-1]).all()
    real = make_ranking(n_levels=None, random_state=0).target
    assert len(np.unique(real)) == len(real)


def test_coef_ranks_without_noise():
    for query_effect in (0, 1, 3):
        r = make_ranking(20, noise=0, n_levels=None, query_effect=query_effect, random_state=1)
        assert pair_accuracy(r.data @ r.coef, r.target, r.qid) == 1


def test_seeds_and_return_forms():
    a, b = (make_ranking(random_state=3) for _ in range(2))
    X, y, qid = make_ranking(random_state=np.random.RandomState(3), return_X_y_qid=True)
    for values in (b.data, X):
        assert_array_equal(a.data, values)
    assert_array_equal(a.target, y)
    assert_array_equal(a.qid, qid)
    assert (make_ranking(random_state=4).data != a.data).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_queries": 0}, "n_queries must be an integer >= 1"),
        ({"n_docs": (5, 3)}, "n_docs must be an integer >= 5"),
        ({"n_features": 3, "n_informative": 4}, "more than n_features=3"),
        ({"noise": -1}, "noise must be a finite number >= 0"),
    ],
)
def test_ranking_errors(options, message):
    with pytest.raises(ValueError, match=message):
        make_ranking(**options)


def test_pairs():
    judged = make_preference_pairs(30, 4, 5000, noise=0.7, random_state=0)
    assert_array_equal(check_pairs(judged.pairs, 30), judged.pairs)
    assert judged.pairs.dtype == np.int64
    assert_array_equal(check_magnitudes(judged.magnitude, 5000), judged.magnitude)
    assert_array_equal(judged.utility, judged.data @ judged.coef)
    # Bradley-Terry: the expected part of judgements that agree with the utilities.
    gap = np.abs(judged.utility[judged.pairs[:, 0]] - judged.utility[judged.pairs[:, 1]])
    agree = (judged.utility[judged.pairs[:, 0]] > judged.utility[judged.pairs[:, 1]]).mean()
    assert abs(agree - (1 / (1 + np.exp(-gap / 0.7))).mean()) < 0.02
