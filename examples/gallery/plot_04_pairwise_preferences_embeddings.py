"""
How many comparisons does it take to rank answers to new prompts?
=================================================================

Answers to prompts have embeddings but no grades. People judge "this answer is better than that
one", and they do not always agree. How well can we rank answers to prompts without any judgement?
"""

# %%
# The generated embeddings are the sum of a part that depends on the prompt and a part in which a
# hidden direction determines the quality of an answer. Judges follow the difference in quality with
# logistic noise.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import RankRLS
from rankrls.metrics import pairwise_accuracy

N_PROMPTS, N_ANSWERS, N_DIMENSIONS = 400, 6, 64
rng = np.random.default_rng(0)
prompt = np.repeat(np.arange(N_PROMPTS), N_ANSWERS)
about = 2 * rng.standard_normal((N_PROMPTS, N_DIMENSIONS))[prompt]
X = about + rng.standard_normal((len(prompt), N_DIMENSIONS))
direction = rng.standard_normal(N_DIMENSIONS) / np.sqrt(N_DIMENSIONS)
quality = (X - about) @ direction


def judge(prompts, n):
    """n comparisons of two answers to the same prompt: rows (preferred, other)."""
    first, step = rng.integers(0, N_ANSWERS, n), rng.integers(1, N_ANSWERS, n)
    which = rng.choice(prompts, n) * N_ANSWERS
    a, b = which + first, which + (first + step) % N_ANSWERS
    agrees = quality[a] - quality[b] + 0.5 * rng.logistic(size=n) > 0
    return np.where(agrees[:, None], np.c_[a, b], np.c_[b, a])


# %%
# Train on comparisons for 300 prompts, and rank the answers to the other 100.
new = prompt >= 300
judged = judge(np.arange(300, N_PROMPTS), 3000)
sizes = [30, 100, 300, 1000, 3000, 10000]
to_truth, to_judges = [], []
for n in sizes:
    ranker = RankRLS(alpha=10.0).fit(X, pairs=judge(np.arange(300), n))
    scores = ranker.predict(X)
    to_truth.append(pairwise_accuracy(quality[new], scores[new], qid=prompt[new]))
    to_judges.append(pairwise_accuracy(None, scores, pairs=judged))
ceiling = pairwise_accuracy(None, quality, pairs=judged)

figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.semilogx(sizes, to_truth, "o-", label="agreement with the true quality")
ax.semilogx(sizes, to_judges, "o-", label="agreement with new judgements")
ax.axhline(ceiling, color="C1", linestyle=":", label="upper bound for new judgements")
ax.set(xlabel="comparisons", ylabel="pairwise accuracy, new prompts")
ax.legend()
for n, truth, judges in zip(sizes, to_truth, to_judges, strict=True):
    print(f"{n:6} comparisons: truth {truth:.3f}, new judgements {judges:.3f} of {ceiling:.3f}")

# %%
# Conclusion
# ----------
# With a thousand comparisons, about three for each prompt, answers to new prompts are ranked nearly
# as well as the noise of the judges allows: the agreement with new judgements is close to that of
# the true quality. More comparisons still improve the agreement with the true quality. Prompts need
# no ids, because both answers of a pair belong to the same prompt, and the part of the embedding
# that depends on the prompt cancels in their difference.
