"""Kinds of stored values, written as text: ``"float[n k] nonempty | None"``.

    number finite positive int count size flag text item data dtype any  single values
    'text'  None  ClassName                                              exactly this, or of a class
    float[n k]  int[n]  bool[n]  rows[q n]                               arrays; rows: dense or CSR
    texts[n]  objects[n]                                                 arrays of Python objects
    list[kind]  dict[kind]  tuple[kind, kind]  tuple[kind, ...]          keys of dicts are text
    length[n]                                                            the length of an axis

All axes of the same name must have the same length within one object. Numbers of arrays are finite
unless ``nan``, ``inf`` or ``any`` follows; ``nonempty``, ``distinct``, ``>=0`` and ``<n`` (indices
from 0 to n − 1, for a number or an axis n) may follow as well; ``alike`` after a list or dict means
that the axes of all its arrays agree.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._validation import show

Axes = dict[str, int]
Test = Callable[[Any, Axes], bool]

#: NumPy does not convert larger integers to floats.
FLOAT_MAX = float(np.finfo(np.float64).max)


def require(condition: Any, text: str) -> None:
    """Raise a ``ValueError`` with the given text unless the condition holds."""
    if not condition:
        raise ValueError(text)


def within(indices: Any, n: int) -> bool:
    """Return whether all indices are between 0 and n − 1."""
    return indices.size == 0 or bool(indices.min() >= 0 and indices.max() < n)


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


def _is_number(value: Any, largest: float = FLOAT_MAX) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= largest
    return isinstance(value, float | np.integer | np.floating)


def _is_integer(value: Any, least: int = -(2**63)) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and least <= value < 2**63


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    return is_item(value) or type(value) is np.ndarray


#: Kinds of single values; `rankrls.io._records` adds those of functions and estimators.
SINGLE: dict[str, Callable[[Any], bool]] = {
    "any": lambda v: True,
    "data": _is_data,
    "item": is_item,
    "number": lambda v: _is_number(v, 2**63),
    "finite": lambda v: _is_number(v, 2**63) and math.isfinite(v),
    "positive": lambda v: _is_number(v, 2**63) and 0 < v < math.inf,
    "int": _is_integer,
    "count": lambda v: _is_integer(v, 0),
    "size": lambda v: _is_integer(v, 1),
    "flag": lambda v: isinstance(v, bool | np.bool_),
    "text": lambda v: isinstance(v, str),
    "dtype": is_number_type,
    "None": lambda v: v is None,
}

DTYPES = {"float": "f", "int": "i", "bool": "b", "rows": "f", "texts": "O", "objects": "O"}


@functools.cache
def test_of(kind: str) -> Test:
    """Return a function of a value and the lengths of known axes: whether it is of the kind."""
    tests = [_test(part) for part in _split(kind, "|")]
    return lambda value, axes: any(test(value, axes) for test in tests)


def _split(text: str, separator: str) -> list[str]:
    """Split a text, but not inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _test(text: str) -> Test:
    if text.startswith("'"):
        return lambda value, axes: isinstance(value, str) and value == text[1:-1]
    found = re.fullmatch(r"(\w+)(?:\[(.*)\])?(.*)", text)
    assert found is not None, text
    name, inner, flags = found[1], found[2], set(found[3].split())
    if name in DTYPES and inner is not None:
        return functools.partial(_is_array, name, inner.split(), flags)
    if name == "length":
        return lambda v, axes: _is_integer(v, 1) and _fits((int(v),), [inner], axes)
    if name in ("list", "dict"):
        cls: Any = {"list": list, "dict": dict}[name]
        test = test_of(inner)

        def holds(value: Any, axes: Axes) -> bool:
            if not isinstance(value, cls) or (not value and "nonempty" in flags):
                return False
            shared: Axes | None = {} if "alike" in flags else None
            entries = value.values() if name == "dict" else value
            return all(test(v, {} if shared is None else shared) for v in entries)

        return holds
    if name == "tuple":
        tests = [test_of(part) for part in _split(inner, ",") if part != "..."]
        same = inner.endswith("...")

        def matches(value: Any, axes: Axes) -> bool:
            if not isinstance(value, tuple) or not (same or len(value) == len(tests)):
                return False
            each = tests * len(value) if same else tests
            return all(test(entry, axes) for test, entry in zip(each, value, strict=True))

        return matches
    if name in SINGLE:
        single = SINGLE[name]
        return lambda value, axes: single(value) and _in_bounds(value, flags, axes)
    return lambda value, axes: type(value).__name__ == name


def _is_array(name: str, names: list[str], flags: set[str], value: Any, axes: Axes) -> bool:
    is_sparse = name == "rows" and sparse.issparse(value)
    if not (is_sparse or isinstance(value, np.ndarray)) or value.dtype.kind != DTYPES[name]:
        return False
    if value.dtype == np.float16 or not _fits(value.shape, names, axes):
        return False
    data = value.data if is_sparse else value
    if not data.size and "nonempty" in flags:
        return False
    if name == "texts" and not all(isinstance(entry, str) for entry in data.flat):
        return False
    if name in ("float", "rows") and "any" not in flags:
        bad = ~np.isfinite(data)
        if "nan" in flags or "inf" in flags:
            bad &= np.isinf(data) if "nan" in flags else np.isnan(data)
        if bad.any():
            return False
    return _in_bounds(data, flags, axes)


def _in_bounds(values: Any, flags: set[str], axes: Axes) -> bool:
    for flag in flags:
        if flag.startswith(">=") and np.any(np.less(values, float(flag[2:]))):
            return False
        if flag.startswith("<"):
            n = int(flag[1:]) if flag[1:].isdigit() else axes.get(flag[1:], 0)
            if not within(values, n):
                return False
        if flag == "distinct" and len(np.unique(values)) != len(values):
            return False
    return True


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


def verify(owner: str, values: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Raise a ``ValueError`` unless every value is of its kind; a name with "?" may be absent."""
    axes: Axes = {}
    for key, kind in kinds.items():
        name = key.rstrip("?")
        if name not in values:
            require(key != name, f"{owner} lacks {name}")
        elif not test_of(kind)(values[name], axes):
            value, known = values[name], ", ".join(f"{axis} = {n}" for axis, n in axes.items())
            is_array = isinstance(value, np.ndarray) or sparse.issparse(value)
            found = f"{value.dtype} of shape {value.shape}" if is_array else show(value)
            if is_array and value.dtype.kind == "f" and not np.isfinite(value.sum()):
                found += ", not finite"
            where = f" (with {known})" if known and "[" in kind else ""
            raise ValueError(f"{name} of {owner} must be {kind}{where}; it is {found}")
