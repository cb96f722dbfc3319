"""Change of the leave-one-out accuracy of all other lines: `audit` against explicit refits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from rankrls import RankRLS
from rankrls.diagnostics import _deletion, audit
from rankrls.metrics import pairwise_accuracy

SPACES = {
    "linear": {},
    "wide": {},
    "sparse": {},
    "rbf": {"kernel": "rbf", "gamma": 0.2},
    "nystroem": {"kernel": "rbf", "gamma": 0.2, "basis": np.arange(0, 18, 3)},
    "precomputed": {"kernel": "precomputed"},
}


def _rows(space, rng, m=18):
    X = rng.standard_normal((m, 30 if space == "wide" else 4)) + 2.0
    X[5] = X[4]
    if space == "sparse":
        return sparse.csr_array(np.where(np.abs(X - 2) > 0.7, X, 0.0))
    return X @ X.T if space == "precomputed" else X


def _judgements(space, seed):
    rng = np.random.default_rng(seed)
    X = _rows(space, rng)
    pairs = rng.integers(0, 16, (32, 2))  # two rows without a judgement
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = np.vstack([pairs, pairs[:2], pairs[:2, ::-1], [(4, 5)]])
    magnitude, weight = np.ones(len(pairs)), rng.uniform(0.5, 2.0, len(pairs))
    magnitude[[3, 8]] = 0.0
    magnitude[6] = 2.5
    weight[4] = 0.0
    return X, pairs, magnitude, weight


def _right(ranker, X, pairs, magnitude, weight, judged, left_out):
    """Weight of judged pairs that a model without the pairs ``left_out`` predicts right."""
    rest = np.setdiff1d(np.arange(len(pairs)), left_out)
    model = RankRLS(**ranker).fit(
        X, pairs=pairs[rest], magnitude=magnitude[rest], pair_weight=weight[rest]
    )
    f = model.predict(X)
    difference = f[pairs[judged, 0]] - f[pairs[judged, 1]]
    difference[np.abs(difference) < 1e-12] = 0.0
    told = magnitude[judged] > 0
    return float((weight[judged] * (0.5 + 0.5 * np.sign(difference)))[told].sum())


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("by", ["judgement", "group"])
def test_judgements_against_refits(space, by):
    X, pairs, magnitude, weight = _judgements(space, sum(map(ord, space)))
    judges = np.arange(len(pairs)) % 5 if by == "group" else np.arange(len(pairs))
    ranker = {"alpha": 0.7, **SPACES[space]}
    data = (ranker, X, pairs, magnitude, weight)
    table = audit(
        *(RankRLS(**ranker), X),
        pairs=pairs,
        magnitude=magnitude,
        pair_weight=weight,
        groups=judges if by == "group" else None,
        eval_set="leave-one-out",
    )
    units = [np.flatnonzero(judges == judge) for judge in range(judges.max() + 1)]
    alone = [_right(*data, unit, unit) for unit in units]
    told = [float(weight[unit][magnitude[unit] > 0].sum()) for unit in units]
    for number, deleted in enumerate(units[: 5 if by == "group" else 9]):
        if not weight[deleted].any():
            assert np.isnan(table.metric_change[number])
            continue
        others = [k for k in range(len(units)) if k != number]
        both = [_right(*data, units[k], np.concatenate([units[k], deleted])) for k in others]
        change = (sum(both) - sum(alone[k] for k in others)) / sum(told[k] for k in others)
        np.testing.assert_allclose(table.metric_change[number], change, atol=1e-12)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("by", ["query", "group"])
@pytest.mark.parametrize("loss", [{"query_weighting": "size"}, {"cost": "unit"}])
def test_queries_against_refits(space, by, loss):
    rng = np.random.default_rng(sum(map(ord, space)))
    X = _rows(space, rng)
    codes = rng.permutation(np.repeat(np.arange(6), [4, 4, 3, 3, 3, 1]))
    y = rng.integers(0, 4, 18).astype(float)
    y[codes == 4] = 1.0  # a query without a preference
    units = codes % 3 if by == "group" else codes
    ranker = {"alpha": 0.7, **SPACES[space], **loss}
    table = audit(
        *(RankRLS(**ranker), X, y),
        qid=codes,
        groups=units if by == "group" else None,
        eval_set="leave-one-out",
    )

    def accuracies(left_out, unit):
        """By query, of the rows of a unit; rows that leave stay in the basis, without a pair."""
        alone = np.where(np.isin(units, left_out), 100 + np.arange(18), codes)
        f = RankRLS(**ranker).fit(X, y, qid=alone).predict(X)[units == unit]
        mine = y[units == unit], f.round(12)
        if all(np.ptp(y[codes == q]) == 0 for q in codes[units == unit]):
            return []
        found = pairwise_accuracy(*mine, qid=codes[units == unit], average=None)
        return list(found[np.isfinite(found)])

    names = np.unique(units)
    for number, deleted in enumerate(names):
        if table.size[number] == 0:
            assert np.isnan(table.metric_change[number])
            continue
        others = [unit for unit in names if unit != deleted]
        before = np.concatenate([accuracies([unit], unit) for unit in others])
        after = np.concatenate([accuracies([unit, deleted], unit) for unit in others])
        expected = np.mean(after) - np.mean(before)
        np.testing.assert_allclose(table.metric_change[number], expected, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-8, 1e-3, 1e6])
def test_two_cuts_of_a_graph(alpha):
    """Two judgements that together connect the rest: what they share is all that there is."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 12))
    pairs = np.array([(0, 1), (1, 2), (2, 0), (3, 2), (3, 4), (4, 5), (5, 3), (4, 0), (6, 7)])
    magnitude, weight = rng.uniform(0.5, 2.0, len(pairs)), np.ones(len(pairs))
    for kernel in ("linear", "rbf"):
        ranker = {"alpha": alpha, "kernel": kernel}
        table = audit(
            RankRLS(**ranker), X, pairs=pairs, magnitude=magnitude, eval_set="leave-one-out"
        )
        data = (ranker, X, pairs, magnitude, weight)
        for number in range(len(pairs)):
            others = np.setdiff1d(np.arange(len(pairs)), number)
            both = sum(_right(*data, np.array([k]), [k, number]) for k in others)
            alone = sum(_right(*data, np.array([k]), [k]) for k in others)
            np.testing.assert_allclose(
                table.metric_change[number], (both - alone) / len(others), atol=1e-12
            )


def test_refusals(monkeypatch):
    X, pairs, _, _ = _judgements("linear", 0)
    y, qid = np.arange(18) % 4, np.repeat(np.arange(3), 6)
    for arguments, message in (
        ({"y": y, "qid": qid, "by": "row"}, "not by='row'"),
        ({"pairs": pairs, "by": "item"}, "not by='item'"),
        ({"y": y, "qid": qid % 2}, "only 2 of them have a preference"),
        ({"pairs": pairs, "groups": np.arange(len(pairs)) % 2}, "only 2 of them have"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(RankRLS(), X, **arguments, eval_set="leave-one-out")
    with pytest.raises(ValueError, match="eval_set must be"):
        audit(RankRLS(), X, y, qid=qid, eval_set="others")
    monkeypatch.setattr(_deletion, "MAX_PAIRS", 2)
    with pytest.raises(ValueError, match=r"3 pairs of lines .* eval_set=\(X_val, y_val\)"):
        audit(RankRLS(), X, y, qid=qid, eval_set="leave-one-out")
