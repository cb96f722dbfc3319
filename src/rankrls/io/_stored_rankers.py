"""Records of the rankers of this package and of their parts.

A new ranker needs a `Record` with the attributes that ``fit`` sets, one line each. If its model is
of a new class, the model needs a record, too.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rankrls._validation import check_option, check_positive, written_integer
from rankrls.core.linalg.factorizations import CholeskyFactorization
from rankrls.core.preferences.laplacian import Factor
from rankrls.core.ridge.models import DualSolver
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.calibration import LINKS
from rankrls.estimators.objects import KernelSum, read_kernels
from rankrls.estimators.seen_queries import query_keys
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    NAMES,
    NUMBER,
    POSITIVE,
    SIZE,
    TEXT,
    Kind,
    array,
    instance,
    listing,
    mapping,
    maybe,
    optional,
    require,
    results,
    rows,
    tuple_of,
    within,
)
from rankrls.io._records import SEEN, Record

KERNEL_PARAMS = mapping(maybe(FINITE))

#: What the command line knows of the training files: columns of label, qid and weight, and history.
SOURCE = mapping(TEXT | listing(TEXT))

#: Set by ``set_output``.
OUTPUT = {
    "_sklearn_output_config": optional(
        Kind(
            lambda v, axes: v in [{}, *({"transform": t} for t in ("default", "pandas", "polars"))],
            "default, pandas or polars",
        )
    )
}

#: Advice for parameters that only ``fit`` uses.
FIXED = {
    name: f"it matters for fitting only, so call set_params({name}={value}) before saving"
    for name, value in (
        ("cv", "'auto'"),
        ("scoring", "'pairwise_accuracy'"),
        ("basis", "list(rows)"),
        ("alphas", "list(alphas)"),
        ("random_state", "None"),
    )
}
FUNCTION = (
    "a function cannot be stored as data; use a kernel by name, or kernel='precomputed' with the "
    "kernel matrix"
)
ADVICE = {**FIXED, "kernel": FUNCTION, "object_kernel": FUNCTION}

# -- kernels and bases ------------------------------------------------------------------------


def _check_kernel(kernel: Kernel) -> None:
    options: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1}
    Kernel.from_options(kernel.metric, **options, kernel_params=kernel.params)


def _check_basis(basis: Any) -> None:
    good = within(basis.map.kept, len(basis.indices), distinct=True)
    require(good, "a basis keeps rows that it does not have")


KERNELS = (
    Record(
        "Kernel",
        "rankrls.core.spaces.spaces",
        {"metric": TEXT, "params": KERNEL_PARAMS},
        derived=("n_jobs",),
        check=_check_kernel,
    ),
    Record(
        "NystroemMap",
        "rankrls.core.spaces.spaces",
        {"Z": array("f", "q q", empty=False), "kept": array("i", "q"), "left_out": FINITE},
    ),
    Record(
        "Basis",
        "rankrls.core.spaces.spaces",
        {
            "kernel": instance("Kernel"),
            "indices": array("i", "r", empty=False, below=2**62),
            "map": instance("NystroemMap"),
            "rows": maybe(rows("q n")),
            "shift": FINITE | array("f", "n"),
            "columns_only": FLAG,
        },
        check=_check_basis,
    ),
)

# -- preferences ------------------------------------------------------------------------------

#: Attributes of SciPy's ``LinearOperator``, and the size that they follow from.
OPERATOR = tuple(set(vars(Factor(0, np.empty(0, dtype=np.int64)))) - {"owner"})


def _unpack_factor(cls: type[Any], values: dict[str, Any]) -> Any:
    factor = object.__new__(cls)
    Factor.__init__(factor, values.pop("n_rows"), values.pop("owner"))
    vars(factor).update(values)
    return factor


def _factor(name: str, fields: dict[str, Kind]) -> Record:
    return Record(
        name,
        "rankrls.core.preferences.laplacian",
        {
            "n_rows": SIZE,
            "owner": array("i", "p", below=2**62),
            "t": array("f", "p k", empty=False),
            **fields,
        },
        derived=OPERATOR,
        pack=lambda factor: {"n_rows": factor.shape[0]},
        unpack=_unpack_factor,
    )


FACTOR = instance("ScatterFactor", "GroundedFactor")

PREFERENCES = (
    Record(
        "Groups",
        "rankrls.core.preferences.query_weights",
        {
            "n_groups": SIZE,
            "total": array("f", "g"),
            "codes": array("i", "m", below="g"),  # columns of a sparse array
            "weighted": FLAG,
            "weight": array("f", "m", least=0),
        },
        derived=("share", "averaging", "isometry"),
        check=lambda groups: require(len(groups.total) == groups.n_groups, "other groups"),
    ),
    _factor(
        "ScatterFactor",
        {
            "groups": instance("Groups"),
            "root": array("f", "p 1"),
            "between": maybe(FACTOR),
            "embedding": maybe(rows("p q")),
        },
    ),
    _factor(
        "GroundedFactor",
        {
            "grounded": array("i", "m", below="m"),
            "free": array("i", "p", below="m"),
            "R": array("f", "p p"),
        },
    ),
)

# -- solvers and fitted functions -------------------------------------------------------------


class PackedCholesky:
    """The lower triangle of a `CholeskyFactorization`, stored by columns in half the space."""

    def __init__(self, state: CholeskyFactorization) -> None:
        self.columns = np.concatenate([state.C[j:, j] for j in range(len(state.C))])
        self.diagonal, self.alpha = state.diagonal, state.alpha


def _unpack_cholesky(cls: type[Any], values: dict[str, Any]) -> CholeskyFactorization:
    columns, n = values["columns"], len(values["diagonal"])
    require(n * (n + 1) // 2 == len(columns) > 0, "a Cholesky factor that is no triangle")
    C = np.zeros((n, n), dtype=columns.dtype, order="F")
    ends = np.cumsum(np.arange(n, 0, -1))
    for j, part in enumerate(np.split(columns, ends[:-1])):
        C[j:, j] = part
    return CholeskyFactorization(C, values["alpha"], values["diagonal"])


def _pack_dual(solver: DualSolver) -> dict[str, Any]:
    made = solver.factorization
    packed = PackedCholesky(made) if isinstance(made, CholeskyFactorization) else made
    return {"factorization": packed}


def _check_solver(solver: Any) -> None:
    made = solver.factorization
    size = len(made.C if isinstance(made, CholeskyFactorization) else made.vectors)
    require(size == len(solver.b), "a solver of two sizes")


def _check_function(model: Any) -> None:
    linear = (model.coef is not None) == model.kernel.linear
    require(linear, "weights of features and another kernel, or the reverse")
    known = model.coef is not None or (model.dual_coef is not None and model.kept is not None)
    require(known, "a model without coefficients")
    require((model.pair_coef is None) == (model.pair_scale is None), "covariates without a scale")
    if model.solvers:
        outputs = np.sort(np.concatenate([solver.outputs for solver in model.solvers]))
        same = np.array_equal(outputs, np.arange(model.n_outputs))
        require(same, "solvers of other outputs than a model")
        require(len(set(map(type, model.solvers))) == 1, "solvers of two kinds")
        dual = isinstance(model.solvers[0], DualSolver)
        require(not dual or model.kept is not None, "a solver of unknown rows")


SOLVER = {
    "n_pairs": COUNT,
    "log_weight": FINITE,
    "outputs": array("i", "k", empty=False),
    "energy": array("f", "k") | array("f", "1"),
    "factorization": instance("CholeskyFactorization", "EigenFactorization", "PackedCholesky"),
}

MODELS = (
    Record(
        "CholeskyFactorization",
        "rankrls.core.linalg.factorizations",
        {"C": array("f", "p p", empty=False), "diagonal": array("f", "p"), "alpha": POSITIVE},
        derived=("loss", "_others"),
    ),
    Record(
        "PackedCholesky",
        __name__,
        {"columns": array("f", "triangle"), "diagonal": array("f", "p"), "alpha": POSITIVE},
        unpack=_unpack_cholesky,
        cost=lambda values: 2 * values["columns"].nbytes + values["diagonal"].nbytes,
    ),
    Record(
        "EigenFactorization",
        "rankrls.core.linalg.factorizations",
        {
            "null": array("b", "q"),
            "values": array("f", "q"),
            "vectors": array("f", "p q", empty=False),
            "floor": NUMBER,
            "source": maybe(tuple_of(array("f", "p p"), array("f", "p"))),
        },
        derived=("loss",),
    ),
    Record(
        "PrimalSolver",
        "rankrls.core.ridge.models",
        {
            **SOLVER,
            "b": array("f", "p k"),
            "mean": array("f", "p"),
            "mass": FINITE,
            "largest": array("f", "p"),
            "largest_energy": array("f", "k"),
            "rounding": FINITE,
        },
        check=_check_solver,
    ),
    Record(
        "DualSolver",
        "rankrls.core.ridge.models",
        {
            **SOLVER,
            "b": array("f", "p k"),
            "factor": FACTOR,
            "share": array("f", "m"),
            "row_means": array("f", "m"),
        },
        pack=_pack_dual,
        check=_check_solver,
    ),
    Record(
        "FittedFunction",
        "rankrls.core.ridge.models",
        {
            "alphas": array("f", "a", empty=False, least=0),
            "kernel": instance("Kernel"),
            "coef": maybe(array("f", "a n k", empty=False)),
            "dual_coef": maybe(array("f", "a r k", empty=False)),
            "rows": maybe(rows("q n")),
            "kept": maybe(array("i", "q", below="r")),
            "shift": FINITE | array("f", "n"),
            "basis": maybe(instance("Basis")),
            "pair_coef": maybe(array("f", "a c k", empty=False)),
            "pair_scale": maybe(array("f", "c", empty=False)),
            "solvers": listing(instance("PrimalSolver", "DualSolver"), empty=True),
            "dropped": FLAG,
        },
        check=_check_function,
    ),
)

# -- training data of incremental models ------------------------------------------------------


def _pack_seen(seen: Any) -> dict[str, Any]:
    keys, known = list(seen.queries), seen.queries.values()
    numbers = [written_integer(key) for key in keys]
    whole = all(n is not None and -(2**63) <= n < 2**63 for n in numbers)
    sums = np.array([checksum for _, checksum in known])
    return {
        "labels": np.array(numbers, dtype=np.int64) if whole and keys else keys,
        "counts": np.array([count for count, _ in known], dtype=np.int64),
        "checksums": np.where(np.isfinite(sums), sums, np.nan),
        "joined": [(sorted(some), n_pairs) for some, n_pairs in seen.joined],
    }


def _unpack_seen(cls: type[Any], values: dict[str, Any]) -> Any:
    # Keys are text: hash values of numbers could be made to collide.
    labels, counts = query_keys(values["labels"]), values["counts"]
    known = set(labels)
    require(len(labels) == len(counts) == len(known), "queries without a number of rows")
    seen = cls()
    for keys, n_pairs in values["joined"]:
        joined = frozenset(keys)
        good = len(joined) == len(keys) and joined <= known
        require(good, "joined queries that are unknown, or were joined before")
        known -= joined
        seen.joined.append((joined, n_pairs))
    for name in ("projection", "rankings", "weighted"):
        setattr(seen, name, values[name])
    seen.add(labels, counts, values["checksums"])
    return seen


def _check_calibration(calibration: Any) -> None:
    check_option("link", calibration.link, LINKS)
    require(calibration.slope >= 0, f"a slope of {calibration.slope}")


PARTS = (
    Record(
        "SeenQueries",
        "rankrls.estimators.seen_queries",
        {
            "labels": listing(TEXT, empty=True) | array("i", "q"),
            "counts": array("i", "q", least=1),
            "rankings": listing(tuple_of(COUNT, COUNT), empty=True),
            "joined": listing(tuple_of(listing(TEXT), COUNT), empty=True),
            "weighted": FLAG,
            "projection": maybe(instance("Projection")),
            "checksums": array("f", "q", nan=True),
        },
        derived=("_queries", "_unread"),
        pack=_pack_seen,
        unpack=_unpack_seen,
        cost=lambda values: 400 * len(values["counts"]) + 200 * len(values["rankings"]),
    ),
    Record(
        "Projection",
        "rankrls.estimators.seen_queries",
        {"v": array("f", "n"), "u": array("f", "k"), "shift": FINITE},
    ),
    Record(
        "Calibration",
        "rankrls.estimators.calibration",
        {"link": TEXT, "slope": FINITE, "log_loss": FINITE},
        check=_check_calibration,
    ),
)

# -- rankers ----------------------------------------------------------------------------------

COEFFICIENTS = ("coef_", "dual_coef_", "basis_indices_", "pair_coef_")

FIELDS = {
    **SEEN,
    "solver_": TEXT,
    "n_pairs_": COUNT,
    "n_iter_": COUNT,
    "n_queries_": COUNT,
    "_flat": FLAG,
    "_with_qid": FLAG,
    "_source": optional(SOURCE),
    "_kernel_numbers": optional(array("i", "n")),
    "_model": instance("FittedFunction"),
}

EARLY_STOPPING = {
    "best_iteration_": optional(COUNT),
    "validation_iterations_": optional(array("i", "checks")),
    "validation_curve_": optional(results("checks") | results("checks a")),
}

#: State that ``partial_fit`` and ``forget`` need, if available.
INCREMENTAL = {
    "_seen": optional(instance("SeenQueries")),
    "_preferences": optional(array("i", "outputs", least=0)),
    "_learned_with": optional(mapping(TEXT | KERNEL_PARAMS)),
}

#: Results of cross-validation.
CHOSEN = {
    "alpha_": POSITIVE,
    "best_score_": NUMBER,
    "cv_results_": mapping(results("alphas", "fi"), alike=True),
    "gamma_": optional(NUMBER),
    "noise_variance_": optional(NUMBER | array("f", "outputs")),
}


def _check_ranker(ranker: Any) -> None:
    """Check the options, and that coefficients and kernel are those of the model."""
    ranker._check_options()
    model, n_outputs = ranker._model, ranker._model.n_outputs
    require(not ranker._flat or n_outputs == 1, "one output and several at the same time")
    _check_metric("kernel", ranker.kernel, model.kernel.metric)
    named = not getattr(ranker, "_names_beside", False) or hasattr(ranker, "feature_names_in_")
    require(named, f"{type(ranker).__name__} has lost names")
    made = copy.copy(ranker)
    made._store_coefficients()
    for name in COEFFICIENTS:
        mine, other = getattr(made, name, None), getattr(ranker, name, None)
        same = other is None if mine is None else np.array_equal(mine, np.asarray(other))
        require(
            same,
            f"{name} is not that of the model that predicts: it was changed, or a fit was "
            "interrupted; fit again before saving",
        )


def _check_metric(name: str, asked: Any, fitted: Any) -> None:
    require(
        asked == fitted,
        f"{name}={asked!r} and a model of another kernel, {fitted!r}: fit again before saving",
    )


def _check_rankrls(ranker: Any) -> None:
    if hasattr(ranker, "alpha"):
        ranker._check_alpha("alpha", ranker.alpha)
    _check_ranker(ranker)
    present = [name for name in INCREMENTAL if hasattr(ranker, name)]
    complete = len(present) == len(INCREMENTAL) and ranker._model.solvers
    require(complete or not present, "a model that has learned half")
    if present:
        n_outputs, seen = ranker._model.n_outputs, ranker._seen
        require(len(ranker._preferences) == n_outputs, "preferences of other outputs than a model")
        sizes = seen.projection and (len(seen.projection.v), len(seen.projection.u))
        good = sizes in (None, (ranker.n_features_in_, n_outputs))
        require(good, "checksums of other features or outputs than a model")
        terms = ranker._terms(ranker._check_options())
        require(set(ranker._learned_with) == set(terms), "a model that began to learn otherwise")


def _check_ranksvm(ranker: Any) -> None:
    check_positive("alpha", ranker.alpha)
    _check_ranker(ranker)


def _probe_ranker(ranker: Any) -> None:
    """Predict a row, with its uncertainty if there is one."""
    model = ranker._model
    known = model.expansion[0]
    empty = known is None or not known.shape[0]
    X = np.zeros((1, ranker.n_features_in_)) if empty else known[:1]
    ranker.predict(X)
    if model.solvers:
        ranker.log_marginal_likelihood()
        if not model.kernel.precomputed:
            ranker.predict(X, return_std=True)


def _ranker(name: str, fields: dict[str, Kind], **options: Any) -> Record:
    return Record(
        name,
        "rankrls.estimators",
        FIELDS | fields,
        params={},
        derived=(*COEFFICIENTS, "cv_predictions_"),
        advice=ADVICE,
        finish=lambda ranker: ranker._store_coefficients(),
        probe=_probe_ranker,
        **options,
    )


LEARNING: dict[str, Any] = {"for_learning": tuple(INCREMENTAL), "check": _check_rankrls}
BESIDE = {"_names_beside": optional(FLAG)}

RANKERS = (
    _ranker("RankRLS", {**EARLY_STOPPING, **INCREMENTAL, **BESIDE}, **LEARNING),
    _ranker(
        "RankRLSCV",
        {
            **EARLY_STOPPING,
            **INCREMENTAL,
            **BESIDE,
            **CHOSEN,
            "calibration_": optional(instance("Calibration")),
        },
        **LEARNING,
    ),
    _ranker(
        "RankSVM",
        {"objective_": NUMBER | results("k"), "gap_": NUMBER | results("k")},
        check=_check_ranksvm,
    ),
    Record(
        "GreedyRankRLS",
        "rankrls.estimators.greedy",
        {
            **SEEN,
            **OUTPUT,
            "cv_": TEXT,
            "scores_": results("s"),
            "n_refits_": COUNT,
            "selected_features_": array("i", "s", empty=False, below="n", distinct=True),
            "ranking_": array("i", "n"),
            "support_": array("b", "n"),
            "coef_": array("f", "n") | array("f", "k n"),
        },
        params={},
        check=lambda selector: require(
            np.array_equal(np.flatnonzero(selector.support_), np.sort(selector.selected_features_)),
            "a selection that is not that of support_",
        ),
    ),
)

# -- conditional rankers ----------------------------------------------------------------------


def _check_objects(objects: Any) -> None:
    kernel, (n, width) = objects.kernel, objects.X.shape
    require(kernel.n_blocks in (0, width / max(n, 1)), "objects whose kernel matrix is not square")
    labelled = kernel.profiled == (objects.profile is not None)
    require(labelled, "objects with labels of another kernel")
    if objects.names is not None:
        text = all(isinstance(name, str) for name in objects.names)
        good = (text or objects.names.dtype.kind == "i") and len(np.unique(objects.names)) == n
        require(good, "names of other objects")


def _pack_sum(kernels: KernelSum) -> dict[str, Any]:
    metrics, params = ([getattr(k, name) for k in kernels.kernels] for name in ("metric", "params"))
    return {"metrics": metrics, "params": params}


def _unpack_sum(cls: type[Any], values: dict[str, Any]) -> Any:
    metrics, params, weights = values["metrics"], values["params"], values["weights"]
    require(len(metrics) == len(params) == len(weights), "kernels without parameters")
    require(values["scaled"] or len(metrics) == weights[0] == 1, "kernels with other weights")
    options: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1, "n_jobs": None}
    read_kernels(metrics, weights, params, "kernel", **options)
    return cls(tuple(map(Kernel, metrics, params)), weights, values["scaled"])


def _pack_labels(labels: Any) -> dict[str, Any]:
    """Return the labels as a matrix or as lists of edges."""
    if labels.matrix is not None:
        return {"matrix": labels.matrix, "shape": ...}
    lists = dict(zip(("rows", "cols", "y"), labels.lists, strict=True))
    return lists | {"shape": labels.shape, "matrix": ...}


def _unpack_labels(cls: type[Any], values: dict[str, Any]) -> Any:
    if set(values) == {"matrix"}:
        return cls.from_matrix(values["matrix"])
    lists = "rows", "cols", "y", "shape"
    require(set(values) == set(lists), "labels of which a part is missing")
    good = all(within(values[name], n) for name, n in zip(lists, values["shape"], strict=False))
    require(good, "labels of other objects")
    return cls(*(values[name] for name in lists))


RELATIONS = (
    Record(
        "Objects",
        "rankrls.estimators.objects",
        {
            "kernel": instance("KernelSum"),
            "X": rows("n d"),
            "profile": maybe(array("f", "n n")),
            "names": maybe(NAMES | array("i", "n")),
            "sees_differences": FLAG,
        },
        derived=("_matrices", "_sizes", "_centred"),
        check=_check_objects,
    ),
    Record(
        "KernelSum",
        "rankrls.estimators.objects",
        {
            "metrics": listing(TEXT),
            "params": listing(KERNEL_PARAMS),
            "weights": array("f", "k"),
            "scaled": FLAG,
        },
        derived=("kernels",),
        pack=_pack_sum,
        unpack=_unpack_sum,
    ),
    Record(
        "Observations",
        "rankrls.core.relations.labels",
        {
            "matrix": optional(array("f", "p g")),
            "rows": optional(array("i", "edges")),
            "cols": optional(array("i", "edges")),
            "y": optional(array("f", "edges")),
            "shape": optional(tuple_of(SIZE, SIZE)),
        },
        derived=("_lists", "cells"),
        pack=_pack_labels,
        unpack=_unpack_labels,
    ),
)


def _check_conditional(ranker: Any) -> None:
    kernels, stored = ranker._check_options(), vars(ranker)
    sides = first, second = ranker._rows, ranker._ranked
    shape, whole, weights = (
        (len(first), len(second)),
        stored.get("dual_coef_"),
        stored.get("_weights"),
    )
    require(whole is not None or weights is not None, "no coefficients")
    require(whole is None or whole.shape == shape, "coefficients of other objects")
    if weights is not None:
        sizes = first.X.shape[1], second.X.shape[1]
        require(weights.shape == sizes, "weights of other features")
        linear = first.kernel.linear and second.kernel.linear and ranker._pairwise.plain
        require(linear, "weights of features for another kernel of pairs")
    labels = stored.get("_labels")
    require(labels is None or labels.shape == shape, "labels of other objects")
    require(np.min(stored.get("_fitted_alpha", 1.0)) >= 0, "an alpha that is negative")
    apart = ranker._columns is not None
    require(apart or not ranker._two_domains, "two kinds of objects, and one of them is missing")
    one_kind = ranker.relation is not None or ranker._pairwise.one_domain
    require(not (one_kind and apart), "a symmetric relation of two kinds of objects")
    for name, kernel, side in zip(("kernel", "object_kernel"), kernels, sides, strict=True):
        _check_metric(name, kernel.metric, side.kernel.metric)
    if hasattr(ranker, "alpha"):
        ranker._check_alpha(ranker.alpha)


def _probe_conditional(ranker: Any) -> None:
    """Predict the first training objects."""
    sides = [ranker._rows, ranker._columns] if ranker._two_domains else [ranker._rows]
    ranker.predict(*(side.X[:1] for side in sides))


def _conditional(name: str, module: str, fields: dict[str, Kind]) -> Record:
    return Record(
        name,
        f"rankrls.estimators.{module}",
        {
            **SEEN,
            "_rows": instance("Objects"),
            "_columns": maybe(instance("Objects")),
            "_two_domains": FLAG,
            "object_feature_names_in_": optional(NAMES),
            "dual_coef_": optional(array("f", "p g", empty=False)),
            "_weights": optional(array("f", "a b", empty=False)),
            "_fitted_alpha": optional(NUMBER | listing(NUMBER)),
            "_labels": optional(instance("Observations")),
            "offset_": optional(FINITE),
            "row_offsets_": optional(array("f", "p")),
            "column_offsets_": optional(array("f", "g")),
            "solver_": TEXT,
            "n_iter_": COUNT,
            "n_edges_": COUNT,
            **fields,
        },
        params={},
        derived=("_posterior",),
        advice=ADVICE,
        pack=_pack_conditional,
        check=_check_conditional,
        probe=_probe_conditional,
    )


def _pack_conditional(ranker: Any) -> dict[str, Any]:
    """Pair coefficients of a linear model are not stored, nor complete labels of few features."""
    weights, labels = vars(ranker).get("_weights"), vars(ranker).get("_labels")
    if weights is None:
        return {}
    p, g = len(ranker._rows), len(ranker._ranked)
    complete = labels is not None and labels.matrix is not None
    few = complete and 2 * (p + g) * min(weights.shape) <= p * g
    return {"dual_coef_": ..., "_labels": ...} if few else {"dual_coef_": ...}


CONDITIONAL = (
    _conditional("ConditionalRankRLS", "conditional", EARLY_STOPPING),
    _conditional(
        "ConditionalRankRLSCV",
        "conditional_cv",
        {
            **CHOSEN,
            "alpha_": POSITIVE | tuple_of(POSITIVE, POSITIVE),
            "cv_results_": mapping(results("alphas", "fi") | results("alphas 2"), alike=True),
            "kernel_weights_": optional(array("f", "k")),
            "object_kernel_weights_": optional(array("f", "m")),
        },
    ),
)

# -- AutoRanker and its transformers ----------------------------------------------------------


def _check_features(features: Any) -> None:
    features._check_options()
    if hasattr(features, "_trees"):
        n_split = features.n_features_in_ * (1 + features._with_qid)
        require(within(features._trees.features, n_split), "trees of other features")


def _check_trees(trees: Any) -> None:
    width = trees.features.shape[1]
    require(2 <= width <= 2**12 and width & (width - 1) == 0, "trees that are not complete")


def _probe_blocks(transformer: Any) -> int:
    options = {"qid": np.zeros(2)} if transformer._with_qid else {}
    return transformer.transform(np.zeros((2, transformer.n_features_in_)), **options).shape[1]


def _probe_auto(ranker: Any) -> None:
    ranker.predict(ranker._table._missing_rows(), qid=np.zeros(2) if ranker._with_qid else None)


AUTO = (
    Record(
        "QueryScaler",
        "rankrls.preprocessing",
        {**SEEN, **OUTPUT, "_with_qid": optional(maybe(FLAG))},
        params={},
        probe=_probe_blocks,
    ),
    Record(
        "TableEncoder",
        "rankrls.preprocessing",
        {
            **SEEN,
            **OUTPUT,
            "dropped_": listing(INTEGER, empty=True),
            "query_columns_": listing(INTEGER, empty=True),
            "_parts": array("i", "parts 4", empty=False),
            "_fills": array("f", "c"),
            "_levels": mapping(listing(TEXT, empty=True)),
            "_texts": mapping(instance("TextModel")),
        },
        params={},
        check=lambda encoder: require(encoder._is_consistent(), "parts of another table"),
        probe=lambda encoder: encoder.transform(encoder._missing_rows()).shape[1],
    ),
    Record(
        "RankingFeatures",
        "rankrls.preprocessing",
        {
            **SEEN,
            **OUTPUT,
            "_with_qid": FLAG,
            "_sizes": array("f", "n", least=1e-300),
            "_centres": mapping(array("f", "c")),
            "_widths": mapping(array("f", "c", infinite=True, least=1e-300)),
            "_quantiles": optional(array("f", "q n")),
            "_trees": optional(instance("RandomTrees")),
        },
        params={},
        advice=FIXED,
        check=_check_features,
        probe=_probe_blocks,
    ),
    Record(
        "AutoRanker",
        "rankrls.estimators.auto",
        {
            **SEEN,
            "_table": instance("TableEncoder"),
            "_features": instance("RankingFeatures"),
            "_columns": array("i", "numbers", below=2**62),
            "_projections": mapping(instance("BlockScale")),
            "_members": listing(instance("LinearMember", "ColumnMember", "TreeMember")),
            "_with_qid": FLAG,
            "_labels": listing(TEXT, empty=True),
            "_scale": maybe(array("f", "labels")),
            "_source": optional(SOURCE),
            "tradeoffs_": optional(mapping(results("tradeoffs"))),
            "members_": mapping(NAMES | results("candidates")),
            "best_score_": NUMBER,
            "n_compared_": COUNT,
            "held_out_scores_": results("rows") | results("rows labels"),
            "nested_scores_": results("rows") | results("rows labels"),
        },
        params={},
        advice=FIXED | {"scoring": FIXED["scoring"].replace("pairwise_accuracy", "ndcg@10")},
        probe=_probe_auto,
    ),
    Record(
        "RandomTrees",
        "rankrls.preprocessing._random_trees",
        {
            "features": array("i", "trees nodes", empty=False),
            "thresholds": array("f", "trees nodes", infinite=True),
        },
        check=_check_trees,
    ),
    Record(
        "TextModel",
        "rankrls.preprocessing._texts",
        {
            "words": array("i", "words"),
            "idf": array("f", "words"),
            "unseen": FINITE,
            "frequent": array("i", "frequent"),
            "axes": array("f", "frequent components"),
        },
        check=lambda model: require(model.is_consistent(), "words of another text"),
    ),
    Record(
        "BlockScale",
        "rankrls.estimators.auto_members",
        {"mean": array("f", "n"), "axes": array("f", "n k")},
    ),
    Record(
        "LinearMember",
        "rankrls.estimators.auto_members",
        {
            "views": listing(TEXT),
            "kernel": Kind(lambda v, axes: v in ("linear", "rbf", "laplacian"), "a known kernel"),
            "gamma": FINITE,
            "basis": maybe(rows("basis n")),
            "mapping": maybe(array("f", "basis rank")),
            "scale": FINITE,
            "weights": mapping(FINITE),
            "estimator": instance("RankRLS"),
            "factor": FINITE,
        },
    ),
    Record(
        "ColumnMember",
        "rankrls.estimators.auto_members",
        {"name": TEXT, "column": COUNT, "block": TEXT, "factor": FINITE},
    ),
    Record(
        "TreeMember",
        "rankrls.estimators.boosted_trees",
        {"n_features": COUNT, "forest": instance("Forest"), "factor": FINITE},
        check=lambda trees: require(
            trees.forest.is_consistent(trees.n_features), "trees of other features"
        ),
    ),
    Record(
        "Forest",
        "rankrls.estimators.boosted_trees",
        {
            "roots": array("i", "trees", empty=False),
            "features": array("i", "nodes", empty=False),
            "thresholds": array("f", "nodes"),
            "left": array("i", "nodes"),
            "right": array("i", "nodes"),
            "values": array("f", "nodes"),
        },
    ),
)

RECORDS = (*KERNELS, *PREFERENCES, *MODELS, *PARTS, *RANKERS, *RELATIONS, *CONDITIONAL, *AUTO)
