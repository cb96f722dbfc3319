"""
Are preference probabilities calibrated?
========================================

RankRLS is the posterior mean of a Gaussian process, so it can predict P(a preferred to b). It
treats judgements as real-valued observations with Gaussian noise of variance alpha, although people
only choose "a" or "b". Are the probabilities calibrated nevertheless, and for which alpha?
"""

# %%
# The simulated judges follow the Bradley-Terry model. The probability of a *new judgement* includes
# its noise (``noisy=True``).
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS
from rankrls.datasets import make_preference_pairs

data = make_preference_pairs(n_items=400, n_pairs=6600, n_features=8, noise=0.5, random_state=0)
X, pairs = data.data, data.pairs
train, test = pairs[:600], pairs[600:]
rng = np.random.default_rng(0)
turned = rng.random(len(test)) < 0.5  # the second item is preferred in half of the pairs
a, b = np.where(turned[:, None], test[:, ::-1], test).T
first = ~turned

# %%
# Sort held-out judgements by predicted probability into ten bins, and count in each bin how often
# the first item was preferred.
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
ax.set(xlabel="predicted probability", ylabel="observed frequency", aspect="equal")
ax.legend(title="alpha")

# %%
# Conclusion
# ----------
# With alpha = 0.3 they are: the curve is close to the diagonal. With smaller alphas the
# probabilities are overconfident, with larger ones underconfident, while the accuracy hardly
# changes. If you need probabilities, choose alpha by held-out log loss (or from this plot). The
# likelihood of the Gaussian process, computed on the training pairs alone, rules out the extremes.
# Between 0.3 and 1 the difference is small, since choices are not Gaussian.
