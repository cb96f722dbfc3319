"""Records of the rankers, selectors and scalers of this package.

A new ranker needs one `EstimatorRecord` with the attributes that ``fit`` sets (``fields``), those
recomputed from others (``derived``, ``finish``), and a check that the model is consistent with the
attributes. If its model is of a new class, the model needs its own `Record`.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from rankrls._validation import check_option, check_positive
from rankrls.core.preferences.statistics import Ledger, as_list
from rankrls.estimators.calibration import LINKS
from rankrls.io._kinds import (
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
    "CHECKSUM",
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

COMMON_FIELDS = {
    **SEEN,
    "solver_": TEXT,
    "n_pairs_": COUNT,
    "n_iter_": COUNT,
    "n_queries_": COUNT,
    "_flat": FLAG,
    "_with_qid": FLAG,
    "_label_column": optional(TEXT),
    "_qid_column": optional(TEXT),
    "_weight_column": optional(TEXT),
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
    "_model": instance("LinearModel", "KernelModel", "NystroemModel", "IterativeModel"),
    **EARLY_STOPPING,
}

#: State that ``partial_fit`` and ``forget`` need, if available.
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
        checksum = ranker._ledger.checksum
        if checksum is not None:
            sizes = (len(checksum.v), len(checksum.u))
            expected = (ranker.n_features_in_, ranker._model.n_outputs)
            require(sizes == expected, "checksums of other features or outputs than a model")
        terms = ranker._terms(ranker._check_options())
        require(set(ranker._learned_with) == set(terms), "a model that began to learn otherwise")


def _check_ranksvm(ranker: Any) -> None:
    check_positive("alpha", ranker.alpha)
    _check_ranker(ranker)
    sizes = {np.size(ranker.objective_), np.size(ranker.gap_)}
    require(sizes == {ranker._model.n_outputs}, "objectives of other outputs than a model")


def _why_not_learning(ranker: Any) -> str:
    """Return why a model cannot be updated once stored, or an empty text if it can."""
    ledger = getattr(ranker, "_ledger", None)
    if ledger is None or all(map(_storable, ledger.queries)):
        return ""
    return (
        "the ids of the queries are neither numbers nor text, and are not stored: the model in "
        "the file predicts as this one does, but cannot be updated (partial_fit, forget)"
    )


def _storable(label: Any) -> bool:
    """Return whether a query id can be stored as data."""
    if isinstance(label, tuple):
        return all(map(_storable, label))
    return isinstance(label, str | int | float | None)


RANKERS = (
    EstimatorRecord(
        "RankRLS",
        "rankrls.estimators",
        fields={**RANKER_FIELDS, **INCREMENTAL_FIELDS, "_names_beside": optional(FLAG)},
        derived=COEFFICIENTS,
        for_learning=tuple(INCREMENTAL_FIELDS),
        why_not_learning=_why_not_learning,
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
        why_not_learning=_why_not_learning,
        check=_check_rankrls,
        params={
            **RANKER_PARAMS,
            **CHOOSING,
            "gamma": maybe(either(FINITE, NUMBERS)),
            "store_cv_predictions": FLAG,
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

# -- training data of incremental models -------------------------------------------------------


#: An empty list.
EMPTY = Kind(lambda value, axes: value == [], "an empty list")


def _pack_ledger(ledger: Ledger) -> dict[str, Any]:
    labels, counts = list(ledger.queries), list(ledger.queries.values())
    known: dict[str, Any] = {"weighted": True} if ledger.weighted else {}
    if ledger.checksum is not None and labels:
        sums = np.array([ledger.checksums.get(label, np.nan) for label in labels])
        known |= {
            "checksum": ledger.checksum,
            "checksums": np.where(np.isfinite(sums), sums, np.nan),
        }
    return {
        **known,
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
    labels, counts = as_list(expand(values["labels"])), values["counts"]
    check_hashes(labels)
    known = set(labels)
    require(len(labels) == len(counts) == len(known), "queries without a number of rows")
    require(bool((counts > 0).all()), "queries without rows")
    ledger = cls()
    _check_rankings(values["rankings"])
    for rows, pairs, n in values["rankings"]:
        ledger.add_ranking(rows, pairs, n)
    together = [(as_list(some), n_pairs) for some, n_pairs in values["joined"]]
    for joined, _ in together:
        check_hashes(joined)
        size = len(known)
        known.difference_update(joined)
        good = joined and len(known) == size - len(joined)
        require(bool(good), "joined queries that are unknown, or were joined before")
    sums, ledger.checksum = values.get("checksums"), values.get("checksum")
    require((sums is None) == (ledger.checksum is None), "checksums of an unknown kind")
    ledger.add_queries(labels, counts, sums)
    ledger.weighted = values.get("weighted", False)
    ledger.joined = [(frozenset(joined), n_pairs) for joined, n_pairs in together]
    return ledger


def _check_rankings(rankings: list[tuple[int, int, int]]) -> None:
    """Raise an error unless rankings are sorted, unique and efficient to hash."""
    shapes = [(rows, pairs) for rows, pairs, _ in rankings]
    ascending = all(a < b for a, b in pairwise(shapes))
    require(ascending and all(n >= 1 for *_, n in rankings), "rankings that are counted twice")
    for _, calls in groupby(shapes, key=itemgetter(0)):
        check_hashes([pairs for _, pairs in calls])
    check_hashes([rows for rows, _ in groupby(shapes, key=itemgetter(0))])


def _cost_of_ledger(values: dict[str, Any]) -> int:
    """Return the memory of a set of labels and of the check of their hash values."""
    return 160 * len(values["counts"]) + 400 * len(values["rankings"])


LEDGER = Record(
    "Ledger",
    "rankrls.core.preferences.statistics",
    {
        "labels": either(LISTING, array("i", "q")),
        "counts": array("i", "q"),
        "rankings": either(EMPTY, listing(tuple_of(COUNT, COUNT, COUNT))),
        "joined": either(EMPTY, listing(tuple_of(LABELS, COUNT))),
        "weighted": optional(FLAG),
        "checksum": optional(instance("Checksum")),
        "checksums": optional(array("f", "q", nan=True, infinite=False)),
    },
    pack=_pack_ledger,
    unpack=_unpack_ledger,
    cost=_cost_of_ledger,
)

CHECKSUM = Record(
    "Checksum",
    "rankrls.core.preferences.statistics",
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
