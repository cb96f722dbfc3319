"""Errors that users meet first: short, in the words of the class that they called."""

import numpy as np
import pandas as pd
import pytest

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
    with pytest.raises(ValueError, match=r"^X must be 2-D.* got shape \(\)\. Reshape"):
        RankRLS().fit(3.0, Y)


@pytest.mark.parametrize("kind", RELATIONS, ids=lambda k: k.__name__)
def test_text_in_a_relation_names_its_columns(kind):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(title="x")
    with pytest.raises(ValueError, match=r"X has columns that are not numbers: 'title'"):
        kind().fit(frame, X @ X.T)
