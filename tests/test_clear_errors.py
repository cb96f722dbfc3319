"""Errors that users meet first: short, in the words of the class that they called."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn import model_selection as sk
from sklearn.exceptions import NotFittedError

from rankrls import (
    ConditionalRankRLS,
    ConditionalRankRLSCV,
    GreedyRankRLS,
    RankRLS,
    RankRLSCV,
    RankSVM,
    regularization_path,
)
from rankrls.diagnostics import audit
from rankrls.model_selection import (
    holdout_judgements,
    holdout_predict,
    leave_query_out_predict,
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
def test_fit_of_1d_data_is_told_shortly(kind):
    options = {"n_features_to_select": 1} if kind is GreedyRankRLS else {}
    with pytest.raises(ValueError, match=SHORT) as caught:
        kind(**options).fit(list(range(3000)), range(3000))
    assert caught.value.__suppress_context__  # not the message that shows all numbers


def test_other_methods_and_other_shapes():
    long = np.arange(3000.0)
    relation = ConditionalRankRLS().fit(X, X @ X.T)
    for call in (
        lambda: RankRLS().fit(X, Y).predict(long),
        lambda: RankRLS().fit(pd.Series(long), long),
        lambda: RankRLS().partial_fit(long, long, qid=long),
        lambda: relation.predict(long),
        lambda: QueryScaler().fit_transform(long, qid=long),
    ):
        with pytest.raises(ValueError, match=SHORT):
            call()
    with pytest.raises(ValueError, match=r"^Z must be 2-D.* 3000.* np.reshape\(Z, "):
        ConditionalRankRLS().fit(X, np.ones((12, 3000)), long)
    with pytest.raises(ValueError, match=r"^X must be 2-D.* got 3.0\. Reshape"):
        RankRLS().fit(3.0, Y)


# ---------------------------------------------------------------------- arguments of others


@pytest.mark.parametrize(
    "call",
    [
        lambda **foo: leave_query_out_predict(RankRLS(), X, Y, qid=np.arange(12) // 4, **foo),
        lambda **foo: holdout_predict(RankRLS(), X, Y, [[0]], **foo),
        lambda **foo: holdout_judgements(RankRLS(), X, [[0, 1], [1, 2]], **foo),
        lambda **foo: audit(RankRLS(), X, Y, **foo),
        lambda **foo: regularization_path(RankRLS(), X, Y, alphas=[1.0], **foo),
    ],
)
def test_arguments_that_fit_does_not_have(call):
    with pytest.raises(TypeError, match="fit has no argument 'foo'; it has qid, pairs"):
        call(foo=1)


@pytest.mark.parametrize("kind", RANKERS, ids=lambda kind: kind.__name__)
def test_predict_takes_no_qid(kind):
    ranker = kind().fit(X, Y, qid=np.arange(12) // 4)
    with pytest.raises(ValueError, match=r"return_std must be True or False; .* takes no qid"):
        ranker.predict(X, list(range(12)))


QID = np.repeat([0, 1, 2], 4)
SCORES = np.tile([0.0, 1.0, 2.0, 1.0], 3)
FITTED = RankRLS().fit(X, SCORES, qid=QID)


@pytest.mark.skipif(
    sklearn.__version__.startswith("1.8."), reason="its scorers take classifiers only"
)
def test_scikit_learns_auc():
    label = np.arange(12) % 2
    for ranker in (RankRLS(), RankSVM(), RankRLSCV()):
        found = sk.cross_val_score(ranker, X, label, cv=sk.StratifiedKFold(2), scoring="roc_auc")
        expected = sk.cross_val_score(ranker, X, label, cv=sk.StratifiedKFold(2))
        np.testing.assert_allclose(found, expected)
        search = sk.GridSearchCV(ranker, {"tol": [1e-6]}, scoring="roc_auc", error_score="raise")
        search.set_params(cv=sk.StratifiedKFold(2)).fit(X, label)


def test_scores_for_the_auc_are_of_one_ranking():
    with pytest.raises(ValueError, match="scores of different queries are not comparable"):
        FITTED.decision_function(X)
    with pytest.raises(NotFittedError):
        RankRLS().decision_function(X)


def test_lazy_frames_of_polars():
    pl = pytest.importorskip("polars")
    lazy = pl.DataFrame({"a": [1.0, 2.0, 3.0], "b": [3.0, 1.0, 2.0]}).lazy()
    with pytest.raises(ValueError, match=r"X is a LazyFrame, .* pass X.collect\(\)"):
        RankRLS().fit(lazy, [1, 2, 3])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda V: V.tolist()])
def test_missing_features(form):
    missing = X.copy()
    missing[[3, 5], [1, 0]] = np.nan
    message = r"^Input X contains NaN \(first at row 3, column 1; 2 in all\): fill in .*Imputer"
    with pytest.raises(ValueError, match=message):
        RankRLS().fit(form(missing), SCORES)
    frame = pd.DataFrame(missing).add_prefix("f").rename(columns={"f1": "price"})
    for given in (frame, frame.convert_dtypes()):  # with pandas.NA
        with pytest.raises(ValueError, match="first at row 3, column 'price'"):
            RankRLS().fit(given, SCORES)
    vectors = frame.assign(vector=[[1.0, 2.0]] * len(frame))
    with pytest.raises(ValueError, match="X has columns that are not numbers: 'vector'"):
        RankRLS().fit(vectors.fillna(0), SCORES)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        RankRLS().fit(X, SCORES).predict(form(missing))
