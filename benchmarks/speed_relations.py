"""Rows of the speed table: relations between objects."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.metrics.pairwise import rbf_kernel
from timing import Row, seconds

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path

ALPHAS = 2.0 ** np.arange(-15, 16)


def relations(quick: bool) -> Iterator[Row]:
    warnings.simplefilter("ignore", UserWarning)
    yield from _incomplete(300 if quick else 1000)
    yield from _complete(300 if quick else 2000)
    yield from _choices(100 if quick else 500)
    yield from _weights(60 if quick else 300)
    if importlib.util.find_spec("rlscore") is not None:
        yield from _few_features((200, 300), 10**4) if quick else _few_features()


def _kernels(p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernel matrices of rows and of columns, and labels."""
    rng = np.random.default_rng(0)
    K, G = (rbf_kernel(rng.standard_normal((p, 20))) for _ in range(2))
    return K, G, rng.standard_normal((p, p))


def _complete(p: int) -> Iterator[Row]:
    K, G, Y = _kernels(p)
    decomposition, product = seconds(lambda: eigh(K, driver="evd"), 2), seconds(lambda: K @ G)
    bare = 4 * decomposition + 31 * 4 * product
    for name, options, labels, Z in (
        (f"complete {p}×{p}, ranking", {}, Y, G),
        (f"complete {p}×{p}, regression", {"loss": "regression"}, Y, G),
        ("  symmetric, ranking", {"relation": "symmetric"}, Y + Y.T, None),
        ("  reciprocal, ranking", {"relation": "reciprocal"}, Y - Y.T, None),
    ):
        ranker = ConditionalRankRLS(kernel="precomputed", **options)
        ours = seconds(
            lambda r=ranker, L=labels, Z=Z: regularization_path(r, K, L, Z=Z, alphas=ALPHAS), 1
        )
        yield Row(f"{name}, 31 alphas, all coefficients", ours, "4 eigh + 31 × 4 GEMM", bare, 1.0)
    ours = seconds(lambda: ConditionalRankRLS(kernel="precomputed").fit(K, Y, G), 1)
    yield Row("  one alpha", ours, f"2 eigh({p})", 2 * decomposition)


def _choices(p: int) -> Iterator[Row]:
    K, G, Y = _kernels(p)
    ranker = ConditionalRankRLS(kernel="precomputed")
    path = seconds(lambda: regularization_path(ranker, K, Y, Z=G, alphas=ALPHAS), 2)
    for cv in ("rows", "columns", "both", "edges"):
        chosen = ConditionalRankRLSCV(ALPHAS, kernel="precomputed", cv=cv, random_state=0)
        ours = seconds(lambda c=chosen: c.fit(K, Y, G), 1)
        yield Row(f"choose of 31 alphas by {cv}, {p}×{p}", ours, "fit for 31 alphas", path)


def _incomplete(p: int) -> Iterator[Row]:
    """Time to predictions of all pairs within 1e-6, beside SciPy's CG with the vec trick."""
    K, G, noise = _kernels(p)
    rng = np.random.default_rng(1)
    truth = K @ rng.standard_normal((p, p)) @ G
    truth = truth / truth.std() + 0.5 * noise
    for n_observed in (p * p // 100, 3 * p * p // 100, p * p // 10, 3 * p * p // 10):
        flat = np.sort(rng.permutation(p * p)[:n_observed])
        y = truth.ravel()[flat]
        Y = sparse.coo_array((y, np.divmod(flat, p)), shape=(p, p))
        for alpha in (1.0, 0.1):
            options = {"kernel": "precomputed", "loss": "regression", "max_iter": 1000}
            ranker = ConditionalRankRLS(alpha, **options)
            exact = ConditionalRankRLS(alpha, tol=1e-10, **options).fit(K, Y, G).predict(K, G)
            ours = seconds(lambda r=ranker, Y=Y: r.fit(K, Y, G).predict(K, G), 1)
            error = np.linalg.norm(ranker.predict(K, G) - exact) / np.linalg.norm(exact)
            n_iter = _iterations_of_scipy(K, G, flat, y, alpha, exact)
            theirs = seconds(lambda a=alpha, f=flat, y=y, n=n_iter: _scipy_cg(K, G, f, y, a, n), 1)
            title = f"{n_observed:,} of {p * p:,} pairs, alpha {alpha:g}: {ranker.n_iter_} "
            title += f"iterations, error {error:.0e}"
            yield Row(title, ours, f"SciPy cg, {n_iter} iterations", theirs, 0.5)


def _scipy_cg(
    K: np.ndarray,
    G: np.ndarray,
    flat: np.ndarray,
    y: np.ndarray,
    alpha: float,
    n_iter: int,
    callback: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Predictions of all pairs after some iterations over the observed pairs."""

    def predict(v: np.ndarray) -> np.ndarray:
        M = np.zeros(len(K) * len(G))
        M[flat] = v
        return K @ M.reshape(len(K), len(G)) @ G

    def product(v: np.ndarray) -> np.ndarray:
        return predict(v).ravel()[flat] + alpha * v

    operator = LinearOperator((len(y), len(y)), product, dtype=float)
    watch = None if callback is None else lambda v: callback(predict(v))
    return predict(cg(operator, y, rtol=0.0, maxiter=n_iter, callback=watch)[0])


def _iterations_of_scipy(K: Any, G: Any, flat: Any, y: Any, alpha: float, exact: Any) -> int:
    """How many iterations of SciPy's conjugate gradients leave an error of 1e-6."""
    count = 0

    def watch(F: np.ndarray) -> None:
        nonlocal count
        count += 1
        if np.linalg.norm(F - exact) <= 1e-6 * np.linalg.norm(exact):
            raise StopIteration

    with suppress(StopIteration):
        _scipy_cg(K, G, flat, y, alpha, 2000, watch)
    return count


def _weights(p: int) -> Iterator[Row]:
    """The weights of five kernels a side, beside one fit with fixed weights."""
    rng = np.random.default_rng(0)
    kernels = [[rbf_kernel(rng.standard_normal((p, 5))) for _ in range(5)] for _ in range(2)]
    Y = kernels[0][0] @ rng.standard_normal((p, p)) @ kernels[1][1] + rng.standard_normal((p, p))
    options = {"kernel": ["precomputed"] * 5, "loss": "regression"}
    fit = seconds(lambda: ConditionalRankRLS(**options).fit(kernels[0], Y, kernels[1]), 3)
    search = ConditionalRankRLSCV([1.0], cv="rows", random_state=0, **options)
    ours = seconds(lambda: search.fit(kernels[0], Y, kernels[1]), 1)
    yield Row(f"weights of five kernels a side, {p}×{p}", ours, "fit for fixed weights", fit, 20.0)


def _few_features(sizes: tuple[int, ...] = (1000, 2000), edges: int = 10**6) -> Iterator[Row]:
    """Linear kernels of few features, beside RLScore; its predictions are the same."""
    from rlscore.learner.cg_kron_rls import CGKronRLS
    from rlscore.learner.kron_rls import KronRLS

    rng = np.random.default_rng(0)
    ranker = ConditionalRankRLS(loss="regression")
    for p in sizes:
        for d in (5, 20):
            X, Z, Y = (rng.standard_normal(shape) for shape in ((p, d), (p, d), (p, p)))
            known = {"X1": X, "X2": Z, "Y": Y, "regparam": 1.0}
            theirs = seconds(lambda k=known: KronRLS(**k), 7)
            ours = seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z), 7)
            yield Row(f"linear {p}×{p}, complete, {d} features a side", ours, "RLScore", theirs)
            model = KronRLS(**known)
            theirs += seconds(lambda X=X, Z=Z, m=model: m.predict(X, Z), 2)
            ours = seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z).predict(X, Z), 3)
            yield Row("  fit and predict", ours, "RLScore", theirs)
    for p, d in ((sizes[-1], 20), (sizes[-1], 50), (20 * sizes[0], 20)):
        X, Z = rng.standard_normal((2, p, d))
        i, j = np.divmod(np.unique(rng.integers(p * p, size=edges)), p)
        y = rng.standard_normal(len(i))
        Y = sparse.coo_array((y, (i, j)), shape=(p, p))
        known = {"X1": X, "X2": Z, "Y": y, "label_row_inds": i, "label_col_inds": j}
        theirs = seconds(lambda k=known: CGKronRLS(regparam=1.0, maxiter=100, **k), 1)
        ours = seconds(lambda X=X, Y=Y, Z=Z: ranker.fit(X, Y, Z), 2)
        title = f"linear {p}×{p}, {len(i):,} edges, {d} features a side"
        yield Row(title, ours, "RLScore", theirs)
