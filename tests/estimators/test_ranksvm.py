"""RankSVM against liblinear on explicit differences, and against itself in other guises."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import cases
import oracles
from rankrls import PreferenceGraph, RankSVM, regularization_path
from rankrls.core.hinge import losses, problem
from rankrls.core.hinge import minimize as solver

BASES = ({}, {"kernel": "rbf"}, {"kernel": "rbf", "basis": [0, 3, 4]})
SHAPES = {"hinge": "hinge", "squared": "squared_hinge"}


@pytest.fixture
def counting(monkeypatch):
    """Pairs of scores are counted, however few."""
    monkeypatch.setattr(losses, "PAIRS_PER_ROW", 0)
    monkeypatch.setattr(losses, "MAX_PAIRS", 0)


GRID = [
    ({"kind": "continuous", "qid": "one"}, {}),
    ({"kind": "graded", "qid": "one", "m": 40}, {}),
    ({"kind": "mixed", "qid": "many"}, {}),
    ({"kind": "continuous", "qid": "many", "weight": "positive"}, {"query_weighting": "size"}),
    ({"kind": "graded", "qid": "many", "weight": "zeros"}, {"query_weighting": "query"}),
    ({"kind": "mixed", "qid": "many", "n_pairs": 12}, {"query_weighting": "query"}),
    ({"scored": False, "n_pairs": 30}, {}),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 50.0])
@pytest.mark.parametrize(("data", "options"), GRID)
def test_objective_of_liblinear(data, options, alpha, counted, shape, request):
    if counted:
        request.getfixturevalue("counting")
    case, tol = cases.Case(0, cost="unit", **data, **options), 1e-5 if shape == "hinge" else 1e-7
    X = case.rng.standard_normal((case.m, 4))
    ranker = RankSVM(alpha, loss=SHAPES[shape], tol=tol, **options).fit(X, case.y, **case.fit)
    w = ranker.coef_
    ours = oracles.hinge(case.edges, X @ w, shape=shape)[0] + alpha * w @ w
    theirs = oracles.svm_objective(case.edges, X, alpha, shape=shape)
    np.testing.assert_allclose(ranker.objective_, ours, rtol=1e-10)
    assert ranker.gap_ <= tol
    assert ranker.n_pairs_ == len(case.edges)
    np.testing.assert_allclose(ours, theirs, rtol=3e-5 if shape == "hinge" else 1e-6)
    assert theirs >= (1 - ranker.gap_) * ours * (1 - 1e-12)  # the certificate


@pytest.mark.parametrize("few_pairs", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_pairs_near_the_margin(few_pairs, counted, monkeypatch, request):
    """A third of the pairs, chosen anew, closes the gap of all; few pairs are used all."""
    rounds, solve = [], solver.solve_pairs
    limits = {"MAX_NEAR": 600 if few_pairs else 2500, "NEAR_PER_ENTRY": 0.0, "HINGE_ITER": 5}
    limits |= {"SMOOTH_ITER": 1, "SMOOTH_PER_DIMENSION": 0.0}
    limits["solve_pairs"] = lambda *args: rounds.append(args[2].n_pairs) or solve(*args)
    for name, value in limits.items():
        monkeypatch.setattr(solver, name, value)
    if counted:
        request.getfixturevalue("counting")
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 3))
    y = np.sin(X[:, 0]) + rng.standard_normal(120)
    if few_pairs:
        y = (np.arange(120) < 5).astype(float)
    ranker = RankSVM(1e-2, kernel="rbf", tol=1e-6).fit(X, y)
    assert ranker.gap_ <= 1e-6
    if few_pairs:
        assert set(rounds) == {575} == {ranker.n_pairs_}
    else:
        assert len(rounds) >= 2
        assert max(rounds) < 0.4 * ranker.n_pairs_


def test_kernels():
    rng = np.random.default_rng(5)
    X, new = rng.standard_normal((45, 3)), rng.standard_normal((6, 3))
    y, qid = rng.integers(0, 4, 45), rng.integers(0, 3, 45)
    options = {"gamma": 0.4, "tol": 1e-7}
    dual = RankSVM(0.5, kernel="rbf", **options).fit(X, y, qid=qid)
    K = rbf_kernel(X, gamma=0.4)
    norm2 = dual.dual_coef_ @ K @ dual.dual_coef_
    edges = oracles.edges_of_scores(y, qid, cost="unit", ties="drop", query_weighting="pair")
    Z = np.linalg.cholesky(K + 1e-13 * np.eye(45))  # the empirical kernel map
    theirs = oracles.svm_objective(edges, Z, 0.5)
    ours = oracles.hinge(edges, K @ dual.dual_coef_)[0] + 0.5 * norm2
    np.testing.assert_allclose([dual.objective_, ours], theirs, rtol=1e-6)
    assert dual.solver_ == "dual"
    prediction = rbf_kernel(new, X, gamma=0.4) @ dual.dual_coef_
    np.testing.assert_allclose(dual.predict(new), prediction, rtol=1e-10)

    precomputed = RankSVM(0.5, kernel="precomputed", tol=1e-7).fit(K, y, qid=qid)
    np.testing.assert_allclose(precomputed.dual_coef_, dual.dual_coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(precomputed.predict(rbf_kernel(new, X, gamma=0.4)), prediction)

    every = RankSVM(0.5, kernel="rbf", basis=np.arange(45), **options).fit(X, y, qid=qid)
    assert every.solver_ == "nystroem"
    np.testing.assert_allclose(every.objective_, dual.objective_, rtol=1e-6)
    np.testing.assert_allclose(every.predict(new), prediction, atol=1e-3)


def test_nystroem_is_linear_on_its_features():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((60, 3))
    y, basis = X[:, 0] ** 2 + 0.1 * rng.standard_normal(60), np.arange(0, 60, 5)
    ranker = RankSVM(0.3, kernel="rbf", basis=basis, tol=1e-9).fit(X, y)
    Z = np.linalg.cholesky(rbf_kernel(X[basis]))
    Phi = np.linalg.solve(Z, rbf_kernel(X[basis], X)).T
    linear = RankSVM(0.3, tol=1e-9).fit(Phi, y)
    np.testing.assert_allclose(ranker.objective_, linear.objective_, rtol=1e-7)
    np.testing.assert_allclose(ranker.predict(X), linear.predict(Phi), atol=1e-3)
    np.testing.assert_array_equal(ranker.basis_indices_, basis)
    a = ranker.dual_coef_
    np.testing.assert_allclose(ranker.predict(X), rbf_kernel(X, X[basis]) @ a, atol=1e-9)
    K = RankSVM(0.3, kernel="precomputed", basis=basis, tol=1e-9).fit(rbf_kernel(X), y)
    np.testing.assert_allclose(K.predict(rbf_kernel(X)), ranker.predict(X), atol=1e-3)


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_wide_data(form, monkeypatch):
    """By X Xᵀ, or by primal weights if features are of unequal scales or X Xᵀ is large."""
    rng = np.random.default_rng(23)
    X = sparse.random_array((60, 90), density=0.1, format="csr", rng=rng)
    X = X.toarray() if form == "dense" else X.asformat(form)
    y = rng.standard_normal(60)
    dual = RankSVM(0.5, tol=1e-5).fit(X, y)
    assert dual.solver_ == "dual"
    np.testing.assert_allclose(dual.coef_, X.T @ dual.dual_coef_, atol=1e-9)
    with monkeypatch.context() as changed:
        changed.setattr(problem, "UNEQUAL", 0.0)
        unequal = RankSVM(0.5, tol=1e-5).fit(X, y)
    monkeypatch.setattr(problem, "MAX_DIMENSION", 10)
    monkeypatch.setattr(problem._resources, "fits", lambda *args, **options: False)
    for ranker in (unequal, RankSVM(0.5, tol=1e-5).fit(X, y)):
        assert ranker.solver_ == "primal"
        np.testing.assert_allclose(ranker.objective_, dual.objective_, rtol=2e-5)


CHANGES = {
    "row order": lambda X: X[ORDER],
    "repeated rows": lambda X: X[AGAIN],
    "offset": lambda X: X + 2.0**20,
    "float32": lambda X: X.astype(np.float32),
    "float32 offset": lambda X: (X + 2.0**20).astype(np.float32),
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
}
OPTIONS = [*BASES, {"solver": "dual"}, {"loss": "squared_hinge"}]
OPTIONS += [{"query_weighting": weighting} for weighting in ("size", "query")]
CHANGED = np.random.default_rng(9)
ORDER, WEIGHT = CHANGED.permutation(50), CHANGED.integers(0, 4, 50)
AGAIN = np.repeat(np.arange(50), WEIGHT)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_data_in_another_form(change, options):
    """Integers, so that an offset does not round them; rows of a basis keep their numbers."""
    rng = np.random.default_rng(15)
    X, y = rng.integers(-8, 9, (50, 3)).astype(float), rng.standard_normal(50)
    y[:30], qid = np.round(y[:30]), rng.integers(0, 4, 50)
    fit = {"y": y, "qid": qid, "sample_weight": WEIGHT}
    other = dict(fit)
    if change in ("row order", "repeated rows"):
        if "basis" in options:
            return
        other = {name: CHANGES[change](values) for name, values in fit.items()}
        if change == "repeated rows":
            del other["sample_weight"]
    a = RankSVM(0.7, tol=1e-8, **options).fit(X, **fit)
    tol, rounding = (1e-5, 2e-4) if change.startswith("float32") else (1e-8, 1e-7)
    b = RankSVM(0.7, tol=tol, **options).fit(CHANGES[change](X), **other)
    np.testing.assert_allclose(a.objective_, b.objective_, rtol=rounding)
    same = X if change in ("row order", "repeated rows") else CHANGES[change](X)
    found = b.predict(same)
    assert found.dtype == same.dtype
    if not change.startswith("float32"):
        np.testing.assert_allclose(np.diff(found), np.diff(a.predict(X)), atol=2e-3)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_single_precision_rows_far_from_zero(layout):
    """Products of such rows lose the differences, or a column seems to be constant."""
    rng = np.random.default_rng(16)
    X, y, qid = rng.integers(-2, 3, (60, 3)), rng.standard_normal(60), rng.integers(0, 4, 60)
    for offset in (2.0**23, 2.0**21 * qid[:, None]):
        single = layout((X + offset).astype(np.float32))
        found = RankSVM(0.7, tol=1e-6, solver="primal").fit(single, y, qid=qid)
        expected = RankSVM(0.7, tol=1e-8).fit(X, y, qid=qid)
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=2e-3)
        assert found.objective_ == pytest.approx(expected.objective_, rel=1e-5)


@pytest.mark.parametrize("options", BASES)
def test_several_outputs_equal_separate_fits(options):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((30, 4))
    Y = np.stack([rng.standard_normal(30), rng.integers(0, 3, 30)], axis=1)
    ranker = RankSVM(0.5, **options).fit(X, Y)
    assert ranker.predict(X).shape == (30, 2)
    for j in range(2):
        alone = RankSVM(0.5, **options).fit(X, Y[:, j])
        np.testing.assert_allclose(ranker.predict(X)[:, j], alone.predict(X), atol=1e-10)
        assert ranker.objective_[j] == alone.objective_
        assert ranker.gap_[j] == alone.gap_
    assert ranker.n_pairs_ == 435 + alone.n_pairs_


def test_sparse_is_not_densified():
    """A million columns."""
    rng = np.random.default_rng(13)
    rows = np.repeat(np.arange(3000), 5)
    columns = rng.integers(0, 10**6, 15_000)
    X = sparse.csr_array((np.ones(15_000), (rows, columns)), shape=(3000, 10**6))
    y = rng.integers(0, 3, 3000)
    for name in ("primal", "dual"):
        ranker = RankSVM(1e5, solver=name).fit(X, y)
        assert ranker.coef_.shape == (10**6,)
        assert ranker.gap_ <= 1e-4


def test_given_pairs():
    rng = np.random.default_rng(17)
    X = rng.standard_normal((40, 3))
    pairs = np.array([rng.choice(40, 2, replace=False) for _ in range(60)])
    a = RankSVM(0.5).fit(X, pairs=pairs, magnitude=rng.uniform(1, 9, 60))
    b = RankSVM(0.5).fit(X, PreferenceGraph.from_pairs(pairs, n_rows=40))
    np.testing.assert_array_equal(a.coef_, b.coef_)  # whatever the magnitude
    assert a.n_pairs_ == 60
    twice = RankSVM(0.5, tol=1e-8).fit(X, pairs=np.vstack([pairs, pairs]))
    weighted = RankSVM(0.5, tol=1e-8).fit(X, pairs=pairs, pair_weight=np.full(60, 2.0))
    np.testing.assert_allclose(twice.objective_, weighted.objective_, rtol=1e-7)
    kernel = RankSVM(0.5, kernel="rbf").fit(X, pairs=pairs[:5])
    unused = np.setdiff1d(np.arange(40), pairs[:5])
    assert not kernel.dual_coef_[unused].any()


def test_not_converged():
    rng = np.random.default_rng(20)
    X, y = rng.standard_normal((50, 5)), rng.standard_normal(50)
    with pytest.warns(ConvergenceWarning, match=r"after 2 iterations.*raise max_iter") as found:
        ranker = RankSVM(1e-3, max_iter=2).fit(X, y)
    assert (found[0].filename, ranker.n_iter_) == (__file__, 2)
    assert ranker.gap_ > 1e-4


def test_trivial_features():
    """Nothing tells the rows apart, and the direction of steepest descent has no length."""
    for options in ({}, {"kernel": "rbf"}, {"solver": "dual"}):
        ranker = RankSVM(**options).fit(np.ones((6, 2)), np.arange(6))
        assert ranker.objective_ == 15
        X = np.array([[1.0], [1.0 + 1e-16], [1.0]])
        path = regularization_path(RankSVM(**options), X, [0, 1, 2], alphas=[1e-9, 1.0, 1e300])
        assert np.ptp(path.predict(X)) == 0


@pytest.mark.parametrize(
    ("message", "options", "change"),
    [
        (r"alpha must be finite and > 0", {"alpha": 0.0}, {}),
        (r"loss must be one of 'hinge', 'squared_hinge'; got 'log'", {"loss": "log"}, {}),
        (r"solver must be .* 'primal', 'dual', 'nystroem'; got 'cg'", {"solver": "cg"}, {}),
        (r"query_weighting must be one of", {"query_weighting": "rows"}, {}),
        (r"tol must be", {"tol": -1.0}, {}),
        (r"max_iter must be", {"max_iter": 0}, {}),
        (r"basis belongs to solver='nystroem'", {"basis": 2, "solver": "dual"}, {}),
        (r"needs kernel='linear'", {"kernel": "rbf", "solver": "primal"}, {}),
        (r"no query has a pair", {}, {"y": np.ones(6)}),
        (r"not positive semi-definite", {"kernel": "precomputed"}, {"X": -np.eye(6)}),
        (r"scale the features", {}, {"X": np.arange(12.0).reshape(6, 2) * 1e200}),
        (r"underflow or overflow", {}, {"sample_weight": np.full(6, 1e-200)}),
    ],
)
def test_bad_input(message, options, change):
    data = {"X": np.arange(12.0).reshape(6, 2), "y": np.arange(6)} | change
    with pytest.raises(ValueError, match=message):
        RankSVM(**options).fit(**data)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_slope_left_after_rounding_is_no_division_by_zero(seed):
    """Separable wide rows, weak regularisation: the search ends where rounding leaves no slope."""
    rng = np.random.default_rng(seed)
    X = sparse.random(40, 200, density=0.05, random_state=seed, format="csr")
    y = (rng.random(40) < 0.2).astype(float)
    y[:2] = 1, 0
    alphas = 2.0 ** np.arange(-15, 16, 3)
    path = regularization_path(RankSVM(), X, y, alphas=alphas)  # warnings are errors
    for alpha, coef in zip(alphas[[0, 5, 10]], path.coef[[0, 5, 10]], strict=True):
        alone = RankSVM(alpha).fit(X, y)
        np.testing.assert_allclose(X @ coef, X @ alone.coef_, atol=0.02)
