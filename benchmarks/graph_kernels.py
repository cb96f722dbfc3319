"""All-paths graph features against the bare LAPACK solve of the same matrices, in one run.

    OMP_NUM_THREADS=1 python benchmarks/graph_kernels.py

Graphs of about 60 nodes: sentences of 20 tokens with a random parse (59 nodes: tokens,
dependencies, tokens again; two labels a token out of 3000 words and 40 parts of speech), and random
graphs with cycles whose paths connect almost all nodes. Reference: ``np.linalg.solve`` of the
stacked I − A with the identity as right side. The wish: 1500 graphs a second and core, or 0.3 of
the solve's speed (a ratio of 3.33). Times are processor seconds, least of five runs. Memory: the
peak that ``tracemalloc`` sees in ``fit_transform``, by non-zeros of the result.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from functools import partial

import numpy as np
from timing import Row, print_table
from timing import seconds as shortest

from rankrls.graph_kernels import (
    AllPathsGraphFeatures,
    Dependency,
    LabelledGraph,
    Token,
    sentence_graph,
)

N_GRAPHS = 1000
WORDS = [f"word{i}" for i in range(3000)]
TAGS = [f"tag{i}" for i in range(40)]
ZIPF = 1.0 / np.arange(1, 3001)
TARGET = 1 / 0.3
seconds = partial(shortest, clock=time.process_time)


def labels(rng: np.random.Generator, n: int, n_labels: int) -> list[tuple[str, ...]]:
    words = rng.choice(3000, size=n, p=ZIPF / ZIPF.sum())
    tags = rng.integers(0, 40, size=n)
    return [(WORDS[w], TAGS[t])[:n_labels] for w, t in zip(words, tags, strict=True)]


def sentence(rng: np.random.Generator, n: int = 20) -> LabelledGraph:
    tokens = [Token(*pair) for pair in labels(rng, n, 2)]
    order = rng.permutation(n).tolist()
    parse = [
        Dependency(order[int(rng.integers(max(0, i - 6), i))], order[i], f"dep{rng.integers(40)}")
        for i in range(1, n)
    ]
    first, second = rng.choice(n, size=2, replace=False).tolist()
    return sentence_graph(tokens, parse, [first], [second])


def cyclic(rng: np.random.Generator, n: int, density: float, n_labels: int) -> LabelledGraph:
    A = rng.random((n, n)) * (rng.random((n, n)) < density)
    A *= 0.8 / max(np.abs(np.linalg.eigvals(A)).max(), 0.1)
    return LabelledGraph(A, labels(rng, n, n_labels))


def rows(n_graphs: int = N_GRAPHS, repeats: int = 5) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    for name, graphs in (
        ("sentences", [sentence(rng) for _ in range(n_graphs)]),
        ("cycles, 3% edges, 1 label", [cyclic(rng, 60, 0.03, 1) for _ in range(n_graphs)]),
        ("cycles, 3% edges, 2 labels", [cyclic(rng, 60, 0.03, 2) for _ in range(n_graphs)]),
        ("cycles, 8% edges, 2 labels", [cyclic(rng, 60, 0.08, 2) for _ in range(n_graphs)]),
    ):
        identity = np.eye(graphs[0].n_nodes)
        systems = np.stack([identity - graph.adjacency.toarray() for graph in graphs])
        sides = np.broadcast_to(identity, systems.shape)
        pairs = [(graph.adjacency.toarray(), graph.labels) for graph in graphs]
        for kind, given in (("LabelledGraph", graphs), ("arrays", pairs)):
            for gather in ("sum", "max"):
                features = AllPathsGraphFeatures(gather)
                ours = seconds(lambda f=features, g=given: f.fit_transform(g), repeats)
                theirs = seconds(lambda a=systems, b=sides: np.linalg.solve(a, b), repeats)
                yield Row(f"{name}, {kind}, {gather}", ours, "np.linalg.solve", theirs, TARGET)


def speed(quick: bool = False) -> Iterator[Row]:
    yield from rows(200 if quick else N_GRAPHS)


def memory() -> None:
    rng = np.random.default_rng(0)
    print(f"\n{'graphs':>8} {'non-zeros':>10} {'peak MB':>8} {'bytes a non-zero':>17}")
    for n_graphs in (500, 1000, 2000, 4000):
        graphs = [sentence(rng) for _ in range(n_graphs)]
        tracemalloc.start()
        X = AllPathsGraphFeatures().fit_transform(graphs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{n_graphs:8} {X.nnz:10} {peak / 1e6:8.1f} {peak / X.nnz:17.1f}", flush=True)


if __name__ == "__main__":
    table = list(rows())
    print_table(table)
    print()
    for row in table:
        print(f"{row.name:46} {N_GRAPHS / row.ours:9.0f} graphs a second")
    memory()
