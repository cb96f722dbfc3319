"""Findings: problems, warnings and notes about the data or the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import columns_like_ids, unequal_scales
from rankrls.core.spaces.spaces import first_equal
from rankrls.report._data import DataSummary, Rankings
from rankrls.report._errors import Interval, UnitErrors
from rankrls.report._features import (
    FeatureStatistics,
    equal_columns,
    feature_statistics,
    rows_in_common,
)
from rankrls.report._heldout import AlphaPath, CrossValidated, FitPlan
from rankrls.report._words import number, plural

__all__ = ["Finding", "check_data", "check_model", "check_test"]

Array = NDArray[Any]

#: Maximum number of examples for each finding.
MAX_EXAMPLES = 5
#: A feature that alone orders this fraction of the pairs is suspected to leak the labels.
LEAK = 0.995
#: Maximum number of query features that are inspected one by one.
MAX_IDS = 100
#: Report means that differ by more than this many standard deviations, or spreads by this factor.
MAX_SHIFT, MAX_RATIO = 3.0, 10.0


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


def _listed(names: Iterable[Any], total: int) -> list[str]:
    """The first few names, and the number of further ones."""
    few = [str(name) for name in names][:MAX_EXAMPLES]
    return few + [f"… and {total - len(few):,} more"] * (total > len(few))


def check_data(
    data: Rankings, summary: DataSummary, statistics: FeatureStatistics | None
) -> Iterator[Finding]:
    """Check labels, queries, rows and features; ``statistics`` are None for a kernel matrix."""
    if data.has_qid:
        yield from _check_queries(data, summary)
    yield from _check_labels(data, summary)
    if statistics is not None:
        yield from _check_rows(data)
        yield from _check_features(data, statistics)


def _check_queries(data: Rankings, summary: DataSummary) -> Iterator[Finding]:
    """Queries without pairs, dominant queries, returning ids, few queries."""
    n = summary.n_single + summary.n_tied
    if n:
        reasons = [
            f"{plural(count, 'has', 'have')} {what}"
            for count, what in (
                (summary.n_single, "a single row"),
                (summary.n_tied, "equal labels in all rows"),
            )
            if count
        ]
        yield Finding(
            "warning" if n >= 0.2 * summary.n_queries else "note",
            "queries-without-pairs",
            f"{plural(n, 'query', 'queries')} without a pair ({n / summary.n_queries:.0%})",
            f"{' and '.join(reasons)}. These queries contain no preference and are excluded from "
            "the averages. If there are many, check that query ids and labels were read correctly.",
            _listed(map(data.query_name, np.flatnonzero(summary.pairs == 0)[:MAX_EXAMPLES]), n),
        )
    top = max(1, summary.n_queries // 100)
    largest = np.argsort(-summary.pairs, kind="stable")[:top]
    share = summary.pairs[largest].sum() / max(summary.n_pairs, 1)
    if summary.n_queries >= 20 and share >= 0.5:
        yield Finding(
            "warning",
            "dominant-queries",
            f"{plural(top, 'query has', 'queries have')} {share:.0%} of all pairs",
            "With query_weighting='pair' all pairs have the same weight in training, so these "
            "queries dominate the model. Use query_weighting='size' or 'query' to avoid this.",
            _listed(map(data.query_name, largest[:MAX_EXAMPLES]), top),
        )
    starts = np.concatenate([[0], np.flatnonzero(np.diff(data.codes)) + 1])
    blocks = np.bincount(data.codes[starts], minlength=data.n_queries)
    back = np.flatnonzero(blocks > 1)
    if 0 < len(back) <= 0.5 * data.n_queries:  # more than half: the rows are shuffled
        yield Finding(
            "warning",
            "returning-query-ids",
            f"{plural(len(back), 'query id reappears', 'query ids reappear')} after other queries",
            "Rows with the same id form one query, also if they are not consecutive. If several "
            "files with the same ids were joined, different queries were merged: make the ids "
            "unique.",
            _listed(map(data.query_name, back[:MAX_EXAMPLES]), len(back)),
        )
    if summary.n_with_pairs < 30:
        yield Finding(
            "note",
            "few-queries",
            f"Only {plural(summary.n_with_pairs, 'query has', 'queries have')} pairs",
            "Estimates from so few queries are imprecise, whatever the number of rows.",
        )


def _check_labels(data: Rankings, summary: DataSummary) -> Iterator[Finding]:
    """Labels 1 … n in every query, which are probably ranks; rows sorted by label."""
    sizes, codes = data.sizes, data.codes
    largest, smallest = np.full(data.n_queries, -np.inf), np.full(data.n_queries, np.inf)
    np.maximum.at(largest, codes, data.y)
    np.minimum.at(smallest, codes, data.y)
    whole = np.ones(data.n_queries, dtype=bool)
    np.logical_and.at(whole, codes, data.y == np.rint(data.y))
    ranks = (sizes > 1) & (largest == sizes) & (smallest == 1) & whole
    ranks &= summary.pairs == sizes * (sizes - 1) // 2  # all labels differ
    if np.median(sizes[sizes > 1]) >= 3 and ranks.sum() >= 0.9 * (sizes > 1).sum():
        yield Finding(
            "warning",
            "labels-are-ranks",
            "The labels look like ranks: 1, 2, 3 … in each query",
            "Higher labels are better. If 1 is the best, the model has learned the reverse order: "
            "pass -y.",
        )
    if not data.has_qid:
        return
    order = np.argsort(codes, kind="stable")
    step, inside = np.diff(data.y[order]), np.diff(codes[order]) == 0
    rises, falls = (
        np.bincount(codes[order][1:][inside & moves], minlength=data.n_queries)
        for moves in (step > 0, step < 0)
    )
    long = (summary.pairs > 0) & (sizes >= 5)
    if long.sum() >= 5 and ((rises == 0) | (falls == 0))[long].mean() >= 0.95:
        yield Finding(
            "note",
            "sorted-by-label",
            "The rows of each query are sorted by label",
            "This does not affect the results: the order of rows is not used. However, a feature "
            "derived from the position of a row (its number, or an id assigned in this order) "
            "would reveal the labels.",
        )


def _check_rows(data: Rankings) -> Iterator[Finding]:
    """Rows with the same features in the same query, with different or equal labels."""
    number = first_equal(data.X)
    order = np.lexsort((data.y, number, data.codes))
    group = np.concatenate(
        [[0], np.cumsum((np.diff(number[order]) != 0) | (np.diff(data.codes[order]) != 0))]
    )
    size = np.bincount(group)
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    last = first + size - 1  # rows of a group are sorted by label
    differ = data.y[order[first]] < data.y[order[last]]
    where = "the same query" if data.has_qid else "the data"

    def examples(groups: Array, other: Array) -> list[str]:
        names = []
        for a, b in zip(order[first[groups]], order[other[groups]], strict=True):
            text = f"{data.document_name(int(a))} = {data.document_name(int(b))}"
            names.append(f"{data.query_name(data.codes[a])}: {text}" if data.has_qid else text)
        return names

    conflict = np.flatnonzero(differ)
    if len(conflict):
        yield Finding(
            "warning",
            "contradicting-rows",
            f"{plural(len(conflict), 'group')} of equal rows with different labels",
            f"Rows of {where} have the same features and different labels. No model can order "
            "them; each such pair counts as half an error.",
            _listed(examples(conflict[:MAX_EXAMPLES], last), len(conflict)),
        )
    repeated = np.flatnonzero((size > 1) & ~differ)
    extra = int((size[repeated] - 1).sum())
    if extra:
        yield Finding(
            "warning" if extra >= 0.05 * data.n_rows else "note",
            "duplicate-rows",
            f"{plural(extra, 'duplicate row')} ({extra / data.n_rows:.1%})",
            f"Rows of {where} have the same features and the same label as another row, so their "
            "pairs count twice. Check whether a file was read twice.",
            _listed(examples(repeated[:MAX_EXAMPLES], first + 1), len(repeated)),
        )


def _check_features(data: Rankings, statistics: FeatureStatistics) -> Iterator[Finding]:
    """Features that are useless, leak the labels, or are badly scaled."""
    names = np.array(data.feature_names, dtype=object)

    def named(columns: Any) -> list[str]:
        return _listed(names[columns[:MAX_EXAMPLES]], len(columns))

    constant = np.flatnonzero(~statistics.varies)
    if len(constant):
        yield Finding(
            "note",
            "constant-features",
            f"{plural(len(constant), 'feature is', 'features are')} constant",
            "The same value in all rows cannot affect the ranking. Check that the data were read "
            "correctly.",
            named(constant),
        )
    flat = np.flatnonzero(statistics.varies & ~statistics.varies_within)
    if data.has_qid and len(flat):
        yield Finding(
            "warning",
            "query-features",
            f"{plural(len(flat), 'feature is', 'features are')} constant within every query",
            "Such features describe the query, not its documents. They do not affect the order in "
            "a linear model, and in a kernel model only through interactions with other features. "
            "Combine them with features of the documents, or exclude them.",
            named(flat),
        )
        first = np.unique(data.codes, return_index=True)[1]
        values = data.X[first][:, flat[:MAX_IDS]]
        values = values.toarray() if hasattr(values, "toarray") else values
        own = [len(np.unique(column)) == data.n_queries >= 5 for column in values.T]
        ids = flat[:MAX_IDS][own]
        if len(ids):
            yield Finding(
                "warning",
                "query-id-feature",
                f"{plural(len(ids), 'feature has', 'features have')} a different value in every "
                "query",
                "This looks like the query id. It does not help with new queries: exclude it from "
                "the features.",
                named(ids),
            )
    alone = np.nan_to_num(statistics.alone, nan=0.5)
    leaking = np.flatnonzero(np.maximum(alone, 1 - alone) >= LEAK)
    if data.n_rows >= 10 and len(leaking):
        yield Finding(
            "problem",
            "label-leak",
            f"{plural(len(leaking), 'feature')} alone {'orders' if len(leaking) == 1 else 'order'} "
            f"{LEAK:.1%} or more of all pairs correctly",
            "Such a feature is often the label itself, derived from it, or not available when the "
            "model is used. If so, the errors below are too optimistic: exclude it.",
            named(leaking),
        )
    same = equal_columns(data.X)
    equal = np.flatnonzero((same != np.arange(data.n_features)) & statistics.varies)
    if len(equal):
        yield Finding(
            "note",
            "equal-features",
            f"{plural(len(equal), 'feature equals', 'features equal')} another one",
            "Equal features share their weight, so each of them seems less important than it is.",
            _listed((f"{names[j]} = {names[same[j]]}" for j in equal[:MAX_EXAMPLES]), len(equal)),
        )
    like_ids = columns_like_ids(data.X, names, data.codes)
    if like_ids:
        one = len(like_ids) == 1
        yield Finding(
            "warning",
            "id-features",
            f"{plural(len(like_ids), 'feature looks', 'features look')} like "
            f"{'an id' if one else 'ids'} or a position",
            "What a model learns from the id, the number or the time of a row does not carry over "
            f"to new rows. Exclude {'it' if one else 'them'}.",
            named(like_ids),
        )
    scales = None if data.scaled else unequal_scales(data.X, data.codes)
    if scales is not None:
        yield Finding(
            "warning",
            "unequal-scales",
            "The features have very different scales",
            f"Standard deviations within a query range from {number(scales.low, 3)} "
            f"({names[scales.small]}) to {number(scales.high, 3)} ({names[scales.large]}). alpha "
            "shrinks all weights equally, so features with a small scale are penalised more. Use "
            "StandardScaler or QueryScaler.",
        )


def check_test(
    train: Rankings, test: Rankings, before: FeatureStatistics | None
) -> Iterator[Finding]:
    """Test data that overlap with the training data, or whose features are shifted."""
    seen = {str(label) for label in train.labels} if train.has_qid else set()
    shared = [str(label) for label in test.labels if str(label) in seen]
    if test.has_qid and shared:
        yield Finding(
            "warning",
            "shared-queries",
            f"{plural(len(shared), 'query id is', 'query ids are')} in both training and test data",
            "If these are the same queries, the test error is too optimistic: split the data by "
            "query. If both files number their queries from 1, ignore this warning.",
            _listed(shared[:MAX_EXAMPLES], len(shared)),
        )
    if before is None:
        return
    common = np.flatnonzero(rows_in_common(test.X, train.X))
    if len(common):
        yield Finding(
            "problem" if len(common) >= 0.05 * test.n_rows else "warning",
            "shared-rows",
            f"{plural(len(common), 'test row is', 'test rows are')} also in the training data "
            f"({len(common) / test.n_rows:.1%})",
            "All their features are equal. The test error is too optimistic if these are the same "
            "documents of the same queries.",
            _listed((test.document_name(int(row)) for row in common[:MAX_EXAMPLES]), len(common)),
        )
    after = feature_statistics(test)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.abs(after.mean - before.mean) / before.std
        ratio = np.maximum(after.std / before.std, before.std / after.std)
    moved = np.where(before.varies, (shift > MAX_SHIFT) | (ratio > MAX_RATIO), after.varies)
    columns = np.flatnonzero(moved)
    if len(columns):
        examples = (
            f"{train.feature_names[j]}: mean {before.mean[j]:.3g} → {after.mean[j]:.3g}, "
            f"standard deviation {before.std[j]:.3g} → {after.std[j]:.3g}"
            for j in columns[:MAX_EXAMPLES]
        )
        yield Finding(
            "warning",
            "shifted-features",
            f"{plural(len(columns), 'feature differs', 'features differ')} between training and "
            "test",
            f"Their means differ by more than {MAX_SHIFT:g} standard deviations, or their standard "
            f"deviations by a factor of more than {MAX_RATIO:g}. Check that both data sets were "
            "scaled in the same way and that their columns are in the same order.",
            _listed(examples, len(columns)),
        )


def check_model(
    held: CrossValidated,
    errors: UnitErrors,
    error: Interval,
    baseline: Any,
    plan: FitPlan,
    *,
    scaled: bool = False,
) -> Iterator[Finding]:
    """The path of alphas, the error, and the best single feature, ``baseline``."""
    if held.path is not None:
        yield from _check_path(held.path, held.estimate, plan)
    if error.value >= 0.5 or (error.high >= 0.5 and error.method != "none"):
        yield Finding(
            "problem",
            "no-better-than-chance",
            "The model is not better than a random order",
            f"{error.value:.1%} of the pairs are in the wrong order; a random order has 50%. Check "
            "that labels and features belong to the same rows, and that higher labels are better.",
        )
    elif baseline is not None and baseline.error <= error.value:
        better = "as good as" if f"{baseline.error:.1%}" == f"{error.value:.1%}" else "better than"
        advice = "The labels may be too noisy, or the query ids wrong"
        if not scaled:
            advice = "The features may need scaling, or the labels may be too noisy"
        yield Finding(
            "warning",
            "single-feature-as-good",
            f"A single feature is {better} the model",
            f"Sorting by this feature has an error of {baseline.error:.1%}, the model one of "
            f"{error.value:.1%}. {advice}.",
            [baseline.feature],
        )
    if np.nanmax(errors.error) == 0:
        yield Finding(
            "warning",
            "no-error",
            "The error is zero",
            "Every held-out pair is in the right order. This is rare with real data. Check that no "
            "feature contains the label.",
        )


def _check_path(path: AlphaPath, estimate: Interval, plan: FitPlan) -> Iterator[Finding]:
    # One standard error; a 95 % interval is about four of them wide.
    spread = (estimate.high - estimate.low) / 4
    if path.spread is not None:
        spread = path.spread[path.best]
    flat = bool(np.ptp(path.error) < spread)
    best = number(path.alphas[path.best])
    if len(path.alphas) > 1 and flat and path.at_edge is None:
        yield Finding(
            "note",
            "flat-path",
            "alpha has little effect",
            f"From {number(path.alphas[0])} to {number(path.alphas[-1])} the error changes by less "
            "than its standard error.",
        )
    elif path.at_edge is not None and plan.fixed is None:
        yield Finding(
            "note" if flat else "warning",
            "edge-of-grid",
            f"The best alpha is the {path.at_edge} of the grid",
            f"alpha = {best} is the best value of the grid. A "
            f"{'smaller' if path.at_edge == 'smallest' else 'larger'} one may be better: extend "
            "the grid." + (" All values differ by less than the standard error." if flat else ""),
        )
    if plan.fixed is not None and path.error[path.chosen] - path.error[path.best] > spread:
        yield Finding(
            "warning",
            "better-alpha",
            f"alpha = {best} would be better",
            f"It has a held-out error of {path.error[path.best]:.1%}, the given alpha "
            f"{number(plan.fixed)} one of {path.error[path.chosen]:.1%}.",
        )
