"""Boosted trees of AutoRanker: arrays against LightGBM and a plain loop, stored models, extras."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rankrls import AutoRanker, PreferenceGraph
from rankrls.datasets import make_ranking
from rankrls.diagnostics import feature_importances
from rankrls.estimators import auto
from rankrls.estimators.auto_members import TreeMember, train
from rankrls.io import load_model, save_model
from rankrls.preprocessing.trees import Forest


def forest():
    """Two trees: one with three leaves, and a single leaf."""
    return Forest(
        roots=np.array([0, 5]),
        features=np.array([1, -1, 0, -1, -1, -1]),
        thresholds=np.array([0.5, 0.0, -1.0, 0.0, 0.0, 0.0]),
        left=np.array([1, 1, 3, 3, 4, 5]),
        right=np.array([2, 1, 4, 3, 4, 5]),
        values=np.array([0.0, 1.0, 0.0, 2.0, 4.0, 0.25]),
    )


def test_scores_are_sums_of_leaves():
    X = np.array([[0.0, 0.5], [-1.0, 0.6], [0.0, 7.0]])
    assert forest().predict(X).tolist() == [1.25, 2.25, 4.25]
    assert forest().is_consistent(2)
    assert not forest().is_consistent(1)
    for name, value in (("left", 0), ("right", 9), ("roots", 6), ("features", -2)):
        bad = forest()
        getattr(bad, name)[0] = value
        assert not bad.is_consistent(2)


def rows(n_queries=30):
    data = make_ranking(n_queries=n_queries, n_features=4, random_state=0)
    return data.data, data.target, data.qid


def test_trees_can_be_stored_and_need_no_lightgbm(tmp_path):
    X, y, qid = rows()
    ranker = AutoRanker(effort="quick", trees=False, random_state=0).fit(X, y, qid=qid)
    ranker._members.append(TreeMember(12, forest(), 0.5))
    save_model(ranker, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    assert_array_equal(loaded.predict(X, qid=qid), ranker.predict(X, qid=qid))
    ranker._members[-1].forest.features[0] = 12
    with pytest.raises(ValueError, match="trees of other features"):
        save_model(ranker, tmp_path / "model.rankrls")


def test_without_lightgbm(monkeypatch):
    X, y, qid = rows()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.setitem(auto.EFFORTS, "thorough", auto.EFFORTS["quick"])
    with pytest.raises(ImportError, match=r"pip install 'rankrls\[trees\]'"):
        AutoRanker(trees=True).fit(X, y, qid=qid)
    ranker = AutoRanker(effort="thorough", random_state=0).fit(X, y, qid=qid)
    assert "trees" not in ranker.members_["view"]
    with pytest.raises(ValueError, match="trees must be True, False or 'auto'; got 'yes'"):
        AutoRanker(trees="yes").fit(X, y, qid=qid)


@pytest.mark.parametrize("labels", ["grades", "scores"])
def test_scores_equal_those_of_lightgbm(labels, monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    X, y, qid = rows()
    kept, make = [], Forest.of_boosters.__func__
    monkeypatch.setattr(
        Forest,
        "of_boosters",
        classmethod(lambda cls, found: kept.extend(found) or make(cls, found)),
    )
    y = y if labels == "grades" else y - np.abs(X[:, 0])
    found = train(X, PreferenceGraph.from_scores(y, qid=qid), [1, 2], 1)
    assert all(isinstance(one, lightgbm.Booster) for one in kept)
    expected = np.mean([one.predict(X) for one in kept], axis=0)
    assert_allclose(found.predict(X), expected, rtol=1e-12, atol=1e-14)
    assert found.is_consistent(4)


def test_trees_are_members(tmp_path):
    """Trees follow steps that linear models and a few basis vectors do not."""
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(1500, 20)), np.arange(1500) // 15
    y = 1.0 * (X[:, 0] > 0.3) * (X[:, 1] > -0.2) + 2 * (X[:, 2] > 0.5) * (X[:, 3] < 0.5)
    X = pd.DataFrame(X, columns=[f"x{j}" for j in range(20)])
    X["shop"], X["sort"] = rng.choice(list("ab"), 1500), rng.choice(list("cdef"), 1500)
    ranker = AutoRanker(effort="quick", trees=True, random_state=0).fit(X, y, qid=qid)
    table = ranker.members_
    assert table["weight"][table["view"] == "trees"] in (1 / 3, 1 / 2)
    alone = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
    assert ranker.best_score_ > alone.best_score_ + 0.05
    order = rng.permutation(len(y))
    again = AutoRanker(effort="quick", trees=True, random_state=0)
    again.fit(X.iloc[order, ::-1], y[order], qid=-qid[order])
    assert_allclose(again.held_out_scores_, ranker.held_out_scores_[order], atol=1e-7)
    save_model(ranker, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    assert_array_equal(loaded.predict(X, qid=qid), ranker.predict(X, qid=qid))
    worth = feature_importances(ranker, X, y, qid=qid, by="block")["importance"]
    assert worth[0] > 0.3
    with pytest.raises(ValueError, match="trees=True needs one label"):
        again.fit(X, np.column_stack([y, y]), qid=qid)
