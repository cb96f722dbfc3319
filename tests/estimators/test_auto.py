"""AutoRanker: held-out scores against explicit refits, raw tables, choices that are nested."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrls import AutoRanker, PreferenceGraph, RankRLS, streaming
from rankrls.datasets import make_ranking
from rankrls.diagnostics import explain, feature_importances
from rankrls.estimators import auto
from rankrls.exceptions import IdColumnWarning
from rankrls.io import load_model, save_model
from rankrls.metrics import ndcg, pairwise_accuracy
from rankrls.model_selection import QueryKFold, cross_val_predict, cross_val_score

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "basis vectors and folds are drawn among the "
    "rows, so that a weight of 2 and a repeated row are not the same",
    "check_sample_weight_equivalence_on_sparse_data": "as for dense data",
}


@parametrize_with_checks(
    [AutoRanker("pairwise_accuracy", effort="quick", random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def ugly(n_queries=24, seed=0):
    """Real measurements in columns of scales 1e-9 … 1e9, skewed, tied and repeated, in queries."""
    X, y = load_diabetes(return_X_y=True)
    X = X[: 18 * n_queries].copy()
    rng = np.random.default_rng(seed)
    X[:, 2] = np.exp(30 * X[:, 2])
    X[:, 3] = X[:, 3] * 1e-9 + 1.0
    X[:, 4] *= 1e9
    X[:, 5] = np.round(X[:, 5], 1)
    X[5] = X[4]
    grades = np.digitize(y[: len(X)], [90, 140, 200]).astype(float)
    qid = rng.integers(n_queries, size=len(X))
    qid[:2] = [900, 901]  # queries of a single row
    return X, grades, qid


def quick(X, y, qid=None, **options):
    fit = {k: options.pop(k) for k in ("pairs", "magnitude", "sample_weight") if k in options}
    return AutoRanker(**{"effort": "quick", "random_state": 0, **options}).fit(X, y, qid=qid, **fit)


@pytest.fixture
def small(monkeypatch):
    """Change the limits of effort="quick"."""

    def change(effort="quick", **limits):
        monkeypatch.setitem(auto.EFFORTS, effort, replace(auto.EFFORTS[effort], **limits))

    return change


def restored(model, path):
    save_model(model, path / "model.rankrls")
    return load_model(path / "model.rankrls")


def encoded(ranker, X, qid):
    graph = PreferenceGraph.from_scores(np.zeros(len(X)), qid=qid)
    return ranker._rows(ranker._table.transform(X), graph)


def features_of(ranker, X, qid):
    """Each linear member, its features (the basis stays the same), and the qid of its loss."""
    rows = encoded(ranker, X, qid)
    for member, compared in zip(ranker._members, ranker.members_["compared"], strict=False):
        yield member, member.phi(rows), None if compared == auto.ALL_ROWS else qid


def refitted(ranker, X, y, qid):
    """Coefficients of the members, and those of refits to other rows."""
    for member, phi, lists in features_of(ranker, X, qid):
        yield member.estimator.coef_, clone(member.estimator).fit(phi, y, qid=lists).coef_


def held_out(ranker, X, y, qid):
    """Scores of each query by refits without it."""
    total = np.zeros(len(y))
    for member, phi, lists in features_of(ranker, X, qid):
        for query in np.unique(qid):
            rows = qid != query
            refit = clone(member.estimator)
            refit.fit(phi[rows], y[rows], qid=None if lists is None else lists[rows])
            scores = refit.predict(phi[~rows])
            total[~rows] += member.factor * (scores - scores.mean())
    return total


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_held_out_scores_of_members_equal_refits(effort, small):
    X, y, qid = ugly()
    small(effort, n_basis=40, n_trees=20)
    ranker = quick(X, y, qid, effort=effort)
    chosen = len(ranker._members)
    assert (ranker.members_["weight"][:chosen] == 1 / chosen).all()
    assert_allclose(ranker.held_out_scores_, held_out(ranker, X, y, qid), atol=1e-6)


def raw_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    price, shop = np.exp(3 * rng.normal(size=n)), rng.choice(["north", "south", "web"], size=n)
    stock = rng.random(n) < 0.5
    y = np.digitize(-np.log(price) + 2 * (shop == "web") + stock, [-2, 1, 3])
    price[rng.random(n) < 0.1] = np.nan
    frame = pd.DataFrame(
        {
            "price": price,
            "shop": pd.Categorical(shop),
            "stock": stock,
            "title": [f"item{i}" for i in range(n)],
            "doc_id": rng.permutation(n) + 10_000,
            "unit": 1,
        }
    )
    return frame, y, rng.integers(20, size=n)


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas])
def test_raw_tables(kind, tmp_path):
    frame, y, qid = raw_table()
    table = kind(frame)
    with (
        pytest.warns(IdColumnWarning, match="'doc_id' of X: columns that look like ids.*dropped"),
        pytest.warns(IdColumnWarning, match="'title' of X: ids, words with a different value"),
    ):
        ranker = quick(table, y, qid)
    assert ranker.feature_names_in_.tolist() == list(frame.columns)
    assert ranker._table.dropped_ == [3, 4, 5]
    assert ranker.best_score_ > 0.9
    new, labels, queries = raw_table(seed=1)
    new.loc[0, "shop"] = np.nan
    predicted = ranker.predict(kind(new), qid=queries)
    assert pairwise_accuracy(labels, predicted, qid=queries) > 0.85
    loaded = restored(ranker, tmp_path)
    assert_array_equal(loaded.predict(kind(new), qid=queries), predicted)
    assert loaded.members_["view"].tolist() == ranker.members_["view"].tolist()
    with pytest.raises(ValueError, match="feature names"):
        ranker.predict(kind(new.rename(columns={"price": "cost"})), qid=queries)


def shop(n_queries=30, n_products=12, seed=0):
    """A table in which a category, words of the query in the title, and vectors matter."""
    rng = np.random.default_rng(seed)
    n, qid = n_queries * n_products, np.repeat(np.arange(n_queries), n_products)
    colours = np.array(["red", "blue", "green", "black", "white", "pink"])
    things = np.array([f"thing{i}" for i in range(8)])
    asked = [f"{rng.choice(colours)} {rng.choice(things)}" for _ in range(n_queries)]
    colour, thing, brand = rng.choice(colours, n), rng.choice(things, n), rng.integers(9, size=n)
    vector, of_query = rng.normal(size=(n, 4)), rng.normal(size=(n_queries, 4))
    titles = [f"{c} {t} {i}" for i, (c, t) in enumerate(zip(colour, thing, strict=True))]
    found = [sum(w in titles[i].split() for w in asked[q].split()) for i, q in enumerate(qid)]
    worth = 2.0 * np.array(found) + (brand % 3) + 0.7 * (vector * of_query[qid]).sum(axis=1)
    y = np.digitize(worth + 0.3 * rng.normal(size=n), [1, 2.5, 4])
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=n),
            "brand": [f"b{i}" for i in brand],
            "title": titles,
            "query": np.array(asked, dtype=object)[qid],
            "vector": list(vector),
            "query vector": list(of_query[qid]),
        }
    )
    return frame, y, qid


def test_blocks(tmp_path):
    """Each kind of columns improves the held-out score and that of new queries."""
    frame, y, qid = shop()
    new, labels, queries = shop(seed=1)
    found = []
    for columns in (["noise", "brand"], ["title", "query"], ["vector", "query vector"]):
        used = list(frame)[: len(found) * 2] + columns if found else columns
        used = [name for name in frame if name in used]
        ranker = quick(frame[used], y, qid)
        found.append((ranker.best_score_, ranker.score(new[used], labels, qid=queries)))
    assert (np.diff(found, axis=0) > 0.03).all()
    made = dict(zip(ranker.columns_["column"], ranker.columns_["used as"], strict=True))
    assert made["query"] == "query of title"
    assert "query of vector" in made["query vector"]
    assert "compared with query" in made["title"]
    assert made["brand"] == "category"
    assert "category" in ranker.members_["blocks"][0]
    loaded = restored(ranker, tmp_path)
    assert_array_equal(loaded.predict(new, qid=queries), ranker.predict(new, qid=queries))
    given = AutoRanker(effort="quick", random_state=0, query_columns=["query"])
    given.fit(frame.drop(columns=["vector", "query vector"]), y, qid=qid)
    assert given._table.query_columns_ == [3]
    with pytest.raises(ValueError, match="query_columns: 'noise' is not a column of texts"):
        given.set_params(query_columns=["noise"]).fit(frame, y, qid=qid)


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_explain(effort):
    frame, y, qid = shop()
    ranker = AutoRanker(effort=effort, random_state=0).fit(frame, y, qid=qid)
    a, b, others = frame.iloc[:1], frame.iloc[1:2], frame.iloc[2:12]
    found = explain(ranker, frame.iloc[0], b, among=others)
    scores = ranker.predict(frame.iloc[:12], qid=np.zeros(12))
    assert_allclose(found.difference, scores[0] - scores[1])
    assert_allclose(found.contribution.sum(), found.difference)
    shares = dict(zip(found.labels, found.contribution, strict=True))
    assert shares["query"] == shares["query vector"] == 0  # these are the same in both rows
    both = ranker.predict(frame.iloc[:2], qid=[0, 0])
    assert_allclose(explain(ranker, a, b).difference, both[0] - both[1])
    same = explain(ranker, a.assign(brand="b5"), a.assign(brand="b0"), among=others)
    assert same.labels[0] == "brand"
    assert not same.contribution[1:].any()  # and no rounding errors
    assert same.difference > 0
    with pytest.raises(ValueError, match="pass x_b, too"):
        explain(ranker, a)
    with pytest.raises(ValueError, match="x_a must be one row; got 10"):
        explain(ranker, others, b)
    with pytest.raises(ValueError, match="among is for an AutoRanker"):
        explain(ranker._members[0].estimator, a, b, among=others)


def test_feature_importances():
    frame, y, qid = shop()
    ranker = quick(frame, y, qid)
    found = feature_importances(ranker, frame, y, qid=qid)
    worth = dict(zip(found["column"], found["importance"], strict=True))
    assert sorted(worth) == sorted(frame)
    assert (np.diff(found["importance"]) <= 0).all()
    error = dict(zip(found["column"], found["std"], strict=True))
    assert abs(worth["noise"]) < 0.02
    for column in ("brand", "vector", "query vector", "title", "query"):
        assert worth[column] > max(0.01, 2 * error[column])
    blocks = feature_importances(ranker, pl.from_pandas(frame), y, qid=qid, by="block")
    assert set(blocks["block"]) == {"number", "category", "text", "vector"}
    category = blocks["importance"][blocks["block"] == "category"]
    assert_allclose(category, worth["brand"])  # the only category
    # A column of numbers: the held-out scores of the members on rows in which it is constant.
    X, y, qid = ugly()
    ranker = quick(X, y, qid)
    found = feature_importances(ranker, X, y, qid=qid)
    held = held_out(ranker, np.where(np.arange(10) == 8, X.mean(axis=0), X), y, qid)
    lost = ndcg(y, ranker.held_out_scores_, qid=qid, k=10) - ndcg(y, held, qid=qid, k=10)
    assert_allclose(found["importance"][found["column"] == "x8"], lost, atol=1e-9)
    with pytest.raises(ValueError, match="takes an AutoRanker; got a RankRLS"):
        feature_importances(RankRLS(), X, y, qid=qid)


def test_contributions_to_linear_members_are_exact():
    X, y, qid = ugly()
    ranker = quick(X, y, qid)
    ranker._members = [one for one in ranker._members if one.basis is None]
    assert ranker._members
    query = X[qid == qid[5]]
    found = explain(ranker, query[0], query[1], among=query[2:])
    rows = encoded(ranker, query, np.zeros(len(query)))
    expected = np.zeros(X.shape[1])
    for member in ranker._members:
        phi = member.phi(rows)
        terms = member.factor * (phi[0] - phi[1]) * member.estimator.coef_
        np.add.at(expected, np.tile(ranker._columns["number"], len(member.views)), terms)
    assert_allclose(found.contribution, expected[found.index], atol=1e-12)


@pytest.mark.parametrize("n", [60, 300])
def test_one_column_may_be_the_best_ranker(n, small):
    """Of all rows, and of a sample."""
    small(n_rows=60)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 40)), columns=[f"c{j}" for j in range(40)])
    y, qid = -X["c7"].rank().to_numpy(), np.arange(len(X)) // 10
    ranker = quick(X, y, qid, scoring="pairwise_accuracy")
    assert ranker.members_["view"][0] == "c7"
    assert ranker.best_score_ == 1.0
    assert ranker.score(X, y, qid=qid) == 1.0


def test_no_column_alone_has_a_better_held_out_score():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, qid = rng.normal(size=(80, 4)), np.arange(80) // 8
        y = np.digitize(X[:, 0] + 0.7 * rng.normal(size=80), [0, 1])
        ranker = quick(X, y, qid, scoring="pairwise_accuracy")
        held = pairwise_accuracy(y, ranker.held_out_scores_, qid=qid)
        alone = ranker.members_["cost"] == "none"
        assert held > ranker.members_["score"][alone].max() - 1e-9
        found.append(alone[0])
    assert 0 < sum(found) < len(found)


def levels():
    """Columns with equal means, equal rows, and queries that begin with the same row."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.permutation(400) % 8 for name in "abcdef"})
    frame = frame.astype({"c": str, "d": str, "e": str})
    y = (frame["a"] + frame["b"] > 8) + (frame["c"] == "3") * (frame["a"] > 4)
    for columns in (frame, y):
        columns.iloc[200:300] = columns.iloc[:100]
    return frame, y.to_numpy(), np.arange(400) // 10


@pytest.mark.parametrize("data", [ugly, shop, levels])
def test_names_and_orders_do_not_matter(data):
    X, y, qid = data()
    frame = pd.DataFrame(X, columns=list("abcdefghij")) if data is ugly else X
    rng = np.random.default_rng(1)
    order, columns = rng.permutation(len(y)), rng.permutation(list(frame))
    names = rng.permutation(qid.max() + 1)[qid]
    first = quick(frame, y, qid, random_state=3)
    second = quick(frame[columns].iloc[order], y[order], names[order], random_state=3)
    assert_allclose(second.held_out_scores_, first.held_out_scores_[order], atol=1e-7)
    predicted = second.predict(frame[columns], qid=names)
    assert_allclose(predicted, first.predict(frame, qid=qid), atol=1e-7)
    again = quick(frame, y, qid, random_state=3)
    assert_array_equal(again.predict(frame, qid=qid), first.predict(frame, qid=qid))


def test_sparse_features():
    X, y = load_digits(return_X_y=True)
    X, y = sparse.csr_array(X[:600]), (y[:600] % 5).astype(float)
    qid = np.arange(600) // 20
    ranker = quick(X, y, qid)
    dense = AutoRanker(effort="quick", random_state=0).fit(X.toarray(), y, qid=qid)
    assert_allclose(ranker.predict(X, qid=qid), dense.predict(X, qid=qid), atol=1e-9)
    # Zeros are not filled in where there are many columns.
    wide = sparse.hstack([X] + [X.multiply(X) * 0.1**j for j in range(14)], format="csr")
    ranker = AutoRanker(random_state=0).fit(wide, y, qid=qid)
    assert ranker.best_score_ > 0.8
    assert set(ranker.members_["view"]) == {"log"}
    assert_allclose(ranker.predict(wide.tocsc(), qid=qid), ranker.predict(wide, qid=qid), atol=1e-9)


def test_the_sample_has_queries_with_pairs(small):
    X, y, qid = ugly()
    labels = np.where(qid < 12, y, 0.0)
    small(n_rows=150, n_basis=30)
    for seed in range(3):
        ranker = quick(X, labels, qid, random_state=seed)
        compared = np.isfinite(ranker.held_out_scores_)
        assert (qid[compared] < 12).all()


def test_cross_validation_gives_predict_the_queries():
    X, y, qid = ugly(12)
    ranker = AutoRanker(effort="quick", random_state=0)
    scores = cross_val_score(ranker, X, y, qid=qid, cv=3, scoring="ndcg@10")
    assert scores.shape == (3,)
    predicted = cross_val_predict(ranker, X, y, qid=qid, cv=3)
    cut = list(QueryKFold(3).split(X, y, groups=qid))
    train, test = cut[1]
    refit = clone(ranker).fit(X[train], y[train], qid=qid[train])
    assert_allclose(predicted[test], refit.predict(X[test], qid=qid[test]))
    assert_allclose(scores[1], ndcg(y[test], predicted[test], qid=qid[test], k=10))


def test_one_ranking():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:120], y[:120].astype(float)
    ranker = AutoRanker("pairwise_accuracy", random_state=0).fit(X, y)
    assert ranker.best_score_ > 0.95
    assert not any("rank" in view for view in ranker.members_["view"])
    assert ranker.predict(X[:3]).shape == (3,)
    with pytest.raises(ValueError, match="fitted without qid"):
        ranker.predict(X, qid=np.zeros(120))
    weighted = AutoRanker("pairwise_accuracy", effort="quick", random_state=0)
    weighted.fit(X, y, sample_weight=np.where(np.arange(120) % 3, 1.0, 0.5))
    assert weighted.best_score_ > 0.9


def test_sample_weights_of_queries():
    X, y, qid = ugly()
    noise = np.random.default_rng(0).permutation(y)
    bad = qid % 2 == 0
    labels = np.where(bad, noise, y)
    plain = quick(X, labels, qid)
    weights = np.where(bad, 1e-3, 1.0)
    weighted = quick(X, labels, qid, sample_weight=weights)
    assert set(weighted.members_["compared"]) == {"within queries", "none"}
    assert weighted.score(X, y, qid=qid) > plain.score(X, y, qid=qid)
    values = ndcg(labels, weighted.nested_scores_, qid=qid, k=10, average=None)
    known = ~np.isnan(values)
    by_query = np.array([weights[qid == query].mean() for query in np.unique(qid)])
    expected = np.average(values[known], weights=by_query[known])
    assert_allclose(weighted.best_score_, expected)


@pytest.mark.parametrize("with_qid", [True, False])
def test_of_many_rows_a_sample_is_compared_and_all_are_learned_from(with_qid, small, monkeypatch):
    X, y, qid = ugly()
    small(n_rows=150, n_basis=30)
    monkeypatch.setattr(auto, "BATCH", 50)
    queries = {"qid": qid} if with_qid else {}
    ranker = AutoRanker(effort="quick", random_state=0).fit(X, y, **queries)
    assert 0 < ranker.n_compared_ <= 200  # at least ten queries
    assert np.isfinite(ranker.held_out_scores_).sum() == ranker.n_compared_
    for found, expected in refitted(ranker, X, y, qid if with_qid else None):
        assert_allclose(found, expected, atol=1e-6)


def made_up(values, scores, spaces):
    """Candidates with one alpha whose metric in each list is given."""
    values, scores = np.asarray(values, float), np.asarray(scores, float)
    return [
        auto.Candidate(space, None, ("", ""), 1.0, score, value, value)
        for space, value, score in zip(spaces, values, scores, strict=True)
    ]


def lists_of(y, lists):
    graph = PreferenceGraph.from_scores(y, qid=lists)
    return auto.HeldOutLists("pairwise_accuracy", graph, np.random.RandomState(0))


def test_nested_choice_does_not_look_at_the_list_it_scores():
    lists = np.repeat(np.arange(4), 5)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 20))
    # The first candidate is the best on the whole, because of list 0 alone.
    values = [[1.0, 0.2, 0.2, 0.2], [0.0, 0.3, 0.3, 0.3]]
    candidates = made_up(values, scores, spaces=[0, 1])
    made = lists_of(rng.normal(size=20), lists)
    nested = auto.nested_scores(candidates, made, 1, np.random.RandomState(0))

    def spread(one, rows):
        return np.sqrt(np.mean(one[rows] ** 2))

    for held in range(4):
        chosen = scores[1] if held == 0 else scores[0]
        mine, others = lists == held, lists != held
        assert_allclose(nested[mine], chosen[mine] / spread(chosen, others))


def test_trees_have_their_share_of_the_average():
    """All members have the same spread, and so has their average, before it is weighted."""
    rng, lists = np.random.default_rng(0), np.repeat(np.arange(4), 5)
    made = lists_of(y := rng.normal(size=20), lists)
    scores = [10 * rng.normal(size=20), rng.normal(size=20), 3 * y]
    candidates = made_up(np.ones((3, 4)), scores, spaces=[0, 1, "trees"])
    *linear, trees = auto.choose(candidates, made, np.arange(4), 2)
    assert trees.weight in (1 / 3, 1 / 2)
    for part, weight in ((linear, 1 - trees.weight), ([trees], trees.weight)):
        assert_allclose(np.sqrt(np.mean(auto.average(part) ** 2)), weight)


@pytest.fixture(scope="module")
def several():
    """Two labels of which the second depends on a column that the first does not use."""
    frame, y, qid = shop(40)
    margin = np.digitize(frame["noise"] + 0.3 * np.sin(np.arange(len(y))), [-1, 0, 1])
    labels = pd.DataFrame({"grade": y, "margin": 10.0 * margin})
    return (
        frame,
        labels,
        qid,
        quick(frame, labels, qid),
    )


def test_several_labels(several, tmp_path):
    frame, labels, qid, ranker = several
    table = pd.DataFrame(ranker.tradeoffs_)
    assert list(table) == [
        *("weight of grade", "weight of margin", "ndcg@10 of grade", "ndcg@10 of margin"),
    ]
    weights, scores = table.iloc[:, :2].to_numpy(), table.iloc[:, 2:].to_numpy()
    assert_allclose(weights.sum(axis=1), 1)
    assert_allclose(weights[[0, -1]], [[1, 0], [0, 1]])
    assert scores[0, 0] > scores[-1, 0] + 0.1
    assert scores[-1, 1] > scores[0, 1] + 0.1
    assert (scores[5] > scores[[-1, 0], [0, 1]] + 0.05).all()  # a compromise
    for weight, found in zip(weights, scores, strict=True):
        ranked = ranker.nested_scores_ @ weight
        expected = [ndcg(label, ranked, qid=qid, k=10) for _, label in labels.items()]
        assert_allclose(found, expected)
    assert_allclose(ranker.best_score_, (scores[0, 0] + scores[-1, 1]) / 2)
    predicted = ranker.predict(frame, qid=qid)
    assert predicted.shape == ranker.held_out_scores_.shape == (len(frame), 2)
    assert ranker.score(frame, labels, qid=qid) > 0.8
    with pytest.raises(ValueError, match="the model has 2 outputs and explain takes one"):
        explain(ranker, frame[:1], frame[1:2])
    loaded = restored(ranker, tmp_path)
    assert_array_equal(loaded.predict(frame, qid=qid), predicted)
    assert_array_equal(loaded.tradeoffs_["weight of margin"], weights[:, 1])


def test_weighted_sums_of_scores_are_models_of_weighted_labels(several):
    frame, labels, qid, ranker = several
    weights, centred = np.array([0.3, 0.7]), labels - labels.groupby(qid).transform("mean")
    y = (labels / np.sqrt((centred**2).mean())) @ weights
    for found, expected in refitted(ranker, frame, y, qid):
        assert_allclose(weights @ found, expected, atol=1e-9)


@pytest.mark.parametrize("n_rows", [10_000, 80])
def test_given_pairs(n_rows, small, tmp_path):
    """Held-out differences are those of refits without the judgement."""
    small(n_rows=n_rows, n_basis=20)
    frame, y, _ = raw_table(150)
    frame = frame.drop(columns=["title", "doc_id"])
    rng = np.random.default_rng(0)
    pairs = rng.integers(140, size=(120, 2))
    pairs = pairs[y[pairs[:, 0]] != y[pairs[:, 1]]]
    pairs = np.where((y[pairs[:, 0]] > y[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
    magnitude = np.where(np.arange(len(pairs)) % 7, 1.0, 0.0)
    ranker = AutoRanker(effort="quick", random_state=0)
    ranker.fit(frame, pairs=pairs, magnitude=magnitude)
    compared = np.flatnonzero(np.isfinite(ranker.held_out_scores_))
    assert len(compared) == min(len(pairs), n_rows)
    assert set(ranker.members_["compared"]) == {"given pairs", "none"}
    assert ranker.best_score_ > 0.8
    told = ranker.nested_scores_[compared][magnitude[compared] > 0]
    assert_allclose(ranker.best_score_, (told > 0).mean())
    assert ranker.score(frame, pairs=pairs) > 0.85
    phis = [one.phi(encoded(ranker, frame, None)) for one in ranker._members]
    for j in compared[:5]:
        rest, found = np.setdiff1d(compared, [j]), 0.0
        for member, phi in zip(ranker._members, phis, strict=True):
            refit = clone(member.estimator)
            refit.fit(phi, pairs=pairs[rest], magnitude=magnitude[rest])
            found += member.factor * (phi[pairs[j, 0]] - phi[pairs[j, 1]]) @ refit.coef_
        assert_allclose(ranker.held_out_scores_[j], found, atol=1e-7)
    for member, phi in zip(ranker._members, phis, strict=True):  # all pairs are learned from
        refit = clone(member.estimator).fit(phi, pairs=pairs, magnitude=magnitude)
        assert_allclose(member.estimator.coef_, refit.coef_, atol=1e-7)
    loaded = restored(ranker, tmp_path)
    assert_array_equal(loaded.predict(frame), ranker.predict(frame))


@pytest.mark.parametrize(
    "scoring",
    ["average_precision", "concordance_index", lambda y, s, qid: ndcg(y, s, qid=qid, k=3)],
)
def test_scoring(scoring):
    X, y, qid = ugly(10)
    ranker = quick(X, y, qid, scoring=scoring)
    assert 0 < ranker.best_score_ <= 1


def test_errors_leave_the_ranker_as_it_was(tmp_path):
    X, y, qid = ugly(10)
    ranker = AutoRanker(effort="quick", random_state=0)
    with pytest.raises(NotFittedError):
        ranker.predict(X, qid=qid)
    ranker.fit(X, y, qid=qid)
    before = ranker.predict(X, qid=qid)
    cases = [
        ({"qid": qid[:-1]}, X, y, "qid"),
        ({}, X, None, "requires y to be passed"),
        ({"pairs": [[0, 1]]}, X, y, "labels y or from pairs, not from both"),
        ({"pairs": [[0, 1]], "qid": qid}, X, None, "qid belongs to the scores y"),
        ({"qid": qid}, X, np.zeros(len(y)), "no query has a pair"),
        ({"qid": qid}, np.where(X > 1e8, np.inf, X), y, "contains infinity"),
        ({"qid": qid}, np.ones_like(X), y, "no column of X is a usable feature"),
    ]
    for arguments, rows, labels, message in cases:
        with pytest.raises(ValueError, match=message):
            ranker.fit(rows, labels, **arguments)
    with pytest.raises(ValueError, match="pass qid to predict"):
        ranker.predict(X)
    with pytest.raises(ValueError, match="effort must be"):
        AutoRanker(effort="slow").fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="scoring"):
        AutoRanker("ndgc@10", effort="quick").fit(X, y, qid=qid)
    assert_array_equal(ranker.predict(X, qid=qid), before)
    copied = clone(ranker).set_params(scoring=lambda y, s, qid: 1.0).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="scoring"):
        save_model(copied, tmp_path / "model.rankrls")


# ---------------------------------------------------------------------- what it does not do


@pytest.fixture(scope="module")
def rows():
    return make_ranking(n_queries=20, n_features=3, random_state=0, return_X_y_qid=True)


@pytest.fixture(scope="module")
def fitted(rows):
    X, y, qid = rows
    return quick(X, y, qid)


@pytest.mark.parametrize("kind", ["frame", "lazy labels"])
def test_dask_fit(rows, fitted, kind):
    from rankrls import dask

    X, y, qid = rows
    names = [f"query {q}" for q in qid]  # queries lie across partitions
    lazy = da.from_array(X, chunks=(70, -1))
    if kind == "frame":
        lazy = dd.from_pandas(pd.DataFrame(X), npartitions=5)
    elif kind == "lazy labels":
        y, names = da.from_array(y, chunks=70), da.from_array(qid, chunks=70)
    ranker = dask.fit(AutoRanker(effort="quick", random_state=0), lazy, y, qid=names)
    assert_allclose(ranker.predict(X, qid=qid), fitted.predict(X, qid=qid), atol=1e-9)


# ---------------------------------------------------------------------- parts of the rows


@pytest.mark.parametrize(
    "kind", [lambda frame: frame, pl.from_pandas, lambda frame: frame.to_numpy().tolist()]
)
def test_stream_of_tables(kind):
    """Batches that cut queries: the same members as those of all rows at once."""
    frame, y, qid = shop()
    cuts = [slice(i, i + 50) for i in range(0, len(y), 50)]
    batches = [(kind(frame[cut]), y[cut], qid[cut]) for cut in cuts]
    ranker = AutoRanker(effort="quick", random_state=0).fit_stream(batches)
    whole, rows = quick(frame, y, qid), kind(frame)
    assert_allclose(ranker.predict(rows, qid=qid), whole.predict(frame, qid=qid), atol=1e-9)
    with pytest.raises(ValueError, match="reads the batches twice"):
        ranker.fit_stream(iter(batches))
    with pytest.raises(ValueError, match="comes back after its rows had ended"):
        ranker.fit_stream([*batches, batches[0]])
    with pytest.raises(ValueError, match="batch 2: "):
        ranker.fit_stream([batches[0], (batches[1][0], y[:3], qid[50:100])])
    assert_allclose(ranker.predict(rows, qid=qid), whole.predict(frame, qid=qid), atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame[frame.columns[::-1]],
            "the feature names .* must be in the same order",
        ),
        (lambda frame: frame.iloc[:, 1:], "the feature names .* missing"),
        (lambda frame: frame.to_numpy(), "X is a ndarray .* frame or array, of the first"),
    ],
)
def test_batches_of_other_tables(change, message):
    frame, y, qid = shop()
    batches = [(frame, y, qid), (change(frame), y, qid + 100)]
    with pytest.raises(ValueError, match=f"batch 2: {message}"):
        AutoRanker(effort="quick").fit_stream(batches)


@pytest.mark.parametrize("with_qid", [True, False])
@pytest.mark.parametrize("names", [None, [f"c{j}" for j in range(10)]])
def test_stream_of_many_rows(small, with_qid, names):
    """A sample of whole queries is compared, and all rows are learned from."""
    X, y, qid = ugly()
    order = np.argsort(qid, kind="stable")
    X, y, qid = X[order], y[order], qid[order] if with_qid else None
    small(n_rows=150, n_basis=30)

    def batches():
        for i in range(0, len(y), 40):
            cut = slice(i, i + 40)
            batch = {"data": X[cut], "target": y[cut], "qid": None if qid is None else qid[cut]}
            yield {**batch, "feature_names": names}

    ranker = AutoRanker("pairwise_accuracy", effort="quick", random_state=0).fit_stream(batches)
    assert 90 <= len(ranker.held_out_scores_) <= 200
    assert getattr(ranker, "feature_names_in_", np.array(None)).tolist() == names
    table = X if names is None else pd.DataFrame(X, columns=names)
    for found, expected in refitted(ranker, table, y, qid):
        assert_allclose(found, expected, atol=1e-7)


def test_partial_fit(tmp_path):
    X, y, qid = make_ranking(n_queries=60, random_state=0, return_X_y_qid=True)
    labels, old = np.column_stack([y, X[:, 0]]), qid < 40
    for target in (y, labels):
        ranker = AutoRanker("pairwise_accuracy", effort="quick", random_state=0)
        ranker.partial_fit(X[old], target[old], qid=qid[old])  # as fit
        save_model(ranker, tmp_path / "model.rankrls")
        loaded = load_model(tmp_path / "model.rankrls")
        loaded.partial_fit(X[~old], target[~old], qid=qid[~old])
        learned = target if target.ndim == 1 else target / ranker._scale
        for number, (found, expected) in enumerate(refitted(loaded, X, learned, qid)):
            if ranker.members_["compared"][number] != auto.ALL_ROWS:
                assert_allclose(found, expected, atol=1e-8)
        assert loaded.best_score_ == ranker.best_score_
    before = loaded.predict(X, qid=qid)
    for arguments, message in (
        ({"y": labels, "qid": qid}, "query 0 was added before"),
        ({"y": y, "qid": qid + 100}, r"the model has 2 label\(s\), y has 1"),
        ({"y": labels}, "fitted with qid, so these rows must be"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded.partial_fit(X, **arguments)
    assert_array_equal(loaded.predict(X, qid=qid), before)
    with pytest.raises(ValueError, match="AutoRanker cannot forget"):
        streaming.forget(loaded, X, labels, qid=qid)
    loaded._members = [auto.ColumnMember("x0", 0, "rank", 1.0)]
    with pytest.raises(ValueError, match="a single column, which cannot be updated"):
        streaming.partial_fit(loaded, X, labels, qid=qid + 100)
