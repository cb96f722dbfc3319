"""The speed table: every section in one command, as ratios, on one page.

    python benchmarks/speed.py                      # full sizes: half an hour on two idle cores
    python benchmarks/speed.py --quick              # small sizes: a few minutes
    python benchmarks/speed.py --sections core letor --output speed.md

Every section runs in a process of its own with one thread for BLAS and OpenMP, in seconds of the
processor (what starts processes takes those of the clock), shortest of several. A section that
lacks an optional package or fails is named on the page, and the exit code is 1.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import speed_files
import speed_models
import speed_relations
from timing import Row, markdown, parse

#: What the sections of the page are called, and the functions that yield their rows.
SECTIONS = {
    "core": ("Training", speed_models.training),
    "metrics": ("Pairwise metrics", speed_models.metrics),
    "selection": ("Model selection", speed_models.selection),
    "judgements": ("Judgements", speed_models.judgements),
    "greedy": ("Greedy feature selection", speed_models.greedy),
    "sparse": ("Large sparse data", speed_models.sparse_text),
    "ranksvm": ("RankSVM", speed_models.ranksvm),
    "graphs": ("Graph kernels", speed_models.graphs),
    "relations": ("Relations", speed_relations.relations),
    "letor": ("LETOR files", speed_files.letor_files),
    "streams": ("Streams", speed_files.streams),
    "dask": ("Dask", speed_files.dask),
    "cli": ("Command line", speed_files.command_line),
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
KINDS = {"bare": "bare BLAS, LAPACK, NumPy, SciPy", "rankrls": "rankrls itself"}
INTRODUCTION = """# Speed

Each row compares rankrls with a reference in the same run: a bare call of BLAS, LAPACK, NumPy or SciPy of the
same size, another package, or another function of rankrls. The ratio is the time of rankrls divided by the time
of the reference, so below 1 rankrls is faster. Ratios above their target are bold.
"""  # noqa: E501


def run(section: str, quick: bool) -> tuple[list[Row], str]:
    """Rows of a section in a process of its own, and why it stopped early if it did."""
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"BENCH_CLOCK": "cpu"}
    environment |= {"BENCH_REPEATS": "2", "BENCH_SECTION": section}
    command = [sys.executable, __file__, *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    rows = [Row(**json.loads(line)) for line in done.stdout.splitlines() if line[:1] == "{"]
    failure = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return rows, failure if done.returncode else ""


def machine() -> Iterator[str]:
    """Processor, memory and versions: what a ratio may depend on."""
    import numpy
    import scipy
    import sklearn

    import rankrls

    model, memory = platform.processor() or platform.machine(), ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
        memory = f", {int(Path('/proc/meminfo').read_text().split()[1]) / 2**20:.0f} GiB"
    yield f"- {model}, {os.cpu_count()} cores{memory}; {platform.system()}"
    packages = {"rankrls": rankrls, "NumPy": numpy, "SciPy": scipy, "scikit-learn": sklearn}
    versions = ", ".join(f"{name} {module.__version__}" for name, module in packages.items())
    yield f"- Python {platform.python_version()}, {versions}"
    yield f"- load average {os.getloadavg()[0]:.1f} when this was written"


def page(results: dict[str, tuple[list[Row], str]], quick: bool) -> Iterator[str]:
    """Lines of the page: the machine, ratios by kind of reference, a table for each section."""
    rows = [row for found, _ in results.values() for row in found]
    yield INTRODUCTION
    yield (
        f"Measured by `python benchmarks/speed.py` on {datetime.date.today():%d %B %Y}: "
        f"{'small' if quick else 'full'} sizes, one thread, CPU time, the shortest of several runs."
    )
    yield ""
    yield from machine()
    aims = [row for row in rows if row.target is not None]
    missed = sum(row.missed for row in aims)
    yield f"\n{len(rows)} rows, {len(aims)} with a target, {missed} above it (bold).\n"
    yield "| reference | rows | ratio: smallest | median | largest |\n|---|---:|---:|---:|---:|"
    for kind in sorted({row.kind for row in rows}):
        ratios = sorted(row.ratio for row in rows if row.kind == kind)
        low, middle, high = ratios[0], ratios[len(ratios) // 2], ratios[-1]
        title = KINDS.get(kind, kind)
        yield f"| {title} | {len(ratios)} | {low:.2f} | {middle:.2f} | {high:.2f} |"
    for section, (found, failure) in results.items():
        yield f"\n## {SECTIONS[section][0]}\n"
        yield from markdown(found)
        if failure:
            yield f"\nStopped: `{failure}`"


def main() -> int:
    options = parse(__doc__, quick=False, sections=list(SECTIONS), output="speed.md")
    if section := os.environ.get("BENCH_SECTION"):
        for row in SECTIONS[section][1](options.quick):
            print(json.dumps(asdict(row)), flush=True)
        return 0
    results = {}
    for section in options.sections:
        print(f"{section} …", file=sys.stderr, flush=True)
        results[section] = run(section, options.quick)
        # the page so far: an interrupted run keeps what it has
        Path(options.output).write_text("\n".join(page(results, options.quick)) + "\n")
    print(Path(options.output).read_text())
    return int(any(failure for _, failure in results.values()))


if __name__ == "__main__":
    sys.exit(main())
