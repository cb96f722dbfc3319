"""Checks for common mistakes in labels, queries and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.report._data import Rankings
from rankrls.report._duplicates import equal_rows
from rankrls.report._findings import MAX_EXAMPLES, Finding, count, listed
from rankrls.report._summary import DataSummary

__all__ = ["check_labels", "check_rows"]

Array = NDArray[Any]


def check_labels(data: Rankings, summary: DataSummary) -> list[Finding]:
    """Check labels and queries."""
    found = []
    if data.has_qid:
        found += _without_pairs(data, summary)
        found += _dominated(data, summary)
        found += _split_blocks(data)
        if summary.n_with_pairs < 30:
            found.append(
                Finding(
                    "note",
                    "few-queries",
                    f"Only {count(summary.n_with_pairs, 'query has', 'queries have')} pairs",
                    "Estimates from so few queries are imprecise, whatever the number of rows.",
                )
            )
    found += _labels_are_ranks(data, summary)
    found += _sorted_by_label(data, summary)
    return found


def _without_pairs(data: Rankings, summary: DataSummary) -> list[Finding]:
    n = summary.n_single + summary.n_tied
    if not n:
        return []
    reasons = []
    if summary.n_single:
        reasons.append(f"{count(summary.n_single, 'has', 'have')} a single row")
    if summary.n_tied:
        reasons.append(f"{count(summary.n_tied, 'has', 'have')} equal labels in all rows")
    names = [data.query_name(q) for q in np.flatnonzero(summary.pairs == 0)[:MAX_EXAMPLES]]
    return [
        Finding(
            "warning" if n >= 0.2 * summary.n_queries else "note",
            "queries-without-pairs",
            f"{count(n, 'query', 'queries')} without a pair ({n / summary.n_queries:.0%})",
            f"{' and '.join(reasons)}. These queries contain no preference and are excluded from "
            "the averages. If there are many, check that query ids and labels were read correctly.",
            listed(names, n),
        )
    ]


def _dominated(data: Rankings, summary: DataSummary) -> list[Finding]:
    if summary.n_queries < 20 or summary.n_pairs == 0:
        return []
    top = max(1, summary.n_queries // 100)
    largest = np.argsort(-summary.pairs, kind="stable")[:top]
    share = summary.pairs[largest].sum() / summary.n_pairs
    if share < 0.5:
        return []
    return [
        Finding(
            "warning",
            "dominant-queries",
            f"{count(top, 'query has', 'queries have')} {share:.0%} of all pairs",
            "With query_weighting='pair' all pairs have the same weight in training, so these "
            "queries dominate the model. Use query_weighting='size' or 'query' to avoid this.",
            listed([data.query_name(q) for q in largest[:MAX_EXAMPLES]], top),
        )
    ]


def _split_blocks(data: Rankings) -> list[Finding]:
    starts = np.concatenate([[0], np.flatnonzero(np.diff(data.codes)) + 1])
    blocks = np.bincount(data.codes[starts], minlength=data.n_queries)
    back = np.flatnonzero(blocks > 1)
    if not 0 < len(back) <= 0.5 * data.n_queries:  # more than half: the rows are shuffled
        return []
    return [
        Finding(
            "warning",
            "returning-query-ids",
            f"{count(len(back), 'query id reappears', 'query ids reappear')} after other queries",
            "Rows with the same id form one query, also if they are not consecutive. If several "
            "files with the same ids were joined, different queries were merged: make the ids "
            "unique.",
            listed([data.query_name(q) for q in back[:MAX_EXAMPLES]], len(back)),
        )
    ]


def _labels_are_ranks(data: Rankings, summary: DataSummary) -> list[Finding]:
    """Detect labels 1 … n in every query, which are probably ranks with 1 as the best."""
    sizes = data.sizes
    if summary.n_with_pairs == 0 or np.median(sizes[sizes > 1]) < 3:
        return []
    largest = np.full(data.n_queries, -np.inf)
    smallest = np.full(data.n_queries, np.inf)
    np.maximum.at(largest, data.codes, data.y)
    np.minimum.at(smallest, data.codes, data.y)
    all_differ = summary.pairs == sizes * (sizes - 1) // 2
    ranks = (sizes > 1) & (largest == sizes) & (smallest == 1) & all_differ
    ranks &= _all_integers(data)
    if ranks.sum() < 0.9 * (sizes > 1).sum():
        return []
    return [
        Finding(
            "warning",
            "labels-are-ranks",
            "The labels look like ranks: 1, 2, 3 … in each query",
            "Higher labels are better. If 1 is the best, the model has learned the reverse order: "
            "pass -y.",
        )
    ]


def _all_integers(data: Rankings) -> Array:
    whole = np.ones(data.n_queries, dtype=bool)
    np.logical_and.at(whole, data.codes, data.y == np.rint(data.y))
    return whole


def _sorted_by_label(data: Rankings, summary: DataSummary) -> list[Finding]:
    if not data.has_qid or summary.n_with_pairs < 5:
        return []
    order = np.argsort(data.codes, kind="stable")
    step, inside = np.diff(data.y[order]), np.diff(data.codes[order]) == 0
    codes = data.codes[order][1:]
    rises = np.bincount(codes[inside & (step > 0)], minlength=data.n_queries)
    falls = np.bincount(codes[inside & (step < 0)], minlength=data.n_queries)
    long = (summary.pairs > 0) & (data.sizes >= 5)
    if not long.sum() >= 5 or ((rises == 0) | (falls == 0))[long].mean() < 0.95:
        return []
    return [
        Finding(
            "note",
            "sorted-by-label",
            "The rows of each query are sorted by label",
            "This does not affect the results: the order of rows is not used. However, a "
            "feature derived from the position of a row (its number, or an id assigned in this "
            "order) would reveal the labels.",
        )
    ]


def check_rows(data: Rankings) -> list[Finding]:
    """Check for duplicate rows."""
    number = equal_rows(data.X)
    # Rows with the same features in the same query form a group.
    order = np.lexsort((data.y, number, data.codes))
    group = np.concatenate(
        [[0], np.cumsum((np.diff(number[order]) != 0) | (np.diff(data.codes[order]) != 0))]
    )
    size = np.bincount(group)
    low, high = np.full(len(size), np.inf), np.full(len(size), -np.inf)
    np.minimum.at(low, group, data.y[order])
    np.maximum.at(high, group, data.y[order])
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    found = []
    where = "the same query" if data.has_qid else "the data"
    conflict = np.flatnonzero((size > 1) & (low < high))
    if len(conflict):
        examples = [_pair_name(data, order[first[g]], order[first[g] + size[g] - 1]) for g in
                    conflict[:MAX_EXAMPLES]]  # fmt: skip
        found.append(
            Finding(
                "warning",
                "contradicting-rows",
                f"{count(len(conflict), 'group')} of equal rows with different labels",
                f"Rows of {where} have the same features and different labels. No model can "
                "order them; each such pair counts as half an error.",
                listed(examples, len(conflict)),
            )
        )
    repeated = np.flatnonzero((size > 1) & (low == high))
    extra = int((size[repeated] - 1).sum())
    if extra:
        examples = [_pair_name(data, order[first[g]], order[first[g] + 1]) for g in
                    repeated[:MAX_EXAMPLES]]  # fmt: skip
        found.append(
            Finding(
                "warning" if extra >= 0.05 * data.n_rows else "note",
                "duplicate-rows",
                f"{count(extra, 'duplicate row')} ({extra / data.n_rows:.1%})",
                f"Rows of {where} have the same features and the same label as another row, so "
                "their pairs count twice. Check whether a file was read twice.",
                listed(examples, len(repeated)),
            )
        )
    return found


def _pair_name(data: Rankings, a: int, b: int) -> str:
    names = f"{data.document_name(int(a))} = {data.document_name(int(b))}"
    return f"{data.query_name(int(data.codes[a]))}: {names}" if data.has_qid else names
