"""Singular value decompositions of features, for columns of any scale, against 80 digits."""

from decimal import localcontext

import numpy as np
import pytest

import high_precision as exact
from rankrls.core.linalg.feature_svd import column_norms, column_spread, feature_svd

ALPHAS = (1e-6, 1.0, 1e6)


def ridge_weights(X, y, alpha):
    """Xᵀ(XXᵀ + alpha I)⁻¹ y."""
    with localcontext(prec=exact.DIGITS):
        X, y = exact.exact(X), exact.exact(y)
        K = X @ X.T
        for i in range(len(K)):
            K[i, i] += exact.exact([alpha])[0]
        return (X.T @ exact.solve(K, y)).astype(float)


def features(kind, rng):
    """Features whose columns have very different scales, or depend on each other."""
    if kind == "tall":
        return rng.standard_normal((15, 6)) * rng.permutation(np.logspace(-12, 12, 6))
    if kind == "wide":
        return rng.standard_normal((6, 11)) * rng.permutation(np.logspace(-12, 12, 11))
    if kind == "one large":
        return rng.standard_normal((15, 5)) * np.array([1, 1e9, 1, 1, 1])
    if kind == "plain":
        return rng.standard_normal((15, 5))
    base = rng.integers(-3, 4, (12, 4)) @ rng.integers(-2, 3, (4, 9))  # rank four, exactly
    return base * 2.0 ** rng.integers(-40, 40, 9)


KINDS = ("tall", "wide", "one large", "plain", "low rank")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_decomposition(kind, seed):
    X = features(kind, np.random.default_rng(seed))
    svd = feature_svd(X)
    V, s, P = svd.vectors, svd.singular, svd.weights
    r = len(s)
    assert r == (4 if kind == "low rank" else min(X.shape))
    assert np.abs(V.T @ V - np.eye(r)).max() < 1e-13
    assert (np.diff(s) <= 0).all()
    norms = column_norms(X)
    # Every column to its own digits: X = V diag(s²) Pᵀ.
    rest = np.abs(X - (V * s**2) @ P.T).max(axis=0)
    assert (rest <= 1e-13 * np.where(norms > 0, norms, 1)).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_ridge_weights_have_their_digits(kind, seed):
    """Also those of columns 10²⁴ times smaller than others, each relative to itself."""
    rng = np.random.default_rng(seed)
    X = features(kind, rng)
    y = rng.standard_normal(len(X))
    svd = feature_svd(X)
    for alpha in ALPHAS:
        filters = svd.singular**2 / (svd.singular**2 + alpha)
        found = svd.weights @ (filters * (svd.vectors.T @ y))
        assert np.allclose(found, ridge_weights(X, y, alpha), rtol=1e-9, atol=0)


def test_columns_of_zeros_and_no_columns():
    X = np.array([[1e9, 0.0, 1.0], [0.0, 0.0, 1.0], [1e9, 0.0, -1.0]])
    svd = feature_svd(X)
    assert len(svd.singular) == 2
    assert np.array_equal(svd.weights[1], [0.0, 0.0])
    for empty in (np.zeros((3, 2)), np.zeros((3, 0))):
        svd = feature_svd(empty)
        assert svd.vectors.shape == (3, 0)
        assert svd.weights.shape == (empty.shape[1], 0)
    with pytest.raises(ValueError, match="features overflow; scale"):
        feature_svd(np.full((2, 2), 1.7e308))


def test_norms_and_spread():
    X = np.array([[3e200, 0.0, 1e-200], [4e200, 0.0, 0.0]])
    assert np.allclose(column_norms(X), [5e200, 0.0, 1e-200], rtol=1e-15)
    assert np.isclose(column_spread(np.array([2.0, 0.0, 8.0])), 4.0)
    assert column_spread(np.zeros(2)) == 1.0


def test_what_is_dropped_is_told():
    """A column that depends on another one is left out up to the rounding of its numbers."""
    a = np.random.default_rng(0).standard_normal(9)
    X = np.column_stack([1e12 * a, 3e12 * a, np.ones(9)])
    svd = feature_svd(X)
    assert len(svd.singular) == 2
    assert 1e-4 < svd.dropped < 1
    assert feature_svd(X[:, [0, 2]]).dropped == 0.0
