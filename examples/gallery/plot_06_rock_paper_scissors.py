"""
Who should play against this opponent, when there is no best player?
====================================================================

Players of rock, paper, scissors have habits: one plays mostly rock, another mostly paper. A ranking
of players by strength makes no sense, but for each opponent there is a ranking of players. A
conditional ranker learns f(player, opponent) from games and can rank players it has not seen.
"""

# %%
# A game gives two observations: +1 for the winner and −1 for the loser. A win of one player is a
# loss of the other, f(x, z) = −f(z, x). Set ``relation="reciprocal"`` to use this knowledge.
import matplotlib.pyplot as plt
import numpy as np

from rankrls import ConditionalRankRLS, RankRLS
from rankrls.datasets import make_rock_paper_scissors
from rankrls.metrics import conditional_scores

fresh = make_rock_paper_scissors(n_players=60, random_state=1000)
sizes = [50, 100, 200, 500, 1000, 2000]
errors = {"plain": [], "reciprocal": [], "one ranking of players": []}
for n_games in sizes:
    rows = {name: [] for name in errors}
    for seed in range(8):
        games = make_rock_paper_scissors(n_players=100, n_games=n_games, random_state=seed)
        for name, relation in (("plain", None), ("reciprocal", "reciprocal")):
            model = ConditionalRankRLS(1e-3, relation=relation).fit(games.data, games.target)
            rows[name].append(1 - model.score(fresh.data, fresh.relation))
        strength = RankRLS(1e-3).fit(games.data, pairs=games.games).predict(fresh.data)
        as_relation = strength[:, None] - strength  # the same order for every opponent
        rows["one ranking of players"].append(
            1 - np.nanmean(conditional_scores(fresh.relation, as_relation))
        )
    for name in errors:
        errors[name].append(np.mean(rows[name]))

# %%
# Players are sorted by their favourite move. Blue means that the row usually beats the column.
best = ConditionalRankRLS(1e-3, relation="reciprocal").fit(games.data, games.target)
order = np.lexsort([-fresh.data.max(axis=1), fresh.data.argmax(axis=1)])
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
scores = best.predict(fresh.data)
for ax, values, title in zip(
    axes, (fresh.relation, scores), ("truth, new players", "predicted"), strict=False
):
    limit = abs(values).max()
    shown = values[np.ix_(order, order)]
    ax.imshow(shown, cmap="RdBu", vmin=-limit, vmax=limit)
    ax.set(title=title, xticks=[], yticks=[], xlabel="rock · paper · scissors", ylabel="player")
for name, values in errors.items():
    axes[2].semilogx(sizes, values, "o-", label=name)
    print(f"{name:24}", np.round(values, 3))
axes[2].set(title="error for new players", xlabel="games", ylabel="pairwise error", ylim=(0, None))
axes[2].legend()

# %%
# Conclusion
# ----------
# After a few hundred games the model predicts which habits beat which, also for new players. A
# ranking of all players by strength, the same for every opponent, is no better than chance. Setting
# ``relation="reciprocal"`` helps most if there are few games.
