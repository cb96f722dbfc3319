"""Views of features: against scikit-learn and loops, on skewed, tied and constant columns."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.preprocessing import QuantileTransformer, SplineTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrls.io import load_model, save_model
from rankrls.preprocessing import QueryScaler, RankingFeatures
from rankrls.preprocessing.trees import Forest


@parametrize_with_checks(
    [
        RankingFeatures(("log", "quantile", "uniform", "hats"), random_state=0),
        RankingFeatures(("log",)),
        RankingFeatures(("partitions",), n_trees=5, random_state=0),
    ]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def skewed():
    X = load_diabetes().data[:150].copy()
    X[:, 0] = np.exp(60 * X[:, 0])
    X[:, 1] = np.round(X[:, 1], 2)
    X[:, 2] = 3.0
    X[:, 3] = np.where(X[:, 3] > 0.03, X[:, 3], 0.0) * 1e-9
    X[7] = X[8]
    return X, np.arange(150) % 11


def standardized(A):
    spread = A.std(axis=0)
    return (A - A.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)


def transformed(block, X, qid):
    return RankingFeatures((block,), random_state=0).fit_transform(X, qid=qid)


def test_logarithms_do_not_depend_on_the_unit():
    X, qid = skewed()
    sizes = [np.median(np.abs(column[column != 0])) for column in X.T]
    expected = standardized(np.sign(X) * np.log1p(np.abs(X) / sizes))
    assert_allclose(transformed("log", X, qid), expected, atol=1e-12)
    units = 10.0 ** np.arange(-5, 5)
    assert_allclose(transformed("log", X * units, qid), expected, atol=1e-9)


@pytest.mark.parametrize("block", ["standard", "rank"])
def test_blocks_within_queries_are_those_of_query_scaler(block):
    X, qid = skewed()
    expected = standardized(QueryScaler(block).fit_transform(X, qid=qid))
    assert_allclose(transformed(block, X, qid), expected, atol=1e-12)


@pytest.mark.parametrize(("block", "law"), [("quantile", "normal"), ("uniform", "uniform")])
def test_quantiles_are_those_of_scikit_learn(block, law):
    X = load_diabetes().data[:400].copy()
    X[:, 0] = np.exp(60 * X[:, 0])
    X = X[:, [0, 2, 4, 5, 6, 8, 9]]  # at the ends of the others ties are not at 0 and 1 here
    theirs = QuantileTransformer(n_quantiles=200, output_distribution=law, subsample=None)
    expected = standardized(theirs.fit_transform(X))
    assert_allclose(transformed(block, X, None), expected, atol=1e-6)


def test_hats_are_linear_splines():
    X = skewed()[0][:, [0, 1, 4]]
    hats = RankingFeatures(("hats",)).fit(X)
    uniform = RankingFeatures(("uniform",)).fit(X)
    places = uniform.transform(X) * uniform._widths["uniform"] + uniform._centres["uniform"]
    splines = SplineTransformer(
        n_knots=5, degree=1, knots=np.linspace(0, 1, 5)[:, None].repeat(3, 1)
    )
    assert_allclose(hats.transform(X), standardized(splines.fit_transform(places)), atol=1e-9)


def test_trees_are_those_of_scikit_learn():
    X, _ = skewed()
    X = X.astype(np.float32).astype(float)
    theirs = RandomTreesEmbedding(
        7, max_depth=4, random_state=np.random.RandomState(3).randint(2**31 - 1)
    )
    expected = theirs.fit_transform(X).toarray()
    mine = Forest.random(X, 7, 4, np.random.RandomState(3)).indicators(X).toarray()
    assert (mine.sum(axis=1) == 7).all()
    # The same leaves, in another order, and without those that no row falls into.
    used = mine[:, mine.any(axis=0)]
    assert_array_equal(np.unique(used, axis=1), np.unique(expected, axis=1))


def test_new_rows_are_scaled_as_the_training_rows():
    X, qid = skewed()
    features = RankingFeatures(("log", "rank", "quantile"), random_state=0).fit(X, qid=qid)
    some = qid < 4  # whole queries
    assert_allclose(
        features.transform(X[some], qid=qid[some]), features.transform(X, qid=qid)[some], atol=1e-12
    )


def test_sparse_rows():
    X, _ = skewed()
    X = np.where(np.abs(X) > 0.05, X, 0.0)
    dense = np.sign(X) * np.log1p(np.abs(X) / np.where(X.any(axis=0), np.abs(X).max(axis=0), 1))
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    mine = RankingFeatures(("log",)).fit_transform(sparse.csr_array(X))
    assert_allclose(mine.toarray(), dense / np.where(lengths > 0, lengths, 1), atol=1e-12)
    with pytest.raises(ValueError, match=r"sparse X needs blocks=\('log',\)"):
        RankingFeatures().fit(sparse.csr_array(X))


def test_saved(tmp_path):
    X, qid = skewed()
    for blocks in (["log", "standard", "rank", "hats"], ["partitions"]):
        features = RankingFeatures(blocks, n_trees=5, random_state=0).fit(X, qid=qid)
        save_model(features, tmp_path / "view.rankrls")
        loaded = load_model(tmp_path / "view.rankrls")
        mine, theirs = (one.transform(X, qid=qid) for one in (features, loaded))
        assert abs(mine - theirs).max() == 0


def test_errors():
    X, qid = skewed()
    cases = [
        ({"blocks": "log"}, {}, "sequence of names"),
        ({"blocks": ("logs",)}, {}, "blocks must be"),
        ({"blocks": ("log", "partitions")}, {"qid": qid}, "cannot be combined"),
        ({"depth": 40}, {"qid": qid}, "at most 12"),
        ({}, {}, "'standard' compares rows within their queries; pass qid"),
    ]
    for options, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            RankingFeatures(**options).fit_transform(X, **arguments)
    trees = RankingFeatures(("partitions",), n_trees=3).fit(X, qid=qid)
    with pytest.raises(ValueError, match="fitted with qid, compares rows"):
        trees.transform(X)
