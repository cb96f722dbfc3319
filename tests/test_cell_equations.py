"""Equations of incomplete relations, and what the shared conjugate gradients do for them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import oracles
import relation_cases as cases
from rankrls import ConditionalRankRLS, regularization_path
from rankrls.core.linalg.krylov import IterationOptions, MultiShiftCG, converge, stop_early
from rankrls.core.relations.cell_equations import (
    CellEquations,
    CompletedCells,
    SpectralEquations,
    spectra,
    use_spectra,
)
from rankrls.core.relations.edges import EdgeKernel
from rankrls.core.relations.labels import Observations
from rankrls.core.relations.sides import Side

LOSSES = (True, False)  # whether it is the ranking loss


def problem(kind, observed, sign, seed=0):
    rng = np.random.default_rng(seed)
    p, g = (7, 7) if sign else (7, 6)
    X, Z = cases.features(kind, p, rng), cases.features(kind, g, rng)
    rows = Side(X @ X.T)
    columns = rows if sign else Side(Z @ Z.T)
    ends = cases.edges(observed, p, g, rng)
    y = rng.standard_normal(len(ends[0])) + 1e3 * ends[0]  # offsets of rows
    return rows, columns, Observations(*ends, y, (p, g))


def function(rows, columns, A):
    return rows.K @ A @ columns.K


@pytest.mark.parametrize("sign", [0, 1, -1])
@pytest.mark.parametrize("ranking", LOSSES)
@pytest.mark.parametrize("observed", ["sparse", "multi", "no diagonal", "lonely rows"])
@pytest.mark.parametrize("kind", ["full", "low rank", "duplicates"])
def test_both_forms_have_the_dense_solution(kind, observed, ranking, sign):
    rows, columns, observations = problem(kind, observed, sign)
    options = IterationOptions(tol=1e-9, max_iter=5000)
    left, right = spectra(rows, columns, ranking=ranking, sign=sign)
    for alpha in (0.01, 1.0):
        expected = function(
            rows,
            columns,
            oracles.relation_coefficients(
                rows.K, columns.K, *observations.lists, alpha, ranking=ranking, sign=sign
            ),
        )
        scale = 1e-7 * np.abs(expected).max()
        cells = CellEquations(rows.K, columns.K, observations.cells, ranking=ranking, sign=sign)
        (x,), _ = converge([cells], np.array([alpha]), options)
        assert np.abs(function(rows, columns, cells.coefficients(x[0])) - expected).max() < scale
        spectral = SpectralEquations(
            left, right, observations.cells, alpha, ranking=ranking, sign=sign
        )
        (x,), _ = converge(
            [spectral], np.array([alpha]), options, shifts=np.array([spectral.shift])
        )
        A = left.vectors @ spectral.inner(x[0]) @ right.vectors.T
        assert np.abs(function(rows, columns, A) - expected).max() < scale


@pytest.mark.parametrize("sign", [0, 1, -1])
@pytest.mark.parametrize("ranking", LOSSES)
def test_products_are_symmetric_and_scaled(ranking, sign):
    """The matrix of the spectral form has a unit diagonal, and single precision is close to it."""
    rows, columns, observations = problem("full", "sparse", sign)
    left, right = spectra(rows, columns, ranking=ranking, sign=sign)
    equations = SpectralEquations(left, right, observations.cells, 0.1, ranking=ranking, sign=sign)
    eye = np.eye(len(equations.C))
    H = equations.G(eye) + equations.shift * eye
    if sign:  # acts on symmetric (antisymmetric) matrices
        r = len(left.values)
        swap = eye.reshape(r, r, -1).transpose(1, 0, 2).reshape(len(eye), -1)
        S = 0.5 * (eye + sign * swap)
        H = S @ H @ S
        assert np.linalg.eigvalsh(H).max() < 2.5
    else:
        assert np.allclose(H.diagonal(), 1.0, atol=1e-10)
    assert np.allclose(H, H.T, atol=1e-12)
    assert np.linalg.eigvalsh(H).min() > -1e-12
    V = np.random.default_rng(0).standard_normal((len(equations.C), 3))
    exact, rough = equations.G(V), equations.rough(V)
    assert rough.dtype == np.float64
    assert 0 < np.abs(exact - rough).max() < 1e-5 * np.abs(exact).max()
    assert equations.magnitude(V).shape == V.shape


def test_complete_relations_are_diagonal():
    rows, columns, _ = problem("full", "sparse", 0)
    rng = np.random.default_rng(0)
    observations = Observations.from_matrix(rng.standard_normal((7, 6)))
    for ranking in LOSSES:
        left, right = spectra(rows, columns, ranking=ranking, sign=0)
        equations = SpectralEquations(left, right, observations.cells, 0.1, ranking=ranking, sign=0)
        eye = np.eye(len(equations.C))
        assert np.allclose(equations.G(eye) + equations.shift * eye, eye, atol=1e-12)


def test_when_eigenvectors_are_used():
    rng = np.random.default_rng(0)
    K, X = np.eye(40), rng.standard_normal((40, 3))
    every = tuple(a.ravel() for a in np.indices((40, 40)))

    def use(part, left, right, n_alphas=1):
        chosen = rng.random(1600) < part
        ends = tuple(a[chosen] for a in every)
        cells = Observations(*ends, np.zeros(chosen.sum()), (40, 40)).cells
        return use_spectra(left, right, cells, n_alphas, ranking=True, sign=0)

    kernel, few = Side(K), Side(X @ X.T, X)
    assert use(0.5, kernel, kernel)
    assert not use(0.1, kernel, kernel)
    assert use(0.1, few, few)  # cheap, however few pairs are observed
    assert not use(0.1, few, kernel)
    indefinite = Side(np.diag(np.r_[-1.0, np.ones(39)]))
    assert not use(0.5, indefinite, kernel)
    with_identity = Side(K, floor=1.0)
    assert use(0.5, with_identity, with_identity, 2)
    assert not use(0.5, with_identity, with_identity, 3)  # which converge together over the cells


# ---------------------------------------------------------------------- the shared solvers


@pytest.mark.parametrize("sign", [0, 1])
def test_predictions_of_held_out_pairs_follow_the_iterates(sign):
    """By the products of the iteration itself, and by products of every iterate."""
    rows, columns, observations = problem("full", "sparse", sign)
    cells = observations.cells
    held = np.array([0, 3, 5, 5]), np.array([1, 1, 4, 2])
    equations = CellEquations(rows.K, columns.K, cells, ranking=True, sign=sign, held_out=held)
    seen = []
    options = IterationOptions(tol=1e-300, max_iter=6, patience=100)

    def score(predictions):
        seen.append(predictions[:, 0].copy())
        return 0.5 + len(seen) / 100  # always better: the last iterate is kept

    with pytest.warns(ConvergenceWarning, match="early stopping reached max_iter=6"):
        (x,), history = stop_early([equations], np.array([0.1]), options, equations, score, 1)
    assert history.best_iteration == 6
    kernel = EdgeKernel(rows.K, columns.K, (cells.rows, cells.cols), held, sign=sign)
    run = MultiShiftCG(equations.G, equations.C, np.array([0.1]), tol=1e-300)
    for predictions in seen:
        run.step()
        expected = kernel @ (equations.factor @ run.solution(0)[:, 0])
        assert np.allclose(predictions, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())
    assert np.allclose(x[0], run.solution(0))


class Rounded:
    """A diagonal system whose cheap products are rounded to ``digits``."""

    outputs, dtype, n_entries = np.zeros(1, dtype=int), np.dtype(float), 1

    def __init__(self, values, digits):
        self.values, self.digits = values[:, None], digits
        self.C = np.ones((len(values), 1))
        self.rank = len(values)
        self.calls = {"G": 0, "rough": 0}

    def G(self, V):
        self.calls["G"] += 1
        return self.values * V

    def rough(self, V):
        self.calls["rough"] += 1
        noise = np.random.default_rng(self.calls["rough"]).uniform(-1, 1, V.shape)
        return self.values * V * (1 + 10.0**-self.digits * noise)

    def diagonal(self):
        return np.ones(len(self.C))

    def magnitude(self, W):
        return np.abs(W)


def test_rough_products_that_do_not_help_are_given_up():
    system = Rounded(np.linspace(0.1, 1, 30), digits=0)
    (W,), _ = converge([system], np.array([0.5]), IterationOptions(tol=1e-9))
    assert np.allclose(W[0], system.C / (system.values + 0.5), rtol=1e-8)
    assert system.calls["G"] > 10


def test_shifts_take_the_place_of_alphas():
    system = Rounded(np.linspace(0.1, 1, 30), digits=7)
    (W,), _ = converge(
        [system], np.array([100.0]), IterationOptions(tol=1e-10), shifts=np.array([0.25])
    )
    assert np.allclose(W[0], system.C / (system.values + 0.25), rtol=1e-9)
    unfinished = IterationOptions(tol=1e-10, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="at alpha=100"):
        converge([system], np.array([100.0]), unfinished, shifts=np.array([0.25]))


SMOOTH = np.random.default_rng(8)


def smooth_problem(p=25, g=30, share=0.6, *, square=False, **options):
    """Labels that are interpolated at small alphas."""
    X, Z = SMOOTH.standard_normal((p, 8)), SMOOTH.standard_normal((g, 8))
    if square:
        Z = X
    Y = SMOOTH.standard_normal((p, len(Z)))
    if square:
        sign = {"symmetric": 1, "reciprocal": -1}[options["relation"]]
        Y = Y + sign * Y.T
    seen = SMOOTH.random(Y.shape) < share
    if square:
        seen = seen & seen.T
    Y[~seen] = np.nan
    return ConditionalRankRLS(kernel="rbf", **options), (X, Y, None if square else Z)


@pytest.mark.parametrize("share", [0.7, 0.15])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ranking"},
        {"loss": "regression"},
        {"loss": "regression", "fit_offsets": True},
        {"loss": "regression", "fit_offsets": "both"},
        {"loss": "ranking", "relation": "symmetric"},
        {"loss": "regression", "relation": "reciprocal"},
    ],
    ids=str,
)
def test_small_alphas_of_smooth_kernels_converge_within_the_default(options, share):
    ranker, (X, Y, Z) = smooth_problem(share=share, square="relation" in options, **options)
    for alpha in (2.0**-15, 2.0**-8, 1.0):
        ranker.set_params(alpha=alpha, solver="cg").fit(X, Y, Z)  # without a ConvergenceWarning
        got = ranker.predict(X, Z)
        expected = ranker.set_params(solver="dual").fit(X, Y, Z).predict(X, Z)
        error = np.abs(got - expected).max()
        assert error <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("repeated", [False, True])
def test_a_preconditioner_is_the_inverse_where_everything_is_observed(repeated):
    ranker, (X, Y, Z) = smooth_problem(share=1.1, loss="regression")
    labels = sparse.coo_array(Y)
    if repeated:
        labels = sparse.coo_array(
            (np.r_[labels.data, labels.data], [np.r_[k, k] for k in labels.coords]), Y.shape
        )
    problem = ranker._problem(ranker._read(X, labels, Z))
    spectra = [side.spectrum().range for side in problem.sides]
    cells = problem.observations.cells
    made = CompletedCells(*spectra, *problem.sides, cells, **problem.loss)
    v = SMOOTH.standard_normal(len(cells))
    np.testing.assert_allclose(made.inverse(0.1)(made.product(0.1)(v)), v, atol=1e-8)


def identity_problem(weight, **options):
    """Three in five pairs of 30 × 20 objects, smooth kernels beside identity kernels."""
    rng = np.random.default_rng(5)
    X, Z = rng.standard_normal((30, 2)), rng.standard_normal((20, 2))
    Y = np.sin(X[:, :1] + Z[:, 0]) + 0.1 * rng.standard_normal((30, 20))
    shares = [1 - weight, weight]
    weights = {"kernel_weights": shares, "object_kernel_weights": shares}
    if "relation" in options:
        Y = np.sin(X[:, :1] + X[:, 1]) + 0.1 * rng.standard_normal((30, 30))
        Y = Y + Y.T if options["relation"] == "symmetric" else Y - Y.T
        Z = None
        del weights["object_kernel_weights"]
    Y[rng.random(Y.shape) < 0.4] = np.nan
    return ConditionalRankRLS(kernel=["rbf", "identity"], **weights, **options), (X, Y, Z)


@pytest.mark.parametrize(
    ("weight", "alpha", "dtype"),
    [(0.3, 1e-3, np.float32), (3e-3, 1e-7, np.float64), (0.3, 1.0, None), (1e-4, 1e-3, None)],
)
def test_a_preconditioner_that_is_a_kronecker_product(weight, alpha, dtype):
    ranker, data = identity_problem(weight, loss="regression")
    problem = ranker._problem(ranker._read(*data))
    left, right = (side.spectrum() for side in problem.sides)
    cells = problem.observations.cells
    made = CompletedCells(left, right, *problem.sides, cells, **problem.loss)
    parts = made._separated(alpha)
    assert (None if parts is None else parts[0].dtype) == dtype
    if parts is not None:
        v = SMOOTH.standard_normal(len(cells))
        got = made.inverse(alpha)(v)
        D = 1.0 / (made.values + alpha)
        table = np.zeros(cells.shape)
        table[cells.rows, cells.cols] = v
        exact = (made.V @ (D * (made.V.T @ table @ made.U)) @ made.U.T)[cells.rows, cells.cols]
        assert 1 / 2.1 < (v @ got) / (v @ exact) < 1.01  # eigenvalues are at most 2 times smaller


@pytest.mark.parametrize("weight", [0.3, 0.1])
@pytest.mark.parametrize("alpha", [2.0**-15, 2.0**-6, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ranking"},
        {"loss": "regression"},
        {"loss": "regression", "fit_offsets": True},
        {"loss": "ranking", "fit_offsets": "columns"},
        {"loss": "regression", "relation": "symmetric"},
        {"loss": "ranking", "relation": "reciprocal"},
    ],
    ids=str,
)
def test_identity_kernels_converge_to_the_dense_solution(options, alpha, weight):
    ranker, (X, Y, Z) = identity_problem(weight, **options)
    if "relation" in options:  # pairs whose mirror image is unobserved converge slowly
        ranker.set_params(max_iter=1200)
    ranker.set_params(alpha=alpha, solver="cg", tol=1e-8).fit(X, Y, Z)
    got = ranker.predict(X, Z)
    expected = ranker.set_params(solver="dual").fit(X, Y, Z).predict(X, Z)
    np.testing.assert_allclose(got, expected, atol=1e-6 * np.abs(expected).max())


def test_a_path_is_solved_from_large_to_small_alphas():
    ranker, (X, Y, Z) = smooth_problem(loss="regression")
    alphas = [2.0**-12, 1.0, 2.0**-6, 64.0]
    path = regularization_path(ranker.set_params(solver="cg", tol=1e-8), X, Y, Z=Z, alphas=alphas)
    for k, alpha in enumerate(alphas):
        single = ranker.set_params(alpha=alpha, solver="dual").fit(X, Y, Z)
        np.testing.assert_allclose(
            path.predict(X, Z)[k], single.predict(X, Z), atol=1e-5 * np.nanmax(np.abs(Y))
        )


def test_what_cannot_converge_says_what_to_do():
    ranker, (X, Y, Z) = smooth_problem(loss="ranking", solver="cg", max_iter=3, alpha=1e-5)
    with pytest.warns(ConvergenceWarning, match=r"raise max_iter.*add 'identity' to the kernels"):
        ranker.fit(X, Y, Z)
