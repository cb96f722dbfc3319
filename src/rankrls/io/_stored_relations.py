"""Records of the conditional rankers, and of the objects that they know."""

from __future__ import annotations

from typing import Any

from rankrls._validation import check_positive
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    NAMES,
    NUMBER,
    SIZE,
    TEXT,
    array,
    either,
    instance,
    maybe,
    optional,
    require,
    rows,
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

__all__ = ["CONDITIONAL", "OBJECTS"]


def _check_objects(objects: Any) -> None:
    n, width = objects.X.shape
    good = not objects.kernel.precomputed or n == width
    require(good, "objects whose kernel matrix is not square")


OBJECTS = Record(
    "Objects",
    "rankrls.estimators.objects",
    {"kernel": instance("Kernel"), "X": rows("n d")},
    unpack=call,
    check=_check_objects,
)

PARAMS = {
    "kernel": TEXT,
    "object_kernel": maybe(TEXT),
    "gamma": maybe(FINITE),
    "degree": FINITE,
    "coef0": FINITE,
    "kernel_params": maybe(KERNEL_PARAMS),
    "object_kernel_params": maybe(KERNEL_PARAMS),
    "relation": maybe(TEXT),
    "loss": TEXT,
    "condition_on": TEXT,
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
    "_kernel_numbers": optional(array("i", "p")),
    "_object_kernel_numbers": optional(array("i", "g")),
    "dual_coef_": array("f", "p g", empty=False),
    "_weights": optional(array("f", "a b", empty=False)),
    "_explicit_rows": optional(FLAG),
    "_explicit_columns": optional(FLAG),
    "solver_": TEXT,
    "n_iter_": COUNT,
    "n_edges_": COUNT,
}

ADVICE = {**RANKER_ADVICE, "object_kernel": RANKER_ADVICE["kernel"]}


def _check_conditional(ranker: Any) -> None:
    """Options that ``fit`` would take, and coefficients of as many objects on each side."""
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
    require(ranker.dual_coef_.shape == (len(first), len(second)), "coefficients of other objects")
    sizes = tuple(
        side.X.shape[1] if explicit else len(side)
        for side, explicit in zip((first, second), ranker._explicit, strict=True)
    )
    require(ranker._table().shape == sizes, "weights of other features")
    apart = ranker._columns is not None
    require(apart or not ranker._two_domains, "two kinds of objects, and one of them is missing")
    require(ranker.relation is None or not apart, "a symmetric relation of two kinds of objects")
    check_metric("kernel", kernels[0].metric, first.kernel.metric)
    check_metric("object_kernel", kernels[1].metric, second.kernel.metric)


def _check_rankrls(ranker: Any) -> None:
    ranker._check_alpha(ranker.alpha)
    ranker._iteration_options()
    ranker._held_out()
    _check_conditional(ranker)


def _check_cv(ranker: Any) -> None:
    check_positive("alpha_", ranker.alpha_)
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
        params={
            "alpha": NUMBER,
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
        fields={**FIELDS, **CHOSEN},
        check=_check_cv,
        params={**CHOOSING, "n_folds": maybe(INTEGER), **PARAMS},
        dropped=DROPPED,
        advice=ADVICE,
    ),
)
