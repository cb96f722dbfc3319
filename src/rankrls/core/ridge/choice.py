"""Which solver: what was asked for, checked, or what ``auto`` stands for."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from typing import Any

from scipy.sparse import issparse

from rankrls import _memory
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import DEFAULT_BASIS

__all__ = ["SOLVERS", "choose_solver"]

SOLVERS = ("auto", "primal", "dual", "nystroem", "cg")

#: ``auto`` solves sparse linear problems iteratively above this number of rows and of columns.
DIRECT_SIZE = 5000


def choose_solver(
    solver: str,
    kernel: Kernel,
    X: Any,
    m: int,
    *,
    basis: Sized | None,
    early_stopping: bool = False,
) -> str:
    """Resolve and check ``solver`` for data X with n features, before anything is allocated.

    ``m`` is the number of rows that have an edge, ``basis`` the basis vectors that were asked for.

    The rule of ``auto``, in this order:

    1. a ``basis`` asks for ``nystroem``, early stopping for ``cg``;
    2. a kernel other than linear: ``dual`` if two m × m matrices fit into half of the machine's
       memory, otherwise ``nystroem`` with a warning (it is an approximation);
    3. linear: ``cg`` if X is sparse with more than 5000 rows and columns, or if the direct
       solvers do not fit into memory; otherwise ``primal`` if n <= m, else ``dual``.
    """
    n = X.shape[1]
    if solver == "auto":
        solver = "cg" if early_stopping else _auto(kernel, X, m, n, basis)
    if early_stopping and solver != "cg":
        raise ValueError(f"early_stopping belongs to solver='cg'; got solver={solver!r}")
    if solver in ("primal", "cg") and not kernel.linear:
        raise ValueError(
            f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
            f"kernel={kernel.name} use solver='dual' or 'nystroem'"
        )
    if basis is not None and solver != "nystroem":
        raise ValueError(f"basis belongs to solver='nystroem'; got solver={solver!r}")
    _require_memory(solver, kernel, X, m, basis)
    return solver


def _auto(kernel: Kernel, X: Any, m: int, n: int, basis: Sized | None) -> str:
    if basis is not None:
        return "nystroem"
    if not kernel.linear:
        if kernel.precomputed or _memory.fits(m, m, copies=2):
            return "dual"
        warnings.warn(
            f"the kernel matrix of {m:,} rows does not fit into memory: solver='nystroem', an "
            f"approximation with {DEFAULT_BASIS} random basis vectors, is used; set basis= to say "
            "how many",
            stacklevel=5,
        )
        return "nystroem"
    size = min(n, m)
    if (issparse(X) and size > DIRECT_SIZE) or not _memory.fits(size, size, copies=2):
        return "cg"
    return "primal" if n <= m else "dual"


def _require_memory(solver: str, kernel: Kernel, X: Any, m: int, basis: Sized | None) -> None:
    size = {"copies": 2, "itemsize": X.dtype.itemsize}
    if solver == "primal":
        n = X.shape[1]
        advice = "use solver='cg'"
        _memory.require("solver='primal'", n, n, copies=2, advice=advice)
    elif solver == "nystroem":
        r = min(DEFAULT_BASIS, X.shape[0]) if basis is None else len(basis)
        advice = "use fewer basis vectors"
        _memory.require("solver='nystroem'", X.shape[0], r, advice=advice, **size)
    elif solver == "dual" and not kernel.precomputed:
        advice = "use solver='nystroem' with basis=1000, say"
        if kernel.linear:
            advice = "use solver='cg'"
        _memory.require("solver='dual'", m, m, advice=advice, **size)
