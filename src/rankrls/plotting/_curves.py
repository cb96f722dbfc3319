"""Plots of scores against alpha, and of errors against the iterations of early stopping."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries
from rankrls._validation import check_finite_array, check_length
from rankrls.estimators import regularization_path
from rankrls.estimators.cv import as_rankrls
from rankrls.metrics.metric_names import COMPARED_METRICS, parse_metric
from rankrls.plotting._display import BLACK, BLUE, GREY, ORANGE, Display

Array = NDArray[Any]

#: Lines of the largest coefficients, which differ in print and for colour-blind readers.
STYLES = [
    {"color": color, "linestyle": dashes}
    for color, dashes in zip(
        (BLUE, ORANGE, "#009E73", "#CC79A7", BLACK, "#56B4E9"),
        ("-", "--", "-.", ":", "-", "--"),
        strict=True,
    )
]


def _results(estimator: Any) -> dict[str, Any]:
    """``cv_results_``, those of the chosen gamma if there are several; empty without them."""
    results = getattr(estimator, "cv_results_", None)
    if not isinstance(results, dict) or "gamma" not in results:
        return results if isinstance(results, dict) else {}
    chosen = np.asarray(results["gamma"]) == estimator.gamma_
    return {name: np.asarray(values)[chosen] for name, values in results.items()}


@dataclass(eq=False, repr=False)
class RegularizationPathDisplay(Display):
    """Cross-validated score with its standard error, and coefficients, plotted against alpha.

    Use `from_estimator` or `from_predictions` to create it. Of several gammas, the chosen one is
    shown. Two alphas are compared on the same queries, so their difference can be significant
    although the bands overlap; `rankrls.metrics.compare_rankers` tests it.

    Attributes
    ----------
    alphas, mean_score : ndarray of shape (n_alphas,)
    std_score, n_scores : ndarray of shape (n_alphas,), or None
        Standard deviation and number of the scores of queries or folds.
    coef : ndarray of shape (n_alphas, n_features), or None
    best_alpha : float or None
        The chosen alpha. If None, the largest alpha with the best score is marked.
    ax_, axes_, figure_ : matplotlib Axes of the scores, all Axes, Figure
    score_line_, spread_ : Line2D, and PolyCollection (the band) or None
    coef_lines_ : list of Line2D
        The six largest coefficients at the chosen alpha, in the order of the legend.
    """

    alphas: Array
    mean_score: Array
    _: KW_ONLY
    std_score: Array | None = None
    n_scores: Any = None
    coef: Array | None = None
    feature_names: list[str] | None = None
    best_alpha: float | None = None
    score_name: str = "score"
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        name: str | None = None,
        ax: Any = None,
        **fit_params: Any,
    ) -> RegularizationPathDisplay:
        """Plot the results of a fitted `RankRLSCV` (or, without X, of a `ConditionalRankRLSCV`).

        Parameters
        ----------
        estimator : fitted RankRLSCV
        X, y : as for ``fit``, optional
            If given, the coefficients of a linear kernel for each alpha are shown, too.
        name : str, optional
            Title; by default the class name of the estimator.
        ax : matplotlib Axes or two of them, optional
            One for the scores only, or two for scores and coefficients; by default a new figure.
        **fit_params
            qid, sample_weight and pairs, as for ``fit``.
        """
        results = _results(estimator)
        if np.ndim(results.get("alpha", [[]])) != 1:
            raise ValueError(
                "from_estimator needs a fitted RankRLSCV, with one alpha in each of cv_results_; "
                f"got a {type(estimator).__name__}. from_predictions takes predictions of "
                "leave_query_out_predict with alphas"
            )
        coef = names = None
        if X is not None:
            kernel, linear = getattr(estimator, "kernel", None), hasattr(estimator, "coef_")
            if not linear or estimator.early_stopping or estimator.coef_.ndim > 1:
                raise ValueError(
                    f"a model with kernel={kernel!r} has no feature coefficients by alpha, nor has "
                    "an early-stopped one (see EarlyStoppingDisplay) or one of several outputs; "
                    "leave out X and y to show the scores only"
                )
            fit_params["alphas"] = results["alpha"]
            coef = regularization_path(as_rankrls(estimator), X, y, **fit_params).coef
            names = getattr(estimator, "feature_names_in_", None)
        scoring = getattr(estimator, "scoring", None)
        return cls(
            results["alpha"],
            results["mean_score"],
            std_score=results.get("std_score"),
            n_scores=results.get("n_scores"),
            coef=coef,
            feature_names=None if names is None else list(names),
            best_alpha=estimator.alpha_,
            score_name=scoring.replace("_", " ") if isinstance(scoring, str) else "score",
            estimator_name=cls._name(estimator, name),
        ).plot(ax)

    @classmethod
    @takes_queries
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        alphas: ArrayLike,
        qid: Any = None,
        scoring: str = "pairwise_accuracy",
        name: str | None = None,
        ax: Any = None,
    ) -> RegularizationPathDisplay:
        """Score held-out predictions for each alpha and plot the scores.

        Parameters
        ----------
        y_true, qid : array-like of shape (n_rows,)
            Labels and queries. The standard error is over queries; without qid it is not shown.
        y_score : array-like of shape (n_alphas, n_rows)
            Predictions for each alpha, such as those of
            `rankrls.model_selection.leave_query_out_predict` with ``alphas``.
        alphas : array-like of shape (n_alphas,)
        scoring : str, default="pairwise_accuracy"
            Name of a metric that is defined for single queries, such as "ndcg@10".
        name, ax
            Title, and as for `from_estimator`.
        """
        grid = check_finite_array("alphas", alphas, ndim=(1,))
        scores = check_finite_array("y_score", y_score, ndim=(2,))
        check_length("y_score", scores, len(grid), of="alphas")
        metric = parse_metric(scoring, "scoring", allowed=COMPARED_METRICS)
        by_query = np.array([metric(y_true, row, qid=qid, average=None) for row in scores])
        known = by_query[:, ~np.isnan(by_query[0])]
        return cls(
            grid,
            known.mean(axis=1),
            std_score=known.std(axis=1) if known.shape[1] > 1 else None,
            n_scores=known.shape[1],
            score_name=scoring.replace("_", " "),
            estimator_name=name,
        ).plot(ax)

    @property
    def best_index(self) -> int:
        """Index of the chosen alpha."""
        if self.best_alpha is not None:
            return int(np.argmin(np.abs(self.alphas - self.best_alpha)))
        best = np.flatnonzero(self.mean_score == self.mean_score.max())
        return int(best[np.argmax(self.alphas[best])])

    def plot(self, ax: Any = None) -> RegularizationPathDisplay:
        """Draw the scores, and the coefficients if there are any, on ``ax`` or a new figure."""
        beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if ax is None else {}
        rows, height = (1, 3.2) if self.coef is None else (2, 5.6)
        self._begin(ax, 7.6, height, rows)
        if len(self.axes_) > 2 or (len(self.axes_) == 2 and self.coef is None):
            raise ValueError(
                "ax must be one Axes for the scores, or two for scores and coefficients (from X, y)"
            )
        order = np.argsort(self.alphas)
        self._plot_scores(self.ax_, order)
        self.coef_lines_: list[Any] = []
        if len(self.axes_) == 2:
            self._plot_coefficients(self.axes_[1], order)
        positive = self.alphas[self.alphas > 0]
        for one in self.axes_:
            if len(positive) == len(self.alphas):
                one.set_xscale("log")
            elif len(positive):  # early stopping allows alpha = 0, at the left end
                one.set_xscale("symlog", linthresh=float(positive.min()))
            one.legend(frameon=False, fontsize="small", **beside)
            one.grid(alpha=0.25)
        self.axes_[-1].set_xlabel("alpha (regularisation)")
        if self.estimator_name:
            self.ax_.set_title(self.estimator_name)
        return self

    def _plot_scores(self, ax: Any, order: Array) -> None:
        x, mean = self.alphas[order], self.mean_score[order]
        line = {"color": BLUE, "marker": "o", "markersize": 3.5, "label": "mean"}
        (self.score_line_,) = ax.plot(x, mean, **line)
        self.spread_ = None
        if self.std_score is not None:
            width = (self.std_score / np.sqrt(self.n_scores))[order]
            band = {"color": BLUE, "alpha": 0.2, "lw": 0, "label": "± standard error"}
            self.spread_ = ax.fill_between(x, mean - width, mean + width, **band)
        best = self.best_index
        label = f"alpha = {self.alphas[best]:.4g}: {self.mean_score[best]:.3f}"
        self._mark(ax, self.alphas[best], self.mean_score[best], label, "--")
        ax.set_ylabel(self.score_name)

    def _plot_coefficients(self, ax: Any, order: Array) -> None:
        assert self.coef is not None
        x, coef = self.alphas[order], self.coef[order]
        at_best = self.coef[self.best_index]
        largest = np.argsort(-np.abs(at_best), kind="stable")[: len(STYLES)]
        named = largest[np.argsort(-at_best[largest], kind="stable")]  # from top to bottom
        for j, style in zip(named, STYLES, strict=False):
            label = f"feature {j}" if self.feature_names is None else str(self.feature_names[j])
            self.coef_lines_ += ax.plot(x, coef[:, j], linewidth=1.6, label=label, **style)
        rest = np.setdiff1d(np.arange(coef.shape[1]), named)
        if len(rest):
            lines = ax.plot(x, coef[:, rest], color=GREY, linewidth=0.6, alpha=0.7, zorder=1)
            lines[0].set_label(f"{len(rest)} more")
        ax.axhline(0.0, color=BLACK, linewidth=0.8)
        ax.axvline(self.alphas[self.best_index], color=BLACK, linestyle="--", linewidth=1.0)
        ax.set_ylabel("coefficient")


@dataclass(eq=False, repr=False)
class EarlyStoppingDisplay(Display):
    """Validation error by iteration, with the selected iteration marked.

    Use `from_estimator` or `from_predictions` to create it.

    Attributes
    ----------
    iterations, validation_error : ndarray of shape (n_checks,)
        Errors of the chosen alpha; NaN if not computed.
    best_iteration : int
    training_error : ndarray of shape (n_checks,), or None
    ax_, figure_ : matplotlib Axes and Figure
    validation_line_, training_line_, best_point_ : Line2D (or None)
    """

    iterations: Array
    validation_error: Array
    _: KW_ONLY
    best_iteration: int
    training_error: Array | None = None
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
        if curve.ndim == 2:
            chosen = np.flatnonzero(_results(estimator)["alpha"] == estimator.alpha_)
            curve = curve[:, chosen[0]]
        scoring = getattr(estimator, "scoring", "pairwise_accuracy")
        error_name = f"1 − {scoring.replace('_', ' ') if isinstance(scoring, str) else 'score'}"
        if scoring in ("pairwise_accuracy", "concordance_index"):
            error_name = "pairwise error"
        return cls(
            np.asarray(estimator.validation_iterations_),
            curve,
            best_iteration=int(estimator.best_iteration_),
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
        errors: list[Any] = [validation_error, training_error]
        for i, which in enumerate(("validation_error", "training_error")):
            if errors[i] is not None:
                errors[i] = check_finite_array(which, errors[i], ndim=(1,))
                check_length(which, errors[i], len(x), of="iterations")
        if not len(x):
            raise ValueError("iterations is empty")
        best = int(x[np.argmin(errors[0])] if best_iteration is None else best_iteration)
        if best not in x:
            raise ValueError(f"best_iteration={best} is not one of the iterations")
        return cls(
            x,
            errors[0],
            best_iteration=best,
            training_error=errors[1],
            estimator_name=name,
        ).plot(ax)

    def plot(self, ax: Any = None) -> EarlyStoppingDisplay:
        """Draw the errors on ``ax``, or on a new figure."""
        ax = self._begin(ax, 6.4, 3.8)
        self.validation_line_ = self._line(ax, self.validation_error, "validation", BLUE, "-")
        self.training_line_ = None
        if self.training_error is not None:
            self.training_line_ = self._line(ax, self.training_error, "training", ORANGE, "--")
        error = float(self.validation_error[self.iterations == self.best_iteration][0])
        label = f"iteration {self.best_iteration}: {error:.4f}"
        self.best_point_ = self._mark(ax, self.best_iteration, error, label, ":")
        ax.set(xlabel="iteration", ylabel=self.error_name, title=self.estimator_name or "")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)
        ax.legend(loc="best", framealpha=0.9, edgecolor="none")
        return self

    def _line(self, ax: Any, values: Array, label: str, color: str, linestyle: str) -> Any:
        """Draw a line through the values that are not NaN, with markers if there are few."""
        known = ~np.isnan(values)
        line = {"color": color, "linestyle": linestyle, "linewidth": 1.8, "label": label}
        marker = {"marker": "o", "markersize": 3} if known.sum() < 20 else {}
        return ax.plot(self.iterations[known], values[known], **line, **marker)[0]
