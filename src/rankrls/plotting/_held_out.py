"""Plots of held-out predictions: a ROC curve of left-out pairs, and reliability of judgements."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, xlog1py, xlogy
from sklearn.metrics import auc, roc_curve
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import takes_queries
from rankrls._frames import take_rows
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_length,
    check_magnitudes,
    check_pairs,
    check_weights,
)
from rankrls.core.ridge.pairs import all_pairs
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import margins
from rankrls.estimators.cv import as_rankrls
from rankrls.estimators.rankrls import check_covariates
from rankrls.model_selection import holdout_judgements, leave_pair_out_predict, tournament_scores
from rankrls.model_selection.refits import two_levels
from rankrls.plotting._display import BLUE, Display

Array = NDArray[Any]

#: Half-width of a 95 % interval in standard errors.
_Z = 1.959963984540054


@dataclass(eq=False, repr=False)
class LeavePairOutRocDisplay(Display):
    """ROC curve from a tournament of all left-out pairs, with the leave-pair-out AUC.

    The rows are ranked by their wins in `rankrls.model_selection.leave_pair_out_tournament`. The
    area under this curve equals the leave-pair-out AUC, which is the one to report, if the
    comparisons have no cycles and no ties. Use `from_estimator` or `from_predictions`.

    Attributes
    ----------
    fpr, tpr, roc_auc : ndarray and float
        False and true positive rates, and the area under the curve.
    leave_pair_out_auc : float
        Fraction of the pairs (positive, negative) in the right order; ties count as ½.
    ax_, figure_, line_, chance_level_ : matplotlib Axes, Figure and Line2D
    """

    _: KW_ONLY
    fpr: Array
    tpr: Array
    roc_auc: float
    leave_pair_out_auc: float
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        name: str | None = None,
        n_jobs: int | None = None,
        ax: Any = None,
    ) -> LeavePairOutRocDisplay:
        """Leave out all pairs of rows and plot the ROC curve.

        Parameters
        ----------
        estimator, X, y, n_jobs
            As for `leave_pair_out_tournament`; y has two levels, the higher one is positive.
        name : str, optional
            Name shown in the legend; by default the class name of the estimator.
        ax : matplotlib Axes, optional
        """
        labels = two_levels(y)
        if isinstance(estimator, RankRLS) and not estimator._loss.keeps_ties:
            raise ValueError(
                "the tournament also leaves out pairs of the same class, which needs a RankRLS "
                "with cost='magnitude' and ties='keep'"
            )
        pairs, name = all_pairs(len(labels)), cls._name(estimator, name)
        held = leave_pair_out_predict(
            estimator, X, labels.astype(float), pairs=pairs, n_jobs=n_jobs
        )
        return cls.from_predictions(labels, held, pairs=pairs, name=name, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        pairs: ArrayLike,
        name: str | None = None,
        ax: Any = None,
    ) -> LeavePairOutRocDisplay:
        """Plot given predictions of left-out pairs, from any estimator.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Binary labels; the higher one is the positive class.
        y_score : array-like of shape (n_pairs, 2)
            Scores of the two rows of each pair, by a model trained without them.
        pairs : array-like of shape (n_pairs, 2)
            Row indices of all n(n − 1)/2 pairs, including pairs of the same class.
        name, ax
            As for `from_estimator`.
        """
        labels = two_levels(y_true)
        n = len(labels)
        rows = check_pairs(pairs, n)
        n_pairs = n * (n - 1) // 2
        if len(rows) != n_pairs or len(np.unique(np.sort(rows, axis=1) @ [n, 1])) < n_pairs:
            raise ValueError(
                f"pairs must be all {n_pairs} pairs of the {n} rows, each once (including pairs of "
                "the same class)"
            )
        scores = check_finite_array("y_score", y_score, ndim=(2,))
        fpr, tpr, _ = roc_curve(labels, tournament_scores(rows, scores, n), drop_intermediate=False)
        order = np.sign(labels[rows[:, 0]] - labels[rows[:, 1]])
        right = (np.sign(scores[:, 0] - scores[:, 1]) * order + 1) / 2
        return cls(
            fpr=fpr,
            tpr=tpr,
            roc_auc=float(auc(fpr, tpr)),
            leave_pair_out_auc=float(right[order != 0].mean()),
            estimator_name=name,
        ).plot(ax)

    def plot(self, ax: Any = None) -> LeavePairOutRocDisplay:
        """Draw the curve on ``ax`` or a new figure, and the diagonal."""
        first = {"color": BLUE} if ax is None else {}
        ax = self._begin(ax, 4.8, 4.8)
        name = f"{self.estimator_name}\n" if self.estimator_name else ""
        label = (
            f"{name}leave-pair-out AUC = "
            f"{self.leave_pair_out_auc:.3f}\ntournament (area) = {self.roc_auc:.3f}"
        )
        line = {"label": label, "linewidth": 1.8} | first
        (self.line_,) = ax.plot(self.fpr, self.tpr, **line)
        self.chance_level_ = self._diagonal(ax, 0.0, "chance (0.5)")
        limits = (-0.01, 1.01)
        ax.set(xlabel="false positive rate", ylabel="true positive rate", xlim=limits, ylim=limits)
        ax.grid(alpha=0.25)
        ax.legend(loc="lower right", frameon=False)
        return self


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
        magnitude: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        pair_features: ArrayLike | None = None,
        groups: Any = None,
        held_out: bool = True,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
        **fit_params: Any,
    ) -> ReliabilityDisplay:
        """Predict judgements and plot the reliability diagram.

        Parameters
        ----------
        estimator : RankRLSCV or RankRLS
            A fitted `RankRLSCV` has calibrated probabilities. For a `RankRLS`, the probabilities
            are those of a new judgement with noise variance alpha.
        X, pairs, magnitude, pair_weight, pair_features
            As for ``fit``.
        groups : array-like of shape (n_pairs,), optional
            Group of each judgement; judgements of a group are left out together.
        held_out : bool, default=True
            If True, X and pairs must be the data passed to ``fit``, and each judgement is predicted
            by the model without it or without its group (see `holdout_judgements`). If False, the
            fitted model predicts new judgements.
        n_bins, ax
            As for `from_predictions`.
        name : str, optional
            Name shown in the legend; by default the class name of the estimator.
        **fit_params
            Scores y with qid and sample_weight, as for ``fit``, with ``held_out=True``.
        """
        check_covariates(estimator, pair_features)
        fit_params |= {} if groups is None else {"groups": groups}
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
                **fit_params,
            )
            alpha = float(ranker.alpha)
            r = margins(mean, std**2, alpha)
            p = ndtr(r / np.sqrt(alpha)) if calibration is None else calibration.proba(r)
        else:
            if fit_params:
                raise ValueError(f"{next(iter(fit_params))} can be used only with held_out=True")
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
            n_bins=n_bins,
            name=cls._name(estimator, name),
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        proba: ArrayLike,
        outcome: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
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
            Maximum number of bins, of equal numbers of judgements.
        name : str, optional
            Name shown in the legend.
        ax : matplotlib Axes, optional
        """
        p, won = _within_01("proba", proba), _within_01("outcome", outcome)
        check_length("outcome", won, len(p), "probabilities")
        n_bins = check_integer("n_bins", n_bins, least=1)
        weight = np.ones(len(p))
        if sample_weight is not None:
            weight = check_weights("sample_weight", sample_weight, len(p), "probabilities")
        used = weight > 0
        if not used.any():
            raise ValueError("there is no judgement to plot")
        p, won, weight = p[used], won[used], weight[used]
        edges = np.unique(np.quantile(p, np.arange(1, n_bins) / n_bins))
        bins = np.unique(np.searchsorted(edges, p, side="right"), return_inverse=True)[1]
        total = np.bincount(bins, weight)
        mean = np.bincount(bins, weight * won) / total
        # Effective number of judgements: as many with equal weights have the same variance.
        n = total**2 / np.bincount(bins, weight**2)
        centre = (mean + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z * np.sqrt(mean * (1 - mean) / n + (_Z / (2 * n)) ** 2) / (1 + _Z**2 / n)
        loss = -(xlogy(won, p) + xlog1py(1 - won, -p))
        return cls(
            prob_pred=np.bincount(bins, weight * p) / total,
            prob_true=mean,
            prob_low=np.minimum(centre - half, mean),
            prob_high=np.maximum(centre + half, mean),
            counts=np.bincount(bins),
            log_loss=float(weight @ loss / weight.sum()),
            estimator_name=name,
        ).plot(ax)

    def plot(self, ax: Any = None) -> ReliabilityDisplay:
        """Draw the bins with 95 % intervals on ``ax`` or a new figure, and the diagonal."""
        first = {"color": BLUE} if ax is None else {}
        ax = self._begin(ax, 4.8, 4.8)
        name = f"{self.estimator_name}, " if self.estimator_name else ""
        label = f"{name}log loss = {self.log_loss:.3f}"
        line = {"label": label, "marker": "o", "markersize": 4, "linewidth": 1.5, "capsize": 2}
        around = [self.prob_true - self.prob_low, self.prob_high - self.prob_true]
        self.errorbar_ = ax.errorbar(self.prob_pred, self.prob_true, yerr=around, **line | first)
        self.line_ = self.errorbar_.lines[0]
        low = 0.5 if self.prob_pred.min() >= 0.5 else 0.0
        self.diagonal_ = self._diagonal(ax, low, "calibrated")
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
