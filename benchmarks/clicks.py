"""Rankers learned from simulated clicks: NDCG@10 on test queries with the true labels.

    python benchmarks/clicks.py [sessions ...]

Means of three draws of sessions, and the standard error of each difference to click rates.

Clicks are simulated on real features with graded labels: the first folds of peer_data.py; sets that
are absent are reported and skipped. A logging ranker fitted to 1 % of the training queries, plus
noise in every session, shows ten documents. Clicks are position-based with examination
1/position^η, or a cascade, which violates the model. The relevance of a document is
e + (1 − e) (2^y − 1)/(2^max − 1), with noise e. Compared: labels of `rankrls.clicks`, click rates,
LightGBM with ``position=``, XGBoost with ``lambdarank_unbiased`` (both where installed), and the
true labels.
"""

import sys
import warnings

import numpy as np
import pandas as pd
from peer_data import load
from timing import DATA

from rankrls import RankRLS, RankRLSCV
from rankrls.clicks import click_labels, estimate_examination
from rankrls.metrics import ndcg


def simulate(X, y, qid, n_sessions, eta, cascade, noise, seed):
    """A log as arrays: query, row, position and click of every impression."""
    rng = np.random.default_rng(seed)
    gain = (2.0**y - 1) / (2.0 ** y.max() - 1)
    relevance = noise + (1 - noise) * gain
    queries, codes = np.unique(qid, return_inverse=True)
    few = np.isin(codes, rng.choice(len(queries), max(2, len(queries) // 100), replace=False))
    base = RankRLS(1000.0).fit(X[few], y[few], qid=qid[few]).predict(X)
    base = (base - base.mean()) / base.std()
    rows_of = [np.flatnonzero(codes == q) for q in range(len(queries))]
    parts = []
    counts = rng.multinomial(n_sessions, np.full(len(queries), 1 / len(queries)))
    for rows, count in zip(rows_of, counts, strict=True):
        k = min(10, len(rows))
        scores = base[rows] + 0.5 * rng.normal(size=(count, len(rows)))
        shown = rows[np.argsort(-scores, axis=1)[:, :k]]
        theta = np.arange(1, k + 1.0) ** -eta
        clicked = rng.random(shown.shape) < (
            relevance[shown] if cascade else theta * relevance[shown]
        )
        if cascade:  # until the first click
            before = np.cumsum(clicked, axis=1) - clicked
            clicked &= before == 0
        place = np.tile(np.arange(1, k + 1), (count, 1))
        parts.append((shown.ravel(), place.ravel(), clicked.ravel()))
    row, position, clicks = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {"query": codes[row], "item": row, "position": position, "clicks": clicks.astype(float)}


def fitted(X, labels, qid, weight=None):
    """Scores of test rows by RankRLSCV on labels."""
    ranker = RankRLSCV(scoring="pairwise_r2", query_weighting="size")
    return ranker.fit(X, labels, qid=qid, sample_weight=weight)


def peers(X, log, train_qid, X_test):
    """Scores by LightGBM and XGBoost on one row for each impression, where they are installed."""
    found = {}
    order = np.argsort(log["query"], kind="stable")
    rows, position, clicks = (log[name][order] for name in ("item", "position", "clicks"))
    # Impressions of a query in lists of at most 2000 rows.
    lists = log["query"][order] * 10**6 + np.arange(len(order)) // 2000
    sizes = np.unique(lists, return_counts=True)[1]
    try:
        import lightgbm

        data = lightgbm.Dataset(X[rows], clicks, group=sizes, position=position)
        options = {"objective": "lambdarank", "verbosity": -1, "num_leaves": 15, "num_threads": 2}
        found["LightGBM position="] = lightgbm.train(options, data, 100).predict(X_test)
    except ImportError:
        pass
    try:
        import xgboost

        model = xgboost.XGBRanker(
            n_estimators=100, max_depth=4, lambdarank_unbiased=True, lambdarank_pair_method="topk"
        )
        # Rows of a list in the order in which they were shown.
        model.fit(X[rows], clicks, qid=np.repeat(np.arange(len(sizes)), sizes))
        found["XGBoost unbiased"] = model.predict(X_test)
    except ImportError:
        pass
    return found


def open_bandit():
    """Examination in a real log: Open Bandit's sample, shown at random and by Thompson sampling."""
    for policy in ("random", "bts"):
        paths = {kind: DATA / "open_bandit" / f"{policy}_{kind}.csv" for kind in ("men", "women")}
        if not all(path.exists() for path in paths.values()):
            print(f"open_bandit: no {policy} in {DATA / 'open_bandit'}")
            continue
        table = pd.concat([pd.read_csv(path).assign(kind=kind) for kind, path in paths.items()])
        log = {"query": table["kind"], "item": table["item_id"], "clicks": table["click"]}
        found = estimate_examination(pd.DataFrame(log | {"position": table["position"]}))
        print(f"open_bandit, {policy}: {found.examination.round(2)} ± {found.std.round(2)}")


def main(sessions):
    warnings.simplefilter("ignore")
    open_bandit()
    for name in ("ohsumed", "mslr", "lightgbm"):
        try:
            folds = load(name)
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        train, test = folds[0].training_rows(), folds[0].test
        X, y, qid = train.X, train.y, train.qid
        X_test, y_test, qid_test = test.X, test.y, test.qid
        mean, scale = X.mean(axis=0), X.std(axis=0)
        scale[scale == 0] = 1.0
        X, X_test = (X - mean) / scale, (X_test - mean) / scale
        full = ndcg(y_test, fitted(X, 2.0**y - 1, qid).predict(X_test), qid=qid_test, k=10)
        print(f"{name}: true labels {full:.3f}")
        for n_sessions in sessions:
            for eta, cascade, noise in (
                (0.5, 0, 0),
                (1, 0, 0),
                (1, 0, 0.1),
                (1.5, 0, 0),
                (1, 1, 0),
            ):
                draws = []
                for seed in range(3):
                    log = simulate(X, y, qid, n_sessions, eta, cascade, noise, seed)
                    labels = click_labels(log, examination=estimate_examination(log, monotone=True))
                    at, rates = labels.item, labels.clicks / labels.impressions
                    query, weight = labels.query, labels.weight
                    scores = {
                        "click rates": fitted(X[at], rates, query, weight).predict(X_test),
                        "labels": fitted(X[at], labels.label, query, weight).predict(X_test),
                    }
                    if n_sessions <= 10**4:
                        scores |= peers(X, log, qid, X_test)
                    draws.append([ndcg(y_test, s, qid=qid_test, k=10) for s in scores.values()])
                found = np.array(draws)
                error = (found - found[:, :1]).std(axis=0, ddof=1) / np.sqrt(len(draws))
                what = "cascade" if cascade else f"eta {eta}, noise {noise}"
                values = ", ".join(
                    f"{k} {mean:.3f} (± {e:.3f})"
                    for k, mean, e in zip(scores, found.mean(axis=0), error, strict=True)
                )
                print(f"  {n_sessions:>8} sessions, {what}: {values}", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10**4, 10**5, 10**6])
