"""Corpora of sentences with entities, parses and interactions: what a file of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankrls.graph_kernels._graphs import LabelledGraph
from rankrls.graph_kernels._sentences import Dependency, Token, sentence_graph

__all__ = ["Document", "Entity", "Pair", "Sentence"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity, and the tokens that its characters touch, as indices."""

    id: str
    text: str
    type: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two entities of a sentence, as indices, and whether it says that they interact.

    ``interaction`` is None where the file does not tell.
    """

    id: str
    first: int
    second: int
    interaction: bool | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, one of its parses, its entities and the candidate pairs of these."""

    id: str
    text: str
    tokens: tuple[Token, ...]
    dependencies: tuple[Dependency, ...]
    entities: tuple[Entity, ...]
    pairs: tuple[Pair, ...]

    def graph(self, pair: Pair, **options: Any) -> LabelledGraph:
        """The graph of one of its pairs; ``options`` as for `sentence_graph`."""
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
    """A document of a corpus: what cross-validation should leave out as a whole."""

    id: str
    sentences: tuple[Sentence, ...]
