"""Pairwise kernels, two-step regression and folds of relations against dense kernels and refits."""

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import null_space
from sklearn.base import clone

import oracles
import relation_cases as cases
from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls.core.relations.pairwise_kernels import PAIRWISE
from rankrls.metrics import conditional_scores
from rankrls.model_selection import relation_holdout_predict

KERNELS = ("kronecker", "cartesian", "additive", "polynomial", "mlpk", "ranking")
SIGNS = {None: 0, "symmetric": 1, "reciprocal": -1}
ONE_KIND = ("mlpk", "ranking")
LOSSES = ("regression", "ranking")

#: Which functions there are: of the others only zero has the symmetry.
GRID = [
    (name, relation)
    for name in KERNELS
    for relation in SIGNS
    if (name, relation) not in (("mlpk", "reciprocal"), ("ranking", "symmetric"))
]


def gram(kind, n, rng):
    """Kernel matrices: well-conditioned, singular with equal objects, smooth, of other scales."""
    if kind == "smooth":
        X = rng.standard_normal((n, 2))
        return np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
    X = cases.features("full" if kind == "scaled" else kind, n, rng)
    return (X @ X.T) * (1e4 if kind == "scaled" else 1.0)


def dense_solution(name, K, G, train, y, pairs, alpha, *, ranking, sign):
    """Values at pairs by a system over all edges, row offsets taken off."""
    Gamma = oracles.pairwise_gram(name, K, G, train, train, sign)
    F = np.eye(len(train))
    if ranking:  # an orthonormal basis of the labels without offsets of rows
        rows = np.array([i for i, _ in train])
        F = null_space((rows == np.unique(rows)[:, None]).astype(float))
    a = F @ np.linalg.solve(F.T @ Gamma @ F + alpha * np.eye(F.shape[1]), F.T @ y)
    return oracles.pairwise_gram(name, K, G, pairs, train, sign) @ a


def centred(F, ranking):
    return F - F.mean(axis=1, keepdims=True) if ranking else F


def close(a, b, tolerance=1e-8):
    assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-300)


# ---------------------------------------------------------------------- kernels


@pytest.mark.parametrize(("name", "relation"), GRID)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("observed", "kind"),
    list(zip(cases.OBSERVED, 3 * ("full", "low rank", "duplicates"), strict=False)),
)
# "cartesian" tells duplicates apart and predict cannot, but all objects are predicted, in order.
@pytest.mark.filterwarnings("ignore:rows .* have equal features")
def test_against_the_dense_kernel(name, relation, loss, observed, kind):
    check_against_dense(name, relation, loss, observed, kind, alpha=0.3)


def check_against_dense(name, relation, loss, observed, kind, alpha):
    rng = np.random.default_rng(2)
    sign = SIGNS[relation]
    one = sign != 0 or name in ONE_KIND
    p, g = (6, 6) if one else (6, 5)
    K = gram(kind, p + 2, rng)  # two objects are new
    G = K if one else gram(kind, g + 2, rng)
    rows, cols = cases.edges(observed, p, g, rng)
    y = cases.labels(rows, cols, sign, rng, observed in ("multi", "complete twice"))
    Y = cases.as_matrix(rows, cols, y, (p, g))
    every = [(i, j) for i in range(p + 2) for j in range(g + 2)]
    ranking = loss == "ranking"
    expected = dense_solution(
        name, K, G, list(zip(rows, cols, strict=True)), y, every, alpha, ranking=ranking, sign=sign
    ).reshape(p + 2, g + 2)
    model = ConditionalRankRLS(
        alpha, kernel="precomputed", pairwise=name, relation=relation, loss=loss
    ).fit(K[:p, :p], Y, None if one else G[:g, :g])
    complete = observed in ("complete", "block")
    complete |= observed == "lonely rows" and ranking and not sign
    closed = name in ("kronecker", "cartesian")
    if complete and (closed or (name == "polynomial" and not (sign and ranking))):
        assert model.solver_ == "closed"
    found = [model.predict(K[:p, :p], None if one else G[:g, :g])]
    if name != "cartesian":
        found.append(model.predict(K[:, :p], G[:, :g]))
    else:
        found.append(np.vstack([found[0], model.predict(K[p:, :p], G[:g, :g])]))
    for F in found:
        values = expected[: F.shape[0], : F.shape[1]]
        size = max(np.abs(expected).max(), 1e-3 * np.abs(y).max())
        assert np.abs(centred(F - values, ranking)).max() <= 1e-8 * size


def test_large_graphs_by_iteration():
    """Conjugate gradients with the same operator, dense and edge by edge."""
    rng = np.random.default_rng(3)
    p, g = 40, 90
    X, Z = rng.standard_normal((p, 3)), rng.standard_normal((g, 2))
    for name in KERNELS:
        one = name in ONE_KIND
        n = p if one else g
        for part in (0.02, 0.5):
            Y = np.where(rng.random((p, n)) < part, rng.standard_normal((p, n)), np.nan)
            other = None if one else Z
            by = {
                solver: ConditionalRankRLS(
                    3.0, kernel="rbf", pairwise=name, solver=solver, max_iter=2000, tol=1e-11
                ).fit(X, Y, other)
                for solver in ("dual", "cg")
            }
            assert by["cg"].solver_ == "cg"
            close(by["cg"].predict(X, other), by["dual"].predict(X, other), 1e-8)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_conditioning_and_some_edges(name, condition_on):
    rng = np.random.default_rng(4)
    one = name in ONE_KIND
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((5, 2))
    other = None if one else Z
    Y = rng.standard_normal((7, 7 if one else 5))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    ranker = ConditionalRankRLS(0.5, kernel="rbf", pairwise=name, condition_on=condition_on)
    model = clone(ranker).fit(X, Y, other)
    if condition_on == "columns" and not one:
        turned = clone(ranker).set_params(condition_on="rows").fit(Z, Y.T, X)
        close(model.predict(X, Z), turned.predict(Z, X).T, 1e-12)
    new = np.vstack([X[:2], rng.standard_normal((2, 3))])
    scores = model.predict(new, other)
    rows, cols = (a.ravel() for a in np.indices(scores.shape))
    close(model.predict_edges(new, other, rows, cols).reshape(scores.shape), scores, 1e-12)
    if one:
        sign = PAIRWISE[name].symmetry
        assert (scores == sign * scores.T).all()


@pytest.mark.parametrize("fit_offsets", [True, "rows", "columns", "both"])
@pytest.mark.parametrize("name", ["cartesian", "additive", "polynomial"])
def test_offsets(fit_offsets, name):
    """Free offsets are those of a constant kernel with a very large weight."""
    rng = np.random.default_rng(5)
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((6, 2))
    Y = rng.standard_normal((7, 6)) + 10
    base = ConditionalRankRLS(
        0.5, kernel="rbf", pairwise=name, loss="regression", fit_offsets=fit_offsets
    )
    if (name, fit_offsets) == ("additive", "both"):
        with pytest.raises(ValueError, match="nothing is left to learn"):
            base.fit(X, Y, Z)
        return
    closed, dual = clone(base).fit(X, Y, Z), clone(base).set_params(solver="dual").fit(X, Y, Z)
    close(closed.predict(X, Z), dual.predict(X, Z))
    residual = Y - dual.predict(X, Z)
    sums = {"rows": [residual.sum(axis=1)], "columns": [residual.sum(axis=0)]}
    sums["both"] = sums["rows"] + sums["columns"]
    for total in sums.get(fit_offsets, [residual.sum()]):
        assert np.abs(total).max() < 1e-8


def test_cartesian_knows_nothing_of_two_new_objects():
    rng = np.random.default_rng(6)
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((6, 2))
    Y = rng.standard_normal((7, 6))
    model = ConditionalRankRLS(0.5, pairwise="cartesian").fit(X, Y, Z)
    assert np.abs(model.predict(X + 1, Z)).min() > 0
    with pytest.warns(UserWarning, match="7 row and 6 column objects are new"):
        scores = model.predict(X + 1, Z + 1)
    assert (scores == 0).all()


# ---------------------------------------------------------------------- hold-outs


def refitted(ranker, X, Y, Z, out):
    """Predictions of all pairs by a model without the labels ``out``, offsets as documented."""
    paired = ranker.relation is not None or ranker.pairwise in ONE_KIND
    left_out = out | out.T if paired else out
    kept = np.where(left_out, np.nan, Y)
    if np.isnan(kept).all():
        return np.zeros_like(Y)
    solver = ranker.solver if ranker.pairwise == "two-step" else "dual"
    model = clone(ranker).set_params(solver=solver).fit(X, kept, Z)
    F = model.predict(X, Z)
    if ranker.loss == "regression":
        return F
    axis = 1 if ranker.condition_on == "rows" else 0
    mean = np.nanmean(np.where(np.isnan(kept), 0, kept - F), axis=axis, keepdims=True)
    counts = (~np.isnan(kept)).sum(axis=axis, keepdims=True)
    mean = mean * F.shape[axis] / np.maximum(counts, 1)
    # Columns that were left out as a whole do not count, where a row has nothing left.
    whole = out.all(axis=1 - axis, keepdims=True)
    other = np.broadcast_to(~whole, F.shape) & ~(out & ~out.all(axis=axis, keepdims=True))
    alone = -(F * other).sum(axis=axis, keepdims=True) / np.maximum(
        other.sum(axis=axis, keepdims=True), 1
    )
    return F + np.where(counts > 0, mean, alone)


def left_out(kind, fold, shape):
    """Masks of labels that are left out, and of pairs that are predicted."""
    out, asked = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    if kind == "rows":
        out[fold] = asked[fold] = True
    elif kind == "columns":
        out[:, fold] = asked[:, fold] = True
    elif kind == "entries":
        out[fold] = asked[fold] = True
    else:
        out[fold[0]] = True
        out[:, fold[1]] = True
        asked[np.ix_(*fold)] = True
    return out, asked


def folds_of(kind, p, g, rng, size):
    """Folds of ``size`` rows, columns or pairs."""

    def groups(n):
        order = rng.permutation(n)
        return [order[start : start + size] for start in range(0, n, size)]

    if kind == "rows":
        return groups(p)
    if kind == "columns":
        return groups(g)
    if kind == "both":
        return [(a, b) for a in groups(p) for b in groups(g)]
    return [(part // g, part % g) for part in groups(p * g)]


def check_holdout(ranker, X, Y, Z, kind, folds, found):
    expected = np.full(Y.shape, np.nan)
    for fold in folds:
        out, asked = left_out(kind, fold, Y.shape)
        if ranker.pairwise == "two-step" and kind == "entries":
            # The labels that are left out are their own predictions.
            both = out | out.T if ranker.relation else out
            filled = np.where(both, found, Y)
            F = clone(ranker).fit(X, filled, Z).predict(X, Z)
            if ranker.loss == "ranking":
                axis = 1 if ranker.condition_on == "rows" else 0
                F = F + (filled - F).mean(axis=axis, keepdims=True)
        else:
            F = refitted(ranker, X, Y, Z, out)
        expected[asked] = F[asked]
    if kind == "entries":  # pairs without a label are not predicted on their own
        expected = np.where(np.isnan(found) & np.isnan(Y), np.nan, expected)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.nanmax(np.abs(found - expected)) <= 1e-8 * np.nanmax(np.abs(expected), initial=1.0)


@pytest.mark.parametrize("name", ["kronecker", "cartesian", "two-step", "additive", "gaps"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["rows", "columns", "entries", "both"])
@pytest.mark.parametrize("size", [None, 2])
def test_held_out_predictions(name, loss, condition_on, kind, size):
    rng = np.random.default_rng(7)
    p, g = 6, 5
    X, Z = rng.standard_normal((p, 3)), rng.standard_normal((g, 2))
    X[1] = X[0] + 1e-3
    Y = rng.standard_normal((p, g)) + 5 * rng.standard_normal((p, 1))
    if name == "gaps":
        Y[[0, 2, 5], [1, 0, 4]] = np.nan
    ranker = ConditionalRankRLS(
        (0.2, 1.5) if name == "two-step" else 0.3,
        kernel="rbf",
        pairwise="kronecker" if name == "gaps" else name,
        loss=loss,
        condition_on=condition_on,
    )
    folds = folds_of(kind, p, g, rng, size or 1)
    given = {} if size is None else {"folds": folds}
    found = relation_holdout_predict(ranker, X, Y, Z, leave_out=kind, **given)
    check_holdout(ranker, X, Y, Z, kind, folds, found)


@pytest.mark.parametrize("name", ["kronecker", "cartesian", "two-step", "mlpk", "polynomial"])
@pytest.mark.parametrize("relation", [None, "symmetric", "reciprocal"])
@pytest.mark.parametrize("kind", ["rows", "columns", "entries", "both"])
def test_held_out_predictions_between_objects_of_one_kind(name, relation, kind):
    if (name, relation) == ("mlpk", "reciprocal"):
        return
    rng = np.random.default_rng(9)
    X = rng.standard_normal((6, 3))
    Y = rng.standard_normal((6, 6))
    Y = Y + SIGNS[relation] * Y.T
    ranker = ConditionalRankRLS(0.3, pairwise=name, loss="regression", relation=relation)
    folds = folds_of(kind, 6, 6, rng, 1)
    found = relation_holdout_predict(ranker, X, Y, leave_out=kind)
    check_holdout(ranker, X, Y, None, kind, folds, found)


@pytest.mark.parametrize("name", ["kronecker", "cartesian", "polynomial"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_labels_that_are_left_may_have_nothing_to_compare(kernel, name):
    X, Z = np.arange(6.0).reshape(3, 2), np.array([[1.0, 3.0], [2.0, 1.0]])
    Y = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, np.nan]])
    ranker = ConditionalRankRLS(kernel=kernel, pairwise=name)
    found = relation_holdout_predict(ranker, X, Y, Z, leave_out="rows")
    assert np.ptp(found[0]) == 0.0
    assert np.ptp(found[1]) > 0.0


@pytest.mark.parametrize(
    ("leave_out", "folds", "message"),
    [
        ("rows", 3, "folds must be a list of folds"),
        ("rows", [], "folds is empty"),
        ("rows", [[0, 1], [1, 2]], r"pair \(1, 0\) is in two folds"),
        ("rows", [[0, 9]], "rows of fold 0 has 9, but rows are numbered 0 to 6"),
        ("columns", [[0, 6]], "columns of fold 0 has 6, but rows are numbered 0 to 5"),
        ("entries", [([0, 1], [0])], "fold 0 has 2 rows and 1 columns"),
        ("entries", [([0, 0], [1, 1])], "twice in one"),
        ("both", [[0, 1, 2]], r"fold 0 must be \(rows, columns\)"),
    ],
)
def test_folds_that_are_refused(leave_out, folds, message):
    rng = np.random.default_rng(12)
    X, Z, Y = rng.random((7, 2)), rng.random((6, 2)), rng.random((7, 6))
    with pytest.raises(ValueError, match=message):
        relation_holdout_predict(ConditionalRankRLS(), X, Y, Z, leave_out=leave_out, folds=folds)


# ---------------------------------------------------------------------- choosing alpha

WIDE = 2.0 ** np.arange(-12, 13, 4)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("name", ["cartesian", "two-step"])
def test_the_best_alpha_of_held_out_lists(condition_on, name):
    """Leave-list-out scores of every alpha, or pair of alphas, are those of the predictions."""
    rng = np.random.default_rng(13)
    X, Z = rng.standard_normal((12, 3)), rng.standard_normal((10, 2))
    Y = X[:, :1] * Z[:, 0] + 0.3 * rng.standard_normal((12, 10))
    options = {"kernel": "rbf", "pairwise": name, "condition_on": condition_on}
    search = ConditionalRankRLSCV(WIDE, cv=condition_on, **options).fit(X, Y, Z)
    alphas = search.cv_results_["alpha"]
    assert alphas.shape == ((49, 2) if name == "two-step" else (7,))
    held = relation_holdout_predict(
        ConditionalRankRLS(**options), X, Y, Z, leave_out=condition_on, alphas=alphas
    )
    scores = [conditional_scores(Y, F, condition_on=condition_on).mean() for F in held]
    np.testing.assert_allclose(search.cv_results_["mean_score"], scores, rtol=1e-12)
    assert search.best_score_ == max(search.cv_results_["mean_score"])
    assert (search.cv_results_["n_refits"] == 0).all()
    again = ConditionalRankRLS(search.alpha_, **options).fit(X, Y, Z)
    close(search.predict(X, Z), again.predict(X, Z), 1e-12)
    assert isinstance(search.alpha_, tuple) == (name == "two-step")


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_two_grids_and_the_default_search():
    rng = np.random.default_rng(15)
    X, Z = rng.standard_normal((30, 3)), rng.standard_normal((25, 2))
    Y = np.sin(X[:, :1] * Z[:, 0]) + 0.3 * rng.standard_normal((30, 25))
    options = {"kernel": "rbf", "pairwise": "two-step", "cv": "rows"}
    small = ConditionalRankRLSCV([[0.1, 1.0, 10.0], [1e-3, 0.1, 1.0, 100.0]], **options)
    small.fit(X, Y, Z)
    assert small.alphas_.shape == (12, 2)
    default = ConditionalRankRLSCV(**options).fit(X, Y, Z)
    assert default.best_score_ >= small.best_score_ - 0.01
    assert len(default.alphas_) < 31**2 / 3
    scores = default.cv_results_["mean_score"]
    assert default.best_score_ >= scores.max() * (1 - 1e-6)


# ---------------------------------------------------------------------- files, options


def test_two_step_by_hand():
    """A = (K + alpha I)⁻¹ Y (G + alpha I)⁻¹, by hand, for kernels and features, and a path."""
    rng = np.random.default_rng(17)
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((6, 2))
    Y = rng.standard_normal((7, 6))
    W = np.linalg.solve(X.T @ X + 0.1 * np.eye(3), X.T @ Y)
    W = W @ Z @ np.linalg.inv(Z.T @ Z + 2.0 * np.eye(2))
    options = {"pairwise": "two-step", "loss": "regression"}
    model = ConditionalRankRLS((0.1, 2.0), **options).fit(X, Y, Z)
    close(model.coef_, W, 1e-12)
    turned = ConditionalRankRLS((0.1, 2.0), condition_on="columns", **options).fit(X, Y, Z)
    close(turned.predict(X, Z), X @ W @ Z.T, 1e-12)
    both = ConditionalRankRLS(0.5, **options).fit(X, Y, Z)
    path = regularization_path(ConditionalRankRLS(**options), X, Y, Z=Z, alphas=[0.1, 0.5])
    close(path.predict(X, Z)[1], both.predict(X, Z), 1e-12)
    weighted = ConditionalRankRLS((0.1, 2.0), kernel=["rbf", "identity", "constant"], **options)
    assert np.isfinite(weighted.fit(X, Y, Z).predict(X + 1, Z)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairwise": "tensor"}, "pairwise must be one of"),
        ({"pairwise": "additive", "fit_offsets": "columns"}, "nothing is left to learn"),
        ({"pairwise": "mlpk"}, "pairwise='mlpk' is for objects of one kind.*Z must be None"),
        ({"alpha": (1.0, 2.0)}, "is a pair, which only pairwise='two-step' takes"),
        ({"alpha": (1.0, 2.0, 3.0), "pairwise": "two-step"}, "a number or a pair"),
        ({"pairwise": "two-step", "fit_offsets": True}, "add the kernel 'constant'"),
        ({"pairwise": "two-step", "solver": "cg"}, "solver='cg' is not for .*closed form only"),
        ({"pairwise": "additive", "solver": "closed"}, "solver='closed' is not for"),
        ({"pairwise": "cartesian", "solver": "primal"}, "solver='primal' is not for"),
        ({"pairwise": "mlpk", "relation": "reciprocal"}, "it is symmetric itself"),
        ({"pairwise": "mlpk", "object_kernel": "rbf"}, "the same kernel on both sides"),
        ({"pairwise": "mlpk", "kernel": "profile"}, "kernel='profile' is not for pairwise='mlpk'"),
        ({"pairwise": "two-step", "relation": "symmetric"}, "symmetric' and loss='ranking'"),
    ],
)
def test_options_that_are_refused(options, message):
    rng = np.random.default_rng(18)
    X, Z, Y = rng.random((7, 2)), rng.random((6, 2)), rng.random((7, 6))
    if len(options) > 1 and ("relation" in options or options["pairwise"] == "mlpk"):
        Y, Z = X @ X.T, None
    with pytest.raises(ValueError, match=message):
        ConditionalRankRLS(**options).fit(X, Y, Z)


def test_what_other_kernels_have_not():
    rng = np.random.default_rng(20)
    X, Z, Y = rng.random((7, 2)), rng.random((6, 2)), rng.random((7, 6))
    gaps = Y.copy()
    gaps[0, 0] = np.nan
    with pytest.raises(ValueError, match="two-step' needs a complete Y"):
        ConditionalRankRLS(pairwise="two-step").fit(X, gaps, Z)
    twice = sparse.coo_array(
        (np.tile(Y.ravel(), 2), np.tile(np.indices(Y.shape).reshape(2, -1), 2))
    )
    with pytest.raises(ValueError, match="two-step' needs a complete Y"):
        ConditionalRankRLS(pairwise="two-step").fit(X, twice, Z)
    search = ConditionalRankRLSCV(kernel=["rbf", "profile"], pairwise="two-step", cv="edges")
    with pytest.raises(ValueError, match="cv='edges' refits models without single pairs"):
        search.fit(X, Y, Z)
    model = ConditionalRankRLS(pairwise="cartesian").fit(X, Y, Z)
    with pytest.raises(AttributeError, match="coef_ exists for linear kernels"):
        model.coef_  # noqa: B018
    with pytest.raises(ValueError, match="uncertainties are there for pairwise='kronecker'"):
        model.predict(X, Z, return_std=True)
