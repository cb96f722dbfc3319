"""Readers of rows to rank: LETOR text, CSV, Parquet and Arrow files, at once or in batches."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from rankrls._streams import PathOrFile, name_of
from rankrls._validation import as_text, check_option
from rankrls.datasets._batches import RowReader, iterate, load
from rankrls.datasets._columns import TableReader, check_names
from rankrls.datasets._letor import LetorReader
from rankrls.datasets._named_tables import open_table
from rankrls.datasets._sources import ArrowSource, CsvSource, find_files
from rankrls.datasets.formats import FORMATS, sniff

PathOrPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _arguments(load: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
    """All arguments of a reader by name."""
    call = inspect.signature(load).bind(*args, **options)
    call.apply_defaults()
    return call.arguments


def load_ranking(
    path: PathOrFile | Sequence[PathOrFile],
    *,
    format: str = "auto",
    target: str | None = "auto",
    qid: str | None = "auto",
    features: Any = None,
    drop: Any = None,
    sample_weight: str | None = None,
    dtype: DTypeLike = np.float64,
    n_features: int | None = None,
    sparse: bool | str = "auto",
    zero_based: bool = False,
    beyond: str = "error",
    header: bool = True,
    delimiter: str | None = None,
    missing: str = "error",
    unlabelled: str = "error",
    text: Any = None,
    need: Sequence[str] = ("target", "qid"),
    group: Any = "auto",
) -> Bunch:
    r"""Read rows to rank from a file: LETOR text, CSV, Parquet or Arrow.

    Parameters
    ----------
    path : str, path-like or binary file, or a list of them
        Text may be compressed (gzip, bzip2, xz, zstd); a directory stands for the Parquet files in
        it. Several files of one kind are read as one, with the columns of the first.
    format : {"auto", "letor", "csv", "parquet"}, default="auto"
        By default detected from content and name. Arrow and Feather files count as "parquet".
    target, qid : str or None, default="auto"
        Columns of labels and query ids. ``"auto"``: the column called label, relevance, rel, grade,
        target or y, and the one called qid, query_id, queryid, query-id or query, in any case.
        None: not read, and no feature.
    features : str or sequence of str, optional
        Columns of the features, in this order; an empty list reads none. By default all others.
    drop : str or sequence of str, optional
        Columns that are not features, such as text and ids, if ``features`` is not given.
    sample_weight : str, optional
        Column of the row weights.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    n_features, sparse, zero_based, beyond
        For LETOR text, as in :func:`load_letor`; ignored otherwise.
    header, delimiter
        For CSV, as in :func:`load_csv`; ignored otherwise.
    missing : {"error", "nan"}, default="error"
        Whether missing features (nulls, and cells that are empty or NA, N/A, NaN, NULL or None in
        any case) are an error or NaN. Of text, only empty cells and nulls are missing: None.
    unlabelled : {"error", "drop"}, default="error"
        Whether rows without a label are an error, or left out with a warning.
    text : None, "auto" or sequence of str, default=None
        Columns that may hold text. ``"auto"``: those with a cell that is neither a number nor
        missing, and dates and times of Parquet files. ``data`` is then a pandas data frame for
        :class:`~rankrls.AutoRanker`. By default every feature is a number.
    need : sequence of {"target", "qid"}, default=("target", "qid")
        What must be found where ``"auto"`` looks for it. The others are None if they are missing.
    group : str, path-like or None, default="auto"
        For LETOR text without query ids: the file of sizes of consecutive queries, as in
        :func:`load_group`. ``"auto"``: the file ``path.query`` (LightGBM) or ``path.group``
        (XGBoost), if there is one; its name is then the attribute ``group_file``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray, scipy.sparse.csr_array or data frame of shape (n_rows, n_features)
            Features.
        target, sample_weight : ndarray of shape (n_rows,), float64, or None
            Labels and row weights.
        qid : ndarray of shape (n_rows,), integers or str, or None
            Query ids. Those of text files are integers if all of them are written as 64-bit
            integers, otherwise strings (objects if some are very long).
        feature_names, comments : list of str of length n_features and n_rows, or None
            Names of columns, of tables only; comments, of LETOR text only.
        format, target_name, qid_name : str or None
            "letor", "csv" or "parquet"; the columns that were read.

    Raises
    ------
    ValueError
        Naming file, line or row, and column of what is wrong.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_ranking
    >>> load_ranking(io.BytesIO(b"query,relevance,bm25\nshoes,2,5\nshoes,0,4\n")).feature_names
    ['bm25']
    """
    return load(_open(dict(locals())))


def iter_ranking(
    path: PathOrFile | Sequence[PathOrFile],
    *,
    rows: int = 100_000,
    by_query: bool = True,
    **options: Any,
) -> Iterator[Bunch]:
    r"""Read rows to rank in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path : str, path-like or binary file, or a list of them
        As in :func:`load_ranking`. The rows of a query must be consecutive.
    rows : int, default=100_000
        Largest number of rows of a batch; a query with more rows is a batch of its own. Without
        query ids a batch has just this many rows.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.
    **options
        As in :func:`load_ranking`. Without ``n_features``, a first pass over LETOR text finds it;
        with ``sparse="auto"`` the first batch decides for all. ``text="auto"`` is for Parquet
        files only, whose types tell.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_ranking`. The first batch decides whether query ids are integers.
    """
    return iterate(_open(_arguments(load_ranking, path, **options)), rows, by_query=by_query)


def load_letor(
    path: PathOrFile,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    sparse: bool | str = "auto",
    zero_based: bool = False,
    beyond: str = "error",
    missing: str = "error",
) -> Bunch:
    r"""Read a file in LETOR (svmlight with query ids) format.

    Every line is one document, ``label qid:id 1:value 2:value … # comment``. Empty lines and
    lines with only a comment are skipped.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_ranking`.
    n_features : int, default=None
        Number of columns of the result; a larger feature id in the file is an error. By default
        the largest feature id found, which must be one that a model can have in memory.
    sparse : bool or "auto", default="auto"
        Whether ``data`` is sparse. ``"auto"``: dense if at least a quarter of its cells are
        written in the file (zeros that are written count), and sparse otherwise.
    zero_based : bool, default=False
        Whether feature ids start at 0, which is not detected.
    beyond : {"error", "drop"}, default="error"
        Whether features beyond ``n_features`` are an error, or dropped with one warning.
    dtype, missing
        As in :func:`load_ranking`. A missing value (``2:NULL``, ``2:``) is a stored NaN where
        ``data`` is sparse.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        As in :func:`load_ranking`; ``comments`` is the text after ``#``.

    Raises
    ------
    ValueError
        If the file is malformed; the message begins with ``file:line:``. Features of a row may be
        in any order, but not given twice; all lines have query ids, or none.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_letor
    >>> letor = load_letor(io.BytesIO(b"2 qid:7 1:0.5 2:1 # doc-a\n0 qid:7 1:0.25 2:3\n"))
    >>> letor.data
    array([[0.5 , 1.  ],
           [0.25, 3.  ]])
    """
    return load(LetorReader([path], {**_LETOR_LINES, **locals()}))


def iter_letor(
    path: PathOrFile,
    *,
    rows: int = 100_000,
    by_query: bool = True,
    **options: Any,
) -> Iterator[Bunch]:
    r"""Read a LETOR file in batches of whole queries, holding one batch in memory at a time.

    Parameters
    ----------
    path, rows, by_query
        As in :func:`iter_ranking`.
    **options
        As in :func:`load_letor` and :func:`iter_ranking`; a stream needs ``n_features``.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_letor`.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_letor
    >>> file = io.BytesIO(b"1 qid:1 1:5\n0 qid:1 1:6\n1 qid:2 1:7\n0 qid:3 1:8\n")
    >>> [batch.qid.tolist() for batch in iter_letor(file, rows=3)]
    [[1, 1, 2], [3]]
    """
    options = _LETOR_LINES | _arguments(load_letor, path, **options)
    return iterate(LetorReader([path], options), rows, by_query=by_query)


#: LETOR text alone: query ids as the lines have them.
_LETOR_LINES = {"group": None, "qid": "auto", "unlabelled": "error", "need": ()}


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
    unlabelled: str = "error",
) -> Bunch:
    r"""Read a ranking from a CSV file (needs pyarrow: ``pip install 'rankrls[arrow]'``).

    Cells in double quotes may hold anything, line ends included. Empty lines are skipped. True and
    False, in any case, are the numbers 1 and 0.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_ranking`, in UTF-8.
    target, qid : str or None
        Columns of the labels and of the query ids. None: there are none.
    features, drop, sample_weight, dtype, missing, unlabelled
        As in :func:`load_ranking`.
    header : bool, default=True
        Whether the first line has the names of the columns. False: they are called "1", "2", …
    delimiter : str, optional
        One ASCII character. By default the one of comma, tab, semicolon and bar that the first line
        has most of.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        As in :func:`load_ranking`.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_csv
    >>> file = io.BytesIO(b"query,label,bm25,clicks\nshoes,1,5.5,3\nshoes,0,6,0\n")
    >>> load_csv(file, target="label", qid="query").data
    array([[5.5, 3. ],
           [6. , 0. ]])
    """
    return load(TableReader([partial(CsvSource, path, header, delimiter)], dict(locals())))


def iter_csv(
    path: PathOrFile,
    *,
    rows: int = 100_000,
    by_query: bool = True,
    **options: Any,
) -> Iterator[Bunch]:
    r"""Read a CSV file in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path, rows, by_query
        As in :func:`iter_ranking`.
    **options
        As in :func:`load_csv`.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_csv`.
    """
    options = _arguments(load_csv, path, **options)
    source = partial(CsvSource, path, options["header"], options["delimiter"])
    return iterate(TableReader([source], options), rows, by_query=by_query)


def iter_parquet(
    path: PathOrPaths,
    *,
    rows: int = 100_000,
    by_query: bool = True,
    text: Any = None,
    **options: Any,
) -> Iterator[Bunch]:
    """Read Parquet or Arrow files in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path : str, path-like, or a sequence of them
        Parquet files, Arrow IPC files, Feather files (version 2), as their content tells; a
        directory stands for all such files below it, sorted by name.
    rows, by_query
        As in :func:`iter_ranking`.
    text : None, "auto" or sequence of str, default=None
        As in :func:`load_ranking`.
    **options
        As in :func:`load_csv`. A column of lists of equal length (an embedding, say) gives as many
        features.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_ranking`. Errors name row group and row, both counted from 0.
    """
    sources = [partial(ArrowSource, file) for file in find_files(path)]
    options = {"text": text, **_arguments(load_csv, path, **options)}
    return iterate(TableReader(sources, options), rows, by_query=by_query)


def _open(options: dict[str, Any]) -> RowReader:
    """The reader for the arguments of `load_ranking`."""
    path, text, group = options["path"], options["text"], options["group"]
    paths = list(path) if isinstance(path, list | tuple) else [path]
    if not paths:
        raise ValueError("path is an empty list: name at least one file")
    if text is not None and not (isinstance(text, str) and text == "auto"):
        options = {**options, "text": check_names(text, "text")}
    kind, name = _kind(paths, options["format"]), name_of(paths[0])
    has_group = group is not None and not (isinstance(group, str) and group == "auto")
    if has_group and (len(paths) > 1 or kind != "letor"):
        raise ValueError(f"{name}: group={group!r} has sizes of queries for one file of LETOR text")
    if kind == "letor":
        for role in ("target", "qid", "sample_weight", "features", "drop"):
            value = options[role]
            if value is not None and not (isinstance(value, str) and value == "auto"):
                raise ValueError(
                    f"{name}: this is LETOR text, which has no columns by name: "
                    f"{role}={value!r} is for CSV and Parquet files"
                )
        return LetorReader(paths, options)
    if kind == "parquet":
        return TableReader([partial(ArrowSource, file) for file in find_files(paths)], options)
    header, delimiter = options["header"], options["delimiter"]
    return TableReader([partial(CsvSource, one, header, delimiter) for one in paths], options)


def _kind(paths: list[Any], format: str) -> str:
    """The format of the files, which must be the same."""
    check_option("format", format, ("auto", *FORMATS))
    kinds = [sniff(path) if format == "auto" else format for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"{name_of(path)}: this is a file of the kind {kind!r}, and {name_of(paths[0])} is "
                f"{kinds[0]!r}: read them one by one"
            )
    return kinds[0]


def ids_from_comments(
    comments: Sequence[str], key: str = "docid", *, name: str = ""
) -> NDArray[Any]:
    """Names of rows from the comments of LETOR text.

    Parameters
    ----------
    comments : sequence of str
        Such as ``docid = GX008-86-4444840 inc = 1``, from :func:`load_letor`.
    key : str, default="docid"
        The word before the name, which follows after ``=`` or ``:``. "comment": the whole comment
        is the name.
    name : str, optional
        What the file is called in an error.

    Returns
    -------
    ndarray of shape (n_rows,), str
    """
    if key == "comment":
        found: list[Any] = [comment.strip() or None for comment in comments]
    else:
        after = re.compile(rf"(?:^|\s){re.escape(key)}\s*[=:]\s*(\S+)")
        found = [match[1] if (match := after.search(comment)) else None for comment in comments]
    if None in found:
        row = found.index(None)
        what = "there is no comment" if not comments[row] else f"the comment is {comments[row]!r}"
        raise ValueError(
            f"{name}{': ' * bool(name)}row {row} has no {key}: {what[:80]} (names of rows are "
            f"looked for after '# {key} =' in LETOR text)"
        )
    return as_text(found)


def load_ids(
    path: PathOrFile,
    column: str,
    *,
    format: str = "auto",
    header: bool = True,
    delimiter: str | None = None,
) -> NDArray[Any]:
    r"""Read the names of rows from a file: LETOR text, CSV, Parquet or Arrow.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_ranking`, whose rows they belong to.
    column : str
        Column of the names; of LETOR text the word before them in comments, as in
        :func:`ids_from_comments`.
    format, header, delimiter
        As in :func:`load_ranking`.

    Returns
    -------
    ndarray of shape (n_rows,), str
    """
    kind = _kind([path], format)
    if kind == "letor":
        comments = load_letor(path, zero_based=True, beyond="drop").comments  # any feature id
        return ids_from_comments(comments, column, name=name_of(path))
    table = open_table(path, kind, delimiter, header)
    found, _ = table.read([table.check_column("ids", column)], "every row needs a name")
    return as_text(list(map(str, found[column])))
