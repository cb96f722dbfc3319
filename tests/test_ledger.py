"""What a model knows about the queries that it was fitted to: their ids, sizes and checksums."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from rankrls import RankRLS, RankRLSCV, streaming
from rankrls.estimators.seen_queries import SeenQueries, query_keys
from rankrls.io import load_model, save_model

OTHER = "was added with other features, scores or weights"


def data(seed=0, n_queries=12, n_docs=8):
    """Features with offsets and of unlike scales, tied and duplicate rows; queries mixed."""
    rng = np.random.default_rng(seed)
    scales = np.array([1e-9, 1.0, 1e3, 1e9])
    X = rng.normal([0, 0, 5, 0], size=(n_queries * n_docs, 4)) * scales
    X[5] = X[3]
    qid = rng.permutation(np.repeat(np.arange(n_queries), n_docs))
    y = rng.integers(0, 3, len(X)).astype(float)
    return X, y, qid, rng.uniform(0.5, 2.0, len(X))


def changed(X, row, column):
    """The same rows with one cell that differs by a thousandth of the size of its column."""
    other = X.copy()
    other[row, column] += 1e-3 * np.abs(X[:, column]).max()
    return other


def fitted(how, X, y, qid, weight):
    if how == "fit":
        return RankRLS().fit(X, y, qid=qid, sample_weight=weight)
    if how == "cv":
        return RankRLSCV(cv=3).fit(X, y, qid=qid, sample_weight=weight)
    order = np.argsort(qid, kind="stable")
    parts = np.array_split(order, 7)  # cut inside queries
    names = ("data", "target", "qid", "sample_weight")
    batches = [
        dict(zip(names, (X[part], y[part], qid[part], weight[part]), strict=True)) for part in parts
    ]
    if how == "cv stream":
        return RankRLSCV(cv=3, scoring="pairwise_r2").fit_stream(batches)
    return RankRLS().fit_stream(batches)


@pytest.mark.parametrize("how", ["fit", "cv", "stream", "cv stream"])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_other_values_cannot_be_forgotten(how, stored, tmp_path):
    X, y, qid, weight = data()
    model = fitted(how, X, y, qid, weight)
    if stored:
        save_model(model, tmp_path / "model")
        model = load_model(tmp_path / "model")
    for query in (0, 11):
        rows = np.flatnonzero(qid == query)[::-1]
        ids = {"qid": qid[rows].astype(str), "sample_weight": weight[rows]}
        for column in range(4):
            with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
                model.forget(changed(X[rows], 2, column), y[rows], **ids)
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            model.forget(X[rows], np.roll(y[rows] + 1e-3 * np.arange(8), 1), **ids)
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            model.forget(X[rows], y[rows], qid=ids["qid"])
        model.forget(X[rows], y[rows], **ids)
    assert model.n_queries_ == 10


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler, MaxAbsScaler])
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_checksums_follow_the_scaler(scaler):
    """The units of the features change whenever rows come or go."""
    X, y, qid, _ = data(1)
    X = X / [1e-9, 1.0, 1e3, 1e9] + [0, 1e4, 0, -3]  # an offset beside small deviations
    X[0], X[1] = X.max(axis=0) + 1, X.min(axis=0) - 1  # extremes cannot be forgotten
    qid[:2] = 0
    first, later, last = qid < 6, (qid >= 6) & (qid < 11), qid == 11
    model = make_pipeline(scaler(), RankRLS())
    streaming.fit_stream(model, [(X[first], y[first], qid[first])])
    streaming.partial_fit(model, X[later], y[later], qid=qid[later])
    streaming.partial_fit(model, X[last], y[last], qid=qid[last])
    for query in (3, 8, 11):
        rows = qid == query
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            streaming.forget(model, changed(X[rows], 1, 2), y[rows], qid=qid[rows])
        streaming.forget(model, X[rows], y[rows], qid=qid[rows])


@pytest.mark.parametrize("dense", [True, False])
def test_float32_and_sparse_rows(dense):
    X, y, qid, _ = data(2)
    X = np.where(np.abs(X) > np.abs(X).mean(axis=0), X / [1e-9, 1.0, 1e3, 1e9], 0.0)
    rows = X.astype(np.float32) if dense else sparse.csr_array(X.astype(np.float32))
    model = RankRLS().fit(rows, y, qid=qid)
    one = np.flatnonzero(qid == 4)
    with pytest.raises(ValueError, match=f"query 4 {OTHER}"):
        model.forget(X[one] + 1e-2, y[one], qid=qid[one])
    model.forget(X[one], y[one], qid=qid[one])  # before they were rounded
    assert model.n_queries_ == 11


def test_unknown_checksums_are_not_compared():
    """Those of Dask."""
    X, y, qid, _ = data(3)
    X /= [1e-9, 1.0, 1e3, 1e9]
    model = RankRLS().fit(X, y, qid=qid)
    model._seen = SeenQueries()
    model._seen.add(np.arange(12), np.full(12, 8))
    one = qid == 4
    model.partial_fit(X[one], y[one], qid=["new"] * 8)
    model.forget(X[one], y[one], qid=["new"] * 8)
    model.forget(X[one] * 1.0001, y[one], qid=qid[one])


def test_a_failed_call_changes_no_checksum():
    X, y, qid, _ = data(4)
    X /= [1e-9, 1.0, 1e3, 1e9]
    model = RankRLS().fit(X[qid < 8], y[qid < 8], qid=qid[qid < 8])
    before = dict(model._seen.queries)
    with pytest.raises(ValueError, match="earlier call"):
        model.partial_fit(X[qid >= 7], y[qid >= 7], qid=qid[qid >= 7])
    bad = X[qid == 9] * 1e200
    with pytest.raises(ValueError, match="overflow"):
        model.partial_fit(bad, y[qid == 9], qid=qid[qid == 9])
    assert model._seen.queries == before
    assert not model._seen.weighted


def test_tiny_and_huge_values_give_finite_weights(tmp_path):
    X, y, qid, _ = data(5)
    X = np.column_stack([X[:, 1], np.zeros(len(X)), np.full(len(X), 5e-324)])
    model = RankRLS().fit(X, y, qid=qid)
    save_model(model, tmp_path / "model")
    rows = qid == 1
    load_model(tmp_path / "model").forget(X[rows], y[rows], qid=qid[rows])


@pytest.mark.parametrize("how", ["fit", "stream", "cv stream"])
def test_weights_are_remembered(how, tmp_path):
    X, y, qid, weight = data(6)
    X /= [1e-9, 1.0, 1e3, 1e9]
    model = fitted(how, X, y, qid, weight)
    save_model(model, tmp_path / "model")
    model = load_model(tmp_path / "model")
    with pytest.warns(UserWarning, match=r"these rows have none: .* Pass sample_weight"):
        model.partial_fit(X[:8], y[:8], qid=[50] * 8)
    model.partial_fit(X[:8], y[:8], qid=[51] * 8, sample_weight=np.ones(8))


def test_ids_of_files():
    texts = ["2", "02", "-3", "-0", "x", "٣", "9" * 25, ""]
    assert query_keys(np.array(texts)) == query_keys(texts) == texts
    assert query_keys([2, 2.0, np.int8(2), True, np.float32(-3)]) == ["2", "2", "2", "1", "-3"]
    others = query_keys([2.5, "2.5", ("2", 3), "2, 3", None, np.datetime64("2020-01-01")])
    assert len(set(others)) == 6
    assert query_keys([np.float64(2.5), (np.int64(2), 3.0)]) == [others[0], others[2]]


def test_ids_of_batches_that_are_integers_or_text():
    X, y, qid, _ = data(7)
    X /= [1e-9, 1.0, 1e3, 1e9]
    order = np.argsort(qid, kind="stable")
    X, y, qid = X[order], y[order], qid[order]
    as_text = qid.astype(str).astype(object)
    batches = [(X[:12], y[:12], qid[:12]), (X[12:], y[12:], as_text[12:])]  # cut inside a query
    model = RankRLS().fit_stream(batches)
    assert model.n_queries_ == 12
    np.testing.assert_allclose(model.coef_, RankRLS().fit(X, y, qid=qid).coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="query 0 comes back"):
        RankRLS().fit_stream([(X[:40], y[:40], qid[:40]), (X[:8], y[:8], as_text[:8])])
