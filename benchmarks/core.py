"""Speed of training: ratios against bare BLAS, SciPy and scikit-learn calls in one run.

Run as ``python benchmarks/core.py``. Where the peer RLScore can be imported (it has no release
for current Pythons and must be built from its repository), its times stand beside ours too.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigh
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, compare, print_table, seconds

from metrics import rows as metric_rows
from rankrls import RankRLS, regularization_path

ALPHAS = 2.0 ** np.arange(-15, 16)


def kernel_rows(m: int = 4000, n: int = 50) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    graded, qid = rng.integers(0, 5, m), np.arange(m) // 10
    ridge = seconds(lambda: KernelRidge(kernel="rbf").fit(X, y), 3)
    kernel = {"kernel": "rbf"}
    cases = {
        f"RBF {m}×{n}, one alpha": lambda: RankRLS(**kernel).fit(X, y),
        "  the same, queries of 10": lambda: RankRLS(**kernel).fit(X, y, qid=qid),
        "  the same, unit cost, 5 levels": lambda: RankRLS(cost="unit", **kernel).fit(X, graded),
    }
    for name, run in cases.items():
        yield Row(name, seconds(run, 3), "KernelRidge.fit", ridge, 1.5)
    K = rbf_kernel(X)
    yield compare(
        f"RBF {m}×{n}, 31 alphas, all coefficients",
        lambda: regularization_path(RankRLS(**kernel), X, y, alphas=ALPHAS),
        f"scipy.linalg.eigh({m})",
        lambda: eigh(K),
        1.3,
        repeats=1,
    )


def linear_rows(m: int = 100_000, n: int = 50) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    graded, qid = rng.integers(0, 5, m), np.repeat(np.arange(m // 100), 100)
    shuffled = rng.permutation(m)
    X_s, y_s, qid_s = X[shuffled], y[shuffled], qid[shuffled]
    product = seconds(lambda: X.T @ X, 15)
    cases = {
        f"linear {m}×{n}, queries of 100": (lambda: RankRLS().fit(X, y, qid=qid), 4.0),
        "  the same, rows in random order": (lambda: RankRLS().fit(X_s, y_s, qid=qid_s), None),
        "  the same, unit cost, 5 levels": (
            lambda: RankRLS(cost="unit").fit(X, graded, qid=qid),
            None,
        ),
        "  the same, one query": (lambda: RankRLS().fit(X, y), None),
    }
    for name, (run, target) in cases.items():
        yield Row(name, seconds(run, 7), "X.T @ X", product, target)


def nystroem_rows(m: int = 10_000, n: int = 50, r: int = 1000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    basis = rng.choice(m, r, replace=False)

    def reference() -> None:
        block = rbf_kernel(X, X[basis])
        eigh(block.T @ block)

    ranker = RankRLS(kernel="rbf", basis=basis)
    yield compare(
        f"Nyström {m}×{n}, {r} basis vectors, 31 alphas",
        lambda: regularization_path(ranker, X, y, alphas=ALPHAS),
        f"kernel block + Gram + eigh({r})",
        reference,
        1.5,
        repeats=3,
    )


def import_rows() -> Iterator[Row]:
    """The package alone imports nothing; with its first name come NumPy, SciPy, scikit-learn."""

    def run(code: str) -> float:
        command = [sys.executable, "-c", code]
        return seconds(lambda: subprocess.run(command, check=True), 5, time.perf_counter)

    reference = "import sklearn.linear_model"
    theirs = run(reference)
    for ours in ("import rankrls", "from rankrls import RankRLS"):
        yield Row(ours, run(ours), reference, theirs, 1.3)


def peer_rows(sizes: tuple[int, ...] = (1000, 2000, 4000), m: int = 100_000) -> Iterator[Row]:
    """RLScore's global and query-wise rankers, if it is there."""
    if importlib.util.find_spec("rlscore") is None:
        print("RLScore cannot be imported: no peer rows")
        return
    from rlscore.learner import GlobalRankRLS, QueryRankRLS

    rng = np.random.default_rng(0)
    for size in sizes:
        X, y = rng.standard_normal((size, 50)), rng.standard_normal(size)
        qid = np.arange(size) // 10
        options = {"kernel": "GaussianKernel", "gamma": 1 / 50, "regparam": 1.0}
        yield compare(
            f"RBF {size}×50, one ranking",
            lambda X=X, y=y: RankRLS(kernel="rbf").fit(X, y),
            "RLScore GlobalRankRLS",
            lambda X=X, y=y, o=options: GlobalRankRLS(X, y, **o),
            repeats=1,
        )
        yield compare(
            f"RBF {size}×50, queries of 10",
            lambda X=X, y=y, q=qid: RankRLS(kernel="rbf").fit(X, y, qid=q),
            "RLScore QueryRankRLS",
            lambda X=X, y=y, q=qid, o=options: QueryRankRLS(X, y, q, **o),
            repeats=1,
        )
    X, y = rng.standard_normal((m, 50)), rng.standard_normal(m)
    qid = np.arange(m) // 100
    yield compare(
        f"linear {m}×50, queries of 100",
        lambda: RankRLS().fit(X, y, qid=qid),
        "RLScore QueryRankRLS",
        lambda: QueryRankRLS(X, y, qid, regparam=1.0),
        repeats=3,
    )


def speed(quick: bool = False) -> Iterator[Row]:
    yield from linear_rows(20_000 if quick else 100_000)
    yield from kernel_rows(1000 if quick else 4000)
    yield from nystroem_rows(*((3000, 50, 300) if quick else ()))
    yield from import_rows()
    yield from peer_rows(*(((1000,), 20_000) if quick else ()))


if __name__ == "__main__":
    print_table(row for group in (speed, metric_rows) for row in group())
