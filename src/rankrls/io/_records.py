"""Records, which state how the objects of a class are stored and rebuilt: one line for each field.

The classes themselves do not depend on the file format. The files `_stored_….py` have a table
``RECORDS`` each; together they are `SCHEMA`, and files cannot refer to other classes. The functions
that a file may refer to are listed here, too.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.utils.validation import check_is_fitted

from rankrls._validation import show
from rankrls.io._kinds import SINGLE, require, verify

Charge = Callable[[int, str], None]

#: Parameters that depend on the machine, which are not stored.
DROPPED = ("n_jobs", "memory")

#: State that only ``partial_fit`` and ``forget`` need, which may be left out.
INCREMENTAL = ("_seen", "_preferences", "_learned_with")

#: Number of features above which the row of a probe is sparse, if the step takes these.
WIDE = 10_000

#: Methods that support scikit-learn's metadata routing.
ROUTED_METHODS = (
    *("fit", "partial_fit", "predict", "predict_proba", "predict_log_proba", "decision_function"),
    *("score", "split", "transform", "inverse_transform"),
)


@dataclass(frozen=True)
class Record:
    """A class that can be stored: what its objects hold, and how they are rebuilt."""

    name: str  # of the class, as in files
    module: str  # of the class, which files never name
    #: Kinds of stored attributes (see `rankrls.io._kinds`); a name with "?" may be absent.
    fields: dict[str, str]
    #: Kinds of parameters of an estimator that are not ``data``; None: a part of an estimator.
    params: dict[str, str] | None = None
    derived: tuple[str, ...] = ()  # attributes of an estimator that ``finish`` computes
    #: Values of fields and parameters in another form; ``...`` if they are not stored.
    pack: Callable[[Any], dict[str, Any]] | None = None
    cost: Callable[[dict[str, Any]], int] | None = None  # bytes of rebuilding from the fields
    #: Computes derived attributes, and raises for what a probe cannot notice: indices in compiled
    #: code, options of methods that the probe does not call.
    finish: Callable[[Any], None] | None = None
    #: Predicts few rows; by default a row of ones is transformed.
    probe: Callable[[Any], Any] | None = None
    row_bytes: int = 64  # that the rows of ``probe`` take for each feature

    @property
    def cls(self) -> type[Any]:
        """The class; it is imported on first use."""
        return getattr(importlib.import_module(self.module), self.name)

    def take(self, instance: Any) -> dict[str, dict[str, Any]]:
        """Return the values to be stored, in the sections params, fields and requests."""
        sections: dict[str, dict[str, Any]] = {}
        packed = self.pack(instance) if self.pack else {}
        values = {k: v for k, v in {**vars(instance), **packed}.items() if v is not ...}
        names = [name.rstrip("?") for name in self.fields]
        if self.params is not None:
            check_is_fitted(instance)
            params = instance.get_params(deep=False)
            stored = {**params, **{k: v for k, v in packed.items() if k in params}}
            sections["params"] = {k: v for k, v in stored.items() if k not in DROPPED}
            ignored = {*params, *names, *self.derived, "_metadata_request"}
            unknown = sorted(set(values) - ignored)
            require(
                not unknown,
                f"{self.name} has an attribute {', '.join(map(repr, unknown))}, which is not one "
                "that can be saved (if you have set it yourself, delete it first)",
            )
            requests = _requests(instance)
            sections |= {"requests": requests} if requests else {}
        return {**sections, "fields": {name: values[name] for name in names if name in values}}

    def make(self, sections: dict[str, dict[str, Any]], charge: Charge) -> Any:
        """Rebuild an instance and try it; ``charge(n_bytes, what)`` precedes large allocations."""
        fields, params = sections.get("fields", {}), sections.get("params", {})
        cls, names = self.cls, {name.rstrip("?") for name in self.fields}
        known = {} if self.params is None else inspect.signature(cls).parameters
        unknown = sorted((set(fields) - names) | (set(params) - set(known)))
        require(not unknown, f"{self.name} has no {', '.join(map(show, unknown[:1]))} here")
        kinds = {"dtype": "dtype | None", **(self.params or {})}
        verify(self.name, params, {name: kinds.get(name, "data") for name in params})
        verify(self.name, fields, self.fields)
        if self.cost is not None:
            charge(self.cost(fields), f"a {self.name}")
        instance: Any
        if self.params is None and is_dataclass(cls):
            instance = cls(**fields)
        else:
            instance = object.__new__(cls) if self.params is None else cls(**params)
            vars(instance).update(fields)
        if self.finish is not None:
            self.finish(instance)
        if self.params is not None:
            if hasattr(cls, "_parameter_constraints"):
                instance._validate_params()
            _set_requests(instance, sections.get("requests", {}))
            check_is_fitted(instance)
            self._try(instance, charge)
        return instance

    def _try(self, instance: Any, charge: Charge) -> None:
        """Raise a ``ValueError`` unless the estimator can predict, or transform, a row."""
        n = getattr(instance, "n_features_in_", 0)
        wide = self.probe is None and n > WIDE and instance.__sklearn_tags__().input_tags.sparse
        if not wide:
            charge(self.row_bytes * n, "a row of features")
        try:
            if self.probe is not None:
                self.probe(instance)
            else:
                instance.transform(sparse.csr_array((1, n)) if wide else np.ones((1, n)))
        except MemoryError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            text = text if len(text) <= 300 else text[:299] + "…"
            raise ValueError(f"not a valid {self.name}, it cannot take a row ({text})") from error


#: Records by name; `rankrls.io._model_files` reads the tables.
SCHEMA: dict[str, Record] = {}

#: Fields that several classes have.
SHARED = {
    "seen": ["n_features_in_: length[n]", "feature_names_in_?: texts[n]"],
    "output": ["_sklearn_output_config?: dict['default' | 'pandas' | 'polars']"],
}


def read_records(table: str, hooks: dict[str, dict[str, Any]]) -> None:
    """Add the records of a table to `SCHEMA`, with further arguments by name.

    A paragraph begins with ``part Name of module``, ``estimator Name OtherName of module`` or
    ``fields name``, and has a line ``name other_name?: kind`` for each kind of field. Other lines
    are ``+ name`` (the fields of that name), ``param name: kind`` and ``derived name other_name``.
    """
    for paragraph in table.strip().split("\n\n"):
        head, *lines = [line.strip() for line in paragraph.strip().splitlines()]
        word, *names = head.split()
        lines = [
            line
            for given in lines
            for line in (SHARED[given[2:]] if given.startswith("+ ") else [given])
        ]
        if word == "fields":
            SHARED[names[0]] = lines
            continue
        fields: dict[str, str] = {}
        params: dict[str, str] = {}
        derived: list[str] = []
        for line in lines:
            keys, _, kind = line.partition(":")
            if keys.startswith("derived "):
                derived += keys.split()[1:]
            elif keys.startswith("param "):
                params |= dict.fromkeys(keys.split()[1:], kind.strip())
            else:
                fields |= dict.fromkeys(keys.split(), kind.strip())
        *classes, _, module = names
        for name in classes:
            options: dict[str, Any] = {"derived": tuple(derived), **hooks.get(name, {})}
            of_estimator = params if word == "estimator" else None
            SCHEMA[name] = Record(name, module, fields, of_estimator, **options)


def record_of(value: Any) -> Record | None:
    """Return the record of an object's class, or None; records do not apply to subclasses."""
    record = SCHEMA.get(type(value).__name__)
    return record if record is not None and type(value) is record.cls else None


def is_estimator(value: Any) -> bool:
    """Return whether the value is an estimator that can be stored."""
    record = record_of(value)
    return record is not None and record.params is not None


# -- metadata routing -------------------------------------------------------------------------


def _requests(estimator: Any) -> dict[str, Any]:
    """Return the metadata requests as {method: {name: True, False or an alias}}."""
    request = vars(estimator).get("_metadata_request")
    chosen = {}
    for method in ROUTED_METHODS if request is not None else ():
        requests = getattr(request, method).requests.items()
        chosen[method] = {name: value for name, value in requests if value is not None}
    return {method: requests for method, requests in chosen.items() if requests}


def _set_requests(estimator: Any, requests: dict[str, Any]) -> None:
    with config_context(enable_metadata_routing=True):
        for method, values in requests.items():
            setter: Any = getattr(estimator, f"set_{method}_request", None)
            plain = type(values) is dict and all(type(v) in (bool, str) for v in values.values())
            require(
                method in ROUTED_METHODS and setter is not None and plain,
                f"{type(estimator).__name__} takes no request {show(values)} for {show(method)}",
            )
            setter(**values)


# -- functions --------------------------------------------------------------------------------

_ELEMENTWISE = "log1p log log2 log10 expm1 exp sqrt cbrt square absolute sign tanh arctan arcsinh"
_SCORES = "chi2 f_classif f_regression r_regression mutual_info_classif mutual_info_regression"

#: Functions that files may always refer to; score functions are those of SelectKBest.
SCORE_FUNCTIONS = {f"sklearn.feature_selection.{name}" for name in _SCORES.split()}
KNOWN = SCORE_FUNCTIONS | {f"numpy.{name}" for name in (*_ELEMENTWISE.split(), "nan_to_num")}

_registered: dict[str, Callable[..., Any]] = {}


def register_function(name: str, function: Callable[..., Any]) -> None:
    """Register a function so that model files can refer to it by name.

    This allows storing a ``FunctionTransformer`` that calls the function. A program that loads the
    file must register it, too. Some functions of NumPy (``numpy.log1p``, …) are always available.

    Parameters
    ----------
    name : str
        Name of the function in files, without a dot. A later function of the name replaces it.
    function : callable

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.io import register_function
    >>> def clipped_log(X):
    ...     return np.log(np.maximum(X, 1e-9))
    >>> register_function("clipped_log", clipped_log)
    """
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"name must be text without a dot; got {show(name)}")
    if not callable(function):
        raise ValueError(f"function must be callable; got {show(function)}")
    _registered[name] = function


def name_of(function: Any) -> str:
    """Return the name of a function in files, empty if it has none."""
    last = f".{getattr(function, '__name__', '')}"
    names = [*_registered, *(name for name in KNOWN if name.endswith(last))]
    return next((name for name in names if function_named(name) is function), "")


def function_named(name: Any) -> Callable[..., Any]:
    """Return the function of a name; only listed functions are imported."""
    known = type(name) is str and (name in _registered or name in KNOWN)
    require(
        known,
        f"it calls a function {show(name)} that is not known here: register it by "
        "rankrls.io.register_function before load_model",
    )
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last) if module else _registered[name]


SINGLE["estimator"] = is_estimator
SINGLE["transformer"] = lambda v: is_estimator(v) and hasattr(v, "transform")
SINGLE["score_function"] = lambda v: name_of(v) in SCORE_FUNCTIONS
SINGLE["function"] = lambda v: name_of(v) not in {"", *SCORE_FUNCTIONS}
