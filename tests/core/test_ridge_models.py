"""Every solver against ridge regression on explicit differences."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

import oracles
from cases import COSTS, TIES, WEIGHTINGS, Case
from rankrls import RankRLS, RankSVM, regularization_path

ALPHAS = (1e-9, 1e-3, 1.0, 1e9)


def relative_error(actual, expected):
    """Largest error of the differences between predictions: a constant does not matter."""
    actual, expected = np.ravel(actual), np.ravel(expected)
    actual, expected = actual - actual.mean(), expected - expected.mean()
    return np.abs(actual - expected).max() / np.abs(expected).max()


def split(case, n):
    X = case.rng.standard_normal((case.m, n))
    return X, case.rng.standard_normal((7, n))


GRID = [
    {"cost": cost, "ties": ties, "query_weighting": weighting, "kind": kind} | extra
    for cost in COSTS
    for ties in TIES
    for weighting in WEIGHTINGS
    for kind, extra in (
        ("continuous", {"qid": "one"}),
        ("mixed", {"weight": "zeros"}),
        ("mixed", {"n_pairs": 4}),
        ("graded", {"n_pairs": 60, "qid": "one"}),
    )
] + [{"cost": cost, "scored": False, "n_pairs": n} for cost in COSTS for n in (5, 80)]
IDS = ["-".join(map(str, options.values())) for options in GRID]


@pytest.mark.parametrize("options", GRID, ids=IDS)
@pytest.mark.parametrize("n", [4, 40])
def test_linear_solvers(options, n):
    case = Case(7, **options)
    X, X_new = split(case, n)
    for number, alpha in enumerate(ALPHAS):
        A = oracles.dual_coefficients(case.edges, X @ X.T, alpha)
        expected = X_new @ (X.T @ A)
        for solver, basis in (("primal", None), ("dual", None), ("nystroem", np.arange(case.m))):
            # Every other alpha in one layout only, which changes with n.
            for data in (X, sparse.csr_array(X))[:: 1 if (number + (n == 4)) % 2 else 2]:
                ranker = RankRLS(alpha, solver=solver, basis=basis, **case.options)
                ranker.fit(data, case.y, **case.fit)
                assert ranker.solver_ == solver
                assert ranker.n_pairs_ == len(case.edges)
                assert relative_error(ranker.predict(X_new), expected) < 2e-7
                assert relative_error(X_new @ ranker.coef_, expected) < 2e-7


@pytest.mark.parametrize("options", GRID, ids=IDS)
def test_kernel_solvers(options):
    case = Case(8, **options)
    X, X_new = split(case, 4)
    K, K_new = rbf_kernel(X, gamma=0.3), rbf_kernel(X_new, X, gamma=0.3)
    for alpha in ALPHAS:
        expected = K_new @ oracles.dual_coefficients(case.edges, K, alpha)
        kernel = {"kernel": "rbf", "gamma": 0.3}
        dual = RankRLS(alpha, **kernel, **case.options).fit(X, case.y, **case.fit)
        assert dual.solver_ == "dual"
        assert relative_error(dual.predict(X_new), expected) < 1e-7
        assert relative_error(K_new @ dual.dual_coef_, expected) < 1e-7
        full = RankRLS(alpha, basis=case.m, **kernel, **case.options)
        full.fit(X, case.y, **case.fit)
        assert full.solver_ == "nystroem"
        assert relative_error(full.predict(X_new), expected) < 2e-6
        given = RankRLS(alpha, kernel="precomputed", **case.options).fit(K, case.y, **case.fit)
        assert relative_error(given.predict(K_new), expected) < 1e-7


@pytest.mark.parametrize("options", GRID[::3], ids=IDS[::3])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_nystroem_basis(options, alpha):
    case = Case(9, **options)
    X, X_new = split(case, 4)
    basis = np.array([3, 17, 1, 8, 11, 0])
    K = rbf_kernel(X, gamma=0.3)
    expected = oracles.nystroem_coefficients(case.edges, K, basis, alpha)
    ranker = RankRLS(alpha, kernel="rbf", gamma=0.3, basis=basis, **case.options)
    ranker.fit(X, case.y, **case.fit)
    np.testing.assert_array_equal(ranker.basis_indices_, basis)
    np.testing.assert_allclose(
        ranker.dual_coef_, expected, rtol=1e-7, atol=1e-9 * abs(expected).max()
    )
    K_new = rbf_kernel(X_new, X[basis], gamma=0.3)
    np.testing.assert_allclose(ranker.predict(X_new), K_new @ expected, rtol=1e-6)
    from_gram = RankRLS(alpha, kernel="precomputed", basis=basis, **case.options)
    from_gram.fit(K, case.y, **case.fit)
    np.testing.assert_allclose(from_gram.predict(K), ranker.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    ["additive_chi2", "chi2", "cosine", "laplacian", "linear", "poly", "polynomial", "rbf"],
)
def test_every_named_kernel(kernel):
    case = Case(10, cost="unit")
    X, X_new = (np.abs(part) for part in split(case, 5))
    extra = {"gamma": 0.4} if kernel not in ("additive_chi2", "cosine", "linear") else {}
    if kernel.startswith("poly"):
        extra |= {"degree": 2, "coef0": 0.5}
    K = pairwise_kernels(X, metric=kernel, **extra)
    K_new = pairwise_kernels(X_new, X, metric=kernel, **extra)
    expected = K_new @ oracles.dual_coefficients(case.edges, K, 0.5)
    ranker = RankRLS(0.5, kernel=kernel, cost="unit", solver="dual", **extra)
    ranker.fit(X, case.y, **case.fit)
    assert relative_error(ranker.predict(X_new), expected) < 1e-9


def test_indefinite_kernel_is_solved_where_it_can_be_and_refused_where_not():
    rng = np.random.default_rng(11)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    options = {"kernel": "sigmoid", "gamma": 1.0, "coef0": 0.0}
    K = pairwise_kernels(X, metric="sigmoid", gamma=1.0, coef0=0.0)
    assert np.linalg.eigvalsh(K)[0] < -0.1
    edges = oracles.edges_of_scores(y, cost="magnitude", ties="keep", query_weighting="pair")
    expected = K @ oracles.dual_coefficients(edges, K, 1e5)
    assert relative_error(RankRLS(1e5, **options).fit(X, y).predict(X), expected) < 1e-9
    with pytest.raises(ValueError, match="not positive semi-definite"):
        RankRLS(0.1, **options).fit(X, y)


def test_callable_kernel_and_its_parameters():
    case = Case(12)
    X, X_new = split(case, 3)

    def kernel(a, b, power=2):
        return (1.0 + a @ b) ** power

    ranker = RankRLS(kernel=kernel, kernel_params={"power": 3}).fit(X, case.y, **case.fit)
    same = RankRLS(kernel="poly", gamma=1.0, coef0=1.0, degree=3).fit(X, case.y, **case.fit)
    np.testing.assert_allclose(ranker.predict(X_new), same.predict(X_new), rtol=1e-8)
    for one, other in zip(
        ranker.predict(X_new, return_std=True), same.predict(X_new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("solver", ["primal", "dual", "nystroem"])
def test_several_outputs_equal_separate_fits(cost, ties, solver):
    rng = np.random.default_rng(13)
    m = 25
    X, X_new = rng.standard_normal((m, 4)), rng.standard_normal((6, 4))
    Y = np.column_stack([rng.standard_normal(m), *(rng.integers(0, n, m) for n in (3, 2, 9))])
    qid, pairs = rng.integers(0, 3, m), np.array([[0, 1], [2, 3]])
    basis = np.arange(10) if solver == "nystroem" else None
    ranker = RankRLS(0.3, solver=solver, basis=basis, cost=cost, ties=ties)

    def everything(y, given):
        ranker.fit(X, y, qid=qid, **given)
        proba = ranker.preference_proba(X_new[:3], X_new[3:])
        values = *ranker.predict(X_new, return_std=True), proba, ranker.coef_.T
        return [*values, np.asarray(ranker.log_marginal_likelihood())]

    for given in ({}, {"pairs": pairs}):
        together = everything(Y, given)
        assert [part.shape for part in together] == [(6, 4), (6, 4), (3, 4), (4, 4), (4,)]
        for j in range(4):
            for found, alone in zip(together, everything(Y[:, j], given), strict=True):
                assert alone.shape == found.shape[:-1]
                np.testing.assert_allclose(found[..., j], alone, rtol=1e-9, atol=1e-12)


def test_auto_rule():
    rng = np.random.default_rng(16)
    y = rng.standard_normal(20)
    tall, wide = rng.standard_normal((20, 3)), rng.standard_normal((20, 50))
    assert RankRLS().fit(tall, y).solver_ == "primal"
    assert RankRLS().fit(wide, y).solver_ == "dual"
    assert RankRLS().fit(sparse.csr_array(tall), y).solver_ == "primal"
    assert RankRLS().fit(sparse.csr_array(wide), y).solver_ == "dual"
    assert RankRLS(kernel="rbf").fit(tall, y).solver_ == "dual"
    assert RankRLS(kernel="rbf", basis=5).fit(tall, y).solver_ == "nystroem"
    assert RankRLS(basis=5).fit(tall, y).solver_ == "nystroem"
    assert RankRLS(kernel="precomputed").fit(tall @ tall.T, y).solver_ == "dual"


def test_auto_falls_back_to_nystroem_when_memory_is_short(monkeypatch):
    from rankrls import _resources

    rng = np.random.default_rng(17)
    X, y = rng.standard_normal((1500, 3)), rng.standard_normal(1500)
    monkeypatch.setattr(_resources, "budget", lambda: 16 * 1500 * 1200)
    message = "does not fit into memory, so solver='nystroem'"
    with pytest.warns(UserWarning, match=message):
        ranker = RankRLS(kernel="rbf", random_state=0).fit(X, y)
    assert ranker.solver_ == "nystroem"
    assert len(ranker.basis_indices_) == 1000
    with pytest.raises(MemoryError, match="fewer basis vectors"):
        RankRLS(kernel="rbf", basis=1400).fit(X, y)
    with pytest.raises(MemoryError, match="solver='nystroem'"):
        RankRLS(kernel="rbf", solver="dual").fit(X, y)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(
    ("kind", "kernel"),
    [("primal", "linear")]
    + [(a, b) for a in ("dual", "nystroem", "svm") for b in ("linear", "rbf", "precomputed")],
)
def test_a_path_predicts_what_each_model_does(kind, kernel, n_outputs):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((20, 4)), rng.standard_normal((7, 4))
    y = rng.integers(0, 4, (20, n_outputs)).astype(float)
    y = y[:, 0] if n_outputs == 1 else y
    if kernel == "precomputed":
        X, Z = X @ X.T, Z @ X.T
    basis = [1, 4, 5, 11, 17] if kind == "nystroem" else None
    if kind == "svm":
        ranker = RankSVM(kernel=kernel)
    else:
        ranker = RankRLS(kernel=kernel, solver=kind, basis=basis)
    alphas = [0.5, 4.0, 30.0]
    scores = regularization_path(ranker, X, y, alphas=alphas).predict(Z)
    assert scores.shape == (3, 7) if n_outputs == 1 else scores.shape == (3, 7, 3)
    for alpha, found in zip(alphas, scores, strict=True):
        alone = ranker.set_params(alpha=alpha).fit(X, y).predict(Z)
        tolerance = 0.05 if kind == "svm" else 1e-8
        np.testing.assert_allclose(found, alone, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"solver": "primal"}])
def test_a_path_of_covariates_of_pairs(options):
    rng, alphas = np.random.default_rng(0), [10.0, 0.1, 1.0]
    X = rng.standard_normal((20, 3))
    pairs = np.array([(i, j) for i in range(20) for j in range(3) if i != j])
    C = rng.standard_normal((len(pairs), 2))
    path = regularization_path(RankRLS(**options), X, pairs=pairs, pair_features=C, alphas=alphas)
    effects = path.pair_coef
    for predicted, effect, alpha in zip(path.predict(X), effects, alphas, strict=True):
        alone = RankRLS(alpha, **options).fit(X, pairs=pairs, pair_features=C)
        np.testing.assert_allclose(effect, alone.pair_coef_, atol=1e-9)
        expected = alone.predict(X)
        np.testing.assert_allclose(
            predicted - predicted.mean(), expected - expected.mean(), atol=1e-9
        )
