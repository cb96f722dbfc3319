"""Conjugate gradients for all alphas at once: (S + alpha I) x = b from one Krylov space.

The residuals of all shifts of one symmetric matrix are parallel, so that the products with S
that solve for the smallest alpha give the solutions for all others by scalar recurrences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KrylovSolution", "shifted_cg"]

Array = NDArray[Any]


@dataclass(frozen=True)
class KrylovSolution:
    """Solutions for a grid of shifts.

    Attributes
    ----------
    x : ndarray of shape (n_alphas, n)
    n_iter : int
        Products with S.
    residuals : ndarray of shape (n_alphas,)
        ‖b − (S + alpha I)x‖/‖b‖ by the recurrence.
    """

    x: Array
    n_iter: int
    residuals: Array


def shifted_cg(
    apply: Callable[[Array], Array],
    b: Array,
    alphas: Array,
    *,
    max_iter: int,
    tol: float,
    after: Callable[[int, float, Array], bool] | None = None,
) -> KrylovSolution:
    """Solve (S + alpha I) x = b for every alpha, from x = 0.

    Parameters
    ----------
    apply : callable
        v ↦ S v for arrays of shape (n,), S symmetric positive semi-definite.
    b : ndarray of shape (n,)
    alphas : ndarray of shape (n_alphas,)
    max_iter : int
        Most products with S.
    tol : float
        A shift is done when its residual is below tol ‖b‖.
    after : callable, optional
        ``after(iteration, step, x)`` for the smallest alpha: the step along the direction that
        ``apply`` was last given, and the solution so far. True stops.

    Notes
    -----
    With α_k, β_k the scalars of the smallest shift, δ the distance of another shift from it, and
    ζ the ratio of the two residuals,

        ζ_{k+1} = ζ_k ζ_{k−1} α_{k−1} / (α_k β_k (ζ_{k−1} − ζ_k) + ζ_{k−1} α_{k−1} (1 + δ α_k)),

    its scalars are α_k ζ_{k+1}/ζ_k and β_{k+1} (ζ_{k+1}/ζ_k)². A shift that has converged, or
    whose ζ vanishes, is frozen.
    """
    order = np.argsort(alphas, kind="stable")
    shifts = alphas[order] - alphas[order[0]]
    n_shifts = len(shifts)
    x = np.zeros((n_shifts, len(b)))
    size = float(np.linalg.norm(b))
    residuals = np.ones(n_shifts)
    if size == 0.0:
        return KrylovSolution(x, 0, np.zeros(n_shifts))
    base = float(alphas[order[0]])
    r = b.copy()
    directions = np.tile(b, (n_shifts, 1))
    zeta, zeta_old = np.ones(n_shifts), np.ones(n_shifts)
    active = np.ones(n_shifts, dtype=bool)
    rr, step_old, beta = float(r @ r), 1.0, 0.0
    n_iter = 0
    while n_iter < max_iter and active.any():
        d = directions[0]
        product = apply(d)
        if base:
            product = product + base * d
        curvature = float(d @ product)
        if not curvature > 0.0:  # the Krylov space is exhausted, or S is not positive
            break
        step = rr / curvature
        n_iter += 1
        # ζ of the next residual, for every shift
        denominator = step * beta * (zeta_old - zeta) + zeta_old * step_old * (1 + shifts * step)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            zeta_new = zeta * zeta_old * step_old / denominator
            ratio = zeta_new / zeta
        usable = active & np.isfinite(ratio) & (np.abs(zeta_new) > np.finfo(float).tiny)
        for s in np.flatnonzero(usable):
            x[s] += (step * ratio[s]) * directions[s]
        r -= step * product
        rr_new = float(r @ r)
        beta = rr_new / rr
        residuals[usable] = np.abs(zeta_new[usable]) * np.sqrt(rr_new) / size
        active = usable & (residuals > tol)
        if after is not None and after(n_iter, step, x[0]):
            break
        for s in np.flatnonzero(active):
            directions[s] *= beta * ratio[s] ** 2
            directions[s] += zeta_new[s] * r if s else r
        if active.any() and not active[0]:  # products go on along the base system
            directions[0] *= beta
            directions[0] += r
        zeta_old, zeta = zeta, np.where(usable, zeta_new, zeta)
        rr, step_old = rr_new, step
    solutions = np.empty_like(x)
    solutions[order] = x
    of = np.empty(n_shifts)
    of[order] = residuals
    return KrylovSolution(solutions, n_iter, of)
