"""``AutoRanker``: an average of RankRLS models on several transformations of raw data.

A *view* is a transformation of the numbers of a table with a kernel; categories, texts and vectors
are *blocks* that are added to it with a weight: the kernel of a member is a sum of kernels, and its
features are Φ = [features of the view, w₁ categories, w₂ texts, w₃ vectors]. A *candidate* is such
a Φ with a loss. The held-out scores of all candidates and alphas are exact and use the same folds,
so candidates are compared, chosen and averaged without further fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, all_or_nothing, takes_queries
from rankrls._frames import check_same_rows
from rankrls._resources import at_most, n_threads, require
from rankrls._validation import (
    Queries,
    check_length,
    check_option,
    check_scores,
    check_weights,
    encode_qid,
    refuse_lazy,
)
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import varying_queries
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import query_folds
from rankrls.estimators.boosted_trees import MAX_QUERY, TreeMember, has_lightgbm
from rankrls.estimators.choosing import Scoring
from rankrls.estimators.ranker import (
    QueryRequests,
    graph_accuracy,
    require_preferences,
    warn_of_pooled_queries,
)
from rankrls.estimators.rankrls import RankRLS
from rankrls.estimators.stream import fit_streams
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.metrics import pairwise_accuracy
from rankrls.preprocessing import RankingFeatures, TableEncoder

__all__ = ["AutoRanker"]

Array = NDArray[Any]


@dataclass(frozen=True)
class View:
    """Blocks of `RankingFeatures` and a kernel; gamma is ``factor`` / mean squared norm."""

    blocks: tuple[str, ...]
    kernel: str
    factor: float = 0.3

    @property
    def name(self) -> str:
        return " + ".join(self.blocks)


ALL = ("log", "standard", "rank")
VIEWS = (
    View(ALL, "linear"),
    View(("log", "rank"), "rbf"),
    View(("quantile", "rank"), "rbf"),
    View(ALL, "rbf"),
    View(("uniform", "rank"), "laplacian"),
    View(("hats",), "linear"),
    View(("partitions",), "linear"),
    View(("log",), "rbf"),
    View(("log",), "linear"),
)
MORE_VIEWS = (
    View(("log", "rank"), "rbf", 1.0),
    View(("quantile", "rank"), "rbf", 0.1),
    View(("uniform", "rank"), "laplacian", 1.0),
    View(("rank",), "rbf"),
    View(("rank",), "linear"),
)
SPARSE_VIEWS = (View(("log",), "linear"), View(("log",), "rbf", 0.5))


@dataclass(frozen=True)
class Effort:
    """The candidates to compare, and the limits of basis vectors, members, rows and trees."""

    views: tuple[View, ...]
    losses: tuple[tuple[str, str], ...]
    n_basis: int
    n_members: int
    n_rows: int
    n_trees: int


WITHIN, ALL_ROWS, BY_QUERY = "within queries", "all rows", "within queries, each the same"
LOSSES = (("magnitude", WITHIN), ("magnitude", ALL_ROWS), ("unit", WITHIN), ("magnitude", BY_QUERY))
EFFORTS = {
    "quick": Effort(VIEWS[:3], LOSSES[:2], 150, 3, 10_000, 0),
    "normal": Effort(VIEWS, LOSSES[:3], 200, 6, 30_000, 300),
    "thorough": Effort(VIEWS + MORE_VIEWS, LOSSES, 500, 8, 60_000, 1000),
}

#: Blocks that are added to a view, and the weights that are tried beside 0.
BLOCKS, WEIGHTS = ("category", "text", "vector"), (0.1, 0.3, 1.0)

#: A wider block is projected to this many principal components.
MAX_COMPONENTS = 256

#: Grid of alphas, as multiples of the mean squared norm of the rows.
ALPHAS = 2.0 ** np.arange(-4, 11, 2)

#: A linear kernel on more columns than this uses basis vectors as well.
MAX_COLUMNS = 800

#: Number of columns that are tried as rankers of their own.
N_COLUMNS = 5

#: Weights of the trees in the average that are tried beside 0, and folds of queries to hold out.
TREE_WEIGHTS, TREE_FOLDS = (1 / 3, 1 / 2), 5

#: Number of folds of the nested estimate, and of folds of rows if there are no queries.
N_FOLDS = 10

#: Number of rows processed at a time if candidates were compared on a sample.
BATCH = 20_000

#: Minimum number of compared queries; and at most one query is compared for this many rows of the
#: limit.
FEWEST_QUERIES, ROWS_PER_QUERY = 10, 10

#: The mean of the metric is noisy if there are few queries, so half of the pairwise accuracy, which
#: uses all pairs of a query, is added to it.
ACCURACY_SHARE = 0.5


class AutoRanker(QueryRequests, BaseEstimator):
    """Automatic ranker for raw tables, without tuning.

    Several views of the numbers (logarithms, quantiles, ranks and standard scores within the query,
    random partitions), each with a linear or a kernel `RankRLS`, with and without the categories,
    texts and vectors of the table, several losses and a grid of alphas, are compared by exact
    leave-query-out cross-validation. The best models of the best views are averaged. No validation
    set is needed.

    Parameters
    ----------
    scoring : str or callable, default="ndcg@10"
        Name of a metric of `rankrls.metrics`, or a function ``metric(y_true, y_score, qid=...)``
        that is called for one query at a time, higher = better. Members are chosen by this metric
        plus half of the pairwise accuracy, which is less noisy.
    effort : {"quick", "normal", "thorough"}, default="normal"
        Number of views, losses and basis vectors to try. "quick" is for a first result, "thorough"
        for the best ranking.
    trees : bool or "auto", default="auto"
        Whether boosted trees (lambdarank of LightGBM, which the extra ``trees`` installs) can be in
        the average, with a weight of 1/3 or 1/2 that is chosen on held-out queries. "auto" uses
        them with effort="thorough", if LightGBM is installed. A fitted ranker does not need it.
    query_columns : sequence of str or int, optional
        Columns with texts or vectors of queries, which are compared with those of the rows. By
        default, these are the columns of texts and vectors that are constant within queries.
    drop_ids : bool, default=True
        Whether to drop columns that look like ids, row numbers or timestamps.
    random_state : int, RandomState instance or None, default=None
        Seed of basis vectors, random trees and folds. Pass an int for reproducible fits.
    n_jobs : int, optional
        Number of threads. If None, as many as BLAS uses.
    verbose : int, default=0
        If 1, show the progress of the fit.

    Attributes
    ----------
    members_ : dict of ndarray
        Table of all candidates, those in the average first, with the columns "view", "kernel",
        "blocks" (categories, texts and vectors with their weights), "cost", "compared" (rows within
        queries, or all rows), "alpha", "score" (held-out mean of the metric), and "weight" in the
        average, which is 0 for candidates that were not chosen. ``pandas.DataFrame(
        ranker.members_)`` prints it.
    columns_ : dict of ndarray
        Table of what was made of each column of X: "column" and "used as".
    best_score_ : float
        Nested cross-validated mean of the metric: each query is scored by an average of models that
        were fitted without it and chosen by the other queries. With fewer than about 15 queries it
        is optimistic by 0.01 or 0.02, because the held-out scores of the other queries depend on
        the labels of the query. With sample weights, a query has the mean weight of its rows.
    held_out_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows by members fitted without their query; NaN for rows that were
        not compared.
    nested_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows by the nested averages from which ``best_score_`` is computed.
    n_compared_ : int
        Number of rows on which candidates were compared: all rows, or for large data a sample of
        whole queries (10,000, 30,000 or 60,000 rows, depending on ``effort``). The members are
        fitted to all rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if they are all strings.

    See Also
    --------
    RankRLSCV : A single ranker with exact cross-validation, posterior deviations and all options.

    Notes
    -----
    Tables are encoded by `TableEncoder`, and views are computed by `RankingFeatures`. Some views
    compare a row with the other rows of its query, so ``predict`` needs all candidates of a query
    together, with their qid. Scores of different queries are not comparable.

    The best columns alone are candidates, too, so that the held-out score is never below that of
    sorting by one of them.

    Examples
    --------
    >>> from rankrls import AutoRanker
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> ranker = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.8)
    True
    >>> ranker.predict(X[:5], qid=qid[:5]).shape
    (5,)
    """

    __metadata_request__predict = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)
    __metadata_request__score = {"qid": True}  # noqa: RUF012

    members_: dict[str, Array]

    def __init__(
        self,
        scoring: Any = "ndcg@10",
        *,
        effort: str = "normal",
        trees: bool | str = "auto",
        query_columns: Sequence[Any] | None = None,
        drop_ids: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.scoring = scoring
        self.effort = effort
        self.trees = trees
        self.query_columns = query_columns
        self.drop_ids = drop_ids
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @takes_queries
    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> AutoRanker:
        """Choose and fit the members.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Raw columns; they may have any scale, missing values, text, categories, booleans and
            vectors (lists of the same length). A pyarrow table is converted to a pandas data frame.
        y : array-like of shape (n_rows,)
            Scores or grades, higher = preferred.
        qid : array-like of shape (n_rows,), optional
            Query label of each row. If None, all rows form one ranking; views within queries are
            then not used, and candidates are compared by tenfold cross-validation over rows.
        sample_weight : array-like of shape (n_rows,), optional
            Row weights; in training, a pair has the product of the weights of its rows.

        Returns
        -------
        self : AutoRanker
        """
        refuse_lazy(
            X, instead="fit AutoRanker to a sample of whole queries, use rankrls.dask.RankRLS"
        )
        effort = EFFORTS[check_option("effort", self.effort, tuple(EFFORTS))]
        if self.trees not in (True, False, "auto"):
            raise ValueError(f"trees must be True, False or 'auto'; got {self.trees!r}")
        if self.trees is True:
            has_lightgbm(required=True)
        rng = check_random_state(self.random_state)
        check_same_rows(X, y=y, qid=qid, sample_weight=sample_weight)
        if y is None:
            raise ValueError("AutoRanker requires y to be passed, but the target y is None")
        y = check_scores(y)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim > 1:
            raise ValueError(
                f"y must have one score for each row; got shape {y.shape}, fit the outputs one by "
                "one"
            )
        queries = None if qid is None else encode_qid(qid, len(y))
        if queries is None:
            warn_of_pooled_queries("AutoRanker")
        weights = None
        if sample_weight is not None:
            weights = check_weights("sample_weight", sample_weight, len(y))
        with at_most(n_threads(self.n_jobs)):
            self._table = TableEncoder(
                drop_ids=self.drop_ids, query_columns=self.query_columns
            ).fit(X, qid=qid)
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
                if hasattr(self._table, name):
                    setattr(self, name, getattr(self._table, name))
            table = self._table._encoded(X)
            check_length("y", y, table.shape[0])
            if sparse.issparse(table) and table.shape[1] <= MAX_COLUMNS:
                require("dense rows", *table.shape, copies=3, advice="use RankRLS, or fewer rows")
                table = table.toarray()
            require_preferences(PreferenceGraph.from_scores(y, qid=qid, sample_weight=weights))
            order, codes, columns = canonical_order(table, y, queries)
            self._columns = columns[self._table.blocks_[columns] == "number"]
            self._projections = {
                name: BlockScale.learn(table[:, self._table.blocks_ == name])
                for name in BLOCKS
                if (self._table.blocks_ == name).any()
            }
            self._fit_members(Table(table, y, codes, weights, order), effort, rng)
        return self

    def _rows(self, table: Table, rows: Array | slice = slice(None)) -> Rows:
        """Split some encoded rows, which must form whole queries, into numbers and blocks."""
        values, codes = table.X[rows], None if table.codes is None else table.codes[rows]
        numbers = values if sparse.issparse(values) else values[:, self._columns]
        if not numbers.shape[1]:
            numbers = np.zeros((values.shape[0], 1))  # a constant column becomes 0 in all views
        return Rows(
            numbers,
            {
                name: projection.transform(values[:, self._table.blocks_ == name])
                for name, projection in self._projections.items()
            },
            table.y[rows],
            None if codes is None else encode_qid(codes, len(codes)),
            None if table.weights is None else table.weights[rows],
            codes,
        )

    def _fit_members(self, table: Table, effort: Effort, rng: np.random.RandomState) -> None:
        """Compare all candidates, choose among them, and fit those that were chosen."""
        progress = Progress("AutoRanker", self.verbose)
        compared = table.sample(effort.n_rows, rng)
        some = self._rows(table, compared)
        views = _possible(effort.views, some, len(self._columns))
        column_block = "rank" if some.qid is not None else "log"
        blocks = list(dict.fromkeys(block for view in views for block in view.blocks))
        if not sparse.issparse(some.numbers) and column_block not in blocks:
            blocks.append(column_block)
        self._features = RankingFeatures(
            blocks, n_trees=max(effort.n_trees, 1), random_state=rng.randint(2**31 - 1)
        ).fit(some.numbers, qid=some.qid)
        self._with_qid = some.queries is not None
        folds, lists = some.folds(rng)
        judge = Judge(self.scoring, some.y, lists, some.weights)
        losses = effort.losses if some.qid is not None else (("magnitude", ALL_ROWS),)
        if some.weights is not None and some.qid is not None:
            losses = tuple(loss for loss in losses if loss[1] != ALL_ROWS)  # would need refits
        candidates: list[Candidate] = []

        def candidate(member: LinearMember, loss: tuple[str, str]) -> Candidate:
            alphas, scores = member.held_out(some, self._features, loss, folds)
            return judge.candidate(member, alphas, scores, loss)

        weights: dict[str, float] = {}
        members = [
            LinearMember.draw(view, some, self._features, effort.n_basis, rng) for view in views
        ]
        if some.blocks:
            progress("choosing weights of categories, texts and vectors")
            weights = self._weights(
                members[min(1, len(members) - 1)], lambda m: candidate(m, losses[0])
            )
        for number, member in enumerate(members):
            progress.bar(number, len(members), f"{member.name}, {member.kernel}")
            tried = [candidate(member, losses[0])]
            if any(weights.values()):
                tried.append(candidate(member.weighted(weights), losses[0]))
                tried.sort(key=lambda one: one.best)
            tried += [candidate(tried[-1].member, loss) for loss in losses[1:]]
            candidates += tried
        if not sparse.issparse(some.numbers):
            for column in best_columns(some, self._features, column_block):
                scores = self._features._view(
                    [column_block], some.numbers, some.queries, some.cache
                )
                both = scores[:, column] * np.array([[1.0], [-1.0]])
                name = str(self._table.get_feature_names_out()[self._columns[column]])
                alone = ColumnMember(name, column, column_block)
                candidates.append(judge.candidate(alone, np.zeros(2), both, ("none", "none")))
        if self._takes_trees(some):
            progress("holding out queries from boosted trees")
            trees, held = TreeMember.held_out(
                some, self._features, TREE_FOLDS, rng, n_threads(self.n_jobs)
            )
            loss = ("lambdarank", WITHIN)
            candidates.append(judge.candidate(trees, np.zeros(1), held[None], loss))
        if not any(np.isfinite(one.metric).any() for one in candidates):
            raise ValueError(f"scoring={self.scoring!r} is not defined for any query of y")
        every = np.arange(judge.n_lists)
        chosen = choose(candidates, judge, every, effort.n_members)
        progress(f"{len(candidates)} candidates compared, {len(chosen)} chosen")
        self.members_ = _table_of(candidates, chosen, judge)
        self.n_compared_ = len(compared)
        nested = nested_scores(candidates, judge, effort.n_members, rng)
        self.held_out_scores_, self.nested_scores_ = np.full((2, len(table.y)), np.nan)
        self.held_out_scores_[compared] = stacked(chosen, slice(None))
        self.nested_scores_[compared] = nested
        self.best_score_ = float(judge.mean(judge.metric(nested)))
        progress("fitting members")
        self._members = self._fitted(chosen, table, some)
        progress("done")

    def _fitted(self, chosen: list[Choice], table: Table, some: Rows) -> list[Any]:
        """Fit the members to all rows, in one pass over batches if a sample was compared."""
        linear = [one for one in chosen if isinstance(one.candidate.member, LinearMember)]
        rankers = [
            unfitted(float(one.candidate.alphas[one.alpha]), one.candidate.loss) for one in linear
        ]

        def batches() -> Iterator[Any]:
            for index in table.batches(BATCH):
                rows = self._rows(table, index)
                parts = (features(one, rows) for one in linear)
                yield ({"X": phi, **fields} for phi, fields in parts)

        def features(one: Choice, rows: Rows) -> tuple[Array, dict[str, Any]]:
            phi = one.candidate.member.phi(rows, self._features)
            return phi, {"y": rows.y, **rows.arguments(one.candidate.loss[1])}

        with warnings.catch_warnings():  # transformed columns have their scales on purpose
            warnings.simplefilter("ignore", FeatureScaleWarning)
            warnings.simplefilter("ignore", IdColumnWarning)
            if some.n_rows < len(table.y):
                fit_streams(rankers, batches())
            else:
                for one, ranker in zip(linear, rankers, strict=True):
                    phi, fields = features(one, some)
                    ranker.fit(phi, **fields)
        fitted = iter(rankers)
        return [
            replace(one.candidate.member, estimator=next(fitted), factor=one.factor)
            if one in linear
            else one.candidate.member.fitted(one, some, self._features)
            for one in chosen
        ]

    def _takes_trees(self, rows: Rows) -> bool:
        """Whether trees are wanted and the rows have queries that LightGBM takes."""
        if rows.qid is None or sparse.issparse(rows.numbers) or self.trees is False:
            return False
        if len(rows.queries or ()) < TREE_FOLDS or np.bincount(rows.qid).max() > MAX_QUERY:
            return False
        return self.trees is True or (self.effort == "thorough" and has_lightgbm(required=False))

    def _weights(self, member: LinearMember, candidate: Any) -> dict[str, float]:
        """Choose the weights of blocks one after the other, by held-out scores."""
        weights: dict[str, float] = dict.fromkeys(self._projections, 0.0)
        best = candidate(member).best
        for name in weights:
            for weight in WEIGHTS:
                value = candidate(member.weighted({**weights, name: weight})).best
                if value > best:
                    best, weights = value, {**weights, name: weight}
        return weights

    @property
    def estimators_(self) -> list[RankRLS]:
        """The linear rankers of the members, which take the features of their views."""
        members = self._members
        return [one.estimator for one in members if isinstance(one, LinearMember) and one.estimator]

    @property
    def columns_(self) -> dict[str, Array]:
        """What was made of each column of X."""
        return self._table.columns_

    @takes_queries
    def predict(self, X: Any, *, qid: ArrayLike | None = None) -> Array:
        """Predict scores, higher = preferred, which are comparable within a query.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n, n_features)
        qid : array-like of shape (n,)
            Query label of each row. Required if the ranker was fitted with qid, because members
            compare a row with the other rows of its query.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        refuse_lazy(X, instead="predict one part of whole queries after the other")
        if self._with_qid and qid is None:
            raise ValueError(
                "AutoRanker was fitted with qid, and its members compare a row with the others of "
                "its query; pass qid to predict, too (np.zeros(len(X)) if X is one query)"
            )
        if not self._with_qid and qid is not None:
            raise ValueError("AutoRanker was fitted without qid, so predict takes none")
        check_same_rows(X, qid=qid)
        with at_most(n_threads(self.n_jobs)):
            table = self._table._encoded(X)
            if not self._features._centres:  # only dense columns are centred
                table = sparse.csr_array(table)
            elif sparse.issparse(table):
                require("dense rows", *table.shape, advice="predict fewer rows at a time")
                table = table.toarray()
            codes = None if qid is None else encode_qid(qid, table.shape[0]).codes
            everything, scores = (
                Table(table, np.zeros(table.shape[0]), codes),
                np.zeros(table.shape[0]),
            )
            for index in everything.batches(BATCH):
                part = self._rows(everything, index)
                scores[index] = sum(one.predict(part, self._features) for one in self._members)
        return scores

    def _contributions(self, table: Array) -> Array:
        """Split f(a) − f(b) of the first two encoded rows of a query by columns of X.

        The columns of b are replaced by those of a one after the other, in their order and in
        reverse. The mean of the changes is exact for linear members, and always has the right sum.
        """
        rows = self._rows(Table.of_query(table, self._with_qid))
        n, features, sources = rows.numbers.shape[1], self._features, self._table.sources_
        of_numbers = sources[self._columns] if len(self._columns) else np.zeros(1, dtype=np.int64)
        views = {
            block: features._standardized(block, rows.numbers, rows.queries, rows.cache)[:2]
            for block in features._centres
        }
        columns, contributions = np.unique(sources), np.zeros(self.n_features_in_)
        for order in (columns, columns[::-1]):
            place = np.zeros(self.n_features_in_, dtype=np.int64)
            place[order] = np.arange(len(order))
            steps = np.arange(len(order) + 1)[:, None]
            mixed = np.where(place[sources] < steps, table[0], table[1])
            part = self._rows(Table.of_query(mixed, self._with_qid))
            for block, (a, b) in views.items():
                part.cache[block] = np.where(
                    place[np.repeat(of_numbers, len(a) // n)] < steps, a, b
                )
            scores = sum(member.predict(part, features) for member in self._members)
            contributions[order] += np.diff(scores) / 2
        return contributions

    @takes_queries
    def score(self, X: Any, y: ArrayLike, qid: ArrayLike | None = None) -> float:
        """Return the mean pairwise accuracy over the queries that have a pair.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n, n_features)
        y : array-like of shape (n,)
        qid : array-like of shape (n,)
            Required if the ranker was fitted with qid.

        Returns
        -------
        float
        """
        predictions = self.predict(X, qid=qid)
        graph = PreferenceGraph.from_scores(check_scores(y), qid=qid)
        require_preferences(graph, "evaluate")
        return graph_accuracy(graph, predictions)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("fit_stream", "partial_fit"):
                raise AttributeError(
                    f"AutoRanker has no {name}, because it compares candidates on all rows; fit it "
                    f"to a sample of whole queries, or use RankRLS().{name}"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        inputs = tags.input_tags
        inputs.sparse = inputs.allow_nan = inputs.string = inputs.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags


# -- rows ----------------------------------------------------------------------------------------


def canonical_order(
    table: Any, y: Array, queries: Queries | None
) -> tuple[Array, Array | None, Array]:
    """Return orders of rows, queries and columns that do not depend on their orders in the data.

    Basis vectors, folds and trees are drawn at random from these orders. Of the queries, the number
    of the query of each row is returned.
    """

    def parts() -> Iterator[Any]:  # the signs of components of texts are arbitrary
        return (abs(table[i : i + BATCH]) for i in range(0, table.shape[0], BATCH))

    def total(values: Any) -> Array:
        return np.asarray(values.sum(axis=0)).ravel()

    largest = [part.max(axis=0) for part in parts()]
    sizes = np.max([v.toarray().ravel() if sparse.issparse(v) else v for v in largest], axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    means = sum(total(part) for part in parts()) / table.shape[0] / sizes
    squares = sum(total(part * part) for part in parts()) / table.shape[0] / sizes**2
    columns = np.lexsort((squares.round(9), means.round(9)))
    direction = np.empty(len(sizes))
    direction[columns] = np.random.RandomState(0).standard_normal(len(sizes))
    keys = np.concatenate([np.asarray(part @ (direction / sizes)).ravel() for part in parts()])
    if queries is None:
        return np.lexsort((y, keys)), None, columns
    first = np.full(len(queries), np.inf)
    np.minimum.at(first, queries.codes, keys)
    codes = np.argsort(np.argsort(first, kind="stable"))[queries.codes]
    return np.lexsort((y, keys, codes)), codes, columns


@dataclass(frozen=True)
class BlockScale:
    """Rows of a block less their mean, projected to axes and scaled to a mean squared norm of 1."""

    mean: Array
    axes: Array

    @classmethod
    def learn(cls, rows: Array) -> BlockScale:
        mean = rows.mean(axis=0)
        n = len(mean)
        variances, axes = rows.var(axis=0), np.eye(n)
        if n > MAX_COMPONENTS:
            centred = rows - mean
            variances, axes = np.linalg.eigh(centred.T @ centred / len(rows))
            variances, axes = variances[-MAX_COMPONENTS:], axes[:, -MAX_COMPONENTS:]
        total = variances.sum()
        return cls(mean, axes / np.sqrt(total if total > 0 else 1.0))

    def transform(self, rows: Array) -> Array:
        centred = rows - self.mean
        if self.axes.shape[0] == self.axes.shape[1]:
            return centred * self.axes.diagonal()
        return centred @ self.axes


@dataclass(frozen=True, eq=False)
class Table:
    """Encoded rows X with labels, query numbers and weights, and a canonical order of the rows."""

    X: Any
    y: Array
    codes: Array | None
    weights: Array | None = None
    order: Array | None = None

    @classmethod
    def of_query(cls, X: Array, with_qid: bool) -> Table:
        """Rows of one query."""
        return cls(X, np.zeros(len(X)), np.zeros(len(X), dtype=np.int64) if with_qid else None)

    def sample(self, most: int, rng: np.random.RandomState) -> Array:
        """Draw about ``most`` rows in random whole queries; all rows if there are no more.

        Fewer rows are drawn if queries are short, because holding out each query takes time.
        """
        assert self.order is not None
        if self.codes is None:
            m = len(self.y)
            return (
                self.order[np.sort(rng.choice(m, most, replace=False))] if m > most else self.order
            )
        sizes = np.bincount(self.codes)
        if len(self.y) <= most and len(sizes) <= most // ROWS_PER_QUERY:
            return self.order
        varies = varying_queries(self.y[:, None], self.codes, len(sizes))[:, 0]
        # Queries with a pair first; the others carry no information about the order.
        drawn = np.concatenate(
            [rng.permutation(np.flatnonzero(part)) for part in (varies, ~varies)]
        )
        fitting = int(np.searchsorted(np.cumsum(sizes[drawn]), most))
        taken = drawn[: max(FEWEST_QUERIES, min(fitting, most // ROWS_PER_QUERY))]
        return self.order[np.isin(self.codes[self.order], taken)]

    def batches(self, size: int) -> list[Any]:
        """Batches of whole queries of about ``size`` rows; without queries, of any rows."""
        m = len(self.y)
        if m <= size:
            return [slice(None)]
        if self.codes is None:
            return np.array_split(np.arange(m), -(-m // size))
        order, ends = np.argsort(self.codes, kind="stable"), np.cumsum(np.bincount(self.codes))
        cuts = np.unique(np.searchsorted(ends, np.arange(size, m, size)))
        return [rows for rows in np.split(order, ends[cuts]) if len(rows)]


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers and blocks of rows, with labels, queries and weights.

    ``ids`` are query numbers in the whole table, and ``cache`` keeps transformed numbers.
    """

    numbers: Any
    blocks: dict[str, Array]
    y: Array
    queries: Queries | None
    weights: Array | None = None
    ids: Array | None = None
    cache: dict[str, Array] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return self.numbers.shape[0]

    @property
    def qid(self) -> Array | None:
        """Query number of each row, or None."""
        return None if self.queries is None else self.queries.codes

    def arguments(self, compared: str) -> dict[str, Any]:
        """Arguments for ``fit``."""
        found: dict[str, Any] = {}
        if compared != ALL_ROWS and self.qid is not None:
            found["qid"] = self.ids
        if self.weights is not None:
            found["sample_weight"] = self.weights
        return found

    def folds(self, rng: np.random.RandomState) -> tuple[list[Array], Array]:
        """Folds, and the index of the held-out list of each row."""
        if self.qid is not None:
            return query_folds(self.qid), self.qid
        ends = [np.count_nonzero(self.y == end) for end in (self.y.min(), self.y.max())]
        if min(ends) < 2 and len(np.unique(self.y)) < 3:
            raise ValueError(
                "without qid, rows are held out in folds; at least two labels must have two rows "
                "or more"
            )
        k = min(N_FOLDS, max(2, self.n_rows // 5))
        order = rng.permutation(self.n_rows)
        order = order[np.argsort(self.y[order], kind="stable")]  # all folds have all labels
        lists = np.empty(self.n_rows, dtype=np.int64)
        lists[order] = np.arange(self.n_rows) % k
        return query_folds(lists), lists


# -- members -------------------------------------------------------------------------------------


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
    factor: float = 0.0

    @property
    def name(self) -> str:
        return " + ".join(self.views)

    @property
    def key(self) -> tuple[str, str, float]:
        """What members of the same view have in common."""
        return self.name, self.kernel, self.gamma

    @property
    def used_blocks(self) -> str:
        used = [f"{weight:g} {name}" for name, weight in self.weights.items() if weight]
        return " + ".join(used) or "none"

    @classmethod
    def draw(
        cls, view: View, rows: Rows, features: Any, n_basis: int, rng: np.random.RandomState
    ) -> LinearMember:
        """Draw the basis vectors of a view among the rows, and find its scales."""
        values = features._view(view.blocks, rows.numbers, rows.queries, rows.cache)
        m, n = values.shape
        basis = mapping = None
        gamma = view.factor / _mean_squared_norm(values)
        if view.kernel != "linear" or n > MAX_COLUMNS or sparse.issparse(values):
            basis = values[np.sort(rng.choice(m, min(n_basis, m), replace=False))]
            roots, vectors = np.linalg.eigh(_kernel(view.kernel, gamma, basis, basis))
            kept = roots > 1e-10 * max(roots[-1], 1e-300)
            mapping = vectors[:, kept] / np.sqrt(roots[kept])
        member = cls(list(view.blocks), view.kernel, gamma, basis, mapping, 1.0, {})
        size = _mean_squared_norm(member.phi(rows, features))
        return replace(member, scale=1 / np.sqrt(size))

    def weighted(self, weights: dict[str, float]) -> LinearMember:
        return replace(self, weights=dict(weights))

    def phi(self, rows: Rows, features: RankingFeatures) -> Array:
        """Return Φ of rows."""
        values = features._view(self.views, rows.numbers, rows.queries, rows.cache)
        if self.basis is not None:
            values = _kernel(self.kernel, self.gamma, values, self.basis) @ self.mapping
        parts = [self.scale * values]
        parts += [weight * rows.blocks[name] for name, weight in self.weights.items() if weight]
        return np.hstack(parts) if len(parts) > 1 else parts[0]

    def held_out(
        self, rows: Rows, features: RankingFeatures, loss: tuple[str, str], folds: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Return alphas and the held-out scores for each of them, shape (n_alphas, n_rows)."""
        phi = self.phi(rows, features)
        graph = PreferenceGraph.from_scores(rows.y[:, None], **rows.arguments(loss[1]))
        ranker = unfitted(1.0, loss)
        space = ranker._problem(ranker._check_options(), phi, graph).space
        problem = RidgeProblem(graph, space, ranker._loss)
        alphas = ALPHAS * _mean_squared_norm(phi) * (1 / 64 if loss[1] == BY_QUERY else 1.0)
        return alphas, problem.leave_out(folds, alphas).by_row(rows.n_rows)[..., 0]

    def predict(self, rows: Rows, features: RankingFeatures) -> Array:
        assert self.estimator is not None
        return self.phi(rows, features) @ (self.factor * self.estimator.coef_)


@dataclass(frozen=True, eq=False)
class ColumnMember:
    """One column, as its rank within the query or its logarithm, times a factor."""

    name: str
    column: int
    block: str
    factor: float = 0.0

    kernel = used_blocks = "none"

    def fitted(self, one: Choice, some: Rows, features: RankingFeatures) -> ColumnMember:
        return replace(self, factor=one.factor * (-1.0 if one.alpha else 1.0))

    def predict(self, rows: Rows, features: RankingFeatures) -> Array:
        view = features._view([self.block], rows.numbers, rows.queries, rows.cache)
        return self.factor * view[:, self.column]


def best_columns(rows: Rows, features: RankingFeatures, block: str) -> list[int]:
    """Return the columns that correlate most with y, within queries."""
    view = features._view([block], rows.numbers, rows.queries, rows.cache)
    y = rows.y - rows.y.mean()
    if rows.qid is not None:
        y = rows.y - (np.bincount(rows.qid, rows.y) / np.bincount(rows.qid))[rows.qid]
    sizes = np.sqrt((view**2).sum(axis=0))
    correlations = np.abs(y @ view) / np.where(sizes > 0, sizes, np.inf)
    best = np.argsort(-correlations, kind="stable")[:N_COLUMNS]
    return best[correlations[best] > 0].tolist()


def unfitted(alpha: float, loss: tuple[str, str]) -> RankRLS:
    weighting = "query" if loss[1] == BY_QUERY else "size"
    return RankRLS(alpha, cost=loss[0], query_weighting=weighting, solver="primal")


def _kernel(kernel: str, gamma: float, rows: Any, basis: Any) -> Array:
    if kernel == "linear":
        values = rows @ basis.T
        return values.toarray() if sparse.issparse(values) else values
    return pairwise_kernels(rows, basis, metric=kernel, gamma=gamma)


def _mean_squared_norm(rows: Any) -> float:
    """Mean squared norm of the centred rows."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.mean(axis=0)).ravel()
        squares = float(rows.multiply(rows).sum()) / rows.shape[0] - float(mean @ mean)
    else:
        squares = float(rows.var(axis=0).sum())
    return squares if squares > 0 else 1.0


def _possible(views: Sequence[View], data: Rows, n_numbers: int) -> list[View]:
    """Select the views that the data allow, which depend on qid, sparsity and numbers."""
    if sparse.issparse(data.numbers):
        return list(SPARSE_VIEWS)
    if not n_numbers:
        return [View(("log",), "linear")]
    if data.qid is not None:
        return list(views)
    alone = (
        replace(view, blocks=tuple(b for b in view.blocks if b not in ("standard", "rank")))
        for view in views
    )
    return list(dict.fromkeys(view for view in alone if view.blocks))


# -- the choice of candidates -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """Held-out scores of a member with a loss, centred in each list, for each alpha.

    ``metric`` and ``criterion``, (n_alphas, n_lists), are the user's metric of each held-out list,
    NaN where it is undefined, and what candidates are chosen by; ``best`` is its largest mean.
    """

    member: Any
    alphas: Array
    scores: Array
    metric: Array
    criterion: Array
    loss: tuple[str, str]
    best: float = np.nan


@dataclass(frozen=True)
class Choice:
    """A candidate, the index of one of its alphas, its weight, and the factor of its scores."""

    candidate: Candidate
    alpha: int
    weight: float
    factor: float


class Judge:
    """Evaluate held-out lists: queries, or the folds of a single ranking."""

    def __init__(self, scoring: Any, y: Array, lists: Array, weights: Array | None = None) -> None:
        self.scoring = Scoring(scoring)
        self.scoring.require_scores()
        self.y, self.lists = y, lists
        self.sizes = np.bincount(lists)
        self.n_lists = len(self.sizes)
        self.weights = np.bincount(lists, weights) / self.sizes

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
                raise ValueError(
                    f"scoring={scoring.name!r}: {error} (scoring='pairwise_accuracy' takes any y)"
                ) from error
        values = np.full(self.n_lists, np.nan)
        for number, rows in enumerate(query_folds(self.lists)):
            y, some, one = self.y[rows], scores[rows], np.zeros(len(rows), dtype=np.int64)
            if np.ptp(y) > 0:
                values[number] = scoring.value(y, some, one)
            else:
                with suppress(ValueError):  # it may be undefined if all labels are equal
                    values[number] = scoring.value(y, some, one)
        return values

    def criterion(self, metric: Array, scores: Array) -> Array:
        """Add half of the pairwise accuracy to the metric of each list."""
        accuracy = np.asarray(pairwise_accuracy(self.y, scores, qid=self.lists, average=None))
        return metric + ACCURACY_SHARE * np.where(np.isnan(accuracy), 0.5, accuracy)

    def candidate(
        self, member: Any, alphas: Array, scores: Array, loss: tuple[str, str]
    ) -> Candidate:
        """Centre within lists and score held-out predictions of shape (n_alphas, n_rows)."""
        means = np.stack([np.bincount(self.lists, weights=one) for one in scores]) / self.sizes
        scores = scores - means[:, self.lists]
        metric = np.stack([self.metric(one) for one in scores])
        criterion = np.stack(
            [self.criterion(values, one) for values, one in zip(metric, scores, strict=True)]
        )
        best = float(self.mean(criterion).max())
        return Candidate(member, alphas, scores, metric, criterion, loss, best)


def choose(
    candidates: Sequence[Candidate], judge: Judge, some: Array, n_members: int
) -> list[Choice]:
    """Choose the best candidate and alpha of each of the best views, based on some of the lists.

    Factors give the scores of all members the same spread within lists. The average has boosted
    trees, or is replaced by one column, if that is better.
    """
    rows = np.isin(judge.lists, some)
    best: dict[Any, tuple[float, Candidate, int]] = {}
    for candidate in candidates:
        values = judge.mean(candidate.criterion, some)
        alpha = len(values) - 1 - int(np.argmax(values[::-1]))  # the largest of equally good ones
        single = isinstance(candidate.member, ColumnMember)
        view = "column" if single else candidate.member.key
        if view not in best or values[alpha] > best[view][0]:
            best[view] = (float(values[alpha]), candidate, alpha)
    column, trees = best.pop("column", None), best.pop("trees", None)
    ordered = sorted(best.values(), key=lambda one: -one[0])[:n_members]

    def choice(candidate: Candidate, alpha: int, weight: float) -> Choice:
        spread = float(np.sqrt(np.mean(candidate.scores[alpha, rows] ** 2)))
        return Choice(candidate, alpha, weight, weight / spread if spread > 0 else 0.0)

    def value(chosen: list[Choice]) -> float:
        scores = stacked(chosen, slice(None))
        return float(judge.mean(judge.criterion(judge.metric(scores), scores), some))

    options = [[choice(*one[1:], 1 / len(ordered)) for one in ordered]]
    if trees is not None:
        spread = float(np.sqrt(np.mean(stacked(options[0], rows) ** 2))) or 1.0
        for share in TREE_WEIGHTS:
            rest = 1 - share
            scaled = [
                replace(one, weight=rest * one.weight, factor=rest * one.factor / spread)
                for one in options[0]
            ]
            options.append([*scaled, choice(*trees[1:], share)])
    if column is not None:
        options.append([choice(*column[1:], 1.0)])
    return options[0] if len(options) == 1 else max(options, key=value)


def stacked(chosen: Sequence[Choice], rows: Any) -> Array:
    """Held-out scores of the average for some rows."""
    parts = (one.factor * one.candidate.scores[one.alpha, rows] for one in chosen)
    return sum(parts, start=np.zeros(()))


def nested_scores(
    candidates: Sequence[Candidate], judge: Judge, n_members: int, rng: np.random.RandomState
) -> Array:
    """Held-out scores of averages that were chosen without the fold of the row, shape (n_rows,).

    Lists with a defined metric are distributed evenly over the folds.
    """
    defined = np.isfinite(candidates[0].metric[0])
    k = max(2, min(N_FOLDS, int(defined.sum())))
    order = np.concatenate([rng.permutation(np.flatnonzero(part)) for part in (defined, ~defined)])
    scores = np.empty(len(judge.y))
    for start in range(k):
        fold = order[start::k]
        if len(fold):
            others = np.setdiff1d(np.arange(judge.n_lists), fold)
            held = np.isin(judge.lists, fold)
            scores[held] = stacked(choose(candidates, judge, others, n_members), held)
    return scores


def _table_of(
    candidates: Sequence[Candidate], chosen: Sequence[Choice], judge: Judge
) -> dict[str, Array]:
    """Table of all candidates, the chosen ones first."""

    def row(one: Candidate, alpha: int, weight: float) -> dict[str, Any]:
        return {
            "view": one.member.name,
            "kernel": one.member.kernel,
            "blocks": one.member.used_blocks,
            "cost": one.loss[0],
            "compared": one.loss[1],
            "alpha": float(one.alphas[alpha]),
            "score": float(judge.mean(one.metric[alpha])),
            "weight": weight,
        }

    rows = [row(one.candidate, one.alpha, one.weight) for one in chosen]
    taken = {id(one.candidate) for one in chosen}
    left = [
        row(one, int(np.argmax(judge.mean(one.criterion))), 0.0)
        for one in candidates
        if id(one) not in taken
    ]
    rows += sorted(left, key=lambda one: -one["score"])
    return {
        name: np.array(
            [row[name] for row in rows], dtype=object if isinstance(first, str) else np.float64
        )
        for name, first in rows[0].items()
    }
