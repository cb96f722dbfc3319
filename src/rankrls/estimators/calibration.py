"""Probabilities of preferences: calibrated on held-out differences, or of logistic regression.

Calibration fits a link and its slope. The logistic loss of given pairs is minimised by Newton steps
that are weighted least-squares problems: with d = f(preferred) − f(other) + cᵀγ,
p = 1/(1 + exp(−d)), and y = 1 (½ for a tie), a step to the minimum of
Σ w log-loss(y, p) + (alpha/2) ‖f‖² is RankRLS with weights w p(1 − p) and targets
d + (y − p)/(p(1 − p)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_ndtr, ndtr
from sklearn.exceptions import ConvergenceWarning

from rankrls._calls import warn
from rankrls._validation import check_option, encode_qid, show
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, HeldOut
from rankrls.metrics.metric_names import check_metric_name

Array = NDArray[Any]

LINKS = ("logit", "probit")

#: Newton steps end when no difference changes by more than TOL; a step changes none by more than
#: MAX_CHANGE, which keeps them convergent; weights p(1 − p) are at least SMALLEST.
MAX_STEPS, TOL, MAX_CHANGE, SMALLEST = 60, 1e-7, 4.0, 1e-12


@dataclass(frozen=True)
class Calibration:
    """Calibrated probability P(a preferred to b) = g(slope · r), with r = μ/√(1 + v/alpha).

    μ and v are the posterior mean and variance of f(a) − f(b); v/alpha is the variance in units of
    the noise of a judgement of weight 1.

    Attributes
    ----------
    link : {"logit", "probit"}
        The function g: the logistic function, or the normal distribution function.
    slope : float
        >= 0.
    log_loss : float
        Mean of −log P over the held-out judgements used for calibration; a tie counts as half a
        preference in each direction.
    """

    link: str
    slope: float
    log_loss: float

    def proba(self, margin: Array) -> Array:
        """g(slope · r) for margins r of any shape."""
        g = expit if self.link == "logit" else ndtr
        return g(self.slope * margin)


def margins(mean: Array, variance: Array, alpha: float) -> Array:
    """r = μ/√(1 + v/alpha)."""
    return mean / np.sqrt(1.0 + variance / alpha)


def fit_calibration(margin: Array, tie: Array, weight: Array, link: str) -> Calibration:
    """Fit the slope by minimising the log loss of margins r between preferred and other items."""
    # As in Platt's method, the targets are (n + 1)/(n + 2) and 1/(n + 2) instead of 1 and 0, so
    # that the slope stays finite if all differences have the right sign; that of a tie is ½.
    n = len(margin)
    won = np.where(tie, 0.5, (n + 1.0) / (n + 2.0))
    weight = weight / weight.sum()
    scale = float(np.sqrt(weight @ margin**2))
    if not scale > 0:
        return Calibration(link, 0.0, float(np.log(2.0)))
    r, log_g = margin / scale, log_expit if link == "logit" else log_ndtr

    def derivative(slope: float) -> float:  # it increases, because the loss is convex
        u = slope * r
        if link == "logit":
            return float(weight @ ((expit(u) - won) * r))
        log_density = -0.5 * u * u - 0.5 * np.log(2 * np.pi)
        up, down = np.exp(log_density - log_ndtr(u)), np.exp(log_density - log_ndtr(-u))
        return float(weight @ (((1 - won) * down - won * up) * r))

    slope, longest = 0.0, 1.0
    if derivative(0.0) < 0:
        while derivative(longest) < 0:
            longest *= 4.0
        slope = float(brentq(derivative, 0.0, longest, xtol=1e-12, rtol=1e-12))
    loss = -weight @ (np.where(tie, 0.5, 1.0) * log_g(slope * r))
    loss -= 0.5 * weight[tie] @ log_g(-slope * r[tie])
    return Calibration(link, slope / scale, float(loss))


def judgement_folds(graph: PreferenceGraph, by: str, groups: Any = None) -> tuple[Folds, Array]:
    """Given pairs that are left out together, by judgement, item or group; and labels of these."""
    n_pairs = graph.n_given_pairs
    if by == "judgement":
        return Folds.single(n_pairs), np.arange(n_pairs)
    if by == "item":
        return Folds.of_items(graph.pairs)
    coded = encode_qid(groups, n_pairs, name="groups", of="pairs")
    return Folds.of_groups(coded.codes, coded.labels), np.asarray(coded.labels)


def by_judgement(values: Array, folds: Folds, pairs: Array) -> Array:
    """Held-out values (n_alphas, total, n_outputs) in the order of the pairs; NaN if in no fold."""
    n_alphas, _, k = values.shape
    if folds.what != "item":
        out = np.full((n_alphas, len(pairs), k), np.nan)
        out[:, folds.members] = values
        return out
    # Without the preferred item, and without the other one.
    column = (pairs[folds.members, 0] != np.repeat(folds.labels, folds.sizes)).astype(np.int64)
    out = np.full((n_alphas, len(pairs), 2, k), np.nan)
    out[:, folds.members, column] = values
    return out


class JudgementScoring:
    """Score held-out differences, by accuracy or log loss, on the given pairs of a graph."""

    judged = True

    def __init__(self, scoring: Any, graph: PreferenceGraph, loss: Loss) -> None:
        if not isinstance(scoring, str):
            raise ValueError(
                f"scoring={show(scoring)} is not defined for given pairs; use 'pairwise_accuracy' "
                "or 'log_loss'"
            )
        check_metric_name("scoring", scoring, allowed=("pairwise_accuracy",))
        check_option("scoring of given pairs", scoring, ("pairwise_accuracy", "log_loss"))
        self.log_loss = scoring == "log_loss"
        self.graph = graph
        self.z, self.weight = loss.cost.edges(graph.magnitude, graph.pair_weight)
        if self.log_loss and graph.n_outputs > 1:
            raise ValueError("scoring='log_loss' needs a single output")

    def scores(self, held: HeldOut, alphas: Array) -> dict[str, Array]:
        """Accuracy or negative log loss for each alpha; higher is better."""
        if self.log_loss:
            # Log losses are of calibrated margins, which hardly depend on the size of the
            # differences: among equal ones, the squared error decides.
            weight, z = self.weight[held.rows, None], self.z[held.rows, None]
            squares = [float((weight * (z - f) ** 2).sum() / weight.sum()) for f in held.values]
            made = [self._calibration(held, a, alpha, "logit") for a, alpha in enumerate(alphas)]
            losses = -np.array([one.log_loss for one in made])
            return {"mean_score": losses, "mean_squared_error": np.array(squares)}
        told = self.graph.preferring[held.rows]
        weight = self.graph.pair_weight[held.rows][told]
        signs = (np.sign(of_alpha[told]) for of_alpha in held.values)
        scores = [float(0.5 + 0.5 * (weight @ sign).mean() / weight.sum()) for sign in signs]
        return {"mean_score": np.array(scores)}

    def calibrate(self, held: HeldOut, alpha: float) -> Calibration:
        """Calibrate with the link of the smaller log loss; ``held`` is of one alpha."""
        found = [self._calibration(held, 0, alpha, link) for link in LINKS]
        return min(found, key=lambda made: made.log_loss)

    def noise_variance(self, held: HeldOut, alpha: float) -> Array:
        """Variance of the noise of a judgement of weight 1 per output; ``held`` is of one alpha."""
        # The model fixes the ratio of the variances of f and of the noise σ². A held-out error e
        # then has the variance (σ²/alpha)(alpha/w + v), where v is the variance for σ² = alpha.
        assert held.variance is not None
        weight = self.weight[held.rows]
        used = weight > 0
        w, v = weight[used, None], held.variance[0, used]
        e = self.z[held.rows[used], None] - held.values[0, used]
        return (w * e**2 / (1.0 + w * v / alpha)).mean(axis=0)

    def _calibration(self, held: HeldOut, a: int, alpha: float, link: str) -> Calibration:
        assert held.variance is not None
        weight, tie = self.graph.pair_weight[held.rows], self.graph.magnitude[held.rows] == 0
        r = margins(held.values[a, :, 0], held.variance[a, :, 0], alpha)
        used = weight > 0
        return fit_calibration(r[used], tie[used], weight[used], link)


# -- logistic loss -----------------------------------------------------------------------------


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
