"""Query ids inside scikit-learn's tools: routing by default, and a warning if they are lost.

scikit-learn uses ``groups`` to split rows but does not pass them to the estimator. A ranker without
``qid`` silently compares rows of different queries. A search or cross-validation first clones its
estimator in the process of the caller, where its ``groups`` are still visible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import library_frames, warn
from rankrls._validation import encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import varying_queries

__all__ = ["QueryRequests", "warn_of_pooled_queries"]

Array = NDArray[Any]


class QueryRequests:
    """Mixin for estimators whose ``fit`` takes qid.

    With scikit-learn's metadata routing it requests ``qid`` by default (see ``set_fit_request``).
    It warns when it is cloned inside a scikit-learn tool that has groups but no qid.
    """

    __metadata_request__fit = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)

    def __sklearn_clone__(self) -> Any:
        _warn_of_lost_queries(type(self).__name__)
        return super().__sklearn_clone__()  # type: ignore[misc]


def _warn_of_lost_queries(name: str) -> None:
    for frame in library_frames():
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn."):
            arguments = frame.f_locals
            groups, params = arguments.get("groups"), arguments.get("params")
            params = params if isinstance(params, dict) else {}
            groups = params.get("groups") if groups is None else groups
            if groups is not None:
                with_qid = any(str(key).split("__")[-1] == "qid" for key in params)
                if not with_qid and _look_like_queries(groups, arguments.get("y")):
                    break
                return
    else:
        return
    warn(
        f"groups only define which rows are held out together; {name} receives no qid and compares "
        "rows of different groups. If the groups are queries, use "
        "rankrls.model_selection.cross_val_score (cross_validate, cross_val_predict) with qid=, "
        "or y=PreferenceGraph.from_scores(y, qid=groups) and cv=QueryKFold() in a search"
    )


def warn_of_pooled_queries(name: str) -> None:
    """Warn if PyTerrier calls ``fit`` without queries, as its default form does."""
    if any(str(f.f_globals.get("__name__", "")).startswith("pyterrier.") for f in library_frames()):
        warn(
            f"PyTerrier calls {name}.fit without queries, so that rows of different queries are "
            "compared with each other: write pt.ltr.apply_learned_model("
            'rankrls.pyterrier.PyTerrierLearner(ranker), form="ltr")'
        )


def _look_like_queries(groups: Any, y: Any) -> bool:
    """Whether y differs within most groups, unlike, for example, the samples of a patient."""
    if y is None or isinstance(y, PreferenceGraph):
        return False
    try:
        scores = np.asarray(y, dtype=np.float64).reshape(len(groups), -1)
        queries = encode_qid(groups, len(scores))
    except Exception:  # errors are reported elsewhere; a hint must not fail
        return False
    several = np.bincount(queries.codes, minlength=len(queries)) > 1
    varies = varying_queries(scores, queries.codes, len(queries)).any(axis=1)
    return bool(several.any()) and 2 * int(varies.sum()) >= int(several.sum())
