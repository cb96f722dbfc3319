"""Names of rows and columns: the same in another order are put in order or refused."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rankrls import (
    AutoRanker,
    ConditionalRankRLS,
    ConditionalRankRLSCV,
    GreedyRankRLS,
    PreferenceGraph,
    RankRLS,
    RankRLSCV,
    RankSVM,
)
from rankrls.datasets import make_ranking
from rankrls.io import load_model, save_model
from rankrls.metrics import compare_rankers, conditional_scores, ndcg, pairwise_error
from rankrls.model_selection import (
    leave_query_out_predict,
    relation_holdout_predict,
)
from rankrls.preprocessing import QueryScaler

rng = np.random.default_rng(0)
P, G = 12, 9
USERS = pd.Index([f"u{i}" for i in range(P)])
ITEMS = pd.Index([f"i{j}" for j in range(G)])
X = pd.DataFrame(rng.standard_normal((P, 3)), index=USERS, columns=["a", "b", "c"])
Z = pd.DataFrame(rng.standard_normal((G, 2)), index=ITEMS, columns=["d", "e"])
Y = pd.DataFrame(rng.standard_normal((P, G)), index=USERS, columns=ITEMS)
SQUARE = pd.DataFrame(rng.standard_normal((P, P)), index=USERS, columns=USERS)
K = pd.DataFrame(X.to_numpy() @ X.to_numpy().T + np.eye(P), index=USERS, columns=USERS)
L = pd.DataFrame(Z.to_numpy() @ Z.to_numpy().T + np.eye(G), index=ITEMS, columns=ITEMS)
MIXED = Y.sample(frac=1, random_state=0).sample(frac=1, axis=1, random_state=1)
MIXED_SQUARE = SQUARE.sample(frac=1, random_state=0).sample(frac=1, axis=1, random_state=1)


def mixed(frame, axis):
    return frame.sample(frac=1, random_state=3, axis=axis)


# ---------------------------------------------------------------------- relations


def test_labels_are_put_in_the_order_of_the_objects():
    expected = ConditionalRankRLS().fit(X.to_numpy(), Y.to_numpy(), Z.to_numpy())
    ranker = ConditionalRankRLS().fit(X, MIXED, Z)
    assert_allclose(ranker.dual_coef_, expected.dual_coef_)
    assert_allclose(ranker.predict(X, Z), expected.predict(X.to_numpy(), Z.to_numpy()))
    assert_allclose(ranker.score(X, MIXED, Z), expected.score(X.to_numpy(), Y, Z.to_numpy()))
    # Predictions are in the order of what is predicted.
    rows, cols = X.index[::-1], Z.index[::-1]
    assert_allclose(ranker.predict(X.loc[rows], Z.loc[cols]), ranker.predict(X, Z)[::-1, ::-1])
    assert_allclose(ranker.score(X.loc[rows], Y, Z), ranker.score(X, Y, Z))
    scores = Y + rng.standard_normal(Y.shape)
    by_row = conditional_scores(Y, scores.to_numpy())
    assert_allclose(conditional_scores(Y, scores.loc[MIXED.index, MIXED.columns]), by_row)


def test_labels_between_objects_of_one_kind():
    expected = ConditionalRankRLS().fit(X.to_numpy(), SQUARE.to_numpy()).dual_coef_
    assert_allclose(ConditionalRankRLS().fit(X, MIXED_SQUARE).dual_coef_, expected)
    # The rows of Y name the objects if X does not.
    unnamed = ConditionalRankRLS().fit(X.to_numpy(), mixed(SQUARE, 1)).dual_coef_
    assert_allclose(unnamed, expected)
    numbered = X.reset_index(drop=True)
    assert_allclose(ConditionalRankRLS().fit(numbered, mixed(SQUARE, 1)).dual_coef_, expected)


@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("kernels", [(K, L), (mixed(K, 1), mixed(L, 1))])
def test_precomputed_kernels_and_labels(kernels, condition_on):
    make = {"kernel": "precomputed", "condition_on": condition_on}
    expected = ConditionalRankRLS(**make).fit(K.to_numpy(), Y.to_numpy(), L.to_numpy())
    ranker = ConditionalRankRLS(**make).fit(kernels[0], MIXED, kernels[1])
    assert_allclose(ranker.dual_coef_, expected.dual_coef_)
    new = ranker.predict(mixed(K, 1).iloc[:2], mixed(L, 1))
    assert_allclose(new, expected.predict(K.to_numpy()[:2], L.to_numpy()))
    assert_allclose(
        ranker.score(mixed(K, 1), MIXED, L), expected.score(K.to_numpy(), Y, L.to_numpy())
    )
    chosen = ConditionalRankRLSCV([1.0], **make).fit(kernels[0], MIXED, kernels[1])
    assert_allclose(chosen.dual_coef_, expected.dual_coef_)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ConditionalRankRLS().fit(X.rename({"u3": "u99"}), Y, Z),
            "rows of Y and the rows of X have different names: 'u3' only among the rows of Y, "
            "'u99' only among the rows of X",
        ),
        (
            lambda: ConditionalRankRLS().fit(X, Y, Z.iloc[2:]),
            "columns of Y and the rows of Z have different names: 'i0', 'i1' only among the col",
        ),
        (
            lambda: ConditionalRankRLS().fit(X.rename({"u3": "u4"}), Y, Z),
            "'u4' more than once among the rows of X",
        ),
        (
            lambda: ConditionalRankRLS(kernel="precomputed").fit(
                K.rename(columns={"u0": "v0"}), SQUARE
            ),
            "columns of X and the rows of X have different names: 'v0' only .*'u0' only",
        ),
        (
            lambda: ConditionalRankRLS().fit(X, Y, Z).predict(X, Z[["e", "d"]]),
            "feature names of Z should match.*must be in the same order",
        ),
        (lambda: relation_holdout_predict(ConditionalRankRLS(), X, Y.rename({"u0": 0}), Z), "'u0'"),
        (lambda: conditional_scores(Y, Y.rename({"u0": "x"})), "'x' only among the rows of Y_sc"),
    ],
)
def test_different_names_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_row_numbers_are_no_names():
    """A frame made of an array, such as scaled features, has row numbers whatever it describes."""
    numbers = rng.permutation(P)
    expected = ConditionalRankRLS().fit(X.to_numpy(), Y.to_numpy(), Z.to_numpy()).dual_coef_
    scaled = pd.DataFrame(X.to_numpy())
    with pytest.warns(UserWarning, match="in another order"):
        ranker = ConditionalRankRLS().fit(scaled, Y.set_axis(numbers), Z)
    assert_allclose(ranker.dual_coef_, expected)
    gram = pd.DataFrame(K.to_numpy(), index=numbers)
    with pytest.warns(UserWarning, match="in another order"):
        ranker = ConditionalRankRLS(kernel="precomputed").fit(gram, Y.to_numpy(), L)
    arrays = ConditionalRankRLS(kernel="precomputed").fit(K.to_numpy(), Y.to_numpy(), L.to_numpy())
    assert_allclose(ranker.dual_coef_, arrays.dual_coef_)
    scores = pd.DataFrame(Y.to_numpy())
    with pytest.warns(UserWarning, match="in another order"):
        assert_allclose(conditional_scores(Y.set_axis(numbers), scores), 1.0)
    # Between objects of one kind the rows of Y name them, and its columns follow.
    square = pd.DataFrame(SQUARE.to_numpy(), index=numbers, columns=numbers)
    expected = ConditionalRankRLS().fit(X.to_numpy(), SQUARE.to_numpy()).dual_coef_
    with pytest.warns(UserWarning, match="in another order"):
        ranker = ConditionalRankRLS().fit(scaled, mixed(square, 1))
    assert_allclose(ranker.dual_coef_, expected)


# ---------------------------------------------------------------------- rows of rankers

data, target, query = make_ranking(n_queries=8, random_state=0, return_X_y_qid=True)
DOCS = pd.Index([f"d{i}" for i in range(len(data))])
ROWS = pd.DataFrame(data, index=DOCS).rename(columns=lambda j: f"f{j}")
SCORES, QID = pd.Series(target, index=DOCS), pd.Series(query, index=DOCS)
WEIGHT = pd.Series(1.0, index=DOCS)


@pytest.mark.parametrize("estimator", [RankRLS(), RankRLSCV([1.0]), RankSVM(), GreedyRankRLS(2)])
@pytest.mark.parametrize("name", ["y", "qid", "sample_weight"])
def test_rows_in_another_order_are_refused(estimator, name):
    arguments = {"y": SCORES, "qid": QID, "sample_weight": WEIGHT}
    estimator.fit(ROWS, **arguments)
    arguments[name] = arguments[name][::-1]
    message = rf"the rows of {name} have the names .* in another order .*{name}.loc\[X.index\]"
    with pytest.raises(ValueError, match=message):
        estimator.fit(ROWS, **arguments)
    if hasattr(estimator, "score"):
        with pytest.raises(ValueError, match=message):
            estimator.score(ROWS, **arguments)
    if name != "y":
        with pytest.raises(ValueError, match=rf"{name}.loc\[y.index\]"):
            estimator.fit(data, **arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda y: RankRLS().partial_fit(ROWS, y, qid=QID),
        lambda y: RankRLS().fit_stream([(ROWS, y, QID)]),
        lambda y: RankRLS(solver="cg", early_stopping=True).fit(
            ROWS, SCORES, qid=QID, eval_set=(ROWS, y, QID)
        ),
        lambda y: PreferenceGraph.from_scores(y, qid=QID),
        lambda y: leave_query_out_predict(RankRLS(), ROWS, y, qid=QID),
        lambda y: pairwise_error(y, SCORES, qid=query),
        lambda y: ndcg(target, y, qid=QID),
        lambda y: compare_rankers(SCORES, SCORES, y, qid=QID),
        lambda y: QueryScaler().fit_transform(ROWS, qid=y),
    ],
)
def test_rows_in_another_order_are_refused_everywhere(call):
    call(SCORES)
    with pytest.raises(ValueError, match="in another order"):
        call(SCORES[::-1])


@pytest.mark.parametrize(
    "estimator", [RankRLS(kernel="precomputed"), RankSVM(kernel="precomputed")]
)
@pytest.mark.parametrize("names", [DOCS, np.arange(len(data)) * 3 + 1])
def test_columns_of_a_kernel_matrix(estimator, names, tmp_path):
    gram = pd.DataFrame(data @ data.T, index=names, columns=names)
    expected = estimator.fit(gram.to_numpy(), target, qid=query).predict(gram.to_numpy()[:5])
    estimator.fit(gram, target, qid=query)
    save_model(estimator, tmp_path / "model.rankrls")
    for model in (estimator, load_model(tmp_path / "model.rankrls")):
        assert_allclose(model.predict(gram.iloc[:5]), expected, rtol=1e-6)
        with pytest.raises(ValueError, match="order"):
            model.predict(gram.iloc[:5, ::-1])
        with pytest.raises(ValueError, match=r"different names|should match"):
            model.predict(gram.iloc[:5].rename(columns={names[0]: names[0] * 2}))
    with pytest.raises(ValueError, match=r"in another order .*: pass X\[X.index\]"):
        estimator.fit(mixed(gram, 1), target, qid=query)
    estimator.fit(mixed(gram, 1)[names], target, qid=query)
    with pytest.raises(ValueError, match="columns of X and the rows of X have different names"):
        estimator.fit(gram.rename(columns={names[0]: names[0] * 2}), target)


# ---------------------------------------------------------------- names of features in streams


def batches(names, size=30):
    """Mappings with arrays and names, as readers of files give them."""
    for start in range(0, len(data), size):
        part = slice(start, start + size)
        yield {
            "data": data[part],
            "target": target[part],
            "qid": query[part],
            "feature_names": list(names),
        }


def test_streams_keep_the_names_of_features(tmp_path):
    names = list(ROWS.columns)
    ranker = RankRLS().fit_stream(batches(names))
    assert_array_equal(ranker.feature_names_in_, names)
    expected = RankRLS().fit(data, target, qid=query).predict(data)
    save_model(ranker, tmp_path / "model.rankrls")
    for model in (ranker, load_model(tmp_path / "model.rankrls")):
        assert_allclose(model.predict(ROWS), expected)
        assert_allclose(model.predict(data), expected)  # no warning: batches are arrays, too
        for frame in (ROWS[names[::-1]], ROWS.rename(columns={names[0]: "other"})):
            with pytest.raises(ValueError, match="feature names should match"):
                model.predict(frame)
    with pytest.raises(ValueError, match="names should match"):
        ranker.partial_fit(ROWS[names[::-1]], SCORES, qid=[f"new {q}" for q in query])
    more = [f"new {q}" for q in query]
    ranker.partial_fit(ROWS, SCORES, qid=more).forget(data, target, qid=more)
    assert_allclose(ranker.predict(ROWS), expected)
    # A fit to arrays forgets them.
    assert not hasattr(ranker.fit(data, target, qid=query), "feature_names_in_")
    assert not hasattr(RankRLS().fit_stream(batches(names)).fit_stream([(data, target, query)]),
                       "feature_names_in_")  # fmt: skip


def test_batches_with_other_names_are_refused():
    names = list(ROWS.columns)
    mixed_up = [*batches(names), *batches(names[::-1])]
    with pytest.raises(ValueError, match=r"batch 7: the feature names of this batch .*same order"):
        RankRLS().fit_stream(mixed_up)
    renamed = [*batches(names), *batches(["new", *names[1:]])]
    with pytest.raises(ValueError, match=r"batch 7: .*'new' unseen before, 'f0' missing"):
        RankRLS().fit_stream(renamed)
    with pytest.raises(ValueError, match="batch 1: feature_names has 2 entries for 20 columns"):
        RankRLS().fit_stream(batches(names[:2]))
    parts = [(ROWS[:40], SCORES[:40], QID[:40]), (ROWS[40:][names[::-1]], SCORES[40:], QID[40:])]
    with pytest.raises(ValueError, match="batch 2: The feature names should match"):
        RankRLS().fit_stream(parts)
    assert_array_equal(RankRLS().fit_stream(parts[:1]).feature_names_in_, names)
    basis = RankRLS(kernel="rbf", solver="nystroem").fit_stream(batches(names), basis_rows=data[:9])
    assert_array_equal(basis.feature_names_in_, names)


def test_names_of_frames_of_other_libraries():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(data, schema=list(ROWS.columns))
    for ranker in (RankRLS(), RankRLSCV([1.0]), RankSVM(), GreedyRankRLS(2)):
        ranker.fit(frame, target, qid=query)
        assert_array_equal(ranker.feature_names_in_, ROWS.columns)
        use = ranker.transform if hasattr(ranker, "transform") else ranker.predict
        assert_allclose(use(frame), use(ROWS))
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            use(frame.select(frame.columns[::-1]))


def test_names_that_scikit_learn_does_not_read(monkeypatch):
    """scikit-learn before 1.9 and polars 2: names would be neither stored nor compared."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(data, schema=list(ROWS.columns))
    monkeypatch.delattr(polars.DataFrame, "__dataframe__", raising=False)
    monkeypatch.setattr("sklearn.__version__", "1.8.0")
    for ranker in (RankRLS(), RankRLSCV([1.0]), RankSVM(), GreedyRankRLS(2), QueryScaler()):
        with pytest.raises(ValueError, match=r"X is a polars DataFrame.* 1\.8\.0 .*X\.to_pandas"):
            ranker.fit(frame, target)
    ranker = RankRLS().fit(frame.to_numpy(), target)
    with pytest.raises(ValueError, match=r"install scikit-learn 1\.9"):
        ranker.predict(frame)
    for version in ("1.10.0", "1.9.dev0"):
        monkeypatch.setattr("sklearn.__version__", version)
        RankRLS().fit(frame.to_pandas(), target)


def test_columns_of_the_same_name_are_refused():
    twice = X[["a", "b", "a"]]
    y, qid = np.arange(P) % 3, np.arange(P) // 4
    unnamed = RankRLS().fit(X.to_numpy(), y, qid=qid)
    for call in (
        lambda: RankRLS().fit(twice, y, qid=qid),
        lambda: RankRLS().partial_fit(twice, y, qid=qid),
        lambda: RankSVM().fit(twice, y, qid=qid),
        lambda: GreedyRankRLS(1).fit(twice, y, qid=qid),
        lambda: AutoRanker().fit(twice, y, qid=qid),
        lambda: ConditionalRankRLS().fit(twice, SQUARE.to_numpy()),
        lambda: QueryScaler().fit_transform(twice, qid=qid),
        lambda: unnamed.predict(twice),
    ):
        with pytest.raises(ValueError, match="X has several columns called 'a': rename them, or"):
            call()


def test_a_default_index_beside_its_labels_in_another_order_is_a_warning():
    """The frame may be made of an array, or the series shuffled: nobody can tell."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=list("abc"))
    for shuffled in (X.a.sort_values(), X.a[::-1]):
        with pytest.warns(UserWarning, match=r"the rows of y have the same labels .* pass y.loc"):
            RankRLS().fit(X, shuffled)
        with pytest.warns(UserWarning, match="in another order"):
            pairwise_error(X.a, shuffled)
    RankRLS().fit(X, X.a)
    RankRLS().fit(X[:20], X.a[5:25])  # other labels: taken by position, as scikit-learn does
    RankRLS().fit(X.to_numpy(), X.a.sort_values())
    Z = pd.DataFrame(rng.normal(size=(12, 3)), columns=list("abc"))
    Y = pd.DataFrame(X.to_numpy() @ Z.to_numpy().T)
    with pytest.warns(UserWarning, match="the rows of Y have the same labels"):
        ConditionalRankRLS().fit(X, Y.sample(frac=1, random_state=0), Z)
