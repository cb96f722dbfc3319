"""P1 Tables 4 and 5: AUC on Reuters-21578, 500 documents for training, the 25 largest topics.

    python benchmarks/papers/p1_reuters.py             # three draws
    python benchmarks/papers/p1_reuters.py --svm 0     # without RankSVM, which takes the most time

As in the paper: documents of the ModApte split, each topic a binary task, linear kernels, alpha
from 2^-15 … 2^15 by tenfold cross-validation on the 500 documents, the same folds for all methods.
The paper takes the AUC of pooled predictions; scores of different models are not comparable, so
here only pairs of the same fold count. The 95 % interval is DeLong's, of the test
documents alone, as in the paper; its half-width is the mean over the draws.

Left open there, and chosen here: which 500 documents (drawn at random, again if a topic has fewer
than two; means and standard deviations over the draws); the features (tf-idf); labels of the
regression (±1 and 0/1, no intercept; with one it is RankRLS with ties kept). RankSVM
takes 2^-3, 1, 2^3, … 2^15: smaller alphas separate the training rows as 2^-3 does. It is run on the
first ``--svm`` draws.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from _common import GRID, parse, rls_path, table
from _reuters import draw, read, vectors
from scipy.stats import rankdata

from rankrls import RankRLS, RankSVM, regularization_path
from rankrls.metrics import concordance_index
from rankrls.model_selection import holdout_predict

#: RankRLS, RLS regression and RankSVM of Tables 4 and 5.
PAPER = {
    "acq": (0.980, 0.979, 0.979),
    "bop": (0.966, 0.880, 0.966),
    "cocoa": (0.931, 0.837, 0.923),
    "coffee": (0.969, 0.962, 0.962),
    "corn": (0.970, 0.950, 0.966),
    "cpi": (0.947, 0.601, 0.947),
    "crude": (0.976, 0.975, 0.976),
    "dlr": (0.971, 0.946, 0.972),
    "earn": (0.994, 0.993, 0.994),
    "gnp": (0.987, 0.923, 0.987),
    "gold": (0.970, 0.922, 0.960),
    "grain": (0.979, 0.974, 0.979),
    "interest": (0.965, 0.952, 0.968),
    "livestock": (0.701, 0.637, 0.741),
    "money-fx": (0.954, 0.947, 0.959),
    "money-supply": (0.949, 0.907, 0.963),
    "nat-gas": (0.957, 0.941, 0.957),
    "oilseed": (0.898, 0.816, 0.895),
    "reserves": (0.943, 0.511, 0.920),
    "ship": (0.949, 0.925, 0.951),
    "soybean": (0.876, 0.805, 0.882),
    "sugar": (0.985, 0.964, 0.977),
    "trade": (0.978, 0.969, 0.982),
    "veg-oil": (0.890, 0.697, 0.853),
    "wheat": (0.984, 0.976, 0.983),
}
SVM_GRID = GRID[12::3]

Array = np.ndarray


def main() -> None:
    options = parse(__doc__, draws=3, svm=3)
    texts, labels, names = read()
    print(f"{len(texts)} documents, {options.draws} draws of 500\n")
    found: dict[str, list[Array]] = {}
    positives = []
    for seed in range(options.draws):
        train = draw(labels, 500, seed)
        X, X_test, test = vectors(texts, train)
        positives.append(labels[train].sum(axis=0))
        folds = ten_folds(labels[train], seed)
        for name, run in methods(X, X_test, labels[train], folds, seed < options.svm).items():
            pairs = zip(labels[test].T, run().T, strict=True)
            found.setdefault(name, []).append(np.array([delong(*pair) for pair in pairs]))
    report(names, np.mean(positives, axis=0), found)


def delong(y: Array, scores: Array) -> tuple[float, float]:
    """The AUC, and the half-width of its 95 % interval (DeLong et al. 1988)."""
    positive, negative = scores[y == 1], scores[y == 0]
    wins = (rankdata(scores)[y == 1] - rankdata(positive)) / len(negative)
    losses = (rankdata(-scores)[y == 0] - rankdata(-negative)) / len(positive)
    variance = wins.var(ddof=1) / len(positive) + losses.var(ddof=1) / len(negative)
    return float(wins.mean()), float(1.96 * np.sqrt(variance))


def ten_folds(Y: Array, seed: int) -> list[Array]:
    """Random folds, drawn again until none holds all positive documents of a topic."""
    rng = np.random.default_rng(seed)
    while True:
        folds = np.array_split(rng.permutation(len(Y)), 10)
        if all((Y[fold].sum(axis=0) < Y.sum(axis=0)).all() for fold in folds):
            return folds


def methods(
    X: Array, X_test: Array, Y: Array, folds: list[Array], svm: bool
) -> dict[str, Callable[[], Array]]:
    """Scores (n_test, n_topics) of each method, alpha chosen within X."""
    K, K_test = (X @ X.T).toarray(), (X_test @ X.T).toarray()
    rows = np.concatenate(folds)
    topics = range(Y.shape[1])

    fold_of_row = np.repeat(np.arange(len(folds)), [len(fold) for fold in folds])

    def chosen(held: list[Array]) -> Array:
        """Numbers of the best alphas by topic, the largest of equals; held: (n_alphas, n[, o])."""
        scores = np.concatenate(held, axis=1)
        within = partial(concordance_index, qid=fold_of_row)
        auc = np.array([[within(Y[rows, t], s[:, t]) for t in topics] for s in scores])
        return len(auc) - 1 - auc[::-1].argmax(axis=0)

    def ranking(ties: str) -> Array:
        ranker = RankRLS(ties=ties)
        best = chosen(holdout_predict(ranker, X, Y, folds, alphas=GRID))
        if ties == "keep":
            scores = regularization_path(ranker, X, Y, alphas=GRID).predict(X_test)
            return np.stack([scores[best[t], :, t] for t in topics], axis=1)
        fits = [RankRLS(GRID[best[t]], ties=ties).fit(X, Y[:, t]) for t in topics]
        return np.stack([fit.predict(X_test) for fit in fits], axis=1)

    def regression(labels: Array) -> Array:
        held = []
        for fold in folds:
            train = np.setdiff1d(rows, fold)
            coefficients = rls_path(K[np.ix_(train, train)], labels[train], GRID)
            held.append(np.stack([K[np.ix_(fold, train)] @ a for a in coefficients]))
        best = chosen(held)
        coefficients = rls_path(K, labels, GRID)
        return np.stack([K_test @ coefficients[best[t], :, t] for t in topics], axis=1)

    def hinge() -> Array:
        held = []
        for fold in folds:
            train = np.setdiff1d(rows, fold)
            part = [
                regularization_path(
                    RankSVM(tol=1e-3), X[train], Y[train, t], alphas=SVM_GRID
                ).predict(X[fold])
                for t in topics
            ]
            held.append(np.stack(part, axis=-1))
        best = chosen(held)
        fits = [RankSVM(SVM_GRID[best[t]], tol=1e-3).fit(X, Y[:, t]) for t in topics]
        return np.stack([fit.predict(X_test) for fit in fits], axis=1)

    out = {
        "RankRLS": lambda: ranking("drop"),
        "RankRLS, ties kept": lambda: ranking("keep"),
        "RLS, labels ±1": lambda: regression(2 * Y - 1),
        "RLS, labels 0/1": lambda: regression(Y),
    }
    return out | ({"RankSVM": hinge} if svm else {})


def report(names: list[str], positives: Array, found: dict[str, list[Array]]) -> None:
    """A row for each topic: mean over the draws ± their standard deviation (± DeLong's)."""
    theirs = {"RankRLS": 0, "RLS, labels ±1": 1, "RankSVM": 2}
    columns = []
    for name, draws in found.items():
        mean, half = np.mean(draws, axis=0).T
        spread = np.std(draws, axis=0, ddof=1 if draws[1:] else 0)[:, 0]
        numbers = zip(mean, spread, half, strict=True)
        cells = [f"{a:.3f} ± {b:.3f} (± {c:.3f})" for a, b, c in numbers]
        columns.append([*cells, f"{mean.mean():.3f}"])
        if name in theirs:
            paper = [PAPER[topic][theirs[name]] for topic in names]
            columns.append([f"{a:.3f}" for a in [*paper, float(np.mean(paper))]])
    header = ["topic", "+"]
    for name in found:
        header += [name, "P1"] if name in theirs else [name]
    first = [[n, f"{p:.1f}"] for n, p in zip(names, positives, strict=True)] + [["mean", ""]]
    table(header, [a + list(b) for a, b in zip(first, zip(*columns, strict=True), strict=True)])


if __name__ == "__main__":
    main()
