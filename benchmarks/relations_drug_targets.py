"""Drug-target interactions: rankings of targets for drugs, known and new, and the reverse.

Two kinds of objects, each given by a similarity matrix, and a complete relation of ones (known
interactions) and zeros (all other pairs) between them. Data: the gold standard of Yamanishi et al.
(2008), nuclear receptors (NR, 54 drugs × 26 targets) and G-protein coupled receptors (GPCR,
223 × 95).

    python benchmarks/relations_drug_targets.py

It reads {nr,gpcr}_{admat_dgc,simmat_dc,simmat_dg}.txt.gz from ``--data``, by default
../shared/data/dti_yamanishi seen from the project (docs/data.md), and stops where that is absent.

A model ranks the targets for a drug: setting 1 among pairs of known objects that it has not seen,
setting 2 for drugs that it has not seen, setting 3 for known drugs among targets that it has not
seen, setting 4 both at once. ``--condition-on targets`` swaps the parts. Folds: pairs, rows
(drugs), columns (targets) or both are assigned at random to ``--folds``;
setting 4 tests every fold of rows with every fold of columns, with a model that knows neither.
alpha is chosen on the training part by ConditionalRankRLSCV with the same structure held out
(cv="edges", "rows", "columns", "both"). A drug's accuracy is the part of the pairs (target that
interacts, one that does not) of a test fold in the right order, ½ for ties; its folds are averaged,
then the drugs that have one. All is repeated with ``--repeats`` random folds; ± is the standard
deviation of the repeats.

Choices: similarities of drugs (SIMCOMP) are symmetrised, (S + Sᵀ)/2, and of targets
(Smith-Waterman) too; negative eigenvalues are set to zero; no scaling. "several kernels" is
regression with an offset for all pairs and the kernels "profile" (training interactions) and
"identity" beside the similarities, with weights chosen by cross-validation. Kernels of test objects
are taken from the same repaired matrices, which uses no label. Zeros are pairs not known to
interact, not pairs known not to.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import conditional_scores

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "dti_yamanishi"
SETTINGS = {1: "edges", 2: "rows", 3: "columns", 4: "both"}
MODELS: dict[str, dict[str, Any]] = {
    "ranking": {"loss": "ranking"},
    "regression": {"loss": "regression"},
    "several kernels": {
        "loss": "regression",
        "kernel": ["precomputed", "profile", "identity"],
        "fit_offsets": True,
    },
}
ALPHAS = 2.0 ** np.arange(-12, 13, 2)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the matrices")
    parser.add_argument("--sets", nargs="+", choices=("nr", "gpcr"), default=["nr", "gpcr"])
    parser.add_argument("--condition-on", choices=("drugs", "targets"), default="drugs")
    parser.add_argument("--folds", type=int, default=5, help="of rows, of columns, of each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not (options.data / "nr_admat_dgc.txt.gz").exists():
        sys.exit(f"no drug-target data in {options.data}: nothing is measured (see --data)")

    objects = ["drugs", "targets"]
    if options.condition_on == "targets":
        objects.reverse()
    data = {name: load(options.data, name, options.condition_on) for name in options.sets}
    print(f"\nAccuracy of rankings of {objects[1]} for {objects[0]}\n")
    names = " | ".join(MODELS)
    print(f"| data | setting | {names} | s |\n|---|---|---:|---:|---:|---:|", flush=True)
    for name, (K, G, Y) in data.items():
        for setting in SETTINGS:
            start = time.perf_counter()
            values = {
                name: [
                    held_out_accuracy(K, G, Y, setting, model, options.folds, options.seed + i)
                    for i in range(options.repeats)
                ]
                for name, model in MODELS.items()
            }
            seconds = time.perf_counter() - start
            cells = [f"{np.mean(v):.3f} ± {np.std(v):.3f}" for v in values.values()]
            line = f"| {name.upper()} | {setting} | {' | '.join(cells)} | {seconds:.0f} |"
            print(line, flush=True)


def load(folder: Path, name: str, condition_on: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernels of the conditioning and the ranked objects, and the relation between them."""
    Y = read(folder / f"{name}_admat_dgc.txt.gz")  # targets × drugs
    drugs = repaired(read(folder / f"{name}_simmat_dc.txt.gz"), f"{name.upper()} drugs")
    targets = repaired(read(folder / f"{name}_simmat_dg.txt.gz"), f"{name.upper()} targets")
    return (drugs, targets, Y.T) if condition_on == "drugs" else (targets, drugs, Y)


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


def held_out_accuracy(
    K: np.ndarray,
    G: np.ndarray,
    Y: np.ndarray,
    setting: int,
    model: dict[str, Any],
    k: int,
    seed: int,
) -> float:
    """Accuracy per conditioning object (row of Y), over those that have one."""
    rng = np.random.default_rng(seed)
    rows, columns = (np.array_split(rng.permutation(n), k) for n in Y.shape)
    every_row, every_column = (np.arange(n) for n in Y.shape)
    cell_fold = rng.integers(k, size=Y.shape)
    tested: list[tuple[np.ndarray, np.ndarray]] = {
        1: [(every_row, every_column)] * k,
        2: [(fold, every_column) for fold in rows],
        3: [(every_row, fold) for fold in columns],
        4: list(itertools.product(rows, columns)),
    }[setting]
    found = np.full((len(tested), len(Y)), np.nan)  # of each fold, for each conditioning object
    for number, (test_rows, test_columns) in enumerate(tested):
        R = np.setdiff1d(every_row, test_rows) if setting in (2, 4) else every_row
        C = np.setdiff1d(every_column, test_columns) if setting in (3, 4) else every_column
        hidden = (cell_fold == number) & (setting == 1)
        options = {"kernel": "precomputed"} | model
        ranker = ConditionalRankRLSCV(ALPHAS, cv=SETTINGS[setting], random_state=seed, **options)
        with warnings.catch_warnings():
            # Few interactions: in some folds the ends of the grid are as good as any.
            warnings.filterwarnings("ignore", message="the best alpha")
            warnings.filterwarnings("ignore", message="conjugate gradients")
            labels = np.where(hidden, np.nan, Y)[np.ix_(R, C)]
            ranker.fit(K[np.ix_(R, R)], labels, G[np.ix_(C, C)])
        scores = ranker.predict(K[np.ix_(test_rows, R)], G[np.ix_(test_columns, C)])
        labels = Y if setting != 1 else np.where(hidden, Y, np.nan)
        labels = labels[np.ix_(test_rows, test_columns)]
        found[number, test_rows] = conditional_scores(labels, scores)
    defined = ~np.isnan(found)
    n_lists = defined.sum(axis=0)
    totals = np.where(defined, found, 0.0).sum(axis=0)
    return float((totals[n_lists > 0] / n_lists[n_lists > 0]).mean())


if __name__ == "__main__":
    main()
