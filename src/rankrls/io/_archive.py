"""The file format: an uncompressed zip archive with a manifest and arrays.

    manifest.json      {"format": "rankrls", "format_version": 2, "versions": {…}, "model": {…}}
    arrays/0.npy …     NumPy's format, version 1.0, little-endian

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
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.io._kinds import require

Array = NDArray[Any]

MANIFEST = "manifest.json"

#: Types of array entries, by their names in NumPy.
ARRAY_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

#: Bytes that `zipfile` uses to describe one member.
MEMBER = 800

#: Loading a file of n bytes uses at most BASE + FACTOR n bytes.
BASE, FACTOR = 2**20, 64

#: Bytes that the Python objects of a JSON text use for each of its characters, at most: a list that
#: holds another one takes 96 bytes, and two characters.
JSON_FACTOR = 50


def write_archive(file: IO[bytes], text: bytes, arrays: list[Array]) -> None:
    """Write the text of the manifest and the arrays, in C or Fortran order as in memory."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_info(MANIFEST, len(text)), "w") as member:
            member.write(text)
        for number, array in enumerate(arrays):
            values = np.asarray(array, dtype=array.dtype.newbyteorder("<"))
            with archive.open(_info(f"arrays/{number}.npy", values.nbytes + 1000), "w") as member:
                npy.write_array(member, values, version=(1, 0), allow_pickle=False)


def _info(name: str, size: int) -> zipfile.ZipInfo:
    """Return the entry of a member without time stamps, so that equal models give equal bytes."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = size  # zipfile needs the size of large members in advance, if only roughly
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


class ArchiveReader:
    """Reader of archives written by `write_archive`; other files raise a ``ValueError``."""

    def __init__(self, file: IO[bytes], check: Callable[[dict[str, Any]], None]) -> None:
        self._size = file.seek(0, os.SEEK_END)
        self.budget = Budget(self._size)
        file.seek(0)
        start = file.read(4)
        require(start[:1] != b"\x80", "it is a pickle, which is never unpickled here")
        require(start == b"PK\x03\x04", "it is not a model of rankrls: empty, or damaged")
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"the file is cut off or damaged ({error})") from error
        members = self._archive.infolist()
        if not members or members[0].filename != MANIFEST:
            raise ValueError(f"it is a zip file without a {MANIFEST}, not a model of rankrls")
        self.budget.charge(MEMBER * len(members), "its table of contents")
        for number, info in enumerate(members):
            name = show(info.filename)
            good = info.filename == (f"arrays/{number - 1}.npy" if number else MANIFEST)
            require(good, f"its member {name} does not belong there")
            plain = info.compress_type == zipfile.ZIP_STORED and info.flag_bits == 0
            require(plain, f"its member {name} is compressed or encrypted, which models are not")
            good = info.compress_size == info.file_size
            require(good, f"its member {name} should have {info.file_size:,} bytes: cut off?")
        total = sum(info.file_size for info in members)
        require(total <= self._size, f"its members claim {total:,} bytes, it has {self._size:,}")
        self.manifest = self._read_manifest(members[0])
        check(self.manifest)
        self._members = members[1:]
        self._arrays: dict[int, Array] = {}

    def _read_manifest(self, info: zipfile.ZipInfo) -> dict[str, Any]:
        self.budget.charge(JSON_FACTOR * info.file_size, "its manifest")
        text = self._archive.read(info)
        try:
            manifest = json.loads(
                text.decode("ascii"),
                object_pairs_hook=_without_duplicates,
                parse_constant=_finite,
                parse_float=_finite,
            )
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its manifest is not the JSON of a model ({error})") from error
        require(type(manifest) is dict, "its manifest is not a JSON object")
        return manifest

    def type_and_shape(self, number: Any) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an array, if the bytes that follow its header are as many."""
        info = self._member(number)
        name = info.filename
        with self._archive.open(info) as member:
            try:
                require(npy.read_magic(member) == (1, 0), "of another version")
                shape, _, dtype = npy.read_array_header_1_0(member)
            except Exception as error:  # whatever NumPy's parser of headers raises
                raise ValueError(f"{name} is not an array ({str(error)[:100]})") from error
            rest = info.file_size - member.tell()
        known = dtype.name in ARRAY_TYPES and dtype == dtype.newbyteorder("<")
        require(known, f"{name} holds {show(dtype.str)}, which arrays of a model do not")
        # Without entries there are no bytes to compare the lengths of the other axes with.
        good = len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)
        good = good and math.prod(n for n in shape if n) <= self._size
        require(good, f"{name} has the shape {show(shape)}, more than the file has bytes")
        size = math.prod(shape) * dtype.itemsize
        require(size == rest, f"{name} has {rest:,} bytes, and {size:,} by its shape {shape}")
        return dtype.name, shape

    def array(self, number: Any) -> Array:
        """Read an array and check its checksum."""
        info = self._member(number)
        # Every call is charged: the caller processes the whole array.
        self.budget.charge(info.file_size, info.filename)
        if number not in self._arrays:
            dtype, _ = self.type_and_shape(number)
            with self._archive.open(info) as member:
                values = npy.read_array(member, allow_pickle=False)
                require(member.read(1) == b"", f"{info.filename} is too long")  # checks the CRC
            self._arrays[number] = values.astype(dtype, copy=False)
        return self._arrays[number]

    def _member(self, number: Any) -> zipfile.ZipInfo:
        good = type(number) is int and 0 <= number < len(self._members)
        require(good, f"there is no array {show(number)}")
        return self._members[number]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    require(len(made) == len(pairs), "a key occurs twice")
    return made


def _finite(text: str) -> float:
    number = float(text)
    require(math.isfinite(number), f"{text[:40]} is not a number")
    return number
