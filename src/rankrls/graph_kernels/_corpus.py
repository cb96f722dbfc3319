"""Corpora of sentences with entities, parses and interactions, and their XML format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankrls._streams import PathOrFile
from rankrls.graph_kernels._graphs import LabelledGraph
from rankrls.graph_kernels._sentences import Dependency, Token, sentence_graph
from rankrls.graph_kernels._xml import Element, iter_elements

__all__ = ["Document", "Entity", "Pair", "Sentence", "iter_interaction_corpus"]

Ranges = list[tuple[int, int]]

_MAX_TOUCHED = 1_000_000  # maximum number of tokens in all entities of a sentence


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity, and the indices of the tokens that overlap it."""

    id: str
    text: str
    type: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Indices of two entities of a sentence, and whether the sentence states that they interact.

    ``interaction`` is None if the file does not contain it.
    """

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


def iter_interaction_corpus(
    path: PathOrFile, *, parser: str | None = None, self_interactions: bool = False
) -> Iterator[Document]:
    """Read a corpus of sentences with entities, parses and interactions, document by document.

    The format is the unified XML of the protein interaction corpora AIMed, BioInfer, HPRD50, IEPA
    and LLL. A ``corpus`` contains ``document`` elements with ``sentence`` elements; each sentence
    has ``entity`` and ``pair`` elements, and in ``sentenceanalyses`` one or more parses and their
    tokenizations.

    Parameters
    ----------
    path : str, path or binary file
        XML file, uncompressed or compressed with gzip.
    parser : str, optional
        Attribute ``parser`` of the parse to read; required if there are several parses.
    self_interactions : bool, default=False
        Whether to keep pairs of an entity with itself.

    Yields
    ------
    Document
        One document at a time, so that memory use does not grow with the file.

    Raises
    ------
    ValueError
        If the file is not such a corpus; the message has the file name, the line and the id of the
        element. Files from untrusted sources are safe to read: document type declarations, and with
        them XML entities, are refused, as are documents of more than a million elements, tags of
        more than 16 MiB, and sentences with entities that cover more than a million tokens.

    Notes
    -----
    Character offsets start at 0 and include the last character. The tokens of an entity are those
    that share a character with it. An entity can have several tokens, and a token can belong to
    several entities.

    Examples
    --------
    >>> import io
    >>> from rankrls.graph_kernels import AllPathsGraphFeatures, iter_interaction_corpus
    >>> xml = b'''<corpus source="tiny"><document id="d0"><sentence id="s0" text="A binds B">
    ... <entity id="e0" charOffset="0-0" text="A"/><entity id="e1" charOffset="8-8" text="B"/>
    ... <pair id="p0" e1="e0" e2="e1" interaction="True"/>
    ... <sentenceanalyses>
    ... <parses><parse parser="p" tokenizer="t">
    ...   <dependency t1="t1" t2="t0" type="nsubj"/><dependency t1="t1" t2="t2" type="dobj"/>
    ... </parse></parses>
    ... <tokenizations><tokenization tokenizer="t">
    ...   <token id="t0" charOffset="0-0" POS="NN" text="A"/>
    ...   <token id="t1" charOffset="2-6" POS="VBZ" text="binds"/>
    ...   <token id="t2" charOffset="8-8" POS="NN" text="B"/>
    ... </tokenization></tokenizations></sentenceanalyses></sentence></document></corpus>'''
    >>> graphs, interacts = [], []
    >>> for document in iter_interaction_corpus(io.BytesIO(xml)):
    ...     for sentence in document.sentences:
    ...         graphs += [sentence.graph(pair) for pair in sentence.pairs]
    ...         interacts += [pair.interaction for pair in sentence.pairs]
    >>> AllPathsGraphFeatures().fit_transform(graphs).shape, interacts
    ((1, 26), [True])
    """
    for element in iter_elements(path, "corpus", "document"):
        sentences = element.all("sentence")
        yield Document(
            element.get("id"), tuple(_sentence(s, parser, self_interactions) for s in sentences)
        )


def _sentence(element: Element, parser: str | None, self_interactions: bool) -> Sentence:
    parse = _choose_parse(element, parser)
    tokens, ranges = [], []
    token_number: dict[str, int] = {}
    entity_number: dict[str, int] = {}
    for token in _tokenization(element, parse.get("tokenizer")).all("token"):
        _claim(token, token_number)
        tokens.append(Token(token.get("text"), token.get("POS")))
        ranges.append(_ranges(token))
    dependencies = tuple(
        Dependency(_look_up(d, "t1", token_number), _look_up(d, "t2", token_number), d.get("type"))
        for d in parse.all("dependency")
    )
    entities: list[Entity] = []
    n_touched = 0
    for entity, found in zip(
        element.all("entity"), overlaps(ranges, map(_ranges, element.all("entity"))), strict=True
    ):
        _claim(entity, entity_number)
        if not found:
            raise entity.error("covers no token; check its charOffset")
        n_touched += len(found)
        if n_touched > _MAX_TOUCHED:
            raise entity.error(f"and those before it cover over {_MAX_TOUCHED:,} tokens")
        text, kind = entity.attributes.get("text", ""), entity.attributes.get("type", "")
        entities.append(Entity(entity.get("id"), text, kind, found))
    pairs = []
    for pair in element.all("pair"):
        value = pair.attributes.get("interaction")
        if value not in ("True", "False", None):
            raise pair.error(f"has interaction={value[:60]!r}; it must be 'True' or 'False'")
        first, second = (_look_up(pair, name, entity_number) for name in ("e1", "e2"))
        if self_interactions or first != second:
            interacts = None if value is None else value == "True"
            pairs.append(Pair(pair.get("id"), first, second, interacts))
    text = element.attributes.get("text", "")
    return Sentence(
        element.get("id"), text, tuple(tokens), dependencies, tuple(entities), tuple(pairs)
    )


def _choose_parse(element: Element, parser: str | None) -> Element:
    parses = element.all("sentenceanalyses", "parses", "parse")
    names = [parse.get("parser") for parse in parses]
    listed = ", ".join(repr(name[:60]) for name in names[:10]) or "none"
    if parser is None and len(parses) != 1:
        raise element.error(f"has {len(parses)} parses ({listed}); choose one by parser=…")
    if parser is not None and names.count(parser) != 1:
        raise element.error(f"must have exactly one parse by {parser!r}; it has: {listed}")
    return parses[0 if parser is None else names.index(parser)]


def _tokenization(element: Element, tokenizer: str) -> Element:
    found = element.all("sentenceanalyses", "tokenizations", "tokenization")
    found = [one for one in found if one.get("tokenizer") == tokenizer]
    if len(found) != 1:
        raise element.error(
            f"has {len(found)} tokenizations by {tokenizer[:60]!r}; there must be one"
        )
    return found[0]


def _claim(element: Element, number: dict[str, int]) -> None:
    """Assign the next index to the id of an element."""
    name = element.get("id")
    if name in number:
        raise element.error("has the id of an earlier element of its sentence")
    number[name] = len(number)


def _look_up(element: Element, attribute: str, number: dict[str, int]) -> int:
    name = element.get(attribute)
    if name not in number:
        raise element.error(
            f"refers to {attribute}={name[:60]!r}, which its sentence does not have"
        )
    return number[name]


def _ranges(element: Element) -> Ranges:
    """Parse character ranges such as "0-3,7-9", which include both ends."""
    text = element.get("charOffset")
    ranges = []
    for part in text.split(","):
        begin, _, end = part.strip().partition("-")
        if not (begin.isdecimal() and end.isdecimal() and max(len(begin), len(end)) <= 18):
            raise element.error(f"has charOffset={text[:60]!r}; it must read like '3-7,9-12'")
        ranges.append((int(begin), int(end)))
        if ranges[-1][0] > ranges[-1][1]:
            raise element.error(f"has charOffset={text[:60]!r}, which ends before it begins")
    return ranges


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
