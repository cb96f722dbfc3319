"""
Which estimate of AUC can be trusted with thirty samples?
=========================================================

Thirty samples of two classes, ten features of noise: nothing can be learned, and the true AUC of
any model is ½. What do the usual ways of cross-validation say?
"""

# %%
# Every estimate is made of held-out predictions of RankRLS. *Pooled* ones compare predictions of
# different models, *averaged* ones only those of the same model. Leave-pair-out holds out every
# pair of a positive and a negative, and compares the two.
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
# Each dot is a data set, the bar is the mean.
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for place, (name, values) in enumerate(found.items()):
    spread = np.random.default_rng(0).uniform(-0.2, 0.2, REPETITIONS)
    ax.plot(values, place + spread, ".", color="C0" if place < 2 else "C1", alpha=0.6)
    ax.plot([np.mean(values)] * 2, [place - 0.35, place + 0.35], color="0.1", linewidth=2.5)
    print(f"{name:22} mean {np.mean(values):.3f} ± {np.std(values) / REPETITIONS**0.5:.3f}")
ax.axvline(0.5, color="0.5", linestyle=":")
ax.set(yticks=range(len(found)), yticklabels=list(found), xlabel="estimated AUC; the truth is 0.5")
ax.invert_yaxis()

# %%
# Conclusion
# ----------
# All estimates scatter widely: thirty samples are few. The averages of leave-pair-out and of
# averaged folds are at ½, where they should be. Pooled estimates are too low: without a positive
# in the training data all predictions of that model are a little lower, and it is the held-out
# positive that is compared by them with others. The stronger the regularisation, the worse it
# gets; at alpha → ∞ pooled leave-one-out says 0. Do not pool predictions of different models;
# with leave-pair-out no pair is lost either. (``examples/cross_validation_bias.py`` measures the
# biases with 10,000 repetitions and with something to learn.)
