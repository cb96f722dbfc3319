"""The speed table: every benchmark module in one command, as ratios, on one page.

    python benchmarks/run_all.py                      # full sizes: half an hour on two idle cores
    python benchmarks/run_all.py --quick              # small sizes: a few minutes
    python benchmarks/run_all.py --modules core letor --output speed.md

Every module runs in a process of its own with ``--threads`` threads for BLAS and OpenMP, and hands
over its rows by ``speed(quick)`` (see timing.py): our time, the time of a reference in the same run
(bare BLAS, LAPACK, NumPy or SciPy calls; a peer; or a part of rankrls that it should keep up
with), the ratio and, for some, a target. Times are the shortest of several. A module that
lacks an optional package or fails is named on the page, and the exit code is 1.

With ``--clock cpu`` times are those of the processor: for one thread on a machine that others use
too. Work that goes on in threads is then added up, and processes of their own are not seen (the
rows about them take the clock all the same).

Not here: what is measured in errors rather than seconds (peers.py, relation*.py, papers/), and the
tables of growth and memory that some modules print when they are run alone.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from timing import Row, markdown

#: Modules, and what their sections of the page are called.
MODULES = {
    "core": "Training",
    "metrics": "Pairwise metrics",
    "model_selection": "Model selection",
    "judgements": "Judgements",
    "greedy": "Greedy feature selection",
    "letor": "LETOR files",
    "streaming": "Streams",
    "scale": "Large sparse data",
    "ranksvm": "RankSVM",
    "conditional": "Relations",
    "graph_kernels": "Graph kernels",
    "dask_scale": "Dask",
    "cli": "Command line",
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
HERE = Path(__file__).resolve().parent


@dataclass
class Result:
    """Rows of a module, what it printed, and why it stopped early if it did."""

    module: str
    title: str = ""
    rows: list[Row] = field(default_factory=list)
    notes: str = ""
    failure: str = ""


def write_rows(module: str, target: Path, quick: bool) -> None:
    """Run a module in this process; rows go to the file one by one, so that none is lost."""
    with open(target, "w") as file:
        for row in importlib.import_module(module).speed(quick):
            print(json.dumps(asdict(row)), file=file, flush=True)


def read_rows(source: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in source.read_text().splitlines()]


def run(module: str, options: argparse.Namespace) -> Result:
    """The same in a process of its own, threads pinned."""
    repeats = str(options.repeats or (3 if options.quick else 2))
    environment = os.environ | dict.fromkeys(THREADS, str(options.threads))
    environment |= {"BENCH_CLOCK": options.clock, "BENCH_REPEATS": repeats}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "rows.jsonl")
        command = [sys.executable, __file__, "--rows", module, str(target)]
        command += ["--quick"] if options.quick else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE)
        rows = read_rows(target) if target.exists() else []
    failure = ""
    if done.returncode:
        failure = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    first_line = (HERE / f"{module}.py").read_text().splitlines()[0]
    return Result(module, first_line.strip('"'), rows, done.stdout.strip(), failure)


def machine() -> Iterator[str]:
    """Processor, memory, versions, load: what a ratio may depend on."""
    import numpy
    import scipy
    import sklearn
    from threadpoolctl import threadpool_info

    import rankrls

    model, memory = platform.processor() or platform.machine(), ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
        total = Path("/proc/meminfo").read_text().split()[1]
        memory = f", {int(total) / 2**20:.0f} GiB"
    yield f"- {model}, {os.cpu_count()} cores{memory}; {platform.system()}"
    packages = {"rankrls": rankrls, "NumPy": numpy, "SciPy": scipy, "scikit-learn": sklearn}
    versions = ", ".join(f"{name} {module.__version__}" for name, module in packages.items())
    yield f"- Python {platform.python_version()}, {versions}"
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            kernel = pool.get("architecture", "")
            where = Path(pool["filepath"]).parent.name
            yield f"- BLAS of {where}: {pool['internal_api']} {pool['version']} {kernel}"
    if hasattr(os, "getloadavg"):
        yield f"- load average {os.getloadavg()[0]:.1f} when this was written"


def page(results: list[Result], options: argparse.Namespace) -> Iterator[str]:
    """Lines of the page: the machine, what to look at first, a table for each module."""
    rows = [row for result in results for row in result.rows]
    sizes = "small sizes" if options.quick else "full sizes"
    clock = "CPU time" if options.clock == "cpu" else "wall-clock time"
    yield "# Speed\n"
    yield (
        "Each row compares rankrls with a reference in the same run: a bare call of BLAS, LAPACK, "
        "NumPy or SciPy of the\nsame size, another package, or another function of rankrls. The "
        "ratio is the time of rankrls divided by the time\nof the reference, so below 1 rankrls "
        "is faster. Ratios above their target are bold.\n"
    )
    yield (
        f"Measured by `python benchmarks/run_all.py` on {datetime.date.today():%d %B %Y}: {sizes}, "
        f"{options.threads} thread(s), {clock}, the shortest of\nseveral runs.\n"
    )
    yield from machine()
    aims = [row for row in rows if row.target is not None]
    missed = [row for row in aims if row.missed]
    yield f"\n{len(rows)} rows, {len(aims)} with a target, {len(missed)} above it (bold).\n"
    if options.quick:
        yield "Targets are meant for full sizes; small ones show the fixed cost of a call.\n"
    yield "| reference | rows | ratio: smallest | median | largest |\n|---|---:|---:|---:|---:|"
    names = {"bare": "bare BLAS, LAPACK, NumPy, SciPy", "rankrls": "rankrls itself"}
    for kind in sorted({row.kind for row in rows}):
        ratios = sorted(row.ratio for row in rows if row.kind == kind)
        low, middle, high = ratios[0], ratios[len(ratios) // 2], ratios[-1]
        title = names.get(kind, kind)
        yield f"| {title} | {len(ratios)} | {low:.2f} | {middle:.2f} | {high:.2f} |"
    for result in results:
        yield f"\n## {MODULES[result.module]}\n\n`benchmarks/{result.module}.py`. {result.title}\n"
        if result.rows:
            yield from markdown(result.rows)
        if result.notes:
            yield f"\n```\n{result.notes}\n```"
        if result.failure:
            yield f"\nStopped: `{result.failure}`"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--modules", nargs="+", choices=list(MODULES), default=list(MODULES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--repeats", type=int, help="at least so many runs (2; with --quick 3)")
    parser.add_argument("--output", type=Path, default=Path("speed.md"), help="the page")
    parser.add_argument("--rows", nargs=2, metavar=("MODULE", "FILE"), help="internal")
    options = parser.parse_args(arguments)
    if options.rows:
        write_rows(options.rows[0], Path(options.rows[1]), options.quick)
        return 0
    results = []
    for module in options.modules:
        print(f"{module} …", file=sys.stderr, flush=True)
        results.append(run(module, options))
        # the page so far: an interrupted run keeps what it has
        options.output.write_text("\n".join(page(results, options)) + "\n")
    print("\n".join(page(results, options)))
    return int(any(result.failure for result in results))


if __name__ == "__main__":
    sys.exit(main())
