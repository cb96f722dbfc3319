"""What must not change the answer, and limits that must be reached."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from cases import COSTS, TIES, Case
from rankrls import RankRLS, RankSVM

CONFIGURATIONS = {
    "primal": {"solver": "primal"},
    "dual": {"solver": "dual"},
    "rbf": {"kernel": "rbf", "gamma": 0.5},
    "nystroem": {"kernel": "rbf", "gamma": 0.5, "solver": "nystroem"},
}


def centred(values):
    return values - values.mean(axis=0)


def assert_same(one, other, tolerance):
    one, other = centred(one), centred(other)
    assert np.abs(one - other).max() <= tolerance * np.abs(other).max()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    cost=st.sampled_from(COSTS),
    ties=st.sampled_from(TIES),
    weighting=st.sampled_from(["pair", "size", "query"]),
    name=st.sampled_from(sorted(CONFIGURATIONS)),
    n_pairs=st.sampled_from([0, 4]),
)
def test_row_order_does_not_matter(seed, cost, ties, weighting, name, n_pairs):
    case = Case(
        seed, cost=cost, ties=ties, query_weighting=weighting, n_pairs=n_pairs, weight="positive"
    )
    options = CONFIGURATIONS[name] | case.options
    X = case.rng.standard_normal((case.m, 3))
    order = case.rng.permutation(case.m)
    place = np.argsort(order)
    basis = np.arange(8) if name == "nystroem" else None
    fit = dict(case.fit)
    one = RankRLS(0.1, basis=basis, **options).fit(X, case.y, **fit)
    fit["qid"], fit["sample_weight"] = fit["qid"][order], fit["sample_weight"][order]
    if n_pairs:
        fit["pairs"] = place[fit["pairs"]]
    basis = None if basis is None else place[basis]
    other = RankRLS(0.1, basis=basis, **options).fit(X[order], case.y[order], **fit)
    assert_same(other.predict(X), one.predict(X), 1e-9)
    assert one.n_pairs_ == other.n_pairs_
    std, other_std = (ranker.predict(X, return_std=True)[1] for ranker in (one, other))
    np.testing.assert_allclose(other_std, std, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("qid", ["one", "many"])
@pytest.mark.parametrize("n_pairs", [0, 5, 80])
def test_offset_features_cost_few_digits(cost, solver, qid, n_pairs):
    case = Case(1, cost=cost, qid=qid, n_pairs=n_pairs, m=40)
    # Multiples of 2⁻²⁰, so that the offset itself is exact.
    X = np.round(case.rng.standard_normal((40, 5)) * 2**20) / 2**20
    X_new = np.round(case.rng.standard_normal((6, 5)) * 2**20) / 2**20
    ranker = RankRLS(0.01, solver=solver, cost=cost)
    plain = ranker.fit(X, case.y, **case.fit)
    coef, std = plain.coef_, plain.predict(X_new, return_std=True)[1]
    shifted = ranker.fit(X + 2.0**20, case.y, **case.fit)
    np.testing.assert_allclose(shifted.coef_, coef, rtol=1e-9, atol=1e-9 * np.abs(coef).max())
    np.testing.assert_allclose(shifted.predict(X_new + 2.0**20, return_std=True)[1], std, rtol=1e-7)


@pytest.mark.parametrize("cost", COSTS)
def test_constant_added_to_the_kernel_costs_few_digits(cost):
    case = Case(2, cost=cost, m=40)
    X, X_new = case.rng.standard_normal((40, 3)), case.rng.standard_normal((6, 3))
    K, K_new = rbf_kernel(X), rbf_kernel(X_new, X)
    ranker = RankRLS(0.01, kernel="precomputed", cost=cost)
    expected = ranker.fit(K, case.y, **case.fit).predict(K_new)
    actual = ranker.fit(K + 1e6, case.y, **case.fit).predict(K_new + 1e6)
    assert_same(actual, expected, 1e-6)
    likelihood = ranker.log_marginal_likelihood()
    np.testing.assert_allclose(
        likelihood, ranker.fit(K, case.y, **case.fit).log_marginal_likelihood(), rtol=1e-6
    )


def test_constant_and_zero_columns_get_no_weight():
    rng = np.random.default_rng(3)
    X, y, qid = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.integers(0, 4, 30)
    padded = np.column_stack([X[:, 0], np.zeros(30), X[:, 1], np.full(30, 7.5), X[:, 2]])
    by_query = np.column_stack([padded, 100.0 * qid])
    for solver in ("primal", "dual"):
        for alpha in (1e-9, 1.0):
            plain = RankRLS(alpha, solver=solver).fit(X, y, qid=qid).coef_
            for data in (by_query, sparse.csr_array(by_query)):
                coef = RankRLS(alpha, solver=solver).fit(data, y, qid=qid).coef_
                np.testing.assert_allclose(coef[[0, 2, 4]], plain, rtol=1e-6)
                np.testing.assert_allclose(coef[[1, 3, 5]], 0.0, atol=1e-6 * np.abs(plain).max())


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("alpha", [1e-9, 1e-3, 1e6])
def test_duplicate_rows(name, alpha):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((12, 3))[rng.integers(0, 12, 40)]
    y = rng.standard_normal(40)
    edges = oracles.edges_of_scores(y, cost="magnitude", ties="keep", query_weighting="pair")
    K = X @ X.T if "kernel" not in CONFIGURATIONS[name] else rbf_kernel(X, gamma=0.5)
    basis = np.arange(40) if name == "nystroem" else None
    ranker = RankRLS(alpha, basis=basis, **CONFIGURATIONS[name]).fit(X, y)
    expected = K @ oracles.dual_coefficients(edges, K, alpha)
    assert_same(ranker.predict(X), expected, 1e-6)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(
    "model",
    [
        RankRLS(kernel="linear"),
        RankRLS(kernel="rbf"),
        RankRLS(kernel="laplacian", solver="nystroem", basis=40),
        RankRLS(kernel="poly"),
        RankRLS(kernel="precomputed"),
        RankSVM(kernel="poly"),
    ],
    ids=lambda model: f"{type(model).__name__} {model.kernel}",
)
def test_equal_rows_get_equal_scores(model, n_outputs):
    """Bit for bit: ties must not be broken by the order of the rows."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(300, 20)), rng.normal(size=(401, 20))
    y = rng.normal(size=(300, n_outputs))[:, : n_outputs if isinstance(model, RankRLS) else 1]
    if model.kernel == "precomputed":
        X, new = X @ X.T, new @ X.T
    model = clone(model).fit(X, y.squeeze(), qid=np.repeat(np.arange(30), 10))
    rows = rng.integers(0, len(new), 3001)
    scores = model.predict(new[rows])
    first = np.unique(rows, return_index=True)
    expected = scores[first[1]][np.searchsorted(first[0], rows)]
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_allclose(
        scores, model.predict(new)[rows], rtol=0, atol=1e-9 * abs(scores).max()
    )
