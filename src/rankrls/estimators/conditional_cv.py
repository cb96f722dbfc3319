"""``ConditionalRankRLSCV``: conditional ranking with alpha chosen by exact cross-validation."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls import _resources
from rankrls._calls import Progress, all_or_nothing, warn
from rankrls._validation import check_integer
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.complete import CompleteSpectrum, closed_form
from rankrls.core.relations.holdout import holdout_error, holdout_errors
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.estimators.choosing import Scoring, best_of, check_alphas, default_grid, search_alphas
from rankrls.estimators.conditional_base import ConditionalRanker
from rankrls.estimators.objects import Objects
from rankrls.estimators.relation_folds import RelationFolds, cross_validate, folds_of
from rankrls.estimators.relation_inputs import Relation, check_alpha_grids, check_alpha_pairs
from rankrls.estimators.relation_search import (
    descend_weights,
    search_pairs,
    search_weights,
    without_small,
)

__all__ = ["ConditionalRankRLSCV"]

Array = NDArray[Any]

WEIGHTS = ("kernel_weights_", "object_kernel_weights_")
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
#: Maximal number of entries of a work space, which limits the alphas processed together.
WORK = 2**27


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
        pairs = self._two_step and self.relation is None
        grid: Any = self.alphas
        if grid is not None:
            grid = check_alpha_grids(grid) if pairs else check_alphas("alphas", grid)
        if self.n_folds is not None:
            check_integer("n_folds", self.n_folds, least=2)
        scoring = Scoring(self.scoring)
        relation = self._read(X, Y, Z)
        problem = self._problem(relation)
        folds = folds_of(
            self.cv,
            problem.observations,
            self.condition_on,
            paired=problem.paired,
            two_domains=relation.two_domains,
            shortcut=problem.has_shortcuts and problem.labels() is not None,
            n_folds=self.n_folds,
            rng=check_random_state(self.random_state),
            X=X,
        )
        self._warn_of_unknown_objects(folds, relation)
        search = _Search(self, relation, folds, grid, scoring)
        if search.open:
            relation, problem = search.choose_weights()
        best, results = search.alphas(problem)
        alpha, score = results["alpha"][best].tolist(), float(results["mean_score"][best])
        alpha = tuple(alpha) if pairs else alpha
        search.progress(f"alpha {alpha}, score {score:.4f}")
        self.alpha_, self.best_score_, self.cv_results_ = alpha, score, results
        for name, objects in zip(WEIGHTS, relation[:2], strict=True):
            self.__dict__.pop(name, None)
            if objects is not None and objects.weights is not None:
                setattr(self, name, objects.weights)
        self._fit_relation(relation, self._check_alpha(alpha), problem=problem)
        return self

    def _warn_of_unknown_objects(self, folds: RelationFolds, relation: Relation) -> None:
        """Warn if held-out objects have kernels that do not describe new objects."""
        sides = {"rows": relation.rows, "columns": relation.ranked}
        names = list(sides) if self.condition_on == "rows" else list(sides)[::-1]
        held = {"entries": [], "rows": names[:1], "columns": names[1:]}.get(folds.held, names)
        for name in held if self._pairwise.multiplies else ():
            kernel: Any = sides[name].kernel
            if kernel.blind:
                warn(
                    f"cross-validation holds out {name}, of which the kernels know nothing "
                    f"({', '.join(kernel.metric)}): held-out scores are offsets alone. Use "
                    "cv='edges' if all objects will be known; otherwise add a kernel of features"
                )

    @property
    def _alpha(self) -> Any:
        return self.alpha_

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return self.cv_results_["alpha"]


class _Search:
    """Choice of alpha, and of kernel weights, by the score of held-out pairs."""

    def __init__(
        self,
        ranker: ConditionalRankRLSCV,
        relation: Relation,
        folds: RelationFolds,
        grid: Any,
        scoring: Scoring,
    ) -> None:
        self.ranker, self.relation, self.folds = ranker, relation, folds
        self.grid, self.scoring = grid, scoring
        self.options = ranker._iteration_options()
        self.progress = Progress(type(ranker).__name__, ranker.verbose)
        self.sides = [relation.rows, relation.ranked][: 1 + (relation.columns is not None)]
        given = ranker.kernel_weights, ranker.object_kernel_weights
        #: Sides with several kernels without given weights.
        self.open = [
            side
            for side, objects in enumerate(self.sides)
            if given[side] is None
            and not (side and ranker._pairwise.several)
            and objects.weights is not None
            and len(objects.weights) > 1
        ]
        self._latest: dict[int, tuple[bytes, Side]] = {}

    def evaluate(
        self, alphas: Array, problem: RelationProblem, *, solver: str | None = None
    ) -> dict[str, Array]:
        """Compute the scores of all alphas, and the numbers of refits."""
        scores, n_refits = [], []
        if self.ranker._two_step:
            alphas = check_alpha_pairs("alphas", alphas)
        most = min(WORK, _resources.budget() // 64) // int(np.prod(self.relation.labels.shape))
        for part in np.split(alphas, range(max(most, 1), len(alphas), max(most, 1))):
            lists, y, predictions, refits = cross_validate(
                problem,
                self.folds,
                self.ranker._oriented_alphas(part),
                solver=solver or self.ranker.solver,
                options=self.options,
                progress=self.progress,
            )
            n_refits.append(refits)
            scores += [
                float(self.scoring.metric(y, f, qid=lists, **self.scoring.options))
                for f in predictions
            ]
        return {"mean_score": np.array(scores), "n_refits": np.concatenate(n_refits)}

    def alphas(self, problem: RelationProblem) -> tuple[int, dict[str, Array]]:
        """Score the grid of alphas; return the index of the best one, and the results."""
        self.progress(f"choosing alpha, {self.folds}")
        evaluate = partial(self.evaluate, problem=problem)
        if not (problem.two_step and not problem.sign):
            return search_alphas(self.grid, evaluate, problem.size)
        first, second = (side.size for side in self.ranker._turned(problem.sides))
        return search_pairs(self.grid, evaluate, (first, second))

    # ------------------------------------------------------------------ kernel weights

    def choose_weights(self) -> tuple[Relation, RelationProblem]:
        """Choose weights that rank held-out pairs best; return their relation and problem."""
        # If each fold needs a refit, or its own kernels, a few folds are the validation set.
        whole, options, solver = self.folds, self.options, self.ranker.solver
        refitted = self.relation.labels.matrix is None
        profiled = any(objects.profile is not None for objects in self.sides)
        if whole.kind == "pairs":
            solver = "cg" if solver == "auto" else solver
            few = min(VALIDATION_FOLDS[0], whole.n_pair_folds)
            self.folds = replace(whole, n_pair_folds=few)
        elif whole.kind == "blocks" and (refitted or profiled):
            step = max(1, len(whole.blocks) // VALIDATION_FOLDS[1])
            self.folds = replace(whole, blocks=whole.blocks[::step][: VALIDATION_FOLDS[1]])
        with warnings.catch_warnings():  # the last search, with the chosen weights, warns
            warnings.simplefilter("ignore")
            weights, value = self._search_weights(options, solver)
        self.folds, self.options = whole, options
        self.progress(f"weights {[w.round(4).tolist() for w in weights]}, score {value:.4f}")
        made = self._weighted(weights)
        relation = self.relation._replace(rows=made[0], columns=made[1] if made[1:] else None)
        return relation, self._problem(weights)

    def _search_weights(self, options: IterationOptions, solver: str) -> tuple[list[Array], float]:
        start: list[Array] = [np.asarray(self.sides[side].weights) for side in self.open]
        most, first = np.inf, self._problem(start)
        plain = first.pairwise.plain and not first.two_step and not first.profiled
        if plain and first.labels() is not None:
            start, value, gain = self._descend(start, first)
            # Offsets of held-out columns affect the score, but not the error.
            held = self.folds.held in ("columns", "both")
            if gain > SMALL_GAIN and not (first.ranking and first.offsets.columns and held):
                return start, value
            most = AFTER_DESCENT
        rough, few = max(options.tol, ROUGH), min(options.max_iter, FEW)
        self.options = replace(options, tol=rough, max_iter=few)
        at, results = self.alphas(self._problem(start))
        grid, top = results["alpha"], float(results["mean_score"][at])
        around = 0 if grid.ndim == 2 else NEIGHBOURS

        def score(weights: list[Array]) -> float:
            nonlocal at, top
            low = max(0, at - around)
            problem = self._problem(weights)
            found = self.evaluate(grid[low : at + around + 1], problem, solver=solver)["mean_score"]
            value = float(found.max())
            if value > top:
                at, top = low + int(np.argmax(found)), value
            return value

        return search_weights(start, score, top, most)

    def _weighted(self, weights: list[Array]) -> list[Objects]:
        made = list(self.sides)
        for side, values in zip(self.open, weights, strict=True):
            made[side] = made[side].weighted(values)
        return made

    def _problem(self, weights: list[Array]) -> RelationProblem:
        """Build the problem; a side with unchanged weights keeps its decomposition."""
        free = self.ranker._free
        for number, objects in enumerate(self._weighted(weights)):
            key = b"" if objects.weights is None else objects.weights.tobytes()
            if self._latest.get(number, (None,))[0] != key:
                self._latest[number] = key, objects.side(free.T if number else free)
        sides = [self._latest[number][1] for number in range(len(self.sides))]
        return self.ranker._problem(self.relation, (sides[0], sides[-1]))

    def _descend(
        self, start: list[Array], first: RelationProblem
    ) -> tuple[list[Array], float, float]:
        """Minimise the held-out squared error; return weights, their score and its improvement."""
        held = self.folds.held
        grid = default_grid(first.size()) if self.grid is None else self.grid

        def error(weights: list[Array], alpha: float) -> tuple[float, list[Array], float]:
            try:
                problem = _unpaired(self._problem(weights))
                value, slope, *gradients = holdout_error(problem, alpha, held)
            except ValueError:  # kernels are too indefinite for alpha
                return np.inf, [], 0.0
            tables = self.ranker._turned(gradients)
            if len(self.sides) == 1:
                tables = [tables[0] + tables[1]]
            slopes = [self.sides[s].inner_products(tables[s]) for s in self.open]
            return value, slopes, slope

        def score(weights: list[Array], alpha: float) -> float:
            at = int(np.argmin(np.abs(np.log(grid / alpha))))
            near = grid[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
            return float(self.evaluate(near, self._problem(weights))["mean_score"].max())

        few = grid[:: max(1, len(grid) // COARSE)]
        alpha = float(few[np.argmin(holdout_errors(_unpaired(first), few, held))])
        trials, scores = [start], [score(start, alpha)]
        weights, alpha = descend_weights(start, alpha, (grid[0], grid[-1]), error)
        for trial in (weights, without_small(weights)):
            if not all(map(np.array_equal, trial, trials[-1])):
                trials.append(trial)
                scores.append(score(trial, alpha))
        best = best_of(np.array(scores))
        return trials[best], scores[best], scores[best] - scores[0]


def _unpaired(problem: RelationProblem) -> CompleteSpectrum:
    """Build the closed form of a complete problem as if objects were of two kinds."""
    Y = problem.labels()
    assert Y is not None
    return closed_form(*problem.sides, Y, replace(problem.loss, sign=0))
