"""Parquet and Arrow files in batches of whole queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls._validation import check_integer
from rankrls.datasets._arrow import (
    NumberedBatch,
    PathOrPaths,
    Source,
    ahead,
    find_files,
    open_source,
)
from rankrls.datasets._columns import Columns
from rankrls.datasets._query_batches import check_dtype, iter_batches

__all__ = ["iter_parquet"]


def iter_parquet(
    path: PathOrPaths,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    rows: int = 100_000,
    dtype: DTypeLike = np.float64,
    by_query: bool = True,
    missing: str = "error",
    text: Any = None,
) -> Iterator[Bunch]:
    """Read Parquet or Arrow files in batches of whole queries, one batch in memory at a time.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like, or a sequence of them
        Parquet files, Arrow IPC files or streams, Feather files (version 2), as their content
        tells; a directory stands for all such files below it, sorted by name. The rows of all
        files follow each other, and those of a query must be consecutive.
    target : str or None
        Column of the labels. None: there are none, as in rows to predict.
    qid : str, optional
        Column of the query ids: integers or strings. None: there are no queries.
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers. A
        column of lists of equal length (an embedding, say) gives as many features. An empty
        list reads none: labels and query ids alone.
    drop : str or sequence of str, optional
        Columns that are not features, such as text and ids, if ``features`` is not given.
    sample_weight : str, optional
        Column of the row weights.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without ``qid`` a batch has just this many rows.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.
    missing : {"error", "nan"}, default="error"
        How to handle features that are null or NaN: raise an error, or return NaN. Labels, weights
        and query ids must not be missing.
    text : None, "auto" or sequence of str, default=None
        Columns that may hold text, as in :func:`load_ranking`.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
        target : ndarray of shape (n_rows,), float64, or None
        qid : ndarray of shape (n_rows,), int64 or str, or None
        sample_weight : ndarray of shape (n_rows,), float64, or None
        feature_names : list of str of length n_features

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is) or is not of a type that can be
        read; if a value is infinite, null or NaN (but for ``missing``), or a query id comes back
        after another query, naming file, row group and row, both counted from 0; if a file is
        truncated, damaged, or something else. Only the ids of the queries already read are kept to
        notice the second.

    See Also
    --------
    iter_letor : The same for LETOR text.
    rankrls.RankRLS.fit_stream : Fit a model to the batches.

    Examples
    --------
    >>> import os, tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> from rankrls.datasets import iter_parquet
    >>> table = pa.table({"query": [1, 1, 2, 3], "label": [1, 0, 1, 0], "bm25": [5, 6, 7, 8]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "train.parquet")
    ...     pa.parquet.write_table(table, file)
    ...     for batch in iter_parquet(file, target="label", qid="query", rows=3):
    ...         print(batch.qid, batch.data.ravel())
    [1 1] [5. 6.]
    [2 3] [7. 8.]
    """
    rows = check_integer("rows", rows, least=1)
    files = find_files(path)
    first = open_source(files[0])
    columns = Columns(
        first, target, qid, sample_weight, features, drop, check_dtype(dtype), missing, text
    )
    chunks = ahead(_chunks(files, first, columns, rows))
    return iter_batches(chunks, columns, rows, by_query=by_query, name=files[0])


def _chunks(
    files: list[str], first: Source, columns: Columns, rows: int
) -> Iterator[NumberedBatch]:
    """All rows of all files."""
    for number, file in enumerate(files):
        source = open_source(file) if number else first
        columns.check(source)
        yield from source.chunks(columns.names, rows)
