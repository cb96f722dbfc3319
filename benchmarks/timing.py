"""What the benchmarks share: the folder of data, options, tables, times and rows of ratios.

Two environment variables change how everything is timed: ``BENCH_CLOCK=cpu`` takes seconds of the
processor instead of the clock's (for one thread, on a machine that others use too),
``BENCH_REPEATS=3`` is the least number of runs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Clock = Callable[[], float]

#: The folder of the public data sets (docs/data.md).
DATA = Path(os.environ.get("RANKRLS_DATA", Path(__file__).resolve().parents[1] / "data"))


class Missing(SystemExit):
    """Data that are not there: ends a script with a message, unless it goes on with other data."""


def need(*names: str) -> list[Path]:
    """Paths of files or folders below the folder of data."""
    for name in names:
        if not (DATA / name).exists():
            raise Missing(f"no {name} in {DATA}: nothing is measured (docs/data.md)")
    return [DATA / name for name in names]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a compressed file with one JSON object a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def parse(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Options of the command line by their defaults; a list is also the choices of its option."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    for name, default in defaults.items():
        kind: dict[str, Any] = {"type": type(default), "default": default}
        if isinstance(default, bool):
            kind = {"action": "store_true"}
        elif isinstance(default, list):
            kind = {"type": type(default[0]), "nargs": "+", "choices": default, "default": default}
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    return parser.parse_args()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table, row by row as they come; the first column is text."""
    print("| " + " | ".join(header) + " |")
    print("|---" + "|---:" * (len(header) - 1) + "|", flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def memory(line: str) -> float:
    """MiB of this process: "VmHWM" (peak) or "VmRSS" (now).

    Not ``getrusage``, which on Linux begins with the memory of the process that started this one.
    """
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in status if row.startswith(line))


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
        return next((kind for a, kind in _KINDS.items() if self.reference.startswith(a)), "bare")


#: How references begin that are not bare calls of BLAS, LAPACK, NumPy or SciPy.
_KINDS = {
    "RLScore": "RLScore",
    "KernelRidge": "scikit-learn",
    "load_svmlight_file": "scikit-learn",
    "import sklearn": "scikit-learn",
    "RankRLS": "rankrls",
    "leave_pair_out_score": "rankrls",
    "leave_query_out_predict": "rankrls",
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


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """Lines of a table; a ratio above its target is set in bold."""
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
