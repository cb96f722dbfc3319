"""``ConditionalRankRLS``: rank objects conditioned on another object, known or new."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from rankrls import _resources
from rankrls._calls import all_or_nothing
from rankrls.core.relations.problem import RelationModel
from rankrls.estimators.conditional_base import ConditionalRanker
from rankrls.estimators.relation_inputs import check_alpha_pairs

__all__ = ["ConditionalPath", "ConditionalRankRLS", "conditional_path"]

Array = NDArray[Any]


class ConditionalRankRLS(ConditionalRanker):
    """Learn rankings of objects conditioned on another object, from a relation between them.

    The label Y_ij says how much object j is preferred given object i: how well document j
    matches query i, how strongly drug i binds target j. The score f(x, z) of two objects, known or
    new, is learned from their features. It minimises

        Σ_i Σ_j (y_ij − f(x_i, z_j) − c_i)² + alpha ‖f‖²

    over the observed pairs, in the space of the kernel k(x, x') g(z, z'). The ranking loss gives
    every conditioning object i a free offset c_i, so that only score differences within its list
    matter. Regression has c_i = 0. ``fit_offsets`` adds further offsets.

    Parameters
    ----------
    alpha : float or tuple of float, default=1.0
        Regularisation strength, > 0; a pair (row, column) for ``pairwise="two-step"``. It may be 0
        if the number of iterations regularises: with early stopping or ``solver="cg"``.
    kernel : str, callable or list of these, default="linear"
        Kernel of the row objects: any name of scikit-learn's `pairwise_kernels`, a function of two
        rows, or "precomputed" (X is the kernel matrix, or a list of several). "identity", "profile"
        (similar observed labels) and "constant" do not use features. A list of kernels is summed,
        each divided by its mean value k(x, x) and multiplied by its weight.
    object_kernel : str, callable or list of these, optional
        Kernel of the column objects. None: ``kernel`` with the same parameters.
    gamma, degree, coef0 : float
        Parameters of the kernels that have them (``gamma=None``: 1/n_features, and 1 for chi2).
    kernel_params, object_kernel_params : dict or list of dict, optional
        Further parameters of ``kernel`` and of ``object_kernel``, or of each of several kernels.
    kernel_weights, object_kernel_weights : array-like of shape (n_kernels,), optional
        Weights of several kernels, ≥ 0. None: equal weights that sum to one.
        `ConditionalRankRLSCV` chooses them by cross-validation.
    pairwise : {"kronecker", "cartesian", "additive", "polynomial", "mlpk", "ranking", \
"pairs", "two-step"}, default="kronecker"
        The kernel of pairs, computed from k and g (see Notes). "two-step", which is a regression
        over the columns followed by one over the rows, needs a complete Y. "mlpk" and "ranking"
        need objects of one kind.
    relation : {None, "symmetric", "reciprocal"}, default=None
        Known symmetry between objects of one kind: f(x, z) = f(z, x), or f(x, z) = −f(z, x).
        A dense Y must have it. Entries of a sparse Y are separate observations.
    loss : {"ranking", "regression", "squared_hinge"}, default="ranking"
        "squared_hinge" is Σ max(0, 1 − y f)², a support vector machine for labels −1 and 1.
    condition_on : {"rows", "columns"}, default="rows"
        "rows": each row of Y ranks the columns. "columns": each column of Y ranks the rows.
    fit_offsets : bool or {"global", "rows", "columns", "both"}, default=False
        Offsets of the labels that are not regularised: one for all pairs (True, "global"), one for
        each row of Y, for each column, or both. A new object has the mean offset. The ranking loss
        already has those of the conditioning objects. Not available with a ``relation``.
    solver : {"auto", "closed", "primal", "dual", "cg"}, default="auto"
        "closed" decomposes both kernels; every pair of the objects with labels must be observed
        equally often. "primal" factorises a system over products of features (linear kernels), or
        over objects ("additive" and "ranking"), "dual" one over the observed pairs. "cg" iterates.
        "auto" is the first that applies, "dual" up to 2000 observed pairs.
    max_iter : int, default=200
        Maximum number of iterations of "cg".
    tol : float, default=1e-6
        Relative accuracy of the scores of "cg"; a `ConvergenceWarning` if it is not reached.
    early_stopping : bool, default=False
        Stop "cg" when the pairwise error of held-out edges (or of ``eval_set``, see `fit`) has not
        improved for ``n_iter_no_change`` iterations, and keep the best model.
    validation_fraction : float, default=0.1
        Approximate fraction of the pairs to hold out for early stopping.
    n_iter_no_change : int, default=10
        Number of iterations without improvement after which early stopping ends training.
    random_state : int, RandomState instance or None
        Controls the choice of held-out edges.
    verbose : int, default=0
        1: print progress to stderr.
    n_jobs : int, optional
        Passed on to `pairwise_kernels`.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (p, g)
        The coefficients A of f(x, z) = k_xᵀ A g_z (see Notes), with the kernel values k_x of x with
        the row objects, and g_z of z with the column objects.
    coef_ : ndarray of shape (d, e)
        The weights W of f(x, z) = xᵀ W z, for linear kernels with pairwise "kronecker" or
        "two-step".
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Number of iterations; 1 for the direct solvers.
    n_edges_ : int
        Number of observed labels.
    offset_ : float
        The offset added to all scores (``fit_offsets``).
    row_offsets_, column_offsets_ : ndarray of shape (p,) and (g,)
        The offsets added for known row and column objects, with mean zero.
    best_iteration_, validation_curve_, validation_iterations_
        The iteration selected by early stopping, the validation errors, and their iterations.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X has names
    object_feature_names_in_ : ndarray of str, if Z has names

    See Also
    --------
    ConditionalRankRLSCV : Chooses alpha by exact cross-validation.
    rankrls.metrics.conditional_scores : Metrics for each conditioning object.

    Notes
    -----
    Pairwise kernels, and the functions that they learn:

    ==============  ====================================================  =========================
    pairwise        kernel between (x, z) and (x', z')                    f(x, z)
    ==============  ====================================================  =========================
    "kronecker"     k(x, x') g(z, z')                                     k_xᵀ A g_z
    "cartesian"     k(x, x') [z = z'] + [x = x'] g(z, z')                 k_xᵀ A[:, z] + A[x] g_z
    "additive"      k(x, x') + g(z, z')                                   h₁(x) + h₂(z)
    "polynomial"    (k(x, x') + g(z, z'))²                                all three of these
    "ranking"       k(x, x') − k(x, z') − k(z, x') + k(z, z')             h(x) − h(z)
    "mlpk"          (k(x, x') − k(x, z') − k(z, x') + k(z, z'))²          (k_x − k_z)ᵀ A (k_x − k_z)
    "pairs"         Σ_t w_t k_t(x, x') g_t(z, z')                         Σ_t w_t k_txᵀ A g_tz
    "two-step"      as "kronecker", A = (K + α₁I)⁻¹ Y (G + α₂I)⁻¹          k_xᵀ A g_z
    ==============  ====================================================  =========================

    "identity", "profile" and offsets of rows and columns identify objects by their features (or
    kernel values), and objects with equal features by the index of a data frame. The profile of an
    object is its row (column) of labels minus the offsets of the model, with zeros for unobserved
    labels, and the kernel is exp(−gamma ‖difference‖²/mean ‖profile‖²), with gamma = 1 unless set
    in ``kernel_params``. Profiles never contain held-out labels. Reciprocal relations must be
    centred at zero: subtract ½ from probabilities.

    References
    ----------
    Pahikkala, Airola, Stock, De Baets, Waegeman, *Efficient regularized least-squares algorithms
    for conditional ranking on relational data*, Machine Learning 93 (2013).

    Viljanen, Airola, Pahikkala, *Generalized vec trick for fast learning of pairwise kernel
    models*, Machine Learning 111 (2022).

    Pahikkala, Stock, Airola, Aittokallio, De Baets, Waegeman, *A two-step learning approach for
    solving full and almost full cold start problems in dyadic prediction*, ECML PKDD (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import ConditionalRankRLS
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])              # three users
    >>> Z = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])  # four items
    >>> Y = np.array([[3, 0, 3, np.nan], [0, 3, 3, 0], [np.nan, 3, 6, 6]])  # ratings
    >>> ranker = ConditionalRankRLS(alpha=0.01).fit(X, Y, Z)
    >>> ranker.predict(np.array([[2.0, 1.0]]), Z).argsort()[0, ::-1]    # items for a new user
    array([3, 2, 0, 1])
    """

    _choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        **ConditionalRanker._choices,
        "loss": ("ranking", "regression", "squared_hinge"),
        "early_stopping": (False, True),
    }

    def __init__(
        self,
        alpha: Any = 1.0,
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
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
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
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @all_or_nothing
    def fit(
        self, X: Any, Y: Any, Z: Any = None, *, eval_set: Any = None, callback: Any = None
    ) -> ConditionalRankRLS:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p, d)
            The objects of Y's rows; their kernel matrix (p, p) if ``kernel="precomputed"``.
        Y : array-like, data frame or sparse matrix of shape (p, g)
            Labels; higher is preferred, and NaN marks unobserved pairs. The stored entries of a
            sparse matrix are observed, including explicit zeros. Repeated entries of a COO matrix
            are separate observations.
        Z : array-like, sparse matrix or data frame of shape (g, e), optional
            The objects of Y's columns. None: the same objects as X.
        eval_set : tuple (X_val, Y_val) or (X_val, Y_val, Z_val), optional
            Objects and labels whose ranking decides when early stopping ends, instead of held-out
            edges. The objects may be known or new on either side; None stands for those of
            ``fit``. All labels of Y are used for training.
        callback : function, optional
            Called after every iteration of solver "cg" with an `Iteration` (n_iter, residual,
            error, best_error, best_iteration). Training stops when it returns a true value.

        Returns
        -------
        ConditionalRankRLS
            The fitted estimator.

        Notes
        -----
        Names of rows and columns of pandas data frames align Y with X and Z, and the columns of a
        kernel matrix with its rows. Different names are an error. A `RangeIndex` has no names.
        """
        alphas = self._check_alpha(self.alpha)
        self._fit_relation(self._read(X, Y, Z), alphas, callback=callback, eval_set=eval_set)
        return self


@dataclass(frozen=True, repr=False)
class ConditionalPath:
    """Models for a grid of alphas.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    dual_coef : ndarray of shape (n_alphas, p, g)
        Made when it is asked for.
    solver : str
        The solver that was used.
    """

    alphas: Array
    solver: str
    _estimator: ConditionalRankRLS
    _model: RelationModel

    @cached_property
    def dual_coef(self) -> Array:
        """A of f(x, z) = k_xᵀ A g_z for every alpha."""
        ranker = self._estimator
        tables = ranker._oriented(self._model.tables)
        return ranker._dual(tables) if self._model.linear else tables

    def __repr__(self) -> str:
        low, high = self.alphas.min(), self.alphas.max()
        return (
            f"ConditionalPath(n_alphas={len(self.alphas)}, alphas={low:g}…{high:g}, "
            f"solver={self.solver!r})"
        )

    def predict(self, X: Any, Z: Any = None) -> Array:
        """Scores for every alpha, shape (n_alphas, p', g'); arguments as for the estimator."""
        ranker = self._estimator
        new = ranker._read_new(X, Z)
        tables = ranker._oriented(self._model.tables)
        offsets: list[Any] = self._model.offsets or [None] * len(tables)
        if self._model.offsets is not None and ranker.condition_on == "columns":
            offsets = [fitted.T for fitted in offsets]
        shape = (len(tables), *(objects.shape[0] for objects in new))
        _resources.require("predict", *shape, advice="predict for fewer objects at a time")
        return np.stack(
            [
                ranker._scores(*new, table, fitted, same=Z is None)
                for table, fitted in zip(tables, offsets, strict=True)
            ]
        )


def conditional_path(
    estimator: ConditionalRankRLS, X: Any, Y: Any, Z: Any, alphas: Array
) -> ConditionalPath:
    """Fit for all alphas > 0; two-step has them on both sides."""
    if estimator.early_stopping:
        raise ValueError("early_stopping chooses an iteration for one alpha: there is no path")
    estimator._require_squared_loss("a path of alphas")
    ranker = clone(estimator)
    two_step = ranker.pairwise == "two-step"
    grid = check_alpha_pairs("alphas", alphas) if two_step else alphas
    model = ranker._fit_relation(ranker._read(X, Y, Z), grid)
    return ConditionalPath(alphas, model.solver, ranker, model)
