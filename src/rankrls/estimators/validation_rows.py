"""Validation rows for early stopping or selection: an ``eval_set``, or held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from rankrls._frames import check_same_rows
from rankrls._validation import check_positive, show
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import varying_queries
from rankrls.estimators.ranker import graph_from_arguments, require_preferences

__all__ = ["Split", "check_eval_set", "split_for_validation", "split_off"]

Array = NDArray[Any]

#: Maximum number of draws: a few rows held out of one ranking may all have the same score.
MAX_DRAWS = 100


@dataclass(frozen=True)
class Split:
    """Training and validation data.

    Attributes
    ----------
    graph : PreferenceGraph
        The training preferences, over ``rows``.
    rows : ndarray of int or None
        Rows of the training data that are used; None for all.
    X : features of the held-out rows
    held : PreferenceGraph
        The preferences among the held-out rows.
    """

    graph: PreferenceGraph
    rows: Array | None
    X: Any
    held: PreferenceGraph


def split_for_validation(ranker: Any, X: Any, graph: PreferenceGraph, eval_set: Any) -> Split:
    """Split into training and validation data: ``eval_set``, or a fraction of the rows."""
    if eval_set is not None:
        rows, held = check_eval_set(
            eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=graph.n_outputs
        )
        return Split(graph, None, rows, held)
    fraction = check_positive("validation_fraction", ranker.validation_fraction)
    if fraction >= 1:
        raise ValueError(f"validation_fraction must be below 1; got {fraction:g}")
    return split_off(X, graph, fraction, check_random_state(ranker.random_state))


def check_eval_set(
    eval_set: Any, check_rows: Callable[[Any], Any], *, has_qid: bool, n_outputs: int
) -> tuple[Any, PreferenceGraph]:
    """Check ``eval_set`` = (X, y) or (X, y, qid): features and preferences to validate on.

    ``check_rows`` validates the features; qid and the number of outputs must match the training
    data.
    """
    if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
        raise ValueError(
            f"eval_set must be (X_val, y_val) or (X_val, y_val, qid_val); got {show(eval_set)}"
        )
    if isinstance(eval_set, list) and all(isinstance(part, tuple) for part in eval_set):
        raise ValueError(
            "eval_set must be one tuple (X_val, y_val[, qid_val]), not a list of tuples"
        )
    y, qid = eval_set[1], eval_set[2] if len(eval_set) == 3 else None
    check_same_rows(eval_set[0], "X_val", y_val=y, qid_val=qid)
    X = check_rows(eval_set[0])
    if has_qid and qid is None and not isinstance(y, PreferenceGraph):
        raise ValueError(
            "fit has qid, so eval_set needs it too; pass eval_set=(X_val, y_val, qid_val)"
        )
    held = graph_from_arguments(X.shape[0], y, qid=qid)
    if held.n_outputs != n_outputs:
        raise ValueError(f"eval_set has {held.n_outputs} output(s), y has {n_outputs}")
    require_preferences(held, "validate on (eval_set)")
    return X, held


def split_off(
    X: Any, graph: PreferenceGraph, fraction: float, random_state: np.random.RandomState
) -> Split:
    """Hold out a random sample of whole queries with a pair, rows (without qid), or given pairs."""
    if graph.scores is not None and graph.n_given_pairs:
        raise ValueError(
            "scores and pairs together cannot be split at random without losing pairs; pass "
            "eval_set=(X_val, y_val, qid_val)"
        )
    divide = _split_pairs if graph.scores is None else _split_rows
    for _ in range(MAX_DRAWS):
        split = divide(X, graph, fraction, random_state)
        if split.graph.has_preference() and split.held.has_preference():
            return split
    raise ValueError(
        f"holding out validation_fraction={fraction:g} leaves one side without a pair; pass "
        "eval_set, or change validation_fraction"
    )


def _split_rows(
    X: Any, graph: PreferenceGraph, fraction: float, random_state: np.random.RandomState
) -> Split:
    assert graph.scores is not None
    assert graph.query_codes is not None
    codes = graph.query_codes if graph.has_qid else np.arange(graph.n_rows)
    if graph.has_qid:
        varies = varying_queries(graph.scores, codes, graph.n_queries).any(axis=1)
        units = np.flatnonzero(varies)
        what, least = "queries with a pair", 1
    else:
        units, what, least = codes, "rows", 2
    drawn = _draw(units, fraction, least, what, random_state)
    out = np.isin(codes, drawn)
    kept, held = np.flatnonzero(~out), np.flatnonzero(out)
    return Split(graph[kept], kept, X[held], graph[held])


def _split_pairs(
    X: Any, graph: PreferenceGraph, fraction: float, random_state: np.random.RandomState
) -> Split:
    drawn = _draw(np.arange(graph.n_given_pairs), fraction, 1, "pairs", random_state)
    out = np.zeros(graph.n_given_pairs, dtype=bool)
    out[drawn] = True
    held = graph.only_pairs(out)
    rows = np.unique(held.pairs)
    return Split(graph.only_pairs(~out), None, X[rows], held[rows])


def _draw(
    units: Array, fraction: float, least: int, what: str, random_state: np.random.RandomState
) -> Array:
    n = max(least, round(fraction * len(units)))
    if n + least > len(units):
        raise ValueError(
            f"validation_fraction={fraction:g} of {len(units)} {what} leaves too few; pass eval_set"
        )
    return random_state.permutation(units)[:n]
