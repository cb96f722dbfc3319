"""``RankSVM``: validates its arguments, calls `fit_hinge`, and stores the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls._calls import Progress, takes_queries, unchanged_on_error
from rankrls._validation import check_integer, check_option, check_positive
from rankrls.core.hinge.problem import HINGE_SOLVERS, fit_hinge
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import FittedFunction
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.ranker import BaseRanker, Preferences

__all__ = ["RankSVM"]

Array = NDArray[Any]

LOSSES = ("hinge", "squared_hinge")


class RankSVM(BaseRanker):
    """Ranking support vector machine: learn to rank with the hinge loss on pairs.

    Minimises, over linear functions f of the features or functions f of a kernel space,

        Σ_pairs c max(0, 1 − (f(x_h) − f(x_j))) + alpha ‖f‖²

    where row h is preferred to row j. Pairs are implied by scores y (any two rows of a query with
    different scores), given explicitly, or both. The parameters, arguments and attributes are those
    of `RankRLS` wherever they apply, so one can replace the other.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of L2 regularisation, > 0: a support vector machine with C = 1/(2 alpha) on the
        differences of all pairs. The C of SVMrank is n_queries/(2 alpha).
    kernel, gamma, degree, coef0, kernel_params
        As for `RankRLS`. The kernel must be positive semi-definite.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        "squared_hinge" squares the margin violations max(0, 1 − (f(x_h) − f(x_j))).
    query_weighting : {"pair", "size", "query"} or callable, default="pair"
        Weight of each pair of a query with n rows: c = 1 ("pair"), 1/n ("size"), or 1/(number of
        pairs of the query with different scores) ("query"). Functions as for `RankRLS`.
    solver : {"auto", "primal", "dual", "nystroem"}, default="auto"
        Representation of f: by linear functions of the features ("primal"), by kernel functions of
        all rows ("dual"), or by kernel functions of basis vectors ("nystroem", an approximation).
    basis : int or array of int, optional
        As for `RankRLS`.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-4
        Tolerance: the fit ends when the relative duality gap is at most this.
    random_state, verbose, n_jobs
        As for `RankRLS`.

    Attributes
    ----------
    coef_, dual_coef_, basis_indices_, solver_, n_iter_, n_pairs_, n_queries_, n_features_in_, \
feature_names_in_
        As for `RankRLS`; ``n_iter_`` is the maximum over outputs.
    objective_ : float or ndarray of shape (n_outputs,)
        Value of the objective at the solution.
    gap_ : float or ndarray of shape (n_outputs,)
        Relative duality gap: no function has an objective below ``(1 − gap_) objective_``.

    See Also
    --------
    RankRLS : Squared loss, with a closed form, exact cross-validation and uncertainties.
    rankrls.regularization_path : Fits a grid of alphas with warm starts.

    Notes
    -----
    The loss and its subgradient over all pairs take O(m log m) time and O(m) memory for m rows.
    L-BFGS minimises the hinge, then a smoothed hinge. An interior-point method finishes problems
    with weak regularisation, of up to 3000 features or 8000 kernel rows. If the gap, which includes
    rounding errors of the kernel matrix, stays above ``tol``, there is a `ConvergenceWarning`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankSVM
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]])
    >>> ranker = RankSVM(alpha=0.1).fit(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    >>> ranker.score(X, [0, 1, 2, 1, 2], qid=["a", "a", "a", "b", "b"])
    1.0
    >>> bool(ranker.gap_ <= 1e-4)
    True
    """

    alpha: float
    loss: str
    max_iter: int

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
        query_weighting: Any = "pair",
        solver: str = "auto",
        basis: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._set(locals())

    _model: FittedFunction

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
        X, y, qid, pairs, magnitude, pair_weight, sample_weight
            As for `RankRLS.fit`. Of the magnitudes only which pairs are ties (0) counts: the margin
            is always 1.
        """
        alphas = np.array([check_positive("alpha", self.alpha)])
        preferences = Preferences(y, qid, pairs, magnitude, pair_weight, sample_weight)
        with unchanged_on_error(self):
            self._fit_prepared(*self._prepare(X, preferences), alphas)
        return self

    def _fit_prepared(self, kernel: Kernel, X: Any, graph: PreferenceGraph, alphas: Array) -> None:
        """Fit for all ``alphas``; the fitted attributes are those of the first."""
        fit = fit_hinge(
            graph,
            kernel,
            X,
            alphas,
            query_weighting=self.query_weighting,
            squared=self.loss == "squared_hinge",
            tol=check_positive("tol", self.tol),
            max_iter=check_integer("max_iter", self.max_iter, least=1),
            solver=self.solver,
            basis=self.basis,
            random_state=check_random_state(self.random_state),
            progress=Progress(type(self).__name__, self.verbose),
            n_jobs=self.n_jobs,
        )
        history = History(n_iter=int(fit.n_iter[0].max()))
        self._store_fit(fit.model, graph, fit.n_pairs, fit.solver, history)
        for name, values in {"objective_": fit.objective, "gap_": fit.gap}.items():
            setattr(self, name, float(values[0, 0]) if self._flat else values[0])

    def _check_options(self) -> Kernel:
        check_option("loss", self.loss, LOSSES)
        Loss(query_weighting=self.query_weighting)
        check_option("solver", self.solver, HINGE_SOLVERS)
        return self._check_kernel()
