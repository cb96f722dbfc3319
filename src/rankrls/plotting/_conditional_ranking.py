"""Heat maps of conditional rankings and of the true labels."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from rankrls._frames import scores_in_order
from rankrls._relation_labels import Observations
from rankrls._validation import check_finite_array, check_option
from rankrls.plotting._display import Display

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class ConditionalRankingDisplay(Display):
    """Heat maps of the scores of all pairs and of the true labels, side by side.

    Each row (or column) is the list of one conditioning object. Scores learned with the ranking
    loss have an arbitrary offset for each list, so by default the colour shows the rank within the
    list. Use `from_estimator` or `from_predictions` to create it.

    Attributes
    ----------
    Y_true, Y_score : ndarray of shape (p, g)
        Labels, NaN for pairs without a label, and predicted scores.
    condition_on : {"rows", "columns"}
    figure_, axes_, images_ : matplotlib Figure, two Axes and two AxesImage
        Of the scores and of the true labels.
    """

    Y_true: Array
    Y_score: Array
    _: KW_ONLY
    condition_on: str = "rows"
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        Y: Any,
        Z: Any = None,
        *,
        name: str | None = None,
        **plot_options: Any,
    ) -> ConditionalRankingDisplay:
        """Predict with a fitted conditional ranker and plot.

        Parameters
        ----------
        estimator : fitted ConditionalRankRLS or ConditionalRankRLSCV
        X, Y, Z : as for its ``score``
        name : str, optional
            Title of the heat map of scores; by default the class name of the estimator.
        **plot_options
            Options of `plot`.
        """
        return cls.from_predictions(
            estimator._labels_in_order(Y, X, Z),
            estimator.predict(X, Z),
            condition_on=estimator.condition_on,
            name=cls._name(estimator, name),
            **plot_options,
        )

    @classmethod
    def from_predictions(
        cls,
        Y_true: Any,
        Y_score: ArrayLike,
        *,
        condition_on: str = "rows",
        name: str | None = None,
        **plot_options: Any,
    ) -> ConditionalRankingDisplay:
        """Plot the given scores.

        Parameters
        ----------
        Y_true : array-like or sparse matrix of shape (p, g)
            Labels; if a pair has several, their mean is shown.
        Y_score : array-like of shape (p, g)
        condition_on : {"rows", "columns"}, default="rows"
            Whether each row or each column is a list.
        name, **plot_options
            As for `from_estimator`.
        """
        check_option("condition_on", condition_on, ("rows", "columns"))
        Y_score = scores_in_order(Y_score, Y_true)
        score = check_finite_array("Y_score", Y_score, ndim=(2,))
        truth = Observations.read(Y_true, "Y_true").table()
        if truth.shape != score.shape:
            raise ValueError(f"Y_true has shape {truth.shape} and Y_score has shape {score.shape}")
        display = cls(truth, score, condition_on=condition_on, estimator_name=name)
        return display.plot(**plot_options)

    def plot(
        self,
        *,
        axes: Any = None,
        scaling: str = "rank",
        row_order: ArrayLike | None = None,
        column_order: ArrayLike | None = None,
    ) -> ConditionalRankingDisplay:
        """Draw both heat maps.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            Axes to draw on; by default a new figure is created.
        scaling : {"rank", "none"}, default="rank"
            Ranks from 0 (last) to 1 (first) within each list, or the unscaled values.
        row_order, column_order : array-like of int, optional
            Display order of rows and columns, such as ``np.argsort(groups)``.
        """
        check_option("scaling", scaling, ("rank", "none"))
        rows, cols = (
            np.arange(n) if order is None else np.asarray(order)
            for order, n in zip((row_order, column_order), self.Y_true.shape, strict=True)
        )
        axis = 1 if self.condition_on == "rows" else 0
        self._begin(axes, 8.4, 4.0, columns=2)
        if len(self.axes_) != 2:
            raise ValueError(f"axes must be two: scores and truth; got {len(self.axes_)}")
        titles = (self.estimator_name or "scores", "truth")
        self.images_ = []
        for ax, values, title in zip(self.axes_, (self.Y_score, self.Y_true), titles, strict=True):
            if scaling == "rank":
                known = (~np.isnan(values)).sum(axis=axis, keepdims=True)
                values = rankdata(values, axis=axis, nan_policy="omit") - 1.0
                values = values / np.maximum(known - 1, 1)
            shown = values[np.ix_(rows, cols)]
            image = ax.imshow(shown, aspect="auto", interpolation="nearest")
            self.images_.append(image)
            names = ("ranked objects", "conditioning objects")[:: 1 if axis else -1]
            ax.set(title=title, xlabel=names[0], ylabel=names[1])
            if scaling == "none":  # each heat map has its own scale
                self.figure_.colorbar(image, ax=ax)
        if scaling == "rank":
            self.figure_.colorbar(
                self.images_[0], ax=list(self.axes_), label="rank in the list (1: first)"
            )
        return self
