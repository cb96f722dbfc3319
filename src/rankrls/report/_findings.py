"""Findings: problems, warnings and notes about the data or the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._frames import (
    MAX_SHIFT,
    MAX_SPREAD,
    columns_like_ids,
    shifted_columns,
    unequal_scales,
)
from rankrls.core.spaces.spaces import first_equal
from rankrls.report._data import Rankings
from rankrls.report._errors import Interval, UnitErrors
from rankrls.report._features import column, feature_statistics
from rankrls.report._svg import number, plural

__all__ = ["Finding", "check_data", "check_model", "check_test"]

Array = NDArray[Any]

#: Maximum number of examples for each finding.
MAX_EXAMPLES = 5
#: A feature that alone orders this fraction of the pairs is suspected to leak the labels.
LEAK = 0.995
#: Maximum number of query features that are inspected one by one.
MAX_IDS = 100
#: Predictions of held-out queries share training rows, which Student's interval does not count: on
#: labels of chance, errors vary by up to half as much again. The interval is this much wider.
WIDER = 1.5

#: Level, title and text of every finding; the checks fill in the braces.
FINDINGS: dict[str, tuple[str, str, str]] = {
    "queries-without-pairs": (
        "note", "{queries} without a pair ({share:.0%})",
        "{reasons}. These queries contain no preference and are excluded from the averages. If "
        "there are many, check that query ids and labels were read correctly."),
    "dominant-queries": (
        "warning", "{queries} {share:.0%} of all pairs",
        "With query_weighting='pair' all pairs have the same weight in training, so these queries "
        "dominate the model. Use query_weighting='size' or 'query' to avoid this."),
    "returning-query-ids": (
        "warning", "{ids} after other queries",
        "Rows with the same id form one query, also if they are not consecutive. If several files "
        "with the same ids were joined, different queries were merged: make the ids unique."),
    "few-queries": (
        "note", "Only {queries} pairs",
        "Estimates from so few queries are imprecise, whatever the number of rows."),
    "labels-are-ranks": (
        "warning", "The labels look like ranks: 1, 2, 3 … in each query",
        "Higher labels are better. If 1 is the best, the model has learned the reverse order: pass "
        "-y."),
    "contradicting-rows": (
        "warning", "{groups} of equal rows with different labels",
        "Rows of {where} have the same features and different labels. No model can order them; "
        "each such pair counts as half an error."),
    "duplicate-rows": (
        "note", "{rows} ({share:.1%})",
        "Rows of {where} have the same features and the same label as another row, so their pairs "
        "count twice. Check whether a file was read twice."),
    "constant-features": (
        "note", "{features} constant",
        "The same value in all rows cannot affect the ranking. Check that the data were read "
        "correctly."),
    "query-features": (
        "warning", "{features} constant within every query",
        "Such features describe the query, not its documents. They do not affect the order in a "
        "linear model, and in a kernel model only through interactions with other features. "
        "Combine them with features of the documents, or exclude them."),
    "query-id-feature": (
        "warning", "{features} a different value in every query",
        "This looks like the query id. It does not help with new queries: exclude it from the "
        "features."),
    "label-leak": (
        "problem", "{features} {share:.1%} or more of all pairs correctly",
        "Such a feature is often the label itself, derived from it, or not available when the "
        "model is used. If so, the errors below are too optimistic: exclude it."),
    "equal-features": (
        "note", "{features} another one",
        "Equal features share their weight, so each of them seems less important than it is."),
    "id-features": (
        "warning", "{features} or a position",
        "What a model learns from the id, the number or the time of a row does not carry over to "
        "new rows. Exclude {them}."),
    "unequal-scales": (
        "warning", "The features have very different scales",
        "Standard deviations within a query range from {low} ({small}) to {high} ({large}). alpha "
        "shrinks all weights equally, so features with a small scale are penalised more. Use "
        "StandardScaler or QueryScaler."),
    "shared-queries": (
        "warning", "{ids} in both training and test data",
        "If these are the same queries, the test error is too optimistic: split the data by query. "
        "If both files number their queries from 1, ignore this warning."),
    "shared-rows": (
        "warning", "{rows} also in the training data ({share:.1%})",
        "All their features are equal. The test error is too optimistic if these are the same "
        "documents of the same queries."),
    "shifted-features": (
        "warning", "{features} between training and test",
        "Their means differ by more than {shift:g} standard deviations, or their standard "
        "deviations by a factor of more than {ratio:g}. Check that both data sets were scaled in "
        "the same way and that their columns are in the same order."),
    "no-better-than-chance": (
        "problem", "The model is not better than a random order",
        "{error:.1%} of the pairs are in the wrong order; a random order has 50%. Check that "
        "labels and features belong to the same rows, and that higher labels are better."),
    "single-feature-as-good": (
        "warning", "A single feature is {better} the model",
        "Sorting by this feature has an error of {alone:.1%}, the model one of {error:.1%}. "
        "{advice}."),
    "no-error": (
        "warning", "The error is zero",
        "Every held-out pair is in the right order. This is rare with real data. Check that no "
        "feature contains the label."),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A problem, warning or note about the data or the model.

    Attributes
    ----------
    level : {"problem", "warning", "note"}
        "problem" if results cannot be trusted, "warning" if results may be worse than necessary,
        "note" for useful information.
    code : str
        Short name, for programs.
    title, text : str
        What was found; what it means and what to do.
    examples : list of str
        Names of features, queries or rows.
    """

    level: Literal["problem", "warning", "note"]
    code: str
    title: str
    text: str
    examples: list[str] = field(default_factory=list)


def _found(code: str, names: Any = (), level: Any = None, **values: Any) -> Finding:
    """A finding of the table with the first names."""
    usual, title, text = FINDINGS[code]
    few = [str(name) for name in names[:MAX_EXAMPLES]]
    more = [f"… and {len(names) - len(few):,} more"] * (len(names) > len(few))
    made: Any = level or usual
    return Finding(made, code, title.format(**values), text.format(**values), few + more)


def check_data(
    data: Rankings, summary: SimpleNamespace, statistics: SimpleNamespace | None
) -> Iterator[Finding]:
    """Check labels, queries, rows and features; ``statistics`` are None for a kernel matrix."""
    if data.has_qid:
        yield from _check_queries(data, summary)
    sizes, several = data.sizes, data.sizes > 1
    order = np.lexsort((data.y, data.codes))
    place = np.arange(data.n_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    ranks = np.bincount(data.codes[order], data.y[order] != place, data.n_queries) == 0
    if np.median(sizes[several]) >= 3 and (ranks & several).sum() >= 0.9 * several.sum():
        yield _found("labels-are-ranks")
    if statistics is not None:
        yield from _check_rows(data)
        yield from _check_features(data, statistics)


def _check_queries(data: Rankings, summary: SimpleNamespace) -> Iterator[Finding]:
    """Queries without pairs, dominant queries, returning ids, few queries."""

    def names(queries: Array) -> list[str]:
        return [data.query_name(int(q)) for q in queries]

    n, total = summary.n_single + summary.n_tied, summary.n_queries
    if n:
        counts = {"a single row": summary.n_single, "equal labels in all rows": summary.n_tied}
        reasons = [
            f"{plural(count, 'has', 'have')} {what}" for what, count in counts.items() if count
        ]
        yield _found(
            "queries-without-pairs", names(np.flatnonzero(summary.pairs == 0)),
            "warning" if n >= 0.2 * total else "note",
            queries=plural(n, "query", "queries"), share=n / total, reasons=" and ".join(reasons),
        )  # fmt: skip
    top = max(1, total // 100)
    largest = np.argsort(-summary.pairs, kind="stable")[:top]
    share = summary.pairs[largest].sum() / max(summary.n_pairs, 1)
    if total >= 20 and share >= 0.5:
        words = plural(top, "query has", "queries have")
        yield _found("dominant-queries", names(largest), queries=words, share=share)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(data.codes)) + 1])
    back = np.flatnonzero(np.bincount(data.codes[starts], minlength=total) > 1)
    if 0 < len(back) <= 0.5 * total:  # more than half: the rows are shuffled
        words = plural(len(back), "query id reappears", "query ids reappear")
        yield _found("returning-query-ids", names(back), ids=words)
    if summary.n_with_pairs < 30:
        words = plural(summary.n_with_pairs, "query has", "queries have")
        yield _found("few-queries", queries=words)


def _check_rows(data: Rankings) -> Iterator[Finding]:
    """Rows with the same features in the same query, with different or equal labels."""
    same, n = first_equal(data.X), data.n_rows
    order = np.lexsort((data.y, same, data.codes))
    new = (np.diff(same[order]) != 0) | (np.diff(data.codes[order]) != 0)
    first = np.concatenate([[0], np.flatnonzero(new) + 1])
    size = np.diff(np.append(first, n))
    last = first + size - 1  # rows of a group are sorted by label
    differ = data.y[order[first]] < data.y[order[last]]
    where = "the same query" if data.has_qid else "the data"

    def examples(groups: Array) -> list[str]:
        found = []
        for a, b in zip(order[first[groups]].tolist(), order[last[groups]].tolist(), strict=True):
            query = f"{data.query_name(data.codes[a])}: " if data.has_qid else ""
            found.append(f"{query}{data.document_name(a)} = {data.document_name(b)}")
        return found

    conflict, repeated = np.flatnonzero(differ), np.flatnonzero((size > 1) & ~differ)
    if len(conflict):
        yield _found("contradicting-rows", examples(conflict), where=where,
                     groups=plural(len(conflict), "group"))  # fmt: skip
    extra = int((size[repeated] - 1).sum())
    if extra:
        yield _found("duplicate-rows", examples(repeated),
                     "warning" if extra >= 0.05 * n else "note", where=where,
                     rows=plural(extra, "duplicate row"), share=extra / n)  # fmt: skip


def _check_features(data: Rankings, statistics: SimpleNamespace) -> Iterator[Finding]:
    """Features that are useless, leak the labels, or are badly scaled."""
    names = np.array(data.feature_names, dtype=object)

    def about(code: str, columns: Any, one: str, many: str, **values: Any) -> Iterator[Finding]:
        if len(columns):
            words = plural(len(columns), f"feature {one}", f"features {many}")
            yield _found(code, names[columns], features=words, **values)

    yield from about("constant-features", np.flatnonzero(~statistics.varies), "is", "are")
    flat = np.flatnonzero(statistics.varies & ~statistics.varies_within)
    if data.has_qid:
        yield from about("query-features", flat, "is", "are")
        first = np.unique(data.codes, return_index=True)[1]
        own = [j for j in flat[:MAX_IDS] if len(np.unique(column(data.X[first], j))) == len(first)]
        yield from about("query-id-feature", own if len(first) >= 5 else [], "has", "have")
    alone = np.nan_to_num(statistics.alone, nan=0.5)
    leaking = np.flatnonzero(np.maximum(alone, 1 - alone) >= LEAK)
    if data.n_rows >= 10:
        yield from about("label-leak", leaking, "alone orders", "alone order", share=LEAK)
    X = data.X
    same = first_equal(X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T))
    equal = np.flatnonzero((same != np.arange(X.shape[1])) & statistics.varies)
    if len(equal):
        words = plural(len(equal), "feature equals", "features equal")
        pairs = [f"{names[j]} = {names[same[j]]}" for j in equal]
        yield _found("equal-features", pairs, features=words)
    like_ids = columns_like_ids(X, names, data.codes)
    them = "it" if len(like_ids) == 1 else "them"
    yield from about("id-features", like_ids, "looks like an id", "look like ids", them=them)
    scales = unequal_scales(X, data.codes) if data.inputs is X else None
    if scales is not None:
        yield _found("unequal-scales", low=number(scales.low, 3), high=number(scales.high, 3),
                     small=names[scales.small], large=names[scales.large])  # fmt: skip


def check_test(
    train: Rankings, test: Rankings, before: SimpleNamespace | None
) -> Iterator[Finding]:
    """Test data that overlap with the training data, or whose features are shifted."""
    seen = {str(label) for label in train.labels} if train.has_qid else set()
    shared = [str(label) for label in test.labels if str(label) in seen]
    if shared:
        words = plural(len(shared), "query id is", "query ids are")
        yield _found("shared-queries", shared, ids=words)
    if before is None:
        return
    both: Any = [test.X, train.X]
    if any(map(sparse.issparse, both)):
        both = sparse.vstack([sparse.csr_array(X) for X in both], format="csr")
    else:
        both = np.vstack(both)
    same, n = first_equal(both), test.n_rows
    common = np.flatnonzero(np.isin(same[:n], same[n:]))
    share = len(common) / n
    if len(common):
        yield _found("shared-rows", [test.document_name(int(row)) for row in common],
                     "problem" if share >= 0.05 else "warning", share=share,
                     rows=plural(len(common), "test row is", "test rows are"))  # fmt: skip
    after = feature_statistics(test)
    moved = shifted_columns(before.mean, before.std, after.mean, after.std)
    columns = np.flatnonzero(moved | (before.varies != after.varies))
    if len(columns):
        examples = [
            f"{train.feature_names[j]}: mean {before.mean[j]:.3g} → {after.mean[j]:.3g}, "
            f"standard deviation {before.std[j]:.3g} → {after.std[j]:.3g}"
            for j in columns
        ]
        words = plural(len(columns), "feature differs", "features differ")
        yield _found("shifted-features", examples, features=words, shift=MAX_SHIFT,
                     ratio=MAX_SPREAD)  # fmt: skip


def check_model(
    errors: UnitErrors, error: Interval, baseline: Any, *, scaled: bool, held_out: bool
) -> Iterator[Finding]:
    """The error, and that of the best single feature, ``baseline``."""
    wider = WIDER if held_out and error.method == "student" else 1.0
    if error.value >= 0.5 or error.value + wider * (error.high - error.value) >= 0.5:
        yield _found("no-better-than-chance", error=error.value)
    elif baseline is not None and baseline.error <= error.value:
        better = "as good as" if f"{baseline.error:.1%}" == f"{error.value:.1%}" else "better than"
        advice = "The labels may be too noisy, or the query ids wrong"
        if not scaled:
            advice = "The features may need scaling, or the labels may be too noisy"
        yield _found("single-feature-as-good", [baseline.feature], better=better, advice=advice,
                     alone=baseline.error, error=error.value)  # fmt: skip
    if np.nanmax(errors.error) == 0:
        yield _found("no-error")
