"""Precomputed kernel values with basis vectors only, (m, b), against the whole kernel matrix."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import RankRLS, RankRLSCV, RankSVM
from rankrls.io import load_model, save_model
from rankrls.model_selection import (
    holdout_predict,
    leave_query_out_predict,
)

RNG = np.random.default_rng(0)
M = 60
X = RNG.standard_normal((M, 3))
X[5] = X[4]  # two equal basis vectors, of which one is dropped
Y = np.round(X @ [1.0, -2.0, 0.5] + RNG.standard_normal(M))
QID = RNG.integers(0, 8, M)
BASIS = np.array([4, 17, 3, 5, 40, 22, 8, 9, 55])
K = rbf_kernel(X, gamma=0.3)
X_NEW = RNG.standard_normal((7, 3))
NEW = rbf_kernel(X_NEW, X, gamma=0.3)
BLOCK, NEW_BLOCK = K[:, BASIS], NEW[:, BASIS]
OPTIONS = {"kernel": "precomputed", "basis": BASIS}
FOLDS = [np.arange(7), np.arange(10, 30)]


def refit(ranker, rows, held, **options):
    """A model of the kernel matrix of ``rows``, with the basis vectors among them."""
    staying = np.searchsorted(rows, np.intersect1d(BASIS, rows))
    model = RankRLS(ranker.alpha, kernel="precomputed", basis=staying, cost=ranker.cost)
    model.fit(K[np.ix_(rows, rows)], Y[rows], qid=QID[rows], **options)
    return model.predict(K[np.ix_(held, rows)])


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("make", [RankRLS, RankSVM])
def test_fit_and_predict(make, alpha):
    whole = make(alpha, **OPTIONS).fit(K, Y, qid=QID)
    block = make(alpha, **OPTIONS).fit(BLOCK, Y, qid=QID)
    assert block.n_features_in_ == len(BASIS)
    np.testing.assert_array_equal(block.basis_indices_, BASIS)
    assert_allclose(block.predict(NEW_BLOCK), whole.predict(NEW), rtol=1e-12)
    assert_allclose(block.dual_coef_, whole.dual_coef_, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("cost", ["magnitude", "unit"])
def test_hold_outs(alpha, cost):
    ranker = RankRLS(alpha, cost=cost, **OPTIONS)
    queries = leave_query_out_predict(ranker, BLOCK, Y, qid=QID)
    assert_allclose(queries, leave_query_out_predict(ranker, K, Y, qid=QID), rtol=1e-12)
    for q in (0, QID[4]):
        held, rest = np.flatnonzero(q == QID), np.flatnonzero(q != QID)
        difference = queries[held] - refit(ranker, rest, held)
        assert np.ptp(difference) < 1e-8 * max(np.ptp(queries[held]), 1e-12)
    block, whole = (holdout_predict(ranker, X, Y, FOLDS, qid=QID) for X in (BLOCK, K))
    for got, wanted, held in zip(block, whole, FOLDS, strict=True):
        assert_allclose(got, wanted, rtol=1e-12)
        own = refit(ranker, np.setdiff1d(np.arange(M), held), held)
        assert_allclose(got, own, rtol=1e-7, atol=1e-8 * np.abs(own).max())


def test_batches_and_basis_vectors_that_are_no_training_rows():
    expected = RankRLS(**OPTIONS).fit(K, Y, qid=QID).predict(NEW)
    first = np.flatnonzero(np.isin(QID, QID[BASIS]))
    rest = np.setdiff1d(np.arange(M), first)
    assert len(rest)
    ranker = RankRLS(kernel="precomputed", basis=np.searchsorted(first, BASIS))
    ranker.partial_fit(BLOCK[first], Y[first], qid=QID[first])
    without = ranker.predict(NEW_BLOCK)
    ranker.partial_fit(BLOCK[rest], Y[rest], qid=QID[rest])
    assert_allclose(ranker.predict(NEW_BLOCK), expected, rtol=1e-9)
    ranker.forget(BLOCK[rest], Y[rest], qid=QID[rest])
    assert_allclose(ranker.predict(NEW_BLOCK), without, rtol=1e-8, atol=1e-10)

    order = np.argsort(QID, kind="stable")
    parts = [(BLOCK[rows], Y[rows], QID[rows]) for rows in (order[:25], order[25:])]
    gram = BLOCK[BASIS]
    for make in (RankRLS, RankRLSCV):
        ranker = make(kernel="precomputed", solver="nystroem")
        ranker.fit_stream(parts, basis_rows=gram)
        alpha = getattr(ranker, "alpha_", 1.0)
        own = RankRLS(alpha, **OPTIONS).fit(K, Y, qid=QID).predict(NEW)
        assert_allclose(ranker.predict(NEW_BLOCK), own, rtol=1e-9)

    # Rows of the basis vectors that have queries of their own, and so no pair.
    stacked = np.vstack([BLOCK, gram])
    queries = np.concatenate([QID, 100 + np.arange(len(BASIS))])
    labels = np.concatenate([Y, np.zeros(len(BASIS))])
    basis = M + np.arange(len(BASIS))
    ranker = RankRLS(kernel="precomputed", basis=basis).fit(stacked, labels, qid=queries)
    assert_allclose(ranker.predict(NEW_BLOCK), expected, rtol=1e-10)


def test_files_names_and_reports(tmp_path):
    for make in (RankRLS, RankRLSCV, RankSVM):
        ranker = make(**OPTIONS).fit(BLOCK, Y, qid=QID)
        save_model(ranker, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(NEW_BLOCK), ranker.predict(NEW_BLOCK))
        with pytest.raises(ValueError, match="60 features"):
            loaded.predict(NEW)
    names = [f"d{i}" for i in range(M)]
    frame = pd.DataFrame(K, names, names).iloc[:, BASIS]
    ranker = RankRLS(**OPTIONS).fit(frame, Y, qid=QID)
    new = pd.DataFrame(NEW_BLOCK, columns=frame.columns)
    expected = RankRLS(**OPTIONS).fit(K, Y, qid=QID).predict(NEW)
    assert_allclose(ranker.predict(new), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="feature names should match"):
        ranker.predict(new.iloc[:, ::-1])
    with pytest.raises(ValueError, match="the rows basis of X in another order"):
        RankRLS(**OPTIONS).fit(frame.iloc[:, ::-1], Y)
    with pytest.raises(ValueError, match="different names"):
        RankRLS(**OPTIONS).fit(frame.rename(columns={"d4": "d6"}), Y)
    numbered = pd.DataFrame(K).iloc[:, BASIS]  # whose columns are numbers of rows
    ranker = RankRLS(**OPTIONS).fit(numbered, Y, qid=QID)
    with pytest.raises(ValueError, match="another order"):
        ranker.predict(pd.DataFrame(NEW).iloc[:, BASIS[::-1]])
    with pytest.raises(ValueError, match="another order"):
        RankRLS(**OPTIONS).fit(numbered.iloc[:, ::-1], Y)
    found = numbered.index.get_indexer(numbered.columns)
    np.testing.assert_array_equal(found, BASIS)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (BLOCK, {"basis": BASIS[:-1]}, "9 columns for 8 basis vectors"),
        (BLOCK, {"basis": 9}, r"square .*\(60, 9\).* set basis to the row numbers"),
        (BLOCK, {"solver": "nystroem"}, "set basis to the row numbers"),
        (BLOCK, {}, "set basis to the row numbers"),
        (BLOCK, {"basis": BASIS[::-1]}, r"X\[basis\].*not symmetric.*Column j"),
        (BLOCK, {"basis": BASIS, "solver": "dual"}, "basis belongs to"),
        (BLOCK, {"basis": BASIS + 50}, "rows are numbered 0 to 59"),
        (-BLOCK, {"basis": BASIS}, "not positive semi-definite"),
    ],
)
@pytest.mark.parametrize("make", [RankRLS, RankRLSCV, RankSVM])
def test_errors(make, data, options, message):
    with pytest.raises(ValueError, match=message):
        make(kernel="precomputed", **options).fit(data, Y)


def test_a_basis_may_stay():
    """With keep_basis the features are fixed, so that hold-outs are those of a linear model."""
    rng = np.random.default_rng(3)
    rows, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    qid, basis = np.arange(40) % 6, [0, 7, 9]
    K = rbf_kernel(rows, rows[basis], gamma=0.3)
    features = K @ np.linalg.inv(np.linalg.cholesky(K[basis])).T
    ranker = RankRLS(kernel="rbf", gamma=0.3, basis=basis)
    expected = leave_query_out_predict(RankRLS(), features, y, qid=qid)
    folds = [np.flatnonzero(qid == query) for query in range(6)]
    for keep in (True, False):
        held = leave_query_out_predict(ranker, rows, y, qid=qid, keep_basis=keep)
        parts = holdout_predict(ranker, rows, y, folds, qid=qid, keep_basis=keep)
        for fold, part in zip(folds, parts, strict=True):
            np.testing.assert_allclose(np.diff(part), np.diff(held[fold]), atol=1e-9)
        off = max(np.ptp((held - expected)[fold]) for fold in folds)
        assert (off < 1e-9) == keep
