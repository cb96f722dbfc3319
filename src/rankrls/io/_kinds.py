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

Axes = dict[str, int]
Array = NDArray[Any]

#: Number of entries that are checked at a time.
BLOCK = 2**16

#: NumPy does not convert larger integers to floats.
FLOAT_MAX = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Kind:
    """A test of a value, and the text "must be …" for messages; ``first | second`` is either."""

    accepts: Callable[[Any, Axes], bool]
    text: str
    required: bool = True

    def __or__(self, other: Kind) -> Kind:
        def accepts(value: Any, axes: Axes) -> bool:
            return self.accepts(value, axes) or other.accepts(value, axes)

        return Kind(accepts, f"{self.text} or {other.text}")


def _kind(accepts: Callable[[Any], bool], text: str) -> Kind:
    return Kind(lambda value, axes: accepts(value), text)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= FLOAT_MAX
    return isinstance(value, float | np.integer | np.floating)


def _is_integer(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**64
    return isinstance(value, np.integer)


def is_number_type(value: Any) -> bool:
    """Return whether the value is a numeric type for arrays, such as np.float32 or float."""
    if isinstance(value, type):
        if not (issubclass(value, np.number) or value in (bool, int, float, np.bool_)):
            return False
        value = np.dtype(value)
    return isinstance(value, np.dtype) and value.kind in "biuf" and value.itemsize <= 8


def is_item(value: Any) -> bool:
    """Return whether the value is None, a number or text, as entries of object arrays must be."""
    return value is None or isinstance(value, bool | str | np.bool_) or _is_number(value)


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    return is_item(value) or type(value) in (np.ndarray, slice)


ANY = _kind(lambda value: True, "anything")
DATA = _kind(
    _is_data,
    "data: numbers, text, arrays, or lists and dicts of these (a function cannot be stored)",
)
NUMBER = _kind(_is_number, "a number")
FINITE = _kind(lambda v: _is_number(v) and math.isfinite(v), "a finite number")
POSITIVE = _kind(lambda v: _is_number(v) and 0 < v < math.inf, "a finite number > 0")
INTEGER = _kind(_is_integer, "an integer")
COUNT = _kind(lambda v: _is_integer(v) and 0 <= v < 2**63, "an integer >= 0")
SIZE = _kind(lambda v: _is_integer(v) and 1 <= v < 2**63, "an integer >= 1")
FLAG = _kind(lambda value: isinstance(value, bool | np.bool_), "True or False")
TEXT = _kind(lambda value: isinstance(value, str), "text")
PLAIN = _kind(is_item, "a number, text, True, False or None")
NUMBER_TYPE = _kind(is_number_type, "a type of numbers, as np.float64")
NAMES = _kind(
    lambda value: isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1,
    "a 1-D array of text",
)


def array(
    kinds: str,
    shape: str,
    *,
    nan: bool = False,
    infinite: bool = False,
    empty: bool = True,
    least: float | None = None,
    below: str | int | None = None,
    distinct: bool = False,
) -> Kind:
    """Return the kind of dense arrays with a dtype of ``kinds`` ("f", "i", "b", …) and these axes.

    Numbers must be finite unless ``nan`` or ``infinite``, and not less than ``least``. Indices are
    from 0 to ``below`` − 1, a number or the length of an axis, and unique if ``distinct``. Axes can
    have length zero unless ``empty=False``.
    """
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not isinstance(value, np.ndarray) or not _holds(value.dtype, kinds):
            return False
        if not _fits(value.shape, names, axes) or not (empty or value.size):
            return False
        if not _all_finite(value, nan=nan, infinite=infinite):
            return False
        if least is not None and bool((value < least).any()):
            return False
        if below is None:
            return True
        n = below if isinstance(below, int) else axes.get(below, 2**62)
        return within(value, n, distinct=distinct)

    what = {"f": "a float", "i": "an integer", "u": "an integer", "b": "a bool"}[kinds[0]]
    rest = "" if empty else ", not empty"
    rest += ", finite" if kinds[0] == "f" and not (nan or infinite) else ""
    rest += "" if least is None else f", >= {least:g}"
    rest += ", different" if distinct else ""
    rest += "" if below is None else ", >= 0" if below == 2**62 else f", from 0 to {below} - 1"
    return Kind(accepts, f"{what} array of shape ({', '.join(names)}){rest}")


def results(shape: str, kinds: str = "f") -> Kind:
    """Return the kind of arrays of results, which may be NaN or infinite."""
    return array(kinds, shape, nan=True, infinite=True)


def rows(shape: str) -> Kind:
    """Return the kind of finite float matrices, dense or sparse in CSR format."""
    names = shape.split()

    def accepts(value: Any, axes: Axes) -> bool:
        if not (isinstance(value, np.ndarray) or sparse.issparse(value)):
            return False
        if not _holds(value.dtype, "f") or not _fits(value.shape, names, axes):
            return False
        return _all_finite(value if isinstance(value, np.ndarray) else value.data)

    return Kind(accepts, f"a float array, dense or CSR, of shape ({', '.join(names)}), finite")


def instance(*names: str) -> Kind:
    """Return the kind of stored objects of the named classes."""
    return _kind(lambda value: type(value).__name__ in names, f"a {' or '.join(names)}")


def listing(kind: Kind = ANY, *, empty: bool = False) -> Kind:
    """Return the kind of lists with entries of the given kind, not empty unless ``empty``."""

    def accepts(value: Any) -> bool:
        filled = isinstance(value, list) and (empty or bool(value))
        return filled and all(kind.accepts(entry, {}) for entry in value)

    return _kind(accepts, f"a list, each entry {kind.text}")


def mapping(kind: Kind, *, alike: bool = False) -> Kind:
    """Return the kind of dicts of text to a kind; axes agree if the values are ``alike``."""

    def accepts(value: Any) -> bool:
        shared = Axes()
        return isinstance(value, dict) and all(
            kind.accepts(entry, shared if alike else {}) for entry in value.values()
        )

    return _kind(accepts, f"a dict, each value {kind.text}")


def tuple_of(*kinds: Kind) -> Kind:
    """Return the kind of tuples with one entry of each given kind."""

    def accepts(value: Any, axes: Axes) -> bool:
        same = isinstance(value, tuple) and len(value) == len(kinds)
        return same and all(map(lambda kind, v: kind.accepts(v, axes), kinds, value))

    return Kind(accepts, f"a tuple of {', '.join(kind.text for kind in kinds)}")


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
    *,
    advice: Mapping[str, str] | None = None,
    axes: Axes | None = None,
) -> None:
    """Raise a ``ValueError`` unless every value is of its kind, with ``advice`` on some of them."""
    axes = {} if axes is None else axes
    for name, kind in kinds.items():
        if name not in values:
            require(not kind.required, f"{owner} lacks {name}")
        elif not kind.accepts(values[name], axes):
            known = ", ".join(f"{axis} = {n}" for axis, n in axes.items())
            where = f" (with {known})" if known and "(" in kind.text else ""
            hint = f": {advice[name]}" if advice and name in advice else ""
            raise ValueError(
                f"{name} of {owner} must be {kind.text}{where}; it is {_found(values[name])}{hint}"
            )


def require(condition: Any, text: str) -> None:
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


def _all_finite(values: Array, *, nan: bool = False, infinite: bool = False) -> bool:
    """Return whether no entry is NaN or infinite, unless allowed, using little memory."""
    if values.dtype.kind != "f" or (nan and infinite):
        return True
    bad = np.isinf if nan else np.isnan if infinite else lambda part: ~np.isfinite(part)
    flat = values.ravel(order="K")  # no copy: arrays read from files are contiguous
    return not any(bad(flat[i : i + BLOCK]).any() for i in range(0, flat.size, BLOCK))


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return f"{value.dtype} of shape {value.shape}"
    return show(value)
