"""One run of a command: what it raises becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import re
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

#: How options are called in Python and on the command line.
REMEDIES: tuple[tuple[str, Any], ...] = (
    (r"to keep missing values pass missing='nan', and fill them by sklearn.impute.SimpleImputer "
     r"\(rankrls fit --missing mean or --missing zero does both\)",
     "fill it in by --missing mean (when fitting) or --missing zero"),
    (r"\b(columns? .*) of X (looks?) like", r"\1 \2 like"),
    (r"if it is no mistake, pass n_features=\d+, or leave such features out by beyond='drop' and a "
     r"smaller n_features", "correct it, or write the file without it"),
    (r"pass qid to transform \(or to predict and score of the pipeline, with metadata routing\)",
     "leave out --one-ranking"),
    (r"n_features=(\d+) allows ids up to (\d+)",
     r"the model, or --feature-names, has \1 features, with ids up to \2"),
    (r"n_features is needed to iterate over a stream",
     "the number of features in LETOR text from a pipe is not known before its end; name a file, "
     "or name the features by --feature-names"),
    (r"pass zero_based=True", "use --zero-based"),
    (r"pass header=False", "use --no-header"),
    (r"pass qid=None", "use --one-ranking"),
    (r"pass sparse=True", "write it as sparse LETOR text"),
    (r"\bin features=", "by --features"),
    (r"\bdrop=(\[[^]]*\]|'[^']*')",
     lambda found: " ".join(f"--drop {name}" for name in re.findall(r"'[^']*'", found[1]))),
    (r"\bfor drop\b", "for --drop"),
    (r"\bin target=", "by --label"),
    (r"\bin qid=", "by --qid-column"),
    (r"\btarget=('[^']*')", r"--label \1"),
    (r"\bqid=('[^']*')", r"--qid-column \1"),
    (r"\bfeatures=(\[[^]]*\])", r"--features \1"),
    (r"\bsample_weight=('[^']*')", r"--weight \1"),
    (r"\bfor target\b", "for --label"),
    (r"\bfor qid\b", "for --qid-column"),
    (r"\bfor sample_weight\b", "for --weight"),
    (r"\bfor ids\b", "for --doc-id"),
    (r"load_csv and load_ranking read CSV", "use --input-format csv"),
    (r"for LETOR text, plain or compressed, there is iter_letor",
     "for text, use --input-format csv or --input-format letor"),
    (r": read them in smaller batches, with \w+", ": read fewer rows, or use rankrls fit --stream"),
    (r"read fewer rows at a time, with iter_ranking", "read fewer rows"),
    (r"\bleave out group=('[^']*')", r"leave out --group \1"),
    (r": extend alphas(, or leave alphas=None, which extends the grid itself)?",
     ": widen --alphas"),
    (r"name its format", "name it by --format"),
    (r"\bquery_weighting='(\w+)'", r"--query-weighting \1"),
    (r"\b(kernel|solver|cost|ties|scoring|cv)='([\w@-]+)'", r"--\1 \2"),
    (r"\braise max_iter, tol or alpha", "raise --max-iter, --tol or --alpha"),
    (r"or use early_stopping=True", "or stop early in Python"),
    (r"export the kernel model with to_onnx", "use --to onnx"),
    (r"make it the first step with SimpleImputer\(strategy='constant', fill_value=0\), export with "
     r"to_onnx, or fill missing values beforehand and export the steps after the imputer",
     "fit it with --missing zero, or use --to onnx or --to sql"),
    (r"\bcv=(\d+)", r"--cv \1"),
    (r"^(kernel|solver|cost|ties|scoring|alphas?|gamma|degree|coef0|tol) must", r"--\1 must"),
    (r"^basis\b", "--basis"),
)  # fmt: skip


#: What only commands with --auto can do about columns of text.
KEEP_TEXT = ", or keep text for AutoRanker by load_ranking with text='auto'"

#: Options that people try first, and what to do instead.
HINTS = {
    "--metric": "rankrls evaluate has --metrics ndcg@10,map",
    "--metrics": "rankrls compare has --metric ndcg@10",
    "--k": "the cut-off is --at",
    "--groups": "the column of query ids is --qid-column",
    "--query": "the column of query ids is --qid-column",
    "--lambda": "the regularisation is --alpha",
    "--reg": "the regularisation is --alpha",
    "--C": "SVMrank's C is -c, with --loss hinge; otherwise --alpha",
    "--folds": "the number of folds is --cv",
    "--test": "rankrls evaluate test.dat -m model evaluates on other rows",
}


#: What is usually meant by one word too many.
EXTRA = ": models are named by -m, scores by -o"


def run(argv: list[str]) -> int:
    """Run the command in ``argv`` and return the exit code."""
    _open_standard_streams()
    if "_RANKRLS_COMPLETE" in os.environ:  # the shell asks what may follow
        cli.main(args=argv, prog_name="rankrls")
    plain = argv[: argv.index("--")] if "--" in argv else argv
    debug = "--debug" in plain
    argv = [word for word in plain if word != "--debug"] + argv[len(plain) :]
    try:
        with _terminable(), _told_warnings(debug):
            with cli.make_context("rankrls", argv) as context:
                cli.invoke(context)
            with stdout_errors():
                sys.stdout.flush()
        return OK
    except click.exceptions.Exit as error:
        return _flushed(error.exit_code)
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else UNEXPECTED
    except Exception as error:
        message, code = _explain(error)
        message = message.replace(KEEP_TEXT, ", or use --auto" * _has_auto(plain))
        with suppress(OSError, ValueError):  # nobody listens on stderr
            if debug:
                print(*map(escaped, traceback.format_exc().splitlines()), sep="\n", file=sys.stderr)
            print(f"rankrls: error: {escaped(message)}", file=sys.stderr, flush=True)
        try:
            sys.stdout.flush()
        except OSError:
            _forget_stdout()
        return code


def _open_standard_streams() -> None:
    """Put the null device in the place of streams that are closed (``>&-``).

    Files that are opened later do not get their numbers, and nothing is written to such a file in
    the belief that it is stdout. Names from files may hold anything: they are written all the same.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor <= 2:
            descriptor = os.open(os.devnull, os.O_RDWR)
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
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "rankrls"
        text = one_line(error.format_message()).rstrip(".")
        if "unexpected extra argument" in text:
            compared = path.endswith("compare")
            text += ": the rows are named by --data" if compared else EXTRA
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
        return _as_options(one_line(str(error))), BAD_INPUT
    if isinstance(error, MemoryError):
        what = _as_options(one_line(str(error))) or "--debug tells where"
        return f"there is not enough memory ({what})", BAD_INPUT
    kind = type(error).__name__
    return f"unexpected {kind}: {one_line(str(error))} (--debug tells where)", UNEXPECTED


def _has_auto(argv: list[str]) -> bool:
    """Whether the command in ``argv`` has the option --auto."""
    command = cli.commands.get(argv[0]) if argv else None
    return command is not None and any("--auto" in option.opts for option in command.params)


def _as_options(message: str) -> str:
    """A message of the library in the words of the command line."""
    for pattern, words in REMEDIES:
        message = re.sub(pattern, words, message)
    return message


@contextmanager
def _told_warnings(debug: bool) -> Iterator[None]:
    """Warnings are one line each on stderr; those for programmers only with --debug."""

    def show(message: Any, category: Any, *_: Any) -> None:
        warn(_as_options(one_line(str(message))))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for column_warning in (FeatureScaleWarning, IdColumnWarning):
            warnings.simplefilter("ignore", column_warning)  # `_column_warnings` tells them
        # Columns of files are chosen by their names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        if not debug:
            for category in (DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as Ctrl-C does: half-written files are removed."""

    def stop(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _forget_stdout()
        _output.note(f"error: stdout: {one_line(error.strerror or str(error))}")
        return BAD_INPUT
    return code


def _forget_stdout() -> None:
    """Nobody reads what is left: it must not be complained about at exit."""
    with suppress(OSError, ValueError):  # stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
