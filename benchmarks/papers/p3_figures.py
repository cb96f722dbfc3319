"""P3 Figures 1 and 2: error of validation rows by iteration, for several alphas, as numbers.

    python benchmarks/papers/p3_figures.py

The paper's data, parses and RCV1, are not at hand: 20-newsgroups and a sample of RCV1 as in
p3_selection.py. Conjugate gradients run for 200 iterations without stopping; alpha 0 is a run of
its own, the others come from one Krylov sequence.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from _common import parse, table
from p3_selection import Part, newsgroups, rcv1
from sklearn.exceptions import ConvergenceWarning

from rankrls import RankRLS, RankRLSCV

ALPHAS = 10.0 ** np.arange(-2, 4)
ITERATIONS = [1, 2, 5, 10, 20, 50, 100, 200]


def main() -> None:
    parse(__doc__)
    warnings.filterwarnings("ignore", "the best alpha")
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name, read in {"20-newsgroups": newsgroups, "RCV1, sample": rcv1}.items():
        train, held, _ = read()
        print(f"{name}: pairwise error of the validation rows\n")
        table(["alpha", *map(str, ITERATIONS)], rows(train, held))


def rows(train: Part, held: Part) -> Iterator[list[str]]:
    common = {"solver": "cg", "query_weighting": "size", "early_stopping": True, "tol": 1e-10}
    stop = {"max_iter": ITERATIONS[-1], "n_iter_no_change": ITERATIONS[-1]}
    models = [RankRLS(0.0, **common, **stop), RankRLSCV(ALPHAS, **common, **stop)]
    for model in models:
        model.fit(*train, eval_set=held)
        errors = model.validation_curve_.reshape(len(model.validation_iterations_), -1)
        for alpha, curve in zip(getattr(model, "alphas_", [0.0]), errors.T, strict=True):
            # The last check up to an iteration; a converged run keeps its error.
            known = ~np.isnan(curve)
            at = np.searchsorted(model.validation_iterations_[known], ITERATIONS, "right") - 1
            cells = [f"{curve[known][k]:.4f}" if k >= 0 else "" for k in at]
            yield [f"{alpha:g}", *cells]


if __name__ == "__main__":
    main()
