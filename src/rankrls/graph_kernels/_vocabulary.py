"""Mapping of label-pair keys to columns, by a table if it is small and by sorting otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["learn", "look_up"]

Array = NDArray[Any]

_SMALL_TABLE = 2**20


def learn(keys: Sequence[Array], n_keys: int) -> tuple[Array, list[Array]]:
    """Number the distinct keys in ascending order.

    Parameters
    ----------
    keys : sequence of int arrays
        Keys below ``n_keys``, in long ascending runs.

    Returns
    -------
    vocabulary : ndarray of shape (n_different,), int64, ascending
    columns : list of int arrays
        Position of each key in the vocabulary.
    """
    if _table_is_small(n_keys, sum(map(len, keys))):
        seen = np.zeros(n_keys, dtype=bool)
        for part in keys:
            seen[part] = True
        number = np.cumsum(seen, dtype=np.int32) - 1
        return np.flatnonzero(seen), [number[part] for part in keys]
    parts = [_different(part) for part in keys]
    vocabulary = np.sort(np.concatenate([different for different, _ in parts]))
    vocabulary = vocabulary[np.diff(vocabulary, prepend=-1) > 0]
    return vocabulary, [np.searchsorted(vocabulary, part)[which] for part, which in parts]


def look_up(vocabulary: Array, keys: Array, n_keys: int) -> Array:
    """Return the position of each key in the vocabulary; -1 for unknown or negative keys."""
    if _table_is_small(n_keys, len(keys)):
        number = np.full(n_keys + 1, -1, dtype=np.int32)  # the last entry is for key -1
        number[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
        return number[keys]
    different, which = _different(keys)
    place = np.searchsorted(vocabulary, different)
    known = np.append(vocabulary, -2)[place] == different
    return np.where(known, place, -1)[which]


def _table_is_small(n_keys: int, n_entries: int) -> bool:
    """Return whether a table of all possible keys needs at most about the memory of the entries."""
    return n_keys <= max(min(_SMALL_TABLE, 64 * n_entries), 4 * n_entries)


def _different(keys: Array) -> tuple[Array, Array]:
    """Return distinct keys in ascending order, and the position of each key among them.

    Like ``np.unique``, but fast for keys in long ascending runs, which a stable sort merges.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.empty(len(keys), dtype=bool)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    which = np.empty(len(keys), dtype=np.int32)
    which[order] = np.cumsum(new, dtype=np.int32) - 1
    return ordered[new], which
