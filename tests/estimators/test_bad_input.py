"""Bad input: one clear line that says what is wrong and what to do, before any work is done."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_score

from rankrls import PreferenceGraph, RankRLS, _resources
from rankrls.core.preferences import graph as _costs
from rankrls.core.ridge.models import FittedFunction

N, D = 100, 3

rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
Y = rng.integers(4, size=N).astype(float)
QID = rng.integers(8, size=N)
PAIRS = np.array([(0, 1), (2, 3), (9, 4)])
KERNEL = X @ X.T
GRAPH = PreferenceGraph.from_scores(Y, qid=QID)


def put(array, value, where=7):
    """A copy with one entry replaced; of objects, unless the value is a float."""
    array = np.array(array, dtype=None if isinstance(value, float) else object)
    array[where] = value
    return array


def fit(*args, model=None, **kwargs):
    return lambda f: RankRLS(**(model or {})).fit(*args, **kwargs)


def fit_xy(**kwargs):
    return fit(X, Y, **kwargs)


def fit_pairs(pairs, **kwargs):
    return fit(X, pairs=pairs, **kwargs)


def model(**parameters):
    return fit(X, Y, model=parameters)


def rbf(**parameters):
    return model(kernel="rbf", random_state=0, **parameters)


def case(name, call, message, error=ValueError, **options):
    """One row of the table: what is wrong, what to call, and a pattern of the message.

    ``sklearn``: of scikit-learn, as long as it likes; the pattern must be in the first line.
    """
    return pytest.param(call, message, error, options, id=name)


CASES = [
    # ------------------------------------------------------------------ X
    case("X NaN", fit(put(X, np.nan), Y), "Input X contains NaN", sklearn=True),
    case("X None", fit(None, Y), "X must be 2-D, .*; got None"),
    case("X strings in pandas", fit(pd.DataFrame({"a": ["x"] * N}), Y), "not numbers: 'a' "),
    # ------------------------------------------------------------------ y
    case("y NaN", fit(X, put(Y, np.nan)), r"y contains NaN or infinity \(first at row 7\)"),
    case("y short", fit(X, Y[:90]), "y has 90 entries for 100 rows of X"),
    case("y strings", fit(X, ["good"] * N), "y must be numeric; got dtype .*of two classes: y =="),
    # ------------------------------------------------------------------ nothing to learn from
    case("y constant", fit(X, 0 * Y + 3), "100 rows and 1 queries, all labels of a query are"),
    case("an output constant", fit(X, np.c_[Y, 0 * Y]), r"are equal in output \(column\) 1"),
    case("no pairs", fit_pairs([]), "no query has a pair to learn from|pairs.* empty"),
    # ------------------------------------------------------------------ qid
    case("qid NaN", fit_xy(qid=put(QID / 1, np.nan)), "qid is nan at row 7: every row needs an id"),
    case("qid short", fit_xy(qid=QID[:90]), "^qid has 90 entries for 100 rows of X"),
    case("qid unhashable", fit_xy(qid=[["a"]] * N), "qid must hold hashable ids; row 0"),
    case("qid without y", fit_pairs(PAIRS, qid=QID), "qid belongs to the scores y"),
    # ------------------------------------------------------------------ sample_weight
    case(
        "weight -1", fit_xy(sample_weight=put(np.ones(N), -1.0)), "sample_weight .*; entry 7 is -1"
    ),
    # ------------------------------------------------------------------ pairs
    case("pairs out of range", fit_pairs([(0, 1), (100, 2)]), r"pairs\[1\] = \(100, 2\).*0 to 99"),
    case("pairs i = j", fit_pairs([(0, 1), (5, 5)]), r"pairs\[1\] = \(5, 5\) prefers a row to it"),
    case("pairs strings", fit_pairs([("0", "1")]), r"row numbers \(integers\).*get_indexer"),
    case("magnitude -2", fit_pairs(PAIRS, magnitude=[1, 1, -2]), "magnitude .* 2 is -2 .*swap"),
    case("magnitude alone", fit_xy(magnitude=[1.0]), "magnitude belongs to pairs"),
    # ------------------------------------------------------------------ parameters
    *(
        case(f"alpha {value!r}", model(alpha=value), "alpha must be .*> 0; got")
        for value in (0, -0.5, np.nan, 10**309, "auto", None, True, [1.0])
    ),
    case("cost", model(cost="hinge"), "cost must .*'magnitude', 'unit', 'relative'; got"),
    case("rows", model(query_weighting="rows"), "query_weighting must .*'pair', 'size', 'query'; "),
    *[
        case(f"unused {name}", model(**{name: value}), f"{name} must be .*; got ")
        for name, value in [
            *[("max_iter", 0), ("tol", -1.0), ("n_jobs", 0), ("gamma", -1.0), ("coef0", "x")],
            *[("degree", None), ("validation_fraction", 2.0), ("n_iter_no_change", 0)],
        ]
    ],
    case("solver", model(solver="svd"), "solver must be one of 'auto', 'primal', .*; got 'svd'"),
    case("kernel", model(kernel="gaussian"), "kernel must be .*'linear'.*'rbf'.*; got 'gaussian'"),
    case("weight 1e35", fit_xy(sample_weight=put(np.ones(N), 1e35)), r"largest, 1e\+35, is more"),
    case("kernel parameter", rbf(kernel_params={"sigma": 1}), r"'sigma'.*'rbf' .*takes: gamma"),
    case("primal with rbf", rbf(solver="primal"), "needs kernel='linear'.*'dual' or 'nystroem'"),
    case("basis with dual", rbf(solver="dual", basis=5), "basis belongs to solver='nystroem'"),
    case("basis too large a row", rbf(basis=[0, 100]), "basis has 100, but rows"),
    # ------------------------------------------------------------------ scores for 'relative'
    case(
        "relative, scores too close",
        fit(X, put(Y, 1e-200), model={"cost": "relative"}),
        "cost='relative' .* 1e-200, which is too small.*round the scores",
    ),
    # ------------------------------------------------------------------ precomputed kernels
    case("gram not square", fit(X, Y, model={"kernel": "precomputed"}), r"square .*\(100, 3\)"),
    case(
        "gram not symmetric",
        fit(KERNEL + np.triu(np.ones((N, N)), 1), Y, model={"kernel": "precomputed"}),
        r"not symmetric: .* by up to 1\. .*\(K \+ K.T\) / 2",
    ),
    case("graphs of scores", lambda f: GRAPH + GRAPH, "two graphs from scores cannot be added"),
    case("gram, new rows", lambda f: f.gram.predict(X), "3 features.*expecting 100"),
    # ------------------------------------------------------------------ graphs as y
    case("graph and qid", fit(X, GRAPH, qid=QID), "y is a PreferenceGraph: qid must be part of it"),
    # ------------------------------------------------------------------ predict and score
    case("predict before fit", lambda f: RankRLS().predict(X), "not fitted yet", NotFittedError),
    case("predict, features", lambda f: f.plain.predict(X[:, :2]), "2 features, .* expecting 3"),
    case("score", lambda f: f.queries.score(X, Y), "score needs qid.*in a search or a pipeline"),
    case(
        "probability, lengths",
        lambda f: f.plain.preference_proba(X[:5], X[:4]),
        r"X_a has 5 row\(s\) and X_b 4: they are compared row by row \(one with many: repeat",
    ),
]


@pytest.fixture(scope="module")
def fitted():
    return SimpleNamespace(
        plain=RankRLS().fit(X, Y),
        queries=RankRLS().fit(X, Y, qid=QID),
        gram=RankRLS(kernel="precomputed").fit(KERNEL, Y),
    )


class WorkHasBegunError(AssertionError):
    """A solver was called."""


@pytest.fixture
def no_work(monkeypatch):
    """Make every model fail as soon as it is to be solved."""

    def solve(*args, **kwargs):
        raise WorkHasBegunError

    monkeypatch.setattr(FittedFunction, "__init__", solve)


@pytest.mark.parametrize(("call", "message", "error", "options"), CASES)
def test_bad_input(call, message, error, options, fitted, no_work):
    with pytest.raises(error) as caught:
        call(fitted)
    text = str(caught.value)
    first, *more = text.splitlines()
    assert re.search(message, first), text
    if not options.get("sklearn"):
        assert not more, text
        assert len(text) < 400, text
        assert text == text.strip()


# ---------------------------------------------------------------------- that need a smaller world


def test_relative_with_too_many_levels(monkeypatch, no_work):
    monkeypatch.setattr(_costs, "MAX_LEVEL_PAIRS", 100)
    ranker = RankRLS(cost="relative")
    levels = np.arange(N) % 20  # 190 pairs of levels
    message = r"190 here .*20 distinct scores\), more than the 100 allowed. Round the scores"
    with pytest.raises(ValueError, match=message):
        ranker.fit(X, levels)
    with pytest.raises(WorkHasBegunError):  # the same scores in small queries are fine
        ranker.fit(X, levels, qid=np.arange(N) // 4 % 5)
    with pytest.raises(WorkHasBegunError):
        ranker.set_params(cost="unit").fit(X, levels)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_dual_too_large(kernel, monkeypatch, no_work):
    monkeypatch.setattr(_resources, "budget", lambda: 2 * N * N * 8 - 1)
    ranker = RankRLS(kernel=kernel, solver="dual")
    with pytest.raises(MemoryError, match=r"solver='dual' .*100 × 100.*'nystroem' with basis="):
        ranker.fit(X, Y)
    monkeypatch.setattr(_resources, "budget", lambda: 2 * N * N * 8)
    for feasible in (ranker, RankRLS(solver="dual")):  # the second needs the features only
        with pytest.raises(WorkHasBegunError):
            feasible.fit(X, Y)


def test_primal_too_large(no_work):
    wide = sparse.csr_array(([1.0, 2.0], ([0, 1], [0, 0])), shape=(50, 2_000_000))
    with pytest.raises(MemoryError, match="solver='primal'"):
        RankRLS(solver="primal").fit(wide, Y[:50])


TOO_LARGE = {
    "X": lambda ranker: ranker.fit(1e160 * X, Y).predict(1e160 * X),
    "float32 X": lambda ranker: ranker.fit(np.float32(1e25 * X), Y).predict(np.float32(1e25 * X)),
    "sample_weight": lambda ranker: ranker.fit(X, Y, sample_weight=np.full(N, 1e200)).predict(X),
    "small weights": lambda ranker: ranker.fit(X, Y, sample_weight=np.full(N, 1e-200)).predict(X),
}


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("what", TOO_LARGE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_too_large_are_named_or_do_not_matter(what, solver):
    try:
        predictions = TOO_LARGE[what](RankRLS(solver=solver))
    except ValueError as error:
        assert re.search("too (large|small)|overflow|underflow|scale", str(error))  # noqa: PT017
    else:
        assert np.isfinite(predictions).all()
        assert predictions.any()


# ---------------------------------------------------------------------- more than one call


def test_plain_pairs_through_a_search_name_the_way_out():
    pairs = np.array([(0, N - 1), (N - 1, 3)])
    with pytest.raises(ValueError, match=r"PreferenceGraph.from_pairs\(...\)") as caught:
        cross_val_score(RankRLS(), X, Y, cv=KFold(2), params={"pairs": pairs}, error_score="raise")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("label", [lambda q: ("q", (q, None)), lambda q: (q,) * (1 + q % 2)])
def test_ragged_tuples_are_good_labels_of_queries(label):
    labels = [label(int(q)) for q in QID]
    expected = RankRLS().fit(X, Y, qid=QID).coef_
    np.testing.assert_allclose(RankRLS().fit(X, Y, qid=labels).coef_, expected)
    with pytest.raises(ValueError, match="qid has 99 entries for 100 rows of X"):
        RankRLS().fit(X, Y, qid=labels[1:])


def test_kernel_functions_return_numbers():
    ranker = RankRLS(kernel=lambda a, b: np.ones(3))
    with pytest.raises(ValueError, match="kernel <lambda> must return a number for two rows; got"):
        ranker.fit(X, Y)
