"""Encoding of raw tables: numbers, booleans, categories, texts, vectors and missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import all_or_nothing, takes_queries, warn
from rankrls._frames import (
    RawTable,
    check_feature_names,
    clear_errors,
    columns_like_ids,
    feature_names,
    named_columns,
    refuse_dates,
    refuse_equal_names,
    without_arrow,
)
from rankrls._resources import require_features
from rankrls._validation import check_integer, encode_qid, is_missing, refuse_lazy
from rankrls.exceptions import IdColumnWarning
from rankrls.preprocessing._texts import MATCHES, TextModel, count_words

__all__ = ["TableEncoder"]

Array = NDArray[Any]

#: Kinds of parts; each part is a group of output columns made of one column, or of two.
NUMBER, MISSING, CATEGORY, TEXT, VECTOR, MATCH, COSINE, PRODUCT = range(8)

#: Block, cells, use and names of each kind; x and q are columns of the row and of the query.
KINDS = np.array(
    [
        ("number", "numeric", "number", "{x}"),
        ("number", "numeric", "indicator of missing values", "{x} missing"),
        ("category", "text", "category", "{x}={k}"),
        ("text", "text", "text", "{x} text[{k}]"),
        ("vector", "vectors", "vector", "{x}[{k}]"),
        ("number", "text", "compared with {q}", "{q} ~ {x} {k}"),
        ("number", "vectors", "compared with {q}", "{q} ~ {x} cosine"),
        ("vector", "vectors", "compared with {q}", "{q} ~ {x}[{k}]"),
    ],
    dtype=object,
)

#: Text with at most this many levels is a category for any number of rows.
FEW_LEVELS = 5

#: Text with more levels is a text if it has this many words on average.
FEWEST_WORDS = 1.5

#: Number of rows in which ids are looked for.
ID_ROWS = 200_000

#: Name of the levels that have no column of their own.
OTHER = "(other)"


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a raw table as numbers.

    - Numbers and booleans stay numbers. Missing values are replaced by the median of the training
      rows, and an indicator column is added.
    - Categories, which are texts with repeated values, are one-hot encoded. Rare levels and levels
      that were not seen in ``fit`` share a column.
    - Texts become components of their tf-idf vectors. Texts of queries are compared with the texts
      of the rows: cosine of the tf-idf vectors, and the share of the words of the query that are
      found, weighted by their idf and plain.
    - Vectors, which are lists of the same length, stay as they are. Vectors of queries are compared
      with vectors of the rows: cosine, and products of the entries.

    Constant columns are dropped. Columns that look like ids are dropped with an `IdColumnWarning`
    that names them. Date columns raise an error.

    Parameters
    ----------
    max_levels : int, default=200
        Maximum number of levels of a category that have a column of their own.
    drop_ids : bool, default=True
        Whether to drop columns that look like ids, row numbers or timestamps.
    query_columns : sequence of str or int, optional
        Names or indices of the columns with texts and vectors of queries. By default, these are the
        columns that are constant within queries, which needs ``qid``.

    Attributes
    ----------
    sources_ : ndarray of shape (n_columns,)
        Column of X from which each output column is computed.
    blocks_ : ndarray of shape (n_columns,)
        "number", "category", "text" or "vector" for each output column.
    dropped_ : list of int
        Columns of X that are dropped.
    query_columns_ : list of int
        Columns of X that hold texts or vectors of queries.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if all names are strings.

    Notes
    -----
    Labels are not used. Sparse matrices stay sparse; their columns are numbers, without missing
    values.

    Examples
    --------
    >>> import pandas as pd
    >>> from rankrls.preprocessing import TableEncoder
    >>> table = pd.DataFrame({"price": [3.0, None, 5.0], "shop": ["a", "b", "a"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['price', 'price missing', 'shop=a', 'shop=b']
    >>> encoder.transform(table)
    array([[3., 0., 1., 0.],
           [4., 1., 0., 1.],
           [5., 0., 1., 0.]])
    """

    #: Kind, column of X, column of the query (or -1) and number of output columns of each part.
    _parts: Array
    #: What a missing value is replaced by, for each output column.
    _fills: Array
    query_columns_: list[int]
    #: Levels of each category, by the number of its column.
    _levels: dict[str, list[str]]
    #: Models of columns of text, by their numbers.
    _texts: dict[str, TextModel]

    def __init__(
        self,
        max_levels: int = 200,
        *,
        drop_ids: bool = True,
        query_columns: Sequence[Any] | None = None,
    ) -> None:
        self.max_levels = max_levels
        self.drop_ids = drop_ids
        self.query_columns = query_columns

    @takes_queries
    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, qid: Any = None) -> TableEncoder:
        """Learn the kinds of columns, medians, levels and weights of words.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            A pyarrow table is converted to a pandas data frame.
        y : ignored
            Present for compatibility with pipelines.
        qid : array-like of shape (n_rows,), optional
            Query label of each row. It helps to distinguish ids from features within queries, and
            columns of queries from columns of rows.

        Returns
        -------
        self : TableEncoder
        """
        check_integer("max_levels", self.max_levels, least=1)
        refuse_lazy(X)
        refuse_dates(X)
        X = without_arrow(X)
        columns = self._read(X, reset=True)
        self._levels, self._texts, self.query_columns_ = {}, {}, []
        if sparse.issparse(columns):
            codes = None if qid is None else encode_qid(qid, columns.shape[0]).codes
            low, high = (
                np.asarray(v.todense()) for v in (columns.min(axis=0), columns.max(axis=0))
            )
            some = np.flatnonzero(low.ravel() < high.ravel())
            if self.drop_ids:
                some = self._without_ids(some, columns[:, some], feature_names(X), codes)
            made = [((NUMBER, source, -1, 1), np.zeros(1)) for source in some.tolist()]
        else:
            cells = {source: self._cells(source, values) for source, values in columns}
            codes = None if qid is None else encode_qid(qid, len(cells[0])).codes
            made = list(self._learn(cells, feature_names(X), codes))
            made.sort(key=lambda one: (one[0][1], one[0][2]))  # the order of the columns
        parts = np.array([part for part, _ in made], dtype=np.int64).reshape(-1, 4)
        if not len(parts):
            raise ValueError("no column of X is a usable feature: all are constant or ids")
        self._parts, self._fills = parts, np.concatenate([fill for _, fill in made])
        self.dropped_ = np.setdiff1d(np.arange(self.n_features_in_), parts[:, 1:3]).tolist()
        return self

    def transform(self, X: Any) -> Any:
        """Encode a table as numbers.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)

        Returns
        -------
        {ndarray, sparse array} of shape (n_rows, n_columns)
            The encoded table, float64 and finite.
        """
        check_is_fitted(self)
        encoded = self._encoded(X)
        return encoded.copy() if encoded is X else encoded

    def _encoded(self, X: Any) -> Any:
        """Return the result of `transform` before ``set_output`` is applied, which may be X."""
        refuse_dates(X)
        columns = self._read(without_arrow(X), reset=False)
        if sparse.issparse(columns):
            if (self._parts[:, 0] != NUMBER).any():
                raise ValueError(
                    "the encoder was fitted to a table with text or missing values; X must not be "
                    "sparse"
                )
            return sparse.csr_array(columns[:, self.sources_])
        used, cells = set(self._parts[:, 1:3].ravel().tolist()), dict[int, Any]()
        for source, values in columns:
            n_rows = len(values)
            if source in used:
                cells[source] = self._cells(source, values)
        plain = getattr(X, "dtype", None) == np.float64 and np.array_equal(
            self._parts[:, :2], [(NUMBER, j) for j in range(self.n_features_in_)]
        )
        if plain and not any(np.isnan(values).any() for values in cells.values()):
            return X  # large tables of numbers are not copied
        ends, counts = np.cumsum(self._parts[:, 3]), dict[int, Any]()
        encoded = np.empty((n_rows, ends[-1]))
        for part, end in zip(self._parts.tolist(), ends.tolist(), strict=True):
            fill = self._fills[end - part[3] : end]
            encoded[:, end - part[3] : end] = self._encode(part, fill, cells, counts)
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the output columns.

        Parameters
        ----------
        input_features : array-like of shape (n_features,), optional
            Names of the columns of X, if X had none in ``fit``.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        known = self._names()
        if input_features is not None and not hasattr(self, "feature_names_in_"):
            known = input_features
        names: list[str] = []
        for kind, source, query, width in self._parts.tolist():
            keys: Any = MATCHES if kind == MATCH else range(width)
            if kind == CATEGORY:
                keys = [*self._levels[str(source)], OTHER][:width]
            x, q = known[source], known[query]
            names += [KINDS[kind, 3].format(x=x, q=q, k=key) for key in keys]
        return np.array(names, dtype=object)

    def _names(self) -> list[str]:
        """Names of the columns of X, x0, x1, … if there are none."""
        known = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if known is None else list(known)

    @property
    def sources_(self) -> Array:
        """Column of X from which each output column is computed."""
        return np.repeat(self._parts[:, 1], self._parts[:, 3])

    @property
    def blocks_(self) -> Array:
        """Block of each output column."""
        return np.repeat(KINDS[self._parts[:, 0], 0], self._parts[:, 3])

    @property
    def columns_(self) -> dict[str, Array]:
        """Table of what was made of each column of X: its name, and what it is used as."""
        known = self._names()
        used: dict[int, dict[str, None]] = {j: {} for j in range(self.n_features_in_)}
        for kind, source, query, _ in self._parts.tolist():
            used[source][KINDS[kind, 2].format(q=known[query])] = None
            if query >= 0:
                used[query][f"query of {known[source]}"] = None
        shown = [", ".join(one) or "dropped" for one in used.values()]
        return {"column": np.array(known, object), "used as": np.array(shown, object)}

    @property
    def text_columns(self) -> list[int]:
        """Columns of X that can be non-numeric: text columns and dropped columns."""
        of_text = self._parts[KINDS[self._parts[:, 0], 1] == "text", 1:3]
        return sorted({*self.dropped_, *of_text.ravel().tolist()} - {-1})

    # -- reading

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Read the columns of X as (index, values); a sparse X is returned as a matrix."""
        if sparse.issparse(X):
            with clear_errors(X):
                return validate_data(self, X, reset=reset, accept_sparse="csc", dtype=np.float64)
        if not hasattr(X, "columns"):
            X = np.asarray(X)
            if X.ndim != 2:
                raise ValueError(
                    f"Expected 2D array, got {X.ndim}D array instead. Reshape your data: "
                    "np.reshape(X, (-1, 1)) if it is a single feature, (1, -1) if it is one row"
                )
            if X.dtype.kind == "c":
                raise ValueError("Complex data not supported: X must hold numbers or text")
        n_rows, n_features = X.shape
        if not n_features:
            raise ValueError(
                f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is required."
            )
        if reset and n_rows < 2:
            raise ValueError(f"n_samples = {n_rows}: at least 2 rows are needed to rank")
        if isinstance(X, RawTable):
            self._check_names(X, reset)
        else:
            refuse_equal_names(getattr(X, "columns", None))
            validate_data(self, X, reset=reset, skip_check_array=True)
        require_features(n_features)
        return _columns(X)

    def _check_names(self, X: RawTable, reset: bool) -> None:
        """Check and store feature names, as `validate_data` does for data frames."""
        if reset:
            self.n_features_in_, self.feature_names_in_ = X.shape[1], feature_names(X)
            return
        check_feature_names(feature_names(X), getattr(self, "feature_names_in_", None))
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )

    def _cells(self, source: int, values: Any) -> Array:
        """Read a column as numbers (float), texts (object) or vectors (2-D)."""
        numbers = _as_numbers(values)
        if numbers is None:
            cells = _as_array(values)
            first = next((v for v in cells if not _is_missing(v)), None)
            if cells.ndim == 2 or isinstance(first, list | tuple | np.ndarray):
                return self._vectors(source, cells)
            if cells.dtype.kind == "c" or any(isinstance(v, _COMPLEX) for v in cells):
                told = self._told([source])
                raise ValueError(f"Complex data not supported: {told} of X holds complex numbers")
            return _as_text(cells)
        if np.isinf(numbers).any():
            row = int(np.flatnonzero(np.isinf(numbers).reshape(len(numbers), -1).any(axis=1))[0])
            raise ValueError(
                f"Input X contains infinity (first at row {row}, {self._told([source])}): replace "
                "it by a finite number, or by NaN for a missing value"
            )
        return numbers

    def _vectors(self, source: int, cells: Array) -> Array:
        """Convert lists of numbers to a 2-D array, NaN where a list is missing."""
        try:
            known = [None if _is_missing(v) else np.asarray(v, np.float64) for v in cells]
            width = next(len(v) for v in known if v is not None)
            vectors = np.stack([np.full(width, np.nan) if v is None else v for v in known])
        except (TypeError, ValueError):
            vectors = np.empty(0)
        if vectors.ndim != 2 or np.isinf(vectors).any():
            raise ValueError(
                f"{self._told([source])} of X holds lists that are not vectors of the same number "
                "of finite numbers; make columns of their values, or drop it"
            )
        return vectors

    # -- learning

    def _learn(
        self, cells: dict[int, Array], names: Any, codes: Array | None
    ) -> Iterator[tuple[tuple[int, int, int, int], Array]]:
        """Generate (kind, column, column of the query, width) and fills of all parts."""
        numbers = {s: v for s, v in cells.items() if v.dtype != object and v.ndim == 1}
        medians: dict[int, float] = {}
        for source, values in numbers.items():
            known = values[~np.isnan(values)]
            if known.size and known.min() < known.max():
                medians[source] = float(np.median(known))
        kept = np.array(list(medians), dtype=np.int64)
        if self.drop_ids and len(kept):
            some = [numbers[source][:ID_ROWS] for source in medians]
            filled = [np.where(np.isnan(v), medians[s], v) for s, v in zip(kept, some, strict=True)]
            codes_of_some = None if codes is None else codes[:ID_ROWS]
            kept = self._without_ids(kept, np.column_stack(filled), names, codes_of_some)
        for source in kept.tolist():
            yield (NUMBER, source, -1, 1), np.array([medians[source]])
        ids = set(medians) - set(kept.tolist())
        for source, values in numbers.items():
            missing = np.isnan(values)
            if missing.any() and not missing.all() and source not in ids:
                yield (MISSING, source, -1, 1), np.zeros(1)
        vectors = {s: v for s, v in cells.items() if v.ndim == 2 and _varies(v)}
        texts = self._kinds({s: v for s, v in cells.items() if v.dtype == object})
        queries = self._query_columns([*texts, *vectors], cells, codes)
        counts = {s: count_words(cells[s]) for s in texts if queries or texts[s] == TEXT}
        for source, kind in texts.items():
            asked = [q for q in queries if q in texts and source not in queries]
            model = None
            if kind == TEXT or asked:
                model = TextModel.learn(counts[source], components=kind == TEXT)
            for query in asked:
                assert model is not None
                if model.matches(counts[query], counts[source]).any():
                    self._texts[str(source)] = model
                    self.query_columns_ = sorted({*self.query_columns_, query})
                    yield (MATCH, source, query, len(MATCHES)), np.zeros(len(MATCHES))
            only_asks = source in queries and any(other not in queries for other in texts)
            if model is not None and kind == TEXT and model.axes.size and not only_asks:
                self._texts[str(source)] = model
                width = model.axes.shape[1]
                yield (TEXT, source, -1, width), np.zeros(width)
            elif kind == CATEGORY and not only_asks:
                levels, sizes = np.unique(cells[source][cells[source] != ""], return_counts=True)
                frequent = levels[np.argsort(-sizes, kind="stable")[: self.max_levels]].tolist()
                self._levels[str(source)] = frequent
                width = len(frequent) + (len(levels) > len(frequent))
                yield (CATEGORY, source, -1, width), np.zeros(width)
        for source, values in vectors.items():
            width = values.shape[1]
            asked = [q for q in queries if q in vectors and vectors[q].shape[1] == width]
            if source not in asked:
                yield (VECTOR, source, -1, width), np.nanmean(values, axis=0)
                for query in asked:
                    self.query_columns_ = sorted({*self.query_columns_, query})
                    yield (PRODUCT, source, query, width), np.zeros(width)
                    yield (COSINE, source, query, 1), np.zeros(1)

    def _kinds(self, texts: dict[int, Array]) -> dict[int, int]:
        """Return TEXT or CATEGORY for each column of text that is not constant or an id."""
        kinds, ids, numeric = {}, [], []
        for source, text in texts.items():
            known = text[text != ""]
            n_levels = len(np.unique(known))
            if n_levels < 2 and (not n_levels or len(known) == len(text)):
                continue
            repeated = max(FEW_LEVELS, len(known) / 2)
            if n_levels <= max(FEW_LEVELS, min(self.max_levels, repeated)):
                kinds[source] = CATEGORY
            elif np.mean([len(value.split()) for value in known]) >= FEWEST_WORDS:
                kinds[source] = TEXT
            elif n_levels <= repeated:
                kinds[source] = CATEGORY
            else:
                ids.append(source)
                numeric += [source] * _are_numbers(known)
        if ids:
            hint = f" ({self._told(numeric)}: convert numbers written as text)" if numeric else ""
            warn(
                f"{self._told(ids)} of X: ids, words with a different value in nearly every row, "
                f"are dropped{hint}",
                IdColumnWarning,
            )
        return kinds

    def _query_columns(
        self, sources: list[int], cells: dict[int, Array], codes: Array | None
    ) -> list[int]:
        """Return the columns of queries, as given, or those that are constant within queries."""
        if self.query_columns is not None:
            names = list(getattr(self, "feature_names_in_", ()))
            found = []
            for column in self.query_columns:
                j = names.index(column) if column in names else column
                if j not in sources:
                    raise ValueError(
                        f"query_columns: {column!r} is not a column of texts or vectors of X"
                    )
                found.append(int(j))
            return found
        if codes is None or len(np.unique(codes)) in (1, len(codes)):
            return []
        order = np.argsort(codes, kind="stable")
        same = np.diff(codes[order]) == 0
        constant = []
        for source in sources:
            values = cells[source][order]
            equal = values[1:] == values[:-1]
            if values.ndim == 2:
                equal = (equal | (np.isnan(values[1:]) & np.isnan(values[:-1]))).all(axis=1)
            if equal[same].all():
                constant.append(source)
        return constant

    def _without_ids(self, kept: Array, values: Any, names: Any, codes: Array | None) -> Array:
        names = None if names is None else [names[s] for s in kept]
        found = columns_like_ids(values, names, codes)
        if found:
            warn(
                f"{self._told(kept[found].tolist())} of X: columns that look like ids, row numbers "
                "or timestamps are dropped (drop_ids=False keeps them)",
                IdColumnWarning,
            )
        return np.delete(kept, found)

    # -- encoding

    def _encode(
        self, part: list[int], fill: Array, cells: dict[int, Array], counts: dict[int, Any]
    ) -> Array:
        """Encode the columns of a part, shape (n_rows, width); ``counts`` keeps counted words."""
        kind, source, query, width = part
        was = KINDS[kind, 1]
        for column in (source, query) if query >= 0 else (source,):
            values = cells[column]
            now = "text" if values.dtype == object else ("numeric", "vectors")[values.ndim - 1]
            if was == "text" and now == "numeric":
                cells[column] = _as_text(cells[column])  # levels such as 1, 2 and 3
            elif now != was:
                told = {"text": "contains text", "numeric": "is numeric", "vectors": "holds lists"}
                raise ValueError(
                    f"{self._told([column])} of X was {was} in fit and {told[now]} now"
                )
            elif now == "vectors" and kind != COSINE and cells[column].shape[1] != width:
                raise ValueError(
                    f"{self._told([column])} of X had vectors of {width} numbers in fit, and has "
                    f"vectors of {cells[column].shape[1]} now"
                )
        values = cells[source]
        if kind == NUMBER:
            return np.where(np.isnan(values), fill[0], values)[:, None]
        if kind == MISSING:
            return np.isnan(values).astype(np.float64)[:, None]
        if kind == CATEGORY:
            levels = self._levels[str(source)]
            index = {level: k for k, level in enumerate(levels)}
            places = np.array([-1 if v == "" else index.get(v, len(levels)) for v in values])
            return (places[:, None] == np.arange(width)).astype(np.float64)
        if kind == VECTOR:
            return np.where(np.isnan(values), fill, values)
        if kind in (TEXT, MATCH):
            for column in (source, query):
                if column >= 0 and column not in counts:
                    counts[column] = count_words(cells[column])
            model = self._texts[str(source)]
            if kind == TEXT:
                return model.components(counts[source])
            return model.matches(counts[query], counts[source])
        products = np.nan_to_num(values * cells[query])
        if kind == PRODUCT:
            return products
        lengths = [np.sqrt(np.nansum(v**2, axis=1)) for v in (values, cells[query])]
        size = lengths[0] * lengths[1]
        return (products.sum(axis=1) / np.where(size > 0, size, 1.0))[:, None]

    def _missing_rows(self) -> Array:
        """Two rows of missing cells and vectors of zeros, to try models read from files."""
        rows = np.full((2, self.n_features_in_), None, dtype=object)
        for kind, source, query, width in self._parts.tolist():
            for column in {VECTOR: (source,), PRODUCT: (source, query)}.get(kind, ()):
                rows[:, column] = [np.zeros(width)] * 2
        return rows

    def _is_consistent(self) -> bool:
        """Whether parts, levels and models fit together, for models read from files."""
        n, (kinds, sources, queries, widths) = self.n_features_in_, self._parts.T
        good = (
            ((kinds >= 0) & (kinds < len(KINDS)) & (sources >= 0) & (sources < n)).all()
            and ((queries >= -1) & (queries < n) & ((queries >= 0) == (kinds >= MATCH))).all()
            and ((widths > 0) & (widths <= len(self._fills))).all()
            and widths.sum() == len(self._fills)
            and (widths[np.isin(kinds, (NUMBER, MISSING, COSINE))] == 1).all()
            and all(
                isinstance(j, int) and 0 <= j < n for j in [*self.dropped_, *self.query_columns_]
            )
        )
        for kind, source, _, width in self._parts.tolist() if good else ():
            if kind == CATEGORY:
                levels = self._levels.get(str(source), [])
                good &= width - len(levels) in (0, 1) and all(isinstance(v, str) for v in levels)
            elif kind in (TEXT, MATCH):
                model = self._texts.get(str(source))
                wanted = model.axes.shape[1] if model and kind == TEXT else len(MATCHES)
                good &= model is not None and width == wanted
        return bool(good)

    def _told(self, columns: list[int]) -> str:
        """Format columns of X by their names or indices."""
        known = getattr(self, "feature_names_in_", None)
        if known is not None:
            return named_columns(columns, list(known))
        return f"column {named_columns(columns, None)}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = tags.input_tags
        inputs.sparse = inputs.allow_nan = inputs.string = inputs.categorical = True
        return tags


_COMPLEX = (complex, np.complexfloating)


def _columns(X: Any) -> Iterator[tuple[int, Any]]:
    for j in range(X.shape[1]):
        if isinstance(X, np.ndarray):
            yield j, X[:, j]
        else:
            yield j, X.iloc[:, j] if hasattr(X, "iloc") else X[X.columns[j]]


def _as_array(values: Any) -> Array:
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def _as_numbers(values: Any) -> Array | None:
    """Convert numbers and booleans to float64, NaN if missing; None for other types."""
    dtype = getattr(values, "dtype", None)
    if type(dtype).__name__ in ("CategoricalDtype", "Categorical", "Enum"):
        return None
    try:
        if getattr(dtype, "kind", "") in ("b", "i", "u", "f"):
            if hasattr(values, "iloc"):  # pandas.NA becomes NaN
                return values.to_numpy(dtype=np.float64, na_value=np.nan)
            return np.asarray(values).astype(np.float64, copy=False)
        array = _as_array(values)
        if array.dtype.kind in "USc":
            return None
        if array.dtype == object:
            if any(isinstance(value, (str, bytes, *_COMPLEX)) for value in array):
                return None
            array = np.array([np.nan if _is_missing(value) else value for value in array])
        return array.astype(np.float64) if array.ndim == 1 else None
    except (TypeError, ValueError):
        return None


def _is_missing(value: Any) -> bool:
    return not isinstance(value, list | tuple | np.ndarray) and is_missing(value)


def _as_text(values: Any) -> Array:
    """Convert levels to text, missing ones to "", and 1.0 to 1, as pandas has it beside NaN."""
    cells = _as_array(values).astype(object)
    whole = (int(v) if isinstance(v, float | np.floating) and v.is_integer() else v for v in cells)
    return np.array(["" if _is_missing(value) else str(value) for value in whole], dtype=object)


def _are_numbers(known: Array) -> bool:
    """Return whether most of the values are numbers written as text."""
    n_numbers = 0
    for value in known:
        with suppress(ValueError):
            float(value)
            n_numbers += 1
    return n_numbers >= 0.9 * len(known)


def _varies(vectors: Array) -> bool:
    known = vectors[~np.isnan(vectors).any(axis=1)]
    return len(known) > 0 and bool((known != known[0]).any())
