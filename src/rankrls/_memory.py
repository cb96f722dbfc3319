"""What fits into memory, asked before anything large is allocated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

__all__ = ["available", "budget", "fits", "require"]

GIB = 2**30

#: The file with the limit of a control group: version 2, and the memory controller of version 1.
LIMIT_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def budget() -> int:
    """Bytes that one dense work space may take: half of what this process may use."""
    return available() // 2


def available(proc: Path = Path("/proc/self")) -> int:
    """Bytes that this process may use, shared with whatever else runs under the same limits.

    The smallest of the machine's physical memory, the limits of the process's control group and
    of the groups above it (containers, batch systems, services), and the limit of its address
    space (``ulimit -v``).

    Parameters
    ----------
    proc : Path
        What the kernel tells about the process: its control groups (``cgroup``) and where they
        are mounted (``mountinfo``).
    """
    return min([_physical(), *_group_limits(proc), *_address_space()])


def fits(*shape: int, itemsize: int = 8, copies: int = 1) -> bool:
    """Whether ``copies`` dense arrays of ``shape`` stay within the budget."""
    return _n_bytes(shape, itemsize, copies) <= budget()


def require(what: str, *shape: int, advice: str, itemsize: int = 8, copies: int = 1) -> None:
    """Raise a ``MemoryError`` that says what would be too large and what to do instead."""
    needed = _n_bytes(shape, itemsize, copies)
    if needed > budget():
        size = " × ".join(f"{n:,}" for n in shape)
        raise MemoryError(
            f"{what} needs a dense work space of {size} ({needed / GIB:.1f} GiB, more than half "
            f"of the memory of this process, {budget() / GIB:.1f} GiB): {advice}"
        )


def _n_bytes(shape: tuple[int, ...], itemsize: int, copies: int) -> int:
    total = itemsize * copies
    for n in shape:
        total *= int(n)
    return total


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # pragma: no cover - not POSIX
        return 8 * GIB


def _address_space() -> list[int]:
    """The soft limit of the address space, if there is one."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not POSIX
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if soft == resource.RLIM_INFINITY else [soft]


@cache
def _group_limits(proc: Path) -> list[int]:
    """Limits of the process's control groups and of those above them, read once."""
    try:
        return [limit for path in _limit_files(proc) if (limit := _read_limit(path)) is not None]
    except (OSError, ValueError):  # not Linux, or nothing to be read there
        return []


def _limit_files(proc: Path) -> Iterator[Path]:
    """Where the limits of the process's control group and of those above it stand.

    A line of ``cgroup`` is ``number:controllers:path``, without controllers for version 2. The
    hierarchy is mounted from some ``root`` on, which in a container is often the container's own
    group: the directory of a group is the mount point and the path relative to the root.
    """
    lines = (proc / "cgroup").read_text().splitlines()
    groups = dict(line.split(":", 2)[1:] for line in lines)
    paths = {"cgroup2": groups.get("")}
    paths["cgroup"] = next((p for name, p in groups.items() if "memory" in name.split(",")), None)
    for mount in (proc / "mountinfo").read_text().splitlines():
        fields, _, tail = mount.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        path = paths.get(kind)
        if path is None or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        root, point = fields.split(" ")[3:5]
        for group in _upwards(path, root):
            yield Path(point) / group / LIMIT_FILES[kind]


def _upwards(path: str, root: str) -> Iterator[PurePosixPath]:
    """A group and those above it, relative to the mounted root; at least the root itself."""
    group = PurePosixPath(path)
    relative = PurePosixPath()
    if group.is_relative_to(root):
        relative = group.relative_to(root)
    yield from (relative, *relative.parents)


def _read_limit(path: Path) -> int | None:
    """Bytes, or None if there is no limit ("max"; version 1 writes a huge number instead)."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
