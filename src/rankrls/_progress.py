"""Progress of long work: lines, or one line that is rewritten, on stderr, only when asked for."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]

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
