"""The queries that a model has learned, so that none is added twice or forgotten in other form."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show, written_integer
from rankrls.core.preferences.graph import PreferenceGraph

Array = NDArray[Any]

#: Relative tolerance of checksums, at least, and as a multiple of the rounding error of the rows.
#: It allows for other orders of summation and for rescaled features, but not for other values.
TOLERANCE, ROUNDINGS = 1e-8, 1e3


def query_keys(labels: Any) -> list[str]:
    """Convert query ids to text, the same for 2, 2.0 and "2": readers of files return either."""
    # The hash values of text are not predictable, so that no file can make lookups slow.
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        return list(map(str, values))
    return [value if type(value) is str else _key(value) for value in values]


def _key(label: Any) -> str:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str):
        return str(label)
    if isinstance(label, numbers.Integral):
        return str(int(label))
    if isinstance(label, numbers.Real):
        number = float(label)
        return str(int(number)) if number.is_integer() else f"float {number!r}"
    if isinstance(label, tuple):
        return f"tuple {tuple(map(_key, label))!r}"
    return f"{type(label).__name__} {label!r}"


def show_query(key: str) -> str:
    """The query of a key in a message: query 2, query 'a'."""
    return f"query {key if written_integer(key) is not None else show(key)}"


@dataclass(frozen=True)
class Projection:
    """One number for each query: c(q) = Σ_{i in q} w_i (1 + y_iᵀu) (1 + shift + x_iᵀv).

    v and u are random. It does not depend on the order of the rows, and follows a change of units
    of the features.
    """

    v: Array
    u: Array
    shift: float = 0.0

    @classmethod
    def like(cls, X: Any, y: Array) -> Projection:
        """Draw one in units in which features and scores of the first rows have size 1."""
        draw, drawn = np.random.default_rng(0).uniform, []
        for part in (X, y):
            largest = abs(part[:1000]).max(axis=0)
            largest = np.asarray(largest.todense() if hasattr(largest, "todense") else largest)
            largest = largest.ravel().astype(np.float64)
            # 1 where a division by it could overflow
            drawn.append(draw(0.5, 1.5, len(largest)) / np.where(largest > 1e-30, largest, 1.0))
        return cls(drawn[0], drawn[1])

    def rescaled(self, factor: Array, offset: Array) -> Projection:
        """The same numbers from features (x − offset) · factor, of shape (n_features,) each."""
        return Projection(self.v / factor, self.u, self.shift + float(offset @ self.v))

    @np.errstate(over="ignore", invalid="ignore")
    def of(self, X: Any, y: Array, codes: Array, weight: Array | None, n_queries: int) -> Array:
        """Numbers of queries; y of shape (m, k), query ``codes`` of shape (m,)."""
        rows = np.asarray(X @ self.v.astype(X.dtype), dtype=np.float64)
        rows += 1 + self.shift
        rows *= 1 + y @ self.u
        return np.bincount(codes, rows if weight is None else rows * weight, n_queries)


class SeenQueries:
    """Queries, rankings without id, and given pairs that were added.

    ``rankings`` has the numbers of rows and of given pairs of each call without qid; ``joined`` the
    keys of the queries of each call with given pairs in addition to its scores, and their number:
    such queries can only be forgotten together. ``projection`` computes checksums of queries;
    ``weighted``: whether rows had sample weights.
    """

    def __init__(self) -> None:
        self.rankings: list[tuple[int, int]] = []
        self.joined: list[tuple[frozenset[str], int]] = []
        self.projection: Projection | None = None
        self.weighted = False
        self._queries: dict[str, tuple[int, float]] = {}
        self._unread: list[tuple[Any, Array, Array | None]] = []

    def copy(self) -> SeenQueries:
        """Return an independent copy."""
        other = SeenQueries()
        other.__dict__.update(vars(self), _queries=dict(self.queries), _unread=[])
        other.rankings, other.joined = list(self.rankings), list(self.joined)
        return other

    @property
    def queries(self) -> dict[str, tuple[int, float]]:
        """Number of rows and checksum (NaN if unknown) of each query, by key."""
        for labels, counts, sums in self._unread:  # lazily, so that ``fit`` does not build the dict
            sums = np.full(len(counts), np.nan) if sums is None else sums
            known = zip(counts.tolist(), sums.tolist(), strict=True)
            entries = zip(query_keys(labels), known, strict=True)
            self._queries.update(entries if counts.all() else (e for e in entries if e[1][0]))
        self._unread = []
        return self._queries

    @property
    def n_queries(self) -> int:
        """Number of labelled queries and of rankings without a label."""
        unread = sum(int(np.count_nonzero(counts)) for _, counts, _ in self._unread)
        return len(self._queries) + unread + len(self.rankings)

    def add(self, labels: Any, counts: Array, checksums: Array | None = None) -> None:
        """Record queries with their numbers of rows (0: none), and their checksums if known."""
        self._unread.append((labels, counts, checksums))

    def add_graph(self, graph: PreferenceGraph, X: Any) -> None:
        """Record the contents of ``graph``, whose rows have the features X (None: unknown)."""
        codes, y, weight = graph.query_codes, graph.scores, graph.sample_weight
        self.weighted |= weight is not None
        if codes is None or y is None or not graph.has_qid:
            self.rankings.append((graph.n_rows, graph.n_given_pairs))
            return
        labels, sums = graph.query_labels, None
        if X is not None:
            self.projection = self.projection or Projection.like(X, y)
            sums = self.projection.of(X, y, codes, weight, len(labels))
        self.add(labels, np.bincount(codes, minlength=len(labels)), sums)
        if graph.n_given_pairs:
            self.joined.append((frozenset(query_keys(labels)), graph.n_given_pairs))

    def check_new(self, keys: Sequence[str], advice: str) -> None:
        """Raise an error if a query is already recorded."""
        if not self.queries.keys().isdisjoint(keys):
            again = next(key for key in keys if key in self.queries)
            raise ValueError(f"{show_query(again)} {advice}")

    def remove(self, graph: PreferenceGraph, X: Any, rounding: float) -> None:
        """Remove the contents of ``graph``; raise an error unless they were added as they are."""
        n_pairs = graph.n_given_pairs
        if not graph.has_qid:
            if (graph.n_rows, n_pairs) not in self.rankings:
                raise ValueError(
                    f"no ranking of {graph.n_rows} rows was added without qid, with {n_pairs} "
                    "given pairs; forget the rows (and pairs) of one earlier call, or give qid"
                )
            self.rankings.remove((graph.n_rows, n_pairs))
            return
        keys, codes, y = query_keys(graph.query_labels), graph.query_codes, graph.scores
        assert codes is not None
        assert y is not None
        for key, n_rows in zip(keys, np.bincount(codes).tolist(), strict=True):
            if key not in self.queries:
                raise ValueError(f"{show_query(key)} was never added, so it cannot be forgotten")
            if self.queries[key][0] != n_rows:
                raise ValueError(
                    f"{show_query(key)} was added with {self.queries[key][0]} rows, but {n_rows} "
                    "are to be forgotten; forget whole queries"
                )
        touched = [entry for entry in self.joined if not entry[0].isdisjoint(keys)]
        if sum(n for _, n in touched) != n_pairs or any(
            some.difference(keys) for some, _ in touched
        ):
            raise ValueError(
                f"queries were added with {sum(n for _, n in touched)} given pairs, and {n_pairs} "
                "are to be forgotten; forget all queries and pairs of one call together"
            )
        if (own := self.projection) is not None:
            of_rows = (codes, graph.sample_weight, len(keys))
            known = np.array([self.queries[key][1] for key in keys])
            error = np.abs(own.of(X, y, *of_rows) - known)
            # Rounding errors are relative to the sums of absolute values.
            positive = Projection(abs(own.v), abs(own.u), abs(own.shift))
            tolerance = max(TOLERANCE, ROUNDINGS * rounding) * positive.of(abs(X), abs(y), *of_rows)
            wrong = np.flatnonzero(error > tolerance)  # not for NaN
            if len(wrong):
                raise ValueError(
                    f"{show_query(keys[wrong[0]])} was added with other features, scores or "
                    "weights than those that are to be forgotten; forget rows as they were added"
                )
        for key in keys:
            del self.queries[key]
        self.joined = [entry for entry in self.joined if entry[0].isdisjoint(keys)]
