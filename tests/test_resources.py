"""Limits of memory and threads."""

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

from rankrls import _resources
from rankrls._resources import GIB, at_most, n_threads
from rankrls.core.preferences.laplacian import Groups

# -- Memory limits: of the machine, of control groups (containers), of the address space

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

PHYSICAL = 16 * GIB


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(_resources, "_PHYSICAL", PHYSICAL)
    monkeypatch.setattr(_resources, "_address_space", lambda: sys.maxsize)


HUGE = 9223372036854771712  # "no limit" of version 1


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        (["0::/a"], {"a/memory.max": "max"}, []),
        (["nonsense", "0::", ""], {}, []),
        (  # the group and those above, not those below or beside
            ["0::/a/b/c"],
            {"a/memory.max": 6, "a/b/memory.max": "max", "a/b/c/memory.max": 7}
            | {"a/b/c/d/memory.max": 1, "x/memory.max": 1},
            [6, 7],
        ),
        (
            ["5:cpu,cpuacct:/x", "4:memory:/job/step", "0::/"],
            {"memory/memory.limit_in_bytes": HUGE, "memory/job/memory.limit_in_bytes": 3}
            | {"memory/x/memory.limit_in_bytes": 1, "cpu/memory.limit_in_bytes": 1},
            [3, HUGE],
        ),
        # A container that sees the path of the host.
        (["4:memory:/docker/abc"], {"memory/memory.limit_in_bytes": 5}, [5]),
        (["0::/docker/abc"], {"memory.max": 4}, [4]),
    ],
)
def test_limits_of_control_groups(tmp_path, groups, limits, expected):
    (tmp_path / "cgroup").write_text("\n".join(groups))
    for name, limit in limits.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    found = _resources._group_limits(str(tmp_path / "cgroup"), str(tmp_path / "fs"))
    assert sorted(found) == expected


def test_the_budget_is_half_of_the_smallest(monkeypatch):
    monkeypatch.setattr(_resources, "_group_limits", lambda: [6 * GIB, 9 * GIB])
    assert _resources.budget() == 3 * GIB
    assert _resources.fits(3, GIB // 8)
    assert not _resources.fits(3, GIB // 8, copies=2)
    with pytest.raises(MemoryError, match=r"6\.0 GiB, more than half .* 3\.0 GiB\): do less"):
        _resources.require("a test", 6, GIB // 8, advice="do less")
    # What is left of the address space counts.
    monkeypatch.setattr(_resources, "_address_space", lambda: 4 * GIB)
    assert _resources.budget() <= 2 * GIB
    monkeypatch.setattr(_resources, "_group_limits", list)
    monkeypatch.setattr(_resources, "_address_space", lambda: GIB)
    assert _resources.budget() < GIB / 2


#: Under a limit of 2 GiB of address space: what cannot fit, and words of the error.
TOO_LARGE = {
    "RankRLS(solver='primal').fit(wide, y_few)": "solver='cg'",
    "RankRLS(kernel='rbf', solver='dual').fit(tall, y)": "solver='nystroem'",
    "RankRLS(kernel='rbf', basis=9000).fit(tall, y)": "fewer basis vectors",
    "RankRLS().partial_fit(wide, y_few)": "fewer features",
    "RankRLS().fit_stream([(wide, y_few)])": "fewer features",
    "RankRLSCV(cv='leave-pair-out').fit(tall, y)": "folds of rows",
    "ms.leave_pair_out_score(RankRLS(), tall, y)": "folds of rows",
    "ms.leave_pair_out_predict(RankRLS(), tall, y)": "folds of rows",
    "ms.permutation_test(RankRLS(), tall, y, n_permutations=2)": "folds of rows",
    "ms.leave_query_out_predict(RankRLS(), tall, y, qid=qid, alphas=many)": "fewer alphas",
    "regularization_path(RankRLS(kernel='rbf', solver='dual'), tall[:8000], y[:8000], "
    "alphas=[1.0, 2.0])": "one alpha at a time",
    "RankRLSCV(many, solver='cg', random_state=0).fit(wide, y_few)": "fewer alphas",
    "LeavePairOutRocDisplay.from_estimator(RankRLS(), tall, two)": "folds of rows",
    "ConditionalRankRLS(kernel='rbf').fit(tall, [[1.0, 2.0]] * 20000, np.eye(2))": "fewer objects",
    "ConditionalRankRLS().fit(few, few @ few.T, few).predict(tall, tall)": "predict_edges",
}

PROGRAM = """
import numpy as np
from rankrls import *
from rankrls import model_selection as ms
from rankrls.plotting import LeavePairOutRocDisplay
import resource
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
rng = np.random.default_rng(0)
tall, wide, few = rng.standard_normal((20000, 2)), rng.standard_normal((300, 20000)), np.eye(5, 2)
y, two, y_few = rng.standard_normal(20000), np.arange(20000) % 2, np.arange(300.0)
qid, many = np.arange(20000) // 10, np.geomspace(1e-3, 1e3, 20000)
for call in CALLS:
    try:
        eval(call)
        print("done")
    except MemoryError as error:
        print(str(error).replace(chr(10), " "))
status = open("/proc/self/status").read()  # ru_maxrss would count the process that started this
print(status.split("VmHWM:")[1].split()[0])
"""


@linux
def test_what_does_not_fit_is_refused_before_it_is_allocated():
    seen = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("CALLS", repr(list(TOO_LARGE)))],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    *messages, peak = seen.stdout.splitlines()
    for message, (call, advice) in zip(messages, TOO_LARGE.items(), strict=True):
        assert "needs a dense work space of" in message, call
        assert advice in message, call
    assert int(peak) < 700_000  # kB: little more than the libraries and the data


# -- Threads of BLAS: limits, and sums that do not depend on them


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_over_blocks_do_not_depend_on_threads(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    n, m = 40, 40_000
    X = (rng.normal(size=(m, n)) + 1e3 * rng.normal(size=n)).astype(dtype)
    groups = Groups(rng.integers(0, 50, m), rng.random(m) + 0.1, 50)
    r = groups.deviations(rng.normal(size=(m, 2)))
    means = groups.mean(X)
    D = X.astype(np.float64) - means[groups.codes]
    found = []
    for threads in (1, 2, 4):
        monkeypatch.setattr("rankrls._resources.n_threads", lambda _: threads)  # noqa: B023
        found.append(groups.scatter(X, means, groups.weight, r))
    for gram, cross in found[1:]:
        np.testing.assert_array_equal(gram, found[0][0])
        np.testing.assert_array_equal(cross, found[0][1])
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    expected = D.T @ (groups.weight[:, None] * D)
    np.testing.assert_allclose(found[0][0], expected, rtol=0, atol=tolerance * abs(expected).max())
    np.testing.assert_allclose(found[0][1], D.T @ r, rtol=0, atol=1e5 * tolerance)


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
