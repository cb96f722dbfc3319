"""Query ids inside scikit-learn's tools: where they get lost, and how they arrive."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn import model_selection as sk
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import GreedyRankRLS, PreferenceGraph, RankRLS, RankRLSCV, RankSVM
from rankrls.datasets import make_ranking
from rankrls.metrics import make_ranking_scorer, ndcg, pairwise_accuracy
from rankrls.model_selection import (
    QueryKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from rankrls.preprocessing import QueryScaler

X, y, qid = make_ranking(n_queries=12, random_state=0, return_X_y_qid=True)
y = y + 5 * np.random.default_rng(0).standard_normal(12)[qid]  # queries of very different levels
GRID = {"rankrls__alpha": [0.1, 10.0]}
PIPELINE = make_pipeline(StandardScaler(), RankRLS())
FOLDS = sk.GroupKFold(3)

LOST = {
    "cross_val_score": lambda m, **o: sk.cross_val_score(m, X, y, **o),
    "cross_validate": lambda m, **o: sk.cross_validate(m, X, y, **o),
    "cross_val_predict": lambda m, **o: sk.cross_val_predict(m, X, y, **o),
    "learning_curve": lambda m, **o: sk.learning_curve(m, X, y, train_sizes=[0.9], **o),
    "permutation_test_score": lambda m, **o: sk.permutation_test_score(
        m, X, y, n_permutations=2, **o
    ),
}


MODELS = [RankRLS(), RankSVM(), RankRLSCV([1.0], cv=2), PIPELINE, PIPELINE]


@pytest.mark.parametrize(("call", "model"), [*zip(LOST.values(), MODELS, strict=True)], ids=LOST)
def test_groups_without_qid_are_a_warning(call, model):
    with pytest.warns(UserWarning, match="RankRLS|RankSVM") as caught:
        call(model, groups=qid, cv=FOLDS)
    found = [w for w in caught if "groups only define which rows" in str(w.message)]
    assert found
    assert {w.filename for w in found} == {__file__}
    assert "rankrls.model_selection.cross_val_score" in str(found[0].message)


def test_searches_with_groups():
    greedy, given = GreedyRankRLS(2), {"groups": qid, "cv": FOLDS}
    for call in (
        lambda: sk.GridSearchCV(PIPELINE, GRID, cv=FOLDS).fit(X, y, groups=qid),
        lambda: sk.cross_val_score(RankRLS(), X, y, n_jobs=2, **given),
        lambda: sk.cross_val_score(greedy, X, y, scoring=lambda *_: 0.0, **given),
    ):
        with pytest.warns(UserWarning, match="groups only define which rows"):
            call()


@pytest.mark.parametrize("call", LOST.values(), ids=LOST)
def test_no_warning_without_reason(call):
    """Every warning is an error here."""
    call(RankRLS(), cv=sk.KFold(3))
    call(Ridge(), groups=qid, cv=FOLDS)


def test_groups_that_are_no_queries():
    """Samples of a patient share their label: there is nothing to compare inside a group."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        label = np.arange(12)[qid] % 2
        sk.cross_val_score(RankRLS(), X, label, groups=qid, cv=FOLDS)
        graph = PreferenceGraph.from_scores(y, qid=qid)
        sk.cross_val_score(RankRLS(), X, graph, groups=qid, cv=FOLDS)
        sk.cross_val_predict(RankRLS(), X, y, groups=qid, cv=FOLDS, params={"qid": qid})
        sklearn.clone(PIPELINE)


def by_hand(model, splits, metric=pairwise_accuracy, **options):
    scores = []
    for train, test in splits:
        fitted = sklearn.clone(model)
        name = "rankrls__qid" if hasattr(model, "steps") else "qid"
        fitted.fit(X[train], y[train], **{name: qid[train]})
        scores.append(metric(y[test], fitted.predict(X[test]), qid=qid[test], **options))
    return scores


@pytest.mark.parametrize(
    ("model", "cv", "ids"),
    [
        (RankRLS(), QueryKFold(3), lambda q: [f"q{i}" for i in q]),
        (RankSVM(), FOLDS, np.asarray),
        (PIPELINE, 3, pd.Series),
    ],
)
def test_cross_val_score(model, cv, ids):
    splitter = QueryKFold(3) if cv == 3 else cv
    splits = list(splitter.split(X, y, groups=ids(qid)))
    found = cross_val_score(model, X, y, qid=ids(qid), cv=cv)
    assert_allclose(found, by_hand(model, splits))
    given = cross_val_score(model, X, y, qid=ids(qid), cv=splits)
    assert_allclose(given, found)


def test_names_of_metrics():
    shifted = y - y.min()
    found = cross_validate(
        RankRLS(), X, shifted, qid=qid, cv=3, scoring=["ndcg@5", "pairwise_accuracy"]
    )
    scorer = make_ranking_scorer(ndcg, k=5)
    assert_allclose(
        found["test_ndcg@5"], cross_val_score(RankRLS(), X, shifted, qid=qid, cv=3, scoring=scorer)
    )
    assert_allclose(
        found["test_pairwise_accuracy"], cross_val_score(RankRLS(), X, y, qid=qid, cv=3)
    )
    named = cross_validate(
        RankRLS(), X, shifted, qid=qid, cv=3, scoring={"a": scorer, "b": "ndcg@5"}
    )
    assert_allclose(named["test_a"], named["test_b"])
    with pytest.raises(ValueError, match="called 'map' here"):
        cross_val_score(RankRLS(), X, y, qid=qid, scoring="MAP")
    with pytest.raises(ValueError, match="cross_validate takes several"):
        cross_val_score(RankRLS(), X, y, qid=qid, scoring=["ndcg"])


def test_searches_and_other_estimators_inside():
    expected = cross_val_score(PIPELINE.set_params(rankrls__alpha=0.1), X, y, qid=qid, cv=3)
    grid = {"rankrls__alpha": [0.1]}
    for inner in (QueryKFold(2), sk.GroupKFold(2)):
        search = sk.GridSearchCV(PIPELINE, grid, cv=inner)
        assert_allclose(cross_val_score(search, X, y, qid=qid, cv=3), expected)
    scaled = make_pipeline(GreedyRankRLS(2), RankRLS())
    assert cross_val_score(scaled, X, y, qid=qid, cv=3).shape == (3,)
    assert cross_val_score(Ridge(), X, y, qid=qid, cv=3).shape == (3,)
    parallel = cross_val_score(PIPELINE, X, y, qid=qid, cv=3, n_jobs=2)
    assert_allclose(parallel, expected)
    assert not sklearn.get_config()["enable_metadata_routing"]


def test_other_metadata():
    weight = np.where(qid < 6, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = RankRLS().set_fit_request(sample_weight=True)
    found = cross_validate(
        ranker, X, y, qid=qid, cv=3, params={"sample_weight": weight}, return_estimator=True
    )
    splits = list(QueryKFold(3).split(X, y, groups=qid))
    for fitted, (train, _) in zip(found["estimator"], splits, strict=True):
        kept = train[weight[train] > 0]
        assert_allclose(fitted.coef_, RankRLS().fit(X[kept], y[kept], qid=qid[kept]).coef_)


def test_cross_val_predict():
    found = cross_val_predict(PIPELINE, X, y, qid=qid, cv=3)
    for train, test in QueryKFold(3).split(X, y, groups=qid):
        fitted = sklearn.clone(PIPELINE).fit(X[train], y[train], rankrls__qid=qid[train])
        assert_allclose(found[test], fitted.predict(X[test]))
    # Models that take no queries have the same folds.
    splits = list(QueryKFold(3).split(X, y, groups=qid))
    for model in (Ridge(), make_pipeline(StandardScaler(), Ridge())):
        found = cross_val_predict(model, X, y, qid=qid, cv=3)
        assert_allclose(found, sk.cross_val_predict(model, X, y, cv=splits))


def test_graphs_and_one_ranking():
    graph = PreferenceGraph.from_scores(y, qid=qid)
    expected = cross_val_score(RankRLS(), X, y, qid=qid, cv=3)
    assert_allclose(cross_val_score(RankRLS(), X, graph, cv=3), expected)
    assert_allclose(sk.cross_val_score(RankRLS(), X, graph, cv=QueryKFold(3)), expected)
    search = sk.GridSearchCV(PIPELINE, GRID, cv=QueryKFold(3)).fit(X, graph)
    assert search.best_score_ > 0.8
    one = cross_val_score(RankRLS(), X, y, cv=sk.KFold(3))
    assert_allclose(one, sk.cross_val_score(RankRLS(), X, y, cv=sk.KFold(3)))


def test_rankers_ask_for_qid():
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(QueryScaler(), RankRLS()).fit(X, y, qid=qid)
        scaled = QueryScaler().fit_transform(X, qid=qid)
        ranker = RankRLS().fit(scaled, y, qid=qid)
        assert pipeline.score(X, y, qid=qid) == ranker.score(scaled, y, qid=qid)
        search = sk.GridSearchCV(RankRLS(), {"alpha": [1.0]}, cv=sk.KFold(2), error_score="raise")
        search.fit(X, y, qid=qid)
        ignoring = make_pipeline(StandardScaler(), RankRLS().set_fit_request(qid=False))
        with pytest.raises(TypeError, match="unexpected argument"):
            ignoring.fit(X, y, qid=qid)
