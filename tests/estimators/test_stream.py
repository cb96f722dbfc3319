"""fit_stream: one pass over batches, however they are cut, equals a fit to all rows."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import cases
from cases import close, cut, folds_in_turn, same, same_choice
from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import dump_letor, iter_letor, make_ranking
from rankrls.metrics import pairwise_accuracy

pytestmark = [
    pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning"),
    pytest.mark.filterwarnings("ignore:the best alpha"),
]

LOSSES = [
    ("magnitude", "keep", "pair"),
    ("magnitude", "drop", "size"),
    ("unit", "drop", "query"),
    ("relative", "drop", "pair"),
]


def data(seed=0, m=60, n=4, n_outputs=None, offset=0.0):
    """Rows of a query together; queries of 1 to 12 rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + offset
    y = rng.integers(0, 4, m if n_outputs is None else (m, n_outputs)) * 0.5
    qid = np.sort(rng.choice(list("abcdefghijk"), m))
    qid[: m // 5] = "A"
    weight = rng.uniform(0.2, 2.0, m)
    weight[rng.choice(m, m // 6, replace=False)] = 0.0
    return X, y, qid, weight


def batches_of(X, y, qid, rows=37, weight=None):
    names = ("data", "target", "qid", "sample_weight")
    for parts in cut(rows, X, y, qid, *([] if weight is None else [weight])):
        yield dict(zip(names, parts, strict=False))


# ---------------------------------------------------------------- with queries


@pytest.mark.parametrize("loss", LOSSES, ids="-".join)
def test_equals_fit(loss):
    X, y, qid, weight = data()
    y = y + 1
    options = dict(zip(("cost", "ties", "query_weighting"), loss, strict=True))
    ranker = RankRLS(alpha=0.3, solver="primal", **options)
    reference = clone(ranker).fit(X, y, qid=qid, sample_weight=weight)
    for size in (1, 7, 60):
        streamed = clone(ranker).fit_stream(batches_of(X, y, qid, size, weight))
        same(streamed, reference, X)
        close(streamed.coef_, reference.coef_)


@settings(max_examples=60, deadline=None)
@given(
    queries=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=2, max_size=8),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    seed=st.integers(0, 99),
    as_sparse=st.booleans(),
)
def test_any_cuts(queries, cuts, seed, as_sparse):
    """Queries of any sizes, batches of any sizes, empty ones too, rows in any order."""
    rng = np.random.default_rng(seed)
    sizes = [size for size, _ in queries]
    qid = np.repeat(np.arange(len(sizes)), sizes)
    m = len(qid)
    X, y = rng.standard_normal((m, 3)), rng.integers(0, 3, m).astype(float)
    y[:2], qid[:2] = (0.0, 1.0), 0
    X = sparse.csr_array(X) if as_sparse else X
    borders = sorted(min(c, m) for c in cuts)
    batches = []
    for start, stop in itertools.pairwise([0, *borders, m]):
        rows = np.arange(start, stop)
        if len(rows):  # any order, as long as the query that goes on comes last
            last = rows[qid[rows] == qid[rows[-1]]]
            rows = np.concatenate([rng.permutation(rows[: len(rows) - len(last)]), last])
        batches.append((X[rows], y[rows], qid[rows]))
    streamed = RankRLS(ties="drop", solver="primal").fit_stream(iter(batches))
    same(streamed, RankRLS(ties="drop", solver="primal").fit(X, y, qid=qid), X)


def test_nystroem_from_the_first_batch_or_from_given_rows():
    X, y, qid, _ = data(2)
    ranker = RankRLS(kernel="rbf", gamma=0.3, basis=5, random_state=0)
    streamed = clone(ranker).fit_stream(cut(13, X, y, qid))
    assert streamed.basis_indices_.max() < 13
    reference = clone(ranker).set_params(basis=streamed.basis_indices_).fit(X, y, qid=qid)
    same(streamed, reference, X)
    close(streamed.dual_coef_, reference.dual_coef_)
    rows = [3, 30, 45, 59]
    streamed = RankRLS(kernel="rbf", gamma=0.3, solver="nystroem").fit_stream(
        cut(13, X, y, qid), basis_rows=X[rows]
    )
    reference = RankRLS(kernel="rbf", gamma=0.3, basis=rows).fit(X, y, qid=qid)
    same(streamed, reference, X)
    np.testing.assert_array_equal(streamed.basis_indices_, np.arange(4))
    with pytest.raises(ValueError, match=r"batch 1.*basis has .* rows are numbered 0 to 12"):
        clone(ranker).set_params(basis=rows).fit_stream(cut(13, X, y, qid))


def test_dense_and_sparse_batches_weighted_or_not_with_a_query_across():
    X, y, qid, weight = data(4)
    batches = list(batches_of(X, y, qid, 17, weight))
    batches[1]["data"] = sparse.csc_matrix(batches[1]["data"])
    del batches[0]["sample_weight"]
    weight[:17] = 1.0
    ranker = RankRLS(solver="primal")
    reference = clone(ranker).fit(X, y, qid=qid, sample_weight=weight)
    same(clone(ranker).fit_stream(batches), reference, X, 1e-9)


# ---------------------------------------------------------------- one ranking


@pytest.mark.parametrize("weighting", cases.WEIGHTINGS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "offset", "rbf"])
def test_one_ranking_over_all_batches(weighting, weighted, kind):
    X, y, _, weight = data(8, n_outputs=2, offset=1e6 if kind == "offset" else 0.0)
    if kind == "sparse":
        X = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    options = {"kernel": "rbf", "basis": [0, 2, 3]} if kind == "rbf" else {"solver": "primal"}
    ranker = RankRLS(query_weighting=weighting, **options)
    weight[:9] = 0.0  # two batches without weight
    weight = weight if weighted else np.ones(60)
    reference = clone(ranker).fit(X, y, sample_weight=weight if weighted else None)
    for size in (4 if kind == "rbf" else 1, 60):
        batches = [
            {"data": X_b, "target": y_b, "sample_weight": w_b if weighted else None}
            for X_b, y_b, w_b in cut(size, X, y, weight)
        ]
        streamed = clone(ranker).fit_stream(batches)
        same(streamed, reference, X, 1e-7 if kind == "offset" else 1e-10)
    assert streamed.n_queries_ == 1
    ones = np.ones(60) if weighted else None
    streamed.partial_fit(X, y, qid=np.repeat([1, 2], 30), sample_weight=ones)
    streamed.forget(X, y, sample_weight=weight if weighted else None)
    same(streamed, clone(ranker).fit(X, y, qid=np.repeat([1, 2], 30)), X, 1e-7)


@pytest.mark.parametrize("loss", [{"ties": "drop"}, {"cost": "unit"}, {"cost": "relative"}])
def test_one_ranking_needs_a_cost_that_joins(loss):
    X, y, _, _ = data(10)
    with pytest.raises(ValueError, match=r"batch 1: it has no qid.*needs cost='magnitude' and"):
        RankRLS(**loss).fit_stream(cut(10, X, y))


# ---------------------------------------------------------------- refused

ONES = np.ones((6, 4))


def refused(batches, message, **parameters):
    """The error says what is wrong, and the estimator is as it was."""
    ranker = RankRLS(**parameters)
    before = dict(vars(ranker))
    with pytest.raises(ValueError, match=message):
        ranker.fit_stream(batches)
    assert vars(ranker) == before
    with pytest.raises(NotFittedError):
        ranker.predict(np.ones((1, 4)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, q: (np.where(X > 1, np.nan, X), y, q), "NaN"),
        (lambda X, y, q: (X[:, :3], y, q), "3 features.*expecting 4"),
        (lambda X, y, q: (X, y, q[:-1]), "qid has 19 entries for 20 rows"),
        (lambda X, y, q: (X, np.c_[y, y], q), r"y has 2 output\(s\), and 1 in the first"),
        (lambda X, y, q: (X, y), "it has no qid, and the first batch had one"),
        (lambda X, y, q: (X, y, q, q), "it is a tuple; a batch is"),
        (lambda X, y, q: {"data": X, "qid": q}, "it has no 'target'; a batch is"),
        (lambda X, y, q: {"data": X, "target": y, "group": [20]}, "give qid, not 'group'"),
        (lambda X, y, q: {"data": X, "target": y, "qid": q, "sample_weight": -y}, ">= 0"),
        (lambda X, y, q: (X * 1e200, y, q), "overflow"),
        (
            lambda X, y, q: (X, y, np.where(q == q[0], "A", q)),
            "query 'A' comes back after its rows had ended.*sort the data",
        ),
    ],
)
def test_bad_batch_is_named(change, message):
    X, y, qid, _ = data(12)
    batches = list(cut(20, X, y, qid))
    batches[1] = change(*batches[1])
    refused(batches, f"^batch 2: .*{message}")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ("train.txt", "for a file: rankrls.datasets.iter_letor"),
        (ONES, r"got a ndarray \(for one batch: \[batch\]"),
        ([(ONES[:0], np.empty(0))], "no batch with rows"),
        ([(ONES, ONES[:, 0], [1, 1, 1, 2, 2, 2])], "no query has a pair .* 6 rows and 2 queries"),
        ([(ONES, ONES[:, 0])], "no query has a pair to learn from"),
        ([(ONES, np.c_[np.arange(6), ONES[:, 0]])], r"in output \(column\) 1 of y"),
    ],
)
def test_nothing_to_learn_from(batches, message):
    refused(batches, message)


# ---------------------------------------------------------------- files, progress, memory


def test_memory_does_not_grow_with_the_number_of_batches():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 20)), rng.standard_normal(2000)

    def peak(n_batches):
        batches = ((X + i, y, np.arange(2000) // 50 + 40 * i) for i in range(n_batches))
        tracemalloc.start()
        RankRLS().fit_stream(batches)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2)
    assert peak(40) < peak(4) + 200_000  # labels of 1440 more queries; a batch has 320,000 bytes


# ---------------------------------------------------------------- RankRLSCV: folds of whole queries

GRID = 2.0 ** np.arange(-12, 13, 3)


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


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy", "ndcg@3"])
@pytest.mark.parametrize("loss", LOSSES, ids="-".join)
def test_is_cross_validation_in_memory(loss, scoring):
    X, y, qid = ugly(0)
    y = np.clip(y + 2, 0, 4)
    options = dict(zip(("cost", "ties", "query_weighting"), loss, strict=True))
    options |= {"scoring": scoring, "alphas": GRID}
    fitted = RankRLSCV(cv=folds_in_turn(qid, 5), **options).fit(X, y, qid=qid)
    streamed = RankRLSCV(cv=5, **options).fit_stream(list(batches_of(X, y, qid)))
    same_choice(streamed, fitted, X)


@pytest.mark.parametrize("scoring", ["pairwise_r2", "pairwise_accuracy"])
def test_cv_of_several_outputs_weights_and_sparse_rows(scoring):
    X, y, qid = ugly(1, n_outputs=2)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    for cost, ties in (("magnitude", "keep"), ("unit", "drop")):
        options = {"alphas": GRID, "cost": cost, "ties": ties, "scoring": scoring}
        fitted = RankRLSCV(cv=folds_in_turn(qid, 4), **options)
        fitted.fit(X, y, qid=qid, sample_weight=weight)
        for rows in (X, sparse.csr_array(X)):
            given = list(batches_of(rows, y, qid, weight=weight))
            same_choice(RankRLSCV(cv=4, **options).fit_stream(given), fitted, X)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_reader_may_fill_the_same_arrays_for_every_batch(as_sparse):
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

    model = RankRLSCV(GRID, cv=5, scoring="pairwise_r2").fit_stream(refilled())
    expected = RankRLSCV(GRID, cv=5, scoring="pairwise_r2")
    same_choice(model, expected.fit_stream([*batches_of(X, y, qid, 900, weight)]), X)


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


@pytest.mark.parametrize(
    "change",
    [
        lambda batches: batches[:-2],
        lambda batches: [],
        lambda batches: [(X[1:], y[1:], q[1:]) for X, y, q in batches],
        lambda batches: [(X, y, q + 1) for X, y, q in batches],
        lambda batches: batches[::-1],
    ],
    ids=["fewer", "none", "rows", "labels", "order"],
)
def test_batches_that_are_read_again_must_be_the_same(change):
    """Otherwise queries would be scored by models that were fitted to them."""
    X, y, qid = ugly(6)
    parts = np.split(np.arange(len(X)), np.flatnonzero(np.diff(qid))[5::6] + 1)
    batches = [(X[part], y[part], qid[part]) for part in parts]
    passes = iter([batches, change(batches)])
    with pytest.raises(ValueError, match="batches that are read again must have the same rows"):
        RankRLSCV(GRID, cv=3, scoring="pairwise_accuracy").fit_stream(lambda: next(passes))


def test_default_grid_is_that_of_fit(tmp_path):
    X, y, qid = make_ranking(n_queries=60, random_state=1, return_X_y_qid=True)
    dump_letor(X, y, tmp_path / "rows.txt", qid=qid)
    streamed = RankRLSCV().fit_stream(lambda: iter_letor(tmp_path / "rows.txt", rows=50))
    fitted = RankRLSCV(cv=folds_in_turn(qid, 5)).fit(X, y, qid=qid)
    same_choice(streamed, fitted, X)


@pytest.mark.parametrize("basis", [False, True], ids=["linear", "nystroem"])
def test_r2_is_the_held_out_loss_of_explicit_refits(basis):
    X, y, qid = ugly(6)
    X = X / X.std(axis=0)
    options = {"kernel": "rbf", "solver": "nystroem"} if basis else {}
    rows = {"basis_rows": X[:20]} if basis else {}  # in the basis of all folds
    streamed = RankRLSCV(GRID, cv=3, scoring="pairwise_r2", **options)
    streamed.fit_stream(batches_of(X, y, qid), **rows)
    loss, energy = 0.0, 0.0
    for train, test in folds_in_turn(qid, 3):
        ranker = RankRLS(streamed.alpha_, **options)
        ranker.fit_stream(batches_of(X[train], y[train], qid[train]), **rows)
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
        ({"cv": "leave-query-out"}, "list", "folds of whole queries"),
        ({"cv": 61}, "list", "61 folds of 60 queries"),
        ({"scoring": "log_loss"}, "list", "given pairs"),
        ({"kernel": "rbf", "gamma": [0.1, 1.0], "basis": 3}, "list", "allow one gamma"),
        ({"store_cv_predictions": True}, "list", "no stored predictions"),
        ({}, "no qid", "batch 1: it has no qid"),
        ({}, "one query", "fold 0 leaves no query"),
    ],
)
def test_refused_cross_validation(options, batches, message):
    X, y, qid = ugly(7)
    if batches == "one query":
        y = np.where(qid == qid[0], y, 0.0)
        assert len(np.unique(y[qid == qid[0]])) > 1
    given = batches_of(X, y, qid) if batches != "no qid" else iter([(X, y)])
    with pytest.raises(ValueError, match=message):
        RankRLSCV(GRID, **options).fit_stream(given if batches == "generator" else list(given))
