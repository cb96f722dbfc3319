"""Query ids inside scikit-learn's tools: asked for by default, and missed where they get lost.

scikit-learn takes ``groups`` to split rows, and does not pass them on to the estimator. A ranker
that gets no ``qid`` compares rows of all queries, which nothing in its arguments shows. A search
or cross-validation clones its estimator first, in the process of the caller: there its ``groups``
are still to be seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import library_frames, warn
from rankrls._validation import encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import varying_queries

__all__ = ["QueryRequests"]

Array = NDArray[Any]


class QueryRequests:
    """An estimator whose ``fit`` takes qid.

    With scikit-learn's metadata routing it asks for ``qid`` unless told otherwise
    (``set_fit_request``). Cloned inside a tool of scikit-learn that has groups, but no qid, it
    warns.
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
        f"groups only say which rows are held out together: {name} gets no qid and compares rows "
        "of different groups with each other. If the groups are queries, use "
        "rankrls.model_selection.cross_val_score (cross_validate, cross_val_predict) with qid=, "
        "or y=PreferenceGraph.from_scores(y, qid=groups) and cv=QueryKFold() in a search"
    )


def _look_like_queries(groups: Any, y: Any) -> bool:
    """Whether y differs within most groups; samples of a patient, say, share their label."""
    if y is None or isinstance(y, PreferenceGraph):
        return False
    try:
        scores = np.asarray(y, dtype=np.float64).reshape(len(groups), -1)
        queries = encode_qid(groups, len(scores))
    except Exception:  # what is wrong with them is said elsewhere: a hint must not fail
        return False
    several = np.bincount(queries.codes, minlength=len(queries)) > 1
    varies = varying_queries(scores, queries.codes, len(queries)).any(axis=1)
    return bool(several.any()) and 2 * int(varies.sum()) >= int(several.sum())
