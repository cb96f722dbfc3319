"""What the scripts of the papers share: finding data, tables, the machine, RLS regression."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh

__all__ = [
    "GRID",
    "finish",
    "need",
    "parse",
    "quiet",
    "read_lines",
    "rls_holdout",
    "rls_path",
    "table",
]

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))  # the other benchmarks, for their data and methods
from timing import DATA  # noqa: E402

#: The regularisation parameters of P1 §5.
GRID = 2.0 ** np.arange(-15, 16)
START = time.perf_counter()


def parse(description: str | None, **options: Any) -> argparse.Namespace:
    """Options of the command line: ``--data`` and ints named in ``options`` with their defaults."""
    assert description is not None
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data: docs/data.md")
    for name, default in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return parser.parse_args()


def need(data: Path, *names: str) -> list[Path]:
    """Paths of files below the data's folder; says so and stops where one is absent."""
    paths = [data / name for name in names]
    for path in paths:
        if not path.exists():
            sys.exit(f"no {path.relative_to(data)} in {data}: nothing is measured (see --data)")
    return paths


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a compressed file with one JSON object a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table, row by row as they come; the first column is text."""
    print("| " + " | ".join(header) + " |")
    print("|---" + "|---:" * (len(header) - 1) + "|", flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def finish() -> None:
    """Print how long it took, where and when."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [s for s in info.read_text().splitlines() if s.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    took = time.perf_counter() - START
    print(
        f"{took:.0f} s; {os.cpu_count()} cores of {model}, BLAS threads {threads}, "
        f"load {os.getloadavg()[2]:.1f}; {time.strftime('%Y-%m-%d', time.gmtime())}"
    )


def quiet() -> None:
    """The edges of a grid that a paper prescribes are no news."""
    warnings.filterwarnings("ignore", "the best alpha")


def rls_path(K: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Coefficients (n_alphas, m[, n_outputs]) of RLS regression, (K + alpha I)⁻¹ y: no intercept.

    With an intercept that is not penalised it would be RankRLS on all pairs, of magnitude y_h − y_j
    (both centre the residuals), up to a factor of alpha: the papers' regression has none.
    """
    values, V = eigh(K)
    Y = y[:, None] if y.ndim == 1 else y
    scaled = (V.T @ Y) / (np.maximum(values, 0)[:, None] + alphas[:, None, None])
    out = V @ scaled
    return out[..., 0] if y.ndim == 1 else out


def rls_holdout(
    K: np.ndarray, y: np.ndarray, folds: Iterable[np.ndarray], alphas: np.ndarray
) -> list[np.ndarray]:
    """Predictions (n_alphas, len(fold)[, n_outputs]) of every fold by refitting without it."""
    predictions = []
    for fold in folds:
        train = np.setdiff1d(np.arange(len(K)), fold)
        coefficients = rls_path(K[np.ix_(train, train)], y[train], alphas)
        predictions.append(np.stack([K[np.ix_(fold, train)] @ a for a in coefficients]))
    return predictions
