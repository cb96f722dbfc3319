"""Which solver: what was asked for, checked, or what ``auto`` stands for."""

from __future__ import annotations

import warnings
from typing import Any

from scipy import sparse

from rankrls import _memory
from rankrls._validation import check_option
from rankrls.feature_maps import Kernel

__all__ = ["SOLVERS", "choose_solver"]

SOLVERS = ("auto", "primal", "dual", "nystroem")


def choose_solver(solver: str, kernel: Kernel, X: Any, m: int, *, basis: Any) -> str:
    """Resolve and check ``solver`` for data X with n features, before anything is allocated.

    ``m`` is the number of rows that have an edge.

    The rule of ``auto``, in this order:

    1. a ``basis`` asks for ``nystroem``;
    2. a kernel other than linear: ``dual`` if two m × m matrices fit into half of the machine's
       memory, otherwise ``nystroem`` with a warning (it is an approximation);
    3. linear: ``primal`` if n <= m, otherwise ``dual``.
    """
    check_option("solver", solver, SOLVERS)
    n = X.shape[1]
    if solver == "auto":
        solver = _auto(kernel, m, n, basis)
    if solver == "primal" and not kernel.linear:
        raise ValueError(
            f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
            f"kernel={kernel.name} use solver='dual' or 'nystroem'"
        )
    if basis is not None and solver != "nystroem":
        raise ValueError(f"basis belongs to solver='nystroem'; got solver={solver!r}")
    _require_memory(solver, kernel, X, m, n)
    return solver


def _auto(kernel: Kernel, m: int, n: int, basis: Any) -> str:
    if basis is not None:
        return "nystroem"
    if not kernel.linear:
        if kernel.precomputed or _memory.fits(m, m, copies=2):
            return "dual"
        warnings.warn(
            f"the kernel matrix of {m:,} rows does not fit into memory: solver='nystroem', an "
            "approximation with random basis vectors, is used; set basis= to say how many",
            stacklevel=5,
        )
        return "nystroem"
    return "primal" if n <= m else "dual"


def _require_memory(solver: str, kernel: Kernel, X: Any, m: int, n: int) -> None:
    if solver == "primal":
        advice = "use solver='cg', or 'dual' with fewer rows"
        _memory.require("solver='primal'", n, n, copies=2, advice=advice)
    elif solver == "dual" and not kernel.precomputed:
        advice = "use solver='nystroem' with basis=, or 'cg' for a linear kernel"
        size = X.dtype.itemsize if not sparse.issparse(X) else 8
        _memory.require("solver='dual'", m, m, copies=2, itemsize=size, advice=advice)
