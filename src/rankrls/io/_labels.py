"""Labels of queries: many, mostly integers or text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rankrls._validation import show

__all__ = ["compact", "expand", "ordered"]


def compact(labels: Iterable[Any]) -> Any:
    """A list of labels, or an array if all are integers; in the order given.

    A NumPy number and the Python number equal to it are the same label.
    """
    plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
    if plain and all(type(label) is int and -(2**63) <= label < 2**63 for label in plain):
        return np.array(plain, dtype=np.int64)
    return plain


def ordered(labels: Iterable[Any]) -> list[Any]:
    """The labels of a set in an order that does not depend on the run."""
    return sorted(labels, key=lambda label: (type(label).__name__, repr(label)))


def expand(stored: Any) -> list[Any]:
    """The list that `compact` was given; a ``ValueError`` if it cannot be one."""
    labels = stored.tolist() if isinstance(stored, np.ndarray) and stored.ndim == 1 else stored
    if type(labels) is not list:
        raise ValueError(f"{show(stored)} where labels should be")
    try:
        hash(tuple(labels))
    except TypeError as error:
        raise ValueError(f"something among labels that is none: {error}") from error
    return labels
