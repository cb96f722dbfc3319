"""Records, which state how the objects of a class are stored and rebuilt: one line for each field.

The classes themselves do not depend on the file format. The files `_stored_….py` have a table
``RECORDS`` each; together they are `SCHEMA`, and files cannot refer to other classes. The functions
that a file may refer to are listed here, too.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np
from scipy import special
from sklearn import config_context
from sklearn.utils.validation import check_is_fitted

from rankrls._validation import show
from rankrls.io._kinds import DATA, NAMES, NUMBER_TYPE, SIZE, Kind, maybe, optional, require, verify

#: Attributes of every estimator fitted to a matrix X.
SEEN = {"n_features_in_": SIZE, "feature_names_in_": optional(NAMES)}

#: Methods that support scikit-learn's metadata routing.
ROUTED_METHODS = (
    *("fit", "partial_fit", "predict", "predict_proba", "predict_log_proba", "decision_function"),
    *("score", "split", "transform", "inverse_transform"),
)

Charge = Callable[[int, str], None]


def _fill(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Create an instance with these attributes; only dataclasses are called."""
    if is_dataclass(cls):
        return cls(**fields)
    instance = object.__new__(cls)
    instance.__dict__.update(fields)
    return instance


@dataclass(frozen=True)
class Record:
    """A class that can be stored: what its objects hold, and how they are rebuilt."""

    name: str  # of the class, as in files
    module: str  # of the class, which files never name
    fields: Mapping[str, Kind]  # all stored attributes; an axis n has the length n_features_in_
    #: Parameters of an estimator that are not `DATA`; None: the class can only be a part of one.
    params: Mapping[str, Kind] | None = None
    derived: tuple[str, ...] = ()  # attributes that unpack, finish or the object computes
    dropped: tuple[str, ...] = ("n_jobs",)  # parameters that depend on the machine
    for_learning: tuple[str, ...] = ()  # fields that only incremental learning uses
    advice: Mapping[str, str] = field(default_factory=dict)  # on parameters that are no data
    #: Values of fields, and of parameters, in another form; ``...`` if they are not stored.
    pack: Callable[[Any], dict[str, Any]] | None = None
    pack_params: Callable[[Any], dict[str, Any]] | None = None
    cost: Callable[[dict[str, Any]], int] | None = None  # bytes of rebuilding from the fields
    unpack: Callable[[type[Any], dict[str, Any]], Any] = _fill  # makes what is no estimator
    finish: Callable[[Any], Any] | None = None  # computes derived attributes of an estimator
    #: Raises for what a probe cannot notice: indices in compiled code, options of fits.
    check: Callable[[Any], None] | None = None
    #: Predicts few rows, and returns the number of columns; by default zeros are transformed.
    probe: Callable[[Any], int | None] | None = None

    @property
    def cls(self) -> type[Any]:
        """The class; it is imported on first use."""
        return getattr(importlib.import_module(self.module), self.name)

    def take(self, instance: Any) -> dict[str, dict[str, Any]]:
        """Return the values to be stored, in the sections fields, params and requests."""
        sections: dict[str, dict[str, Any]] = {}
        params: dict[str, Any] = {}
        if self.params is not None:
            check_is_fitted(instance)
            params = instance.get_params(deep=False)
            stored = params | (self.pack_params(instance) if self.pack_params else {})
            sections["params"] = {k: v for k, v in stored.items() if k not in self.dropped}
        ignored = {*self.derived, *params, "_metadata_request"}
        values = getattr(instance, "__dict__", {}) | (self.pack(instance) if self.pack else {})
        values = {name: value for name, value in values.items() if value is not ...}
        unknown = sorted(set(values) - set(self.fields) - ignored)
        if unknown:
            raise ValueError(
                f"{self.name} has an attribute {unknown[0]!r}, which is not one that can be saved "
                "(if you have set it yourself, delete it first)"
            )
        names = [name for name in self.fields if name in values and name not in self.derived]
        sections["fields"] = {name: values[name] for name in names}
        self._verify(sections)
        if self.check is not None:
            self.check(instance)
        requests = _requests(instance) if self.params is not None else {}
        return sections | ({"requests": requests} if requests else {})

    def make(self, sections: dict[str, dict[str, Any]], charge: Charge) -> Any:
        """Rebuild an instance; ``charge(n_bytes, what)`` is called before memory is allocated."""
        fields, params = sections.get("fields", {}), sections.get("params", {})
        known = {} if self.params is None else inspect.signature(self.cls).parameters
        unknown = sorted((set(fields) - set(self.fields)) | (set(params) - set(known)))
        require(not unknown, f"{self.name} has no {', '.join(map(show, unknown[:1]))} here")
        params = {name: value for name, value in params.items() if name not in self.dropped}
        self._verify({"fields": fields, "params": params})
        if self.cost is not None:
            charge(self.cost(fields), f"a {self.name}")
        if self.params is None:
            instance = self.unpack(self.cls, dict(fields))
        else:
            instance = self.cls(**params)
            instance.__dict__.update(fields)
            if self.finish is not None:
                self.finish(instance)
            _set_requests(instance, sections.get("requests", {}))
            check_is_fitted(instance)
        if self.check is not None:
            self.check(instance)
        return instance

    def _verify(self, sections: dict[str, dict[str, Any]]) -> None:
        fields, params = sections["fields"], sections.get("params", {})
        kinds = {"dtype": maybe(NUMBER_TYPE)} | dict(self.params or {})
        kinds = {name: kinds.get(name, DATA) for name in params}
        verify(self.name, params, kinds, advice=self.advice)
        width: Any = fields.get("n_features_in_")
        axes = {"n": width} if SIZE.accepts(width, {}) else {}
        verify(self.name, fields, self.fields, axes=axes)
        names = fields.get("feature_names_in_")
        good = names is None or (len(names) == width and all(isinstance(n, str) for n in names))
        require(good, f"{self.name} has names of other features")


#: Records by name; `rankrls.io._model_files` collects the tables.
SCHEMA: dict[str, Record] = {}


def record_of(value: Any) -> Record | None:
    """Return the record of an object's class, or None; records do not apply to subclasses."""
    record = SCHEMA.get(type(value).__name__)
    return record if record is not None and type(value) is record.cls else None


# -- metadata routing -------------------------------------------------------------------------


def _requests(estimator: Any) -> dict[str, Any]:
    """Return the metadata requests as {method: {name: True, False or an alias}}."""
    request = vars(estimator).get("_metadata_request")
    chosen = {
        method: {k: v for k, v in getattr(request, method).requests.items() if v is not None}
        for method in (ROUTED_METHODS if request is not None else ())
    }
    return {method: requests for method, requests in chosen.items() if requests}


def _set_requests(estimator: Any, requests: dict[str, Any]) -> None:
    with config_context(enable_metadata_routing=True):
        for method, values in requests.items():
            setter = getattr(estimator, f"set_{method}_request", None)
            plain = type(values) is dict and all(type(v) in (bool, str) for v in values.values())
            if method not in ROUTED_METHODS or setter is None or not plain:
                raise ValueError(
                    f"{type(estimator).__name__} takes no request {show(values)} for {show(method)}"
                )
            setter(**values)


# -- functions --------------------------------------------------------------------------------

#: Elementwise functions by their names in files.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{
        f"numpy.{function.__name__}": function
        for function in (
            *(np.log1p, np.log, np.log2, np.log10, np.expm1, np.exp, np.sqrt, np.cbrt, np.square),
            *(np.abs, np.sign, np.negative, np.reciprocal, np.tanh, np.arctan, np.arcsinh),
            *(np.isnan, np.nan_to_num),
        )
    },
    "scipy.special.expit": special.expit,
    "scipy.special.logit": special.logit,
}

#: Score functions of SelectKBest and similar classes. Only ``fit`` uses them; imported when needed.
SELECTION = "sklearn.feature_selection"
SCORE_FUNCTIONS = (
    *("chi2", "f_classif", "f_regression", "r_regression"),
    *("mutual_info_classif", "mutual_info_regression"),
)

_registered: dict[str, Callable[..., Any]] = {}


def register_function(name: str, function: Callable[..., Any]) -> None:
    """Register a function so that model files can refer to it by name.

    This allows storing a ``FunctionTransformer`` that calls the function. A model file holds the
    name, never the code: a program that loads the file must register a function under the same
    name. Some functions of NumPy (``numpy.log1p``, ``sqrt``, ``abs``, …) are always available.

    Parameters
    ----------
    name : str
        Name of the function in files. It must not contain a dot, to differ from names in libraries.
        Registering another function under the same name replaces the first.
    function : callable

    See Also
    --------
    save_model, load_model

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


def name_of(function: Any) -> str | None:
    """Return the name of a function in files, or None if it has none."""
    for name, known in (ELEMENTWISE | _registered).items():
        if known is function:
            return name
    name = getattr(function, "__name__", "")
    if name in SCORE_FUNCTIONS and function_named(f"{SELECTION}.{name}") is function:
        return f"{SELECTION}.{name}"
    return None


def function_named(name: Any) -> Callable[..., Any]:
    """Return the function registered under a name."""
    if type(name) is str:
        known = ELEMENTWISE | _registered
        if name in known:
            return known[name]
        module, _, last = name.rpartition(".")
        if module == SELECTION and last in SCORE_FUNCTIONS:
            return getattr(importlib.import_module(module), last)
        if not module and len(name) <= 60:
            raise ValueError(
                f"it calls a function named {name!r}, which is not known here: call "
                f"rankrls.io.register_function({name!r}, …) before load_model"
            )
    raise ValueError(f"it calls a function that is not known, {show(name)}")


SCORE_FUNCTION = Kind(
    lambda value, axes: (name_of(value) or "").startswith(SELECTION),
    "a function of sklearn.feature_selection, such as f_regression",
)
FUNCTION = Kind(
    lambda value, axes: not (name_of(value) or SELECTION).startswith(SELECTION),
    "a function that was registered by rankrls.io.register_function, or one of "
    + ", ".join(ELEMENTWISE),
)
