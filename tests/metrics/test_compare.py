"""The paired test between two rankers."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from rankrls.metrics import (
    RankerComparison,
    _compare,
    compare_rankers,
    compare_runs,
    evaluate,
    mean_interval,
    ndcg,
    pairwise_accuracy,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    n = 240
    y, qid = rng.integers(0, 4, n), rng.permutation(np.arange(n) % 30)
    return {"y": y, "a": y + rng.normal(size=n), "b": y + 2 * rng.normal(size=n), "qid": qid}


def compare(data, **options):
    return compare_rankers(data["y"], data["a"], data["b"], qid=data["qid"], **options)


def test_result_holds_what_it_says(data):
    result = compare(data, random_state=0)
    a, b = (pairwise_accuracy(data["y"], data[s], qid=data["qid"], average=None) for s in "ab")
    assert isinstance(result, RankerComparison)
    assert result.n_queries == 30
    assert result.mean_a == pytest.approx(a.mean())
    assert result.mean_b == pytest.approx(b.mean())
    assert result.difference == pytest.approx((a - b).mean())
    assert (result.n_a_better, result.n_b_better) == ((a > b).sum(), (a < b).sum())
    assert result.n_a_better + result.n_b_better + result.n_equal == 30
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    np.testing.assert_allclose(result.confidence_interval, (interval.low, interval.high))
    text = str(result)
    for part in ("pairwise_accuracy", "30 queries", "permutation", "95%", "p = "):
        assert part in text
    assert " at 99.5%, " in str(compare(data, confidence_level=0.995))
    with pytest.raises(AttributeError):
        result.p_value = 0.0


def test_permutation_is_exact_for_few_queries(data):
    few = data["qid"] < 10
    small = {name: column[few] for name, column in data.items()}
    a, b = (pairwise_accuracy(small["y"], small[s], qid=small["qid"], average=None) for s in "ab")
    d = a - b
    sums = [abs(np.dot(signs, d)) for signs in product([1, -1], repeat=len(d))]
    expected = np.mean(np.array(sums) >= abs(d.sum()) - 1e-9)
    assert compare(small).p_value == compare(small).pvalue == pytest.approx(expected)


def test_permutation_holds_its_level_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(300, 20))
    p_values = [
        _compare._sign_flip_p(d, 199, np.random.RandomState(i)) for i, d in enumerate(draws)
    ]
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.09
    whole = _compare._sign_flip_p(draws[0], 999, np.random.RandomState(0))
    monkeypatch.setattr(_compare, "_CHUNK", 64)
    chunked = _compare._sign_flip_p(draws[0], 999, np.random.RandomState(0))
    assert whole == pytest.approx(chunked, abs=0.06)


def test_seed_and_row_order(data):
    first, again = (compare(data, random_state=3) for _ in range(2))
    assert first == again
    order = np.random.default_rng(1).permutation(len(data["y"]))
    moved = {name: column[order] for name, column in data.items()}
    assert compare(moved, random_state=3) == first
    swapped = compare({**data, "a": data["b"], "b": data["a"]}, random_state=3)
    assert swapped.p_value == pytest.approx(first.p_value)
    assert swapped.difference == pytest.approx(-first.difference)


def test_equal_rankers(data):
    result = compare({**data, "b": data["a"]})
    assert result.p_value == 1.0
    assert result.difference == 0.0
    assert result.n_equal == result.n_queries


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("ndcg@3", {"gain": "linear"}),
        ("map", {"relevance_threshold": 2, "undefined": 0}),
        ("err", {"max_grade": 3, "undefined": 1}),
    ],
)
def test_options_of_evaluate(data, metric, options):
    data["y"][data["qid"] < 4] = 0
    result = compare(data, metric=metric, n_permutations=9, **options)
    how = {"qid": data["qid"], "metrics": metric, **options}
    assert result.mean_a == pytest.approx(evaluate(data["y"], data["a"], **how)[metric])
    assert result.n_queries == (30 if "undefined" in options else 26)


def test_differences_equal_but_for_rounding_are_ties():
    """Differences of 1/3 that are 1/3 ± 1e-16: ranked as ties, as with exact numbers."""
    n, exact = np.arange(1.0, 9.0), np.arange(1.0, 9.0) % 3 - 1
    a = {"exact": exact + n, "rounded": exact / 3 + n / 7}
    b = {"exact": n, "rounded": n / 7}

    def p_value(kind, method):
        result = _compare._compare("m", [a[kind], b[kind]], method, 9999, 0.95, 0)
        return result.p_value, result.n_equal, result.n_a_better

    assert len(np.unique(np.abs(a["rounded"] - b["rounded"]))) > 2
    for method in ("permutation", "wilcoxon", "t"):
        assert p_value("rounded", method) == pytest.approx(p_value("exact", method), rel=1e-9)


def test_t_and_wilcoxon_equal_scipy(data):
    a, b = (ndcg(data["y"], data[s], qid=data["qid"], k=5, average=None) for s in "ab")
    expected = {
        "t": stats.ttest_rel(a, b).pvalue,
        "wilcoxon": stats.wilcoxon(np.round(a - b, 9)).pvalue,  # two differ by 1e-16
    }
    for method, p_value in expected.items():
        found = compare(data, metric="ndcg@5", method=method)
        assert found.p_value == pytest.approx(p_value, rel=1e-10)
        assert f"({method} test, two-sided)" in str(found)
    with pytest.raises(ValueError, match="method must be one of 'permutation', 'wilcoxon', 't'"):
        compare(data, method="sign")


def test_intervals_of_means():
    rng = np.random.default_rng(0)
    values = np.append(rng.random(40), np.nan)
    expected = stats.ttest_1samp(values[:-1], 0.5).confidence_interval(0.9)
    low, high = mean_interval(values, confidence_level=0.9)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert mean_interval([0.9, 1.0, 1.0])[1] == 1.0  # within the bounds
    assert np.isnan(mean_interval([np.nan])).all()
    assert np.isnan(mean_interval([2.0], bounds=None)).all()
    assert mean_interval([3.0, 3.0], bounds=None) == (3.0, 3.0)
    with pytest.raises(ValueError, match="a value is 3; pass bounds=None"):
        mean_interval([3.0, 0.5])


@pytest.mark.parametrize(("n", "share"), [(1, 0.9), (10, 0.2), (50, 0.05), (1000, 0.002)])
def test_intervals_hold_although_no_error_was_seen(n, share):
    """Errors of 1 with a small probability: the interval misses it in at most 5 % of the data."""
    low, high = mean_interval(np.zeros(n))
    assert low == 0.0
    assert (1 - high) ** n == pytest.approx(0.05)
    assert mean_interval(np.ones(n)) == pytest.approx((1 - high, 1.0))
    missed = (1 - share) ** n if share > high else 0.0  # all are zero, and the bound is too low
    assert missed <= 0.05
    low, high = mean_interval(np.full(n, 0.25))
    assert (0.25 - low) / 0.25 == pytest.approx((high - 0.25) / 0.75)


BAD = [
    ({"metric": 3}, "metric must be one of"),
    ({"metric": "MAP"}, "metric='MAP': it is called 'map' here"),
    ({"metric": "pairwise_accuracy@3"}, "no cut-off"),
    ({"n_permutations": 0}, "n_permutations must be an integer >= 1"),
    ({"confidence_level": 95}, "confidence_level must be a number between 0 and 1"),
    ({"qid": None}, "qid is None"),
    ({"y_score_b": [1, 2, 3, np.inf]}, "y_score_b contains NaN"),
    ({"y_score_b": [1, 2]}, "equal length"),
    ({"y_true": [0, 0, 0, 0], "metric": "ndcg"}, "ndcg is defined for no query"),
    ({"qid": [1, 1, 1, 1]}, "pairwise_accuracy is defined for only one query"),
    ({"metric": "cindex"}, "metric must be one of 'pairwise_accuracy', 'ndcg'"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    arguments = {
        "y_true": [1, 0, 1, 0],
        "y_score_a": [1, 2, 3, 4],
        "y_score_b": [2, 1, 3, 4],
        "qid": [1, 1, 2, 2],
    }
    with pytest.raises(ValueError, match=message):
        compare_rankers(**{**arguments, **change})


@pytest.mark.parametrize("option", ["metrics", "gian", "average"])
def test_unknown_options_are_told(data, option):
    with pytest.raises(TypeError, match=f"'{option}'"):
        compare(data, **{option: "ndcg"})
    with pytest.raises(TypeError, match=f"'{option}'"):
        compare_runs(None, None, None, **{option: None})
