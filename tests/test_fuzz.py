"""A few hundred damaged files of every kind, and that `fuzz` notices what it should."""

import os
import sys
import time

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("limits of processes", allow_module_level=True)

import fuzz
from fuzz import Target

INPUTS = 400


@pytest.mark.parametrize("name", fuzz.EVERYTHING)
def test_damaged_files(name):
    outcomes, failures = fuzz.watch(name, 0, INPUTS, seconds=600.0)
    assert not failures
    assert outcomes.total() == INPUTS
    assert INPUTS / 4 < outcomes["refused"] < INPUTS


# -- fuzz itself ------------------------------------------------------------------------------


def prepare(folder):
    return [bytearray(1)]


def write_seed(prepared, seed, path):
    path.write_bytes(b"x")
    return seed


def hang(path):
    while time.time() > 0:
        pass


def exhaust(path):
    np.ones(2**40, dtype=np.uint8)


def die(path):
    sys.stderr.write("last words")
    sys.stderr.flush()
    os._exit(3)


def unnamed(path):
    raise ValueError("something is wrong with some file")


def other(path):
    raise KeyError(str(path))


def read_seed(prepared, path, seed):
    """Refuse even seeds; what goes wrong goes wrong for odd ones."""
    if seed % 2:
        (hang, exhaust, die, unnamed, other)[seed // 2](path)
    raise ValueError(f"{path} is refused")


MISTAKES = Target(prepare, write_seed, read_seed)


def test_what_goes_wrong_is_reported_with_its_seed():
    outcomes, failures = fuzz.watch("test_fuzz:MISTAKES", 0, 11, seconds=600.0, limit=0.5)
    messages = (
        "took more than 0.5 seconds",
        "Unable to allocate",
        "ended with 3: last words",
        "some file",
        "KeyError",
    )
    for number, (failure, message) in enumerate(zip(failures, messages, strict=True)):
        assert failure.startswith(f"test_fuzz:MISTAKES, seed {2 * number + 1}: ")
        assert message in failure
    assert outcomes == {"refused": 6, "FAILED": 5}
