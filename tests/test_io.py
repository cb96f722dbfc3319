"""Saved and loaded: the same estimator, to the last bit, and never half a file."""

import io
import json
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    StandardScaler,
)

import rankrls
from model_files import edit
from rankrls import GreedyRankRLS, RankRLS, RankRLSCV
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Statistics
from rankrls.estimators.seen_queries import SeenQueries
from rankrls.io import _archive, _model_files, describe_model, load_model, save_model
from rankrls.io._kinds import INTEGER, LISTING, array, instance, listing
from rankrls.io._records import Record
from rankrls.io._registry import RECORDS
from rankrls.io._values import Decoder, Encoder
from rankrls.preprocessing import QueryScaler

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

DATA = Path(__file__).parent / "data"

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 4))
NEW = rng.standard_normal((7, 4))
WIDE = rng.standard_normal((12, 20))
SPARSE = sparse.csr_array(np.where(rng.random((30, 40)) < 0.2, rng.random((30, 40)), 0.0))
y = rng.integers(0, 3, 30)
Y = np.column_stack([y, rng.integers(0, 4, 30), rng.standard_normal(30)])
qid = rng.choice(list("abcde"), 30)
PAIRS = np.array([rng.choice(30, 2, replace=False) for _ in range(20)])
MANY_PAIRS = np.array([rng.choice(30, 2, replace=False) for _ in range(90)])
ZEROS = np.where(np.arange(30) % 4, 1.5, 0.0)
GRAM = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))


def build(X=X, y=y, new=None, fit=None, **params):
    ranker = RankRLS(**params).fit(X, y, **({"qid": qid} if fit is None else fit))
    return ranker, X[:5] if new is None else new


RANKERS = {
    "linear": lambda: build(new=NEW),
    "several outputs": lambda: build(y=Y),
    "outputs with graphs of their own": lambda: build(y=Y, ties="drop"),
    "one output in a column": lambda: build(y=y[:, None]),
    "float32": lambda: build(X.astype(np.float32), y=Y),
    "integers": lambda: build(alpha=2, degree=np.int64(2), gamma=np.float32(0.3)),
    "tiny alpha": lambda: build(np.hstack([X, X]), alpha=1e-12),
    "sparse": lambda: build(SPARSE, new=SPARSE[:5]),
    "wide": lambda: build(WIDE, np.arange(12), fit={}),
    "wide, several outputs": lambda: build(WIDE, Y[:12], fit={}),
    "wide, sparse": lambda: build(SPARSE, solver="dual"),
    "few rows, scales": lambda: build(
        WIDE * np.geomspace(1.0, 1e3, WIDE.shape[1]), np.arange(12), fit={}, solver="primal"
    ),
    "wide, scales": lambda: build(
        WIDE * np.geomspace(1e-6, 1e6, WIDE.shape[1]), np.arange(12), fit={}
    ),
    "sparse matrix": lambda: build(sparse.csr_matrix(SPARSE), kernel="rbf"),
    "rbf": lambda: build(kernel="rbf", new=NEW),
    "rbf, several outputs": lambda: build(y=Y, kernel="rbf", new=NEW),
    "rbf, float32": lambda: build(X.astype(np.float32), y=Y, kernel="rbf"),
    "rbf, tiny alpha": lambda: build(np.vstack([X[:15]] * 2), kernel="rbf", alpha=1e-14),
    "polynomial": lambda: build(kernel="poly", kernel_params={"gamma": 0.5}, degree=2),
    "ties dropped": lambda: build(kernel="rbf", ties="drop"),
    "own graphs": lambda: build(y=Y, kernel="rbf", cost="unit"),
    "relative": lambda: build(kernel="rbf", cost="relative", query_weighting="size"),
    "rows without an edge": lambda: build(kernel="rbf", fit={"sample_weight": ZEROS}),
    "rows without an edge, outputs": lambda: build(y=Y, kernel="rbf", fit={"sample_weight": ZEROS}),
    "pairs": lambda: build(y=None, kernel="rbf", fit={"pairs": PAIRS}),
    "many pairs": lambda: build(y=None, kernel="rbf", fit={"pairs": MANY_PAIRS}),
    "scores and pairs": lambda: build(kernel="rbf", fit={"pairs": PAIRS[:6], "qid": qid}),
    "scores and many pairs": lambda: build(
        kernel="rbf", cost="unit", fit={"pairs": MANY_PAIRS, "qid": qid}
    ),
    "precomputed": lambda: build(GRAM, kernel="precomputed"),
    "precomputed, zeros": lambda: build(GRAM, kernel="precomputed", fit={"sample_weight": ZEROS}),
    "precomputed basis": lambda: build(GRAM, kernel="precomputed", basis=[3, 1, 20]),
    "nystroem": lambda: build(kernel="rbf", basis=8, random_state=0, new=NEW),
    "nystroem, outputs": lambda: build(y=Y, ties="drop", kernel="rbf", basis=np.arange(9)),
    "nystroem, sparse": lambda: build(SPARSE, kernel="rbf", basis=(1, 5, 9)),
    "nystroem, linear": lambda: build(solver="nystroem", basis=10, random_state=1),
    "nystroem, duplicates": lambda: build(
        np.vstack([X[:15]] * 2), kernel="rbf", basis=list(range(20))
    ),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


def round_trip(estimator, path, **options):
    save_model(estimator, path, **options)
    return load_model(path)


def attributes(instance):
    """Without what is made again when it is needed."""
    kept = {k: v for k, v in vars(instance).items() if k != "_metadata_request"}
    if type(instance).__name__ == "Groups":
        for name in ("share", "averaging", "isometry"):
            kept.pop(name, None)
    for name in ("loss", "_others"):
        kept.pop(name, None)
    if type(instance).__name__ == "DualSolver" and hasattr(instance.factorization, "C"):
        made = instance.factorization  # whose upper triangle nobody asks for
        lower = np.asfortranarray(np.tril(made.C))
        kept["factorization"] = {"C": lower, "alpha": made.alpha}
    return kept


def assert_same(a, b, where=""):
    """The same types, values, dtypes and memory orders, all the way down."""
    assert type(a) is type(b), where
    if isinstance(a, SeenQueries):  # which fills its dict when it is first asked
        np.testing.assert_equal(a.queries, b.queries, where)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert a.shape == b.shape, where
        assert b.flags.writeable, where
        np.testing.assert_array_equal(a, b, where)
        for order in ("c_contiguous", "f_contiguous"):
            assert getattr(a.flags, order) <= getattr(b.flags, order), where
    elif sparse.issparse(a):
        assert a.shape == b.shape
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), where)
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key, value in a.items():
            assert_same(value, b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{where}[{i}]")
    elif isinstance(a, np.random.RandomState):
        assert_same(a.get_state(legacy=False), b.get_state(legacy=False), where)
    elif hasattr(a, "__dict__") and not isinstance(a, type | ModuleType):
        assert_same(attributes(a), attributes(b), f"{where}.{type(a).__name__}")
    else:
        assert a == b or (a != a and b != b), where


@pytest.mark.parametrize("name", RANKERS)
def test_round_trip(name, path):
    ranker, new = RANKERS[name]()
    loaded = round_trip(ranker, path)
    assert_same(ranker, loaded)
    assert str(ranker) == str(loaded)
    np.testing.assert_array_equal(ranker.predict(new), loaded.predict(new))
    np.testing.assert_array_equal(
        ranker.log_marginal_likelihood(), loaded.log_marginal_likelihood()
    )
    if ranker.kernel != "precomputed":
        for before, after in zip(
            ranker.predict(new, return_std=True), loaded.predict(new, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(before, after)
        np.testing.assert_array_equal(
            ranker.preference_proba(new[:3], new[1:4]), loaded.preference_proba(new[:3], new[1:4])
        )
    before = path.read_bytes()
    save_model(loaded, path)
    assert path.read_bytes() == before


def test_the_grid_has_every_class_of_a_model(path):
    """Each record of a model's part occurs in some file above."""
    found = set()
    for make in RANKERS.values():
        save_model(make()[0], path)
        found |= {
            name for name in RECORDS if f'"object": "{name}"' in path.read_bytes().decode("latin1")
        }
    outside = {r.name for r in RECORDS.values() if r.module.startswith("sklearn.")}
    outside |= {"RankRLSCV", "GreedyRankRLS", "QueryScaler"}
    outside |= {"Statistics", "RandomState"}
    outside |= {"Calibration", "RankSVM"}
    outside |= {"ConditionalRankRLS", "ConditionalRankRLSCV"}
    outside |= {"Objects", "KernelSum", "Observations"}
    outside |= {"AutoRanker", "TableEncoder", "RankingFeatures", "RandomTrees"}
    outside |= {"TextModel", "BlockScale", "LinearMember", "ColumnMember"}
    assert found == set(RECORDS) - outside


@pytest.mark.parametrize("name", RANKERS)
def test_without_uncertainty(name, path):
    ranker, new = RANKERS[name]()
    loaded = round_trip(ranker, path, uncertainty=False)
    np.testing.assert_array_equal(ranker.predict(new), loaded.predict(new))
    for attribute in ("coef_", "dual_coef_", "basis_indices_", "solver_", "n_pairs_"):
        assert hasattr(ranker, attribute) == hasattr(loaded, attribute)
        if hasattr(ranker, attribute):
            assert_same(getattr(ranker, attribute), getattr(loaded, attribute), attribute)
    message = "precomputed" if ranker.kernel == "precomputed" else "saved with uncertainty=False"
    with pytest.raises(ValueError, match=message):
        loaded.predict(new, return_std=True)
    with pytest.raises(ValueError, match=message):
        loaded.preference_proba(new, new)
    with pytest.raises(ValueError, match="saved with uncertainty=False"):
        loaded.log_marginal_likelihood()
    assert describe_model(path)["summary"]["uncertainty"] is False
    before = path.read_bytes()
    save_model(loaded, path)  # what is gone is gone
    assert path.read_bytes() == before
    assert ranker.log_marginal_likelihood() is not None  # saving has not changed the original


def test_without_uncertainty_a_file_is_small_and_has_no_rows_of_a_linear_model(path):
    ranker, _ = RANKERS["wide"]()
    save_model(ranker, path)
    assert WIDE[3].tobytes() not in path.read_bytes()  # they are stored centred
    assert (WIDE - WIDE.mean(axis=0))[3].tobytes() in path.read_bytes()
    save_model(ranker, path, uncertainty=False)
    assert (WIDE - WIDE.mean(axis=0))[3].tobytes() not in path.read_bytes()
    big = RankRLS(kernel="rbf").fit(rng.standard_normal((300, 2)), np.arange(300))
    save_model(big, path)
    assert path.stat().st_size > 300 * 301 / 2 * 8
    assert path.stat().st_size < 300 * 301 / 2 * 8 + 40_000  # one triangle
    save_model(big, path, uncertainty=False)
    assert path.stat().st_size < 20_000


def test_cross_validated_ranker(path):
    ranker = RankRLSCV(alphas=[0.1, 1.0, 10.0, 1e3], scoring="ndcg@5", cv=3, random_state=0)
    ranker.fit(X, y, qid=qid)
    loaded = round_trip(ranker, path)
    assert_same(ranker, loaded)
    np.testing.assert_array_equal(ranker.predict(NEW), loaded.predict(NEW))
    about = describe_model(path)
    assert about["summary"]["alpha_"] == ranker.alpha_
    assert about["summary"]["cv_results_"]["alpha"] == "float64 array of shape (4,)"
    np.testing.assert_array_equal(
        clone(loaded).fit(X, y, qid=qid).predict(NEW), ranker.predict(NEW)
    )


def test_cross_validated_ranker_with_the_default_grid(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker = RankRLSCV().fit(X, y, qid=qid)
    assert_same(ranker, round_trip(ranker, path))


@pytest.mark.parametrize("target", [y, Y[:, :2]])
def test_selector(target, path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("wxyz"))
    selector = GreedyRankRLS(2).fit(frame, target, qid=qid).set_output(transform="pandas")
    loaded = round_trip(selector, path)
    assert_same(selector, loaded)
    assert list(loaded.transform(frame).columns) == list(selector.transform(frame).columns)
    assert describe_model(path)["feature_names"] == list("wxyz")


SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler((-1, 1), clip=True),
    MaxAbsScaler(),
]


@pytest.mark.parametrize("scaler", SCALERS, ids=str)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_pipeline(scaler, kernel, path):
    pipeline = make_pipeline(clone(scaler), RankRLS(kernel=kernel)).fit(X, y)
    loaded = round_trip(pipeline, path)
    assert_same(pipeline, loaded)
    np.testing.assert_array_equal(pipeline.predict(NEW), loaded.predict(NEW))
    assert loaded.n_features_in_ == 4
    assert list(describe_model(path)["steps"]) == [name for name, _ in pipeline.steps]


def test_scaler_of_rows_with_gaps(path):
    gaps = X.copy()
    gaps[3, 1] = np.nan
    scaler = StandardScaler().fit(gaps)
    assert isinstance(scaler.n_samples_seen_, np.ndarray)
    assert_same(scaler, round_trip(scaler, path))
    assert_same(MaxAbsScaler().fit(SPARSE), round_trip(MaxAbsScaler().fit(SPARSE), path))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scikit-learn
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler()])
@pytest.mark.parametrize("empty", [[1], [0, 1, 2, 3]])
def test_scaler_of_empty_columns(scaler, empty, path):
    gaps = X.copy()
    gaps[:, empty] = np.nan
    scaler = clone(scaler).fit(gaps)
    assert np.isnan(scaler.scale_).sum() == len(empty)
    assert_same(scaler, round_trip(scaler, path))


GAPS = X.copy()
GAPS[::5, 1] = GAPS[2, 3] = np.nan

IMPUTERS = [
    SimpleImputer(),
    SimpleImputer(strategy="median"),
    SimpleImputer(strategy="most_frequent"),
    SimpleImputer(strategy="constant", fill_value=-3),
    SimpleImputer(strategy="constant", keep_empty_features=True),
]


@pytest.mark.parametrize("imputer", IMPUTERS, ids=str)
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_imputers(imputer, dtype, path):
    gaps = GAPS.astype(dtype)
    pipeline = make_pipeline(clone(imputer), StandardScaler(), RankRLS()).fit(gaps, y)
    loaded = round_trip(pipeline, path)
    np.testing.assert_array_equal(pipeline.predict(gaps), loaded.predict(gaps))
    np.testing.assert_array_equal(pipeline[0].transform(gaps), loaded[0].transform(gaps))
    assert loaded[0].transform(gaps).dtype == dtype
    assert loaded[0].get_params()["strategy"] == imputer.strategy
    assert list(loaded[0].get_feature_names_out()) == list(pipeline[0].get_feature_names_out())
    round_trip(loaded, path.with_suffix(".again"))
    assert path.with_suffix(".again").read_bytes() == path.read_bytes()


def test_imputers_of_integers_and_of_features_without_values(path):
    counts = np.arange(12).reshape(4, 3)
    imputer = SimpleImputer(strategy="constant", fill_value=7, missing_values=5).fit(counts)
    loaded = round_trip(imputer, path)
    np.testing.assert_array_equal(loaded.transform(counts), imputer.transform(counts))
    assert loaded.transform(counts).dtype == counts.dtype
    empty = np.c_[GAPS, np.full(len(GAPS), np.nan)]
    imputer = SimpleImputer().fit(empty)
    loaded = round_trip(imputer, path)
    with pytest.warns(UserWarning, match="Skipping features"):
        np.testing.assert_array_equal(loaded.transform(empty), imputer.transform(empty))


@pytest.mark.parametrize(
    ("imputer", "rows", "message"),
    [
        (SimpleImputer(strategy=np.ma.median), GAPS, "strategy of SimpleImputer|is a function"),
        (
            SimpleImputer(strategy="most_frequent"),
            np.array([[1 + 2j], [3j]], dtype=object),
            "array of Python objects|must be",
        ),
    ],
)
def test_imputers_that_are_not_data(imputer, rows, message, path):
    with pytest.raises(ValueError, match=message):
        save_model(clone(imputer).fit(rows), path)


def test_pipeline_of_everything(path):
    pipeline = Pipeline(
        [
            ("inner", make_pipeline(MinMaxScaler(), "passthrough")),
            ("nothing", None),
            ("select", GreedyRankRLS(2)),
            ("rank", RankRLS(0.5, random_state=3)),
        ],
        memory=None,
    )
    pipeline.fit(X, y)
    loaded = round_trip(pipeline, path)
    assert_same(pipeline, loaded)
    np.testing.assert_array_equal(pipeline.predict(NEW), loaded.predict(NEW))
    steps = describe_model(path)["steps"]
    assert steps["nothing"] is None
    assert steps["inner"]["steps"]["passthrough"] is None
    assert steps["rank"]["parameters"]["random_state"] == 3


def test_pipelines_in_pipelines(path):
    pipeline = make_pipeline(StandardScaler(), RankRLS())
    for _ in range(6):
        pipeline = make_pipeline(pipeline)
    pipeline.fit(X, y)
    assert_same(pipeline, round_trip(pipeline, path))
    deeper = make_pipeline(pipeline).fit(X, y)
    with pytest.raises(ValueError, match="nested more than 8 deep: put the steps into one"):
        save_model(deeper, path)


def test_the_kernel_was_changed_after_fit(path):
    with pytest.raises(ValueError, match="kernel='rbf' and a model of another kernel, 'linear'"):
        save_model(RankRLS().fit(X, y).set_params(kernel="rbf"), path)


def test_the_cache_of_a_pipeline_is_not_stored(tmp_path, path):
    pipeline = make_pipeline(StandardScaler(), RankRLS(), memory=str(tmp_path / "cache"))
    loaded = round_trip(pipeline.fit(X, y), path)
    assert loaded.memory is None
    assert b"cache" not in path.read_bytes()


def test_query_scaler_and_requested_metadata(path):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            QueryScaler("standard").set_transform_request(qid=True),
            RankRLS()
            .set_fit_request(qid=True, sample_weight=False, pairs="given")
            .set_score_request(qid=True),
        )
        pipeline.fit(X, y, qid=qid)
        save_model(pipeline, path)
    loaded = load_model(path)  # without routing, too
    assert_same(pipeline, loaded)
    with sklearn.config_context(enable_metadata_routing=True):
        loaded = load_model(path)
        for before, after in zip(pipeline, loaded, strict=True):
            assert str(before.get_metadata_routing()) == str(after.get_metadata_routing())
        np.testing.assert_array_equal(pipeline.predict(X, qid=qid), loaded.predict(X, qid=qid))
        assert pipeline.score(X, y, qid=qid) == loaded.score(X, y, qid=qid)
        with pytest.raises(ValueError, match="qid"):
            loaded.predict(X)
    alone = round_trip(QueryScaler().fit(X), path)
    np.testing.assert_array_equal(
        alone.transform(X, qid=qid), QueryScaler().fit_transform(X, qid=qid)
    )


def test_names_of_features(path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "ä", "d e"])
    ranker = RankRLS().fit(frame, y)
    loaded = round_trip(ranker, path)
    assert_same(ranker, loaded)
    np.testing.assert_array_equal(ranker.predict(frame), loaded.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "ä", "d e"]])


def test_random_state_goes_on_where_it_was(path):
    state = np.random.RandomState(5)
    state.standard_normal(3)  # an odd number: one is kept for the next call
    ranker = RankRLS(kernel="rbf", basis=4, random_state=state).fit(X, y)
    loaded = round_trip(ranker, path)
    assert_same(ranker, loaded)
    assert loaded.random_state.standard_normal() == state.standard_normal()
    assert loaded.random_state.randint(1 << 30) == state.randint(1 << 30)


# -- the file ------------------------------------------------------------------------------------


def test_numpy_can_read_the_arrays(path):
    ranker, _ = RANKERS["several outputs"]()
    save_model(ranker, path)
    with np.load(path) as arrays:
        names = [name for name in arrays.files if name.startswith("arrays/")]
        stored = [arrays[name] for name in names]
        manifest = json.loads(arrays["manifest.json"])
    assert len(stored) == len(manifest["arrays"])
    for values, entry in zip(stored, manifest["arrays"], strict=True):
        assert values.dtype == entry["dtype"]
        assert list(values.shape) == entry["shape"]


def test_headers_are_those_of_numpy():
    for array_ in (np.zeros(3), np.zeros((2, 4), np.float32), np.zeros((0, 5), bool), np.array(1)):
        stream = io.BytesIO()
        np.lib.format.write_array(stream, array_, version=(1, 0))
        header = _archive._header(array_.dtype.str, array_.shape)
        parsed = io.BytesIO(header)
        np.lib.format.read_magic(parsed)
        assert np.lib.format.read_array_header_1_0(parsed) == (array_.shape, False, array_.dtype)
        assert len(header) % 64 == 0


def test_description(path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("wxyz"))
    pipeline = make_pipeline(StandardScaler(), RankRLS(np.float64(2.0), basis=[1, 2], kernel="rbf"))
    pipeline.fit(frame, y)
    save_model(pipeline, path)
    about = describe_model(path)
    assert json.loads(json.dumps(about)) == about
    assert about["type"] == "Pipeline"
    assert about["versions"]["rankrls"] == rankrls.__version__
    ranker = about["steps"]["rankrls"]
    assert ranker["parameters"]["alpha"] == 2.0
    assert ranker["parameters"]["basis"] == [1, 2]
    assert ranker["summary"]["solver_"] == "nystroem"
    assert ranker["summary"]["n_pairs_"] == 30 * 29 // 2
    assert ranker["summary"]["uncertainty"] is True
    scaler = about["steps"]["standardscaler"]
    assert scaler["feature_names"] == list("wxyz")
    assert scaler["summary"]["mean_"] == "float64 array of shape (4,)"


def test_description_reads_no_array(path, monkeypatch):
    save_model(RANKERS["several outputs"]()[0], path)
    monkeypatch.setattr(_archive.ArchiveReader, "array", None)
    about = describe_model(path)
    assert about["summary"]["n_features_in_"] == 4


def test_a_process_without_the_rest(path):
    """Loading needs neither pandas nor polars, and of scikit-learn only what it uses."""
    save_model(RANKERS["rbf"]()[0], path)
    code = f"""
import sys
class Missing:
    def find_spec(self, name, *args):
        if name.split(".")[0] in ("pandas", "polars", "pyarrow", "matplotlib"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from rankrls.io import load_model
print(load_model({str(path)!r}).predict([[0.0, 1.0, 2.0, 3.0]])[0])
assert "sklearn.pipeline" not in sys.modules
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = RANKERS["rbf"]()[0].predict([[0.0, 1.0, 2.0, 3.0]])[0]
    assert float(out.stdout) == pytest.approx(expected, rel=1e-12)


def test_lazy_room():
    assert rankrls.io.save_model is save_model


# -- what cannot be saved ------------------------------------------------------------------------


def euclidean(a, b):
    return float(a @ b)


def searched():
    search = GridSearchCV(RankRLS(), {"alpha": [1.0]}, cv=3)
    return search.fit(X, y)


class Subclass(RankRLS):
    pass


REFUSED = {
    "not fitted": (RankRLS, "not fitted"),
    "in a pipeline": (lambda: Pipeline([("r", RankRLS())]), "not fitted"),
    "number": (lambda: 5, "int cannot be saved; these can: .*RankRLS"),
    "part": (lambda: RANKERS["linear"]()[0]._model, "FittedFunction cannot be saved"),
    "other estimator": (lambda: Ridge().fit(X, y), "Ridge cannot be saved"),
    "subclass": (lambda: Subclass().fit(X, y), "Subclass cannot be saved"),
    "search": (searched, "save its best_estimator_"),
    "step": (
        lambda: make_pipeline(RankRLS(), memory=None).fit(X, y).set_params(rankrls=Ridge()),
        "not fitted|Ridge",
    ),
    "step before": (
        lambda: make_pipeline(KNNImputer(), RankRLS()).fit(X, y),
        "step 'knnimputer' is a KNNImputer, which cannot be saved; these can",
    ),
    "steps of other features": (
        lambda: Pipeline(
            [("scale", StandardScaler().fit(X[:, :3])), ("rank", RankRLS().fit(X, y))]
        ),
        "step 'rank' was fitted to 4 features, and 'scale' gives 3",
    ),
    "selection of other features": (
        lambda: Pipeline(
            [("in", make_pipeline(GreedyRankRLS(2)).fit(X, y)), ("rank", RankRLS().fit(X, y))]
        ),
        "step 'rank' was fitted to 4 features, and 'in' gives 2",
    ),
    "kernel": (lambda: RankRLS(kernel=euclidean).fit(X, y), "kernel.*function.*precomputed"),
    "scoring": (
        lambda: RankRLSCV([1.0], scoring=lambda t, s, qid: 1.0).fit(X, y, qid=qid),
        r"scoring.*function.*set_params\(scoring='pairwise_accuracy'\)",
    ),
    "splitter": (
        lambda: RankRLSCV([1.0], cv=GroupKFold(2)).fit(X, y, qid=qid),
        r"GroupKFold.*set_params\(cv='auto'\)",
    ),
    "range": (
        lambda: RankRLS(kernel="rbf", basis=np.arange(3)).fit(X, y).set_params(basis=range(3)),
        r"basis of RankRLS must be .*integers.*it is range\(0, 3\): .*list\(rows\)",
    ),
    "objects": (
        lambda: RankRLS().fit(X, y).set_params(basis=np.array([1, None])),
        "basis of RankRLS must be .*object of shape",
    ),
    "complex": (lambda: RankRLS().fit(X, y).set_params(basis=np.array([1j])), "complex128"),
    "long": (
        lambda: RankRLS().fit(X, y).set_params(basis=np.longdouble(1)),
        "longdouble|float128|float96",
    ),
    "keys": (lambda: RankRLS().fit(X, y).set_params(basis={1: 2}), "basis of RankRLS must be"),
    "nested": (lambda: RankRLS().fit(X, y).set_params(basis=[[1]]), "basis of RankRLS must be"),
    "coefficients": (lambda: with_coefficients(RankRLS().fit(X, y)), "coef_ is not that of the"),
    "features": (lambda: with_features(RankRLS().fit(X, y)), "a model of other than 5 features"),
    "own attribute": (lambda: with_attribute(RankRLS().fit(X, y)), "attribute 'note'"),
    "nonsense": (lambda: RankRLS().fit(X, y).set_params(alpha=-1.0), "alpha must be"),
    "option": (lambda: RankRLS().fit(X, y).set_params(cost="none"), "cost must be one of"),
    "text": (
        lambda: RankRLS().fit(X, y).set_params(degree="3"),
        "degree of RankRLS must be a finite number",
    ),
}


def with_coefficients(ranker):
    """A fit that was interrupted half-way would leave this."""
    ranker.coef_ = ranker.coef_ + 1
    return ranker


def with_features(ranker):
    ranker.n_features_in_ = 5
    return ranker


def with_attribute(ranker):
    ranker.note = "mine"
    return ranker


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, path):
    make, message = REFUSED[name]
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        save_model(make(), path)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["model.rankrls"]


def test_nothing_is_said_of_a_graph_as_target(path):
    """A PreferenceGraph is data for fit, not part of the model."""
    ranker = RankRLS().fit(X, PreferenceGraph.from_pairs(PAIRS, n_rows=30))
    assert_same(ranker, round_trip(ranker, path))


# -- writing -------------------------------------------------------------------------------------


class Stop(BaseException):
    """Not an Exception: as from Ctrl-C."""


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), Stop()])
def test_a_save_that_fails_leaves_the_old_file(where, error, path, monkeypatch):
    ranker, _ = RANKERS["linear"]()
    save_model(ranker, path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise error

    if where == "write":
        real = _archive._info
        infos = iter([real, real, fail])  # the third member
        monkeypatch.setattr(_archive, "_info", lambda *args: next(infos)(*args))
    else:
        monkeypatch.setattr(os, where, fail)
    with pytest.raises(type(error)):
        save_model(RANKERS["rbf"]()[0], path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.rankrls"]


def test_written_then_flushed_then_renamed(path, monkeypatch):
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(descriptor):
        calls.append(("fsync", os.fstat(descriptor).st_size, path.exists()))
        real["fsync"](descriptor)

    def replace(old, new):
        assert os.path.dirname(old) == os.path.dirname(new)
        calls.append(("replace", os.stat(old).st_size, path.exists()))
        real["replace"](old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save_model(RANKERS["linear"]()[0], path)
    size = path.stat().st_size
    assert calls[:2] == [("fsync", size, False), ("replace", size, False)]
    if os.name == "posix":
        assert [name for name, *_ in calls] == ["fsync", "replace", "fsync"]  # and the folder


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_permissions_and_links(tmp_path):
    ranker, _ = RANKERS["linear"]()
    plain, model = tmp_path / "plain", tmp_path / "model.rankrls"
    plain.write_text("")
    save_model(ranker, model)
    assert stat.S_IMODE(model.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    model.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(model)
    save_model(ranker, link)
    assert link.is_symlink()
    assert stat.S_IMODE(model.stat().st_mode) == 0o640
    assert load_model(link).coef_.shape == (4,)


def test_places_that_are_none(tmp_path):
    ranker, _ = RANKERS["linear"]()
    with pytest.raises(FileNotFoundError, match=r"no such directory.*missing"):
        save_model(ranker, tmp_path / "missing" / "model.rankrls")
    with pytest.raises(IsADirectoryError):
        save_model(ranker, tmp_path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "model.rankrls")
    assert not os.listdir(tmp_path)


def test_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(RANKERS["linear"]()[0], "model")
    assert load_model("model").coef_.shape == (4,)


# -- versions ------------------------------------------------------------------------------------

KEPT = sorted(path.name for path in DATA.glob("model_v*.rankrls"))


def test_there_are_kept_files():
    assert {"linear", "kernel", "nystroem", "pipeline"} <= {
        name.removeprefix("model_v1_").removesuffix(".rankrls") for name in KEPT
    }


@pytest.mark.parametrize("name", KEPT)
def test_files_of_earlier_versions(name):
    """Kept as they were written; what they predicted then is in the file beside them."""
    expected = json.loads((DATA / "model_v1.json").read_text())[name]
    loaded = load_model(DATA / name)
    new = np.array(expected["X"])
    np.testing.assert_allclose(loaded.predict(new), expected["scores"], rtol=1e-10)
    assert describe_model(DATA / name)["type"] == type(loaded).__name__
    if "std" in expected:
        _, std = loaded.predict(new, return_std=True)
        np.testing.assert_allclose(std, expected["std"], rtol=1e-8)
        np.testing.assert_allclose(
            loaded.log_marginal_likelihood(), expected["log_marginal_likelihood"], rtol=1e-8
        )


def test_newer_formats_are_refused(path, monkeypatch):
    monkeypatch.setattr(_model_files, "FORMAT", 7)
    monkeypatch.setattr(_model_files, "__version__", "9.9")
    save_model(RANKERS["linear"]()[0], path)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match=r"model.rankrls.*rankrls '9.9' in format 7.*up to 1.*newer"
    ):
        load_model(path)
    with pytest.raises(ValueError, match="newer"):
        describe_model(path)


def test_parameters_that_a_file_lacks_get_their_default(path):
    """A later version may add parameters without a new format."""
    ranker, _ = RANKERS["linear"]()
    save_model(ranker, path)
    edit(path, lambda manifest: manifest["model"]["params"].pop("query_weighting") and None)
    assert "query_weighting" not in describe_model(path)["parameters"]
    assert load_model(path).get_params() == ranker.get_params()


# -- more than today's estimators hold -----------------------------------------------------------


class Memory:
    """Stands for an estimator's state between two batches."""


MEMORY = Record(
    "Memory",
    __name__,
    {"statistics": listing(instance("Statistics")), "seen": LISTING, "counts": array("i", "n")},
)


def test_a_new_class_takes_a_record(monkeypatch):
    monkeypatch.setitem(RECORDS, "Memory", MEMORY)
    objectives = PreferenceGraph.from_scores(Y, qid=qid).objectives(Loss("unit", "drop"))
    memory = Memory()
    memory.statistics = [Statistics.of(objective, X) for objective in objectives]
    memory.seen = [1, "a", 2.5, ("b", 3), (1, ("c", None)), "1"]
    memory.counts = np.array([3, 4])
    encoder = Encoder()
    tree = json.loads(json.dumps(encoder.encode(memory, "memory")))
    back = Decoder(lambda number: encoder.arrays[number].copy(), free).decode(tree)
    assert back.seen == memory.seen
    assert_same(memory.statistics, back.statistics)
    back.statistics[0] += memory.statistics[0]
    np.testing.assert_array_equal(back.statistics[0].gram, 2 * memory.statistics[0].gram)
    memory.counts = 3
    with pytest.raises(ValueError, match="counts of Memory must be an integer array"):
        encoder.encode(memory, "memory")


VALUES = [
    None,
    True,
    -(10**30),
    "text \x00 \ud800 ä",
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    np.inf,
    -np.inf,
    np.nan,
    [1, [2.0, "a"], []],
    (1, (2, "b"), ()),
    {"a": 1, "float": [1.0], "array": None, "object": {"": ()}},
    np.float32(0.1),
    np.float64(np.nan),
    np.int8(-3),
    np.bool_(True),
    np.uint64(2**64 - 1),
    np.array(["a", "bcd", ""]),
    np.array([["a", "bcd"], ["", "é"]], dtype=object),
    np.array([], dtype=object),
    np.zeros((0, 3), dtype=np.float32),
    np.array(2.5),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(12.0).reshape(3, 4).T,
    np.arange(12.0).reshape(3, 4)[::-1, ::2],
    np.arange(5)[::-1],
    np.broadcast_to(np.arange(3.0), (4, 3)),
    np.array([True, False]),
    np.arange(3, dtype=">i4"),
    np.array([1.5, np.nan, np.inf], dtype=">f8"),
    SPARSE,
    sparse.csr_matrix(SPARSE),
    sparse.csr_array((3, 0)),
]


def free(n_bytes, what):
    """Memory without a limit."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1, {}]), "array of Python objects"),
        ({1: 2}, "keys must be text"),
        (SPARSE.tocoo(), "CSR"),
        (np.array(["x" * 10**5] + [""] * 10**3), "too many"),
        (range(3), r"value is range\(0, 3\)"),
    ],
)
def test_values_that_are_no_data(value, message):
    with pytest.raises(ValueError, match=message):
        Encoder().encode(value, "value")


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values(value, tmp_path):
    encoder = Encoder()
    tree = encoder.encode({"value": value}, "value")
    with open(tmp_path / "file", "w+b") as file:
        _archive.write_archive(file, {"model": tree}, encoder.arrays)
        reader = _archive.ArchiveReader(file, lambda manifest: None)
        back = Decoder(reader.array, free).decode(reader.manifest["model"])["value"]
    if isinstance(value, np.ndarray) and value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, set):
        assert back == value
        return
    assert_same(value, back)
    if isinstance(value, float):
        assert np.signbit(value) == np.signbit(back)


def test_an_array_that_occurs_twice_is_stored_once():
    encoder = Encoder()
    values = np.arange(3.0)
    tree = encoder.encode([values, values, values.copy()], "value")
    assert tree == [{"array": 0}, {"array": 0}, {"array": 1}]
    back = Decoder(encoder.arrays.__getitem__, free).decode(tree)
    assert back[0] is back[1]


def test_every_record_names_a_class():
    for record in RECORDS.values():
        assert record.cls.__name__ == (record.class_name or record.name)


def test_integers_are_kinds():
    assert INTEGER.accepts(np.int32(3), {})
    assert not INTEGER.accepts(True, {})


# -- conjugate gradients ----------------------------------------------------------------------


def test_conjugate_gradients(tmp_path):
    rng = np.random.default_rng(0)
    X, y = sparse.random_array((60, 20), density=0.3, format="csr", rng=rng), rng.random(60)
    qid = np.arange(60) // 6
    for ranker in (
        RankRLS(solver="cg"),
        RankRLS(0.0, early_stopping=True, random_state=0),
        RankRLSCV([0.0, 1.0, 10.0], solver="cg", early_stopping=True, random_state=0),
    ):
        ranker.fit(X, y, qid=qid)
        save_model(ranker, tmp_path / "model", uncertainty=False)
        save_model(ranker, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
        assert loaded.n_iter_ == ranker.n_iter_
        if ranker.early_stopping:
            assert loaded.best_iteration_ == ranker.best_iteration_
            np.testing.assert_array_equal(loaded.validation_curve_, ranker.validation_curve_)
