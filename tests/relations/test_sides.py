"""Several kernels a side: against sums of matrices made by hand, and refits by hand."""

import warnings

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls._relation_labels import NO_OFFSETS, FreeOffsets, Observations
from rankrls.core.relations.sides import profile_kernel
from rankrls.io import load_model, save_model
from rankrls.model_selection import conditional_cross_val_score, relation_holdout_predict

EVERYTHING = ["rbf", "linear", "identity", "profile", "constant"]
WEIGHTS = np.array([0.3, 0.2, 0.1, 0.25, 0.15])


def data(complete=False, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((12, 3)), rng.standard_normal((9, 2))
    Y = X[:, :1] * Z[:, 0] + rng.standard_normal((12, 1)) + 0.3 * rng.standard_normal((12, 9)) + 3
    if not complete:
        Y[rng.random(Y.shape) < 0.3] = np.nan
        Y[4] = np.nan  # an object without labels
    return X, Y, Z


def profiles(Y, rows=False, columns=False, gamma=1.0):
    """The profile kernel of the rows, one pair at a time; with offsets of rows and columns."""
    seen = ~np.isnan(Y).all(axis=1)
    P = Y - np.nanmean(Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of rows without labels
        for _ in range(200 if rows and columns else 1):
            P = P - np.nan_to_num(np.nanmean(P, axis=1, keepdims=True)) if rows else P
            P = P - np.nan_to_num(np.nanmean(P, axis=0)) if columns else P
    P = np.nan_to_num(P)
    width = (P[seen] ** 2).sum(axis=1).mean()
    K = np.zeros((len(Y), len(Y)))
    for i in np.flatnonzero(seen):
        for j in np.flatnonzero(seen):
            K[i, j] = np.exp(-gamma * ((P[i] - P[j]) ** 2).sum() / width)
    return K


def by_hand(X, Y, weights, **offsets):
    linear = X @ X.T
    parts = [
        rbf_kernel(X),
        linear / linear.diagonal().mean(),
        np.eye(len(X)),
        profiles(Y, **offsets),
        np.ones((len(X), len(X))),
    ]
    return sum(w * K for w, K in zip(weights, parts, strict=True))


def test_profile_kernel():
    Y = data()[1]
    for rows, columns in np.ndindex(2, 2):
        made = profile_kernel(Observations.read(Y), FreeOffsets(bool(rows), bool(columns)))
        assert np.allclose(made, profiles(Y, rows, columns), atol=1e-9)
    sparse_Y = np.full((40, 60), np.nan)
    rng = np.random.default_rng(0)
    sparse_Y[rng.integers(0, 40, 90), rng.integers(0, 60, 90)] = rng.standard_normal(90)
    expected = profiles(sparse_Y)
    made = profile_kernel(Observations.read(sparse_Y), NO_OFFSETS)
    assert np.allclose(made, expected, atol=1e-12)
    constant = profile_kernel(Observations.read(np.full((3, 2), 0.1)), NO_OFFSETS)
    assert np.array_equal(constant, np.ones((3, 3)))


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_sums_are_those_of_precomputed_kernels(complete, loss, condition_on, tmp_path):
    X, Y, Z = data(complete)
    options = {"loss": loss, "condition_on": condition_on, "fit_offsets": loss == "regression"}
    model = ConditionalRankRLS(
        0.1,
        kernel=EVERYTHING,
        kernel_weights=WEIGHTS,
        object_kernel_weights=WEIGHTS[::-1],
        **options,
    ).fit(X, Y, Z)
    lists = {"rows": condition_on == "rows", "columns": condition_on == "columns"}
    lists = lists if loss == "ranking" else {"rows": False, "columns": False}
    K = by_hand(X, Y, WEIGHTS, **lists)
    swapped = {"rows": lists["columns"], "columns": lists["rows"]}
    G = by_hand(Z, Y.T, WEIGHTS[::-1], **swapped)
    oracle = ConditionalRankRLS(0.1, kernel="precomputed", **options).fit(K, Y, G)
    expected = oracle.predict(K, G)
    assert np.allclose(model.predict(X, Z), expected, atol=1e-8)
    some = np.array([7, 2, 4])
    assert np.allclose(model.predict(X[some], Z[[3, 1]]), expected[np.ix_(some, [3, 1])], atol=1e-8)
    edges = model.predict_edges(X, Z, some, [0, 5, 8])
    assert np.allclose(edges, expected[some, [0, 5, 8]], atol=1e-8)
    # New objects have no identity and no profile.
    new = np.vstack([X[0], np.full(3, 0.5)])
    values = WEIGHTS[0] * rbf_kernel(new, X) + WEIGHTS[4]
    values += WEIGHTS[1] * new @ X.T / (X**2).sum(axis=1).mean()
    values[0] = K[0]
    assert np.allclose(model.predict(new, Z), oracle.predict(values, G), atol=1e-8)
    file = tmp_path / "model.rankrls"
    save_model(model, file)
    assert np.array_equal(load_model(file).predict(new, Z), model.predict(new, Z))


def test_several_precomputed_kernels():
    X, Y, Z = data()
    grams = [rbf_kernel(X), X @ X.T]
    others = [rbf_kernel(Z), Z @ Z.T]
    kernel = ["precomputed", "identity", "precomputed"]
    expected = ConditionalRankRLS(
        kernel=["rbf", "identity", "linear"], kernel_params=[{"gamma": 1 / 3}, None, None],
        object_kernel=["rbf", "identity", "linear"],
        object_kernel_params=[{"gamma": 1 / 2}, None, None],
    ).fit(X, Y, Z).predict(X, Z)  # fmt: skip
    model = ConditionalRankRLS(kernel=kernel).fit(grams, Y, others)
    assert np.allclose(model.predict(grams, others), expected)
    assert np.allclose(model.predict(np.stack(grams), np.hstack(others)), expected)
    scores = conditional_cross_val_score(model, grams, Y, others, cv="rows", n_folds=3)
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="2 precomputed kernels of 12 training objects"):
        ConditionalRankRLS(kernel=kernel).fit(grams[0], Y, others)
    with pytest.raises(ValueError, match="Z has 1 kernel matrices for 2"):
        ConditionalRankRLS(kernel=kernel).fit(grams, Y, others[:1])


@pytest.mark.parametrize("leave_out", ["rows", "columns", "entries"])
@pytest.mark.parametrize("kernel", [["rbf", "identity"], ["rbf", "profile"]])
def test_held_out_labels_are_in_no_profile(leave_out, kernel):
    X, Y, Z = data(complete=True)
    X, Y, Z = X[:6], Y[:6, :5], Z[:5]
    estimator = ConditionalRankRLS(0.1, kernel=kernel, loss="regression", fit_offsets=True)
    held = relation_holdout_predict(estimator, X, Y, Z, leave_out=leave_out)
    for i, j in np.ndindex(Y.shape):
        labels = Y.copy()
        where = {"rows": (i, slice(None)), "columns": (slice(None), j), "entries": (i, j)}[
            leave_out
        ]
        labels[where] = np.nan
        assert held[i, j] == pytest.approx(
            estimator.fit(X, labels, Z).predict(X, Z)[i, j], abs=1e-6
        )


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_weights_are_chosen_by_cross_validation(tmp_path):
    """A kernel of what matters beside one of noise, on an incomplete relation."""
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((24, 2)), rng.standard_normal((18, 2))
    noise = [rng.standard_normal((n, 4)) for n in (24, 18)]
    Y = np.sin(2 * X[:, :1]) * Z[:, 0] + 0.1 * rng.standard_normal((24, 18))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    K = [rbf_kernel(X, gamma=1.0), rbf_kernel(noise[0])]
    G = [rbf_kernel(Z, gamma=1.0), rbf_kernel(noise[1])]
    options = {"cv": "edges", "n_folds": 3, "random_state": 0, "kernel": 2 * ["precomputed"]}
    alphas = 16.0 ** np.arange(-2, 2)
    chosen = ConditionalRankRLSCV(alphas, **options).fit(K, Y, G)
    equal = ConditionalRankRLSCV(
        alphas, kernel_weights=[1, 1], object_kernel_weights=[1, 1], **options
    ).fit(K, Y, G)
    assert chosen.best_score_ > equal.best_score_ + 0.01
    again = ConditionalRankRLSCV(
        alphas,
        kernel_weights=chosen.kernel_weights_,
        object_kernel_weights=chosen.object_kernel_weights_,
        **options,
    ).fit(K, Y, G)
    assert again.best_score_ == pytest.approx(chosen.best_score_, abs=1e-9)
    assert np.allclose(again.predict(K, G), chosen.predict(K, G))
    file = tmp_path / "model.rankrls"
    save_model(chosen, file)
    loaded = load_model(file)
    assert np.array_equal(loaded.kernel_weights_, chosen.kernel_weights_)
    assert np.array_equal(loaded.predict(K, G), chosen.predict(K, G))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": []}, "empty list"),
        ({"kernel": ["rbf", "nothing"]}, "kernel must be a callable or one of"),
        ({"kernel": ["rbf", "precomputed"]}, "'precomputed' beside kernels of features"),
        ({"kernel": "rbf", "kernel_weights": [1.0]}, "kernel must be a list"),
        ({"kernel": ["rbf", "linear"], "kernel_weights": [1.0]}, "must be 2 numbers >= 0"),
        ({"kernel": ["rbf", "linear"], "kernel_weights": [1.0, -1.0]}, "must be 2 numbers >= 0"),
        ({"kernel": ["rbf", "linear"], "kernel_weights": [0.0, 0.0]}, "all zero"),
        ({"kernel": ["rbf", "linear"], "kernel_params": [{}]}, "list of 2 dicts"),
        ({"kernel": "profile", "relation": "symmetric"}, "'profile' is not for relation"),
        ({"kernel": "identity", "kernel_params": {"gamma": 1.0}}, "'identity' does not take"),
        ({"kernel": "profile", "kernel_params": {"gamma": 0.0}}, "gamma must be"),
    ],
)
def test_refusals_of_kernels(options, match):
    with pytest.raises(ValueError, match=match):
        ConditionalRankRLS(**options).fit(np.eye(4), np.ones((4, 4)) - np.eye(4))


@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("density", [0.1, 0.8])
def test_identity_kernels_converge_at_any_alpha(loss, density):
    """Within the default max_iter, for the default grid; a warning would fail."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((40, 3)), rng.standard_normal((30, 2))
    Y = np.sin(X[:, :1] * Z[:, 0]) + 0.3 * rng.standard_normal((40, 30))
    Y[rng.random(Y.shape) > density] = np.nan
    model = ConditionalRankRLS(kernel=["rbf", "identity", "profile"], loss=loss, fit_offsets=True)
    found, expected = (
        regularization_path(
            model.set_params(solver=solver), X, Y, Z=Z, alphas=2.0 ** np.arange(-15, 16, 3)
        ).predict(X, Z)
        for solver in ("cg", "dual")
    )
    error = np.abs(found - expected).max(axis=(1, 2))
    assert (error < 1e-5 * np.abs(expected).max(axis=(1, 2))).all()


@pytest.mark.parametrize("pairwise", ["kronecker", "cartesian", "additive"])
def test_new_objects_that_no_kernel_describes(pairwise):
    numbers, others = np.arange(6.0)[:, None], np.arange(5.0)[:, None]
    labels = np.random.default_rng(0).standard_normal((6, 5))
    ranker = ConditionalRankRLS(kernel=["identity", "profile"], pairwise=pairwise)
    ranker.fit(numbers, labels, others).predict(numbers[::-1], others)
    new = np.array([[1.0], [9.0]])
    if pairwise == "additive":  # which ranks them by the columns alone
        assert np.ptp(ranker.predict(new, others)[1]) > 0
        return
    for call in (
        lambda: ranker.predict(new, others)[1],
        lambda: ranker.predict_edges(new, others, [1, 1], [0, 1]),
    ):
        with pytest.warns(UserWarning, match="1 of the objects X are new, and kernel 'identity'"):
            assert np.ptp(call()) == 0.0
