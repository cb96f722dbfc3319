"""The command line: ``rankrls fit``, ``predict``, ``evaluate``, ``cv``, ``export``, ``report``.

``_commands.py`` says what can be asked for, the files ``_do_….py`` do it. Only the latter import
numerical libraries, when a command is run: ``rankrls --help`` does not wait for them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        What follows ``rankrls``; by default the arguments of the process.

    Returns
    -------
    int
        0 if all went well, 2 for bad input, 1 for what should not have happened, 130 after Ctrl-C.

    Examples
    --------
    >>> from rankrls.cli import main
    >>> main(["--version"])
    rankrls ...
    0
    """
    if argv is None:
        _set_up_process()
    try:
        try:
            import click  # noqa: F401
        except ImportError:
            print(
                "rankrls: error: the command line needs packages that are not installed: "
                "pip install 'rankrls[cli]'",
                file=sys.stderr,
            )
            return 1
        from rankrls.cli._run import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return 130


def _set_up_process() -> None:
    """Settings that must precede the import of numerical libraries."""
    gc.set_threshold(100_000)  # importing makes many objects that stay: do not look at them often
    # Threads of BLAS that wait for work leave their cores to those that read the file.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
