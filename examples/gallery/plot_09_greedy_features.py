"""
How many features are enough?
=============================

Ten of two hundred features are relevant. `GreedyRankRLS` adds one feature at a time, always the one
with the smallest exact hold-out error. This error is used for the selection and is therefore
optimistic. How does it compare with the error on new data?
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from rankrls import GreedyRankRLS, RankRLS
from rankrls.metrics import pairwise_error

rng = np.random.default_rng(0)
n_features, n_queries = 200, 30
weights = np.zeros(n_features)
weights[rng.choice(n_features, 10, replace=False)] = np.linspace(1, 0.2, 10)


def draw(n_queries):
    """Draw queries of ten rows each."""
    X = rng.standard_normal((10 * n_queries, n_features))
    y = X @ weights + 1.0 * rng.standard_normal(len(X))
    return X, y, np.repeat(np.arange(n_queries), 10)


X, y, qid = draw(n_queries)
X_new, y_new, qid_new = draw(300)

# %%
# For every number of features, compute the hold-out error used by the selection and the error on
# new queries. Both are mean squared errors of the difference between two rows of a query.
selector = GreedyRankRLS(60, alpha=10.0).fit(X, y, qid=qid)
fresh, ranked = [], []
for k in range(1, 61):
    features = selector.selected_features_[:k]
    model = RankRLS(10.0).fit(X[:, features], y, qid=qid)
    residual = (y_new - model.predict(X_new[:, features])).reshape(-1, 10)
    # The mean over the pairs of n rows of the squared difference is 2 n/(n − 1) times the variance.
    fresh.append(2 * residual.var(axis=1, ddof=1).mean())
    ranked.append(pairwise_error(y_new, model.predict(X_new[:, features]), qid=qid_new))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(range(1, 61), selector.scores_, label="hold-out, used for selection")
left.plot(range(1, 61), fresh, label="new queries")
left.axhline(2.0, color="0.6", linestyle=":", label="noise")
left.set(xlabel="features", ylabel="squared error of a difference", ylim=(0, None))
left.legend()
right.plot(range(1, 61), ranked, color="C1")
everything = RankRLS(10.0).fit(X, y, qid=qid)
right.axhline(
    pairwise_error(y_new, everything.predict(X_new), qid=qid_new),
    color="0.6", linestyle=":", label="all 200 features",
)  # fmt: skip
right.set(xlabel="features", ylabel="pairwise error, new queries")
right.legend()
hits = np.cumsum(weights[selector.selected_features_] != 0)
print("relevant features among the first 5, 10, 20, 60:", hits[[4, 9, 19, 59]])
print("error on new queries smallest with", int(np.argmin(fresh)) + 1, "features,", end=" ")
print("hold-out error smallest with", int(selector.scores_.argmin()) + 1)

# %%
# Conclusion
# ----------
# About ten. The hold-out error of the selection continues to decrease after the relevant features
# are found. It even falls below the noise level, which an unbiased estimate cannot do: among 190
# irrelevant features, some improve the error by chance. The error on new queries increases. Here
# the kink of the hold-out curve indicates the right number, but its minimum does not. To choose the
# number of features, cross-validate the whole selection. The ranking with ten features is far
# better than the one with all 200.
