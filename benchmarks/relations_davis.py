"""Drug-target affinities of kinases (Davis et al. 2011): known and new drugs and targets.

68 drugs × 442 targets, a complete relation of pKd = −log10(Kd/1e9). Kernels: 2D similarities of
drugs; Smith-Waterman scores of targets, divided by the roots of their diagonals; both symmetrised,
negative eigenvalues set to zero.

    python benchmarks/relations_davis.py [--settings 1 2 3 4] [--without-lightgbm] [--quick]

It reads dti_davis in the folder RANKRLS_DATA (``--data``), and stops where that is
absent. Models and settings: relations_settings.py.

Setting 1: pairs of known objects, each of the six folds of cells that come with the data (the first
is the published test fold, the others its training folds). Settings 2 (new drugs), 3 (new targets)
and 4 (both new): ``--folds`` random folds of the drugs, of the targets, or of both at once (fold k
of the drugs with fold k of the targets). "concordance" is the part of all pairs of test cells with
different labels in the right order, mean over folds; "for a drug" that of the targets of one drug,
mean over drugs and folds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

import numpy as np
from relations_settings import (
    Splits,
    add_options,
    chosen_models,
    concordance,
    object_splits,
    print_settings,
)
from timing import DATA

from rankrls.metrics import conditional_scores


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA / "dti_davis", help="folder of the matrices"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    options = parser.parse_args(arguments)
    if not (options.data / "test_fold_setting1.txt.gz").exists():
        sys.exit(f"no data in {options.data}: nothing is measured (see --data)")
    data = load(options.data)
    shape = data[2].shape

    def splits(setting: int) -> list[tuple[int, Splits]]:
        if setting == 1:
            return [(options.seed, published_folds(options.data, shape))]
        return [(options.seed, object_splits(shape, setting, options.folds, options.seed))]

    print_settings("Davis", data, splits, metrics, chosen_models(options, "regression"), options)


def metrics(expected: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    seen = ~np.isnan(expected)
    return {
        "concordance": concordance(expected[seen], scores[seen]),
        "squared error": float(np.mean((expected[seen] - scores[seen]) ** 2)),
        "for a drug": float(np.nanmean(conditional_scores(expected, scores))),
    }


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


def published_folds(folder: Path, shape: tuple[int, int]) -> Splits:
    """The published test fold of cells, and then each of the training folds as one."""

    def read(name: str) -> list:
        with gzip.open(folder / name, "rt") as lines:
            return json.load(lines)

    tested = [read("test_fold_setting1.txt.gz"), *read("train_fold_setting1.txt.gz")]
    splits = []
    for cells in tested:
        test = np.zeros(shape, dtype=bool)
        test.ravel()[cells] = True
        splits.append((~test, test))
    return splits


if __name__ == "__main__":
    main()
