"""RankSVM's function spaces and solvers: digits, linear systems, phases and the certified gap."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from rankrls import PreferenceGraph, RankSVM, regularization_path
from rankrls.core.hinge import function_spaces, minimize, problem
from rankrls.core.hinge.function_spaces import (
    FeatureSpace,
    GramOperator,
    KernelSpace,
    factored,
    with_row_coefficients,
)
from rankrls.core.hinge.losses import HingeLoss, PairHinge, hinge_losses
from rankrls.core.hinge.minimize import HingeMinimizer, minimize_hinge
from rankrls.core.linalg.lbfgs import LBFGSMemory, Trial, line_search
from rankrls.core.spaces.products import Products


def singular_kernel(m=40):
    """Every row twice."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m // 2, 3))
    return rbf_kernel(np.vstack([X, X])), rng.standard_normal(m)


def loss_of(y):
    (loss,) = hinge_losses(PreferenceGraph.from_scores(y), "pair")
    return loss


def test_the_two_parts_of_a_kernel_vector():
    K, _ = singular_kernel()
    space = KernelSpace(K)
    a = np.random.default_rng(1).standard_normal(40)
    w = space.from_coefficients(a)
    np.testing.assert_allclose(space.coefficients(w).sum(), 0.0, atol=1e-12)
    np.testing.assert_allclose(space.forward(w), K @ space.row_coefficients(w))
    assert space.consistent(w)
    assert space.consistent(space.zero())
    assert space.consistent(w * (1 + 1e-12))
    for row in (0, 17):
        drifted = w.copy()
        drifted[40 + row] += 1e-6
        assert not space.consistent(drifted)
    # In the null space a costs nothing; only rounding errors of the product grow with it.
    far = space.from_coefficients(a + 1e6 * np.repeat([1.0, -1.0], 20))
    assert space.consistent(far)


def test_a_direction_that_has_lost_its_digits_is_made_anew(monkeypatch):
    """As if cancellation in L-BFGS had spoilt K a of every direction."""
    K, y = singular_kernel()
    exact = minimize_hinge(loss_of(y), KernelSpace(K), 1e-2, tol=1e-6, max_iter=1000)
    monkeypatch.setattr(minimize, "CANCELLATION", 0.0)
    direction = LBFGSMemory.direction

    def spoilt(self, g):
        d = direction(self, g)
        d[40:] += 1e-3 * np.abs(d[40:]).max() * np.sin(np.arange(40))
        return d

    monkeypatch.setattr(LBFGSMemory, "direction", spoilt)
    found = minimize_hinge(loss_of(y), KernelSpace(K), 1e-2, tol=1e-6, max_iter=1000)
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.objective, exact.objective, rtol=2e-6)
    monkeypatch.setattr(KernelSpace, "consistent", lambda self, w: True)
    loss, space = loss_of(y), KernelSpace(K)
    wrong = HingeMinimizer(loss, space, 1e-2, False, 1e-6, 30)
    wrong.run_lbfgs(space.zero(), limit=30)
    drift = wrong.best.f - K @ space.coefficients(wrong.best.w)
    assert np.ptp(drift) > 1e-6  # nothing would have noticed it,
    before = wrong.best.objective
    wrong.recompute()  # but the final evaluation does
    a = space.coefficients(wrong.best.w)
    value = loss.hinge(K @ a).loss + 1e-2 * a @ K @ a
    np.testing.assert_allclose(wrong.best.objective, value, rtol=1e-12)
    assert wrong.best.objective != before


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_kernel_matrix_by_its_factor(offset):
    K, y = singular_kernel()
    plain = KernelSpace.of(K + offset, far=100.0)
    assert plain.centred == (offset > 0)
    features = factored(plain)
    assert features.dimension <= 20
    exact = minimize_hinge(loss_of(y), plain, 1e-2, tol=1e-6, max_iter=1000)
    found = minimize_hinge(loss_of(y), features, 1e-2, tol=1e-6, max_iter=1000)
    assert found.weights is None
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.objective, exact.objective, rtol=2e-6)
    a = found.row_coefficients
    value = loss_of(y).hinge(K @ a).loss + 1e-2 * a @ K @ a
    np.testing.assert_allclose(found.objective, value, rtol=1e-6)
    if offset:
        np.testing.assert_allclose(a.sum(), 0.0, atol=1e-9 * np.abs(a).sum())


@pytest.mark.parametrize("K", [np.zeros((5, 5)), np.diag([2.0, 1.0, -1.0]), 2 - np.eye(2)])
def test_a_kernel_matrix_without_a_factor(K):
    assert factored(KernelSpace(K)) is None


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_coefficients_of_rows_from_weights(form):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4)) * [1.0, 1e4, 1e-4, 1.0]
    X[:, 3] = X[:, 0]  # dependent columns
    weights = X.T @ (delta := rng.standard_normal(30) * [*[1.0] * 15, *[-1.0] * 15])
    weights -= X.mean(axis=0) * delta.sum()
    products = Products(X if form == "dense" else getattr(sparse, f"{form}_array")(X))
    a = with_row_coefficients(products).row_coefficients(weights)
    np.testing.assert_allclose(a.sum(), 0.0, atol=1e-10)
    np.testing.assert_allclose(X.T @ a, weights, rtol=1e-9)
    gram = GramOperator(products)
    np.testing.assert_allclose(gram.diagonal(), np.square(X).sum(axis=1))
    np.testing.assert_allclose(gram @ a, X @ weights, rtol=1e-7, atol=1e-9)


def test_another_space_is_searched_where_the_gap_stays(monkeypatch):
    """And from there on along the path; the iterations count together."""
    K, y = singular_kernel()
    searched = []

    def spy(loss, space, **options):
        solution = minimize_hinge(loss, space, **options)
        searched.append((type(space), options.get("thorough", True)))
        failed = type(space) is KernelSpace and options["alpha"] < 1
        return replace(solution, gap=0.5) if failed else solution

    monkeypatch.setattr(problem, "minimize_hinge", spy)
    alphas = [1e-2, 10.0, 0.1]
    path = regularization_path(RankSVM(kernel="precomputed"), K, y, alphas=alphas)
    first, second = (KernelSpace, False), (FeatureSpace, True)
    assert searched == [first, first, second, second]
    monkeypatch.undo()
    loss = loss_of(y)
    for alpha, a in zip(alphas, path.dual_coef, strict=True):
        value = loss.hinge(K @ a).loss + alpha * a @ K @ a
        exact = RankSVM(alpha, kernel="precomputed", tol=1e-7).fit(K, y).objective_
        np.testing.assert_allclose(value, exact, rtol=1.1e-4)


def test_no_more_than_max_iter():
    K, y = singular_kernel()
    for most in (1, 7, 40):
        with pytest.warns(ConvergenceWarning, match=f"after {most} iterations"):
            ranker = RankSVM(1e-9, kernel="precomputed", max_iter=most, tol=1e-9).fit(K, y)
        assert ranker.n_iter_ == most


def test_rounding_errors_count_in_the_gap():
    """Larger ones than K has: the gap must be closed further, to leave them their part."""
    K, y = singular_kernel()
    plain = minimize_hinge(loss_of(y), KernelSpace(K), 1.0, tol=1e-3, max_iter=1000)
    assert 0 < plain.rounding < 1e-9
    space = KernelSpace(K)
    space.rounding *= 4e-4 / plain.rounding
    found = minimize_hinge(loss_of(y), space, 1.0, tol=1e-3, max_iter=1000)
    assert 1e-4 < found.rounding < 5e-4
    assert found.rounding <= found.gap <= 1e-3
    space.rounding *= 10
    hopeless = minimize_hinge(loss_of(y), space, 1.0, tol=1e-3, max_iter=1000)
    assert hopeless.gap > 1e-3
    assert hopeless.n_iter <= found.n_iter


def test_indefinite_or_rounded():
    """A negative ‖f‖² within the rounding errors of K is no complaint about the kernel."""
    loss, a = loss_of(np.arange(4.0)), np.array([0.0, 0.0, 1.0, -1.0])
    for entry in (-1e-17, -1e-3):
        K = np.diag([1.0, 1.0, entry, entry])
        minimizer = HingeMinimizer(loss, KernelSpace(K), 1e-20, False, 1e-3, 10)
        function = minimizer.space.from_coefficients(a)
        if entry > -1e-16:
            minimizer._check_definite((2 * entry,), (function,), 1.0)
            continue
        with pytest.raises(ValueError, match="not positive semi-definite"):
            minimizer._check_definite((2 * entry,), (function,), 1.0)


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_newton_where_lbfgs_is_slow_on_the_squared_hinge(monkeypatch):
    steps = []
    method = HingeMinimizer.run_newton_squared

    def spy(self, limit):
        before = self.n_iter
        method(self, limit)
        steps.append(self.n_iter - before)

    monkeypatch.setattr(HingeMinimizer, "run_newton_squared", spy)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4)) * [1.0, 1.0, 1.0, 1e12]
    y = X[:, 0] + 0.3 * rng.standard_normal(60)
    edges = oracles.edges_of_scores(y, cost="unit", ties="drop", query_weighting="pair")
    ranker = RankSVM(1.0, loss="squared_hinge").fit(X, y)
    lower, _ = oracles.hinge_minimum(edges, X, 1.0, shape="squared")
    np.testing.assert_allclose(ranker.objective_, lower, rtol=1e-4)
    assert steps[0] > 0
    steps.clear()
    RankSVM(1.0, loss="squared_hinge").fit(X[:, :3], y)
    assert steps == [0]
    monkeypatch.setattr(minimize, "MAX_NEWTON_PAIRS", 0)  # then as far as L-BFGS comes
    with pytest.warns(ConvergenceWarning):
        RankSVM(1.0, loss="squared_hinge").fit(X, y)


def test_memory_of_a_semidefinite_inner_product():
    """Changes of the gradient in the null space say nothing about the curvature."""
    memory = LBFGSMemory(lambda u, v: float(u[0] * v[0]))
    g = np.array([2.0, 1.0])
    for s, y in [((1.0, 0.0), (0.0, 3.0)), ((0.0, 1.0), (1.0, 0.0)), ((1.0, 0.0), (-1.0, 0.0))]:
        memory.update(np.array(s), np.array(y))
    assert len(memory) == 0
    np.testing.assert_array_equal(memory.direction(g), -g)
    memory.update(np.array([1.0, 5.0]), np.array([4.0, 7.0]))
    assert memory.condition == 1
    memory.update(np.array([1.0, 5.0]), np.array([400.0, 7.0]))
    np.testing.assert_allclose(memory.condition, 100)
    assert np.isfinite(memory.direction(g)).all()
    memory.clear()
    assert memory.condition == np.inf


@pytest.mark.parametrize(("first", "longest"), [(0.0, 1.0), (1.0, 0.0), (np.inf, 0.0)])
def test_line_search_without_a_step(first, longest):
    start = Trial(1.0, -1.0, "start")
    assert line_search(None, start, first, longest) == (0.0, start)
    flat = Trial(1.0, 0.0, "start")
    assert line_search(None, flat, 1.0, 1.0) == (0.0, flat)


def test_line_search_on_values_that_underflow():
    """Slopes of the size of the smallest numbers: halving them gives zero."""
    tiny = 5e-324

    def probe(t):
        return Trial(1.0 if t < 0.3 else 2.0, -tiny if t < 0.3 else tiny, t)

    t, trial = line_search(probe, Trial(1.0, -4 * tiny, 0.0), 1.0, 10.0)
    assert 0 <= t <= 0.3
    assert trial.value <= 1


def test_features_that_are_all_equal_to_rounding():
    """The direction of steepest descent has no length."""
    X = np.array([[1.0], [1.0 + 1e-16], [1.0]])
    for options in ({}, {"solver": "dual"}, {"kernel": "rbf"}):
        path = regularization_path(RankSVM(**options), X, [0, 1, 2], alphas=[1e-9, 1.0, 1e300])
        assert np.ptp(path.predict(X)) == 0


def edges_of(y, qid=None):
    return oracles.edges_of_scores(y, qid, cost="unit", ties="drop", query_weighting="pair")


def graded(m=80, n=6, seed=0):
    """Rows of four queries with three grades, and features of very different lengths."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) * np.logspace(0, 2, n)
    y = np.digitize(X[:, 0] + rng.standard_normal(m), [-0.5, 0.8])
    return X, y, np.arange(m) % 4


def some_pairs(m, n_pairs, seed=0):
    """Pairs of rows, some of them given twice, in both directions."""
    rng = np.random.default_rng(seed)
    head = rng.integers(0, m - 1, n_pairs)
    tail = (head + rng.integers(1, m // 2, n_pairs)) % m
    return PairHinge(head, tail, rng.uniform(0.5, 2.0, n_pairs), m)


def dense_laplacian(pairs, theta):
    D = np.zeros((pairs.n_pairs, pairs.n_rows))
    edges = np.arange(pairs.n_pairs)
    D[edges, pairs.head] += 1
    D[edges, pairs.tail] -= 1
    return D.T @ (theta[:, None] * D)


@pytest.mark.parametrize("kind", ["nearly identity", "duplicates", "linear"])
@pytest.mark.parametrize("alpha", [1e-2, 1.0])
def test_two_classes_all_at_the_margin(kind, alpha):
    """Many score differences are exactly 1: the optimum of liblinear on all of them."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 30)) / 4
    if kind == "duplicates":
        X[40:] = X[30:40]  # of the same class: a singular kernel matrix
    y = (np.arange(50) % 10 < 2).astype(float)
    K = X @ X.T if kind == "linear" else rbf_kernel(X, gamma=1.0)
    ranker = RankSVM(alpha, kernel="precomputed", tol=1e-7).fit(K, y)
    values, V = np.linalg.eigh(K)
    Phi = V * np.sqrt(np.maximum(values, 0.0))
    theirs = oracles.svm_objective(edges_of(y), Phi, alpha, iterations=20_000)
    np.testing.assert_allclose(ranker.objective_, theirs, rtol=1e-5)
    assert ranker.gap_ <= 1e-7
    assert theirs >= (1 - ranker.gap_) * ranker.objective_ * (1 - 1e-12)
    if kind != "linear":
        f = K @ ranker.dual_coef_
        differences = f[y > 0][:, None] - f[y < 1]
        assert (np.abs(differences - 1) < 1e-3).mean() > 0.3


def test_more_pairs_than_once_were_written_out(monkeypatch):
    """The limit grows with the kernel matrix, so that one round of all pairs is enough."""
    monkeypatch.setattr(minimize, "MAX_NEAR", 100)
    rounds = []
    solve = minimize.solve_pairs
    monkeypatch.setattr(
        minimize,
        "solve_pairs",
        lambda *args, **o: rounds.append(args[2].n_pairs) or solve(*args, **o),
    )
    rng = np.random.default_rng(2)
    X = rng.standard_normal((100, 30)) / 4
    y = (np.arange(100) % 5 == 0).astype(float)
    ranker = RankSVM(kernel="rbf", gamma=1.0).fit(X, y)
    assert rounds == [1600]
    assert ranker.gap_ <= 1e-4
    assert ranker.n_iter_ < 150  # the other two phases ended early


def test_most_pairs_of_the_interior_point_method(monkeypatch):
    assert minimize.most_near(10) == minimize.MAX_NEAR
    assert minimize.most_near(6000) == 9_000_000
    monkeypatch.setattr(minimize._resources, "budget", lambda: 8 * minimize.NEAR_ARRAYS * 500_000)
    assert minimize.most_near(6000) == 500_000


def test_path_of_weak_regularisation():
    """Each alpha from the one before, by Newton's method, is what it is alone."""
    X, y, qid = graded(m=300, n=5, seed=3)
    alphas = 2.0 ** np.arange(-12, 13, 6)
    path = regularization_path(RankSVM(tol=1e-5), X, y, qid=qid, alphas=alphas)
    edges = edges_of(y, qid)
    for alpha, coef in zip(alphas, path.coef, strict=True):
        alone = RankSVM(alpha, tol=1e-5).fit(X, y, qid=qid)
        w = np.ravel(coef)
        ours = oracles.hinge(edges, X @ w)[0] + alpha * w @ w
        np.testing.assert_allclose(ours, alone.objective_, rtol=2.1e-5)


@pytest.mark.parametrize("n_pairs", [0, 5, 400])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_systems_of_features(n_pairs, form):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.6)
    pairs = some_pairs(40, n_pairs)
    theta, b = rng.uniform(0, 3, n_pairs), rng.standard_normal(7)
    space = FeatureSpace(Products(sparse.csr_array(X) if form == "sparse" else X))
    matrix = 2 * 0.3 * np.eye(7) + X.T @ dense_laplacian(pairs, theta) @ X
    for refine in (True, False):
        x = space.newton(0.3, pairs, theta)(b, refine)
        np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-9)


@pytest.mark.parametrize("n_pairs", [0, 5, 400])
@pytest.mark.parametrize("kind", ["regular", "singular", "indefinite"])
def test_systems_of_kernels(n_pairs, kind):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 4))
    if kind == "singular":
        X[20:] = X[:20]
    K = -rbf_kernel(X) if kind == "indefinite" else rbf_kernel(X)
    pairs = some_pairs(40, n_pairs)
    theta, b = rng.uniform(0, 3, n_pairs), rng.standard_normal(40)
    space = KernelSpace(K)
    matrix = 2 * 0.3 * np.eye(40) + dense_laplacian(pairs, theta) @ K
    a = space.newton(0.3, pairs, theta)(b)
    np.testing.assert_allclose(a, np.linalg.solve(matrix, b), rtol=1e-7, atol=1e-7)
    assert space.trusted
    assert (space.inverse is None) == (kind == "indefinite")


def test_an_inverse_that_cannot_be_trusted(monkeypatch):
    """Equal rows far apart in L, weak regularisation: the ridge shows, and LU takes over."""
    K = np.ones((2, 2))
    pairs = PairHinge(np.array([0]), np.array([1]), np.ones(1), 2)
    theta, b = np.array([1e6]), np.array([1.0, -1.0])
    space = KernelSpace(K)
    alpha = 1e-9
    wrong = space.newton(alpha, pairs, theta)(b)
    exact = b / (2 * alpha)  # K b = 0
    assert np.abs(wrong - exact).max() > 0.1 * np.abs(exact).max()
    assert not space.trusted
    np.testing.assert_allclose(space.newton(alpha, pairs, theta)(b), exact)
    monkeypatch.setattr(function_spaces, "MAX_DIMENSION", 1)  # too large for LU
    np.testing.assert_allclose(space.newton(alpha, pairs, theta)(b), wrong)


def test_systems_that_are_not_solved():
    pairs = some_pairs(10, 5)
    theta = np.full(5, np.inf)
    assert KernelSpace(np.eye(10))._by_inverse(1.0, pairs, theta) is None
    assert function_spaces._solver_of(np.full((3, 3), np.nan)) is None
    # Symmetric but not positive definite
    solve = function_spaces._solver_of(np.diag([1.0, -2.0]))
    np.testing.assert_allclose(solve(np.array([3.0, 4.0])), [3.0, -2.0])


def test_a_large_singular_kernel_is_left_to_descent(monkeypatch):
    """Neither an inverse nor LU: L-BFGS goes on, and the gap says how far it came."""
    monkeypatch.setattr(function_spaces, "MAX_DIMENSION", 10)
    monkeypatch.setattr(KernelSpace, "inverse", None)
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    (loss,) = hinge_losses(PreferenceGraph.from_scores(y), "pair")
    found = minimize_hinge(loss, KernelSpace(rbf_kernel(X)), 1.0, tol=1e-3, max_iter=500)
    exact = RankSVM(1.0, kernel="precomputed", tol=1e-7, solver="dual")
    monkeypatch.undo()
    exact.fit(rbf_kernel(X), y)
    assert (1 - found.gap) * found.objective <= exact.objective_ * (1 + 1e-7)
    assert found.objective >= exact.objective_ * (1 - 1e-7)


def test_rate_of_convergence():
    search = HingeMinimizer(HingeLoss([some_pairs(4, 3)]), None, 1.0, False, 1e-3, 100)
    search.best = type("Best", (), {"objective": 1.0})
    steady = [0.5**k for k in range(6)]
    assert search.in_reach(steady, limit=5, over=10)  # too early to tell
    assert search.in_reach(steady, limit=10, over=5)  # 1e-3 is 2^-10, nearly
    assert not search.in_reach(steady, limit=9, over=5)
    assert not search.in_reach([1.0] * 7, limit=100, over=5)
    assert search.in_reach([1.0] * 6 + [1e-4], limit=6, over=5)


def test_line_search_from_a_step_far_too_long():
    """A slope that rises at once and then is flat: the secant alone would creep."""

    def probe(t):
        slope = -1.0 + 1e6 * min(t, 2e-6) + 1e-3 * max(t - 2e-6, 0.0)
        low = min(t, 2e-6)
        value = -low + 0.5e6 * low**2
        value += max(t - 2e-6, 0.0) * 1.0
        return Trial(value, slope, t)

    t, trial = line_search(probe, probe(0.0), 1.0, 10.0)
    assert 0.7e-6 <= t <= 1.3e-6
    assert trial.value < 0
