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


def print_report(title: str, folds: list[Fold], runs: list[Run], against: list[str]) -> None:
    """Quality over all test queries, cost of a fold on average, paired tests."""
    y = np.concatenate([fold.test.y for fold in folds])
    qid = np.concatenate([fold.test.qid for fold in folds])
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    print(f"\n### {title}: {len(folds)} fold(s), {len(np.unique(qid))} test queries\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---|" + "---:|" * (len(COLUMNS) - 1))
    scores = {}
    for name, given in by_method.items():
        failures = sorted({run.failure for run in given if run.failure})
        if failures:
            print(f"| {name} | {'; '.join(failures)} {'| ' * (len(COLUMNS) - 1)}")
            continue
        scores[name] = np.concatenate([run.scores for run in given])
        print(f"| {name} | {' | '.join(_cells(y, scores[name], qid, given))} |")
    for peer in against:
        if peer in scores:
            _print_tests(y, qid, scores, peer)


def print_pooled(results: list[tuple[list[Fold], list[Run]]], against: list[str]) -> None:
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
    for peer in against:
        if peer in whole:
            _print_tests(np.concatenate(ys), np.concatenate(qids), whole, peer)


def _print_tests(
    y: np.ndarray, qid: np.ndarray, scores: dict[str, np.ndarray], against: str
) -> None:
    print(f"\nOur differences to {against}, 95% interval by query, permutation test:\n")
    print("| | NDCG@10 | p | MAP | p | pairwise accuracy | p |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, score in scores.items():
        if name.startswith("rankrls"):
            tests = [
                compare_rankers(y, score, scores[against], qid=qid, metric=metric, random_state=0)
                for metric in ("ndcg@10", "average_precision", "pairwise_accuracy")
            ]
            cells = [cell for test in tests for cell in (_interval(test), f"{test.p_value:.3g}")]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cells(y: np.ndarray, score: np.ndarray, qid: np.ndarray, runs: list[Run]) -> list[str]:
    def mean(fact: str) -> float:
        return float(np.mean([run.facts[fact] for run in runs]))

    peak = max(run.facts["peak"] for run in runs)
    extra = max(run.facts["peak"] - run.facts["before"] for run in runs)
    return [
        f"{ndcg(y, score, qid=qid, k=10, undefined='skip'):.4f}",
        f"{average_precision(y, score, qid=qid, undefined='skip'):.4f}",
        f"{pairwise_error(y, score, qid=qid):.4f}",
        f"{mean('all_cpu'):.2f}",
        f"{mean('fit_cpu'):.3f}",
        f"{peak:.0f}",
        f"{extra:.0f}",
    ]


def _interval(test: Any) -> str:
    low, high = test.confidence_interval
    return f"{test.difference:+.4f} [{low:+.4f}, {high:+.4f}]"
