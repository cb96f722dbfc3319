"""Support vector machine for pairs, with the squared hinge loss of labels −1 and 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls._calls import warn
from rankrls._relation_labels import Cells, FittedOffsets, Observations
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.problem import RelationModel, RelationProblem

__all__ = ["solve_squared_hinge"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Maximal number of Newton steps; usually a few are enough.
MAX_STEPS = 100

#: Relative decrease of the objective below which the iteration stops.
SETTLED = 1e-12


def solve_squared_hinge(
    problem: RelationProblem, alpha: float, solver: str, options: IterationOptions
) -> RelationModel:
    """Minimise the squared hinge loss. ``n_iter`` of the result counts Newton steps."""
    cells, labels = problem.observations.cells, problem.observations.lists[2]
    if (wrong := labels[np.abs(labels) != 1.0]).size:
        raise ValueError(f"loss='squared_hinge' needs labels −1 and 1 (or NaN); got {wrong[0]:g}")
    if not (np.abs(cells.y) == 1.0).all():
        raise ValueError("loss='squared_hinge' needs one label for each pair; one has both")
    y, weight = cells.y, cells.weight
    plain, scores = np.zeros(len(cells)), np.zeros(len(cells))  # f, and f + c
    offset = 0.0
    norm, model, active = 0.0, None, np.zeros(len(cells), dtype=bool)
    value = first = _objective(cells, scores, alpha * norm)
    for step in range(1, MAX_STEPS + 1):
        before, active = active, y * scores < 1.0
        if not active.any() or (step > 1 and np.array_equal(before, active)):
            break
        some = cells.select(active)
        repeat = some.weight.astype(np.int64)
        rows, cols, labels = (np.repeat(part, repeat) for part in (some.rows, some.cols, some.y))
        observations = Observations(rows, cols, labels, cells.shape)
        # Kernels and profiles are those of all labels.
        regression = RelationProblem(*problem.sides, observations, problem.loss)
        found = regression.solve(np.array([alpha]), solver, options)
        new_plain = found.predict(problem.sides, cells.rows, cells.cols, offsets=False)[0]
        change = 0.0
        if problem.free.constant:
            rest = some.y - new_plain[active]
            change = float(some.weight @ rest / some.weight.sum()) - offset
        new = new_plain + offset + change
        # alpha ⟨f, h⟩ = Σ ω (y − f − c) h over the active pairs, for the new f and any h
        residual = np.where(active, weight * (y - new), 0.0)
        products = float(residual @ plain) / alpha, float(residual @ new_plain) / alpha
        t = _best_step(cells, scores, new, alpha, (norm, *products))
        if model is None:
            model, t = found, 1.0
        else:
            model = found if t == 1.0 else _between(model, found, t, problem)
        norm = (1 - t) ** 2 * norm + 2 * t * (1 - t) * products[0] + t**2 * products[1]
        plain, scores = plain + t * (new_plain - plain), scores + t * (new - scores)
        offset += t * change
        last, value = value, _objective(cells, scores, alpha * norm)
        if t < 1.0:
            active = np.zeros_like(active)  # the active set changes within the step
        if step > 1 and last - value <= SETTLED * max(last, EPS * first):
            break
    else:
        warn(
            f"Newton's method ended after {MAX_STEPS} steps: lower tol, or raise alpha",
            ConvergenceWarning,
        )
    assert model is not None  # all pairs are active at first
    fitted = None
    if problem.free.constant:
        fitted = [FittedOffsets(offset, *(np.zeros(n) for n in cells.shape))]
    return replace(model, n_iter=step, offsets=fitted)


def _objective(cells: Cells, scores: Array, penalty: float) -> float:
    violation = np.maximum(1.0 - cells.y * scores, 0.0)
    return float(cells.weight @ violation**2) + penalty


def _best_step(
    cells: Cells, old: Array, new: Array, alpha: float, norms: tuple[float, float, float]
) -> float:
    """Find t in (0, 1] that minimises the objective between old and new scores."""
    change = new - old
    first, mixed, last = norms

    def slope(t: float) -> float:
        violation = np.maximum(1.0 - cells.y * (old + t * change), 0.0)
        fall = float((cells.weight * violation) @ (cells.y * change))
        return alpha * ((t - 1) * first + (1 - 2 * t) * mixed + t * last) - fall

    if slope(1.0) <= 0.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    return high


def _between(
    old: RelationModel, new: RelationModel, t: float, problem: RelationProblem
) -> RelationModel:
    """Compute (1 − t) old + t new, without offsets."""
    if old.linear == new.linear:
        return replace(new, inner=(1 - t) * old.tables + t * new.tables, bases=None)
    first, second = (model.coefficients(problem.sides) for model in (old, new))
    return replace(new, inner=(1 - t) * first + t * second, bases=None, linear=False)
