"""Labels to check: how well `rankrls.diagnostics.audit` finds labels that were corrupted.

    python benchmarks/audit.py [--repeats 20]

- Queries: the labels of 10 % of the queries of OHSUMED are shuffled within the query.
- Judges: 40 judges of 50 answers each; four of them give a part of their answers at random.

The area under the ROC curve says how well a column of the audit ranks what was corrupted above
what was not, beside plain residuals of the fitted model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from judgements import documents
from sklearn.metrics import roc_auc_score
from timing import Missing, parse, table

from rankrls import RankRLS
from rankrls.diagnostics import audit

Columns = Iterator[tuple[str, np.ndarray, np.ndarray]]  # name, corrupted or not, values


def queries(ranker: RankRLS, X: np.ndarray, y: np.ndarray, codes: np.ndarray, seed: int) -> Columns:
    """Columns of the audit after the labels of some queries were shuffled."""
    rng, n = np.random.default_rng(seed), int(codes.max()) + 1
    varying = np.flatnonzero([len(np.unique(y[codes == q])) > 1 for q in range(n)])
    wrong = rng.permutation(varying)[: round(0.1 * len(varying))]
    labels = y.copy()
    for q in wrong:
        rows = np.flatnonzero(codes == q)
        labels[rows] = rng.permutation(labels[rows])
    found = audit(ranker, X, labels, qid=codes)
    f = ranker.fit(X, labels, qid=codes).predict(X)
    of = [(f[codes == q], labels[codes == q]) for q in varying]
    for name, values in (
        ("agreement", -found.agreement[varying]),
        ("correlation with the fit", np.array([-np.corrcoef(*pair)[0, 1] for pair in of])),
        ("p-value", -found.p_value[varying]),
        ("deleted residual", found.deleted_residual[varying]),
        ("residual of the fit", np.array([(b - a).std(ddof=1) for a, b in of])),
        ("Cook's distance", found.cook_distance[varying]),
    ):
        yield name, np.isin(varying, wrong), values


def judges(share: float, seed: int) -> Columns:
    """The same after some judges gave a share of their answers at random."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 10))
    f = X @ rng.standard_normal(10) / np.sqrt(10)
    pairs = np.argsort(rng.random((2000, 300)), axis=1)[:, :2]
    judge = np.arange(2000) % 40
    difference = f[pairs[:, 0]] - f[pairs[:, 1]] + 0.5 * rng.standard_normal(2000)
    random = (judge < 4) & (rng.random(2000) < share)
    difference[random] = rng.standard_normal(random.sum())
    pairs[difference < 0] = pairs[difference < 0, ::-1]
    found = audit(RankRLS(10.0), X, pairs=pairs, groups=judge)
    g = RankRLS(10.0).fit(X, pairs=pairs).predict(X)
    squares = (1 - (g[pairs[:, 0]] - g[pairs[:, 1]])) ** 2
    wrong = found.labels < 4
    yield "p-value", wrong, -found.p_value
    yield "agreement", wrong, -found.agreement
    yield "plain residual", wrong, np.bincount(judge, squares)


def show(title: str, repeats: list[Columns]) -> None:
    found: dict[str, list[float]] = {}
    for columns in repeats:
        for name, wrong, values in columns:
            found.setdefault(name, []).append(roc_auc_score(wrong, values))
    means = {name: (np.mean(v), np.std(v, ddof=1) / np.sqrt(len(v))) for name, v in found.items()}
    table([title, "AUC"], ([name, f"{a:.3f} ± {e:.3f}"] for name, (a, e) in means.items()))


def main() -> None:
    seeds = range(parse(__doc__, repeats=20).repeats)
    for share in (0.15, 0.3, 0.6):
        show(f"judges, {share:.0%} at random", [judges(share, seed) for seed in seeds])
    try:
        X, y, qid = documents("ohsumed")
    except Missing as error:
        print(error)
        return
    codes = np.unique(qid, return_inverse=True)[1]
    linear = RankRLS(10.0, query_weighting="size")
    show("queries, linear", [queries(linear, X, y, codes, seed) for seed in seeds])
    rng = np.random.default_rng(0)
    few = [rng.permutation(np.flatnonzero(codes == q))[:15] for q in range(codes.max() + 1)]
    rows = np.concatenate(few)
    rbf = RankRLS(1.0, kernel="rbf", gamma=1.0, query_weighting="size")
    some = X[rows], y[rows], codes[rows]
    show("queries, 15 rows each, RBF", [queries(rbf, *some, seed) for seed in seeds[::2]])


if __name__ == "__main__":
    main()
