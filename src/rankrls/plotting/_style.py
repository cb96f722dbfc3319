"""Colours and line styles that are distinguishable in print and by colour-blind readers."""

from __future__ import annotations

from typing import Any

__all__ = ["BLACK", "BLUE", "GREY", "ORANGE", "line_styles"]

#: Colours of the Okabe–Ito palette that are dark enough for lines on white.
BLACK, BLUE, ORANGE, GREEN, PURPLE, SKY = (
    "#000000",
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
)
GREY = "#999999"

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, BLACK, SKY)
_DASHES = ("-", "--", "-.", ":")


def line_styles(n: int) -> list[dict[str, Any]]:
    """Return options of n lines; colours and dashes repeat only after all combinations."""
    return [
        {
            "color": _COLORS[i % len(_COLORS)],
            "linestyle": _DASHES[(i + i // (len(_COLORS) * len(_DASHES))) % len(_DASHES)],
        }
        for i in range(n)
    ]
