"""SQL in SQLite and DuckDB, rank profiles of Vespa, normalizers of search engines."""

import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from rankrls import GreedyRankRLS, RankRLS, RankSVM
from rankrls.export import linear_scores, to_elasticsearch, to_solr, to_sql, to_vespa

# Columns of very different scales are meant to be.
pytestmark = pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")

NAMES = ["bm25", 'say "hi"', "group", "größe", "5 - 3", "select; drop", "a]b`c"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, len(NAMES))) * 10.0 ** np.arange(-3, 4) + np.arange(7) * 5
    y = X @ rng.normal(size=7) * 0.1 + rng.normal(size=60)
    return X, y, np.repeat(np.arange(6), 10)


PIPELINES = {
    "plain": RankRLS(1.0),
    "standard": make_pipeline(StandardScaler(), RankRLS(1.0)),
    "minmax": make_pipeline(MinMaxScaler(), RankRLS(0.01)),
    "robust": make_pipeline(RobustScaler(), RankSVM(1.0)),
    "pca": make_pipeline(StandardScaler(), PCA(4), RankRLS(1.0)),
    "selected": make_pipeline(VarianceThreshold(1.0), StandardScaler(), RankRLS(1.0)),
    "greedy": make_pipeline(StandardScaler(), GreedyRankRLS(3)),
    "twice": make_pipeline(StandardScaler(), MinMaxScaler(), RankRLS(0.01)),
}


def in_sqlite(frame, expressions):
    with closing(sqlite3.connect(":memory:")) as connection:
        frame.to_sql("documents", connection, index=False)
        found = connection.execute(f"SELECT {', '.join(expressions)} FROM documents").fetchall()
    return np.array(found, dtype=float).T


def in_duckdb(frame, expressions):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("documents", frame)
        found = connection.execute(f"SELECT {', '.join(expressions)} FROM documents").fetchall()
    return np.array(found, dtype=float).T


@pytest.mark.parametrize(
    ("run", "name"), [*((in_sqlite, name) for name in PIPELINES), (in_duckdb, "standard")]
)
def test_databases_score_as_predict_does(data, name, run):
    X, y, _ = data
    model = PIPELINES[name].fit(X, y)
    expected = model.predict(X) if name != "greedy" else (
        X @ linear_scores(model).weights + linear_scores(model).constant)  # fmt: skip
    frame = pd.DataFrame(X, columns=NAMES)
    (found,) = run(frame, [to_sql(model, NAMES)])
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("run", [in_sqlite, in_duckdb])
def test_missing_values_are_filled_in(data, run):
    X, y, _ = data
    holes = X.copy()
    holes[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), RankRLS(1.0))
    model.fit(holes, y)
    frame = pd.DataFrame(holes, columns=NAMES).astype(object)
    frame = frame.where(frame.notna(), None)
    if run is in_duckdb:
        frame = frame.astype("Float64")  # NULL, not NaN
    (found,) = run(frame, [to_sql(model, NAMES)])
    assert_allclose(found, model.predict(holes), rtol=1e-9)
    plain = make_pipeline(StandardScaler(), RankRLS(1.0)).fit(X, y)
    (found,) = run(frame, [to_sql(plain, NAMES)])
    assert_array_equal(np.isnan(found), np.isnan(holes).any(axis=1))


@pytest.mark.parametrize("run", [in_sqlite, in_duckdb])
def test_wide_models(run):
    rng = np.random.default_rng(0)
    n = 1990
    X = rng.integers(-(10**6), 10**6, size=(5, n))  # literals are doubles, whatever the columns are
    model = RankRLS(1.0).fit(X, np.arange(5.0))
    names = [f"f{i}" for i in range(n)]
    (found,) = run(pd.DataFrame(X, columns=names), [to_sql(model, names)])
    assert_allclose(found, model.predict(X), rtol=1e-10)


def test_quotes_and_names(data, tmp_path):
    X, y, _ = data
    model = make_pipeline(StandardScaler(), RankRLS(1.0)).fit(pd.DataFrame(X, columns=NAMES), y)
    text = to_sql(model, path=tmp_path / "score.sql")
    assert (tmp_path / "score.sql").read_text(encoding="utf-8") == text + "\n"
    assert '"say ""hi"""' in text
    frame = pd.DataFrame(X, columns=NAMES)
    found = in_sqlite(frame, [to_sql(model, quote=quote) for quote in ('"', "`")])
    assert_allclose(found, [model.predict(frame)] * 2, rtol=1e-9)
    simple = [f"c{i}" for i in range(7)]
    bracketed = to_sql(model, simple, quote="[")
    (found,) = in_sqlite(pd.DataFrame(X, columns=simple), [bracketed])
    assert_allclose(found, model.predict(frame), rtol=1e-9)
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        in_sqlite(pd.DataFrame(X[:, 1:], columns=simple[1:]), [bracketed])


def test_what_sql_cannot_say(data):
    X, y, _ = data
    model = RankRLS(1.0).fit(X, y)
    for estimator, options, message in (
        (model, {}, "fitted to rows without feature names"),
        (model, {"feature_names": NAMES, "quote": "'"}, "quote must be one of"),
        (RankRLS().fit(np.ones_like(X), y), {"feature_names": NAMES}, "every weight is zero"),
    ):
        with pytest.raises(ValueError, match=message):
            to_sql(estimator, **options)


# ---------------------------------------------------------------------- Vespa

FEATURES = ["bm25(title)", "attribute(age)", "matches", "fieldMatch(title).proximity",
            "query(user_bias)", "nativeRank(title, body)", "own_function"]  # fmt: skip


@pytest.mark.parametrize("name", ["plain", "standard", "pca"])
def test_rank_profiles_score_as_predict_does(data, name, tmp_path):
    X, y, _ = data
    model = PIPELINES[name].fit(X, y)
    text = to_vespa(model, FEATURES, "shop_1", path=tmp_path / "shop.profile")
    assert (tmp_path / "shop.profile").read_text() == text + "\n"
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "rank-profile shop_1 inherits default {"
    assert text.count("{") == text.count("}")
    assert "expression: shop_1_score()" in lines
    expression = lines[lines.index("expression {") + 1]
    for column, feature in sorted(enumerate(FEATURES), key=lambda pair: -len(pair[1])):
        expression = expression.replace(feature, f"X[:, {column}]")
    assert re.fullmatch(r"[-+*() .\dEX:\[\],]*", expression)
    assert_allclose(eval(expression), model.predict(X), rtol=1e-9, atol=1e-9)


def test_what_vespa_cannot_say(data):
    X, y, _ = data
    model = RankRLS(1.0).fit(X, y)
    for features, name, message in (
        (NAMES, "shop", "which is not a rank feature of Vespa; write, for example, bm25"),
        (["a } b", *FEATURES[1:]], "shop", "'a } b', which is not a rank feature"),
        (["f(x) + 1", *FEATURES[1:]], "shop", "which is not a rank feature"),
        (FEATURES, "my-shop", "name must consist of letters"),
        (FEATURES, None, "name must consist of letters"),
    ):
        with pytest.raises(ValueError, match=message):
            to_vespa(model, features, name)


# ---------------------------------------------------------------------- normalizers


def as_the_plugin(body, X, names):
    """Σ weight × (feature − mean)/deviation, as the engines compute it, in doubles."""
    model = body["model"]["model"]
    weights, scaled = json.loads(model["definition"]), model["feature_normalizers"]
    assert set(scaled) <= set(weights)
    total = 0.0
    for name, weight in weights.items():
        value = X[:, names.index(name)]
        if name in scaled:
            how = scaled[name]["standard"]
            value = (value - how["mean"]) / how["standard_deviation"]
        total = total + weight * value
    return total


def as_solr(model, X, names):
    total = 0.0
    for feature in model["features"]:
        value = X[:, names.index(feature["name"])]
        if "norm" in feature:
            assert feature["norm"]["class"] == "org.apache.solr.ltr.norm.StandardNormalizer"
            params = feature["norm"]["params"]
            value = (value - float(params["avg"])) / float(params["std"])
        total = total + model["params"]["weights"][feature["name"]] * value
    return total


@pytest.mark.parametrize("name", ["standard", "minmax", "robust", "selected", "twice"])
def test_normalizers_keep_the_scores(data, name):
    drop_zeros = name in ("minmax", "selected")
    X, y, _ = data
    names = [f"f{i}" for i in range(7)]
    model = PIPELINES[name].fit(X, y)
    expected = model.predict(X)
    body = to_elasticsearch(model, names, normalizers=True, drop_zeros=drop_zeros)
    assert_allclose(as_the_plugin(body, X, names), expected, rtol=1e-9, atol=1e-9)
    assert "feature_normalizers" not in to_elasticsearch(model, names)["model"]["model"]
    solr = to_solr(model, names, normalizers=True, drop_zeros=drop_zeros)
    assert_allclose(as_solr(solr, X, names), expected, rtol=1e-9, atol=1e-9)


def test_normalizers_that_are_not_there(data):
    X, y, _ = data
    names = [f"f{i}" for i in range(7)]
    for estimator, message in (
        (PIPELINES["pca"].fit(X, y), "mixes features"),
        (make_pipeline(VarianceThreshold(), RankRLS()).fit(X, y), "scales no feature"),
    ):
        with pytest.raises(ValueError, match=message):
            to_elasticsearch(estimator, names, normalizers=True)
