"""``RankRLS``: the estimator, and the problem it would solve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, takes_queries, unchanged_on_error
from rankrls._resources import n_threads
from rankrls._validation import check_integer, check_option, check_positive, is_number, show
from rankrls.core.linalg.krylov import DEFAULT_MAX_ITER, History, IterationOptions
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.problem import HeldOutRows, RidgeProblem, iterate
from rankrls.core.spaces.spaces import SOLVERS, Kernel, choose_space
from rankrls.estimators.calibration import margins
from rankrls.estimators.choosing import check_alphas, split_for_validation
from rankrls.estimators.incremental import IncrementalMethod, SeenQueries, update
from rankrls.estimators.ranker import BaseRanker, Preferences, graph_accuracy
from rankrls.estimators.stream import fit_stream

Array = NDArray[Any]


class RidgeRanker(BaseRanker):
    """Base class of `RankRLS` and `RankRLSCV`: least squares, its posterior, and exact updates."""

    cost: str
    ties: str
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    noise_variance_: Any
    fit: Callable[..., Any]
    _seen: SeenQueries
    _preferences: Array
    _learned_with: dict[str, Any]

    __metadata_request__partial_fit = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)

    @property
    def _loss(self) -> Loss:
        """The checked options of the loss."""
        return Loss(self.cost, self.ties, self.query_weighting)

    @property
    def _alpha(self) -> Any:
        """The alpha of the model; None before it was chosen."""
        return self.alpha if hasattr(self, "alpha") else getattr(self, "alpha_", None)

    def _check_options(self) -> Kernel:
        self._loss  # noqa: B018 (checks them)
        check_option("solver", self.solver, SOLVERS)
        if not isinstance(self.early_stopping, bool | np.bool_):
            raise ValueError(f"early_stopping must be True or False; got {self.early_stopping!r}")
        check_positive("tol", self.tol)
        for name in ("max_iter", "n_iter_no_change"):
            if getattr(self, name) is not None or name != "max_iter":
                check_integer(name, getattr(self, name), least=1)
        if check_positive("validation_fraction", self.validation_fraction) >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {self.validation_fraction}")
        n_threads(self.n_jobs)
        return self._check_kernel()

    def _check_alpha(self, name: str, value: Any) -> float:
        iterates = self.early_stopping or self.solver == "cg"
        if iterates and is_number(value) and value == 0:  # the iterations regularise
            return 0.0
        if isinstance(value, str):
            raise ValueError(f"{name} must be a number > 0; got {value!r}. RankRLSCV chooses alpha")
        return check_positive(name, value)

    def _terms(self, kernel: Kernel) -> dict[str, Any]:
        """Parameters that must not change between updates."""
        loss = {"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting}
        return {**loss, "kernel": kernel.metric, "kernel parameters": kernel.params}

    def _problem(self, kernel: Kernel, X: Any, graph: PreferenceGraph) -> RidgeProblem:
        """Set up the problem: choose its space and draw its basis, once."""
        solver, basis = self.solver, self.basis
        if graph.pair_features is not None:
            if solver == "cg" or self.early_stopping:
                raise ValueError("pair_features need a direct solver: leave solver='auto'")
            used = np.flatnonzero(graph.used_rows())
            explicit = kernel.linear and (X.shape[1] <= len(used) or solver == "primal")
            if basis is None and solver != "nystroem":
                # Features of the same functions, beside which covariates can stand.
                solver, basis = ("primal", None) if explicit else ("nystroem", used)
        space = choose_space(
            solver,
            kernel,
            X,
            basis=basis,
            random_state=check_random_state(self.random_state),
            used=int(graph.used_rows().sum()) if solver in ("auto", "dual") else None,
            early_stopping=bool(self.early_stopping),
        )
        return RidgeProblem(graph, space, self._loss, getattr(self, "feature_names_in_", None))

    def _solve(
        self,
        problem: RidgeProblem,
        alphas: Array,
        *,
        held_out: HeldOutRows | None = None,
        callback: Any = None,
    ) -> tuple[Any, History]:
        """The model for all ``alphas``, or with held-out rows for the best of them."""
        progress = Progress(type(self).__name__, self.verbose)
        progress(f"solver {problem.space.solver}, {problem.n_pairs:,} pairs")
        if problem.space.solver != "cg":
            return problem.solve(alphas), History(n_iter=1)
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of one argument; got {show(callback)}")
        max_iter = DEFAULT_MAX_ITER if self.max_iter is None else self.max_iter
        options = IterationOptions(self.tol, max_iter, self.n_iter_no_change, callback, progress)
        return iterate(problem, alphas, options, n_threads(self.n_jobs), held_out)

    def _store(self, problem: RidgeProblem, model: Any, history: History) -> None:
        """Store a model and, if it can be updated, which queries it has learned."""
        graph, kernel, solver = problem.graph, problem.space.kernel, problem.space.solver
        self._store_fit(model, graph, problem.n_pairs, solver, history)
        if solver in ("primal", "nystroem"):
            self._seen = SeenQueries()
            self._seen.add_graph(graph, None if kernel.precomputed else problem.space.X)
            self._preferences, self._learned_with = graph.n_preferences, self._terms(kernel)

    @IncrementalMethod
    def fit_stream(self, batches: Any, *, basis_rows: Any = None) -> Any:
        """Fit to a stream of batches, for data larger than memory; equals ``fit`` to all rows.

        Parameters
        ----------
        batches : iterable, or function that returns one
            Batches (X, y) or (X, y, qid), or mappings with ``data``, ``target``, ``qid`` and
            optionally ``sample_weight`` and ``feature_names``, as returned by
            `rankrls.datasets.iter_letor` and `iter_parquet`. The last query of a batch may continue
            in the next one; a query that appears again later is an error. Without qid all batches
            form one ranking, which requires cost="magnitude" and ties="keep".
        basis_rows : array-like of shape (n_basis, n_features), optional
            Basis vectors for solver "nystroem" (for a precomputed kernel, their kernel matrix). By
            default ``basis`` refers to rows of the first batch.

        Notes
        -----
        `RankRLSCV` chooses alpha by folds of whole queries, ``cv`` of them ("auto" is 5), to which
        queries are assigned in turn. Metrics other than ``scoring="pairwise_r2"`` need a second
        pass: give a list, or a function such as ``lambda: iter_letor(path)``.
        """
        return fit_stream(self, batches, basis_rows)

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

        Supported are the linear kernel with solver "primal", and any kernel with a basis, which the
        first call fixes. If a call fails, the model does not change.

        Parameters
        ----------
        X, y, pairs, magnitude, pair_weight, sample_weight
            As for ``fit``. ``pairs`` holds row numbers of the X of this call.
        qid : array-like of shape (n_rows,), optional
            Query of each row. All rows of a query must be passed in one call; a query of an earlier
            call is an error. If None, the rows of this call form one ranking.

        Returns
        -------
        RankRLS
            The estimator, which is not fitted until a call contains a preference. ``alpha`` may
            change between calls, the loss and the kernel may not. `RankRLSCV` keeps its ``alpha_``.
        """
        preferences = Preferences(y, qid, pairs, magnitude, pair_weight, sample_weight)
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
            The estimator, which is no longer fitted if no preference remains. A query that was not
            added, or with other rows (as checksums tell), is an error, and so is a remainder that
            has lost too many digits for alpha.
        """
        preferences = Preferences(y, qid, pairs, magnitude, pair_weight, sample_weight)
        update(self, -1, X, preferences)
        return self

    @property
    def _based(self) -> bool:
        """Whether the model has, or will have, a Nyström basis."""
        return self.basis is not None or "nystroem" in (self.solver, getattr(self, "solver_", ""))

    def _why_not_incremental(self) -> str | None:
        """Reason why these parameters do not allow exact updates; None if they do."""
        based = self._based
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

    def _noise(self) -> tuple[Any, Any]:
        """Noise variance of a judgement of weight 1, and the scale of the model's variances."""
        alpha = self._model.alpha
        if not hasattr(self, "noise_variance_"):
            return alpha, 1.0
        return self.noise_variance_, self.noise_variance_ / alpha

    def preference_proba(
        self, X_a: Any, X_b: Any, *, pair_features: Any = None, noisy: bool | None = None
    ) -> Array:
        """P(a preferred to b) for rows a of ``X_a`` and b of ``X_b``.

        Parameters
        ----------
        X_a, X_b : array-like or sparse matrix of shape (n, n_features)
        pair_features : array-like of shape (n, n_pair_features), optional
            Covariates of the comparisons, if the model was fitted with some; None means zero.
        noisy : bool, optional
            True: of a new judgement with noise variance σ² (``noise_variance_``, or alpha). False:
            of the scores, without noise. None: of a new judgement, calibrated on held-out ones, if
            the model has a ``calibration_``, and the same as False otherwise.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            With μ and v the posterior mean and variance of f(a) − f(b): Φ(μ/√v), noisy
            Φ(μ/√(v + σ²)), calibrated g(slope · μ/√(1 + v/σ²)) with the link g.
        """
        X_a, X_b = self._check_new(X_a), self._check_new(X_b)
        if X_a.shape[0] != X_b.shape[0]:
            raise ValueError(
                f"X_a has {X_a.shape[0]} row(s) and X_b {X_b.shape[0]}: they are compared row by "
                "row (one with many: repeat its row as often)"
            )
        if sparse.issparse(X_a) != sparse.issparse(X_b):
            X_a, X_b = sparse.csr_array(X_a), sparse.csr_array(X_b)
        difference = self._model.predict(X_a) - self._model.predict(X_b)
        C = self._check_covariates(pair_features, X_a.shape[0])
        if C is not None:
            difference = difference + C @ self._model.pair_coef[0]
        variance = self._model.variance(X_a, X_b, C)
        calibration = getattr(self, "calibration_", None)
        if noisy is None and calibration is not None:
            margin = margins(difference, variance, self._model.alpha)
            return self._outputs(calibration.proba(margin))
        noise, scale = self._noise()
        variance = variance * scale + (noise if noisy else 0.0)
        z = np.where(difference > 0, np.inf, np.where(difference < 0, -np.inf, 0.0))
        np.divide(difference, np.sqrt(variance), out=z, where=variance > 0)
        return self._outputs(ndtr(z))

    def log_marginal_likelihood(self) -> Any:
        """Log density of the training preferences under the Gaussian process, per output.

        The targets of all edges are treated as observations of differences with noise variance
        alpha/w². It compares kernels and their parameters, and for given pairs also alphas. It
        cannot choose alpha for scores, whose n(n − 1)/2 differences are not independent.
        """
        check_is_fitted(self)
        value = self._model.log_marginal_likelihood()
        return float(value[0]) if self._flat else value


class RankRLS(RidgeRanker):
    """Learn to rank by regularised least squares on preferences.

    The objective, minimised over linear functions f or functions of a kernel, is

        Σ_edges w² (z − (f(x_h) − f(x_j)))² + alpha ‖f‖²

    where an edge means that row h is preferred to row j. Edges come from scores y (all pairs of
    rows of the same query), from given pairs, or from both.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation strength, > 0; nothing is rescaled. 0 is allowed with ``solver="cg"``, where
        the iterations regularise.
    kernel : str or callable, default="linear"
        A kernel of scikit-learn's `pairwise_kernels`, a function of two rows, or "precomputed".
    gamma, degree, coef0, kernel_params
        Parameters of the kernel. ``gamma=None`` is 1/n_features, or 1 for chi2.
    cost : {"magnitude", "unit", "relative"}, default="magnitude"
        Target z and weight w² of a pair whose scores differ by d (or of a given pair of magnitude
        d). "magnitude": z = d, w² = 1. "unit": z = 1, w² = 1. "relative": z = d, w² = 1/d².
    ties : {"keep", "drop"}, default="keep"
        Whether pairs with equal scores are part of the objective, with target 0. "unit" and
        "relative" always drop them. (``ties`` of `rankrls.metrics.pairwise_error` is about tied
        predictions.)
    query_weighting : {"pair", "size", "query"} or callable, default="pair"
        Weight of a pair in a query with n rows: 1, 1/n, or 1/(number of pairs of the query). A
        function gets the numbers (with sample weights, the total weights) of rows and of pairs of
        each query, as two arrays, and returns the weight of a pair of each query.
    solver : {"auto", "primal", "dual", "nystroem", "cg"}, default="auto"
        - "primal" and "dual" solve a system of size n_features, or n_rows;
        - "nystroem" approximates f by the span of basis vectors;
        - "cg" uses conjugate gradients, which only need products with the features;
        - "auto" uses "nystroem" with a ``basis``, "cg" with early stopping or for large sparse
          linear problems, otherwise "primal" (linear, n_features <= n_rows) or "dual", and
          "nystroem", with a warning, if a kernel matrix does not fit into memory.
    basis : int or array of int, optional
        Nyström basis vectors: the number of random rows (None is 1000), or row numbers.
    max_iter : int, optional
        Maximum number of iterations of "cg"; None is 1000.
    tol : float, default=1e-6
        Tolerance of "cg": relative error of the coefficients, and ‖residual‖/‖right-hand side‖.
    early_stopping : bool, default=False
        Whether to end "cg" when the pairwise error on held-out rows has not improved for
        ``n_iter_no_change`` iterations; the best model is kept.
    validation_fraction : float, default=0.1
        Fraction of the queries (of the rows without qid, of the pairs without y) that early
        stopping holds out at random if ``fit`` gets no ``eval_set``.
    n_iter_no_change : int, default=10
    random_state : int, RandomState instance or None
        Seed of the random basis and of the held-out rows.
    verbose : int, default=0
        1 prints progress on stderr.
    n_jobs : int, optional
        Number of threads of `pairwise_kernels` and of "cg". None is the number of threads of BLAS,
        −1 is all cores.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights, for the linear kernel.
    dual_coef_ : ndarray of shape (n_rows,), (n_rows, n_outputs), or the same over the basis
        Kernel coefficients, for solvers "dual" and "nystroem".
    pair_coef_ : ndarray of shape (n_pair_features,) or (n_outputs, n_pair_features)
        Coefficients of ``pair_features``.
    basis_indices_ : ndarray of shape (n_basis,)
        Row numbers of the basis vectors, for solver "nystroem".
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Number of iterations of the solver; 1 for direct solvers.
    best_iteration_, validation_curve_, validation_iterations_
        With early stopping: the best iteration, and the validation errors at these iterations.
    n_pairs_, n_queries_ : int
        Number of edges in the objective, summed over outputs, and of queries.
    n_features_in_, feature_names_in_
        Number of features, and their names if X has any.

    Notes
    -----
    Only differences of predictions are meaningful: scores are defined up to an additive constant.
    ``predict(X, return_std=True)`` and `preference_proba` treat the model as the posterior mean
    of a Gaussian process with noise variance alpha/w² per edge. The pairs of n scores contain the
    noise of each score n − 1 times, so these uncertainties are too small for scored data with
    ``query_weighting="pair"``.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]])
    >>> ranker = RankRLS(alpha=0.1).fit(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    >>> ranker.predict(X).round(2)
    array([-0.01,  0.98,  1.96,  2.94,  3.93])
    """

    alpha: float

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
        query_weighting: Any = "pair",
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
        self._set(locals())

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
            If ``kernel="precomputed"``, the kernel matrix, or its columns ``basis``.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), or PreferenceGraph
            Scores; higher is preferred. May be None if pairs are given.
        qid : array-like of shape (n_rows,), optional
            Query of each row: any hashable labels, in any row order. Only rows of the same
            query are compared. If None, all rows form one ranking. Sizes of consecutive queries
            can be passed as ``group`` instead.
        pairs : array-like of shape (n_pairs, 2), optional
            Row numbers (preferred, other).
        magnitude : array-like of shape (n_pairs,), optional
            Strength of each preference, >= 0; 0 is a tie.
        pair_weight : array-like of shape (n_pairs,), optional
            Weight of each given pair, >= 0.
        pair_features : array-like of shape (n_pairs, n_pair_features), optional
            Covariates c of the comparison, which should not affect the ranking: which item was
            shown first, the difference in length. The model is z ≈ f(x_h) − f(x_j) + cᵀγ, with γ
            (``pair_coef_``) penalised as if c had mean square 1.
        sample_weight : array-like of shape (n_rows,), optional
            The weight of a pair from y is the product of the weights of its rows.
        eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), optional
            Validation data for early stopping. ``y_val`` may be a `PreferenceGraph`.
        callback : function, optional
            For solver "cg": called after every iteration with an `Iteration` (n_iter, residual,
            error, best_error, best_iteration). Training ends if it returns a true value.
        """
        alphas = np.array([self._check_alpha("alpha", self.alpha)])
        if eval_set is not None and not self.early_stopping:
            raise ValueError("eval_set is what early stopping stops by: set early_stopping=True")
        given = (y, qid, pairs, magnitude, pair_weight, sample_weight, pair_features)
        with unchanged_on_error(self):
            self._fit_prepared(*self._prepare(X, Preferences(*given)), alphas, eval_set, callback)
        return self

    def _fit_prepared(
        self,
        kernel: Kernel,
        X: Any,
        graph: PreferenceGraph,
        alphas: Array,
        eval_set: Any = None,
        callback: Any = None,
    ) -> None:
        """Fit for all ``alphas``; the fitted attributes are those of the first."""
        held_out = None
        if self.early_stopping:
            split = split_for_validation(self, X, graph, eval_set)
            held_out = split.X, partial(graph_accuracy, split.held), split.rows
            graph = split.graph
        problem = self._problem(kernel, X, graph)
        model, history = self._solve(problem, alphas, held_out=held_out, callback=callback)
        self._store(problem, model, history)


def exact_problem(
    estimator: RankRLS, X: Any, preferences: Preferences, alphas: ArrayLike | None = None
) -> tuple[RankRLS, RidgeProblem, Array]:
    """A clone that knows the features of X, its problem, and the alphas (None: its own)."""
    if not isinstance(estimator, RankRLS):
        raise ValueError(
            f"estimator must be a RankRLS; got a {type(estimator).__name__}. Pass RankRLS with the "
            "alpha_ and the parameters of a RankRLSCV, and X transformed by the steps of a "
            "pipeline. Any estimator is refitted by leave_pair_out_auc and cross_val_score"
        )
    if alphas is None:
        grid = np.array([check_positive("alpha", estimator.alpha)])
    else:
        grid = check_alphas("alphas", alphas, as_given=True)
    ranker = clone(estimator)
    return ranker, ranker._problem(*ranker._prepare(X, preferences)), grid


def check_covariates(estimator: Any, pair_features: Any) -> None:
    """Refuse to leave away the covariates of the pairs that an estimator was fitted to."""
    if pair_features is None and hasattr(estimator, "pair_coef_"):
        raise ValueError(
            "the estimator was fitted with pair_features: give those of these pairs, too"
        )
