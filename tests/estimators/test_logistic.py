"""RankRLSCV(link="logit"): logistic regression on pairs, and how well its hold-outs approximate."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import RankRLSCV
from rankrls.io import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")


def judged(seed=0, n=30, m=300, n_features=4):
    """Items with heavy-tailed features, pairs by logistic choice, some ties and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2.5, size=(n, n_features))
    a = rng.integers(n, size=m)
    b = (a + rng.integers(1, n, size=m)) % n
    C = rng.standard_normal((m, 2))
    d = 0.5 * (X[a] - X[b]) @ rng.standard_normal(n_features) + C @ [0.5, 0.0]
    won = rng.random(m) < 1 / (1 + np.exp(-d))
    pairs = np.where(won[:, None], np.column_stack([a, b]), np.column_stack([b, a]))
    magnitude = np.where(rng.random(m) < 0.1, 0.0, rng.uniform(1, 3, m))
    given = {"magnitude": magnitude, "pair_weight": rng.uniform(0.5, 2.0, m)}
    return X, pairs, given, np.where(won[:, None], C, -C)


def logistic(features, given, alpha):
    """scikit-learn's coefficients: a tie is half a preference each way."""
    weight, tie = given["pair_weight"], given["magnitude"] == 0
    m = len(weight)
    model = LogisticRegression(C=1 / alpha, fit_intercept=False, tol=1e-12, max_iter=10_000)
    weights = np.concatenate([weight * np.where(tie, 0.5, 1.0), weight * np.where(tie, 0.5, 0.0)])
    y = np.repeat([1, 0], m)
    return model.fit(np.vstack([features, features]), y, sample_weight=weights).coef_[0]


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100.0])
def test_equals_logistic_regression(alpha, tmp_path):
    X, pairs, given, _ = judged()
    ranker = RankRLSCV([alpha], link="logit").fit(X, pairs=pairs, **given)
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    assert_allclose(ranker.coef_, logistic(D, given, alpha), atol=1e-7)
    # Laplace's approximation of the posterior.
    p = 1 / (1 + np.exp(-D @ ranker.coef_))
    H = D.T @ ((given["pair_weight"] * p * (1 - p))[:, None] * D) + alpha * np.eye(4)
    v = np.einsum("ij,ji->i", D[:5], np.linalg.solve(H, D[:5].T))
    z = (ranker.predict(X[pairs[:5, 0]]) - ranker.predict(X[pairs[:5, 1]])) / np.sqrt(v)
    found = ranker.preference_proba(X[pairs[:5, 0]], X[pairs[:5, 1]], noisy=False)
    assert_allclose(found, ndtr(z), atol=1e-6)
    save_model(ranker, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.link == "logit"
    assert_allclose(loaded.predict(X, return_std=True), ranker.predict(X, return_std=True))


def test_kernels_and_covariates():
    X, pairs, given, C = judged(1)
    ranker = RankRLSCV([1.0], link="logit").fit(X, pairs=pairs, pair_features=C, **given)
    scale = np.sqrt(np.mean(C**2, axis=0))
    D = np.hstack([X[pairs[:, 0]] - X[pairs[:, 1]], C / scale])
    expected = logistic(D, given, 1.0)
    assert_allclose(ranker.coef_, expected[:4], atol=1e-6)
    assert_allclose(ranker.pair_coef_ * scale, expected[4:], atol=1e-6)
    K = rbf_kernel(X, gamma=0.3)
    values, vectors = np.linalg.eigh(K)
    Z = vectors * np.sqrt(np.maximum(values, 0))
    w = logistic(Z[pairs[:, 0]] - Z[pairs[:, 1]], given, 0.1)
    for options, rows in (({"kernel": "rbf", "gamma": 0.3}, X), ({"kernel": "precomputed"}, K)):
        ranker = RankRLSCV([0.1], link="logit", **options).fit(rows, pairs=pairs, **given)
        f, g = ranker.predict(rows), Z @ w
        assert_allclose(f - f.mean(), g - g.mean(), atol=1e-6)


@pytest.mark.parametrize(("alpha", "furthest"), [(0.1, 0.05), (10.0, 0.01)])
def test_hold_outs_are_near_refits(alpha, furthest):
    """They are those of the last weighted problem: of differences, the error is a few percent."""
    X, pairs, given, _ = judged(2, m=80)
    ranker = RankRLSCV([alpha], link="logit", store_cv_predictions=True)
    found = ranker.fit(X, pairs=pairs, **given).cv_predictions_[0]
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    refitted = np.empty(80)
    for k in range(80):
        rest = {name: np.delete(values, k) for name, values in given.items()}
        refitted[k] = D[k] @ logistic(np.delete(D, k, axis=0), rest, alpha)
    in_sample = D @ ranker.coef_
    error = np.linalg.norm(found - refitted) / np.linalg.norm(refitted)
    assert error < furthest
    assert error < 0.5 * np.linalg.norm(in_sample - refitted) / np.linalg.norm(refitted)
    losses = [np.mean(np.log1p(np.exp(-d))) for d in (found, refitted)]
    assert losses[0] == pytest.approx(losses[1], rel=furthest)


def test_it_is_better_where_features_have_heavy_tails():
    losses = {"identity": [], "logit": []}
    for seed in range(4):
        X, pairs, given, _ = judged(seed + 10, n=120, m=600, n_features=8)
        train, test = pairs[:400], pairs[400:]
        part = {name: values[:400] for name, values in given.items()}
        part["magnitude"] = np.sign(part["magnitude"])
        for link in losses:
            ranker = RankRLSCV(link=link, scoring="log_loss").fit(X, pairs=train, **part)
            p = ranker.preference_proba(X[test[:, 0]], X[test[:, 1]])
            losses[link].append(-np.mean(np.log(p)))
    assert np.mean(losses["logit"]) < np.mean(losses["identity"])


def test_separable_pairs():
    """The steps stay bounded, and the ridge keeps the maximum finite."""
    X = np.arange(6.0)[:, None]
    pairs = [(j, i) for i in range(6) for j in range(i + 1, 6)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        ranker = RankRLSCV([1e-6, 1.0], link="logit").fit(X, pairs=pairs)
    assert ranker.best_score_ == 1


def test_what_is_refused():
    X, pairs, given, _ = judged(3)
    y = np.arange(30.0)
    for options, fit in (
        ({}, {"y": y}),
        ({}, {"y": y, "pairs": pairs}),
        ({"cost": "unit"}, {"pairs": pairs}),
        ({"early_stopping": True}, {"pairs": pairs}),
    ):
        with pytest.raises(ValueError, match="link='logit' is for given pairs without labels"):
            RankRLSCV(link="logit", **options).fit(X, **fit)
    with pytest.raises(ValueError, match="link must be one of 'identity', 'logit'"):
        RankRLSCV(link="probit").fit(X, pairs=pairs)
    ranker = RankRLSCV([1.0], link="logit").fit(X, pairs=pairs, **given)
    with pytest.raises(ValueError, match="other weights after every change"):
        ranker.partial_fit(X, pairs=pairs)
