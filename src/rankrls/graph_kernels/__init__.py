"""All-paths graph kernel for labelled graphs, and graph representations of sentences (P4 §4)."""

from rankrls.graph_kernels._corpus import (
    Document,
    Entity,
    Pair,
    Sentence,
    iter_interaction_corpus,
)
from rankrls.graph_kernels._kernel import (
    AllPathsGraphFeatures,
    LabelledGraph,
    all_paths_graph_kernel,
)
from rankrls.graph_kernels._sentences import Dependency, Token, sentence_graph

__all__ = [
    "AllPathsGraphFeatures",
    "Dependency",
    "Document",
    "Entity",
    "LabelledGraph",
    "Pair",
    "Sentence",
    "Token",
    "all_paths_graph_kernel",
    "iter_interaction_corpus",
    "sentence_graph",
]
