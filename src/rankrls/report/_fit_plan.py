"""Plan of what to fit and over which alphas, from the given estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker, RankRLS, RankRLSCV
from rankrls._validation import check_finite_array, check_positive, show
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.estimators.choosing import DEFAULT_ALPHAS
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import exact_problem
from rankrls.report._data import Rankings

__all__ = ["FitPlan", "SharedProblem", "fit", "make_plan"]

Array = NDArray[Any]

#: Sparse data with more rows and columns than this are fitted by conjugate gradients (as with
#: solver="auto"), for which there are no exact held-out predictions.
MAX_SPARSE = 5000


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class FitPlan:
    """How to fit the model and compute held-out predictions.

    Attributes
    ----------
    estimator : estimator, unfitted
        The given estimator, with a fixed ``random_state`` if it had none.
    base : RankRLS or None
        The same with one alpha; None for other estimators, which can only be refitted.
    grid : ndarray or None
        Alphas of the path.
    fixed : float or None
        The alpha, if it is not chosen from a grid.
    exact : bool
        Whether exact held-out predictions are available without refitting.
    own_cv : tuple of str
        Values of ``cv`` for which alpha is chosen from the same held-out predictions as the errors;
        for other values the `RankRLSCV` chooses alpha itself.
    tell : callable
        Called with a line of text about the progress.
    """

    estimator: Any
    base: RankRLS | None
    grid: Array | None
    fixed: float | None
    exact: bool
    own_cv: tuple[str, ...]
    tell: Callable[[str], object] = _silent

    @property
    def grows(self) -> bool:
        """Whether a `RankRLSCV` may extend the grid beyond its ends."""
        return isinstance(self.estimator, RankRLSCV) and self.estimator.alphas is None

    def chooses_here(self, *names: str) -> bool:
        """Whether ``cv`` is one of the names, so that alpha is chosen here."""
        return any(name in self.own_cv for name in names)

    @property
    def precomputed(self) -> bool:
        """Whether X is a kernel matrix."""
        return getattr(self.estimator, "kernel", None) == "precomputed"

    def with_alpha(self, alpha: float) -> Any:
        """Return an unfitted estimator with this alpha; without a path, the given estimator."""
        if self.base is None:
            return clone(self.estimator)
        return clone(self.base).set_params(alpha=alpha)


def make_plan(estimator: Any, alphas: ArrayLike | None, X: Any) -> FitPlan:
    """Check ``estimator`` and ``alphas``, and make the plan."""
    if alphas is not None:
        alphas = np.unique(check_finite_array("alphas", np.atleast_1d(alphas), ndim=(1,)))
        if not alphas.size:
            raise ValueError("alphas is empty; give at least one number > 0")
        check_positive("alphas", float(alphas[0]))
    estimator = RankRLSCV() if estimator is None else estimator
    if isinstance(estimator, type) or not (
        hasattr(estimator, "fit") and hasattr(estimator, "predict")
    ):
        raise ValueError(
            f"estimator must have fit and predict, such as RankRLSCV(); got {show(estimator)}"
        )
    estimator = clone(estimator)
    if not isinstance(estimator, RankRLS | RankRLSCV) or estimator.early_stopping:
        if alphas is not None:
            raise ValueError(
                "alphas can be used only with RankRLS and RankRLSCV (without early stopping); the "
                f"estimator is a {type(estimator).__name__}, so leave alphas out"
            )
        if isinstance(estimator, AutoRanker) and estimator.random_state is None:
            estimator.set_params(random_state=0)
        return FitPlan(estimator, None, None, None, exact=False, own_cv=())
    if estimator.random_state is None:
        estimator.set_params(random_state=0)
    fixed = None
    own_cv: tuple[str, ...]
    if isinstance(estimator, RankRLSCV):
        if alphas is not None:
            estimator.set_params(alphas=alphas)
        given = DEFAULT_ALPHAS if estimator.alphas is None else estimator.alphas
        grid = np.unique(check_finite_array("alphas", np.atleast_1d(given), ndim=(1,)))
        scored_here = isinstance(estimator.scoring, str) and (
            estimator.scoring == "pairwise_accuracy"
        )
        own_cv = (estimator.cv,) if scored_here and isinstance(estimator.cv, str) else ()
    elif alphas is not None:
        grid, own_cv = alphas, ("auto",)
    else:
        fixed = check_positive("alpha", estimator.alpha)
        grid, own_cv = np.unique([*DEFAULT_ALPHAS, fixed]), ("auto",)
    if not grid.size:
        raise ValueError("alphas is empty; give at least one number > 0")
    check_positive("alphas", float(grid[0]))
    names = RankRLS().get_params()
    common = {name: value for name, value in estimator.get_params().items() if name in names}
    base = RankRLS(**{**common, "alpha": float(grid[0]) if fixed is None else fixed})
    large = estimator.solver == "auto" and sparse.issparse(X) and min(X.shape) > MAX_SPARSE
    exact = estimator.solver != "cg" and not large
    return FitPlan(estimator, base, grid, fixed, exact=exact, own_cv=own_cv)


class SharedProblem:
    """The problem of the training data, created on first use and decomposed only once.

    Parameters
    ----------
    plan : FitPlan with a ``base``
    data : Rankings
    """

    def __init__(self, plan: FitPlan, data: Rankings) -> None:
        self._plan, self._data = plan, data
        self._made: RidgeProblem | None = None

    def get(self) -> RidgeProblem:
        """Return the problem; raise a ``MemoryError`` if it does not fit into memory."""
        if self._made is None:
            base, data = self._plan.base, self._data
            assert base is not None
            preferences = Preferences(data.y, **data.fit_options())
            _, self._made, _ = exact_problem(base, data.X, preferences)
        return self._made

    def forget(self) -> None:
        """Release the memory."""
        self._made = None


def fit(estimator: Any, X: Any, y: Array, options: dict[str, Array]) -> Any:
    """Fit with qid and sample_weight, if given, which a Pipeline passes to its last step."""
    if isinstance(estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
        last = estimator.steps[-1][0]
        options = {f"{last}__{name}": values for name, values in options.items()}
    return estimator.fit(X, y, **options)


def predict(model: Any, X: Any, qid: Array | None) -> Array:
    """Predict scores of rows, shape (n_rows,), passing qid to an `AutoRanker`."""
    options = {"qid": qid} if isinstance(model, AutoRanker) else {}
    return np.asarray(model.predict(X, **options), dtype=np.float64).reshape(X.shape[0])
