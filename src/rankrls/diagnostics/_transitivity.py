"""How transitive a reciprocal relation is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import labels_in_order
from rankrls._relation_labels import Observations

Array = NDArray[Any]


class Transitivity(NamedTuple):
    """Transitivity of a reciprocal relation.

    Attributes
    ----------
    n_triples : int
        Number of triples of objects with three observed pairs, none of them a tie but possibly the
        pair of the best and the worst object.
    cyclic : float
        Share of the triples that are cycles (a above b above c above a); a quarter for random
        preferences.
    weak, moderate, strong : float
        Shares in which, with a above b and b above c, a is not below c, and above c at least as
        clearly as in the weaker, or the stronger, of the two other pairs.
    """

    n_triples: int
    cyclic: float
    weak: float
    moderate: float
    strong: float


def transitivity(Y: Any) -> Transitivity:
    """Measure how transitive a reciprocal relation is.

    A relation with many cycles needs rankings conditioned on the opponent (`ConditionalRankRLS`
    with ``relation="reciprocal"``).

    Parameters
    ----------
    Y : array-like, data frame or sparse matrix of shape (n, n)
        Labels or scores: Y[i, j] > 0 if object i is above object j (subtract ½ from probabilities),
        NaN if unobserved. If both labels of a pair are observed, their difference counts.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.diagnostics import transitivity
    >>> games = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])  # rock, paper, scissors
    >>> transitivity(games).cyclic
    1.0
    """
    Q = Observations.read(labels_in_order(Y, None, None, one_domain=True)).table()
    if Q.shape[0] != Q.shape[1]:
        raise ValueError(f"Y must be square, with a row for each object; got {Q.shape}")
    n = len(Q)
    other = np.where(np.isnan(Q.T), -Q, Q.T)
    Q = 0.5 * (np.where(np.isnan(Q), -other, Q) - other)
    np.fill_diagonal(Q, np.nan)
    cycles = transitive = moderate = strong = 0
    for i in range(n):
        # All paths i above j above k: one for each transitive triple, three for each cycle.
        first, second, last = Q[i][:, None], Q, Q[i]
        path = (first > 0) & (second > 0) & ~np.isnan(last)
        kept = path & (last >= 0)
        cycles += int((path & (last < 0)).sum())
        transitive += int(kept.sum())
        moderate += int((kept & (last >= np.minimum(first, second))).sum())
        strong += int((kept & (last >= np.maximum(first, second))).sum())
    cycles //= 3
    total = cycles + transitive
    if total == 0:
        raise ValueError("Y has no three objects of which all pairs are observed, without ties")
    return Transitivity(total, cycles / total, transitive / total, moderate / total, strong / total)
