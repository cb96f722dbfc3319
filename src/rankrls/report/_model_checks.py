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
                "Do labels and features belong to the same rows? Is a higher label better?",
            )
        )
    elif baseline is not None and baseline.error <= error.value:
        found.append(
            Finding(
                "warning",
                "single-feature-as-good",
                "One feature alone is as good as the model",
                f"Ordering by it has an error of {baseline.error:.1%}, the model one of "
                f"{error.value:.1%}. Perhaps the features need scaling, or the error of the "
                "queries is mostly noise.",
                [baseline.feature],
            )
        )
    if np.nanmax(errors.error) == 0:
        found.append(
            Finding(
                "warning",
                "no-error",
                "There is no error at all",
                "Every held-out pair is in order. That is rare with real data: see whether a "
                "feature contains the label.",
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
                "alpha hardly matters",
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
                f"alpha = {number(path.alphas[path.best])} is the best of those tried; one beyond "
                "it may be better. Extend alphas "
                + ("downwards." if path.at_edge == "smallest" else "upwards.")
                + (" All that were tried are equal within the standard error." if flat else ""),
            )
        )
    gain = path.error[path.chosen] - path.error[path.best]
    if plan.fixed is not None and gain > spread:
        found.append(
            Finding(
                "warning",
                "better-alpha",
                f"alpha = {number(path.alphas[path.best])} would be better",
                f"The given alpha {number(plan.fixed)} has a held-out error of "
                f"{path.error[path.chosen]:.1%}, that one {path.error[path.best]:.1%}.",
            )
        )
    return found
