"""``AutoRanker``: an average of RankRLS models on several transformations of raw data.

A *view* is a transformation of the features with a kernel; a *candidate* is a view with a loss. The
held-out scores of all candidates and alphas are exact and use the same folds, so candidates are
compared, chosen and averaged without further fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
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
from rankrls.core.spaces.spaces import NystroemSpace
from rankrls.estimators.choosing import Scoring
from rankrls.estimators.ranker import (
    QueryRequests,
    graph_accuracy,
    require_preferences,
    warn_of_pooled_queries,
)
from rankrls.estimators.rankrls import RankRLS
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.metrics import pairwise_accuracy
from rankrls.preprocessing import RankingFeatures, TableEncoder

__all__ = ["AutoRanker"]

Array = NDArray[Any]


@dataclass(frozen=True)
class View:
    """Blocks of `RankingFeatures` and a kernel; gamma is ``factor`` / mean squared row norm."""

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
    """The candidates to compare and the size of the models.

    Attributes
    ----------
    views : tuple of View
    losses : tuple of (cost, which rows are compared)
    n_basis : int
        Number of basis vectors of a kernel.
    n_members : int
        Maximum number of rankers in the average.
    n_rows : int
        Maximum number of rows, in whole queries, on which candidates are compared.
    n_trees : int
    """

    views: tuple[View, ...]
    losses: tuple[tuple[str, str], ...]
    n_basis: int
    n_members: int
    n_rows: int
    n_trees: int


WITHIN, ALL_ROWS, BY_QUERY = "within queries", "all rows", "within queries, each the same"
EFFORTS = {
    "quick": Effort(VIEWS[:3], (("magnitude", WITHIN), ("magnitude", ALL_ROWS)), 150, 3, 10_000, 0),
    "normal": Effort(
        VIEWS,
        (("magnitude", WITHIN), ("magnitude", ALL_ROWS), ("unit", WITHIN)),
        *(200, 6, 30_000, 300),
    ),
    "thorough": Effort(
        VIEWS + MORE_VIEWS,
        (
            *(("magnitude", WITHIN), ("magnitude", ALL_ROWS), ("unit", WITHIN)),
            ("magnitude", BY_QUERY),
        ),
        *(1000, 8, 60_000, 1000),
    ),
}

#: Grid of alphas, as multiples of the mean squared norm of the rows.
ALPHAS = 2.0 ** np.arange(-4, 11, 2)

#: A linear kernel on more columns than this uses basis vectors as well.
MAX_COLUMNS = 800

#: Number of folds of the nested estimate, and of folds of rows if there are no queries.
N_FOLDS = 10

#: Number of rows processed at a time if candidates were compared on a sample.
BATCH = 20_000

#: Minimum number of compared queries; and at most one query is compared for this many rows of the
#: limit.
FEWEST_QUERIES, ROWS_PER_QUERY = 10, 10

#: Largest label that counts as a grade; for grades, 2^y − 1 is tried as a label, too.
MAX_GRADE = 10

#: The mean of the metric is noisy if there are few queries, so half of the pairwise accuracy, which
#: uses all pairs of a query, is added to it.
ACCURACY_SHARE = 0.5


class AutoRanker(QueryRequests, BaseEstimator):
    """Automatic ranker for raw tables, without tuning.

    Several views of the features (logarithms, quantiles, ranks and standard scores within the
    query, random partitions), each with a linear or a kernel `RankRLS`, several losses and a grid
    of alphas, are compared by exact leave-query-out cross-validation. The best models of the best
    views are averaged. No validation set is needed.

    Parameters
    ----------
    scoring : str or callable, default="ndcg@10"
        Name of a metric of `rankrls.metrics`, or a function ``metric(y_true, y_score, qid=...)``
        that is called for one query at a time, higher = better. Members are chosen by this metric
        plus half of the pairwise accuracy, which is less noisy.
    effort : {"quick", "normal", "thorough"}, default="normal"
        Number of views, losses and basis vectors to try. "quick" is for a first result, "thorough"
        for the best ranking.
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
        Table of all candidates, those in ``estimators_`` first, with the columns "view", "kernel",
        "cost", "label" (y, or the gain 2^y − 1), "compared" (rows within queries, or all rows),
        "alpha", "score" (held-out mean of the metric), and "weight" in the average, which is 0 for
        candidates that were not chosen. ``pandas.DataFrame(ranker.members_)`` prints it.
    best_score_ : float
        Nested cross-validated mean of the metric: each query is scored by an average of models that
        were fitted without it and chosen by the other queries. With fewer than about 15 queries it
        is optimistic by 0.01 or 0.02, because the held-out scores of the other queries depend on
        the labels of the query. Sample weights are ignored.
    held_out_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows by members fitted without their query; NaN for rows that were
        not compared.
    nested_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows by the nested averages from which ``best_score_`` is computed.
    estimators_ : list of RankRLS
        The fitted members, which take rows transformed to their views.
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
    estimators_: list[RankRLS]

    def __init__(
        self,
        scoring: Any = "ndcg@10",
        *,
        effort: str = "normal",
        drop_ids: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.scoring = scoring
        self.effort = effort
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
            Raw columns; they may have any scale, missing values, text, categories and booleans.
            A pyarrow table is converted to a pandas data frame.
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
            self._table = TableEncoder(drop_ids=self.drop_ids).fit(X, qid=qid)
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
                if hasattr(self._table, name):
                    setattr(self, name, getattr(self._table, name))
            table = self._table._encoded(X)
            check_length("y", y, table.shape[0])
            if sparse.issparse(table) and table.shape[1] <= MAX_COLUMNS:
                require("dense rows", *table.shape, copies=3, advice="use RankRLS, or fewer rows")
                table = table.toarray()
            data = Rows(table, y, queries, weights)
            require_preferences(data.graph(y))
            order = data.canonical_order()
            self._fit_members(data.take(order), effort, rng)
            for name in ("held_out_scores_", "nested_scores_"):
                scores = getattr(self, name)
                scores[order] = scores.copy()
        return self

    def _fit_members(self, data: Rows, effort: Effort, rng: np.random.RandomState) -> None:
        """Compare all candidates, choose among them, and fit those that were chosen."""
        progress = Progress("AutoRanker", self.verbose)
        compared = data.sample(effort.n_rows, rng)
        some = data.take(compared) if len(compared) < data.n_rows else data
        views = _possible(effort.views, some)
        blocks = list(dict.fromkeys(block for view in views for block in view.blocks))
        self._features = RankingFeatures(
            blocks, n_trees=max(effort.n_trees, 1), random_state=rng.randint(2**31 - 1)
        ).fit(some.X, qid=some.qid)
        self._with_qid = data.queries is not None
        folds, lists = some.folds(rng)
        judge = Judge(self.scoring, some.y, lists)
        candidates: list[Candidate] = []
        cache: dict[str, Array] = {}
        for number, view in enumerate(views):
            progress.bar(number, len(views), f"{view.name}, {view.kernel}")
            rows = self._features._view(view.blocks, some.X, some.queries, cache)
            space = CandidateView(view, rows, effort.n_basis, rng)
            for label, alphas, scores in space.held_out(some, effort, folds, data.has_gains()):
                candidates.append(judge.judge(space, label, alphas, scores))
        if not any(np.isfinite(one.metric).any() for one in candidates):
            raise ValueError(f"scoring={self.scoring!r} is not defined for any query of y")
        every = np.arange(judge.n_lists)
        chosen = choose(candidates, every, np.ones(len(some.y), bool), effort.n_members)
        progress(f"{len(candidates)} candidates compared, {len(chosen)} chosen")
        self.members_ = _table_of(candidates, chosen)
        self.n_compared_ = len(compared)
        nested = nested_scores(candidates, judge, effort.n_members, rng)
        self.held_out_scores_ = np.full(data.n_rows, np.nan)
        self.held_out_scores_[compared] = stacked(chosen, slice(None))
        self.nested_scores_ = np.full(data.n_rows, np.nan)
        self.nested_scores_[compared] = nested
        self.best_score_ = float(np.nanmean(judge.metric(nested)))
        self.estimators_, self._views, self._factors = [], [], np.array([c.factor for c in chosen])
        for count, one in enumerate(chosen):
            progress.bar(count, len(chosen), "fitting members")
            self._views.append(list(one.candidate.space.view.blocks))
            self.estimators_.append(self._fitted(one, data, compared, cache))
        progress("done")

    def _fitted(self, one: Choice, data: Rows, compared: Array, cache: dict[str, Array]) -> RankRLS:
        """Fit a member to all rows, batch by batch if candidates were compared on a sample."""
        label, space = one.candidate.label, one.candidate.space
        blocks = space.view.blocks
        ranker = space.ranker(label, float(one.candidate.alphas[one.alpha]), compared)
        with warnings.catch_warnings():  # transformed columns have their scales on purpose
            warnings.simplefilter("ignore", FeatureScaleWarning)
            warnings.simplefilter("ignore", IdColumnWarning)
            if len(compared) == data.n_rows:
                rows = self._features._view(blocks, data.X, data.queries, cache)
                arguments = data.arguments(label["compared"])
                return ranker.fit(rows, data.labels(label["label"]), **arguments)
            parts = (data.take(rows, keep_ids=True) for rows in data.batches(BATCH))
            batches = (
                {
                    "data": self._features._view(blocks, part.X, part.queries, {}),
                    "target": part.labels(label["label"]),
                    **part.arguments(label["compared"]),
                }
                for part in parts
            )
            basis = None if space.basis is None else space.rows[space.basis]
            return ranker.fit_stream(batches, basis_rows=basis)

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
            queries = None if qid is None else encode_qid(qid, table.shape[0])
            data = Rows(table, np.zeros(table.shape[0]), queries, None)
            members = list(zip(self._factors, self._views, self.estimators_, strict=True))
            scores = np.zeros(table.shape[0])
            for rows in data.batches(BATCH):
                part, cache = data.take(rows), dict[str, Array]()
                for factor, blocks, member in members:
                    view = self._features._view(blocks, part.X, part.queries, cache)
                    scores[rows] += factor * member.predict(view)
        return scores

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
        return hasattr(self, "_factors")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags


class Rows:
    """Numeric rows with labels, queries and weights; ``ids`` are query numbers of a larger set."""

    def __init__(
        self,
        X: Any,
        y: Array,
        queries: Queries | None,
        weights: Array | None,
        ids: Array | None = None,
    ) -> None:
        self.X, self.y, self.queries, self.weights, self.ids = X, y, queries, weights, ids

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @property
    def qid(self) -> Array | None:
        """Query number of each row, or None."""
        return None if self.queries is None else self.queries.codes

    def take(self, rows: Array, *, keep_ids: bool = False) -> Rows:
        """Select rows, which must form whole queries."""
        ids = None if self.qid is None else self.qid[rows]
        queries = None if ids is None else encode_qid(ids, len(rows))
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.X[rows], self.y[rows], queries, weights, ids if keep_ids else None)

    def canonical_order(self) -> Array:
        """Return an order of the rows that does not depend on their order in the data.

        Basis vectors and folds are drawn at random from this order.
        """
        direction = np.random.RandomState(0).standard_normal(self.X.shape[1])
        largest = abs(self.X).max(axis=0)
        sizes = np.asarray(largest.todense() if sparse.issparse(largest) else largest).ravel()
        keys = np.asarray(self.X @ (direction / np.where(sizes > 0, sizes, 1.0))).ravel()
        return np.lexsort((self.y, keys, np.zeros(len(keys)) if self.qid is None else self.qid))

    def sample(self, most: int, rng: np.random.RandomState) -> Array:
        """Draw about ``most`` rows in random whole queries; all rows if there are no more.

        Fewer rows are drawn if queries are short, because holding out each query takes time.
        """
        n_queries = 0 if self.queries is None else len(self.queries)
        if self.n_rows <= most and n_queries <= most // ROWS_PER_QUERY:
            return np.arange(self.n_rows)
        if self.qid is None:
            return np.sort(rng.choice(self.n_rows, most, replace=False))
        varies = varying_queries(self.y[:, None], self.qid, n_queries)[:, 0]
        # Queries with a pair first; the others carry no information about the order.
        order = np.concatenate(
            [rng.permutation(np.flatnonzero(part)) for part in (varies, ~varies)]
        )
        sizes = np.bincount(self.qid, minlength=n_queries)[order]
        fitting = int(np.searchsorted(np.cumsum(sizes), most))
        taken = order[: max(FEWEST_QUERIES, min(fitting, most // ROWS_PER_QUERY))]
        return np.flatnonzero(np.isin(self.qid, taken))

    def batches(self, size: int) -> list[Array]:
        """Batches of whole queries of about ``size`` rows; without queries, of any rows."""
        if self.n_rows <= size:
            return [np.arange(self.n_rows)]
        if self.qid is None:
            return np.array_split(np.arange(self.n_rows), -(-self.n_rows // size))
        order = np.argsort(self.qid, kind="stable")
        ends = np.cumsum(np.bincount(self.qid))
        cuts = np.unique(np.searchsorted(ends, np.arange(size, self.n_rows, size)))
        return [rows for rows in np.split(order, ends[cuts]) if len(rows)]

    def labels(self, label: str) -> Array:
        """y, or the gain 2^y − 1."""
        return 2.0**self.y - 1.0 if label == "gain" else self.y

    def has_gains(self) -> bool:
        """Whether y holds grades, so that gains are tried as well."""
        y = self.y
        return bool((y == np.rint(y)).all() and y.min() >= 0 and 2 <= y.max() <= MAX_GRADE)

    def arguments(self, compared: str) -> dict[str, Any]:
        """Arguments for ``fit``."""
        found: dict[str, Any] = {}
        if compared != ALL_ROWS and self.qid is not None:
            found["qid"] = self.qid if self.ids is None else self.ids
        if self.weights is not None:
            found["sample_weight"] = self.weights
        return found

    def graph(self, labels: Array, compared: str = WITHIN) -> PreferenceGraph:
        """Preferences of labels of shape (n_rows[, n_outputs])."""
        return PreferenceGraph.from_scores(labels, **self.arguments(compared))

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


class CandidateView:
    """A view with its kernel and basis vectors, shared by all losses.

    Parameters
    ----------
    view : View
    rows : ndarray or sparse array of shape (m, n)
        Rows transformed to the view.
    n_basis : int
    rng : RandomState
    """

    def __init__(self, view: View, rows: Any, n_basis: int, rng: np.random.RandomState) -> None:
        self.view, self.rows = view, rows
        m, n = rows.shape
        self.size = _mean_squared_norm(rows)
        self.basis: Array | None = None
        if view.kernel != "linear" or n > MAX_COLUMNS:
            self.basis = np.sort(rng.choice(m, min(n_basis, m), replace=False))

    def ranker(
        self, label: dict[str, Any], alpha: float, row_numbers: Array | None = None
    ) -> RankRLS:
        """Return the unfitted ranker of a candidate; its basis is given by row indices."""
        basis = self.basis if row_numbers is None or self.basis is None else row_numbers[self.basis]
        return RankRLS(
            alpha,
            kernel=self.view.kernel,
            gamma=None if self.view.kernel == "linear" else self.view.factor / self.size,
            cost=label["cost"],
            query_weighting="query" if label["compared"] == BY_QUERY else "size",
            solver="primal" if basis is None else "nystroem",
            basis=basis,
        )

    def held_out(
        self, data: Rows, effort: Effort, folds: Sequence[Array], gains: bool
    ) -> Iterator[tuple[dict[str, Any], Array, Array]]:
        """Generate (label, alphas, held-out scores of shape (n_alphas, m)) for each loss and label.

        ``gains`` says whether gains of the labels are tried, too.
        """
        space, size = None, self.size
        for cost, compared in effort.losses:
            if data.qid is None and (compared, cost) != (ALL_ROWS, "magnitude"):
                continue  # without queries it is the same, or has no shortcut
            if data.weights is not None and data.qid is not None and compared == ALL_ROWS:
                continue  # would need a refit for each query
            names = ["y", "gain"] if cost == "magnitude" and gains else ["y"]
            graph = data.graph(np.column_stack([data.labels(name) for name in names]), compared)
            label = {"cost": cost, "compared": compared}
            ranker = self.ranker(label, 1.0)
            if space is None:
                kernel = ranker._check_options()
                space = ranker._problem(kernel, self.rows, graph).space
                if isinstance(space, NystroemSpace):
                    size = _mean_squared_norm(space.features)
            problem = RidgeProblem(graph, space, ranker._loss, keep_basis=True)
            alphas = ALPHAS * size * (1 / 64 if compared == BY_QUERY else 1.0)
            held = problem.leave_out(folds, alphas).by_row(data.n_rows)
            for j, name in enumerate(names):
                yield {"cost": cost, "label": name, "compared": compared}, alphas, held[..., j]


def _mean_squared_norm(rows: Any) -> float:
    """Mean squared norm of the centred rows."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.mean(axis=0)).ravel()
        squares = float(rows.multiply(rows).sum()) / rows.shape[0] - float(mean @ mean)
    else:
        squares = float(rows.var(axis=0).sum())
    return squares if squares > 0 else 1.0


def _possible(views: Sequence[View], data: Rows) -> list[View]:
    """Select the views that the data allow, which depend on qid and sparsity."""
    if sparse.issparse(data.X):
        return list(SPARSE_VIEWS)
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
    """Held-out scores of a view with a loss.

    Attributes
    ----------
    space : CandidateView
    label : dict
        Its "cost", "label" and "compared".
    alphas : ndarray of shape (n_alphas,)
    scores : ndarray of shape (n_alphas, n_rows)
        Scores with mean 0 in each list.
    metric : ndarray of shape (n_alphas, n_lists)
        The user's metric for each held-out list; NaN where it is undefined.
    criterion : ndarray of shape (n_alphas, n_lists)
        Criterion by which candidates are chosen.
    """

    space: Any
    label: dict[str, Any]
    alphas: Array
    scores: Array
    metric: Array
    criterion: Array


@dataclass(frozen=True)
class Choice:
    """A candidate, the index of one of its alphas, and the factor of its scores in the average."""

    candidate: Candidate
    alpha: int
    factor: float


class Judge:
    """Evaluate held-out lists: queries, or the folds of a single ranking.

    Parameters
    ----------
    scoring : str or callable
    y : ndarray of shape (n_rows,)
    lists : ndarray of shape (n_rows,), int
        Index of the list of each row, in range(n_lists).
    """

    def __init__(self, scoring: Any, y: Array, lists: Array) -> None:
        self.scoring = Scoring(scoring)
        self.scoring.require_scores()
        self.y, self.lists = y, lists
        self.sizes = np.bincount(lists)
        self.n_lists = len(self.sizes)

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

    def judge(self, space: Any, label: dict[str, Any], alphas: Array, scores: Array) -> Candidate:
        """Centre within lists and score held-out predictions of shape (n_alphas, n_rows)."""
        means = np.stack([np.bincount(self.lists, weights=one) for one in scores]) / self.sizes
        scores = scores - means[:, self.lists]
        metric = np.stack([self.metric(one) for one in scores])
        accuracy = np.stack(
            [
                np.asarray(pairwise_accuracy(self.y, one, qid=self.lists, average=None))
                for one in scores
            ]
        )
        criterion = metric + ACCURACY_SHARE * np.where(np.isnan(accuracy), 0.5, accuracy)
        return Candidate(space, label, alphas, scores, metric, criterion)


def choose(
    candidates: Sequence[Candidate], some: Array, rows: Array, n_members: int
) -> list[Choice]:
    """Choose the best candidate and alpha of each of the best views, based on some of the lists.

    Parameters
    ----------
    candidates : sequence of Candidate
    some : int array
        Indices of the lists used.
    rows : bool array of shape (n_rows,)
        Rows of these lists.
    n_members : int
        Maximum number of views in the average.

    Returns
    -------
    list of Choice
        Best first. Factors give the scores of all members the same spread within lists.
    """
    best: dict[int, tuple[float, Candidate, int]] = {}
    for candidate in candidates:
        values = np.nanmean(candidate.criterion[:, some], axis=1)
        alpha = len(values) - 1 - int(np.argmax(values[::-1]))  # the largest of equally good ones
        view = id(candidate.space)
        if view not in best or values[alpha] > best[view][0]:
            best[view] = (float(values[alpha]), candidate, alpha)
    ordered = sorted(best.values(), key=lambda one: -one[0])[:n_members]
    chosen = []
    for _, candidate, alpha in ordered:
        spread = float(np.sqrt(np.mean(candidate.scores[alpha, rows] ** 2)))
        factor = 1.0 / (len(ordered) * spread) if spread > 0 else 0.0
        chosen.append(Choice(candidate, alpha, factor))
    return chosen


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
            scores[held] = stacked(choose(candidates, others, ~held, n_members), held)
    return scores


def _table_of(candidates: Sequence[Candidate], chosen: Sequence[Choice]) -> dict[str, Array]:
    """Table of all candidates, the chosen ones first."""

    def row(one: Candidate, alpha: int, weight: float) -> dict[str, Any]:
        return {
            "view": one.space.view.name,
            "kernel": one.space.view.kernel,
            **one.label,
            "alpha": one.alphas[alpha],
            "score": float(np.nanmean(one.metric[alpha])),
            "weight": weight,
        }

    rows = [row(one.candidate, one.alpha, 1 / len(chosen)) for one in chosen]
    taken = {id(one.candidate) for one in chosen}
    left = [
        row(one, int(np.argmax(np.nanmean(one.criterion, axis=1))), 0.0)
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
