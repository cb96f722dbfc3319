"""Rock, paper, scissors: rank new players for a new opponent (P5 §6.1, Table 1, Figure 2).

The training data are 1000 games between 100 players. Each game gives two labelled pairs: +1 for the
winner and −1 for the loser. Then 100 other players are ranked for each of these as the opponent, by
their chance to win. There is no best player, only a best one against a given opponent. Players have
three features, the frequencies of their moves, and the kernel is linear.

    python benchmarks/papers/p5_rock_paper_scissors.py --repetitions 200

P5 does not say how the strategies are drawn. Here the probability of a move is proportional to
exp(s w u), with u uniform in [0, 1]. With s = 0.3, the errors are about those of the paper for all
three w. Nor does it say what becomes of a draw: without ``--keep-draws`` all 1000 games have a
winner, with it 1000 games are played, and a draw is two pairs with the label 0.
"""

from __future__ import annotations

import numpy as np
from _common import parse, table

from rankrls import ConditionalRankRLS, regularization_path
from rankrls.datasets import make_rock_paper_scissors
from rankrls.metrics import conditional_scores

#: Name: parameters, and the errors of P5, Table 1, for w = 1, 10, 100.
MODELS = {
    "regression": ({"loss": "regression"}, (0.4875, 0.04172, 0.001380)),
    "regression, reciprocal": (
        {"loss": "regression", "relation": "reciprocal"},
        (0.4868, 0.04145, 0.001366),
    ),
    "ranking": ({}, (0.4876, 0.04519, 0.001424)),
    "ranking, reciprocal": ({"relation": "reciprocal"}, (0.4880, 0.04291, 0.001354)),
}
WEIGHTS = (1, 10, 100)
SCALE = 0.3
ALPHAS = 2.0 ** np.arange(-30, 21, 5)


def main() -> None:
    options = parse(__doc__, repetitions=100, keep_draws=False)
    errors = {w: simulate(w, options.repetitions, options.keep_draws) for w in WEIGHTS}
    print("Table 1: alpha = 2^-30\n")
    header = [cell for w in WEIGHTS for cell in (f"w = {w}", "P5")]
    table(["", *header], (table_row(name, errors) for name in MODELS))
    print("Figure 2: mean error by alpha\n")
    rows = (
        [f"w = {w}, {name}", *(f"{value:.4f}" for value in values.mean(axis=0))]
        for w in WEIGHTS
        for name, values in errors[w].items()
    )
    table(["", *(f"2^{np.log2(alpha):.0f}" for alpha in ALPHAS)], rows)


def simulate(w: int, repetitions: int, keep_draws: bool) -> dict[str, np.ndarray]:
    """Ranking errors of every model, each of shape (repetitions, n_alphas)."""
    errors: dict[str, list[list[float]]] = {name: [] for name in MODELS}
    state = np.random.RandomState(0)
    for _ in range(repetitions):
        train, test = (
            make_rock_paper_scissors(
                preference=SCALE * w, keep_draws=keep_draws, random_state=state
            )
            for _ in range(2)
        )
        for name, (parameters, _) in MODELS.items():
            ranker = ConditionalRankRLS(**parameters)
            path = regularization_path(ranker, train.data, train.target, alphas=ALPHAS)
            predictions = path.predict(test.data)
            errors[name].append(
                [1 - np.nanmean(conditional_scores(test.relation, F)) for F in predictions]
            )
    return {name: np.array(values) for name, values in errors.items()}


def table_row(name: str, errors: dict[int, dict[str, np.ndarray]]) -> list[str]:
    cells = [name]
    for w, published in zip(WEIGHTS, MODELS[name][1], strict=True):
        values = errors[w][name][:, 0]
        error = values.std(ddof=1) / np.sqrt(len(values))
        cells += [f"{values.mean():.5f} ± {error:.5f}", f"{published:.5f}"]
    return cells


if __name__ == "__main__":
    main()
