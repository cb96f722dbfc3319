"""Conditional ranking on relations: closed forms, iteration, exact hold-out."""

from rankrls.relations._cross_validation import alpha_chunks, complete_labels, cross_validate
from rankrls.relations._holdout import CompleteHoldout, Held, closed_form
from rankrls.relations._plan import BlockFold, Plan, make_plan, pair_folds, plan_of_splits
from rankrls.relations._problem import SOLVERS, RelationProblem, Solution, Stopping

__all__ = [
    "SOLVERS",
    "BlockFold",
    "CompleteHoldout",
    "Held",
    "Plan",
    "RelationProblem",
    "Solution",
    "Stopping",
    "alpha_chunks",
    "closed_form",
    "complete_labels",
    "cross_validate",
    "make_plan",
    "pair_folds",
    "plan_of_splits",
]
