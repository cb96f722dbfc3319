"""The four settings of a relation, the models compared in them, and the table of results.

Setting 1 asks for unseen pairs of known objects, 2 for new rows, 3 for new columns, 4 for pairs of
two new objects. Shared by relations_davis.py and relations_drug_targets.py, which have the data and
the metrics. Models see two similarity matrices (positive semi-definite) and the training labels:

- "KronRLS": regression with the Kronecker kernel and nothing else. This is `ConditionalRankRLSCV`
  without offsets, the model of Pahikkala et al. (2015), not their program.
- "similarities": the same with ``fit_offsets=True``.
- "profiles": the kernels "profile" and "identity" too, on the sides whose objects are known in
  this setting: both in 1, columns in 2, rows in 3, none in 4.
- "rows": and on the sides whose objects are new a Gaussian kernel between the rows of the
  similarity matrix (objects are alike if they are alike to the same objects).
- "chosen": in each fold, of "similarities", "profiles" and "rows" the one with the best
  ``best_score_``, that is by cross-validation inside the training part. This is the recipe.
- "LightGBM" on the concatenated rows of both similarity matrices.

alpha and weights of kernels are chosen by ConditionalRankRLSCV inside the training part with the
structure of the setting held out, by the concordance of all held-out pairs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import concordance_index

#: What ConditionalRankRLSCV holds out, for each setting.
STRUCTURES = {1: "edges", 2: "rows", 3: "columns", 4: "both"}
NAMES = {1: "1: known pairs", 2: "2: new drugs", 3: "3: new targets", 4: "4: both new"}

Splits = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """What a model may see: kernels and labels to learn from, and the objects that are asked for.

    ``left`` and ``right`` are the kernel values of the asked rows and columns with the known ones.
    Labels that are not to be seen are NaN. A model adds to ``chosen`` what it chose by itself.
    """

    K: np.ndarray
    G: np.ndarray
    labels: np.ndarray
    left: np.ndarray
    right: np.ndarray
    setting: int
    seed: int
    chosen: dict[str, Any] = field(default_factory=dict)


Model = Callable[[Task], np.ndarray]
#: Of the expected labels (NaN: not asked) and the scores.
Metrics = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def task_of(
    K: np.ndarray, G: np.ndarray, Y: np.ndarray, split: Any, setting: int, seed: int
) -> tuple[Task, np.ndarray]:
    """The task of a split, and the labels that are asked for (NaN elsewhere)."""
    train, test = split
    rows, columns = np.flatnonzero(train.any(axis=1)), np.flatnonzero(train.any(axis=0))
    asked = np.flatnonzero(test.any(axis=1)), np.flatnonzero(test.any(axis=0))
    task = Task(
        K[np.ix_(rows, rows)],
        G[np.ix_(columns, columns)],
        np.where(train, Y, np.nan)[np.ix_(rows, columns)],
        K[np.ix_(asked[0], rows)],
        G[np.ix_(asked[1], columns)],
        setting,
        seed,
    )
    return task, np.where(test, Y, np.nan)[np.ix_(*asked)]


def object_splits(
    shape: tuple[int, int], setting: int, k: int, seed: int, *, crossed: bool = False
) -> Splits:
    """Masks (learn from, predict) of k random folds of cells, rows or columns.

    In setting 4, fold number i of the rows with fold i of the columns, or all k² if ``crossed``.
    """
    rng = np.random.default_rng(seed)
    folds = [np.array_split(rng.permutation(n), k) for n in shape]
    if setting == 1:
        cell = rng.permutation(np.arange(shape[0] * shape[1]) % k).reshape(shape)
        return [(cell != i, cell == i) for i in range(k)]
    joined = itertools.product(*folds) if crossed and setting == 4 else zip(*folds, strict=True)
    splits = []
    for row, column in joined:
        r, c = np.zeros((shape[0], 1), dtype=bool), np.zeros((1, shape[1]), dtype=bool)
        r[row], c[:, column] = setting != 3, setting != 2
        splits.append((~(r | c), (r & c) if setting == 4 else np.broadcast_to(r | c, shape)))
    return splits


@dataclass(frozen=True)
class Kernels:
    """ConditionalRankRLSCV as regression, with kernels by what is known (the module's text)."""

    fit_offsets: bool = True
    known: bool = False
    new: bool = False
    alphas: tuple[float, ...] = tuple(4.0 ** np.arange(-7, 4))

    def __call__(self, task: Task) -> np.ndarray:
        """Scores of all asked pairs."""
        rows = self._side(task.K, task.left, known=task.setting in (1, 3))
        columns = self._side(task.G, task.right, known=task.setting in (1, 2))
        # The same folds for all kernels, so that best scores can be compared.
        n_folds = {1: 5, 2: min(10, len(task.K) // 5), 3: min(10, len(task.G) // 5), 4: 5}
        ranker = ConditionalRankRLSCV(
            self.alphas,
            kernel=rows[0],
            object_kernel=columns[0],
            loss="regression",
            fit_offsets=self.fit_offsets,
            cv=STRUCTURES[task.setting],
            n_folds=n_folds[task.setting],
            scoring=concordance,
            random_state=task.seed,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the best alpha")
            warnings.filterwarnings("ignore", message="conjugate gradients")
            ranker.fit(rows[1], task.labels, columns[1])
        task.chosen.update(alpha=ranker.alpha_, inner_score=round(ranker.best_score_, 4))
        for name in ("kernel_weights_", "object_kernel_weights_"):
            if hasattr(ranker, name):
                task.chosen[name] = getattr(ranker, name).round(4).tolist()
        return ranker.predict(rows[2], columns[2])

    def _side(self, S: np.ndarray, asked: np.ndarray, *, known: bool) -> tuple[Any, Any, Any]:
        """Names of kernels, and matrices of the known and of the asked objects."""
        names, matrices, others = ["precomputed"], [S], [asked]
        if self.new and not known:
            gamma = 0.5 / np.var(S, axis=0).sum()
            names.append("precomputed")
            matrices.append(rbf_kernel(S, gamma=gamma))
            others.append(rbf_kernel(asked, S, gamma=gamma))
        if self.known and known:
            names += ["profile", "identity"]
        if len(matrices) == 1:
            return names, S, asked
        return names, matrices, others


def concordance(y: np.ndarray, scores: np.ndarray, qid: Any = None) -> float:
    """Part of all pairs with different labels in the right order, whatever lists they are in."""
    return float(concordance_index(y, scores))


class LightGBM:
    """Gradient boosting on the concatenated kernel rows of both objects.

    The number of leaves and of trees are chosen on inner folds of the same setting, by the
    squared error (regression) or the log loss (binary), with early stopping: three inner folds
    and three sizes of trees in settings 2 and 4, one inner fold and the larger two in 1 and 3,
    where there is more to validate on and trees are many.
    """

    rounds = 400
    patience = 20
    options: ClassVar = {
        "learning_rate": 0.1,
        "feature_fraction": 0.3,
        "max_bin": 63,
        "num_threads": 1,
        "verbose": -1,
    }
    leaves = (7, 31, 127)

    def __init__(self, objective: str = "regression") -> None:
        self.objective = objective

    def __call__(self, task: Task) -> np.ndarray:
        """Scores of all asked pairs."""
        import lightgbm

        observed = ~np.isnan(task.labels)
        few = task.setting in (1, 3)
        n_inner = 1 if few else 3
        # Another seed than that of the test folds: those cells are held out already.
        seed = task.seed + 1000 if task.setting == 1 else task.seed
        splits = object_splits(observed.shape, task.setting, 5, seed)[:n_inner]
        data = []
        for train, test in splits:
            fit = self._data(task, train & observed)
            data.append((fit, self._data(task, test & observed, reference=fit)))
        found = []
        for leaves in self.leaves[few:]:
            losses, counts = [], []
            for fit, held in data:
                stop = lightgbm.early_stopping(self.patience, verbose=False)
                model = lightgbm.train(
                    self._options(leaves, task), fit, self.rounds, [held], callbacks=[stop]
                )
                counts.append(model.best_iteration)
                losses.append(next(iter(model.best_score["valid_0"].values())))
            found.append((float(np.mean(losses)), leaves, max(1, round(np.mean(counts)))))
        _, leaves, count = min(found)
        task.chosen.update(leaves=leaves, trees=count)
        model = lightgbm.train(self._options(leaves, task), self._data(task, observed), count)
        shape = len(task.left), len(task.right)
        i, j = (part.ravel() for part in np.indices(shape))
        X = np.hstack([task.left[i], task.right[j]])
        return np.asarray(model.predict(X, num_threads=1)).reshape(shape)

    def _options(self, leaves: int, task: Task) -> dict[str, Any]:
        own = {"objective": self.objective, "num_leaves": leaves, "seed": task.seed}
        return self.options | own

    def _data(self, task: Task, cells: np.ndarray, reference: Any = None) -> Any:
        import lightgbm

        i, j = np.nonzero(cells)
        X = np.hstack([task.K[i], task.G[j]]).astype(np.float32)
        return lightgbm.Dataset(X, task.labels[i, j], reference=reference, params=self.options)


MODELS: dict[str, Model] = {
    "KronRLS": Kernels(fit_offsets=False),
    "similarities": Kernels(),
    "profiles": Kernels(known=True),
    "rows": Kernels(known=True, new=True),
}
#: The models among which the recipe chooses, where they differ.
VARIANTS = {
    1: ("similarities", "profiles"),
    2: ("similarities", "profiles", "rows"),
    3: ("similarities", "profiles", "rows"),
    4: ("similarities", "rows"),
}
LIGHTGBM = "LightGBM"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that the benchmarks of the four settings share."""
    parser.add_argument(
        "--settings", nargs="+", type=int, choices=(1, 2, 3, 4), default=[1, 2, 3, 4]
    )
    parser.add_argument(
        "--models", nargs="+", choices=[*MODELS, LIGHTGBM], default=[*MODELS, LIGHTGBM]
    )
    parser.add_argument("--without-lightgbm", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one fold of each setting")
    parser.add_argument(
        "--record", type=Path, help="file of JSON lines to continue: folds in it are not run again"
    )


def chosen_models(options: argparse.Namespace, objective: str) -> dict[str, Model]:
    """The models that the options ask for."""
    models = MODELS | {LIGHTGBM: LightGBM(objective)}
    left_out = {LIGHTGBM} if options.without_lightgbm else set()
    return {name: models[name] for name in options.models if name not in left_out}


class Record:
    """Results of single folds, kept in a file of JSON lines so that a run can be continued."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.entries[json.dumps(entry["key"])] = entry

    def result(self, key: list[Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is recorded for this key, or is computed now, with processor seconds."""
        name = json.dumps(key)
        if name not in self.entries:
            start = time.process_time()
            entry = {"key": key} | compute()
            entry["seconds"] = round(time.process_time() - start, 2)
            self.entries[name] = entry
            if self.path is not None:
                with self.path.open("a") as out:
                    out.write(json.dumps(entry) + "\n")
        return self.entries[name]


def evaluate(model: Model, metrics: Metrics, task: Task, expected: np.ndarray) -> dict[str, Any]:
    """Metrics of the asked cells, and what the model chose."""
    return metrics(expected, model(task)) | {"chosen": task.chosen}


def print_settings(
    name: str,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    splits: Callable[[int], list[tuple[int, Splits]]],
    metrics: Metrics,
    models: dict[str, Model],
    options: argparse.Namespace,
) -> None:
    """A line for each setting and model: means over folds and seeds of all metrics.

    ``splits(setting)`` has (seed, splits) for every repetition. With several seeds, ± is the
    standard deviation of their means.
    """
    record = Record(options.record)
    heading = False
    for setting in options.settings:
        results: dict[str, list[list[dict[str, Any]]]] = {}
        for model_name, model in models.items():
            if model_name in ("profiles", "rows") and model_name not in VARIANTS[setting]:
                continue  # it is one of the others
            results[model_name] = repeats = []
            for seed, parts in splits(setting):
                repeats.append([])
                for number, split in enumerate(parts[:1] if options.quick else parts):
                    task, expected = task_of(*data, split, setting, seed)
                    key = [name, setting, seed, number, model_name]
                    made = record.result(key, partial(evaluate, model, metrics, task, expected))
                    repeats[-1].append(made)
        if all(variant in results for variant in VARIANTS[setting]):
            results["chosen"] = best_variants([results[name] for name in VARIANTS[setting]])
        for model_name, repeats in results.items():
            names = [key for key in repeats[0][0] if key not in ("key", "chosen", "seconds")]
            if not heading:
                columns = " | ".join(names)
                line = "|---" * 3 + "|---:" * (len(names) + 1) + "|"
                print(f"| data | setting | model | {columns} | s a fold |\n{line}")
                heading = True
            cells = [_cell([_mean(found, key) for found in repeats]) for key in names]
            seconds = np.mean([_mean(found, "seconds") for found in repeats])
            line = f"| {name} | {NAMES[setting]} | {model_name} | {' | '.join(cells)}"
            print(f"{line} | {seconds:.1f} |", flush=True)


def best_variants(variants: list[list[list[dict[str, Any]]]]) -> list[list[dict[str, Any]]]:
    """Of every fold the result of the variant with the best inner score; seconds are of all."""
    chosen = []
    for repeat in zip(*variants, strict=True):
        chosen.append([])
        for fold in zip(*repeat, strict=True):
            best = max(fold, key=lambda made: made["chosen"]["inner_score"])
            seconds = sum(made["seconds"] for made in fold)
            chosen[-1].append(best | {"seconds": seconds})
    return chosen


def _mean(found: list[dict[str, Any]], name: str) -> float:
    return float(np.nanmean([result[name] for result in found]))


def _cell(values: list[float]) -> str:
    text = f"{np.mean(values):.4f}"
    return text if len(values) == 1 else f"{text} ± {np.std(values):.4f}"
