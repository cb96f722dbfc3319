"""Encoding of raw tables: numbers, booleans, categories, texts, vectors and missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import all_or_nothing, takes_queries, warn
from rankrls._frames import (
    clear_errors,
    columns_like_ids,
    named_columns,
    refuse_dates,
    refuse_equal_names,
    without_arrow,
)
from rankrls._resources import require_features
from rankrls._validation import check_integer, encode_qid, is_missing, refuse_lazy
from rankrls.exceptions import IdColumnWarning
from rankrls.preprocessing._texts import MATCHES, TextModel, count_words

Array = NDArray[Any]

#: Kind, column of X, column of the query (or -1), and the fill of each output column of a part.
Part = tuple[int, int, int, Array]

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

#: Numbers are left out if fewer than this share of the rows has a value: later rows may have many.
SCARCE = 0.01

#: Number of rows in which ids are looked for.
ID_ROWS = 200_000

#: Name of the levels that have no column of their own.
OTHER = "(other)"


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows of an encoded table, or ``columns`` of an array of numbers."""

    table: Any
    columns: Array | None = None

    def __getitem__(self, rows: Any) -> Any:
        if self.columns is None:
            return self.table[rows]
        return self.table[rows][:, self.columns].astype(np.float64, copy=False)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a raw table as numbers.

    - Numbers and booleans stay numbers. Missing values become the median of the training rows, with
      an indicator column.
    - Categories, texts with repeated values, are one-hot encoded; rare and new levels share a
      column.
    - Texts become components of their tf-idf vectors. Texts of queries are compared with those of
      the rows: cosine, and the share of the words of the query that are found, weighted and plain.
    - Vectors, lists of the same length, stay; an empty list is a missing one. Vectors of queries
      are compared with those of the rows: cosine, and products of the entries.

    Constant columns are dropped, and columns that look like ids with an `IdColumnWarning`. Date
    columns raise an error. Labels are not used. Sparse matrices stay sparse.

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
    sources_, blocks_ : ndarray of shape (n_columns,)
        Column of X of each output column, and "number", "category", "text" or "vector".
    columns_ : dict of ndarray
        Table of what was made of each column of X: "column" and "used as".
    dropped_, query_columns_ : list of int
        Columns of X that are dropped, and those of texts or vectors of queries.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if all names are strings.

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

    _parts: Array  # kind, column of X, column of the query (or -1) and width of each part
    _fills: Array  # what a missing value is replaced by, for each output column
    query_columns_: list[int]
    _levels: dict[str, list[str]]  # of each category, by the number of its column
    _texts: dict[str, TextModel]  # of each text

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
        y : ignored
        qid : array-like of shape (n_rows,), optional
            Query label of each row. It helps to distinguish ids from features within queries, and
            columns of queries from columns of rows.
        """
        check_integer("max_levels", self.max_levels, least=1)
        X = self._read(X, reset=True)
        require_features(X.shape[1])
        codes = None if qid is None else encode_qid(qid, X.shape[0]).codes
        self._levels, self._texts, self.query_columns_ = {}, {}, []
        others: dict[int, Array] = {}
        if sparse.issparse(X):
            low, high = (v.toarray().ravel() for v in (X.min(axis=0), X.max(axis=0)))
            some = np.flatnonzero(low < high)
            kept = self._without_ids(some, X[:, some], codes)
            parts: list[Part] = [(NUMBER, source, -1, np.zeros(1)) for source in kept]
        else:
            parts = [*self._learn_numbers(X, codes, others), *self._learn_others(others, codes)]
            parts.sort(key=lambda part: part[1:3])  # the order of the columns
        if not parts:
            texts = [source for source, cells in others.items() if cells.dtype == object]
            hint = f"; if {self._told(texts)} should be numbers, write them so (1.5, not '1,5')"
            raise ValueError(
                f"no column of X is a usable feature: all are constant or ids{hint * bool(texts)}"
            )
        self._parts = np.array([(*part[:3], len(part[3])) for part in parts], dtype=np.int64)
        self._fills = np.concatenate([fill for *_, fill in parts])
        self.dropped_ = np.setdiff1d(np.arange(self.n_features_in_), self._parts[:, 1:3]).tolist()
        return self

    def transform(self, X: Any) -> Any:
        """Encode a table; returns finite numbers of shape (n_rows, n_columns), sparse if X is."""
        check_is_fitted(self)
        encoded = self._encoded(X)
        return encoded.copy() if encoded is X else encoded

    def _encoded(self, X: Any) -> Any:
        """Return the result of `transform` before ``set_output`` is applied, which may be X."""
        rows = self._rows(X)
        return rows.table if rows.columns is None else rows[:]

    def _rows(self, X: Any) -> EncodedRows:
        """Return encoded rows; large arrays of numbers are not copied."""
        X, kinds = self._read(X, reset=False), self._parts[:, 0]
        was = {
            column: str(KINDS[kind, 1])
            for kind, *columns, _ in self._parts.tolist()
            for column in columns
            if column >= 0
        }
        others = sorted(column for column, what in was.items() if what != "numeric")
        unnamed = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and others
        if unnamed and hasattr(self, "feature_names_in_"):
            raise ValueError(
                f"{self._told(others)} of X held text or vectors in fit, and X is an array of "
                "numbers: pass a table with these columns"
            )
        if sparse.issparse(X):
            if (kinds != NUMBER).any():
                raise ValueError(
                    "the encoder was fitted to a table with text or missing values; X must not be "
                    "sparse"
                )
            return EncodedRows(sparse.csr_array(X[:, self.sources_]))
        numbers = (self._cells(X, column, "numeric") for column in was)
        plain = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and not kinds.any()
        if plain and not any(np.isnan(one).any() for one in numbers):
            as_is = X.dtype == np.float64 and len(was) == X.shape[1]
            return EncodedRows(X, None if as_is else self.sources_)
        ends, counts = np.cumsum(self._parts[:, 3]), dict[int, Any]()
        encoded, cells = np.empty((X.shape[0], ends[-1])), dict[int, Array]()
        for part, end in zip(self._parts.tolist(), ends.tolist(), strict=True):
            for column in {*part[1:3]} - {-1, *cells}:
                cells[column] = self._cells(X, column, was[column])
            columns = slice(end - part[3], end)
            encoded[:, columns] = self._encode(part, self._fills[columns], cells, counts)
            if was[part[1]] == "numeric":  # not all of them are kept in memory
                del cells[part[1]]
        return EncodedRows(encoded)

    def _encode(
        self, part: list[int], fill: Array, cells: dict[int, Array], counts: dict[int, Any]
    ) -> Array:
        """Encode the columns of a part, shape (n_rows, width); ``counts`` keeps counted words."""
        kind, source, query, width = part
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
        if kind in (TEXT, MATCH):
            for column in {source, query} - {-1, *counts}:
                counts[column] = count_words(cells[column])
            model = self._texts[str(source)]
            if kind == TEXT:
                return model.components(counts[source])
            return model.matches(counts[query], counts[source])
        for column in {source, query} - {-1} if kind != COSINE else ():
            if cells[column].shape[1] != width and not np.isnan(cells[column]).all():
                raise ValueError(
                    f"{self._told([column])} of X had vectors of {width} numbers in fit, and has "
                    f"vectors of {cells[column].shape[1]} now"
                )
        if kind == VECTOR:
            return np.where(np.isnan(values), fill, values)
        products = np.nan_to_num(values * cells[query])
        if kind == PRODUCT:
            return products
        size = np.sqrt(np.nansum(values**2, axis=1) * np.nansum(cells[query] ** 2, axis=1))
        return (products.sum(axis=1) / np.where(size > 0, size, 1.0))[:, None]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the output columns; ``input_features`` if X had no names in fit."""
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
        used: list[dict[str, None]] = [{} for _ in known]
        for kind, source, query, _ in self._parts.tolist():
            used[source][KINDS[kind, 2].format(q=known[query])] = None
            if query >= 0:
                used[query][f"query of {known[source]}"] = None
        shown = [", ".join(one) or "dropped" for one in used]
        return {"column": np.array(known, object), "used as": np.array(shown, object)}

    @property
    def text_columns(self) -> list[int]:
        """Columns of X that can be non-numeric: text columns and dropped columns."""
        of_text = self._parts[KINDS[self._parts[:, 0], 1] == "text", 1:3]
        return sorted({*self.dropped_, *of_text.ravel().tolist()} - {-1})

    # -- reading

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Check X and the names of its columns, but not its cells; lists become arrays."""
        if sparse.issparse(X):
            with clear_errors(X):
                return validate_data(self, X, reset=reset, accept_sparse="csc", dtype=np.float64)
        refuse_lazy(X)
        refuse_dates(X)
        X = without_arrow(X)
        if not hasattr(X, "columns"):
            # In lists, numbers beside text stay numbers.
            X = np.asarray(X, dtype=object if isinstance(X, list | tuple) else None)
            least: Any = {"ensure_min_samples": 2 if reset else 1, "ensure_all_finite": False}
            return validate_data(self, X, reset=reset, dtype=None, **least)
        refuse_equal_names(X.columns)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _cells(self, X: Any, source: int, was: str | None = None) -> Array:
        """Read a column as numbers (float), texts (object) or vectors (2-D); NaN, "" if missing.

        ``was`` is what it held in ``fit``.
        """
        values: Any
        if isinstance(X, np.ndarray):
            values = np.ascontiguousarray(X[:, source])
        else:
            values = X.iloc[:, source] if hasattr(X, "iloc") else X[X.columns[source]]
        dtype = getattr(values, "dtype", None)
        levels = type(dtype).__name__ in ("CategoricalDtype", "Categorical", "Enum")
        if getattr(dtype, "kind", "O") in "biuf" and hasattr(values, "iloc"):
            cells = values.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas.NA becomes NaN
        else:
            cells = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
        if cells.dtype.kind in "biuf" and cells.ndim == 1 and not levels:
            found, now = cells if cells.dtype.kind == "f" else cells.astype(np.float64), "numeric"
        else:
            missing = np.array([_is_missing(value) for value in cells], dtype=bool)
            found, now = self._others(source, cells[~missing], levels)
            if now != "text":
                some, found = found, np.full((len(cells), *found.shape[1:]), np.nan)
                found[~missing] = some
        if now == "text" or (now == "numeric" and was == "text"):  # levels such as 1, 2 and 3
            found, now = _as_text(cells), "text"
        elif np.isinf(found).any():
            first = np.flatnonzero(np.isinf(found.reshape(len(found), -1)).any(axis=1))[0]
            raise ValueError(
                f"Input X contains infinity (first at row {first}, {self._told([source])}): "
                "replace it by a finite number, or by NaN for a missing value"
            )
        if was == "vectors" and now == "numeric" and np.isnan(found).all():
            return found[:, None]  # no row has a vector
        if was not in (None, now):
            shown = {"text": "contains text", "numeric": "is numeric", "vectors": "holds lists"}
            raise ValueError(f"{self._told([source])} of X was {was} in fit and {shown[now]} now")
        return found

    def _others(self, source: int, known: Array, levels: bool) -> tuple[Array, str]:
        """Numbers, texts or vectors of objects that are not missing, and which they are."""
        if len(known) and isinstance(known[0], list | tuple | np.ndarray):
            try:
                found = np.array([np.asarray(value, np.float64) for value in known])
                return found.reshape(len(known), len(known[0])), "vectors"
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{self._told([source])} of X holds lists that are not vectors of the same "
                    "number of numbers; make columns of their values, or drop it"
                ) from error
        if any(isinstance(value, complex | np.complexfloating) for value in known):
            raise ValueError(
                f"Complex data not supported: {self._told([source])} of X holds complex numbers"
            )
        if not levels and not any(isinstance(value, str | bytes) for value in known):
            with suppress(TypeError, ValueError):
                return known.astype(np.float64), "numeric"
        return known, "text"

    # -- learning

    def _learn_numbers(
        self, X: Any, codes: Array | None, others: dict[int, Array]
    ) -> Iterator[Part]:
        """Generate the parts of numbers and missing values; store other columns in ``others``."""
        medians, gaps, first, scarce = {}, [], [], []
        for source in range(X.shape[1]):
            values = self._cells(X, source)
            if values.ndim == 2 or values.dtype == object:
                others[source] = values
                continue
            known = values[~np.isnan(values)]
            if 0 < known.size < SCARCE * values.size:
                scarce.append(source)
                continue
            if known.size and known.min() < known.max():
                medians[source] = float(np.median(known.astype(np.float64, copy=False)))
                if self.drop_ids:
                    some = values[:ID_ROWS]
                    first.append(np.where(np.isnan(some), medians[source], some))
            if 0 < known.size < values.size:
                gaps.append(source)
        if scarce:
            warn(
                f"{self._told(scarce)} of X: columns with values in fewer than {SCARCE:.0%} of "
                "the rows are dropped"
            )
        filled = np.column_stack(first) if first else np.empty((0, 0))
        some_codes = None if codes is None else codes[:ID_ROWS]
        kept = self._without_ids(np.array(list(medians), dtype=np.int64), filled, some_codes)
        for source in kept:
            yield NUMBER, source, -1, np.array([medians[source]])
        for source in gaps:
            if source in kept or source not in medians:
                yield MISSING, source, -1, np.zeros(1)

    def _without_ids(self, kept: Array, values: Any, codes: Array | None) -> list[int]:
        """Drop the columns that look like ids, with a warning."""
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else names[kept]
        found = columns_like_ids(values, names, codes) if self.drop_ids and len(kept) else []
        if found:
            warn(
                f"{self._told(kept[found].tolist())} of X: columns that look like ids, row numbers "
                "or timestamps are dropped (drop_ids=False keeps them)",
                IdColumnWarning,
            )
        return np.delete(kept, found).tolist()

    def _learn_others(self, cells: dict[int, Array], codes: Array | None) -> Iterator[Part]:
        """Generate the parts of categories, texts and vectors."""
        vectors = {j: v for j, v in cells.items() if v.ndim == 2 and _varies(v)}
        texts = self._kinds({j: v for j, v in cells.items() if v.dtype == object})
        queries = self._query_columns([*texts, *vectors], cells, codes)
        counts = {j: count_words(cells[j]) for j in texts if queries or texts[j] == TEXT}
        compared: set[int] = set()
        for source, kind in texts.items():
            others = [q for q in queries if q in texts and source not in queries]
            if kind == TEXT or others:
                model = TextModel.learn(counts[source], components=kind == TEXT)
            for query in others:
                if model.matches(counts[query], counts[source]).any():
                    self._texts[str(source)] = model
                    compared.add(query)
                    yield MATCH, source, query, np.zeros(len(MATCHES))
            if source in queries and any(other not in queries for other in texts):
                continue  # it is compared with other columns only
            if kind == TEXT and model.axes.size:
                self._texts[str(source)] = model
                yield TEXT, source, -1, np.zeros(model.axes.shape[1])
            elif kind == CATEGORY:
                levels, sizes = np.unique(cells[source][cells[source] != ""], return_counts=True)
                frequent = levels[np.argsort(-sizes, kind="stable")[: self.max_levels]].tolist()
                self._levels[str(source)] = frequent
                yield CATEGORY, source, -1, np.zeros(min(len(levels), len(frequent) + 1))
        for source, values in vectors.items():
            width = values.shape[1]
            others = [q for q in queries if q in vectors and vectors[q].shape[1] == width]
            if source in others:
                continue
            yield VECTOR, source, -1, np.nanmean(values, axis=0)
            for query in others:
                compared.add(query)
                yield PRODUCT, source, query, np.zeros(width)
                yield COSINE, source, query, np.zeros(1)
        self.query_columns_ = sorted(compared)

    def _kinds(self, texts: dict[int, Array]) -> dict[int, int]:
        """Return TEXT or CATEGORY for each column of text that is not constant or an id."""
        kinds, ids = {}, []
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
        if ids:
            warn(
                f"{self._told(ids)} of X: ids, words with a different value in nearly every row, "
                "are dropped (convert numbers written as text)",
                IdColumnWarning,
            )
        return kinds

    def _query_columns(
        self, sources: list[int], cells: dict[int, Array], codes: Array | None
    ) -> list[int]:
        """Return the columns of queries, as given, or those that are constant within queries."""
        if self.query_columns is not None:
            names = list(getattr(self, "feature_names_in_", ()))
            found = [names.index(c) if c in names else c for c in self.query_columns]
            for column, j in zip(self.query_columns, found, strict=True):
                if j not in sources:
                    raise ValueError(
                        f"query_columns: {column!r} is not a column of texts or vectors of X"
                    )
            return [int(j) for j in found]
        if codes is None or len(np.unique(codes)) in (1, len(codes)):
            return []
        order = np.argsort(codes, kind="stable")
        same = np.flatnonzero(np.diff(codes[order]) == 0)
        before, after = order[same], order[same + 1]
        constant = []
        for source in sources:
            a, b = cells[source][before], cells[source][after]
            if ((a == b) | ((a != a) & (b != b))).all():  # NaN is equal to itself here
                constant.append(source)
        return constant

    # -- files

    def _missing_rows(self) -> Array:
        """Two rows of missing cells and vectors of zeros, to try models read from files."""
        rows = np.full((2, self.n_features_in_), None, dtype=object)
        for kind, source, query, width in self._parts.tolist():
            for column in {VECTOR: (source,), PRODUCT: (source, query)}.get(kind, ()):
                rows[:, column] = [np.zeros(width)] * 2
        return rows

    def _is_consistent(self) -> bool:
        """Whether the numbers of columns are in range, for models read from files."""
        n, (kinds, sources, queries, widths) = self.n_features_in_, self._parts.T
        in_range = (kinds >= 0) & (kinds < len(KINDS)) & (sources >= 0) & (sources < n)
        in_range &= (queries >= -1) & (queries < n) & ((queries >= 0) == (kinds >= MATCH))
        in_range &= (widths > 0) & (widths <= len(self._fills))
        levels = [len(self._levels.get(str(j), "")) for j in sources[kinds == CATEGORY]]
        return bool(
            in_range.all()
            and widths.sum() == len(self._fills)
            and np.isin(widths[kinds == CATEGORY] - levels, (0, 1)).all()
            and all(0 <= j < n for j in [*self.dropped_, *self.query_columns_])
        )

    def _told(self, columns: list[int]) -> str:
        """Format columns of X by their names or indices."""
        names = getattr(self, "feature_names_in_", None)
        return "column " * (names is None) + named_columns(columns, names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = tags.input_tags
        inputs.sparse = inputs.allow_nan = inputs.string = inputs.categorical = True
        return tags


def _is_missing(value: Any) -> bool:
    """Whether a cell is missing; an empty list is a vector that is missing."""
    if isinstance(value, list | tuple | np.ndarray):
        return (value.size if isinstance(value, np.ndarray) else len(value)) == 0
    return is_missing(value)


def _as_text(cells: Array) -> Array:
    """Convert levels to text, missing ones to "", and 1.0 to 1, as pandas has it beside NaN."""
    whole = (int(v) if isinstance(v, float | np.floating) and v.is_integer() else v for v in cells)
    return np.array(["" if _is_missing(value) else str(value) for value in whole], dtype=object)


def _varies(vectors: Array) -> bool:
    known = vectors[~np.isnan(vectors).any(axis=1)]
    return len(known) > 0 and bool((known != known[0]).any())
