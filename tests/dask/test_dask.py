"""`rankrls.dask.RankRLS`: the same model as in memory, whatever the partitions are."""

import copy
import importlib
import inspect
import itertools
import pickle
import sys

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import dask
import rankrls
import rankrls.dask
from cases import COSTS, TIES, WEIGHTINGS
from rankrls.dask import RankRLS, _rows
from rankrls.exceptions import FeatureScaleWarning
from rankrls.io import load_model, save_model
from rankrls.model_selection import cross_val_score, leave_query_out_predict
from rankrls.preprocessing import QueryScaler

M, N = 240, 5


def problem(seed=0, m=M, queries=9, outputs=None):
    """Rows in random order: almost every query is in almost every partition."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, N))
    shape = m if outputs is None else (m, outputs)
    y = rng.integers(0, 4, shape) + 0.25 * rng.integers(0, 2, shape)
    return X, y, rng.integers(0, queries, m), rng.uniform(0.1, 2.0, m)


def same(actual, expected, tolerance=1e-10):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


def precise(**options):
    return RankRLS(tol=1e-14, **options)


def chunked(X, rows=50, columns=-1):
    return da.from_array(X, chunks=(rows, columns))


def check_same_fit(ranker, local, X, tolerance=1e-10):
    for name in ("coef_", "dual_coef_"):
        assert hasattr(ranker, name) == hasattr(local, name)
        if hasattr(local, name):
            same(getattr(ranker, name), getattr(local, name), tolerance)
    for name in ("n_pairs_", "n_queries_", "n_features_in_"):
        assert getattr(ranker, name) == getattr(local, name)
    same(ranker.predict(X), local.predict(X), tolerance)


def row_counts(ranker):
    return {key: n_rows for key, (n_rows, _) in ranker._seen.queries.items()}


# ---------------------------------------------------------------------- the same as in memory


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("cost", COSTS)
def test_equals_the_local_fit(cost, ties, weighting):
    X, y, qid, weight = problem()
    options = {"cost": cost, "ties": ties, "query_weighting": weighting, "alpha": 0.3}
    rows = chunked(X, 37, 3)
    fits = [{"qid": qid}, {"qid": np.sort(qid), "sample_weight": weight}]
    if (cost, ties) == ("magnitude", "keep"):
        weight = np.where(np.arange(M) // 37 == 2, 0.0, weight)  # a partition without weight
        fits += [{"qid": None}, {"sample_weight": weight}]
    for fit in fits:
        local = rankrls.RankRLS(solver="primal", **options).fit(X, y, **fit)
        ranker = RankRLS(**options).fit(rows, y, **fit)
        assert ranker.solver_ == "primal"
        check_same_fit(ranker, local, X)
        if fit.get("qid") is not None:
            iterated = precise(solver="cg", **options).fit(rows, y, **fit)
            check_same_fit(iterated, local, X)
            assert 1 < iterated.n_iter_ <= 2 * N
        # Statistics that only the posterior needs.
        same(ranker.log_marginal_likelihood(), local.log_marginal_likelihood())
        same(ranker.predict(X, return_std=True)[1], local.predict(X, return_std=True)[1])


def test_offset_features_lose_no_digits():
    X, y, qid, _ = problem(5)
    expected = rankrls.RankRLS().fit(X, y, qid=qid).coef_
    for solver in ("primal", "cg"):
        same(precise(solver=solver).fit(chunked(X + 1e6), y, qid=qid).coef_, expected, 1e-8)


@pytest.mark.parametrize("cost", COSTS)
def test_nystroem_equals_the_local_fit(cost):
    X, y, qid, weight = problem(1)
    fit = {"qid": qid, "sample_weight": weight}
    rows = chunked(X)
    for basis in (15, np.array([200, 3, 77, 12, 199])):
        options = {"kernel": "rbf", "gamma": 0.3, "basis": basis, "cost": cost, "random_state": 3}
        local = rankrls.RankRLS(**options).fit(X, y, **fit)
        ranker = RankRLS(**options).fit(rows, y, **fit)
        assert ranker.solver_ == "nystroem"
        assert (ranker.basis_indices_ == local.basis_indices_).all()
        check_same_fit(ranker, local, X, 1e-8)
    # A singular kernel: the features themselves are needed.
    options = {"kernel": "poly", "degree": 1, "basis": 30, "cost": cost, "random_state": 0}
    local = rankrls.RankRLS(**options).fit(X, y, **fit)
    ranker = RankRLS(**options).fit(rows, y, **fit)
    same(ranker.predict(X), local.predict(X), 1e-8)
    linear = RankRLS(solver="nystroem", basis=20, random_state=0).fit(rows, y, **fit)
    same(linear.coef_, rankrls.RankRLS().fit(X, y, **fit).coef_, 1e-8)


@pytest.mark.parametrize("cost", COSTS)
def test_several_outputs_and_types(cost):
    X, y, qid, weight = problem(2, outputs=3)
    y[:, 2] = y[:, 0]
    rows, targets = chunked(X, 60), chunked(y, 60, 2)
    local = rankrls.RankRLS(cost=cost).fit(X, y, qid=qid)
    for solver in ("primal", "cg"):
        ranker = precise(cost=cost, solver=solver)
        if solver == "cg" and cost != "magnitude":
            with pytest.raises(ValueError, match=r"fit one output at a time, or use solver='prim"):
                ranker.fit(rows, targets, qid=qid)
            continue
        ranker.fit(rows, targets, qid=qid)
        assert ranker.coef_.shape == (3, N)
        check_same_fit(ranker, local, X)
        if cost == "magnitude":
            call = {"qid": qid, "sample_weight": weight}
            weighted = rankrls.RankRLS().fit(X, y, **call)
            same(precise(solver=solver).fit(rows, y, **call).coef_, weighted.coef_, 1e-8)
            single = chunked(X.astype(np.float32), 100)
            ranker = RankRLS(solver=solver).fit(single, y, **call)
            assert ranker.coef_.dtype == np.float32
            same(ranker.coef_, weighted.coef_, 1e-4)
            assert ranker.predict(single).dtype == ranker.predict(single).compute().dtype == "f4"
    whole = np.rint(10 * X).astype(int)
    ranker = RankRLS(cost=cost).fit(chunked(whole, 100), y, qid=qid)
    same(ranker.coef_, rankrls.RankRLS(cost=cost).fit(whole, y, qid=qid).coef_)
    ranker = RankRLS(cost=cost).fit(rows, targets, qid=qid)
    predictions = ranker.predict(rows)
    assert predictions.chunks == ((60,) * 4, (3,))
    same(predictions.compute(), local.predict(X))
    same(ranker.score(rows, targets, qid), local.score(X, y, qid), 1e-14)


def test_sparse_blocks():
    X, y, qid, _ = problem(3)
    X[np.abs(X) < 0.8] = 0.0
    local = rankrls.RankRLS(cost="unit").fit(X, y, qid=qid)
    for layout in (sparse.csr_array, sparse.csc_matrix):
        blocks = chunked(X, 70).map_blocks(layout)
        for solver in ("primal", "cg"):
            ranker = precise(cost="unit", solver=solver).fit(blocks, y, qid=qid)
            same(ranker.coef_, local.coef_)
            same(ranker.predict(blocks).compute(), local.predict(X))
        wide = chunked(X, 70, 2).map_blocks(layout)
        same(RankRLS(cost="unit").fit(wide, y, qid=qid).coef_, local.coef_)
    kernel = {"kernel": "rbf", "basis": 10, "random_state": 0}
    local = rankrls.RankRLS(**kernel).fit(X, y, qid=qid)
    same(RankRLS(**kernel).fit(blocks, y, qid=qid).dual_coef_, local.dual_coef_, 1e-8)


def test_partitions_that_are_empty_or_have_one_row():
    X, y, qid, _ = problem(6, m=40)
    rows = da.from_array(X, chunks=((0, 1, 20, 0, 18, 1, 0), -1))
    for cost, q in [*((cost, qid) for cost in COSTS), ("magnitude", None)]:
        local = rankrls.RankRLS(cost=cost).fit(X, y, qid=q)
        for solver in ("primal", "cg") if q is not None else ("primal",):
            ranker = precise(cost=cost, solver=solver).fit(rows, y, qid=q)
            check_same_fit(ranker, local, X)
        same(ranker.predict(rows).compute(), local.predict(X))
        assert ranker.score(rows, y, q) == pytest.approx(local.score(X, y, q))


# ---------------------------------------------------------------------- data frames, alignment


def frame(seed=7):
    X, y, qid, weight = problem(seed)
    table = pd.DataFrame(X, columns=list("abcde"))
    table["target"], table["query"], table["weight"] = y, [f"q{q}" for q in qid], weight
    return table, list("abcde")


def test_data_frames():
    table, names = frame()
    lazy = dd.from_pandas(table, npartitions=5)
    local = rankrls.RankRLS(ties="drop").fit(
        table[names], table.target, qid=table["query"], sample_weight=table.weight
    )
    for solver in ("primal", "cg"):
        ranker = precise(ties="drop", solver=solver).fit(
            lazy[names], lazy.target, qid=lazy["query"], sample_weight=lazy.weight
        )
        check_same_fit(ranker, local, table[names])
        assert list(ranker.feature_names_in_) == names
    predictions = ranker.predict(lazy[names])
    assert isinstance(predictions, da.Array)
    same(predictions.compute(), local.predict(table[names]))
    scored = ranker.score(lazy[names], lazy.target, lazy["query"])
    assert scored == pytest.approx(local.score(table[names], table.target, table["query"]))
    two = RankRLS().fit(lazy[names], lazy[["target", "weight"]], qid=lazy["query"])
    assert two.coef_.shape == (2, N)
    # Arrays of unknown chunk sizes, local columns beside them, and a kernel.
    unknown = lazy[names].to_dask_array()
    assert np.isnan(unknown.shape[0])
    beside = {"qid": table["query"], "sample_weight": table.weight.to_numpy()}
    ranker = RankRLS(ties="drop").fit(unknown, table.target, **beside)
    same(ranker.coef_, local.coef_)
    y = da.from_array(table[["target"]].to_numpy(), chunks=(80, 1))
    empty = da.concatenate([y[:0], y[:130], y[:0], y[130:], y[:0]])
    for X, target in itertools.product((unknown, lazy[names]), (y[:, 0], y, empty)):
        ranker = RankRLS(ties="drop").fit(X, target, **beside)
        same(np.ravel(ranker.coef_), local.coef_)
    with pytest.raises(ValueError, match="feature names"):
        RankRLS().fit(lazy[names], lazy.target).predict(lazy[names[::-1]])
    options = {"kernel": "rbf", "basis": 12, "random_state": 1}
    kernel = RankRLS(**options).fit(lazy[names], lazy.target, qid=lazy["query"])
    local = rankrls.RankRLS(**options).fit(table[names], table.target, qid=table["query"])
    same(kernel.dual_coef_, local.dual_coef_, 1e-8)


def test_partitions_that_do_not_fit_together():
    table, names = frame()
    lazy = dd.from_pandas(table, npartitions=5)
    y = da.from_array(table.target.to_numpy(), chunks=80)
    uneven = da.from_array(table.target.to_numpy(), chunks=((40, 56, 48, 48, 48),))
    other = dd.from_pandas(table, npartitions=4)
    frame_rows, X = lazy[names], chunked(table[names].to_numpy(), 48)
    unknown = frame_rows.to_dask_array()
    for rows, target, qid, message in (
        (frame_rows, lazy.target, other["query"], "qid and X have different divisions"),
        (unknown, uneven, None, r"partition . has 48 rows of X and (40|56) of y"),
        (frame_rows, lazy.target, uneven, r"partition . has 48 rows of y and (40|56) of qid"),
        (X, y[1:], None, "y has 239 entries for 240 rows of X"),
        (X, dd.from_dask_array(uneven), None, "partition 0 has 48 rows of X and 40 of y"),
    ):
        with pytest.raises(ValueError, match=message):
            RankRLS().fit(rows, target, qid=qid)


def test_columns_of_one_file(tmp_path):
    """Dask joins partitions of files of which few columns are read: y is not X then."""
    table, names = frame()
    table["query"] = pd.factorize(table["query"])[0]
    table = table.assign(weight=np.linspace(0.5, 2, len(table)), **{f"x{j}": 0.0 for j in range(9)})
    for part in range(6):
        table[part * 40 : part * 40 + 40].to_parquet(tmp_path / f"{part}.parquet")
    lazy = dd.read_parquet(tmp_path, filesystem="arrow")
    table = lazy.compute()  # files may come in any order
    assert lazy.target.optimize().npartitions < lazy.npartitions
    arguments = {"qid": table["query"], "sample_weight": table.weight}
    reference = rankrls.RankRLS().fit(table[names], table.target, **arguments)
    for y, qid, weight in (
        (lazy.target, lazy["query"], lazy.weight),
        (lazy.target.values, lazy["query"].values, lazy.weight.values),
    ):
        for X in (lazy[names], lazy[names].values):
            ranker = RankRLS().fit(X, y, qid=qid, sample_weight=weight)
            same(ranker.coef_, reference.coef_)
            expected = reference.score(table[names], table.target, table["query"])
            assert ranker.score(X, y, qid) == pytest.approx(expected)
            predicted = ranker.predict(X)
            assert predicted.npartitions == X.npartitions
            same(predicted.compute(), reference.predict(table[names]))
    some = lazy[lazy.target > 0]
    kept = table[table.target > 0]
    ranker = RankRLS().fit(some[names], some.target, qid=some["query"])
    same(ranker.coef_, rankrls.RankRLS().fit(kept[names], kept.target, qid=kept["query"]).coef_)


# ---------------------------------------------------------------------- what is refused


def test_what_is_refused():
    X, y, qid, weight = problem()
    lazy, bad, wrong = chunked(X), X.copy(), y.copy()
    bad[170, 2], wrong[60] = np.nan, np.inf
    named = dd.from_pandas(pd.DataFrame(bad).add_prefix("größe "), chunksize=150)
    negative = da.from_array(np.where(np.arange(M) == 230, -1.0, weight), chunks=50)
    missing = da.from_array(np.where(np.arange(M) == 120, np.nan, qid), chunks=50)
    columns = lazy[:, da.from_array(np.array([True] * N))]
    place = r"partition 3 of X contains NaN \(first at row 20, column 2; 1 in all\)"
    none = r"in 240 rows and .*, all labels of a query"
    for rows, target, options, message in (
        (X, y, {}, r"Dask array or data frame; got a ndarray.*rankrls.Rank"),
        (lazy, None, {}, "y is None"),
        (lazy, y, {"pairs": [(0, 1)]}, "pairs is no argument on Dask: give scores y"),
        (columns, y, {}, "unknown number of columns"),
        (chunked(bad), y, {"qid": qid}, place),
        (named, y, {}, "first at row 20, column 'größe 2'"),
        (lazy, da.from_array(wrong, chunks=50), {}, r"partition 1: y contains NaN .*at row 10"),
        (lazy, y, {"sample_weight": negative}, "partition 4: sample_weight must be >= 0"),
        (lazy, y, {"qid": missing}, "partition 2: qid is nan at row 20"),
        (lazy, np.ones(M), {"qid": qid}, none),
        (lazy, np.column_stack([y, qid]), {"qid": qid}, r"in output \(column\) 1"),
        (lazy * 1e200, y * 1e200, {"qid": qid, "solver": "cg"}, "overflow"),
        (lazy, y, {"solver": "cg"}, "solver='cg' needs qid"),
        (lazy, y, {"ties": "drop"}, "all partitions are one ranking.*cost='magnitude' and"),
        (lazy, y, {"solver": "dual"}, "solver must be one of 'auto', 'primal', 'nystroem', 'cg'"),
        (lazy, y, {"kernel": "precomputed"}, "kernel='precomputed' is a matrix"),
        (lazy, y, {"kernel": "rbf", "solver": "cg"}, "needs kernel='linear'"),
        (lazy, y, {"basis": 5, "solver": "primal"}, "needs kernel='linear' and no basis"),
        (lazy, y, {"early_stopping": True}, "early_stopping needs rows in memory"),
        (lazy, y, {"alpha": 0}, "alpha must be finite and > 0"),
    ):
        parameters = {name: options.pop(name) for name in RankRLS().get_params() & options.keys()}
        with pytest.raises(ValueError, match=message):
            RankRLS(**parameters).fit(rows, target, **options)


def test_a_fitted_model_refuses():
    X, y, qid, _ = problem()
    lazy, bad = chunked(X), X.copy()
    bad[100] = np.nan
    ranker = RankRLS(solver="cg").fit(lazy, y, qid=qid)
    for call, message in (
        (lambda: ranker.score(lazy, y), "fitted with qid"),
        (lambda: ranker.predict(lazy[:, :3]), "features"),
        (lambda: ranker.predict(X, return_std=True), "does not factorise a matrix, which uncer"),
        (lambda: ranker.preference_proba(lazy, lazy), "X is a Dask Array"),
        (lambda: ranker.predict(chunked(bad)).compute(), "partition 2 of X"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_rows_that_are_spread_too_much(monkeypatch):
    X, y, qid, _ = problem()
    lazy = chunked(X)
    monkeypatch.setattr(_rows, "MAX_MOVED_BYTES", 40)
    with pytest.raises(ValueError, match="would have to come together on one worker"):
        RankRLS().fit(lazy, y, qid=qid)


# ---------------------------------------------------------------------- what is read, what moves


class Reader:
    """Blocks that count how often they are read."""

    def __init__(self, X, chunks):
        self.counts = np.zeros(-(-len(X) // chunks), dtype=int)
        self.X = da.from_array(X, chunks=(chunks, -1)).map_blocks(
            self._read, dtype=X.dtype, meta=np.empty((0, 0))
        )

    def _read(self, block, block_id=(0, 0)):
        self.counts[block_id[0]] += 1
        return block


def test_x_is_read_once():
    X, y, qid, _ = problem()
    for solver in ("primal", "cg"):
        reader = Reader(X, 60)
        RankRLS(solver=solver).fit(reader.X, y, qid=qid)
        assert (reader.counts == 1).all()
    ranker, reader = RankRLS(solver="cg").fit(chunked(X), y, qid=qid), Reader(X, 60)
    predictions = ranker.predict(reader.X)
    assert not reader.counts.any()
    assert predictions.chunks == ((60, 60, 60, 60),)
    predictions.compute()
    assert (reader.counts == 1).all()
    basis = [5, 70, 75]
    reader = Reader(X, 60)
    RankRLS(kernel="rbf", basis=basis).fit(reader.X, y, qid=qid)
    assert reader.counts.tolist() == [2, 2, 1, 1]


@pytest.mark.parametrize("cost", COSTS)
def test_rows_do_not_come_to_the_client(cost, monkeypatch):
    """With every query in every partition: n × n numbers, and the ids, but no features."""
    rng = np.random.default_rng(0)
    m, n = 4000, 40
    X, y, qid = rng.standard_normal((m, n)), rng.integers(0, 5, m), rng.integers(0, 300, m)
    received = []
    compute = dask.compute

    def spy(*arguments):
        results = compute(*arguments)
        received.append(len(pickle.dumps(results)))
        return results

    monkeypatch.setattr(dask, "compute", spy)
    lazy = chunked(X, 500)
    local = rankrls.RankRLS(cost=cost).fit(X, y, qid=qid)
    same(RankRLS(cost=cost).fit(lazy, y, qid=qid).coef_, local.coef_)
    census, statistics = received
    assert statistics < 2 * 8 * n**2
    assert census < X.nbytes / 10
    received.clear()
    RankRLS(cost=cost, solver="cg").fit(lazy, y, qid=qid)
    assert max(received[1:]) < 8 * 8 * n


# ---------------------------------------------------------------------- as a scikit-learn estimator


def test_estimator():
    assert inspect.signature(RankRLS) == inspect.signature(rankrls.RankRLS)
    ranker = clone(RankRLS(alpha=0.5, cost="unit"))
    X, y, qid, _ = problem()
    lazy = chunked(X)
    ranker.fit(lazy, y, qid=qid)
    again = pickle.loads(pickle.dumps(ranker))
    same(again.predict(lazy).compute(), ranker.predict(X))
    # A second fit leaves nothing of the first.
    ranker.set_params(kernel="rbf", basis=9, random_state=0).fit(lazy, y, qid=qid)
    with pytest.warns(UserWarning, match="solver='nystroem', an approximation"):
        RankRLS(kernel="rbf", random_state=0).fit(lazy[:30], y[:30])
    assert not hasattr(ranker, "coef_")
    assert ranker.dual_coef_.shape == (9,)


def test_without_dask(monkeypatch):
    monkeypatch.delitem(sys.modules, "rankrls.dask")
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ImportError, match=r"pip install 'rankrls\[dask\]'"):
        importlib.import_module("rankrls.dask")


# ---------------------------------------------------------------------- on a cluster


@pytest.fixture
def cluster(threads):
    """A client of two worker processes."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs="CRITICAL",
        ) as local,
        distributed.Client(local) as client,
        dask.config.set(scheduler="distributed"),
    ):
        yield client
        client.wait_for_workers(2, timeout=120)


@pytest.mark.usefixtures("cluster")
def test_on_a_cluster():
    X, y, qid, weight = problem(9, m=600)
    lazy = chunked(X, 100)
    fit = {"qid": qid, "sample_weight": weight}
    for options in ({"cost": "unit"}, {"kernel": "rbf", "basis": 12, "random_state": 0}):
        local = rankrls.RankRLS(**options).fit(X, y, **fit)
        ranker = RankRLS(**options).fit(lazy, y, **fit)
        check_same_fit(ranker, local, X, 1e-8)
        same(ranker.predict(lazy).compute(), local.predict(X), 1e-8)
        assert ranker.score(lazy, y, qid) == pytest.approx(local.score(X, y, qid))
    for scoring in ("pairwise_r2", "pairwise_accuracy"):
        options = {"alphas": [3.0], "cv": 3, "random_state": 0, "scoring": scoring}
        found = [
            kind(**options).fit(rows, y, **fit).cv_results_["mean_score"]
            for kind, rows in ((rankrls.dask.RankRLSCV, lazy), (rankrls.RankRLSCV, X))
        ]
        same(*found, 1e-8)
    # What the user has persisted is used where it is.
    held = lazy.persist()
    twice = (held * 2).persist()[:, :4] / 2
    local = rankrls.RankRLS().fit(X[:, :4], y, **fit)
    for solver in ("primal", "cg"):
        ranker = precise(solver=solver).fit(twice, da.from_array(y, 100).persist(), **fit)
        same(ranker.coef_, local.coef_, 1e-8)
    bad = da.where(da.arange(600, chunks=100)[:, None] == 450, np.nan, lazy)
    with pytest.raises(ValueError, match="partition 4 of X contains NaN"):
        RankRLS().fit(bad, y)


@pytest.mark.parametrize("lazy_qid", [True, False])
@pytest.mark.parametrize("options", [{}, {"solver": "nystroem", "basis": list(range(9))}])
def test_a_local_model_goes_on_learning(options, lazy_qid, tmp_path):
    X, y, qid, _ = problem()
    ids = np.array([f"q{q}" for q in qid])
    new = np.isin(qid, np.unique(qid)[-3:])
    old = np.flatnonzero(~new)  # their queries cross the borders of partitions
    rows = da.from_array(X[old], chunks=(50, -1))
    labels = da.from_array(ids[old], chunks=50) if lazy_qid else ids[old].tolist()
    model = RankRLS(**options).fit(rows, y[old], qid=labels)
    reference = rankrls.RankRLS(solver="primal").set_params(**options)
    reference.fit(X[old], y[old], qid=ids[old])
    local = model.to_local()
    assert b"dask" not in pickle.dumps(local)
    assert row_counts(local) == row_counts(reference)
    np.testing.assert_array_equal(local._preferences, reference._preferences)
    save_model(local, tmp_path / "model")
    for ranker in (local, load_model(tmp_path / "model")):
        ranker.partial_fit(X[new], y[new], qid=ids[new])
        expected = copy.copy(reference).partial_fit(X[new], y[new], qid=ids[new])
        same(ranker.predict(X), expected.predict(X), 1e-8)
        ranker.forget(X[new], y[new], qid=ids[new])
        same(ranker.predict(X), reference.predict(X), 1e-8)
        with pytest.raises(ValueError, match="was added before"):
            ranker.partial_fit(X[old[:30]], y[old[:30]], qid=ids[old[:30]])
    assert row_counts(model) == row_counts(reference)  # it has not changed


def test_local_estimators_refuse_rows_elsewhere():
    X, y, qid, _ = problem()
    lazy = chunked(X)
    fitted = rankrls.RankRLS().fit(X, y, qid=qid)
    for call in (
        lambda: rankrls.RankRLS().fit(lazy, y, qid=qid),
        lambda: rankrls.GreedyRankRLS(1).fit(lazy, y, qid=qid),
        lambda: rankrls.RankRLS().partial_fit(lazy, y, qid=qid),
        lambda: fitted.predict(lazy),
        lambda: leave_query_out_predict(rankrls.RankRLS(), lazy, y, qid=qid),
        lambda: cross_val_score(rankrls.RankRLS(), lazy, y, qid=qid),
        lambda: QueryScaler().fit_transform(lazy, qid=qid),
    ):
        with pytest.raises(ValueError, match=r"X is a Dask Array.*rankrls.dask.RankRLS.*compute"):
            call()
    rest = {"y": y, "qid": qid, "sample_weight": np.ones(len(y))}
    for name in rest:
        there = rest | {name: da.from_array(rest[name], chunks=50)}
        for method in (rankrls.RankRLS().fit, rankrls.GreedyRankRLS(1).fit, fitted.score):
            with pytest.raises(ValueError, match=rf"{name} is a Dask Array.*{name}\.compute"):
                method(X, **there)
    table, names = frame()
    with pytest.raises(ValueError, match="X is a Dask DataFrame"):
        rankrls.RankRLS().fit(dd.from_pandas(table, npartitions=2)[names], table.target)


@pytest.mark.parametrize("solver", ["primal", "nystroem", "cg"])
def test_a_failing_refit_changes_nothing(solver):
    X, y, qid, _ = problem()
    lazy = chunked(X)
    model = RankRLS(solver=solver, basis=5 if solver == "nystroem" else None).fit(lazy, y, qid=qid)
    before, predictions = dict(vars(model)), model.predict(X)
    for bad_X, bad_y in ((lazy[:, :2], np.zeros(len(y))), (lazy[:, :2] * np.inf, y)):
        with pytest.raises(ValueError, match=r"no query has a pair|NaN|infinity"):
            model.fit(bad_X, bad_y, qid=qid)
        assert vars(model) == before
    np.testing.assert_array_equal(model.predict(X), predictions)


@pytest.mark.parametrize("with_qid", [False, True])
def test_warnings_about_columns_are_those_of_the_local_fit(with_qid):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(2000, 2)) * [1e-4, 1e4], np.full(2000, 0.1)])
    y, qid = rng.normal(size=2000), rng.integers(0, 50, 2000)
    X[:, 2] += 1e6 * qid / 3 * with_qid  # varies between queries only
    reader = Reader(X, 300)
    with pytest.warns(FeatureScaleWarning, match=r"\(column 0\) to \S+ \(column 1\)") as caught:
        RankRLS().fit(reader.X, y, qid=qid if with_qid else None)
    assert (reader.counts == 1).all()
    remedy = "rankrls.dask.fit(make_pipeline(StandardScaler(), rankrls.RankRLS()), X, y"
    assert remedy in str(caught[0].message)


def test_query_ids_as_numbers_and_text():
    X, y, _, _ = problem(m=12)
    parts = [np.array([1, 1, 2, 2]), np.array(["2", "2", "30", "30"]), np.array([30, 2, 1, 30])]
    blocks = (da.from_delayed(dask.delayed(part), (4,), dtype=object) for part in parts)
    ids = np.concatenate([part.astype(object) for part in parts])
    local = rankrls.RankRLS().fit(X, y, qid=ids)
    model = RankRLS().fit(chunked(X, 4), y, qid=da.concatenate(list(blocks)))
    check_same_fit(model, local, X)
    assert model.n_queries_ == 3
    assert row_counts(model.to_local()) == row_counts(local)
