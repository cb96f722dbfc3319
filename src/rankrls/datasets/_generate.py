"""Generated data: a search-like ranking problem and a set of pairwise judgements."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state

from rankrls._validation import check_integer

__all__ = ["make_preference_pairs", "make_ranking"]


def make_ranking(
    n_queries: int = 100,
    n_docs: int | tuple[int, int] = 20,
    n_features: int = 20,
    *,
    n_informative: int | None = None,
    n_levels: int | None = 5,
    noise: float = 0.5,
    query_effect: float = 1.0,
    nonlinear: bool = False,
    return_X_y_qid: bool = False,
    random_state: Any = None,
) -> Any:
    r"""Generate documents of queries, with labels that are comparable only within a query.

    Parameters
    ----------
    n_queries : int, default=100
        Number of queries.
    n_docs : int or (low, high), default=20
        Documents of each query; for a pair, drawn uniformly from ``low`` to ``high`` inclusive.
    n_features : int, default=20
        Number of features.
    n_informative : int, default=None
        How many features relevance depends on; by default half of them.
    n_levels : int or None, default=5
        Labels are 0 to ``n_levels - 1``, each less than half as frequent as the one below it, as
        in LETOR data. None gives real-valued labels.
    noise : float, default=0.5
        Standard deviation of the noise in relevance, of which the rest has about 1.
    query_effect : float, default=1.0
        How much queries differ from one another. With 0 all rows have one distribution.
    nonlinear : bool, default=False
        Whether relevance also depends on products of informative features.
    return_X_y_qid : bool, default=False
        Whether to return ``(data, target, qid)`` instead of a Bunch.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
            Features, the documents of a query one after the other.
        target : ndarray of shape (n_rows,)
            Labels.
        qid : ndarray of shape (n_rows,), int64
            Query ids from 0.
        coef : ndarray of shape (n_features,)
            The direction along which documents of one query should be ranked.
        feature_names : list of str
            ``"feature_1"`` …

    Notes
    -----
    With :math:`z` standard normal, a document of query :math:`q` has

    .. math:: x = s_q z + t_q, \qquad
        v = z \cdot coef + h(z) + \epsilon + t_q \cdot w,

    :math:`t_q` normal with standard deviation ``query_effect``, :math:`\log s_q` normal with
    0.3 ``query_effect``, :math:`\epsilon` normal with ``noise``, :math:`h` 0 or
    products of features, and :math:`w` a random direction of length ``2 query_effect``. Labels
    are :math:`v`, or :math:`v` cut at levels that are the same for all queries.

    So :math:`t_q`, which all documents of a query share, tells how high the labels of this query
    are, and nothing about their order; as, say, the number of clicks on a query does.
    A regression over all rows learns a mixture of ``coef`` and ``w``. A learner that compares
    documents of one query only never sees :math:`t_q`.

    Examples
    --------
    >>> from rankrls.datasets import make_ranking
    >>> ranking = make_ranking(n_queries=30, n_docs=(5, 15), n_features=8, random_state=0)
    >>> ranking.data.shape[1], len(set(ranking.qid.tolist()))
    (8, 30)
    >>> sorted(set(ranking.target.tolist()))
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    check_integer("n_queries", n_queries, least=1)
    check_integer("n_features", n_features, least=1)
    low, high = _check_n_docs(n_docs)
    if n_informative is None:
        n_informative = max(1, n_features // 2)
    check_integer("n_informative", n_informative, least=1)
    if n_informative > n_features:
        raise ValueError(f"n_informative={n_informative} is more than n_features={n_features}")
    if n_levels is not None:
        check_integer("n_levels", n_levels, least=2)
    check_spread("noise", noise)
    check_spread("query_effect", query_effect)

    rng = check_random_state(random_state)
    sizes = rng.randint(low, high + 1, size=n_queries)
    qid = np.repeat(np.arange(n_queries, dtype=np.int64), sizes)
    informative = rng.permutation(n_features)[:n_informative]
    coef = np.zeros(n_features)
    coef[informative] = _direction(rng, n_informative)

    z = rng.standard_normal((len(qid), n_features))
    shift = query_effect * rng.standard_normal((n_queries, n_features))
    scale = np.exp(0.3 * query_effect * rng.standard_normal((n_queries, 1)))
    w = 2 * query_effect * _direction(rng, n_features)

    relevance = z @ coef + noise * rng.standard_normal(len(qid)) + (shift @ w)[qid]
    if nonlinear:
        relevance += (z[:, informative] * z[:, np.roll(informative, 1)]).sum(axis=1) / np.sqrt(
            n_informative
        )
    data = scale[qid] * z + shift[qid]
    target = relevance if n_levels is None else _skewed_levels(relevance, n_levels)
    if return_X_y_qid:
        return data, target, qid
    return Bunch(
        data=data,
        target=target,
        qid=qid,
        coef=coef,
        feature_names=[f"feature_{j + 1}" for j in range(n_features)],
    )


def make_preference_pairs(
    n_items: int = 200,
    n_features: int = 10,
    n_pairs: int = 1000,
    *,
    noise: float = 0.5,
    random_state: Any = None,
) -> Bunch:
    r"""Generate noisy judgements of random pairs of items.

    Parameters
    ----------
    n_items : int, default=200
        Number of items, at least 2.
    n_features : int, default=10
        Number of features.
    n_pairs : int, default=1000
        Number of judgements. The same pair may be judged several times, and differently.
    noise : float, default=0.5
        Scale of the noise of a judgement; utilities have a standard deviation of about 1.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_items, n_features)
            Features.
        pairs : ndarray of shape (n_pairs, 2), int64
            Rows of ``data``: the preferred one and the other one.
        magnitude : ndarray of shape (n_pairs,)
            By how much the judge preferred it, > 0.
        utility : ndarray of shape (n_items,)
            True utilities, ``data @ coef``.
        coef : ndarray of shape (n_features,)
            True coefficients.

    Notes
    -----
    A judge of items :math:`i, j` sees :math:`d = u_i - u_j + noise \cdot \epsilon` with a
    logistic :math:`\epsilon`, names the better one by the sign of :math:`d`, and gives
    :math:`|d|` as magnitude. This is the Bradley-Terry model:
    :math:`P(i \succ j) = 1 / (1 + \exp(-(u_i - u_j) / noise))`.

    Examples
    --------
    >>> from rankrls.datasets import make_preference_pairs
    >>> judged = make_preference_pairs(n_items=50, n_pairs=300, noise=0, random_state=0)
    >>> preferred, other = judged.pairs.T
    >>> bool((judged.utility[preferred] > judged.utility[other]).all())
    True
    """
    check_integer("n_items", n_items, least=2)
    check_integer("n_features", n_features, least=1)
    check_integer("n_pairs", n_pairs, least=1)
    check_spread("noise", noise)
    rng = check_random_state(random_state)
    data = rng.standard_normal((n_items, n_features))
    coef = _direction(rng, n_features)
    utility = data @ coef
    left = rng.randint(n_items, size=n_pairs)
    right = (left + rng.randint(1, n_items, size=n_pairs)) % n_items  # never left itself
    seen = utility[left] - utility[right] + noise * rng.logistic(size=n_pairs)
    pairs = np.column_stack([np.where(seen > 0, left, right), np.where(seen > 0, right, left)])
    magnitude = np.maximum(np.abs(seen), np.finfo(float).tiny)
    return Bunch(
        data=data,
        pairs=pairs.astype(np.int64),
        magnitude=magnitude,
        utility=utility,
        coef=coef,
    )


def _direction(rng: np.random.RandomState, n: int) -> NDArray[np.float64]:
    """Return a random vector of length 1."""
    vector = rng.standard_normal(n)
    return vector / np.linalg.norm(vector)


def _skewed_levels(scores: NDArray[np.float64], n_levels: int) -> NDArray[np.float64]:
    """Cut scores into levels with frequencies proportional to 0.45^level."""
    share = 0.45 ** np.arange(n_levels)
    upper = np.quantile(scores, np.cumsum(share)[:-1] / share.sum())
    return np.searchsorted(upper, scores, side="left").astype(np.float64)


def _check_n_docs(n_docs: Any) -> tuple[int, int]:
    low, high = n_docs if isinstance(n_docs, tuple | list) and len(n_docs) == 2 else [n_docs] * 2
    check_integer("n_docs", low, least=1)
    check_integer("n_docs", high, least=1)
    if low > high:
        raise ValueError(f"n_docs must be (low, high) with low <= high; got {n_docs!r}")
    return low, high


def check_spread(name: str, value: Any) -> None:
    """Raise unless ``value`` is a finite number that is not negative."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a finite number >= 0; got {value!r}")
