"""Records of models and of their parts: kernels, solvers, states.

`check` functions ensure that the parts are consistent, so that a loaded model can predict.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankrls.core.linalg.factorizations import CholeskyFactorization
from rankrls.core.ridge.models import DualSolver
from rankrls.core.spaces.spaces import Kernel
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    array,
    either,
    instance,
    listing,
    mapping,
    maybe,
    optional,
    require,
    rows,
    tuple_of,
    within,
)
from rankrls.io._records import Record, call, fill
from rankrls.io._stored_preferences import FACTOR

__all__ = ["KERNELS", "MODELS", "SOLVERS"]

# -- kernels and bases ------------------------------------------------------------------------


def _check_kernel(kernel: Kernel) -> None:
    options: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1}
    Kernel.from_options(kernel.metric, **options, kernel_params=kernel.params)


def _pack_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return the fields without ``n_jobs``, which depends on the machine."""
    return {"metric": kernel.metric, "params": kernel.params}


def _unpack_kernel(cls: type[Any], values: dict[str, Any]) -> Any:
    values.pop("n_jobs", None)
    return cls(**values)


def _check_map(nystroem: Any) -> None:
    require(bool((nystroem.Z.diagonal() != 0).all()), "a basis whose kernel matrix is singular")


def _check_basis(basis: Any) -> None:
    kept = basis.map.kept
    require(
        within(kept, len(basis.indices), distinct=True), "a basis keeps rows that it does not have"
    )
    require(within(basis.indices, 2**62), "a basis of rows with negative numbers")
    missing = basis.rows is None
    require(missing == basis.kernel.precomputed, "the rows of a basis belong to its kernel")
    require(missing or basis.rows.shape[0] == len(kept), "a basis has other rows than it keeps")
    require(missing or not basis.columns_only, "kernel values of a kernel that computes them")


KERNELS = (
    Record(
        "Kernel",
        "rankrls.core.spaces.spaces",
        {
            "metric": TEXT,
            "params": mapping(maybe(FINITE)),
            "n_jobs": optional(maybe(INTEGER)),
        },
        pack=_pack_kernel,
        unpack=_unpack_kernel,
        check=_check_kernel,
    ),
    Record(
        "NystroemMap",
        "rankrls.core.spaces.spaces",
        {
            "Z": array("f", "q q", empty=False),
            "kept": array("i", "q"),
            "left_out": optional(FINITE),
        },
        unpack=call,
        check=_check_map,
    ),
    Record(
        "Basis",
        "rankrls.core.spaces.spaces",
        {
            "kernel": instance("Kernel"),
            "indices": array("i", "r", empty=False),
            "map": instance("NystroemMap"),
            "rows": maybe(rows("q n")),
            "shift": optional(either(FINITE, array("f", "n"))),
            "columns_only": optional(FLAG),
        },
        unpack=call,
        check=_check_basis,
    ),
)


# -- solvers ----------------------------------------------------------------------------------


class PackedCholesky:
    """The lower triangle of a `CholeskyFactorization`, stored by columns in half the space.

    The array C holds entries of S above the diagonal. A dual model does not use them.
    """

    def __init__(self, state: CholeskyFactorization) -> None:
        self.columns = np.concatenate([state.C[j:, j] for j in range(len(state.C))])
        self.diagonal, self.alpha = state.diagonal, state.alpha


def _cost_of_triangle(values: dict[str, Any]) -> int:
    """Return the memory of the square matrix: twice that of its triangle."""
    return 2 * values["columns"].nbytes + values["diagonal"].nbytes


def _check_triangle(factorization: Any) -> None:
    require(bool((factorization.C.diagonal() > 0).all()), "a Cholesky factor that is singular")


def _unpack_cholesky(cls: type[Any], values: dict[str, Any]) -> CholeskyFactorization:
    columns = values.pop("columns")
    n = (math.isqrt(8 * len(columns) + 1) - 1) // 2
    require(n >= 1 and n * (n + 1) // 2 == len(columns), "a Cholesky factor that is no triangle")
    require(len(values["diagonal"]) == n, "a Cholesky factor with another diagonal")
    C = np.zeros((n, n), dtype=columns.dtype, order="F")
    start = 0
    for j in range(n):
        C[j:, j] = columns[start : start + n - j]
        start += n - j
    made = fill(CholeskyFactorization, {"C": C, **values})
    _check_triangle(made)
    return made


def _pack_dual(solver: DualSolver) -> dict[str, Any]:
    values, made = dict(vars(solver)), solver.factorization
    if isinstance(made, CholeskyFactorization):
        values["factorization"] = PackedCholesky(made)
    return values


def _check_eigen(factorization: Any) -> None:
    p, q = factorization.vectors.shape
    require(1 <= q <= p, f"{q} eigenvectors of {p} entries")


def _check_primal(solver: Any) -> None:
    made = solver.factorization
    size = len(made.C if isinstance(made, CholeskyFactorization) else made.vectors)
    require(size == len(solver.b), "a solver of two sizes")


def _check_dual(solver: Any) -> None:
    require(solver.factor.shape == (len(solver.share), len(solver.b)), "a solver of two sizes")
    _check_primal(solver)


COMMON = {
    "n_pairs": COUNT,
    "log_weight": FINITE,
    "outputs": array("i", "k", empty=False),
    "energy": either(array("f", "k"), array("f", "1")),
    "factorization": instance("CholeskyFactorization", "EigenFactorization", "PackedCholesky"),
}

SOLVERS = (
    Record(
        "CholeskyFactorization",
        "rankrls.core.linalg.factorizations",
        {"C": array("f", "p p", empty=False), "diagonal": array("f", "p"), "alpha": POSITIVE},
        derived=("loss", "_others"),
        check=_check_triangle,
    ),
    Record(
        "PackedCholesky",
        __name__,
        {"columns": array("f", "triangle"), "diagonal": array("f", "p"), "alpha": POSITIVE},
        unpack=_unpack_cholesky,
        cost=_cost_of_triangle,
    ),
    Record(
        "EigenFactorization",
        "rankrls.core.linalg.factorizations",
        {
            "null": array("b", "q"),
            "values": array("f", "q"),
            "vectors": array("f", "p q"),
            "floor": NUMBER,
            "source": maybe(tuple_of(array("f", "p p"), array("f", "p"))),
        },
        derived=("loss",),
        check=_check_eigen,
    ),
    Record(
        "PrimalSolver",
        "rankrls.core.ridge.models",
        {
            **COMMON,
            "b": array("f", "n k"),
            "mean": array("f", "n"),
            "mass": FINITE,
            "largest": array("f", "n"),
            "largest_energy": array("f", "k"),
            "rounding": FINITE,
        },
        check=_check_primal,
    ),
    Record(
        "DualSolver",
        "rankrls.core.ridge.models",
        {
            **COMMON,
            "b": array("f", "p k"),
            "factor": FACTOR,
            "share": array("f", "m"),
            "row_means": array("f", "m"),
        },
        pack=_pack_dual,
        check=_check_dual,
    ),
)


# -- fitted functions ---------------------------------------------------------------------------


def _check_function(model: Any) -> None:
    """Check that coefficients, rows, basis and solvers belong together."""
    require(bool((model.alphas >= 0).all()), "a model of a negative alpha")
    require((model.coef is not None) == model.kernel.linear, "weights of a kernel that has none")
    require(model.coef is not None or model.dual_coef is not None, "a model without coefficients")
    require((model.pair_coef is None) == (model.pair_scale is None), "covariates without a scale")
    scaled = model.pair_scale is None or bool((model.pair_scale > 0).all())
    require(scaled, "covariates of a scale that is not positive")
    basis = model.basis
    if model.coef is None:
        require(model.kept is not None, "coefficients of unknown rows")
        missing = model.expansion[0] is None
        require(missing == model.kernel.precomputed, "the rows of a model belong to its kernel")
    if model.kept is not None:
        known = 0 if model.dual_coef is None else model.dual_coef.shape[1]
        require(within(model.kept, known), "a model of rows that do not exist")
    if basis is not None:
        require(model.kernel == basis.kernel, "a model with two kernels")
        size = None if model.dual_coef is None else model.dual_coef.shape[1]
        require(len(basis.indices) == size, "coefficients of another basis")
        require(np.array_equal(model.kept, basis.map.kept), "rows of another basis")
        require(model.rows is None, "rows beside those of a basis")
        if model.coef is not None and basis.rows is not None:
            n = basis.rows.shape[1]
            require(model.coef.shape[1] == n, f"weights of {model.coef.shape[1]} features, not {n}")
    if model.solvers:
        _check_solvers(model)


def _check_solvers(model: Any) -> None:
    outputs = np.sort(np.concatenate([solver.outputs for solver in model.solvers]))
    same = np.array_equal(outputs, np.arange(model.n_outputs))
    require(same, "solvers of other outputs than a model")
    kinds = {type(solver).__name__ for solver in model.solvers}
    require(len(kinds) == 1, "solvers of two kinds")
    n = 0 if model.pair_scale is None else len(model.pair_scale)
    if kinds == {"DualSolver"}:
        require(model.kept is not None and model.basis is None, "a solver of unknown rows")
        missing = model.rows is None
        require(missing == model.kernel.precomputed, "the rows of a model belong to its kernel")
        n = len(model.kept)
    elif model.basis is not None:
        n += len(model.basis.map.kept)
    else:
        require(model.coef is not None, "a solver of features without weights")
        n += model.coef.shape[1]
    for solver in model.solvers:
        alpha = getattr(solver.factorization, "alpha", model.alpha)
        require(alpha == model.alpha, "a solver of another alpha than its model")
        size = len(solver.share if kinds == {"DualSolver"} else solver.mean)
        require(size == n, "a solver of another size than its model")


MODELS = (
    Record(
        "FittedFunction",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a", empty=False),
            "kernel": instance("Kernel"),
            "coef": maybe(array("f", "a n k", empty=False)),
            "dual_coef": maybe(array("f", "a r k", empty=False)),
            "rows": maybe(rows("q n")),
            "kept": maybe(array("i", "q")),
            "shift": either(FINITE, array("f", "n")),
            "basis": maybe(instance("Basis")),
            "pair_coef": maybe(array("f", "a c k", empty=False)),
            "pair_scale": maybe(array("f", "c", empty=False)),
            "solvers": listing(instance("PrimalSolver", "DualSolver"), empty=True),
            "dropped": FLAG,
        },
        check=_check_function,
    ),
)
