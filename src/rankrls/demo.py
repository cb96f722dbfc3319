"""A first look: train a ranker on generated search data and compare it on unseen queries.

Run it with ``python -m rankrls.demo`` or ``make demo``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from rankrls import RankRLS, __version__
from rankrls.datasets import make_ranking
from rankrls.metrics import compare_rankers, ndcg, pairwise_error

__all__ = ["main"]

ALPHA = 100.0


def main() -> None:
    """Print a data summary, the fitted model, and a table of held-out errors."""
    data = make_ranking(n_queries=400, n_docs=(10, 80), n_features=30, random_state=0)
    X, y, qid = data.data, data.target, data.qid
    test = qid >= 300  # the last hundred queries are never seen in training
    print(f"rankrls {__version__}: learning to rank search results\n")
    _describe(y, qid, test)
    print("\nTraining on", len(np.unique(qid[~test])), "queries …\n")

    started = time.perf_counter()
    ranker = RankRLS(ALPHA, query_weighting="size").fit(X[~test], y[~test], qid=qid[~test])
    seconds = time.perf_counter() - started
    print(
        f"  RankRLS(alpha={ALPHA:g}, query_weighting='size'): solver '{ranker.solver_}', "
        f"{ranker.n_pairs_:,} pairs, {seconds:.3f} s"
    )
    started = time.perf_counter()
    ridge = Ridge(ALPHA).fit(X[~test], y[~test])
    ridge_seconds = time.perf_counter() - started
    print(f"  Ridge(alpha={ALPHA:g}), plain regression of the labels: {ridge_seconds:.3f} s\n")

    random = np.random.default_rng(0).standard_normal(int(test.sum()))
    scores = {
        "RankRLS": ranker.predict(X[test]),
        "plain regression": ridge.predict(X[test]),
        "random order": random,
    }
    _table(scores, y[test], qid[test])
    comparison = compare_rankers(
        y[test],
        scores["RankRLS"],
        scores["plain regression"],
        qid=qid[test],
        metric="ndcg@10",
        random_state=0,
    )
    print(
        f"\nNDCG@10 of RankRLS less that of plain regression: {comparison.difference:+.3f} "
        f"(paired permutation test over the {comparison.n_queries} queries with a relevant "
        f"document: "
        f"p = {comparison.p_value:.2g})"
    )
    print(
        "\nThe data are generated: queries differ in how high their labels are, which says\n"
        "nothing about the order within a query. A regression spends its effort on that\n"
        "difference; a ranker compares documents of the same query only.\n"
        "Next: the examples in README.md."
    )


def _describe(y: Any, qid: Any, test: Any) -> None:
    sizes = np.bincount(qid)
    levels = ", ".join(f"{level:g}: {np.mean(y == level):.0%}" for level in np.unique(y))
    print(f"  documents  {len(y):,} in {len(sizes)} queries of {sizes.min()} to {sizes.max()}")
    print(f"  labels     {levels}")
    print(f"  held out   {test.sum():,} documents of {len(np.unique(qid[test]))} queries")


def _table(scores: dict[str, Any], y: Any, qid: Any) -> None:
    metrics: dict[str, Callable[..., Any]] = {
        "pairwise error": lambda s: pairwise_error(y, s, qid=qid),
        "NDCG@10": lambda s: ndcg(y, s, qid=qid, k=10, undefined="skip"),
    }
    print("  on held-out queries " + "".join(f"{name:>16}" for name in metrics))
    for name, score in scores.items():
        print(f"  {name:<20}" + "".join(f"{metric(score):16.3f}" for metric in metrics.values()))


if __name__ == "__main__":
    main()
