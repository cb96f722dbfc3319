"""Reading LETOR files: rankrls against scikit-learn's load_svmlight_file, in one run.

Run ``python benchmarks/letor.py``. ``rows()`` gives the table as a list of
``(name, ours_seconds, reference_name, reference_seconds, ratio, target)``, where ``ratio`` is
reference over ours (above 1: ours is faster) and ``target`` the ratio we hold ourselves to.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from rankrls.datasets import iter_letor, load_letor

Row = tuple[str, float, str, float, float, float]

N_DOCS = 100  # rows of a query


def write_dense(path: Path, n_rows: int = 20_000, n_features: int = 136, digits: int = 6) -> None:
    values = np.random.default_rng(0).random((n_rows, n_features))
    with open(path, "w") as file:
        for i, row in enumerate(values.tolist()):
            words = " ".join(f"{j}:{value:.{digits}f}" for j, value in enumerate(row, 1))
            file.write(f"{i % 5} qid:{i // N_DOCS} {words} # doc{i}\n")


def write_sparse(path: Path, n_rows: int = 20_000, n_features: int = 50_000) -> None:
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        for i in range(n_rows):
            columns = np.unique(rng.integers(1, n_features + 1, size=80)).tolist()
            values = rng.random(len(columns)).tolist()
            words = " ".join(f"{j}:{v:.4f}" for j, v in zip(columns, values, strict=True))
            file.write(f"{i % 5} qid:{i // N_DOCS} {words}\n")


def best_of(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def drain(path: Path) -> None:
    for _ in iter_letor(path, rows=5_000):
        pass


def rows(repeats: int = 3, n_rows: int = 20_000) -> list[Row]:
    table: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "letor.txt")
        for name, write in (
            ("136 features, 6 digits", lambda: write_dense(path, n_rows)),
            ("136 features, 17 digits", lambda: write_dense(path, n_rows, digits=17)),
            ("80 of 50000 features, 4 digits", lambda: write_sparse(path, n_rows)),
        ):
            write()
            reference = best_of(lambda: load_svmlight_file(path, query_id=True), repeats)
            for reader, read in (("load_letor", load_letor), ("iter_letor", drain)):
                ours = best_of(lambda read=read: read(path), repeats)
                table.append(
                    (
                        f"{reader}, {n_rows} rows, {name}",
                        ours,
                        "sklearn load_svmlight_file",
                        reference,
                        reference / ours,
                        1.0,
                    )
                )
    return table


def main() -> None:
    print(f"{'what':60} {'ours':>8} {'sklearn':>8} {'ratio':>6} {'target':>6}")
    for name, ours, _, reference, ratio, target in rows():
        print(f"{name:60} {ours:7.3f}s {reference:7.3f}s {ratio:6.2f} {target:6.2f}")


if __name__ == "__main__":
    main()
