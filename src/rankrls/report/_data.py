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
from sklearn.utils import check_array

from rankrls import AutoRanker
from rankrls._frames import clear_errors, without_arrow
from rankrls._resources import REPORT_VECTORS, require_features
from rankrls._validation import check_length, check_scores, check_weights, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.metrics.counting import PairCounts, count_pairs
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["Rankings", "check_rankings", "prepare", "summarise"]

Array = NDArray[Any]

#: Up to this many distinct labels are shown one by one, more as a histogram.
MAX_LEVELS = 12


@dataclass(frozen=True)
class Rankings:
    """Rows of queries with labels.

    X has the features that are described, an array, CSR or kernel values; ``inputs`` are what the
    model takes: X, scaled features, or the raw table of an `AutoRanker`, with columns of
    ``input_names``, each of which is the column ``column_of`` of X (-1: none). ``codes`` are the
    query numbers of the rows, whose ids are ``labels``; ``has_qid`` is False for one ranking.
    """

    X: Any
    y: Array
    codes: Array
    labels: Sequence[Any]
    has_qid: bool
    feature_names: list[str]
    document_names: list[str] | None
    weight: Array | None
    inputs: Any
    input_names: list[str]
    column_of: Array

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

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

    def fit_options(self) -> dict[str, Any]:
        """Keyword arguments of ``fit``: query numbers and weights, if any."""
        both = {"qid": self.qid, "sample_weight": self.weight}
        return {name: values for name, values in both.items() if values is not None}

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
    qid: Any = None,
    *,
    feature_names: Any = None,
    document_names: Any = None,
    sample_weight: Any = None,
    where: str = "",
) -> Rankings:
    """Check data for a report; ``where`` precedes the names of arguments in error messages."""
    if isinstance(y, PreferenceGraph):
        raise ValueError(
            f"{where}y must hold labels, not given pairs: a page about pairwise judgements is "
            "write_report(path, pairs=table), or rankrls leaderboard -o"
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
    names = _names("feature_names", feature_names, n_features, "columns of X")
    names = names or [f"feature {j}" for j in range(n_features)]
    labels = check_scores(y, n_rows, name=f"{where}y", of=f"rows of {where}X")
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(
            f"{where}y has {labels.shape[1]} outputs and a report takes one; pass y[:, j]"
        )
    queries = encode_qid(qid, n_rows, name=f"{where}qid", of=f"rows of {where}X")
    weight = None
    if sample_weight is not None:
        weight = check_weights("sample_weight", sample_weight, n_rows)
    documents = _names("document_names", document_names, n_rows, f"rows of {where}X")
    return Rankings(checked, labels.reshape(n_rows), queries.codes, queries.labels,
                    qid is not None, names, documents, weight, checked, names,
                    np.arange(n_features))  # fmt: skip


def _names(what: str, names: Any, n: int, of: str) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} must be a list with one name for each of the {n} {of}")
    check_length(what, names, n, of)
    return ["" if name is None else str(name) for name in names]


def prepare(
    X: Any,
    y: Any,
    qid: Any,
    test: Any,
    *,
    estimator: Any,
    imputer: Any,
    scaler: Any,
    feature_names: Any = None,
    test_document_names: Any = None,
    **options: Any,
) -> tuple[Rankings, Rankings | None, dict[str, Any]]:
    """Check the data, fit imputer and scaler and apply them; encode raw tables to describe them."""
    steps = {name: clone(step) for name, step in (("impute", imputer), ("scale", scaler))
             if step is not None}  # fmt: skip
    if test is not None and (not isinstance(test, tuple | list) or len(test) not in (2, 3)):
        raise ValueError("test must be a tuple (X, y) or (X, y, qid)")
    given = [without_arrow(one) for one in ([X] if test is None else [X, test[0]])]
    features, encoder, auto = given, None, isinstance(estimator, AutoRanker) and not steps
    columns = getattr(given[0], "columns", None) if feature_names is None else feature_names
    names = columns
    if auto and any(map(_is_raw, given)):
        encoder = TableEncoder(drop_ids=False)
        features = [encoder.fit_transform(given[0]), *map(encoder.transform, given[1:])]
        names = encoder.get_feature_names_out(columns)
    elif imputer is not None:
        fill, kinds = steps["impute"], (np.float64, np.float32)
        checks: Any = {"accept_sparse": "csr", "dtype": kinds, "ensure_all_finite": "allow-nan"}
        features = [check_array(one, **checks) for one in given]
        features = [fill.fit_transform(features[0]), *map(fill.transform, features[1:])]
    train = check_rankings(features[0], y, qid, feature_names=names, **options)
    data = [train]
    if test is not None:
        _, y, qid = (*test, None)[:3]
        if train.has_qid != (qid is not None):
            raise ValueError("give qid for both the training data and test, or for neither")
        shape, n, new = np.shape(given[1]), len(train.feature_names), []
        if encoder is None and shape[1:] != (n,):
            raise ValueError(
                f"test X has shape {shape}; it must have {n} columns, like the training data"
            )
        if getattr(estimator, "kernel", None) != "precomputed":
            new = [str(name) for name in getattr(given[1], "columns", ())]
        if new != train.feature_names and sorted(new) == sorted(train.feature_names):
            raise ValueError("test X has the columns of the training data in a different order")
        data.append(check_rankings(features[1], y, qid, feature_names=train.feature_names,
                                   document_names=test_document_names, where="test "))  # fmt: skip
    if auto:
        data = [replace(one, inputs=table) for one, table in zip(data, given, strict=True)]
    if encoder is not None:
        n = np.shape(given[0])[1]
        own = _names("feature_names", columns, n, "columns of X")
        own = own or [f"feature {j}" for j in range(n)]
        of = [np.flatnonzero((encoder.sources_ == j) & (encoder.blocks_ == "number"))
              for j in range(n)]  # fmt: skip
        first = np.array([int(found[0]) if len(found) else -1 for found in of])
        data = [replace(one, input_names=own, column_of=first) for one in data]
    elif scaler is not None:
        data = [replace(one, inputs=_scaled(steps["scale"], one, fit=one is train)) for one in data]
    return data[0], data[1] if test is not None else None, steps


def _is_raw(X: Any) -> bool:
    """Whether a table is not an array of finite numbers."""
    values = None if sparse.issparse(X) else np.asarray(X)
    return values is not None and not (values.dtype.kind in "biuf" and np.isfinite(values).all())


def _scaled(scaler: Any, data: Rankings, *, fit: bool) -> Any:
    change = scaler.fit_transform if fit else scaler.transform
    X = change(data.X, **({"qid": data.qid} if isinstance(scaler, QueryScaler) else {}))
    return sparse.csr_array(X) if sparse.issparse(X) else X


def summarise(data: Rankings) -> SimpleNamespace:
    """Counts of one data set; a pair is two rows of one query with different labels."""
    pairs, sizes = data.pair_counts(data.y).comparable, data.sizes
    levels, counts = np.unique(data.y, return_counts=True)
    n_levels = len(levels)
    if n_levels > MAX_LEVELS:
        counts, levels = np.histogram(data.y, bins=MAX_LEVELS)
    return SimpleNamespace(
        n_rows=data.n_rows,
        n_features=len(data.input_names),
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
        density=data.X.nnz / max(1, np.prod(data.X.shape)) if sparse.issparse(data.X) else None,
    )
