"""Records of the rankers, selectors and scalers of this package.

A new ranker needs one `EstimatorRecord` with the attributes that ``fit`` sets (``fields``), those
recomputed from others (``derived``, ``finish``), and a check that the model is consistent with the
attributes. If its model is of a new class, the model needs its own `Record`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._validation import check_option, check_positive, written_integer
from rankrls.estimators.calibration import LINKS
from rankrls.estimators.seen_queries import SeenQueries, query_keys
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INDICES,
    INTEGER,
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
from rankrls.io._records import EstimatorRecord, Record, call, fill

__all__ = [
    "CALIBRATION",
    "CHOOSING",
    "CHOSEN",
    "DROPPED",
    "EARLY_STOPPING",
    "ESTIMATORS",
    "KERNEL_PARAMS",
    "OUTPUT",
    "PROJECTION",
    "RANDOM_STATE",
    "RANKER_ADVICE",
    "SEEN",
    "SEEN_QUERIES",
    "SOURCE",
    "VERBOSE",
    "check_metric",
    "check_seen",
]

#: Attributes of every estimator fitted to a matrix X.
SEEN = {"n_features_in_": SIZE, "feature_names_in_": optional(NAMES)}

#: Attribute set by ``set_output``.
OUTPUT = {"_sklearn_output_config": optional(mapping(TEXT))}

#: Parameters of a kernel.
KERNEL_PARAMS = mapping(maybe(FINITE))

#: One value for each alpha.
CV_RESULTS = mapping(array("fi", "alphas", nan=True))

#: Row indices or masks of (train, test) for every fold.
_FOLD = either(INDICES, array("b", "rows"))
CV = either(either(TEXT, INTEGER), listing(either(tuple_of(_FOLD, _FOLD), LISTING)))

VERBOSE = either(INTEGER, FLAG)


def _only_for_fitting(name: str, value: str) -> str:
    return f"it matters for fitting only, so call set_params({name}={value}) before saving"


def check_seen(estimator: Any) -> None:
    """Raise an error unless the number of feature names equals the number of features."""
    names = getattr(estimator, "feature_names_in_", None)
    beside = getattr(estimator, "_names_beside", False)
    require(names is not None or not beside, f"{type(estimator).__name__} has lost names")
    good = names is None or len(names) == estimator.n_features_in_
    require(good, f"{type(estimator).__name__} has names of other features")
    config = getattr(estimator, "_sklearn_output_config", {})
    good = set(config) <= {"transform"} and set(config.values()) <= {"default", "pandas", "polars"}
    require(good, f"the output of {type(estimator).__name__} is set to {config}")


# -- rankers ----------------------------------------------------------------------------------

#: Parameters of all rankers.
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

#: The number of threads depends on the machine and is not stored.
DROPPED = ("n_jobs",)

RANKER_PARAMS = {
    **COMMON_PARAMS,
    "cost": TEXT,
    "ties": TEXT,
    "early_stopping": FLAG,
    "validation_fraction": FINITE,
    "n_iter_no_change": SIZE,
}

#: What the command line knows of the training files: columns of label, qid and weight, and history.
SOURCE = mapping(either(TEXT, listing(TEXT)))

COMMON_FIELDS = {
    **SEEN,
    "solver_": TEXT,
    "n_pairs_": COUNT,
    "n_iter_": COUNT,
    "n_queries_": COUNT,
    "_flat": FLAG,
    "_with_qid": FLAG,
    "_source": optional(SOURCE),
    "_kernel_numbers": optional(array("i", "objects")),
}

#: The curve is NaN for alphas that are no longer evaluated.
EARLY_STOPPING = {
    "best_iteration_": optional(COUNT),
    "validation_iterations_": optional(array("i", "checks")),
    "validation_curve_": optional(
        either(array("f", "checks", nan=True), array("f", "checks a", nan=True))
    ),
}

RANKER_FIELDS = {
    **COMMON_FIELDS,
    "_model": instance("FittedFunction"),
    **EARLY_STOPPING,
}

#: State that ``partial_fit`` and ``forget`` need, if available.
INCREMENTAL_FIELDS = {
    "_seen": optional(instance("SeenQueries")),
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
}

#: Results of cross-validation.
CHOSEN = {
    "alpha_": POSITIVE,
    "best_score_": NUMBER,
    "cv_results_": CV_RESULTS,
    "gamma_": optional(NUMBER),
    "noise_variance_": optional(either(NUMBER, array("f", "outputs"))),
}
CHOOSING = {"alphas": maybe(NUMBERS), "cv": CV, "scoring": TEXT}

COEFFICIENTS = ("coef_", "dual_coef_", "basis_indices_", "pair_coef_")


def _check_ranker(ranker: Any) -> None:
    """Check that the options are valid and that the model matches the features and outputs."""
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
    kernel = getattr(model, "kernel", None)  # None: a linear model with feature weights
    check_metric("kernel", ranker.kernel, "linear" if kernel is None else kernel.metric)
    _check_coefficients(ranker, model)


def check_metric(name: str, asked: str, fitted: str) -> None:
    """Raise an error unless the kernel parameter is the kernel of the model."""
    require(
        asked == fitted,
        f"{name}={asked!r} and a model of another kernel, {fitted!r}: fit again before saving",
    )


def _check_coefficients(ranker: Any, model: Any) -> None:
    """Raise an error if attributes differ from the model; ignore attributes not yet set."""
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
    """Return the number of columns of X; ``claimed`` if valid for a basis that selects columns."""
    if model.coef is not None:
        return model.coef.shape[1]
    basis = getattr(model, "basis", None)
    if not model.kernel.precomputed:
        return (model if basis is None else basis).rows.shape[1]
    if basis is None or basis.columns_only:
        return model.dual_coef.shape[1]
    return max(claimed, int(basis.indices.max(initial=0)) + 1)


def _check_rankrls(ranker: Any) -> None:
    if hasattr(ranker, "alpha"):
        ranker._check_alpha("alpha", ranker.alpha)
    _check_ranker(ranker)
    present = [name for name in INCREMENTAL_FIELDS if hasattr(ranker, name)]
    require(len(present) in (0, len(INCREMENTAL_FIELDS)), "a model that has learned half")
    if present:
        counted = len(ranker._preferences) == ranker._model.n_outputs
        require(counted, "preferences of other outputs than a model")
        require(bool((ranker._preferences >= 0).all()), "a negative number of preferences")
        projection = ranker._seen.projection
        if projection is not None:
            sizes = (len(projection.v), len(projection.u))
            expected = (ranker.n_features_in_, ranker._model.n_outputs)
            require(sizes == expected, "checksums of other features or outputs than a model")
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
        fields={
            **RANKER_FIELDS,
            **INCREMENTAL_FIELDS,
            **CHOSEN,
            "calibration_": optional(instance("Calibration")),
            "_names_beside": optional(FLAG),
        },
        derived=(*COEFFICIENTS, "cv_predictions_"),
        for_learning=tuple(INCREMENTAL_FIELDS),
        check=_check_rankrls,
        params={
            **RANKER_PARAMS,
            **CHOOSING,
            "gamma": maybe(either(FINITE, NUMBERS)),
            "store_cv_predictions": FLAG,
            "link": TEXT,
        },
        dropped=DROPPED,
        advice=RANKER_ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
    ),
    EstimatorRecord(
        "RankSVM",
        "rankrls.estimators",
        fields={
            **COMMON_FIELDS,
            "_model": instance("FittedFunction"),
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

# -- training data of incremental models -------------------------------------------------------


#: An empty list.
EMPTY = Kind(lambda value, axes: value == [], "an empty list")


def _pack_seen(seen: SeenQueries) -> dict[str, Any]:
    keys = list(seen.queries)
    known: dict[str, Any] = {"weighted": True} if seen.weighted else {}
    if seen.projection is not None and keys:
        sums = np.array([checksum for _, checksum in seen.queries.values()])
        known |= {
            "projection": seen.projection,
            "checksums": np.where(np.isfinite(sums), sums, np.nan),
        }
    numbers = [written_integer(key) for key in keys]
    whole = all(n is not None and -(2**63) <= n < 2**63 for n in numbers)
    return {
        **known,
        "labels": np.array(numbers, dtype=np.int64) if whole and keys else keys,
        "counts": np.array([count for count, _ in seen.queries.values()], dtype=np.int64),
        "rankings": seen.rankings,
        "joined": [(sorted(some), n_pairs) for some, n_pairs in seen.joined],
    }


def _unpack_seen(cls: type[Any], values: dict[str, Any]) -> SeenQueries:
    labels, counts = _stored_keys(values["labels"]), values["counts"]
    known = set(labels)
    require(len(labels) == len(counts) == len(known), "queries without a number of rows")
    require(bool((counts > 0).all()), "queries without rows")
    seen = cls()
    for stored, n_pairs in values["joined"]:
        keys = _stored_keys(stored)
        joined = frozenset(keys)
        good = len(joined) == len(keys) > 0 and joined <= known
        require(good, "joined queries that are unknown, or were joined before")
        known -= joined
        seen.joined.append((joined, n_pairs))
    seen.projection, sums = values.get("projection"), values.get("checksums")
    require((sums is None) == (seen.projection is None), "checksums of an unknown kind")
    seen.rankings, seen.weighted = values["rankings"], values.get("weighted", False)
    seen.add(labels, counts, sums)
    return seen


def _stored_keys(stored: Any) -> list[str]:
    """Return keys of queries, which are text: hash values of numbers could be made to collide."""
    text = isinstance(stored, np.ndarray) or all(type(key) is str for key in stored)
    require(text, "labels of queries that are no text")
    return query_keys(stored)


def _cost_of_seen(values: dict[str, Any]) -> int:
    """Return the memory of a dict and of a set of queries."""
    return 400 * len(values["counts"]) + 200 * len(values["rankings"])


SEEN_QUERIES = Record(
    "SeenQueries",
    "rankrls.estimators.seen_queries",
    {
        "labels": either(LISTING, array("i", "q")),
        "counts": array("i", "q"),
        "rankings": either(EMPTY, listing(tuple_of(COUNT, COUNT))),
        "joined": either(EMPTY, listing(tuple_of(LISTING, COUNT))),
        "weighted": optional(FLAG),
        "projection": optional(instance("Projection")),
        "checksums": optional(array("f", "q", nan=True, infinite=False)),
    },
    pack=_pack_seen,
    unpack=_unpack_seen,
    cost=_cost_of_seen,
)

PROJECTION = Record(
    "Projection",
    "rankrls.estimators.seen_queries",
    {"v": array("f", "n"), "u": array("f", "k"), "shift": FINITE},
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

# -- selectors and scalers --------------------------------------------------------------------


def _check_greedy(selector: Any) -> None:
    check_seen(selector)
    n = selector.n_features_in_
    require(len(selector.support_) == n, f"a selection out of {len(selector.support_)}, not {n}")
    chosen = selector.selected_features_
    require(within(chosen, n, distinct=True), f"a selection of features that are not among {n}")
    good = len(chosen) == selector.support_.sum() and selector.support_[chosen].all()
    require(bool(good), "a selection that is not that of support_")


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
        n_out=lambda selector: int(selector.support_.sum()),
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
        fields={**SEEN, **OUTPUT, "_with_qid": maybe(FLAG)},
        check=check_seen,
        n_out=lambda scaler: scaler.n_features_in_,
        params={"method": TEXT},
    ),
)

ESTIMATORS = (*RANKERS, *TRANSFORMERS)

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
    # Compiled code does not check the position.
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
