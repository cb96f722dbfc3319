"""P5 Figure 3: early stopping with and without a symmetric kernel, 20-newsgroups, small.

    python benchmarks/papers/p5_newsgroups_small.py

As in the paper: 1000 documents of four groups for training, 500 for testing, drawn from the same
groups; the three levels of Table 2; linear kernels; no regularisation (alpha = 0) but the number of
iterations, 200 at most, and the test error after each.

Left open there: which four groups (here set 1 of Table 2), the features (as in
benchmarks/relations_newsgroups.py, whose choices are used), and the solver, which is conjugate
gradients here and BiCGSTAB there: iterations of the two are not the same. The last column is the
closed form, alpha chosen by predicting one half of the training documents from the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from _common import parse, table
from relations_newsgroups import SETS, VECTORIZERS, read, relation
from sklearn.exceptions import ConvergenceWarning

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls.metrics import conditional_scores

ITERATIONS = (1, 2, 3, 5, 8, 12, 20, 40, 80, 200)
N_TRAIN, N_TEST = 1000, 500
ALPHAS = 2.0 ** np.arange(-14, 11, 3)


def main() -> None:
    options = parse(__doc__, most=200)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "the best alpha")
    texts = read()
    groups = [g for half in SETS[1] for g in half]
    documents = [(t, g) for g in groups for t in texts[g]]
    order = np.random.default_rng(0).permutation(len(documents))[: N_TRAIN + N_TEST]
    sample = [documents[i] for i in order]
    counts = tuple(k for k in ITERATIONS if k <= options.most)
    ends = ["best (at)", "closed form"]
    header = ["features", "loss", "relation", *(f"{k} it." for k in counts), *ends]
    table(header, rows(sample, counts))


def rows(sample: list[tuple[str, str]], counts: tuple[int, ...]) -> Iterator[list[str]]:
    groups = np.array([g for _, g in sample])
    Y, Y_test = relation(groups[:N_TRAIN]), relation(groups[N_TRAIN:])
    np.fill_diagonal(Y_test, np.nan)

    def rank_loss(scores: np.ndarray) -> str:
        return f"{1 - np.nanmean(conditional_scores(Y_test, scores)):.4f}"

    for features in ("frequencies", "tfidf"):
        vectorizer = VECTORIZERS[features]()
        X = vectorizer.fit_transform([t for t, _ in sample[:N_TRAIN]])
        X_test = vectorizer.transform([t for t, _ in sample[N_TRAIN:]])
        K, K_test = (X @ X.T).toarray(), (X_test @ X.T).toarray()
        for loss in ("ranking", "regression"):
            for symmetry in (None, "symmetric"):
                common = {"kernel": "precomputed", "loss": loss, "relation": symmetry}
                most = max(counts)
                stopped = ConditionalRankRLS(
                    0.0,
                    **common,
                    early_stopping=True,
                    n_iter_no_change=most,
                    max_iter=most,
                    tol=1e-300,
                ).fit(K, Y, eval_set=(K_test, Y_test))
                errors = stopped.validation_curve_
                cells = [f"{errors[k - 1]:.4f}" if k <= len(errors) else "" for k in counts]
                cells.append(f"{errors.min():.4f} ({errors.argmin() + 1})")
                folds = np.array_split(np.arange(N_TRAIN), 2)
                chosen = ConditionalRankRLSCV(ALPHAS, cv=[folds, folds[::-1]], **common)
                cells.append(rank_loss(chosen.fit(K, Y).predict(K_test)))
                yield [features, loss, symmetry or "none", *cells]


if __name__ == "__main__":
    main()
