"""``ConditionalRankRLSCV``: conditional ranking with alpha chosen by exact cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._calls import Progress, all_or_nothing, explained, warn
from rankrls._validation import check_integer, check_option
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.cv import (
    RelationFolds,
    alpha_chunks,
    complete_labels,
    cross_validate,
    unpaired,
)
from rankrls.core.relations.holdout import holdout_error, holdout_errors
from rankrls.core.relations.labels import Observations
from rankrls.core.relations.pairwise import PAIRWISE
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import KernelSum, Side
from rankrls.estimators.alpha_pairs import check_alpha_grids, check_alpha_pairs, search_pairs
from rankrls.estimators.choosing import (
    Scoring,
    best_of,
    check_alphas,
    default_grid,
    search_alphas,
)
from rankrls.estimators.conditional_base import NO_QUERIES, ConditionalRanker
from rankrls.estimators.kernel_weights import descend_weights, search_weights, without_small
from rankrls.estimators.objects import Objects
from rankrls.estimators.relation_folds import folds_of

__all__ = ["ConditionalRankRLSCV"]

Array = NDArray[Any]

#: Number of grid points on either side of the best alpha to try with other kernel weights.
NEIGHBOURS = 1
#: Approximate number of alphas to try with equal weights before descent.
COARSE = 8
#: If minimising the squared error improves the score by less than this, a coordinate search on the
#: score follows, with this maximal number of trials.
SMALL_GAIN, AFTER_DESCENT = 0.005, 20
#: Number of folds of pairs, and of objects, to refit for every trial of weights.
VALIDATION_FOLDS = 2, 4
#: Relative accuracy of these refits, and maximal number of iterations.
ROUGH, FEW = 1e-3, 40


class ConditionalRankRLSCV(ConditionalRanker):
    """`ConditionalRankRLS` with built-in exact cross-validation over alpha.

    The choice of ``cv`` should match the intended use: ranking for new conditioning objects,
    ranking new objects, both, or ranking unobserved pairs of known objects.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), optional
        The grid. The default is 2^-15 … 2^15. It is extended by factors of two if very large or
        small kernel values make all of these alphas too small or too large, and as long as the
        best alpha is at an end. ``pairwise="two-step"`` takes one grid for both sides, or a list
        of two grids, and tries all pairs. By default it searches one side after the other.
    kernel_weights, object_kernel_weights : array-like of shape (n_kernels,), optional
        Weights of several kernels. None: choose them by the held-out error and the
        cross-validated score (see Notes, ``kernel_weights_`` and ``object_kernel_weights_``).
    kernel, object_kernel, gamma, degree, coef0, kernel_params, object_kernel_params, pairwise, \
relation, loss, condition_on, fit_offsets, solver, max_iter, tol, random_state, verbose, n_jobs
        As for `ConditionalRankRLS`.
    cv : str, int, splitter or iterable, default="auto"
        What is held out. "rows": rows of Y (objects of X). "columns": columns of Y (objects of Z).
        "both": rows and columns at once; predictions for a fold use neither its rows nor the
        ranked columns. Between objects of one kind, a fold of objects is held out with all its
        pairs, and only pairs within the fold are predicted. "edges": pairs of known objects. With a
        symmetric or reciprocal relation, the mirror image of a pair is held out with it, and
        "rows" ("columns") holds out objects with all their pairs. These are then the conditioning
        (ranked) objects of the predictions.
        An int k means k folds of the rows of X: "both" between objects of one kind, "rows"
        otherwise. A scikit-learn splitter or an iterable of (train, test) also defines such folds.
        "auto": "both" between objects of one kind, "rows" otherwise.
    n_folds : int, optional
        Number of folds of rows, columns, objects or edges. For "both" between two kinds of objects
        it is the number of folds on each side. None: 10, or fewer if folds would have less than
        five objects. On complete relations without a symmetry, None holds out single rows for
        "rows", and a few pairs of a row at a time for "edges", because this needs no refit.
    scoring : str or callable, default="pairwise_accuracy"
        Name of a metric of `rankrls.metrics`, possibly with a cut-off such as "ndcg@10", or a
        function ``metric(y_true, y_score, qid=...)``; higher is better. Only pairs with the same
        conditioning object, predicted by the same model, are compared.

    Attributes
    ----------
    alpha_ : float
        The best alpha; the largest one in case of ties. A tuple (row, column) for
        ``pairwise="two-step"`` without a ``relation``.
    best_score_ : float
        Cross-validated score of the best alpha. It is optimistic, because it is the maximum over
        many alphas. To estimate performance, cross-validate the whole estimator with
        `rankrls.model_selection.conditional_cross_val_score`.
    alphas_ : ndarray of shape (n_alphas,)
        The grid, ascending; pairs, of shape (n_alphas, 2), for two-step.
    kernel_weights_, object_kernel_weights_ : ndarray of shape (n_kernels,)
        Weights of several kernels, chosen or given. ``object_kernel_weights_`` exists only if the
        sides differ.
    cv_results_ : dict of ndarray
        "alpha", "mean_score", and "n_refits" (the number of refits that replaced a shortcut, or
        the number of folds if there is no shortcut).
    dual_coef_, solver_, n_edges_, …
        As in `ConditionalRankRLS`, fitted to all labels with ``alpha_``.

    Notes
    -----
    On complete relations, all alphas together cost a few eigendecompositions: one for each kernel
    if shortcuts exist, and one for each fold otherwise. On incomplete relations, every fold is
    refitted, for all alphas at once. The kernel "profile" is recomputed for every fold from the
    labels that are not held out.

    Weights of several kernels are chosen as follows. On complete relations without "profile", the
    squared error of held-out single rows, columns or pairs has a closed form, and so has its
    gradient. It is minimised over alpha and the weights of both sides by a quasi-Newton method.
    ``scoring`` selects among the result, the result without its smallest weights, and equal
    weights. Otherwise, and if this hardly improves the score, a coordinate search multiplies and
    divides one weight at a time while the score of the best alpha improves. Only alphas next to
    the best one are tried. If folds are refitted, or have their own profiles, the search uses only
    a few of them as a validation set. The final search over alphas uses all folds.

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
        kernel_params: Any = None,
        object_kernel_params: Any = None,
        kernel_weights: Any = None,
        object_kernel_weights: Any = None,
        pairwise: str = "kronecker",
        relation: str | None = None,
        loss: str = "ranking",
        condition_on: str = "rows",
        fit_offsets: bool | str = False,
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
        self.kernel_weights = kernel_weights
        self.object_kernel_weights = object_kernel_weights
        self.pairwise = pairwise
        self.relation = relation
        self.loss = loss
        self.condition_on = condition_on
        self.fit_offsets = fit_offsets
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
        """Choose alpha by cross-validation and fit to all labels.

        Parameters
        ----------
        X, Y, Z : as for `ConditionalRankRLS`

        Returns
        -------
        ConditionalRankRLSCV
            The fitted estimator.
        """
        check_option("pairwise", self.pairwise, tuple(PAIRWISE))
        pairs = self._two_step and self.relation is None
        alphas: Any = None
        if self.alphas is not None:
            read = check_alpha_grids if pairs else partial(check_alphas, "alphas")
            alphas = read(self.alphas)
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
            paired=problem.paired,
            two_domains=Z is not None,
            shortcut=problem.has_shortcuts and complete_labels(problem) is not None,
            n_folds=self.n_folds,
            rng=check_random_state(self.random_state),
            X=X,
        )
        self._warn_of_unknown_objects(folds, rows, columns)
        options = self._iteration_options()

        def evaluate(
            grid: Array,
            problem: RelationProblem,
            folds: RelationFolds,
            options: IterationOptions = options,
            solver: str = self.solver,
        ) -> dict[str, Array]:
            scores, n_refits = [], []
            if self._two_step:
                grid = check_alpha_pairs("alphas", grid)
            for part in alpha_chunks(grid, observations.shape):
                held = cross_validate(
                    problem,
                    folds,
                    self._oriented_alphas(part),
                    solver=solver,
                    options=options,
                    progress=progress,
                )
                n_refits.append(held.n_refits)
                scores += [
                    float(scoring.metric(held.y, values, qid=held.lists, **scoring.options))
                    for values in held.predictions
                ]
            return {"mean_score": np.array(scores), "n_refits": np.concatenate(n_refits)}

        def search(
            problem: RelationProblem, folds: RelationFolds, options: IterationOptions = options
        ) -> tuple[int, dict[str, Array]]:
            progress(f"choosing alpha, {folds}")
            made = partial(evaluate, problem=problem, folds=folds, options=options)
            if pairs:
                turn = 1 if self.condition_on == "rows" else -1
                first, second = (side.size for side in problem.sides[::turn])
                return search_pairs(alphas, made, (first, second))
            return search_alphas(alphas, made, problem.size)

        if self._chooses_weights(rows, columns):
            rows, columns, problem = self._with_weights(
                rows, columns, observations, folds, alphas, search, evaluate, progress
            )
        best, results = search(problem, folds)
        alpha, score = results["alpha"][best].tolist(), float(results["mean_score"][best])
        alpha = tuple(alpha) if pairs else alpha
        progress(f"alpha {alpha}, score {score:.4f}")
        model = self._solve(problem, self._check_alpha(alpha), progress)
        self._store(rows, columns, observations, model, alpha, two_domains=Z is not None)
        self.alpha_, self.best_score_, self.cv_results_ = alpha, score, results
        self._store_weights(rows, columns)
        self._warn_of_lost_digits(problem, model, alpha)
        self._warn_of_equal_objects()
        return self

    def _warn_of_unknown_objects(
        self, folds: RelationFolds, rows: Objects, columns: Objects | None
    ) -> None:
        """Warn if held-out objects have kernels that do not describe new objects."""
        if not self._pairwise.multiplies:
            return  # these rank by the kernel of the other side only
        sides = {"rows": rows, "columns": rows if columns is None else columns}
        names = list(sides) if self.condition_on == "rows" else list(sides)[::-1]
        new = {"entries": [], "rows": names[:1], "columns": names[1:]}.get(folds.held, names)
        for name in new:
            kernel = sides[name].kernel
            if isinstance(kernel, KernelSum) and kernel.blind:
                warn(
                    f"cross-validation holds out {name}, of which the kernels know nothing "
                    f"({', '.join(kernel.metric)}): held-out scores are offsets alone. Use "
                    "cv='edges' if all objects will be known; otherwise add a kernel of features"
                )

    def _chooses_weights(self, rows: Objects, columns: Objects | None) -> bool:
        """Whether a side has several kernels without given weights."""
        return any(self._open(side, objects) for side, objects in enumerate((rows, columns)))

    def _open(self, side: int, objects: Objects | None) -> bool:
        given = (self.kernel_weights, self.object_kernel_weights)[side]
        if objects is None or given is not None or (side and self._pairwise.several):
            return False
        return objects.weights is not None and len(objects.weights) > 1

    def _with_weights(
        self,
        rows: Objects,
        columns: Objects | None,
        observations: Observations,
        folds: RelationFolds,
        alphas: Array | None,
        search: Any,
        evaluate: Any,
        progress: Progress,
    ) -> tuple[Objects, Objects | None, RelationProblem]:
        """Choose kernel weights that rank held-out pairs best; return the objects and the problem.

        If each fold needs a refit, or its own kernels, a few folds are the validation set, and
        systems are solved only as accurately as scores require.
        """
        profiled = any(
            objects is not None and objects.profile is not None for objects in (rows, columns)
        )
        refitted = observations.matrix is None
        options = self._iteration_options()
        options = replace(options, tol=max(options.tol, ROUGH), max_iter=min(options.max_iter, FEW))
        solver = self.solver
        if folds.kind == "pairs":
            solver = "cg" if solver == "auto" else solver
            folds = replace(folds, n_pair_folds=min(VALIDATION_FOLDS[0], folds.n_pair_folds))
        elif folds.kind == "blocks" and (refitted or profiled):
            step = max(1, len(folds.blocks) // VALIDATION_FOLDS[1])
            folds = replace(folds, blocks=folds.blocks[::step][: VALIDATION_FOLDS[1]])
        sides = [rows] if columns is None else [rows, columns]
        chosen = [side for side, objects in enumerate(sides) if self._open(side, objects)]

        def weighted(weights: list[Array]) -> list[Objects]:
            made = list(sides)
            for side, values in zip(chosen, weights, strict=True):
                made[side] = sides[side].weighted(values)
            return made

        latest: list[tuple[bytes, Side] | None] = [None] * len(sides)

        def problem(weights: list[Array]) -> RelationProblem:
            """Build the problem; a side with unchanged weights keeps its decomposition."""
            made = []
            for number, objects in enumerate(weighted(weights)):
                offsets = self._free() if number == 0 else self._free().T
                key = b"" if objects.weights is None else objects.weights.tobytes()
                held = latest[number]
                if held is None or held[0] != key:
                    held = latest[number] = (key, objects.side(offsets))
                made.append(held[1])
            return self._problem_of(made[0], made[-1], observations)

        def returned(
            weights: list[Array], value: float
        ) -> tuple[Objects, Objects | None, RelationProblem]:
            progress(f"weights {[w.round(4).tolist() for w in weights]}, score {value:.4f}")
            made = weighted(weights)
            return made[0], made[1] if columns is not None else None, problem(weights)

        start = [np.asarray(sides[side].weights) for side in chosen]
        most, first = np.inf, problem(start)
        if self._descends(first):
            start, value, gain = self._descend(
                start, alphas, problem, folds, evaluate, sides, chosen
            )
            # Offsets of held-out columns affect the score, but not the error.
            blind = first.ranking and first.offsets.columns and folds.held in ("columns", "both")
            if gain > SMALL_GAIN and not blind:
                return returned(start, value)
            most = AFTER_DESCENT
        with warnings.catch_warnings():  # the last search, with the chosen weights, warns
            warnings.simplefilter("ignore")
            best, results = search(problem(start), folds, options)
        grid = results["alpha"]
        at = best

        def score(weights: list[Array]) -> float:
            nonlocal at
            around = 0 if grid.ndim == 2 else NEIGHBOURS
            near = slice(max(0, at - around), at + around + 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial = evaluate(grid[near], problem(weights), folds, options, solver)
            found = trial["mean_score"]
            top = near.start + int(np.argmax(found))
            value = float(found[top - near.start])
            if value > seen[0]:
                at, seen[0] = top, value
            return value

        seen = [float(results["mean_score"][best])]
        return returned(*search_weights(start, score, seen[0], most))

    @staticmethod
    def _descends(problem: RelationProblem) -> bool:
        """Whether the held-out squared error has a closed form, with its gradient."""
        plain = problem.pairwise.plain and not problem.two_step
        return plain and not problem.profiled and complete_labels(problem) is not None

    def _descend(
        self,
        start: list[Array],
        alphas: Array | None,
        problem: Callable[[list[Array]], RelationProblem],
        folds: RelationFolds,
        evaluate: Any,
        sides: list[Objects],
        chosen: list[int],
    ) -> tuple[list[Array], float, float]:
        """Minimise the held-out squared error; return weights, their score and its improvement.

        The score selects among the minimiser, the minimiser without its smallest weights, and
        ``start``.
        """
        held, first = folds.held, problem(start)
        grid = default_grid(first.size()) if alphas is None else alphas
        turn = 1 if self.condition_on == "rows" else -1

        def error(weights: list[Array], alpha: float) -> tuple[float, list[Array], float]:
            try:
                found = holdout_error(unpaired(problem(weights)), alpha, held)
            except ValueError:  # kernels are too indefinite for alpha
                return np.inf, [], 0.0
            tables = [found.left, found.right][::turn]
            if len(sides) == 1:
                tables = [tables[0] + tables[1]]
            return found.value, [sides[s].inner_products(tables[s]) for s in chosen], found.alpha

        def score(weights: list[Array], alpha: float) -> float:
            at = int(np.argmin(np.abs(np.log(grid / alpha))))
            near = grid[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
            with warnings.catch_warnings():  # the last search, with the chosen weights, warns
                warnings.simplefilter("ignore")
                return float(evaluate(near, problem(weights), folds)["mean_score"].max())

        few = grid[:: max(1, len(grid) // COARSE)]
        alpha = float(few[np.argmin(holdout_errors(unpaired(first), few, held))])
        trials, scores = [start], [score(start, alpha)]
        weights, alpha = descend_weights(start, alpha, (grid[0], grid[-1]), error)
        for trial in (weights, without_small(weights)):
            if not all(map(np.array_equal, trial, trials[-1])):
                trials.append(trial)
                scores.append(score(trial, alpha))
        best = best_of(np.array(scores))
        return trials[best], scores[best], scores[best] - scores[0]

    def _store_weights(self, rows: Objects, columns: Objects | None) -> None:
        for name, objects in (("kernel_weights_", rows), ("object_kernel_weights_", columns)):
            self.__dict__.pop(name, None)
            if objects is not None and objects.weights is not None:
                setattr(self, name, objects.weights)

    @property
    def _alpha(self) -> Any:
        return self.alpha_

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return self.cv_results_["alpha"]
