"""Pairwise accuracy of predictions that stay on the workers.

A query within one partition is scored on its worker. For other queries, predictions, scores and
weights are sent to the client: a few numbers per row, without features.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import FittedFunction
from rankrls.dask._partitioned_problem import Preferences
from rankrls.dask._partitions import Partitions
from rankrls.dask._tasks import Tasks
from rankrls.dask._work import Loader
from rankrls.metrics import pairwise_accuracy

__all__ = ["accuracy"]

Array = NDArray[Any]

#: Report of a partition: sums and numbers of accuracies over queries, shape (2, k), and query,
#: predictions, scores and weights of the rows of crossing queries.
Report = tuple[Array, Array, Array, Array, Array | None]


def accuracy(
    model: FittedFunction, preferences: Preferences, X: Partitions, dtype: Any, n_features: int
) -> float:
    """Return the accuracy averaged over the queries that have a pair, and over outputs."""
    tasks = Tasks(X.graph, preferences.graph)
    key = tasks.give("model", model)
    reports: list[Report] = tasks.compute(
        (
            tasks.add(
                "score",
                partial(_report, Loader(i, dtype, n_features, preferences.lengths[i]), numbers),
                X.blocks[i],
                preferences.keys[i],
                key,
            )
            for i, numbers in zip(preferences.used, preferences.crossing.numbers, strict=True)
        ),
        large=True,
    )
    totals = np.sum([report[0] for report in reports], axis=0)
    query, predictions, scores = (
        np.concatenate([report[part] for report in reports]) for part in (1, 2, 3)
    )
    weight = None
    if preferences.weighted:
        weight = np.concatenate([report[4] for report in reports])
    crossing = PreferenceGraph.from_scores(scores, qid=query, sample_weight=weight)
    totals += _totals(crossing, predictions)
    preferences.require(totals[1] > 0, "evaluate")
    return float(np.mean(totals[0] / totals[1]))


def _report(
    load: Loader, numbers: Array, blocks: list[Any], graph: PreferenceGraph, model: FittedFunction
) -> Report:
    assert graph.query_codes is not None
    assert graph.scores is not None
    predictions = model.predict(load(blocks))
    number = numbers[graph.query_codes]
    here, there = np.flatnonzero(number < 0), np.flatnonzero(number >= 0)
    weight = None if graph.sample_weight is None else graph.sample_weight[there]
    totals = _totals(graph[here], predictions[here])
    return totals, number[there], predictions[there], graph.scores[there], weight


def _totals(graph: PreferenceGraph, predictions: Array) -> Array:
    """Return sum and number of the accuracies of queries for each output, shape (2, k)."""
    totals = np.zeros((2, predictions.shape[1]))
    if graph.n_rows == 0:
        return totals
    assert graph.scores is not None
    for j in np.flatnonzero(graph.scored_outputs()):
        by_query = np.asarray(
            pairwise_accuracy(
                graph.scores[:, j],
                predictions[:, j],
                qid=graph.query_codes,
                sample_weight=graph.sample_weight,
                average=None,
            )
        )
        counted = by_query[np.isfinite(by_query)]
        totals[:, j] = counted.sum(), len(counted)
    return totals
