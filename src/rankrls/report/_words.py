"""Numbers and counts as text, for the page and for findings."""

from __future__ import annotations

import numpy as np

__all__ = ["fixed", "number", "percent", "plural", "probability"]


def number(value: float, digits: int = 4) -> str:
    """Format a number with some significant digits; NaN becomes a dash."""
    value = float(value) + 0.0  # no −0
    if not np.isfinite(value):
        return "–"
    whole = value == round(value) or abs(value) >= 10**digits
    text = f"{value:,.0f}" if whole and abs(value) < 1e6 else f"{value:.{digits}g}"
    if "e" in text:
        base, power = text.split("e")
        text = f"{base}e{int(power)}"
    return text.replace("-", "−")


def percent(value: float, digits: int = 1) -> str:
    """Format a fraction as a percentage; NaN becomes a dash."""
    return f"{float(value) * 100:.{digits}f}%" if np.isfinite(value) else "–"


def fixed(value: float) -> str:
    """Format a number with two decimals."""
    return f"{value:.2f}".replace("-", "−").replace("inf", "∞")


def probability(value: float) -> str:
    """Format a p-value."""
    return "< 1e−99" if value < 1e-99 else number(value, 2)


def plural(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
