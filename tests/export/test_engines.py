"""Exports for search engines, databases, Vespa and SVMrank, read back by their own rules."""

import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
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

# Columns of very different scales are meant to be.
pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

NAMES = ["bm25(body)", 'say "hi"', "group", "größe", "5 - 3", "select; drop", "a]b`c"]
FEATURES = ["bm25(title)", "attribute(age)", "matches", "fieldMatch(title).proximity",
            "query(user_bias)", "nativeRank(title, body)", "own_function"]  # fmt: skip
LETTERS = list("abcdefg")


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.gamma(2.0, size=(n, 7)) * 10.0 ** np.arange(-3, 4) + 3.0
    y = np.round(2 * (X / X.std(axis=0)) @ rng.normal(size=7))
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
    model = body["model"]["model"]
    scaled = model.pop("feature_normalizers", {})
    assert set(model) == {"type", "definition"}
    assert model["type"] == "model/linear"
    assert isinstance(model["definition"], str)
    weights = json.loads(model["definition"], object_pairs_hook=no_duplicates)
    assert set(scaled) <= set(weights)
    total = np.zeros(len(X))
    for name, weight in weights.items():
        assert isinstance(weight, int | float)
        value = X[:, feature_set.index(name)]
        if name in scaled:
            how = scaled[name]["standard"]
            value = (value - how["mean"]) / how["standard_deviation"]
        total += weight * value
    return total


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
    assert set(model["params"]) == {"weights"}
    total = np.zeros(len(X))
    for feature in model["features"]:
        assert set(feature) <= {"name", "norm"}
        value = X[:, feature_store.index(feature["name"])]
        if "norm" in feature:
            assert feature["norm"]["class"] == "org.apache.solr.ltr.norm.StandardNormalizer"
            params = feature["norm"]["params"]
            value = (value - float(params["avg"])) / float(params["std"])
        total += model["params"]["weights"][feature["name"]] * value
    return total


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


def read_vespa(text, X):
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "rank-profile shop_1 inherits default {"
    assert text.count("{") == text.count("}")
    assert "expression: shop_1_score()" in lines
    expression = lines[lines.index("expression {") + 1]
    for column, feature in sorted(enumerate(FEATURES), key=lambda pair: -len(pair[1])):
        expression = expression.replace(feature, f"X[:, {column}]")
    assert re.fullmatch(r"[-+*() .\dEX:\[\],]*", expression)
    return eval(expression)


def selected(connection, expressions):
    query = f"SELECT {', '.join(expressions)} FROM documents"
    return np.array(connection.execute(query).fetchall(), dtype=float).T


def in_sqlite(frame, *expressions):
    with closing(sqlite3.connect(":memory:")) as connection:
        frame.to_sql("documents", connection, index=False)
        return selected(connection, expressions)


def in_duckdb(frame, *expressions):
    with pytest.importorskip("duckdb").connect() as connection:
        connection.register("documents", frame)
        return selected(connection, expressions)


# ----------------------------------------------------------------------- what is exported

RANKERS = {
    "RankRLS": RankRLS(0.5),
    "nystroem": RankRLS(0.5, basis=20, random_state=0),
    "early stopping": RankRLS(0.5, early_stopping=True, random_state=0),
    "RankRLSCV": RankRLSCV([0.1, 1.0, 10.0], query_weighting="size"),
    "RankSVM": RankSVM(0.5),
}

#: Steps of single features, with a scale, which engines can compute themselves.
SCALERS = {
    "standard": StandardScaler(),
    "standard, mean": StandardScaler(with_std=False),
    "standard, std": StandardScaler(with_mean=False),
    "minmax": MinMaxScaler((-1, 3)),
    "maxabs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "selected": make_pipeline(VarianceThreshold(1.0), StandardScaler()),
    "twice": make_pipeline(StandardScaler(), MinMaxScaler()),
}

OTHER_STEPS = {
    "pca": PCA(3),
    "svd": TruncatedSVD(3, random_state=0),
    "threshold": VarianceThreshold(1.0),
    "k best": SelectKBest(f_regression, k=3),
    "nested": make_pipeline(MinMaxScaler(), make_pipeline(PCA(4), VarianceThreshold())),
    "passthrough": "passthrough",
    "identity": FunctionTransformer(),
}


def check_everything(estimator, predictions, X, *, scaled=False):
    """All targets score like ``predict``; search engines up to one constant."""
    folded = linear_scores(estimator)
    close = {"rtol": 0, "atol": 1e-12 * np.abs(X * folded.weights).sum(axis=1).max()}
    assert_allclose(X @ folded.weights + folded.constant, predictions, **close)
    assert_allclose(read_svmrank(to_svmrank(estimator), X), predictions, **close)
    assert_allclose(read_vespa(to_vespa(estimator, FEATURES, "shop_1"), X), predictions, **close)
    (found,) = in_sqlite(pd.DataFrame(X, columns=NAMES), to_sql(estimator, NAMES))
    assert_allclose(found, predictions, **close)
    for drop_zeros in (False, True):
        for normalizers in (False, True)[: 1 + scaled]:
            options = {"drop_zeros": drop_zeros, "normalizers": normalizers}
            constant = 0.0 if normalizers else folded.constant
            body = to_elasticsearch(estimator, NAMES, "m", **options)
            assert to_opensearch(estimator, NAMES, "m", **options) == body
            solr = json.dumps(to_solr(estimator, NAMES, "m", store="s", **options))
            for read, content in ((read_elasticsearch, body), (read_solr, solr)):
                found = read(content, NAMES[::-1], X[:, ::-1])
                assert_allclose(found + constant, predictions, **close)


@pytest.mark.parametrize("ranker", RANKERS.values(), ids=RANKERS)
@pytest.mark.filterwarnings("ignore:the best alpha")
def test_rankers(ranker):
    X, y, qid = data()
    fitted = clone(ranker).fit(X / X.std(axis=0), y, qid=qid)
    Z = data(seed=1)[0] / X.std(axis=0)
    check_everything(fitted, fitted.predict(Z), Z)


@pytest.mark.parametrize("name", [*SCALERS, *OTHER_STEPS])
def test_pipelines_are_folded(name):
    X, y, qid = data()
    pipeline = make_pipeline({**SCALERS, **OTHER_STEPS}[name], RankRLS(0.5))
    pipeline.fit(X, y, rankrls__qid=qid)
    Z = data(seed=1)[0]
    check_everything(pipeline, pipeline.predict(Z), Z, scaled=name in SCALERS)


def with_gaps(X):
    X = X.copy()
    X[::4, 1] = X[3, 0] = np.nan
    return X


def test_an_imputer_that_fills_with_zero_is_folded():
    """A missing feature counts as 0 in the engines, too."""
    X, y, _ = data()
    X = with_gaps(X)
    zero = SimpleImputer(strategy="constant", fill_value=0)
    pipeline = make_pipeline(zero, MaxAbsScaler(), StandardScaler(), RankRLS()).fit(X, y)
    check_everything(pipeline, pipeline.predict(X), np.nan_to_num(X), scaled=True)


def test_offset_features_keep_their_digits():
    X, y, _ = data()
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
    check_everything(search, search.predict(X), X, scaled=True)
    search = GridSearchCV(pipeline, {"rankrls__alpha": [1.0]}, cv=3, refit=False).fit(X, y)
    with pytest.raises(ValueError, match="refit=False"):
        linear_scores(search)


def test_outputs_are_chosen():
    X, y, _ = data()
    pipeline = make_pipeline(StandardScaler(), RankRLS()).fit(X, np.c_[y, -2 * y])
    for j in (0, 1):
        folded = linear_scores(pipeline, output=j)
        assert_allclose(X @ folded.weights + folded.constant, pipeline.predict(X)[:, j], rtol=1e-9)
    for export in (to_elasticsearch, to_solr):
        with pytest.raises(ValueError, match=r"2 outputs.*output=0 … 1"):
            export(pipeline, LETTERS)
        assert export(pipeline, LETTERS, output=1)
    with pytest.raises(ValueError, match="output=2, but the model has 2"):
        linear_scores(pipeline, output=2)


# ---------------------------------------------------------------------------- databases


@pytest.mark.parametrize("run", [in_sqlite, in_duckdb])
def test_missing_values_are_filled_in(run):
    X, y, _ = data()
    holes = X.copy()
    holes[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), RankRLS(1.0))
    model.fit(holes, y)
    frame = pd.DataFrame(holes, columns=NAMES).astype(object)
    frame = frame.where(frame.notna(), None)
    if run is in_duckdb:
        frame = frame.astype("Float64")  # NULL, not NaN
    (found,) = run(frame, to_sql(model, NAMES))
    assert_allclose(found, model.predict(holes), rtol=1e-9)
    plain = make_pipeline(StandardScaler(), RankRLS(1.0)).fit(X, y)
    (found,) = run(frame, to_sql(plain, NAMES))
    complete = ~np.isnan(holes).any(axis=1)
    assert_array_equal(np.isfinite(found), complete)
    assert_allclose(found[complete], plain.predict(holes[complete]), rtol=1e-9)


@pytest.mark.parametrize("run", [in_sqlite, in_duckdb])
def test_wide_models(run):
    rng = np.random.default_rng(0)
    n = 1990
    X = rng.integers(-(10**6), 10**6, size=(5, n))  # literals are doubles, whatever the columns are
    model = RankRLS(1.0).fit(X, np.arange(5.0))
    names = [f"f{i}" for i in range(n)]
    (found,) = run(pd.DataFrame(X, columns=names), to_sql(model, names))
    assert_allclose(found, model.predict(X), rtol=1e-10)


def test_quotes_and_names():
    X, y, _ = data()
    frame = pd.DataFrame(X, columns=NAMES)
    model = make_pipeline(StandardScaler(), RankRLS(1.0)).fit(frame, y)
    assert '"say ""hi"""' in to_sql(model)
    found = in_sqlite(frame, *(to_sql(model, quote=quote) for quote in ('"', "`")))
    assert_allclose(found, [model.predict(frame)] * 2, rtol=1e-9)
    bracketed = to_sql(model, LETTERS, quote="[")
    (found,) = in_sqlite(pd.DataFrame(X, columns=LETTERS), bracketed)
    assert_allclose(found, model.predict(frame), rtol=1e-9)
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        in_sqlite(pd.DataFrame(X[:, 1:], columns=LETTERS[1:]), bracketed)


# ------------------------------------------------------------------------------ names


@pytest.mark.parametrize("export", [to_elasticsearch, to_solr, to_sql, to_vespa])
def test_own_names_in_another_place_are_refused(export):
    """The weights of two features would be exchanged."""
    X, y, _ = data()
    model = make_pipeline(StandardScaler(), RankRLS()).fit(pd.DataFrame(X, columns=LETTERS), y)
    assert linear_scores(model).feature_names == LETTERS
    assert export(model, LETTERS) == export(model)
    assert export(model, ["a", "b", "c", "other", "e", "f", "g"])
    for names in (LETTERS[::-1], list("abdcefg"), ["new", "a", "x", "y", "z", "u", "v"]):
        with pytest.raises(ValueError, match=r"the model's own name of feature \d: give other"):
            export(model, names)


ENGINES = (to_elasticsearch, to_solr)

#: Exports, arguments that they refuse, and the error.
REFUSED = [
    ((*ENGINES, to_sql), {}, "without feature names.*7 features"),
    (ENGINES, {"feature_names": ["a", "b"]}, "2 names for 7 features"),
    (ENGINES, {"feature_names": list("abcdaef")}, r"names\[0\] and feature_names\[4\] .* 'a'"),
    (ENGINES, {"feature_names": ["a", "b", "", *"defg"]}, r"names\[2\] must be a string, not em"),
    (ENGINES, {"feature_names": "abcdefg"}, "must be a list"),
    (ENGINES, {"feature_names": LETTERS, "name": "a/b"}, "with '/'"),
    (ENGINES, {"feature_names": LETTERS, "name": "a b"}, "with ' '"),
    (ENGINES, {"feature_names": LETTERS, "name": 3}, "name must be a string"),
    ([to_solr], {"feature_names": ["a", "b=", *"cdefg"]}, "name=value,name=value"),
    ([to_solr], {"feature_names": LETTERS, "store": "a b"}, "store"),
    (ENGINES, {"feature_names": LETTERS, "normalizers": True}, "scales no feature"),
    ([to_sql], {"feature_names": LETTERS, "quote": "'"}, "quote must be one of"),
    ([to_vespa], {"feature_names": NAMES}, "not a rank feature of Vespa; write, for example, bm25"),
    ([to_vespa], {"feature_names": ["a } b", *FEATURES[1:]]}, "'a } b', which is not a rank"),
    ([to_vespa], {"feature_names": ["f(x) + 1", *FEATURES[1:]]}, "which is not a rank feature"),
    ([to_vespa], {"feature_names": FEATURES, "name": "my-shop"}, "name must consist of letters"),
    ([to_vespa], {"feature_names": FEATURES, "name": None}, "name must consist of letters"),
]


@pytest.mark.parametrize(("exports", "options", "message"), REFUSED)
def test_bad_arguments(exports, options, message):
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    for export in exports:
        with pytest.raises(ValueError, match=message):
            export(ranker, **options)
    assert to_elasticsearch(ranker, ["a", "b=", *"cdefg"])  # which Solr's log cannot hold
    assert "store" not in to_solr(ranker, LETTERS)


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
        (piped(SimpleImputer()), "missing feature counts as 0.*to_onnx"),
        (piped(SimpleImputer(missing_values=3.0)), "missing_values=np.nan only"),
        (piped(StandardScaler(), SimpleImputer()), "as the first step, SimpleImputer"),
        (piped(SimpleImputer(add_indicator=True)), "fit it without add_indicator"),
    ],
)
def test_refusals(estimator, message):
    X, y, _ = data()
    if "SimpleImputer" in str(estimator) and "3.0" not in str(estimator):
        X = with_gaps(X)
    with pytest.raises(NotFittedError):
        to_solr(estimator, NAMES)
    estimator.fit(X, y)
    for export in (to_elasticsearch, to_solr, lambda model, names: to_svmrank(model)):
        with pytest.raises(ValueError, match=message):
            export(estimator, NAMES)


def test_normalizers_are_of_single_features():
    X, y, _ = data()
    with pytest.raises(ValueError, match="mixes features"):
        to_elasticsearch(piped(StandardScaler(), PCA(4)).fit(X, y), NAMES, normalizers=True)


def test_weights_beyond_32_bits_and_zero_models():
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    for coef, message in [
        ([1.0, 1e39, 0, 0, 0, 0, 0], r"1e\+39 of '(b|feature 2)' is too large"),
        ([1.0, np.nan, 0, 0, 0, 0, 0], "weight of feature 1 .*not finite"),
        ([0.0] * 7, "every weight is zero"),
        ([1e-60] * 7, "every weight is zero"),
    ]:
        ranker.coef_ = np.array(coef)
        exports = [to_elasticsearch, to_solr, lambda model, names: to_svmrank(model)]
        for export in [*exports, *[to_sql] * (not ranker.coef_.any())]:
            with pytest.raises(ValueError, match=message):
                export(ranker, LETTERS)
    ranker.coef_ = np.array([3.0, -0.0, 0.0, 1e-5, -1e22, 1.0, 1.0])
    text = json.dumps(to_solr(ranker, LETTERS))
    assert "-0.0" not in text
    assert_allclose(read_solr(text, LETTERS, np.eye(7)), ranker.coef_)
    definition = to_elasticsearch(ranker, LETTERS)["model"]["model"]["definition"]
    assert json.loads(definition) == dict(zip(LETTERS, ranker.coef_, strict=True))


# ------------------------------------------------------------------------------ files


def test_files_are_written_whole_or_not_at_all(tmp_path):
    X, y, _ = data()
    ranker = RankRLS().fit(X, y)
    path = tmp_path / "model"
    for export in ENGINES:
        body = export(ranker, NAMES, path=path)
        assert json.loads(path.read_text(encoding="utf-8")) == body
    for export, names in ((to_sql, NAMES), (to_vespa, FEATURES)):
        assert path.read_text(encoding="utf-8") != (text := export(ranker, names, path=path))
        assert path.read_text(encoding="utf-8") == text + "\n"
    text = to_svmrank(ranker, path)
    assert path.read_text() == text
    assert to_svmrank(ranker, str(path)) == text
    ranker.coef_ = np.full(7, np.nan)
    with pytest.raises(ValueError, match="not finite"):
        to_svmrank(ranker, path)
    assert path.read_text() == text
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
