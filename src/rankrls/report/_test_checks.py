"""Checks of test data: overlap with the training data, and shifted features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.report._data import Rankings
from rankrls.report._duplicates import rows_in_common
from rankrls.report._feature_statistics import FeatureStatistics, feature_statistics
from rankrls.report._findings import MAX_EXAMPLES, Finding, count, listed

__all__ = ["check_test_data"]

Array = NDArray[Any]

#: Report means that differ by more than this many standard deviations, or spreads by this factor.
MAX_SHIFT = 3.0
MAX_RATIO = 10.0


def check_test_data(
    train: Rankings, test: Rankings, statistics: FeatureStatistics | None
) -> list[Finding]:
    """Compare test with training data; ``statistics`` are None for a kernel matrix."""
    found = []
    seen = {str(label) for label in train.labels} if train.has_qid else set()
    shared = [str(label) for label in test.labels if str(label) in seen]
    if test.has_qid and shared:
        found.append(
            Finding(
                "warning",
                "shared-queries",
                f"{count(len(shared), 'query id is', 'query ids are')} in both training and test "
                "data",
                "If these are the same queries, the test error is too optimistic: split the data "
                "by query. If both files number their queries from 1, ignore this warning.",
                listed(shared[:MAX_EXAMPLES], len(shared)),
            )
        )
    if statistics is None:
        return found
    common = np.flatnonzero(rows_in_common(test.X, train.X))
    if len(common):
        found.append(
            Finding(
                "problem" if len(common) >= 0.05 * test.n_rows else "warning",
                "shared-rows",
                f"{count(len(common), 'test row is', 'test rows are')} also in the training data "
                f"({len(common) / test.n_rows:.1%})",
                "All their features are equal. The test error is too optimistic if these are the "
                "same documents of the same queries.",
                listed([test.document_name(int(r)) for r in common[:MAX_EXAMPLES]], len(common)),
            )
        )
    return found + _shift(train, test, statistics)


def _shift(train: Rankings, test: Rankings, before: FeatureStatistics) -> list[Finding]:
    """Report features whose mean or spread differs from training, perhaps due to scaling."""
    after = feature_statistics(test)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.abs(after.mean - before.mean) / before.std
        ratio = np.maximum(after.std / before.std, before.std / after.std)
    moved = before.varies & ((shift > MAX_SHIFT) | (ratio > MAX_RATIO))
    new = ~before.varies & after.varies
    moved = np.flatnonzero(moved | new)
    if not len(moved):
        return []
    examples = [
        f"{train.feature_names[j]}: mean {before.mean[j]:.3g} → {after.mean[j]:.3g}, "
        f"standard deviation {before.std[j]:.3g} → {after.std[j]:.3g}"
        for j in moved[:MAX_EXAMPLES]
    ]
    return [
        Finding(
            "warning",
            "shifted-features",
            f"{count(len(moved), 'feature differs', 'features differ')} between training and test",
            f"Their means differ by more than {MAX_SHIFT:g} standard deviations, or their standard "
            f"deviations by a factor of more than {MAX_RATIO:g}. Check that both data sets were "
            "scaled in the same way and that their columns are in the same order.",
            listed(examples, len(moved)),
        )
    ]
