"""Choice of the members of `AutoRanker`: held-out scores of candidates, compared and averaged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.residuals import Folds, query_folds
from rankrls.estimators.auto_members import (
    ALL_ROWS,
    ALPHAS,
    BY_QUERY,
    LinearMember,
    Rows,
    mean_squared_norm,
    unfitted,
)
from rankrls.estimators.choosing import Scoring
from rankrls.metrics.counting import count_pairs

Array = NDArray[Any]

#: Weights of the trees in the average that are tried beside 0.
TREE_WEIGHTS = (1 / 3, 1 / 2)

#: Minimum number of compared queries; and at most one query is compared for this many rows of the
#: limit.
FEWEST_QUERIES, ROWS_PER_QUERY = 10, 10

#: Steps of the weights of several labels in the table of trade-offs; of more labels, one.
STEPS = {2: 10, 3: 5, 4: 3}

#: Number of folds of the nested estimate, and of folds of rows if there are no queries.
N_FOLDS = 10

#: The mean of the metric is noisy if there are few queries, so half of the pairwise accuracy, which
#: uses all pairs of a query, is added to it.
ACCURACY_SHARE = 0.5


def learned(graph: PreferenceGraph, compared: str, scale: Array | None) -> PreferenceGraph:
    """The preferences that a loss compares; several labels are divided by ``scale``."""
    if graph.scores is None:
        return graph
    scores = graph.scores if scale is None else graph.scores / scale
    queries = encode_qid(None, len(graph)) if compared == ALL_ROWS else graph.queries
    flat = graph.n_outputs == 1
    return PreferenceGraph(len(graph), scores, queries, graph.sample_weight, flat=flat)


def sample(
    graph: PreferenceGraph, order: Array, most: float, rng: np.random.RandomState
) -> tuple[Array, PreferenceGraph, Array]:
    """Draw about ``most`` rows in random whole queries, or pairs; all if there are no more.

    Returns the rows, in ``order``, their graph, and the rows, or pairs, that are compared.
    """

    def some(n: int) -> Array:
        return np.sort(rng.choice(n, int(most), replace=False)) if n > most else np.arange(n)

    if graph.scores is None:
        units = some(graph.n_given_pairs)
        graph = graph.only_pairs(units)
        rows = order[np.isin(order, graph.pairs)]
        return rows, graph[rows], units
    rows, codes, n_queries = order, graph.query_codes, int(most // ROWS_PER_QUERY)
    assert codes is not None
    if not graph.has_qid:
        rows = order[some(len(order))]
    elif len(order) > most or graph.n_queries > n_queries:
        varies = graph.varying_queries.any(axis=1)
        # Queries with a pair first; the others carry no information about the order.
        both = (np.flatnonzero(varies == has_pair) for has_pair in (True, False))
        drawn = np.concatenate([rng.permutation(part) for part in both])
        fitting = int(np.searchsorted(np.cumsum(np.bincount(codes)[drawn]), most))
        # Fewer rows if queries are short, because holding out each query takes time.
        taken = drawn[: max(FEWEST_QUERIES, min(fitting, n_queries))]
        rows = order[np.isin(codes[order], taken)]
    return rows, graph[rows], rows


@dataclass(frozen=True, eq=False)
class Candidate:
    """A member with a loss and an alpha, and its held-out scores, centred in each list.

    ``metric`` and ``criterion``, (n_lists,), are the user's metric of each held-out list, NaN where
    it is undefined, and what candidates are chosen by. Of the candidates with the same ``view``,
    one can be chosen; it has a ``weight`` in the average, and its scores a ``factor``.
    """

    view: Any
    member: Any
    loss: tuple[str, str]
    alpha: float
    scores: Array
    metric: Array
    criterion: Array
    weight: float = 0.0
    factor: float = 0.0


class HeldOutLists:
    """Evaluate held-out lists: queries, or the folds of a single ranking.

    With several labels, each has lists of its own, one label after the other. A pair is a list of
    two rows.
    """

    def __init__(
        self,
        scoring: Any,
        graph: PreferenceGraph,
        rng: np.random.RandomState,
        scale: Array | None = None,
    ) -> None:
        self.graph, self.scale, self.n_labels = graph, scale, graph.n_outputs
        self.scoring = Scoring("pairwise_accuracy" if graph.scores is None else scoring)
        self.scoring.require_scores()
        if graph.scores is None:
            n = graph.n_given_pairs
            self.lists = np.repeat(np.arange(n), 2)
            self.y = np.column_stack([graph.magnitude > 0, np.zeros(n)]).ravel()
        else:
            self.y, lists = graph.scores.T.ravel(), graph.query_codes
            if not graph.has_qid:
                lists = _row_folds(graph.scores.sum(axis=1), rng)
            assert lists is not None
            self.folds, n = query_folds(lists), lists.max() + 1
            self.lists = np.concatenate([lists + n * j for j in range(self.n_labels)])
        self.sizes = np.bincount(self.lists)
        self.n_lists = len(self.sizes)
        weights = graph.sample_weight
        weights = None if weights is None else np.tile(weights, self.n_labels)
        self.weights = np.bincount(self.lists, weights) / self.sizes

    def of_rows(self, scores: Array) -> Array:
        """Scores of lists from scores of rows."""
        if self.graph.scores is not None:
            return scores
        return self._of_differences(np.subtract(*scores[self.graph.pairs.T]))

    @staticmethod
    def _of_differences(values: Array) -> Array:
        return np.stack([values / 2, -values / 2], axis=-1).reshape(*values.shape[:-1], -1)

    def unlisted(self, scores: Array) -> Array:
        """Scores of rows, (n,) or (n, n_labels), or differences of pairs from those of lists."""
        if self.graph.scores is None:
            return 2 * scores[::2]
        return scores if self.n_labels == 1 else scores.reshape(self.n_labels, -1).T

    def mean(self, values: Array, some: Any = slice(None)) -> Any:
        """Mean over lists that have a value, or NaN; a list has the mean weight of its rows."""
        values = values[..., some]
        known = ~np.isnan(values)
        weights = known * self.weights[some]
        total = weights.sum(axis=-1)
        sums = (weights * np.where(known, values, 0.0)).sum(axis=-1)
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)

    def metric(self, scores: Array) -> Array:
        """Compute the user's metric for each list, shape (n_lists,)."""
        scoring = self.scoring
        if scoring.by_list:
            try:
                return np.asarray(scoring.value(self.y, scores, self.lists, average=None))
            except ValueError as error:
                several = "; the rows of each label follow those of the label before"
                raise ValueError(
                    f"scoring={scoring.name!r}: {error}{several * (self.n_labels > 1)} "
                    "(scoring='pairwise_accuracy' takes any y)"
                ) from error
        values = np.full(self.n_lists, np.nan)
        for number, rows in enumerate(query_folds(self.lists)):
            y = self.y[rows]
            # The metric may be undefined if all labels are equal.
            with nullcontext() if np.ptp(y) > 0 else suppress(ValueError):
                one = np.zeros(len(rows), dtype=np.int64)
                values[number] = scoring.value(y, scores[rows], one)
        return values

    def criterion(self, metric: Array, scores: Array) -> Array:
        """Add half of the pairwise accuracy to the metric of each list."""
        counts = count_pairs(self.y, scores, self.lists, self.n_lists)
        pairs = np.maximum(counts.comparable, 1)
        wrong = np.where(counts.comparable > 0, counts.discordant + counts.tied / 2, 0.5)
        return metric + ACCURACY_SHARE * (1 - wrong / pairs)

    def linear(
        self,
        view: Any,
        member: LinearMember,
        rows: Rows,
        features: Any,
        loss: tuple[str, str],
        alphas: Array | None = None,
    ) -> list[Candidate]:
        """Hold out each list from a linear member, exactly, for a grid of alphas by default."""
        phi, ranker = member.phi(rows, features), unfitted(1.0, loss)
        graph = learned(self.graph, loss[1], self.scale)
        problem = ranker._problem(ranker._check_options(), phi, graph)
        if alphas is None:
            alphas = ALPHAS * mean_squared_norm(phi) * (1 / 64 if loss[1] == BY_QUERY else 1.0)
        if graph.scores is None:
            single = Folds.single(graph.n_given_pairs)
            held = problem.leave_judgements_out(single, alphas).values[..., 0]
            scores = self._of_differences(held)
        else:
            scores = problem.leave_out(self.folds, alphas).by_row(len(phi))
            scores = scores.transpose(0, 2, 1).reshape(len(alphas), -1)
        # Of equally good candidates the first is chosen: that of the largest alpha.
        found = []
        for alpha, one in zip(alphas[::-1].tolist(), scores[::-1], strict=True):
            found.append(self.candidate(view, member, loss, alpha, one))
        return found

    def candidate(
        self, view: Any, member: Any, loss: tuple[str, str], alpha: float, scores: Array
    ) -> Candidate:
        """Centre held-out scores within lists, and evaluate them."""
        scores = scores - (np.bincount(self.lists, scores) / self.sizes)[self.lists]
        metric = self.metric(scores)
        criterion = self.criterion(metric, scores)
        return Candidate(view, member, loss, alpha, scores, metric, criterion)

    def best(self, candidates: Sequence[Candidate]) -> float:
        """The highest mean of the criterion."""
        return max(float(self.mean(one.criterion)) for one in candidates)


def tradeoffs(scores: Array, lists: HeldOutLists, names: Sequence[str]) -> dict[str, Array]:
    """Table of the metric of each label if rows are ranked by weighted sums of held-out scores."""
    k, n = lists.n_labels, lists.n_lists // lists.n_labels
    step = STEPS.get(k, 1)
    weights = np.array([w for w in np.ndindex(*[step + 1] * k) if sum(w) == step][::-1]) / step
    if k > 2:
        weights = np.vstack([weights, np.full(k, 1 / k)])
    found = np.empty(weights.shape)
    for values, one in zip(found, weights, strict=True):
        metric = lists.metric(np.tile(lists.unlisted(scores) @ one, k))
        values[:] = [lists.mean(metric, slice(j * n, (j + 1) * n)) for j in range(k)]
    what = lists.scoring.name or "score"
    return {
        **{f"weight of {name}": column for name, column in zip(names, weights.T, strict=True)},
        **{f"{what} of {name}": column for name, column in zip(names, found.T, strict=True)},
    }


def _row_folds(y: Array, rng: np.random.RandomState) -> Array:
    """Return the fold of each row of a single ranking; all folds have all labels."""
    ends = [np.count_nonzero(y == end) for end in (y.min(), y.max())]
    if min(ends) < 2 and len(np.unique(y)) < 3:
        raise ValueError(
            "without qid, rows are held out in folds; at least two labels must have two rows or "
            "more"
        )
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), dtype=np.int64)
    folds[order] = np.arange(len(y)) % min(N_FOLDS, max(2, len(y) // 5))
    return folds


def choose(
    candidates: Sequence[Candidate], lists: HeldOutLists, some: Array, n_members: int
) -> list[Candidate]:
    """Choose the best candidate of each of the best views, based on some of the lists.

    Factors give the scores of all members the same spread within lists. The average has boosted
    trees if that is better, and is replaced by one column if that is better by more than its
    standard error.
    """
    rows = np.isin(lists.lists, some)
    values = lists.mean(np.stack([one.criterion for one in candidates]), some).tolist()
    best: dict[Any, tuple[float, Candidate]] = {}
    for value, one in zip(values, candidates, strict=True):
        if one.view not in best or value > best[one.view][0]:
            best[one.view] = value, one
    column, trees = best.pop("column", None), best.pop("trees", None)
    ordered = sorted(best.values(), key=lambda pair: -pair[0])[:n_members]

    def weighted(one: Candidate, weight: float) -> Candidate:
        spread = float(np.sqrt(np.mean(one.scores[rows] ** 2)))
        return replace(one, weight=weight, factor=weight / spread if spread > 0 else 0.0)

    options = [[weighted(one, 1 / len(ordered)) for _, one in ordered]]
    if trees is not None:
        spread = float(np.sqrt(np.mean(average(options[0])[rows] ** 2))) or 1.0
        for share in TREE_WEIGHTS:
            rest = 1 - share
            scaled = [
                replace(one, weight=rest * one.weight, factor=rest * one.factor / spread)
                for one in options[0]
            ]
            options.append([*scaled, weighted(trees[1], share)])
    if column is not None:
        options.append([weighted(column[1], 1.0)])
    if len(options) == 1:
        return options[0]
    scores = map(average, options)
    found = np.stack([lists.criterion(lists.metric(one), one) for one in scores])
    n = len(options) - (column is not None)
    top = int(np.argmax(lists.mean(found[:n], some)))
    if column is not None:
        gains = found[-1] - found[top]
        error = np.nanstd(gains[some]) / np.sqrt(max(1, np.isfinite(gains[some]).sum()))
        top = -1 if lists.mean(gains, some) > error else top
    return options[top]


def average(chosen: Sequence[Candidate]) -> Array:
    """Held-out scores of the average."""
    return np.sum([one.factor * one.scores for one in chosen], axis=0)


def nested_scores(
    candidates: Sequence[Candidate], lists: HeldOutLists, n_members: int, rng: np.random.RandomState
) -> Array:
    """Held-out scores of averages that were chosen without the fold of the row, shape (n_rows,).

    Lists with a defined metric are distributed evenly over the folds.
    """
    n = lists.n_lists // lists.n_labels  # the lists of all labels of a query are held out together
    defined = np.isfinite(candidates[0].metric).reshape(-1, n).any(axis=0)
    k = max(2, min(N_FOLDS, int(defined.sum())))
    order = np.concatenate([rng.permutation(np.flatnonzero(part)) for part in (defined, ~defined)])
    scores = np.empty(len(lists.y))
    for start in range(min(k, n)):
        out = np.isin(np.arange(lists.n_lists) % n, order[start::k])
        others, held = np.flatnonzero(~out), out[lists.lists]
        scores[held] = average(choose(candidates, lists, others, n_members))[held]
    return scores


def table_of(
    candidates: Sequence[Candidate], chosen: Sequence[Candidate], lists: HeldOutLists
) -> dict[str, Array]:
    """Table of the best alphas of all candidates, the chosen ones first, then by their scores."""
    best: dict[Any, tuple[float, tuple[Any, ...]]] = {}
    for one in (*chosen, *candidates):
        member = one.member
        texts = (member.name, member.kernel, member.used_blocks, *one.loss)
        value = float(lists.mean(one.criterion)) + (np.inf if one.weight else 0.0)
        if (one.view, texts) not in best or value > best[one.view, texts][0]:
            row = (*texts, one.alpha, float(lists.mean(one.metric)), one.weight)
            best[one.view, texts] = value, row
    rows = [row for _, row in best.values()]
    rows[len(chosen) :] = sorted(rows[len(chosen) :], key=lambda row: -row[-2])
    names = ("view", "kernel", "blocks", "cost", "compared", "alpha", "score", "weight")
    types = [object] * 5 + [np.float64] * 3
    return {
        name: np.array(column, dtype=kind)
        for name, column, kind in zip(names, zip(*rows, strict=True), types, strict=True)
    }
