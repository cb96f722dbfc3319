"""Digits: scales of columns, offsets and smooth kernels, against exact arithmetic and refits."""

import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import high_precision
from rankrls import RankRLS, RankRLSCV, RankSVM, regularization_path
from rankrls.estimators.ranker import Preferences
from rankrls.model_selection import (
    holdout_judgements,
    leave_pair_out_predict,
    leave_query_out_predict,
)

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

# ---------------------------------------------------------------------- scales of columns


def scaled_data(m, n, scales, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n)) * scales
    y = X @ (rng.normal(size=n) / scales) + 0.1 * rng.normal(size=m)
    return X, y, np.repeat([0, 1], m // 2)


SCALES = {"0 to 9": (0, 9), "-9 to 9": (-9, 9), "-12 to 12": (-12, 12)}
SHAPES = {"tall": (14, 5), "wide": (8, 12)}


@pytest.fixture(params=[(shape, scales) for shape in SHAPES for scales in SCALES], ids=str)
def case(request):
    (m, n), (low, high) = SHAPES[request.param[0]], SCALES[request.param[1]]
    scales = 10.0 ** np.linspace(low, high, n)
    return *scaled_data(m, n, scales), scales


def fit_pairs(alpha, X, y, qid):
    pairs = np.argwhere((qid[:, None] == qid) & (y[:, None] > y))
    magnitude = y[pairs[:, 0]] - y[pairs[:, 1]]
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
    expected = high_precision.linear_coefficients(X, y, qid, alpha) * scales
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


# ---------------------------------------------------------------------- offsets, single precision


RNG = np.random.default_rng(0)
ROWS = np.round(RNG.normal(size=(60, 4)) * 2**16) / 2**16  # an offset of up to 1e8 is exact
SCORES = ROWS[:, 0] + 0.3 * RNG.normal(size=60)
QID = np.repeat(np.arange(6), 10)


def difference(a, b):
    """Largest difference of two predictions up to a constant, relative to their range."""
    a, b = a.astype(float), b.astype(float)
    return np.ptp(a - b) / np.ptp(b)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf", "gamma": 0.1}, {"solver": "dual"}, {"kernel": "poly", "coef0": 0.5}],
    ids=str,
)
def test_kernels_of_single_precision_rows(options, alpha):
    small = ROWS.astype(np.float32)
    ranker = RankRLS(alpha, **options)
    single = ranker.fit(small, SCORES, qid=QID).predict(small)
    assert single.dtype == np.float32
    assert difference(single, ranker.fit(small.astype(float), SCORES, qid=QID).predict(ROWS)) < 1e-6


@pytest.mark.parametrize("alpha", [1.0, 1e-2, 1e-4, 1e-9])
def test_features_of_single_precision_that_depend_on_each_other(alpha):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 1)) + 1e-3 * rng.normal(size=(60, 5))).astype(np.float32)
    y, ranker = rng.normal(size=60), RankRLS(alpha, solver="primal")
    expected = ranker.fit(X.astype(float), y, qid=QID).predict(X.astype(float))
    assert difference(ranker.fit(X, y, qid=QID).predict(X), expected) < 1e-5
    if alpha < 1e-2:  # sums of batches cannot be computed again
        with pytest.warns(UserWarning, match="products of float32 features leave relative errors"):
            RankRLS(alpha, solver="primal").partial_fit(X, y, qid=QID)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_offsets_of_single_precision_rows(layout):
    """Deviations of a few units in the last place used to be taken for rounding errors."""
    for offsets in (1e6, 1e6 * (QID[:, None] + 1)):
        X = (ROWS + offsets).astype(np.float32)
        expected = RankRLS().fit(X.astype(float), SCORES, qid=QID).coef_
        np.testing.assert_allclose(RankRLS().fit(layout(X), SCORES, qid=QID).coef_, expected, 1e-4)
        with pytest.warns(ConvergenceWarning, match="centre and scale"):
            RankRLS(solver="cg").fit(layout(X), SCORES, qid=QID)


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("ranker", [RankRLS(1e-2), RankSVM(0.1, tol=1e-8)], ids=str)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_rbf_of_queries_far_from_each_other(offset, ranker, layout):
    rows = ROWS + offset * np.array([1.0, -2.0, 3.0, -4.0, 0.5, 0.0])[QID, None]
    K = np.zeros((60, 60))
    for query in range(6):
        own = np.flatnonzero(query == QID)
        K[np.ix_(own, own)] = rbf_kernel(ROWS[own], gamma=0.1)
    expected = ranker.set_params(kernel="precomputed").fit(K, SCORES, qid=QID).predict(K)
    ranker.set_params(kernel="rbf", gamma=0.1).fit(layout(rows), SCORES, qid=QID)
    for query in range(6):
        own = query == QID
        assert difference(ranker.predict(layout(rows))[own], expected[own]) < 2e-6


OFFSETS = {
    "primal": {"solver": "primal"},
    "dual": {"solver": "dual"},
    "cg": {"solver": "cg"},
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "laplacian": {"kernel": "laplacian", "gamma": 0.3},
    "nystroem": {"kernel": "rbf", "gamma": 0.3, "basis": np.arange(0, 60, 3)},
}


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_lose_no_digits(name, offset, layout):
    """Of all columns, or a constant column beside them."""

    def fitted(ranker, data):
        found = ranker.fit(layout(data), SCORES, qid=QID).predict(layout(data))
        return found - np.array([found[query == QID].mean() for query in range(6)])[QID]

    constant = np.column_stack([ROWS, np.full(60, offset)])
    expected = fitted(RankRLS(**OFFSETS[name]), ROWS)
    # X @ coef itself has rounding errors of the size of the offset.
    tolerance = 1e-5 if name == "cg" else max(1e-12, 1e-15 * offset)
    for data in (ROWS + offset, *[constant] * ("kernel" in OFFSETS[name])):
        found = fitted(RankRLS(**OFFSETS[name]), data)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.ptp(expected))
    if name in ("primal", "dual", "rbf", "nystroem") and offset == 1e6:
        svm = RankSVM(0.1, tol=1e-8, random_state=0, **OFFSETS[name])
        expected = fitted(svm, ROWS)
        assert difference(fitted(svm, ROWS + offset), expected) < 1e-6


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


# ---------------------------------------------------------------------- told, in every call alike


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


def test_a_basis_of_rows_far_from_zero():
    X, y, _, _ = data()
    ranker = RankRLS(basis=np.arange(0, 60, 3), solver="nystroem").fit(X, y, qid=QID)
    for offset in (1e6, 1e8):
        with pytest.warns(UserWarning, match="Centre and scale the features"):
            ranker.fit(X + offset, y, qid=QID)
    cubic = RankRLS(kernel="poly", basis=np.arange(60), solver="nystroem").fit(X, y, qid=QID)
    with pytest.warns(UserWarning, match="values of kernel 'poly' are too large"):
        cubic.fit(X + 1e3 * QID[:, None], y, qid=QID)


def test_pairs_of_rows_in_clusters_far_from_each_other():
    """What tells rows of a cluster apart is lost beside the distance, in float64."""
    _, _, pairs, _ = data()
    for offset, lost in ((10, False), (1e8, True)):
        rows = ROWS + offset * QID[:, None]
        assert outcome(lambda rows=rows: RankRLS().fit(rows, pairs=pairs))[1] == lost


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
@pytest.mark.parametrize("ratio", [1e3, 1e8, 1e12, 1e14, 1e16])
@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_weights_of_very_different_sizes(solver, share, ratio):
    """Fits and hold-outs against weighted least squares by orthogonal rotations, or told."""
    X, _, pairs, rng = data()
    weight = np.where(rng.random(len(pairs)) < share, ratio, 1.0)
    weight[0] = ratio
    D = X[pairs[:, 0]] - X[pairs[:, 1]]

    def solution(kept):
        root = np.sqrt(weight[kept])
        rows = np.vstack([root[:, None] * D[kept], np.eye(4)])
        return np.linalg.lstsq(rows, np.append(root, np.zeros(4)), rcond=None)[0]

    ranker = RankRLS(solver=solver)
    model, lost = outcome(lambda: ranker.fit(X, pairs=pairs, pair_weight=weight))
    error = np.abs(model.coef_ - solution(np.arange(len(pairs)))).max()
    assert lost == (share < 0.1 and ratio > 1e8)  # many heavy pairs determine the weights
    assert lost or error < 1e-6 * np.abs(model.coef_).max()
    folds = [np.flatnonzero(np.arange(len(pairs)) % 3 == k) for k in range(3)]
    given = {"pair_weight": weight, "by": "fold", "folds": [*folds]}
    held, told = outcome(lambda: holdout_judgements(ranker, X, pairs, **given))
    for fold in folds:
        expected = D[fold] @ solution(np.setdiff1d(np.arange(len(pairs)), fold))
        error = np.abs(held[fold] - expected).max()
        assert told or error < 1e-5 * np.abs(expected).max()


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


# ---------------------------------------------------------------------- right, or told


@pytest.mark.parametrize("offset", [1e5, 1e6])
def test_single_precision_queries_far_from_each_other(offset):
    X = (ROWS + offset * QID[:, None]).astype(np.float32)
    found = RankRLS(1.0, solver="primal").fit(X, SCORES, qid=QID).coef_
    np.testing.assert_allclose(
        found, RankRLS(1.0).fit(X.astype(float), SCORES, qid=QID).coef_, atol=1e-6
    )


@pytest.mark.parametrize("ties", ["keep", "drop"])
@pytest.mark.parametrize("options", [{}, {"basis": np.arange(12)}], ids=["dual", "nystroem"])
@pytest.mark.parametrize("decades", [4, 16])
def test_sample_weights_of_very_different_sizes(decades, options, ties):
    """Kernels against 80 digits."""
    X, y = ROWS[:12], np.round(2 * SCORES[:12])
    K, weight = rbf_kernel(X, gamma=0.25), 10.0 ** np.linspace(-decades / 2, decades / 2, 12)
    ranker = RankRLS(1e-2, kernel="precomputed", ties=ties, **options)
    f, lost = outcome(lambda: ranker.fit(K, y, sample_weight=weight).predict(K))
    with localcontext(prec=high_precision.DIGITS):
        w, exact_K = high_precision.exact(weight), high_precision.exact(K)
        L = -np.outer(w, w) * ((y[:, None] != y) | (ties == "keep")).astype(int)
        L[np.arange(12), np.arange(12)] -= L.sum(axis=1)
        system = L @ exact_K
        system[np.arange(12), np.arange(12)] += Decimal("0.01")
        a = high_precision.solve(system, L @ high_precision.exact(y))
        expected = (exact_K @ a).astype(float)
    assert lost == (decades == 16)
    assert lost or difference(f, expected) < 1e-8


def test_basis_with_queries_far_from_each_other():
    X = ROWS + 1e4 * QID[:, None]
    ranker = RankRLS(kernel="poly", degree=2, basis=np.arange(60), query_weighting="query")
    assert outcome(lambda: ranker.fit(X, SCORES, qid=QID))[1]


@pytest.mark.parametrize("cost", ["unit", "relative"])
def test_hold_outs_of_many_features_with_queries_far_from_each_other(cost):
    rng = np.random.default_rng(0)
    X, y = np.round(rng.normal(size=(60, 80)) * 2**16) / 2**16, rng.integers(0, 3, 60)
    ranker = RankRLS(cost=cost)
    near, far = (
        leave_query_out_predict(ranker, X + offset * QID[:, None], y, qid=QID)
        for offset in (0.0, 1e6)
    )
    for query in range(6):
        assert difference(far[query == QID], near[query == QID]) < 1e-8


def test_a_judgement_much_heavier_than_the_others_is_left_out():
    X, pairs = np.array([[0.0], [1.0], [3.0]]), np.array([[0, 1], [0, 1], [1, 2]])
    ranker = RankRLS(1e-3, kernel="laplacian", gamma=0.3)
    held, _ = outcome(lambda: holdout_judgements(ranker, X, pairs, pair_weight=[1e12, 1.0, 0.1]))
    f = ranker.fit(X, pairs=pairs[1:], pair_weight=[1.0, 0.1]).predict(X)
    np.testing.assert_allclose(held[0], f[0] - f[1], rtol=1e-8)


@pytest.mark.parametrize("alpha", [1e-6, 1.0])
def test_features_that_are_nearly_equal(alpha):
    """Dependent up to 1e-6 of their size, where the dependent part matters."""
    X = ROWS[:, :2] + 3e6 * RNG.normal(size=(60, 1))
    fitted, lost = outcome(lambda: RankRLS(alpha).fit(X, SCORES, qid=QID))
    assert lost
    with pytest.warns(UserWarning, match="the features depend on each other too closely"):
        leave_query_out_predict(fitted, X, SCORES, qid=QID)
