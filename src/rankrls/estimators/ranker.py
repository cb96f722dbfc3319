"""What all rankers share: checking what they are given, preparing, predicting, scoring."""

from __future__ import annotations

import functools
import inspect
import numbers
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._messages import Progress
from rankrls._threads import n_threads
from rankrls._validation import (
    check_integer,
    check_length,
    check_option,
    check_positive,
    check_scores,
    clear_errors,
    show,
)
from rankrls.core.linalg.conjugate_gradients import DEFAULT_MAX_ITER, History, IterationOptions
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import COSTS, TIES
from rankrls.core.preferences.query_weights import QUERY_WEIGHTINGS
from rankrls.core.ridge.iterative import HeldOutRows
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.spaces.spaces import SOLVERS, Kernel, check_gram, choose_space
from rankrls.metrics import pairwise_accuracy

__all__ = [
    "NO_DEVIATIONS",
    "NO_QID",
    "PosteriorMixin",
    "Ranker",
    "canonical",
    "check_return_std",
    "explained",
    "graph_accuracy",
    "graph_from_arguments",
    "require_preferences",
    "unchanged_on_error",
]

Array = NDArray[Any]

F = TypeVar("F", bound=Callable[..., Any])

NO_QID = (
    "predict takes no qid, because the score of a row does not depend on its query: predict all "
    "rows, then sort those of each query by their scores"
)

NO_DEVIATIONS = "it has no standard deviations; RankRLS and RankRLSCV have them"


def explained(**hints: str) -> Callable[[F], F]:
    """Say what to do instead about some arguments that a method or constructor does not have.

    The ``TypeError`` names the class of the object, not the one that defines the method. The
    signature stays as it is written: ``get_params``, ``clone`` and metadata routing read it.

    Parameters
    ----------
    **hints : str
        By the name of the argument.

    Examples
    --------
    >>> class Ranker:
    ...     @explained(size="it is called length")
    ...     def cut(self, length=3):
    ...         return length
    >>> Ranker().cut(length=2)
    2
    >>> Ranker().cut(size=2)
    Traceback (most recent call last):
    TypeError: Ranker.cut() got an unexpected keyword argument 'size': it is called length
    """

    def decorate(method: F) -> F:
        known = set(inspect.signature(method).parameters)
        place = "" if method.__name__ == "__init__" else f".{method.__name__}"

        @functools.wraps(method)
        def checked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name not in known:
                    hint = f": {hints[name]}" if name in hints else ""
                    raise TypeError(
                        f"{type(self).__name__}{place}() got an unexpected keyword argument "
                        f"{name!r}{hint}"
                    )
            return method(self, *args, **kwargs)

        return cast(F, checked)

    return decorate


def check_return_std(value: Any) -> bool:
    """Return ``return_std`` if it is a bool: query ids in its place would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"return_std must be True or False; got {show(value)} ({NO_QID})")
    return bool(value)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Put all attributes back if something fails; none of them is changed in place before."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        object.__setattr__(estimator, "__dict__", before)
        raise


def graph_from_arguments(
    n_rows: int,
    y: Any,
    *,
    qid: Any = None,
    pairs: Any = None,
    magnitude: Any = None,
    pair_weight: Any = None,
    sample_weight: Any = None,
) -> PreferenceGraph:
    """Check the arguments of ``fit`` and put them into one graph over ``n_rows`` rows."""
    if isinstance(y, PreferenceGraph):
        others = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"y is a PreferenceGraph: {name} must be part of it")
        if len(y) != n_rows:
            raise ValueError(f"y is a graph over {len(y)} rows for {n_rows} rows of X")
        return y
    if pairs is None:
        for name, value in {"magnitude": magnitude, "pair_weight": pair_weight}.items():
            if value is not None:
                raise ValueError(f"{name} belongs to pairs, and there are none")
        if y is None:
            raise ValueError(
                "ranking requires y to be passed, but the target y is None: give scores y, "
                "or pairs of row numbers (preferred, other)"
            )
    graph = None
    if y is not None:
        scores = check_scores(y)
        hint = ""
        if scores.ndim == 2 and scores.shape[1] == 2 and len(scores) != n_rows:
            hint = " (pairs of row numbers go into pairs=)"
        check_length("y", scores, n_rows, f"rows of X{hint}")
        for name, value in {"qid": qid, "sample_weight": sample_weight}.items():
            if isinstance(value, list | tuple | np.ndarray) or hasattr(value, "to_numpy"):
                wrong = name == "qid" and len(value) != n_rows
                hint = _sizes_hint(value, n_rows) if wrong else ""
                check_length(name, value, n_rows, f"rows of X{hint}")
        graph = PreferenceGraph.from_scores(scores, qid=qid, sample_weight=sample_weight)
    else:
        for name, value in {"qid": qid, "sample_weight": sample_weight}.items():
            if value is not None:
                raise ValueError(
                    f"{name} says how the scores y are compared, and there is no y; given pairs "
                    "are taken as they are (weigh them with pair_weight)"
                )
    if pairs is not None:
        given = PreferenceGraph.from_pairs(
            pairs, n_rows=n_rows, magnitude=magnitude, pair_weight=pair_weight
        )
        graph = given if graph is None else graph + given
    assert graph is not None
    return graph


def _sizes_hint(qid: Any, n_rows: int) -> str:
    """Advice for those who pass the sizes of queries, as other libraries want them."""
    try:
        sizes = np.asarray(qid)
    except ValueError:  # tuples of different lengths are labels, too
        return ""
    if sizes.ndim == 1 and sizes.dtype.kind in "iu" and int(sizes.sum()) == n_rows:
        return " (sizes of queries? then qid is np.repeat(np.arange(len(sizes)), sizes))"
    return ""


def require_preferences(graph: PreferenceGraph, purpose: str = "learn from") -> None:
    """Raise unless at least one row is preferred to another, for every output."""
    if graph.has_preference():
        return
    if graph.n_given_pairs:
        problem = "every pair_weight is zero"
    elif graph.scores is None:
        problem = "pairs is empty"
    elif graph.sample_weight is not None and np.count_nonzero(graph.sample_weight) < 2:
        problem = "sample_weight is zero for every row, or all but one"
    elif graph.scored_outputs().any():
        constant = np.flatnonzero(~graph.scored_outputs())[0]
        problem = f"all scores of a query are equal in output (column) {constant} of y"
    else:
        queries = "query" if graph.n_queries == 1 else "queries"
        problem = (
            f"in {graph.n_rows} rows and {graph.n_queries} {queries}, all scores of a query are "
            "equal, or it has a single row"
        )
    raise ValueError(f"no query has a pair to {purpose}: {problem}")


def graph_accuracy(graph: PreferenceGraph, predictions: Array) -> float:
    """Pairwise accuracy: mean over queries with a pair; given pairs count as one more query.

    Parameters
    ----------
    graph : PreferenceGraph over n rows
    predictions : ndarray of shape (n,) or (n, n_outputs)
    """
    predictions = predictions.reshape(len(predictions), -1)
    scored = graph.scored_outputs()
    per_output = []
    for j in range(predictions.shape[1]):
        values: list[Any] = []
        if graph.scores is not None and scored[j]:
            by_query = np.asarray(
                pairwise_accuracy(
                    graph.scores[:, j],
                    predictions[:, j],
                    qid=graph.query_codes,
                    sample_weight=graph.sample_weight,
                    average=None,
                )
            )
            values = list(by_query[np.isfinite(by_query)])
        if graph.has_pairs():
            values.append(
                pairwise_accuracy(
                    None, predictions[:, j], pairs=graph.pairs, pair_weight=graph.pair_weight
                )
            )
        per_output.append(np.mean(values))
    return float(np.mean(per_output))


class Ranker(BaseEstimator):
    """An estimator whose ``_model`` predicts scores from rows of X.

    A model has ``coef``, ``dual_coef`` (or None), ``n_outputs`` and ``predict(X, index)`` for the
    alpha of that index; one of basis vectors has ``basis``.
    """

    kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    query_weighting: str
    solver: str
    basis: Any
    max_iter: int | None
    tol: float
    random_state: Any
    verbose: int
    n_jobs: int | None

    _model: Any
    _flat: bool
    _with_qid: bool

    @abstractmethod
    def _check_options(self) -> Kernel:
        """Check the parameters that do not depend on the data, and make the kernel."""

    @property
    @abstractmethod
    def _keeps_columns(self) -> bool:
        """Whether sparse X in CSC format may stay so."""

    def _check_kernel(self) -> Kernel:
        return Kernel.from_options(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
            n_jobs=self.n_jobs,
        )

    def _prepare(
        self, X: Any, y: Any, preferences: dict[str, Any]
    ) -> tuple[Kernel, Any, PreferenceGraph]:
        """Check everything that does not need a solver: kernel, X, and the preference graph."""
        kernel = self._check_options()
        with clear_errors(X):
            X = validate_data(
                self,
                X,
                accept_sparse=("csr", "csc"),
                dtype=(np.float64, np.float32),
                ensure_min_samples=2,
            )
        graph = graph_from_arguments(X.shape[0], y, **preferences)
        require_preferences(graph)
        X = canonical(X, dense=kernel.precomputed, columns=self._keeps_columns)
        if kernel.precomputed:
            check_gram(X)
        return kernel, X, graph

    def _store_model(self, model: Any, graph: PreferenceGraph, solver: str, n_pairs: int) -> None:
        """Store a model and what it was fitted to."""
        self._model = model
        self.solver_ = solver
        self.n_pairs_ = n_pairs
        self.n_queries_ = graph.n_queries
        self._flat = graph.flat
        self._with_qid = graph.has_qid
        self._store_coefficients()

    def _store_coefficients(self) -> None:
        for name in ("coef_", "dual_coef_", "basis_indices_"):
            self.__dict__.pop(name, None)
        model = self._model
        if model.coef is not None:
            self.coef_ = model.coef[0][:, 0] if self._flat else model.coef[0].T
        if model.dual_coef is not None:
            self.dual_coef_ = self._outputs(model.dual_coef[0])
        basis = getattr(model, "basis", None)
        if basis is not None:
            self.basis_indices_ = basis.indices

    def _outputs(self, values: Array) -> Array:
        """Drop the axis of outputs if y had none."""
        return values[..., 0] if self._flat else values

    def _check_new(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._check_rows(X)

    def _check_rows(self, X: Any) -> Any:
        with clear_errors(X):
            X = validate_data(
                self, X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), reset=False
            )
        return canonical(X, dense=self.kernel == "precomputed")

    def predict(self, X: Any) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Kernel values with all training rows, (n, n_rows), if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
        """
        X = self._check_new(X)
        return self._outputs(self._model.predict(X))

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
                "different queries would be compared (in a search or a pipeline qid "
                "arrives only with enable_metadata_routing and set_score_request(qid=True))"
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


def canonical(X: Any, *, dense: bool, columns: bool = False) -> Any:
    """Sparse X as CSR without duplicate entries (the caller's is left alone), or dense.

    ``columns``: CSC may stay as it is.
    """
    if not sparse.issparse(X):
        return X
    if dense:
        return X.toarray()
    rows = X if columns else X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X or np.shares_memory(rows.data, X.data) else rows
        rows.sum_duplicates()
    return rows


class PosteriorMixin:
    """What `RankRLS` and `RankRLSCV` have beyond a `Ranker`: least squares and its posterior."""

    cost: str
    ties: str
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int

    _solvers: tuple[str, ...] = SOLVERS

    # Of `Ranker`.
    kernel: Any
    query_weighting: str
    solver: str
    basis: Any
    max_iter: int | None
    tol: float
    random_state: Any
    verbose: int
    n_jobs: int | None
    _model: Any
    _flat: bool
    _check_kernel: Callable[[], Kernel]
    _check_new: Callable[[Any], Any]
    _outputs: Callable[[Array], Array]
    _store_model: Callable[..., None]

    @property
    def _keeps_columns(self) -> bool:
        return self.solver == "cg"

    @property
    def _loss(self) -> dict[str, str]:
        return {"cost": self.cost, "ties": self.ties, "query_weighting": self.query_weighting}

    def _problem(
        self,
        kernel: Kernel,
        X: Any,
        graph: PreferenceGraph,
        *,
        keep_basis: bool = False,
        basis: Any = None,
    ) -> RidgeProblem:
        """The problem of these parameters: its space is chosen, and its basis drawn, once."""
        space = choose_space(
            self.solver,
            kernel,
            X,
            basis=self.basis if basis is None else basis,
            random_state=check_random_state(self.random_state),
            used=graph.n_used_rows if self.solver in ("auto", "dual") else None,
            early_stopping=bool(self.early_stopping),
        )
        names = getattr(self, "feature_names_in_", None)
        return RidgeProblem(graph, space, self._loss, keep_basis=keep_basis, names=names)

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
        iteration = self._iteration(progress, callback)
        m, solver = problem.space.n_rows, problem.space.solver
        progress(f"{m:,} rows, {problem.n_pairs:,} pairs: solver {solver}")
        model: Any
        if solver == "cg":
            model, history = problem.iterate(alphas, iteration, n_threads(self.n_jobs), held_out)
        else:
            model, history = problem.solve(alphas), History(n_iter=1)
        progress("solved")
        return model, history

    def _store(self, problem: RidgeProblem, model: Any, history: History) -> None:
        """Store a fitted model."""
        graph = problem.graph
        self._store_model(model, graph, problem.space.solver, problem.n_pairs)
        self.n_iter_ = history.n_iter
        self._store_validation(history)

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

    def _check_alpha(self, name: str, value: Any) -> float:
        if self.early_stopping is True and isinstance(value, numbers.Real) and value == 0:
            return 0.0
        if isinstance(value, str):
            raise ValueError(f"{name} must be a number > 0; got {value!r}. RankRLSCV chooses alpha")
        return check_positive(name, value)

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
            Also give the posterior standard deviation of f(x) − f̄ (Gaussian-process reading, see
            Notes of the class), with f̄ the mean score of the training rows that take part in a
            pair; with a Nyström basis, of the part of it that the basis spans.

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
