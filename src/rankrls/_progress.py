"""Progress messages on stderr.

With ``verbose``, every step is printed as a line. Without it, a call that takes more than a second
shows what it is doing on a terminal or in a notebook, and clears the message at the end. Nothing is
shown in log files, pipes, threads and worker processes, or with ``RANKRLS_PROGRESS=0`` in the
environment. If tqdm is installed, its progress bar is used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from rankrls._calls import at_end_of_call, whole_call

__all__ = ["Progress", "progress_goes_to", "tells"]

F = TypeVar("F", bound=Callable[..., Any])

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
