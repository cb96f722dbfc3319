"""Evaluation of scores, ranked lists and relations by metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries, warn
from rankrls._frames import scores_in_order
from rankrls._relation_labels import Observations
from rankrls._validation import (
    Queries,
    as_text,
    check_finite_array,
    check_length,
    check_option,
    show,
)
from rankrls.metrics._lists import ListInputs, check_choice, check_lists, check_undefined
from rankrls.metrics._pairwise import pairwise_accuracy
from rankrls.metrics.metric_names import LIST_METRICS, Metric, parse_metrics
from rankrls.rankings import Qrels, RankTable, as_labels

Array = NDArray[Any]

#: Number of labels of a relation that are scored at a time.
WORK = 2**22

#: Metrics that are evaluated by default.
DEFAULT = ("ndcg@10", "map", "mrr", "precision@10")


@takes_queries
def evaluate(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    metrics: str | Sequence[str] = DEFAULT,
    qid: ArrayLike | None = None,
    gain: Literal["exponential", "linear"] = "exponential",
    relevance_threshold: float = 1.0,
    max_grade: float = 4.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> dict[str, Any]:
    """Evaluate scores by several metrics, given by name.

    Parameters
    ----------
    y_true, y_score, qid : array-like of shape (n_rows,)
        Labels, predicted scores and queries, as in :func:`ndcg`.
    metrics : str or sequence of str, default=("ndcg@10", "map", "mrr", "precision@10")
        Names, as a sequence or separated by commas: ndcg, average_precision (map), reciprocal_rank
        (mrr), precision, recall and expected_reciprocal_rank (err), each with an optional cut-off,
        as in "recall@100"; pairwise_accuracy, pairwise_error, concordance_index.
    gain, relevance_threshold, max_grade
        Options of the list metrics that have them.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row; "skip" excludes it from the mean. Pairwise metrics
        always exclude queries without a pair.
    average : {"query"} or None, default="query"
        Means over the queries, or the values of every query.

    Returns
    -------
    dict of str → float, or of str → ndarray of shape (n_queries,)
        Values by metric name, as given. With ``average=None``, the entry "query" holds the query
        labels, and values are NaN where a metric is undefined.

    Examples
    --------
    >>> from rankrls.metrics import evaluate
    >>> evaluate([2, 0, 1, 1, 0], [0.9, 0.5, 0.1, 0.3, 0.2], qid=[1, 1, 1, 2, 2],
    ...          metrics="ndcg@2,map,recall@1")
    {'ndcg@2': 0.91311..., 'map': 0.91666..., 'recall@1': 0.75}
    """
    named = parse_metrics(metrics)
    inputs = check_lists(y_true, y_score, qid, None, undefined, average)
    if not inputs.single:
        raise ValueError("y_true and y_score must be 1-D; evaluate one output at a time")
    options = {"gain": gain, "relevance_threshold": relevance_threshold, "max_grade": max_grade}
    values: dict[str, Any] = {} if average else {"query": as_labels(inputs.queries.labels)}
    for metric in named:
        if metric.is_list:
            values[metric.text] = _of_lists(metric, inputs, options)
        elif "average" in metric.takes:
            values[metric.text] = metric(y_true, y_score, qid=qid, average=average)
        elif average is not None:
            values[metric.text] = metric(y_true, y_score, qid=qid)
        else:
            raise ValueError(
                f"{metric.name} has no value by query; use average='query' or leave it out of "
                "metrics"
            )
    return values


def evaluate_run(
    run: RankTable,
    qrels: Qrels,
    *,
    metrics: str | Sequence[str] = DEFAULT,
    gain: Literal["exponential", "linear"] = "exponential",
    relevance_threshold: float = 1.0,
    max_grade: float = 4.0,
    ties: Literal["expected", "rank", "id"] = "expected",
    undefined: float | Literal["skip"] = "skip",
    missing_queries: Literal["zero", "skip"] = "zero",
    average: Literal["query"] | None = "query",
) -> dict[str, Any]:
    """Evaluate ranked lists against relevance judgements.

    Judged documents that are missing from the list of their query were not retrieved; documents
    without a judgement are not relevant; queries without judgements are ignored.

    Parameters
    ----------
    run : RankTable
        From :func:`rankrls.rank` or :func:`rankrls.datasets.load_run`.
    qrels : Qrels
        From :func:`rankrls.datasets.load_qrels`. Queries and ids are compared as strings.
    metrics : str or sequence of str, default=("ndcg@10", "map", "mrr", "precision@10")
        Names of list metrics, as in :func:`evaluate`.
    gain, relevance_threshold, max_grade, undefined, average
        As in :func:`evaluate`; the threshold must be above 0. trec_eval and the nDCG of ir_measures
        use the gain "linear" and 0 for undefined values.
    ties : {"expected", "rank", "id"}, default="expected"
        Equal scores: the expected value over all orders of the tied lines, the order of the table,
        or descending ids, as in trec_eval.
    missing_queries : {"zero", "skip"}, default="zero"
        Judged queries that are not in the run: the value 0, as in ir_measures and
        ``trec_eval -c``, or excluded, as in ``trec_eval`` without ``-c``.

    Returns
    -------
    dict of str → float, or of str → ndarray of shape (n_queries,)
        As :func:`evaluate`; the entry "query" holds the judged queries as sorted strings.
    """
    named = parse_metrics(metrics, allowed=LIST_METRICS)
    check_choice("average", average, ("query", None))
    check_option("ties", ties, ("expected", "rank", "id"))
    check_option("missing_queries", missing_queries, ("zero", "skip"))
    if not relevance_threshold > 0:
        raise ValueError(
            f"relevance_threshold must be above 0, the grade of what was not judged; got "
            f"{show(relevance_threshold)}"
        )
    options = {"gain": gain, "relevance_threshold": relevance_threshold, "max_grade": max_grade}
    inputs = _aligned(run, qrels, ties, check_undefined(undefined))
    retrieved = inputs.queries.codes[inputs.retrieved]
    absent = np.bincount(retrieved, minlength=len(inputs.queries)) == 0
    values: dict[str, Any] = {}
    for metric in named:
        found = _of_lists(metric, inputs, options)
        if missing_queries == "skip":
            found[absent] = np.nan
        if average is not None and np.isnan(found).all():
            raise ValueError(
                f"{metric.text} is undefined: no judged query has a relevant row or is in the run"
            )
        values[metric.text] = found if average is None else float(np.nanmean(found))
    return values if average else {"query": inputs.queries.labels, **values}


def conditional_scores(
    Y_true: Any,
    Y_score: ArrayLike,
    *,
    metric: Callable[..., Any] = pairwise_accuracy,
    condition_on: Literal["rows", "columns"] = "rows",
    **options: Any,
) -> NDArray[np.float64]:
    """Compute a metric for each conditioning object, whose row of the relation is one ranked list.

    Parameters
    ----------
    Y_true : array-like or sparse matrix of shape (p, g)
        Labels, higher = preferred; NaN, or not stored, where there is none. A COO matrix may store
        several labels for the same cell.
    Y_score : array-like of shape (p, g)
        Predicted scores.
    metric : callable, default=pairwise_accuracy
        A metric of this package: ``metric(y_true, y_score, qid=..., average=None)``.
    condition_on : {"rows", "columns"}, default="rows"
        Whether each row or each column is a list.
    **options
        Additional arguments of the metric, such as ``k=10``.

    Returns
    -------
    ndarray of shape (p,), or (g,) for columns
        Value for each object; NaN if it has no labels, or no labels that differ.
    """
    check_option("condition_on", condition_on, ("rows", "columns"))
    try:
        inspect.signature(metric).bind(Y_true, Y_score, qid=None, average=None, **options)
    except TypeError as error:
        raise ValueError(
            "metric must be a function such as rankrls.metrics.ndcg, with qid and average, and k=… "
            f"for a cut-off; got {show(metric)}: {error}"
        ) from error
    Y_score = scores_in_order(Y_score, Y_true)
    labels = Observations.read(Y_true, "Y_true")
    score = check_finite_array("Y_score", Y_score, ndim=(2,))
    if labels.shape != score.shape:
        raise ValueError(f"Y_true has shape {labels.shape} and Y_score has shape {score.shape}")
    if condition_on == "columns":
        labels, score = labels.T, score.T
    n, m = labels.shape
    out, columns = np.full(n, np.nan), np.arange(m)
    step = max(1, WORK * n // max(labels.n_edges, 1))
    for start in range(0, n, step):
        lists = np.arange(start, min(start + step, n))
        rows, cols, truth = labels.between(lists, columns).lists
        if not len(rows):
            continue
        order = np.argsort(rows, kind="stable")
        rows, cols, truth = rows[order], cols[order], truth[order]
        first = np.concatenate([[True], rows[1:] != rows[:-1]])
        begin = np.flatnonzero(first)
        varied = np.maximum.reduceat(truth, begin) > np.minimum.reduceat(truth, begin)
        if varied.any():  # lists without two different labels remain NaN
            chosen = varied[np.cumsum(first) - 1]
            of, values = rows[chosen], (truth[chosen], score[start + rows, cols][chosen])
            out[start + rows[begin][varied]] = metric(*values, qid=of, average=None, **options)
    return out


def _of_lists(metric: Metric, inputs: ListInputs, options: dict[str, Any]) -> Any:
    option = {} if metric.option is None else {metric.option: options[metric.option]}
    return metric.function(replace(inputs, k=metric.k), None, **option)


def _aligned(run: RankTable, qrels: Qrels, ties: str, undefined: float) -> ListInputs:
    """Align the rows of the lists with their grades; judged rows that are in no list come last."""
    for name, table, kind in (("run", run, RankTable), ("qrels", qrels, Qrels)):
        if not isinstance(table, kind):
            raise ValueError(f"{name} must be a {kind.__name__}; got {show(table)}")
        if len(table) == 0:
            raise ValueError(f"{name} is empty; give at least one line")
        for column, values in table.columns.items():
            check_length(f"{name}.{column}", values, len(table), of="lines")
    score = check_finite_array("run.score", run.score, ndim=(1,))
    grade = np.maximum(check_finite_array("qrels.grade", qrels.grade, ndim=(1,)), 0.0)
    rest = dict(zip(_keys(qrels), grade.tolist(), strict=True))  # of judged rows, by query and id
    names = sorted({query for query, _ in rest})
    number = {name: code for code, name in enumerate(names)}
    of_run = _keys(run)
    judged = np.array([query in number for query, _ in of_run])
    lines = [line for line in of_run if line[0] in number]
    if not lines:
        raise ValueError(
            "no query of the run has judgements: the first query of the run is "
            f"{show(of_run[0][0])}, the first judged query is {show(str(qrels.query[0]))}"
        )
    for what, keys, n in (("run", set(lines), len(lines)), ("qrels", rest, len(qrels))):
        if len(keys) < n:
            raise ValueError(f"{what} has an id twice in one query")
    if rest.keys().isdisjoint(lines):
        warn(
            "no document of the run was judged for its query, so the run has found nothing "
            f"relevant: are the ids written alike? The first id of the run is {show(lines[0][1])}, "
            f"the first judged id is {show(str(qrels.id[0]))}"
        )
    labels = [rest.pop(line, 0.0) for line in lines]
    y = np.array([*labels, *rest.values()])
    codes = np.array([number[query] for query, _ in [*lines, *rest]])
    level, retrieved = np.zeros(len(y)), np.arange(len(y)) < len(lines)
    level[retrieved] = 1 + _levels(score[judged], [id for _, id in lines], ties)
    queries = Queries(codes, as_text(names))
    columns = y[:, None], level[:, None]
    return ListInputs(*columns, queries, undefined, None, True, retrieved=retrieved)


def _keys(table: RankTable | Qrels) -> list[tuple[str, str]]:
    """Query and id of each line, as strings."""
    queries, ids = map(str, table.query.tolist()), map(str, table.id.tolist())
    return list(zip(queries, ids, strict=True))


def _levels(score: Array, ids: list[str], ties: str) -> Array:
    """Replace scores by integer levels, ordering ties as ``ties`` says."""
    if ties == "expected":
        return np.unique(score, return_inverse=True)[1]
    later = -np.arange(len(score))
    if ties == "id":
        later = np.unique(as_text(ids), return_inverse=True)[1]
    level = np.empty(len(score), dtype=np.int64)
    level[np.lexsort((later, score))] = np.arange(len(score))
    return level
