"""Memory, threads and optional packages that a call may use."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from math import prod
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

from rankrls._validation import is_integer, show

T = TypeVar("T")
R = TypeVar("R")

GIB = 2**30

#: Matrices of at most this many columns are multiplied and factorised in one thread of BLAS.
SMALL = 512

#: Items of `in_order` for each thread.
AHEAD = 4

_limiting = threading.RLock()

#: Minimum number of vectors of n_features numbers that a fit needs at the same time.
VECTORS = 5

#: The same for fitting a scaler to sparse rows (means, variances, their sums, scales) and for a
#: report (names, column statistics, models of all alphas), as measured.
SCALER_VECTORS, REPORT_VECTORS = 8, 34

#: Vectors of float64 that take as much memory as a list of the features' names.
NAME_VECTORS = 10

#: Vectors of up to this many bytes are always accepted.
_SMALL = 2**26

try:
    _PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
except (AttributeError, ValueError, OSError):  # pragma: no cover - not POSIX
    _PHYSICAL = 8 * GIB

#: Where control groups of version 2, and of the memory controller of version 1, have their limits.
_GROUPS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}


# -- memory -----------------------------------------------------------------------------------


def budget() -> int:
    """Maximum bytes of a dense work space: half of the memory, or the rest of the address space."""
    limit = _address_space()
    with suppress(OSError, ValueError):  # not Linux
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        limit = max(limit - used, 0)
    return min(available() // 2, limit)


def available() -> int:
    """Bytes available: physical memory, limits of control groups and of the address space."""
    return min(_PHYSICAL, *_group_limits(), _address_space())


def fits(*shape: int, itemsize: int = 8, copies: int = 1) -> bool:
    """Whether ``copies`` dense arrays of ``shape`` fit into the budget."""
    return prod((itemsize, copies, *map(int, shape))) <= budget()


def require(what: str, *shape: int, advice: str, itemsize: int = 8, copies: int = 1) -> None:
    """Raise a ``MemoryError`` with advice if dense arrays do not fit into the budget."""
    needed, left = prod((itemsize, copies, *map(int, shape))), budget()
    if needed > left:
        raise MemoryError(
            f"{what} needs a dense work space of {' × '.join(f'{n:,}' for n in shape)} "
            f"({needed / GIB:.1f} GiB, more than half of the memory of this process or what is "
            f"left of it, {left / GIB:.1f} GiB): {advice}"
        )


def fits_features(n_features: int, copies: int = VECTORS) -> bool:
    """Whether ``copies`` vectors of n_features numbers are small or fit into the budget."""
    return 8 * copies * n_features <= _SMALL or fits(n_features, copies=copies)


def require_features(n_features: int, copies: int = VECTORS) -> None:
    """Raise a ``MemoryError`` if `fits_features` is False."""
    if 8 * copies * n_features > _SMALL:
        advice = (
            "use fewer columns: drop those without values, or correct a feature number that is far "
            "larger than the others"
        )
        require(f"a model of {n_features:,} features", n_features, copies=copies, advice=advice)


def _address_space() -> int:
    """The soft limit of the address space."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not POSIX
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


@cache
def _group_limits(proc: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> list[int]:
    """Limits of the process's control groups and of those above them, read once.

    A line of ``proc`` is ``number:controllers:path``. In a container the path may be that of the
    host, which does not exist inside, and the limit is that of the mount point.
    """
    limits = []
    with suppress(OSError):  # not Linux
        for line in Path(proc).read_text().splitlines():
            _, _, controllers_and_path = line.partition(":")
            controllers, _, path = controllers_and_path.partition(":")
            for name in _GROUPS.keys() & set(controllers.split(",")):
                folder, file = _GROUPS[name]
                group = PurePosixPath(path.lstrip("/"))
                for one in (group, *group.parents):
                    with suppress(OSError, ValueError):  # no such file, or "max"
                        limits.append(int((Path(mount) / folder / one / file).read_text()))
    return limits


# -- threads ----------------------------------------------------------------------------------


def n_threads(n_jobs: Any) -> int:
    """Resolve ``n_jobs``: None follows BLAS (and `threadpoolctl` limits), −1 is all cores."""
    if n_jobs is None:
        most = _blas_threads()
        return most if most == 1 else min(most, n_threads(-1))  # counting cores takes 0.1 ms
    if not is_integer(n_jobs) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {show(n_jobs)}")
    # Workers of Dask get 1, as by joblib but without its warning.
    return 1 if multiprocessing.current_process().daemon else effective_n_jobs(int(n_jobs))


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Limit the threads of BLAS in a ``with`` block; a lower existing limit stays."""
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with nullcontext() if threads >= _blas_threads() else _blas().limit(limits=threads):
            yield
    finally:
        _limiting.release()


def few_threads(n: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for a small matrix: several wait for each other on busy cores."""
    return at_most(1) if n <= SMALL else nullcontext()


def in_threads(work: Callable[[T], R], items: Sequence[T], n: int) -> list[R]:
    """Results of ``work`` on matrices of n columns, in threads of our own if they are small."""
    if n > SMALL:
        return list(map(work, items))
    threads = min(n_threads(None), len(items)) if len(items) > 1 else 1
    with at_most(1):
        if threads == 1:
            return list(map(work, items))
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, items))


def in_order(work: Callable[[T], R], items: Iterator[T], threads: int) -> Iterator[R]:
    """Results for all items, worked on ahead by some threads; an error comes in its turn."""
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[R]] = deque()
        failed: Exception | None = None
        while True:
            try:
                item = next(items, None)
            except Exception as error:
                item, failed = None, error
            if item is not None:
                coming.append(pool.submit(work, item))
            while coming and (item is None or len(coming) > AHEAD * threads):
                yield coming.popleft().result()
            if failed is not None:
                raise failed
            if item is None:
                return


def _blas_threads() -> int:
    return max(map(attrgetter("num_threads"), _blas().lib_controllers), default=1)


@cache
def _blas() -> ThreadpoolController:
    """The libraries of NumPy and SciPy, which are found once: looking for them takes 3 ms."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")


# -- packages ---------------------------------------------------------------------------------


def pyplot() -> Any:
    """Return matplotlib.pyplot, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib: pip install 'rankrls[plot]' (or pip install matplotlib)"
        ) from error
    return matplotlib.pyplot


def pyarrow() -> Any:
    """The package, or an error that says how to get it; it is an extra, imported when needed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "CSV, Parquet and Arrow files are read by pyarrow, which is not installed: "
            "pip install 'rankrls[arrow]'"
        ) from error
    return pyarrow
