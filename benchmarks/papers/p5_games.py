"""P5 Table 1: rock, paper, scissors, with rankers of edges: RankRLS and RankSVM.

    python benchmarks/papers/p5_games.py --repetitions 100

The conditional rankers of p5_rock_paper_scissors.py learn each list with weight one over its
length (P5's L). The paper trained general rankers instead, on products of the players' features
(nine for an edge; for the reciprocal kernel their antisymmetric part), with pairs of edges that
start at the same node. How RankRLS weighed lists and tied pairs there is not said: here are all
four ways, and RankSVM. Nor is it said what becomes of a draw: in the first table all 1000 games
have a winner, in the second 1000 games are played, and a draw is two edges with the label 0. alpha
is 2^-30 as in the paper; strategies are drawn as in the example.
"""

from __future__ import annotations

import warnings

import numpy as np
from _common import finish, parse, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from rankrls import RankRLS, RankSVM
from rankrls.datasets import make_rock_paper_scissors
from rankrls.metrics import conditional_scores

ALPHA = 2.0**-30
SCALE = 0.3
WEIGHTS = (1, 10, 100)
#: Errors of P5: plain kernel, reciprocal kernel, at each weight.
RANKRLS = ((0.4876, 0.04519, 0.001424), (0.4880, 0.04291, 0.001354))
REGRESSION = ((0.4875, 0.04172, 0.001380), (0.4868, 0.04145, 0.001366))
RANKSVM = ((0.4987, 0.04535, 0.006997), (0.4891, 0.04116, 0.005824))
METHODS = {
    "RLS": (Ridge(ALPHA, fit_intercept=False, solver="svd"), REGRESSION),
    "RankRLS, lists by length, ties kept": (RankRLS(ALPHA, query_weighting="size"), RANKRLS),
    "RankRLS, lists by length, no ties": (
        RankRLS(ALPHA, query_weighting="size", ties="drop"),
        RANKRLS,
    ),
    "RankRLS, all pairs alike, ties kept": (RankRLS(ALPHA), RANKRLS),
    "RankRLS, all pairs alike, no ties": (RankRLS(ALPHA, ties="drop"), RANKRLS),
    "RankSVM": (RankSVM(ALPHA, tol=1e-2), RANKSVM),
}


def features(first: np.ndarray, second: np.ndarray, reciprocal: bool) -> np.ndarray:
    """Products of features of the two ends of each edge, shape (n_edges, 9)."""
    outer = first[:, :, None] * second[:, None]
    if reciprocal:
        outer = (outer - outer.transpose(0, 2, 1)) / 2
    return outer.reshape(len(outer), -1)


def main() -> None:
    options = parse(__doc__, repetitions=100, seed=0)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for keep_draws in (False, True):
        print(f"Draws: {'two edges with the label 0' if keep_draws else 'none'}\n")
        measure(options, keep_draws)
        print()
    finish()


def measure(options, keep_draws: bool) -> None:
    errors: dict[tuple[str, bool, int], list[float]] = {}
    for w in WEIGHTS:
        state = np.random.RandomState(options.seed)
        for _ in range(options.repetitions):
            train, test = (
                make_rock_paper_scissors(
                    preference=SCALE * w, keep_draws=keep_draws, random_state=state
                )
                for _ in range(2)
            )
            edges, n = train.target, len(test.data)
            one, other = np.divmod(np.arange(n * n), n)
            for reciprocal in (False, True):
                X = features(train.data[edges.row], train.data[edges.col], reciprocal)
                X_test = features(test.data[one], test.data[other], reciprocal)
                for name, (ranker, _) in METHODS.items():
                    queries = {} if isinstance(ranker, Ridge) else {"qid": edges.row}
                    ranker.fit(X, edges.data, **queries)
                    scores = ranker.predict(X_test).reshape(n, n)
                    accuracy = np.nanmean(conditional_scores(test.relation, scores))
                    errors.setdefault((name, reciprocal, w), []).append(1 - accuracy)
    rows = []
    for name, (_, published) in METHODS.items():
        for reciprocal in (False, True):
            cells = [name + (", reciprocal" if reciprocal else "")]
            for w, theirs in zip(WEIGHTS, published[reciprocal], strict=True):
                each = np.array(errors[name, reciprocal, w])
                spread = each.std(ddof=1) / np.sqrt(len(each))
                cells += [f"{each.mean():.5f} ± {spread:.5f}", f"{theirs:.5f}"]
            rows.append(cells)
    header = ["method"]
    for w in WEIGHTS:
        header += [f"w = {w}", "P5"]
    table(header, rows)


if __name__ == "__main__":
    main()
