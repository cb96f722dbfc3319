"""solver="cg" and early stopping, as users call them."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from cases import COSTS, TIES, WEIGHTINGS, Case
from rankrls import PreferenceGraph, RankRLS, RankRLSCV, regularization_path
from rankrls.datasets import make_ranking
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
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("weight", [None, "zeros"])
def test_same_as_the_direct_solver(cost, ties, weighting, weight):
    case = Case(1, cost=cost, ties=ties, query_weighting=weighting, weight=weight, n_pairs=5)
    X = case.rng.standard_normal((case.m, 8)) + 3.0
    for alpha in (1e-3, 1.0, 1e4):
        direct = RankRLS(alpha, solver="primal", **case.options).fit(X, case.y, **case.fit)
        for layout in LAYOUTS.values():
            cg = RankRLS(alpha, solver="cg", tol=1e-12, **case.options)
            cg.fit(layout(X), case.y, **case.fit)
            close(cg.coef_, direct.coef_)
            assert cg.n_pairs_ == direct.n_pairs_
            assert cg.solver_ == "cg"


def test_pairs_alone():
    case = Case(2, m=30, scored=False, n_pairs=60)
    X = case.rng.standard_normal((30, 40))  # more columns than rows
    direct = RankRLS(0.1, solver="dual").fit(X, **case.fit)
    cg = RankRLS(0.1, solver="cg", tol=1e-12).fit(X, **case.fit)
    close(cg.coef_, direct.coef_)


@pytest.mark.parametrize("cost", ["magnitude", "unit"])
def test_several_outputs(cost, data):
    Y = np.column_stack([data["y"], np.round(data["y"]), -(data["y"] ** 2)])
    options = {"cost": cost, "alpha": 2.0}
    direct = RankRLS(solver="primal", **options).fit(data["X"], Y, qid=data["qid"])
    cg = RankRLS(solver="cg", tol=1e-11, **options).fit(data["X"], Y, qid=data["qid"])
    assert cg.coef_.shape == (3, 300)
    close(cg.coef_, direct.coef_)
    close(cg.predict(data["X"]), direct.predict(data["X"]))


def test_a_path_from_one_run(data):
    X, y, qid = data["X"], data["y"], data["qid"]
    alphas = np.array([4.0, 0.25, 64.0, 1.0])  # in any order
    path = regularization_path(RankRLS(solver="cg", tol=1e-11), X, y, qid=qid, alphas=alphas)
    assert path.coef.shape == (4, 300)
    for alpha, coef in zip(alphas, path.coef, strict=True):
        close(coef, RankRLS(alpha, solver="primal").fit(X, y, qid=qid).coef_)


def test_row_order_does_not_matter(data):
    X, y, qid = data["X"], data["y"], data["qid"]
    order = np.random.default_rng(1).permutation(len(y))
    one = RankRLS(solver="cg", tol=1e-10).fit(X, y, qid=qid)
    other = RankRLS(solver="cg", tol=1e-10).fit(X[order], y[order], qid=qid[order])
    close(one.coef_, other.coef_, 1e-7)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float32_is_as_good_as_float32_can_be(layout, data):
    X = data["X"]
    exact = RankRLS(10.0, solver="primal").fit(X, data["y"], qid=data["qid"])
    X = LAYOUTS[layout](X.toarray().astype(np.float32))
    cg = RankRLS(10.0, solver="cg", tol=1e-12).fit(X, data["y"], qid=data["qid"])
    assert cg.coef_.dtype == np.float32
    close(cg.coef_, exact.coef_, 1e-4)


def test_offset_features(data):
    """Products of float64 bear an offset of a thousand; those of float32 do not, and say so."""
    X = data["X"].toarray()
    exact = RankRLS(10.0, solver="primal").fit(X, data["y"], qid=data["qid"])
    cg = RankRLS(10.0, solver="cg", tol=1e-8).fit(X + 1e3, data["y"], qid=data["qid"])
    close(cg.coef_, exact.coef_, 1e-4)
    X = (X + 1e3).astype(np.float32)
    with pytest.warns(ConvergenceWarning, match="centre and scale the features, pass them as"):
        RankRLS(10.0, solver="cg").fit(X, data["y"], qid=data["qid"])


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_sparse_x_is_left_alone(layout, data):
    X = LAYOUTS[layout](data["X"])
    before = X.copy()
    RankRLS(solver="cg").fit(X, data["y"], qid=data["qid"])
    assert X.format == layout
    assert (before != X).nnz == 0


def test_not_converged(data):
    ranker = RankRLS(1e-6, solver="cg", max_iter=3)
    with pytest.warns(ConvergenceWarning) as caught:
        ranker.fit(data["X"], data["y"], qid=data["qid"])
    text = str(caught[0].message)
    assert "after 3 iterations" in text
    assert "residual of" in text
    assert "raise max_iter" in text
    assert ranker.n_iter_ == 3


def test_tolerance_is_that_of_the_true_residual(data):
    graph = PreferenceGraph.from_scores(data["y"], qid=data["qid"])
    X, L, r = data["X"], graph.laplacian(), graph.target()
    for tol in (1e-3, 1e-8):
        w = RankRLS(0.5, solver="cg", tol=tol).fit(X, data["y"], qid=data["qid"]).coef_
        residual = X.T @ r - X.T @ (L @ (X @ w)) - 0.5 * w
        assert np.linalg.norm(residual) <= tol * np.linalg.norm(X.T @ r) * (1 + 1e-6)


def test_preconditioning_makes_badly_scaled_features_easy():
    X, y, qid = make_ranking(n_queries=30, random_state=0, return_X_y_qid=True)
    X = X * 10.0 ** np.arange(X.shape[1])[None] ** 0.5
    ranker = RankRLS(1.0, solver="cg", tol=1e-10).fit(X, y, qid=qid)
    assert ranker.n_iter_ <= 3 * X.shape[1]
    close(ranker.predict(X), RankRLS(1.0, solver="primal").fit(X, y, qid=qid).predict(X), 1e-6)


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
    monkeypatch.setattr("rankrls.core.ridge.choice.DIRECT_SIZE", 200)
    assert RankRLS().fit(X, y, qid=qid).solver_ == "cg"
    assert RankRLS().fit(X.toarray(), y, qid=qid).solver_ == "primal"
    assert RankRLS(kernel="rbf").fit(X, y, qid=qid).solver_ == "dual"
    monkeypatch.setattr("rankrls._memory.budget", lambda: 8 * 200**2)
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


def test_progress_is_on_stderr(data, capsys):
    RankRLS(solver="cg", verbose=1).fit(data["X"], data["y"], qid=data["qid"])
    out, err = capsys.readouterr()
    assert out == ""
    assert "residual" in err
    RankRLS(early_stopping=True, verbose=1, random_state=0).fit(
        data["X"], data["y"], qid=data["qid"]
    )
    assert "validation error" in capsys.readouterr().err


# ---------------------------------------------------------------------------- early stopping


def literal_curve(data, n_iter, alpha=0.0):
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


def test_method_two_stops_by_the_validation_error(data):
    """P3's second method: alpha = 0, the best of all iterations is kept."""
    ranker = RankRLS(alpha=0.0, early_stopping=True, n_iter_no_change=6).fit(**data)
    curve = ranker.validation_curve_
    errors, models = literal_curve(data, ranker.n_iter_)
    assert_allclose(curve, errors, atol=1e-12)
    assert_array_equal(ranker.validation_iterations_, np.arange(1, ranker.n_iter_ + 1))
    assert ranker.best_iteration_ == np.argmin(errors) + 1
    assert ranker.n_iter_ == ranker.best_iteration_ + 6
    close(ranker.coef_, models[ranker.best_iteration_ - 1])
    X_val, y_val, q_val = data["eval_set"]
    assert_allclose(1 - ranker.score(X_val, y_val, qid=q_val), curve.min(), atol=1e-12)


def test_early_stopping_with_alpha(data):
    ranker = RankRLS(alpha=3.0, early_stopping=True).fit(**data)
    errors, models = literal_curve(data, ranker.n_iter_, alpha=3.0)
    assert_allclose(ranker.validation_curve_, errors, atol=1e-12)
    close(ranker.coef_, models[ranker.best_iteration_ - 1])


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
    for s, alpha in enumerate(ALPHAS):
        followed = ~np.isnan(table[:, s])
        checked = search.validation_iterations_[followed]
        errors, _ = literal_curve(data, checked[-1], alpha)
        assert_allclose(table[followed, s], errors[checked - 1], atol=1e-12)
    assert search.best_score_ == pytest.approx(1 - np.nanmin(table), abs=1e-12)
    best = int(np.flatnonzero(search.cv_results_["alpha"] == search.alpha_)[0])
    _, models = literal_curve(data, search.best_iteration_, ALPHAS[best])
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


def test_several_outputs_stop_together(data):
    X_val, y_val, q_val = data["eval_set"]
    for cost in ("magnitude", "unit"):
        ranker = RankRLS(0.0, early_stopping=True, cost=cost)
        ranker.fit(
            data["X"],
            np.column_stack([data["y"], np.round(data["y"])]),
            qid=data["qid"],
            eval_set=(X_val, np.column_stack([y_val, np.round(y_val)]), q_val),
        )
        assert ranker.coef_.shape == (2, 300)
        assert ranker.validation_curve_[ranker.best_iteration_ - 1] == pytest.approx(
            1 - ranker.score(X_val, np.column_stack([y_val, np.round(y_val)]), qid=q_val)
        )


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
    kept = np.delete(pairs, drawn, axis=0)
    held = PreferenceGraph.from_pairs(pairs[drawn], n_rows=len(data["y"]))
    by_hand = RankRLS(0.0, early_stopping=True)
    by_hand.fit(data["X"], pairs=kept, eval_set=(data["X"], held))
    close(ranker.coef_, by_hand.coef_)


def test_refit_on_all_rows_after_choosing_alpha(data):
    """Without early stopping an internal split only chooses alpha."""
    search = RankRLSCV(ALPHAS, solver="cg", tol=1e-10, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best alpha")
        search.fit(data["X"], data["y"], qid=data["qid"])
    ranker = RankRLS(search.alpha_, solver="primal").fit(data["X"], data["y"], qid=data["qid"])
    close(search.coef_, ranker.coef_, 1e-7)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "gamma": 0.01}])
def test_direct_solvers_choose_by_an_eval_set_too(options, data):
    search = RankRLSCV(ALPHAS, scoring="ndcg@5", **options)
    X_val, y_val, q_val = data["eval_set"]
    X_val = X_val.toarray()
    y, y_val = np.exp(data["y"] / 4), np.exp(y_val / 4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best alpha")
        search.fit(data["X"].toarray(), y, qid=data["qid"], eval_set=(X_val, y_val, q_val))
    ranker = RankRLS(search.alpha_, **options).fit(data["X"].toarray(), y, qid=data["qid"])
    close(search.predict(X_val), ranker.predict(X_val))


def test_max_iter_before_the_best(data):
    with pytest.warns(ConvergenceWarning, match="early stopping reached max_iter=2"):
        ranker = RankRLS(0.0, early_stopping=True, max_iter=2).fit(**data)
    assert ranker.n_iter_ == 2


def test_callback_of_early_stopping(data):
    seen = []
    ranker = RankRLS(0.0, early_stopping=True)
    ranker.fit(**data, callback=lambda state: (seen.append(state), state.n_iter == 3)[1])
    assert ranker.n_iter_ == 3
    assert_allclose([state.error for state in seen], ranker.validation_curve_)
    assert seen[-1].best_iteration == ranker.best_iteration_


def test_refitting_forgets_the_curve(data):
    ranker = RankRLS(early_stopping=True).fit(**data)
    assert hasattr(ranker, "validation_curve_")
    ranker.set_params(early_stopping=False).fit(data["X"], data["y"], qid=data["qid"])
    assert not hasattr(ranker, "validation_curve_")
    assert not hasattr(ranker, "best_iteration_")


def test_pickle(data):
    ranker = RankRLS(early_stopping=True).fit(**data)
    copy = pickle.loads(pickle.dumps(ranker))
    assert_array_equal(copy.predict(data["X"]), ranker.predict(data["X"]))


# ---------------------------------------------------------------------------- bad input

X, Y, Q = np.eye(6), np.arange(6.0), np.repeat([0, 1], 3)
BAD = {
    "kernel": (RankRLS(kernel="rbf", solver="cg"), {}, "needs kernel='linear'"),
    "basis": (RankRLS(solver="cg", basis=2), {}, "basis belongs to solver='nystroem'"),
    "alpha 0": (RankRLS(0.0, solver="cg"), {}, "alpha must be finite and > 0"),
    "alphas 0": (RankRLSCV([0.0, 1.0], solver="cg"), {}, "alphas must be finite and > 0"),
    "direct": (RankRLS(solver="dual", early_stopping=True), {}, "belongs to solver='cg'"),
    "unused": (RankRLS(solver="cg"), {"eval_set": (X, Y)}, "set early_stopping=True"),
    "max_iter": (RankRLS(solver="cg", max_iter=0), {}, "max_iter must be an integer >= 1"),
    "tol": (RankRLS(solver="cg", tol=0.0), {}, "tol must be finite and > 0"),
    "flag": (RankRLS(early_stopping="yes"), {}, "early_stopping must be True or False"),
    "fraction": (
        RankRLS(early_stopping=True, validation_fraction=1.0),
        {},
        "validation_fraction must be below 1",
    ),
    "patience": (
        RankRLS(early_stopping=True, n_iter_no_change=0),
        {"eval_set": (X, Y)},
        "n_iter_no_change must be an integer >= 1",
    ),
    "not a tuple": (RankRLS(early_stopping=True), {"eval_set": X}, r"must be \(X_val, y_val\)"),
    "list of tuples": (
        RankRLS(early_stopping=True),
        {"eval_set": [(X, Y), (X, Y)]},
        "not a list of them",
    ),
    "no qid": (RankRLS(early_stopping=True), {"qid": Q, "eval_set": (X, Y)}, "needs it too"),
    "columns": (RankRLS(early_stopping=True), {"eval_set": (X[:, :3], Y)}, "X has 3 features"),
    "outputs": (
        RankRLS(early_stopping=True),
        {"eval_set": (X, np.column_stack([Y, Y]))},
        "eval_set has 2 output",
    ),
    "constant": (
        RankRLS(early_stopping=True),
        {"eval_set": (X, np.ones(6))},
        "no query has a pair to validate on",
    ),
    "nan": (RankRLS(early_stopping=True), {"eval_set": (X * np.nan, Y)}, "contains NaN"),
    "one query": (
        RankRLS(early_stopping=True),
        {"qid": np.zeros(6)},
        "of 1 queries with a pair leaves too few",
    ),
    "both": (
        RankRLS(early_stopping=True),
        {"pairs": [(0, 1)]},
        "scores and pairs together cannot be split",
    ),
    "cv": (RankRLSCV([1.0], solver="cg", cv=3), {}, "leave cv='auto'"),
    "callback": (RankRLS(solver="cg"), {"callback": 3}, "callback must be a function"),
    "overflow": (RankRLS(solver="cg"), {"sample_weight": np.full(6, 1e200)}, "overflow"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    ranker, fit, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        ranker.fit(X, Y, **fit)
