"""
Does cross-validation find the right alpha?
===========================================

Few rows, many features, noisy labels: alpha matters. Leave-query-out scores for a whole grid come
from one decomposition. Here they are compared with the truth, which is known because the data are
generated: the accuracy on a thousand fresh queries.
"""

# %%
# The learning problem: fifteen queries of ten documents, sixty features.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS, RankRLSCV, regularization_path
from rankrls.datasets import make_ranking
from rankrls.metrics import pairwise_accuracy

alphas = 10.0 ** np.arange(-2, 6.5, 0.25)
X, y, qid = make_ranking(
    1040, 10, 60, n_levels=None, noise=1.0, query_effect=0, random_state=0, return_X_y_qid=True
)
fresh = qid >= 40


def curves(queries):
    """Leave-query-out and true accuracy for every alpha, learning from these queries."""
    rows = np.isin(qid, queries)
    ranker = RankRLS(query_weighting="size")
    search = RankRLSCV(alphas, query_weighting="size").fit(X[rows], y[rows], qid=qid[rows])
    path = regularization_path(ranker, X[rows], y[rows], qid=qid[rows], alphas=alphas)
    true = [pairwise_accuracy(y[fresh], f, qid=qid[fresh]) for f in path.predict(X[fresh])]
    return search, search.cv_results_["mean_score"], np.array(true)


# %%
# Once with fifteen queries, once with forty.
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, n in zip(axes, (15, 40), strict=True):
    search, estimate, true = curves(np.arange(n))
    ax.semilogx(alphas, estimate, label="leave-query-out")
    ax.semilogx(alphas, true, label="fresh queries")
    ax.axvline(search.alpha_, color="0.5", linestyle=":", label="chosen alpha")
    ax.set(title=f"{n} queries", xlabel="alpha")
    lost = true.max() - true[alphas == search.alpha_][0]
    print(
        f"{n} queries: alpha {search.alpha_:g}, estimated {search.best_score_:.3f}, "
        f"true {true[alphas == search.alpha_][0]:.3f}, best possible {true.max():.3f}"
    )
axes[0].set_ylabel("pairwise accuracy")
axes[1].legend()

# %%
# Conclusion
# ----------
# TODO
