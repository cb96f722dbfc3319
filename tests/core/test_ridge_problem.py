"""One problem, decomposed once: what is scored is returned."""

from typing import ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import rankrls.core.linalg.factorizations as factorizations
from rankrls import PreferenceGraph, RankRLS, RankRLSCV
from rankrls.core.ridge.pairs import ThreadPoolExecutor
from rankrls.core.spaces import spaces
from rankrls.datasets import make_ranking
from rankrls.model_selection import leave_pair_out_score, permutation_test

X, y, qid = make_ranking(n_queries=15, random_state=0, return_X_y_qid=True)
GRID = [0.5, 5.0]

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")


# ---------------------------------------------------------------------- once


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_kernel_and_its_decomposition_are_computed_once(monkeypatch, kernel):
    calls = {"kernel": 0, "eigh": 0}
    compute, eigh = spaces.Kernel.__call__, factorizations.eigh

    def count(name, function):
        def counted(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return counted

    monkeypatch.setattr(spaces.Kernel, "__call__", count("kernel", compute))
    monkeypatch.setattr(factorizations, "eigh", count("eigh", eigh))
    RankRLSCV(GRID, kernel=kernel).fit(X, y, qid=qid)
    assert calls == {"kernel": 1, "eigh": 1}


@pytest.mark.parametrize("random_state", [None, 0, np.random.RandomState(3)])
def test_the_basis_is_drawn_once(random_state, monkeypatch):
    drawn = []
    draw = spaces.sample_without_replacement

    def counted(*args, **kwargs):
        drawn.append(draw(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(spaces, "sample_without_replacement", counted)
    for cv in ("auto", "validation"):
        drawn.clear()
        ranker = RankRLSCV(GRID, kernel="rbf", basis=20, cv=cv, random_state=random_state)
        ranker.fit(X, y, qid=qid)
        assert len(drawn) == 1
        np.testing.assert_array_equal(ranker.basis_indices_, np.sort(drawn[0]))


# ---------------------------------------------------------------------- threads


class Pool(ThreadPoolExecutor):
    """Notes down how many threads were asked for."""

    asked: ClassVar[list[int]] = []

    def __init__(self, threads):
        self.asked.append(threads)
        super().__init__(threads)


def test_threads_of_leave_pair_out_follow_n_jobs(monkeypatch):
    monkeypatch.setattr("rankrls.core.ridge.pairs.ThreadPoolExecutor", Pool)
    Y = np.random.default_rng(0).normal(size=(40, 6))
    leave_pair_out_score(RankRLS(n_jobs=1), X[:40], Y)
    with threadpool_limits(1):
        leave_pair_out_score(RankRLS(), X[:40], Y)
        permutation_test(RankRLS(), X[:40], Y[:, 0], n_permutations=20, random_state=0)
        RankRLSCV(GRID, cv="leave-pair-out").fit(X[:40], Y)
    assert Pool.asked == []
    leave_pair_out_score(RankRLS(n_jobs=3), X[:40], Y)
    assert Pool.asked == [3]


def test_a_graph_has_arrays_of_its_own():
    pairs, magnitude, weight = np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]), np.ones(2)
    graph = PreferenceGraph.from_pairs(pairs, n_rows=3, magnitude=magnitude, pair_weight=weight)
    scores, queries, sample_weight = np.array([2.0, 1, 0]), np.array([0, 0, 1]), np.ones(3)
    scored = PreferenceGraph.from_scores(scores, qid=queries, sample_weight=sample_weight)
    before = [graph.target(), scored.target()]
    for array in (pairs, magnitude, weight, scores, queries, sample_weight):
        array[:] = 7
    np.testing.assert_array_equal([graph.target(), scored.target()], before)


# ---------------------------------------------------------------------- counts and deviations


def test_deviations_take_little_memory():
    """Kernel values of many rows with the training rows are never all there."""
    import tracemalloc

    rng = np.random.default_rng(0)
    ranker = RankRLS(kernel="rbf").fit(X, y, qid=qid)
    many = rng.normal(size=(100_000, X.shape[1]))
    tracemalloc.start()
    ranker.predict(many, return_std=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 8 * len(many) * len(X)


def test_deviations_of_a_nystroem_model():
    """√(alpha δᵀ(ΦᵀLΦ + alpha I)⁻¹δ + k(x, x) − φᵀφ) with δ = φ − φ̄, by plain matrices."""
    basis = np.arange(0, len(X), 20)
    gamma = 0.2
    ranker = RankRLS(0.5, kernel="rbf", gamma=gamma, basis=basis, solver="nystroem")
    _, found = ranker.fit(X, y, qid=qid).predict(X[:7], return_std=True)
    K = lambda A, B: np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))  # noqa: E731
    Z = np.linalg.cholesky(K(X[basis], X[basis]))
    Phi = np.linalg.solve(Z, K(X[basis], X)).T
    L = PreferenceGraph.from_scores(y, qid=qid).laplacian() @ np.eye(len(y))
    delta = Phi[:7] - Phi.mean(axis=0)
    inverse = np.linalg.inv(Phi.T @ L @ Phi + 0.5 * np.eye(len(basis)))
    expected = 0.5 * np.einsum("ij,jk,ik->i", delta, inverse, delta)
    expected += 1.0 - np.einsum("ij,ij->i", Phi[:7], Phi[:7])
    np.testing.assert_allclose(found, np.sqrt(expected), rtol=1e-6)
