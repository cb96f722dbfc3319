"""Conditional rankers: bad input, scikit-learn's checks and searches, generated data, plots."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls.datasets import make_rock_paper_scissors
from rankrls.model_selection import relation_holdout_predict

rng = np.random.default_rng(0)
P, G = 12, 9
X, Z = rng.standard_normal((P, 3)), rng.standard_normal((G, 2))
Y = rng.standard_normal((P, G))
SQUARE = rng.standard_normal((P, P))
SYMMETRIC, RECIPROCAL = SQUARE + SQUARE.T, SQUARE - SQUARE.T
GAPS = np.where(rng.random((P, G)) < 0.3, np.nan, Y)
ONE = ConditionalRankRLS().fit(X, SQUARE)
TWO = ConditionalRankRLS().fit(X, Y, Z)


def put(array, value, where):
    array = np.array(array, dtype=float)
    array[where] = value
    return array


def fit(*args, **options):
    return lambda: ConditionalRankRLS(**options).fit(*args)


def fit_cv(*args, **options):
    return lambda: ConditionalRankRLSCV(**options).fit(*args)


PROBABILITIES = 0.5 + RECIPROCAL / (4 * np.abs(RECIPROCAL).max())
NOT_PSD = np.diag(np.r_[-1.0, np.ones(P - 1)])

CASES = {
    # ------------------------------------------------------------------ Y
    "Y is one label a row": (fit(X, Y[:, 0]), r"Y must be a matrix.*got shape \(12,\).*RankRLS"),
    "Y None": (fit(X, None, Z), "requires y to be passed, but the target y is None"),
    "Y complex": (fit(X, Y + 1j, Z), "Complex data not supported"),
    "Y a table of pairs": (
        fit(X, pd.DataFrame({"drug": ["a"], "target": ["b"], "affinity": [1.0]}), Z),
        r"Y must be a matrix of numbers.*Y\.pivot",
    ),
    "Y of ones only": (
        fit(X, sparse.coo_array(np.where(Y > 0, 1.0, 0.0)), Z),
        r"nothing to rank.*what a sparse Y does not store.*is unknown",
    ),
    "Y infinite": (fit(X, put(Y, np.inf, (3, 4)), Z), r"Y\[3, 4\] is infinite"),
    "Y sparse NaN": (
        fit(X, sparse.coo_array(put(Y, np.nan, (3, 4))), Z),
        r"Y stores nan at \(3, 4\).*leave unobserved pairs out",
    ),
    "Y too few rows": (fit(X, Y[1:], Z), r"Y has shape \(11, 9\) for 12 rows of X and 9 rows of Z"),
    "Y transposed": (fit(X, Y.T, Z), r"transposed\? rows of Y are the objects of X"),
    "Y not square": (fit(X, Y), r"Y has shape \(12, 9\) for 12 rows of X: without Z.*pass.*as Z"),
    "Y all NaN": (fit(X, np.full((P, G), np.nan), Z), "Y has no observed label"),
    "Y constant rows": (
        fit(X, np.ones((P, G)) * X[:, :1], Z),
        "no row of Y has two observed pairs",
    ),
    # ------------------------------------------------------------------ relation
    "symmetric with Z": (fit(X, Y, Z, relation="symmetric"), "objects of one kind.*Z must be None"),
    "not symmetric": (
        fit(X, put(SYMMETRIC, 9.0, (2, 5)), relation="symmetric"),
        r"contradicts relation='symmetric': Y\[2, 5\] = 9 but Y\[5, 2\] = .*\(Y \+ Y.T\) / 2",
    ),
    "not reciprocal": (
        fit(X, put(RECIPROCAL, 9.0, (2, 5)), relation="reciprocal"),
        r"contradicts relation='reciprocal': Y\[2, 5\] = 9.*Y must be −Y.T",
    ),
    "probabilities": (fit(X, PROBABILITIES, relation="reciprocal"), "subtract 0.5 from Y"),
    "own opponent": (
        fit(X, put(RECIPROCAL, 9.0, (4, 4)), relation="reciprocal"),
        r"Y\[4, 4\] = 9.*no preference over itself",
    ),
    # ------------------------------------------------------------------ X and Z
    "X NaN": (fit(put(X, np.nan, 0), Y, Z), "Input X contains NaN"),
    "Z 1-D": (fit(X, Y, Z[:, 0]), "Z must be 2-D, one row of features"),
    "kernel not square": (fit(X, SQUARE, kernel="precomputed"), "square kernel matrix"),
    "kernel not symmetric": (
        fit(put(np.eye(P), 1.0, (0, 1)), SQUARE, kernel="precomputed"),
        "the precomputed kernel is not symmetric",
    ),
    "kernel not positive": (
        fit(NOT_PSD, SQUARE, kernel="precomputed", loss="regression", alpha=0.1),
        "not positive semi-definite.*Use alpha above 1",
    ),
    # ------------------------------------------------------------------ options
    "alpha zero": (fit(X, Y, Z, alpha=0.0), "alpha must be finite and > 0"),
    "loss": (fit(X, Y, Z, loss="hinge"), "loss must be one of 'ranking', 'regression'"),
    "closed with gaps": (fit(X, GAPS, Z, solver="closed"), "needs a complete relation"),
    "primal with a kernel": (
        fit(X, Y, Z, solver="primal", kernel="rbf"),
        "solver='primal' .* needs the features of linear kernels",
    ),
    "parameters of no kernel": (
        fit(X, Y, Z, object_kernel_params={"gamma": 1.0}),
        "object_kernel_params are those of object_kernel, which is None",
    ),
    "early stopping of a direct solver": (
        fit(X, Y, Z, early_stopping=True, solver="closed"),
        "early_stopping .* need solver='cg'",
    ),
    "nothing to validate on": (
        fit(X, np.where(np.arange(G) < 3, Y, np.nan), Z, early_stopping=True),
        "validation_fraction=0.1 leaves no row with two held-out edges",
    ),
    # ------------------------------------------------------------------ predict and score
    "Z missing": (lambda: TWO.predict(X), "the model was fitted with Z.*pass Z"),
    "features of Z": (
        lambda: TWO.predict(X, X),
        "Z has 3 features, but the model was fitted with 2",
    ),
    "features of X": (
        lambda: TWO.predict(Z, Z),
        "X has 2 features, but ConditionalRankRLS is expect",
    ),
    "rows of edges": (lambda: TWO.predict_edges(X, Z, [0, 12], [0, 1]), "rows has 12.*0 to 11"),
    "lengths of edges": (lambda: TWO.predict_edges(X, Z, [0, 1], [0]), "rows has 2 .* cols has 1"),
    "score of nothing": (lambda: ONE.score(X, np.ones((P, P))), "there is nothing to evaluate"),
    # ------------------------------------------------------------------ cross-validation
    "cv name": (fit_cv(X, Y, Z, cv="objects"), "cv must be one of 'auto', 'rows', 'columns'"),
    "cv number": (fit_cv(X, Y, Z, cv=1), "cv must be an integer >= 2"),
    "cv too many": (fit_cv(X, Y, Z, cv=13), "12 rows cannot be held out in 13 folds"),
    "cv out of range": (fit_cv(X, Y, Z, cv=[([0, 1], [12])]), "test rows of split 0 .* 0 to 11"),
    "cv overlapping": (fit_cv(X, Y, Z, cv=[([0, 1], [1, 2])]), "rows both in train and in test"),
    "too few columns": (
        fit_cv(X, Y[:, :3], Z[:3], cv="columns"),
        "3 columns are too few to hold some of them out",
    ),
    "alphas": (fit_cv(X, Y, Z, alphas=[1.0, 0.0]), "alphas must be finite and > 0"),
    "scoring NaN": (
        fit_cv(X, Y, Z, scoring=lambda y, score, qid: np.nan),
        "scoring returned nan for alpha=",
    ),
    "holdout of another estimator": (
        lambda: relation_holdout_predict(ConditionalRankRLSCV(), X, Y, Z),
        "estimator must be a ConditionalRankRLS; got a ConditionalRankRLSCV",
    ),
    "holdout of what": (
        lambda: relation_holdout_predict(ConditionalRankRLS(), X, Y, Z, leave_out="edges"),
        "leave_out must be one of 'rows', 'columns', 'entries', 'both'",
    ),
    # ------------------------------------------------------------------ data
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        call()
    first = str(caught.value).splitlines()[0]
    assert re.search(message, first), first


def test_not_fitted():
    for call in ("predict", "score"):
        with pytest.raises(NotFittedError):
            getattr(ConditionalRankRLS(), call)(X, *([Y] if call == "score" else []))
    with pytest.raises(NotFittedError):
        ConditionalRankRLS().predict_edges(X, None, [0], [0])


# ---------------------------------------------------------------------- scikit-learn


class Lists:
    """Labels of three fixed objects for every row, so that X and y are all there is."""

    def fit(self, X, y):
        return super().fit(X, y if y is None else np.outer(y, [1.0, 0.0, -1.0]), np.eye(3))

    def predict(self, X, Z=None):
        return super().predict(X, np.eye(3))

    def score(self, X, y):
        return super().score(X, np.outer(y, [1.0, 0.0, -1.0]), np.eye(3))

    def partial_fit(self, X, y):
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        return super().partial_fit(X, np.outer(y, [1.0, 0.0, -1.0]), np.eye(3))


class ListRanker(Lists, ConditionalRankRLS):
    pass


class ListRankerCV(Lists, ConditionalRankRLSCV):
    pass


#: Of 42 (43 for precomputed kernels) in scikit-learn 1.9.
AT_LEAST = 37
EXCEPTIONS = {
    "check_estimator_sparse_array": "asks for one prediction for each row, and there is a list; "
    "sparse features are tested in test_conditional.py",
    "check_estimator_sparse_matrix": "the same",
    "check_fit_score_takes_y": "calls partial_fit with the labels of fit, and a pair that has a "
    "label is an error",
}


@pytest.mark.parametrize(
    "estimator",
    [
        ListRanker(),
        ListRanker(kernel="rbf", loss="regression"),
        ListRanker(solver="cg"),
        # alpha: check_estimators_dtypes rounds a kernel matrix to integers: it is indefinite
        ListRanker(alpha=1e4, kernel="precomputed", object_kernel="linear"),
        ListRankerCV(),
    ],
    ids=["default", "rbf", "cg", "precomputed", "cv"],
)
def test_scikit_learn_checks(estimator):
    """Y is a matrix, which the checks cannot know: they see one list of three for each row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            estimator, on_skip=None, on_fail=None, expected_failed_checks=EXCEPTIONS
        )
    bad = {r["check_name"]: r["status"] for r in results if r["status"] not in ("passed", "xfail")}
    assert set(bad) <= {"check_array_api_input"}, bad  # skipped: needs SCIPY_ARRAY_API=1
    assert sum(r["status"] == "passed" for r in results) >= AT_LEAST


def test_search_over_parameters():
    """Rows of Y are samples; Z goes along, by routing."""
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = ConditionalRankRLS(kernel="rbf")
        ranker.set_fit_request(Z=True).set_score_request(Z=True)
        search = GridSearchCV(ranker, {"alpha": [0.1, 10.0], "gamma": [0.1, 1.0]}, cv=3)
        search.fit(X, Y, Z=Z)
        assert search.best_params_["gamma"] in (0.1, 1.0)
    fold = np.arange(P) < P // 3
    ranker = ConditionalRankRLS(kernel="rbf", alpha=0.1, gamma=0.1)
    expected = ranker.fit(X[~fold], Y[~fold], Z).score(X[fold], Y[fold], Z)
    assert np.isclose(search.cv_results_["split0_test_score"][0], expected)


# ---------------------------------------------------------------------- rock, paper, scissors


def test_games():
    data = make_rock_paper_scissors(30, 500, preference=5.0, random_state=0)
    assert data.data.shape == (30, 3)
    assert np.allclose(data.data.sum(axis=1), 1)
    assert data.games.shape == (500, 2)
    assert (data.games[:, 0] != data.games[:, 1]).all()
    assert np.array_equal(data.relation, -data.relation.T)
    dense = data.target.toarray()  # sums of wins minus losses
    assert np.array_equal(dense, -dense.T)
    assert data.target.nnz == 1000
    wins = np.zeros((30, 30))
    np.add.at(wins, tuple(data.games.T), 1.0)
    assert np.array_equal(wins - wins.T, dense)
    again = make_rock_paper_scissors(30, 500, preference=5.0, random_state=0)
    assert np.array_equal(again.games, data.games)


def test_games_follow_the_relation():
    """Of many games between few players, the shares of wins are those of the strategies."""
    data = make_rock_paper_scissors(4, 200_000, preference=3.0, random_state=1)
    wins = np.zeros((4, 4))
    np.add.at(wins, tuple(data.games.T), 1.0)
    x = data.data
    beats = x[:, [0]] * x[:, 2] + x[:, [1]] * x[:, 0] + x[:, [2]] * x[:, 1]
    assert np.allclose(beats - beats.T, data.relation)
    off = ~np.eye(4, dtype=bool)
    share, expected = (a[off] / (a + a.T)[off] for a in (wins, beats))
    assert np.abs(share - expected).max() < 0.02
