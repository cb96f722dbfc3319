"""``RankRLSCV``: RankRLS with alpha chosen by exact cross-validation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from rankrls import _resources
from rankrls._calls import Progress, explained, takes_queries, unchanged_on_error, warn
from rankrls._resources import n_threads
from rankrls._validation import check_length, check_option, encode_qid, refuse_lazy, show
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.iterative import HeldOutRows
from rankrls.core.ridge.leave_judgements_out import JudgementFolds
from rankrls.core.ridge.leave_out import HeldOut, query_folds, split_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.spaces.path_model import predict_path
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.calibration import JudgementScoring
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
    search_alphas,
)
from rankrls.estimators.incremental import IncrementalMethod, IncrementalRanker
from rankrls.estimators.stream import fit_stream_cv
from rankrls.estimators.validation_rows import split_for_validation

__all__ = ["RankRLSCV", "chosen_alpha", "problem_size"]

Array = NDArray[Any]

#: Without qid, ``cv="auto"`` leaves out pairs up to this many rows, and takes ten folds above.
MAX_PAIR_ROWS = 1000

#: How given pairs may be left out.
JUDGEMENT_FOLDS = ("leave-judgement-out", "leave-item-out", "leave-group-out")


#: Held-out predictions of given pairs that are kept at a time.
MAX_HELD_OUT = 2**25


class RankRLSCV(IncrementalRanker):
    """RankRLS with built-in exact cross-validation over alpha.

    Every held-out prediction equals that of a model refitted without the held-out rows. All
    alphas together cost about one decomposition.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), optional
        Grid of alphas. The default is 2^-15 … 2^15. It is extended by factors of two if all these
        values are too small or too large for the data (because of the scale of the features, or
        10^5 rows in one ranking), and as long as the best alpha is at an end of the grid. It is not
        extended with early stopping.
    kernel, gamma, degree, coef0, kernel_params, cost, ties, query_weighting, solver, basis, \
max_iter, tol, early_stopping, validation_fraction, n_iter_no_change, random_state, verbose, n_jobs
        As for `RankRLS`. With ``solver="cg"``, or with an ``eval_set``, alpha is chosen on held-out
        rows instead of by cross-validation (see Notes).
    cv : str, int, splitter or iterable, default="auto"
        What is held out together. For labels:

        - "leave-query-out": each query;
        - "leave-pair-out": each pair of rows of one ranking; requires cost="magnitude" with
          ties="keep", or labels without ties;
        - an int k: k random folds of whole queries, or of rows without qid;
        - a scikit-learn splitter, or an iterable of (train, test);
        - "validation": held-out rows, the default with ``solver="cg"`` or an ``eval_set``;
        - "auto": "leave-query-out" with qid; without qid "leave-pair-out" for up to 1000 rows if it
          is exact, otherwise 10 folds (fewer below 50 rows, so that each has at least 5).

        For given pairs:

        - "leave-judgement-out": each pair;
        - "leave-item-out": all pairs of an item; a pair is predicted twice, once without each of
          its items;
        - "leave-group-out": all pairs of a group;
        - an int for folds of pairs or groups, or splits of the pairs;
        - "auto": groups if they are given, single pairs otherwise.
    scoring : str or callable, default="pairwise_accuracy"
        Name of a metric of `rankrls.metrics`, with an optional cut-off as in "ndcg@10", or a
        function ``metric(y_true, y_score, qid=...)``; higher is better. It is computed within
        queries and folds and averaged over them. Sample weights are only used in training. List
        metrics are refused with leave-pair-out. "pairwise_r2" is based on the squared loss: 1 −
        (loss of held-out pairs)/(sum of their squared targets), with cost, weighting and sample
        weights as in training. Its maximum is 1, and equal predictions for all rows give 0. For
        given pairs, use "pairwise_accuracy" (weighted by pair_weight, without ties) or "log_loss"
        (the negative log loss of calibrated probabilities; a tie counts as half a preference each
        way).

    Attributes
    ----------
    alpha_ : float
        The best alpha; the largest one if several are equally good.
    best_score_ : float
        Its cross-validated score. It is the maximum over many alphas and therefore optimistic: to
        estimate performance, cross-validate the whole `RankRLSCV` (nested).
    alphas_ : ndarray of shape (n_alphas,)
        The grid, ascending.
    cv_results_ : dict of ndarray
        "alpha", "mean_score", and "n_refits" (the number of folds that were refitted) or, with
        held-out rows, "iteration" (that of the best score; the last one without early stopping).
        If the metric has a score for each held-out list (all except concordance_index and
        functions; not for leave-pair-out and held-out rows), also "std_score" and "n_scores": the
        standard deviation of these scores and their number. They share training rows, so
        std_score/√n_scores is only a rough standard error of the mean.
    validation_curve_ : ndarray of shape (n_checks, n_alphas)
        With early stopping, the error (1 − score) of each alpha at ``validation_iterations_``; NaN
        after an alpha has been stopped.
    calibration_ : Calibration
        If alpha was chosen on held-out pairs: ``link``, ``slope`` and held-out ``log_loss`` of the
        probabilities of `preference_proba`.
    coef_, dual_coef_, basis_indices_, solver_, n_pairs_, n_queries_, …
        As for `RankRLS`, fitted to all rows with ``alpha_``.

    Notes
    -----
    Several outputs share one alpha: the scores are averaged over outputs.

    ``solver="cg"`` solves for the whole grid in one run of conjugate gradients. Alpha is then
    chosen on held-out rows: ``eval_set``, or ``validation_fraction`` of the queries. Without early
    stopping every alpha is iterated to ``tol``, and without an ``eval_set`` the model is fitted
    again to all rows with the best alpha. With ``early_stopping=True`` the model is the best
    combination of alpha and iteration, and the held-out rows are not used for training.

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
        alphas: ArrayLike | None = None,
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
            Judge, prompt or session of each given pair. All pairs of a group are held out
            together.

        Returns
        -------
        RankRLSCV
            The fitted estimator.
        """
        by_row = {"X": X, "y": y, "qid": qid, "sample_weight": sample_weight}
        for name, values in by_row.items():
            refuse_lazy(values, name, instead="use rankrls.dask.RankRLSCV")
        grid = None
        if self.alphas is not None:
            grid = check_alphas("alphas", self.alphas, allow_zero=self.early_stopping is True)
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
            self.__dict__.pop("calibration_", None)
            by_judgement = self._by_judgement(graph)
            if groups is not None and not by_judgement:
                raise ValueError(
                    "groups says which given pairs are left out together, with cv='auto', "
                    "'leave-group-out' or a number of folds; pass the query of each row as qid"
                )
            by_validation = self._by_validation(eval_set)
            if groups is not None and by_validation:
                raise ValueError(
                    "groups does not go with eval_set, early_stopping, solver='cg' or "
                    "cv='validation', which choose alpha by held-out rows: leave these away to "
                    "hold out groups of pairs, or leave out groups"
                )
            if by_validation:
                self._fit_by_validation(kernel, X, graph, grid, eval_set, callback)
            elif by_judgement:
                self._fit_by_judgements(kernel, X, graph, grid, groups)
            else:
                self._fit_by_cross_validation(kernel, X, y, graph, grid)
            self._note_learned(kernel, X, graph)
        return self

    @IncrementalMethod
    def fit_stream(self, batches: Any, *, basis_rows: Any = None) -> Any:
        """Choose alpha by folds of whole queries and fit, to a stream of batches.

        Sums over queries are kept for every fold. The models fitted without a fold follow exactly
        from them for all alphas, and equal those of ``fit`` with the same folds and the linear
        kernel.

        Parameters
        ----------
        batches : iterable, or function that returns one
            As for `RankRLS.fit_stream`, with qid. A function, such as ``lambda: iter_letor(path)``,
            or a list can be read again from the start.
        basis_rows : array-like of shape (n_basis, n_features), optional
            Basis vectors, for solver "nystroem", as for `RankRLS.fit_stream`. The basis is the
            same for all folds.

        Returns
        -------
        RankRLSCV
            The fitted estimator.

        Notes
        -----
        ``cv`` is the number of folds; "auto" is 5. Queries are assigned to the folds in turn, in
        the order of the stream.

        ``scoring="pairwise_r2"`` needs one pass over the batches, so they may come from a
        generator. "pairwise_accuracy" and list metrics such as "ndcg@10" need a second pass for the
        held-out predictions, and another one if the default grid is extended, so it must be
        possible to read the batches again. "concordance_index" and functions are refused, because
        they need the predictions of all queries at once.

        The default grid is extended by the trace of XᵀLX, which is below the bound that ``fit``
        uses: if the best alpha is very large or small, it may differ. ``fit`` leaves basis vectors
        out with their folds, and a stream does not. Memory is needed as for
        `RankRLS.fit_stream`, with a matrix of n_features × n_features for every fold.

        Examples
        --------
        >>> from rankrls import RankRLSCV
        >>> from rankrls.datasets import make_ranking
        >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
        >>> parts = [slice(i, i + 64) for i in range(0, len(X), 64)]
        >>> batches = ((X[part], y[part], qid[part]) for part in parts)
        >>> ranker = RankRLSCV(cv=5, scoring="pairwise_r2").fit_stream(batches)
        >>> bool(ranker.best_score_ > 0.3)
        True
        """
        return fit_stream_cv(self, batches, basis_rows)

    @property
    def _alpha(self) -> float:
        return self.alpha_

    @property
    def _alpha_known(self) -> bool:
        return hasattr(self, "alpha_")

    def _fit_by_cross_validation(
        self,
        kernel: Kernel,
        X: Any,
        y: Any,
        graph: PreferenceGraph,
        grid: Array | None,
    ) -> None:
        """Choose alpha by held-out predictions; the model is another answer of the same problem."""
        scoring = Scoring(self.scoring, self._loss)
        scoring.require_scores()
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._problem(kernel, X, graph)
        cv = self._resolve(problem)
        by_pairs = isinstance(cv, str) and cv == "leave-pair-out"
        folds: list[Array] = []
        if by_pairs:
            scoring.require_pairs()
        else:
            folds = self._folds(cv, X, y, problem)

        def evaluate(alphas: Array) -> dict[str, Array]:
            progress(f"{len(alphas)} alphas, {_name(cv)}")
            if not by_pairs:
                return _score_folds(problem, folds, alphas, scoring)
            results = list(problem.pair_accuracies(alphas, n_threads(self.n_jobs)))
            return {
                "mean_score": np.array([accuracy.mean() for accuracy, _ in results]),
                "n_refits": np.array([count for _, count in results]),
            }

        best, results = search_alphas(grid, evaluate, problem.size)
        chosen = chosen_alpha(best, results)
        progress(f"alpha {chosen['alpha_']:g}, score {chosen['best_score_']:.4f}")
        model, history = self._solve(problem, np.array([chosen["alpha_"]]))
        self._store(problem, model, history)
        self.__dict__.update(chosen)

    def _by_judgement(self, graph: PreferenceGraph) -> bool:
        """Whether given pairs are what is held out."""
        named = isinstance(self.cv, str)
        if named and self.cv in JUDGEMENT_FOLDS:
            if not graph.n_given_pairs:
                raise ValueError(f"cv={self.cv!r} leaves out given pairs, and there are none")
            return True
        return bool(graph.n_given_pairs) and (graph.scores is None or (named and self.cv == "auto"))

    def _fit_by_judgements(
        self, kernel: Kernel, X: Any, graph: PreferenceGraph, grid: Array | None, groups: Any
    ) -> None:
        """Choose alpha by held-out given pairs, and calibrate probabilities on them."""
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._problem(kernel, X, graph)
        scoring = JudgementScoring(self.scoring, graph)
        folds = self._judgement_folds(graph, groups)
        # As many alphas at a time as leave the predictions of moderate size.
        step = max(1, MAX_HELD_OUT // (len(folds.members) * graph.n_outputs))
        calibrated = graph.n_outputs == 1 and not kernel.precomputed
        # Of single judgements variances cost next to nothing, and calibration needs them.
        variances = scoring.log_loss or (calibrated and bool((folds.sizes == 1).all()))
        last: tuple[HeldOut, Array] | None = None

        def evaluate(alphas: Array) -> dict[str, Array]:
            nonlocal last
            progress(f"{len(alphas)} alphas, {len(folds):,} folds of pairs")
            scores, n_refits = [], []
            for start in range(0, len(alphas), step):
                last, part = None, alphas[start : start + step]
                held = problem.leave_judgements_out(folds, part, variances=variances)
                scores += scoring.scores(held, part)
                n_refits.append(held.n_refits)
                last = held, part
            return {"mean_score": np.array(scores), "n_refits": np.concatenate(n_refits)}

        best, results = search_alphas(grid, evaluate, problem.size)
        chosen = chosen_alpha(best, results)
        progress(f"alpha {chosen['alpha_']:g}, score {chosen['best_score_']:.4f}")
        alpha = np.array([chosen["alpha_"]])
        model, history = self._solve(problem, alpha)
        if calibrated:
            assert last is not None
            held, of = last
            if not (variances and alpha[0] in of):
                held, of = problem.leave_judgements_out(folds, alpha, variances=True), alpha
            number = int(np.flatnonzero(of == alpha[0])[0])
            chosen["calibration_"] = scoring.calibrate(held, number, float(alpha[0]))
        self._store(problem, model, history)
        self.__dict__.update(chosen)

    def _judgement_folds(self, graph: PreferenceGraph, groups: Any) -> JudgementFolds:
        """The given pairs that are held out together."""
        n, cv = graph.n_given_pairs, self.cv
        codes, labels = np.arange(n), None
        if groups is not None:
            check_length("groups", groups, n, "pairs")
            coded = encode_qid(groups, n, name="groups", of="pairs")
            codes, labels = coded.codes, coded.labels
        if isinstance(cv, str):
            check_option("cv", cv, ("auto", *JUDGEMENT_FOLDS))
            if cv == "leave-group-out" and groups is None:
                raise ValueError("cv='leave-group-out' needs groups, one for each pair")
            if groups is not None and cv not in ("auto", "leave-group-out"):
                raise ValueError(f"groups goes with cv='leave-group-out', not with cv={cv!r}")
            if cv == "leave-item-out":
                return JudgementFolds.of_items(graph.pairs)[0]
            single = labels is None
            return JudgementFolds.single(n) if single else JudgementFolds.of_groups(codes, labels)
        if is_fold_count(cv):
            units = int(codes.max()) + 1
            what = "pairs" if groups is None else "groups"
            fold_of = np.empty(units, dtype=np.int64)
            rng = check_random_state(self.random_state)
            for number, fold in enumerate(random_folds(units, int(cv), rng, what=what)):
                fold_of[fold] = number
            return JudgementFolds.of_groups(fold_of[codes])
        if not is_splits(cv):
            raise ValueError(
                f"cv must be 'auto', {', '.join(map(repr, JUDGEMENT_FOLDS))}, an int, a splitter "
                f"of pairs or an iterable of (train, test) numbers of pairs; got {show(cv)}"
            )
        given = None if groups is None else codes
        splits = read_splits(cv, n, graph.pairs, graph.magnitude, given, complement=True)
        return JudgementFolds.of_list([test for _, test in splits])

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return self.cv_results_["alpha"]

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
        grid: Array | None,
        eval_set: Any,
        callback: Any,
    ) -> None:
        scoring = Scoring(self.scoring, self._loss)
        scoring.require_scores()
        if kernel.precomputed:
            raise ValueError("kernel='precomputed' cannot be split into rows: use cv instead")
        split = split_for_validation(self, X, graph, eval_set)
        score = partial(scoring.of_rows, split.held)
        if self.early_stopping:
            grid = np.array(DEFAULT_ALPHAS) if grid is None else grid
            problem = self._problem(kernel, X, split.graph)
            held_out = HeldOutRows(split.X, score, split.rows)
            model, history = self._solve(problem, grid, held_out=held_out, callback=callback)
            scores = 1 - np.nanmin(history.errors, axis=0)
            iteration = history.iterations[np.nanargmin(history.errors, axis=0)]
            results = {"alpha": grid, "mean_score": scores, "iteration": iteration}
            chosen = chosen_alpha(choose_alpha(grid, scores, warn=False), results)
        else:
            problem = self._problem(kernel, X, graph)
            rows = np.arange(X.shape[0]) if split.rows is None else split.rows
            trained = problem.on_rows(split.graph, rows)
            solved: dict[float, tuple[Any, int]] = {}

            def evaluate(alphas: Array) -> dict[str, Array]:
                model, history = self._solve(trained, alphas, callback=callback)
                solved.update({float(alpha): (model, k) for k, alpha in enumerate(alphas)})
                return {
                    "mean_score": np.array([score(f) for f in predict_path(model, split.X)]),
                    "iteration": np.full(len(alphas), history.n_iter),
                }

            best, results = search_alphas(grid, evaluate, problem.size)
            chosen = chosen_alpha(best, results)
            if problem.space.solver == "cg" and eval_set is not None:
                model, number = solved[chosen["alpha_"]]
                model, history = model.select(number), History(int(results["iteration"][best]))
            else:
                alpha = np.array([chosen["alpha_"]])
                model, history = self._solve(problem, alpha, callback=callback)
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


def _score_folds(
    problem: RidgeProblem, folds: list[Array], alphas: Array, scoring: Scoring
) -> dict[str, Array]:
    """Scores of held-out folds for every alpha; as many alphas at a time as fit into memory."""
    held_out = sum(len(rows) for rows in folds) * problem.graph.n_outputs
    size = max(1, _resources.budget() // (4 * 8 * max(held_out, 1)))
    parts = []
    for first in range(0, len(alphas), size):
        held = problem.leave_out(folds, alphas[first : first + size])
        found = scoring.spread(problem.graph, held)
        parts.append({"mean_score": found.pop("mean_score"), "n_refits": held.n_refits, **found})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def problem_size(ranker: RankRLSCV, X: Any, y: Any, **preferences: Any) -> float:
    """About the largest eigenvalue of the problem of these rows, which places the default grid."""
    ranker = clone(ranker)
    return ranker._problem(*ranker._prepare(X, y, preferences)).size()


def chosen_alpha(best: int, results: dict[str, Array]) -> dict[str, Any]:
    """The attributes that tell which alpha was chosen."""
    return {
        "alpha_": float(results["alpha"][best]),
        "best_score_": float(results["mean_score"][best]),
        "cv_results_": results,
    }


def _name(cv: Any) -> str:
    if is_fold_count(cv):
        return f"{cv} folds"
    return cv if isinstance(cv, str) else show(cv)
