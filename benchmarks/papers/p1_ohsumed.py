"""P1 Table 3: disagreement error on OHSUMED, scores 0 and 1 merged, the five folds of LETOR.

    python benchmarks/papers/p1_ohsumed.py

As in the paper: three parts for training, alpha of 2^-15 … 2^15 by the error on a fourth, the error
of the fifth, averaged over its queries that have both labels and then over the folds; features
between 0 and 1 within each query; linear kernel. The data are LETOR 3.0 with 45 features, those of
the paper an earlier version with 25; the two TREC sets are not at hand, nor is RankBoost.

Left open there: whether the regression has an intercept, and its labels. Without one, labels ±1
make it learn the mean rather than the ranking: features are not negative and most labels −1. With
one it is RankRLS on all pairs, ties kept, up to a factor of alpha. Also left open, the weights of
queries: "pair" is P1 (16), every pair counts the same; "query" is the normalised version that P1
suggests for label ranking in §2. RankSVM takes every third alpha.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from _common import GRID, need, parse, table
from scipy.stats import wilcoxon
from sklearn.linear_model import Ridge

from rankrls import RankRLS, RankSVM, regularization_path
from rankrls.datasets import load_letor
from rankrls.metrics import pairwise_error

Array = np.ndarray
Part = tuple[Array, Array, Array]  # features, labels, queries

#: Name: (estimator, whether pairs are within queries only, error of the paper).
RELEVANT = {"ties": "drop"}
METHODS = {
    "RankRLS, pair": (RankRLS(**RELEVANT), True, "0.340"),
    "RankRLS, query": (RankRLS(query_weighting="query", **RELEVANT), True, "0.340"),
    "RankRLS, ties kept, pair": (RankRLS(), True, ""),
    "RankRLS, ties kept, query": (RankRLS(query_weighting="query"), True, ""),
    "RankRLS all pairs, ties dropped": (RankRLS(**RELEVANT), False, "0.346"),
    "RankRLS all pairs, ties kept": (RankRLS(), False, "0.346"),
    "RLS, labels ±1, no intercept": (None, False, "0.346"),
    "RLS, labels 0/1, no intercept": (None, False, "0.346"),
    "RLS, with intercept": (None, False, "0.346"),
    "RankSVM, pair": (RankSVM(tol=1e-3), True, "0.336"),
    "RankSVM, query": (RankSVM(tol=1e-3, query_weighting="query"), True, "0.336"),
}


def main() -> None:
    parse(__doc__)
    paths = need(*(f"letor_ohsumed/querylevelnorm_S{k}.txt.gz" for k in range(1, 6)))
    parts = [read(path) for path in paths]
    n_rows, n_queries = sum(len(p[1]) for p in parts), sum(len(np.unique(p[2])) for p in parts)
    print(f"{n_rows} documents, {n_queries} queries, {parts[0][0].shape[1]} features\n")
    table(["method", "error", "of each fold", "alphas, log₂", "p", "P1"], rows(parts))


def read(path) -> Part:
    data = load_letor(path)
    X = data.data.toarray() if hasattr(data.data, "toarray") else data.data
    return X, (data.target == 2).astype(float), np.asarray(data.qid)


def rows(parts: list[Part]) -> Iterator[list[str]]:
    reference: Array | None = None
    for name, (ranker, within, theirs) in METHODS.items():
        errors, alphas, by_query = [], [], []
        for k in range(5):  # fold k+1 of FOLDS.txt: three parts, then one, then one
            train = join([parts[(k + i) % 5] for i in range(3)])
            choose, test = parts[(k + 3) % 5], parts[(k + 4) % 5]
            tested = [choose[0], test[0]]
            if ranker is None:
                candidates = regressions(name, train, tested)
            else:
                candidates = predictions(ranker, within, train, tested)
            on_fourth = [pairwise_error(choose[1], f, qid=choose[2]) for f in candidates[0]]
            best = len(on_fourth) - 1 - int(np.argmin(on_fourth[::-1]))
            each = pairwise_error(test[1], candidates[1][best], qid=test[2], average=None)
            by_query.append(each)
            errors.append(np.nanmean(each))
            alphas.append(f"{np.log2(grid_of(ranker)[best]):.0f}")
        found = np.concatenate(by_query)
        found = found[~np.isnan(found)]
        reference = found if reference is None else reference
        p = "" if found is reference else f"{wilcoxon(found, reference).pvalue:.2f}"
        each_fold = " ".join(f"{e:.3f}" for e in errors)
        yield [name, f"{np.mean(errors):.4f}", each_fold, " ".join(alphas), p, theirs]


def grid_of(ranker) -> Array:
    """All alphas, or every third for RankSVM."""
    return GRID[::3] if isinstance(ranker, RankSVM) else GRID


def join(parts: list[Part]) -> Part:
    X, y, qid = zip(*parts, strict=True)
    return np.concatenate(X), np.concatenate(y), np.concatenate(qid)


def predictions(ranker, within: bool, train: Part, tested: list[Array]) -> list[list[Array]]:
    """Scores of each tested part for every alpha."""
    X, y, qid = train
    path = regularization_path(ranker, X, y, qid=qid if within else None, alphas=grid_of(ranker))
    return [list(path.predict(Z)) for Z in tested]


def regressions(name: str, train: Part, tested: list[Array]) -> list[list[Array]]:
    """The same for RLS regression."""
    labels = 2 * train[1] - 1 if "±1" in name else train[1]
    fits = [Ridge(a, fit_intercept="with" in name).fit(train[0], labels) for a in GRID]
    return [[fit.predict(Z) for fit in fits] for Z in tested]


if __name__ == "__main__":
    main()
