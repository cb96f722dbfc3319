"""Record of the queries that sums of statistics include."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._threads import at_most
from rankrls._validation import show
from rankrls.core.preferences.graph import PreferenceGraph

__all__ = ["Checksum", "Ledger", "as_list"]

Array = NDArray[Any]

#: Rows that determine the units of the features in checksums.
UNIT_ROWS = 1000

#: Relative tolerance of checksums, at least, and as a multiple of the rounding error of the rows.
#: It allows for other orders of summation and for rescaled features, but not for other values.
TOLERANCE, ROUNDINGS = 1e-8, 1e3


class Checksum:
    """One number for each query, computed from its features, scores and weights.

        c(q) = Σ_{i in q} w_i (1 + y_iᵀu) (1 + x_iᵀv).

    The checksum does not depend on the order of the rows. A change of units of the features changes
    v. The units are determined by the first rows.

    Attributes
    ----------
    v : ndarray of shape (n_features,)
    u : ndarray of shape (n_outputs,)
    shift : float
        The value added to xᵀv because the features were shifted.
    """

    def __init__(self, v: Array, u: Array, shift: float = 0.0) -> None:
        self.v, self.u, self.shift = v, u, shift

    @classmethod
    def like(cls, X: Any, y: Array) -> Checksum:
        """Choose units in which features and scores of these rows, shape (m, k), have size 1."""
        return cls(_weights(X[:UNIT_ROWS]), _weights(y[:UNIT_ROWS]))

    def copy(self) -> Checksum:
        """Return an independent copy."""
        return Checksum(self.v.copy(), self.u.copy(), self.shift)

    def rescale(self, factor: Array, offset: Array) -> None:
        """Change to features (x − offset) · factor, of shape (n_features,) each."""
        self.shift += float(offset @ self.v)
        self.v = self.v / factor

    def of(self, X: Any, y: Array, codes: Array, weight: Array | None, n_queries: int) -> Array:
        """Checksums of queries; y of shape (m, k), query ``codes`` of shape (m,)."""
        with np.errstate(over="ignore", invalid="ignore"), at_most(1):
            products = (1 + y @ self.u) * (1 + self.shift + np.asarray(X @ self.v))
            return self._sum(products, codes, weight, n_queries)

    def sizes(self, X: Any, y: Array, codes: Array, weight: Array | None, n_queries: int) -> Array:
        """Compute the sums of absolute values, to which rounding errors are relative."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = 1 + abs(self.shift) + np.asarray(abs(X) @ abs(self.v))
            return self._sum((1 + abs(y) @ abs(self.u)) * rows, codes, weight, n_queries)

    def _sum(self, products: Array, codes: Array, weight: Array | None, n_queries: int) -> Array:
        if weight is not None:
            products = products * weight
        return np.bincount(codes, weights=products, minlength=n_queries)


def _weights(values: Any) -> Array:
    """Compute different weights for all columns, relative to the largest values; shape (n,)."""
    largest = abs(values).max(axis=0)
    largest = np.asarray(largest.todense() if hasattr(largest, "todense") else largest)
    largest = largest.ravel().astype(np.float64)
    # Multiples of the golden ratio differ, so exchanged columns are detected. (Random generators
    # may change with NumPy.)
    different = 0.5 + (np.arange(1, len(largest) + 1) * 0.6180339887498949) % 1
    return different / np.where(largest > 1e-300, largest, 1.0)  # a smaller one would overflow


class Ledger:
    """Record of the queries, unlabelled rankings and given pairs that were added.

    Attributes
    ----------
    queries : dict
        Number of rows of each query, by label.
    rankings : dict of dict
        Number of calls without qid, by number of rows and then by number of given pairs. (Keys are
        not tuples, because other libraries store fitted estimators as JSON.)
    joined : list of (labels, pairs)
        The queries of a call that had ``pairs`` given pairs in addition to its scores. They are
        connected and can only be forgotten together.
    checksum : Checksum or None
        Computes the ``checksums`` of queries. None: they are unknown.
    weighted : bool
        Whether rows had sample weights.
    """

    def __init__(self) -> None:
        self.rankings: dict[int, dict[int, int]] = {}
        self.joined: list[tuple[frozenset[Any], int]] = []
        self.checksum: Checksum | None = None
        self.weighted = False
        self._queries: dict[Any, int] = {}
        self._checksums: dict[Any, float] = {}
        self._unread: list[tuple[Any, Array, Array | None]] = []

    def copy(self) -> Ledger:
        """Return an independent copy."""
        other = Ledger()
        other.rankings = {rows: dict(calls) for rows, calls in self.rankings.items()}
        other.joined = list(self.joined)
        other._queries, other._checksums = dict(self.queries), dict(self.checksums)
        other.checksum = None if self.checksum is None else self.checksum.copy()
        other.weighted = self.weighted
        return other

    @property
    def queries(self) -> dict[Any, int]:
        """Number of rows of each query, by label."""
        for labels, rows, sums in self._unread:  # lazily, so that ``fit`` does not build the dict
            keys = as_list(labels)
            self._queries.update(zip(keys, rows.tolist(), strict=True))
            if sums is not None:
                self._checksums.update(zip(keys, sums.tolist(), strict=True))
        self._unread = []
        return self._queries

    @property
    def checksums(self) -> dict[Any, float]:
        """Known checksums of queries, by label."""
        assert self.queries is self._queries
        return self._checksums

    @property
    def n_queries(self) -> int:
        """Number of labelled queries and of rankings without a label."""
        return len(self.queries) + sum(sum(calls.values()) for calls in self.rankings.values())

    def add_ranking(self, n_rows: int, n_pairs: int, n_calls: int = 1) -> None:
        """Record calls without qid; a negative number removes them."""
        calls = self.rankings.setdefault(n_rows, {})
        calls[n_pairs] = calls.get(n_pairs, 0) + n_calls
        if not calls[n_pairs]:
            del calls[n_pairs]
        if not calls:
            del self.rankings[n_rows]

    def check_new(self, graph: PreferenceGraph, advice: str) -> None:
        """Raise an error if a query of ``graph`` is already recorded."""
        if graph.has_qid:
            self.check_unseen(as_list(graph.query_labels), advice)

    def check_unseen(self, labels: Iterable[Any], advice: str) -> None:
        """Raise an error if one of the labels is already recorded."""
        labels = list(labels)
        if not self.queries.keys().isdisjoint(labels):
            again = next(label for label in labels if label in self.queries)
            raise ValueError(f"query {show(again)} {advice}")

    def add(self, graph: PreferenceGraph, X: Any) -> None:
        """Record the contents of ``graph``, whose rows have the features X (None: unknown)."""
        self.weighted |= graph.sample_weight is not None
        if not graph.has_qid:
            self.add_ranking(graph.n_rows, graph.n_given_pairs)
            return
        labels, sums = graph.query_labels, None
        assert graph.query_codes is not None
        if X is not None and graph.scores is not None:
            queries = graph.query_codes, graph.sample_weight, graph.n_queries
            sums = self.sums(X, graph.scores, *queries)
        self.add_queries(labels, _rows_of_queries(graph), sums)
        if graph.n_given_pairs:
            self.joined.append((frozenset(as_list(labels)), graph.n_given_pairs))

    def add_queries(self, labels: Any, rows: Array, checksums: Array | None = None) -> None:
        """Record queries with their numbers of rows, and their checksums if they are known."""
        self._unread.append((labels, rows, checksums))

    def sums(
        self, X: Any, y: Array, codes: Array, weight: Array | None, n_queries: int
    ) -> Array | None:
        """Checksums of queries, as `Checksum.of`; None if those of earlier queries are unknown."""
        if self.checksum is None:
            if self._unread or self._queries:
                return None
            self.checksum = Checksum.like(X, y)
        return self.checksum.of(X, y, codes, weight, n_queries)

    def rescale(self, factor: Array, offset: Array) -> None:
        """Record that features are (x − offset) · factor from now on."""
        if self.checksum is not None:
            self.checksum.rescale(factor, offset)

    def check_known(self, graph: PreferenceGraph, X: Any, rounding: float) -> None:
        """Raise an error unless ``graph``, with features X, can be part of what was added.

        ``rounding`` is the relative rounding error of the rows.
        """
        if not graph.has_qid:
            if graph.n_given_pairs not in self.rankings.get(graph.n_rows, {}):
                pairs = f" and {graph.n_given_pairs} given pairs" if graph.n_given_pairs else ""
                raise ValueError(
                    f"no ranking of {graph.n_rows} rows{pairs} was added without qid, so "
                    "none can be forgotten; give the rows (and pairs) of one earlier call, or qid"
                )
            return
        labels = as_list(graph.query_labels)
        for label, n_rows in zip(labels, _rows_of_queries(graph).tolist(), strict=True):
            if label not in self.queries:
                raise ValueError(f"query {show(label)} was never added, so it cannot be forgotten")
            if self.queries[label] != n_rows:
                raise ValueError(
                    f"query {show(label)} was added with {self.queries[label]} rows, but {n_rows} "
                    "are to be forgotten; forget whole queries"
                )
        self._check_joined(set(labels), graph.n_given_pairs)
        if self.checksum is not None and graph.scores is not None:
            self._check_values(labels, graph, X, max(TOLERANCE, ROUNDINGS * rounding))

    def _check_values(
        self, labels: list[Any], graph: PreferenceGraph, X: Any, tolerance: float
    ) -> None:
        """Raise an error if a query was added with different values."""
        assert self.checksum is not None
        assert graph.scores is not None
        assert graph.query_codes is not None
        rows = (X, graph.scores, graph.query_codes, graph.sample_weight, graph.n_queries)
        known = np.array([self.checksums.get(label, np.nan) for label in labels])
        error = np.abs(self.checksum.of(*rows) - known)
        wrong = np.flatnonzero(error > tolerance * self.checksum.sizes(*rows))  # not for NaN
        if len(wrong):
            raise ValueError(
                f"query {show(labels[wrong[0]])} was added with other features, scores or weights "
                "than those that are to be forgotten; forget rows as they were added"
            )

    def _check_joined(self, labels: set[Any], n_pairs: int) -> None:
        touched = [entry for entry in self.joined if not entry[0].isdisjoint(labels)]
        if [pairs for _, pairs in touched] != ([n_pairs] if n_pairs else []):
            expected = " and ".join(str(pairs) for _, pairs in touched) or "no"
            raise ValueError(
                f"these queries were added with {expected} given pairs, but are to be forgotten "
                f"with {n_pairs}; forget the queries and pairs of one call together"
            )
        for joined, _ in touched:
            if not joined <= labels:
                missing = next(label for label in joined if label not in labels)
                raise ValueError(
                    f"query {show(missing)} was added in one call with given pairs and queries "
                    "that are to be forgotten; forget them together"
                )

    def undo(self, graph: PreferenceGraph) -> Callable[[], None]:
        """Return a function that restores the present entries for the queries of ``graph``."""
        labels = as_list(graph.query_labels) if graph.has_qid else []
        known = {label: self.queries[label] for label in labels if label in self.queries}
        sums = {label: self.checksums[label] for label in labels if label in self.checksums}
        checksum, weighted = self.checksum, self.weighted
        rankings = {rows: dict(calls) for rows, calls in self.rankings.items()}
        joined = list(self.joined)

        def restore() -> None:
            for label in labels:
                self.queries.pop(label, None)
                self.checksums.pop(label, None)
            self.queries.update(known)
            self.checksums.update(sums)
            self.rankings, self.joined = rankings, joined
            self.checksum, self.weighted = checksum, weighted

        return restore

    def remove(self, graph: PreferenceGraph) -> None:
        """Remove the contents of ``graph``, which `check_known` has accepted."""
        if not graph.has_qid:
            self.add_ranking(graph.n_rows, graph.n_given_pairs, -1)
            return
        labels = as_list(graph.query_labels)
        for label in labels:
            del self.queries[label]
            self.checksums.pop(label, None)
        self.joined = [entry for entry in self.joined if entry[0].isdisjoint(labels)]


def as_list(labels: Any) -> list[Any]:
    """Convert labels to Python objects, which compare equal across array types.

    Strings that represent an integer are converted to it, because whether a reader returns 2 or "2"
    depends on the other ids of a file.
    """
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if getattr(labels, "dtype", np.dtype(object)).kind in "iuf":
        return values
    return [_as_integer(value) if isinstance(value, str) else value for value in values]


def _as_integer(text: str) -> int | str:
    digits = text.removeprefix("-")
    if not (text.isascii() and digits.isdigit() and len(text) <= 20):
        return text
    number = int(text)
    return number if str(number) == text else text


def _rows_of_queries(graph: PreferenceGraph) -> Array:
    assert graph.query_codes is not None
    return np.bincount(graph.query_codes, minlength=graph.n_queries)
