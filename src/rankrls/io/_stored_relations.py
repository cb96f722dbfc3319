"""Records of the conditional rankers and of their training objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.core.relations.labels import Observations
from rankrls.core.relations.sides import KernelSum
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.objects import read_kernels
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    NAMES,
    NUMBER,
    NUMBERS,
    POSITIVE,
    SIZE,
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
from rankrls.io._records import EstimatorRecord, Record, call
from rankrls.io._stored_estimators import (
    CHOOSING,
    CHOSEN,
    DROPPED,
    EARLY_STOPPING,
    KERNEL_PARAMS,
    RANKER_ADVICE,
    SEEN,
    VERBOSE,
    check_metric,
    check_seen,
)

__all__ = ["CONDITIONAL", "KERNEL_SUM", "OBJECTS", "OBSERVATIONS"]


def _check_objects(objects: Any) -> None:
    n, width = objects.X.shape
    require(width > 0, "objects without features")
    several = isinstance(objects.kernel, KernelSum)
    n_blocks = objects.kernel.n_blocks if several else int(objects.kernel.precomputed)
    require(not n_blocks or n_blocks * n == width, "objects whose kernel matrix is not square")
    profiled = several and objects.kernel.profiled
    names = objects.names
    listed = [] if names is None else names.tolist()
    texts = all(isinstance(name, str) for name in listed)
    whole = texts or all(isinstance(name, int) for name in listed)
    good = names is None or (whole and len(set(listed)) == len(listed) == n)
    require(good, "names of other objects")
    require(profiled == (objects.profile is not None), "objects with labels of another kernel")


OBJECTS = Record(
    "Objects",
    "rankrls.estimators.objects",
    {
        "kernel": instance("Kernel", "KernelSum"),
        "X": rows("n d"),
        "profile": optional(maybe(array("f", "n n"))),
        "names": optional(maybe(either(NAMES, array("i", "names")))),
        "sees_differences": optional(FLAG),
    },
    derived=("_matrices", "_sizes", "_centred"),
    unpack=call,
    check=_check_objects,
)


def _pack_sum(kernels: KernelSum) -> dict[str, Any]:
    return {
        "metrics": kernels.metric,
        "params": [kernel.params for kernel in kernels.kernels],
        "weights": kernels.weights,
    }


def _unpack_sum(cls: type[Any], values: dict[str, Any]) -> Any:
    metrics, params = values["metrics"], values["params"]
    require(len(metrics) == len(params) == len(values["weights"]), "kernels without parameters")
    made = tuple(Kernel(metric, own) for metric, own in zip(metrics, params, strict=True))
    return cls(made, values["weights"])


def _check_sum(kernels: KernelSum) -> None:
    options: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1, "n_jobs": None}
    params = [kernel.params for kernel in kernels.kernels]
    read_kernels(kernels.metric, kernels.weights, params, "kernel", **options)


KERNEL_SUM = Record(
    "KernelSum",
    "rankrls.core.relations.sides",
    {"metrics": listing(TEXT), "params": listing(KERNEL_PARAMS), "weights": array("f", "k")},
    pack=_pack_sum,
    unpack=_unpack_sum,
    check=_check_sum,
)


def _pack_labels(labels: Observations) -> dict[str, Any]:
    """Return the labels as a matrix or as lists of edges."""
    if labels.matrix is not None:
        return {"matrix": labels.matrix}
    return dict(zip(("rows", "cols", "y"), labels.lists, strict=True)) | {"shape": labels.shape}


def _unpack_labels(cls: type[Any], values: dict[str, Any]) -> Any:
    lists = "rows", "cols", "y", "shape"
    if "matrix" in values:
        require(not any(name in values for name in lists), "labels of two kinds")
        return cls.from_matrix(values["matrix"])
    require(all(name in values for name in lists), "labels of which a part is missing")
    good = all(within(values[name], n) for name, n in zip(lists, values["shape"], strict=False))
    require(good, "labels of other objects")
    return cls(*(values[name] for name in lists))


OBSERVATIONS = Record(
    "Observations",
    "rankrls.core.relations.labels",
    {
        "matrix": optional(array("f", "p g")),
        "rows": optional(array("i", "edges")),
        "cols": optional(array("i", "edges")),
        "y": optional(array("f", "edges")),
        "shape": optional(tuple_of(SIZE, SIZE)),
    },
    pack=_pack_labels,
    unpack=_unpack_labels,
)

KERNEL_NAMES = either(TEXT, listing(TEXT))
SEVERAL_PARAMS = either(KERNEL_PARAMS, listing(maybe(KERNEL_PARAMS)))

#: One alpha, or a pair (row, column).
ALPHA = either(either(NUMBER, tuple_of(NUMBER, NUMBER)), NUMBERS)
GRID = either(either(NUMBERS, tuple_of(NUMBERS, NUMBERS)), listing(NUMBERS))
#: Results of cross-validation; two-step regression has pairs of alphas.
RESULTS = mapping(either(array("fi", "alphas", nan=True), array("f", "alphas two")))
PAIR = either(POSITIVE, tuple_of(POSITIVE, POSITIVE))

PARAMS = {
    "kernel": KERNEL_NAMES,
    "object_kernel": maybe(KERNEL_NAMES),
    "gamma": maybe(FINITE),
    "degree": FINITE,
    "coef0": FINITE,
    "kernel_params": maybe(SEVERAL_PARAMS),
    "object_kernel_params": maybe(SEVERAL_PARAMS),
    "kernel_weights": maybe(NUMBERS),
    "object_kernel_weights": maybe(NUMBERS),
    "pairwise": TEXT,
    "relation": maybe(TEXT),
    "loss": TEXT,
    "condition_on": TEXT,
    "fit_offsets": either(FLAG, TEXT),
    "solver": TEXT,
    "max_iter": SIZE,
    "tol": FINITE,
    "random_state": maybe(either(INTEGER, instance("RandomState"))),
    "verbose": VERBOSE,
    "n_jobs": maybe(INTEGER),
}

FIELDS = {
    **SEEN,
    "_rows": instance("Objects"),
    "_columns": maybe(instance("Objects")),
    "_two_domains": FLAG,
    "object_feature_names_in_": optional(NAMES),
    "dual_coef_": optional(array("f", "p g", empty=False)),
    "_weights": optional(array("f", "a b", empty=False)),
    "_fitted_alpha": optional(either(NUMBER, NUMBERS)),
    "_labels": optional(instance("Observations")),
    "offset_": optional(FINITE),
    "row_offsets_": optional(array("f", "p")),
    "column_offsets_": optional(array("f", "g")),
    "solver_": TEXT,
    "n_iter_": COUNT,
    "n_edges_": COUNT,
}

ADVICE = {**RANKER_ADVICE, "object_kernel": RANKER_ADVICE["kernel"]}


def _pack_conditional(ranker: Any) -> dict[str, Any]:
    """Return the attributes; omit labels and pair coefficients if the model has few features."""
    stored = dict(vars(ranker))
    stored.pop("_posterior", None)
    if "_weights" in stored:
        stored.pop("dual_coef_", None)
        p, g = len(ranker._rows), len(ranker._ranked)
        complete = "_labels" in stored and ranker._labels.matrix is not None
        if complete and 2 * (p + g) * min(ranker._weights.shape) <= p * g:
            stored.pop("_labels", None)
    return stored


def _check_conditional(ranker: Any) -> None:
    """Check that the options are valid and that coefficients match the objects on each side."""
    check_seen(ranker)
    kernels = ranker._check_options()
    first, second = ranker._rows, ranker._ranked
    require(
        first.X.shape[1] == ranker.n_features_in_,
        f"objects of other than {ranker.n_features_in_} features",
    )
    names = getattr(ranker, "object_feature_names_in_", None)
    good = names is None or len(names) == second.X.shape[1]
    require(good, "names of other features of column objects")
    stored = vars(ranker)
    whole, weights = stored.get("dual_coef_"), stored.get("_weights")
    shape = len(first), len(second)
    if weights is None:
        require(whole is not None and whole.shape == shape, "coefficients of other objects")
    else:
        sizes = first.X.shape[1], second.X.shape[1]
        require(weights.shape == sizes, "weights of other features")
        require(whole is None or whole.shape == shape, "coefficients of other objects")
        linear = first.kernel.linear and second.kernel.linear and ranker._pairwise.plain
        require(linear, "weights of features for another kernel of pairs")
    labels = stored.get("_labels")
    require(labels is None or labels.shape == shape, "labels of other objects")
    require(np.min(getattr(ranker, "_fitted_alpha", 1.0)) >= 0, "an alpha that is negative")
    apart = ranker._columns is not None
    require(apart or not ranker._two_domains, "two kinds of objects, and one of them is missing")
    one_kind = ranker.relation is not None or ranker._pairwise.one_domain
    require(not (one_kind and apart), "a symmetric relation of two kinds of objects")
    check_metric("kernel", kernels[0].metric, first.kernel.metric)
    check_metric("object_kernel", kernels[1].metric, second.kernel.metric)


def _check_rankrls(ranker: Any) -> None:
    _check_conditional(ranker)
    ranker._check_alpha(ranker.alpha)


def _check_cv(ranker: Any) -> None:
    pairs = isinstance(ranker.alpha_, tuple)
    require(ranker.pairwise == "two-step" or not pairs, "two alphas of one kernel of pairs")
    for name, values in ranker.cv_results_.items():
        two = pairs and name == "alpha"
        good = values.ndim == 2 and values.shape[1] == 2 if two else values.ndim == 1
        require(good, f"cv_results_ with {name!r} of another shape")
    _check_conditional(ranker)


CONDITIONAL = (
    EstimatorRecord(
        "ConditionalRankRLS",
        "rankrls.estimators.conditional",
        fields={
            **FIELDS,
            **EARLY_STOPPING,
        },
        check=_check_rankrls,
        pack=_pack_conditional,
        params={
            "alpha": ALPHA,
            "early_stopping": FLAG,
            "validation_fraction": FINITE,
            "n_iter_no_change": SIZE,
            **PARAMS,
        },
        dropped=DROPPED,
        advice=ADVICE,
    ),
    EstimatorRecord(
        "ConditionalRankRLSCV",
        "rankrls.estimators.conditional_cv",
        fields={
            **FIELDS,
            **CHOSEN,
            "alpha_": PAIR,
            "cv_results_": RESULTS,
            "kernel_weights_": optional(array("f", "k")),
            "object_kernel_weights_": optional(array("f", "m")),
        },
        check=_check_cv,
        pack=_pack_conditional,
        params={**CHOOSING, "alphas": maybe(GRID), "n_folds": maybe(INTEGER), **PARAMS},
        dropped=DROPPED,
        advice=ADVICE,
    ),
)
