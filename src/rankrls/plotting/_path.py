"""Plot of score and coefficients against alpha."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler

from rankrls._calls import takes_queries
from rankrls._validation import check_finite_array, check_integer, check_length, check_option
from rankrls.estimators import regularization_path
from rankrls.estimators.cv import as_rankrls
from rankrls.metrics.metric_names import COMPARED_METRICS, parse_metric
from rankrls.plotting._display import BLACK, BLUE, GREY, Display, line_styles

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class RegularizationPathDisplay(Display):
    """Cross-validated score with its spread, and coefficients, plotted against alpha.

    Use `from_estimator` or `from_predictions` to create it. Two alphas are compared on the same
    queries, so their difference can be significant although the bands overlap;
    `rankrls.metrics.compare_rankers` tests it.

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
        The named lines, in the order of the legend.
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
    coef_name: str = "coefficient"
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        output: int = 0,
        standardize: bool = False,
        name: str | None = None,
        ax: Any = None,
        spread: str = "error",
        n_features: int = 6,
        **fit_params: Any,
    ) -> RegularizationPathDisplay:
        """Plot the results of a fitted `RankRLSCV` (or, without X, of a `ConditionalRankRLSCV`).

        Parameters
        ----------
        estimator : fitted RankRLSCV
        X, y : as for ``fit``, optional
            If given, the coefficients of a linear kernel for each alpha are shown, too.
        output : int, default=0
            Index of the output whose coefficients are shown.
        standardize : bool, default=False
            Whether to multiply each coefficient by the standard deviation of its feature.
        name : str, optional
            Title; by default the class name of the estimator.
        ax, spread, n_features
            As for `plot`.
        **fit_params
            qid, sample_weight and pairs, as for ``fit``.
        """
        results = getattr(estimator, "cv_results_", None)
        if not isinstance(results, dict) or np.ndim(results.get("alpha", [[]])) != 1:
            raise ValueError(
                "from_estimator needs a fitted RankRLSCV, with one alpha in each of cv_results_; "
                f"got a {type(estimator).__name__}. from_predictions takes predictions of "
                "leave_query_out_predict with alphas"
            )
        coef, names = None, None
        if X is not None:
            kernel = getattr(estimator, "kernel", None)
            if kernel != "linear" or estimator.early_stopping:
                raise ValueError(
                    f"a model with kernel={kernel!r} has no feature coefficients by alpha, nor has "
                    "an early-stopped one (see EarlyStoppingDisplay); leave out X and y to show "
                    "the scores only"
                )
            fit_params["alphas"] = results["alpha"]
            coef = regularization_path(as_rankrls(estimator), X, y, **fit_params).coef
            if coef.ndim == 3:
                if check_integer("output", output, least=0) >= coef.shape[2]:
                    raise ValueError(f"output={output}, but the model has {coef.shape[2]} outputs")
                coef = coef[:, :, output]
            if standardize:
                coef = coef * np.sqrt(StandardScaler(with_mean=False).fit(X).var_)
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
            coef_name="coefficient × deviation" if standardize else "coefficient",
            estimator_name=cls._name(estimator, name),
        ).plot(ax, spread=spread, n_features=n_features)

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
        coef: ArrayLike | None = None,
        feature_names: Any = None,
        name: str | None = None,
        **plot_options: Any,
    ) -> RegularizationPathDisplay:
        """Score held-out predictions for each alpha and plot the scores.

        Parameters
        ----------
        y_true, qid : array-like of shape (n_rows,)
            Labels and queries. The spread is over queries; without qid it is not shown.
        y_score : array-like of shape (n_alphas, n_rows)
            Predictions for each alpha, such as those of
            `rankrls.model_selection.leave_query_out_predict` with ``alphas``, or predictions for
            test rows by `rankrls.regularization_path`.
        alphas : array-like of shape (n_alphas,)
        scoring : str, default="pairwise_accuracy"
            Name of a metric that is defined for single queries, such as "ndcg@10".
        coef, feature_names : array-like of shape (n_alphas, n_features), and names; optional
        name : str, optional
            Title.
        **plot_options
            Options of `plot`, such as ``ax``.
        """
        grid = check_finite_array("alphas", alphas, ndim=(1,))
        scores = check_finite_array("y_score", y_score, ndim=(2,))
        check_length("y_score", scores, len(grid), of="alphas")
        metric = parse_metric(scoring, "scoring", allowed=COMPARED_METRICS)
        by_query = np.array([metric(y_true, row, qid=qid, average=None) for row in scores])
        known = by_query[:, ~np.isnan(by_query[0])]
        if coef is not None:
            coef = check_finite_array("coef", coef, ndim=(2,))
            check_length("coef", coef, len(grid), of="alphas")
            if feature_names is not None:
                check_length("feature_names", feature_names, coef.shape[1], of="columns of coef")
        return cls(
            grid,
            known.mean(axis=1),
            std_score=known.std(axis=1) if known.shape[1] > 1 else None,
            n_scores=known.shape[1],
            coef=coef,
            feature_names=None if feature_names is None else list(feature_names),
            score_name=scoring.replace("_", " "),
            estimator_name=name,
        ).plot(**plot_options)

    @property
    def best_index(self) -> int:
        """Index of the chosen alpha."""
        if self.best_alpha is not None:
            return int(np.argmin(np.abs(self.alphas - self.best_alpha)))
        best = np.flatnonzero(self.mean_score == self.mean_score.max())
        return int(best[np.argmax(self.alphas[best])])

    def plot(
        self, ax: Any = None, *, spread: str = "error", n_features: int = 6
    ) -> RegularizationPathDisplay:
        """Draw the scores, and the coefficients if they are available.

        Parameters
        ----------
        ax : matplotlib Axes or two of them, optional
            One for the scores only, or two for scores and coefficients; by default a new figure.
        spread : {"error", "deviation", "none"}, default="error"
            Band around the scores: the standard error of the mean, or the standard deviation of
            the scores of queries or folds.
        n_features : int, default=6
            Number of coefficients drawn with a colour and a name, the largest at the chosen alpha.
        """
        check_option("spread", spread, ("error", "deviation", "none"))
        check_integer("n_features", n_features, least=0)
        self._own_figure = ax is None
        rows, height = (1, 3.2) if self.coef is None else (2, 5.6)
        self._begin(ax, 7.6, height, rows)
        if len(self.axes_) > 2 or (len(self.axes_) == 2 and self.coef is None):
            raise ValueError(
                "ax must be one Axes for the scores, or two for scores and coefficients (from X, y)"
            )
        order = np.argsort(self.alphas)
        self._plot_scores(self.ax_, order, spread)
        self.coef_lines_: list[Any] = []
        if len(self.axes_) == 2:
            self._plot_coefficients(self.axes_[1], order, n_features)
        positive = self.alphas[self.alphas > 0]
        for one in self.axes_:
            if len(positive) == len(self.alphas):
                one.set_xscale("log")
            elif len(positive):  # early stopping allows alpha = 0, at the left end
                one.set_xscale("symlog", linthresh=float(positive.min()))
        self.axes_[-1].set_xlabel("alpha (regularisation)")
        if self.estimator_name:
            self.ax_.set_title(self.estimator_name)
        return self

    def _plot_scores(self, ax: Any, order: Array, spread: str) -> None:
        x, mean = self.alphas[order], self.mean_score[order]
        line = {"color": BLUE, "marker": "o", "markersize": 3.5, "label": "mean"}
        (self.score_line_,) = ax.plot(x, mean, **line)
        self.spread_ = None
        if self.std_score is not None and spread != "none":
            width, label = self.std_score, "± standard deviation"
            if spread == "error":
                width, label = self.std_score / np.sqrt(self.n_scores), "± standard error"
            low, high = mean - width[order], mean + width[order]
            band = {"color": BLUE, "alpha": 0.2, "lw": 0, "label": label}
            self.spread_ = ax.fill_between(x, low, high, **band)
        best = self.best_index
        label = f"alpha = {self.alphas[best]:.4g}: {self.mean_score[best]:.3f}"
        self._mark(ax, self.alphas[best], self.mean_score[best], label, "--")
        ax.set_ylabel(self.score_name)
        self._legend(ax, *ax.get_legend_handles_labels())

    def _plot_coefficients(self, ax: Any, order: Array, n_features: int) -> None:
        assert self.coef is not None
        x, coef = self.alphas[order], self.coef[order]
        at_best = self.coef[self.best_index]
        largest = np.argsort(-np.abs(at_best), kind="stable")[:n_features]
        named = largest[np.argsort(-at_best[largest], kind="stable")]  # from top to bottom
        rest = np.setdiff1d(np.arange(coef.shape[1]), named)
        if len(rest):
            lines = ax.plot(x, coef[:, rest], color=GREY, linewidth=0.6, alpha=0.7, zorder=1)
            lines[0].set_label(f"{len(rest)} more")
        for j, style in zip(named, line_styles(len(named)), strict=True):
            label = f"feature {j}" if self.feature_names is None else str(self.feature_names[j])
            self.coef_lines_ += ax.plot(x, coef[:, j], linewidth=1.6, label=label, **style)
        ax.axhline(0.0, color=BLACK, linewidth=0.8)
        ax.axvline(self.alphas[self.best_index], color=BLACK, linestyle="--", linewidth=1.0)
        ax.set_ylabel(self.coef_name)
        handles, labels = ax.get_legend_handles_labels()
        if len(rest):  # list the named lines first
            handles, labels = [*handles[1:], handles[0]], [*labels[1:], labels[0]]
        self._legend(ax, handles, labels)

    def _legend(self, ax: Any, handles: list[Any], labels: list[str]) -> None:
        """Place the legend beside the axes of a new figure, or inside the axes of the caller."""
        place = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if self._own_figure else {}
        ax.legend(handles, labels, frameon=False, fontsize="small", **place)
        ax.grid(alpha=0.25)
