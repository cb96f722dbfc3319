"""Standard deviations and probabilities of relations, against dense Gaussian processes."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import ConditionalRankRLS
from rankrls.io import load_model, save_model

ALPHA = 0.3


def data(observed, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((7, 2)), rng.standard_normal((5, 3))
    Y = rng.standard_normal((7, 5)) + 2
    if observed == "incomplete":
        Y[rng.random(Y.shape) < 0.3] = np.nan
    if observed == "edges":  # some pairs several times
        rows, cols = rng.integers(0, 7, 40), rng.integers(0, 5, 40)
        Y = sparse.coo_array((rng.standard_normal(40), (rows, cols)), shape=(7, 5))
    if observed == "twice":
        rows, cols = (np.tile(part.ravel(), 2) for part in np.indices((7, 5)))
        Y = sparse.coo_array((rng.standard_normal(70), (rows, cols)), shape=(7, 5))
    return X, Y, Z


def ends(Y):
    if sparse.issparse(Y):
        return Y.row, Y.col, Y.data
    rows, cols = np.nonzero(~np.isnan(Y))
    return rows, cols, Y[rows, cols]


def dense(K, G, prior, left, right, Y, loss, condition_on, offset, contrast=False):
    """Posterior covariance of f (and the constant) at cells with given kernel values.

    A huge prior variance stands for the flat prior of offsets.
    """
    rows, cols, y = ends(Y)
    huge = 1e7
    S = K[np.ix_(rows, rows)] * G[np.ix_(cols, cols)] + ALPHA * np.eye(len(y))
    cross = left[:, None, rows] * right[None][:, :, cols]
    if loss == "ranking":
        lists = rows if condition_on == "rows" else cols
        S += huge * (lists[:, None] == lists)
    if offset:
        S += huge
        cross = cross + huge * (not contrast)
        prior = prior + huge * (not contrast)
    flat = cross.reshape(-1, len(y))
    mean = flat @ np.linalg.solve(S, y)
    variance = prior.ravel() - np.einsum("ij,ij->i", flat, np.linalg.solve(S, flat.T).T)
    return mean.reshape(prior.shape), variance.reshape(prior.shape)


@pytest.mark.parametrize("observed", ["complete", "incomplete", "edges", "twice"])
@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("fit_offsets", [False, True])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_standard_deviations(observed, loss, fit_offsets, condition_on):
    X, Y, Z = data(observed)
    model = ConditionalRankRLS(
        ALPHA, kernel="rbf", object_kernel="linear", loss=loss, fit_offsets=fit_offsets,
        condition_on=condition_on,
    ).fit(X, Y, Z)  # fmt: skip
    rng = np.random.default_rng(1)
    A, B = (
        np.vstack([X[:2], rng.standard_normal((3, 2))]),
        np.vstack([Z[3], rng.standard_normal(3)]),
    )
    offset = fit_offsets and loss == "regression"
    K, G = rbf_kernel(X), Z @ Z.T
    left, right = rbf_kernel(A, X), B @ Z.T
    prior = np.outer(np.ones(5), (B**2).sum(axis=1))
    mean, variance = dense(K, G, prior, left, right, Y, loss, condition_on, offset)
    scores, std = model.predict(A, B, return_std=True)
    assert np.array_equal(scores, model.predict(A, B))
    assert np.allclose(std**2, variance, atol=2e-6)
    if loss == "regression":
        assert np.allclose(scores, mean, atol=1e-5)
    # Two ranked objects for every conditioning object.
    if condition_on == "rows":
        proba = model.preference_proba(A, B[:1], B[1:])
        contrast = (right[:1] - right[1:], ((B[:1] - B[1:]) ** 2).sum(axis=1))
        points = (left, contrast[0]), np.outer(np.ones(5), contrast[1])
        difference = scores[:, :1] - scores[:, 1:]
    else:
        proba = model.preference_proba(B, A[:2], A[2:4])
        contrast = left[:2] - left[2:4], 2 - 2 * rbf_kernel(A[:2], A[2:4]).diagonal()
        points = (contrast[0], right), np.outer(contrast[1], (B**2).sum(axis=1))
        difference = scores[:2] - scores[2:4]
    _, variance = dense(
        K, G, points[1], *points[0], Y, loss, condition_on, offset, contrast=True
    )  # fmt: skip
    expected = norm.cdf(difference / np.sqrt(variance))
    assert np.allclose(proba, expected if condition_on == "rows" else expected.T, atol=1e-5)


@pytest.mark.parametrize("complete", [True, False])
def test_several_kernels(complete, tmp_path):
    X, Y, Z = data("complete" if complete else "incomplete")
    kernel = ["rbf", "identity", "profile", "constant"]
    model = ConditionalRankRLS(ALPHA, kernel=kernel, loss="regression").fit(X, Y, Z)
    rows, columns = model._rows, model._columns
    K, G = rows.values(rows.new(X)), columns.values(columns.new(Z))
    new = X[:1] + 0.1
    left = np.vstack([K[2:4], rows.values(rows.new(new))])
    prior = np.outer(np.append(K.diagonal()[2:4], 1.0), G.diagonal())
    _, variance = dense(K, G, prior, left, G, Y, "regression", "rows", False)
    points = np.vstack([X[2:4], new]), Z
    assert np.allclose(model.predict(*points, return_std=True)[1] ** 2, variance, atol=1e-9)
    assert np.allclose(model.preference_proba(X, Z[:1], Z[:1]), 0.5)
    file = tmp_path / "model.rankrls"
    save_model(model, file)
    assert np.array_equal(
        load_model(file).predict(*points, return_std=True)[1],
        model.predict(*points, return_std=True)[1],
    )


def test_refusals():
    X, Y, Z = data("complete")
    with pytest.raises(ValueError, match="without offsets of rows or columns"):
        ConditionalRankRLS(loss="regression", fit_offsets="both").fit(X, Y, Z).predict(
            X, Z, return_std=True
        )
    with pytest.raises(ValueError, match="without symmetry"):
        ConditionalRankRLS(relation="symmetric").fit(X, X @ X.T).predict(X, return_std=True)
    rng = np.random.default_rng(0)
    many = np.where(rng.random((80, 60)) < 0.8, rng.standard_normal((80, 60)), np.nan)
    model = ConditionalRankRLS().fit(
        rng.standard_normal((80, 2)), many, rng.standard_normal((60, 2))
    )
    with pytest.raises(ValueError, match="at most 3000 observed pairs"):
        model.predict(np.zeros((1, 2)), np.zeros((1, 2)), return_std=True)
    with pytest.raises(ValueError, match="compared row by row"):
        model.preference_proba(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((2, 2)))


@pytest.mark.parametrize("observed", ["complete", "incomplete"])
def test_known_and_new_objects_of_precomputed_kernels(observed):
    X, Y, Z = data(observed)
    rng = np.random.default_rng(1)
    new_X, new_Z = rng.standard_normal((3, 2)), rng.standard_normal((4, 3))
    new_X[1] = X[2]  # a known object
    options = {"loss": "regression", "alpha": ALPHA}
    named = ConditionalRankRLS(kernel="rbf", gamma=0.5, **options).fit(X, Y, Z)
    K, G = rbf_kernel(X, gamma=0.5), rbf_kernel(Z, gamma=0.5)
    given = ConditionalRankRLS(kernel="precomputed", **options).fit(K, Y, G)
    values = [
        np.hstack([rbf_kernel(new, old, gamma=0.5), rbf_kernel(new, gamma=0.5)])
        for new, old in ((new_X, X), (new_Z, Z))
    ]
    expected = named.predict(new_X, new_Z, return_std=True)
    for found in (values, [pd.DataFrame(part) for part in values]):
        result = given.predict(*found, return_std=True)
        np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="row 0 of X is none of the training objects"):
        given.predict(values[0][:, : len(X)], values[1], return_std=True)
