"""P5 Figure 5: seconds to train on relations, against solvers that see edges only.

    python benchmarks/papers/p5_scalability.py           # --most 4000 for more nodes

As in the paper: a sample of 20-newsgroups with a linear kernel, alpha = 1, 200 iterations at most;
first all pairs of p nodes, then 1000 nodes and some of the edges (random), then 100 digits of USPS
with random features, label 1 for pairs of the same digit. The solvers of edges are RankRLS and
RankSVM of this package with the Kronecker kernel written out, or with products of features in the
linear case; SVM-light and SVMrank are not at hand. The figure has curves and no numbers, so that
theirs are not beside ours. "Difference" is the largest one of the scores of RankRLS of edges to
those of the closed form (dual, primal): the problem is the same.

Where nearly all pairs are observed, our "CG" is preconditioned by the closed form of all pairs, and
takes one iteration if there are all; "plain CG" is the paper's way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import finish, need, parse, table
from relations_newsgroups import VECTORIZERS, read, relation
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from timing import seconds

from rankrls import ConditionalRankRLS, RankRLS, RankSVM, regularization_path

NODES = (10, 20, 40, 70, 125, 250, 500, 1000, 2000, 4000)
EDGES = (1000, 2000, 4000, 16_000, 64_000, 250_000, 1_000_000)
FEATURES = (2, 4, 8, 16, 32, 64, 128)
#: Most rows of a kernel matrix of edges, and most columns of products of features.
ROWS, COLUMNS = 5000, 1024


def once(run: Callable[[], Any]) -> str:
    return f"{seconds(run, 1):.3f}"


def edge_rankers(
    X: Any, y: np.ndarray, qid: np.ndarray, **kernel: Any
) -> tuple[RankRLS, list[str]]:
    """Fit RankRLS, weighted so that its loss is P5's, and take the seconds of both rankers."""
    ranker = RankRLS(query_weighting="size", **kernel)
    squares = once(lambda: ranker.fit(X, y, qid=qid))
    hinge = once(lambda: RankSVM(query_weighting="size", tol=1e-3, **kernel).fit(X, y, qid=qid))
    return ranker, [squares, hinge]


def complete(K: np.ndarray, Y: np.ndarray, most: int) -> Iterator[list[str]]:
    for p in (p for p in NODES if p <= most):
        k, labels = K[:p, :p], Y[:p, :p]
        closed = ConditionalRankRLS(kernel="precomputed", solver="closed")
        cells = [str(p), f"{p * p:,}", once(lambda: closed.fit(k, labels))]  # noqa: B023
        iterative = ConditionalRankRLS(kernel="precomputed", solver="cg")
        cells += [once(lambda: iterative.fit(k, labels)), str(iterative.n_iter_)]  # noqa: B023
        cells.append(once(lambda: plain(iterative, k, labels)))  # noqa: B023
        if p * p <= ROWS:
            edges = np.kron(k, k)
            qid = np.repeat(np.arange(p), p)
            ranker, took = edge_rankers(edges, labels.ravel(), qid, kernel="precomputed")
            gap = np.abs(centred(ranker.predict(edges), qid) - centred(closed.predict(k), qid))
            cells += [*took, f"{gap.max():.0e}"]
        yield [*cells, *[""] * (9 - len(cells))]


def plain(ranker: ConditionalRankRLS, K: np.ndarray, Y: np.ndarray) -> None:
    """Iterate without the preconditioner, which a grid of alphas cannot have."""
    regularization_path(ranker, K, Y, alphas=[1.0, 2.0])


def incomplete(K: np.ndarray, Y: np.ndarray, p: int = 1000) -> Iterator[list[str]]:
    rng = np.random.default_rng(0)
    k = K[:p, :p]
    for n_edges in EDGES:
        rows, cols = np.divmod(rng.permutation(p * p)[:n_edges], p)
        y = Y[rows, cols]
        labels = sparse.coo_array((y, (rows, cols)), shape=(p, p))
        ranker = ConditionalRankRLS(kernel="precomputed", solver="cg")
        cells = [f"{n_edges:,}", once(lambda: ranker.fit(k, labels)), str(ranker.n_iter_)]  # noqa: B023
        if n_edges <= ROWS:
            direct = ConditionalRankRLS(kernel="precomputed", solver="dual")
            cells.append(once(lambda: direct.fit(k, labels)))  # noqa: B023
            edges = k[np.ix_(rows, rows)] * k[np.ix_(cols, cols)]
            found, took = edge_rankers(edges, y, rows, kernel="precomputed")
            ours = direct.predict_edges(k, k, rows, cols)
            gap = np.abs(centred(found.predict(edges), rows) - centred(ours, rows))
            cells += [*took, f"{gap.max():.0e}"]
        yield [*cells, *[""] * (7 - len(cells))]


def products(X: np.ndarray, digits: np.ndarray) -> Iterator[list[str]]:
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(X))[:100]
    Y = (digits[rows, None] == digits[rows]).astype(float)
    qid = np.repeat(np.arange(100), 100)
    for d in FEATURES:
        x = X[rows][:, rng.permutation(X.shape[1])[:d]].astype(float)
        closed = ConditionalRankRLS(solver="closed")
        cells = [str(d), once(lambda: closed.fit(x, Y))]  # noqa: B023
        iterative = ConditionalRankRLS(solver="cg")
        cells += [once(lambda: iterative.fit(x, Y)), str(iterative.n_iter_)]  # noqa: B023
        if d * d <= COLUMNS:
            edges = np.kron(x, x)
            found, took = edge_rankers(edges, Y.ravel(), qid)
            gap = np.abs(centred(found.predict(edges), qid) - centred(closed.predict(x), qid))
            cells += [*took, f"{gap.max():.0e}"]
        yield [*cells, *[""] * (7 - len(cells))]


def centred(scores: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Scores less the mean of their list: only differences within one count."""
    values = scores.ravel()
    sums = np.bincount(qid, values) / np.maximum(np.bincount(qid), 1)
    return values - sums[qid]


def main() -> None:
    options = parse(__doc__, most=2000)
    warnings.simplefilter("ignore", ConvergenceWarning)
    news, usps = need(options.data, "twentynews/20news-bydate.jsonl.gz", "usps/usps.npz")
    texts = read(news, None, 0)
    documents = [(t, g) for g, of_group in texts.items() for t in of_group]
    order = np.random.default_rng(0).permutation(len(documents))[: max(options.most, 1000)]
    X = VECTORIZERS["tfidf"]().fit_transform([documents[i][0] for i in order])
    K, Y = (X @ X.T).toarray(), relation(np.array([documents[i][1] for i in order]))
    edge = ["RankRLS of edges, s", "RankSVM of edges, s", "difference"]
    print("All pairs of p nodes\n")
    table(
        ["p", "edges", "closed, s", "CG, s", "iterations", "plain CG, s", *edge],
        complete(K, Y, options.most),
    )
    print("1000 nodes, some edges\n")
    table(["edges", "CG, s", "iterations", "dual, s", *edge], incomplete(K, Y))
    print("100 nodes, all pairs, d features\n")
    with np.load(usps) as file:
        table(
            ["d", "closed, s", "CG, s", "iterations", *edge],
            products(file["X_train"], file["y_train"]),
        )
    finish()


if __name__ == "__main__":
    main()
