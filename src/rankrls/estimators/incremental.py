"""Learning batch by batch: sums of statistics, streams of batches, and methods that need them.

A primal or fixed-basis model is a function of sums over queries
(`rankrls.core.preferences.statistics.Statistics`). The solvers of a fitted model keep these sums,
so a batch can be added or removed exactly, whether the model was fitted by ``fit`` or by batches.
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

from rankrls import _resources
from rankrls._calls import Progress
from rankrls._validation import check_scores, check_weights, show
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import (
    Ledger,
    RankingStatistics,
    Statistics,
    add_batch,
    batch_statistics,
    subtract_batch,
)
from rankrls.core.ridge.models import Model, NystroemModel, solve_statistics
from rankrls.core.spaces.spaces import Basis
from rankrls.estimators.whole_queries import Rows, WholeQueries

__all__ = [
    "Batch",
    "BatchStream",
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


class NotIncrementalError(ValueError, AttributeError):
    """Error for models that cannot be updated; the message says which models can."""


class IncrementalMethod:
    """A method that only exists if the model can be updated exactly.

    scikit-learn calls ``hasattr(estimator, "partial_fit")``; the error gives the reason.
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
    """Statistics of queries, and the ids of these queries.

    Attributes
    ----------
    total : list of Statistics
        Sums of the features, or of the Nyström features of ``basis``: one for each group of
        outputs that share all their graphs.
    basis : Basis or None
    dtype : of the coefficients: float32 if all rows were
    flat : bool
        Whether y is a vector.
    preferences : ndarray of shape (n_outputs,), int
        Number of queries and given pairs that contain a preference, for each output.
    ledger : Ledger
        Shared with the model, so it must be changed last.
    """

    total: list[Statistics]
    basis: Basis | None
    dtype: Any
    flat: bool
    preferences: Array
    ledger: Ledger

    @classmethod
    def nothing(
        cls,
        X: Any,
        basis: Basis | None,
        n_outputs: int,
        flat: bool,
        ledger: Ledger,
        n_folds: int = 1,
    ) -> list[Learned]:
        """Empty statistics for each fold, for batches with rows like X."""
        n = X.shape[1] if basis is None else len(basis.map.kept)
        advice = "use fewer features, or fewer basis vectors (solver='nystroem')"
        copies = 3 if n_folds == 1 else n_folds + 4
        _resources.require("learning batch by batch", n, n, copies=copies, advice=advice)
        outputs, none = np.arange(n_outputs), np.zeros(n_outputs, dtype=np.int64)
        return [
            cls([Statistics.empty(outputs, n)], basis, X.dtype, flat, none, ledger)
            for _ in range(n_folds)
        ]

    @classmethod
    def by(cls, model: Model, flat: bool, preferences: Array, ledger: Ledger) -> Learned:
        """Statistics of a fitted primal or Nyström model, from its solvers."""
        total = [solver.statistics() for solver in model.solvers]
        basis = model.basis if isinstance(model, NystroemModel) else None
        coefficients = model.coef if basis is None else model.dual_coef
        assert coefficients is not None
        return cls(total, basis, coefficients.dtype, flat, preferences, ledger)

    def copy(self) -> Learned:
        """Copy with sums in new arrays."""
        total = [part.copy() for part in self.total]
        return Learned(total, self.basis, self.dtype, self.flat, self.preferences, self.ledger)

    def add(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Add whole queries to the sums; the ledger does not change."""
        self.total = add_batch(self.total, self._statistics(graph, X, loss))
        self.preferences = self.preferences + graph.n_preferences
        self.dtype = np.result_type(self.dtype, X.dtype)

    def subtract(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Subtract whole queries, or raise if they cannot have been added."""
        self.total = subtract_batch(self.total, self._statistics(graph, X, loss))
        self.preferences = self.preferences - graph.n_preferences

    def rescale(self, factor: Array, offset: Array) -> None:
        """Convert the sums to features (Φ − offset) · factor, with arrays of shape (n,)."""
        for part in self.total:
            part.rescale(factor, offset)

    @property
    def n_pairs(self) -> int:
        """Number of edges, summed over outputs."""
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
        """Fit the model, which uses these arrays; None if an output has no preference yet.

        Sums over queries are positive semi-definite, and so are their differences, up to rounding.
        If large sums were subtracted, rounding errors may be large compared with the remaining
        sums, which raises an error.
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
    """Rows with scores, and optionally query ids, weights and feature names; numbered from 1."""

    number: int
    X: Any
    y: Any
    qid: Any = None
    sample_weight: Any = None
    names: Any = None

    def checked(self, n_rows: int, n_outputs: int) -> tuple[Array, Array | None]:
        """Validate scores, shape (m, n_outputs), and weights."""
        y = check_scores(self.y, n_rows).reshape(n_rows, -1)
        if y.shape[1] != n_outputs:
            raise ValueError(f"y has {y.shape[1]} output(s), and {n_outputs} in the first batch")
        weight = self.sample_weight
        return y, None if weight is None else check_weights("sample_weight", weight, n_rows)


def read_batches(batches: Iterable[Any]) -> Iterator[Batch]:
    """Convert batches to `Batch`; those without rows are skipped."""
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
    """Add the number of the batch to errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"batch {number}: {error}") from error


class BatchStream:
    """A stream of batches, which can be read again if it is not a generator.

    Parameters
    ----------
    batches : iterable of batches, or function that returns one
    """

    def __init__(self, batches: Any) -> None:
        self._make = batches if callable(batches) and not hasattr(batches, "__iter__") else None
        self._batches = batches

    @property
    def repeatable(self) -> bool:
        """Whether the batches can be read again (not from a generator)."""
        once = hasattr(self._batches, "__next__")
        return self._make is not None or not once

    def read(self) -> Iterator[Batch]:
        """Read the batches from the start."""
        return read_batches(self._batches if self._make is None else self._make())

    def read_again(self) -> Iterator[Batch]:
        """Read them with features converted by `rescaling`."""
        return self.read()

    def rescaling(self) -> tuple[Array, Array] | None:
        """Factor and offset, of shape (n_features,), to convert the features that were read.

        Sums are then over (X − offset) · factor; None if they are over X.
        """
        return None


class StreamLearner:
    """Sum a stream of batches, in folds of whole queries.

    Parameters
    ----------
    loss : dict
        cost, ties and query_weighting.
    progress : Progress
    n_folds : int
        Queries are assigned to the folds in turn, in the order of the stream.

    Attributes
    ----------
    folds : list of Learned
        Statistics of the complete queries, with one ledger; empty before the first batch.
    """

    def __init__(self, loss: dict[str, str], progress: Progress, n_folds: int = 1) -> None:
        self.folds: list[Learned] = []
        self.n_folds = n_folds
        self._loss = loss
        self._progress = progress
        self._start = time.perf_counter()
        self._n_rows = self._n_batches = 0
        self._ledger = Ledger()
        self._queries: WholeQueries | None = None
        self._ranking: RankingStatistics | None = None  # without qid
        self._low: Any = np.inf
        self._high: Any = -np.inf

    def begin(self, X: Any, batch: Batch, basis: Basis | None) -> None:
        """Store what all batches must share, from the checked rows X of the first batch."""
        y = check_scores(batch.y, X.shape[0])
        k, flat = y.reshape(len(y), -1).shape[1], y.ndim == 1
        self.folds = Learned.nothing(X, basis, k, flat, self._ledger, self.n_folds)
        if batch.qid is not None:
            self._queries = WholeQueries(self._ledger)
            return
        self._ranking = RankingStatistics()
        if self.n_folds > 1:
            raise ValueError("it has no qid: folds are of whole queries, so that qid is needed")
        if self._loss["cost"] != "magnitude" or self._loss["ties"] != "keep":
            raise ValueError(
                "it has no qid, so that all batches are one ranking, in which a row is compared "
                "with rows of other batches: that needs cost='magnitude' and ties='keep', and "
                f"cost is {self._loss['cost']!r}, ties {self._loss['ties']!r}. Give qid, or fit "
                "all rows at once"
            )

    def add(self, X: Any, batch: Batch) -> None:
        """Add a batch with checked rows X."""
        assert self.folds
        n_outputs = len(self.folds[0].preferences)
        y, weight = batch.checked(X.shape[0], n_outputs)
        if (batch.qid is None) != (self._ranking is not None):
            has, had = ("no", "one") if batch.qid is None else ("a", "none")
            raise ValueError(f"it has {has} qid, and the first batch had {had}: give all or none")
        for learned in self.folds:
            learned.dtype = np.result_type(learned.dtype, X.dtype)
        self._ledger.weighted |= weight is not None
        if self._queries is None:
            self._add_ranking(X, y, weight)
        else:
            self._learn(self._queries.add(X, y, batch.qid, weight))
        self._n_rows += len(y)
        self._n_batches += 1
        rate = self._n_rows / max(time.perf_counter() - self._start, 1e-9)
        self._progress(f"batch {batch.number}: {self._n_rows:,} rows so far, {rate:,.0f} rows/s")

    def finish(self) -> list[Learned]:
        """Complete the last query and return the statistics of each fold."""
        if not self.folds:
            raise ValueError("there is no batch with rows to learn from")
        if self._queries is not None:
            self._learn(self._queries.end())
        first, n_queries = self.folds[0], self._ledger.n_queries
        if self._ranking is not None:
            self._ledger.add_ranking(self._n_rows, 0)
            first.preferences = first.preferences + (self._low < self._high)
            if self._ranking.total is not None:
                part = self._ranking.statistics(self._loss["query_weighting"])
                first.total = [part]
        elif n_queries < self.n_folds:
            raise ValueError(
                f"cv={self.n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
            )
        preferences = np.sum([learned.preferences for learned in self.folds], axis=0)
        if not (preferences > 0).all():
            output = int(np.argmin(preferences))
            where = "" if first.flat else f" in output (column) {output} of y"
            raise ValueError(
                f"no query has a pair to learn from{where}: in {self._n_rows:,} rows and "
                f"{self._ledger.n_queries:,} queries of {self._n_batches:,} batches, all scores "
                "of a query are equal, or it has a single row with weight"
            )
        n_pairs = sum(learned.n_pairs for learned in self.folds)
        self._progress(f"{self._n_rows:,} rows, {n_pairs:,} pairs: solving")
        return self.folds

    def _add_ranking(self, X: Any, y: Array, weight: Array | None) -> None:
        assert self._ranking is not None
        self._ranking.add(self.folds[0].features(X), y, weight)
        used = y if weight is None else y[weight > 0]
        self._low = np.minimum(self._low, used.min(axis=0, initial=np.inf))
        self._high = np.maximum(self._high, used.max(axis=0, initial=-np.inf))

    def _learn(self, ended: Iterable[Rows]) -> None:
        """Add whole queries."""
        for rows in ended:
            for fold, mine in rows.by_fold(self.n_folds):
                self.folds[fold].add(mine.graph(), mine.X, self._loss)
