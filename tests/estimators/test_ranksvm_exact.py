"""RankSVM, alone and along a path, against the exact minimum: small problems of every ugly kind."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import oracles
from rankrls import RankSVM, regularization_path
from rankrls.exceptions import FeatureScaleWarning

TOL = 1e-4

#: alpha as a part of the largest eigenvalue of Σ c (x_h − x_j)(x_h − x_j)ᵀ.
RATIOS = np.array([10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6])

KERNELS = {
    "primal": {"solver": "primal"},
    "dual": {"solver": "dual"},
    "precomputed": {"kernel": "precomputed"},
    "rbf": {"kernel": "rbf", "gamma": 1.0},
    "smooth": {"kernel": "rbf", "gamma": 1e-3},
    "poly": {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1},
    "nystroem": {"kernel": "rbf", "gamma": 1.0},
}


@dataclass
class Ugly:
    """A small problem: ties, duplicates, singular kernels, weights of all sizes, pairs."""

    X: Any
    y: Any
    fit: dict
    options: dict
    edges: list
    K: Any
    features: Any  # K = ΦΦᵀ

    @classmethod
    def of(cls, seed):
        rng = np.random.default_rng(seed)
        m, n = rng.integers(3, 15), rng.integers(1, 7)
        X = rng.standard_normal((m, n))
        kinds = "normal integer binary duplicates one sparse eye scales offset"
        kind = rng.choice(kinds.split())
        if kind == "integer":
            X = rng.integers(-2, 3, (m, n)).astype(float)
        elif kind == "binary":
            X = rng.integers(0, 2, (m, n)).astype(float)
        elif kind == "duplicates":
            X = X[rng.integers(0, max(2, m // 2), m)]
        elif kind == "one":
            X = rng.standard_normal((m, 1)) @ rng.standard_normal((1, n))
        elif kind == "sparse":
            X *= rng.random((m, n)) < 0.3
        elif kind == "eye":
            X = np.eye(m)[:, : max(n, 2)]
        elif kind == "scales":
            X *= 10.0 ** rng.integers(-3, 4, n)
        elif kind == "offset":
            X[:, 0] = 5.0
        y = rng.standard_normal(m)
        if rng.random() < 0.7:
            y = rng.integers(0, rng.choice([2, 3, 10]), m).astype(float)
        elif rng.random() < 0.5:
            y = X[:, 0].copy()
        qid = rng.integers(0, 3, m) if rng.random() < 0.4 else np.zeros(m, int)
        weight = pairs = pair_weight = None
        draw = rng.random()
        if draw < 0.15:
            weight = rng.integers(0, 4, m).astype(float)
        elif draw < 0.3:
            weight = 10.0 ** rng.uniform(-3, 3, m)
        if rng.random() < 0.35:
            head = rng.integers(0, m, rng.integers(1, 8))
            pairs = np.stack([head, (head + rng.integers(1, m, len(head))) % m], axis=1)
            pair_weight = 10.0 ** rng.uniform(-3, 3, len(head))
        weighting = str(rng.choice(["pair", "size", "query"]))
        name = str(rng.choice(list(KERNELS)))
        edges = oracles.edges_of_scores(
            y, qid, weight, cost="unit", ties="drop", query_weighting=weighting
        )
        if pairs is not None:
            edges += oracles.edges_of_pairs(pairs, None, pair_weight, cost="unit")
        options = {"query_weighting": weighting, "tol": TOL, **KERNELS[name]}
        fit = {"qid": qid, "sample_weight": weight, "pairs": pairs, "pair_weight": pair_weight}
        if name in ("rbf", "smooth", "nystroem"):
            X = X / max(1.0, np.abs(X).max() / 100)  # distances of larger numbers lose digits
            K = rbf_kernel(X, gamma=options["gamma"])
        elif name == "poly":
            X = X / max(1.0, np.abs(X).max() / 100)
            K = polynomial_kernel(X, gamma=0.5, degree=2, coef0=1)
        else:
            K = X @ X.T
        if name == "nystroem":
            options["basis"] = np.arange(m)
        features = X - X.mean(axis=0)
        if name in ("rbf", "smooth", "nystroem", "poly"):
            values, V = np.linalg.eigh(K)
            kept = values > 1e-13 * values[-1]
            features = V[:, kept] * np.sqrt(values[kept])
        return cls(K if name == "precomputed" else X, y, fit, options, edges, K, features)

    @property
    def top(self):
        D = np.array([self.features[i] - self.features[j] for i, j, _, _ in self.edges])
        c = np.array([ww for _, _, ww, _ in self.edges])
        top = np.linalg.eigvalsh((D.T * c) @ D)[-1]
        # Pairs of equal rows alone, or a kernel matrix that is constant up to rounding.
        return top if top > 1e-9 * c.max() * np.abs(self.K).max() else 0.0

    def objective(self, alpha, shape, coef, dual_coef):
        """Of the coefficients as they were stored."""
        if self.options.get("solver") == "primal":
            w = coef.astype(np.longdouble)
            f, norm2 = self.X @ w, w @ w
        else:
            a = dual_coef.astype(np.longdouble)
            f = self.K @ a
            norm2 = a @ f
        return float(oracles.hinge(self.edges, f, shape=shape)[0] + alpha * norm2)


def silently(work, *args, **options):
    """Its result, and whether it said that it did not converge; any other warning is an error."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FeatureScaleWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        result = work(*args, **options)
    return result, bool(found)


#: Found by a longer search: division by zero, wrong objectives and wrong certificates.
FOUND = {
    "hinge": [
        *(22, 29, 82, 160, 162, 178, 209, 256, 287, 356, 389),
        *(448, 467, 520, 575, 614, 616, 617, 650, 663, 671),
    ],
    "squared": [162, 356],
}


@pytest.mark.parametrize("shape", ["hinge", "squared"])
@pytest.mark.parametrize("block", range(8))
def test_exact_minimum(shape, block):
    """The gap bounds the distance from the minimum; no warning means that it is within tol."""
    n_checked = n_warned = 0
    for seed in [*range(5 * block, 5 * block + 5), *FOUND[shape][block::8]]:
        case = Ugly.of(seed)
        if not case.edges or not case.top > 0:
            continue
        alphas = case.top * RATIOS
        options = {**case.options, "loss": {"squared": "squared_hinge"}.get(shape, shape)}
        path, path_warned = silently(
            regularization_path, RankSVM(**options), case.X, case.y, alphas=alphas, **case.fit
        )
        for index, alpha in enumerate(alphas):
            lower, upper = oracles.hinge_minimum(case.edges, case.features, alpha, shape=shape)
            if upper - lower > 1e-8 * upper:
                continue
            ranker, warned = silently(RankSVM(alpha, **options).fit, case.X, case.y, **case.fit)
            alone = case.objective(
                alpha, shape, getattr(ranker, "coef_", None), getattr(ranker, "dual_coef_", None)
            )
            excess = (alone - lower) / upper
            assert excess <= max(ranker.gap_, 1e-7) * 1.001 + 1e-6, (seed, alpha)
            n_checked, n_warned = n_checked + 1, n_warned + warned
            if not warned:
                assert ranker.gap_ <= TOL
                assert abs(ranker.objective_ - alone) <= 1e-5 * upper, (seed, alpha)
            if not path_warned:
                coef = None if path.coef is None else path.coef[index]
                dual_coef = None if path.dual_coef is None else path.dual_coef[index]
                along = case.objective(alpha, shape, coef, dual_coef)
                assert along - lower <= (TOL + 1e-6) * upper, (seed, alpha)
    assert n_checked >= 16
    assert n_warned <= 0.1 * n_checked


def scaled(scale, n=3, m=60, seed=0):
    """One feature of another scale that tells nothing."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((m, n)), scale * rng.standard_normal(m)])
    y = X[:, 0] + 0.3 * rng.standard_normal(m)
    qid = np.arange(m) // 10
    options = {"cost": "unit", "ties": "drop", "query_weighting": "pair"}
    return X, y, qid, oracles.edges_of_scores(y, qid, **options)


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("shape", ["hinge", "squared"])
@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e3, 1e9])
def test_one_feature_of_another_scale(scale, solver, shape, form):
    """Right, or a warning where X Xᵀ loses the digits of the other features."""
    X, y, qid, edges = scaled(scale)
    rows = sparse.csr_array(X) if form == "sparse" else X
    for alpha in (1.0, 1e-4):
        ranker = RankSVM(alpha, solver=solver, loss={"squared": "squared_hinge"}.get(shape, shape))
        ranker, warned = silently(ranker.fit, rows, y, qid=qid)
        lower, upper = oracles.hinge_minimum(edges, X, alpha, shape=shape)
        assert upper - lower <= 1e-9 * upper
        assert warned == (ranker.gap_ > TOL) == (solver == "dual" and scale == 1e9)
        if not warned:
            w = ranker.coef_.astype(np.longdouble)
            ours = oracles.hinge(edges, X @ w, shape=shape)[0] + alpha * (w @ w)
            np.testing.assert_allclose(ours, lower, rtol=2 * TOL)
            assert ranker.score(X, y, qid=qid) > 0.9


def test_a_kernel_matrix_that_has_lost_its_digits():
    """Constant but for 1e-12: what is left is rounding errors. Said, and not called indefinite."""
    rng = np.random.default_rng(0)
    X, y = 1e-6 * rng.standard_normal((30, 2)), rng.standard_normal(30)
    with pytest.warns(ConvergenceWarning, match="rounding errors of the kernel matrix") as found:
        ranker = RankSVM(1e-18, kernel="rbf", gamma=1.0).fit(X, y)
    assert found[0].filename == __file__
    assert ranker.gap_ > TOL
    with pytest.warns(ConvergenceWarning, match="rounding errors of the kernel matrix"):
        RankSVM(1e-18, kernel="rbf", gamma=1.0, basis=list(range(30))).fit(X, y)
    fine = RankSVM(1e-9, kernel="rbf", gamma=1.0).fit(X, y)
    assert fine.gap_ <= TOL


@pytest.mark.parametrize("options", [{}, {"solver": "dual"}, {"kernel": "rbf"}])
def test_only_the_given_pairs_have_weight(options):
    rng = np.random.default_rng(1)
    X, y, pairs = rng.standard_normal((10, 3)), rng.integers(0, 3, 10), [[0, 1], [2, 3], [5, 4]]
    ranker = RankSVM(**options).fit(X, y, pairs=pairs, sample_weight=np.zeros(10))
    alone = RankSVM(**options).fit(X, pairs=pairs)
    assert ranker.n_pairs_ == 3
    np.testing.assert_array_equal(ranker.predict(X), alone.predict(X))
    one = RankSVM(**options).fit(X, y, pairs=pairs, sample_weight=np.eye(10)[0])
    np.testing.assert_array_equal(one.predict(X), alone.predict(X))
    several = RankSVM(**options).fit(X, np.stack([y, np.ones(10)], axis=1), pairs=pairs)
    np.testing.assert_allclose(several.objective_[1], alone.objective_, rtol=2 * TOL)


def test_weights_whose_squares_vanish():
    """Sums of squares of the gradient would underflow, and certify anything: refused."""
    rng = np.random.default_rng(2)
    X, y, weight = rng.standard_normal((12, 3)), rng.integers(0, 3, 12), rng.uniform(1, 2, 12)
    plain = RankSVM(query_weighting="size").fit(X, y, sample_weight=weight)
    for size in (1e-40, 1e40):
        other = RankSVM(size, query_weighting="size").fit(X, y, sample_weight=size * weight)
        np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-6)
    for size in (1e-170, 1e150):
        with pytest.raises(ValueError, match="underflow or overflow"):
            RankSVM(size, query_weighting="size").fit(X, y, sample_weight=size * weight)
