"""Learning batch by batch: sums of statistics, streams of batches, and ``IncrementalRanker``.

A primal or fixed-basis model is a function of sums over queries
(`rankrls.core.preferences.statistics.Statistics`). The solvers of a fitted model keep these sums,
so a batch can be added or removed exactly, whether the model was fitted by ``fit`` or by batches.
"""

from __future__ import annotations

import functools
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import _resources
from rankrls._calls import Progress, names_lasting_queries, unchanged_on_error, warn
from rankrls._frames import check_feature_names, check_same_rows, clear_errors, columns_in_order
from rankrls._validation import (
    check_length,
    check_positive,
    check_scores,
    check_weights,
    encode_qid,
    refuse_lazy,
    show,
)
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.costs import Loss
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
from rankrls.core.spaces.spaces import Basis, Kernel, check_kernel_values, choose_basis
from rankrls.estimators.ranker import PosteriorMixin, Ranker, canonical, graph_from_arguments
from rankrls.estimators.whole_queries import Rows, WholeQueries, joined

__all__ = [
    "Batch",
    "BatchStream",
    "IncrementalMethod",
    "IncrementalRanker",
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

SEEN = (
    "was given in an earlier call: pass all rows of a query in one call (to change a query, forget "
    "it first, with the rows that it was added with)"
)

UNWEIGHTED = (
    "the model has learned from rows with sample_weight, and these rows have none: their weights "
    "are 1. Pass sample_weight, ones if this is what is meant"
)

#: Rows of a stream are summed by folds when they have this many features in all: with fewer, most
#: of the time would go to everything but the products.
ENTRIES = 1 << 22

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

    def add(self, graph: PreferenceGraph, X: Any, loss: Loss) -> None:
        """Add whole queries to the sums; the ledger does not change."""
        self.total = add_batch(self.total, self._statistics(graph, X, loss))
        self.preferences = self.preferences + graph.n_preferences
        self.dtype = np.result_type(self.dtype, X.dtype)

    def subtract(self, graph: PreferenceGraph, X: Any, loss: Loss) -> None:
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

    @property
    def n_features(self) -> int:
        """Number of columns of Φ."""
        return len(self.total[0].gram)

    def features(self, X: Any) -> Any:
        """Φ of shape (m, n): X itself, or the Nyström features."""
        return X if self.basis is None else self.basis.features(X)

    def _statistics(self, graph: PreferenceGraph, X: Any, loss: Loss) -> list[Statistics]:
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
            for name in ("X", "y", "qid", "sample_weight"):
                refuse_lazy(getattr(read, name), name)
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
    numbers : dict
        Number of each query in the stream, by label; empty if there is one fold.
    """

    def __init__(self, loss: Loss, progress: Progress, n_folds: int = 1) -> None:
        self.folds: list[Learned] = []
        self.numbers: dict[Any, int] = {}
        self.n_folds = n_folds
        self._loss = loss
        self._progress = progress
        self._start = time.perf_counter()
        self._n_rows = self._n_batches = 0
        self._ledger = Ledger()
        self._queries: WholeQueries | None = None
        self._waiting: dict[int, list[tuple[Rows, Any]]] = {}  # which rows of what, by fold
        self._n_waiting = 0
        self._since = self._number = 1  # batches of the rows that wait
        self._ranking: RankingStatistics | None = None  # without qid
        self._low: Any = np.inf
        self._high: Any = -np.inf

    def begin(self, X: Any, batch: Batch, basis: Basis | None) -> None:
        """Store what all batches must share, from the checked rows X of the first batch."""
        y = check_scores(batch.y, X.shape[0])
        k, flat = y.reshape(len(y), -1).shape[1], y.ndim == 1
        self.folds = Learned.nothing(X, basis, k, flat, self._ledger, self.n_folds)
        if batch.qid is not None:
            numbers = self.numbers if self.n_folds > 1 else None
            self._queries = WholeQueries(self._ledger, numbers=numbers)
            return
        self._ranking = RankingStatistics()
        if self.n_folds > 1:
            raise ValueError("it has no qid: folds are of whole queries, so that qid is needed")
        if not self._loss.keeps_ties:
            raise ValueError(
                "it has no qid, so that all batches are one ranking, in which a row is compared "
                "with rows of other batches: that needs cost='magnitude' and ties='keep', and "
                f"cost is {self._loss.cost!r}, ties {self._loss.ties!r}. Give qid, or fit "
                "all rows at once"
            )

    def add(self, X: Any, batch: Batch) -> None:
        """Add a batch with checked rows X."""
        assert self.folds
        self._number = batch.number
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

    def finish(self) -> None:
        """Complete the last query."""
        if not self.folds:
            raise ValueError("there is no batch with rows to learn from")
        if self._queries is not None:
            self._learn(self._queries.end())
            self._learn_waiting()
        first, n_queries = self.folds[0], self._ledger.n_queries
        if self._ranking is not None:
            self._ledger.add_ranking(self._n_rows, 0)
            first.preferences = first.preferences + (self._low < self._high)
            if self._ranking.total is not None:
                part = self._ranking.statistics(self._loss.query_weighting)
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
                f"{self._ledger.n_queries:,} queries of {self._n_batches:,} batches, all labels "
                "of a query are equal, or it has a single row with weight"
            )
        n_pairs = sum(learned.n_pairs for learned in self.folds)
        self._progress(f"{self._n_rows:,} rows, {n_pairs:,} pairs: solving")

    def _add_ranking(self, X: Any, y: Array, weight: Array | None) -> None:
        assert self._ranking is not None
        self._ranking.add(self.folds[0].features(X), y, weight)
        used = y if weight is None else y[weight > 0]
        self._low = np.minimum(self._low, used.min(axis=0, initial=np.inf))
        self._high = np.maximum(self._high, used.max(axis=0, initial=-np.inf))

    def _learn(self, ended: Iterable[Rows]) -> None:
        """Add whole queries, those of folds once there are many.

        Rows that wait are copied: a caller may fill the same arrays again for the next batch.
        """
        for rows in ended:
            self._n_waiting += len(rows.y) * max(rows.X.shape[1], self.folds[0].n_features)
            many = self.n_folds == 1 or self._n_waiting >= ENTRIES
            for fold, mine in rows.by_fold(self.n_folds).items():
                part = (rows, mine) if many else (rows.take(mine, copy=True), slice(None))
                self._waiting.setdefault(fold, []).append(part)
            if many:
                self._learn_waiting()

    def _learn_waiting(self) -> None:
        waiting, self._waiting, self._n_waiting = self._waiting, {}, 0
        since, self._since = self._since, self._number

        def add(fold: int) -> None:
            rows = joined([rows.take(mine) for rows, mine in waiting[fold]])
            self.folds[fold].add(rows.graph(), rows.X, self._loss)

        if self.n_folds == 1:  # the products of one fold use threads themselves
            for fold in waiting:
                add(fold)
            return
        try:
            _resources.in_threads(add, list(waiting), self.folds[0].n_features)
        except ValueError as error:
            raise ValueError(f"{error} (in batches {since} to {self._number})") from error


class IncrementalRanker(PosteriorMixin, Ranker):
    """Base class of `RankRLS` and `RankRLSCV`: models of sums over queries, which can change."""

    __metadata_request__partial_fit = {"qid": True}  # noqa: RUF012

    fit: Callable[..., Any]
    _pending: Learned

    @property
    @abstractmethod
    def _alpha(self) -> float:
        """The alpha of the model."""

    @property
    def _alpha_known(self) -> bool:
        """Whether alpha is known before the first call."""
        return True

    def __copy__(self) -> Any:
        """Shallow copy with a separate ledger, so that updates do not change the original."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if hasattr(self, "_ledger"):
            other._ledger = self._ledger.copy()
        if hasattr(self, "_pending"):
            other._pending = self._pending.copy()
            other._pending.ledger = self._pending.ledger.copy()
        return other

    @IncrementalMethod
    @names_lasting_queries
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Add queries to the model. The result equals a fit to all queries.

        Supported are the linear kernel with solver "primal" (with up to a few thousand features),
        and any kernel with a basis. The basis is fixed by the first call: ``basis`` holds row
        numbers of the first X, or the number of its rows to draw. The method can also be called
        after ``fit`` and `fit_stream`.

        Parameters
        ----------
        X, y, pairs, magnitude, pair_weight, sample_weight
            As for ``fit``. ``pairs`` holds row numbers of the X of this call.
        qid : array-like of shape (n_rows,), optional
            Query of each row. All rows of a query must be passed in one call; a query of an earlier
            call is an error, so sizes (``group``) are not accepted. If None, the rows of this call
            form one ranking.

        Returns
        -------
        RankRLS
            The estimator. It is not fitted until a call contains a preference (not only single
            rows or equal scores in every query).

        Notes
        -----
        XᵀLX and Xᵀr are sums over queries, kept in float64. A call therefore costs one product and
        one factorisation; to process many batches and solve once, use `fit_stream`. If a call
        fails, the model does not change. ``alpha`` may change between calls; the cost, the ties,
        the weighting and the kernel may not. `RankRLSCV` keeps the ``alpha_`` chosen by ``fit`` or
        `fit_stream`, which must be called first; ``cv_results_`` does not change either.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrls import RankRLS
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
        >>> ranker = RankRLS().partial_fit(X[:2], [0, 1], qid=["a", "a"])
        >>> ranker = ranker.partial_fit(X[2:], [1, 0], qid=["b", "b"])
        >>> ranker.coef_.round(3)
        array([ 0.176, -0.529])
        >>> RankRLS().fit(X, [0, 1, 1, 0], qid=["a", "a", "b", "b"]).coef_.round(3)
        array([ 0.176, -0.529])
        >>> ranker.forget(X[2:], [1, 0], qid=["b", "b"]).coef_.round(3)
        array([ 0.333, -0.333])
        """
        if not self._alpha_known:
            return self.fit(
                X,
                y,
                qid=qid,
                pairs=pairs,
                magnitude=magnitude,
                pair_weight=pair_weight,
                sample_weight=sample_weight,
            )
        with unchanged_on_error(self) as undo:
            learned = self._learned()
            first = learned is None
            kernel = self._check_terms(first)
            check_same_rows(X, y=y, qid=qid, sample_weight=sample_weight)
            X = self._check_batch(X, reset=first)
            graph = graph_from_arguments(
                X.shape[0],
                y,
                qid=qid,
                pairs=pairs,
                magnitude=magnitude,
                pair_weight=pair_weight,
                sample_weight=sample_weight,
            )
            if learned is None:
                if not kernel.precomputed:
                    codes = graph.query_codes if graph.has_qid else None
                    self._warn_about_columns(kernel, X, codes)
                basis = self._first_basis(kernel, X)
                (learned,) = Learned.nothing(X, basis, graph.n_outputs, graph.flat, Ledger())
            _check_outputs(learned, graph)
            learned.ledger.check_new(graph, SEEN)
            if learned.ledger.weighted and graph.scores is not None and graph.sample_weight is None:
                warn(UNWEIGHTED)
            learned.add(graph, X, self._loss)
            undo.append(learned.ledger.undo(graph))
            self._settle(learned, kernel, lambda: learned.ledger.add(graph, X))
        return self

    @IncrementalMethod
    @names_lasting_queries
    def forget(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Remove queries from the model. The result equals a fit without them.

        Parameters
        ----------
        X, y, qid, pairs, magnitude, pair_weight, sample_weight
            As they were passed to ``fit``, `partial_fit` or `fit_stream`: whole queries of any
            calls, with rows in any order. A call without qid, or with pairs, can only be removed
            as a whole. The queries of a ``fit`` with ``group`` are 0, 1, 2 and so on.

        Returns
        -------
        RankRLS
            The estimator. It is no longer fitted if no preference remains.

        Raises
        ------
        ValueError
            If a query was not added, or was added with another number of rows or pairs; if more
            would be removed than there is; or if alpha is too small for the rounding errors. Rows
            are not stored, but a checksum of each query is: other features, scores or weights are
            an error, unless they differ by less than about 1e-8 (1e-4 for float32). Calls without
            qid, given pairs, and queries of Dask models and of older model files have no checksums.

        Notes
        -----
        The basis of a fixed-basis model does not change, even if its rows are removed. Statistics
        are subtracted, so rounding errors are relative to their size before the call. The solver
        takes them into account, but if nearly all queries are removed, or alpha is tiny, a new
        fit is more accurate.
        """
        with unchanged_on_error(self) as undo:
            learned = self._learned()
            if learned is None:
                check_is_fitted(self)
            assert learned is not None
            kernel = self._check_terms(first=False)
            check_same_rows(X, y=y, qid=qid, sample_weight=sample_weight)
            X = self._check_batch(X, reset=False)
            graph = graph_from_arguments(
                X.shape[0],
                y,
                qid=qid,
                pairs=pairs,
                magnitude=magnitude,
                pair_weight=pair_weight,
                sample_weight=sample_weight,
            )
            _check_outputs(learned, graph)
            rounding = max(float(np.finfo(X.dtype).eps), *(part.rounding for part in learned.total))
            learned.ledger.check_known(graph, X, rounding)
            learned.subtract(graph, X, self._loss)
            undo.append(learned.ledger.undo(graph))
            self._settle(learned, kernel, lambda: learned.ledger.remove(graph))
        return self

    def _rescale_features(self, factor: Array, offset: Array) -> None:
        """Convert a primal model to features (X − offset) · factor, exactly, from its sums."""
        with unchanged_on_error(self):
            kernel = self._check_terms(first=False)
            learned = self._learned()
            assert learned is not None
            learned.rescale(factor, offset)
            self._settle(learned, kernel, lambda: learned.ledger.rescale(factor, offset))

    def _gather(
        self, kernel: Kernel, batches: Iterable[Batch], basis_rows: Any, n_folds: int = 1
    ) -> StreamLearner:
        """Sum all batches, in folds of whole queries."""
        learner = StreamLearner(self._loss, Progress(type(self).__name__, self.verbose), n_folds)
        for batch in batches:
            with named_batch(batch.number):
                first = not learner.folds
                X = self._check_rows_of(batch, reset=first)
                if first:
                    learner.begin(X, batch, self._first_basis(kernel, X, basis_rows))
                    if not kernel.precomputed:
                        codes = encode_qid(batch.qid, X.shape[0]).codes
                        self._warn_about_columns(kernel, X, codes)
                learner.add(X, batch)
        learner.finish()
        return learner

    def _check_rows_of(self, batch: Batch, *, reset: bool) -> Any:
        """Validate the features of a batch and the names of its columns."""
        by_row = {"qid": batch.qid, "sample_weight": batch.sample_weight}
        check_same_rows(batch.X, y=batch.y, **by_row)
        X = self._check_batch(batch.X, reset=reset)
        self._check_names(batch.names, X.shape[1], reset=reset)
        return X

    # -- what they share

    def _why_not_incremental(self) -> str | None:
        """Reason why these parameters do not allow exact updates; None if they do."""
        based = self.basis is not None or "nystroem" in (self.solver, getattr(self, "solver_", ""))
        if isinstance(self.kernel, str) and self.kernel == "precomputed" and not based:
            return (
                "a precomputed kernel needs a fixed basis: set basis= (row numbers of the first "
                "batch) with solver='nystroem', and pass kernel values with the basis vectors"
            )
        if self.solver not in ("auto", "primal", "nystroem"):
            return (
                f"solver={self.solver!r} needs all rows at once; use solver='primal' (linear "
                "kernel), or a basis with solver='nystroem'"
            )
        if self.early_stopping:
            return "early stopping needs all rows at once; set early_stopping=False"
        if self.kernel != "linear" and not based:
            return (
                f"kernel={show(self.kernel)} needs a fixed basis: set basis= (how many rows of "
                "the first batch, or which) with solver='nystroem'"
            )
        return None

    def _learned(self) -> Learned | None:
        """Copy of the sums so far; None if there are none."""
        if not hasattr(self, "_model"):
            return self._pending.copy() if hasattr(self, "_pending") else None
        if self.solver_ not in ("primal", "nystroem"):
            choice = ", which solver='auto' chose," if self.solver == "auto" else ""
            raise ValueError(
                f"the model was fitted with solver={self.solver_!r}{choice} and has no sums over "
                "queries, so it cannot be updated: fit it with solver='primal', or with a basis"
            )
        if not hasattr(self, "_ledger"):
            raise ValueError(
                "the model does not contain its sums over queries (saved with uncertainty=False?): "
                "to use partial_fit and forget, fit it again"
            )
        if self._model.pair_coef is not None:
            raise ValueError(
                "the model was fitted with pair_features, whose sums are not kept: fit it again "
                "to all pairs"
            )
        return Learned.by(self._model, self._flat, self._preferences, self._ledger)

    def _check_terms(self, first: bool) -> Kernel:
        """Check the parameters, and that they have not changed since the first call."""
        kernel = self._check_options()
        if not first:
            check_positive("alpha", self._alpha)
            for name, value in self._terms(kernel).items():
                before = self._learned_with[name]
                if _differs(value, before):
                    raise ValueError(
                        f"{name} was changed from {show(before)} to {show(value)} after the first "
                        "call: set it back, or fit again"
                    )
        return kernel

    def _check_batch(self, X: Any, *, reset: bool) -> Any:
        if reset:
            self.__dict__.pop("_names_beside", None)
        precomputed = isinstance(self.kernel, str) and self.kernel == "precomputed"
        if precomputed and not reset:
            columns_in_order(X, self._kernel_numbers, refuse=True)
        elif precomputed:
            self._check_kernel_names(X)
        with clear_errors(X):
            X = validate_data(
                self._asked_for_names(X, reset),
                X,
                accept_sparse=("csr", "csc"),
                dtype=(np.float64, np.float32),
                reset=reset,
            )
        return canonical(X, dense=precomputed)

    def _check_names(self, names: Any, n_features: int, *, reset: bool) -> None:
        """Store the column names of a batch of arrays, or compare them with the stored ones."""
        if names is None:
            return
        check_length("feature_names", names, n_features, "columns")
        if not reset or hasattr(self, "feature_names_in_"):
            check_feature_names(names, getattr(self, "feature_names_in_", None), "this batch")
        else:
            self.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
            self._names_beside = True

    def _first_basis(self, kernel: Kernel, X: Any, rows: Any = None) -> Basis | None:
        """Basis from the first batch, or None for a primal model."""
        if self.basis is None and self.solver != "nystroem" and rows is None:
            return None
        if self.solver == "primal":
            raise ValueError("basis belongs to solver='nystroem'; got solver='primal'")
        if rows is not None:
            rows = self._check_batch(rows, reset=False)
            return Basis.from_rows(kernel, rows, np.arange(rows.shape[0]))
        if kernel.precomputed:
            check_kernel_values(X, self.basis)
        indices = choose_basis(self.basis, X.shape[0], check_random_state(self.random_state))
        return Basis.of(kernel, X, indices)

    def _settle(
        self,
        learned: Learned,
        kernel: Kernel,
        note: Callable[[], None] | None = None,
    ) -> None:
        """Solve, update the ledger by ``note``, and store; only solving can fail."""
        model = learned.model(float(self._alpha), getattr(self, "feature_names_in_", None))
        if note is not None:
            note()
        # Attributes of a copy are set one by one, and all of them become those of self at once:
        # threads that predict meanwhile see the old model or the new one.
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        for name in ("_model", "_pending", "coef_", "dual_coef_", "basis_indices_"):
            new.__dict__.pop(name, None)
        new._store_validation(History(n_iter=1))
        new._flat = learned.flat
        if model is None:
            new._pending = learned
        else:
            new._model = model
            new._store_coefficients()
        new._ledger = learned.ledger
        new._preferences = learned.preferences
        new._learned_with = self._terms(kernel)
        new._with_qid = bool(learned.ledger.queries)
        new.solver_ = "primal" if learned.basis is None else "nystroem"
        new.n_pairs_ = learned.n_pairs
        new.n_queries_ = learned.ledger.n_queries
        new.n_iter_ = 1
        self.__dict__ = new.__dict__


def _differs(value: Any, before: Any) -> bool:
    """Whether two parameters differ; arrays inside a dict of parameters are not compared."""
    try:
        return bool(value != before)
    except ValueError:
        return False


def _check_outputs(learned: Learned, graph: PreferenceGraph) -> None:
    expected = len(learned.preferences)
    if graph.n_outputs != expected:
        raise ValueError(f"the model has {expected} output(s), y has {graph.n_outputs}")
