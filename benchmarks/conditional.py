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
from scipy import sparse
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, print_table, seconds, the_clock

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls.core.linalg.conjugate_gradients import Iteration, IterationOptions

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
    """Iterations of ``solver="cg"`` beside the two matrix products K @ M @ G of the same size."""
    rng = np.random.default_rng(0)
    K, G = kernel(p, rng), kernel(p, rng)
    warnings.simplefilter("ignore", ConvergenceWarning)
    pairs = rng.permutation(p * p)
    million = rng.integers(p * p, size=p * p)
    cases = {
        f"{p * p:,} edges drawn at random": (million, 1.8),
        f"{95 * p * p // 100:,} different pairs": (pairs[: 95 * p * p // 100], 1.8),
        f"{p * p // 10:,} different pairs": (pairs[: p * p // 10], 1.8),
        f"{p * p // 100:,} different pairs": (pairs[: p * p // 100], 0.5),
    }
    for name, (flat, target) in cases.items():
        for order in ("shuffled", "sorted"):
            flat = np.sort(flat) if order == "sorted" else flat
            labels = rng.standard_normal(len(flat))
            Y = sparse.coo_array((labels, np.divmod(flat, p)), shape=(p, p))
            ours, product = _iterations(K, G, Y)
            title = f"incomplete {p}×{p}, {name}, {order}: an iteration"
            yield Row(title, ours, f"two GEMM({p})", product, target)


def _iterations(K: np.ndarray, G: np.ndarray, Y: sparse.coo_array) -> tuple[float, float]:
    """Median seconds of an iteration of a fit, and of K @ M @ G between the iterations."""
    ranker = ConditionalRankRLS(1e-3, kernel="precomputed")
    problem = ranker._problem(*ranker._prepare(K, Y, G))
    M = np.random.default_rng(0).standard_normal(Y.shape)
    iterations, products = [], []
    now = the_clock()
    last = None

    def watch(_: Iteration) -> None:
        nonlocal last
        if last is not None:
            iterations.append(now() - last)
        start = now()
        K @ M @ G
        last = now()
        products.append(last - start)

    options = IterationOptions(tol=1e-12, max_iter=40, callback=watch)
    problem.solve(np.array([ranker.alpha]), "cg", options)
    return float(np.median(iterations)), float(np.median(products))


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
