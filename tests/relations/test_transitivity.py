"""Transitivity of reciprocal relations."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from rankrls import ConditionalRankRLS
from rankrls.datasets import make_rock_paper_scissors
from rankrls.diagnostics import transitivity


def test_shares_are_those_of_all_triples():
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((9, 9))
    Q = Q - Q.T
    counts = dict.fromkeys(("cyclic", "weak", "moderate", "strong"), 0)
    for triple in combinations(range(9), 3):
        wins = [sum(Q[i, j] > 0 for j in triple if j != i) for i in triple]
        if wins == [1, 1, 1]:
            counts["cyclic"] += 1
            continue
        a, b, c = (triple[wins.index(n)] for n in (2, 1, 0))
        counts["weak"] += 1
        counts["moderate"] += Q[a, c] >= min(Q[a, b], Q[b, c])
        counts["strong"] += Q[a, c] >= max(Q[a, b], Q[b, c])
    found = transitivity(Q)
    assert found.n_triples == 84
    for name, count in counts.items():
        assert getattr(found, name) == pytest.approx(count / 84)
    half = np.where(np.triu(np.ones((9, 9)), 1) > 0, Q, np.nan)  # one direction of each pair
    assert transitivity(half) == found
    frame = pd.DataFrame(Q, index=list("abcdefghi"), columns=list("abcdefghi"))
    assert transitivity(frame[frame.columns[::-1]]) == found
    rows, cols = np.nonzero(~np.isnan(half))
    assert transitivity(sparse.coo_array((half[rows, cols], (rows, cols)), shape=(9, 9))) == found


def test_a_fitted_relation_keeps_the_cycles_of_its_games():
    games = make_rock_paper_scissors(random_state=0)
    model = ConditionalRankRLS(1e-3, relation="reciprocal").fit(games.data, games.target)
    assert transitivity(games.target).cyclic > 0.3
    assert transitivity(model.predict(games.data)).cyclic > 0.15
    skill = games.data[:, 0]
    assert transitivity(skill[:, None] - skill).cyclic == 0.0


def test_what_is_refused():
    with pytest.raises(ValueError, match="square"):
        transitivity(np.ones((2, 3)))
    with pytest.raises(ValueError, match="no three objects"):
        transitivity(np.zeros((4, 4)))
