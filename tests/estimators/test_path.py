"""regularization_path: equal to a fit for every alpha."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from rankrls import RankRLS, regularization_path

ALPHAS = [10.0, 0.1, 1.0]


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"solver": "primal"}])
def test_covariates_of_pairs(options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    pairs = np.array([(i, j) for i in range(20) for j in range(3) if i != j])
    C = rng.standard_normal((len(pairs), 2))
    path = regularization_path(RankRLS(**options), X, pairs=pairs, pair_features=C, alphas=ALPHAS)
    for predicted, alpha in zip(path.predict(X), ALPHAS, strict=True):
        alone = RankRLS(alpha, **options).fit(X, pairs=pairs, pair_features=C)
        expected = alone.predict(X)
        assert_allclose(predicted - predicted.mean(), expected - expected.mean(), atol=1e-9)
