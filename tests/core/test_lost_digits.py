"""Lost digits are a warning, in fit and in every hold-out alike; right answers have none."""

import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest

import high_precision
from rankrls import RankRLS, RankRLSCV
from rankrls.model_selection import (
    holdout_judgements,
    leave_pair_out_predict,
    leave_query_out_predict,
)

QID = np.repeat(np.arange(6), 10)


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4))
    pairs = rng.integers(0, 60, (150, 2))
    return X, X[:, 0] + 0.3 * rng.standard_normal(60), pairs[pairs[:, 0] != pairs[:, 1]], rng


def outcome(call):
    """The result, and whether the call warned of lost digits."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = call()
    texts = [str(one.message) for one in told]
    return found, any("accurate to about" in text or "precision of" in text for text in texts)


CALLS = {
    "fit": lambda ranker, X, y, pairs: ranker.fit(X, y, qid=QID),
    "fit of pairs": lambda ranker, X, y, pairs: ranker.fit(X, pairs=pairs),
    "queries": lambda ranker, X, y, pairs: leave_query_out_predict(ranker, X, y, qid=QID),
    "judgements": lambda ranker, X, y, pairs: holdout_judgements(ranker, X, pairs),
    "items": lambda ranker, X, y, pairs: holdout_judgements(ranker, X, pairs, by="item"),
    "rows": lambda ranker, X, y, pairs: leave_pair_out_predict(ranker, X, y),
    "two classes": lambda ranker, X, y, pairs: leave_pair_out_predict(
        ranker.set_params(cost="unit"), X, y > 0
    ),
    "cv": lambda ranker, X, y, pairs: RankRLSCV(
        [1.0], kernel=ranker.kernel, degree=ranker.degree
    ).fit(X, y, qid=QID),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("scale", ["1e4 times", "1e4 added", "a column of 1e7"])
def test_polynomial_kernels(name, scale):
    X, y, pairs, _ = data()
    if scale == "a column of 1e7":
        bad = np.column_stack([X, np.full(60, 1e7)])
    else:
        bad = X * 1e4 if scale == "1e4 times" else X + 1e4
    ranker = RankRLS(kernel="poly", degree=3)
    assert not outcome(lambda: CALLS[name](ranker, X, y, pairs))[1]
    assert outcome(lambda: CALLS[name](ranker, bad, y, pairs))[1]


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e3, 1e4])
def test_cubic_kernel_is_right_or_told(scale):
    """Leave-query-out against 60 digits."""
    X, y, _, _ = data()
    X, out = scale * X, QID == 0
    with localcontext(prec=60):
        rows = high_precision.exact(X)

        def k(A, B):
            return ((A @ B.T) / Decimal(4) + Decimal(1)) ** 3

        L = np.where(QID[~out][:, None] == QID[~out], -1.0, 0.0)
        L = high_precision.exact(L + np.diag(np.full(50, 10.0)))
        system = L @ k(rows[~out], rows[~out])
        for i in range(50):
            system[i, i] += Decimal(1)
        a = high_precision.solve(system, L @ high_precision.exact(y[~out]))
        expected = (k(rows[out], rows[~out]) @ a).astype(float)
    found, lost = outcome(
        lambda: leave_query_out_predict(RankRLS(kernel="poly", degree=3), X, y, qid=QID)[out]
    )
    error = np.ptp(found - expected) / np.ptp(expected)
    assert lost == (scale > 1e2)
    assert lost or error < 1e-6


@pytest.mark.parametrize("share", [0.01, 0.3])
@pytest.mark.parametrize("ratio", [1e3, 1e8, 1e12, 1e14])
def test_weights_of_very_different_sizes(share, ratio):
    """Fits and hold-outs against weighted least squares by orthogonal rotations, or told."""
    X, _, pairs, rng = data()
    weight = np.where(rng.random(len(pairs)) < share, ratio, 1.0)
    weight[0] = ratio
    D = X[pairs[:, 0]] - X[pairs[:, 1]]

    def solution(kept):
        root = np.sqrt(weight[kept])
        rows = np.vstack([root[:, None] * D[kept], np.eye(4)])
        return np.linalg.lstsq(rows, np.append(root, np.zeros(4)), rcond=None)[0]

    model, lost = outcome(lambda: RankRLS().fit(X, pairs=pairs, pair_weight=weight))
    error = np.abs(model.coef_ - solution(np.arange(len(pairs)))).max()
    assert lost or error < 1e-5 * np.abs(model.coef_).max()
    folds = [np.flatnonzero(np.arange(len(pairs)) % 3 == k) for k in range(3)]
    held, told = outcome(
        lambda: holdout_judgements(
            RankRLS(), X, pairs, pair_weight=weight, by="fold", folds=[*folds]
        )
    )
    for fold in folds:
        expected = D[fold] @ solution(np.setdiff1d(np.arange(len(pairs)), fold))
        error = np.abs(held[fold] - expected).max()
        assert told or error < 1e-5 * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore:values of kernel")
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
def test_uncertainties_of_a_kernel_with_a_large_constant_are_finite(offset):
    X, y, _, _ = data()
    ranker = RankRLS(kernel="poly", degree=3).fit(X + offset, y, qid=QID)
    scores, std = ranker.predict(X[:5] + offset, return_std=True)
    assert np.isfinite(scores).all()
    assert np.isfinite(std).all()
    assert np.isfinite(ranker.log_marginal_likelihood())
    p = ranker.preference_proba(X[:5] + offset, X[5:10] + offset)
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_items_judged_once_need_no_refits():
    """Leaves of the graph of matches, in the terms of one-hot features and of a kernel."""
    rng = np.random.default_rng(0)
    hub = rng.integers(0, 40, (300, 2))
    leaves = np.column_stack([np.arange(40, 100), rng.integers(0, 40, 60)])
    pairs = np.vstack([hub[hub[:, 0] != hub[:, 1]], leaves])
    alphas = np.array([1e-5, 1e-3, 1.0])
    ranker = RankRLS()
    found = holdout_judgements(ranker, np.eye(100), pairs, alphas=alphas)
    kernel = holdout_judgements(RankRLS(kernel="rbf", gamma=1e3), np.eye(100), pairs, alphas=alphas)
    np.testing.assert_allclose(found, kernel, atol=1e-7)
    search = RankRLSCV(alphas, cv="leave-judgement-out").fit(np.eye(100), pairs=pairs)
    assert (np.asarray(search.cv_results_["n_refits"]) == 0).all()
