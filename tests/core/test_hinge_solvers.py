"""RankSVM's function spaces and solvers: digits, linear systems, phases and the certified gap."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from rankrls import PreferenceGraph, RankSVM
from rankrls.core.hinge.losses import hinge_losses
from rankrls.core.hinge.minimize import KernelSpace, minimize_hinge


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
