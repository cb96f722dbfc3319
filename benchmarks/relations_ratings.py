"""Ratings of items by users: unseen ratings of known users, beside matrix factorisation.

    python benchmarks/relations_ratings.py [--sets jester generated] [--users 500] [--seeds 3]

Sets: "jester", ratings of 100 jokes by ``--users`` random users of whom nothing else is known.
"generated", 250 users × 400 items and 10,000 ratings of 1 to 5
in the shape of MovieLens: a few items have most of the ratings; users and items have offsets and
six latent factors, half of whose variance can be told from five features of users and twelve
genres of items. It is made by what matrix factorisation assumes, not measured.

A fifth of the ratings is held out at random, with new users or a new set for each of ``--seeds``.
Accuracy is the part of the pairs of held-out items of one user that were rated differently, in the
right order, mean over users; the root mean squared error is told where scores are ratings. ± is the
standard deviation over seeds. Seconds are of the processor, with all choices.

Models: offsets of users and items alone, and matrix factorisation by alternating least squares with
both offsets, whose choices are made on a tenth of the training ratings by accuracy.
ConditionalRankRLSCV with the kernels "identity" and "profile" on both sides, alpha and weights by
cv="edges" with five folds: as regression with both offsets, and with the ranking loss without
offsets of items. "with features" adds a Gaussian kernel of the features on each side.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from judgements import ratings
from timing import Missing, parse, table

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import conditional_scores

ALPHAS = 4.0 ** np.arange(-4, 5)


@dataclass(frozen=True)
class Ratings:
    """Ratings (NaN: none), and features of users and items, if any."""

    Y: np.ndarray
    users: np.ndarray | None = None
    items: np.ndarray | None = None


Model = Callable[[np.ndarray, Ratings, np.random.Generator], tuple[np.ndarray, Any]]


def main() -> None:
    options = parse(__doc__, sets=["jester", "generated"], models=list(MODELS), users=500, seeds=3)
    header = ["data", "model", "accuracy", "error", "s", "chosen"]
    for name in options.sets:
        try:
            table(header, list(rows(name, options.models, options.users, options.seeds)))
        except Missing as error:
            print(error)


def rows(name: str, models: list[str], n_users: int, n_seeds: int) -> Iterator[list[str]]:
    for model in models:
        if model == "with features" and name == "jester":
            continue
        found = []
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            data = Ratings(rng.permutation(ratings())[:n_users]) if name == "jester" else made(rng)
            found.append(held_out(MODELS[model], data, rng))
        values = np.array([line[:3] for line in found])
        (accuracy_, error, seconds), spread = values.mean(axis=0), values.std(axis=0)
        is_rating = model not in ("ranking", "with features")
        cells = [f"{accuracy_:.4f} ± {spread[0]:.4f}", f"{error:.3f}" if is_rating else ""]
        yield [name, model, *cells, f"{seconds:.1f}", "; ".join(str(line[3]) for line in found)]


def made(rng: np.random.Generator) -> Ratings:
    """Ratings in the shape of MovieLens, which is described at the top."""
    p, g, rank = 250, 400, 6
    users, items = rng.standard_normal((p, 5)), (rng.random((g, 12)) < 0.2).astype(float)

    def factors(features: np.ndarray) -> np.ndarray:
        told = features @ rng.standard_normal((features.shape[1], rank))
        told = (told - told.mean(axis=0)) / told.std(axis=0)
        return np.sqrt(0.5) * (told + rng.standard_normal(told.shape))

    quality = 0.5 * rng.standard_normal(g)
    taste = factors(users) @ factors(items).T / np.sqrt(rank)
    mean = 3.5 + 0.4 * rng.standard_normal((p, 1)) + quality + 0.6 * taste
    Y = np.clip(np.round(mean + 0.8 * rng.standard_normal((p, g))), 1, 5)
    popularity = np.exp(0.5 * quality) / (1 + rng.permutation(g)) ** 0.7
    chance = np.exp(0.7 * rng.standard_normal((p, 1))) * popularity
    keys = rng.exponential(size=(p, g)) / chance  # the 10,000 smallest: without replacement
    Y[keys > np.partition(keys.ravel(), 10_000)[10_000 - 1]] = np.nan
    return Ratings(Y, users, items)


def held_out(
    model: Model, data: Ratings, rng: np.random.Generator
) -> tuple[float, float, float, Any]:
    """Accuracy and error of a fifth of the ratings, seconds, and what was chosen."""
    test = ~np.isnan(data.Y) & (rng.random(data.Y.shape) < 0.2)
    start = time.process_time()
    scores, chosen = model(np.where(test, np.nan, data.Y), data, rng)
    seconds = time.process_time() - start
    held = np.where(test, data.Y, np.nan)
    error = float(np.sqrt(np.nanmean((held - scores) ** 2)))
    return accuracy(held, scores), error, seconds, chosen


def accuracy(Y: np.ndarray, scores: np.ndarray) -> float:
    return float(np.nanmean(conditional_scores(Y, scores)))


def validated(fit: Callable[[np.ndarray, Any], np.ndarray], grid: list[Any]) -> Model:
    """A model whose choice is made on a tenth of the training ratings."""

    def predict(Y: np.ndarray, data: Ratings, rng: np.random.Generator) -> tuple[np.ndarray, Any]:
        inner = ~np.isnan(Y) & (rng.random(Y.shape) < 0.1)
        known, asked = np.where(inner, np.nan, Y), np.where(inner, Y, np.nan)
        best = grid[int(np.argmax([accuracy(asked, fit(known, choice)) for choice in grid]))]
        return fit(Y, best), best

    return predict


def offsets(Y: np.ndarray, penalty: float) -> np.ndarray:
    """Mean, and deviations of users and items shrunk towards it."""
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


def relation(*, features: bool = False, **options: Any) -> Model:
    """ConditionalRankRLSCV, whose objects are numbered or have features."""

    def predict(Y: np.ndarray, data: Ratings, rng: np.random.Generator) -> tuple[np.ndarray, Any]:
        kernel = ["identity", "profile"]
        X, Z = (np.arange(n)[:, None] for n in Y.shape)
        if features:
            kernel = ["rbf", *kernel]
            X, Z = data.users, data.items
        ranker = ConditionalRankRLSCV(
            ALPHAS, kernel=kernel, cv="edges", n_folds=5, random_state=0, **options
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="conjugate gradients")
            ranker.fit(X, Y, Z)
        weights = [
            w.round(2).tolist() for w in (ranker.kernel_weights_, ranker.object_kernel_weights_)
        ]
        return ranker.predict(X, Z), (ranker.alpha_, *weights)

    return predict


MODELS: dict[str, Model] = {
    "offsets": validated(offsets, [0.3, 1.0, 3.0, 10.0, 30.0]),
    "factorisation": validated(
        factorisation,
        [(k, r) for k in (1, 2, 3, 5, 8, 12) for r in (0.03, 0.1, 0.2, 0.3, 0.5, 1.0)],
    ),
    "regression": relation(loss="regression", fit_offsets="both"),
    "ranking": relation(),
    "with features": relation(features=True),
}


if __name__ == "__main__":
    main()
