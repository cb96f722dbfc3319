"""
Which estimate of AUC can be trusted with thirty samples?
=========================================================

The data are thirty samples of two classes with ten features of pure noise. Nothing can be learned,
and the true AUC of any model is ½. How close to ½ are the usual cross-validation estimates?
"""

# %%
# All estimates use held-out predictions of RankRLS. *Pooled* estimates compare predictions of
# different models. *Averaged* estimates only compare predictions of the same model. Leave-pair-out
# holds out each pair of a positive and a negative and compares the two.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from rankrls import RankRLS
from rankrls.model_selection import (
    averaged_auc,
    leave_one_out_auc,
    leave_pair_out_score,
    pooled_auc,
)

REPETITIONS = 50
ranker = RankRLS(alpha=1000.0)
y = np.repeat([0.0, 1.0], 15)
estimates = {
    "leave-pair-out": lambda X, seed: leave_pair_out_score(ranker, X, y),
    "averaged, 5 folds": lambda X, seed: averaged_auc(
        ranker, X, y, StratifiedKFold(5, shuffle=True, random_state=seed)
    ),
    "pooled, 10 folds": lambda X, seed: pooled_auc(
        ranker, X, y, KFold(10, shuffle=True, random_state=seed)
    ),
    "pooled, leave-one-out": lambda X, seed: leave_one_out_auc(ranker, X, y),
}
found = {name: [] for name in estimates}
for seed in range(REPETITIONS):
    X = np.random.default_rng(seed).standard_normal((30, 10))
    for name, estimate in estimates.items():
        found[name].append(estimate(X, seed))

# %%
# Each dot is a data set. The bars are the means.
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for place, (name, values) in enumerate(found.items()):
    spread = np.random.default_rng(0).uniform(-0.2, 0.2, REPETITIONS)
    ax.plot(values, place + spread, ".", color="C0" if place < 2 else "C1", alpha=0.6)
    ax.plot([np.mean(values)] * 2, [place - 0.35, place + 0.35], color="0.1", linewidth=2.5)
    print(f"{name:22} mean {np.mean(values):.3f} ± {np.std(values) / REPETITIONS**0.5:.3f}")
ax.axvline(0.5, color="0.5", linestyle=":")
ax.set(yticks=range(len(found)), yticklabels=list(found), xlabel="estimated AUC (true AUC: 0.5)")
ax.invert_yaxis()

# %%
# Conclusion
# ----------
# All estimates vary a lot, because thirty samples are few. The means of leave-pair-out and of
# averaged folds are at ½, as they should be. Pooled estimates are too low. If a positive is held
# out, its model is trained on fewer positives and predicts slightly lower scores, and the score of
# the held-out positive is then compared with scores of other models. The bias grows with the
# regularisation strength; for alpha → ∞, pooled leave-one-out gives 0. Do not pool predictions of
# different models. Leave-pair-out avoids this and uses all pairs.
# (``examples/cross_validation_bias.py`` measures the biases with 10,000 repetitions, also on data
# with something to learn.)
