"""Path weights of many graphs at once: W = Σ_{n≥1} Aⁿ = (I − A)⁻¹ − I.

The nodes of all graphs are the rows of one block diagonal matrix. Its connected components are
solved in stacks of similar size, by eliminating nodes: every path i → … → j that visits node k
consists of a way to k, turns at k and a way from there, so that

    A_ij ← A_ij + A_ik (1 − A_kk)⁻¹ A_kj      for k = 1, 2, …

leaves W in the place of A. For a block K of nodes the same reads A ← A + A_:K (I + A_KK⁺) A_K:
with A_KK⁺ the path weights within the block, which is two matrix products. This is elimination
without exchanging rows. For weights that are not negative it only ever adds, so that entries
without a path stay exactly zero and the others keep their digits; and the spectral radius is
below one if and only if all pivots 1 − A_kk are positive (I − A is then an M-matrix).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components

from rankrls import _memory

__all__ = ["DivergenceError", "path_weights", "spectral_radius"]

Array = NDArray[Any]

_BLOCK = 16  # nodes that are eliminated together
_STACK = 2**17  # numbers in a stack of components: 1 MiB


class DivergenceError(Exception):
    """The sum over all paths does not converge.

    Parameters
    ----------
    nodes : ndarray of int
        A node of every component that is a cause, ascending.
    """

    def __init__(self, nodes: Array) -> None:
        super().__init__(nodes)
        self.nodes = nodes


def path_weights(A: sp.csr_array) -> sp.csr_array:
    """Σ_{n≥1} Aⁿ, one solve for each connected component of A.

    Parameters
    ----------
    A : csr_array of shape (n, n)
        Without duplicate entries. Block diagonal where it holds several graphs.

    Returns
    -------
    csr_array of shape (n, n)
        Stores the pairs of nodes that a path connects, and nothing else.

    Raises
    ------
    DivergenceError
        The spectral radius of a component is one or more, or weights overflow.
    """
    edges = A.tocoo()
    n = A.shape[0]
    # Rows as they come out of the stacks, and where each node's row is among them.
    place, n_rows = np.full(n, -1), 0
    counts, columns, values = [], [], []
    divergent = []
    for nodes, slots, sources, targets, weights in _stacks(edges):
        b, v = nodes.shape
        if v > 1000:
            advice = "graphs are solved densely: remove edges that hold large parts together"
            _memory.require("path weights of a connected graph", v, v, copies=4, advice=advice)
        stack = np.zeros((b, v, v))
        stack[slots, sources, targets] = weights
        bad = _close(stack)
        if bad.any():
            divergent.append(nodes[bad, 0])
        if divergent:
            continue
        found = stack != 0
        counts.append(np.count_nonzero(found, axis=2).ravel())
        columns.append(np.broadcast_to(nodes[:, None, :], stack.shape)[found])
        values.append(stack[found])
        # Padding comes after the node that it repeats: written backwards, the node remains.
        place[nodes.ravel()[::-1]] = n_rows + np.arange(b * v)[::-1]
        n_rows += b * v
    if divergent:
        raise DivergenceError(np.sort(np.concatenate(divergent)))
    if not counts:
        return sp.csr_array(A.shape)
    indptr = np.concatenate([[0], *counts, [0]]).cumsum()  # the last row is empty
    rows = sp.csr_array(
        (np.concatenate(values), np.concatenate(columns), indptr), shape=(n_rows + 1, n)
    )
    return rows[place]


def _stacks(edges: sp.coo_array) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
    """Components of similar size, padded to the same one.

    Yields
    ------
    nodes : ndarray of shape (b, v), int
        Nodes of every component; what is padded repeats its first node and has no edges.
    slots, sources, targets, weights : ndarray of shape (n_edges,)
        Edges: the component, and the places of both nodes in it.
    """
    n_components, component = connected_components(edges, directed=False)
    source, target = edges.coords
    sizes = np.bincount(component, minlength=n_components)
    n_edges = np.bincount(component[source], minlength=n_components)
    by_component = np.argsort(component, kind="stable").astype(component.dtype)
    first = np.cumsum(sizes) - sizes
    place = np.empty_like(by_component)
    place[by_component] = np.arange(len(place)) - np.repeat(first, sizes)

    used = np.flatnonzero(n_edges)
    used = used[np.argsort(sizes[used], kind="stable")]
    rank = np.full(n_components, -1)
    rank[used] = np.arange(len(used))
    edge_rank = rank[component[source]]
    by_rank = np.argsort(edge_rank, kind="stable")
    stop_of = np.cumsum(n_edges[used])
    for start, stop in _batches(sizes[used]):
        chosen = used[start:stop]
        v = int(sizes[chosen[-1]])
        inside = np.arange(v) < sizes[chosen, None]
        nodes = by_component[first[chosen, None] + np.where(inside, np.arange(v), 0)]
        picked = by_rank[stop_of[start] - n_edges[used[start]] : stop_of[stop - 1]]
        yield (
            nodes,
            edge_rank[picked] - start,
            place[source[picked]],
            place[target[picked]],
            edges.data[picked],
        )


def _batches(sizes: Array) -> Iterator[tuple[int, int]]:
    """Ranges of ascending sizes that differ by a sixth at most and fit into a stack."""
    start = 0
    while start < len(sizes):
        similar = int(np.searchsorted(sizes, sizes[start] * 7 // 6 + 1, side="right"))
        fitting = start + max(1, int(_STACK // sizes[similar - 1] ** 2))
        stop = min(similar, fitting)
        yield start, stop
        start = stop


def _close(A: Array) -> Array:
    """Replace every matrix of a stack by Σ_{n≥1} Aⁿ; say which sums diverge.

    Parameters
    ----------
    A : ndarray of shape (b, v, v)
        Overwritten.

    Returns
    -------
    ndarray of shape (b,), bool
    """
    signed = np.flatnonzero((A < 0).any(axis=(1, 2)))
    with np.errstate(all="ignore"):
        if len(signed):
            # ρ(|A|) < 1 is sufficient, and makes the pivots of A at least those of |A|.
            doubtful = signed[_eliminate(np.abs(A[signed]))]
            exact, diverges = _close_exactly(A[doubtful])
            A[doubtful] = 0.0
        bad = _eliminate(A)
        if len(signed):
            A[doubtful], bad[doubtful] = exact, diverges
        bad |= ~np.isfinite(A).all(axis=(1, 2))
    return bad


def _eliminate(A: Array) -> Array:
    """Node elimination in place; True where a pivot is not positive."""
    v = A.shape[1]
    limit = 8 * v * np.finfo(float).eps
    bad = np.zeros(len(A), dtype=bool)
    update = np.empty_like(A)
    for start in range(0, v, _BLOCK):
        K = slice(start, min(start + _BLOCK, v))
        B = A[:, K, K].copy()
        for k in range(B.shape[1]):
            pivot = 1.0 - B[:, k, k]
            stuck = ~(pivot > limit)
            bad |= stuck
            pivot[stuck] = 1.0
            B += (B[:, :, k] / pivot[:, None])[:, :, None] * B[:, k, None, :]
        # A + A_:K (I + B) A_K:, where B = A_KK⁺: right for the rows and columns of K, too.
        R = A[:, K, :]
        A += np.matmul(A[:, :, K], R + B @ R, out=update)
    return bad


def _close_exactly(A: Array) -> tuple[Array, Array]:
    """Signed weights with ρ(|A|) ≥ 1: the eigenvalues decide, and rows are exchanged."""
    bad = np.abs(np.linalg.eigvals(A)).max(axis=1, initial=0.0) >= 1.0 - 1e-12
    identity = np.eye(A.shape[1])
    system = identity - np.where(bad[:, None, None], 0.0, A)
    return np.linalg.solve(system, identity - system), bad


def spectral_radius(A: sp.csr_array) -> float:
    """Largest absolute value of the eigenvalues of a square matrix.

    They are those of its strongly connected components: nodes outside of all cycles, which make
    eigenvalues ill-conditioned, do not count.
    """
    _, component = connected_components(A, connection="strong")
    edges = A.tocoo()
    source, target = edges.coords
    inside = component[source] == component[target]
    radius = 0.0
    for label in np.unique(component[source[inside]]):
        nodes = np.flatnonzero(component == label)
        block = A[nodes][:, nodes].toarray()
        radius = max(radius, float(np.abs(np.linalg.eigvals(block)).max()))
    return radius
