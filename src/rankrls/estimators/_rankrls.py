"""``RankRLS``: the estimator. It validates, calls the rooms below, and stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._progress import Progress
from rankrls._validation import check_option, check_positive
from rankrls.estimators._inputs import (
    graph_accuracy,
    graph_from_arguments,
    require_preferences,
)
from rankrls.feature_maps import Kernel, check_gram
from rankrls.models import SOLVERS, NystroemModel, fit_model
from rankrls.preferences import COSTS, QUERY_WEIGHTINGS, TIES, PreferenceGraph

__all__ = ["RankRLS"]

Array = NDArray[Any]


class RankRLS(BaseEstimator):
    """Learn to rank by regularised least squares on preferences.

    Minimises, over functions f of a feature space or of a kernel's space,

        Σ_edges w² (z − (f(x_h) − f(x_j)))² + alpha ‖f‖²

    where an edge says that row h is preferred to row j. Edges come from scores y (every pair
    of rows of the same query), from given pairs, or from both.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation, > 0. It multiplies ‖f‖² and nothing is rescaled.
    kernel : str or callable, default="linear"
        Any name that scikit-learn's `pairwise_kernels` takes, a function of two rows, or
        "precomputed" (X is the kernel matrix).
    gamma, degree, coef0 : float
        Parameters of the kernels that have them (``gamma=None``: 1/n_features).
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
        A pair of a query with n rows counts 1, 1/n, or 1/(number of pairs of the query).
    solver : {"auto", "primal", "dual", "nystroem"}, default="auto"
        "primal" works on an n_features × n_features system, "dual" on n_rows × n_rows,
        "nystroem" on one of the size of the basis (an approximation: f is spanned by the basis
        vectors). The rule of "auto": a ``basis`` asks for "nystroem"; a kernel other than linear
        is solved in "dual" if two n_rows × n_rows matrices fit into half of the memory, else in
        "nystroem", with a warning; a linear one in "primal" if n_features <= n_rows, else "dual".
    basis : int or array of int, optional
        Nyström basis vectors: how many to draw at random, or the row numbers. None with
        ``solver="nystroem"``: 1000, or all rows if there are fewer.
    random_state : int, RandomState instance or None
        For the random basis.
    verbose : int, default=0
        1: progress on stderr.
    n_jobs : int, optional
        Passed on to `pairwise_kernels`; None: as many threads as BLAS uses.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights, for the linear kernel.
    dual_coef_ : ndarray of shape (n_rows,), (n_rows, n_outputs), or the same over the basis
        Kernel coefficients, for solvers "dual" and "nystroem". Where the kernel matrix is
        singular other coefficients give the same function.
    basis_indices_ : ndarray of shape (n_basis,)
        Rows that are basis vectors, for solver "nystroem".
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Iterations of the solver: 1 for the direct ones.
    n_pairs_ : int
        Edges in the objective, tied ones included when kept; outputs with graphs of their own
        are added up.
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
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
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
            query are compared. None: one ranking over all rows.
        pairs : array-like of shape (n_pairs, 2), optional
            Row numbers (preferred, other).
        magnitude : array-like of shape (n_pairs,), optional
            How strongly, > 0.
        pair_weight : array-like of shape (n_pairs,), optional
            How much each given pair counts, >= 0.
        sample_weight : array-like of shape (n_rows,), optional
            A pair from y counts the product of its rows' weights, so that an integer weight
            equals repeating the row (except ``query_weighting="query"`` with ties kept, where
            the copies add tied pairs).

        Returns
        -------
        RankRLS
            The fitted estimator.
        """
        alphas = np.array([check_positive("alpha", self.alpha)])
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        self._fit_path(X, y, alphas, preferences)
        return self

    def _fit_path(self, X: Any, y: Any, alphas: Array, preferences: dict[str, Any]) -> None:
        """Fit for all ``alphas``; the fitted attributes are those of the first."""
        kernel = self._check_options()
        X = validate_data(
            self,
            X,
            accept_sparse=("csr", "csc"),
            dtype=(np.float64, np.float32),
            ensure_min_samples=2,
        )
        graph = graph_from_arguments(X.shape[0], y, **preferences)
        require_preferences(graph)
        X = _canonical(X, dense=kernel.precomputed)
        if kernel.precomputed:
            check_gram(X)
        fit = fit_model(
            graph,
            kernel,
            X,
            alphas,
            loss={"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting},
            solver=self.solver,
            basis=self.basis,
            random_state=check_random_state(self.random_state),
            progress=Progress(type(self).__name__, self.verbose),
        )
        self._model = fit.model
        self.solver_ = fit.solver
        self.n_pairs_ = fit.n_pairs
        self.n_iter_ = 1
        self.n_queries_ = graph.n_queries
        self._flat = graph.flat
        self._with_qid = graph.has_qid
        self._store_coefficients()

    def _check_options(self) -> Kernel:
        check_option("cost", self.cost, COSTS)
        check_option("ties", self.ties, TIES)
        check_option("query_weighting", self.query_weighting, QUERY_WEIGHTINGS)
        check_option("solver", self.solver, SOLVERS)
        return Kernel.from_options(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
            n_jobs=self.n_jobs,
        )

    def _store_coefficients(self) -> None:
        for name in ("coef_", "dual_coef_", "basis_indices_"):
            self.__dict__.pop(name, None)
        model = self._model
        if model.coef is not None:
            self.coef_ = model.coef[0][:, 0] if self._flat else model.coef[0].T
        if model.dual_coef is not None:
            self.dual_coef_ = self._outputs(model.dual_coef[0])
        if isinstance(model, NystroemModel):
            self.basis_indices_ = model.basis

    def _outputs(self, values: Array) -> Array:
        """Drop the axis of outputs if y had none."""
        return values[..., 0] if self._flat else values

    def _check_new(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), reset=False
        )
        return _canonical(X, dense=self.kernel == "precomputed")

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Kernel values with all training rows, (n, n_rows), if the kernel is precomputed.
        return_std : bool, default=False
            Also give the posterior standard deviation of the score, relative to the mean
            score of the training rows (Gaussian-process reading, see Notes of the class).

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs), or a pair of them
        """
        X = self._check_new(X)
        scores = self._outputs(self._model.predict(X))
        if not return_std:
            return scores
        return scores, self._outputs(np.sqrt(self._model.variance(X)))

    def preference_proba(self, X_a: Any, X_b: Any, *, noisy: bool = False) -> Array:
        """P(a preferred to b) for rows a of ``X_a`` and b of ``X_b``, under the posterior.

        Parameters
        ----------
        X_a, X_b : array-like or sparse matrix of shape (n, n_features)
        noisy : bool, default=False
            Whether to predict a new judgement of weight 1, with its noise alpha, instead of the
            scores.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            Φ((μ_a − μ_b)/√(v_aa + v_bb − 2v_ab [+ alpha])), 1/2 where nothing tells them apart.
        """
        X_a, X_b = self._check_new(X_a), self._check_new(X_b)
        if X_a.shape[0] != X_b.shape[0]:
            raise ValueError(
                f"X_a has {X_a.shape[0]} rows and X_b {X_b.shape[0]}: they are compared row by row"
            )
        if sparse.issparse(X_a) != sparse.issparse(X_b):
            X_a, X_b = sparse.csr_array(X_a), sparse.csr_array(X_b)
        difference = self._model.predict(X_a) - self._model.predict(X_b)
        variance = self._model.difference_variance(X_a, X_b)
        if noisy:
            variance = variance + self._model.alpha
        z = np.where(difference > 0, np.inf, np.where(difference < 0, -np.inf, 0.0))
        np.divide(difference, np.sqrt(variance), out=z, where=variance > 0)
        return self._outputs(ndtr(z))

    def log_marginal_likelihood(self) -> Any:
        """Log density of the training preferences under the Gaussian process, per output.

        The targets z of all edges are taken as observations of differences f(x_h) − f(x_j)
        with noise variance alpha/w². For given pairs it can be compared between kernels, their
        parameters and alphas. For scores it can be compared between kernels and their parameters
        at a fixed alpha, best with ``query_weighting="size"``; it cannot choose alpha, because
        the n(n − 1)/2 differences of n scores agree with each other perfectly and yet count as
        independent observations.
        """
        check_is_fitted(self)
        value = self._model.log_marginal_likelihood()
        return float(value[0]) if self._flat else value

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def score(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> float:
        """Pairwise accuracy, mean over the queries that have a pair.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
        y : array-like of shape (n,) or (n, n_outputs), or PreferenceGraph
        qid : array-like of shape (n,)
            Required if the model was fitted with qid.
        sample_weight : array-like of shape (n,), optional
            A pair counts the product of its rows' weights.

        Returns
        -------
        float
            1 − `rankrls.metrics.pairwise_error` (tied predictions count ½), averaged over
            outputs.
        """
        check_is_fitted(self)
        if self._with_qid and qid is None and not isinstance(y, PreferenceGraph):
            raise ValueError(
                "the model was fitted with qid, so score needs qid too: without it rows of "
                "different queries would be compared (in a search: enable_metadata_routing and "
                "set_score_request(qid=True))"
            )
        predictions = self.predict(X)
        graph = graph_from_arguments(len(predictions), y, qid=qid, sample_weight=sample_weight)
        if graph.n_outputs != self._model.n_outputs:
            raise ValueError(
                f"the model has {self._model.n_outputs} output(s), y has {graph.n_outputs}"
            )
        require_preferences(graph, "evaluate")
        return graph_accuracy(graph, predictions)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _canonical(X: Any, *, dense: bool) -> Any:
    """Sparse X as CSR without duplicate entries (the caller's is left alone), or dense."""
    if not sparse.issparse(X):
        return X
    if dense:
        return X.toarray()
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X or np.shares_memory(rows.data, X.data) else rows
        rows.sum_duplicates()
    return rows
