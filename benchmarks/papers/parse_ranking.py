"""Parse ranking: P1 Table 2, P2 Table 1 and P3 Table 1, on the small set that is at hand.

    python benchmarks/papers/parse_ranking.py

The papers use 1100 sentences of BioInfer, about 12,000 parses; at hand are 100 parses of 22
sentences for training and 100 of 20 for testing, in the features of P3 (195,100, sparse): the shape
of the data, not the data. Errors are averaged over sentences; with 20 of them a standard error is
about 0.05, and no smaller difference means anything.

P1, P2: alpha of 2^-15 … 2^15 by 10 folds of whole sentences within the training set, linear kernel
of the features (a linearised graph kernel). P2: a quarter of each sentence's parses (two at least)
are the rows of the basic methods and the basis of the sparse ones, which learn from all; mean over
random quarters. P3: a fifth of the training sentences are for validation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from _common import GRID, finish, need, parse, quiet, rls_holdout, rls_path, table
from scale import ALPHAS, p3_methods
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning

from rankrls import RankRLS, RankSVM, regularization_path
from rankrls.datasets import load_letor
from rankrls.metrics import pairwise_error
from rankrls.model_selection import QueryKFold, holdout_predict

Array = np.ndarray


class Task:
    """Training and test parses, and folds of training sentences."""

    def __init__(self, train: Any, test: Any) -> None:
        self.X, self.y, self.qid = train.data, train.target, np.asarray(train.qid)
        n_features = max(self.X.shape[1], test.data.shape[1])
        self.X.resize((self.X.shape[0], n_features))
        test.data.resize((test.data.shape[0], n_features))
        self.X_test, self.y_test, self.qid_test = test.data, test.target, np.asarray(test.qid)

    def errors(self, scores: Array) -> Array:
        """Disagreement error of every test sentence that has a preference."""
        each = pairwise_error(self.y_test, scores, qid=self.qid_test, average=None)
        return each[~np.isnan(each)]


def folds_of(qid: Array, seed: int = 0) -> list[Array]:
    splitter = QueryKFold(10, shuffle=True, random_state=seed)
    return [test for _, test in splitter.split(qid, qid, groups=qid)]


def best_alpha(y: Array, qid: Array, folds: list[Array], held: list[Array]) -> int:
    """Number of the alpha with the least error over all sentences, the largest of equals."""
    scores = np.empty((len(GRID), len(y)))
    for fold, part in zip(folds, held, strict=True):
        scores[:, fold] = part
    error = [pairwise_error(y, s, qid=qid) for s in scores]
    return len(GRID) - 1 - int(np.argmin(error[::-1]))


def linear(task: Task, ranker: Any, within: bool, rows: Array) -> Array:
    """Test scores of RankRLS, alpha chosen by folds of sentences among ``rows``."""
    X, y, qid = task.X[rows], task.y[rows], task.qid[rows]
    folds, given = folds_of(qid), qid if within else None
    held = holdout_predict(ranker, X, y, folds, qid=given, alphas=GRID)
    alpha = GRID[best_alpha(y, qid, folds, held)]
    return ranker.set_params(alpha=alpha).fit(X, y, qid=given).predict(task.X_test)


def regression(task: Task, rows: Array) -> Array:
    X, y = task.X[rows], task.y[rows]
    K, folds = (X @ X.T).toarray(), folds_of(task.qid[rows])
    best = best_alpha(y, task.qid[rows], folds, rls_holdout(K, y, folds, GRID))
    return (task.X_test @ X.T).toarray() @ rls_path(K, y, GRID)[best]


def sparse_regression(task: Task, basis: Array) -> Array:
    """RLS over basis vectors: (K_RX K_XR + alpha K_RR) a = K_RX y."""
    K, y = (task.X @ task.X.T).toarray(), task.y

    def fit(train: Array) -> list[Array]:
        B, R = K[np.ix_(train, basis)], K[np.ix_(basis, basis)]
        jitter = 1e-10 * np.trace(R) / len(R) * np.eye(len(R))
        left = (cho_factor(B.T @ B + alpha * R + jitter) for alpha in GRID)
        return [cho_solve(factor, B.T @ y[train]) for factor in left]

    folds, everything = folds_of(task.qid), np.arange(len(y))
    held = []
    for fold in folds:
        K_fold = K[np.ix_(fold, basis)]
        held.append(np.stack([K_fold @ a for a in fit(np.setdiff1d(everything, fold))]))
    best = best_alpha(y, task.qid, folds, held)
    return (task.X_test @ task.X[basis].T).toarray() @ fit(everything)[best]


def hinge(task: Task) -> Array:
    folds, everything = folds_of(task.qid), np.arange(len(task.y))
    ranker, held = RankSVM(tol=1e-3), []
    for fold in folds:
        rows = np.setdiff1d(everything, fold)
        path = regularization_path(
            ranker, task.X[rows], task.y[rows], qid=task.qid[rows], alphas=GRID
        )
        held.append(path.predict(task.X[fold]))
    alpha = GRID[best_alpha(task.y, task.qid, folds, held)]
    return ranker.set_params(alpha=alpha).fit(task.X, task.y, qid=task.qid).predict(task.X_test)


def table2(task: Task) -> Iterator[list[str]]:
    """P1 Table 2."""
    everything = np.arange(len(task.y))
    published = {"unit": ".225 .234", "magnitude": ".222 .247", "relative": ".216 .228"}
    runs: dict[str, tuple[Array, str]] = {}
    for cost, errors in published.items():
        for within, theirs in zip((True, False), errors.split(), strict=True):
            ranker = RankRLS(cost=cost, ties="drop")
            name = f"RankRLS, {cost}" + ("" if within else ", all pairs")
            runs[name] = linear(task, ranker, within, everything), theirs
    runs["RankSVM"] = hinge(task), ".214"
    runs["RLS"] = regression(task, everything), ".252"
    reference = task.errors(next(iter(runs.values()))[0])
    for name, (scores, theirs) in runs.items():
        each = task.errors(scores)
        p = wilcoxon(each, reference).pvalue if (each != reference).any() else 1.0
        spread = each.std(ddof=1) / np.sqrt(len(each))
        yield [name, f"{each.mean():.3f}", f"{spread:.3f}", f"{p:.2f}", theirs]


def sparse_table(task: Task, repetitions: int) -> Iterator[list[str]]:
    """P2 Table 1."""
    errors: dict[str, list[float]] = {}
    rng = np.random.default_rng(0)
    everything = np.arange(len(task.y))
    for _ in range(repetitions):
        parts = [rng.permutation(np.flatnonzero(task.qid == q)) for q in np.unique(task.qid)]
        basis = np.sort(np.concatenate([part[: max(len(part) // 4, 2)] for part in parts]))
        found = {
            "basic RLS": regression(task, basis),
            "sparse RLS": sparse_regression(task, basis),
            "basic RankRLS": linear(task, RankRLS(), True, basis),
            "sparse RankRLS": linear(
                task, RankRLS(solver="nystroem", basis=basis), True, everything
            ),
        }
        for name, scores in found.items():
            errors.setdefault(name, []).append(float(task.errors(scores).mean()))
    for (name, each), theirs in zip(errors.items(), (".27", ".24", ".23", ".21"), strict=True):
        yield [name, f"{np.mean(each):.3f}", f"{np.std(each, ddof=1):.3f}", theirs]


def p3_table(task: Task) -> Iterator[list[str]]:
    """P3 Table 1, first data set."""
    names = np.random.default_rng(0).permutation(np.unique(task.qid))
    held = np.isin(task.qid, names[: len(names) // 5])
    eval_set = task.X[held], task.y[held], task.qid[held]
    published = ((".2185", 11, 1743), (".2180", 6, 9), (".2185", 7, 137))
    for (name, ranker), theirs in zip(p3_methods(ALPHAS).values(), published, strict=True):
        ranker.set_params(query_weighting="size")
        ranker.fit(task.X[~held], task.y[~held], qid=task.qid[~held], eval_set=eval_set)
        each = task.errors(ranker.predict(task.X_test))
        alpha = getattr(ranker, "alpha_", 0.0)
        yield [name, f"{each.mean():.3f}", f"{alpha:g}", str(ranker.n_iter_), theirs[0]]


def main() -> None:
    options = parse(__doc__, repetitions=20)
    quiet()
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = ("parse_ranking/rank_train.light.gz", "parse_ranking/rank_test.light.gz")
    task = Task(*(load_letor(path) for path in need(options.data, *names)))
    n_test = len(task.errors(np.zeros(len(task.y_test))))
    print(f"{task.X.shape[0]} parses, {task.X.shape[1]} features; {n_test} test sentences\n")
    print("P1 Table 2\n")
    table(["method", "error", "± s.e.", "p", "P1"], table2(task))
    print("P2 Table 1\n")
    table(["method", "error", "sd of the quarters", "P2"], sparse_table(task, options.repetitions))
    print("P3 Table 1\n")
    table(["method", "error", "alpha", "iterations", "P3"], p3_table(task))
    finish()


if __name__ == "__main__":
    main()
