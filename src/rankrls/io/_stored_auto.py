"""Records of `AutoRanker` and of its transformers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.io._kinds import (
    COUNT,
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
    within,
)
from rankrls.io._records import EstimatorRecord, Record, call
from rankrls.io._stored_estimators import DROPPED, OUTPUT, SEEN, SOURCE, VERBOSE, check_seen

__all__ = ["AUTO", "RANDOM_TREES"]


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


def _check_encoder(encoder: Any) -> None:
    check_seen(encoder)
    n = encoder.n_features_in_
    require(within(encoder.sources_, n), f"columns that are made of others than {n}")
    require(bool(np.isin(encoder._kinds, (0, 1, 2)).all()), "columns of an unknown kind")
    texts = [isinstance(level, str) for level in encoder._levels]
    require(len(texts) == len(encoder.sources_) and all(texts), "levels of other columns")
    require(all(isinstance(j, int) and 0 <= j < n for j in encoder.dropped_), "unknown columns")


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
    n = len(ranker._views)
    good = len(ranker.estimators_) == len(ranker._factors) == n and n >= 1
    require(good, "members without a view, or views without a member")
    table, features = ranker._table, ranker._features
    require(table.n_features_in_ == ranker.n_features_in_, "a table of other columns")
    require(len(table.sources_) == features.n_features_in_, "views of another table")
    require(features._with_qid == ranker._with_qid, "views of other queries")
    for blocks, member in zip(ranker._views, ranker.estimators_, strict=True):
        known = isinstance(blocks, list) and all(block in features.blocks for block in blocks)
        require(known and bool(blocks), "a member of an unknown view")
        width = sum(features._width(block) for block in blocks)
        require(member.n_features_in_ == width, "a member of another view")
        require(member._flat, "a member with several outputs")
    lengths = {len(values) for values in ranker.members_.values()}
    require(len(lengths) == 1, "a table of members with columns of different lengths")


AUTO = (
    EstimatorRecord(
        "TableEncoder",
        "rankrls.preprocessing",
        fields={
            **SEEN,
            **OUTPUT,
            "sources_": array("i", "c", empty=False),
            "dropped_": LISTING,
            "_kinds": array("i", "c"),
            "_fills": array("f", "c"),
            "_levels": LISTING,
        },
        check=_check_encoder,
        params={"max_levels": SIZE, "drop_ids": FLAG},
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
            "_views": listing(listing(TEXT)),
            "_factors": array("f", "members"),
            "_with_qid": FLAG,
            "_source": optional(SOURCE),
            "estimators_": listing(instance("RankRLS")),
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

RANDOM_TREES = Record(
    "RandomTrees",
    "rankrls.preprocessing._random_trees",
    {
        "features": array("i", "trees nodes", empty=False),
        "thresholds": array("f", "trees nodes", nan=True),
    },
    unpack=call,
    check=_check_trees,
)
