"""Memory limits: of the machine, of control groups (containers), of the address space."""

import resource
import subprocess
import sys

import pytest

from rankrls import _memory
from rankrls._memory import GIB

PHYSICAL = 16 * GIB


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(_memory, "_physical", lambda: PHYSICAL)
    monkeypatch.setattr(_memory, "_address_space", list)
    _memory._group_limits.cache_clear()


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
    assert _memory.available(tmp_path / "nothing") == PHYSICAL
    assert _memory.available(proc(["0::/a"], V2, {"cg/a/memory.max": "max"})) == PHYSICAL


def test_version_2_the_smallest_of_the_group_and_those_above(proc):
    limits = {
        "cg/a/memory.max": 6 * GIB,
        "cg/a/b/memory.max": "max",
        "cg/a/b/c/memory.max": 7 * GIB,
        "cg/a/b/c/d/memory.max": GIB,  # below: of other processes
        "cg/x/memory.max": GIB,  # beside
    }
    assert _memory.available(proc(["0::/a/b/c"], V2, limits)) == 6 * GIB


def test_version_2_own_group_is_the_root_of_a_namespace(proc):
    assert _memory.available(proc(["0::/"], V2, {"cg/memory.max": 2 * GIB})) == 2 * GIB


def test_version_1(proc):
    groups = ["5:cpu,cpuacct:/x", "4:memory:/job/step", "0::/"]
    limits = {
        "cg/memory/memory.limit_in_bytes": HUGE,
        "cg/memory/job/memory.limit_in_bytes": 3 * GIB,
        "cg/memory/job/step/memory.limit_in_bytes": HUGE,
        "cg/memory/x/memory.limit_in_bytes": GIB,
        "cg/cpu/memory.limit_in_bytes": GIB,
    }
    assert _memory.available(proc(groups, V1, limits)) == 3 * GIB


def test_version_1_container_that_sees_the_path_of_the_host(proc):
    mounts = [("/docker/abc", "cg/memory", "cgroup", "rw,memory")]
    limits = {
        "cg/memory/memory.limit_in_bytes": 5 * GIB,
        "cg/memory/inner/memory.limit_in_bytes": 4 * GIB,
    }
    groups = ["4:memory:/docker/abc/inner"]
    assert _memory.available(proc(groups, mounts, limits)) == 4 * GIB


def test_the_mounted_root_counts_where_the_group_is_not_below_it(proc):
    mounts = [("/docker/abc", "cg/memory", "cgroup", "rw,memory")]
    limits = {"cg/memory/memory.limit_in_bytes": 5 * GIB}
    assert _memory.available(proc(["4:memory:/other"], mounts, limits)) == 5 * GIB


def test_both_versions_mounted(proc):
    mounts = [*V1, ("/", "cg/unified", "cgroup2", "rw")]
    limits = {
        "cg/memory/a/memory.limit_in_bytes": 5 * GIB,
        "cg/unified/memory.max": "max",
    }
    assert _memory.available(proc(["4:memory:/a", "0::/"], mounts, limits)) == 5 * GIB


@pytest.mark.parametrize("file", ["cgroup", "mountinfo"])
@pytest.mark.parametrize("text", ["", "nonsense\n", "0::\n", "1 2 - cgroup2 x rw\n"])
def test_odd_files_are_no_limit(proc, file, text):
    folder = proc(["0::/a"], V2, {"cg/a/memory.max": "12 apples"})
    (folder / file).write_text(text)
    assert _memory.available(folder) == PHYSICAL


def test_the_budget_is_half_of_the_smallest(monkeypatch):
    monkeypatch.setattr(_memory, "_group_limits", lambda proc: [6 * GIB, 9 * GIB])
    assert _memory.budget() == 3 * GIB
    assert _memory.fits(3, GIB // 8)
    assert not _memory.fits(3, GIB // 8, copies=2)
    with pytest.raises(MemoryError, match=r"6\.0 GiB, more than half .* 3\.0 GiB\): do less"):
        _memory.require("a test", 6, GIB // 8, advice="do less")
    monkeypatch.setattr(_memory, "_address_space", lambda: [4 * GIB])
    assert _memory.budget() == 2 * GIB


def test_address_space_of_a_process():
    limit = 4 * GIB
    program = "from rankrls import _memory; print(*_memory._address_space(), _memory.available())"
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
