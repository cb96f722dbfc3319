"""Graphs of sentences with two candidate entities, from dependencies and word order (P4 §4)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse.csgraph import dijkstra

from rankrls._validation import check_positive, show
from rankrls.graph_kernels._kernel import LabelledGraph

__all__ = ["Dependency", "Token", "sentence_graph"]


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a sentence and its part of speech."""

    text: str
    pos: str


@dataclass(frozen=True, slots=True)
class Dependency:
    """A dependency from one token, the governor, to another, both given by their index."""

    governor: int
    dependent: int
    type: str


def sentence_graph(
    tokens: Sequence[Token],
    dependencies: Sequence[Dependency],
    first: Iterable[int],
    second: Iterable[int],
    *,
    others: Iterable[Iterable[int]] = (),
    path_weight: float = 0.9,
    other_weight: float = 0.3,
    order_weight: float = 0.9,
    names: tuple[str, str, str] = ("PROT1", "PROT2", "PROT"),
) -> LabelledGraph:
    """Represent a sentence and two of its entities by a graph with two unconnected parts.

    The *dependency part* has a node for every token, labelled with its text and its part of speech,
    and a node for every dependency, labelled with its type, with edges governor → dependency →
    dependent. Edges on the shortest paths between the two entities have weight ``path_weight``, all
    others ``other_weight``; the labels of nodes on these paths end in ``_IP``.

    The *linear part* has another node for each token, with an edge of weight ``order_weight`` to
    the next. Its labels end in ``_B``, ``_M`` or ``_A`` for tokens before, between and after the
    entities.

    Parameters
    ----------
    tokens : sequence of Token, in the order of the sentence
    dependencies : sequence of Dependency
        Of any directed graph, not only a tree.
    first, second : iterable of int
        Token indices of the two candidate entities.
    others : iterable of iterables of int
        Token indices of each other entity of the sentence.
    path_weight, other_weight, order_weight : float
        Edge weights. Shortest paths ignore the direction of edges, and all of them are used.
    names : tuple of three str
        Placeholders for the text of the first, the second and all other entities, so that entity
        names are not learned.

    Returns
    -------
    LabelledGraph
        The nodes are the tokens, the dependencies, and the tokens again.

    Examples
    --------
    >>> from rankrls.graph_kernels import Dependency, Token, sentence_graph
    >>> words, parse = [Token("A", "NN"), Token("binds", "VBZ")], [Dependency(1, 0, "nsubj")]
    >>> sentence_graph(words, parse, first=[0], second=[1]).labels[:3]
    (('PROT1_IP', 'NN_IP'), ('PROT2_IP', 'VBZ_IP'), ('nsubj_IP',))
    """
    n, d = len(tokens), len(dependencies)
    pair = _indices("first", first, n), _indices("second", second, n)
    blind = {i for k, other in enumerate(others) for i in _indices(f"others[{k}]", other, n)}
    for k, link in enumerate(dependencies):
        if not (0 <= link.governor < n and 0 <= link.dependent < n):
            raise ValueError(f"dependencies[{k}] = {link} names a token outside 0 … {n - 1}")
    on_weight = check_positive("path_weight", path_weight)
    off_weight = check_positive("other_weight", other_weight)
    next_weight = check_positive("order_weight", order_weight)

    texts: list[tuple[str, ...]] = []
    for i, token in enumerate(tokens):
        named = tuple(name for name, entity in zip(names, pair, strict=False) if i in entity)
        texts.append((named or ((names[2],) if i in blind else (token.text,))) + (token.pos,))

    # Edges governor → dependency → dependent, then from each token to the next.
    sources = np.array([u for k, link in enumerate(dependencies) for u in (link.governor, n + k)])
    targets = np.array([u for k, link in enumerate(dependencies) for u in (n + k, link.dependent)])
    sources, targets = sources.astype(np.int64), targets.astype(np.int64)
    links = sp.coo_array((np.ones(2 * d), (sources, targets)), shape=(n + d, n + d)).tocsr()
    there, back = (
        dijkstra(links, directed=False, indices=sorted(one), unweighted=True, min_only=True)
        for one in pair
    )
    # An edge u – v is on a shortest path if d(first, u) + 1 + d(v, second) is its length.
    length = there[sorted(pair[1])].min()
    on = np.isfinite(length) & (
        (there[sources] + 1 + back[targets] == length)
        | (there[targets] + 1 + back[sources] == length)
    )
    labels = [*texts, *((link.type,) for link in dependencies)]
    for node in {*sources[on].tolist(), *targets[on].tolist(), *(pair[0] & pair[1])}:
        labels[node] = tuple(f"{label}_IP" for label in labels[node])
    begin, end = min(pair[0] | pair[1]), max(pair[0] | pair[1])
    for i, text in enumerate(texts):
        tag = "B" if i < begin else "A" if i > end else "M"
        labels.append(tuple(f"{label}_{tag}" for label in text))
    following = np.arange(n + d, 2 * n + d - 1)
    coords = np.append(sources, following), np.append(targets, following + 1)
    weights = np.append(np.where(on, on_weight, off_weight), np.full(n - 1, next_weight))
    shape = (2 * n + d, 2 * n + d)
    return LabelledGraph(sp.coo_array((weights, coords), shape=shape), labels)


def _indices(name: str, entity: Any, n: int) -> set[int]:
    """Check the token indices of an entity."""
    try:
        found = {operator.index(i) for i in entity}
    except TypeError:
        raise ValueError(f"{name} must hold indices of tokens; got {show(entity)}") from None
    if not found:
        raise ValueError(f"{name} is empty; an entity needs at least one token")
    if min(found) < 0 or max(found) >= n:
        raise ValueError(f"{name} = {sorted(found)} names a token outside 0 … {n - 1}")
    return found
