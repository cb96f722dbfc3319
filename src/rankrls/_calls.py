"""Warnings at the user's line, locks, ``group``, and progress of calls of public functions.

With ``verbose``, every step is printed as a line on stderr. Without it, a call that takes more than
a second shows what it is doing on a terminal or in a notebook, and clears the line at the end.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

#: Packages whose stack frames are skipped to find the user's line for a warning: a pipeline calls
#: fit, a decorator or a thread pool calls one of our functions.
LIBRARIES = {
    *("rankrls", "sklearn", "joblib", "numpy", "scipy", "dask", "distributed", "pyterrier"),
    *("concurrent", "contextlib", "functools", "threading"),
}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the user's line, that of the innermost frame outside `LIBRARIES`."""
    *_, frame = library_frames()
    frame = frame.f_back or frame  # a thread may have no frame of the user
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__") or "<unknown>",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def library_frames() -> Iterator[FrameType]:
    """Iterate over the stack frames of `LIBRARIES`, up to the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame and str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
        yield frame
        frame = frame.f_back


# -- sizes of queries -------------------------------------------------------------------------


#: Arguments with one entry per row; the first one that is given is used.
_BY_ROW = ("X", "y_true", "y", "y_score", "y_score_a", "scores", "data")


def takes_queries(function: F) -> F:
    """Let a function that takes ``qid`` also accept ``group``, sizes of consecutive queries."""
    # The signature stays: metadata routing reads it, and sizes cannot be split with the rows.
    signature = inspect.signature(function)

    @functools.wraps(function)
    def with_group(*args: Any, **kwargs: Any) -> Any:
        group = kwargs.pop("group", None)
        if group is not None:
            if kwargs.get("qid") is not None:
                raise ValueError(
                    "pass either qid, the query of each row, or group, the sizes of consecutive "
                    "queries, not both"
                )
            given = signature.bind_partial(*args, **kwargs).arguments
            kwargs["qid"] = queries_of_sizes(group, given)
        return function(*args, **kwargs)

    return cast(F, with_group)


def queries_of_sizes(group: Any, given: dict[str, Any]) -> NDArray[np.int64]:
    """Convert sizes of consecutive queries to the query of each row."""
    sizes = np.asarray(group)
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iu":
        raise ValueError(
            "group must be a one-dimensional array of integers, the sizes of consecutive queries; "
            f"got {sizes.dtype} of shape {sizes.shape}"
        )
    if (sizes < 0).any():
        raise ValueError(f"group contains the negative size {sizes.min()}; sizes must be >= 0")
    name = next((name for name in _BY_ROW if given.get(name) is not None), None)
    if name is not None:
        rows = given[name]
        rows = rows.get("data", ()) if isinstance(rows, Mapping) else rows
        n_rows, total = rows.shape[0] if hasattr(rows, "shape") else len(rows), int(sizes.sum())
        if total != n_rows:
            hint = " (pass the query of each row as qid)" if len(sizes) == n_rows else ""
            raise ValueError(
                f"the {len(sizes)} sizes in group add up to {total} rows, but {name} has "
                f"{n_rows}{hint}"
            )
    return np.repeat(np.arange(len(sizes)), sizes)


# -- calls that change an estimator -----------------------------------------------------------

#: Locks of estimators. They are not attributes, which would be pickled, cloned and copied.
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # threads that hold locks do not exist in a child process
    os.register_at_fork(after_in_child=_locks.clear)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Lock an estimator; restore its attributes, none of which change in place, after an error."""
    with _locks.setdefault(estimator, threading.RLock()), whole_call():
        before = dict(estimator.__dict__)
        try:
            yield
        except BaseException:
            object.__setattr__(estimator, "__dict__", before)
            raise


def all_or_nothing(method: F) -> F:
    """Restore the object of a method after an error (see `unchanged_on_error`)."""

    @functools.wraps(method)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        with unchanged_on_error(self):
            return method(self, *args, **kwargs)

    return cast(F, safe)


# -- progress ---------------------------------------------------------------------------------

#: Seconds between two lines of a loop with ``verbose``; until a call without it shows a message,
#: or a command does so in a log; and between two updates.
LOG_PAUSE, PATIENCE, LOG_PATIENCE, LOOK = 5.0, 1.0, 20.0, 0.25

#: Function that receives the messages of calls without ``verbose``: of this thread only.
_listener: ContextVar[Callable[..., None] | None] = ContextVar("progress", default=None)


@contextmanager
def progress_goes_to(listener: Callable[..., None]) -> Iterator[None]:
    """Send messages to ``listener(message, done, total)``; the last two are given in loops only."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def whole_call() -> Iterator[None]:
    """Show the progress of the outermost public call to a user who looks; clear it at the end."""
    ipython, stderr = sys.modules.get("IPython"), sys.stderr
    shown = (stderr is not None and stderr.isatty()) or (
        ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"
    )
    if (
        not shown  # a log file or a pipe
        or _listener.get() is not None
        or os.environ.get("RANKRLS_PROGRESS") == "0"
        or threading.current_thread() is not threading.main_thread()
        or multiprocessing.parent_process() is not None
    ):
        yield
        return
    line = Line()
    try:
        with progress_goes_to(line):
            yield
    finally:
        line.close()


class Progress:
    """Show what is being done, with ``verbose`` or for long calls, and how long it has taken."""

    def __init__(self, name: str, verbose: int) -> None:
        self.name, self.verbose = name, verbose
        self._start, self._last = time.perf_counter(), -LOG_PAUSE
        listener = _listener.get()
        if isinstance(listener, Line):
            if verbose:  # printed lines would break the line of the outer call
                listener.close()
            listener.name = listener.name or name
        self._listener = None if verbose or not name else listener

    def __call__(self, message: str) -> None:
        """Print one line with the seconds since the start."""
        if self._listener is not None:
            self._listener(message)
        if self.verbose:
            seconds = time.perf_counter() - self._start
            print(f"[{self.name} {seconds:7.2f} s] {message}", file=sys.stderr, flush=True)

    def bar(self, done: int, total: int, message: str) -> None:
        """Show the progress of a loop, with ``verbose`` by a line every few seconds."""
        if self._listener is not None:
            self._listener(message, done, total)
        elif self.verbose and time.perf_counter() - self._last >= LOG_PAUSE:
            self._last = time.perf_counter()
            self(f"{done}/{total} {message}")


class Line:
    """A line about a long call, drawn by a thread and cleared at the end; a few lines in a log."""

    def __init__(self, name: str = "", *, log: bool = False) -> None:
        self.name, self.log = name, log
        self._about = ("", 0, 0)
        self._start = time.perf_counter()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, message: str, done: int = 0, total: int = 0) -> None:
        self._about = (message, done, total)
        if self._thread is None:
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Clear the line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        width, pause = 0, LOG_PATIENCE if self.log else PATIENCE
        with suppress(OSError, ValueError):  # stderr may be closed
            while not self._ended.wait(pause):
                message, done, total = self._about
                seconds = time.perf_counter() - self._start
                text = f"{self.name} {seconds:.0f} s: {message}"
                if self.log:  # the next line comes when the time has doubled
                    print(text, file=sys.stderr, flush=True)
                    pause = seconds
                    continue
                text += f" {'█' * (20 * done // total):░<20}" if total else ""
                text = text[: shutil.get_terminal_size().columns - 1]
                print(f"\r{text:<{width}}", end="", file=sys.stderr, flush=True)
                width, pause = len(text), LOOK
            if width:
                print(f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)


def tells(message: str) -> Callable[[F], F]:
    """Let a function show a progress message, as fits do without ``verbose``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def telling(*args: Any, **kwargs: Any) -> Any:
            with whole_call():
                Progress(function.__name__, 0)(message)
                return function(*args, **kwargs)

        return cast(F, telling)

    return decorate
