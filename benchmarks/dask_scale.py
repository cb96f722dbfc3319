"""How `rankrls.dask` grows: cost per row on one core, cost per task of a cluster, extrapolated.

Run as ``python benchmarks/dask_scale.py`` (about a minute). It measures

- t_pass: seconds a row of the one pass of solver="primal" (load, centre, Gram), one core;
- t_product: seconds a row of one product of solver="cg", one core;
- t_task: seconds of the scheduler for a task, from fits of many tiny partitions;
- a whole fit on a cluster of two processes, beside what the formula says it should take;

and prints a table for 10⁹ rows × 10³ features in queries of 100 rows, by the formula

    primal:       m t_pass/W + tasks t_task + ⌈log₈ P⌉ 8 · 8n²/B + solve(n)
    cg, one it.:  m t_product/W + tasks t_task + ⌈log₈ P⌉ 8 · 8n/B

for W cores, P = m/10⁵ partitions, and a network of B bytes a second into every worker. Assumed and
not measured: W equal cores, each with its own memory bandwidth; X is in memory (reading it adds
8mn/(rate of all disks)); 1.25 GB/s (10 Gbit) of network; rows sorted by query, so that two queries
a partition cross its borders.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits
from timing import Row, seconds

import dask
import rankrls
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.iterative import LinearSystem
from rankrls.core.spaces.products import Products
from rankrls.dask import RankRLS
from rankrls.dask._tasks import FAN_IN
from rankrls.dask._whole_queries import load
from rankrls.estimators.incremental import Learned

BANDWIDTH = 1.25e9
PARTITION = 100_000


def rows(number: da.Array, n: int) -> da.Array:
    """Random rows of n features for an array of row numbers, made where they are needed."""

    def make(block: Any) -> Any:
        return np.random.default_rng(int(block[0])).standard_normal((len(block), n))

    meta = np.empty((0, 0))
    return number.map_blocks(make, chunks=(number.chunks[0], (n,)), new_axis=1, meta=meta)


def per_row(m: int, n: int, dtype: type) -> tuple[float, float]:
    """Seconds a row of the pass and of a product, on one core."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n), dtype=dtype)
    y, qid = rng.integers(0, 5, m), (np.arange(m) + 50) // 100
    graph, loss = PreferenceGraph.from_scores(y, qid=qid), Loss()
    system = LinearSystem(Products(X), graph.objectives(loss)[0])
    V = rng.standard_normal((n, 1))

    def sums() -> None:
        Learned.nothing(n, None, X.dtype, 1, True).add(graph, load(0, X.dtype, n, None, X), loss)

    with threadpool_limits(limits=1):
        return seconds(sums, 3) / m, seconds(lambda: system.G(V), 5) / m


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def n_tasks(P: int) -> tuple[int, int]:
    """Tasks of all rounds of a primal fit, and of one iteration of cg."""
    tree = sum(math.ceil(P / FAN_IN**level) for level in range(1, 1 + depth(P)))
    return 9 * P + tree, P + tree


def depth(P: int) -> int:
    return max(1, math.ceil(math.log(P, FAN_IN)))


def predict_primal(m: int, n: int, W: int, P: int, t_pass: float, t_task: float) -> float:
    move = depth(P) * FAN_IN * 8 * n**2 / BANDWIDTH
    return m * t_pass / W + n_tasks(P)[0] * t_task + move + n**3 / 3 / 1e10


def predict_product(m: int, n: int, W: int, P: int, t_product: float, t_task: float) -> float:
    move = depth(P) * FAN_IN * 8 * n / BANDWIDTH
    return m * t_product / W + n_tasks(P)[1] * t_task + move


def speed(quick: bool = False) -> Iterator[Row]:
    """The work on one core beside the bare product, and a small cluster beside no cluster.

    The last row is the price of a cluster on a machine that does not need one.
    """
    m, n = (4_000, 200) if quick else (20_000, 1000)
    for dtype in (np.float64, np.float32):
        X = np.random.default_rng(0).standard_normal((m, n), dtype=dtype)
        with threadpool_limits(limits=1):
            gram, vector = seconds(lambda X=X: X.T @ X, 3) / m, np.ones((n, 1), dtype=dtype)
            products = seconds(lambda X=X, v=vector: X.T @ (X @ v), 5) / m
        t_pass, t_product = per_row(m, n, dtype)
        name = f"{np.dtype(dtype).name}, {n} features, a row"
        yield Row(f"pass of the primal, {name}", t_pass, "X.T @ X", gram)
        yield Row(f"product of cg, {name}", t_product, "X.T @ (X @ v)", products)
    with (
        threadpool_limits(limits=1),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        number = da.arange(3 * m, chunks=m // 4)
        X = rows(number, n).persist()
        y, qid = (number * 7919 % 5).persist(), ((number + 50) // 100).persist()
        RankRLS().fit(X, y, qid=qid)  # the workers import what they need
        whole = seconds(lambda: RankRLS().fit(X, y, qid=qid), 2, time.perf_counter)
        here = tuple(np.asarray(part.compute()) for part in (X, y, qid))
        local = seconds(
            lambda: rankrls.RankRLS().fit(here[0], here[1], qid=here[2]), 2, time.perf_counter
        )
    yield Row(f"fit {3 * m:,} × {n}, two processes", whole, "RankRLS.fit, this process", local)


def main() -> None:
    n = 1000
    cost = {}
    for dtype in (np.float64, np.float32):
        cost[dtype] = per_row(20_000, n, dtype)
        t_pass, t_product = (1e6 * t for t in cost[dtype])
        print(f"{dtype.__name__}: {t_pass:.1f} µs a row and pass, {t_product:.2f} a product, n={n}")
    dask.config.set({"distributed.worker.profile.enabled": False})
    with (
        threadpool_limits(limits=1),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        P = 200
        tiny = da.arange(P * 10, chunks=10)
        X = rows(tiny, 2)
        y, qid = tiny % 3, tiny // 5
        RankRLS().fit(X, y, qid=qid)  # the workers import what they need
        t_task = timed(lambda: RankRLS().fit(X, y, qid=qid)) / n_tasks(P)[0]
        print(f"{1e3 * t_task:.2f} ms a task")
        m, size = 60_000, 5000
        number = da.arange(m, chunks=size)
        X = rows(number, n).persist()
        y, qid = (number * 7919 % 5).persist(), ((number + 50) // 100).persist()
        P = m // size
        whole = timed(lambda: RankRLS().fit(X, y, qid=qid))
        expected = predict_primal(m, n, 2, P, cost[np.float64][0], t_task)
        print(f"primal, {m:,} × {n} in {P} partitions, 2 processes: {whole:.2f} s, ", end="")
        print(f"by the formula {expected:.2f} s")
        ranker = RankRLS(solver="cg")
        iterated = timed(lambda: ranker.fit(X, y, qid=qid))
        expected = predict_product(m, n, 2, P, cost[np.float64][1], t_task)
        each = iterated / ranker.n_iter_
        print(f"cg, the same: {ranker.n_iter_} iterations, {each:.3f} s each with all that goes ")
        print(f"before, by the formula {expected:.3f} s")
    table(n, cost, t_task)


def table(n: int, cost: dict[Any, tuple[float, float]], t_task: float) -> None:
    m = 10**9
    P = m // PARTITION
    print(f"\n10⁹ rows × {n} features, {P:,} partitions, {1e3 * t_task:g} ms a task")
    print(
        "| cores | X | memory a core | primal | one CG iteration | bytes into a core, primal | CG |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|")
    for W in (16, 64, 256, 1024):
        for dtype in (np.float64, np.float32):
            t_pass, t_product = cost[dtype]
            held = m * n * np.dtype(dtype).itemsize / W / 2**30
            primal = predict_primal(m, n, W, P, t_pass, t_task)
            one = predict_product(m, n, W, P, t_product, t_task)
            into = P / W * 8 * n**2 / 2**30
            print(
                f"| {W} | {dtype.__name__} | {held:.1f} GiB | {primal / 60:.1f} min | {one:.1f} s "
                f"| {into:.2f} GiB | {2 * P / W * 8 * n / 2**20:.2f} MiB |"
            )


if __name__ == "__main__":
    main()
