"""What all least-squares rankers share: preparing, fitting, predicting, scoring."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls._progress import Progress
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_option,
    check_positive,
    show,
)
from rankrls.core.linalg.conjugate_gradients import DEFAULT_MAX_ITER, History, IterationOptions
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.objectives import COSTS, QUERY_WEIGHTINGS, TIES
from rankrls.core.ridge.build import Fit, fit_model
from rankrls.core.ridge.choice import SOLVERS
from rankrls.core.ridge.iterative import HeldOut
from rankrls.core.ridge.models import Model
from rankrls.core.ridge.problem import HoldoutProblem
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import choose_basis
from rankrls.estimators.held_out import Split, check_eval_set, split_off
from rankrls.estimators.keywords import NO_QID, check_return_std, explained
from rankrls.estimators.ranker import Ranker

__all__ = ["LeastSquaresRanker"]

Array = NDArray[Any]


class LeastSquaresRanker(Ranker):
    """Everything of `RankRLS` but its constructor and ``fit``."""

    cost: str
    ties: str
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int

    _solvers: tuple[str, ...] = SOLVERS
    _model: Model

    @property
    def _keeps_columns(self) -> bool:
        return self.solver == "cg"

    @property
    def _loss(self) -> dict[str, str]:
        return {"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting}

    def _fit_prepared(
        self,
        kernel: Kernel,
        X: Any,
        graph: PreferenceGraph,
        alphas: Array,
        *,
        held_out: HeldOut | None = None,
        callback: Any = None,
    ) -> Fit:
        """Fit for all ``alphas``; the fitted attributes are those of the first.

        With ``held_out`` rows (early stopping) there is but the best one.
        """
        progress = Progress(type(self).__name__, self.verbose)
        fit = fit_model(
            graph,
            kernel,
            X,
            alphas,
            loss=self._loss,
            solver=self.solver,
            basis=self.basis,
            random_state=check_random_state(self.random_state),
            progress=progress,
            n_jobs=self.n_jobs,
            iteration=self._iteration(progress, callback),
            held_out=held_out,
        )
        self._model = fit.model
        self.solver_ = fit.solver
        self.n_pairs_ = fit.n_pairs
        self.n_iter_ = fit.history.n_iter
        self.n_queries_ = graph.n_queries
        self._flat = graph.flat
        self._with_qid = graph.has_qid
        self._store_coefficients()
        self._store_validation(fit.history)
        return fit

    def _iteration(self, progress: Progress, callback: Any) -> IterationOptions:
        """The checked parameters of solver="cg"."""
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of one argument; got {show(callback)}")
        max_iter = DEFAULT_MAX_ITER
        if self.max_iter is not None:
            max_iter = check_integer("max_iter", self.max_iter, least=1)
        patience = check_integer("n_iter_no_change", self.n_iter_no_change, least=1)
        tol = check_positive("tol", self.tol)
        return IterationOptions(tol, max_iter, patience, callback, progress)

    def _check_alphas(self, name: str, values: Any) -> Array:
        """The grid: numbers > 0; early stopping regularises by itself and also takes zero."""
        alphas = check_finite_array(name, np.atleast_1d(values), ndim=(1,))
        if not alphas.size:
            raise ValueError(f"{name} is empty: give at least one number > 0")
        self._check_alpha(name, float(alphas.min()))
        return alphas

    def _check_alpha(self, name: str, value: Any) -> float:
        if self.early_stopping is True and isinstance(value, numbers.Real) and value == 0:
            return 0.0
        if isinstance(value, str):
            raise ValueError(f"{name} must be a number > 0; got {value!r}. RankRLSCV chooses alpha")
        return check_positive(name, value)

    def _split(self, X: Any, graph: PreferenceGraph, eval_set: Any) -> Split:
        """What to learn from and what to hold out: ``eval_set``, or a part of the rows."""
        if eval_set is not None:
            rows, held = check_eval_set(
                eval_set, self._check_rows, has_qid=graph.has_qid, n_outputs=graph.n_outputs
            )
            return Split(graph, None, rows, held)
        fraction = check_positive("validation_fraction", self.validation_fraction)
        if fraction >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {fraction:g}")
        return split_off(X, graph, fraction, check_random_state(self.random_state))

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
        check_option("solver", self.solver, self._solvers)
        if not isinstance(self.early_stopping, bool | np.bool_):
            raise ValueError(f"early_stopping must be True or False; got {self.early_stopping!r}")
        return self._check_kernel()

    def _store_validation(self, history: History) -> None:
        for name in ("best_iteration_", "validation_curve_", "validation_iterations_"):
            self.__dict__.pop(name, None)
        if history.best_iteration is not None:
            self.best_iteration_ = history.best_iteration
            self.validation_iterations_ = history.iterations
            self.validation_curve_ = self._curve(history.errors)

    def _curve(self, errors: Array) -> Array:
        """Validation errors of the only alpha, shape (n_checks,)."""
        return errors[:, 0]

    @explained(qid=NO_QID)
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
        check_return_std(return_std)
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
                f"X_a has {X_a.shape[0]} row(s) and X_b {X_b.shape[0]}: they are compared row by "
                "row (one with many: repeat its row as often)"
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
