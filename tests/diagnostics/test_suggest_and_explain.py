"""``suggest_pairs`` against a greedy choice by refits, and ``explain`` against predictions."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import GreedyRankRLS, RankRLS, RankRLSCV, RankSVM
from rankrls.diagnostics import explain, suggest_pairs
from rankrls.io import load_model, save_model

SPACES = {
    "linear": {},
    "dual": {"solver": "dual"},
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "nystroem": {"kernel": "rbf", "gamma": 0.3, "basis": np.arange(0, 8, 2)},
}


def _items(n_features=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, n_features)) + 2.0
    X[6] = X[7]
    pairs = np.array([(0, 1), (2, 1), (3, 0), (3, 4), (1, 2)])
    return X, pairs


def _variances(model, X):
    """var(f_i − f_j) of all pairs (n, n), less what a Nyström basis does not span."""
    i, j = np.indices((len(X), len(X))).reshape(2, -1)
    found = model._model.variance(X[i], X[j]).reshape(len(X), len(X))
    if hasattr(model, "basis_indices_"):
        K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
        R = model.basis_indices_
        K -= K[:, R] @ np.linalg.solve(K[np.ix_(R, R)], K[R])
        d = K.diagonal()
        found = found - (d[:, None] + d - 2 * K)
    return found


def _misplaced(model, X, top):
    """Probability of the wrong side of the border, by the variances of differences."""
    f, v = model.predict(X), _variances(model, X)
    first, second = np.argsort(-f, kind="stable")[top - 1 : top + 1]
    # var(f_i − (f_a + f_b)/2) = (v_ia + v_ib)/2 − v_ab/4
    spread = (v[:, first] + v[:, second]) / 2 - v[first, second] / 4
    return norm.cdf(-np.abs(f - (f[first] + f[second]) / 2) / np.sqrt(spread))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("given", "top"), [(False, None), (True, None), (False, 3), (True, 1)])
def test_suggestions_equal_greedy_refits(space, given, top):
    X, pairs = _items()
    ranker = RankRLS(0.5, **SPACES[space])
    candidates = np.array(list(combinations(range(8), 2)))
    if given:
        candidates = candidates[::3, ::-1]
    model = ranker.fit(X, pairs=pairs)
    found = suggest_pairs(model, X, k=5, top=top, candidates=candidates if given else None)
    assert found.shape == (5, 2)
    weight = np.ones(len(X)) if top is None else _misplaced(model, X, top)
    asked = pairs
    for pair in found:
        totals = []
        for candidate in candidates:
            # The outcome does not matter: the first one is preferred.
            more = np.vstack([asked, candidate])
            refitted = RankRLS(0.5, **SPACES[space]).fit(X, pairs=more)
            totals.append(weight @ _variances(refitted, X) @ weight)
        mine = np.flatnonzero((candidates == pair).all(axis=1))[0]
        assert totals[mine] <= min(totals) * (1 + 1e-9) + 1e-9
        asked = np.vstack([asked, pair])
        candidates = np.delete(candidates, mine, axis=0)


def test_suggestions_of_wide_sparse_and_chosen_alpha():
    X, pairs = _items(n_features=20)
    X = X[:7]  # without the duplicate, whose pairs are equally good
    wide = RankRLS(0.5).fit(X, pairs=pairs)
    assert wide.solver_ == "dual"
    expected = suggest_pairs(wide, X, k=4)
    primal = RankRLS(0.5, solver="primal").fit(X, pairs=pairs)
    assert_array_equal(suggest_pairs(primal, X, k=4), expected)
    stored = RankRLS(0.5, solver="primal").fit(sparse.csr_array(X), pairs=pairs)
    assert_array_equal(suggest_pairs(stored, sparse.csr_array(X), k=4), expected)
    chosen = RankRLSCV([0.5], solver="primal").fit(X, pairs=pairs)
    assert_array_equal(suggest_pairs(chosen, X, k=4), expected)


def test_suggestions_of_many_rows_are_drawn():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1600, 2))
    model = RankRLS().fit(X, pairs=[(0, 1), (2, 3)])
    found = suggest_pairs(model, X, k=3, random_state=0)
    assert_array_equal(found, suggest_pairs(model, X, k=3, random_state=0))
    assert len(np.unique(found, axis=0)) == 3
    # Far apart: the ends of the cloud tell most.
    assert (np.linalg.norm(X[found[:, 0]] - X[found[:, 1]], axis=1) > 4).all()


def test_suggestions_for_the_top_are_about_the_border():
    """A feature that only the worst items have, and nothing is known of, does not matter."""
    rng = np.random.default_rng(0)
    X = np.zeros((60, 3))
    X[:, 0] = np.linspace(10.0, -10.0, 60)
    X[:12, 1] = rng.standard_normal(12)
    X[30:, 2] = 2 * rng.standard_normal(30)
    model = RankRLS(0.1).fit(X, pairs=[(i, i + 10) for i in range(0, 50, 2)], magnitude=[3.0] * 25)
    everywhere, head = (suggest_pairs(model, X, k=2, top=top) for top in (None, 5))
    assert np.abs(X[everywhere[0], 2]).max() > 0
    assert np.abs(X[head[0], 2]).max() == 0
    assert np.abs(X[head[0], 1]).max() > 0


def test_top_by_the_noise_of_the_calibration():
    """The scale of the posterior is that of the calibrated probabilities, whatever alpha is."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 4))
    quality = X @ [2.0, 1.0, 0.0, -1.0]
    pairs = rng.permuted(np.tile(np.arange(30), (80, 1)), axis=1)[:, :2]
    won = quality[pairs[:, 0]] - quality[pairs[:, 1]] + rng.logistic(size=80) > 0
    pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
    search = RankRLSCV([0.5, 4.0, 32.0, 256.0], scoring="log_loss").fit(X, pairs=pairs)
    found, slope = search.calibration_, search.calibration_.slope
    noise = (1.0 if found.link == "probit" else 1.7) / slope
    f, v = search.predict(X), _variances(search, X)
    first, second = np.argsort(-f, kind="stable")[4:6]
    spread = (v[:, first] + v[:, second]) / 2 - v[first, second] / 4
    z = np.abs(f - (f[first] + f[second]) / 2) / np.sqrt(spread)
    weight = norm.cdf(-z * np.sqrt(search.alpha_) / noise)
    candidates = np.array(list(combinations(range(30), 2)))
    totals = []
    for a, b in candidates:
        more = RankRLS(search.alpha_).fit(X, pairs=np.vstack([pairs, [(a, b)]]))
        totals.append(weight @ _variances(more, X) @ weight)
    best = candidates[np.argmin(totals)]
    assert suggest_pairs(search, X, k=1, top=5).tolist() == [best.tolist()]
    plain = RankRLS(search.alpha_).fit(X, pairs=pairs)
    search.calibration_ = replace(found, slope=0.0)  # no better than chance: alpha is what is known
    expected = suggest_pairs(plain, X, k=6, top=5)
    assert_array_equal(suggest_pairs(search, X, k=6, top=5), expected)


def test_suggestions_for_a_top_that_is_certain_and_of_few_candidates():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = RankRLS(1e-9).fit(X, pairs=[(3, 0)], magnitude=[3.0])
    found = suggest_pairs(model, X, k=2, top=1)
    assert len(np.unique(found, axis=0)) == 2
    assert len(suggest_pairs(model, X[:3], k=10)) == 3


def test_suggestions_refused(tmp_path):
    X, pairs = _items()
    model = RankRLS().fit(X, pairs=pairs)
    save_model(model, tmp_path / "slim.rankrls", uncertainty=False)
    K, two = X @ X.T, RankRLS().fit(X, np.arange(16).reshape(8, 2))
    precomputed = RankRLS(kernel="precomputed").fit(K, pairs=pairs)
    for ranker, rows, options, message in (
        (model, X, {"top": 8}, "top=8 must be below the number of rows of X, which is 8"),
        (model, X, {"candidates": [(0, 9)]}, r"candidates\[0\] = \(0, 9\) is out of range"),
        (model, X[:1], {}, "to form a pair"),
        (RankSVM().fit(X, pairs=pairs), X, {}, "must be a RankRLS"),
        (RankRLS(solver="cg").fit(X, pairs=pairs), X, {}, "does not factorise"),
        (precomputed, K, {}, "precomputed"),
        (two, X, {}, "2 outputs"),
        (load_model(tmp_path / "slim.rankrls"), X, {}, "uncertainty=False"),
    ):
        with pytest.raises(ValueError, match=message):
            suggest_pairs(ranker, rows, **options)


# -- explain ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [RankRLS, RankSVM])
@pytest.mark.parametrize("space", ["linear", "wide", "rbf", "nystroem", "precomputed"])
def test_contributions_add_up(estimator, space):
    X, pairs = _items(20 if space == "wide" else 3)
    options = {"precomputed": {"kernel": "precomputed"}}.get(space, SPACES.get(space, {}))
    X = X @ X.T if space == "precomputed" else X
    model = estimator(0.5, **options).fit(X, pairs=pairs)
    f = model.predict(X)
    explained = explain(model, X[0], X[1])
    assert_allclose(explained.contribution.sum(), f[0] - f[1], atol=1e-12)
    assert_allclose(explained.difference, f[0] - f[1], atol=1e-12)
    assert_allclose(explained.contribution, explained.weight * explained.change)
    assert (np.diff(np.abs(explained.contribution)) <= 0).all()
    alone = explain(model, X[[0]])
    assert_allclose(alone.difference, f[0], atol=1e-12)
    if space in ("linear", "wide"):
        assert explained.kind == "feature"
        order = [int(name[1:]) for name in explained.labels]
        assert_allclose(explained.contribution, (model.coef_ * (X[0] - X[1]))[order])
    else:
        assert explained.kind == "row"
        rows = getattr(model, "basis_indices_", np.arange(len(model.dual_coef_)))
        coefficients = dict(zip(rows, model.dual_coef_, strict=True))
        expected = [coefficients[row] for row in explained.labels]
        assert_allclose(explained.weight, expected, atol=1e-12)


def test_names_pipelines_and_frames():
    pandas = pytest.importorskip("pandas")
    X, pairs = _items()
    frame = pandas.DataFrame(X, columns=["price", "rating", "age"])
    model = RankRLS().fit(frame, pairs=pairs)
    explained = explain(model, frame.iloc[0], frame.iloc[[1]])
    assert set(explained.labels) == {"price", "rating", "age"}
    assert list(explained.to_frame().columns) == ["feature", "contribution", "weight", "change"]
    scaled = make_pipeline(StandardScaler(), RankRLS()).fit(X, rankrls__pairs=pairs)
    f = scaled.predict(X)
    assert_allclose(explain(scaled, X[3], X[4]).difference, f[3] - f[4])
    named = make_pipeline(StandardScaler(), RankRLS()).fit(frame, rankrls__pairs=pairs)
    parts = explain(named, frame.iloc[[3]], frame.iloc[[4]])
    assert_array_equal(parts.labels, frame.columns[parts.index])
    assert_allclose(parts.difference, f[3] - f[4])
    assert repr(explain(model, frame.iloc[0])).startswith("Explanation(")
    rows = explain(RankRLS(kernel="rbf").fit(X, pairs=pairs), X[0]).to_frame()
    assert list(rows.columns) == ["row", "contribution", "weight", "change"]


def test_selected_features_and_sparse_rows():
    X, pairs = _items()
    model = GreedyRankRLS(n_features_to_select=1).fit(X, X[:, 1])
    found = explain(model, X[0], X[2])
    assert (found.labels[0], found.index[0]) == ("x1", 1)
    assert_allclose(found.difference, model.coef_ @ (X[0] - X[2]))
    rows = sparse.csr_array(X)
    model = RankRLS().fit(rows, pairs=pairs)
    f = model.predict(rows)
    assert_allclose(explain(model, rows[[0]], rows[[2]]).difference, f[0] - f[2])


def test_explanations_refused():
    X, pairs = _items()
    y = np.arange(8.0)
    two = np.column_stack([y, -y])
    for model, rows, message in (
        (RankRLS().fit(X, pairs=pairs), (X[0], X[:2]), "x_b must be one row; got 2"),
        (Ridge().fit(X, y), X[:1], "got a Ridge"),
        (make_pipeline(StandardScaler(), Ridge()).fit(X, y), X[:1], "got a Ridge"),
        (RankRLS(kernel="rbf").fit(X, two), X[:1], "2 outputs"),
        (RankRLS().fit(X, two), X[:1], "2 outputs"),
    ):
        with pytest.raises(ValueError, match=message):
            explain(model, *rows)
