"""The functions that RankSVM searches, and what keeps their digits and their certificate."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from rankrls import PreferenceGraph, RankSVM, regularization_path
from rankrls.core.hinge import minimize, problem
from rankrls.core.hinge.function_spaces import (
    FactoredKernelSpace,
    FeatureSpace,
    GramOperator,
    KernelSpace,
    RowFeatureSpace,
)
from rankrls.core.hinge.losses import hinge_losses
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
    plain = KernelSpace(K) if offset == 0 else problem._kernel_space(K + offset)
    assert plain.centred == (offset > 0)
    factored = FactoredKernelSpace.of(plain)
    assert factored.dimension <= 20
    exact = minimize_hinge(loss_of(y), plain, 1e-2, tol=1e-6, max_iter=1000)
    found = minimize_hinge(loss_of(y), factored, 1e-2, tol=1e-6, max_iter=1000)
    assert found.weights is None
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.objective, exact.objective, rtol=2e-6)
    a = found.row_coefficients
    value = loss_of(y).hinge(K @ a).loss + 1e-2 * a @ K @ a
    np.testing.assert_allclose(found.objective, value, rtol=1e-6)
    if offset:
        np.testing.assert_allclose(a.sum(), 0.0, atol=1e-9 * np.abs(a).sum())


def test_a_kernel_matrix_without_a_factor():
    assert FactoredKernelSpace.of(KernelSpace(np.zeros((5, 5)))) is None
    assert FactoredKernelSpace.of(KernelSpace(np.diag([2.0, 1.0, -1.0]))) is None
    assert FactoredKernelSpace.of(KernelSpace(np.array([[1.0, 2.0], [2.0, 1.0]]))) is None


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_coefficients_of_rows_from_weights(form):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4)) * [1.0, 1e4, 1e-4, 1.0]
    X[:, 3] = X[:, 0]  # dependent columns
    weights = X.T @ (delta := rng.standard_normal(30) * [*[1.0] * 15, *[-1.0] * 15])
    weights -= X.mean(axis=0) * delta.sum()
    space = RowFeatureSpace(Products(X if form == "dense" else getattr(sparse, f"{form}_array")(X)))
    a = space.row_coefficients(weights)
    np.testing.assert_allclose(a.sum(), 0.0, atol=1e-10)
    np.testing.assert_allclose(X.T @ a, weights, rtol=1e-9)
    np.testing.assert_array_equal(space.weights(weights), weights)
    gram = GramOperator(space.Phi)
    np.testing.assert_allclose(gram.diagonal(), np.square(X).sum(axis=1))
    np.testing.assert_allclose(gram @ a, X @ weights, rtol=1e-7, atol=1e-9)


def test_the_accurate_space_is_searched_where_the_gap_stays(monkeypatch):
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
    assert searched == [
        (KernelSpace, False),
        (KernelSpace, False),
        (FactoredKernelSpace, True),
        (FactoredKernelSpace, True),
    ]
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
    y = np.arange(4.0)
    K = np.diag([1.0, 1.0, 1.0, -1e-17])
    loss = loss_of(y)
    minimizer = HingeMinimizer(loss, KernelSpace(K), 1e-20, False, 1e-3, 10)
    w = minimizer.space.zero()
    minimizer._check_definite((-1e-17,), (np.eye(8)[3],), 1.0)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        minimizer._check_definite((-1e-3,), (np.eye(8)[3],), 1.0)
    assert minimizer.visit(w, w[4:], loss.hinge(w[4:])).objective == 6


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


def test_feature_space_has_no_row_coefficients():
    space = FeatureSpace(Products(np.eye(3)))
    assert space.row_coefficients(np.ones(3)) is None
    assert space.consistent(np.ones(3))
    assert KernelSpace(np.eye(3)).weights(np.ones(6)) is None
