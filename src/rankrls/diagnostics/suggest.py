"""``suggest_pairs``: the most informative judgements to collect next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.utils import check_random_state

from rankrls import _resources
from rankrls._calls import tells
from rankrls._validation import check_integer, check_pairs
from rankrls.estimators import RankRLS, RankRLSCV

Array = NDArray[Any]

#: If X has more rows than this, the candidates are all pairs of a random sample of this size.
MAX_ROWS = 1500

#: The logistic function is approximately the distribution function of a normal variable with this
#: standard deviation.
LOGISTIC = 1.7

#: Maximum size of a work array.
WORK = 2**21


@tells("pairs that reduce the variance most")
def suggest_pairs(
    estimator: RankRLS | RankRLSCV,
    X: Any,
    *,
    k: int = 10,
    top: int | None = None,
    candidates: ArrayLike | None = None,
    random_state: Any = None,
) -> Array:
    """Choose a batch of pairs whose judgements would be most informative.

    Parameters
    ----------
    estimator : fitted RankRLS or RankRLSCV
        A model fitted by a direct solver, with one output.
    X : array-like or sparse matrix of shape (n, n_features)
        The items to be ranked, whether judged before or not.
    k : int, default=10
        Number of pairs to choose.
    top : int, optional
        Choose judgements that determine which rows are among the first ``top``.
    candidates : array-like of shape (n_candidates, 2), optional
        Row indices of the pairs to choose from, each at most once. By default all pairs of rows
        (of 1500 rows drawn at random, if there are more).
    random_state : int, RandomState instance or None, default=None
        Seed of the random sample.

    Returns
    -------
    ndarray of shape (k, 2), int
        Row indices of X, the most informative pair first; fewer if there are fewer candidates.

    Notes
    -----
    A judgement of (a, b), with noise variance alpha, reduces the total posterior variance of the
    differences between all rows of X,

        Σ_{i<j} var(f(x_i) − f(x_j)),   by   n ‖C cov(f, f_a − f_b)‖²/(var(f_a − f_b) + alpha),

    with C the centring of the n rows, whatever its outcome. Pairs are chosen greedily, with a
    rank-one update of the covariance after each. With ``top``, the variance of a difference has
    weight p_i p_j, where p_i is the posterior probability (calibrated, if the estimator has a
    ``calibration_``) that row i is on the wrong side of the border between the first ``top`` rows
    and the others.

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
        raise ValueError("X has one row; give at least two rows to form a pair")
    model = estimator._model
    if model.n_outputs > 1:
        raise ValueError(
            f"the model has {model.n_outputs} outputs; fit it to one of them, y[:, j], to choose "
            "pairs"
        )
    if getattr(model, "used", None) is not None:
        advice = "pass fewer rows (those whose order matters), or fit with a basis"
        _resources.require("the covariance of all rows", n, n, copies=4, advice=advice)
    if top is not None and check_integer("top", top, least=1) >= n:
        raise ValueError(f"top={top} must be below the number of rows of X, which is {n}")
    Z = model.posterior_root(rows)
    weight = np.ones(n)
    if top is not None:
        # Noise of a judgement, in units of √alpha, from the calibration.
        known, noise = getattr(estimator, "calibration_", None), 1.0
        if known is not None and known.slope > 0:
            unit = 1.0 if known.link == "probit" else LOGISTIC
            noise = unit / (known.slope * np.sqrt(model.alpha))
        weight = _misplaced(Z * noise, np.ravel(estimator.predict(X)), top)
    if candidates is None:
        drawn = np.arange(n)
        if n > MAX_ROWS:
            drawn = np.sort(check_random_state(random_state).permutation(n)[:MAX_ROWS])
        pairs = drawn[np.column_stack(np.triu_indices(len(drawn), 1))]
    else:
        pairs = check_pairs(candidates, n, name="candidates")
    return choose_pairs(pairs, Z, weight, np.full(len(pairs), model.alpha), k)


def _misplaced(Z: Array, f: Array, top: int) -> Array:
    """Probability that each row is on the wrong side of the border, from a root Z of variances."""
    beside = np.argsort(-f, kind="stable")[top - 1 : top + 1]
    distance = np.abs(f - f[beside].mean())
    deviation = np.sqrt(np.square(Z - Z[beside].mean(axis=0)).sum(axis=1))
    certain = np.where(distance > 0, np.inf, 0.0)
    ratio = np.divide(distance, deviation, out=certain, where=deviation > 0)
    weight: Array = ndtr(-ratio)
    # Only relative sizes matter; if no row is in doubt, all rows have the same weight.
    return weight / weight.max() if weight.any() else np.ones(len(f))


def _forms(pairs: Array, Z: Array, T: Array) -> Array:
    """(Z_a − Z_b)·(T_a − T_b) for T = Z M with a symmetric M, shape (n_pairs,)."""
    rows, index = np.unique(pairs, return_inverse=True)
    first, second = index.reshape(pairs.shape).T
    if len(rows) ** 2 <= 4 * len(pairs):  # nearly all pairs of these rows
        gram = Z[rows] @ T[rows].T
        diagonal = gram.diagonal()
        found = diagonal[first] + diagonal[second] - 2 * gram[first, second]
        return np.maximum(found, 0.0)
    out = np.empty(len(pairs))
    step = max(1, WORK // max(Z.shape[1], 1))
    for start in range(0, len(out), step):
        a, b = pairs[start : start + step].T
        out[start : start + step] = np.einsum("ij,ij->i", Z[a] - Z[b], T[a] - T[b])
    return np.maximum(out, 0.0)


def choose_pairs(pairs: Array, Z: Array, weight: Array, noise: Array, k: int) -> Array:
    """Choose pairs greedily, from a root Z of the covariance of the rows, shape (n, r).

    With c = cov(f, f_a − f_b) of the chosen pair and s = var(f_a − f_b) + noise, the covariance
    becomes cov − ccᵀ/s. The criterion of each candidate is updated from the differences, between
    its rows, of c and of h = cov P C c, with P = diag(weight) and C the centring by weights.
    """
    weight = weight / weight.sum()
    centred = Z - weight @ Z
    variance = _forms(pairs, Z, Z)
    # Σ p_i (C cov(f, f_a − f_b))_i²
    explained = _forms(pairs, Z, Z @ (centred.T @ (weight[:, None] * centred)))
    left = np.ones(len(pairs), dtype=bool)
    chosen: list[int] = []
    before: list[tuple[Array, float]] = []  # c and s of the pairs chosen so far
    for _ in range(min(k, len(pairs))):
        gain = np.maximum(explained, 0.0) / (np.maximum(variance, 0.0) + noise)
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        left[best] = False
        chosen.append(best)
        a, b = pairs[best]
        c = Z @ (Z[a] - Z[b])
        for other, scale in before:
            c -= other * ((other[a] - other[b]) / scale)
        s = float(max(c[a] - c[b], 0.0) + noise[best])
        around = c - weight @ c
        weighted = weight * around
        h = Z @ (Z.T @ weighted)
        for other, scale in before:
            h -= other * (float(other @ weighted) / scale)
        before.append((c, s))
        of_c, of_h = c[pairs[:, 0]] - c[pairs[:, 1]], h[pairs[:, 0]] - h[pairs[:, 1]]
        variance -= of_c**2 / s
        explained -= 2 * of_c * of_h / s - of_c**2 * (float(around @ weighted) / s**2)
    return pairs[chosen]
