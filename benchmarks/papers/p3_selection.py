"""P3 Table 1: three ways to regularise and to choose, on large sparse data.

    python benchmarks/papers/p3_selection.py --rows 781265      # of the generated data; default 0

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
from typing import Any

import numpy as np
from _common import need, parse, read_lines, table
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from text_data import make_text

from rankrls import RankRLS, RankRLSCV

ALPHAS = 2.0 ** np.arange(-10, 11)
Part = tuple[Any, np.ndarray]
TIKHONOV = {"solver": "cg", "tol": 1e-5, "max_iter": 500}
METHODS = {
    "1 Tikhonov, 21 alphas": RankRLSCV(ALPHAS, **TIKHONOV),
    "2 early stopping, alpha 0": RankRLS(0.0, early_stopping=True),
    "3 both": RankRLSCV(ALPHAS, solver="cg", early_stopping=True),
}
#: Test error, training and selection seconds of the paper, on RCV1 itself.
PUBLISHED = {
    "scores": ("0.01472, 352, 17186", "0.01531, 65, 97", "0.01473, 155, 2120"),
    "pairs": ("0.01530, 226, 15295", "0.01621, 52, 78", "0.01530, 94, 1695"),
}


def newsgroups() -> tuple[Part, Part, Part]:
    """Training, validation and test documents."""
    texts: dict[str, list[str]] = {"train": [], "test": []}
    labels: dict[str, list[float]] = {"train": [], "test": []}
    for document in read_lines(need("twentynews/20news-bydate.jsonl.gz")[0]):
        texts[document["split"]].append(document["text"])
        labels[document["split"]].append(float(document["group"].startswith("comp.")))
    order = np.random.default_rng(0).permutation(len(texts["train"]))
    held, train = np.split(order, [len(order) // 10])
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    vectorizer.fit([texts["train"][i] for i in train])
    X, X_test = (sparse.csr_array(vectorizer.transform(texts[s])) for s in ("train", "test"))
    y = np.array(labels["train"])
    return (X[train], y[train]), (X[held], y[held]), (X_test, np.array(labels["test"]))


def rcv1() -> tuple[Part, Part, Part]:
    """800 documents for training, 200 for validation, 500 for testing."""
    parts = []
    for path in need("rcv1_small/rcv1_small.dat.gz", "rcv1_small/rcv1_small_test.data.gz"):
        text = gzip.decompress(path.read_bytes()).replace(b"|f ", b"")
        parts.append(load_svmlight_file(io.BytesIO(text), n_features=47_152, zero_based=True))
    (X, y), test = parts
    held, train = np.split(np.random.default_rng(0).permutation(len(y)), [200])
    return (X[train], y[train]), (X[held], y[held]), test


def generated(m: int, n_validation: int = 8_149, n_test: int = 23_149) -> tuple[Part, Part, Part]:
    X, y = make_text(m + n_validation + n_test)
    held, test = slice(m, m + n_validation), slice(m + n_validation, None)
    return (X[:m], y[:m]), (X[held], y[held]), (X[test], y[test])


def rows(kind: str, train: Part, held: Part, test: Part) -> Iterator[list[str]]:
    X, y = train
    rng = np.random.default_rng(0)
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y <= 0)
    pairs = np.column_stack([rng.choice(positive, 10**6), rng.choice(negative, 10**6)])
    fit = {"y": y} if kind == "scores" else {"pairs": pairs}
    for (name, ranker), theirs in zip(METHODS.items(), PUBLISHED[kind], strict=True):
        ranker.set_params(query_weighting="size" if kind == "scores" else "pair")
        start = time.perf_counter()
        ranker.fit(X, eval_set=held, **fit)
        took = time.perf_counter() - start
        error = f"{1 - ranker.score(*test):.5f}"
        alpha = f"{getattr(ranker, 'alpha_', 0.0):g}"
        yield [f"{kind}, {name}", error, f"{took:.1f}", f"{ranker.n_iter_}", alpha, theirs]


def main() -> None:
    options = parse(__doc__, rows=0)
    warnings.filterwarnings("ignore", "the best alpha")
    warnings.simplefilter("ignore", ConvergenceWarning)
    tasks = {"20-newsgroups": newsgroups, "RCV1, sample": rcv1}
    if options.rows:
        tasks["generated"] = lambda: generated(options.rows)
    header = ["test error", "s", "iterations", "alpha", "P3: error, training s, selection s"]
    for name, read in tasks.items():
        parts = read()
        X, y = parts[0]
        print(f"{X.shape[0]:,} × {X.shape[1]:,}, {(y > 0).mean():.0%} positive\n")
        kinds = ("scores",) if read is rcv1 else ("scores", "pairs")
        table([name, *header], (row for kind in kinds for row in rows(kind, *parts)))


if __name__ == "__main__":
    main()
