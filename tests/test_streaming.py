"""`rankrls.streaming`: scaler and ranker together, against pipelines fitted to all rows."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from cases import cut, folds_in_turn
from rankrls import AutoRanker, RankRLS, RankRLSCV
from rankrls.preprocessing import QueryScaler
from rankrls.streaming import fit_stream, forget, partial_fit

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")

GRID = 2.0 ** np.arange(-9, 10, 3)
SCALERS = {
    "standard": StandardScaler(),
    "no mean": StandardScaler(with_mean=False),
    "no std": StandardScaler(with_std=False),
    "minmax": MinMaxScaler((-1, 2)),
    "maxabs": MaxAbsScaler(),
}


def ugly(seed=0, n_queries=50):
    """Scales, offsets, drift over the file, a constant column, and one constant at first."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(rng.permutation(n_queries), rng.integers(1, 12, n_queries))
    m = len(qid)
    signal = rng.normal(size=(m, 5))
    X = signal * [1e-4, 1.0, 300.0, 1.0, 1.0] + [0.0, 5e3, -20.0, 0.0, 7.0]
    X[:, 2] *= np.linspace(0.1, 3.0, m)
    X[:, 3] = 42.0
    X[: m // 2, 4] = 7.0
    y = np.round(signal[:, 0] + signal[:, 1] + rng.normal(size=m))
    return X, y, qid


def pipeline(scaler, ranker):
    return Pipeline([("scale", copy.deepcopy(scaler)), ("rank", ranker)])


def assert_same(model, fitted, X, rtol=1e-7):
    for name in ("mean_", "var_", "scale_", "min_", "data_max_", "max_abs_", "n_samples_seen_"):
        mine, theirs = getattr(model[0], name, None), getattr(fitted[0], name, None)
        assert (mine is None) == (theirs is None)
        assert mine is None or np.allclose(mine, theirs, rtol=rtol), name
    size = abs(fitted[-1].coef_).max()
    assert np.allclose(model[-1].coef_, fitted[-1].coef_, rtol=rtol, atol=rtol * size)
    assert np.allclose(model.predict(X), fitted.predict(X), atol=rtol * np.ptp(fitted.predict(X)))


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS)
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_fit_stream_is_the_pipeline_of_all_rows(scaler):
    X, y, qid = ugly()
    model = pipeline(scaler, RankRLS(alpha=0.5))
    assert fit_stream(model, cut(41, X, y, qid)) is model
    fitted = pipeline(scaler, RankRLS(alpha=0.5)).fit(X, y, rank__qid=qid)
    assert_same(model, fitted, X)
    assert model[-1].n_queries_ == 50


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy"])
def test_alpha_is_chosen_in_the_units_of_all_rows(scoring):
    X, y, qid = ugly(1)
    model = pipeline(StandardScaler(), RankRLSCV(GRID, cv=4, scoring=scoring))
    fit_stream(model, list(cut(41, X, y, qid)))
    fitted = pipeline(StandardScaler(), RankRLSCV(GRID, cv=folds_in_turn(qid, 4), scoring=scoring))
    fitted.fit(X, y, rank__qid=qid)
    for name in ("alpha", "mean_score"):
        assert np.allclose(model[-1].cv_results_[name], fitted[-1].cv_results_[name], atol=1e-9)
    assert_same(model, fitted, X)


def test_rows_stay_as_they_are():
    """They may be read again, as by the second pass of a metric of lists."""
    X, y, qid = ugly(2)
    kept, batches, new = X.copy(), list(cut(41, X, y, qid)), np.full(5, 99)
    fill = SimpleImputer(strategy="constant", copy=False)
    coefs = []
    for options in ({}, {"copy": False}):
        steps = [("fill", fill), ("scale", StandardScaler(**options))]
        model = fit_stream(Pipeline([*steps, ("rank", RankRLSCV(GRID, cv=4))]), batches)
        partial_fit(model, X[:5], y[:5], qid=new)
        coefs.append(model[-1].coef_)
        forget(model, X[:5], y[:5], qid=new)
    assert np.allclose(*coefs, rtol=1e-9)
    assert np.array_equal(X, kept)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        partial_fit(model[1:], np.full((5, 5), np.nan), y[:5], qid=new)


def test_names_of_features_are_kept_and_compared():
    X, y, qid = ugly(3)
    names = [f"f{j}" for j in range(5)]
    batches = [
        {"data": a, "target": b, "qid": c, "feature_names": names} for a, b, c in cut(41, X, y, qid)
    ]
    model = fit_stream(pipeline(StandardScaler(), RankRLS()), batches)
    frame = pd.DataFrame(X, columns=names)
    fitted = pipeline(StandardScaler(), RankRLS()).fit(frame, y, rank__qid=qid)
    assert list(model.feature_names_in_) == names == list(fitted.feature_names_in_)
    assert np.allclose(model.predict(frame), fitted.predict(frame))
    frames = [(frame.loc[a], y[a], qid[a]) for a in np.array_split(np.arange(len(y)), 5)]
    again = fit_stream(pipeline(StandardScaler(), RankRLS()), frames)
    assert list(again.feature_names_in_) == names
    batches[2]["feature_names"] = names[::-1]
    with pytest.raises(ValueError, match=r"batch 3.*names"):
        fit_stream(pipeline(StandardScaler(), RankRLS()), batches)


def test_imputer_and_scaler_of_queries():
    X, y, qid = ugly(4)
    X[::7, 1] = np.nan
    steps = [("fill", SimpleImputer(strategy="constant", fill_value=0.0)),
             ("scale", StandardScaler()), ("rank", RankRLS())]  # fmt: skip
    model = fit_stream(Pipeline(copy.deepcopy(steps)), cut(41, X, y, qid))
    fitted = Pipeline(copy.deepcopy(steps)).fit(X, y, rank__qid=qid)
    assert np.allclose(model[-1].coef_, fitted[-1].coef_, rtol=1e-7)
    X, y, qid = ugly(5)
    by_query = [(X[qid == q], y[qid == q], qid[qid == q]) for q in dict.fromkeys(qid.tolist())]
    model = fit_stream(pipeline(QueryScaler(), RankRLS()), by_query)
    scaled = QueryScaler().fit_transform(X, qid=qid)
    assert np.allclose(model[-1].coef_, RankRLS().fit(scaled, y, qid=qid).coef_, rtol=1e-7)
    with pytest.raises(ValueError, match=r"batch 2: query .* continues.*by_query=True"):
        fit_stream(pipeline(QueryScaler(), RankRLS()), [(X, y, qid), (X[-1:], y[-1:], qid[-1:])])


@pytest.mark.parametrize("name", SCALERS)
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_queries_that_are_added_or_forgotten_change_the_scaler_too(name):
    X, y, qid = ugly(7)
    part, scaler = np.isin(qid, qid[-60:]), SCALERS[name]

    def fitted(rows):
        return pipeline(scaler, RankRLS(0.5)).fit(X[rows], y[rows], rank__qid=qid[rows])

    model = fitted(~part)
    partial_fit(model, X[part], y[part], qid=qid[part])
    assert_same(model, fitted(np.ones(len(y), dtype=bool)), X)
    old = np.isin(qid, qid[:60])
    if name in ("minmax", "maxabs"):
        before = model.predict(X)
        with pytest.raises(ValueError, match="cannot forget rows: fit again"):
            forget(model, X[old], y[old], qid=qid[old])
        assert np.array_equal(model.predict(X), before)
    else:
        forget(model, X[old], y[old], qid=qid[old])
        assert_same(model, fitted(~old), X, rtol=1e-6)


def test_what_would_be_inexact_is_refused_and_changes_nothing():
    X, y, qid = ugly(9)
    model = pipeline(StandardScaler(), RankRLS()).fit(X, y, rank__qid=qid)
    before = model.predict(X)
    late = np.isin(qid, qid[len(y) // 2 - 5 :])  # column 4 is constant without these
    with pytest.raises(ValueError, match="column 4 of X varies so much less"):
        forget(model, X[late], y[late], qid=qid[late])
    with pytest.raises(ValueError, match="was added before"):
        partial_fit(model, X[late], y[late], qid=qid[late])
    assert np.array_equal(model.predict(X), before)
    assert model[0].n_samples_seen_ == len(y)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([PCA(2), RankRLS()], "PCA before the ranker"),
        ([SimpleImputer(), StandardScaler(), RankRLS()], "strategy='constant'"),
        ([MinMaxScaler(clip=True), RankRLS()], "clip=True"),
        ([StandardScaler(), AutoRanker()], "AutoRanker keeps no sums"),
        ([StandardScaler(), RankRLS(solver="nystroem", basis=5)], "before a kernel"),
        ([StandardScaler(), RankRLS(solver="cg")], "solver='cg'"),
    ],
    ids=str,
)
def test_refusals(steps, message):
    X, y, qid = ugly(10)
    model = Pipeline([(str(number), step) for number, step in enumerate(steps)])
    with pytest.raises(ValueError, match=message):
        fit_stream(model, cut(41, X, y, qid))
    assert not hasattr(steps[0], "n_features_in_")


@pytest.mark.parametrize(("offset", "sd"), [(1e3, 0.01), (2e9, 1e5)])
def test_float32_rows_with_an_offset_are_forgotten(offset, sd):
    rng = np.random.default_rng(0)
    X = (offset + sd * rng.normal(size=(400, 2))).astype(np.float32)
    y, qid = rng.integers(0, 3, 400).astype(np.float64), np.repeat(np.arange(40), 10)
    parts = [slice(0, 100), slice(100, 300)]
    batches = [(X[part], y[part], qid[part]) for part in parts]
    model = fit_stream(Pipeline([("scale", StandardScaler()), ("rank", RankRLS())]), batches)
    partial_fit(model, X[300:], y[300:], qid=qid[300:])
    for query in range(30):
        rows = qid == query
        forget(model, X[rows], y[rows], qid=qid[rows])
    rest = qid >= 30
    expected = Pipeline([("scale", StandardScaler()), ("rank", RankRLS())])
    expected.fit(X[rest].astype(np.float64), y[rest], rank__qid=qid[rest])
    assert np.allclose(model[-1].coef_, expected[-1].coef_, rtol=1e-4, atol=1e-5)
