"""permutation_test with alpha chosen inside every permutation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rankrls.model_selection._permutation as module
from rankrls import RankRLS, RankRLSCV
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection import leave_pair_out_score, permutation_test
from test_permutation import make, permutations

GRID = np.array([1e-3, 0.3, 10.0, 1e3])


def refitted_pairs(make_ranker, X, y):
    """Leave-pair-out accuracy by a loop over pairs, every one with a refit."""
    right = []
    for i, j in np.argwhere(y[:, None] > y):
        rest = np.setdiff1d(np.arange(len(y)), [i, j])
        a, b = make_ranker().fit(X[rest], y[rest]).predict(X[[i, j]])
        right.append(1.0 if a > b else 0.5 if a == b else 0.0)
    return np.mean(right)


def refitted_queries(make_ranker, X, y, qid):
    held = np.empty(len(y))
    for query in set(qid):
        out = qid == query
        held[out] = make_ranker().fit(X[~out], y[~out], qid=qid[~out]).predict(X[out])
    return pairwise_accuracy(y, held, qid=qid)


def test_pairs_against_literal_refits():
    X, y, _ = make(seed=1, kind="graded", m=12)
    result = permutation_test(RankRLS(), X, y, alphas=GRID, n_permutations=2, random_state=1)
    scores = np.array(
        [
            [refitted_pairs(lambda alpha=alpha: RankRLS(alpha), X, z) for alpha in GRID]
            for z in [y, *permutations(y, None, 2, 1)]
        ]
    )
    assert_allclose([result.score, *result.null_scores], scores.max(axis=1), rtol=1e-12)
    assert len(set(scores.argmax(axis=1))) > 1  # the choice differs between labellings
    assert result.alpha == GRID[np.flatnonzero(scores[0] == scores[0].max())[-1]]


@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "rbf", "gamma": 0.3}],
    ids=["linear", "rbf"],
)
def test_queries_against_literal_refits(options):
    X, y, qid = make(seed=2, kind="graded")
    result = permutation_test(
        RankRLS(**options),
        X,
        y,
        qid=qid,
        cv="leave-query-out",
        alphas=GRID,
        n_permutations=4,
        random_state=3,
    )
    scores = np.array(
        [
            [refitted_queries(lambda a=alpha: RankRLS(a, **options), X, z, qid) for alpha in GRID]
            for z in [y, *permutations(y, qid, 4, 3)]
        ]
    )
    assert_allclose([result.score, *result.null_scores], scores.max(axis=1), rtol=1e-12)
    assert result.alpha == GRID[np.flatnonzero(scores[0] == scores[0].max())[-1]]


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_the_true_labels_score_as_in_cross_validation():
    X, y, qid = make(seed=3)
    result = permutation_test(RankRLS(), X, y, alphas=GRID, n_permutations=1)
    chosen = RankRLSCV(GRID, cv="leave-pair-out").fit(X, y)
    assert (result.alpha, result.score) == (chosen.alpha_, pytest.approx(chosen.best_score_))
    result = permutation_test(
        RankRLS(), X, y, qid=qid, cv="leave-query-out", alphas=GRID, n_permutations=1
    )
    chosen = RankRLSCV(GRID).fit(X, y, qid=qid)
    assert (result.alpha, result.score) == (chosen.alpha_, pytest.approx(chosen.best_score_))


@pytest.mark.parametrize("cv", ["leave-pair-out", "leave-query-out"])
def test_a_grid_of_one_is_the_alpha(cv):
    X, y, qid = make(seed=4, kind="graded")
    options = {"cv": cv, "n_permutations": 7, "random_state": 0}
    options["qid"] = qid if cv == "leave-query-out" else None
    expected = permutation_test(RankRLS(3.0), X, y, **options)
    for alphas in ([3.0], 3.0, [3.0, 3.0]):
        result = permutation_test(RankRLS(77.0), X, y, alphas=alphas, **options)
        assert result.score == expected.score
        assert_array_equal(result.null_scores, expected.null_scores)
    assert expected.alpha == result.alpha == 3.0


def test_order_and_batches_make_no_difference(monkeypatch):
    X, y, qid = make(seed=5, kind="graded")
    for options in ({}, {"qid": qid, "cv": "leave-query-out"}):
        options = {"n_permutations": 40, "random_state": 0, **options}
        expected = permutation_test(RankRLS(), X, y, alphas=GRID, **options)
        assert_array_equal(
            permutation_test(RankRLS(), X, y, alphas=GRID[[2, 0, 3, 1]], **options).null_scores,
            expected.null_scores,
        )
        with monkeypatch.context() as patch:
            patch.setattr(module, "BATCH_NUMBERS", 1)
            patch.setattr(module, "BATCH_PREDICTIONS", 1)
            result = permutation_test(RankRLS(), X, y, alphas=GRID, **options)
        assert_allclose(result.null_scores, expected.null_scores, rtol=1e-12)
        assert result.p_value == expected.p_value


def test_one_decomposition(monkeypatch):
    """The spectrum of leave-pair-out is computed once for all alphas and batches."""
    from rankrls.core.ridge import pairs

    made = []

    class Counted(pairs.RankingSpectrum):
        def __init__(self, *args, **options):
            made.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(pairs, "RankingSpectrum", Counted)
    monkeypatch.setattr(module, "BATCH_NUMBERS", 1)
    X, y, _ = make(seed=6)
    permutation_test(RankRLS(kernel="rbf"), X, y, alphas=GRID, n_permutations=50)
    assert len(made) == 1


@pytest.mark.parametrize("with_qid", [False, True])
def test_p_values_without_signal(with_qid):
    """Uniform under the null hypothesis: Kolmogorov-Smirnov at about 0.001, both ways.

    The same grid with alpha chosen by the true labels and then fixed is not.
    """
    n = 60
    p, naive = [], []
    for seed in range(n):
        X, y, qid = make(seed=400 + seed, signal=0.0)
        options = {"qid": qid, "cv": "leave-query-out"} if with_qid else {}
        options |= {"n_permutations": 39, "random_state": seed}
        result = permutation_test(RankRLS(kernel="rbf"), X, y, alphas=GRID, **options)
        p.append(result.p_value)
        if not with_qid:
            fixed = RankRLS(result.alpha, kernel="rbf")
            naive.append(permutation_test(fixed, X, y, **options).p_value)
    p = np.sort(p)
    assert np.abs(np.arange(1, n + 1) / n - p).max() < 1.95 / n**0.5
    assert np.mean(p <= 0.05) <= 0.15
    if naive:
        assert np.all(np.sort(naive) <= p + 0.05)
        assert np.mean(naive) < np.mean(p) - 0.03


def test_a_signal_is_found():
    X, y, qid = make(seed=11, signal=5.0)
    for options in ({}, {"qid": qid, "cv": "leave-query-out"}):
        result = permutation_test(
            RankRLS(), X, y, alphas=GRID, n_permutations=99, random_state=0, **options
        )
        assert result.p_value == 0.01
    assert leave_pair_out_score(RankRLS(result.alpha), X, y) > 0.8


@pytest.mark.parametrize(
    ("alphas", "message"),
    [
        ([], "alphas is empty"),
        ([1.0, 0.0], "alphas must be finite and > 0"),
        ([1.0, -2.0], "alphas must be finite and > 0"),
        ([1.0, np.nan], "alphas contains NaN"),
        ([[1.0]], "alphas must be 1-D"),
        ("auto", "alphas must be numeric"),
    ],
)
def test_bad_alphas(alphas, message):
    X, y, _ = make()
    with pytest.raises(ValueError, match=message):
        permutation_test(RankRLS(), X, y, alphas=alphas, n_permutations=3)


def test_a_search_is_told_about_alphas():
    X, y, _ = make()
    with pytest.raises(ValueError, match=r"got a RankRLSCV .*as alphas"):
        permutation_test(RankRLSCV(), X, y)
