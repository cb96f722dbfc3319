"""Paired tests, over queries, of whether one ranker is better than another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit
from sklearn.utils import check_random_state

from rankrls._calls import takes_queries
from rankrls._frames import check_same_rows
from rankrls._validation import check_integer, check_option, check_scores, is_number
from rankrls.metrics._evaluate import evaluate, evaluate_run
from rankrls.metrics.metric_names import COMPARED_METRICS, LIST_METRICS, parse_metric
from rankrls.rankings import Qrels, RankTable

Array = NDArray[Any]
# Number of signs drawn at a time, 32 MB as float64.
_CHUNK = 1 << 22
# Values that differ by less, relative to their size, are equal but for rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class RankerComparison:
    """Result of `compare_rankers`.

    Attributes
    ----------
    metric, method : str
        Names of the metric and of the test.
    mean_a, mean_b, difference : float
        Means of the metric over the compared queries, and ``mean_a - mean_b``.
    confidence_interval, confidence_level : tuple of float, and float
        Of the mean difference, by :func:`mean_interval`.
    p_value : float
        Two-sided p-value of the null hypothesis that the rankers are interchangeable.
    n_queries, n_a_better, n_b_better, n_equal : int
        Numbers of queries for which the metric is defined for both rankers, and of those on which
        a is better, b is better, and both are equal.
    """

    metric: str
    method: str
    mean_a: float
    mean_b: float
    difference: float
    confidence_interval: tuple[float, float]
    confidence_level: float
    p_value: float
    n_queries: int
    n_a_better: int
    n_b_better: int
    n_equal: int

    @property
    def pvalue(self) -> float:
        """The p-value, by SciPy's name."""
        return self.p_value

    def __str__(self) -> str:
        low, high = self.confidence_interval
        return (
            f"{self.metric} over {self.n_queries} queries: "
            f"a {self.mean_a:.4f}, b {self.mean_b:.4f}\n"
            f"a - b = {self.difference:+.4f}  "
            f"[{low:+.4f}, {high:+.4f}] at {100 * self.confidence_level:g}%, "
            f"p = {self.p_value:.3g} ({self.method} test, two-sided)\n"
            f"a better in {self.n_a_better}, b better in {self.n_b_better}, "
            f"equal in {self.n_equal}"
        )


@takes_queries
def compare_rankers(
    y_true: ArrayLike,
    y_score_a: ArrayLike,
    y_score_b: ArrayLike,
    *,
    qid: ArrayLike,
    metric: str = "pairwise_accuracy",
    method: str = "permutation",
    n_permutations: int = 9999,
    confidence_level: float = 0.95,
    random_state: Any = None,
    **options: Any,
) -> RankerComparison:
    """Test whether two rankers differ, given their scores for the same queries.

    Parameters
    ----------
    y_true, y_score_a, y_score_b, qid : array-like of shape (n_rows,)
        Labels, scores of the two rankers, and query of each row, in any order.
    metric : str, default="pairwise_accuracy"
        Name of a metric with a value for each query, as in :func:`evaluate`.
    method : {"permutation", "wilcoxon", "t"}, default="permutation"
        Sign-flip test of the mean difference, signed-rank test, or Student's paired t-test.
    n_permutations : int, default=9999
        Number of random sign flips; all are evaluated if there are at most this many.
    confidence_level : float, default=0.95
        Level of the confidence interval, which is that of :func:`mean_interval`.
    random_state : int, RandomState instance or None, default=None
        Seed of the random sign flips. Pass an int for reproducible p-values.
    **options
        Options of :func:`evaluate`: gain, relevance_threshold, max_grade, undefined.

    Notes
    -----
    With d_q the difference of the values in query q, the p-value is the share of the 2^n flips of
    signs with ``|Σ ±d_q| >= |Σ d_q|``; when flips are drawn at random, (1 + hits) / (1 + drawn).
    Queries are assumed to be independent; those for which the metric is undefined are excluded.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.metrics import compare_rankers
    >>> rng = np.random.default_rng(0)
    >>> qid, y = np.repeat(np.arange(40), 10), rng.integers(0, 3, 400)
    >>> good, bad = y + rng.normal(size=400), y + 3 * rng.normal(size=400)
    >>> print(compare_rankers(y, good, bad, qid=qid, random_state=0))
    pairwise_accuracy over 40 queries: a ..., b ...
    a - b = ...  [...] at 95%, p = 0.0001 (permutation test, two-sided)
    a better in ..., b better in ..., equal in ...
    """
    if qid is None:
        raise ValueError(
            "qid is None; give the query of every row, because rankers are compared query by query"
        )
    check_same_rows(y_true, "y_true", y_score_a=y_score_a, y_score_b=y_score_b, qid=qid)
    a, b = check_scores(y_score_a, name="y_score_a"), check_scores(y_score_b, name="y_score_b")
    if a.ndim != 1 or b.shape != a.shape:
        raise ValueError(
            "y_score_a and y_score_b must be 1-D and of equal length; got shapes "
            f"{a.shape} and {b.shape}"
        )
    name = parse_metric(metric, allowed=COMPARED_METRICS).text
    values = [
        evaluate(y_true, s, metrics=name, qid=qid, average=None, **options)[name] for s in (a, b)
    ]
    return _compare(name, values, method, n_permutations, confidence_level, random_state)


def compare_runs(
    run_a: RankTable,
    run_b: RankTable,
    qrels: Qrels,
    *,
    metric: str = "ndcg@10",
    method: str = "permutation",
    n_permutations: int = 9999,
    confidence_level: float = 0.95,
    random_state: Any = None,
    **options: Any,
) -> RankerComparison:
    """Test whether two runs differ on the judged queries.

    Parameters
    ----------
    run_a, run_b : RankTable
    qrels : Qrels
    metric : str, default="ndcg@10"
        Name of a list metric, as in :func:`evaluate_run`.
    method, n_permutations, confidence_level, random_state
        As in :func:`compare_rankers`.
    **options
        Options of :func:`evaluate_run`, such as gain, ties or missing_queries.
    """
    name = parse_metric(metric, allowed=LIST_METRICS).text
    values = [
        evaluate_run(run, qrels, metrics=name, average=None, **options)[name]
        for run in (run_a, run_b)
    ]
    return _compare(name, values, method, n_permutations, confidence_level, random_state)


def _compare(
    name: str,
    values: list[Array],
    method: str,
    n_permutations: int,
    confidence_level: float,
    random_state: Any,
) -> RankerComparison:
    """Compare two arrays of values by query, NaN if undefined."""
    a, b = values
    check_option("method", method, ("permutation", "wilcoxon", "t"))
    n_permutations = check_integer("n_permutations", n_permutations, least=1)
    defined = ~(np.isnan(a) | np.isnan(b))
    if defined.sum() < 2:
        known = "no query" if not defined.any() else "only one query"
        raise ValueError(
            f"{name} is defined for {known}, and rankers are compared by their values on "
            "several queries"
        )
    a, b = a[defined], b[defined]
    d = a - b
    d[np.abs(d) <= _ROUNDING * np.maximum(np.abs(a), np.abs(b))] = 0.0
    if method == "permutation":
        p_value = _sign_flip_p(d, n_permutations, check_random_state(random_state))
    elif not d.any():
        p_value = 1.0
    elif method == "wilcoxon":
        from scipy.stats import wilcoxon  # slow to import

        # Sizes that are equal but for rounding are ties.
        p_value = float(wilcoxon(np.round(d / np.abs(d).max(), 11)).pvalue)
    else:
        error = d.std(ddof=1) / np.sqrt(len(d))
        p_value = float(2 * stdtr(len(d) - 1, -abs(d.mean()) / error)) if error else 0.0
    return RankerComparison(
        metric=name,
        method=method,
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=float(d.mean()),
        confidence_interval=mean_interval(d, confidence_level=confidence_level, bounds=(-1.0, 1.0)),
        confidence_level=confidence_level,
        p_value=p_value,
        n_queries=len(d),
        n_a_better=int((d > 0).sum()),
        n_b_better=int((d < 0).sum()),
        n_equal=int((d == 0).sum()),
    )


def mean_interval(
    values: ArrayLike,
    *,
    confidence_level: float = 0.95,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> tuple[float, float]:
    """Confidence interval of the mean of a metric over queries.

    Parameters
    ----------
    values : array-like of shape (n_queries,)
        Values by query, such as those of ``evaluate(…, average=None)``; NaN is left out.
    confidence_level : float, default=0.95
    bounds : tuple of float or None, default=(0, 1)
        Smallest and largest value that the metric can have; None if they are unknown.

    Returns
    -------
    low, high : float
        NaN without a query, and without bounds if there is only one query.

    Notes
    -----
    Student's interval, mean ± t · std / √n, within the bounds. If all n values are equal, to c say,
    values that were not seen have probability at most ε = 1 − (1 − confidence_level)^(1/n), about
    3/n at 95 %, so that the mean is between c − ε (c − low bound) and c + ε (high bound − c).

    Examples
    --------
    >>> from rankrls.metrics import mean_interval
    >>> mean_interval([0.5, 0.75, 1.0, 0.25])
    (0.111..., 1.0)
    """
    if not is_number(confidence_level) or not 0 < float(confidence_level) < 1:
        raise ValueError(
            f"confidence_level must be a number between 0 and 1; got {confidence_level!r}"
        )
    level = float(confidence_level)
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    if n == 0 or (n == 1 and bounds is None):
        return np.nan, np.nan
    mean, (low, high) = float(known.mean()), bounds or (-np.inf, np.inf)
    outside = known[(known < low - 1e-9) | (known > high + 1e-9)]
    if len(outside):
        raise ValueError(f"bounds={bounds}, but a value is {outside[0]:g}; pass bounds=None")
    if np.ptp(known) > _ROUNDING * np.abs(known).max():
        below = above = float(stdtrit(n - 1, 0.5 + level / 2) * known.std(ddof=1) / np.sqrt(n))
    else:
        unseen = 1 - (1 - level) ** (1 / n)
        below, above = (unseen * gap if bounds else 0.0 for gap in (mean - low, high - mean))
    return max(low, mean - below), min(high, mean + above)


def _sign_flip_p(d: Array, n_permutations: int, rng: Any) -> float:
    """Two-sided p-value of the mean of ``d`` under independent sign flips."""
    d = d[d != 0]
    n = len(d)
    if n == 0:
        return 1.0
    # Sums that differ only by rounding count as equal. Σ ±d = Σ d − 2 Σ_{flipped} d.
    bound = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    exact = n < 63 and 2**n <= n_permutations
    n_flips = 2**n if exact else n_permutations
    hits = 0
    step = max(1, _CHUNK // n)
    for start in range(0, n_flips, step):
        rows = min(step, n_flips - start)
        flip: Array
        if exact:
            flip = (np.arange(start, start + rows)[:, None] >> np.arange(n)) & 1
        else:
            packed = np.frombuffer(rng.bytes(rows * ((n + 7) // 8)), dtype=np.uint8)
            flip = np.unpackbits(packed.reshape(rows, -1), axis=1, count=n)
        hits += int((np.abs(d.sum() - 2.0 * (flip.astype(np.float64) @ d)) >= bound).sum())
    return hits / n_flips if exact else (1 + hits) / (1 + n_flips)
