"""Tables of the comparison with peers, in Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peer_data import Fold

from rankrls.metrics import average_precision, compare_rankers, ndcg, pairwise_error

__all__ = ["Run", "print_pooled", "print_report"]

COLUMNS = (
    "",
    "NDCG@10",
    "MAP",
    "pairwise error",
    "CPU s, choose and fit",
    "CPU s, fit",
    "peak MiB",
    "over data",
)
#: Digits of the figures in the columns after the first.
DIGITS = (4, 4, 4, 2, 3, 0, 0)


@dataclass(frozen=True)
class Run:
    """A method on a fold: scores of the test rows and what they cost, or why there are none."""

    method: str
    fold: str
    scores: np.ndarray | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    def __str__(self) -> str:
        facts = self.facts
        cost = self.failure or f"{facts['all_cpu']:.1f} s {facts['chosen']}"
        return f"{self.fold} {self.method}: {cost}"


def print_report(
    title: str, folds: list[Fold], runs: list[Run], against: list[str]
) -> dict[str, Any]:
    """Quality over all test queries, cost of a fold on average, paired tests.

    The figures are returned too, by method, without those that could not run.
    """
    y = np.concatenate([fold.test.y for fold in folds])
    qid = np.concatenate([fold.test.qid for fold in folds])
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    print(f"\n### {title}: {len(folds)} fold(s), {len(np.unique(qid))} test queries\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---|" + "---:|" * (len(COLUMNS) - 1))
    scores, figures = {}, {}
    for name, given in by_method.items():
        failures = sorted({run.failure for run in given if run.failure})
        if failures:
            print(f"| {name} | {'; '.join(failures)} {'| ' * (len(COLUMNS) - 1)}")
            continue
        scores[name] = np.concatenate([run.scores for run in given])
        figures[name] = _figures(y, scores[name], qid, given)
        cells = [f"{value:.{d}f}" for value, d in zip(figures[name].values(), DIGITS, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")
    if (ours := scores.get("rankrls AutoRanker")) is not None:
        empty = int(np.isnan(ndcg(y, ours, qid=qid, average=None)).sum())
        three = (f"{ndcg(y, ours, qid=qid, k=10, undefined=how):.4f}" for how in ("skip", 0, 1))
        print(
            f"\nNDCG@10 of AutoRanker with the {empty} queries without a relevant row left out (as"
        )
        print(f"above), as 0 (LETOR) and as 1 (LightGBM): {', '.join(three)}")
    for peer in against:
        if peer in scores:
            _print_tests(y, qid, scores, peer)
    return {"folds": len(folds), "queries": len(np.unique(qid)), "methods": figures}


def print_pooled(results: list[tuple[list[Fold], list[Run]]], against: list[str]) -> dict[str, Any]:
    """Paired tests over the test queries of all sets together, of what ran on all of them."""
    ys, qids, scores = [], [], {}
    first = 0
    for folds, runs in results:
        y = np.concatenate([fold.test.y for fold in folds])
        qid = np.concatenate([fold.test.qid for fold in folds])
        number = np.unique(qid, return_inverse=True)[1]
        ys.append(y)
        qids.append(first + number)
        first += int(number.max()) + 1
        by_method: dict[str, list[Run]] = {}
        for run in runs:
            by_method.setdefault(run.method, []).append(run)
        for name, given in by_method.items():
            if all(run.scores is not None for run in given):
                scores.setdefault(name, []).append(np.concatenate([run.scores for run in given]))
    whole = {
        name: np.concatenate(parts) for name, parts in scores.items() if len(parts) == len(results)
    }
    print(f"\n### All sets together: {first} test queries")
    tests = {
        peer: _print_tests(np.concatenate(ys), np.concatenate(qids), whole, peer)
        for peer in against
        if peer in whole
    }
    return {"queries": first, "tests": tests}


def _print_tests(
    y: np.ndarray, qid: np.ndarray, scores: dict[str, np.ndarray], against: str
) -> dict[str, Any]:
    """Print a line for each of our rankers; differences and p-values are returned."""
    print(f"\nOur differences to {against}, 95% interval by query, permutation test:\n")
    print("| | NDCG@10 | p | MAP | p | pairwise accuracy | p |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    found = {}
    for name, score in scores.items():
        if name.startswith("rankrls"):
            tests = {
                metric: compare_rankers(
                    y, score, scores[against], qid=qid, metric=metric, random_state=0
                )
                for metric in ("ndcg@10", "average_precision", "pairwise_accuracy")
            }
            cells = [c for t in tests.values() for c in (_interval(t), f"{t.p_value:.3g}")]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            found[name] = {
                metric: {"difference": test.difference, "p": test.p_value}
                for metric, test in tests.items()
            }
    return found


def _figures(
    y: np.ndarray, score: np.ndarray, qid: np.ndarray, runs: list[Run]
) -> dict[str, float]:
    def mean(fact: str) -> float:
        return float(np.mean([run.facts[fact] for run in runs]))

    return {
        "ndcg@10": ndcg(y, score, qid=qid, k=10, undefined="skip"),
        "map": average_precision(y, score, qid=qid, undefined="skip"),
        "pairwise error": pairwise_error(y, score, qid=qid),
        "cpu": mean("all_cpu"),
        "fit cpu": mean("fit_cpu"),
        "peak": max(run.facts["peak"] for run in runs),
        "over data": max(run.facts["peak"] - run.facts["before"] for run in runs),
    }


def _interval(test: Any) -> str:
    low, high = test.confidence_interval
    return f"{test.difference:+.4f} [{low:+.4f}, {high:+.4f}]"
