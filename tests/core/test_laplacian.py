"""L, r, factors and moments of every kind of preference against double loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

import oracles
from cases import COSTS, TIES, WEIGHTINGS, Case
from rankrls import PreferenceGraph
from rankrls.core.preferences.costs import Loss

NAMES = ("cost", "ties", "query_weighting", "kind", "qid")
KINDS = (COSTS, TIES, WEIGHTINGS, ("continuous", "graded", "mixed"), ("one", "many"))
EXTRA = ({}, {"weight": "zeros"}, {"n_pairs": 4}, {"n_pairs": 60, "weight": "positive"})
GRID = [
    dict(zip(NAMES, values, strict=True)) | extra
    for *values, extra in itertools.product(*KINDS, EXTRA)
]
GRID += [{"cost": cost, "scored": False, "n_pairs": n} for cost in COSTS for n in (5, 80)]


def close(actual, expected, tolerance=1e-12):
    scale = max(np.abs(expected).max(), 1e-300)
    assert np.abs(actual - expected).max() <= tolerance * scale


@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(map(str, o.values())))
def test_system_factor_and_moments(options):
    case = Case(0, **options)
    m, (L, r) = case.m, oracles.laplacian(case.edges, case.m)
    objective = case.system()
    system, some, operator = objective, np.arange(m), case.graph.laplacian(**case.options)
    assert isinstance(operator, LinearOperator)
    for actual, expected in [
        (operator @ np.eye(m), L),
        (operator @ some, L @ some),
        (operator.rmatvec(some), L @ some),
        (system.degree(), np.diagonal(L)),
        (system.r[:, 0], r),
        (case.graph.target(**case.options), r),
        (system.energy, sum(w * z**2 for _, _, w, z in case.edges)),
        (objective.log_weight + 1e3, sum(np.log(w) for _, _, w, _ in case.edges) + 1e3),
    ]:
        close(actual, expected)
    assert objective.n_pairs == len(case.edges)
    weight, touched = system.row_weight(), np.zeros(m, bool)
    touched[[e[0] for e in case.edges] + [e[1] for e in case.edges]] = True
    assert ((weight > 0) == touched).all()

    F = system.factor()
    dense = F.matmat(np.eye(F.shape[1]))
    close(dense @ dense.T, L)
    close(F.rmatmat(np.eye(m)), dense.T)
    close(dense @ F.t[:, 0], r)
    assert np.abs(np.ones(m) @ dense).max() <= 1e-12 * np.abs(dense).max()
    null = F.null().toarray()
    assert_allclose(null.T @ null, np.eye(null.shape[1]), atol=1e-12)
    assert np.abs(dense @ null).max(initial=0.0) <= 1e-12 * np.abs(dense).max()
    component = connected_components(L != 0)[1]
    assert (dense[component[:, None] != component[F.row_of][None]] == 0).all()
    K = case.rng.standard_normal((m, 2 * m))
    close(F.sandwich(K @ K.T), dense.T @ K @ K.T @ dense)

    X = case.rng.standard_normal((m, 6))
    X[np.abs(X) < 0.4] = 0.0
    expected = (X.T @ L @ X, X.T @ r[:, None], weight @ X / weight.sum())
    sparse_ones = (sparse.csr_array(X), sparse.csr_matrix(X))
    for layout in (X, np.asfortranarray(X), *sparse_ones, X.astype(np.float32)):
        for actual, wanted in zip(system.moments(layout), expected, strict=True):
            assert actual.dtype == np.float64
            close(actual, wanted, 1e-12 if layout.dtype == np.float64 else 1e-4)
        rows = F.rows_of(layout)(np.arange(F.shape[1])[::2])
        close(rows + 1, (dense.T @ X)[::2] + 1, 1e-12 if layout.dtype == np.float64 else 1e-4)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_scores_and_queries(data):
    m = data.draw(st.integers(2, 12))
    score = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 7.0])
    s = np.array(data.draw(st.lists(score, min_size=m, max_size=m)))
    qid = data.draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))
    weight = np.array(data.draw(st.lists(st.sampled_from([0, 1, 2.5]), min_size=m, max_size=m)))
    chosen = [data.draw(st.sampled_from(values)) for values in KINDS[:3]]
    options = dict(zip(NAMES[:3], chosen, strict=True))
    edges = oracles.edges_of_scores(s, qid, weight, **options)
    L, r = oracles.laplacian(edges, m)
    graph = PreferenceGraph.from_scores(s, qid=qid, sample_weight=weight)
    (objective,) = graph.objectives(Loss(**options))
    close(objective.apply(np.eye(m)), L)
    assert_allclose(objective.r[:, 0], r, atol=1e-12 * max(1, np.abs(r).max()))
    assert objective.n_pairs == len(edges)
    F = objective.factor()
    dense = F.matmat(np.eye(F.shape[1]))
    assert_allclose(dense @ dense.T, L, atol=1e-12 * max(1, np.abs(L).max()))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("query_weighting", ["pair", "size"])
def test_integer_weight_is_a_repeated_row(cost, ties, query_weighting):
    rng = np.random.default_rng(4)
    s, qid, counts = rng.integers(0, 4, 15), rng.integers(0, 3, 15), rng.integers(0, 4, 15)
    rows, X = np.repeat(np.arange(15), counts), rng.standard_normal((15, 3))
    loss = Loss(cost, ties, query_weighting)
    weighted = PreferenceGraph.from_scores(s, qid=qid, sample_weight=counts)
    repeated = PreferenceGraph.from_scores(s[rows], qid=qid[rows])
    one = weighted.objectives(loss)[0].moments(X)
    other = repeated.objectives(loss)[0].moments(X[rows])
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
    for j, cost in itertools.product(range(4), COSTS):
        edges = oracles.edges_of_scores(y[:, j], cost=cost, ties="drop", query_weighting="pair")
        L, r = oracles.laplacian(edges, 20)
        close(graph.laplacian(cost=cost, ties="drop", output=j) @ np.eye(20), L)
        close(graph.target(cost=cost, ties="drop", output=j), r)
