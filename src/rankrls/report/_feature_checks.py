"""Check for features that are useless, leak the labels, or are badly scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import columns_like_ids, unequal_scales
from rankrls.report._data import Rankings
from rankrls.report._duplicates import equal_columns
from rankrls.report._feature_statistics import FeatureStatistics
from rankrls.report._findings import MAX_EXAMPLES, Finding, count, listed
from rankrls.report._html import number

__all__ = ["check_features"]

Array = NDArray[Any]

#: A feature that alone orders this fraction of the pairs is suspected to leak the labels.
LEAK = 0.995
#: Maximum number of query features that are inspected one by one.
MAX_IDS = 100


def check_features(data: Rankings, statistics: FeatureStatistics) -> list[Finding]:
    """Check for features that are useless, leak the labels, or are badly scaled."""
    names = np.array(data.feature_names, dtype=object)
    found = []
    constant = np.flatnonzero(~statistics.varies)
    if len(constant):
        found.append(
            Finding(
                "note",
                "constant-features",
                f"{count(len(constant), 'feature is', 'features are')} constant",
                "The same value in all rows cannot affect the ranking. Check that the data were "
                "read correctly.",
                listed(names[constant[:MAX_EXAMPLES]], len(constant)),
            )
        )
    if data.has_qid:
        found += _query_features(data, statistics, names)
    found += _leaks(data, statistics, names)
    found += _equal_features(data, statistics, names)
    return found + _ids(data, names) + _scales(data, names)


def _ids(data: Rankings, names: Array) -> list[Finding]:
    ids = columns_like_ids(data.X, names, data.codes)
    if not ids:
        return []
    one = len(ids) == 1
    return [
        Finding(
            "warning",
            "id-features",
            f"{count(len(ids), 'feature looks', 'features look')} like {'an id' if one else 'ids'} "
            "or a position",
            "What a model learns from the id, the number or the time of a row does not carry over "
            f"to new rows. Exclude {'it' if one else 'them'}.",
            listed(names[ids[:MAX_EXAMPLES]], len(ids)),
        )
    ]


def _scales(data: Rankings, names: Array) -> list[Finding]:
    scales = unequal_scales(data.X, data.codes)
    if scales is None:
        return []
    return [
        Finding(
            "warning",
            "unequal-scales",
            "The features have very different scales",
            f"Standard deviations within a query range from {number(scales.low, 3)} "
            f"({names[scales.small]}) to {number(scales.high, 3)} ({names[scales.large]}). alpha "
            "shrinks all weights equally, so features with a small scale are penalised more. Use "
            "StandardScaler or QueryScaler.",
        )
    ]


def _query_features(data: Rankings, statistics: FeatureStatistics, names: Array) -> list[Finding]:
    flat = np.flatnonzero(statistics.varies & ~statistics.varies_within)
    if not len(flat):
        return []
    found = []
    first = np.full(data.n_queries, data.n_rows)
    np.minimum.at(first, data.codes, np.arange(data.n_rows))
    ids = [j for j in flat[:MAX_IDS] if _is_id(data.X, first, int(j))]
    found.append(
        Finding(
            "warning",
            "query-features",
            f"{count(len(flat), 'feature is', 'features are')} constant within every query",
            "Such features describe the query, not its documents. They do not affect the order in "
            "a linear model, and in a kernel model only through interactions with other features. "
            "Combine them with features of the documents, or exclude them.",
            listed(names[flat[:MAX_EXAMPLES]], len(flat)),
        )
    )
    if ids:
        found.append(
            Finding(
                "warning",
                "query-id-feature",
                f"{count(len(ids), 'feature has', 'features have')} a different value in every "
                "query",
                "This looks like the query id. It does not help with new queries: exclude it from "
                "the features.",
                listed(names[ids[:MAX_EXAMPLES]], len(ids)),
            )
        )
    return found


def _is_id(X: Any, first: Array, j: int) -> bool:
    values = X[first][:, [j]]
    values = values.toarray() if hasattr(values, "toarray") else values
    return len(first) >= 5 and len(np.unique(values)) == len(first)


def _leaks(data: Rankings, statistics: FeatureStatistics, names: Array) -> list[Finding]:
    if data.n_rows < 10:
        return []
    alone = np.nan_to_num(statistics.alone, nan=0.5)
    leaking = np.flatnonzero(np.maximum(alone, 1 - alone) >= LEAK)
    if not len(leaking):
        return []
    return [
        Finding(
            "problem",
            "label-leak",
            f"{count(len(leaking), 'feature')} alone {'orders' if len(leaking) == 1 else 'order'} "
            f"{LEAK:.1%} or more of all pairs correctly",
            "Such a feature is often the label itself, derived from it, or not available when the "
            "model is used. If so, the errors below are too optimistic: exclude it.",
            listed(names[leaking[:MAX_EXAMPLES]], len(leaking)),
        )
    ]


def _equal_features(data: Rankings, statistics: FeatureStatistics, names: Array) -> list[Finding]:
    number = equal_columns(data.X)
    twin = np.flatnonzero((number != np.arange(data.n_features)) & statistics.varies)
    if not len(twin):
        return []
    examples = [f"{names[j]} = {names[number[j]]}" for j in twin[:MAX_EXAMPLES]]
    return [
        Finding(
            "note",
            "equal-features",
            f"{count(len(twin), 'feature equals', 'features equal')} another one",
            "Equal features share their weight, so each of them seems less important than it is.",
            listed(examples, len(twin)),
        )
    ]
