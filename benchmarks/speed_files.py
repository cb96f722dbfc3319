"""Rows of the speed table: readers, streams, Dask and the command line."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from letor import N_DOCS, write_dense, write_sparse
from sklearn.datasets import load_svmlight_file
from timing import Row, compare, seconds

import rankrls
from rankrls import RankRLS
from rankrls.datasets import iter_letor, iter_parquet, load_letor

SKLEARN = "load_svmlight_file"
load = partial(load_svmlight_file, query_id=True)


def drain(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def letor_files(quick: bool) -> Iterator[Row]:
    n_rows = 4_000 if quick else 20_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "letor.txt")
        for name, write in (
            ("136 features, 6 digits", write_dense),
            ("136 features, 17 digits", partial(write_dense, digits=17)),
            ("80 of 50000, 4 digits", write_sparse),
        ):
            write(path, n_rows)
            theirs = seconds(lambda: load(path), 3)
            ours = seconds(lambda: load_letor(path), 3)
            yield Row(f"load_letor, {name}", ours, SKLEARN, theirs, 1.0)
            ours = seconds(lambda: drain(iter_letor(path, rows=5_000)), 3)
            yield Row(f"iter_letor, {name}", ours, SKLEARN, theirs, 1.0)


def streams(quick: bool) -> Iterator[Row]:
    """Seconds for a million rows of 136 features, from text and Parquet files."""
    n_text, n_parquet = (4_000, 40_000) if quick else (20_000, 400_000)
    with tempfile.TemporaryDirectory() as folder:
        text, packed, parquet = (Path(folder, name) for name in ("letor.txt", "l.gz", "p.parquet"))
        write_dense(text, n_text)
        packed.write_bytes(gzip.compress(text.read_bytes(), 6))
        write_parquet(parquet, n_parquet)

        def read(path: Path) -> Iterator[Any]:
            if path is parquet:
                return iter_parquet(path, target="label", qid="qid", dtype=np.float32, rows=20_000)
            return iter_letor(path, rows=20_000)

        def fit(path: Path) -> None:
            RankRLS(solver="primal").fit_stream(read(path))

        def million(run: Any, path: Path) -> float:
            n_rows = n_parquet if path is parquet else n_text
            return seconds(lambda: run(path), 3) * 1e6 / n_rows

        loaded = million(load, text)
        batches = million(lambda path: drain(read(path)), text)
        yield Row("text: iter_letor", batches, SKLEARN, loaded, 1.0)
        yield Row("text: to a fitted model", million(fit, text), SKLEARN, loaded, 1.0)
        theirs = million(load, packed)
        name = "gzip text: to a fitted model"
        yield Row(name, million(fit, packed), f"{SKLEARN}, gzip", theirs, 1.0)
        ours = million(lambda path: drain(read(path)), parquet)
        yield Row("Parquet, float32: iter_parquet", ours, "text: iter_letor", batches)
        name = "Parquet, float32: to a fitted model"
        yield Row(name, million(fit, parquet), SKLEARN, loaded, 1.0)


def write_parquet(path: Path, n_rows: int, rows: int = 100_000) -> None:
    """The kind of data that `write_dense` writes as text: six digits, queries of 100."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    for start in range(0, n_rows, rows):
        number = np.arange(start, min(start + rows, n_rows))
        values = np.round(rng.random((136, len(number))), 6).astype(np.float32)
        columns = {"label": number % 5, "qid": number // N_DOCS}
        table = pa.table(columns | {f"f{j}": column for j, column in enumerate(values)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def dask(quick: bool) -> Iterator[Row]:
    """Fits on a cluster of two processes beside the same fit here, in seconds of the clock.

    The last row has many tiny partitions, so that it is the scheduler's time for them.
    """
    import dask.array as da
    from distributed import Client, LocalCluster

    from rankrls.dask import RankRLS as OnCluster

    os.environ["BENCH_CLOCK"] = "wall"
    m, n = (12_000, 200) if quick else (60_000, 1000)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        for n_rows, width, size, solver in (
            (m, n, m // 12, "primal"),
            (m, n, m // 12, "cg"),
            (2_000, 2, 10, "primal"),
        ):
            number = np.arange(n_rows)
            X = np.random.default_rng(0).standard_normal((n_rows, width))
            y, qid = number * 7919 % 5, (number + 50) // 100
            parts = [
                da.from_array(part, chunks=(size, *part.shape[1:])).persist()
                for part in (X, y, qid)
            ]
            ranker, here = OnCluster(solver=solver), rankrls.RankRLS(solver=solver)
            ranker.fit(*parts[:2], qid=parts[2])  # the workers import what they need
            yield compare(
                f"{solver}, {n_rows:,} × {width} in {n_rows // size} partitions, two processes",
                lambda r=ranker, p=parts: r.fit(p[0], p[1], qid=p[2]),
                "RankRLS.fit, this process",
                lambda r=here, X=X, y=y, q=qid: r.fit(X, y, qid=q),
                repeats=2,
            )


def command_line(quick: bool) -> Iterator[Row]:
    """Commands as processes, in seconds of the processor, with imports.

    The peers are processes too: one that reads the file with scikit-learn (20 MB, scaled to the
    size of the whole file) or pyarrow, and does nothing else with it.
    """
    program = [sys.executable, "-m", "rankrls"]
    ours = process(*program, "--help", repeats=5)[0]
    plain = process(sys.executable, "-c", "import numpy, scipy", repeats=5)[0]
    yield Row("rankrls --help", ours, "import numpy, scipy", plain, 1.5)
    with tempfile.TemporaryDirectory() as folder:
        for kind, megabytes, reader in (
            ("letor", 500, "from sklearn.datasets import load_svmlight_file as read"),
            ("csv", 400, "from pyarrow.csv import read_csv as read"),
        ):
            megabytes = 20 if quick else megabytes
            path, small, model, scores = (
                str(Path(folder, name)) for name in (f"t.{kind}", f"s.{kind}", "model", "scores")
            )
            write_blocks(path, megabytes, csv=kind == "csv")
            write_blocks(small, 20, csv=kind == "csv")
            code = f"import sys; {reader}; [read(path) for path in sys.argv[1:]]"
            begin = process(sys.executable, "-c", code)[0]
            if kind == "csv":
                reference, theirs = (
                    "pyarrow.csv.read_csv",
                    process(sys.executable, "-c", code, path)[0],
                )
            else:
                took = process(sys.executable, "-c", code, small)[0] - begin
                reference = f"{SKLEARN}, scaled from 20 MB"
                theirs = begin + took * megabytes / 20
            for name, words in (
                ("fit --stream", ["fit", path, "-m", model, "--stream"]),
                ("predict", ["predict", path, "-m", model, "-o", scores]),
            ):
                ours, peak = process(*program, *words)
                title = f"rankrls {name}, {megabytes} MB of {kind.upper()}, peak {peak:.0f} MB"
                yield Row(title, ours, reference, theirs, 1.5 if kind == "csv" else None)


def process(*words: str, repeats: int = 2) -> tuple[float, float]:
    """Run a process: seconds of the processor, the fewest of several runs, and its peak MB."""
    runs = []
    with tempfile.TemporaryDirectory() as cache:  # installed packages have compiled modules
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(repeats + 1):  # the first one compiles
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started = subprocess.Popen(words, env=environment, **silent)
            _, status, used = os.wait4(started.pid, 0)
            if status:
                raise RuntimeError(f"{' '.join(words)} failed")
            runs.append((used.ru_utime + used.ru_stime, used.ru_maxrss / 1000))
    return min(runs)


def write_blocks(path: str, megabytes: float, *, csv: bool) -> None:
    """Blocks of the same 20,000 rows of 46 features, with query ids of their own."""
    rng = np.random.default_rng(0)
    values = rng.random((20_000, 46))
    labels = (values[:, :5].sum(axis=1) + rng.normal(size=len(values))).clip(0, 4).astype(int)
    columns = range(1, 47)
    words = ",".join("%.6f" for _ in columns) if csv else " ".join(f"{j}:%.6f" for j in columns)
    start = "{},B{:03d}," if csv else "{} qid:B{:03d} "
    block = "".join(
        start.format(label, row // N_DOCS) + words % tuple(features) + "\n"
        for row, (label, features) in enumerate(zip(labels, values.tolist(), strict=True))
    ).encode()
    with open(path, "wb") as file:
        if csv:
            file.write(("label,qid," + ",".join(f"f{j}" for j in columns) + "\n").encode())
        for number in range(1, max(round(megabytes * 1e6 / len(block)), 1) + 1):
            file.write(block.replace(b"B", b"%d" % number))
