"""Export of fitted rankers to search engines, databases, ONNX and SVMrank.

Each function takes a fitted ranker, a `Pipeline` that ends in one, or a search over either. Scaling
that is the same for all rows is folded into the weights; an error is raised for anything that the
target format cannot represent.
"""

from rankrls.export._linear import LinearScores, linear_scores
from rankrls.export._onnx import to_onnx
from rankrls.export._writers import (
    to_elasticsearch,
    to_opensearch,
    to_solr,
    to_sql,
    to_svmrank,
    to_vespa,
)

__all__ = [
    "LinearScores",
    "linear_scores",
    "to_elasticsearch",
    "to_onnx",
    "to_opensearch",
    "to_solr",
    "to_sql",
    "to_svmrank",
    "to_vespa",
]
