"""Find images of the same digit, also for digits that are not in the training set (P5 §6.3).

An image of 8 × 8 pixels is the query, and other images are ranked so that those of the same digit
come first. The relation "shows the same digit" is learned from 600 images of seven digits. The
ranker is then tested on new images of these digits, and on images of the other three digits, which
a classifier could not recognise.

    python examples/conditional_digits.py --repetitions 10 --output digits.png

That command printed the pairwise ranking errors (means over ten choices of the digits) and the
geometric means of the chosen alphas:

                                                  known digits    new digits       alpha
    similarity                                          0.1097        0.1565
    regression, alpha by folds of images                0.0024        0.3012     0.00781
    regression, alpha by folds of digits                0.0120        0.2842        6.06
    ranking, alpha by folds of images                   0.0024        0.3009      0.0068
    ranking, alpha by folds of digits                   0.0194        0.2846        27.9
    similarity + ranking, by folds of images            0.0024        0.2423      0.0206
    similarity + ranking, by folds of digits            0.0674        0.1660     2.7e+03

Conclusions:

- For known digits, the ranker makes far fewer errors than plain similarity.
- Seven digits are too few to learn what "the same digit" means in general. For new digits the
  ranker alone is worse than plain similarity, both with the ranking loss and with regression. (P5
  has 28 species of bacteria to learn from, and finds no difference between known and new ones.)
- The folds determine the alpha. Folds of images choose an alpha that is good for known digits.
  Folds of digits choose a far larger alpha, which is better for new digits.
- It is safer to learn the errors of the similarity, Y − similarity, and to add the predictions to
  the similarity: with a large alpha the result is the similarity itself. This keeps part of the
  gain for known digits and loses little for new ones, but it is no better than similarity there.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

from rankrls import ConditionalRankRLSCV
from rankrls.metrics import conditional_scores, pairwise_accuracy

N_TRAIN = 600
GAMMA = 0.1
ALPHAS = 2.0 ** np.arange(-10, 19, 2)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seen", type=int, default=7, help="digits to learn from, 4 to 8")
    parser.add_argument("--output", metavar="PNG", help="draw heat maps of the first repetition")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", "the best alpha")  # the largest: nothing but similarity
    start = time.perf_counter()
    runs = [Run(seed, options.seen) for seed in range(options.repetitions)]
    table = {name: np.array([run.errors[name] for run in runs]) for name in runs[0].errors}
    print(f"{'':44}{'known digits':>14}{'new digits':>14}{'alpha':>12}")
    for name, values in table.items():
        known, new = values[:, :2].mean(axis=0)
        alpha = "" if np.isnan(values[0, 2]) else f"{np.exp(np.log(values[:, 2]).mean()):12.3g}"
        print(f"{name:44}{known:14.4f}{new:14.4f}{alpha}")
    print(f"{options.repetitions} repetitions: {time.perf_counter() - start:.0f} s")
    if options.output:
        draw(runs[0], options.output)


class Run:
    """One choice of the digits: errors of every ranker on known and on new digits, and alpha."""

    def __init__(self, seed: int, n_seen: int) -> None:
        data, self.digit = load_digits(return_X_y=True)
        self.X = data / 16
        rng = np.random.default_rng(seed)
        seen = rng.permutation(10)[:n_seen]
        known = rng.permutation(np.flatnonzero(np.isin(self.digit, seen)))
        new = np.setdiff1d(np.arange(len(data)), known)
        self.train, self.tests = known[:N_TRAIN], (known[N_TRAIN:], new)
        pairs = [(seen[i], seen[i - 1]) for i in range(n_seen)]
        of_digit = [np.isin(self.digit[self.train], pair) for pair in pairs]
        digit_folds = [(np.flatnonzero(~out), np.flatnonzero(out)) for out in of_digit]
        self.errors = {
            "similarity": (*(self.error(self.similar(t), t) for t in self.tests), np.nan)
        }
        self.predictions: dict[str, np.ndarray] = {}
        for loss in ("regression", "ranking"):
            self.fit(f"{loss}, alpha by folds of images", loss, "both", 0.0)
            self.fit(f"{loss}, alpha by folds of digits", loss, digit_folds, 0.0)
        for name, cv in (("images", "both"), ("digits", digit_folds)):
            self.fit(f"similarity + ranking, by folds of {name}", "ranking", cv, 1.0)

    def relation(self, rows: np.ndarray) -> np.ndarray:
        """1 for images of the same digit."""
        return (self.digit[rows, None] == self.digit[rows]).astype(float)

    def similar(self, rows: np.ndarray) -> np.ndarray:
        """Similarity of images, between 0 and 1."""
        return rbf_kernel(self.X[rows], gamma=GAMMA)

    def error(self, scores: np.ndarray, rows: np.ndarray) -> float:
        """Mean over queries; an image is not asked about itself."""
        truth = self.relation(rows)
        np.fill_diagonal(truth, np.nan)
        return 1 - float(np.nanmean(conditional_scores(truth, scores)))

    def fit(self, name: str, loss: str, cv: object, prior: float) -> None:
        """Learn the relation, or what is left of it beside the similarity."""
        X, Y = self.X[self.train], self.relation(self.train)
        ranker = ConditionalRankRLSCV(
            ALPHAS, kernel="rbf", gamma=GAMMA, loss=loss, relation="symmetric", cv=cv,
            random_state=0, scoring=beside_similarity if prior else "pairwise_accuracy",
        )  # fmt: skip
        ranker.fit(X, Y - prior * self.similar(self.train))
        scores = [ranker.predict(self.X[t]) + prior * self.similar(t) for t in self.tests]
        self.predictions[name] = scores[1]
        errors = (self.error(F, t) for F, t in zip(scores, self.tests, strict=True))
        self.errors[name] = (*errors, ranker.alpha_)


def beside_similarity(y: np.ndarray, score: np.ndarray, qid: np.ndarray) -> float:
    """Accuracy of score + similarity, where y is 1 or 0 minus a similarity between 0 and 1."""
    truth = (y >= 0).astype(float)
    return pairwise_accuracy(truth, score + (truth - y), qid=qid)


def draw(run: Run, path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("drawing needs matplotlib: pip install 'rankrls[plot]'")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from rankrls.plotting import ConditionalRankingDisplay

    new = run.tests[1]
    order = np.argsort(run.digit[new], kind="stable")
    shown = {
        "similarity": run.similar(new),
        "ranking alone": run.predictions["ranking, alpha by folds of digits"],
        "similarity + ranking": run.predictions["similarity + ranking, by folds of digits"],
    }
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained", sharey=True)
    for ax, (name, scores) in zip(axes, shown.items(), strict=False):
        ConditionalRankingDisplay.from_predictions(
            run.relation(new), scores, name=name, axes=[ax, axes[3]], row_order=order,
            column_order=order, colorbar=False,
        )  # fmt: skip
    for ax in axes[1:]:
        ax.set_ylabel("")
    axes[0].set_ylabel("queries: images of new digits")
    for ax in axes:
        ax.set_xlabel("ranked images")
    figure.savefig(path, dpi=130)
    print(f"drawn into {path}")


if __name__ == "__main__":
    main()
