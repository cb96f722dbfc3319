"""Judgements: probabilities beside logistic regression on differences, and speed of RankRLSCV.

    python benchmarks/judgements.py                # log loss and accuracy on four data sets
    python benchmarks/judgements.py --quick        # one split of each, fewer judgements
    python benchmarks/judgements.py --speed        # ratios of time; needs a quiet machine and 8 GB

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
magnitude 0), in choosing and in testing. Times are those of the whole choice and the last fit. The
column "leave-group-out" is RankRLSCV with every group left out instead of five folds, "logit"
RankRLSCV(link="logit").

Data are read from ``--data``, by default the folder RANKRLS_DATA (docs/data.md); data
sets that are absent are reported and skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peer_data import DATA, load
from scipy.linalg import eigh
from scipy.sparse.linalg import svds
from scipy.special import xlog1py, xlogy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler
from timing import Row, print_table, seconds

from rankrls import RankRLS, RankRLSCV

ALPHAS = 2.0 ** np.arange(-15, 16)
N_FOLDS = 5
TIES = 1 / 6
Splits = list[tuple[np.ndarray, np.ndarray]]


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

    def splits(self) -> Splits:
        """Five (train, test) of judgements; no group is in both."""
        return list(GroupKFold(N_FOLDS).split(self.pairs, groups=self.groups))


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


def documents(name: str, data: Path, size: int) -> Judged:
    folds = load(name, data)
    parts = [fold.test for fold in folds]  # of OHSUMED every document once
    if name != "ohsumed":
        parts = [folds[0].train, folds[0].test]
    X, y = (np.concatenate([getattr(part, field) for part in parts]) for field in ("X", "y"))
    qid = np.concatenate([part.qid + 10**9 * k for k, part in enumerate(parts)])
    return judge(X, y, qid, np.arange(len(y)), 0.0, size)


def jester(data: Path, size: int) -> Judged:
    path = data / "jester5k" / "ratings.npz"
    if not path.exists():
        raise FileNotFoundError(f"no {path}: nothing is measured (see --data)")
    with np.load(path) as file:
        user, item, rating = (file[name].astype(np.float64) for name in ("user", "item", "rating"))
        n_users, n_items = file["shape"]
    user, item = user.astype(int), item.astype(int)
    described = user % 2 == 0
    R = np.zeros((n_users, n_items))
    R[user[described], item[described]] = rating[described]
    _, values, V = svds(R, k=20, random_state=0)
    judged = ~described
    features = V.T * values
    return judge(features, rating[judged], user[judged], item[judged], 1.0, size)


def read(name: str, data: Path, size: int) -> Judged:
    return jester(data, size) if name == "jester" else documents(name, data, size)


NAMES = ("ohsumed", "mslr", "lightgbm", "jester")


# ------------------------------------------------------------------ methods


def of_ties(tie: np.ndarray) -> np.ndarray:
    return np.where(tie, 0.5, 1.0)


def log_loss(p: np.ndarray, tie: np.ndarray) -> float:
    won = of_ties(tie)
    return float(-np.mean(xlogy(won, p) + xlog1py(1 - won, -p)))


def accuracy(p: np.ndarray, tie: np.ndarray) -> float:
    told = p[~tie]
    return float(np.mean((told > 0.5) + 0.5 * (told == 0.5)))


class Rls:
    """RankRLSCV, by folds or with every group left out."""

    def __init__(self, splits: Splits | None, link: str = "identity") -> None:
        cv = "leave-group-out" if splits is None else splits
        self.ranker = RankRLSCV(ALPHAS, cv=cv, scoring="log_loss", link=link)

    def fit(self, train: Judged) -> Rls:
        """Choose alpha, and fit."""
        groups = train.groups if isinstance(self.ranker.cv, str) else None
        self.ranker.fit(train.X, pairs=train.pairs, magnitude=1.0 - train.tie, groups=groups)
        return self

    def proba(self, test: Judged) -> np.ndarray:
        """P(the preferred one is)."""
        a, b = test.pairs.T
        return self.ranker.preference_proba(test.X[a], test.X[b])


class Logistic:
    """LogisticRegression on differences; every fold follows the grid from the last solution."""

    def __init__(self, splits: Splits) -> None:
        self.splits = splits

    def fit(self, train: Judged) -> Logistic:
        """Choose C, and fit."""
        D, tie = train.differences, train.tie
        loss = np.zeros(len(ALPHAS))
        for rows, held in self.splits:
            model = LogisticRegression(fit_intercept=False, warm_start=True, max_iter=1000)
            for a, alpha in reversed(list(enumerate(ALPHAS))):
                self._fit(model.set_params(C=1 / alpha), D[rows], tie[rows])
                p = model.predict_proba(D[held])[:, 1]
                loss[a] += log_loss(p, tie[held]) * len(held)
        self.model = LogisticRegression(
            C=1 / ALPHAS[np.argmin(loss)], fit_intercept=False, max_iter=1000
        )
        self._fit(self.model, D, tie)
        return self

    def _fit(self, model: LogisticRegression, D: np.ndarray, tie: np.ndarray) -> None:
        """Every second difference is turned round, as there have to be two classes."""
        sign = np.where(np.arange(len(D)) % 2, -1.0, 1.0)
        won = sign > 0
        X = np.concatenate([D * sign[:, None], D[tie] * sign[tie, None]])
        y = np.concatenate([won, ~won[tie]])
        weight = np.concatenate([of_ties(tie), np.full(tie.sum(), 0.5)])
        model.fit(X, y, sample_weight=weight)

    def proba(self, test: Judged) -> np.ndarray:
        """P(the preferred one is)."""
        return self.model.predict_proba(test.differences)[:, 1]


def measure(judged: Judged, quick: bool) -> dict[str, np.ndarray]:
    """Means of (log loss, accuracy, seconds) of every method over the test parts."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for rows, held in judged.splits()[: 1 if quick else None]:
        train, test = judged.take(rows), judged.take(held)
        splits = train.splits()
        methods = {
            "RankRLSCV": Rls(splits),
            "leave-group-out": Rls(None),
            "logit": Rls(splits, "logit"),
            "logistic": Logistic(splits),
        }
        for name, method in methods.items():
            start = time.perf_counter()
            method.fit(train)
            took = time.perf_counter() - start
            p = method.proba(test)
            found.setdefault(name, []).append((log_loss(p, test.tie), accuracy(p, test.tie), took))
    return {name: np.mean(values, axis=0) for name, values in found.items()}


def compare(data: Path, names: list[str], quick: bool) -> None:
    columns = ("RankRLSCV", "leave-group-out", "logit", "logistic")
    print(f"| | {' | '.join(f'log loss: {name}' for name in columns)} | ratio | ", end="")
    print(f"{' | '.join(f'accuracy: {name}' for name in columns)} | ", end="")
    print(f"{' | '.join(f's: {name}' for name in columns)} |")
    print("|---" + "|---:" * 13 + "|")
    for name in names:
        try:
            judged = read(name, data, 4_000 if quick else 20_000)
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        found = measure(judged, quick)
        values = np.array([found[method] for method in columns])
        title = (
            f"{name}: {len(judged.pairs):,} judgements in {len(np.unique(judged.groups)):,} groups"
        )
        cells = [f"{value:.4f}" for value in values[:, 0]]
        cells.append(f"{values[0, 0] / values[-1, 0]:.3f}")
        cells += [f"{value:.3f}" for value in values[:, 1]]
        cells += [f"{value:.2f}" for value in values[:, 2]]
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


# ------------------------------------------------------------------ speed


def random_pairs(n_pairs: int, m: int, rng: np.random.Generator) -> np.ndarray:
    first = rng.integers(0, m, n_pairs)
    return np.column_stack([first, (first + rng.integers(1, m, n_pairs)) % m])


def speed(quick: bool = False) -> Iterator[Row]:
    """RankRLSCV beside one fit (features) and one eigendecomposition (kernel)."""
    rng = np.random.default_rng(0)
    m, n, n_pairs, n_groups = (2_000, 50, 50_000, 100) if quick else (20_000, 200, 10**6, 1_000)
    X = rng.standard_normal((m, n))
    pairs = random_pairs(n_pairs, m, rng)
    groups = rng.integers(0, n_groups, n_pairs)
    fit = seconds(lambda: RankRLS().fit(X, pairs=pairs), 3)
    shape = f"{n_pairs:,} pairs, {m}×{n}, 31 alphas"
    for scoring in ("pairwise_accuracy", "log_loss"):
        options = {"alphas": ALPHAS, "scoring": scoring}
        ours = seconds(lambda options=options: RankRLSCV(**options).fit(X, pairs=pairs), 1)
        yield Row(f"by judgement, {scoring}, {shape}", ours, "RankRLS.fit", fit, 4.0)
        ours = seconds(
            lambda options=options: RankRLSCV(**options).fit(X, pairs=pairs, groups=groups), 1
        )
        yield Row(f"by {n_groups} groups, {scoring}, {shape}", ours, "RankRLS.fit", fit, 8.0)

    m, n_pairs = (500, 5_000) if quick else (3_000, 100_000)
    X = rng.standard_normal((m, 20))
    pairs = random_pairs(n_pairs, m, rng)
    K = rbf_kernel(X)
    decomposition = seconds(lambda: eigh(K), 2)
    for scoring in ("pairwise_accuracy", "log_loss"):
        ranker = RankRLSCV(ALPHAS, kernel="rbf", scoring=scoring)
        ours = seconds(lambda ranker=ranker: ranker.fit(X, pairs=pairs), 1)
        name = f"by judgement, {scoring}, RBF {m}, {n_pairs:,} pairs, 31 alphas"
        yield Row(name, ours, f"eigh({m})", decomposition, 2.0)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data: docs/data.md")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--speed", action="store_true", help="ratios of time instead")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "the best alpha")
    if options.speed:
        print_table(speed(options.quick))
    else:
        compare(options.data, options.sets, options.quick)


if __name__ == "__main__":
    main()
