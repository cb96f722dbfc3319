"""Errors that users meet first: short, in the words of the class that they called."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from rankrls import (
    ConditionalRankRLS,
    ConditionalRankRLSCV,
    GreedyRankRLS,
    RankRLS,
    RankRLSCV,
    RankSVM,
)
from rankrls.preprocessing import QueryScaler

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(12)
RANKERS = [RankRLS, RankRLSCV, RankSVM]
RELATIONS = [ConditionalRankRLS, ConditionalRankRLSCV]


# ---------------------------------------------------------------------- data that is not 2-D


SHORT = (
    r"^X must be 2-D, one row of features for each item; got 1-D data of length 3000. Reshape "
    r"your data: np.reshape\(X, \(-1, 1\)\) if it is a single feature, \(1, -1\) if it is a "
    r"single row$"
)


@pytest.mark.parametrize("kind", [*RANKERS, GreedyRankRLS, *RELATIONS], ids=lambda k: k.__name__)
@pytest.mark.parametrize("make", [list, np.array], ids=["list", "array"])
def test_fit_of_1d_data_is_told_shortly(kind, make):
    options = {"n_features_to_select": 1} if kind is GreedyRankRLS else {}
    with pytest.raises(ValueError, match=SHORT) as caught:
        kind(**options).fit(make(range(3000)), range(3000))
    assert caught.value.__suppress_context__  # not the message that shows all numbers


def test_other_methods_and_other_shapes():
    long = np.arange(3000.0)
    relation = ConditionalRankRLS().fit(X, X @ X.T)
    for call in (
        lambda: RankRLS().fit(X, Y).predict(long),
        lambda: RankSVM().fit(X, Y).predict(long),
        lambda: RankRLS().fit(X, Y).score(long, long),
        lambda: RankRLS().partial_fit(long, long, qid=long),
        lambda: RankRLS(kernel="precomputed").fit(long, long),
        lambda: relation.predict(long),
        lambda: QueryScaler().fit_transform(long, qid=long),
    ):
        with pytest.raises(ValueError, match=SHORT):
            call()
    with pytest.raises(ValueError, match=r"^Z must be 2-D.* 3000.* np.reshape\(Z, "):
        ConditionalRankRLS().fit(X, np.ones((12, 3000)), long)
    with pytest.raises(ValueError, match=r"^Z must be 2-D.* 3000.* np.reshape\(Z, "):
        relation.predict(X, long)
    with pytest.raises(ValueError, match=r"^X must be 2-D.* got 3.0\. Reshape"):
        RankRLS().fit(3.0, Y)


@pytest.mark.parametrize("kind", RELATIONS, ids=lambda k: k.__name__)
def test_text_in_a_relation_names_its_columns(kind):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(title="x")
    with pytest.raises(ValueError, match=r"X has columns that are not numbers: 'title'"):
        kind().fit(frame, X @ X.T)


# ---------------------------------------------------------------------- arguments of others


class MyRanker(RankRLS):
    """The class that a message names is the one that was called."""


@pytest.mark.parametrize("kind", [*RANKERS, MyRanker], ids=lambda kind: kind.__name__)
def test_predict_takes_no_qid(kind):
    ranker = kind().fit(X, Y, qid=np.arange(12) // 4)
    message = rf"^{kind.__name__}\.predict\(\) got .* 'qid': predict takes no qid, because"
    with pytest.raises(TypeError, match=message):
        ranker.predict(X, qid=np.arange(12))
    with pytest.raises(ValueError, match=r"return_std must be True or False; .* takes no qid"):
        ranker.predict(X, list(range(12)))
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.predict\(\) got .* 'std'$"):
        ranker.predict(X, std=True)
    if kind is not RankSVM:
        scores, deviation = ranker.predict(X, True)
        assert scores.shape == deviation.shape == (12,)
    np.testing.assert_array_equal(ranker.predict(X=X, return_std=False), ranker.predict(X))


@pytest.mark.parametrize("kind", RELATIONS, ids=lambda kind: kind.__name__)
def test_relations_have_no_deviations(kind):
    ranker = kind().fit(X, X @ X.T)
    message = rf"^{kind.__name__}\.predict\(\) got .* 'return_std': it has no standard deviations"
    with pytest.raises(TypeError, match=message):
        ranker.predict(X, return_std=True)
    with pytest.raises(TypeError, match="take the place of queries"):
        ranker.predict(X, qid=np.arange(12))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            RankSVM,
            "C",
            r"^RankSVM\(\) got .* 'C': .* alpha: 1/\(2 C\) .* n_queries",
        ),
        (RankSVM, "alphas", "'alphas': rankrls.regularization_path"),
        (RankSVM, "ties", r"^RankSVM\(\) got an unexpected keyword argument 'ties'$"),
        (RankRLS, "C", r"^RankRLS\(\) got .* 'C': regularisation is called alpha"),
        (RankRLS, "regparam", "'regparam': regularisation is called alpha"),
        (RankRLS, "alphas", "'alphas': RankRLSCV chooses"),
        (MyRanker, "C", r"^MyRanker\(\) got"),
        (RankRLSCV, "alpha", "'alpha': RankRLSCV chooses it from a grid, alphas"),
    ],
)
def test_parameters_of_others(kind, name, message):
    with pytest.raises(TypeError, match=message):
        kind(**{name: 1.0})


@pytest.mark.parametrize("kind", [*RANKERS, MyRanker], ids=lambda kind: kind.__name__)
def test_signatures_are_those_that_are_written(kind):
    """``get_params`` and ``clone`` read the constructor's, metadata routing that of predict."""
    names = list(inspect.signature(kind).parameters)
    assert names == list(inspect.signature(kind.__init__).parameters)[1:]
    assert "kwargs" not in names
    assert sorted(names) == sorted(kind().get_params())
    ranker = kind(kernel="rbf", gamma=0.25, verbose=2)
    assert clone(ranker).get_params() == ranker.get_params()
    assert list(inspect.signature(kind.predict).parameters) == ["self", "X", "return_std"]
    assert kind.predict.__doc__.startswith("Predict scores")
