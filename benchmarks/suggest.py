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
one half, of 2,000 random questions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from judgements import documents, joke_features, ratings
from sklearn.preprocessing import StandardScaler
from timing import Missing, parse, table

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
        codes = [np.sort(pairs, axis=1) @ [len(self.X), 1] for pairs in (self.candidates, asked)]
        return replace(self, candidates=self.candidates[~np.isin(*codes)])


def jester(rng: np.random.Generator) -> Task:
    R = rng.permutation(ratings())
    described, asked, tested = np.split(R, [len(R) // 2, 3 * len(R) // 4])
    X = StandardScaler().fit_transform(joke_features(described))

    def answers(pairs: np.ndarray, of: np.ndarray) -> np.ndarray:
        """By a user for each pair who rated both differently; pairs that nobody did are dropped."""
        told = []
        for a, b in pairs.tolist():
            users = np.flatnonzero(~np.isnan(of[:, a] - of[:, b]) & (of[:, a] != of[:, b]))
            if len(users):
                user = rng.choice(users)
                told.append((a, b) if of[user, a] > of[user, b] else (b, a))
        return np.array(told)

    candidates = np.column_stack(np.triu_indices(R.shape[1], 1))
    new = answers(rng.choice(candidates, 20_000), tested)
    best = set(np.argsort(-np.nanmean(tested, axis=0))[:TOP].tolist())

    def test(ranker: RankRLS) -> dict[str, float]:
        f = ranker.predict(X)
        found = len(best & set(np.argsort(-f)[:TOP].tolist())) / TOP
        accuracy = float(pairwise_accuracy(None, f, pairs=new))
        return {"accuracy": accuracy, "of the best 10": found}

    return Task(X, candidates, lambda pairs: answers(pairs, asked), test, 10.0, False)


def ohsumed(rng: np.random.Generator) -> Task:
    X, y, qid = documents("ohsumed")
    queries = rng.permutation(np.unique(qid))
    rows = np.concatenate([rng.permutation(np.flatnonzero(qid == q))[:10] for q in queries[:50]])
    new = np.isin(qid, queries[50:])
    first, second = np.triu_indices(len(rows), 1)
    asked = (qid[rows[first]] == qid[rows[second]]) & (y[rows[first]] != y[rows[second]])

    def judge(pairs: np.ndarray) -> np.ndarray:
        a, b = y[rows[pairs]].T
        return np.where((a > b)[:, None], pairs, pairs[:, ::-1])

    def test(ranker: RankRLS) -> dict[str, float]:
        return {"accuracy": float(pairwise_accuracy(y[new], ranker.predict(X[new]), qid=qid[new]))}

    return Task(X[rows], np.column_stack([first, second])[asked], judge, test, 30.0, True)


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


def show(name: str, results: dict[str, list[list[dict[str, float]]]]) -> None:
    """Means over the draws after some numbers of judgements, and the largest standard error."""
    for measure in results["random"][0][0]:
        rows = []
        for how, draws in results.items():
            values = np.array([[step[measure] for step in draw] for draw in draws])
            values = values[:, [n // BATCH - 1 for n in SHOWN]]
            error = values.std(axis=0, ddof=1).max() / np.sqrt(len(values))
            rows.append([how, *(f"{value:.3f}" for value in [*values.mean(axis=0), error])])
        table([f"{name}, {measure}", *map(str, SHOWN), "standard error"], rows)


def main() -> None:
    options = parse(__doc__, sets=["jester", "ohsumed"], draws=20)
    for name in options.sets:
        task = {"jester": jester, "ohsumed": ohsumed}[name]
        methods = ["random", "least sure", "suggest_pairs"]
        methods += ["suggest_pairs, top 10"] if name == "jester" else []
        try:
            results = {
                how: [run(task(np.random.default_rng(s)), how, s) for s in range(options.draws)]
                for how in methods
            }
        except Missing as error:
            print(error)
            continue
        show(name, results)


if __name__ == "__main__":
    main()
