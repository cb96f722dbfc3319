"""AutoRanker on many rows: seconds, memory, and how both grow.

    python benchmarks/auto.py                                   # 10^5 and 10^6 rows, quick
    python benchmarks/auto.py --rows 1000000 --effort normal

Data are generated in the shape of MSLR-WEB: queries of about 120 rows, 136 features with heavy
tails, counts and constant columns, grades 0 to 4. Every size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from rankrls import AutoRanker
from rankrls.metrics import ndcg

N_FEATURES, QUERY_ROWS = 136, 120


def generate(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, grades and query numbers."""
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(7).normal(size=(20, N_FEATURES))
    X = np.empty((n_rows, N_FEATURES))
    hidden = np.empty(n_rows)
    for first in range(0, n_rows, 100_000):
        rows = slice(first, min(first + 100_000, n_rows))
        factors = rng.normal(size=(rows.stop - first, 20))
        X[rows] = factors @ weights / 4 + rng.normal(size=(rows.stop - first, N_FEATURES))
        noise = rng.normal(size=rows.stop - first)
        hidden[rows] = factors[:, 0] + factors[:, 1] * factors[:, 2] + noise
    X[:, :60] = np.exp(2 * X[:, :60])
    X[:, 60:90] = np.floor(np.maximum(X[:, 60:90], 0) * 5)
    X[:, 90:93] = 1.0
    qid = np.arange(n_rows) // QUERY_ROWS
    y = np.digitize(hidden, np.quantile(hidden, [0.55, 0.8, 0.93, 0.98])).astype(float)
    return X, y, qid


def memory(line: str) -> float:
    """MiB of this process: "VmHWM" (peak) or "VmRSS" (now)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in status if row.startswith(line))


def measure(n_rows: int, effort: str) -> dict[str, float]:
    X, y, qid = generate(n_rows)
    new, labels, queries = generate(24_000, seed=1)
    before = memory("VmRSS")
    cpu, clock = time.process_time(), time.perf_counter()
    ranker = AutoRanker(effort=effort, random_state=0, verbose=1).fit(X, y, qid=qid)
    found = {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - clock}
    found |= {"peak": memory("VmHWM"), "data": before}
    scores = ranker.predict(new, qid=queries)
    value = ndcg(labels, scores, qid=queries, k=10)
    return found | {"nested": ranker.best_score_, "test": float(value)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--effort", default="quick", choices=("quick", "normal", "thorough"))
    parser.add_argument("--one", action="store_true", help="internal: measure in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.rows[0], options.effort)))
        return
    print("| rows | effort | CPU s | seconds | peak MiB | of which data | nested | test NDCG@10 |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for n_rows in options.rows:
        command = [sys.executable, __file__, "--one", "--rows", str(n_rows)]
        command += ["--effort", options.effort]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        f = json.loads(done.stdout)
        print(
            f"| {n_rows:,} | {options.effort} | {f['cpu']:.1f} | {f['seconds']:.1f} | "
            f"{f['peak']:.0f} | {f['data']:.0f} | {f['nested']:.4f} | {f['test']:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
