"""Multi-shift conjugate gradients and threaded products against dense algebra."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls.core.linalg.krylov import IterationOptions, MultiShiftCG, converge
from rankrls.core.spaces import products as _products
from rankrls.core.spaces.products import Products

ALPHAS = 2.0 ** np.arange(-10, 11)


def problem(seed, n, k, *, decay=3.0, rank=None):
    """A symmetric positive semi-definite G of given rank and a right side in its range."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((2 * n, n)) * np.logspace(0, -decay, n)
    if rank is not None:
        B[:, rank:] = B[:, :rank] @ rng.standard_normal((rank, n - rank))
    return B.T @ B, B.T @ rng.standard_normal((2 * n, k))


def run(G, C, alphas, tol=1e-12, max_iter=5000, **options):
    cg = MultiShiftCG(lambda V: G @ V, C, alphas, tol=tol, **options)
    while cg.n_iter < max_iter and cg.step():
        pass
    return cg


def exact(G, C, alphas):
    return np.stack([np.linalg.solve(G + alpha * np.eye(len(G)), C) for alpha in alphas])


@pytest.mark.parametrize(
    ("n", "k", "alphas"),
    [
        (1, 1, ALPHAS),
        (7, 1, ALPHAS),
        (30, 3, ALPHAS),
        (20, 1, np.array([1e-300, 1.0])),
        (20, 1, np.array([1.0, 1e300])),
    ],
)
def test_every_alpha_is_solved_by_one_run(n, k, alphas):
    G, C = problem(0, n, k, decay=3.0 if alphas is ALPHAS else 0.5)
    with np.errstate(all="raise", under="ignore"):
        cg = run(G, C, alphas)
    assert cg.frozen.all()
    for s, wanted in enumerate(exact(G, C, alphas)):
        scale = np.abs(wanted).max()
        assert_allclose(cg.solutions()[s], wanted, atol=1e-7 * scale)
        assert_allclose(cg.solution(s), cg.solutions()[s], atol=1e-13 * scale)


def test_overflowing_numbers_are_refused():
    G, C = problem(8, 5, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        with pytest.raises(ValueError, match="overflow"):
            run(G * 1e300, C * 1e200, ALPHAS)
        with pytest.raises(ValueError, match="overflow"):
            run(np.full_like(G, np.inf), C, ALPHAS)


# ---------------------------------------------------------------------------- products with X


@pytest.fixture
def many_threads(monkeypatch):
    """Small matrices are worth a thread, too."""
    monkeypatch.setattr(_products, "ENTRIES_PER_THREAD", 10)


LAYOUTS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "csc_matrix": sparse.csc_matrix,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(layout, threads, dtype, many_threads):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((83, 31)) * (rng.random((83, 31)) < 0.3)).astype(dtype)
    X[10:30] = 0  # a block may be empty
    V, U = rng.standard_normal((31, 3)), rng.standard_normal((83, 3))
    tolerance = 1e-13 if dtype == np.float64 else 2e-5
    product = Products(LAYOUTS[layout](X), threads)
    for k in (1, 3):
        assert_allclose(product.matmat(V[:, :k]), X @ V[:, :k], atol=tolerance)
        assert_allclose(product.rmatmat(U[:, :k]), X.T @ U[:, :k], atol=tolerance)
    assert_allclose(product @ V[:, 0], X @ V[:, 0], atol=tolerance)
    assert_allclose(product.T @ U[:, 0], X.T @ U[:, 0], atol=tolerance)
    weight = rng.uniform(0, 2, 83)
    centred = X.astype(float) - weight @ X / weight.sum()
    wanted = weight @ centred**2
    squares = product.column_squares(weight)
    assert_allclose(squares, wanted, rtol=10 * tolerance, atol=tolerance)
    assert (product.column_squares(np.zeros(83)) == 0).all()


# ---------------------------------------------------------------------------- to a tolerance


class Noisy:
    """(G + alpha I) W = C with products that are worse than they pretend."""

    outputs, n_entries, rank = np.arange(1), 1, 40
    dtype = np.dtype(np.float64)

    def __init__(self, noise):
        self.matrix, self.C = problem(20, 40, 1, decay=1.0)
        self.noise, self.rng = noise, np.random.default_rng(0)

    def G(self, V):
        out = self.matrix @ V
        noise = self.noise * self.rng.standard_normal(out.shape)
        return out + noise * np.linalg.norm(out, axis=0) / np.sqrt(len(out))

    def diagonal(self):
        return np.diagonal(self.matrix)

    def magnitude(self, W):
        return np.abs(self.matrix) @ np.abs(W)


def true_residual(system, W, alpha):
    R = system.C - system.matrix @ W - alpha * W
    return float(np.linalg.norm(R) / np.linalg.norm(system.C))


@pytest.mark.parametrize("alphas", [[0.01], [0.01, 1.0]])
def test_the_true_residual_decides(alphas):
    """The recurrence of noisy products converges, but not to the solution."""
    system, alphas = Noisy(1e-5), np.array(alphas)
    recurrence = MultiShiftCG(system.G, system.C, alphas, tol=1e-9, bounded=False)
    while recurrence.n_iter < 500 and recurrence.step():
        pass
    assert recurrence.residual.max() <= 1e-9
    assert true_residual(system, recurrence.solution(0), 0.01) > 1e-7
    with pytest.warns(ConvergenceWarning, match="a relative residual of"):
        (W,), history = converge([system], alphas, IterationOptions(tol=1e-9))
    assert history.residual.max() > 1e-9
    assert_allclose(history.residual[0], true_residual(system, W[0], 0.01), rtol=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (W,), history = converge([Noisy(0.0)], alphas, IterationOptions(tol=1e-9))
    assert true_residual(system, W[0], 0.01) <= 1e-9
