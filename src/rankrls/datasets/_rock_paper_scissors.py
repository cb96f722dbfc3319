"""Generated relations: players of rock, paper, scissors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch, check_random_state

from rankrls._validation import check_integer
from rankrls.datasets._generate import check_spread

__all__ = ["make_rock_paper_scissors"]

#: Who beats whom: rock beats scissors, paper beats rock, scissors beat paper.
BEATS = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def make_rock_paper_scissors(
    n_players: int = 100,
    n_games: int = 1000,
    *,
    preference: float = 10.0,
    keep_draws: bool = False,
    random_state: Any = None,
) -> Bunch:
    r"""Generate games of rock, paper, scissors between players with habits of their own.

    Who wins depends on both players, and not in a transitive way: there is no ranking of all
    players, but one for every opponent.

    Parameters
    ----------
    n_players : int, default=100
        Number of players, at least 2.
    n_games : int, default=1000
        Number of games, each between two different players drawn at random.
    preference : float, default=10.0
        How strongly players favour one move, >= 0. With 1 all of them play almost at random,
        with 100 almost everyone has a single move. (w1, w10 and w100 in the paper.)
    keep_draws : bool, default=False
        Whether a draw is a game, too, with the label 0 in both directions. By default all games
        have a winner: instead of a draw two other players play.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_players, 3)
            Features: how often a player plays rock, paper and scissors, rows sum to 1.
        target : coo_array of shape (n_players, n_players)
            Games, each as two edges: +1 from the winner to the loser, −1 back (0 and 0 for a
            draw). Two players may meet several times: entries at the same place are different
            games.
        relation : ndarray of shape (n_players, n_players)
            P(row beats column) − P(column beats row), antisymmetric: what ``target`` is about.
        games : ndarray of shape (n_games, 2), int64
            Winner and loser of each game; the two players of a draw in any order.
        feature_names : list of str
            Names of the three moves.

    Notes
    -----
    After P5 §6.1, which cites Pahikkala et al. (2010) for the details. A player with
    :math:`u \in [0, 1]^3` drawn uniformly plays move :math:`a` with probability

    .. math:: x_a = \exp(w u_a) / \sum_b \exp(w u_b),

    :math:`w` being ``preference``. What becomes of draws is not said there. The relation is
    bilinear in the features, :math:`x^T (B - B^T) x'` with :math:`B_{ab} = 1` if move
    :math:`a` beats :math:`b`, so that a linear kernel can represent it.

    Examples
    --------
    >>> from rankrls import ConditionalRankRLS
    >>> from rankrls.datasets import make_rock_paper_scissors
    >>> train, test = (make_rock_paper_scissors(random_state=seed) for seed in (0, 1))
    >>> ranker = ConditionalRankRLS(alpha=1e-6, relation="reciprocal")
    >>> ranker.fit(train.data, train.target).score(test.data, test.relation) > 0.9
    True
    """
    check_integer("n_players", n_players, least=2)
    check_integer("n_games", n_games, least=1)
    check_spread("preference", preference)
    rng = check_random_state(random_state)
    scores = preference * rng.random_sample((n_players, 3))
    data = np.exp(scores - scores.max(axis=1, keepdims=True))
    data /= data.sum(axis=1, keepdims=True)
    wins = data @ BEATS @ data.T
    games, won = _play(data, n_games, keep_draws, rng)
    winners, losers = games.T
    target = sparse.coo_array(
        (
            np.concatenate([won, -won]),
            (np.concatenate([winners, losers]), np.concatenate([losers, winners])),
        ),
        shape=(n_players, n_players),
    )
    return Bunch(
        data=data,
        target=target,
        relation=wins - wins.T,
        games=games,
        feature_names=["rock", "paper", "scissors"],
    )


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
