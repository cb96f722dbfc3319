"""fit_stream: one pass over batches, however they are cut, equals a fit to all rows."""

import gzip
import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Bunch

import cases
from rankrls import RankRLS
from rankrls.datasets import dump_letor, iter_letor

LOSSES = [
    {"cost": cost, "ties": ties, "query_weighting": weighting}
    for cost, ties, weighting in itertools.product(cases.COSTS, cases.TIES, cases.WEIGHTINGS)
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


def cut(size, *arrays):
    """Tuples of slices of ``size`` rows."""
    for start in range(0, arrays[0].shape[0], size):
        yield tuple(array[start : start + size] for array in arrays)


def as_bunches(size, X, y, qid, weight):
    for X_b, y_b, qid_b, w_b in cut(size, X, y, qid, weight):
        yield Bunch(data=X_b, target=y_b, qid=qid_b, sample_weight=w_b)


def close(a, b, tolerance=1e-10):
    assert np.abs(np.asarray(a) - b).max() <= tolerance * max(np.abs(b).max(), 1e-300), (a, b)


def same(model, reference, X, tolerance=1e-10):
    f, g = model.predict(X), reference.predict(X)
    close(f - f[:1], g - g[:1], tolerance)
    close(model.predict(X, return_std=True)[1], reference.predict(X, return_std=True)[1], tolerance)
    close(model.log_marginal_likelihood(), reference.log_marginal_likelihood(), tolerance)
    for name in ("solver_", "n_pairs_", "n_queries_", "n_iter_", "n_features_in_"):
        assert getattr(model, name) == getattr(reference, name), name
    assert model._with_qid == reference._with_qid


# ---------------------------------------------------------------- with queries


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: "-".join(loss.values()))
def test_equals_fit(loss):
    X, y, qid, weight = data()
    y = y + 1
    ranker = RankRLS(alpha=0.3, solver="primal", **loss)
    reference = clone(ranker).fit(X, y, qid=qid, sample_weight=weight)
    for size in (1, 7, 60):
        streamed = clone(ranker).fit_stream(as_bunches(size, X, y, qid, weight))
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


@pytest.mark.parametrize("ties", cases.TIES)
def test_several_outputs(ties):
    X, y, qid, _ = data(1, n_outputs=3)
    ranker = RankRLS(ties=ties, solver="primal")
    streamed = clone(ranker).fit_stream(cut(9, X, y, qid))
    reference = clone(ranker).fit(X, y, qid=qid)
    same(streamed, reference, X)
    assert streamed.coef_.shape == (3, 4)
    column = clone(ranker).fit_stream(cut(9, X, y[:, :1], qid))
    assert column.coef_.shape == (1, 4)


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
    with pytest.raises(ValueError, match=r"batch 1.*basis has row numbers outside 0 to 12"):
        clone(ranker).set_params(basis=rows).fit_stream(cut(13, X, y, qid))


def test_float32_stays_and_mixtures_do_not():
    X, y, qid, _ = data(3)
    X32 = X.astype(np.float32)
    assert RankRLS().fit_stream(cut(20, X32, y, qid)).coef_.dtype == np.float32
    mixed = [(X32[:20], y[:20], qid[:20]), (X[20:], y[20:], qid[20:])]
    assert RankRLS().fit_stream(mixed).coef_.dtype == np.float64


def test_dense_and_sparse_batches_with_a_query_across():
    X, y, qid, weight = data(4)
    batches = list(as_bunches(17, X, y, qid, weight))
    batches[1].data = sparse.csc_matrix(batches[1].data)
    ranker = RankRLS(solver="primal")
    reference = clone(ranker).fit(X, y, qid=qid, sample_weight=weight)
    same(clone(ranker).fit_stream(batches), reference, X, 1e-9)


def test_weights_in_some_batches_only():
    X, y, qid, weight = data(5)
    batches = list(as_bunches(17, X, y, qid, weight))
    del batches[0]["sample_weight"]
    weight[:17] = 1.0
    ranker = RankRLS(solver="primal")
    same(
        clone(ranker).fit_stream(batches),
        clone(ranker).fit(X, y, qid=qid, sample_weight=weight),
        X,
    )


def test_it_can_go_on():
    X, y, qid, _ = data(6)
    ranker = RankRLS(solver="primal")
    streamed = clone(ranker).fit_stream(cut(11, X, y, qid))
    streamed = pickle.loads(pickle.dumps(streamed))
    gone = qid == "c"
    streamed.forget(X[gone], y[gone], qid=qid[gone])
    same(streamed, clone(ranker).fit(X[~gone], y[~gone], qid=qid[~gone]), X)
    streamed.partial_fit(X[gone], y[gone], qid=qid[gone])
    same(streamed, clone(ranker).fit(X, y, qid=qid), X)
    with pytest.raises(ValueError, match="query 'd' was given in an earlier call"):
        streamed.partial_fit(X[:2], y[:2], qid=["d", "d"])
    streamed.fit_stream(cut(11, X[gone], y[gone], qid[gone]))  # begins anew
    assert streamed.n_queries_ == 1


def test_frames_and_their_names():
    pd = pytest.importorskip("pandas")
    X, y, qid, _ = data(7)
    frame = pd.DataFrame(X, columns=list("wxyz"))
    batches = [(frame[:30], pd.Series(y[:30]), qid[:30]), (frame[30:], y[30:], list(qid[30:]))]
    ranker = RankRLS().fit_stream(batches)
    assert ranker.feature_names_in_.tolist() == list("wxyz")
    close(ranker.coef_, RankRLS().fit(X, y, qid=qid).coef_)
    batches[1] = (frame[30:][["x", "w", "y", "z"]], y[30:], qid[30:])
    with pytest.raises(ValueError, match=r"batch 2: The feature names should match"):
        RankRLS().fit_stream(batches)


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
    for size in (4, 60):
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


def test_one_ranking_of_single_rows():
    X, y, _, _ = data(9)
    same(RankRLS().fit_stream(cut(1, X, y)), RankRLS().fit(X, y), X)


@pytest.mark.parametrize("loss", [{"ties": "drop"}, {"cost": "unit"}, {"cost": "relative"}])
def test_one_ranking_needs_a_cost_that_joins(loss):
    X, y, _, _ = data(10)
    with pytest.raises(ValueError, match=r"batch 1: it has no qid.*needs cost='magnitude' and"):
        RankRLS(**loss).fit_stream(cut(10, X, y))


# ---------------------------------------------------------------- refused


def refused(batches, message, **parameters):
    """The error says what is wrong, and the estimator is as it was."""
    ranker = RankRLS(**parameters)
    before = dict(vars(ranker))
    with pytest.raises(ValueError, match=message):
        ranker.fit_stream(batches)
    assert vars(ranker) == before
    with pytest.raises(NotFittedError):
        ranker.predict(np.ones((1, 4)))


def test_a_query_that_comes_back():
    X, y, qid, _ = data(11)
    batches = list(cut(20, X, y, qid))
    batches[2][2][-1] = "A"
    refused(batches, r"batch 3: query 'A' comes back after its rows had ended.*sort the data")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, q: (np.where(X > 1, np.nan, X), y, q), "NaN"),
        (lambda X, y, q: (X, np.where(y > 1, np.inf, y), q), "y contains NaN or infinity"),
        (lambda X, y, q: (X[:, :3], y, q), "3 features.*expecting 4"),
        (lambda X, y, q: (X, y[:-1], q), "y has 19 entries for 20 rows"),
        (lambda X, y, q: (X, y, q[:-1]), "qid has 19 entries for 20 rows"),
        (lambda X, y, q: (X, np.c_[y, y], q), r"y has 2 output\(s\), and 1 in the first"),
        (lambda X, y, q: (X, y), "it has no qid, and the first batch had one"),
        (lambda X, y, q: (X, y, None), "it has no qid, and the first batch had one"),
        (lambda X, y, q: (X, None, q), "y must be"),
        (lambda X, y, q: (X, y, q, q), "it is a tuple of 4; a batch is"),
        (lambda X, y, q: X, "it is a ndarray; a batch is"),
        (lambda X, y, q: {"data": X, "qid": q}, "it has no 'target'; a batch is"),
        (lambda X, y, q: {"data": X, "target": y, "qid": q, "sample_weight": -y}, ">= 0"),
        (lambda X, y, q: (X * 1e200, y, q), "overflow"),
    ],
)
def test_bad_batch_is_named(change, message):
    X, y, qid, _ = data(12)
    batches = list(cut(20, X, y, qid))
    batches[1] = change(*batches[1])
    refused(batches, f"^batch 2: .*{message}")


def test_first_batch_without_qid_second_with():
    X, y, qid, _ = data(12)
    refused(
        [(X[:9], y[:9]), (X[9:], y[9:], qid[9:])], "batch 2: it has a qid, and the first .*none"
    )


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ("train.txt", "To read a file: rankrls.datasets.iter_letor"),
        (np.ones((3, 3)), r"got a ndarray \(for one batch: \[batch\]\)"),
        (Bunch(data=1, target=2), r"for one batch: \[batch\]"),
        (7, "got a int"),
        ([], "no batch with rows"),
        ([(np.empty((0, 3)), np.empty(0))], "no batch with rows"),
    ],
)
def test_not_batches(batches, message):
    refused(batches, message)


def test_no_preference_in_any_batch():
    X = np.ones((6, 4))
    refused(
        [(X, np.ones(6), [1] * 3 + [2] * 3)], "no query has a pair .* 6 rows and 2 queries of 1 b"
    )
    refused([(X, np.ones(6))], "no query has a pair to learn from")
    refused([(X, np.c_[np.arange(6), np.ones(6)])], r"in output \(column\) 1 of y")


def test_an_error_while_reading_keeps_the_fitted_model():
    X, y, qid, _ = data(13)
    ranker = RankRLS().fit(X, y, qid=qid)
    coef = ranker.coef_

    def broken():
        yield X[:20, :3], y[:20], qid[:20]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        ranker.fit_stream(broken())
    assert ranker.coef_ is coef
    assert ranker.n_features_in_ == 4
    ranker.forget(X, y, qid=qid)


# ---------------------------------------------------------------- files, progress, memory


@pytest.mark.parametrize("compressed", [False, True])
def test_letor_files(tmp_path, compressed):
    X, y, qid, _ = data(14)
    qid = np.unique(qid, return_inverse=True)[1]
    path = tmp_path / "train.txt"
    dump_letor(X, y, path, qid=qid)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    streamed = RankRLS(solver="primal").fit_stream(iter_letor(path, rows=16))
    same(streamed, RankRLS(solver="primal").fit(X, y, qid=qid), X)
    # What is wrong in a file is told with its line, and nothing is left half done.
    good = path.read_bytes()
    path.write_bytes(good[:-9] if compressed else good + b"1 qid:99 1:x\n")
    what = r"\d+: the gzip data is truncated" if compressed else "61: .*'1:x'"
    message = rf"train\.txt:{what}"
    with pytest.raises(ValueError, match=message):
        RankRLS().fit_stream(iter_letor(path, rows=16, n_features=4))


def test_letor_file_without_qid_is_one_ranking(tmp_path):
    X, y, _, _ = data(15)
    dump_letor(X, y, tmp_path / "a.txt")
    same(RankRLS().fit_stream(iter_letor(tmp_path / "a.txt", rows=16)), RankRLS().fit(X, y), X)


def test_progress(capsys):
    X, y, qid, _ = data(16)
    RankRLS(verbose=1).fit_stream(cut(20, X, y, qid))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1].split(", ")[0] for line in lines[:3]] == [
        f"batch {number}: {20 * number} rows so far" for number in (1, 2, 3)
    ]
    assert "rows/s" in lines[0]


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
