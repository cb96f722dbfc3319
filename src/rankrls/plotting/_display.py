"""What all displays share: axes, colours, and the mark of a choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._resources import pyplot

#: Colours of the Okabe–Ito palette that are dark enough for lines on white.
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#000000", "#999999"


class Display:
    """A plot with a name or title, ``estimator_name``, of axes ``axes_``, the first is ``ax_``."""

    axes_: Any
    ax_: Any
    figure_: Any
    estimator_name: str | None

    @staticmethod
    def _name(estimator: Any, name: str | None) -> str:
        return type(estimator).__name__ if name is None else name

    def _begin(self, ax: Any, width: float, height: float, rows: int = 1, columns: int = 1) -> Any:
        """Use these axes, or those of a new figure."""
        if ax is None:
            size = {"figsize": (width, height), "layout": "constrained"}
            _, ax = pyplot().subplots(rows, columns, sharex="col", **size)
        self.axes_ = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        self.ax_ = self.axes_[0]
        self.figure_ = self.ax_.figure
        return self.ax_

    def _diagonal(self, ax: Any, low: float, label: str) -> Any:
        """Draw the diagonal from ``low`` to 1, unless it is there, with axes of equal scales."""
        if label in [line.get_label() for line in ax.get_lines()]:
            return None
        line = {"color": GREY, "linestyle": "--", "linewidth": 1.0, "label": label}
        drawn = ax.plot([low, 1], [low, 1], **line)[0]
        ax.set_aspect("equal")
        return drawn

    def _mark(self, ax: Any, x: Any, y: float, label: str, linestyle: str) -> Any:
        """Mark what was chosen, by a point and a vertical line."""
        line = {"color": BLACK, "linestyle": linestyle, "linewidth": 1.2}
        ax.axvline(x, **line)
        return ax.plot([x], [y], marker="D", label=label, **line)[0]
