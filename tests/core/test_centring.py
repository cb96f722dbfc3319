"""Offsets and single precision: rows are centred once, kernels are computed in double precision."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import RankRLS, RankSVM

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(60, 5)) * 2**16) / 2**16  # an offset of up to 1e8 is exact
Y = X[:, 0] + 0.3 * RNG.normal(size=60)
QID = np.repeat(np.arange(6), 10)


def difference(a, b):
    """Largest difference of two predictions up to a constant, relative to their range."""
    a, b = a.astype(float), b.astype(float)
    return np.ptp(a - b) / np.ptp(b)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf", "gamma": 0.1}, {"solver": "dual"}, {"kernel": "poly", "coef0": 0.5}],
    ids=str,
)
def test_kernels_of_single_precision_rows(options, alpha):
    small = X.astype(np.float32)
    ranker = RankRLS(alpha, **options)
    single = ranker.fit(small, Y, qid=QID).predict(small)
    assert single.dtype == np.float32
    assert difference(single, ranker.fit(small.astype(float), Y, qid=QID).predict(X)) < 1e-6


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("ranker", [RankRLS(1e-2), RankSVM(0.1, tol=1e-8)], ids=str)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_rbf_of_queries_far_from_each_other(offset, ranker, layout):
    rows = X + offset * np.array([1.0, -2.0, 3.0, -4.0, 0.5, 0.0])[QID, None]
    K = np.zeros((60, 60))
    for query in range(6):
        own = np.flatnonzero(query == QID)
        K[np.ix_(own, own)] = rbf_kernel(X[own], gamma=0.1)
    expected = ranker.set_params(kernel="precomputed").fit(K, Y, qid=QID).predict(K)
    ranker.set_params(kernel="rbf", gamma=0.1).fit(layout(rows), Y, qid=QID)
    for query in range(6):
        own = query == QID
        assert difference(ranker.predict(layout(rows))[own], expected[own]) < 2e-6


@pytest.mark.parametrize("offset", [1e6, 1e7])
@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "dual"}, {"kernel": "rbf", "gamma": 0.1}, {"kernel": "rbf", "basis": 30}],
    ids=str,
)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("cls", [RankRLS, RankSVM])
def test_an_offset_of_all_rows(offset, options, layout, cls):
    ranker = cls(0.1, tol=1e-8, random_state=0, **options)
    expected = ranker.fit(X, Y, qid=QID).predict(X)
    rows = layout(X + offset)
    assert difference(ranker.fit(rows, Y, qid=QID).predict(rows), expected) < 1e-6
