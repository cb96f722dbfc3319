"""``PreferenceGraph``: preferences over rows, from scores or pairs."""

from __future__ import annotations

from copy import copy
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
    check_integer,
    check_length,
    check_magnitudes,
    check_pairs,
    check_scores,
    check_weights,
    encode_qid,
)
from rankrls.core.preferences.costs import Cost, Levels, Loss, QueryWeights, sums
from rankrls.core.preferences.laplacian import (
    CentredLaplacian,
    EdgeLaplacian,
    Groups,
    Laplacian,
    SumLaplacian,
)

Array = NDArray[Any]

#: Weights smaller by this factor are less than squares of rounding errors of the largest.
HEAVIEST = 1e30
#: Maximum number of pairs of distinct scores of a query for a cost without a closed form (about
#: 4500 distinct scores in one query).
MAX_LEVEL_PAIRS = 10_000_000


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
    n_rows, n_outputs, n_queries, n_given_pairs : int
    query_codes, query_labels : ndarray of shape (m,) or None, and sequence
        Query number of each row, None if there are only pairs, and the id of each number.
    scores : ndarray of shape (m, n_outputs), or None if there are only pairs
    sample_weight : ndarray of shape (m,), or None
    pairs, magnitude, pair_weight, pair_features : ndarrays
        The given pairs (preferred, other), (l, 2), and their arguments in `from_pairs`.
    flat : bool
        Whether scores, coefficients and predictions are vectors instead of columns.

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

    def __init__(
        self,
        n_rows: int,
        scores: Array | None = None,
        queries: Queries | None = None,
        sample_weight: Array | None = None,
        *,
        flat: bool = True,
        pairs: Array | None = None,
        magnitude: Array | None = None,
        pair_weight: Array | None = None,
        pair_features: Array | None = None,
    ) -> None:
        self.n_rows, self.scores, self.flat = n_rows, scores, flat
        self.queries, self.sample_weight = queries, sample_weight
        self.n_outputs = 1 if scores is None else scores.shape[1]
        self.n_queries = 1 if queries is None else len(queries.labels)
        self.query_codes = None if queries is None else queries.codes
        self.query_labels: Any = [None] if queries is None else queries.labels
        self.has_qid = queries is not None and list(queries.labels[:1]) != [None]
        self.has_given_pairs = pairs is not None
        self.pairs = np.empty((0, 2), np.int64) if pairs is None else pairs
        self.n_given_pairs = len(self.pairs)
        self.magnitude = np.empty(0) if magnitude is None else magnitude
        self.pair_weight = np.empty(0) if pair_weight is None else pair_weight
        self.pair_features = pair_features

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
        return cls._from_scores(check_scores(y), qid, sample_weight, "rows of y")

    @classmethod
    def _from_scores(cls, s: Array, qid: Any, sample_weight: Any, of: str) -> PreferenceGraph:
        """The graph of checked scores, ``of`` these rows."""
        m, weight = len(s), None
        hint = f"{of} (pass sizes of consecutive queries as group)"
        queries = encode_qid(qid, m, of=hint)
        if sample_weight is not None:
            weight = check_weights("sample_weight", sample_weight, m, of=of).copy()
            least = float(weight[weight > 0].min(initial=np.inf))
            if weight.max(initial=0.0) > HEAVIEST * least:
                raise ValueError(
                    f"sample_weight: the largest, {weight.max():g}, is more than {HEAVIEST:g} "
                    f"times the smallest, {least:g}, which is lost beside it: use weights of a "
                    "smaller range, and 0 for rows that must not count"
                )
        return cls(m, (s[:, None] if s.ndim == 1 else s).copy(), queries, weight, flat=s.ndim == 1)

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
        n_rows = check_integer("n_rows", n_rows, least=1)
        edges = check_pairs(pairs, n_rows).copy()
        n_pairs, features = len(edges), None
        y = weight = np.ones(n_pairs)
        if magnitude is not None:
            y = check_magnitudes(magnitude, n_pairs).copy()
        if pair_weight is not None:
            weight = check_weights("pair_weight", pair_weight, n_pairs, of="pairs").copy()
        if pair_features is not None:
            features = check_finite_array("pair_features", pair_features, ndim=(2,)).copy()
            check_length("pair_features", features, n_pairs, "pairs")
        return cls(n_rows, pairs=edges, magnitude=y, pair_weight=weight, pair_features=features)

    # ------------------------------------------------------------------ contents

    @property
    def preferring(self) -> Array:
        """Whether each given pair is a preference, not a tie or of weight 0, shape (l,), bool."""
        return (self.pair_weight > 0) & (self.magnitude > 0)

    def used_rows(self) -> Array:
        """Whether each row is in a query with several rows, or in a pair, shape (m,), bool."""
        used = np.zeros(self.n_rows, dtype=bool)
        if self.queries is not None:
            codes = self.queries.codes
            used |= np.bincount(codes)[codes] > 1
            if self.sample_weight is not None:
                used &= self.sample_weight > 0
        used[self.pairs[self.pair_weight > 0]] = True
        return used

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (m,), as required by scikit-learn's splitters."""
        return (self.n_rows,)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        parts = [f"n_rows={self.n_rows}"]
        if self.scores is not None:
            parts.append(f"n_queries={self.n_queries}")
        if self.n_outputs > 1:
            parts.append(f"n_outputs={self.n_outputs}")
        if self.has_given_pairs:
            parts.append(f"n_given_pairs={self.n_given_pairs}")
        return f"PreferenceGraph({', '.join(parts)})"

    @cached_property
    def varying_queries(self) -> Array:
        """Whether each query has a preference, shape (n_queries, n_outputs), bool."""
        if self.scores is None or self.queries is None:
            return np.zeros((0, 1), dtype=bool)
        used = slice(None) if self.sample_weight is None else self.sample_weight > 0
        s, query = self.scores[used], self.queries.codes[used]
        example = np.zeros((self.n_queries, self.n_outputs))
        example[query] = s
        found = np.zeros(example.shape, dtype=bool)
        row, output = np.nonzero(s != example[query])
        found[query[row], output] = True
        return found

    @property
    def scored_outputs(self) -> Array:
        """Whether the scores of each output contain a preference, shape (n_outputs,), bool."""
        return np.asarray(self.varying_queries.any(axis=0))

    @property
    def n_preferences(self) -> Array:
        """Number of queries and given pairs with a preference, shape (n_outputs,), int."""
        return self.varying_queries.sum(axis=0) + np.count_nonzero(self.preferring)

    def has_preference(self) -> bool:
        """Whether every output has at least one preference."""
        return bool((self.n_preferences > 0).all())

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
        if self.scores is not None and other.scores is not None:
            raise ValueError(
                "two graphs from scores cannot be added; give one y with a qid, or convert one of "
                "them to pairs"
            )
        scored = other if self.scores is None else self
        given = [graph for graph in (self, other) if graph.has_given_pairs]
        features = [graph.pair_features for graph in given if graph.pair_features is not None]
        if len(features) not in (0, len(given)):
            raise ValueError(
                "only one of the graphs has pair_features; give them to both or to neither"
            )
        sizes = [C.shape[1] for C in features]
        if len(set(sizes)) > 1:
            raise ValueError(f"graphs with {sizes[0]} and {sizes[1]} pair_features cannot be added")
        return PreferenceGraph(
            self.n_rows,
            scored.scores,
            scored.queries,
            scored.sample_weight,
            flat=scored.flat,
            pairs=np.concatenate([self.pairs, other.pairs]) if given else None,
            magnitude=np.concatenate([self.magnitude, other.magnitude]),
            pair_weight=np.concatenate([self.pair_weight, other.pair_weight]),
            pair_features=np.concatenate(features) if features else None,
        )

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
        scores = queries = weight = None
        if self.scores is not None and self.queries is not None:
            scores = self.scores[chosen]
            codes = encode_qid(self.queries.codes[chosen], len(chosen))
            labels = self.queries.labels
            if isinstance(labels, np.ndarray):
                labels = labels[codes.labels]
            else:
                labels = [labels[int(code)] for code in codes.labels]
            queries = Queries(codes.codes, labels)
            weight = None if self.sample_weight is None else self.sample_weight[chosen]
        given = {}
        if self.has_given_pairs:
            number = np.full(self.n_rows, -1)
            number[chosen] = np.arange(len(chosen))
            if (number[chosen] != np.arange(len(chosen))).any():
                raise ValueError("a row of a graph with given pairs cannot be selected twice")
            given = self._given(np.flatnonzero((number[self.pairs] >= 0).all(axis=1)))
            given["pairs"] = number[given["pairs"]]
        return PreferenceGraph(len(chosen), scores, queries, weight, flat=self.flat, **given)

    def only_pairs(self, kept: Array) -> PreferenceGraph:
        """Return the graph of the same rows with some of the given pairs, by mask or indices."""
        if not self.has_given_pairs:
            raise ValueError("the graph has no given pairs")
        scored = (self.scores, self.queries, self.sample_weight)
        return PreferenceGraph(self.n_rows, *scored, flat=self.flat, **self._given(kept))

    def _given(self, kept: Array) -> dict[str, Any]:
        """Some of the given pairs, as arguments of a graph."""
        features = None if self.pair_features is None else self.pair_features[kept]
        return {
            "pairs": self.pairs[kept],
            "magnitude": self.magnitude[kept],
            "pair_weight": self.pair_weight[kept],
            "pair_features": features,
        }

    # ------------------------------------------------------------------ as a quadratic form

    def objectives(self, loss: Loss | None = None, pair_scale: Any = 1.0) -> list[Laplacian]:
        """L, r and counts for a loss: one `Laplacian` per group of outputs that share L.

        The covariates of given pairs are divided by ``pair_scale``.
        """
        loss = Loss() if loss is None else loss
        s, query, weight, edges = self.scores, self.query_codes, self.sample_weight, None
        if self.has_given_pairs:
            used = self.pair_weight > 0
            z, w = loss.cost.edges(self.magnitude[used], self.pair_weight[used])
            C = None if self.pair_features is None else self.pair_features[used] / pair_scale
            head, tail = self.pairs[used].T
            edges = EdgeLaplacian(head, tail, w, z, self.n_rows, C)
            edges.log_weight = float(np.log(w).sum())
        if s is None or query is None:
            if edges is None:
                raise ValueError("the preference graph is empty; give scores or pairs")
            return [edges]
        shared: dict[bytes, tuple[Levels | None, list[int]]] = {}
        for j in range(self.n_outputs):
            levels, key = None, b""
            if not loss.keeps_ties:
                levels = Levels.of(s[:, j], query)
                key = s[:, j].tobytes() if loss.cost.by_pairs else levels.codes.tobytes()
            shared.setdefault(key, (levels, []))[1].append(j)
        found: list[Laplacian] = []
        for levels, outputs in shared.values():
            weights = QueryWeights(loss.query_weighting, query, self.n_queries, weight, levels)
            system: Any
            if levels is None:
                system = CentredLaplacian(Groups(query, weight, self.n_queries), weights.kappa, s)
                system.log_weight = weights.log_weight
            else:
                system = _without_ties(s[:, outputs], query, weight, levels, weights, loss.cost)
            system.outputs, system.n_pairs = np.array(outputs), weights.n_pairs
            if edges is not None and edges.n_pairs:
                # Only pairs count if the scores have no edge.
                system = SumLaplacian(system, edges) if system.n_pairs else copy(edges)
                system.outputs = np.array(outputs)
            found.append(system)
        return found

    def laplacian(
        self,
        *,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: Any = "pair",
        output: int = 0,
    ) -> LinearOperator:
        """Laplacian L as a SciPy ``LinearOperator`` of shape (m, m); O(m) per column for scores."""
        system = self._find(output, Loss(cost, ties, query_weighting))[0]

        def apply(v: Array) -> Array:
            return system.apply(np.reshape(v, (-1, 1)))[:, 0]

        products = {"matmat": system.apply, "rmatvec": apply, "rmatmat": system.apply}
        shape = (self.n_rows, self.n_rows)
        return LinearOperator(shape, matvec=apply, **products, dtype=np.float64)

    def target(
        self,
        *,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: Any = "pair",
        output: int = 0,
    ) -> Array:
        """The right-hand side r = Σ_edges w² z (e_h − e_j), shape (m,)."""
        objective, column = self._find(output, Loss(cost, ties, query_weighting))
        return objective.r[:, column]

    def _find(self, output: int, loss: Loss) -> tuple[Laplacian, int]:
        for objective in self.objectives(loss):
            where = np.flatnonzero(objective.outputs == output)
            if where.size:
                return objective, int(where[0])
        raise ValueError(f"output must be in range({self.n_outputs}); got {output!r}")


def _without_ties(
    s: Array, query: Array, weight: Array | None, levels: Levels, weights: QueryWeights, cost: Cost
) -> CentredLaplacian:
    """The Laplacian of pairs of different scores, for outputs (m, k) of the same levels."""
    g, k, log_weight = len(levels), s.shape[1], weights.log_weight
    rows, energy = Groups(levels.codes, weight, g), np.empty(0)
    if cost.by_pairs:
        head, tail, d, strength, z = _level_pairs(levels, weights, cost)
        Omega = weights.Omega
        # All rows of a level are compared with level b with weight c Ω_b w².
        kappa = sums(head, strength * Omega[tail], g) + sums(tail, strength * Omega[head], g)
        edges = EdgeLaplacian(head, tail, strength * Omega[head] * Omega[tail], z, g)
        system = CentredLaplacian(rows, kappa, None, edges)
        system.r, energy = np.repeat(system.r, k, axis=1), system.energy
        if cost.weight is not None:
            log_weight += float(weights.n_a[head] * weights.n_a[tail] @ np.log(cost.weight(d)))
    else:
        # The scores of the levels are replaced by others, ŝ, for which L ŝ = r.
        target = np.empty((g, k))
        target[levels.codes] = s
        if cost.level_scores is not None:
            scores, total = cost.level_scores(levels, weights)
            target[:], energy = scores[:, None], np.array([total])
        n_queries = len(weights.kappa)
        if g == len(s):
            single = Groups(query, weight, n_queries)
            system = CentredLaplacian(single, weights.kappa, target[levels.codes])
        else:
            pooled = Groups(levels.query, weights.Omega, n_queries)
            between = CentredLaplacian(pooled, weights.kappa, target)
            system = CentredLaplacian(rows, weights.level_kappa, None, between)
    if len(energy):
        system.energy = np.repeat(energy, k)
    system.log_weight = log_weight
    return system


def _level_pairs(levels: Levels, weights: QueryWeights, cost: Cost) -> tuple[Array, ...]:
    """All (higher, lower) pairs of levels of a query, and d, c w²(d) and z(d)."""
    query, Omega, g = levels.query, weights.Omega, len(levels)
    sizes = np.bincount(query)
    n_pairs = int((sizes.astype(object) * (sizes - 1)).sum()) // 2
    if n_pairs > MAX_LEVEL_PAIRS:
        raise ValueError(
            f"cost={cost.name!r} materialises all pairs of distinct scores of a query: {n_pairs:,} "
            f"here (the largest query has {sizes.max():,} distinct scores), more than the "
            f"{MAX_LEVEL_PAIRS:,} allowed. Round the scores, or use cost='magnitude' or 'unit', "
            "which cost O(rows)"
        )
    # Levels are sorted by query and score.
    above = np.cumsum(sizes)[query] - np.arange(g) - 1
    tail = np.repeat(np.arange(g), above)
    head = tail + 1 + np.arange(len(tail)) - (np.cumsum(above) - above)[tail]
    weighted = (Omega[head] > 0) & (Omega[tail] > 0)
    head, tail = head[weighted], tail[weighted]
    d = levels.score[head] - levels.score[tail]
    z, strength = cost.edges(d, weights.c[query[head]])
    return head, tail, d, strength, z
