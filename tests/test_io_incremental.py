"""A model that was saved and loaded learns on and forgets as if it had never left."""

import datetime

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls.io import describe_model, load_model, save_model

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3))
Y = np.column_stack([rng.integers(0, 3, 40), rng.integers(0, 4, 40)])
y = Y[:, 0]
qid = np.arange(40) // 5
FIRST, SECOND = slice(0, 20), slice(20, 40)

MODELS = {
    "linear": {},
    "ties dropped": {"ties": "drop"},
    "tiny alpha": {"alpha": 1e-13},
    "nystroem": {"kernel": "rbf", "basis": 6, "random_state": 0},
    "nystroem, tiny alpha": {"kernel": "rbf", "basis": 20, "alpha": 1e-10},
}

LABELS = {
    "integers": lambda code: int(code),
    "numpy": lambda code: np.int64(code),
    "text": lambda code: f"query {code}",
    "floats": lambda code: code / 8,
    "tuples": lambda code: ("q", (int(code), None)),
    "dates": lambda code: datetime.date(2020, 1, 1 + code),
    "mixed": lambda code: [int(code), f"{code}", (int(code),)][code % 3],
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


def round_trip(ranker, path):
    save_model(ranker, path)
    return load_model(path)


def assert_same_model(a, b):
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    for left, right in zip(
        a.predict(X, return_std=True), b.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    assert (a.n_pairs_, a.n_queries_) == (b.n_pairs_, b.n_queries_)


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
@pytest.mark.parametrize("target", [y, Y], ids=["one", "two"])
@pytest.mark.parametrize("name", MODELS)
def test_learning_goes_on(name, target, how, path):
    ranker = getattr(RankRLS(**MODELS[name]), how)(X[FIRST], target[FIRST], qid=qid[FIRST])
    loaded = round_trip(ranker, path)
    for model in (ranker, loaded):
        model.partial_fit(X[SECOND], target[SECOND], qid=qid[SECOND])
    assert_same_model(ranker, loaded)
    again = round_trip(loaded, path)
    for model in (ranker, again):
        model.forget(X[5:30], target[5:30], qid=qid[5:30])
    assert_same_model(ranker, again)


@pytest.mark.parametrize("name", LABELS)
def test_queries_are_remembered(name, path):
    labels = [LABELS[name](code) for code in qid]
    ranker = RankRLS().fit(X, y, qid=labels)
    loaded = round_trip(ranker, path)
    assert loaded._seen.queries == ranker._seen.queries
    with pytest.raises(ValueError, match="earlier call"):
        loaded.partial_fit(X[:5], y[:5], qid=labels[:5])
    with pytest.raises(ValueError, match="added with 5 rows"):
        loaded.forget(X[:4], y[:4], qid=labels[:4])
    loaded.forget(X[:5], y[:5], qid=labels[:5])
    loaded.partial_fit(X[:5], y[:5], qid=labels[:5])
    np.testing.assert_allclose(loaded.coef_, ranker.coef_, rtol=1e-9)
    before = path.read_bytes()
    save_model(ranker, path)
    assert path.read_bytes() == before


def test_rankings_and_pairs_are_remembered(path):
    ranker = RankRLS().partial_fit(X[:6], y[:6]).partial_fit(X[6:12], y[6:12])
    ranker.partial_fit(X[12:], y[12:], qid=qid[12:], pairs=[[0, 20], [3, 9]])
    loaded = round_trip(ranker, path)
    assert loaded._seen.rankings == ranker._seen.rankings
    assert loaded._seen.joined == ranker._seen.joined
    with pytest.raises(ValueError, match="given pairs"):
        loaded.forget(X[20:], y[20:], qid=qid[20:])
    for model in (ranker, loaded):
        model.forget(X[:6], y[:6])
    assert_same_model(ranker, loaded)
    with pytest.raises(ValueError, match="no ranking of 7 rows"):
        loaded.forget(X[:7], y[:7])


def test_terms_are_remembered(path):
    loaded = round_trip(RankRLS(cost="unit").fit(X, y, qid=qid), path)
    loaded.set_params(cost="magnitude")
    with pytest.raises(ValueError, match="cost was changed from 'unit' to 'magnitude'"):
        loaded.partial_fit(X[:5], y[:5])


def test_without_uncertainty_there_is_nothing_to_add_to(path):
    ranker = RankRLS().fit(X, y, qid=[f"secret {code}" for code in qid])
    save_model(ranker, path, uncertainty=False)
    assert b"secret" not in path.read_bytes()
    loaded = load_model(path)
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
    with pytest.raises(ValueError, match="fit it again"):
        loaded.partial_fit(X[:5], y[:5])
    with pytest.raises(ValueError, match="fit it again"):
        loaded.forget(X[:5], y[:5])


def test_a_model_that_has_forgotten_everything_is_not_fitted(path):
    ranker = RankRLS().fit(X, y, qid=qid).forget(X, y, qid=qid)
    with pytest.raises(ValueError, match="not fitted"):
        save_model(ranker, path)


def test_many_queries_take_little_room(path):
    n = 20_000
    features = rng.standard_normal((2 * n, 2))
    ranker = RankRLS().fit(features, np.arange(2 * n) % 2, qid=np.arange(2 * n) // 2)
    save_model(ranker, path)
    assert path.stat().st_size < 24 * n + 10_000  # label, number of rows, checksum
    assert len(load_model(path)._seen.queries) == n
    assert describe_model(path)["summary"]["n_queries_"] == n
