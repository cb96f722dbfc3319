"""Wrappers for calls of public functions and methods, and their progress.

Warnings report the line of the user's code. Unknown arguments raise a ``TypeError`` with advice.
A call that fails or is interrupted does not change the estimator, and calls from several threads
that change the same estimator wait for each other.

With ``verbose``, every step is printed as a line on stderr. Without it, a call that takes more than
a second shows what it is doing on a terminal or in a notebook, and clears the message at the end.
Nothing is shown in log files, pipes, threads and worker processes, or with ``RANKRLS_PROGRESS=0``
in the environment. If tqdm is installed, its progress bar is used.

This module imports nothing from rankrls.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Progress",
    "all_or_nothing",
    "at_end_of_call",
    "explained",
    "library_frames",
    "names_lasting_queries",
    "names_queries",
    "progress_goes_to",
    "queries_of_sizes",
    "takes_queries",
    "tells",
    "unchanged_on_error",
    "warn",
    "whole_call",
]

#: Packages whose stack frames are skipped to find the user's line for a warning: a pipeline calls
#: fit, a decorator or a thread pool calls one of our functions.
LIBRARIES = {
    *("rankrls", "sklearn", "joblib", "numpy", "scipy", "dask", "distributed", "pyterrier"),
    *("concurrent", "contextlib", "functools", "threading"),
}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the user's line, that of the innermost frame outside `LIBRARIES`.

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
    """Iterate over the stack frames of `LIBRARIES`, up to the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in LIBRARIES:
        yield frame
        frame = frame.f_back


def _users_frame() -> FrameType:
    """Innermost frame of the user's code; in a thread pool, the outermost frame of the thread."""
    *_, last = library_frames()
    return last if last.f_back is None else last.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


F = TypeVar("F", bound=Callable[..., Any])

_REPEATED = (
    "qid holds the query of each row; for sizes of consecutive queries use "
    "qid=np.repeat(np.arange(len(group)), group)"
)
_LASTING = (
    "sizes would number the queries of every call from 0; pass the query of each row as qid, with "
    "ids that are unique over all calls"
)
_SIZES = "pass sizes of consecutive queries as group"
_CALLED = "pass the query of each row as qid"


def explained(**hints: str) -> Callable[[F], F]:
    """Add advice to the error for unknown arguments of a function, method or constructor.

    The ``TypeError`` names the class of the object, not the class that defines the method. It also
    explains keyword-only arguments that were passed by position. The signature does not change,
    because ``get_params``, ``clone`` and metadata routing read it.

    Parameters
    ----------
    **hints : str
        Advice by name of the argument.

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
    TypeError: Ranker.cut() takes length as positional arguments; pass others by name: left=…
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
                    f"{name_of(args)}() takes {taken} as positional arguments; pass others by "
                    f"name: {shown}"
                )
            return function(*args, **kwargs)

        return cast(F, checked)

    return decorate


_VALIDATION = (
    "no validation set is needed, since RankRLSCV chooses alpha on the training queries; in "
    "PyTerrier use rankrls.pyterrier.PyTerrierLearner(ranker)"
)
_OTHER_NAMES = dict.fromkeys(("groups", "group_id", "query", "query_id", "qids"), _CALLED)

#: Advice for functions that take ``qid`` but not ``group``: names in other libraries.
names_queries = explained(group=_REPEATED, group_sizes=_REPEATED, **_OTHER_NAMES)

#: The same for updates of models, which recognise queries of other calls by their ids.
names_lasting_queries = explained(group=_LASTING, group_sizes=_LASTING, **_OTHER_NAMES)

_names_queries_or_sizes = explained(
    group_sizes=_SIZES, **_OTHER_NAMES, eval_set=_VALIDATION, eval_group=_VALIDATION
)

#: Arguments with one entry per row; the first one that is given is used.
_BY_ROW = ("X", "y_true", "y", "y_score", "y_score_a", "scores", "data")


def takes_queries(function: F) -> F:
    """Let a function that takes ``qid`` also accept ``group``.

    ``group`` holds the sizes of consecutive queries, as in LightGBM and XGBoost. It is converted to
    the query of each row. The signature does not change, because metadata routing reads it and
    sizes cannot be split with the rows. Errors explain other names for ``qid``.

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
                "pass either qid, the query of each row, or group, the sizes of consecutive "
                "queries, not both"
            )
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            return checked(*args, **kwargs)  # raises the error
        return checked(*args, **kwargs, qid=queries_of_sizes(group, given))

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
        if isinstance(rows, Mapping):
            rows = rows.get("data", ())
        n_rows = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        total = int(sizes.sum())
        if total != n_rows:
            hint = " (pass the query of each row as qid)" if len(sizes) == n_rows else ""
            raise ValueError(
                f"the {len(sizes)} sizes in group add up to {total} rows, but {name} has "
                f"{n_rows}{hint}"
            )
    return np.repeat(np.arange(len(sizes)), sizes)


#: Locks of estimators. They are not attributes, which would be pickled, cloned and copied.
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # threads that hold locks do not exist in a child process
    os.register_at_fork(after_in_child=_locks.clear)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[list[Callable[[], None]]]:
    """Restore all attributes of an estimator after an error; none may be changed in place.

    Yields a list. Functions that are appended to it are called after an error, to undo changes of
    other objects. The estimator is locked for other threads.
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


#: For each thread: the depth of nested calls, and functions to call after the outermost.
_calls = threading.local()


@contextmanager
def whole_call() -> Iterator[None]:
    """Mark a public call, or a part of one, for `at_end_of_call`."""
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    finally:
        _calls.depth -= 1
        if not _calls.depth:
            for function in _calls.__dict__.pop("at_end", ()):
                function()


def at_end_of_call(function: Callable[[], None]) -> bool:
    """Call a function when the outermost public call of this thread ends, also after an error.

    Returns False, without calling it, outside of public calls.
    """
    if not getattr(_calls, "depth", 0):
        return False
    _calls.__dict__.setdefault("at_end", []).append(function)
    return True


def all_or_nothing(method: F) -> F:
    """Restore the object of a method after an error (see `unchanged_on_error`)."""

    @functools.wraps(method)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        with unchanged_on_error(self):
            return method(self, *args, **kwargs)

    return cast(F, safe)


def _lock(estimator: Any) -> threading.RLock:
    return _locks.setdefault(estimator, threading.RLock())  # atomic


# -- progress ---------------------------------------------------------------------------------

#: Seconds between two lines about the same loop: on a terminal, and in a log file.
TERMINAL_PAUSE, LOG_PAUSE = 0.1, 5.0

#: Seconds until a call without ``verbose`` shows a message, and between two updates.
PATIENCE, LOOK = 1.0, 0.25


class Progress:
    """Show what is being done and how long it has taken.

    Parameters
    ----------
    name : str
        Name of the estimator or function.
    verbose : int
        With 0, messages are only shown for long calls, on a terminal or in a notebook.
    """

    def __init__(self, name: str, verbose: int) -> None:
        self.name = name
        self.verbose = verbose
        self.start = time.perf_counter()
        self._last = -LOG_PAUSE
        self._open = False
        if verbose and _shown is not None:  # printed lines would break the line of the display
            _shown.close()
        self._tell = None if verbose or not name else _listener or _display(name)

    def __call__(self, message: str) -> None:
        """Print one line with the seconds since the start."""
        if self._tell is not None:
            self._tell(message)
        if self.verbose:
            self._end_line()
            print(self._line(message), file=sys.stderr, flush=True)

    def bar(self, done: int, total: int, message: str) -> None:
        """Show the progress of a loop: one line on a terminal, a few lines in a log."""
        if self._tell is not None:
            self._tell(message, done, total)
        if not self.verbose:
            return
        terminal = sys.stderr.isatty()
        now = time.perf_counter()
        if now - self._last < (TERMINAL_PAUSE if terminal else LOG_PAUSE):
            return
        self._last = now
        line = self._line(f"{done}/{total} {message}")
        if terminal:
            print(f"\r{line} {_filled(done, total)}", end="", file=sys.stderr, flush=True)
            self._open = True
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, message: str) -> str:
        return f"[{self.name} {time.perf_counter() - self.start:7.2f} s] {message}"

    def _end_line(self) -> None:
        if self._open:
            print(file=sys.stderr)
            self._open = False


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


def _filled(done: int, total: int) -> str:
    return f"{'█' * (20 * done // max(total, 1)):░<20}"


# -- without verbose --------------------------------------------------------------------------

#: Function that receives the messages instead of a display; used by the command line.
_listener: Callable[..., None] | None = None

_shown: Display | None = None


@contextmanager
def progress_goes_to(listener: Callable[..., None]) -> Iterator[None]:
    """Send messages to ``listener(message, done, total)``; the last two are given in loops only."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def _display(name: str) -> Callable[..., None] | None:
    """Function that shows messages; None if they would not be seen or not be cleared."""
    global _shown
    if threading.current_thread() is not threading.main_thread() or not _somebody_looks():
        return None
    if _shown is None:
        display = Display(name)
        if not at_end_of_call(display.close):
            return None
        _shown = display
        display.begin()
    return _shown.tell


def _somebody_looks() -> bool:
    if os.environ.get("RANKRLS_PROGRESS") == "0" or multiprocessing.parent_process() is not None:
        return False
    return bool(sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Display:
    """A line about a long call, drawn by a separate thread and cleared at the end.

    Parameters
    ----------
    name : str
        Who is working.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.message, self.done, self.total = "", 0, 0
        self.start = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Start the thread that draws the line."""
        self._thread.start()

    def tell(self, message: str, done: int = 0, total: int = 0) -> None:
        """Set the message; the thread draws it later."""
        self.message, self.done, self.total = message, done, total

    def close(self) -> None:
        """Clear the line."""
        global _shown
        _shown = None
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        if self._ended.wait(PATIENCE):
            return
        line = _line_of_tqdm() or _PlainLine()
        while True:
            line.draw(self)
            if self._ended.wait(LOOK):
                line.remove()
                return


def _line_of_tqdm() -> Any:
    # tqdm.auto would warn in a notebook without widgets.
    widgets = _in_notebook() and importlib.util.find_spec("ipywidgets") is not None
    try:
        tqdm = importlib.import_module("tqdm.notebook" if widgets else "tqdm").tqdm
    except ImportError:
        return None
    return _TqdmLine(tqdm)


class _TqdmLine:
    """Draw with tqdm, which uses widgets in notebooks if available."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def draw(self, about: Display) -> None:
        total = about.total or None
        if self._bar is None or self._bar.total != total:
            self.remove()
            layout = "{desc}" if total is None else "{desc} {percentage:3.0f}%|{bar:20}|"
            self._bar = self._tqdm(total=total, leave=False, file=sys.stderr, bar_format=layout)
        self._bar.n = about.done
        self._bar.set_description_str(_words(about))

    def remove(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _PlainLine:
    """Draw by rewriting the line of a terminal."""

    width = 0

    def draw(self, about: Display) -> None:
        text = _words(about) + (f" {_filled(about.done, about.total)}" if about.total else "")
        print(f"\r{text:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)

    def remove(self) -> None:
        print(f"\r{'':<{self.width}}\r", end="", file=sys.stderr, flush=True)


def _words(about: Display) -> str:
    seconds = time.perf_counter() - about.start
    return f"{about.name} {seconds:.0f} s: {about.message or 'working'}"
