"""`RankRLSCV.fit_stream`: folds of whole queries from sums, against cross-validation in memory."""

import numpy as np
import pytest
from scipy import sparse

from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import dump_letor, iter_letor, make_ranking
from rankrls.estimators import stream
from rankrls.io import load_model, save_model
from rankrls.metrics import pairwise_accuracy

pytestmark = [
    pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning"),
    pytest.mark.filterwarnings("ignore:the best alpha"),
]

GRID = 2.0 ** np.arange(-12, 13, 3)
LOSSES = [
    ("magnitude", "keep", "pair"),
    ("magnitude", "drop", "size"),
    ("unit", "drop", "query"),
    ("relative", "drop", "pair"),
]


def ugly(seed, *, n_outputs=None, n_queries=60):
    """Scales, offsets, ties, single rows, constant queries; labels in no order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, n_queries)
    qid = np.repeat(rng.permutation(n_queries), sizes)
    m, n = len(qid), 6
    X = rng.normal(size=(m, n)) * 10.0 ** np.arange(-2, 4) + 1e3 * rng.normal(size=n)
    X[:, 5] = X[:, 4] + 10.0 * rng.normal(size=m)
    shape = m if n_outputs is None else (m, n_outputs)
    signal = ((X - X.mean(axis=0))[:, :2] / [0.01, 0.1]).sum(axis=1) + rng.normal(size=m)
    y = np.round(signal if n_outputs is None else signal[:, None] + rng.normal(size=shape), 0)
    y[qid == 3] = 1.0
    return X, y, qid


def batches_of(X, y, qid, rows=37, weight=None):
    for start in range(0, X.shape[0], rows):
        part = slice(start, start + rows)
        batch = {"data": X[part], "target": y[part], "qid": qid[part]}
        yield batch if weight is None else batch | {"sample_weight": weight[part]}


def folds_in_turn(qid, k):
    """(train, test) of queries that go to the folds in turn, in the order of their first rows."""
    labels, first = np.unique(qid, return_index=True)
    number = {label: i for i, label in enumerate(labels[np.argsort(first)])}
    fold = np.array([number[label] % k for label in qid])
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k)]


def assert_same(streamed, fitted, X, tolerance=1e-8):
    for name, values in fitted.cv_results_.items():
        if name != "n_refits":
            assert np.allclose(streamed.cv_results_[name], values, rtol=0, atol=tolerance), name
    assert streamed.alpha_ == fitted.alpha_
    f, g = streamed.predict(X), fitted.predict(X)
    assert np.allclose(f - f.mean(axis=0), g - g.mean(axis=0), atol=1e-7 * np.ptp(g))


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy", "ndcg@3"])
@pytest.mark.parametrize("loss", LOSSES, ids="-".join)
def test_is_cross_validation_in_memory(loss, scoring):
    X, y, qid = ugly(0)
    y = np.clip(y + 2, 0, 4)
    options = dict(zip(("cost", "ties", "query_weighting"), loss, strict=True))
    options |= {"scoring": scoring, "alphas": GRID}
    fitted = RankRLSCV(cv=folds_in_turn(qid, 5), **options).fit(X, y, qid=qid)
    streamed = RankRLSCV(cv=5, **options).fit_stream(list(batches_of(X, y, qid)))
    assert_same(streamed, fitted, X)
    assert streamed.n_queries_ == fitted.n_queries_
    assert streamed.n_pairs_ == fitted.n_pairs_


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy"])
def test_several_outputs_weights_and_sparse_rows(scoring):
    X, y, qid = ugly(1, n_outputs=2)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    for cost, ties in (("magnitude", "keep"), ("unit", "drop")):
        options = {"alphas": GRID, "cost": cost, "ties": ties, "scoring": scoring}
        fitted = RankRLSCV(cv=folds_in_turn(qid, 4), **options)
        fitted.fit(X, y, qid=qid, sample_weight=weight)
        for rows in (X, sparse.csr_array(X)):
            given = list(batches_of(rows, y, qid, weight=weight))
            assert_same(RankRLSCV(cv=4, **options).fit_stream(given), fitted, X)


def test_r2_is_the_held_out_loss_of_explicit_refits():
    X, y, qid = ugly(2)
    loss, energy = np.zeros(len(GRID)), 0.0
    for train, test in folds_in_turn(qid, 3):
        for a, alpha in enumerate(GRID):
            f = RankRLS(alpha).fit(X[train], y[train], qid=qid[train]).predict(X[test])
            for label in np.unique(qid[test]):
                s, p = y[test][qid[test] == label], f[qid[test] == label]
                z, d = np.subtract.outer(s, s), np.subtract.outer(p, p)
                loss[a] += ((z - d) ** 2).sum() / 2
                energy += (z**2).sum() / 2 * (a == 0)
    streamed = RankRLSCV(GRID, cv=3, scoring="pairwise_r2").fit_stream(batches_of(X, y, qid))
    assert np.allclose(streamed.cv_results_["mean_score"], 1 - loss / energy, atol=1e-9)


def test_r2_of_rows_of_one_ranking_and_of_held_out_rows():
    X, y, _ = ugly(3)
    X, y = X[:60], y[:60]
    ranker = RankRLSCV(GRID, cv=5, random_state=0, scoring="pairwise_r2").fit(X, y)
    assert 0 < ranker.best_score_ < 1
    chosen = RankRLSCV(GRID, cv="validation", random_state=0, scoring="pairwise_r2").fit(X, y)
    assert 0 < chosen.best_score_ < 1


def test_how_batches_are_cut_does_not_matter():
    X, y, qid = ugly(4)
    first = RankRLSCV(GRID, cv=5, scoring="pairwise_r2").fit_stream(batches_of(X, y, qid))
    for rows in (1, 5, len(y)):
        other = RankRLSCV(GRID, cv=5, scoring="pairwise_r2")
        other.fit_stream(batches_of(X, y, qid, rows))
        assert np.allclose(other.cv_results_["mean_score"], first.cv_results_["mean_score"])
        assert np.allclose(other.coef_, first.coef_, rtol=1e-7)


@pytest.mark.parametrize("entries", [1, 150, 10**9])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_rows_that_wait_are_copied(monkeypatch, entries, as_sparse):
    """Sums are formed of many rows; a reader may fill the same arrays for every batch."""
    monkeypatch.setattr("rankrls.estimators.stream.ENTRIES", entries)
    X, y, qid = ugly(5)
    X = sparse.csr_array(X) if as_sparse else X
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(np.float64)

    def refilled():
        last: list = []
        for batch in batches_of(X, y, qid, 30, weight):
            for array in last:
                array[:] = np.nan if array.dtype.kind == "f" else -1
            batch = {name: values.copy() for name, values in batch.items()}
            values = batch["data"].data if as_sparse else batch["data"]
            last = [values, batch["target"], batch["sample_weight"], batch["qid"]]
            yield batch

    for k in (2, 5):
        model = RankRLSCV(GRID, cv=k, scoring="pairwise_r2")
        expected = RankRLSCV(GRID, cv=k, scoring="pairwise_r2")
        assert_same(
            model.fit_stream(refilled()),
            expected.fit_stream([*batches_of(X, y, qid, 900, weight)]),
            X,
        )
    one, reference = RankRLS(2.0).fit_stream(refilled()), RankRLS(2.0)
    reference.fit(X, y, qid=qid, sample_weight=weight)
    assert np.allclose(one.predict(X), reference.predict(X), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("entries", "where"), [(1, "batches 3 to 4"), (10**9, "batches 1 to 7")])
def test_batches_of_rows_that_overflow_are_named(monkeypatch, entries, where):
    monkeypatch.setattr("rankrls.estimators.stream.ENTRIES", entries)
    X, y, qid = ugly(5)
    batches = list(batches_of(X, y, qid, 60))
    batches[3]["data"] = batches[3]["data"] * 1e200
    with pytest.raises(ValueError, match=rf"overflow float64.* \(in {where}\)"):
        RankRLSCV(GRID, cv=2, scoring="pairwise_r2").fit_stream(batches)


def test_a_query_with_huge_values_costs_the_other_folds_no_digits():
    """Sums of the other folds are added, nothing is taken from the total."""
    X, y, qid = ugly(5)
    X = X / X.std(axis=0)
    X[qid == qid[0]] *= 1e9
    options = {"alphas": [1.0], "scoring": "pairwise_accuracy"}
    streamed = RankRLSCV(cv=5, **options).fit_stream(list(batches_of(X, y, qid)))
    fitted = RankRLSCV(cv=folds_in_turn(qid, 5), **options).fit(X, y, qid=qid)
    held_out = []
    for train, test in folds_in_turn(qid, 5):
        refitted = RankRLS().fit(X[train], y[train], qid=qid[train])
        scores = pairwise_accuracy(y[test], refitted.predict(X[test]), qid=qid[test], average=None)
        held_out.extend(scores[np.isfinite(scores)])
    for ranker in (streamed, fitted):
        assert np.isclose(ranker.best_score_, np.mean(held_out), atol=1e-12)


def test_batches_are_read_again_in_another_order():
    """Queries keep their folds: no query is scored by a model that was fitted to it."""
    X, y, qid = ugly(6)
    parts = [np.flatnonzero(qid == label) for label in dict.fromkeys(qid)]
    rng = np.random.default_rng(0)

    def read(order):
        return [(X[parts[i]], y[parts[i]], qid[parts[i]]) for i in order]

    orders = iter([np.arange(len(parts)), *(rng.permutation(len(parts)) for _ in range(9))])
    shuffled = RankRLSCV(GRID, cv=3, scoring="pairwise_accuracy").fit_stream(
        lambda: read(next(orders))
    )
    expected = RankRLSCV(GRID, cv=3, scoring="pairwise_accuracy").fit_stream(
        read(range(len(parts)))
    )
    assert_same(shuffled, expected, X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda batches: batches[:-2],
            "or other numbers of rows in some; batches that are read again",
        ),
        (lambda batches: [], r"now 0 of 0"),
        (
            lambda batches: [(X[1:], y[1:], q[1:]) for X, y, q in batches],
            "or other numbers of rows",
        ),
        (lambda batches: [(X, y, q + 1) for X, y, q in batches], "query 60 was not there before"),
    ],
    ids=["fewer", "none", "rows", "labels"],
)
def test_batches_that_are_read_again_must_be_the_same(change, message):
    X, y, qid = ugly(6)
    batches = [(X[part], y[part], qid[part]) for part in np.array_split(np.arange(len(X)), 8)]
    passes = iter([batches, change(batches)])
    with pytest.raises(ValueError, match=message):
        RankRLSCV(GRID, cv=3, scoring="pairwise_accuracy").fit_stream(lambda: next(passes))


@pytest.mark.parametrize("basis", [None, 300])
def test_rows_that_wait_have_a_size_in_kernel_values(monkeypatch, basis):
    """At most so many features, or Nyström features, wait: 3 columns, but 300 basis vectors."""
    sizes, joined = [], stream.joined

    def sized(rows):
        if rows[0].y.shape[0] > 10:  # not the pieces of one query
            sizes.append(sum(len(part.y) for part in rows))
        return joined(rows)

    monkeypatch.setattr("rankrls.estimators.stream.joined", sized)
    monkeypatch.setattr("rankrls.estimators.stream.ENTRIES", 300 * 400)
    X, y, qid = make_ranking(n_queries=200, n_docs=10, n_features=3, return_X_y_qid=True)
    options = {} if basis is None else {"kernel": "rbf", "basis": basis, "solver": "nystroem"}
    model = RankRLSCV([1.0], cv=2, scoring="pairwise_r2", **options)
    model.fit_stream(batches_of(X, y, qid, rows=400))
    assert max(sizes) <= (2000 if basis is None else 800)
    assert len(sizes) == (1 if basis is None else 5)


def test_default_grid_is_that_of_fit(tmp_path):
    X, y, qid = make_ranking(n_queries=60, random_state=1, return_X_y_qid=True)
    dump_letor(X, y, tmp_path / "rows.txt", qid=qid)
    streamed = RankRLSCV().fit_stream(lambda: iter_letor(tmp_path / "rows.txt", rows=50))
    fitted = RankRLSCV(cv=folds_in_turn(qid, 5)).fit(X, y, qid=qid)
    assert_same(streamed, fitted, X)


def test_nystroem_basis_is_that_of_all_folds():
    X, y, qid = ugly(6)
    X = X / X.std(axis=0)
    options = {"alphas": GRID, "kernel": "rbf", "solver": "nystroem", "scoring": "pairwise_r2"}
    streamed = RankRLSCV(cv=3, **options).fit_stream(batches_of(X, y, qid), basis_rows=X[:20])
    loss, energy = 0.0, 0.0
    basis = np.arange(20)
    for train, test in folds_in_turn(qid, 3):
        ranker = RankRLS(streamed.alpha_, kernel="rbf", solver="nystroem")
        ranker.fit_stream(batches_of(X[train], y[train], qid[train]), basis_rows=X[basis])
        f = ranker.predict(X[test])
        for label in np.unique(qid[test]):
            s, p = y[test][qid[test] == label], f[qid[test] == label]
            z, d = np.subtract.outer(s, s), np.subtract.outer(p, p)
            loss, energy = loss + ((z - d) ** 2).sum(), energy + (z**2).sum()
    assert np.isclose(streamed.best_score_, 1 - loss / energy, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "batches", "message"),
    [
        ({"cv": 5}, "generator", "lambda: iter_letor"),
        ({"cv": 5, "scoring": "concordance_index"}, "list", "all queries at once"),
        ({"cv": 5, "scoring": lambda *a, **k: 0.0}, "list", "all queries at once"),
        ({"cv": "leave-query-out"}, "list", "folds of whole queries"),
        ({"cv": 1}, "list", "at least 2"),
        ({"cv": 61}, "list", "61 folds of 60 queries"),
        ({"scoring": "log_loss"}, "list", "given pairs"),
        ({"kernel": "rbf"}, "list", "basis"),
    ],
)
def test_refusals(options, batches, message):
    X, y, qid = ugly(7)
    given = batches_of(X, y, qid)
    with pytest.raises(ValueError, match=message):
        RankRLSCV(GRID, **options).fit_stream(list(given) if batches == "list" else given)


def test_needs_qid_and_something_left():
    X, y, qid = ugly(8)
    with pytest.raises(ValueError, match="batch 1: it has no qid"):
        RankRLSCV(scoring="pairwise_r2").fit_stream([(X, y)])
    flat = np.where(qid == qid[0], y, 0.0)
    assert len(np.unique(flat[qid == qid[0]])) > 1
    with pytest.raises(ValueError, match="fold 0 leaves no query"):
        RankRLSCV(scoring="pairwise_r2").fit_stream(batches_of(X, flat, qid))


def test_a_query_that_comes_back_is_refused_and_nothing_changes():
    X, y, qid = ugly(9)
    ranker = RankRLSCV(GRID, scoring="pairwise_r2").fit_stream(batches_of(X, y, qid))
    before = dict(vars(ranker))
    with pytest.raises(ValueError, match="comes back"):
        ranker.fit_stream(batches_of(X[::-1], y[::-1], qid % 7))
    assert vars(ranker) == before


def test_goes_on_learning_with_the_alpha_that_was_chosen():
    X, y, qid = ugly(10)
    old, new = qid < 20, qid >= 50
    start = ~new
    ranker = RankRLSCV(GRID, cv=3, scoring="pairwise_r2")
    ranker.fit_stream(batches_of(X[start], y[start], qid[start]))
    alpha, results = ranker.alpha_, ranker.cv_results_
    ranker.partial_fit(X[new], y[new], qid=qid[new]).forget(X[old], y[old], qid=qid[old])
    fresh = RankRLS(alpha).fit(X[~old], y[~old], qid=qid[~old])
    assert np.allclose(ranker.coef_, fresh.coef_, rtol=1e-6)
    assert ranker.alpha_ == alpha
    assert ranker.cv_results_ is results


def test_fit_goes_on_learning_too():
    X, y, qid = ugly(11)
    new = qid >= 50
    first = RankRLSCV(GRID).partial_fit(X[~new], y[~new], qid=qid[~new])
    fitted = RankRLSCV(GRID).fit(X[~new], y[~new], qid=qid[~new])
    assert np.array_equal(first.coef_, fitted.coef_)
    fitted.partial_fit(X[new], y[new], qid=qid[new])
    assert np.allclose(fitted.coef_, RankRLS(fitted.alpha_).fit(X, y, qid=qid).coef_, rtol=1e-6)


def test_days_as_query_ids_are_stored(tmp_path):
    X, y, qid = ugly(12)
    days = qid.astype("datetime64[D]")
    ranker = RankRLSCV(GRID).fit(X, y, qid=days)
    save_model(ranker, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    old = qid == qid[0]
    loaded.forget(X[old], y[old], qid=days[old])
    fresh = RankRLS(ranker.alpha_).fit(X[~old], y[~old], qid=qid[~old])
    assert np.allclose(loaded.coef_, fresh.coef_, rtol=1e-6)
