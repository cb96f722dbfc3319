"""Ranked lists with names: `rank` and `RankTable`."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM, rank
from rankrls.datasets import load_ranking, make_product_search, make_ranking
from rankrls.preprocessing import QueryScaler, TableEncoder
from rankrls.rankings import RankTable


@pytest.fixture(scope="module")
def bunch():
    return make_ranking(n_queries=8, n_docs=(1, 7), n_features=3, random_state=2)


@pytest.fixture(scope="module")
def frame(bunch):
    rows = np.random.default_rng(0).permutation(len(bunch.target))  # queries mixed up
    made = pd.DataFrame(bunch.data, columns=["a", "b", "c"])
    made["session"] = [f"s{q}" for q in bunch.qid]
    made["doc"] = [f"d{i}" for i in range(len(made))]
    made["grade"], made["title"] = bunch.target, "text"
    return made.iloc[rows].reset_index(drop=True)


@pytest.fixture(scope="module")
def model(frame):
    return RankRLS().fit(frame[["a", "b", "c"]], frame["grade"], qid=frame["session"])


def by_hand(scores, qid, ids, k=None):
    """The definition: stable sorts of lists."""
    lines = []
    for query in dict.fromkeys(qid):
        rows = [i for i in range(len(scores)) if qid[i] == query]
        rows.sort(key=lambda i: -scores[i])
        lines += [(query, place + 1, ids[i], scores[i]) for place, i in enumerate(rows[:k])]
    return lines


def lines_of(table):
    return list(zip(*(column.tolist() for column in table.columns.values()), strict=True))


@pytest.mark.parametrize("k", [None, 1, 3, 100])
@pytest.mark.parametrize("kind", ["int", "str", "tuple", "one", "none"])
def test_scores_are_sorted_within_queries_and_ties_by_row(k, kind):
    rng = np.random.default_rng(3)
    for n in (1, 2, 30, 200):
        scores = rng.integers(-2, 3, n).astype(float)
        scores[rng.random(n) < 0.2] *= 1e-300
        numbers = rng.integers(0, 6, n).tolist()
        qid = {
            "int": numbers,
            "str": [f"q{q}" for q in numbers],
            "tuple": [(q, "x") for q in numbers],
            "one": [7] * n,
            "none": None,
        }[kind]
        ids = [f"d{i}" for i in rng.permutation(n)]
        table = RankTable.from_scores(scores, qid=qid, ids=ids, k=k)
        assert lines_of(table) == by_hand(scores.tolist(), qid or [0] * n, ids, k)
        assert len(table) == len(table.to_frame())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_names_in_names_out(frame, model, make):
    expected = by_hand(
        model.predict(frame[["a", "b", "c"]]).tolist(), frame["session"].tolist(),
        frame["doc"].tolist(), 2,
    )  # fmt: skip
    shuffled = make(frame[["title", "c", "doc", "b", "session", "a", "grade"]])
    table = rank(model, shuffled, qid="session", ids="doc", k=2)
    assert lines_of(table) == expected
    by_arrays = rank(model, shuffled, qid=shuffled["session"], ids=shuffled["doc"], k=2)
    assert lines_of(by_arrays) == expected
    assert table.to_frame().columns.tolist() == ["query", "rank", "id", "score"]
    assert repr(table) == f"RankTable({len(expected)} lines; columns query, rank, id, score)"


def test_tables_of_pyarrow(frame, model):
    expected = rank(model, frame, qid="session", ids="doc").to_frame()
    table = pa.Table.from_pandas(frame)
    for data in (table, table.to_batches()[0]):
        found = rank(model, data, qid="session", ids="doc").to_frame()
        pd.testing.assert_frame_equal(found, expected)


def test_the_index_names_rows(frame, model):
    expected = lines_of(rank(model, frame, qid="session", ids="doc"))
    assert lines_of(rank(model, frame.set_index("doc"), qid="session")) == expected
    numbered = rank(model, frame, qid="session")
    assert sorted(numbered.id.tolist()) == list(range(len(frame)))


def test_a_part_of_a_frame_keeps_the_names_of_its_rows():
    """pandas keeps a RangeIndex for slices and for filters of consecutive rows."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"q": np.repeat([0, 1, 2], 5), "f": rng.normal(size=15)})
    model = RankRLS().fit(table[["f"]], np.arange(15) % 3, qid=table["q"])
    whole = rank(model, table, qid="q")
    for part in (table[10:], table[table["q"] == 2], table.iloc[10:15], table[table.index > 9]):
        found = rank(model, part, qid="q")
        assert found.id.tolist() == whole.id[whole.query == 2].tolist()
    odd = rank(model, table[1::2], qid="q")
    assert sorted(odd.id.tolist()) == list(range(1, 15, 2))


def test_auto_ranker_that_was_fitted_without_queries():
    X, y, qid = make_ranking(n_queries=8, random_state=0, return_X_y_qid=True)
    model = AutoRanker(effort="quick", random_state=0).fit(X, y)
    score = model.predict(X)
    assert rank(model, X, k=1).score.tolist() == [score.max()]
    best = [score[qid == query].max() for query in np.unique(qid)]
    assert rank(model, X, qid=qid, k=1).score.tolist() == best


@pytest.mark.parametrize("qid", ["session", None])
def test_series_in_another_order_than_the_rows(frame, model, qid):
    named = frame.set_index(frame["doc"].to_numpy())
    turned = named.iloc[::-1]
    with pytest.raises(ValueError, match=r"the rows of ids have the names .* pass ids\.loc\["):
        rank(model, named, qid=qid, ids=turned["doc"])
    with pytest.raises(ValueError, match=r"the rows of qid have the names .* pass qid\.loc\["):
        rank(model, named, qid=turned["session"], ids="doc")
    with pytest.raises(ValueError, match=r"the rows of ids have the names"):
        rank(model, {"data": named, "qid": "session"}, ids=turned["doc"])
    with pytest.warns(UserWarning, match="the rows of ids have the same labels"):
        rank(model, frame, qid=qid, ids=frame["doc"].iloc[::-1])
    straight = turned["doc"].loc[named.index]
    expected = lines_of(rank(model, frame, qid=qid, ids="doc"))
    assert lines_of(rank(model, named, qid=qid, ids=straight)) == expected


def test_bunches_and_arrays(bunch):
    model = RankRLS().fit(bunch.data, bunch.target, qid=bunch.qid)
    expected = by_hand(model.predict(bunch.data).tolist(), bunch.qid.tolist(), range(10**6))
    assert lines_of(rank(model, bunch)) == expected
    assert lines_of(rank(model, bunch.data, qid=bunch.qid)) == expected
    of_sparse = rank(model, sparse.csr_array(bunch.data), qid=bunch.qid)
    assert of_sparse.id.tolist() == [line[2] for line in expected]
    assert lines_of(rank(model, bunch.data.tolist(), qid=bunch.qid.tolist())) == expected


def test_columns_of_a_bunch_go_by_their_names(bunch, frame, model):
    names = ["c", "a", "b"]
    turned = {"data": bunch.data[:, [2, 0, 1]], "qid": bunch.qid, "feature_names": names}
    straight = pd.DataFrame(bunch.data, columns=["a", "b", "c"])
    expected = rank(model, straight, qid=bunch.qid)
    assert rank(model, turned).id.tolist() == expected.id.tolist()
    np.testing.assert_allclose(rank(model, turned).score, expected.score)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        rank(model, bunch.data, qid=bunch.qid)
    whole = {"data": frame, "qid": "session"}
    with pytest.raises(ValueError, match="qid is None; pass qid='query'"):
        rank(model, {"data": frame.rename(columns={"session": "query"})})
    assert lines_of(rank(model, whole, ids="doc")) == lines_of(
        rank(model, frame, qid="session", ids="doc")
    )


class TakesQueries(BaseEstimator):
    """Scores that depend on the query: how large a feature is compared with the query's mean."""

    def predict(self, X, qid=None):
        values, qid = np.asarray(X)[:, 0], np.asarray(qid)
        means = {q: values[qid == q].mean() for q in dict.fromkeys(qid.tolist())}
        return values / [1 + abs(means[q]) for q in qid.tolist()]


def test_models_that_look_at_queries_are_given_them(frame):
    X, qid = frame[["a", "b", "c"]], frame["session"]
    own = TakesQueries()
    table = rank(own, frame.drop(columns=["grade"]), qid="session", ids="doc")
    assert lines_of(table) == by_hand(
        own.predict(X, qid).tolist(), qid.tolist(), frame["doc"].tolist()
    )
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = RankRLS().set_fit_request(qid=True)
        pipeline = make_pipeline(QueryScaler(), ranker).fit(X, frame["grade"], qid=qid)
        scores = pipeline.predict(X, qid=qid)
    expected = by_hand(scores.tolist(), qid.tolist(), frame["doc"].tolist())
    assert lines_of(rank(pipeline, frame, qid="session", ids="doc")) == expected
    nested = make_pipeline(pipeline)
    assert lines_of(rank(nested, frame, qid="session", ids="doc")) == expected
    # One ranking: its rows are scaled by themselves.
    few = frame[qid == qid[0]].drop(columns="session")
    alone = [line for line in expected if line[0] == qid[0]]
    assert rank(pipeline, few, ids="doc").id.tolist() == [line[2] for line in alone]


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
        GridSearchCV(Ridge(), {"alpha": [1, 2]}, cv=2),
        RankSVM(),
        RankRLSCV(cv=2),
        RankRLS(kernel="rbf", gamma=0.1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_model_with_predict(frame, estimator):
    X = frame[["a", "b", "c"]]
    estimator.fit(X, frame["grade"])
    expected = by_hand(
        estimator.predict(X).tolist(), frame["session"].tolist(), frame["doc"].tolist()
    )
    assert lines_of(rank(estimator, frame, qid="session", ids="doc")) == expected


def test_models_of_texts_take_the_column_of_texts():
    text, qid = ["red shoe", "blue hat", "shoe"] * 4, np.repeat([1, 2, 3, 4], 3)
    model = make_pipeline(TfidfVectorizer(), Ridge()).fit(text, [1.0, 0, 2] * 4)
    rows = pd.DataFrame({"query": qid, "title": text})
    assert rank(model, rows["title"], qid=qid).query.tolist() == qid.tolist()
    with pytest.raises(ValueError, match="a model of texts needs the column of texts as data"):
        rank(model, rows, qid="query")


def test_what_is_wrong_is_said(frame, model, bunch):
    X, plain = frame[["a", "b", "c"]], RankRLS().fit(bunch.data, bunch.target)
    for call, message in (
        (lambda: rank(model, frame, qid="nothing"), "qid='nothing' is not a column of data"),
        (lambda: rank(model, frame, ids="nothing"), "ids='nothing' is not a column of data"),
        (lambda: rank(model, X.drop(columns="a")), "data has no column 'a', which the model was"),
        (lambda: rank(model, frame.rename(columns={"session": "Query"})), "pass qid='Query'"),
        (lambda: rank(model, X.to_numpy(), qid="session"), "data has no column names"),
        (lambda: rank(plain, bunch, ids="docid"), "ids='docid' names a column, but data has no"),
        (lambda: rank(model, {"a": [1]}), "a dict without 'data'"),
        (lambda: rank(model, frame, qid="session", ids=["a"]), "ids has 1 entries for"),
        (lambda: rank(model, pl.from_pandas(frame).lazy(), qid="a"), "pass data.collect"),
        (lambda: rank(model, {**bunch, "feature_names": ["a", "b", "x"]}), "has no column .c."),
        (lambda: RankTable.from_scores([1, np.nan]), "y_score contains NaN"),
        (lambda: RankTable.from_lists([[1]], "q", "d", left_out=[1]), r"left_out has shape \(1,\)"),
        (
            lambda: RankTable.from_lists([[1]], "qr", "d"),
            r"scores has shape \(1, 1\) for 2 queries",
        ),
        (lambda: RankTable.from_scores([1.0, 2.0], ids=[1, np.nan]), "ids is nan at row 1"),
        (
            lambda: RankTable.from_scores([1.0], ids=pd.array([pd.NA], dtype="string")),
            "ids is <NA> at row 0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    two = RankRLS().fit(X, frame[["grade", "grade"]].to_numpy())
    with pytest.raises(ValueError, match=r"scores of shape .*RankTable.from_scores\(scores\[:, j"):
        rank(two, X)
    twice = pd.concat([frame, frame[["session"]]], axis=1)
    with pytest.raises(ValueError, match="is not a column of data, or several of them"):
        rank(model, twice, qid="session")
    twice = pd.concat([frame, frame[["b", "title"]]], axis=1)
    with pytest.raises(ValueError, match="data has several columns called 'b': rename them"):
        rank(model, twice, qid="session")
    assert len(rank(RankRLS().fit(X[["a"]], frame["grade"]), twice, qid="session")) == len(frame)


@pytest.mark.parametrize("kind", ["AutoRanker", "pipeline"])
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.IdColumnWarning")
def test_columns_that_an_encoder_has_dropped_are_not_needed(kind, tmp_path):
    table = make_product_search(n_queries=12, n_products=6, random_state=0).assign(constant=1.0)
    table["product"] = [f"p{i}" for i in range(len(table))]
    X, y, qid = table.drop(columns=["query", "grade"]), table["grade"], table["query"]
    if kind == "AutoRanker":
        model = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
        expected = model.predict(X, qid=qid)
    else:
        model = make_pipeline(TableEncoder(), RankRLS(1.0)).fit(X, y, rankrls__qid=qid)
        expected = model.predict(X)
    few = table.drop(columns=["product", "constant"])
    dates = table.assign(product=pd.Timestamp("2024-01-01"), constant="one")
    few.to_csv(tmp_path / "few.csv", index=False)
    read = load_ranking(tmp_path / "few.csv", target="grade", text="auto", missing="nan")
    for data in (table, few, dates, pl.from_pandas(few)):
        found = rank(model, data, qid="query", ids=np.arange(len(table)))
        np.testing.assert_array_equal(found.score, expected[found.id])
    found = rank(model, read)
    np.testing.assert_array_equal(found.score, expected[found.id])
    with pytest.raises(ValueError, match="data has no column 'price'"):
        rank(model, few.drop(columns="price"), qid="query")


def test_repeated_ids_are_told():
    table = pd.DataFrame({"query": list("qqrr"), "item": list("abaa"), "x": [1.0, 2.0, 3.0, 4.0]})
    ranker = RankRLS().fit(table[["x"]], [0, 1, 2, 3], qid=table["query"])
    with pytest.warns(UserWarning, match="1 row repeats the id of .*, such as 'a' of query 'r'"):
        assert len(rank(ranker, table, qid="query", ids="item").id) == 4
    pairs = table.set_index(["query", "item"])
    with pytest.warns(UserWarning, match=r"1 row repeats the id of .*\('r', 'a'\)"):
        assert rank(ranker, pairs, k=3).id.tolist() == [("r", "a"), ("r", "a"), ("q", "b")]
