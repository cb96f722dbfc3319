"""Threads of BLAS: limits, and sums that do not depend on them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from rankrls import RankRLS
from rankrls._resources import SMALL, at_most, n_threads
from rankrls.core.preferences.query_weights import Groups, row_blocks


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_a_lower_limit_stays():
    with threadpool_limits(1, user_api="blas"), at_most(2):
        assert blas_threads() == {1}
        assert n_threads(None) == 1


def test_a_worker_of_dask_has_one_thread_without_a_warning(monkeypatch):
    worker = SimpleNamespace(daemon=True, name="worker")
    monkeypatch.setattr(multiprocessing, "current_process", lambda: worker)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert n_threads(None) == n_threads(-1) == n_threads(4) == 1
        with at_most(1):
            pass


def test_an_error_ends_the_limit():
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(KeyError), at_most(1):
            raise KeyError
        assert blas_threads() == {2}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [3, 40, SMALL + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_blocks_do_not_depend_on_threads(monkeypatch, n, dtype, weighted):
    rng = np.random.default_rng(n)
    m = 5 * len(range(*next(row_blocks(10**9, n)).indices(10**9))) + 17
    m = min(m, 60_000)
    X = (rng.normal(size=(m, n)) + 1e3 * rng.normal(size=n)).astype(dtype)
    groups = Groups(rng.integers(0, 50, m), rng.random(m) + 0.1 if weighted else None, 50)
    r = groups.deviations(rng.normal(size=(m, 2)))
    scale = groups.weight
    means = groups.mean(X)
    D = X.astype(np.float64) - means[groups.codes]
    found = []
    for threads in (1, 2, 4):
        monkeypatch.setattr("rankrls._resources.n_threads", lambda _: threads)  # noqa: B023
        found.append(groups.scatter(X, means, scale, r))
    if n <= SMALL:  # with more columns, the threads are those of BLAS
        for gram, cross in found[1:]:
            np.testing.assert_array_equal(gram, found[0][0])
            np.testing.assert_array_equal(cross, found[0][1])
    tolerance = {"rtol": 1e-3 if dtype == np.float32 else 1e-9}
    size = float(abs(D.T @ D).max())
    for gram, cross in found:
        np.testing.assert_allclose(
            gram,
            D.T @ (scale[:, None] * D),
            atol=size * 1e-4 if dtype == np.float32 else size * 1e-12,
            **tolerance,
        )
        np.testing.assert_allclose(cross, D.T @ r, atol=1e-1 if dtype == np.float32 else 1e-7)


def test_sums_leave_blas_as_it_was():
    X = np.random.default_rng(0).normal(size=(20_000, 30))
    with threadpool_limits(2, user_api="blas"):
        RankRLS().fit(X, X[:, 0], qid=np.arange(20_000) // 20)
        assert blas_threads() == {2}


SEVERAL_THREADS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import threadpool_info
from rankrls import RankRLS
from rankrls._resources import at_most
from rankrls.datasets import make_ranking

def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

X, y, qid = make_ranking(n_queries=60, n_features=20, random_state=0, return_X_y_qid=True)
sys.setswitchinterval(1e-6)
for _ in range(10):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda alpha: RankRLS(alpha).fit(X, y, qid=qid), range(1, 13)))
    assert blas_threads() == {2}, blas_threads()

limited, done = threading.Event(), threading.Event()

def hold():
    with at_most(1):
        limited.set()
        assert done.wait(20)

with ThreadPoolExecutor(1) as pool:
    held = pool.submit(hold)
    assert limited.wait(20)
    with at_most(1):
        assert blas_threads() == {1}
    assert blas_threads() == {1}  # until the first one ends
    done.set()
    held.result()
assert blas_threads() == {2}
"""


def test_several_threads_leave_blas_as_it_was():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", SEVERAL_THREADS], env=environment, check=True)
