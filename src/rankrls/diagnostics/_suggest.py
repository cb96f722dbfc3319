"""``suggest_pairs``: which judgements to ask for next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls import _memory
from rankrls._validation import check_integer, check_pairs
from rankrls.estimators import RankRLS, RankRLSCV

__all__ = ["suggest_pairs"]

Array = NDArray[Any]

#: Of more rows than this a part is drawn, all pairs of which are candidates.
MAX_ROWS = 1500

#: Numbers in a work space.
WORK = 2**21


def suggest_pairs(
    estimator: RankRLS | RankRLSCV,
    X: Any,
    *,
    k: int = 10,
    candidates: ArrayLike | None = None,
    random_state: Any = None,
) -> Array:
    """Choose the pairs of rows whose judgements would tell most, as a batch.

    Parameters
    ----------
    estimator : fitted RankRLS or RankRLSCV
        With a direct solver and one output.
    X : array-like or sparse matrix of shape (n, n_features)
        The items to be ranked, judged before or not.
    k : int, default=10
        How many pairs.
    candidates : array-like of shape (n_candidates, 2), optional
        Row numbers of the pairs that can be asked for. None: all pairs of rows; if X has more than
        1500 rows, all pairs of 1500 of them, drawn at random.
    random_state : int, RandomState instance or None, default=None
        For the draw.

    Returns
    -------
    ndarray of shape (k, 2), int
        Row numbers of X, the most informative pair first, each candidate at most once. Fewer than
        k if there are fewer candidates.

    Notes
    -----
    A judgement of (a, b), with noise variance alpha, reduces the posterior variance of the
    differences of all rows of X,

        Σ_{i<j} var(f(x_i) − f(x_j)),   by   n ‖C cov(f, f_a − f_b)‖²/(var(f_a − f_b) + alpha),

    with C the centring of the n rows; that does not depend on its outcome. The pair that reduces it
    most is taken, the covariance is updated (a matrix of rank one), and so on: no model is
    refitted. With a Nyström basis it is the variance that the basis spans. A single judgement is
    counted; to ask several judges for the same pair, put it into ``candidates`` several times.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.diagnostics import suggest_pairs
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> ranker = RankRLS().fit(X, pairs=[(1, 0), (2, 1), (2, 0)])  # the last column is new
    >>> suggest_pairs(ranker, X, k=1)
    array([[1, 3]])
    """
    if not isinstance(estimator, RankRLS | RankRLSCV):
        raise ValueError(
            f"estimator must be a RankRLS or RankRLSCV; got a {type(estimator).__name__}"
        )
    k = check_integer("k", k, least=1)
    rows = estimator._check_new(X)
    n = rows.shape[0]
    if n < 2:
        raise ValueError("X has one row: there is no pair to ask for")
    model = estimator._model
    if model.n_outputs > 1:
        raise ValueError(
            f"the model has {model.n_outputs} outputs: suggest_pairs takes one, fit it to y[:, j]"
        )
    if getattr(model, "used", None) is not None:
        advice = "pass fewer rows (those whose order matters), or fit with a basis"
        _memory.require("the covariance of all rows", n, n, copies=4, advice=advice)
    Z = model.posterior_root(rows)
    if candidates is None:
        drawn = np.arange(n)
        if n > MAX_ROWS:
            drawn = np.sort(check_random_state(random_state).permutation(n)[:MAX_ROWS])
        first, second = np.triu_indices(len(drawn), 1)
        pairs = np.column_stack([drawn[first], drawn[second]])
        return _choose(_AllPairs(drawn, first, second), pairs, Z, model.alpha, k)
    pairs = check_pairs(candidates, n)
    return _choose(_SomePairs(pairs), pairs, Z, model.alpha, k)


class _AllPairs:
    """Every pair of some rows."""

    def __init__(self, rows: Array, first: Array, second: Array) -> None:
        self.rows, self.first, self.second = rows, first, second

    def forms(self, Z: Array, T: Array) -> Array:
        """(Z_a − Z_b)·(T_a − T_b) for T = Z M with a symmetric M, shape (n_pairs,)."""
        gram = Z[self.rows] @ T[self.rows].T
        diagonal = gram.diagonal()
        found = diagonal[self.first] + diagonal[self.second] - 2 * gram[self.first, self.second]
        return np.maximum(found, 0.0)


class _SomePairs:
    """Pairs that were given."""

    def __init__(self, pairs: Array) -> None:
        self.pairs = pairs

    def forms(self, Z: Array, T: Array) -> Array:
        """(Z_a − Z_b)·(T_a − T_b), shape (n_pairs,)."""
        out = np.empty(len(self.pairs))
        step = max(1, WORK // max(Z.shape[1], 1))
        for start in range(0, len(out), step):
            a, b = self.pairs[start : start + step].T
            out[start : start + step] = np.einsum("ij,ij->i", Z[a] - Z[b], T[a] - T[b])
        return np.maximum(out, 0.0)


def _choose(
    candidates: _AllPairs | _SomePairs, pairs: Array, Z: Array, alpha: float, k: int
) -> Array:
    """The pairs by greedy choice, from a root Z of the covariance of the rows, shape (n, r).

    With c = cov(f, f_a − f_b) of the pair that is chosen and s = var(f_a − f_b) + alpha, the
    covariance becomes cov − ccᵀ/s. The numbers of every candidate follow from the differences of
    c, and of h = cov C c, between its rows.
    """
    centred = Z - Z.mean(axis=0)
    variance = candidates.forms(Z, Z)
    explained = candidates.forms(Z, Z @ (centred.T @ centred))  # ‖C cov(f, f_a − f_b)‖²
    left = np.ones(len(pairs), dtype=bool)
    chosen: list[int] = []
    before: list[tuple[Array, float]] = []  # c and s of the pairs that were chosen
    for _ in range(min(k, len(pairs))):
        gain = np.maximum(explained, 0.0) / (np.maximum(variance, 0.0) + alpha)
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        left[best] = False
        chosen.append(best)
        a, b = pairs[best]
        c = Z @ (Z[a] - Z[b])
        for other, scale in before:
            c -= other * ((other[a] - other[b]) / scale)
        s = float(max(c[a] - c[b], 0.0)) + alpha
        around = c - c.mean()
        h = Z @ (Z.T @ around)
        for other, scale in before:
            h -= other * (float(other @ around) / scale)
        before.append((c, s))
        of_c, of_h = c[pairs[:, 0]] - c[pairs[:, 1]], h[pairs[:, 0]] - h[pairs[:, 1]]
        variance -= of_c**2 / s
        explained -= 2 * of_c * of_h / s - of_c**2 * (float(around @ around) / s**2)
    return pairs[chosen]
