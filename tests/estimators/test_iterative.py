"""solver="cg" and early stopping, as users call them."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_info, threadpool_limits

from cases import COSTS, WEIGHTINGS, Case
from high_precision import linear_coefficients
from rankrls import PreferenceGraph, RankRLS, RankRLSCV, regularization_path
from rankrls.io import load_model, save_model
from rankrls.metrics import pairwise_error

ALPHAS = 2.0 ** np.arange(-6, 14)
LAYOUTS = {
    "dense": lambda X: X,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "csr_matrix": sparse.csr_matrix,
}


@pytest.fixture(scope="module")
def data():
    """Sparse rows, noisy scores, forty queries in random row order; two thirds to train on."""
    rng = np.random.default_rng(0)
    m, n = 600, 300
    X = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.1)
    s = X @ (rng.standard_normal(n) * (rng.random(n) < 0.3)) + 1.5 * rng.standard_normal(m)
    qid = rng.integers(0, 40, m)
    train = qid < 27
    return {
        "X": sparse.csr_array(X[train]),
        "y": s[train],
        "qid": qid[train],
        "eval_set": (sparse.csr_array(X[~train]), s[~train], qid[~train]),
    }


def close(actual, wanted, tolerance=1e-8):
    assert_allclose(actual, wanted, atol=tolerance * np.abs(wanted).max())


# ---------------------------------------------------------------------------- to a tolerance


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("ties", "weight"), [("keep", None), ("drop", "zeros")])
def test_same_as_the_direct_solver(cost, ties, weighting, weight):
    case = Case(1, cost=cost, ties=ties, query_weighting=weighting, weight=weight, n_pairs=5)
    X = case.rng.standard_normal((case.m, 8)) + 3.0
    for alpha in (1e-3, 1e4):
        direct = RankRLS(alpha, solver="primal", **case.options).fit(X, case.y, **case.fit)
        for layout in (np.asarray, sparse.csr_array):
            cg = RankRLS(alpha, solver="cg", tol=1e-12, **case.options)
            cg.fit(layout(X), case.y, **case.fit)
            close(cg.coef_, direct.coef_)
            assert (cg.n_pairs_, cg.solver_) == (direct.n_pairs_, "cg")


@pytest.mark.parametrize("basis", [None, np.arange(40)])
@pytest.mark.parametrize("alpha", [1.0, 1e-4])
def test_kernels_have_the_same_solution(alpha, basis, tmp_path):
    case = Case(3, m=60)
    X, new = case.rng.standard_normal((60, 4)), case.rng.standard_normal((30, 4))
    K, K_new = (rbf_kernel(rows, X, gamma=0.2) for rows in (X, new))
    options = {"kernel": "rbf", "gamma": 0.2, "basis": basis}
    direct = RankRLS(alpha, **options).fit(X, case.y, **case.fit)
    cg = RankRLS(alpha, solver="cg", tol=1e-11, **options).fit(X, case.y, **case.fit)
    assert cg.solver_ == "cg"
    wanted = direct.predict(new)
    close(cg.predict(new) - cg.predict(new)[0], wanted - wanted[0], 1e-7)
    gram = RankRLS(alpha, kernel="precomputed", basis=basis, solver="cg", tol=1e-11)
    gram.fit(K, case.y, **case.fit)
    close(gram.predict(K_new) - gram.predict(K_new)[0], wanted - wanted[0], 1e-7)
    save_model(cg, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict(new), cg.predict(new))


@pytest.mark.parametrize("n", [3, 40])
def test_iterations_as_the_regulariser(n):
    """P3 §3.4: alpha = 0 and t iterations, without a warning; as many as the rank are exact."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((30, n)), rng.standard_normal((30, 2)), np.repeat(range(6), 5)
    graphs = [PreferenceGraph.from_scores(column, qid=qid) for column in y.T]
    G = X.T @ (graphs[0].laplacian() @ X)
    targets = [X.T @ graph.target() for graph in graphs]
    for t in (1, 2, 35):
        ranker = RankRLS(0, solver="cg", max_iter=t, tol=1e-13).fit(X, y, qid=qid)
        for w, c in zip(ranker.coef_, targets, strict=True):
            wanted = np.linalg.lstsq(G, c, rcond=1e-12)[0]
            if t < 3:  # the best of the Krylov space
                V = np.linalg.qr(np.column_stack([c, G @ c])[:, :t])[0]
                wanted = V @ np.linalg.solve(V.T @ G @ V, V.T @ c)
            close(w, wanted, 1e-7)
        assert ranker.n_iter_ <= t
    with pytest.raises(ValueError, match="alpha must be finite and > 0"):
        RankRLS(0, solver="primal").fit(X, y)


def test_a_path_from_one_run(data):
    X, y, qid = data["X"], data["y"], data["qid"]
    alphas = np.array([4.0, 0.25, 64.0, 1.0])  # in any order
    path = regularization_path(RankRLS(solver="cg", tol=1e-11), X, y, qid=qid, alphas=alphas)
    assert path.coef.shape == (4, 300)
    for alpha, coef in zip(alphas, path.coef, strict=True):
        close(coef, RankRLS(alpha, solver="primal").fit(X, y, qid=qid).coef_)


def test_tolerance_is_that_of_the_true_residual(data):
    graph = PreferenceGraph.from_scores(data["y"], qid=data["qid"])
    X, L, r = data["X"], graph.laplacian(), graph.target()
    for tol in (1e-3, 1e-8):
        w = RankRLS(0.5, solver="cg", tol=tol).fit(X, data["y"], qid=data["qid"]).coef_
        residual = X.T @ r - X.T @ (L @ (X @ w)) - 0.5 * w
        assert np.linalg.norm(residual) <= tol * np.linalg.norm(X.T @ r) * (1 + 1e-6)


# ---------------------------------------------------------------------------- small alphas


@pytest.fixture(scope="module")
def text():
    """The data of docs/guide/sparse_text.md: more columns than rows, a null space."""
    words = np.random.default_rng(0).zipf(1.3, (500, 30)) % 5000
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    y = (words % 7 == 3).sum(axis=1) - (words % 7 == 5).sum(axis=1)
    qid = np.arange(500) // 20
    train = qid < 20

    def vectors(**options):
        X = sparse.csr_array(HashingVectorizer(n_features=2**15, **options).transform(texts))
        return X[train], y[train], qid[train], X[~train], y[~train], qid[~train]

    return {"unit rows": vectors(), "counts": vectors(norm=None, alternate_sign=False)}


def off(actual, wanted):
    """The relative difference of predictions, which are defined up to a constant."""
    actual, wanted = actual - actual.mean(), wanted - wanted.mean()
    return np.linalg.norm(actual - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("kind", ["unit rows", "counts"])
@pytest.mark.parametrize("alpha", [1e3, 1e-3, 1e-6, 1e-13])
def test_new_rows_whatever_alpha(kind, alpha, text):
    """Nothing of the null space of G gets into the model, which new rows would show."""
    X, y, qid, X_new, y_new, q_new = text[kind]
    exact = RankRLS(alpha, solver="dual").fit(X, y, qid=qid)
    wanted = exact.predict(X_new)
    cg = RankRLS(alpha, solver="cg").fit(X, y, qid=qid)
    assert off(cg.predict(X_new), wanted) <= 2e-6
    assert np.linalg.norm(cg.coef_ - exact.coef_) <= 2e-6 * np.linalg.norm(exact.coef_)
    assert cg.score(X_new, y_new, qid=q_new) == pytest.approx(
        exact.score(X_new, y_new, qid=q_new), abs=1e-9
    )
    assert cg.n_iter_ <= 600
    path = regularization_path(RankRLS(solver="cg"), X, y, qid=qid, alphas=[alpha, 10 * alpha])
    assert np.linalg.norm(path.coef[0] - cg.coef_) <= 4e-6 * np.linalg.norm(cg.coef_)


# ---------------------------------------------------------------------------- ugly columns


def ugly(name, n):
    """Thirty rows in three queries, n columns, and whether all digits can be kept."""
    rng = np.random.default_rng(n)
    m = 30
    X = rng.standard_normal((m, n))
    y = X[:, 0] + 0.3 * rng.standard_normal(m)
    qid = np.repeat([2, 0, 1], 10)
    if name == "one huge":
        X[:, -1] *= 1e9
    elif name == "all but one huge":
        X[:, 1:] *= 1e9
    elif name == "one tiny":
        X[:, 0] *= 1e-9
    elif name == "all scales":
        X *= np.logspace(-9, 9, n)
    elif name == "some scales":
        X *= np.logspace(-2, 2, n)
    elif name == "copy":
        X[:, 1] = X[:, 0]
    elif name == "scaled copy":
        X[:, 1] = 1024 * X[:, 0]
    elif name == "nearly a copy":
        X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]
    elif name == "constant":
        X[:, 1] = 1e8 / 3
    elif name == "one offset":
        X[:, 1] += 1e8
    elif name == "offsets":
        X += 1e6
    elif name == "offsets of queries":
        X += 1e3 * qid[:, None]
    elif name == "huge offsets of queries":
        X += 1e8 * qid[:, None]
    elif name == "copies of rows":
        X[15:] = X[:15]
    elif name == "one-hot":
        X = np.hstack([1e3 * X, np.eye(4)[rng.integers(0, 4, m)]])
    return X, y, qid


RIGHT = (
    *("plain", "one huge", "all but one huge", "one tiny", "all scales", "some scales", "copy"),
    *("scaled copy", "constant", "one offset", "offsets", "copies of rows", "one-hot"),
)
RIGHT_OR_WARNED = ("nearly a copy", "offsets of queries", "huge offsets of queries")


@pytest.mark.parametrize("name", [*RIGHT, *RIGHT_OR_WARNED])
@pytest.mark.parametrize("n", [2, 45])
def test_ugly_columns_are_right_or_warned_of(name, n):
    X, y, qid = ugly(name, n)
    new = np.random.default_rng(0).standard_normal((50, X.shape[1])) * np.maximum(X.std(axis=0), 1)
    for alpha in (1e6, 1.0, 1e-8):
        exact = linear_coefficients(X, y, qid, alpha)
        for layout in ("dense", "csr"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                cg = RankRLS(alpha, solver="cg").fit(LAYOUTS[layout](X), y, qid=qid)
            if any(issubclass(w.category, ConvergenceWarning) for w in caught):
                # Scales and a null space are difficult.
                difficult = n == 45 and name in ("one huge", "all scales")
                assert difficult or name in RIGHT_OR_WARNED, (alpha, str(caught[0].message))
                continue
            error = np.linalg.norm(new @ (cg.coef_ - exact)) / np.linalg.norm(new @ exact)
            assert error <= 1e-5, (alpha, layout)


def test_lost_digits_are_warned_of(data):
    X = data["X"].toarray()
    X[:, 7] += 1e11
    ranker = RankRLS(solver="cg")
    with pytest.warns(
        ConvergenceWarning, match=r"column 7 of X is 1e\+11.*centre and scale"
    ) as found:
        ranker.fit(X, data["y"], qid=data["qid"])
    assert found[0].filename == __file__


# ---------------------------------------------------------------------------- threads


def blas_threads():
    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(pools, default=1)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_n_jobs_limits_threads(layout, data, monkeypatch):
    monkeypatch.setattr("rankrls.core.spaces.products.ENTRIES_PER_THREAD", 10)
    X = LAYOUTS[layout](data["X"].toarray())
    before, pools = threading.active_count(), []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads):
            pools.append(threads)
            super().__init__(threads)

    monkeypatch.setattr("rankrls.core.spaces.products.ThreadPoolExecutor", Pool)

    def fit(n_jobs):
        seen = []
        pools.clear()

        def look(_):
            seen.append(blas_threads())
            return len(seen) == 3

        ranker = RankRLS(solver="cg", n_jobs=n_jobs)
        ranker.fit(X, data["y"], qid=data["qid"], callback=look)
        assert threading.active_count() == before
        return max(seen), max(pools, default=0)

    with threadpool_limits(2, user_api="blas"):
        allowed = blas_threads()
        assert fit(1) == (1, 0)
        assert fit(None)[0] == allowed
        assert blas_threads() == allowed
    with threadpool_limits(1, user_api="blas"):
        assert fit(None) == (1, 0)
        assert fit(3) == (1, 3 if layout == "csr" else 0)


# ---------------------------------------------------------------------------- what cg does not do


@pytest.mark.parametrize("ask", ["std", "proba", "likelihood"])
def test_no_uncertainties(ask, data):
    ranker = RankRLS(solver="cg").fit(data["X"], data["y"], qid=data["qid"])
    call = {
        "std": lambda: ranker.predict(data["X"], return_std=True),
        "proba": lambda: ranker.preference_proba(data["X"][:2], data["X"][2:4]),
        "likelihood": ranker.log_marginal_likelihood,
    }[ask]
    with pytest.raises(ValueError, match=r"solver='cg' does not factorise.*solver='primal'"):
        call()


def test_auto_iterates_where_direct_solvers_are_too_large(monkeypatch, data):
    X, y, qid = data["X"], data["y"], data["qid"]
    assert RankRLS().fit(X, y, qid=qid).solver_ == "primal"
    monkeypatch.setattr("rankrls.core.spaces.spaces.DIRECT_SIZE", 200)
    assert RankRLS().fit(X, y, qid=qid).solver_ == "cg"
    assert RankRLS().fit(X.toarray(), y, qid=qid).solver_ == "primal"
    assert RankRLS(kernel="rbf").fit(X, y, qid=qid).solver_ == "dual"
    monkeypatch.setattr("rankrls._resources.budget", lambda: 8 * 200**2)
    assert RankRLS().fit(X.toarray(), y, qid=qid).solver_ == "cg"


def test_callback_sees_every_iteration_and_can_stop(data):
    seen = []

    def stop_at_four(iteration):
        seen.append(iteration)
        return iteration.n_iter == 4

    ranker = RankRLS(0.01, solver="cg")
    ranker.fit(data["X"], data["y"], qid=data["qid"], callback=stop_at_four)
    assert [iteration.n_iter for iteration in seen] == [1, 2, 3, 4]
    assert ranker.n_iter_ == 4
    assert seen[0].error is None
    assert seen[0].residual > seen[-1].residual
    assert RankRLS(0.0, early_stopping=True).fit(**data, callback=stop_at_four).n_iter_ == 4
    assert seen[-1].error >= seen[-1].best_error


# ---------------------------------------------------------------------------- early stopping


def explicit_curve(data, n_iter, alpha=0.0):
    """Validation error of each iteration, by running CG afresh to that iteration."""
    graph = PreferenceGraph.from_scores(data["y"], qid=data["qid"])
    X, L = data["X"], graph.laplacian()
    X_val, y_val, q_val = data["eval_set"]
    w, r = np.zeros(X.shape[1]), X.T @ graph.target()
    p, errors, models = r.copy(), [], []
    for _ in range(n_iter):
        Ap = X.T @ (L @ (X @ p)) + alpha * p
        a = (r @ r) / (p @ Ap)
        w, new = w + a * p, r - a * Ap
        p, r = new + (new @ new) / (r @ r) * p, new
        errors.append(pairwise_error(y_val, X_val @ w, qid=q_val))
        models.append(w.copy())
    return np.array(errors), models


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_method_two_stops_by_the_validation_error(alpha, data):
    """P3's second method: the best of all iterations is kept."""
    ranker = RankRLS(alpha, early_stopping=True, n_iter_no_change=6).fit(**data)
    curve = ranker.validation_curve_
    errors, models = explicit_curve(data, ranker.n_iter_, alpha)
    assert_allclose(curve, errors, atol=1e-12)
    assert_array_equal(ranker.validation_iterations_, np.arange(1, ranker.n_iter_ + 1))
    assert ranker.best_iteration_ == np.argmin(errors) + 1
    assert ranker.n_iter_ == ranker.best_iteration_ + 6
    close(ranker.coef_, models[ranker.best_iteration_ - 1])
    X_val, y_val, q_val = data["eval_set"]
    assert_allclose(1 - ranker.score(X_val, y_val, qid=q_val), curve.min(), atol=1e-12)


@pytest.mark.parametrize("precomputed", [False, True])
def test_kernels_stop_early_in_the_space_of_functions(precomputed):
    """As conjugate gradients on features of the kernel: any that have these inner products."""
    rng = np.random.default_rng(0)
    rows, y, qid = rng.standard_normal((90, 3)), rng.standard_normal(90), np.repeat(range(9), 10)
    train = qid < 6
    K = rbf_kernel(rows, gamma=0.5)
    values, vectors = np.linalg.eigh(K)
    Z = vectors * np.sqrt(np.maximum(values, 0))
    held = {"y": y[train], "qid": qid[train]}
    errors, models = explicit_curve(
        {"X": Z[train], **held, "eval_set": (Z[~train], y[~train], qid[~train])}, 12
    )
    options = {"kernel": "precomputed"} if precomputed else {"kernel": "rbf", "gamma": 0.5}
    X, X_val = (K[train], K[~train]) if precomputed else (rows[train], rows[~train])
    X, X_val = (X[:, train], X_val[:, train]) if precomputed else (X, X_val)
    ranker = RankRLS(0.0, early_stopping=True, n_iter_no_change=6, **options)
    ranker.fit(X, **held, eval_set=(X_val, y[~train], qid[~train]))
    n = min(12, ranker.n_iter_)
    assert_allclose(ranker.validation_curve_[:n], errors[:n], atol=1e-12)
    wanted = Z[~train] @ models[ranker.best_iteration_ - 1]
    found = ranker.predict(X_val)
    close(found - found[0], wanted - wanted[0], 1e-7)


def test_method_one_is_the_best_of_the_converged(data):
    """P3's first method: every alpha to convergence, chosen by the validation error."""
    search = RankRLSCV(ALPHAS, solver="cg", tol=1e-10).fit(**data)
    X_val, y_val, q_val = data["eval_set"]
    scores = [
        RankRLS(alpha, solver="primal")
        .fit(data["X"], data["y"], qid=data["qid"])
        .score(X_val, y_val, qid=q_val)
        for alpha in ALPHAS
    ]
    assert_allclose(search.cv_results_["mean_score"], scores, atol=1e-12)
    assert search.best_score_ == pytest.approx(max(scores), abs=1e-12)
    best = RankRLS(search.alpha_, solver="primal").fit(data["X"], data["y"], qid=data["qid"])
    close(search.coef_, best.coef_, 1e-7)
    assert not hasattr(search, "validation_curve_")


def test_method_three_is_the_best_of_all(data):
    """P3's third method: every alpha stopped early, from one run."""
    search = RankRLSCV(ALPHAS, solver="cg", early_stopping=True, n_iter_no_change=5).fit(**data)
    table = search.validation_curve_
    assert table.shape == (len(search.validation_iterations_), len(ALPHAS))
    assert_array_equal(search.validation_iterations_, np.arange(1, search.n_iter_ + 1))
    followed = (~np.isnan(table)).sum(axis=0)
    best = np.nanargmin(table, axis=0) + 1
    assert (followed <= best + 5).all()  # patience is counted in iterations
    for s, alpha in enumerate(ALPHAS):
        followed = ~np.isnan(table[:, s])
        checked = search.validation_iterations_[followed]
        errors, _ = explicit_curve(data, checked[-1], alpha)
        assert_allclose(table[followed, s], errors[checked - 1], atol=1e-12)
    assert search.best_score_ == pytest.approx(1 - np.nanmin(table), abs=1e-12)
    best = int(np.flatnonzero(search.cv_results_["alpha"] == search.alpha_)[0])
    _, models = explicit_curve(data, search.best_iteration_, ALPHAS[best])
    close(search.coef_, models[-1])
    X_val, y_val, q_val = data["eval_set"]
    assert search.score(X_val, y_val, qid=q_val) == pytest.approx(search.best_score_, abs=1e-12)


def test_equal_scores_prefer_the_largest_alpha_and_the_first_iteration():
    """One feature: every model ranks alike."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1))
    search = RankRLSCV([0.1, 1.0, 10.0], solver="cg", early_stopping=True, n_iter_no_change=2)
    search.fit(x, x[:, 0], eval_set=(x, x[:, 0]))
    assert search.alpha_ == 10.0
    assert search.best_iteration_ == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_internal_split_is_by_whole_queries(layout, data):
    X, y, qid = LAYOUTS[layout](data["X"].toarray()), data["y"], data["qid"]
    ranker = RankRLS(0.0, early_stopping=True, validation_fraction=0.2, random_state=3)
    ranker.fit(X, y, qid=qid)
    # The same by hand: the queries that were drawn, as an eval_set.
    informative = [q for q in np.unique(qid) if len(np.unique(y[qid == q])) > 1]
    drawn = np.random.RandomState(3).permutation(informative)[: round(0.2 * len(informative))]
    out = np.isin(qid, drawn)
    X = data["X"]
    by_hand = RankRLS(0.0, early_stopping=True)
    by_hand.fit(X[~out], y[~out], qid=qid[~out], eval_set=(X[out], y[out], qid[out]))
    close(ranker.coef_, by_hand.coef_)
    assert ranker.n_pairs_ == by_hand.n_pairs_
    assert_allclose(ranker.validation_curve_, by_hand.validation_curve_, atol=1e-12)


def test_internal_split_of_rows_and_of_pairs(data):
    ranker = RankRLS(0.0, early_stopping=True, random_state=0).fit(data["X"], data["y"])
    assert ranker.best_iteration_ >= 1
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(data["y"]), (500, 2))
    pairs = pairs[data["y"][pairs[:, 0]] > data["y"][pairs[:, 1]]]
    ranker = RankRLS(0.0, early_stopping=True, random_state=0).fit(data["X"], pairs=pairs)
    drawn = np.random.RandomState(0).permutation(len(pairs))[: round(0.1 * len(pairs))]
    held = PreferenceGraph.from_pairs(pairs[drawn], n_rows=len(data["y"]))
    by_hand = RankRLS(0.0, early_stopping=True)
    by_hand.fit(data["X"], pairs=np.delete(pairs, drawn, axis=0), eval_set=(data["X"], held))
    close(ranker.coef_, by_hand.coef_)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "gamma": 0.01}])
def test_direct_solvers_choose_by_held_out_rows(options, data):
    X, y, qid, (X_val, y_val, q_val) = *(data[key] for key in ("X", "y", "qid")), data["eval_set"]
    X, X_val = X.toarray(), X_val.toarray()
    rankers = [RankRLS(alpha, **options).fit(X, y, qid=qid) for alpha in ALPHAS]
    errors = [pairwise_error(y_val, one.predict(X_val), qid=q_val) for one in rankers]
    search = RankRLSCV(ALPHAS, **options).fit(X, y, qid=qid, eval_set=(X_val, y_val, q_val))
    assert search.best_score_ == pytest.approx(1 - min(errors))
    close(search.predict(X_val), rankers[np.argmin(errors)].predict(X_val))
    # Without an eval_set some queries are held out; the model is that of all of them.
    search = RankRLSCV(ALPHAS, cv="validation", random_state=0, **options).fit(X, y, qid=qid)
    ranker = RankRLS(search.alpha_, **options).fit(X, y, qid=qid)
    close(search.predict(X_val), ranker.predict(X_val))


def test_float32_stays(data):
    exact = RankRLS(10.0, solver="primal").fit(data["X"], data["y"], qid=data["qid"])
    for X in (data["X"].astype(np.float32), data["X"].toarray().astype(np.float32)):
        cg = RankRLS(10.0, solver="cg", tol=1e-12).fit(X, data["y"], qid=data["qid"])
        assert cg.coef_.dtype == np.float32
        close(cg.coef_, exact.coef_, 1e-4)


# ---------------------------------------------------------------------------- bad input

X, Y, Q = np.eye(6), np.arange(6.0), np.repeat([0, 1], 3)
CG, STOPPED, VALIDATED = {"solver": "cg"}, {"early_stopping": True}, {"eval_set": (X, Y)}
BAD = {
    "basis": (CG | {"basis": 2}, {}, "basis belongs to solver='nystroem'"),
    "max_iter": (CG | {"max_iter": 0}, {}, "max_iter must be an integer >= 1"),
    "direct": (STOPPED | {"solver": "dual"}, {}, "belongs to solver='cg'"),
    "unused": (CG, VALIDATED, "set early_stopping=True"),
    "patience": (STOPPED | {"n_iter_no_change": 0}, VALIDATED, "n_iter_no_change must be an"),
    "not a tuple": (STOPPED, {"eval_set": X}, r"must be one tuple \(X_val, y_val\)"),
    "no qid": (STOPPED, VALIDATED | {"qid": Q}, "needs it too"),
    "outputs": (STOPPED, {"eval_set": (X, np.column_stack([Y, Y]))}, "eval_set has 2 output"),
    "one query": (STOPPED, {"qid": np.zeros(6)}, "of 1 queries with a pair leaves too few"),
    "both": (STOPPED, {"pairs": [(0, 1)]}, "scores and pairs together cannot be split"),
    "callback": (CG, {"callback": 3}, "callback must be a function"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    options, fit, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        RankRLS(**options).fit(X, Y, **fit)
