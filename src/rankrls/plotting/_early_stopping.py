"""Plot of the errors by iteration of an early-stopped model."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import check_finite_array, check_length
from rankrls.plotting._display import BLUE, GREY, ORANGE, Display

Array = NDArray[Any]

#: Maximum number of other alphas that are shown.
OTHERS = 30


@dataclass(eq=False, repr=False)
class EarlyStoppingDisplay(Display):
    """Validation error by iteration, with the selected iteration marked.

    Use `from_estimator` or `from_predictions` to create it.

    Attributes
    ----------
    iterations, validation_error : ndarray of shape (n_checks,)
        Errors of the chosen alpha; NaN if not computed.
    best_iteration, alpha : int, and float or None
        The chosen iteration and alpha.
    training_error : ndarray of shape (n_checks,), or None
    others : ndarray of shape (n_checks, n_others), or None
        Validation errors of other alphas.
    ax_, figure_ : matplotlib Axes and Figure
    validation_line_, training_line_, best_point_ : Line2D (or None)
    """

    iterations: Array
    validation_error: Array
    _: KW_ONLY
    best_iteration: int
    training_error: Array | None = None
    others: Array | None = None
    alpha: float | None = None
    error_name: str = "pairwise error"
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None
    ) -> EarlyStoppingDisplay:
        """Plot the validation curve of an estimator fitted with ``early_stopping=True``.

        Parameters
        ----------
        estimator : fitted RankRLS, RankRLSCV or ConditionalRankRLS
        name : str, optional
            Title; by default the class name of the estimator.
        ax : matplotlib Axes, optional
            Axes to draw on; by default a new figure is created.
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
        return cls(
            np.asarray(estimator.validation_iterations_),
            curve,
            best_iteration=int(estimator.best_iteration_),
            others=others,
            alpha=alpha,
            error_name=error_name,
            estimator_name=cls._name(estimator, name),
        ).plot(ax)

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
    ) -> EarlyStoppingDisplay:
        """Plot the given errors, for example those collected by a callback of ``fit``.

        Parameters
        ----------
        iterations, validation_error : array-like of shape (n_checks,)
        best_iteration : int, optional
            Iteration to mark; by default the first one with the smallest validation error.
        training_error : array-like of shape (n_checks,), optional
        name, ax
            As for `from_estimator`.
        """
        x = check_finite_array("iterations", iterations, ndim=(1,))
        if not len(x):
            raise ValueError("iterations is empty")
        errors: list[Any] = [validation_error, training_error]
        for i, which in enumerate(("validation_error", "training_error")):
            if errors[i] is not None:
                errors[i] = check_finite_array(which, errors[i], ndim=(1,))
                check_length(which, errors[i], len(x), of="iterations")
        best = int(x[np.argmin(errors[0])] if best_iteration is None else best_iteration)
        if best not in x:
            raise ValueError(f"best_iteration={best} is not one of the iterations")
        display = cls(
            x, errors[0], best_iteration=best, training_error=errors[1], estimator_name=name
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> EarlyStoppingDisplay:
        """Draw the errors on ``ax``, or on a new figure."""
        ax = self._begin(ax, 6.4, 3.8)
        label = "validation"
        if self.others is not None and self.others.shape[1]:
            label = f"validation, alpha = {self.alpha:.4g}"
            step = -(-self.others.shape[1] // OTHERS)
            grey = {"color": GREY, "linewidth": 0.7, "alpha": 0.7, "zorder": 1}
            for j, column in enumerate(self.others.T[::step]):
                self._line(ax, column, label="" if j else "other alphas", **grey)
        line = {"linewidth": 1.8, "label": label}
        self.validation_line_ = self._line(ax, self.validation_error, color=BLUE, **line)
        self.training_line_ = None
        if self.training_error is not None:
            line = {"linewidth": 1.8, "linestyle": "--", "label": "training"}
            self.training_line_ = self._line(ax, self.training_error, color=ORANGE, **line)
        error = float(self.validation_error[self.iterations == self.best_iteration][0])
        label = f"iteration {self.best_iteration}: {error:.4f}"
        self.best_point_ = self._mark(ax, self.best_iteration, error, label, ":")
        ax.set(xlabel="iteration", ylabel=self.error_name, title=self.estimator_name or "")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)
        ax.legend(loc="best", framealpha=0.9, edgecolor="none")
        return self

    def _line(self, ax: Any, values: Array, **options: Any) -> Any:
        """Draw a line through the values that are not NaN, with markers if there are few."""
        known = ~np.isnan(values)
        marker = {"marker": "o", "markersize": 3} if known.sum() < 20 else {}
        return ax.plot(self.iterations[known], values[known], **marker, **options)[0]
