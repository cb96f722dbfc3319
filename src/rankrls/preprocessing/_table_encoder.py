"""Encoding of raw tables with missing values, categories, booleans and ids as numbers."""

from __future__ import annotations

from collections.abc import Iterator
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
from rankrls._validation import check_integer, encode_qid, refuse_lazy
from rankrls.exceptions import IdColumnWarning

__all__ = ["TableEncoder"]

Array = NDArray[Any]

#: Kinds of output columns: the numbers of a column, an indicator of missing values, or an indicator
#: of one level of a text column.
NUMBER, MISSING, LEVEL = 0, 1, 2

_COMPLEX = (complex, np.complexfloating)

#: Text with at most this many levels is a category for any number of rows.
FEW_LEVELS = 5


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a raw table as numbers.

    Numbers and booleans stay numbers. Missing values are replaced by the median of the training
    rows, and an indicator column is added. Text and categories are one-hot encoded, for the most
    frequent levels. Constant columns, and text columns with a different value in nearly every row,
    are dropped. Columns that look like ids are dropped with an `IdColumnWarning` that names them.
    Date columns raise an error.

    Parameters
    ----------
    max_levels : int, default=20
        Maximum number of levels that are encoded for each text column; rarer levels become zeros.
    drop_ids : bool, default=True
        Whether to drop columns that look like ids, row numbers or timestamps.

    Attributes
    ----------
    sources_ : ndarray of shape (n_columns,)
        Column of X from which each output column is computed.
    dropped_ : list of int
        Columns of X that are dropped.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if all names are strings.

    Notes
    -----
    Labels are not used. Levels not seen in ``fit`` are encoded as zeros. Sparse matrices stay
    sparse; their columns are numbers, without missing values.

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

    sources_: Array
    #: NUMBER, MISSING or LEVEL for each output column.
    _kinds: Array
    #: Fill value of missing numbers.
    _fills: Array
    #: Level of each output column; empty for numbers.
    _levels: list[str]

    def __init__(self, max_levels: int = 20, *, drop_ids: bool = True) -> None:
        self.max_levels = max_levels
        self.drop_ids = drop_ids

    @takes_queries
    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, qid: Any = None) -> TableEncoder:
        """Learn medians, levels and which columns to drop.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            A pyarrow table is converted to a pandas data frame.
        y : ignored
            Present for compatibility with pipelines.
        qid : array-like of shape (n_rows,), optional
            Query label of each row. It helps to distinguish ids from features within queries.

        Returns
        -------
        self : TableEncoder
        """
        check_integer("max_levels", self.max_levels, least=1)
        refuse_lazy(X)
        refuse_dates(X)
        X = without_arrow(X)
        columns = self._read(X, reset=True)
        sources, kinds, fills, levels = [], [], [], []
        unique: list[int] = []
        numeric: list[int] = []
        if sparse.issparse(columns):
            some = _varying_sparse(columns)
            sources = some.tolist()
            kinds, fills, levels = [NUMBER] * len(some), [0.0] * len(some), [""] * len(some)
        else:
            for source, values in columns:
                made = list(self._columns_of(source, values))
                for kind, fill, level in made:
                    sources.append(source)
                    kinds.append(kind)
                    fills.append(fill)
                    levels.append(level)
                if not made and _as_numbers(values) is None:
                    text = _as_text(values)
                    if len(np.unique(text)) > 1:
                        unique.append(source)
                        numeric += [source] * _are_numbers(text)
        self.sources_ = np.array(sources, dtype=np.int64)
        self._kinds = np.array(kinds, dtype=np.int8)
        self._fills = np.array(fills, dtype=np.float64)
        self._levels = levels
        if unique:
            self._tell_of_text(unique, numeric)
        if self.drop_ids:
            self._leave_out_ids(X, qid)
        self.dropped_ = np.setdiff1d(np.arange(self.n_features_in_), self.sources_).tolist()
        if not len(self.sources_):
            raise ValueError(
                "no column of X is a usable feature: all are constant, ids, or text with a "
                "different "
                "value in every row"
            )
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
        return self._encoded(X)

    def _encoded(self, X: Any) -> Any:
        """Return the result of `transform` before ``set_output`` is applied."""
        refuse_dates(X)
        columns = self._read(without_arrow(X), reset=False)
        if sparse.issparse(columns):
            kept = np.flatnonzero(self._kinds == NUMBER)
            if len(kept) < len(self.sources_):
                raise ValueError(
                    "the encoder was fitted to a table with text or missing values; X must not be "
                    "sparse"
                )
            return sparse.csr_array(columns[:, self.sources_])
        wanted = {int(s): np.flatnonzero(self.sources_ == s) for s in np.unique(self.sources_)}
        encoded: Array | None = None
        for source, values in columns:
            if encoded is None:
                encoded = np.empty((len(values), len(self.sources_)))
            if source in wanted:
                self._refuse_cells(source, values)
            for j in wanted.get(source, ()):
                encoded[:, j] = self._encode(int(j), values)
        assert encoded is not None
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
        known = getattr(self, "feature_names_in_", None)
        if known is None:
            known = input_features
        if known is None:
            known = [f"x{j}" for j in range(self.n_features_in_)]
        names = []
        for source, kind, level in zip(self.sources_, self._kinds, self._levels, strict=True):
            name = str(known[source])
            ending = {NUMBER: "", MISSING: " missing", LEVEL: f"={level}"}[int(kind)]
            names.append(name + ending)
        return np.array(names, dtype=object)

    @property
    def text_columns(self) -> list[int]:
        """Columns of X that can be non-numeric: text columns and dropped columns."""
        numeric = self.sources_[self._kinds != LEVEL]
        return np.setdiff1d(np.arange(self.n_features_in_), numeric).tolist()

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

    # -- encoding of columns

    def _columns_of(self, source: int, values: Any) -> Iterator[tuple[int, float, str]]:
        """Generate (kind, fill, level) of the output columns made from one column of X."""
        self._refuse_cells(source, values)
        numbers = _as_numbers(values)
        if numbers is None:
            yield from ((LEVEL, 0.0, level) for level in self._frequent(_as_text(values)))
            return
        self._refuse_infinite(source, numbers)
        missing = np.isnan(numbers)
        known = numbers[~missing]
        if known.size and known.min() < known.max():
            yield NUMBER, float(np.median(known)), ""
        if missing.any() and known.size:
            yield MISSING, 0.0, ""

    def _frequent(self, text: Array) -> list[str]:
        """Return the most frequent levels; none if there is one level, or nearly one per row."""
        known = text[text != ""]
        levels, counts = np.unique(known, return_counts=True)
        constant = len(levels) < 2 and len(known) == len(text)
        if constant or len(levels) > max(len(known) / 2, FEW_LEVELS):
            return []
        return levels[np.argsort(-counts, kind="stable")[: self.max_levels]].tolist()

    def _refuse_cells(self, source: int, values: Any) -> None:
        """Raise for a column of complex numbers or of lists."""
        cells = _as_array(values)
        objects = cells if cells.dtype == object else cells[:0]
        if cells.dtype.kind == "c" or any(isinstance(v, _COMPLEX) for v in objects):
            raise ValueError(
                f"Complex data not supported: {self._told([source])} of X holds complex numbers"
            )
        if cells.ndim > 1 or any(isinstance(v, list | np.ndarray) for v in objects):
            raise ValueError(
                f"{self._told([source])} of X holds lists; make a column of each of their values, "
                "or drop it"
            )

    def _refuse_infinite(self, source: int, numbers: Array) -> None:
        if np.isinf(numbers).any():
            row = int(np.flatnonzero(np.isinf(numbers))[0])
            raise ValueError(
                f"Input X contains infinity (first at row {row}, {self._told([source])}): replace "
                "it by a finite number, or by NaN for a missing value"
            )

    def _encode(self, j: int, values: Any) -> Array:
        kind = int(self._kinds[j])
        if kind == LEVEL:
            return (_as_text(values) == self._levels[j]).astype(np.float64)
        numbers = _as_numbers(values)
        if numbers is None:
            told = self._told([int(self.sources_[j])])
            raise ValueError(f"{told} of X was numeric in fit and contains text now")
        self._refuse_infinite(int(self.sources_[j]), numbers)
        missing = np.isnan(numbers)
        return missing.astype(np.float64) if kind == MISSING else np.where(
            missing, self._fills[j], numbers
        )  # fmt: skip

    def _tell_of_text(self, unique: list[int], numeric: list[int]) -> None:
        hint = ""
        if numeric:
            hint = f" ({self._told(numeric)}: convert numbers written as text)"
        warn(
            f"{self._told(unique)} of X: text with a different value in nearly every row is dropped"
            f"{hint}",
            IdColumnWarning,
        )

    def _told(self, columns: list[int]) -> str:
        """Format columns of X by their names or indices."""
        known = getattr(self, "feature_names_in_", None)
        if known is not None:
            return named_columns(columns, list(known))
        return f"column {named_columns(columns, None)}"

    def _leave_out_ids(self, X: Any, qid: Any) -> None:
        numbers = np.flatnonzero(self._kinds == NUMBER)
        if not len(numbers):
            return
        encoded = self._encoded(X)[:, numbers]
        known = feature_names(X)
        names = None if known is None else [known[s] for s in self.sources_[numbers]]
        codes = None if qid is None else encode_qid(qid, encoded.shape[0]).codes
        ids = self.sources_[numbers][columns_like_ids(encoded, names, codes)].tolist()
        if not ids:
            return
        warn(
            f"{self._told(ids)} of X: columns that look like ids, row numbers or timestamps are "
            "dropped "
            "(drop_ids=False keeps them)",
            IdColumnWarning,
        )
        kept = ~np.isin(self.sources_, ids)
        self.sources_, self._kinds = self.sources_[kept], self._kinds[kept]
        self._fills = self._fills[kept]
        self._levels = [level for level, keep in zip(self._levels, kept, strict=True) if keep]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _columns(X: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(X, np.ndarray):
        for j in range(X.shape[1]):
            yield j, X[:, j]
    elif hasattr(X, "iloc"):
        for j in range(X.shape[1]):
            yield j, X.iloc[:, j]
    else:
        for j, name in enumerate(X.columns):
            yield j, X[name]


def _as_array(values: Any) -> Array:
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def _as_numbers(values: Any) -> Array | None:
    """Convert numbers and booleans to float64, NaN if missing; None for other types."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind in ("b", "i", "u", "f") and isinstance(values, np.ndarray):
        return values.astype(np.float64)
    if type(getattr(values, "dtype", None)).__name__ in ("CategoricalDtype", "Categorical", "Enum"):
        return None
    try:
        if hasattr(values, "to_numpy") and kind in ("b", "i", "u", "f") and hasattr(values, "iloc"):
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
        array = _as_array(values)
        if array.dtype.kind in "US":
            return None
        if array.dtype == object:
            if any(isinstance(value, str | bytes) for value in array):
                return None
            array = np.array([np.nan if _is_missing(value) else value for value in array])
        return array.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _as_text(values: Any) -> Array:
    """Convert levels to text; missing values become empty."""
    array = _as_array(values).astype(object)
    return np.array(["" if _is_missing(value) else _level(value) for value in array], dtype=object)


def _level(value: Any) -> str:
    """Format a level as text; 1.0, which pandas uses for 1 beside missing values, becomes 1."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _are_numbers(text: Array) -> bool:
    """Return whether most of the values are numbers written as text."""
    known, n_numbers = text[text != ""], 0
    for value in known:
        try:
            float(value)
            n_numbers += 1
        except ValueError:
            pass
    return n_numbers >= 0.9 * len(known)


def _varying_sparse(X: Any) -> Array:
    """Return the columns that are not constant."""
    low = np.asarray(X.min(axis=0).todense()).ravel()
    high = np.asarray(X.max(axis=0).todense()).ravel()
    return np.flatnonzero(low < high)
