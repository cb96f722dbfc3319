"""The held-out squared error by which kernel weights are chosen: refits and differences."""

import numpy as np
import pytest

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls._relation_labels import NO_OFFSETS, FreeOffsets
from rankrls.core.relations.complete import closed_form
from rankrls.core.relations.holdout import holdout_error
from rankrls.core.relations.pairwise_kernels import RelationLoss
from rankrls.core.relations.sides import Side

HELD = ("rows", "columns", "entries", "both")
OFFSETS = (NO_OFFSETS, FreeOffsets(columns=True), FreeOffsets(rows=True, columns=True))


def kernels(rng, sizes, rank=None):
    made = []
    for n in sizes:
        A = rng.standard_normal((n, rank or n))
        made.append(A @ A.T / n)
    return made


def problem(K, G, Y, *, ranking=False, offsets=NO_OFFSETS):
    return closed_form(Side(K), Side(G), Y, RelationLoss(ranking, offsets=offsets))


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_gradient_is_that_of_differences(held, ranking, offsets, scale):
    rng = np.random.default_rng(0)
    K, G = kernels(rng, (9, 7))
    Y, alpha = scale * rng.standard_normal((9, 7)), 0.3
    options = {"ranking": ranking, "offsets": offsets}
    _, derivative, left, right = holdout_error(problem(K, G, Y, **options), alpha, held)

    def value(K, G, alpha):
        return holdout_error(problem(K, G, Y, **options), alpha, held)[0]

    h = 1e-5
    for gradient, side in ((left, 0), (right, 1)):
        direction = rng.standard_normal(gradient.shape)
        direction += direction.T
        moved = [
            [M + sign * h * direction if number == side else M for number, M in enumerate((K, G))]
            for sign in (1, -1)
        ]
        expected = (value(*moved[0], alpha) - value(*moved[1], alpha)) / (2 * h)
        size = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs((gradient * direction).sum() - expected) < 1e-6 * size
        assert np.allclose(gradient, gradient.T, rtol=1e-9, atol=1e-12 * np.abs(gradient).max())
    slope = (value(K, G, alpha + h) - value(K, G, alpha - h)) / (2 * h)
    assert derivative == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("offsets", [False, "columns"])
@pytest.mark.parametrize("loss", ["regression", "ranking"])
def test_error_of_rows_is_that_of_refits(loss, offsets, rank):
    rng = np.random.default_rng(1)
    K, G = kernels(rng, (8, 6), rank)
    Y = 5.0 + rng.standard_normal((8, 6)) + rng.standard_normal(6)
    free = FreeOffsets(columns=offsets == "columns")
    expected = 0.0
    for i in range(8):
        stay = np.delete(np.arange(8), i)
        model = ConditionalRankRLS(0.5, kernel="precomputed", loss=loss, fit_offsets=offsets)
        values = model.fit(K[np.ix_(stay, stay)], Y[stay], G).predict(K[[i]][:, stay], G)
        rest = Y[i] - values[0]
        if loss == "ranking":
            rest = rest - rest.mean()
        expected += rest @ rest
    found = holdout_error(problem(K, G, Y, ranking=loss == "ranking", offsets=free), 0.5, "rows")
    assert found[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("held", HELD)
def test_error_is_infinite_where_digits_are_lost(held):
    K, G, Y = np.diag([1.0, 1.0, 0.0]), np.diag([1.0, 0.0]), np.arange(6.0).reshape(3, 2)
    assert np.isfinite(holdout_error(problem(K, G, Y), 1e-3, held)[0])
    assert holdout_error(problem(K, G, Y), 1e-12, held)[0] == np.inf


@pytest.mark.parametrize("cv", ["rows", "columns", "both", "edges"])
@pytest.mark.parametrize("options", [{}, {"loss": "regression", "fit_offsets": "both"}])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_weights_of_useful_kernels_are_found(cv, options, condition_on):
    rng = np.random.default_rng(3)
    parts = []
    for n in (40, 30):
        useful, useless = rng.standard_normal((n, 1)), rng.standard_normal((4, n, 2))
        parts.append(
            [useful, [np.exp(-((x[:, None] - x) ** 2).sum(-1)) for x in (*useless, useful)]]
        )
    (x, K), (z, G) = parts
    Y = np.sin(x) * z.T + 0.5 * rng.standard_normal((40, 30))
    given = {"kernel": ["precomputed"] * 5, "cv": cv, "condition_on": condition_on, **options}
    if cv == "edges" and options:  # which refits
        given["n_folds"] = 3
    alphas = 4.0 ** np.arange(-7, 7)
    chosen = ConditionalRankRLSCV(alphas, random_state=0, **given).fit(K, Y, G)
    equal = ConditionalRankRLSCV(
        alphas, random_state=0, kernel_weights=[1] * 5, object_kernel_weights=[1] * 5, **given
    ).fit(K, Y, G)
    assert chosen.best_score_ > equal.best_score_ + 0.01
    assert chosen.kernel_weights_[4] > 0.8
    assert chosen.object_kernel_weights_[4] > 0.8
