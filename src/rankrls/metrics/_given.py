"""Preferences given as pairs of rows, and their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import Queries, check_weights

__all__ = ["check_within", "count_given", "edge_weight", "scaled"]

Array = NDArray[Any]


def scaled(weight: Array) -> Array:
    """Scale weights by a power of two so that the largest is near one and products stay finite."""
    if not weight.any():
        return weight
    return np.ldexp(weight, -np.frexp(weight.max())[1])


def check_within(edges: Array, queries: Queries) -> None:
    """Raise if a pair compares rows of two queries."""
    ends = queries.codes[edges]
    across = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if len(across):
        where = int(across[0])
        one, other = (queries.labels[code] for code in ends[where])
        raise ValueError(
            f"pairs[{where}] = {tuple(edges[where].tolist())} compares rows of two queries: "
            f"qid {one} and {other}"
        )


def edge_weight(edges: Array, weight: Array | None, pair_weight: ArrayLike | None) -> Array | None:
    """Weight of each given pair; None if all weights are one."""
    result = None
    if pair_weight is not None:
        result = scaled(check_weights("pair_weight", pair_weight, len(edges), of="pairs"))
    if weight is not None:
        product = weight[edges].prod(axis=1)
        result = product if result is None else result * product
    return result


def count_given(
    score: Array, edges: Array, queries: Queries, weight: Array | None
) -> tuple[Array, Array, Array]:
    """Sum the comparable, discordant and tied pairs of each query, for pairs given explicitly."""
    query = queries.codes[edges[:, 0]]
    preferred, other = score[edges[:, 0]], score[edges[:, 1]]

    def total(chosen: Array) -> Array:
        chosen_weight = None if weight is None else weight[chosen]
        return np.bincount(query[chosen], weights=chosen_weight, minlength=len(queries))

    every = np.ones(len(edges), dtype=bool)
    return total(every), total(preferred < other), total(preferred == other)
