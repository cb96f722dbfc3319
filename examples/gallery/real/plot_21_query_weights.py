"""
Should every query have the same weight?
========================================

OHSUMED (LETOR 3.0) has medical search queries with 35 to 320 judged documents each. The number of
pairs grows with the square of the number of documents. If every pair has the same weight, a few
long lists dominate. ``query_weighting`` gives the same weight to every pair ("pair"), every
document ("size") or every query ("query").
"""

# sphinx_gallery_thumbnail_path = "_static/gallery/plot_21_query_weights.png"

# %%
# We use all five parts of the data. Every query is predicted by a model fitted without it, for 14
# values of alpha and three weightings. The held-out predictions are exact and need no refits.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS
from rankrls.datasets import load_letor
from rankrls.metrics import compare_rankers, ndcg, pairwise_error
from rankrls.model_selection import leave_query_out_predict

folder = Path(os.environ.get("RANKRLS_DATA", "data")) / "letor_ohsumed"
parts = [load_letor(path) for path in sorted(folder.glob("querylevelnorm_S*.txt.gz"))]
X = np.vstack([part.data for part in parts])
y = np.concatenate([part.target for part in parts])
qid = np.concatenate([part.qid for part in parts])
sizes = np.unique(qid, return_counts=True)[1]
print(f"{len(y)} documents, {len(sizes)} queries of {sizes.min()} to {sizes.max()} documents")

pairs_of_longest = np.sort(sizes**2)[::-1][: len(sizes) // 4].sum() / (sizes**2).sum()
print(f"a quarter of the queries has {pairs_of_longest:.0%} of the pairs")

strength = 4.0 ** np.arange(-5, 9)  # alpha for a query of average length
scale = {"pair": sizes.mean(), "size": 1.0, "query": 1 / sizes.mean()}
left_out = {
    weighting: leave_query_out_predict(
        RankRLS(query_weighting=weighting), X, y, qid=qid, alphas=strength * factor
    )
    for weighting, factor in scale.items()
}

# %%
# The alphas of the three weightings are not directly comparable, because the total weights of their
# losses differ. In the figure, alpha is divided by the weight of a query of average length.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
best = {}
for weighting, scores in left_out.items():
    error = [pairwise_error(y, score, qid=qid) for score in scores]
    gain = [ndcg(y, score, qid=qid, k=10, undefined="skip") for score in scores]
    best[weighting] = scores[int(np.argmin(error))]
    left.semilogx(strength, error, "o-", label=weighting, markersize=4)
    right.semilogx(strength, gain, "o-", label=weighting, markersize=4)
left.set(title="pairwise error, held-out queries", xlabel="alpha / weight of a query")
right.set(title="NDCG@10, held-out queries", xlabel="alpha / weight of a query")
left.legend(title="query_weighting")

for other in ("size", "pair"):
    print(f"query - {other}:")
    print(compare_rankers(y, best["query"], best[other], qid=qid, random_state=0))

# %%
# Conclusion
# ----------
# With weak regularisation the weighting affects the top of the lists: "query" has the best NDCG@10,
# and "pair", which is dominated by the long lists, the worst. With the alpha that leave-query-out
# would choose, all three perform equally well, and the tests find no difference. Choose alpha
# first. The weighting should match the metric: "query" matches an average over queries, as here,
# and "pair" an average over all pairs.
