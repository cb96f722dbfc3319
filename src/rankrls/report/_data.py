"""Input data of a report: rows with labels and names, checked once, preprocessed, summarised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from rankrls._frames import RawTable, clear_errors
from rankrls._resources import REPORT_VECTORS, require_features
from rankrls._validation import check_length, check_scores, check_weights, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.metrics.counting import PairCounts, count_pairs
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["Rankings", "Steps", "check_rankings", "check_test", "encoder_of", "summarise"]

Array = NDArray[Any]

#: Up to this many distinct labels are shown one by one, more as a histogram.
MAX_LEVELS = 12


@dataclass(frozen=True)
class Rankings:
    """Rows of queries with labels, and with the features before scaling, if they were scaled.

    X is an array or CSR, or kernel values; ``codes`` the query number of each row, whose id is in
    ``labels``; ``has_qid`` is False if all rows form one ranking; ``scaled`` is True for the
    unscaled features of a model with a scaler.
    """

    X: Any
    y: Array
    codes: Array
    labels: Sequence[Any]
    has_qid: bool
    feature_names: list[str]
    document_names: list[str] | None = None
    weight: Array | None = None
    unscaled: Any = None
    scaled: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    @property
    def n_queries(self) -> int:
        """Number of queries, 1 without qid."""
        return len(self.labels)

    @property
    def sizes(self) -> Array:
        """Number of rows of each query, shape (n_queries,)."""
        return np.bincount(self.codes, minlength=self.n_queries)

    @property
    def qid(self) -> Array | None:
        """Query numbers for ``fit``; None for one ranking."""
        return self.codes if self.has_qid else None

    @property
    def as_given(self) -> Rankings:
        """The data with unscaled features."""
        if self.unscaled is None:
            return self
        return replace(self, X=self.unscaled, unscaled=None, scaled=True)

    def fit_options(self, rows: Any = slice(None)) -> dict[str, Any]:
        """Keyword arguments of ``fit`` for some rows: query numbers and weights, if any."""
        both = {"qid": self.qid, "sample_weight": self.weight}
        return {name: values[rows] for name, values in both.items() if values is not None}

    def pair_counts(self, scores: Array) -> PairCounts:
        """Pairs of each query with different labels, and those that the scores get wrong."""
        return count_pairs(self.y, scores, self.codes, self.n_queries)

    def query_name(self, code: int) -> str:
        """Id of a query as text."""
        return str(self.labels[code])

    def document_name(self, row: int) -> str:
        """Name of a row as text: the given name, or its index."""
        given = self.document_names[row].strip() if self.document_names is not None else ""
        return given or f"row {row}"

    def sample_queries(self, max_rows: int) -> Array:
        """Draw about ``max_rows`` rows at random, in whole queries if there is a qid."""
        if self.n_rows <= max_rows:
            return np.arange(self.n_rows)
        rng = np.random.default_rng(0)
        if not self.has_qid:
            return np.sort(rng.choice(self.n_rows, max_rows, replace=False))
        order = rng.permutation(self.n_queries)
        total = np.cumsum(self.sizes[order])
        drawn = order[: max(1, int(np.searchsorted(total, max_rows, side="right")))]
        return np.flatnonzero(np.isin(self.codes, drawn))


def check_rankings(
    X: Any,
    y: Any,
    qid: Any,
    *,
    feature_names: Any = None,
    document_names: Any = None,
    sample_weight: Any = None,
    where: str = "",
) -> Rankings:
    """Check data for a report; ``where`` precedes the names of arguments in error messages."""
    if isinstance(y, PreferenceGraph):
        raise ValueError(
            f"{where}y must hold labels, not given pairs: the page about pairwise judgements is "
            "write_leaderboard(path, rankrls.leaderboard(table)), or rankrls leaderboard -o"
        )
    with clear_errors(X, f"{where}X", "or pass imputer=SimpleImputer()"):
        checked: Any = check_array(
            X,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_min_samples=2,
            input_name=f"{where}X",
        )
    if sparse.issparse(checked):
        checked = sparse.csr_array(checked, copy=True)
        checked.sum_duplicates()
    n_rows, n_features = checked.shape
    require_features(n_features, copies=REPORT_VECTORS)
    if feature_names is None:
        feature_names = getattr(X, "columns", None)
    names = _names("feature_names", feature_names, n_features, "columns of X")
    labels = check_scores(y, n_rows, name=f"{where}y", of=f"rows of {where}X")
    if labels.ndim == 2:
        if labels.shape[1] != 1:
            raise ValueError(
                f"{where}y has {labels.shape[1]} outputs and a report takes one; pass y[:, j]"
            )
        labels = labels[:, 0]
    queries = encode_qid(qid, n_rows, name=f"{where}qid", of=f"rows of {where}X")
    documents = _names("document_names", document_names, n_rows, f"rows of {where}X")
    weight = None
    if sample_weight is not None:
        weight = check_weights("sample_weight", sample_weight, n_rows)
    return Rankings(
        checked,
        labels,
        queries.codes,
        queries.labels,
        qid is not None,
        names or [f"feature {j}" for j in range(n_features)],
        documents,
        weight,
    )


def _names(what: str, names: Any, n: int, of: str) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} must be a list with one name for each of the {n} {of}")
    check_length(what, names, n, of)
    return ["" if name is None else str(name) for name in names]


def check_test(test: Any, train: Rankings, document_names: Any, *, precomputed: bool) -> Rankings:
    """Check ``test`` = (X, y) or (X, y, qid) against the training data."""
    if not isinstance(test, tuple | list) or len(test) not in (2, 3):
        raise ValueError("test must be a tuple (X, y) or (X, y, qid)")
    X, y, qid = (*test, None)[:3]
    if train.has_qid != (qid is not None):
        raise ValueError("give qid for both the training data and test, or for neither")
    names, columns = train.feature_names, getattr(X, "columns", None)
    if np.shape(X)[1:] != (len(names),):
        raise ValueError(
            f"test X has shape {np.shape(X)}; it must have {len(names)} columns, like the "
            "training data"
        )
    if columns is not None and not precomputed:
        given = [str(name) for name in columns]
        if given != names and sorted(given) == sorted(names):
            raise ValueError("test X has the columns of the training data in a different order")
    return check_rankings(
        X, y, qid, feature_names=names, document_names=document_names, where="test "
    )


def summarise(data: Rankings) -> SimpleNamespace:
    """Counts of one data set; a pair is two rows of one query with different labels."""
    pairs, sizes = data.pair_counts(data.y).comparable, data.sizes
    levels, counts = np.unique(data.y, return_counts=True)
    n_levels = len(levels)
    if n_levels > MAX_LEVELS:
        counts, levels = np.histogram(data.y, bins=MAX_LEVELS)
    density = None
    if sparse.issparse(data.X):
        density = data.X.nnz / max(1, data.n_rows * data.n_features)
    return SimpleNamespace(
        n_rows=data.n_rows,
        n_features=data.n_features,
        n_queries=data.n_queries,
        pairs=pairs,
        n_pairs=int(pairs.sum()),
        n_with_pairs=int((pairs > 0).sum()),
        n_single=int((sizes == 1).sum()),
        n_tied=int(((sizes > 1) & (pairs == 0)).sum()),
        n_levels=n_levels,
        label_edges=levels,  # the labels, or the edges of a histogram: one more than counts
        label_counts=counts,
        sizes=np.quantile(sizes, [0, 0.5, 1], method="nearest").astype(int).tolist(),
        density=density,
    )


# -- preprocessing ------------------------------------------------------------------------------


def encoder_of(*tables: Any) -> TableEncoder | None:
    """Return an encoder for raw tables, which keeps id columns; None if they are numeric."""
    for X in tables:
        if sparse.issparse(X):
            continue
        values = None if isinstance(X, RawTable) else np.asarray(X)
        if values is None or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            return TableEncoder(drop_ids=False)
    return None


class Steps:
    """An optional imputer and an optional scaler, which are fitted by ``fit=True``."""

    def __init__(self, imputer: Any, scaler: Any) -> None:
        for name, step in (("imputer", imputer), ("scaler", scaler)):
            if step is not None and (isinstance(step, type) or not hasattr(step, "transform")):
                raise ValueError(f"{name} must have fit and transform; got {step!r}")
        self.imputer = None if imputer is None else clone(imputer)
        self.scaler = None if scaler is None else clone(scaler)
        self.by_query = isinstance(scaler, QueryScaler)

    def fill_in(self, X: Any, *, fit: bool = False) -> Any:
        """Impute missing features."""
        if self.imputer is None:
            return X
        if not isinstance(self.imputer, TableEncoder):
            kinds = (np.float64, np.float32)
            X = check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite="allow-nan")
        return self.imputer.fit_transform(X) if fit else self.imputer.transform(X)

    def scale(self, data: Rankings, *, fit: bool = False) -> Rankings:
        """Rows with scaled features, which also keep the unscaled ones."""
        if self.scaler is None:
            return data
        change = self.scaler.fit_transform if fit else self.scaler.transform
        X = change(data.X, **({"qid": data.qid} if self.by_query else {}))
        X = sparse.csr_array(X) if sparse.issparse(X) else X
        return replace(data, X=X, unscaled=data.X)

    def with_model(self, model: Any) -> Any:
        """A pipeline of the steps and the fitted model."""
        both = (("impute", self.imputer), ("scale", self.scaler))
        steps = [(name, step) for name, step in both if step is not None]
        return Pipeline([*steps, ("rank", model)]) if steps else model
