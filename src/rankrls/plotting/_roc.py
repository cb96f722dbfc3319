"""ROC curve from leave-pair-out cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import auc, roc_curve

from rankrls._validation import check_finite_array, check_pairs
from rankrls.core.ridge.pairs import all_pairs
from rankrls.estimators import RankRLS
from rankrls.model_selection import leave_pair_out_predict, tournament_scores
from rankrls.model_selection.auc import two_levels
from rankrls.plotting._display import BLUE, Display

Array = NDArray[Any]


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
        **plot_options: Any,
    ) -> LeavePairOutRocDisplay:
        """Leave out all pairs of rows and plot the ROC curve.

        Parameters
        ----------
        estimator, X, y, n_jobs
            As for `leave_pair_out_tournament`; y has two levels, the higher one is positive.
        name : str, optional
            Name shown in the legend; by default the class name of the estimator.
        **plot_options
            Options of `plot`, such as ``ax``.
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
        return cls.from_predictions(labels, held, pairs=pairs, name=name, **plot_options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        pairs: ArrayLike,
        name: str | None = None,
        **plot_options: Any,
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
        name, **plot_options
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
        display = cls(
            fpr=fpr,
            tpr=tpr,
            roc_auc=float(auc(fpr, tpr)),
            leave_pair_out_auc=float(right[order != 0].mean()),
            estimator_name=name,
        )
        return display.plot(**plot_options)

    def plot(
        self, ax: Any = None, *, name: str | None = None, **line_options: Any
    ) -> LeavePairOutRocDisplay:
        """Draw the curve on ``ax`` or a new figure; ``line_options`` are those of ``Axes.plot``."""
        first = {"color": BLUE} if ax is None else {}
        ax = self._begin(ax, 4.8, 4.8)
        name = self.estimator_name if name is None else name
        label = (
            f"{'' if not name else name + chr(10)}leave-pair-out AUC = "
            f"{self.leave_pair_out_auc:.3f}\ntournament (area) = {self.roc_auc:.3f}"
        )
        line = {"label": label, "linewidth": 1.8} | first | line_options
        (self.line_,) = ax.plot(self.fpr, self.tpr, **line)
        self.chance_level_ = self._diagonal(ax, 0.0, "chance (0.5)")
        limits = (-0.01, 1.01)
        ax.set(xlabel="false positive rate", ylabel="true positive rate", xlim=limits, ylim=limits)
        ax.grid(alpha=0.25)
        ax.legend(loc="lower right", frameon=False)
        return self
