"""Rankers learned from simulated clicks: NDCG@10 on test queries with the true labels.

    python benchmarks/clicks.py [--sessions 10000] [--peers] [--draws 8]

Means of draws of sessions, and the standard error of each difference to click rates.

Clicks are simulated on real features with graded labels: the first folds of peer_data.py; sets that
are absent are reported and skipped. A logging ranker fitted to 1 % of the training queries, plus
noise in every session, shows ten documents. Clicks are position-based with examination
1/position^η, or a cascade, which violates the model. The relevance of a document is
e + (1 − e) (2^y − 1)/(2^max − 1), with noise e. Compared: labels of `rankrls.clicks`, click rates,
LightGBM with ``position=``, XGBoost with ``lambdarank_unbiased`` (both where installed, with
``--peers``), and the true labels.
"""

import itertools
import warnings
from functools import partial

import numpy as np
import pandas as pd
from peer_data import load
from sklearn.preprocessing import StandardScaler
from timing import Missing, need, parse

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
    """RankRLSCV on labels."""
    ranker = RankRLSCV(scoring="pairwise_r2", query_weighting="size")
    return ranker.fit(X, labels, qid=qid, sample_weight=weight)


def peers(X, log, X_test, score):
    """Scores of LightGBM and XGBoost on one row for each impression.

    A list is a session, or up to 2000 impressions of a query; the better of the two counts. Rows
    of a list are in the order in which they were shown.
    """
    import lightgbm
    import xgboost

    found = {"LightGBM position=": [], "XGBoost unbiased": []}
    order = np.argsort(log["query"], kind="stable")
    query, rows, position, clicks = (log[name][order] for name in log)
    for lists in (np.cumsum(position == 1), query * 10**6 + np.arange(len(order)) // 2000):
        sizes = np.unique(lists, return_counts=True)[1]
        data = lightgbm.Dataset(X[rows], clicks, group=sizes, position=position)
        options = {"objective": "lambdarank", "num_leaves": 15, "num_threads": 1, "verbosity": -1}
        model = lightgbm.train(options, data, 100)
        found["LightGBM position="].append(score(model.predict(X_test)))
        options = {"n_estimators": 100, "max_depth": 4, "n_jobs": 1, "lambdarank_unbiased": True}
        model = xgboost.XGBRanker(lambdarank_pair_method="topk", **options)
        model.fit(X[rows], clicks, qid=np.repeat(np.arange(len(sizes)), sizes))
        found["XGBoost unbiased"].append(score(model.predict(X_test)))
    return {name: max(scores) for name, scores in found.items()}


def open_bandit():
    """Examination in a real log: Open Bandit's sample, shown at random and by Thompson sampling."""
    for policy in ("random", "bts"):
        kinds = ("men", "women")
        paths = need(*(f"open_bandit/{policy}_{kind}.csv" for kind in kinds))
        parts = [pd.read_csv(p).assign(kind=k) for p, k in zip(paths, kinds, strict=True)]
        table = pd.concat(parts)
        log = {"query": table["kind"], "item": table["item_id"], "clicks": table["click"]}
        found = estimate_examination(pd.DataFrame(log | {"position": table["position"]}))
        print(f"open_bandit, {policy}: {found.examination.round(2)} ± {found.std.round(2)}")


#: η, cascade, noise.
SETTINGS = ((0.5, 0, 0), (1, 0, 0), (1, 0, 0.1), (1.5, 0, 0), (1, 1, 0))


def compare(name, options):
    """Print the mean score of every method, and the standard error of its difference to rates."""
    fold = load(name)[0]
    parts = [part for part in (fold.train, fold.validation) if part is not None]
    X, y, qid = (np.concatenate([getattr(p, field) for p in parts]) for field in ("X", "y", "qid"))
    order = np.argsort(qid, kind="stable")
    X, y, qid = X[order], y[order], qid[order]
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(fold.test.X)

    def score(scores):
        return ndcg(fold.test.y, scores, qid=fold.test.qid, k=10)

    print(f"{name}: true labels {score(fitted(X, 2.0**y - 1, qid).predict(X_test)):.3f}")
    for n_sessions, (eta, cascade, noise) in itertools.product(options.sessions, SETTINGS):
        draws = []
        for seed in range(options.draws):
            log = simulate(X, y, qid, n_sessions, eta, cascade, noise, seed)
            labels = click_labels(log, examination=estimate_examination(log, monotone=True))
            given = labels.query, labels.weight
            targets = {"click rates": labels.clicks / labels.impressions, "labels": labels.label}
            scores = {
                key: score(fitted(X[labels.item], target, *given).predict(X_test))
                for key, target in targets.items()
            }
            draws.append(scores | (peers(X, log, X_test, score) if options.peers else {}))
        found = pd.DataFrame(draws)
        error = found.sub(found["click rates"], axis=0).sem()
        values = ", ".join(f"{key} {found[key].mean():.3f} (± {error[key]:.3f})" for key in found)
        what = "cascade" if cascade else f"eta {eta}, noise {noise}"
        print(f"  {n_sessions:>8} sessions, {what}, {options.draws} draws: {values}", flush=True)


def main():
    sets = ["ohsumed", "mslr", "lightgbm"]
    options = parse(__doc__, sessions=[10**4, 10**5], sets=sets, draws=8, peers=False)
    warnings.simplefilter("ignore")
    for run in (open_bandit, *(partial(compare, name, options) for name in options.sets)):
        try:
            run()
        except Missing as error:
            print(error)


if __name__ == "__main__":
    main()
