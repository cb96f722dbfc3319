"""``rankrls weights``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import names_from
from rankrls.cli._output import note, require_stdout, table, to_json
from rankrls.export import linear_scores

__all__ = ["weights"]


def weights(model: str, top: int | None, feature_names: Sequence[str], as_json: bool) -> None:
    """Print the weights of the columns, the most important first."""
    require_stdout()
    scorer = Scorer(model)
    inner = getattr(scorer.ranker, "coef_", None)
    if isinstance(scorer.ranker, AutoRanker):
        raise ValueError(
            f"{model}: an AutoRanker, the mean of several rankers, has no weights of features; "
            "rankrls report --auto measures how important they are"
        )
    if inner is None:
        raise ValueError(
            f"{model}: a kernel model has no weights of features; rankrls report measures how "
            "important they are"
        )
    if np.ndim(inner) != 1:
        raise ValueError(f"{model}: the model has several outputs: look at coef_ in Python")
    names = names_from(feature_names) or scorer.names
    if names is None:
        names = [str(number) for number in range(1, scorer.n_features + 1)]
    if len(names) != scorer.n_features:
        raise ValueError(
            f"--feature-names: {len(names)} names for the {scorer.n_features} features of {model}"
        )
    columns: dict[str, Any] = {}
    constant = None
    if scorer.needs_qid:
        note("the features are scaled within each query: weights are those of scaled features")
    else:
        scores = linear_scores(scorer.model, missing="ignore")
        columns["weight"], constant = scores.weights, scores.constant
    if scorer.has_steps and len(inner) == scorer.n_features:
        columns["scaled_weight"] = np.asarray(inner, dtype=np.float64)
    # The importance of a feature is its weight in scaled units.
    size = np.abs(list(columns.values())[-1])
    order = np.argsort(-size, kind="stable")[:top]
    if as_json:
        rows = [{"feature": names[i], **{name: float(values[i]) for name, values in
                                         columns.items()}} for i in order]  # fmt: skip
        to_json({"weights": rows, "constant": constant, "n_features": scorer.n_features})
        return
    head = ["feature", *(name.replace("_", " ") for name in columns)]
    table(head, [[names[i], *(f"{values[i]:.6g}" for values in columns.values())] for i in order])
