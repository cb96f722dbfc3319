"""
How well does a linear model rank search results of new queries?
================================================================

Generated search queries with relevance labels from 0 to 4. Documents can only be compared within a
query, because features and labels are shifted from query to query. RankRLS learns from the pairs
within queries, whereas ridge regression learns the labels themselves.
"""

# %%
# The training set has 200 queries, the test set 100.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from rankrls import RankRLSCV
from rankrls.datasets import make_ranking
from rankrls.metrics import compare_rankers, pairwise_accuracy

X, y, qid = make_ranking(300, (10, 40), random_state=0, return_X_y_qid=True)
train, test = qid < 200, qid >= 200

ranker = RankRLSCV().fit(X[train], y[train], qid=qid[train])
ridge = RidgeCV(10.0 ** np.arange(-2, 6)).fit(X[train], y[train])
scores = {"RankRLS": ranker.predict(X[test]), "ridge regression": ridge.predict(X[test])}
print(compare_rankers(y[test], *scores.values(), qid=qid[test], random_state=0))

# %%
# Left: the labels of twelve test queries in the order predicted by RankRLS, best first. In a
# perfect ranking, no dark cell is to the left of a lighter one. Right: the pairwise accuracy of
# every test query.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
levels = [len(np.unique(y[qid == query])) for query in range(200, 300)]
shown = 200 + np.argsort(levels)[::-1][:12]
lists = np.full((len(shown), 40), np.nan)
for row, query in enumerate(shown):
    inside = qid[test] == query
    order = scores["RankRLS"][inside].argsort()[::-1]
    lists[row, : inside.sum()] = y[test][inside][order]
image = left.imshow(lists, aspect="auto", cmap="viridis")
left.set(title="labels in predicted order", xlabel="rank", ylabel="test query", yticks=[])
figure.colorbar(image, ax=left, label="label")

bins = np.linspace(0, 1, 41)
for name, score in scores.items():
    right.hist(
        pairwise_accuracy(y[test], score, qid=qid[test], average=None), bins, alpha=0.6, label=name
    )
right.set(title="by query", xlabel="pairwise accuracy", ylabel="queries")
right.legend()

# %%
# Conclusion
# ----------
# RankRLS ranks most documents correctly. It is better than ridge regression on the same features
# for nearly every query. Ridge regression also fits differences between queries, which are
# irrelevant for ranking within a query.
