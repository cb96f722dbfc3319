"""Greedy feature selection beside an eigendecomposition and RLScore's GreedyRLS.

RLScore has no greedy selection for rankings: its GreedyRLS is leave-one-out ridge regression
with a regularised bias, the nearest thing to our single ranking.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigh
from timing import Row, compare, print_table

from rankrls import GreedyRankRLS


def rows(m: int = 1000, n: int = 2000, k: int = 20) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(m)
    ours = {
        "queries of 10": lambda: GreedyRankRLS(k).fit(X, y, qid=np.arange(m) // 10),
        "one ranking": lambda: GreedyRankRLS(k, query_weighting="size").fit(X, y),
    }
    S = X @ X.T
    references = {f"eigh({m})": lambda: eigh(S)}
    if importlib.util.find_spec("rlscore") is None:
        print("RLScore cannot be imported: no peer rows")
    else:
        from rlscore.learner import GreedyRLS

        references["RLScore GreedyRLS"] = lambda: GreedyRLS(X, y, subsetsize=k, regparam=1.0)
    for name, run in ours.items():
        for reference, other in references.items():
            target = 1.0 if "RLScore" in reference else None
            title = f"{k} of {n} features, {m} rows, {name}"
            yield compare(title, run, reference, other, target, repeats=5)


def speed(quick: bool = False) -> Iterator[Row]:
    yield from rows(*((300, 500, 10) if quick else ()))


if __name__ == "__main__":
    print_table(speed())
