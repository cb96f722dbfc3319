"""One run of a command: what it raises becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from rankrls.cli import _output
from rankrls.cli._commands import cli
from rankrls.cli._output import escaped, one_line, stdout_errors, warn
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

__all__ = ["run"]

OK, UNEXPECTED, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141

#: Options that people try first, or that another command has, and what to do instead.
HINTS = {
    "--k": "the cut-off is --at",
    "--groups": "the column of query ids is --qid",
    "--query": "the column of query ids is --qid",
    "--lambda": "the regularisation is --alpha",
    "--C": "SVMrank's C is -c, with --loss hinge; otherwise --alpha",
    "--folds": "the number of folds is --cv",
    "--test": "rankrls evaluate test.dat -m model evaluates on other rows",
    "--weight": "weights count in training only; a column that is no feature is given by --drop",
    "--feature-names": "names are given in training: a model has those of its features",
    "--missing": "missing features are filled in as the model has learned to",
}

#: Words of Python in messages of the library that are options here; all others have their names.
HERE = {"qid=None": "--one-ranking", "header=False": "--no-header",
        "load_csv": "--format csv",
        "need qid too": "without --one-ranking"}  # fmt: skip


def run(argv: list[str]) -> int:
    """Run the command in ``argv`` and return the exit code."""
    _open_standard_streams()
    if "_RANKRLS_COMPLETE" in os.environ:  # the shell asks what may follow
        cli.main(args=argv, prog_name="rankrls")
    plain = argv[: argv.index("--")] if "--" in argv else argv
    debug = "--debug" in plain
    argv = [word for word in plain if word != "--debug"] + argv[len(plain) :]
    code = OK
    try:
        with _terminable(), _told_warnings(debug):
            try:
                with cli.make_context("rankrls", argv) as context:
                    cli.invoke(context)
            except click.exceptions.Exit as error:
                code = error.exit_code
            with stdout_errors():
                sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else UNEXPECTED
    except Exception as error:
        message, code = _explain(error)
        command = cli.commands.get(plain[0]) if plain else None
        options = {one for param in command.params for one in param.opts} if command else set()
        here = [text for word, text in HERE.items()
                if word in message and options.intersection(text.split())]  # fmt: skip
        message += f" (here: {', '.join(here)})" if here else ""
        with suppress(OSError, ValueError):  # nobody listens on stderr
            if debug:
                print(*map(escaped, traceback.format_exc().splitlines()), sep="\n", file=sys.stderr)
            print(f"rankrls: error: {escaped(message)}", file=sys.stderr, flush=True)
    try:
        sys.stdout.flush()
    except OSError:  # nobody reads what is left: it must not be complained about at exit
        with suppress(OSError, ValueError):  # stdout may be no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _open_standard_streams() -> None:
    """Put the null device in the place of streams that are closed (``>&-``).

    Files that are opened later do not get their numbers, and nothing is written to such a file in
    the belief that it is stdout. Names from files may hold anything: they are written all the same.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
        _output.CLOSED["stdout"] = sys.stdout is None
        for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            if getattr(sys, name) is None:
                setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _explain(error: Exception) -> tuple[str, int]:
    """What to tell, in one line, and the exit code."""
    text = one_line(str(error))
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "rankrls"
        text = one_line(error.format_message()).rstrip(".")
        if "unexpected extra argument" in text:
            rows = ": rows are named by --data"
            text += rows if path.endswith("compare") else ": models are named by -m, scores by -o"
        if isinstance(error, click.NoSuchOption) and error.option_name in HINTS:
            text = f"No such option '{error.option_name}': {HINTS[error.option_name]}"
        return f"{text} (see {path} --help)", BAD_INPUT
    if isinstance(error, click.ClickException):
        return one_line(error.format_message()), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        if error.filename is None and error.errno == errno.ENOSPC:
            where = "stdout: "  # help, which click prints; other files are named
        return f"{where}{one_line(error.strerror or str(error))}", BAD_INPUT
    if isinstance(error, ImportError | ValueError):
        return text, BAD_INPUT
    if isinstance(error, MemoryError):
        return f"not enough memory ({text or '--debug tells where'})", BAD_INPUT
    return f"unexpected {type(error).__name__}: {text} (--debug tells where)", UNEXPECTED


@contextmanager
def _told_warnings(debug: bool) -> Iterator[None]:
    """Warnings are one line each on stderr; those for programmers only with --debug."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        hidden: list[Any] = [FeatureScaleWarning, IdColumnWarning]  # `warn_about_columns` tells
        if not debug:
            hidden += [DeprecationWarning, FutureWarning, ResourceWarning]
        for category in hidden:
            warnings.simplefilter("ignore", category)
        # Columns of files are chosen by their names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.showwarning = lambda message, *_: warn(one_line(str(message)))
        yield


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as Ctrl-C does: half-written files are removed."""

    def stop(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
