"""Plot of the errors by iteration of an early-stopped model."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import check_finite_array, check_integer, check_length
from rankrls.plotting._display import BLUE, GREY, ORANGE, Display

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class EarlyStoppingDisplay(Display):
    """Validation error by iteration, with the selected iteration marked.

    Use `from_estimator` or `from_predictions` to create it.

    Parameters
    ----------
    iterations, validation_error : ndarray of shape (n_checks,)
        Errors of the chosen alpha; NaN if not computed.
    best_iteration : int
    training_error : tuple of two ndarrays, optional
        Iterations, and errors on the training rows.
    others : ndarray of shape (n_checks, n_others), optional
        Validation errors of other alphas.
    alpha : float, optional
        The chosen alpha.
    error_name : str, default="pairwise error"
    estimator_name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    validation_line_, training_line_, best_point_ : Line2D (or None)

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.plotting import EarlyStoppingDisplay
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> ranker = RankRLS(alpha=0, early_stopping=True, random_state=0).fit(X, y, qid=qid)
    >>> EarlyStoppingDisplay.from_estimator(ranker)  # doctest: +SKIP
    """

    iterations: Array
    validation_error: Array
    _: KW_ONLY
    best_iteration: int
    training_error: tuple[Array, Array] | None = None
    others: Array | None = None
    alpha: float | None = None
    error_name: str = "pairwise error"
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        name: str | None = None,
        ax: Any = None,
        plot_options: dict[str, Any] | None = None,
    ) -> EarlyStoppingDisplay:
        """Plot the validation curve of an estimator fitted with ``early_stopping=True``.

        Parameters
        ----------
        estimator : fitted RankRLS, RankRLSCV or ConditionalRankRLS
        name : str, optional
            Title; by default the class name of the estimator.
        ax : matplotlib Axes, optional
        plot_options : dict, optional
            Additional options of `plot`.
        """
        if not hasattr(estimator, "validation_curve_"):
            raise ValueError(
                f"this {type(estimator).__name__} has no validation_curve_; fit it with "
                "early_stopping=True"
            )
        curve = np.asarray(estimator.validation_curve_)
        alpha, others = getattr(estimator, "alpha_", getattr(estimator, "alpha", None)), None
        if curve.ndim == 2:
            chosen = np.flatnonzero(estimator.cv_results_["alpha"] == estimator.alpha_)
            curve, others = curve[:, chosen[0]], np.delete(curve, chosen[0], axis=1)
        scoring = getattr(estimator, "scoring", "pairwise_accuracy")
        error_name = f"1 − {scoring.replace('_', ' ') if isinstance(scoring, str) else 'score'}"
        if scoring in ("pairwise_accuracy", "concordance_index"):
            error_name = "pairwise error"
        display = cls(
            np.asarray(estimator.validation_iterations_),
            curve,
            best_iteration=int(estimator.best_iteration_),
            others=others,
            alpha=alpha,
            error_name=error_name,
            estimator_name=cls._name(estimator, name),
        )
        return display.plot(ax, **(plot_options or {}))

    @classmethod
    def from_predictions(
        cls,
        iterations: ArrayLike,
        validation_error: ArrayLike,
        *,
        best_iteration: int | None = None,
        training_error: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        plot_options: dict[str, Any] | None = None,
    ) -> EarlyStoppingDisplay:
        """Plot the given errors, for example those collected by a callback of ``fit``.

        Parameters
        ----------
        iterations, validation_error : array-like of shape (n_checks,)
        best_iteration : int, optional
            Iteration to mark; by default the first one with the smallest validation error.
        training_error : array-like of shape (n_checks,), optional
        name, ax, plot_options
            As for `from_estimator`.
        """
        x = check_finite_array("iterations", iterations, ndim=(1,))
        if not len(x):
            raise ValueError("iterations is empty")
        given = {"validation_error": validation_error, "training_error": training_error}
        errors = {}
        for which, values in given.items():
            if values is not None:
                errors[which] = check_finite_array(which, values, ndim=(1,))
                check_length(which, errors[which], len(x), of="iterations")
        error = errors["validation_error"]
        if best_iteration is None:
            best_iteration = int(x[np.argmin(error)])
        elif best_iteration not in x:
            raise ValueError(f"best_iteration={best_iteration} is not one of the iterations")
        training = (x, errors["training_error"]) if training_error is not None else None
        best = int(best_iteration)
        display = cls(x, error, best_iteration=best, training_error=training, estimator_name=name)
        return display.plot(ax, **(plot_options or {}))

    def plot(
        self,
        ax: Any = None,
        *,
        n_others: int = 30,
        validation_kw: dict[str, Any] | None = None,
        training_kw: dict[str, Any] | None = None,
    ) -> EarlyStoppingDisplay:
        """Draw the errors.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default a new figure is created.
        n_others : int, default=30
            Maximum number of other alphas to show, in grey.
        validation_kw, training_kw : dict, optional
            Options of ``Axes.plot``.
        """
        check_integer("n_others", n_others, least=0)
        ax = self._begin(ax, 6.4, 3.8)
        if self.others is not None and n_others and self.others.shape[1]:
            step = -(-self.others.shape[1] // n_others)
            grey = {"color": GREY, "linewidth": 0.7, "alpha": 0.7, "zorder": 1}
            for j, column in enumerate(self.others.T[::step]):
                label = "" if j else "other alphas"
                _plot_known(ax, self.iterations, column, {"label": label, **grey})
        label = "validation"
        if self.alpha is not None and self.others is not None:
            label = f"validation, alpha = {self.alpha:.4g}"
        line = {"color": BLUE, "linewidth": 1.8, "label": label} | (validation_kw or {})
        self.validation_line_ = _plot_known(ax, self.iterations, self.validation_error, line)
        self.training_line_ = None
        if self.training_error is not None:
            line = {"color": ORANGE, "linewidth": 1.8, "linestyle": "--", "label": "training"}
            self.training_line_ = _plot_known(ax, *self.training_error, line | (training_kw or {}))
        error = float(self.validation_error[self.iterations == self.best_iteration][0])
        label = f"iteration {self.best_iteration}: {error:.4f}"
        self.best_point_ = self._mark(ax, self.best_iteration, error, label, ":")
        ax.set(xlabel="iteration", ylabel=self.error_name, title=self.estimator_name or "")
        ax.xaxis.get_major_locator().set_params(integer=True)
        self._finish(ax, loc="best", framealpha=0.9, edgecolor="none")
        return self


def _plot_known(ax: Any, x: Array, values: Array, options: dict[str, Any]) -> Any:
    """Draw a line through the values that are not NaN, with markers if there are few."""
    known = ~np.isnan(values)
    marker = {"marker": "o", "markersize": 3} if known.sum() < 20 else {}
    (line,) = ax.plot(x[known], values[known], **marker | options)
    return line
