"""Exact updates: models of sums over queries, to which queries are added or from which they go.

A primal or fixed-basis model is a function of sums over queries
(`rankrls.core.preferences.statistics.Statistics`). The solvers of a fitted model keep these sums,
so a batch can be added or removed exactly, whether the model was fitted by ``fit`` or by batches.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import date
from types import MethodType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls import _resources
from rankrls._calls import unchanged_on_error, warn
from rankrls._validation import check_positive, show, written_integer
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import (
    RankingStatistics,
    Statistics,
    add_batch,
    batch_statistics,
)
from rankrls.core.ridge.models import (
    SINGLE_ERROR,
    FittedFunction,
    lost_in_single,
    warn_lost_digits,
)
from rankrls.core.spaces.spaces import Basis, Kernel, check_kernel_values, choose_basis
from rankrls.estimators.ranker import Preferences, require_every_output

Array = NDArray[Any]

#: Forgetting is refused if it leaves a larger relative error than this in the coefficients.
MAX_ERROR = 1e-8

#: What is left of digits is looked at only if sums were so many times larger once.
MUCH_LARGER = 1e3

#: Relative tolerance of checksums, at least, and as a multiple of the rounding error of the rows.
#: It allows for other orders of summation and for rescaled features, but not for other values.
CHECKSUM_TOLERANCE, CHECKSUM_ROUNDINGS = 1e-8, 1e3

ALTERED = (
    "was added with other features, scores or weights than those that are to be forgotten; forget "
    "rows as they were added"
)


class NotIncrementalError(ValueError, AttributeError):
    """Error for models that cannot be updated; the message says which models can."""


class IncrementalMethod:
    """A method that only exists, for ``hasattr``, if the model can be updated exactly."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        reason = instance._why_not_incremental()
        if reason:
            raise NotIncrementalError(f"{self.method.__name__}: {reason}")
        return MethodType(self.method, instance)


def query_keys(labels: Any) -> list[str]:
    """Convert query ids to text, the same for 2, 2.0 and "2": readers of files return either."""
    # The hash values of text are not predictable, so that no file can make lookups slow.
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        return list(map(str, values))
    return [value if type(value) is str else _key(value) for value in values]


def _key(label: Any) -> str:
    if isinstance(label, np.datetime64 | date):
        zone = getattr(label, "tzinfo", None)
        return f"date {label if zone else np.array(label, 'M8[us]')}"
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
    def of(self, X: Any, y: Array, codes: Any, weight: Array | None, n_queries: int) -> Array:
        """Numbers of queries; y of shape (m, k), query ``codes`` of shape (m,)."""
        rows = np.asarray(X @ self.v.astype(X.dtype), dtype=np.float64)
        rows += 1 + self.shift
        rows *= 1 + y @ self.u
        return np.bincount(codes, rows if weight is None else rows * weight, n_queries)


class SeenQueries:
    """Queries, rankings without id, and given pairs that were added.

    ``rankings`` has the numbers of rows and of given pairs, and the checksum (NaN if unknown), of
    each call without qid; ``joined`` the keys of the queries of each call with given pairs in
    addition to its scores, and their number: such queries can only be forgotten together.
    ``projection`` computes checksums; ``weighted``: whether rows had sample weights.
    """

    def __init__(self) -> None:
        self.rankings: list[tuple[int, int, float]] = []
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
        y, weight, codes = graph.scores, graph.sample_weight, cast(Array, graph.query_codes)
        labels, n_pairs, sums = graph.query_labels, graph.n_given_pairs, None
        self.weighted |= weight is not None
        if X is not None and y is not None:
            self.projection = self.projection or Projection.like(X, y)
            sums = self.projection.of(X, y, codes, weight, graph.n_queries)
        if not graph.has_qid:
            self.rankings.append(
                (graph.n_rows, n_pairs, np.nan if sums is None else float(sums[0]))
            )
            return
        self.add(labels, np.bincount(codes, minlength=len(labels)), sums)
        if n_pairs:
            self.joined.append((frozenset(query_keys(labels)), n_pairs))

    def check_new(self, keys: Sequence[str], advice: str) -> None:
        """Raise an error if a query is already recorded."""
        if not self.queries.keys().isdisjoint(keys):
            again = next(key for key in keys if key in self.queries)
            raise ValueError(f"{show_query(again)} {advice}")

    def remove(self, graph: PreferenceGraph, X: Any, rounding: float) -> None:
        """Remove the contents of ``graph``; raise an error unless they were added as they are."""
        n_pairs = graph.n_given_pairs
        if not graph.has_qid:
            alike = [one for one in self.rankings if one[:2] == (graph.n_rows, n_pairs)]
            if not alike:
                raise ValueError(
                    f"no ranking of {graph.n_rows} rows was added without qid, with {n_pairs} "
                    "given pairs; forget the rows (and pairs) of one earlier call, or give qid"
                )
            same = [one for one in alike if not self._altered(X, graph, one[2:], rounding)[0]]
            if not same:
                raise ValueError(f"a ranking of {graph.n_rows} rows {ALTERED}")
            self.rankings.remove(same[0])
            return
        keys, codes = query_keys(graph.query_labels), cast(Array, graph.query_codes)
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
        altered = self._altered(X, graph, [self.queries[key][1] for key in keys], rounding)
        if altered.any():
            raise ValueError(f"{show_query(keys[int(altered.argmax())])} {ALTERED}")
        for key in keys:
            del self.queries[key]
        self.joined = [entry for entry in self.joined if entry[0].isdisjoint(keys)]

    def _altered(self, X: Any, graph: PreferenceGraph, known: Any, rounding: float) -> Array:
        """Whether the rows of each query have another checksum than the one known, unless NaN."""
        own, y, known = self.projection, graph.scores, np.asarray(known)
        if own is None or y is None:
            return np.zeros(len(known), dtype=bool)
        of_rows = (graph.query_codes, graph.sample_weight, len(known))
        # Rounding errors are relative to the sums of absolute values.
        positive = Projection(abs(own.v), abs(own.u), abs(own.shift)).of(abs(X), abs(y), *of_rows)
        tolerance = max(CHECKSUM_TOLERANCE, CHECKSUM_ROUNDINGS * rounding) * positive
        altered: Array = np.abs(own.of(X, y, *of_rows) - known) > tolerance
        return altered


@dataclass
class Learned:
    """Sums over queries, and the queries themselves.

    ``total`` has the sums of the features, or of the Nyström features of ``basis``, for each group
    of outputs that share all their graphs; ``preferences`` is the number of queries and given
    pairs with a preference, for each output; ``dtype`` is float32 if all rows were; ``ranking``
    are the moments of the ``n_rows`` without qid that come in parts and are one ranking.
    """

    total: list[Statistics]
    basis: Basis | None
    dtype: Any
    flat: bool
    preferences: Array
    seen: SeenQueries
    ranking: RankingStatistics | None = None
    n_rows: int = 0

    @classmethod
    def nothing(
        cls, n: int, basis: Basis | None, dtype: Any, n_outputs: int, flat: bool, with_qid: bool
    ) -> Learned:
        """Empty sums over rows of n features."""
        n = n if basis is None else len(basis.positions)
        none = Statistics.empty(np.arange(n_outputs), n)
        counts = np.zeros(n_outputs, dtype=np.int64)
        ranking = None if with_qid else RankingStatistics()
        return cls([none], basis, dtype, flat, counts, SeenQueries(), ranking)

    def copy(self) -> Learned:
        """Copy in new arrays."""
        total, ranking = [part.copy() for part in self.total], deepcopy(self.ranking)
        return replace(self, total=total, seen=self.seen.copy(), ranking=ranking)

    def add(self, graph: PreferenceGraph, X: Any, loss: Loss, sign: int = 1) -> None:
        """Add rows to the sums, or subtract them (sign −1); ``seen`` does not change."""
        self.n_rows += graph.n_rows
        if sign > 0:
            self.dtype = np.result_type(self.dtype, X.dtype)
        if self.ranking is not None:
            assert graph.scores is not None
            more = RankingStatistics.of(self.features(X), graph.scores, graph.sample_weight)
            self.ranking = self.ranking.merge(more)
            return
        parts = batch_statistics(graph, self.features(X), loss)
        rounding = float(np.finfo(X.dtype).eps)
        if self.basis is not None:
            rounding = max(rounding, self.basis.rounding)
        for part in parts:
            part.rounding = max(part.rounding, rounding)
        self.total = add_batch(self.total, parts, sign)
        self.preferences = self.preferences + sign * graph.n_preferences

    def merge(self, other: Learned) -> None:
        """Add the sums of other rows, whose arrays may be overwritten."""
        self.total = add_batch(self.total, other.total)
        self.preferences = self.preferences + other.preferences
        self.n_rows += other.n_rows
        if self.ranking is not None and other.ranking is not None:
            self.ranking = self.ranking.merge(other.ranking)

    def end_ranking(self, loss: Loss) -> None:
        """Make sums of the parts of a ranking, if there is one, which are complete now."""
        if self.ranking is not None:
            self.seen.rankings.append((self.n_rows, 0, np.nan))
            self.preferences = self.preferences + self.ranking.n_preferences
            if self.ranking.total is not None:
                self.total = [self.ranking.statistics(loss.query_weighting)]
            self.ranking = None

    def rescale(self, factor: Array, offset: Array) -> None:
        """Convert to features (Φ − offset) · factor, with arrays of shape (n,)."""
        for part in self.total:
            part.rescale(factor, offset)
        if self.seen.projection is not None:
            self.seen.projection = self.seen.projection.rescaled(factor, offset)

    @property
    def n_queries(self) -> int:
        """Number of queries, and of rankings without id."""
        return self.seen.n_queries

    @property
    def has_qid(self) -> bool:
        """Whether some query has an id."""
        return self.n_queries > len(self.seen.rankings)

    @property
    def n_pairs(self) -> int:
        """Number of edges, summed over outputs."""
        return sum(part.n_pairs * len(part.outputs) for part in self.total)

    def features(self, X: Any) -> Any:
        """Φ of shape (m, n): X itself, or the Nyström features."""
        return X if self.basis is None else self.basis.features(X)

    def model(self, alpha: float, names: Any = None) -> FittedFunction | None:
        """Fit the model, which uses these arrays; None if an output has no preference yet."""
        if not (self.preferences > 0).all():
            return None
        # Differences of sums may have rounding errors that are large compared with what is left.
        larger = max(part.lost_digits(alpha) for part in self.total)  # before they are overwritten
        if self.basis is None and (lost := lost_in_single(self.total, alpha)) > SINGLE_ERROR:
            warn(
                f"products of float32 features leave relative errors of about {min(lost, 1.0):.1g} "
                f"in the coefficients at alpha={alpha:g}: pass the features as float64, scale "
                "those that depend on each other (StandardScaler), or increase alpha"
            )
        model, cause = None, None
        try:
            grid = np.array([alpha])
            model = FittedFunction.of_statistics(self.total, grid, self.dtype, self.basis)
            if self.basis is None:
                loss = max(solver.factorization.loss for solver in model.solvers)
                scales = np.sqrt(self.total[0].largest)[None]
                warn_lost_digits(loss, 0.0, alpha, None, scales, names)
        except NotPositiveError as error:
            cause = error
        if model is not None and larger > MUCH_LARGER:
            condition = max(s.factorization.condition(alpha) for s in model.solvers)
            if float(np.finfo(np.float64).eps) * larger * condition > MAX_ERROR:
                model = None
        if model is None:
            raise ValueError(
                "what was forgotten has left rounding errors in the sums of what stays, "
                f"which alpha={alpha:g} does not cover: the model was left as it was before this "
                "call. Fit a new one to the rows that stay, or use a larger alpha from the start"
            ) from cause
        return model


def require_learned(folds: Sequence[Learned]) -> None:
    """Raise unless every output has a preference in some fold; the first fold has all queries."""
    preferences = np.sum([fold.preferences for fold in folds], axis=0)
    require_every_output(preferences, sum(fold.n_rows for fold in folds), folds[0].n_queries)


def add_to_folds(
    folds: Sequence[Learned], graph: PreferenceGraph, X: Any, fold_of: Array | None, loss: Loss
) -> None:
    """Add whole queries to the sums of their folds, ``fold_of`` each row (None: of the first)."""
    if fold_of is None:
        folds[0].add(graph, X, loss)
        return
    for number in np.unique(fold_of):
        rows = as_slice(np.flatnonzero(fold_of == number))
        folds[number].add(graph[rows], X[rows], loss)


def as_slice(rows: Array) -> Any:
    """A slice, which avoids a copy, if these row numbers are consecutive."""
    together = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


def learned_by(ranker: Any) -> Learned | None:
    """Copy of the sums and queries of a ranker; None if there are none."""
    if not hasattr(ranker, "_model"):
        return ranker._pending.copy() if hasattr(ranker, "_pending") else None
    if ranker.solver_ not in ("primal", "nystroem"):
        choice = ", which solver='auto' chose," if ranker.solver == "auto" else ""
        raise ValueError(
            f"the model was fitted with solver={ranker.solver_!r}{choice} and has no sums over "
            "queries, so it cannot be updated: fit it with solver='primal', or with a basis"
        )
    if not hasattr(ranker, "_seen"):
        raise ValueError(
            "the model does not contain its sums over queries (saved with uncertainty=False?): "
            "to use partial_fit and forget, fit it again"
        )
    model = ranker._model
    if model.pair_coef is not None:
        raise ValueError(
            "the model was fitted with pair_features, whose sums are not kept: fit it again "
            "to all pairs"
        )
    total = [solver.statistics() for solver in model.solvers]
    dtype = (model.coef if model.basis is None else model.dual_coef).dtype
    seen = ranker._seen.copy()
    return Learned(total, model.basis, dtype, ranker._flat, ranker._preferences, seen)


def update(ranker: Any, sign: int, X: Any, preferences: Preferences) -> None:
    """Add queries to a ranker (sign 1), or remove them (sign −1), and solve again."""
    with unchanged_on_error(ranker):
        learned = learned_by(ranker)
        first = learned is None
        if first and sign < 0:
            check_is_fitted(ranker)
        kernel = check_terms(ranker, first)
        preferences.check_names(X)
        X = ranker._check_rows(X, reset=first)
        graph = preferences.graph(X.shape[0])
        if learned is None:
            (learned,) = empty_sums(ranker, kernel, X, graph)
        expected, seen = len(learned.preferences), learned.seen
        if graph.n_outputs != expected:
            raise ValueError(f"the model has {expected} output(s), y has {graph.n_outputs}")
        if sign < 0:
            eps = float(np.finfo(X.dtype).eps)
            seen.remove(graph, X, max(eps, *(part.rounding for part in learned.total)))
        else:
            if graph.has_qid:
                seen.check_new(
                    query_keys(graph.query_labels),
                    "was added before: give all rows of a query at once (to change a query, forget "
                    "it first, with the rows that it was added with)",
                )
            if seen.weighted and graph.scores is not None and graph.sample_weight is None:
                warn(
                    "the model has learned from rows with sample_weight, and these rows have none: "
                    "their weights are 1. Pass sample_weight, ones if this is what is meant"
                )
            seen.add_graph(graph, X)
        learned.add(graph, X, ranker._loss, sign)
        store_learned(ranker, learned, kernel)


def rescale_features(ranker: Any, factor: Array, offset: Array) -> None:
    """Convert a primal model to features (X − offset) · factor, exactly, from its sums."""
    with unchanged_on_error(ranker):
        kernel, learned = check_terms(ranker, first=False), learned_by(ranker)
        assert learned is not None
        learned.rescale(factor, offset)
        store_learned(ranker, learned, kernel)


def store_learned(ranker: Any, learned: Learned, kernel: Kernel) -> None:
    """Solve, and store the model and its queries."""
    model = learned.model(float(ranker._alpha), getattr(ranker, "feature_names_in_", None))
    seen = learned.seen
    # Attributes of a copy are set one by one, and all of them become those of the ranker at once:
    # threads that predict meanwhile see the old model or the new one.
    new = object.__new__(type(ranker))
    new.__dict__.update(ranker.__dict__)
    solver = "primal" if learned.basis is None else "nystroem"
    new._store_fit(model, learned, learned.n_pairs, solver, History(n_iter=1))
    if model is None:
        new._pending = learned
    new._seen, new._preferences = seen, learned.preferences
    new._learned_with = ranker._terms(kernel)
    ranker.__dict__ = new.__dict__


def check_terms(ranker: Any, first: bool) -> Kernel:
    """Check the parameters, and that they have not changed since the first call."""
    if hasattr(ranker, "alpha"):
        check_positive("alpha", ranker.alpha)
    kernel = ranker._check_options()
    for name, value in {} if first else ranker._terms(kernel).items():
        before = ranker._learned_with[name]
        try:
            changed = bool(value != before)
        except ValueError:  # arrays inside a dict of parameters are not compared
            changed = False
        if changed:
            raise ValueError(
                f"{name} was changed from {show(before)} to {show(value)} after the first call: "
                "set it back, or fit again"
            )
    return kernel


def empty_sums(
    ranker: Any,
    kernel: Kernel,
    X: Any,
    graph: PreferenceGraph,
    basis_rows: Any = None,
    n_folds: int = 1,
    with_qid: bool = True,
) -> list[Learned]:
    """Sums of each fold before the first rows X, which decide on the outputs and the basis."""
    basis, n = None, X.shape[1]
    if ranker.basis is not None or ranker.solver == "nystroem" or basis_rows is not None:
        if ranker.solver == "primal":
            raise ValueError("basis belongs to solver='nystroem'; got solver='primal'")
        if basis_rows is not None:
            rows = ranker._check_rows(basis_rows)
            basis = Basis.from_rows(kernel, rows, np.arange(rows.shape[0]))
        else:
            if kernel.precomputed:
                check_kernel_values(X, ranker.basis)
            rng = check_random_state(ranker.random_state)
            basis = Basis.of(kernel, X, choose_basis(ranker.basis, X.shape[0], rng))
        n = len(basis.positions)
    advice = "use fewer features, or fewer basis vectors (solver='nystroem')"
    copies = 3 if n_folds == 1 else n_folds + 4
    _resources.require("learning batch by batch", n, n, copies=copies, advice=advice)
    ranker._warn_about_columns(kernel, X, graph)
    shape = X.shape[1], basis, X.dtype, graph.n_outputs, graph.flat, with_qid
    return [Learned.nothing(*shape) for _ in range(n_folds)]
