"""Learning batch by batch, and unlearning: ``partial_fit``, ``forget`` and ``fit_stream``.

A primal or fixed-basis model is a function of sums over queries (`rankrls.preferences.Statistics`).
The solvers of a fitted model still hold these sums, so that a batch can be added or taken away
exactly, whatever fitted the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._progress import Progress
from rankrls._validation import check_positive, clear_errors, show
from rankrls.core.linalg.conjugate_gradients import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.build import Fit
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import Basis, choose_basis
from rankrls.estimators.base import LeastSquaresRanker
from rankrls.estimators.exact import IncrementalMethod, unchanged_on_error
from rankrls.estimators.inputs import graph_from_arguments
from rankrls.estimators.learned import Learned, preference_counts
from rankrls.estimators.ledger import Ledger
from rankrls.estimators.ranker import canonical
from rankrls.estimators.stream import StreamLearner, named_batch, read_batches

__all__ = ["IncrementalRanker"]

Array = NDArray[Any]

SEEN = (
    "was given in an earlier call: a query must come whole, in one call (to change one, forget it "
    "first, with the rows that it was added with)"
)


class IncrementalRanker(LeastSquaresRanker):
    """A least-squares ranker that learns and forgets batches of whole queries."""

    alpha: float

    _ledger: Ledger
    _preferences: Array
    _learned_with: dict[str, Any]
    _pending: Learned

    @IncrementalMethod
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
        """Learn from more queries; the model is that of a fit to all of them.

        For the linear kernel (solver "primal"; more features than rows is fine, but not many
        thousands), and for any kernel with a basis, which is fixed by the first call: ``basis``
        are row numbers of the first X, or how many of its rows to draw. It may follow ``fit`` and
        `fit_stream` as well.

        Parameters
        ----------
        X, y, pairs, magnitude, pair_weight, sample_weight
            As for ``fit``. The arguments of one call are one set of rows: ``pairs`` are row
            numbers of this X.
        qid : array-like of shape (n_rows,), optional
            Query of every row. A query comes whole, in one call: one that an earlier call had is
            an error. None: the rows of this call are one ranking.

        Returns
        -------
        RankRLS
            The estimator. As long as no call had a pair to learn from (a single row, equal scores
            in every query) it counts as not fitted.

        Notes
        -----
        XᵀLX and Xᵀr are sums over queries, kept in float64, so that a batch costs one product and
        one factorisation; to go through many batches and solve once, use `fit_stream`. A call that
        fails leaves the model as it was. ``alpha`` may be changed between calls; the cost, the
        ties, the weighting and the kernel may not.

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
        with unchanged_on_error(self):
            learned = self._learned()
            first = learned is None
            kernel = self._check_terms(first)
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
                basis = self._first_basis(kernel, X)
                learned = Learned.nothing(X, basis, graph.n_outputs, graph.flat)
            _check_outputs(learned, graph)
            learned.ledger.check_new(graph, SEEN)
            learned.add(graph, X, self._loss)
            self._settle(learned, kernel, learned.ledger.add, graph)
        return self

    @IncrementalMethod
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
        """Unlearn queries exactly: the model is that of a fit without them.

        Parameters
        ----------
        X, y, qid, pairs, magnitude, pair_weight, sample_weight
            As they were given to ``fit``, `partial_fit` or `fit_stream`; rows in any order, and
            whole queries of any calls. A call without qid, or with pairs, is forgotten as it was
            made.

        Returns
        -------
        RankRLS
            The estimator; not fitted any more if no preference is left.

        Raises
        ------
        ValueError
            If a query was never added, or with another number of rows or pairs, or if more would
            go than there is, or if alpha is below the rounding that is left. Rows are not kept,
            so that other rows of the same number, with other values, can be told only if they are
            too many: forget what was added.

        Notes
        -----
        The basis of a fixed-basis model stays what it was, even if its rows are forgotten.
        Statistics are subtracted, which leaves rounding of the size of what they were: it is
        allowed for when the system is solved, but where nearly everything is forgotten, or
        alpha is tiny, a new fit has more digits.
        """
        with unchanged_on_error(self):
            learned = self._learned()
            if learned is None:
                check_is_fitted(self)
            assert learned is not None
            kernel = self._check_terms(first=False)
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
            learned.ledger.check_known(graph)
            learned.subtract(graph, X, self._loss)
            self._settle(learned, kernel, learned.ledger.remove, graph)
        return self

    @IncrementalMethod
    def fit_stream(self, batches: Iterable[Any], *, basis_rows: Any = None) -> Any:
        """Fit to batches, one at a time: data larger than memory, read once.

        Parameters
        ----------
        batches : iterable
            Of (X, y) or (X, y, qid), or of mappings with ``data``, ``target``, ``qid`` and, if
            wanted, ``sample_weight``: what `rankrls.datasets.iter_letor` and `iter_parquet` give.
            The last query of a batch may go on in the next one; a query that comes back later
            is an error. Without qid all batches are one ranking, which needs cost="magnitude" and
            ties="keep".
        basis_rows : array-like of shape (n_basis, n_features), optional
            Basis vectors, for solver "nystroem"; ``basis_indices_`` are then numbers of these
            rows. By default ``basis`` (row numbers, or how many to draw) is about the first batch.

        Returns
        -------
        RankRLS
            The fitted estimator, that of ``fit`` to all rows together.

        Notes
        -----
        Memory: one batch (for "nystroem" also its kernel values with the basis), the unfinished
        query at its end, an n_features × n_features matrix (of the basis, for "nystroem"), and the
        labels of the queries. ``verbose=1`` tells rows and rows per second after every batch.

        Queries in any row order, across batches, are refused: sort the file by query first. A
        file of which only the rows of each batch are shuffled is fine.

        Examples
        --------
        >>> from rankrls import RankRLS
        >>> from rankrls.datasets import make_ranking
        >>> data = make_ranking(n_queries=20, random_state=0)
        >>> X, y, qid = data.data, data.target, data.qid
        >>> parts = [slice(i, i + 64) for i in range(0, len(X), 64)]
        >>> batches = ((X[part], y[part], qid[part]) for part in parts)
        >>> ranker = RankRLS().fit_stream(batches)
        >>> bool(abs(ranker.coef_ - RankRLS().fit(X, y, qid=qid).coef_).max() < 1e-10)
        True
        """
        with unchanged_on_error(self):
            kernel = self._check_terms(first=True)
            learner = StreamLearner(self._loss, Progress(type(self).__name__, self.verbose))
            for batch in read_batches(batches):
                with named_batch(batch.number):
                    X = self._check_batch(batch.X, reset=learner.learned is None)
                    if learner.learned is None:
                        learner.begin(X, batch, self._first_basis(kernel, X, basis_rows))
                    learner.add(X, batch)
            self._settle(learner.finish(), kernel)
        return self

    # ------------------------------------------------------------------ what the three share

    def _fit_prepared(
        self, kernel: Kernel, X: Any, graph: PreferenceGraph, alphas: Array, **options: Any
    ) -> Fit:
        """Fit, and note down what was learned from, for calls that add to it."""
        fit = super()._fit_prepared(kernel, X, graph, alphas, **options)
        self._ledger = Ledger()
        self._ledger.add(graph)
        self._preferences = preference_counts(graph)
        self._learned_with = self._terms(kernel)
        self.__dict__.pop("_pending", None)
        return fit

    def _why_not_incremental(self) -> str | None:
        """Why these parameters allow no exact update; None if they do."""
        based = self.basis is not None or "nystroem" in (self.solver, getattr(self, "solver_", ""))
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            return "a precomputed kernel has no rows to add; use a named kernel or a callable"
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
        """What was learned so far, in new arrays; None if nothing was."""
        if not hasattr(self, "_model"):
            return self._pending.copy() if hasattr(self, "_pending") else None
        if not hasattr(self, "_ledger"):
            raise ValueError(
                "the model does not know what it was fitted to (saved with uncertainty=False?): "
                "for partial_fit and forget fit it again"
            )
        if self.solver_ not in ("primal", "nystroem"):
            choice = ", which solver='auto' chose," if self.solver == "auto" else ""
            raise ValueError(
                f"the model was fitted with solver={self.solver_!r}{choice} and has no sums over "
                "queries to add to or to take from: fit it with solver='primal', or with a basis"
            )
        return Learned.by(self._model, self._flat, self._preferences, self._ledger)

    def _terms(self, kernel: Kernel) -> dict[str, Any]:
        """What must stay the same as long as statistics are added up."""
        return {**self._loss, "kernel": kernel.metric, "kernel parameters": kernel.params}

    def _check_terms(self, first: bool) -> Kernel:
        """Check the parameters, and that they are those of what was learned."""
        kernel = self._check_options()
        check_positive("alpha", self.alpha)
        if not first:
            for name, value in self._terms(kernel).items():
                before = self._learned_with[name]
                if _differs(value, before):
                    raise ValueError(
                        f"{name} is {show(value)} now and was {show(before)} when the model began "
                        "to learn: set it back, or fit from the start"
                    )
        return kernel

    def _check_batch(self, X: Any, *, reset: bool) -> Any:
        with clear_errors(X):
            X = validate_data(
                self, X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), reset=reset
            )
        return canonical(X, dense=False)

    def _first_basis(self, kernel: Kernel, X: Any, rows: Any = None) -> Basis | None:
        """The basis that the first batch decides, or None for a primal model."""
        if self.basis is None and self.solver != "nystroem" and rows is None:
            return None
        if self.solver == "primal":
            raise ValueError("basis belongs to solver='nystroem'; got solver='primal'")
        if rows is not None:
            rows = self._check_batch(rows, reset=False)
            return Basis.from_rows(kernel, rows, np.arange(rows.shape[0]))
        indices = choose_basis(self.basis, X.shape[0], check_random_state(self.random_state))
        return Basis.of(kernel, X, indices)

    def _settle(
        self,
        learned: Learned,
        kernel: Kernel,
        note: Callable[[PreferenceGraph], None] | None = None,
        graph: PreferenceGraph | None = None,
    ) -> None:
        """Solve, ``note`` the graph in the ledger, and store: after the first nothing fails."""
        model = learned.model(float(self.alpha))
        if note is not None and graph is not None:
            note(graph)
        for name in ("_model", "_pending", "coef_", "dual_coef_", "basis_indices_"):
            self.__dict__.pop(name, None)
        self._store_validation(History(n_iter=1))
        self._flat = learned.flat
        if model is None:
            self._pending = learned
        else:
            self._model = model
            self._store_coefficients()
        self._ledger = learned.ledger
        self._preferences = learned.preferences
        self._learned_with = self._terms(kernel)
        self._with_qid = bool(learned.ledger.queries)
        self.solver_ = "primal" if learned.basis is None else "nystroem"
        self.n_pairs_ = learned.total.n_pairs
        self.n_queries_ = learned.ledger.n_queries
        self.n_iter_ = 1


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
