"""The command line: its start, and a large file fitted and scored, as processes.

Run as ``python benchmarks/cli.py [MB] [repeats]``; by default with a LETOR file of 500 MB (some
900,000 rows of 46 features), which is written to a temporary directory first. The peer,
scikit-learn's load_svmlight_file, reads a file of 20 MB; its time for the large one is scaled from
that by the megabytes, and its rows say so. That may be in its favour: in one run each, on a busy
machine, a megabyte took it 0.06, 0.08 and 0.37 s of CPU in files of 11, 44 and 89 MB.

The same rows as CSV are fitted and scored beside a process that imports pyarrow, reads them and
does nothing else with them. Compiled modules are cached in a temporary directory, also where
PYTHONDONTWRITEBYTECODE is set: installed packages have theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from timing import Row, print_table

RANKRLS = [sys.executable, "-m", "rankrls"]
N_QUERIES, N_DOCS, N_FEATURES = 200, 100, 46  # of a block

PEER_MB = 20  # what the peer reads

LOAD = (
    "import sys; from sklearn.datasets import load_svmlight_file; "
    "[load_svmlight_file(path, query_id=True) for path in sys.argv[1:]]"
)


READ_CSV = "import sys, pyarrow.csv; [pyarrow.csv.read_csv(path) for path in sys.argv[1:]]"


def write_letor(path: Path, n_bytes: float, csv: bool = False) -> int:
    """Write blocks of the same rows with query ids of their own; the number of rows."""
    rng = np.random.default_rng(0)
    values = rng.random((N_QUERIES * N_DOCS, N_FEATURES))
    labels = (values[:, :5].sum(axis=1) + rng.normal(size=len(values))).clip(0, 4).astype(int)
    columns = range(1, N_FEATURES + 1)
    words = ",".join("%.6f" for _ in columns) if csv else " ".join(f"{j}:%.6f" for j in columns)
    start = "{},B{:03d}," if csv else "{} qid:B{:03d} "
    lines = [
        start.format(label, row // N_DOCS) + words % tuple(features)
        for row, (label, features) in enumerate(zip(labels, values.tolist(), strict=True))
    ]
    block = ("\n".join(lines) + "\n").encode()
    n_blocks = max(round(n_bytes / len(block)), 1)
    with open(path, "wb") as file:
        if csv:
            file.write(("label,qid," + ",".join(f"f{j}" for j in columns) + "\n").encode())
        for number in range(1, n_blocks + 1):
            file.write(block.replace(b"B", b"%d" % number))
    return n_blocks * len(lines)


class Used(NamedTuple):
    """Seconds on the clock and of the processor, and the most memory of a process, MB."""

    wall: float
    cpu: float
    memory: float


CACHE = tempfile.TemporaryDirectory()  # of compiled modules
ENVIRONMENT = {**os.environ, "PYTHONPYCACHEPREFIX": CACHE.name}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def run(*words: str, repeats: int = 1) -> Used:
    """Run a process; the shortest of several runs."""
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        if status:
            raise RuntimeError(f"{words} failed")
        runs.append(Used(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000))
    return min(runs)


def scaled(start: Used, small: Used, ratio: float) -> Used:
    """Time for a file that is ``ratio`` times as large; starting Python takes the same."""
    wall, cpu, _ = (a + ratio * (b - a) for a, b in zip(start, small, strict=True))
    return Used(wall, cpu, small.memory)


def command_rows(megabytes: float = 500, repeats: float = 2) -> Iterator[Row]:
    start = run(*RANKRLS, "--help", repeats=10)
    plain = run(sys.executable, "-c", "import numpy, scipy", repeats=10)
    yield Row("rankrls --help", start.wall, "import numpy, scipy", plain.wall, 1.5)
    with tempfile.TemporaryDirectory() as folder:
        path, model, scores = (Path(folder, name) for name in ("t.dat", "model", "scores"))
        n_rows = write_letor(path, megabytes * 1e6)
        print(f"\n{n_rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        fit = [*RANKRLS, "fit", str(path), "-m", str(model), "--stream"]
        predict = [*RANKRLS, "predict", str(path), "-m", str(model), "-o", str(scores)]
        fitted, scored = (run(*words, repeats=int(repeats)) for words in (fit, predict))
        small = Path(folder, "small.dat") if megabytes > PEER_MB else path
        if small is not path:
            write_letor(small, PEER_MB * 1e6)
        load = [sys.executable, "-c", LOAD]
        begun = run(*load, repeats=3)
        read = run(*load, str(small), repeats=int(repeats))
        size = small.stat().st_size
        ratio = path.stat().st_size / size
        loaded = scaled(begun, read, ratio)
        peer = "load_svmlight_file" + (f" (scaled from {size / 1e6:.0f} MB)" if ratio > 1 else "")
        if ratio > 1:
            print(
                f"\nload_svmlight_file read {size / 1e6:.0f} MB in {read.wall:.1f} s, of which "
                f"{begun.wall:.1f} s is starting Python; the rest is multiplied by {ratio:.1f},"
                " as if a megabyte of a larger file took no longer"
            )
        for name, ours in (("rankrls fit --stream", fitted), ("rankrls predict", scored)):
            yield Row(name, ours.wall, peer, loaded.wall)
            yield Row(f"{name}, CPU", ours.cpu, peer, loaded.cpu)
        print(
            f"\npredict: {n_rows / scored.wall:,.0f} rows/s, {n_rows / scored.cpu:,.0f} per CPU s"
        )
        load_name = f"load_svmlight_file of {size / 1e6:.0f} MB"
        for name, used in (("fit --stream", fitted), ("predict", scored), (load_name, read)):
            print(f"memory of {name}: {used.memory:.0f} MB")


def csv_rows(megabytes: float = 400, repeats: float = 2) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path, model, scores = (Path(folder, name) for name in ("t.csv", "model", "scores"))
        n_rows = write_letor(path, megabytes * 1e6, csv=True)
        print(f"\n{n_rows:,} rows, {path.stat().st_size / 1e6:.0f} MB of CSV")
        words = {
            "fit --stream": ["fit", str(path), "-m", str(model), "--stream"],
            "predict": ["predict", str(path), "-m", str(model), "-o", str(scores)],
        }
        read_csv = [sys.executable, "-c", READ_CSV, str(path)]
        read = run(*read_csv, repeats=int(repeats))
        for name, command in words.items():
            used = run(*RANKRLS, *command, repeats=int(repeats))
            yield Row(f"rankrls {name}, CSV", used.wall, "pyarrow.csv.read_csv", read.wall, 1.5)
            yield Row(f"rankrls {name}, CSV, CPU", used.cpu, "pyarrow.csv.read_csv", read.cpu)
            print(f"{name}: {n_rows / used.wall:,.0f} rows/s, memory {used.memory:.0f} MB")


def speed(quick: bool = False) -> Iterator[Row]:
    yield from command_rows(20 if quick else 500)
    yield from csv_rows(20 if quick else 400)


if __name__ == "__main__":
    sizes = [float(word) for word in sys.argv[1:]]
    print_table([*command_rows(*sizes), *csv_rows(*sizes)])
