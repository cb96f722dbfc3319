"""Learning batch by batch: sums of statistics, streams of batches, and methods that need them.

A primal or fixed-basis model is a function of sums over queries
(`rankrls.core.preferences.statistics.Statistics`). The solvers of a fitted model still hold these
sums, so that a batch can be added or taken away exactly, whatever fitted the model.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _memory
from rankrls._calls import Progress
from rankrls._validation import check_scores, check_weights, encode_qid, show
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import (
    Ledger,
    RankingStatistics,
    Statistics,
    add_batch,
    as_list,
    batch_statistics,
    subtract_batch,
)
from rankrls.core.ridge.models import Model, NystroemModel
from rankrls.core.ridge.problem import solve_statistics
from rankrls.core.spaces.spaces import Basis

__all__ = [
    "Batch",
    "IncrementalMethod",
    "Learned",
    "NotIncrementalError",
    "StreamLearner",
    "named_batch",
    "read_batches",
]

Array = NDArray[Any]

#: Forgetting is refused if it leaves a larger relative error than this in the coefficients.
MAX_ERROR = 1e-8

#: What is left of digits is looked at only if sums were so many times larger once.
MUCH_LARGER = 1e3

FORMS = "(X, y), (X, y, qid), or a mapping with data, target and qid"

COMES_BACK = (
    "comes back after its rows had ended in an earlier batch. Only the last query of a batch may "
    "go on in the next one: sort the data by query, or give every query in one batch"
)


class NotIncrementalError(ValueError, AttributeError):
    """The model is not one that can learn batch by batch; the message says which one can."""


class IncrementalMethod:
    """A method that exists only where the model can be updated exactly.

    scikit-learn asks ``hasattr(estimator, "partial_fit")``; the error that answers it says why.
    """

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


@dataclass
class Learned:
    """Statistics of queries, and which queries they are of.

    Attributes
    ----------
    total : list of Statistics
        Sums of the features, or of the Nyström features of ``basis``: one for every group of
        outputs that have shared all their graphs.
    basis : Basis or None
    dtype : of the coefficients: float32 if all rows were
    flat : bool
        Whether y is a vector.
    preferences : ndarray of shape (n_outputs,), int
        Queries and given pairs that say something, for every output.
    ledger : Ledger
        Shared with the model, so that it is changed last.
    """

    total: list[Statistics]
    basis: Basis | None
    dtype: Any
    flat: bool
    preferences: Array
    ledger: Ledger

    @classmethod
    def nothing(cls, X: Any, basis: Basis | None, n_outputs: int, flat: bool) -> Learned:
        """Before the first batch, which has rows like X."""
        n = X.shape[1] if basis is None else len(basis.map.kept)
        advice = "use fewer features, or fewer basis vectors (solver='nystroem')"
        _memory.require("learning batch by batch", n, n, copies=3, advice=advice)
        total = [Statistics.empty(np.arange(n_outputs), n)]
        preferences = np.zeros(n_outputs, dtype=np.int64)
        return cls(total, basis, X.dtype, flat, preferences, Ledger())

    @classmethod
    def by(cls, model: Model, flat: bool, preferences: Array, ledger: Ledger) -> Learned:
        """What a primal or Nyström model has learned: its solvers hold the sums."""
        total = [solver.statistics() for solver in model.solvers]
        basis = model.basis if isinstance(model, NystroemModel) else None
        coefficients = model.coef if basis is None else model.dual_coef
        assert coefficients is not None
        return cls(total, basis, coefficients.dtype, flat, preferences, ledger)

    def copy(self) -> Learned:
        """The same with sums in new arrays."""
        total = [part.copy() for part in self.total]
        return Learned(total, self.basis, self.dtype, self.flat, self.preferences, self.ledger)

    def add(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Add whole queries to the sums (the ledger is left alone)."""
        self.total = add_batch(self.total, self._statistics(graph, X, loss))
        self.preferences = self.preferences + graph.n_preferences
        self.dtype = np.result_type(self.dtype, X.dtype)

    def subtract(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Take them away again, or raise where they cannot have been added."""
        self.total = subtract_batch(self.total, self._statistics(graph, X, loss))
        self.preferences = self.preferences - graph.n_preferences

    @property
    def n_pairs(self) -> int:
        """Edges of all outputs together."""
        return sum(part.n_pairs * len(part.outputs) for part in self.total)

    def features(self, X: Any) -> Any:
        """Φ of shape (m, n): X itself, or the Nyström features."""
        return X if self.basis is None else self.basis.features(X)

    def _statistics(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> list[Statistics]:
        parts = batch_statistics(graph, self.features(X), loss)
        for part in parts:
            part.rounding = max(part.rounding, float(np.finfo(X.dtype).eps))
            if self.basis is not None:
                part.rounding = max(part.rounding, self.basis.map.rounding)
        return parts

    def model(self, alpha: float, names: Any = None) -> Model | None:
        """The model, which takes over the arrays; None if an output has no preference yet.

        Sums of queries are positive semi-definite, and differences of such sums but for rounding.
        Where large sums were taken away, what they have left of rounding may be large beside the
        sums of the rows that stay: that is refused.
        """
        if not (self.preferences > 0).all():
            return None
        larger = max(part.lost_digits(alpha) for part in self.total)
        try:
            model = solve_statistics(self.total, self.basis, np.array([alpha]), self.dtype, names)
        except NotPositiveError as error:
            raise _rounding_left(f"of the size of {error.needed:.2g}", alpha) from error
        if larger > MUCH_LARGER:
            condition = max(s.factorization.condition(alpha) for s in model.solvers)
            error_left = float(np.finfo(np.float64).eps) * larger * condition
            if error_left > MAX_ERROR:
                usual = f"that are {larger:.2g} times as large as usual"
                raise _rounding_left(
                    usual if np.isfinite(larger) else "that are larger than all that is left", alpha
                )
        return model


def _rounding_left(size: str, alpha: float) -> ValueError:
    return ValueError(
        f"what was forgotten has left rounding errors {size} in the sums of what stays, which "
        f"alpha={alpha:g} does not cover: the model was left as it was before this call. Fit a "
        "new one to the rows that stay, or use a larger alpha from the start"
    )


class Batch(NamedTuple):
    """Rows with scores, and query ids, weights and feature names, or None; counted from 1."""

    number: int
    X: Any
    y: Any
    qid: Any = None
    sample_weight: Any = None
    names: Any = None


def read_batches(batches: Iterable[Any]) -> Iterator[Batch]:
    """Bring batches into one form; those without rows are left out."""
    if isinstance(batches, str | bytes | os.PathLike):
        raise ValueError(
            f"batches must be an iterable of {FORMS}; got {show(batches)}. To read a file: "
            "rankrls.datasets.iter_letor(path) or iter_parquet(path, target=..., qid=...)"
        )
    single = isinstance(batches, Mapping) or hasattr(batches, "shape")
    if single or not hasattr(batches, "__iter__"):
        raise ValueError(
            f"batches must be an iterable of {FORMS}; got a {type(batches).__name__}"
            + (" (for one batch: [batch])" if single else "")
        )
    for number, batch in enumerate(batches, 1):
        with named_batch(number):
            read = _read(number, batch)
            n_rows = read.X.shape[0] if hasattr(read.X, "shape") else len(read.X)
        if n_rows:
            yield read


def _read(number: int, batch: Any) -> Batch:
    if isinstance(batch, Mapping):
        missing = [name for name in ("data", "target") if batch.get(name) is None]
        if missing:
            raise ValueError(f"it has no {missing[0]!r}; a batch is {FORMS}")
        parts = ("data", "target", "qid", "sample_weight", "feature_names")
        return Batch(number, *(batch.get(part) for part in parts))
    if isinstance(batch, tuple) and len(batch) in (2, 3):
        return Batch(number, *batch)
    what = f"a tuple of {len(batch)}" if isinstance(batch, tuple) else f"a {type(batch).__name__}"
    raise ValueError(f"it is {what}; a batch is {FORMS}")


@contextmanager
def named_batch(number: int) -> Iterator[None]:
    """Say in which batch something is wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"batch {number}: {error}") from error


class _Rows(NamedTuple):
    """Some rows of one or more queries."""

    X: Any
    y: Array
    codes: Array
    weight: Array | None

    def take(self, rows: Any) -> _Rows:
        weight = None if self.weight is None else self.weight[rows]
        return _Rows(self.X[rows], self.y[rows], self.codes[rows], weight)


class StreamLearner:
    """Adds up a stream of batches.

    Parameters
    ----------
    loss : dict
        cost, ties and query_weighting.
    progress : Progress

    Attributes
    ----------
    learned : Learned or None
        What was learned from the queries that have ended; None before the first batch.
    """

    def __init__(self, loss: dict[str, str], progress: Progress) -> None:
        self.learned: Learned | None = None
        self._loss = loss
        self._progress = progress
        self._start = time.perf_counter()
        self._n_rows = self._n_batches = 0
        self._open: list[_Rows] = []  # pieces of a query that may go on
        self._label: Any = None
        self._ranking: RankingStatistics | None = None  # without qid
        self._low: Any = np.inf
        self._high: Any = -np.inf

    def begin(self, X: Any, batch: Batch, basis: Basis | None) -> None:
        """Take from the first batch what all must have in common; X are its rows, checked."""
        y = check_scores(batch.y, X.shape[0])
        self.learned = Learned.nothing(X, basis, y.reshape(len(y), -1).shape[1], y.ndim == 1)
        if batch.qid is not None:
            return
        self._ranking = RankingStatistics()
        if self._loss["cost"] != "magnitude" or self._loss["ties"] != "keep":
            raise ValueError(
                "it has no qid, so that all batches are one ranking, in which a row is compared "
                "with rows of other batches: that needs cost='magnitude' and ties='keep', and "
                f"cost is {self._loss['cost']!r}, ties {self._loss['ties']!r}. Give qid, or fit "
                "all rows at once"
            )

    def add(self, X: Any, batch: Batch) -> None:
        """Add a batch, with X its rows, checked."""
        assert self.learned is not None
        m = X.shape[0]
        y = check_scores(batch.y, m).reshape(m, -1)
        if y.shape[1] != len(self.learned.preferences):
            expected = len(self.learned.preferences)
            raise ValueError(f"y has {y.shape[1]} output(s), and {expected} in the first batch")
        weight = batch.sample_weight
        weight = None if weight is None else check_weights("sample_weight", weight, m)
        if (batch.qid is None) != (self._ranking is not None):
            has, had = ("no", "one") if batch.qid is None else ("a", "none")
            raise ValueError(f"it has {has} qid, and the first batch had {had}: give all or none")
        self.learned.dtype = np.result_type(self.learned.dtype, X.dtype)
        if batch.qid is None:
            self._add_ranking(X, y, weight)
        else:
            self._add_queries(X, y, batch.qid, weight)
        self._n_rows += m
        self._n_batches += 1
        rate = self._n_rows / max(time.perf_counter() - self._start, 1e-9)
        self._progress(f"batch {batch.number}: {self._n_rows:,} rows so far, {rate:,.0f} rows/s")

    def finish(self) -> Learned:
        """What was learned from all batches; nothing can be added after."""
        if self.learned is None:
            raise ValueError("there is no batch with rows to learn from")
        self._close()
        learned = self.learned
        if self._ranking is not None:
            learned.ledger.add_ranking(self._n_rows, 0)
            learned.preferences = learned.preferences + (self._low < self._high)
            if self._ranking.total is not None:
                part = self._ranking.statistics(self._loss["query_weighting"])
                learned.total = [part]
        if not (learned.preferences > 0).all():
            output = int(np.argmin(learned.preferences))
            where = "" if learned.flat else f" in output (column) {output} of y"
            raise ValueError(
                f"no query has a pair to learn from{where}: in {self._n_rows:,} rows and "
                f"{learned.ledger.n_queries:,} queries of {self._n_batches:,} batches, all scores "
                "of a query are equal, or it has a single row with weight"
            )
        self._progress(f"{self._n_rows:,} rows, {learned.n_pairs:,} pairs: solving")
        return learned

    def _add_ranking(self, X: Any, y: Array, weight: Array | None) -> None:
        assert self.learned is not None
        assert self._ranking is not None
        self._ranking.add(self.learned.features(X), y, weight)
        used = y if weight is None else y[weight > 0]
        self._low = np.minimum(self._low, used.min(axis=0, initial=np.inf))
        self._high = np.maximum(self._high, used.max(axis=0, initial=-np.inf))

    def _add_queries(self, X: Any, y: Array, qid: Any, weight: Array | None) -> None:
        assert self.learned is not None
        ledger = self.learned.ledger
        queries = encode_qid(qid, len(y))
        codes, labels = queries.codes, as_list(queries.labels)
        ledger.check_unseen(labels, COMES_BACK)
        rows = _Rows(X, y, codes, weight)
        last = int(codes[-1])
        goes_on = labels.index(self._label) if self._open and self._label in labels else -1
        if goes_on >= 0:
            self._open.append(rows.take(np.flatnonzero(codes == goes_on)))
        if goes_on != last:
            self._close()
            # In arrays of its own (row numbers, not a slice): the batch itself is not kept.
            self._open, self._label = [rows.take(np.flatnonzero(codes == last))], labels[last]
        inside = rows.take(_as_slice((codes != goes_on) & (codes != last)))
        if len(inside.y):
            counts = np.bincount(inside.codes)
            ended = np.flatnonzero(counts)
            ledger.add_queries([labels[code] for code in ended], counts[ended])
            self._learn(inside)

    def _close(self) -> None:
        """Learn from the open query: it has ended."""
        if not self._open:
            return
        assert self.learned is not None
        whole = _joined(self._open)
        self.learned.ledger.add_queries([self._label], np.array([len(whole.y)]))
        self._open, self._label = [], None
        self._learn(whole)

    def _learn(self, rows: _Rows) -> None:
        """Add whole queries."""
        assert self.learned is not None
        y = rows.y[:, 0] if self.learned.flat else rows.y
        graph = PreferenceGraph.from_scores(y, qid=rows.codes, sample_weight=rows.weight)
        self.learned.add(graph, rows.X, self._loss)


def _as_slice(mask: Array) -> Any:
    """A slice, which copies nothing, if the rows stand together; row numbers otherwise."""
    rows = np.flatnonzero(mask)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _joined(pieces: list[_Rows]) -> _Rows:
    """The pieces of one query together."""
    if len(pieces) == 1:
        return pieces[0]
    if any(sparse.issparse(piece.X) for piece in pieces):
        X = sparse.vstack([sparse.csr_array(piece.X) for piece in pieces], format="csr")
    else:
        X = np.concatenate([piece.X for piece in pieces])
    y = np.concatenate([piece.y for piece in pieces])
    weight = None
    if any(piece.weight is not None for piece in pieces):
        filled = [np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces]
        weight = np.concatenate(filled)
    return _Rows(X, y, np.zeros(len(y), dtype=np.int64), weight)
