"""Hinge losses of preferences: value and subgradient in O(m log m), whatever the number of pairs.

With z_e = 1 − (f_h − f_j) the violation of an edge h → j of weight c_e,

    hinge     Σ c max(0, z)          squared hinge     Σ c max(0, z)²

A loss is asked for dual variables β_e >= 0 of its edges, and gives what a solver needs of them:
δ = Σ β_e (e_h − e_j), which is minus the (sub)gradient with respect to f, and Σ β_e.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.hinge.dominance import Dominance
from rankrls.core.hinge.scored_rows import ScoredRows
from rankrls.core.preferences.graph import PreferenceGraph

__all__ = ["HingeLoss", "PairHinge", "ScoreHinge", "SumHinge", "Violations", "hinge_losses"]

Array = NDArray[Any]

#: The pairs of scores are written out if there are no more than this many, in all or for each row:
#: then that is faster than counting them.
MAX_PAIRS = 2**15
PAIRS_PER_ROW = 8

#: The same for the pairs whose violation is between 0 and mu, when the corner is rounded.
CORNER_PER_ROW = 16


@dataclass(frozen=True)
class Violations:
    """Dual variables β of all edges at some f, and the loss there.

    Attributes
    ----------
    delta : ndarray of shape (m,)
        δ = Σ_e β_e (e_h − e_j).
    beta : float
        Σ_e β_e.
    loss : float
    value : float
        Of the function whose (sub)gradient is −δ: the loss itself, or with a round corner.
    slack : float
        What the dual variables fall short of the loss, >= 0: they certify loss − slack.
    """

    delta: Array
    beta: float
    loss: float
    value: float
    slack: float = 0.0


@dataclass(frozen=True)
class Sums:
    """δ and Σβ as in `Violations`, and the lead Σ_e β_e (f_h − f_j)."""

    delta: Array
    beta: float
    lead: float


class HingeLoss(ABC):
    """The edges of one output.

    Attributes
    ----------
    n_rows, n_pairs : int
        Rows m, and edges with weight.
    total : float
        Σ_e c_e.
    """

    n_rows: int
    n_pairs: int
    total: float

    @abstractmethod
    def step(self, f: Array, t: float) -> Sums:
        """Sums for β = c where f_h − f_j < t, and 0 elsewhere; f has shape (m,)."""

    @abstractmethod
    def ramp(self, f: Array, t: float) -> Sums:
        """Sums for β = c max(0, t − (f_h − f_j))."""

    @abstractmethod
    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """The edges with low <= f_h − f_j < high, written out; None if more than ``limit``."""

    @abstractmethod
    def used(self) -> Array:
        """Which rows have an edge: (m,), bool."""

    def hinge(self, f: Array) -> Violations:
        """Σ c max(0, z) and its subgradient: β = c where z > 0."""
        sums = self.step(f, 1.0)
        loss = sums.beta - sums.lead
        return Violations(sums.delta, sums.beta, loss, loss)

    def squared(self, f: Array) -> Violations:
        """Σ c max(0, z)² and its gradient: β = 2 c max(0, z), so that the loss is ½ Σ β z."""
        sums = self.ramp(f, 1.0)
        loss = sums.beta - sums.lead
        return Violations(2 * sums.delta, 2 * sums.beta, loss, loss)

    def smoothed(self, f: Array, mu: float) -> Violations:
        """Σ c max(0, z), with β = c clip(z/mu, 0, 1): the gradient of a hinge with a round corner.

        β is a difference of two ramps, their squares that of the rounded loss, c z²/(2 mu) for
        0 < z < mu and c (z − mu/2) above; the slack is Σ c z (1 − z/mu) over 0 < z < mu.
        """
        upper, lower = self.ramp(f, 1.0), self.ramp(f, 1.0 - mu)
        beta, lead = (upper.beta - lower.beta) / mu, (upper.lead - lower.lead) / mu
        value = (upper.beta - upper.lead - ((1.0 - mu) * lower.beta - lower.lead)) / (2 * mu)
        slack = max(upper.beta - (beta - lead), 0.0)
        return Violations((upper.delta - lower.delta) / mu, beta, upper.beta, value, slack)


class PairHinge(HingeLoss):
    """Edges written out.

    Parameters
    ----------
    head, tail : ndarray of shape (l,), int
        Rows: head is preferred.
    weight : ndarray of shape (l,)
        c > 0.
    n_rows : int
    """

    def __init__(self, head: Array, tail: Array, weight: Array, n_rows: int) -> None:
        self.head, self.tail, self.weight = head, tail, weight
        self.n_rows, self.n_pairs = n_rows, len(head)
        self.total = float(weight.sum())

    @classmethod
    def of_rows(cls, rows: ScoredRows, upper: Array, lower: Array, n_rows: int) -> PairHinge:
        """Edges between sorted rows, by their positions there."""
        weight = rows.edge_weight(upper, lower)
        return cls(rows.order[upper], rows.order[lower], weight, n_rows)

    @classmethod
    def concatenate(cls, parts: Sequence[PairHinge]) -> PairHinge:
        """All edges of several."""
        head, tail, weight = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("head", "tail", "weight")
        )
        return cls(head, tail, weight, parts[0].n_rows)

    def step(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.step`."""
        upper, lower = f[self.head], f[self.tail]
        return self._sums(upper - lower, np.where(upper < lower + t, self.weight, 0.0))

    def ramp(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.ramp`."""
        upper, lower = f[self.head], f[self.tail]
        beta = np.maximum((lower + t) - upper, 0.0)
        beta *= self.weight
        return self._sums(upper - lower, beta)

    def smoothed(self, f: Array, mu: float) -> Violations:
        """See `HingeLoss.smoothed`."""
        upper, lower = f[self.head], f[self.tail]
        z = (lower + 1.0) - upper
        loss = float(self.weight @ np.maximum(z, 0.0))
        beta = self.weight * np.clip(z / mu, 0.0, 1.0)
        certified = float(beta @ z)
        # β z − mu β²/(2c) for every edge
        value = certified - 0.5 * mu * float(beta @ (beta / self.weight))
        slack = max(loss - certified, 0.0)
        return Violations(self.spread(beta), float(beta.sum()), loss, value, slack)

    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """See `HingeLoss.between`."""
        upper, lower = f[self.head], f[self.tail]
        inside = np.flatnonzero((upper < lower + high) & ~(upper < lower + low))
        if len(inside) > limit:
            return None
        head, tail = self.head[inside], self.tail[inside]
        return PairHinge(head, tail, self.weight[inside], self.n_rows)

    def used(self) -> Array:
        """See `HingeLoss.used`."""
        used = np.zeros(self.n_rows, dtype=bool)
        used[self.head] = used[self.tail] = True
        return used

    def _sums(self, lead: Array, beta: Array) -> Sums:
        return Sums(self.spread(beta), float(beta.sum()), float(beta @ lead))

    def spread(self, beta: Array) -> Array:
        """δ = Σ_e β_e (e_h − e_j), of shape (m,)."""
        delta = np.bincount(self.head, beta, minlength=self.n_rows)
        delta -= np.bincount(self.tail, beta, minlength=self.n_rows)
        return delta

    def degrees(self, theta: Array) -> Array:
        """Σ of theta over the edges of every row, of shape (m,)."""
        degrees = np.bincount(self.head, theta, minlength=self.n_rows)
        degrees += np.bincount(self.tail, theta, minlength=self.n_rows)
        return degrees


class ScoreHinge(HingeLoss):
    """The edges between all rows of a query with different scores: counted, never written out.

    Parameters
    ----------
    rows : ScoredRows
    n_rows : int
        Length m of f.
    """

    def __init__(self, rows: ScoredRows, n_rows: int) -> None:
        self.rows = rows
        self.n_rows, self.n_pairs, self.total = n_rows, rows.n_pairs, rows.total_weight
        self.dominance = Dominance(rows.level, rows.starts)

    def step(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.step`."""
        f = f[self.rows.order]
        if self.rows.weight is None:
            below, above = self.dominance.count(f, t)
        else:
            (below,), (above,) = self.dominance.weigh(f, t, self.rows.weight[None])
        return self._sums(self.rows.centred(f), below, above)

    def ramp(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.ramp`: Σ_j ω_j (t − f_h + f_j) = (t − f_h) Σ ω_j + Σ ω_j f_j."""
        f = f[self.rows.order]
        centred = self.rows.centred(f)
        weight = np.ones_like(f) if self.rows.weight is None else self.rows.weight
        below, above = self.dominance.weigh(f, t, np.stack([weight, weight * centred]))
        ramp_below = (t - centred) * below[0] + below[1]
        ramp_above = (t + centred) * above[0] - above[1]
        return self._sums(centred, np.maximum(ramp_below, 0.0), np.maximum(ramp_above, 0.0))

    def smoothed(self, f: Array, mu: float) -> Violations:
        """See `HingeLoss.smoothed`; the pairs in the corner are written out if they are few."""
        corner = self.between(f, 1.0 - mu, 1.0, CORNER_PER_ROW * len(self.rows.order))
        if corner is None:
            return super().smoothed(f, mu)
        beyond, near = self.step(f, 1.0 - mu), corner.smoothed(f, mu)
        return Violations(
            beyond.delta + near.delta,
            beyond.beta + near.beta,
            beyond.beta - beyond.lead + near.loss,
            (1.0 - 0.5 * mu) * beyond.beta - beyond.lead + near.value,
            near.slack,
        )

    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """See `HingeLoss.between`; all pairs are written out without comparing any two rows."""
        if low == -np.inf and high == np.inf and self.n_pairs <= limit:
            return PairHinge.of_rows(self.rows, *self.rows.edges(), self.n_rows)
        pairs = self.dominance.between(f[self.rows.order], low, high, limit)
        if pairs is None or len(pairs[0]) > limit:
            return None
        return PairHinge.of_rows(self.rows, *pairs, self.n_rows)

    def used(self) -> Array:
        """See `HingeLoss.used`."""
        used = np.zeros(self.n_rows, dtype=bool)
        used[self.rows.order] = True
        return used

    def _sums(self, f: Array, below: Array, above: Array) -> Sums:
        """δ_i = c ω_i (Σ_j β_ij/c − Σ_h β_hi/c) from the sums over each row's partners."""
        below = self.rows.row_scale * below
        delta = np.zeros(self.n_rows)
        own = below - self.rows.row_scale * above
        delta[self.rows.order] = own
        return Sums(delta, float(below.sum()), float(own @ f))


class SumHinge(HingeLoss):
    """Scores and given pairs together."""

    def __init__(self, parts: tuple[HingeLoss, ...]) -> None:
        self.parts = parts
        self.n_rows = parts[0].n_rows
        self.n_pairs = sum(part.n_pairs for part in parts)
        self.total = sum(part.total for part in parts)

    def step(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.step`."""
        return _add([part.step(f, t) for part in self.parts])

    def ramp(self, f: Array, t: float) -> Sums:
        """See `HingeLoss.ramp`."""
        return _add([part.ramp(f, t) for part in self.parts])

    def smoothed(self, f: Array, mu: float) -> Violations:
        """See `HingeLoss.smoothed`."""
        parts = [part.smoothed(f, mu) for part in self.parts]
        return Violations(
            np.sum([part.delta for part in parts], axis=0),
            sum(part.beta for part in parts),
            sum(part.loss for part in parts),
            sum(part.value for part in parts),
            sum(part.slack for part in parts),
        )

    def between(self, f: Array, low: float, high: float, limit: int) -> PairHinge | None:
        """See `HingeLoss.between`."""
        found = [part.between(f, low, high, limit) for part in self.parts]
        kept = [part for part in found if part is not None]
        if len(kept) < len(found) or sum(part.n_pairs for part in kept) > limit:
            return None
        return PairHinge.concatenate(kept)

    def used(self) -> Array:
        """See `HingeLoss.used`."""
        return np.any([part.used() for part in self.parts], axis=0)


def _add(parts: list[Sums]) -> Sums:
    return Sums(
        np.sum([part.delta for part in parts], axis=0),
        sum(part.beta for part in parts),
        sum(part.lead for part in parts),
    )


def hinge_losses(graph: PreferenceGraph, query_weighting: str) -> list[HingeLoss]:
    """The loss of every output of a graph.

    Only pairs with different scores are edges, and the margin is 1 whatever the magnitude. Given
    pairs weigh their pair_weight, in every output.
    """
    given: tuple[HingeLoss, ...] = ()
    if graph.has_pairs():
        used = graph.pair_weight > 0
        head, tail = graph.pairs[used].T
        given = (PairHinge(head, tail, graph.pair_weight[used], graph.n_rows),)
    if graph.scores is None or graph.query_codes is None:
        return [*given]
    losses: list[HingeLoss] = []
    for s in graph.scores.T:
        rows = ScoredRows.of(s, graph.query_codes, graph.sample_weight, query_weighting)
        parts = given
        if rows.n_pairs:
            parts = (_from_rows(rows, graph.n_rows), *given)
        losses.append(parts[0] if len(parts) == 1 else SumHinge(parts))
    return losses


def _from_rows(rows: ScoredRows, n_rows: int) -> HingeLoss:
    if rows.n_pairs <= max(MAX_PAIRS, PAIRS_PER_ROW * len(rows.order)):
        return PairHinge.of_rows(rows, *rows.edges(), n_rows)
    return ScoreHinge(rows, n_rows)
