"""Checks of labels that become the keys of a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_hashes"]

Array = NDArray[Any]

#: Up to this number, labels are fast to look up whatever their hash values.
FEW = 256

#: Maximum number of probes for each label; one or two are usual.
MAX_PROBES = 100


def check_hashes(labels: list[Any]) -> None:
    """Raise an error if building a dict or a set of these labels takes quadratic time.

    The hash values of numbers, unlike those of text, are predictable. Numbers can therefore be
    chosen such that each one collides with all others in a dict. This function simulates tables of
    every size that a growing dict or set can have, for all labels at once, and counts the probes.

    Notes
    -----
    CPython searches for a label in slot i = h mod 2^k, then in i ← 5 i + 1 + (h >> 5 j) for
    j = 1, 2, …; a set also searches the nine slots after each of these.
    """
    n = len(labels)
    if n < FEW or all(type(label) is str for label in labels):
        return
    hashes = np.fromiter(map(hash, labels), dtype=np.int64, count=n).view(np.uint64)
    size = 2 * FEW
    while size <= 8 * n:
        first = hashes[: 2 * size // 3]
        for n_neighbours in (0, 9):
            if not _fills(first, size, n_neighbours):
                raise ValueError(f"{n:,} labels whose hash values collide, as no labels do")
        size *= 2


def _fills(hashes: Array, size: int, n_neighbours: int) -> bool:
    """Return whether a table of this size takes the labels with few probes for each."""
    mask = np.uint64(size - 1)
    taken = np.zeros(size, dtype=bool)
    first = np.empty(size, dtype=np.int64)
    waiting, slots = hashes, hashes & mask
    shift, probes = 0, 0
    while len(waiting):
        for step in range(n_neighbours + 1):
            probes += len(waiting)
            if probes > MAX_PROBES * len(hashes):
                return False
            # Neighbours are not searched near the end of a table.
            near = slots + np.uint64(n_neighbours) <= mask
            asked = np.where(near, slots + np.uint64(step), slots)
            free = np.flatnonzero(~taken[asked])
            first[asked[free][::-1]] = free[::-1]  # the first label if several want a slot
            placed = free[first[asked[free]] == free]
            taken[asked[placed]] = True
            left = np.ones(len(waiting), dtype=bool)
            left[placed] = False
            waiting, slots = waiting[left], slots[left]
        shift += 5
        perturbation = waiting >> np.uint64(shift) if shift < 64 else np.uint64(0)
        slots = (slots * np.uint64(5) + np.uint64(1) + perturbation) & mask
    return True
