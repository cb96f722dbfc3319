"""Judgements needed: `rankrls.diagnostics.suggest_pairs` beside random and least sure pairs.

    python benchmarks/suggest.py                          # Jester and OHSUMED, 20 draws
    python benchmarks/suggest.py --sets jester --draws 3

Judgements are asked for in batches of 20 and answered by real data:

- jester: 100 jokes with 20 features (singular vectors of the ratings of half the users). A question
  about two jokes is answered by a user, drawn among a quarter of the users, who rated both: the one
  with the higher rating. Tested on 20,000 such answers of the last quarter of the users, and by how
  many of the 10 jokes of highest mean rating are among the first 10;
- ohsumed: 10 documents of each of 50 queries; a question is about two documents of a query of
  different grades, the higher grade is preferred, and is asked once. Tested by pairwise accuracy on
  the other queries.

A method starts with 20 random judgements. "least sure" asks where P(a preferred to b) is closest to
one half, of 2,000 random questions. Data are read from ``--data`` (docs/data.md); data sets that
are absent are reported and skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from peer_data import DATA, load
from scipy.sparse.linalg import svds
from sklearn.preprocessing import StandardScaler

from rankrls import RankRLS
from rankrls.diagnostics import suggest_pairs
from rankrls.metrics import pairwise_accuracy

BATCH, N_ROUNDS, TOP = 20, 20, 10
SHOWN = (40, 80, 160, 240, 400)


@dataclass(frozen=True)
class Task:
    """Items X; pairs that can be asked for; who answers, and how a ranking is tested."""

    X: np.ndarray
    candidates: np.ndarray
    judge: Callable[[np.ndarray], np.ndarray]
    test: Callable[[RankRLS], dict[str, float]]
    alpha: float
    once: bool

    def without(self, asked: np.ndarray) -> Task:
        """The task without the pairs that were asked for, if these cannot be asked for again."""
        if not self.once:
            return self
        n = len(self.X)
        codes = [np.sort(pairs, axis=1) @ [n, 1] for pairs in (self.candidates, asked)]
        return replace(self, candidates=self.candidates[~np.isin(*codes)])


def jester(data: Path, rng: np.random.Generator) -> Task:
    path = data / "jester5k" / "ratings.npz"
    if not path.exists():
        raise FileNotFoundError(f"no {path}: nothing is measured (see --data)")
    with np.load(path) as file:
        n_users, n_items = file["shape"]
        R = np.full((n_users, n_items), np.nan)
        R[file["user"].astype(int), file["item"].astype(int)] = file["rating"]
    users = rng.permutation(n_users)
    described, asked, tested = np.split(R[users], [n_users // 2, 3 * n_users // 4])
    _, values, V = svds(np.nan_to_num(described), k=20, random_state=0)
    X = StandardScaler().fit_transform(V.T * values)

    def answers(pairs: np.ndarray, ratings: np.ndarray) -> np.ndarray:
        """By a user for each pair who rated both differently; pairs that nobody did are dropped."""
        told = []
        for a, b in pairs:
            difference = ratings[:, a] - ratings[:, b]
            known = difference[np.isfinite(difference) & (difference != 0)]
            if len(known):
                told.append((a, b) if rng.choice(known) > 0 else (b, a))
        return np.array(told)

    candidates = np.column_stack(np.triu_indices(n_items, 1))
    new = answers(rng.choice(candidates, 20_000), tested)
    best = set(np.argsort(-np.nanmean(tested, axis=0))[:TOP].tolist())

    def test(ranker: RankRLS) -> dict[str, float]:
        f = ranker.predict(X)
        first = set(np.argsort(-f)[:TOP].tolist())
        accuracy = float(pairwise_accuracy(None, f, pairs=new))
        return {"accuracy": accuracy, "of the best 10": len(best & first) / TOP}

    return Task(X, candidates, lambda pairs: answers(pairs, asked), test, 10.0, False)


def ohsumed(data: Path, rng: np.random.Generator) -> Task:
    parts = [fold.test for fold in load("ohsumed", data)]
    X, y, qid = (np.concatenate([getattr(part, of) for part in parts]) for of in ("X", "y", "qid"))
    queries = rng.permutation(np.unique(qid))
    rows = np.concatenate([rng.permutation(np.flatnonzero(qid == q))[:10] for q in queries[:50]])
    new = np.isin(qid, queries[50:])
    first, second = np.triu_indices(len(rows), 1)
    asked = (qid[rows[first]] == qid[rows[second]]) & (y[rows[first]] != y[rows[second]])
    candidates = np.column_stack([first, second])[asked]

    def judge(pairs: np.ndarray) -> np.ndarray:
        a, b = y[rows[pairs]].T
        return np.where((a > b)[:, None], pairs, pairs[:, ::-1])

    def test(ranker: RankRLS) -> dict[str, float]:
        return {"accuracy": float(pairwise_accuracy(y[new], ranker.predict(X[new]), qid=qid[new]))}

    return Task(X[rows], candidates, judge, test, 30.0, True)


SETS = {"jester": jester, "ohsumed": ohsumed}


def choose(how: str, ranker: RankRLS, task: Task, rng: np.random.Generator) -> np.ndarray:
    if how == "random":
        return rng.choice(task.candidates, BATCH, replace=False)
    if how == "least sure":
        pairs = rng.permutation(task.candidates)[:2000]
        p = ranker.preference_proba(task.X[pairs[:, 0]], task.X[pairs[:, 1]])
        return pairs[np.argsort(np.abs(p - 0.5))[:BATCH]]
    top = TOP if how.endswith("top 10") else None
    return suggest_pairs(ranker, task.X, k=BATCH, top=top, candidates=task.candidates)


def run(task: Task, how: str, seed: int) -> list[dict[str, float]]:
    """What the test says after every batch."""
    rng = np.random.default_rng(seed)
    asked = task.judge(choose("random", RankRLS(), task, rng))
    found = []
    for _ in range(N_ROUNDS):
        ranker = RankRLS(task.alpha).fit(task.X, pairs=asked)
        found.append(task.test(ranker))
        asked = np.vstack([asked, task.judge(choose(how, ranker, task.without(asked), rng))])
    return found


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data: docs/data.md")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    for name in options.sets:
        methods = ["random", "least sure", "suggest_pairs"]
        methods += ["suggest_pairs, top 10"] if name == "jester" else []
        results: dict[str, list[list[dict[str, float]]]] = {how: [] for how in methods}
        try:
            for seed in range(options.draws):
                for how in methods:
                    task = SETS[name](options.data, np.random.default_rng(seed))
                    results[how].append(run(task, how, seed))
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        show(name, results)


def show(name: str, results: dict[str, list[list[dict[str, float]]]]) -> None:
    """Means over the draws after some numbers of judgements, and the largest standard error."""
    for measure in results["random"][0][0]:
        print(f"\n| {name}, {measure} | {' | '.join(map(str, SHOWN))} | standard error |")
        print("|---" + "|---:" * (len(SHOWN) + 1) + "|")
        for how, draws in results.items():
            values = np.array([[step[measure] for step in draw] for draw in draws])
            values = values[:, [n // BATCH - 1 for n in SHOWN]]
            error = values.std(axis=0, ddof=1).max() / np.sqrt(len(values))
            cells = [f"{value:.3f}" for value in values.mean(axis=0)]
            print(f"| {how} | {' | '.join(cells)} | {error:.3f} |", flush=True)


if __name__ == "__main__":
    main()
