"""Sufficient statistics of rows and their preferences for primal solvers.

They are additive over sets of rows without preferences between them (whole queries), so a model can
be trained batch by batch, and unlearn a batch, exactly. `Ledger` records which queries are included
in the sums. `RankingStatistics` combines the parts of one ranking, in which every row is
compared with the rows of all other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._resources import at_most
from rankrls._validation import show, written_integer
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import Objective, ScatterLaplacian
from rankrls.core.preferences.query_weights import Groups, query_factor

__all__ = [
    "Checksum",
    "Ledger",
    "RankingStatistics",
    "Statistics",
    "add_batch",
    "as_list",
    "batch_statistics",
    "subtract_batch",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Rows that determine the units of the features in checksums.
UNIT_ROWS = 1000

#: Relative tolerance of checksums, at least, and as a multiple of the rounding error of the rows.
#: It allows for other orders of summation and for rescaled features, but not for other values.
TOLERANCE, ROUNDINGS = 1e-8, 1e3


@dataclass
class Statistics:
    """ΦᵀLΦ, Φᵀr and counts, in float64, for the outputs that share one preference graph.

    ``a += b`` adds the statistics of other rows, ``a -= b`` subtracts them again; both modify the
    arrays of ``a`` in place and require the same outputs.

    Attributes
    ----------
    outputs : ndarray of shape (k,), int
        The columns of y to which they apply.
    gram : ndarray of shape (n, n)
        ΦᵀLΦ.
    cross : ndarray of shape (n, k)
        Φᵀr.
    mean : ndarray of shape (n,)
        The mean row over the rows that have an edge, with their weights.
    mass : float
        The sum of those weights.
    energy : ndarray of shape (k,)
        The sum of squared targets, Σ_edges w² z².
    n_pairs : int
        Number of edges.
    log_weight : float
        Σ_edges log w².
    largest : ndarray of shape (n,)
        The largest value that each entry of the diagonal of ``gram`` has ever had. Rounding errors
        in the sums are relative to it, even after rows are subtracted.
    rounding : float
        Relative rounding error of the products: that of float64, or more for float32 rows and
        for Nyström features.
    largest_energy : ndarray of shape (k,)
        The largest value that ``energy`` has ever had; |Φᵀr| is at most the square root of its
        product with ``largest``.
    """

    outputs: Array
    gram: Array
    cross: Array
    mean: Array
    mass: float
    energy: Array
    n_pairs: int
    log_weight: float
    largest: Array
    rounding: float = EPS
    largest_energy: Any = None

    def __post_init__(self) -> None:
        if self.largest_energy is None:
            self.largest_energy = self.energy.copy()

    @classmethod
    def of(cls, objective: Objective, Phi: Any) -> Statistics:
        """Compute the statistics of features Φ, dense or sparse, of shape (m, n).

        Covariates of given pairs are appended to the features, so that n becomes n + q.
        """
        moments = objective.laplacian.moments(Phi)
        k = len(objective.outputs)
        gram, mean = moments.gram, moments.mean
        cross = np.repeat(moments.cross, k // moments.cross.shape[1], axis=1)
        if objective.covariates is not None:
            added = objective.covariates
            beside = np.asarray(Phi.T @ added.flow, dtype=np.float64)
            gram = np.block([[gram, beside], [beside.T, added.gram]])
            cross = np.vstack([cross, np.repeat(added.cross[:, None], k, axis=1)])
            mean = np.append(mean, np.zeros(len(added.cross)))
        return cls(
            objective.outputs,
            gram,
            cross,
            mean,
            float(objective.laplacian.row_weight().sum()),
            np.repeat(objective.energy, k // len(objective.energy)),
            objective.n_pairs,
            objective.log_weight,
            gram.diagonal().copy(),
            float(np.finfo(Phi.dtype).eps),
        )

    @classmethod
    def empty(cls, outputs: Array, n: int) -> Statistics:
        """Statistics of zero rows with n features."""
        k = len(outputs)
        gram, cross, mean = np.zeros((n, n)), np.zeros((n, k)), np.zeros(n)
        return cls(outputs, gram, cross, mean, 0.0, np.zeros(k), 0, 0.0, np.zeros(n))

    def copy(self) -> Statistics:
        """Return a copy."""
        names = ("gram", "cross", "mean", "energy", "largest", "largest_energy")
        return replace(self, **{name: getattr(self, name).copy() for name in names})

    def select(self, outputs: Array, *, copy: bool = False) -> Statistics:
        """Select the statistics of some outputs; with ``copy``, copy the Gram matrix."""
        if not copy and np.array_equal(self.outputs, outputs):
            return self
        where = [int(np.flatnonzero(self.outputs == output)[0]) for output in outputs]
        return replace(
            self,
            outputs=outputs,
            gram=self.gram.copy() if copy else self.gram,
            cross=self.cross[:, where],
            mean=self.mean.copy(),
            energy=self.energy[where],
            largest=self.largest.copy(),
            largest_energy=self.largest_energy[where],
        )

    def __add__(self, other: Statistics) -> Statistics:
        total = self.copy()
        total += other
        return total

    def __iadd__(self, other: Statistics) -> Statistics:
        self.gram += other.gram
        self.cross += other.cross
        self.energy += other.energy
        self.mass += other.mass
        if self.mass > 0:
            self.mean += (other.mass / self.mass) * (other.mean - self.mean)
        self.n_pairs += other.n_pairs
        self.log_weight += other.log_weight
        np.maximum(self.largest, other.largest, out=self.largest)
        np.maximum(self.largest, self.gram.diagonal(), out=self.largest)
        np.maximum(self.largest_energy, other.largest_energy, out=self.largest_energy)
        np.maximum(self.largest_energy, self.energy, out=self.largest_energy)
        self.rounding = max(self.rounding, other.rounding)
        return self

    def __isub__(self, other: Statistics) -> Statistics:
        """Subtract rows; raise an error if they cannot be part of the sum."""
        rounding = max(self.rounding, other.rounding)
        # Tolerance of half the digits: features with an offset are less accurate, and a false error
        # for rows that were added would be worse than a missed one.
        tolerance = 100 * float(np.sqrt(rounding))
        n_pairs, mass = self.n_pairs - other.n_pairs, self.mass - other.mass
        before, energy = self.gram.diagonal().copy(), self.energy.copy()
        self.gram -= other.gram
        self.cross -= other.cross
        self.energy -= other.energy
        after = self.gram.diagonal()
        slack = tolerance * before + 1e3 * rounding * np.maximum(self.largest, other.largest)
        too_much = n_pairs < 0 or mass < -tolerance * self.mass or (n_pairs > 0 and mass <= 0)
        too_much |= bool((after < -slack).any() or (self.energy < -tolerance * energy).any())
        if n_pairs == 0:  # without edges, everything else must be zero as well
            too_much |= mass > tolerance * self.mass or bool((after > slack).any())
        if too_much:
            raise ValueError(
                "the model was not trained on these rows in this form: subtracting "
                f"{other.n_pairs:,} of "
                f"{self.n_pairs:,} pairs does not leave a valid sum over pairs. "
                "Forget rows with the features, scores, weights and pairs with which they were "
                "added"
            )
        if n_pairs == 0:
            sums = (self.gram, self.cross, self.mean, self.energy)
            for array in (*sums, self.largest, self.largest_energy):
                array[...] = 0.0
            self.mass, self.n_pairs, self.log_weight = 0.0, 0, 0.0
            return self
        self.mean -= (other.mass / mass) * (other.mean - self.mean)
        np.maximum(self.energy, 0.0, out=self.energy)
        self.mass, self.n_pairs = mass, n_pairs
        self.log_weight -= other.log_weight
        self.rounding = rounding
        return self

    def rescale(self, factor: Array, offset: Array) -> None:
        """Transform to the statistics of (Φ − offset) · factor, of shape (n,) each, in place."""
        self.gram *= factor[:, None]
        self.gram *= factor
        self.cross *= factor[:, None]
        self.mean = (self.mean - offset) * factor
        self.largest *= factor**2

    def lost_digits(self, alpha: float) -> float:
        """Ratio of the rounding errors in the sums to those of a new fit.

        This is the largest ratio, over the columns, of the past to the present value of a diagonal
        entry plus alpha; or, for Φᵀr, the square root of its product with the same ratio of the
        squared targets.
        """
        present = np.maximum(self.gram.diagonal(), 0.0) + alpha
        features = float((self.largest / present).max(initial=1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            targets = np.nan_to_num(self.largest_energy / self.energy, nan=1.0, posinf=np.inf)
        return max(features, float(np.sqrt(features * targets.max(initial=1.0))))

    def require_finite(self) -> None:
        """Raise an error on overflow; the diagonal of a Gram matrix bounds all entries."""
        if not (np.isfinite(self.gram.diagonal()).all() and np.isfinite(self.cross).all()):
            raise ValueError(
                "the numbers overflow float64; scale the features, the scores or the weights down"
            )


@np.errstate(over="ignore", invalid="ignore")  # overflow raises an error below
def batch_statistics(graph: PreferenceGraph, Phi: Any, loss: Loss) -> list[Statistics]:
    """Statistics of features Φ of shape (m, n), for the outputs that have an edge in ``graph``.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    Phi : ndarray or sparse array of shape (m, n)
    loss : Loss
    """
    parts = []
    for objective in graph.objectives(loss):
        if objective.n_pairs == 0:
            continue
        if not objective.laplacian.row_weight().any():
            raise ValueError(
                "the weights are so small that their products underflow; scale them up"
            )
        part = Statistics.of(objective, Phi)
        part.require_finite()
        parts.append(part)
    return parts


def add_batch(total: Sequence[Statistics], batch: Sequence[Statistics]) -> list[Statistics]:
    """Add the statistics of a batch to a sum, both given in parts for groups of outputs.

    Outputs may share a graph in one batch and not in another; the sum has one part for each group
    of outputs that have shared all their graphs. The arrays of ``total`` are overwritten.
    """
    parts = []
    for mine, theirs in _refine(total, batch):
        if theirs is not None:
            mine += theirs
            mine.require_finite()
        parts.append(mine)
    return parts


def subtract_batch(total: Sequence[Statistics], batch: Sequence[Statistics]) -> list[Statistics]:
    """Subtract the statistics of a batch from a sum; raise an error if it is not part of it."""
    parts = []
    for mine, theirs in _refine(total, batch):
        if theirs is not None:
            mine -= theirs
        parts.append(mine)
    return parts


def _refine(
    total: Sequence[Statistics], batch: Sequence[Statistics]
) -> list[tuple[Statistics, Statistics | None]]:
    """Pairs (mine, theirs) for the same outputs; None if the batch has no such part."""
    if len(total) == len(batch) == 1 and np.array_equal(total[0].outputs, batch[0].outputs):
        return [(total[0], batch[0])]
    pairs: list[tuple[Statistics, Statistics | None]] = []
    for mine in total:
        rest = mine
        for theirs in batch:
            shared = np.intersect1d(rest.outputs, theirs.outputs)
            if len(shared) == 0:
                continue
            others = np.setdiff1d(rest.outputs, shared)
            pairs.append((rest.select(shared, copy=len(others) > 0), theirs.select(shared)))
            rest = rest.select(others)
        if len(rest.outputs):
            pairs.append((rest, None))
    return pairs


class RankingStatistics:
    """Statistics of one ranking given in parts, for cost="magnitude" with ties kept.

    Such a ranking is κ times a weighted scatter, and the scatters of parts A and B combine by

        S = S_A + S_B + N_A N_B/(N_A + N_B) (x̄_A − x̄_B)(x̄_A − x̄_B)ᵀ,

    a sum of non-negative terms (Chan, Golub and LeVeque). The scores are combined in the same way.
    """

    def __init__(self) -> None:
        self.total: Statistics | None = None
        self.score_mean: Array = np.zeros(0)
        self.n_weighted = 0
        self.square_weight = 0.0
        self.log_weight = 0.0

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, Phi: Any, s: Array, weight: Array | None) -> None:
        """Add rows Φ of shape (m, n) with scores of shape (m, k) and weights of shape (m,)."""
        if weight is not None:
            used = weight > 0
            if not used.all():
                Phi, s, weight = Phi[used], s[used], weight[used]
        m, k = s.shape
        if m == 0:
            return
        groups = Groups(np.zeros(m, dtype=np.int64), weight, 1)
        scatter = ScatterLaplacian(groups, np.ones(1), s)
        piece = Statistics.of(Objective(scatter, np.arange(k), 0, 0.0), Phi)
        score_mean = groups.mean(s)[0]
        self.n_weighted += m
        self.square_weight += float(groups.weight @ groups.weight)
        self.log_weight += float(np.log(groups.weight).sum())
        piece.require_finite()
        if self.total is None:
            self.total, self.score_mean = piece, score_mean
            return
        x, y = piece.mean - self.total.mean, score_mean - self.score_mean
        share = piece.mass / (self.total.mass + piece.mass)
        between = self.total.mass * share
        self.total += piece
        self.total.gram += between * np.outer(x, x)
        self.total.cross += between * np.outer(x, y)
        self.total.energy += between * y**2
        np.maximum(self.total.largest, self.total.gram.diagonal(), out=self.total.largest)
        most = self.total.largest_energy
        np.maximum(most, self.total.energy, out=most)
        self.score_mean = self.score_mean + share * y
        self.total.require_finite()

    def statistics(self, query_weighting: Any) -> Statistics:
        """Statistics of the whole ranking, which share the arrays."""
        assert self.total is not None
        n, N = self.n_weighted, self.total.mass
        n_pairs = n * (n - 1) // 2
        if n_pairs == 0:
            return Statistics.empty(self.total.outputs, len(self.total.gram))
        c = float(query_factor(query_weighting, N, (N**2 - self.square_weight) / 2))
        kappa = c * N
        sums = (self.total.gram, self.total.cross, self.total.energy)
        for array in (*sums, self.total.largest, self.total.largest_energy):
            array *= kappa
        return replace(
            self.total,
            n_pairs=n_pairs,
            log_weight=n_pairs * float(np.log(c)) + (n - 1) * self.log_weight,
        )


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
    numbers = (written_integer(value) if isinstance(value, str) else None for value in values)
    return [v if number is None else number for v, number in zip(values, numbers, strict=True)]


def _rows_of_queries(graph: PreferenceGraph) -> Array:
    assert graph.query_codes is not None
    return np.bincount(graph.query_codes, minlength=graph.n_queries)
