"""List metrics (NDCG, average precision, recall, ERR …) against all orders of ties."""

from fractions import Fraction
from functools import partial
from math import comb

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import oracles as oracle
from rankrls.metrics import (
    average_precision,
    expected_reciprocal_rank,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)

BINARY = [average_precision, reciprocal_rank, precision, recall]
METRICS = [ndcg, expected_reciprocal_rank, *BINARY]


@st.composite
def tied_lists(draw):
    """At most four queries of at most five rows, scores of few levels."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    n = sum(sizes)
    column = lambda top: st.lists(st.integers(0, top), min_size=n, max_size=n)  # noqa: E731
    y, score = draw(column(draw(st.integers(1, 4)))), draw(column(draw(st.integers(0, 6))))
    order = draw(st.permutations(range(n)))
    qid = np.repeat(np.arange(len(sizes)), sizes)[order]
    return np.array(y, dtype=float), np.array(score, dtype=float), qid


cutoffs = st.none() | st.integers(1, 6)


#: The option of each metric, its name in the oracle, and values.
OPTIONS = {
    ndcg: ("gain", "gain", ["exponential", "linear"]),
    expected_reciprocal_rank: ("max_grade", "max_grade", [4, 4.5, 7]),
    **{m: ("relevance_threshold", "threshold", [0.5, 1, 2, 3]) for m in BINARY},
}


@pytest.mark.parametrize("metric", METRICS)
@given(tied_lists(), cutoffs, st.integers(0, 11))
@settings(max_examples=80, deadline=None)
def test_metrics_are_the_mean_over_orders_of_ties(metric, data, k, number):
    y, score, qid = data
    name, of_oracle, values = OPTIONS[metric]
    value = values[number % len(values)]
    naive = partial(getattr(oracle, metric.__name__), k=k, **{of_oracle: value})
    expected = oracle.by_query(naive, y, score, qid)
    options = {"qid": qid, "k": k, name: value}
    for undefined, fill in (("skip", np.nan), (0, 0.0), (1, 1.0)):
        wanted = np.nan_to_num(expected, nan=fill)
        actual = metric(y, score, undefined=undefined, average=None, **options)
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-14)
        if np.isnan(wanted).all():
            with pytest.raises(ValueError, match="no query has a relevant row"):
                metric(y, score, undefined=undefined, **options)
        else:
            mean = metric(y, score, undefined=undefined, **options)
            assert mean == pytest.approx(np.nanmean(wanted), abs=1e-13)


def test_err_of_many_tied_rows():
    """All orders of a large tie group, by the sum over how many of each grade come first."""
    n_zero, n_two, n_four = 200, 30, 5
    y = np.repeat([0.0, 2.0, 4.0], [n_zero, n_two, n_four])
    a, b, n = 1 - Fraction(3, 16), 1 - Fraction(15, 16), len(y)
    means = []
    for j in range(41):
        ways = sum(
            comb(n_two, i) * comb(n_four, h) * comb(n_zero, j - i - h) * a**i * b**h
            for i in range(min(j, n_two) + 1)
            for h in range(min(j - i, n_four) + 1)
        )
        means.append(ways / comb(n, j))
    exact = sum((means[j - 1] - means[j]) / j for j in range(1, 41))
    actual = expected_reciprocal_rank(y, np.zeros(n), k=40)
    assert actual == pytest.approx(float(exact), rel=1e-12)


def test_err_of_more_places_than_count():
    """Users of a long tied list stop long before its end: a thousand rows, each the same."""
    stop = 3 / 16
    exact = sum((1 - stop) ** (p - 1) * stop / p for p in range(1, 1001))
    assert expected_reciprocal_rank(np.full(1000, 2.0), np.zeros(1000)) == pytest.approx(exact)


def test_err_of_labels_outside_the_scale():
    with pytest.raises(ValueError, match=r"from 0 to max_grade=4 .*; row 1 has 5"):
        expected_reciprocal_rank([1, 5], [1, 2])
    assert expected_reciprocal_rank([1, 5], [1, 2], max_grade=5) > 0.9
    with pytest.raises(ValueError, match="row 0 has -1"):
        expected_reciprocal_rank([-1, 4], [1, 2])
    with pytest.raises(ValueError, match="max_grade must be finite and > 0; got 0"):
        expected_reciprocal_rank([0, 0], [1, 2], max_grade=0)


@pytest.mark.parametrize("metric", METRICS)
@given(tied_lists(), st.randoms(use_true_random=False), cutoffs)
@settings(max_examples=50, deadline=None)
def test_row_order_changes_nothing(metric, data, random, k):
    y, score, qid = data
    order = np.array(random.sample(range(len(y)), len(y)))
    before = metric(y, score, qid=qid, k=k, average=None)
    after = metric(y[order], score[order], qid=qid[order], k=k, average=None)
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("k", [None, 3, 10])
def test_ndcg_equals_scikit_learn(k):
    # scikit-learn's gain is linear, and it averages over ties the same way.
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 5, 300), rng.normal(size=300).round(1)
    qid = rng.integers(0, 12, 300)
    actual = ndcg(y, score, qid=qid, k=k, gain="linear", average=None)
    expected = [ndcg_score([y[qid == q]], [score[qid == q]], k=k) for q in range(12)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize(("g", "r"), [(50, 1), (50, 50), (300, 7), (2000, 3)])
def test_reciprocal_rank_of_large_tie_groups(g, r):
    y, score = np.r_[0, np.ones(r), np.zeros(g - r)], np.r_[1.0, np.zeros(g)]
    expected = sum(Fraction(comb(g - j, r - 1), comb(g, r) * (1 + j)) for j in range(1, g - r + 2))
    assert reciprocal_rank(y, score) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("metric", METRICS)
def test_cut_offs_longer_than_any_list(metric):
    y, score = [2, 0, 1], [1, 2, 2]
    whole = metric(y, score) if metric is not precision else 0.0
    for k in (10**9, 10**21, 10**400):
        assert metric(y, score, k=k) == pytest.approx(whole, abs=1e-8)


def test_conventions():
    # Average precision at k divides by all relevant rows, precision at k by k.
    assert average_precision([1, 1, 1], [3, 2, 1], k=1) == pytest.approx(1 / 3)
    assert precision([1, 1], [2, 1], k=4) == 0.5
    assert reciprocal_rank([0, 0, 1], [3, 2, 1], k=2) == 0.0
    # The default threshold suits 0/1, -1/+1 and grades.
    assert precision([-1, 1], [1, 2], k=1) == precision([0, 4], [1, 2], k=1) == 1.0
    assert ndcg([3, 2, 0], [3, 2, 1]) == 1.0
    assert ndcg([0, 0], [1, 2], undefined=0) == 0.0
    assert ndcg([0, 0], [1, 2], undefined=1) == 1.0


@pytest.mark.parametrize("metric", METRICS)
def test_several_outputs(metric):
    rng = np.random.default_rng(0)
    y, score, qid = rng.integers(0, 3, (40, 2)), rng.normal(size=(40, 2)), rng.integers(0, 4, 40)
    single = [metric(y[:, c], score[:, c], qid=qid, k=3) for c in range(2)]
    assert metric(y, score, qid=qid, k=3) == pytest.approx(np.mean(single))
    assert metric(y, score, qid=qid, k=3, average=None).shape == (4, 2)
    y[:, 1] = 0
    with pytest.raises(ValueError, match="no query has a relevant row in output 1"):
        metric(y, score, qid=qid, undefined="skip")


@pytest.mark.parametrize(
    "make", [list, tuple, np.float32, pd.Series, lambda x: pl.Series(np.asarray(x))]
)
def test_kinds_of_input(make):
    y, score, qid = np.array([2, 1, 0, 1, 0]), np.array([3, 1, 2, 5, 5]), np.array([1, 1, 1, 2, 2])
    before = [column.copy() for column in (y, score, qid)]
    for metric in METRICS:
        assert metric(make(y), make(score), qid=make(qid)) == metric(y, score, qid=qid)
    for column, copy in zip((y, score, qid), before, strict=True):
        np.testing.assert_array_equal(column, copy)


BAD = [
    ({"k": 0}, "k must be an integer >= 1"),
    ({"k": True}, "k must be an integer >= 1"),
    ({"undefined": "zero"}, "undefined must be one of 0, 1, 'skip'; got 'zero'"),
    ({"average": "pair"}, "average must be one of 'query', None; got 'pair'"),
    ({"y_true": [1, 0]}, "y_true has 2 entries for 3 rows of y_score"),
    ({"y_true": None}, "y_true is None"),
    ({"qid": [1, 1]}, "qid has 2 entries for 3 rows of y_score"),
    ({"y_score": [1, np.nan, 0]}, "y_score contains NaN"),
    ({"y_true": [1, np.nan, 0]}, "y_true contains NaN"),
    ({"y_true": [], "y_score": []}, "no rows"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    arguments = {"y_true": [2, 1, 0], "y_score": [1.0, 2.0, 3.0], **change}
    for metric in METRICS:
        with pytest.raises(ValueError, match=message):
            metric(**arguments)


def test_bad_gains_and_thresholds():
    with pytest.raises(ValueError, match=r"y_true must be >= 0 for ndcg .*; row 1 has -2"):
        ndcg([1, -2], [1, 2], gain="linear")
    with pytest.raises(ValueError, match="use gain='linear'"):
        ndcg([1, 2000], [1, 2])
    assert ndcg([1, 2000], [1, 2], gain="linear") == 1.0
    with pytest.raises(ValueError, match="gain must be one of 'exponential', 'linear'"):
        ndcg([1, 2], [1, 2], gain="log")
    with pytest.raises(ValueError, match="relevance_threshold must be a finite number"):
        precision([1, 0], [1, 2], relevance_threshold="1")
