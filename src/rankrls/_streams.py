"""Reading and writing of plain and compressed files, given by name or open."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import IO, Any, BinaryIO, cast

from rankrls import _resources
from rankrls._atomic import atomic_file

PathOrFile = str | os.PathLike[str] | BinaryIO

#: Suffixes of compressed files.
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")

#: First bytes of compressed files, at most four.
_MAGIC = {
    "gzip": re.compile(b"\x1f\x8b"),
    "bzip2": re.compile(b"BZh[1-9]"),
    "xz": re.compile(b"\xfd7zX"),
    "zstd": re.compile(re.escape(b"\x28\xb5\x2f\xfd")),
}

_PIECE_BYTES = 1 << 16


class DamagedError(Exception):
    """Error for truncated or corrupt compressed data; ``args`` are their kind and the error."""

    def __str__(self) -> str:
        return f"the {self.args[0]} data is truncated or corrupt"


def name_of(path: PathOrFile) -> str:
    """Name of the file in error messages."""
    if isinstance(path, str | os.PathLike):
        return os.fspath(path)
    if not hasattr(path, "read"):
        raise ValueError(
            f"path must be a file name or a file opened in binary mode; got {type(path).__name__}"
        )
    name = getattr(path, "name", None)
    return name if isinstance(name, str) else "<stream>"


def without_suffix(name: str) -> str:
    """Name of a file without the suffix of its compression."""
    suffix = next((end for end in _SUFFIXES if name.lower().endswith(end)), "")
    return name[: len(name) - len(suffix)]


@contextmanager
def opened(path: PathOrFile) -> Iterator[Any]:
    """Open a file for reading; gzip, bzip2, xz and zstd are detected by content and decompressed.

    An open file is read from its current position and stays open.
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            yield unpacked(file, name_of(path))
    else:
        yield unpacked(path, name_of(path))


def unpacked(file: Any, name: str) -> Any:
    """A file with ``read(n_bytes)``, which raises `DamagedError` if the data are damaged."""
    head = b""
    while len(head) < 4 and (more := _read(file, 4 - len(head), name)):
        head += more
    source = _Prefixed(head, file, name)
    for kind, magic in _MAGIC.items():
        if magic.match(head):
            return _Unpacked(source, kind, name)
    return source


@contextmanager
def written(path: str) -> Iterator[Any]:
    """Open a file for writing by `atomic_file`, compressed according to the suffix of its name."""
    suffix = path[len(without_suffix(path)) :].lower()
    with atomic_file(path) as file:
        writer: Any = nullcontext(file)
        if suffix == ".gz":
            writer = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        elif suffix in (".bz2", ".xz"):
            writer = (bz2.BZ2File if suffix == ".bz2" else lzma.LZMAFile)(file, "wb")
        elif suffix:
            writer = _zstd(path).CompressedOutputStream(_LeftOpen(file), "zstd")
        with writer as open_writer:
            yield open_writer


def _zstd(name: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            f"{name}: zstd files need pyarrow, which is not installed: pip install 'rankrls[arrow]'"
        ) from error


def _read(file: Any, n_bytes: int, name: str) -> bytes:
    data = file.read(n_bytes)
    if not isinstance(data, bytes):
        raise ValueError(f"{name}: open the file in binary mode ('rb'); read() gave {type(data)}")
    return data


class _LeftOpen:
    """A file that pyarrow does not close."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


class _Prefixed:
    """A file whose first bytes were already read; ``read`` returns them again."""

    closed = False

    def __init__(self, head: bytes, file: Any, name: str) -> None:
        self._head, self._file, self._name = head, file, name

    def read(self, n_bytes: int) -> bytes:
        head, self._head = self._head[:n_bytes], self._head[n_bytes:]
        return head or _read(self._file, n_bytes, self._name)

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


class _Unpacked:
    """The decompressed bytes of a file."""

    def __init__(self, source: _Prefixed, kind: str, name: str) -> None:
        self._kind = kind
        if kind == "gzip":
            self._reader: Any = gzip.GzipFile(fileobj=cast(Any, source), mode="rb")
        elif kind == "bzip2":
            self._reader = _Streams(source, bz2.BZ2Decompressor)
        elif kind == "xz":
            limited = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _resources.budget())
            self._reader = _Streams(source, limited)
        else:
            pa = _zstd(name)
            self._reader = pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd")

    def read(self, n_bytes: int) -> bytes:
        try:
            return self._reader.read(n_bytes)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the disk, not the data
                raise
            raise DamagedError(self._kind, error) from error


class _Streams:
    """Concatenated compressed streams, each with its own decompressor."""

    def __init__(self, source: _Prefixed, make: Callable[[], Any]) -> None:
        self._source, self._make, self._decompressor = source, make, make()

    def read(self, n_bytes: int) -> bytes:
        while True:
            more = self._decompressor.unused_data if self._decompressor.eof else b""
            if not more and (self._decompressor.eof or self._decompressor.needs_input):
                more = self._source.read(_PIECE_BYTES)
                if not more and self._decompressor.eof:
                    return b""
                if not more:
                    raise EOFError("it ends before the end of a stream")
            if self._decompressor.eof:
                self._decompressor = self._make()
            if data := self._decompressor.decompress(more, n_bytes):
                return data
