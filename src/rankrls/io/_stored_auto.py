"""Records of `AutoRanker` and of its transformers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    LISTING,
    NAMES,
    NUMBER,
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
    rows,
    within,
)
from rankrls.io._records import EstimatorRecord, Record, call
from rankrls.io._stored_estimators import DROPPED, OUTPUT, SEEN, SOURCE, VERBOSE, check_seen

__all__ = ["AUTO", "AUTO_PARTS"]


def _alone(kind: Kind) -> Kind:
    """Return a kind of arrays whose axis names are independent of other fields."""
    return Kind(lambda value, axes: kind.accepts(value, {}), kind.text)


#: One number for every column of a block.
BLOCK_NUMBERS = mapping(_alone(array("f", "c")))
BLOCK_WIDTHS = mapping(_alone(array("f", "c", nan=True)))


#: Lists and tuples of strings, as users pass them.
_TEXTS = Kind(
    lambda value, axes: (
        isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    ),
    "a list or tuple of text",
)


#: Names or numbers of columns, as users pass them.
_COLUMNS = Kind(
    lambda value, axes: (
        isinstance(value, list | tuple) and all(isinstance(one, str | int) for one in value)
    ),
    "a list or tuple of names or numbers",
)


def _check_encoder(encoder: Any) -> None:
    check_seen(encoder)
    require(encoder._is_consistent(), "parts of another table")


def _check_features(features: Any) -> None:
    check_seen(features)
    features._check_options()
    n = features.n_features_in_
    require(len(features._sizes) == n, f"sizes of other than {n} features")
    require(bool((features._sizes > 0).all()), "features of size 0")
    quantiles = getattr(features, "_quantiles", None)
    if quantiles is not None:
        require(quantiles.shape[1:] == (n,) and len(quantiles) > 1, "quantiles of other features")
    require(set(features._centres) == set(features._widths), "columns without a scale")
    for block, centre in features._centres.items():
        width = features._widths[block]
        good = len(centre) == len(width) == features._width(block)
        require(good and bool((width > 0).all()), f"block {block!r} of other columns")
    needed = {"hats", "quantile", "uniform"} & set(features.blocks)
    require(not needed or quantiles is not None, "quantiles are missing")
    if "partitions" in features.blocks:
        require(hasattr(features, "_trees"), "random trees are missing")
        n_split = n * (1 + features._with_qid)
        require(within(features._trees.features, n_split), "trees of other features")


def _check_trees(trees: Any) -> None:
    width = trees.features.shape[1]
    require(2 <= width <= 2**12 and width & (width - 1) == 0, "trees that are not complete")
    require(not np.isnan(trees.thresholds).any(), "trees with a threshold that is no number")


def _check_auto(ranker: Any) -> None:
    check_seen(ranker)
    table, features, blocks = ranker._table, ranker._features, ranker._table.blocks_
    require(table.n_features_in_ == ranker.n_features_in_, "a table of other columns")
    require(within(ranker._columns, len(blocks)), "columns of another table")
    n_numbers = len(ranker._columns) if features._centres else len(blocks)
    require(features.n_features_in_ == max(n_numbers, 1), "views of another table")
    require(features._with_qid == ranker._with_qid, "views of other queries")
    for name, projection in ranker._projections.items():
        require(len(projection.mean) == np.count_nonzero(blocks == name), "blocks of another table")
    for member in ranker._members:
        views = getattr(member, "views", None) or [member.block]
        require(all(view in features.blocks for view in views), "a member of an unknown view")
        if type(member).__name__ == "ColumnMember":
            require(0 <= member.column < features.n_features_in_, "an unknown column")
            continue
        width = sum(features._width(view) for view in views)
        if member.basis is not None:
            require(member.mapping is not None, "a basis without a mapping")
            require(member.basis.shape[1] == width, "a basis of another view")
            width = member.mapping.shape[1]
        used = [name for name, weight in member.weights.items() if weight]
        require(all(name in ranker._projections for name in used), "an unknown block")
        width += sum(ranker._projections[name].axes.shape[1] for name in used)
        linear = member.estimator._flat and member.estimator._model.coef is not None
        require(linear and member.estimator.n_features_in_ == width, "a member of another view")
    lengths = {len(values) for values in ranker.members_.values()}
    require(len(lengths) == 1, "a table of members with columns of different lengths")


AUTO = (
    EstimatorRecord(
        "TableEncoder",
        "rankrls.preprocessing",
        fields={
            **SEEN,
            **OUTPUT,
            "dropped_": LISTING,
            "query_columns_": LISTING,
            "_parts": array("i", "parts kind", empty=False),
            "_fills": array("f", "c"),
            "_levels": mapping(LISTING),
            "_texts": mapping(instance("TextModel")),
        },
        check=_check_encoder,
        params={"max_levels": SIZE, "drop_ids": FLAG, "query_columns": maybe(_COLUMNS)},
    ),
    EstimatorRecord(
        "RankingFeatures",
        "rankrls.preprocessing",
        fields={
            **SEEN,
            **OUTPUT,
            "_with_qid": FLAG,
            "_sizes": array("f", "n"),
            "_centres": BLOCK_NUMBERS,
            "_widths": BLOCK_WIDTHS,
            "_quantiles": optional(array("f", "q n")),
            "_trees": optional(instance("RandomTrees")),
        },
        check=_check_features,
        params={
            "blocks": _TEXTS,
            "n_trees": SIZE,
            "depth": SIZE,
            "random_state": maybe(INTEGER),
        },
        advice={"random_state": "it matters for fitting only: call set_params(random_state=None)"},
    ),
    EstimatorRecord(
        "AutoRanker",
        "rankrls.estimators.auto",
        fields={
            **SEEN,
            "_table": instance("TableEncoder"),
            "_features": instance("RankingFeatures"),
            "_columns": array("i", "numbers"),
            "_projections": mapping(instance("BlockScale")),
            "_members": listing(instance("LinearMember", "ColumnMember")),
            "_with_qid": FLAG,
            "_source": optional(SOURCE),
            "members_": mapping(either(NAMES, array("f", "candidates", nan=True))),
            "best_score_": NUMBER,
            "n_compared_": COUNT,
            "held_out_scores_": array("f", "rows", nan=True),
            "nested_scores_": array("f", "rows", nan=True),
        },
        check=_check_auto,
        params={
            "scoring": TEXT,
            "effort": TEXT,
            "query_columns": maybe(_COLUMNS),
            "drop_ids": FLAG,
            "random_state": maybe(INTEGER),
            "n_jobs": maybe(INTEGER),
            "verbose": VERBOSE,
        },
        dropped=DROPPED,
        advice={
            "scoring": "a function cannot be stored as data: call set_params(scoring='ndcg@10') "
            "before saving",
            "random_state": "it matters for fitting only: call set_params(random_state=None)",
        },
    ),
)

AUTO_PARTS = (
    Record(
        "RandomTrees",
        "rankrls.preprocessing._random_trees",
        {
            "features": array("i", "trees nodes", empty=False),
            "thresholds": array("f", "trees nodes", nan=True),
        },
        unpack=call,
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
        unpack=call,
        check=lambda model: require(model.is_consistent(), "words of another text"),
    ),
    Record(
        "BlockScale",
        "rankrls.estimators.auto",
        {"mean": array("f", "n"), "axes": array("f", "n k")},
        unpack=call,
    ),
    Record(
        "LinearMember",
        "rankrls.estimators.auto",
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
        unpack=call,
    ),
    Record(
        "ColumnMember",
        "rankrls.estimators.auto",
        {"name": TEXT, "column": COUNT, "block": TEXT, "factor": FINITE},
        unpack=call,
    ),
)
