"""Metrics by name: the table, misspelt names, and scorers."""

import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

from rankrls import AutoRanker, ConditionalRankRLSCV, RankRLS, RankRLSCV, metrics
from rankrls import model_selection as ms
from rankrls.metrics import _lists, metric_names
from rankrls.metrics.metric_names import parse_metrics

rng = np.random.default_rng(0)
X, Y, QID = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), rng.integers(0, 12, 60)


@_lists.list_metric
def first_label(inputs, y, score, relevance_threshold=1.0):
    """The mean label of the first k rows: a metric of a few lines."""
    lists = inputs.ranked(score)
    total = lists.sum_groups(y[lists.order].astype(float))
    value = lists.sum_queries(total / lists.size * lists.inside) / np.maximum(lists.places, 1)
    return value, np.ones(len(value))


@pytest.fixture
def _added(monkeypatch):
    """One function and one row of the table: all that a new metric needs."""
    row = metric_names.Metric(first_label, "fl", ("first_grade",))
    monkeypatch.setitem(metric_names.METRICS, "first_label", row)
    monkeypatch.setitem(metric_names._SHORT, "fl", "first_label")
    for name in ("LIST_METRICS", "COMPARED_METRICS"):
        monkeypatch.setattr(metric_names, name, (*getattr(metric_names, name), "first_label"))
    for module in ("metrics._evaluate", "metrics._scorers", "metrics._compare",
                   "estimators.choosing"):  # fmt: skip
        for name in ("LIST_METRICS", "COMPARED_METRICS"):
            path = f"rankrls.{module}.{name}"
            monkeypatch.setattr(path, getattr(metric_names, name), raising=False)


@pytest.mark.usefixtures("_added")
def test_a_row_and_a_function_are_a_metric():
    score = X[:, 0].round()
    by_query = metrics.evaluate(Y, score, qid=QID, metrics="first_label@2,fl", average=None)
    for q in range(12):
        y = Y[q == QID][np.argsort(-X[q == QID, 0].round(), kind="stable")]
        if len(np.unique(X[q == QID, 0].round())) == len(y):
            assert by_query["first_label@2"][q] == y[:2].mean()
        assert by_query["fl"][q] == pytest.approx(y.mean())
    mean = by_query["first_label@2"].mean()
    assert metrics.compare_rankers(Y, score, -score, qid=QID, metric="fl@2").mean_a == mean
    fitted = RankRLSCV(scoring="fl@2").fit(X, Y, qid=QID)
    scorer = metrics.make_ranking_scorer("first_label@2")
    with sklearn.config_context(enable_metadata_routing=True):
        found = scorer(fitted, X, Y, qid=QID)
    assert found == first_label(Y, fitted.predict(X), qid=QID, k=2)
    ms.cross_val_score(RankRLS(), X, Y, qid=QID, cv=3, scoring="fl")
    AutoRanker(scoring="fl@3", effort="quick", random_state=0).fit(X, Y, qid=QID)
    with pytest.raises(ValueError, match="'first_grade@3': it is called 'first_label@3' here"):
        metrics.evaluate(Y, score, metrics="first_grade@3")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NDCG@10", "it is called 'ndcg@10' here"),
        ("MAP@3", "it is called 'map@3' here"),
        ("recip_rank", "it is called 'reciprocal_rank' here"),
        ("roc_auc", "of two classes 'pairwise_accuracy' is the AUC, within queries"),
        ("pairwise_error", "higher must be better: use 'pairwise_accuracy'"),
        ("c-index", "it is called 'concordance_index' here"),
    ],
)
def test_other_names_and_misspelt_names(name, meant):
    calls = [
        lambda: RankRLSCV(scoring=name).fit(X, Y, qid=QID),
        lambda: ConditionalRankRLSCV(scoring=name).fit(X, X @ X.T),
        lambda: ms.cross_val_score(RankRLS(), X, Y, qid=QID, cv=3, scoring=name),
        lambda: metrics.make_ranking_scorer(name),
        lambda: metrics.compare_rankers(Y, Y, Y, qid=QID, metric=name),
    ]
    for call in calls[:-1] if "concord" in meant else calls:  # which has no value by query
        with pytest.raises(ValueError, match=f"{name}': .*{meant}"):
            call()
    for metric in (name, metrics.concordance_index, metrics.make_ranking_scorer("ndcg")):
        with pytest.raises(ValueError, match="metric must be a function"):
            metrics.conditional_scores(X @ X.T, X @ X.T, metric=metric)


SCORERS = [name for name in metrics.__all__ if name.endswith("_scorer") and "make" not in name]


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_take_qid_by_metadata_routing(name):
    scorer, metric = getattr(metrics, name), getattr(metrics, name.removesuffix("_scorer"))
    cv = GroupKFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        cv = cv.set_split_request(groups="qid")
        scores = cross_val_score(Ridge(), X, Y, cv=cv, scoring=scorer, params={"qid": QID})
        search = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=cv, scoring=scorer)
        search.fit(X, Y, qid=QID)
    for (train, test), score in zip(cv.split(X, Y, groups=QID), scores, strict=True):
        predicted = Ridge().fit(X[train], Y[train]).predict(X[test])
        assert score == metric(Y[test], predicted, qid=QID[test])
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][1], scores.mean())


def test_scorers_without_routing_take_one_query():
    model = Ridge().fit(X, Y)
    expected = metrics.pairwise_accuracy(Y, model.predict(X))
    assert metrics.pairwise_accuracy_scorer(model, X, Y) == expected
    options = {"greater_is_better": False, "ties": "error"}
    loss = metrics.make_ranking_scorer(metrics.pairwise_error, **options)
    assert loss(model, X, Y) == -metrics.pairwise_error(Y, model.predict(X), ties="error")


def test_import_brings_nothing_that_scikit_learn_does_not():
    code = (
        "import sys, sklearn.linear_model, rankrls; before = set(sys.modules);"
        "import rankrls.metrics; new = set(sys.modules) - before;"
        "print(sorted(m for m in new if not m.startswith(('rankrls', 'narwhals'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_metrics():
    parsed = parse_metrics(" ndcg@5, map,mrr@2 ,err ")
    assert [(m.text, m.name, m.k) for m in parsed] == [
        ("ndcg@5", "ndcg", 5), ("map", "average_precision", None),
        ("mrr@2", "reciprocal_rank", 2), ("err", "expected_reciprocal_rank", None),
    ]  # fmt: skip
    for wrong, message in (
        ("", "metrics is empty"),
        (3, "metrics must be names of metrics"),
        ([3], "metrics must be one of 'pairwise_accuracy'"),
        ("map,map", "'map' comes twice"),
        ("ndcg@", "k an integer"),
        ("ndcg@²", "k an integer"),
        ("ndcg@0", "k must be an integer >= 1"),
        ("pairwise_error@3", "pairwise_error has no cut-off"),
        ("R@100", "it is called 'recall@100' here"),
        ("AP@5", "it is called 'average_precision@5' here"),
        ("kendall", "metrics must be one of .*'ndcg', .*, 'map', 'mrr', .*; got 'kendall'"),
        ("ndgc@10", r"got 'ndgc' \(did you mean 'ndcg'\?\)"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_metrics(wrong)
