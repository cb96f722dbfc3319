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
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, _resources
from rankrls.datasets import make_rock_paper_scissors
from rankrls.metrics import conditional_scores
from rankrls.model_selection import conditional_cross_val_score, relation_holdout_predict

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
    "Y three-dimensional": (fit(X, Y[:, :, None], Z), r"got shape \(12, 9, 1\)"),
    "Y of text": (
        fit(X, Y.astype(str).astype(object)[:, :1] + "a", Z),
        "must be a matrix of numbers",
    ),
    "Y complex": (fit(X, Y + 1j, Z), "Complex data not supported"),
    "Y a table of pairs": (
        fit(X, pd.DataFrame({"drug": ["a"], "target": ["b"], "affinity": [1.0]}), Z),
        r"Y must be a matrix of numbers.*Y\.pivot",
    ),
    "Z and Y exchanged": (
        fit(X, Z, np.where(Y > 0, Y, np.nan)),
        r"Z contains NaN(.|\n)*fit takes X, Y, Z",
    ),
    "Y of ones only": (
        fit(X, sparse.coo_array(np.where(Y > 0, 1.0, 0.0)), Z),
        r"nothing to rank.*what a sparse Y does not store.*is unknown",
    ),
    "Y ragged": (fit(X, [[1.0, 2.0], [3.0]], Z), "Y must be a matrix of numbers"),
    "Y infinite": (fit(X, put(Y, np.inf, (3, 4)), Z), r"Y\[3, 4\] is infinite"),
    "Y sparse NaN": (
        fit(X, sparse.coo_array(put(Y, np.nan, (3, 4))), Z),
        r"Y stores nan at \(3, 4\).*leave unobserved pairs out",
    ),
    "Y sparse complex": (
        fit(X, sparse.coo_array(Y + 1j), Z),
        "matrix of numbers; got dtype complex",
    ),
    "Y too few rows": (fit(X, Y[1:], Z), r"Y has shape \(11, 9\) for 12 rows of X and 9 rows of Z"),
    "Y too many columns": (fit(X, Y, Z[1:]), r"Y has shape \(12, 9\) for 12 rows of X and 8 rows"),
    "Y transposed": (fit(X, Y.T, Z), r"transposed\? rows of Y are the objects of X"),
    "Y not square": (fit(X, Y), r"Y has shape \(12, 9\) for 12 rows of X: without Z.*pass.*as Z"),
    "Y all NaN": (fit(X, np.full((P, G), np.nan), Z), "Y has no observed label"),
    "Y without entries": (fit(X, sparse.coo_array((P, G)), Z), "Y has no observed label"),
    "Y constant rows": (
        fit(X, np.ones((P, G)) * X[:, :1], Z),
        "no row of Y has two observed pairs",
    ),
    "Y constant columns": (
        fit(X, np.ones((P, G)) * Z[:, 0], Z, condition_on="columns"),
        "no column of Y has two observed pairs with different labels",
    ),
    "Y one label a list": (
        fit(X, np.where(np.arange(G) == 2, Y, np.nan), Z),
        "no row of Y has two observed pairs",
    ),
    "one column": (fit(X, Y[:, :1], Z[:1]), "no row of Y has two observed pairs"),
    # ------------------------------------------------------------------ relation
    "symmetric with Z": (fit(X, Y, Z, relation="symmetric"), "objects of one kind.*Z must be None"),
    "not symmetric": (
        fit(X, put(SYMMETRIC, 9.0, (2, 5)), relation="symmetric"),
        r"contradicts relation='symmetric': Y\[2, 5\] = 9 but Y\[5, 2\] = .*\(Y \+ Y.T\) / 2",
    ),
    "not symmetric with gaps": (
        fit(X, put(put(SYMMETRIC, 9.0, (2, 5)), np.nan, (0, 1)), relation="symmetric"),
        r"contradicts relation='symmetric': Y\[2, 5\] = 9",
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
    "two kernels": (
        fit(X, SYMMETRIC, relation="symmetric", object_kernel="rbf"),
        "needs the same kernel on both sides",
    ),
    "unknown relation": (
        fit(X, SQUARE, relation="transitive"),
        "relation must be one of 'symmetric', 'reciprocal', None; got 'transitive'",
    ),
    # ------------------------------------------------------------------ X and Z
    "X NaN": (fit(put(X, np.nan, 0), Y, Z), "Input X contains NaN"),
    "Z NaN": (fit(X, Y, put(Z, np.nan, 0)), "Input Z contains NaN"),
    "Z 1-D": (fit(X, Y, Z[:, 0]), "Z must be 2-D, one row of features"),
    "no features": (fit(X[:, :0], Y, Z), "0 feature"),
    "kernel not square": (fit(X, SQUARE, kernel="precomputed"), "square kernel matrix"),
    "object kernel not square": (
        fit(X, Y, Z, object_kernel="precomputed"),
        "square kernel matrix of the training rows",
    ),
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
    "alpha text": (fit(X, Y, Z, alpha="auto"), "alpha must be a number > 0; got 'auto'"),
    "loss": (fit(X, Y, Z, loss="hinge"), "loss must be one of 'ranking', 'regression'"),
    "condition_on": (fit(X, Y, Z, condition_on="both"), "condition_on must be one of"),
    "solver": (fit(X, Y, Z, solver="qp"), "solver must be one of 'auto', 'closed', 'primal'"),
    "closed with gaps": (fit(X, GAPS, Z, solver="closed"), "needs a complete relation"),
    "primal with a kernel": (
        fit(X, Y, Z, solver="primal", kernel="rbf"),
        "solver='primal' .* needs the features of linear kernels",
    ),
    "kernel": (fit(X, Y, Z, kernel="gauss"), "kernel must be a callable or one of"),
    "object kernel": (fit(X, Y, Z, object_kernel="gauss"), "kernel must be a callable or one of"),
    "parameters of no kernel": (
        fit(X, Y, Z, object_kernel_params={"gamma": 1.0}),
        "object_kernel_params are those of object_kernel, which is None",
    ),
    "max_iter": (fit(X, Y, Z, max_iter=0), "max_iter must be an integer >= 1"),
    "tol": (fit(X, Y, Z, tol=0.0), "tol must be finite and > 0"),
    "early_stopping": (fit(X, Y, Z, early_stopping="yes"), "early_stopping must be one of False"),
    "early stopping of a direct solver": (
        fit(X, Y, Z, early_stopping=True, solver="closed"),
        "early_stopping .* need solver='cg'",
    ),
    "validation_fraction": (
        fit(X, Y, Z, early_stopping=True, validation_fraction=1.0),
        "validation_fraction must be below 1",
    ),
    "nothing to validate on": (
        fit(X, np.where(np.arange(G) < 3, Y, np.nan), Z, early_stopping=True),
        "validation_fraction=0.1 leaves no row with two held-out edges",
    ),
    # ------------------------------------------------------------------ predict and score
    "Z missing": (lambda: TWO.predict(X), "the model was fitted with Z.*pass Z"),
    "Z missing in score": (lambda: TWO.score(X, Y), "the model was fitted with Z.*pass Z"),
    "features of Z": (
        lambda: TWO.predict(X, X),
        "Z has 3 features, but the model was fitted with 2",
    ),
    "features of X": (
        lambda: TWO.predict(Z, Z),
        "X has 2 features, but ConditionalRankRLS is expect",
    ),
    "rows of edges": (lambda: TWO.predict_edges(X, Z, [0, 12], [0, 1]), "rows has 12.*0 to 11"),
    "columns of edges": (lambda: TWO.predict_edges(X, Z, [0, 1], [0, -1]), "cols has -1.*0 to 8"),
    "lengths of edges": (lambda: TWO.predict_edges(X, Z, [0, 1], [0]), "rows has 2 .* cols has 1"),
    "edges of floats": (lambda: TWO.predict_edges(X, Z, [0.5], [0]), "rows must be row numbers"),
    "score of another shape": (lambda: ONE.score(X[:5], SQUARE), r"has shape \(12, 12\) and"),
    "score of nothing": (lambda: ONE.score(X, np.ones((P, P))), "there is nothing to evaluate"),
    "metric of another shape": (
        lambda: conditional_scores(Y, SQUARE),
        r"Y_true has shape \(12, 9\) and Y_score has shape \(12, 12\)",
    ),
    # ------------------------------------------------------------------ cross-validation
    "cv name": (fit_cv(X, Y, Z, cv="objects"), "cv must be one of 'auto', 'rows', 'columns'"),
    "cv number": (fit_cv(X, Y, Z, cv=1), "cv must be an integer >= 2"),
    "cv float": (fit_cv(X, Y, Z, cv=0.5), "cv must be one of .* an int, a splitter"),
    "cv too many": (fit_cv(X, Y, Z, cv=13), "12 rows cannot be held out in 13 folds"),
    "cv empty": (fit_cv(X, Y, Z, cv=[]), "cv gives no split"),
    "cv out of range": (fit_cv(X, Y, Z, cv=[([0, 1], [12])]), "test rows of split 0 .* 0 to 11"),
    "cv overlapping": (fit_cv(X, Y, Z, cv=[([0, 1], [1, 2])]), "rows both in train and in test"),
    "cv of floats": (fit_cv(X, Y, Z, cv=[([0.5], [1])]), "must be row numbers of X"),
    "n_folds": (fit_cv(X, Y, Z, cv="rows", n_folds=1), "n_folds must be an integer >= 2"),
    "too few columns": (
        fit_cv(X, Y[:, :3], Z[:3], cv="columns"),
        "3 columns are too few to hold some of them out",
    ),
    "alphas": (fit_cv(X, Y, Z, alphas=[1.0, 0.0]), "alphas must be finite and > 0"),
    "no alphas": (fit_cv(X, Y, Z, alphas=[]), "alphas is empty"),
    "scoring": (fit_cv(X, Y, Z, scoring="mse"), "scoring must be one of"),
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
    "scores of another estimator": (
        lambda: conditional_cross_val_score(StandardScaler(), X, Y, Z),
        "estimator must be a ConditionalRankRLS or ConditionalRankRLSCV",
    ),
    # ------------------------------------------------------------------ data
    "one player": (lambda: make_rock_paper_scissors(1), "n_players must be an integer >= 2"),
    "no games": (lambda: make_rock_paper_scissors(n_games=0), "n_games must be an integer >= 1"),
    "preference": (lambda: make_rock_paper_scissors(preference=-1), "preference must be a finite"),
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


def test_kernels_too_large_for_memory(monkeypatch):
    monkeypatch.setattr(_resources, "budget", lambda: 1000)
    with pytest.raises(MemoryError, match="the kernel matrix of 12 objects"):
        ConditionalRankRLS(kernel="rbf").fit(X, Y, Z)


def test_noisy_edges_may_disagree():
    """A matrix must agree with the relation; edges of a list are single observations."""
    rows, cols = np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])
    Y = sparse.coo_array((np.array([1.0, 1.0, 1.0, -1.0]), (rows, cols)), shape=(P, P))
    model = ConditionalRankRLS(relation="reciprocal", loss="regression").fit(X, Y)
    F = model.predict(X)
    assert np.array_equal(F, -F.T)


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


def test_search_that_splits_one_kind_of_objects_is_refused():
    search = GridSearchCV(ConditionalRankRLS(), {"alpha": [0.1, 1.0]}, cv=3, error_score="raise")
    with pytest.raises(ValueError, match=r"Y has shape \(8, 12\) for 8 rows of X: without Z"):
        search.fit(X, SQUARE)


def test_pipeline():
    pipe = make_pipeline(StandardScaler(), ConditionalRankRLS(relation="symmetric"))
    F = pipe.fit(X, SYMMETRIC).predict(X)
    scaled = StandardScaler().fit_transform(X)
    expected = ConditionalRankRLS(relation="symmetric").fit(scaled, SYMMETRIC).predict(scaled)
    assert np.allclose(F, expected)


def test_unknown_features_of_new_objects():
    """The order of arguments is what may be wrong in fit, not in predict."""
    with pytest.raises(ValueError, match="Z contains NaN") as caught:
        TWO.predict(X, np.full_like(Z, np.nan))
    assert "labels come second" not in str(caught.value)


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


def test_draws_are_games_if_asked():
    """As often as both play the same move; edges of 0 that are learned from like others."""
    data = make_rock_paper_scissors(4, 100_000, preference=3.0, keep_draws=True, random_state=1)
    assert data.target.nnz == 200_000
    drawn = data.target.data == 0
    assert np.array_equal(drawn[:100_000], drawn[100_000:])
    x, (one, other) = data.data, data.games.T
    assert abs(drawn.mean() - (x[one] * x[other]).sum(axis=1).mean()) < 0.01
    few = make_rock_paper_scissors(8, 40, keep_draws=True, random_state=0)
    edges, ranker = few.target, ConditionalRankRLS(alpha=0.5, loss="regression")
    F = ranker.fit(few.data, edges).predict(few.data)
    products = (few.data[edges.row][:, :, None] * few.data[edges.col][:, None]).reshape(80, 9)
    gram = products.T @ products + 0.5 * np.eye(9)
    expected = few.data @ np.linalg.solve(gram, products.T @ edges.data).reshape(3, 3) @ few.data.T
    assert (edges.data == 0).any()
    assert np.allclose(F, expected)


def test_preference_makes_favourites():
    level, strong = (
        make_rock_paper_scissors(200, 10, preference=w, random_state=0).data.max(axis=1).mean()
        for w in (0.0, 100.0)
    )
    assert np.isclose(level, 1 / 3)
    assert strong > 0.95


def test_nobody_ever_wins():
    with pytest.raises(ValueError, match="all players play the same move"):
        make_rock_paper_scissors(2, 5, preference=1e6, random_state=7)


def test_rankings_of_new_players_are_learned():
    train, test = (make_rock_paper_scissors(random_state=seed) for seed in (0, 1))
    for options in ({}, {"relation": "reciprocal"}, {"loss": "regression"}):
        ranker = ConditionalRankRLS(2.0**-30, **options).fit(train.data, train.target)
        assert ranker.score(test.data, test.relation) > 0.95
