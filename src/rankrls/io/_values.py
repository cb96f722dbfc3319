"""Conversion of values to JSON and arrays, and back.

None, bool, int, str, finite floats and lists are stored as JSON. Any other value is stored as a
JSON object with a tag for its type:

    {"float": "nan"}                                 also "inf" and "-inf"
    {"scalar": "float32", "value": 0.5}              a NumPy number
    {"tuple": […]}  {"dict": {…}}
    {"array": 3}                                     the third array of the file
    {"items": […], "shape": […], "dtype": "O"}       an array of Python values ("U": of text)
    {"csr": "array", "shape": […], "data": …, "indices": …, "indptr": …}
    {"dtype": "float64"}                             a type of NumPy's numbers
    {"function": "numpy.log1p"}                      a function of `rankrls.io._records`
    {"object": "RankRLS", "params": {…}, "fields": {…}}    a class of `SCHEMA`

Arrays contain numbers of fixed size. A value can only refer to classes and functions that are
listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._validation import show
from rankrls.io._archive import ARRAY_TYPES
from rankrls.io._kinds import is_item, is_number_type, require, within
from rankrls.io._records import (
    INCREMENTAL,
    SCHEMA,
    Record,
    function_named,
    name_of,
    record_of,
)

Array = NDArray[Any]

#: Columns of a sparse array in addition to one per stored byte; products allocate all columns.
MAX_COLUMNS = 2**26

#: Maximum number of estimators in one file: pipelines have a few steps.
MAX_ESTIMATORS = 1000

#: Maximum nesting of estimators: an imputer in a pipeline in a column transformer in a pipeline is
#: nested three deep. The cost of some calls of scikit-learn doubles with each level.
MAX_NESTING = 8

#: The tags and the keys that accompany them (optional for objects).
TAGS: dict[str, set[str]] = {
    "scalar": {"value"},
    "items": {"shape", "dtype"},
    "csr": {"shape", "data", "indices", "indptr"},
    "object": {"params", "fields", "requests"},
    **{tag: set() for tag in ("array", "float", "tuple", "dict", "dtype", "function")},
}

SPARSE = {"array": sparse.csr_array, "matrix": sparse.csr_matrix}


def what_can_be_saved() -> str:
    """Return the names of the supported estimators and other advice, for messages."""
    names = sorted(record.name for record in SCHEMA.values() if record.params is not None)
    return (
        f"these can: {', '.join(names)}. The package skops stores other estimators of "
        "scikit-learn, without pickle: import skops.io as sio; sio.dump(model, 'model.skops'), and "
        "to load it sio.load('model.skops', trusted=sio.get_untrusted_types(file='model.skops')) "
        "after reading that list (rankrls.io.trusted_types() are the types of this package)"
    )


class Encoder:
    """Converter of values to JSON that collects the arrays."""

    def __init__(self, *, uncertainty: bool = True) -> None:
        self.uncertainty = uncertainty
        self.arrays: list[Array] = []
        self._numbers: dict[int, tuple[int, Array]] = {}  # by id, which the array keeps unique

    def encode(self, value: Any, where: str) -> Any:
        """Return the JSON form of a value; ``where`` names the value in messages."""
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
            require(not wrong, f"{where} has the key {show(wrong[:1])}: keys must be text")
            return {"dict": {k: self.encode(v, f"{where}[{k!r}]") for k, v in value.items()}}
        if isinstance(value, np.str_):
            return str(value)
        if isinstance(value, np.generic):
            require(value.dtype.name in ARRAY_TYPES, f"{where} is {value.dtype}: not stored")
            return {"scalar": value.dtype.name, "value": self.encode(value.item(), where)}
        if type(value) in (np.ndarray, np.memmap):
            return self._array(value, where)
        if sparse.issparse(value):
            kinds = [kind for kind, cls in SPARSE.items() if type(value) is cls]
            require(kinds, f"{where} is a {type(value).__name__}: pass it in CSR format")
            names = ("data", "indices", "indptr")
            parts = {name: self._array(getattr(value, name), where) for name in names}
            return {"csr": kinds[0], "shape": [int(n) for n in value.shape], **parts}
        if is_number_type(value):
            return {"dtype": np.dtype(value).name}
        if not self.uncertainty and hasattr(value, "without_uncertainty"):
            value = value.without_uncertainty()
        record = record_of(value)
        if record is not None:
            return self._object(record, value)
        if name := name_of(value):
            return {"function": name}
        if hasattr(value, "get_params"):
            kind = f"{where} is a {type(value).__name__}"
            raise ValueError(f"{kind}, which cannot be saved; {what_can_be_saved()}")
        kind = "a function" if callable(value) else show(value)
        raise ValueError(
            f"{where} is {kind}, which cannot be stored as data: give kernels by name or "
            "precomputed, functions by rankrls.io.register_function, and replace what matters for "
            "fitting only by set_params before saving"
        )

    def _items(self, values: Any, where: str) -> list[Any]:
        return [self.encode(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def _array(self, value: Array, where: str) -> Any:
        if value.dtype.kind in "UO":
            flat, shape = value.ravel().tolist(), list(value.shape)
            require(all(map(is_item, flat)), f"{where} is an array of Python objects")
            return {"items": self._items(flat, where), "shape": shape, "dtype": value.dtype.kind}
        require(value.dtype.name in ARRAY_TYPES, f"{where} is an array of {value.dtype}")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.arrays), value
            self.arrays.append(value)
        return {"array": self._numbers[id(value)][0]}

    def _object(self, record: Record, value: Any) -> Any:
        left_out = () if self.uncertainty else INCREMENTAL
        encoded: dict[str, Any] = {"object": record.name}
        for section, values in record.take(value).items():
            encoded[section] = {
                name: self.encode(item, f"{name} of {record.name}")
                for name, item in values.items()
                if name not in left_out
            }
        return encoded


class Decoder:
    """Converter of JSON to values."""

    def __init__(self, array: Callable[[int], Array], charge: Callable[[int, str], None]) -> None:
        self._array_of = array
        self._charge = charge
        self._n_estimators = self._nesting = 0
        #: Path to the value being decoded: names of an object, its field, the object in it, etc.
        self.where: list[str] = []

    def decode(self, tree: Any) -> Any:
        """Return the value; raise a ``ValueError`` if `Encoder` does not write such a tree."""
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        if type(tree) is list:
            self._charge(56 + 9 * len(tree), "a list")
            return [self.decode(item) for item in tree]
        return getattr(self, f"_{tag_of(tree)}")(tree)

    def _float(self, tree: Any) -> float:
        require(tree["float"] in ("nan", "inf", "-inf"), f"no such number: {show(tree['float'])}")
        return float(tree["float"])

    def _scalar(self, tree: Any) -> Any:
        dtype, value = self._dtype({"dtype": tree["scalar"]}), self.decode(tree["value"])
        require(type(value) in (bool, int, float), f"{show(value)} is not a {dtype.__name__}")
        with np.errstate(over="ignore"):
            number = np.array(value).astype(dtype)[()]
        good = number.item() == value or value != value
        require(good, f"{show(value)} is not a {dtype.__name__}")
        return number

    def _tuple(self, tree: Any) -> tuple[Any, ...]:
        require(type(tree["tuple"]) is list, "expected the entries of a tuple")
        return tuple(self.decode(tree["tuple"]))

    def _dict(self, tree: Any) -> dict[str, Any]:
        require(type(tree["dict"]) is dict, "expected a dict")
        self._charge(64 + 120 * len(tree["dict"]), "a dict")
        return {key: self.decode(value) for key, value in tree["dict"].items()}

    def _array(self, tree: Any) -> Array:
        return self._array_of(tree["array"])

    def _items(self, tree: Any) -> Array:
        require(type(tree["items"]) is list, "expected the entries of an array")
        items, is_text = self.decode(tree["items"]), tree["dtype"] == "U"
        good = all(type(item) is str for item in items) if is_text else all(map(is_item, items))
        require(good and tree["dtype"] in ("U", "O"), "an array of other values than it says")
        # NumPy stores every text with the length of the longest.
        width = max(map(len, items), default=0) if is_text else 2
        self._charge(4 * width * len(items), "an array of text")
        out = np.empty(len(items), dtype=object)
        out[:] = items
        out = out.astype(str) if is_text else out
        return out.reshape(_shape(tree["shape"], len(items)))

    def _dtype(self, tree: Any) -> Any:
        require(tree["dtype"] in ARRAY_TYPES, f"no such type of number: {show(tree['dtype'])}")
        return np.dtype(tree["dtype"]).type

    def _function(self, tree: Any) -> Any:
        return function_named(tree["function"])

    def _csr(self, tree: Any) -> Any:
        """Check rows and column indices: compiled code does not, SciPy's checks miss overflows."""
        kind, shape = tree["csr"], _shape(tree["shape"], None)
        require(type(kind) is str and kind in SPARSE, f"no such sparse array: {show(kind)}")
        require(len(shape) == 2, f"a sparse array of shape {shape}")
        parts = [self.decode(tree[name]) for name in ("data", "indices", "indptr")]
        for part, dtypes in zip(parts, ("fiub", "i", "i"), strict=True):
            good = isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in dtypes
            require(good, "a sparse array without data and indices")
        data, indices, indptr = parts
        self._charge(sum(part.nbytes for part in parts), "a sparse array")
        limit = MAX_COLUMNS + data.nbytes
        text = f"a sparse array has {shape[1]:,} columns, and may have {limit:,}"
        require(shape[1] <= limit, text)
        good = len(indptr) == shape[0] + 1 and len(data) == len(indices) >= int(indptr[-1])
        good = good and indptr[0] == 0 and bool((indptr[1:] >= indptr[:-1]).all())
        good = good and within(indices[: int(indptr[-1])], shape[1])
        require(good, "a sparse array whose rows overlap, or have entries in no column")
        return SPARSE[kind](tuple(parts), shape=shape)

    def _object(self, tree: Any) -> Any:
        name = tree["object"]
        known = type(name) is str and name in SCHEMA
        require(known, f"it holds an object of an unknown type, {show(name)}")
        record = SCHEMA[name]
        is_estimator = record.params is not None
        self.where.append(name)
        # Check before any estimator is created.
        self._nesting += is_estimator
        self._n_estimators += is_estimator
        require(
            self._nesting <= MAX_NESTING,
            f"estimators are nested more than {MAX_NESTING} deep: put the steps into one pipeline",
        )
        require(self._n_estimators <= MAX_ESTIMATORS, f"more than {MAX_ESTIMATORS} estimators")
        sections: dict[str, dict[str, Any]] = {}
        for section in set(tree) - {"object"}:
            require(type(tree[section]) is dict, f"{section} of {name} is not an object")
            self._charge(200 + 120 * len(tree[section]), f"a {name}")
            sections[section] = {}
            for key, value in tree[section].items():
                self.where.append(key)
                sections[section][key] = self.decode(value)
                self.where.pop()
        made = record.make(sections, self._charge)
        self._nesting -= is_estimator
        self.where.pop()
        return made


def tag_of(tree: Any) -> str:
    """Return the tag of a tagged object; its keys must be exactly those of the tag."""
    tags = [tag for tag in TAGS if tag in tree]
    require(tags, f"a value of an unknown kind: {show(tree)}")
    tag, keys = tags[0], set(tree) - {tags[0]}
    good = keys <= TAGS[tag] if tag == "object" else keys == TAGS[tag]
    require(good, f"a value with wrong parts: {show(sorted(tree))}")
    return tag


def _shape(shape: Any, size: int | None) -> tuple[int, ...]:
    good = type(shape) is list and all(type(n) is int and 0 <= n < 2**62 for n in shape)
    require(good and len(shape) <= 32, f"a shape {show(shape)}")
    require(size is None or math.prod(shape) == size, f"shape {show(shape)} of {size} entries")
    return tuple(shape)
