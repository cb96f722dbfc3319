"""The support vector machine of pairs against a general minimiser over all kernel coefficients."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls.io import load_model, save_model
from rankrls.model_selection import relation_holdout_predict

RNG = np.random.default_rng(4)
X, Z = RNG.standard_normal((9, 2)), RNG.standard_normal((8, 3))
Y = np.sign(X @ RNG.standard_normal((2, 3)) @ Z.T + 1.5 * RNG.standard_normal((9, 8)))
SOME = np.where(RNG.random(Y.shape) < 0.6, Y, np.nan)


def naive(phi, y, alpha, offsets, weight=1.0):
    """Weights of features phi (n, d) and of free offsets (n, k), by L-BFGS."""
    d = phi.shape[1]
    columns = np.hstack([phi, offsets])

    def objective(w):
        violation = np.maximum(1 - y * (columns @ w), 0)
        gradient = -2 * columns.T @ (weight * violation * y)
        gradient[:d] += 2 * alpha * w[:d]
        return (weight * violation**2).sum() + alpha * w[:d] @ w[:d], gradient

    options = {"maxiter": 10**5, "maxfun": 10**5, "maxcor": 50, "ftol": 1e-18, "gtol": 1e-11}
    start = np.zeros(columns.shape[1])
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 30.0])
@pytest.mark.parametrize("fit_offsets", [False, True])
@pytest.mark.parametrize("labels", [Y, SOME], ids=["complete", "incomplete"])
def test_linear_kernels(alpha, fit_offsets, labels):
    rows, cols = np.nonzero(~np.isnan(labels))
    phi = (X[rows][:, :, None] * Z[cols][:, None, :]).reshape(len(rows), -1)
    offsets = np.ones((len(rows), int(fit_offsets)))
    w = naive(phi, labels[rows, cols], alpha, offsets)
    model = ConditionalRankRLS(alpha, loss="squared_hinge", fit_offsets=fit_offsets, tol=1e-10)
    model.fit(X, labels, Z)
    expected, got = np.hstack([phi, offsets]) @ w, model.predict(X, Z)[rows, cols]
    np.testing.assert_allclose(model.coef_.ravel(), w[:6], atol=2e-5)
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("solver", ["auto", "dual", "cg"])
def test_kernels_and_repeated_pairs(solver):
    rows, cols = np.nonzero(~np.isnan(SOME))
    repeats = np.where(np.arange(len(rows)) % 3 == 0, 2, 1)
    again = np.repeat(np.arange(len(rows)), repeats)
    values = (SOME[rows, cols][again], (rows[again], cols[again]))
    model = ConditionalRankRLS(0.2, kernel="rbf", loss="squared_hinge", solver=solver, tol=1e-10)
    model.fit(X, sparse.coo_array(values, shape=Y.shape), Z)
    K, G = model._rows.gram(), model._ranked.gram()
    gram = K[np.ix_(rows, rows)] * G[np.ix_(cols, cols)]
    values, vectors = np.linalg.eigh(gram)
    phi = vectors * np.sqrt(np.maximum(values, 0))
    w = naive(phi, SOME[rows, cols], 0.2, np.zeros((len(rows), 0)), repeats)
    np.testing.assert_allclose(model.predict(X, Z)[rows, cols], phi @ w, atol=2e-5)


def test_profiles_files_and_callbacks(tmp_path):
    model = ConditionalRankRLS(0.1, kernel=["rbf", "profile"], loss="squared_hinge").fit(X, SOME, Z)
    assert model.score(X, SOME, Z) > 0.9
    save_model(model, tmp_path / "svm.rankrls")
    loaded = load_model(tmp_path / "svm.rankrls")
    np.testing.assert_array_equal(loaded.predict(X, Z), model.predict(X, Z))


def test_refusals():
    svm = ConditionalRankRLS(loss="squared_hinge")
    with pytest.raises(ValueError, match=r"needs labels −1 and 1 \(or NaN\); got 3"):
        svm.fit(X, np.where(Y > 0, 3.0, -1.0), Z)
    both = sparse.coo_array(([1.0, -1.0, 1.0], ([0, 0, 1], [0, 0, 1])), shape=Y.shape)
    with pytest.raises(ValueError, match=r"one label for each pair; one has both"):
        svm.fit(X, both, Z)
    with pytest.raises(ValueError, match=r"loss='squared_hinge' is not for fit_offsets='rows'"):
        ConditionalRankRLS(loss="squared_hinge", fit_offsets="rows").fit(X, Y, Z)
    with pytest.raises(ValueError, match=r"is not for solver='closed'"):
        ConditionalRankRLS(loss="squared_hinge", solver="closed").fit(X, Y, Z)
    with pytest.raises(ValueError, match=r"a path of alphas is for loss='ranking'"):
        regularization_path(svm, X, Y, Z=Z, alphas=[1.0])
    with pytest.raises(ValueError, match=r"relation_holdout_predict is for loss='ranking'"):
        relation_holdout_predict(svm, X, Y, Z, leave_out="rows")
    with pytest.raises(ValueError, match=r"loss must be one of"):
        ConditionalRankRLSCV(loss="squared_hinge").fit(X, Y, Z)
    with pytest.raises(ValueError, match=r"uncertainties are there for .*a squared loss"):
        svm.fit(X, Y, Z).predict(X, Z, return_std=True)


def test_no_callback_and_no_two_step():
    ranker = ConditionalRankRLS(1.0, loss="squared_hinge")
    with pytest.raises(ValueError, match="takes no callback"):
        ranker.fit(X, SOME, Z, callback=print)
    with pytest.raises(ValueError, match="pairwise='two-step' is not for loss='squared_hinge'"):
        ranker.set_params(pairwise="two-step", alpha=(1.0, 1.0)).fit(X, Y, Z)
