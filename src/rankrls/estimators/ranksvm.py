"""``RankSVM``: validates its arguments, asks `HingeProblem`, and stores the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._calls import Progress, explained, takes_queries, unchanged_on_error
from rankrls._validation import check_integer, check_option, check_positive
from rankrls.core.hinge.problem import (
    HINGE_SOLVERS,
    HingeFit,
    HingeModel,
    HingeOptions,
    HingeProblem,
)
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import QUERY_WEIGHTINGS
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.ranker import (
    NO_QID,
    Ranker,
    check_return_std,
)

__all__ = ["RankSVM"]

Array = NDArray[Any]

LOSSES = ("hinge", "squared_hinge")


class RankSVM(Ranker):
    """Learn to rank with the hinge loss on pairs: a support vector machine for ranking.

    Minimises, over functions f of a feature space or of a kernel's space,

        Σ_pairs c max(0, 1 − (f(x_h) − f(x_j))) + alpha ‖f‖²

    where row h is preferred to row j. Pairs come from scores y (any two rows of a query with
    different scores), are given, or both. It takes the place of `RankRLS` by its name: parameters,
    arguments and attributes are the same where they make sense.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation, > 0. It multiplies ‖f‖² and nothing is rescaled: a support vector machine
        with C = 1/(2 alpha) on the differences of all pairs. (There is no parameter C. From
        SVMrank's, which divides C by the number of queries, alpha = n_queries/(2 C).)
    kernel : str or callable, default="linear"
        Any name that scikit-learn's `pairwise_kernels` takes, a function of two rows, or
        "precomputed" (X is the kernel matrix). It must be positive semi-definite.
    gamma, degree, coef0 : float
        Parameters of the kernels that have them (``gamma=None``: 1/n_features, and 1 for chi2).
    kernel_params : dict, optional
        Further parameters of the kernel.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The latter squares the violations max(0, 1 − (f(x_h) − f(x_j))).
    query_weighting : {"pair", "size", "query"}, default="pair"
        A pair of a query with n rows counts c = 1, 1/n, or 1/(number of its pairs with different
        scores).
    solver : {"auto", "primal", "dual", "nystroem"}, default="auto"
        Where f is looked for: among linear functions of the features ("primal"), among
        combinations of kernel functions of all rows ("dual"), or of basis vectors ("nystroem", an
        approximation). The rule of "auto": a ``basis`` asks for "nystroem"; a kernel other than
        linear is solved in "dual" if two n_rows × n_rows matrices fit into half of the memory,
        else in "nystroem", with a warning; a linear one in "primal" if n_features <= n_rows, else
        in "dual", which then needs no n_rows × n_rows matrix.
    basis : int or array of int, optional
        Nyström basis vectors: how many to draw at random, or the row numbers. None with
        ``solver="nystroem"``: 1000, or all rows if there are fewer.
    max_iter : int, default=1000
        Most iterations.
    tol : float, default=1e-4
        Ends when the relative duality gap is at most this.
    random_state : int, RandomState instance or None
        For the random basis.
    verbose : int, default=0
        1: progress on stderr.
    n_jobs : int, optional
        Threads of `pairwise_kernels` and of sparse products; None: as many as BLAS may use, −1:
        all cores.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights, for the linear kernel.
    dual_coef_ : ndarray of shape (n_rows,), (n_rows, n_outputs), or the same over the basis
        Kernel coefficients, for solvers "dual" and "nystroem".
    basis_indices_ : ndarray of shape (n_basis,)
        Rows that are basis vectors, for solver "nystroem".
    objective_ : float or ndarray of shape (n_outputs,)
        The value that was reached.
    gap_ : float or ndarray of shape (n_outputs,)
        Relative duality gap: no function has an objective below ``(1 − gap_) objective_``.
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Iterations, the most of any output.
    n_pairs_ : int
        Pairs in the objective, added up over outputs.
    n_queries_ : int
        Different queries in the data, those without a pair included.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X has names

    See Also
    --------
    RankRLS : Squared error on the magnitudes; closed form, exact cross-validation, uncertainties.
    rankrls.regularization_path : A grid of alphas, each starting from the solution of the one
        before.

    Notes
    -----
    The loss and its subgradient over all pairs take O(m log m) time and O(m) memory for m rows,
    whatever the number of different scores; pairs are not materialised (except those of short
    queries, where that is faster). L-BFGS minimises the hinge, then a smoothed hinge (in up to 300
    dimensions, Newton's method does). An interior-point method finishes problems with weak
    regularisation, of up to 3000 features or 8000 kernel rows: it materialises the pairs near the
    margin, or all of them if they are few compared with the entries of the kernel matrix.

    The gap is that of the coefficients as they are stored, and includes rounding errors of the
    kernel matrix. If it stays above ``tol``, there is a `ConvergenceWarning`. With the linear
    kernel and features of very different scales, ``coef_`` is accurate, and ``dual_coef_`` has
    fewer digits.

    Not taken over from `RankRLS`: ``cost``, because the margin of every pair is 1, whatever the
    magnitude; ``ties``, because pairs with equal scores have no hinge loss; early
    stopping and its parameters, because alpha alone regularises; and what needs a posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankSVM
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]])
    >>> ranker = RankSVM(alpha=0.1).fit(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    >>> ranker.score(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    1.0
    >>> differences = ranker.predict(X[[1, 2, 4]]) - ranker.predict(X[[0, 1, 3]])
    >>> differences.round(2)  # every preferred row has a score higher by the margin
    array([1., 1., 1.])
    >>> bool(ranker.gap_ <= 1e-4)
    True
    """

    @explained(
        C="regularisation is called alpha: 1/(2 C) of a support vector machine on pairs, "
        "n_queries/(2 C) of SVMrank",
        alphas="rankrls.regularization_path fits a grid of alphas",
    )
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        kernel: Any = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        loss: str = "hinge",
        query_weighting: str = "pair",
        solver: str = "auto",
        basis: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.loss = loss
        self.query_weighting = query_weighting
        self.solver = solver
        self.basis = basis
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    _model: HingeModel

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
        sample_weight: ArrayLike | None = None,
    ) -> RankSVM:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            The kernel matrix of shape (n_rows, n_rows) if ``kernel="precomputed"``.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), or PreferenceGraph
            Scores, higher is preferred. May be None if pairs are given.
        qid : array-like of shape (n_rows,), optional
            Query of every row: any hashable labels, in any row order. Only rows of the same
            query are compared. None: one ranking over all rows. Sizes of consecutive queries
            can be given as ``group`` instead, as in LightGBM and XGBoost.
        pairs : array-like of shape (n_pairs, 2), optional
            Row numbers (preferred, other).
        magnitude : array-like of shape (n_pairs,), optional
            Accepted as by `RankRLS`; the margin is 1 whatever it is.
        pair_weight : array-like of shape (n_pairs,), optional
            How much each given pair counts, >= 0.
        sample_weight : array-like of shape (n_rows,), optional
            A pair from y counts the product of its rows' weights, so that an integer weight
            equals repeating the row.

        Returns
        -------
        RankSVM
            The fitted estimator.
        """
        alphas = np.array([check_positive("alpha", self.alpha)])
        preferences = {
            "qid": qid,
            "pairs": pairs,
            "magnitude": magnitude,
            "pair_weight": pair_weight,
            "sample_weight": sample_weight,
        }
        with unchanged_on_error(self):
            self._fit_prepared(*self._prepare(X, y, preferences), alphas)
        return self

    def _fit_prepared(
        self, kernel: Kernel, X: Any, graph: PreferenceGraph, alphas: Array
    ) -> HingeFit:
        """Fit for all ``alphas``; the fitted attributes are those of the first."""
        problem = HingeProblem(
            graph,
            kernel,
            X,
            options=self._options(),
            solver=self.solver,
            basis=self.basis,
            random_state=check_random_state(self.random_state),
            progress=Progress(type(self).__name__, self.verbose),
            n_jobs=self.n_jobs,
        )
        fit = problem.solve(alphas)
        self._model = fit.model
        self.solver_ = fit.solver
        self.n_pairs_ = fit.n_pairs
        self.n_iter_ = int(fit.n_iter[0].max())
        self.n_queries_ = graph.n_queries
        self._flat = graph.flat
        self._with_qid = graph.has_qid
        for name, values in {"objective_": fit.objective, "gap_": fit.gap}.items():
            setattr(self, name, float(values[0, 0]) if self._flat else values[0])
        self._store_coefficients()
        return fit

    def _options(self) -> HingeOptions:
        return HingeOptions(
            query_weighting=self.query_weighting,
            squared=self.loss == "squared_hinge",
            tol=check_positive("tol", self.tol),
            max_iter=check_integer("max_iter", self.max_iter, least=1),
        )

    def _check_options(self) -> Kernel:
        check_option("loss", self.loss, LOSSES)
        check_option("query_weighting", self.query_weighting, QUERY_WEIGHTINGS)
        check_option("solver", self.solver, HINGE_SOLVERS)
        self._options()
        return self._check_kernel()

    @property
    def _keeps_columns(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    @explained(qid=NO_QID)
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Kernel values with all training rows, (n, n_rows), if the kernel is precomputed.
        return_std : bool, default=False
            Must be False: the hinge loss has no posterior. `RankRLS` has one.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
        """
        if check_return_std(return_std):
            raise ValueError(
                "RankSVM has no standard deviations: the hinge loss is not the logarithm of a "
                "density; RankRLS has them"
            )
        return super().predict(X)
