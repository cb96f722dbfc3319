"""P1 §4.3: conjugate gradients on all of Reuters, a linear kernel, one binary task.

    python benchmarks/papers/p1_conjugate_gradients.py

The paper: "more than 12000 inputs and features", over 23 million preferences, a couple of hundred
iterations, a few seconds. Here: all documents of the ModApte split, tf-idf, the topic acq, every
pair of a positive and a negative document (``ties="drop"``). Neither tolerance nor alpha is given
there. P1 §4.2 proposes to train a RankSVM with a kernel as a linear one on the empirical kernel map
(the rows of the Cholesky factor of K): both are fitted to 500 documents.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from _common import parse, table
from _reuters import draw, read
from scipy.linalg import eigh
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import RankRLS, RankSVM
from rankrls.exceptions import FeatureScaleWarning


def main() -> None:
    parse(__doc__)
    warnings.simplefilter("ignore", FeatureScaleWarning)
    texts, labels, names = read()
    y = labels[:, names.index("acq")]
    X = TfidfVectorizer().fit_transform(texts)
    print(f"{X.shape[0]:,} × {X.shape[1]:,}, {y.sum():.0f} positive\n")
    rows = []
    for alpha in (30.0, 100.0, 1000.0):
        for tol in (1e-3, 1e-6):
            ranker = RankRLS(alpha, ties="drop", solver="cg", tol=tol, max_iter=1000)
            start = time.process_time()
            ranker.fit(X, y)
            took = time.process_time() - start
            error = f"{1 - ranker.score(X, y):.5f}"
            rows.append([f"{alpha:g}", f"{tol:g}", f"{ranker.n_pairs_:,}", f"{ranker.n_iter_}"])
            rows[-1] += [f"{took:.2f}", error]
    table(["alpha", "tol", "pairs", "iterations", "s", "training error"], rows)

    some = draw(labels, 500, 0)
    K = rbf_kernel(X[some])
    values, V = eigh(K)
    kept = values > 1e-12 * values[-1]
    F = V[:, kept] * np.sqrt(values[kept])  # F Fᵀ = K: rows of the empirical kernel map
    by_kernel = RankSVM(1.0, kernel="precomputed", tol=1e-8).fit(K, y[some])
    by_map = RankSVM(1.0, tol=1e-8).fit(F, y[some])
    difference = by_kernel.predict(K) - by_map.predict(F)
    print(f"RankSVM, kernel and empirical kernel map: scores differ by {np.ptp(difference):.1e}")


if __name__ == "__main__":
    main()
