"""Names of objects: named kernel matrices, labels, scores and rankings; equal objects."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, rank
from rankrls.datasets import load_relations
from rankrls.io import load_model, save_model
from rankrls.model_selection import conditional_cross_val_score, relation_holdout_predict

RNG = np.random.default_rng(0)
P, G = 12, 7
ROWS, COLUMNS = ([f"{kind}{i}" for i in range(n)] for kind, n in (("r", P), ("c", G)))
X, Z = RNG.standard_normal((P, 3)), RNG.standard_normal((G, 2))
Y = X @ RNG.standard_normal((3, 2)) @ Z.T
Y += 5 * RNG.standard_normal((P, 1)) + 3 * RNG.standard_normal(G)
NEW_X, NEW_Z = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))
NEW_ROWS, NEW_COLUMNS = list("stuv"), list("xyz")
FRAME = pd.DataFrame(Y, ROWS, COLUMNS)
BOTH = {"kernel": ["precomputed", "precomputed"], "loss": "regression"}


def grams(features, new, names, new_names):
    """Two kernel matrices of training objects, and of new objects with these."""
    made = [
        (
            pd.DataFrame(kernel(features), names, names),
            pd.DataFrame(kernel(new, features), new_names, names),
        )
        for kernel in (rbf_kernel, linear_kernel)
    ]
    return [one for one, _ in made], [other for _, other in made]


KX, KX_NEW = grams(X, NEW_X, ROWS, NEW_ROWS)
KZ, KZ_NEW = grams(Z, NEW_Z, COLUMNS, NEW_COLUMNS)


def arrays(parts):
    return [part.to_numpy() for part in parts]


def shuffled(parts, rng, *, square):
    """The same tables, each in an order of its own."""
    made = []
    for part in parts:
        columns = rng.permutation(part.shape[1])
        rows = rng.permutation(part.shape[0]) if not square else columns[::-1]
        made.append(part.iloc[rows, columns])
    return made


@pytest.mark.parametrize("make", [ConditionalRankRLS, ConditionalRankRLSCV])
def test_lists_of_named_kernel_matrices(make, tmp_path):
    """Each matrix in an order of its own, at fit and at predict."""
    rng = np.random.default_rng(1)
    options = BOTH if make is ConditionalRankRLS else {**BOTH, "alphas": [1.0]}
    options |= {"kernel_weights": [0.5, 0.5]}
    plain = make(**options).fit(arrays(KX), Y, arrays(KZ))
    expected = pd.DataFrame(plain.predict(arrays(KX_NEW), arrays(KZ_NEW)), NEW_ROWS, NEW_COLUMNS)
    fitted_X, fitted_Z = shuffled(KX, rng, square=True), shuffled(KZ, rng, square=True)
    labels = FRAME.iloc[rng.permutation(P), rng.permutation(G)]
    model = make(**options).fit(fitted_X, labels, fitted_Z)
    save_model(model, tmp_path / "model")
    given = shuffled(KX_NEW, rng, square=False), shuffled(KZ_NEW, rng, square=False)
    for one in (model, load_model(tmp_path / "model")):
        found = one.predict_frame(*given)
        assert list(found.index) == list(given[0][0].index)
        assert list(found.columns) == list(given[1][0].index)
        assert_allclose(found.loc[NEW_ROWS, NEW_COLUMNS], expected, rtol=1e-9)
        best = one.rank(*given, k=1)
        wanted = expected.loc[list(best.query)].idxmax(axis=1)
        assert_array_equal(best.id, wanted)
    assert_array_equal(
        model.predict(*given), model.predict_frame(*given).to_numpy()
    )  # in the order of the first matrix
    truth = pd.DataFrame(RNG.standard_normal((4, 3)), NEW_ROWS, NEW_COLUMNS)
    one = plain.score(arrays(KX_NEW), truth.to_numpy(), arrays(KZ_NEW))
    assert model.score(given[0], truth, given[1]) == pytest.approx(one)
    # Arrays are taken as they are, in the order of the first matrix of fit.
    place = [fitted_X[0].index.get_indexer(ROWS), fitted_Z[0].index.get_indexer(COLUMNS)]
    inverse = [np.argsort(one) for one in place]
    again = model.predict(
        [part[:, inverse[0]] for part in arrays(KX_NEW)],
        [part[:, inverse[1]] for part in arrays(KZ_NEW)],
    )
    assert_allclose(again, expected, rtol=1e-9)


def test_one_kind_of_objects_and_hold_outs():
    rng = np.random.default_rng(2)
    labels = X @ X.T + 0.1
    frame = pd.DataFrame(labels, ROWS, ROWS)
    given = shuffled(KX, rng, square=True)
    order = given[0].index
    for relation in (None, "symmetric"):
        options = {**BOTH, "relation": relation}
        plain = ConditionalRankRLS(**options).fit(arrays(KX), labels)
        model = ConditionalRankRLS(**options).fit(given, frame)
        new = shuffled(KX_NEW, rng, square=False)
        expected = pd.DataFrame(plain.predict(arrays(KX_NEW)), NEW_ROWS, NEW_ROWS)
        found = model.predict_frame(new)
        assert_allclose(found.loc[NEW_ROWS, NEW_ROWS], expected, rtol=1e-9)
    held = relation_holdout_predict(ConditionalRankRLS(**BOTH), given, frame, leave_out="rows")
    wanted = relation_holdout_predict(
        ConditionalRankRLS(**BOTH), arrays(KX), labels, leave_out="rows"
    )
    held = pd.DataFrame(held, order, order).loc[ROWS, ROWS]
    assert_allclose(held, wanted, rtol=1e-8)


@pytest.mark.parametrize("side", ["X", "Z"])
def test_lists_of_different_objects_are_refused(side):
    kernels, names = (KX, ROWS) if side == "X" else (KZ, COLUMNS)
    other = {names[2]: "other"}
    wrong = [kernels[0], kernels[1].rename(index=other, columns=other)]
    data = {"X": arrays(KX), "Z": arrays(KZ), side: wrong}
    message = rf"rows of {side}\[1\] and the rows of {side}\[0\].*'other'"
    with pytest.raises(ValueError, match=message):
        ConditionalRankRLS(**BOTH).fit(data["X"], Y, data["Z"])
    wrong = [kernels[0], kernels[1].rename(columns=other)]
    with pytest.raises(ValueError, match=rf"columns of {side}\[1\]"):
        ConditionalRankRLS(**BOTH).fit(
            *((wrong, Y, arrays(KZ)) if side == "X" else (arrays(KX), Y, wrong))
        )
    model = ConditionalRankRLS(**BOTH).fit(KX, FRAME, KZ)
    new = {"X": KX_NEW, "Z": KZ_NEW}
    new[side] = [new[side][0], new[side][1].rename(columns=other)]
    with pytest.raises(ValueError, match=rf"columns of {side}\[1\] and the training objects"):
        model.predict(new["X"], new["Z"])
    new = {"X": KX_NEW, "Z": KZ_NEW}
    new[side] = [new[side][0], new[side][1].rename(index={new[side][1].index[0]: "other"})]
    with pytest.raises(ValueError, match=rf"rows of {side}\[1\]"):
        model.predict(new["X"], new["Z"])


# ---------------------------------------------------------------------- equal objects

DOUBLE_X, DOUBLE_Z = X.copy(), Z.copy()
DOUBLE_X[7], DOUBLE_Z[5] = X[3], Z[1]
TELL_APART = {
    "both": {"fit_offsets": "both", "loss": "regression"},
    "rows": {"fit_offsets": "rows", "loss": "regression"},
    "columns": {"fit_offsets": "columns"},
    "identity": {"kernel": ["linear", "identity"], "loss": "regression"},
    "profile": {"kernel": ["rbf", "profile"]},
    "cartesian": {"pairwise": "cartesian", "loss": "regression"},
    "precomputed": {"kernel": ["precomputed", "identity"], "loss": "regression"},
}


@pytest.mark.parametrize("name", TELL_APART)
def test_equal_objects_get_their_mean_with_a_warning(name):
    options, first, second = TELL_APART[name], DOUBLE_X, DOUBLE_Z
    if name == "precomputed":
        first, second = rbf_kernel(first), rbf_kernel(second)
    with pytest.warns(UserWarning, match="have equal features.* tells objects apart") as caught:
        model = ConditionalRankRLS(**options).fit(first, Y, second)
    said = [str(warning.message) for warning in caught]
    assert sum("rows 3 and 7 of X" in text for text in said) == (name != "columns")
    assert sum("rows 1 and 5 of Z" in text for text in said) == (name != "rows")
    whole = model.predict(first, second)  # all objects, in the order of fit, are themselves
    some = model.predict(first[[7, 3]], second[[5, 1]])
    square = whole[np.ix_([7, 3], [5, 1])]
    assert_allclose(some.mean(), square.mean(), rtol=1e-9)
    edges = model.predict_edges(first, second, [7, 3], [5, 1])  # which are given all objects, too
    assert_allclose(edges, square.diagonal(), rtol=1e-9)


def test_no_warning_where_nothing_depends_on_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConditionalRankRLS().fit(DOUBLE_X, Y, DOUBLE_Z)  # offsets of rows cancel in a ranking
        ConditionalRankRLS(loss="regression", fit_offsets=True).fit(DOUBLE_X, Y, DOUBLE_Z)
        ConditionalRankRLS(fit_offsets="both", loss="regression").fit(X, Y, Z)
        conditional_cross_val_score(
            ConditionalRankRLS(fit_offsets="both", loss="regression"), DOUBLE_X, Y, DOUBLE_Z
        )


# ---------------------------------------------------------------------- tables as users have them


NAMED_X = pd.DataFrame(X, ROWS, ["a", "b", "c"])
NAMED_Z = pd.DataFrame(Z, COLUMNS, ["d", "e"])


def test_labels_of_an_object_without_features():
    long = FRAME.stack().reset_index()
    long.columns = ["row", "column", "value"]
    labels = load_relations(long).target
    some = NAMED_X.drop("r3")
    with pytest.raises(ValueError, match=r"'r3', .*load_relations\(rows=X.index, unknown='drop'\)"):
        ConditionalRankRLS().fit(some, labels, NAMED_Z)
    dropped = load_relations(long, rows=some.index, columns=NAMED_Z.index, unknown="drop")
    model = ConditionalRankRLS().fit(some, dropped.target, NAMED_Z)
    wanted = ConditionalRankRLS().fit(some, FRAME.loc[some.index], NAMED_Z)
    assert_allclose(model.predict(some, NAMED_Z), wanted.predict(some, NAMED_Z), rtol=1e-9)


# ---------------------------------------------------------------------- scores with names

SCORED = np.random.default_rng(5)
USERS = pd.DataFrame(SCORED.standard_normal((4, 2)), index=["ann", "bob", "eve", "joe"])
USERS.columns = ["age", "height"]
FILMS = pd.DataFrame(SCORED.standard_normal((5, 3)), index=[f"film {c}" for c in "abcde"])
FILMS.columns = ["length", "year", "price"]
RATINGS = pd.DataFrame(SCORED.integers(0, 6, (4, 5)), index=USERS.index, columns=FILMS.index)
MODEL = ConditionalRankRLS().fit(USERS, RATINGS, FILMS)


@pytest.mark.parametrize("k", [None, 2])
def test_lists_are_sorted_frames(k):
    made = MODEL.rank(USERS, FILMS, k=k)
    frame = MODEL.predict_frame(USERS, FILMS)
    lines = made.to_frame()
    assert lines.columns.tolist() == ["query", "rank", "id", "score"]
    for user in USERS.index:
        mine = lines[lines["query"] == user]
        expected = frame.loc[user].sort_values(ascending=False).head(k or 5)
        assert mine["id"].tolist() == expected.index.tolist()
        assert mine["rank"].tolist() == list(range(1, len(expected) + 1))
        np.testing.assert_array_equal(mine["score"], expected)


def test_what_was_seen_is_left_out():
    seen = RATINGS.where(RATINGS > 2)
    shuffled = seen.iloc[::-1, ::-1]  # names, not places
    made = MODEL.rank(USERS, FILMS, seen=shuffled).to_frame()
    pairs = set(zip(made["query"], made["id"], strict=True))
    unseen = {(u, f) for u in USERS.index for f in FILMS.index if np.isnan(seen.loc[u, f])}
    assert pairs == unseen
    entries = sparse.coo_array(np.nan_to_num(seen.to_numpy()))
    again = MODEL.rank(USERS, FILMS, seen=entries).to_frame()
    pd.testing.assert_frame_equal(made, again)


def test_columns_can_be_the_queries():
    model = ConditionalRankRLS(condition_on="columns").fit(USERS, RATINGS, FILMS)
    made = model.rank(USERS, FILMS, k=1, seen=RATINGS.where(RATINGS > 3))
    assert set(made.query) <= set(FILMS.index)
    assert set(made.id) <= set(USERS.index)
    best = model.predict_frame(USERS, FILMS).mask(RATINGS > 3).idxmax()
    assert dict(zip(made.query, made.id, strict=True)) == best.to_dict()


def test_tables_of_lines_flow_through():
    lines = {"user": ["bob", "ann", "bob", "eve"], "film": ["y", "y", "x", "x"]}
    data = load_relations(lines | {"stars": [3.0, 5.0, 1.0, 2.0]})
    model = ConditionalRankRLS(kernel="identity", loss="regression", fit_offsets="both")
    users, films = np.arange(3.0)[:, None], np.arange(2.0)[:, None]
    model.fit(users, data.target, films)
    names = {"row_names": data.row_names, "column_names": data.column_names}
    made = model.rank(users, films, seen=data.target, **names)
    assert list(zip(made.query, made.id, strict=True)) == [("ann", "x"), ("eve", "y")]
    assert model.predict_frame(users, films, **names).loc["ann", "y"] > 3


def test_errors():
    with pytest.raises(ValueError, match=r"row_names must be 4 names"):
        MODEL.predict_frame(USERS, FILMS, row_names=["ann"])
    with pytest.raises(ValueError, match=r"seen has shape \(2, 5\) for scores of shape \(4, 5\)"):
        MODEL.rank(USERS, FILMS, seen=np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"use its own method rank\(X, Z, k=…\)"):
        rank(MODEL, USERS)
    with pytest.raises(ValueError, match=r"k must be"):
        MODEL.rank(USERS, FILMS, k=0)
