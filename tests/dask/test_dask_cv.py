"""`rankrls.dask.RankRLSCV`: the alpha and the model of `rankrls.RankRLSCV` with the same folds."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import rankrls
import rankrls.dask
from cases import same_choice
from rankrls.dask import RankRLSCV
from rankrls.export import to_sql
from rankrls.io import load_model, save_model
from rankrls.streaming import forget, partial_fit

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")

GRID = 2.0 ** np.arange(-9, 10, 3)


def problem(seed=0, outputs=None, n_queries=40):
    """Offsets, ties, single rows, a constant query; queries cross partitions in random order."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), rng.integers(1, 13, n_queries)))
    m = len(qid)
    X = rng.normal(size=(m, 5)) + np.array([0.0, 100.0, -5.0, 0.0, 1.0])
    y = X[:, [0]] + X[:, [1]] + rng.normal(size=(m, outputs or 1))
    y = np.clip(np.round(y - y.mean()), -2, 2) + 2
    y[qid == 3] = 1.0
    return X, y if outputs else y[:, 0], qid, rng.integers(0, 3, m).astype(float)


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy", "ndcg@3"])
@pytest.mark.parametrize(
    ("cost", "ties", "weighting"),
    [
        ("magnitude", "keep", "pair"),
        ("magnitude", "drop", "size"),
        ("unit", "drop", "query"),
        ("relative", "drop", "pair"),
    ],
)
def test_is_the_local_one_with_the_same_folds(cost, ties, weighting, scoring):
    X, y, qid, _ = problem()
    options = {"cost": cost, "ties": ties, "query_weighting": weighting, "scoring": scoring}
    options |= {"alphas": GRID, "cv": 4, "random_state": 1}
    local = rankrls.RankRLSCV(**options).fit(X, y, qid=qid)
    chunks = da.from_array(X, chunks=(61, 3))
    remote = RankRLSCV(**options).fit(chunks, da.from_array(y, chunks=61), qid=qid)
    same_choice(remote, local, X, 1e-9)
    assert np.allclose(remote.predict(da.from_array(X)).compute(), local.predict(X))


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"qid": None}, "give qid"),
        ({"cv": 41}, {}, "41 folds of 40 queries"),
        ({"kernel": "rbf"}, {}, "kernel='linear'"),
        ({"solver": "cg"}, {}, "set solver='primal'"),
    ],
)
def test_refusals(options, arguments, message):
    X, y, qid, _ = problem(8)
    with pytest.raises(ValueError, match=message):
        RankRLSCV(**options).fit(da.from_array(X, chunks=(50, -1)), y, **{"qid": qid} | arguments)


# ---------------------------------------------------------------------- scalers before a ranker


def ugly(seed=0):
    """Offsets of 1e6 standard deviations, scales from 1e-9 to 1e9, and a constant column."""
    X, y, qid, weight = problem(seed)
    X = np.column_stack([X - X.mean(axis=0), np.full(len(X), 7.3)])
    X = (X + np.array([1e6, 0.0, -1e6, 3.0, 1e3, 0.0])) * [1e-9, 1e-3, 1.0, 1e3, 1e9, 1.0]
    names = [f"f{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(y=y, q=qid, w=weight)
    return frame, dd.from_pandas(frame, npartitions=6), names


RANKERS = [
    rankrls.RankRLS(2.0),
    rankrls.RankRLS(2.0, cost="unit", ties="drop", query_weighting="query"),
    rankrls.RankRLSCV(GRID, cv=4, random_state=1, scoring="ndcg@3"),
    rankrls.RankRLSCV(GRID, cv=4, random_state=1, scoring="pairwise_r2"),
]


@pytest.mark.parametrize("ranker", RANKERS, ids=["rls", "unit", "ndcg", "r2"])
@pytest.mark.parametrize(
    "scaler",
    [StandardScaler(), StandardScaler(with_mean=False), MinMaxScaler((-1, 2)), MaxAbsScaler()],
    ids=["standard", "no mean", "range", "max"],
)
@pytest.mark.filterwarnings("ignore:the features have very different scales")
def test_a_pipeline_is_the_local_one(scaler, ranker):
    frame, lazy, names = ugly()
    step = type(ranker).__name__.lower()
    given = {f"{step}__qid": frame.q, f"{step}__sample_weight": frame.w}
    local = make_pipeline(clone(scaler), clone(ranker)).fit(frame[names], frame.y, **given)
    model = make_pipeline(clone(scaler), clone(ranker))
    fitted = rankrls.dask.fit(model, lazy[names], lazy.y, qid=lazy.q, sample_weight=lazy.w)
    assert fitted is model
    assert list(model.feature_names_in_) == names
    assert not hasattr(model[-1], "feature_names_in_")
    for name in ("n_pairs_", "n_queries_", "n_features_in_", "solver_"):
        assert getattr(model[-1], name) == getattr(local[-1], name), name
    assert np.allclose(model[0].scale_, local[0].scale_, rtol=1e-9)
    size = abs(local[-1].coef_).max()
    assert np.allclose(model[-1].coef_, local[-1].coef_, rtol=0, atol=1e-8 * size)
    expected = local.predict(frame[names])
    moved = model.predict(frame[names]) - expected  # scores have no offset
    assert np.ptp(moved) <= 1e-8 * np.ptp(expected)
    if hasattr(local[-1], "cv_results_"):
        for name in ("alpha", "mean_score"):
            assert np.allclose(model[-1].cv_results_[name], local[-1].cv_results_[name], atol=1e-8)


def test_a_pipeline_reads_x_once_and_scales_sparse_blocks():
    X, y, qid, _ = problem(5)
    reads = []

    def read(block):
        reads.append(block.shape[0])
        return sparse.csr_matrix(block)

    rows = da.from_array(X, chunks=(100, -1)).map_blocks(read, meta=sparse.csr_matrix((0, 0)))
    pipeline = make_pipeline(MaxAbsScaler(), rankrls.RankRLSCV(GRID, cv=3, scoring="pairwise_r2"))
    rankrls.dask.fit(pipeline, rows, y, qid=qid)
    assert sum(reads) == len(X)
    assert np.allclose(pipeline[0].max_abs_, abs(X).max(axis=0))


def test_a_pipeline_is_stored_updated_and_exported(tmp_path):
    frame, _, names = ugly(6)
    new, old = frame.q >= 35, frame.q < 5
    lazy = dd.from_pandas(frame[~new], npartitions=5)
    pipeline = make_pipeline(StandardScaler(), rankrls.RankRLS(3.0))
    rankrls.dask.fit(pipeline, lazy[names], lazy.y, qid=lazy.q)
    save_model(pipeline, tmp_path / "model.rankrls")
    model = load_model(tmp_path / "model.rankrls")
    partial_fit(model, frame[new][names], frame.y[new], qid=frame.q[new])
    window = frame[~old]
    forget(model, frame[old][names], frame.y[old], qid=frame.q[old])
    fresh = make_pipeline(StandardScaler(), rankrls.RankRLS(3.0))
    fresh.fit(window[names], window.y, rankrls__qid=window.q)
    assert np.allclose(model.predict(window[names]), fresh.predict(window[names]), atol=1e-6)
    assert "f4" in to_sql(model)


def test_pipelines_that_are_refused():
    _, lazy, names = ugly(8)
    X, y, q = lazy[names], lazy.y, lazy.q
    for steps, message in (
        ((StandardScaler(), rankrls.dask.RankRLS()), r"use rankrls.RankRLS instead"),
        ((SimpleImputer(strategy="constant"), rankrls.RankRLS()), "SimpleImputer.*X.fillna"),
        ((StandardScaler(), rankrls.RankRLS(kernel="rbf")), "StandardScaler .*before a kernel"),
        (
            (StandardScaler(), rankrls.RankRLS(solver="cg")),
            "StandardScaler needs kernel='linear' and the sums",
        ),
        ((StandardScaler(), rankrls.RankSVM()), "RankSVM keeps no sums"),
        ((StandardScaler(), rankrls.RankRLSCV(cv=99)), "99 folds of 40"),
    ):
        pipeline = make_pipeline(*steps)
        with pytest.raises(ValueError, match=message):
            rankrls.dask.fit(pipeline, X, y, qid=q)
        assert not hasattr(pipeline[0], "scale_")
    scaled_in_memory = make_pipeline(StandardScaler(), rankrls.dask.RankRLS())
    with pytest.raises(ValueError, match=r"rankrls.dask.fit\(pipeline, X, y, qid=qid\)"):
        scaled_in_memory.fit(X, y, rankrls__qid=q)
    nystroem = rankrls.RankRLS(kernel="rbf", basis=9, random_state=0)
    assert rankrls.dask.fit(nystroem, X * 0 + 1 / (1 + abs(X)), y, qid=q).solver_ == "nystroem"


@pytest.mark.parametrize(("cost", "ties"), [("magnitude", "keep"), ("unit", "drop")])
def test_weights_outputs_and_what_follows(cost, ties, tmp_path):
    X, y, qid, weight = problem(1, outputs=2)
    options = {"alphas": GRID, "cv": 5, "random_state": 2, "cost": cost, "ties": ties}
    local = rankrls.RankRLSCV(**options).fit(X, y, qid=qid, sample_weight=weight)
    chunks = da.from_array(X, chunks=(50, -1))
    remote = RankRLSCV(**options).fit(chunks, y, qid=qid, sample_weight=weight)
    same_choice(remote, local, X, 1e-9)
    model = remote.to_local()
    assert type(model) is rankrls.RankRLSCV
    save_model(model, tmp_path / "model")
    model, old = load_model(tmp_path / "model"), qid < 5
    model.forget(X[old], y[old], qid=qid[old], sample_weight=weight[old])
    fresh = rankrls.RankRLS(remote.alpha_, cost=cost, ties=ties)
    fresh.fit(X[~old], y[~old], qid=qid[~old], sample_weight=weight[~old])
    assert np.allclose(model.coef_, fresh.coef_, rtol=1e-7)
