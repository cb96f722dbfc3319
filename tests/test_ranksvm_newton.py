"""RankSVM where it was slow: weak regularisation in few dimensions, and pairs all at the margin."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from rankrls import PreferenceGraph, RankSVM, regularization_path
from rankrls.core.hinge import function_spaces, losses, newton
from rankrls.core.hinge import minimize as solver
from rankrls.core.hinge.function_spaces import FeatureSpace, KernelSpace
from rankrls.core.hinge.losses import PairHinge, hinge_losses
from rankrls.core.hinge.minimize import minimize_hinge
from rankrls.core.linalg.lbfgs import Trial, line_search
from rankrls.core.spaces.products import Products


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


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("alpha", [2.0**-15, 2.0**-6, 1.0])
def test_newton_alone_finds_the_optimum(alpha, counted, monkeypatch):
    """No interior-point method: the gap is closed on the smoothed hinge, at every alpha."""
    if counted:
        monkeypatch.setattr(losses, "PAIRS_PER_ROW", 0)
        monkeypatch.setattr(losses, "MAX_PAIRS", 0)
    X, y, qid = graded(m=240, n=3)
    tight = RankSVM(alpha, tol=1e-7).fit(X, y, qid=qid)
    theirs = oracles.svm_objective(edges_of(y, qid), X, alpha, iterations=300)
    assert tight.objective_ * (1 - tight.gap_) <= theirs
    monkeypatch.setattr(solver, "FEW_PAIRS", 0)
    monkeypatch.setattr(solver.HingeMinimizer, "run_interior_point", lambda self: None)
    monkeypatch.setattr(solver.HingeMinimizer, "run_lbfgs_smoothed", lambda self, **options: None)
    ranker = RankSVM(alpha, tol=1e-3).fit(X, y, qid=qid)
    assert ranker.gap_ <= 1e-3
    assert (1 - ranker.gap_) * ranker.objective_ <= tight.objective_
    assert tight.objective_ * (1 - 1e-7) <= ranker.objective_ <= tight.objective_ * (1 + 1.1e-3)


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
    monkeypatch.setattr(solver, "MAX_NEAR", 100)
    monkeypatch.setattr(solver, "NEWTON_DIMENSION", 0)
    rounds = []
    solve = solver.solve_pairs
    monkeypatch.setattr(
        solver,
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
    assert solver.most_near(10) == solver.MAX_NEAR
    assert solver.most_near(6000) == 9_000_000
    monkeypatch.setattr(solver._resources, "budget", lambda: 8 * solver.NEAR_ARRAYS * 500_000)
    assert solver.most_near(6000) == 500_000


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


def test_too_many_pairs_in_the_matrix(monkeypatch):
    """Then L-BFGS takes the steps, and nothing is lost."""
    X, y, qid = graded()
    monkeypatch.setattr(solver, "MAX_NEWTON_PAIRS", -1)
    taken = []
    method = solver.HingeMinimizer.run_newton_smoothed
    monkeypatch.setattr(
        solver.HingeMinimizer,
        "run_newton_smoothed",
        lambda self, **o: taken.append(method(self, **o)),
    )
    ranker = RankSVM(1e-2, tol=1e-4).fit(X, y, qid=qid)
    assert taken == [False]
    assert ranker.gap_ <= 1e-4


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
@pytest.mark.parametrize("kind", ["regular", "singular", "float32", "indefinite"])
def test_systems_of_kernels(n_pairs, kind):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 4))
    if kind == "singular":
        X[20:] = X[:20]
    K = -rbf_kernel(X) if kind == "indefinite" else rbf_kernel(X)
    K = K.astype(np.float32 if kind == "float32" else np.float64)
    pairs = some_pairs(40, n_pairs)
    theta, b = rng.uniform(0, 3, n_pairs), rng.standard_normal(40)
    space = KernelSpace(K)
    matrix = 2 * 0.3 * np.eye(40) + dense_laplacian(pairs, theta) @ K.astype(np.float64)
    a = space.newton(0.3, pairs, theta)(b)
    tolerance = 1e-4 if kind == "float32" else 1e-7
    np.testing.assert_allclose(a, np.linalg.solve(matrix, b), rtol=tolerance, atol=tolerance)
    assert space.inverse.trusted
    assert (space.inverse.lower is None) == (kind == "indefinite")


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
    assert not space.inverse.trusted
    np.testing.assert_allclose(space.newton(alpha, pairs, theta)(b), exact)
    monkeypatch.setattr(function_spaces, "MAX_DIMENSION", 1)  # too large for LU
    np.testing.assert_allclose(space.newton(alpha, pairs, theta)(b), wrong)


def test_systems_that_are_not_solved():
    pairs = some_pairs(10, 5)
    theta = np.full(5, np.inf)
    assert newton.Inverse(np.eye(10)).solver(1.0, pairs, theta) is None
    assert newton.solver_of(np.full((3, 3), np.nan)) is None
    # Symmetric but not positive definite
    solve = newton.solver_of(np.diag([1.0, -2.0]))
    np.testing.assert_allclose(solve(np.array([3.0, 4.0])), [3.0, -2.0])


def test_a_large_singular_kernel_is_left_to_descent(monkeypatch):
    """Neither an inverse nor LU: L-BFGS goes on, and the gap says how far it came."""
    monkeypatch.setattr(function_spaces, "MAX_DIMENSION", 10)
    monkeypatch.setattr(newton.Inverse, "lower", None)
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
    search = solver.HingeMinimizer(some_pairs(4, 3), None, 1.0, False, 1e-3, 100)
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
