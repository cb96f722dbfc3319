"""Files that are damaged or forged, by the thousand: read within bounds, or refused.

    make fuzz FUZZ_SECONDS=600
    python tests/fuzz.py --target models --seed 1234 --inputs 1     # one input again

A target makes an input from a seed and reads it (`fuzz_models`, `fuzz_tables`). Every input is read
in a process with little memory and little time: one that hangs, takes much memory, crashes, or
raises an error that does not name the file is reported with its seed. To add a kind of file, add a
`Target` to `targets`.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Characters of an error message, which must not repeat the file.
LONGEST = 3000
#: Memory above that of the process itself.
MEMORY = 256 * 2**20

#: Seconds of CPU for one input.
LIMIT = 10.0

#: Targets that cover all others.
EVERYTHING = ["models", "tables"]

#: After so many failures there is enough to look at.
MAX_FAILURES = 10


@dataclass(frozen=True)
class Target:
    """A kind of file; each is a function.

    ``prepare(folder)`` gives whatever the others need, once in a process. ``make(prepared, seed,
    path)`` writes the input of a seed, and may return what to read. ``read(prepared, path, made)``
    reads it: a word for the count of outcomes, an error that is refused (`ValueError` with the path
    in it), or any other error, which is a failure. ``warm_up(prepared, path)`` reads a few files
    that are right before memory is limited: for what is imported late.
    """

    prepare: Callable
    make: Callable
    read: Callable
    warm_up: Callable | None = None


def targets() -> dict[str, Target]:
    """All kinds of files, imported when they are needed."""
    import fuzz_models
    import fuzz_tables

    return {"models": fuzz_models.TARGET, **fuzz_tables.TARGETS}


def find(name: str) -> Target:
    """A target by its name, or as module:variable."""
    module, _, variable = name.partition(":")
    return getattr(importlib.import_module(module), variable) if variable else targets()[name]


# -- in the process that reads ----------------------------------------------------------------


def work(name: str, first: int, count: int, seconds: float, limit: float) -> None:
    """Read inputs and print a line before and after each one, for whoever watches."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    target = find(name)
    with tempfile.TemporaryDirectory() as folder:
        prepared = target.prepare(Path(folder))
        if target.warm_up is not None:
            target.warm_up(prepared, Path(folder) / "input")
        _limit_memory()
        end, failed = time.monotonic() + seconds, 0
        for seed in range(first, first + count):
            if time.monotonic() > end or failed >= MAX_FAILURES:
                break
            print(f"seed {seed}", flush=True)
            # The default action of the signal ends the process, wherever it hangs.
            signal.setitimer(signal.ITIMER_PROF, limit)
            outcome = _read_once(target, prepared, seed, Path(folder))
            signal.setitimer(signal.ITIMER_PROF, 0)
            print(f"done {outcome}", flush=True)
            failed += outcome.startswith("FAILED")
    print("end", flush=True)


def _read_once(target: Target, prepared: object, seed: int, folder: Path) -> str:
    path = folder / "input"
    made = target.make(prepared, seed, path)
    try:
        return target.read(prepared, path, made) or "read"
    except ValueError as error:
        if str(path) in str(error) and len(str(error)) < LONGEST:
            return "refused"
        return _failure()
    except BaseException:
        return _failure()


def _failure() -> str:
    lines = traceback.format_exc().strip().splitlines()
    return "FAILED " + " | ".join(line.strip() for line in lines[-7:])


def _limit_memory() -> None:
    """Threads and pyarrow reserve address space at their first use, once: it is not counted."""
    from rankrls.datasets import load_csv

    load_csv(io.BytesIO(b"label,a\n1,2\n"), target="label")
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


# -- in the process that watches --------------------------------------------------------------


def watch(
    name: str, first: int, count: int, seconds: float, limit: float = LIMIT
) -> tuple[Counter, list[str]]:
    """Outcomes of the inputs of seeds from ``first``, and a line for every failure.

    A process that ends before its time is followed by another one, from the next seed on.
    """
    outcomes: Counter = Counter()
    failures: list[str] = []
    here = Path(__file__).resolve()
    source = os.pathsep.join([str(here.parent.parent / "src"), str(here.parent)])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": source}
    stop, end = first + count, time.monotonic() + seconds
    while first < stop and time.monotonic() < end and len(failures) < MAX_FAILURES:
        options = {"seed": first, "inputs": stop - first, "seconds": end - time.monotonic()}
        words = [f"--{key}={value}" for key, value in (options | {"limit": limit}).items()]
        command = [sys.executable, str(here), "--work", f"--target={name}", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment
        )
        last = None
        for line in done.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word == "seed":
                last = int(rest)
            elif word == "done":
                outcomes[rest.split()[0]] += 1
                failures += [f"{name}, seed {last}: {rest}"] * rest.startswith("FAILED")
        if done.stdout.endswith("end\n") and done.returncode == 0:
            break
        outcomes["FAILED"] += 1
        why = f"the process ended with {done.returncode}: {done.stderr.strip()[:1500]}"
        if done.returncode == -signal.SIGPROF:
            why = f"took more than {limit:g} seconds"
        failures.append(f"{name}, seed {last}: {why}")
        if last is None:
            break
        first = last + 1
    return outcomes, failures


def main() -> None:
    """Read inputs of all targets, or of one, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inputs", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of CPU for an input")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.target, options.seed, options.inputs, options.seconds, options.limit)
        return
    names = EVERYTHING if options.target is None else [options.target]
    seed = int(time.time()) * 1000 if options.seed is None else options.seed
    failed = False
    for name in names:
        share = options.seconds / len(names)
        outcomes, failures = watch(name, seed, options.inputs, share, options.limit)
        counts = ", ".join(f"{n} {what}" for what, n in outcomes.most_common())
        print(f"{name}, from seed {seed}: {counts}", flush=True)
        for failure in failures:
            failed = True
            print(f"  {failure}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
