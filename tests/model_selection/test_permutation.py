"""permutation_test: the score, the null scores of explicit permutations, and the p-value."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cases
import rankrls.model_selection._exact as module
from rankrls import AutoRanker, PreferenceGraph, RankRLS, RankRLSCV
from rankrls.core.linalg import factorizations
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection import (
    cross_val_predict,
    leave_pair_out_auc,
    leave_pair_out_predict,
    leave_pair_out_score,
    leave_pair_out_tournament,
    leave_query_out_predict,
    permutation_test,
)
from rankrls.model_selection._exact import _labellings

N = 24
GRID = np.array([1e-3, 0.3, 10.0, 1e3])
MODELS = {
    "linear": {"alpha": 2.0},
    "rbf": {"kernel": "rbf", "gamma": 0.2, "alpha": 0.5},
    "size": {"query_weighting": "size"},
    "query": {"query_weighting": "query", "kernel": "poly", "degree": 2},
}


def make(seed=0, kind="continuous", m=N, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 3))
    y = signal * X[:, 0] + cases.scores("continuous", m, rng)
    if kind == "graded":
        y = np.digitize(y, [-0.7, 0.7]) * 1.0
    elif kind == "binary":
        y = (y > 0) * 1.0
    return X, y, rng.permutation(np.repeat(list("abcdef"), m // 6))


def permutations(y, qid, n, seed):
    """The permuted labels of ``random_state=seed``, in their order."""
    rng = np.random.RandomState(seed)
    codes = np.zeros(len(y), int) if qid is None else np.unique(qid, return_inverse=True)[1]
    return list(permuted(y, codes, n, rng))


def permuted(y, codes, n, rng):
    return np.concatenate([part.T for part in _labellings(y, codes, n, 7, rng)])[1:]


# ---------------------------------------------------------------------- scores


@pytest.mark.parametrize(
    ("kind", "model"),
    [("continuous", "linear"), ("graded", "rbf"), ("binary", "size"), ("graded", "query")],
)
def test_leave_pair_out(kind, model):
    X, y, _ = make(kind=kind)
    options = MODELS[model] | {"alpha": 1.0}
    result = permutation_test(
        RankRLS(**options), X, y, alphas=GRID, n_permutations=6, random_state=7
    )
    labels = [y, *permutations(y, None, 6, 7)]
    scores = np.array(
        [
            [leave_pair_out_score(RankRLS(**options | {"alpha": a}), X, z) for a in GRID]
            for z in labels
        ]
    )
    check(result, scores)


@pytest.mark.parametrize("model", [*MODELS, "nystroem"])
def test_leave_query_out(model):
    X, y, qid = make(seed=2, kind="graded")
    ranker = RankRLS(**MODELS.get(model, {"kernel": "rbf", "basis": [0, 5, 9, 13, 20]}))
    options = {"qid": qid, "cv": "leave-query-out", "n_permutations": 6, "random_state": 7}
    result = permutation_test(ranker, X, y, alphas=GRID, **options)
    scores = []
    for z in [y, *permutations(y, qid, 6, 7)]:
        held = leave_query_out_predict(ranker, X, z, qid=qid, alphas=GRID)
        scores.append([pairwise_accuracy(z, f, qid=qid) for f in held])
    check(result, np.array(scores))
    alone = permutation_test(ranker.set_params(alpha=GRID[1]), X, y, **options)
    assert_allclose(alone.score, scores[0][1], rtol=1e-12)
    assert alone.alpha == GRID[1]


def check(result, scores):
    """The best score of each labelling (n_labellings, n_alphas), the true one first."""
    assert_allclose([result.score, *result.null_scores], scores.max(axis=1), rtol=1e-12)
    assert result.p_value == result.pvalue == (1 + sum(result.null_scores >= result.score)) / 7
    assert result.alpha == GRID[np.flatnonzero(scores[0] == scores[0].max())[-1]]
    assert (np.ptp(scores, axis=1) > 0).sum() > 3  # alpha matters


def test_equal_scores_count_against_the_labels():
    result = permutation_test(RankRLS(), np.zeros((12, 1)), np.arange(12) % 2, n_permutations=9)
    assert (result.score, result.p_value) == (0.5, 1.0)


def test_other_containers():
    X, y, _ = make(seed=4)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    options = {"n_permutations": 5, "random_state": 0}
    expected = permutation_test(RankRLS(), X, y, **options)
    others = [
        permutation_test(RankRLS(kernel="precomputed"), X @ X.T, y, **options),
        permutation_test(RankRLS(), sparse.csr_array(X), PreferenceGraph.from_scores(y), **options),
    ]
    for result in others:
        assert_allclose(result.null_scores, expected.null_scores)
        assert result.p_value == expected.p_value


# ---------------------------------------------------------------------- permutations


def test_permutations_are_uniform_within_queries():
    """All 3! orders of one query and 2 of another, in random row order: 12, equally often."""
    y, codes = np.array([0.0, 10.0, 1.0, 11.0, 2.0]), np.array([0, 1, 0, 1, 0])
    rng = np.random.RandomState(0)
    seen = permuted(y, codes, 2400, rng)
    orders, counts = np.unique(seen, axis=0, return_counts=True)
    assert len(counts) == 12
    assert ((orders >= 10) == (codes == 1)).all()
    assert np.square(counts - 200).sum() / 200 < 31  # chi², 11 degrees: p = 0.001


def test_memory_is_asked_for_first():
    """Of leave-pair-out: see tests/test_resources.py."""
    with pytest.raises(MemoryError, match=r"this number of permutations needs .*fewer perm"):
        permutation_test(RankRLS(), X_BAD, Y_BAD, n_permutations=10**12)


# ---------------------------------------------------------------------- bad input


X_BAD, Y_BAD, QID_BAD = make(seed=14, kind="graded")


def case(name, message, *, y=Y_BAD, model=None, **options):
    return pytest.param(model or RankRLS(), y, options, message, id=name)


LOSS = "cost='magnitude' and ties='keep'"
BAD = [
    case("cost unit", LOSS, model=RankRLS(cost="unit")),
    case("two outputs", "one score for each row", y=np.column_stack([Y_BAD, -Y_BAD])),
    case("leave-pair-out with qid", "leave-query-out. with qid", qid=QID_BAD),
    case("cv int", "cv must be one of 'leave-pair-out', 'leave-query-out'", cv=5),
    case("basis", "no exact shortcut", model=RankRLS(kernel="rbf", basis=[1, 2])),
    case("pairs only", "one score for each", y=PreferenceGraph.from_pairs([(0, 1)], n_rows=N)),
    case("equal labels", "no query has a pair", y=np.ones(N)),
    case("one query", "nothing is left", qid=np.zeros(N), cv="leave-query-out"),
    case("a search", r"got a RankRLSCV", model=RankRLSCV()),
    case("alphas of others", "alphas is for RankRLS", model=Ridge(), alphas=[1.0]),
    case("cv of others", "cv .* must be one of", model=Ridge(), cv="loo"),
    case("weights", "sample weights", y=PreferenceGraph.from_scores(Y_BAD, sample_weight=Y_BAD)),
    case("alphas unknown", "alphas must be one of 'auto'", alphas="all"),
]


@pytest.mark.parametrize(("model", "y", "options", "message"), BAD)
def test_bad_input(model, y, options, message):
    with pytest.raises(ValueError, match=message):
        permutation_test(model, X_BAD, y, **({"n_permutations": 3} | options))


# ---------------------------------------------------------------------- a grid of alphas


def test_order_and_batches_make_no_difference(monkeypatch):
    X, y, qid = make(seed=5, kind="graded")
    for options in ({}, {"qid": qid, "cv": "leave-query-out"}):
        options = {"n_permutations": 40, "random_state": 0, **options}
        expected = permutation_test(RankRLS(), X, y, alphas=GRID, **options)
        assert_array_equal(
            permutation_test(RankRLS(), X, y, alphas=GRID[[2, 0, 3, 1]], **options).null_scores,
            expected.null_scores,
        )
        with monkeypatch.context() as patch:
            patch.setattr(module, "BATCH_NUMBERS", 1)
            patch.setattr(module, "BATCH_PREDICTIONS", 1)
            result = permutation_test(RankRLS(), X, y, alphas=GRID, **options)
        assert_allclose(result.null_scores, expected.null_scores, rtol=1e-12)
        assert result.p_value == expected.p_value


def test_one_decomposition(monkeypatch):
    """The spectrum of leave-pair-out is computed once for all alphas and batches."""
    made, eigh = [], factorizations.eigh
    monkeypatch.setattr(factorizations, "eigh", lambda *a, **k: made.append(1) or eigh(*a, **k))
    monkeypatch.setattr(module, "BATCH_NUMBERS", 1)
    X, y, _ = make(seed=6)
    permutation_test(RankRLS(kernel="rbf"), X, y, alphas=GRID, n_permutations=50)
    assert len(made) == 1


@pytest.mark.parametrize("with_qid", [False, True])
def test_p_values_without_signal(with_qid):
    """Uniform under the null hypothesis: Kolmogorov-Smirnov at about 0.001, both ways.

    The same grid with alpha chosen by the true labels and then fixed is not.
    """
    n = 60
    p, naive = [], []
    for seed in range(n):
        X, y, qid = make(seed=400 + seed, signal=0.0)
        options = {"qid": qid, "cv": "leave-query-out"} if with_qid else {}
        options |= {"n_permutations": 39, "random_state": seed}
        result = permutation_test(RankRLS(kernel="rbf"), X, y, alphas=GRID, **options)
        p.append(result.p_value)
        if not with_qid:
            fixed = RankRLS(result.alpha, kernel="rbf")
            naive.append(permutation_test(fixed, X, y, **options).p_value)
    p = np.sort(p)
    assert np.abs(np.arange(1, n + 1) / n - p).max() < 1.95 / n**0.5
    assert np.mean(p <= 0.05) <= 0.15
    if naive:
        assert np.all(np.sort(naive) <= p + 0.05)
        assert np.mean(naive) < np.mean(p) - 0.03


@pytest.mark.parametrize("with_qid", [False, True])
def test_auto_is_the_grid_of_the_search(with_qid):
    """Wide data whose best alpha lies beyond 2^15."""
    rng = np.random.default_rng(0)
    X = 30 * (rng.standard_normal((30, 200)) + rng.standard_normal((30, 1)))
    y = X @ rng.standard_normal(200) / 30 + 30 * rng.standard_normal(30)
    qid = np.arange(30) // 6 if with_qid else None
    options = {"qid": qid, "cv": "leave-query-out" if with_qid else "leave-pair-out"}
    result = permutation_test(RankRLS(), X, y, alphas="auto", n_permutations=3, **options)
    chosen = RankRLSCV().fit(X, y, qid=qid)
    assert result.score == pytest.approx(chosen.best_score_)
    short = permutation_test(RankRLS(), X, y, alphas=2.0 ** np.arange(-15, 5), **options)
    assert short.score < result.score


def test_the_interval_of_an_auc():
    above, covered = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(24, 40)), np.tile([0.0, 1.0], 12)
        score = leave_pair_out_score(RankRLS(10.0), X, y, confidence=0.9)
        assert score == leave_pair_out_score(RankRLS(10.0), X, y)
        assert 0 <= score.low < score < score.high <= 1
        above += score.low > 0.5
        covered += score.low <= 0.5 <= score.high
    assert above <= 7  # 3 are expected
    assert covered >= 48
    with pytest.raises(ValueError, match="between 0 and 1"):
        leave_pair_out_score(RankRLS(), X, y, confidence=95)
    with pytest.raises(ValueError, match="one output"):
        leave_pair_out_score(RankRLS(), X, np.column_stack([y, -y]), confidence=0.9)


# ---------------------------------------------------------------------- batches and pipelines


def pairs_within(y, qid):
    m = len(y)
    return [(i, j) for i in range(m) for j in range(i + 1, m) if qid[i] == qid[j] and y[i] != y[j]]


def selecting():
    return make_pipeline(SelectKBest(k=2), LogisticRegression())


@pytest.mark.parametrize("model", [*MODELS, "unit", "nystroem", "pipeline", "select"])
def test_pairs_within_batches_are_those_of_refits(model):
    X, y, qid = make(seed=15, kind="binary")
    options = MODELS | {"unit": {"cost": "unit"}, "nystroem": {"kernel": "rbf", "basis": range(9)}}
    ranker = RankRLS(**options.get(model, {}))
    if model in ("pipeline", "select"):
        ranker = selecting() if model == "select" else make_pipeline(SelectKBest(k=2), RankRLS())
    pairs = pairs_within(y, qid)
    held = leave_pair_out_predict(ranker, X, y, qid=qid)
    assert held.shape == (len(pairs), 2)
    for (i, j), found in zip(pairs, held, strict=True):
        rest = np.setdiff1d(np.arange(N), [i, j])
        if model == "select":
            fitted = clone(ranker).fit(X[rest], y[rest])
            a, b = fitted.decision_function(X[[i, j]])
        else:
            with sklearn.config_context(enable_metadata_routing=True):
                fitted = clone(ranker)
                if model == "nystroem":
                    kept = [np.flatnonzero(rest == row)[0] for row in range(9) if row in rest]
                    fitted.set_params(basis=kept)
                fitted.fit(X[rest], y[rest], qid=qid[rest])
            a, b = fitted.predict(X[[i, j]])
        assert_allclose(found[0] - found[1], a - b, rtol=1e-6, atol=1e-9)
    right = np.sign(np.diff(y[np.array(pairs)]) * np.diff(held))
    assert leave_pair_out_score(ranker, X, y, qid=qid) == pytest.approx((1 + right.mean()) / 2)


def test_scores_within_batches():
    """Of several outputs and alphas; a batch effect that is the label itself counts for nothing."""
    X, y, qid = make(seed=16, kind="graded")
    Y = np.column_stack([y, -y])
    both = leave_pair_out_score(RankRLS(), X, Y, qid=qid)
    assert leave_pair_out_score(RankRLS(), X, PreferenceGraph.from_scores(Y, qid=qid)) == both
    assert both == pytest.approx(leave_pair_out_score(RankRLS(), X, y, qid=qid))
    grid = leave_pair_out_predict(RankRLS(), X, y, qid=qid, alphas=[0.1, 1.0])
    assert_allclose(grid[1], leave_pair_out_predict(RankRLS(), X, y, qid=qid), rtol=1e-8)
    batch = np.arange(N) % 2
    shifted = np.column_stack([np.random.default_rng(0).normal(size=N), 100.0 * batch])
    labels = (np.arange(N) // 2 + batch) % 3 > 0
    inside = leave_pair_out_score(RankRLS(), shifted, labels, qid=batch)
    without = leave_pair_out_score(RankRLS(), shifted[:, :1], labels, qid=batch)
    assert inside == pytest.approx(without)
    with pytest.raises(ValueError, match="without qid"):
        leave_pair_out_score(RankRLS(), X, y, qid=qid, confidence=0.9)


def test_selection_inside_the_folds():
    """Noise: selected on all rows it looks like a signal, inside the folds it does not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(16, 300)), np.tile([0, 1], 8)
    options = {"cv": 4, "n_permutations": 19, "random_state": 0}
    honest = permutation_test(selecting(), X, y, **options)
    best = SelectKBest(k=2).fit_transform(X, y)
    fooled = permutation_test(LogisticRegression(), best, y, **options)
    assert honest.p_value > 0.1
    assert fooled.p_value == 0.05
    assert np.isnan(honest.alpha)
    pairs = permutation_test(selecting(), X, y, n_permutations=1, random_state=0)
    assert pairs.score == pytest.approx(leave_pair_out_auc(selecting(), X, y))
    assert pairs.score == leave_pair_out_score(selecting(), X, y)


@pytest.mark.parametrize("cv", ["leave-query-out", 3, GroupKFold(3)])
def test_refitted_permutations_are_those_of_rankrls(cv):
    X, y, qid = make(seed=17)
    pipeline = make_pipeline(StandardScaler(with_std=False), RankRLS())
    options = {"n_permutations": 3, "random_state": 2, "qid": qid}
    result = permutation_test(pipeline, X, y, cv=cv, **options)
    assert result.null_scores.shape == (3,)
    if cv == "leave-query-out":
        exact = permutation_test(RankRLS(), X, y, cv=cv, **options)
        assert_allclose([result.score, *result.null_scores], [exact.score, *exact.null_scores])
    if cv == 3:  # rows are compared with the others of their query when they are predicted, too
        auto = AutoRanker("pairwise_accuracy", effort="quick")
        held = cross_val_predict(auto, X, y, qid=qid, cv=cv)
        options["n_permutations"] = 1
        found = permutation_test(auto, X, y, cv=cv, **options).score
        assert found == pytest.approx(pairwise_accuracy(y, held, qid=qid))


def test_tournaments_of_pipelines():
    X, y, _ = make(seed=18, kind="binary", m=12)
    pipeline = make_pipeline(StandardScaler(with_std=False), RankRLS())
    assert_allclose(
        leave_pair_out_tournament(pipeline, X, y), leave_pair_out_tournament(RankRLS(), X, y)
    )
