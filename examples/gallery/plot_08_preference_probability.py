"""
Can the probability that a is preferred to b be believed?
=========================================================

RankRLS is the mean of a Gaussian process, so that it can tell P(a preferred to b). It takes
judgements for real-valued observations with Gaussian noise of variance alpha. People choose: they
say "a" or "b". Are the probabilities calibrated nevertheless, and with which alpha?
"""

# %%
# Judges follow the Bradley-Terry model. The probability of a *new judgement* includes its noise
# (``noisy=True``).
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS
from rankrls.datasets import make_preference_pairs

data = make_preference_pairs(n_items=400, n_pairs=6600, n_features=8, noise=0.5, random_state=0)
X, pairs = data.data, data.pairs
train, test = pairs[:600], pairs[600:]
rng = np.random.default_rng(0)
turned = rng.random(len(test)) < 0.5  # so that for half of them the second one is preferred
a, b = np.where(turned[:, None], test[:, ::-1], test).T
first = ~turned

# %%
# Sort held-out judgements by the predicted probability, and count in each tenth how often the
# first one was preferred.
figure, ax = plt.subplots(figsize=(5, 4.6), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.6", linestyle=":")
for alpha in (0.1, 0.3, 1.0, 10.0):
    ranker = RankRLS(alpha, kernel="rbf", gamma=0.05).fit(X, pairs=train)
    p = ranker.preference_proba(X[a], X[b], noisy=True)
    bins = np.array_split(np.argsort(p), 10)
    ax.plot([p[k].mean() for k in bins], [first[k].mean() for k in bins], "o-", label=f"{alpha:g}")
    loss = -np.log(np.where(first, p, 1 - p).clip(1e-9)).mean()
    print(
        f"alpha {alpha:<5g} log loss {loss:.3f}, accuracy {(first == (p > 0.5)).mean():.3f}, "
        f"log likelihood {ranker.log_marginal_likelihood():.0f}"
    )
ax.set(xlabel="predicted probability", ylabel="how often it was so", aspect="equal")
ax.legend(title="alpha")

# %%
# Conclusion
# ----------
# With alpha = 0.3 they can: the curve is close to the diagonal. With smaller alphas the model is
# too sure of itself, with larger ones not sure enough, while its accuracy hardly changes. So
# alpha is to be chosen by held-out log loss (or by looking at this plot) if probabilities are
# wanted. The likelihood of the Gaussian process, from the training pairs alone, rules out the
# extremes; between 0.3 and 1 it decides by a small margin only, since choices are not Gaussian.
