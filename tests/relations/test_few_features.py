"""Linear relations with few features: thin factors, sums over rows, products at observed pairs."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from rankrls import ConditionalRankRLS, regularization_path
from rankrls._relation_labels import FreeOffsets, Observations
from rankrls.core.relations.incomplete import SpectralEquations
from rankrls.core.relations.pairwise_kernels import RelationLoss
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.io import load_model, save_model

RNG = np.random.default_rng(3)
P, G = 40, 50
X, Z = RNG.standard_normal((P, 3)), RNG.standard_normal((G, 4)) + 1.0
Y = X @ RNG.standard_normal((3, 4)) @ Z.T + RNG.standard_normal((P, G))


def ridge(loss, alpha, labels=Y):
    """Weights of all products of features, by explicit least squares."""
    rows, cols = np.nonzero(~np.isnan(labels))
    phi, y = (X[rows, :, None] * Z[cols, None, :]).reshape(len(rows), -1), labels[rows, cols]
    if loss == "ranking":
        for row in np.unique(rows):
            phi[rows == row] -= phi[rows == row].mean(axis=0)
            y = np.where(rows == row, y - y[rows == row].mean(), y)
    return np.linalg.solve(phi.T @ phi + alpha * np.eye(12), phi.T @ y).reshape(3, 4)


@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_dual_coefficients_are_made_when_asked_for(loss, condition_on, tmp_path):
    labels = Y if condition_on == "rows" else Y.T
    objects = (X, Z) if condition_on == "rows" else (Z, X)
    model = ConditionalRankRLS(0.5, loss=loss, condition_on=condition_on)
    model.fit(objects[0], labels, objects[1])
    expected = model.predict(*objects)
    assert "dual_coef_" not in vars(model)
    weights = ridge(loss, 0.5)
    np.testing.assert_allclose(
        model.coef_, weights if condition_on == "rows" else weights.T, atol=1e-10
    )
    save_model(model, tmp_path / "before.rankrls")
    A = model.dual_coef_
    assert A.shape == labels.shape
    K, M = objects[0] @ objects[0].T, objects[1] @ objects[1].T
    got = K @ A @ M
    np.testing.assert_allclose(got, expected, atol=1e-9)
    save_model(model, tmp_path / "after.rankrls")
    assert (tmp_path / "before.rankrls").read_bytes() == (tmp_path / "after.rankrls").read_bytes()
    loaded = load_model(tmp_path / "after.rankrls")
    np.testing.assert_array_equal(loaded.dual_coef_, A)
    np.testing.assert_array_equal(loaded.predict(*objects), expected)
    path = regularization_path(model, objects[0], labels, Z=objects[1], alphas=[0.1, 0.5])
    np.testing.assert_allclose(path.dual_coef[1], A, atol=1e-12)
    np.testing.assert_allclose(path.predict(*objects)[1], expected, atol=1e-10)
    in_sparse = clone(model).fit(sparse.csr_array(objects[0]), labels, sparse.csr_array(objects[1]))
    np.testing.assert_allclose(in_sparse.coef_, model.coef_, atol=1e-10)
    again = model.fit(objects[0], 2 * labels, objects[1])
    np.testing.assert_allclose(again.dual_coef_, 2 * A, atol=1e-12)


def observed(share, square=False):
    shape = (P, P) if square else (P, G)
    rows, cols = np.nonzero(RNG.random(shape) < share)
    rows, cols = np.r_[rows, rows[:20]], np.r_[cols, cols[:20]]  # some pairs twice
    return Observations(rows, cols, RNG.standard_normal(len(rows)), shape)


OFFSETS = [FreeOffsets(), FreeOffsets(constant=True), FreeOffsets(rows=True)]


@pytest.mark.parametrize(
    ("ranking", "sign", "offsets"),
    [
        *product([False], [0], [*OFFSETS, FreeOffsets(columns=True), FreeOffsets(True, True)]),
        *product([False, True], [0, 1, -1], OFFSETS[:1]),
    ],
)
def test_products_over_few_and_many_pairs(ranking, sign, offsets):
    """The equations at observed pairs and over tables of all pairs."""
    side = Side(lambda: X @ X.T, X)
    other = side if sign else Side(lambda: Z @ Z.T, Z)
    loss = RelationLoss(ranking, sign, offsets)
    problem = RelationProblem(side, other, observed(0.2, square=sign != 0), loss)
    equations = SpectralEquations(*problem._spectra(), problem.observations.cells, loss)
    B = RNG.standard_normal(equations.values.shape)
    products = []
    for equations.sampled in (True, False):
        products.append(equations.product(B, 0.3))
    np.testing.assert_allclose(*products, atol=1e-10 * np.abs(products[0]).max())


def test_many_objects_need_no_kernel_matrix(monkeypatch):
    """Neither a kernel matrix nor a table of all pairs is made of few features and few pairs."""
    n = 60
    left, right = RNG.standard_normal((n, 2)), RNG.standard_normal((n, 2))
    rows, cols = RNG.integers(n, size=(2, 100))
    labels = sparse.coo_array((RNG.standard_normal(100), (rows, cols)), shape=(n, n))
    expected = ConditionalRankRLS(0.5, loss="regression", tol=1e-10).fit(left, labels, right)
    monkeypatch.setattr("rankrls.core.relations.sides.Side.K", property(lambda side: 1 / 0))
    monkeypatch.setattr("rankrls._resources.fits", lambda *shape, **_: max(shape) <= 4)
    for solver in ("cg", "primal"):
        model = ConditionalRankRLS(0.5, loss="regression", fit_offsets=True, solver=solver)
        assert model.fit(left, labels, right).solver_ == solver
        model.set_params(fit_offsets=False, tol=1e-10).fit(left, labels, right)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-7)
