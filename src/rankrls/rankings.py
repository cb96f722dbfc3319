"""Ranked lists with names, and relevance judgements.

`rank` ranks the rows of each query by a model and returns a `RankTable` with their names. The table
can be written to and read from TREC run files (`rankrls.datasets.dump_run`, ``load_run``), and
evaluated with relevance judgements (`Qrels`) by `rankrls.metrics.evaluate_run`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.utils.metadata_routing import get_routing_for_object

from rankrls._calls import takes_queries, warn
from rankrls._frames import (
    QUERY_NAMES,
    check_same_rows,
    chooses_columns,
    data_frame,
    named_frame,
    names_anything,
    refuse_equal_names,
    required_features,
    row_names,
    shown_names,
    with_columns,
    without_arrow,
)
from rankrls._validation import (
    as_objects,
    check_finite_array,
    check_integer,
    check_length,
    encode_qid,
    is_missing,
    label_array,
    refuse_lazy,
)

__all__ = ["Qrels", "RankTable", "predicts_by_query", "rank"]

Array = NDArray[Any]


class _ArrayTable:
    """A table of columns of equal length."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({len(self)} lines; columns {', '.join(self.columns)})"

    @property
    def columns(self) -> dict[str, Array]:
        """Columns of the table by name, in order."""
        return {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]

    def to_frame(self) -> Any:
        """Return the table as a pandas data frame."""
        return data_frame(self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class RankTable(_ArrayTable):
    """A table of ranked lists, one for each query.

    Attributes
    ----------
    query : ndarray of shape (n,)
        Query of each line; the lines of a query are consecutive.
    rank : ndarray of shape (n,), int
        Rank within the query, from 1.
    id : ndarray of shape (n,)
        Id of the ranked row.
    score : ndarray of shape (n,), float64
        Score, in descending order within a query.
    """

    query: Array
    rank: Array
    id: Array
    score: Array

    @classmethod
    @takes_queries
    def from_scores(
        cls,
        y_score: ArrayLike,
        *,
        qid: Any = None,
        ids: Any = None,
        k: int | None = None,
    ) -> RankTable:
        """Rank rows by their scores within queries, which are in the order of their first rows.

        Parameters
        ----------
        y_score : array-like of shape (n_rows,)
            Scores, higher = earlier. Rows of equal scores keep their order.
        qid : array-like of shape (n_rows,), optional
            Query label of each row, in any order. If None, all rows form one query with label 0.
        ids : array-like of shape (n_rows,), optional
            Ids of the rows; by default their indices, from 0.
        k : int, optional
            Keep only the first ``k`` rows of each query.

        Returns
        -------
        RankTable
        """
        check_same_rows(y_score, "y_score", qid=qid, ids=ids)
        score = check_finite_array("y_score", y_score, ndim=(1,))
        n_rows = len(score)
        if n_rows == 0:
            raise ValueError("y_score has no rows; give at least one row to rank")
        labels, codes, names = _row_names(qid, ids, n_rows, "rows of y_score")
        first = np.empty(len(labels), dtype=np.int64)
        first[codes[::-1]] = np.arange(n_rows)[::-1]  # the last assignment stays
        order = np.lexsort((-score, first[codes]))  # stable: ties in the order of rows
        codes = codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        sizes = np.diff(starts, append=n_rows)
        place = np.arange(n_rows) - np.repeat(starts, sizes) + 1
        if k is not None:
            kept = place <= check_integer("k", k, least=1)
            order, codes, place = order[kept], codes[kept], place[kept]
        return cls(labels[codes], place, names[order], score[order])

    @classmethod
    def from_lists(
        cls,
        scores: ArrayLike,
        queries: Any,
        ids: Any,
        *,
        k: int | None = None,
        left_out: Any = None,
    ) -> RankTable:
        """Rank the same objects for each query; those with equal scores keep their order.

        Parameters
        ----------
        scores, left_out : array-like of shape (n_queries, n_ids)
            Scores, higher = earlier; pairs to exclude, optional.
        queries, ids : array-like of shape (n_queries,) and (n_ids,)
            Names of the queries and of the objects.
        k : int, optional
            Keep only the first ``k`` objects of each query.

        Returns
        -------
        RankTable
        """
        table = check_finite_array("scores", scores, ndim=(2,))
        names = as_labels(queries), as_labels(ids)
        absent = np.zeros(table.shape, bool) if left_out is None else np.asarray(left_out, bool)
        for name, shape in (("scores", table.shape), ("left_out", absent.shape)):
            if shape != (len(names[0]), len(names[1])):
                raise ValueError(
                    f"{name} has shape {shape} for {len(names[0])} queries and {len(names[1])} ids"
                )
        order = np.argsort(np.where(absent, np.inf, -table), axis=1, kind="stable")
        length = (~absent).sum(axis=1)
        if k is not None:
            length = np.minimum(length, check_integer("k", k, least=1))
        kept = np.arange(table.shape[1]) < length[:, None]
        query, place = np.nonzero(kept)
        found = order[kept]
        return cls(names[0][query], place + 1, names[1][found], table[query, found])


@dataclass(frozen=True, eq=False, repr=False)
class Qrels(_ArrayTable):
    """Relevance judgements of documents or other items for queries.

    Attributes
    ----------
    query : ndarray of shape (n,)
        Query of each judgement.
    id : ndarray of shape (n,)
        Id of the judged item.
    grade : ndarray of shape (n,), float64
        Relevance grade, higher = more relevant; grades of 0 or less mean not relevant.
    """

    query: Array
    id: Array
    grade: Array

    @classmethod
    @takes_queries
    def from_labels(cls, y_true: ArrayLike, *, qid: Any = None, ids: Any = None) -> Qrels:
        """Make judgements from the labels of rows.

        Parameters
        ----------
        y_true, qid, ids : array-like of shape (n_rows,)
            Labels, higher = more relevant; the others as in :meth:`RankTable.from_scores`.

        Returns
        -------
        Qrels
        """
        check_same_rows(y_true, "y_true", qid=qid, ids=ids)
        grade = check_finite_array("y_true", y_true, ndim=(1,))
        labels, codes, names = _row_names(qid, ids, len(grade), "rows of y_true")
        return cls(labels[codes], names, grade)


@takes_queries
def rank(
    estimator: Any, data: Any, *, qid: Any = None, ids: Any = None, k: int | None = None
) -> RankTable:
    """Rank the rows of data by a fitted model and return a table with their names.

    Parameters
    ----------
    estimator : fitted estimator
        Any estimator whose ``predict`` returns a score for each row, including pipelines and
        searches; ``qid`` is passed to those that use it.
    data : {array-like, sparse matrix} of shape (n_rows, n_features), data frame or Bunch
        Rows to rank. From a data frame (pandas, polars) or pyarrow table, the columns that the
        model uses are selected by name; if it has no feature names, all columns except those of
        ``qid`` and ``ids`` are used. A Bunch of `rankrls.datasets` provides ``data`` and ``qid``.
    qid : str or array-like of shape (n_rows,), optional
        Query label of each row, in any order, or the name of a column. If None, the ``qid`` of the
        Bunch; otherwise all rows form one query with label 0.
    ids : str or array-like of shape (n_rows,), optional
        Ids of the rows, or the name of a column. If None, the index of a pandas frame, unless it
        only numbers the rows; otherwise the row indices, from 0.
    k : int, optional
        Keep only the first ``k`` rows of each query.

    Returns
    -------
    RankTable
        Columns query, rank, id and score; ``to_frame()`` converts it to a data frame.

    Examples
    --------
    >>> import pandas as pd
    >>> from rankrls import RankRLS, rank
    >>> shop = pd.DataFrame({"query": ["shoes"] * 3, "bm25": [2.0, 5.0, 1.0], "grade": [0, 2, 0]},
    ...                     index=["s1", "s2", "s3"])
    >>> model = RankRLS(alpha=0.1).fit(shop[["bm25"]], shop["grade"], qid=shop["query"])
    >>> rank(model, shop, qid="query", k=2).id.tolist()
    ['s2', 's1']
    """
    refuse_lazy(data, "data")
    if hasattr(estimator, "predict_edges"):
        raise ValueError(
            f"a {type(estimator).__name__} ranks objects for objects: use its own method "
            "rank(X, Z, k=…)"
        )
    if isinstance(data, Mapping):
        bunch, data = data, data.get("data")
        if data is None:
            raise ValueError(
                "data is a dict without 'data', the features: pass a Bunch of rankrls.datasets, "
                "a data frame or an array"
            )
        qid = bunch.get("qid") if qid is None else qid
        names: Any = bunch.get("feature_names")
        named = names is not None and hasattr(estimator, "feature_names_in_")
        if named and isinstance(data, np.ndarray):
            data = named_frame(data, list(map(str, names)), {})
    data = without_arrow(data)
    X = data
    if hasattr(data, "columns"):
        check_same_rows(data, "data", qid=qid, ids=ids)
        X = _features(estimator, data, qid, ids)
        if ids is None and names_anything(row_names(data)):
            ids = row_names(data)
    qid, ids = _column(data, "qid", qid), _column(data, "ids", ids)
    scores = np.asarray(_predicted(estimator, X, qid))
    n_rows = data.shape[0] if hasattr(data, "shape") else len(data)
    if scores.shape != (n_rows,):
        raise ValueError(
            f"predict returned scores of shape {scores.shape} for {n_rows} rows, and a ranking "
            "needs one score for each row: rank a column by RankTable.from_scores(scores[:, j], "
            "qid=qid, ids=ids); a model of texts needs the column of texts as data"
        )
    table = RankTable.from_scores(scores, qid=qid, ids=ids, k=k)
    if ids is not None and len(again := repeated_rows(scores, qid, ids)):
        warn(f"{repeated_text(again, qid, ids)}: rank keeps all of them")
    return table


def repeated_rows(scores: Array, qid: Any, ids: Any) -> Array:
    """Rows whose id stands at a better place of their query, too."""
    names = encode_qid(ids, len(scores))
    codes = names.codes
    if qid is not None:
        codes = codes + len(names) * encode_qid(qid, len(scores)).codes
    order = np.lexsort((-scores, codes))
    return order[1:][np.diff(codes[order]) == 0]


def repeated_text(again: Array, qid: Any, ids: Any) -> str:
    """What a message says of these rows."""
    row = int(again.min())
    name, query = (str(label_array("ids", of)[row]) for of in (ids, ids if qid is None else qid))
    where = "" if qid is None else f" of query {query!r}"
    return (
        f"{len(again):,} {'row repeats' if len(again) == 1 else 'rows repeat'} the id of another "
        f"row of the same query, such as {name!r}{where}"
    )


def _features(estimator: Any, data: Any, qid: Any, ids: Any) -> Any:
    """Columns of a data frame that the model uses."""
    known = required_features(estimator)
    names = [str(name) for name in data.columns]
    features: list[Any] = [] if known is None else known
    if known is None:
        used = [value for value in (qid, ids) if isinstance(value, str)]
        features = [name for name in data.columns if str(name) not in used]
    missing = [name for name in known or () if name not in names]
    if missing:
        raise ValueError(
            f"data has no column {shown_names(missing)}, which the model was fitted to; "
            f"its columns are {shown_names(names)}"
        )
    refuse_equal_names([name for name in data.columns if name in set(features)], "data")
    for name in set(names).difference(known or ()) if qid is None else ():
        if name.lower() in QUERY_NAMES:
            raise ValueError(
                f"data has a column {name!r}, but qid is None; pass qid={name!r}, or drop the "
                "column if all rows are one ranking"
            )
    X = data[features] if hasattr(data, "iloc") else data.select(features)
    if chooses_columns(estimator):
        X = with_columns(X, list(estimator.feature_names_in_))
    return X


def _column(data: Any, role: str, value: Any) -> Any:
    """Return a column by name; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    if not hasattr(data, "columns"):
        raise ValueError(
            f"{role}={value!r} names a column, but data has no column names; pass one value for "
            f"each row as {role}"
        )
    if list(data.columns).count(value) != 1:
        raise ValueError(
            f"{role}={value!r} is not a column of data, or several of them; its columns are "
            f"{shown_names(data.columns)}"
        )
    return data[value]


def _predicted(estimator: Any, X: Any, qid: Any) -> Any:
    """Predict scores, passing qid if the model uses it."""
    while hasattr(estimator, "best_estimator_"):  # of a search
        estimator = estimator.best_estimator_
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    known = np.zeros(n_rows, dtype=np.int64) if qid is None else qid
    if _takes_qid(estimator.predict):
        fitted_with = getattr(estimator, "_with_qid", True)  # AutoRanker may be fitted without
        return estimator.predict(X, qid=known if fitted_with else None)
    with config_context(enable_metadata_routing=True):
        if predicts_by_query(estimator):
            return estimator.predict(X, qid=known)
    return estimator.predict(X)


def predicts_by_query(estimator: Any) -> bool:
    """Whether ``predict`` uses qid, in the estimator itself or in a step of a pipeline."""
    return _takes_qid(estimator.predict) or bool(
        get_routing_for_object(estimator).consumes("predict", ["qid"])
    )


def _takes_qid(method: Any) -> bool:
    try:
        return "qid" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # compiled methods may have no signature
        return False


def _row_names(qid: Any, ids: Any, n_rows: int, of: str) -> tuple[Array, Array, Array]:
    """Queries by number, the query number of every row, and the ids of the rows."""
    queries = encode_qid(qid, n_rows, of=of)
    labels = np.zeros(1, dtype=np.int64) if qid is None else as_labels(queries.labels)
    if ids is None:
        return labels, queries.codes, np.arange(n_rows)
    names = ids if isinstance(ids, np.ndarray) else label_array("ids", ids)
    if names.ndim != 1:
        raise ValueError(f"ids must be 1-D, one name for each row; got shape {names.shape}")
    check_length("ids", names, n_rows, of="rows")
    for place, name in enumerate(names.tolist() if names.dtype.kind in "Of" else ()):
        if is_missing(name):
            raise ValueError(f"ids is {name!r} at row {place}; every row needs an id")
    return labels, queries.codes, names


def as_labels(labels: Any) -> Array:
    """Convert query labels to an array; labels that cannot be sorted become an object array."""
    return labels if isinstance(labels, np.ndarray) else as_objects(labels)
