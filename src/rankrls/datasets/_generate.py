"""Generated data: rankings, judgements of pairs, a relation, and a table as a shop has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Bunch, check_random_state

from rankrls._frames import data_frame
from rankrls._validation import check_integer, is_number

COLOURS = ("black", "blue", "brown", "green", "grey", "orange", "pink", "red", "white", "yellow")
GOODS = ("bag", "bowl", "chair", "clock", "desk", "jacket", "lamp", "mug", "rug", "shelf")
SELLERS = ("north", "south", "west")

#: Who beats whom: rock beats scissors, paper beats rock, scissors beat paper.
BEATS = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


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
    n_queries, n_features : int, default=100, 20
    n_docs : int or (low, high), default=20
        Documents of each query; for a pair, drawn uniformly from ``low`` to ``high`` inclusive.
    n_informative : int, default=None
        How many features relevance depends on; by default half of them.
    n_levels : int or None, default=5
        Labels are 0 to ``n_levels - 1``, each less than half as frequent as the one below it.
        None gives real-valued labels.
    noise : float, default=0.5
        Standard deviation of the noise in relevance, of which the rest has about 1.
    query_effect : float, default=1.0
        How much queries differ from one another. With 0 all rows have one distribution.
    nonlinear : bool, default=False
        Whether relevance also depends on products of informative features.
    return_X_y_qid : bool, default=False
        Whether to return ``(data, target, qid)`` instead of a Bunch.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data, target : ndarray of shape (n_rows, n_features) and (n_rows,)
            Features and labels, the documents of a query one after the other.
        qid : ndarray of shape (n_rows,), int64
            Query ids from 0.
        coef, feature_names : ndarray and list of length n_features
            The direction along which documents of one query should be ranked; names.

    Notes
    -----
    With :math:`z` standard normal, a document of query :math:`q` has features
    :math:`x = s_q z + t_q` and the relevance :math:`z \cdot coef + h(z) + \epsilon + t_q \cdot w`,
    in which :math:`h` is 0 or products of features and :math:`w` a random direction. A regression
    over all rows learns a mixture of ``coef`` and ``w``.

    Examples
    --------
    >>> from rankrls.datasets import make_ranking
    >>> make_ranking(n_queries=30, n_docs=10, n_features=8, random_state=0).data.shape
    (300, 8)
    """
    low, high = n_docs if isinstance(n_docs, tuple | list) and len(n_docs) == 2 else [n_docs] * 2
    _at_least(1, n_queries=n_queries, n_features=n_features, n_docs=low)
    check_integer("n_docs", high, least=low)
    n_informative = max(1, n_features // 2) if n_informative is None else n_informative
    _at_least(1, n_informative=n_informative)
    if n_informative > n_features:
        raise ValueError(f"n_informative={n_informative} is more than n_features={n_features}")
    if n_levels is not None:
        check_integer("n_levels", n_levels, least=2)
    _check_spread(noise=noise, query_effect=query_effect)
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
    names = [f"feature_{j + 1}" for j in range(n_features)]
    return Bunch(data=data, target=target, qid=qid, coef=coef, feature_names=names)


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
    n_items, n_features : int, default=200, 10
    n_pairs : int, default=1000
        Number of judgements. The same pair may be judged several times, and differently.
    noise : float, default=0.5
        Scale of the noise of a judgement; utilities have a standard deviation of about 1.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_items, n_features)
            Features of the items.
        pairs : ndarray of shape (n_pairs, 2), int64
            Rows of ``data``: the preferred one and the other one.
        magnitude : ndarray of shape (n_pairs,)
            By how much the judge preferred it, > 0.
        utility, coef : ndarray of shape (n_items,) and (n_features,)
            True utilities, ``data @ coef``.

    Notes
    -----
    A judge sees :math:`d = u_i - u_j + noise \cdot \epsilon` with a logistic :math:`\epsilon`,
    prefers by the sign of :math:`d`, and gives :math:`|d|` as magnitude: the Bradley-Terry model
    :math:`P(i \succ j) = 1 / (1 + \exp(-(u_i - u_j) / noise))`.
    """
    _at_least(2, n_items=n_items)
    _at_least(1, n_features=n_features, n_pairs=n_pairs)
    _check_spread(noise=noise)
    rng = check_random_state(random_state)
    data = rng.standard_normal((n_items, n_features))
    coef = _direction(rng, n_features)
    utility = data @ coef
    left = rng.randint(n_items, size=n_pairs)
    right = (left + rng.randint(1, n_items, size=n_pairs)) % n_items  # never left itself
    seen = utility[left] - utility[right] + noise * rng.logistic(size=n_pairs)
    pairs = np.column_stack([np.where(seen > 0, left, right), np.where(seen > 0, right, left)])
    magnitude = np.maximum(np.abs(seen), np.finfo(float).tiny)
    pairs = pairs.astype(np.int64)
    return Bunch(data=data, pairs=pairs, magnitude=magnitude, utility=utility, coef=coef)


def make_rock_paper_scissors(
    n_players: int = 100,
    n_games: int = 1000,
    *,
    preference: float = 10.0,
    keep_draws: bool = False,
    random_state: Any = None,
) -> Bunch:
    r"""Generate games of rock, paper, scissors between players with habits of their own.

    Who wins is not transitive: there is no ranking of all players, but one for every opponent.

    Parameters
    ----------
    n_players, n_games : int, default=100, 1000
        Every game is between two different players drawn at random.
    preference : float, default=10.0
        How strongly players favour one move, >= 0: 1 almost not, 100 almost always (w of P5).
    keep_draws : bool, default=False
        Whether a draw is a game, too, with the label 0 in both directions. By default two other
        players play instead.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_players, 3)
            Features: how often a player plays rock, paper and scissors, rows sum to 1.
        target : coo_array of shape (n_players, n_players)
            Games, each as two edges: +1 from the winner to the loser, −1 back (0 and 0 for a
            draw). Entries at the same place are different games.
        relation : ndarray of shape (n_players, n_players)
            P(row beats column) − P(column beats row), antisymmetric.
        games : ndarray of shape (n_games, 2), int64
            Winner and loser of each game; the two players of a draw in any order.
        feature_names : list of str
            Names of the features.

    Notes
    -----
    After P5 §6.1. A player with :math:`u \in [0, 1]^3` drawn uniformly plays move :math:`a` with a
    probability proportional to :math:`\exp(w u_a)`, :math:`w` being ``preference``.
    """
    _at_least(2, n_players=n_players)
    _at_least(1, n_games=n_games)
    _check_spread(preference=preference)
    rng = check_random_state(random_state)
    scores = preference * rng.random_sample((n_players, 3))
    data = np.exp(scores - scores.max(axis=1, keepdims=True))
    data /= data.sum(axis=1, keepdims=True)
    wins = data @ BEATS @ data.T
    games, won = _play(data, n_games, keep_draws, rng)
    edges = np.concatenate([games.T, games.T[::-1]], axis=1)
    target = sparse.coo_array(
        (np.concatenate([won, -won]), tuple(edges)), shape=(n_players, n_players)
    )
    return Bunch(
        data=data,
        target=target,
        relation=wins - wins.T,
        games=games,
        feature_names=["rock", "paper", "scissors"],
    )


def make_product_search(
    n_queries: int = 60, n_products: int = 25, *, random_state: Any = None
) -> Any:
    """Generate a table of products found by searches, each with a grade of relevance.

    It has columns of different scales and of long tails, text, booleans and missing values. Grades
    depend on the logarithms of clicks and price, and on one of the sellers having it in stock.

    Parameters
    ----------
    n_queries, n_products : int, default=60, 25
    random_state : int, RandomState or None, default=None

    Returns
    -------
    table : pandas.DataFrame
        One row for each product of a search: query (such as "red lamp"), product (its name),
        clicks (int), price (a fifth are missing), seller ("north", "south" or "west"), in_stock
        (bool) and grade (0 to 3).
    """
    _at_least(1, n_queries=n_queries, n_products=n_products)
    rng = check_random_state(random_state)
    n = n_queries * n_products
    searches = [f"{colour} {good}" for good in GOODS for colour in COLOURS]
    editions = [f" {i + 1}" * (i > 0) for i in range(n_queries // len(searches) + 1)]
    names = [search + edition for edition in editions for search in searches][:n_queries]
    query = np.repeat(names, n_products)
    clicks = rng.poisson(np.exp(rng.normal(2, 1.5, size=n)))
    price = np.exp(rng.normal(3, 1, size=n)).round(2)
    seller = np.array(SELLERS)[rng.randint(len(SELLERS), size=n)]
    in_stock = rng.uniform(size=n) < 0.7
    worth = np.log1p(clicks) - 0.5 * np.log(price + 0.01) + 1.5 * ((seller == "west") & in_stock)
    grade = np.digitize(worth + rng.normal(size=n), [0.5, 2, 3.5])
    return data_frame(
        {
            "query": query,
            "product": [f"{text.split()[1]} {1000 + i}" for i, text in enumerate(query)],
            "clicks": clicks,
            "price": np.where(rng.uniform(size=n) < 0.2, np.nan, price),
            "seller": seller,
            "in_stock": in_stock,
            "grade": grade,
        },
        caller="make_product_search",
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


def _at_least(least: int, **values: Any) -> None:
    for name, value in values.items():
        check_integer(name, value, least=least)


def _check_spread(**values: Any) -> None:
    for name, value in values.items():
        if not is_number(value) or not 0 <= float(value) < np.inf:
            raise ValueError(f"{name} must be a finite number >= 0; got {value!r}")


def _play(data: Any, n_games: int, keep_draws: bool, rng: np.random.RandomState) -> Any:
    """Games, shape (n_games, 2): winner and loser; and 1 for each, or 0 if it was a draw."""
    n_players = len(data)
    cumulated = np.cumsum(data, axis=1)
    played: list[Any] = []
    n_left, empty = n_games, 0
    while n_left > 0:
        n = 2 * n_left + 16
        first = rng.randint(n_players, size=n)
        second = (first + rng.randint(1, n_players, size=n)) % n_players
        moves = [
            np.minimum((rng.random_sample((n, 1)) > cumulated[who]).sum(axis=1), 2)
            for who in (first, second)
        ]
        won, lost = BEATS[moves[0], moves[1]] > 0, BEATS[moves[1], moves[0]] > 0
        winner, loser = np.where(won, first, second), np.where(won, second, first)
        counts = (won | lost) | keep_draws
        found = np.column_stack([winner, loser, won | lost])[counts][:n_left]
        played.append(found)
        n_left -= len(found)
        empty = 0 if len(found) else empty + 1
        if empty == 1000:
            raise ValueError("all players play the same move, and nobody ever wins: reduce "
                             "preference, or draw more players")  # fmt: skip
    games = np.concatenate(played).astype(np.int64)
    return games[:, :2], games[:, 2].astype(np.float64)
