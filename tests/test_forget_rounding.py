"""Forgetting with an alpha below the rounding that subtraction leaves: the error says so."""

import warnings

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls.core.linalg.factorizations import EigenFactorization, NotPositiveError
from rankrls.estimators.incremental import Learned
from rankrls.exceptions import FeatureScaleWarning
from rankrls.io import load_model, save_model

NOISE = 1e-6


@pytest.fixture
def rough(monkeypatch):
    """Differences of sums with rounding errors that are larger than any machine's."""
    add = Learned.add

    def roughly(self, graph, X, loss, sign=1):
        add(self, graph, X, loss, sign)
        for part in self.total if sign < 0 else ():
            part.gram.flat[:: len(part.gram) + 1] -= NOISE

    monkeypatch.setattr(Learned, "add", roughly)


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


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("columns", [slice(0, 1), slice(None)])
@pytest.mark.parametrize("scale", [1e0, 1e2, 1e7, 1e8, 1e9])
def test_a_query_of_large_values_is_forgotten_to_eight_digits_or_not(
    scale, columns, stored, tmp_path
):
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((200, 5)), rng.standard_normal(200), np.repeat(range(20), 10)
    large, labels = rng.standard_normal((10, 5)), rng.standard_normal(10)
    large[:, columns] *= scale
    ranker = RankRLS().fit(X, y, qid=qid)
    before = ranker.coef_.copy()
    ranker.partial_fit(large, labels, qid=[99] * 10)
    if stored:  # what was once added is part of the file
        save_model(ranker, tmp_path / "model.rankrls")
        ranker = load_model(tmp_path / "model.rankrls")
    if scale > 1e6:
        with pytest.raises(ValueError, match=r"Fit a new one to the rows that stay"):
            ranker.forget(large, labels, qid=[99] * 10)
        assert ranker.n_queries_ == 21
    else:
        ranker.forget(large, labels, qid=[99] * 10)
        error = np.abs(ranker.coef_ - before).max() / np.abs(before).max()
        assert error < (1e-12 if scale == 1 else 1e-10)


def test_many_operations_do_not_drift():
    rng = np.random.default_rng(0)
    scales, known, ranker = np.geomspace(1e-5, 1e5, 5), {}, RankRLS()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureScaleWarning)
        for number in range(400):
            if len(known) < 5 or rng.random() < 0.55:
                batch = (rng.standard_normal((8, 5)) * scales, rng.standard_normal(8))
                known[number] = batch
                ranker.partial_fit(*batch, qid=[number] * 8)
            else:
                gone = int(rng.choice(list(known)))
                ranker.forget(*known.pop(gone), qid=[gone] * 8)
        X, y = (np.concatenate(part) for part in zip(*known.values(), strict=True))
        fresh = RankRLS().fit(X, y, qid=np.repeat(list(known), 8))
    np.testing.assert_allclose(ranker.coef_, fresh.coef_, rtol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e9, 1e12, 1e30])
def test_large_labels_leave_no_rounding_errors(scale):
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(200, 4)), rng.integers(0, 3, 200), np.repeat(np.arange(20), 10)
    more, labels, one = rng.normal(size=(10, 4)), scale * np.arange(10.0), np.full(10, 99)
    ranker = RankRLS().fit(X, y, qid=qid)
    expected = ranker.coef_
    ranker.partial_fit(more, labels, qid=one)
    if scale < 1e6:
        ranker.forget(more, labels, qid=one)
        np.testing.assert_allclose(ranker.coef_, expected, rtol=1e-9)
    else:
        with pytest.raises(ValueError, match="what was forgotten has left rounding errors"):
            ranker.forget(more, labels, qid=one)
