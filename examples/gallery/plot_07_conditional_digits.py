"""
Which digits look like this one?
================================

Rank images for a given image, so that those of the same digit come first. The similarity is
learned from pairs of images that are known to show the same digit or not: a symmetric relation. Then new
images are ranked for new images, where plain similarity of pixels is the thing to beat.
"""

# %%
# scikit-learn's digits: 200 images to learn from, 600 others to search in.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import cosine_similarity

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import conditional_scores, precision

digits = load_digits()
X, digit = digits.data / 16, digits.target
order = np.random.default_rng(0).permutation(len(X))
train, test = order[:200], order[200:800]
same = (digit[train][:, None] == digit[train]).astype(float)

# %%
# The kernel of two pairs is a product of two kernels of images; alpha is chosen by holding out
# images with all their pairs (``cv="both"``), because the images to be ranked are new on both sides.
alphas = 2.0 ** np.arange(-12, 5)
ranker = ConditionalRankRLSCV(
    alphas, kernel="rbf", gamma=0.1, relation="symmetric", cv="both", random_state=0
).fit(X[train], same)
learned = ranker.predict(X[test])
pixels = cosine_similarity(X[test])
truth = (digit[test][:, None] == digit[test]).astype(float)
for matrix in (learned, pixels, truth):
    np.fill_diagonal(matrix, -np.inf if matrix is not truth else np.nan)
scores = {}
for name, matrix in (("learned", learned), ("pixels", pixels)):
    matrix = np.where(np.isinf(matrix), 0, matrix)  # the image itself is not in its list
    scores[name] = {
        "pairwise accuracy": np.nanmean(conditional_scores(truth, matrix)),
        "precision@10": np.nanmean(conditional_scores(truth, matrix, metric=precision, k=10)),
    }
    print(f"{name:8}", {key: round(float(value), 3) for key, value in scores[name].items()})

# %%
# Four images for which pixels mislead, and the ten images ranked first for each. Wrong ones are
# framed.
wrong = [
    (digit[test][np.argsort(-row)[:10]] != digit[test][i]).sum() for i, row in enumerate(pixels)
]
queries = np.argsort(wrong)[::-1][:4]
figure, axes = plt.subplots(8, 11, figsize=(9, 6.8))
for block, query in enumerate(queries):
    for line, (name, matrix) in enumerate((("pixels", pixels), ("learned", learned))):
        row = axes[2 * block + line]
        for place, ax in enumerate(row):
            image = query if place == 0 else np.argsort(-matrix[query])[place - 1]
            ax.imshow(X[test[image]].reshape(8, 8), cmap="gray_r")
            ax.set(xticks=[], yticks=[])
            right = digit[test[image]] == digit[test[query]]
            for spine in ax.spines.values():
                spine.set(color="crimson" if not right else "0.85", linewidth=2 if not right else 1)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
for ax in axes[:, 0]:
    ax.set_facecolor("0.9")
figure.suptitle("first column: the query")

# %%
# Conclusion
# ----------
# TODO
