"""P4 Figure 1: how the training time of linear RankSVM grows with the rows, real-valued scores.

    python benchmarks/papers/p4_ranksvm.py [--most 512000]

The paper compares TreeRankSVM with SVMrank, a version that goes through all pairs, and PRSVM, and
gives two numbers: with 512,000 rows, 83 hours for SVMrank and 18 minutes for TreeRankSVM. Here:
California housing (cadata, 20,640 × 8, standardised, scores are prices), of which 4640 rows are for
testing; and generated data up to ``--most`` rows. RankRLS is for
comparison, and for the smallest sizes the loss over all pairs written out, by liblinear
(scikit-learn's LinearSVC on the differences of all pairs, hinge loss, C = 1/(2 alpha)).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from _common import need, parse, seconds, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from text_data import make_text

from rankrls import RankRLS, RankSVM
from rankrls.metrics import pairwise_error

SIZES = (500, 1000, 2000, 4000, 8000, 16000)
#: Most rows whose pairs are written out: half a million pairs.
WRITTEN = 1000


def main() -> None:
    options = parse(__doc__, most=512_000)
    warnings.simplefilter("ignore", ConvergenceWarning)
    header = ["rows", "pairs", "RankSVM, s", "iterations", "gap", "test error", "RankRLS, s"]
    table([*header, "test error", "all pairs written out, s", "test error"], rows(*housing()))
    print("seconds (iterations) to a relative duality gap of 1e-3\n")
    table(["rows", "× 50, dense", "× 47,152, text"], growth(options.most))


def growth(most: int) -> Iterator[list[str]]:
    """Generated data with real-valued scores, dense and sparse."""
    rng = np.random.default_rng(0)
    dense, text = rng.standard_normal((most, 50)), make_text(most)[0]
    tasks = [(X, X @ rng.standard_normal(X.shape[1])) for X in (dense, text)]
    noise = 0.3 * rng.standard_normal(most)
    for m in (m for m in (8_000, 32_000, 128_000, 512_000) if m <= most):
        cells = []
        for X, y in tasks:
            ranker = RankSVM(alpha=m, tol=1e-3)
            took = seconds(lambda: ranker.fit(X[:m], y[:m] + noise[:m]), 1)  # noqa: B023
            cells.append(f"{took:.1f} ({ranker.n_iter_})")
        yield [f"{m:,}", *cells]


def housing() -> tuple[np.ndarray, np.ndarray]:
    """Standardised features and prices, in random order."""
    (path,) = need("cadata/cal_housing.data.gz")
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    values = values[np.random.default_rng(0).permutation(len(values))]
    X, y = values[:, :-1], values[:, -1]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def rows(X: np.ndarray, y: np.ndarray) -> Iterator[list[str]]:
    X_test, y_test = X[16000:], y[16000:]

    def error(scores: np.ndarray) -> str:
        return f"{pairwise_error(y_test, scores):.4f}"

    for m in SIZES:
        ranker = RankSVM(alpha=float(m), tol=1e-3)
        took = seconds(lambda: ranker.fit(X[:m], y[:m]), 2)  # noqa: B023
        squares = RankRLS(alpha=float(m))
        plain = seconds(lambda: squares.fit(X[:m], y[:m]), 2)  # noqa: B023
        cells = [f"{m:,}", f"{ranker.n_pairs_:,}", f"{took:.3f}", str(ranker.n_iter_)]
        cells += [f"{ranker.gap_:.0e}", error(ranker.predict(X_test))]
        cells += [f"{plain:.4f}", error(squares.predict(X_test)), "", ""]
        if m <= WRITTEN:
            D = np.concatenate([X[i] - X[:i][y[:i] != y[i]] for i in range(m)])
            sign = np.concatenate([np.sign(y[i] - y[:i][y[:i] != y[i]]) for i in range(m)])
            svm = LinearSVC(loss="hinge", C=1 / (2 * m), fit_intercept=False, max_iter=10**5)
            cells[-2] = f"{seconds(lambda: svm.fit(D, sign), 1):.1f}"  # noqa: B023
            cells[-1] = error(X_test @ svm.coef_[0])
        yield cells


if __name__ == "__main__":
    main()
