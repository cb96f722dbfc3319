"""The file format: an uncompressed zip archive with a manifest and arrays.

    manifest.json      {"format": "rankrls", "format_version": 1, …, "arrays": [{"dtype", "shape"}]}
    arrays/0.npy …     NumPy's format, version 1.0, little-endian, C order

An array with another memory layout is stored in that layout, and "axes" gives the order of its
axes. Products with the loaded array then give the same floating-point results as before.

Nothing is compressed, so an array takes as much memory as it has bytes in the file. All sizes are
checked against the length of the file before memory is allocated. The checksum of a zip member is
checked when the member is read. Text and labels take more memory than in the file because they
become Python objects, and a file may refer to one array many times: a `Budget`, a multiple of the
size of the file, is charged for whatever loading allocates, in advance.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.io._kinds import require

__all__ = ["ARRAY_TYPES", "ArchiveReader", "Budget", "write_archive"]

Array = NDArray[Any]

MANIFEST = "manifest.json"

#: Types of array entries, by their names in NumPy.
ARRAY_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

#: Maximum size of a manifest in bytes, for writing and reading.
MAX_MANIFEST = 2**28

CHUNK = 2**20

#: Bytes that `zipfile` uses to describe one member.
MEMBER = 800

#: Loading a file of n bytes uses at most BASE + FACTOR n bytes.
BASE, FACTOR = 2**20, 32

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


def _member(number: int) -> str:
    return f"arrays/{number}.npy"


def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file of version 1.0, padded to a multiple of 64 bytes."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def write_archive(file: IO[bytes], manifest: dict[str, Any], arrays: list[Array]) -> None:
    """Write the arrays and the manifest, extended by a table of the arrays."""
    layouts = [_memory_order(array) for array in arrays]
    table = []
    for array, axes in zip(arrays, layouts, strict=True):
        entry: dict[str, Any] = {"dtype": array.dtype.name, "shape": [array.shape[a] for a in axes]}
        table.append(entry | ({"axes": axes} if axes != sorted(axes) else {}))
    text = json.dumps(manifest | {"arrays": table}, allow_nan=False).encode("ascii")
    if len(text) > MAX_MANIFEST:
        raise ValueError(
            f"all but the arrays takes {len(text):,} bytes, more than the {MAX_MANIFEST:,} that a "
            "model file may have (very many query labels? integers take less space than text)"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_info(MANIFEST, len(text)), "w") as member:
            member.write(text)
        for number, (array, axes) in enumerate(zip(arrays, layouts, strict=True)):
            values = np.asarray(array.transpose(axes), dtype=_stored(array.dtype), order="C")
            header = _header(values.dtype.str, values.shape)
            size = len(header) + values.nbytes
            with archive.open(_info(_member(number), size), "w") as member:
                member.write(header)
                view = values.reshape(-1).view(np.uint8)
                for start in range(0, len(view), CHUNK):
                    member.write(view[start : start + CHUNK].data)


def _memory_order(array: Array) -> list[int]:
    """Return the axes in order of decreasing stride."""
    axes = list(range(array.ndim))
    if array.flags.c_contiguous:
        return axes
    if array.flags.f_contiguous:
        return axes[::-1]
    # The stride of an axis of length one is arbitrary: such axes are put first.
    steps = [array.strides[axis] if array.shape[axis] > 1 else np.inf for axis in axes]
    return sorted(axes, key=lambda axis: -abs(steps[axis]))


def _info(name: str, size: int) -> zipfile.ZipInfo:
    """Return the entry of a member without time stamps, so that equal models give equal bytes."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = size  # zipfile needs the size of large members in advance
    return info


class Budget:
    """Memory that loading a file of ``n_bytes`` can still use."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self.limit = BASE + FACTOR * n_bytes
        self.spent = 0

    def charge(self, n_bytes: int, what: str) -> None:
        """Record the memory needed for ``what``; raise an error if it exceeds the budget."""
        self.spent += n_bytes
        require(
            self.spent <= self.limit,
            f"{what} would take {n_bytes:,} bytes, {self.spent:,} with what came before: more than "
            f"the {self.limit:,} that a model of {self.n_bytes:,} bytes can need",
        )

    def charge_json(self, text: bytes) -> None:
        """Record the memory of the Python objects of a JSON text before it is parsed."""
        # First count JSON syntax inside strings as well: most texts contain none.
        objects, skeleton = _json_bytes(text), text
        if self.spent + objects > self.limit or _has_small_lists(text):
            skeleton = _STRING.sub(b'""', text)
            objects = _json_bytes(skeleton) + 2 * len(text)
        require(not _has_small_lists(skeleton), "its manifest is made of tiny lists")
        self.charge(objects, "its manifest")


def _json_bytes(text: bytes) -> int:
    """Return an upper bound on the bytes that the Python objects of a JSON text use.

    The bound is computed from the numbers of commas, brackets and quotes and from the object sizes
    of CPython: 56 bytes for a list, 8 for each of its entries, and so on.
    """
    n_lists, n_dicts, n_keys = text.count(b"["), text.count(b"{"), text.count(b":")
    empty_lists, empty_dicts = text.count(b"[]"), text.count(b"{}")
    n_values = text.count(b",") + n_lists + n_dicts - empty_lists - empty_dicts
    n_texts = max(text.count(b'"') // 2 - n_keys, 0)
    n_numbers = max(n_values - n_texts - n_lists - n_dicts, 0)
    containers = 88 * n_lists - 32 * empty_lists + 64 * n_dicts + 140 * n_keys
    return containers + 9 * n_values + 32 * n_numbers + 60 * n_texts + 2 * len(text)


def _has_small_lists(text: bytes) -> bool:
    """Return whether the text has more lists than tuples and arrays of a model account for.

    An empty list takes 3 bytes in JSON, and 64 in memory.
    """
    return text.count(b"[") - text.count(b"{") > 100 + len(text) // 8


class ArchiveReader:
    """Reader of archives written by `write_archive`; other files raise a ``ValueError``.

    Parameters
    ----------
    file : binary file, open for reading
    check : callable
        ``check(manifest)`` is called before any other part of the file is read.

    Attributes
    ----------
    manifest : dict
    budget : Budget
        Memory that loading the file can still use.
    """

    def __init__(self, file: IO[bytes], check: Callable[[dict[str, Any]], None]) -> None:
        self._size = file.seek(0, os.SEEK_END)
        self.budget = Budget(self._size)
        file.seek(0)
        _require_magic(file.read(64))
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"the file is cut off or damaged ({error})") from error
        members = self._archive.infolist()
        if not members or members[0].filename != MANIFEST:
            raise ValueError(f"it is a zip file without a {MANIFEST}, not a model of rankrls")
        self.budget.charge(MEMBER * len(members), "its table of contents")
        self._check_sizes(members)
        self.manifest = self._read_manifest(members[0])
        check(self.manifest)
        self._members = members[1:]
        self._table = self._check_table()
        self._arrays: dict[int, Array] = {}

    def _check_sizes(self, members: list[zipfile.ZipInfo]) -> None:
        for info in members:
            name = show(info.filename)
            plain = info.compress_type == zipfile.ZIP_STORED and info.flag_bits == 0
            require(plain, f"its member {name} is compressed or encrypted, which models are not")
            require(info.compress_size == info.file_size, f"its member {name} has two sizes")
            inside = 0 <= info.header_offset <= self._size - info.file_size
            require(inside, f"its member {name} should have {info.file_size:,} bytes: cut off?")
        total = sum(info.file_size for info in members)
        require(total <= self._size, f"its members claim {total:,} bytes, it has {self._size:,}")

    def _read_manifest(self, info: zipfile.ZipInfo) -> dict[str, Any]:
        require(info.file_size <= MAX_MANIFEST, f"its manifest has {info.file_size:,} bytes")
        text = self._archive.read(info)
        self.budget.charge_json(text)
        try:
            manifest = json.loads(
                text.decode("ascii"),
                object_pairs_hook=_without_duplicates,
                parse_constant=_refuse_constant,
                parse_float=_finite,
            )
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its manifest is not the JSON of a model ({error})") from error
        require(type(manifest) is dict, "its manifest is not a JSON object")
        return manifest

    def _check_table(self) -> list[tuple[np.dtype[Any], tuple[int, ...], list[int]]]:
        """Return dtypes, shapes and axis orders after checking them against the member sizes."""
        entries = self.manifest.get("arrays")
        require(type(entries) is list, "its manifest has no table of arrays")
        assert isinstance(entries, list)
        expected = [_member(number) for number in range(len(entries))]
        found = [info.filename for info in self._members]
        odd = [show(name) for name in sorted(set(found) - set(expected))]
        require(not odd, f"it has members that do not belong there: {', '.join(odd[:3])}")
        require(found == expected, "its members are not those of its table of arrays")
        table = []
        for entry, info in zip(entries, self._members, strict=True):
            dtype, shape, axes = _check_entry(entry, info.filename)
            # Without entries there are no bytes to compare the lengths of the other axes with.
            lengths = [n for n in shape if n]
            good = math.prod(lengths) <= self._size
            require(good, f"{info.filename} has the shape {shape}, more than the file has bytes")
            size = len(_header(_stored(dtype).str, shape)) + math.prod(shape) * dtype.itemsize
            require(
                size == info.file_size,
                f"{info.filename} has {info.file_size:,} bytes, and {size:,} by its shape {shape}",
            )
            table.append((dtype, shape, axes))
        return table

    def type_and_shape(self, number: int) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an array without reading it."""
        self._require_number(number)
        dtype, shape, axes = self._table[number]
        return dtype.name, tuple(shape[axes.index(axis)] for axis in range(len(shape)))

    def _require_number(self, number: Any) -> None:
        good = type(number) is int and 0 <= number < len(self._table)
        require(good, f"there is no array {show(number)}")

    def array(self, number: int) -> Array:
        """Read an array and check its checksum.

        Every call is charged to the budget, because the caller processes the whole array.
        """
        self._require_number(number)
        self.budget.charge(self._members[number].file_size, self._members[number].filename)
        if number not in self._arrays:
            self._arrays[number] = self._read_array(number)
        return self._arrays[number]

    def _read_array(self, number: int) -> Array:
        dtype, shape, axes = self._table[number]
        name = self._members[number].filename
        values = np.empty(shape, dtype=_stored(dtype))
        header = _header(values.dtype.str, shape)
        view = values.reshape(-1).view(np.uint8)
        with self._archive.open(self._members[number]) as member:
            require(member.read(len(header)) == header, f"{name} is not as the manifest says")
            for start in range(0, len(view), CHUNK):
                part = view[start : start + CHUNK]
                data = member.read(len(part))
                require(len(data) == len(part), f"{name} is cut off")
                part[:] = np.frombuffer(data, dtype=np.uint8)
            require(member.read(1) == b"", f"{name} is too long")  # zipfile checks the CRC here
        values = values.astype(dtype, copy=False)
        return values.transpose(np.argsort(axes)) if axes else values


def _check_entry(entry: Any, name: str) -> tuple[np.dtype[Any], tuple[int, ...], list[int]]:
    known = type(entry) is dict and {"dtype", "shape"} <= set(entry) <= {"dtype", "shape", "axes"}
    require(known, f"the manifest does not say what {name} is")
    dtype, shape = entry["dtype"], entry["shape"]
    require(dtype in ARRAY_TYPES, f"{name} holds {show(dtype)}, which arrays of a model do not")
    good = type(shape) is list and all(type(n) is int and 0 <= n < 2**62 for n in shape)
    require(good and len(shape) <= 32, f"{name} has the shape {show(shape)}")
    axes = entry.get("axes", list(range(len(shape))))
    good = type(axes) is list and all(type(axis) is int for axis in axes)
    require(good and sorted(axes) == list(range(len(shape))), f"{name} has axes {show(axes)}")
    return np.dtype(dtype), tuple(shape), axes


def _require_magic(start: bytes) -> None:
    """Raise a ``ValueError`` that names the type of a file that cannot be a model."""
    require(bool(start), "the file is empty")
    kinds = {
        b"\x80": "a pickle or joblib file, and nothing is ever unpickled here",
        b"\x1f\x8b": "compressed by gzip",
        b"\x93NUMPY": "an array of NumPy",
        b"PK\x05\x06": "an empty zip file",
    }
    for magic, kind in kinds.items():
        require(not start.startswith(magic), f"it is not a model of rankrls, but {kind}")
    require(start.startswith(b"PK\x03\x04"), "it is not a model of rankrls, or it is damaged")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    require(len(made) == len(pairs), "a key occurs twice")
    return made


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    require(math.isfinite(number), f"{text[:40]} is not a number")
    return number
