"""Explanation of why a row ranks above a better one, by contributions to their score difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from rankrls.diagnostics import Explanation, explain
from rankrls.report._data import Rankings

__all__ = ["Explainer", "Reasons"]

N_FOR = 3
N_AGAINST = 1
#: Contributions below this fraction of the largest are not listed.
LEAST = 0.01


@dataclass(frozen=True)
class Reasons:
    """Contributions that rank a row above another in the model fitted to all training rows.

    Attributes
    ----------
    difference : float
        Score difference.
    kind : {"feature", "row"}
        Whether contributions are by feature or, for kernel models, by training row.
    most, against : list of (str, float)
        The largest positive and negative contributions.
    n : int
        Number of non-zero contributions.
    """

    difference: float
    kind: str
    most: list[tuple[str, float]]
    against: list[tuple[str, float]]
    n: int


class Explainer:
    """Explain score differences between rows of ``data`` by a model fitted to ``train``.

    Parameters
    ----------
    model : fitted estimator
    train, data : Rankings
    """

    def __init__(self, model: Any, train: Rankings, data: Rankings) -> None:
        self.model, self.train, self.data = model, train, data
        self._names: Sequence[str] | None = train.feature_names
        if isinstance(model, Pipeline):
            try:
                self._names = model[:-1].get_feature_names_out(train.feature_names)
            except (AttributeError, ValueError):  # a step without feature names
                self._names = None

    def __call__(self, above: int, below: int) -> Reasons | None:
        """Contributions to the score of row ``above`` minus that of row ``below``, if available."""
        X = self.data.X
        try:
            parts = explain(self.model, X[[above]], X[[below]])
        except ValueError:  # not a model of this package
            return None
        least = LEAST * np.abs(parts.contribution).max(initial=0.0)
        most = np.flatnonzero(parts.contribution > least)[:N_FOR]
        against = np.flatnonzero(parts.contribution < -least)[:N_AGAINST]
        return Reasons(
            parts.difference,
            parts.kind,
            [(self._name(parts, int(k)), float(parts.contribution[k])) for k in most],
            [(self._name(parts, int(k)), float(parts.contribution[k])) for k in against],
            int(np.count_nonzero(parts.contribution)),
        )

    def _name(self, parts: Explanation, k: int) -> str:
        number = int(parts.index[k])
        if parts.kind == "feature":
            return str(parts.labels[k] if self._names is None else self._names[number])
        name = self.train.document_name(number)
        if self.train.has_qid:
            name += f" of query {self.train.query_name(int(self.train.codes[number]))}"
        return name
