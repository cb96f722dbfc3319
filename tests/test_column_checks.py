"""Columns of X that are no features: dates are refused, ids and unequal scales are told."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import ConditionalRankRLS, GreedyRankRLS, RankRLS, RankRLSCV, RankSVM
from rankrls._frames import columns_like_ids, refuse_dates, unequal_scales
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.preprocessing import QueryScaler

N = 120
DAYS = pd.date_range("2024-01-01", periods=N, freq="h")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.standard_normal(N), np.repeat(np.arange(12), 10)


# ---------------------------------------------------------------------- dates


def dated_frames():
    """Data frames, tables and arrays with a column of dates, times or durations."""
    frame, objects = pd.DataFrame({"a": np.arange(N) / N}), DAYS.to_pydatetime().astype(object)
    dates = np.array([t.date() for t in DAYS], dtype=object)
    for when in (DAYS, DAYS - DAYS[0], DAYS.to_period("h"), objects, dates):
        yield frame.assign(when=when)
    yield np.column_stack([DAYS.to_numpy(), DAYS.to_numpy()])
    yield np.array([[0.5, day] for day in DAYS.to_pydatetime()], dtype=object)


def optional_frames():
    numbers, days = np.arange(N) / N, list(DAYS.to_pydatetime())
    pa = pytest.importorskip("pyarrow")
    yield pa.table({"a": numbers, "when": pa.array(days, pa.timestamp("us"))})
    yield pd.DataFrame({"a": numbers, "when": DAYS}).convert_dtypes(dtype_backend="pyarrow")
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": numbers, "when": days})
    yield frame
    for kind in (pl.Date, pl.Time):
        yield frame.with_columns(pl.col("when").cast(kind))
    yield frame.with_columns(when=pl.col("when") - pl.col("when").min())


@pytest.mark.parametrize("frames", [dated_frames, optional_frames])
def test_dates_are_refused_by_name_wherever_rows_are_read(frames, data):
    plain, y, qid = data
    fitted = {
        "RankRLS": RankRLS().fit(plain, y, qid=qid),
        "RankSVM": RankSVM().fit(plain, y, qid=qid),
    }
    for X in frames():
        named = r"'when' \(" if hasattr(X, "columns") or hasattr(X, "schema") else r"\(d"
        message = rf"X has .*columns? of dates or times: .*{named}"
        calls = {
            **{name: model.predict for name, model in fitted.items()},
            "fit": lambda X: RankRLS().fit(X, y, qid=qid),
            "cv": lambda X: RankRLSCV().fit(X, y, qid=qid),
            "svm": lambda X: RankSVM().fit(X, y, qid=qid),
            "partial": lambda X: RankRLS().partial_fit(X, y, qid=qid),
            "stream": lambda X: RankRLS().fit_stream([(X, y, qid)]),
            "greedy": lambda X: GreedyRankRLS(1).fit(X, y, qid=qid),
            "scaler": lambda X: QueryScaler().fit(X),
            "relation": lambda X: ConditionalRankRLS().fit(X, np.ones((N, 3))),
        }
        for call in calls.values():
            with pytest.raises(ValueError, match=message):
                call(X)


def test_what_is_no_date_is_not_refused():
    number = np.arange(4.0)
    refuse_dates(pd.DataFrame({"time": number, "date": [1, 2, 3, 4], "on": [True, False] * 2}))
    refuse_dates(pd.DataFrame({"a": pd.Categorical([1, 2, 1, 2]), "b": np.array([1, 2, 3, None])}))
    refuse_dates(sparse.csr_array(np.eye(3)))
    refuse_dates([[1.0, 2.0]])
    refuse_dates([])


# ---------------------------------------------------------------------- ids


@pytest.mark.parametrize("name", ["id", "doc_id", "itemId", "URL", "timestamp", "Unnamed: 0"])
def test_names_of_ids(name, data):
    X, y, qid = data
    ids = 10**9 + np.random.default_rng(0).permutation(10**6)[:N]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(**{name: ids})
    for estimator in (RankRLS(), RankRLSCV([1.0]), RankSVM(), RankRLS(kernel="rbf")):
        with pytest.warns() as told:
            estimator.fit(frame, y, qid=qid)
        told = [one for one in told if one.category is IdColumnWarning]
        assert f"column {name!r} of X looks like an id" in str(told[0].message)
        assert f"X.drop(columns=[{name!r}])" in str(told[0].message)
        assert told[0].filename == __file__
    # A feature of that name is one: no integers, or few values.
    for values in (X[:, 0] + 0.5, np.arange(N) % 3):
        assert columns_like_ids(frame.assign(**{name: values}).to_numpy(float), [*frame]) == []


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_ids_without_a_name(form):
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((500, 3)), np.repeat(np.arange(10), 50)

    def found(column, codes=None):
        return columns_like_ids(form(np.column_stack([X, column])), None, codes)

    for ids in (np.arange(500), rng.permutation(500), rng.permutation(1000)[:500] + 10**7):
        assert found(ids) == [3]
    rising = 10**8 + np.cumsum(rng.integers(1, 1000, 500))
    assert found(rising, codes) == found(-rising, codes) == [3]
    ordinary = {
        "position in the query": np.tile(np.arange(50), 10),
        "count": rng.poisson(5, 500),
        "population": np.rint(np.exp(rng.normal(9, 2, 500))),
        "cents": rng.integers(0, 10**6, 500),
        "flag": rng.integers(0, 2, 500),
        "year": rng.integers(1990, 2024, 500),
        "huge": 1e18 * rng.standard_normal(500),
    }
    for name, column in ordinary.items():
        assert found(column) == found(column, codes) == [], name
    assert columns_like_ids(np.arange(500.0)[:, None]) == []  # the only feature
    names = ["a", "b", "c", "popularity rank"]
    assert columns_like_ids(np.column_stack([X, np.arange(500)]), names) == []


# ---------------------------------------------------------------------- scales


def test_scales_are_told_with_the_remedy(data):
    X, y, qid = data
    frame = pd.DataFrame(X * [1.0, 1e-3, 30.0], columns=["title", "length", "clicks"])
    estimators = (RankRLS(), RankRLSCV([1.0]), RankSVM(), RankRLS(kernel="rbf"), GreedyRankRLS(1))
    for estimator in estimators:
        with pytest.warns(FeatureScaleWarning, match=r"'length'.* to .*'clicks'") as told:
            estimator.fit(frame, y, qid=qid)
        assert "make_pipeline(StandardScaler(), RankRLS())" in str(told[0].message)
        assert told[0].filename == __file__
    Y = np.random.default_rng(0).random((N, 4))
    for call in (
        lambda: RankRLS().partial_fit(frame, y, qid=qid),
        lambda: RankRLS().fit_stream([(frame, y, qid)]),
        lambda: ConditionalRankRLS().fit(frame, Y, np.eye(4)),
    ):
        with pytest.warns(FeatureScaleWarning):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(StandardScaler(), RankRLS()).fit(frame, y)
        RankRLS(kernel="precomputed").fit(frame.to_numpy() @ frame.to_numpy().T, y, qid=qid)
        RankRLS(kernel=lambda a, b: float(a[:1] @ b[:1])).fit(frame.to_numpy(), y, qid=qid)


def test_only_differences_within_queries_count():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(20), 10)
    X = rng.standard_normal((200, 2))
    assert unequal_scales(X + 1e6 * codes[:, None], codes) is None
    assert unequal_scales(np.column_stack([X, 1e9 * codes]), codes) is None
    assert unequal_scales(np.column_stack([X, 1e9 * codes])).large == 2


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("n_rows", [300, 20_000])
def test_rules_are_those_of_the_definition(form, n_rows):
    rng = np.random.default_rng(n_rows)
    X = rng.standard_normal((n_rows, 12)) * 10.0 ** np.linspace(-3, 1, 12)
    codes = rng.permutation(np.arange(n_rows) % (n_rows // 10))
    found = unequal_scales(form(X), codes)
    assert (found.small, found.large) == (0, 11)
    centred = X - np.stack([X[codes == q].mean(axis=0) for q in range(codes.max() + 1)])[codes]
    tolerance = 1e-9 if n_rows == 300 else 0.05  # a sample of the queries
    np.testing.assert_allclose(
        [found.low, found.high], centred.std(axis=0)[[0, 11]], rtol=tolerance
    )
    assert unequal_scales(form(X[:, 3:]), codes) is None  # 10^2.9


def test_ordinary_data_are_not_told():
    for load in (load_iris, load_diabetes, load_digits, load_wine, load_breast_cancer):
        bunch, told = load(), load in (load_wine, load_breast_cancer)  # proline; areas
        assert (unequal_scales(bunch.data) is not None) == told
        assert columns_like_ids(bunch.data, list(bunch.feature_names)) == []
    rng = np.random.default_rng(0)
    words = [" ".join(f"w{k}" for k in rng.zipf(1.3, 50) if k < 5000) for _ in range(300)]
    assert unequal_scales(TfidfVectorizer().fit_transform(words)) is None
    rare = np.zeros((5000, 3))
    rare[:, 0], rare[7, 1], rare[::3, 2] = rng.standard_normal(5000) * 100, 1, 1
    assert unequal_scales(rare) is None
