"""``ConditionalRankRLSCV``: conditional ranking with alpha chosen by exact cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._progress import Progress
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_option,
    check_positive,
    show,
)
from rankrls.core.relations.cross_validation import alpha_chunks, complete_labels, cross_validate
from rankrls.core.relations.plan import Plan, make_plan, plan_of_splits
from rankrls.estimators.conditional_base import ConditionalRanker
from rankrls.estimators.scoring import Scoring, choose_alpha

__all__ = ["ConditionalRankRLSCV", "plan_for"]

Array = NDArray[Any]

DEFAULT_ALPHAS = tuple(2.0**exponent for exponent in range(-15, 16))
STRUCTURES = ("auto", "rows", "columns", "both", "edges")


class ConditionalRankRLSCV(ConditionalRanker):
    """`ConditionalRankRLS` with built-in exact cross-validation over alpha.

    What is held out decides what the chosen alpha is good for: rankings for new conditioning
    objects, of new objects, both, or of unobserved pairs of known objects.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), default=2^-15 … 2^15
        The grid.
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
        alphas: ArrayLike = DEFAULT_ALPHAS,
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
        grid = np.unique(check_finite_array("alphas", np.atleast_1d(self.alphas), ndim=(1,)))
        if not grid.size:
            raise ValueError("alphas is empty: give at least one number > 0")
        check_positive("alphas", float(grid[0]))
        if self.n_folds is not None:
            check_integer("n_folds", self.n_folds, least=2)
        scoring = Scoring(self.scoring)
        stopping = self._stopping()
        rows, columns, observations = self._prepare(X, Y, Z)
        progress = Progress(type(self).__name__, self.verbose)
        problem = self._problem(rows, columns, observations)
        rng = check_random_state(self.random_state)
        plan = plan_for(
            self.cv,
            problem.observations.shape,
            self.condition_on,
            paired=problem.sign != 0,
            two_domains=Z is not None,
            shortcut=problem.sign == 0 and complete_labels(problem) is not None,
            n_folds=self.n_folds,
            rng=rng,
            X=X,
        )
        progress(f"cross-validation of {len(grid)} alphas: {plan}")
        scores, n_refits = [], []
        state = rng.get_state()
        for alphas in alpha_chunks(grid, observations.shape):
            rng.set_state(state)  # the same folds for every alpha
            held = cross_validate(
                problem,
                plan,
                alphas,
                solver=self.solver,
                stopping=stopping,
                n_folds=self.n_folds,
                rng=rng,
                progress=progress,
            )
            n_refits.append(held.n_refits)
            scores += [
                float(scoring.metric(held.y, values, qid=held.lists, **scoring.options))
                for values in held.predictions
            ]
        self._choose(grid, np.array(scores), np.concatenate(n_refits))
        progress(f"alpha {self.alpha_:g}, score {self.best_score_:.4f}")
        solution = self._solve(problem, np.array([self.alpha_]), progress)
        self._store(rows, columns, observations, solution, two_domains=Z is not None)
        return self

    def _choose(self, grid: Array, scores: Array, n_refits: Array) -> None:
        best = choose_alpha(grid, scores)
        self.alpha_ = float(grid[best])
        self.best_score_ = float(scores[best])
        self.cv_results_ = {"alpha": grid, "mean_score": scores, "n_refits": n_refits}


def plan_for(
    cv: Any,
    shape: tuple[int, int],
    condition_on: str,
    *,
    paired: bool,
    two_domains: bool,
    shortcut: bool,
    n_folds: int | None,
    rng: np.random.RandomState,
    X: Any,
) -> Plan:
    """What ``cv`` holds out of a relation of ``shape``, with the conditioning objects as rows."""
    p, g = shape
    one = not two_domains
    if isinstance(cv, str):
        check_option("cv", cv, STRUCTURES)
        structure = ("both" if one else "rows") if cv == "auto" else cv
    elif isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        structure, n_folds = ("both" if one else "rows"), check_integer("cv", cv, least=2)
    elif hasattr(cv, "split") or (isinstance(cv, Iterable) and not isinstance(cv, bytes)):
        side = "both" if one else condition_on
        n = p if condition_on == "rows" else g
        return plan_of_splits(_splits(cv, X, n), (p, g), side=side)
    else:
        choices = ", ".join(map(repr, STRUCTURES))
        raise ValueError(
            f"cv must be one of {choices}, an int, a splitter or an iterable of (train, test); "
            f"got {show(cv)}"
        )
    if condition_on == "columns":
        structure = {"rows": "columns", "columns": "rows"}.get(structure, structure)
    return make_plan(
        structure,
        (p, g),
        paired=paired,
        same_objects=one,
        shortcut=shortcut,
        n_folds=n_folds,
        rng=rng,
    )


def _splits(cv: Any, X: Any, n: int) -> list[tuple[Array, Array]]:
    """Checked (train, test) row numbers of X."""
    pairs = list(cv.split(X) if hasattr(cv, "split") else cv)
    if not pairs:
        raise ValueError("cv gives no split")
    out = []
    for number, pair in enumerate(pairs):
        parts = []
        for name, part in zip(("train", "test"), pair, strict=True):
            rows = np.asarray(part)
            rows = np.flatnonzero(rows) if rows.dtype.kind == "b" else rows
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
                raise ValueError(f"{name} rows of split {number} of cv must be row numbers of X")
            if rows.min() < 0 or rows.max() >= n:
                raise ValueError(
                    f"{name} rows of split {number} of cv must be from 0 to {n - 1}, the rows of X"
                )
            parts.append(np.unique(rows))
        if len(np.intersect1d(parts[0], parts[1])):
            raise ValueError(f"split {number} of cv has rows both in train and in test")
        out.append((parts[0], parts[1]))
    return out
