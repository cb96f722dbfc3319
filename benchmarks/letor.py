"""Reading LETOR files: rankrls against scikit-learn's load_svmlight_file, in one run.

Run as ``python benchmarks/letor.py``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file
from timing import Row, print_table, seconds

from rankrls.datasets import iter_letor, load_letor

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


def drain(path: Path) -> None:
    for _ in iter_letor(path, rows=5_000):
        pass


def rows(repeats: int = 3, n_rows: int = 20_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "letor.txt")
        for name, write in (
            ("136 features, 6 digits", lambda: write_dense(path, n_rows)),
            ("136 features, 17 digits", lambda: write_dense(path, n_rows, digits=17)),
            ("80 of 50000, 4 digits", lambda: write_sparse(path, n_rows)),
        ):
            write()
            theirs = seconds(lambda: load_svmlight_file(path, query_id=True), repeats)
            for reader, read in (("load_letor", load_letor), ("iter_letor", drain)):
                ours = seconds(lambda read=read: read(path), repeats)
                yield Row(f"{reader}, {name}", ours, "load_svmlight_file", theirs, 1.0)


def speed(quick: bool = False) -> Iterator[Row]:
    yield from rows(n_rows=4_000 if quick else 20_000)


if __name__ == "__main__":
    print_table(speed())
