"""`rankrls.dask` beside a fit in one process: the cost of a row, of a cluster, and of a task.

Run as ``python benchmarks/dask_scale.py`` (about a minute, two worker processes). The last row has
many tiny partitions, so that it is the scheduler's time for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits
from timing import Row, compare, print_table

import rankrls
from rankrls.dask import RankRLS


def rows(number: da.Array, n: int) -> da.Array:
    """Random rows of n features for an array of row numbers, made where they are needed."""

    def make(block: Any) -> Any:
        return np.random.default_rng(int(block[0])).standard_normal((len(block), n))

    meta = np.empty((0, 0))
    return number.map_blocks(make, chunks=(number.chunks[0], (n,)), new_axis=1, meta=meta)


def speed(quick: bool = False) -> Iterator[Row]:
    """Fits on a cluster of two processes beside the same fit here."""
    m, n = (12_000, 200) if quick else (60_000, 1000)
    with (
        threadpool_limits(limits=1),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        for size, width, solver in ((m // 12, n, "primal"), (m // 12, n, "cg"), (10, 2, "primal")):
            n_rows = m if width == n else 2_000
            number = da.arange(n_rows, chunks=size)
            X = rows(number, width).persist()
            y, qid = (number * 7919 % 5).persist(), ((number + 50) // 100).persist()
            ranker, here = RankRLS(solver=solver), rankrls.RankRLS(solver=solver)
            ranker.fit(X, y, qid=qid)  # the workers import what they need
            data = [np.asarray(part.compute()) for part in (X, y, qid)]
            name = f"{solver}, {n_rows:,} × {width} in {n_rows // size} partitions, two processes"
            yield compare(
                name,
                lambda r=ranker, X=X, y=y, q=qid: r.fit(X, y, qid=q),
                "RankRLS.fit, this process",
                lambda r=here, d=data: r.fit(d[0], d[1], qid=d[2]),
                repeats=2,
            )


if __name__ == "__main__":
    print_table(speed())
