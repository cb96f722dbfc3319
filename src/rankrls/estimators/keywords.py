"""Arguments that a method does not have, and that users of other libraries look for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from rankrls._validation import show

__all__ = ["NO_DEVIATIONS", "NO_QID", "check_return_std", "explained"]

F = TypeVar("F", bound=Callable[..., Any])

NO_QID = (
    "predict takes no qid, because the score of a row does not depend on its query: predict all "
    "rows, then sort those of each query by their scores"
)

NO_DEVIATIONS = "it has no standard deviations; RankRLS and RankRLSCV have them"


def explained(**hints: str) -> Callable[[F], F]:
    """Say what to do instead about some arguments that a method or constructor does not have.

    The ``TypeError`` names the class of the object, not the one that defines the method. The
    signature stays as it is written: ``get_params``, ``clone`` and metadata routing read it.

    Parameters
    ----------
    **hints : str
        By the name of the argument.

    Examples
    --------
    >>> class Ranker:
    ...     @explained(size="it is called length")
    ...     def cut(self, length=3):
    ...         return length
    >>> Ranker().cut(length=2)
    2
    >>> Ranker().cut(size=2)
    Traceback (most recent call last):
    TypeError: Ranker.cut() got an unexpected keyword argument 'size': it is called length
    """

    def decorate(method: F) -> F:
        known = set(inspect.signature(method).parameters)
        place = "" if method.__name__ == "__init__" else f".{method.__name__}"

        @functools.wraps(method)
        def checked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name not in known:
                    hint = f": {hints[name]}" if name in hints else ""
                    raise TypeError(
                        f"{type(self).__name__}{place}() got an unexpected keyword argument "
                        f"{name!r}{hint}"
                    )
            return method(self, *args, **kwargs)

        return cast(F, checked)

    return decorate


def check_return_std(value: Any) -> bool:
    """Return ``return_std`` if it is a bool: query ids in its place would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"return_std must be True or False; got {show(value)} ({NO_QID})")
    return bool(value)
