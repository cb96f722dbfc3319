"""What all displays share: axes, colours, and the mark of a choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._resources import pyplot

#: Colours of the Okabe–Ito palette that are dark enough for lines on white.
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#000000", "#999999"
_COLORS = (BLUE, ORANGE, "#009E73", "#CC79A7", BLACK, "#56B4E9")
_DASHES = ("-", "--", "-.", ":")


def line_styles(n: int) -> list[dict[str, Any]]:
    """Options of n lines that differ in print and for colour-blind readers."""
    return [
        {
            "color": _COLORS[i % len(_COLORS)],
            "linestyle": _DASHES[(i + i // (len(_COLORS) * len(_DASHES))) % len(_DASHES)],
        }
        for i in range(n)
    ]


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
        """Draw the diagonal from ``low`` to 1, with axes of equal scales."""
        line = {"color": GREY, "linestyle": "--", "linewidth": 1.0, "label": label}
        drawn = ax.plot([low, 1], [low, 1], **line)[0]
        ax.set_aspect("equal")
        return drawn

    def _mark(self, ax: Any, x: Any, y: float, label: str, linestyle: str) -> Any:
        """Mark what was chosen, by a point and a vertical line."""
        line = {"color": BLACK, "linestyle": linestyle, "linewidth": 1.2}
        ax.axvline(x, **line)
        return ax.plot([x], [y], marker="D", label=label, **line)[0]
