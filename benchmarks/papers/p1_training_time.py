"""P1 Table 1 (and P4 Table 1): seconds to train with a Gaussian kernel, topic acq of Reuters-21578.

    python benchmarks/papers/p1_training_time.py

As in the paper: m documents of P1 §5.4, one binary task, default parameters (alpha = 1; gamma = 1,
the default of SVM-light), the kernel matrix included. The shortest of two runs (one above
2000 rows); the features are tf-idf of unit length. Theirs were measured on a desktop of 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from _common import parse, seconds, table
from _reuters import draw, read
from sklearn.feature_extraction.text import TfidfVectorizer

from rankrls import RankRLS, RankSVM, regularization_path

SIZES = (200, 500, 750, 1000, 1500, 2000, 2500, 4000, 6000)
RANKRLS = (1, 3, 5, 10, 24, 48, 83, 280, 841)
RANKSVM = (2, 150, 579, 1740, 4685, 13707, 20055, None, None)
KERNEL = {"kernel": "rbf", "gamma": 1.0}


def main() -> None:
    options = parse(__doc__, most=6000)
    header = ["inputs", "RankRLS, s", "…, 31 alphas, s", "RankSVM, s", "its gap"]
    table([*header, "P1: RankRLS, s", "P1: RankSVM, s"], rows(options))


def rows(options) -> Iterator[list[str]]:
    texts, labels, names = read()
    acq = labels[:, names.index("acq")]
    order = draw(labels, 6000, 0)
    grid = 2.0 ** np.arange(-15, 16)
    for m, rls, svm in zip(SIZES, RANKRLS, RANKSVM, strict=True):
        if m > options.most:
            break
        X = TfidfVectorizer().fit_transform([texts[i] for i in order[:m]])
        y, repeats = acq[order[:m]], 2 if m <= 2000 else 1
        machine = RankSVM(**KERNEL)
        yield [
            str(m),
            f"{seconds(lambda: RankRLS(**KERNEL).fit(X, y), repeats):.2f}",  # noqa: B023
            f"{seconds(lambda: regularization_path(RankRLS(**KERNEL), X, y, alphas=grid), 1):.2f}",  # noqa: B023
            f"{seconds(lambda: machine.fit(X, y), repeats):.2f}",  # noqa: B023
            f"{machine.gap_:.0e}",
            str(rls),
            "" if svm is None else str(svm),
        ]


if __name__ == "__main__":
    main()
