"""Rows cut into parts at random: the shares add up to the system of the whole."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import oracles
from cases import COSTS, TIES, WEIGHTINGS, queries, scores, weights
from rankrls import PreferenceGraph
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.statistics import Statistics
from rankrls.dask._census import Census, Counts, Crossing
from rankrls.dask._parts import SharePlan, bucket_shares, part_shares

N_FEATURES = 4


class Cut:
    """A data set, the parts that its rows are assigned to, and what they make together."""

    def __init__(self, X, y, qid, weight, parts, loss, **options):
        self.X, self.parts, self.loss = X, parts, Loss(**loss)
        self.graph = PreferenceGraph.from_scores(y, qid=qid, sample_weight=weight)
        graphs = [
            PreferenceGraph.from_scores(
                np.asarray(y)[rows],
                qid=None if qid is None else [qid[i] for i in rows],
                sample_weight=None if weight is None else weight[rows],
            )
            for rows in parts
        ]
        by = {"cost": loss["cost"], "ties": loss["ties"]}
        censuses = [Census.of(graph, **by) for graph in graphs]
        self.crossing = Crossing(censuses, with_qid=qid is not None)
        numbers = self.crossing.numbers
        counts = [Counts.of(g, n, **by) for g, n in zip(graphs, numbers, strict=True)]
        self.plan = SharePlan(censuses, self.crossing, counts, self.loss, **options)
        self.shares, self.condensers = [], []
        for graph, part in zip(graphs, self.plan.parts, strict=True):
            shares, condensers = part_shares(graph, part)
            self.shares.append(shares)
            self.condensers.append(condensers)
        self.buckets = [bucket_shares(bucket) for bucket in self.plan.buckets]

    def condensed(self, X, group):
        """Z of every bucket."""
        pieces = [
            self.condensers[p][group](X[rows]) if self.condensers[p] else {}
            for p, rows in enumerate(self.parts)
        ]
        stack = sparse.vstack if sparse.issparse(X) else np.concatenate
        return [
            stack([pieces[p][b] for p in sources]) for b, sources in enumerate(self.plan.sources)
        ]

    def statistics(self, X):
        """One for each group of outputs."""
        result = []
        for group in range(len(self.plan.outputs)):
            found = [
                s[group].statistics(X[r]) for s, r in zip(self.shares, self.parts, strict=True)
            ]
            Zs = self.condensed(X, group)
            found += [b[group].statistics(Z) for b, Z in zip(self.buckets, Zs, strict=True)]
            result.append(reduce(add, found))
        return result

    def product(self, V, group):
        """XᵀLX V and Xᵀr by way of the parts."""
        Zs = self.condensed(self.X, group)
        places = [(s[group], self.X[r]) for s, r in zip(self.shares, self.parts, strict=True)]
        places += [(b[group], Z) for b, Z in zip(self.buckets, Zs, strict=True)]
        product = sum(Phi.T @ share.apply(Phi @ V) for share, Phi in places)
        return product, sum(Phi.T @ share.r for share, Phi in places)


def deal(m, n_parts, rng):
    """Rows in random order, cut at random; parts may be empty."""
    borders = np.sort(rng.integers(0, m + 1, n_parts - 1))
    return np.split(rng.permutation(m), borders)


def close(actual, expected, tolerance=1e-11):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    scale = max(np.abs(expected).max(initial=0.0), 1e-300)
    assert np.abs(actual - expected).max(initial=0.0) <= tolerance * scale


def check(cut, X, tolerance=1e-11):
    objectives = cut.graph.objectives(cut.loss)
    found = cut.statistics(X)
    assert [s.outputs.tolist() for s in found] == [o.outputs.tolist() for o in objectives]
    for statistics, objective in zip(found, objectives, strict=True):
        if objective.n_pairs == 0:
            assert not statistics.gram.any()
            continue
        whole = Statistics.of(objective, X)
        for name in ("gram", "cross", "mean", "mass", "energy"):
            close(getattr(statistics, name), getattr(whole, name), tolerance)
        assert statistics.n_pairs == whole.n_pairs
        assert statistics.log_weight == pytest.approx(whole.log_weight, rel=1e-12, abs=1e-9)
    return objectives


GRID = [
    {"cost": cost, "ties": ties, "query_weighting": weighting, "kind": kind, "qid": qid, "w": w}
    for cost in COSTS
    for ties in TIES
    for weighting in WEIGHTINGS
    for kind in ("continuous", "graded", "mixed")
    for qid in ("one", "many")
    for w in (None, "zeros")
]


def data(options, seed, m=40):
    rng = np.random.default_rng(seed)
    loss = {name: options[name] for name in ("cost", "ties", "query_weighting")}
    y = scores(options["kind"], m, rng)
    qid, weight = queries(options["qid"], m, rng), weights(options["w"], m, rng)
    return rng, rng.standard_normal((m, N_FEATURES)), y, qid, weight, loss


@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_shares_add_up_to_the_whole(options, n_parts):
    rng, X, y, qid, weight, loss = data(options, n_parts)
    cut = Cut(X, y, qid, weight, deal(len(X), n_parts, rng), loss, bucket_rows=5)
    (objective,) = check(cut, X)
    V = rng.standard_normal((N_FEATURES, 3))
    product, cross = cut.product(V, 0)
    close(product, X.T @ objective.laplacian.apply(X @ V))
    close(cross, X.T @ objective.laplacian.r)
    # The same by a double loop.
    edges = oracles.edges_of_scores(y, qid, weight, **loss)
    L, r = oracles.laplacian(edges, len(X))
    close(product, X.T @ L @ X @ V)
    close(cross[:, 0], X.T @ r)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("ties", TIES)
def test_several_outputs(cost, ties):
    """Outputs 0 and 2 have the same order, 3 differs from 1 in one pair of different parts."""
    rng = np.random.default_rng(0)
    m = 30
    y = rng.integers(0, 4, (m, 4)).astype(float)
    y[:, 2] = y[:, 0] if cost == "relative" else y[:, 0] ** 3
    y[:, 1] = rng.permutation(m)
    y[:, 3] = y[:, 1]
    low, high = np.argsort(y[:, 1])[10:12]
    y[[low, high], 3] = y[[high, low], 3]
    X = rng.standard_normal((m, N_FEATURES))
    loss = {"cost": cost, "ties": ties, "query_weighting": "size"}
    others = np.setdiff1d(np.arange(m), [low, high])
    parts = [np.append(others[:10], low), np.append(others[10:20], high), others[20:]]
    for qid in (None, np.zeros(m, int), rng.integers(0, 2, m)):
        cut = Cut(X, y, qid, None, parts, loss)
        check(cut, X)
        if qid is None:
            expected = 1 if (cost, ties) == ("magnitude", "keep") else 3
            assert len(cut.plan.outputs) == expected


@pytest.mark.parametrize("options", GRID[::5], ids=lambda o: "-".join(map(str, o.values())))
def test_sparse_rows_offsets_and_single_precision(options):
    rng, X, y, qid, weight, loss = data(options, 3)
    X[np.abs(X) < 0.7] = 0.0
    parts = deal(len(X), 4, rng)
    for layout in (sparse.csr_array(X), sparse.csr_matrix(X)):
        cut = Cut(layout, y, qid, weight, parts, loss)
        check(cut, layout)
        assert all(sparse.issparse(Z) for Z in cut.condensed(layout, 0))
    shifted = X + 1e6
    expected = Cut(X, y, qid, weight, parts, loss).statistics(X)[0]
    actual = Cut(shifted, y, qid, weight, parts, loss).statistics(shifted)[0]
    close(actual.gram, expected.gram, 1e-8)
    close(actual.cross, expected.cross, 1e-8)
    single = Cut(X, y, qid, weight, parts, loss).statistics(X.astype(np.float32))[0]
    assert single.gram.dtype == np.float64
    close(single.gram, expected.gram, 1e-5)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_scores_queries_weights_and_parts(data):
    m = data.draw(st.integers(2, 12))

    def column(values):
        return data.draw(st.lists(st.sampled_from(values), min_size=m, max_size=m))

    s = np.array(column([-2.0, -0.5, 0.0, 0.25, 1.0, 7.0]))
    qid = column([0, 1, 2])
    weight = np.array(column([0, 1, 2.5]))
    part = np.array(column([0, 1, 2, 3]))
    order = np.array(data.draw(st.permutations(range(m))))
    loss = {
        "cost": data.draw(st.sampled_from(COSTS)),
        "ties": data.draw(st.sampled_from(TIES)),
        "query_weighting": data.draw(st.sampled_from(WEIGHTINGS)),
    }
    parts = [order[part[order] == p] for p in range(4)]
    X = np.eye(m)  # so that the statistics are L and r themselves
    cut = Cut(X, s, qid, weight, parts, loss, bucket_rows=data.draw(st.integers(1, 20)))
    edges = oracles.edges_of_scores(s, qid, weight, **loss)
    L, r = oracles.laplacian(edges, m)
    (statistics,) = cut.statistics(X)
    np.testing.assert_allclose(statistics.gram, L, atol=1e-12 * max(1, np.abs(L).max()))
    np.testing.assert_allclose(statistics.cross[:, 0], r, atol=1e-12 * max(1, np.abs(r).max()))
    assert statistics.n_pairs == len(edges)
    assert cut.plan.varied[0] == cut.graph.has_preference()
    assert cut.crossing.n_queries == cut.graph.n_queries


def test_condensed_rows_are_few():
    """Ties kept: one per (query, part). Dropped: levels of one part are condensed together."""
    m, n_parts = 1000, 10
    y, X = np.arange(m) % 97 * 1.0, np.zeros((m, 1))
    y[::10] += 0.5
    parts = np.split(np.arange(m), n_parts)
    for ties, rows in (("keep", n_parts), ("drop", None)):
        loss = {"cost": "magnitude", "ties": ties, "query_weighting": "pair"}
        cut = Cut(X, y, None, None, parts, loss)
        (bucket,) = cut.plan.buckets
        if rows is None:
            levels = {level: set() for level in y}
            for p, part in enumerate(parts):
                for i in part:
                    levels[y[i]].add(p)
            rows = sum(len(places) for places in levels.values() if len(places) > 1)
            private = {min(places) for places in levels.values() if len(places) == 1}
            rows += len(private)
        assert len(bucket[0].part) == rows == cut.plan.largest_bucket()
    distinct = np.arange(m) * 1.0
    loss = {"cost": "unit", "ties": "drop", "query_weighting": "pair"}
    assert Cut(X, distinct, None, None, parts, loss).plan.largest_bucket() == n_parts


def test_buckets_hold_whole_queries():
    m = 60
    rng = np.random.default_rng(0)
    qid, X = rng.integers(0, 8, m), rng.standard_normal((m, 2))
    loss = {"cost": "magnitude", "ties": "keep", "query_weighting": "pair"}
    cut = Cut(X, rng.standard_normal(m), qid, None, deal(m, 5, rng), loss, bucket_rows=7)
    assert len(cut.plan.buckets) > 2
    seen = [set(bucket[0].query.tolist()) for bucket in cut.plan.buckets]
    assert sum(map(len, seen)) == len(set.union(*seen)) == cut.crossing.n_crossing


@pytest.mark.parametrize(
    ("labels", "n_queries"),
    [
        ([1, "1", 1, "1", (1, 2), (1, 2)], 2),
        (["a", "bb", "a", "ccc", "bb", "a"], 3),
        ([1.5, 2, 2, 1.5, True, 1], 3),
    ],
)
def test_labels_of_any_kind(labels, n_queries):
    y, X = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.eye(6)
    loss = {"cost": "magnitude", "ties": "keep", "query_weighting": "pair"}
    cut = Cut(X, y, labels, None, [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])], loss)
    assert cut.crossing.n_queries == n_queries
    check(cut, X)


def test_given_pairs_cannot_be_cut():
    graph = PreferenceGraph.from_pairs([(0, 1)], n_rows=2)
    with pytest.raises(ValueError, match="come from scores"):
        Census.of(graph, cost="magnitude", ties="keep")
