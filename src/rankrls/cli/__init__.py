"""The command line ``rankrls``.

``_commands.py`` and ``_options.py`` say what can be asked for. The modules that do it import
numerical libraries when a command is run: ``rankrls --help`` does not wait for them.
"""

from __future__ import annotations

import gc
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
    if argv is None:  # imports make many objects that stay: do not look at all of them often
        gc.set_threshold(100_000)
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
