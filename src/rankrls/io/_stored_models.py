"""Records of models and of what they are made of: kernels, solvers, states.

`check` functions make sure that the parts fit together, so that a model that loads also answers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankrls.core.linalg.factorizations import CholeskyFactorization
from rankrls.core.ridge.models import DualSolver
from rankrls.core.spaces.spaces import Kernel
from rankrls.io._kinds import (
    INTEGER,
    MAPPING,
    NUMBER,
    TEXT,
    array,
    either,
    instance,
    listing,
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

#: Nobody means more.
MAX_JOBS = 4096

PRIMAL = listing(instance("PrimalSolver", "DroppedSolver"))
DUAL = listing(instance("DualSolver", "DroppedSolver"))


# -- kernels and bases ------------------------------------------------------------------------


def _check_kernel(kernel: Kernel) -> None:
    jobs = kernel.n_jobs
    require(jobs is None or 0 < abs(jobs) <= MAX_JOBS, f"a kernel for {jobs} jobs")
    options: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1}
    Kernel.from_options(kernel.metric, **options, kernel_params=kernel.params)


def _check_basis(basis: Any) -> None:
    kept = basis.map.kept
    require(within(kept, len(basis.indices)), "a basis keeps rows that it does not have")
    missing = basis.rows is None
    require(missing == basis.kernel.precomputed, "the rows of a basis belong to its kernel")
    require(missing or basis.rows.shape[0] == len(kept), "a basis has other rows than it keeps")


KERNELS = (
    Record(
        "Kernel",
        "rankrls.core.spaces.spaces",
        {"metric": TEXT, "params": MAPPING, "n_jobs": maybe(INTEGER)},
        unpack=call,
        check=_check_kernel,
    ),
    Record(
        "NystroemMap",
        "rankrls.core.spaces.spaces",
        {"Z": array("f", "q q"), "kept": array("i", "q"), "left_out": optional(NUMBER)},
        unpack=call,
    ),
    Record(
        "Basis",
        "rankrls.core.spaces.spaces",
        {
            "kernel": instance("Kernel"),
            "indices": array("i", "r"),
            "map": instance("NystroemMap"),
            "rows": maybe(rows("q n")),
            "shift": optional(either(NUMBER, array("f", "n"))),
        },
        unpack=call,
        check=_check_basis,
    ),
)


# -- solvers ----------------------------------------------------------------------------------


class PackedCholesky:
    """The lower triangle of a `CholeskyFactorization`, column by column: half the size.

    Above the diagonal, C holds what S was. A dual model has no use for it.
    """

    def __init__(self, state: CholeskyFactorization) -> None:
        self.columns = np.concatenate([state.C[j:, j] for j in range(len(state.C))])
        self.diagonal, self.alpha = state.diagonal, state.alpha


def _unpack_cholesky(cls: type[Any], values: dict[str, Any]) -> CholeskyFactorization:
    columns = values.pop("columns")
    n = (math.isqrt(8 * len(columns) + 1) - 1) // 2
    require(n >= 1 and n * (n + 1) // 2 == len(columns), "a Cholesky factor that is no triangle")
    require(len(values["diagonal"]) == n, "a Cholesky factor with another diagonal")
    values.pop("size", None)
    C = np.zeros((n, n), dtype=columns.dtype, order="F")
    start = 0
    for j in range(n):
        C[j:, j] = columns[start : start + n - j]
        start += n - j
    return fill(CholeskyFactorization, {"C": C, **values})


def _pack(solver: Any) -> dict[str, Any]:
    """The factorisation is called state in files."""
    values = dict(vars(solver))
    return values | {"state": values.pop("factorization")}


def _unpack(cls: type[Any], values: dict[str, Any]) -> Any:
    values["factorization"] = values.pop("state")
    if values.pop("noise", None) is not None:  # of version 0.1
        values["largest"] = values["factorization"].matrix().diagonal().copy()
        values["rounding"] = float(np.finfo(np.float64).eps)
    return fill(cls, values)


def _pack_dual(solver: DualSolver) -> dict[str, Any]:
    state = solver.factorization
    packed = PackedCholesky(state) if isinstance(state, CholeskyFactorization) else state
    return _pack(solver) | {"state": packed}


def _unpack_cholesky_matrix(cls: type[Any], values: dict[str, Any]) -> Any:
    values.pop("size", None)  # of version 0.1
    return fill(cls, values)


def _unpack_eigen(cls: type[Any], values: dict[str, Any]) -> Any:
    values.setdefault("floor", float("inf"))  # version 0.1 left all of the null space out
    return fill(cls, values)


def _state_size(state: Any) -> int:
    return len(next(getattr(state, n) for n in ("C", "vectors", "S") if hasattr(state, n)))


def _check_echelon(factorization: Any) -> None:
    require(within(factorization.columns, len(factorization.S)), "a factor of other columns")


def _check_primal(solver: Any) -> None:
    require(_state_size(solver.factorization) == len(solver.b), "a solver of two sizes")


def _check_dual(solver: Any) -> None:
    require(solver.factor.shape == (len(solver.share), len(solver.b)), "a solver of two sizes")
    _check_primal(solver)


ANSWERS = {
    "n_pairs": INTEGER,
    "log_weight": NUMBER,
    "outputs": array("i", "k"),
    "energy": either(array("f", "k"), array("f", "1")),
    "state": instance(
        "CholeskyFactorization", "EchelonFactorization", "EigenFactorization", "PackedCholesky"
    ),
}

SOLVERS = (
    Record(
        "CholeskyState",
        "rankrls.core.linalg.factorizations",
        {
            "C": array("f", "p p"),
            "diagonal": array("f", "p"),
            "alpha": NUMBER,
            "size": optional(NUMBER),
        },
        class_name="CholeskyFactorization",
        derived=("loss", "_others"),
        unpack=_unpack_cholesky_matrix,
    ),
    Record(
        "PackedCholesky",
        __name__,
        {
            "columns": array("f", "triangle"),
            "diagonal": array("f", "p"),
            "alpha": NUMBER,
            "size": optional(NUMBER),
        },
        unpack=_unpack_cholesky,
    ),
    Record(
        "SpectralState",
        "rankrls.core.linalg.factorizations",
        {
            "null": array("b", "q"),
            "values": array("f", "q"),
            "vectors": array("f", "p q"),
            "floor": optional(NUMBER),
            "source": maybe(tuple_of(array("f", "p p"), array("f", "p"))),
        },
        class_name="EigenFactorization",
        derived=("loss",),
        unpack=_unpack_eigen,
    ),
    Record(
        "EchelonFactorization",
        "rankrls.core.linalg.factorizations",
        {
            "S": array("f", "p p"),
            "triangle": array("f", "r r"),
            "columns": array("i", "r"),
            "scale": array("f", "r"),
            "A": array("f", "r p"),
            "gram": array("f", "r r"),
        },
        derived=("loss",),
        check=_check_echelon,
    ),
    Record(
        "PrimalSolver",
        "rankrls.core.ridge.models",
        {
            **ANSWERS,
            "b": array("f", "n k"),
            "mean": array("f", "n"),
            "mass": NUMBER,
            "largest": optional(array("f", "n")),
            "rounding": optional(NUMBER),
            "noise": optional(NUMBER),
        },
        pack=_pack,
        unpack=_unpack,
        check=_check_primal,
    ),
    Record(
        "DualSolver",
        "rankrls.core.ridge.models",
        {
            **ANSWERS,
            "b": array("f", "p k"),
            "factor": FACTOR,
            "share": array("f", "m"),
            "row_means": array("f", "m"),
        },
        pack=_pack_dual,
        unpack=_unpack,
        check=_check_dual,
    ),
    Record("DroppedSolver", "rankrls.core.ridge.models", {"outputs": array("i", "k")}),
)


# -- models -----------------------------------------------------------------------------------


def _check_outputs(model: Any, n_outputs: int) -> None:
    outputs = np.sort(np.concatenate([solver.outputs for solver in model.solvers]))
    require(np.array_equal(outputs, np.arange(n_outputs)), "solvers of other outputs than a model")


def _check_solvers(model: Any, n: int) -> None:
    for solver in model.solvers:
        alpha = getattr(getattr(solver, "factorization", None), "alpha", model.alpha)
        require(alpha == model.alpha, "a solver of another alpha than its model")
        sizes = [len(getattr(solver, name)) for name in ("mean", "share") if hasattr(solver, name)]
        require(all(size == n for size in sizes), "a solver of another size than its model")


def _check_linear(model: Any) -> None:
    _check_outputs(model, model.coef.shape[2])
    _check_solvers(model, model.coef.shape[1])


def _check_nystroem(model: Any) -> None:
    q = len(model.basis.map.kept)
    kept = model.dual_coef[:, model.basis.map.kept]
    require(np.array_equal(kept, model._a, equal_nan=True), "coefficients of another basis")
    require(model.kernel == model.basis.kernel, "a model with two kernels")
    _check_outputs(model, model._a.shape[2])
    _check_solvers(model, q)
    _check_coef(model, model.basis.rows)


def _check_kernel_model(model: Any) -> None:
    require(within(model.used, model.dual_coef.shape[1]), "a model of rows that do not exist")
    used = model.dual_coef[:, model.used]
    require(np.array_equal(used, model._A, equal_nan=True), "coefficients of other rows")
    _check_outputs(model, model._A.shape[2])
    _check_solvers(model, len(model.used))
    missing = model.rows is None
    require(missing == model.kernel.precomputed, "the rows of a model belong to its kernel")
    _check_coef(model, model.rows)


def _check_coef(model: Any, training_rows: Any) -> None:
    require((model.coef is not None) == model.kernel.linear, "weights of a kernel that has none")
    if model.coef is not None and training_rows is not None:
        n = training_rows.shape[1]
        require(model.coef.shape[1] == n, f"weights of {model.coef.shape[1]} features, not {n}")


def _check_hinge(model: Any) -> None:
    require((model.coef is not None) == model.kernel.linear, "weights of a kernel that has none")
    if model.dual_coef is None:
        require(model.coef is not None, "a model without coefficients")
        return
    require(model.kept is not None, "coefficients of unknown rows")
    require(within(model.kept, model.dual_coef.shape[1]), "a model of rows that do not exist")
    hidden = model.kernel.linear or model.kernel.precomputed
    require((model.rows is None) == hidden, "the rows of a model belong to its kernel")
    if model.basis is not None:
        size = len(model.basis.indices)
        require(size == model.dual_coef.shape[1], "coefficients of another basis")


MODELS = (
    Record(
        "HingeModel",
        "rankrls.core.hinge.problem",
        {
            "alphas": array("f", "a"),
            "coef": maybe(array("f", "a n k")),
            "dual_coef": maybe(array("f", "a r k")),
            "kernel": instance("Kernel"),
            "rows": maybe(rows("q n")),
            "kept": maybe(array("i", "q")),
            "basis": maybe(instance("Basis")),
        },
        check=_check_hinge,
    ),
    Record(
        "IterativeModel",
        "rankrls.core.ridge.iterative",
        {"alphas": array("f", "a"), "coef": array("f", "a n k")},
    ),
    Record(
        "LinearModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a"),
            "coef": array("f", "a n k"),
            "dual_coef": optional(array("f", "a m k")),
            "solvers": PRIMAL,
        },
        check=_check_linear,
    ),
    Record(
        "NystroemModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a"),
            "basis": instance("Basis"),
            "kernel": instance("Kernel"),
            "_a": array("f", "a q k"),
            "dual_coef": array("f", "a r k"),
            "coef": optional(array("f", "a n k")),
            "solvers": PRIMAL,
        },
        check=_check_nystroem,
    ),
    Record(
        "KernelModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a"),
            "kernel": instance("Kernel"),
            "used": array("i", "m"),
            "_A": array("f", "a m k"),
            "dual_coef": array("f", "a r k"),
            "rows": maybe(rows("m n")),
            "shift": either(NUMBER, array("f", "n")),
            "coef": optional(array("f", "a n k")),
            "solvers": DUAL,
        },
        check=_check_kernel_model,
    ),
)
