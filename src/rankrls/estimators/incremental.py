"""Exact updates: models of sums over queries, to which queries are added or from which they go.

A primal or fixed-basis model is a function of sums over queries
(`rankrls.core.preferences.statistics.Statistics`). The solvers of a fitted model keep these sums,
so a batch can be added or removed exactly, whether the model was fitted by ``fit`` or by batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls import _resources
from rankrls._calls import unchanged_on_error, warn
from rankrls._validation import check_positive, show
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Statistics, add_batch, batch_statistics
from rankrls.core.ridge.models import FittedFunction, solve_statistics
from rankrls.core.spaces.spaces import Basis, Kernel, check_kernel_values, choose_basis
from rankrls.estimators.ranker import Preferences, RidgeRanker
from rankrls.estimators.seen_queries import SeenQueries, query_keys

__all__ = [
    "IncrementalMethod",
    "IncrementalRanker",
    "Learned",
    "NotIncrementalError",
    "check_terms",
    "first_basis",
    "learned_by",
    "rescale_features",
    "store_learned",
    "update",
]

Array = NDArray[Any]

#: Forgetting is refused if it leaves a larger relative error than this in the coefficients.
MAX_ERROR = 1e-8

#: What is left of digits is looked at only if sums were so many times larger once.
MUCH_LARGER = 1e3

GIVEN_BEFORE = (
    "was given in an earlier call: pass all rows of a query in one call (to change a query, forget "
    "it first, with the rows that it was added with)"
)

UNWEIGHTED = (
    "the model has learned from rows with sample_weight, and these rows have none: their weights "
    "are 1. Pass sample_weight, ones if this is what is meant"
)


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
    """Sums over queries, and the queries themselves.

    ``total`` has the sums of the features, or of the Nyström features of ``basis``, for each group
    of outputs that share all their graphs; ``preferences`` is the number of queries and given
    pairs with a preference, for each output; ``dtype`` is float32 if all rows were.
    """

    total: list[Statistics]
    basis: Basis | None
    dtype: Any
    flat: bool
    preferences: Array
    seen: SeenQueries

    @classmethod
    def nothing(
        cls, n: int, basis: Basis | None, dtype: Any, n_outputs: int, flat: bool
    ) -> Learned:
        """Empty sums over rows of n features."""
        n = n if basis is None else len(basis.map.kept)
        none = Statistics.empty(np.arange(n_outputs), n)
        counts = np.zeros(n_outputs, dtype=np.int64)
        return cls([none], basis, dtype, flat, counts, SeenQueries())

    def copy(self) -> Learned:
        """Copy in new arrays."""
        return replace(self, total=[part.copy() for part in self.total], seen=self.seen.copy())

    def add(self, graph: PreferenceGraph, X: Any, loss: Loss, sign: int = 1) -> None:
        """Add whole queries to the sums, or subtract them (sign −1); ``seen`` does not change."""
        parts = batch_statistics(graph, self.features(X), loss)
        rounding = float(np.finfo(X.dtype).eps)
        if self.basis is not None:
            rounding = max(rounding, self.basis.map.rounding)
        for part in parts:
            part.rounding = max(part.rounding, rounding)
        self.total = add_batch(self.total, parts, sign)
        self.preferences = self.preferences + sign * graph.n_preferences
        if sign > 0:
            self.dtype = np.result_type(self.dtype, X.dtype)

    def rescale(self, factor: Array, offset: Array) -> None:
        """Convert to features (Φ − offset) · factor, with arrays of shape (n,)."""
        for part in self.total:
            part.rescale(factor, offset)
        if self.seen.projection is not None:
            self.seen.projection = self.seen.projection.rescaled(factor, offset)

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

    def model(self, alpha: float, names: Any = None) -> FittedFunction | None:
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
            if float(np.finfo(np.float64).eps) * larger * condition > MAX_ERROR:
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
    basis = model.basis
    dtype = (model.coef if basis is None else model.dual_coef).dtype
    return Learned(total, basis, dtype, ranker._flat, ranker._preferences, ranker._seen.copy())


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
            codes = graph.query_codes if graph.has_qid else None
            ranker._warn_about_columns(kernel, X, codes)
            basis = first_basis(ranker, kernel, X)
            require_memory(X.shape[1], basis)
            learned = Learned.nothing(X.shape[1], basis, X.dtype, graph.n_outputs, graph.flat)
        expected = len(learned.preferences)
        if graph.n_outputs != expected:
            raise ValueError(f"the model has {expected} output(s), y has {graph.n_outputs}")
        seen = learned.seen
        if sign < 0:
            eps = float(np.finfo(X.dtype).eps)
            seen.check_known(graph, X, max(eps, *(part.rounding for part in learned.total)))
            learned.add(graph, X, ranker._loss, sign)
            seen.remove(graph)
        else:
            if graph.has_qid:
                seen.check_new(query_keys(graph.query_labels), GIVEN_BEFORE)
            if seen.weighted and graph.scores is not None and graph.sample_weight is None:
                warn(UNWEIGHTED)
            learned.add(graph, X, ranker._loss)
            seen.add_graph(graph, X)
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
    # Attributes of a copy are set one by one, and all of them become those of the ranker at once:
    # threads that predict meanwhile see the old model or the new one.
    new = object.__new__(type(ranker))
    new.__dict__.update(ranker.__dict__)
    for name in ("_model", "_pending", "coef_", "dual_coef_", "basis_indices_"):
        new.__dict__.pop(name, None)
    new._store_validation(History(n_iter=1))
    new._flat = learned.flat
    if model is None:
        new._pending = learned
    else:
        new._model = model
        new._store_coefficients()
    new._seen = learned.seen
    new._preferences = learned.preferences
    new._learned_with = ranker._terms(kernel)
    new._with_qid = learned.seen.n_queries > len(learned.seen.rankings)
    new.solver_ = "primal" if learned.basis is None else "nystroem"
    new.n_pairs_ = learned.n_pairs
    new.n_queries_ = learned.seen.n_queries
    new.n_iter_ = 1
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


def first_basis(ranker: Any, kernel: Kernel, X: Any, rows: Any = None) -> Basis | None:
    """Basis from the first batch, or None for a primal model."""
    if ranker.basis is None and ranker.solver != "nystroem" and rows is None:
        return None
    if ranker.solver == "primal":
        raise ValueError("basis belongs to solver='nystroem'; got solver='primal'")
    if rows is not None:
        rows = ranker._check_rows(rows)
        return Basis.from_rows(kernel, rows, np.arange(rows.shape[0]))
    if kernel.precomputed:
        check_kernel_values(X, ranker.basis)
    indices = choose_basis(ranker.basis, X.shape[0], check_random_state(ranker.random_state))
    return Basis.of(kernel, X, indices)


def require_memory(n: int, basis: Basis | None, n_folds: int = 1) -> None:
    """Raise unless the sums of all folds fit into memory."""
    n = n if basis is None else len(basis.map.kept)
    advice = "use fewer features, or fewer basis vectors (solver='nystroem')"
    copies = 3 if n_folds == 1 else n_folds + 4
    _resources.require("learning batch by batch", n, n, copies=copies, advice=advice)


class IncrementalRanker(RidgeRanker):
    """Base class of `RankRLS` and `RankRLSCV`: models of sums over queries, which can change."""

    __metadata_request__partial_fit = {"qid": True}  # noqa: RUF012

    fit: Callable[..., Any]

    @property
    def _alpha(self) -> Any:
        """The alpha of the model; None before it was chosen."""
        return self.alpha if hasattr(self, "alpha") else getattr(self, "alpha_", None)

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
        preferences = Preferences(
            y, qid, pairs, magnitude, pair_weight, sample_weight=sample_weight
        )
        if self._alpha is None:
            return self.fit(X, **vars(preferences))
        update(self, 1, X, preferences)
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
            qid, given pairs, and queries of Dask models have no checksums.

        Notes
        -----
        The basis of a fixed-basis model does not change, even if its rows are removed. Statistics
        are subtracted, so rounding errors are relative to their size before the call. The solver
        takes them into account, but if nearly all queries are removed, or alpha is tiny, a new
        fit is more accurate.
        """
        preferences = Preferences(
            y, qid, pairs, magnitude, pair_weight, sample_weight=sample_weight
        )
        update(self, -1, X, preferences)
        return self

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
