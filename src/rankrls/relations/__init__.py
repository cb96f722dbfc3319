"""Conditional ranking on relations: closed forms, iteration, exact hold-out."""

from rankrls.relations._holdout import CompleteHoldout, Held, closed_form
from rankrls.relations._problem import SOLVERS, RelationProblem, Solution, Stopping

__all__ = [
    "SOLVERS",
    "CompleteHoldout",
    "Held",
    "RelationProblem",
    "Solution",
    "Stopping",
    "closed_form",
]
