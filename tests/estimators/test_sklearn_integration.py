"""RankRLS among scikit-learn's tools, and over every kind of container that users have."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from rankrls import PreferenceGraph, RankRLS
from rankrls.io import load_model, save_model
from rankrls.metrics import (
    ndcg,
    ndcg_scorer,
    pairwise_accuracy,
    pairwise_accuracy_scorer,
)
from rankrls.preprocessing import QueryScaler

N, D = 40, 4
ALPHAS = [0.01, 1.0, 100.0]

#: One for every model class and way into it.
MODELS = {
    "primal": RankRLS(solver="primal"),
    "dual": RankRLS(solver="dual", cost="unit"),
    "rbf": RankRLS(kernel="rbf", cost="relative"),
    "nystroem": RankRLS(kernel="rbf", basis=15, random_state=3, ties="drop"),
    "linear nystroem": RankRLS(solver="nystroem", basis=[0, 7, 21, 33]),
    "callable": RankRLS(kernel=np.dot, query_weighting="size"),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
named_kernels = pytest.mark.parametrize("model", list(MODELS.values())[:4], ids=list(MODELS)[:4])


def make_data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)).round(2) * (rng.random((N, D)) < 0.7) + 0.0
    qid = rng.permutation(np.repeat(np.arange(10), 4))
    offsets = rng.normal(size=10)[qid]
    y = (X @ [1.0, -2.0, 0.5, 0.0] + offsets + rng.normal(size=N)).round()
    return X, y, qid


@pytest.fixture
def data():
    return make_data()


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def asking(ranker):
    """A ranker that asks for qid in fit and in score."""
    return ranker.set_fit_request(qid=True).set_score_request(qid=True)


def grouped(n_splits=5):
    return GroupKFold(n_splits).set_split_request(groups="qid")


def by_hand(ranker, X, y, qid, splits):
    """Scores of all folds, without any of scikit-learn's machinery."""
    return [
        clone(ranker).fit(X[train], y[train], qid=qid[train]).score(X[test], y[test], qid=qid[test])
        for train, test in splits
    ]


# ---------------------------------------------------------------------- the estimator protocol


@every_model
def test_fit_changes_nothing_it_is_given(model, data):
    X, y, qid = data
    given = {"y": y, "qid": qid, "sample_weight": np.linspace(1, 2, N)}
    given |= {"pairs": np.array([(0, 1), (5, 2)]), "magnitude": np.array([1.0, 2.0])}
    given |= {"X": X, "pair_weight": np.array([3.0, 1.0])}
    before = {name: array.copy() for name, array in given.items()}
    ranker = clone(model)
    params = repr(ranker.get_params())
    ranker.fit(**given).predict(X, return_std=True)
    ranker.preference_proba(X, X[::-1])
    for name, old in before.items():
        assert_array_equal(given[name], old)
    assert repr(ranker.get_params()) == params


def test_refit_leaves_nothing_stale(data):
    X, y, qid = data
    frame, Y = pd.DataFrame(X, columns=list("abcd")), np.column_stack([y, y])
    ranker = RankRLS(kernel="rbf", basis=5, random_state=0).fit(frame, Y, qid=qid)
    for options in ({"solver": "dual"}, {"kernel": "rbf"}, {"basis": 3, "random_state": 0}, {}):
        ranker.set_params(**RankRLS().get_params()).set_params(**options).fit(X[:, :2], y)
        expected = RankRLS(**options).fit(X[:, :2], y)
        assert set(vars(ranker)) == set(vars(expected))
        assert_array_equal(ranker.predict(X[:, :2]), expected.predict(X[:, :2]))
        assert ranker.score(X[:, :2], y) == expected.score(X[:, :2], y)  # the qid is forgotten


# ---------------------------------------------------------------------- shapes


@every_model
def test_shapes(model, data):
    X, y, _ = data
    Y = np.column_stack([y, X[:, 0], X[:, 1] ** 2])
    for target, shape in [(y, ()), (y[:, None], (1,)), (Y, (3,))]:
        ranker = clone(model).fit(X, target)
        for rows in (1, 7):
            mean, std = ranker.predict(X[:rows], return_std=True)
            assert mean.shape == std.shape == (rows, *shape)
            assert ranker.predict(X[:rows]).shape == (rows, *shape)
            assert ranker.preference_proba(X[:rows], X[1 : rows + 1]).shape == (rows, *shape)
        if hasattr(ranker, "coef_"):
            assert ranker.coef_.shape == (*shape, D)
        if hasattr(ranker, "dual_coef_"):
            n_kernel_rows = len(getattr(ranker, "basis_indices_", X))
            assert ranker.dual_coef_.shape == (n_kernel_rows, *shape)
        assert isinstance(ranker.score(X, target), float)


# ---------------------------------------------------------------------- containers


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def non_contiguous(array):
    wide = np.full((2 * array.shape[0], 2 * array.shape[1]), np.nan)
    wide[::2, ::2] = array
    return wide[::2, ::2]


def memory_map(array, path):
    np.save(path / "X.npy", array)
    return np.load(path / "X.npy", mmap_mode="r")


def long_index(X):
    X = sparse.csr_array(X)
    return sparse.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)))


def with_stored_zeros(X):
    return sparse.csr_array((X.ravel(), np.tile(np.arange(D), N), np.arange(0, X.size + 1, D)))


def with_duplicates(X):
    """Every entry in two halves, columns from right to left."""
    columns = np.tile(np.repeat(np.arange(D)[::-1], 2), N)
    starts = np.arange(0, 2 * X.size + 1, 2 * D)
    return sparse.csr_array((np.repeat(X[:, ::-1].ravel(), 2) / 2, columns, starts), shape=X.shape)


CONTAINERS = {
    "read-only": lambda X, path: read_only(np.asfortranarray(X)),
    "non-contiguous": lambda X, path: non_contiguous(X),
    "memmap": memory_map,
    "big-endian": lambda X, path: X.astype(">f8"),
    "pandas": lambda X, path: pd.DataFrame(X, columns=list("abcd")),
    "pandas mixed": lambda X, path: pd.DataFrame({"a": X[:, 0], "b": pd.array(X[:, 1])}).assign(
        c=X[:, 2], d=pd.array(X[:, 3], dtype="Float64")
    ),
    "polars": lambda X, path: pl.DataFrame(X, schema=list("abcd")),
    "csr_array": lambda X, path: sparse.csr_array(X),
    "csc_array": lambda X, path: sparse.csc_array(X),
    "int64 indices": lambda X, path: long_index(X),
    "stored zeros": lambda X, path: with_stored_zeros(X),
    "duplicates": lambda X, path: with_duplicates(X),
}


@named_kernels
@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_of_X(container, model, data, tmp_path):
    X, y, qid = data
    expected = clone(model).fit(X, y, qid=qid)
    given = CONTAINERS[container](X, tmp_path)
    ranker = clone(model).fit(given, y, qid=qid)
    assert ranker.solver_ == expected.solver_
    mean, std = ranker.predict(given, return_std=True)
    expected_mean, expected_std = expected.predict(X, return_std=True)
    assert isinstance(mean, np.ndarray)
    assert_allclose(mean, expected_mean, atol=1e-8)
    assert_allclose(std, expected_std, atol=1e-6)
    assert ranker.score(given, y, qid=qid) == expected.score(X, y, qid=qid)
    assert_allclose(
        ranker.preference_proba(given, given), expected.preference_proba(X, X), atol=1e-8
    )


@named_kernels
def test_float32(model, data):
    X, y, qid = data
    expected = clone(model).fit(X, y, qid=qid).predict(X)
    for given in (X.astype(np.float32), sparse.csr_array(X.astype(np.float32))):
        ranker = clone(model).fit(given, y, qid=qid)
        predictions = ranker.predict(given)
        assert predictions.dtype == np.float32
        assert_allclose(predictions, expected, atol=1e-3)
    assert clone(model).fit(X, y.astype(np.float32), qid=qid).predict(X).dtype == np.float64


TARGETS = {
    "int64": lambda y: y.astype(np.int64),
    "float32": lambda y: y.astype(np.float32),
    "list": lambda y: y.tolist(),
    "pandas": lambda y: pd.Series(y, index=np.arange(N)[::-1]),
    "polars": lambda y: pl.Series(y),
    "read-only": read_only,
}


@pytest.mark.parametrize("cost", ["magnitude", "unit"])
@pytest.mark.parametrize("kind", TARGETS)
def test_kinds_of_y(kind, cost, data):
    X, y, qid = data
    given = TARGETS[kind](y)
    expected = RankRLS(cost=cost).fit(X, y, qid=qid)
    ranker = RankRLS(cost=cost).fit(X, given, qid=qid)
    assert_allclose(ranker.predict(X), expected.predict(X), atol=1e-9)
    assert ranker.predict(X).shape == (N,)
    assert ranker.score(X, given, qid=qid) == expected.score(X, y, qid=qid)


WORDS = np.array([f"query {'jihgfedcba'[i]}" for i in range(10)])
IDS = {
    "float": lambda q: q / 4,
    "uint64": lambda q: q.astype(np.uint64) + 2**63,
    "pyarrow": lambda q: pa.array(WORDS[q].tolist()),
    "column": lambda q: q[:, None],
    "strings": lambda q: WORDS[q],
    "object strings": lambda q: WORDS[q].astype(object),
    "tuples": lambda q: [(int(i) % 2, str(i)) for i in q],
    "mixed": lambda q: [int(i) if i % 2 else str(i) for i in q],
    "dates": lambda q: np.datetime64("2024-01-01") + q,
    "pandas": lambda q: pd.Series(q, index=np.arange(N)[::-1]),
    "pandas categories": lambda q: pd.Series(WORDS[q], dtype="category"),
    "pandas unused category": lambda q: pd.Series(
        pd.Categorical(WORDS[q], categories=["none", *WORDS[::-1]])
    ),
    "pandas frame": lambda q: pd.DataFrame({"qid": q}),
    "polars categories": lambda q: pl.Series(WORDS[q], dtype=pl.Categorical),
    "read-only": read_only,
}


@pytest.mark.parametrize("kind", IDS)
def test_kinds_of_qid(kind, data, tmp_path):
    X, y, qid = data
    given = IDS[kind](qid)
    expected = RankRLS(cost="unit", query_weighting="query").fit(X, y, qid=qid)
    ranker = clone(expected).fit(X, y, qid=given)
    assert ranker.n_queries_ == 10
    assert ranker.n_pairs_ == expected.n_pairs_
    assert_allclose(ranker.coef_, expected.coef_, rtol=1e-10)
    assert ranker.score(X, y, qid=given) == pytest.approx(expected.score(X, y, qid=qid))
    save_model(ranker, tmp_path / "model")
    with pytest.raises(ValueError, match="was added before"):
        load_model(tmp_path / "model").partial_fit(X, y, qid=given)


# ---------------------------------------------------------------------- names of columns


@pytest.mark.parametrize(
    "frame",
    [
        lambda X, names: pd.DataFrame(X, columns=names),
        lambda X, names: pl.DataFrame(X, schema=names),
    ],
    ids=["pandas", "polars"],
)
@pytest.mark.parametrize("model", [MODELS["primal"], MODELS["nystroem"]])
def test_feature_names(model, frame, data):
    X, y, qid = data
    ranker = clone(model).fit(frame(X, list("abcd")), y, qid=qid)
    assert_array_equal(ranker.feature_names_in_, list("abcd"))
    expected = clone(model).fit(X, y, qid=qid).predict(X)
    assert_allclose(ranker.predict(frame(X, list("abcd"))), expected, atol=1e-10)
    for method in (
        ranker.predict,
        lambda F: ranker.score(F, y, qid=qid),
        lambda F: ranker.preference_proba(F, F),
    ):
        with pytest.raises(ValueError, match="feature names should match"):
            method(frame(X, list("abdc")))  # the same ones in another order
        with pytest.raises(ValueError, match="feature names should match"):
            method(frame(X, list("abce")))
        with pytest.raises(ValueError, match="feature names should match"):
            method(frame(X[:, :3], list("abc")))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ranker.predict(X)
    unnamed = clone(model).fit(X, y, qid=qid)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        unnamed.predict(frame(X, list("abcd")))


# ---------------------------------------------------------------------- searches with scores y


@pytest.mark.usefixtures("routing")
def test_grid_search_over_a_pipeline_with_query_scaler(data):
    X, y, qid = data
    pipe = Pipeline(
        [
            ("scale", QueryScaler().set_transform_request(qid=True)),
            ("rank", asking(RankRLS())),
        ]
    )
    grid = {"rank__alpha": ALPHAS, "scale__method": ["minmax", "standard"]}
    search = GridSearchCV(pipe, grid, cv=grouped(), error_score="raise")
    search.fit(X, y, qid=qid)
    splits = list(GroupKFold(5).split(X, y, groups=qid))
    expected = []
    for params in search.cv_results_["params"]:
        Z = QueryScaler(params["scale__method"]).fit_transform(X, qid=qid)
        ranker = RankRLS(params["rank__alpha"])
        expected.append(np.mean(by_hand(ranker, Z, y, qid, splits)))
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-12)
    assert search.best_score_ == pytest.approx(max(expected), rel=1e-12)
    Z = QueryScaler(search.best_params_["scale__method"]).fit_transform(X, qid=qid)
    best = RankRLS(search.best_params_["rank__alpha"]).fit(Z, y, qid=qid)
    assert_allclose(search.best_estimator_.predict(X, qid=qid), best.predict(Z))


@pytest.mark.usefixtures("routing")
def test_cross_val_score_with_scorer(data):
    X, y, qid = data
    y = y - y.min()  # ndcg takes no negative labels
    splits = list(GroupKFold(5).split(X, y, groups=qid))
    scoring = {"pairs": pairwise_accuracy_scorer, "ndcg": ndcg_scorer}
    options = {"cv": grouped(), "params": {"qid": qid}, "return_estimator": True}
    found = cross_validate(asking(RankRLS()), X, y, scoring=scoring, **options)
    assert_allclose(found["test_pairs"], by_hand(RankRLS(), X, y, qid, splits))
    for ranker, value, (_, test) in zip(
        found["estimator"], found["test_ndcg"], splits, strict=True
    ):
        assert value == ndcg(y[test], ranker.predict(X[test]), qid=qid[test])


def test_scorer_that_qid_does_not_reach_is_refused(data):
    """Without routing, rows of different queries would silently be compared."""
    X, y, qid = data
    pipe = make_pipeline(StandardScaler(), RankRLS()).fit(X, y, rankrls__qid=qid)
    with sklearn.config_context(enable_metadata_routing=True):
        score = pairwise_accuracy_scorer(pipe, X, y, qid=qid)
    assert score == pairwise_accuracy(y, pipe.predict(X), qid=qid)
    for model in (pipe, RankRLS().fit(X, y, qid=qid)):
        with pytest.raises(ValueError, match=r"no qid reached the scorer.*metadata_routing"):
            pairwise_accuracy_scorer(model, X, y)
    search = GridSearchCV(
        pipe, {"rankrls__alpha": ALPHAS}, cv=GroupKFold(3), scoring=pairwise_accuracy_scorer,
        error_score="raise",
    )  # fmt: skip
    with pytest.raises(ValueError, match="no qid reached the scorer"):
        search.fit(X, y, groups=qid, rankrls__qid=qid)
    assert pairwise_accuracy_scorer(RankRLS().fit(X, y), X, y) > 0  # one ranking


def test_search_without_routing_says_what_is_missing(data):
    """fit gets its part of qid, score gets none: an error, not a wrong number."""
    X, y, qid = data
    search = GridSearchCV(RankRLS(), {"alpha": ALPHAS}, cv=KFold(3), error_score="raise")
    with pytest.raises(ValueError, match="score needs qid too"):
        search.fit(X, y, qid=qid)


def test_precomputed_kernel_is_cut_on_both_sides(data):
    X, y, _ = data
    Z = X - X.mean(axis=0)
    found = cross_val_score(RankRLS(kernel="precomputed"), Z @ Z.T, y, cv=KFold(4))
    assert_allclose(found, cross_val_score(RankRLS(), Z, y, cv=KFold(4)))


# ---------------------------------------------------------------------- searches with a graph y


def graphs(data):
    X, y, qid = data
    rng = np.random.default_rng(1)
    hidden = X @ [1.0, -2.0, 0.5, 0.0]
    pairs = np.array([rng.choice(N, 2, replace=False) for _ in range(400)])
    better = hidden[pairs[:, 0]] + rng.normal(size=400) > hidden[pairs[:, 1]]
    pairs = np.where(better[:, None], pairs, pairs[:, ::-1])
    given = PreferenceGraph.from_pairs(pairs, n_rows=N, magnitude=rng.uniform(1, 2, size=400))
    scored = PreferenceGraph.from_scores(y, qid=qid)
    return {
        "pairs": given,
        "scores": scored,
        "both": scored + given,
        "outputs": PreferenceGraph.from_scores(np.column_stack([y, X[:, 0]]), qid=qid),
    }


KINDS = ("pairs", "scores", "both", "outputs")
FOLDS = KFold(4, shuffle=True, random_state=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["primal", "rbf", "dual"])
def test_cross_validation_of_a_graph(kind, name, data):
    X, *_ = data
    graph = graphs(data)[kind]
    options = {"return_estimator": True, "return_indices": True, "error_score": "raise"}
    found = cross_validate(MODELS[name], X, graph, cv=FOLDS, **options)
    folds = zip(found["indices"]["train"], found["indices"]["test"], strict=True)
    for ranker, score, (train, test) in zip(
        found["estimator"], found["test_score"], folds, strict=True
    ):
        expected = clone(MODELS[name]).fit(X[train], graph[train])
        assert_array_equal(ranker.predict(X), expected.predict(X))
        assert score == expected.score(X[test], graph[test])
    assert 0.5 < found["test_score"].mean() <= 1


@pytest.mark.parametrize("case", ["tied scores", "single rows", "weights zero"])
@pytest.mark.parametrize("solver", ["primal", "dual", "nystroem"])
def test_fit_of_a_fold_where_the_scores_say_nothing(case, solver, data):
    X, y, _ = data
    scores = {
        "tied scores": PreferenceGraph.from_scores(0 * y),
        "single rows": PreferenceGraph.from_scores(y, qid=np.arange(N)),
        "weights zero": PreferenceGraph.from_scores(y, sample_weight=0 * y),
    }[case]
    pairs = PreferenceGraph.from_pairs([(0, 1), (4, 2), (7, 3)], n_rows=N)
    for cost in ("magnitude", "unit", "relative"):
        ranker = RankRLS(solver=solver, cost=cost, ties="drop")
        found, expected = clone(ranker).fit(X, scores + pairs), clone(ranker).fit(X, pairs)
        assert found.n_pairs_ == 3
        stds = (r.predict(X, return_std=True)[1] for r in (found, expected))
        assert_allclose(*stds)
        edges = oracles.edges_of_pairs(pairs.pairs, cost=cost)
        assert_allclose(found.coef_, oracles.primal_coefficients(edges, X, 1.0), atol=1e-8)


@pytest.mark.usefixtures("routing")
def test_sample_weight_by_routing(data):
    X, y, qid = data
    params = {"qid": qid, "sample_weight": np.linspace(0.1, 3, N)}
    ranker = asking(RankRLS()).set_fit_request(sample_weight=True)
    ranker.set_score_request(sample_weight=False)
    found = cross_validate(
        ranker, X, y, cv=grouped(), params=params, return_estimator=True, return_indices=True
    )
    for fitted, train in zip(found["estimator"], found["indices"]["train"], strict=True):
        part = {name: values[train] for name, values in params.items()}
        assert_allclose(fitted.coef_, RankRLS().fit(X[train], y[train], **part).coef_)
    search = GridSearchCV(ranker, {"alpha": ALPHAS}, cv=grouped()).fit(X, y, **params)
    expected = RankRLS(search.best_params_["alpha"]).fit(X, y, **params)
    assert_allclose(search.best_estimator_.coef_, expected.coef_)
