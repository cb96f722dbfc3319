"""What the benchmarks share: the shortest of several runs, and a table of ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "compare", "print_table", "seconds"]


@dataclass(frozen=True)
class Row:
    """Our time beside a reference's, in the same run; the ratio is ours over theirs."""

    name: str
    ours: float
    reference: str
    theirs: float
    target: float | None = None

    @property
    def ratio(self) -> float:
        """How many times as long we take."""
        return self.ours / self.theirs


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The shortest wall time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def compare(
    name: str,
    ours: Callable[[], Any],
    reference: str,
    theirs: Callable[[], Any],
    target: float | None = None,
    repeats: int = 5,
) -> Row:
    """Time both, one after the other."""
    return Row(name, seconds(ours, repeats), reference, seconds(theirs, repeats), target)


def print_table(rows: Iterable[Row]) -> None:
    print(f"{'':46} {'ours s':>9}  {'reference':34} {'s':>9} {'ratio':>7} {'target':>7}")
    for row in rows:
        target = "" if row.target is None else f"{row.target:7.2f}"
        print(
            f"{row.name:46} {row.ours:9.4f}  {row.reference:34} {row.theirs:9.4f} "
            f"{row.ratio:7.2f} {target:>7}",
            flush=True,
        )
