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

PRIMAL = listing(instance("PrimalSolver", "DroppedSolver"))
DUAL = listing(instance("DualSolver", "DroppedSolver"))


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
    values.pop("size", None)
    C = np.zeros((n, n), dtype=columns.dtype, order="F")
    start = 0
    for j in range(n):
        C[j:, j] = columns[start : start + n - j]
        start += n - j
    made = fill(CholeskyFactorization, {"C": C, **values})
    _check_triangle(made)
    return made


def _pack(solver: Any) -> dict[str, Any]:
    """Return the fields; the factorisation is named state in files."""
    values = dict(vars(solver))
    return values | {"state": values.pop("factorization")}


def _unpack(cls: type[Any], values: dict[str, Any]) -> Any:
    values["factorization"] = values.pop("state")
    if values.pop("noise", None) is not None:  # written by version 0.1
        values["largest"] = values["factorization"].matrix().diagonal().copy()
        values["rounding"] = float(np.finfo(np.float64).eps)
    if "largest" in values and values.get("largest_energy") is None:
        values["largest_energy"] = values["energy"].copy()
    return fill(cls, values)


def _pack_dual(solver: DualSolver) -> dict[str, Any]:
    state = solver.factorization
    packed = PackedCholesky(state) if isinstance(state, CholeskyFactorization) else state
    return _pack(solver) | {"state": packed}


def _unpack_cholesky_matrix(cls: type[Any], values: dict[str, Any]) -> Any:
    values.pop("size", None)  # written by version 0.1
    return fill(cls, values)


def _unpack_eigen(cls: type[Any], values: dict[str, Any]) -> Any:
    values.setdefault("floor", float("inf"))  # version 0.1 left out the whole null space
    return fill(cls, values)


def _state_size(state: Any) -> int:
    return len(next(getattr(state, n) for n in ("C", "vectors", "S") if hasattr(state, n)))


def _cost_of_primal(values: dict[str, Any]) -> int:
    """Return the memory to recompute the diagonal, which version 0.1 did not store."""
    return 0 if values.get("noise") is None else 2 * 8 * _state_size(values["state"]) ** 2


def _check_eigen(factorization: Any) -> None:
    p, q = factorization.vectors.shape
    require(1 <= q <= p, f"{q} eigenvectors of {p} entries")


def _check_echelon(factorization: Any) -> None:
    inside = within(factorization.columns, len(factorization.S), distinct=True)
    require(inside, "a factor of other columns")
    require(bool((factorization.triangle.diagonal() != 0).all()), "a factor that is singular")


def _check_primal(solver: Any) -> None:
    require(_state_size(solver.factorization) == len(solver.b), "a solver of two sizes")


def _check_dual(solver: Any) -> None:
    require(solver.factor.shape == (len(solver.share), len(solver.b)), "a solver of two sizes")
    _check_primal(solver)


ANSWERS = {
    "n_pairs": COUNT,
    "log_weight": FINITE,
    "outputs": array("i", "k", empty=False),
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
            "C": array("f", "p p", empty=False),
            "diagonal": array("f", "p"),
            "alpha": POSITIVE,
            "size": optional(NUMBER),
        },
        class_name="CholeskyFactorization",
        derived=("loss", "_others"),
        unpack=_unpack_cholesky_matrix,
        check=_check_triangle,
    ),
    Record(
        "PackedCholesky",
        __name__,
        {
            "columns": array("f", "triangle"),
            "diagonal": array("f", "p"),
            "alpha": POSITIVE,
            "size": optional(NUMBER),
        },
        unpack=_unpack_cholesky,
        cost=_cost_of_triangle,
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
        check=_check_eigen,
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
            "mass": FINITE,
            "largest": optional(array("f", "n")),
            "largest_energy": optional(array("f", "k")),
            "rounding": optional(FINITE),
            "noise": optional(NUMBER),
        },
        pack=_pack,
        unpack=_unpack,
        cost=_cost_of_primal,
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
    Record("DroppedSolver", "rankrls.core.ridge.models", {"outputs": array("i", "k", empty=False)}),
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


def _check_alphas(model: Any) -> None:
    require(bool((model.alphas >= 0).all()), "a model of a negative alpha")


def _n_covariates(model: Any) -> int:
    return 0 if model.pair_coef is None else model.pair_coef.shape[1]


def _check_linear(model: Any) -> None:
    _check_alphas(model)
    _check_outputs(model, model.coef.shape[2])
    _check_solvers(model, model.coef.shape[1] + _n_covariates(model))


def _check_nystroem(model: Any) -> None:
    _check_alphas(model)
    q = len(model.basis.map.kept)
    kept = model.dual_coef[:, model.basis.map.kept]
    require(np.array_equal(kept, model._a, equal_nan=True), "coefficients of another basis")
    require(model.kernel == model.basis.kernel, "a model with two kernels")
    _check_outputs(model, model._a.shape[2])
    _check_solvers(model, q + _n_covariates(model))
    _check_coef(model, model.basis.rows)


def _check_kernel_model(model: Any) -> None:
    _check_alphas(model)
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
    _check_alphas(model)
    require((model.coef is not None) == model.kernel.linear, "weights of a kernel that has none")
    if model.dual_coef is None:
        require(model.coef is not None, "a model without coefficients")
        require(model.kept is None and model.basis is None, "rows without coefficients")
        return
    require(model.kept is not None, "coefficients of unknown rows")
    require(within(model.kept, model.dual_coef.shape[1]), "a model of rows that do not exist")
    hidden = model.kernel.linear or model.kernel.precomputed
    require((model.rows is None) == hidden, "the rows of a model belong to its kernel")
    if model.basis is None:
        return
    size = len(model.basis.indices)
    require(size == model.dual_coef.shape[1], "coefficients of another basis")
    require(model.kernel == model.basis.kernel, "a model with two kernels")
    if model.rows is not None:
        good = model.rows.shape[1] == model.basis.rows.shape[1]
        require(good, "a basis of other features than its model")


MODELS = (
    Record(
        "HingeModel",
        "rankrls.core.hinge.problem",
        {
            "alphas": array("f", "a", empty=False),
            "coef": maybe(array("f", "a n k", empty=False)),
            "dual_coef": maybe(array("f", "a r k", empty=False)),
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
        {"alphas": array("f", "a", empty=False), "coef": array("f", "a n k", empty=False)},
        check=_check_alphas,
    ),
    Record(
        "LinearModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a", empty=False),
            "coef": array("f", "a n k", empty=False),
            "dual_coef": optional(array("f", "a m k", empty=False)),
            "pair_coef": optional(array("f", "a c k", empty=False)),
            "solvers": PRIMAL,
        },
        check=_check_linear,
    ),
    Record(
        "NystroemModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a", empty=False),
            "basis": instance("Basis"),
            "kernel": instance("Kernel"),
            "_a": array("f", "a q k", empty=False),
            "dual_coef": array("f", "a r k", empty=False),
            "coef": optional(array("f", "a n k", empty=False)),
            "pair_coef": optional(array("f", "a c k", empty=False)),
            "solvers": PRIMAL,
        },
        check=_check_nystroem,
    ),
    Record(
        "KernelModel",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a", empty=False),
            "kernel": instance("Kernel"),
            "used": array("i", "m"),
            "_A": array("f", "a m k", empty=False),
            "dual_coef": array("f", "a r k", empty=False),
            "rows": maybe(rows("m n")),
            "shift": either(FINITE, array("f", "n")),
            "coef": optional(array("f", "a n k", empty=False)),
            "solvers": DUAL,
        },
        check=_check_kernel_model,
    ),
)
