"""``RankRLSCV``: RankRLS with alpha chosen by exact cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls import metrics
from rankrls._progress import Progress
from rankrls._validation import check_finite_array, check_option, check_positive, show
from rankrls.estimators._base import LeastSquaresRanker
from rankrls.holdout import HoldoutProblem, check_fold, pair_accuracies, query_folds
from rankrls.preferences import PreferenceGraph

__all__ = ["RankRLSCV"]

Array = NDArray[Any]

#: Without qid, ``cv="auto"`` leaves out pairs up to this many rows, and takes ten folds above.
MAX_PAIR_ROWS = 1000

DEFAULT_ALPHAS = tuple(2.0**exponent for exponent in range(-15, 16))

PAIR_METRICS = ("pairwise_accuracy", "concordance_index")
LIST_METRICS = ("ndcg", "average_precision", "reciprocal_rank", "precision")


class RankRLSCV(LeastSquaresRanker):
    """RankRLS with built-in exact cross-validation over alpha.

    Every held-out prediction equals that of a model refitted without the held-out rows; all
    alphas together cost about one decomposition.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), default=2^-15 … 2^15
        The grid.
    kernel, gamma, degree, coef0, kernel_params, cost, ties, query_weighting, solver, basis, \
random_state, verbose, n_jobs
        As for `RankRLS`.
    cv : str, int, splitter or iterable, default="auto"
        "leave-query-out"; "leave-pair-out" (one ranking; cost="magnitude" with ties="keep" or no
        ties); an int k for k random folds of whole queries, or of rows without qid; a
        scikit-learn splitter; or an iterable of (train, test). "auto": "leave-query-out" with
        qid; without it "leave-pair-out" up to 1000 rows where it is exact, otherwise 10 folds
        (fewer below 50 rows, so that a fold has at least 5).
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
        "alpha", "mean_score", "n_refits" (how often a shortcut was replaced by a refit).
    coef_, dual_coef_, basis_indices_, solver_, n_pairs_, n_queries_, …
        As of `RankRLS`, fitted on all rows with ``alpha_``.

    Notes
    -----
    Several outputs share one alpha: the scores are averaged over outputs.

    Examples
    --------
    >>> from rankrls import RankRLSCV
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> ranker = RankRLSCV(query_weighting="size").fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.9)
    True
    """

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
    ) -> RankRLSCV:
        """Choose alpha by cross-validation and fit on all rows; arguments as for `RankRLS`.

        Returns
        -------
        RankRLSCV
            The fitted estimator.
        """
        grid = np.unique(check_finite_array("alphas", np.atleast_1d(self.alphas), ndim=(1,)))
        if not grid.size:
            raise ValueError("alphas is empty: give at least one number > 0")
        check_positive("alphas", float(grid[0]))
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        kernel, X, graph = self._prepare(X, y, preferences)
        scoring = Scoring(self.scoring)
        if graph.scores is None or graph.n_given_pairs:
            raise ValueError("RankRLSCV scores held-out queries by y: given pairs are not taken")
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._holdout_problem(kernel, X, graph)
        cv = self._resolve(problem)
        progress(f"cross-validation of {len(grid)} alphas: {_name(cv)}")
        if isinstance(cv, str) and cv == "leave-pair-out":
            scoring.require_pairs()
            results = list(pair_accuracies(problem, grid))
            scores = np.array([accuracy.mean() for accuracy, _ in results])
            n_refits = np.array([count for _, count in results])
        else:
            folds = self._folds(cv, X, y, graph)
            held = problem.folds(folds, grid)
            scores = scoring.of_folds(graph, folds, held.predictions, len(grid))
            n_refits = held.n_refits
        if not np.isfinite(scores).all():
            raise ValueError(
                f"scoring gave {scores[~np.isfinite(scores)][0]} for alpha="
                f"{grid[~np.isfinite(scores)][0]:g}: it must give a finite number"
            )
        best = len(scores) - 1 - int(np.argmax(scores[::-1]))
        self.alpha_ = float(grid[best])
        self.best_score_ = float(scores[best])
        self.cv_results_ = {"alpha": grid, "mean_score": scores, "n_refits": n_refits}
        if len(grid) > 1 and best in (0, len(grid) - 1):
            where = "smallest" if best == 0 else "largest"
            warnings.warn(
                f"the best alpha, {self.alpha_:g}, is the {where} of the grid: extend alphas",
                stacklevel=2,
            )
        progress(f"alpha {self.alpha_:g}, score {self.best_score_:.4f}")
        self._fit_prepared(kernel, X, graph, np.array([self.alpha_]))
        return self

    def _resolve(self, problem: HoldoutProblem) -> Any:
        """What "auto" stands for; strings are checked."""
        if not isinstance(self.cv, str):
            return self.cv
        check_option("cv", self.cv, ("auto", "leave-query-out", "leave-pair-out"))
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


class Scoring:
    """A metric by name or as a function, applied to held-out predictions."""

    def __init__(self, scoring: Any) -> None:
        self.name = scoring if isinstance(scoring, str) else None
        self.options: dict[str, Any] = {}
        if self.name is None:
            if not callable(scoring):
                raise ValueError(f"scoring must be a name or a function; got {scoring!r}")
            self.metric: Callable[..., Any] = scoring
            return
        name, at, cut = self.name.partition("@")
        check_option("scoring", name, PAIR_METRICS + LIST_METRICS)
        self.metric = getattr(metrics, name)
        if at:
            if not cut.isdigit() or name in PAIR_METRICS:
                raise ValueError(f"scoring={scoring!r}: a cut-off is a number, as in 'ndcg@10'")
            self.options["k"] = int(cut)

    def require_pairs(self) -> None:
        """Refuse what needs whole lists."""
        if self.name not in PAIR_METRICS:
            raise ValueError(
                "leave-pair-out compares two rows at a time: scoring must be one of "
                f"{', '.join(map(repr, PAIR_METRICS))}; for other metrics use an int cv"
            )

    def of_folds(
        self, graph: PreferenceGraph, folds: list[Array], predictions: list[Array], n_alphas: int
    ) -> Array:
        """Mean score over outputs for every alpha: shape (n_alphas,)."""
        columns = range(graph.n_outputs)
        return np.array(
            [
                np.mean([self.of_output(graph, folds, predictions, a, j) for j in columns])
                for a in range(n_alphas)
            ]
        )

    def of_output(
        self, graph: PreferenceGraph, folds: list[Array], predictions: list[Array], a: int, j: int
    ) -> float:
        """Score of one alpha and output, within queries and folds."""
        assert graph.scores is not None
        assert graph.query_codes is not None
        rows = np.concatenate(folds)
        fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
        lists = graph.query_codes[rows] * len(folds) + fold
        score = np.concatenate([part[a, :, j] for part in predictions])
        return float(self.metric(graph.scores[rows, j], score, qid=lists, **self.options))


def _name(cv: Any) -> str:
    return cv if isinstance(cv, str) else repr(cv)
