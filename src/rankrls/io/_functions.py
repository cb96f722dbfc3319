"""Functions that a model file may name: a table, and what a program has added to it.

A file holds the name only. Nothing is looked up anywhere else, so that a file cannot call what the
program has not put there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from rankrls._validation import show

__all__ = ["ELEMENTWISE", "SCORE_FUNCTIONS", "function_named", "name_of", "register_function"]

#: Of one number each, by the name that a file has for them.
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

#: What SelectKBest and its siblings score features by, for fitting only; imported when needed.
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
    """Let model files name a function of yours: one that a ``FunctionTransformer`` calls.

    A model file holds the name, never the code: whoever loads it must have registered a function
    under the same name, and gets that one. Some functions of NumPy (``numpy.log1p``, ``sqrt``,
    ``abs``, …) are known to all.

    Parameters
    ----------
    name : str
        Without a dot, so that it is no name of a library. A second function of the same name takes
        the place of the first.
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
    """The name that files have for a function; None if they have none."""
    for table in (ELEMENTWISE, _registered):
        for name, known in table.items():
            if known is function:
                return name
    name = f"{_SELECTION}.{getattr(function, '__name__', '')}"
    return name if name in SCORE_FUNCTIONS and function_named(name) is function else None


def function_named(name: Any) -> Callable[..., Any]:
    """The function of this name."""
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
