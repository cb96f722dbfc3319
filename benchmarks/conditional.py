"""Speed of conditional ranking: ratios against bare decompositions and products in one run.

Run as ``python benchmarks/conditional.py``; ``--memory`` trains on 25 million edges instead and
tells the peak of memory.
"""

from __future__ import annotations

import resource
import sys
import warnings
from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, print_table, seconds

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.problem import RelationProblem, Stopping

ALPHAS = 2.0 ** np.arange(-15, 16)


def kernel(p: int, rng: np.random.Generator) -> np.ndarray:
    return rbf_kernel(rng.standard_normal((p, 20)))


def complete_rows(p: int = 2000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    K, G, Y = kernel(p, rng), kernel(p, rng), rng.standard_normal((p, p))
    decomposition = seconds(lambda: eigh(K, driver="evd"), 2)
    product = seconds(lambda: K @ G, 5)
    for loss in ("ranking", "regression"):
        ranker = ConditionalRankRLS(kernel="precomputed", loss=loss)
        ours = seconds(lambda r=ranker: regularization_path(r, K, Y, Z=G, alphas=ALPHAS), 1)
        yield Row(
            f"complete {p}×{p}, {loss}, 31 alphas, all coefficients",
            ours,
            "4 eigh + 31 × 4 GEMM",
            4 * decomposition + 31 * 4 * product,
            1.0,
        )
    ours = seconds(lambda: ConditionalRankRLS(kernel="precomputed").fit(K, Y, G), 1)
    yield Row("  one alpha", ours, f"2 eigh({p})", 2 * decomposition)
    S = Y + Y.T
    for relation, labels in (("symmetric", S), ("reciprocal", Y - Y.T)):
        ranker = ConditionalRankRLS(kernel="precomputed", relation=relation)
        ours = seconds(lambda r=ranker, L=labels: regularization_path(r, K, L, alphas=ALPHAS), 1)
        yield Row(
            f"  {relation}, ranking, 31 alphas",
            ours,
            "4 eigh + 31 × 4 GEMM",
            4 * decomposition + 31 * 4 * product,
            1.0,
        )


def holdout_rows(p: int = 500) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    K, G, Y = kernel(p, rng), kernel(p, rng), rng.standard_normal((p, p))
    reference = "fit for 31 alphas"
    ranker = ConditionalRankRLS(kernel="precomputed")
    path = seconds(lambda: regularization_path(ranker, K, Y, Z=G, alphas=ALPHAS), 2)
    warnings.simplefilter("ignore", UserWarning)
    for cv in ("rows", "columns", "both", "edges"):
        chosen = ConditionalRankRLSCV(ALPHAS, kernel="precomputed", cv=cv, random_state=0)
        ours = seconds(lambda c=chosen: c.fit(K, Y, G), 1)
        yield Row(f"choose of 31 alphas by {cv}, {p}×{p}", ours, reference, path)


def incomplete_rows(p: int = 1000) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    K, G = kernel(p, rng), kernel(p, rng)
    M = rng.standard_normal((p, p))
    product = seconds(lambda: K @ M @ G, 7)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for n_edges, target in ((10**6, 2.0), (10**5, 2.0), (10**4, 0.5)):
        rows, cols = rng.integers(p, size=(2, n_edges))
        y = rng.standard_normal(n_edges)
        problem = RelationProblem(K, G, Observations(rows, cols, y, (p, p)), ranking=True)
        _ = problem.observations.cells  # sorted before

        def run(n: int, problem: RelationProblem = problem) -> float:
            stopping = Stopping(max_iter=n, tol=1e-300)
            return seconds(lambda: problem.solve(np.array([1e-6]), "cg", stopping), 3)

        few, many = (5, 45) if n_edges > 10**4 else (10, 210)
        ours = (run(many) - run(few)) / (many - few)
        name = f"incomplete {p}×{p}, {n_edges:,} edges, an iteration"
        yield Row(name, ours, f"two GEMM({p})", product, target)


def memory(p: int = 5000) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((p, 100))
    labels = rng.integers(0, 20, p)
    Y = (labels[:, None] == labels).astype(float)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    took = seconds(lambda: ConditionalRankRLS(kernel="rbf").fit(X, Y), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{p * p:,} edges: {took:.1f} s, {peak:.2f} GiB at the peak ({before:.2f} with the data)")


def speed(quick: bool = False) -> Iterator[Row]:
    yield from incomplete_rows(300 if quick else 1000)
    yield from complete_rows(300 if quick else 2000)
    yield from holdout_rows(100 if quick else 500)


if __name__ == "__main__":
    if "--memory" in sys.argv:
        memory()
    else:
        print_table(speed())
