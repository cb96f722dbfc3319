"""Hold-out: exact predictions of rows by the model that never saw them, without refitting."""

from rankrls.holdout._pairs import check_fold, pair_accuracies, query_folds
from rankrls.holdout._problem import HeldOut, HoldoutProblem, default_pairs

__all__ = [
    "HeldOut",
    "HoldoutProblem",
    "check_fold",
    "default_pairs",
    "pair_accuracies",
    "query_folds",
]
