"""Digits of conditional rankers: scales of features, smooth kernels, true residuals, against 80."""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import high_precision as exact
from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls.core.relations.problem import RelationProblem
from rankrls.exceptions import FeatureScaleWarning
from rankrls.model_selection import conditional_cross_val_score, relation_holdout_predict

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

LOSSES = ("ranking", "regression")
TOLD = re.compile(r"rounding errors of about (\S+) of the predictions")
SIGNS = {None: 0, "symmetric": 1, "reciprocal": -1}
SCALES = {
    "one of 1e9": lambda n: np.r_[1e9, np.ones(n - 1)],
    "1e-12 to 1e12": lambda n: np.logspace(-12, 12, n),
}


class Scaled:
    """Objects whose features have very different scales, on both sides or on one."""

    def __init__(self, scale, relation=None, *, wide=False, one_side=False, gaps=0.0, seed=0):
        rng = np.random.default_rng(seed)
        d, e = (8, 7) if wide else (4, 3)
        S, T = (rng.permutation(SCALES[scale](n)) for n in (d, e))
        T = np.ones(e) if one_side else T
        self.X, self.new_X = (rng.standard_normal((n, d)) * S for n in (6, 3))
        self.Z, self.new_Z = (rng.standard_normal((n, e)) * T for n in (5, 3))
        self.sign = SIGNS[relation]
        if relation:
            self.Z = self.new_Z = None
        Y = rng.standard_normal((6, 6 if relation else 5))
        if relation:
            Y = Y + self.sign * Y.T
        hidden = rng.random(Y.shape) < gaps
        Y[hidden | hidden.T if relation else hidden] = np.nan
        self.Y, self.relation = Y, relation

    def exact(self, alpha, loss):
        """Predictions for new objects, of 80 digits."""
        K = exact.linear_kernel(self.X), exact.linear_kernel(self.new_X, self.X)
        G = K
        if self.Z is not None:
            G = exact.linear_kernel(self.Z), exact.linear_kernel(self.new_Z, self.Z)
        rows, cols = np.nonzero(~np.isnan(self.Y))
        shape = len(K[1]), len(G[1])
        to = tuple(a.ravel() for a in np.indices(shape))
        f = exact.relation_predictions(
            K, G, (rows, cols), self.Y[rows, cols], alpha, to,
            ranking=loss == "ranking", sign=self.sign,
        )  # fmt: skip
        return f.reshape(shape)

    def error(self, model, alpha, loss):
        return relative_error(
            model.predict(self.new_X, self.new_Z), self.exact(alpha, loss), loss == "ranking"
        )

    def fit(self, alpha, loss, **options):
        ranker = ConditionalRankRLS(alpha, loss=loss, relation=self.relation, **options)
        return ranker.fit(self.X, self.Y, self.Z)


def relative_error(found, expected, ranking):
    """Relative to the largest score; offsets of rows do not count for ranking."""
    if ranking:
        found = found - found.mean(axis=-1, keepdims=True)
        expected = expected - expected.mean(axis=-1, keepdims=True)
    return np.abs(found - expected).max() / np.abs(expected).max()


# ---------------------------------------------------------------------- scales of features


@pytest.mark.parametrize("relation", SIGNS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("solver", ["closed", "primal", "cg"])
def test_scales_of_features(solver, scale, loss, relation):
    """Predictions are accurate, or a warning says that they are not."""
    for wide, one_side in ((False, False), (False, True), (True, False)):
        data = Scaled(
            scale, relation, wide=wide, one_side=one_side, gaps=0.0 if solver == "closed" else 0.3
        )
        for alpha in (1e-3, 1.0, 1e6):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", UserWarning)
                model = data.fit(alpha, loss, solver=solver, max_iter=1000)
            assert model.solver_ == solver
            told = [one for one in told if one.category is not FeatureScaleWarning]
            assert data.error(model, alpha, loss) < 1e-4 or told


def test_a_large_column_that_means_nothing_does_not_spoil_the_ranking():
    """What was 0.5 by every direct solver: labels of one feature, beside noise of scale 1e9."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((40, 3)), rng.standard_normal((30, 3))
    Y = X[:, :1] * Z[:, 0]
    X[:, 2] *= 1e9
    gaps = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    for labels, solver in ((Y, "closed"), (gaps, "primal"), (gaps, "cg")):
        model = ConditionalRankRLS(1.0, solver=solver).fit(X, labels, Z)
        assert model.score(X, Y, Z) > 0.9, solver
    search = ConditionalRankRLSCV(cv="rows").fit(X, Y, Z)
    assert search.best_score_ > 0.9
    assert search.score(X, Y, Z) > 0.9
    assert conditional_cross_val_score(search, X, Y, Z, n_folds=3).mean() > 0.9


# ---------------------------------------------------------------------- smooth kernels


def smooth(n, rng, gamma=1.0):
    x = np.sort(rng.uniform(0, 3, (n, 1)), axis=0)
    return rbf_kernel(x, gamma=gamma)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(2, 60), (60, 2)])
@pytest.mark.parametrize("leave_out", ["rows", "columns", "entries", "both"])
def test_hold_outs_of_smooth_kernels(leave_out, shape, loss):
    """RBF kernels of points on a line, whose eigenvalues go down to rounding without a gap."""
    rng = np.random.default_rng(0)
    p, g = shape
    K, G, Y = smooth(p, rng), smooth(g, rng), rng.standard_normal(shape)
    alpha, ranking = 1e-3, loss == "ranking"
    ranker = ConditionalRankRLS(alpha, kernel="precomputed", loss=loss)
    found = relation_holdout_predict(ranker, K, Y, G, leave_out=leave_out)
    i, j = p // 2, g // 2
    out = np.zeros(shape, dtype=bool)
    if leave_out in ("rows", "both"):
        out[i] = True
    if leave_out in ("columns", "both"):
        out[:, j] = True
    out[i, j] = True
    rows, cols = np.nonzero(~out)
    sides = (exact.exact(K),) * 2, (exact.exact(G),) * 2
    f = exact.relation_predictions(
        *sides, (rows, cols), Y[rows, cols], alpha, (np.full(g, i), np.arange(g)), ranking=ranking
    )
    if ranking:
        left = ~out[i]
        others = left if left.any() else ~out.all(axis=0)
        f += (Y[i] - f)[left].mean() if left.any() else -f[others].mean()
    scale = np.abs(Y).max()
    if leave_out == "rows":
        assert np.abs(found[i] - f).max() < 1e-8 * scale
    else:
        assert abs(found[i, j] - f[j]) < 1e-8 * scale


def test_alphas_below_rounding_are_told():
    """Eigenvalues without a gap down to rounding errors, and an alpha among these."""
    rng = np.random.default_rng(0)
    K, Y = smooth(30, rng), rng.standard_normal((30, 30))
    with pytest.warns(UserWarning, match=r"rounding errors of about .* increase alpha"):
        ConditionalRankRLS(1e-12, kernel="precomputed").fit(K, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConditionalRankRLS(1e-6, kernel="precomputed").fit(K, Y)
        # Kernels with a gap: no direction is half fitted, and none is in doubt.
        ConditionalRankRLS(1e-12, kernel="precomputed").fit(K + np.eye(30), Y)


# ---------------------------------------------------------------------- iteration


@pytest.mark.parametrize("form", ["spectra", "cells"])
@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1.0])
def test_true_residuals_decide(form, alpha, monkeypatch):
    """Without a warning the equations hold to tol, whatever the recurrence of residuals says."""
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(0, 3, (40, 1)), rng.uniform(0, 3, (30, 1))
    Y = np.where(rng.random((40, 30)) < 0.4, np.nan, rng.standard_normal((40, 30)))
    K, G = rbf_kernel(X), rbf_kernel(Z)
    if form != "spectra":
        monkeypatch.setattr(RelationProblem, "_in_eigenvectors", lambda *_: False)
    tol = 1e-6
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ConvergenceWarning)
        model = ConditionalRankRLS(
            alpha, kernel="precomputed", solver="cg", max_iter=20_000, tol=tol
        ).fit(K, Y, G)
    known = ~np.isnan(Y)
    # (y − f)/alpha are the coefficients, up to an offset of each row.
    F = K @ model.dual_coef_ @ G
    y = np.where(known, Y, 0.0)
    counts = known.sum(axis=1, keepdims=True)

    def centre(M):
        M = np.where(known, M, 0.0)
        return np.where(known, M - M.sum(axis=1, keepdims=True) / counts, 0.0)

    direct_model = ConditionalRankRLS(alpha, kernel="precomputed", solver="dual").fit(K, Y, G)
    expected = K @ direct_model.dual_coef_ @ G
    error = np.linalg.norm(centre(F - expected)) / np.linalg.norm(centre(y))
    if not any(issubclass(w.category, ConvergenceWarning) for w in seen):
        assert error <= 3 * tol
    if form == "spectra":
        assert not seen
        assert model.n_iter_ < 1000


# ---------------------------------------------------------------------- empty function spaces


def test_reciprocal_relations_need_two_features(capfd):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8, 1)), rng.standard_normal((8, 8))
    Y = y - y.T
    gaps = Y.copy()
    gaps[0, 1] = gaps[1, 0] = np.nan
    message = "relation='reciprocal' leaves no function but f = 0.*rank one.*Add features"
    for labels in (Y, gaps):
        for features in (X, np.hstack([X, 3 * X]), np.hstack([X, np.zeros((8, 1))])):
            for solver in ("auto", "dual", "cg"):
                with pytest.raises(ValueError, match=message):
                    ConditionalRankRLS(relation="reciprocal", solver=solver).fit(features, labels)
        for call in (
            lambda labels=labels: ConditionalRankRLSCV(relation="reciprocal").fit(X, labels),
            lambda labels=labels: relation_holdout_predict(
                ConditionalRankRLS(relation="reciprocal"), X, labels
            ),
            lambda labels=labels: ConditionalRankRLS(
                relation="reciprocal", kernel="precomputed"
            ).fit(X @ X.T, labels),
        ):
            with pytest.raises(ValueError, match=message):
                call()
    assert capfd.readouterr().err == ""
    # A constant beside the feature makes differences: f(x, z) = w (x − z).
    model = ConditionalRankRLS(relation="reciprocal").fit(np.hstack([X, np.ones((8, 1))]), Y)
    assert np.abs(model.predict(np.array([[0.0, 1.0], [1.0, 1.0]]))).max() > 0


# ---------------------------------------------------------------------- kernels of pairs

UNITS = {"1e3": (1e3, 0.0), "1e-3": (1e-3, 0.0), "offset 1e3": (1.0, 1e3), "offset 1e6": (1.0, 1e6)}
PAIRWISE_SOLVERS = {
    "kronecker": ("closed", "dual", "cg", "primal"),
    "cartesian": ("closed", "dual", "cg"),
    "additive": ("dual", "cg", "primal"),
    "polynomial": ("closed", "dual", "cg"),
    "mlpk": ("dual", "cg"),
    "ranking": ("dual", "cg", "primal"),
}


def pairwise_predictions(name, X, Z, Y, alpha, *, ranking):
    """f at all pairs of training objects, of 80 digits; rankings have offsets."""
    K = exact.linear_kernel(X)
    sides = (K,) * 2, (K if Z is None else exact.linear_kernel(Z),) * 2
    edges, every = np.nonzero(~np.isnan(Y)), tuple(part.ravel() for part in np.indices(Y.shape))
    options = {"ranking": ranking, "name": name}
    f = exact.relation_predictions(*sides, edges, Y[edges], alpha, every, **options)
    return f.reshape(Y.shape)


def pairwise_error(pairwise, solver, units, alpha, loss):
    """Relative error of predictions for the training objects, and warnings."""
    rng = np.random.default_rng(3)
    scale, offset = UNITS[units]
    one = pairwise in ("mlpk", "ranking")
    X, Z = rng.standard_normal((6, 2)) * scale + offset, rng.standard_normal((5, 3)) * scale
    Z = None if one else Z + offset
    Y = rng.standard_normal((6, 6 if one else 5))
    if solver != "closed":
        Y[rng.random(Y.shape) < 0.25] = np.nan
    ranker = ConditionalRankRLS(alpha, pairwise=pairwise, solver=solver, loss=loss, max_iter=2000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ranker.fit(X, Y, Z).predict(X, Z)
    ranking = loss == "ranking"
    expected = pairwise_predictions(pairwise, X, Z, Y, alpha, ranking=ranking)
    caught = [one for one in caught if one.category is not FeatureScaleWarning]
    return relative_error(found, expected, ranking), [str(one.message) for one in caught]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    ("pairwise", "solver"),
    [(pairwise, solver) for pairwise, several in PAIRWISE_SOLVERS.items() for solver in several],
)
def test_digits_of_pairwise_kernels(pairwise, solver, units, loss):
    """Predictions are accurate, or a warning says that they are not."""
    for alpha in (1e-3, 1.0, 1e9):
        error, told = pairwise_error(pairwise, solver, units, alpha, loss)
        assert error < 1e-4 or told, (alpha, error)
    if solver in ("closed", "dual") and units in ("1e3", "1e-3"):
        assert error < 1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("solver", ["closed", "primal"])
def test_predictions_from_features_with_large_offsets(solver, condition_on, loss):
    """xᵀWz loses digits that W has: up to 50 % once. Offsets of a list cancel in rankings."""
    rng = np.random.default_rng(1)
    for offset in (1e4, 1e7, 1e8):
        X, Z = rng.standard_normal((7, 3)) + offset, rng.standard_normal((6, 2)) + offset
        Y = rng.standard_normal((7, 6))
        if solver != "closed":
            Y[rng.random(Y.shape) < 0.2] = np.nan
        ranker = ConditionalRankRLS(loss=loss, solver=solver, condition_on=condition_on)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ranker.fit(X, Y, Z)
        told = [one for one in caught if one.category is not FeatureScaleWarning]
        first, second, Y = (X, Z, Y) if condition_on == "rows" else (Z, X, Y.T)
        ranking = loss == "ranking"
        expected = pairwise_predictions("kronecker", first, second, Y, 1.0, ranking=ranking)
        every = [part.ravel() for part in np.indices((7, 6))]
        for found in (ranker.predict(X, Z), ranker.predict_edges(X, Z, *every).reshape(7, 6)):
            found = found if condition_on == "rows" else found.T
            assert relative_error(found, expected, ranking) < 1e-4 or told
        assert bool(told) == (offset > 1e4 and not ranking)


@pytest.mark.filterwarnings("ignore:rounding errors")  # of about 1e-5
@pytest.mark.parametrize("pairwise", ["additive", "polynomial"])
def test_functions_that_offsets_absorb_cost_no_digits(pairwise):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((6, 3)) * 1e-3 + 300, rng.standard_normal((5, 3))
    X, Y = X * 1e4 if pairwise == "additive" else X, rng.standard_normal((6, 5))
    ranker = ConditionalRankRLS(1e-3, pairwise=pairwise, solver="dual").fit(X, Y, Z)
    expected = pairwise_predictions(pairwise, X, Z, Y, 1e-3, ranking=True)
    assert relative_error(ranker.predict(X, Z), expected, True) < 1e-5


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("low", "scale", "width", "alpha"),
    [
        *[(0, 1, 3, 1), (100, 1, 3, 1), (300, 1, 3, 1), (1000, 1, 3, 1), (0, 300, 3, 1)],
        *[("uniform", 1000, 3, 1), (100, 1, 10, 1), (300, 1, 10, 1), (1000, 1, 10, 1)],
        *[(3, 1e-3, 3, 1e-3), (300, 1e-3, 3, 1), ("one side", 300, 2, 1e-3)],
        (1e7, 1, 2, 100),
    ],
)
def test_features_of_raw_scale_with_a_polynomial_kernel(low, scale, width, alpha, loss):
    """(k + g)² of features around 300: once 110 % wrong without a warning."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((9, width)), rng.standard_normal((8, width - 1))
    if low == "uniform":
        X, Z = rng.uniform(0, scale, X.shape), rng.uniform(0, scale, Z.shape)
    elif low == "one side":
        X = X[:, :1] * scale + scale
    else:
        X, Z = X * scale + low, Z * scale + low
    Y = rng.standard_normal((9, 8))
    ranking = loss == "ranking"
    expected = pairwise_predictions("polynomial", X, Z, Y, alpha, ranking=ranking)
    for solver in ("closed", "dual"):
        ranker = ConditionalRankRLS(alpha, pairwise="polynomial", loss=loss, solver=solver)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error = relative_error(ranker.fit(X, Y, Z).predict(X, Z), expected, ranking)
        told = [float(m[1]) for one in caught if (m := TOLD.search(str(one.message)))]
        assert told or error < 1e-4
        if told and solver == "closed":
            assert min(error, 1.0) / 30 < max(told) < 100 * error
