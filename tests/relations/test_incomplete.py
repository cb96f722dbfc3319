"""Incomplete relations: routes of the solver, their convergence, and early stopping."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import ConditionalRankRLS, RankRLS, regularization_path
from rankrls._relation_labels import Observations
from rankrls.core.relations import incomplete
from rankrls.core.relations.incomplete import Validation, hold_out_cells
from rankrls.metrics import conditional_scores


def smooth_problem(p=25, g=30, share=0.6, seed=8, **options):
    """Labels that are interpolated at small alphas."""
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((p, 8)), rng.standard_normal((g, 8))
    sign = {None: 0, "symmetric": 1, "reciprocal": -1}[options.get("relation")]
    Z = X if sign else Z
    Y = rng.standard_normal((p, len(Z)))
    seen = rng.random(Y.shape) < share
    if sign:
        Y, seen = Y + sign * Y.T, seen | seen.T
    Y[~seen] = np.nan
    return ConditionalRankRLS(kernel="rbf", **options), (X, Y, None if sign else Z)


def agrees_with_factorisation(ranker, data, tolerance):
    got = ranker.fit(*data).predict(data[0], data[2])
    expected = ranker.set_params(solver="dual").fit(*data).predict(data[0], data[2])
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("share", [0.7, 0.15])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ranking"},
        {"loss": "regression"},
        {"loss": "regression", "fit_offsets": True},
        {"loss": "regression", "fit_offsets": "both"},
        {"loss": "regression", "pairwise": "cartesian"},
        {"loss": "ranking", "relation": "symmetric"},
        {"loss": "regression", "relation": "reciprocal"},
    ],
    ids=str,
)
def test_small_alphas_of_smooth_kernels_converge_within_the_default(options, share):
    ranker, data = smooth_problem(share=share, **options)
    for alpha in (2.0**-15, 2.0**-8, 1.0):
        ranker.set_params(alpha=alpha, solver="cg")  # a ConvergenceWarning would fail
        agrees_with_factorisation(ranker, data, 1e-4)


@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_half_of_the_pairs_and_a_small_alpha(loss):
    """150 × 120 objects, alpha 1e-3: 500 iterations were not enough once."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((150, 5)), rng.standard_normal((120, 5))
    Y = np.sin(X[:, :1] + Z[:, 0]) + 0.3 * rng.standard_normal((150, 120))
    Y[rng.random(Y.shape) < 0.5] = np.nan
    ranker = ConditionalRankRLS(1e-3, kernel="rbf", gamma=0.1, loss=loss).fit(X, Y, Z)
    assert (ranker.solver_, ranker.n_iter_ < 120) == ("cg", True)
    tight = ConditionalRankRLS(1e-3, kernel="rbf", gamma=0.1, loss=loss, tol=1e-10, max_iter=500)
    F, exact = (model.predict(X, Z) for model in (ranker, tight.fit(X, Y, Z)))
    if loss == "ranking":
        F, exact = (part - part.mean(axis=1, keepdims=True) for part in (F, exact))
    assert np.linalg.norm(F - exact) < 2e-6 * np.linalg.norm(exact)  # tol is the error of f


def test_what_does_not_converge_is_factorised_or_told(monkeypatch):
    ranker, data = smooth_problem(loss="ranking", max_iter=3, alpha=1e-5)
    monkeypatch.setattr("rankrls.core.relations.problem.MAX_DUAL_CELLS", 10)
    assert ranker.fit(*data).solver_ == "dual"
    with pytest.warns(
        ConvergenceWarning, match=r"after 3 iterations with an error > tol.*add 'identity'"
    ):
        ranker.set_params(solver="cg").fit(*data)


def test_labels_that_no_function_reaches(monkeypatch):
    """A large constant, beside which the residual of antisymmetric functions once was small."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 3)), rng.standard_normal((20, 20)) + 1e6
    ranker = ConditionalRankRLS(pairwise="ranking", kernel="rbf", loss="regression", solver="cg")
    with pytest.warns(ConvergenceWarning):
        ranker.fit(X, Y)
    monkeypatch.setattr("rankrls.core.relations.problem.RelationProblem._choose", lambda _: "cg")
    agrees_with_factorisation(ranker.set_params(solver="auto"), (X, Y, None), 1e-6)


def test_a_path_is_solved_from_large_to_small_alphas():
    ranker, (X, Y, Z) = smooth_problem(loss="regression")
    alphas = [2.0**-12, 1.0, 2.0**-6, 64.0]
    path = regularization_path(ranker.set_params(solver="cg", tol=1e-8), X, Y, Z=Z, alphas=alphas)
    for k, alpha in enumerate(alphas):
        single = ranker.set_params(alpha=alpha, solver="dual").fit(X, Y, Z)
        np.testing.assert_allclose(
            path.predict(X, Z)[k], single.predict(X, Z), atol=1e-6 * np.nanmax(np.abs(Y))
        )


@pytest.mark.parametrize(("alpha", "share"), [(0.1, 0.6), (1e-6, 0.3)])
def test_products_in_single_precision_are_refined(alpha, share, monkeypatch):
    """Solutions beyond single precision; double precision takes over if it does not help."""
    ranker, data = smooth_problem(40, 35, share, loss="regression", alpha=alpha, max_iter=3000)
    monkeypatch.setattr(incomplete, "LARGE", 0)
    monkeypatch.setattr(
        "rankrls.core.relations.problem.RelationProblem._in_eigenvectors", lambda *_: True
    )
    agrees_with_factorisation(ranker.set_params(solver="cg", tol=1e-10), data, 1e-8)


@pytest.mark.parametrize("options", [{}, {"loss": "regression"}, {"relation": "reciprocal"}])
def test_forms_of_products_agree(options, monkeypatch):
    """All pairs, and the cells one by one."""
    ranker, data = smooth_problem(share=0.3, solver="cg", max_iter=1000, tol=1e-9, **options)
    for cost, in_eigenvectors in ((0, True), (10**9, False), (0, False)):
        monkeypatch.setattr(incomplete, "SAMPLED_COST", cost)
        monkeypatch.setattr(
            "rankrls.core.relations.problem.RelationProblem._in_eigenvectors",
            lambda *_, chosen=in_eigenvectors: chosen,
        )
        agrees_with_factorisation(ranker.set_params(solver="cg"), data, 1e-6)


# ---------------------------------------------------------------------- early stopping


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("kernel", ["features", "kernel matrices"])
def test_early_stopping_has_the_iterates_of_rankrls_on_products_of_features(kernel, alpha):
    rng = np.random.default_rng(3)
    X, Z = rng.standard_normal((12, 3)), rng.standard_normal((9, 2))
    Y = X @ rng.standard_normal((3, 2)) @ Z.T + rng.standard_normal((12, 9))
    held = hold_out_cells(Observations.read(Y), 0.4, np.random.RandomState(0), mirror=False)
    rows, cols = np.divmod(np.arange(Y.size), 9)
    products = (X[rows][:, :, None] * Z[cols][:, None, :]).reshape(Y.size, -1)
    options = {"early_stopping": True, "n_iter_no_change": 5, "tol": 1e-9}
    # Rows without training pairs are no queries; weighting by size is that of relations.
    expected = RankRLS(alpha, solver="cg", query_weighting="size", **options)
    train, test = ~held, held
    expected.fit(
        products[train],
        Y.ravel()[train],
        qid=rows[train],
        eval_set=(products[test], Y.ravel()[test], rows[test]),
    )
    inputs = (X, Z) if kernel == "features" else (X @ X.T, Z @ Z.T)
    name = "linear" if kernel == "features" else "precomputed"
    ranker = ConditionalRankRLS(
        alpha, kernel=name, validation_fraction=0.4, random_state=0, **options
    ).fit(inputs[0], Y, inputs[1])
    assert ranker.best_iteration_ == expected.best_iteration_
    n = min(len(ranker.validation_curve_), len(expected.validation_curve_))
    np.testing.assert_allclose(ranker.validation_curve_[:n], expected.validation_curve_[:n])
    F = ranker.predict(*inputs) - expected.predict(products).reshape(Y.shape)
    assert np.abs(F - F.mean(axis=1, keepdims=True)).max() < 1e-6 * np.abs(Y).max()


@pytest.mark.parametrize("pairwise", ["polynomial", "mlpk", "additive", "cartesian"])
@pytest.mark.parametrize("relation", [None, "symmetric"])
def test_early_stopping_of_other_kernels_ends_at_the_minimum(pairwise, relation):
    """Without patience limits the iterates converge to the closed form."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((10, 3))
    Y = rng.standard_normal((10, 10))
    Y = Y + Y.T
    options = {"pairwise": pairwise, "relation": relation, "kernel": "rbf", "loss": "regression"}
    ranker = ConditionalRankRLS(0.5, **options, random_state=0, validation_fraction=0.3)
    mirror = relation is not None or pairwise == "mlpk"
    labels = Observations.read(Y)
    held = hold_out_cells(labels, 0.3, np.random.RandomState(0), mirror=mirror)
    rest = np.where(held.reshape(10, 10), np.nan, Y)
    expected = ConditionalRankRLS(0.5, **options, solver="dual").fit(X, rest).predict(X)
    ranker.set_params(early_stopping=True, n_iter_no_change=1000, max_iter=1000, tol=1e-12)
    problem = ranker._problem(ranker._read(X, Y, None))
    seen = []
    last = Validation(
        problem.sides,
        labels.select(held),
        lambda *_: seen.append(1) or len(seen) / 1e4,
    )
    problem = problem.select(~held)
    model = problem.solve(np.array([0.5]), "cg", ranker._iteration_options(), validation=last)
    rows, cols = np.divmod(np.arange(100), 10)
    got = model.predict(problem.sides, rows, cols).reshape(10, 10)
    np.testing.assert_allclose(got, expected, atol=1e-6 * np.abs(expected).max())


def test_early_stopping_that_does_not_stop_warns():
    ranker = ConditionalRankRLS(kernel="rbf", early_stopping=True, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="early stopping reached max_iter=3"):
        ranker.fit(*validation_problem(None))


def test_early_stopping_on_few_features_is_close_to_the_closed_form():
    """On singular kernels, too, where LKLa = Ly has no solution: .2 instead of .08 once."""
    errors = {"early": [], "closed": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, W = rng.standard_normal((80, 8)), rng.standard_normal((8, 8))
        signal = X @ W @ X.T
        Y = signal + 2.0 * signal.std() * rng.standard_normal(signal.shape)
        train, new = slice(0, 40), slice(40, 80)
        for name, options in {
            "early": {"early_stopping": True, "random_state": 0, "alpha": 0.0},
            "closed": {"alpha": 100.0},
        }.items():
            ranker = ConditionalRankRLS(**options).fit(X[train], Y[train, train], X[train])
            F = ranker.predict(X[new], X[new])
            errors[name].append(1 - np.nanmean(conditional_scores(signal[new, new], F)))
    assert np.mean(errors["early"]) < 1.3 * np.mean(errors["closed"])


# ---------------------------------------------------------------------- validation sets


def validation_problem(relation, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 4))
    Z = X if relation else rng.standard_normal((36, 3))
    weights = rng.standard_normal((4, Z.shape[1]))
    Y = np.tanh(X @ weights @ Z.T) + 0.5 * rng.standard_normal((40, len(Z)))
    return X, Y - Y.T if relation else Y, None if relation else Z


@pytest.mark.parametrize("setting", ["edges", "rows", "columns", "both"])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("relation", [None, "reciprocal"])
def test_eval_set_in_the_four_settings(setting, condition_on, relation):
    """The kept iteration ranks the validation pairs best, and it is that many iterations."""
    X, Y, Z = validation_problem(relation)
    ends = [slice(None), slice(None)]
    if relation and setting != "edges":
        ends = [slice(0, 28), slice(0, 28)]
        new = {"rows": (X[28:], X[:28]), "columns": (X[:28], X[28:]), "both": (X[28:], None)}
        test = {"rows": np.s_[28:, :28], "columns": np.s_[:28, 28:], "both": np.s_[28:, 28:]}
        labels, (first, second) = Y[test[setting]], new[setting]
    elif setting == "edges":
        held = np.random.default_rng(1).random(Y.shape) < 0.3
        held = held | held.T if relation else held
        labels, first, second = np.where(held, Y, np.nan), None, None
        Y = np.where(held, np.nan, Y)
    else:
        rows, cols = setting in ("rows", "both"), setting in ("columns", "both")
        ends = [slice(0, 28) if rows else slice(None), slice(0, 25) if cols else slice(None)]
        labels = Y[
            slice(28, None) if rows else slice(None), slice(25, None) if cols else slice(None)
        ]
        first, second = X[28:] if rows else None, Z[25:] if cols else None
    train = X[ends[0]], Y[tuple(ends)], None if Z is None else Z[ends[1]]
    seen = []
    ranker = ConditionalRankRLS(
        0.0, kernel="rbf", relation=relation, condition_on=condition_on, early_stopping=True
    )
    ranker.fit(*train, eval_set=(first, labels, second), callback=lambda state: seen.append(state))
    best = ranker.best_iteration_
    assert 1 <= best < ranker.n_iter_
    assert [state.error for state in seen] == list(ranker.validation_curve_)
    assert seen[-1].best_iteration == best
    objects = train[0] if first is None else first
    others = second if second is not None or (first is not None and relation) else train[2]
    scores = conditional_scores(labels, ranker.predict(objects, others), condition_on=condition_on)
    assert 1 - np.nanmean(scores) == pytest.approx(ranker.validation_curve_.min())
    iterated = ConditionalRankRLS(
        0.0, kernel="rbf", relation=relation, condition_on=condition_on, solver="cg", max_iter=best
    ).fit(*train)
    assert iterated.n_iter_ == best
    np.testing.assert_allclose(
        iterated.predict(objects, others), ranker.predict(objects, others), atol=1e-12
    )


@pytest.mark.parametrize("relation", [None, "reciprocal"])
def test_eval_set_with_alpha_is_the_held_out_edges(relation):
    X, Y, Z = validation_problem(relation)
    options = {"relation": relation, "early_stopping": True, "validation_fraction": 0.3}
    held = hold_out_cells(
        Observations.read(Y), 0.3, np.random.RandomState(0), mirror=relation is not None
    ).reshape(Y.shape)
    assert relation is None or np.array_equal(held, held.T)  # mirror images, too
    inside = ConditionalRankRLS(0.5, random_state=0, **options).fit(X, Y, Z)
    rows, columns = ([f"object {i}" for i in range(n)] for n in Y.shape)
    labels = pd.DataFrame(np.where(held, Y, np.nan), rows, columns).iloc[::-1, ::-1]  # by names
    others = None if Z is None else pd.DataFrame(Z, columns)
    given = ConditionalRankRLS(0.5, **options).fit(
        X, np.where(held, np.nan, Y), Z, eval_set=(pd.DataFrame(X, rows), labels, others)
    )
    np.testing.assert_allclose(given.validation_curve_, inside.validation_curve_, atol=1e-12)
    np.testing.assert_allclose(given.predict(X, Z), inside.predict(X, Z), atol=1e-10)


def test_many_iterations_without_alpha_interpolate():
    """t iterations as the regulariser, without a warning; all of them have none."""
    X, Y, Z = validation_problem(None)
    Y = np.where(np.random.default_rng(2).random(Y.shape) < 0.95, np.nan, Y)
    ranker = ConditionalRankRLS(0.0, kernel="rbf", loss="regression", solver="cg", max_iter=500)
    found = ranker.set_params(tol=1e-10).fit(X, Y, Z).predict(X, Z)
    seen = ~np.isnan(Y)
    assert np.abs(found - Y)[seen].max() < 1e-6
    short = ranker.set_params(max_iter=3).fit(X, Y, Z)
    assert short.n_iter_ == 3
    assert np.abs(short.predict(X, Z) - Y)[seen].max() > 0.1
    with pytest.raises(ValueError, match="alpha"):
        ranker.set_params(solver="auto").fit(X, Y, Z)


@pytest.mark.parametrize(
    ("options", "eval_set", "message"),
    [
        ({"early_stopping": False}, "all", "eval_set is for early_stopping=True"),
        ({}, "one", r"eval_set must be \(X_val, Y_val\)"),
        ({}, "shape", "Y has shape"),
        ({}, "equal", "there is nothing to rank"),
        ({"pairwise": "two-step"}, "all", "early_stopping"),
        ({"loss": "squared_hinge", "early_stopping": False}, "all", "no eval_set"),
    ],
)
def test_eval_sets_that_are_refused(options, eval_set, message):
    X, Y, Z = validation_problem(None)
    given = {
        "all": (X, Y, Z),
        "one": (X,),
        "shape": (X, Y[:3], Z),
        "equal": (X, np.zeros_like(Y), Z),
    }
    ranker = ConditionalRankRLS(**{"early_stopping": True, **options})
    with pytest.raises(ValueError, match=message):
        ranker.fit(X, Y, Z, eval_set=given[eval_set])
    assert not hasattr(ranker, "_rows")


def test_probabilities_of_a_sparse_relation_are_refused():
    rng = np.random.default_rng(0)
    X, P = rng.standard_normal((6, 3)), rng.random((6, 6))
    P = np.triu(P, 1) + np.tril(1 - P.T, -1)
    np.fill_diagonal(P, 0.5)
    for labels in (P, sparse.csr_array(P), sparse.coo_array(P)):
        with pytest.raises(ValueError, match=r"as of probabilities: subtract 0\.5 from Y"):
            ConditionalRankRLS(relation="reciprocal").fit(X, labels)
    noisy = sparse.coo_array(([1.0, -0.8, 0.5], ([0, 1, 2], [1, 0, 3])), shape=(6, 6))
    ranker = ConditionalRankRLS(relation="reciprocal", loss="regression").fit(X, noisy)
    one_way = np.triu(np.where(P == 0.5, 0.0, P), 1)  # no pair has its mirror image
    for labels in (sparse.coo_array(one_way), np.where(one_way == 0, np.nan, one_way)):
        with pytest.warns(UserWarning, match=r"as of probabilities.* subtract 0\.5 from Y"):
            ranker.fit(X, labels)


@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_products_in_single_precision_reach_the_tolerance(loss):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((400, 6)), rng.standard_normal((300, 6))
    flat = np.sort(rng.permutation(400 * 300)[:3000])
    Y = sparse.coo_array((rng.standard_normal(3000), np.divmod(flat, 300)), shape=(400, 300))
    iterated = ConditionalRankRLS(0.5, kernel="rbf", loss=loss, solver="cg").fit(X, Y, Z)
    exact = ConditionalRankRLS(0.5, kernel="rbf", loss=loss, solver="dual").fit(X, Y, Z)
    F = exact.predict(X, Z)
    assert np.linalg.norm(iterated.predict(X, Z) - F) <= 2e-6 * np.linalg.norm(F)  # about tol
