"""Diagnostics of judgements, items, groups, queries and rows against explicit refits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import PreferenceGraph, RankRLS, RankRLSCV
from rankrls.datasets import make_ranking
from rankrls.diagnostics import audit
from rankrls.metrics import pairwise_accuracy

SPACES = {
    "linear": {},
    "wide": {},
    "sparse": {},
    "graded": {},
    "rbf": {"kernel": "rbf", "gamma": 0.2},
    "nystroem": {"kernel": "rbf", "gamma": 0.2, "basis": np.arange(0, 18, 2)},
    "precomputed": {"kernel": "precomputed"},
}


def in_turn(*kinds, n):
    """n cases, which take the values of each kind in turn."""
    return [tuple(list(kind)[i % len(kind)] for kind in kinds) for i in range(n)]


def _rows(space, rng, m=24, n_new=9):
    """Training rows with duplicates, and new rows, in the form that the space takes."""
    X = rng.standard_normal((m + n_new, 40 if space == "wide" else 5)) + 3.0
    X[5], X[7] = X[4], X[6]
    if space == "graded":
        X = X * 10.0 ** np.array([-6, -3, 0, 3, 6])
    if space == "sparse":
        X = sparse.csr_array(np.where(np.abs(X - 3) > 0.8, X, 0.0))
    if space == "precomputed":
        return X[:m] @ X[:m].T, X[m:] @ X[:m].T
    return X[:m], X[m:]


def _expected(t, Sigma, terms, alpha):
    """Studentised size and p-value by definition, from the marginal covariance of the terms."""
    rest = np.setdiff1d(np.arange(len(t)), terms)
    S = Sigma / alpha + np.eye(len(t))
    S_rest = S[np.ix_(rest, rest)]
    noise = t[rest] @ np.linalg.solve(S_rest, t[rest]) / len(rest)
    cross = np.linalg.solve(S_rest, S[np.ix_(rest, terms)])
    e = t[terms] - cross.T @ t[rest]
    covariance = S[np.ix_(terms, terms)] - S[np.ix_(terms, rest)] @ cross
    ratio = e @ np.linalg.solve(covariance, e) / len(terms) / noise
    return np.sqrt(ratio), stats.f.sf(ratio, len(terms), len(rest))


@pytest.mark.filterwarnings("ignore:the features have|values of kernel|feature scales")
@pytest.mark.parametrize(("space", "by"), in_turn(SPACES, ["judgement", "item", "group"], n=10))
def test_judgements_against_refits(space, by):
    rng = np.random.default_rng(sum(map(ord, space + by)))
    X, X_new = _rows(space, rng)
    m = X.shape[0]
    pairs = rng.integers(0, m - 2, (60, 2))  # two rows without a judgement
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = np.vstack([pairs, pairs[:3], pairs[:2, ::-1]])
    n_pairs = len(pairs)
    magnitude, weight = rng.choice([0.0, 1.0, 2.5], n_pairs), rng.uniform(0.5, 2.0, n_pairs)
    weight[4] = 0.0
    judges = rng.integers(0, 5, n_pairs)
    y_new = rng.integers(0, 3, X_new.shape[0])
    alpha = 0.7
    ranker = RankRLS(alpha, **SPACES[space])
    table = audit(
        *(ranker, X),
        pairs=pairs,
        magnitude=magnitude,
        pair_weight=weight,
        groups=judges if by == "group" else None,
        by=by,
        eval_set=(X_new, y_new),
    )
    groups = {
        "judgement": [[i] for i in range(n_pairs)],
        "item": [np.flatnonzero((pairs == i).any(axis=1)) for i in np.unique(pairs)],
        "group": [np.flatnonzero(judges == j) for j in range(5)],
    }[by]
    labels = {"judgement": range(n_pairs), "item": np.unique(pairs), "group": range(5)}[by]
    assert_array_equal(table.labels, list(labels))

    def fit(kept):
        model = RankRLS(alpha, **SPACES[space]).fit(
            X, pairs=pairs[kept], magnitude=magnitude[kept], pair_weight=weight[kept]
        )
        f = model.predict(X)
        return f[pairs[:, 0]] - f[pairs[:, 1]], pairwise_accuracy(y_new, model.predict(X_new))

    d, accuracy = fit(np.arange(n_pairs))
    w, counted = np.sqrt(weight), np.flatnonzero(weight)
    Phi, K = _kernel(SPACES[space], X)
    Delta = np.eye(m)[pairs[counted, 0]] - np.eye(m)[pairs[counted, 1]]
    Sigma = w[counted, None] * (Delta @ K @ Delta.T) * w[counted]
    t = (w * magnitude)[counted]
    H = (
        _hat(w[counted, None] * (Delta @ Phi), alpha)
        if space == "graded"
        else _hat_of(Sigma, alpha)
    )
    noise = t @ (t - H @ t) / len(t)
    loose = 1e-5 if space == "graded" else 1e-7
    for number, group in enumerate(groups):
        mine = np.intersect1d(group, counted)
        assert table.size[number] == len(mine)
        if not len(mine):
            assert np.isnan(table.p_value[number])
            continue
        without, changed = fit(np.setdiff1d(np.arange(n_pairs), group))
        missed = magnitude[mine] - without[mine]
        rms = np.sqrt(weight[mine] @ missed**2 / weight[mine].sum())
        if len(mine) == 1:
            rms *= np.sign(missed[0])
        assert_allclose(table.deleted_residual[number], rms, rtol=loose, atol=loose)
        cook = np.sum((w * (without - d)) ** 2) / (np.trace(H) * noise)
        assert_allclose(table.cook_distance[number], cook, rtol=loose, atol=1e-9)
        assert_allclose(table.metric_change[number], changed - accuracy, atol=1e-12)
        if magnitude[mine].any():
            a, b = (w * magnitude)[mine], (w * without)[mine]
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert_allclose(table.agreement[number], cosine, rtol=1e-4, atol=1e-4)
        else:
            assert np.isnan(table.agreement[number])
        at = np.searchsorted(counted, mine)
        assert_allclose(table.leverage[number], np.trace(H[np.ix_(at, at)]), rtol=loose, atol=loose)
        if space == "graded":  # Sigma has values up to 1e13
            continue
        size, p = _expected(t, Sigma, at, alpha)
        assert_allclose(table.studentised[number], size, rtol=loose)
        assert_allclose(table.p_value[number], p, rtol=loose, atol=loose)


def _hat(Psi, alpha):
    """Ψ(ΨᵀΨ + alpha I)⁻¹Ψᵀ, whatever the scales of the columns."""
    stacked = np.vstack([Psi, np.sqrt(alpha) * np.eye(Psi.shape[1])])
    Q = np.linalg.qr(stacked / np.linalg.norm(stacked, axis=0))[0][: len(Psi)]
    return Q @ Q.T


def _hat_of(S, alpha):
    return S @ np.linalg.inv(S + alpha * np.eye(len(S)))


def _kernel(options, X):
    """Dense rows, and their kernel matrix, or that of the Nyström features."""
    Phi, basis = X.toarray() if sparse.issparse(X) else X, options.get("basis")
    if options.get("kernel") != "rbf":
        return Phi, Phi if options.get("kernel") == "precomputed" else Phi @ Phi.T
    K = np.exp(-0.2 * ((Phi[:, None] - Phi[None]) ** 2).sum(axis=2))
    if basis is None:
        return Phi, K
    return Phi, K[:, basis] @ np.linalg.pinv(K[np.ix_(basis, basis)], rcond=1e-10) @ K[basis]


LOSSES = [
    {"query_weighting": "size"},
    {"query_weighting": "pair", "ties": "drop"},
    {"query_weighting": "query", "cost": "unit", "ties": "drop"},
    {"cost": "relative", "ties": "drop"},
]


@pytest.mark.filterwarnings("ignore:the features have|values of kernel|feature scales")
@pytest.mark.parametrize(("space", "loss"), in_turn(SPACES, LOSSES, n=11))
def test_queries_against_refits(space, loss):
    rng = np.random.default_rng(sum(map(ord, space)))
    X, X_new = _rows(space, rng)
    m = X.shape[0]
    qid = rng.permutation(np.repeat(np.array(list("abcdef")), [7, 6, 5, 3, 2, 1]))
    y = rng.integers(0, 4, m).astype(float)
    y[qid == "e"] = 1.0  # a query without a preference
    y_new, qid_new = rng.integers(0, 3, X_new.shape[0]), np.array(list("vvvvvwwww"))
    alpha = 0.7
    options = {**SPACES[space], **loss}
    table = audit(RankRLS(alpha, **options), X, y, qid=qid, eval_set=(X_new, y_new, qid_new))
    assert table.labels.tolist() == list("abcdef")
    graph = PreferenceGraph.from_scores(y, qid=qid)
    L = graph.laplacian(**{"cost": "magnitude", "ties": "keep", **loss}) @ np.eye(m)
    whole = RankRLS(alpha, **options).fit(X, y, qid=qid)
    f, accuracy = whole.predict(X), pairwise_accuracy(y_new, whole.predict(X_new), qid=qid_new)
    dof, noise = _freedom_and_noise(options, X, L, graph, loss, alpha)
    loose = 1e-5 if space == "graded" else 1e-7
    for number, query in enumerate("abcdef"):
        mine = np.flatnonzero(qid == query)
        if not L[mine].any():
            assert table.size[number] == 0
            assert np.isnan(table.deleted_residual[number])
            continue
        # The rows stay, without a pair: so does the basis.
        alone = np.where(qid == query, [f"alone {i}" for i in range(m)], qid)
        model = RankRLS(alpha, **options).fit(X, y, qid=alone)
        g = model.predict(X)
        cook = (g - f) @ L @ (g - f) / (dof * noise)
        assert_allclose(table.cook_distance[number], cook, rtol=loose, atol=1e-9)
        changed = pairwise_accuracy(y_new, model.predict(X_new), qid=qid_new)
        assert_allclose(table.metric_change[number], changed - accuracy, atol=1e-12)
        if loss.get("cost", "magnitude") == "magnitude":
            missed = y - g
            residual = missed[mine] @ L[np.ix_(mine, mine)] @ missed[mine]
            expected = np.sqrt(residual / np.trace(L[np.ix_(mine, mine)]))
            assert_allclose(table.deleted_residual[number], expected, rtol=loose, atol=loose)
        if loss == LOSSES[0]:
            expected = (y - g)[mine].std(ddof=1)
            assert_allclose(table.deleted_residual[number], expected, rtol=1e-4)
            r = np.corrcoef(y[mine], g[mine])[0, 1] if np.ptp(y[mine]) else np.nan
            assert_allclose(table.agreement[number], r, rtol=1e-4, atol=1e-4)


def _freedom_and_noise(options, X, L, graph, loss, alpha):
    """trace H and tᵀρ/N from the pseudo-inverse of L."""
    Phi, K = _kernel(options, X)
    r = graph.target(**{"cost": "magnitude", "ties": "keep", **loss})
    values, vectors = np.linalg.eigh(L)
    used = values > 1e-9 * values.max()
    F = vectors[:, used] * np.sqrt(values[used])
    t = np.linalg.lstsq(F, r, rcond=None)[0]
    largest = np.abs(Phi).max()
    H = _hat(F.T @ Phi, alpha) if largest > 1e3 else _hat_of(F.T @ K @ F, alpha)
    return np.trace(H), t @ (t - H @ t) / len(t)


@pytest.mark.parametrize("space", ["linear", "wide", "rbf", "nystroem"])
def test_rows_against_refits(space):
    rng = np.random.default_rng(3)
    X, X_new = _rows(space, rng)
    qid = np.repeat([0, 1, 2, 3], [10, 8, 5, 1])
    y = rng.integers(0, 4, 24).astype(float)
    y_new, qid_new = rng.integers(0, 3, 9), np.repeat([0, 1], [5, 4])
    options = {**SPACES[space], "query_weighting": "size"}
    table = audit(
        RankRLS(0.7, **options), X, y, qid=qid, by="row", eval_set=(X_new, y_new, qid_new)
    )
    whole = RankRLS(0.7, **options).fit(X, y, qid=qid)
    accuracy = pairwise_accuracy(y_new, whole.predict(X_new), qid=qid_new)
    f, moved = whole.predict(X), []
    for row in range(23):
        alone = np.where(np.arange(24) == row, 9, qid)
        model = RankRLS(0.7, **options).fit(X, y, qid=alone)
        g = model.predict(X)
        others = np.setdiff1d(np.flatnonzero(qid == qid[row]), row)
        missed = y[row] - g[row] - (y[others] - g[others]).mean()
        assert_allclose(table.deleted_residual[row], missed, rtol=1e-8)
        changed = pairwise_accuracy(y_new, model.predict(X_new), qid=qid_new)
        assert_allclose(table.metric_change[row], changed - accuracy, atol=1e-12)
        moved.append(sum(np.var((f - g)[qid == q]) * np.sum(qid == q) for q in range(3)))
    cook = table.cook_distance[:23]
    assert_allclose(cook / cook[0], np.array(moved) / moved[0], rtol=1e-7)
    assert table.agreement is None
    assert table.size[23] == 0
    assert np.isnan(table.p_value[23])


def test_rows_keep_the_weight_of_their_query():
    # Weight n of one query of n rows: a refit without a row has n − 1 and so another alpha.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    table = audit(RankRLS(2.0), X, y, by="row")
    g = RankRLS(2.0 * 11 / 12).fit(X[1:], y[1:]).predict(X)
    assert_allclose(table.deleted_residual[0], y[0] - g[0] - (y - g)[1:].mean())


@pytest.mark.parametrize("alpha", [1e-8, 1e-3, 1e9])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_alphas(alpha, kernel):
    rng = np.random.default_rng(1)
    X, y, qid = rng.standard_normal((20, 3)), rng.standard_normal(20), np.repeat([0, 1], 10)
    options = {"kernel": kernel, "query_weighting": "size"}
    table = audit(RankRLS(alpha, **options), X, y, qid=qid, by="row")
    for row in (0, 9):
        alone = np.where(np.arange(20) == row, 9, qid)
        missed = y - RankRLS(alpha, **options).fit(X, y, qid=alone).predict(X)
        expected = missed[row] - np.delete(missed[:10], row).mean()
        assert_allclose(table.deleted_residual[row], expected, rtol=1e-7)
    pairs = np.array([(i, j) for i in range(20) for j in range(i) if (i + j) % 3 == 0])
    table = audit(RankRLS(alpha, kernel=kernel), X, pairs=pairs)
    for judgement in (0, 7):
        rest = np.delete(pairs, judgement, axis=0)
        f = RankRLS(alpha, kernel=kernel).fit(X, pairs=rest).predict(X)
        held_out = f[pairs[judgement, 0]] - f[pairs[judgement, 1]]
        assert_allclose(table.deleted_residual[judgement], 1 - held_out, rtol=1e-6)


def test_features_that_tell_nothing_apart():
    y, qid = np.tile([0.0, 1.0, 3.0], 4), np.repeat(np.arange(4), 3)
    table = audit(RankRLS(), np.ones((12, 2)), y, qid=qid)
    assert_array_equal(table.leverage, 0)
    assert_allclose(table.deleted_residual, y[:3].std(ddof=1))


def test_p_values_are_uniform_under_the_model():
    rng = np.random.default_rng(0)
    found = {"query": [], "row": [], "judgement": [], "group": []}
    for _ in range(30):
        X = rng.standard_normal((60, 4))
        f = X @ rng.standard_normal(4)  # prior variance 1, noise variance alpha
        qid, judges = np.repeat(np.arange(12), 5), np.arange(80) % 8
        y = f + 2.0 * rng.standard_normal(60)
        ranker = RankRLS(4.0, query_weighting="size")
        for by in ("query", "row"):
            found[by].append(audit(ranker, X, y, qid=qid, by=by).p_value)
        pairs = np.argsort(rng.random((80, 60)), axis=1)[:, :2]
        z = f[pairs[:, 0]] - f[pairs[:, 1]] + 2.0 * rng.standard_normal(80)
        pairs[z < 0] = pairs[z < 0, ::-1]
        found["judgement"].append(audit(ranker, X, pairs=pairs, magnitude=np.abs(z)).p_value)
        of_judges = audit(ranker, X, pairs=pairs, magnitude=np.abs(z), groups=judges)
        found["group"].append(of_judges.p_value)
    for by, values in found.items():
        p = np.concatenate(values)
        for level in (0.05, 0.5, 0.9):
            assert abs((p < level).mean() - level) < 4 * np.sqrt(level / len(p)), by


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_parameters_that_were_chosen():
    X, y, qid = make_ranking(n_queries=12, random_state=0, return_X_y_qid=True)
    chosen = RankRLSCV([0.1, 10.0], query_weighting="size").fit(X, y, qid=qid)
    gammas = RankRLSCV([1.0], kernel="rbf", gamma=[0.01, 0.1]).fit(X, y, qid=qid)
    size = {"query_weighting": "size"}
    for search, parameters, options in (
        (chosen, {"alpha": chosen.alpha_, **size}, {"groups": qid % 3}),
        (chosen, {"alpha": 3.0, **size}, {"by": "query"}),
        (chosen, {"alpha": 3.0, **size}, {"by": "row"}),
        (gammas, {"kernel": "rbf", "gamma": gammas.gamma_}, {}),
    ):
        alpha = {"alpha": 3.0} if parameters.get("alpha") == 3.0 else {}
        found = audit(search, X, y, qid=qid, **options, **alpha)
        expected = audit(RankRLS(**parameters), X, y, qid=qid, **options)
        for name, values in expected.columns.items():
            assert_array_equal(found.columns[name], values)
        if "groups" in options:
            assert found.labels.tolist() == [0, 1, 2]
            assert found.size.sum() == len(y) - 12
    with pytest.raises(ValueError, match="alpha must be finite and > 0"):
        audit(chosen, X, y, qid=qid, alpha=0)
    with pytest.raises(ValueError, match=r"got a Pipeline .for a pipeline, pass its last step"):
        audit(make_pipeline(StandardScaler(), RankRLS()), X, y, qid=qid)


def test_pair_features_and_scores_beside_pairs():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20, 3))
    pairs = np.argsort(rng.random((50, 20)), axis=1)[:, :2]
    C = rng.standard_normal((50, 2))
    table = audit(RankRLS(), X, pairs=pairs, pair_features=C)
    model = RankRLS().fit(X, pairs=pairs, pair_weight=np.arange(50) > 0, pair_features=C)
    f = model.predict(X)
    d = f[pairs[0, 0]] - f[pairs[0, 1]] + C[0] @ model.pair_coef_
    assert_allclose(table.deleted_residual[0], 1 - d)
    y, qid = rng.integers(0, 3, 20), np.repeat([0, 1], 10)
    mixed = audit(RankRLS(), X, y, qid=qid, pairs=pairs)
    f = RankRLS().fit(X, y, qid=qid, pairs=pairs[1:]).predict(X)
    assert_allclose(mixed.deleted_residual[0], 1 - f[pairs[0, 0]] + f[pairs[0, 1]])
    assert ((mixed.p_value > 0) & (mixed.p_value <= 1)).all()
    with pytest.raises(ValueError, match="only groups of whole queries"):
        audit(RankRLS(), X, y, qid=qid, pairs=pairs, by="query")


def test_table():
    X, y, qid = make_ranking(n_queries=5, random_state=0, return_X_y_qid=True)
    table = audit(RankRLS(), X, y, qid=qid)
    assert len(table) == len(table.to_frame()) == 5
    assert list(table.to_frame().columns) == list(table.columns)
    assert "metric_change" not in table.columns
    assert "5 lines" in repr(table)


def test_bad_input():
    X, y, qid = make_ranking(n_queries=5, random_state=0, return_X_y_qid=True)
    labels = {"y": y, "qid": qid}
    drop, two, judged = RankRLS(ties="drop"), np.column_stack([y, y]), {"pairs": [(0, 1), (2, 1)]}
    for options, message, *ranker in (
        (labels | {"by": "queries"}, "by must be"),
        (labels | {"by": "item"}, "needs pairs"),
        (labels | {"by": "group"}, "needs groups"),
        (labels | {"groups": np.arange(len(y)) % 2}, "whole queries"),
        (labels | {"eval_set": (X, y)}, "eval_set needs it too"),
        ({"y": y, "by": "query"}, "qid; for rows of one ranking: by='row'"),
        ({"y": np.round(y), "qid": qid, "by": "row"}, "by='row' needs cost", drop),
        ({"y": two, "qid": qid}, "one at a time"),
        (judged | {"by": "query"}, "needs labels y"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(ranker[0] if ranker else RankRLS(), X, **options)
    assert_array_equal(audit(RankRLS(), X, y).labels, np.arange(len(y)))
    with pytest.raises(TypeError, match="magnitudes"):
        audit(RankRLS(), X, **judged, magnitudes=[1, 2])
