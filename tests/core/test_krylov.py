"""Multi-shift conjugate gradients and threaded products against dense algebra."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from cases import COSTS, WEIGHTINGS, Case
from rankrls.core.linalg.krylov import IterationOptions, MultiShiftCG, converge
from rankrls.core.ridge.iterative import LinearSystem
from rankrls.core.spaces import products as _products
from rankrls.core.spaces.products import Offsets, Products

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


@pytest.mark.parametrize("n_iter", [1, 2, 15, 16, 17])
def test_iterates_are_those_of_plain_conjugate_gradients(n_iter):
    """Not only the limit: every alpha is where its own run of CG would be."""
    G, C = problem(1, 60, 2, decay=1.0)
    cg = run(G, C, ALPHAS, tol=1e-300, max_iter=n_iter)
    for s, alpha in enumerate(ALPHAS):
        alone = run(G, C, np.array([alpha]), tol=1e-300, max_iter=n_iter).solutions()[0]
        assert_allclose(cg.solutions()[s], alone, atol=1e-9 * np.abs(alone).max())


def test_plain_conjugate_gradients_by_the_book():
    G, C = problem(2, 40, 1, decay=1.0)
    x, r = np.zeros(40), C[:, 0].copy()
    p = r.copy()
    for _ in range(10):
        Ap = G @ p + 0.5 * p
        a = (r @ r) / (p @ Ap)
        x, new = x + a * p, r - a * Ap
        p, r = new + (new @ new) / (r @ r) * p, new
    ours = run(G, C, np.array([0.5]), tol=1e-300, max_iter=10)
    assert_allclose(ours.solutions()[0, :, 0], x, rtol=1e-10)


def test_singular_with_alpha_zero():
    """The right side lies in the range: the solution of least norm."""
    G, C = problem(7, 30, 1, decay=1.0, rank=12)
    cg = run(G, C, np.array([0.0, 1.0]), tol=1e-10)
    assert_allclose(cg.solutions()[0], np.linalg.pinv(G, rcond=1e-10) @ C, rtol=1e-5, atol=1e-8)


def test_overflowing_numbers_are_refused():
    G, C = problem(8, 5, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        with pytest.raises(ValueError, match="overflow"):
            run(G * 1e300, C * 1e200, ALPHAS)
        with pytest.raises(ValueError, match="overflow"):
            run(np.full_like(G, np.inf), C, ALPHAS)


def test_observed_functions_follow_the_iterates():
    G, C = problem(9, 25, 2)
    B = np.random.default_rng(0).standard_normal((4, 25))
    cg = MultiShiftCG(lambda V: G @ V, C, ALPHAS, tol=1e-300)
    view = cg.observe(lambda V: B @ V)
    for _ in range(20):
        cg.step()
        for s in (0, 10, 20):
            wanted = B @ cg.solution(s)
            assert_allclose(view.one(s) * cg.scale, wanted, atol=1e-12 * np.abs(wanted).max())


def diagonal_scaling(G, alpha):
    scale = 1 / (np.diagonal(G) + alpha)[:, None]
    return lambda R, columns: scale * R


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_preconditioned(alpha):
    """The iterates are those of conjugate gradients on D(G + alpha I)D u = D c, w = D u."""
    G, C = problem(10, 30, 2, decay=4.0)
    d = 1 / np.sqrt(np.diagonal(G) + alpha)
    scaled = d[:, None] * (G + alpha * np.eye(30)) * d
    for n_iter in (1, 5, 12):
        steps = {"tol": 1e-300, "max_iter": n_iter}
        ours = run(G, C, np.array([alpha]), precondition=diagonal_scaling(G, alpha), **steps)
        book = run(scaled, d[:, None] * C, np.zeros(1), **steps)
        wanted = d[:, None] * book.solutions()[0]
        assert_allclose(ours.solutions()[0], wanted, atol=1e-9 * np.abs(wanted).max())
        R = C - G @ wanted - alpha * wanted
        residual = np.linalg.norm(R, axis=0) / np.linalg.norm(C, axis=0)
        assert_allclose(ours.residual[0], residual, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("alpha", [1e-9, 1e-4, 1.0, 1e4])
def test_bounded_error(alpha, preconditioned):
    """Not only the residual: the iterates are within tol of the solution."""
    rng = np.random.default_rng(11)
    U, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    eigenvalues = np.where(np.arange(40) < 25, np.logspace(1, -2, 40), 0.0)
    G = (U * eigenvalues) @ U.T
    coordinates = rng.standard_normal((40, 2)) * np.sqrt(eigenvalues)[:, None]
    precondition = diagonal_scaling(G, alpha) if preconditioned else None
    cg = run(G, U @ coordinates, np.array([alpha]), tol=1e-5, precondition=precondition)
    assert cg.frozen.all()
    wanted = U @ (coordinates / (eigenvalues + alpha)[:, None])
    error = np.linalg.norm(cg.solutions()[0] - wanted, axis=0) / np.linalg.norm(wanted, axis=0)
    assert (error <= 1e-5).all()
    loose = run(G, U @ coordinates, np.array([alpha]), tol=1e-5, bounded=False)
    assert loose.n_iter <= cg.n_iter or preconditioned


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_offsets(layout, dtype, many_threads):
    """Columns far from zero are centred; constant ones become exactly zero."""
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((60, 7)) * (rng.random((60, 7)) < 0.4)).astype(dtype)
    X[:, 1] += 1e3
    X[:, 4] = 1e8 / 3
    X[:, 5] = 5.0 + rng.standard_normal(60)  # not far
    offsets = Offsets.of(LAYOUTS[layout](X))
    assert offsets.columns.tolist() == [1, 4]
    assert offsets.constant.tolist() == [False, True]
    eps = np.finfo(dtype).eps
    assert_allclose(offsets.lost, [eps * 1e3 / X[:, 1].astype(float).std(), 0], rtol=0.02)
    shift = np.zeros(7)
    shift[[1, 4]] = offsets.values
    centred = X.astype(float) - shift
    assert (centred[:, 4] == 0).all()
    V, U = rng.standard_normal((7, 3)), rng.standard_normal((60, 3))
    weight = rng.uniform(0, 2, 60)
    wanted = weight @ (centred - weight @ centred / weight.sum()) ** 2
    product = Products(offsets.subtract(LAYOUTS[layout](X)), 2)
    for k in (1, 3):
        assert_allclose(product.matmat(V[:, :k]), centred @ V[:, :k], atol=100 * eps)
        assert_allclose(product.rmatmat(U[:, :k]), centred.T @ U[:, :k], atol=300 * eps)
    assert_allclose(product.column_squares(weight), wanted, rtol=1e3 * eps, atol=1e3 * eps)


@pytest.mark.parametrize("layout", ["dense", "csr_array", "csc_array"])
def test_no_offsets(layout, monkeypatch):
    X = np.random.default_rng(3).standard_normal((30, 4))
    for ordinary in (X, X + 50.0, np.zeros((30, 4)), X[:0], X[:, :0]):
        assert Offsets.of(LAYOUTS[layout](ordinary)) is None
    far = LAYOUTS[layout](X + 1e9)
    monkeypatch.setattr("rankrls._resources.budget", lambda: 8 * 100)
    assert Offsets.of(far) is None


# ---------------------------------------------------------------------------- to a tolerance


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("n_pairs", [0, 12])
@pytest.mark.parametrize("layout", ["dense", "csr_array", "csc_array"])
def test_systems_are_solved(cost, weighting, n_pairs, layout):
    case = Case(3, cost=cost, query_weighting=weighting, n_pairs=n_pairs, weight="zeros")
    X = case.rng.standard_normal((case.m, 6))
    objective = case.system()
    L = objective.apply(np.eye(case.m))
    options = IterationOptions(tol=1e-12)
    product = Products(LAYOUTS[layout](X), 2)
    system = LinearSystem(product, objective)
    assert_allclose(system.G(np.eye(6)), X.T @ L @ X, atol=1e-9)
    for alphas in (np.array([0.3]), np.array([5.0, 0.01, 1.0])):
        (W,), history = converge([system], alphas, options)
        wanted = exact(X.T @ L @ X, X.T @ objective.r, alphas)
        assert_allclose(W, wanted, rtol=1e-8, atol=1e-9)
        assert (history.residual <= 1e-12).all()


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
