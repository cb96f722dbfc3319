"""Digits: scales of columns, offsets and smooth kernels, against exact arithmetic and refits."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from rankrls import RankRLS, regularization_path
from rankrls.estimators.ranker import Preferences
from rankrls.model_selection import leave_pair_out_predict, leave_query_out_predict

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

# ---------------------------------------------------------------------- an exact solution


def fractions(values):
    return [Fraction(float(value)) for value in values]


def exact_weights(X, y, edges, alpha):
    """w of Σ_edges (y_i − y_j − (x_i − x_j)·w)² + alpha ‖w‖², by elimination with fractions."""
    n = X.shape[1]
    rows, scores = [fractions(row) for row in X], fractions(y)
    system = [[Fraction(0)] * (n + 1) for _ in range(n)]
    for i, j in edges:
        d = [a - b for a, b in zip(rows[i], rows[j], strict=True)]
        d.append(scores[i] - scores[j])
        for p in range(n):
            for q in range(n + 1):
                system[p][q] += d[p] * d[q]
    for p in range(n):
        system[p][p] += Fraction(float(alpha))
    for p in range(n):
        for q in range(n):
            if q != p and system[q][p]:
                ratio = system[q][p] / system[p][p]
                system[q] = [a - ratio * b for a, b in zip(system[q], system[p], strict=True)]
    return np.array([float(system[p][n] / system[p][p]) for p in range(n)])


def scaled_data(m, n, scales, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n)) * scales
    y = X @ (rng.normal(size=n) / scales) + 0.1 * rng.normal(size=m)
    return X, y, np.repeat([0, 1], m // 2)


def within(qid):
    return [(i, j) for i in range(len(qid)) for j in range(i) if qid[i] == qid[j]]


SCALES = {"0 to 9": (0, 9), "-9 to 9": (-9, 9), "-12 to 12": (-12, 12)}
SHAPES = {"tall": (14, 5), "wide": (8, 12)}


@pytest.fixture(params=[(shape, scales) for shape in SHAPES for scales in SCALES], ids=str)
def case(request):
    (m, n), (low, high) = SHAPES[request.param[0]], SCALES[request.param[1]]
    scales = 10.0 ** np.linspace(low, high, n)
    return *scaled_data(m, n, scales), scales


def fit_pairs(alpha, X, y, qid):
    edges = within(qid)
    pairs = [(i, j) if y[i] > y[j] else (j, i) for i, j in edges]
    magnitude = [abs(y[i] - y[j]) for i, j in edges]
    return RankRLS(alpha).fit(X, pairs=pairs, magnitude=magnitude).coef_


def fit_partially(alpha, X, y, qid):
    ranker = RankRLS(alpha)
    for query in np.unique(qid):
        ranker.partial_fit(X[qid == query], y[qid == query], qid=qid[qid == query])
    return ranker.coef_


WAYS = {
    "primal": lambda a, X, y, q: RankRLS(a, solver="primal").fit(X, y, qid=q).coef_,
    "dual": lambda a, X, y, q: RankRLS(a, solver="dual").fit(X, y, qid=q).coef_,
    "sparse": lambda a, X, y, q: RankRLS(a).fit(sparse.csr_array(X), y, qid=q).coef_,
    "path": lambda a, X, y, q: regularization_path(RankRLS(), X, y, qid=q, alphas=[a, 10 * a]).coef[
        0
    ],
    "pairs": fit_pairs,
    "partial_fit": fit_partially,
    "stream": lambda a, X, y, q: RankRLS(a).fit_stream([(X, y, q)]).coef_,
}


LOST = "scales that are too different for float64"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
def test_columns_of_any_scale(case, alpha, way):
    """Right, or warned of if columns depend on each other."""
    X, y, qid, scales = case
    expected = exact_weights(X, y, within(qid), alpha) * scales
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        found = WAYS[way](alpha, X, y, qid) * scales
    tall, lost = X.shape[0] > X.shape[1], any(LOST in str(one.message) for one in told)
    assert not (tall and lost)
    tolerance = 1e-8 if tall else 1e-6
    assert lost or np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def noisy_column(ratio, m=200, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=m)
    X = np.column_stack([a, ratio * rng.normal(size=m)])
    return X, a + 0.1 * rng.normal(size=m), np.repeat(np.arange(m // 10), 10)


@pytest.mark.parametrize("ratio", [1e7, 1e9, 1e12])
@pytest.mark.parametrize("solver", ["primal", "dual", "cg"])
def test_a_column_of_noise_does_not_hide_the_others(ratio, solver):
    X, y, qid = noisy_column(ratio)
    assert RankRLS(1.0, solver=solver).fit(X, y, qid=qid).score(X, y, qid=qid) > 0.95


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("ignore:the features have scales")
def test_hold_out_of_columns_of_any_scale(shape):
    m, n = SHAPES[shape]
    X, y, _ = scaled_data(4 * m, n if shape == "tall" else 5 * n, 1.0)
    scales = 10.0 ** np.linspace(-3, 9, X.shape[1])
    X, qid = X * scales, np.repeat(np.arange(4), m)
    alphas = np.array([1e-2, 1.0, 1e2])
    if shape == "wide":  # there are more features than rows, and small ones are lost
        with pytest.warns(UserWarning, match=LOST):
            leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=alphas)
        return
    held = leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=alphas)
    for a, alpha in enumerate(alphas):
        for query in range(4):
            out = qid == query
            refit = RankRLS(alpha).fit(X[~out], y[~out], qid=qid[~out]).predict(X[out])
            found = held[a, out]
            difference = (found - found.mean()) - (refit - refit.mean())
            assert np.abs(difference).max() <= 1e-7 * np.ptp(refit)


# ---------------------------------------------------------------------- offsets


# ---------------------------------------------------------------------- smooth kernels


def smooth(name):
    rng = np.random.default_rng(0)
    if name == "rbf, one dimension":
        X = np.sort(rng.uniform(-3, 3, 60))[:, None]
        return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60), {"kernel": "rbf", "gamma": 1.0}
    X = rng.uniform(-1, 1, (120, 2))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=120)
    if name == "polynomial":
        return X[:60], y[:60], {"kernel": "poly", "degree": 2}
    return X, y, {"kernel": "rbf", "gamma": 1.0}


SMOOTH = ["rbf, one dimension", "rbf, two dimensions", "polynomial"]


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", SMOOTH)
def test_hold_outs_of_smooth_kernels(name, alpha):
    """Rows, pairs and queries, against explicit refits."""
    X, y, options = smooth(name)
    m, rng, scale = len(y), np.random.default_rng(1), np.ptp(y)
    ranker = RankRLS(alpha, **options)

    def refitted(out, qid=None):
        rest = np.setdiff1d(np.arange(m), out)
        model = RankRLS(alpha, **options)
        model.fit(X[rest], y[rest], qid=None if qid is None else qid[rest])
        found = model.predict(X[out])
        return found - found.mean()

    kernel, data, graph = ranker._prepare(X, Preferences(y))
    folds = [np.array([i, (7 * i + 1) % m]) for i in range(0, m, 9)]
    folds += list(np.array_split(rng.permutation(m), 5))
    held = ranker._problem(kernel, data, graph).leave_out(folds, np.array([alpha]))
    assert held.n_refits[0] == 0
    for rows, part in zip(folds, held.predictions, strict=True):
        found = part[0, :, 0] - part[0, :, 0].mean()
        np.testing.assert_allclose(found, refitted(rows), atol=1e-8 * scale)
    pairs = np.array([(i, (11 * i + 5) % m) for i in range(0, m, 7)])
    for pair, found in zip(pairs, leave_pair_out_predict(ranker, X, y, pairs=pairs), strict=True):
        np.testing.assert_allclose(found - found.mean(), refitted(pair), atol=1e-8 * scale)
    qid = np.arange(m) % 6
    by_query = leave_query_out_predict(ranker, X, y, qid=qid)
    for query in range(6):
        rows = np.flatnonzero(qid == query)
        found = by_query[rows] - by_query[rows].mean()
        np.testing.assert_allclose(found, refitted(rows, qid), atol=1e-8 * scale)


# ---------------------------------------------------------------------- indefinite kernels


@pytest.mark.parametrize(
    "options",
    [{"kernel": "poly", "degree": 2}, {"basis": np.arange(0, 60, 3), "solver": "nystroem"}],
    ids=["poly", "nystroem"],
)
def test_lost_digits_are_told(options):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 4)), np.repeat(np.arange(10), 6)
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    RankRLS(**options).fit(X, y, qid=qid)
    with pytest.warns(UserWarning, match="Centre and scale the features"):
        RankRLS(**options).fit(X + 1e8, y, qid=qid)


def test_pairs_of_columns_of_any_scale():
    scales = 10.0 ** np.linspace(-4, 9, 5)
    X, y, _ = scaled_data(20, 5, scales)
    pairs = np.array([(0, 1), (3, 17), (8, 5), (19, 2)])
    for alpha in (1e-6, 1.0):
        found = leave_pair_out_predict(RankRLS(alpha), X, y, pairs=pairs)
        for pair, values in zip(pairs, found, strict=True):
            rest = np.setdiff1d(np.arange(20), pair)
            expected = RankRLS(alpha).fit(X[rest], y[rest]).predict(X[pair])
            np.testing.assert_allclose(np.diff(values), np.diff(expected), atol=1e-7 * np.ptp(y))


def centred(f, qid):
    return f - np.array([f[qid == query].mean() for query in range(10)])[qid]


OFFSETS = {
    "primal": {"solver": "primal"},
    "dual": {"solver": "dual"},
    "cg": {"solver": "cg"},
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "laplacian": {"kernel": "laplacian", "gamma": 0.3},
    "nystroem": {"kernel": "rbf", "gamma": 0.3, "basis": np.arange(0, 60, 3)},
}


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_lose_no_digits(name, offset, container):
    """Of all columns, or a constant column beside them; features are multiples of 2⁻¹⁰."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(60, 4)) * 1024) / 1024
    y, qid = X[:, 0] + 0.3 * rng.normal(size=60), np.repeat(np.arange(10), 6)

    def fitted(data):
        ranker = RankRLS(**OFFSETS[name]).fit(container(data), y, qid=qid)
        return centred(ranker.predict(container(data)), qid)

    expected = fitted(X)
    for data in (X + offset, np.column_stack([X, np.full(60, offset)])):
        if name in ("rbf", "laplacian", "nystroem") or data.shape[1] == 4:
            # X @ coef itself has rounding errors of the size of the offset.
            tolerance = 1e-5 if name == "cg" else max(1e-12, 1e-15 * offset)
            np.testing.assert_allclose(fitted(data), expected, atol=tolerance * np.ptp(expected))


def indefinite(seed=0):
    rng = np.random.default_rng(seed)
    V, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    values = np.linspace(1.0, -0.6, 40)
    return (V * values) @ V.T, rng.normal(size=40)


def test_indefinite_kernels_are_refused_with_and_without_a_basis():
    K, y = indefinite()
    for options in ({}, {"basis": np.arange(30), "solver": "nystroem"}):
        ranker = RankRLS(1e-3, kernel="precomputed", **options)
        with pytest.raises(ValueError, match="not positive semi-definite"):
            ranker.fit(K, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            RankRLS(1e4, kernel="precomputed", **options).fit(K, y)
