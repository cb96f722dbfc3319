"""Speed of the pairwise metrics: ratios against SciPy and NumPy in one run.

Run as ``python benchmarks/metrics.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.stats import kendalltau
from timing import Row, compare, print_table

from rankrls.metrics import pairwise_error


def rows(n: int = 10**6, n_queries: int = 10**5) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    y, score = rng.normal(size=n), rng.normal(size=n)
    graded, qid = rng.integers(0, 6, n).astype(float), rng.integers(0, n_queries, n)
    kendall, lexsort = "scipy.stats.kendalltau", "np.lexsort((score, qid))"
    for kind, labels in (("continuous", y), ("6 levels", graded)):
        yield compare(
            f"pairwise_error, {n:,} rows, {kind}",
            lambda labels=labels: pairwise_error(labels, score),
            kendall,
            lambda labels=labels: kendalltau(labels, score),
            2.0,
        )
        yield compare(
            f"  the same in {n_queries:,} queries",
            lambda labels=labels: pairwise_error(labels, score, qid=qid),
            lexsort,
            lambda: np.lexsort((score, qid)),
            4.0,
        )


def speed(quick: bool = False) -> Iterator[Row]:
    yield from rows(*((10**5, 10**4) if quick else ()))


if __name__ == "__main__":
    print_table(speed())
