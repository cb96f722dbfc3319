"""Rankings from files of any kind: what is in a file, and which columns are what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls._streams import PathOrFile, name_of
from rankrls._validation import check_integer, check_option
from rankrls.datasets._columns import ROLE_NAMES, check_names, listed, missing_column
from rankrls.datasets._csv import CsvSource
from rankrls.datasets._letor import LetorReader
from rankrls.datasets._parquet import find_files, open_source, parquet_reader
from rankrls.datasets._rows import RowReader, iterate, load
from rankrls.datasets.formats import FORMATS, sniff

__all__ = ["iter_ranking", "load_ranking"]

_LETOR_OPTIONS = ("n_features", "dtype", "sparse", "zero_based", "beyond", "missing", "group")
_TABLE_OPTIONS = ("dtype", "missing", "unlabelled", "text")


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
        Columns of the features, in this order; by default all others. An empty list reads none.
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
        How to handle missing features (NULL, NA, NaN, None, empty cells, nulls): an
        error, or NaN. In columns of ``text``, only empty cells and nulls are missing; they are
        None.
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
            Query ids.
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
    return _finished(load(reader), options, known)


def iter_ranking(
    path: PathOrFile | Sequence[PathOrFile],
    *,
    rows: int = 100_000,
    by_query: bool = True,
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
    options = dict(locals())  # all arguments
    rows = check_integer("rows", rows, least=1)
    reader, known = _open(options)
    if isinstance(reader, LetorReader):
        reader.find_width()
    elif known["format"] == "csv" and isinstance(text, str) and text == "auto":
        raise ValueError(
            f"{reader.file}: text='auto' looks at all rows of a CSV file: name the columns of "
            "text, or use load_ranking"
        )
    batches = iterate(reader, rows, by_query=by_query)
    return (_finished(batch, options, known) for batch in batches)


def _open(options: dict[str, Any]) -> tuple[RowReader, dict[str, Any]]:
    """The reader for the arguments of `load_ranking`, and what is known of the data before."""
    path, text, group = options["path"], options["text"], options["group"]
    paths = list(path) if isinstance(path, list | tuple) else [path]
    if not paths:
        raise ValueError("path is an empty list: name at least one file")
    if text is not None and not (isinstance(text, str) and text == "auto"):
        options = {**options, "text": check_names(text, "text")}
    kind, name = _kind(paths, options["format"]), name_of(paths[0])
    has_group = not (group is None or (isinstance(group, str) and group == "auto"))
    if has_group and len(paths) > 1:
        raise ValueError("group is a file of sizes for one file of rows: read the files one by one")
    if kind == "letor":
        for role in ("target", "qid", "features", "drop", "sample_weight"):
            if options[role] is not None and not _is_auto(options[role]):
                raise ValueError(
                    f"{name}: this is LETOR text, which has no columns by name: "
                    f"{role}={options[role]!r} is for CSV and Parquet files"
                )
        how = {key: options[key] for key in _LETOR_OPTIONS}
        reader = LetorReader(paths, qid=options["qid"] is not None, **how)
        reader.drop_unlabelled(options["unlabelled"])
        return reader, {"format": kind}
    if has_group:
        raise ValueError(
            f"{name}: group={group!r} is for LETOR text; a table has a column of query ids"
        )
    how = {key: options[key] for key in _TABLE_OPTIONS}
    if kind == "csv":
        header, delimiter = options["header"], options["delimiter"]
        source = CsvSource(paths[0], header, delimiter)
        found = _find_roles(source.file, source.names, options)
        others = [partial(CsvSource, one, header, delimiter) for one in paths[1:]]
        table = source.reader(others, **found, **how)
    else:
        files = find_files(paths if len(paths) > 1 else paths[0])
        found = _find_roles(files[0], open_source(files[0]).names, options)
        table = parquet_reader(files, **found, **how)
    known = {"comments": None, "target_name": found["target"], "qid_name": found["qid"]}
    return table, {"format": kind, **known}


def _kind(paths: list[Any], format: str) -> str:
    """The format of the files, which must be the same."""
    check_option("format", format, ("auto", *FORMATS))
    kinds = [sniff(path)[0] if format == "auto" else format for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"{name_of(path)}: this is a file of the kind {kind!r}, and {name_of(paths[0])} is "
                f"{kinds[0]!r}: read them one by one"
            )
    return kinds[0]


def _finished(bunch: Bunch, options: dict[str, Any], known: dict[str, Any]) -> Bunch:
    """A bunch with all that the user gets."""
    if bunch.qid is None and options["qid"] is not None and "qid" in options["need"]:
        path = options["path"]  # of LETOR text; tables have been looked at
        name = name_of(path[0] if isinstance(path, list | tuple) else path)
        raise ValueError(
            f"{name}: the lines have no query ids (label qid:7 1:0.5 …), and no file {name}.query "
            "has sizes of queries; pass qid=None if all rows are one ranking"
        )
    bunch.update(known)
    return bunch


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _find_roles(file: str, names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """All columns by role; those that are features or dropped are not looked at for labels."""
    roles = {role: options[role] for role in ("target", "qid")}
    features = options["features"]
    used = set() if features is None else set(check_names(features))
    dropped = _split(options["drop"], names)
    for role, given in roles.items():
        if given in dropped:
            raise ValueError(f"{file}: column {given!r} for {role} cannot be dropped")
    left = [name for name in names if name not in dropped]
    free = [name for name in left if name not in used]
    if roles["qid"] is None:  # query ids that are ignored are no features either
        taken = (roles["target"], options["sample_weight"])
        dropped += [n for n in free if n.lower() in ROLE_NAMES["qid"] and n not in taken]
    need = options["need"]
    found = {role: _role(file, role, given, free, left, need) for role, given in roles.items()}
    others = {"features": features, "drop": dropped or None}
    return {**found, **others, "sample_weight": options["sample_weight"]}


def _split(given: Any, names: Sequence[str]) -> list[str]:
    """Names of columns, with ``"a,b"`` taken as two of them unless a column is called so."""
    known = set(names)
    parts = [[name] if name in known else [one.strip() for one in name.split(",")]
             for name in ([] if given is None else check_names(given, "drop"))]  # fmt: skip
    return list(dict.fromkeys(one for some in parts for one in some if one))


def _role(
    file: str, role: str, given: Any, free: list[str], names: list[str], need: Sequence[str]
) -> str | None:
    if given != "auto":
        if isinstance(given, str) and given not in names:
            raise ValueError(f"{file}: {missing_column(role, given, names)}")
        if isinstance(given, str) and given not in free:
            raise ValueError(f"{file}: column {given!r} for {role} is also one of the features")
        return given
    known = [name for name in free if name.lower() in ROLE_NAMES[role]]
    if len(known) == 1 or (not known and role not in need):
        return known[0] if known else None
    what = {"target": "labels", "qid": "query ids"}[role]
    if known:
        which = " and ".join(map(repr, known))
        raise ValueError(f"{file}: {which} could both be the column of {what}; name it in {role}=")
    one = ", or pass qid=None if all rows are one ranking" if role == "qid" else ""
    raise ValueError(
        f"{file}: no column is called {', '.join(ROLE_NAMES[role])}: name the column of {what} in "
        f"{role}={one}; the columns are {listed(names)}"
    )
