"""Saved and loaded: the same ranker to the last bit, which learns on and forgets as before."""

import datetime
import os
import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline

from model_files import MODELS, assert_same, fits
from rankrls import ConditionalRankRLS, GreedyRankRLS, RankRLS, RankRLSCV
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.io import describe_model, load_model, save_model
from rankrls.preprocessing import QueryScaler

pytestmark = pytest.mark.filterwarnings(
    "ignore::rankrls.exceptions.FeatureScaleWarning",
    "ignore:the best alpha",
    "ignore:early stopping reached",
)

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 4))
NEW = rng.standard_normal((7, 4))
WIDE = rng.standard_normal((12, 20))
SPARSE = sparse.csr_array(np.where(rng.random((30, 40)) < 0.2, rng.random((30, 40)), 0.0))
y = rng.integers(0, 3, 30)
Y = np.column_stack([y, rng.integers(0, 4, 30), rng.standard_normal(30)])
qid = rng.choice(list("abcde"), 30)
PAIRS = np.array([rng.choice(30, 2, replace=False) for _ in range(20)])
ZEROS = np.where(np.arange(30) % 4, 1.5, 0.0)
SQUARE = rng.standard_normal((12, 12))


TWICE = np.vstack([X[:15]] * 2)
BY_SQUARE = ConditionalRankRLS(kernel="precomputed")
STOPPED = ConditionalRankRLS(0.0, kernel="rbf", early_stopping=True, random_state=0)

#: What `MODELS` do not have.
RANKERS = {
    "float32": fits(RankRLS(), X.astype(np.float32), Y, qid=qid, new=X),
    "wide, sparse": fits(RankRLS(solver="dual"), SPARSE, y, qid=qid, new=SPARSE),
    "rbf, tiny alpha": fits(RankRLS(1e-14, kernel="rbf"), TWICE, y, qid=qid, new=X),
    "nystroem, duplicates": fits(
        RankRLS(kernel="rbf", basis=list(range(20))), TWICE, y, qid=qid, new=X
    ),
    "a graph as target": fits(RankRLS(), X, PreferenceGraph.from_pairs(PAIRS, n_rows=30), new=X),
    "relation, precomputed": fits(
        *(BY_SQUARE, SQUARE @ SQUARE.T, SQUARE, SQUARE.T @ SQUARE), new=(SQUARE[:3], SQUARE[:2])
    ),
    "relation, stopped early": fits(STOPPED, SQUARE, SQUARE, new=(SQUARE[:3],)),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


def round_trip(estimator, path, **options):
    save_model(estimator, path, **options)
    return load_model(path)


ALL = MODELS | RANKERS


@pytest.mark.parametrize("name", ALL)
def test_round_trip(name, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker, new = ALL[name]()
        new = new if isinstance(new, tuple) else (new,)
        loaded = round_trip(ranker, path)
        if not isinstance(ranker, Pipeline):  # see test_steps
            assert_same(ranker, loaded)
        options = {"qid": [0] * len(new[0])} if name == "automatic_trees" else {}
        before, after = (r.predict(*new, **options) for r in (ranker, loaded))
        np.testing.assert_array_equal(before, after)
    before = path.read_bytes()
    save_model(loaded, path)
    assert path.read_bytes() == before
    assert describe_model(path)["type"] == type(ranker).__name__
    if isinstance(ranker, RankRLS) and ranker._model.solvers:
        likelihood = RankRLS.log_marginal_likelihood
        np.testing.assert_array_equal(likelihood(ranker), likelihood(loaded))
        if ranker.kernel != "precomputed":
            std, again = (r.predict(*new, return_std=True)[1] for r in (ranker, loaded))
            np.testing.assert_array_equal(std, again)
            pairs = new[0][:2], new[0][1:3]
            np.testing.assert_array_equal(
                ranker.preference_proba(*pairs), loaded.preference_proba(*pairs)
            )


@pytest.mark.parametrize("name", ["linear", "wide", "rbf", "precomputed", "nystroem"])
def test_without_uncertainty(name, path):
    ranker, new = ALL[name]()
    loaded = round_trip(ranker, path, uncertainty=False)
    np.testing.assert_array_equal(ranker.predict(new), loaded.predict(new))
    for attribute in ("coef_", "dual_coef_", "basis_indices_", "solver_", "n_pairs_"):
        assert_same(getattr(ranker, attribute, None), getattr(loaded, attribute, None), attribute)
    message = "precomputed" if ranker.kernel == "precomputed" else "saved with uncertainty=False"
    with pytest.raises(ValueError, match=message):
        loaded.predict(new, return_std=True)
    with pytest.raises(ValueError, match=message):
        loaded.preference_proba(new, new)
    with pytest.raises(ValueError, match="saved with uncertainty=False"):
        loaded.log_marginal_likelihood()
    assert describe_model(path)["summary"]["uncertainty"] is False
    before = path.read_bytes()
    save_model(loaded, path)  # what is gone is gone
    assert path.read_bytes() == before
    assert ranker.log_marginal_likelihood() is not None  # saving has not changed the original


def test_without_uncertainty_a_file_is_small_and_has_no_rows_of_a_linear_model(path):
    ranker = RankRLS().fit(WIDE, np.arange(12))
    centred = (WIDE - WIDE.mean(axis=0))[3].tobytes()
    save_model(ranker, path)
    assert centred in path.read_bytes()
    save_model(ranker, path, uncertainty=False)
    assert centred not in path.read_bytes()
    big = RankRLS(kernel="rbf").fit(rng.standard_normal((300, 2)), np.arange(300))
    save_model(big, path)
    assert 0 < path.stat().st_size - 300 * 300 * 8 < 40_000  # one matrix
    save_model(big, path, uncertainty=False)
    assert path.stat().st_size < 20_000


def test_selector(path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "ä", "d e"])
    selector = GreedyRankRLS(2).fit(frame, Y[:, :2], qid=qid).set_output(transform="pandas")
    loaded = round_trip(selector, path)
    assert_same(selector, loaded)
    assert list(loaded.transform(frame).columns) == list(selector.transform(frame).columns)
    assert describe_model(path)["feature_names"] == list(frame.columns)


def test_query_scaler_and_requested_metadata(path):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            QueryScaler("standard").set_transform_request(qid=True),
            RankRLS()
            .set_fit_request(qid=True, sample_weight=False, pairs="given")
            .set_score_request(qid=True),
        )
        pipeline.fit(X, y, qid=qid)
        save_model(pipeline, path)
    assert_same(pipeline, load_model(path))  # without routing, too
    with sklearn.config_context(enable_metadata_routing=True):
        loaded = load_model(path)
        for before, after in zip(pipeline, loaded, strict=True):
            assert str(before.get_metadata_routing()) == str(after.get_metadata_routing())
        np.testing.assert_array_equal(pipeline.predict(X, qid=qid), loaded.predict(X, qid=qid))
        assert pipeline.score(X, y, qid=qid) == loaded.score(X, y, qid=qid)
        with pytest.raises(ValueError, match="qid"):
            loaded.predict(X)
    alone = round_trip(QueryScaler().fit(X), path)
    np.testing.assert_array_equal(
        alone.transform(X, qid=qid), QueryScaler().fit_transform(X, qid=qid)
    )


# -- learning goes on -----------------------------------------------------------------------------

CODES = np.arange(30) // 5
FIRST, SECOND = slice(0, 15), slice(15, 30)

LEARNERS = {
    "ties dropped": {"ties": "drop"},
    "tiny alpha": {"alpha": 1e-13},
    "nystroem": {"kernel": "rbf", "basis": 6, "random_state": 0},
}

LABELS = {
    "integers": int,
    "tuples": lambda code: ("q", (int(code), None)),
    "dates": lambda code: datetime.date(2020, 1, 1 + code),
}


def assert_same_model(a, b):
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    np.testing.assert_array_equal(
        a.predict(X, return_std=True)[1], b.predict(X, return_std=True)[1]
    )
    assert (a.n_pairs_, a.n_queries_) == (b.n_pairs_, b.n_queries_)


@pytest.mark.parametrize("name", LEARNERS)
def test_learning_goes_on(name, path):
    target = Y[:, :2] if name == "nystroem" else y
    ranker = RankRLS(**LEARNERS[name]).fit(X[FIRST], target[FIRST], qid=CODES[FIRST])
    loaded = round_trip(ranker, path)
    for model in (ranker, loaded):
        model.partial_fit(X[SECOND], target[SECOND], qid=CODES[SECOND])
    assert_same_model(ranker, loaded)
    again = round_trip(loaded, path)
    for model in (ranker, again):
        model.forget(X[5:20], target[5:20], qid=CODES[5:20])
    assert_same_model(ranker, again)


@pytest.mark.parametrize("name", LABELS)
def test_queries_are_remembered(name, path):
    labels = [LABELS[name](code) for code in CODES]
    ranker = RankRLS().fit(X, y, qid=labels)
    loaded = round_trip(ranker, path)
    assert loaded._seen.queries == ranker._seen.queries
    with pytest.raises(ValueError, match="was added before"):
        loaded.partial_fit(X[:5], y[:5], qid=labels[:5])
    with pytest.raises(ValueError, match="added with 5 rows"):
        loaded.forget(X[:4], y[:4], qid=labels[:4])
    loaded.forget(X[:5], y[:5], qid=labels[:5])
    loaded.partial_fit(X[:5], y[:5], qid=labels[:5])
    np.testing.assert_allclose(loaded.coef_, ranker.coef_, rtol=1e-9)


def test_rankings_pairs_and_terms_are_remembered(path):
    ranker = RankRLS(cost="unit").partial_fit(X[:6], y[:6]).partial_fit(X[6:10], y[6:10])
    ranker.partial_fit(X[10:], y[10:], qid=CODES[10:], pairs=[[0, 15], [3, 9]])
    loaded = round_trip(ranker, path)
    assert loaded._seen.rankings == ranker._seen.rankings
    assert loaded._seen.joined == ranker._seen.joined
    with pytest.raises(ValueError, match="given pairs"):
        loaded.forget(X[25:], y[25:], qid=CODES[25:])
    for model in (ranker, loaded):
        model.forget(X[:6], y[:6])
    assert_same_model(ranker, loaded)
    with pytest.raises(ValueError, match="no ranking of 7 rows"):
        loaded.forget(X[:7], y[:7])
    loaded.set_params(cost="magnitude")
    with pytest.raises(ValueError, match="cost was changed from 'unit' to 'magnitude'"):
        loaded.partial_fit(X[:5], y[:5])


def test_without_uncertainty_there_is_nothing_to_add_to(path):
    ranker = RankRLS().fit(X, y, qid=[f"secret {code}" for code in CODES])
    loaded = round_trip(ranker, path, uncertainty=False)
    assert b"secret" not in path.read_bytes()
    for method in (loaded.partial_fit, loaded.forget):
        with pytest.raises(ValueError, match="fit it again"):
            method(X[:5], y[:5])


def test_many_queries_take_little_room(path):
    n = 20_000
    features = rng.standard_normal((2 * n, 2))
    ranker = RankRLS().fit(features, np.arange(2 * n) % 2, qid=np.arange(2 * n) // 2)
    loaded = round_trip(ranker, path)
    assert path.stat().st_size < 24 * n + 10_000  # label, number of rows, checksum
    assert len(loaded._seen.queries) == describe_model(path)["summary"]["n_queries_"] == n


# -- what cannot be saved -------------------------------------------------------------------------


def with_attribute(name, value):
    ranker = RankRLS().fit(X, y)
    setattr(ranker, name, value)
    return ranker


class Subclass(RankRLS):
    pass


REFUSED = {
    "not fitted": (RankRLS, "not fitted"),
    "forgotten": (lambda: RankRLS().fit(X, y).forget(X, y), "not fitted"),
    "other estimator": (lambda: Ridge().fit(X, y), "Ridge cannot be saved.*import skops.io"),
    "subclass": (lambda: Subclass().fit(X, y), "Subclass cannot be saved"),
    "search": (
        lambda: GridSearchCV(RankRLS(), {"alpha": [1.0]}, cv=3).fit(X, y),
        "save its best_estimator_",
    ),
    "kernel": (
        lambda: RankRLS(kernel=lambda a, b: float(a @ b)).fit(X, y),
        "kernel.*function.*precomputed",
    ),
    "splitter": (
        lambda: RankRLSCV([1.0], cv=GroupKFold(2)).fit(X, y, qid=qid),
        "GroupKFold.*fitting only by set_params",
    ),
    "nonsense": (lambda: RankRLS().fit(X, y).set_params(alpha=-1.0), "alpha of RankRLS must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, path):
    make, message = REFUSED[name]
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        save_model(make(), path)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["model.rankrls"]
