"""The logistic loss of given pairs, by Newton steps that are weighted least-squares problems.

With d = f(preferred) − f(other) + cᵀγ, p = 1/(1 + exp(−d)), and y = 1 (½ for a tie), a step to the
minimum of Σ w log-loss(y, p) + (alpha/2) ‖f‖² is RankRLS with weights w p(1 − p) and targets
d + (y − p)/(p(1 − p)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from rankrls._calls import warn
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, HeldOut

Array = NDArray[Any]

#: Newton steps end when no difference changes by more than TOL; a step changes none by more than
#: MAX_CHANGE, which keeps them convergent; weights p(1 − p) are at least SMALLEST.
MAX_STEPS, TOL, MAX_CHANGE, SMALLEST = 60, 1e-7, 4.0, 1e-12


class NewtonStep(NamedTuple):
    """The last least-squares problem and its solution; ``sign`` is −1 for pairs turned round."""

    problem: RidgeProblem
    model: Any
    sign: Array
    d: Array
    n_steps: int


def newton(
    problem: RidgeProblem, alpha: float, d: Array | None = None, *, tell: bool = True
) -> NewtonStep:
    """Minimise the logistic loss of the pairs of a problem, from differences d (zero)."""
    graph = problem.graph
    y = np.where(graph.magnitude == 0, 0.5, 1.0)
    d = np.zeros(len(y)) if d is None else d
    i, j = graph.pairs.T
    n_steps, change = 0, np.inf
    while n_steps < MAX_STEPS and change > TOL * max(1.0, float(np.abs(d).max())):
        n_steps += 1
        p = expit(d)
        curvature = np.maximum(p * (1 - p), SMALLEST)
        z = d + (y - p) / curvature
        sign = np.where(z < 0, -1.0, 1.0)
        C = graph.pair_features
        step = PreferenceGraph.from_pairs(
            np.where(sign[:, None] > 0, graph.pairs, graph.pairs[:, ::-1]),
            n_rows=graph.n_rows,
            magnitude=np.abs(z),
            pair_weight=graph.pair_weight * curvature,
            pair_features=None if C is None else sign[:, None] * C,
        )
        weighted = problem.like(step)
        model = weighted.solve(np.array([alpha]), tell=False)
        f = model.predict(problem.space.X)[:, 0]
        new = f[i] - f[j]
        if C is not None and model.pair_coef is not None:
            new = new + C @ model.pair_coef[0][:, 0]
        change = float(np.abs(new - d)[graph.pair_weight > 0].max())
        d = d + (new - d) * min(1.0, MAX_CHANGE / max(change, MAX_CHANGE))
    if n_steps == MAX_STEPS and tell:
        warn(
            f"link='logit': {MAX_STEPS} Newton steps at alpha={alpha:g} still change differences "
            f"by {change:.2g}: use larger alphas",
            ConvergenceWarning,
        )
    return NewtonStep(weighted, model, sign, d, n_steps)


def hold_out(problem: RidgeProblem, folds: Folds, alphas: Array) -> HeldOut:
    """Held-out differences and their variances, by the last Newton step for each alpha."""
    parts, d = [], None
    for alpha in alphas[::-1]:  # from the simplest model on
        step = newton(problem, float(alpha), d, tell=False)
        held = step.problem.leave_judgements_out(folds, np.array([alpha]), variances=True)
        held.values[...] *= step.sign[folds.members, None]
        parts.append(held)
        d = step.d
    joined = ([getattr(part, name) for part in parts[::-1]] for name in ("values", "variance"))
    values, variance = (np.concatenate(part) for part in joined)
    return HeldOut(
        parts[0].folds, values, np.concatenate([p.n_refits for p in parts[::-1]]), variance
    )
