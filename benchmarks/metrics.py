"""Speed of the pairwise metrics: against SciPy and NumPy, and growth with the number of rows.

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


def growth(n: int = 10**6) -> Iterator[Row]:
    """Ten times the rows should take little more than ten times as long."""
    rng = np.random.default_rng(0)
    y, score, weight = rng.normal(size=(3, 10 * n))
    qid = rng.integers(0, n, 10 * n)
    cases = {
        "one ranking": (y, score, {}),
        "queries of 10 rows": (y, score, {"qid": qid}),
        "6 levels": (np.round(y).clip(-2, 3), score, {}),
        "tied scores": (y.round(2), score.round(2), {}),
        "weights": (y, score, {"sample_weight": np.abs(weight)}),
    }
    for name, (labels, scores, options) in cases.items():
        some = {key: values[:n] for key, values in options.items()}
        yield compare(
            f"pairwise_error, {10 * n:,} rows, {name}",
            lambda labels=labels, scores=scores, options=options: pairwise_error(
                labels, scores, **options
            ),
            f"pairwise_error, {n:,} rows",
            lambda labels=labels, scores=scores, some=some: pairwise_error(
                labels[:n], scores[:n], **some
            ),
            12.0,
        )


def speed(quick: bool = False) -> Iterator[Row]:
    yield from rows(*((10**5, 10**4) if quick else ()))
    yield from growth(*((10**5,) if quick else ()))


if __name__ == "__main__":
    print_table(speed())
