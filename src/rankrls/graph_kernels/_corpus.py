"""Data structures for corpora of sentences with entities, parses and interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankrls.graph_kernels._graphs import LabelledGraph
from rankrls.graph_kernels._sentences import Dependency, Token, sentence_graph

__all__ = ["Document", "Entity", "Pair", "Sentence"]


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
        others = [
            entity.tokens
            for index, entity in enumerate(self.entities)
            if index not in (pair.first, pair.second)
        ]
        first, second = self.entities[pair.first], self.entities[pair.second]
        return sentence_graph(
            self.tokens, self.dependencies, first.tokens, second.tokens, others=others, **options
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus, which cross-validation should hold out as a whole."""

    id: str
    sentences: tuple[Sentence, ...]
