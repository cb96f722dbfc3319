"""Leaderboards: against logistic regression, coverage by simulation, and what is refused."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from rankrls import leaderboard
from rankrls.cli import main
from rankrls.datasets import load_preferences
from rankrls.report import write_leaderboard


def battles(n=8, m=600, seed=0, judges=0, length=0.0, taste=0.7):
    """An arena table, and the true ratings by name."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=n)
    f -= f.mean()
    h = rng.integers(n, size=m)
    j = (h + rng.integers(1, n, size=m)) % n
    d, c = f[h] - f[j], rng.normal(size=m) * 100
    judge = rng.integers(max(judges, 1), size=m)
    if judges:
        own = rng.normal(size=(judges, n)) * taste
        d = d + own[judge, h] - own[judge, j]
    won = rng.random(m) < 1 / (1 + np.exp(-(d + length * c)))
    outcome = np.where(won, "model_a", "model_b").astype(object)
    outcome[rng.random(m) < 0.1] = "tie"
    names = np.array([f"m{i}" for i in range(n)])
    table = {"model_a": names[h], "model_b": names[j], "winner": outcome, "length": c}
    if judges:
        table["judge"] = judge
    return table, dict(zip(names, f, strict=True))


def test_ratings_and_controls_are_those_of_logistic_regression():
    table, truth = battles(length=0.01)
    board = leaderboard(table, controls=["length", "position"], random_state=0)
    h, j = (np.array([int(name[1:]) for name in table[key]]) for key in ("model_a", "model_b"))
    m, n = len(h), len(truth)
    D = np.zeros((m, n + 2))
    D[np.arange(m), h], D[np.arange(m), j] = 1, -1
    D[:, n], D[:, n + 1] = table["length"] / 100, 1
    won, lost = table["winner"] != "model_b", table["winner"] != "model_a"
    weight = np.where(table["winner"] == "tie", 0.5, 1.0)  # a tie is half a win each way
    rows = np.vstack([D[won], D[lost]])
    labels = np.repeat([1, 0], [won.sum(), lost.sum()])
    logistic = LogisticRegression(C=1e10, fit_intercept=False, tol=1e-12, max_iter=10_000)
    logistic.fit(rows, labels, sample_weight=np.concatenate([weight[won], weight[lost]]))
    coef = logistic.coef_[0]
    expected = coef[:n] - coef[:n].mean()
    found = dict(zip(board.items_, board.ratings_, strict=True))
    np.testing.assert_allclose([found[f"m{i}"] for i in range(n)], expected, atol=1e-6)
    np.testing.assert_allclose(board.controls_["effect"], coef[n:] / [100, 1], atol=1e-6)
    p = board.probability("m0", "m1")
    assert p == pytest.approx(1 / (1 + np.exp(expected[1] - expected[0])), abs=1e-6)


def test_the_table():
    table, _ = battles(judges=30)
    board = leaderboard(table, random_state=0)
    frame = board.to_frame()
    assert frame.columns.tolist() == [
        *("item", "rating", "std", "low", "high", "rank", "rank_low", "rank_high"),
        *("tied_group", "n_judgements", "win_rate", "p_best"),
    ]
    assert (np.diff(frame.rating) <= 0).all()
    assert (frame.rank_low <= frame["rank"]).all()
    assert (frame["rank"] <= frame.rank_high).all()
    assert frame.p_best.sum() == pytest.approx(1)
    assert frame.n_judgements.sum() == 2 * 600
    assert frame.tied_group.iloc[0] == 1
    assert (np.diff(frame.tied_group) >= 0).all()
    elo = board.to_frame(scale="elo")
    np.testing.assert_allclose(elo.rating, 1000 + 400 / np.log(10) * frame.rating)
    wins, counts = board.head_to_head()
    np.testing.assert_allclose(wins.sum(axis=1) / counts.sum(axis=1), frame.win_rate)
    assert "m" in repr(board)
    assert len(board.suggest_pairs(3)) == 3
    with pytest.raises(ValueError, match="not an item"):
        board.probability("m0", "unknown")


def test_a_bunch_weights_and_repeated_rows():
    table, _ = battles(m=200)
    table["votes"] = np.random.default_rng(1).integers(1, 4, size=200)
    weighted = leaderboard(table, pair_weight="votes", random_state=0)
    repeated = {k: np.repeat(v, table["votes"]) for k, v in table.items() if k != "votes"}
    again = leaderboard(load_preferences(repeated), random_state=0)
    np.testing.assert_allclose(again.ratings_, weighted.ratings_, atol=1e-7)
    for unit in (1e-9, 1e9):
        other = leaderboard(table | {"votes": unit * table["votes"]}, pair_weight="votes")
        for name in ("ratings_", "covariance_"):
            np.testing.assert_allclose(getattr(other, name), getattr(weighted, name), rtol=1e-6)
    with pytest.raises(ValueError, match="already read"):
        leaderboard(load_preferences(table), controls="length")


@pytest.mark.filterwarnings("ignore:.*won or lost all")
@pytest.mark.parametrize(
    ("n", "m", "clusters", "unbalanced", "ties"),
    [
        (20, 1200, 0, True, 0.0),
        (8, 1200, 50, False, 0.0),
        (20, 800, 0, False, 0.5),
    ],
)
def test_intervals_and_sets_of_ranks_cover(n, m, clusters, unbalanced, ties):
    rng = np.random.default_rng(2)
    f = rng.normal(size=n) * 0.8
    f -= f.mean()
    rank = np.argsort(np.argsort(-f)) + 1
    taste = 0.7
    # Ratings of the average judge: normal noise flattens the logistic curve.
    target = f / np.sqrt(1 + np.pi / 8 * 2 * taste**2) if clusters else f
    covered, whole = [], []
    for _ in range(80):
        share = rng.dirichlet(np.full(n, 3.0)) if unbalanced else np.full(n, 1 / n)
        h, j = rng.choice(n, size=(2, m), p=share)
        h, j = h[h != j], j[h != j]
        d, group = f[h] - f[j], None
        if clusters:
            group = rng.integers(clusters, size=len(h))
            own = rng.normal(size=(clusters, n)) * taste
            d = d + own[group, h] - own[group, j]
        p = 1 / (1 + np.exp(-d))
        won = rng.random(len(h)) < p
        # A tie takes as much of a win as of a defeat, so that it moves no rating.
        tie = rng.random(len(h)) * np.where(won, p, 1 - p) < ties * np.minimum(p, 1 - p)
        pairs = np.where(won[:, None], np.column_stack([h, j]), np.column_stack([j, h]))
        data = Bunch(
            pairs=pairs,
            magnitude=np.where(tie, 0.0, 1.0),
            pair_weight=None,
            groups=group,
            pair_features=None,
            position=None,
            item_names=np.arange(n),
            columns={},
        )
        table = leaderboard(data, random_state=0).table()
        truth = target[table["item"]]
        covered.append((table["low"] <= truth) & (truth <= table["high"]))
        mine = rank[table["item"]]
        whole.append(((table["rank_low"] <= mine) & (mine <= table["rank_high"])).all())
    assert 0.925 < np.mean(covered) < 0.98
    assert np.mean(whole) >= 0.95


def test_judges_that_disagree_come_first():
    table, _ = battles(m=1500, judges=20, taste=0.0)
    opposite = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    wrong = table["judge"] == 7
    table["winner"] = np.where(wrong, [opposite[w] for w in table["winner"]], table["winner"])
    found = leaderboard(table, random_state=0).judges()
    assert found["group"][0] == 7
    assert found["p_value"][0] < 0.01
    assert found["agreement"][0] < found["expected"][0]
    weighted = leaderboard(table | {"w": np.full(1500, 0.01)}, pair_weight="w").judges()
    np.testing.assert_allclose(weighted["p_value"], found["p_value"], rtol=1e-4)
    # One step without the group is close to a refit without it.
    rest = {key: values[~wrong] for key, values in table.items()}
    board = leaderboard(rest, random_state=0)
    rating = dict(zip(board.items_, board.ratings_, strict=True))
    d = np.array(
        [rating[a] - rating[b] for a, b in zip(table["model_a"], table["model_b"], strict=True)]
    )
    mine = wrong & (table["winner"] != "tie")
    agreed = ((d > 0) == (table["winner"] == "model_a"))[mine].mean()
    assert found["agreement"][0] == pytest.approx(agreed, abs=0.03)


def test_trusted_judges_decide_how_much_others_count():
    rng = np.random.default_rng(0)
    n, f = 6, np.linspace(-1, 1, 6)
    rows = []
    for judge, count, sign in [*((f"human{k}", 40, 1) for k in range(8)), ("llm", 3000, -1)]:
        h = rng.integers(n, size=count)
        j = (h + rng.integers(1, n, size=count)) % n
        won = rng.random(count) < 1 / (1 + np.exp(-sign * (f[h] - f[j])))
        rows += [(a, b, judge) if w else (b, a, judge) for a, b, w in zip(h, j, won, strict=True)]
    winner, loser, judge = (np.array(column).astype(str) for column in zip(*rows, strict=True))
    table = {"winner": winner, "loser": loser, "judge": judge}
    humans = [f"human{k}" for k in range(8)]
    board = leaderboard(table, trusted=humans, random_state=0)
    assert board.weight_ == 0.0
    assert board.items_[0] == "5"
    with pytest.warns(UserWarning, match="the same 'judge' as dependent, and .* only 9 groups"):
        assert leaderboard(table, random_state=0).items_[0] == "0"
    assert leaderboard(load_preferences(table, groups="judge"), random_state=0).n_groups_ == 9
    for nobody in (["nobody"], "nobody"):
        with pytest.raises(ValueError, match=r"names no group of the judgements: \['nobody'\]"):
            leaderboard(table, trusted=nobody)
    one = {"winner": ["a", "b", "a", "c"], "loser": ["b", "a", "b", "a"], "judge": list("1121")}
    with pytest.raises(ValueError, match=r"some items have no judgement.* trust more groups"):
        leaderboard(one, trusted=["1"])


def test_items_that_were_never_judged_are_rated_by_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    f = X @ [1.0, -0.5, 0.0]
    names = [f"m{i:02d}" for i in range(30)]
    h = rng.integers(25, size=3000)
    j = (h + rng.integers(1, 25, size=3000)) % 25  # the last five are never judged
    won = rng.random(3000) < 1 / (1 + np.exp(f[j] - f[h]))
    named = np.array(names)
    table = {"winner": named[np.where(won, h, j)], "loser": named[np.where(won, j, h)]}
    board = leaderboard(table, features=pd.DataFrame(X, index=names), random_state=0)
    frame = board.to_frame().set_index("item")
    truth = pd.Series(f - f.mean(), index=names)
    new = names[25:]
    assert (frame.n_judgements[new] == 0).all()
    assert (frame["low"][new] <= truth[new]).mean() >= 0.8
    assert (truth[new] <= frame["high"][new]).mean() >= 0.8
    assert np.corrcoef(frame.rating[names], truth)[0, 1] > 0.98
    data = load_preferences(table, items=names)
    for given in (
        X,
        pd.DataFrame(X, index=names)[::-1],
    ):  # in the order of data.item_names, or named
        again = leaderboard(data, features=given, random_state=0)
        np.testing.assert_allclose(again.ratings_, board.ratings_)
    for call, message in (
        (lambda: leaderboard(table, features=X[:7], items=names), "one row for each"),
        (lambda: leaderboard(table, features=X), "features have no names"),
        (lambda: leaderboard(data, features=pd.DataFrame(X).add_prefix("f").T.T.rename(str)),
         "the rows of features and the items have different names"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


def test_what_is_refused_and_warned_of():
    two = {"winner": ["a", "b", "x", "y"], "loser": ["b", "a", "y", "x"]}
    with pytest.raises(ValueError, match=r"2 components.*a, b \| x, y"):
        leaderboard(two)
    with pytest.warns(UserWarning, match="won or lost all"):
        board = leaderboard({"winner": ["a", "b", "a"], "loser": ["b", "c", "c"]}, random_state=0)
    assert (board.ranks_ == [1, 3]).all()
    alike = {"winner": ["a  B", "A b", "c", "c"], "loser": ["c", "c", "A b", "a  B"]}
    with pytest.warns(UserWarning, match="differ only in case"):
        leaderboard(alike, random_state=0)
    with pytest.raises(ValueError, match="position"):
        leaderboard(two, controls="position")
    with pytest.raises(ValueError, match="confidence"):
        leaderboard(two, confidence=95)
    many = {"winner": np.arange(100_000), "loser": np.arange(1, 100_001)}
    with pytest.raises(MemoryError, match=r"the covariance of all items needs .* few judgements"):
        leaderboard(many)
    one = {"winner": ["a", "b"], "loser": ["b", "a"], "c": [0.0, 0.0]}
    with pytest.raises(ValueError, match="'c' is zero"):
        leaderboard(one, controls="c")
    margin = {"winner": ["a", "b", "a", "c"], "loser": ["b", "c", "c", "a"], "c": [3.0, 1, 2, 1]}
    with pytest.warns(UserWarning, match="the controls c tell the outcome of every judgement"):
        leaderboard(margin, controls="c")
    with pytest.raises(ValueError, match="no groups"):
        leaderboard(one, random_state=0).judges()


def test_the_page(tmp_path):
    table, _ = battles(judges=20, length=0.01)
    table["model_a"] = np.char.add(table["model_a"].astype(str), "<script>")
    table["model_b"] = np.char.add(table["model_b"].astype(str), "<script>")
    board = leaderboard(table, controls=["length"], random_state=0)
    size = write_leaderboard(tmp_path / "b.html", board, title="<b>Models")
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert size == len(text.encode())
    assert text.count("<script") == 2
    assert "&lt;b&gt;Models" in text
    assert "Content-Security-Policy" in text
    for heading in ("Ratings", "Head to head", "Controls", "Groups to check", "What is assumed"):
        assert f"{heading}</h2>" in text
    data = json.loads(re.search('id="results">(.*?)</script>', text)[1])
    assert data["leaderboard"]["rating"] == pytest.approx(board.ratings_.tolist())


def test_the_command(tmp_path, capsys):
    table, _ = battles(judges=20, length=0.01)
    path = tmp_path / "battles.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    options = ["leaderboard", str(path), "--controls", "length,position"]
    assert main([*options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    board = leaderboard(path, controls=["length", "position"], random_state=0)
    assert found["leaderboard"]["rating"] == pytest.approx(board.ratings_.tolist())
    assert main([*options, "--elo", "-o", str(tmp_path / "b.html")]) == 0
    out = capsys.readouterr().out
    assert "position" in out
    assert out.split()[-6:-2] == ["judgements", "600", "groups", "20"]
    assert (tmp_path / "b.html").stat().st_size > 10_000
    assert main(["leaderboard", str(path), "--controls", "nope"]) == 2
    assert "no column 'nope'" in capsys.readouterr().err


def test_few_groups_widen_intervals_and_sets_of_ranks():
    table, _ = battles(4, 300, seed=0, judges=5, taste=0.3)
    board = leaderboard(table, groups="judge", random_state=0)
    frame, V, n = board.to_frame(), board.covariance_, 4
    np.testing.assert_allclose((frame.high - frame.low) / 2 / frame["std"], stats.t.ppf(0.975, 4))
    std = np.sqrt(np.maximum(V.diagonal()[:, None] + V.diagonal() - 2 * V, 1e-300))
    gap = board.ratings_[:, None] - board.ratings_
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal(np.zeros(n), V, 50_000)
    found = []
    for scale in (np.sqrt(rng.chisquare(4, 50_000) / 4), np.ones(50_000)):
        largest = (np.abs(draws[:, :, None] - draws[:, None]) / std).max(axis=(1, 2)) / scale
        sure = gap > np.quantile(largest, 0.95) * std
        found.append(np.column_stack([1 + sure.sum(axis=0), n - sure.sum(axis=1)]))
    np.testing.assert_array_equal(board.ranks_, found[0])
    assert (found[0] != found[1]).any()  # as with many groups, they would be smaller


def test_the_plot():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    board = leaderboard(battles()[0], random_state=0)
    labels = [one.get_text() for one in board.plot(scale="elo").get_yticklabels()]
    assert sorted(label.split()[0] for label in labels) == sorted(board.items_)
    plt.close("all")
