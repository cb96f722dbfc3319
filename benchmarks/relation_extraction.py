"""Interactions of proteins from sentences: the all-paths graph kernel end to end (P4 §4).

    python benchmarks/relation_extraction.py                        # LLL, a minute
    python benchmarks/relation_extraction.py --corpus AImed
    python benchmarks/relation_extraction.py --dependence           # folds of documents or of pairs

Task: every pair of proteins named in a sentence; those that the sentence states to interact should
come first, in one ranking of all pairs. Documents are assigned at random to ten folds; AUC and F
are computed on every fold and averaged, ± is the standard deviation over folds. (A fold of LLL may
lack one kind of pairs, with some seeds: it then has no AUC and is left out of that mean.)

Choices:

- tokens and parse: "split" (the Charniak-Lease parse with tokens split at entity borders);
- graphs: ``sentence_graph`` with its defaults (0.9 on shortest paths and for word order, 0.3
  elsewhere), candidates in the order of the file, text as it is (case kept), self-interactions out;
- ``gather="max"``, unit length. The kernel of two graphs does not depend on others, so that
  it is computed once for the corpus;
- RankRLS, all pairs with ties kept, ``query_weighting="size"``: ridge regression with a free
  intercept and the penalty alpha;
- alpha from 2^-6 … 2^6: exact leave-document-out on the training folds, mean AUC of documents
  that have both kinds of pairs. "cg" chooses by a fifth of the training documents instead;
- basis vectors (Nyström): drawn at random among training rows, less those that depend on others
  (the same sentence twice); those of a held-out document leave the basis with it;
- threshold for F: the best one for a fifth of the training documents and a model of the others
  with the chosen alpha, scores shifted to mean zero on what it was trained on, as test scores are.

``--dependence`` repeats P4 §3-4: pairs of one document, or even of one sentence, depend on each
other, so that folds of pairs drawn at random give too optimistic an AUC (alpha 1, five seeds).
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.linalg import lapack
from sklearn.metrics import precision_recall_curve, roc_auc_score
from timing import need, parse

from rankrls import RankRLS, RankRLSCV
from rankrls.graph_kernels import AllPathsGraphFeatures, iter_interaction_corpus
from rankrls.model_selection import holdout_predict

PUBLISHED = {"LLL": (83.4, 76.8), "AImed": (84.8, 56.4)}
ALPHAS = 2.0 ** np.arange(-6, 7)
LOSS = {"query_weighting": "size"}


def main() -> None:
    methods = ["cg", "nystroem", "dual"]
    options = parse(__doc__, corpus="LLL", methods=methods, basis=4000, seed=0, dependence=False)
    (path,) = need(f"ppi_corpora/{options.corpus}-learning-format.xml.gz")
    print("{}: published AUC {}, F {}".format(options.corpus, *PUBLISHED[options.corpus]))
    warnings.simplefilter("ignore", UserWarning)  # best alpha at the border of the grid
    study = Study(path, options.seed)
    if options.dependence:
        study.dependence()
        return
    for method in options.methods:
        study.run(method, options.basis)


class Study:
    """A corpus as kernel matrix, features and labels, and what is measured on it."""

    def __init__(self, path: Path, seed: int) -> None:
        start = time.perf_counter()
        graphs, y, document = [], [], []
        for number, one in enumerate(iter_interaction_corpus(path, parser="split_parse")):
            for sentence in one.sentences:
                for pair in sentence.pairs:
                    graphs.append(sentence.graph(pair))
                    y.append(float(bool(pair.interaction)))
                    document.append(number)
        read = time.perf_counter()
        X = AllPathsGraphFeatures("max", normalize=True).fit_transform(graphs)
        X = X / np.sqrt((X.data**2).sum() / X.shape[0])  # mean squared length one: one grid for all
        made = time.perf_counter()
        self.X, self.y, self.document = sp.csr_array(X), np.array(y), np.array(document)
        self.K = (self.X @ self.X.T).toarray()
        self.rng = np.random.default_rng(seed)
        named = self.rng.permutation(np.unique(self.document))
        self.folds = [np.flatnonzero(np.isin(self.document, part)) for part in fold_list(named, 10)]
        print(
            f"{len(graphs)} pairs, {int(self.y.sum())} interact, {len(named)} documents, "
            f"{self.X.shape[1]} features, {self.X.nnz // len(graphs)} a pair; reading and graphs "
            f"{read - start:.0f} s, features {made - read:.0f} s, kernel "
            f"{time.perf_counter() - made:.0f} s",
            flush=True,
        )

    def dependence(self) -> None:
        """Mean AUC of ten folds of documents, and of ten folds of pairs drawn at random."""
        ranker = RankRLS(1.0, kernel="precomputed", query_weighting="size")
        units = {"documents": self.document, "pairs": np.arange(len(self.y))}
        folds = [
            np.flatnonzero(np.isin(unit, part))
            for unit in units.values()
            for seed in range(5)
            for part in fold_list(np.random.default_rng(seed).permutation(np.unique(unit)), 10)
        ]
        auc = [
            roc_auc_score(self.y[fold], f) if len(set(self.y[fold])) == 2 else np.nan
            for fold, f in zip(folds, holdout_predict(ranker, self.K, self.y, folds), strict=True)
        ]
        for name, means in zip(units, np.nanmean(np.reshape(auc, (2, 5, 10)), axis=2), strict=True):
            print(f"folds of {name}: AUC {means.mean():.3f} ± {means.std(ddof=1):.3f}")

    def run(self, method: str, n_basis: int) -> None:
        """Cross-validate one way of learning and print a line."""
        start = time.perf_counter()
        results = []
        for test in self.folds:
            train = np.setdiff1d(np.arange(len(self.y)), test)
            basis = self.basis(train, n_basis) if method == "nystroem" else None
            ranker, alpha = self.choose(method, train, basis)
            threshold = self.threshold(method, train, basis, alpha)
            scores = self.scores(ranker, train, test)
            both = len(np.unique(self.y[test])) == 2
            auc = roc_auc_score(self.y[test], scores) if both else np.nan
            results.append([auc, f_score(self.y[test], scores, threshold)])
            print(f"{method}: AUC, F of a fold: {results[-1]}, alpha {alpha:g}", file=sys.stderr)
        (auc, f), spread = 100 * np.nanmean(results, axis=0), 100 * np.nanstd(results, axis=0)
        name = f"{method}, {n_basis} basis vectors" if method == "nystroem" else method
        print(
            f"{name:32} AUC {auc:.1f} ± {spread[0]:.1f}  F {f:.1f} ± {spread[1]:.1f}  "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )

    def choose(self, method: str, train: Any, basis: Any) -> tuple[Any, float]:
        """A ranker with alpha from the training rows."""
        document = self.document[train]
        if method == "cg":
            held = self.fifth(document)
            rest, val = train[~held], train[held]
            ranker = RankRLSCV(ALPHAS, solver="cg", tol=1e-5, **LOSS)
            ranker.fit(self.X[rest], self.y[rest], eval_set=(self.X[val], self.y[val]))
            return self.fit(method, train, None, ranker.alpha_), ranker.alpha_
        tests = [np.flatnonzero(document == one) for one in np.unique(document)]
        tests = [rows for rows in tests if len(np.unique(self.y[train[rows]])) == 2]
        splits = [(np.setdiff1d(np.arange(len(train)), rows), rows) for rows in tests]
        ranker = RankRLSCV(ALPHAS, kernel="precomputed", basis=basis, cv=splits, **LOSS)
        ranker.fit(self.K[np.ix_(train, train)], self.y[train])
        return ranker, ranker.alpha_

    def fit(self, method: str, train: Any, basis: Any, alpha: float) -> Any:
        """A ranker for one alpha."""
        if method == "cg":
            ranker = RankRLS(alpha, solver="cg", tol=1e-5, **LOSS)
            return ranker.fit(self.X[train], self.y[train])
        ranker = RankRLS(alpha, kernel="precomputed", basis=basis, **LOSS)
        return ranker.fit(self.K[np.ix_(train, train)], self.y[train])

    def scores(self, ranker: Any, train: Any, test: Any) -> Any:
        """Of the test rows, shifted to mean zero on the training rows."""
        if ranker.solver_ == "cg":
            inputs = self.X[test], self.X[train]
        else:
            inputs = self.K[np.ix_(test, train)], self.K[np.ix_(train, train)]
        return ranker.predict(inputs[0]) - ranker.predict(inputs[1]).mean()

    def threshold(self, method: str, train: Any, basis: Any, alpha: float) -> float:
        """The threshold of the best F for a fifth of the training documents."""
        held = self.fifth(self.document[train])
        if basis is not None:  # row numbers among the rows that stay
            basis = (np.cumsum(~held) - 1)[basis[~held[basis]]]
        ranker = self.fit(method, train[~held], basis, alpha)
        scores = self.scores(ranker, train[~held], train[held])
        precision, recall, thresholds = precision_recall_curve(self.y[train[held]], scores)
        f = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        return float(thresholds[np.argmax(f[:-1])])

    def fifth(self, document: Any) -> Any:
        """Rows of a fifth of the documents, drawn at random."""
        return np.isin(document, fold_list(self.rng.permutation(np.unique(document)), 5)[0])

    def basis(self, train: Any, n_basis: int) -> Any:
        """Positions within ``train`` of basis vectors of which none depends on the others."""
        drawn = self.rng.permutation(len(train))[:n_basis]
        K = self.K[np.ix_(train[drawn], train[drawn])]
        _, pivots, rank, _ = lapack.dpstrf(K, lower=1, tol=1e-8)
        return np.sort(drawn[pivots[:rank] - 1])


def fold_list(items: Any, n: int) -> list[Any]:
    return [items[start::n] for start in range(n)]


def f_score(y: Any, scores: Any, threshold: float) -> float:
    found = scores >= threshold
    hits = float((found * y).sum())
    return 2 * hits / (found.sum() + y.sum()) if hits else 0.0


if __name__ == "__main__":
    main()
