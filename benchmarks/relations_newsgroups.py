"""Rank loss on newsgroups that were not trained on: the experiment of P5 §6.2, Table 2.

Given a document, documents of its own group come first, of groups on the same topic next, and the
others last. Train on the documents of one set of groups, test on those of another.

    python benchmarks/relations_newsgroups.py                        # all documents: minutes
    python benchmarks/relations_newsgroups.py --documents 200        # of each group: seconds
    python benchmarks/relations_newsgroups.py --documents 150 --every-alpha

What the paper says and is done here: the groups; a linear kernel of word frequencies and its
Kronecker product, with no symmetry enforced; closed forms; half of the training groups held out to
choose alpha; the final model trained on all of them; the rank loss (4), tied scores counting ½.

What the paper leaves open, and is chosen here:

- Labels are 2, 1 and 0. Two groups are similar if they start alike (rec or comp), the partition
  on the home page of the data.
- Words are runs of two letters or digits and more, in lower case, without a stop list, of the body
  and of those header lines that the by-date version keeps. ``--features``: "counts" of words;
  "frequencies", the counts of a document scaled to unit Euclidean length; "tfidf", with sublinear
  counts and the inverse document frequencies of the training set, to unit length too.
- The halves are alternate groups of each topic, so that both have both topics. Each half is ranked
  by the model of the other one, and the better mean over both decides.
- alpha is one of 2^-23, 2^-20, … 2^19 for documents of unit length; for counts, that times the
  fourth power of their root mean square length. Every document is a conditioning object, and is
  left out of its own test list (not of its training list: closed forms need complete relations).

``--every-alpha`` chooses nothing and prints the test loss of every alpha: how much of a difference
between two losses is the choice of alpha.

Cosine is no model: documents are ranked by their cosine (of the same features) to the given one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize
from timing import need, parse, read_lines, table

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV, regularization_path
from rankrls.metrics import conditional_scores

#: Groups of each set, those of one half before those of the other.
SETS = {
    1: (
        ("rec.autos", "comp.sys.ibm.pc.hardware"),
        ("rec.sport.baseball", "comp.windows.x"),
    ),
    2: (
        ("rec.motorcycles", "comp.graphics", "comp.sys.mac.hardware"),
        ("rec.sport.hockey", "comp.os.ms-windows.misc"),
    ),
}
#: Rank losses of the paper, trained on set 1 and on set 2.
PAPER = {"ranking": (0.2562, 0.2895), "regression": (0.3685, 0.3967)}
ALPHAS = 2.0 ** np.arange(-23, 20, 3)
VECTORIZERS = {
    "counts": lambda: CountVectorizer(dtype=np.float64),
    "frequencies": lambda: TfidfVectorizer(use_idf=False),
    "tfidf": lambda: TfidfVectorizer(sublinear_tf=True),
}


def main() -> None:
    options = parse(__doc__, documents=0, features=list(VECTORIZERS), every_alpha=False)
    texts = read(options.documents or None)
    if options.every_alpha:
        header = ["features", "trained on", "loss", *(f"2^{p:.0f}" for p in np.log2(ALPHAS))]
        table(header, every_alpha(texts, options.features))
    else:
        header = ["features", "trained on", "loss", "rank loss", "P5", "alpha", "fit, s"]
        table(header, chosen(texts, options.features))


def read(most: int | None = None, seed: int = 0) -> dict[str, list[str]]:
    """Texts of the groups of both sets, at most so many of each, at random."""
    texts: dict[str, list[str]] = {g: [] for halves in SETS.values() for h in halves for g in h}
    for document in read_lines(need("twentynews/20news-bydate.jsonl.gz")[0]):
        if document["group"] in texts:
            texts[document["group"]].append(document["text"])
    rng = np.random.default_rng(seed)
    return {g: [t[i] for i in rng.permutation(len(t))[:most]] for g, t in texts.items()}


def relation(groups: np.ndarray) -> np.ndarray:
    """Labels (n, n): 2 in the same group, 1 on the same topic, 0 otherwise."""
    topics = np.array([group.partition(".")[0] for group in groups])
    same_group = groups[:, None] == groups
    return same_group.astype(float) + (topics[:, None] == topics)


def every_alpha(texts: dict[str, list[str]], kinds: list[str]) -> Iterator[list[str]]:
    """The rank loss on the other set for every alpha."""
    for features in kinds:
        for train in SETS:
            task = Task(texts, train, features)
            for loss in PAPER:
                ranker = ConditionalRankRLS(loss=loss)
                path = regularization_path(ranker, task.X, task.Y, alphas=ALPHAS * task.scale)
                values = [f"{task.rank_loss(scores):.3f}" for scores in path.predict(task.X_test)]
                yield [features, f"set {train}", loss, *values]


class Task:
    """Features and relation of a set to train on, and of the other one to test on."""

    def __init__(self, texts: dict[str, list[str]], train: int, features: str) -> None:
        vectorizer = VECTORIZERS[features]()
        first, second = SETS[train]
        self.X = vectorizer.fit_transform([t for g in first + second for t in texts[g]])
        groups = np.array([g for g in first + second for _ in texts[g]])
        self.Y = relation(groups)
        halves = np.flatnonzero(np.isin(groups, first)), np.flatnonzero(np.isin(groups, second))
        self.folds = [halves, halves[::-1]]
        # The kernel of pairs is a product of two.
        self.scale = (self.X.multiply(self.X).sum() / self.X.shape[0]) ** 2
        tested = sum(SETS[3 - train], ())
        self.X_test = vectorizer.transform([t for g in tested for t in texts[g]])
        self.Y_test = relation(np.array([g for g in tested for _ in texts[g]]))
        np.fill_diagonal(self.Y_test, np.nan)

    def rank_loss(self, scores: np.ndarray) -> float:
        """Share of the test pairs in the wrong order, mean over documents."""
        return 1.0 - float(np.nanmean(conditional_scores(self.Y_test, scores)))


def chosen(texts: dict[str, list[str]], kinds: list[str]) -> Iterator[list[str]]:
    """The rank loss with the alpha that the halves choose, and seconds with that choice."""
    for features in kinds:
        for train in SETS:
            task = Task(texts, train, features)
            unit = normalize(task.X_test)
            cosine = f"{task.rank_loss((unit @ unit.T).toarray()):.4f}"
            yield [features, f"set {train}", "cosine", cosine, "", "", ""]
            for loss, theirs in PAPER.items():
                start = time.perf_counter()
                ranker = ConditionalRankRLSCV(ALPHAS * task.scale, loss=loss, cv=task.folds)
                ranker.fit(task.X, task.Y)
                took = time.perf_counter() - start
                value = f"{task.rank_loss(ranker.predict(task.X_test)):.4f}"
                cells = [value, f"{theirs[train - 1]:.4f}", f"{ranker.alpha_:.3g}", f"{took:.0f}"]
                yield [features, f"set {train}", loss, *cells]


if __name__ == "__main__":
    main()
