"""``AutoRanker``: an average of RankRLS models on several transformations of raw data.

A *view* is a transformation of the numbers of a table with a kernel; categories, texts and vectors
are *blocks* that are added to it with a weight: the kernel of a member is a sum of kernels, and its
features are Φ = [features of the view, w₁ categories, w₂ texts, w₃ vectors]. A *candidate* is such
a Φ with a loss. The held-out scores of all candidates and alphas are exact and use the same folds,
so candidates are compared, chosen and averaged without further fits.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, all_or_nothing, takes_queries, unchanged_on_error
from rankrls._frames import check_same_rows, feature_names
from rankrls._resources import at_most, in_threads, n_threads, require
from rankrls._validation import Queries, check_option, encode_qid, refuse_lazy
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.estimators.auto_members import (
    ALL_ROWS,
    BY_QUERY,
    GIVEN_PAIRS,
    MAX_COLUMNS,
    MAX_QUERY,
    N_SEEDS,
    WITHIN,
    BlockScale,
    Candidate,
    ColumnMember,
    HeldOutLists,
    LinearMember,
    Rows,
    TreeMember,
    View,
    average,
    choose,
    learned,
    nested_scores,
    sample,
    table_of,
    tradeoffs,
    train,
)
from rankrls.estimators.incremental import update
from rankrls.estimators.ranker import (
    Preferences,
    QueryRequests,
    graph_accuracy,
    require_preferences,
    warn_of_pooled_queries,
)
from rankrls.estimators.rankrls import RankRLS
from rankrls.estimators.stream import fit_streams, sample_queries, table_batches, whole_queries
from rankrls.preprocessing import RankingFeatures, TableEncoder
from rankrls.preprocessing.ranking_features import WITHIN_QUERY

__all__ = ["AutoRanker"]

Array = NDArray[Any]

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


LOSSES = (("magnitude", WITHIN), ("magnitude", ALL_ROWS), ("unit", WITHIN), ("magnitude", BY_QUERY))
EFFORTS = {
    "quick": Effort(VIEWS[:3], LOSSES[:2], 150, 3, 10_000, 0),
    "normal": Effort(VIEWS, LOSSES[:3], 200, 6, 30_000, 300),
    "thorough": Effort(VIEWS + MORE_VIEWS, LOSSES, 500, 8, 60_000, 1000),
}

#: Blocks that are added to a view, and the weights that are tried beside 0.
BLOCKS, WEIGHTS = ("category", "text", "vector"), (0.1, 0.3, 1.0)

#: Factor of the median size of a column of numbers above which its unit may have changed.
RESIZED = 30.0
#: Number of columns that are tried as rankers of their own.
N_COLUMNS = 5

#: Folds of queries that are held out from boosted trees.
TREE_FOLDS = 5

#: Number of rows processed at a time if candidates were compared on a sample.
BATCH = 10_000


class AutoRanker(QueryRequests, BaseEstimator):
    """Automatic ranker for raw tables, without tuning.

    Several views of the numbers (logarithms, quantiles, ranks and standard scores within the query,
    random partitions), each with a linear or a kernel `RankRLS`, with and without the categories,
    texts and vectors of the table, several losses and a grid of alphas, are compared by exact
    leave-query-out cross-validation. The best models of the best views are averaged.

    Parameters
    ----------
    scoring : str or callable, default="ndcg@10"
        Name of a metric of `rankrls.metrics`, or a function ``metric(y_true, y_score, qid=...)`` of
        one query, higher = better. Members are chosen by it plus half of the pairwise accuracy,
        which is less noisy. With given pairs, it is the pairwise accuracy.
    effort : {"quick", "normal", "thorough"}, default="normal"
        Number of views, losses and basis vectors to try.
    trees : bool or "auto", default="auto"
        Whether boosted trees of LightGBM (the extra ``trees``) can be in the average, with a weight
        that is chosen on held-out queries. "auto": with effort="thorough", if it is installed.
    query_columns : sequence of str or int, optional
        Columns with texts or vectors of queries, which are compared with those of the rows. By
        default, those that are constant within queries.
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
        Table of all candidates, those in the average first: "view", "kernel", "blocks" (with their
        weights), "cost", "compared", "alpha", "score" (held out), and "weight" in the average.
    columns_ : dict of ndarray
        Table of what was made of each column of X: "column" and "used as".
    best_score_ : float
        Nested cross-validated mean of the metric: each query is scored by models that were fitted
        without it and chosen by the other queries. A query has the mean weight of its rows; several
        labels are averaged.
    held_out_scores_, nested_scores_ : ndarray of shape (n_rows,), (n_rows, n_labels) or (n_pairs,)
        Scores of the training rows by members fitted without their query, and by averages that were
        also chosen without it; NaN for rows that were not compared. With given pairs,
        f(preferred) − f(other) without the judgement.
    tradeoffs_ : dict of ndarray
        With several labels: weights of the labels, and the mean of the metric of each label if rows
        are ranked by ``predict(X, qid=qid) @ weights`` (from ``nested_scores_``).
    n_compared_ : int
        Number of rows on which candidates were compared: all, or for large data a sample of whole
        queries (10,000, 30,000 or 60,000 rows by ``effort``). Members are fitted to all rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if they are all strings.

    See Also
    --------
    RankRLSCV : A single ranker with exact cross-validation, posterior deviations and all options.

    Examples
    --------
    >>> from rankrls import AutoRanker
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> ranker = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.8)
    True
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
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> AutoRanker:
        """Choose and fit the members.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Raw columns, as `TableEncoder` takes them: of any scale, with missing values, text,
            categories, booleans and vectors.
        y : array-like of shape (n_rows,) or (n_rows, n_labels)
            Scores or grades, higher = preferred. Several labels, such as clicks and purchases, get
            the same spread within queries, and ``predict`` returns a score for each of them.
        qid : array-like of shape (n_rows,), optional
            Query label of each row. If None, all rows form one ranking, without views within
            queries, and candidates are compared by tenfold cross-validation over rows.
        pairs : array-like of shape (n_pairs, 2), optional
            Row numbers (preferred, other) of judgements, instead of y and qid. Each is held out
            once.
        magnitude : array-like of shape (n_pairs,), optional
            Strength of each preference, >= 0; 0 is a tie. If None, all are 1.
        sample_weight : array-like of shape (n_rows,), optional
            Row weights; in training, a pair has the product of the weights of its rows.
        """
        refuse_lazy(X, instead="use rankrls.dask.fit(AutoRanker(), X, y, qid=qid)")
        effort = EFFORTS[check_option("effort", self.effort, tuple(EFFORTS))]
        if self.trees not in (True, False, "auto"):
            raise ValueError(f"trees must be True, False or 'auto'; got {self.trees!r}")
        if self.trees is True and find_spec("lightgbm") is None:
            raise ImportError("trees=True needs LightGBM: pip install 'rankrls[trees]'")
        if y is not None and pairs is not None:
            raise ValueError("AutoRanker learns from labels y or from pairs, not from both")
        rng = check_random_state(self.random_state)
        check_same_rows(X, y=y, qid=qid, sample_weight=sample_weight)
        if qid is None and pairs is None:
            warn_of_pooled_queries("AutoRanker")
        preferences = Preferences(y, qid, pairs, magnitude, sample_weight=sample_weight)
        with at_most(n_threads(self.n_jobs)):
            table, every, order = self._encode(X, preferences)
            index, graph, compared = sample(every, order, effort.n_rows, rng)
            lists = HeldOutLists(self.scoring, graph, rng, self._scale)
            rows, candidates = self._compare(table[index], lists, effort, rng)
            if not any(np.isfinite(one.metric).any() for one in candidates):
                raise ValueError(f"scoring={self.scoring!r} is not defined for any query of y")
            chosen = choose(candidates, lists, np.arange(lists.n_lists), effort.n_members)
            self.members_ = table_of(candidates, chosen, lists)
            progress = Progress("AutoRanker", self.verbose)
            count = len(self.members_["view"])
            progress(f"{count} candidates compared, {len(chosen)} chosen; fitting members")
            nested = nested_scores(candidates, lists, effort.n_members, rng)
            n_units = every.n_given_pairs if every.scores is None else every.n_rows
            for name, scores in (("held_out_scores_", average(chosen)), ("nested_scores_", nested)):
                values = lists.unlisted(scores)
                setattr(self, name, np.full((n_units, *values.shape[1:]), np.nan))
                getattr(self, name)[compared] = values
            self.n_compared_ = len(compared)
            self.best_score_ = float(lists.mean(lists.metric(nested)))
            self.__dict__.pop("tradeoffs_", None)
            if self._labels:
                self.tradeoffs_ = tradeoffs(nested, lists, self._labels)
            self._members = []
            for one in chosen:
                member = replace(one.member, factor=one.factor * one.member.factor)
                if isinstance(member, TreeMember):
                    forest = train(member.inputs(rows), graph, range(N_SEEDS), 0)
                    member = replace(member, forest=forest)
                self._members.append(member)
            parts: Iterable[tuple[Rows, PreferenceGraph]] = [(rows, graph)]
            streamed = len(compared) < n_units
            if streamed and every.scores is None:
                index, graph, _ = sample(every, order, np.inf, rng)
                parts, streamed = [(self._rows(table[index], graph), graph)], False
            elif streamed:
                taken = ((index, every[index]) for index in _batches(every))
                parts = ((self._rows(table[index], part), part) for index, part in taken)
            self._learn(parts, streamed=streamed)
            progress("done")
        return self

    def _encode(self, X: Any, preferences: Preferences) -> tuple[Any, PreferenceGraph, Array]:
        """Fit the encoder: encoded rows, preferences, and an order of rows to draw from."""
        y, qid = preferences.y, preferences.qid
        self._table = encoder = TableEncoder(
            drop_ids=self.drop_ids, query_columns=self.query_columns
        ).fit(X, qid=qid)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(encoder, name):
                setattr(self, name, getattr(encoder, name))
        rows, blocks = encoder._rows(X), encoder.blocks_
        table = rows.table
        wide = sparse.issparse(table) and table.shape[1] > MAX_COLUMNS
        rows = replace(rows, table=_as_matrix(table, wide))
        graph = preferences.graph(table.shape[0])
        require_preferences(graph)
        self._with_qid, self._scale = qid is not None, None
        self._labels: list[str] = []
        if graph.n_outputs > 1:  # several labels get the same spread within queries
            if self.trees is True:
                raise ValueError("trees=True needs one label; use trees=False for several")
            names, lists, scores = feature_names(y), graph.query_codes, graph.scores
            assert lists is not None
            assert scores is not None
            default = [f"y{j}" for j in range(graph.n_outputs)]
            self._labels = default if names is None else [*names]
            means = [np.bincount(lists, one) / np.bincount(lists) for one in scores.T]
            self._scale = np.sqrt(np.mean((scores - np.array(means).T[lists]) ** 2, axis=0))
        order, graph, columns = _canonical_order(rows, len(blocks), graph)
        # In this order, too, they are given to boosted trees, which draw some of them.
        self._columns = {name: columns[blocks[columns] == name] for name in ("number", *BLOCKS)}
        self._projections = {
            name: BlockScale.learn(rows.table[:, self._columns[name]])
            for name in BLOCKS
            if len(self._columns[name])
        }
        return rows, graph, order

    def _rows(self, table: Any, graph: PreferenceGraph) -> Rows:
        """Split encoded rows, which must form whole queries, into numbers and blocks."""
        numbers = table if sparse.issparse(table) else table[:, self._columns["number"]]
        if not numbers.shape[1]:
            numbers = np.zeros((table.shape[0], 1))  # a constant column becomes 0 in all views
        blocks = {
            name: projection.transform(table[:, self._columns[name]])
            for name, projection in self._projections.items()
        }
        return Rows(numbers, blocks, graph.queries if graph.has_qid else None, self._features)

    def _compare(
        self, table: Any, lists: HeldOutLists, effort: Effort, rng: np.random.RandomState
    ) -> tuple[Rows, list[Candidate]]:
        """Return the compared rows, and all candidates."""
        progress = Progress("AutoRanker", self.verbose)
        is_sparse, with_qid = sparse.issparse(table), lists.graph.has_qid
        views = effort.views
        if is_sparse:
            views = SPARSE_VIEWS
        elif not len(self._columns["number"]):
            views = (View(("log",), "linear"),)
        elif not with_qid:
            kept = ([b for b in view.blocks if b not in WITHIN_QUERY] for view in views)
            both = zip(views, kept, strict=True)
            views = tuple(dict.fromkeys(replace(v, blocks=tuple(b)) for v, b in both if b))
        column_block = "rank" if with_qid else "log"
        blocks = [block for view in views for block in view.blocks]
        blocks = list(dict.fromkeys(blocks if is_sparse else [*blocks, column_block]))
        self._features = RankingFeatures(
            blocks, n_trees=max(effort.n_trees, 1), random_state=rng.randint(2**31 - 1)
        )
        rows = self._rows(table, lists.graph)
        self._features._learn(rows.numbers, rows.queries)
        compared = GIVEN_PAIRS if lists.graph.scores is None else ALL_ROWS
        losses: Sequence[tuple[str, str]] = [("magnitude", compared)]
        if with_qid:
            losses = effort.losses
            if lists.graph.sample_weight is not None:  # weighted pairs of all rows need refits
                losses = [loss for loss in losses if loss[1] != ALL_ROWS]
            if lists.n_labels > 1:  # sums of scores are to be those of a model of summed labels
                losses = [loss for loss in losses if loss[0] == "magnitude"]
        members = [LinearMember.draw(view, rows, effort.n_basis, rng) for view in views]
        weights = dict.fromkeys(rows.blocks, 0.0)
        if weights:  # one block after the other, by held-out scores
            progress("choosing weights of categories, texts and vectors")
            number, best = min(1, len(members) - 1), -np.inf
            members[number], features = members[number].scaled(rows)
            pairs = itertools.product(rows.blocks, WEIGHTS)
            for change in ({}, *({name: weight} for name, weight in pairs)):
                tried = weights | change
                member = replace(members[number], weights=tried)
                phi = member.with_blocks(features, rows)
                value = lists.best(lists.linear(views[number], member, phi, losses[0]))
                if value > best:
                    best, weights = value, tried

        def of_view(number: int) -> list[Candidate]:
            view, member = views[number], members[number]
            progress.bar(number, len(members), f"{member.name}, {member.kernel}")
            member, phi = member.scaled(rows)
            found = alone = lists.linear(view, member, phi, losses[0])
            if any(weights.values()):
                mixed = replace(member, weights=weights)
                mixed_phi = mixed.with_blocks(phi, rows)
                found = [*alone, *(both := lists.linear(view, mixed, mixed_phi, losses[0]))]
                if lists.best(both) >= lists.best(alone):
                    member, phi = mixed, mixed_phi
            others = (lists.linear(view, member, phi, loss) for loss in losses[1:])
            return [*found, *itertools.chain.from_iterable(others)]

        found = in_threads(of_view, range(len(members)), 1)
        candidates = list(itertools.chain.from_iterable(found))
        if lists.n_labels > 1 or is_sparse:
            return rows, candidates
        values, names = rows.view([column_block]), self._table.get_feature_names_out()
        for column in _best_columns(values, lists):
            for sign in (-1.0, 1.0):
                name = str(names[self._columns["number"][column]])
                single = ColumnMember(name, column, column_block, sign)
                scores = lists.of_rows(sign * values[:, column])
                candidates.append(lists.candidate("column", single, ("none", "none"), 0.0, scores))
        wanted = self.trees
        if wanted == "auto":
            wanted = self.effort == "thorough" and find_spec("lightgbm") is not None
        sizes: Any = [] if rows.queries is None else np.bincount(rows.queries.codes)
        if wanted and len(sizes) >= TREE_FOLDS and max(sizes) <= MAX_QUERY:  # that LightGBM takes
            progress("holding out queries from boosted trees")
            trees, scores = TreeMember.held_out(
                rows, lists.graph, TREE_FOLDS, rng, n_threads(self.n_jobs)
            )
            loss = ("lambdarank", WITHIN)
            candidates.append(lists.candidate("trees", trees, loss, 0.0, scores))
        return rows, candidates

    def _learned(self, rows: Rows, graph: PreferenceGraph) -> Iterator[tuple[Array, Any]]:
        """Generate the features of the linear members, and the preferences they learn from."""
        for member, compared in zip(self._members, self.members_["compared"], strict=False):
            if isinstance(member, LinearMember):
                yield member.phi(rows), learned(graph, compared, self._scale)

    def _learn(self, parts: Iterable[tuple[Rows, PreferenceGraph]], *, streamed: bool) -> None:
        """Fit the linear members to parts of the rows, each of whole queries."""
        rankers, batches = self.estimators_, (self._learned(*part) for part in parts)
        with at_most(1):  # threads of BLAS would wait for each other between short products
            if streamed and rankers:
                fit_streams(rankers, batches)
            elif rankers:
                for ranker, (phi, graph) in zip(rankers, next(batches), strict=True):
                    ranker.n_features_in_, alphas = phi.shape[1], np.array([ranker.alpha])
                    ranker._fit_prepared(ranker._check_options(), phi, graph, alphas)

    def fit_stream(self, batches: Any) -> AutoRanker:
        """Fit to a stream of batches, as for `RankRLS.fit_stream`, which are read twice.

        Members are chosen on a random sample of whole queries, those of ``held_out_scores_``, and
        fitted to all batches; boosted trees are trained on the sample.
        """
        if hasattr(batches, "__next__"):
            raise ValueError(
                "AutoRanker reads the batches twice, to choose members and to fit them: give a "
                "function that returns them from the start, such as lambda: iter_letor(path)"
            )
        effort = EFFORTS[check_option("effort", self.effort, tuple(EFFORTS))]
        rng = check_random_state(self.random_state)
        with unchanged_on_error(self):
            self.fit(**sample_queries(batches, effort.n_rows, rng))
            encoded = whole_queries(table_batches(batches, self._table._encoded))
            self._learn((self._part(rows.X, rows.graph) for rows in encoded), streamed=True)
        return self

    def _part(self, table: Any, graph: PreferenceGraph) -> tuple[Rows, PreferenceGraph]:
        """Encoded rows of a fitted ranker, and their preferences, which must be as in ``fit``."""
        table, n_labels = _as_matrix(table, not self._features._centres), max(1, len(self._labels))
        if graph.scores is not None and graph.n_outputs != n_labels:
            raise ValueError(f"the model has {n_labels} label(s), y has {graph.n_outputs}")
        if graph.scores is not None and graph.has_qid != self._with_qid:
            had = "with" if self._with_qid else "without"
            raise ValueError(f"AutoRanker was fitted {had} qid, so these rows must be, too")
        return self._rows(table, graph), graph

    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        magnitude: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> AutoRanker:
        """Add whole queries, with arguments as for `fit`; the first call is `fit`.

        Linear and kernel members are updated exactly; those that compare all rows compare those of
        one call. The choice of members, boosted trees, single columns and scores stay.
        """
        if not self.__sklearn_is_fitted__():
            arguments = {"pairs": pairs, "magnitude": magnitude, "sample_weight": sample_weight}
            return self.fit(X, y, qid=qid, **arguments)
        refuse_lazy(X, instead="use partial_fit for one part of whole queries after the other")
        check_same_rows(X, y=y, qid=qid, sample_weight=sample_weight)
        preferences = Preferences(y, qid, pairs, magnitude, sample_weight=sample_weight)
        with at_most(n_threads(self.n_jobs)):
            table = self._table._encoded(X)
            part = self._part(table, preferences.graph(table.shape[0]))
            if not self.estimators_:
                raise ValueError(
                    "the model is a single column, which cannot be updated: fit it again to all "
                    "rows"
                )
            rankers = [copy(ranker) for ranker in self.estimators_]
            for ranker, (phi, graph) in zip(rankers, self._learned(*part), strict=True):
                update(ranker, 1, phi, Preferences(graph))
            new = iter(rankers)
            self._members = [
                replace(one, estimator=next(new)) if isinstance(one, LinearMember) else one
                for one in self._members
            ]
        return self

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
        ndarray of shape (n,), or (n, n_labels) if there are several labels
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
            rows = self._table._rows(X)
            table = replace(rows, table=_as_matrix(rows.table, not self._features._centres))
            n_rows = rows.table.shape[0]
            graph = PreferenceGraph(n_rows, np.empty((n_rows, 0)), encode_qid(qid, n_rows))
            scores = np.zeros((n_rows, len(self._labels)) if self._labels else n_rows)

            def score(index: Any) -> None:
                part = self._rows(table[index], graph[index])
                scores[index] = sum(one.predict(part) for one in self._members)

            in_threads(score, _batches(graph), 1)
        return scores

    def _resized(self, X: Any) -> list[str]:
        """Names of columns of numbers whose typical size is far from that of training."""
        table = self._table._encoded(X)
        if sparse.issparse(table):
            return []
        numbers = np.abs(table[:, self._columns["number"]])
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns that are 0
            sizes = np.nanmedian(np.where(numbers > 0, numbers, np.nan), axis=0)
            ratio = np.abs(np.log(sizes / self._features._sizes))
        names, sources = self._table._names(), self._table.sources_[self._columns["number"]]
        return [str(names[j]) for j in sources[ratio > np.log(RESIZED)]]

    def _contributions(self, table: Array) -> Array:
        """Split f(a) − f(b) of the first two encoded rows of a query by columns of X.

        The columns of b are replaced by those of a one after the other, in their order and in
        reverse. The mean of the changes is exact for linear members, and always has the right sum.
        """

        def of_query(table: Array) -> Rows:
            queries = encode_qid(np.zeros(len(table)) if self._with_qid else None, len(table))
            return self._rows(table, PreferenceGraph(len(table), None, queries))

        rows, features, sources = of_query(table), self._features, self._table.sources_
        numbers = self._columns["number"]
        of_numbers = sources[numbers] if len(numbers) else np.zeros(1, dtype=np.int64)
        views = {
            block: features._standardized(block, rows.numbers, rows.queries, rows.cache)[:2]
            for block in features._centres
        }
        columns, contributions, largest = np.unique(sources), np.zeros(self.n_features_in_), 0.0
        for order in (columns, columns[::-1]):
            place = np.zeros(self.n_features_in_, dtype=np.int64)
            place[order] = np.arange(len(order))
            steps = np.arange(len(order) + 1)[:, None]
            part = of_query(np.where(place[sources] < steps, table[0], table[1]))
            for block, (a, b) in views.items():
                of_view = np.repeat(of_numbers, len(a) // len(of_numbers))
                part.cache[block] = np.where(place[of_view] < steps, a, b)
            scores = sum(member.predict(part) for member in self._members)
            contributions[order] += np.diff(scores) / 2
            largest = max(largest, np.abs(scores).max())
        return np.where(np.abs(contributions) > 1e-12 * largest, contributions, 0.0)

    def _held_out_without(
        self, X: Any, preferences: Preferences, groups: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Return the metric of held-out lists, and that without each group of encoded columns.

        Members are held out again, with the same alphas, and the columns replaced by their means.
        """
        rng = check_random_state(self.random_state)
        table = _as_matrix(self._table._encoded(X), False)
        graph = preferences.graph(table.shape[0])
        order, graph, _ = _canonical_order(table, table.shape[1], graph)
        index, graph, _ = sample(graph, order, EFFORTS[self.effort].n_rows, rng)
        lists = HeldOutLists(self.scoring, graph, rng, self._scale)
        table, seed = table[index], rng.randint(2**31 - 1)
        found = []
        for group in [np.zeros(table.shape[1], dtype=bool), *groups]:
            rows = self._rows(np.where(group, table.mean(axis=0), table), graph)
            total = np.zeros(len(lists.y))
            for number, member in enumerate(self._members):
                if isinstance(member, LinearMember):
                    assert member.estimator is not None
                    loss = (self.members_["cost"][number], self.members_["compared"][number])
                    alphas = np.array([member.estimator.alpha])
                    scores = lists.linear("", member, member.phi(rows), loss, alphas)[0].scores
                elif isinstance(member, TreeMember):
                    draws = np.random.RandomState(seed)
                    scores = member.held_out(rows, graph, TREE_FOLDS, draws, 0)[1]
                else:
                    scores = lists.of_rows(rows.view([member.block])[:, member.column])
                total += member.factor * scores
            found.append(lists.metric(total))
        return found[0], np.array(found[1:])

    @takes_queries
    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
    ) -> float:
        """Return the mean pairwise accuracy of the queries that have a pair, or of given pairs."""
        predictions = self.predict(X, qid=qid)
        graph = Preferences(y, qid, pairs).graph(len(predictions))
        require_preferences(graph, "evaluate")
        return graph_accuracy(graph, predictions)

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


def _canonical_order(
    table: Any, n_columns: int, graph: PreferenceGraph
) -> tuple[Array, PreferenceGraph, Array]:
    """Return orders of rows, queries and columns that do not depend on their orders and names.

    Basis vectors, folds and trees are drawn at random from these orders; that of the queries is
    given by their numbers in a graph.
    """
    m, largest = len(graph), np.zeros(n_columns)
    parts = [slice(i, i + BATCH) for i in range(0, m, BATCH)]
    keys, groups = np.ones(m), np.zeros(n_columns, dtype=np.int64)
    for step in range(3):  # columns with equal means are told apart by the rows that have them
        means = np.zeros(n_columns)
        for some in parts:
            part = abs(table[some])  # the signs of components of texts are arbitrary
            means += keys[some] @ part / m
            if not step:
                highest = part.max(axis=0)
                highest = highest.toarray().ravel() if sparse.issparse(highest) else highest
                largest = np.maximum(largest, highest)
        scale = np.where(largest > 0, largest, 1.0)
        both = np.column_stack([groups, (means / scale).round(9)])
        groups = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        direction = np.random.RandomState(0).standard_normal(groups.max() + 1)[groups] / scale
        keys = np.concatenate([abs(table[some]) @ direction for some in parts]).round(10)
        if groups.max() + 1 == n_columns:
            break
    columns = np.argsort(groups, kind="stable")
    labels = () if graph.scores is None else graph.scores.T
    if not graph.has_qid:
        return np.lexsort((*labels, keys)), graph, columns
    first, codes = np.full(graph.n_queries, np.inf), graph.query_codes
    assert codes is not None
    np.minimum.at(first, codes, keys)
    queries = np.lexsort((np.bincount(codes, keys).round(8), first))
    codes = np.argsort(queries)[codes]
    names = Queries(codes, [graph.query_labels[k] for k in queries])
    graph = PreferenceGraph(m, graph.scores, names, graph.sample_weight, flat=graph.flat)
    return np.lexsort((*labels, keys, codes)), graph, columns


def _as_matrix(table: Any, as_sparse: bool) -> Any:
    """Return a table in the form that the model has."""
    if as_sparse:
        return sparse.csr_array(table)
    if sparse.issparse(table):
        require("dense rows", *table.shape, copies=3, advice="use RankRLS, or fewer rows")
        return table.toarray()
    return table


def _batches(graph: PreferenceGraph) -> list[Any]:
    """Batches of whole queries of about ``BATCH`` rows; without queries, of any rows."""
    m, codes = len(graph), graph.query_codes
    if m <= BATCH:
        return [slice(None)]
    if codes is None or not graph.has_qid:
        return np.array_split(np.arange(m), -(-m // BATCH))
    order, ends = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))
    cuts = np.unique(np.searchsorted(ends, np.arange(BATCH, m, BATCH)))
    return [rows for rows in np.split(order, ends[cuts]) if len(rows)]


def _best_columns(view: Array, lists: HeldOutLists) -> list[int]:
    """Return the columns that correlate most with y, within queries, or with the pairs."""
    graph, codes = lists.graph, lists.graph.query_codes
    centred: Array
    if graph.scores is None or codes is None:
        wins, losses = (np.bincount(rows, minlength=len(view)) for rows in graph.pairs.T)
        centred = wins - losses
    else:
        y = graph.scores[:, 0]
        centred = y - (np.bincount(codes, y) / np.bincount(codes))[codes]
    sizes = np.sqrt((view**2).sum(axis=0))
    correlations = np.abs(centred @ view) / np.where(sizes > 0, sizes, np.inf)
    best = np.argsort(-correlations, kind="stable")[:N_COLUMNS]
    return best[correlations[best] > 0].tolist()
