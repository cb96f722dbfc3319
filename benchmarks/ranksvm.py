"""RankSVM: cost of a fit, growth with the number of rows, and kernels.

Run as ``python benchmarks/ranksvm.py`` (a few minutes and 2 GB of memory).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from text_data import make_text
from timing import Row, compare, print_table, seconds

from rankrls import RankRLS, RankSVM


def argsort_seconds(m: int) -> float:
    values = np.random.default_rng(1).standard_normal(m)
    return seconds(lambda: np.argsort(values, kind="stable"), 5)


def linear_data(m: int, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    return X, X @ rng.standard_normal(n) + rng.standard_normal(m)


def fit_rows(m: int = 128_000) -> Iterator[Row]:
    X, y = linear_data(m, 20)
    ranker = RankSVM(tol=1e-3)
    ours = seconds(lambda: ranker.fit(X, y), 2)
    name = f"fit {m:,} × 20, gap {ranker.gap_:.0e}"
    yield Row(name, ours, "np.argsort(kind='stable')", argsort_seconds(len(y)), 400.0)


def kernel_rows(m: int = 2000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, 20))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(m)
    kernel = {"kernel": "rbf", "gamma": 0.1}
    for alpha in (1.0, 100.0, 10_000.0):
        yield compare(
            f"RBF {m} rows, alpha {alpha:g}, gap 1e-3",
            lambda alpha=alpha: RankSVM(alpha, tol=1e-3, **kernel).fit(X, y),
            "RankRLS, dual",
            lambda alpha=alpha: RankRLS(alpha, solver="dual", **kernel).fit(X, y),
            3.0,
            repeats=2,
        )


def growth_table() -> None:
    """Seconds to a gap of 1e-3 against the number of rows, dense and sparse."""
    print("\nseconds (iterations) to a relative duality gap of 1e-3, real-valued scores")
    print(f"{'rows':>10} {'× 50 dense':>16} {'× 47,152 text':>16}")
    text, _ = make_text(512_000)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(text.shape[1])
    scores = text @ weights + 0.3 * rng.standard_normal(text.shape[0])
    for m in (8_000, 32_000, 128_000, 512_000):
        cells = []
        for X, y in (linear_data(m, 50), (text[:m], scores[:m])):
            ranker = RankSVM(alpha=m, tol=1e-3)
            start = time.perf_counter()
            ranker.fit(X, y)
            cells.append(f"{time.perf_counter() - start:.1f} ({ranker.n_iter_})")
        print(f"{m:10,} {cells[0]:>16} {cells[1]:>16}", flush=True)


def speed(quick: bool = False) -> Iterator[Row]:
    yield from fit_rows(16_000 if quick else 128_000)
    yield from kernel_rows(500 if quick else 2000)


if __name__ == "__main__":
    print_table(speed())
    growth_table()
