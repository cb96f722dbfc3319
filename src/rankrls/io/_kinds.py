"""Kinds of stored values: numbers, text, arrays of a given shape, objects of given classes.

A `Kind` accepts or rejects a value. Array kinds name their axes, as in ``array("f", "n k")``: all
axes with the same name must have the same length within one object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._validation import show

__all__ = [
    "ANY",
    "COUNT",
    "FINITE",
    "FLAG",
    "INDICES",
    "INTEGER",
    "ITEMS",
    "LISTING",
    "NAMES",
    "NUMBER",
    "NUMBERS",
    "NUMBER_TYPE",
    "PLAIN",
    "POSITIVE",
    "SIZE",
    "TEXT",
    "Kind",
    "array",
    "either",
    "instance",
    "is_number_type",
    "listing",
    "mapping",
    "maybe",
    "optional",
    "require",
    "rows",
    "tuple_of",
    "verify",
    "within",
]

Axes = dict[str, int]

Array = NDArray[Any]

#: Number of entries that are checked at a time.
BLOCK = 2**16


@dataclass(frozen=True)
class Kind:
    """A test of a value and a description of the values that pass it.

    Attributes
    ----------
    accepts : callable
        ``accepts(value, axes)``. Lengths of named axes are looked up in ``axes`` or added to it.
    text : str
        Description for messages: "must be …".
    required : bool
        Whether the field is required.
    """

    accepts: Callable[[Any, Axes], bool]
    text: str
    required: bool = True


def _is_number(value: Any, axes: Axes) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= FLOAT_MAX
    return isinstance(value, float | np.integer | np.floating)


def _is_integer(value: Any, axes: Axes) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**64
    return isinstance(value, np.integer)


def _is_names(value: Any, axes: Axes) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1


def _is_finite(value: Any, axes: Axes) -> bool:
    return _is_number(value, axes) and math.isfinite(value)


def _is_count(value: Any, axes: Axes) -> bool:
    return _is_integer(value, axes) and 0 <= value < 2**63


def _is_plain(value: Any, axes: Axes) -> bool:
    return value is None or isinstance(value, bool | str) or _is_number(value, axes)


def is_number_type(value: Any) -> bool:
    """Return whether the value is a numeric type for arrays, such as np.float32 or float."""
    if isinstance(value, type):
        if not (issubclass(value, np.number) or value in (bool, int, float, np.bool_)):
            return False
        value = np.dtype(value)
    return isinstance(value, np.dtype) and value.kind in "biuf" and value.itemsize <= 8


#: The largest number in double precision. NumPy does not convert larger integers to floats.
FLOAT_MAX = float(np.finfo(np.float64).max)

ANY = Kind(lambda value, axes: True, "anything")
PLAIN = Kind(_is_plain, "a number, text, True, False or None")
NUMBER = Kind(_is_number, "a number")
FINITE = Kind(_is_finite, "a finite number")
POSITIVE = Kind(lambda v, axes: _is_finite(v, axes) and v > 0, "a finite number > 0")
INTEGER = Kind(_is_integer, "an integer")
COUNT = Kind(_is_count, "an integer >= 0")
SIZE = Kind(lambda v, axes: _is_count(v, axes) and v >= 1, "an integer >= 1")
FLAG = Kind(lambda value, axes: isinstance(value, bool | np.bool_), "True or False")
TEXT = Kind(lambda value, axes: isinstance(value, str), "text")
LISTING = Kind(lambda value, axes: isinstance(value, list), "a list")
NAMES = Kind(_is_names, "a 1-D array of names")
ITEMS = Kind(_is_names, "a 1-D array of Python objects")
NUMBER_TYPE = Kind(lambda value, axes: is_number_type(value), "a type of numbers, as np.float64")


def _sequence(kind: Kind, dtypes: str, text: str) -> Kind:
    """Return the kind of lists, tuples and 1-D arrays of numbers, as users pass them."""

    def accepts(value: Any, axes: Axes) -> bool:
        if isinstance(value, np.ndarray):
            return value.ndim == 1 and value.dtype.kind in dtypes
        return isinstance(value, list | tuple) and all(kind.accepts(v, axes) for v in value)

    return Kind(accepts, text)


NUMBERS = _sequence(NUMBER, "iuf", "a list or 1-D array of numbers")
INDICES = _sequence(INTEGER, "iu", "a list or 1-D array of integers")


def array(
    kinds: str, shape: str, *, nan: bool = False, infinite: bool | None = None, empty: bool = True
) -> Kind:
    """Return the kind of dense arrays with a dtype of ``kinds`` ("f", "i", "b", …) and these axes.

    Numbers must be finite; ``nan=True`` allows NaN, and also infinity unless ``infinite=False``.
    Axes can have length zero unless ``empty=False``.
    """
    infinite = nan if infinite is None else infinite
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, np.ndarray) or not _holds(value.dtype, kinds):
            return False
        if not _fits(value.shape, names, axes) or not (empty or value.size):
            return False
        return (nan and infinite) or all_finite(value, nan=nan)

    what = {"f": "a float", "i": "an integer", "u": "an integer", "b": "a bool"}[kinds[0]]
    size = "" if empty else ", not empty"
    finite = ", finite" if kinds[0] == "f" and not nan else ""
    return Kind(accepts, f"{what} array of shape ({', '.join(names)}){size}{finite}")


def rows(shape: str) -> Kind:
    """Return the kind of finite float matrices, dense or sparse in CSR format."""
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not (isinstance(value, np.ndarray) or sparse.issparse(value)):
            return False
        if not _holds(value.dtype, "f") or not _fits(value.shape, names, axes):
            return False
        return all_finite(value if isinstance(value, np.ndarray) else value.data)

    return Kind(accepts, f"a float array, dense or CSR, of shape ({', '.join(names)}), finite")


def all_finite(values: Array, *, nan: bool = False) -> bool:
    """Return whether no entry is NaN (unless ``nan``) or infinite, using little memory."""
    if values.dtype.kind != "f":
        return True
    flat = values.ravel(order="K")  # no copy: arrays read from files are contiguous
    parts = (flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK))
    return not any(np.isinf(p).any() if nan else not np.isfinite(p).all() for p in parts)


def instance(*names: str) -> Kind:
    """Return the kind of stored objects of the named classes."""
    return Kind(lambda value, axes: type(value).__name__ in names, f"a {' or '.join(names)}")


def listing(kind: Kind, *, empty: bool = False) -> Kind:
    """Return the kind of lists with entries of the given kind, not empty unless ``empty``."""

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, list) or not (value or empty):
            return False
        return all(kind.accepts(v, {}) for v in value)

    return Kind(accepts, f"a list, each entry {kind.text}")


def mapping(kind: Kind) -> Kind:
    """Return the kind of dicts with string keys and values of the given kind."""

    def accepts(value: Any, axes: Axes) -> bool:
        return isinstance(value, dict) and all(kind.accepts(v, axes) for v in value.values())

    return Kind(accepts, f"a dict, each value {kind.text}")


def tuple_of(*kinds: Kind) -> Kind:
    """Return the kind of tuples with one entry of each given kind."""

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, tuple) or len(value) != len(kinds):
            return False
        return all(kind.accepts(v, axes) for kind, v in zip(kinds, value, strict=True))

    return Kind(accepts, f"a tuple of {', '.join(kind.text for kind in kinds)}")


def either(first: Kind, second: Kind) -> Kind:
    """Return the kind of values that one of the two kinds accepts."""

    def accepts(value: Any, axes: Axes) -> bool:
        return first.accepts(value, axes) or second.accepts(value, axes)

    return Kind(accepts, f"{first.text} or {second.text}")


def maybe(kind: Kind) -> Kind:
    """Return a kind that also accepts None."""
    return Kind(lambda v, axes: v is None or kind.accepts(v, axes), f"{kind.text} or None")


def optional(kind: Kind) -> Kind:
    """Return the same kind for a field that is not required."""
    return replace(kind, required=False)


def verify(
    owner: str,
    values: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    advice: Mapping[str, str] | None = None,
) -> Axes:
    """Raise a ``ValueError`` unless every value is of its kind; values without a kind pass.

    ``advice`` is added to the messages about the values that it names. Return the axis lengths.
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
    return axes


def require(condition: bool, text: str) -> None:
    """Raise a ``ValueError`` with the given text unless the condition holds."""
    if not condition:
        raise ValueError(text)


def within(indices: Any, n: int, *, distinct: bool = False) -> bool:
    """Return whether all indices are between 0 and n − 1, and unique if ``distinct``."""
    if indices.size == 0:
        return True
    if indices.min() < 0 or indices.max() >= n:
        return False
    return not distinct or len(np.unique(indices)) == len(indices)


def _holds(dtype: np.dtype[Any], kinds: str) -> bool:
    """Return whether a dtype is of one of the kinds; half precision is never accepted."""
    return dtype.kind in kinds and (dtype.kind != "f" or dtype.itemsize >= 4)


def _fits(shape: tuple[int, ...], names: list[str], axes: Axes) -> bool:
    """Return whether a shape matches the axes; if it does, record the lengths of new axes."""
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
