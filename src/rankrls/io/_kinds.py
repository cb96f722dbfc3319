"""What a stored field may hold: numbers, text, arrays of a given shape, objects of given classes.

A `Kind` says yes or no to a value. Array kinds name their axes, as in ``array("f", "n k")``: within
one object an axis of the same name must have the same length everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._validation import show

__all__ = [
    "ANY",
    "FLAG",
    "INTEGER",
    "LABELS",
    "LISTING",
    "MAPPING",
    "NAMES",
    "NUMBER",
    "TEXT",
    "Kind",
    "array",
    "either",
    "instance",
    "listing",
    "maybe",
    "optional",
    "require",
    "rows",
    "tuple_of",
    "verify",
    "within",
]

Axes = dict[str, int]


@dataclass(frozen=True)
class Kind:
    """A test of a value, and how to call what passes it.

    Attributes
    ----------
    accepts : callable
        ``accepts(value, axes)``; lengths of named axes are looked up in ``axes``, or added.
    text : str
        For messages: "must be …".
    required : bool
        Whether the field must be there.
    """

    accepts: Callable[[Any, Axes], bool]
    text: str
    required: bool = True


def _is_number(value: Any, axes: Axes) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_integer(value: Any, axes: Axes) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_names(value: Any, axes: Axes) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1


ANY = Kind(lambda value, axes: True, "anything")
NUMBER = Kind(_is_number, "a number")
INTEGER = Kind(_is_integer, "an integer")
FLAG = Kind(lambda value, axes: isinstance(value, bool | np.bool_), "True or False")
TEXT = Kind(lambda value, axes: isinstance(value, str), "text")
LISTING = Kind(lambda value, axes: isinstance(value, list), "a list")
MAPPING = Kind(lambda value, axes: isinstance(value, dict), "a dict")
LABELS = Kind(lambda value, axes: isinstance(value, set), "a set of labels")
NAMES = Kind(_is_names, "a 1-D array of names")


def array(kinds: str, shape: str) -> Kind:
    """Dense arrays whose dtype is one of ``kinds`` ("f", "i", "b", …) and with these axes."""
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, np.ndarray) or not _holds(value.dtype, kinds):
            return False
        return _fits(value.shape, names, axes)

    what = {"f": "a float", "i": "an integer", "u": "an integer", "b": "a bool"}[kinds[0]]
    return Kind(accepts, f"{what} array of shape ({', '.join(names)})")


def rows(shape: str) -> Kind:
    """Float rows: a dense array, or a sparse one in CSR format."""
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not (isinstance(value, np.ndarray) or sparse.issparse(value)):
            return False
        return _holds(value.dtype, "f") and _fits(value.shape, names, axes)

    return Kind(accepts, f"a float array, dense or CSR, of shape ({', '.join(names)})")


def instance(*names: str) -> Kind:
    """Stored objects of the classes with these names."""
    return Kind(lambda value, axes: type(value).__name__ in names, f"a {' or '.join(names)}")


def listing(kind: Kind) -> Kind:
    """Lists of such things, at least one."""

    def accepts(value: Any, axes: Axes) -> bool:
        return isinstance(value, list) and bool(value) and all(kind.accepts(v, {}) for v in value)

    return Kind(accepts, f"a list, each entry {kind.text}")


def tuple_of(*kinds: Kind) -> Kind:
    """Tuples of as many things, each of its kind."""

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, tuple) or len(value) != len(kinds):
            return False
        return all(kind.accepts(v, axes) for kind, v in zip(kinds, value, strict=True))

    return Kind(accepts, f"a tuple of {', '.join(kind.text for kind in kinds)}")


def either(first: Kind, second: Kind) -> Kind:
    """One or the other."""

    def accepts(value: Any, axes: Axes) -> bool:
        return first.accepts(value, axes) or second.accepts(value, axes)

    return Kind(accepts, f"{first.text} or {second.text}")


def maybe(kind: Kind) -> Kind:
    """The same or None."""
    return Kind(lambda v, axes: v is None or kind.accepts(v, axes), f"{kind.text} or None")


def optional(kind: Kind) -> Kind:
    """A field that may be missing."""
    return replace(kind, required=False)


def verify(
    owner: str,
    values: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    advice: Mapping[str, str] | None = None,
) -> None:
    """Raise a ``ValueError`` unless every value is of its kind; values without one are free.

    ``advice`` is added to the message about the values that have some.
    """
    axes: Axes = {}
    for name, kind in kinds.items():
        if name not in values:
            if kind.required:
                raise ValueError(f"{owner} lacks {name}")
            continue
        value = values[name]
        if not kind.accepts(value, axes):
            known = ", ".join(f"{axis} = {n}" for axis, n in axes.items())
            where = f" (with {known})" if known and "(" in kind.text else ""
            found = f"{name} of {owner} must be {kind.text}{where}; it is {_found(value)}"
            what_to_do = (advice or {}).get(name)
            raise ValueError(f"{found}: {what_to_do}" if what_to_do else found)


def require(condition: bool, text: str) -> None:
    """Raise a ``ValueError`` with this text unless the condition holds."""
    if not condition:
        raise ValueError(text)


def within(indices: Any, n: int) -> bool:
    """Whether all are numbers from 0 to n − 1."""
    return bool(indices.size == 0 or (indices.min() >= 0 and indices.max() < n))


def _holds(dtype: np.dtype[Any], kinds: str) -> bool:
    """Whether the type is of one of the kinds; no linear algebra is done in half precision."""
    return dtype.kind in kinds and (dtype.kind != "f" or dtype.itemsize >= 4)


def _fits(shape: tuple[int, ...], names: list[str], axes: Axes) -> bool:
    """Whether the lengths are those of the axes; unknown axes get theirs if all fit."""
    if len(shape) != len(names):
        return False
    lengths = dict(axes)
    for name, length in zip(names, shape, strict=True):
        if (int(name) if name.isdigit() else lengths.setdefault(name, length)) != length:
            return False
    axes.update(lengths)
    return True


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return f"{value.dtype} of shape {value.shape}"
    return show(value)
