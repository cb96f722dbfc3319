"""What an incremental model has learned from: which queries, with how many rows each.

Statistics add up without remembering the rows. The ledger is what tells a query that comes twice,
and one that is to be forgotten but was never there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.core.preferences.graph import PreferenceGraph

__all__ = ["Ledger"]

Array = NDArray[Any]


class Ledger:
    """Queries by label, rankings without one, and what was joined by given pairs.

    Attributes
    ----------
    queries : dict
        Label of every query: its number of rows.
    rankings : Counter
        (rows, given pairs) of every call without qid: how many such calls.
    joined : list of (labels, pairs)
        The queries of a call that had ``pairs`` given pairs beside its scores: they are connected,
        and can be forgotten together only.
    """

    def __init__(self) -> None:
        self.rankings: Counter[tuple[int, int]] = Counter()
        self.joined: list[tuple[frozenset[Any], int]] = []
        self._queries: dict[Any, int] = {}
        self._unread: list[tuple[Any, Array]] = []

    @property
    def queries(self) -> dict[Any, int]:
        """Rows of every query, by label."""
        for labels, rows in self._unread:  # a plain ``fit`` does not pay for the dict
            self._queries.update(zip(as_list(labels), rows.tolist(), strict=True))
        self._unread = []
        return self._queries

    @property
    def n_queries(self) -> int:
        """Queries with a label, and rankings without."""
        return len(self.queries) + self.rankings.total()

    def check_new(self, graph: PreferenceGraph, advice: str) -> None:
        """Raise if a query of ``graph`` is known already."""
        if graph.has_qid:
            self.check_unseen(as_list(graph.query_labels), advice)

    def check_unseen(self, labels: Iterable[Any], advice: str) -> None:
        """Raise if one of the labels is known already."""
        labels = list(labels)
        if not self.queries.keys().isdisjoint(labels):
            again = next(label for label in labels if label in self.queries)
            raise ValueError(f"query {show(again)} {advice}")

    def add(self, graph: PreferenceGraph) -> None:
        """Note down what ``graph`` holds."""
        if not graph.has_qid:
            self.rankings[graph.n_rows, graph.n_given_pairs] += 1
            return
        labels = graph.query_labels
        self.add_queries(labels, _rows_of_queries(graph))
        if graph.n_given_pairs:
            self.joined.append((frozenset(as_list(labels)), graph.n_given_pairs))

    def add_queries(self, labels: Any, rows: Array) -> None:
        """Note down queries with their numbers of rows."""
        self._unread.append((labels, rows))

    def check_known(self, graph: PreferenceGraph) -> None:
        """Raise unless ``graph`` can be a part of what was added."""
        if not graph.has_qid:
            if not self.rankings[graph.n_rows, graph.n_given_pairs]:
                pairs = f" and {graph.n_given_pairs} given pairs" if graph.n_given_pairs else ""
                raise ValueError(
                    f"no ranking of {graph.n_rows} rows{pairs} was added without qid, so that "
                    "none can be forgotten: give the rows (and pairs) of one earlier call, or qid"
                )
            return
        labels = as_list(graph.query_labels)
        for label, n_rows in zip(labels, _rows_of_queries(graph).tolist(), strict=True):
            if label not in self.queries:
                raise ValueError(
                    f"query {show(label)} was never added, so that it cannot be forgotten"
                )
            if self.queries[label] != n_rows:
                raise ValueError(
                    f"query {show(label)} was added with {self.queries[label]} rows, and {n_rows} "
                    "are to be forgotten: a query is forgotten whole"
                )
        self._check_joined(set(labels), graph.n_given_pairs)

    def _check_joined(self, labels: set[Any], n_pairs: int) -> None:
        touched = [entry for entry in self.joined if not entry[0].isdisjoint(labels)]
        if [pairs for _, pairs in touched] != ([n_pairs] if n_pairs else []):
            expected = " and ".join(str(pairs) for _, pairs in touched) or "no"
            raise ValueError(
                f"these queries were added with {expected} given pairs, and are to be forgotten "
                f"with {n_pairs}: forget what one call added with pairs in one call, with them"
            )
        for joined, _ in touched:
            if not joined <= labels:
                missing = next(label for label in joined if label not in labels)
                raise ValueError(
                    f"query {show(missing)} was added in one call with given pairs and queries "
                    "that are to be forgotten: forget them together"
                )

    def remove(self, graph: PreferenceGraph) -> None:
        """Strike out what ``graph`` holds, which `check_known` has accepted."""
        if not graph.has_qid:
            self.rankings[graph.n_rows, graph.n_given_pairs] -= 1
            return
        labels = as_list(graph.query_labels)
        for label in labels:
            del self.queries[label]
        self.joined = [entry for entry in self.joined if entry[0].isdisjoint(labels)]


def as_list(labels: Any) -> list[Any]:
    """Labels as Python objects, which are equal whatever array they came in."""
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _rows_of_queries(graph: PreferenceGraph) -> Array:
    assert graph.query_codes is not None
    return np.bincount(graph.query_codes, minlength=graph.n_queries)
