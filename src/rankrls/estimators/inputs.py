"""What the estimators share: from the arguments of fit and score to a `PreferenceGraph`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_length, check_scores
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.metrics import pairwise_accuracy

__all__ = ["graph_accuracy", "graph_from_arguments", "require_preferences"]

Array = NDArray[Any]


def graph_from_arguments(
    n_rows: int,
    y: Any,
    *,
    qid: Any = None,
    pairs: Any = None,
    magnitude: Any = None,
    pair_weight: Any = None,
    sample_weight: Any = None,
) -> PreferenceGraph:
    """Check the arguments of ``fit`` and put them into one graph over ``n_rows`` rows."""
    if isinstance(y, PreferenceGraph):
        others = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"y is a PreferenceGraph: {name} must be part of it")
        if len(y) != n_rows:
            raise ValueError(f"y is a graph over {len(y)} rows for {n_rows} rows of X")
        return y
    if pairs is None:
        for name, value in {"magnitude": magnitude, "pair_weight": pair_weight}.items():
            if value is not None:
                raise ValueError(f"{name} belongs to pairs, and there are none")
        if y is None:
            raise ValueError(
                "ranking requires y to be passed, but the target y is None: give scores y, "
                "or pairs of row numbers (preferred, other)"
            )
    graph = None
    if y is not None:
        scores = check_scores(y)
        hint = ""
        if scores.ndim == 2 and scores.shape[1] == 2 and len(scores) != n_rows:
            hint = " (pairs of row numbers go into pairs=)"
        check_length("y", scores, n_rows, f"rows of X{hint}")
        for name, value in {"qid": qid, "sample_weight": sample_weight}.items():
            if isinstance(value, list | tuple | np.ndarray) or hasattr(value, "to_numpy"):
                wrong = name == "qid" and len(value) != n_rows
                hint = _sizes_hint(value, n_rows) if wrong else ""
                check_length(name, value, n_rows, f"rows of X{hint}")
        graph = PreferenceGraph.from_scores(scores, qid=qid, sample_weight=sample_weight)
    else:
        for name, value in {"qid": qid, "sample_weight": sample_weight}.items():
            if value is not None:
                raise ValueError(
                    f"{name} says how the scores y are compared, and there is no y; given pairs "
                    "are taken as they are (weigh them with pair_weight)"
                )
    if pairs is not None:
        given = PreferenceGraph.from_pairs(
            pairs, n_rows=n_rows, magnitude=magnitude, pair_weight=pair_weight
        )
        graph = given if graph is None else graph + given
    assert graph is not None
    return graph


def _sizes_hint(qid: Any, n_rows: int) -> str:
    """Advice for those who pass the sizes of queries, as other libraries want them."""
    try:
        sizes = np.asarray(qid)
    except ValueError:  # tuples of different lengths are labels, too
        return ""
    if sizes.ndim == 1 and sizes.dtype.kind in "iu" and int(sizes.sum()) == n_rows:
        return " (sizes of queries? then qid is np.repeat(np.arange(len(sizes)), sizes))"
    return ""


def require_preferences(graph: PreferenceGraph, purpose: str = "learn from") -> None:
    """Raise unless at least one row is preferred to another, for every output."""
    if graph.has_preference():
        return
    if graph.n_given_pairs:
        problem = "every pair_weight is zero"
    elif graph.scores is None:
        problem = "pairs is empty"
    elif graph.sample_weight is not None and np.count_nonzero(graph.sample_weight) < 2:
        problem = "sample_weight is zero for every row, or all but one"
    elif graph.scored_outputs().any():
        constant = np.flatnonzero(~graph.scored_outputs())[0]
        problem = f"all scores of a query are equal in output (column) {constant} of y"
    else:
        queries = "query" if graph.n_queries == 1 else "queries"
        problem = (
            f"in {graph.n_rows} rows and {graph.n_queries} {queries}, all scores of a query are "
            "equal, or it has a single row"
        )
    raise ValueError(f"no query has a pair to {purpose}: {problem}")


def graph_accuracy(graph: PreferenceGraph, predictions: Array) -> float:
    """Pairwise accuracy: mean over queries with a pair; given pairs count as one more query.

    Parameters
    ----------
    graph : PreferenceGraph over n rows
    predictions : ndarray of shape (n,) or (n, n_outputs)
    """
    predictions = predictions.reshape(len(predictions), -1)
    scored = graph.scored_outputs()
    per_output = []
    for j in range(predictions.shape[1]):
        values: list[Any] = []
        if graph.scores is not None and scored[j]:
            by_query = np.asarray(
                pairwise_accuracy(
                    graph.scores[:, j],
                    predictions[:, j],
                    qid=graph.query_codes,
                    sample_weight=graph.sample_weight,
                    average=None,
                )
            )
            values = list(by_query[np.isfinite(by_query)])
        if graph.has_pairs():
            values.append(
                pairwise_accuracy(
                    None, predictions[:, j], pairs=graph.pairs, pair_weight=graph.pair_weight
                )
            )
        per_output.append(np.mean(values))
    return float(np.mean(per_output))
