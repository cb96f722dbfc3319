"""
Does cross-validation find the right alpha?
===========================================

With few rows, noisy labels and a flexible kernel, the choice of alpha matters. Leave-query-out
predictions for a whole grid of alphas come from one decomposition. This example compares them with
the accuracy on new queries, which can be measured because the data are generated.
"""

# %%
# The function computes the accuracy on held-out and on new queries for every alpha, given a
# training set of n queries.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS, regularization_path
from rankrls.datasets import make_ranking
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection import leave_query_out_predict

alphas = 10.0 ** np.arange(-2, 5.1, 0.5)
ranker = RankRLS(kernel="rbf", gamma=0.1)


def accuracies(n, seed):
    """Leave-query-out accuracy and accuracy on new queries for every alpha."""
    X, y, qid = make_ranking(
        n + 150, 10, 5, n_levels=None, noise=1.5, nonlinear=True, query_effect=0,
        random_state=seed, return_X_y_qid=True,
    )  # fmt: skip
    known, fresh = qid < n, qid >= n
    data = {"X": X[known], "y": y[known], "qid": qid[known]}
    held_out = leave_query_out_predict(ranker, **data, alphas=alphas)
    predicted = regularization_path(ranker, **data, alphas=alphas).predict(X[fresh])
    estimate = [pairwise_accuracy(y[known], f, qid=qid[known]) for f in held_out]
    truth = [pairwise_accuracy(y[fresh], f, qid=qid[fresh]) for f in predicted]
    return np.array(estimate), np.array(truth)


# %%
# Left: accuracies for one training set of 30 queries. Right: the loss of accuracy compared with the
# best alpha, averaged over 8 training sets of each size. Alpha is chosen by leave-query-out, or is
# fixed at an end of the grid.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
estimate, truth = accuracies(30, seed=0)
left.semilogx(alphas, estimate, "o-", label="leave-query-out")
left.semilogx(alphas, truth, "o-", label="new queries")
left.axvline(alphas[estimate.argmax()], color="0.5", linestyle=":", label="chosen")
left.set(xlabel="alpha", ylabel="pairwise accuracy", title="30 queries")
left.legend()

sizes = [6, 12, 25, 40]
losses = {"chosen by leave-query-out": [], "smallest alpha": [], "largest alpha": []}
for n in sizes:
    runs = [accuracies(n, seed) for seed in range(8)]
    chosen = [truth.max() - truth[estimate.argmax()] for estimate, truth in runs]
    losses["chosen by leave-query-out"].append(np.mean(chosen))
    losses["smallest alpha"].append(np.mean([truth.max() - truth[0] for _, truth in runs]))
    losses["largest alpha"].append(np.mean([truth.max() - truth[-1] for _, truth in runs]))
for name, loss in losses.items():
    right.plot(sizes, loss, "o-", label=name)
    print(f"{name:26}", np.round(loss, 3))
right.set(xlabel="training queries", ylabel="accuracy lost", title="mean of 8 training sets")
right.legend()

# %%
# Conclusion
# ----------
# The leave-query-out curve follows the accuracy on new queries, and its maximum is close to the
# best alpha: choosing alpha on the training data loses an accuracy of about 0.01 or less. An alpha
# that is too small or too large loses several times as much. The position of the maximum is more
# reliable than its value, which is optimistic as the largest of many noisy scores.
