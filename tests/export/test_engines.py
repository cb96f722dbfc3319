"""Exports for search engines and SVMrank, read back by the engines' own rules."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from rankrls import GreedyRankRLS, RankRLS, RankRLSCV, RankSVM
from rankrls.export import (
    linear_scores,
    to_elasticsearch,
    to_opensearch,
    to_solr,
    to_sql,
    to_svmrank,
    to_vespa,
)
from rankrls.preprocessing import QueryScaler

pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

NAMES = ["title match", "bm25(body)", "recency", "clicks", "größe"]


def data(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.gamma(2.0, size=(n, d)) * 10.0 ** np.arange(-2, d - 2) + 3.0
    y = np.round((X / X.std(axis=0)) @ rng.normal(size=d))
    return X, y, np.arange(n) % 6


# ------------------------------------------------------------- readers: nothing but the file


def no_duplicates(pairs):
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def read_elasticsearch(body, feature_set, X):
    """LinearRankerParser: weights start at zero, unknown names are errors, as are other values."""
    body = json.loads(json.dumps(body, allow_nan=False))
    assert set(body) == {"model"}
    assert set(body["model"]) == {"name", "model"}
    assert set(body["model"]["model"]) == {"type", "definition"}
    assert body["model"]["model"]["type"] == "model/linear"
    definition = body["model"]["model"]["definition"]
    assert isinstance(definition, str)
    weights = np.zeros(len(feature_set), dtype=np.float32)
    for name, value in json.loads(definition, object_pairs_hook=no_duplicates).items():
        assert isinstance(value, int | float)
        weights[feature_set.index(name)] = value
    return X.astype(np.float32) @ weights


def read_solr(text, feature_store, X):
    """LinearModel: features known to the store, each once, each with a weight that is a Double."""

    def whole_number(digits):
        raise AssertionError(f"{digits} would be read as a Long")

    model = json.loads(text, object_pairs_hook=no_duplicates, parse_int=whole_number)
    assert model["class"] == "org.apache.solr.ltr.model.LinearModel"
    assert set(model) <= {"class", "name", "store", "features", "params"}
    names = [feature["name"] for feature in model["features"]]
    assert names
    assert len(set(names)) == len(names)
    assert all(set(feature) == {"name"} for feature in model["features"])
    assert set(model["params"]) == {"weights"}
    weights = np.array([model["params"]["weights"][name] for name in names], dtype=np.float32)
    return X[:, [feature_store.index(name) for name in names]].astype(np.float32) @ weights


def read_svmrank(text, X):
    """read_model and classify_example of SVM-light: Σ alpha k(sv, x) − b, k linear."""
    lines = text.split("\n")
    assert lines[0] == "SVM-light Version V6.20"
    numbers = [line.split("#")[0].strip() for line in lines[1:11]]
    assert numbers[0] == "0"
    assert numbers[5] == "empty"
    highest, n_vectors, b = int(numbers[6]), int(numbers[8]) - 1, float(numbers[9])
    w = np.zeros(highest + 1)
    for line in lines[11 : 11 + n_vectors]:
        alpha, *words = line[: line.index("#")].split()
        indices = [int(word.split(":")[0]) for word in words]
        assert indices == sorted(set(indices))
        assert not indices or 1 <= indices[0] <= indices[-1] <= highest
        for word in words:
            index, value = word.split(":")
            w[int(index)] += float(alpha) * float(value)
    assert lines[11 + n_vectors :] == [""]
    return X @ w[1 : X.shape[1] + 1] - b


def same_up_to_constant(scores, predictions, rtol):
    scale = np.abs(predictions).max() + np.ptp(predictions)
    difference = scores.astype(float) - predictions
    return np.ptp(difference) <= rtol * scale


# ----------------------------------------------------------------------- what is exported

RANKERS = {
    "RankRLS": RankRLS(0.5),
    "nystroem": RankRLS(0.5, basis=20, random_state=0),
    "early stopping": RankRLS(0.5, early_stopping=True, random_state=0),
    "RankRLSCV": RankRLSCV([0.1, 1.0, 10.0], query_weighting="size"),
    "RankSVM": RankSVM(0.5),
}

SCALERS = {
    "standard": StandardScaler(),
    "standard, mean": StandardScaler(with_std=False),
    "standard, std": StandardScaler(with_mean=False),
    "minmax": MinMaxScaler((-1, 3)),
    "maxabs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "pca": PCA(3),
    "svd": TruncatedSVD(3, random_state=0),
    "threshold": VarianceThreshold(1.0),
    "k best": SelectKBest(f_regression, k=3),
    "nested": make_pipeline(MinMaxScaler(), make_pipeline(PCA(4), VarianceThreshold())),
    "passthrough": "passthrough",
    "identity": FunctionTransformer(),
}


def check_everything(estimator, predictions, X, rtol=1e-12):
    """All targets score like ``predict``, up to one constant."""
    folded = linear_scores(estimator)
    scale = np.abs(X * folded.weights).sum(axis=1).max()
    assert_allclose(X @ folded.weights + folded.constant, predictions, rtol=0, atol=rtol * scale)
    single = 1e-5 * scale / (np.abs(predictions).max() + np.ptp(predictions))
    body = to_elasticsearch(estimator, NAMES, "m")
    assert same_up_to_constant(
        read_elasticsearch(body, NAMES[::-1], X[:, ::-1]), predictions, single
    )
    assert to_opensearch(estimator, NAMES, "m") == body
    solr = json.dumps(to_solr(estimator, NAMES, "m", store="s"))
    assert same_up_to_constant(read_solr(solr, NAMES[::-1], X[:, ::-1]), predictions, single)
    scores = read_svmrank(to_svmrank(estimator), X)
    assert_allclose(scores, predictions, rtol=0, atol=rtol * scale)


@pytest.mark.parametrize("ranker", RANKERS.values(), ids=RANKERS)
@pytest.mark.filterwarnings("ignore:the best alpha")
def test_rankers(ranker):
    X, y, qid = data()
    fitted = ranker.fit(X / X.std(axis=0), y, qid=qid)
    Z = data(seed=1)[0] / X.std(axis=0)
    check_everything(fitted, fitted.predict(Z), Z)


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS)
def test_pipelines_are_folded(scaler):
    X, y, qid = data()
    pipeline = make_pipeline(scaler, RankRLS(0.5)).fit(X, y, rankrls__qid=qid)
    Z = data(seed=1)[0]
    check_everything(pipeline, pipeline.predict(Z), Z)


def with_gaps(X):
    X = X.copy()
    X[::4, 1] = X[3, 0] = np.nan
    return X


def test_an_imputer_that_fills_with_zero_is_folded():
    """A missing feature counts as 0 in the engines, too."""
    X, y, _qid = data()
    X = with_gaps(X)
    zero = SimpleImputer(strategy="constant", fill_value=0)
    pipeline = make_pipeline(zero, MaxAbsScaler(), StandardScaler(), RankRLS()).fit(X, y)
    check_everything(pipeline, pipeline.predict(X), np.nan_to_num(X))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((SimpleImputer(),), "missing feature counts as 0.*to_onnx"),
        ((SimpleImputer(missing_values=-1.0, fill_value=0),), "missing_values=np.nan only"),
        ((StandardScaler(), SimpleImputer()), "as the first step, SimpleImputer"),
        ((SimpleImputer(add_indicator=True),), "fit it without add_indicator"),
    ],
)
def test_other_imputers_are_not_folded(steps, message):
    X, y, _qid = data()
    X = X if steps[0].__dict__.get("missing_values") == -1.0 else with_gaps(X)
    pipeline = make_pipeline(*steps, RankRLS()).fit(X, y)
    for export in (to_elasticsearch, to_solr, lambda model, names: to_svmrank(model)):
        with pytest.raises(ValueError, match=message):
            export(pipeline, NAMES)


def test_offset_features_keep_their_digits():
    X, y, _qid = data()
    X = X + 1e6 * X.std(axis=0)
    pipeline = make_pipeline(StandardScaler(), RankRLS()).fit(X, y)
    folded = linear_scores(pipeline)
    difference = X @ folded.weights + folded.constant - pipeline.predict(X)
    assert np.abs(difference).max() <= 1e-8 * np.ptp(pipeline.predict(X))


def test_greedy_selection_at_the_end_and_as_a_step():
    X, y, qid = data()
    X = X / X.std(axis=0)
    selector = GreedyRankRLS(2).fit(X, y, qid=qid)
    check_everything(selector, X @ selector.coef_, X)
    pipeline = Pipeline([("select", selector), ("rank", RankRLS().fit(selector.transform(X), y))])
    check_everything(pipeline, pipeline.predict(X), X)
    body = to_elasticsearch(selector, NAMES, drop_zeros=True)
    chosen = [NAMES[i] for i in sorted(selector.selected_features_)]
    assert list(json.loads(body["model"]["model"]["definition"])) == chosen
    model = to_solr(selector, NAMES, drop_zeros=True)
    assert len(model["features"]) == len(model["params"]["weights"]) == 2


def test_search_exports_its_best_estimator():
    X, y, _ = data()
    pipeline = make_pipeline(StandardScaler(), RankRLS())
    search = GridSearchCV(pipeline, {"rankrls__alpha": [0.1, 10.0]}, cv=3).fit(X, y)
    check_everything(search, search.predict(X), X)
    with pytest.raises(ValueError, match="refit=False"):
        linear_scores(
            GridSearchCV(pipeline, {"rankrls__alpha": [1.0]}, cv=3, refit=False).fit(X, y)
        )


def test_outputs_are_chosen():
    X, y, _ = data()
    pipeline = make_pipeline(StandardScaler(), RankRLS()).fit(X, np.c_[y, -2 * y])
    for j in (0, 1):
        folded = linear_scores(pipeline, output=j)
        assert_allclose(X @ folded.weights + folded.constant, pipeline.predict(X)[:, j], rtol=1e-10)
    for export in (to_elasticsearch, to_solr):
        with pytest.raises(ValueError, match=r"2 outputs.*output=0 … 1"):
            export(pipeline, list("abcde"))
        assert export(pipeline, list("abcde"), output=1)
    with pytest.raises(ValueError, match="output=2, but the model has 2"):
        linear_scores(pipeline, output=2)


# ------------------------------------------------------------------------------ names


@pytest.mark.parametrize("export", [to_elasticsearch, to_solr, to_sql, to_vespa])
def test_own_names_in_another_place_are_refused(export):
    """The weights of two features would be exchanged."""
    pd = pytest.importorskip("pandas")
    X, y, _ = data()
    model = make_pipeline(StandardScaler(), RankRLS())
    model.fit(pd.DataFrame(X, columns=list("abcde")), y)
    assert linear_scores(model).feature_names == list("abcde")
    assert export(model, list("abcde")) == export(model)
    assert export(model, ["a", "b", "c", "other", "e"])
    for names in (list("edcba"), list("abced"), ["new", "a", "x", "y", "z"]):
        with pytest.raises(ValueError, match=r"the model's own name of feature \d: give other"):
            export(model, names)


@pytest.mark.parametrize("export", [to_elasticsearch, to_solr])
def test_bad_names(export):
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    for names, message in [
        (None, "without feature names.*5 features"),
        (["a", "b"], "2 names for 5 features"),
        (["a", "b", "c", "d", "a"], r"feature_names\[0\] and feature_names\[4\] are both 'a'"),
        (["a", "b", "", "d", "e"], r"feature_names\[2\] must be a string, not empty"),
        ("abcde", "must be a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            export(ranker, names)
    for name, message in [
        ("a/b", "with '/'"),
        ("a b", "with ' '"),
        (3, "name must be a string"),
    ]:
        with pytest.raises(ValueError, match=message):
            export(ranker, list("abcde"), name)


def test_names_that_solr_cannot_log():
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    with pytest.raises(ValueError, match="name=value,name=value"):
        to_solr(ranker, ["a", "b=", "c", "d", "e"])
    assert to_elasticsearch(ranker, ["a", "b=", "c", "d", "e"])
    with pytest.raises(ValueError, match="store"):
        to_solr(ranker, list("abcde"), store="a b")
    assert "store" not in to_solr(ranker, list("abcde"))


# ------------------------------------------------------------------------------ refusals


class Doubled(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return 2 * X


class Shifted(StandardScaler):
    def transform(self, X, copy=None):
        return super().transform(X) ** 2


def piped(*steps):
    return make_pipeline(*steps, RankRLS())


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (RankRLS(kernel="rbf"), r"kernel='rbf'.*kernel='linear'.*to_onnx"),
        (piped(QueryScaler()), r"QueryScaler.*other documents.*StandardScaler"),
        (piped(MinMaxScaler(clip=True)), "clip=True"),
        (piped(PCA(2, whiten=True)), "whiten"),
        (piped(Doubled()), "cannot be folded"),
        (piped(Shifted()), "cannot be folded"),
        (piped(FunctionTransformer(np.log)), "cannot be folded"),
        (Ridge(), "Ridge cannot be exported"),
        (make_pipeline(StandardScaler()), "StandardScaler cannot be exported"),
    ],
)
def test_refusals(estimator, message):
    X, y, _qid = data()
    with pytest.raises(NotFittedError):
        to_solr(estimator, NAMES)
    with pytest.raises(ValueError, match=message):
        to_svmrank(estimator.fit(X, y))


def test_weights_beyond_32_bits_and_zero_models():
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    for coef, message in [
        ([1.0, 1e39, 0, 0, 0], r"1e\+39 of '(b|feature 2)' is too large"),
        ([1.0, np.nan, 0, 0, 0], "weight of feature 1 .*not finite"),
        ([0.0] * 5, "every weight is zero"),
        ([1e-60] * 5, "every weight is zero"),
    ]:
        ranker.coef_ = np.array(coef)
        for export in (to_elasticsearch, to_solr, lambda model, names: to_svmrank(model)):
            with pytest.raises(ValueError, match=message):
                export(ranker, list("abcde"))
    ranker.coef_ = np.array([3.0, -0.0, 0.0, 1e-5, -1e22])
    text = json.dumps(to_solr(ranker, list("abcde")))
    assert "-0.0" not in text
    assert_allclose(read_solr(text, list("abcde"), np.eye(5)), ranker.coef_, rtol=1e-6)
    definition = to_elasticsearch(ranker, list("abcde"))["model"]["model"]["definition"]
    assert json.loads(definition) == dict(zip("abcde", ranker.coef_, strict=True))


# ------------------------------------------------------------------------------ files


def test_files_are_written_whole_or_not_at_all(tmp_path):
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    for export in (to_elasticsearch, to_solr):
        body = export(ranker, NAMES, path=tmp_path / "model.json")
        assert json.loads((tmp_path / "model.json").read_text(encoding="utf-8")) == body
    text = to_svmrank(ranker, tmp_path / "model.dat")
    assert (tmp_path / "model.dat").read_text() == text
    assert to_svmrank(ranker, str(tmp_path / "model.dat")) == text
    ranker.coef_ = np.full(5, np.nan)
    with pytest.raises(ValueError, match="not finite"):
        to_svmrank(ranker, tmp_path / "model.dat")
    assert (tmp_path / "model.dat").read_text() == text
    assert {file.name for file in tmp_path.iterdir()} == {"model.json", "model.dat"}
