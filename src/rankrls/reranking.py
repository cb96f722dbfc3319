"""Re-ranking of candidate lists (n-best lists), such as parses, translations or answers.

Lists of candidates become (X, y, qid), and scores of a ranker a choice for each list.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse as sp
from sklearn.feature_extraction import DictVectorizer

from rankrls._calls import takes_queries
from rankrls._validation import check_finite_array, check_length, encode_qid, label_array, show

__all__ = ["Candidates", "RerankingScores", "best_candidates", "reranking_scores"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Lists of candidates as rows (X, y, qid) for rankers.

    Attributes
    ----------
    X : {ndarray, csr_array} of shape (n_candidates, n_features)
    y : ndarray of shape (n_candidates,), or None
        How good each candidate is.
    qid : ndarray of shape (n_candidates,)
        List of each candidate, given by its key or its index.
    vectorizer : DictVectorizer, or None
        Maps named features to columns; for `from_lists` of new data.

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.reranking import Candidates, best_candidates
    >>> train = Candidates.from_lists({
    ...     "s1": ([{"nsubj": 1, "dobj": 1}, {"nsubj": 1, "dep": 1}], [0.9, 0.4]),
    ...     "s2": ([{"dep": 2}, {"nsubj": 1, "dep": 1}], [0.1, 0.7]),
    ... })
    >>> ranker = RankRLS(alpha=0.1).fit(train.X, train.y, qid=train.qid)
    >>> best_candidates(ranker.predict(train.X), qid=train.qid)
    {'s1': 0, 's2': 1}
    """

    X: Any
    y: Array | None
    qid: Array
    vectorizer: DictVectorizer | None = None

    @classmethod
    def from_lists(cls, lists: Any, *, vectorizer: DictVectorizer | None = None) -> Candidates:
        """Concatenate lists of candidates.

        Parameters
        ----------
        lists : mapping of key → (features, scores), or iterable of (features, scores)
            ``features`` holds the n candidates of one list: an array or sparse matrix of shape (n,
            n_features), or n dicts for `DictVectorizer`, or a data frame, which stands for the
            dicts of its rows. ``scores`` holds n numbers, higher =
            better, or is None in all lists.
        vectorizer : DictVectorizer, optional
            Fitted vectorizer for dicts, so that new data get the same columns.

        Returns
        -------
        Candidates
        """
        items = _items(lists)
        rows, scores, keys = [], [], []
        for key, item in items:
            features, given = _features(key, item[0]), item[1]
            size = features.shape[0] if hasattr(features, "shape") else len(features)
            if size == 0:
                raise ValueError(f"list {key!r} has no candidates: leave it out")
            rows.append(features)
            keys += [key] * size
            if given is not None:
                values = check_finite_array(f"scores of list {key!r}", given, ndim=(1,))
                check_length(f"scores of list {key!r}", values, size, of="candidates")
                scores.append(values)
        if scores and len(scores) < len(items):
            raise ValueError(
                "scores are None in some lists but not in others; give all of them, or none"
            )
        X, vectorizer = _stack(rows, vectorizer)
        y = np.concatenate(scores) if scores else None
        return cls(X, y, label_array("lists", keys), vectorizer)


@takes_queries
def best_candidates(y_score: ArrayLike, *, qid: Any) -> dict[Any, int]:
    """Choose the candidate with the highest score in each list, the first if scores tie.

    Parameters
    ----------
    y_score, qid : array-like of shape (n_candidates,)
        Predicted scores, and the list of each candidate, in any order.

    Returns
    -------
    dict
        Index of the best candidate within each list, from 0, with lists in the order of their first
        candidates.
    """
    score = check_finite_array("y_score", y_score, ndim=(1,))
    queries, order = _by_list(qid, len(score))
    labels, codes = queries.labels, queries.codes
    starts = np.searchsorted(codes[order], np.arange(len(labels)))
    number = np.empty(len(score), dtype=np.int64)  # of each candidate in its list
    number[order] = np.arange(len(score)) - starts[codes[order]]
    best = np.lexsort((number, -score, codes))[starts]
    names = labels.tolist() if hasattr(labels, "tolist") else labels
    return {names[code]: int(number[best[code]]) for code in np.argsort(order[starts])}


@dataclass(frozen=True)
class RerankingScores:
    """Mean score, over lists, of the chosen candidates.

    Attributes
    ----------
    first_choice : float
        Score of the candidates that the ranker ranks first; expected, if several are tied.
    baseline : float
        Score of the first choices of the system that made the lists.
    oracle : float
        Score of the best candidates, an upper bound for any ranker.
    random : float
        Expected score of candidates drawn at random.
    n_lists : int
    """

    first_choice: float
    baseline: float
    oracle: float
    random: float
    n_lists: int

    @property
    def recovered(self) -> float:
        """Fraction of the gap between baseline and oracle that is closed; NaN without a gap."""
        room = self.oracle - self.baseline
        return (self.first_choice - self.baseline) / room if room else float("nan")


@takes_queries
def reranking_scores(
    y_true: ArrayLike, y_score: ArrayLike, *, qid: Any, baseline: ArrayLike | None = None
) -> RerankingScores:
    """Evaluate the candidates that a ranker ranks first.

    Parameters
    ----------
    y_true, y_score, qid : array-like of shape (n_candidates,)
        How good each candidate is, its predicted score, and its list, in any order.
    baseline : array-like of shape (n_candidates,), optional
        Scores of the system that made the lists. By default the candidates of each list are in
        its order, best first.

    Returns
    -------
    RerankingScores
    """
    truth, score = (
        check_finite_array(name, values, ndim=(1,))
        for name, values in (("y_true", y_true), ("y_score", y_score))
    )
    queries, order = _by_list(qid, len(truth))
    own = np.empty(len(truth))
    own[order] = -np.arange(len(truth))
    if baseline is not None:
        own = check_finite_array("baseline", baseline, ndim=(1,))
    for name, values in (("y_score", score), ("baseline", own)):
        check_length(name, values, len(truth), of="entries of y_true")
    codes = queries.codes
    return RerankingScores(
        first_choice=_expected(truth, score, codes),
        baseline=_expected(truth, own, codes),
        oracle=_expected(truth, truth, codes),
        random=_expected(truth, np.zeros(len(truth)), codes),
        n_lists=len(queries),
    )


def _expected(truth: Array, by: Array, codes: Array) -> float:
    """Mean over lists of the mean score of the candidates with the highest ``by``."""
    highest = np.full(int(codes.max()) + 1, -np.inf)
    np.maximum.at(highest, codes, by)
    first = by == highest[codes]
    return float((np.bincount(codes[first], truth[first]) / np.bincount(codes[first])).mean())


def _by_list(qid: Any, n: int) -> tuple[Any, Array]:
    """The lists, and rows in a stable order by list."""
    if n == 0:
        raise ValueError("y_score is empty; give at least one candidate")
    if qid is None:
        raise ValueError("qid is None; give the list of each candidate")
    queries = encode_qid(qid, n, of="candidates")
    return queries, np.argsort(queries.codes, kind="stable")


def _items(lists: Any) -> list[tuple[Any, Any]]:
    """Return the lists with their keys, or their numbers."""
    items = list(lists.items() if isinstance(lists, Mapping) else enumerate(lists))
    if not items:
        raise ValueError("lists is empty; give at least one list of candidates")
    no_features = (Mapping, str, numbers.Number, np.generic)  # a candidate, or a key
    for key, item in items:
        is_pair = isinstance(item, tuple | list) and len(item) == 2
        if not is_pair or isinstance(item[0], no_features):
            raise ValueError(
                f"list {key!r} must be a pair (features, scores), of which scores may be None; got "
                f"{show(item)} (pass dict(lists) if they are pairs of a key and a list)"
            )
    return items


def _features(key: Any, features: Any) -> Any:
    """Candidates of a list: a sparse matrix, an array, or a list of dicts."""
    if sp.issparse(features):
        return features
    if hasattr(features, "columns"):  # by their names, which may be in another order in each list
        features = nw.from_native(features, eager_only=True).rows(named=True)
    if not isinstance(features, np.ndarray) and hasattr(features, "__iter__"):
        features = list(features)
        if all(isinstance(one, Mapping) for one in features):
            return features
    return check_finite_array(f"features of list {key!r}", features, ndim=(2,))


def _stack(rows: list[Any], vectorizer: DictVectorizer | None) -> tuple[Any, DictVectorizer | None]:
    named = [isinstance(features, list) for features in rows]
    if all(named):
        flat = [one for features in rows for one in features]
        if vectorizer is None:
            vectorizer = DictVectorizer().fit(flat)
        X = vectorizer.transform(flat)
        return sp.csr_array(X) if sp.issparse(X) else X, vectorizer
    if any(named) or vectorizer is not None:
        raise ValueError(
            "features must be dicts in all lists, or arrays in all lists; a vectorizer needs dicts"
        )
    widths = {features.shape[1] for features in rows}
    if len(widths) > 1:
        raise ValueError(f"features of the lists have different numbers of columns: {widths}")
    if any(sp.issparse(features) for features in rows):
        return sp.csr_array(sp.vstack(rows, format="csr")), None
    return np.concatenate(rows), None
