"""``ConditionalRankRLSCV``: conditional ranking with alpha chosen by exact cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._calls import Progress, all_or_nothing, explained
from rankrls._validation import check_integer
from rankrls.core.relations.holdout import alpha_chunks, complete_labels, cross_validate
from rankrls.estimators.choosing import Scoring, check_alphas, search_alphas
from rankrls.estimators.conditional_base import NO_QUERIES, ConditionalRanker
from rankrls.estimators.relation_folds import folds_of

__all__ = ["ConditionalRankRLSCV"]

Array = NDArray[Any]


class ConditionalRankRLSCV(ConditionalRanker):
    """`ConditionalRankRLS` with built-in exact cross-validation over alpha.

    What is held out decides what the chosen alpha is good for: rankings for new conditioning
    objects, of new objects, both, or of unobserved pairs of known objects.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), optional
        The grid. By default 2^-15 … 2^15, continued by factors of two if very large or small
        kernel values make all of these alphas too small or too large, and as long as the best
        alpha is at an end.
    kernel, object_kernel, gamma, degree, coef0, kernel_params, object_kernel_params, relation, \
loss, condition_on, solver, max_iter, tol, random_state, verbose, n_jobs
        As for `ConditionalRankRLS`.
    cv : str, int, splitter or iterable, default="auto"
        "rows": rows of Y, that is objects of X. "columns": columns of Y, objects of Z. "both":
        a fold of rows is ranked by a model that knows neither these rows nor the columns that
        are ranked; between objects of one kind, a fold of objects is held out with all its pairs
        and ranked among itself. "edges": pairs of known objects. With a symmetric or reciprocal
        relation a pair's mirror image is held out with it, and "rows" ("columns") holds out
        objects with all their pairs, which rank (are ranked for) the others.
        An int k is k folds of the rows of X: "both" between objects of one kind, "rows"
        otherwise. A scikit-learn splitter or an iterable of (train, test) gives such folds.
        "auto": "both" between objects of one kind, "rows" otherwise.
    n_folds : int, optional
        Folds of rows, columns, objects (of "both" between two kinds of objects, on each side) or
        edges. None: 10, or fewer where folds would have less than five objects; on complete
        relations without a symmetry, "rows" leaves out single rows, and "edges" a few pairs of a
        row at a time, because that costs no refit.
    scoring : str or callable, default="pairwise_accuracy"
        A metric of `rankrls.metrics` by name, "ndcg@10" for a cut-off, or a function
        ``metric(y_true, y_score, qid=...)``, higher is better. Only pairs that one model
        predicted for one conditioning object are compared.

    Attributes
    ----------
    alpha_ : float
        The best alpha; of equally good ones the largest.
    best_score_ : float
        Its cross-validated score. It was chosen to be the best of many and is therefore
        optimistic: to estimate performance, cross-validate the whole estimator with
        `rankrls.model_selection.conditional_cross_val_score`.
    alphas_ : ndarray of shape (n_alphas,)
        The grid, ascending.
    cv_results_ : dict of ndarray
        "alpha", "mean_score", "n_refits" (how often a shortcut was replaced by a refit, or the
        number of folds where there is no shortcut).
    dual_coef_, solver_, n_edges_, …
        As of `ConditionalRankRLS`, fitted on everything with ``alpha_``.

    Notes
    -----
    On complete relations all alphas together cost a few eigendecompositions: one for each kernel
    where shortcuts exist, and one for each fold otherwise. On incomplete ones every fold is
    refitted, for all alphas at once.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import ConditionalRankRLSCV
    >>> rng = np.random.default_rng(0)
    >>> X, Z = rng.standard_normal((40, 3)), rng.standard_normal((30, 2))
    >>> Y = X[:, :1] * Z[:, 0] + 0.1 * rng.standard_normal((40, 30))
    >>> ranker = ConditionalRankRLSCV(cv="rows").fit(X, Y, Z)
    >>> bool(ranker.best_score_ > 0.85)
    True
    """

    early_stopping = False
    validation_fraction = 0.1
    n_iter_no_change = 10

    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        kernel: Any = "linear",
        object_kernel: Any = None,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        object_kernel_params: dict[str, Any] | None = None,
        relation: str | None = None,
        loss: str = "ranking",
        condition_on: str = "rows",
        solver: str = "auto",
        max_iter: int = 200,
        tol: float = 1e-6,
        cv: Any = "auto",
        n_folds: int | None = None,
        scoring: Any = "pairwise_accuracy",
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alphas = alphas
        self.kernel = kernel
        self.object_kernel = object_kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.object_kernel_params = object_kernel_params
        self.relation = relation
        self.loss = loss
        self.condition_on = condition_on
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.n_folds = n_folds
        self.scoring = scoring
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @explained(qid=NO_QUERIES)
    @all_or_nothing
    def fit(self, X: Any, Y: Any, Z: Any = None) -> ConditionalRankRLSCV:
        """Choose alpha by cross-validation and fit on everything.

        Parameters
        ----------
        X, Y, Z : as for `ConditionalRankRLS`

        Returns
        -------
        ConditionalRankRLSCV
            The fitted estimator.
        """
        alphas = None if self.alphas is None else check_alphas("alphas", self.alphas)
        if self.n_folds is not None:
            check_integer("n_folds", self.n_folds, least=2)
        scoring = Scoring(self.scoring)
        rows, columns, observations = self._prepare(X, Y, Z)
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._problem(rows, columns, observations)
        self._require_functions(problem)
        folds = folds_of(
            self.cv,
            problem.observations,
            self.condition_on,
            paired=problem.sign != 0,
            two_domains=Z is not None,
            shortcut=problem.sign == 0 and complete_labels(problem) is not None,
            n_folds=self.n_folds,
            rng=check_random_state(self.random_state),
            X=X,
        )

        def evaluate(grid: Array) -> dict[str, Array]:
            progress(f"cross-validation of {len(grid)} alphas: {folds}")
            scores, n_refits = [], []
            for part in alpha_chunks(grid, observations.shape):
                held = cross_validate(
                    problem,
                    folds,
                    part,
                    solver=self.solver,
                    options=self._iteration_options(),
                    progress=progress,
                )
                n_refits.append(held.n_refits)
                scores += [
                    float(scoring.metric(held.y, values, qid=held.lists, **scoring.options))
                    for values in held.predictions
                ]
            return {"mean_score": np.array(scores), "n_refits": np.concatenate(n_refits)}

        best, results = search_alphas(alphas, evaluate, problem.size)
        alpha, score = float(results["alpha"][best]), float(results["mean_score"][best])
        progress(f"alpha {alpha:g}, score {score:.4f}")
        model = self._solve(problem, np.array([alpha]), progress)
        self._store(rows, columns, observations, model, two_domains=Z is not None)
        self.alpha_, self.best_score_, self.cv_results_ = alpha, score, results
        self._warn_of_lost_digits(problem, model, alpha)
        return self

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return self.cv_results_["alpha"]
