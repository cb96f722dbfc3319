"""Path weights of many graphs at once: W = Σ_{n≥1} Aⁿ = (I − A)⁻¹ − I.

The nodes of all graphs are the rows of one block diagonal matrix. Its connected components are
solved in stacks of similar size, by node elimination: every path i → … → j that visits node k
consists of a path to k, loops at k and a path from k, so that

    A_ij ← A_ij + A_ik (1 − A_kk)⁻¹ A_kj      for k = 1, 2, …

replaces A by W. For a block K of nodes this becomes A ← A + A_:K (I + A_KK⁺) A_K: with A_KK⁺ the
path weights within the block, which takes two matrix products. This is Gaussian elimination without
pivoting. For non-negative weights it only adds, so that entries without a path stay exactly zero
and the others are accurate. The spectral radius is below one if and only if all pivots 1 − A_kk are
positive (I − A is then an M-matrix).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components

from rankrls import _resources

__all__ = ["DivergenceError", "path_weights", "spectral_radius"]

Array = NDArray[Any]

_BLOCK = 16  # nodes eliminated together
_STACK = 2**17  # number of values in a stack of components: 1 MiB


class DivergenceError(Exception):
    """The sum over all paths does not converge.

    Parameters
    ----------
    nodes : ndarray of int
        A node of each divergent component, in ascending order.
    """

    def __init__(self, nodes: Array) -> None:
        super().__init__(nodes)
        self.nodes = nodes


def path_weights(A: sp.csr_array) -> sp.csr_array:
    """Compute Σ_{n≥1} Aⁿ, with one solve for each connected component of A.

    Parameters
    ----------
    A : csr_array of shape (n, n)
        Adjacency matrix without duplicate entries; block diagonal if it holds several graphs.

    Returns
    -------
    csr_array of shape (n, n)
        Path weights; only the pairs of nodes connected by a path are stored.

    Raises
    ------
    DivergenceError
        If the spectral radius of a component is one or more, or weights overflow.
    """
    edges = A.tocoo()
    n = A.shape[0]
    # Rows in the order of the stacks, and the position of each node's row among them.
    place, n_rows = np.full(n, -1), 0
    counts, columns, values = [], [], []
    divergent = []
    for nodes, slots, sources, targets, weights in _stacks(edges):
        b, v = nodes.shape
        if v > 1000:
            advice = "graphs are solved as dense matrices; remove edges that connect large parts"
            _resources.require("path weights of a connected graph", v, v, copies=4, advice=advice)
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
        # Padding repeats an earlier node; assigning in reverse order keeps the values of that node.
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
    """Generate stacks of components of similar size, padded to the same size.

    Yields
    ------
    nodes : ndarray of shape (b, v), int
        Nodes of each component; padding repeats its first node and has no edges.
    slots, sources, targets, weights : ndarray of shape (n_edges,)
        Edges, given by the component, the positions of both nodes in it, and the weight.
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
    """Generate ranges of ascending sizes that differ by at most a sixth and fit into a stack."""
    start = 0
    while start < len(sizes):
        similar = int(np.searchsorted(sizes, sizes[start] * 7 // 6 + 1, side="right"))
        fitting = start + max(1, int(_STACK // sizes[similar - 1] ** 2))
        stop = min(similar, fitting)
        yield start, stop
        start = stop


def _close(A: Array) -> Array:
    """Replace each matrix of a stack by Σ_{n≥1} Aⁿ, and return which sums diverge.

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
    """Eliminate nodes in place; return True where a pivot is not positive."""
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
        # A + A_:K (I + B) A_K: with B = A_KK⁺ also holds for the rows and columns of K.
        R = A[:, K, :]
        A += np.matmul(A[:, :, K], R + B @ R, out=update)
    return bad


def _close_exactly(A: Array) -> tuple[Array, Array]:
    """Solve with pivoting for signed weights with ρ(|A|) ≥ 1; eigenvalues decide on convergence."""
    bad = np.abs(np.linalg.eigvals(A)).max(axis=1, initial=0.0) >= 1.0 - 1e-12
    identity = np.eye(A.shape[1])
    system = identity - np.where(bad[:, None, None], 0.0, A)
    return np.linalg.solve(system, identity - system), bad


def spectral_radius(A: sp.csr_array) -> float:
    """Return the largest absolute value of the eigenvalues of a square matrix.

    The eigenvalues are computed for each strongly connected component. Nodes outside all cycles,
    which make eigenvalues ill-conditioned, are excluded.
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
