"""Records, which define how the objects of a class are stored and rebuilt.

The classes themselves do not depend on the file format. Each class has a `Record` in one of the
files `_stored_….py`; `_registry.py` collects them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn import config_context
from sklearn.utils.validation import check_is_fitted

from rankrls._validation import show
from rankrls.io._kinds import PLAIN, Kind, verify

__all__ = ["SKOPS", "EstimatorRecord", "Record", "call", "fill"]

#: Advice for an estimator that has no record.
SKOPS = (
    "The package skops stores other estimators of scikit-learn, without pickle: import skops.io as "
    "sio; sio.dump(model, 'model.skops'), and to load it sio.load('model.skops', "
    "trusted=sio.get_untrusted_types(file='model.skops')) after reading that list "
    "(rankrls.io.trusted_types() are the types of this package)"
)

#: Methods that support scikit-learn's metadata routing.
ROUTED_METHODS = (
    "fit",
    "partial_fit",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score",
    "split",
    "transform",
    "inverse_transform",
)


def fill(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Create an instance with these attributes without calling ``__init__``."""
    instance = object.__new__(cls)
    instance.__dict__.update(fields)
    return instance


def call(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Create an instance with its constructor; used for dataclasses."""
    return cls(**fields)


@dataclass(frozen=True)
class Record:
    """A class that can be stored.

    Attributes
    ----------
    name : str
        Name of the class in files.
    module : str
        Module of the class. Files hold only the name, never the module.
    fields : mapping of str to Kind
        All stored fields.
    derived : tuple of str
        Attributes that are not stored because ``unpack`` or the object itself recomputes them.
    pack : callable, optional
        ``pack(instance)`` returns the values of the fields. The default is to read the attributes
        with these names.
    unpack : callable
        ``unpack(cls, values)`` returns the instance.
    cost : callable, optional
        ``cost(values)`` returns the bytes that ``unpack`` uses in addition to the values.
    check : callable, optional
        ``check(instance)`` raises a ``ValueError`` if the parts of the instance are inconsistent.
    class_name : str, optional
        Name of the class in its module, if it differs from the name in files.
    """

    name: str
    module: str
    fields: Mapping[str, Kind]
    derived: tuple[str, ...] = ()
    pack: Callable[[Any], dict[str, Any]] | None = None
    unpack: Callable[[type[Any], dict[str, Any]], Any] = fill
    cost: Callable[[dict[str, Any]], int] | None = None
    check: Callable[[Any], None] | None = None
    class_name: str | None = None

    @property
    def cls(self) -> type[Any]:
        """The class; it is imported on first use."""
        return getattr(importlib.import_module(self.module), self.class_name or self.name)

    def take(self, instance: Any) -> dict[str, dict[str, Any]]:
        """Return the values to be stored, in sections by name."""
        values = vars(instance) if self.pack is None else self.pack(instance)
        values = self._known(values, self.derived)
        verify(self.name, values, self.fields)
        if self.check is not None:
            self.check(instance)
        return {"fields": values}

    def make(self, sections: dict[str, dict[str, Any]], charge: Callable[[int, str], None]) -> Any:
        """Rebuild an instance from the sections; values of the wrong kind raise a ``ValueError``.

        ``charge(n_bytes, what)`` is called before memory is allocated.
        """
        values = self._section(sections, "fields", self.fields)
        verify(self.name, values, self.fields)
        if self.cost is not None:
            charge(self.cost(values), f"a {self.name}")
        instance = self.unpack(self.cls, values)
        if self.check is not None:
            self.check(instance)
        return instance

    def _known(self, attributes: Mapping[str, Any], ignored: tuple[str, ...]) -> dict[str, Any]:
        values = {name: value for name, value in attributes.items() if name not in ignored}
        unknown = sorted(set(values) - set(self.fields))
        if unknown:
            raise ValueError(
                f"{self.name} has an attribute {unknown[0]!r}, which is not one that can be saved "
                "(if you have set it yourself, delete it first)"
            )
        return {name: values[name] for name in self.fields if name in values}

    def _section(
        self, sections: dict[str, dict[str, Any]], name: str, known: Mapping[str, Any]
    ) -> dict[str, Any]:
        values = dict(sections.get(name, {}))
        unknown = sorted(set(values) - set(known))
        if unknown:
            module = self.module.split(".")[0]
            raise ValueError(f"{self.name} of the {module} installed here has no {unknown[0]!r}")
        return values


@dataclass(frozen=True)
class EstimatorRecord(Record):
    """Record of a scikit-learn estimator; its parameters are passed to its constructor.

    Attributes
    ----------
    params : mapping of str to Kind
        Kinds of the parameters. A parameter that is not listed (added by a newer scikit-learn) must
        be a number or text. A parameter missing in a file gets its default.
    dropped : tuple of str
        Parameters that are not stored, and are ignored if a file contains them.
    pack_params : callable, optional
        ``pack_params(estimator)`` returns the parameters that are stored in another form.
    advice : mapping of str to str
        Advice for parameters that cannot be stored.
    for_learning : tuple of str
        Fields that are stored only with the solvers, because only incremental learning uses them.
    finish : callable, optional
        ``finish(estimator)`` recomputes the derived attributes.
    n_out : callable, optional
        ``n_out(estimator)`` returns the number of output features, or None if unknown.
    """

    params: Mapping[str, Kind] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    pack_params: Callable[[Any], dict[str, Any]] | None = None
    advice: Mapping[str, str] = field(default_factory=dict)
    for_learning: tuple[str, ...] = ()
    finish: Callable[[Any], Any] | None = None
    n_out: Callable[[Any], int | None] | None = None

    def take(self, instance: Any) -> dict[str, dict[str, Any]]:
        """Return parameters, fitted attributes and metadata requests."""
        check_is_fitted(instance)
        params = instance.get_params(deep=False)
        ignored = (*self.derived, *params, "_metadata_request")
        if self.pack_params is not None:
            params |= self.pack_params(instance)
        params = {name: value for name, value in params.items() if name not in self.dropped}
        attributes = vars(instance) if self.pack is None else self.pack(instance)
        fields = self._known(attributes, ignored)
        self._verify_params(params)
        self._verify_fields(fields)
        if self.check is not None:
            self.check(instance)
        requests = _requests(instance)
        return {"params": params, "fields": fields} | ({"requests": requests} if requests else {})

    def make(self, sections: dict[str, dict[str, Any]], charge: Callable[[int, str], None]) -> Any:
        """Call the constructor, then set the fitted attributes and the metadata requests."""
        params = self._section(sections, "params", inspect.signature(self.cls).parameters)
        params = {name: value for name, value in params.items() if name not in self.dropped}
        self._verify_params(params)
        fields = self._section(sections, "fields", self.fields)
        self._verify_fields(fields)
        if self.cost is not None:
            charge(self.cost(fields), f"a {self.name}")
        estimator = self.cls(**params)
        estimator.__dict__.update(fields)
        if self.check is not None:
            self.check(estimator)
        if self.finish is not None:
            self.finish(estimator)
        _set_requests(estimator, sections.get("requests", {}))
        check_is_fitted(estimator)
        return estimator

    def _verify_fields(self, fields: dict[str, Any]) -> None:
        """Check the kinds of the fields, and that axes named n have length n_features_in_."""
        axes = verify(self.name, fields, self.fields)
        seen = fields.get("n_features_in_")
        if seen is not None and axes.get("n", seen) != seen:
            raise ValueError(f"{self.name} of {seen} features has values of {axes['n']}")

    def _verify_params(self, params: dict[str, Any]) -> None:
        kinds = {name: self.params.get(name, PLAIN) for name in params}
        verify(self.name, params, kinds, self.advice)


def _requests(estimator: Any) -> dict[str, Any]:
    """Return the metadata requests as {method: {name: True, False or an alias}}."""
    request = vars(estimator).get("_metadata_request")
    if request is None:
        return {}
    found = {method: getattr(request, method).requests for method in ROUTED_METHODS}
    chosen = {
        method: {name: value for name, value in requests.items() if value is not None}
        for method, requests in found.items()
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
