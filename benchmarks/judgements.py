"""Judgements: probabilities beside logistic regression on differences.

    python benchmarks/judgements.py                # log loss and accuracy on four data sets
    python benchmarks/judgements.py --quick        # one split of each, fewer judgements

Judgements are made of real data, about one in six a tie:

- ohsumed, mslr, lightgbm: two documents of a query, the one of the higher grade is preferred, equal
  grades are ties; groups are queries;
- jester: two jokes that a user rated, the one with the higher rating is preferred, ratings that
  differ by less than 1 (of 20) are ties; groups are users. Features of a joke are the first 20
  singular vectors of the ratings of half the users; the judgements are those of the other half.

Groups are divided into five parts; each is the test set once. RankRLSCV(scoring="log_loss") and
L2-regularised logistic regression without an intercept on explicit differences (the Bradley-Terry
model with features) choose among the same 31 values, C = 1/alpha, by the log loss of the same five
folds of the training groups. A tie counts as half a win each way for both, in training (RankRLSCV:
magnitude 0), in choosing and in testing. Times are those of the whole choice and the last fit.
"leave-group-out" is RankRLSCV with every group left out instead of five folds, "logit"
RankRLSCV(link="logit").
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from peer_data import load
from scipy.sparse.linalg import svds
from scipy.special import xlog1py, xlogy
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler
from timing import Missing, need, parse, table

from rankrls import RankRLSCV

ALPHAS = 2.0 ** np.arange(-15, 16)
TIES = 1 / 6
METHODS = ("RankRLSCV", "leave-group-out", "logit", "logistic")


@dataclass(frozen=True)
class Judged:
    """X (m, n); pairs (N, 2) of its rows, preferred and other; tie (N,) bool; groups (N,)."""

    X: np.ndarray
    pairs: np.ndarray
    tie: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> Judged:
        """Some of the judgements."""
        return Judged(self.X, self.pairs[rows], self.tie[rows], self.groups[rows])

    @property
    def differences(self) -> np.ndarray:
        """x_preferred − x_other, (N, n)."""
        return self.X[self.pairs[:, 0]] - self.X[self.pairs[:, 1]]

    def splits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Five (train, test) of judgements; no group is in both."""
        return list(GroupKFold(5).split(self.pairs, groups=self.groups))


def judge(
    X: np.ndarray, value: np.ndarray, group: np.ndarray, row: np.ndarray, equal: float, size: int
) -> Judged:
    """Random pairs of entries of the same group, the one of the higher value preferred.

    ``value``, ``group`` and ``row`` (of X) have an entry for each thing that can be judged; values
    that differ by no more than ``equal`` are ties, of which only some are kept.
    """
    rng = np.random.default_rng(0)
    order = np.argsort(group, kind="stable")
    value, group, row = value[order], group[order], row[order]
    starts, counts = np.unique(group, return_index=True, return_counts=True)[1:]
    first = rng.integers(0, len(group), 8 * size)
    which = np.searchsorted(starts, first, side="right") - 1
    second = starts[which] + rng.integers(0, counts[which])
    difference = value[first] - value[second]
    a, b = np.where(difference > 0, first, second), np.where(difference > 0, second, first)
    tie = np.abs(difference) <= equal
    told, tied = (np.flatnonzero((row[a] != row[b]) & kind) for kind in (~tie, tie))
    chosen = np.concatenate([told[: int(size * (1 - TIES))], tied[: int(size * TIES)]])
    chosen = rng.permutation(chosen)
    pairs = np.column_stack([row[a], row[b]])[chosen]
    return Judged(StandardScaler().fit_transform(X), pairs, tie[chosen], group[a][chosen])


def documents(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, grades and queries; of OHSUMED every document once."""
    folds = load(name)
    several = len(folds) > 1
    parts = [fold.test for fold in folds] if several else [folds[0].train, folds[0].test]
    X, y = (np.concatenate([getattr(part, field) for part in parts]) for field in ("X", "y"))
    return X, y, np.concatenate([part.qid + 10**9 * k for k, part in enumerate(parts)])


def ratings() -> np.ndarray:
    """Ratings of Jester, (users, jokes), NaN where there is none."""
    with np.load(need("jester5k/ratings.npz")[0]) as file:
        R = np.full(tuple(file["shape"]), np.nan)
        R[file["user"], file["item"]] = file["rating"]
    return R


def joke_features(R: np.ndarray) -> np.ndarray:
    """Singular vectors of some users' ratings."""
    _, values, V = svds(np.nan_to_num(R), k=20, random_state=0)
    return V.T * values


def read(name: str, size: int) -> Judged:
    if name != "jester":
        X, y, qid = documents(name)
        return judge(X, y, qid, np.arange(len(y)), 0.0, size)
    R = ratings()
    user, item = np.nonzero(~np.isnan(R) & (np.arange(len(R)) % 2 == 1)[:, None])
    return judge(joke_features(R[::2]), R[user, item], user, item, 1.0, size)


def log_loss(p: np.ndarray, tie: np.ndarray) -> float:
    won = np.where(tie, 0.5, 1.0)
    return float(-np.mean(xlogy(won, p) + xlog1py(1 - won, -p)))


def rls(cv: Any, link: str = "identity") -> Callable[[Judged, Judged], np.ndarray]:
    """P(the preferred one is) of test judgements by RankRLSCV."""

    def proba(train: Judged, test: Judged) -> np.ndarray:
        ranker = RankRLSCV(ALPHAS, cv=cv, scoring="log_loss", link=link)
        groups = train.groups if cv == "leave-group-out" else None
        ranker.fit(train.X, pairs=train.pairs, magnitude=1.0 - train.tie, groups=groups)
        return ranker.preference_proba(*(test.X[rows] for rows in test.pairs.T))

    return proba


def logistic(train: Judged, test: Judged) -> np.ndarray:
    """The same by LogisticRegression; every fold follows the grid from the last solution."""
    D, tie = train.differences, train.tie
    loss = np.zeros(len(ALPHAS))
    options = {"fit_intercept": False, "max_iter": 1000}
    for rows, held in train.splits():
        model = LogisticRegression(warm_start=True, **options)
        for a, alpha in reversed(list(enumerate(ALPHAS))):
            _fit(model.set_params(C=1 / alpha), D[rows], tie[rows])
            loss[a] += log_loss(model.predict_proba(D[held])[:, 1], tie[held]) * len(held)
    model = LogisticRegression(C=1 / ALPHAS[np.argmin(loss)], **options)
    _fit(model, D, tie)
    return model.predict_proba(test.differences)[:, 1]


def _fit(model: LogisticRegression, D: np.ndarray, tie: np.ndarray) -> None:
    """Every second difference is turned round, as there have to be two classes."""
    sign = np.where(np.arange(len(D)) % 2, -1.0, 1.0)
    X = np.concatenate([D * sign[:, None], D[tie] * sign[tie, None]])
    y = np.concatenate([sign > 0, sign[tie] < 0])
    weight = np.concatenate([np.where(tie, 0.5, 1.0), np.full(tie.sum(), 0.5)])
    model.fit(X, y, sample_weight=weight)


def measure(judged: Judged, quick: bool) -> np.ndarray:
    """Means of (log loss, accuracy, seconds) of every method over the test parts."""
    found = []
    for rows, held in judged.splits()[: 1 if quick else None]:
        train, test = judged.take(rows), judged.take(held)
        splits, told = train.splits(), ~test.tie
        for proba in (rls(splits), rls("leave-group-out"), rls(splits, "logit"), logistic):
            start = time.perf_counter()
            p = proba(train, test)
            took = time.perf_counter() - start
            accuracy = np.mean((p[told] > 0.5) + 0.5 * (p[told] == 0.5))
            found.append((log_loss(p, test.tie), accuracy, took))
    return np.reshape(found, (-1, len(METHODS), 3)).mean(axis=0)


def rows(sets: list[str], quick: bool) -> Iterator[list[str]]:
    for name in sets:
        try:
            judged = read(name, 4_000 if quick else 20_000)
        except Missing as error:
            yield [str(error)]
            continue
        groups = len(np.unique(judged.groups))
        loss, accuracy, took = measure(judged, quick).T
        cells = [*(f"{v:.4f}" for v in loss), *(f"{v:.3f}" for v in accuracy)]
        title = f"{name}: {len(judged.pairs):,} judgements in {groups:,} groups"
        yield [title, *cells, *(f"{v:.2f}" for v in took)]


def main() -> None:
    options = parse(__doc__, sets=["ohsumed", "mslr", "lightgbm", "jester"], quick=False)
    warnings.filterwarnings("ignore", "the best alpha")
    heads = [f"{what}: {name}" for what in ("log loss", "accuracy", "s") for name in METHODS]
    table(["", *heads], rows(options.sets, options.quick))


if __name__ == "__main__":
    main()
