"""Offsets of labels: every solver and hold-out against dense systems with unpenalised offsets."""

import itertools
import warnings

import numpy as np
import pytest

import relation_cases as cases
from rankrls import ConditionalRankRLS, regularization_path
from rankrls import _relation_labels as offsets
from rankrls._relation_labels import (
    Cells,
    FreeOffsets,
    Observations,
    TableOffsets,
)
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.pairwise_kernels import RelationLoss
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.io import load_model, save_model

KINDS = [FreeOffsets(*map(bool, flags)) for flags in itertools.product((0, 1), repeat=3)]
ALPHAS = (1e-3, 1.0, 1e3)


def dense_model(K, G, rows, cols, y, alpha, free):
    """f at all pairs without offsets, by the dense system of kernel and offsets."""
    design = [np.empty((len(y), 0))]
    if free.constant:
        design.append(np.ones((len(y), 1)))
    if free.rows:
        design.append((rows[:, None] == np.unique(rows)).astype(float))
    if free.columns:
        design.append((cols[:, None] == np.unique(cols)).astype(float))
    T = np.hstack(design)
    if T.shape[1]:
        left, size, _ = np.linalg.svd(T, full_matrices=False)
        T = left[:, size > 1e-9 * size[0]]
    k = T.shape[1]
    S = K[np.ix_(rows, rows)] * G[np.ix_(cols, cols)] + alpha * np.eye(len(y))
    system = np.block([[S, T], [T.T, np.zeros((k, k))]])
    a = np.linalg.solve(system, np.concatenate([y, np.zeros(k)]))[: len(y)]
    return (K[:, rows] * a) @ G[cols]


@pytest.mark.parametrize("offsets", KINDS)
@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("observed", ["complete", "sparse", "multi", "lonely rows"])
@pytest.mark.parametrize("linear", [False, True])
def test_solvers_agree_with_the_dense_system(offsets, ranking, observed, linear):
    rng = np.random.default_rng(0)
    p, g = 7, 5
    X = rng.standard_normal((p, 3 if linear else 9)) + 2
    Z = rng.standard_normal((g, 2 if linear else 7)) - 1
    K, G = X @ X.T, Z @ Z.T
    rows, cols = cases.edges(observed, p, g, rng)
    y = rng.standard_normal(len(rows)) + 5
    free = RelationLoss(ranking, offsets=offsets).free
    every = tuple(part.ravel() for part in np.indices((p, g)))
    sides = (Side(K, X), Side(G, Z)) if linear else (Side(K), Side(G))
    observations = Observations(rows, cols, y, (p, g))
    problem = RelationProblem(*sides, observations, RelationLoss(ranking, offsets=offsets))
    for alpha in ALPHAS:
        expected = dense_model(K, G, rows, cols, y, alpha, free)
        for solver in ("auto", "cg", "dual", "primal", "closed"):
            if solver == "primal" and (not linear or free.columns):
                continue
            if solver == "closed" and problem.observations.block(ranking=problem.free.rows) is None:
                continue
            options = IterationOptions(tol=1e-10, max_iter=2000)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="conjugate gradients")
                model = problem.solve(np.array([alpha]), solver, options)
            f = model.predict(sides, *every, offsets=False).reshape(p, g)
            assert np.abs(f - expected).max() <= 1e-6 * np.abs(expected).max()
            residual = y - model.predict(sides, rows, cols)[0]
            if not ranking and free.constant:
                assert abs(residual.sum()) < 1e-7
            if not ranking and free.rows:
                assert np.abs(np.bincount(rows, residual)).max() < 1e-7
            if not ranking and free.columns:
                assert np.abs(np.bincount(cols, residual)).max() < 1e-7


@pytest.mark.parametrize("fit_offsets", [True, "rows", "columns", "both"])
def test_known_and_new_objects(fit_offsets, tmp_path):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((6, 3)), rng.standard_normal((5, 2))
    Y = rng.standard_normal((6, 5)) + 3 * np.arange(6)[:, None] + np.arange(5)
    model = ConditionalRankRLS(1e9, loss="regression", fit_offsets=fit_offsets).fit(X, Y, Z)
    mean = Y.mean()
    new = mean + np.zeros((6, 5))
    if fit_offsets in ("rows", "both"):
        new += Y.mean(axis=1, keepdims=True) - mean
    if fit_offsets in ("columns", "both"):
        new += Y.mean(axis=0) - mean
    everything = model.predict(X, Z)
    assert np.allclose(everything, new, atol=1e-5)
    assert np.allclose(model.predict(X[[3, 1]], Z[[0, 4]]), new[np.ix_([3, 1], [0, 4])], atol=1e-5)
    assert np.allclose(model.predict_edges(X, Z, [3, 1], [0, 4]), new[[3, 1], [0, 4]], atol=1e-5)
    assert np.allclose(model.predict(X + 1, Z + 1), mean, atol=1e-5)
    path = regularization_path(
        ConditionalRankRLS(loss="regression", fit_offsets=fit_offsets), X, Y, Z=Z, alphas=[1.0, 1e9]
    )
    assert np.allclose(path.predict(X, Z)[1], everything)
    file = tmp_path / "model.rankrls"
    save_model(model, file)
    assert np.array_equal(load_model(file).predict(X, Z), everything)


def test_refusals():
    X, Y = np.eye(4), np.arange(16.0).reshape(4, 4)
    with pytest.raises(ValueError, match="fit_offsets must be"):
        ConditionalRankRLS(fit_offsets="row").fit(X, Y)
    with pytest.raises(ValueError, match="is not for relation='symmetric'"):
        ConditionalRankRLS(fit_offsets=True, relation="symmetric").fit(X, Y + Y.T)
    with pytest.raises(ValueError, match="no offsets of ranked objects"):
        ConditionalRankRLS(fit_offsets="columns", solver="primal").fit(X, Y)
    with pytest.raises(ValueError, match="is not for early_stopping=True"):
        ConditionalRankRLS(fit_offsets="columns", early_stopping=True).fit(X, Y)


@pytest.mark.parametrize("shape", [(9, 7), (7, 9)])
@pytest.mark.parametrize("kind", ["dense", "sparse", "parts", "isolated", "tree", "unequal"])
def test_offsets_of_both_sides_are_those_of_least_squares(shape, kind, monkeypatch):
    monkeypatch.setattr(offsets, "DENSE", 1 if kind == "sparse" else 20)
    rng = np.random.default_rng(0)
    W = (rng.random(shape) < 0.8) * rng.integers(1, 4, shape).astype(float)
    if kind == "sparse":
        W *= rng.random(shape) < 0.5
    if kind == "parts":
        W[:4, 3:], W[4:, :3] = 0.0, 0.0
    if kind == "isolated":
        W[2], W[:, 5] = 0.0, 0.0
    if kind == "tree":
        W[:] = 0.0
        W[np.arange(min(shape)), np.arange(min(shape))] = 1.0
        W[0] = 1.0
    if kind == "unequal":
        W *= 10.0 ** rng.integers(-4, 5, shape)
    rows, cols = np.nonzero(W)
    weight = W[rows, cols]
    y = 1e4 + rng.standard_normal(len(rows))
    cells = Cells(rows, cols, y, weight, shape)
    best = TableOffsets(cells, FreeOffsets(rows=True, columns=True))
    fitted = best.fit(cells, y).at(rows, cols)
    T = np.hstack([rows[:, None] == np.arange(shape[0]), cols[:, None] == np.arange(shape[1])])
    root = np.sqrt(weight)
    expected = T @ np.linalg.lstsq(root[:, None] * T, root * y, rcond=1e-13)[0]
    assert np.abs(fitted - expected).max() < 1e-13 * 1e4 * (1e5 if kind == "unequal" else 100)
