"""RankRLS among scikit-learn's tools, and over every kind of container that users have."""

import pickle
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

import oracles
from rankrls import PreferenceGraph, RankRLS, model_selection
from rankrls.metrics import (
    make_ranking_scorer,
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
def test_clone_and_params(model, data):
    X, y, _ = data
    params = model.get_params()
    copy = clone(model)
    assert repr(copy.get_params()) == repr(params)
    assert not hasattr(clone(copy.fit(X, y)), "solver_")
    again = RankRLS().set_params(**params).fit(X, y)
    assert_array_equal(again.predict(X), copy.predict(X))


def test_params_are_the_constructor_arguments():
    names = set(RankRLS().get_params())
    documented = RankRLS.__doc__.split("Parameters\n", 1)[1].split("Attributes\n", 1)[0]
    assert {name for name in names if name not in documented} == set()
    with pytest.raises(ValueError, match="Invalid parameter 'lambda_'"):
        RankRLS().set_params(lambda_=1)


@every_model
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_round_trip(model, outputs, how, data, tmp_path):
    X, y, qid = data
    Y = y if outputs == 1 else np.column_stack([y, -X[:, 0]])
    ranker = clone(model).fit(X, Y, qid=qid)
    if how == "pickle":
        copy = pickle.loads(pickle.dumps(ranker))
    else:
        joblib.dump(ranker, tmp_path / "model")
        copy = joblib.load(tmp_path / "model")
    (mean, std), (copied_mean, copied_std) = (r.predict(X, return_std=True) for r in (ranker, copy))
    assert_array_equal(copied_mean, mean)
    # A copy's arrays may lie otherwise in memory, and BLAS then sums in another order.
    same = partial(assert_allclose, rtol=1e-12)
    same(copied_std, std)
    same(copy.preference_proba(X[:5], X[5:10]), ranker.preference_proba(X[:5], X[5:10]))
    same(copy.log_marginal_likelihood(), ranker.log_marginal_likelihood())
    assert copy.score(X, Y, qid=qid) == ranker.score(X, Y, qid=qid)


def test_what_it_says_it_is():
    ranker = RankRLS()
    assert not is_regressor(ranker)
    assert not is_classifier(ranker)
    tags = get_tags(ranker)
    assert tags.estimator_type == "ranker"
    assert tags.input_tags.sparse
    assert not tags.input_tags.pairwise
    assert tags.target_tags.required
    assert tags.target_tags.multi_output
    assert get_tags(RankRLS(kernel="precomputed")).input_tags.pairwise
    assert not hasattr(ranker, "set_output")
    assert not hasattr(ranker, "transform")


def test_repr(data):
    X, y, _ = data
    assert repr(RankRLS(alpha=2.0, kernel="rbf")) == "RankRLS(alpha=2.0, kernel='rbf')"
    for ranker in (RankRLS(), RankRLS().fit(X, y), make_pipeline(StandardScaler(), RankRLS())):
        assert "RankRLS" in ranker._repr_html_()


@every_model
def test_fit_changes_nothing_it_is_given(model, data):
    X, y, qid = data
    weight, pairs = np.linspace(1, 2, N), np.array([(0, 1), (5, 2)])
    magnitude, pair_weight = np.array([1.0, 2.0]), np.array([3.0, 1.0])
    given = [X, y, qid, weight, pairs, magnitude, pair_weight]
    before = [array.copy() for array in given]
    ranker = clone(model)
    params = {name: repr(value) for name, value in ranker.get_params().items()}
    ranker.fit(
        X,
        y,
        qid=qid,
        sample_weight=weight,
        pairs=pairs,
        magnitude=magnitude,
        pair_weight=pair_weight,
    )
    ranker.predict(X, return_std=True)
    ranker.preference_proba(X, X[::-1])
    ranker.score(X, y, qid=qid)
    for array, old in zip(given, before, strict=True):
        assert_array_equal(array, old)
    assert {name: repr(value) for name, value in ranker.get_params().items()} == params


@pytest.mark.parametrize("solver", ["dual", "nystroem"])
def test_fit_leaves_the_kernel_matrix(solver, data):
    X, y, _ = data
    K = X @ X.T
    before = K.copy()
    ranker = RankRLS(kernel="precomputed", solver=solver).fit(K, y)
    ranker.predict(K)
    assert_array_equal(K, before)


def test_refit_leaves_nothing_stale(data):
    X, y, _ = data
    expected = {
        "primal": ({"solver": "primal"}, {"coef_"}),
        "rbf": ({"solver": "dual", "kernel": "rbf"}, {"dual_coef_"}),
        "nystroem": (
            {"solver": "nystroem", "kernel": "rbf", "basis": 5, "random_state": 0},
            {"dual_coef_", "basis_indices_"},
        ),
        "dual": ({"solver": "dual", "kernel": "linear"}, {"coef_", "dual_coef_"}),
    }
    defaults = RankRLS().get_params()
    ranker = RankRLS()
    for name in ["primal", "rbf", "nystroem", "dual", "primal", "nystroem", "rbf", "primal"]:
        options, attributes = expected[name]
        ranker.set_params(**defaults).set_params(**options).fit(X, y)
        present = {a for a in ("coef_", "dual_coef_", "basis_indices_") if hasattr(ranker, a)}
        assert present == attributes, name
        assert_array_equal(ranker.predict(X), RankRLS(**options).fit(X, y).predict(X))


def test_refit_on_other_data(data):
    X, y, qid = data
    ranker = RankRLS().fit(pd.DataFrame(X, columns=list("abcd")), np.column_stack([y, y]), qid=qid)
    ranker.fit(X[:, :2], y)
    assert not hasattr(ranker, "feature_names_in_")
    assert ranker.n_features_in_ == 2
    assert ranker.coef_.shape == (2,)
    assert ranker.n_queries_ == 1
    ranker.score(X[:, :2], y)  # the qid of the first fit is forgotten


def test_random_basis(data):
    X, y, _ = data
    ranker = RankRLS(kernel="rbf", basis=10, random_state=5)
    first, second = clone(ranker).fit(X, y), clone(ranker).fit(X, y)
    assert_array_equal(first.basis_indices_, second.basis_indices_)
    assert_array_equal(first.predict(X), second.predict(X))
    assert_array_equal(first.fit(X, y).predict(X), second.predict(X))
    other = clone(ranker).set_params(random_state=6).fit(X, y)
    assert set(other.basis_indices_) != set(first.basis_indices_)
    shared = np.random.RandomState(5)
    ranker.set_params(random_state=shared)
    assert_array_equal(ranker.fit(X, y).basis_indices_, first.basis_indices_)
    assert set(ranker.fit(X, y).basis_indices_) != set(first.basis_indices_)


def test_global_random_state_is_left_alone(data):
    X, y, _ = data
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    RankRLS(kernel="rbf", basis=10, random_state=5).fit(X, y)
    RankRLS().fit(X, y)
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_verbose_is_on_stderr(data, capsys):
    X, y, _ = data
    RankRLS().fit(X, y).score(X, y)
    assert capsys.readouterr() == ("", "")
    RankRLS(verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "RankRLS" in err
    assert "solver primal" in err


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


@every_model
def test_one_column_equals_none(model, data):
    X, y, qid = data
    flat = clone(model).fit(X, y, qid=qid)
    column = clone(model).fit(X, y[:, None], qid=qid)
    for one, other in zip(
        flat.predict(X, return_std=True), column.predict(X, return_std=True), strict=True
    ):
        assert_array_equal(one, other[:, 0])
    assert flat.score(X, y, qid=qid) == column.score(X, y[:, None], qid=qid)
    assert flat.score(X, y[:, None], qid=qid) == column.score(X, y, qid=qid)


@every_model
def test_rows_are_predicted_one_by_one(model, data):
    X, y, _ = data
    ranker = clone(model).fit(X, y)
    single = np.concatenate([ranker.predict(row[None]) for row in X])
    assert_allclose(single, ranker.predict(X), atol=1e-10)


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
    "read-only": lambda X, path: read_only(X),
    "Fortran": lambda X, path: np.asfortranarray(X),
    "non-contiguous": lambda X, path: non_contiguous(X),
    "reversed": lambda X, path: X[::-1].copy()[::-1],
    "memmap": memory_map,
    "list of lists": lambda X, path: X.tolist(),
    "list of arrays": lambda X, path: list(X),
    "object": lambda X, path: X.astype(object),
    "longdouble": lambda X, path: X.astype(np.longdouble),
    "big-endian": lambda X, path: X.astype(">f8"),
    "pandas": lambda X, path: pd.DataFrame(X, columns=list("abcd")),
    "pandas mixed": lambda X, path: pd.DataFrame({"a": X[:, 0], "b": pd.array(X[:, 1])}).assign(
        c=X[:, 2], d=pd.array(X[:, 3], dtype="Float64")
    ),
    "polars": lambda X, path: pl.DataFrame(X, schema=list("abcd")),
    "csr_array": lambda X, path: sparse.csr_array(X),
    "csc_array": lambda X, path: sparse.csc_array(X),
    "coo_array": lambda X, path: sparse.coo_array(X),
    "lil_array": lambda X, path: sparse.lil_array(X),
    "csr_matrix": lambda X, path: sparse.csr_matrix(X),
    "csc_matrix": lambda X, path: sparse.csc_matrix(X),
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


@every_model
def test_dense_and_sparse_are_interchangeable(model, data):
    X, y, _ = data
    S = sparse.csr_array(X)
    if callable(model.kernel):
        with pytest.raises(ValueError, match="function of two dense rows"):
            clone(model).fit(S, y)
        return
    dense, sparsely = clone(model).fit(X, y), clone(model).fit(S, y)
    for one, other in zip(
        dense.predict(S, return_std=True), sparsely.predict(X, return_std=True), strict=True
    ):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert_allclose(one, other, atol=1e-6)
    assert_allclose(
        dense.preference_proba(S[:9], X[9:18]), dense.preference_proba(X[:9], S[9:18]), atol=1e-8
    )


@pytest.mark.parametrize("solver", ["dual", "nystroem"])
@pytest.mark.parametrize(
    "container",
    [
        read_only,
        np.asfortranarray,
        non_contiguous,
        pd.DataFrame,
        np.ndarray.tolist,
        sparse.csr_array,
        sparse.csc_matrix,
    ],
)
def test_containers_of_a_kernel_matrix(container, solver, data):
    X, y, qid = data
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    expected = RankRLS(kernel="rbf", gamma=1.0, solver=solver).fit(X, y, qid=qid)
    ranker = RankRLS(kernel="precomputed", solver=solver).fit(container(K), y, qid=qid)
    assert_allclose(ranker.predict(container(K[:7])), expected.predict(X[:7]), atol=1e-8)


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
    "int8": lambda y: y.astype(np.int8),
    "uint8": lambda y: (y - y.min()).astype(np.uint8),
    "float32": lambda y: y.astype(np.float32),
    "float16": lambda y: y.astype(np.float16),
    "object": lambda y: y.astype(object),
    "list": lambda y: y.tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "pandas": lambda y: pd.Series(y, index=np.arange(N)[::-1]),
    "pandas Int64": lambda y: pd.Series(y).astype("Int64"),
    "polars": lambda y: pl.Series(y),
    "polars int": lambda y: pl.Series(y.astype(int)),
    "read-only": read_only,
    "strided": lambda y: np.repeat(y, 2)[::2],
    "reversed": lambda y: y[::-1].copy()[::-1],
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


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_of_y(frame, data):
    X, y, qid = data
    Y = frame({"one": y, "two": X[:, 0]})
    ranker = RankRLS().fit(X, Y, qid=qid)
    assert ranker.predict(X).shape == (N, 2)
    assert_allclose(ranker.predict(X)[:, 0], RankRLS().fit(X, y, qid=qid).predict(X))
    assert 0 < ranker.score(X, Y, qid=qid) <= 1


def test_boolean_y(data):
    X, y, _ = data
    good = y > np.median(y)
    assert_allclose(RankRLS().fit(X, good).coef_, RankRLS().fit(X, good.astype(float)).coef_)


WORDS = np.array([f"query {'jihgfedcba'[i]}" for i in range(10)])
IDS = {
    "list": lambda q: q.tolist(),
    "float": lambda q: q / 4,
    "uint64": lambda q: q.astype(np.uint64) + 2**63,
    "negative": lambda q: -q,
    "column": lambda q: q[:, None],
    "strings": lambda q: WORDS[q],
    "list of strings": lambda q: WORDS[q].tolist(),
    "bytes": lambda q: WORDS[q].astype(bytes),
    "object strings": lambda q: WORDS[q].astype(object),
    "tuples": lambda q: [(int(i) % 2, str(i)) for i in q],
    "mixed": lambda q: [int(i) if i % 2 else str(i) for i in q],
    "dates": lambda q: np.datetime64("2024-01-01") + q,
    "pandas": lambda q: pd.Series(q, index=np.arange(N)[::-1]),
    "pandas strings": lambda q: pd.Series(WORDS[q]),
    "pandas objects": lambda q: pd.Series(WORDS[q].astype(object)),
    "pandas categories": lambda q: pd.Series(WORDS[q], dtype="category"),
    "pandas Categorical": lambda q: pd.Categorical(WORDS[q]),
    "pandas unused category": lambda q: pd.Series(
        pd.Categorical(WORDS[q], categories=["none", *WORDS[::-1]])
    ),
    "pandas Int64": lambda q: pd.Series(q, dtype="Int64"),
    "pandas dates": lambda q: pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(q, "D")),
    "pandas time zone": lambda q: pd.Series(
        pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(q, "D")
    ),
    "pandas index": lambda q: pd.Index(WORDS[q]),
    "pandas frame": lambda q: pd.DataFrame({"qid": q}),
    "polars": lambda q: pl.Series(q),
    "polars strings": lambda q: pl.Series(WORDS[q]),
    "polars categories": lambda q: pl.Series(WORDS[q], dtype=pl.Categorical),
    "polars enum": lambda q: pl.Series(WORDS[q], dtype=pl.Enum(WORDS)),
    "read-only": read_only,
}


@pytest.mark.parametrize("kind", IDS)
def test_kinds_of_qid(kind, data):
    X, y, qid = data
    given = IDS[kind](qid)
    expected = RankRLS(cost="unit", query_weighting="query").fit(X, y, qid=qid)
    ranker = clone(expected).fit(X, y, qid=given)
    assert ranker.n_queries_ == 10
    assert ranker.n_pairs_ == expected.n_pairs_
    assert_allclose(ranker.coef_, expected.coef_, rtol=1e-10)
    assert ranker.score(X, y, qid=given) == pytest.approx(expected.score(X, y, qid=qid))


# ---------------------------------------------------------------------- names of columns


@pytest.mark.parametrize(
    "frame",
    [
        lambda X, names: pd.DataFrame(X, columns=names),
        lambda X, names: pl.DataFrame(X, schema=names),
    ],
    ids=["pandas", "polars"],
)
@named_kernels
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


# ---------------------------------------------------------------------- pipelines


def test_pipeline_without_qid(data):
    X, y, _ = data
    pipe = make_pipeline(StandardScaler(), RankRLS(alpha=0.5)).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    expected = RankRLS(alpha=0.5).fit(Z, y)
    assert_allclose(pipe.predict(X), expected.predict(Z))
    assert pipe.score(X, y) == expected.score(Z, y)
    mean, std = pipe.predict(X, return_std=True)
    assert mean.shape == std.shape == (N,)


def test_pipeline_step_parameter(data):
    X, y, qid = data
    pipe = make_pipeline(StandardScaler(), RankRLS()).fit(X, y, rankrls__qid=qid)
    Z = StandardScaler().fit_transform(X)
    expected = RankRLS().fit(Z, y, qid=qid)
    assert pipe[-1].n_queries_ == 10
    assert_allclose(pipe.predict(X), expected.predict(Z))
    with pytest.raises(ValueError, match="score needs qid too"):
        pipe.score(X, y)
    assert pipe[-1].score(pipe[:-1].transform(X), y, qid=qid) == expected.score(Z, y, qid=qid)


@pytest.mark.usefixtures("routing")
def test_pipeline_with_routing(data):
    X, y, qid = data
    pipe = make_pipeline(StandardScaler(), asking(RankRLS())).fit(X, y, qid=qid)
    Z = StandardScaler().fit_transform(X)
    assert_allclose(pipe.predict(X), RankRLS().fit(Z, y, qid=qid).predict(Z))


@pytest.mark.usefixtures("routing")
def test_score_of_a_pipeline_with_routing(data):
    X, y, qid = data
    pipe = make_pipeline(StandardScaler(), asking(RankRLS())).fit(X, y, qid=qid)
    Z = StandardScaler().fit_transform(X)
    assert pipe.score(X, y, qid=qid) == RankRLS().fit(Z, y, qid=qid).score(Z, y, qid=qid)
    with pytest.raises(ValueError, match="score needs qid too"):
        pipe.score(X, y)


@pytest.mark.usefixtures("routing")
def test_qid_that_nobody_asked_for(data):
    X, y, qid = data
    ranker = RankRLS().set_fit_request(qid=None)
    search = GridSearchCV(ranker, {"alpha": ALPHAS}, cv=KFold(2))
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="qid"):
        search.fit(X, y, qid=qid)


@pytest.mark.usefixtures("routing")
def test_pipeline_with_query_scaler(data):
    X, y, qid = data
    pipe = make_pipeline(QueryScaler().set_transform_request(qid=True), asking(RankRLS()))
    pipe.fit(X, y, qid=qid)
    Z = QueryScaler().fit_transform(X, qid=qid)
    assert_allclose(pipe.predict(X, qid=qid), RankRLS().fit(Z, y, qid=qid).predict(Z))


def test_pandas_output_before_it(data):
    X, y, _ = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), RankRLS()).fit(frame, y)
    assert_array_equal(pipe[-1].feature_names_in_, list("abcd"))
    plain = make_pipeline(StandardScaler(), RankRLS()).fit(frame, y)
    assert_allclose(pipe.predict(frame), plain.predict(frame))


def test_selection_by_coefficients(data):
    X, y, _ = data
    pipe = make_pipeline(SelectFromModel(RankRLS(), max_features=2, threshold=-np.inf), RankRLS())
    pipe.fit(X, y)
    largest = np.sort(np.argsort(-np.abs(RankRLS().fit(X, y).coef_))[:2])
    assert_array_equal(pipe[0].get_support(indices=True), largest)
    assert pipe.score(X, y) == RankRLS().fit(X[:, largest], y).score(X[:, largest], y)


def test_permutation_importance(data):
    X, y, _ = data
    result = permutation_importance(RankRLS().fit(X, y), X, y, n_repeats=3, random_state=0)
    assert np.argmax(result.importances_mean) == 1


# ---------------------------------------------------------------------- searches with scores y


def test_grid_search_without_qid(data):
    X, y, _ = data
    search = GridSearchCV(RankRLS(), {"alpha": ALPHAS, "kernel": ["linear", "rbf"]}, cv=3)
    search.fit(X, y)
    splits = list(KFold(3).split(X))
    expected = [
        np.mean(
            [RankRLS(**p).fit(X[train], y[train]).score(X[test], y[test]) for train, test in splits]
        )
        for p in search.cv_results_["params"]
    ]
    assert_allclose(search.cv_results_["mean_test_score"], expected)
    assert search.best_score_ == max(expected)


@pytest.mark.usefixtures("routing")
def test_grid_search_with_qid(data):
    X, y, qid = data
    search = GridSearchCV(asking(RankRLS()), {"alpha": ALPHAS}, cv=grouped())
    search.fit(X, y, qid=qid)
    splits = list(GroupKFold(5).split(X, y, groups=qid))
    for _, test in splits:
        assert len(np.unique(qid[test])) == 2
    expected = [np.mean(by_hand(RankRLS(alpha=a), X, y, qid, splits)) for a in ALPHAS]
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-12)
    assert search.best_score_ == pytest.approx(max(expected), rel=1e-12)
    best = RankRLS(**search.best_params_).fit(X, y, qid=qid)
    assert_allclose(search.predict(X), best.predict(X))
    assert search.score(X, y, qid=qid) == best.score(X, y, qid=qid)


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
def test_grid_search_over_a_pipeline_with_a_scorer(data):
    X, y, qid = data
    pipe = make_pipeline(StandardScaler(), RankRLS().set_fit_request(qid=True))
    grid = {"rankrls__alpha": ALPHAS}
    search = GridSearchCV(pipe, grid, cv=grouped(), scoring=pairwise_accuracy_scorer)
    search.fit(X, y, qid=qid)
    expected = []
    for alpha in ALPHAS:
        scores = []
        for train, test in GroupKFold(5).split(X, y, groups=qid):
            scaler = StandardScaler().fit(X[train])
            ranker = RankRLS(alpha).fit(scaler.transform(X[train]), y[train], qid=qid[train])
            scores.append(ranker.score(scaler.transform(X[test]), y[test], qid=qid[test]))
        expected.append(np.mean(scores))
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-12)
    assert search.best_score_ == pytest.approx(max(expected), rel=1e-12)


@pytest.mark.usefixtures("routing")
def test_scorer_gives_qid_to_the_query_scaler(data):
    """Without qid in predict all rows would be scaled as one query."""
    X, y, qid = data
    pipe = make_pipeline(QueryScaler().set_transform_request(qid=True), asking(RankRLS()))
    options = {"cv": grouped(), "params": {"qid": qid}, "error_score": "raise"}
    found = cross_val_score(pipe, X, y, scoring=pairwise_accuracy_scorer, **options)
    scaled = QueryScaler().fit_transform(X, qid=qid)
    splits = list(GroupKFold(5).split(X, y, groups=qid))
    assert_allclose(found, by_hand(RankRLS(), scaled, y, qid, splits))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("kind", ["strings", "pandas categories", "polars strings", "tuples"])
def test_grid_search_with_other_ids(kind, data):
    """Folds cut qid, whatever holds it."""
    X, y, qid = data
    search = GridSearchCV(asking(RankRLS()), {"alpha": ALPHAS}, cv=KFold(4), error_score="raise")
    search.fit(X, y, qid=IDS[kind](qid))
    expected = [np.mean(by_hand(RankRLS(a), X, y, qid, KFold(4).split(X))) for a in ALPHAS]
    assert_allclose(search.cv_results_["mean_test_score"], expected)


@pytest.mark.usefixtures("routing")
def test_cross_val_score_with_scorer(data):
    X, y, qid = data
    ranker = RankRLS().set_fit_request(qid=True)
    splits = list(GroupKFold(5).split(X, y, groups=qid))
    found = cross_val_score(
        ranker, X, y, cv=grouped(), scoring=pairwise_accuracy_scorer, params={"qid": qid}
    )
    assert_allclose(found, by_hand(RankRLS(), X, y, qid, splits))
    y = y - y.min()  # ndcg takes no negative labels
    found = cross_validate(
        asking(RankRLS()),
        X,
        y,
        cv=grouped(),
        scoring={"pairs": pairwise_accuracy_scorer, "ndcg": ndcg_scorer},
        params={"qid": qid},
        return_estimator=True,
    )
    for ranker, value, (_, test) in zip(
        found["estimator"], found["test_pairs"], splits, strict=True
    ):
        predictions = ranker.predict(X[test])
        assert value == pairwise_accuracy(y[test], predictions, qid=qid[test])


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


@pytest.mark.usefixtures("routing")
def test_scorers_by_name(data):
    X, y, qid = data
    y = y - y.min()  # ndcg takes no negative labels
    model = RankRLS().fit(X, y, qid=qid)
    by_name = make_ranking_scorer("ndcg@3", gain="linear")
    by_function = make_ranking_scorer(ndcg, k=3, gain="linear")
    assert by_name(model, X, y, qid=qid) == by_function(model, X, y, qid=qid)
    for wrong, options, message in (
        (3, {}, "metric must be a name such as 'ndcg@10', or a function"),
        ("NDCG@10", {}, "it is called 'ndcg@10' here"),
        ("ndcg@10", {"k": 5}, "metric='ndcg@10' has a cut-off: leave out k=5"),
        ("pairwise_error", {}, "higher must be better"),
    ):
        with pytest.raises(ValueError, match=message):
            make_ranking_scorer(wrong, **options)


@pytest.mark.usefixtures("routing")
def test_sample_weight_by_routing(data):
    X, y, qid = data
    weight = np.linspace(0.1, 3, N)
    ranker = RankRLS().set_fit_request(qid=True, sample_weight=True)
    scorer = make_ranking_scorer(pairwise_accuracy)
    found = cross_validate(
        ranker,
        X,
        y,
        cv=grouped(),
        scoring=scorer.set_score_request(qid=True, sample_weight=False),
        params={"qid": qid, "sample_weight": weight},
        return_estimator=True,
        return_indices=True,
    )
    for fitted, train in zip(found["estimator"], found["indices"]["train"], strict=True):
        expected = RankRLS().fit(X[train], y[train], qid=qid[train], sample_weight=weight[train])
        assert_allclose(fitted.coef_, expected.coef_)


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


def test_cross_val_predict_and_learning_curve(data):
    X, y, _ = data
    predictions = cross_val_predict(RankRLS(), X, y, cv=KFold(3))
    for train, test in KFold(3).split(X):
        assert_allclose(predictions[test], RankRLS().fit(X[train], y[train]).predict(X[test]))
    sizes, _, scores = learning_curve(RankRLS(), X, y, cv=3, train_sizes=[0.5, 1.0])
    assert scores.shape == (len(sizes), 3)
    assert np.isfinite(scores).all()


@pytest.mark.filterwarnings("ignore")  # joblib's, about temporary folders and forks
def test_parallel_search(data):
    X, y, _ = data
    options = {"param_grid": {"alpha": ALPHAS}, "cv": KFold(3)}
    with joblib.parallel_config("threading"):
        parallel = GridSearchCV(RankRLS(), n_jobs=2, **options).fit(X, y)
    assert_array_equal(
        parallel.cv_results_["mean_test_score"],
        GridSearchCV(RankRLS(), **options).fit(X, y).cv_results_["mean_test_score"],
    )


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
    found = cross_validate(
        MODELS[name],
        X,
        graph,
        cv=FOLDS,
        return_estimator=True,
        return_indices=True,
        error_score="raise",
    )
    trains, tests = found["indices"]["train"], found["indices"]["test"]
    for ranker, score, train, test in zip(
        found["estimator"], found["test_score"], trains, tests, strict=True
    ):
        expected = clone(MODELS[name]).fit(X[train], graph[train])
        assert_array_equal(ranker.predict(X), expected.predict(X))
        assert score == expected.score(X[test], graph[test])
    assert 0.5 < found["test_score"].mean() <= 1


def test_fold_of_pairs_equals_explicit_edges(data):
    """The same, from the definition: the pairs with both ends in the training rows."""
    X, *_ = data
    graph = graphs(data)["pairs"]
    found = cross_validate(
        RankRLS(), X, graph, cv=FOLDS, return_estimator=True, return_indices=True
    )
    for ranker, train in zip(found["estimator"], found["indices"]["train"], strict=True):
        place = {int(old): new for new, old in enumerate(train)}
        kept = [e for e, (i, j) in enumerate(graph.pairs.tolist()) if i in place and j in place]
        assert 0 < len(kept) < graph.n_given_pairs
        edges = oracles.edges_of_pairs(
            [(place[i], place[j]) for i, j in graph.pairs[kept].tolist()],
            graph.magnitude[kept],
            cost="magnitude",
        )
        expected = oracles.primal_coefficients(edges, X[train], 1.0)
        assert_allclose(ranker.coef_, expected, rtol=1e-8)
        assert ranker.n_pairs_ == len(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_grid_search_of_a_graph(kind, data):
    X, *_ = data
    graph = graphs(data)[kind]
    search = GridSearchCV(RankRLS(), {"alpha": ALPHAS}, cv=FOLDS, error_score="raise")
    search.fit(X, graph)
    expected = [
        np.mean(
            [
                RankRLS(alpha).fit(X[train], graph[train]).score(X[test], graph[test])
                for train, test in FOLDS.split(X)
            ]
        )
        for alpha in ALPHAS
    ]
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-12)
    best = RankRLS(**search.best_params_).fit(X, graph)
    assert_array_equal(search.predict(X), best.predict(X))
    assert search.score(X, graph) == best.score(X, graph)


def test_grid_search_of_a_graph_in_a_pipeline_with_int_cv(data):
    X, *_ = data
    graph = graphs(data)["pairs"]
    pipe = make_pipeline(StandardScaler(), RankRLS())
    search = GridSearchCV(pipe, {"rankrls__alpha": ALPHAS}, cv=3, error_score="raise")
    search.fit(pd.DataFrame(X, columns=list("abcd")), graph)
    expected = []
    for train, test in KFold(3).split(X):
        scaler = StandardScaler().fit(X[train])
        ranker = RankRLS(alpha=search.best_params_["rankrls__alpha"])
        ranker.fit(scaler.transform(X[train]), graph[train])
        expected.append(ranker.score(scaler.transform(X[test]), graph[test]))
    assert search.best_score_ == pytest.approx(np.mean(expected))


def test_graph_with_qid_equals_scores_with_qid(data):
    X, y, qid = data
    one = RankRLS().fit(X, PreferenceGraph.from_scores(y, qid=qid))
    other = RankRLS().fit(X, y, qid=qid)
    assert_array_equal(one.coef_, other.coef_)
    assert one.score(X, PreferenceGraph.from_scores(y, qid=qid)) == other.score(X, y, qid=qid)


def test_score_needs_the_qid_of_a_graph(data):
    X, y, qid = data
    ranker = RankRLS().fit(X, PreferenceGraph.from_scores(y, qid=qid))
    with pytest.raises(ValueError, match="score needs qid too"):
        ranker.score(X, y)


@pytest.mark.parametrize("case", ["tied scores", "single rows", "pairs of weight zero"])
def test_score_of_a_fold_where_one_part_is_empty(case, data):
    X, y, qid = data
    ranker = RankRLS().fit(X, y)
    pairs = PreferenceGraph.from_pairs([(0, 1), (4, 2)], n_rows=N)
    scores = PreferenceGraph.from_scores(y, qid=qid)
    graph, part = {
        "tied scores": (PreferenceGraph.from_scores(0 * y) + pairs, pairs),
        "single rows": (PreferenceGraph.from_scores(y, qid=np.arange(N)) + pairs, pairs),
        "pairs of weight zero": (
            scores + PreferenceGraph.from_pairs([(0, 1)], n_rows=N, pair_weight=[0]),
            scores,
        ),
    }[case]
    assert ranker.score(X, graph) == ranker.score(X, part)


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
        found = clone(ranker).fit(X, scores + pairs)
        expected = clone(ranker).fit(X, pairs)
        assert found.n_pairs_ == 3
        assert_allclose(found.coef_, expected.coef_, atol=1e-10)
        (_, std), (_, expected_std) = (r.predict(X, return_std=True) for r in (found, expected))
        assert_allclose(std, expected_std)
        edges = oracles.edges_of_pairs(pairs.pairs, cost=cost)
        assert_allclose(found.coef_, oracles.primal_coefficients(edges, X, 1.0), atol=1e-8)


# ---------------------------------------------------------------------- plain pairs in a search


def test_plain_pairs_in_a_search_are_refused(data):
    X, y, _ = data
    pairs = np.array([(N - 1, 0), (3, N - 2), (N // 2, 5)])
    for target in (None, y):
        search = GridSearchCV(RankRLS(), {"alpha": ALPHAS}, cv=KFold(3), error_score="raise")
        with pytest.raises(ValueError, match="PreferenceGraph"):
            search.fit(X, target, pairs=pairs)


@pytest.mark.usefixtures("routing")
def test_routed_pairs_in_a_search_are_refused(data):
    X, y, _ = data
    rng = np.random.default_rng(0)
    ranker = RankRLS().set_fit_request(pairs=True)
    for n_pairs in (5, N):  # N pairs are cut as if they were rows
        pairs = np.array([rng.choice(N, 2, replace=False) for _ in range(n_pairs)])
        pairs[0] = N - 1, 0
        with pytest.raises(ValueError, match="PreferenceGraph"):
            cross_val_score(ranker, X, y, cv=KFold(3), params={"pairs": pairs}, error_score="raise")


@pytest.mark.parametrize("splitter", [KFold(5), ShuffleSplit(5, random_state=0)])
def test_failing_folds_are_reported_not_hidden(splitter, data):
    """With error_score=nan scikit-learn reports all failures in one ValueError."""
    X, y, _ = data
    pairs = np.array([(N - 1, 0)])
    search = GridSearchCV(RankRLS(), {"alpha": [1.0]}, cv=splitter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"(?s)All the .* fits failed.*PreferenceGraph"):
            search.fit(X, y, pairs=pairs)


def test_stateless_step_before_a_graph(data):
    """Nothing in a pipeline may look into y."""
    X, *_ = data
    graph = graphs(data)["both"]
    pipe = make_pipeline(FunctionTransformer(np.tanh), StandardScaler(), RankRLS()).fit(X, graph)
    assert 0.5 < pipe.score(X, graph) <= 1


@pytest.mark.parametrize("make", [pa.array, pa.chunked_array, pd.Index, pd.array])
def test_query_ids_of_any_array(make):
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 3)), rng.integers(0, 3, 40), np.repeat(list("abcdefghij"), 4)
    given = make([qid.tolist()] if make is pa.chunked_array else qid.tolist())
    model, expected = RankRLS().fit(X, y, qid=given), RankRLS().fit(X, y, qid=qid)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert ndcg(y, X[:, 0], qid=given) == ndcg(y, X[:, 0], qid=qid)
    for function in (model_selection.cross_val_score, model_selection.cross_val_predict):
        found = function(RankRLS(), X, y, qid=given, cv=5)
        np.testing.assert_array_equal(found, function(RankRLS(), X, y, qid=qid, cv=5))
