"""Members of `AutoRanker`: linear rankers on views and blocks, boosted trees, single columns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from rankrls._validation import Queries, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.residuals import Folds, query_folds
from rankrls.estimators.choosing import Scoring
from rankrls.estimators.rankrls import RankRLS
from rankrls.metrics.counting import count_pairs
from rankrls.preprocessing import RankingFeatures
from rankrls.preprocessing.trees import Forest

Array = NDArray[Any]

#: The rows that a loss compares.
WITHIN, ALL_ROWS, BY_QUERY = "within queries", "all rows", "within queries, each the same"
GIVEN_PAIRS = "given pairs"

#: Grid of alphas, as multiples of the mean squared norm of the rows.
ALPHAS = 2.0 ** np.arange(-4, 11, 2)

#: A linear kernel on more columns than this uses basis vectors as well.
MAX_COLUMNS = 800

#: A wider block is projected to this many principal components.
MAX_COMPONENTS = 256

#: Parameters of LightGBM, the number of trees of a model, and the number of averaged models.
PARAMETERS = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
N_TREES, N_SEEDS = 150, 3

#: LightGBM takes grades up to 30 and queries of at most 10,000 rows.
MAX_GRADE, MAX_QUERY = 30, 10_000

#: Number of grades of labels that are not grades.
N_GRADES = 8

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


@dataclass(frozen=True)
class View:
    """Blocks of `RankingFeatures` and a kernel; gamma is ``factor`` / mean squared norm."""

    blocks: tuple[str, ...]
    kernel: str
    factor: float = 0.3


@dataclass(frozen=True)
class BlockScale:
    """Rows of a block less their mean, projected to axes and scaled to a mean squared norm of 1."""

    mean: Array
    axes: Array

    @classmethod
    def learn(cls, rows: Array) -> BlockScale:
        """Learn mean, axes and scale."""
        mean = rows.mean(axis=0)
        variances, axes = rows.var(axis=0), np.eye(len(mean))
        if len(mean) > MAX_COMPONENTS:
            centred = rows - mean
            variances, axes = np.linalg.eigh(centred.T @ centred / len(rows))
            variances, axes = variances[-MAX_COMPONENTS:], axes[:, -MAX_COMPONENTS:]
        total = variances.sum()
        return cls(mean, axes / np.sqrt(total if total > 0 else 1.0))

    def transform(self, rows: Array) -> Array:
        """Project rows."""
        if self.axes.shape[0] == self.axes.shape[1]:
            return (rows - self.mean) * self.axes.diagonal()
        return (rows - self.mean) @ self.axes


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers and blocks of rows of whole queries; ``cache`` keeps transformed numbers."""

    numbers: Any
    blocks: dict[str, Array]
    queries: Queries | None
    features: RankingFeatures
    cache: dict[str, Array] = field(default_factory=dict)

    def view(self, blocks: Any) -> Any:
        """Return a view of the numbers."""
        return self.features._view(blocks, self.numbers, self.queries, self.cache)


@dataclass(frozen=True, eq=False)
class LinearMember:
    """A linear ranker on Φ = [scale × view, or its Nyström features, weight × block …].

    The Nyström features are k(x, ``basis``) ``mapping``, the features of the view have a mean
    squared norm of 1, and ``factor`` is that of the scores in the average.
    """

    views: list[str]
    kernel: str
    gamma: float
    basis: Any
    mapping: Array | None
    scale: float
    weights: dict[str, float]
    estimator: RankRLS | None = None
    factor: float = 1.0

    @property
    def name(self) -> str:
        """Name of the view."""
        return " + ".join(self.views)

    @property
    def used_blocks(self) -> str:
        """Blocks with their weights."""
        return " + ".join(f"{w:g} {name}" for name, w in self.weights.items() if w) or "none"

    @classmethod
    def draw(cls, view: View, rows: Rows, n_basis: int, rng: np.random.RandomState) -> LinearMember:
        """Draw the basis vectors of a view among the rows."""
        values = rows.view(view.blocks)
        m, n = values.shape
        basis = mapping = None
        gamma = view.factor / mean_squared_norm(values)
        if view.kernel != "linear" or n > MAX_COLUMNS or sparse.issparse(values):
            basis = values[np.sort(rng.choice(m, min(n_basis, m), replace=False))]
            roots, vectors = np.linalg.eigh(_kernel(view.kernel, gamma, basis, basis))
            kept = roots > 1e-10 * max(roots[-1], 1e-300)
            mapping = vectors[:, kept] / np.sqrt(roots[kept])
        return cls(list(view.blocks), view.kernel, gamma, basis, mapping, 1.0, {})

    def of_view(self, rows: Rows) -> Array:
        """Return the features of the view."""
        values = rows.view(self.views)
        if self.basis is not None:
            values = _kernel(self.kernel, self.gamma, values, self.basis) @ self.mapping
        return self.scale * values

    def scaled(self, rows: Rows) -> tuple[LinearMember, Array]:
        """Return the member whose features of the view have a mean squared norm of 1, and these."""
        features = replace(self, scale=1.0).of_view(rows)
        scale = 1 / np.sqrt(mean_squared_norm(features))
        return replace(self, scale=scale), scale * features

    def with_blocks(self, features: Array, rows: Rows) -> Array:
        """Return Φ of rows from the features of the view."""
        blocks = [weight * rows.blocks[name] for name, weight in self.weights.items() if weight]
        return np.hstack([features, *blocks]) if blocks else features

    def phi(self, rows: Rows) -> Array:
        """Return Φ of rows."""
        return self.with_blocks(self.of_view(rows), rows)

    def predict(self, rows: Rows) -> Array:
        """Return the scores of rows, times the factor."""
        assert self.estimator is not None
        return self.phi(rows) @ (self.factor * self.estimator.coef_.T)


@dataclass(frozen=True, eq=False)
class ColumnMember:
    """One column, as its rank within the query or its logarithm, times a factor."""

    name: str
    column: int
    block: str
    factor: float

    kernel = used_blocks = "none"

    def predict(self, rows: Rows) -> Array:
        """Return the scores of rows, times the factor."""
        return self.factor * rows.view([self.block])[:, self.column]


def _kernel(kernel: str, gamma: float, rows: Any, basis: Any) -> Array:
    if kernel == "linear":
        values = rows @ basis.T
        return values.toarray() if sparse.issparse(values) else values
    return pairwise_kernels(rows, basis, metric=kernel, gamma=gamma)


def mean_squared_norm(rows: Any) -> float:
    """Mean squared norm of the centred rows."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.mean(axis=0)).ravel()
        squares = float(rows.multiply(rows).sum()) / rows.shape[0] - float(mean @ mean)
    else:
        squares = float(rows.var(axis=0).sum())
    return squares if squares > 0 else 1.0


def train(X: Array, graph: Any, seeds: Sequence[int], n_threads: int) -> Forest:
    """Train models of LightGBM on labels of a graph, one for each seed."""
    import lightgbm

    y, codes, weights = graph.scores[:, 0], graph.query_codes, graph.sample_weight
    order = np.argsort(codes, kind="stable")
    if (y != np.rint(y)).any() or y.min() < 0 or y.max() > MAX_GRADE:
        levels = np.unique(np.quantile(y, np.linspace(0, 1, N_GRADES + 1)[1:-1]))
        y = np.searchsorted(levels, y, side="left")
    data = lightgbm.Dataset(
        X[order],
        y[order],
        group=np.unique(codes, return_counts=True)[1],
        weight=None if weights is None else weights[order],
        params={"verbosity": -1},
        free_raw_data=False,
    )
    boosters = [
        lightgbm.train({**PARAMETERS, "seed": seed, "num_threads": n_threads}, data, N_TREES)
        for seed in seeds
    ]
    return Forest.of_boosters(boosters)


@dataclass(frozen=True, eq=False)
class TreeMember:
    """Boosted trees on numbers, their standard scores and ranks within queries, and blocks."""

    n_features: int
    forest: Forest | None = None
    factor: float = 1.0

    name, kernel, used_blocks = "trees", "lambdarank", "all"

    @staticmethod
    def inputs(rows: Rows) -> Array:
        """Return the features of the trees."""
        views = rows.view(["standard", "rank"])
        return np.hstack([rows.numbers, views, *rows.blocks.values()])

    @classmethod
    def held_out(
        cls,
        rows: Rows,
        graph: Any,
        folds: int,
        rng: np.random.RandomState,
        n_threads: int,
    ) -> tuple[TreeMember, Array]:
        """Return the member and scores of each row by trees trained without its fold of queries."""
        X, codes = cls.inputs(rows), graph.query_codes
        fold = rng.permutation(codes.max() + 1)[codes] % folds
        scores, seeds = np.empty(len(codes)), [rng.randint(2**31 - 1)]
        for k in range(folds):
            forest = train(X[fold != k], graph[fold != k], seeds, n_threads)
            scores[fold == k] = forest.predict(X[fold == k])
        return cls(X.shape[1]), scores

    def predict(self, rows: Rows) -> Array:
        """Return the scores of rows, times the factor."""
        assert self.forest is not None
        X = self.inputs(rows)
        if X.shape[1] != self.n_features:
            raise ValueError(f"the trees have {self.n_features} features, not {X.shape[1]}")
        return self.factor * self.forest.predict(X)


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
        phi: Array,
        loss: tuple[str, str],
        alphas: Array | None = None,
    ) -> list[Candidate]:
        """Hold out each list from a linear member, exactly, for a grid of alphas by default."""
        weighting = "query" if loss[1] == BY_QUERY else "size"
        options: Any = {"cost": loss[0], "query_weighting": weighting, "solver": "primal"}
        ranker = RankRLS(**options)
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
            fitted = replace(member, estimator=RankRLS(alpha, **options))
            found.append(self.candidate(view, fitted, loss, alpha, one))
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
    trees if that is better, and is replaced by one column if that is better.
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
    found = [lists.mean(lists.criterion(lists.metric(one), one), some) for one in scores]
    return options[int(np.argmax(found))]


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
