"""The report's labels to check and reasons of errors: against refits, `audit` and plain sums."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from rankrls import RankRLS, RankRLSCV, RankSVM
from rankrls.datasets import make_ranking
from rankrls.diagnostics import audit
from rankrls.model_selection import leave_query_out_predict
from rankrls.report import write_report
from rankrls.report._data import check_rankings
from rankrls.report._page import render
from rankrls.report._write_report import _reasons
from report_cases import analysed


@pytest.fixture(scope="module")
def ranking():
    X, y, qid = make_ranking(
        n_queries=25, n_docs=(1, 12), n_features=5, random_state=1, return_X_y_qid=True
    )
    return X, y.astype(float), qid


def section(text, key):
    return re.search(rf'<section id="{key}".*?</section>', text, re.S).group(0)


def test_queries_and_rows_against_refits(ranking):
    X, y, qid = ranking
    model = RankRLS(2.0, query_weighting="size")
    found = analysed(X, y, qid, estimator=model).to_check
    assert len(found.queries) == 10
    for query in found.queries:
        inside = qid == int(query.name)
        scores = model.fit(X[~inside], y[~inside], qid=qid[~inside]).predict(X[inside])
        assert query.n_rows == inside.sum()
        assert query.agreement == pytest.approx(np.corrcoef(scores, y[inside])[0, 1], abs=1e-8)
    assert len(found.rows) == 15
    for row in found.rows:
        rest = np.arange(len(y)) != row.row
        others = rest & (qid == qid[row.row])
        scores = model.fit(X[rest], y[rest], qid=qid[rest]).predict(X)
        offset = (y[others] - scores[others]).mean()
        assert row.predicted == pytest.approx(scores[row.row] + offset, abs=1e-8)
        assert (row.label, row.query) == (y[row.row], str(qid[row.row]))
        assert np.sign(row.studentised) == np.sign(row.label - row.predicted)


SPACES = {
    "linear": (RankRLS(2.0), np.asarray),
    "size": (RankRLS(2.0, query_weighting="size"), np.asarray),
    "sparse": (RankRLS(2.0, query_weighting="query"), sparse.csr_array),
    "search": (RankRLSCV([0.5, 8.0]), np.asarray),
    "rbf": (RankRLS(0.5, kernel="rbf"), np.asarray),
    "precomputed": (RankRLS(0.5, kernel="precomputed"), rbf_kernel),
    "nystroem": (RankRLS(0.5, kernel="rbf", basis=15, random_state=0), np.asarray),
    "unit": (RankRLS(2.0, cost="unit"), np.asarray),
    "ties": (RankRLS(2.0, ties="drop"), np.asarray),
}


@pytest.mark.parametrize("name", SPACES)
def test_numbers_are_those_of_audit(ranking, name):
    X, y, qid = ranking
    estimator, kind = SPACES[name]
    X = kind(X)
    result = analysed(X, y, qid, estimator=estimator)
    found = result.to_check
    model = result.plan.with_alpha(found.alpha)
    table = audit(model, X, y, qid=qid)
    line = {str(label): k for k, label in enumerate(table.labels)}
    chosen = [line[query.name] for query in found.queries]
    mean = np.nansum(table.agreement * table.size) / table.size[~np.isnan(table.agreement)].sum()
    shrunk = (table.size * table.agreement + 10 * mean) / (table.size + 10)
    assert chosen == np.argsort(shrunk, kind="stable")[: len(chosen)].tolist()
    for column in ("agreement", "studentised", "p_value"):
        shown = [getattr(query, column) for query in found.queries]
        np.testing.assert_allclose(shown, getattr(table, column)[chosen], rtol=1e-7)
    assert found.n_queries == np.isfinite(table.p_value).sum()
    assert found.queries_below == (table.p_value < 0.05 / found.n_queries).sum()
    if name in ("unit", "ties"):
        assert "magnitude" in found.no_rows
        assert found.rows == []
        assert all(query.rows == [] for query in found.queries)
        return
    rows = audit(model, X, y, qid=qid, by="row")
    n = np.bincount(qid)[qid]
    compared = n > 1
    weight = {"pair": n, "size": np.ones(len(y)), "query": 2 / np.maximum(n - 1, 1)}
    weight = weight[model.query_weighting]
    ratio = (rows.weight / weight)[compared]
    np.testing.assert_allclose(ratio, ratio[0])
    size = rows.studentised * np.sqrt(weight[compared].mean() / weight)
    order = np.argsort(-size, kind="stable")[:15]
    np.testing.assert_allclose([abs(row.studentised) for row in found.rows], size[order], rtol=1e-7)
    assert [row.row for row in found.rows] == order.tolist()
    if name == "size":
        shown = [row.p_value for row in found.rows]
        np.testing.assert_allclose(shown, rows.p_value[order], rtol=1e-7)
    for query in found.queries:
        inside = np.flatnonzero(qid == int(query.name))
        inside = inside[np.argsort(-size[inside], kind="stable")]
        assert [row.row for row in query.rows] == inside[:3].tolist()


def test_sample_weights_leave_rows_out(ranking, tmp_path):
    X, y, qid = ranking
    weight = np.linspace(0.5, 2.0, len(y))
    report = write_report(tmp_path / "r.html", X, y, qid, alphas=[2.0], sample_weight=weight)
    table = audit(RankRLS(2.0), X, y, qid=qid, sample_weight=weight)
    agreement = {str(label): a for label, a in zip(table.labels, table.agreement, strict=True)}
    for query in report.to_check.queries:
        assert query.agreement == pytest.approx(agreement[query.name], abs=1e-8)
    assert report.to_check.no_rows
    assert "Rows are not available." in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("n_rows", [60, 1100])
def test_one_ranking_has_rows_only(n_rows):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    y = X @ [1.0, 2.0, 0.5] + 0.3 * rng.normal(size=n_rows)
    y[7] += 20.0
    result = analysed(X, y, alphas=[1.0, 4.0])
    found = result.to_check
    assert (found.queries, found.n_rows) == ([], n_rows)
    assert (found.rows[0].row, found.rows[0].query) == (7, None)
    assert found.rows_below == 1
    rows = audit(RankRLS(found.alpha), X, y, by="row")
    assert found.rows[0].studentised == pytest.approx(rows.studentised[7])
    assert found.rows[0].p_value == pytest.approx(rows.p_value[7])
    text = section(render(result, title=None, limit=10), "labels")
    assert "Queries" not in text
    assert "1 is below" in text


def test_what_was_mislabelled_comes_first():
    X, y, qid = make_ranking(
        n_queries=40, n_docs=(2, 25), n_features=6, random_state=3, return_X_y_qid=True
    )
    y = y.astype(float)
    large = np.flatnonzero(np.bincount(qid) > 12)[2]
    inside = qid == large
    y[inside] = y[inside].max() - y[inside]
    row = int(np.flatnonzero((y == y.max()) & ~inside)[0])
    y[row] = -10.0
    found = analysed(X, y, qid, document_names=[f"d{i}" for i in range(len(y))]).to_check
    assert found.queries[0].name == str(large)
    assert found.queries[0].agreement < -0.3
    assert (found.rows[0].row, found.rows[0].name) == (row, f"d{row}")
    assert found.rows[0].studentised < -4


def _flipped(seed):
    """Labels 0 to 3, of which 5 % are turned round."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(60), rng.integers(3, 12, 60))
    X = rng.standard_normal((len(qid), 4))
    y = np.clip(np.round(X @ [1, 0.5, 0, -1] + 0.3 * rng.standard_normal(len(qid)) + 1), 0, 3)
    wrong = rng.random(len(qid)) < 0.05
    return X, np.where(wrong, 3 - y, y), qid, wrong


def test_alpha_of_the_audit_suits_the_labels():
    X, y, qid, wrong = _flipped(2)
    result = analysed(X, y, qid)
    squares = []
    for alpha in result.held.path.alphas:
        f = leave_query_out_predict(RankRLS(alpha), X, y, qid=qid)
        missed = pd.Series(y - f).groupby(qid)
        squares.append((missed.var(ddof=0) * missed.size() ** 2).sum())  # Σ n_q r²
    found = result.to_check
    assert found.alpha == result.held.path.alphas[np.argmin(squares)]
    assert found.alpha < result.alpha / 100

    def area(alpha):
        rows = audit(RankRLS(result.alpha), X, y, qid=qid, by="row", alpha=alpha)
        size = rows.studentised * np.sqrt(rows.weight.mean() / rows.weight)
        return roc_auc_score(wrong, size)

    assert area(found.alpha) > area(None) + 0.2
    assert wrong[[row.row for row in found.rows[:8]]].all()
    text = section(render(result, title=None, limit=10), "labels")
    assert "which has the smallest squared error of held-out labels" in text
    fixed = analysed(X, y, qid, estimator=RankRLS(result.alpha))
    assert fixed.to_check.alpha == result.alpha
    assert "smallest squared" not in section(render(fixed, title=None, limit=10), "labels")


LEFT_OUT = {
    "cg": (RankRLSCV([1.0, 8.0], solver="cg"), "conjugate gradients"),
    "early": (RankRLS(1.0, early_stopping=True, random_state=0), "With early stopping"),
    "svm": (RankSVM(1.0), "is required, not RankSVM"),
    "pipeline": (make_pipeline(StandardScaler(), RankRLS(1.0)), "is required, not Pipeline"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_without_a_shortcut_there_is_the_agreement_with_folds(ranking, name):
    X, y, qid = ranking
    estimator, reason = LEFT_OUT[name]
    result = analysed(X, y, qid, estimator=estimator)
    found, scores = result.to_check, result.held.scores
    expected = np.full(qid.max() + 1, np.nan)
    for q in range(len(expected)):
        inside = qid == q
        if len(np.unique(y[inside])) > 1:
            expected[q] = np.corrcoef(y[inside], scores[inside])[0, 1]
    assert found.n_queries == np.isfinite(expected).sum()
    for query in found.queries:
        assert query.agreement == pytest.approx(expected[int(query.name)])
        assert np.isnan(query.p_value)
    assert found.rows == []
    text = section(render(result, title=None, limit=10), "labels")
    assert "The scores are those of 5 folds. p-values are not available." in text
    assert reason in text
    assert "nan" not in text
    ranked = render(analysed(X, y, estimator=estimator), title=None, limit=10)
    assert "This section is not available." in section(ranked, "labels")


def test_labels_that_are_predicted_exactly():
    X = np.arange(24.0).reshape(12, 2) ** 2
    y = X @ [1.0, 2.0]
    qid = np.repeat([0, 1, 2], 4)
    text = section(render(analysed(X, y, qid, alphas=[1e-9]), title=None, limit=10), "labels")
    assert "nan" not in text
    X = np.eye(3)[[0, 1, 2] * 4]
    y = np.tile([0.0, 1.0, 3.0], 4)
    y[4] = 9.0
    found = analysed(X, y, np.repeat([0, 1, 2, 3], 3), alphas=[1e-12]).to_check
    assert found.rows[0].row == 4


def test_the_page_and_its_data(ranking, tmp_path):
    X, y, qid = ranking
    names = [f"<b>{i}" for i in range(len(y))]
    ids = np.array([f"{q} <i>" for q in qid])
    report = write_report(tmp_path / "r.html", X, y, ids, document_names=names, alphas=[1.0])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "<i>" not in text
    found = report.to_check
    shown = section(text, "labels")
    assert "Queries are sorted by agreement" in shown
    for query in found.queries:
        assert f"<bdi>{query.name.replace('<', '&lt;').replace('>', '&gt;')}</bdi>" in shown
    assert f"0.05/{found.n_rows:,}" in shown
    assert f"0.05/{found.n_queries:,}" in shown
    data = re.search(r'id="results">(.*?)</script>', text, re.S).group(1)
    data = json.loads(data)["labels_to_check"]
    assert [query["name"] for query in data["queries"]] == [q.name for q in found.queries]
    assert [row["row"] for row in data["rows"]] == [row.row for row in found.rows]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", [RankRLS(2.0), RankSVM(1.0)], ids=["rls", "svm"])
def test_features_that_explain_an_order(ranking, kind, estimator):
    X, y, qid = ranking
    data = check_rankings(kind(X), y, qid, feature_names=list("abcde"))
    model = estimator.fit(data.X, y, qid=data.codes)
    reasons = _reasons(model, data, data, 3, 8)
    share = model.coef_.ravel() * (X[3] - X[8])
    assert reasons.difference == pytest.approx(share.sum())
    least = 0.01 * np.abs(share).max()
    best = [j for j in np.argsort(-share) if share[j] > least][:3]
    assert [name for name, _ in reasons.most] == ["abcde"[j] for j in best]
    np.testing.assert_allclose([value for _, value in reasons.most], share[best])
    assert len(reasons.against) == (share.min() < -least)
    for name, value in reasons.against:
        assert name == "abcde"[np.argmin(share)]
        assert value == pytest.approx(share.min())
    assert (reasons.kind, reasons.n) == ("feature", 5)


def test_training_rows_that_explain_an_order(ranking):
    X, y, qid = ranking
    train, new = qid < 18, qid >= 18
    data = check_rankings(X[train], y[train], qid[train])
    unseen = check_rankings(X[new], y[new], qid[new])
    for options in ({}, {"basis": 20, "random_state": 0}):
        model = RankRLS(0.5, kernel="rbf", gamma=0.1, **options)
        model.fit(data.X, data.y, qid=data.codes)
        reasons = _reasons(model, data, unseen, 0, 5)
        scores = model.predict(unseen.X)
        assert reasons.difference == pytest.approx(scores[0] - scores[5])
        rows = np.arange(train.sum()) if not options else model.basis_indices_
        k = rbf_kernel(unseen.X[[0, 5]], data.X[rows], gamma=0.1)
        share = model.dual_coef_.ravel() * (k[0] - k[1])
        first = int(np.argmax(share))
        row = int(rows[first])
        assert reasons.most[0][0] == f"row {row} of query {qid[train][row]}"
        assert reasons.most[0][1] == pytest.approx(share[first])
        assert reasons.kind == "row"


def test_reasons_after_the_steps_of_a_pipeline(ranking):
    X, y, qid = ranking
    data = check_rankings(X, y, qid, feature_names=list("abcde"))
    for steps, names in [
        ((StandardScaler(),), set("abcde")),
        ((PCA(2),), {"pca0", "pca1"}),
        ((FunctionTransformer(np.tanh),), {"x0", "x1", "x2", "x3", "x4"}),
    ]:
        model = make_pipeline(*steps, RankRLS(1.0)).fit(X, y, rankrls__qid=qid)
        reasons = _reasons(model, data, data, 0, 4)
        assert {name for name, _ in reasons.most + reasons.against} <= names
        scores = model.predict(X)
        assert reasons.difference == pytest.approx(scores[0] - scores[4])
    assert _reasons(LinearRegression().fit(X, y), data, data, 0, 4) is None


def test_the_worst_queries_are_explained_on_the_page(ranking):
    X, y, qid = ranking
    y = np.where(qid == 3, -y, y)
    names = ["colour", "price", "age", "size", "rank"]
    result = analysed(X, y, qid, alphas=[1.0], feature_names=names)
    text = section(render(result, title=None, limit=10), "worst")
    worst = result.worst[0]
    scores = result.model.predict(X)
    difference = scores[worst.above.row] - scores[worst.below.row]
    assert worst.reasons.difference == pytest.approx(difference)
    assert "contributions of 5 features. Largest contributions: <bdi>" in text
    assert any(name in text for name in names)
    kernel = analysed(X, y, qid, estimator=RankRLS(1.0, kernel="rbf"))
    assert "training rows. Largest contributions" in render(kernel, title=None, limit=10)
