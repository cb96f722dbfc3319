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


def target(read):
    """Whatever goes wrong goes wrong for seed 1 of 0, 1 and 2."""

    def read_seed(prepared, path, seed):
        if seed == 1:
            read(path)
        raise ValueError(f"{path} is refused")

    return Target(prepare, write_seed, read_seed)


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


HANGS, EXHAUSTS, DIES, UNNAMED, OTHER = map(target, (hang, exhaust, die, unnamed, other))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("HANGS", "took more than 0.5 seconds"),
        ("EXHAUSTS", "Unable to allocate"),
        ("DIES", "ended with 3: last words"),
        ("UNNAMED", "some file"),
        ("OTHER", "KeyError"),
    ],
)
def test_what_goes_wrong_is_reported_with_its_seed(name, message):
    outcomes, failures = fuzz.watch(f"test_fuzz:{name}", 0, 3, seconds=600.0, limit=0.5)
    assert len(failures) == 1
    assert failures[0].startswith(f"test_fuzz:{name}, seed 1: ")
    assert message in failures[0]
    assert outcomes == {"refused": 2, "FAILED": 1}
