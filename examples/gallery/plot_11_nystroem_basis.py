"""
How many basis vectors does a kernel need?
==========================================

A kernel model with m rows needs an m × m matrix. With a basis of b rows (Nyström approximation,
``basis=b``) it needs m × b, and the function is restricted to the span of the basis vectors. How
large must b be?
"""

# %%
# The labels depend on products of features, which a linear model cannot represent.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import make_ranking
from rankrls.metrics import pairwise_error

X, y, qid = make_ranking(
    200, 10, 6, nonlinear=True, query_effect=0, random_state=0, return_X_y_qid=True
)
train, test = qid < 120, qid >= 120
data = {"X": X[train], "y": y[train], "qid": qid[train]}
sizes = [5, 10, 20, 50, 100, 200, 500]

full = RankRLS(10.0, kernel="rbf", gamma=0.1).fit(**data)
linear = RankRLSCV().fit(**data)
errors = np.empty((len(sizes), 6))
for row, basis in enumerate(sizes):
    for seed in range(6):
        model = RankRLS(10.0, kernel="rbf", gamma=0.1, basis=basis, random_state=seed)
        model.fit(**data)
        errors[row, seed] = pairwise_error(y[test], model.predict(X[test]), qid=qid[test])

# %%
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.semilogx(sizes, errors, ".", color="C0", alpha=0.6)
ax.semilogx(sizes, errors.mean(axis=1), color="C0", label="Nyström, random bases")
for name, model, colour in (("all 1200 rows", full, "C1"), ("linear", linear, "0.5")):
    value = pairwise_error(y[test], model.predict(X[test]), qid=qid[test])
    ax.axhline(value, color=colour, linestyle="--", label=name)
    print(f"{name:14} {value:.4f}")
print("Nyström       ", dict(zip(sizes, errors.mean(axis=1).round(4).tolist(), strict=True)))
ax.set(xlabel="basis vectors", ylabel="pairwise error, test queries", ylim=(0, None))
ax.legend()

# %%
# Conclusion
# ----------
# Here about fifty basis vectors out of 1200 rows give most of the accuracy of the full kernel, and
# a few hundred give all of it. Below twenty, the result depends strongly on which rows are drawn,
# and a linear model may be better.
