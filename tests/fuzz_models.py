"""Mutated model files: bytes, the manifest, arrays, and the structure of the zip file."""

from __future__ import annotations

import copy
import io
import json
import struct
import warnings
import zipfile

import numpy as np

from fuzz import Target
from fuzz_mutators import cut_and_paste, flip_bytes
from model_files import ARRAYS, MODELS, VALUES, answers, changed, members, places
from rankrls.io import describe_model, load_model, save_model


def prepare(folder):
    """(content, rows to predict) of one file of every kind."""
    path = folder / "model"
    files = []
    for make in MODELS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, new = make()
        save_model(model, path)
        files.append((path.read_bytes(), new))
    return files


def make(files, seed, path):
    """Write a mutated file; the rows that it should predict are what is read besides."""
    rng = np.random.default_rng(seed)
    content, new = files[rng.integers(len(files))]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        mutate = MUTATORS[rng.integers(len(MUTATORS))]
        try:
            content = mutate(content, rng)
        except Exception:  # no longer a file that can be taken apart
            break
    path.write_bytes(content)
    return new


def warm_up(files, path):
    """Read the files as they are, which imports all that reading and answering need."""
    for content, new in files:
        path.write_bytes(content)
        answers(load_model(path), new, finite=False)


def read(files, path, new):
    """Load, describe, and ask for all that the model can answer."""
    try:
        describe_model(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise
    model = load_model(path)
    return "answered" if answers(model, new, finite=False) else "loaded"


# -- mutators ---------------------------------------------------------------------------------


def patch_directory(content, rng):
    """Change a number in the headers of the zip file."""
    out = bytearray(content)
    marks = [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]
    mark = marks[rng.integers(3)]
    found = [i for i in range(len(out)) if out[i : i + 4] == mark]
    start = found[rng.integers(len(found))] + 4
    size = {0: 42, 1: 26, 2: 18}[marks.index(mark)]
    at = start + int(rng.integers(size - 3))
    value = int(
        rng.choice([0, 1, 8, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, len(out), rng.integers(2**32)])
    )
    out[at : at + 4] = struct.pack("<I", value)
    return bytes(out)


def change_members(content, rng):
    """Members in another order, twice, missing, compressed, or of another name."""
    contents = list(_members(content).items())
    i, j = rng.integers(len(contents), size=2)
    kind = rng.integers(6)
    compression = zipfile.ZIP_STORED
    if kind == 0:
        contents[i], contents[j] = contents[j], contents[i]
    elif kind == 1:
        contents.append(contents[i])
    elif kind == 2:
        del contents[i]
    elif kind == 3:
        compression = zipfile.ZIP_DEFLATED
    elif kind == 4:
        contents[i] = (f"{contents[i][0]}/../x", contents[i][1])
    else:
        contents[i], contents[j] = (
            (contents[i][0], contents[j][1]),
            (contents[j][0], contents[i][1]),
        )
    return _zipped(contents, compression)


def change_manifest(content, rng):
    """One to three values of the manifest: replaced, moved, removed or repeated."""
    contents = _members(content)
    tree = json.loads(contents["manifest.json"])
    for _ in range(rng.integers(1, 4)):
        everywhere = list(places(tree))
        where = everywhere[rng.integers(len(everywhere))]
        tree = changed(tree, where, _other_value(tree, where, everywhere, rng))
    contents["manifest.json"] = json.dumps(tree).encode()
    return _zipped(contents.items())


def _other_value(tree, where, everywhere, rng):
    old = _at(tree, where)
    kind = rng.integers(6)
    if kind == 0 or (kind == 1 and isinstance(old, int | float)):
        number = old if isinstance(old, int | float) else 1
        choices = [number + 1, number - 1, -number, number * 2**20, number * 2**40, 2**63, 0]
        return choices[rng.integers(len(choices))]
    if kind == 2:
        return copy.deepcopy(_at(tree, everywhere[rng.integers(len(everywhere))]))
    if kind == 3 and isinstance(old, list):
        return old * int(rng.choice([0, 2, 100, 2000]))
    if kind == 4 and isinstance(old, dict) and old:
        left = dict(old)
        left.pop(list(left)[rng.integers(len(left))])
        return left
    return copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def change_array(content, rng):
    """An array of another shape or type, or with other entries."""
    contents = _members(content)
    number = int(rng.integers(len(contents) - 1))
    values = np.load(io.BytesIO(contents[f"arrays/{number}.npy"]))
    changes = list(ARRAYS.values())
    if rng.integers(2) and values.size:
        values = values.copy()
        flat = values.reshape(-1)
        raw = rng.bytes(flat.itemsize * 3)
        drawn = np.frombuffer(raw, dtype=flat.dtype) if flat.dtype.kind != "b" else [True] * 3
        flat[rng.integers(flat.size, size=3)] = drawn
    else:
        wrong = changes[rng.integers(len(changes))](values) if values.size else None
        values = values if wrong is None else wrong
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(values))
    contents[f"arrays/{number}.npy"] = stream.getvalue()
    return _zipped(contents.items())


def exchange_arrays(content, rng):
    """Arrays by the number of another one."""
    contents = _members(content)
    tree = json.loads(contents["manifest.json"])
    numbers = [
        w for w in places(tree["model"]) if w[-1] == "array" and type(_at(tree["model"], w)) is int
    ]
    for _ in range(rng.integers(1, 4)):
        where = numbers[rng.integers(len(numbers))]
        other = int(rng.integers(len(contents) - 1))
        tree["model"] = changed(tree["model"], where, other)
    contents["manifest.json"] = json.dumps(tree).encode()
    return _zipped(contents.items())


MUTATORS = [
    flip_bytes,
    cut_and_paste,
    patch_directory,
    change_members,
    change_manifest,
    change_manifest,
    change_array,
    change_array,
    exchange_arrays,
]


def _at(tree, where):
    for key in where:
        tree = tree[key]
    return tree


def _members(content):
    return members(io.BytesIO(content))


def _zipped(contents, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", compression) as archive:
        warnings.simplefilter("ignore")
        for name, content in contents:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return stream.getvalue()


TARGET = Target(prepare, make, read, warm_up)
