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
from _common import finish, need, parse, table
from rankrls.core.relations.cell_equations import CellEquations
from relations_newsgroups import SETS, VECTORIZERS, read, relation
from scipy.sparse import vstack
from sklearn.exceptions import ConvergenceWarning

from rankrls import ConditionalRankRLSCV
from rankrls.core.linalg.krylov import IterationOptions, stop_early
from rankrls.core.relations.labels import Observations
from rankrls.metrics import conditional_scores, pairwise_accuracy

ITERATIONS = (1, 2, 3, 5, 8, 12, 20, 40, 80, 200)
N_TRAIN, N_TEST = 1000, 500
ALPHAS = 2.0 ** np.arange(-14, 11, 3)


def main() -> None:
    options = parse(__doc__, seed=0, most=200)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "the best alpha")
    (path,) = need(options.data, "twentynews/20news-bydate.jsonl.gz")
    texts = read(path, None, options.seed)
    groups = [g for half in SETS[1] for g in half]
    documents = [(t, g) for g in groups for t in texts[g]]
    order = np.random.default_rng(options.seed).permutation(len(documents))[: N_TRAIN + N_TEST]
    sample = [documents[i] for i in order]
    counts = tuple(k for k in ITERATIONS if k <= options.most)
    header = [
        "features",
        "loss",
        "relation",
        *(f"{k} it." for k in counts),
        "best (at)",
        "closed form",
    ]
    table(header, rows(sample, counts))
    finish()


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
        everything = vstack([X, X_test]).tocsr()
        K_all = (everything @ everything.T).toarray()
        K, K_test = K_all[:N_TRAIN, :N_TRAIN], K_all[N_TRAIN:, :N_TRAIN]
        for loss in ("ranking", "regression"):
            for symmetry in (None, "symmetric"):
                errors = curve(K_all, Y, Y_test, loss, symmetry, max(counts))
                cells = [f"{errors[k - 1]:.4f}" if k <= len(errors) else "" for k in counts]
                cells.append(f"{errors.min():.4f} ({errors.argmin() + 1})")
                common = {"kernel": "precomputed", "loss": loss, "relation": symmetry}
                folds = np.array_split(np.arange(N_TRAIN), 2)
                chosen = ConditionalRankRLSCV(ALPHAS, cv=[folds, folds[::-1]], **common)
                cells.append(rank_loss(chosen.fit(K, Y).predict(K_test)))
                yield [features, loss, symmetry or "none", *cells]


def curve(
    K: np.ndarray, Y: np.ndarray, Y_test: np.ndarray, loss: str, symmetry: str | None, most: int
) -> np.ndarray:
    """Test error after each iteration; K of training and test documents.

    Early stopping looks at held-out edges after each iteration: here those of the test documents.
    """
    rows, cols = np.divmod(np.arange(N_TRAIN**2), N_TRAIN)
    train = Observations(rows, cols, Y.ravel(), (len(K), len(K)))
    one, other = np.nonzero(~np.isnan(Y_test))
    equations = CellEquations(
        K,
        K,
        train.cells,
        ranking=loss == "ranking",
        sign=0 if symmetry is None else 1,
        held_out=(N_TRAIN + one, N_TRAIN + other),
    )
    y = Y_test[one, other]
    options = IterationOptions(tol=1e-300, max_iter=most, patience=most)
    _, history = stop_early(
        [equations],
        np.array([0.0]),
        options,
        equations,
        lambda predictions: float(pairwise_accuracy(y, predictions[:, 0], qid=one)),
        1,
    )
    return history.errors[:, 0]


if __name__ == "__main__":
    main()
