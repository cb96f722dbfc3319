"""Query ids of a file as an array: integers if all of them are written as such, else strings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import written_integer

__all__ = ["as_objects", "integers_of"]

Array = NDArray[Any]


def as_objects(words: list[str]) -> Array:
    """An array of objects, shape (n,)."""
    array = np.empty(len(words), dtype=object)
    array[:] = words
    return array


def integers_of(words: Any) -> dict[Any, int | None]:
    """The 64-bit integer that each different word is written as; None where it is none."""
    return {word: _as_int64(word) for word in dict.fromkeys(words)}


def _as_int64(word: str | bytes) -> int | None:
    """The 64-bit integer that is written as this word (007 is not), or None."""
    text = word.decode("ascii", "replace") if isinstance(word, bytes) else word
    number = written_integer(text)
    return number if number is not None and -(2**63) <= number < 2**63 else None
