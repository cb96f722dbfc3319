"""What the benchmarks share: the shortest of several runs, rows of ratios, and their tables.

A benchmark module hands its rows over by a function ``speed(quick=False)`` that yields `Row`s;
``quick`` takes small sizes. `run_all.py` collects them, `guard.py` keeps an eye on a few.

Two environment variables change how everything is timed, so that modules need no options of their
own: ``BENCH_CLOCK=cpu`` takes seconds of the processor instead of the clock's (for one thread, on a
machine that others use too), ``BENCH_REPEATS=3`` is the least number of runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DATA", "Row", "compare", "markdown", "print_table", "seconds", "the_clock"]

Clock = Callable[[], float]

#: The folder of the public data sets (docs/data.md).
DATA = Path(os.environ.get("RANKRLS_DATA", Path(__file__).resolve().parents[1] / "data"))


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

    @property
    def missed(self) -> bool:
        """Whether there is a target and the ratio is above it."""
        return self.target is not None and self.ratio > self.target

    @property
    def kind(self) -> str:
        """What the reference is: "bare" calls of NumPy and SciPy, a peer's name, or "rankrls"."""
        for start, kind in _KINDS.items():
            if self.reference.startswith(start):
                return kind
        return "bare"


#: How references begin that are not bare calls of BLAS, LAPACK, NumPy or SciPy.
_KINDS = {
    "RLScore": "RLScore",
    "KernelRidge": "scikit-learn",
    "load_svmlight_file": "scikit-learn",
    "import sklearn": "scikit-learn",
    "RankRLS": "rankrls",
    "leave_pair_out_score": "rankrls",
    "pairwise_error": "rankrls",
    "smallest alpha": "rankrls",
    "fit for": "rankrls",
    "text: iter_letor": "rankrls",
}


def the_clock() -> Clock:
    """What benchmarks are timed by: the wall clock, or seconds of the processor."""
    return time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


def _repeats(repeats: int) -> int:
    return max(repeats, int(os.environ.get("BENCH_REPEATS", "1")))


def _timed(run: Callable[[], Any], clock: Clock) -> float:
    start = clock()
    run()
    return clock() - start


def seconds(run: Callable[[], Any], repeats: int = 5, clock: Clock | None = None) -> float:
    """The shortest time of several runs."""
    clock = clock or the_clock()
    return min(_timed(run, clock) for _ in range(_repeats(repeats)))


def compare(
    name: str,
    ours: Callable[[], Any],
    reference: str,
    theirs: Callable[[], Any],
    target: float | None = None,
    repeats: int = 5,
) -> Row:
    """Time both by turns, so that what disturbs the machine disturbs both."""
    clock = the_clock()
    times = [(_timed(ours, clock), _timed(theirs, clock)) for _ in range(_repeats(repeats))]
    best, other = (min(column) for column in zip(*times, strict=True))
    return Row(name, best, reference, other, target)


def print_table(rows: Iterable[Row]) -> None:
    print(f"{'':46} {'ours s':>9}  {'reference':34} {'s':>9} {'ratio':>7} {'target':>7}")
    for row in rows:
        target = "" if row.target is None else f"{row.target:7.2f}"
        print(
            f"{row.name:46} {row.ours:9.4f}  {row.reference:34} {row.theirs:9.4f} "
            f"{row.ratio:7.2f} {target:>7}",
            flush=True,
        )


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """Lines of the same table for a page; a ratio above its target is set in bold."""
    yield "| | rankrls, s | reference | reference, s | ratio | target |"
    yield "|---|---:|---|---:|---:|---:|"
    for row in rows:
        name = f"… {row.name.strip()}" if row.name.startswith("  ") else row.name
        ratio = f"**{row.ratio:.2f}**" if row.missed else f"{row.ratio:.2f}"
        target = "" if row.target is None else f"{row.target:.2f}"
        times = f"{_digits(row.ours)} | {row.reference} | {_digits(row.theirs)}"
        yield f"| {name} | {times} | {ratio} | {target} |"


def _digits(value: float) -> str:
    """Three digits, as many places as they need."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
