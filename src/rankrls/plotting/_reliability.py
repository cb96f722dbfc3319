"""Plot of predicted preference probabilities against observed frequencies."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, xlog1py, xlogy
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import takes_queries
from rankrls._frames import take_rows
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_length,
    check_magnitudes,
    check_option,
    check_pairs,
    check_weights,
)
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import margins
from rankrls.estimators.cv import as_rankrls
from rankrls.estimators.rankrls import check_covariates
from rankrls.model_selection import holdout_judgements
from rankrls.plotting._display import BLUE, Display, line_styles

Array = NDArray[Any]

#: Half-width of a 95 % interval in standard errors.
_Z = 1.959963984540054

_DIAGONAL = "calibrated"


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Reliability diagram of preference probabilities.

    Judgements are binned by the predicted probability of the item that the model expects to win.
    Calibrated probabilities lie on the diagonal; points below it show overconfidence. A tie counts
    as half a win. Use `from_estimator` or `from_predictions` to create it.

    Attributes
    ----------
    prob_pred, prob_true, counts : ndarray of shape (n_bins,)
        Mean predicted probability, fraction of wins, and number of judgements in each bin.
    prob_low, prob_high : ndarray of shape (n_bins,)
        Wilson's 95 % interval of ``prob_true``, which assumes independent judgements.
    log_loss : float
        Mean of −log P over the judgements; random guessing gives log 2 = 0.693.
    ax_, figure_, errorbar_, line_ : matplotlib Axes, Figure, ErrorbarContainer and Line2D
    diagonal_ : Line2D, or None if the axes already had one
    """

    _: KW_ONLY
    prob_pred: Array
    prob_true: Array
    prob_low: Array
    prob_high: Array
    counts: Array
    log_loss: float
    estimator_name: str | None = None

    @classmethod
    @takes_queries
    def from_estimator(
        cls,
        estimator: RankRLS | RankRLSCV,
        X: Any,
        pairs: ArrayLike,
        *,
        y: Any = None,
        qid: Any = None,
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        pair_features: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        held_out: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> ReliabilityDisplay:
        """Predict judgements and plot the reliability diagram.

        Parameters
        ----------
        estimator : RankRLSCV or RankRLS
            A fitted `RankRLSCV` has calibrated probabilities. For a `RankRLS`, the probabilities
            are those of a new judgement with noise variance alpha.
        X, pairs, y, qid, magnitude, pair_weight, pair_features, sample_weight
            As for ``fit``. Scores y with qid and sample_weight are for ``held_out=True``.
        groups : array-like of shape (n_pairs,), optional
            Group of each judgement; judgements of a group are left out together.
        held_out : bool, default=True
            If True, X and pairs must be the data passed to ``fit``, and each judgement is predicted
            by the model without it or without its group (see `holdout_judgements`). If False, the
            fitted model predicts new judgements.
        name : str, optional
            Name shown in the legend; by default the class name of the estimator.
        **options
            Options of `from_predictions`, such as ``n_bins`` or ``ax``.
        """
        if not isinstance(held_out, bool):
            raise ValueError(f"held_out must be True or False; got {held_out!r}")
        check_covariates(estimator, pair_features)
        beside = {"groups": groups, "y": y, "qid": qid, "sample_weight": sample_weight}
        beside = {name: values for name, values in beside.items() if values is not None}
        calibration = getattr(estimator, "calibration_", None)
        if held_out:
            ranker = as_rankrls(estimator)
            mean, std = holdout_judgements(
                *(ranker, X, pairs),
                by="judgement" if groups is None else "group",
                magnitude=magnitude,
                pair_weight=pair_weight,
                pair_features=pair_features,
                return_std=True,
                **beside,
            )
            alpha = float(ranker.alpha)
            r = margins(mean, std**2, alpha)
            p = ndtr(r / np.sqrt(alpha)) if calibration is None else calibration.proba(r)
        else:
            if beside:
                raise ValueError(f"{next(iter(beside))} can be used only with held_out=True")
            check_is_fitted(estimator)
            a, b = check_pairs(pairs, X.shape[0] if hasattr(X, "shape") else len(X)).T
            p = estimator.preference_proba(
                *(take_rows(X, a), take_rows(X, b)),
                pair_features=pair_features,
                noisy=None if hasattr(estimator, "calibration_") else True,
            )
        won = np.ones(len(p))
        if magnitude is not None:
            won[check_magnitudes(magnitude, len(p)) == 0] = 0.5
        flipped = p < 0.5
        return cls.from_predictions(
            np.where(flipped, 1 - p, p),
            np.where(flipped, 1 - won, won),
            sample_weight=pair_weight,
            name=cls._name(estimator, name),
            **options,
        )

    @classmethod
    def from_predictions(
        cls,
        proba: ArrayLike,
        outcome: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        n_bins: int = 10,
        strategy: str = "quantile",
        name: str | None = None,
        **plot_options: Any,
    ) -> ReliabilityDisplay:
        """Plot given probabilities, from any model.

        Parameters
        ----------
        proba : array-like of shape (n,)
            Predicted probabilities that a is preferred to b.
        outcome : array-like of shape (n,)
            1 if a was preferred, 0 if b was preferred, 0.5 for ties.
        sample_weight : array-like of shape (n,), optional
        n_bins : int, default=10
            Maximum number of bins; empty bins are omitted.
        strategy : {"quantile", "uniform"}, default="quantile"
            Bins of equal numbers of judgements, or of equal width.
        name : str, optional
            Name shown in the legend.
        **plot_options
            Options of `plot`, such as ``ax``.
        """
        p = _within_01("proba", proba)
        won = _within_01("outcome", outcome)
        check_length("outcome", won, len(p), "probabilities")
        n_bins = check_integer("n_bins", n_bins, least=1)
        check_option("strategy", strategy, ("quantile", "uniform"))
        weight = np.ones(len(p))
        if sample_weight is not None:
            weight = check_weights("sample_weight", sample_weight, len(p), "probabilities")
        used = weight > 0
        if not used.any():
            raise ValueError("there is no judgement to plot")
        p, won, weight = p[used], won[used], weight[used]

        if strategy == "quantile":
            edges = np.unique(np.quantile(p, np.arange(1, n_bins) / n_bins))
        else:
            edges = np.linspace(0.5 if p.min() >= 0.5 else 0.0, 1.0, n_bins + 1)[1:-1]
        bins = np.unique(np.searchsorted(edges, p, side="right"), return_inverse=True)[1]
        total = np.bincount(bins, weight)
        mean = np.bincount(bins, weight * won) / total
        # Effective number of judgements: as many with equal weights have the same variance.
        n = total**2 / np.bincount(bins, weight**2)
        centre = (mean + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z * np.sqrt(mean * (1 - mean) / n + (_Z / (2 * n)) ** 2) / (1 + _Z**2 / n)
        loss = -(xlogy(won, p) + xlog1py(1 - won, -p))
        display = cls(
            prob_pred=np.bincount(bins, weight * p) / total,
            prob_true=mean,
            prob_low=np.minimum(centre - half, mean),
            prob_high=np.maximum(centre + half, mean),
            counts=np.bincount(bins),
            log_loss=float(weight @ loss / weight.sum()),
            estimator_name=name,
        )
        return display.plot(**plot_options)

    def plot(
        self, ax: Any = None, *, name: str | None = None, **line_options: Any
    ) -> ReliabilityDisplay:
        """Draw the bins with 95 % intervals on ``ax`` or a new figure, and the diagonal.

        ``line_options`` are those of ``Axes.errorbar``.
        """
        n_drawn = 0 if ax is None else len(ax.containers)
        first = {"color": BLUE} if ax is None else line_styles(n_drawn + 1)[n_drawn]
        ax = self._begin(ax, 4.8, 4.8)
        name = self.estimator_name if name is None else name
        label = f"{'' if not name else name + ', '}log loss = {self.log_loss:.3f}"
        line = {"label": label, "marker": "o", "markersize": 4, "linewidth": 1.5, "capsize": 2}
        around = [self.prob_true - self.prob_low, self.prob_high - self.prob_true]
        self.errorbar_ = ax.errorbar(
            self.prob_pred, self.prob_true, yerr=around, **line | first | line_options
        )
        self.line_ = self.errorbar_.lines[0]
        self.diagonal_ = None
        if _DIAGONAL not in [other.get_label() for other in ax.get_lines()]:
            low = 0.5 if self.prob_pred.min() >= 0.5 else 0.0
            self.diagonal_ = self._diagonal(ax, low, _DIAGONAL)
        ax.set(xlabel="predicted probability", ylabel="part that was won")
        ax.grid(alpha=0.25)
        ax.legend(loc="lower right", frameon=False)
        return self


def _within_01(name: str, values: ArrayLike) -> Array:
    array = check_finite_array(name, values, ndim=(1,))
    wrong = (array < 0) | (array > 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} must be between 0 and 1; got {array[row]:g} at row {row}")
    return array
