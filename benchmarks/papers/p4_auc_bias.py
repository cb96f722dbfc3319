"""P4 Figure 2: bias of cross-validation estimates of the AUC.

    python benchmarks/papers/p4_auc_bias.py --repetitions 1000

The simulation of Airola's thesis summary (§3): 30 rows, 10 features of unit variance, one of them
with mean +0.5 in one class and −0.5 in the other. A linear RankRLS is trained on the rows, its AUC
is estimated from the same rows in several ways, and compared with its true AUC, which for a linear
score w of normal classes is Φ(w·(μ₊ − μ₋) / √(2 wᵀw)). The paper does not state the number of
positive rows and the regularisation: 15 and 30 here. Folds are random unless the row says
"stratified"; balanced leave-one-out leaves a row of the other class out with each row.
"""

from __future__ import annotations

import numpy as np
from _common import parse, table
from scipy.special import ndtr
from sklearn.model_selection import KFold, StratifiedKFold

from rankrls import RankRLS
from rankrls.model_selection import averaged_auc, leave_one_out_auc, leave_pair_out_auc, pooled_auc

N_ROWS, N_FEATURES, SHIFT = 30, 10, 0.5
RANKER = RankRLS(30.0)


def estimates(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    found = {"leave-pair-out": leave_pair_out_auc(RANKER, X, y)}
    for name, kind in (("", KFold), (", stratified", StratifiedKFold)):
        for k in (5, 10):
            folds = kind(k, shuffle=True, random_state=seed)
            found[f"averaged {k}-fold{name}"] = averaged_auc(RANKER, X, y, folds)
        found[f"pooled 10-fold{name}"] = pooled_auc(RANKER, X, y, folds)
    found["leave-one-out"] = leave_one_out_auc(RANKER, X, y)
    rng, rows = np.random.default_rng(seed), np.arange(N_ROWS)
    partner = [rng.choice(np.flatnonzero(y != y[row])) for row in rows]
    splits = [(np.setdiff1d(rows, [row, partner[row]]), [row]) for row in rows]
    return found | {"balanced leave-one-out": pooled_auc(RANKER, X, y, splits)}


def main() -> None:
    options = parse(__doc__, repetitions=1000, seed=0)
    rng = np.random.default_rng(options.seed)
    y = (np.arange(N_ROWS) < N_ROWS // 2).astype(float)
    found, true = [], []
    for repetition in range(options.repetitions):
        X = rng.normal(size=(N_ROWS, N_FEATURES))
        X[:, -1] += SHIFT * (2 * y - 1)
        found.append(estimates(X, y, repetition))
        w = RANKER.fit(X, y).coef_
        true.append(ndtr(2 * SHIFT * w[-1] / np.sqrt(2 * w @ w)))
    print(f"true AUC: mean {np.mean(true):.4f}, standard deviation {np.std(true, ddof=1):.4f}\n")
    rows = []
    for name in found[0]:
        values = np.array([one[name] for one in found])
        spread = (values - true).std(ddof=1)
        bias, error = (values - true).mean(), spread / np.sqrt(len(true))
        figures = (bias, error, spread, values.std(ddof=1))
        rows.append([name, *(f"{figure:.4f}" for figure in figures)])
    table(["estimate", "bias", "± s.e.", "sd(est − true)", "sd(est)"], rows)


if __name__ == "__main__":
    main()
