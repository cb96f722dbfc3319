"""partial_fit and forget equal a fit from scratch; what fails or was altered changes nothing."""

import pickle
import re
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cases
from cases import close, same
from rankrls import PreferenceGraph, RankRLS, RankRLSCV, streaming
from rankrls.estimators.incremental import query_keys
from rankrls.io import load_model, save_model

MODELS = {
    "primal": {"solver": "primal"},
    "rbf": {"kernel": "rbf", "gamma": 0.2, "basis": [0, 3, 5, 6, 9]},
}


def data(seed=0, m=40, n=4, n_outputs=None, graded=True, offset=0.0):
    """Rows in random order in queries of 1 to many rows; the first 12 rows are three queries."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + offset
    shape = m if n_outputs is None else (m, n_outputs)
    y = rng.integers(0, 4, shape).astype(float) if graded else rng.standard_normal(shape)
    qid = np.concatenate(
        [rng.permutation(list("aaaaabbbbbcc")), rng.choice(list("defghij"), m - 12)]
    )
    weight = rng.uniform(0.2, 2.0, m)
    weight[rng.choice(m, m // 6, replace=False)] = 0.0
    return X, y, qid, weight


def batches_of(qid):
    """Row numbers of batches of whole queries; the first one holds the basis vectors."""
    return [np.flatnonzero(np.isin(qid, list(labels))) for labels in ("abc", "de", "f", "ghij")]


@pytest.mark.parametrize("model", MODELS)
def test_given_pairs(model):
    X, y, qid, weight = data(3)
    rng = np.random.default_rng(0)
    ranker = RankRLS(cost="relative", **MODELS[model])
    y = y + 0.5
    incremental, parts = clone(ranker), []
    batches = [rows for rows in batches_of(qid) if len(rows) > 2]
    for rows in batches:
        given = cases.given_pairs(6, len(rows), rng)
        arguments = {"qid": qid[rows], "sample_weight": weight[rows], **given}
        incremental.partial_fit(X[rows], y[rows], **arguments)
        start = sum(len(before) for before in batches[: len(parts)])
        parts.append(given | {"pairs": given["pairs"] + start})
    order = np.concatenate(batches)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    reference = clone(ranker).fit(
        X[order], y[order], qid=qid[order], sample_weight=weight[order], **joined
    )
    same(incremental, reference, X)
    before = incremental.coef_ if model == "primal" else incremental.dual_coef_
    # Forgetting the last call and adding it again, as a graph.
    incremental.forget(X[rows], y[rows], **arguments)
    scored = PreferenceGraph.from_scores(
        y[rows], qid=arguments.pop("qid"), sample_weight=arguments.pop("sample_weight")
    )
    graph = scored + PreferenceGraph.from_pairs(n_rows=len(rows), **arguments)
    incremental.partial_fit(X[rows], graph)
    close(incremental.coef_ if model == "primal" else incremental.dual_coef_, before)


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("alpha", [1e-9, 1e9])
@pytest.mark.parametrize("kind", ["offset", "duplicates", "wide", "sparse", "scales"])
def test_awkward_features(alpha, kind):
    X, y, qid, _ = data(5, n=60 if kind == "wide" else 4, offset=1e6 * (kind == "offset"))
    if kind == "duplicates":
        X = np.column_stack([X, X[:, :2], np.ones(len(X))])
    elif kind == "scales":
        X = X * np.array([1e-3, 1.0, 1e3, 0.0])
    elif kind == "sparse":
        X = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    ranker = RankRLS(alpha=alpha, solver="primal", ties="drop")
    first, *others = batches_of(qid)
    incremental = clone(ranker)
    for rows in (first, *others):
        incremental.partial_fit(X[rows], y[rows], qid=qid[rows])
    # The conditioning of the problem itself: offsets of 1e6 and scales lose digits in any order.
    tolerance = 1e-6 if kind in ("offset", "scales") else 1e-9
    for gone in ([], others[:2]):
        for rows in gone:
            incremental.forget(X[rows], y[rows], qid=qid[rows])
        kept = np.concatenate([first, others[2]] if gone else [first, *others])
        reference = clone(ranker).fit(X[kept], y[kept], qid=qid[kept])
        f, g = incremental.predict(X[kept]), reference.predict(X[kept])
        close(f - f[0], g - g[0], tolerance)


def test_float32_and_mixed():
    X, y, qid, _ = data(6)
    X = np.round(X * 8).astype(np.float32) / 8  # exact products
    first, *others = batches_of(qid)
    ranker = RankRLS(solver="primal")
    incremental = clone(ranker)
    for rows in (first, *others):
        incremental.partial_fit(X[rows], y[rows], qid=qid[rows])
    assert incremental.coef_.dtype == np.float32
    close(incremental.coef_, clone(ranker).fit(X, y, qid=qid).coef_, 1e-5)
    with pytest.raises(ValueError, match="was added with other features"):
        incremental.forget(X[first] + 1e-2, y[first], qid=qid[first])
    for rows in (first, *others):  # nothing is left, and noticed
        incremental.forget(X[rows], y[rows], qid=qid[rows])
    with pytest.raises(NotFittedError):
        incremental.predict(X)
    mixed = clone(ranker).partial_fit(X[first], y[first], qid=qid[first])
    rows = others[0]
    mixed.partial_fit(sparse.csr_matrix(X[rows].astype(float)), y[rows], qid=qid[rows])
    assert mixed.coef_.dtype == np.float64


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=14),
    seed=st.integers(0, 99),
    loss=st.tuples(*map(st.sampled_from, (cases.COSTS, cases.TIES, cases.WEIGHTINGS))),
    weighted=st.booleans(),
    rbf=st.booleans(),
)
def test_any_sequence(steps, seed, loss, weighted, rbf):
    """Each step learns the named queries that are unknown and forgets those that are known."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, 8)
    qid = np.repeat(np.arange(8), sizes)
    X = rng.standard_normal((len(qid), 3))
    y = rng.integers(1, 4, (len(qid), 2)) * 0.5
    weight = rng.choice([0.0, 0.3, 1.0, 2.0], len(qid))
    options = dict(zip(("cost", "ties", "query_weighting"), loss, strict=True)) | {"alpha": 0.3}
    options |= {"kernel": "rbf", "solver": "nystroem"} if rbf else {"solver": "primal"}

    def of(rows):
        arguments = {"X": X[rows], "y": y[rows], "qid": qid[rows]}
        return arguments | ({"sample_weight": weight[rows]} if weighted else {})

    ranker, known = RankRLS(**options), set()
    X_basis = X[qid == steps[0][0]]
    for step in steps:
        for query in dict.fromkeys(step):
            rows = np.flatnonzero(qid == query)
            if known or hasattr(ranker, "solver_"):  # the basis, in this order
                rows = rng.permutation(rows)
            change = ranker.forget if query in known else ranker.partial_fit
            counted = y[rows][weight[rows] > 0] if weighted else y[rows]
            if seed % 2 and not (known or rbf) and min(len(set(s)) for s in counted.T) > 1:
                change = ranker.fit  # begin with either
            change(**of(rows))
            known ^= {query}
    assert ranker.n_queries_ == len(known)
    rows = np.flatnonzero(np.isin(qid, list(known)))
    reference = RankRLS(**options)
    try:
        if rbf:
            names = {"X": "data", "y": "target"}
            batch = {names.get(name, name): part for name, part in of(rows).items()}
            reference.fit_stream([batch], basis_rows=X_basis)
        else:
            reference.fit(**of(rows))
    except ValueError as error:
        if not re.search("no query has a pair|no batch with rows|a minimum of 2", str(error)):
            raise
        with pytest.raises(NotFittedError):
            ranker.predict(X)
        return
    same(ranker, reference, X, 1e-7)
    close(ranker.predict(X), reference.predict(X), 1e-9)


# ---------------------------------------------------------------- without a pair


def test_no_pair_yet():
    X, y, _, _ = data(10)
    ranker = RankRLS(ties="drop")
    incremental = clone(ranker).partial_fit(X[:1], [2.0], qid=["single"])
    incremental.partial_fit(X[1:4], [1.0, 1.0, 1.0], qid=["tied"] * 3)
    assert incremental.n_pairs_ == 0
    assert incremental.n_queries_ == 2
    assert not hasattr(incremental, "coef_")
    with pytest.raises(NotFittedError):
        incremental.predict(X)
    incremental = pickle.loads(pickle.dumps(incremental))
    incremental.partial_fit(X[4:12], y[4:12], qid=["real"] * 8)
    q = ["single"] + ["tied"] * 3 + ["real"] * 8
    s = np.concatenate([[2.0, 1.0, 1.0, 1.0], y[4:12]])
    same(incremental, clone(ranker).set_params(solver="primal").fit(X[:12], s, qid=q), X)
    incremental.forget(X[4:12], y[4:12], qid=["real"] * 8)
    with pytest.raises(NotFittedError):
        incremental.preference_proba(X, X)
    incremental.forget(X[:4], [2.0, 1.0, 1.0, 1.0], qid=q[:4])
    assert incremental.n_queries_ == 0
    with pytest.raises(ValueError, match="query 'tied' was never added"):
        incremental.forget(X[1:4], [1.0, 1.0, 1.0], qid=["tied"] * 3)


# ---------------------------------------------------------------- refused


def dump(ranker):
    """All that a model is: its attributes, down to arrays."""
    assert getattr(ranker, "_seen", None) is None or ranker._seen.queries  # as a dict
    return pickle.dumps(ranker.__dict__)


@pytest.fixture(params=[*MODELS, "pending"])
def learner(request):
    """A model that has seen queries a, b, c; "pending": without a pair in them."""
    X, y, qid, _ = data(13)
    first = batches_of(qid)[0]
    if request.param == "pending":
        ranker = RankRLS(ties="drop").partial_fit(X[first], np.ones(len(first)), qid=qid[first])
    else:
        ranker = RankRLS(**MODELS[request.param]).fit(X[first], y[first], qid=qid[first])
    return ranker


BAD_BATCHES = {
    "nan": (lambda X, y, qid: {"X": np.where(X > 1, np.nan, X), "y": y, "qid": qid}, "NaN"),
    "width": (lambda X, y, qid: {"X": X[:, 1:], "y": y, "qid": qid}, "3 features.*expecting 4"),
    "outputs": (lambda X, y, qid: {"X": X, "y": np.c_[y, y], "qid": qid}, "1 output.*y has 2"),
    "overflow": (
        lambda X, y, qid: {"X": X, "y": y, "qid": qid, "sample_weight": np.full(28, 1e200)},
        "overflow",
    ),
}


@pytest.mark.parametrize("bad", BAD_BATCHES)
def test_a_failing_call_changes_nothing(learner, bad):
    X, y, qid, _ = data(13)
    arguments, message = BAD_BATCHES[bad]
    rest = slice(12, None)
    before = dump(learner)
    with pytest.raises(ValueError, match=message):
        learner.partial_fit(**arguments(X[rest], y[rest], qid[rest]))
    assert dump(learner) == before


def test_integer_labels_of_any_array_are_the_same():
    X, y, _, _ = data(14)
    ranker = RankRLS().partial_fit(X[:4], y[:4], qid=np.int64([7, 7, 8, 8]))
    for label in ([7, 7], np.int32([7, 7]), np.array([7.0, 7.0]), np.array([7, 7], dtype=object)):
        with pytest.raises(ValueError, match="query 7"):
            ranker.partial_fit(X[4:6], y[4:6], qid=label)
    # Readers return strings if another id of the file is no integer.
    with pytest.raises(ValueError, match="query 7"):
        ranker.partial_fit(X[4:8], y[4:8], qid=["7", "7", "a", "a"])
    ranker.partial_fit(X[4:8], y[4:8], qid=["07", "07", "a", "a"])
    ranker.partial_fit(X[8:10], y[8:10], qid=["-9", "-9"])
    ranker.forget(X[8:10], y[8:10], qid=[-9, -9])
    ranker.forget(X[:2], y[:2], qid=["7", "7"])
    reference = RankRLS().fit(X[2:8], y[2:8], qid=[8, 8, 1, 1, 2, 2])
    close(ranker.coef_, reference.coef_)


def test_forgetting_what_was_never_added():
    X, y, qid, weight = data(15, graded=False)
    learned = np.concatenate(batches_of(qid)[:2])
    ranker = RankRLS(solver="primal").fit(X[learned], y[learned], qid=qid[learned])
    before = dump(ranker)
    a, f = np.flatnonzero(qid == "a"), np.flatnonzero(qid == "f")
    everything = {"X": X[learned], "y": y[learned], "qid": qid[learned]}
    for arguments, message in [
        ({"X": X[f], "y": y[f], "qid": qid[f]}, "query 'f' was never added"),
        ({"X": X[a[1:]], "y": y[a[1:]], "qid": qid[a[1:]]}, "'a' was added with 5 rows, but 4"),
        ({"X": X[a], "y": y[a]}, "no ranking of 5 rows was added without qid"),
        ({"X": X[a], "y": y[a], "qid": qid[a], "pairs": [(0, 1)]}, "with 0 given pairs"),
        # The right number of rows, but other ones.
        ({**everything, "sample_weight": weight[learned]}, "was added with other features"),
        ({"X": X[a][:, ::-1], "y": y[a], "qid": qid[a]}, "'a' was added with other features"),
    ]:
        with pytest.raises(ValueError, match=message):
            ranker.forget(**arguments)
        assert dump(ranker) == before
    ranker.forget(**everything)
    with pytest.raises(NotFittedError):
        ranker.predict(X)


def test_queries_with_pairs_are_forgotten_together():
    X, y, qid, _ = data(16)
    first, second, *_ = batches_of(qid)
    ranker = RankRLS().partial_fit(X[first], y[first], qid=qid[first], pairs=[(0, 11), (1, 10)])
    ranker.partial_fit(X[second], y[second], qid=qid[second])
    a = np.flatnonzero(qid == "a")
    with pytest.raises(ValueError, match="added with 2 given pairs"):
        ranker.forget(X[a], y[a], qid=qid[a])
    with pytest.raises(ValueError, match="added with 2 given pairs"):
        ranker.forget(X[first], y[first], qid=qid[first], pairs=[(0, 11)])
    with pytest.raises(ValueError, match="added with 2 given pairs"):
        ranker.forget(X[a], y[a], qid=qid[a], pairs=[(0, 1), (1, 0)])
    ranker.forget(X[first], y[first], qid=qid[first], pairs=[(0, 11), (1, 10)])
    close(ranker.coef_, RankRLS().fit(X[second], y[second], qid=qid[second]).coef_)


def test_terms_may_not_change_but_alpha_may(learner):
    X, y, qid, _ = data(13)
    rest = slice(12, None)
    for changes, message in [
        ({"cost": "unit"}, "cost was changed from 'magnitude' to 'unit'"),
        ({"query_weighting": "size"}, "query_weighting was changed from .* to 'size'"),
        ({"kernel": "poly", "basis": 3}, "kernel was changed from .* to 'poly'"),
    ]:
        changed = pickle.loads(pickle.dumps(learner)).set_params(**changes)
        with pytest.raises(ValueError, match=message):
            changed.partial_fit(X[rest], y[rest], qid=qid[rest])
    learner.set_params(alpha=7.0).partial_fit(X[rest], y[rest], qid=qid[rest])
    assert learner._model.alpha == 7.0


@pytest.mark.parametrize("method", ["forget", "fit_stream"])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "dual"}, "use solver='primal'"),
        ({"kernel": "rbf"}, "'rbf' needs a fixed basis: set basis="),
        ({"kernel": "rbf", "solver": "primal"}, "needs a fixed basis"),
        ({"kernel": "precomputed"}, "precomputed kernel needs a fixed basis"),
    ],
)
def test_models_without_incremental_methods(method, parameters, message):
    X, y, qid, _ = data(17)
    ranker = RankRLS(**parameters)
    assert not hasattr(ranker, method)
    with pytest.raises(ValueError, match=message):
        getattr(ranker, method)(X, y, qid=qid)


# ---------------------------------------------------------------- altered rows, ids, weights

OTHER = "was added with other features, scores or weights"


def scaled_data(seed=0, n_queries=12, n_docs=8):
    """Features with offsets and of unlike scales, tied and duplicate rows; queries mixed."""
    rng = np.random.default_rng(seed)
    scales = np.array([1e-9, 1.0, 1e3, 1e9])
    X = rng.normal([0, 0, 5, 0], size=(n_queries * n_docs, 4)) * scales
    X[5] = X[3]
    qid = rng.permutation(np.repeat(np.arange(n_queries), n_docs))
    y = rng.integers(0, 3, len(X)).astype(float)
    return X, y, qid, rng.uniform(0.5, 2.0, len(X))


def changed(X, row, column):
    """The same rows with one cell that differs by a thousandth of the size of its column."""
    other = X.copy()
    other[row, column] += 1e-3 * np.abs(X[:, column]).max()
    return other


def fitted_by(how, *rows):
    names, order = ("X", "y", "qid", "sample_weight"), np.argsort(rows[2], kind="stable")
    if how != "cv stream":
        model = RankRLS() if how == "fit" else RankRLSCV(cv=3)
        return model.fit(**dict(zip(names, rows, strict=True)))
    names = ("data", "target", *names[2:])
    parts = ([part[some] for part in rows] for some in np.array_split(order, 7))  # cut inside
    batches = [dict(zip(names, part, strict=True)) for part in parts]
    return RankRLSCV(cv=3, scoring="pairwise_r2").fit_stream(batches)


@pytest.mark.parametrize(("how", "stored"), [("fit", True), ("cv", False), ("cv stream", True)])
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_other_values_cannot_be_forgotten(how, stored, tmp_path):
    X, y, qid, weight = scaled_data()
    model = fitted_by(how, X, y, qid, weight)
    if stored:
        save_model(model, tmp_path / "model")
        model = load_model(tmp_path / "model")
    for query in (0, 11):
        rows = np.flatnonzero(qid == query)[::-1]
        ids = {"qid": qid[rows].astype(str), "sample_weight": weight[rows]}
        for column in range(4):
            with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
                model.forget(changed(X[rows], 2, column), y[rows], **ids)
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            model.forget(X[rows], np.roll(y[rows] + 1e-3 * np.arange(8), 1), **ids)
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            model.forget(X[rows], y[rows], qid=ids["qid"])
        model.forget(X[rows], y[rows], **ids)
    assert model.n_queries_ == 10
    with pytest.warns(UserWarning, match=r"these rows have none: .* Pass sample_weight"):
        model.partial_fit(X[:8], y[:8], qid=[50] * 8)
    model.partial_fit(X[:8], y[:8], qid=[51] * 8, sample_weight=np.ones(8))


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_checksums_follow_the_scaler():
    """The units of the features change whenever rows come or go."""
    X, y, qid, _ = scaled_data(1)
    X = X / [1e-9, 1.0, 1e3, 1e9] + [0, 1e4, 0, -3]  # an offset beside small deviations
    first, later, last = qid < 6, (qid >= 6) & (qid < 11), qid == 11
    model = make_pipeline(StandardScaler(), RankRLS())
    streaming.fit_stream(model, [(X[first], y[first], qid[first])])
    streaming.partial_fit(model, X[later], y[later], qid=qid[later])
    streaming.partial_fit(model, X[last], y[last], qid=qid[last])
    for query in (3, 8, 11):
        rows = qid == query
        with pytest.raises(ValueError, match=f"query {query} {OTHER}"):
            streaming.forget(model, changed(X[rows], 1, 2), y[rows], qid=qid[rows])
        streaming.forget(model, X[rows], y[rows], qid=qid[rows])


# ---------------------------------------------------------------- rounding errors of what went


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("columns", [slice(0, 1), "labels"])
@pytest.mark.parametrize("scale", [1e2, 1e8])
def test_a_query_of_large_values_is_forgotten_to_eight_digits_or_not(
    scale, columns, stored, tmp_path
):
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((200, 5)), rng.standard_normal(200), np.repeat(range(20), 10)
    large, labels = rng.standard_normal((10, 5)), rng.standard_normal(10)
    if columns == "labels":
        labels *= scale
    else:
        large[:, columns] *= scale
    ranker = RankRLS().fit(X, y, qid=qid)
    before = ranker.coef_.copy()
    ranker.partial_fit(large, labels, qid=[99] * 10)
    if stored:  # what was once added is part of the file
        save_model(ranker, tmp_path / "model.rankrls")
        ranker = load_model(tmp_path / "model.rankrls")
    if scale > 1e6:
        with pytest.raises(ValueError, match=r"Fit a new one to the rows that stay"):
            ranker.forget(large, labels, qid=[99] * 10)
        assert ranker.n_queries_ == 21
    else:
        ranker.forget(large, labels, qid=[99] * 10)
        error = np.abs(ranker.coef_ - before).max() / np.abs(before).max()
        assert error < 1e-10


def test_calls_without_qid_are_rankings():
    X, y, _, weight = data(7)
    ranker = RankRLS(query_weighting="query", solver="primal")
    incremental = clone(ranker).partial_fit(X[:10], y[:10], sample_weight=weight[:10])
    with pytest.warns(UserWarning, match="has learned from rows with sample_weight, and these"):
        incremental.partial_fit(X[10:25], y[10:25])
    incremental.partial_fit(X[25:], y[25:], qid=["z"] * 15, sample_weight=np.ones(15))
    qid = np.repeat([0, 1, 2], [10, 15, 15])
    w = np.concatenate([weight[:10], np.ones(30)])
    same(incremental, clone(ranker).fit(X, y, qid=qid, sample_weight=w), X)
    for altered in ((X[10:25], -y[10:25]), (X[10:25] + 0.01, y[10:25])):
        with pytest.raises(ValueError, match=f"a ranking of 15 rows {OTHER}"):
            incremental.forget(*altered)
    incremental.forget(X[10:25], y[10:25])
    kept = qid != 1
    reference = clone(ranker).fit(X[kept], y[kept], qid=qid[kept], sample_weight=w[kept])
    same(incremental, reference, X)
    with pytest.raises(ValueError, match="no ranking of 15 rows was added without qid"):
        incremental.forget(X[10:25], y[10:25])


def test_auto_that_chose_dual():
    X, y, qid, _ = data(18, n=60)
    ranker = RankRLS().fit(X, y, qid=qid)
    assert ranker.solver_ == "dual"
    with pytest.raises(ValueError, match=r"solver='dual', which solver='auto' chose.*'primal'"):
        ranker.partial_fit(X, y, qid=np.char.add(qid, "!"))
    # A first partial_fit is primal, whatever the shape.
    assert RankRLS().partial_fit(X, y, qid=qid).solver_ == "primal"


def test_ids_of_files():
    texts = ["2", "02", "-3", "-0", "x", "٣", "9" * 25, ""]
    assert query_keys(np.array(texts)) == query_keys(texts) == texts
    assert query_keys([2, 2.0, np.int8(2), True, np.float32(-3)]) == ["2", "2", "2", "1", "-3"]
    others = query_keys([2.5, "2.5", ("2", 3), "2, 3", None, np.datetime64("2020-01-01")])
    assert len(set(others)) == 6
    day = np.datetime64("2020-01-01")
    dates = [day, day.astype("M8[ns]"), date(2020, 1, 1), pd.Timestamp("2020-01-01")]
    assert query_keys(dates) == others[-1:] * 4
    assert query_keys([np.float64(2.5), (np.int64(2), 3.0)]) == [others[0], others[2]]


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_many_operations_do_not_drift():
    rng = np.random.default_rng(0)
    scales, known, ranker = np.geomspace(1e-5, 1e5, 5), {}, RankRLS()
    for number in range(400):
        if len(known) < 5 or rng.random() < 0.55:
            known[number] = (rng.standard_normal((8, 5)) * scales, rng.standard_normal(8))
            ranker.partial_fit(*known[number], qid=[number] * 8)
        else:
            gone = int(rng.choice(list(known)))
            ranker.forget(*known.pop(gone), qid=[gone] * 8)
    X, y = (np.concatenate(part) for part in zip(*known.values(), strict=True))
    fresh = RankRLS().fit(X, y, qid=np.repeat(list(known), 8))
    np.testing.assert_allclose(ranker.coef_, fresh.coef_, rtol=1e-8)
