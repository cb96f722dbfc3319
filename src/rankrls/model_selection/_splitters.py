"""Splitters that hold out pairs, whole queries or whole connected components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state, indexable

from rankrls import _resources
from rankrls._validation import (
    check_integer,
    check_option,
    check_pairs,
    check_scores,
    encode_qid,
    show,
)
from rankrls.core.preferences.graph import PreferenceGraph

Array = NDArray[Any]
Splits = Iterator[tuple[Array, Array]]


class _GroupSplitter(BaseCrossValidator):
    """A splitter that requests ``groups`` under scikit-learn's metadata routing."""

    __metadata_request__split = {"groups": True}  # noqa: RUF012 (scikit-learn reads the class)


class LeavePairOut(_GroupSplitter):
    """Leave-pair-out cross-validator, which holds out the two rows of each pair.

    The mean score over the splits is an almost unbiased estimate of the probability that a pair is
    ordered correctly, for binary y the AUC. `leave_pair_out_predict` does the same for RankRLS
    without refitting. ``groups`` (query ids, any hashable labels), or the queries of a
    `PreferenceGraph` y, restrict pairs to rows of the same group.

    Parameters
    ----------
    pairs : {"different", "all"} or array-like of shape (n_pairs, 2), default="different"
        All i < j with different y (all i < j if y has several outputs; the given pairs of a
        `PreferenceGraph`), all i < j, or these pairs of rows, in their order.

    Examples
    --------
    >>> from rankrls.model_selection import LeavePairOut
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 1, 0]
    >>> [test.tolist() for train, test in LeavePairOut().split(X, y)]
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """

    #: Rows of a query may be on both sides of a split.
    splits_queries = True

    def __init__(self, pairs: Any = "different") -> None:
        self.pairs = pairs

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of pairs."""
        return len(self._pairs(X, y, groups))

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Splits:
        """Generate (train, test) row indices; test holds the two rows of a pair, in its order."""
        kept = np.ones(_n_rows(X, y, groups), dtype=bool)
        for pair in self._pairs(X, y, groups):
            kept[pair] = False
            yield np.flatnonzero(kept), pair.copy()
            kept[pair] = True

    def _pairs(self, X: Any, y: Any = None, groups: Any = None) -> Array:
        """Rows of all pairs, shape (n_pairs, 2)."""
        n_rows, pairs = _n_rows(X, y, groups), self.pairs
        if n_rows < 3:
            raise ValueError(f"leaving out a pair needs at least 3 rows; got {n_rows}")
        blocks = encode_qid(groups, n_rows, name="groups").codes
        graph = y if isinstance(y, PreferenceGraph) else None
        if isinstance(pairs, str):
            check_option("pairs (unless an array of row numbers)", pairs, ("different", "all"))
            if pairs == "all" or graph is None or not graph.n_given_pairs:
                levels = None if pairs == "all" else _levels(y, n_rows)
                if graph is not None and graph.query_codes is not None:
                    blocks = blocks * graph.n_queries + graph.query_codes
                return _all_pairs(blocks, levels)
            if graph.scores is not None:
                raise ValueError(
                    "y has both scores and given pairs; choose which pairs to leave out, as in "
                    "LeavePairOut(pairs=graph.pairs)"
                )
            _, first = np.unique(np.sort(graph.pairs, axis=1), axis=0, return_index=True)
            pairs = graph.pairs[np.sort(first)]
        given = check_pairs(pairs, n_rows)
        if len(given) == 0:
            raise ValueError("pairs is empty; give at least one pair to leave out")
        across = np.flatnonzero(blocks[given[:, 0]] != blocks[given[:, 1]])
        if across.size:
            where = int(across[0])
            raise ValueError(f"pairs[{where}] = {tuple(given[where].tolist())} joins two groups")
        return given


class LeaveQueryOut(_GroupSplitter):
    """Leave-query-out cross-validator, which holds out the rows of each query.

    Like scikit-learn's `LeaveOneGroupOut`, but ``groups`` may be any hashable query ids, or the
    queries of a `PreferenceGraph` y. With scikit-learn's metadata routing,
    ``LeaveQueryOut().set_split_request(groups="qid")`` takes the groups from ``qid``.
    """

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of queries."""
        return int(self._queries(X, y, groups).max()) + 1

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Array]:
        queries = self._queries(X, y, groups)
        yield from (queries == query for query in range(int(queries.max()) + 1))

    def _queries(self, X: Any, y: Any, groups: Any) -> Array:
        queries = _query_codes(X, y, groups)
        if queries.max() == 0:
            raise ValueError("there is only one query, so leaving it out leaves no training rows")
        return queries


class QueryKFold(_GroupSplitter):
    """K-fold cross-validator with folds of whole queries and about equally many rows.

    Queries are assigned, largest first or in random order, to the fold with the fewest rows so far.
    ``groups`` holds query ids, any hashable labels, or y is a `PreferenceGraph` with queries.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, >= 2.
    shuffle : bool, default=False
        Whether to assign queries to folds in random order instead of by size.
    random_state : int, RandomState instance or None
        Seed of the random order. Pass an int for the same folds in every call.

    Examples
    --------
    >>> from rankrls.model_selection import QueryKFold
    >>> X, qid = [[0.0]] * 6, [("de", 1), ("de", 1), ("de", 1), ("en", 1), ("en", 2), ("en", 2)]
    >>> [test.tolist() for train, test in QueryKFold(2).split(X, groups=qid)]
    [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(
        self, n_splits: Any = 5, *, shuffle: Any = False, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        if self.random_state is not None and not self.shuffle:
            raise ValueError("random_state has no effect without shuffle=True; leave it None")
        return check_integer("n_splits", self.n_splits, least=2)

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Array]:
        n_splits = self.get_n_splits()
        blocks, first = self._blocks(n_splits, X, y, groups)
        size = np.bincount(blocks)
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(len(size))
        else:
            order = np.argsort(-size, kind="stable")
        order = order[np.argsort(~first[order], kind="stable")]
        fold_of, load = np.empty(len(size), dtype=np.int64), np.zeros(n_splits, dtype=np.int64)
        for block in order:  # each block goes to the fold with the fewest rows so far
            fold_of[block] = load.argmin()
            load[fold_of[block]] += size[block]
        yield from (fold_of[blocks] == fold for fold in range(n_splits))

    def _blocks(self, n_splits: int, X: Any, y: Any, groups: Any) -> tuple[Array, Array]:
        """Block of each row, and for each block whether it is assigned before the others."""
        queries = _query_codes(X, y, groups)
        n_queries = int(queries.max()) + 1
        if n_queries < n_splits:
            raise ValueError(f"{n_queries} queries cannot make n_splits={n_splits} folds")
        return queries, np.ones(n_queries, dtype=bool)


class ComponentKFold(QueryKFold):
    """K-fold cross-validator with folds of whole connected components of a `PreferenceGraph` y.

    No preference is lost between folds. Two rows are connected if they are in the same query, form
    a given pair (of weight > 0), or have the same label in ``groups``. Components without a
    preference are assigned last, so that every fold has a preference.

    Parameters
    ----------
    n_splits, shuffle, random_state
        As for `QueryKFold`.
    """

    def _blocks(self, n_splits: int, X: Any, y: Any, groups: Any) -> tuple[Array, Array]:
        if not isinstance(y, PreferenceGraph):
            raise ValueError(
                f"ComponentKFold needs y as a PreferenceGraph; got {show(y)} (for scores with "
                "query ids, QueryKFold gives folds of whole queries)"
            )
        n_rows = _n_rows(X, y, groups)
        edges = [y.pairs[y.pair_weight > 0]]
        preferred = np.zeros(n_rows, dtype=bool)
        preferred[edges[0]] = True
        if y.scores is not None and y.query_codes is not None:
            edges.append(_chains(y.query_codes))
            rows = edges[-1]
            differs = (y.scores[rows[:, 0]] != y.scores[rows[:, 1]]).any(axis=1)
            preferred[rows[differs]] = True
        if groups is not None:
            edges.append(_chains(encode_qid(groups, n_rows, name="groups").codes))
        a, b = np.concatenate(edges).T
        graph = sparse.coo_array((np.ones(len(a)), (a, b)), shape=(n_rows, n_rows))
        _, blocks = sparse.csgraph.connected_components(graph, directed=False)
        first = np.zeros(int(blocks.max()) + 1, dtype=bool)
        first[blocks[preferred]] = True
        if first.sum() < n_splits:
            raise ValueError(
                f"{first.sum()} connected component(s) with a preference (the largest has "
                f"{np.bincount(blocks).max()} of {n_rows} rows) cannot make n_splits={n_splits} "
                "folds. Use fewer folds, KFold over rows (which drops the pairs between training "
                "and test rows), or LeavePairOut"
            )
        return blocks, first


def _n_rows(X: Any, y: Any, groups: Any) -> int:
    """Number of rows of X, or of y or groups if X is None."""
    for values in indexable(X, y, groups):
        if values is not None:
            return values.shape[0] if hasattr(values, "shape") else len(values)
    raise ValueError("the number of splits depends on the data; give X, y or groups")


def _query_codes(X: Any, y: Any, groups: Any) -> Array:
    if groups is None:
        if isinstance(y, PreferenceGraph) and y.query_codes is not None:
            return y.query_codes
        raise ValueError(
            "groups must hold the query of every row (or y be a PreferenceGraph); in a search with "
            "metadata routing: cv=QueryKFold(5).set_split_request(groups='qid')"
        )
    return encode_qid(groups, _n_rows(X, y, groups), name="groups").codes


def _levels(y: Any, n_rows: int) -> Array | None:
    """Level of every row, or None if there are several outputs."""
    if y is None:
        raise ValueError("y is None; give y, which says which rows differ")
    if isinstance(y, PreferenceGraph):
        y = y.scores
        if y is None:
            raise ValueError("y has neither scores nor given pairs to leave out")
    elif np.asarray(y).dtype.kind in "OUS":
        return encode_qid(y, n_rows, name="y").codes
    scores = check_scores(y, n_rows).reshape(n_rows, -1)
    return np.unique(scores, return_inverse=True)[1].ravel() if scores.shape[1] == 1 else None


def _all_pairs(blocks: Array, levels: Array | None) -> Array:
    """Pairs i < j of the same block and of different levels, in lexicographic order."""
    sizes = np.unique(blocks, return_counts=True)[1]
    advice = "pass some of the pairs, or use folds of rows"
    _resources.require("all pairs of rows", sizes.max(), sizes.max(), copies=2, advice=advice)
    members = np.split(np.argsort(blocks, kind="stable"), np.cumsum(sizes)[:-1])
    pairs = np.concatenate(
        [rows[np.column_stack(np.triu_indices(len(rows), 1))] for rows in members]
    )
    if levels is not None:
        pairs = pairs[levels[pairs[:, 0]] != levels[pairs[:, 1]]]
    if len(pairs) == 0:
        inside = " inside a group" if len(sizes) > 1 else ""
        raise ValueError(f"there is no pair of rows with different y{inside} to leave out")
    return pairs[np.lexsort(pairs.T[::-1])]


def _chains(codes: Array) -> Array:
    """Pairs that link each row to the next one of the same code, shape (n_pairs, 2)."""
    order = np.argsort(codes, kind="stable")
    same = np.diff(codes[order]) == 0
    return np.column_stack([order[:-1], order[1:]])[same]
