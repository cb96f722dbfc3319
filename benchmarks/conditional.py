"""Speed of conditional ranking: ratios against bare decompositions and products in one run.

Run as ``python benchmarks/conditional.py``; ``--memory`` trains on 25 million edges instead and
tells the peak of memory, ``--linear`` measures few features beside RLScore, if that is there,
``--incomplete`` the time to accurate predictions beside SciPy's conjugate gradients.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, print_table, seconds

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path

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
    """Time to predictions of all pairs within 1e-6, beside SciPy's CG with the vec trick."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((p, 20)), rng.standard_normal((p, 20))
    K, G = rbf_kernel(X), rbf_kernel(Z)
    truth = K @ rng.standard_normal((p, p)) @ G
    truth = truth / truth.std() + 0.5 * rng.standard_normal((p, p))
    for n_observed in (p * p // 100, 3 * p * p // 100, p * p // 10, 3 * p * p // 10):
        flat = np.sort(rng.permutation(p * p)[:n_observed])
        y = truth.ravel()[flat]
        Y = sparse.coo_array((y, np.divmod(flat, p)), shape=(p, p))
        for alpha in (1.0, 0.1):
            options = {"kernel": "precomputed", "loss": "regression", "max_iter": 1000}
            ranker = ConditionalRankRLS(alpha, **options)
            exact = ConditionalRankRLS(alpha, tol=1e-10, **options).fit(K, Y, G).predict(K, G)
            size = np.linalg.norm(exact)
            ours = seconds(lambda r=ranker, Y=Y: r.fit(K, Y, G).predict(K, G), 1)
            error = np.linalg.norm(ranker.predict(K, G) - exact) / size
            n_iter = _iterations_of_scipy(K, G, flat, y, alpha, exact)
            theirs = seconds(lambda a=alpha, f=flat, y=y, n=n_iter: _scipy_cg(K, G, f, y, a, n), 1)
            title = f"{n_observed:,} of {p * p:,} pairs, alpha {alpha:g}: {ranker.n_iter_} "
            title += f"iterations, error {error:.0e}"
            yield Row(title, ours, f"SciPy cg, {n_iter} iterations", theirs, 0.5)


def _scipy_cg(K, G, flat, y, alpha, n_iter, callback=None):  # type: ignore[no-untyped-def]
    """Predictions of all pairs after some iterations over the observed pairs."""
    p, g = len(K), len(G)

    def table(v):  # type: ignore[no-untyped-def]
        M = np.zeros(p * g)
        M[flat] = v
        return K @ M.reshape(p, g) @ G

    def product(v):  # type: ignore[no-untyped-def]
        return table(v).ravel()[flat] + alpha * v

    operator = LinearOperator((len(y), len(y)), product, dtype=float)
    watch = None if callback is None else lambda v: callback(table(v))
    return table(cg(operator, y, rtol=0.0, maxiter=n_iter, callback=watch)[0])


def _iterations_of_scipy(K, G, flat, y, alpha, exact):  # type: ignore[no-untyped-def]
    """How many iterations of SciPy's conjugate gradients leave an error of 1e-6."""
    count = 0
    size = np.linalg.norm(exact)

    def watch(F):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        if np.linalg.norm(F - exact) <= 1e-6 * size:
            raise StopIteration

    with suppress(StopIteration):
        _scipy_cg(K, G, flat, y, alpha, 2000, watch)
    return count


def linear_rows(sizes: tuple[int, ...] = (1000, 2000), edges: int = 10**6) -> Iterator[Row]:
    """Linear kernels of few features, beside RLScore; its predictions are the same."""
    if importlib.util.find_spec("rlscore") is None:
        return
    from rlscore.learner.cg_kron_rls import CGKronRLS
    from rlscore.learner.kron_rls import KronRLS

    rng = np.random.default_rng(0)
    ranker = ConditionalRankRLS(loss="regression")
    for p in sizes:
        for d in (5, 20):
            X, Z = rng.standard_normal((p, d)), rng.standard_normal((p, d))
            Y = rng.standard_normal((p, p))
            title = f"linear {p}×{p}, complete, {d} features a side"
            theirs = seconds(lambda X=X, Y=Y, Z=Z: KronRLS(X1=X, X2=Z, Y=Y, regparam=1.0), 7)
            yield Row(
                title, seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z), 7), "RLScore", theirs
            )
            model = KronRLS(X1=X, X2=Z, Y=Y, regparam=1.0)
            theirs += seconds(lambda X=X, Z=Z, m=model: m.predict(X, Z), 2)
            ours = seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z).predict(X, Z), 3)
            yield Row("… fit and predict", ours, "RLScore", theirs)
    for p, d in ((sizes[-1], 20), (sizes[-1], 50), (20 * sizes[0], 20)):
        X, Z = rng.standard_normal((p, d)), rng.standard_normal((p, d))
        i, j = np.divmod(np.unique(rng.integers(p * p, size=edges)), p)
        y = rng.standard_normal(len(i))
        Y = sparse.coo_array((y, (i, j)), shape=(p, p))
        known = {"label_row_inds": i, "label_col_inds": j, "regparam": 1.0, "maxiter": 100}
        theirs = seconds(lambda X=X, Z=Z, y=y, k=known: CGKronRLS(X1=X, X2=Z, Y=y, **k), 1)
        ours = seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z), 2)
        title = f"linear {p}×{p}, {len(i):,} edges, {d} features a side"
        yield Row(title, ours, "RLScore", theirs)


def weight_rows(p: int = 300) -> Iterator[Row]:
    """The weights of five kernels a side, beside one fit with fixed weights."""
    rng = np.random.default_rng(0)
    kernels = [[rbf_kernel(rng.standard_normal((p, 5))) for _ in range(5)] for _ in range(2)]
    Y = kernels[0][0] @ rng.standard_normal((p, p)) @ kernels[1][1] + rng.standard_normal((p, p))
    names = ["precomputed"] * 5
    one = ConditionalRankRLS(kernel=names, loss="regression")
    fit = seconds(lambda: one.fit(kernels[0], Y, kernels[1]), 3)
    search = ConditionalRankRLSCV([1.0], kernel=names, loss="regression", cv="rows", random_state=0)
    ours = seconds(lambda: search.fit(kernels[0], Y, kernels[1]), 1)
    yield Row(f"weights of five kernels a side, {p}×{p}", ours, "fit for fixed weights", fit, 20.0)


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
    yield from weight_rows(60 if quick else 300)
    yield from linear_rows((200, 300), 10**4) if quick else linear_rows()


if __name__ == "__main__":
    if "--memory" in sys.argv:
        memory()
    elif "--linear" in sys.argv:
        print_table(linear_rows())
    elif "--incomplete" in sys.argv:
        print_table(incomplete_rows())
    else:
        print_table(speed())
