"""Nyström hold-out of folds with fewer and more rows than basis vectors, against refits."""

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls.estimators.ranker import Preferences
from rankrls.model_selection import holdout_predict

ALPHAS = np.array([1e-3, 1.0, 1e4])
ROWS = np.random.default_rng(9).permutation(60)
QID = np.empty(60, dtype=np.int64)  # of rows in random order, five for each query
QID[ROWS] = np.repeat(np.arange(12), 5)
BASIS = np.sort(ROWS[[0, 5, 20, 30, 40, 45, 50, 55]])  # of queries 0, 1, 4, 6, 8, 9, 10, 11


def make(seed=0, n_outputs=None, levels=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3))
    y = rng.standard_normal(60 if n_outputs is None else (60, n_outputs))
    if levels is not None:
        y = np.digitize(y, levels).astype(float)
    return X, y, QID, rng


def query_folds(qid, *groups):
    return [np.flatnonzero(np.isin(qid, group)) for group in groups]


def refitted(options, X, y, qid, held, alpha, basis=BASIS):
    rest = np.setdiff1d(np.arange(X.shape[0]), held)
    inner = np.searchsorted(rest, np.intersect1d(basis, rest))
    ranker = RankRLS(alpha, **options | {"basis": inner, "solver": "nystroem"})
    precomputed = options.get("kernel") == "precomputed"
    train = X[rest][:, rest] if precomputed else X[rest]
    new = X[held][:, rest] if precomputed else X[held]
    return ranker.fit(train, y[rest], qid=None if qid is None else qid[rest]).predict(new)


def assert_refits(options, X, y, qid, folds, alphas=ALPHAS, rtol=1e-8, basis=BASIS, refits=0):
    """Predictions of every fold, up to a constant for each query."""
    ranker = RankRLS(**options, basis=basis, solver="nystroem")
    kernel, data, graph = ranker._prepare(X, Preferences(y, qid=qid))
    found = ranker._problem(kernel, data, graph).leave_out(folds, alphas)
    assert refits is None or found.n_refits.tolist() == [refits] * len(alphas)
    for held, part in zip(folds, found.predictions, strict=True):
        for a, alpha in enumerate(alphas):
            expected = refitted(options, X, y, qid, held, alpha, basis).reshape(len(held), -1)
            size = np.abs(expected).max()
            difference = part[a] - expected
            for query in np.unique(np.zeros(len(held)) if qid is None else qid[held]):
                rows = slice(None) if qid is None else qid[held] == query
                spread = difference[rows] - difference[rows].mean(axis=0)
                assert np.abs(spread).max() <= rtol * size, (len(held), alpha)


QUERIES = ([4], [7], [0, 1], [2, 3, 4, 5], [6, 7, 8, 9, 10, 11], list(range(1, 9)), list(range(10)))


@pytest.mark.parametrize("weighting", ["pair", "size", "query"])
@pytest.mark.parametrize(
    ("cost", "ties"), [("magnitude", "keep"), ("magnitude", "drop"), ("unit", "drop"),
                       ("relative", "drop")]
)  # fmt: skip
def test_queries(cost, ties, weighting):
    """Folds of a sixth of the rows up to five sixths, in any row order, with tied labels."""
    X, y, qid, _ = make(levels=[-0.7, 0.7])
    options = {"kernel": "rbf", "gamma": 0.3, "cost": cost, "ties": ties}
    options["query_weighting"] = weighting
    assert_refits(options, X, y, qid, query_folds(qid, *QUERIES))


@pytest.mark.parametrize("weighting", ["pair", "size", "query"])
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_rows_of_one_ranking(weighting, n_outputs):
    X, y, _, rng = make(seed=1, n_outputs=n_outputs)
    order = rng.permutation(60)
    folds = [
        BASIS[:1],
        BASIS[2:5],
        order[:4],
        order[:12],
        order[12:40],
        np.setdiff1d(order, BASIS[3:]),
        order[::2],
    ]
    options = {"kernel": "rbf", "gamma": 0.3, "query_weighting": weighting}
    assert_refits(options, X, y, None, folds)


@pytest.mark.parametrize("with_qid", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])  # the first: of rank three
def test_dependent_basis_vectors(kernel, with_qid):
    """The same rows twice, inside and outside of the fold; features of a lower rank."""
    X, y, qid, rng = make(seed=2)
    X[BASIS[[1, 4, 7]]] = X[BASIS[[0, 3, 0]]]
    X[ROWS[[2, 33]]] = X[BASIS[2]]
    folds = query_folds(qid, *QUERIES) if with_qid else list(rng.permutation(60).reshape(3, 20))
    options = {"kernel": kernel, "gamma": 0.3}
    assert_refits(options, X, y, qid if with_qid else None, folds, refits=None)


@pytest.mark.parametrize("with_qid", [False, True])
def test_tiny_and_huge_alpha(with_qid):
    X, y, qid, rng = make(seed=3)
    folds = query_folds(qid, *QUERIES) if with_qid else list(rng.permutation(60).reshape(3, 20))
    qid = qid if with_qid else None
    options = {"kernel": "rbf", "gamma": 0.3}
    assert_refits(options, X, y, qid, folds, alphas=np.array([1e-6, 1e9]), rtol=1e-7)
    assert_refits(options, X, y, qid, folds, alphas=np.array([1e-10]), rtol=1e-6)


@pytest.mark.parametrize("with_qid", [False, True])
def test_a_fold_with_all_basis_vectors(with_qid):
    X, y, qid, _ = make(seed=7)
    held = np.flatnonzero(qid < 9)
    basis = held[:6]
    ranker = RankRLS(kernel="rbf", basis=basis)
    with pytest.raises(ValueError, match="a fold contains all basis vectors"):
        holdout_predict(ranker, X, y, [held], qid=qid if with_qid else None)
