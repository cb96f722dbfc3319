"""What users are told while work goes on: progress on stderr, and warnings at their own line."""

from __future__ import annotations

import sys
import time
import warnings
from types import FrameType

__all__ = ["Progress", "warn"]

#: Seconds between two lines about the same loop: on a terminal, and in a log file.
TERMINAL_PAUSE, LOG_PAUSE = 0.1, 5.0


class Progress:
    """Tell what is being done and how long it has taken.

    Parameters
    ----------
    name : str
        Who is talking.
    verbose : int
        0: silent.
    """

    def __init__(self, name: str, verbose: int) -> None:
        self.name = name
        self.verbose = verbose
        self.start = time.perf_counter()
        self._last = -LOG_PAUSE
        self._open = False

    def __call__(self, message: str) -> None:
        """Print one line with the seconds since the start."""
        if self.verbose:
            self._end_line()
            print(self._line(message), file=sys.stderr, flush=True)

    def bar(self, done: int, total: int, message: str) -> None:
        """How far a loop is; on a terminal the line is rewritten, in a log some lines are kept."""
        if not self.verbose:
            return
        terminal = sys.stderr.isatty()
        now = time.perf_counter()
        if now - self._last < (TERMINAL_PAUSE if terminal else LOG_PAUSE):
            return
        self._last = now
        line = self._line(f"{done}/{total} {message}")
        if terminal:
            filled = "█" * (20 * done // max(total, 1))
            print(f"\r{line} {filled:░<20}", end="", file=sys.stderr, flush=True)
            self._open = True
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, message: str) -> str:
        return f"[{self.name} {time.perf_counter() - self.start:7.2f} s] {message}"

    def _end_line(self) -> None:
        if self._open:
            print(file=sys.stderr)
            self._open = False


#: Packages and modules whose frames stand between a warning and the program that caused it: a
#: pipeline calls fit, a decorator or a pool of threads calls a function of ours.
LIBRARIES = {
    *("rankrls", "sklearn", "joblib", "numpy", "scipy", "dask", "distributed"),
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


def _users_frame() -> FrameType:
    """The innermost frame of the user's program; in a thread of a pool the outermost one of all."""
    frame = sys._getframe(1)
    while _package(frame) in LIBRARIES and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
