"""Readers of CSV files: the whole file at once, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls._streams import PathOrFile
from rankrls._validation import check_integer
from rankrls.datasets._csv_source import CsvColumns, CsvSource
from rankrls.datasets._query_batches import check_dtype, iter_batches

__all__ = ["iter_csv", "load_csv"]


def load_csv(
    path: PathOrFile,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    dtype: DTypeLike = np.float64,
    header: bool = True,
    delimiter: str | None = None,
    missing: str = "error",
) -> Bunch:
    r"""Read a ranking from a CSV file.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like or binary file
        File to read, in UTF-8, plain or compressed by gzip, bzip2, xz or zstd, which is
        detected from its content. An open file is read from its current position, and is left open.
    target : str or None
        Column of the labels. None: there are none, as in rows to predict.
    qid : str, optional
        Column of the query ids. None: there are no queries.
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers.
        An empty list reads none: labels and query ids alone.
    drop : str or sequence of str, optional
        Columns that are not features, such as text and ids, if ``features`` is not given.
    sample_weight : str, optional
        Column of the row weights.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    header : bool, default=True
        Whether the first line has the names of the columns. False: they are called "1", "2", …
    delimiter : str, optional
        One character. By default the one of comma, tab, semicolon and bar that the first line
        has most of.
    missing : {"error", "nan"}, default="error"
        How to handle missing features (empty cells, NA, N/A, NaN, NULL and None, in any case):
        raise an error, or return NaN. Labels, weights and query ids must not be missing.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray of shape (n_rows, n_features)
            Features.
        target : ndarray of shape (n_rows,), float64, or None
            Labels.
        qid : ndarray of shape (n_rows,), int64 or str, or None
            Integers if all of them are (within 64 bits, and no two of them the same integer
            written differently), otherwise strings, in an array of objects if some are so long
            that this takes less memory.
        sample_weight : ndarray of shape (n_rows,), float64, or None
            Row weights.
        feature_names : list of str of length n_features
            Names of the columns.

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is), or a line has too few or too
        many cells, or a cell that should hold a finite number does not; the message begins with
        ``file:line:``. Cells in double quotes may hold anything, line ends included. Empty lines
        are skipped. True and False (also true, TRUE, false, FALSE) are the numbers 1 and 0.
        Lines of more than 64 MiB, quoted cells of more than 131,072 characters and NUL bytes are
        errors, too.
    MemoryError
        If the rows do not fit into the memory of the process.

    See Also
    --------
    iter_csv : Read a file that does not fit in memory.
    load_ranking : Read a file of any kind.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_csv
    >>> file = io.BytesIO(b"query,label,bm25,clicks\nred shoes,1,5.5,3\nred shoes,0,6,0\n")
    >>> table = load_csv(file, target="label", qid="query")
    >>> table.data
    array([[5.5, 3. ],
           [6. , 0. ]])
    >>> table.qid.tolist(), table.feature_names
    (['red shoes', 'red shoes'], ['bm25', 'clicks'])
    """
    source = CsvSource(path, header, delimiter)
    columns = CsvColumns(
        source, target, qid, sample_weight, features, drop, check_dtype(dtype), missing
    )
    return next(iter_batches(columns.chunks(), columns, np.inf, by_query=False, name=source.file))


def iter_csv(
    path: PathOrFile,
    *,
    target: str | None,
    qid: str | None = None,
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    rows: int = 100_000,
    dtype: DTypeLike = np.float64,
    header: bool = True,
    delimiter: str | None = None,
    missing: str = "error",
    by_query: bool = True,
) -> Iterator[Bunch]:
    r"""Read a CSV file in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path, target, qid, features, drop, sample_weight, dtype, header, delimiter, missing
        As in :func:`load_csv`. The rows of a query must be consecutive.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without ``qid`` a batch has just this many rows.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_csv`. Whether query ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_csv`; also if a query id reappears after another query, naming
        the line.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_csv
    >>> file = io.BytesIO(b"qid;y;f\n1;1;5\n1;0;6\n2;1;7\n3;0;8\n")
    >>> for batch in iter_csv(file, target="y", qid="qid", rows=3):
    ...     print(batch.qid, batch.data.ravel())
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    rows = check_integer("rows", rows, least=1)
    source = CsvSource(path, header, delimiter)
    columns = CsvColumns(
        source, target, qid, sample_weight, features, drop, check_dtype(dtype), missing
    )
    return iter_batches(columns.chunks(), columns, rows, by_query=by_query, name=source.file)
