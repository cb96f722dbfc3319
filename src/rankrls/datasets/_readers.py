"""Readers of rows to rank: LETOR text, CSV, Parquet and Arrow files, at once or in batches.

All of them are `_open`: what a file is, which columns are what, and the reader for it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls._streams import PathOrFile, name_of
from rankrls._validation import check_option
from rankrls.datasets._columns import ROLE_NAMES, TableReader, check_names, listed, missing_column
from rankrls.datasets._csv import CsvSource
from rankrls.datasets._letor import LetorReader
from rankrls.datasets._parquet import find_files, open_source
from rankrls.datasets._rows import RowReader, iterate, load
from rankrls.datasets.formats import FORMATS, sniff

PathOrPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_LETOR_OPTIONS = ("n_features", "dtype", "sparse", "zero_based", "beyond", "missing")
_TABLE_OPTIONS = ("dtype", "missing", "unlabelled", "text")
_COLUMNS = ("target", "qid", "sample_weight", "features", "drop")


def _options_of(load: Callable[..., Any], *without: str) -> Callable[[Any], Any]:
    """Give a reader of batches the options of a reader of all rows."""

    def decorate(batches: Callable[..., Iterator[Bunch]]) -> Callable[..., Iterator[Bunch]]:
        signature = inspect.signature(batches)
        own = [p for p in signature.parameters.values() if p.name != "options"]
        known = {"path", *without, *(p.name for p in own)}
        shared = [p for p in inspect.signature(load).parameters.values() if p.name not in known]
        signature = signature.replace(parameters=[*own, *shared])

        @functools.wraps(batches)
        def read(*args: Any, **options: Any) -> Iterator[Bunch]:
            call = signature.bind(*args, **options)
            call.apply_defaults()
            return batches(**call.arguments)

        read.__signature__ = signature  # type: ignore[attr-defined]
        return read

    return decorate


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
        Text may be compressed (gzip, bzip2, xz, zstd). A directory stands for the Parquet files in
        it. An open file that cannot be rewound, such as a pipe, must have ``peek``, or a
        ``format``. Several files of one kind are read as one: columns of tables are those of the
        first by their names, and rows with the same query id are one query.
    format : {"auto", "letor", "csv", "parquet"}, default="auto"
        Format of the file. By default it is detected from the content; between LETOR and CSV, from
        the name. Arrow and Feather files count as "parquet".
    target, qid : str or None, default="auto"
        Columns of labels and query ids, in CSV and Parquet files. ``"auto"``: the column called
        label, relevance, rel, grade, target or y, and the one called qid, query_id, queryid,
        query-id or query, in any case. None: not read; a column called like query ids is then
        no feature either. (LETOR text has both in their places; ``qid=None`` ignores the query
        ids: all rows are one ranking.)
    features : str or sequence of str, optional
        Columns of the features, in this order. By default all others, which must be numbers.
        An empty list reads none: labels and query ids alone.
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
        How to handle missing features (empty cells, NA, N/A, NaN, NULL and None, in any case, and
        nulls): raise an error, or return NaN. In columns of ``text``, only empty cells and nulls
        are missing; they are None. Weights and query ids must not be missing.
    unlabelled : {"error", "drop"}, default="error"
        How to handle rows without a label: raise an error, or leave them out and warn of how many.
    text : None, "auto" or sequence of str, default=None
        Columns of CSV and Parquet files that may hold text. None: every feature is a number.
        ``"auto"``: a column with a cell that is neither a number nor missing is text, and so are
        dates and times of Parquet files, as pyarrow writes them ("2024-01-31",
        "2024-01-31 00:00:00", durations as "90 s"). Names: these columns are text, the others
        numbers. With ``"auto"`` or names, ``data`` is a table with
        ``columns``, ``shape`` and ``data["name"]``, which :class:`~rankrls.AutoRanker` and
        :class:`~rankrls.preprocessing.TableEncoder` take. LETOR text has none: it is ignored.
    need : sequence of {"target", "qid"}, default=("target", "qid")
        What must be found where ``"auto"`` looks for it. The others are None if they are missing.
    group : str, path-like or None, default="auto"
        For LETOR text whose lines have no query ids: the file of sizes of consecutive queries, as
        in :func:`load_group`. ``"auto"``: the file ``path.query`` (LightGBM) or ``path.group``
        (XGBoost), if there is one; its name is then the attribute ``group_file``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray, scipy.sparse.csr_array or table of shape (n_rows, n_features)
            Features; see ``text`` for tables.
        target : ndarray of shape (n_rows,), float64, or None
            Labels.
        qid : ndarray of shape (n_rows,), integers or str, or None
            Query ids. Those of text files are integers if all of them are (within 64 bits, and no
            two of them the same integer written differently), otherwise strings, in an array of
            objects if some are so long that this takes less memory.
        sample_weight : ndarray of shape (n_rows,), float64, or None
            Row weights.
        feature_names : list of str of length n_features, or None
            Names of the columns; LETOR text has none.
        comments : list of str of length n_rows, or None
            Of LETOR text only.
        format : str
            "letor", "csv" or "parquet".
        target_name, qid_name : str or None
            The columns that were read.

    Raises
    ------
    ValueError
        As the reader of each format does, naming file, line or row, and column.

    See Also
    --------
    iter_ranking : Read a file that does not fit in memory.
    load_letor, load_csv, iter_parquet : The readers.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_ranking
    >>> load_ranking(io.BytesIO(b"1 qid:7 1:0.5 2:1\n0 qid:7 1:3\n")).data
    array([[0.5, 1. ],
           [3. , 0. ]])
    >>> load_ranking(io.BytesIO(b"query,relevance,bm25\nshoes,2,5\nshoes,0,4\n")).feature_names
    ['bm25']
    """
    options = dict(locals())  # all arguments
    reader, known = _open(options)
    return _finished(load(reader), reader, options, known)


@_options_of(load_ranking)
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
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without query ids a batch has just this many rows.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.
    format, target, qid, features, drop, sample_weight, dtype, header, delimiter, missing
        As in :func:`load_ranking`.
    unlabelled, need
        As in :func:`load_ranking`.
    text : None, "auto" or sequence of str, default=None
        As in :func:`load_ranking`; ``"auto"`` for Parquet files only, whose types tell.
    n_features, sparse, zero_based, beyond, group
        As in :func:`load_ranking`. For LETOR text without ``n_features``, a first pass over the
        file finds it.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_ranking`.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_ranking
    >>> file = io.BytesIO(b"1 qid:1 1:5\n0 qid:1 1:6\n1 qid:2 1:7\n0 qid:2 1:8\n")
    >>> [batch.qid.tolist() for batch in iter_ranking(file, rows=3)]
    [[1, 1], [2, 2]]
    """
    reader, known = _open({"path": path, **options})
    if isinstance(reader, LetorReader):
        reader.find_width()
    elif known["format"] == "csv" and _is_auto(options["text"]):
        raise ValueError(
            f"{reader.file}: text='auto' looks at all rows of a CSV file: name the columns of "
            "text, or use load_ranking"
        )
    batches = iterate(reader, rows, by_query=by_query)
    return (_finished(batch, reader, options, known) for batch in batches)


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
        File to read, plain or compressed by gzip, bzip2, xz or zstd, which is detected from its
        content. zstd needs pyarrow (``pip install 'rankrls[arrow]'``) before Python 3.14. An
        open file is read from its current position, and is left open.
    n_features : int, default=None
        Number of columns of the result; a larger feature id in the file is an error. By default
        the largest feature id found; an error names its line if it is so large that a few vectors
        with one number for each feature would not fit into memory.
    dtype
        As in :func:`load_ranking`.
    sparse : bool or "auto", default="auto"
        Whether ``data`` is sparse. ``"auto"`` gives a dense array if at least a quarter of its
        cells are written in the file (zeros that are written count), and a sparse one otherwise.
    zero_based : bool, default=False
        Whether feature ids start at 0. This is not detected: by default feature 1 is column 0,
        and a feature id 0 is an error.
    beyond : {"error", "drop"}, default="error"
        How to handle features beyond ``n_features``: raise an error, or drop them and warn once.
    missing : {"error", "nan"}, default="error"
        How to handle missing values (``2:NULL``, ``2:NA``, ``2:N/A``, ``2:NaN``,
        ``2:None`` in any case, or nothing after the colon): an error, or NaN, which is a stored
        entry where ``data`` is sparse. Labels and query ids must not be missing.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray or scipy.sparse.csr_array of shape (n_rows, n_features)
            Features.
        target : ndarray of shape (n_rows,), float64
            Labels: any real numbers.
        qid : ndarray of shape (n_rows,), int64 or str, or None
            Query ids, as in :func:`load_ranking`; None if the file has none.
        comments : list of str of length n_rows
            Text after ``#``, without surrounding white space; ``""`` if there is none. Bytes that
            are not UTF-8 become U+FFFD.

    Raises
    ------
    ValueError
        If the file is malformed; the message begins with ``file:line:``. Features of a row may
        be in any order, but no feature may be given twice. Values that are not finite numbers
        (but for ``missing``), query ids on some lines only, query ids that are not UTF-8 text,
        NUL bytes, lines of more than 64 MiB, an empty file and damaged compressed data are errors,
        too.
    MemoryError
        If the rows do not fit into the memory of the process.

    See Also
    --------
    iter_letor : Read a file that does not fit in memory.
    dump_letor : Write such a file.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_letor
    >>> file = io.BytesIO(b"2 qid:7 1:0.5 2:1 # doc-a\n0 qid:7 1:0.25 2:3\n1 qid:9 2:4\n")
    >>> letor = load_letor(file)
    >>> letor.data
    array([[0.5 , 1.  ],
           [0.25, 3.  ],
           [0.  , 4.  ]])
    >>> letor.target, letor.qid
    (array([2., 0., 1.]), array([7, 7, 9]))
    >>> letor.comments
    ['doc-a', '', '']
    """
    options = dict(locals())
    return load(LetorReader([options.pop("path")], **options))


@_options_of(load_letor)
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
    path : str, path-like or binary file
        As in :func:`load_letor`. The rows of a query must be consecutive.
    rows, by_query
        As in :func:`iter_ranking`.
    n_features : int, default=None
        Number of columns of every batch. By default it is found by a first pass over the file; one
        that cannot be read twice needs it given.
    dtype, sparse, zero_based, beyond, missing
        As in :func:`load_letor`; with ``sparse="auto"`` the first batch decides for all.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        ``data``, ``target``, ``qid`` and ``comments``, as in :func:`load_letor`. Whether query
        ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_letor`; also if a query id reappears after another query.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_letor
    >>> file = io.BytesIO(b"1 qid:1 1:5\n0 qid:1 1:6\n1 qid:2 1:7\n0 qid:3 1:8\n")
    >>> for batch in iter_letor(file, rows=3):
    ...     print(batch.qid, batch.data.ravel())
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    reader = LetorReader([path], **options)
    reader.find_width()
    return iterate(reader, rows, by_query=by_query)


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
        With the attributes

        data : ndarray of shape (n_rows, n_features)
            Features.
        target, qid, sample_weight, feature_names
            As in :func:`load_ranking`.

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is), or a line has too few or too
        many cells, or a cell that should hold a finite number does not; the message begins with
        ``file:line:``. Cells in double quotes may hold anything, line ends included. Empty lines
        are skipped. True and False (also true, TRUE, false, FALSE) are the numbers 1 and 0.
        Lines of more than 64 MiB and NUL bytes are errors, too.
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
    options = dict(locals())
    return load(_table("csv", [path], options, {name: options[name] for name in _COLUMNS}))


@_options_of(load_csv)
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
    path, target, qid, features, drop, sample_weight, dtype, header, delimiter, missing, unlabelled
        As in :func:`load_csv`. The rows of a query must be consecutive.
    rows, by_query
        As in :func:`iter_ranking`.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_csv`. Whether query ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_csv`; also if a query id reappears after another query.

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
    reader = _table("csv", [path], options, {name: options[name] for name in _COLUMNS})
    return iterate(reader, rows, by_query=by_query)


@_options_of(load_csv, "header", "delimiter")
def iter_parquet(
    path: PathOrPaths,
    *,
    rows: int = 100_000,
    by_query: bool = True,
    text: Any = None,
    **options: Any,
) -> Iterator[Bunch]:
    """Read Parquet or Arrow files in batches of whole queries, one batch in memory at a time.

    Needs pyarrow: ``pip install 'rankrls[arrow]'``.

    Parameters
    ----------
    path : str, path-like, or a sequence of them
        Parquet files, Arrow IPC files or streams, Feather files (version 2), as their content
        tells; a directory stands for all such files below it, sorted by name. The rows of all
        files follow each other, and those of a query must be consecutive.
    target, qid, sample_weight, drop, dtype, unlabelled
        As in :func:`load_csv`. Query ids are integers or strings.
    features : str or sequence of str, optional
        As in :func:`load_ranking`. A column of lists of equal length (an embedding, say) gives as
        many features.
    rows, by_query
        As in :func:`iter_ranking`.
    missing, text
        As in :func:`load_ranking`.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        As in :func:`load_csv`.

    Raises
    ------
    ValueError
        If a column is missing (the message lists what there is) or of a type that cannot be read;
        if a value is infinite, null or NaN (but for ``missing``), or a query id comes back after
        another query, naming file, row group and row, both counted from 0; if a file is truncated,
        damaged, or something else.

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
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    columns = {name: options[name] for name in _COLUMNS}
    reader = _table("parquet", find_files(path), {"text": text, **options}, columns)
    return iterate(reader, rows, by_query=by_query)


def _table(
    kind: str, paths: list[Any], options: dict[str, Any], columns: dict[str, Any] | None = None
) -> TableReader:
    """Reader of CSV or Parquet files; by default, columns are found by their names."""
    if kind == "csv":
        header, delimiter = options["header"], options["delimiter"]
        opened: list[Any] = [partial(CsvSource, path, header, delimiter) for path in paths]
    else:
        opened = [partial(open_source, file) for file in paths]
    opened[0] = first = opened[0]()
    columns = columns or _find_roles(first.file, first.names, options)
    how: dict[str, Any] = {name: options.get(name) for name in _TABLE_OPTIONS}
    return TableReader(opened, **columns, **how)


def _open(options: dict[str, Any]) -> tuple[RowReader, dict[str, Any]]:
    """The reader for the arguments of `load_ranking`, and what is known of the data before."""
    path, text, group = options["path"], options["text"], options["group"]
    paths = list(path) if isinstance(path, list | tuple) else [path]
    if not paths:
        raise ValueError("path is an empty list: name at least one file")
    if text is not None and not _is_auto(text):
        options = {**options, "text": check_names(text, "text")}
    kind, name = _kind(paths, options["format"]), name_of(paths[0])
    has_group = group is not None and not _is_auto(group)
    if has_group and len(paths) > 1:
        raise ValueError("group is a file of sizes for one file of rows: read the files one by one")
    if kind == "letor":
        for role in _COLUMNS:
            if options[role] is not None and not _is_auto(options[role]):
                raise ValueError(
                    f"{name}: this is LETOR text, which has no columns by name: "
                    f"{role}={options[role]!r} is for CSV and Parquet files"
                )
        how = {key: options[key] for key in (*_LETOR_OPTIONS, "group", "qid", "unlabelled")}
        none = dict.fromkeys(("sample_weight", "feature_names", "target_name", "qid_name"))
        return LetorReader(paths, **how), {"format": kind, **none}
    if has_group:
        raise ValueError(
            f"{name}: group={group!r} is for LETOR text; a table has a column of query ids"
        )
    files = paths if kind == "csv" else find_files(paths if len(paths) > 1 else paths[0])
    table = _table(kind, files, options)
    known = {"comments": None, "target_name": table.target}
    return table, {"format": kind, "qid_name": table.qid, **known}


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


def _finished(
    bunch: Bunch, reader: RowReader, options: dict[str, Any], known: dict[str, Any]
) -> Bunch:
    """A bunch with all that the user gets."""
    if bunch.qid is None and options["qid"] is not None and "qid" in options["need"]:
        # Of LETOR text: tables have been looked at.
        raise ValueError(
            f"{reader.file}: the lines have no query ids (label qid:7 1:0.5 …), and no file "
            f"{reader.file}.query has sizes of queries; pass qid=None if all rows are one ranking"
        )
    bunch.update(known)
    if getattr(reader, "group_file", None):
        bunch.group_file = reader.group_file  # type: ignore[attr-defined]
    return bunch


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _find_roles(file: str, names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """All columns by role; those that are features or dropped are not looked at for labels."""
    roles = {role: options[role] for role in _COLUMNS}
    used = set() if roles["features"] is None else set(check_names(roles["features"]))
    # "a,b" is two columns, unless one is called so.
    given = [] if roles["drop"] is None else check_names(roles["drop"], "drop")
    parts = [[name] if name in names else map(str.strip, name.split(",")) for name in given]
    dropped = list(dict.fromkeys(name for part in parts for name in part if name))
    free = [name for name in names if name not in used and name not in dropped]
    if roles["qid"] is None:  # query ids that are ignored are no features either
        taken = (roles["target"], roles["sample_weight"])
        dropped += [n for n in free if n.lower() in ROLE_NAMES["qid"] and n not in taken]
    for role in ("target", "qid"):
        column = roles[role]
        if isinstance(column, str) and column in dropped:
            raise ValueError(f"{file}: column {column!r} for {role} cannot be dropped")
        if isinstance(column, str) and column not in [*names, "auto"]:
            raise ValueError(f"{file}: {missing_column(role, column, names)}")
    left = [name for name in names if name not in dropped]
    for role, what in (("target", "labels"), ("qid", "query ids")):
        if isinstance(roles[role], str) and roles[role] in used:
            raise ValueError(
                f"{file}: column {roles[role]!r} for {role} is also one of the features"
            )
        if not _is_auto(roles[role]):
            continue
        known = [name for name in free if name.lower() in ROLE_NAMES[role]]
        if len(known) > 1:
            which = " and ".join(map(repr, known))
            raise ValueError(
                f"{file}: {which} could both be the column of {what}; name it in {role}="
            )
        if not known and role in options["need"]:
            one = ", or pass qid=None if all rows are one ranking" if role == "qid" else ""
            raise ValueError(
                f"{file}: no column is called {', '.join(ROLE_NAMES[role])}: name the column of "
                f"{what} in {role}={one}; the columns are {listed(left)}"
            )
        roles[role] = known[0] if known else None
    return {**roles, "drop": dropped or None}
