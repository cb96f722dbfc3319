"""RankSVM's function spaces and solvers: digits, linear systems, phases and the certified gap."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from rankrls import PreferenceGraph, RankSVM
from rankrls.core.hinge import function_spaces, minimize
from rankrls.core.hinge.function_spaces import FeatureSpace, KernelSpace
from rankrls.core.hinge.losses import PairHinge, hinge_losses
from rankrls.core.hinge.minimize import Trial, line_search, minimize_hinge
from rankrls.core.spaces.products import Products


def singular_kernel(m=40):
    """Every row twice."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m // 2, 3))
    return rbf_kernel(np.vstack([X, X])), rng.standard_normal(m)


def loss_of(y):
    (loss,) = hinge_losses(PreferenceGraph.from_scores(y), "pair")
    return loss


def edges_of(y, qid=None):
    return oracles.edges_of_scores(y, qid, cost="unit", ties="drop", query_weighting="pair")


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("kind", ["singular", "regular"])
def test_functions_of_a_kernel_matrix(kind, offset):
    K, y = singular_kernel()
    K += 0.1 * np.eye(40) if kind == "regular" else 0.0
    space = KernelSpace(K + offset)
    assert space.dimension == (40 if kind == "regular" else 20)
    a = np.random.default_rng(1).standard_normal(40)
    a -= a.mean()
    w = space.adjoint(a)
    f = space.forward(w)
    np.testing.assert_allclose(f - f.mean(), K @ a - (K @ a).mean(), atol=1e-9 + 1e-11 * offset)
    rows = space.to_rows(w)
    np.testing.assert_allclose(rows.sum(), 0, atol=1e-9)
    np.testing.assert_allclose(np.ptp(K @ (rows - a)), 0, atol=1e-7)
    found = minimize_hinge(loss_of(y), space, 1e-2, tol=1e-6, max_iter=1000)
    rows = found.row_coefficients
    value = loss_of(y).hinge(K @ rows).loss + 1e-2 * rows @ K @ rows
    np.testing.assert_allclose(found.objective, value, rtol=1e-6)
    assert found.gap <= 1e-6


@pytest.mark.parametrize("K", [np.diag([2.0, 1.0, -1.0]), 2 - np.eye(2), 1 - np.eye(2), -np.eye(3)])
def test_indefinite_kernels(K):
    with pytest.raises(ValueError, match="not positive semi-definite"):
        KernelSpace(K)


def test_rounding_errors_are_not_indefinite():
    rng = np.random.default_rng(0)
    K = np.ones((30, 30)) + 1e-16 * rng.standard_normal((30, 30))
    assert KernelSpace(K + K.T).dimension <= 1
    # As computed in single precision.
    KernelSpace(rbf_kernel(rng.standard_normal((60, 2))).astype(np.float32).astype(float))
    assert KernelSpace(np.zeros((4, 4))).dimension == 0


@pytest.mark.parametrize("n_pairs", [0, 5, 400])
@pytest.mark.parametrize("kind", ["dense", "sparse", "regular", "singular"])
def test_systems_of_newton(n_pairs, kind):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.6)
    head = rng.integers(0, 39, n_pairs)  # some pairs are given twice, in both directions
    tail = (head + rng.integers(1, 20, n_pairs)) % 40
    pairs = PairHinge(head, tail, rng.uniform(0.5, 2.0, n_pairs), 40)
    theta = rng.uniform(0, 3, n_pairs)
    if kind in ("dense", "sparse"):
        space = FeatureSpace(Products(sparse.csr_array(X) if kind == "sparse" else X))
    else:
        space = KernelSpace(rbf_kernel(X) if kind == "regular" else singular_kernel()[0])
        assert space.invertible == (kind == "regular")
    b = rng.standard_normal(space.dimension)
    D = np.zeros((n_pairs, 40))
    np.add.at(D, (np.arange(n_pairs), pairs.head), 1)
    np.add.at(D, (np.arange(n_pairs), pairs.tail), -1)
    Phi = np.transpose([space.forward(unit) for unit in np.eye(space.dimension)])
    matrix = 2 * 0.3 * np.eye(space.dimension) + Phi.T @ D.T @ (theta[:, None] * D) @ Phi
    for refine in (True, False):
        w = space.newton(0.3, pairs, theta)(b, refine)
        np.testing.assert_allclose(w, np.linalg.solve(matrix, b), rtol=1e-7, atol=1e-9)
    assert space.newton(1.0, pairs, np.full(n_pairs, np.inf)) is None or not n_pairs


def test_a_large_singular_kernel_is_left_to_descent(monkeypatch):
    """L-BFGS goes on, and the gap says how far it came."""
    K, y = singular_kernel()
    exact = RankSVM(1.0, kernel="precomputed", tol=1e-7).fit(K, y).objective_
    monkeypatch.setattr(function_spaces, "MAX_DIMENSION", 10)
    found = minimize_hinge(loss_of(y), KernelSpace(K), 1.0, tol=1e-3, max_iter=500)
    assert (1 - found.gap) * found.objective <= exact * (1 + 1e-7)
    assert found.objective >= exact * (1 - 1e-7)


def test_rounding_errors_count_in_the_gap():
    """Larger ones than K has: the gap must be closed further, to leave them their part."""
    K, y = singular_kernel()
    space = KernelSpace(K)
    plain = minimize_hinge(loss_of(y), space, 1.0, tol=1e-3, max_iter=1000)
    assert 0 < plain.rounding < 1e-9
    space.rounding *= 4e-4 / plain.rounding
    found = minimize_hinge(loss_of(y), space, 1.0, tol=1e-3, max_iter=1000)
    assert 1e-4 < found.rounding < 5e-4
    assert found.rounding <= found.gap <= 1e-3
    space.rounding *= 10
    assert minimize_hinge(loss_of(y), space, 1.0, tol=1e-3, max_iter=1000).gap > 1e-3


def test_newton_where_lbfgs_is_slow_on_the_squared_hinge(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4))
    y = X[:, 0] + rng.standard_normal(60)
    ranker = RankSVM(1e-4, kernel="rbf", loss="squared_hinge", max_iter=300).fit(X, y)
    Phi = np.linalg.cholesky(rbf_kernel(X) + 1e-14 * np.eye(60))
    lower, _ = oracles.hinge_minimum(edges_of(y), Phi, 1e-4, shape="squared")
    np.testing.assert_allclose(ranker.objective_, lower, rtol=1e-4)
    monkeypatch.setattr(minimize, "MAX_NEWTON_PAIRS", 0)  # then as far as L-BFGS comes
    with pytest.warns(ConvergenceWarning):
        ranker.fit(X, y)


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


@pytest.mark.parametrize(("first", "longest"), [(0.0, 1.0), (1.0, 0.0), (np.inf, 0.0)])
def test_line_search_without_a_step(first, longest):
    start, flat = Trial(1.0, -1.0, "start"), Trial(1.0, 0.0, "start")
    assert line_search(None, start, first, longest) == (0.0, start)
    assert line_search(None, flat, 1.0, 1.0) == (0.0, flat)


def test_line_search_on_values_that_underflow():
    """Slopes of the size of the smallest numbers: halving them gives zero."""
    tiny = 5e-324

    def probe(t):
        return Trial(1.0 if t < 0.3 else 2.0, -tiny if t < 0.3 else tiny, t)

    t, trial = line_search(probe, Trial(1.0, -4 * tiny, 0.0), 1.0, 10.0)
    assert 0 <= t <= 0.3
    assert trial.value <= 1


def test_line_search_from_a_step_far_too_long():
    """A slope that rises at once and then is flat: the secant alone would creep."""

    def probe(t):
        low, high = min(t, 2e-6), max(t - 2e-6, 0.0)
        return Trial(-low + 0.5e6 * low**2 + high, -1.0 + 1e6 * low + 1e-3 * high, t)

    t, trial = line_search(probe, probe(0.0), 1.0, 10.0)
    assert 0.7e-6 <= t <= 1.3e-6
    assert trial.value < 0
