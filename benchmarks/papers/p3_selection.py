"""P3 Table 1: three ways to regularise and to choose, on large sparse data.

    python benchmarks/papers/p3_selection.py             # all; --full 0 leaves out 781,265 rows

Methods 1, 2 and 3 are those of the paper: Tikhonov with 21 alphas, iterated to 1e-5 or 500
times; early stopping with alpha 0; both. Seconds are of selection and training together.

RCV1 itself is not at hand, but generated data of its shape, and 1500 of its documents (rcv1_small,
labels ±1; which topic is not said). The other task is real and complete: in 20-newsgroups (by date)
documents of the comp groups are to come before all others; a tenth of the training documents is for
validation. "pairs" are 10^6 random ones of a positive and a negative document.
"""

from __future__ import annotations

import gzip
import io
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import finish, need, parse, quiet, read_lines, table
from scale import ALPHAS, p3_methods, selection_table
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer

Part = tuple[Any, np.ndarray]


def main() -> None:
    options = parse(__doc__, full=1)
    quiet()
    warnings.simplefilter("ignore", ConvergenceWarning)
    header = ["method", "test error", "s", "iterations", "alpha", "largest of the grid"]
    news = newsgroups(options.data)
    print("20-newsgroups: {:,} × {:,}, {:.2%} filled, {:.0%} positive\n".format(*shape(*news[0])))
    table(header, [*rows("scores", *news), *rows("pairs", *news)])
    small = rcv1(options.data)
    print("RCV1, sample: {:,} × {:,}, {:.2%} filled, {:.0%} positive\n".format(*shape(*small[0])))
    table(header, rows("scores", *small))
    if options.full:
        print("Generated data of RCV1's shape, and P3's results on RCV1:")
        selection_table()
        print()
    finish()


def shape(X: Any, y: np.ndarray) -> tuple[int, int, float, float]:
    return X.shape[0], X.shape[1], X.nnz / X.shape[0] / X.shape[1], float((y > 0).mean())


def newsgroups(data: Path) -> tuple[Part, Part, Part]:
    """Training, validation and test documents."""
    (path,) = need(data, "twentynews/20news-bydate.jsonl.gz")
    texts: dict[str, list[str]] = {"train": [], "test": []}
    labels: dict[str, list[float]] = {"train": [], "test": []}
    for document in read_lines(path):
        texts[document["split"]].append(document["text"])
        labels[document["split"]].append(float(document["group"].startswith("comp.")))
    order = np.random.default_rng(0).permutation(len(texts["train"]))
    held, train = np.split(order, [len(order) // 10])
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    vectorizer.fit([texts["train"][i] for i in train])
    X, X_test = (sparse.csr_array(vectorizer.transform(texts[s])) for s in ("train", "test"))
    y = np.array(labels["train"])
    return (X[train], y[train]), (X[held], y[held]), (X_test, np.array(labels["test"]))


def rcv1(data: Path) -> tuple[Part, Part, Part]:
    """800 documents for training, 200 for validation, 500 for testing."""
    parts = []
    for path in need(data, "rcv1_small/rcv1_small.dat.gz", "rcv1_small/rcv1_small_test.data.gz"):
        with gzip.open(path, "rb") as lines:
            text = b"".join(lines).replace(b"|f ", b"")
        parts.append(load_svmlight_file(io.BytesIO(text), n_features=47_152, zero_based=True))
    (X, y), test = parts
    order = np.random.default_rng(0).permutation(len(y))
    held, train = np.split(order, [200])
    return (X[train], y[train]), (X[held], y[held]), test


def rows(kind: str, train: Part, held: Part, test: Part) -> Iterator[list[str]]:
    X, y = train
    rng = np.random.default_rng(0)
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y <= 0)
    pairs = np.column_stack([rng.choice(positive, 10**6), rng.choice(negative, 10**6)])
    fit = {"y": y} if kind == "scores" else {"pairs": pairs}
    for name, ranker in p3_methods(ALPHAS).values():
        ranker.set_params(query_weighting="size" if kind == "scores" else "pair")
        start = time.perf_counter()
        ranker.fit(X, eval_set=held, **fit)
        took = time.perf_counter() - start
        chosen = getattr(ranker, "alpha_", 0.0)
        edge = "yes" if chosen == ALPHAS[-1] else ""
        error = f"{1 - ranker.score(*test):.5f}"
        yield [f"{kind}, {name}", error, f"{took:.1f}", f"{ranker.n_iter_}", f"{chosen:g}", edge]


if __name__ == "__main__":
    main()
