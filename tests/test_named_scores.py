"""Scores and rankings of relations with the names of their objects."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from rankrls import ConditionalRankRLS, rank
from rankrls.datasets import load_relations

RNG = np.random.default_rng(5)
USERS = pd.DataFrame(RNG.standard_normal((4, 2)), index=["ann", "bob", "eve", "joe"])
USERS.columns = ["age", "height"]
FILMS = pd.DataFrame(RNG.standard_normal((5, 3)), index=[f"film {c}" for c in "abcde"])
FILMS.columns = ["length", "year", "price"]
RATINGS = pd.DataFrame(RNG.integers(0, 6, (4, 5)), index=USERS.index, columns=FILMS.index)
MODEL = ConditionalRankRLS().fit(USERS, RATINGS, FILMS)


def test_a_frame_of_scores_has_the_names():
    frame = MODEL.predict_frame(USERS.iloc[::-1], FILMS)
    assert frame.index.tolist() == ["joe", "eve", "bob", "ann"]
    assert frame.columns.tolist() == FILMS.index.tolist()
    scores = MODEL.predict(USERS, FILMS)
    assert type(scores) is np.ndarray
    np.testing.assert_allclose(frame.loc[USERS.index].to_numpy(), scores, rtol=1e-12, atol=1e-14)
    plain = ConditionalRankRLS().fit(USERS.to_numpy(), RATINGS.to_numpy(), FILMS.to_numpy())
    unnamed = plain.predict_frame(USERS.to_numpy(), FILMS.to_numpy())
    assert unnamed.columns.tolist() == list(range(5))
    named = plain.predict_frame(USERS.to_numpy(), FILMS.to_numpy(), row_names=USERS.index)
    assert named.index.tolist() == USERS.index.tolist()


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


def test_objects_of_one_kind():
    players = pd.DataFrame(RNG.standard_normal((4, 3)), index=list("pqrs"), columns=list("xyz"))
    won = pd.DataFrame(RNG.standard_normal((4, 4)), index=list("pqrs"), columns=list("pqrs"))
    model = ConditionalRankRLS(relation="reciprocal").fit(players, won - won.to_numpy().T)
    frame = model.predict_frame(players)
    assert frame.index.tolist() == frame.columns.tolist() == list("pqrs")
    np.testing.assert_allclose(frame, -frame.T, atol=1e-12)


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
