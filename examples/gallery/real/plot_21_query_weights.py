"""
Should every query count the same?
==================================

OHSUMED (LETOR 3.0): medical searches with 35 to 320 judged documents each. If every pair of
documents counts the same, the few long lists decide what is learned, since pairs grow with the
square of the length. ``query_weighting`` says what counts the same instead: every pair ("pair"),
every document ("size") or every query ("query").
"""

# %%
# All five parts together: every query is predicted by a model that has not seen it, for 14
# values of alpha and three weightings. No model is fitted again for that: holding out a query is
# exact algebra.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS
from rankrls.datasets import load_letor
from rankrls.metrics import compare_rankers, ndcg, pairwise_error
from rankrls.model_selection import leave_query_out_predict

folder = Path(os.environ.get("RANKRLS_DATA", "../shared/data")) / "letor_ohsumed"
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
# Alphas of the three cannot be compared as they are, because their losses are sums of different
# weights; below, they are divided by what a query of average length weighs.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
best = {}
for weighting, scores in left_out.items():
    error = [pairwise_error(y, score, qid=qid) for score in scores]
    gain = [ndcg(y, score, qid=qid, k=10, undefined="skip") for score in scores]
    best[weighting] = scores[int(np.argmin(error))]
    left.semilogx(strength, error, "o-", label=weighting, markersize=4)
    right.semilogx(strength, gain, "o-", label=weighting, markersize=4)
left.set(title="pairwise error, queries left out", xlabel="alpha / weight of a query")
right.set(title="NDCG@10, queries left out", xlabel="alpha / weight of a query")
left.legend(title="query_weighting")

for other in ("size", "pair"):
    print(f"query - {other}:")
    print(compare_rankers(y, best["query"], best[other], qid=qid, random_state=0))

# %%
# Conclusion
# ----------
# With little regularisation the weights matter at the top of the lists: counting every query the
# same has the better NDCG@10, and "pair", which listens to the long lists, the worst. With the
# alpha that leave-query-out would choose, all three are alike, and the tests find no difference.
# So choose alpha first. Weights are a matter of what is asked: an average over queries, as here,
# is what "query" learns from, an average over all pairs what "pair" does.
