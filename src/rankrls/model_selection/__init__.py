"""Exact cross-validation, splitters, permutation tests and cross-validated estimates of AUC."""

from rankrls.model_selection._exact import (
    PermutationTestResult,
    holdout_judgements,
    holdout_predict,
    leave_pair_out_predict,
    leave_pair_out_score,
    leave_pair_out_tournament,
    leave_query_out_predict,
    permutation_test,
    tournament_scores,
)
from rankrls.model_selection._relations import (
    conditional_cross_val_score,
    relation_holdout_predict,
)
from rankrls.model_selection._splitters import (
    ComponentKFold,
    LeavePairOut,
    LeaveQueryOut,
    QueryKFold,
)
from rankrls.model_selection.refits import (
    averaged_auc,
    balanced_leave_one_out_auc,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    leave_one_out_auc,
    leave_pair_out_auc,
    pooled_auc,
)

__all__ = [
    "ComponentKFold",
    "LeavePairOut",
    "LeaveQueryOut",
    "PermutationTestResult",
    "QueryKFold",
    "averaged_auc",
    "balanced_leave_one_out_auc",
    "conditional_cross_val_score",
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "holdout_judgements",
    "holdout_predict",
    "leave_one_out_auc",
    "leave_pair_out_auc",
    "leave_pair_out_predict",
    "leave_pair_out_score",
    "leave_pair_out_tournament",
    "leave_query_out_predict",
    "permutation_test",
    "pooled_auc",
    "relation_holdout_predict",
    "tournament_scores",
]
