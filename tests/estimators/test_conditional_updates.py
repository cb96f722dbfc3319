"""partial_fit and forget of conditional rankers: the model of a fit to what is left."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls.io import load_model, save_model

P, G = 18, 14


@pytest.fixture(scope="module")
def data():
    """Wines, with offsets and a duplicate value, and labels with a large mean."""
    rng = np.random.default_rng(0)
    wines = load_wine().data
    X = wines[:: len(wines) // P][:P, :4] / wines[:, :4].std(axis=0)
    Z = wines[5 :: len(wines) // G][:G, 6:9] / wines[:, 6:9].std(axis=0)
    Y = np.sin(X[:, :1] * Z[:, 1]) + 0.3 * rng.standard_normal((len(X), len(Z))) + 100.0
    return X, Y, Z


def scores(ranker, X, Z=None):
    """Predictions, without the offsets of lists that rankings do not see."""
    values = ranker.predict(X, Z)
    if ranker.loss == "ranking":
        axis = 1 if ranker.condition_on == "rows" else 0
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def check(ranker, X, Y, Z, *, others, tol=1e-9):
    """That the model is that of a fit to X, Y, Z, for these objects and others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the fit, and of new objects
        fitted = clone(ranker).fit(X, Y, Z)
        wanted = scores(fitted, *others)
        got = scores(ranker, *others)
    assert ranker.n_edges_ == fitted.n_edges_
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tol * np.abs(wanted).max())
    if hasattr(fitted, "offset_"):
        np.testing.assert_allclose(ranker.offset_, fitted.offset_, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ranker.row_offsets_, fitted.row_offsets_, atol=1e-8)
        np.testing.assert_allclose(ranker.column_offsets_, fitted.column_offsets_, atol=1e-8)


MODELS = [
    {"kernel": "rbf"},
    {"kernel": "rbf", "loss": "regression", "fit_offsets": "columns", "condition_on": "columns"},
    {"kernel": ["rbf", "profile", "identity"], "loss": "regression"},
    {"kernel": "rbf", "pairwise": "cartesian", "loss": "regression"},
    {"kernel": "rbf", "pairwise": "two-step", "alpha": (0.5, 2.0)},
]


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_objects_and_labels_come_and_go(data, options):
    X, Y, Z = data
    whole = (X, Z)
    complete = options.get("pairwise") == "two-step"
    ranker = ConditionalRankRLS(**options).fit(X[:14], Y[:14, :12], Z[:12])
    ranker.partial_fit(X[14:15], Y[14:15, :12])  # a row, with the labels of all known columns
    check(ranker, X[:15], Y[:15, :12], Z[:12], others=whole)
    ranker.partial_fit(None, Y[:15, 12:13], Z[12:13])  # a column
    check(ranker, X[:15], Y[:15, :13], Z[:13], others=whole)
    ranker.forget(X[[3]])
    kept = np.delete(np.arange(15), 3)
    check(ranker, X[kept], Y[kept, :13], Z[:13], others=whole)
    ranker.forget(None, Z=Z[[0, 5]])
    columns = np.delete(np.arange(13), [0, 5])
    check(ranker, X[kept], Y[np.ix_(kept, columns)], Z[columns], others=whole)
    ranker.partial_fit(X[[3, 16]], Y[np.ix_([3, 16], columns)], Z[columns])  # one comes back
    kept = np.append(kept, [3, 16])
    check(ranker, X[kept], Y[np.ix_(kept, columns)], Z[columns], others=whole)
    if complete:
        return
    # Labels go, and one of them comes back with another value.
    known = Y[np.ix_(kept, columns)].copy()
    gone = np.full(known.shape, np.nan)
    gone[2, 3], gone[2, 4], gone[7, 0] = known[2, 3], known[2, 4], known[7, 0]
    ranker.forget(X[kept], gone, Z[columns])
    known[~np.isnan(gone)] = np.nan
    check(ranker, X[kept], known, Z[columns], others=whole, tol=1e-6)
    ranker.partial_fit(X[kept[[7]]], [[99.0]], Z[columns[[0]]])
    known[7, 0] = 99.0
    check(ranker, X[kept], known, Z[columns], others=whole, tol=1e-6)
    # A new row with two labels, while labels are missing.
    few = np.full((1, len(columns)), np.nan)
    few[0, [1, 4]] = Y[17, columns[[1, 4]]]
    ranker.partial_fit(X[[17]], few)
    known, kept = np.vstack([known, few]), np.append(kept, 17)
    check(ranker, X[kept], known, Z[columns], others=whole, tol=1e-6)


@pytest.mark.parametrize("relation", [None, "symmetric", "reciprocal"])
def test_one_kind_of_objects(data, relation):
    X, _, _ = data
    rng = np.random.default_rng(2)
    Y = rng.standard_normal((P, P))
    Y = {None: Y, "symmetric": Y + Y.T, "reciprocal": Y - Y.T}[relation]
    ranker = ConditionalRankRLS(0.5, kernel="rbf", relation=relation).fit(X[:15], Y[:15, :15])
    ranker.partial_fit(X[15:], Y[15:, 15:])  # a block of its own
    known = np.full((P, P), np.nan)
    known[:15, :15], known[15:, 15:] = Y[:15, :15], Y[15:, 15:]
    check(ranker, X, known, None, others=(X,), tol=1e-6)
    ranker.partial_fit(X[15:], Y[15:, :15], X[:15])
    known[15:, :15] = Y[15:, :15]
    check(ranker, X, known, None, others=(X,), tol=1e-6)
    ranker.forget(X[[0, 16]])
    kept = np.delete(np.arange(P), [0, 16])
    check(ranker, X[kept], known[np.ix_(kept, kept)], None, others=(X,), tol=1e-6)
    with pytest.raises(ValueError, match="pass X alone"):
        ranker.forget(None, Z=X[:1])
    with pytest.raises(ValueError, match="X is None"):
        ranker.partial_fit(None, Y)


def test_cross_validated_model_keeps_what_was_chosen(data):
    X, Y, Z = data
    ranker = ConditionalRankRLSCV(
        kernel=["rbf", "identity"], loss="regression", fit_offsets=True
    ).fit(X[:16], Y[:16], Z)
    alpha, weights = ranker.alpha_, ranker.kernel_weights_.copy()
    ranker.partial_fit(X[16:], Y[16:])
    assert ranker.alpha_ == alpha
    same = ConditionalRankRLS(
        alpha,
        kernel=["rbf", "identity"],
        kernel_weights=weights,
        object_kernel_weights=getattr(ranker, "object_kernel_weights_", None),
        loss="regression",
        fit_offsets=True,
    ).fit(X, Y, Z)
    np.testing.assert_allclose(ranker.predict(X, Z), same.predict(X, Z), rtol=1e-9)


def test_standard_deviations_and_names_follow(data):
    X, Y, Z = (pd.DataFrame(V, [f"{i}" for i in range(len(V))]).add_prefix("c") for V in data)
    Y.columns = Z.index
    ranker = ConditionalRankRLS(kernel="rbf", loss="regression").fit(X[:16], Y[:16], Z)
    ranker.predict(X, Z, return_std=True)  # is not kept
    ranker.partial_fit(X[16:], Y[16:].iloc[::-1, ::-1], Z).forget(X[:1], Y.iloc[:1, :2], Z[:2])
    known = Y.copy()
    known.iloc[0, :2] = np.nan
    for found, expected in zip(
        ranker.predict(X, Z, return_std=True),
        clone(ranker).fit(X, known, Z).predict(X, Z, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_copies_pickles_and_files(data, kernel, tmp_path):
    X, Y, Z = data
    rng = np.random.default_rng(5)
    if kernel == "linear":  # of many features, whose files have labels
        X, Z = rng.standard_normal((P, 30)), rng.standard_normal((G, 30))
    ranker = (
        ConditionalRankRLS(kernel=kernel).fit(X[:15], Y[:15], Z).partial_fit(X[15:16], Y[15:16])
    )
    save_model(ranker, tmp_path / "model.rankrls")
    copies = [pickle.loads(pickle.dumps(ranker)), load_model(tmp_path / "model.rankrls")]
    before = ranker.predict(X, Z)
    for copy in copies:
        copy.partial_fit(X[16:], Y[16:])
        check(copy, X, Y, Z, others=(X, Z))
    np.testing.assert_array_equal(ranker.predict(X, Z), before)


def test_file_of_a_model_of_few_features(tmp_path):
    rng = np.random.default_rng(6)
    X, Z, Y = rng.random((90, 2)), rng.random((80, 2)), rng.random((90, 80))
    ranker = ConditionalRankRLS().fit(X[:80], Y[:80], Z)
    save_model(ranker, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    with pytest.raises(ValueError, match="needs the labels of fit, which files of models of few"):
        loaded.partial_fit(X[80:], Y[80:])
    check(ranker.partial_fit(X[80:], Y[80:]), X, Y, Z, others=(X, Z))


def test_refusals_leave_the_model_as_it_was(data):
    X, Y, Z = data
    ranker = ConditionalRankRLS(kernel="rbf").fit(X[:16], Y[:16], Z)
    before = ranker.predict(X, Z)
    bad = [
        (
            lambda: ranker.partial_fit(X[:1], Y[:1]),
            r"14 of the pairs have a label already.*Y\[0, 0\]",
        ),
        (lambda: ranker.partial_fit(X[[1, 1]], Y[[1, 1]]), "rows 0 and 1 of X are the same object"),
        (lambda: ranker.partial_fit(X[16:], Y), r"Y has shape \(18, 14\) for 2 rows of X"),
        (lambda: ranker.partial_fit(X[16:], np.full((2, G), np.nan)), "Y has no label"),
        (lambda: ranker.forget(X[16:]), "row 0 of X is none of the objects"),
        (lambda: ranker.forget(X[15:17], Y[15:17]), "row 1 of X is none of the objects"),
        (lambda: ranker.forget(None), "pass X or Z"),
        (lambda: ranker.forget(X[:16]), "no object would be left of X"),
        (lambda: ranker.forget(X[:1], Y[:1] + 1), r"Y\[0, 0\] is .* but the model has learned"),
        (lambda: ranker.partial_fit(X[16:, :2], Y[16:]), "expecting 4 features"),
    ]
    for call, message in bad:
        with pytest.raises(ValueError, match=message):
            call()
        np.testing.assert_array_equal(ranker.predict(X, Z), before)
    ranker.forget(X[:1], Y[:1, :1], Z[:1])
    with pytest.raises(ValueError, match=r"Y\[0, 0\] has no label in the model"):
        ranker.forget(X[:1], Y[:1, :1], Z[:1])
    stopped = ConditionalRankRLS(kernel="rbf", early_stopping=True, random_state=0).fit(X, Y, Z)
    with pytest.raises(ValueError, match="early_stopping=True"):
        stopped.forget(X[:1])
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1))
    given = ConditionalRankRLS(kernel="precomputed", object_kernel="rbf")
    given.fit(K[:17, :17], Y[:17], Z)
    with pytest.raises(ValueError, match="objects of a precomputed kernel cannot be added or"):
        given.partial_fit(K[17:, :17], Y[17:])
    with pytest.raises(ValueError, match="objects of a precomputed kernel cannot be added or"):
        given.forget(K[:1, :17])
    given.forget(K[:1, :17], Y[:1, :1], Z[:1])  # a label
    assert given.n_edges_ == 17 * G - 1


def test_objects_that_are_alike(data):
    X, Y, Z = data
    X = X.copy()
    X[1] = X[0]
    ranker = ConditionalRankRLS(kernel="rbf").fit(X, Y, Z)
    with pytest.raises(ValueError, match="row 0 of X equals two objects of the model"):
        ranker.forget(X[:1])
    ranker.forget(None, Z=Z[:1])  # the rows are not asked for
    check(ranker, X, Y[:, 1:], Z[1:], others=(X, Z))


def test_several_labels_of_a_pair(data):
    X, Y, Z = data
    rows, cols = (a.ravel() for a in np.indices(Y.shape))
    twice = sparse.coo_array(
        (np.append(Y.ravel(), [3.0]), (np.append(rows, 0), np.append(cols, 0))), shape=Y.shape
    )
    ranker = ConditionalRankRLS(kernel="rbf").fit(X, twice, Z)
    with pytest.raises(ValueError, match=r"Y\[0, 0\] has 2 labels in the model"):
        ranker.forget(X[:1], Y[:1, :1], Z[:1])
    ranker.forget(X[:1])
    check(ranker, X[1:], Y[1:], Z, others=(X, Z))
