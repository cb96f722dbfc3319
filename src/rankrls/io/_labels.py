"""Storage of query labels, which are mostly integers or text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show

__all__ = ["check_hashes", "compact", "expand", "ordered"]

Array = NDArray[Any]

#: Up to this number, labels are fast to look up whatever their hash values.
FEW = 256

#: Maximum number of probes for each label; one or two are usual.
MAX_PROBES = 100


def compact(labels: Iterable[Any]) -> Any:
    """Return a list of labels, or an array if all are integers, in the given order.

    A NumPy number and the Python number equal to it are the same label.
    """
    plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
    if plain and all(type(label) is int and -(2**63) <= label < 2**63 for label in plain):
        return np.array(plain, dtype=np.int64)
    return plain


def ordered(labels: Iterable[Any]) -> list[Any]:
    """Return the labels of a set in a reproducible order."""
    return sorted(labels, key=lambda label: (type(label).__name__, repr(label)))


def expand(stored: Any) -> list[Any]:
    """Return the list passed to `compact`; raise a ``ValueError`` if the data are invalid."""
    labels = stored.tolist() if isinstance(stored, np.ndarray) and stored.ndim == 1 else stored
    if type(labels) is not list:
        raise ValueError(f"{show(stored)} where labels should be")
    try:
        for label in labels:
            hash(label)
    except TypeError as error:
        raise ValueError(f"something among labels that is none: {error}") from error
    return labels


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
