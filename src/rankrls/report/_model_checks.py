"""Checks of the fitted model: grid of alphas, error, and comparison with a single feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.report._errors import Interval, UnitErrors
from rankrls.report._findings import Finding
from rankrls.report._fit_plan import FitPlan
from rankrls.report._heldout import AlphaPath, CrossValidated
from rankrls.report._html import number

__all__ = ["check_model"]


def check_model(
    held: CrossValidated, errors: UnitErrors, error: Interval, baseline: Any, plan: FitPlan
) -> list[Finding]:
    """Findings about the path and the error; ``baseline`` is the best single feature."""
    found = []
    if held.path is not None:
        found += _path(held.path, held.estimate, plan)
    if error.value >= 0.5 or (error.high >= 0.5 and error.method != "none"):
        found.append(
            Finding(
                "problem",
                "no-better-than-chance",
                "The model is no better than chance",
                f"{error.value:.1%} of the pairs are in the wrong order; a random order has 50%. "
                "Check that labels and features belong to the same rows, and that higher labels "
                "are better.",
            )
        )
    elif baseline is not None and baseline.error <= error.value:
        found.append(
            Finding(
                "warning",
                "single-feature-as-good",
                "A single feature is as good as the model",
                f"Sorting by this feature has an error of {baseline.error:.1%}, the model one of "
                f"{error.value:.1%}. The features may need scaling, or the labels may be too "
                "noisy.",
                [baseline.feature],
            )
        )
    if np.nanmax(errors.error) == 0:
        found.append(
            Finding(
                "warning",
                "no-error",
                "The error is zero",
                "Every held-out pair is in the right order. This is rare with real data. Check "
                "that no feature contains the label.",
            )
        )
    return found


def _path(path: AlphaPath, estimate: Interval, plan: FitPlan) -> list[Finding]:
    found = []
    # One standard error; a 95 % interval is about four of them wide.
    spread = (estimate.high - estimate.low) / 4
    if path.spread is not None:
        spread = path.spread[path.best]
    flat = bool(np.ptp(path.error) < spread)
    if len(path.alphas) > 1 and flat and path.at_edge is None:
        found.append(
            Finding(
                "note",
                "flat-path",
                "alpha has little effect",
                f"From {number(path.alphas[0])} to {number(path.alphas[-1])} the error changes by "
                "less than its standard error.",
            )
        )
    elif path.at_edge is not None and plan.fixed is None:
        found.append(
            Finding(
                "note" if flat else "warning",
                "edge-of-grid",
                f"The best alpha is the {path.at_edge} of the grid",
                f"alpha = {number(path.alphas[path.best])} is the best value of the grid. A "
                f"{'smaller' if path.at_edge == 'smallest' else 'larger'} one may be better: "
                "extend the grid."
                + (" All values differ by less than the standard error." if flat else ""),
            )
        )
    gain = path.error[path.chosen] - path.error[path.best]
    if plan.fixed is not None and gain > spread:
        found.append(
            Finding(
                "warning",
                "better-alpha",
                f"alpha = {number(path.alphas[path.best])} would be better",
                f"It has a held-out error of {path.error[path.best]:.1%}, the given alpha "
                f"{number(plan.fixed)} one of {path.error[path.chosen]:.1%}.",
            )
        )
    return found
