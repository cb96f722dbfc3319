"""pairwise="pairs": a weighted sum of products of kernels, one of each side at a time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, RankRLS
from rankrls.io import load_model, save_model
from rankrls.model_selection import relation_holdout_predict

wines = load_wine().data / load_wine().data.std(axis=0)
X, Z = wines[::15, :4], wines[3::20, 6:9]
P, G = len(X), len(Z)
rng = np.random.default_rng(0)
Y = np.sin(X[:, :1] * Z[:, 1]) + 0.3 * rng.standard_normal((P, G)) + 5.0
SPARSE = np.where(rng.random((P, G)) < 0.7, Y, np.nan)
WEIGHTS = [0.5, 2.0, 0.25]
OPTIONS = {
    "kernel": ["rbf", "identity", "polynomial"],
    "object_kernel": ["laplacian", "rbf", "identity"],
    "kernel_weights": WEIGHTS,
    "pairwise": "pairs",
}


def kernels(A, B):
    """Values of the kernels of X and of Z, with mean k(x, x) = 1 over the training objects."""
    size = polynomial_kernel(X).diagonal().mean()
    same = (A[0][:, None] == X).all(-1).astype(float), (B[:, None] == Z).all(-1).astype(float)
    left = [rbf_kernel(A[0], X), same[0], polynomial_kernel(A[0], X) / size]
    right = [laplacian_kernel(B, Z), rbf_kernel(B, Z), same[1]]
    return left, right


def dense(first=(X,), second=Z):
    """Σ w K ⊗ G between pairs of some objects and all training pairs."""
    left, right = kernels(first, second)
    return sum(w * np.kron(K, L) for w, K, L in zip(WEIGHTS, left, right, strict=True))


@pytest.mark.parametrize("labels", ["complete", "sparse"])
@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("solver", ["auto", "dual", "cg"])
def test_against_the_dense_kernel(solver, loss, labels):
    T = Y if labels == "complete" else SPARSE
    seen = ~np.isnan(T.ravel())
    rows = np.repeat(np.arange(P), G)[seen]
    options = {"max_iter": 2000, "tol": 1e-12} if solver == "cg" else {}
    ranker = ConditionalRankRLS(0.7, loss=loss, solver=solver, **OPTIONS, **options).fit(X, T, Z)
    gram = dense()
    if loss == "ranking":
        oracle = RankRLS(0.7, kernel="precomputed", query_weighting="size")
        oracle.fit(gram[np.ix_(seen, seen)], T.ravel()[seen], qid=rows)
        a = oracle.dual_coef_
    else:
        n = int(seen.sum())
        a = np.linalg.solve(gram[np.ix_(seen, seen)] + 0.7 * np.eye(n), T.ravel()[seen])
    new = X[:3] + 0.1, Z[:4] + 0.2
    for objects in ((X, Z), new):
        wanted = (dense((objects[0],), objects[1])[:, seen] @ a).reshape(len(objects[0]), -1)
        got = ranker.predict(*objects)
        if loss == "ranking":
            wanted, got = (f - f.mean(axis=1, keepdims=True) for f in (wanted, got))
        np.testing.assert_allclose(got, wanted, atol=1e-8 * np.abs(wanted).max())
    np.testing.assert_allclose(
        ranker.predict_edges(*new, [0, 2, 1], [3, 0, 0]),
        ranker.predict(*new)[[0, 2, 1], [3, 0, 0]],
    )


def test_weights_are_chosen_and_held_out_predictions_are_refits(tmp_path):
    # k(x, x) = 1, whichever objects there are: a fold divides kernels by the same mean.
    kernel = ["rbf", "identity", "laplacian"]
    options = OPTIONS | {"kernel": kernel, "kernel_weights": None, "loss": "regression"}
    search = ConditionalRankRLSCV(cv="edges", n_folds=3, random_state=0, **options).fit(X, Y, Z)
    assert search.kernel_weights_.shape == (3,)
    same = ConditionalRankRLS(search.alpha_, **options | {"kernel_weights": search.kernel_weights_})
    np.testing.assert_allclose(search.predict(X, Z), same.fit(X, Y, Z).predict(X, Z), rtol=1e-9)
    held = relation_holdout_predict(same, X, Y, Z, leave_out="rows")
    refit = clone(same).fit(X[1:], Y[1:], Z).predict(X[:1], Z)
    np.testing.assert_allclose(held[0], refit[0], rtol=1e-7)
    save_model(search, tmp_path / "model.rankrls")
    loaded = load_model(tmp_path / "model.rankrls")
    np.testing.assert_allclose(loaded.predict(X, Z), search.predict(X, Z), rtol=1e-12)
    loaded.forget(X[:1])
    assert loaded.predict(X, Z).shape == (P, G)


def test_refusals():
    for options, message in [
        ({"kernel": "rbf"}, "needs lists of kernels of one length"),
        ({"kernel": ["rbf"], "object_kernel": ["rbf", "identity"]}, "needs lists of kernels"),
        ({"kernel": ["rbf", "profile"]}, "'profile'. is not for pairwise='pairs'"),
        ({"kernel": ["rbf", "identity"], "object_kernel_weights": [1, 2]}, "is not for pairwise"),
    ]:
        with pytest.raises(ValueError, match=message):
            ConditionalRankRLS(pairwise="pairs", **options).fit(X, Y, Z)
    with pytest.raises(ValueError, match="not for relation='symmetric'"):
        ConditionalRankRLS(pairwise="pairs", kernel=["rbf", "identity"], relation="symmetric").fit(
            X, np.eye(P)
        )
