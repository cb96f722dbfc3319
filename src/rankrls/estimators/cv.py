"""``RankRLSCV``: RankRLS with alpha chosen by exact cross-validation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._messages import Progress, warn
from rankrls._threads import n_threads
from rankrls._validation import check_option, show
from rankrls.core.linalg.conjugate_gradients import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.iterative import HeldOutRows
from rankrls.core.ridge.leave_out import query_folds, split_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.spaces.path_model import predict_path
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.choosing import (
    DEFAULT_ALPHAS,
    PAIR_METRICS,
    Scoring,
    check_alphas,
    choose_alpha,
    is_fold_count,
    is_splits,
    random_folds,
    read_splits,
)
from rankrls.estimators.ranker import PosteriorMixin, Ranker, explained, unchanged_on_error
from rankrls.estimators.validation_rows import split_for_validation

__all__ = ["RankRLSCV"]

Array = NDArray[Any]

#: Without qid, ``cv="auto"`` leaves out pairs up to this many rows, and takes ten folds above.
MAX_PAIR_ROWS = 1000


class RankRLSCV(PosteriorMixin, Ranker):
    """RankRLS with built-in exact cross-validation over alpha.

    Every held-out prediction equals that of a model refitted without the held-out rows; all
    alphas together cost about one decomposition.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), default=2^-15 … 2^15
        The grid.
    kernel, gamma, degree, coef0, kernel_params, cost, ties, query_weighting, solver, basis, \
max_iter, tol, early_stopping, validation_fraction, n_iter_no_change, random_state, verbose, n_jobs
        As for `RankRLS`. With ``solver="cg"``, or with an ``eval_set``, alpha is chosen by held-out
        rows instead of cross-validation (see Notes).
    cv : str, int, splitter or iterable, default="auto"
        "leave-query-out"; "leave-pair-out" (one ranking; cost="magnitude" with ties="keep" or no
        ties); an int k for k random folds of whole queries, or of rows without qid; a
        scikit-learn splitter; or an iterable of (train, test). "auto": "leave-query-out" with
        qid; without it "leave-pair-out" up to 1000 rows where it is exact, otherwise 10 folds
        (fewer below 50 rows, so that a fold has at least 5). "validation": held-out rows, as
        "auto" does with ``solver="cg"`` or an ``eval_set``.
    scoring : str or callable, default="pairwise_accuracy"
        A metric of `rankrls.metrics` by name, "ndcg@10" for a cut-off, or a function
        ``metric(y_true, y_score, qid=...)``, higher is better. It is computed within queries and
        folds, and averaged over them; sample weights are used in training only. List metrics are
        refused with leave-pair-out.

    Attributes
    ----------
    alpha_ : float
        The best alpha; of equally good ones the largest.
    best_score_ : float
        Its cross-validated score. It was chosen to be the best of many and is therefore
        optimistic: to estimate performance, cross-validate the whole `RankRLSCV` (nested).
    cv_results_ : dict of ndarray
        "alpha", "mean_score", and "n_refits" (how often a shortcut was replaced by a refit) or,
        with held-out rows, "iteration" (of the best score; the last one without early stopping).
        If the metric has a score for each held-out list (all but concordance_index and functions;
        not leave-pair-out, nor held-out rows), also "std_score" and "n_scores": the standard
        deviation of these scores, and how many there are. They share training rows, so that
        std_score/√n_scores is but a rough error of the mean.
    validation_curve_ : ndarray of shape (n_checks, n_alphas)
        Early stopping: error (1 − score) of every alpha at every iteration that was looked at,
        NaN once an alpha is no longer followed; the iterations are ``validation_iterations_``.
    coef_, dual_coef_, basis_indices_, solver_, n_pairs_, n_queries_, …
        As of `RankRLS`, fitted on all rows with ``alpha_``.

    Notes
    -----
    Several outputs share one alpha: the scores are averaged over outputs.

    ``solver="cg"`` solves for the whole grid from one run of conjugate gradients. Alpha is then
    chosen by held-out rows, ``eval_set`` or ``validation_fraction`` of the queries. Without early
    stopping every alpha is iterated to ``tol``, and, if there is no ``eval_set``, the model is
    fitted again to all rows with the best alpha. With ``early_stopping=True`` the best of all
    (alpha, iteration) is the model; the held-out rows do not become part of it.

    Examples
    --------
    >>> from rankrls import RankRLSCV
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> ranker = RankRLSCV().fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.9)
    True
    """

    @explained(
        alpha="RankRLSCV chooses it from a grid, alphas; RankRLS takes one alpha",
        C="the grid of regularisation is called alphas; larger ones are stronger",
    )
    def __init__(
        self,
        alphas: ArrayLike = DEFAULT_ALPHAS,
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
        cv: Any = "auto",
        scoring: Any = "pairwise_accuracy",
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alphas = alphas
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
        self.cv = cv
        self.scoring = scoring
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
        eval_set: Any = None,
        callback: Any = None,
    ) -> RankRLSCV:
        """Choose alpha by cross-validation and fit on all rows; arguments as for `RankRLS`.

        Returns
        -------
        RankRLSCV
            The fitted estimator.
        """
        grid = check_alphas("alphas", self.alphas, allow_zero=self.early_stopping is True)
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        with unchanged_on_error(self):
            kernel, X, graph = self._prepare(X, y, preferences)
            scoring = Scoring(self.scoring)
            if self._by_validation(eval_set):
                self._fit_by_validation(kernel, X, graph, grid, scoring, eval_set, callback)
            else:
                self._fit_by_cross_validation(kernel, X, y, graph, grid, scoring)
        return self

    def _fit_by_cross_validation(
        self, kernel: Kernel, X: Any, y: Any, graph: PreferenceGraph, grid: Array, scoring: Scoring
    ) -> None:
        """Choose alpha by held-out predictions; the model is another answer of the same problem."""
        if graph.scores is None or graph.n_given_pairs:
            raise ValueError(
                "RankRLSCV scores held-out queries by y: given pairs are taken with an eval_set "
                "or solver='cg' only (or search alpha by GridSearchCV over RankRLS, with "
                "y=PreferenceGraph.from_pairs(...))"
            )
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._problem(kernel, X, graph)
        cv = self._resolve(problem)
        progress(f"cross-validation of {len(grid)} alphas: {_name(cv)}")
        if isinstance(cv, str) and cv == "leave-pair-out":
            scoring.require_pairs()
            results = list(problem.pair_accuracies(grid, n_threads(self.n_jobs)))
            found = {"mean_score": np.array([accuracy.mean() for accuracy, _ in results])}
            n_refits = np.array([count for _, count in results])
        else:
            held = problem.leave_out(self._folds(cv, X, y, problem), grid)
            found = scoring.spread(graph, held)
            n_refits = held.n_refits
        best, chosen = self._choose(grid, found.pop("mean_score"), {"n_refits": n_refits, **found})
        progress(f"alpha {chosen['alpha_']:g}, score {chosen['best_score_']:.4f}")
        model, history = self._solve(problem, grid[[best]])
        self._store(problem, model, history)
        self.__dict__.update(chosen)

    def _choose(
        self, grid: Array, scores: Array, more: dict[str, Array]
    ) -> tuple[int, dict[str, Any]]:
        """The number of the best alpha, the largest of equals, and the attributes that tell it."""
        best = choose_alpha(grid, scores, warn=not self.early_stopping)
        return best, {
            "alpha_": float(grid[best]),
            "best_score_": float(scores[best]),
            "cv_results_": {"alpha": grid, "mean_score": scores, **more},
        }

    def _by_validation(self, eval_set: Any) -> bool:
        """Whether alpha is chosen by held-out rows instead of cross-validation."""
        chosen = isinstance(self.cv, str) and self.cv == "validation"
        asked = eval_set is not None or self.solver == "cg" or self.early_stopping
        if asked and not chosen and not (isinstance(self.cv, str) and self.cv == "auto"):
            raise ValueError(
                f"cv={show(self.cv)} does not go with eval_set, early_stopping or solver='cg', "
                "which choose alpha by held-out rows: leave cv='auto'"
            )
        return chosen or asked

    def _fit_by_validation(
        self,
        kernel: Kernel,
        X: Any,
        graph: PreferenceGraph,
        grid: Array,
        scoring: Scoring,
        eval_set: Any,
        callback: Any,
    ) -> None:
        if kernel.precomputed:
            raise ValueError("kernel='precomputed' cannot be split into rows: use cv instead")
        split = split_for_validation(self, X, graph, eval_set)
        score = partial(scoring.of_rows, split.held)
        if self.early_stopping:
            problem = self._problem(kernel, X, split.graph)
            held_out = HeldOutRows(split.X, score, split.rows)
            model, history = self._solve(problem, grid, held_out=held_out, callback=callback)
            scores = 1 - np.nanmin(history.errors, axis=0)
            iteration = history.iterations[np.nanargmin(history.errors, axis=0)]
            _, chosen = self._choose(grid, scores, {"iteration": iteration})
        else:
            problem = self._problem(kernel, X, graph)
            rows = np.arange(X.shape[0]) if split.rows is None else split.rows
            trained = problem.on_rows(split.graph, rows)
            model, history = self._solve(trained, grid, callback=callback)
            scores = np.array([score(f) for f in predict_path(model, split.X)])
            n_iter = np.full(len(grid), history.n_iter)
            best, chosen = self._choose(grid, scores, {"iteration": n_iter})
            if problem.space.solver == "cg" and eval_set is not None:
                model, history = model.select(best), History(history.n_iter)
            else:
                model, history = self._solve(problem, grid[[best]], callback=callback)
        self._store(problem, model, history)
        self.__dict__.update(chosen)

    def _curve(self, errors: Array) -> Array:
        return errors

    def _resolve(self, problem: RidgeProblem) -> Any:
        """What "auto" stands for; strings are checked."""
        if not isinstance(self.cv, str):
            return self.cv
        check_option("cv", self.cv, ("auto", "leave-query-out", "leave-pair-out", "validation"))
        graph = problem.graph
        if self.cv != "auto":
            if self.cv == "leave-query-out" and not graph.has_qid:
                raise ValueError("cv='leave-query-out' needs qid")
            return self.cv
        if graph.has_qid:
            return "leave-query-out"
        small = graph.n_rows <= MAX_PAIR_ROWS and self.scoring in PAIR_METRICS
        if small and graph.n_rows >= 4 and problem.can_leave_pairs_out():
            return "leave-pair-out"
        return max(2, min(10, graph.n_rows // 5))

    def _folds(self, cv: Any, X: Any, y: Any, problem: RidgeProblem) -> list[Array]:
        """The rows that are held out together."""
        graph = problem.graph
        m = graph.n_rows
        codes = graph.query_codes if graph.has_qid else np.arange(m)
        assert codes is not None
        if isinstance(cv, str):
            return query_folds(codes)
        if is_fold_count(cv):
            units = int(codes.max()) + 1
            if not 2 <= cv <= units:
                what = "queries" if graph.has_qid else "rows"
                raise ValueError(f"cv={cv} folds of {units} {what}: it must be from 2 to {units}")
            rng = check_random_state(self.random_state)
            fold_of = np.empty(units, dtype=np.int64)
            for number, fold in enumerate(random_folds(units, int(cv), rng)):
                fold_of[fold] = number
            return query_folds(fold_of[codes])
        if not is_splits(cv):
            raise ValueError(
                "cv must be 'auto', 'leave-query-out', 'leave-pair-out', an int, a splitter or an "
                f"iterable of (train, test); got {show(cv)}"
            )
        target = y if isinstance(y, PreferenceGraph) else graph.scores
        groups = graph.query_codes if graph.has_qid else None
        folds = [test for _, test in read_splits(cv, m, X, target, groups, complement=True)]
        meant = getattr(cv, "splits_queries", False)  # LeavePairOut
        split = graph.has_qid and not meant
        if split and split_folds(problem.objectives[0].laplacian, folds).any():
            warn(
                f"cv={show(cv)} splits queries: rows of a query are both trained on and held out, "
                "and a held-out row is compared with the held-out part of its query only. To "
                "hold out whole queries use cv='leave-query-out', an int, or GroupKFold"
            )
        return folds


def _name(cv: Any) -> str:
    return cv if isinstance(cv, str) else repr(cv)
