"""Leaderboards of public judgements: ratings, intervals, held-out log loss and time beside peers.

    python benchmarks/leaderboards.py

Sets that are absent are skipped:

- pandalm: which of two answers three people each preferred, 5 language models; groups are prompts;
- tennis: matches of the ATP tour 2021-2024 between players with 30 matches or more;
- football: matches of national teams since 2018, between teams with 30 or more; draws are ties.

Peers are arena-rank (if installed; its sandwich does not know groups), scikit-learn's logistic
regression without a penalty, and a bootstrap of 200 draws of groups, each refitted. Log losses are
those of five folds of groups.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression
from timing import Missing, need

from rankrls import leaderboard

N_DRAWS = 200


def pandalm() -> pd.DataFrame:
    """The three annotators' verdicts of every comparison, grouped by prompt."""
    rows = []
    for entry in json.loads(need("judgements/pandalm_testset-v1.json")[0].read_text()):
        a, b = entry["cmp_key"].split("_")
        for annotator in ("annotator1", "annotator2", "annotator3"):
            winner = ("tie", "model_a", "model_b")[entry[annotator]]
            rows.append((a, b, winner, entry["instruction"] + entry["input"]))
    return pd.DataFrame(rows, columns=["model_a", "model_b", "winner", "prompt"])


def tennis() -> pd.DataFrame:
    """Matches of the ATP tour; who won is shown first in half of the rows."""
    paths = need(*(f"judgements/atp_matches_{year}.csv" for year in range(2021, 2025)))
    table = pd.concat([pd.read_csv(path) for path in paths])
    swap = np.arange(len(table)) % 2 == 1
    a = np.where(swap, table["loser_name"], table["winner_name"])
    b = np.where(swap, table["winner_name"], table["loser_name"])
    winner = np.where(swap, "model_b", "model_a")
    return often(pd.DataFrame({"model_a": a, "model_b": b, "winner": winner}))


def football() -> pd.DataFrame:
    """Matches of national teams since 2018."""
    table = pd.read_csv(need("judgements/results.csv")[0])
    table = table[table["date"] >= "2018"].dropna(subset=["home_score", "away_score"])
    goals = np.sign(table["home_score"] - table["away_score"]).astype(int)
    winner = goals.map({1: "model_a", 0: "tie", -1: "model_b"})
    home, away = table["home_team"], table["away_team"]
    return often(pd.DataFrame({"model_a": home, "model_b": away, "winner": winner}))


def often(table: pd.DataFrame, least: int = 30) -> pd.DataFrame:
    """Only judgements between items that have at least ``least`` of them."""
    while True:
        counts = pd.concat([table["model_a"], table["model_b"]]).value_counts()
        kept = table["model_a"].map(counts).ge(least) & table["model_b"].map(counts).ge(least)
        if kept.all():
            return table.reset_index(drop=True)
        table = table[kept]


def design(table: pd.DataFrame, items: Any) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows e_a − e_b and outcomes 1, ½ or 0."""
    number, index = {name: k for k, name in enumerate(items)}, np.arange(len(table))
    a, b = (table[side].map(number).to_numpy() for side in ("model_a", "model_b"))
    values, rows = np.r_[np.ones(len(table)), -np.ones(len(table))], np.r_[index, index]
    A = sparse.csr_array((values, (rows, np.r_[a, b])), shape=(len(table), len(items)))
    return A, table["winner"].map({"model_a": 1.0, "tie": 0.5, "model_b": 0.0}).to_numpy()


def logistic(A: Any, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ratings of mean 0 by scikit-learn; a tie is half a win each way."""
    model = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=10_000)
    labels = np.r_[np.ones(len(y)), np.zeros(len(y))]
    model.fit(sparse.vstack([A, A]), labels, sample_weight=np.r_[weight * y, weight * (1 - y)])
    return model.coef_[0] - model.coef_[0].mean()


def arena(table: pd.DataFrame, items: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ratings and standard errors of arena-rank as log-odds, ratings of mean 0."""
    from arena_rank.models.bradley_terry import BradleyTerry
    from arena_rank.utils.data_utils import PairDataset

    data = PairDataset.from_pandas(table)
    model = BradleyTerry(n_competitors=len(data.competitors))
    found = model.compute_ratings_and_cis(data, ci_method="sandwich")
    order = [data.competitors.index(name) for name in items]
    ratings = np.asarray(found["ratings"])[order] / model.alpha
    return ratings - ratings.mean(), np.sqrt(np.asarray(found["variances"])[order]) / model.alpha


def bootstrap(A: Any, y: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Standard deviations of the ratings over draws of whole groups, refitted."""
    rng, n = np.random.default_rng(0), int(group.max()) + 1
    draws = (np.bincount(rng.integers(0, n, n), minlength=n)[group] for _ in range(N_DRAWS))
    return np.std([logistic(A, y, weight.astype(float)) for weight in draws], axis=0)


def log_loss(A: Any, y: np.ndarray, ratings: np.ndarray) -> np.ndarray:
    """Log loss of every judgement."""
    d = A @ ratings
    return -(y * log_expit(d) + (1 - y) * log_expit(-d))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What run returns, and its seconds of the processor, the shorter of two runs."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        result = run()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def measure(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Rows of the comparison."""
    groups = "prompt" if "prompt" in table else None
    group = pd.factorize(table[groups])[0] if groups else np.arange(len(table))
    board, ours = timed(lambda: leaderboard(table, groups=groups, random_state=0))
    A, y = design(table, board.items_)
    ratings, theirs = timed(lambda: logistic(A, y, np.ones(len(y))))
    std, drawn = timed(lambda: bootstrap(A, y, group))
    rows = [
        ("judgements, items, groups", f"{len(y)}, {len(board.items_)}, {group.max() + 1}"),
        ("rankrls, CPU s", f"{ours:.3f}"),
        ("logistic regression, CPU s (ratings only)", f"{theirs:.3f}"),
        ("greatest difference of its ratings", f"{np.abs(board.ratings_ - ratings).max():.1e}"),
        (f"bootstrap of {N_DRAWS}, CPU s", f"{drawn:.1f}"),
        ("standard errors over its deviations, mean", f"{np.mean(board.std_ / std):.3f}"),
    ]
    if find_spec("arena_rank"):
        alone = leaderboard(table, groups=None, random_state=0)
        (found, errors), spent = timed(lambda: arena(table, alone.items_))
        differences = np.abs(alone.ratings_ - found).max()
        rows += [
            ("arena-rank, CPU s", f"{spent:.3f}"),
            ("greatest difference of its ratings", f"{differences:.1e}"),
            ("standard errors (no groups) over its, mean", f"{np.mean(alone.std_ / errors):.3f}"),
        ]
    fold = np.random.default_rng(1).permutation(int(group.max()) + 1)[group] % 5
    losses: dict[str, list[np.ndarray]] = {"ours": [], "theirs": []}
    for held in (fold == number for number in range(5)):
        part = leaderboard(table[~held].reset_index(drop=True), groups=groups, random_state=0)
        position = {name: k for k, name in enumerate(part.items_)}
        own = part.ratings_[[position[name] for name in board.items_]]
        losses["ours"].append(log_loss(A[held], y[held], own))
        other = logistic(A[~held], y[~held], np.ones((~held).sum()))
        losses["theirs"].append(log_loss(A[held], y[held], other))
    ours, theirs = (np.concatenate(losses[name]).mean() for name in ("ours", "theirs"))
    return [*rows, ("held-out log loss, logistic regression", f"{ours:.4f}, {theirs:.4f}")]


def main() -> None:
    """Print one table for each set that is there."""
    for load in (pandalm, tennis, football):
        try:
            table = load()
        except Missing as error:
            print(error)
            continue
        print(f"\n{load.__name__}")
        for name, value in measure(table):
            print(f"  {name:45s} {value}")


if __name__ == "__main__":
    main()
