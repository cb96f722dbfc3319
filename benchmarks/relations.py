"""Relations of drugs and targets: known and new objects, beside KronRLS and LightGBM.

    python benchmarks/relations.py                       # all sets, all settings: hours
    python benchmarks/relations.py --sets nr --settings 2 --quick    # one fold

Sets: "davis", affinities pKd of 68 drugs × 442 kinases; "nr" and "gpcr", known interactions of
drugs with nuclear receptors (54 × 26) and G-protein coupled receptors (223 × 95), where all other
pairs count as negatives. Setting 1 asks for unseen pairs of known objects, 2 for new drugs, 3 for
new targets, 4 for pairs of two new objects. Models see two similarity matrices, symmetrised and
without their negative eigenvalues, and the training labels:

- "KronRLS": regression with the Kronecker kernel and nothing else. This is `ConditionalRankRLSCV`
  without offsets, the model of Pahikkala et al. (2015), not their program.
- "similarities": the same with ``fit_offsets=True``.
- "profiles": the kernels "profile" and "identity" too, on the sides whose objects are known in
  this setting: both in 1, columns in 2, rows in 3, none in 4.
- "rows": and on the sides whose objects are new a Gaussian kernel between the rows of the
  similarity matrix (objects are alike if they are alike to the same objects).
- "chosen": in each fold, of "similarities", "profiles" and "rows" the one with the best
  ``best_score_``, that is by cross-validation inside the training part. This is the recipe.
- "LightGBM" on the concatenated rows of both similarity matrices, number of leaves and of trees
  chosen on inner folds of the same setting with early stopping.

alpha and weights of kernels are chosen by ConditionalRankRLSCV inside the training part with the
structure of the setting held out, by the concordance of all held-out pairs. Folds: of "davis" in
setting 1 the six that come with the data (the first is the published test fold), otherwise five of
cells, drugs, targets, or of both at once; of "nr" and "gpcr" for each of three seeds five, and in
setting 4 each of three folds of the drugs with each of three of the targets. Metrics are those of
all cells of a test fold; "for a drug" is the accuracy of the targets of one drug, mean over drugs.
"""

from __future__ import annotations

import gzip
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from timing import Missing, need, parse, table

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import concordance_index, conditional_scores

#: What ConditionalRankRLSCV holds out, for each setting.
STRUCTURES = {1: "edges", 2: "rows", 3: "columns", 4: "both"}
NAMES = {1: "1: known pairs", 2: "2: new drugs", 3: "3: new targets", 4: "4: both new"}
Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # kernels of drugs and targets, labels
Splits = list[tuple[np.ndarray, np.ndarray]]  # masks of cells: learn from, predict


@dataclass(frozen=True)
class Task:
    """What a model may see: kernels and labels (NaN: unknown), and the objects asked for.

    ``left`` and ``right`` are the kernel values of the asked rows and columns with the known ones.
    A model adds to ``chosen`` what it chose by itself.
    """

    K: np.ndarray
    G: np.ndarray
    labels: np.ndarray
    left: np.ndarray
    right: np.ndarray
    setting: int
    seed: int
    chosen: dict[str, Any] = field(default_factory=dict)


def task_of(data: Data, split: Any, setting: int, seed: int) -> tuple[Task, np.ndarray]:
    """The task of a split, and the labels that are asked for (NaN elsewhere)."""
    (K, G, Y), (train, test) = data, split
    rows, columns = np.flatnonzero(train.any(axis=1)), np.flatnonzero(train.any(axis=0))
    asked = np.flatnonzero(test.any(axis=1)), np.flatnonzero(test.any(axis=0))
    labels = np.where(train, Y, np.nan)[np.ix_(rows, columns)]
    known = K[np.ix_(rows, rows)], G[np.ix_(columns, columns)], labels
    new = K[np.ix_(asked[0], rows)], G[np.ix_(asked[1], columns)]
    return Task(*known, *new, setting, seed), np.where(test, Y, np.nan)[np.ix_(*asked)]


def object_splits(
    shape: tuple[int, int], setting: int, k: int, seed: int, *, crossed: bool = False
) -> Splits:
    """k random folds of cells, rows or columns.

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


# ------------------------------------------------------------------ models


@dataclass(frozen=True)
class Kernels:
    """ConditionalRankRLSCV as regression, with kernels by what is known (the module's text)."""

    fit_offsets: bool = True
    known: bool = False
    new: bool = False

    def __call__(self, task: Task) -> np.ndarray:
        """Scores of all asked pairs."""
        rows = self._side(task.K, task.left, known=task.setting in (1, 3))
        columns = self._side(task.G, task.right, known=task.setting in (1, 2))
        # The same folds for all kernels, so that best scores can be compared.
        n_folds = {1: 5, 2: min(10, len(task.K) // 5), 3: min(10, len(task.G) // 5), 4: 5}
        ranker = ConditionalRankRLSCV(
            4.0 ** np.arange(-7, 4),
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
        task.chosen.update(alpha=ranker.alpha_, inner_score=ranker.best_score_)
        return ranker.predict(rows[2], columns[2])

    def _side(self, S: np.ndarray, asked: np.ndarray, *, known: bool) -> tuple[Any, Any, Any]:
        """Names of kernels, and matrices of the known and of the asked objects."""
        if self.known and known:
            return ["precomputed", "profile", "identity"], S, asked
        if self.new and not known:
            gamma = 0.5 / np.var(S, axis=0).sum()
            gaussian = rbf_kernel(S, gamma=gamma), rbf_kernel(asked, S, gamma=gamma)
            return ["precomputed"] * 2, [S, gaussian[0]], [asked, gaussian[1]]
        return ["precomputed"], S, asked


def concordance(y: np.ndarray, scores: np.ndarray, qid: Any = None) -> float:
    """Part of all pairs with different labels in the right order, whatever lists they are in."""
    return float(concordance_index(y, scores))


def lightgbm(task: Task) -> np.ndarray:
    """Boosting of both objects' kernel rows; three inner folds in settings 2 and 4, else one."""
    import lightgbm as lgb

    observed = ~np.isnan(task.labels)
    binary = set(np.unique(task.labels[observed])) <= {0.0, 1.0}
    options = {"objective": "binary" if binary else "regression", "learning_rate": 0.1}
    options |= {"feature_fraction": 0.3, "max_bin": 63, "num_threads": 1, "verbose": -1}
    options["seed"] = task.seed

    def data(cells: np.ndarray, reference: Any = None) -> Any:
        i, j = np.nonzero(cells)
        X = np.hstack([task.K[i], task.G[j]]).astype(np.float32)
        return lgb.Dataset(X, task.labels[i, j], reference=reference, params=options)

    few = task.setting in (1, 3)
    # Another seed than that of the test folds: those cells are held out already.
    seed = task.seed + 1000 if task.setting == 1 else task.seed
    splits = object_splits(observed.shape, task.setting, 5, seed)[: 1 if few else 3]
    inner = [(data(train & observed), test & observed) for train, test in splits]
    found = []
    for leaves in (31, 127) if few else (7, 31, 127):
        losses, counts = [], []
        for fit, held in inner:
            stop, own = lgb.early_stopping(20, verbose=False), {**options, "num_leaves": leaves}
            model = lgb.train(own, fit, 400, [data(held, fit)], callbacks=[stop])
            counts.append(model.best_iteration)
            losses.append(next(iter(model.best_score["valid_0"].values())))
        found.append((float(np.mean(losses)), leaves, max(1, round(np.mean(counts)))))
    _, leaves, count = min(found)
    model = lgb.train({**options, "num_leaves": leaves}, data(observed), count)
    shape = len(task.left), len(task.right)
    i, j = (part.ravel() for part in np.indices(shape))
    return np.asarray(model.predict(np.hstack([task.left[i], task.right[j]]))).reshape(shape)


MODELS: dict[str, Callable[[Task], np.ndarray]] = {
    "KronRLS": Kernels(fit_offsets=False),
    "similarities": Kernels(),
    "profiles": Kernels(known=True),
    "rows": Kernels(known=True, new=True),
    "LightGBM": lightgbm,
}
#: The models among which the recipe chooses, where they differ.
VARIANTS = {
    1: ("similarities", "profiles"),
    2: ("similarities", "profiles", "rows"),
    3: ("similarities", "profiles", "rows"),
    4: ("similarities", "rows"),
}


# ------------------------------------------------------------------ data


def repaired(S: np.ndarray) -> np.ndarray:
    """The symmetric part of S without its negative eigenvalues."""
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def read(name: str) -> Data:
    if name == "davis":
        files = ("drug-drug_similarities_2D", "target-target_similarities_WS")
        files += ("drug-target_interaction_affinities_Kd__Davis_et_al.2011v1",)
        K, G, Y = (np.loadtxt(path) for path in need(*(f"dti_davis/{f}.txt.gz" for f in files)))
        size = np.sqrt(G.diagonal())
        return repaired(K), repaired(G / np.outer(size, size)), -np.log10(Y / 1e9)
    files = ("simmat_dc", "simmat_dg", "admat_dgc")
    K, G, Y = (_named(path) for path in need(*(f"dti_yamanishi/{name}_{f}.txt.gz" for f in files)))
    return repaired(K), repaired(G), Y.T


def _named(path: Any) -> np.ndarray:
    """Numbers of a table with names of rows and columns."""
    with gzip.open(path, "rt") as lines:
        width = len(next(lines).split())
        return np.loadtxt(lines, usecols=range(1, width + 1))


def repeats(name: str, shape: tuple[int, int], setting: int) -> list[tuple[int, Splits]]:
    """(seed, splits) of every repetition."""
    if name != "davis":
        k = 3 if setting == 4 else 5
        return [(s, object_splits(shape, setting, k, s, crossed=True)) for s in range(3)]
    if setting > 1:
        return [(0, object_splits(shape, setting, 5, 0))]
    paths = need(*(f"dti_davis/{part}_fold_setting1.txt.gz" for part in ("test", "train")))
    tested, others = (json.loads(gzip.decompress(path.read_bytes())) for path in paths)
    masks = [
        np.isin(np.arange(np.prod(shape)), cells).reshape(shape) for cells in (tested, *others)
    ]
    return [(0, [(~mask, mask) for mask in masks])]


def metrics(name: str, expected: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    seen = ~np.isnan(expected)
    y, s = expected[seen], scores[seen]
    if name == "davis":
        found = {"concordance": concordance(y, s), "squared error": np.mean((y - s) ** 2)}
    elif 0 < y.sum() < len(y):
        found = {"AUC": roc_auc_score(y, s), "AUPR": average_precision_score(y, s)}
    else:
        found = {"AUC": np.nan, "AUPR": np.nan}
    return found | {"for a drug": np.nanmean(conditional_scores(expected, scores))}


# ------------------------------------------------------------------ the table


def rows(name: str, data: Data, setting: int, models: list[str], quick: bool) -> Iterator[list]:
    """A line for each model: means over folds, ± the standard deviation over seeds."""
    results: dict[str, list[list[dict[str, float]]]] = {}
    for model in models:
        if model in ("profiles", "rows") and model not in VARIANTS[setting]:
            continue  # it is one of the others
        results[model] = []
        for seed, splits in repeats(name, data[2].shape, setting)[: 1 if quick else None]:
            results[model].append([])
            for split in splits[: 1 if quick else None]:
                task, expected = task_of(data, split, setting, seed)
                start = time.process_time()
                found = metrics(name, expected, MODELS[model](task))
                found["s a fold"] = time.process_time() - start
                results[model][-1].append(found | {"inner": task.chosen.get("inner_score", 0.0)})
    if all(variant in results for variant in VARIANTS[setting]):
        variants = [results[variant] for variant in VARIANTS[setting]]
        results["chosen"] = [
            [max(fold, key=lambda one: one["inner"]) for fold in zip(*repeat, strict=True)]
            for repeat in zip(*variants, strict=True)
        ]
    for model, found in results.items():
        cells = []
        for key in [key for key in found[0][0] if key != "inner"]:
            means = [np.nanmean([fold[key] for fold in repeat]) for repeat in found]
            spread = f" ± {np.std(means):.4f}" if len(means) > 1 else ""
            cells.append(f"{key} {np.mean(means):.4f}{spread}")
        yield [name, NAMES[setting], model, ", ".join(cells)]


def main() -> None:
    options = parse(
        __doc__,
        sets=["davis", "nr", "gpcr"],
        settings=[1, 2, 3, 4],
        models=list(MODELS),
        quick=False,
    )
    for name in options.sets:
        try:
            data = read(name)
        except Missing as error:
            print(error)
            continue
        for setting in options.settings:
            lines = rows(name, data, setting, options.models, options.quick)
            table(["data", "setting", "model", "means over folds"], lines)


if __name__ == "__main__":
    main()
