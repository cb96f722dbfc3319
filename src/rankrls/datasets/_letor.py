"""Readers of LETOR files: the whole file at once, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._calls import warn
from rankrls._streams import PathOrFile, name_of
from rankrls._validation import check_integer, check_option
from rankrls.datasets._assemble import Layout, QueryIds, to_bunch
from rankrls.datasets._missing import check_missing
from rankrls.datasets._parse import MAX_FEATURES, ParsedRows, Parser, show
from rankrls.datasets._source import blocks, require_loadable, rewindable

__all__ = ["iter_letor", "letor_width", "load_letor"]

#: Above this number of features, warn if the largest id is so many times the second largest.
_MANY_FEATURES, _FAR = 100_000, 1000


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
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    sparse : bool or "auto", default="auto"
        Whether ``data`` is sparse. ``"auto"`` gives a dense array if at least a quarter of its
        cells are written in the file (zeros that are written count), and a sparse one otherwise.
        ``False`` is refused if the array would take over 1 GiB and less than a thousandth of it
        is written.
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
            Query ids: integers if all of them are (within 64 bits, and no two of them the same
            integer written differently), otherwise strings, in an array of objects if some are
            so long that this takes less memory. None if the file has no query ids.
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
    parser, layout = _start(path, n_features, dtype, sparse, zero_based, beyond, missing)
    parts: list[ParsedRows] = []
    n_bytes = 0
    for rows in parser.parse(blocks(path)):
        parts.append(rows)
        n_bytes += rows.n_bytes
        require_loadable(f"{parser.name}:{rows.lines[-1]}", n_bytes, "iter_letor")
    if not parts:
        raise ValueError(f"{parser.name}: no data: the file is empty, or has only comments")
    rows = ParsedRows.concatenate(parts)
    parts.clear()
    n_columns = _width(rows, parser) if n_features is None else n_features
    return to_bunch(rows, QueryIds(parser.name), layout, n_columns)


def iter_letor(
    path: PathOrFile,
    *,
    rows: int = 100_000,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    sparse: bool | str = "auto",
    zero_based: bool = False,
    beyond: str = "error",
    missing: str = "error",
    by_query: bool = True,
) -> Iterator[Bunch]:
    r"""Read a LETOR file in batches of whole queries, holding one batch in memory at a time.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_letor`. The rows of a query must be consecutive.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without query ids a batch has just this many rows.
    n_features : int, default=None
        Number of columns of every batch. By default it is found by a first, quick pass over the
        file, which looks at the last feature of every line only; a file whose features are not
        in increasing order, or that cannot be read twice, needs it given.
    dtype, sparse, zero_based, beyond, missing
        As in :func:`load_letor`; with ``sparse="auto"`` the first batch decides for all.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        ``data``, ``target``, ``qid`` and ``comments``, as in :func:`load_letor`. Whether query
        ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_letor`; also if a query id reappears after another query, naming
        the line. Only the ids of the queries already read are kept to notice this.

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
    rows = check_integer("rows", rows, least=1)
    parser, layout = _start(path, n_features, dtype, sparse, zero_based, beyond, missing)
    if n_features is None:
        n_features = _scan_width(path, parser)
        options = {"width_is_guessed": True, "missing": parser.missing}
        parser = Parser(parser.name, n_features, parser.zero_based, layout.dtype, **options)
    return _iter_batches(path, rows, parser, layout, int(n_features), by_query)


def _start(
    path: PathOrFile,
    n_features: Any,
    dtype: DTypeLike,
    sparse: bool | str,
    zero_based: Any,
    beyond: str,
    missing: str,
) -> tuple[Parser, Layout]:
    """Check the arguments that both readers have."""
    if n_features is not None and check_integer("n_features", n_features, least=1) > MAX_FEATURES:
        raise ValueError(f"n_features must be at most {MAX_FEATURES}; got {n_features!r}")
    if not isinstance(zero_based, bool | np.bool_):
        raise ValueError(f"zero_based must be True or False; got {zero_based!r}")
    check_option("beyond", beyond, ("error", "drop"))
    layout = Layout(dtype, sparse)
    options = {"drop": beyond == "drop", "missing": check_missing(missing)}
    return Parser(name_of(path), n_features, bool(zero_based), layout.dtype, **options), layout


def letor_width(path: PathOrFile, zero_based: bool = False) -> int:
    """Number of columns of a file, from the last feature of every line."""
    return _scan_width(path, Parser(name_of(path), None, zero_based, np.dtype(np.float64)))


def _scan_width(path: PathOrFile, parser: Parser) -> int:
    """Return the number of columns, from the last feature of every line."""
    if not rewindable(path):
        raise ValueError(f"{parser.name}: n_features is needed to iterate over a stream")
    start = None if not hasattr(path, "tell") else path.tell()
    largest = second = line = 0
    for first_line, block in blocks(path):
        for number, id_ in _last_ids(first_line, block):
            if id_ > largest:
                largest, second, line = id_, largest, number
            elif second < id_ < largest:
                second = id_
    if start is not None and hasattr(path, "seek"):
        path.seek(start)
    width = max(largest + 1 - parser.first_id, 1)
    if width > MAX_FEATURES:
        return MAX_FEATURES  # the parser refuses this line
    if width > _MANY_FEATURES:
        _check_largest(parser.name, line, largest, second, width)
    return width


def _width(rows: ParsedRows, parser: Parser) -> int:
    """Return the number of columns, from all features."""
    largest = int(rows.columns.max(initial=-1))
    if largest >= _MANY_FEATURES:
        row = np.searchsorted(np.cumsum(rows.counts), np.argmax(rows.columns), side="right")
        second = int(rows.columns.max(initial=-1, where=rows.columns < largest))
        ids = largest + parser.first_id, second + parser.first_id
        _check_largest(parser.name, rows.lines[row], *ids, largest + 1)
    return largest + 1


def _check_largest(name: str, line: int, largest: int, second: int, width: int) -> None:
    """Refuse a width that does not fit into memory; warn of one that is due to a single id."""
    found = f"{name}:{line}: feature id {largest} is the largest (the next one is {second})"
    remedy = (
        f"if it is no mistake, pass n_features={width}, or leave such features out by "
        "beyond='drop' and a smaller n_features"
    )
    if not _resources.fits_features(width):
        gib = width * 8 * _resources.VECTORS / 2**30
        raise ValueError(
            f"{found}, and a model of so many features needs {gib:.1f} GiB of memory or more; "
            f"{remedy}"
        )
    if largest > _FAR * max(second, 1):
        warn(f"{found}, and all {width:,} features take memory; {remedy}")


def _last_ids(first_line: int, block: bytes) -> Iterator[tuple[int, int]]:
    """Yield line and last feature id of the lines, without cutting them out.

    What is malformed here is reported by the parser, in the second pass.
    """
    start, length, line = 0, len(block), first_line
    while start < length:
        end = block.find(b"\n", start)
        end = length if end < 0 else end
        comment = block.find(b"#", start, end)
        colon = block.rfind(b":", start, end if comment < 0 else comment)
        if colon > start:
            words = block[max(start, colon - 11) : colon].rsplit(None, 1)
            if words and len(words[-1]) <= 10 and words[-1].isdigit():
                yield line, int(words[-1])
        start = end + 1
        line += 1


def _iter_batches(
    path: PathOrFile,
    n_rows: int,
    parser: Parser,
    layout: Layout,
    n_columns: int,
    by_query: bool,
) -> Iterator[Bunch]:
    qids = QueryIds(parser.name)
    seen: set[bytes] = set()
    pending: list[ParsedRows] = []
    n_pending = n_bytes = 0
    borders: list[int] = []  # where, in the pending rows, a batch may end
    last: bytes | None = None
    any_rows = False
    for part in parser.parse(blocks(path)):
        any_rows = True
        for i, query in enumerate((part.qid or ()) if by_query else ()):
            if query != last:
                if query in seen:
                    raise ValueError(
                        f"{parser.name}:{part.lines[i]}: query {show(query)} comes back after "
                        "another query; sort the file by query, or use load_letor, which takes "
                        "any order"
                    )
                seen.add(query)
                last = query
                borders.append(n_pending + i)
        if part.qid is None or not by_query:
            borders += range(n_pending, n_pending + len(part))
        pending.append(part)
        n_pending += len(part)
        n_bytes += part.n_bytes
        require_loadable(f"{parser.name}:{part.lines[-1]}", n_bytes, "by_query=False")
        if n_pending <= n_rows or borders[-1] == 0:
            continue
        ready = ParsedRows.concatenate(pending)
        start = 0
        for stop in _cuts(borders, n_pending, n_rows):
            yield to_bunch(ready.slice(start, stop), qids, layout, n_columns)
            start = stop
        pending = [ready.slice(start, n_pending)]
        n_bytes = pending[0].n_bytes
        borders = [border - start for border in borders if border >= start]
        n_pending -= start
    if not any_rows:
        raise ValueError(f"{parser.name}: no data: the file is empty, or has only comments")
    ready = ParsedRows.concatenate(pending)
    start = 0
    for stop in [*_cuts(borders, n_pending, n_rows), n_pending]:
        yield to_bunch(ready.slice(start, stop), qids, layout, n_columns)
        start = stop


def _cuts(borders: list[int], n_pending: int, n_rows: int) -> Iterator[int]:
    """Yield the ends of the batches that are certainly full."""
    start = 0
    for border, after in zip(borders, [*borders[1:], None], strict=True):
        # The query that begins at `border` ends at `after`, or has not ended yet.
        too_many = (n_pending if after is None else after) - start > n_rows
        if border > start and too_many:
            yield border
            start = border
