"""Held-out judgements against explicit refits; ties; bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import PreferenceGraph, RankRLS, RankRLSCV, RankSVM
from rankrls.diagnostics import audit
from rankrls.estimators.choosing import random_folds
from rankrls.io import load_model, save_model
from rankrls.metrics import pairwise_accuracy, pairwise_error
from rankrls.model_selection import holdout_judgements

ALPHAS = np.array([1e-9, 1e-5, 1e-2, 1.0, 1e3, 1e9])


def _pairs(kind: str, m: int, rng: np.random.Generator) -> np.ndarray:
    """Judgements over m items, some of them repeated and some contradicted."""
    if kind == "tree":  # every item but the first judged once or more, every edge a bridge
        pairs = np.array([(i, rng.integers(0, i)) for i in range(1, m)])
        return rng.permutation(pairs)
    if kind == "components":
        third = m // 3
        parts = [rng.integers(0, third, (3 * third, 2)), third + rng.integers(0, third, (third, 2))]
        parts.append(np.array([(m - 1, m - 2), (m - 3, m - 2)]))
        pairs = np.vstack(parts)
    else:
        pairs = rng.integers(0, m, ({"cycles": 6 * m, "few": m // 2}[kind], 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.vstack([pairs, pairs[:3], pairs[:2, ::-1]])


SPACES = {
    "linear": {},
    "wide": {},
    "sparse": {},
    "graded": {},
    "rbf": {"kernel": "rbf", "gamma": 0.2},
    "nystroem": {"kernel": "rbf", "gamma": 0.2, "basis": np.arange(0, 24, 2)},
    "precomputed": {"kernel": "precomputed"},
}


def _items(space: str, rng: np.random.Generator, m: int = 24) -> object:
    X = rng.standard_normal((m, 40 if space == "wide" else 5)) + 3.0
    X[5], X[7] = X[4], X[6]  # duplicates
    if space == "graded":
        return X * 10.0 ** np.array([-6, -3, 0, 3, 6])
    if space == "sparse":
        return sparse.csr_array(np.where(np.abs(X - 3) > 0.8, X, 0.0))
    if space == "precomputed":
        return X @ X.T
    return X


def _folds(by, pairs, groups):
    """Judgements that are left out together."""
    if by == "item":
        return [np.flatnonzero((pairs == i).any(axis=1)) for i in np.unique(pairs)]
    if by == "group":
        return [np.flatnonzero(groups == g) for g in np.unique(groups)]
    if by == "judgement":
        return [np.array([i]) for i in range(len(pairs))]
    return [np.arange(0, len(pairs), 3), np.array([1])]


def _refits(options, X, pairs, magnitude, weight, folds, alpha):
    """f(preferred) − f(other) of the judgements of every fold by the model without them."""
    found = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(pairs)), fold)
        model = RankRLS(alpha, **options).fit(
            X, pairs=pairs[rest], magnitude=magnitude[rest], pair_weight=weight[rest]
        )
        f = model.predict(X)
        found.append(f[pairs[fold, 0]] - f[pairs[fold, 1]])
    return found


@pytest.mark.filterwarnings("ignore:the features have|values of kernel")
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", ["cycles", "tree", "components", "few"])
@pytest.mark.parametrize("by", ["judgement", "item", "group", "fold"])
def test_equal_to_refits(space, kind, by):
    rng = np.random.default_rng(sum(map(ord, space + kind + by)))
    X = _items(space, rng)
    pairs = _pairs(kind, 24, rng)
    n = len(pairs)
    magnitude = rng.choice([0.0, 1.0, 2.5], n)
    magnitude[:: max(1, n // 6)] = 1.0
    weight = rng.choice([0.25, 1.0, 4.0], n)
    groups = rng.integers(0, 4, n)
    folds = _folds(by, pairs, groups)
    more = {"group": {"groups": np.array(["ann", "bob", "cy", "di"])[groups]}}.get(by, {})
    if by == "fold":
        more = {"folds": folds}
    options = SPACES[space]
    found = holdout_judgements(
        RankRLS(**options),
        X,
        pairs,
        by=by,
        magnitude=magnitude,
        pair_weight=weight,
        alphas=ALPHAS,
        **more,
    )
    if by == "fold":
        assert np.isnan(np.delete(found, np.concatenate(folds), axis=1)).all()
    # Refits take the time: of many folds every third one, others for the next space.
    many = len(folds) > 8
    some = range(many * (list(SPACES).index(space) % 3), len(folds), 3 if many else 1)
    # And every other alpha for half of the kinds of graph.
    every = slice(None) if kind in ("cycles", "few") else slice(len(by) % 2, None, 2)
    for alpha, values in zip(ALPHAS[every], found[every], strict=True):
        refits = _refits(options, X, pairs, magnitude, weight, [folds[k] for k in some], alpha)
        size = max(np.abs(part).max() for part in refits)
        for item, expected in zip(some, refits, strict=True):
            fold = folds[item]
            got = values[fold]
            if by == "item":
                which = np.unique(pairs)[item]
                got = np.where(pairs[fold, 0] == which, got[:, 0], got[:, 1])
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-8 * size)


def test_with_scores_and_several_outputs():
    rng = np.random.default_rng(0)
    X, pairs = rng.standard_normal((20, 4)), _pairs("cycles", 20, rng)
    y, qid = rng.standard_normal((20, 2)), np.repeat([0, 1], 10)
    for options in ({}, {"kernel": "rbf"}):
        found = holdout_judgements(RankRLS(0.5, **options), X, pairs, y=y, qid=qid)
        assert found.shape == (len(pairs), 2)
        for i in (0, 7, 30):
            rest = np.delete(pairs, i, axis=0)
            f = RankRLS(0.5, **options).fit(X, y, qid=qid, pairs=rest).predict(X)
            np.testing.assert_allclose(found[i], f[pairs[i, 0]] - f[pairs[i, 1]], rtol=1e-9)


def test_judgements_without_weight_have_predictions():
    rng = np.random.default_rng(2)
    X, pairs = rng.standard_normal((12, 3)), np.array([(i, i + 1) for i in range(8)] + [(11, 0)])
    weight = np.ones(9)
    weight[[2, 8]] = 0.0
    model = RankRLS().fit(X, pairs=pairs, pair_weight=weight)
    f = model.predict(X)
    found = holdout_judgements(RankRLS(), X, pairs, pair_weight=weight)
    np.testing.assert_allclose(found[[2, 8]], f[pairs[[2, 8], 0]] - f[pairs[[2, 8], 1]])
    grouped = holdout_judgements(
        RankRLS(), X, pairs, pair_weight=weight, by="group", groups=[0, 0, 0, 1, 1, 1, 2, 2, 2]
    )
    f = RankRLS().fit(X, pairs=pairs[3:], pair_weight=weight[3:]).predict(X)
    np.testing.assert_allclose(grouped[:3], f[pairs[:3, 0]] - f[pairs[:3, 1]])


def test_ties_pull_together():
    X = np.eye(3)
    apart = RankRLS(0.1).fit(X, pairs=[(0, 1), (0, 2), (1, 2)]).predict(X)
    tied = RankRLS(0.1).fit(X, pairs=[(0, 1), (0, 2), (1, 2)], magnitude=[1, 1, 0]).predict(X)
    assert apart[1] - apart[2] > 0.5
    assert abs(tied[1] - tied[2]) < 1e-9
    unit = RankRLS(0.1, cost="unit").fit(X, pairs=[(0, 1), (0, 2), (1, 2)], magnitude=[3, 3, 0])
    np.testing.assert_allclose(unit.predict(X), tied)
    with pytest.raises(ValueError, match=r"a magnitude of 0 \(a tie\)"):
        RankRLS(cost="relative").fit(X, pairs=[(0, 1), (0, 2), (1, 2)], magnitude=[1, 1, 0])
    with pytest.raises(ValueError, match="every pair is a tie"):
        RankRLS().fit(X, pairs=[(0, 1)], magnitude=[0])
    # The hinge loss knows no ties: they are left out.
    svm = RankSVM(0.1).fit(X, pairs=[(0, 1), (0, 2), (1, 2)], magnitude=[1, 1, 0])
    same = RankSVM(0.1).fit(X, pairs=[(0, 1), (0, 2)])
    np.testing.assert_allclose(svm.coef_, same.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "judge"}, "by must be one of"),
        ({"by": "group"}, "by='group' needs groups"),
        ({"groups": [0, 1, 1]}, "groups goes with by='group'"),
        ({"by": "group", "groups": [0, 1]}, "groups has 2 entries for 3 pairs"),
        ({"by": "group", "groups": [0, 0, 0]}, "group 0 holds every judgement"),
        ({"by": "fold", "folds": [[0], [0, 1]]}, "judgement 0 is in 2 folds"),
        ({"by": "fold", "folds": []}, "folds is empty"),
        ({"pairs": [(0, 0), (0, 1), (1, 2)]}, "prefers a row to itself"),
        ({"pairs": [(0, 9), (0, 1), (1, 2)]}, "out of range"),
        ({"magnitude": [0, 0, 0]}, "every pair is a tie"),
        ({"magnitude": [1, 0, 0]}, "holds every judgement"),
    ],
)
def test_bad_input(arguments, message):
    X = np.random.default_rng(0).standard_normal((3, 2))
    pairs = arguments.pop("pairs", [(0, 1), (1, 2), (0, 2)])
    with pytest.raises(ValueError, match=message):
        holdout_judgements(RankRLS(), X, pairs, **arguments)


# -- RankRLSCV ----------------------------------------------------------------------------------


def _judged(rng: np.random.Generator, noise: float = 1.0):
    """Judgements of 40 items by 6 judges, some of them ties."""
    X = rng.standard_normal((40, 6))
    f = X @ np.array([2.0, 1.0, -1.0, 0.5, 0.0, 0.0])
    pairs = rng.integers(0, 40, (300, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    seen = f[pairs[:, 0]] - f[pairs[:, 1]] + noise * rng.logistic(size=len(pairs))
    pairs[seen < 0] = pairs[seen < 0][:, ::-1]
    return X, pairs, (np.abs(seen) > 0.2).astype(float), rng.integers(0, 6, len(pairs))


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "gamma": 0.1}, {"basis": 10}])
@pytest.mark.parametrize("cv", ["leave-judgement-out", "leave-item-out", "leave-group-out", 4])
def test_scores_of_a_grid_are_those_of_refits(options, cv):
    rng = np.random.default_rng(0)
    X, pairs, magnitude, judge = _judged(rng)
    pairs, magnitude, judge = pairs[:90], magnitude[:90], judge[:90]
    groups = judge if cv in ("leave-group-out", 4) else None
    alphas = [0.1, 10.0]
    basis = {"basis": np.arange(10)} if "basis" in options else {}
    options = {**options, **basis}
    found = RankRLSCV(alphas, cv=cv, random_state=0, **options).fit(
        X, pairs=pairs, magnitude=magnitude, groups=groups
    )
    if cv != 4:
        folds = _folds(cv.split("-")[1], pairs, judge)
    else:  # folds of judges: the drawing itself is not what is tested
        fold_of = np.empty(6, dtype=int)
        for number, fold in enumerate(random_folds(6, 4, np.random.RandomState(0))):
            fold_of[fold] = number
        folds = [np.flatnonzero(fold_of[judge] == g) for g in range(4)]
    for alpha, score in zip(alphas, found.cv_results_["mean_score"], strict=True):
        refits = _refits(options, X, pairs, magnitude, np.ones(90), folds, alpha)
        held_out = np.concatenate(refits)
        told = magnitude[np.concatenate(folds)] > 0
        assert score == pytest.approx((held_out[told] > 0).mean(), abs=1e-12)
    expected = RankRLS(found.alpha_, **options).fit(X, pairs=pairs, magnitude=magnitude)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({"cv": "leave-group-out"}, {}, "needs groups"),
        ({"cv": "leave-item-out"}, {"groups": "judge"}, "groups need it.*got cv='leave-item-out'"),
        ({"cv": "leave-query-out"}, {}, "cv must be one of 'auto', 'leave-judgement-out'"),
        ({"cv": 7}, {"groups": "judge"}, "groups cannot be held out in 7 folds"),
        ({"scoring": "ndcg"}, {}, "scoring of given pairs must be one of"),
        ({"scoring": len}, {}, "is not defined for given pairs; use 'pairwise_accuracy' or"),
        ({}, {"groups": "one"}, "group .* holds every judgement"),
        ({"solver": "cg"}, {"groups": "judge"}, "not with held-out rows"),
        ({"cv": "validation"}, {"groups": "judge"}, "not with held-out rows"),
        ({}, {"groups": "judge", "eval_set": "some"}, "not with held-out rows"),
        ({"scoring": "logloss"}, {}, "one of 'pairwise_accuracy', 'log_loss'"),
        ({"scoring": "log_loss", "solver": "cg"}, {}, "left out; .* nor with eval_set"),
        ({"scoring": "log_loss"}, {"eval_set": "some"}, "left out; .* nor with eval_set"),
        ({"scoring": "ndcg", "solver": "cg"}, {}, "given pairs have no lists, .* got 'ndcg'"),
    ],
)
def test_bad_input_of_the_search(parameters, arguments, message):
    X, pairs, magnitude, judge = _judged(np.random.default_rng(4))
    known = {"judge": judge, "one": np.zeros(len(pairs), int), "some": (X, X[:, 0])}
    arguments = {name: known[value] for name, value in arguments.items()}
    with pytest.raises(ValueError, match=message):
        RankRLSCV(**parameters).fit(X, pairs=pairs, magnitude=magnitude, **arguments)


# -- covariates of comparisons --------------------------------------------------------------------


def _with_position(rng: np.random.Generator):
    """Judges prefer what is shown first; each pair names which of the two that was."""
    X, pairs, magnitude, judge = _judged(rng)
    f = X @ np.array([2.0, 1.0, -1.0, 0.5, 0.0, 0.0])
    first = np.where(rng.random(len(pairs)) < 0.5, 1.0, -1.0)
    noise = rng.logistic(size=len(pairs))
    flip = f[pairs[:, 0]] - f[pairs[:, 1]] + 1.5 * first + noise < 0
    pairs[flip], first[flip] = pairs[flip][:, ::-1], -first[flip]
    C = np.column_stack([first, np.eye(6)[judge][:, :2] * first[:, None]])
    return X, pairs, magnitude, judge, C


def _expanded(X, pairs, C):
    """The same problem without covariates: every judgement has two rows of its own."""
    preferred = np.hstack([X[pairs[:, 0]], C])
    other = np.hstack([X[pairs[:, 1]], np.zeros_like(C)])
    n = len(pairs)
    return np.vstack([preferred, other]), np.column_stack([np.arange(n), n + np.arange(n)])


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 1e4])
def test_covariates_are_features_of_the_comparison(alpha):
    X, pairs, magnitude, _, C = _with_position(np.random.default_rng(7))
    given = {"pairs": pairs, "magnitude": magnitude, "pair_features": C}
    ranker = RankRLS(alpha).fit(X, **given)
    unit = np.sqrt(np.square(C).mean(axis=0))  # in which coefficients are penalised
    rows, own = _expanded(X, pairs, C / unit)
    expected = RankRLS(alpha).fit(rows, pairs=own, magnitude=magnitude)
    np.testing.assert_allclose(ranker.coef_, expected.coef_[:6], rtol=1e-9)
    np.testing.assert_allclose(ranker.pair_coef_ * unit, expected.coef_[6:], rtol=1e-9)
    p = ranker.preference_proba(X[pairs[:, 0]], X[pairs[:, 1]], pair_features=C, noisy=True)
    np.testing.assert_allclose(
        p, expected.preference_proba(rows[own[:, 0]], rows[own[:, 1]], noisy=True), rtol=1e-9
    )
    if alpha == 1.0:
        assert ranker.pair_coef_[0] > 0.1  # what is shown first is preferred
    dual = RankRLS(alpha, solver="dual").fit(X, **given)
    np.testing.assert_allclose(dual.pair_coef_, ranker.pair_coef_, rtol=1e-9)
    np.testing.assert_allclose(dual.coef_, ranker.coef_, rtol=1e-9)
    beside = RankRLS(alpha, kernel="rbf", gamma=0.1).fit(X, **given)
    K = rbf_kernel(rows[:, :6], gamma=0.1) + rows[:, 6:] @ rows[:, 6:].T
    f = RankRLS(alpha, kernel="precomputed").fit(K, pairs=own, magnitude=magnitude).predict(K)
    g = beside.predict(X)
    found = g[pairs[:, 0]] - g[pairs[:, 1]] + C @ beside.pair_coef_
    np.testing.assert_allclose(found, f[own[:, 0]] - f[own[:, 1]], rtol=1e-7, atol=1e-9)


def test_score_counts_ties_and_covariates():
    X, pairs, magnitude, _, C = _with_position(np.random.default_rng(11))
    told = magnitude > 0
    ranker = RankRLS(1.0).fit(X, pairs=pairs, magnitude=magnitude, pair_features=C)
    f = ranker.predict(X)
    difference = f[pairs[:, 0]] - f[pairs[:, 1]]
    given = {"pairs": pairs, "magnitude": magnitude}
    right = (difference + C @ ranker.pair_coef_ > 0)[told].mean()
    assert ranker.score(X, **given, pair_features=C) == pytest.approx(right)
    plain = (difference > 0)[told].mean()
    assert ranker.score(X, **given) == pytest.approx(plain)
    assert pairwise_accuracy(None, f, **given) == pytest.approx(plain)
    assert right > plain
    graph = PreferenceGraph.from_pairs(pairs, n_rows=len(X), magnitude=magnitude, pair_features=C)
    assert ranker.score(X, graph) == pytest.approx(right)
    weight = np.linspace(0.0, 2.0, len(pairs))
    expected = np.average((difference + C @ ranker.pair_coef_ > 0)[told], weights=weight[told])
    found = ranker.score(X, **given, pair_weight=weight, pair_features=C)
    assert found == pytest.approx(expected)
    plain = RankRLS(1.0).fit(X, **given)
    assert plain.score(X, graph) == plain.score(X, **given)
    with pytest.raises(ValueError, match="fitted without any"):
        plain.score(X, **given, pair_features=C)
    with pytest.raises(ValueError, match="pair_features belongs to pairs"):
        ranker.score(X, np.arange(float(len(X))), pair_features=C)
    with pytest.raises(ValueError, match="magnitude is given without pairs"):
        pairwise_error([1, 0], [0.2, 0.1], magnitude=[1])
    with pytest.raises(ValueError, match="every pair is a tie"):
        ranker.score(X, pairs=pairs[:2], magnitude=[0, 0])


@pytest.mark.filterwarnings("ignore:the features have")
@pytest.mark.parametrize("space", ["linear", "wide", "graded", "rbf", "nystroem", "sparse"])
@pytest.mark.parametrize("by", ["judgement", "item", "group"])
def test_held_out_with_covariates_equals_refits(space, by):
    rng = np.random.default_rng(9)
    X, pairs = _items(space, rng), _pairs("cycles", 24, rng)
    C = rng.standard_normal((len(pairs), 2))
    groups = rng.integers(0, 4, len(pairs))
    alphas, options = np.array([1e-3, 1.0, 1e4]), SPACES[space]
    found, std = holdout_judgements(
        RankRLS(**options),
        X,
        pairs,
        by=by,
        groups=groups if by == "group" else None,
        pair_features=C,
        alphas=alphas,
        return_std=True,
    )
    folds = _folds(by, pairs, groups)
    folds = folds[::17] if by == "judgement" else folds[:4]
    for a, alpha in enumerate(alphas):
        for number, fold in enumerate(folds):
            # Without weight: the unit of covariates is that of all pairs.
            weight = np.where(np.isin(np.arange(len(pairs)), fold), 0.0, 1.0)
            model = RankRLS(alpha, **options)
            model.fit(X, pairs=pairs, pair_weight=weight, pair_features=C)
            f = model.predict(X)
            expected = f[pairs[fold, 0]] - f[pairs[fold, 1]] + C[fold] @ model.pair_coef_
            got, deviation = found[a, fold], std[a, fold]
            if by == "item":
                which = (pairs[fold, 0] != np.unique(pairs)[number]).astype(int)
                got = got[np.arange(len(fold)), which]
                deviation = deviation[np.arange(len(fold)), which]
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)
            variance = model._model.variance(X[pairs[fold, 0]], X[pairs[fold, 1]], C[fold])[:, 0]
            np.testing.assert_allclose(deviation**2, variance, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1e6])
def test_the_unit_of_covariates_does_not_matter(unit):
    X, pairs, magnitude, judge, C = _with_position(np.random.default_rng(10))
    given = {"pairs": pairs, "magnitude": magnitude}
    for make in (lambda: RankRLS(0.5), lambda: RankRLSCV(n_jobs=1)):
        more = {} if type(make()) is RankRLS else {"groups": judge}
        one = make().fit(X, pair_features=C, **given, **more)
        other = make().fit(X, pair_features=unit * C, **given, **more)
        np.testing.assert_allclose(other.pair_coef_ * unit, one.pair_coef_, rtol=1e-8)
        np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-8)
        assert getattr(other, "n_refits_", 0) == 0 or (np.asarray(other.n_refits_) == 0).all()


def test_covariates_are_saved_and_checked(tmp_path):
    X, pairs, magnitude, judge, C = _with_position(np.random.default_rng(10))
    for options in ({}, {"kernel": "rbf"}):
        ranker = RankRLSCV(scoring="log_loss", **options).fit(
            X, pairs=pairs, magnitude=magnitude, pair_features=C, groups=judge
        )
        save_model(ranker, tmp_path / "ranker.rankrls")
        loaded = load_model(tmp_path / "ranker.rankrls")
        np.testing.assert_array_equal(loaded.pair_coef_, ranker.pair_coef_)
        both = [
            model.preference_proba(X[:5], X[5:10], pair_features=C[:5])
            for model in (ranker, loaded)
        ]
        np.testing.assert_array_equal(*both)
    with pytest.raises(ValueError, match=r"pair_features must have shape \(5, 3\)"):
        ranker.preference_proba(X[:5], X[5:10], pair_features=C[:5, :2])
    with pytest.raises(ValueError, match="fitted without any"):
        RankRLS().fit(X, pairs=pairs).preference_proba(X[:5], X[5:10], pair_features=C[:5])
    with pytest.raises(ValueError, match="pair_features has 2 entries for"):
        RankRLS().fit(X, pairs=pairs, pair_features=C[:2])
    with pytest.raises(ValueError, match="pair_features belongs to pairs"):
        RankRLS().fit(X, np.arange(40.0), pair_features=C)
    with pytest.raises(ValueError, match="pair_features need a direct solver"):
        RankRLS(solver="cg").fit(X, pairs=pairs, pair_features=C)
    with pytest.raises(ValueError, match=r"got a RankRLSCV\. Pass RankRLS with the alpha_"):
        holdout_judgements(ranker, X, pairs)
    with pytest.raises(ValueError, match=r"rankrls.datasets.load_preferences\(table"):
        RankRLS().fit(X, pairs=[("a", "b")])
    with pytest.raises(ValueError, match="fitted with pair_features: give those of these pairs"):
        audit(ranker, X, pairs=pairs, magnitude=magnitude)
    graph = PreferenceGraph.from_pairs(pairs, n_rows=40, pair_features=C)
    with pytest.raises(ValueError, match="RankSVM takes no pair_features"):
        RankSVM().fit(X, graph)
    with pytest.raises(ValueError, match="fitted with pair_features"):
        RankRLS().fit(X, graph).partial_fit(X, np.arange(40.0))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_nothing_varies_between_compared_items(kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 2))
    P = np.array([(i, (i + step) % 8) for i in range(8) for step in (1, 3)])
    twins = np.array([(i, i + 8) for i in range(8)])
    for rows, pairs in ((np.ones((8, 2)), P), (np.vstack([X, X]), twins)):
        groups = np.arange(len(pairs)) % 3
        for options in ({}, {"by": "group", "groups": groups}):
            mean, std = holdout_judgements(
                RankRLS(kernel=kernel), rows, pairs, return_std=True, **options
            )
            assert not mean.any()
            assert not std.any()
        for scoring, score in (("pairwise_accuracy", 0.5), ("log_loss", -np.log(2))):
            for given in (None, groups):
                search = RankRLSCV(kernel=kernel, scoring=scoring)
                search.fit(rows, pairs=pairs, groups=given)
                assert search.best_score_ == pytest.approx(score)
                assert search.calibration_.slope == 0
        table = audit(RankRLS(kernel=kernel), rows, pairs=pairs)
        np.testing.assert_array_equal(table.deleted_residual, np.ones(len(pairs)))
        audit(RankRLS(kernel=kernel), rows, pairs=pairs, groups=groups)


def _log_loss(model, X, pairs, tie, weight):
    p = model.preference_proba(X[pairs[:, 0]], X[pairs[:, 1]])
    loss = -np.where(tie, 0.5 * np.log(p) + 0.5 * np.log1p(-p), np.log(p))
    return float(np.average(loss, weights=weight))


def test_log_loss_of_calibrated_probabilities_holds_on_new_judgements():
    rng = np.random.default_rng(1)
    X, pairs, magnitude, judge = _judged(rng)
    ranker = RankRLSCV(scoring="log_loss").fit(X, pairs=pairs, magnitude=magnitude, groups=judge)
    assert ranker.best_score_ == pytest.approx(-ranker.calibration_.log_loss, abs=0.01)
    weight = np.ones(len(pairs))
    fitted = _log_loss(ranker, X, pairs, magnitude == 0, weight)
    assert fitted < -ranker.best_score_ < np.log(2)
    f = X @ np.array([2.0, 1.0, -1.0, 0.5, 0.0, 0.0])
    pairs = rng.integers(0, 40, (4000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    seen = f[pairs[:, 0]] - f[pairs[:, 1]] + rng.logistic(size=len(pairs))
    pairs[seen < 0] = pairs[seen < 0][:, ::-1]
    loss = _log_loss(ranker, X, pairs, np.zeros(len(pairs), bool), np.ones(len(pairs)))
    assert loss < 0.45  # the true probabilities have about 0.40; a coin 0.69
    p = ranker.preference_proba(X[:10], X[10:20])
    np.testing.assert_allclose(p + ranker.preference_proba(X[10:20], X[:10]), 1.0)
    assert not np.allclose(p, ranker.preference_proba(X[:10], X[10:20], noisy=False))
