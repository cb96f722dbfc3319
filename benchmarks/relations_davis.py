"""Drug-target affinities of kinases (Davis et al. 2011): known and new drugs and targets.

68 drugs × 442 targets, a complete relation of pKd = −log10(Kd/1e9). Kernels: 2D similarities of
drugs; Smith-Waterman scores of targets, divided by the roots of their diagonals; both symmetrised,
negative eigenvalues set to zero.

    python benchmarks/relations_davis.py [--settings 1 2 3 4] [--without-lightgbm]

It reads ../shared/data/dti_davis seen from the project (``--data``), and stops where that is
absent.

Setting 1: pairs of known objects, the test fold that comes with the data. Settings 2 (new drugs),
3 (new targets) and 4 (both new): ``--folds`` random folds of the drugs, of the targets, or of both
at once (fold k of the drugs with fold k of the targets). Concordance is the part of all pairs of
test cells with different labels in the right order, mean over folds; then that of the targets of
one drug, mean over drugs and folds.

Models: regression with ``fit_offsets=True``, alpha chosen by ConditionalRankRLSCV with the same
structure held out from the training part; "without offset": the same with ``fit_offsets=False``;
"several kernels": similarities, "profile" and "identity" with weights chosen too. LightGBM learns
from the concatenated rows of both similarity matrices (the training objects' columns).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import concordance_index, conditional_scores

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "dti_davis"
STRUCTURES = {1: "edges", 2: "rows", 3: "columns", 4: "both"}
ALPHAS = 4.0 ** np.arange(-5, 4)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the matrices")
    parser.add_argument(
        "--settings", nargs="+", type=int, choices=(1, 2, 3, 4), default=[1, 2, 3, 4]
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-lightgbm", action="store_true")
    options = parser.parse_args(arguments)
    if not (options.data / "test_fold_setting1.txt.gz").exists():
        sys.exit(f"no data in {options.data}: nothing is measured (see --data)")
    K, G, Y = load(options.data)
    models = {
        "without offset": kernels("precomputed", fit_offsets=False),
        "one kernel": kernels("precomputed", fit_offsets=True),
        "several kernels": kernels(["precomputed", "profile", "identity"], fit_offsets=True),
    }
    if not options.without_lightgbm:
        models["LightGBM"] = lightgbm
    print("| setting | model | concordance | of targets for a drug | s |\n|---|---|---:|---:|---:|")
    for setting in options.settings:
        splits = test_parts(options.data, setting, Y.shape, options.folds, options.seed)
        for name, model in models.items():
            start = time.perf_counter()
            found = [evaluate(model, K, G, Y, setting, *split) for split in splits]
            seconds = time.perf_counter() - start
            whole, listwise = np.mean(found, axis=0)
            print(
                f"| {setting} | {name} | {whole:.4f} | {listwise:.4f} | {seconds:.0f} |", flush=True
            )


def load(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    def read(name: str) -> np.ndarray:
        with gzip.open(folder / name, "rt") as lines:
            return np.loadtxt(lines)

    K = read("drug-drug_similarities_2D.txt.gz")
    G = read("target-target_similarities_WS.txt.gz")
    size = np.sqrt(G.diagonal())
    affinities = read("drug-target_interaction_affinities_Kd__Davis_et_al.2011v1.txt.gz")
    return repaired(K), repaired(G / np.outer(size, size)), -np.log10(affinities / 1e9)


def repaired(S: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def test_parts(
    folder: Path, setting: int, shape: tuple[int, int], k: int, seed: int
) -> list[tuple[Any, Any]]:
    """Cells to learn from and to predict: (mask, mask), each of the shape of Y."""
    every = np.ones(shape, dtype=bool)
    if setting == 1:
        with gzip.open(folder / "test_fold_setting1.txt.gz", "rt") as lines:
            test = np.zeros(shape, dtype=bool)
            test.ravel()[json.load(lines)] = True
        return [(~test, test)]
    rng = np.random.default_rng(seed)
    rows, columns = (np.array_split(rng.permutation(n), k) for n in shape)
    parts = []
    for row, column in zip(rows, columns, strict=True):
        held = [np.zeros(n, dtype=bool) for n in shape]
        held[0][row], held[1][column] = setting != 3, setting != 2
        r, c = held[0][:, None], held[1]
        test = {2: r & every, 3: c & every, 4: r & c}[setting]
        parts.append((~(r | c), test))
    return parts


def evaluate(model: Any, K: Any, G: Any, Y: Any, setting: int, train: Any, test: Any) -> Any:
    """Concordance over all test cells, and its mean over drugs."""
    rows, cols = np.flatnonzero(train.any(axis=1)), np.flatnonzero(train.any(axis=0))
    asked = np.flatnonzero(test.any(axis=1)), np.flatnonzero(test.any(axis=0))
    labels = np.where(train, Y, np.nan)[np.ix_(rows, cols)]
    kernels = K[np.ix_(rows, rows)], G[np.ix_(cols, cols)]
    others = K[np.ix_(asked[0], rows)], G[np.ix_(asked[1], cols)]
    scores = model(*kernels, labels, *others, STRUCTURES[setting])
    expected = np.where(test, Y, np.nan)[np.ix_(*asked)]
    seen = ~np.isnan(expected)
    whole = float(concordance_index(expected[seen], scores[seen]))
    return whole, float(np.nanmean(conditional_scores(expected, scores)))


def kernels(kernel: Any, *, fit_offsets: bool) -> Any:
    def predict(K: Any, G: Any, labels: Any, left: Any, right: Any, structure: str) -> Any:
        ranker = ConditionalRankRLSCV(
            ALPHAS, kernel=kernel, loss="regression", fit_offsets=fit_offsets, cv=structure,
            random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the best alpha")
            warnings.filterwarnings("ignore", message="conjugate gradients")
            return ranker.fit(K, labels, G).predict(left, right)

    return predict


def lightgbm(K: Any, G: Any, labels: Any, left: Any, right: Any, structure: str) -> Any:
    from lightgbm import LGBMRegressor

    rows, cols = np.nonzero(~np.isnan(labels))
    model = LGBMRegressor(
        n_estimators=500, learning_rate=0.05, num_leaves=63, n_jobs=1, verbose=-1, random_state=0
    )
    model.fit(np.hstack([K[rows], G[cols]]), labels[rows, cols])
    shape = len(left), len(right)
    i, j = (part.ravel() for part in np.indices(shape))
    return model.predict(np.hstack([left[i], right[j]])).reshape(shape)


if __name__ == "__main__":
    main()
