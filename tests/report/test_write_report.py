"""The report: its numbers against plain loops, its page against hostile names and sizes."""

import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import PreferenceGraph, RankRLS, RankRLSCV, RankSVM
from rankrls.datasets import make_ranking
from rankrls.metrics import pairwise_accuracy, pairwise_error
from rankrls.model_selection import leave_query_out_predict
from rankrls.report import Report, write_leaderboard, write_report
from rankrls.report._data import check_rankings
from rankrls.report._errors import errors_of, mean_interval, row_errors, row_errors_of_pairs
from rankrls.report._features import feature_statistics
from rankrls.report._heldout import _refitted, make_plan
from rankrls.report._page import render
from rankrls.report._write_report import worst_queries
from report_cases import analysed, values_of_code

EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"
ALPHAS = 2.0 ** np.arange(-4, 9)


@pytest.fixture(scope="module")
def ranking():
    return make_ranking(
        n_queries=30, n_docs=(1, 12), n_features=6, random_state=1, return_X_y_qid=True
    )


def quietly(search, *arguments, **options):
    """Fit a search whose grid may end too early."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best alpha")
        return search.fit(*arguments, **options)


def codes_of(findings):
    return {finding.code for finding in findings}


class Page(HTMLParser):
    """Elements, text and headings of a page; fails where tags do not match."""

    EMPTY = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.ids, self.text, self.headings = [], [], [], [], []
        self.attributes = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.EMPTY:
            self.stack.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_feature_statistics_against_loops(ranking, kind):
    X, y, qid = ranking
    X = np.where(X > 0.5, X, 0.0)
    X[:, 1], X[:, 2] = 4.0, qid + 1e6
    data = check_rankings(kind(X), y, qid)
    found = feature_statistics(data)
    centred, label = X.copy(), y.copy()
    for q in np.unique(qid):
        centred[qid == q] -= X[qid == q].mean(axis=0)
        label[qid == q] -= y[qid == q].mean()
    np.testing.assert_allclose(found.std_within, centred.std(axis=0), atol=1e-12)
    assert found.std_within[2] == 0
    np.testing.assert_array_equal(found.varies, [True, False, True, True, True, True])
    np.testing.assert_array_equal(found.varies_within, [True, False, False, True, True, True])
    expected = [np.corrcoef(centred[:, j], label)[0, 1] for j in (0, 3, 4, 5)]
    np.testing.assert_allclose(found.correlation[[0, 3, 4, 5]], expected)
    np.testing.assert_array_equal(found.correlation[[1, 2]], 0)
    assert found.alone[3] == pairwise_accuracy(y, X[:, 3], qid=qid)
    np.testing.assert_allclose(found.mean, X.mean(axis=0))


def test_errors_of_rows_against_a_double_loop():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 3, 30).astype(float), rng.integers(0, 4, 30).astype(float)
    lists = rng.integers(0, 2, 30)
    wrong, total = np.zeros(30), np.zeros(30)
    pairs = []
    for i in range(30):
        for j in range(30):
            if lists[i] == lists[j] and y[i] != y[j]:
                total[i] += 1
                agree = np.sign(y[i] - y[j]) * np.sign(scores[i] - scores[j])
                wrong[i] += {1: 0, 0: 0.5, -1: 1}[agree]
                if i < j:
                    pairs.append((i, j))
    pairs = np.array(pairs)
    for errors in (
        row_errors(y, scores, lists),
        row_errors_of_pairs(y, pairs, scores[pairs]),
    ):
        np.testing.assert_array_equal(errors.wrong, wrong)
        np.testing.assert_array_equal(errors.pairs, total)
        assert errors.mean.value == pytest.approx(wrong.sum() / total.sum())
    assert row_errors(y, scores, 0 * lists).mean.value == pytest.approx(pairwise_error(y, scores))


def test_intervals_of_few_queries_and_of_no_error():
    assert mean_interval(np.array([0.1, np.nan, 0.3])).method == "none"
    assert mean_interval(np.array([0.1, np.nan, 0.3])).value == pytest.approx(0.2)
    perfect = mean_interval(np.zeros(30))
    assert (perfect.low, perfect.method) == (0.0, "bound")
    assert 0.05 < perfect.high < 0.12


def test_the_interval_of_one_ranking_holds_on_noise(tmp_path):
    better = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(30, 50)), np.tile([0.0, 1.0], 15)
        error = write_report(tmp_path / "r.html", X, y, alphas=[1.0, 100.0]).error
        better += error.high < 0.5
        assert error.method == "permutation"
    assert better <= 4


def test_labels_of_chance_are_not_better_than_a_random_order():
    """The intervals by query of these lie below one half."""
    qid = np.repeat(np.arange(20), 10)
    for seed in (8, 16, 70, 115):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(200, 5)), rng.integers(0, 3, 200)
        result = analysed(X, y, qid, estimator=RankRLS(10.0))
        assert "no-better-than-chance" in codes_of(result.findings)
        assert result.error.high < 0.5


def test_the_estimate_chooses_alpha_without_the_query(ranking):
    X, y, qid = ranking
    result = analysed(X, y, qid, alphas=ALPHAS)
    table = np.array(
        [
            pairwise_error(
                y,
                leave_query_out_predict(RankRLS(alpha), X, y, qid=qid),
                qid=qid,
                average=None,
            )
            for alpha in ALPHAS
        ]
    )
    table = table[:, ~np.isnan(table[0])]
    values = []
    for q in range(table.shape[1]):
        others = np.delete(table, q, axis=1).mean(axis=1)
        best = max(a for a in range(len(ALPHAS)) if others[a] <= others.min() + 1e-12)
        values.append(table[best, q])
    assert result.error.value == pytest.approx(np.mean(values))
    assert result.held.corrected
    spread = table.std(axis=1, ddof=1) / np.sqrt(table.shape[1])
    np.testing.assert_allclose(result.held.path.spread, spread)


def test_one_ranking_by_leave_pair_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] + rng.normal(size=40)
    result = analysed(X, y, alphas=ALPHAS)
    assert (result.held.method, result.errors.unit) == ("leave-pair-out", "row")
    search = quietly(RankRLSCV(ALPHAS), X, y)
    assert result.alpha == search.alpha_
    assert result.errors.mean.value == pytest.approx(1 - search.best_score_)
    assert not result.held.corrected


def test_one_ranking_by_folds():
    """cost="unit" of graded labels has no shortcut for pairs: folds as RankRLSCV draws them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.round(X[:, 0] + rng.normal(size=60))
    estimator = RankRLSCV([1.0, 8.0, 64.0, 512.0], cost="unit", random_state=3)
    result = analysed(X, y, estimator=estimator)
    assert (result.held.method, result.held.n_folds) == ("folds", 5)
    search = quietly(clone(estimator), X, y)
    np.testing.assert_allclose(1 - result.held.path.error, search.cv_results_["mean_score"])
    assert result.alpha == search.alpha_


def test_the_worst_queries_and_what_was_expected():
    y = np.array([2, 1, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0], dtype=float)
    qid = np.array(["a"] * 4 + ["b"] * 2 + ["c"] * 7)
    scores = np.array([0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    X = np.column_stack([scores, -scores])
    data = check_rankings(X, y, qid, document_names=[f"d{i}" for i in range(13)])
    errors = errors_of(data, scores)
    model = RankRLS().fit(X, y, qid=data.codes)
    worst = worst_queries(data, errors, scores, model, data)
    assert [query.name for query in worst] == ["c", "a"]  # b is perfect
    c = worst[0]
    assert [document.name for document in c.top] == ["d7", "d8", "d9", "d10", "d11"]
    assert [(d.place, d.expected, d.last) for d in c.top[:2]] == [(1, 2, 7), (2, 2, 7)]
    assert [(d.name, d.place, d.expected, d.last) for d in c.missed] == [("d6", 7, 1, 1)]
    assert (c.above.name, c.below.name) == ("d7", "d6")
    assert c.reasons.difference == pytest.approx(model.coef_ @ (X[7] - X[6]))
    assert (c.wrong, c.pairs, c.error) == (6, 6, 1.0)


def test_clean_data_have_no_findings():
    X, y, qid = make_ranking(n_queries=60, n_docs=15, random_state=0, return_X_y_qid=True)
    keep = np.isin(qid, np.flatnonzero([len(set(y[qid == q])) > 1 for q in range(60)]))
    result = analysed(X[keep], y[keep], qid[keep], alphas=2.0 ** np.arange(0, 24))
    assert not result.findings


def with_mistake(code):
    """Data in which one thing is wrong."""
    X, y, qid = make_ranking(
        n_queries=60, n_docs=(5, 10), n_features=5, random_state=0, return_X_y_qid=True
    )
    n = len(y)
    if code == "queries-without-pairs":
        y[qid < 20] = 1.0
    elif code == "contradicting-rows":
        X[1], y[0], y[1] = X[0], 0.0, 4.0
    elif code == "duplicate-rows":
        X, y, qid = np.vstack([X, X[qid == 7]]), np.append(y, y[qid == 7]), np.append(
            qid, qid[qid == 7]
        )  # fmt: skip
    elif code == "constant-features":
        X[:, 2] = -1.0
    elif code == "query-features":
        X[:, 2] = qid % 7
    elif code == "query-id-feature":
        X[:, 2] = qid * 10.0
    elif code == "label-leak":
        X[:, 2] = -np.exp(y)
    elif code == "equal-features":
        X[:, 2] = X[:, 0]
    elif code == "returning-query-ids":
        qid = np.where(np.arange(n) > n - 30, qid[np.arange(n) - n + 30], qid)
    elif code == "dominant-queries":
        qid = np.where(qid < 35, 0, qid)
    elif code == "few-queries":
        X, y, qid = X[qid < 12], y[qid < 12], qid[qid < 12]
    elif code == "unequal-scales":
        X[:, 2] *= 1e5
    elif code == "labels-are-ranks":
        y = np.concatenate([np.random.default_rng(q).permutation(k) + 1.0 for q, k in
                            enumerate(np.bincount(qid))])  # fmt: skip
    elif code == "no-better-than-chance":
        y = np.random.default_rng(0).permutation(y)
    elif code == "single-feature-as-good":
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 100))
        X[:, 0] = 0.2 * (y + rng.normal(size=n))
    return X, y, qid


MISTAKES = (
    "queries-without-pairs", "contradicting-rows", "duplicate-rows", "constant-features",
    "query-features", "query-id-feature", "label-leak", "equal-features", "unequal-scales",
    "returning-query-ids", "labels-are-ranks", "dominant-queries", "few-queries",
    "no-better-than-chance", "single-feature-as-good",
)  # fmt: skip


@pytest.mark.parametrize("code", MISTAKES)
def test_every_mistake_is_found(code):
    X, y, qid = with_mistake("none")
    assert code not in codes_of(analysed(X, y, qid, alphas=[64.0]).findings) - {
        "queries-without-pairs"
    }
    X, y, qid = with_mistake(code)
    findings = analysed(X, y, qid, alphas=[64.0]).findings
    assert code in codes_of(findings)
    levels = [("problem", "warning", "note").index(f.level) for f in findings]
    assert levels == sorted(levels)
    if code in ("constant-features", "query-id-feature", "label-leak", "query-features"):
        found = next(f for f in findings if f.code == code)
        assert found.examples == ["feature 2"]


def test_findings_of_sparse_data_are_those_of_dense():
    X, y, qid = with_mistake("query-id-feature")
    X[np.abs(X) < 0.7] = 0.0
    X[:, 1], X[3] = 0.0, X[4]
    dense = analysed(X, y, qid, alphas=[64.0]).findings
    assert [f.code for f in dense] == [
        f.code for f in analysed(sparse.csc_matrix(X), y, qid, alphas=[64.0]).findings
    ]
    assert {"query-id-feature", "constant-features"} <= codes_of(dense)


def test_test_data_are_compared_with_training_data(ranking):
    X, y, qid = ranking
    train = qid < 20
    fine = (X[~train], y[~train], qid[~train])
    result = analysed(X[train], y[train], qid[train], alphas=[8.0], test=fine)
    suspicious = {"shared-queries", "shared-rows", "shifted-features"}
    assert not codes_of(result.findings) & suspicious
    assert result.error.value == pytest.approx(
        pairwise_error(y[~train], result.model.predict(X[~train]), qid=qid[~train])
    )
    other = X[~train].copy()
    other[:, 1] *= 100.0
    other[0] = X[0]
    bad = (other, y[~train], qid[~train] - 5)
    result = analysed(X[train], y[train], qid[train], alphas=[8.0], test=bad)
    assert suspicious <= codes_of(result.findings)


def test_the_edge_of_the_grid_is_reported():
    options = {"n_informative": 5, "noise": 0.2, "random_state": 0, "return_X_y_qid": True}
    X, y, qid = make_ranking(60, 6, 340, **options)
    for alphas, edge in (([0.01, 1.0, 100.0], True), (10.0 ** np.arange(-2, 8), False)):
        result = analysed(X, y, qid, alphas=alphas)
        told = [f.text for f in result.findings if f.code == "fit-warning"]
        assert any("extend alphas" in text for text in told) == edge


def test_importance_of_a_linear_model(ranking):
    X, y, qid = ranking
    importance = analysed(X * [1, 10, 0.1, 1, 1, 1], y, qid, alphas=[1.0]).importance
    model = RankRLS(1.0).fit(X * [1, 10, 0.1, 1, 1, 1], y, qid=qid)
    scale = feature_statistics(check_rankings(X * [1, 10, 0.1, 1, 1, 1], y, qid)).std_within
    expected = model.coef_ * scale
    np.testing.assert_allclose(importance.effect, expected[importance.columns])
    assert (np.diff(np.abs(importance.effect)) <= 0).all()
    assert set(importance.columns) == set(range(6))


def test_importance_of_a_kernel_by_shuffling():
    X, y, qid = make_ranking(
        n_queries=25, n_docs=8, n_features=4, n_informative=1, random_state=0, return_X_y_qid=True
    )
    estimator = RankRLS(1.0, kernel="rbf", gamma=0.1)
    result = analysed(X, y, qid, estimator=estimator)
    informative = int(np.argmax(np.abs(feature_statistics(result.train).correlation)))
    assert result.importance.kind == "permutation"
    assert result.importance.columns[0] == informative
    assert result.importance.effect[0] > 0.1
    gram = analysed(X @ X.T, y, qid, estimator=RankRLS(1.0, kernel="precomputed"))
    assert gram.importance.kind == "none"
    assert gram.importance.reason


ESTIMATORS = {
    "fixed": (RankRLS(4.0), "leave-query-out"),
    "kfold": (RankRLSCV(ALPHAS, cv=4, random_state=0), "leave-query-out"),
    "ndcg": (RankRLSCV(ALPHAS, scoring="ndcg@5"), "leave-query-out"),
    "nystroem": (RankRLS(1.0, kernel="rbf", basis=10, random_state=0), "leave-query-out"),
    "cg": (RankRLSCV(ALPHAS, solver="cg"), "folds"),
    "early": (RankRLS(1.0, early_stopping=True, random_state=0), "refits"),
    "gammas": (RankRLSCV(ALPHAS, kernel="rbf", gamma=[1.0, 0.01]), "refits"),
    "svm": (RankSVM(1.0), "refits"),
    "pipeline": (make_pipeline(StandardScaler(), RankRLS(1.0)), "refits"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("with_qid", [True, False], ids=["queries", "rows"])
def test_estimators(tmp_path, name, with_qid):
    X, y, qid = make_ranking(
        n_queries=30, n_docs=8, n_features=6, random_state=1, return_X_y_qid=True
    )
    estimator, method = ESTIMATORS[name]
    qid = qid if with_qid else None
    before = repr(estimator)
    report = write_report(tmp_path / "r.html", X, y, qid, estimator=estimator)
    assert repr(estimator) == before
    assert not hasattr(estimator, "coef_")
    if with_qid:
        assert report.method == method
    assert 0 < report.error.value < 0.4
    assert report.error.low <= report.error.value <= report.error.high
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    Page(text)
    if name == "fixed":
        assert report.alpha == 4.0
        assert report.alpha_path.alphas[report.alpha_path.chosen] == 4.0


def test_refits_are_predictions_of_unseen_queries(ranking):
    X, y, qid = ranking
    seen = []

    class Spy(RankRLS):
        def fit(self, X, y, *, qid):
            self.seen_ = set(np.unique(qid))
            return super().fit(X, y, qid=qid)

        def predict(self, X):
            seen.append((self.seen_, {int(q) for q in X[:, -1]}))
            return super().predict(X)

    data = check_rankings(np.column_stack([X, np.unique(qid, return_inverse=True)[1]]), y, qid)
    _refitted(make_plan(Spy(1.0), None, data.X), Spy(1.0), data)
    assert len(seen) == 5
    assert all(not trained & predicted for trained, predicted in seen)
    assert set().union(*(predicted for _, predicted in seen)) == set(range(data.n_queries))


def test_too_little_memory_for_the_shortcut_means_folds(ranking, monkeypatch):
    X, y, qid = ranking
    monkeypatch.setattr("rankrls._resources.budget", lambda: 720)  # vectors of six features
    data = sparse.csr_array(np.where(X > 0, X, 0.0))
    result = analysed(data, y, qid, alphas=[0.5, 4.0, 32.0])
    assert (result.held.method, result.held.n_folds) == ("folds", 5)


def test_a_kernel_matrix_with_test_data(tmp_path, ranking):
    X, y, qid = ranking
    train = qid < 20
    K, K_test = X[train] @ X[train].T, X[~train] @ X[train].T
    precomputed = RankRLSCV(ALPHAS, kernel="precomputed")
    unseen = (y[~train], qid[~train])
    options = {"feature_names": None, "test": (K_test, *unseen)}
    gram = write_report(
        tmp_path / "k.html", K, y[train], qid[train], estimator=precomputed, **options
    )
    options["test"] = (X[~train], *unseen)
    linear = write_report(
        tmp_path / "x.html", X[train], y[train], qid[train], alphas=ALPHAS, **options
    )
    assert gram.method == linear.method == "test"
    assert gram.alpha == linear.alpha
    np.testing.assert_allclose(gram.errors.error, linear.errors.error)
    np.testing.assert_allclose(gram.alpha_path.error, linear.alpha_path.error)
    text = (tmp_path / "k.html").read_text(encoding="utf-8")
    Page(text)
    assert "no features to show" in text


def test_alpha_chosen_by_another_metric_is_said_to_be(ranking):
    X, y, qid = ranking
    result = analysed(X, y, qid, estimator=RankRLSCV(ALPHAS, scoring="ndcg@5"))
    search = quietly(RankRLSCV(ALPHAS, scoring="ndcg@5"), X, y, qid=qid)
    np.testing.assert_allclose(result.held.path.error, 1 - search.cv_results_["mean_score"])
    assert result.alpha == search.alpha_
    assert not result.held.corrected
    held = leave_query_out_predict(RankRLS(result.alpha), X, y, qid=qid)
    assert result.error.value == pytest.approx(pairwise_error(y, held, qid=qid))
    assert "1 − ndcg@5" in render(result, title=None, limit=10)
    for alphas in (ALPHAS, [1.0]):
        page = render(analysed(X, y - y.min(), qid, alphas=alphas), title=None, limit=10)
        assert ("alpha chosen by the same queries" in page) == (len(alphas) > 1)


def test_names_from_the_data_stay_text(tmp_path):
    X, y, qid = make_ranking(
        n_queries=20, n_docs=(1, 8), n_features=5, random_state=0, return_X_y_qid=True
    )
    X[:, 1] = 2.0
    X[:, 2] = qid
    X[1] = X[0]
    path = tmp_path / f"r{EVIL[:0]}.html"
    names = [f"{EVIL}{j}\x00\ud800" for j in range(5)]
    for test in (None, (X, y, [f"{EVIL}{q}" for q in qid])):
        write_report(
            path,
            X,
            y,
            [f"{EVIL}{q}" for q in qid],
            test=test,
            feature_names=names,
            document_names=[f"{EVIL}{i}" for i in range(len(y))],
            title=f"{EVIL}</title>",
        )
        text = path.read_text(encoding="utf-8")
        page = Page(text)
        assert page.tags.count("script") == 2
        assert "img" not in page.tags
        assert not any(key.startswith("on") for _, key, _ in page.attributes)
        assert any(EVIL in piece for piece in page.text)
        assert "\x00" not in text
        block = re.search('<script type="application/json" id="results">(.*?)</script>', text)
        results = json.loads(block[1])
        assert any(EVIL in example for f in results["findings"] for example in f["examples"])


@pytest.mark.parametrize("with_qid", [True, False], ids=["queries", "rows"])
@pytest.mark.parametrize("with_test", [True, False], ids=["test", "no test"])
def test_the_page_is_well_formed_and_needs_nothing_else(tmp_path, ranking, with_qid, with_test):
    X, y, qid = ranking
    train = qid < 20
    ids = qid if with_qid else None
    arguments = [part[train] for part in (X, y, ids) if part is not None]
    test = tuple(part[~train] for part in (X, y, ids) if part is not None) if with_test else None
    write_report(tmp_path / "r.html", *arguments, test=test)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert "://" not in text
    links = [value for _, key, value in page.attributes if key in ("href", "src")]
    assert all(value.startswith(("#", "data:")) for value in links)
    assert {value[1:] for value in links if value.startswith("#")} <= set(page.ids)
    assert not any(key == "style" for _, key, _ in page.attributes)  # the policy forbids it
    charts = [value for tag, key, value in page.attributes if (tag, key) == ("svg", "aria-label")]
    assert len(charts) == 3
    assert all(len(about) > 20 for about in charts)
    assert "nan" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S)


def test_the_page_does_not_grow_with_the_number_of_queries():
    rng = np.random.default_rng(0)
    n = 4000
    qid = np.repeat([f"a query of some length {q}" for q in range(n)], 3)
    X = rng.normal(size=(3 * n, 3))
    y = np.tile([0.0, 1.0, 2.0], n)
    result = analysed(X, y, qid, alphas=[1.0])
    sizes = {limit: len(render(result, title=None, limit=limit)) for limit in (50, 500, 10**6)}
    assert sizes[50] < 90_000
    assert sizes[500] - sizes[50] < 450 * 400
    assert sizes[10**6] > 1_000_000
    page = render(result, title=None, limit=500)
    assert "the table lists the 500 worst" in page
    shown = re.search('<table class="long".*?</table>', page, re.S)[0]
    assert shown.count("<tr>") == 501


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("with_qid", [True, False], ids=["queries", "rows"])
def test_the_code_on_the_page_gives_its_numbers(with_qid):
    X, y, qid = make_ranking(
        n_queries=20, n_docs=6, n_features=4, random_state=2, return_X_y_qid=True
    )
    options = [
        {"alphas": ALPHAS},
        {"alphas": [0.3, 30.0, 3000.0]},
        {"estimator": RankRLS(0.7)},
        {"estimator": RankRLS(0.7, query_weighting="query")},
        {"estimator": RankRLSCV([1.0, 100.0 / 3], cost="unit", cv=3)},
        {"estimator": RankRLSCV(2.0 ** np.arange(-8, 9), kernel="rbf")},
        {"alphas": [3.0], "sample_weight": 1.0 + qid % 2},
    ]
    for option in options:
        result = analysed(X, y, qid if with_qid else None, test=None, **option)
        space = {"X": X, "y": y, "qid": qid, "weight": 1.0 + qid % 2}
        assert values_of_code(render(result, title=None, limit=10), space)
        np.testing.assert_allclose(space["model"].predict(X), result.model.predict(X))


def test_data_frames_name_the_features(tmp_path, ranking):
    X, y, qid = ranking
    frame = pd.DataFrame(X, columns=[f"column {j}" for j in range(6)])
    report = write_report(tmp_path / "r.html", frame, pd.Series(y), pd.Series(qid), alphas=[1.0])
    assert "column 3" in (tmp_path / "r.html").read_text(encoding="utf-8")
    turned = frame[frame.columns[::-1]]
    with pytest.raises(ValueError, match="a different order"):
        write_report(tmp_path / "r.html", frame, y, qid, test=(turned, y, qid))
    assert isinstance(report, Report)
    assert "pairwise error" in repr(report)


def test_a_file_that_was_there_stays_until_the_new_one_is_whole(tmp_path, ranking, monkeypatch):
    X, y, qid = ranking
    path = tmp_path / "r.html"
    path.write_text("before")
    monkeypatch.setattr("rankrls.report._write_report.render", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, X, y, qid, alphas=[1.0])
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    assert path.read_text() == "before"


def test_judgements_have_the_page_of_their_leaderboard(tmp_path):
    battles = pd.DataFrame(
        {"winner": ["a", "a", "b", "c", "b"], "loser": ["b", "c", "c", "a", "a"]}
    )
    board = write_report(tmp_path / "r.html", pairs=battles, title="Battles")
    write_leaderboard(tmp_path / "board.html", board, title="Battles")
    assert (tmp_path / "r.html").read_text() == (tmp_path / "board.html").read_text()
    with pytest.raises(ValueError, match="has no features"):
        write_report(tmp_path / "r.html", np.eye(3), pairs=battles)


def test_bad_input_is_named(tmp_path, ranking):
    X, y, qid = ranking
    bad = X.copy()
    bad[3, 2], bad[5, 2], bad[4, 0] = np.nan, np.inf, np.nan
    cases = [
        ((bad, y, qid), {}, r"first at row 3, column 2; 2 in all"),
        ((sparse.csr_array(bad), y, qid), {}, "first at row 3"),
        ((X, np.column_stack([y, y]), qid), {}, "2 outputs"),
        ((X, 0 * y, qid), {}, "no query has a pair"),
        ((X, 0 * y), {}, "all labels y are equal"),
        ((X, np.where(qid == 3, y, 0), qid), {}, "only one query has a pair"),
        ((X, PreferenceGraph.from_scores(y), None), {}, "given pairs"),
        ((X, y, qid), {"alphas": []}, "alphas is empty"),
        ((X, y, qid), {"alphas": [1.0], "estimator": RankSVM()}, "leave alphas out"),
        ((X, y, qid), {"estimator": RankRLS}, "estimator must have fit"),
        ((X, y, qid), {"feature_names": ["a"]}, "feature_names has 1 entries"),
        ((X, y, qid), {"feature_names": "abcdef"}, "feature_names must be a list"),
        ((X, y, qid), {"test": X}, "test must be a tuple"),
        ((X, y, qid), {"test": (X, y)}, "or for neither"),
        ((X, y, qid), {"test": (X[:, 1:], y, qid)}, "must have 6 columns"),
        ((X, y, qid), {"test": (X, 0 * y, qid)}, "no query of test has a pair"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            write_report(tmp_path / "r.html", *arguments, **options)
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "no" / "r.html", X, y, qid)
    assert list(tmp_path.iterdir()) == []
