"""Hinge losses against the double loop: ties in scores and in predictions, weights, queries."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import cases
import oracles
from rankrls.core.hinge import losses
from rankrls.core.hinge.losses import Dominance, hinge_losses
from rankrls.core.preferences.graph import PreferenceGraph


@pytest.fixture(params=["counted", "materialised"])
def way(request, monkeypatch):
    """Whether the pairs of scores are counted or materialised."""
    monkeypatch.setattr(losses, "PAIRS_PER_ROW", 0)
    monkeypatch.setattr(losses, "MAX_PAIRS", 0 if request.param == "counted" else 10**6)
    return request.param


@st.composite
def rankings(draw):
    """Levels, queries and predictions with many ties; margins that some differences hit exactly."""
    m = draw(st.integers(1, 40))
    integers = st.integers(0, draw(st.sampled_from([1, 3, 40])))
    y = draw(st.lists(integers, min_size=m, max_size=m))
    qid = draw(st.lists(st.integers(0, draw(st.sampled_from([0, 3, 20]))), min_size=m, max_size=m))
    step = draw(st.sampled_from([0.5, 0.25, 0.1, 1 / 3]))
    f = draw(st.lists(st.integers(-6, 6), min_size=m, max_size=m))
    t = draw(st.sampled_from([1.0, 0.5, 0.0, -0.5]))
    order = np.lexsort((y, qid))
    return np.array(y)[order], np.array(qid)[order], step * np.array(f)[order], t


def build(y, qid):
    starts = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    level = np.concatenate(
        [np.unique(part, return_inverse=True)[1] for part in np.split(y, starts[1:])]
    )
    return Dominance(level, starts)


def violated(y, qid, f, t):
    """V[h, j]: h is above j, and their difference is below t."""
    pairs = (qid[:, None] == qid) & (y[:, None] > y)
    return pairs & (f[:, None] < f + t)


@settings(deadline=None, max_examples=200)
@given(rankings(), st.floats(0.0, 2.0), st.integers(0, 2**31))
def test_counts_weights_and_pairs(case, width, seed):
    y, qid, f, t = case
    V, pairs = violated(y, qid, f, t), build(y, qid)
    below, above = pairs.count(f, t)
    np.testing.assert_array_equal(below, V.sum(axis=1))
    np.testing.assert_array_equal(above, V.sum(axis=0))
    W = np.random.default_rng(seed).uniform(-1.0, 2.0, (2, len(y)))
    below, above = pairs.weigh(f, t, W)
    np.testing.assert_allclose(below, W @ V.T, atol=1e-12)
    np.testing.assert_allclose(above, W @ V, atol=1e-12)
    assert not below[:, ~V.any(axis=1)].any()  # exactly zero
    assert not above[:, ~V.any(axis=0)].any()
    inside = violated(y, qid, f, t + width) & ~V
    upper, lower = pairs.between(f, t, t + width, 10**6)
    found = np.zeros_like(inside)
    found[upper, lower] = True
    np.testing.assert_array_equal(found, inside)
    assert len(upper) == inside.sum()


def test_many_rows_counted_in_32_and_64_bits(monkeypatch):
    """Real-valued scores: every row is a level of its own."""
    m = 3000
    y, f = np.arange(m), np.random.default_rng(1).standard_normal(m).cumsum() * 0.05
    V = violated(y, np.zeros(m), f, 1.0)
    for dtype in (np.int32, np.int64):
        below, above = build(y, np.zeros(m)).count(f, 1.0)
        assert below.dtype == dtype
        np.testing.assert_array_equal(below, V.sum(axis=1))
        np.testing.assert_array_equal(above, V.sum(axis=0))
        monkeypatch.setattr(losses, "MAX_INT32", 10)


NAMES = ("kind", "qid", "weight", "query_weighting", "n_pairs")
KINDS = ("continuous", "graded", "mixed"), ("one", "many"), (None, "positive", "zeros")
GRID = list(itertools.product(*KINDS, cases.WEIGHTINGS, (0, 7)))


def make(seed, *values):
    case = cases.Case(seed, cost="unit", **dict(zip(NAMES, values, strict=True)))
    (loss,) = hinge_losses(case.graph, values[3])
    return case, loss


@pytest.mark.parametrize("values", GRID, ids=lambda values: "-".join(map(str, values)))
def test_losses(values, way):
    case, loss = make(0, *values)
    assert loss.n_pairs == len(case.edges)
    total = sum(ww for _, _, ww, _ in case.edges)
    np.testing.assert_allclose(loss.total, total)
    touched = {i for edge in case.edges for i in edge[:2]}
    assert set(loss.used().tolist()) == touched
    for f in (case.rng.standard_normal(case.m), case.rng.integers(-3, 4, case.m) * 0.5):
        found = {"hinge": loss.hinge(f), "squared": loss.squared(f)}
        found["smoothed"] = loss.smoothed(f, 0.3)
        for shape, violations in found.items():
            value, delta, beta = oracles.hinge(case.edges, f, shape=shape, mu=0.3)
            np.testing.assert_allclose(violations.loss, value, rtol=1e-12, atol=1e-12 * total)
            np.testing.assert_allclose(violations.delta, delta, atol=1e-12 * total)
            np.testing.assert_allclose(violations.beta, beta, rtol=1e-12, atol=1e-12 * total)
        # D(β) = Σβ − fᵀδ is what the dual variables account for.
        v = found["smoothed"]
        np.testing.assert_allclose(v.loss - v.slack, v.beta - f @ v.delta, atol=1e-12 * total)
        assert v.slack >= 0


@pytest.mark.parametrize("weight", [None, "positive"])
@pytest.mark.parametrize("n_pairs", [0, 7])
def test_the_smoothed_hinge_by_two_ramps(weight, n_pairs, monkeypatch):
    """Where too many pairs have a violation between 0 and mu."""
    monkeypatch.setattr(losses, "PAIRS_PER_ROW", 0)
    monkeypatch.setattr(losses, "MAX_PAIRS", 0)
    case, loss = make(2, "continuous", "one", weight, "size", n_pairs)
    f = case.rng.standard_normal(case.m)
    near = loss.smoothed(f, 0.4)
    monkeypatch.setattr(losses, "SMOOTHED_PER_ROW", 0)
    ramps = loss.smoothed(f, 0.4)
    for name in ("delta", "beta", "loss", "value", "slack"):
        np.testing.assert_allclose(getattr(near, name), getattr(ramps, name), 1e-11, 1e-13)


def test_an_offset_costs_no_digits(way):
    """Predictions are defined up to a constant for each query."""
    rng = np.random.default_rng(4)
    m = 80
    y, qid = rng.standard_normal(m), rng.integers(0, 3, m)
    f = rng.integers(-2000, 2000, m) / 1024  # a large power of two can be added without rounding
    (loss,) = hinge_losses(PreferenceGraph.from_scores(y, qid=qid), "pair")
    shifted = f + np.array([2.0**40, -(2.0**39), 0.0])[qid]
    for name in ("hinge", "squared"):
        plain, offset = getattr(loss, name)(f), getattr(loss, name)(shifted)
        np.testing.assert_allclose(offset.loss, plain.loss, rtol=1e-12)
        np.testing.assert_allclose(offset.delta, plain.delta, rtol=1e-9, atol=1e-9)
