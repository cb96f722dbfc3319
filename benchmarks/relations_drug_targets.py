"""Drug-target interactions: known and new drugs and targets (Yamanishi et al. 2008).

Two kinds of objects, each given by a similarity matrix, and a complete relation of ones (known
interactions) and zeros (all other pairs) between them: nuclear receptors (NR, 54 drugs ×
26 targets) and G-protein coupled receptors (GPCR, 223 × 95).

    python benchmarks/relations_drug_targets.py [--settings 1 2 3 4] [--without-lightgbm] [--quick]

It reads {nr,gpcr}_{admat_dgc,simmat_dc,simmat_dg}.txt.gz from ``--data``, by default
dti_yamanishi in the folder RANKRLS_DATA (docs/data.md), and stops where that is absent.
Models and settings: relations_settings.py.

Folds: five of cells, of drugs or of targets at random in settings 1, 2 and 3; in setting 4 each of
three folds of the drugs with each of three folds of the targets, tested with a model that knows
neither. All is repeated with ``--seeds`` random folds; ± is the standard deviation over seeds,
which share the data. AUC and AUPR (average precision) are those of all cells of a test fold; "for a
drug" is the part of the pairs (target that interacts, one that does not) of one drug and test fold
in the right order, ½ for ties, mean over drugs that have such pairs.

Choices: zeros are pairs not known to interact, which are taken as negatives in training and in
tests. Similarities of drugs (SIMCOMP) are symmetrised, (S + Sᵀ)/2, and of targets
(Smith-Waterman) too; negative eigenvalues are set to zero; no scaling. Kernels of test objects
are taken from the same repaired matrices, which uses no label. LightGBM minimises the log loss.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from pathlib import Path

import numpy as np
from relations_settings import (
    Splits,
    add_options,
    chosen_models,
    object_splits,
    print_settings,
)
from sklearn.metrics import average_precision_score, roc_auc_score
from timing import DATA

from rankrls.metrics import conditional_scores


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA / "dti_yamanishi", help="folder of the matrices"
    )
    parser.add_argument("--sets", nargs="+", choices=("nr", "gpcr"), default=["nr", "gpcr"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add_options(parser)
    options = parser.parse_args(arguments)
    if not (options.data / "nr_admat_dgc.txt.gz").exists():
        sys.exit(f"no drug-target data in {options.data}: nothing is measured (see --data)")
    for name in options.sets:
        data = load(options.data, name)
        shape = data[2].shape

        def splits(setting: int, shape: tuple[int, int] = shape) -> list[tuple[int, Splits]]:
            k = 3 if setting == 4 else 5
            return [
                (seed, object_splits(shape, setting, k, seed, crossed=True))
                for seed in options.seeds
            ]

        models = chosen_models(options, "binary")
        print_settings(name.upper(), data, splits, metrics, models, options)


def metrics(expected: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    seen = ~np.isnan(expected)
    y, s = expected[seen], scores[seen]
    whole = {"AUC": np.nan, "AUPR": np.nan}
    if 0 < y.sum() < len(y):
        whole = {"AUC": float(roc_auc_score(y, s)), "AUPR": float(average_precision_score(y, s))}
    return whole | {"for a drug": float(np.nanmean(conditional_scores(expected, scores)))}


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernels of drugs and of targets, and the relation between them."""
    Y = read(folder / f"{name}_admat_dgc.txt.gz")  # targets × drugs
    drugs = repaired(read(folder / f"{name}_simmat_dc.txt.gz"), f"{name.upper()} drugs")
    targets = repaired(read(folder / f"{name}_simmat_dg.txt.gz"), f"{name.upper()} targets")
    return drugs, targets, Y.T


def read(path: Path) -> np.ndarray:
    with gzip.open(path, "rt") as lines:
        width = len(next(lines).split())
        return np.loadtxt(lines, usecols=range(1, width + 1))


def repaired(S: np.ndarray, name: str) -> np.ndarray:
    """The symmetric part of S without its negative eigenvalues."""
    asymmetry = np.abs(S - S.T).max()
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    negative = int((values < -1e-10 * values[-1]).sum())
    print(
        f"{name}: {len(S)}, differs from its transpose by up to {asymmetry:.2g}; {negative} "
        f"negative eigenvalues set to 0 (smallest {values[0]:.2g}, largest {values[-1]:.3g})"
    )
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


if __name__ == "__main__":
    main()
