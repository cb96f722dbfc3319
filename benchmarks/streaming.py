"""Files larger than memory: from text and Parquet to a fitted model, in one run.

Run as ``python benchmarks/streaming.py``; it needs pyarrow and takes a minute or two. The files
are written to a temporary directory. Memory is that of a process of its own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from letor import N_DOCS, write_dense
from sklearn.datasets import load_svmlight_file
from timing import Row, print_table, seconds

from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import iter_letor, iter_parquet

N_FEATURES = 136
BATCH = 20_000


def write_parquet(path: Path, n_rows: int, dtype: Any, row_group_size: int = 100_000) -> None:
    """The kind of data that `write_dense` writes as text: six digits, queries of 100."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, n_rows, row_group_size):
        number = np.arange(start, min(start + row_group_size, n_rows))
        values = np.round(rng.random((N_FEATURES, len(number))), 6).astype(dtype)
        columns = {"label": number % 5, "qid": number // N_DOCS}
        table = pa.table(columns | {f"f{j}": values[j] for j in range(N_FEATURES)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def letor(path: Path, rows: int = BATCH, **options: Any) -> Iterator[Any]:
    return iter_letor(path, rows=rows, **options)


def parquet(path: Path, dtype: Any = np.float32, rows: int = BATCH) -> Iterator[Any]:
    return iter_parquet(path, target="label", qid="qid", dtype=dtype, rows=rows)


def drain(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def fit(batches: Iterator[Any]) -> None:
    RankRLS(solver="primal").fit_stream(batches)


def choose(batches: Iterator[Any]) -> None:
    """31 alphas in 5 folds of whole queries."""
    grid = 2.0 ** np.arange(-15, 16)
    ranker = RankRLSCV(grid, cv=5, scoring="pairwise_r2", solver="primal")
    with warnings.catch_warnings():  # random labels: the largest alpha is the best
        warnings.simplefilter("ignore")
        ranker.fit_stream(batches)


def file_rows(
    folder: Path, text_rows: int = 20_000, parquet_rows: int = 400_000, repeats: int = 3
) -> Iterator[Row]:
    text, packed = folder / "letor.txt", folder / "letor.txt.gz"
    write_dense(text, text_rows, N_FEATURES)
    packed.write_bytes(gzip.compress(text.read_bytes(), 6))

    def time(run: Callable[[], Any], n_rows: int) -> float:
        """Seconds for a million rows."""
        return seconds(run, repeats) * 1e6 / n_rows

    load = time(lambda: load_svmlight_file(text, query_id=True), text_rows)
    load_packed = time(lambda: load_svmlight_file(packed, query_id=True), text_rows)
    read = time(lambda: drain(letor(text)), text_rows)
    sklearn = "load_svmlight_file"
    yield Row("text: iter_letor", read, sklearn, load, 1.0)
    given = time(lambda: drain(letor(text, n_features=N_FEATURES)), text_rows)
    yield Row("text: iter_letor, n_features given", given, sklearn, load, 1.0)
    yield Row(
        "text: to a fitted model", time(lambda: fit(letor(text)), text_rows), sklearn, load, 1.0
    )
    fitted = time(lambda: fit(letor(packed)), text_rows)
    yield Row("gzip text: to a fitted model", fitted, f"{sklearn}, gzip", load_packed, 1.0)
    for dtype in (np.float32, np.float64):
        name = np.dtype(dtype).name
        file = folder / f"{name}.parquet"
        write_parquet(file, parquet_rows, dtype)
        table = time(lambda file=file, dtype=dtype: drain(parquet(file, dtype)), parquet_rows)
        yield Row(f"Parquet, {name}: iter_parquet", table, "text: iter_letor", read, 1 / 20)
        model = time(lambda file=file, dtype=dtype: fit(parquet(file, dtype)), parquet_rows)
        yield Row(f"Parquet, {name}: to a fitted model", model, sklearn, load, 1.0)
        chosen = time(lambda file=file, dtype=dtype: choose(parquet(file, dtype)), parquet_rows)
        one = "RankRLS, one alpha"
        yield Row(f"Parquet, {name}: alpha chosen, 5 folds x 31 alphas", chosen, one, model, 1.3)


def speed(quick: bool = False) -> Iterator[Row]:
    """Seconds for a million rows of 136 features."""
    with tempfile.TemporaryDirectory() as folder:
        yield from file_rows(Path(folder), *((4_000, 40_000) if quick else ()))


def memory(folder: Path) -> None:
    """Peak memory of fitting a file, and one that is four times as large."""
    for kind, sizes in (("text", (20_000, 80_000)), ("Parquet", (400_000, 1_600_000))):
        for n_rows in sizes:
            path = folder / kind
            if kind == "text":
                write_dense(path, n_rows, N_FEATURES)
            else:
                write_parquet(path, n_rows, np.float32, 200_000)
            command = [sys.executable, __file__, "--peak", kind, str(path)]
            peak = int(subprocess.run(command, check=True, capture_output=True).stdout)
            size = path.stat().st_size
            print(f"{kind}, {n_rows:9,} rows, {size / 2**20:5.0f} MiB: peak {peak / 1024:4.0f} MiB")
            path.unlink()


def peak(kind: str, path: Path) -> None:
    """Fit in this process and print the most memory that it had, in KiB.

    Not ``getrusage``, which on Linux begins with the memory of the process that started this one.
    """
    fit(letor(path, rows=5_000) if kind == "text" else parquet(path))
    status = Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        peak(sys.argv[2], Path(sys.argv[3]))
    else:
        print("Seconds for a million rows of 136 features:")
        print_table(speed())
        with tempfile.TemporaryDirectory() as name:
            memory(Path(name))
