"""One run of a command: what it raises becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import io
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

from rankrls.cli._commands import cli
from rankrls.cli._output import escaped, one_line, warn
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

__all__ = ["run"]

OK, UNEXPECTED, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141

#: Commands whose results are files, and which may tell nobody of them.
FILES = ("fit", "update", "split", "report", "demo")

#: Words of Python in messages of the library that are options here; all others have their names.
HERE = {"qid=None": "--one-ranking", "header=False": "--no-header",
        "load_csv": "--format csv", "pair_features": "--controls",
        "load_ranking finds": "without --format", "comes twice in query": "--duplicates first",
        "need qid too": "without --one-ranking", "in target=": "--target COLUMN",
        "in qid=": "--qid COLUMN", "unlabelled='drop'": "--unlabelled drop"}  # fmt: skip


def run(argv: list[str]) -> int:
    """Run the command in ``argv`` and return the exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed (>&-): no other file must get its number
            kept = name == "stderr" or (name == "stdout" and argv[:1] and argv[0] in FILES)
            setattr(sys, name, open(os.devnull, "w" if kept else "r"))  # noqa: SIM115
        elif name != "stdin" and hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")
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


def _explain(error: Exception) -> tuple[str, int]:
    """What to tell, in one line, and the exit code."""
    text = one_line(str(error))
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "rankrls"
        text = one_line(error.format_message()).rstrip(".")
        if "unexpected extra argument" in text:
            rows = ": rows are named by --data"
            text += rows if path.endswith("compare") else ": models are named by -m, scores by -o"
        return f"{text} (see {path} --help)", BAD_INPUT
    if isinstance(error, click.ClickException):
        return one_line(error.format_message()), BAD_INPUT
    if isinstance(error, io.UnsupportedOperation) and not sys.stdout.writable():
        return "stdout: it is closed, and the result would be written there", BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        if error.filename is None and error.errno == errno.ENOSPC:
            where = "stdout: "  # other files are named
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
        hidden: list[Any] = [FeatureScaleWarning, IdColumnWarning]  # commands tell of columns
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
