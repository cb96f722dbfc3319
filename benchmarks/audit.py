"""Labels to check: how well `rankrls.diagnostics.audit` finds labels that were corrupted.

Run as ``python benchmarks/audit.py``. It reads LETOR 3.0 OHSUMED (querylevelnorm_S*.txt.gz)
from ``--data``, by default letor_ohsumed in the folder RANKRLS_DATA (docs/data.md);
without it, generated judgements are all there is.

- Queries: the labels of 10 % of the queries are shuffled within the query.
- Judges: some judges give a part of their answers at random.

The area under the ROC curve says how well a column of the audit ranks what was corrupted above
what was not, beside plain residuals of the fitted model and beside leave-one-out by refits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from timing import DATA

from rankrls import RankRLS
from rankrls.datasets import load_letor
from rankrls.diagnostics import audit

Array = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA / "letor_ohsumed", help="folder of OHSUMED"
    )
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    files = sorted(options.data.glob("querylevelnorm_S*.txt.gz"))
    if files:
        queries(files, options.repeats)
    else:
        print(f"OHSUMED: no files in {options.data}, skipped\n")
    judges(options.repeats)


def queries(files: list[Path], repeats: int) -> None:
    """Shuffled labels of whole queries: all documents, and few of them with an RBF kernel."""
    parts = [load_letor(path) for path in files]
    X = np.vstack([part.data for part in parts])
    y, qid = (np.concatenate([part[name] for part in parts]) for name in ("target", "qid"))
    names, codes = np.unique(qid, return_inverse=True)
    linear = RankRLS(10.0, query_weighting="size")
    title = f"OHSUMED, {len(names)} queries, labels of 10 % shuffled"
    _shuffle(f"{title}, linear", linear, X, y.astype(float), codes, repeats)
    rng = np.random.default_rng(0)
    few = [rng.permutation(np.flatnonzero(codes == q))[:15] for q in range(len(names))]
    rows = np.concatenate(few)
    rbf = RankRLS(1.0, kernel="rbf", gamma=1.0, query_weighting="size")
    title += ", 15 documents a query, RBF"
    _shuffle(title, rbf, X[rows], y[rows].astype(float), codes[rows], max(2, repeats // 2))


def _shuffle(title: str, ranker: RankRLS, X: Array, y: Array, codes: Array, repeats: int) -> None:
    n = int(codes.max()) + 1
    varying = np.flatnonzero([len(np.unique(y[codes == q])) > 1 for q in range(n)])
    found: dict[str, list[float]] = {}
    seconds = 0.0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        wrong = rng.permutation(varying)[: round(0.1 * len(varying))]
        labels = y.copy()
        for q in wrong:
            rows = np.flatnonzero(codes == q)
            labels[rows] = rng.permutation(labels[rows])
        start = time.perf_counter()
        table = audit(ranker, X, labels, qid=codes)
        seconds += time.perf_counter() - start
        f = ranker.fit(X, labels, qid=codes).predict(X)
        correlation = np.full(n, np.nan)
        for q in varying:
            correlation[q] = np.corrcoef(f[codes == q], labels[codes == q])[0, 1]
        for name, values in (
            ("agreement", -table.agreement),
            ("correlation with the fit", -correlation),
            ("p-value", -table.p_value),
            ("deleted residual", table.deleted_residual),
            ("residual of the fit", _by_query(labels - f, codes, n, _deviation)),
            ("Cook's distance", table.cook_distance),
        ):
            auc = roc_auc_score(np.isin(varying, wrong), values[varying])
            found.setdefault(name, []).append(auc)
    _print(title, found)
    some = varying[:10]
    start = time.perf_counter()
    refitted = _refits(ranker, X, labels, codes, some)
    times = (time.perf_counter() - start) * n / len(some) / (seconds / repeats)
    same = np.abs(refitted - table.deleted_residual[some]).max()
    print(
        f"  deleted residuals equal refits to {same:.0e}; all refits take {times:.0f} × as long\n"
    )


def _deviation(values: Array) -> float:
    return float(values.std(ddof=1))


def _by_query(values: Array, codes: Array, n: int, function: Callable[[Array], float]) -> Array:
    return np.array([function(values[codes == query]) for query in range(n)])


def _refits(ranker: RankRLS, X: Array, y: Array, codes: Array, queries: Array) -> Array:
    found = []
    for q in queries:
        out = codes == q
        f = ranker.fit(X[~out], y[~out], qid=codes[~out]).predict(X[out])
        found.append(_deviation(y[out] - f))
    return np.array(found)


def judges(repeats: int) -> None:
    """Forty judges of fifty answers each; four of them answer at random in a part of the cases."""
    found: dict[str, list[float]] = {}
    for share in (0.15, 0.3, 0.6):
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((300, 10))
            f = X @ rng.standard_normal(10) / np.sqrt(10)
            pairs = np.argsort(rng.random((2000, 300)), axis=1)[:, :2]
            judge = np.arange(2000) % 40
            difference = f[pairs[:, 0]] - f[pairs[:, 1]] + 0.5 * rng.standard_normal(2000)
            random = (judge < 4) & (rng.random(2000) < share)
            difference[random] = rng.standard_normal(random.sum())
            pairs[difference < 0] = pairs[difference < 0, ::-1]
            ranker = RankRLS(10.0)
            table = audit(ranker, X, pairs=pairs, groups=judge)
            g = ranker.fit(X, pairs=pairs).predict(X)
            plain = 1 - (g[pairs[:, 0]] - g[pairs[:, 1]])
            residual = _by_query(plain, judge, 40, lambda r: float(np.sqrt((r**2).mean())))
            wrong = table.labels < 4
            name = f"{share:.0%} at random: "
            found.setdefault(name + "p-value", []).append(roc_auc_score(wrong, -table.p_value))
            found.setdefault(name + "agreement", []).append(roc_auc_score(wrong, -table.agreement))
            found.setdefault(name + "plain residual", []).append(roc_auc_score(wrong, residual))
    _print("2000 judgements by 40 judges, 4 of them corrupted", found)


def _print(title: str, found: dict[str, list[float]]) -> None:
    print(f"{title}: AUC (mean, standard error)\n")
    for name, values in found.items():
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        print(f"  {name:32s} {np.mean(values):.3f} ± {error:.3f}")
    print()


if __name__ == "__main__":
    main()
