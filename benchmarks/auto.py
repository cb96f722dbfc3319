"""AutoRanker on many rows: seconds, memory, and how both grow.

    python benchmarks/auto.py --rows 1000000 --effort normal

Data are generated in the shape of MSLR-WEB: queries of about 120 rows, 136 features with heavy
tails, counts and constant columns, grades 0 to 4.
"""

from __future__ import annotations

import time

import numpy as np
from timing import memory, parse, table

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
    options = parse(__doc__, rows=1_000_000, effort="quick")
    f = measure(options.rows, options.effort)
    heads = ["CPU s", "seconds", "peak MiB", "of which data", "nested", "test NDCG@10"]
    cells = [f"{f['cpu']:.1f}", f"{f['seconds']:.1f}", f"{f['peak']:.0f}", f"{f['data']:.0f}"]
    cells += [f"{f['nested']:.4f}", f"{f['test']:.4f}"]
    table(["rows", "effort", *heads], [[f"{options.rows:,}", options.effort, *cells]])


if __name__ == "__main__":
    main()
