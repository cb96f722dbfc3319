"""Records of `AutoRanker` and of its transformers.

A new fitted attribute is a line of ``fields``. A new class of members is a `Record` with its
arrays, its name in ``_members``, and a check of the arrays that compiled code takes as indices.
Whether the parts fit together is not checked one by one: a file is refused unless two rows can be
predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    NAMES,
    NUMBER,
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
    within,
)
from rankrls.io._records import SEEN, Record
from rankrls.io._stored_rankers import FIXED, OUTPUT, SOURCE


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


RECORDS = (
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
