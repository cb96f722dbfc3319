"""Rankings from files of any kind: what is in a file, and which columns are what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls._frames import QUERY_NAMES, RawTable
from rankrls._streams import PathOrFile, name_of
from rankrls._validation import check_integer, check_option
from rankrls.datasets._arrow import find_files, open_source
from rankrls.datasets._columns import check_names, listed, missing_column
from rankrls.datasets._csv_source import CsvColumns, CsvSource
from rankrls.datasets._letor import iter_letor, load_letor
from rankrls.datasets._parquet import iter_parquet
from rankrls.datasets._query_batches import check_dtype, iter_batches
from rankrls.datasets._query_sizes import QuerySizes
from rankrls.datasets._several_files import iterates_several, loads_several
from rankrls.datasets._source import require_loadable
from rankrls.datasets.formats import FORMATS, sniff

__all__ = ["iter_ranking", "load_ranking"]

#: Names that a column of labels or query ids is looked for by, in any case.
NAMES = {
    "target": ("label", "relevance", "rel", "grade", "target", "y"),
    "qid": QUERY_NAMES,
}


@loads_several
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
    text = _check_text(text)
    kind, file = _open(path, format)  # type: ignore[arg-type]
    roles = {"target": target, "qid": qid}
    others = {"features": features, "drop": drop, "sample_weight": sample_weight}
    if kind != "letor" and group not in ("auto", None):
        raise ValueError(
            f"{name_of(file)}: group={group!r} is for LETOR text; a table has a column of query ids"
        )
    if kind == "letor":
        _refuse_columns(file, {**roles, **others})
        sizes = None if qid is None else QuerySizes.of(file, group)
        letor = partial(load_letor, n_features=n_features, dtype=dtype, sparse=sparse)
        bunch = letor(file, zero_based=zero_based, beyond=beyond, missing=missing)
        if sizes is not None:
            bunch = sizes.whole(bunch)
        return _from_letor(bunch, name_of(file), qid, need)
    if kind == "csv":
        source = CsvSource(file, header, delimiter)
        found = _find_roles(source.file, source.names, roles, others, need)
        columns = CsvColumns(source, **found, dtype=check_dtype(dtype), missing=missing, text=text)
        chunks = columns.find_text() if text == "auto" else columns.chunks()
        bunch = next(iter_batches(chunks, columns, np.inf, by_query=False, name=source.file))
        return _finish(bunch, kind, found)
    found = _parquet_roles(file, roles, others, need)
    options = {"by_query": False, "missing": missing, "text": text, "dtype": dtype, **found}
    batches, n_bytes = [], 0
    for batch in iter_parquet(file, rows=100_000, **options):
        batches.append(batch)
        n_bytes += batch.data.nbytes
        require_loadable(name_of(file), n_bytes, "iter_ranking")
    return _finish(_joined(batches), kind, found)


@iterates_several
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
    text: Any = None,
    need: Sequence[str] = ("target", "qid"),
    group: Any = "auto",
) -> Iterator[Bunch]:
    r"""Read rows to rank in batches of whole queries, one batch in memory at a time.

    Parameters
    ----------
    path : str, path-like or binary file, or a list of them
        As in :func:`load_ranking`. The rows of a query must be consecutive and in one file.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without query ids a batch has just this many rows.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.
    format, target, qid, features, drop, sample_weight, dtype, header, delimiter, missing, need
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
    rows = check_integer("rows", rows, least=1)
    text = _check_text(text)
    kind, file = _open(path, format)  # type: ignore[arg-type]
    roles = {"target": target, "qid": qid}
    others = {"features": features, "drop": drop, "sample_weight": sample_weight}
    if kind != "letor" and group not in ("auto", None):
        raise ValueError(
            f"{name_of(file)}: group={group!r} is for LETOR text; a table has a column of query ids"
        )
    if kind == "letor":
        _refuse_columns(file, {**roles, **others})
        sizes = None if qid is None else QuerySizes.of(file, group)
        letor = partial(iter_letor, n_features=n_features, dtype=dtype, sparse=sparse, rows=rows)
        whole = by_query and qid is not None and sizes is None
        batches = letor(file, zero_based=zero_based, beyond=beyond, missing=missing, by_query=whole)
        if sizes is not None:
            batches = sizes.batches(batches, rows, by_query)
        return (_from_letor(batch, name_of(file), qid, need) for batch in batches)
    if kind == "csv":
        source = CsvSource(file, header, delimiter)
        found = _find_roles(source.file, source.names, roles, others, need)
        if text == "auto":
            raise ValueError(
                f"{source.file}: text='auto' looks at all rows of a CSV file: name the columns of "
                "text, or use load_ranking"
            )
        columns = CsvColumns(source, **found, dtype=check_dtype(dtype), missing=missing, text=text)
        batches = iter_batches(columns.chunks(), columns, rows, by_query=by_query, name=source.file)
        return (_finish(batch, kind, found) for batch in batches)
    found = _parquet_roles(file, roles, others, need)
    batches = iter_parquet(
        file, rows=rows, by_query=by_query, missing=missing, text=text, dtype=dtype, **found
    )
    return (_finish(batch, kind, found) for batch in batches)


def _open(path: PathOrFile, format: str) -> tuple[str, Any]:
    """The format of a file, and the file to read on with."""
    check_option("format", format, ("auto", *FORMATS))
    return sniff(path) if format == "auto" else (format, path)


def _check_text(text: Any) -> Any:
    """None, "auto" or names of columns."""
    return text if text is None or text == "auto" else check_names(text, "text")


def _from_letor(bunch: Bunch, name: str, qid: Any, need: Sequence[str]) -> Bunch:
    if qid is None:
        bunch.qid = None
    elif bunch.qid is None and "qid" in need:
        raise ValueError(
            f"{name}: the lines have no query ids (label qid:7 1:0.5 …), and no file {name}.query "
            "has sizes of queries; pass qid=None if all rows are one ranking"
        )
    bunch.update(
        sample_weight=None, feature_names=None, format="letor", target_name=None, qid_name=None
    )
    return bunch


def _finish(bunch: Bunch, kind: str, found: dict[str, Any]) -> Bunch:
    bunch.update(comments=None, format=kind, target_name=found["target"], qid_name=found["qid"])
    return bunch


def _refuse_columns(file: Any, named: dict[str, Any]) -> None:
    for role, name in named.items():
        if name not in ("auto", None):
            raise ValueError(
                f"{name_of(file)}: this is LETOR text, which has no columns by name: "
                f"{role}={name!r} is for CSV and Parquet files"
            )


def _parquet_roles(
    file: Any, roles: dict[str, Any], others: dict[str, Any], need: Sequence[str]
) -> dict[str, Any]:
    if hasattr(file, "read"):
        raise ValueError(f"{name_of(file)}: Parquet and Arrow files are opened by name")
    first = find_files(file)[0]
    return _find_roles(first, open_source(first).names, roles, others, need)


def _find_roles(
    file: str,
    names: list[str],
    roles: dict[str, Any],
    others: dict[str, Any],
    need: Sequence[str],
) -> dict[str, Any]:
    """All columns by role; those that are features or dropped are not looked at for labels."""
    used = {what: set() if others[what] is None else set(check_names(others[what], what))
            for what in ("features", "drop")}  # fmt: skip
    dropped = _split(others["drop"], names)
    others, used["drop"] = others | {"drop": dropped or None}, set(dropped)
    for role, given in roles.items():
        if given in used["drop"]:
            raise ValueError(f"{file}: column {given!r} for {role} cannot be dropped")
    left = [name for name in names if name not in used["drop"]]
    free = [name for name in left if name not in used["features"]]
    if roles["qid"] is None:  # query ids that are ignored are no features either
        taken = (roles["target"], others["sample_weight"])
        ignored = [n for n in free if n.lower() in NAMES["qid"] and n not in taken]
        others["drop"] = [*dropped, *ignored] or None
    found = {role: _role(file, role, given, free, left, need) for role, given in roles.items()}
    return {**found, **others}


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
    known = [name for name in free if name.lower() in NAMES[role]]
    if len(known) == 1 or (not known and role not in need):
        return known[0] if known else None
    what = {"target": "labels", "qid": "query ids"}[role]
    if known:
        which = " and ".join(map(repr, known))
        raise ValueError(f"{file}: {which} could both be the column of {what}; name it in {role}=")
    one = ", or pass qid=None if all rows are one ranking" if role == "qid" else ""
    raise ValueError(
        f"{file}: no column is called {', '.join(NAMES[role])}: name the column of {what} in "
        f"{role}={one}; the columns are {listed(names)}"
    )


def _joined(batches: list[Bunch]) -> Bunch:
    """All batches as one."""
    if len(batches) == 1:
        return batches[0]
    joined = Bunch(feature_names=batches[0].feature_names)
    for name in ("data", "target", "qid", "sample_weight"):
        parts = [batch[name] for batch in batches]
        if isinstance(parts[0], RawTable):
            joined[name] = RawTable.concatenate(parts)
        else:
            joined[name] = None if parts[0] is None else np.concatenate(parts)
    return joined
