"""Texts as numbers: components of tf-idf vectors, and how well a document matches a query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]

#: Words are hashed to this many numbers, so that words that are new in a query can be matched, too.
N_HASHED = 2**18

#: Number of the most frequent words from which components are computed, and of components.
N_WORDS, N_COMPONENTS = 5000, 64

#: Names of the match features.
MATCHES = ("cosine", "weighted overlap", "overlap")


def unit_rows(X: sparse.csr_array) -> sparse.csr_array:
    """Scale sparse rows to length 1, in place."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(X.indptr))
    return X


@cache
def _hasher() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer  # slow to import

    return HashingVectorizer(
        n_features=N_HASHED, token_pattern=r"(?u)\w+", norm=None, alternate_sign=False
    )


def count_words(texts: Array) -> sparse.csr_array:
    """Count the words of each text, shape (n_texts, N_HASHED); repeated texts are read once."""
    different, places = np.unique(texts, return_inverse=True)
    return sparse.csr_array(_hasher().transform(different))[places]


@dataclass(frozen=True)
class TextModel:
    """Weights of words and components of a text column."""

    words: Array  # hashed words of the training rows, ascending, (n_words,)
    idf: Array  # log((1 + n_rows) / (1 + number of rows with the word)) + 1, (n_words,)
    unseen: float  # the same for other words
    frequent: Array  # hashed words that components are computed from, (n_frequent,)
    axes: Array  # right singular vectors of the tf-idf matrix, (n_frequent, n_components)

    @classmethod
    def learn(cls, counts: sparse.csr_array, *, components: bool) -> TextModel:
        """Learn the weights and, if asked for, the components of counted training rows."""
        from sklearn.utils.extmath import randomized_svd

        n_rows = counts.shape[0]
        rows = np.bincount(counts.indices, minlength=N_HASHED)
        words = np.flatnonzero(rows)
        idf = np.log((1 + n_rows) / (1 + rows[words])) + 1
        model = cls(words, idf, float(np.log(1.0 + n_rows) + 1), words[:0], np.zeros((0, 0)))
        repeated = words[rows[words] > 1]
        if not components or not len(repeated):
            return model
        frequent = np.sort(repeated[np.argsort(-rows[repeated], kind="stable")[:N_WORDS]])
        some = _columns(model.weighted(counts), frequent)
        k = min(N_COMPONENTS, len(frequent), n_rows - 1)
        # Drawn for the columns, not the rows: components do not depend on the order of rows.
        _, sizes, axes = randomized_svd(some, k, n_iter=4, random_state=0, transpose=False)
        axes = np.ascontiguousarray(axes[sizes > 1e-6 * sizes[0]].T)
        return cls(words, idf, model.unseen, frequent, axes)

    def is_consistent(self) -> bool:
        """Whether the words are in range, for models read from files."""
        words = np.concatenate([self.words, self.frequent])
        return bool(((words >= 0) & (words < N_HASHED)).all())

    def _weights(self, words: Array) -> Array:
        places = np.searchsorted(self.words, words)
        known = np.append(self.words, -1)[places] == words
        return np.append(self.idf, self.unseen)[np.where(known, places, -1)]

    def weighted(self, counts: sparse.csr_array) -> sparse.csr_array:
        """Return tf-idf vectors, (1 + log tf) idf, of length 1."""
        values = counts.copy()
        values.data = (1 + np.log(values.data)) * self._weights(values.indices)
        return unit_rows(values)

    def components(self, counts: sparse.csr_array) -> Array:
        """Return the components of counted texts, shape (n_rows, n_components)."""
        return _columns(self.weighted(counts), self.frequent) @ self.axes

    def matches(self, query: sparse.csr_array, document: sparse.csr_array) -> Array:
        """Return the `MATCHES` of counted queries and documents, shape (n_rows, 3)."""
        cosine = self.weighted(query).multiply(self.weighted(document)).sum(axis=1)
        asked, found = query > 0, [np.asarray(cosine).ravel()]
        both = asked.multiply(document > 0).tocsr()
        for weights in (self._weights, np.ones_like):
            some, every = (
                sparse.csr_array((weights(one.indices), one.indices, one.indptr), one.shape)
                for one in (both, asked)
            )
            total = every.sum(axis=1)
            found.append(some.sum(axis=1) / np.where(total > 0, total, 1))
        return np.column_stack(found)


def _columns(X: sparse.csr_array, columns: Array) -> sparse.csr_array:
    """Ascending columns of sparse rows, without an array of all columns."""
    places = np.minimum(np.searchsorted(columns, X.indices), len(columns) - 1)
    kept = columns[places] == X.indices
    ends = np.append(0, np.cumsum(kept))[X.indptr]
    return sparse.csr_array((X.data[kept], places[kept], ends), shape=(X.shape[0], len(columns)))
