"""Progress of long work: lines on stderr, only when asked for."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]


class Progress:
    """Tell what is being done and how long the step before took.

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

    def __call__(self, message: str) -> None:
        """Print one line with the seconds since the start."""
        if self.verbose:
            seconds = time.perf_counter() - self.start
            print(f"[{self.name} {seconds:7.2f} s] {message}", file=sys.stderr, flush=True)
