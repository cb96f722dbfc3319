"""Large sparse data: cost of an iteration, of a grid of alphas, of pairs, and of a whole selection.

Run as ``python benchmarks/scale.py`` (some minutes and 3 GB of memory; ``--small`` leaves out the
full shape of RCV1). Data are generated, see ``text_data.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from text_data import RCV1_SHAPE, make_text
from timing import Row, print_table, seconds

from rankrls import RankRLS, RankRLSCV, regularization_path

ALPHAS = 2.0 ** np.arange(-10, 11)


def per_iteration(X: Any, **data: Any) -> float:
    """Seconds for one more iteration of conjugate gradients: a fit of 30 less a fit of 10."""

    def fit(n_iter: int) -> float:
        ranker = RankRLS(0.0, solver="cg", max_iter=n_iter, query_weighting="size")
        return seconds(lambda: ranker.fit(X, **data), 3)

    return (fit(30) - fit(10)) / 20


def per_run(run: Callable[[], Any], n: int = 20) -> float:
    """Seconds for one of ``n`` runs in a row: iterations come in a row, too."""
    return seconds(lambda: [run() for _ in range(n)], 3) / n


def score_rows(m: int = 200_000) -> Iterator[Row]:
    X, y = make_text(m)
    rng = np.random.default_rng(0)
    v, u = rng.standard_normal(X.shape[1]), rng.standard_normal(m)
    products = per_run(lambda: (X @ v, X.T @ u))
    qid = rng.permutation(np.repeat(np.arange(m // 100), 100))
    for name, q in (("one ranking", None), ("queries of 100, any order", qid)):
        ours = per_iteration(X, y=y, qid=q)
        yield Row(f"iteration, {m:,} rows, {name}", ours, "scipy X @ v + X.T @ u", products, 0.8)


def grid_rows(m: int = 50_000) -> Iterator[Row]:
    X, y = make_text(m)
    ranker = RankRLS(solver="cg", tol=1e-5, max_iter=500, query_weighting="size")
    single = seconds(lambda: ranker.set_params(alpha=ALPHAS[0]).fit(X, y), 2)
    path = seconds(lambda: regularization_path(ranker, X, y, alphas=ALPHAS), 2)
    yield Row("regularization_path, 21 alphas", path, "RankRLS.fit, smallest alpha", single, 1.6)


def random_pairs(y: np.ndarray, n_pairs: int) -> np.ndarray:
    """Pairs of a relevant and an irrelevant row."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.choice(np.flatnonzero(y == level), n_pairs) for level in (1, 0)])


def pair_rows(m: int = 20_000, n_pairs: int = 1_000_000) -> Iterator[Row]:
    X, y = make_text(m)
    pairs, rng = random_pairs(y, n_pairs), np.random.default_rng(0)
    L = sparse.coo_array((np.ones(n_pairs), tuple(pairs.T)), shape=(m, m)).tocsr()
    L = L + L.T
    v, u = rng.standard_normal(X.shape[1]), rng.standard_normal(m)
    products = per_run(lambda: (X @ v, X.T @ u, L @ u))
    ours = per_iteration(X, pairs=pairs)
    name = f"iteration, {n_pairs:,} pairs, {m:,} rows"
    yield Row(name, ours, "X @ v + X.T @ u + L @ u", products, 1.5)


class PeakMemory:
    """The largest resident set of the process while the ``with`` block runs, in bytes."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free must not hide what is used
        self.base = self.peak = self._now()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.peak = max(self.peak, self._now())

    @staticmethod
    def _now() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Test error, training and selection seconds of the paper (P3, Table 1), on RCV1 itself.
PUBLISHED = {
    "scores": {1: (0.01472, 352, 17186), 2: (0.01531, 65, 97), 3: (0.01473, 155, 2120)},
    "pairs": {1: (0.01530, 226, 15295), 2: (0.01621, 52, 78), 3: (0.01530, 94, 1695)},
}


def p3_methods(alphas: np.ndarray) -> dict[int, tuple[str, Any]]:
    """The three methods of P3 §4: name and ranker, to be fitted with an ``eval_set``."""
    tikhonov = {"solver": "cg", "tol": 1e-5, "max_iter": 500}
    return {
        1: (f"1 Tikhonov, {len(alphas)} alphas", RankRLSCV(alphas, **tikhonov)),
        2: ("2 early stopping, alpha 0", RankRLS(0.0, early_stopping=True)),
        3: ("3 both", RankRLSCV(alphas, solver="cg", early_stopping=True)),
    }


def selection_table(
    m: int = RCV1_SHAPE[0], n_validation: int = 8_149, n_test: int = 23_149
) -> None:
    """The three methods of P3 end to end, on generated data of RCV1's shape."""
    X, y = make_text(m + n_validation + n_test)
    test, held = (X[m + n_validation :], y[m + n_validation :]), slice(m, m + n_validation)
    eval_set = (X[held], y[held])
    X, y = X[:m], y[:m]
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(f"\n{m:,} × {X.shape[1]:,}, {X.nnz / m / X.shape[1]:.2%} filled, {size / 2**20:.0f} MiB")
    pairs = random_pairs(y, 10**6)
    header = (
        "",
        "error",
        "seconds",
        "iter.",
        "alpha",
        "memory",
        "P3: error",
        "training s",
        "selection s",
    )
    print("{:28} {:>8} {:>8} {:>6} {:>8} {:>9} {:>11} {:>11} {:>11}".format(*header))
    for kind in ("scores", "pairs"):
        for number, (name, ranker) in p3_methods(ALPHAS).items():
            fit = {"y": y} if kind == "scores" else {"pairs": pairs}
            ranker.set_params(query_weighting="size" if kind == "scores" else "pair")
            with PeakMemory() as memory, warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.filterwarnings("ignore", "the best alpha")
                start = time.perf_counter()
                ranker.fit(X, eval_set=eval_set, **fit)
                spent = time.perf_counter() - start
            error = 1 - ranker.score(*test)
            alpha = getattr(ranker, "alpha_", 0.0)
            beyond = f"+{(memory.peak - memory.base) / size:.2f} X"
            theirs = PUBLISHED[kind][number]
            print(
                f"{kind + ' ' + name:28} {error:8.5f} {spent:8.1f} {ranker.n_iter_:6d} "
                f"{alpha:8.4g} {beyond:>9} {theirs[0]:11.5f} {theirs[1]:11d} {theirs[2]:11d}",
                flush=True,
            )


def speed(quick: bool = False) -> Iterator[Row]:
    yield from score_rows(20_000 if quick else 200_000)
    yield from grid_rows(5_000 if quick else 50_000)
    yield from pair_rows(*((5_000, 100_000) if quick else ()))


if __name__ == "__main__":
    print_table(speed())
    if "--small" not in sys.argv:
        selection_table()
