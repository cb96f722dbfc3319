"""ConditionalRankRLS against the dense Kronecker system, in every combination."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import oracles
import relation_cases as cases
from rankrls import ConditionalRankRLS, regularization_path
from rankrls.core.relations import problem as _problem
from rankrls.metrics import conditional_scores, pairwise_accuracy

LOSSES = ("ranking", "regression")
RELATIONS = {None: 0, "symmetric": 1, "reciprocal": -1}


RNG = np.random.default_rng(0)
X, Z, Y = RNG.standard_normal((7, 3)), RNG.standard_normal((6, 2)), RNG.standard_normal((7, 6))
NEW_X, NEW_Z = RNG.standard_normal((4, 3)), RNG.standard_normal((5, 2))
GAPS = np.where(RNG.random((7, 6)) < 0.3, np.nan, RNG.integers(0, 3, (7, 6)))


def close(a, b, tolerance=1e-8):
    scale = np.abs(b).max()
    assert np.abs(a - b).max() <= tolerance * scale, np.abs(a - b).max() / scale


GRID = [
    (("full", "low rank", "duplicates")[number % 3], *case)
    for number, case in enumerate(
        itertools.product(cases.OBSERVED, LOSSES, RELATIONS, (False, True), ("rows", "columns"))
    )
    if not (case[2] and case[3])
]


class Setting:
    """One problem with its dense solution."""

    def __init__(self, kind, observed, loss, relation, two, condition_on, seed=0):
        rng = np.random.default_rng(seed)
        p, g = 6, (5 if two else 6)
        self.X = cases.features(kind, p, rng)
        self.Z = cases.features(kind, g, rng) if two else None
        self.rows, self.cols = cases.edges(observed, p, g, rng)
        self.sign = RELATIONS[relation]
        multi = observed in ("multi", "complete twice")
        self.y = cases.labels(self.rows, self.cols, self.sign, rng, multi)
        self.Y = cases.as_matrix(self.rows, self.cols, self.y, (p, g))
        self.options = {"loss": loss, "relation": relation, "condition_on": condition_on}
        self.new_X = rng.standard_normal((3, self.X.shape[1]))
        self.new_Z = rng.standard_normal((4, self.Z.shape[1])) if two else None
        self.by_columns = condition_on == "columns"
        self.ranking = loss == "ranking"

    def dense(self, alpha):
        Z = self.X if self.Z is None else self.Z
        K, G, rows, cols = self.X @ self.X.T, Z @ Z.T, self.rows, self.cols
        if self.by_columns:
            K, G, rows, cols = G, K, cols, rows
        A = oracles.relation_coefficients(
            K, G, rows, cols, self.y, alpha, ranking=self.ranking, sign=self.sign
        )
        return A.T if self.by_columns else A

    def fit(self, alpha, **options):
        return ConditionalRankRLS(alpha, **self.options, **options).fit(self.X, self.Y, self.Z)


@pytest.mark.parametrize(
    ("solver", "case"),
    [
        (solver, case)
        for solver, case in itertools.product(("auto", "closed", "primal", "dual", "cg"), GRID)
        if solver == "auto" or case[0] != "duplicates"
    ],
    ids=lambda case: "-".join(map(str, case)) if isinstance(case, tuple) else case,
)
def test_dense_system(case, solver):
    setting = Setting(*case)
    whole = case[1] in ("complete", "block")
    whole |= (
        case[1] == "lonely rows" and case[-1] == "rows" and setting.ranking and not setting.sign
    )
    if solver == "closed" and not whole:
        with pytest.raises(ValueError, match=r"solver='closed' is not for.*a complete relation"):
            setting.fit(1.0, solver=solver)
        return
    Z, others = setting.X if setting.Z is None else setting.Z, setting.new_Z
    K, G = setting.X @ setting.X.T, Z @ Z.T
    for alpha in (1e-3, 1.0, 100.0) if solver == "auto" else (0.01, 1.0):
        A = setting.dense(alpha)
        model = setting.fit(alpha, solver=solver, tol=1e-12, max_iter=5000)
        assert solver in ("auto", model.solver_)
        assert model.n_iter_ == 1 or model.solver_ == "cg"
        assert model.dual_coef_.shape == A.shape
        close(K @ model.dual_coef_ @ G, K @ A @ G)
        # All four settings: known and new objects on either side.
        sides = (setting.X, setting.new_X), (Z, setting.new_X if others is None else others)
        for new_X, new_Z in itertools.product(*sides):
            close(model.predict(new_X, new_Z), new_X @ setting.X.T @ A @ Z @ new_Z.T)
        if setting.Z is None:
            both = model.predict(setting.new_X, setting.new_X)
            close(model.predict(setting.new_X), both)


def test_rule_of_auto(monkeypatch):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((20, 3)), rng.standard_normal((15, 4))
    Y = rng.standard_normal((20, 15))
    gaps = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    assert ConditionalRankRLS().fit(X, Y, Z).solver_ == "closed"
    assert ConditionalRankRLS().fit(X, gaps, Z).solver_ == "primal"
    assert ConditionalRankRLS().fit(sparse.csr_array(X), gaps, Z).solver_ == "primal"
    assert ConditionalRankRLS(kernel="rbf").fit(X, gaps, Z).solver_ == "dual"
    monkeypatch.setattr(_problem, "MAX_DUAL_CELLS", 100)
    assert ConditionalRankRLS(kernel="rbf").fit(X, gaps, Z).solver_ == "cg"
    monkeypatch.setattr(_problem, "MAX_PRIMAL_COST", 100)
    assert ConditionalRankRLS().fit(X, gaps, Z).solver_ == "cg"
    assert ConditionalRankRLS(early_stopping=True).fit(X, Y, Z).solver_ == "cg"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "kind", ["full", "low rank", "duplicates", "constants only", "no constants"]
)
@pytest.mark.filterwarnings("ignore:rounding errors")  # of singular kernels and alpha = 1e-9
def test_closed_form_keeps_its_digits(loss, relation, kind):
    """Also what P5 §4.4 leaves to iteration, from tiny to huge alpha."""
    rng, p, sign = np.random.default_rng(2), 6, RELATIONS[relation]
    X = np.ones((p, 1))
    if kind == "no constants":
        X = 6.0 * rng.integers(-3, 4, (p, 2))
        X -= X.mean(axis=0)
    elif kind != "constants only":
        X = cases.features(kind, p, rng)
    if kind == "constants only" and sign == -1:
        return  # there are no antisymmetric functions
    K, Y = X @ X.T, rng.standard_normal((p, p))
    Y = Y + sign * Y.T
    rows, cols = (a.ravel() for a in np.indices(Y.shape))
    for alpha in (1e-9, 1e-6, 1e-3, 1.0, 1e4, 1e9):
        A = oracles.relation_coefficients(
            K, K, rows, cols, Y.ravel(), alpha, ranking=loss == "ranking", sign=sign
        )
        options = {"loss": loss, "relation": relation, "kernel": "precomputed"}
        F = ConditionalRankRLS(alpha, **options).fit(K, Y).predict(K)
        rounding = 1e-14 * np.abs(Y).max() * min(1.0, np.linalg.norm(K, 2) ** 2 / alpha)
        expected = K @ A @ K
        assert np.abs(F - expected).max() <= 1e-10 * np.abs(expected).max() + rounding


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("relation", "sign"), list(RELATIONS.items())[1:])
@pytest.mark.parametrize("observed", ["complete", "sparse"])
def test_predictions_have_the_symmetry(loss, relation, sign, observed):
    setting = Setting("full", observed, loss, relation, False, "rows", seed=2)
    model = setting.fit(0.1)
    F = model.predict(setting.new_X)
    assert np.array_equal(F, sign * F.T)
    other = np.random.default_rng(0).standard_normal((5, setting.X.shape[1]))
    F, swapped = model.predict(setting.new_X, other), model.predict(other, setting.new_X)
    close(F, sign * swapped.T, 1e-13)
    close(model.dual_coef_, sign * model.dual_coef_.T, 1e-12)


def test_kernels():
    K, G = rbf_kernel(X, gamma=0.3), polynomial_kernel(Z, degree=2, gamma=0.7, coef0=2.0)
    new_K = rbf_kernel(NEW_X, X, gamma=0.3)
    new_G = polynomial_kernel(NEW_Z, Z, degree=2, gamma=0.7, coef0=2.0)
    reference = ConditionalRankRLS(0.2, kernel="precomputed").fit(K, Y, G).predict(new_K, new_G)
    by_name = ConditionalRankRLS(
        0.2,
        kernel="rbf",
        gamma=0.3,
        object_kernel="polynomial",
        object_kernel_params={"gamma": 0.7, "degree": 2, "coef0": 2.0},
    ).fit(X, Y, Z)
    close(by_name.predict(NEW_X, NEW_Z), reference, 1e-12)
    by_function = ConditionalRankRLS(
        0.2,
        kernel=lambda a, b, scale: float(np.exp(-scale * ((a - b) ** 2).sum())),
        kernel_params={"scale": 0.3},
        object_kernel=lambda a, b: float((0.7 * (a @ b) + 2.0) ** 2),
    ).fit(X, Y, Z)
    close(by_function.predict(NEW_X, NEW_Z), reference, 1e-10)
    # Shared parameters, one kind of objects with two kernels.
    both = ConditionalRankRLS(kernel="rbf", object_kernel="laplacian", gamma=0.5).fit(X, X @ X.T)
    assert both.predict(NEW_X).shape == (4, 4)
    with pytest.raises(AttributeError, match="linear kernels only"):
        _ = both.coef_


def test_arguments_are_not_changed():
    K, labels = X @ X.T, X @ X.T + 1.0
    before = K.copy(), labels.copy()
    ConditionalRankRLS(kernel="precomputed", relation="symmetric").fit(K, labels).predict(K)
    assert np.array_equal((K, labels), before)


def test_predict_edges():
    setting = Setting("full", "sparse", "ranking", None, True, "rows")
    model = setting.fit(0.3)
    F = model.predict(setting.new_X, setting.new_Z)
    rows, cols = np.array([2, 0, 0, 1, 2]), np.array([3, 0, 0, 1, 2])
    edges = model.predict_edges(setting.new_X, setting.new_Z, rows, cols)
    close(edges, F[rows, cols], 1e-12)
    assert model.predict_edges(setting.new_X, setting.new_Z, [], []).shape == (0,)
    one = Setting("full", "sparse", "ranking", "symmetric", False, "rows")
    model = one.fit(0.3)
    edges = model.predict_edges(one.new_X, None, [0, 1], [2, 2])
    close(edges, model.predict(one.new_X)[[0, 1], [2, 2]], 1e-12)
    seen = set()
    model = ConditionalRankRLS(kernel=lambda a, b: seen.add(a[0]) or a @ b).fit(X, Y, Z)
    seen.clear()
    model.predict_edges(NEW_X, NEW_Z, [2, 0, 2], [3, 3, 3])  # of these objects alone
    assert seen == {NEW_X[0, 0], NEW_X[2, 0], NEW_Z[3, 0]}


def test_inputs_of_all_kinds():
    Y = GAPS
    reference = ConditionalRankRLS().fit(X, Y, Z).predict(X, Z)
    known = ~np.isnan(Y)
    rows, cols = np.nonzero(known)
    frame = pd.DataFrame(Y).astype("Float64")
    assert frame.isna().to_numpy().any()
    coo = sparse.coo_array((Y[known], (rows, cols)), shape=Y.shape)
    others = {
        "list": Y.tolist(),
        "frame": frame,
        "float32": Y.astype(np.float32),
        "masked": np.ma.MaskedArray(np.where(known, Y, 0), mask=~known),
        "coo_array": coo,
        "coo_matrix": sparse.coo_matrix((Y[known], (rows, cols)), shape=Y.shape),
        "csr": sparse.csr_matrix((Y[known], (rows, cols)), shape=Y.shape),  # explicit zeros stay
        "object": Y.astype(object),
    }
    for name, labels in others.items():
        model = ConditionalRankRLS().fit(
            pd.DataFrame(X, columns=list("abc")), labels, pd.DataFrame(Z)
        )
        assert np.allclose(model.predict(pd.DataFrame(X, columns=list("abc")), Z), reference), name
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        assert model.n_edges_ == known.sum()
    half = ConditionalRankRLS().fit(X.astype(np.float32), Y, Z.astype(np.float32))
    assert np.allclose(half.predict(X, Z), reference, atol=1e-4)


def test_score_is_the_mean_over_conditioning_objects():
    Y = GAPS.copy()
    Y[2], Y[3] = np.nan, 1.0
    for condition_on in ("rows", "columns"):
        model = ConditionalRankRLS(condition_on=condition_on).fit(X, Y, Z)
        F = model.predict(X, Z)
        lists = zip(Y, F, strict=True) if condition_on == "rows" else zip(Y.T, F.T, strict=True)
        values = []
        for y, f in lists:
            known = ~np.isnan(y)
            if len(np.unique(y[known])) > 1:
                values.append(pairwise_accuracy(y[known], f[known]))
        assert np.isclose(model.score(X, Y, Z), np.mean(values))
        by_object = conditional_scores(Y, F, condition_on=condition_on)
        assert len(by_object) == (7 if condition_on == "rows" else 6)
        assert np.allclose(by_object[~np.isnan(by_object)], values)
    known = ~np.isnan(Y)
    rows, cols = np.nonzero(known)
    twice = sparse.coo_array(
        (np.tile(Y[known], 2), (np.tile(rows, 2), np.tile(cols, 2))), shape=Y.shape
    )
    model.condition_on = "rows"
    again = conditional_scores(twice, F)
    assert np.allclose(again[~np.isnan(again)], conditional_scores(Y, F)[~np.isnan(again)])


def test_path():
    alphas = np.array([10.0, 0.01, 1.0])
    for observed, options in (
        ("complete", {}),
        ("sparse", {}),
        ("sparse", {"solver": "dual"}),
        ("sparse", {"solver": "cg", "tol": 1e-12, "max_iter": 2000}),
    ):
        setting = Setting("full", observed, "ranking", None, True, "columns")
        ranker = ConditionalRankRLS(**setting.options, **options)
        path = regularization_path(ranker, setting.X, setting.Y, Z=setting.Z, alphas=alphas)
        scores = path.predict(setting.new_X, setting.new_Z)
        assert path.dual_coef.shape == (3, 6, 5)
        assert scores.shape == (3, 3, 4)
        for alpha, values in zip(alphas, scores, strict=True):
            expected = setting.fit(alpha).predict(setting.new_X, setting.new_Z)
            close(values, expected)
    with pytest.raises(TypeError, match="fit has no argument 'qid'; it has Z"):
        regularization_path(ranker, setting.X, setting.Y, qid=[1], alphas=alphas)
    stopped = ConditionalRankRLS(early_stopping=True)
    with pytest.raises(ValueError, match="there is no path"):
        regularization_path(stopped, setting.X, setting.Y, Z=setting.Z, alphas=alphas)


def test_clone_pickle_and_refit():
    setting = Setting("full", "sparse", "ranking", None, True, "rows")
    model = ConditionalRankRLS(0.5, kernel="rbf", object_kernel="linear", max_iter=7)
    assert clone(model).get_params() == model.get_params()
    fitted = model.fit(setting.X, setting.Y, setting.Z)
    assert fitted is model
    again = pickle.loads(pickle.dumps(fitted))
    expected = fitted.predict(setting.new_X, setting.new_Z)
    assert np.array_equal(again.predict(setting.new_X, setting.new_Z), expected)
    # A second fit, of one kind of objects, leaves nothing of the first behind.
    square = np.random.default_rng(0).standard_normal((6, 6))
    fitted.set_params(object_kernel=None).fit(setting.X, square)
    assert fitted.predict(setting.new_X).shape == (3, 3)
