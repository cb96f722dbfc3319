"""Methods that only some models have, and that change everything or nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

__all__ = ["IncrementalMethod", "NotIncrementalError", "unchanged_on_error"]


class NotIncrementalError(ValueError, AttributeError):
    """The model is not one that can learn batch by batch; the message says which one can."""


class IncrementalMethod:
    """A method that exists only where the model can be updated exactly.

    scikit-learn asks ``hasattr(estimator, "partial_fit")``; the error that answers it says why.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        reason = instance._why_not_incremental()
        if reason:
            raise NotIncrementalError(f"{self.method.__name__}: {reason}")
        return MethodType(self.method, instance)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Put all attributes back if something fails; none of them is changed in place before."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
