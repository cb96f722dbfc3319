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
from rankrls.core.preferences.query_weights import Groups

# -- Memory limits: of the machine, of control groups (containers), of the address space

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

PHYSICAL = 16 * GIB


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(_resources, "_physical", lambda: PHYSICAL)
    monkeypatch.setattr(_resources, "_address_space", list)
    _resources._group_limits.cache_clear()


@pytest.fixture
def proc(tmp_path):
    """Write what the kernel tells: groups of the process, mounts, and limits by group."""

    def write(groups, mounts, limits):
        folder = tmp_path / "proc"
        folder.mkdir()
        (folder / "cgroup").write_text("".join(f"{line}\n" for line in groups))
        lines = ["22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"]
        for number, (root, point, kind, options) in enumerate(mounts):
            (tmp_path / point).mkdir(parents=True)
            lines.append(
                f"{30 + number} 22 0:{number} {root} {tmp_path / point} rw,nosuid shared:9 - "
                f"{kind} {kind} {options}"
            )
        (folder / "mountinfo").write_text("\n".join(lines) + "\n")
        for name, limit in limits.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{limit}\n")
        return folder

    return write


V2 = [("/", "cg", "cgroup2", "rw,nsdelegate")]
V1 = [("/", "cg/cpu", "cgroup", "rw,cpu"), ("/", "cg/memory", "cgroup", "rw,memory")]
HUGE = 9223372036854771712  # "no limit" of version 1


def test_no_limits(proc, tmp_path):
    assert _resources.available(tmp_path / "nothing") == PHYSICAL
    assert _resources.available(proc(["0::/a"], V2, {"cg/a/memory.max": "max"})) == PHYSICAL


def test_version_2_the_smallest_of_the_group_and_those_above(proc):
    limits = {
        "cg/a/memory.max": 6 * GIB,
        "cg/a/b/memory.max": "max",
        "cg/a/b/c/memory.max": 7 * GIB,
        "cg/a/b/c/d/memory.max": GIB,  # below: of other processes
        "cg/x/memory.max": GIB,  # beside
    }
    assert _resources.available(proc(["0::/a/b/c"], V2, limits)) == 6 * GIB


def test_version_1(proc):
    groups = ["5:cpu,cpuacct:/x", "4:memory:/job/step", "0::/"]
    limits = {
        "cg/memory/memory.limit_in_bytes": HUGE,
        "cg/memory/job/memory.limit_in_bytes": 3 * GIB,
        "cg/memory/job/step/memory.limit_in_bytes": HUGE,
        "cg/memory/x/memory.limit_in_bytes": GIB,
        "cg/cpu/memory.limit_in_bytes": GIB,
    }
    assert _resources.available(proc(groups, V1, limits)) == 3 * GIB


def test_version_1_container_that_sees_the_path_of_the_host(proc):
    mounts = [("/docker/abc", "cg/memory", "cgroup", "rw,memory")]
    limits = {
        "cg/memory/memory.limit_in_bytes": 5 * GIB,
        "cg/memory/inner/memory.limit_in_bytes": 4 * GIB,
    }
    groups = ["4:memory:/docker/abc/inner"]
    assert _resources.available(proc(groups, mounts, limits)) == 4 * GIB


@pytest.mark.parametrize("file", ["cgroup", "mountinfo"])
@pytest.mark.parametrize("text", ["", "nonsense\n", "0::\n", "1 2 - cgroup2 x rw\n"])
def test_odd_files_are_no_limit(proc, file, text):
    folder = proc(["0::/a"], V2, {"cg/a/memory.max": "12 apples"})
    (folder / file).write_text(text)
    assert _resources.available(folder) == PHYSICAL


def test_the_budget_is_half_of_the_smallest(monkeypatch):
    monkeypatch.setattr(_resources, "_group_limits", lambda proc: [6 * GIB, 9 * GIB])
    assert _resources.budget() == 3 * GIB
    assert _resources.fits(3, GIB // 8)
    assert not _resources.fits(3, GIB // 8, copies=2)
    with pytest.raises(MemoryError, match=r"6\.0 GiB, more than half .* 3\.0 GiB\): do less"):
        _resources.require("a test", 6, GIB // 8, advice="do less")
    monkeypatch.setattr(_resources, "_address_space", lambda: [4 * GIB])
    monkeypatch.setattr(_resources, "_address_space_left", lambda: [3 * GIB])
    assert _resources.budget() == 2 * GIB


@linux
def test_address_space_of_a_process():
    limit = 4 * GIB
    program = "from rankrls import _resources as r; print(*r._address_space(), r.available())"
    seen = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=True,
    )
    own, available = map(int, seen.stdout.split())
    assert own == limit
    assert available <= limit


#: Under a limit of 2 GiB of address space: what cannot fit, and words of the error.
TOO_LARGE = {
    "RankRLS(solver='primal').fit(wide, y_few)": "solver='cg'",
    "RankRLS(kernel='rbf', solver='dual').fit(tall, y)": "solver='nystroem'",
    "RankRLS(kernel='rbf', basis=9000).fit(tall, y)": "fewer basis vectors",
    "RankRLS().partial_fit(wide, y_few)": "fewer features",
    "RankRLS().fit_stream([(wide, y_few)])": "fewer features",
    "RankRLSCV(kernel='rbf', solver='dual').fit(tall, y)": "solver='nystroem'",
    "RankRLSCV(cv='leave-pair-out').fit(tall, y)": "folds of rows",
    "RankRLSCV(cost='unit', cv='leave-pair-out').fit(tall, two)": "folds of rows",
    "ms.leave_pair_out_score(RankRLS(), tall, y)": "folds of rows",
    "ms.leave_pair_out_score(RankRLS(cost='unit'), tall, two)": "folds of rows",
    "ms.leave_pair_out_predict(RankRLS(), tall, y)": "folds of rows",
    "ms.leave_pair_out_predict(RankRLS(), tall, y, pairs=[(0, 1)])": "folds of rows",
    "ms.leave_pair_out_tournament(RankRLS(), tall, y)": "folds of rows",
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


def test_the_address_space_that_is_left_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(_resources, "_address_space", lambda: [4 * GIB])
    statm = tmp_path / "statm"
    statm.write_text(f"{3 * GIB // os.sysconf('SC_PAGE_SIZE')} 1 1 1 0 1 0\n")
    assert _resources._address_space_left(statm) == [GIB]
    assert _resources._address_space_left(tmp_path / "none") == []
    monkeypatch.setattr(_resources, "_address_space_left", lambda: [GIB])
    assert _resources.budget() == GIB


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
