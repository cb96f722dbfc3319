"""rankrls beside its peers on real rankings: the same folds, the same machine, one run.

    python benchmarks/peers.py                                    # all: about half an hour
    python benchmarks/peers.py --sets lightgbm --methods "rankrls RankRLS" "LightGBM lambdarank"
    python benchmarks/peers.py --record benchmarks/results/peers.json   # figures for the docs

Data sets that are absent are skipped; a peer that is not installed is named as such.

Parameters are chosen by NDCG@10: on the validation set where the data have one (OHSUMED), otherwise
by five folds of the training queries, the same for everybody. Then the method is fitted to the
training set and scores the test set once. Grids are those of peer_methods.py. Every method and fold
runs in a process of its own with one thread; seconds are those of the processor. "Choose and fit"
has the whole grid in it, "fit" one model and its test scores.

Metrics are rankrls.metrics for everybody, over all test queries together: NDCG@10 with gains
2^y − 1 and average precision with y ≥ 1 as relevant, over the queries that have a relevant row;
pairwise error over the queries that have a pair. Tied scores count as the mean over their orders.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from peer_data import SETS, Fold, load
from peer_methods import METHODS, Method
from timing import Missing, memory, parse, table

from rankrls.metrics import average_precision, compare_rankers, ndcg, pairwise_error

AUTO = "rankrls AutoRanker"
#: Others of the paired tests.
AGAINST = [
    "LightGBM lambdarank",
    "LightGBM lambdarank, views, ten",
    "XGBoost rank:ndcg",
    "XGBoost rank:ndcg, views, ten",
    "CatBoost YetiRank",
    "scikit-learn Ridge",
]
DIGITS = {"ndcg@10": 4, "map": 4, "pairwise error": 4, "cpu": 2, "fit cpu": 3, "peak": 0}


def choose(method: Method, fold: Fold) -> tuple[dict[str, Any], Any]:
    """The setting and the value with the best mean NDCG@10 of the held-out parts."""
    if len(method.settings) * len(method.path) == 1:
        return method.settings[0], method.path[0]
    found = np.zeros((len(method.settings), len(method.path)))
    for train, held in fold.splits():
        for row, setting in zip(found, method.settings, strict=True):
            scores = method.scores(setting, method.path, train, held.unlabelled())
            row += [ndcg(held.y, s, qid=held.qid, k=10, undefined="skip") for s in scores]
    best = np.unravel_index(np.argmax(found), found.shape)
    return method.settings[best[0]], method.path[best[1]]


def run(name: str, source: str, target: str) -> None:
    """Choose, fit and score, in this process; what was found goes to ``target``."""
    method, fold = METHODS[name], joblib.load(source)
    importlib.import_module(method.package)
    start = time.process_time()
    setting, value = choose(method, fold)
    middle = time.process_time()
    scores = method.scores(setting, (value,), fold.train, fold.test.unlabelled())[0]
    end = time.process_time()
    facts = {"cpu": end - start, "fit cpu": end - middle, "peak": memory("VmHWM")}
    joblib.dump({"scores": scores, "chosen": (setting, value), **facts}, target)


def launch(name: str, fold: Fold) -> dict[str, Any] | str:
    """The same in a process of its own: what was found, or why there is nothing."""
    if importlib.util.find_spec(METHODS[name].package) is None:
        return f"{METHODS[name].package} is not installed"
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, part)) for part in ("fold", "found")]
        joblib.dump(fold, files[0])
        command = [sys.executable, __file__, "--run", name, *files]
        environment = os.environ | dict.fromkeys(threads, "1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["failed"])[-1][:200]
        return joblib.load(files[1])


def measure(folds: list[Fold], names: list[str]) -> dict[str, list[dict[str, Any]] | str]:
    """Results of every fold by method, or the reason why one is missing."""
    found: dict[str, Any] = {}
    for name in names:
        for fold in folds:
            one = launch(name, fold)
            what = one if isinstance(one, str) else f"{one['cpu']:.1f} s {one['chosen']}"
            print(f"  {fold.name} {name}: {what}", file=sys.stderr, flush=True)
            if isinstance(one, str):
                found[name] = one
                break
            found.setdefault(name, []).append(one)
    return found


def report(name: str, folds: list[Fold], found: dict[str, Any]) -> dict[str, Any]:
    """Print and return quality over all test queries, and cost of a fold on average."""
    y, qid = joined(folds)
    figures, rows = {}, []
    for method, runs in found.items():
        if isinstance(runs, str):
            rows.append([method, runs, *[""] * (len(DIGITS) - 1)])
            continue
        scores = np.concatenate([one["scores"] for one in runs])
        figures[method] = {
            "ndcg@10": ndcg(y, scores, qid=qid, k=10, undefined="skip"),
            "map": average_precision(y, scores, qid=qid, undefined="skip"),
            "pairwise error": pairwise_error(y, scores, qid=qid),
            "cpu": float(np.mean([one["cpu"] for one in runs])),
            "fit cpu": float(np.mean([one["fit cpu"] for one in runs])),
            "peak": max(one["peak"] for one in runs),
        }
        cells = [f"{figures[method][key]:.{digits}f}" for key, digits in DIGITS.items()]
        rows.append([method, *cells])
        if method == AUTO:
            three = [ndcg(y, scores, qid=qid, k=10, undefined=how) for how in ("skip", 0, 1)]
            print(f"{name}: NDCG@10 of AutoRanker with queries without a relevant row left out,")
            print(f"as 0 (LETOR) and as 1 (LightGBM): {np.round(three, 4)}\n")
    heads = ["NDCG@10", "MAP", "pairwise error", "CPU s, choose and fit", "CPU s, fit", "peak MiB"]
    table([f"{name}, {len(np.unique(qid))} queries", *heads], rows)
    return {"folds": len(folds), "queries": len(np.unique(qid)), "methods": figures}


def joined(folds: list[Fold]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and queries of all test parts."""
    y, qid = ([getattr(fold.test, field) for fold in folds] for field in ("y", "qid"))
    return np.concatenate(y), np.concatenate(qid)


def pooled(results: list[tuple[list[Fold], dict[str, Any]]]) -> dict[str, Any]:
    """Paired tests over the test queries of all sets together, of what ran on all of them."""
    parts = [joined(folds) for folds, _ in results]
    y = np.concatenate([part[0] for part in parts])
    names = [f"{k} {query}" for k, part in enumerate(parts) for query in part[1]]
    qid = np.unique(names, return_inverse=True)[1]
    runs = {method: [found.get(method, "") for _, found in results] for method in [AUTO, *AGAINST]}
    scores = {
        method: np.concatenate([one["scores"] for part in every for one in part])
        for method, every in runs.items()
        if not any(isinstance(part, str) for part in every)
    }
    tests: dict[str, Any] = {}
    for peer in [name for name in AGAINST if name in scores and AUTO in scores]:
        tests[peer] = {AUTO: {}}
        for metric in ("ndcg@10", "average_precision", "pairwise_accuracy"):
            test = compare_rankers(
                y, scores[AUTO], scores[peer], qid=qid, metric=metric, random_state=0
            )
            tests[peer][AUTO][metric] = {"difference": test.difference, "p": test.p_value}
            print(f"AutoRanker less {peer}, {metric}: {test.difference:+.4f}, p {test.p_value:.2g}")
    return {"queries": len(np.unique(qid)), "tests": tests}


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:])
        return
    options = parse(__doc__, sets=list(SETS), methods=list(METHODS), record="")
    results, record = [], {"sets": {}}
    for name in options.sets:
        try:
            folds = load(name)
        except Missing as error:
            print(error)
            continue
        found = measure(folds, options.methods)
        record["sets"][name] = report(name, folds, found)
        results.append((folds, found))
    if len(results) > 1:
        record["pooled"] = pooled(results)
    if options.record:
        Path(options.record).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
