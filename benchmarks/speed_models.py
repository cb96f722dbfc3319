"""Rows of the speed table: training, metrics, hold-outs, judgements, sparse data, kernels."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.stats import kendalltau
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from speed_files import process
from text_data import make_text
from timing import Row, compare, seconds

from rankrls import GreedyRankRLS, RankRLS, RankRLSCV, RankSVM, regularization_path
from rankrls.graph_kernels import (
    AllPathsGraphFeatures,
    Dependency,
    LabelledGraph,
    Token,
    sentence_graph,
)
from rankrls.metrics import pairwise_error
from rankrls.model_selection import (
    leave_pair_out_score,
    leave_query_out_predict,
    permutation_test,
)

ALPHAS = 2.0 ** np.arange(-15, 16)
RLSCORE = importlib.util.find_spec("rlscore") is not None
RBF = RankRLS(kernel="rbf")


def data(m: int, n: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, real-valued labels and five grades."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, n)), rng.standard_normal(m), rng.integers(0, 5, m)


def training(quick: bool) -> Iterator[Row]:
    m = 20_000 if quick else 100_000
    X, y, graded = data(m)
    qid = np.arange(m) // 100
    order = np.random.default_rng(0).permutation(m)
    shuffled = X[order], y[order]
    product = seconds(lambda: X.T @ X, 15)
    for name, run, target in (
        (f"linear {m}×50, queries of 100", lambda: RankRLS().fit(X, y, qid=qid), 4.0),
        (
            "  the same, rows in random order",
            lambda: RankRLS().fit(*shuffled, qid=qid[order]),
            None,
        ),
        (
            "  the same, unit cost, 5 levels",
            lambda: RankRLS(cost="unit").fit(X, graded, qid=qid),
            None,
        ),
        ("  the same, one query", lambda: RankRLS().fit(X, y), None),
    ):
        yield Row(name, seconds(run, 7), "X.T @ X", product, target)
    if RLSCORE:
        yield from _rlscore_rows(X, y, qid, (1000,) if quick else (1000, 2000, 4000))

    m = 1000 if quick else 4000
    X, y, graded = data(m)
    K, qid = rbf_kernel(X), np.arange(m) // 10
    ridge = seconds(lambda: KernelRidge(kernel="rbf").fit(X, y), 3)
    unit = RankRLS(kernel="rbf", cost="unit")
    for name, run in (
        (f"RBF {m}×50, one alpha", lambda: RBF.fit(X, y)),
        ("  the same, queries of 10", lambda: RBF.fit(X, y, qid=qid)),
        ("  the same, unit cost, 5 levels", lambda: unit.fit(X, graded)),
    ):
        yield Row(name, seconds(run, 3), "KernelRidge.fit", ridge, 1.5)
    yield compare(
        f"RBF {m}×50, 31 alphas, all coefficients",
        lambda: regularization_path(RBF, X, y, alphas=ALPHAS),
        f"scipy.linalg.eigh({m})",
        lambda: eigh(K),
        1.3,
        repeats=1,
    )

    m, r = (3000, 300) if quick else (10_000, 1000)
    X, y, _ = data(m)
    basis = np.random.default_rng(0).choice(m, r, replace=False)

    def bare() -> None:
        block = rbf_kernel(X, X[basis])
        eigh(block.T @ block)

    ranker = RankRLS(kernel="rbf", basis=basis)
    yield compare(
        f"Nyström {m}×50, {r} basis vectors, 31 alphas",
        lambda: regularization_path(ranker, X, y, alphas=ALPHAS),
        f"kernel block + Gram + eigh({r})",
        bare,
        1.5,
        repeats=3,
    )
    ours, theirs = (
        process(sys.executable, "-c", code, repeats=5)[0]
        for code in ("from rankrls import RankRLS", "import sklearn.linear_model")
    )
    name, reference = "from rankrls import RankRLS", "import sklearn.linear_model"
    yield Row(name, ours, reference, theirs, 1.3)


def _rlscore_rows(X: Any, y: Any, qid: Any, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Rankers of RLScore, which has to be built from its repository."""
    from rlscore.learner import GlobalRankRLS, QueryRankRLS

    yield compare(
        f"linear {len(X)}×50, queries of 100",
        lambda: RankRLS().fit(X, y, qid=qid),
        "RLScore QueryRankRLS",
        lambda: QueryRankRLS(X, y, qid, regparam=1.0),
        repeats=3,
    )
    gaussian = {"kernel": "GaussianKernel", "gamma": 1 / 50, "regparam": 1.0}
    for size in sizes:
        A, b, q = X[:size], y[:size], np.arange(size) // 10
        yield compare(
            f"RBF {size}×50, one ranking",
            lambda A=A, b=b: RBF.fit(A, b),
            "RLScore GlobalRankRLS",
            lambda A=A, b=b: GlobalRankRLS(A, b, **gaussian),
            repeats=1,
        )
        yield compare(
            f"RBF {size}×50, queries of 10",
            lambda A=A, b=b, q=q: RBF.fit(A, b, qid=q),
            "RLScore QueryRankRLS",
            lambda A=A, b=b, q=q: QueryRankRLS(A, b, q, **gaussian),
            repeats=1,
        )


def metrics(quick: bool) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    for m in (10**4, 10**5) if quick else (10**6, 10**7):
        y, score = rng.normal(size=(2, m))
        graded, qid = rng.integers(0, 6, m).astype(float), rng.integers(0, m // 10, m)
        for kind, labels in (("continuous", y), ("6 levels", graded)):
            yield compare(
                f"pairwise_error, {m:,} rows, {kind}",
                lambda labels=labels, f=score: pairwise_error(labels, f),
                "scipy.stats.kendalltau",
                lambda labels=labels, f=score: kendalltau(labels, f),
                2.0,
            )
            yield compare(
                f"  the same in {m // 10:,} queries",
                lambda labels=labels, f=score, q=qid: pairwise_error(labels, f, qid=q),
                "np.lexsort((score, qid))",
                lambda f=score, q=qid: np.lexsort((f, q)),
                4.0,
            )


def selection(quick: bool) -> Iterator[Row]:
    m = 500 if quick else 2000
    X, y, _ = data(m)
    K = rbf_kernel(X)
    decomposition = seconds(lambda: eigh(K), 2)
    one = seconds(lambda: leave_pair_out_score(RBF, X, y), 2)
    name = f"leave-pair-out, RBF {m}, all pairs, one alpha"
    yield Row(name, one, f"eigh({m})", decomposition, 1.7)
    search = RankRLSCV(ALPHAS, kernel="rbf", cv="leave-pair-out")
    path = seconds(lambda: search.fit(X, y), 1)
    yield Row("  RankRLSCV, 31 alphas", path, f"eigh({m})", decomposition, 8)

    m = 1000 if quick else 4000
    X, y, _ = data(m)
    K, qid = rbf_kernel(X), np.arange(m) // 10
    decomposition = seconds(lambda: eigh(K), 1)
    held = seconds(lambda: leave_query_out_predict(RBF, X, y, qid=qid, alphas=ALPHAS), 1)
    name = f"leave-query-out, RBF {m}, {m // 10} queries, 31 alphas"
    yield Row(name, held, f"eigh({m})", decomposition, 2.5)
    chosen = seconds(lambda: RankRLSCV(ALPHAS, kernel="rbf").fit(X, y, qid=qid), 1)
    yield Row(f"RankRLSCV, RBF {m}, 31 alphas", chosen, "leave_query_out_predict", held, 1.1)

    m = 20_000 if quick else 100_000
    X, y, _ = data(m)
    rng, n_queries = np.random.default_rng(0), m // 100
    sizes = rng.multinomial(m - 20 * n_queries, np.ones(n_queries) / n_queries) + 20
    product = seconds(lambda: X.T @ X, 15)
    for name, qid in (
        ("queries of 100", np.arange(m) // 100),
        ("unequal queries", np.repeat(np.arange(n_queries), sizes)),
    ):
        ours = seconds(
            lambda q=qid: leave_query_out_predict(RankRLS(), X, y, qid=q, alphas=ALPHAS), 3
        )
        yield Row(f"leave-query-out, {m}×50, {name}, 31 alphas", ours, "X.T @ X", product, 100)

    m, n, n_queries = (1000, 400, 60) if quick else (8230, 3009, 480)
    A = sparse.random_array((m, n), density=0.01, rng=rng, format="csr")
    y = np.asarray(A @ rng.standard_normal(n)) + 0.1 * rng.standard_normal(m)
    qid = np.sort(rng.integers(0, n_queries, m))
    primal = RankRLS(solver="primal")
    yield compare(
        f"RankRLSCV, sparse {m}×{n}, {n_queries} queries, 31 alphas",
        lambda: RankRLSCV(ALPHAS).fit(A, y, qid=qid),
        "RankRLS path, with its eigendecomposition",
        lambda: regularization_path(primal, A, y, qid=qid, alphas=ALPHAS),
        3,
        repeats=1,
    )
    X, y, _ = data(200, 10)
    yield compare(
        "permutation_test, m=200, 1000 permutations",
        lambda: permutation_test(RankRLS(), X, y, random_state=0),
        "leave_pair_out_score",
        lambda: leave_pair_out_score(RankRLS(), X, y),
        60,
    )


def _random_pairs(n_pairs: int, m: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    first = rng.integers(0, m, n_pairs)
    return np.column_stack([first, (first + rng.integers(1, m, n_pairs)) % m])


def judgements(quick: bool) -> Iterator[Row]:
    """RankRLSCV of given pairs beside one fit (features) and one eigendecomposition (kernel)."""
    m, n, n_pairs, n_groups = (2_000, 50, 50_000, 100) if quick else (20_000, 200, 10**6, 1_000)
    X, pairs = data(m, n)[0], _random_pairs(n_pairs, m)
    groups = np.random.default_rng(1).integers(0, n_groups, n_pairs)
    fit = seconds(lambda: RankRLS().fit(X, pairs=pairs), 3)
    for scoring in ("pairwise_accuracy", "log_loss"):
        ranker = RankRLSCV(ALPHAS, scoring=scoring)
        for by, g, target in (("judgement", None, 4.0), (f"{n_groups} groups", groups, 8.0)):
            ours = seconds(lambda r=ranker, g=g: r.fit(X, pairs=pairs, groups=g), 1)
            name = f"by {by}, {scoring}, {n_pairs:,} pairs, {m}×{n}, 31 alphas"
            yield Row(name, ours, "RankRLS.fit", fit, target)
    m, n_pairs = (500, 5_000) if quick else (3_000, 100_000)
    X, pairs = data(m, 20)[0], _random_pairs(n_pairs, m)
    K = rbf_kernel(X)
    decomposition = seconds(lambda: eigh(K), 2)
    for scoring in ("pairwise_accuracy", "log_loss"):
        ranker = RankRLSCV(ALPHAS, kernel="rbf", scoring=scoring)
        ours = seconds(lambda r=ranker: r.fit(X, pairs=pairs), 1)
        name = f"by judgement, {scoring}, RBF {m}, {n_pairs:,} pairs, 31 alphas"
        yield Row(name, ours, f"eigh({m})", decomposition, 2.0)


def greedy(quick: bool) -> Iterator[Row]:
    """Beside RLScore's GreedyRLS: leave-one-out ridge regression, the nearest to one ranking."""
    m, n, k = (300, 500, 10) if quick else (1000, 2000, 20)
    X, noise, _ = data(m, n)
    y = X[:, :5].sum(axis=1) + noise
    S = X @ X.T
    references: dict[str, tuple[Any, float | None]] = {f"eigh({m})": (lambda: eigh(S), None)}
    if RLSCORE:
        from rlscore.learner import GreedyRLS

        learn = lambda: GreedyRLS(X, y, subsetsize=k, regparam=1.0)  # noqa: E731
        references["RLScore GreedyRLS"] = (learn, 1.0)
    one = GreedyRankRLS(k, query_weighting="size")
    for name, run in (
        ("queries of 10", lambda: GreedyRankRLS(k).fit(X, y, qid=np.arange(m) // 10)),
        ("one ranking", lambda: one.fit(X, y)),
    ):
        for reference, (other, target) in references.items():
            title = f"{k} of {n} features, {m} rows, {name}"
            yield compare(title, run, reference, other, target)


def _per_iteration(X: Any, **labels: Any) -> float:
    """Seconds for one more iteration of conjugate gradients: a fit of 30 less a fit of 10."""
    ranker = RankRLS(0.0, solver="cg", query_weighting="size")
    took = [
        seconds(lambda k=k: ranker.set_params(max_iter=k).fit(X, **labels), 3) for k in (30, 10)
    ]
    return (took[0] - took[1]) / 20


def _in_a_row(run: Callable[[], Any], n: int = 20) -> float:
    """Seconds for one of ``n`` runs in a row: iterations come in a row, too."""
    return seconds(lambda: [run() for _ in range(n)], 3) / n


def sparse_text(quick: bool) -> Iterator[Row]:
    """An iteration beside the bare products, and a grid of alphas, on data of RCV1's kind."""
    rng = np.random.default_rng(0)
    m = 20_000 if quick else 200_000
    X, y = make_text(m)
    v, u = rng.standard_normal(X.shape[1]), rng.standard_normal(m)
    products = _in_a_row(lambda: (X @ v, X.T @ u))
    qid = rng.permutation(np.repeat(np.arange(m // 100), 100))
    for name, q in (("one ranking", None), ("queries of 100, any order", qid)):
        ours = _per_iteration(X, y=y, qid=q)
        yield Row(f"iteration, {m:,} rows, {name}", ours, "scipy X @ v + X.T @ u", products)

    X, y = make_text(5_000 if quick else 50_000)
    ranker = RankRLS(2.0**-10, solver="cg", tol=1e-5, max_iter=500, query_weighting="size")
    yield compare(
        "regularization_path, 21 alphas",
        lambda: regularization_path(ranker, X, y, alphas=2.0 ** np.arange(-10, 11)),
        "RankRLS.fit, smallest alpha",
        lambda: ranker.fit(X, y),
        1.6,
        repeats=2,
    )
    m, n_pairs = (5_000, 100_000) if quick else (20_000, 10**6)
    X, y = make_text(m)
    pairs = np.column_stack([rng.choice(np.flatnonzero(y == level), n_pairs) for level in (1, 0)])
    half = sparse.coo_array((np.ones(n_pairs), tuple(pairs.T)), shape=(m, m)).tocsr()
    L, u = half + half.T, rng.standard_normal(m)
    products = _in_a_row(lambda: (X @ v, X.T @ u, L @ u))
    name = f"iteration, {n_pairs:,} pairs, {m:,} rows"
    yield Row(name, _per_iteration(X, pairs=pairs), "X @ v + X.T @ u + L @ u", products, 1.5)


def ranksvm(quick: bool) -> Iterator[Row]:
    m = 16_000 if quick else 128_000
    X, noise, _ = data(m, 20)
    y = X @ np.random.default_rng(1).standard_normal(20) + noise
    ranker = RankSVM(tol=1e-3).fit(X, y)
    yield compare(
        f"fit {m:,} × 20, gap {ranker.gap_:.0e}",
        lambda: ranker.fit(X, y),
        "np.argsort(kind='stable')",
        lambda: np.argsort(noise, kind="stable"),
        400,
        repeats=2,
    )
    m = 500 if quick else 2000
    X, noise, _ = data(m, 20)
    y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * noise
    kernel = {"kernel": "rbf", "gamma": 0.1}
    for alpha in (1.0, 100.0, 10_000.0):
        yield compare(
            f"RBF {m} rows, alpha {alpha:g}, gap 1e-3",
            lambda a=alpha: RankSVM(a, tol=1e-3, **kernel).fit(X, y),
            "RankRLS, dual",
            lambda a=alpha: RankRLS(a, solver="dual", **kernel).fit(X, y),
            3.0,
            repeats=2,
        )


def graphs(quick: bool) -> Iterator[Row]:
    """All-paths features of graphs of about 60 nodes; the target is 1500 graphs a second.

    Sentences of 20 tokens with a random parse (tokens, dependencies, tokens again; two labels a
    token), and random graphs with cycles whose paths connect almost all nodes. The reference is
    the solve of the same matrices I − A with the identity as right side.
    """
    n_graphs = 200 if quick else 1000
    rng = np.random.default_rng(0)
    for name, made in (
        ("sentences", [_sentence(rng) for _ in range(n_graphs)]),
        ("cycles, 3% edges, 1 label", [_cyclic(rng, 60, 0.03, 1) for _ in range(n_graphs)]),
        ("cycles, 8% edges, 2 labels", [_cyclic(rng, 60, 0.08, 2) for _ in range(n_graphs)]),
    ):
        identity = np.eye(made[0].n_nodes)
        systems = np.stack([identity - graph.adjacency.toarray() for graph in made])
        sides = np.broadcast_to(identity, systems.shape)
        theirs = seconds(lambda a=systems, b=sides: np.linalg.solve(a, b))
        for gather in ("sum", "max"):
            features = AllPathsGraphFeatures(gather)
            ours = seconds(lambda f=features, g=made: f.fit_transform(g))
            title = f"{name}, {gather}: {n_graphs / ours:.0f} graphs a second"
            yield Row(title, ours, "np.linalg.solve", theirs, n_graphs / 1500 / theirs)


def _labels(rng: np.random.Generator, n: int, n_labels: int) -> list[tuple[str, ...]]:
    """Words of a Zipf law, and parts of speech."""
    zipf = 1.0 / np.arange(1, 3001)
    words, tags = rng.choice(3000, size=n, p=zipf / zipf.sum()), rng.integers(0, 40, size=n)
    return [(f"word{w}", f"tag{t}")[:n_labels] for w, t in zip(words, tags, strict=True)]


def _sentence(rng: np.random.Generator, n: int = 20) -> LabelledGraph:
    tokens = [Token(*pair) for pair in _labels(rng, n, 2)]
    order = rng.permutation(n).tolist()
    parse = [
        Dependency(order[int(rng.integers(max(0, i - 6), i))], order[i], f"dep{rng.integers(40)}")
        for i in range(1, n)
    ]
    first, second = rng.choice(n, size=2, replace=False).tolist()
    return sentence_graph(tokens, parse, [first], [second])


def _cyclic(rng: np.random.Generator, n: int, density: float, n_labels: int) -> LabelledGraph:
    A = rng.random((n, n)) * (rng.random((n, n)) < density)
    A *= 0.8 / max(np.abs(np.linalg.eigvals(A)).max(), 0.1)
    return LabelledGraph(A, _labels(rng, n, n_labels))
