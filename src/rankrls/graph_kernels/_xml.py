"""Streaming XML reader for corpora, safe for files from untrusted sources.

Expat is used directly. A document type declaration raises an error before anything in it is read,
so that no internal or external entities are expanded. The depth and number of elements and the
length of a tag or comment are limited, and only the elements of the current document are kept in
memory. Time and memory are proportional to the number of bytes read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from rankrls._streams import DamagedError, PathOrFile, name_of, opened

__all__ = ["Element", "iter_elements"]

_CHUNK = 1 << 16
_MAX_DEPTH = 64
_MAX_ELEMENTS = 1_000_000  # maximum for one document
_MAX_TOKEN = 1 << 24  # maximum bytes of one tag, comment or processing instruction

_NO_ATTRIBUTES: dict[str, str] = {}


@dataclass(slots=True)
class Element:
    """An XML element: tag, attributes, position in the file, and children."""

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    children: Sequence[Element] = ()

    def append(self, child: Element) -> None:
        """Append a child; elements without children have no list, to save memory."""
        if isinstance(self.children, list):
            self.children.append(child)
        else:
            self.children = [child]

    def all(self, tag: str, *inside: str) -> list[Element]:
        """Return the children with the given tag, or their children of further tags."""
        found = [child for child in self.children if child.tag == tag]
        return [one for child in found for one in child.all(*inside)] if inside else found

    def get(self, name: str) -> str:
        """Return a required attribute."""
        try:
            return self.attributes[name]
        except KeyError:
            raise self.error(f"has no attribute {name!r}") from None

    def error(self, problem: str) -> ValueError:
        """Create an error that names this element and its position."""
        name = self.attributes.get("id")
        called = f"<{_cut(self.tag)} id={_cut(name)!r}>" if name is not None else f"<{self.tag}>"
        return ValueError(f"{self.file}:{self.line}: {called} {problem}")


def _cut(text: str) -> str:
    """Shorten text for an error message."""
    return text if len(text) <= 80 else text[:80] + "…"


def iter_elements(path: PathOrFile, root: str, tag: str) -> Iterator[Element]:
    """Generate the elements ``tag`` of a (compressed) file with outermost element ``root``."""
    name = name_of(path)
    with opened(path) as file:
        reader = _Reader(name, root, tag)
        while True:
            try:
                data = file.read(max(_CHUNK, reader.n_waiting))
            except DamagedError as error:
                raise ValueError(f"{name}: {error} ({error.args[1]})") from error
            reader.feed(data)
            while reader.done:
                yield reader.done.popleft()
            if not data:
                return


class _Reader:
    def __init__(self, name: str, root: str, tag: str) -> None:
        self.name, self.root, self.tag = name, root, tag
        self.done: deque[Element] = deque()
        self._open: list[Element] = []
        self._depth = self._count = self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._doctype

    @property
    def n_waiting(self) -> int:
        """Bytes of an unfinished tag, which expat scans again with each new piece of data."""
        return self._fed - self._parser.CurrentByteIndex

    def feed(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ValueError(f"{self.name}:{error.lineno}: not well-formed XML: {reason}") from None
        except (LookupError, ValueError) as error:
            if type(error) is ValueError and "multi-byte encodings" not in str(error):
                raise  # raised by the handlers below
            raise ValueError(
                f"{self._where()}: the encoding of the file cannot be read ({error}); save it in "
                "UTF-8"
            ) from None
        if self.n_waiting > _MAX_TOKEN:
            raise ValueError(
                f"{self._where()}: a comment or a tag is longer than {_MAX_TOKEN >> 20} MiB"
            )

    def _where(self) -> str:
        return f"{self.name}:{self._parser.CurrentLineNumber}"

    def _doctype(self, *_: Any) -> None:
        raise ValueError(
            f"{self._where()}: the file has a document type declaration, which can define "
            "entities and is not read; remove the <!DOCTYPE …>"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth == 1 and tag != self.root:
            raise ValueError(
                f"{self._where()}: the file begins with <{_cut(tag)}>, not <{self.root}>"
            )
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"{self._where()}: elements are nested more than {_MAX_DEPTH} deep")
        if self._count > _MAX_ELEMENTS:
            raise ValueError(f"{self._where()}: a <{self.tag}> has over {_MAX_ELEMENTS:,} elements")
        if not self._open and tag != self.tag:
            if self._depth == 2:
                raise ValueError(f"{self._where()}: <{_cut(tag)}> outside of a <{self.tag}>")
            return
        line = self._parser.CurrentLineNumber
        element = Element(tag, attributes or _NO_ATTRIBUTES, self.name, line)
        if self._open:
            self._open[-1].append(element)
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._open:
            element = self._open.pop()
            if not self._open:
                self.done.append(element)
                self._count = 0
