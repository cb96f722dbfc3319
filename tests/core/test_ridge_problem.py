"""One problem, decomposed once: what is scored is returned."""

import numpy as np
import pytest

import rankrls.core.linalg.factorizations as factorizations
from rankrls import RankRLSCV
from rankrls.core.spaces import spaces
from rankrls.datasets import make_ranking

X, y, qid = make_ranking(n_queries=15, random_state=0, return_X_y_qid=True)
GRID = [0.5, 5.0]

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_kernel_and_its_decomposition_are_computed_once(monkeypatch, kernel):
    calls = {"kernel": 0, "eigh": 0}
    compute, eigh = spaces.Kernel.__call__, factorizations.eigh

    def count(name, function):
        def counted(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return counted

    monkeypatch.setattr(spaces.Kernel, "__call__", count("kernel", compute))
    monkeypatch.setattr(factorizations, "eigh", count("eigh", eigh))
    RankRLSCV(GRID, kernel=kernel).fit(X, y, qid=qid)
    assert calls == {"kernel": 1, "eigh": 1}


@pytest.mark.parametrize("random_state", [None, 0, np.random.RandomState(3)])
def test_the_basis_is_drawn_once(random_state, monkeypatch):
    drawn = []
    draw = spaces.sample_without_replacement

    def counted(*args, **kwargs):
        drawn.append(draw(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(spaces, "sample_without_replacement", counted)
    for cv in ("auto", "validation"):
        drawn.clear()
        ranker = RankRLSCV(GRID, kernel="rbf", basis=20, cv=cv, random_state=random_state)
        ranker.fit(X, y, qid=qid)
        assert len(drawn) == 1
        np.testing.assert_array_equal(ranker.basis_indices_, np.sort(drawn[0]))
