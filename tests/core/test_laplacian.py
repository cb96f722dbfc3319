"""L, r, factors and moments of every kind of preference against double loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

import oracles
from cases import COSTS, TIES, WEIGHTINGS, Case
from rankrls import PreferenceGraph
from rankrls.core.preferences.costs import Loss

GRID = [
    {"cost": cost, "ties": ties, "query_weighting": weighting, "kind": kind, "qid": qid} | extra
    for cost in COSTS
    for ties in TIES
    for weighting in WEIGHTINGS
    for kind in ("continuous", "graded", "mixed")
    for qid in ("one", "many")
    for extra in (
        {},
        {"weight": "zeros"},
        {"n_pairs": 4},
        {"n_pairs": 60, "weight": "positive"},
    )
]
PAIRS = [{"cost": cost, "scored": False, "n_pairs": n} for cost in COSTS for n in (5, 80)]


def close(actual, expected, tolerance=1e-12):
    scale = max(np.abs(expected).max(), 1e-300)
    assert np.abs(actual - expected).max() <= tolerance * scale


@pytest.mark.parametrize("options", GRID + PAIRS, ids=lambda o: "-".join(map(str, o.values())))
def test_system_equals_double_loop(options):
    case = Case(0, **options)
    m = case.m
    L, r = oracles.laplacian(case.edges, m)
    objective = case.system()
    system = objective.laplacian
    assert isinstance(system.L, LinearOperator)
    close(system.L @ np.eye(m), L)
    close(system.L @ np.arange(m), L @ np.arange(m))
    close(system.L.rmatvec(np.arange(m)), L @ np.arange(m))
    close(system.degree(), np.diagonal(L))
    close(system.r[:, 0], r)
    close(case.graph.target(**case.options), r)
    assert objective.n_pairs == len(case.edges)
    close(system.energy, sum(w * z**2 for _, _, w, z in case.edges))
    close(objective.log_weight + 1e3, sum(np.log(w) for _, _, w, _ in case.edges) + 1e3)
    touched = np.zeros(m, bool)
    touched[[e[0] for e in case.edges] + [e[1] for e in case.edges]] = True
    assert ((system.row_weight() > 0) == touched).all()


@pytest.mark.parametrize("options", GRID + PAIRS, ids=lambda o: "-".join(map(str, o.values())))
def test_factor_is_exact(options):
    case = Case(1, **options)
    m = case.m
    L, r = oracles.laplacian(case.edges, m)
    F = case.system().laplacian.factor()
    dense = F @ np.eye(F.shape[1])
    close(dense @ dense.T, L)
    close(F.T @ np.eye(m), dense.T)
    close(dense @ F.t[:, 0], r)
    assert np.abs(np.ones(m) @ dense).max() <= 1e-12 * np.abs(dense).max()
    component = connected_components(L != 0)[1]
    outside = component[:, None] != component[F.owner][None]
    assert (dense[outside] == 0).all()
    K = case.rng.standard_normal((m, 2 * m))
    K = K @ K.T
    close(F.sandwich(K.copy()), dense.T @ K @ dense)


@pytest.mark.parametrize("options", GRID + PAIRS, ids=lambda o: "-".join(map(str, o.values())))
def test_moments_of_dense_sparse_and_single_precision(options):
    case = Case(2, **options)
    L, r = oracles.laplacian(case.edges, case.m)
    system = case.system().laplacian
    X = case.rng.standard_normal((case.m, 6))
    X[np.abs(X) < 0.4] = 0.0
    weight = system.row_weight()
    expected = (X.T @ L @ X, X.T @ r[:, None], weight @ X / weight.sum())
    layouts = (X, np.asfortranarray(X), sparse.csr_array(X), sparse.csr_matrix(X))
    for layout in layouts:
        for actual, wanted in zip(system.moments(layout)[:3], expected, strict=True):
            close(actual, wanted)
    for actual, wanted in zip(system.moments(X.astype(np.float32))[:3], expected, strict=True):
        assert actual.dtype == np.float64
        close(actual, wanted, 1e-4)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_scores_and_queries(data):
    m = data.draw(st.integers(2, 12))
    score = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 7.0])
    s = np.array(data.draw(st.lists(score, min_size=m, max_size=m)))
    qid = data.draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))
    weight = np.array(data.draw(st.lists(st.sampled_from([0, 1, 2.5]), min_size=m, max_size=m)))
    options = {
        "cost": data.draw(st.sampled_from(COSTS)),
        "ties": data.draw(st.sampled_from(TIES)),
        "query_weighting": data.draw(st.sampled_from(WEIGHTINGS)),
    }
    edges = oracles.edges_of_scores(s, qid, weight, **options)
    L, r = oracles.laplacian(edges, m)
    graph = PreferenceGraph.from_scores(s, qid=qid, sample_weight=weight)
    (objective,) = graph.objectives(Loss(**options))
    close(objective.laplacian.L @ np.eye(m), L, 1e-12)
    np.testing.assert_allclose(objective.laplacian.r[:, 0], r, atol=1e-12 * max(1, np.abs(r).max()))
    assert objective.n_pairs == len(edges)
    F = objective.laplacian.factor()
    dense = F @ np.eye(F.shape[1])
    np.testing.assert_allclose(dense @ dense.T, L, atol=1e-12 * max(1, np.abs(L).max()))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("query_weighting", ["pair", "size"])
def test_integer_weight_is_a_repeated_row(cost, ties, query_weighting):
    rng = np.random.default_rng(4)
    m = 15
    s, qid = rng.integers(0, 4, m), rng.integers(0, 3, m)
    counts = rng.integers(0, 4, m)
    rows = np.repeat(np.arange(m), counts)
    options = {"cost": cost, "ties": ties, "query_weighting": query_weighting}
    X = rng.standard_normal((m, 3))
    weighted = PreferenceGraph.from_scores(s, qid=qid, sample_weight=counts)
    repeated = PreferenceGraph.from_scores(s[rows], qid=qid[rows])
    one = weighted.objectives(Loss(**options))[0].laplacian.moments(X)
    other = repeated.objectives(Loss(**options))[0].laplacian.moments(X[rows])
    for a, b in zip(one, other, strict=True):
        close(a, b)


def test_outputs_share_a_system_where_their_graphs_agree():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, (20, 4)).astype(float)
    y[:, 3] = 10 * y[:, 1]
    graph = PreferenceGraph.from_scores(y)
    assert len(graph.objectives()) == 1
    objectives = graph.objectives(Loss(ties="drop"))
    assert sorted(map(tuple, (o.outputs.tolist() for o in objectives))) == [(0,), (1, 3), (2,)]
    for j in range(4):
        for cost in COSTS:
            edges = oracles.edges_of_scores(y[:, j], cost=cost, ties="drop", query_weighting="pair")
            L, r = oracles.laplacian(edges, 20)
            options = {"cost": cost, "ties": "drop", "output": j}
            close(graph.laplacian(**options) @ np.eye(20), L)
            close(graph.target(**options), r)


def test_large_single_query_needs_no_quadratic_object():
    """200,000 rows, one query, every linear-time cost: counts are exact, memory is O(m)."""
    import tracemalloc

    m = 200_000
    rng = np.random.default_rng(6)
    for s in (rng.standard_normal(m), rng.integers(0, 5, m)):
        graph = PreferenceGraph.from_scores(s)
        for cost, ties in (("magnitude", "keep"), ("magnitude", "drop"), ("unit", "drop")):
            tracemalloc.start()
            (objective,) = graph.objectives(Loss(cost=cost, ties=ties))
            objective.laplacian.L @ s
            objective.laplacian.moments(s[:, None].astype(float))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 50 * 8 * m
            counts = np.unique(s, return_counts=True)[1] if ties == "drop" else np.ones(m, int)
            assert objective.n_pairs == (m**2 - int((counts.astype(object) ** 2).sum())) // 2
