"""What all least-squares rankers share: preparing, fitting, predicting, scoring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._progress import Progress
from rankrls._validation import check_option
from rankrls.estimators._inputs import (
    graph_accuracy,
    graph_from_arguments,
    require_preferences,
)
from rankrls.feature_maps import Kernel, check_gram, choose_basis
from rankrls.holdout import HoldoutProblem
from rankrls.models import SOLVERS, Model, NystroemModel, fit_model
from rankrls.preferences import COSTS, QUERY_WEIGHTINGS, TIES, PreferenceGraph

__all__ = ["LeastSquaresRanker"]

Array = NDArray[Any]


class LeastSquaresRanker(BaseEstimator):
    """Everything of `RankRLS` but its constructor and ``fit``."""

    kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    cost: str
    ties: str
    query_weighting: str
    solver: str
    basis: Any
    random_state: Any
    verbose: int
    n_jobs: int | None

    _model: Model
    _flat: bool
    _with_qid: bool

    def _prepare(
        self, X: Any, y: Any, preferences: dict[str, Any]
    ) -> tuple[Kernel, Any, PreferenceGraph]:
        """Check everything that does not need a solver: kernel, X, and the preference graph."""
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
        return kernel, X, graph

    @property
    def _loss(self) -> dict[str, str]:
        return {"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting}

    def _fit_prepared(self, kernel: Kernel, X: Any, graph: PreferenceGraph, alphas: Array) -> None:
        """Fit for all ``alphas``; the fitted attributes are those of the first."""
        fit = fit_model(
            graph,
            kernel,
            X,
            alphas,
            loss=self._loss,
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

    def _holdout_problem(
        self, kernel: Kernel, X: Any, graph: PreferenceGraph, *, keep_basis: bool = False
    ) -> HoldoutProblem:
        """The same problem, to be asked for held-out predictions."""
        basis = None
        if self.basis is not None or self.solver == "nystroem":
            basis = choose_basis(self.basis, X.shape[0], check_random_state(self.random_state))
        return HoldoutProblem(graph, kernel, X, loss=self._loss, basis=basis, keep_basis=keep_basis)

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
            self.basis_indices_ = model.basis.indices

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
