"""Rankers learned from simulated clicks: NDCG@10 on test queries with the true labels.

    python benchmarks/clicks.py [sessions ...] [--peers] [--draws 8]

Means of draws of sessions, and the standard error of each difference to click rates.

Clicks are simulated on real features with graded labels: the first folds of peer_data.py; sets that
are absent are reported and skipped. A logging ranker fitted to 1 % of the training queries, plus
noise in every session, shows ten documents. Clicks are position-based with examination
1/position^η, or a cascade, which violates the model. The relevance of a document is
e + (1 − e) (2^y − 1)/(2^max − 1), with noise e. Compared: labels of `rankrls.clicks`, click rates,
LightGBM with ``position=``, XGBoost with ``lambdarank_unbiased`` (both where installed, with
``--peers``), and the true labels.
"""

import argparse
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


def peers(X, log, X_test, score):
    """Scores of LightGBM and XGBoost on one row for each impression, where they are installed.

    A list is a session, or up to 2000 impressions of a query; the better of the two counts.
    """
    found = {}
    order = np.argsort(log["query"], kind="stable")
    query, rows, position, clicks = (log[name][order] for name in log)
    for lists in (np.cumsum(position == 1), query * 10**6 + np.arange(len(order)) // 2000):
        sizes = np.unique(lists, return_counts=True)[1]
        try:
            import lightgbm

            data = lightgbm.Dataset(X[rows], clicks, group=sizes, position=position)
            options = {"objective": "lambdarank", "num_leaves": 15, "num_threads": 1}
            model = lightgbm.train({**options, "verbosity": -1}, data, 100)
            found.setdefault("LightGBM position=", []).append(score(model.predict(X_test)))
        except ImportError:
            pass
        try:
            import xgboost

            model = xgboost.XGBRanker(
                n_estimators=100,
                max_depth=4,
                lambdarank_unbiased=True,
                lambdarank_pair_method="topk",
                n_jobs=1,
            )
            # Rows of a list in the order in which they were shown.
            model.fit(X[rows], clicks, qid=np.repeat(np.arange(len(sizes)), sizes))
            found.setdefault("XGBoost unbiased", []).append(score(model.predict(X_test)))
        except ImportError:
            pass
    return {name: max(scores) for name, scores in found.items()}


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


#: η, cascade, noise.
SETTINGS = ((0.5, 0, 0), (1, 0, 0), (1, 0, 0.1), (1.5, 0, 0), (1, 1, 0))


def compare(name, n_sessions, settings, n_draws, with_peers):
    """Print the mean score of every method, and the standard error of its difference to rates."""
    fold = load(name)[0]
    train, test = fold.training_rows(), fold.test
    X, y, qid = train.X, train.y, train.qid
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    X, X_test = (X - mean) / scale, (test.X - mean) / scale

    def score(scores):
        return ndcg(test.y, scores, qid=test.qid, k=10)

    print(f"{name}: true labels {score(fitted(X, 2.0**y - 1, qid).predict(X_test)):.3f}")
    for eta, cascade, noise in settings:
        draws = []
        for seed in range(n_draws):
            log = simulate(X, y, qid, n_sessions, eta, cascade, noise, seed)
            labels = click_labels(log, examination=estimate_examination(log, monotone=True))
            rows, query, weight = X[labels.item], labels.query, labels.weight
            targets = {"click rates": labels.clicks / labels.impressions, "labels": labels.label}
            scores = {
                key: score(fitted(rows, target, query, weight).predict(X_test))
                for key, target in targets.items()
            }
            if with_peers:
                scores |= peers(X, log, X_test, score)
            draws.append(list(scores.values()))
        found = np.array(draws)
        error = (found - found[:, :1]).std(axis=0, ddof=1) if n_draws > 1 else np.nan * found[0]
        values = ", ".join(
            f"{key} {mean:.3f} (± {e:.3f})"
            for key, mean, e in zip(
                scores, found.mean(axis=0), error / np.sqrt(n_draws), strict=True
            )
        )
        what = "cascade" if cascade else f"eta {eta}, noise {noise}"
        print(f"  {n_sessions:>8} sessions, {what}, {n_draws} draws: {values}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sessions", nargs="*", type=int, default=[10**4, 10**5])
    parser.add_argument("--sets", default="ohsumed,mslr,lightgbm")
    parser.add_argument("--settings", default="0,1,2,3,4", help="numbers of the settings")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--peers", action="store_true", help="LightGBM and XGBoost as well")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    open_bandit()
    settings = [SETTINGS[int(number)] for number in options.settings.split(",")]
    for name in options.sets.split(","):
        try:
            for n_sessions in options.sessions:
                compare(name, n_sessions, settings, options.draws, options.peers)
        except FileNotFoundError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
