"""Records of estimators: ours, and the scikit-learn ones that stand before them in a pipeline.

A new ranker needs one `EstimatorRecord`: the attributes that ``fit`` sets (``fields``), those that
are remade from others (``derived``, ``finish``), and a check that model and attributes belong
together. Its model, if it is of a new class, needs a `Record` of its own.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from rankrls._validation import check_option, check_positive, show
from rankrls.core.preferences.statistics import Ledger
from rankrls.estimators.calibration import LINKS
from rankrls.io._kinds import (
    ANY,
    COUNT,
    FINITE,
    FLAG,
    INDICES,
    INTEGER,
    LABELS,
    LISTING,
    NAMES,
    NUMBER,
    NUMBERS,
    POSITIVE,
    SIZE,
    TEXT,
    Kind,
    array,
    either,
    instance,
    listing,
    mapping,
    maybe,
    optional,
    require,
    tuple_of,
    within,
)
from rankrls.io._labels import check_hashes, compact, expand
from rankrls.io._records import EstimatorRecord, Record, call, fill

__all__ = [
    "CALIBRATION",
    "CHOOSING",
    "CHOSEN",
    "DROPPED",
    "EARLY_STOPPING",
    "ESTIMATORS",
    "KERNEL_PARAMS",
    "LEDGER",
    "OUTPUT",
    "RANDOM_STATE",
    "RANKER_ADVICE",
    "SEEN",
    "VERBOSE",
    "check_metric",
    "check_seen",
]

#: What every estimator that has seen X knows.
SEEN = {"n_features_in_": SIZE, "feature_names_in_": optional(NAMES)}

#: Set by ``set_output``.
OUTPUT = {"_sklearn_output_config": optional(mapping(TEXT))}

#: Of a kernel.
KERNEL_PARAMS = mapping(maybe(FINITE))

#: One value for each alpha.
CV_RESULTS = mapping(array("fi", "alphas", nan=True))

#: Row numbers or masks of (train, test) for every fold.
_FOLD = either(INDICES, array("b", "rows"))
CV = either(either(TEXT, INTEGER), listing(either(tuple_of(_FOLD, _FOLD), LISTING)))

VERBOSE = either(INTEGER, FLAG)


def _only_for_fitting(name: str, value: str) -> str:
    return f"it matters for fitting only, so call set_params({name}={value}) before saving"


def check_seen(estimator: Any) -> None:
    """Raise unless the names of features are those of as many features as were seen."""
    names = getattr(estimator, "feature_names_in_", None)
    beside = getattr(estimator, "_names_beside", False)
    require(names is not None or not beside, f"{type(estimator).__name__} has lost names")
    good = names is None or len(names) == estimator.n_features_in_
    require(good, f"{type(estimator).__name__} has names of other features")
    config = getattr(estimator, "_sklearn_output_config", {})
    good = set(config) <= {"transform"} and set(config.values()) <= {"default", "pandas", "polars"}
    require(good, f"the output of {type(estimator).__name__} is set to {config}")


# -- rankers ----------------------------------------------------------------------------------

#: Of all rankers.
COMMON_PARAMS = {
    "kernel": TEXT,
    "gamma": maybe(FINITE),
    "degree": FINITE,
    "coef0": FINITE,
    "kernel_params": maybe(KERNEL_PARAMS),
    "query_weighting": TEXT,
    "solver": TEXT,
    "basis": maybe(either(SIZE, INDICES)),
    "max_iter": maybe(SIZE),
    "tol": FINITE,
    "random_state": maybe(either(INTEGER, instance("RandomState"))),
    "verbose": VERBOSE,
    "n_jobs": maybe(INTEGER),
}

#: How many threads a machine starts is not for a file to say.
DROPPED = ("n_jobs",)

RANKER_PARAMS = {
    **COMMON_PARAMS,
    "cost": TEXT,
    "ties": TEXT,
    "early_stopping": FLAG,
    "validation_fraction": FINITE,
    "n_iter_no_change": SIZE,
}

COMMON_FIELDS = {
    **SEEN,
    "solver_": TEXT,
    "n_pairs_": COUNT,
    "n_iter_": COUNT,
    "n_queries_": COUNT,
    "_flat": FLAG,
    "_with_qid": FLAG,
    "_kernel_numbers": optional(array("i", "objects")),
}

#: The curve is NaN for alphas that are no longer followed.
EARLY_STOPPING = {
    "best_iteration_": optional(COUNT),
    "validation_iterations_": optional(array("i", "checks")),
    "validation_curve_": optional(
        either(array("f", "checks", nan=True), array("f", "checks a", nan=True))
    ),
}

RANKER_FIELDS = {
    **COMMON_FIELDS,
    "_model": instance("LinearModel", "KernelModel", "NystroemModel", "IterativeModel"),
    **EARLY_STOPPING,
}

#: What ``partial_fit`` and ``forget`` go on from, if they can.
INCREMENTAL_FIELDS = {
    "_ledger": optional(instance("Ledger")),
    "_preferences": optional(array("i", "outputs")),
    "_learned_with": optional(mapping(either(TEXT, KERNEL_PARAMS))),
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

#: What cross-validation has chosen, and from what.
CHOSEN = {"alpha_": POSITIVE, "best_score_": NUMBER, "cv_results_": CV_RESULTS}
CHOOSING = {"alphas": maybe(NUMBERS), "cv": CV, "scoring": TEXT}

COEFFICIENTS = ("coef_", "dual_coef_", "basis_indices_", "pair_coef_")


def _check_ranker(ranker: Any) -> None:
    """Options that ``fit`` would take, and a model of as many features and outputs."""
    check_seen(ranker)
    ranker._check_options()
    numbers = ranker._kernel_numbers
    good = numbers is None or len(numbers) == ranker.n_features_in_
    require(good, "names of other training objects")
    model = ranker._model
    require(model.n_outputs >= 1, "a model without outputs")
    require(not ranker._flat or model.n_outputs == 1, "one output and several at the same time")
    features = ranker.n_features_in_
    require(_n_features(model, features) == features, f"a model of other than {features} features")
    kernel = getattr(model, "kernel", None)  # None: a model of weights of features
    check_metric("kernel", ranker.kernel, "linear" if kernel is None else kernel.metric)
    _check_coefficients(ranker, model)


def check_metric(name: str, asked: str, fitted: str) -> None:
    """Raise unless the kernel of the parameters is the one that the model predicts with."""
    require(
        asked == fitted,
        f"{name}={asked!r} and a model of another kernel, {fitted!r}: fit again before saving",
    )


def _check_coefficients(ranker: Any, model: Any) -> None:
    """Raise if attributes are not those of the model; an estimator of a file has none yet."""
    stored = {name: value for name, value in vars(ranker).items() if name in COEFFICIENTS}
    if not stored:
        return
    made = fill(type(ranker), {"_model": model, "_flat": ranker._flat})
    made._store_coefficients()
    for name in COEFFICIENTS:
        mine, theirs = getattr(made, name, None), stored.get(name)
        same = mine is theirs or (mine is not None and np.array_equal(mine, np.asarray(theirs)))
        require(
            same,
            f"{name} is not that of the model that predicts: it was changed, or a fit was "
            "interrupted; fit again before saving",
        )


def _n_features(model: Any, claimed: int) -> int:
    """How many columns X must have; any number that its basis allows if it is K[:, basis]."""
    if model.coef is not None:
        return model.coef.shape[1]
    basis = getattr(model, "basis", None)
    if not model.kernel.precomputed:
        return (model if basis is None else basis).rows.shape[1]
    if basis is None:
        return model.dual_coef.shape[1]
    return max(claimed, int(basis.indices.max(initial=0)) + 1)


def _check_rankrls(ranker: Any) -> None:
    ranker._check_alpha("alpha", ranker.alpha)
    _check_ranker(ranker)
    present = [name for name in INCREMENTAL_FIELDS if hasattr(ranker, name)]
    require(len(present) in (0, len(INCREMENTAL_FIELDS)), "a model that has learned half")
    if present:
        counted = len(ranker._preferences) == ranker._model.n_outputs
        require(counted, "preferences of other outputs than a model")
        require(bool((ranker._preferences >= 0).all()), "a negative number of preferences")
        terms = ranker._terms(ranker._check_options())
        require(set(ranker._learned_with) == set(terms), "a model that began to learn otherwise")


def _check_ranksvm(ranker: Any) -> None:
    check_positive("alpha", ranker.alpha)
    _check_ranker(ranker)
    sizes = {np.size(ranker.objective_), np.size(ranker.gap_)}
    require(sizes == {ranker._model.n_outputs}, "objectives of other outputs than a model")


RANKERS = (
    EstimatorRecord(
        "RankRLS",
        "rankrls.estimators",
        fields={**RANKER_FIELDS, **INCREMENTAL_FIELDS, "_names_beside": optional(FLAG)},
        derived=COEFFICIENTS,
        for_learning=tuple(INCREMENTAL_FIELDS),
        check=_check_rankrls,
        params={"alpha": NUMBER, **RANKER_PARAMS},
        dropped=DROPPED,
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
    EstimatorRecord(
        "RankRLSCV",
        "rankrls.estimators",
        fields={**RANKER_FIELDS, **CHOSEN, "calibration_": optional(instance("Calibration"))},
        derived=COEFFICIENTS,
        check=_check_ranker,
        params={**RANKER_PARAMS, **CHOOSING},
        dropped=DROPPED,
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
    EstimatorRecord(
        "RankSVM",
        "rankrls.estimators",
        fields={
            **COMMON_FIELDS,
            "_model": instance("HingeModel"),
            "objective_": either(NUMBER, array("f", "k", nan=True)),
            "gap_": either(NUMBER, array("f", "k", nan=True)),
        },
        derived=COEFFICIENTS,
        check=_check_ranksvm,
        params={"alpha": NUMBER, "loss": TEXT, **COMMON_PARAMS},
        dropped=DROPPED,
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
)

# -- what was learned from --------------------------------------------------------------------


#: A list of nothing.
EMPTY = Kind(lambda value, axes: value == [], "an empty list")


def _pack_ledger(ledger: Ledger) -> dict[str, Any]:
    labels, counts = list(ledger.queries), list(ledger.queries.values())
    return {
        "labels": compact(labels),
        "counts": np.array(counts, dtype=np.int64),
        "rankings": [
            (rows, pairs, n)
            for rows, calls in sorted(ledger.rankings.items())
            for pairs, n in sorted(calls.items())
        ],
        "joined": [(set(labels), n_pairs) for labels, n_pairs in ledger.joined],
    }


def _unpack_ledger(cls: type[Any], values: dict[str, Any]) -> Ledger:
    labels, counts = expand(values["labels"]), values["counts"]
    check_hashes(labels)
    known = set(labels)
    require(len(labels) == len(counts) == len(known), "queries without a number of rows")
    require(bool((counts > 0).all()), "queries without rows")
    ledger = cls()
    _check_rankings(values["rankings"])
    for rows, pairs, n in values["rankings"]:
        ledger.add_ranking(rows, pairs, n)
    for joined, _ in values["joined"]:
        size = len(known)
        known -= joined
        good = joined and len(known) == size - len(joined)
        require(bool(good), "joined queries that are unknown, or were joined before")
    ledger.add_queries(labels, counts)
    ledger.joined = [(frozenset(labels), n_pairs) for labels, n_pairs in values["joined"]]
    return ledger


def _check_rankings(rankings: list[tuple[int, int, int]]) -> None:
    """Raise unless they are in order, each once, and quickly put into a dict."""
    shapes = [(rows, pairs) for rows, pairs, _ in rankings]
    ascending = all(a < b for a, b in pairwise(shapes))
    require(ascending and all(n >= 1 for *_, n in rankings), "rankings that are counted twice")
    for _, calls in groupby(shapes, key=itemgetter(0)):
        check_hashes([pairs for _, pairs in calls])
    check_hashes([rows for rows, _ in groupby(shapes, key=itemgetter(0))])


def _cost_of_ledger(values: dict[str, Any]) -> int:
    """A set of labels and what the check of their hash values takes."""
    return 160 * len(values["counts"]) + 400 * len(values["rankings"])


LEDGER = Record(
    "Ledger",
    "rankrls.core.preferences.statistics",
    {
        "labels": either(LISTING, array("i", "q")),
        "counts": array("i", "q"),
        "rankings": either(EMPTY, listing(tuple_of(COUNT, COUNT, COUNT))),
        "joined": either(EMPTY, listing(tuple_of(LABELS, COUNT))),
    },
    pack=_pack_ledger,
    unpack=_unpack_ledger,
    cost=_cost_of_ledger,
)

# -- probabilities ----------------------------------------------------------------------------


def _check_calibration(calibration: Any) -> None:
    check_option("link", calibration.link, LINKS)
    require(calibration.slope >= 0, f"a slope of {calibration.slope}")


CALIBRATION = Record(
    "Calibration",
    "rankrls.estimators.calibration",
    {"link": TEXT, "slope": FINITE, "log_loss": FINITE},
    unpack=call,
    check=_check_calibration,
)

# -- selectors, scalers and imputers ----------------------------------------------------------


def _check_greedy(selector: Any) -> None:
    check_seen(selector)
    n = selector.n_features_in_
    require(len(selector.support_) == n, f"a selection out of {len(selector.support_)}, not {n}")
    chosen = selector.selected_features_
    require(within(chosen, n, distinct=True), f"a selection of features that are not among {n}")
    good = len(chosen) == selector.support_.sum() and selector.support_[chosen].all()
    require(bool(good), "a selection that is not that of support_")


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
    if scaler.scale_ is not None:
        require(bool((scaler.scale_ != 0).all()), f"a {type(scaler).__name__} that divides by 0")
    _check_empty(scaler)


def _check_empty(scaler: Any) -> None:
    """Raise if there is NaN in a column that has values: scikit-learn has it in no others."""
    kind = type(scaler).__name__
    if kind == "StandardScaler":
        empty = np.asarray(scaler.n_samples_seen_) == 0
        require(empty.ndim == 0 or len(empty) == scaler.n_features_in_, f"a {kind} of other rows")
    else:
        empty = np.isnan(scaler.max_abs_ if kind == "MaxAbsScaler" else scaler.data_range_)
    for name in ("mean_", "var_", "min_", "scale_"):
        values = getattr(scaler, name, None)
        good = values is None or not (np.isnan(values) & ~empty).any()
        require(good, f"{name} of {kind} is NaN in a column that has values")


def _scaler(name: str, values: dict[str, Kind], params: dict[str, Kind]) -> EstimatorRecord:
    """Of scikit-learn."""
    return EstimatorRecord(
        name,
        "sklearn.preprocessing",
        fields={**SEEN, **OUTPUT, "n_samples_seen_": either(FINITE, array("fi", "n")), **values},
        check=_check_scaler,
        params=params,
    )


def _pack_imputer(imputer: Any) -> dict[str, Any]:
    """Values of ``strategy="constant"`` are an array of objects; types are stored by name."""
    # Before the values are looked at: those of text are not numbers.
    _check_imputer(imputer)
    values = dict(vars(imputer))
    values["statistics_"] = np.asarray(values["statistics_"], dtype=np.float64)
    return values | {"_fit_dtype": values["_fit_dtype"].name}


def _check_imputer(imputer: Any) -> None:
    check_seen(imputer)
    require(
        not imputer.add_indicator,
        "SimpleImputer(add_indicator=True) cannot be saved: fit with add_indicator=False",
    )
    strategy, known = imputer.strategy, ("mean", "median", "most_frequent", "constant")
    good = isinstance(strategy, str) and strategy in known
    require(good, f"strategy of SimpleImputer must be one of {known}; it is {show(strategy)}")
    dtype = getattr(imputer._fit_dtype, "name", imputer._fit_dtype)
    require(
        dtype in IMPUTED_TYPES,
        f"SimpleImputer was fitted to values of type {show(dtype)}: fit it to numbers, such as "
        "X.astype(float)",
    )
    n = imputer.n_features_in_
    require(len(imputer.statistics_) == n, f"statistics_ of SimpleImputer are not of {n} features")


def _finish_imputer(imputer: Any) -> None:
    imputer._fit_dtype = imputer._fill_dtype = np.dtype(imputer._fit_dtype)
    imputer.indicator_ = None


#: What a SimpleImputer may have been fitted to.
IMPUTED_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

#: One number for every feature; NaN for a feature without values.
VECTOR = array("f", "n", nan=True, infinite=False)

TRANSFORMERS = (
    EstimatorRecord(
        "GreedyRankRLS",
        "rankrls.estimators.greedy",
        fields={
            **SEEN,
            **OUTPUT,
            "cv_": TEXT,
            "scores_": array("f", "s", nan=True),
            "n_refits_": COUNT,
            "selected_features_": array("i", "s", empty=False),
            "ranking_": array("i", "n"),
            "support_": array("b", "n"),
            "coef_": either(array("f", "n"), array("f", "k n")),
        },
        check=_check_greedy,
        params={
            "n_features_to_select": NUMBER,
            "alpha": NUMBER,
            "cost": TEXT,
            "ties": TEXT,
            "query_weighting": TEXT,
            "cv": TEXT,
            "verbose": VERBOSE,
        },
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
    _scaler("MaxAbsScaler", {"scale_": VECTOR, "max_abs_": VECTOR}, {"copy": FLAG, "clip": FLAG}),
    EstimatorRecord(
        "SimpleImputer",
        "sklearn.impute",
        fields={**SEEN, **OUTPUT, "statistics_": VECTOR, "_fit_dtype": TEXT},
        derived=("_fill_dtype", "indicator_"),
        pack=_pack_imputer,
        check=_check_imputer,
        params={
            "missing_values": NUMBER,
            "strategy": TEXT,
            "fill_value": maybe(NUMBER),
            "copy": FLAG,
            "add_indicator": FLAG,
            "keep_empty_features": FLAG,
        },
        finish=_finish_imputer,
    ),
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
    _check_widths(pipeline)


def _check_widths(pipeline: Any) -> None:
    """Raise unless every step gives as many features as the next one was fitted to."""
    given, giver = None, ""
    for name, step in pipeline.steps:
        taken = _n_in(step)
        require(
            given is None or taken is None or given == taken,
            f"step {name!r} was fitted to {taken} features, and {giver!r} gives {given}: fit the "
            "pipeline again",
        )
        if taken is not None:
            given, giver = _n_out(step), name


def _n_in(step: Any) -> int | None:
    """Features that a step was fitted to; None if it passes anything on."""
    if type(step).__name__ != "Pipeline":
        return getattr(step, "n_features_in_", None)
    return next((n for _, inner in step.steps if (n := _n_in(inner)) is not None), None)


def _n_out(step: Any) -> int | None:
    """Features that it gives to the next step, where that is known."""
    kind = type(step).__name__
    if kind == "Pipeline":
        known = [inner for _, inner in step.steps if _n_in(inner) is not None]
        return _n_out(known[-1]) if known else None
    if kind == "GreedyRankRLS":
        return int(step.support_.sum())
    if kind == "SimpleImputer":
        empty = np.isnan(np.asarray(step.statistics_, dtype=np.float64)).sum()
        return step.n_features_in_ - (0 if step.keep_empty_features else int(empty))
    return step.n_features_in_ if kind.endswith("Scaler") else None


PIPELINE = EstimatorRecord(
    "Pipeline",
    "sklearn.pipeline",
    fields={},
    check=_check_pipeline,
    params={
        "steps": listing(tuple_of(TEXT, ANY)),
        "transform_input": maybe(either(EMPTY, listing(TEXT))),
        "verbose": FLAG,
    },
    dropped=("memory",),  # a folder of the machine that fitted
)

ESTIMATORS = (*RANKERS, *TRANSFORMERS, PIPELINE)

#: What may stand in a pipeline; rankers of relations have a file of their own.
STEPS = [
    *(record.name for record in ESTIMATORS),
    *("AutoRanker", "TableEncoder", "RankingFeatures"),
    *("ConditionalRankRLS", "ConditionalRankRLSCV"),
]

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
    {"key": array("u", "words"), "pos": INTEGER, "has_gauss": INTEGER, "gauss": FINITE},
    pack=_pack_random_state,
    unpack=_unpack_random_state,
)
