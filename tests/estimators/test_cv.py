"""RankRLSCV: equal to loops that refit RankRLS for every fold and alpha, and choose the best."""

import itertools
import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import make_scorer, ndcg_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    RepeatedKFold,
    StratifiedKFold,
)

import cases
import rankrls.estimators.cv as module
from rankrls import AutoRanker, PreferenceGraph, RankRLS, RankRLSCV, metrics
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.io import load_model, save_model
from rankrls.metrics import concordance_index, ndcg, pairwise_accuracy
from rankrls.model_selection import (
    ComponentKFold,
    LeavePairOut,
    LeaveQueryOut,
    QueryKFold,
    holdout_judgements,
    leave_query_out_predict,
)

N, D = 26, 4
ALPHAS = (0.03, 1.0, 40.0)
EDGE = "ignore:the best alpha"

MODELS = {
    "linear": {},
    "wide": {},
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "nystroem": {"kernel": "rbf", "basis": [0, 3, 7, 8, 14, 20, 25]},
}
NAMED = [
    "pairwise_accuracy",
    "concordance_index",
    "ndcg",
    "ndcg@5",
    "average_precision",
    "reciprocal_rank",
    "precision",
    "precision@2",
]

pytestmark = pytest.mark.filterwarnings(EDGE, "ignore:The groups parameter is ignored")


def make(seed=0, kind="graded", outputs=1, m=N, d=D):
    """Noisy scores; queries a to f in random row order, f with one row and e without a pair."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    y = np.column_stack([cases.scores(kind, m, rng) + X[:, 0].round() for _ in range(outputs)])
    y -= y.min()
    qid = rng.permutation(np.array(list("abcdeeef") + list("abcd") * m)[:m])
    y[qid == "e"] = 1.0
    return X, y if outputs > 1 else y[:, 0], qid


def data_for(model, **options):
    return make(d=40 if model == "wide" else D, **options)


def smooth(y_true, y_score, *, qid):
    """Least squares on the differences of a list: sensitive to every digit of a prediction."""
    total = 0.0
    for query in np.unique(qid):
        error = (y_true - y_score)[qid == query]
        total -= np.square(error - error.mean()).sum()
    return total


def spread(y_true, y_score, *, qid):
    """Size of the predictions within lists: between lists they cannot be compared."""
    return sum(np.ptp(y_score[qid == query]) for query in np.unique(qid))


# ---------------------------------------------------------------------- the loops


def refit(params, alpha, X, y, train, test, qid=None, weight=None):
    """Predictions of the rows ``test`` by a model of the rows ``train``."""
    params = dict(params)
    if "basis" in params:
        params["basis"] = np.flatnonzero(np.isin(train, params["basis"]))
    part = {"qid": qid, "sample_weight": weight}
    part = {name: value[train] for name, value in part.items() if value is not None}
    return RankRLS(alpha, **params).fit(X[train], y[train], **part).predict(X[test])


def literal_scores(params, X, y, folds, metric, qid=None, weight=None, alphas=ALPHAS):
    """Mean score of every alpha: one refit for every fold, one list for every query and fold."""
    found = []
    for alpha in alphas:
        labels, predictions, lists = [], [], []
        for number, test in enumerate(folds):
            train = np.setdiff1d(np.arange(len(X)), test)
            labels.append(y[test])
            predictions.append(refit(params, alpha, X, y, train, test, qid, weight))
            lists += [f"{number} {'' if qid is None else qid[i]}" for i in test]
        labels, predictions = np.concatenate(labels), np.concatenate(predictions)
        columns = zip(
            labels.reshape(len(lists), -1).T, predictions.reshape(len(lists), -1).T, strict=True
        )
        found.append(np.mean([metric(a, b, qid=np.array(lists)) for a, b in columns]))
    return np.array(found)


def literal_pair_scores(params, X, y, alphas=ALPHAS):
    """Leave-pair-out: a refit for every pair."""
    m, Y = len(X), y.reshape(len(X), -1)
    found = []
    for alpha in alphas:
        right, counted = np.zeros(Y.shape[1]), np.zeros(Y.shape[1])
        for i, j in itertools.combinations(range(m), 2):
            train = np.setdiff1d(np.arange(m), [i, j])
            a, b = refit(params, alpha, X, y, train, np.array([i, j])).reshape(2, -1)
            order = np.sign(Y[i] - Y[j])
            right += np.where(order != 0, (1 + order * np.sign(a - b)) / 2, 0)
            counted += order != 0
        found.append(np.mean(right / counted))
    return np.array(found)


def by_query(qid):
    return [np.flatnonzero(qid == query) for query in np.unique(qid)]


def fit_cv(X, y, *, alphas=ALPHAS, qid=None, weight=None, splits=False, **params):
    """Fit; ``splits``: with a warning that cv splits queries."""
    ranker = RankRLSCV(alphas, **params)
    with pytest.warns(UserWarning, match="splits queries") if splits else nullcontext():
        return ranker.fit(X, y, qid=qid, sample_weight=weight)


def assert_chosen(ranker, scores, alphas=ALPHAS, **tolerance):
    """The results are those of the loop, and what follows from them."""
    results = ranker.cv_results_
    assert list(results)[:3] == ["alpha", "mean_score", "n_refits"]
    assert list(results)[3:] in ([], ["std_score", "n_scores"])
    assert_array_equal(results["alpha"], alphas)
    assert_allclose(results["mean_score"], scores, **({"rtol": 1e-12} | tolerance))
    best = max(results["mean_score"])
    assert ranker.best_score_ == best
    chosen = [a for a, s in zip(alphas, results["mean_score"], strict=True) if s == best]
    assert ranker.alpha_ == max(chosen)


def spy(monkeypatch):
    """Record all folds that are held out."""
    seen = []
    original = RidgeProblem.leave_out

    def folds(self, folds, alphas):
        seen.append([np.array(rows) for rows in folds])
        return original(self, folds, alphas)

    monkeypatch.setattr(RidgeProblem, "leave_out", folds)
    return seen


# ---------------------------------------------------------------------- leave-query-out


LOSSES = [
    ("magnitude", "keep", "pair"),
    ("magnitude", "drop", "size"),
    ("unit", "keep", "query"),
    ("relative", "keep", "pair"),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", LOSSES, ids="-".join)
@pytest.mark.parametrize(
    ("outputs", "weights"), [(1, None), (2, None), (1, "zeros"), (1, "positive")]
)
def test_leave_query_out(loss, model, outputs, weights):
    X, y, qid = data_for(model, outputs=outputs)
    weight = None if weights is None else cases.weights(weights, N, np.random.default_rng(5))
    params = MODELS[model] | dict(zip(("cost", "ties", "query_weighting"), loss, strict=True))
    # At alphas of a default grid the shortcut could lose digits.
    alphas = 2.0 ** np.array([-15, -8, 0, 8, 15]) if outputs == 1 else ALPHAS
    options = {"qid": qid, "weight": weight, "alphas": alphas}
    ranker = fit_cv(X, y, cv="leave-query-out", scoring=smooth, **options, **params)
    expected = literal_scores(params, X, y, by_query(qid), smooth, **options)
    assert_chosen(ranker, expected, alphas, rtol=1e-5)


# ---------------------------------------------------------------------- metrics


@pytest.mark.parametrize("scoring", NAMED)
@pytest.mark.parametrize("with_qid", [True, False])
def test_metrics_by_name(scoring, with_qid):
    X, y, qid = make(seed=4)
    name, _, k = scoring.partition("@")
    metric = partial(getattr(metrics, name), **({"k": int(k)} if k else {}))
    if with_qid:
        cv, qid, folds = "leave-query-out", qid, by_query(qid)
    else:
        cv, qid, folds = KFold(4), None, [test for _, test in KFold(4).split(X)]
    ranker = fit_cv(X, y, qid=qid, cv=cv, scoring=scoring)
    assert_chosen(ranker, literal_scores({}, X, y, folds, metric, qid))


# ---------------------------------------------------------------------- folds


@pytest.mark.parametrize("with_qid", [True, False])
@pytest.mark.parametrize("cost", cases.COSTS)
def test_int_cv(cost, with_qid, monkeypatch):
    k = 4
    X, y, qid = make(seed=7)
    qid = qid if with_qid else None
    seen = spy(monkeypatch)
    ranker = fit_cv(X, y, qid=qid, cv=k, scoring=smooth, cost=cost, random_state=0)
    (folds,) = seen
    assert len(folds) == k
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(N))
    units = [rows if qid is None else np.unique(qid[rows]) for rows in folds]
    sizes = [len(unit) for unit in units]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == (N if qid is None else 6)  # whole queries
    expected = literal_scores({"cost": cost}, X, y, folds, smooth, qid)
    assert_chosen(ranker, expected, rtol=1e-6)


GRAPH = object()
SPLITTERS = {
    "ComponentKFold": (ComponentKFold(3), GRAPH),
    "KFold of queries": (KFold(3), True),
    "GroupKFold": (GroupKFold(3), True),
    "LeaveOneGroupOut": (LeaveOneGroupOut(), True),
    "LeaveQueryOut": (LeaveQueryOut(), True),
    "QueryKFold": (QueryKFold(3), True),
    "KFold": (KFold(3), False),
    "StratifiedKFold": (StratifiedKFold(2), False),
    "RepeatedKFold": (RepeatedKFold(n_splits=2, n_repeats=2, random_state=0), False),
    "LeavePairOut of queries": (LeavePairOut(), True),
    "LeavePairOut": (LeavePairOut(), False),
}


@pytest.mark.parametrize("model", ["linear", "rbf", "nystroem"])
@pytest.mark.parametrize("name", SPLITTERS)
def test_splitters(name, model):
    splitter, with_qid = SPLITTERS[name]
    X, y, qid = make(seed=10, m=26 if model == "nystroem" else 18)
    y = np.digitize(y, np.quantile(y, [0.3, 0.7])) * 1.0  # classes for StratifiedKFold
    qid = qid if with_qid else None
    graph = PreferenceGraph.from_scores(y, qid=qid)
    given = (graph, None) if with_qid is GRAPH else (y, qid)
    folds = [test for _, test in splitter.split(X, graph if with_qid is GRAPH else y, groups=qid)]
    params = MODELS[model] | {"query_weighting": "size"}
    options = {"cv": splitter, "scoring": smooth, "splits": name == "KFold of queries"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The groups parameter is ignored")
        ranker = fit_cv(X, given[0], qid=given[1], **options, **params)
    assert_chosen(ranker, literal_scores(params, X, y, folds, smooth, qid), rtol=1e-6)


def test_iterables_of_splits():
    """A list, a generator, lists of ints, masks; some rows never held out, folds that overlap."""
    X, y, qid = make(seed=11)
    everything = np.arange(N)
    folds = [everything[:6], everything[4:9], np.array([20, 3, 11, 25])]
    splits = [(np.setdiff1d(everything, rows), rows) for rows in folds]
    expected = literal_scores({}, X, y, folds, smooth)
    masks = [(~np.isin(everything, rows), np.isin(everything, rows)) for rows in folds]
    for cv in (splits, iter(splits), [(a.tolist(), b.tolist()) for a, b in splits], masks):
        assert_chosen(fit_cv(X, y, cv=cv, scoring=smooth), expected, rtol=1e-6)
    whole = [np.flatnonzero(np.isin(qid, some)) for some in (["a"], ["b", "f"])]
    splits = [(np.setdiff1d(everything, rows), rows) for rows in whole]
    expected = literal_scores({}, X, y, whole, smooth, qid)
    assert_chosen(fit_cv(X, y, qid=qid, cv=splits, scoring=smooth), expected, rtol=1e-6)


def test_gamma_of_judgements_and_updates():
    X, y, qid = make(seed=34)
    pairs = np.array([(i, j) if y[i] > y[j] else (j, i) for i, j in itertools.pairwise(range(N))])
    ranker = RankRLSCV(ALPHAS, kernel="rbf", gamma=(0.1, 1.0)).fit(X, pairs=pairs)
    single = [RankRLSCV(ALPHAS, kernel="rbf", gamma=g).fit(X, pairs=pairs) for g in (0.1, 1.0)]
    assert ranker.best_score_ == max(one.best_score_ for one in single)
    options = {"kernel": "rbf", "gamma": [0.1, 1.0], "basis": [0, 5, 9], "solver": "nystroem"}
    some = np.isin(qid, ["a", "b", "c"])
    ranker = RankRLSCV(ALPHAS, **options).fit(X[some], y[some], qid=qid[some])
    other = RankRLS(ranker.alpha_, **options | {"gamma": ranker.gamma_})
    other.fit(X[some], y[some], qid=qid[some])
    for one in (ranker, other):
        one.partial_fit(X[~some], y[~some], qid=qid[~some])
    assert_allclose(ranker.predict(X), other.predict(X))


@pytest.mark.parametrize("model", ["linear", "wide", "rbf"])
@pytest.mark.parametrize("weighting", cases.WEIGHTINGS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_leave_pair_out(outputs, weighting, model):
    X, y, _ = data_for(model, seed=12, m=8, outputs=outputs, kind="mixed")
    params = MODELS[model] | {"query_weighting": weighting}
    alphas = ALPHAS[:2]
    expected = literal_pair_scores(params, X, y, alphas)
    for scoring in ("pairwise_accuracy", "concordance_index"):
        ranker = fit_cv(X, y, alphas=alphas, cv="leave-pair-out", scoring=scoring, **params)
        assert_chosen(ranker, expected, alphas)


def test_number_of_refits():
    """No shortcut: every fold is refitted at every alpha. A shortcut: none is."""
    X, y, qid = make(seed=14)
    assert_array_equal(fit_cv(X, y, qid=qid).cv_results_["n_refits"], 0)
    assert_array_equal(fit_cv(X, y).cv_results_["n_refits"], 0)
    assert_array_equal(fit_cv(X, y, cv=4, cost="unit").cv_results_["n_refits"], 4)


# ---------------------------------------------------------------------- the choice


def test_largest_of_equally_good_alphas():
    X, y, qid = make(seed=15)
    alphas = 10.0 ** np.arange(-3, 4)
    sizes = literal_scores({}, X, y, by_query(qid), spread, qid, alphas=alphas)
    assert (np.diff(sizes) < 0).all()  # the larger alpha, the smaller the predictions

    def wide_enough(y_true, y_score, *, qid):
        return float(spread(y_true, y_score, qid=qid) > sizes[4:6].mean())

    ranker = fit_cv(X, y, qid=qid, alphas=alphas, scoring=wide_enough)
    assert_array_equal(ranker.cv_results_["mean_score"], [1, 1, 1, 1, 1, 0, 0])
    assert ranker.alpha_ == alphas[4]
    assert ranker.best_score_ == 1.0
    always = fit_cv(X, y, qid=qid, alphas=alphas, scoring=lambda *args, qid: 0.5)
    assert always.alpha_ == alphas[-1]


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("spread_out", [False, True])
@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_default_grid_goes_as_far_as_the_scale_asks(scale, spread_out):
    data, step = (load_breast_cancer(), 8) if spread_out else (load_iris(), 3)
    X, y = data.data[::step], data.target[::step]
    plain = RankRLSCV(2.0 ** np.arange(-40, 40)).fit(X, y)
    moved = RankRLSCV().fit(scale * X, y)  # a warning would be an error here
    assert moved.best_score_ >= plain.best_score_ - 1e-3
    best = np.flatnonzero(plain.cv_results_["mean_score"] >= plain.best_score_ - 1e-3)
    low, high = plain.cv_results_["alpha"][best[[0, -1]]] * scale**2
    assert low / 2 <= moved.alpha_ <= high * 2
    assert_array_equal(np.diff(np.log2(moved.alphas_)), 1.0)
    assert set(2.0 ** np.arange(-15, 16)) <= set(moved.alphas_)


@pytest.mark.parametrize("cv", ["auto", 3, "validation"])
def test_grid_goes_on_where_the_best_is_at_its_end(cv):
    X, y, qid = make(seed=17)

    def small(y_true, y_score, *, qid):
        return -float(np.log(np.abs(y_score).max()))  # better and better as alpha grows

    options = {"scoring": small, "cv": cv, "random_state": 0}
    with pytest.warns(UserWarning, match="is the largest of the grid: extend alphas"):
        ranker = RankRLSCV(**options).fit(X, y, qid=qid)
    assert ranker.alpha_ == ranker.alphas_[-1] > 2.0**16
    given = RankRLSCV(ranker.alphas_, **options)
    with pytest.warns(UserWarning, match="extend alphas"):
        given.fit(X, y, qid=qid)
    for name, values in ranker.cv_results_.items():
        assert_allclose(values, given.cv_results_[name], rtol=1e-9)
    assert_allclose(ranker.coef_, given.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("sign", "where", "alpha"), [(1, "smallest", "0.001"), (-1, "largest", "100")]
)
def test_warning_at_the_edge(sign, where, alpha):
    X, y, qid = make(seed=17)
    ranker = RankRLSCV(
        [0.001, 1.0, 100.0], scoring=lambda *args, qid: sign * spread(*args, qid=qid)
    )
    with pytest.warns(UserWarning, match=f"best alpha, {alpha}, is the {where} of") as caught:
        ranker.fit(X, y, qid=qid)
    assert caught[0].filename == __file__


def test_no_warning_inside():
    X, y, qid = make(seed=17)

    def middle(y_true, y_score, *, qid):
        return -abs(spread(y_true, y_score, qid=qid) - middle.target)

    middle.target = literal_scores({}, X, y, by_query(qid), spread, qid, alphas=[1.0])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = RankRLSCV([1e3, 1, 1, 1e-3], scoring=middle).fit(X, y, qid=qid)
        assert ranker.alpha_ == 1.0
        assert_array_equal(ranker.cv_results_["alpha"], [1e-3, 1.0, 1e3])
        assert RankRLSCV(2.0).fit(X, y, qid=qid).alpha_ == 2.0  # a grid of one has no edge


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cost", cases.COSTS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_final_model_is_that_of_rankrls(outputs, cost, model):
    X, y, qid = data_for(model, seed=18, outputs=outputs)
    params = MODELS[model] | {"cost": cost, "query_weighting": "size"}
    weight = np.linspace(0.5, 2.0, N)
    ranker = fit_cv(X, y, qid=qid, weight=weight, **params)
    expected = RankRLS(ranker.alpha_, **params).fit(X, y, qid=qid, sample_weight=weight)
    same = partial(assert_allclose, rtol=1e-10, atol=1e-12)  # BLAS rounds blocks of K differently
    for name in ("coef_", "dual_coef_", "basis_indices_", "n_pairs_", "n_queries_", "solver_"):
        assert hasattr(ranker, name) == hasattr(expected, name)
        if hasattr(expected, name):
            compare = assert_array_equal if name == "solver_" else same
            compare(getattr(ranker, name), getattr(expected, name))
    same(ranker.predict(X), expected.predict(X))
    same(ranker.predict(X, return_std=True), expected.predict(X, return_std=True))
    assert ranker.score(X, y, qid=qid) == expected.score(X, y, qid=qid)
    same(ranker.preference_proba(X[:5], X[5:10]), expected.preference_proba(X[:5], X[5:10]))


# ---------------------------------------------------------------------- cv="auto"


def same_results(a, b):
    return all(np.array_equal(a.cv_results_[name], b.cv_results_[name]) for name in a.cv_results_)


def test_auto(monkeypatch):
    X, y, qid = make(seed=19)
    auto = partial(fit_cv, X, y, random_state=3)
    ten = auto(cv=N // 5)  # ten folds, but none smaller than five rows
    pairs = auto(cv="leave-pair-out")
    assert not same_results(ten, pairs)
    assert same_results(auto(), pairs)
    assert same_results(auto(qid=qid), auto(qid=qid, cv="leave-query-out"))
    assert same_results(auto(scoring="concordance_index"), pairs)
    for params in (
        {"cost": "unit"},
        {"cost": "relative"},
        {"ties": "drop"},
        {"scoring": "ndcg"},
        {"scoring": smooth},
        {"kernel": "rbf", "basis": 8},
        {"weight": np.ones(N)},
    ):
        assert same_results(auto(**params), auto(cv=N // 5, **params)), params
    monkeypatch.setattr(module, "MAX_PAIR_ROWS", N - 1)
    assert same_results(auto(), ten)
    assert same_results(auto(cv="leave-pair-out"), pairs)
    assert same_results(auto(qid=qid), auto(qid=qid, cv="leave-query-out"))
    monkeypatch.setattr(module, "MAX_PAIR_ROWS", N)
    assert same_results(auto(), pairs)


# ---------------------------------------------------------------------- bad input


X_BAD, Y_BAD, QID_BAD = make(seed=27)
ONE_QUERY = np.where(QID_BAD == "a", Y_BAD, 1.0)
PAIR_IN_IT = {"pairs": [np.flatnonzero(QID_BAD == "a")[:2]]}


def case(name, message, *, fit=None, y=Y_BAD, **params):
    return pytest.param(params, y, fit or {}, message, id=name)


NO_SHORTCUT = "no exact shortcut"
WITH_QID, PAIRS_BAD = {"qid": QID_BAD}, {"pairs": [(i, i + 1) for i in range(20)]}

BAD = [
    case("cv unknown", "cv must be one of 'auto', 'leave-query-out'", cv="leave-one-out"),
    case("cv 0", "26 rows cannot be held out in 0 folds: there can be 2 to 26", cv=0),
    case("cv more than queries", "6 queries cannot be held out in 7 folds", cv=7, fit=WITH_QID),
    case("leave-query-out without qid", "'leave-query-out' needs qid", cv="leave-query-out"),
    case("leave-pair-out with qid", NO_SHORTCUT, cv="leave-pair-out", fit=WITH_QID),
    case("leave-pair-out unit", NO_SHORTCUT, cv="leave-pair-out", cost="unit"),
    case("scoring unknown", "scoring must be one of 'pairwise_accuracy'", scoring="kendall"),
    case("scoring error", "use 'pairwise_accuracy', 1 − the error", scoring="pairwise_error"),
    case("scoring cut-off", "as in 'ndcg@10'", scoring="ndcg@ten"),
    case("scoring None", "scoring must be the name of a metric, .*; got None", scoring=None),
    case("scoring NaN", "scoring", scoring=lambda *args, qid: np.nan),
    case("lists of a pair", "leave-pair-out compares two", cv="leave-pair-out", scoring="ndcg"),
    case("alphas empty", "alphas is empty; give at least one number > 0", alphas=[]),
    case("alphas 0", "alphas must be finite and > 0; got 0", alphas=[1.0, 0.0]),
    case(
        "pairs only", "'auto', 'leave-judgement-out'", y=None, cv="leave-query-out", fit=PAIRS_BAD
    ),
    case("one informative query", "nothing is left to learn from", y=ONE_QUERY, fit=WITH_QID),
    case("a pair in it", "nothing is left", y=ONE_QUERY, cv=3, fit=WITH_QID | PAIR_IN_IT),
    case("cg and folds", "leave cv='auto'", solver="cg", cv=3),
    case("gamma negative", "gamma must be finite and > 0", kernel="rbf", gamma=[1.0, -1.0]),
    case("gamma linear", "kernel='linear' has no gamma to choose", gamma=[1.0]),
    case("roc_auc", "'pairwise_accuracy' is the AUC", scoring="roc_auc"),
    case("groups", r"groups says which given pairs .* pass .* as qid", fit={"groups": QID_BAD}),
    case("log_loss", "'log_loss' needs given pairs that are left out", scoring="log_loss"),
    case("one query", r"leaves no query with a pair.*leave out qid", fit={"qid": np.zeros(N)}),
]


@pytest.mark.parametrize(("params", "y", "fit", "message"), BAD)
def test_bad_input(params, y, fit, message):
    ranker = RankRLSCV(**({"alphas": ALPHAS, "random_state": 0} | params))
    with pytest.raises(ValueError, match=message):
        ranker.fit(X_BAD, y, **fit)
    assert not hasattr(ranker, "alpha_") or not hasattr(ranker, "coef_")


# ---------------------------------------------------------------------- the final score


@pytest.mark.parametrize(("scoring", "metric"), [("pairwise_accuracy", None), ("ndcg@3", 3)])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.filterwarnings(EDGE)
def test_spread_of_the_scores(scoring, metric, grouped, outputs):
    X, y, qid = make(seed=31, outputs=outputs)
    folds = by_query(qid) if grouped else np.array_split(np.arange(N), 5)
    splits = [(np.setdiff1d(np.arange(N), test), test) for test in folds]
    ranker = fit_cv(X, y, qid=qid if grouped else None, cv=splits, scoring=scoring)
    Y = y.reshape(N, -1)
    for a, alpha in enumerate(ALPHAS):
        deviations, counts = [], []
        for j in range(outputs):
            values = []
            for train, test in splits:
                f = refit({}, alpha, X, Y, train, test, qid if grouped else None)[:, j]
                if metric is not None:
                    values.append(ndcg(Y[test, j], f, k=metric))
                elif np.ptp(Y[test, j]) > 0:
                    values.append(pairwise_accuracy(Y[test, j], f))
            deviations.append(np.std(values))
            counts.append(len(values))
        assert_allclose(ranker.cv_results_["std_score"][a], np.mean(deviations), atol=1e-12)
        assert ranker.cv_results_["n_scores"][a] == min(counts)


# ---------------------------------------------------------------------- several gammas


@pytest.mark.parametrize("cv", ["leave-query-out", 3, "validation"])
def test_gamma_is_chosen_with_alpha(cv, tmp_path):
    """As by separate fits for every gamma."""
    X, y, qid = make(seed=33)
    gammas = [0.01, 3.0, 0.3]
    options = {"kernel": "rbf", "cv": cv, "random_state": 0}
    ranker = RankRLSCV(ALPHAS, gamma=gammas, **options).fit(X, y, qid=qid)
    single = [RankRLSCV(ALPHAS, gamma=g, **options).fit(X, y, qid=qid) for g in gammas]
    best = max(single, key=lambda one: one.best_score_)
    assert (ranker.gamma_, ranker.alpha_, ranker.best_score_) == (
        best.gamma,
        best.alpha_,
        best.best_score_,
    )
    assert_allclose(ranker.predict(X), best.predict(X), rtol=1e-12)
    results = ranker.cv_results_
    assert_array_equal(results["gamma"], np.repeat(gammas, len(ALPHAS)))
    for name in ("alpha", "mean_score"):
        expected = np.concatenate([one.cv_results_[name] for one in single])
        assert_array_equal(results[name], expected)
    assert_array_equal(ranker.alphas_, ALPHAS)
    save_model(ranker, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.gamma_ == ranker.gamma_
    assert_allclose(loaded.predict(X), ranker.predict(X))
    assert not hasattr(ranker.set_params(gamma=1.0).fit(X, y, qid=qid), "gamma_")


def test_gammas_that_are_not_chosen_warn_of_nothing():
    X, y, qid = make(seed=33)
    grid = 2.0 ** np.array([-9, 0, 9])
    with pytest.warns(UserWarning, match="the best alpha, 0.00195312, is the smallest of the grid"):
        RankRLSCV(grid, kernel="rbf", gamma=0.1).fit(X, y, qid=qid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = RankRLSCV(grid, kernel="rbf", gamma=[0.1, 0.3]).fit(X, y, qid=qid)
    assert (ranker.gamma_, ranker.alpha_) == (0.3, 1.0)


# ---------------------------------------------------------------------- stored predictions


@pytest.mark.parametrize("cv", ["auto", 4])
@pytest.mark.parametrize("outputs", [1, 2])
def test_stored_predictions_are_those_of_holdout(cv, outputs):
    X, y, qid = make(seed=37, outputs=outputs)
    ranker = fit_cv(X, y, qid=qid, cv=cv, random_state=0, store_cv_predictions=True)
    if cv == "auto":
        expected = leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=ALPHAS)
        assert_allclose(ranker.cv_predictions_, expected)
    assert ranker.cv_predictions_.shape == (len(ALPHAS), *y.shape)
    assert not hasattr(fit_cv(X, y, qid=qid), "cv_predictions_")


def test_stored_predictions_of_one_ranking_and_of_pairs():
    X, y, _ = make(seed=38)
    ranker = fit_cv(X, y, store_cv_predictions=True, random_state=0)
    assert np.isfinite(ranker.cv_predictions_).all()
    pairs = np.array([(i, j) if y[i] > y[j] else (j, i) for i, j in itertools.pairwise(range(N))])
    for cv, by in (("auto", "judgement"), ("leave-item-out", "item")):
        ranker = RankRLSCV(ALPHAS, cv=cv, store_cv_predictions=True).fit(X, pairs=pairs)
        expected = holdout_judgements(RankRLS(), X, pairs, by=by, alphas=ALPHAS)
        assert_allclose(ranker.cv_predictions_, expected)
    for options in ({"cv": "leave-pair-out"}, {"cv": "validation"}):
        with pytest.raises(ValueError, match="store_cv_predictions"):
            fit_cv(X, y, store_cv_predictions=True, **options)


# ---------------------------------------------------------------------- the choice


def test_the_model_of_early_stopping_is_that_of_alpha():
    """Errors that differ by less than the tolerance of the choice used to belong to two alphas."""
    X, y, qid = make(seed=39, m=120)
    eval_set = (X, y, qid)

    def nearly_flat(y_true, y_score, *, qid):
        return 0.5 + 1e-8 * float(np.corrcoef(y_true, y_score)[0, 1])

    grid = np.array([0.1, 10.0, 1000.0])
    ranker = RankRLSCV(grid, early_stopping=True, scoring=nearly_flat, n_iter_no_change=2)
    ranker.fit(X, y, qid=qid, eval_set=eval_set)
    assert ranker.best_score_ == max(ranker.cv_results_["mean_score"])
    assert ranker._model.alpha == ranker.alpha_
    score = nearly_flat(y, ranker.predict(X), qid=qid)
    assert score == pytest.approx(ranker.best_score_, rel=0, abs=1e-14)
    RankRLSCV([0.0, 1.0], early_stopping=np.bool_(True)).fit(X, y, qid=qid, eval_set=eval_set)
    RankRLS(0.0, early_stopping=np.bool_(True)).fit(X, y, qid=qid, eval_set=eval_set)


@pytest.mark.filterwarnings("default:the best alpha")
def test_a_tie_at_the_end_of_a_grid_is_a_warning():
    """Accuracies are discrete: equal ones at the end do not mean that larger alphas are no use."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 500)) + rng.standard_normal((30, 1)) * 3
    y = (X @ rng.standard_normal(500) + 40 * rng.standard_normal(30) > 0).astype(float)
    grid = 2.0 ** np.arange(-15, 4)
    with pytest.warns(UserWarning, match="is the largest of the grid: extend alphas, or leave"):
        ranker = RankRLSCV(grid).fit(X, y)
    last = ranker.cv_results_["mean_score"][-2:]
    assert last[0] == last[1] < RankRLSCV().fit(X, y).best_score_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RankRLSCV(2.0 ** np.arange(20, 40)).fit(X, y)  # no alpha matters any more
        RankRLSCV([0.1, 1.0]).fit(X[:, :1], X[:, 0])  # nothing is better than 1


@pytest.mark.parametrize(
    "scoring",
    [make_scorer(ndcg_score), lambda y, s: 0.5, lambda y, s, *, qid: y, lambda y, s, *, qid: None],
)
@pytest.mark.parametrize("model", [RankRLSCV, AutoRanker])
def test_metrics_of_another_shape(model, scoring):
    X, y, qid = make(seed=40)
    ranker = model(scoring=scoring)
    if model is AutoRanker:
        ranker.set_params(effort="quick", random_state=0)
    with pytest.raises(ValueError, match=r"scoring must (be the name|return one number)"):
        ranker.fit(X, y, qid=qid)


# ---------------------------------------------------------------------- noise of judgements


def judged(rng, f, n, noise):
    """n comparisons with magnitudes f_a − f_b + noise."""
    a = rng.integers(len(f), size=n)
    b = (a + rng.integers(1, len(f), size=n)) % len(f)
    z = f[a] - f[b] + noise * rng.standard_normal(n)
    pairs = np.where((z > 0)[:, None], np.column_stack([a, b]), np.column_stack([b, a]))
    return pairs, abs(z)


def test_noise_variance_follows_the_definition(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((15, 4))
    pairs, magnitude = judged(rng, X[:, 0], 60, 0.5)
    weight = rng.uniform(0.5, 2, 60)
    ranker = RankRLSCV([3.0]).fit(X, pairs=pairs, magnitude=magnitude, pair_weight=weight)
    given = {"magnitude": magnitude, "pair_weight": weight}
    mean, std = holdout_judgements(RankRLS(3.0), X, pairs, return_std=True, **given)
    expected = np.mean(weight * (magnitude - mean) ** 2 / (1 + weight * std**2 / 3))
    assert ranker.noise_variance_ == pytest.approx(expected)
    plain = RankRLS(3.0).fit(X, pairs=pairs, **given)
    scale = np.sqrt(expected / 3)
    assert_allclose(
        ranker.predict(X, return_std=True)[1], scale * plain.predict(X, return_std=True)[1]
    )
    # A change of unit changes the scores, the noise and their deviations alike.
    other = RankRLSCV([3.0]).fit(X, pairs=pairs, magnitude=10 * magnitude, pair_weight=weight)
    assert other.noise_variance_ == pytest.approx(100 * expected)
    for noisy in (True, False):
        assert_allclose(
            ranker.preference_proba(X[:5], X[5:10], noisy=noisy),
            other.preference_proba(X[:5], X[5:10], noisy=noisy),
        )
    save_model(ranker, tmp_path / "model")
    assert load_model(tmp_path / "model").noise_variance_ == ranker.noise_variance_
    assert not hasattr(ranker.fit(X, X[:, 0]), "noise_variance_")


def test_log_loss_does_not_drift_to_the_end_of_the_grid():
    """Calibrated margins hardly depend on a large alpha: then the squared error decides."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 20))
    f = 0.1 * X @ rng.standard_normal(20) / np.sqrt(20)
    a = rng.integers(100, size=600)
    b = (a + rng.integers(1, 100, size=600)) % 100
    won = rng.random(600) < 1 / (1 + np.exp(f[b] - f[a]))
    pairs = np.where(won[:, None], np.column_stack([a, b]), np.column_stack([b, a]))
    ranker = RankRLSCV(scoring="log_loss").fit(X, pairs=pairs)
    results = ranker.cv_results_
    equal = results["mean_score"] >= results["mean_score"].max() * (1 + 1e-6)
    assert equal.sum() > 3
    errors = results["mean_squared_error"]
    assert errors[results["alpha"] == ranker.alpha_] == errors[equal].min()
    assert ranker.alpha_ < results["alpha"][-1] / 8
    assert ranker.predict(X, return_std=True)[1].max() < 2 * np.ptp(ranker.predict(X))


@pytest.mark.parametrize("scoring", ["pairwise_accuracy", "ndcg@3", "concordance_index"])
def test_weights_count_in_the_score(scoring):
    """A pair has the product of its rows' weights, a query their mean; as repeated refits have."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(12), 6)
    X, y = rng.standard_normal((72, 3)), rng.integers(0, 3, 72).astype(float)
    weight = rng.uniform(0.5, 2.0, 72) * np.where(qid < 6, 10.0, 1.0)
    weight[:6], weight[20] = 0.0, 0.0
    splits = [(np.flatnonzero(qid % 3 != k), np.flatnonzero(qid % 3 == k)) for k in range(3)]
    ranker = RankRLSCV([1.0], cv=splits, scoring=scoring)
    found = ranker.fit(X, y, qid=qid, sample_weight=weight).best_score_
    f = np.empty(72)
    for train, test in splits:
        one = RankRLS().fit(X[train], y[train], qid=qid[train], sample_weight=weight[train])
        f[test] = one.predict(X[test])
    if scoring == "concordance_index":
        expected = concordance_index(y, f, qid=qid, sample_weight=weight)
    else:
        by_query = [
            ndcg(y[qid == q], f[qid == q], k=3)
            if scoring == "ndcg@3"
            else pairwise_accuracy(y[qid == q], f[qid == q], sample_weight=weight[qid == q])
            for q in range(1, 12)
        ]
        means = [weight[qid == q].mean() for q in range(1, 12)]
        expected = np.average(by_query, weights=means)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    unweighted = RankRLSCV([1.0], cv=splits, scoring=scoring).fit(X, y, qid=qid)
    assert abs(unweighted.best_score_ - found) > 1e-3
