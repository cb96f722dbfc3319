"""Reuters-21578 as P1 §5.4 uses it: documents of the ModApte split, one binary task a topic."""

from __future__ import annotations

import numpy as np
from _common import need, read_lines
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer


def read(n_topics: int = 25) -> tuple[list[str], np.ndarray, list[str]]:
    """Texts of both parts of ModApte, labels (n, n_topics) 0 or 1, and names of the topics."""
    (path,) = need("reuters21578/reuters21578.jsonl.gz")
    chosen = [
        d
        for d in read_lines(path)
        if d["topics_attr"] == "YES" and d["lewissplit"] in ("TRAIN", "TEST")
    ]
    texts = [f"{d['title'] or ''}\n{d['body'] or ''}" for d in chosen]
    names, counts = np.unique([t for d in chosen for t in set(d["topics"])], return_counts=True)
    largest = np.sort(names[np.argsort(-counts, kind="stable")[:n_topics]])
    labels = np.array([[t in d["topics"] for t in largest] for d in chosen], dtype=float)
    return texts, labels, list(largest)


def draw(labels: np.ndarray, n_rows: int, seed: int, least: int = 2) -> np.ndarray:
    """Random rows for training, drawn again until every topic has ``least`` of them."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.permutation(len(labels))[:n_rows]
        if (labels[rows].sum(axis=0) >= least).all():
            return rows


def vectors(
    texts: list[str], train: np.ndarray
) -> tuple[sparse.csr_array, sparse.csr_array, np.ndarray]:
    """Rows for training, all other rows, and which those are; words of the training rows only.

    Words are runs of two letters or digits and more, in lower case; a document has unit length.
    """
    test = np.setdiff1d(np.arange(len(texts)), train)
    vectorizer = TfidfVectorizer()
    X = vectorizer.fit_transform([texts[i] for i in train])
    X_test = vectorizer.transform([texts[i] for i in test])
    return sparse.csr_array(X), sparse.csr_array(X_test), test
