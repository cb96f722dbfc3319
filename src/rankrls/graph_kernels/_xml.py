"""Streaming XML reader for corpora, safe for files from untrusted sources.

Expat is used directly. A document type declaration raises an error before anything in it is read,
so that no internal or external entities are expanded. The number of elements and the length of a
tag or comment are limited, and only the elements of the current document are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from rankrls._streams import DamagedError, PathOrFile, name_of, opened

__all__ = ["Element", "iter_elements"]

_CHUNK = 1 << 16
_MAX_ELEMENTS = 1_000_000  # maximum for one document
_MAX_TOKEN = 1 << 24  # maximum bytes of one tag, comment or processing instruction


@dataclass(slots=True)
class Element:
    """An XML element: tag, attributes, position in the file (name:line), and children."""

    tag: str
    attributes: dict[str, str]
    where: str
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str, *inside: str) -> list[Element]:
        """Return the children with the given tag, or their children of further tags."""
        found = [child for child in self.children if child.tag == tag]
        return [one for child in found for one in child.all(*inside)] if inside else found

    def get(self, name: str) -> str:
        """Return a required attribute."""
        if name not in self.attributes:
            raise self.error(f"has no attribute {name!r}")
        return self.attributes[name]

    def error(self, problem: str) -> ValueError:
        """Create an error that names this element and its position."""
        name = f" id={self.attributes['id'][:80]!r}" if "id" in self.attributes else ""
        return ValueError(f"{self.where}: <{self.tag[:80]}{name}> {problem}")


def iter_elements(path: PathOrFile, root: str, tag: str) -> Iterator[Element]:
    """Generate the elements ``tag`` of a (compressed) file with outermost element ``root``."""
    reader = _Reader(name_of(path), root, tag)
    with opened(path) as file:
        while True:
            try:
                data = file.read(max(_CHUNK, reader.n_waiting))
            except DamagedError as error:
                raise ValueError(f"{reader.name}: {error} ({error.args[1]})") from error
            yield from reader.feed(data)
            if not data:
                return


class _RefusedError(ValueError):
    """An error of the handlers, not of expat."""


class _Reader:
    def __init__(self, name: str, root: str, tag: str) -> None:
        self.name, self.root, self.tag = name, root, tag
        self.open: list[Element] = []
        self.done: list[Element] = []
        self.n_bytes = self.n_elements = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype

    @property
    def where(self) -> str:
        return f"{self.name}:{self.parser.CurrentLineNumber}"

    @property
    def n_waiting(self) -> int:
        """Bytes of an unfinished tag, which expat scans again with each new piece of data."""
        return self.n_bytes - max(self.parser.CurrentByteIndex, 0)

    def feed(self, data: bytes) -> list[Element]:
        self.n_bytes += len(data)
        try:
            self.parser.Parse(data, not data)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ValueError(f"{self.name}:{error.lineno}: not well-formed XML: {reason}") from None
        except _RefusedError:
            raise
        except (LookupError, ValueError) as error:
            raise ValueError(
                f"{self.where}: the encoding of the file cannot be read ({error}); save it in UTF-8"
            ) from None
        if self.n_waiting > _MAX_TOKEN:
            raise ValueError(
                f"{self.where}: a comment or a tag is longer than {_MAX_TOKEN >> 20} MiB"
            )
        done, self.done = self.done, []
        return done

    def doctype(self, *_: Any) -> None:
        raise _RefusedError(
            f"{self.where}: the file has a document type declaration, which can define entities "
            "and is not read; remove the <!DOCTYPE …>"
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.n_elements += 1
        if not self.open and tag != self.root:
            raise _RefusedError(f"{self.where}: it begins with <{tag[:80]}>, not <{self.root}>")
        if len(self.open) == 1 and tag != self.tag:
            raise _RefusedError(f"{self.where}: <{tag[:80]}> outside of a <{self.tag}>")
        if self.n_elements > _MAX_ELEMENTS:
            raise _RefusedError(f"{self.where}: a <{self.tag}> has over {_MAX_ELEMENTS:,} elements")
        element = Element(tag, attributes, self.where)
        if len(self.open) > 1:
            self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        element = self.open.pop()
        if len(self.open) == 1:
            self.done.append(element)
            self.n_elements = 0
