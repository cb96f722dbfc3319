"""P1 Table 6: disagreement error of joke rankings (Jester), Gaussian kernel.

    python benchmarks/papers/p1_jester.py

As in the paper: 300 active users; half of the jokes that one has rated to learn from, half to
test; a joke's features are its ratings by 300 reference users, the median of a user's ratings where
he has not rated it; reference users are drawn from those with 20-40, 40-60 and 60-80 ratings, and
from all; width and alpha, the same for all users, by the mean error of other users, drawn and split
in the same way (300 in the paper, ``--held-out`` here).

The data are a sample of 5000 users with 36 ratings or more (the paper: all 73,496): the reference
users of 20-40 ratings have 36 to 40. Widths are gamma = 2^-23, 2^-20, … 2^-11: larger ones make
the kernel matrix the identity (the median squared distance of jokes is about 2^13). RankSVM takes
every fifth alpha. "All pairs" are those of equal ratings too; the paper saw no difference.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from _common import GRID, parse, rls_path, table
from judgements import ratings
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import RankRLS, RankSVM, regularization_path
from rankrls.metrics import pairwise_error

Array = np.ndarray

N_REFERENCES = 300
GAMMAS = 2.0 ** np.arange(-23, -10, 3)
SIZES = {"20-40": (20, 40), "40-60": (40, 60), "60-80": (60, 80), "all": (0, 100)}
#: Name: (estimator, alphas, errors of the paper).
METHODS: dict[str, tuple[Any, Array, tuple[float, ...]]] = {
    "RankRLS, unit (20)": (RankRLS(cost="unit"), GRID, (0.413, 0.400, 0.378, 0.371)),
    "RankRLS, magnitude (21)": (RankRLS(ties="drop"), GRID, (0.413, 0.400, 0.379, 0.371)),
    "RankRLS, magnitude, all pairs": (RankRLS(), GRID, (np.nan,) * 4),
    "RankRLS, relative (22)": (RankRLS(cost="relative"), GRID, (0.445, 0.426, 0.388, 0.379)),
    "RankSVM": (RankSVM(tol=1e-3), GRID[::5], (0.413, 0.400, 0.378, 0.371)),
    "RLS, no intercept": (None, GRID, (0.414, 0.401, 0.378, 0.371)),
}


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    options = parse(__doc__, users=300, held_out=100)
    header = ["reference users", "method", "error", "± s.e.", "gamma", "alpha", "p", "P1"]
    table(header, rows(ratings(), options.users, options.held_out))


def rows(R: Array, n_users: int, n_held: int) -> Iterator[list[str]]:
    counts = (~np.isnan(R)).sum(axis=1)
    for column, (size, (least, most)) in enumerate(SIZES.items()):
        rng = np.random.default_rng(0)
        eligible = rng.permutation(np.flatnonzero((counts >= least) & (counts <= most)))
        references = eligible[:N_REFERENCES]
        others = rng.permutation(np.setdiff1d(np.arange(len(R)), references))
        features = fill(R[references]).T
        tasks = [split(R[user], rng) for user in others[: n_users + n_held]]
        reference = None
        for name, (ranker, alphas, published) in METHODS.items():
            error = np.zeros((len(GAMMAS), len(alphas)))
            for g, gamma in enumerate(GAMMAS):
                K = rbf_kernel(features, gamma=gamma)
                error[g] = sum(errors(K, task, ranker, alphas) for task in tasks[n_users:])
            g, a = np.unravel_index(np.argmin(error), error.shape)
            K = rbf_kernel(features, gamma=GAMMAS[g])
            each = np.array([errors(K, task, ranker, alphas[[a]])[0] for task in tasks[:n_users]])
            reference = each if reference is None else reference
            p = "" if each is reference else f"{wilcoxon(each, reference).pvalue:.2g}"
            yield [
                f"{size} ({len(references)} of {len(eligible)})",
                name,
                f"{each.mean():.4f}",
                f"{each.std(ddof=1) / np.sqrt(len(each)):.4f}",
                f"2^{np.log2(GAMMAS[g]):.0f}",
                f"2^{np.log2(alphas[a]):.0f}",
                p,
                "" if np.isnan(published[column]) else f"{published[column]:.3f}",
            ]


def fill(ratings: Array) -> Array:
    """The median of a user's ratings for jokes that he has not rated."""
    return np.where(np.isnan(ratings), np.nanmedian(ratings, axis=1, keepdims=True), ratings)


def split(rating: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Jokes to learn from, jokes to test with, and all ratings of a user."""
    rated = rng.permutation(np.flatnonzero(~np.isnan(rating)))
    return rated[: len(rated) // 2], rated[len(rated) // 2 :], rating


def errors(K: Array, task: tuple[Array, Array, Array], ranker: Any, alphas: Array) -> Array:
    """Disagreement errors (n_alphas,) of a user's test jokes; K (100, 100) of all jokes."""
    train, test, rating = task
    K_train, K_test = K[np.ix_(train, train)], K[np.ix_(test, train)]
    if ranker is None:
        scores = rls_path(K_train, rating[train], alphas) @ K_test.T
    else:
        ranker = ranker.set_params(kernel="precomputed")
        path = regularization_path(ranker, K_train, rating[train], alphas=alphas)
        scores = path.predict(K_test)
    labels = np.tile(rating[test, None], len(alphas))
    return pairwise_error(labels, scores.T, ties="error", average=None)[0]


if __name__ == "__main__":
    main()
