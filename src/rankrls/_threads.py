"""How many threads our own loops may use: what BLAS may, unless the user says otherwise."""

from __future__ import annotations

import numbers
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import threadpool_info

from rankrls._validation import show

__all__ = ["n_threads"]


def n_threads(n_jobs: Any) -> int:
    """Resolve ``n_jobs``: None follows BLAS (and `threadpoolctl` limits), −1 is all cores."""
    if n_jobs is None:
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return min(max(blas, default=1), effective_n_jobs(-1))
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {show(n_jobs)}")
    return effective_n_jobs(int(n_jobs))
