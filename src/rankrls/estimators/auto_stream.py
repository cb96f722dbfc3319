"""Streams of raw tables for `AutoRanker`: checked batches, and a sample of whole queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from rankrls._frames import RawTable
from rankrls._validation import check_scores, label_array
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.estimators.seen_queries import query_keys
from rankrls.estimators.stream import CheckedRows, named_batch, read_batches, stacked

Array = NDArray[Any]


def table_batches(
    batches: Any, encode: Callable[[Any], Any] | None = None
) -> Iterator[CheckedRows]:
    """Generate checked batches; arrays with feature names become tables, which are encoded."""
    for batch in read_batches(batches):
        with named_batch(batch.number):
            X = batch.X if hasattr(batch.X, "shape") else np.asarray(batch.X, dtype=object)
            if batch.names is not None and isinstance(X, np.ndarray):
                X = RawTable([str(name) for name in batch.names], X, {})
            by_row = {"qid": batch.qid, "sample_weight": batch.sample_weight}
            graph = PreferenceGraph.from_scores(check_scores(batch.y, X.shape[0]), **by_row)
            rows = CheckedRows(batch.number, X if encode is None else encode(X), graph)
        yield rows


def sample_queries(batches: Any, most: int, rng: np.random.RandomState) -> dict[str, Any]:
    """Draw whole queries, of about ``most`` rows together, or rows; returns arguments of ``fit``.

    Each query has a random number, and those with the smallest numbers are kept.
    """
    kept: list[tuple[CheckedRows, Array]] = []  # rows and their random numbers
    limit, last, number = np.inf, "", 0.0

    def smallest() -> tuple[float, list[tuple[CheckedRows, Array]]]:
        numbers = np.sort(np.concatenate([drawn for _, drawn in kept]))
        limit = float(numbers[most]) if len(numbers) > most else np.inf
        some = ((rows, drawn, np.flatnonzero(drawn < limit)) for rows, drawn in kept)
        return limit, [(rows.take(few), drawn[few]) for rows, drawn, few in some if len(few)]

    for rows in table_batches(batches):
        graph, codes = rows.graph, rows.graph.query_codes
        drawn = rng.random_sample(graph.n_queries if graph.has_qid else len(graph))
        if graph.has_qid:
            assert codes is not None
            keys = query_keys(graph.query_labels)
            if last in keys:  # the last query of the batch before goes on
                drawn[keys.index(last)] = number
            last, number = keys[codes[-1]], drawn[codes[-1]]
            drawn = drawn[codes]
        few = np.flatnonzero(drawn < limit)
        if len(few):
            kept.append((rows.take(few), drawn[few]))
        if sum(len(drawn) for _, drawn in kept) > 2 * most:
            limit, kept = smallest()
    if not kept:
        raise ValueError("there is no batch with rows to learn from")
    return _joined([rows for rows, _ in smallest()[1]])


def _joined(parts: list[CheckedRows]) -> dict[str, Any]:
    """Arguments of ``fit`` for the rows of all parts."""
    X: Any = [part.X for part in parts]
    if isinstance(X[0], RawTable):
        X = RawTable.concatenate(X)
    elif hasattr(X[0], "columns"):
        X = nw.concat([nw.from_native(one, eager_only=True) for one in X]).to_native()
    else:
        X = stacked(X)
    graphs: list[Any] = [part.graph for part in parts]
    weights, with_qid = [graph.sample_weight for graph in graphs], graphs[0].has_qid
    has_weights = weights[0] is not None
    if any((g.has_qid, g.sample_weight is not None) != (with_qid, has_weights) for g in graphs):
        raise ValueError("some batches have qid or sample_weight, and others do not")
    names = (label_array("qid", graph.query_labels)[graph.query_codes] for graph in graphs)
    y = np.concatenate([graph.scores for graph in graphs])
    return {
        "X": X,
        "y": y[:, 0] if graphs[0].flat else y,
        "qid": np.concatenate(list(names)) if with_qid else None,
        "sample_weight": np.concatenate(weights) if has_weights else None,
    }
