"""Data for the grids of tests: ties, singletons, zero weights, given pairs, any row order."""

from __future__ import annotations

import numpy as np

import oracles
from rankrls import PreferenceGraph
from rankrls.core.preferences.costs import Loss

COSTS = ("magnitude", "unit", "relative")
TIES = ("keep", "drop")
WEIGHTINGS = ("pair", "size", "query")


def scores(kind, m, rng):
    """Real-valued without ties, graded with many ties, or a mixture."""
    return {
        "continuous": lambda: rng.standard_normal(m),
        "graded": lambda: rng.integers(0, 3, m).astype(float),
        "mixed": lambda: rng.integers(0, m // 2, m) * 0.37,
    }[kind]()


def queries(kind, m, rng):
    """None, or string ids in random row order; some queries have one row."""
    return None if kind == "one" else rng.choice(list("abcdefgh"), m)


def weights(kind, m, rng):
    """None, positive, or with some zeros."""
    if kind is None:
        return None
    w = rng.uniform(0.2, 3.0, m)
    if kind == "zeros":
        w[rng.choice(m, m // 5, replace=False)] = 0.0
    return w


def given_pairs(n_pairs, m, rng):
    """Pairs with magnitudes and weights, repetitions and contradictions among them."""
    pairs = np.array([rng.choice(m, 2, replace=False) for _ in range(n_pairs)])
    pairs[1], pairs[2] = pairs[0], pairs[0][::-1]
    weight = rng.uniform(0.1, 2.0, n_pairs)
    weight[-1] = 0.0
    return {
        "pairs": pairs,
        "magnitude": rng.uniform(0.5, 2.0, n_pairs),
        "pair_weight": weight,
    }


class Case:
    """One training set with its explicit edges."""

    def __init__(
        self,
        seed,
        *,
        m=20,
        cost="magnitude",
        ties="keep",
        query_weighting="pair",
        kind="mixed",
        qid="many",
        weight=None,
        n_pairs=0,
        scored=True,
    ):
        rng = np.random.default_rng(seed)
        self.m = m
        self.options = {"cost": cost, "ties": ties, "query_weighting": query_weighting}
        self.fit = {}
        self.y = None
        self.edges = []
        graphs = []
        if scored:
            self.y = scores(kind, m, rng)
            self.fit["qid"] = queries(qid, m, rng)
            self.fit["sample_weight"] = weights(weight, m, rng)
            self.edges += oracles.edges_of_scores(
                self.y, self.fit["qid"], self.fit["sample_weight"], **self.options
            )
            graphs.append(PreferenceGraph.from_scores(self.y, **self.fit))
        if n_pairs:
            given = given_pairs(n_pairs, m, rng)
            self.fit |= given
            self.edges += oracles.edges_of_pairs(
                given["pairs"], given["magnitude"], given["pair_weight"], cost=cost
            )
            graphs.append(PreferenceGraph.from_pairs(n_rows=m, **given))
        self.graph = graphs[0] if len(graphs) == 1 else graphs[0] + graphs[1]
        self.rng = rng

    def system(self):
        (objective,) = self.graph.objectives(Loss(**self.options))
        return objective


def close(a, b, tolerance=1e-10):
    """The largest difference is at most this part of the largest value."""
    scale = np.abs(b).max()
    assert np.abs(np.asarray(a) - b).max() <= tolerance * max(scale, 1e-300), (a, b)


def same(model, reference, X, tolerance=1e-10):
    """Everything a user can ask of both is equal."""
    (f, std), (g, wanted) = model.predict(X, return_std=True), reference.predict(X, return_std=True)
    close(f - f[:1], g - g[:1], tolerance)
    close(std, wanted, tolerance)
    close(
        model.preference_proba(X[1:], X[:-1]), reference.preference_proba(X[1:], X[:-1]), tolerance
    )
    close(model.log_marginal_likelihood(), reference.log_marginal_likelihood(), tolerance)
    for name in ("coef_", "dual_coef_"):
        assert hasattr(model, name) == hasattr(reference, name)
        if hasattr(model, name):
            close(getattr(model, name), getattr(reference, name), tolerance)
            assert getattr(model, name).dtype == getattr(reference, name).dtype
    for name in ("solver_", "n_pairs_", "n_queries_", "n_iter_", "n_features_in_"):
        assert getattr(model, name) == getattr(reference, name), name
    assert hasattr(model, "basis_indices_") == hasattr(reference, "basis_indices_")
    assert model._with_qid == reference._with_qid


def same_choice(model, reference, X, tolerance=1e-8):
    """Both chose the same alpha, by the same scores, and predict the same up to a constant."""
    assert set(model.cv_results_) == set(reference.cv_results_)
    for name, values in reference.cv_results_.items():
        if name != "n_refits":
            np.testing.assert_allclose(model.cv_results_[name], values, rtol=0, atol=tolerance)
    assert model.alpha_ == reference.alpha_
    f, g = model.predict(X), reference.predict(X)
    np.testing.assert_allclose(f - f[0], g - g[0], rtol=0, atol=10 * tolerance * np.ptp(g))
    for name in ("n_pairs_", "n_queries_", "n_features_in_", "solver_"):
        assert getattr(model, name) == getattr(reference, name), name


def cut(size, *arrays):
    """Tuples of slices of ``size`` rows."""
    for start in range(0, arrays[0].shape[0], size):
        yield tuple(array[start : start + size] for array in arrays)


def folds_in_turn(qid, k):
    """(train, test) of queries that go to the folds in turn, in the order of their first rows."""
    number = {label: i for i, label in enumerate(dict.fromkeys(qid.tolist()))}
    fold = np.array([number[label] % k for label in qid.tolist()])
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k)]
