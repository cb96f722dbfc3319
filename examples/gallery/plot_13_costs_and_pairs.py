"""
Which cost, and which pairs?
============================

RankRLS approximates the number of pairs in the wrong order by a squared error. Three costs differ
in what they make of the magnitude of a preference. And only pairs that mean something should be
learned: rows of different queries are not compared. This page redraws Figures 1 and 2 of the paper
(Pahikkala et al. 2009).
"""

# %%
# A pair has the score difference g = f(a) − f(b) and the magnitude d = y_a − y_b, here 0.5. The
# ``cost`` sets the target and the weight of its squared error.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS

d = 0.5
g = np.linspace(-1, 2, 301)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(g, (g < 0) + 0.5 * (g == 0), color="0.3", label="wrong order")
ax.plot(g, (1 - g) ** 2, "--", label="unit: (1 − g)²")
ax.plot(g, (d - g) ** 2, ":", label="magnitude: (d − g)²")
ax.plot(g, (1 - g / d) ** 2, "-.", label="relative: (1 − g/d)²")
ax.set(xlabel="g", ylabel="cost of the pair", ylim=(0, 4))
ax.legend()

# %%
# Four rows of two queries on a line. Within each query the row further right is better, but all
# rows of the second query, on the left, have higher labels. Comparing all rows reverses the order.
X = np.array([[6.0], [5.0], [1.0], [0.0]])
y = np.array([2.0, 1.0, 4.0, 3.0])
qid = np.array([1, 1, 2, 2])
within = RankRLS(alpha=0.1).fit(X, y, qid=qid)
everything = RankRLS(alpha=0.1).fit(X, y)
print(
    f"weight of x: {within.coef_[0]:+.3f} within queries, {everything.coef_[0]:+.3f} over all pairs"
)

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
models = {"pairs of a query": within, "all pairs": everything}
for ax, (title, ranker) in zip(axes, models.items(), strict=True):
    ax.plot(X[:, 0], ranker.predict(X), color="0.6")
    for query in (1, 2):
        rows = qid == query
        ax.scatter(X[rows, 0], y[rows], label=f"query {query}")
    ax.set(title=title, xlabel="x")
axes[0].set_ylabel("label; the line is the score")
axes[0].legend()

# %%
# Conclusion
# ----------
# With ``cost="magnitude"``, the default, a large difference of labels asks for a large difference
# of scores. ``"unit"`` asks for the same difference of all pairs and only uses their order, and
# ``"relative"`` lets pairs with a small magnitude count most. Pass ``qid``: the two pairs that
# matter give the weight +0.952 here, and the four others overwhelm them, −0.346.
