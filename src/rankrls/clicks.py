"""Labels from click logs, with the effect of the position removed.

The position-based model: P(click) = examination(position) × relevance(query, item). Where items
were shown at several positions, the examination θ of the positions follows from the counts alone.
Then clicks / Σ impressions·θ is an unbiased estimate of the relevance, and RankRLS, whose squared
loss is linear in the labels, learns from it without bias.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.stats import t

from rankrls._calls import warn
from rankrls._frames import data_frame
from rankrls._resources import pyarrow, pyplot
from rankrls._validation import check_finite_array, check_integer, check_option
from rankrls.datasets.formats import find_delimiter, missing_column, sniff

__all__ = [
    "ClickLabels",
    "Examination",
    "ExpectedClicks",
    "click_labels",
    "estimate_examination",
    "expected_clicks",
]

Array = NDArray[Any]

#: Clicks on items that were shown elsewhere, too, that a position needs for an estimate of its own.
MIN_CLICKS = 20
#: Rows of a file that are read at a time.
BATCH_ROWS = 1 << 20
#: Any finite number.
LEAST = float(np.finfo(float).min)


# -- reading ------------------------------------------------------------------------------------


def _tables(log: Any, columns: list[str]) -> Iterator[Any]:
    """Parts of a log as pyarrow tables of these columns."""
    pa, where = pyarrow(), "the log"
    if isinstance(log, str | os.PathLike):
        where = os.fspath(log)
        log = open_log(where)
        names = log.schema.names
    elif isinstance(log, Mapping):
        names = list(log)
    else:
        if hasattr(log, "to_delayed"):  # a Dask data frame
            log = (part.compute() for part in log.to_delayed())
        log = nw.from_native(
            pa.table(log) if isinstance(log, pa.RecordBatch) else log, pass_through=True
        )
        if not isinstance(log, nw.DataFrame | nw.LazyFrame):
            if hasattr(log, "read") or not hasattr(log, "__iter__"):
                raise ValueError(
                    "log must be a data frame, a dict of columns, the name of a CSV or Parquet "
                    f"file, or an iterable of them; got a {type(log).__name__}"
                )
            for part in log:
                yield from _tables(part, columns)
            return
        names = log.collect_schema().names()
    for name in columns:
        if name not in names:
            raise ValueError(f"{where}: {missing_column('a log', name, names)}")
    try:
        if isinstance(log, Mapping):
            found = {name: np.asarray(log[name]) for name in columns}
            yield pa.table({name: pa.array(one, from_pandas=True) for name, one in found.items()})
        elif isinstance(log, nw.DataFrame | nw.LazyFrame):
            yield log.lazy().select(columns).collect().to_arrow()
        else:
            yield from map(pa.table, log.to_batches(columns=columns, batch_size=BATCH_ROWS))
    except pa.ArrowException as error:
        raise ValueError(
            f"{where}: {str(error).splitlines()[0]} (a column has one type, in files that of the "
            "first rows: convert it, as by astype(str), or pass a data frame)"
        ) from error


def open_log(path: str, delimiter: str | None = None) -> Any:
    """A CSV, Parquet, Arrow or JSON file, or a directory of Parquet files, as a data set."""
    import pyarrow.csv
    import pyarrow.dataset

    kind = sniff(path, named=True)
    format: Any = {"jsonl": "json"}.get(kind, kind)
    if kind == "csv":
        parsing = pyarrow.csv.ParseOptions(delimiter=delimiter or find_delimiter(path))
        format = pyarrow.dataset.CsvFileFormat(parsing)
    elif path.lower().endswith((".arrow", ".feather", ".ipc")):
        format = "feather"
    return pyarrow.dataset.dataset(path, format=format)


def _cells(column: Any, name: str, least: float | None = None) -> Any:
    """A column without empty cells; with ``least``, as finite numbers that are not smaller."""
    pa = pyarrow()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    empty = pa.compute.is_null(column, nan_is_null=True)
    if pa.types.is_nested(column.type):
        raise ValueError(f"column {name!r} of the log must hold numbers or text: {column.type}")
    if "string" in str(column.type):
        empty = pa.compute.or_(empty, pa.compute.fill_null(pa.compute.equal(column, ""), False))
    elif pa.types.is_binary(column.type):
        try:
            column = column.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {name!r} of the log is no text in UTF-8: {error}") from error
    if n_empty := pa.compute.sum(empty).as_py():
        raise ValueError(
            f"column {name!r} of the log is empty in {n_empty:,} of {len(column):,} rows: leave "
            "these rows out"
        )
    if least is None:
        return column
    what = f"column {name!r} of the log must hold finite numbers" + " >= 0" * (least == 0)
    try:
        numbers = column.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"{what}: {error}") from error
    low, high = pa.compute.min_max(numbers).as_py().values()
    if len(numbers) and not least <= low <= high < np.inf:
        raise ValueError(
            f"{what}; got {low:g} to {high + 0.0:g} (leave out rows with a number for what is "
            "unknown)"
        )
    return numbers


class _Counts(NamedTuple):
    """Query and item (n,), positions (m,), and their impressions and clicks, sparse (n, m)."""

    query: Array
    item: Array
    positions: Array
    shown: Any
    clicks: Any


def _count(
    log: Any, query: str, item: str, position: str, clicks: str, impressions: str | None, model: str
) -> _Counts:
    """Sum a log by query, item and position, part by part."""
    wanted = [query, item, position, clicks, *([impressions] if impressions is not None else [])]
    if len(set(wanted)) < len(wanted):
        raise ValueError(
            f"query, item, position, clicks and impressions must be different columns; got {wanted}"
        )
    pa, keys, least = pyarrow(), ["query", "item", "position"], 0 if model == "position" else LEAST

    def merged(tables: list[Any]) -> Any:
        try:
            joined = pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise ValueError(
                f"the parts of the log have columns of different types, which would not match "
                f"({error}): convert them, as by astype(str)"
            ) from error
        out = joined.group_by(keys).aggregate([("clicks", "sum"), ("impressions", "sum")])
        return out.rename_columns([*keys, "clicks", "impressions"])

    parts: list[Any] = []  # the first one is the sum so far
    n_rows = n_more = 0
    for table in _tables(log, wanted):
        columns = [_cells(table[name], name) for name in (query, item)]
        columns += [_cells(table[position], position, 0), _cells(table[clicks], clicks, least)]
        columns.append(
            pa.array(np.ones(len(table)))
            if impressions is None
            else _cells(table[impressions], impressions, 0)
        )
        parts.append(pa.table(columns, names=[*keys, "clicks", "impressions"]))
        n_rows += len(table)
        n_more += pa.compute.sum(pa.compute.greater(*columns[3:])).as_py() or 0
        if sum(map(len, parts[1:])) > max(2 * BATCH_ROWS, len(parts[0])):
            parts = [merged(parts)]
    if not n_rows:
        raise ValueError("the log has no rows (an iterator can be read only once: pass a list)")
    if model == "position" and n_more:
        warn(
            f"{n_more:,} of {n_rows:,} counts in the log have more clicks than impressions, and "
            "labels may exceed 1: name the column of impressions=, count repeated clicks of an "
            "impression once, or use model='additive' for feedback that is no count"
        )
    total = merged(parts).sort_by([("query", "ascending"), ("item", "ascending")])
    codes = [pa.compute.dictionary_encode(total[key]).combine_chunks() for key in keys[:2]]
    of_query, of_item = (np.asarray(code.indices, dtype=np.int64) for code in codes)
    first = np.concatenate([[True], (np.diff(of_query) != 0) | (np.diff(of_item) != 0)])
    names = [np.asarray(code.dictionary.to_numpy(zero_copy_only=False)) for code in codes]
    positions, column = np.unique(total["position"].to_numpy(), return_inverse=True)
    if (positions != np.rint(positions)).any():
        warn(
            f"column {position!r} has positions that are no integers, such as "
            f"{positions[positions != np.rint(positions)][0]:g}: a mean position does not tell "
            "where an item was shown"
        )
    at, shape = (np.cumsum(first) - 1, column), (int(first.sum()), len(positions))
    return _Counts(
        names[0][of_query[first]],
        names[1][of_item[first]],
        positions,
        sparse.csr_array((total["impressions"].to_numpy(), at), shape=shape),
        sparse.csr_array((total["clicks"].to_numpy(), at), shape=shape),
    )


# -- examination --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Examination:
    """Probability that a position is examined, relative to the first one.

    Attributes
    ----------
    positions : ndarray of shape (n_positions,)
        Positions of the log, ascending.
    examination, std : ndarray of shape (n_positions,)
        θ, 1 at the first position (``model="additive"``: the effect of the position on the
        feedback, 0 at the first one), and its standard error, by query; NaN if θ was given.
    n_clicks : ndarray of shape (n_positions,)
        Clicks on items that were shown at another position, too: what θ is estimated from.
    group : ndarray of shape (n_positions,), int
        Positions with the same number share one estimate.
    model : {"position", "additive"}
    """

    positions: Array
    examination: Array
    std: Array
    n_clicks: Array
    group: Array
    model: str = "position"

    def __repr__(self) -> str:
        both = zip(self.positions[:6], self.examination, strict=False)
        shown = ", ".join(f"{position:g}: {theta:.3f}" for position, theta in both)
        return f"Examination({shown}{', …' * (len(self.positions) > 6)})"

    def to_frame(self) -> Any:
        """Return position, examination, std, n_clicks and group as a pandas data frame."""
        names = ("examination", "std", "n_clicks", "group")
        return data_frame({"position": self.positions} | {n: getattr(self, n) for n in names})

    def at(self, positions: Array) -> Array:
        """θ of positions; those that the log did not have get that of the nearest one above."""
        place = np.searchsorted(self.positions, positions, side="right") - 1
        return self.examination[np.maximum(place, 0)]

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the examination by position with 95 % intervals; returns the axes."""
        ax = pyplot().subplots(layout="constrained")[1] if ax is None else ax
        error = 1.96 * np.nan_to_num(self.std)
        ax.errorbar(self.positions, self.examination, yerr=error, fmt="o-", capsize=3)
        is_additive = self.model == "additive"
        ax.set(xlabel="position", ylabel="effect of the position" if is_additive else "examination")
        ax.set_ylim(bottom=None if is_additive else 0)
        return ax


def estimate_examination(
    log: Any,
    *,
    query: str = "query",
    item: str = "item",
    position: str = "position",
    clicks: str = "clicks",
    impressions: str | None = None,
    model: str = "position",
    monotone: bool = False,
) -> Examination:
    """Estimate how often each position is examined, from items shown at several positions.

    Parameters
    ----------
    log : data frame, dict of columns, name of a file, Dask data frame, or iterable of them
        A row is one impression of an item, or counts of several. Several logs add up. Files are
        CSV, Parquet, Arrow or JSON lines.
    query, item, position, clicks : str
        Columns. Positions are numbers >= 0; the smallest is the first of the list.
    impressions : str, optional
        Column of the number of impressions of a row; by default each row is one.
    model : {"position", "additive"}, default="position"
        "position": E[clicks] = impressions × θ(position) × relevance. "additive": the mean feedback
        is relevance + effect(position), for feedback that is not a count of clicks.
    monotone : bool, default=False
        Whether examination must not increase with the position; positions that violate this are
        estimated together.

    Returns
    -------
    Examination

    Notes
    -----
    Given their sum, the clicks of an item are distributed over its positions in proportion to
    impressions × θ. Newton steps maximise this likelihood; standard errors are those of the
    sandwich, by query. Positions with fewer than 20 clicks share the estimate of the one before. A
    log in which no item with a click was shown at two positions is an error.
    """
    check_option("model", model, ("position", "additive"))
    counts = _count(log, query, item, position, clicks, impressions, model)
    # What tells: items at several positions, which were clicked where they were shown.
    moved = counts.shown > 0
    clicked = counts.clicks * moved
    good = moved.sum(axis=1) > 1
    if model == "position":
        good &= clicked.sum(axis=1) > 0
    moved = sparse.csr_array(sparse.diags_array(good.astype(float)) @ moved)
    informative = ((clicked if model == "position" else counts.shown) * moved).sum(axis=0)
    if not informative.any():
        raise ValueError(
            "no item with a click was shown at two positions, so the log cannot tell which "
            "positions are examined from which items are relevant. Show some items at random "
            "positions (a few per cent of the sessions, or neighbours exchanged), interleave two "
            "rankers, or give examination= by hand"
        )
    group = _pooled(informative, moved)
    if not group.any():
        warn(
            f"only {informative.sum():g} {'clicks' if model == 'position' else 'impressions'} of "
            "the log tell positions apart, so all share one estimate, and labels are plain means: "
            "use a longer log, or give examination= by hand"
        )
    fit = _additive if model == "additive" else _position_based
    while True:
        P = _sums_by(group)
        theta, std = fit(counts.shown @ P, clicked @ P, counts.query)
        rises = np.flatnonzero((np.diff(theta) > 0) & monotone)
        if not len(rises):
            break
        group = np.where(group > rises[0], group - 1, group)
    return Examination(counts.positions, theta[group], std[group], informative, group, model)


def _sums_by(group: Array) -> Any:
    """Matrix that sums columns, or by its transpose rows, by group."""
    return sparse.csr_array((np.ones(len(group)), (np.arange(len(group)), group)))


def _pooled(informative: Array, moved: Any) -> Array:
    """Group of each position; few clicks, or no link to others: that of the one before."""
    group, total, current = np.zeros(len(informative), dtype=np.int64), 0.0, 0
    for k, count in enumerate(informative):
        if total >= MIN_CLICKS:
            current, total = current + 1, 0.0
        group[k], total = current, total + count
    if total < MIN_CLICKS and current:  # the last group
        group[group == current] = current - 1
    while group[-1]:
        links = moved @ _sums_by(group)
        part = connected_components(links.T @ links, directed=False)[1]
        apart = np.flatnonzero(part != part[0])
        if not len(apart):
            return group
        group = np.where(group >= apart[0], group - 1, group)
    return group


def _position_based(shown: Any, clicks: Any, query: Array) -> tuple[Array, Array]:
    """θ of each group and its standard error, by Newton steps on log θ; θ of the first is 1."""
    n, K = shown.shape
    total = clicks.sum(axis=1)
    b, best, step = np.zeros(K), -np.inf, np.zeros(K)
    for _ in range(100):
        for halvings in range(30):
            new = b + step / 2**halvings
            expected = shown @ np.exp(new)
            used = total > 0
            value = clicks.sum(axis=0) @ new - total[used] @ np.log(expected[used])
            if value >= best - 1e-12 * abs(best):
                break
        done = value - best <= 1e-12 * abs(value)
        b, best = new, value
        weight = np.zeros(n)
        np.divide(total, expected, out=weight, where=used)
        share = shown * np.exp(b)  # rows: impressions × θ
        scores = clicks - sparse.diags_array(weight) @ share
        inner = sparse.diags_array(weight / np.where(used, expected, 1.0))
        H = np.diag(weight @ share) - (share.T @ inner @ share).toarray()
        step = np.zeros(K)
        step[1:] = np.linalg.lstsq(H[1:, 1:], scores.sum(axis=0)[1:], rcond=None)[0]
        if done:
            break
    return np.exp(b), np.exp(b) * _sandwich(H, scores, query)


def _additive(shown: Any, clicks: Any, query: Array) -> tuple[Array, Array]:
    """Effect of each group on the mean feedback, by least squares within items; the first is 0."""
    K = shown.shape[1]
    size = np.maximum(shown.sum(axis=1), np.finfo(float).tiny)
    centred = shown.T @ sparse.diags_array(1.0 / size) @ shown
    H = np.diag(shown.sum(axis=0)) - centred.toarray()
    mean = clicks.sum(axis=1) / size
    right = clicks.sum(axis=0) - mean @ shown
    b = np.zeros(K)
    b[1:] = np.linalg.lstsq(H[1:, 1:], right[1:], rcond=None)[0]
    level = mean - (shown @ b) / size
    scores = clicks - shown * b - sparse.diags_array(level) @ shown
    return b, _sandwich(H, sparse.csr_array(scores), query)


def _sandwich(H: Array, scores: Any, query: Array) -> Array:
    """Standard errors of all but the first coefficient, with scores summed by query."""
    codes = np.unique(query, return_inverse=True)[1]
    if codes.max() + 1 < 10:  # too few queries: items
        codes = np.arange(len(codes))
    S = (_sums_by(codes).T @ scores).toarray()[:, 1:]
    inverse = np.linalg.pinv(H[1:, 1:], hermitian=True)
    variance = inverse @ (S.T @ S) @ inverse * len(S) / max(len(S) - 1, 1)
    return np.concatenate([[0.0], np.sqrt(np.maximum(variance.diagonal(), 0.0))])


# -- labels -------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ClickLabels:
    """Labels of queries and items: y and sample_weight of any ranker.

    Attributes
    ----------
    query, item : ndarray of shape (n,)
    label, weight : ndarray of shape (n,)
        Clicks over expected examinations, an unbiased estimate of the relevance; √examinations,
        with mean 1.
    clicks, impressions, examined : ndarray of shape (n,)
        Sums over the log; ``examined`` is Σ impressions × θ.
    n_left_out : int
        Items that were never examined, and have no label.
    """

    query: Array
    item: Array
    label: Array
    weight: Array
    clicks: Array
    impressions: Array
    examined: Array
    n_left_out: int = 0

    def __len__(self) -> int:
        return len(self.label)

    def __repr__(self) -> str:
        n_queries = len(np.unique(self.query))
        return f"ClickLabels({len(self):,} items of {n_queries:,} queries)"

    def to_frame(self) -> Any:
        """Return the columns as a pandas data frame."""
        names = ("query", "item", "label", "weight", "clicks", "impressions", "examined")
        return data_frame({name: getattr(self, name) for name in names})


def _given_examination(examination: Any) -> Examination:
    """An `Examination`, or one made of θ of positions 1, 2, and so on."""
    if isinstance(examination, Examination):
        return examination
    theta = np.asarray(None if isinstance(examination, Mapping) else examination, dtype=float)
    if theta.ndim != 1 or not len(theta) or not np.isfinite(theta).all() or theta.min() < 0:
        raise ValueError(
            "examination must come from estimate_examination, or be the examination of positions "
            f"1, 2, 3 … as numbers >= 0; got {examination!r}"
        )
    number = np.arange(len(theta))
    return Examination(number + 1.0, theta, np.nan * theta, 0 * theta, number)


def _known(ex: Examination, counts: _Counts) -> Array:
    """Examination of the positions of a log; a warning if it has some beyond those known."""
    if counts.positions[0] < ex.positions[0]:
        raise ValueError(
            f"the log has position {counts.positions[0]:g}, and the examination begins at position "
            f"{ex.positions[0]:g}: are the positions of the log counted from 0? Add 1 to them"
        )
    beyond = counts.positions > ex.positions[-1]
    if beyond.any():
        shown = counts.shown.sum(axis=0)
        warn(
            f"{shown[beyond].sum() / max(shown.sum(), 1):.1%} of the impressions are at positions "
            f"{counts.positions[beyond][0]:g} and below, and the examination ends at position "
            f"{ex.positions[-1]:g}, whose value is used for them"
        )
    return ex.at(counts.positions)


def click_labels(
    log: Any,
    *,
    query: str = "query",
    item: str = "item",
    position: str = "position",
    clicks: str = "clicks",
    impressions: str | None = None,
    examination: Any,
) -> ClickLabels:
    """Turn a click log into labels without position bias.

    Parameters
    ----------
    log, query, item, position, clicks, impressions
        As for `estimate_examination`.
    examination : Examination, or array-like of shape (n_positions,)
        From `estimate_examination`, or the examination of positions 1, 2, 3 … by hand.

    Returns
    -------
    ClickLabels

    Examples
    --------
    >>> from rankrls.clicks import click_labels
    >>> log = {"query": [1, 1], "item": ["a", "b"], "position": [1, 2], "clicks": [30, 20],
    ...        "n": [100, 100]}
    >>> click_labels(log, impressions="n", examination=[1.0, 0.5]).label.tolist()
    [0.3, 0.4]
    """
    ex = _given_examination(examination)
    counts = _count(log, query, item, position, clicks, impressions, ex.model)
    theta = _known(ex, counts)
    total, shown = counts.clicks.sum(axis=1), counts.shown.sum(axis=1)
    sums, examined = total, counts.shown @ theta
    if ex.model == "additive":
        sums, examined = total - examined, shown
    kept = np.flatnonzero(examined > 0)
    if not len(kept):
        raise ValueError(
            "no item of the log was examined: all impressions or examinations are zero"
        )
    weight = np.sqrt(examined[kept])
    # A relevance is at most 1; chance alone leaves no label so far above.
    above = total[kept] > examined[kept] + 5 * weight + 5
    if ex.model == "position" and above.any():
        warn(
            f"{int(above.sum()):,} of {len(kept):,} labels are above 1 by more than chance: their "
            "items have more clicks than expected examinations. Look for repeated clicks and bots, "
            "or for an examination that is too small"
        )
    return ClickLabels(
        counts.query[kept],
        counts.item[kept],
        sums[kept] / examined[kept],
        weight / weight.mean(),
        total[kept],
        shown[kept],
        examined[kept],
        len(total) - len(kept),
    )


# -- value of another ranking -------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedClicks:
    """Estimated clicks for one list of each query.

    Attributes
    ----------
    value, low, high, std : float
        Mean over queries, or of the difference from ``other``, its interval and standard error.
    p_value : float
        Two-sided; of a difference of zero.
    n_queries : int
    coverage : float
        Share of the examination of the new lists on items with an expected examination of 1 or more
        in the log; a warning if it is below 0.9.
    by_query : ndarray of shape (n_queries,)
    """

    value: float
    low: float
    high: float
    std: float
    p_value: float
    n_queries: int
    coverage: float
    by_query: Array


def expected_clicks(
    log: Any,
    scores: Any,
    *,
    other: Any = None,
    k: int | None = None,
    confidence: float = 0.95,
    query: str = "query",
    item: str = "item",
    position: str = "position",
    clicks: str = "clicks",
    impressions: str | None = None,
    examination: Any,
) -> ExpectedClicks:
    """Estimate the clicks that another ranking of the items of a log would get.

    Parameters
    ----------
    log, query, item, position, clicks, impressions, examination
        As for `click_labels`. Use another part of the log than the one that the ranker was trained
        on, such as other queries.
    scores : array-like of shape (n,), or callable
        Scores of the items in the order of ``click_labels(log, …)``, higher first, or a function of
        these `ClickLabels` that returns them.
    other : the same for a second ranking, optional
        If given, the result is the difference, ``scores`` less ``other``, paired by query.
    k : int, optional
        Length of the lists; by default all items of a query are shown.
    confidence : float, default=0.95

    Returns
    -------
    ExpectedClicks

    Notes
    -----
    The value of a list is Σ θ(new position) × label, the mean over all orders of equal scores.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    k = None if k is None else check_integer("k", k, least=1)
    ex = _given_examination(examination)
    columns: dict[str, Any] = {"query": query, "item": item, "position": position, "clicks": clicks}
    labels = click_labels(log, **columns, impressions=impressions, examination=ex)
    codes = np.unique(labels.query, return_inverse=True)[1]
    values, coverage = _list_values(labels, codes, scores, ex, k)
    if other is not None:
        second, covered = _list_values(labels, codes, other, ex, k)
        values, coverage = values - second, min(coverage, covered)
    n = len(values)
    if n < 2:
        raise ValueError("an interval needs at least two queries")
    if coverage < 0.9:
        warn(
            f"{1 - coverage:.0%} of the examination of the new lists falls on items that were "
            "hardly examined in the log, so it cannot tell their value; show these items to some "
            "users first"
        )
    mean, std = float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
    half = float(t.ppf(0.5 + confidence / 2, n - 1)) * std
    p_value = float(2 * t.sf(abs(mean) / std, n - 1)) if std > 0 else float(mean == 0)
    return ExpectedClicks(mean, mean - half, mean + half, std, p_value, n, coverage, values)


def _list_values(
    labels: ClickLabels, codes: Array, scores: Any, ex: Examination, k: int | None
) -> tuple[Array, float]:
    """Value of every query's list, and the share of examination on items that were examined."""
    f = check_finite_array("scores", scores(labels) if callable(scores) else scores, ndim=(1,))
    if f.shape != (len(labels),):
        raise ValueError(
            f"scores has shape {f.shape}; it must have one score for each of the {len(labels)} "
            "items of click_labels(log, …)"
        )
    order = np.lexsort((-f, codes))
    start = np.flatnonzero(np.concatenate([[True], np.diff(codes[order]) != 0]))
    rank = np.arange(len(f)) - np.repeat(start, np.diff(np.append(start, len(f))))
    theta = ex.at(ex.positions[0] + rank)
    if ex.model == "additive":
        theta = np.ones(len(f))
    if k is not None:
        theta = np.where(rank < k, theta, 0.0)
    elif ex.positions[0] + rank.max() > ex.positions[-1] and ex.model == "position":
        warn(
            f"some lists have {rank.max() + 1} items, and the log tells about {len(ex.positions)} "
            "positions; the others count as the last of them. Pass k="
        )
    # The mean over all orders of items of equal score is that of their θ.
    tied = np.cumsum((rank == 0) | (np.diff(f[order], prepend=np.nan) != 0)) - 1
    theta = (np.bincount(tied, theta) / np.bincount(tied))[tied]
    values = np.add.reduceat(theta * labels.label[order], start)
    known = labels.examined[order] >= 1
    return values, float((theta * known).sum() / max(theta.sum(), np.finfo(float).tiny))
