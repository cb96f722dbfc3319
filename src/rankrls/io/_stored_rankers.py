"""Rankers of this package and their parts in model files.

A new ranker needs a paragraph of `TABLE` with the attributes that ``fit`` sets, one line each. If
its model is of a new class, the model needs a paragraph, too. `HOOKS` are further arguments of
`rankrls.io._records.Record`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from rankrls._validation import written_integer
from rankrls.core.preferences.laplacian import Factor
from rankrls.estimators.incremental import query_keys
from rankrls.io._kinds import require, within
from rankrls.io._records import INCREMENTAL, WIDE, read_records

TABLE = """
part Kernel of rankrls.core.spaces.spaces
    metric: text
    params: dict[finite | None]

part Basis of rankrls.core.spaces.spaces
    kernel: Kernel
    indices: int[r] nonempty >=0
    Z: float[q q] nonempty
    positions: int[q] <r distinct
    left_out: finite
    rows: rows[q n] | None
    shift: finite | float[n]
    columns_only: flag

part Groups of rankrls.core.preferences.laplacian
    n_groups: length[g]
    total: float[g]
    codes: int[m] <g
    weighted: flag
    weight: float[m] >=0

part ScatterFactor of rankrls.core.preferences.laplacian
    row_of: int[p] >=0
    t: float[p k] nonempty
    groups: Groups
    root: float[p 1]
    between: ScatterFactor | GroundedFactor | None
    embedding: rows[p q] | None

part GroundedFactor of rankrls.core.preferences.laplacian
    row_of: int[p] >=0
    t: float[p k] nonempty
    grounded: int[m] >=0
    free: int[p] <m
    R: float[p p]

part CholeskyFactorization of rankrls.core.linalg.factorizations
    C: float[p p] nonempty
    diagonal: float[p]
    alpha: positive

part EigenFactorization of rankrls.core.linalg.factorizations
    null: bool[q]
    values: float[q]
    vectors: float[p q] nonempty
    excluded_up_to: number
    source: tuple[float[p p], float[p]] | None

fields solver
    n_pairs: count
    log_weight: finite
    outputs: int[k] nonempty
    energy: float[k] | float[1]
    factorization: CholeskyFactorization | EigenFactorization
    b: float[p k]

part PrimalSolver of rankrls.core.ridge.models
    + solver
    mean largest: float[p]
    mass rounding: finite
    largest_energy: float[k]

part DualSolver of rankrls.core.ridge.models
    + solver
    factor: ScatterFactor | GroundedFactor
    share row_means: float[m]

part FittedFunction of rankrls.core.ridge.models
    alphas: float[a] nonempty >=0
    kernel: Kernel
    coef: float[a n k] nonempty | None
    dual_coef: float[a r k] nonempty | None
    rows: rows[q n] | None
    kept: int[q] <r | None
    shift: finite | float[n]
    basis: Basis | None
    pair_coef: float[a c k] nonempty | None
    pair_scale: float[c] nonempty | None
    solvers: list[PrimalSolver | DualSolver]
    dropped: flag

part SeenQueries of rankrls.estimators.incremental
    labels: texts[q] | int[q]
    counts: int[q] >=1
    checksums: float[q] nan
    rankings: list[tuple[count, count, number]]
    joined: list[tuple[list[text], count]]
    weighted: flag
    projection: Projection | None

part Projection of rankrls.estimators.incremental
    v: float[n]
    u: float[k]
    shift: finite

part Calibration of rankrls.estimators.calibration
    link: 'logit' | 'probit'
    slope: finite >=0
    log_loss: finite

fields ranker
    + seen
    param alpha: finite >=0
    solver_: text
    n_pairs_ n_iter_ n_queries_: count
    _flat _with_qid: flag
    _source?: dict[text | list[text]]
    _kernel_numbers?: int[n]
    _model: FittedFunction
    derived coef_ dual_coef_ basis_indices_ pair_coef_ cv_predictions_

fields stopped_early
    best_iteration_?: count
    validation_iterations_?: int[checks]
    validation_curve_?: float[checks] any | float[checks a] any

fields learned
    _seen?: SeenQueries
    _preferences?: int[outputs] >=0
    _learned_with?: dict[text | dict[finite | None]]
    _names_beside?: flag

fields chosen
    alpha_: positive
    best_score_: number
    cv_results_: dict[float[alphas] any | int[alphas]] alike
    gamma_?: number
    noise_variance_?: number | float[outputs]

estimator RankRLS of rankrls.estimators
    + ranker
    + stopped_early
    + learned

estimator RankRLSCV of rankrls.estimators
    + ranker
    + stopped_early
    + learned
    + chosen
    calibration_?: Calibration

estimator RankSVM of rankrls.estimators
    + ranker
    objective_ gap_: number | float[k] any

estimator GreedyRankRLS of rankrls.estimators.greedy
    + seen
    + output
    cv_: text
    scores_: float[s] any
    n_refits_: count
    selected_features_: int[s] nonempty <n distinct
    ranking_: int[n]
    support_: bool[n]
    coef_: float[n] | float[k n]

part Objects of rankrls.estimators.objects
    kernel: KernelSum
    X: rows[n d]
    profile: float[n n] | None
    names: texts[n] | int[n] | None
    sees_differences: flag

part KernelSum of rankrls.estimators.objects
    kernels: tuple[Kernel, ...]
    weights: float[k] nonempty
    scaled: flag

part Observations of rankrls._relation_labels
    matrix: float[p g] | None
    rows cols: int[edges] | None
    y: float[edges] | None
    shape: tuple[size, size]

fields conditional
    + seen
    _rows: Objects
    _columns: Objects | None
    _two_domains: flag
    object_feature_names_in_?: texts[columns]
    dual_coef_?: float[p g] nonempty
    _weights?: float[a b] nonempty
    _fitted_alpha: number | list[number] nonempty
    _labels?: Observations
    offset_?: finite
    row_offsets_?: float[p]
    column_offsets_?: float[g]
    solver_: text
    n_iter_ n_edges_: count
    derived _posterior

estimator ConditionalRankRLS of rankrls.estimators.conditional
    + conditional
    + stopped_early

estimator ConditionalRankRLSCV of rankrls.estimators.conditional_cv
    + conditional
    + chosen
    alpha_: positive | tuple[positive, positive]
    cv_results_: dict[float[alphas] any | int[alphas] | float[alphas 2] any] alike
    kernel_weights_?: float[k]
    object_kernel_weights_?: float[m]

estimator QueryScaler of rankrls.preprocessing
    + seen
    + output
    _with_qid?: flag | None

estimator TableEncoder of rankrls.preprocessing
    + seen
    + output
    dropped_ query_columns_: list[int]
    _parts: int[parts 4] nonempty
    _fills: float[c]
    _levels: dict[list[text]]
    _texts: dict[TextModel]

estimator RankingFeatures of rankrls.preprocessing
    + seen
    + output
    _with_qid: flag
    _sizes: float[n] >=1e-300
    _centres: dict[float[c]]
    _widths: dict[float[c] inf >=1e-300]
    _quantiles?: float[q n]
    _trees?: Forest

estimator AutoRanker of rankrls.estimators.auto
    + seen
    _table: TableEncoder
    _features: RankingFeatures
    _columns: dict[int[columns] >=0]
    _projections: dict[BlockScale]
    _members: list[LinearMember | ColumnMember | TreeMember] nonempty
    _with_qid: flag
    _labels: list[text]
    _scale: float[labels] | None
    _source?: dict[text | list[text]]
    tradeoffs_?: dict[float[tradeoffs] any]
    members_: dict[objects[candidates] | float[candidates] any]
    best_score_: number
    n_compared_: count
    held_out_scores_ nested_scores_: float[rows] any | float[rows labels] any

part TextModel of rankrls.preprocessing._texts
    words: int[words]
    idf: float[words]
    unseen: finite
    frequent: int[frequent]
    axes: float[frequent components]

part BlockScale of rankrls.estimators.auto_members
    mean: float[n]
    axes: float[n k]

part LinearMember of rankrls.estimators.auto_members
    views: list[text] nonempty
    kernel: 'linear' | 'rbf' | 'laplacian'
    gamma scale factor: finite
    basis: rows[basis n] | None
    mapping: float[basis rank] | None
    weights: dict[finite]
    estimator: RankRLS

part ColumnMember of rankrls.estimators.auto_members
    name block: text
    column: count
    factor: finite

part TreeMember of rankrls.estimators.auto_members
    n_features: count
    forest: Forest
    factor: finite

part Forest of rankrls.preprocessing.trees
    roots: int[trees] nonempty
    features: int[nodes] nonempty
    thresholds values: float[nodes]
    left right: int[nodes]
"""


def _pack_seen(seen: Any) -> dict[str, Any]:
    keys, known = list(seen.queries), seen.queries.values()
    numbers = [written_integer(key) for key in keys]
    whole = all(n is not None and -(2**63) <= n < 2**63 for n in numbers)
    sums = np.array([checksum for _, checksum in known])
    return {
        "labels": np.array(numbers if whole else keys, dtype=np.int64 if whole else object),
        "counts": np.array([count for count, _ in known], dtype=np.int64),
        "checksums": np.where(np.isfinite(sums), sums, np.nan),
        "joined": [(sorted(some), n_pairs) for some, n_pairs in seen.joined],
    }


def _finish_seen(seen: Any) -> None:
    labels, counts, sums = (vars(seen).pop(name) for name in ("labels", "counts", "checksums"))
    # Keys are text: hash values of numbers could be made to collide.
    labels = query_keys(labels)
    known = set(labels)
    for keys, _ in seen.joined:
        require(known.issuperset(keys), "joined queries that are unknown, or were joined before")
        known.difference_update(keys)
    seen.joined = [(frozenset(keys), n_pairs) for keys, n_pairs in seen.joined]
    seen._queries, seen._unread = {}, [(labels, counts, sums)]


def _finish_ranker(ranker: Any) -> None:
    """Check the options, that the kernel is that of the model, and what a probe does not use."""
    ranker._check_options()
    _require_metric("kernel", ranker.kernel, ranker._model.kernel.metric)
    ranker._store_coefficients()
    present = [name for name in INCREMENTAL if name in vars(ranker)]
    if present:
        model, projection = ranker._model, ranker._seen.projection
        fixed = model.coef is not None or model.basis is not None
        complete = len(present) == len(INCREMENTAL) and model.solvers and fixed
        require(complete, "a model that has learned half")
        n_outputs = model.n_outputs
        sizes = projection and (len(projection.v), len(projection.u))
        good = sizes in (None, (ranker.n_features_in_, n_outputs))
        good = good and len(ranker._preferences) == n_outputs
        good = good and set(ranker._learned_with) == set(ranker._terms(ranker._check_options()))
        require(good, "statistics of other features, outputs or terms than a model")


def _require_metric(name: str, asked: Any, fitted: Any) -> None:
    text = f"{name}={asked!r} and a model of another kernel, {fitted!r}: fit again before saving"
    require(asked == fitted, text)


def _probe_ranker(ranker: Any) -> None:
    """Predict a row, with its uncertainty if there is one."""
    model, n = ranker._model, ranker.n_features_in_
    X = model.expansion[0]
    if model.kernel.precomputed and n > WIDE:  # a row may be much larger than the file
        basis = model.basis
        columns = basis.positions if basis and basis.columns_only else basis and basis.kept
        require(within(model.kept if columns is None else columns, n), "columns of another matrix")
        return
    if X is None or not X.shape[0]:
        X = sparse.csr_array((1, n)) if n > WIDE else np.zeros((1, n))
    X = X[:1]
    ranker.predict(X)
    if model.coef is None:
        model.kernel_terms(X)
    if model.solvers:
        ranker.log_marginal_likelihood()
        if not model.kernel.precomputed:
            ranker.predict(X, return_std=True)


def _pack_labels(labels: Any) -> dict[str, Any]:
    """Return the labels as a matrix or as lists of edges."""
    lists = labels.lists if labels.matrix is None else (None, None, None)
    return dict(zip(("rows", "cols", "y"), lists, strict=True))


def _finish_labels(labels: Any) -> None:
    lists = [vars(labels).pop(name) for name in ("rows", "cols", "y")]
    whole = labels.matrix is not None
    good = whole or not any(values is None for values in lists)
    good = good and (labels.shape == labels.matrix.shape if whole else True)
    good = good and (whole or all(map(within, lists[:2], labels.shape)))
    require(good, "labels of other objects")
    labels._lists = None if whole else tuple(lists)


def _finish_conditional(ranker: Any) -> None:
    kernels, sides = ranker._check_options(), (ranker._rows, ranker._ranked)
    shape = len(sides[0]), len(sides[1])
    for name in ("dual_coef_", "_labels"):
        value = vars(ranker).get(name)
        require(value is None or value.shape == shape, "coefficients or labels of other objects")
    for name, kernel, side in zip(("kernel", "object_kernel"), kernels, sides, strict=True):
        _require_metric(name, kernel.metric, side.kernel.metric)
    if hasattr(ranker, "alpha"):
        ranker._check_alpha(ranker.alpha)


def _pack_conditional(ranker: Any) -> dict[str, Any]:
    """Pair coefficients of a linear model are not stored, nor complete labels of few features."""
    weights, labels = vars(ranker).get("_weights"), vars(ranker).get("_labels")
    if weights is None:
        return {}
    p, g = len(ranker._rows), len(ranker._ranked)
    complete = labels is not None and labels.matrix is not None
    few = complete and 2 * (p + g) * min(weights.shape) <= p * g
    return {"dual_coef_": ..., "_labels": ...} if few else {"dual_coef_": ...}


def _probe_conditional(ranker: Any) -> None:
    """Predict the first training objects."""
    sides = [ranker._rows, ranker._columns] if ranker._two_domains else [ranker._rows]
    ranker.predict(*(side.X[:1] for side in sides))


def _finish_features(features: Any) -> None:
    features._check_options()
    if hasattr(features, "_trees"):
        n_split = features.n_features_in_ * (1 + features._with_qid)
        require(features._trees.is_consistent(n_split), "trees of other features")


def _probe_blocks(transformer: Any) -> None:
    blocks = getattr(transformer, "blocks", ())
    if "partitions" in blocks and len(blocks) > 1:  # of an AutoRanker, which combines them itself
        return
    options = {"qid": np.zeros(2)} if transformer._with_qid else {}
    transformer.transform(np.zeros((2, transformer.n_features_in_)), **options)


_RANKER = {"finish": _finish_ranker, "probe": _probe_ranker, "row_bytes": 0}
_CONDITIONAL = {
    "pack": _pack_conditional,
    "finish": _finish_conditional,
    "probe": _probe_conditional,
}

HOOKS: dict[str, dict[str, Any]] = {
    "ScatterFactor": {"finish": lambda f: Factor.__init__(f, len(f.groups), f.row_of)},
    "GroundedFactor": {"finish": lambda f: Factor.__init__(f, len(f.grounded), f.row_of)},
    "SeenQueries": {
        "pack": _pack_seen,
        "finish": _finish_seen,
        "cost": lambda values: 400 * len(values["counts"]) + 200 * len(values["rankings"]),
    },
    **dict.fromkeys(("RankRLS", "RankRLSCV", "RankSVM"), _RANKER),
    "GreedyRankRLS": {
        "finish": lambda selector: require(
            np.array_equal(np.flatnonzero(selector.support_), np.sort(selector.selected_features_)),
            "a selection that is not that of support_",
        )
    },
    "Observations": {"pack": _pack_labels, "finish": _finish_labels},
    "ConditionalRankRLS": _CONDITIONAL,
    "ConditionalRankRLSCV": _CONDITIONAL,
    "QueryScaler": {"probe": _probe_blocks},
    "TableEncoder": {
        "finish": lambda encoder: require(encoder._is_consistent(), "parts of another table"),
        "probe": lambda encoder: encoder.transform(encoder._missing_rows()),
    },
    "RankingFeatures": {"finish": _finish_features, "probe": _probe_blocks},
    "AutoRanker": {
        "finish": lambda ranker: require(
            ranker.n_features_in_ == ranker._table.n_features_in_, "columns of another table"
        ),
        "probe": lambda ranker: ranker.predict(
            ranker._table._missing_rows(), qid=np.zeros(2) if ranker._with_qid else None
        ),
    },
    "TextModel": {"finish": lambda model: require(model.is_consistent(), "words of another text")},
    "TreeMember": {
        "finish": lambda trees: require(
            trees.forest.is_consistent(trees.n_features), "trees of other features"
        )
    },
}

read_records(TABLE, HOOKS)
