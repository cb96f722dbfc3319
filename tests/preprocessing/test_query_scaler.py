"""QueryScaler against a loop over queries and columns."""

import warnings

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrls import RankRLS
from rankrls.datasets import make_ranking
from rankrls.io import load_model, save_model
from rankrls.preprocessing import QueryScaler

METHODS = ("minmax", "standard", "maxabs", "rank")


def looped(X, qid, method):
    result = np.zeros(X.shape)
    for query in set(qid):
        rows = [i for i in range(len(qid)) if qid[i] == query]
        for j in range(X.shape[1]):
            x = X[rows, j].astype(float)
            if method == "rank":
                below = (x[:, None] > x).sum(axis=1) + (x[:, None] == x).sum(axis=1) / 2 + 0.5
                result[rows, j] = (below - (len(x) + 1) / 2) / len(x)
            elif method == "maxabs":
                result[rows, j] = x / (np.abs(x).max() or 1.0)
            elif x.min() != x.max():
                if method == "minmax":
                    result[rows, j] = (x - x.min()) / (x.max() - x.min())
                else:
                    result[rows, j] = (x - x.mean()) / x.std()
    return result


def problem(seed, n=60, d=5, n_queries=9):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(1) * (rng.random((n, d)) < 0.6)
    X[:, 0] = 0.1
    return X, rng.integers(n_queries, size=n)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_missing_values_are_ignored(method, dtype):
    X, qid = problem(3)
    X = X.astype(dtype)
    X[np.random.default_rng(4).random(X.shape) < 0.3] = np.nan
    X[qid == 2, 1] = np.nan  # a query without a value
    scaled = QueryScaler(method).fit_transform(X, qid=qid)
    assert_array_equal(np.isnan(scaled), np.isnan(X))
    assert scaled.dtype == dtype
    for j in range(X.shape[1]):
        known = ~np.isnan(X[:, j])
        expected = looped(X[known, j : j + 1], qid[known], method)
        assert_allclose(
            scaled[known, j], expected[:, 0], atol=1e-6 if dtype == np.float32 else 1e-12
        )


EXPECTED_FAILURES = {
    "check_methods_subset_invariance": "it passes no qid, so that each subset is another query, "
    "and a query is scaled by all of its rows",
}


@parametrize_with_checks(
    [QueryScaler(method=method) for method in METHODS],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(METHODS), st.integers(1, 30), st.integers(1, 8))
def test_row_order_and_names_of_queries_do_not_matter(seed, method, n, n_queries):
    X, qid = problem(seed, n=n, n_queries=n_queries)
    order = np.random.default_rng(seed).permutation(n)
    names = np.array([f"q{(7 * q) % 11}" for q in qid])
    scaled = QueryScaler(method=method).fit_transform(X, qid=qid)
    again = QueryScaler(method=method).fit_transform(X[order], qid=names[order])
    assert_allclose(again, scaled[order], atol=1e-12)
    if method != "standard":
        assert_array_equal(again, scaled[order])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e308, 1e-308, 5e-324, 1e-160])
def test_extreme_units(method, unit):
    # 5e-324 is the smallest number there is: 3 of it are exactly three times as much.
    small = np.array([[1.0], [-1.0], [0.0], [1.0]])
    if unit < 1:
        small += 2
    qid = [1, 1, 1, 2]
    scaled = QueryScaler(method=method).fit_transform(small * unit, qid=qid)
    assert_allclose(scaled, looped(small, qid, method), atol=1e-12)


def test_large_offset():
    X = 1e9 + np.array([[0.0], [1.0], [2.0]])
    expected = np.array([[-1.0], [0.0], [1.0]]) * np.sqrt(1.5)
    assert_allclose(QueryScaler("standard").fit_transform(X), expected, rtol=1e-12)


def test_errors():
    X, qid = problem(5)
    with pytest.raises(ValueError, match="method must be one of 'minmax'"):
        QueryScaler("max").fit(X)
    with pytest.raises(ValueError, match="qid has 59 entries for 60 rows of X"):
        QueryScaler().fit_transform(X, qid=qid[1:])
    with pytest.raises(ValueError, match="expecting 5 features"):
        QueryScaler().fit(X).transform(X[:, 1:], qid=qid)
    with pytest.raises(ValueError, match="infinity"):
        QueryScaler().fit(np.array([[np.inf]]))
    with pytest.raises(TypeError, match="Sparse data was passed for X"):
        QueryScaler("maxabs").fit(sparse.csr_array(X))


def test_pipeline_with_routing():
    X, qid = problem(6)
    y = np.random.default_rng(6).normal(size=len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(QueryScaler().set_transform_request(qid=True), Ridge())
        scores = pipeline.fit(X, y, qid=qid).predict(X, qid=qid)
    scaled = looped(X, qid, "minmax")
    assert_allclose(scores, Ridge().fit(scaled, y).predict(scaled))


def test_training_rows_as_one_query_and_new_ones_by_query(tmp_path):
    """A pipeline may hand qid to the ranker only: its scores would differ from those of rank."""
    X, y, qid = make_ranking(n_queries=10, random_state=0, return_X_y_qid=True)
    pooled = make_pipeline(QueryScaler(), RankRLS()).fit(X, y, rankrls__qid=qid)
    save_model(pooled, tmp_path / "model")
    for model in (pooled, load_model(tmp_path / "model")):
        with pytest.warns(UserWarning, match="training rows were scaled as one query"):
            model[0].transform(X, qid=qid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pooled.predict(X)
        by_query = QueryScaler().fit_transform(X, qid=qid)
        fitted = QueryScaler().fit(X)  # it has scaled nothing yet
        save_model(fitted, tmp_path / "scaler")
        for scaler in (fitted, load_model(tmp_path / "scaler")):
            np.testing.assert_array_equal(scaler.transform(X, qid=qid), by_query)
