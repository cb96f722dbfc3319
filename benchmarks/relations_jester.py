"""Jokes and ratings (Jester): unseen ratings of known users, who have no features.

    python benchmarks/relations_jester.py [--users 1500]

It reads ratings.npz from ``--data``, by default ../shared/data/jester5k seen from the project, and
stops where that is absent. A fifth of the ratings of random users is held out at random; accuracy
is the part of the pairs of held-out jokes of one user in the right order, mean over users; the root
mean squared error is told where scores are ratings.

Models: offsets of users and jokes alone; matrix factorisation by alternating least squares with
both offsets (rank and penalty chosen on a tenth of the training ratings); ConditionalRankRLS with
the kernels "identity" (weight .1) and "profile" (.9) on both sides, gamma of profiles and alpha
chosen in the same way, as regression with both offsets, and with the ranking loss without offsets
of jokes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rankrls import ConditionalRankRLS
from rankrls.metrics import conditional_scores

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "jester5k"
CHOICES = [(gamma, alpha) for gamma in (1.0, 0.3, 0.1) for alpha in (0.5, 1.0, 2.0, 4.0, 8.0)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of ratings.npz")
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not (options.data / "ratings.npz").exists():
        sys.exit(f"no ratings in {options.data}: nothing is measured (see --data)")
    rng = np.random.default_rng(options.seed)
    stored = np.load(options.data / "ratings.npz")
    Y = np.full(tuple(stored["shape"]), np.nan)
    Y[stored["user"], stored["item"]] = stored["rating"]
    Y = Y[rng.permutation(len(Y))[: options.users]]
    test = ~np.isnan(Y) & (rng.random(Y.shape) < 0.2)
    train, held = np.where(test, np.nan, Y), np.where(test, Y, np.nan)
    inner = ~np.isnan(train) & (rng.random(Y.shape) < 0.1)
    parts = np.where(inner, np.nan, train), np.where(inner, train, np.nan)
    print(f"{options.users} users × {Y.shape[1]} jokes, {test.sum()} ratings held out\n")
    print("| model | chosen | accuracy | error | s |\n|---|---|---:|---:|---:|")
    for name, (model, grid) in MODELS.items():
        start = time.perf_counter()
        scores = [accuracy(parts[1], model(parts[0], value)) for value in grid]
        best = grid[int(np.argmax(scores))]
        predictions = model(train, best)
        seconds = time.perf_counter() - start
        error = np.sqrt(np.nanmean((held - predictions) ** 2)) if name != "ranking" else np.nan
        numbers = f"{accuracy(held, predictions):.4f} | {error:.3f} | {seconds:.0f}"
        print(f"| {name} | {best} | {numbers} |", flush=True)


def accuracy(Y: np.ndarray, scores: np.ndarray) -> float:
    return float(np.nanmean(conditional_scores(Y, scores)))


def offsets(Y: np.ndarray, penalty: float) -> np.ndarray:
    """Mean, and deviations of users and jokes shrunk towards it."""
    seen = ~np.isnan(Y)
    mean = Y[seen].mean()
    a, b = np.zeros(len(Y)), np.zeros(Y.shape[1])
    for _ in range(20):
        a = np.nansum(Y - mean - b, axis=1) / (seen.sum(axis=1) + penalty)
        b = np.nansum(Y - mean - a[:, None], axis=0) / (seen.sum(axis=0) + penalty)
    return mean + a[:, None] + b


def factorisation(Y: np.ndarray, choice: tuple[int, float]) -> np.ndarray:
    """Offsets plus U Vᵀ by alternating ridge regressions, whose penalty counts for each rating."""
    rank, penalty = choice
    seen = ~np.isnan(Y)
    base = offsets(Y, 1.0)
    rest = np.where(seen, Y - base, 0.0)
    weight = seen.astype(float)
    rng = np.random.default_rng(0)
    V = 0.1 * rng.standard_normal((Y.shape[1], rank))
    for _ in range(15):
        U = _ridge(weight, rest, V, penalty)
        V = _ridge(weight.T, rest.T, U, penalty)
    return base + U @ V.T


def _ridge(weight: np.ndarray, rest: np.ndarray, V: np.ndarray, penalty: float) -> np.ndarray:
    outer = (V[:, :, None] * V[:, None, :]).reshape(len(V), -1)
    rank = V.shape[1]
    systems = (weight @ outer).reshape(-1, rank, rank)
    systems += (penalty * np.maximum(weight.sum(axis=1), 1.0))[:, None, None] * np.eye(rank)
    return np.linalg.solve(systems, (rest @ V)[:, :, None])[:, :, 0]


def relation(**options: Any) -> Any:
    def predict(Y: np.ndarray, choice: tuple[float, float]) -> np.ndarray:
        gamma, alpha = choice
        users, jokes = (np.arange(n)[:, None] for n in Y.shape)
        ranker = ConditionalRankRLS(
            alpha, kernel=["identity", "profile"], kernel_params=[None, {"gamma": gamma}],
            kernel_weights=[0.1, 0.9], object_kernel_weights=[0.1, 0.9], **options,
        )  # fmt: skip
        return ranker.fit(users, Y, jokes).predict(users, jokes)

    return predict


MODELS = {
    "offsets": (offsets, [0.3, 1.0, 3.0, 10.0]),
    "factorisation": (factorisation, [(k, r) for k in (2, 5, 10) for r in (0.03, 0.1, 0.3)]),
    "regression": (relation(loss="regression", fit_offsets="both"), CHOICES),
    "ranking": (relation(), CHOICES),
}


if __name__ == "__main__":
    main()
