"""Bias of cross-validation estimates of the AUC.

The simulation of Airola's thesis summary (§3, Figure 2): 30 rows, 10 features of unit variance, one
of them with mean +0.5 in one class and -0.5 in the other. A linear RankRLS is trained on the rows,
its AUC is estimated from the same rows in several ways, and compared with its true AUC, which for a
linear score w of normal classes is Φ(w·(μ₊ − μ₋) / √(2 wᵀw)).

    python benchmarks/papers/p4_auc_bias.py --repetitions 10000

The paper does not state the number of positive rows and the regularisation: 15 and 30
here. Folds are random unless the row says "stratified".

That command printed (27 s):

    true AUC: mean 0.6510, standard deviation 0.0520

    estimate                           bias   ± s.e.  sd(est − true)  sd(est)
    leave-pair-out                  -0.0060   0.0013          0.1347   0.1351
    averaged 5-fold                 -0.0170   0.0015          0.1539   0.1540
    averaged 10-fold                -0.0085   0.0017          0.1697   0.1692
    averaged 5-fold, stratified     -0.0158   0.0015          0.1470   0.1465
    averaged 10-fold, stratified    -0.0080   0.0016          0.1550   0.1552
    pooled 10-fold                  -0.0367   0.0014          0.1413   0.1416
    pooled 10-fold, stratified      -0.0238   0.0014          0.1377   0.1376
    leave-one-out                   -0.0334   0.0014          0.1406   0.1413
    balanced leave-one-out          -0.0153   0.0013          0.1340   0.1340

As in the paper, leave-pair-out has the smallest bias and the pooled estimates the largest.
Balancing the classes removes about half of the bias of leave-one-out. The expected value of
leave-pair-out is the AUC of a model trained on 28 instead of 30 rows, which explains its bias. Its
variance is smaller than that of the other averaged estimates. With only 30 rows, the standard
deviation of all estimates is far larger than their bias.
"""

from __future__ import annotations

import numpy as np
from _common import finish, parse, table
from scipy.special import ndtr

from rankrls import RankRLS
from rankrls.model_selection import averaged_auc, leave_one_out_auc, leave_pair_out_auc, pooled_auc

N_ROWS, N_POSITIVE, N_FEATURES, SHIFT, ALPHA = 30, 15, 10, 0.5, 30.0
#: Name: (how the held-out predictions are combined, what is held out).
STRATEGIES = {
    "leave-pair-out": ("averaged", "pairs"),
    "averaged 5-fold": ("averaged", "5 folds"),
    "averaged 10-fold": ("averaged", "10 folds"),
    "averaged 5-fold, stratified": ("averaged", "5 stratified folds"),
    "averaged 10-fold, stratified": ("averaged", "10 stratified folds"),
    "pooled 10-fold": ("pooled", "10 folds"),
    "pooled 10-fold, stratified": ("pooled", "10 stratified folds"),
    "leave-one-out": ("pooled", "rows"),
    "balanced leave-one-out": ("pooled", "rows, balanced"),
}


def main() -> None:
    options = parse(__doc__, repetitions=1000, seed=0)
    estimates, true = simulate(options.repetitions, options.seed)
    print(f"true AUC: mean {true.mean():.4f}, standard deviation {true.std(ddof=1):.4f}\n")
    rows = []
    for name, values in estimates.items():
        deviation = values - true
        spread = deviation.std(ddof=1)
        figures = deviation.mean(), spread / np.sqrt(len(true)), spread, values.std(ddof=1)
        rows.append([name, *(f"{figure:.4f}" for figure in figures)])
    table(["estimate", "bias", "± s.e.", "sd(est − true)", "sd(est)"], rows)
    finish()


def simulate(repetitions: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Estimates of every strategy and the true AUC, each of shape (repetitions,)."""
    rng = np.random.default_rng(seed)
    y = (np.arange(N_ROWS) < N_POSITIVE).astype(float)
    everything = np.ones((1, N_ROWS), dtype=bool)
    estimates: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    true = []
    for repetition in range(repetitions):
        X = rng.normal(size=(N_ROWS, N_FEATURES))
        X[:, -1] += SHIFT * (2 * y - 1)
        splits = held_out_rows(y, rng)
        scores = {what: predict_all(X, y, train) for what, (train, _) in splits.items()}
        for name, (how, what) in STRATEGIES.items():
            combine = averaged if how == "averaged" else pooled
            estimates[name].append(combine(y, scores[what], splits[what][1]))
        w = weights(X, y, everything)[0]
        true.append(ndtr(2 * SHIFT * w[-1] / np.sqrt(2 * w @ w)))
        if repetition == 0:
            check_against_library(X, y, splits, w, estimates)
    return {name: np.array(values) for name, values in estimates.items()}, np.array(true)


def held_out_rows(y: np.ndarray, rng: np.random.Generator) -> dict[str, tuple]:
    """For everything that is held out: masks (train, test) of shape (n_splits, n_rows)."""
    positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    eye = np.eye(N_ROWS, dtype=bool)
    pairs = (eye[positive][:, None] | eye[negative]).reshape(-1, N_ROWS)
    partner = np.where(y == 1, rng.choice(negative, N_ROWS), rng.choice(positive, N_ROWS))
    # Stratified: rows are assigned to the folds class after class, in random order.
    assigned = np.argsort(np.concatenate([rng.permutation(positive), rng.permutation(negative)]))
    anyhow = rng.permutation(N_ROWS)
    splits = {
        "pairs": (~pairs, pairs),
        "rows": (~eye, eye),
        "rows, balanced": (~(eye | eye[partner]), eye),
    }
    for k in (5, 10):
        for name, place in ((f"{k} folds", anyhow), (f"{k} stratified folds", assigned)):
            test = place % k == np.arange(k)[:, None]
            splits[name] = (~test, test)
    return splits


def weights(X: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """RankRLS for all training sets at once: (n_splits, n_features).

    All pairs of n rows: L = n I − 1 1ᵀ, so that XᵀLX = n (XᵀX − n x̄ x̄ᵀ) and r = L y.
    """
    T = train.astype(float)
    n = T.sum(axis=1)
    products = (X[:, :, None] * X[:, None, :]).reshape(N_ROWS, -1)
    sums, total = T @ X, T @ y
    gram = (T @ products).reshape(-1, N_FEATURES, N_FEATURES)
    G = n[:, None, None] * gram - sums[:, :, None] * sums[:, None, :]
    r = n[:, None] * (T @ (X * y[:, None])) - sums * total[:, None]
    return np.linalg.solve(G + ALPHA * np.eye(N_FEATURES), r[:, :, None])[:, :, 0]


def predict_all(X: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Scores of all rows by all models, with a zero mean training residual: (n_splits, n_rows)."""
    scores = weights(X, y, train) @ X.T
    n = train.sum(axis=1, keepdims=True)
    return scores + ((y - scores) * train).sum(axis=1, keepdims=True) / n


def averaged(y: np.ndarray, scores: np.ndarray, test: np.ndarray) -> float:
    """Mean AUC of the test sets that have both classes; all matrices are (n_splits, n_rows)."""
    compared = test[:, y == 1, None] & test[:, None, y == 0]
    right = heaviside(scores[:, y == 1, None] - scores[:, None, y == 0])
    n_pairs = compared.sum(axis=(1, 2))
    return float(((right * compared).sum(axis=(1, 2))[n_pairs > 0] / n_pairs[n_pairs > 0]).mean())


def pooled(y: np.ndarray, scores: np.ndarray, test: np.ndarray) -> float:
    """AUC of all held-out scores together."""
    held_out = (scores * test).sum(axis=0)  # every row is in one test set
    return float(heaviside(held_out[y == 1][:, None] - held_out[y == 0]).mean())


def heaviside(difference: np.ndarray) -> np.ndarray:
    return (np.sign(difference) + 1) / 2


def check_against_library(X, y, splits, w, estimates) -> None:
    """The shortcuts of this script give what the library gives by refitting."""
    ranker = RankRLS(ALPHA)
    assert np.allclose(w, ranker.fit(X, y).coef_)
    for name, (how, what) in STRATEGIES.items():
        train, test = splits[what]
        cv = [(np.flatnonzero(a), np.flatnonzero(b)) for a, b in zip(train, test, strict=True)]
        library = (averaged_auc if how == "averaged" else pooled_auc)(ranker, X, y, cv)
        assert np.isclose(estimates[name][0], library), name
    assert np.isclose(estimates["leave-pair-out"][0], leave_pair_out_auc(ranker, X, y))
    assert np.isclose(estimates["leave-one-out"][0], leave_one_out_auc(ranker, X, y))


if __name__ == "__main__":
    main()
