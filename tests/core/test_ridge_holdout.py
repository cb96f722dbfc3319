"""Every hold-out shortcut against explicit refits."""

import numpy as np
import pytest

from cases import COSTS, TIES, WEIGHTINGS, Case
from rankrls import RankRLS, RankRLSCV
from rankrls.estimators.ranker import Preferences
from rankrls.model_selection import (
    LeavePairOut,
    holdout_predict,
    leave_pair_out_auc,
    leave_pair_out_predict,
    leave_pair_out_score,
    leave_query_out_predict,
)

ALPHAS = np.array([1e-9, 1e-4, 1.0, 1e4, 1e9])

MODELS = {
    "primal": {"n": 3},
    "small folds": {"n": 15},
    "wide": {"n": 60},
    "rbf": {"n": 4, "kernel": "rbf", "gamma": 0.2},
}


def refits(ranker, X, y, held, fit, alphas=ALPHAS):
    """Predictions of all rows by models fitted without the held-out ones."""
    rest = np.setdiff1d(np.arange(len(X)), held)
    fit = {name: None if value is None else value[rest] for name, value in fit.items()}
    predictions = []
    for ranker.alpha in alphas:
        predictions.append(ranker.fit(X[rest], y[rest], **fit).predict(X))
    return np.stack(predictions)


def in_turn(number):
    """The first, third and fifth alpha, or the second and fourth."""
    return slice(number % 2, None, 2)


def assert_same_order(actual, refitted, held, tolerance=1e-8):
    """Differences between held-out predictions agree, relative to the spread of the model."""
    for a in range(len(actual)):
        expected = refitted[a][held]
        error = (actual[a] - actual[a].mean(axis=0)) - (expected - expected.mean(axis=0))
        assert np.abs(error).max() <= tolerance * np.ptp(refitted[a], axis=0).max()


def assert_folds(ranker, X, y, folds, fit, alphas=ALPHAS):
    """Differences within queries are those of refits."""
    parts = holdout_predict(ranker, X, y, folds, alphas=alphas, **fit)
    for held, part in zip(folds, parts, strict=True):
        assert part.shape == (len(alphas), len(held))
        refitted = refits(ranker, X, y, held, fit, alphas)
        qid = fit.get("qid", np.zeros(len(y)))[held]
        for query in np.unique(qid):
            assert_same_order(part[:, qid == query], refitted, held[qid == query])


def model(name, **options):
    parameters = MODELS[name] | options
    return parameters.pop("n"), RankRLS(**parameters)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("kind", ["mixed", "graded"])
def test_leave_query_out(name, cost, ties, weighting, kind):
    case = Case(30, m=40, cost=cost, ties=ties, query_weighting=weighting, kind=kind)
    n, ranker = model(name, **case.options)
    X = case.rng.standard_normal((40, n)) + 1e3
    qid = case.fit["qid"]
    qid[:2] = ["single", "pair"]  # queries of size 1 and 2, and one without a preference
    qid[2] = "pair"
    case.y[qid == "b"] = 1.0
    predictions = leave_query_out_predict(ranker, X, case.y, qid=qid, alphas=ALPHAS)
    assert predictions.shape == (5, 40)
    # Refits take the time: half of the queries each, and every other alpha, in turn.
    for number, query in enumerate(np.unique(qid)[kind == "graded" :: 2]):
        held, some = np.flatnonzero(qid == query), in_turn(number + COSTS.index(cost))
        refitted = refits(ranker, X, case.y, held, {"qid": qid}, ALPHAS[some])
        assert_same_order(predictions[some][:, held], refitted, held)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weight", [None, "zeros"])
@pytest.mark.parametrize("ties", TIES)
def test_unions_of_queries_of_any_size(name, weight, ties):
    case = Case(31, m=40, weight=weight, ties=ties)
    n, ranker = model(name, **case.options)
    X = case.rng.standard_normal((40, n))
    X[5:10] = X[0]  # duplicate rows
    qid = case.fit["qid"]
    folds = [np.flatnonzero(np.isin(qid, list(some))) for some in ("a", "bc", "defg", "abh", "h")]
    assert_folds(ranker, X, case.y, folds, case.fit)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("kind", ["continuous", "graded"])
def test_row_folds_of_one_ranking(name, weighting, kind):
    case = Case(32, m=30, qid="one", kind=kind, query_weighting=weighting)
    n, ranker = model(name, query_weighting=weighting)
    X = case.rng.standard_normal((30, n)) + 1e3
    folds = [
        np.array([3]),
        np.array([1, 2]),
        np.arange(10, 17),
        np.arange(5, 25),
        np.array([0, 29]),
    ]
    assert_folds(ranker, X, case.y, folds, {})


@pytest.mark.parametrize("name", ["primal", "rbf"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("cost", COSTS)
def test_folds_that_split_queries_are_exact(name, weighting, cost):
    case = Case(33, m=30, query_weighting=weighting, cost=cost)
    n, ranker = model(name, **case.options)
    X, qid = case.rng.standard_normal((30, n)), case.fit["qid"]
    folds = [np.arange(0, 8), np.flatnonzero(qid == "c"), np.arange(20, 30)]
    assert_folds(ranker, X, case.y, folds, {"qid": qid}, ALPHAS[1:4])


PAIRS = {
    "continuous": {},
    "graded": {},
    "two levels": {"ties": "drop"},
    "two levels, unit": {"cost": "unit", "ties": "drop"},
    "two levels, relative": {"cost": "relative"},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("kind", PAIRS)
def test_leave_pair_out(name, weighting, kind):
    """Pairs of equal weight, or of two levels with ties dropped."""
    two = kind.startswith("two")
    case = Case(34, m=14, qid="one", kind="graded" if two else kind)
    y = np.where(case.y > np.median(case.y), 2.5, -1.0) if two else case.y
    y[:4] = [2.5, 2.5, -1.0, -1.0] if two else y[:4]
    n, ranker = model(name, query_weighting=weighting, **PAIRS[kind])
    # (An offset would make scikit-learn's distances, and so the two rows' kernels, differ.)
    X = case.rng.standard_normal((14, n)) + (0 if name == "rbf" else 1e3)
    X[3 + two] = X[4 + two]
    out = leave_pair_out_predict(ranker, X, y, alphas=ALPHAS)
    pairs = [test for _, test in LeavePairOut().split(X, y)]
    assert out.shape == (5, len(pairs), 2)
    for number in range(WEIGHTINGS.index(weighting), len(pairs), 3):  # together, all of them
        held, some = pairs[number], in_turn(number + WEIGHTINGS.index(weighting))
        refitted = refits(ranker, X, y, held, {}, ALPHAS[some])
        assert_same_order(out[some, number], refitted, held)


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_leave_pair_out_of_two_levels_and_many_features_needs_no_refits():
    rng = np.random.default_rng(35)
    X, y = rng.standard_normal((24, 100)), np.arange(24) % 2
    ranker, alphas = RankRLS(cost="unit"), [1e-6, 1e-3, 1.0]
    results = RankRLSCV(alphas=alphas, cost="unit", cv="leave-pair-out").fit(X, y).cv_results_
    assert not results["n_refits"].any()
    out = leave_pair_out_predict(ranker, X, y, pairs=[[0, 1], [5, 2]], alphas=alphas)
    for number, held in enumerate(([0, 1], [5, 2])):
        refitted = refits(ranker, X, y, np.array(held), {}, alphas)
        assert_same_order(out[:, number], refitted, held)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"ties": "drop"}, {"cost": "unit"}])
@pytest.mark.parametrize("levels", [2, 4])
def test_leave_pair_out_score_is_the_slow_one(options, levels):
    rng = np.random.default_rng(36)
    X, y = rng.standard_normal((20, 3)), rng.integers(0, levels, 20)
    if levels > 2 and options and "kernel" not in options:
        with pytest.raises(ValueError, match="no exact shortcut"):
            leave_pair_out_score(RankRLS(**options), X, y)
        return
    score = leave_pair_out_score(RankRLS(**options), X, y)
    right = []
    for train, test in LeavePairOut().split(X, y):
        i, j = test if y[test[0]] > y[test[1]] else test[::-1]
        f = RankRLS(**options).fit(X[train], y[train]).predict(X)
        right.append(0.5 + 0.5 * np.sign(f[i] - f[j]))
    assert score == pytest.approx(np.mean(right))
    if levels == 2:
        assert score == pytest.approx(leave_pair_out_auc(RankRLS(**options), X, y))


@pytest.mark.parametrize("name", ["primal", "wide", "rbf"])
@pytest.mark.parametrize("cost", COSTS)
def test_several_outputs(name, cost):
    rng = np.random.default_rng(37)
    n, ranker = model(name, cost=cost)
    X, qid = rng.standard_normal((30, n)), rng.integers(0, 5, 30)
    Y = np.column_stack([rng.integers(0, 3, 30), rng.standard_normal(30), rng.integers(0, 2, 30)])
    together = leave_query_out_predict(ranker, X, Y, qid=qid, alphas=[0.1, 10.0])
    assert together.shape == (2, 30, 3)
    for j in range(3):
        alone = leave_query_out_predict(ranker, X, Y[:, j], qid=qid, alphas=[0.1, 10.0])
        for query in range(5):
            rows = qid == query
            one, other = together[:, rows, j], alone[:, rows]
            np.testing.assert_allclose(
                one - one.mean(axis=1, keepdims=True),
                other - other.mean(axis=1, keepdims=True),
                atol=1e-9,
            )
    if cost == "magnitude":
        out = leave_pair_out_predict(ranker, X, Y)
        assert out.shape == (30 * 29 // 2, 2, 3)
        pairs = np.column_stack(np.triu_indices(30, 1))
        for j in range(3):
            alone = leave_pair_out_predict(ranker, X, Y[:, j], pairs=pairs)
            np.testing.assert_allclose(out[..., j], alone, atol=1e-9)


@pytest.mark.parametrize("rank", [2, 6])
@pytest.mark.parametrize("case", ["queries", "rows", "pairs", "classes"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_singular_kernel_matrix(rank, case, weighting):
    """A precomputed kernel of low rank, against the model on the features that made it."""
    rng = np.random.default_rng(43)
    m = 16
    Z = rng.standard_normal((m, rank))
    y = rng.standard_normal(m) if case != "classes" else np.tile([1.0, 0.0], m // 2)
    qid = np.arange(m) // 4 if case == "queries" else None
    options = {"query_weighting": weighting, "ties": "drop" if case == "classes" else "keep"}
    ranker = RankRLS(kernel="precomputed", **options)
    if case in ("queries", "rows"):
        folds = [np.arange(4 * i, 4 * i + 4) for i in range(4)]
        parts = holdout_predict(ranker, Z @ Z.T, y, folds, qid=qid, alphas=ALPHAS)
    else:
        folds = [test for _, test in LeavePairOut().split(Z, y)]
        out = leave_pair_out_predict(ranker, Z @ Z.T, y, alphas=ALPHAS)
        parts = [out[:, number] for number in range(len(folds))]
    # Refits take the time: of many pairs every third one, together all of them.
    some = slice(WEIGHTINGS.index(weighting), None, 3) if len(folds) > 4 else slice(None)
    for held, part in zip(folds[some], parts[some], strict=True):
        refitted = refits(RankRLS(**options), Z, y, held, {"qid": qid})
        assert_same_order(part, refitted, held)


def test_near_singular_folds_are_refitted_and_counted(monkeypatch):
    rng = np.random.default_rng(41)
    X, y, qid = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.integers(0, 5, 30)
    ranker = RankRLS(0.1)
    kernel, X_checked, graph = ranker._prepare(X, Preferences(y, qid))
    folds = [np.flatnonzero(qid == q) for q in range(5)]

    def held():
        problem = ranker._problem(kernel, X_checked, graph)
        return problem.leave_out(folds, np.array([0.1]))

    plain = held()
    assert plain.n_refits == 0
    monkeypatch.setattr("rankrls.core.ridge.residuals.SINGULAR", 2.0)
    refitted = held()
    assert refitted.n_refits == 5
    for one, other in zip(plain.predictions, refitted.predictions, strict=True):
        np.testing.assert_allclose(one - one.mean(), other - other.mean(), atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y, q: leave_query_out_predict(RankRLS(), X, y, qid=None), "needs qid"),
        (lambda X, y, q: leave_query_out_predict(RankRLS(), X, y, qid=q[:5]), "qid has 5 entries"),
        (lambda X, y, q: leave_pair_out_predict(RankRLS(cost="unit"), X, y), "no exact shortcut"),
        (lambda X, y, q: leave_pair_out_score(RankRLS(basis=5), X, y), "no exact shortcut"),
        (lambda X, y, q: holdout_predict(RankRLS(), X, y, [[0, 99]]), "numbered 0 to 19"),
        (lambda X, y, q: holdout_predict(RankRLS(), X, y, [[0, 0]]), "names a row twice"),
        (lambda X, y, q: holdout_predict(RankRLS(), X, y, [[]]), "must be row numbers"),
        (lambda X, y, q: holdout_predict(RankRLS(), X, y, q), "must be row numbers"),
        (lambda X, y, q: holdout_predict(RankRLS(), X, y, [range(20)]), "nothing is left"),
        (
            lambda X, y, q: holdout_predict("x", X, y, [[0]]),
            "must be a RankRLS.*leave_pair_out_auc",
        ),
        (lambda X, y, q: leave_pair_out_predict(RankRLS(), X, y, alphas=[-1]), "alphas must be"),
        (lambda X, y, q: leave_pair_out_predict(RankRLS(), X, y, alphas=[]), "alphas"),
        (lambda X, y, q: leave_pair_out_predict(RankRLS(), X, y, pairs=[(0, 0)]), "to itself"),
    ],
)
def test_bad_input(call, message):
    rng = np.random.default_rng(42)
    X, y, qid = rng.standard_normal((20, 3)), rng.integers(0, 4, 20), np.arange(20) // 5
    with pytest.raises(ValueError, match=message):
        call(X, y, qid)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("k", [1, 2])
def test_equal_rows_of_a_query_are_tied_in_any_order(kernel, k):
    rng = np.random.default_rng(1)
    X = rng.random((40, 17))[rng.integers(0, 40, 300)]
    y, qid = rng.normal(size=(300, k)), rng.integers(0, 12, 300)
    _, first = np.unique(np.column_stack([qid, X]), axis=0, return_inverse=True)
    first = first.ravel()
    for order in (np.arange(300), rng.permutation(300)):
        held = leave_query_out_predict(
            RankRLS(0.1, kernel=kernel), X[order], y[order], qid=qid[order], alphas=[0.1, 10.0]
        )
        for group in range(first.max() + 1):
            values = held[:, first[order] == group]
            assert (values == values[:, :1]).all()


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"ties": "drop"}])
def test_equal_rows_are_tied_in_held_out_pairs(options):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(24, 5)), np.repeat([0.0, 1.0], 12)
    X[12:] = X[:12]
    for order in (np.arange(24), rng.permutation(24)):
        held = leave_pair_out_predict(RankRLS(**options), X[order], y[order])
        score = leave_pair_out_score(RankRLS(**options), X[order], y[order])
        i, j = np.nonzero(np.triu(y[order][:, None] != y[order], 1))
        equal = (X[order][i] == X[order][j]).all(axis=1)
        assert (held[equal, 0] == held[equal, 1]).all()
        right = np.sign(y[order][i] - y[order][j]) * np.sign(held[:, 0] - held[:, 1])
        assert score == pytest.approx((1 + right.mean()) / 2, abs=1e-12)
        found = RankRLSCV([1.0, 10.0], **options).fit(X[order], y[order])
        scores = [leave_pair_out_score(RankRLS(a, **options), X, y) for a in (1.0, 10.0)]
        np.testing.assert_allclose(found.cv_results_["mean_score"], scores, rtol=1e-12)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_pairs_given_inside_queries(kernel):
    case = Case(40, m=30)
    X, qid = case.rng.standard_normal((30, 3)), case.fit["qid"]
    rows = np.flatnonzero(qid == "c")
    pairs = np.array([[rows[0], rows[1]], [rows[2], rows[0]]])
    out = leave_query_out_predict(RankRLS(kernel=kernel), X, case.y, qid=qid, pairs=pairs)
    held = np.flatnonzero(qid == "a")
    rest = np.setdiff1d(np.arange(30), held)
    fitted = RankRLS(kernel=kernel).fit(
        X[rest], case.y[rest], qid=qid[rest], pairs=np.searchsorted(rest, pairs)
    )
    assert_same_order(out[None, held], fitted.predict(X)[None], held)
