"""rankrls beside its peers on real rankings: the same folds, the same machine, one run.

    python benchmarks/peers.py                                    # all: about half an hour
    python benchmarks/peers.py --sets lightgbm --methods RankRLS lambdarank
    python benchmarks/peers.py --output results                   # keep scores and choices
    python benchmarks/peers.py --record benchmarks/results/peers.json   # figures for the docs

Data (see peer_data.py) are read from ``--data``, by default the folder RANKRLS_DATA
(docs/data.md says what it holds); where they are absent, the script says so and stops. A peer that
is not installed is named as such.

Protocol. Parameters are chosen by NDCG@10: on the validation set where the data have one
(OHSUMED), otherwise by five folds of the training queries, the same for everybody. Then the method
is fitted to the training set and scores the test set once. Grids are those of peer_methods.py.

Every method and fold runs in a process of its own, with ``--threads`` threads. Seconds are those of
the processor, which other programs on the machine disturb less than the clock's; "choose and fit"
has the whole grid in it, "fit" one model and its test scores. The peak of memory is the largest
resident set of the process, "over data" what was added to it after the libraries and the data (of
all parts) had been loaded. A full kernel matrix is left out above ``--max-kernel-rows`` rows.

Tables (table_data.py generates "shop" and "passages") go to AutoRanker as they are. Trees get
numbers, categories in their own way, the entries of vectors, and (CatBoost) texts; the rows with
"views" and least squares get the columns of AutoRanker's TableEncoder.

Metrics are rankrls.metrics for everybody, over all test queries together: NDCG@10 with gains
2^y − 1 and average precision with y ≥ 1 as relevant, over the queries that have a relevant row;
pairwise error over the queries that have a pair. Tied scores count as the mean over their orders.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peer_data import DATA, SETS, Fold, load, read_fold, write_fold
from peer_methods import METHODS, Method
from peer_report import Run, print_pooled, print_report

from rankrls.metrics import ndcg

AGAINST = [
    "LightGBM lambdarank",
    "LightGBM lambdarank, views, ten",
    "XGBoost rank:ndcg",
    "XGBoost rank:ndcg, views, ten",
    "CatBoost YetiRank",
    "CatBoost YetiRank, views, ten",
    "scikit-learn Ridge",
]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def memory(line: str) -> float:
    """MiB of this process: "VmHWM" (peak) or "VmRSS" (now).

    Not ``getrusage``, which on Linux begins with the memory of the process that started this one.
    """
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in status if row.startswith(line))


def choose(method: Method, fold: Fold) -> tuple[dict[str, Any], Any]:
    """The setting and the value with the best mean NDCG@10 of the held-out parts."""
    if len(method.settings) * len(method.path) == 1:
        return method.settings[0], method.path[0]
    table = np.zeros((len(method.settings), len(method.path)))
    for train, held in fold.splits():
        for row, setting in zip(table, method.settings, strict=True):
            scores = method.scores(setting, method.path, train, held.unlabelled())
            row += [ndcg(held.y, s, qid=held.qid, k=10, undefined="skip") for s in scores]
    best = np.unravel_index(np.argmax(table), table.shape)
    return method.settings[best[0]], method.path[best[1]]


def run(name: str, source: Path, target: Path) -> None:
    """Choose, fit and score, in this process; what was found goes to ``target``."""
    method, fold = METHODS[name], read_fold(source)
    importlib.import_module(method.package)
    before = memory("VmRSS")
    start, clock = time.process_time(), time.perf_counter()
    setting, value = choose(method, fold)
    middle = time.process_time()
    train = fold.training_rows() if method.all_rows else fold.train
    scores = method.scores(setting, (value,), train, fold.test.unlabelled())[0]
    end, wall = time.process_time(), time.perf_counter() - clock
    chosen = {**setting, **({} if value is None else {"path": float(value)})}
    facts = {"chosen": chosen, "all_cpu": end - start, "fit_cpu": end - middle, "wall": wall}
    facts |= {"peak": memory("VmHWM"), "before": before}
    np.savez(target, scores=scores, facts=json.dumps(facts))


def launch(name: str, fold: Fold, source: Path, target: Path, options: argparse.Namespace) -> Run:
    """The same in a process of its own."""
    n_rows = len(fold.train.y)
    if METHODS[name].full_kernel and n_rows > options.max_kernel_rows:
        return Run(name, fold.name, failure=f"left out: more than {options.max_kernel_rows} rows")
    if importlib.util.find_spec(METHODS[name].package) is None:
        return Run(name, fold.name, failure=f"{METHODS[name].package} is not installed")
    if options.resume and target.exists():
        return read(name, fold, target)
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(options.threads))
    command = [sys.executable, __file__, "--run", name, str(source), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Run(name, fold.name, failure=last[:200])
    return read(name, fold, target)


def read(name: str, fold: Fold, target: Path) -> Run:
    with np.load(target) as file:
        return Run(name, fold.name, file["scores"], json.loads(str(file["facts"])))


def measure(folds: list[Fold], names: list[str], output: Path, options: Any) -> list[Run]:
    runs = []
    for fold in folds:
        source = output / f"{fold.name}.joblib"
        write_fold(source, fold)
        for name in names:
            target = output / f"{fold.name} {name}.npz".replace(":", " ")
            result = launch(name, fold, source, target, options)
            print(f"  {result}", file=sys.stderr, flush=True)
            runs.append(result)
        source.unlink()
    return runs


def selected(words: list[str] | None) -> list[str]:
    """Methods whose name contains one of the words; all without words."""
    return [name for name in METHODS if not words or any(word in name for word in words)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", help="words in the names; default: all methods")
    parser.add_argument("--against", nargs="+", default=AGAINST, help="of the paired tests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-kernel-rows", type=int, default=6000, metavar="M")
    parser.add_argument("--output", type=Path, help="keep scores and choices in this folder")
    parser.add_argument("--resume", action="store_true", help="take what is in --output already")
    parser.add_argument("--record", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--run", nargs=3, metavar=("METHOD", "FOLD", "RESULT"), help="internal")
    options = parser.parse_args(arguments)
    if options.run:
        name, source, target = options.run
        run(name, Path(source), Path(target))
        return
    try:
        sets = {name: load(name, options.data) for name in options.sets}
    except FileNotFoundError as error:
        sys.exit(str(error))
    names = selected(options.methods)
    print("Grids:", *(f"  {name}: {METHODS[name].grid}" for name in names), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        results, record = [], {"sets": {}}
        for name, folds in sets.items():
            output = (options.output or Path(folder)) / name
            output.mkdir(parents=True, exist_ok=True)
            runs = measure(folds, names, output, options)
            record["sets"][name] = print_report(name, folds, runs, options.against)
            results.append((folds, runs))
        if len(results) > 1:
            record["pooled"] = print_pooled(results, options.against)
    if options.record:
        options.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
