"""Number of threads of loops in Python: by default that of BLAS."""

from __future__ import annotations

import numbers
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

from rankrls._validation import show

__all__ = ["SMALL", "at_most", "few_for", "n_threads"]

#: Matrices of at most this many columns are multiplied and factorised in one thread of BLAS.
SMALL = 512


def n_threads(n_jobs: Any) -> int:
    """Resolve ``n_jobs``: None follows BLAS (and `threadpoolctl` limits), −1 is all cores."""
    if n_jobs is None:
        return min(_blas_threads(), effective_n_jobs(-1))
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {show(n_jobs)}")
    return effective_n_jobs(int(n_jobs))


def at_most(threads: int) -> AbstractContextManager[Any]:
    """Limit the threads of BLAS in a ``with`` block; a lower existing limit stays."""
    if threads >= effective_n_jobs(-1) or threads >= _blas_threads():
        return nullcontext()
    return _blas().limit(limits=threads)


def few_for(n: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for a matrix of n columns if it is small.

    Several would be hardly faster, and many times slower while other threads or processes use the
    same cores, because they wait for each other.
    """
    return at_most(1) if n <= SMALL else nullcontext()


def _blas_threads() -> int:
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


@cache
def _blas() -> ThreadpoolController:
    """The libraries of NumPy and SciPy, which are found once: looking for them takes 3 ms."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")
