"""XML of a corpus, element by element, from files that may come from strangers.

Expat is used directly. A document type declaration is refused before anything in it is read, so
that there are neither entities that expand nor external ones; depth and number of elements are
limited; and nothing but the elements of the current document is ever held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from rankrls._streams import DAMAGED, PathOrFile, name_of, opened

__all__ = ["Element", "iter_elements"]

_CHUNK = 1 << 16
_MAX_DEPTH = 64
_MAX_ELEMENTS = 5_000_000  # of one document
_MAX_TOKEN = 1 << 26  # bytes of one tag


@dataclass(slots=True)
class Element:
    """A tag, its attributes, the elements in it, and the place for error messages."""

    tag: str
    attributes: dict[str, str]
    where: str
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Elements directly in this one."""
        return [child for child in self.children if child.tag == tag]

    def get(self, name: str) -> str:
        """An attribute that must be there."""
        try:
            return self.attributes[name]
        except KeyError:
            raise self.error(f"has no attribute {name!r}") from None

    def error(self, problem: str) -> ValueError:
        """What is wrong with this element, and where it is."""
        name = self.attributes.get("id")
        called = f"<{self.tag} id={name!r}>" if name is not None else f"<{self.tag}>"
        return ValueError(f"{self.where}: {called} {problem}")


def iter_elements(path: PathOrFile, root: str, tag: str) -> Iterator[Element]:
    """Elements ``tag`` of a file whose outermost element is ``root``, one at a time.

    Text between tags is left out. gzip is recognised by content.
    """
    name = name_of(path)
    with opened(path) as file:
        reader = _Reader(name, root, tag)
        while True:
            try:
                data = file.read(_CHUNK)
            except DAMAGED as error:
                raise ValueError(
                    f"{name}: the gzip data is truncated or corrupt ({error})"
                ) from error
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

    def feed(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ValueError(f"{self.name}:{error.lineno}: not well-formed XML: {reason}") from None
        if self._fed - self._parser.CurrentByteIndex > _MAX_TOKEN:
            raise ValueError(f"{self._where()}: a tag is longer than {_MAX_TOKEN >> 20} MiB")

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
            raise ValueError(f"{self._where()}: the file begins with <{tag}>, not <{self.root}>")
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"{self._where()}: elements are nested more than {_MAX_DEPTH} deep")
        if self._count > _MAX_ELEMENTS:
            raise ValueError(f"{self._where()}: a <{self.tag}> has over {_MAX_ELEMENTS:,} elements")
        if not self._open and tag != self.tag:
            if self._depth == 2:
                raise ValueError(f"{self._where()}: <{tag}> outside of a <{self.tag}>")
            return
        element = Element(tag, attributes, self._where())
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._open:
            element = self._open.pop()
            if not self._open:
                self.done.append(element)
                self._count = 0
