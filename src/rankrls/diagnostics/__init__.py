"""Questions to the data and to a model: which labels to check, what to ask next, why this order.

`audit` says how much every judgement, item, judge, query or row does to a model, and how badly the
rest predicts it; `suggest_pairs` which judgements would tell most; `explain` what a difference of
scores is made of. All of it is exact, without refitting.
"""

from rankrls.diagnostics._audit import Audit, audit
from rankrls.diagnostics._explain import Explanation, explain
from rankrls.diagnostics._suggest import suggest_pairs

__all__ = ["Audit", "Explanation", "audit", "explain", "suggest_pairs"]
