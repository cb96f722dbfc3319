"""``ConditionalRankRLSCV``: conditional ranking with alpha chosen by exact cross-validation."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._calls import all_or_nothing, warn
from rankrls._validation import check_integer
from rankrls.estimators.choosing import Scoring, check_alphas
from rankrls.estimators.conditional import ConditionalRanker
from rankrls.estimators.relation_inputs import Relation, check_alpha_grids
from rankrls.estimators.relation_search import RelationFolds, RelationSearch, folds_of

__all__ = ["ConditionalRankRLSCV"]

Array = NDArray[Any]

WEIGHTS = ("kernel_weights_", "object_kernel_weights_")


class ConditionalRankRLSCV(ConditionalRanker):
    """`ConditionalRankRLS` with built-in exact cross-validation over alpha.

    The choice of ``cv`` should match the intended use: ranking for new conditioning objects,
    ranking new objects, both, or ranking unobserved pairs of known objects.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), optional
        The grid. The default is 2^-15 … 2^15, extended where kernel values need it and as long as
        the best alpha is at an end. ``pairwise="two-step"`` takes one grid for both sides, or a
        list of two, and tries all pairs; by default it searches one side after the other.
    kernel_weights, object_kernel_weights : array-like of shape (n_kernels,), optional
        Weights of several kernels. None: choose them by cross-validation (see Notes).
    kernel, object_kernel, gamma, degree, coef0, kernel_params, object_kernel_params, pairwise, \
relation, loss, condition_on, fit_offsets, solver, max_iter, tol, random_state, verbose, n_jobs
        As for `ConditionalRankRLS`.
    cv : str, int, splitter or iterable, default="auto"
        What is held out: "rows" of Y (objects of X), "columns" (objects of Z), "both" at once, or
        "edges", pairs of known objects; mirror images, too, with a symmetry. "auto": "both" between
        objects of one kind, "rows" otherwise. An int k means k such folds; a scikit-learn splitter
        or an iterable of (train, test) splits the rows of X.
    n_folds : int, optional
        Number of folds of rows, columns, objects or edges. None: at most 10; single rows, or a few
        edges of a row, on complete relations without a symmetry, where this needs no refit.
    scoring : str or callable, default="pairwise_accuracy"
        Name of a metric of `rankrls.metrics` such as "ndcg@10", or a function
        ``metric(y_true, y_score, qid=...)``; higher is better. Only pairs with the same
        conditioning object, predicted by the same model, are compared.

    Attributes
    ----------
    alpha_ : float
        The best alpha, the largest one of ties; a tuple (row, column) for two-step.
    best_score_ : float
        Cross-validated score of ``alpha_``, which is optimistic: see
        `rankrls.model_selection.conditional_cross_val_score`.
    alphas_ : ndarray of shape (n_alphas,)
        The grid, ascending; pairs, of shape (n_alphas, 2), for two-step.
    kernel_weights_, object_kernel_weights_ : ndarray of shape (n_kernels,)
        Weights of several kernels, chosen or given; the second exists if the sides differ.
    cv_results_ : dict of ndarray
        "alpha", "mean_score", and "n_refits" (refits that replaced a shortcut, or all folds).
    dual_coef_, solver_, n_edges_, …
        As in `ConditionalRankRLS`, fitted to all labels with ``alpha_``.

    Notes
    -----
    On complete relations, all alphas together cost a few eigendecompositions. On incomplete
    relations, every fold is refitted, for all alphas at once.

    Weights of several kernels: on complete relations without "profile", the squared error of
    held-out labels is minimised by its gradient, and ``scoring`` selects among the result, the
    result without its smallest weights, and equal weights. Otherwise a coordinate search multiplies
    and divides one weight at a time.

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
        self._set(locals())

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
        pairs = self.pairwise == "two-step" and self.relation is None
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
        search = RelationSearch(self, relation, folds, grid, scoring)
        if search.open:
            relation, problem = search.choose_weights()
        best, results = search.alphas(problem)
        alpha, score = results["alpha"][best].tolist(), float(results["mean_score"][best])
        alpha = tuple(alpha) if pairs else alpha
        search.progress(f"alpha {alpha}, score {score:.4f}")
        self.alpha_, self.best_score_, self.cv_results_ = alpha, score, results
        for name, objects in zip(WEIGHTS, relation[:2], strict=True):
            self.__dict__.pop(name, None)
            if objects is not None and objects.kernel.scaled:
                setattr(self, name, objects.weights)
        self._fit_relation(relation, self._check_alpha(alpha), problem)
        return self

    def _warn_of_unknown_objects(self, folds: RelationFolds, relation: Relation) -> None:
        """Warn if held-out objects have kernels that do not describe new objects."""
        sides = {"rows": relation.rows, "columns": relation.ranked}
        names = list(sides) if self.condition_on == "rows" else list(sides)[::-1]
        held = {"entries": [], "rows": names[:1], "columns": names[1:]}.get(folds.held, names)
        for name in held if self._pairwise.multiplies else ():
            kernel = sides[name].kernel
            if kernel.blind:
                warn(
                    f"cross-validation holds out {name}, of which the kernels know nothing "
                    f"({', '.join(kernel.metric)}): held-out scores are offsets alone. Use "
                    "cv='edges' if all objects will be known; otherwise add a kernel of features"
                )

    @property
    def alphas_(self) -> Array:
        """The grid of alphas, ascending, shape (n_alphas,)."""
        return self.cv_results_["alpha"]
