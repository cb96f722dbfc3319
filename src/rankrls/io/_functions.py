"""Table of the functions that a model file can refer to, including registered ones.

A file holds only the name of a function. Names are looked up in this table only, so that a file
cannot call any other function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from rankrls._validation import show

__all__ = ["ELEMENTWISE", "SCORE_FUNCTIONS", "function_named", "name_of", "register_function"]

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
_SELECTION = "sklearn.feature_selection"
SCORE_FUNCTIONS = tuple(
    f"{_SELECTION}.{name}"
    for name in (
        *("chi2", "f_classif", "f_regression", "r_regression"),
        *("mutual_info_classif", "mutual_info_regression"),
    )
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
    for table in (ELEMENTWISE, _registered):
        for name, known in table.items():
            if known is function:
                return name
    name = f"{_SELECTION}.{getattr(function, '__name__', '')}"
    return name if name in SCORE_FUNCTIONS and function_named(name) is function else None


def function_named(name: Any) -> Callable[..., Any]:
    """Return the function registered under a name."""
    if type(name) is str:
        for table in (ELEMENTWISE, _registered):
            if name in table:
                return table[name]
        if name in SCORE_FUNCTIONS:
            return getattr(importlib.import_module(_SELECTION), name.rpartition(".")[2])
        if "." not in name and len(name) <= 60:
            raise ValueError(
                f"it calls a function named {name!r}, which is not known here: call "
                f"rankrls.io.register_function({name!r}, …) before load_model"
            )
    raise ValueError(f"it calls a function that is not known, {show(name)}")
