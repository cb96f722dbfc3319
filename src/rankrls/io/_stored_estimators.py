"""Records of estimators: ours, and the scikit-learn ones that stand before them in a pipeline.

A new ranker needs one `EstimatorRecord`: the attributes that ``fit`` sets (``fields``), those that
are remade from others (``derived``, ``finish``), and a check that model and attributes belong
together. Its model, if it is of a new class, needs a `Record` of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._validation import check_positive
from rankrls.core.preferences.statistics import Ledger
from rankrls.io._kinds import (
    ANY,
    FLAG,
    INTEGER,
    LISTING,
    MAPPING,
    NAMES,
    NUMBER,
    TEXT,
    Kind,
    array,
    either,
    instance,
    maybe,
    optional,
    require,
    tuple_of,
)
from rankrls.io._labels import compact, expand
from rankrls.io._records import EstimatorRecord, Record

__all__ = ["ESTIMATORS", "LEDGER", "RANDOM_STATE", "RANKER_ADVICE", "SEEN", "check_seen"]

#: What every estimator that has seen X knows.
SEEN = {"n_features_in_": INTEGER, "feature_names_in_": optional(NAMES)}

#: Set by ``set_output``.
OUTPUT = {"_sklearn_output_config": optional(MAPPING)}


def _only_for_fitting(name: str, value: str) -> str:
    return f"it matters for fitting only, so call set_params({name}={value}) before saving"


def check_seen(estimator: Any) -> None:
    """Raise unless the names of features are those of as many features as were seen."""
    names = getattr(estimator, "feature_names_in_", None)
    good = names is None or len(names) == estimator.n_features_in_
    require(good, f"{type(estimator).__name__} has names of other features")
    config = getattr(estimator, "_sklearn_output_config", {})
    good = set(config) <= {"transform"} and set(config.values()) <= {"default", "pandas", "polars"}
    require(good, f"the output of {type(estimator).__name__} is set to {config}")


# -- rankers ----------------------------------------------------------------------------------

#: Of all rankers.
COMMON_PARAMS = {
    "kernel": TEXT,
    "gamma": maybe(NUMBER),
    "degree": NUMBER,
    "coef0": NUMBER,
    "kernel_params": maybe(MAPPING),
    "query_weighting": TEXT,
    "solver": TEXT,
    "basis": ANY,
    "max_iter": maybe(INTEGER),
    "tol": NUMBER,
    "random_state": maybe(either(INTEGER, instance("RandomState"))),
    "verbose": either(INTEGER, FLAG),
    "n_jobs": maybe(INTEGER),
}

RANKER_PARAMS = {
    **COMMON_PARAMS,
    "cost": TEXT,
    "ties": TEXT,
    "early_stopping": FLAG,
    "validation_fraction": NUMBER,
    "n_iter_no_change": INTEGER,
}

COMMON_FIELDS = {
    **SEEN,
    "solver_": TEXT,
    "n_pairs_": INTEGER,
    "n_iter_": INTEGER,
    "n_queries_": INTEGER,
    "_flat": FLAG,
    "_with_qid": FLAG,
}

RANKER_FIELDS = {
    **COMMON_FIELDS,
    "_model": instance("LinearModel", "KernelModel", "NystroemModel", "IterativeModel"),
    "best_iteration_": optional(INTEGER),
    "validation_iterations_": optional(array("i", "checks")),
    "validation_curve_": optional(either(array("f", "checks"), array("f", "checks a"))),
}

#: What ``partial_fit`` and ``forget`` go on from, if they can.
INCREMENTAL_FIELDS = {
    "_ledger": optional(instance("Ledger")),
    "_preferences": optional(array("i", "outputs")),
    "_learned_with": optional(MAPPING),
}

RANKER_ADVICE = {
    "kernel": "a function cannot be stored as data; use a kernel by name, or kernel='precomputed' "
    "with the kernel matrix",
    "cv": _only_for_fitting("cv", "'auto'"),
    "scoring": _only_for_fitting("scoring", "'pairwise_accuracy'"),
    "basis": _only_for_fitting("basis", "list(rows)"),
    "alphas": _only_for_fitting("alphas", "list(alphas)"),
    "random_state": _only_for_fitting("random_state", "None"),
    "_ledger": "labels of queries can be stored if they are numbers, text or tuples of these; "
    "save_model(..., uncertainty=False) leaves them out",
}

COEFFICIENTS = ("coef_", "dual_coef_", "basis_indices_")


def _check_ranker(ranker: Any) -> None:
    """Options that ``fit`` would take, and a model of as many features and outputs."""
    check_seen(ranker)
    ranker._check_options()
    model = ranker._model
    require(not ranker._flat or model.n_outputs == 1, "one output and several at the same time")
    features = ranker.n_features_in_
    require(_n_features(model, features) == features, f"a model of other than {features} features")


def _n_features(model: Any, claimed: int) -> int:
    """How many columns X must have; any number that its basis allows if it is K[:, basis]."""
    if model.coef is not None:
        return model.coef.shape[1]
    basis = getattr(model, "basis", None)
    if not model.kernel.precomputed:
        return (model if basis is None else basis).rows.shape[1]
    if basis is None:
        return model.dual_coef.shape[1]
    return max(claimed, int(basis.indices.max()) + 1)


def _check_rankrls(ranker: Any) -> None:
    ranker._check_alpha("alpha", ranker.alpha)
    _check_ranker(ranker)
    present = [name for name in INCREMENTAL_FIELDS if hasattr(ranker, name)]
    require(len(present) in (0, len(INCREMENTAL_FIELDS)), "a model that has learned half")
    if present:
        counted = len(ranker._preferences) == ranker._model.n_outputs
        require(counted, "preferences of other outputs than a model")
        terms = ranker._terms(ranker._check_options())
        require(set(ranker._learned_with) == set(terms), "a model that began to learn otherwise")


def _check_ranksvm(ranker: Any) -> None:
    check_positive("alpha", ranker.alpha)
    _check_ranker(ranker)


RANKERS = (
    EstimatorRecord(
        "RankRLS",
        "rankrls.estimators",
        fields={**RANKER_FIELDS, **INCREMENTAL_FIELDS},
        derived=COEFFICIENTS,
        for_learning=tuple(INCREMENTAL_FIELDS),
        check=_check_rankrls,
        params={"alpha": NUMBER, **RANKER_PARAMS},
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
    EstimatorRecord(
        "RankRLSCV",
        "rankrls.estimators",
        fields={**RANKER_FIELDS, "alpha_": NUMBER, "best_score_": NUMBER, "cv_results_": MAPPING},
        derived=COEFFICIENTS,
        check=_check_ranker,
        params=RANKER_PARAMS,
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
    EstimatorRecord(
        "RankSVM",
        "rankrls.estimators",
        fields={
            **COMMON_FIELDS,
            "_model": instance("HingeModel"),
            "objective_": either(NUMBER, array("f", "k")),
            "gap_": either(NUMBER, array("f", "k")),
        },
        derived=COEFFICIENTS,
        check=_check_ranksvm,
        params={"alpha": NUMBER, "loss": TEXT, **COMMON_PARAMS},
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
)

# -- what was learned from --------------------------------------------------------------------


def _pack_ledger(ledger: Ledger) -> dict[str, Any]:
    labels, counts = list(ledger.queries), list(ledger.queries.values())
    return {
        "labels": compact(labels),
        "counts": np.array(counts, dtype=np.int64),
        "rankings": [(*shape, n) for shape, n in sorted(ledger.rankings.items()) if n],
        "joined": [(set(labels), n_pairs) for labels, n_pairs in ledger.joined],
    }


def _unpack_ledger(cls: type[Any], values: dict[str, Any]) -> Ledger:
    labels, counts = expand(values["labels"]), values["counts"]
    require(len(labels) == len(counts) == len(set(labels)), "queries without a number of rows")
    require(bool((counts > 0).all()), "queries without rows")
    for shape in values["rankings"]:
        good = type(shape) is tuple and len(shape) == 3 and all(type(n) is int for n in shape)
        require(good and min(shape) >= 0, "rankings that are none")
    for entry in values["joined"]:
        good = type(entry) is tuple and len(entry) == 2
        require(good and type(entry[0]) is set and type(entry[1]) is int, "joined queries of none")
    ledger = cls()
    ledger.add_queries(labels, counts)
    ledger.rankings.update({(rows, pairs): n for rows, pairs, n in values["rankings"]})
    ledger.joined = [(frozenset(labels), n_pairs) for labels, n_pairs in values["joined"]]
    return ledger


LEDGER = Record(
    "Ledger",
    "rankrls.core.preferences.statistics",
    {"labels": ANY, "counts": array("i", "q"), "rankings": LISTING, "joined": LISTING},
    pack=_pack_ledger,
    unpack=_unpack_ledger,
)

# -- selectors and scalers --------------------------------------------------------------------


def _check_greedy(selector: Any) -> None:
    check_seen(selector)
    n = selector.n_features_in_
    require(len(selector.support_) == n, f"a selection out of {len(selector.support_)}, not {n}")


def _check_scaler(scaler: Any) -> None:
    check_seen(scaler)
    n = scaler.n_features_in_
    parts = {"scale_": getattr(scaler, "with_std", True)}
    if hasattr(scaler, "with_mean"):
        parts["mean_"] = scaler.with_mean
    for name, needed in parts.items():
        values = getattr(scaler, name)
        good = (values is None and not needed) or (values is not None and len(values) == n)
        require(good, f"{name} of {type(scaler).__name__} is not that of {n} features")


def _scaler(name: str, values: dict[str, Kind], params: dict[str, Kind]) -> EstimatorRecord:
    """Of scikit-learn."""
    return EstimatorRecord(
        name,
        "sklearn.preprocessing",
        fields={**SEEN, **OUTPUT, "n_samples_seen_": either(NUMBER, array("fi", "n")), **values},
        check=_check_scaler,
        params=params,
    )


#: One number for every feature.
VECTOR = array("f", "n")

TRANSFORMERS = (
    EstimatorRecord(
        "GreedyRankRLS",
        "rankrls.estimators.greedy",
        fields={
            **SEEN,
            **OUTPUT,
            "cv_": TEXT,
            "scores_": array("f", "s"),
            "n_refits_": INTEGER,
            "selected_features_": array("i", "s"),
            "ranking_": array("i", "n"),
            "support_": array("b", "n"),
            "coef_": either(array("f", "n"), array("f", "k n")),
        },
        check=_check_greedy,
        params={"n_features_to_select": NUMBER, "alpha": NUMBER, "cost": TEXT, "ties": TEXT},
    ),
    EstimatorRecord(
        "QueryScaler",
        "rankrls.preprocessing",
        fields={**SEEN, **OUTPUT, "_with_qid": FLAG},
        check=check_seen,
        params={"method": TEXT},
    ),
    _scaler(
        "StandardScaler",
        {"mean_": maybe(VECTOR), "var_": maybe(VECTOR), "scale_": maybe(VECTOR)},
        {"copy": FLAG, "with_mean": FLAG, "with_std": FLAG},
    ),
    _scaler(
        "MinMaxScaler",
        {
            "min_": VECTOR,
            "scale_": VECTOR,
            "data_min_": VECTOR,
            "data_max_": VECTOR,
            "data_range_": VECTOR,
        },
        {"copy": FLAG, "clip": FLAG, "feature_range": tuple_of(NUMBER, NUMBER)},
    ),
    _scaler("MaxAbsScaler", {"scale_": VECTOR, "max_abs_": VECTOR}, {"copy": FLAG}),
)

# -- pipelines --------------------------------------------------------------------------------


def _check_pipeline(pipeline: Any) -> None:
    require(type(pipeline.steps) is list and bool(pipeline.steps), "a pipeline without steps")
    names = []
    for step in pipeline.steps:
        good = isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str)
        require(good, "a pipeline whose steps are not (name, estimator)")
        skipped = step[1] is None or step[1] == "passthrough"
        kind = type(step[1]).__name__
        known = ", ".join(STEPS)
        require(
            skipped or kind in STEPS,
            f"step {step[0]!r} is a {kind}, which cannot be saved; these can: {known}",
        )
        names.append(step[0])
    require(len(set(names)) == len(names), "a pipeline with two steps of the same name")


PIPELINE = EstimatorRecord(
    "Pipeline",
    "sklearn.pipeline",
    fields={},
    check=_check_pipeline,
    params={"steps": ANY, "verbose": FLAG},
    dropped=("memory",),  # a folder of the machine that fitted
)

ESTIMATORS = (*RANKERS, *TRANSFORMERS, PIPELINE)

#: What may stand in a pipeline; rankers of relations have a file of their own.
STEPS = [*(record.name for record in ESTIMATORS), "ConditionalRankRLS", "ConditionalRankRLSCV"]

# -- random numbers ---------------------------------------------------------------------------


def _pack_random_state(state: Any) -> dict[str, Any]:
    values = state.get_state(legacy=False)
    require(values["bit_generator"] == "MT19937", "a RandomState of another generator")
    inner = values["state"]
    return {
        "key": inner["key"],
        "pos": int(inner["pos"]),
        "has_gauss": int(values["has_gauss"]),
        "gauss": float(values["gauss"]),
    }


def _unpack_random_state(cls: type[Any], values: dict[str, Any]) -> Any:
    key, pos = values["key"], values["pos"]
    # Compiled code trusts the position.
    require(key.dtype == np.uint32 and key.shape == (624,), "a random state of another size")
    require(0 <= pos <= 624 and values["has_gauss"] in (0, 1), "a random state that is none")
    state = cls()
    numbers = (key, pos, values["has_gauss"], values["gauss"])
    state.set_state(("MT19937", *numbers))
    return state


RANDOM_STATE = Record(
    "RandomState",
    "numpy.random",
    {"key": array("u", "words"), "pos": INTEGER, "has_gauss": INTEGER, "gauss": NUMBER},
    pack=_pack_random_state,
    unpack=_unpack_random_state,
)
