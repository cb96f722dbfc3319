"""Speed of exact model selection: ratios against a bare decomposition or product in one run.

Run as ``python benchmarks/model_selection.py``.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
from greedy import speed as greedy_speed
from scipy import sparse
from scipy.linalg import eigh
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, print_table, seconds

from rankrls import RankRLS, RankRLSCV, regularization_path
from rankrls.model_selection import (
    leave_pair_out_score,
    leave_query_out_predict,
    permutation_test,
)

ALPHAS = 2.0 ** np.arange(-15, 16)


def pair_rows(m: int = 2000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((m, 50)), rng.standard_normal(m)
    K, ranker = rbf_kernel(X), RankRLS(kernel="rbf")
    decomposition = seconds(lambda: eigh(K), 2)
    one = seconds(lambda: leave_pair_out_score(ranker, X, y), 2)
    name = f"leave-pair-out, RBF {m}, all pairs"
    yield Row(f"{name}, one alpha", one, f"eigh({m})", decomposition, 1.7)
    search = RankRLSCV(ALPHAS, kernel="rbf", cv="leave-pair-out")
    path = seconds(lambda: search.fit(X, y), 1)
    yield Row("  RankRLSCV, 31 alphas", path, f"eigh({m})", decomposition, 8)


def query_rows(m: int = 4000, m_linear: int = 100_000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((m, 50)), rng.standard_normal(m), np.arange(m) // 10
    K = rbf_kernel(X)
    decomposition = seconds(lambda: eigh(K), 1)
    ranker = RankRLS(kernel="rbf")
    ours = seconds(lambda: leave_query_out_predict(ranker, X, y, qid=qid, alphas=ALPHAS), 1)
    name = f"leave-query-out, RBF {m}, {m // 10} queries, 31 alphas"
    yield Row(name, ours, f"eigh({m})", decomposition, 2.5)
    chosen = seconds(lambda: RankRLSCV(ALPHAS, kernel="rbf").fit(X, y, qid=qid), 1)
    yield Row(f"RankRLSCV, RBF {m}, 31 alphas", chosen, "leave_query_out_predict", ours, 1.1)

    m, n = m_linear, 50
    X, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    product = seconds(lambda: X.T @ X, 15)
    equal = np.arange(m) // 100
    n_queries = m // 100
    sizes = rng.multinomial(m - 20 * n_queries, np.ones(n_queries) / n_queries) + 20
    unequal = np.repeat(np.arange(n_queries), sizes)
    for name, qid in (("queries of 100", equal), ("unequal queries", unequal)):
        ours = seconds(
            lambda qid=qid: leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=ALPHAS), 3
        )
        yield Row(f"leave-query-out, {m}×{n}, {name}, 31 alphas", ours, "X.T @ X", product, 100)


def sparse_row(m: int = 8230, n: int = 3009, n_queries: int = 480) -> Row:
    """Against a path, which decomposes the same matrix once."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((m, n), density=0.01, rng=rng, format="csr")
    y = np.asarray(X @ rng.standard_normal(n)) + 0.1 * rng.standard_normal(m)
    qid = np.sort(rng.integers(0, n_queries, m))
    options = {"qid": qid, "alphas": ALPHAS}
    path = seconds(lambda: regularization_path(RankRLS(solver="primal"), X, y, **options), 1)
    ours = seconds(lambda: RankRLSCV(ALPHAS).fit(X, y, qid=qid), 1)
    name = f"RankRLSCV, sparse {m}×{n}, {n_queries} queries, 31 alphas"
    return Row(name, ours, "RankRLS path, with its eigendecomposition", path, 3)


def many_queries(n_queries: int = 100_000, rows: int = 10, n: int = 50) -> None:
    """Time and memory of leave-query-out of many small queries, on their own."""
    rng = np.random.default_rng(0)
    m = n_queries * rows
    X, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    qid = np.repeat(np.arange(n_queries), rows)
    tracemalloc.start()
    start = time.process_time()
    leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=ALPHAS)
    took = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"leave-query-out, {n_queries:,} queries of {rows} × {n}, 31 alphas: {took:.1f} s of the "
        f"processor (60), {peak / X.nbytes:.2f} × X of memory beyond it (1)"
    )


def permutation_row(m: int = 200) -> Row:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((m, 10)), rng.standard_normal(m)
    once = seconds(lambda: leave_pair_out_score(RankRLS(), X, y), 5)
    ours = seconds(lambda: permutation_test(RankRLS(), X, y, random_state=0), 2)
    return Row(
        f"permutation_test, m={m}, 1000 permutations", ours, "leave_pair_out_score", once, 60
    )


def speed(quick: bool = False) -> Iterator[Row]:
    yield from pair_rows(500 if quick else 2000)
    yield from query_rows(*((1000, 20_000) if quick else ()))
    yield sparse_row(*((1000, 400, 60) if quick else ()))
    yield permutation_row()


if __name__ == "__main__":
    print_table(row for group in (speed, greedy_speed) for row in group())
    many_queries()
