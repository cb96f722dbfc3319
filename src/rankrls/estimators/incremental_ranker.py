"""``IncrementalRanker``: adding and removing queries, and fits to streams of batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import Progress, names_lasting_queries, unchanged_on_error, warn
from rankrls._frames import (
    check_feature_names,
    check_same_rows,
    clear_errors,
    columns_in_order,
)
from rankrls._validation import check_length, check_positive, encode_qid, show
from rankrls.core.linalg.conjugate_gradients import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Ledger
from rankrls.core.spaces.spaces import Basis, Kernel, check_kernel_values, choose_basis
from rankrls.estimators.incremental import (
    Batch,
    IncrementalMethod,
    Learned,
    StreamLearner,
    named_batch,
)
from rankrls.estimators.ranker import PosteriorMixin, Ranker, canonical, graph_from_arguments

__all__ = ["IncrementalRanker"]

Array = NDArray[Any]

SEEN = (
    "was given in an earlier call: pass all rows of a query in one call (to change a query, forget "
    "it first, with the rows that it was added with)"
)

UNWEIGHTED = (
    "the model has learned from rows with sample_weight, and these rows have none: their weights "
    "are 1. Pass sample_weight, ones if this is what is meant"
)


class IncrementalRanker(PosteriorMixin, Ranker):
    """Base class of `RankRLS` and `RankRLSCV`: models of sums over queries, which can change."""

    __metadata_request__partial_fit = {"qid": True}  # noqa: RUF012

    fit: Callable[..., Any]
    _ledger: Ledger
    _preferences: Array
    _learned_with: dict[str, Any]
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
    ) -> list[Learned]:
        """Sums over all batches, in folds of whole queries."""
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
        return learner.finish()

    def _check_rows_of(self, batch: Batch, *, reset: bool) -> Any:
        """Validate the features of a batch and the names of its columns."""
        by_row = {"qid": batch.qid, "sample_weight": batch.sample_weight}
        check_same_rows(batch.X, y=batch.y, **by_row)
        X = self._check_batch(batch.X, reset=reset)
        self._check_names(batch.names, X.shape[1], reset=reset)
        return X

    def _note_learned(self, kernel: Kernel, X: Any, graph: PreferenceGraph) -> None:
        """Store which queries ``fit`` used, for later updates, if these are supported."""
        for name in ("_ledger", "_preferences", "_learned_with", "_pending"):
            self.__dict__.pop(name, None)
        if self.solver_ not in ("primal", "nystroem"):
            return
        self._ledger = Ledger()
        self._ledger.add(graph, None if kernel.precomputed else X)
        self._preferences = graph.n_preferences
        self._learned_with = self._terms(kernel)

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

    def _terms(self, kernel: Kernel) -> dict[str, Any]:
        """Parameters that must not change between updates."""
        return {**self._loss, "kernel": kernel.metric, "kernel parameters": kernel.params}

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
