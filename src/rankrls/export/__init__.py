"""Export of fitted rankers to search engines, databases, ONNX and SVMrank.

Each function takes a fitted ranker, a `Pipeline` that ends in one, or a search over either. Scaling
that is the same for all rows is folded into the weights; an error is raised for anything that the
target format cannot represent. ``_steps.py`` decomposes an estimator, ``_fold.py`` computes its
weights and ``_names.py`` checks names. Each of the other modules writes one format.
"""

from rankrls.export._engines import to_elasticsearch, to_opensearch, to_solr
from rankrls.export._expressions import to_sql, to_vespa
from rankrls.export._fold import LinearScores, linear_scores
from rankrls.export._onnx import to_onnx
from rankrls.export._svmrank import to_svmrank

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
