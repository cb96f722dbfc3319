"""``RankRLSCV``: RankRLS with alpha chosen by exact cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._progress import Progress
from rankrls._validation import check_option, show
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.iterative import HeldOut, IterativeModel
from rankrls.core.ridge.models import predict_path
from rankrls.core.ridge.pairs import check_fold, pair_accuracies, query_folds
from rankrls.core.ridge.problem import HoldoutProblem
from rankrls.core.spaces.kernels import Kernel
from rankrls.estimators.base import LeastSquaresRanker
from rankrls.estimators.keywords import explained
from rankrls.estimators.scoring import PAIR_METRICS, Scoring, choose_alpha

__all__ = ["RankRLSCV"]

Array = NDArray[Any]

#: Without qid, ``cv="auto"`` leaves out pairs up to this many rows, and takes ten folds above.
MAX_PAIR_ROWS = 1000

DEFAULT_ALPHAS = tuple(2.0**exponent for exponent in range(-15, 16))


class RankRLSCV(LeastSquaresRanker):
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
        grid = np.unique(self._check_alphas("alphas", self.alphas))
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        kernel, X, graph = self._prepare(X, y, preferences)
        scoring = Scoring(self.scoring)
        progress = Progress(type(self).__name__, self.verbose)
        if self._by_validation(eval_set):
            self._fit_by_validation(kernel, X, graph, grid, scoring, eval_set, callback)
            return self
        if graph.scores is None or graph.n_given_pairs:
            raise ValueError(
                "RankRLSCV scores held-out queries by y: given pairs are taken with an eval_set "
                "or solver='cg' only (or search alpha by GridSearchCV over RankRLS, with "
                "y=PreferenceGraph.from_pairs(...))"
            )
        problem = self._holdout_problem(kernel, X, graph)
        cv = self._resolve(problem)
        progress(f"cross-validation of {len(grid)} alphas: {_name(cv)}")
        if isinstance(cv, str) and cv == "leave-pair-out":
            scoring.require_pairs()
            results = list(pair_accuracies(problem, grid))
            found = {"mean_score": np.array([accuracy.mean() for accuracy, _ in results])}
            n_refits = np.array([count for _, count in results])
        else:
            folds = self._folds(cv, X, y, graph)
            held = problem.folds(folds, grid)
            found = scoring.spread(graph, folds, held.predictions, len(grid))
            n_refits = held.n_refits
        best = self._choose(grid, found.pop("mean_score"), {"n_refits": n_refits, **found})
        progress(f"alpha {self.alpha_:g}, score {self.best_score_:.4f}")
        self._fit_prepared(kernel, X, graph, grid[[best]])
        return self

    def _choose(self, grid: Array, scores: Array, more: dict[str, Array]) -> int:
        """Store the results of all alphas; the number of the best, the largest of equals."""
        best = choose_alpha(grid, scores, warn=not self.early_stopping)
        self.alpha_ = float(grid[best])
        self.best_score_ = float(scores[best])
        self.cv_results_ = {"alpha": grid, "mean_score": scores, **more}
        return best

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
        split = self._split(X, graph, eval_set)
        score = partial(scoring.of_rows, split.held)
        if self.early_stopping:
            held_out = HeldOut(split.X, score, split.rows)
            fit = self._fit_prepared(
                kernel, X, split.graph, grid, held_out=held_out, callback=callback
            )
            errors = fit.history.errors
            scores = 1 - np.nanmin(errors, axis=0)
            iteration = fit.history.iterations[np.nanargmin(errors, axis=0)]
            self._choose(grid, scores, {"iteration": iteration})
            return
        train = X if split.rows is None else X[split.rows]
        fit = self._fit_prepared(kernel, train, split.graph, grid, callback=callback)
        model = fit.model
        scores = np.array([score(f) for f in predict_path(model, split.X)])
        best = self._choose(grid, scores, {"iteration": np.full(len(grid), fit.history.n_iter)})
        if isinstance(model, IterativeModel) and eval_set is not None:
            self._model = model.select(best)
            self._store_coefficients()
        else:
            self._fit_prepared(kernel, X, graph, grid[[best]], callback=callback)

    def _curve(self, errors: Array) -> Array:
        return errors

    def _resolve(self, problem: HoldoutProblem) -> Any:
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

    def _folds(self, cv: Any, X: Any, y: Any, graph: PreferenceGraph) -> list[Array]:
        m = graph.n_rows
        codes = graph.query_codes if graph.has_qid else np.arange(m)
        assert codes is not None
        if isinstance(cv, str):
            return query_folds(codes)
        if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
            units = int(codes.max()) + 1
            if not 2 <= cv <= units:
                what = "queries" if graph.has_qid else "rows"
                raise ValueError(f"cv={cv} folds of {units} {what}: it must be from 2 to {units}")
            order = check_random_state(self.random_state).permutation(units)
            fold_of = np.empty(units, dtype=np.int64)
            fold_of[order] = np.arange(units) % cv
            return query_folds(fold_of[codes])
        if isinstance(cv, bool) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
            raise ValueError(
                "cv must be 'auto', 'leave-query-out', 'leave-pair-out', an int, a splitter or an "
                f"iterable of (train, test); got {show(cv)}"
            )
        splits = cv
        if hasattr(cv, "split"):
            target = y if isinstance(y, PreferenceGraph) else graph.scores
            groups = graph.query_codes if graph.has_qid else None
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The groups parameter is ignored")
                splits = list(cv.split(X, target, groups=groups))
        folds = []
        for number, (train, rows) in enumerate(splits):
            test = check_fold(number, rows, m, name="test rows of cv")
            if len(np.union1d(train, test)) != m or len(np.intersect1d(train, test)):
                raise ValueError(
                    f"split {number} of cv does not train on all rows but the test rows: only "
                    "that has an exact shortcut; use GridSearchCV for other splits"
                )
            folds.append(test)
        if not folds:
            raise ValueError("cv gives no split")
        return folds


def _name(cv: Any) -> str:
    return cv if isinstance(cv, str) else repr(cv)
