"""``PreferenceGraph``: preferences over rows, from scores or pairs."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from rankrls._calls import takes_queries
from rankrls._frames import check_same_rows
from rankrls._validation import (
    Queries,
    check_finite_array,
    check_length,
    check_magnitudes,
    check_pairs,
    check_scores,
    check_weights,
    encode_qid,
)
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.laplacian import Objective, add, from_edges, from_scores
from rankrls.core.preferences.query_weights import QueryWeighting, varying_queries

__all__ = ["PreferenceGraph"]

Array = NDArray[Any]


@dataclass(frozen=True)
class _Scores:
    """Scored rows: s of shape (m, k), their queries, and row weights or None.

    ``flat`` is true if the scores were given as a vector of shape (m,).
    """

    s: Array
    queries: Queries
    weight: Array | None
    flat: bool


@dataclass(frozen=True)
class _Pairs:
    """Given pairs (preferred, other) with magnitudes and weights, all of length l.

    ``features`` holds covariates of the comparisons, of shape (l, q), or None.
    """

    pairs: Array
    magnitude: Array
    weight: Array
    features: Array | None = None

    def take(self, kept: Array, number: Array) -> _Pairs:
        features = None if self.features is None else self.features[kept]
        return _Pairs(number[self.pairs[kept]], self.magnitude[kept], self.weight[kept], features)

    def __add__(self, other: _Pairs) -> _Pairs:
        features = None
        if self.features is not None or other.features is not None:
            if self.features is None or other.features is None:
                raise ValueError(
                    "only one of the graphs has pair_features; give them to both or to neither"
                )
            if self.features.shape[1] != other.features.shape[1]:
                raise ValueError(
                    f"graphs with {self.features.shape[1]} and {other.features.shape[1]} "
                    "pair_features cannot be added"
                )
            features = np.concatenate([self.features, other.features])
        return _Pairs(
            np.concatenate([self.pairs, other.pairs]),
            np.concatenate([self.magnitude, other.magnitude]),
            np.concatenate([self.weight, other.weight]),
            features,
        )


class PreferenceGraph:
    """Preferences over m rows, from scores, from pairs, or from both.

    A graph holds only data; the cost that defines the objective is chosen by the estimator (or by
    the arguments of `laplacian` and `target`). A graph can be passed as ``y`` to every estimator of
    rankrls. Indexing with rows returns the graph of these rows, without the pairs that lose a row,
    so that it works with scikit-learn's splitters and searches.

    Use `from_scores` and `from_pairs` to create a graph; ``graph_a + graph_b`` combines scores and
    pairs over the same rows.

    Attributes
    ----------
    n_rows : int
    n_outputs : int
        Number of score columns; 1 if there are only pairs.

    Examples
    --------
    >>> from rankrls import PreferenceGraph
    >>> graded = PreferenceGraph.from_scores([2, 1, 1, 0], qid=["a", "a", "b", "b"])
    >>> clicks = PreferenceGraph.from_pairs([(0, 3)], n_rows=4)
    >>> graph = graded + clicks
    >>> graph
    PreferenceGraph(n_rows=4, n_queries=2, n_given_pairs=1)
    >>> graph.laplacian() @ [1.0, 0.0, 0.0, 0.0]
    array([ 2., -1.,  0., -1.])
    """

    def __init__(self, n_rows: int, scores: _Scores | None, pairs: _Pairs | None) -> None:
        self.n_rows = n_rows
        self._scores = scores
        self._pairs = pairs

    @classmethod
    @takes_queries
    def from_scores(
        cls, y: ArrayLike, *, qid: Any = None, sample_weight: ArrayLike | None = None
    ) -> PreferenceGraph:
        """Make a graph from scores: within each query, rows with higher scores are preferred.

        Parameters
        ----------
        y : array-like of shape (m,) or (m, n_outputs)
            Scores, higher = preferred.
        qid : array-like of shape (m,), optional
            Query label of each row, any hashable values, in any order. If None, all rows form one
            query.
        sample_weight : array-like of shape (m,), optional
            Row weights ω >= 0; a pair has weight ω_i ω_j.
        """
        check_same_rows(y, "y", qid=qid, sample_weight=sample_weight)
        s = check_scores(y)
        m = len(s)
        queries = encode_qid(qid, m, of="rows of y")
        weight = None
        if sample_weight is not None:
            weight = check_weights("sample_weight", sample_weight, m, of="rows of y").copy()
        columns = s[:, None] if s.ndim == 1 else s
        return cls(m, _Scores(columns.copy(), queries, weight, s.ndim == 1), None)

    @classmethod
    def from_pairs(
        cls,
        pairs: ArrayLike,
        *,
        n_rows: Any,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        pair_features: ArrayLike | None = None,
    ) -> PreferenceGraph:
        """Make a graph from a list of preferences, which may repeat or contradict each other.

        Parameters
        ----------
        pairs : array-like of shape (l, 2), int
            Row indices (preferred, other).
        n_rows : int
            Number m of rows to which the pairs refer.
        magnitude : array-like of shape (l,), optional
            Strength of the preferences, >= 0; 0 means a tie: the two rows were judged equal. If
            None, all are 1.
        pair_weight : array-like of shape (l,), optional
            Weights of the pairs, >= 0. If None, all are 1.
        pair_features : array-like of shape (l, q), optional
            Covariates of the comparisons, such as which item was shown first, the difference in
            length (preferred minus other), or indicators of judges.
        """
        if isinstance(n_rows, bool) or not isinstance(n_rows, numbers.Integral) or n_rows < 1:
            raise ValueError(f"n_rows must be the number of rows, an integer >= 1; got {n_rows!r}")
        n_rows = int(n_rows)
        edges = check_pairs(pairs, n_rows).copy()
        n_pairs = len(edges)
        y = np.ones(n_pairs)
        if magnitude is not None:
            y = check_magnitudes(magnitude, n_pairs).copy()
        weight = np.ones(n_pairs)
        if pair_weight is not None:
            weight = check_weights("pair_weight", pair_weight, n_pairs, of="pairs").copy()
        features = None
        if pair_features is not None:
            features = check_finite_array("pair_features", pair_features, ndim=(2,)).copy()
            check_length("pair_features", features, n_pairs, "pairs")
        return cls(n_rows, None, _Pairs(edges, y, weight, features))

    # ------------------------------------------------------------------ contents

    @property
    def n_outputs(self) -> int:
        """Number of score columns; 1 if there are only pairs."""
        return 1 if self._scores is None else self._scores.s.shape[1]

    @property
    def flat(self) -> bool:
        """Whether scores, coefficients and predictions are vectors instead of columns."""
        return self._scores is None or self._scores.flat

    @property
    def n_queries(self) -> int:
        """Number of queries; 1 if there are only pairs."""
        return 1 if self._scores is None else len(self._scores.queries)

    @property
    def n_given_pairs(self) -> int:
        """Number of explicitly given pairs."""
        return 0 if self._pairs is None else len(self._pairs.pairs)

    @property
    def scores(self) -> Array | None:
        """Scores of shape (m, n_outputs), or None if there are only pairs."""
        return None if self._scores is None else self._scores.s

    @property
    def query_codes(self) -> Array | None:
        """Query numbers of shape (m,), or None if there are only pairs."""
        return None if self._scores is None else self._scores.queries.codes

    @property
    def sample_weight(self) -> Array | None:
        """Row weights of shape (m,), or None."""
        return None if self._scores is None else self._scores.weight

    @property
    def pairs(self) -> Array:
        """The given pairs, shape (l, 2)."""
        return np.empty((0, 2), np.int64) if self._pairs is None else self._pairs.pairs

    @property
    def pair_weight(self) -> Array:
        """Weights of the given pairs, shape (l,)."""
        return np.empty(0) if self._pairs is None else self._pairs.weight

    @property
    def magnitude(self) -> Array:
        """Strength of the given preferences, 0 for ties, shape (l,)."""
        return np.empty(0) if self._pairs is None else self._pairs.magnitude

    @property
    def pair_features(self) -> Array | None:
        """Covariates of the given pairs, shape (l, q), or None."""
        return None if self._pairs is None else self._pairs.features

    @property
    def preferring(self) -> Array:
        """Whether each given pair is a preference, not a tie or of weight 0, shape (l,), bool."""
        return (self.pair_weight > 0) & (self.magnitude > 0)

    @property
    def n_used_rows(self) -> int:
        """Number of rows that may have an edge: in a query with several rows, or in a pair."""
        return int(self.used_rows().sum())

    def used_rows(self) -> Array:
        """Whether each row may have an edge, shape (m,), bool."""
        used = np.zeros(self.n_rows, dtype=bool)
        if self._scores is not None:
            codes = self._scores.queries.codes
            used |= np.bincount(codes)[codes] > 1
            if self._scores.weight is not None:
                used &= self._scores.weight > 0
        if self._pairs is not None:
            used[self._pairs.pairs[self._pairs.weight > 0]] = True
        return used

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (m,), as required by scikit-learn's splitters."""
        return (self.n_rows,)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        parts = [f"n_rows={self.n_rows}"]
        if self._scores is not None:
            parts.append(f"n_queries={self.n_queries}")
        if self.n_outputs > 1:
            parts.append(f"n_outputs={self.n_outputs}")
        if self._pairs is not None:
            parts.append(f"n_given_pairs={self.n_given_pairs}")
        return f"PreferenceGraph({', '.join(parts)})"

    @property
    def has_qid(self) -> bool:
        """Whether the scores were given with query ids."""
        return self._scores is not None and list(self._scores.queries.labels[:1]) != [None]

    @property
    def query_labels(self) -> Any:
        """Query id of each query number; [None] without ids."""
        return [None] if self._scores is None else self._scores.queries.labels

    @cached_property
    def preference_counts(self) -> Array:
        """Number of queries with a preference, for each output, shape (n_outputs,), int."""
        if self._scores is None:
            return np.zeros(1, dtype=np.int64)
        return self.varying_queries().sum(axis=0)

    def varying_queries(self) -> Array:
        """Whether each query has a preference, shape (n_queries, n_outputs), bool."""
        assert self._scores is not None
        s, codes = self._scores.s, self._scores.queries.codes
        if self._scores.weight is not None:
            used = self._scores.weight > 0
            s, codes = s[used], codes[used]
        return varying_queries(s, codes, len(self._scores.queries))

    @property
    def n_preferences(self) -> Array:
        """Number of queries and given pairs with a preference, shape (n_outputs,), int."""
        return self.preference_counts + np.count_nonzero(self.preferring)

    def scored_outputs(self) -> Array:
        """Whether the scores of each output contain a preference, shape (n_outputs,), bool."""
        return self.preference_counts > 0

    def has_pairs(self) -> bool:
        """Whether there are given pairs of positive weight that are not ties."""
        return bool(self.preferring.any())

    def has_preference(self) -> bool:
        """Whether every output has at least one preference."""
        return self.has_pairs() or bool(self.scored_outputs().all())

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError(
            "a PreferenceGraph is not an array; pass it as y to an estimator of rankrls, or use "
            "its scores and pairs"
        )

    __array_ufunc__ = None

    # ------------------------------------------------------------------ joining and cutting

    def __add__(self, other: PreferenceGraph) -> PreferenceGraph:
        if not isinstance(other, PreferenceGraph):
            return NotImplemented
        if self.n_rows != other.n_rows:
            raise ValueError(
                f"graphs over {self.n_rows} and {other.n_rows} rows cannot be added; both must "
                "refer to the same rows"
            )
        if self._scores is not None and other._scores is not None:
            raise ValueError(
                "two graphs from scores cannot be added; give one y with a qid, or convert one of "
                "them to pairs"
            )
        scores = self._scores if self._scores is not None else other._scores
        pairs = self._pairs if other._pairs is None else other._pairs
        if self._pairs is not None and other._pairs is not None:
            pairs = self._pairs + other._pairs
        return PreferenceGraph(self.n_rows, scores, pairs)

    def __getitem__(self, rows: Any) -> PreferenceGraph:
        """Return the graph of some rows, renumbered in the given order.

        Duplicate rows (as in a bootstrap sample) raise an error if there are given pairs.
        """
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn indexes as y[rows, ...]
        if isinstance(rows, tuple) or rows is None:
            raise IndexError(f"index a graph by rows, as in graph[[0, 2, 5]]; got {rows!r}")
        chosen = np.atleast_1d(np.arange(self.n_rows)[rows])
        if chosen.ndim != 1:
            raise IndexError(f"index a graph by a list of rows; got shape {chosen.shape}")
        scores = pairs = None
        if self._scores is not None:
            old = self._scores
            codes = encode_qid(old.queries.codes[chosen], len(chosen))
            labels = [old.queries.labels[int(code)] for code in codes.labels]
            weight = None if old.weight is None else old.weight[chosen]
            scores = _Scores(old.s[chosen], Queries(codes.codes, labels), weight, old.flat)
        if self._pairs is not None:
            number = np.full(self.n_rows, -1)
            number[chosen] = np.arange(len(chosen))
            if (number[chosen] != np.arange(len(chosen))).any():
                raise ValueError("a row of a graph with given pairs cannot be selected twice")
            kept = np.flatnonzero((number[self._pairs.pairs] >= 0).all(axis=1))
            pairs = self._pairs.take(kept, number)
        return PreferenceGraph(len(chosen), scores, pairs)

    def only_pairs(self, kept: Array) -> PreferenceGraph:
        """Return the graph of the same rows with some of the given pairs, by mask or indices."""
        if self._pairs is None:
            raise ValueError("the graph has no given pairs")
        pairs = self._pairs.take(kept, np.arange(self.n_rows))
        return PreferenceGraph(self.n_rows, self._scores, pairs)

    # ------------------------------------------------------------------ as a quadratic form

    def objectives(self, loss: Loss | None = None) -> list[Objective]:
        """L, r and counts for a loss: one `Objective` per group of outputs that share L."""
        loss = Loss() if loss is None else loss
        edges = None
        if self._pairs is not None:
            given = self._pairs
            edges = from_edges(
                given.pairs,
                given.magnitude,
                given.weight,
                self.n_rows,
                cost=loss.of_pair,
                features=given.features,
            )
        if self._scores is None:
            if edges is None:
                raise ValueError("the preference graph is empty; give scores or pairs")
            return [edges]
        scored = from_scores(
            self._scores.s,
            self._scores.queries.codes,
            len(self._scores.queries),
            self._scores.weight,
            loss,
        )
        if edges is None or edges.n_pairs == 0:
            return scored
        return [add(objective, edges) for objective in scored]

    def laplacian(
        self,
        *,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: QueryWeighting = "pair",
        output: int = 0,
    ) -> LinearOperator:
        """Laplacian L as a SciPy ``LinearOperator`` of shape (m, m); O(m) per column for scores."""
        objective, _ = self._find(output, Loss(cost, ties, query_weighting))
        return objective.laplacian.L

    def target(
        self,
        *,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: QueryWeighting = "pair",
        output: int = 0,
    ) -> Array:
        """The right-hand side r = Σ_edges w² z (e_h − e_j), shape (m,)."""
        objective, column = self._find(output, Loss(cost, ties, query_weighting))
        return objective.laplacian.r[:, column]

    def _find(self, output: int, loss: Loss) -> tuple[Objective, int]:
        for objective in self.objectives(loss):
            where = np.flatnonzero(objective.outputs == output)
            if where.size:
                return objective, int(where[0])
        raise ValueError(f"output must be in range({self.n_outputs}); got {output!r}")
