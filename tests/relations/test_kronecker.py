"""The public operator of sampled Kronecker products, and the callback of the relation solver."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator, cg

from rankrls import ConditionalRankRLS
from rankrls.kronecker import KroneckerOperator

RNG = np.random.default_rng(2)
K, G = RNG.standard_normal((4, 5)), RNG.standard_normal((6, 3))
ENDS = RNG.integers(5, size=12), RNG.integers(3, size=12)  # with repetitions
TO = RNG.integers(4, size=20), RNG.integers(6, size=20)


def naive(ends, to):
    rows = np.arange(24) if to is None else to[0] * 6 + to[1]
    columns = np.arange(15) if ends is None else ends[0] * 3 + ends[1]
    return np.kron(K, G)[np.ix_(rows, columns)]


@pytest.mark.parametrize("form", ["auto", "dense", "sampled"])
@pytest.mark.parametrize("ends", [None, ENDS], ids=["all", "some"])
@pytest.mark.parametrize("to", [None, TO], ids=["all", "some"])
def test_products_are_those_of_the_matrix(form, ends, to):
    operator, matrix = KroneckerOperator(K, G, ends, to, form=form), naive(ends, to)
    assert operator.shape == matrix.shape
    np.testing.assert_allclose(operator.toarray(), matrix, atol=1e-12)
    v, u = RNG.standard_normal(matrix.shape[1]), RNG.standard_normal(matrix.shape[0])
    np.testing.assert_allclose(operator @ v, matrix @ v, atol=1e-12)
    np.testing.assert_allclose(operator.T @ u, matrix.T @ u, atol=1e-12)
    np.testing.assert_allclose(operator.H @ u, matrix.T @ u, atol=1e-12)
    V = RNG.standard_normal((matrix.shape[1], 3))
    np.testing.assert_allclose(operator @ V, matrix @ V, atol=1e-12)


def test_few_of_many_pairs_are_sampled():
    big = np.eye(300)
    few = np.arange(10), np.arange(10)
    assert KroneckerOperator(big, big, few, few).form == "sampled"
    assert KroneckerOperator(big, big).form == "dense"
    assert KroneckerOperator(big, big, few, few, form="dense").form == "dense"


def test_it_solves_and_predicts_as_the_estimator_does():
    X, Z = RNG.standard_normal((8, 2)), RNG.standard_normal((9, 2))
    Y = RNG.standard_normal((8, 9))
    Y[RNG.random(Y.shape) < 0.4] = np.nan
    observed = np.nonzero(~np.isnan(Y))
    model = ConditionalRankRLS(0.5, kernel="rbf", loss="regression").fit(X, Y, Z)
    left, right = model._rows.gram(), model._ranked.gram()
    kernel = KroneckerOperator(left, right, observed, observed)
    system = kernel + 0.5 * aslinearoperator(np.eye(len(observed[0])))
    a, info = cg(system, Y[observed], rtol=1e-12)
    assert info == 0
    new = RNG.standard_normal((3, 2))
    values = KroneckerOperator(model._rows.values(model._rows.new(new)), right, ends=observed)
    np.testing.assert_allclose((values @ a).reshape(3, 9), model.predict(new, Z), atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ends": ([0, 5], [0, 0])}, r"ends\[0\] has 5, but rows are numbered 0 to 4"),
        ({"to": ([0.5], [0])}, r"to\[0\] must be row numbers"),
        ({"to": ([0, 1], [0])}, r"to has 2 first and 1 second numbers"),
        ({"ends": 3}, r"ends must be two arrays of numbers, or None; got 3"),
        ({"form": "fast"}, r"form must be one of"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        KroneckerOperator(K, G, **arguments)


def relation(kernel="rbf", **options):
    X, Z = RNG.standard_normal((20, 6)), RNG.standard_normal((25, 6))
    Y = RNG.standard_normal((20, 25))
    Y[RNG.random(Y.shape) < 0.3] = np.nan
    return ConditionalRankRLS(kernel=kernel, solver="cg", **options), (X, Y, Z)


@pytest.mark.parametrize("alpha", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize("kernel", ["rbf", "linear", ["rbf", "identity"]], ids=str)
def test_the_callback_sees_every_iteration_and_can_end_them(alpha, kernel):
    ranker, data = relation(kernel, alpha=alpha)
    seen = []
    ranker.fit(*data, callback=lambda state: seen.append(state.n_iter))
    assert seen == list(range(1, ranker.n_iter_ + 1))
    ranker.fit(*data, callback=lambda state: state.n_iter == 2)  # without a warning
    assert ranker.n_iter_ == 2


def test_a_callback_is_a_function():
    ranker, data = relation()
    with pytest.raises(ValueError, match=r"callback must be a function of one argument; got 3"):
        ranker.fit(*data, callback=3)
