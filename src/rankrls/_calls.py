"""What surrounds the calls of public functions and methods.

Warnings name the user's own line. Arguments that a
function does not have are a ``TypeError`` that says what to do instead. A call that fails or is
interrupted leaves an estimator as it was, and calls that change the same estimator from several
threads wait for each other. Imports nothing of rankrls.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "all_or_nothing",
    "at_end_of_call",
    "explained",
    "library_frames",
    "names_queries",
    "queries_of_sizes",
    "takes_queries",
    "unchanged_on_error",
    "warn",
    "whole_call",
]

#: Packages and modules whose frames stand between a warning and the program that caused it: a
#: pipeline calls fit, a decorator or a pool of threads calls a function of ours.
LIBRARIES = {
    *("rankrls", "sklearn", "joblib", "numpy", "scipy", "dask", "distributed", "pyterrier"),
    *("concurrent", "contextlib", "functools", "threading"),
}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the user's line, the innermost frame that is not of `LIBRARIES`.

    Parameters
    ----------
    message : str
    category : subclass of Warning
    """
    frame = _users_frame()
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__") or "<unknown>",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def library_frames() -> Iterator[FrameType]:
    """Frames of `LIBRARIES` that are at work, from here out to the user's program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in LIBRARIES:
        yield frame
        frame = frame.f_back


def _users_frame() -> FrameType:
    """The innermost frame of the user's program; in a thread of a pool the outermost one of all."""
    *_, last = library_frames()
    return last if last.f_back is None else last.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


F = TypeVar("F", bound=Callable[..., Any])

_REPEATED = (
    "qid holds the query of every row; from sizes of consecutive queries it is "
    "qid=np.repeat(np.arange(len(group)), group)"
)
_SIZES = "sizes of consecutive queries are called group"
_CALLED = "the query of every row is called qid"


def explained(**hints: str) -> Callable[[F], F]:
    """Say what to do about some arguments that a function, method or constructor does not have.

    The ``TypeError`` names the class of the object, not the one that defines the method. Arguments
    that go by name and were given by position are named, too. The signature stays as it is
    written: ``get_params``, ``clone`` and metadata routing read it.

    Parameters
    ----------
    **hints : str
        By the name of the argument.

    Examples
    --------
    >>> class Ranker:
    ...     @explained(size="it is called length")
    ...     def cut(self, length=3, *, left=False):
    ...         return length
    >>> Ranker().cut(length=2)
    2
    >>> Ranker().cut(size=2)
    Traceback (most recent call last):
    TypeError: Ranker.cut() got an unexpected keyword argument 'size': it is called length
    >>> Ranker().cut(2, True)
    Traceback (most recent call last):
    TypeError: Ranker.cut() takes length as positional arguments, and what follows by name: left=…
    """

    def decorate(function: F) -> F:
        parameters = list(inspect.signature(function).parameters.values())
        kinds = {p.name: p.kind for p in parameters}
        method = bool(parameters) and parameters[0].name in ("self", "cls")
        by_position = [n for n, kind in kinds.items() if kind == kind.POSITIONAL_OR_KEYWORD]
        by_name = [n for n, kind in kinds.items() if kind == kind.KEYWORD_ONLY]
        limited = inspect.Parameter.VAR_POSITIONAL not in kinds.values()
        open_ended = inspect.Parameter.VAR_KEYWORD in kinds.values()

        def name_of(args: tuple[Any, ...]) -> str:
            if not method:
                return function.__name__
            place = "" if function.__name__ == "__init__" else f".{function.__name__}"
            owner = args[0] if isinstance(args[0], type) else type(args[0])
            return owner.__name__ + place

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name not in kinds and (name in hints or not open_ended):
                    hint = f": {hints[name]}" if name in hints else ""
                    raise TypeError(
                        f"{name_of(args)}() got an unexpected keyword argument {name!r}{hint}"
                    )
            if limited and by_name and len(args) > len(by_position):
                *first, last = by_position[method:]
                taken = ", ".join(first) + " and " * bool(first) + last
                shown = ", ".join(f"{name}=…" for name in by_name[:6]) + ", …" * (len(by_name) > 6)
                raise TypeError(
                    f"{name_of(args)}() takes {taken} as positional arguments, and what follows "
                    f"by name: {shown}"
                )
            return function(*args, **kwargs)

        return cast(F, checked)

    return decorate


_VALIDATION = (
    "rankers choose alpha from the training queries (RankRLSCV) and take no others; in PyTerrier "
    "use rankrls.pyterrier.PyTerrierLearner(ranker)"
)
_OTHER_NAMES = dict.fromkeys(("groups", "group_id", "query", "query_id", "qids"), _CALLED)

#: For what takes ``qid`` and no ``group``: names that other libraries have for it.
names_queries = explained(group=_REPEATED, group_sizes=_REPEATED, **_OTHER_NAMES)

_names_queries_or_sizes = explained(
    group_sizes=_SIZES, **_OTHER_NAMES, eval_set=_VALIDATION, eval_group=_VALIDATION
)

#: Arguments with one entry for each row, the first of them that is there.
_BY_ROW = ("X", "y_true", "y", "y_score", "y_score_a", "scores", "data")


def takes_queries(function: F) -> F:
    """Let a function that takes ``qid`` take ``group`` in its place.

    ``group`` holds the sizes of consecutive queries, as in LightGBM and XGBoost; the function is
    given the query of every row. The signature, which metadata routing reads, stays as it is
    written: sizes cannot be split with the rows. Other names of ``qid`` are explained.

    Examples
    --------
    >>> @takes_queries
    ... def queries(X, *, qid=None):
    ...     return qid.tolist()
    >>> queries([5.0, 6.0, 7.0], group=[1, 2])
    [0, 1, 1]
    """
    checked = _names_queries_or_sizes(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def with_group(*args: Any, **kwargs: Any) -> Any:
        group = kwargs.pop("group", None)
        if group is None:
            return checked(*args, **kwargs)
        if kwargs.get("qid") is not None:
            raise ValueError(
                "give qid, the query of every row, or group, the sizes of consecutive queries, "
                "not both"
            )
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            return checked(*args, **kwargs)  # which says what is wrong
        return checked(*args, **kwargs, qid=queries_of_sizes(group, given))

    return cast(F, with_group)


def queries_of_sizes(group: Any, given: dict[str, Any]) -> NDArray[np.int64]:
    """The query of every row from sizes of consecutive queries."""
    sizes = np.asarray(group)
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iu":
        raise ValueError(
            "group must hold the sizes of consecutive queries, integers in one dimension; got "
            f"{sizes.dtype} of shape {sizes.shape}"
        )
    if (sizes < 0).any():
        raise ValueError(f"group holds sizes of queries, which are >= 0; one is {sizes.min()}")
    name = next((name for name in _BY_ROW if given.get(name) is not None), None)
    if name is not None:
        rows = given[name]
        if isinstance(rows, Mapping):
            rows = rows.get("data", ())
        n_rows = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        total = int(sizes.sum())
        if total != n_rows:
            hint = " (the query of every row is called qid)" if len(sizes) == n_rows else ""
            raise ValueError(
                f"group has {len(sizes)} sizes that add up to {total} rows, and {name} has "
                f"{n_rows}{hint}"
            )
    return np.repeat(np.arange(len(sizes)), sizes)


#: A lock for every estimator that is being changed or was; not one of its attributes, which are
#: pickled, cloned and copied.
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # a child has none of the threads that hold them
    os.register_at_fork(after_in_child=_locks.clear)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[list[Callable[[], None]]]:
    """Put all attributes back if something fails; none of them is changed in place before.

    Gives a list: functions in it are called as well, to undo changes of other objects. The
    estimator is locked meanwhile, for other threads.
    """
    undo: list[Callable[[], None]] = []
    with _lock(estimator), whole_call():
        before = dict(estimator.__dict__)
        try:
            yield undo
        except BaseException:
            object.__setattr__(estimator, "__dict__", before)
            for function in undo:
                function()
            raise


#: Of each thread: how many such calls are under way, and what is called after the outermost.
_calls = threading.local()


@contextmanager
def whole_call() -> Iterator[None]:
    """What is inside is one call of the user for `at_end_of_call`, or part of one."""
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    finally:
        _calls.depth -= 1
        if not _calls.depth:
            for function in _calls.__dict__.pop("at_end", ()):
                function()


def at_end_of_call(function: Callable[[], None]) -> bool:
    """Have a function called when the outermost call of this thread ends, however it does.

    False, and nothing is called, outside of all.
    """
    if not getattr(_calls, "depth", 0):
        return False
    _calls.__dict__.setdefault("at_end", []).append(function)
    return True


def all_or_nothing(method: F) -> F:
    """Make a method leave its object as it was if it fails (`unchanged_on_error`)."""

    @functools.wraps(method)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        with unchanged_on_error(self):
            return method(self, *args, **kwargs)

    return cast(F, safe)


def _lock(estimator: Any) -> threading.RLock:
    return _locks.setdefault(estimator, threading.RLock())  # one step of a dict, for all threads
