"""ONNX graphs, run by onnxruntime, against ``predict``."""

import json
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from rankrls import GreedyRankRLS, RankRLS, RankRLSCV, RankSVM
from rankrls.export import to_onnx
from rankrls.preprocessing import QueryScaler

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def data(n=48, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 3.0, 0.1, 20.0] + [0.0, 5.0, 1.0, -50.0]
    y = np.round(2 * X[:, 0] - X[:, 1] + np.abs(X[:, 3]) / 10, 1)
    return X, y, np.arange(n) % 5


def run(model, X):
    content = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"X": X})
    return scores


def check(estimator, X, output=None):
    """float32 in and out to 1e-5 of the scores, float64 to nearly all digits."""
    for dtype, digits in (("float32", 1e-5), ("float64", 1e-8)):
        expected = estimator.predict(X.astype(dtype).astype(float))
        expected = expected if output is None else expected[:, output]
        scores = run(to_onnx(estimator, output=output, dtype=dtype), X.astype(dtype))
        assert (scores.dtype, scores.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(scores, expected, rtol=digits, atol=digits * np.ptp(expected))


KERNELS = {
    "linear": {},
    "rbf": {},
    "rbf, gamma": {"kernel": "rbf", "gamma": 0.05},
    "poly": {"degree": 2, "coef0": 0.5},
    "polynomial": {"gamma": 0.3},
}


@pytest.mark.parametrize(
    ("kind", "kernel", "basis"),
    [(RankRLS, kernel, basis) for kernel in KERNELS for basis in (None, 15)]
    + [(RankSVM, "linear", None), (RankSVM, "rbf", 15)],
)
def test_kernels(kind, kernel, basis):
    X, y, qid = data()
    parameters = {"kernel": kernel, "basis": basis, "random_state": 0, **KERNELS[kernel]}
    pipeline = make_pipeline(StandardScaler(), kind(1.0, **parameters))
    pipeline.fit(X, y, **{f"{kind.__name__.lower()}__qid": qid})
    check(pipeline, data(seed=1)[0])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_every_kind_of_step(kernel):
    X, y, _ = data()
    steps = (RobustScaler(), VarianceThreshold(0.05), MinMaxScaler(), PCA(3))
    pipeline = make_pipeline(*steps, RankRLS(kernel=kernel)).fit(X, y)
    check(pipeline, data(seed=1)[0])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("options", [{}, {"strategy": "constant", "fill_value": 2}])
def test_imputers(options, kernel):
    X, y, _ = data()
    new = data(seed=1)[0]
    for rows in (X, new):
        rows[::3, 1] = rows[4, 2] = np.nan
    pipeline = make_pipeline(
        SimpleImputer(**options), MinMaxScaler(), PCA(3), RankRLS(kernel=kernel)
    )
    check(pipeline.fit(X, y), new)


@pytest.mark.filterwarnings("ignore:Skipping features")
def test_an_imputer_drops_features_without_values():
    X, y, _ = data()
    empty = np.c_[np.full(len(X), np.nan), X]
    empty[3, 2] = np.nan
    check(make_pipeline(SimpleImputer(), StandardScaler(), RankRLS()).fit(empty, y), empty)


def test_other_rankers():
    X, y, qid = data()
    check(RankRLSCV([0.1, 1.0, 10.0], query_weighting="size").fit(X, y, qid=qid), X)
    search = GridSearchCV(RankRLS(kernel="rbf"), {"alpha": [0.1, 1.0, 10.0]}, cv=3)
    check(search.fit(X, y), X)
    selector = GreedyRankRLS(2).fit(X, y, qid=qid)
    scores = run(to_onnx(selector, dtype="float64"), X)
    np.testing.assert_allclose(scores, X @ selector.coef_, rtol=1e-10)


def test_rows_with_large_offsets():
    X, y, _ = data()
    X = X + 1000 * X.std(axis=0)
    check(make_pipeline(StandardScaler(), RankRLS()).fit(X, y), X)
    ranker = RankRLS(kernel="rbf", gamma=0.01).fit(X, y)
    scores = run(to_onnx(ranker, dtype="float64"), X)
    np.testing.assert_allclose(scores, ranker.predict(X), rtol=1e-5)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_several_outputs(kernel):
    X, y, _ = data()
    Y = np.c_[y, X[:, 1], -y]
    pipeline = make_pipeline(StandardScaler(), RankRLS(kernel=kernel)).fit(X, Y)
    check(pipeline, X)
    check(pipeline, X, output=1)
    one = make_pipeline(StandardScaler(), RankRLS(kernel=kernel)).fit(X, Y[:, :1])
    assert run(to_onnx(one), X.astype(np.float32)).shape == (len(X), 1)
    with pytest.raises(ValueError, match="output=3"):
        to_onnx(pipeline, output=3)


def test_sparse_training_rows_and_rows_without_pairs():
    X, y, _ = data()
    X = np.where(X > 0, X, 0.0)
    qid = np.r_[np.arange(len(X) - 3) % 5, 10, 11, 12]  # three rows on their own
    ranker = RankRLS(kernel="rbf", gamma=0.1).fit(sparse.csr_array(X), y, qid=qid)
    model = to_onnx(ranker)
    check(ranker, X)
    assert all(len(X) not in c.dims for c in model.graph.initializer)
    check(RankRLS(kernel="rbf", basis=10, random_state=0).fit(sparse.csr_array(X), y), X)


def test_file_and_metadata(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, _ = data()
    ranker = RankRLS().fit(pd.DataFrame(X, columns=["a", "b", "c", "größe"]), y)
    model = to_onnx(ranker, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == model
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    properties = {p.key: p.value for p in model.metadata_props}
    assert json.loads(properties["feature_names"]) == ["a", "b", "c", "größe"]
    assert properties["estimator"] == "RankRLS"
    assert (model.ir_version, model.opset_import[0].version) == (7, 13)
    scores = run((tmp_path / "model.onnx").read_bytes(), X.astype(np.float32))
    np.testing.assert_allclose(scores, X @ ranker.coef_, rtol=1e-4, atol=1e-4)
    assert run(model, np.zeros((0, 4), np.float32)).shape == (0,)


def test_refusals():
    X, y, _ = data()
    for kernel in ("laplacian", "cosine", lambda a, b: a @ b):
        with pytest.raises(ValueError, match=r"is not exported.*'rbf'"):
            to_onnx(RankRLS(kernel=kernel).fit(np.abs(X), y))
    with pytest.raises(ValueError, match="'precomputed' is not exported"):
        to_onnx(RankRLS(kernel="precomputed").fit(X @ X.T, y))
    with pytest.raises(ValueError, match="QueryScaler"):
        to_onnx(make_pipeline(QueryScaler(), RankRLS(kernel="rbf")).fit(X, y))
    with pytest.raises(ValueError, match="dtype must be one of"):
        to_onnx(RankRLS().fit(X, y), dtype="float16")
    ranker = RankRLS(kernel="rbf").fit(X, y)
    ranker._model.dual_coef[0, 2] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        to_onnx(ranker)


def test_without_onnx(monkeypatch):
    X, y, _ = data()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'rankrls\[onnx\]'"):
        to_onnx(RankRLS().fit(X, y))
