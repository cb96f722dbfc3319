"""Generated LETOR files for the benchmarks of readers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
