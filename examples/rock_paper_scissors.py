"""Rock, paper, scissors: rank new players for a new opponent (P5 §6.1, Table 1, Figure 2).

The training data are 1000 games between 100 players. Each game gives two labelled pairs: +1 for the
winner and −1 for the loser. Then 100 other players are ranked for each of these as the opponent, by
their chance to win. There is no best player, only a best one against a given opponent. Players have
three features, the frequencies of their moves, and the kernel is linear.

    python examples/rock_paper_scissors.py --repetitions 200 --output error.png

P5 does not say how the strategies are drawn. Here the probability of a move is proportional to
exp(s w u), with u uniform in [0, 1]. With s = 0.3 (``--scale``), the errors are about those of the
paper for all three w. The command prints the pairwise ranking errors (means over the repetitions,
with standard errors; alpha is 2^-30, as in the paper):

                               w = 1     P5             w = 10     P5           w = 100      P5
    regression             .486±.017  .4875      .0407±.0019  .0417    .00130±.00008  .00138
    …, reciprocal          .486±.017  .4868      .0407±.0019  .0415    .00130±.00008  .00137
    ranking                .487±.017  .4876      .0432±.0018  .0452    .00328±.00018  .00142
    …, reciprocal          .486±.017  .4880      .0416±.0018  .0429    .00135±.00008  .00135

They agree with the paper except for the ranking loss with a plain kernel at w = 100. This is due to
draws, which do not occur here (benchmarks/papers/p5_games.py compares both). As in the paper,
regression is as good as the ranking loss, and all small alphas are equally good (see the plot).
Regression does not change with the reciprocal kernel: since the data contain every game in both
directions, a plain kernel also learns an antisymmetric function (P5, Proposition 4.7). Centring by
player breaks this symmetry, so the reciprocal kernel helps with the ranking loss. With w = 1 there
is almost nothing to learn.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

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
ALPHAS = 2.0 ** np.arange(-30, 21, 5)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--scale", type=float, default=0.3, help="preference = scale × w")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", metavar="PNG", help="draw the errors over alpha into this file")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    errors = {w: simulate(w, options) for w in WEIGHTS}
    seconds = time.perf_counter() - start
    print_table(errors)
    print(f"\n{options.repetitions} repetitions, scale {options.scale:g}: {seconds:.0f} s")
    if options.output:
        plot(errors, options.output)


def simulate(w: int, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Ranking errors of every model, each of shape (repetitions, n_alphas)."""
    errors: dict[str, list[np.ndarray]] = {name: [] for name in MODELS}
    state = np.random.RandomState(options.seed)
    for _ in range(options.repetitions):
        train, test = (
            make_rock_paper_scissors(preference=options.scale * w, random_state=state)
            for _ in range(2)
        )
        for name, (parameters, _) in MODELS.items():
            path = regularization_path(
                ConditionalRankRLS(**parameters), train.data, train.target, alphas=ALPHAS
            )
            scores = [
                1 - np.nanmean(conditional_scores(test.relation, F))
                for F in path.predict(test.data)
            ]
            errors[name].append(np.array(scores))
    return {name: np.array(values) for name, values in errors.items()}


def print_table(errors: dict[int, dict[str, np.ndarray]]) -> None:
    print(f"{'':24}" + "".join(f"{f'w = {w}':>22}{'P5':>9}" for w in WEIGHTS))
    for name, (_, published) in MODELS.items():
        cells = []
        for w, theirs in zip(WEIGHTS, published, strict=True):
            values = errors[w][name][:, 0]
            spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():12.5f} ± {spread:.5f}{theirs:9.5f}")
        print(f"{name:24}" + "".join(cells))


def plot(errors: dict[int, dict[str, np.ndarray]], path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("drawing needs matplotlib: pip install 'rankrls[plot]'")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    styles = {"regression": "C0", "ranking": "C1"}
    figure, axes = plt.subplots(3, 2, figsize=(7.5, 7.5), sharex=True, layout="constrained")
    for row, w in zip(axes, WEIGHTS, strict=True):
        for name, values in errors[w].items():
            loss, _, kernel = name.partition(", ")
            ax = row[1 if kernel else 0]
            ax.plot(ALPHAS, values.mean(axis=0), color=styles[loss], marker=".", label=loss)
        top = max(ax.get_ylim()[1] for ax in row)
        for ax, kernel in zip(row, ("plain", "reciprocal"), strict=True):
            ax.set_xscale("log", base=2)
            ax.set_ylim(0, 1.05 * top)
            ax.set_title(f"w = {w}, {kernel} kernel", fontsize="medium")
            ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("alpha")
    for ax in axes[:, 0]:
        ax.set_ylabel("ranking error")
    axes[0, 0].legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
    print(f"drawn into {path}")


if __name__ == "__main__":
    main()
