"""Phrases shared by several sections."""

from __future__ import annotations

from rankrls.report._analysis import Analysis
from rankrls.report._errors import Interval
from rankrls.report._html import percent

__all__ = ["interval", "plural", "source", "units"]


def plural(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def units(analysis: Analysis) -> str:
    """Units of the errors: "queries" or "rows"."""
    return "queries" if analysis.errors.unit == "query" else "rows"


def interval(value: Interval, *, digits: int = 1) -> str:
    """Confidence interval in words."""
    if value.method == "none":
        return "too few for an interval"
    low, high = percent(max(0.0, value.low), digits), percent(min(1.0, value.high), digits)
    return f"{value.level:.0%} interval {low} to {high}"


def source(analysis: Analysis) -> str:
    """How the errors were estimated, to follow "held out by"."""
    held = analysis.held
    if analysis.test is not None:
        return "test data"
    if held.method == "leave-query-out":
        return "exact leave-query-out"
    if held.method == "leave-pair-out":
        return "exact leave-pair-out"
    return f"{held.n_folds} folds"
