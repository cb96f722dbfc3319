"""Estimates of AUC against loops that are obviously right."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    StratifiedKFold,
    cross_val_predict,
)

from rankrls import PreferenceGraph, RankRLS
from rankrls.model_selection import (
    averaged_auc,
    balanced_leave_one_out_auc,
    leave_one_out_auc,
    leave_pair_out_auc,
    pooled_auc,
    refits,
)

ALL = [pooled_auc, averaged_auc, leave_one_out_auc, balanced_leave_one_out_auc, leave_pair_out_auc]
POOLED = [pooled_auc, leave_one_out_auc, balanced_leave_one_out_auc]
each = pytest.mark.parametrize("estimate", ALL)


def call(estimate, *args, **kwargs):
    if estimate is balanced_leave_one_out_auc:
        kwargs["random_state"] = 0
    return estimate(*args, **kwargs)


def make_data(n=16, seed=0, shift=1.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, 3))
    X[:, 0] += shift * y
    return X, y


def held_out(X, y, train, test):
    """Scores of the test rows by ridge regression with an intercept: RankRLS, ties kept."""
    alpha = 1.0 / len(train)
    return Ridge(alpha).fit(X[train], y[train]).predict(X[test])


# ---------------------------------------------------------------------- against loops


@pytest.mark.parametrize("cv", [KFold(4), StratifiedKFold(5, shuffle=True, random_state=1)])
def test_pooled(cv):
    X, y = make_data()
    pooled = np.empty(16)
    for train, test in cv.split(X, y):
        pooled[test] = held_out(X, y, train, test)
    assert_allclose(pooled_auc(RankRLS(), X, y, cv), roc_auc_score(y, pooled))


def test_averaged_leaves_out_folds_of_one_class():
    X, y = make_data()
    y = np.sort(y)
    folds = [[0, 1], [2, 3, 15], [4, 5, 13, 14], [6, 12], [7, 8, 9, 10, 11]]
    splits = [(np.setdiff1d(np.arange(16), fold), np.array(fold)) for fold in folds]
    aucs = [roc_auc_score(y[s[1]], held_out(X, y, *s)) for s in splits[1:]]
    assert_allclose(averaged_auc(RankRLS(), X, y, splits), np.mean(aucs))


def test_leave_one_out():
    X, y = make_data()
    pooled = [held_out(X, y, train, test)[0] for train, test in LeaveOneOut().split(X)]
    assert_allclose(leave_one_out_auc(RankRLS(), X, y), roc_auc_score(y, pooled))
    assert leave_one_out_auc(RankRLS(), X, y) == pooled_auc(RankRLS(), X, y, LeaveOneOut())


def test_balanced_leave_one_out(monkeypatch):
    X, y = make_data(17)
    splits, fit = [], refits.held_out_scores
    kept = lambda m, X, y, given, **o: fit(m, X, y, splits.extend(given) or splits, **o)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(refits, "held_out_scores", kept)
        estimate = balanced_leave_one_out_auc(RankRLS(), X, y, random_state=3)
    for i, (train, test) in enumerate(splits):
        left = np.setdiff1d(np.arange(17), train)
        assert test.tolist() == [i]
        assert i in left
        assert sorted(y[left]) == [0, 1]
    pooled = [held_out(X, y, train, test)[0] for train, test in splits]
    assert_allclose(estimate, roc_auc_score(y, pooled))
    others = {balanced_leave_one_out_auc(RankRLS(), X, y, random_state=s) for s in range(8)}
    assert len(others) > 1


def test_leave_pair_out():
    X, y = make_data()
    right = []
    for i, j in itertools.product(np.flatnonzero(y == 1), np.flatnonzero(y == 0)):
        positive, negative = held_out(X, y, np.setdiff1d(np.arange(16), [i, j]), [i, j])
        right.append(positive > negative)
    assert_allclose(leave_pair_out_auc(RankRLS(), X, y), np.mean(right))


@each
def test_labels_only_need_an_order(estimate):
    X, y = make_data()
    ranker = RankRLS(alpha=3.0)
    expected = call(estimate, ranker, X, y)
    for labels in (y * 2 - 1, y + 0.5, y.astype(bool), pd.Series(y), y.tolist(), y.astype(object)):
        assert_allclose(call(estimate, ranker, X, labels), expected)
    names = np.array(["no", "yes"])[y]
    logistic = LogisticRegression()
    expected = call(estimate, logistic, X, y)
    assert call(estimate, logistic, X, names) == expected
    assert call(estimate, logistic, X, names.astype(object)) == expected


# ---------------------------------------------------------------------- the constant


@pytest.mark.parametrize("estimate", POOLED)
def test_a_constant_per_fit_plays_no_part(estimate):
    class Shifted(RankRLS):
        def predict(self, X, return_std=False):
            return super().predict(X) + 1e3 * np.sin(1e6 * self.coef_[0])

    X, y = make_data()
    expected = call(estimate, RankRLS(), X, y)
    assert_allclose(call(estimate, Shifted(), X, y), expected)
    assert_allclose(call(estimate, RankRLS(), X + 100.0, y), expected)


def test_pooling_as_scikit_learn_does():
    X, y = make_data(20)
    logistic = LogisticRegression()
    pooled = cross_val_predict(logistic, X, y, cv=5, method="decision_function")
    assert pooled_auc(logistic, X, y, 5) == roc_auc_score(y, pooled)
    forest = RandomForestClassifier(10, random_state=0)
    pooled = cross_val_predict(forest, X, y, cv=5, method="predict_proba")[:, 1]
    assert_allclose(pooled_auc(forest, X, y, 5), roc_auc_score(y, pooled))


def test_a_model_that_learns_nothing():
    X, y = np.zeros((12, 2)), np.arange(12) % 2
    assert leave_one_out_auc(RankRLS(), X, y) == 0.0
    for estimate in (averaged_auc, balanced_leave_one_out_auc, leave_pair_out_auc):
        assert call(estimate, RankRLS(), X, y) == 0.5


# ---------------------------------------------------------------------- data and arguments


def test_any_container():
    X, y = make_data()
    expected = leave_pair_out_auc(RankRLS(), X, y)
    for other in (X.tolist(), sparse.csr_matrix(X), pl.DataFrame(X, schema=list("abc"))):
        assert_allclose(leave_pair_out_auc(RankRLS(), other, y), expected)
    precomputed = RankRLS(kernel="precomputed")
    for K in (pd.DataFrame(X @ X.T), sparse.csr_array(X @ X.T)):
        assert_allclose(leave_pair_out_auc(precomputed, K, y), expected)


def test_other_splitters():
    X, y = make_data(20)
    groups = np.arange(20) // 4
    cv = GroupKFold(5)
    splits = list(cv.split(X, y, groups))
    for estimate in (pooled_auc, averaged_auc):
        assert estimate(RankRLS(), X, y, cv, groups=groups) == estimate(RankRLS(), X, y, splits)
    repeated = RepeatedKFold(n_splits=4, n_repeats=2, random_state=0)
    rows = np.concatenate([test for _, test in repeated.split(X)])
    pooled = np.concatenate([held_out(X, y, *split) for split in repeated.split(X)])
    assert_allclose(pooled_auc(RankRLS(), X, y, repeated), roc_auc_score(y[rows], pooled))
    stratified = averaged_auc(RankRLS(), X, y, StratifiedKFold(5))
    assert_allclose(averaged_auc(RankRLS(), X, y + 0.5, 5), stratified)


@each
def test_bad_y(estimate):
    X, y = make_data()
    for labels, message in [
        (np.arange(16) % 3, "two levels; it has 3"),
        (np.column_stack([y, y]), r"shape \(n_rows,\); got \(16, 2\)"),
        (np.where(y == 1, np.nan, 0.0), "y is nan"),
        (PreferenceGraph.from_scores(y), "two levels"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(estimate, RankRLS(), X, labels)
    if estimate not in (pooled_auc, averaged_auc):
        with pytest.raises(ValueError, match="1 row\\(s\\) of one class and needs at least 2"):
            call(estimate, RankRLS(), X, np.arange(16) == 3)


def test_bad_arguments():
    X, y = make_data()
    for call, message in (
        (lambda: averaged_auc(RankRLS(), X, y, LeaveOneOut()), "no fold has rows of both classes"),
        (lambda: pooled_auc(RankRLS(), X, np.sort(y), KFold(2)), "fold 0 are all of one class"),
        (lambda: pooled_auc(RankRLS(), X, np.array(["no", "yes"])[y]), "y must be numeric"),
        (lambda: pooled_auc(_TwoScores(), X, y), "one score for each row"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


class _TwoScores(RankRLS):
    def predict(self, X, return_std=False):
        return np.column_stack([super().predict(X)] * 2)
