"""Costs and query weightings: the named ones, and those that a user or a maintainer adds."""

import itertools
import warnings

import numpy as np
import pytest

import oracles
from rankrls import PreferenceGraph, RankRLS, RankRLSCV, RankSVM
from rankrls.core.preferences.costs import COSTS, Cost
from rankrls.model_selection import leave_pair_out_predict, leave_query_out_predict

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4))
Y = RNG.integers(0, 4, 24).astype(float)
QID = np.repeat(np.arange(6), 4)
ALPHA = 0.7


@pytest.fixture
def log_cost(monkeypatch):
    """Add z = log(1 + d) as the guide for maintainers describes it."""
    monkeypatch.setitem(COSTS, "log", Cost("log", np.log1p))
    return "log"


def edges(y, qid):
    """(head, tail, w², z) of every preference, by a double loop."""
    return [
        (i, j, 1.0, np.log1p(y[i] - y[j]))
        for i, j in itertools.permutations(range(len(y)), 2)
        if qid[i] == qid[j] and y[i] > y[j]
    ]


def refit(y, qid, rest, new):
    w = oracles.primal_coefficients(edges(y[rest], qid[rest]), X[rest], ALPHA)
    return X[new] @ w


def test_an_added_cost_is_fitted_and_held_out_exactly(log_cost):
    ranker = RankRLS(ALPHA, cost=log_cost).fit(X, Y, qid=QID)
    np.testing.assert_allclose(ranker.predict(X), refit(Y, QID, np.arange(24), np.arange(24)))
    held_out = leave_query_out_predict(RankRLS(ALPHA, cost=log_cost), X, Y, qid=QID)
    for query in range(6):
        inside = query == QID
        expected = refit(Y, QID, ~inside, inside)
        np.testing.assert_allclose(np.diff(held_out[inside]), np.diff(expected))


def test_an_added_cost_for_given_pairs(log_cost):
    pairs, d = np.array([[0, 1], [2, 5], [7, 3], [1, 9]]), np.array([0.5, 2.0, 1.0, 3.0])
    ranker = RankRLS(ALPHA, cost=log_cost).fit(X, pairs=pairs, magnitude=d)
    given = [(*pair, 1.0, np.log1p(size)) for pair, size in zip(pairs, d, strict=True)]
    np.testing.assert_allclose(ranker.coef_, oracles.primal_coefficients(given, X, ALPHA))


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_an_added_cost_leaves_pairs_of_two_classes_out(log_cost, solver):
    y = np.where(np.arange(24) % 3 == 0, 4.0, 0.5)
    ranker = RankRLS(ALPHA, cost=log_cost, solver=solver)
    pairs = [(0, 1), (3, 5), (6, 2)]
    found = leave_pair_out_predict(ranker, X, y, pairs=pairs)
    for pair, values in zip(pairs, found, strict=True):
        rest = np.setdiff1d(np.arange(24), pair)
        expected = refit(y, np.zeros(24), rest, list(pair))
        np.testing.assert_allclose(values[0] - values[1], expected[0] - expected[1])


def test_an_added_cost_has_its_explained_part(log_cost):
    chosen = RankRLSCV([ALPHA], cost=log_cost, scoring="pairwise_r2").fit(X, Y, qid=QID)
    loss = squares = 0.0
    for query in range(6):
        inside = np.flatnonzero(query == QID)
        f = dict(zip(inside, refit(Y, QID, query != QID, inside), strict=True))
        for i, j, _, z in edges(Y, QID):
            if i in f:
                loss, squares = loss + (z - (f[i] - f[j])) ** 2, squares + z**2
    np.testing.assert_allclose(chosen.best_score_, 1 - loss / squares)


def test_query_weighting_by_a_function():
    seen = []

    def root(n_rows, n_pairs):
        seen.append((n_rows, n_pairs))
        return 1 / np.sqrt(n_pairs)

    qid, y = np.repeat([0, 1, 2], [4, 8, 12]), np.arange(24) % 5
    ranker = RankRLS(ALPHA, query_weighting=root).fit(X, y, qid=qid)
    np.testing.assert_array_equal(seen[0], [[4, 8, 12], [6, 28, 66]])
    weighted = [
        (i, j, w / np.sqrt([6, 28, 66][qid[i]]), z)
        for i, j, w, z in oracles.edges_of_scores(
            y, qid, cost="magnitude", ties="keep", query_weighting="pair"
        )
    ]
    np.testing.assert_allclose(ranker.coef_, oracles.primal_coefficients(weighted, X, ALPHA))
    fitted = [RankSVM(ALPHA, query_weighting=how) for how in ("query", lambda n, e: 1 / e)]
    np.testing.assert_allclose(*(svm.fit(X, y, qid=qid).coef_ for svm in fitted))
    with pytest.raises(ValueError, match="query_weighting must return a positive weight"):
        RankRLS(query_weighting=lambda n, e: 0 * n).fit(X, y, qid=qid)


@pytest.mark.parametrize("small", [1e-3, 1e-8, 1e-17, 1e-30])
@pytest.mark.parametrize("ties", ["keep", "drop"])
def test_query_weights_of_very_different_rows(small, ties):
    """The weight of a query's pairs is exact even if one row has nearly all of it."""
    y, qid = np.array([2.0, 1.0, 0.0, 1.0, 0.0]), np.array([0, 0, 0, 1, 1])
    weight = np.array([1.0, small, small, 1e9 * small, small])
    graph = PreferenceGraph.from_scores(y, qid=qid, sample_weight=weight)
    L = graph.laplacian(ties=ties, query_weighting="query") @ np.eye(5)
    total = weight[0] * (weight[1] + weight[2]) + weight[1] * weight[2]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        np.testing.assert_allclose(-L[i, j], weight[i] * weight[j] / total, rtol=1e-12)
    np.testing.assert_allclose(L[3:, 3:], [[1, -1], [-1, 1]])


@pytest.mark.parametrize("cost", ["magnitude", "unit", "relative"])
def test_queries_of_very_different_weight(cost):
    """Heavy queries do not swamp the sums of light ones, or there is a warning."""
    heavy = 10.0 ** np.array([8, 4, 0, -4, -8, 6])[QID]
    equal = RankRLS(ALPHA, cost=cost, query_weighting="query").fit(X, Y, qid=QID)
    found = RankRLS(ALPHA, cost=cost, query_weighting="query")
    found.fit(X, Y, qid=QID, sample_weight=heavy)
    np.testing.assert_allclose(found.coef_, equal.coef_)
    with pytest.warns(UserWarning, match="differ by so many orders of magnitude"):
        RankRLS(ALPHA, cost=cost, kernel="rbf").fit(X, Y, qid=QID, sample_weight=heavy)


def right_or_warned(ranker, expected, *args, **options):
    """A fit that is right to six digits, or warns, or is refused with the reason."""
    messages, found = [], None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = ranker.fit(*args, **options).coef_
        except ValueError as error:
            messages.append(str(error))
    messages += [str(warning.message) for warning in caught]
    if messages:
        assert "differ by so many orders of magnitude" in messages[0]
        return "refused" if found is None else "warned"
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    return "right"


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-6, 1e-8])
def test_relative_cost_of_nearly_equal_scores_with_pairs(solver, gap):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(12, 20)), np.repeat(np.arange(6.0), 2) + np.tile([0, gap], 6)
    pairs = [(0, 3), (5, 2), (7, 8), (11, 1)]
    given = oracles.edges_of_scores(y, cost="relative", ties="drop", query_weighting="pair")
    given += oracles.edges_of_pairs(pairs, cost="relative")
    expected = oracles.primal_coefficients(given, X, 1.0)
    ranker = RankRLS(cost="relative", solver=solver)
    outcome = right_or_warned(ranker, expected, X, y, pairs=pairs)
    assert outcome == "right" if gap == 1e-3 else outcome != "right" or gap == 1e-5
