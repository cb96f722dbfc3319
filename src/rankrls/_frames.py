"""Checks of data frames: names of rows and columns, dates, ids, and scales.

Rows and columns of pandas data frames are aligned by name, or an error is raised. Arrays, sparse
matrices and polars frames have no row names, and neither has a pandas frame with the default
`RangeIndex`. Dates raise an error. Ids and unequal scales are warnings of fits; the report and the
command line use the same checks with their own advice.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._calls import warn
from rankrls._validation import refuse_lazy, show
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

Array = NDArray[Any]

#: Names of columns that are recognised as query ids, in upper or lower case.
QUERY_NAMES = ("qid", "query_id", "queryid", "query-id", "query")


# -- tables -----------------------------------------------------------------------------------


def _pandas(caller: str) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(f"{caller} needs pandas: pip install pandas") from error
    return pd


def data_frame(columns: Mapping[str, Any], caller: str = "to_frame") -> Any:
    """Make a pandas data frame of columns; the error without pandas names the ``caller``."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    return _pandas(caller).DataFrame(arrays)


def table_frame(values: Array, rows: Array, columns: Array) -> Any:
    """Make a pandas data frame of values (n, m) with names of its rows and columns."""
    pd = _pandas("a table with names")
    return pd.DataFrame(values, index=pd.Index(rows), columns=pd.Index(columns))


def without_arrow(data: Any) -> Any:
    """A pyarrow table or record batch as a pandas data frame; other data as they are."""
    if not (type(data).__module__.startswith("pyarrow") and hasattr(data, "to_pandas")):
        return data
    _pandas("a pyarrow table")
    return data.to_pandas()


def with_columns(X: Any, names: Sequence[str]) -> Any:
    """Columns of a data frame of pandas or polars by name; missing values for those it lacks."""
    frame = nw.from_native(X, eager_only=True)
    lacking = [name for name in names if name not in frame.columns]
    missing = [nw.lit(None, nw.Float64).alias(name) for name in lacking]
    return frame.with_columns(*missing).select(*names).to_native()


def named_frame(numbers: Array, names: Sequence[str], text: Mapping[str, Array]) -> Any:
    """Make a pandas data frame of numbers (n, m), in which some columns are replaced by text."""
    pd = _pandas("a table with text or names")
    frame = pd.DataFrame(numbers, columns=list(names), copy=False)
    for name, words in text.items():
        frame[name] = pd.Series(words, dtype=object)
    return frame


def text_columns(X: Any) -> list[str]:
    """Names of the columns of text of a pandas data frame; none of an array."""
    return [name for name in getattr(X, "columns", ()) if X[name].dtype == object]


def take_rows(X: Any, rows: Any) -> Any:
    """Rows of an array, a sparse matrix or a data frame."""
    if hasattr(X, "columns"):
        return nw.from_native(X, eager_only=True)[rows].to_native()
    return (X.tocsr() if sparse.issparse(X) else np.asarray(X))[rows]


# -- names of rows and columns ----------------------------------------------------------------


def row_names(data: Any) -> Any:
    """The index of a pandas frame or series, or None; of a list of frames the first that names."""
    if isinstance(data, list | tuple):
        found = (row_names(part) for part in data if column_names(part) is not None)
        return next(filter(names_anything, found), None)
    index = getattr(data, "index", None)
    return index if hasattr(index, "get_indexer") else None


def column_names(data: Any) -> Any:
    """The columns of a pandas frame as an index, or None."""
    columns = getattr(data, "columns", None)
    return columns if hasattr(columns, "get_indexer") else None


def names_anything(names: Any) -> bool:
    """Whether an index has names, not only row numbers; a part of a frame keeps those it had."""
    if names is None or type(names).__name__ != "RangeIndex":
        return names is not None
    return (names.start, names.step) != (0, 1)


def kept_names(names: Any) -> Array | None:
    """Names of objects that a model can keep: texts or integers, each once; otherwise None."""
    if not names_anything(names) or not names.is_unique:
        return None
    if getattr(names.dtype, "kind", "") in "iu":
        return np.asarray(names.to_numpy(), dtype=np.int64)
    texts = np.array(names.tolist(), dtype=object)
    whole = texts.ndim == 1 and all(isinstance(name, str) for name in texts)
    return texts if whole else None


def shown_names(names: Any) -> str:
    """Some names for an error message."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names[:3]]
    return ", ".join(map(repr, plain)) + ", …" * (len(names) > 3)


def _permutation(names: Any, wanted: Any) -> Array | None:
    """Positions of ``wanted`` in ``names`` if one is a permutation of the other, or None."""
    if len(names) != len(wanted) or not (names.is_unique and wanted.is_unique):
        return None
    try:
        order = np.asarray(names.get_indexer(wanted))
    except (TypeError, ValueError):  # labels that cannot be compared
        return None
    return order if (order >= 0).all() else None


def in_order(
    data: Any, axis: int, wanted: Any, of: str, like: str, advice: str | None, refuse: str = ""
) -> Any:
    """Return a frame with its rows or columns in the order of the names ``wanted``, or None.

    Other names are an error with ``advice``; without, they are not compared. With ``refuse``, the
    advice for names in another order, these are an error, too. A default index has no names.
    """
    names = column_names(data) if axis else row_names(data)
    if names is None or wanted is None or names.equals(wanted):
        return data
    what, order = f"the {('rows', 'columns')[axis]} of {of}", _permutation(names, wanted)
    named = names_anything(names) and names_anything(wanted)
    if order is not None and not named:
        warn(
            f"{what} have the same labels as {like} in another order. They are matched by "
            "position, because one of the two is a default index, which may only be row numbers. "
            f"To match them by label, {refuse or 'put one in the order of the other'}; to silence "
            "this warning, use reset_index(drop=True) or to_numpy()"
        )
    if order is not None and named and refuse:
        where = int(np.argmax(np.asarray(names != wanted)))
        here, there = (shown_names(index[where : where + 1]) for index in (names, wanted))
        raise ValueError(
            f"{what} have the names of {like} in another order (number {where} is {here}, not "
            f"{there}): {refuse}"
        )
    if order is not None and named:
        return data.take(order, axis=axis)
    if not named or advice is None:
        return data
    parts = []
    for here, there, of in ((names, wanted, what), (wanted, names, like)):
        only, twice = here.difference(there, sort=False), here[here.duplicated()].unique()
        parts += [f"{shown_names(only)} only among {of}"] * bool(len(only))
        parts += [f"{shown_names(twice)} more than once among {of}"] * bool(len(twice))
    if names.is_unique and sorted(map(str, names)) == sorted(map(str, wanted)):
        advice = (
            "They are written alike, but of different types (texts and numbers?): convert one, as "
            "by index.astype(str)"
        )
    raise ValueError(f"{what} and {like} have different names: {', '.join(parts)}. {advice}")


def square_in_order(K: Any, name: str = "X", *, refuse: bool = False) -> Any:
    """Return a precomputed kernel matrix with its columns in the order of its rows.

    ``refuse``: raise if they are not; the caller keeps the names in the order that they have.
    """
    advice = (
        "The rows and columns of a kernel matrix must be the same objects (to ignore the names, "
        f"pass {name}.to_numpy())"
    )
    remedy = f"pass {name}[{name}.index]" if refuse else ""
    return in_order(K, 1, row_names(K), name, f"the rows of {name}", advice, remedy)


def columns_in_order(K: Any, known: Any, name: str = "X", *, refuse: bool = False) -> Any:
    """Return kernel values with columns in the order of the training objects ``known``, or None."""
    if column_names(K) is None or known is None:
        return K
    wanted = _pandas("a table with names").Index(known)
    advice = f"{name} must have one column of kernel values for each training object"
    remedy = "select them in the order of fit" if refuse else ""
    return in_order(K, 1, wanted, name, "the training objects", advice, remedy)


def rows_in_order(X: Any, known: Any, name: str, like: str) -> Any:
    """Return a frame with its rows in the order of the names ``known``."""
    if row_names(X) is None:
        return X
    advice = f"Pass {name} with an index of the same names, or {name}.to_numpy()"
    return in_order(X, 0, _pandas("a table with names").Index(known), name, like, advice)


def check_basis_names(K: Any, basis: Any) -> None:
    """Raise unless column j of kernel values (m, b) has the name of the row ``basis[j]``."""
    rows, numbers = row_names(K), np.asarray([] if basis is None else basis)
    fits = rows is not None and numbers.ndim == 1 and numbers.dtype.kind in "iu"
    if fits and 0 <= numbers.min() <= numbers.max() < len(rows):  # otherwise an error elsewhere
        advice = "set basis=X.index.get_indexer(X.columns), or pass X.to_numpy()"
        in_order(K, 1, rows[numbers], "X", "the rows basis of X", advice, advice)


def labels_in_order(Y: Any, rows: Any, columns: Any, *, one_domain: bool = False) -> Any:
    """Return labels with names, a frame or sparse, in the order of the names of their objects.

    ``one_domain``: both are the same objects; if these have no names, the rows of Y name them.
    """
    if hasattr(Y, "row_names") and hasattr(Y, "column_names"):
        return _edges_in_order(Y, rows, columns)
    if column_names(Y) is None:
        return Y
    if one_domain and not names_anything(rows):
        in_order(Y, 0, rows, "Y", "the rows of X", None)
        rows = columns = row_names(Y)
    for axis, wanted in enumerate((rows, columns)):
        of = "X" if axis == 0 or one_domain else "Z"
        advice = (
            f"Pass Y.reindex({('index', 'columns')[axis]}={of}.index), which fills in NaN for "
            "missing labels, or Y.to_numpy() if the order is right"
        )
        Y = in_order(Y, axis, wanted, "Y", f"the rows of {of}", advice)
    return Y


def _edges_in_order(Y: Any, rows: Any, columns: Any) -> Any:
    """Return sparse labels with names (of `load_relations`) in the order of the objects."""
    coords, shape = list(Y.coords), list(Y.shape)
    for axis, (names, wanted) in enumerate(((Y.row_names, rows), (Y.column_names, columns))):
        if not names_anything(wanted):
            continue
        place = wanted.get_indexer(names)[coords[axis]]
        if (place < 0).any():
            of, unknown = "XZ"[axis], names[coords[axis]][place < 0][0]
            raise ValueError(
                f"Y has labels of {str(unknown)!r}, which is not in the index of {of}: add "
                f"the object to {of}, or leave its labels out by load_relations("
                f"{('rows', 'columns')[axis]}={of}.index, unknown='drop')"
            )
        coords[axis], shape[axis] = place, len(wanted)
    return type(Y)((Y.data, tuple(coords)), shape=tuple(shape))


def scores_in_order(Y_score: Any, Y_true: Any) -> Any:
    """Return a frame of predicted scores with rows and columns in the order of the labels."""
    if column_names(Y_score) is None:
        return Y_score
    for axis, wanted in enumerate((row_names(Y_true), column_names(Y_true))):
        like = f"the {('rows', 'columns')[axis]} of Y_true"
        Y_score = in_order(Y_score, axis, wanted, "Y_score", like, "Select those that are in both")
    return Y_score


def check_same_rows(X: Any, of: str = "X", /, **arguments: Any) -> None:
    """Raise if rows of an argument have the names of the rows of X in another order."""
    if of == "X":
        for name, values in {"X": X, **arguments}.items():
            refuse_lazy(values, name)
    wanted: Any = None if type(X) is np.ndarray else row_names(X)
    for name, values in {} if wanted is None else arguments.items():
        in_order(values, 0, wanted, name, f"the rows of {of}", None, f"pass {name}.loc[{of}.index]")


# -- names of features ------------------------------------------------------------------------


def feature_names(X: Any) -> Array | None:
    """Names of the columns of a frame if all of them are text, as in scikit-learn."""
    columns = getattr(X, "columns", None)
    if columns is None or not len(columns):
        return None
    names = np.asarray(columns, dtype=object)
    return names if all(isinstance(name, str) for name in names) else None


def check_feature_names(names: Any, known: Any, of: str = "X") -> None:
    """Raise unless the columns have the names ``known``, in the same order; None is no names."""
    if names is None or known is None or np.array_equal(names, known):
        return
    missing = [name for name in known if name not in set(names)]
    unknown = [name for name in names if name not in set(known)]
    what = [f"{shown_names(unknown)} unseen before"] * bool(unknown)
    what += [f"{shown_names(missing)} missing"] * bool(missing)
    raise ValueError(
        f"the feature names of {of} should match those of the previous call: "
        + (", ".join(what) or "they must be in the same order")
        + " (select the columns by their names)"
    )


def refuse_equal_names(columns: Any, name: str = "X") -> None:
    """Raise if two of the columns of the frame ``name`` have the same name; None has no names."""
    if columns is None or getattr(columns, "is_unique", False):
        return
    twice = [label for label, count in Counter(columns).items() if count > 1]
    if twice:
        raise ValueError(
            f"{name} has several columns called {shown_names(twice)}: rename them, or drop all but "
            "one"
        )


def required_features(estimator: Any) -> list[str] | None:
    """Names of the columns that a fitted model needs; None if it was fitted to none with names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return None
    first = first_step(estimator)
    kept: Sequence[int] = range(len(names))
    if hasattr(first, "_transformer_to_input_indices"):
        dropped = [name for name, part, _ in first.transformers_ if part == "drop"]
        places = first._transformer_to_input_indices
        parts = [columns for name, columns in places.items() if name not in dropped]
        kept = sorted({int(j) for columns in parts for j in columns})
    elif hasattr(first, "dropped_") and hasattr(first, "sources_"):
        kept = sorted(set(kept) - set(first.dropped_))
    return [str(names[j]) for j in kept]


def chooses_columns(estimator: Any) -> bool:
    """Whether a model selects columns of a table by their names, so that some may be missing."""
    names = getattr(estimator, "feature_names_in_", ())
    return hasattr(first_step(estimator), "_transformer_to_input_indices") or (
        len(required_features(estimator) or ()) < len(names)
    )


def first_step(estimator: Any) -> Any:
    """The first step of a pipeline, also of one in a search; of an ``AutoRanker`` its encoder."""
    while hasattr(estimator, "best_estimator_") or hasattr(estimator, "steps"):
        best = getattr(estimator, "best_estimator_", None)
        estimator = estimator.steps[0][1] if best is None else best
    return getattr(estimator, "_table", estimator)


# -- dates, text and missing values -----------------------------------------------------------

_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


def refuse_dates(X: Any, name: str = "X") -> None:
    """Raise if X has dates, times or durations, which would be converted to counts of a unit."""
    found = [f"{label} ({kind})" for label, kind in _dates(X)]
    if found:
        what = "a column" if len(found) == 1 else f"{len(found)} columns"
        raise ValueError(
            f"{name} has {what} of dates or times: {', '.join(found[:5])}{', …' * (len(found) > 5)}"
            ". Drop them, or convert them to a meaningful number such as the age in days"
        )


def _dates(X: Any) -> list[tuple[str, str]]:
    """Label and type of every column that holds dates, times or durations."""
    if isinstance(X, np.ndarray):
        if X.dtype.kind in "mM":
            return [("all columns", str(X.dtype))]
        columns: Any = X.T if X.dtype.kind == "O" and X.ndim == 2 else []
        return [(f"number {j}", date) for j, v in enumerate(columns) if (date := _date_type(v))]
    dtypes = X.dtypes if hasattr(X, "columns") and hasattr(X, "dtypes") else "?"
    if all(getattr(kind, "kind", "other") in "fiub" for kind in set(dtypes)):
        return []  # numbers only, which is quickly seen
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return []
    found = []
    for j, (label, kind) in enumerate(frame.collect_schema().items()):
        date_type = str(kind) if kind.is_temporal() else None
        if kind in (nw.Object, nw.Unknown) and hasattr(X, "iloc"):  # dates as objects, periods
            date_type = _date_type(X.iloc[:, j])
        found += [(repr(label), date_type)] if date_type else []
    return found


def _date_type(values: Any) -> str | None:
    """The type of the first value that is a date, or a period of pandas."""
    dates = (v for v in values if isinstance(v, _DATES) or "Period" in str(type(v)))
    return next((type(value).__name__ for value in dates), None)


@contextmanager
def clear_errors(
    X: Any, name: str = "X", filled: str = "as in make_pipeline(SimpleImputer(), RankRLS())"
) -> Iterator[None]:
    """Check X for dates, and shorten errors of scikit-learn's checks to one line."""
    if not (type(X) is np.ndarray and X.dtype.kind in "fiub"):
        refuse_lazy(X, name)
        refuse_equal_names(column_names(X), name)
        refuse_dates(X, name)
    if type(X).__module__.startswith("polars") and not hasattr(X, "__dataframe__"):
        import sklearn

        if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
            raise ValueError(
                f"{name} is a polars {type(X).__name__}, whose column names scikit-learn "
                f"{sklearn.__version__} cannot read: install scikit-learn 1.9 or newer, or pass "
                f"{name}.to_pandas()"
            )
    try:
        yield
    except ValueError as error:
        columns = getattr(X, "columns", None)
        if "Reshape your data" in str(error) or "2-dimensional container" in str(error):
            got = f"1-D data of length {len(X)}" if np.ndim(X) == 1 else show(X)
            raise ValueError(
                f"{name} must be 2-D, one row of features for each item; got {got}. Reshape your "
                f"data: np.reshape({name}, (-1, 1)) if it is a single feature, (1, -1) if it is a "
                "single row"
            ) from None
        if "contains NaN" in str(error):
            raise ValueError(
                f"Input {name} contains NaN{_where_missing(X, columns)}: fill in missing values "
                f"first, {filled}"
            ) from None
        no_numbers = ("could not convert string", "setting an array element with a sequence")
        if columns is None or not any(text in str(error) for text in no_numbers):
            raise
        schema = nw.from_native(X, eager_only=True).schema.items()
        text = [name for name, kind in schema if not (kind.is_numeric() or kind == nw.Boolean)]
        shown = ", ".join(map(repr, text[:5])) + ", …" * (len(text) > 5)
        raise ValueError(
            f"{name} has columns that are not numbers: {shown} (drop or encode them; {error})"
        ) from error


def _where_missing(X: Any, columns: Any) -> str:
    """Position of the first missing value of a table as text; empty if it is not found."""
    try:
        if hasattr(X, "iloc"):  # pandas.NA is no number
            X = X.to_numpy(np.float64, na_value=np.nan)
        values = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
        rows, cols = np.nonzero(values != values)
    except (TypeError, ValueError):
        return ""
    row = int(rows.min())
    column = int(cols[rows == row].min())
    label = column if columns is None else repr(columns[column])
    return f" (first at row {row}, column {label}; {len(rows):,} in all)"


# -- ids --------------------------------------------------------------------------------------

#: Names of ids and positions, in lower case without separators, and last words of such names.
_ID_NAMES = {
    *("index", "row", "rownum", "rownumber", "rowindex", "linenumber", "url", "uri", "date"),
    *("unixtime", "unnamed0", "level0", "indexlevel0", "qid", "docid", "documentid", "itemid"),
    *("queryid", "userid", "productid", "rowid", "sampleid", "sessionid", "customerid", "pageid"),
}
_ID_ENDINGS = {"id", "ids", "uid", "guid", "uuid", "idx", "timestamp", "datetime", "docno", "pk"}
#: Words in names of features that may have a different value in each row without being ids.
_RANK_WORDS = {
    *("rank", "ranks", "ranking", "position", "pos", "order", "percentile"),
    *("year", "years", "month", "week", "day", "days", "hour", "age"),
}
#: Minimum number of rows to recognise an id by its values, and maximum number of columns that are
#: inspected completely; the others are excluded by a sample of so many rows.
_ID_ROWS, _ID_COLUMNS, _SAMPLE = 50, 64, 64
#: Number of repeated values expected by chance above which their absence indicates an id.
_REPEATS = 20


def columns_like_ids(X: Any, names: Any = None, codes: Any = None) -> list[int]:
    """Numbers of the columns that look like ids, row numbers or timestamps, ascending.

    A column with the name of an id is one if it has integers of at least 20 values. Another, of 50
    rows or more and beside other columns, is one if its integers are all different although n
    integers of this range R would repeat n²/2R ≥ 20 values by chance, or if they grow, or fall,
    from each row to the next over several queries. ``codes`` is the query of every row.
    """
    n_rows, n_features = X.shape
    if n_rows < 2:
        return []
    named: list[int] = []
    others: list[int] = []
    ranks = set()
    for j, name in enumerate(() if names is None else map(_words, names)):
        if name and ("".join(name) in _ID_NAMES or name[-1] in _ID_ENDINGS):
            named.append(j)
        elif not _RANK_WORDS.isdisjoint(name):
            ranks.add(j)
    if n_rows >= _ID_ROWS and n_features > 1:
        others = [j for j in _different_integers(X) if j not in named and j not in ranks]
    several = codes is not None and len(codes) > 0 and bool((codes != codes[0]).any())
    columns = named + others[:_ID_COLUMNS]
    chosen = X[:, columns] if not sparse.issparse(X) else sparse.csc_array(X[:, columns])
    found = []
    for k, j in enumerate(columns):
        values = chosen[:, [k]].toarray()[:, 0] if sparse.issparse(chosen) else chosen[:, k]
        if (values != np.rint(values)).any():
            continue
        ordered, steps = np.unique(values), np.diff(values)
        if j in named and len(ordered) >= min(n_rows, 20):
            found.append(j)
        elif j not in named and len(ordered) == n_rows:
            by_chance = n_rows * (n_rows - 1) / (2 * (float(ordered[-1]) - float(ordered[0]) + 1))
            rises = several and bool((steps > 0).all() or (steps < 0).all())
            found += [j] if rises or by_chance >= _REPEATS else []
    return sorted(found)


def _words(name: Any) -> list[str]:
    """Words of a name in any style: docId, doc_id, "Doc ID"."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", str(name))
    return re.sub(r"[^0-9A-Za-z]+", " ", separated).lower().split()


def _different_integers(X: Any) -> list[int]:
    """Columns with a different integer in each of a sample of rows."""
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(_SAMPLE, X.shape[0])).astype(np.int64))
    part, columns = X[rows], np.arange(X.shape[1])
    if sparse.issparse(part):  # different integers are zero at most once
        part = sparse.csc_array(part)
        columns = np.flatnonzero(np.diff(part.indptr) >= len(rows) - 1)
        part = part[:, columns].toarray()
    whole = (part == np.rint(part)).all(axis=0)
    ordered = np.sort(part[:, whole], axis=0)
    return columns[whole][(ordered[1:] != ordered[:-1]).all(axis=0)].tolist()


def named_columns(columns: Sequence[int], names: Sequence[Any] | None) -> str:
    """Names, or numbers, of the first five columns, for messages."""
    labels = [repr(names[j]) if names is not None else str(j) for j in columns]
    return ", ".join(labels[:5]) + f", … ({len(labels)} in all)" * (len(labels) > 5)


def id_text(
    columns: Sequence[int], names: Sequence[Any] | None = None, remedy: str | None = None
) -> str:
    """Warning text about columns that look like ids, with what to do; by default in Python."""
    shown, one = named_columns(columns, names), len(columns) == 1
    if remedy is None:
        listed = [str(names[j]) if names is not None else int(j) for j in columns]
        remedy = (
            f"X.drop(columns={listed})" if names is not None else f"np.delete(X, {listed}, axis=1)"
        )
        remedy = f"drop {'it' if one else 'them'}: {remedy}"
    what = f"column {shown} of X looks like an id" if one else f"columns {shown} of X look like ids"
    return (
        f"{what} or a position. What a model learns from such a column does not carry over to new "
        f"rows. If it is no feature, {remedy}"
    )


# -- scales -----------------------------------------------------------------------------------

#: Warn if the scales of columns differ by more than this factor.
MAX_RATIO = 1e3
#: Columns that are zero in more than this fraction of the rows are not compared: their scale shows
#: how rare a value is, and scaling them would inflate rare values.
_MAX_ZEROS = 0.9
#: Number of cells of X from which scales are estimated, and minimum number of rows.
_SCALE_CELLS, _SCALE_ROWS = 1 << 17, 256


class Scales(NamedTuple):
    """Two columns whose scales differ most: their numbers, and their scales."""

    small: int
    large: int
    low: float
    high: float


def unequal_scales(X: Any, codes: Any = None) -> Scales | None:
    """Columns with the smallest and the largest scale, if they differ by a factor above 1000.

    The scale of a column is its standard deviation within queries (``codes``; None is one
    ranking). Columns that vary within no query, and those of which nine in ten entries are zero
    (words, indicators of something rare), are left out. Large X is sampled by whole queries.
    """
    n_rows, n_features = X.shape
    if n_features < 2 or n_rows < 2:
        return None
    per_row = X.nnz // n_rows if sparse.issparse(X) else n_features
    most = max(_SCALE_CELLS // max(per_row, 1), _SCALE_ROWS)
    if codes is None:
        X, starts = X[:: max(1, n_rows // most)], np.zeros(1, dtype=np.int64)
    else:
        rows = np.flatnonzero(codes % -(-n_rows // most) == 0)  # a sample of whole queries
        rows = rows[:: max(1, len(rows) // most)]
        rows = rows[np.argsort(codes[rows], kind="stable")]
        X, starts = X[rows], np.flatnonzero(np.diff(codes[rows], prepend=-1))
    columns = np.arange(n_features)
    fewest = (1 - _MAX_ZEROS) * X.shape[0]
    if sparse.issparse(X):
        X = sparse.csc_array(X)
        columns = np.flatnonzero(np.diff(X.indptr) >= fewest)
        X = X[:, columns]
    scale = np.zeros(n_features)
    step = max(1, _SCALE_CELLS // X.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):  # fits refuse huge values themselves
        for first in range(0, len(columns), step):
            block = X[:, first : first + step]
            block = block.toarray() if sparse.issparse(block) else block
            enough = np.count_nonzero(block, axis=0) >= fewest
            scale[columns[first : first + step]] = np.where(enough, _scale(block, starts), 0.0)
    varies = np.flatnonzero((scale > 0) & np.isfinite(scale))
    if len(varies) < 2:
        return None
    small, large = varies[np.argmin(scale[varies])], varies[np.argmax(scale[varies])]
    if not scale[large] > MAX_RATIO * scale[small]:
        return None
    return Scales(int(small), int(large), float(scale[small]), float(scale[large]))


#: Means that differ by more than this many standard deviations, or spreads by this factor.
MAX_SHIFT, MAX_SPREAD = 5.0, 10.0


def shifted_columns(mean: Array, std: Array, new_mean: Array, new_std: Array) -> Array:
    """Whether columns that vary in both of two data sets have another mean or another spread."""
    with np.errstate(all="ignore"):
        shift, spread = np.abs(new_mean - mean) / std, new_std / std
        moved = (shift > MAX_SHIFT) | (spread > MAX_SPREAD)
        return (std > 0) & (moved | ((new_std > 0) & (spread < 1 / MAX_SPREAD)))


def _scale(X: Array, starts: Array) -> Array:
    """Standard deviations of columns around the means of groups of consecutive rows."""
    eps = np.finfo(np.result_type(X.dtype, np.float32)).eps
    X = np.asarray(X, dtype=np.float64)
    if len(starts) == 1:
        D = X - X[:1]  # exactly zero where nothing varies
        D -= D.mean(axis=0)
    else:
        sizes = np.diff(np.append(starts, len(X)))
        D = X - np.repeat(X[starts], sizes, axis=0)
        D -= np.repeat(np.add.reduceat(D, starts, axis=0) / sizes[:, None], sizes, axis=0)
    scatter, total = np.einsum("ij,ij->j", D, D), np.einsum("ij,ij->j", X, X)
    scatter[scatter <= (16 * eps) ** 2 * total] = 0.0  # rounding alone can leave this
    return np.sqrt(scatter / len(D))


def scale_text(
    scales: Scales, names: Sequence[Any] | None = None, remedy: str | None = None
) -> str:
    """Warning text about unequal scales, with one digit so that the folds of a search agree."""
    if remedy is None:
        remedy = (
            "scale them first, as in make_pipeline(StandardScaler(), RankRLS()) or with "
            "rankrls.preprocessing.QueryScaler"
        )
    low, high = (
        f"{value:.0e} (column {named_columns([j], names)})"
        for value, j in ((scales.low, scales.small), (scales.high, scales.large))
    )
    return (
        f"the features have very different scales: standard deviations within a query range from "
        f"{low} to {high}. alpha shrinks all weights equally, so features with a small scale are "
        f"penalised more: {remedy}"
    )


def warn_about_columns(
    X: Any, *, names: Sequence[Any] | None = None, codes: Any = None, scales: bool = True
) -> None:
    """Warn about columns that look like ids or, if ``scales``, have very different scales."""
    ids = columns_like_ids(X, names, codes)
    if ids:
        warn(id_text(ids, names), IdColumnWarning)
    found = unequal_scales(X, codes) if scales else None
    if found is not None:
        warn(scale_text(found, names), FeatureScaleWarning)
