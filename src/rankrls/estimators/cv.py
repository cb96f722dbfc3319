"""``RankRLSCV``: RankRLS with alpha chosen by exact cross-validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, takes_queries, unchanged_on_error, warn
from rankrls._resources import n_threads
from rankrls._validation import check_option, encode_qid, is_integer, show
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import predict_path
from rankrls.core.ridge.pairs import can_leave_pairs_out, pair_accuracies
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, HeldOut, split_folds
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.calibration import (
    JudgementScoring,
    by_judgement,
    hold_out,
    judgement_folds,
    newton,
)
from rankrls.estimators.choosing import (
    DEFAULT_ALPHAS,
    Scoring,
    Split,
    best_of_search,
    check_alphas,
    forget_choice,
    is_splits,
    joined_results,
    random_fold_of,
    read_splits,
    search_alphas,
    split_for_validation,
)
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import RankRLS, RidgeRanker
from rankrls.metrics.metric_names import PAIR_METRICS

Array = NDArray[Any]

#: Without qid, ``cv="auto"`` leaves out pairs up to this many rows, and takes ten folds above.
MAX_PAIR_ROWS = 1000

#: Names of ``cv``: how rows, and how given pairs may be left out.
ROW_FOLDS = ("leave-query-out", "leave-pair-out", "validation")
JUDGEMENT_FOLDS = ("leave-judgement-out", "leave-item-out", "leave-group-out")


@dataclass
class AlphaSearch:
    """The scores of a grid of alphas for one kernel, and what was computed for them."""

    problem: RidgeProblem
    best: int = 0
    results: dict[str, Array] = field(default_factory=dict)
    fitted: dict[float, tuple[Any, History]] = field(default_factory=dict)  # models of alphas

    def __getitem__(self, name: str) -> float:
        """A result of the best alpha."""
        return float(self.results[name][self.best])


class RankRLSCV(RidgeRanker):
    """RankRLS with built-in exact cross-validation over alpha.

    Every held-out prediction equals that of a model refitted without the held-out rows, up to a
    constant for each query and fold: values are comparable within a query and fold only. All
    alphas together cost about one decomposition.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), optional
        Grid of alphas. The default is 2^-15 … 2^15, extended by factors of two as the scale of the
        data needs and as long as the best alpha is at an end (not with early stopping).
    gamma : float or array-like of shape (n_gammas,), optional
        Parameter of the kernel, as for `RankRLS`. Several values are chosen from, together with
        alpha and by the same score; the first is taken if several are equally good.
    kernel, degree, coef0, kernel_params, cost, ties, query_weighting, solver, basis, max_iter, \
tol, early_stopping, validation_fraction, n_iter_no_change, random_state, verbose, n_jobs
        As for `RankRLS`. With ``solver="cg"``, or with an ``eval_set``, alpha is chosen on held-out
        rows instead of by cross-validation.
    cv : str, int, splitter or iterable, default="auto"
        What is held out together. For labels:

        - "leave-query-out": each query;
        - "leave-pair-out": each pair of rows of one ranking; requires cost="magnitude" with
          ties="keep", or labels without ties;
        - an int k: k random folds of whole queries, or of rows without qid;
        - a scikit-learn splitter, or an iterable of (train, test);
        - "validation": held-out rows, the default with ``solver="cg"`` or an ``eval_set``;
        - "auto": "leave-query-out" with qid; without qid "leave-pair-out" for up to 1000 rows if it
          is exact, otherwise 10 folds (fewer below 50 rows).

        For given pairs: "leave-judgement-out" (each pair), "leave-item-out" (all pairs of an item;
        a pair is predicted twice), "leave-group-out", an int for folds of pairs or groups, splits
        of the pairs; "auto" leaves out groups if they are given, single pairs otherwise.
    scoring : str or callable, default="pairwise_accuracy"
        Name of a metric of `rankrls.metrics` such as "ndcg@10", or a function
        ``metric(y_true, y_score, qid=...)``; higher is better. It is computed within queries and
        folds and averaged over them, with the mean of their sample weights. "pairwise_r2" is
        1 − (loss of held-out pairs)/(sum of their squared targets). For given pairs,
        "pairwise_accuracy" or "log_loss" of calibrated probabilities.
    link : {"identity", "logit"}, default="identity"
        For given pairs, "logit" fits their probabilities by logistic regression (Bradley–Terry):
        Σ w log(1 + exp(−d)) + (alpha/2) ‖f‖², with d = f(preferred) − f(other). Held-out
        predictions are those of the last Newton step, which only approximate refits.
    store_cv_predictions : bool, default=False
        Whether to keep the held-out predictions of all alphas in ``cv_predictions_``. Not for
        leave-pair-out and held-out rows.

    Attributes
    ----------
    alpha_, gamma_ : float
        The best alpha, the largest one of equally good ones (for "log_loss" the one of the smallest
        held-out squared error), and the best gamma, if there are several.
    best_score_ : float
        Its cross-validated score, the maximum over many alphas and therefore optimistic: to
        estimate performance, cross-validate the whole `RankRLSCV` (nested).
    alphas_ : ndarray of shape (n_alphas,)
        The grid, ascending.
    cv_results_ : dict of ndarray
        "alpha" (and "gamma", if there are several), "mean_score", and "n_refits" (the number of
        folds that were refitted) or, with held-out rows, "iteration"; "std_score" and "n_scores" of
        metrics with a score for each list; "mean_squared_error" for "log_loss".
    validation_curve_ : ndarray of shape (n_checks, n_alphas)
        With early stopping, the error (1 − score) of each alpha at ``validation_iterations_``; NaN
        after an alpha has been stopped.
    cv_predictions_ : ndarray of shape (n_alphas, n_rows[, n_outputs])
        With ``store_cv_predictions``: predictions by the models without a row's fold; NaN for rows
        that are not held out. For given pairs, differences of shape (n_alphas, n_pairs[, 2]).
    calibration_ : Calibration
        If alpha was chosen on held-out pairs: ``link``, ``slope`` and held-out ``log_loss`` of the
        probabilities of `preference_proba`.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        If alpha was chosen on held-out pairs: variance of the noise of a judgement of weight 1,
        which scales standard deviations and probabilities; 1 with ``link="logit"``.
    coef_, dual_coef_, basis_indices_, solver_, n_pairs_, n_queries_, …
        As for `RankRLS`, fitted to all rows with ``alpha_``.

    Notes
    -----
    Several outputs share one alpha. ``solver="cg"`` solves for the whole grid in one run, and
    chooses alpha on ``eval_set``, or on ``validation_fraction`` of the queries, after which all
    rows are fitted again. With ``early_stopping=True`` the model is the best combination of alpha
    and iteration, and held-out rows are not used for training.

    Examples
    --------
    >>> from rankrls import RankRLSCV
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> ranker = RankRLSCV().fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.9)
    True
    """

    alphas: ArrayLike | None
    cv: Any
    scoring: Any
    link: str
    store_cv_predictions: bool

    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        kernel: Any = "linear",
        gamma: Any = None,
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
        cv: Any = "auto",
        scoring: Any = "pairwise_accuracy",
        link: str = "identity",
        store_cv_predictions: bool = False,
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
        groups: Any = None,
        eval_set: Any = None,
        callback: Any = None,
    ) -> RankRLSCV:
        """Choose alpha by cross-validation and fit on all rows; arguments as for `RankRLS`.

        Parameters
        ----------
        groups : array-like of shape (n_pairs,), optional
            Judge, prompt or session of each given pair, which are held out together.
        """
        grid = np.array(DEFAULT_ALPHAS) if self.early_stopping else None
        if self.alphas is not None:
            grid = check_alphas("alphas", self.alphas, allow_zero=bool(self.early_stopping))
        given = (y, qid, pairs, magnitude, pair_weight, sample_weight, pair_features)
        with unchanged_on_error(self):
            forget_choice(self)
            kernel, X, graph = self._prepare(X, Preferences(*given))
            judged, by_rows = self._held_out(kernel, graph, groups, eval_set)
            scoring: Any
            if judged:
                scoring = JudgementScoring(self.scoring, graph, self._loss)
            else:
                scoring = Scoring(self.scoring, self._loss)
                scoring.require_scores()
            split = split_for_validation(self, X, graph, eval_set) if by_rows else None
            stops, refit = bool(self.early_stopping), eval_set is None
            trained = split.graph if stops and split is not None else graph
            progress, folds, searches = Progress(type(self).__name__, self.verbose), None, []
            kernels = [self._check_kernel(gamma) for gamma in self._gammas()] or [kernel]
            for one in kernels:
                found = AlphaSearch(self._problem(one, X, trained))
                if split is not None:
                    score = partial(self._score_rows, found, split, scoring, callback, refit)
                else:
                    if folds is None:  # they are the same for all kernels
                        folds = self._folds(X, y, found.problem, scoring, groups)
                    score = partial(self._score_folds, found.problem, folds, scoring, progress)
                if stops and grid is not None:  # early stopping chooses alpha, too
                    found.results = {"alpha": grid, **score(grid)}
                else:
                    n_values = 1 if folds is None else max(1, len(folds.members) * graph.n_outputs)
                    found.best, found.results = search_alphas(
                        grid, score, found.problem.size, n_values, warns=False
                    )
                progress(f"alpha {found['alpha']:g}, score {found['mean_score']:.4f}")
                searches.append(found)
            found = max(searches, key=lambda one: one["mean_score"])  # the first of equals
            if not stops:
                best_of_search(grid, found.results, found.problem.size)  # warns of an open end
            self._store_choice(searches, found)
            if self.link == "logit":
                step = newton(found.problem, self.alpha_)
                fitted = step.model, History(step.n_steps)
            else:
                alphas = np.array([self.alpha_])
                fitted = found.fitted.get(self.alpha_) or self._solve(
                    found.problem, alphas, callback=callback
                )
            self._store(found.problem, *fitted)
            if judged and folds is not None and not kernel.precomputed:
                self._store_noise(found, folds, scoring)
        return self

    def _held_out(
        self, kernel: Kernel, graph: PreferenceGraph, groups: Any, eval_set: Any
    ) -> tuple[bool, bool]:
        """Whether given pairs are left out in turn, and whether rows are held out once."""
        named = self.cv if isinstance(self.cv, str) else None
        if named in JUDGEMENT_FOLDS and not graph.n_given_pairs:
            raise ValueError(f"cv={self.cv!r} leaves out given pairs, and there are none")
        judged = named in JUDGEMENT_FOLDS or (
            graph.n_given_pairs > 0 and (graph.scores is None or named == "auto")
        )
        by_rows = eval_set is not None or self.solver == "cg" or self.early_stopping
        if by_rows and named not in ("auto", "validation"):
            raise ValueError(
                f"cv={show(self.cv)} does not go with eval_set, early_stopping or solver='cg', "
                "which choose alpha by held-out rows: leave cv='auto'"
            )
        by_rows = by_rows or named == "validation"
        judged = judged and not by_rows
        if by_rows and (kernel.precomputed or self.store_cv_predictions):
            raise ValueError(
                "kernel='precomputed' and store_cv_predictions need cross-validation, not "
                "held-out rows: use cv instead"
            )
        if check_option("link", self.link, ("identity", "logit")) == "logit" and not (
            judged and graph.scores is None and self._loss.keeps_ties
        ):
            raise ValueError(
                "link='logit' is for given pairs without labels y that are left out in turn, "
                "with cost='magnitude' and ties='keep'"
            )
        if groups is not None and not judged:
            raise ValueError(
                "groups says which given pairs are left out together, with cv='auto', "
                "'leave-group-out' or a number of folds, not with held-out rows (eval_set, "
                "early_stopping, solver='cg', cv='validation'); pass the query of each row as qid"
            )
        return judged, bool(by_rows)

    def _store_choice(self, searches: list[AlphaSearch], best: AlphaSearch) -> None:
        """Store what was chosen, and the results of all kernels."""
        if len(searches) > 1:
            for one in searches:
                gamma = one.problem.space.kernel.params["gamma"]
                one.results["gamma"] = np.full(len(one.results["alpha"]), gamma)
            self.gamma_ = best["gamma"]
        self.alpha_, self.best_score_ = best["alpha"], best["mean_score"]
        if self.store_cv_predictions:
            kept = best.results["predictions"]
            self.cv_predictions_ = kept[..., 0] if best.problem.graph.flat else kept
        for one in searches:
            one.results.pop("predictions", None)
        self.cv_results_ = joined_results([one.results for one in searches])

    def _why_not_incremental(self) -> str | None:
        if self.link != "identity":
            return f"link={self.link!r} has other weights after every change: fit again"
        return super()._why_not_incremental()

    def _gammas(self) -> list[float]:
        """The gammas to choose from; none if there is only one."""
        several = np.ndim(self.gamma) > 0
        return check_alphas("gamma", self.gamma, as_given=True).tolist() if several else []

    def _check_kernel(self, gamma: Any = None) -> Kernel:
        gammas = self._gammas()
        if gammas and gamma is None:
            gamma = getattr(self, "gamma_", gammas[0])
        kernel = super()._check_kernel(gamma)
        if gammas and "gamma" not in kernel.params:
            raise ValueError(f"kernel={show(self.kernel)} has no gamma to choose; pass gamma=None")
        return kernel

    # -- held-out predictions

    def _score_folds(
        self, problem: RidgeProblem, folds: Folds, scoring: Any, progress: Progress, alphas: Array
    ) -> dict[str, Array]:
        """Score alphas by held-out folds of rows or given pairs; without any, by pairs of rows."""
        graph, judged = problem.graph, scoring.judged
        held_out = f"{len(folds):,} folds" if len(folds) else "leave-pair-out"
        progress(f"{len(alphas)} alphas, {held_out}")
        if not len(folds):
            found_pairs = list(pair_accuracies(problem, alphas, n_threads(self.n_jobs)))
            mean, n_refits = (np.array(part) for part in zip(*found_pairs, strict=True))
            return {"mean_score": mean.mean(axis=1), "n_refits": n_refits}
        if judged:
            held = self._leave_judgements_out(problem, folds, alphas, variances=scoring.log_loss)
            scores = scoring.scores(held, alphas)
        else:
            held = problem.leave_out(folds, alphas)
            scores = scoring.of_folds(graph, held)
        results = {"mean_score": scores["mean_score"], "n_refits": held.n_refits} | scores
        if self.store_cv_predictions and judged:
            results["predictions"] = by_judgement(held.values, folds, graph.pairs)
        elif self.store_cv_predictions:
            results["predictions"] = held.by_row(graph.n_rows)
        return results

    def _leave_judgements_out(
        self, problem: RidgeProblem, folds: Folds, alphas: Array, *, variances: bool
    ) -> HeldOut:
        if self.link == "logit":
            return hold_out(problem, folds, alphas)
        return problem.leave_judgements_out(folds, alphas, variances=variances)

    def _store_noise(self, found: AlphaSearch, folds: Folds, scoring: JudgementScoring) -> None:
        """Calibrate probabilities and estimate the noise on held-out pairs of the best alpha."""
        graph, alpha = scoring.graph, found["alpha"]
        alphas = np.array([alpha])
        held = self._leave_judgements_out(found.problem, folds, alphas, variances=True)
        noise = scoring.noise_variance(held, alpha)
        if self.link == "logit":  # weights p(1 − p) are inverse variances
            noise = np.ones_like(noise)
        self.noise_variance_ = float(noise[0]) if graph.flat else noise
        if graph.n_outputs == 1:
            self.calibration_ = scoring.calibrate(held, alpha)

    def _score_rows(
        self,
        found: AlphaSearch,
        split: Split,
        scoring: Scoring,
        callback: Any,
        refit: bool,
        alphas: Array,
    ) -> dict[str, Array]:
        """Score alphas by held-out rows; unless ``refit``, the models of "cg" are kept."""
        score = partial(scoring.of_rows, split.held)
        if self.early_stopping:
            held_out = split.X, score, split.rows
            model, history = self._solve(
                found.problem, alphas, held_out=held_out, callback=callback
            )
            assert history.best is not None
            found.best = history.best
            found.fitted[float(alphas[history.best])] = model, history
            iteration = history.iterations[np.nanargmin(history.errors, axis=0)]
            return {"mean_score": 1 - np.nanmin(history.errors, axis=0), "iteration": iteration}
        rows = np.arange(found.problem.graph.n_rows) if split.rows is None else split.rows
        trained = found.problem.on_rows(split.graph, rows)
        model, history = self._solve(trained, alphas, callback=callback)
        if not refit and trained.space.solver == "cg":
            for number, alpha in enumerate(alphas.tolist()):
                found.fitted[alpha] = model.select(number), History(history.n_iter)
        scores = np.array([score(f) for f in predict_path(model, split.X)])
        return {"mean_score": scores, "iteration": np.full(len(alphas), history.n_iter)}

    def _folds(self, X: Any, y: Any, problem: RidgeProblem, scoring: Any, groups: Any) -> Folds:
        """The rows, or given pairs, that are held out together; none for leave-pair-out."""
        graph, cv, judged = problem.graph, self.cv, scoring.judged
        names, n, what = ROW_FOLDS, graph.n_rows, "queries" if graph.has_qid else "rows"
        codes = graph.query_codes if graph.has_qid else None
        target: Any = y if isinstance(y, PreferenceGraph) else graph.scores
        if judged:
            names, n, X, target = JUDGEMENT_FOLDS, graph.n_given_pairs, graph.pairs, graph.magnitude
            coded = None if groups is None else encode_qid(groups, n, name="groups", of="pairs")
            codes, what = (None, "pairs") if coded is None else (coded.codes, "groups")
        if isinstance(cv, str):
            check_option("cv", cv, ("auto", *names))
            if judged:
                if cv != "auto" and (cv == "leave-group-out") == (groups is None):
                    raise ValueError(
                        "cv='leave-group-out' needs groups, one for each pair, and groups need it, "
                        f"'auto' or a number of folds; got cv={cv!r}"
                    )
                by = "judgement" if groups is None else "group"
                return judgement_folds(graph, "item" if cv == "leave-item-out" else by, groups)[0]
            if codes is not None and cv != "leave-pair-out":
                return Folds.of_groups(codes)
            if cv == "leave-query-out":
                raise ValueError("cv='leave-query-out' needs qid")
            pairwise = scoring.name in PAIR_METRICS and not self.store_cv_predictions
            if cv == "leave-pair-out" and not pairwise:
                raise ValueError(
                    "leave-pair-out compares two rows at a time, so scoring must be one of "
                    f"{', '.join(map(repr, PAIR_METRICS))}, without store_cv_predictions; "
                    "otherwise use an int cv (or rankrls.model_selection.leave_pair_out_predict)"
                )
            few = pairwise and 4 <= n <= MAX_PAIR_ROWS
            if cv == "leave-pair-out" or (few and can_leave_pairs_out(problem)):
                return Folds.of_list([])
            cv = max(2, min(10, n // 5))
        if is_integer(cv):
            together, rng = np.arange(n) if codes is None else codes, self.random_state
            return Folds.of_groups(
                random_fold_of(together, int(cv), check_random_state(rng), what=what)
            )
        if not is_splits(cv):
            raise ValueError(
                f"cv must be 'auto', {', '.join(map(repr, names))}, an int, a splitter or an "
                f"iterable of (train, test); got {show(cv)}"
            )
        folds = [test for _, test in read_splits(cv, n, X, target, codes, complement=True)]
        # A splitter such as LeavePairOut may say that it means to split queries.
        whole = codes is not None and not judged and not getattr(cv, "splits_queries", False)
        if whole and split_folds(problem.objectives[0], folds).any():
            warn(
                f"cv={show(cv)} splits queries: rows of a query are both trained on and held out, "
                "and a held-out row is compared with the held-out part of its query only. To "
                "hold out whole queries use cv='leave-query-out', an int, or GroupKFold"
            )
        return Folds.of_list(folds)

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return np.unique(self.cv_results_["alpha"])


def as_rankrls(estimator: Any) -> RankRLS:
    """A `RankRLS` with the parameters of a ranker; of a fitted `RankRLSCV`, with those chosen."""
    if isinstance(estimator, RankRLS):
        return estimator
    if not isinstance(estimator, RankRLSCV):
        raise ValueError(
            f"estimator must be a RankRLS or a fitted RankRLSCV; got a {type(estimator).__name__} "
            "(for a pipeline, pass its last step, and X transformed by the steps before it)"
        )
    check_is_fitted(estimator)
    known, own = RankRLS().get_params(), estimator.get_params(deep=False)
    options = {name: value for name, value in own.items() if name in known}
    options["alpha"] = float(estimator.alpha_)
    options["gamma"] = getattr(estimator, "gamma_", estimator.gamma)
    if hasattr(estimator, "basis_indices_"):
        options["basis"] = estimator.basis_indices_
    return RankRLS(**options)
