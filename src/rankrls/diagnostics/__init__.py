"""Diagnostics of data and models: suspicious labels, informative comparisons, explanations.

`audit` measures the influence of each judgement, item, judge, query or row on a model, and how well
the model without it predicts its labels. `suggest_pairs` chooses the most informative judgements to
collect next. `explain` splits a difference of scores into contributions. They are exact and
need no refitting. `feature_importances` drops columns from an `AutoRanker`. `transitivity` counts
the cycles of a reciprocal relation.
"""

from rankrls.diagnostics._audit import Audit, audit
from rankrls.diagnostics._explain import Explanation, explain, feature_importances
from rankrls.diagnostics._transitivity import Transitivity, transitivity
from rankrls.diagnostics.suggest import suggest_pairs

__all__ = [
    "Audit",
    "Explanation",
    "Transitivity",
    "audit",
    "explain",
    "feature_importances",
    "suggest_pairs",
    "transitivity",
]
