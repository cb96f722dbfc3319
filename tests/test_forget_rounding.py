"""Forgetting with an alpha below the rounding that subtraction leaves: the error says so."""

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls.core.linalg.factorizations import EigenFactorization, NotPositiveError
from rankrls.estimators.incremental import Learned

NOISE = 1e-6


@pytest.fixture
def rough(monkeypatch):
    """Differences of sums with rounding errors that are larger than any machine's."""
    subtract = Learned.subtract

    def roughly(self, *args):
        subtract(self, *args)
        for part in self.total:
            part.gram.flat[:: len(part.gram) + 1] -= NOISE

    monkeypatch.setattr(Learned, "subtract", roughly)


NYSTROEM = {"kernel": "rbf", "gamma": 0.01, "basis": 40, "solver": "nystroem"}


@pytest.mark.parametrize("options", [NYSTROEM, {}], ids=["nystroem", "primal"])
def test_the_error_is_about_rounding(rough, options):
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((200, 3)), rng.standard_normal(200), np.repeat(range(20), 10)
    if not options:
        X = np.column_stack([X, X[:, 0]])  # a direction in which nothing covers the noise
    held = (X[qid == 3], y[qid == 3])
    ranker = RankRLS(1e-13, random_state=0, **options).fit(X, y, qid=qid)
    before = ranker.predict(X)
    message = r"^what was forgotten has left rounding errors of the size of \S+e-0[67] .*=1e-13 "
    with pytest.raises(ValueError, match=message) as caught:
        ranker.forget(*held, qid=np.full(10, 3))
    assert "the model was left as it was before this call" in str(caught.value)
    assert "positive semi-definite" not in str(caught.value)  # the kernel is
    np.testing.assert_array_equal(ranker.predict(X), before)
    assert ranker.n_queries_ == 20

    assert isinstance(caught.value.__cause__, NotPositiveError)
    needed = caught.value.__cause__.needed
    assert needed == pytest.approx(NOISE, rel=0.1)
    enough = RankRLS(10 * needed, random_state=0, **options).fit(X, y, qid=qid)
    assert enough.forget(*held, qid=np.full(10, 3)).n_queries_ == 19


def test_a_kernel_that_is_not_positive_is_still_told():
    with pytest.raises(NotPositiveError, match="not positive semi-definite") as caught:
        EigenFactorization(np.diag([2.0, -0.5]), smallest_alpha=0.1)
    assert caught.value.needed == pytest.approx(0.5)
    assert isinstance(caught.value, ValueError)
