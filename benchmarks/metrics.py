"""Speed of the pairwise metrics: ratios against SciPy and NumPy in one run.

Run as ``python benchmarks/metrics.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from rankrls.metrics import pairwise_error

Row = tuple[str, float, str, float, float, float]


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Return the shortest of several wall times."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def rows(n: int = 10**6, n_queries: int = 10**5, repeats: int = 5) -> list[Row]:
    """Return (name, ours_seconds, reference_name, reference_seconds, ratio, target)."""
    rng = np.random.default_rng(0)
    y, score = rng.normal(size=n), rng.normal(size=n)
    graded, qid = rng.integers(0, 6, n).astype(float), rng.integers(0, n_queries, n)
    kendall, lexsort = "scipy.stats.kendalltau", "np.lexsort((score, qid))"
    table = [
        ("1 query, continuous", lambda: pairwise_error(y, score), kendall,
         lambda: kendalltau(y, score), 2.0),
        ("1 query, 6 levels", lambda: pairwise_error(graded, score), kendall,
         lambda: kendalltau(graded, score), 2.0),
        (f"{n_queries} queries, 6 levels", lambda: pairwise_error(graded, score, qid=qid), lexsort,
         lambda: np.lexsort((score, qid)), 4.0),
        (f"{n_queries} queries, continuous", lambda: pairwise_error(y, score, qid=qid), lexsort,
         lambda: np.lexsort((score, qid)), 4.0),
    ]  # fmt: skip
    result = []
    for name, ours, reference_name, reference, target in table:
        a, b = seconds(ours, repeats), seconds(reference, repeats)
        result.append((name, a, reference_name, b, a / b, target))
    return result


def main() -> None:
    print(
        f"{'10^6 rows':28} {'rankrls s':>10}  {'reference':26} {'s':>7} {'ratio':>6} {'target':>7}"
    )
    for name, ours, reference, theirs, ratio, target in rows():
        print(f"{name:28} {ours:10.3f}  {reference:26} {theirs:7.3f} {ratio:6.2f} {target:7.1f}")


if __name__ == "__main__":
    main()
