"""Scores of held-out predictions, by the name of a metric or a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import metrics
from rankrls._validation import check_metric_name, check_option
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.estimators.inputs import graph_accuracy

__all__ = ["PAIR_METRICS", "Scoring", "choose_alpha"]

Array = NDArray[Any]

PAIR_METRICS = ("pairwise_accuracy", "concordance_index")
LIST_METRICS = ("ndcg", "average_precision", "reciprocal_rank", "precision")


def choose_alpha(grid: Array, scores: Array, *, warn: bool = True) -> int:
    """The number of the best alpha of an ascending grid, the largest of equally good ones.

    A warning tells when an end of the grid is better than its neighbour. Where they are equal,
    as on the plateau of strong regularisation, a longer grid would not help.
    """
    if not np.isfinite(scores).all():
        raise ValueError(
            f"scoring gave {scores[~np.isfinite(scores)][0]} for alpha="
            f"{grid[~np.isfinite(scores)][0]:g}: it must give a finite number"
        )
    best = len(scores) - 1 - int(np.argmax(scores[::-1]))
    ends = {0: 1, len(grid) - 1: len(grid) - 2}  # and their neighbours
    if warn and len(grid) > 1 and best in ends and scores[best] > scores[ends[best]]:
        where = "smallest" if best == 0 else "largest"
        warnings.warn(
            f"the best alpha, {grid[best]:g}, is the {where} of the grid: extend alphas",
            stacklevel=4,
        )
    return best


class Scoring:
    """A metric by name or as a function, applied to held-out predictions."""

    def __init__(self, scoring: Any) -> None:
        self.name = scoring if isinstance(scoring, str) else None
        self.options: dict[str, Any] = {}
        if self.name is None:
            if not callable(scoring):
                raise ValueError(f"scoring must be a name or a function; got {scoring!r}")
            self.metric: Callable[..., Any] = scoring
            return
        name, at, cut = self.name.partition("@")
        if name == "roc_auc":
            raise ValueError(
                "scoring='roc_auc': of two classes 'pairwise_accuracy' is the AUC, within queries"
            )
        check_metric_name("scoring", self.name)
        check_option("scoring", name, PAIR_METRICS + LIST_METRICS)
        self.metric = getattr(metrics, name)
        if at:
            if not cut.isdigit() or name in PAIR_METRICS:
                raise ValueError(f"scoring={scoring!r}: a cut-off is a number, as in 'ndcg@10'")
            self.options["k"] = int(cut)

    def require_pairs(self) -> None:
        """Refuse what needs whole lists."""
        if self.name not in PAIR_METRICS:
            raise ValueError(
                "leave-pair-out compares two rows at a time: scoring must be one of "
                f"{', '.join(map(repr, PAIR_METRICS))}; for other metrics use an int cv"
            )

    def of_folds(
        self, graph: PreferenceGraph, folds: list[Array], predictions: list[Array], n_alphas: int
    ) -> Array:
        """Mean score over outputs for every alpha: shape (n_alphas,)."""
        columns = range(graph.n_outputs)
        return np.array(
            [
                np.mean([self.of_output(graph, folds, predictions, a, j) for j in columns])
                for a in range(n_alphas)
            ]
        )

    def spread(
        self, graph: PreferenceGraph, folds: list[Array], predictions: list[Array], n_alphas: int
    ) -> dict[str, Array]:
        """Mean, standard deviation and number of the scores of held-out lists, for every alpha.

        A list is a query, or the part of a query (without qid: of all rows) in one fold. Metrics
        without scores of single lists (concordance_index, functions) have only the mean. Several
        outputs are averaged.
        """
        if self.name is None or self.name == "concordance_index":
            return {"mean_score": self.of_folds(graph, folds, predictions, n_alphas)}
        shape = (n_alphas, graph.n_outputs)
        mean, std, count = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64)
        for a, j in np.ndindex(shape):
            values = self._of_output(graph, folds, predictions, a, j, average=None)
            known = values[~np.isnan(values)]
            mean[a, j], std[a, j], count[a, j] = known.mean(), known.std(), len(known)
        return {
            "mean_score": mean.mean(axis=1),
            "std_score": std.mean(axis=1),
            "n_scores": count.min(axis=1),
        }

    def of_output(
        self, graph: PreferenceGraph, folds: list[Array], predictions: list[Array], a: int, j: int
    ) -> float:
        """Score of one alpha and output, within queries and folds."""
        return float(self._of_output(graph, folds, predictions, a, j))

    def _of_output(
        self,
        graph: PreferenceGraph,
        folds: list[Array],
        predictions: list[Array],
        a: int,
        j: int,
        **options: Any,
    ) -> Any:
        assert graph.scores is not None
        assert graph.query_codes is not None
        rows = np.concatenate(folds)
        fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
        lists = graph.query_codes[rows] * len(folds) + fold
        score = np.concatenate([part[a, :, j] for part in predictions])
        return self.metric(graph.scores[rows, j], score, qid=lists, **self.options, **options)

    def of_rows(self, graph: PreferenceGraph, predictions: Array) -> float:
        """Mean score over outputs of predictions of shape (m, n_outputs) for all rows of a graph.

        Given pairs have no lists: only the pairwise accuracy is defined for them.
        """
        if graph.scores is None or graph.n_given_pairs:
            self.require_pairs()
            return graph_accuracy(graph, predictions)
        rows = [np.arange(graph.n_rows)]
        return float(self.of_folds(graph, rows, [predictions[None]], 1)[0])
