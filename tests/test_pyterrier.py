"""Rankers as learners of PyTerrier: the real package, which needs no Java for this."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM
from rankrls.io import load_model, save_model
from rankrls.metrics import pairwise_accuracy
from rankrls.preprocessing import QueryScaler
from rankrls.pyterrier import PyTerrierLearner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pt = pytest.importorskip("pyterrier")

pytestmark = pytest.mark.filterwarnings(r"ignore:The inplace keyword in DataFrame\.drop")

WEIGHTS = np.array([1.0, -2.0, 0.5])


def results(queries, seed):
    """Retrieved documents in any order; features differ by query more than within."""
    rng = np.random.default_rng(seed)
    rows = [
        {"qid": f"q{q}", "query": "words", "docno": f"d{d}", "score": rng.random(), "rank": d}
        for q in queries
        for d in range(3 + q % 5)
    ]
    frame = pd.DataFrame(rows)
    level = frame["qid"].str[1:].astype(int).to_numpy() * 10.0
    frame["features"] = list(rng.standard_normal((len(frame), 3)) + level[:, None])
    return frame.sample(frac=1.0, random_state=seed)


def qrels(frame):
    """Judgements of most documents, by their features within their query."""
    features = np.stack(frame["features"].to_list())
    level = frame["qid"].str[1:].astype(int).to_numpy() * 10.0
    labels = np.digitize((features - level[:, None]) @ WEIGHTS, [-1.0, 1.0])
    return frame[["qid", "docno"]].assign(label=labels).sample(frac=0.8, random_state=0)


TRAIN, VALID, TEST = results(range(12), 0), results(range(12, 16), 1), results(range(16, 20), 2)
DATA = (TRAIN, qrels(TRAIN), VALID, qrels(VALID))


def merged(frame):
    """As PyTerrier joins documents and judgements: what was not judged is not relevant."""
    joined = frame.merge(qrels(frame), on=["qid", "docno"], how="left").fillna({"label": 0})
    return np.stack(joined["features"].to_list()), joined["label"].to_numpy(), joined["qid"]


@pytest.mark.parametrize(
    "ranker",
    [
        RankRLS(0.5),
        RankRLSCV([0.1, 1.0, 10.0]),
        RankSVM(),
        RankRLS(kernel="rbf", gamma=0.01),
        make_pipeline(StandardScaler(), RankRLS()),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
@pytest.mark.filterwarnings("ignore:the best alpha")
def test_trains_within_queries(ranker, tmp_path):
    learner = PyTerrierLearner(ranker)
    model = pt.ltr.apply_learned_model(learner, form="ltr")
    model.fit(*DATA)
    assert learner.n_queries_ == 12
    X, y, qid = merged(TRAIN)
    if isinstance(ranker, RankRLS):
        by_hand = RankRLS(**ranker.get_params()).fit(X, y, qid=qid)
        new = np.stack(TEST["features"].to_list())
        np.testing.assert_allclose(learner.predict(new), by_hand.predict(new), rtol=1e-8)
    rows, labels, queries = merged(VALID)
    expected = pairwise_accuracy(labels, learner.predict(rows), qid=queries)
    assert learner.validation_score_ == pytest.approx(expected)
    assert expected > 0.7
    out = model.transform(TEST)
    assert set(out["docno"]) == set(TEST["docno"])
    best = out[out["rank"] == out["rank"].min()].set_index("qid")["score"]
    pd.testing.assert_series_equal(best.sort_index(), out.groupby("qid")["score"].max())
    save_model(learner.ranker_, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    np.testing.assert_array_equal(loaded.predict(X), learner.predict(X))


def test_the_default_form_is_refused_by_the_learner():
    model = pt.ltr.apply_learned_model(PyTerrierLearner(RankRLS()))
    with pytest.raises(ValueError, match=r'without queries.*form="ltr"'):
        model.fit(*DATA[:2])


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("ranker", [RankRLS(), make_pipeline(StandardScaler(), RankSVM())])
def test_the_default_form_of_a_ranker_is_a_warning(ranker):
    model = pt.ltr.apply_learned_model(ranker)
    with pytest.warns(UserWarning, match="PyTerrier calls Rank.* without queries") as caught:
        model.fit(*DATA[:2])
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("ranker", [AutoRanker(), make_pipeline(QueryScaler(), RankRLS())])
def test_rankers_that_need_queries_to_predict_are_refused(ranker):
    if not isinstance(ranker, AutoRanker):
        with config_context(enable_metadata_routing=True):
            ranker[0].set_transform_request(qid=True)
    model = pt.ltr.apply_learned_model(PyTerrierLearner(ranker), form="ltr")
    with pytest.raises(ValueError, match="PyTerrier gives predict no queries"):
        model.fit(*DATA)


def test_validation_rows_without_sizes():
    X, y, _ = merged(TRAIN)
    with pytest.raises(ValueError, match="eval_set needs eval_group"):
        PyTerrierLearner(RankRLS()).fit(X, y, group=[len(y)], eval_set=[(X, y)])
    with pytest.raises(ValueError, match="add up to 3 rows"):
        PyTerrierLearner(RankRLS()).fit(X, y, group=[1, 2])
