"""Values as JSON and arrays, and back.

None, bool, int, str, finite floats and lists are what they are in JSON. Everything else is an
object with one tag that says what it is:

    {"float": "nan"}                                 also "inf" and "-inf"
    {"scalar": "float32", "value": 0.5}              a NumPy number
    {"tuple": […]}  {"dict": {…}}
    {"set": […]}                                     labels; integers as an array
    {"array": 3}                                     the third array of the file
    {"strings": […], "shape": […], "dtype": "U"}     an array of text ("O": of Python strings)
    {"csr": "array", "shape": […], "data": …, "indices": …, "indptr": …}
    {"object": "RankRLS", "params": {…}, "fields": {…}}    a class of the registry

Arrays are numbers of fixed size. Nothing here can name, import or call anything that is not in the
registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._validation import show
from rankrls.io._kinds import require
from rankrls.io._labels import compact, expand, ordered
from rankrls.io._records import EstimatorRecord, Record
from rankrls.io._registry import record_named, record_of

__all__ = ["ARRAY_TYPES", "Decoder", "Encoder", "tag_of"]

Array = NDArray[Any]

#: What an array may hold, as NumPy names it.
ARRAY_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

#: Characters that a NumPy array of text may hold.
MAX_CHARACTERS = 2**26

#: The tags, and the keys that come with them (for an object: that may come).
TAGS: dict[str, set[str]] = {
    "float": set(),
    "scalar": {"value"},
    "tuple": set(),
    "dict": set(),
    "set": set(),
    "array": set(),
    "strings": {"shape", "dtype"},
    "csr": {"shape", "data", "indices", "indptr"},
    "object": {"params", "fields", "requests"},
}

SPARSE = {"array": sparse.csr_array, "matrix": sparse.csr_matrix}


class Encoder:
    """Turns values into JSON, and collects the arrays on the way.

    Parameters
    ----------
    uncertainty : bool
        Whether models keep what only standard deviations, probabilities and likelihoods need.

    Attributes
    ----------
    arrays : list of ndarray
        An array that occurs twice is stored once.
    """

    def __init__(self, *, uncertainty: bool = True) -> None:
        self.uncertainty = uncertainty
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, where: str) -> Any:
        """``where`` names the value in messages."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if type(value) is list:
            return self._items(value, where)
        if type(value) is tuple:
            return {"tuple": self._items(value, where)}
        if type(value) is dict:
            wrong = [key for key in value if type(key) is not str]
            if wrong:
                raise ValueError(f"{where} has the key {show(wrong[0])}: keys must be text")
            return {"dict": {k: self.encode(v, f"{where}[{k!r}]") for k, v in value.items()}}
        if type(value) is set:
            return {"set": self.encode(compact(ordered(value)), f"a label in {where}")}
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if type(value) in (np.ndarray, np.memmap):
            return self._array(value, where)
        if sparse.issparse(value):
            return self._sparse(value, where)
        if not self.uncertainty and hasattr(value, "without_uncertainty"):
            value = value.without_uncertainty()
        record = record_of(value)
        if record is None:
            kind = "a function" if callable(value) else show(value)
            raise ValueError(f"{where} is {kind}, which cannot be stored as data")
        return self._object(record, value)

    def _items(self, values: Any, where: str) -> list[Any]:
        return [self.encode(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def _scalar(self, value: np.generic, where: str) -> Any:
        if isinstance(value, np.str_):
            return str(value)
        require(value.dtype.name in ARRAY_TYPES, f"{where} is {value.dtype}: not stored")
        return {"scalar": value.dtype.name, "value": self.encode(value.item(), where)}

    def _array(self, value: Array, where: str) -> Any:
        if value.dtype.kind in "UO":
            flat = value.ravel().tolist()
            if not all(isinstance(v, str) for v in flat):
                raise ValueError(f"{where} is an array of Python objects other than text")
            texts = [str(v) for v in flat]
            if value.dtype.kind == "U":
                _require_narrow(texts, where)
            return {"strings": texts, "shape": list(value.shape), "dtype": value.dtype.kind}
        require(value.dtype.name in ARRAY_TYPES, f"{where} is an array of {value.dtype}")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.arrays)
            self.arrays.append(value)  # which also keeps its id its own
        return {"array": self._numbers[id(value)]}

    def _sparse(self, value: Any, where: str) -> Any:
        kinds = [kind for kind, cls in SPARSE.items() if type(value) is cls]
        if not kinds:
            raise ValueError(f"{where} is a {type(value).__name__}: pass it in CSR format")
        parts = {k: self._array(getattr(value, k), where) for k in ("data", "indices", "indptr")}
        return {"csr": kinds[0], "shape": [int(n) for n in value.shape], **parts}

    def _object(self, record: Record, value: Any) -> Any:
        advice: Mapping[str, str] = {}
        left_out: tuple[str, ...] = ()
        if isinstance(record, EstimatorRecord):
            advice = record.advice
            left_out = () if self.uncertainty else record.for_learning
        encoded: dict[str, Any] = {"object": record.name}
        for section, values in record.take(value).items():
            encoded[section] = part = {}
            for name, item in values.items():
                if name in left_out:
                    continue
                try:
                    part[name] = self.encode(item, f"{name} of {record.name}")
                except ValueError as error:
                    if name not in advice:
                        raise
                    raise ValueError(f"{error}: {advice[name]}") from error
        return encoded


class Decoder:
    """Turns JSON back into values.

    Parameters
    ----------
    array : callable
        ``array(number)`` gives an array of the file.
    """

    def __init__(self, array: Callable[[int], Array]) -> None:
        self._array_of = array

    def decode(self, tree: Any) -> Any:
        """The value; a ``ValueError`` if it is not one that `Encoder` writes."""
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        if type(tree) is list:
            return [self.decode(item) for item in tree]
        tag = tag_of(tree)
        return getattr(self, f"_{tag}")(tree)

    def _float(self, tree: Any) -> float:
        numbers = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
        name = tree["float"]
        require(type(name) is str and name in numbers, f"no such number: {show(name)}")
        return numbers[name]

    def _scalar(self, tree: Any) -> Any:
        name, value = tree["scalar"], self.decode(tree["value"])
        require(name in ARRAY_TYPES, f"no such type of number: {show(name)}")
        dtype = np.dtype(name)
        wanted = {"b": bool, "i": int, "u": int, "f": float}[dtype.kind]
        require(type(value) is wanted, f"{show(value)} is not a {name}")
        with np.errstate(over="ignore"):
            number = np.array(value).astype(dtype)[()]
        require(number.item() == value or value != value, f"{show(value)} is not a {name}")
        return number

    def _tuple(self, tree: Any) -> tuple[Any, ...]:
        require(type(tree["tuple"]) is list, "a tuple that is none")
        return tuple(self.decode(tree["tuple"]))

    def _dict(self, tree: Any) -> dict[str, Any]:
        require(type(tree["dict"]) is dict, "a dict that is none")
        return {key: self.decode(value) for key, value in tree["dict"].items()}

    def _set(self, tree: Any) -> set[Any]:
        return set(expand(self.decode(tree["set"])))

    def _array(self, tree: Any) -> Array:
        return self._array_of(tree["array"])

    def _strings(self, tree: Any) -> Array:
        texts, dtype = tree["strings"], tree["dtype"]
        good = type(texts) is list and all(type(text) is str for text in texts)
        require(good, "an array of text that holds something else")
        require(dtype in ("U", "O"), f"an array of text of type {show(dtype)}")
        if dtype == "U":
            _require_narrow(texts, "an array")
        out = np.array(texts, dtype=str if dtype == "U" else object)
        return out.reshape(_shape(tree["shape"], len(texts)))

    def _csr(self, tree: Any) -> Any:
        kind = tree["csr"]
        require(type(kind) is str and kind in SPARSE, f"no such sparse array: {show(kind)}")
        parts = [self.decode(tree[name]) for name in ("data", "indices", "indptr")]
        for part, dtypes in zip(parts, ("fiub", "i", "i"), strict=True):
            good = isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in dtypes
            require(good, "a sparse array without data and indices")
        out = SPARSE[kind](tuple(parts), shape=_shape(tree["shape"], None))
        # Compiled code trusts the indices, so that they must be checked here.
        out.check_format(full_check=True)
        return out

    def _object(self, tree: Any) -> Any:
        record = record_named(tree["object"])
        sections = {}
        for name in set(tree) - {"object"}:
            require(type(tree[name]) is dict, f"{name} of {record.name} is not an object")
            sections[name] = {key: self.decode(value) for key, value in tree[name].items()}
        return record.make(sections)


def tag_of(tree: Any) -> str:
    """What a tagged object is; its keys must be exactly those that go with the tag."""
    tags = [tag for tag in TAGS if tag in tree]
    if not tags:
        raise ValueError(f"a value of an unknown kind: {show(tree)}")
    keys = set(tree) - {tags[0]}
    good = keys <= TAGS["object"] if tags[0] == "object" else keys == TAGS[tags[0]]
    require(good, f"a value with wrong parts: {show(sorted(tree))}")
    return tags[0]


def _shape(shape: Any, size: int | None) -> tuple[int, ...]:
    good = type(shape) is list and all(type(n) is int and 0 <= n < 2**62 for n in shape)
    require(good and len(shape) <= 32, f"a shape {show(shape)}")
    require(size is None or math.prod(shape) == size, f"shape {show(shape)} of {size} entries")
    return tuple(shape)


def _require_narrow(texts: list[str], where: str) -> None:
    """NumPy stores every text with the length of the longest: a short list may take much memory."""
    size = len(texts) * max(map(len, texts), default=0)
    require(size <= MAX_CHARACTERS, f"{where} of text takes {size:,} characters: too many")
