"""Corpora of sentences with entities, parses and interactions, and their XML format.

Files from untrusted sources are safe to read: expat is used directly, a document type declaration
raises an error before anything in it is read, the number of elements and the length of a tag are
limited, and only the elements of the current document are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import numpy as np

from rankrls._streams import DamagedError, PathOrFile, name_of, opened
from rankrls.graph_kernels._kernel import LabelledGraph
from rankrls.graph_kernels._sentences import Dependency, Token, sentence_graph

__all__ = ["Document", "Entity", "Pair", "Sentence", "iter_interaction_corpus"]

Ranges = list[tuple[int, int]]

#: Maximum number of elements of a document, and of tokens in all entities of a sentence; bytes of a
#: tag or comment; bytes that are read at once.
MAX_ELEMENTS = MAX_TOUCHED = 1_000_000
MAX_TAG, CHUNK = 2**24, 2**18


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity, and the indices of the tokens that overlap it."""

    id: str
    text: str
    type: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Indices of two entities of a sentence, and whether they are said to interact (or None)."""

    id: str
    first: int
    second: int
    interaction: bool | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with one of its parses, its entities and their candidate pairs."""

    id: str
    text: str
    tokens: tuple[Token, ...]
    dependencies: tuple[Dependency, ...]
    entities: tuple[Entity, ...]
    pairs: tuple[Pair, ...]

    def graph(self, pair: Pair, **options: Any) -> LabelledGraph:
        """Return the graph of one of its pairs; ``options`` are those of `sentence_graph`."""
        tokens = [entity.tokens for entity in self.entities]
        two = tokens[pair.first], tokens[pair.second]
        others = [one for i, one in enumerate(tokens) if i not in (pair.first, pair.second)]
        return sentence_graph(self.tokens, self.dependencies, *two, others=others, **options)


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus, which cross-validation should hold out as a whole."""

    id: str
    sentences: tuple[Sentence, ...]


def iter_interaction_corpus(path: PathOrFile, *, parser: str | None = None) -> Iterator[Document]:
    """Read a corpus of sentences with entities, parses and interactions, document by document.

    The format is the unified XML of the protein interaction corpora AIMed, BioInfer, HPRD50, IEPA
    and LLL, which the user guide describes.

    Parameters
    ----------
    path : str, path or binary file
        XML file, uncompressed or compressed with gzip.
    parser : str, optional
        Attribute ``parser`` of the parse to read; required if there are several parses.

    Yields
    ------
    Document
        One document at a time. The tokens of an entity are those that share a character with it.
        Pairs of an entity with itself are left out.

    Raises
    ------
    ValueError
        With file, line and id of the element, if the file is not such a corpus, has a document
        type declaration, or exceeds the limits in the user guide.
    """
    for element in _documents(path):
        sentences = tuple(_sentence(one, parser) for one in element.all("sentence"))
        yield Document(element.get("id"), sentences)


@dataclass(slots=True)
class _Element:
    """An XML element: tag, attributes, position in the file (name:line), and children."""

    tag: str
    attributes: dict[str, str]
    where: str
    children: list[_Element] = field(default_factory=list)

    def all(self, tag: str, *inside: str) -> list[_Element]:
        """Return the children with the given tag, or their children of further tags."""
        found = [child for child in self.children if child.tag == tag]
        return [one for child in found for one in child.all(*inside)] if inside else found

    def get(self, name: str) -> str:
        """Return a required attribute."""
        if name not in self.attributes:
            raise self.error(f"has no attribute {name!r}")
        return self.attributes[name]

    def look_up(self, name: str, number: dict[str, int]) -> int:
        """Return the index of the element whose id is an attribute."""
        if self.get(name) not in number:
            text = self.get(name)[:60]
            raise self.error(f"refers to {name}={text!r}, which its sentence does not have")
        return number[self.get(name)]

    def ranges(self) -> Ranges:
        """Parse character ranges such as "0-3,7-9", which include both ends."""
        text = self.get("charOffset")
        ranges = []
        for part in text.split(","):
            begin, _, end = part.strip().partition("-")
            if not (begin.isdecimal() and end.isdecimal() and max(len(begin), len(end)) <= 18):
                raise self.error(f"has charOffset={text[:60]!r}; it must read like '3-7,9-12'")
            if int(begin) > int(end):
                raise self.error(f"has charOffset={text[:60]!r}, which ends before it begins")
            ranges.append((int(begin), int(end)))
        return ranges

    def error(self, problem: str) -> ValueError:
        """Create an error that names this element and its position."""
        name = f" id={self.attributes['id'][:80]!r}" if "id" in self.attributes else ""
        return ValueError(f"{self.where}: <{self.tag[:80]}{name}> {problem}")


class _RefusedError(ValueError):
    """An error of the handlers, not of expat."""


def _documents(path: PathOrFile) -> Iterator[_Element]:
    """Generate the documents of a (compressed) file as they end."""
    name, parser = name_of(path), expat.ParserCreate()
    open_elements: list[_Element] = []
    done: list[_Element] = []
    n_bytes = n_elements = 0

    def where() -> str:
        return f"{name}:{parser.CurrentLineNumber}"

    def doctype(*_: Any) -> None:
        raise _RefusedError(
            f"{where()}: the file has a document type declaration, which can define entities and "
            "is not read; remove the <!DOCTYPE …>"
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        n_elements += 1
        if not open_elements and tag != "corpus":
            raise _RefusedError(f"{where()}: it begins with <{tag[:80]}>, not <corpus>")
        if len(open_elements) == 1 and tag != "document":
            raise _RefusedError(f"{where()}: <{tag[:80]}> outside of a <document>")
        if n_elements > MAX_ELEMENTS:
            raise _RefusedError(f"{where()}: a <document> has over {MAX_ELEMENTS:,} elements")
        element = _Element(tag, attributes, where())
        if len(open_elements) > 1:
            open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        nonlocal n_elements
        element = open_elements.pop()
        if len(open_elements) == 1:
            done.append(element)
            n_elements = 0

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = start, end
    data = b"first"
    with opened(path) as file:
        while data:
            # expat scans an unfinished tag again with each new piece of data.
            waiting = n_bytes - max(parser.CurrentByteIndex, 0)
            if waiting > MAX_TAG:
                raise ValueError(f"{where()}: a tag or comment is over {MAX_TAG >> 20} MiB long")
            try:
                data = file.read(max(CHUNK, waiting))
                parser.Parse(data, not data)
            except DamagedError as error:
                raise ValueError(f"{name}: {error} ({error.args[1]})") from error
            except expat.ExpatError as error:
                reason = expat.ErrorString(error.code)
                raise ValueError(f"{name}:{error.lineno}: not well-formed XML: {reason}") from None
            except _RefusedError:
                raise
            except (LookupError, ValueError) as error:
                raise ValueError(
                    f"{where()}: the encoding of the file cannot be read ({error}); save it in "
                    "UTF-8"
                ) from None
            n_bytes += len(data)
            yield from done
            done.clear()


def _sentence(element: _Element, parser: str | None) -> Sentence:
    parses = element.all("sentenceanalyses", "parses", "parse")
    names = [parse.get("parser") for parse in parses]
    listed = ", ".join(repr(name[:60]) for name in names[:10]) or "none"
    if parser is None and len(parses) != 1:
        raise element.error(f"has {len(parses)} parses ({listed}); choose one by parser=…")
    if parser is not None and names.count(parser) != 1:
        raise element.error(f"must have exactly one parse by {parser!r}; it has: {listed}")
    parse = parses[0 if parser is None else names.index(parser)]
    tokenizer = parse.get("tokenizer")
    found = element.all("sentenceanalyses", "tokenizations", "tokenization")
    found = [one for one in found if one.get("tokenizer") == tokenizer]
    if len(found) != 1:
        text = f"has {len(found)} tokenizations by {tokenizer[:60]!r}; there must be one"
        raise element.error(text)
    words, named = found[0].all("token"), element.all("entity")
    token_number, entity_number = _numbers(words), _numbers(named)
    tokens = tuple(Token(word.get("text"), word.get("POS")) for word in words)
    dependencies = tuple(
        Dependency(d.look_up("t1", token_number), d.look_up("t2", token_number), d.get("type"))
        for d in parse.all("dependency")
    )
    entities: list[Entity] = []
    n_touched = 0
    covered = overlaps([word.ranges() for word in words], (entity.ranges() for entity in named))
    for entity, inside in zip(named, covered, strict=True):
        if not inside:
            raise entity.error("covers no token; check its charOffset")
        n_touched += len(inside)
        if n_touched > MAX_TOUCHED:
            raise entity.error(f"and those before it cover over {MAX_TOUCHED:,} tokens")
        text, kind = entity.attributes.get("text", ""), entity.attributes.get("type", "")
        entities.append(Entity(entity.get("id"), text, kind, inside))
    pairs = []
    for pair in element.all("pair"):
        value = pair.attributes.get("interaction")
        if value not in ("True", "False", None):
            raise pair.error(f"has interaction={value[:60]!r}; it must be 'True' or 'False'")
        first, second = (pair.look_up(name, entity_number) for name in ("e1", "e2"))
        if first != second:
            interacts = None if value is None else value == "True"
            pairs.append(Pair(pair.get("id"), first, second, interacts))
    text = element.attributes.get("text", "")
    return Sentence(element.get("id"), text, tokens, dependencies, tuple(entities), tuple(pairs))


def _numbers(elements: list[_Element]) -> dict[str, int]:
    """Indices of elements by their ids, which must differ."""
    number: dict[str, int] = {}
    for element in elements:
        if element.get("id") in number:
            raise element.error("has the id of an earlier element of its sentence")
        number[element.get("id")] = len(number)
    return number


def overlaps(tokens: list[Ranges], entities: Iterable[Ranges]) -> Iterator[tuple[int, ...]]:
    """Generate the tokens that share a character with each entity, by their character ranges."""
    token = np.repeat(np.arange(len(tokens)), [len(ranges) for ranges in tokens])
    flat = [edges for ranges in tokens for edges in ranges]
    first, last = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    for ranges in entities:
        begin, end = np.array(sorted(ranges), dtype=np.int64).T
        end = np.maximum.accumulate(end)
        # Among the ranges that begin before a token ends, one must end after the token begins.
        before = np.searchsorted(begin, last, side="right") - 1
        shared = (before >= 0) & (end[before] >= first)
        yield tuple(np.unique(token[shared]).tolist())
