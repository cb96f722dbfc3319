"""
Can early stopping replace alpha?
=================================

Conjugate gradients start from zero and fit the dominant directions first. Early stopping therefore
regularises, as a large alpha does. One run gives the validation error for every alpha at every
iteration (methods 1, 2 and 3 of P3 in one table).
"""

# %%
# The data are sparse, as text is: 4000 short documents in 200 queries, of which 100 are used for
# training.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from rankrls import RankRLS, RankRLSCV
from rankrls.metrics import compare_rankers

rng = np.random.default_rng(0)
words = rng.zipf(1.3, (4000, 30)) % 5000
X = HashingVectorizer(n_features=2**14).transform(
    " ".join(f"w{word}" for word in row) for row in words
)
relevance = rng.standard_normal(5000)[words].mean(axis=1)
y = relevance + 0.3 * rng.standard_normal(4000)
qid = np.arange(4000) // 20
train, held, test = qid < 100, (qid >= 100) & (qid < 150), qid >= 150
eval_set = (X[held], y[held], qid[held])

# %%
# One run evaluates every (alpha, iteration).
alphas = 2.0 ** np.arange(-8, 9)
both = RankRLSCV(alphas, solver="cg", early_stopping=True, n_iter_no_change=40)
both.fit(X[train], y[train], qid=qid[train], eval_set=eval_set)
early = RankRLS(alpha=0, early_stopping=True, n_iter_no_change=20)
early.fit(X[train], y[train], qid=qid[train], eval_set=eval_set)
tikhonov = RankRLSCV(alphas, solver="cg")
tikhonov.fit(X[train], y[train], qid=qid[train], eval_set=eval_set)
for name, model in (("alpha", tikhonov), ("early stopping", early), ("both", both)):
    print(f"{name:15} test error {1 - model.score(X[test], y[test], qid=qid[test]):.4f}")
predictions = [model.predict(X[test]) for model in (tikhonov, early)]
print(compare_rankers(y[test], *predictions, qid=qid[test], random_state=0))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
curve, iterations = both.validation_curve_, both.validation_iterations_
image = left.pcolormesh(np.log2(alphas), iterations, curve, cmap="viridis_r", shading="nearest")
left.plot(np.log2(both.alpha_), both.best_iteration_, "r*", markersize=12)
left.set(xlabel="log₂ alpha", ylabel="iteration", title="validation error (star: best)")
figure.colorbar(image, ax=left)

right.plot(early.validation_iterations_, early.validation_curve_, label="alpha = 0")
for exponent in (0, 4):
    column = int(np.flatnonzero(alphas == 2.0**exponent)[0])
    right.plot(iterations, curve[:, column], label=f"alpha = 2^{exponent}")
right.set(xlabel="iteration", title="validation error for three alphas")
right.legend()

# %%
# Conclusion
# ----------
# Nearly, on these data. The best iteration without alpha has the same validation error as the best
# alpha. On the test queries alpha is slightly better, but the difference may be due to chance (see
# the test above). Early stopping needs few iterations, but the right one has to be found: without
# alpha the error increases quickly afterwards, whereas with a good alpha it remains constant.
# Combining both is no better than alpha alone here.
