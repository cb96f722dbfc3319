"""`rankrls.dask.RankRLSCV`: the alpha and the model of `rankrls.RankRLSCV` with the same folds."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import rankrls
from cases import COSTS, TIES, WEIGHTINGS
from rankrls.dask import RankRLSCV
from rankrls.io import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")

GRID = 2.0 ** np.arange(-9, 10, 3)


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


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


def assert_same(remote, local, X):
    assert set(remote.cv_results_) == set(local.cv_results_)
    for name, values in local.cv_results_.items():
        if name != "n_refits":
            assert np.allclose(remote.cv_results_[name], values, rtol=0, atol=1e-9), name
    assert remote.alpha_ == local.alpha_
    size = abs(local.coef_).max()
    assert np.allclose(remote.coef_, local.coef_, atol=1e-9 * size)
    for name in ("n_pairs_", "n_queries_", "n_features_in_", "solver_"):
        assert getattr(remote, name) == getattr(local, name), name
    assert np.allclose(remote.predict(da.from_array(X)).compute(), local.predict(X))


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy", "ndcg@3"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("cost", COSTS)
def test_is_the_local_one_with_the_same_folds(cost, ties, weighting, scoring):
    X, y, qid, _ = problem()
    options = {"cost": cost, "ties": ties, "query_weighting": weighting, "scoring": scoring}
    options |= {"alphas": GRID, "cv": 4, "random_state": 1}
    local = rankrls.RankRLSCV(**options).fit(X, y, qid=qid)
    chunks = da.from_array(X, chunks=(61, 3))
    remote = RankRLSCV(**options).fit(chunks, da.from_array(y, chunks=61), qid=qid)
    assert_same(remote, local, X)


def test_queries_that_cross_no_border_weights_and_outputs():
    X, y, qid, weight = problem(1, outputs=2)
    order = np.argsort(qid, kind="stable")
    X, y, qid, weight = X[order], y[order], qid[order], weight[order]
    borders = np.flatnonzero(np.diff(qid)) + 1
    sizes = tuple(np.diff([0, *borders[9::10], len(qid)]).tolist())
    for scoring in ("pairwise_r2", "pairwise_accuracy"):
        for cost, ties in (("magnitude", "keep"), ("unit", "drop")):
            options = {"alphas": GRID, "cv": 5, "random_state": 2, "scoring": scoring}
            options |= {"cost": cost, "ties": ties}
            local = rankrls.RankRLSCV(**options).fit(X, y, qid=qid, sample_weight=weight)
            chunks = da.from_array(X, chunks=(sizes, -1))
            remote = RankRLSCV(**options).fit(chunks, y, qid=qid, sample_weight=weight)
            assert_same(remote, local, X)


def test_columns_of_a_parquet_file(tmp_path):
    """Dask would read label and query in fewer partitions than the features."""
    X, y, qid, _ = problem(3)
    names = [f"f{j}" for j in range(5)]
    table = pd.DataFrame(X, columns=names).assign(label=y, query=[f"q{q}" for q in qid])
    for number, part in enumerate(np.array_split(np.arange(len(y)), 6)):
        table.iloc[part].to_parquet(tmp_path / f"part{number}.parquet")
    frame = dd.read_parquet(tmp_path)
    options = {"alphas": GRID, "cv": 4, "random_state": 0}
    remote = RankRLSCV(**options).fit(frame[names], frame["label"], qid=frame["query"])
    local = rankrls.RankRLSCV(**options).fit(table[names], y, qid=table["query"])
    assert list(remote.feature_names_in_) == names
    for name in ("alpha", "mean_score", "std_score", "n_scores"):
        assert np.allclose(remote.cv_results_[name], local.cv_results_[name]), name
    assert np.allclose(remote.coef_, local.coef_)


def test_default_grid():
    X, y, qid, _ = problem(4)
    local = rankrls.RankRLSCV(cv=5, random_state=0).fit(X, y, qid=qid)
    remote = RankRLSCV(random_state=0).fit(da.from_array(X, chunks=(70, -1)), y, qid=qid)
    assert_same(remote, local, X)


def test_x_is_read_once_for_all_folds():
    X, y, qid, _ = problem(5)
    reads = []

    def read(block):
        reads.append(len(block))
        return block

    chunks = da.from_array(X, chunks=(100, -1)).map_blocks(read, meta=np.empty((0, 0)))
    RankRLSCV(GRID, scoring="pairwise_r2").fit(chunks, y, qid=qid)
    assert sum(reads) == len(X)


def test_to_local_goes_on_learning_and_is_stored(tmp_path):
    X, y, qid, _ = problem(6)
    new, old = qid >= 35, qid < 5
    first = ~new
    remote = RankRLSCV(GRID, cv=3, scoring="pairwise_r2")
    remote.fit(da.from_array(X[first], chunks=(50, -1)), y[first], qid=qid[first])
    local = remote.to_local()
    assert type(local) is rankrls.RankRLSCV
    assert local.alpha_ == remote.alpha_
    save_model(local, tmp_path / "model.rankrls")
    local = load_model(tmp_path / "model.rankrls")
    local.partial_fit(X[new], y[new], qid=qid[new]).forget(X[old], y[old], qid=qid[old])
    fresh = rankrls.RankRLS(remote.alpha_).fit(X[~old], y[~old], qid=qid[~old])
    assert np.allclose(local.coef_, fresh.coef_, rtol=1e-7)
    with pytest.raises(ValueError, match=r"rankrls.dask.RankRLSCV is fitted .* to_local\(\)"):
        remote.partial_fit(X[new], y[new], qid=qid[new])


def test_local_class_names_the_other_one():
    X, y, qid, _ = problem(7)
    with pytest.raises((TypeError, ValueError), match=r"rankrls\.dask\.RankRLSCV"):
        rankrls.RankRLSCV().fit(da.from_array(X, chunks=(50, -1)), y, qid=qid)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"qid": None}, "give qid"),
        ({"cv": 41}, {}, "41 folds of 40 queries"),
        ({"cv": "leave-query-out"}, {}, "folds of whole queries"),
        ({"scoring": "concordance_index"}, {}, "all queries in one place"),
        ({"kernel": "rbf"}, {}, "kernel='linear'"),
        ({"solver": "cg"}, {}, "solver='auto'"),
        ({"early_stopping": True}, {}, "early_stopping"),
        ({}, {"pairs": [[0, 1]]}, "pairs"),
        ({"alphas": [0.0]}, {}, "alphas"),
    ],
)
def test_refusals(options, arguments, message):
    X, y, qid, _ = problem(8)
    with pytest.raises(ValueError, match=message):
        RankRLSCV(**options).fit(da.from_array(X, chunks=(50, -1)), y, **{"qid": qid} | arguments)


def test_many_features_are_asked_for():
    X = da.zeros((20, 4097), chunks=(10, -1))
    with pytest.raises(ValueError, match=r"4,097 features.*solver='primal'"):
        RankRLSCV(GRID).fit(X, np.arange(20.0), qid=np.repeat(np.arange(10), 2))
