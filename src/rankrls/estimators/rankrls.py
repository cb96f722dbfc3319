"""``RankRLS``: the estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import Progress, explained, takes_queries, unchanged_on_error
from rankrls._frames import check_feature_names, check_same_rows, clear_errors
from rankrls._validation import check_length, check_positive, encode_qid, show
from rankrls.core.linalg.conjugate_gradients import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Ledger
from rankrls.core.ridge.iterative import HeldOutRows
from rankrls.core.spaces.spaces import Basis, Kernel, choose_basis
from rankrls.estimators.incremental import (
    IncrementalMethod,
    Learned,
    StreamLearner,
    named_batch,
    read_batches,
)
from rankrls.estimators.ranker import (
    PosteriorMixin,
    Ranker,
    canonical,
    graph_accuracy,
    graph_from_arguments,
)
from rankrls.estimators.validation_rows import split_for_validation

__all__ = ["RankRLS"]

Array = NDArray[Any]


SEEN = (
    "was given in an earlier call: a query must come whole, in one call (to change one, forget it "
    "first, with the rows that it was added with)"
)


class RankRLS(PosteriorMixin, Ranker):
    """Learn to rank by regularised least squares on preferences.

    Minimises, over functions f of a feature space or of a kernel's space,

        Σ_edges w² (z − (f(x_h) − f(x_j)))² + alpha ‖f‖²

    where an edge says that row h is preferred to row j. Edges come from scores y (every pair
    of rows of the same query), from given pairs, or from both.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation, > 0 (0 is allowed with early stopping). It multiplies ‖f‖² and nothing is
        rescaled.
    kernel : str or callable, default="linear"
        Any name that scikit-learn's `pairwise_kernels` takes, a function of two rows, or
        "precomputed" (X is the kernel matrix).
    gamma, degree, coef0 : float
        Parameters of the kernels that have them (``gamma=None``: 1/n_features, and 1 for chi2).
    kernel_params : dict, optional
        Further parameters of the kernel.
    cost : {"magnitude", "unit", "relative"}, default="magnitude"
        With y the difference of two scores (or a pair's magnitude): target z = y and weight 1;
        target 1 and weight 1; target y and weight w² = 1/y².
    ties : {"keep", "drop"}, default="keep"
        Whether two rows of a query with equal scores are asked to get equal predictions.
        "unit" and "relative" always drop them. (Not to be confused with ``ties`` of
        `rankrls.metrics.pairwise_error`, which is about tied predictions.)
    query_weighting : {"pair", "size", "query"}, default="pair"
        A pair of a query with n rows counts 1, 1/n, or 1/(number of pairs of the query), so that
        a query counts as much as it has pairs, as much as it has rows, or as any other.
    solver : {"auto", "primal", "dual", "nystroem", "cg"}, default="auto"
        "primal" works on an n_features × n_features system, "dual" on n_rows × n_rows,
        "nystroem" on one of the size of the basis (an approximation: f is spanned by the basis
        vectors), "cg" by conjugate gradients with products of X alone (linear kernel; no
        uncertainties). The rule of "auto": a ``basis`` asks for "nystroem", early stopping for
        "cg"; a kernel other than linear is solved in "dual" if two n_rows × n_rows matrices fit
        into half of the memory, else in "nystroem", with a warning; a linear one by "cg" if X is
        sparse with more than 5000 rows and columns or the direct solvers do not fit into memory,
        otherwise in "primal" if n_features <= n_rows, else "dual".
    basis : int or array of int, optional
        Nyström basis vectors: how many to draw at random, or the row numbers. None with
        ``solver="nystroem"``: 1000, or all rows if there are fewer.
    max_iter : int, optional
        Most iterations of "cg"; None: 1000.
    tol : float, default=1e-6
        Largest relative error of the coefficients of "cg", and of ‖residual‖/‖right side‖.
    early_stopping : bool, default=False
        Regularise by iteration: look at held-out rows after each iteration of "cg", end when
        their pairwise error has not improved for ``n_iter_no_change`` iterations, and keep the
        best model seen.
    validation_fraction : float, default=0.1
        What early stopping holds out if ``fit`` gets no ``eval_set``: this part of the queries
        (of the rows without qid, of the pairs without y), drawn at random. They do not become
        part of the model.
    n_iter_no_change : int, default=10
    random_state : int, RandomState instance or None
        For the random basis and the held-out part.
    verbose : int, default=0
        1: progress on stderr.
    n_jobs : int, optional
        Threads of `pairwise_kernels` and of the sparse products of "cg"; None: as many as BLAS
        may use, −1: all cores.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights, for the linear kernel.
    dual_coef_ : ndarray of shape (n_rows,), (n_rows, n_outputs), or the same over the basis
        Kernel coefficients, for solvers "dual" and "nystroem". Where the kernel matrix is
        singular other coefficients give the same function.
    pair_coef_ : ndarray of shape (n_pair_features,) or (n_outputs, n_pair_features)
        Coefficients of ``pair_features``.
    basis_indices_ : ndarray of shape (n_basis,)
        Rows that are basis vectors, for solver "nystroem".
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Iterations of the solver: 1 for the direct ones.
    best_iteration_ : int
        Early stopping: the iteration of the model, which had the best validation error.
    validation_curve_ : ndarray of shape (n_checks,)
        Early stopping: the validation error (pairwise) at ``validation_iterations_``.
    n_pairs_ : int
        Edges in the objective, tied ones included when kept, added up over outputs.
    n_queries_ : int
        Different queries in the data, those without a pair included.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X has names

    See Also
    --------
    rankrls.regularization_path : All coefficients for a grid of alphas, for one decomposition.

    Notes
    -----
    With the Laplacian L and target r of the preferences, the primal solution is
    w = (XᵀLX + alpha I)⁻¹Xᵀr and the dual one A = (LK + alpha I)⁻¹r. Predictions are scores
    that mean something only relative to other rows: a constant may be added to them.

    ``predict(X, return_std=True)`` and `preference_proba` read the model as the posterior mean
    of a Gaussian process with covariance k and noise variance alpha/w² per edge. All pairs of n
    scores count the noise of a score n − 1 times, so these uncertainties are too small for
    scored data with ``query_weighting="pair"``; with "size" they are those of a process on the
    scores themselves with a free offset per query. Probabilities are calibrated only as far as
    alpha is the variance of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]])
    >>> ranker = RankRLS(alpha=0.1).fit(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    >>> ranker.predict(X).round(2)
    array([-0.01,  0.98,  1.96,  2.94,  3.93])
    >>> ranker.score(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    1.0
    """

    __metadata_request__partial_fit = {"qid": True}  # noqa: RUF012

    _ledger: Ledger
    _preferences: Array
    _learned_with: dict[str, Any]
    _pending: Learned

    @explained(
        C="regularisation is called alpha; a larger one is stronger",
        regparam="regularisation is called alpha",
        alphas="RankRLSCV chooses alpha from a grid",
    )
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        kernel: Any = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        cost: str = "magnitude",
        ties: str = "keep",
        query_weighting: str = "pair",
        solver: str = "auto",
        basis: Any = None,
        max_iter: int | None = None,
        tol: float = 1e-6,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.cost = cost
        self.ties = ties
        self.query_weighting = query_weighting
        self.solver = solver
        self.basis = basis
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @takes_queries
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        pair_features: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        eval_set: Any = None,
        callback: Any = None,
    ) -> RankRLS:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            The kernel matrix of shape (n_rows, n_rows) if ``kernel="precomputed"``.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), or PreferenceGraph
            Scores, higher is preferred. May be None if pairs are given.
        qid : array-like of shape (n_rows,), optional
            Query of every row: any hashable labels, in any row order. Only rows of the same
            query are compared. None: one ranking over all rows. Sizes of consecutive queries
            can be given as ``group`` instead, as in LightGBM and XGBoost.
        pairs : array-like of shape (n_pairs, 2), optional
            Row numbers (preferred, other).
        magnitude : array-like of shape (n_pairs,), optional
            How strongly, >= 0; 0: judged equal, a tie.
        pair_weight : array-like of shape (n_pairs,), optional
            How much each given pair counts, >= 0.
        pair_features : array-like of shape (n_pairs, n_pair_features), optional
            Covariates c of the comparison itself: z ≈ f(x_h) − f(x_j) + cᵀγ, with γ
            (``pair_coef_``) penalised as the weights of a linear kernel are. Which item was shown
            first, by how much it is longer, indicators of judges: what the ranking should not
            depend on. Kernels are then worked on as a Nyström basis of all rows with a pair,
            which gives the same functions.
        sample_weight : array-like of shape (n_rows,), optional
            A pair from y counts the product of its rows' weights, so that an integer weight
            equals repeating the row (except ``query_weighting="query"`` with ties kept, where
            the copies add tied pairs).
        eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), optional
            What early stopping stops by. ``y_val`` may be a `PreferenceGraph`. None:
            ``validation_fraction`` of the queries (of the rows without qid, of the pairs without
            y) is held out.
        callback : function, optional
            For solver "cg": called after every iteration with an `Iteration` (n_iter, residual,
            error, best_error, best_iteration); training ends when it returns a true value.

        Returns
        -------
        RankRLS
            The fitted estimator.

        Notes
        -----
        Rows are matched by position. If X is a pandas frame, y, qid and sample_weight whose index
        has the same names in another order are refused: pass ``y.loc[X.index]``.
        """
        alphas = np.array([self._check_alpha("alpha", self.alpha)])
        if eval_set is not None and not self.early_stopping:
            raise ValueError("eval_set is what early stopping stops by: set early_stopping=True")
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "pair_features": pair_features,
            "sample_weight": sample_weight,
        }
        with unchanged_on_error(self):
            kernel, X, graph = self._prepare(X, y, preferences)
            self._fit_prepared(kernel, X, graph, alphas, eval_set=eval_set, callback=callback)
        return self

    def _fit_prepared(
        self,
        kernel: Kernel,
        X: Any,
        graph: PreferenceGraph,
        alphas: Array,
        *,
        eval_set: Any = None,
        callback: Any = None,
    ) -> None:
        """Fit for all ``alphas``, and note down what was learned from, for calls that add to it.

        The fitted attributes are those of the first alpha.
        """
        held_out = None
        if self.early_stopping:
            split = split_for_validation(self, X, graph, eval_set)
            score = partial(graph_accuracy, split.held)
            held_out = HeldOutRows(split.X, score, split.rows)
            graph = split.graph
        problem = self._problem(kernel, X, graph)
        model, history = self._solve(problem, alphas, held_out=held_out, callback=callback)
        self._store(problem, model, history)
        self._ledger = Ledger()
        self._ledger.add(graph)
        self._preferences = graph.n_preferences
        self._learned_with = self._terms(kernel)
        self.__dict__.pop("_pending", None)

    def __copy__(self) -> RankRLS:
        """A shallow copy with a ledger of its own: updating the copy leaves the original alone."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if hasattr(self, "_ledger"):
            other._ledger = self._ledger.copy()
        if hasattr(self, "_pending"):
            other._pending = self._pending.copy()
            other._pending.ledger = self._pending.ledger.copy()
        return other

    @IncrementalMethod
    @takes_queries
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
                self._warn_about_columns(kernel, X, graph.query_codes if graph.has_qid else None)
                basis = self._first_basis(kernel, X)
                learned = Learned.nothing(X, basis, graph.n_outputs, graph.flat)
            _check_outputs(learned, graph)
            learned.ledger.check_new(graph, SEEN)
            learned.add(graph, X, self._loss)
            undo.append(learned.ledger.undo(graph))
            self._settle(learned, kernel, learned.ledger.add, graph)
        return self

    @IncrementalMethod
    @takes_queries
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
            learned.ledger.check_known(graph)
            learned.subtract(graph, X, self._loss)
            undo.append(learned.ledger.undo(graph))
            self._settle(learned, kernel, learned.ledger.remove, graph)
        return self

    @IncrementalMethod
    def fit_stream(self, batches: Iterable[Any], *, basis_rows: Any = None) -> Any:
        """Fit to batches, one at a time: data larger than memory, read once.

        Parameters
        ----------
        batches : iterable
            Of (X, y) or (X, y, qid), or of mappings with ``data``, ``target``, ``qid`` and, if
            wanted, ``sample_weight`` and ``feature_names``: what `rankrls.datasets.iter_letor`
            and `iter_parquet` give. Names of features must be the same in all batches.
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
                    by_row = {"qid": batch.qid, "sample_weight": batch.sample_weight}
                    check_same_rows(batch.X, y=batch.y, **by_row)
                    X = self._check_batch(batch.X, reset=learner.learned is None)
                    self._check_names(batch.names, X.shape[1], reset=learner.learned is None)
                    if learner.learned is None:
                        learner.begin(X, batch, self._first_basis(kernel, X, basis_rows))
                        queries = encode_qid(batch.qid, X.shape[0])
                        self._warn_about_columns(kernel, X, queries.codes)
                    learner.add(X, batch)
            self._settle(learner.finish(), kernel)
        return self

    def _rescale_features(self, factor: Array, offset: Array) -> None:
        """Make a primal model that of (X − offset) · factor: exact, from its sums, without rows."""
        with unchanged_on_error(self):
            kernel = self._check_terms(first=False)
            learned = self._learned()
            assert learned is not None
            for part in learned.total:
                part.rescale(factor, offset)
            self._settle(learned, kernel)

    # -- what the three share

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
        if self._model.pair_coef is not None:
            raise ValueError(
                "the model was fitted with pair_features, whose sums are not kept: fit it again "
                "to all pairs"
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
        if reset:
            self.__dict__.pop("_names_beside", None)
        with clear_errors(X):
            X = validate_data(
                self._asked_for_names(X, reset),
                X,
                accept_sparse=("csr", "csc"),
                dtype=(np.float64, np.float32),
                reset=reset,
            )
        return canonical(X, dense=False)

    def _check_names(self, names: Any, n_features: int, *, reset: bool) -> None:
        """Keep the names of a batch's columns that come beside an array, or compare them."""
        if names is None:
            return
        check_length("feature_names", names, n_features, "columns")
        if not reset or hasattr(self, "feature_names_in_"):
            check_feature_names(names, getattr(self, "feature_names_in_", None), "this batch")
        else:
            self.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
            self._names_beside = True

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
        model = learned.model(float(self.alpha), getattr(self, "feature_names_in_", None))
        if note is not None and graph is not None:
            note(graph)
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
