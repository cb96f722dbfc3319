"""Validation of arguments: conversion to plain arrays, or a clear ``ValueError``."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Queries:
    """The number of every row's query, and the id of each number; sorted if they can be."""

    codes: NDArray[np.int64]
    labels: Any

    def __len__(self) -> int:
        return len(self.labels)


def show(value: Any) -> str:
    """Format a value for an error message: its repr if short, otherwise its type."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def json_values(value: Any) -> Any:
    """The same value of types that JSON has; numbers that are not finite are None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)


def check_name(what: str, name: Any) -> str:
    """Return a name that can be read."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ValueError(
            f"{what} must be a string, not empty and without control characters; got {show(name)}"
        )
    return str(name)


def check_feature_names(given: Any, fitted: Sequence[str] | None, n_features: int) -> list[str]:
    """Return new names of the features in their order; names that were fitted stay in place."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"feature_names must be a list of names; got {show(given)}")
    names = [check_name(f"feature_names[{i}]", name) for i, name in enumerate(given)]
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names for {n_features} features")
    for i, name in enumerate(names):
        if names.index(name) < i:
            raise ValueError(
                f"feature_names[{names.index(name)}] and feature_names[{i}] are both {name!r}; "
                "give each feature a different name"
            )
        if fitted is not None and name != fitted[i] and name in fitted:
            raise ValueError(
                f"feature_names[{i}] is {name!r}, the model's own name of feature "
                f"{list(fitted).index(name)}: give other names in the order of the columns that "
                "the model was fitted to, or leave feature_names out"
            )
    return names


def check_option(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``; otherwise raise an error that lists them."""
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        choices = ", ".join(repr(a) for a in allowed)
        near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else ()
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{name} must be one of {choices}; got {show(value)}{hint}")
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a real number, of Python or NumPy; truth values are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, of Python or NumPy; truth values are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA, which does not say whether it is itself."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def check_number(name: str, value: Any, *, above: float = -np.inf) -> float:
    """Return ``value`` as a float if it is a finite real number larger than ``above``."""
    bound = "" if above == -np.inf else f" > {above:g}"
    if not is_number(value):
        raise ValueError(f"{name} must be a number{bound}; got {show(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not above < number < np.inf:
        condition = f"finite and{bound}" if bound else "finite"
        raise ValueError(f"{name} must be {condition}; got {show(value)}")
    return number


check_positive = partial(check_number, above=0.0)


def check_integer(name: str, value: Any, *, least: int) -> int:
    """Return ``value`` as an int if it is an integer that is not smaller than ``least``."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}; got {show(value)}")
    return int(value)


def check_rows(name: str, rows: Any, n: int, *, distinct: bool = True) -> NDArray[np.int64]:
    """Return row numbers in range(n) as int64; distinct ones, also of a mask, are at least one."""
    array = np.asarray(rows)
    if distinct and array.dtype == bool and array.shape == (n,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or (array.dtype.kind not in "iu" if array.size else distinct):
        raise ValueError(f"{name} must be row numbers (integers, 1-D); got {show(rows)}")
    if array.size and (array.min() < 0 or array.max() >= n):
        bad = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} has {bad}, but rows are numbered 0 to {n - 1}")
    if distinct and len(np.unique(array)) != len(array):
        raise ValueError(f"{name} names a row twice")
    return array.astype(np.int64)


def check_length(name: str, values: Any, n: int, of: str = "rows of X") -> None:
    """Raise unless ``values`` has ``n`` entries, one for each of ``of``."""
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} entries for {n} {of}")


def _as_array(name: str, values: Any) -> NDArray[Any]:
    """``np.asarray`` whose failure names the argument (ragged lists, sparse matrices …)."""
    if hasattr(values, "tocsr"):
        raise ValueError(f"{name} must be a dense array or a list, not a sparse matrix")
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} cannot be read as an array: {error}") from error


def refuse_lazy(
    X: Any, name: str = "X", instead: str = "use rankrls.dask.RankRLS or rankrls.dask.RankRLSCV"
) -> None:
    """Raise if X is a Dask collection or a lazy frame of polars, which are not in memory."""
    if type(X).__module__.startswith("polars") and type(X).__name__ == "LazyFrame":
        raise ValueError(
            f"{name} is a LazyFrame, whose rows are not in memory: pass {name}.collect()"
        )
    if type(X).__module__.startswith("dask") and hasattr(X, "__dask_graph__"):
        raise ValueError(
            f"{name} is a Dask {type(X).__name__}, whose rows are not in memory: {instead}, or "
            f"pass {name}.compute() if it is small enough"
        )


def check_finite_array(name: str, values: ArrayLike, *, ndim: tuple[int, ...]) -> NDArray[Any]:
    """Return ``values`` as a float64 array of an allowed ``ndim``, without NaN or infinity."""
    array = _as_array(name, values)
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be real. Complex data not supported")
    if array.dtype.kind in "mM":
        raise ValueError(
            f"{name} must be numeric; got dates or times ({array.dtype}): turn them into numbers "
            "that are meant, such as the age in days"
        )
    try:
        array = array.astype(np.float64, copy=False)
    except (ValueError, TypeError) as error:
        hint = " (higher is better; of two classes: y == 'the positive one')" * (name == "y")
        raise ValueError(
            f"{name} must be numeric; got dtype {array.dtype}: {error}{hint}"
        ) from error
    if array.ndim not in ndim:
        wanted = " or ".join(f"{d}-D" for d in ndim)
        raise ValueError(f"{name} must be {wanted}; got an array of shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        row, *column = np.argwhere(bad)[0]
        place = f"row {row}" + (f", column {column[0]}" if column else "")
        raise ValueError(f"{name} contains NaN or infinity (first at {place})")
    return array


def check_scores(
    y: ArrayLike, n_rows: int | None = None, *, name: str = "y", of: str = "rows of X"
) -> NDArray[Any]:
    """Return scores as a float64 array of shape (n_rows,) or (n_rows, n_outputs)."""
    scores = check_finite_array(name, y, ndim=(1, 2))
    if n_rows is not None:
        check_length(name, scores, n_rows, of)
    if scores.ndim == 2 and scores.shape[1] == 0:
        raise ValueError(f"{name} has no columns: give at least one output")
    return scores


def check_weights(
    name: str, weights: ArrayLike, n: int, of: str = "rows of X", advice: str = ""
) -> NDArray[Any]:
    """Return non-negative weights as a float64 array of shape (n,); one number is for all."""
    weights = _as_array(name, weights)
    array = check_finite_array(name, weights if weights.ndim else np.full(n, weights), ndim=(1,))
    check_length(name, array, n, of)
    negative = np.flatnonzero(array < 0)
    if len(negative):
        where = int(negative[0])
        raise ValueError(f"{name} must be >= 0; entry {where} is {array[where]:g}{advice}")
    return array


def check_magnitudes(magnitude: ArrayLike, n_pairs: int) -> NDArray[Any]:
    """Return the magnitudes of given pairs as a float64 array, all >= 0; 0 is a tie."""
    advice = " (to reverse a preference, swap the pair; to drop it, leave it out; 0: judged equal)"
    magnitude = np.atleast_1d(_as_array("magnitude", magnitude))
    return check_weights("magnitude", magnitude, n_pairs, "pairs", advice)


def check_pairs(pairs: ArrayLike, n_rows: int, *, name: str = "pairs") -> NDArray[np.int64]:
    """Return pairs as an int64 array of shape (n_pairs, 2): row = (preferred, other)."""
    array = _as_array(name, pairs)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(
            f"{name} must have shape (n_pairs, 2), each row (preferred, other); got {array.shape}"
        )
    if array.dtype.kind not in "iuf" or (array != np.rint(array)).any():
        hint = (
            " (names of a data frame's index to numbers: X.index.get_indexer(names); a table "
            "of names: rankrls.datasets.load_preferences(table, items=names))"
        ) * (array.dtype.kind in "OUST")
        raise ValueError(f"{name} must be row numbers (integers); got dtype {array.dtype}{hint}")
    outside = np.any((array < 0) | (array >= n_rows), axis=1)
    wrong = outside if outside.any() else array[:, 0] == array[:, 1]
    if not wrong.any():
        return array.astype(np.int64, copy=False)
    where = int(np.argmax(wrong))
    shown = f"{name}[{where}] = {tuple(array[where].tolist())}"
    if wrong is not outside:
        raise ValueError(f"{shown} prefers a row to itself")
    if -1 in array[where]:
        reason = "X.index.get_indexer(names) gives -1 for a name that is not in the index"
    else:
        reason = (
            f"rows are numbered 0 to {n_rows - 1} (inside a cross-validation or a search, pass "
            "y=PreferenceGraph.from_pairs(...), which follows the split)"
        )
    raise ValueError(f"{shown} is out of range: {reason}")


def encode_qid(qid: Any, n_rows: int, *, name: str = "qid", of: str = "rows of X") -> Queries:
    """Number the queries of ``qid``, any hashable labels; None means one ranking of all rows."""
    if qid is None:
        return Queries(np.zeros(n_rows, dtype=np.int64), [None])
    array = qid if isinstance(qid, np.ndarray) else label_array(name, qid)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, one id for each row; got shape {array.shape}")
    check_length(name, array, n_rows, of)
    if array.dtype.kind in "fcmM":
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            raise ValueError(f"{name} is {array[bad[0]]} at row {bad[0]}: every row needs an id")
    if array.dtype.kind == "O":
        return _encode_objects(name, array)
    if len(array) and (array[1:] >= array[:-1]).all():  # sorted already: no need to sort
        first = np.concatenate([[True], array[1:] != array[:-1]])
        return Queries(np.cumsum(first) - 1, array[first])
    if array.dtype.kind in "iu" and len(array):
        low, high = int(array.min()), int(array.max())
        if high - low < 2 * len(array):  # few gaps: a table of all numbers is faster than sorting
            wide = np.int64 if array.dtype.kind == "i" else np.uint64  # int8 has no range of 255
            offset = (array.astype(wide, copy=False) - wide(low)).astype(np.int64, copy=False)
            present = np.bincount(offset, minlength=high - low + 1) > 0
            labels = np.flatnonzero(present).astype(wide) + wide(low)
            return Queries((np.cumsum(present) - 1)[offset], labels.astype(array.dtype))
    labels, codes = np.unique(array, return_inverse=True)
    return Queries(codes.astype(np.int64, copy=False), labels)


def as_text(words: list[str]) -> NDArray[Any]:
    """Make an array of strings, or of objects if that needs much less memory."""
    # NumPy gives every string the width of the longest, and does not keep NUL at the end.
    different = set(words)
    width = max(map(len, different), default=0)
    narrow = width <= 64 or width * len(words) <= 8 * sum(map(len, different))
    if narrow and not any("\0" in word for word in different):
        return np.array(words, dtype=np.str_)
    return as_objects(words)


def as_objects(values: Any) -> NDArray[Any]:
    """Make an array of objects, shape (n,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def label_array(name: str, qid: Any) -> NDArray[Any]:
    """Make an array of labels; lists of mixed types or tuples become arrays of objects."""
    if hasattr(qid, "to_numpy"):
        arrow = type(qid).__module__.startswith("pyarrow")
        return np.asarray(qid.to_numpy(zero_copy_only=False) if arrow else qid.to_numpy())
    if isinstance(qid, str) or not hasattr(qid, "__len__") or hasattr(qid, "tocsr"):
        raise ValueError(f"{name} must hold one id for each row; got {show(qid)}")
    if hasattr(qid, "__array__"):
        return np.asarray(qid)
    kinds = {type(label) for label in qid}
    if kinds == {str}:
        return as_text(list(qid))
    if len(kinds) == 1 and issubclass(next(iter(kinds)), str | numbers.Number | np.generic):
        return np.asarray(qid)
    return as_objects(qid)


def _encode_objects(name: str, array: NDArray[Any]) -> Queries:
    """Number texts in their order, and other objects by first appearance."""
    values = array.tolist()
    kinds = set(map(type, values))
    if kinds == {str}:
        number = {word: code for code, word in enumerate(sorted(set(values)))}
        codes = np.array([number[word] for word in values], dtype=np.int64)
        return Queries(codes, as_text(list(number)))
    number, codes = {}, np.empty(len(array), dtype=np.int64)
    mixed = any(issubclass(kind, str) for kind in kinds)
    for i, label in enumerate(array):
        if is_missing(label):
            raise ValueError(f"{name} contains {label!r} at row {i}: every row needs an id")
        if mixed and is_integer(label):
            label = str(label)  # 2 and "2" are the same query, as in updates
        try:
            codes[i] = number.setdefault(label, len(number))
        except TypeError as error:
            raise ValueError(f"{name} must hold hashable ids; row {i} is {label!r}") from error
    return Queries(codes, list(number))


def written_integer(text: str) -> int | None:
    """The integer that is written as this text (007 is not), or None."""
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        return None
    number = int(text)
    return number if str(number) == text else None
