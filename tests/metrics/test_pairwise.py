"""Pairwise error, accuracy and concordance against double loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import oracles as oracle
from rankrls.metrics import concordance_index, pairwise_accuracy, pairwise_error
from rankrls.metrics.counting import count_pairs


@st.composite
def ranked_data(draw, max_rows=25):
    """Labels, scores, queries and weights with many ties and queries of every size."""
    n = draw(st.integers(1, max_rows))
    levels = draw(st.sampled_from([2, 4, 1000]))
    score_levels = draw(st.sampled_from([2, 4, 1000]))
    n_queries = draw(st.integers(1, 5))
    column = lambda top: st.lists(st.integers(0, top), min_size=n, max_size=n)  # noqa: E731
    y = np.array(draw(column(levels - 1)), dtype=float)
    score = np.array(draw(column(score_levels - 1)), dtype=float) / 7
    qid = np.array(draw(column(n_queries - 1)))
    weight = np.array(draw(column(4)), dtype=float) / 3
    return y, score, qid, weight


@given(ranked_data(), st.sampled_from(["half", "error"]), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_error_equals_that_of_all_pairs(data, ties, label_ties, weighted):
    """Of labels and of given pairs; tied labels as half an error are P2 (1)."""
    y, score, qid, weight = data
    weight = weight if weighted else np.ones(len(y))
    W = np.triu(np.outer(weight, weight) * (qid[:, None] == qid), 1)
    order, predicted = (np.sign(v[:, None] - v) for v in (y, score))
    wrong = np.where(predicted == 0, 0.5 if ties == "half" else 1.0, predicted != order)
    wrong = np.where(order == 0, 0.5 * (predicted != 0), wrong)
    W = W if label_ties else W * (order != 0)
    inside = [qid == query for query in np.unique(qid)]
    with np.errstate(invalid="ignore"):
        expected = np.array([(W * wrong)[q].sum() / W[q].sum() for q in inside])
    options = {"qid": qid, "ties": ties, "label_ties": "half" if label_ties else "ignore"}
    options["sample_weight"] = weight if weighted else None
    i, j = np.nonzero(np.triu(qid[:, None] == qid, 1))
    i, j = np.where(y[i] >= y[j], i, j), np.where(y[i] >= y[j], j, i)
    pairs = {"pairs": np.column_stack([i, j]), "magnitude": y[i] - y[j]}
    for labels, given_pairs in ((y, {}), (None, pairs)):
        if W.sum() == 0:
            with pytest.raises(ValueError, match="no preference"):
                pairwise_error(labels, score, **options, **given_pairs)
            continue
        for average, value in (
            (None, expected), ("query", np.nanmean(expected)), ("pair", (W * wrong).sum() / W.sum())
        ):  # fmt: skip
            given_options = {"average": average, **options, **given_pairs}
            found = pairwise_error(labels, score, **given_options)
            np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-13)
            np.testing.assert_array_equal(
                pairwise_accuracy(labels, score, **given_options), 1 - found
            )


def test_pair_weights_and_cycles():
    score = [3.0, 2.0, 2.0]
    pairs = [(0, 1), (1, 0), (1, 2), (1, 2)]
    assert pairwise_error(None, score, pairs=pairs) == (1 + 0.5 + 0.5) / 4
    assert pairwise_error(None, score, pairs=pairs, pair_weight=[1, 2, 4, 1]) == 4.5 / 8
    weighted = pairwise_error(
        None, score, pairs=pairs, pair_weight=[1, 2, 4, 1], sample_weight=[1, 2, 3]
    )
    assert weighted == pytest.approx((4 + 0.5 * 30) / (2 + 4 + 30))
    assert pairwise_error(None, score, pairs=pairs, ties="error") == 3 / 4
    huge = [1.5e308, -1.5e308, 1.6e308]  # whose differences overflow
    assert pairwise_error(None, huge, pairs=[(0, 1), (1, 2)]) == 0.5


@pytest.mark.parametrize(
    ("block", "weighted", "in_order"), [(1, False, True), (7, True, False), (40, False, False)]
)
def test_blocks_of_queries_change_nothing(block, weighted, in_order, monkeypatch):
    rng = np.random.default_rng(block)
    codes = rng.integers(0, 12, 100)
    codes[codes == 5] = 6  # an empty query
    if in_order:
        codes.sort()
    y, score = rng.integers(0, 4, 100).astype(float), rng.integers(0, 6, 100) / 3
    weight = rng.integers(0, 3, 100) * rng.random(100) if weighted else None
    whole = count_pairs(y, score, codes, 12, weight)
    monkeypatch.setattr("rankrls.metrics.counting.BLOCK", block)
    counts = count_pairs(y, score, codes, 12, weight)
    assert counts.comparable.dtype == whole.comparable.dtype
    for name in ("comparable", "discordant", "tied"):
        np.testing.assert_allclose(getattr(counts, name), getattr(whole, name), rtol=1e-12)


def test_counts_do_not_overflow():
    n = 200_000
    down = np.arange(n)[::-1].astype(float)
    counts = count_pairs(np.arange(n, dtype=float), down, np.zeros(n, dtype=int), 1)
    assert counts.discordant[0] == n * (n - 1) // 2 > 2**33
    assert counts.comparable[0] == counts.discordant[0]
    assert counts.tied[0] == 0
    levels = np.arange(n) % 4
    counts = count_pairs(levels, levels // 2, np.zeros(n, dtype=int), 1)
    assert counts.tied[0] == 2 * (n // 4) ** 2
    assert counts.comparable[0] - counts.tied[0] == 4 * (n // 4) ** 2
    assert counts.discordant[0] == 0


def test_small_weights_beside_large_queries():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 3, 300).astype(float), rng.normal(size=300).round(1)
    qid = np.repeat([0, 1, 2], 100)
    weight = rng.random(300) * np.repeat([1e12, 1e-12, 1.0], 100)
    expected = oracle.pairwise_error(y, score, qid, weight=weight)
    actual = pairwise_error(y, score, qid=qid, sample_weight=weight, average=None)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("heavy", [1e2, 1e6, 1e9, 1e12, 1e18, 1e100])
def test_rows_of_very_different_weight(heavy):
    """Right to five digits, or with a warning: the light rows are lost beside a heavy one."""
    rng = np.random.default_rng(0)
    y, score, qid = rng.integers(0, 3, 120), rng.normal(size=120).round(1), np.repeat([0, 1, 2], 40)
    weight = rng.random(120) * np.where(np.arange(120) % 40 == 7, heavy, 1.0)
    expected = oracle.pairwise_error(y, score, qid, weight=weight)
    options = {"qid": qid, "sample_weight": weight, "average": None}
    if heavy > 1e9:
        with pytest.warns(UserWarning, match="differ by so many orders of magnitude"):
            pairwise_error(y, score, **options)
    else:
        np.testing.assert_allclose(pairwise_error(y, score, **options), expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e-320, 1e200])
def test_extreme_weights(scale):
    y, score, weight = [2, 1, 0, 1], [3, 1, 2, 2], np.array([1.0, 2.0, 4.0, 8.0])
    expected = pairwise_error(y, score, sample_weight=weight)
    assert pairwise_error(y, score, sample_weight=weight * scale) == pytest.approx(expected, 1e-2)
    options = {"pairs": [(0, 1), (1, 2)], "pair_weight": weight[:2] * scale}
    assert pairwise_error(None, score, **options) == pytest.approx(2 / 3, 1e-2)


def test_concordance_index_is_auc_for_two_levels():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 2, 200), rng.normal(size=200).round(1)
    assert concordance_index(y, score) == pytest.approx(roc_auc_score(y, score), abs=1e-14)
    weight = rng.random(200)
    auc = roc_auc_score(y, score, sample_weight=weight)
    assert concordance_index(y, score, sample_weight=weight) == pytest.approx(auc, abs=1e-13)
    qid = rng.integers(0, 5, 200)
    together = pairwise_accuracy(y, score, qid=qid, average="pair")
    assert concordance_index(y, score, qid=qid) == together


def test_several_outputs():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 3, (40, 2)), rng.normal(size=(40, 2))
    qid = rng.integers(0, 4, 40)
    single = [pairwise_error(y[:, c], score[:, c], qid=qid) for c in range(2)]
    assert pairwise_error(y, score, qid=qid) == pytest.approx(np.mean(single))
    by_query = pairwise_error(y, score, qid=qid, average=None)
    assert by_query.shape == (4, 2)
    np.testing.assert_array_equal(
        by_query[:, 1], pairwise_error(y[:, 1], score[:, 1], qid=qid, average=None)
    )
    together = pairwise_error(None, score, pairs=[(0, 1), (2, 3)])
    single = [pairwise_error(None, score[:, c], pairs=[(0, 1), (2, 3)]) for c in range(2)]
    assert together == pytest.approx(np.mean(single))
    with pytest.raises(ValueError, match="output 1"):
        pairwise_error(np.column_stack([np.arange(4), np.ones(4)]), np.ones((4, 2)))


BAD = [
    ({"ties": "drop"}, "ties must be one of 'half', 'error'; got 'drop'"),
    ({"average": "macro"}, "average must be one of 'query', 'pair', None; got 'macro'"),
    ({"sample_weight": [1, 1]}, "sample_weight has 2 entries for 3 rows of y_score"),
    ({"sample_weight": [1, -1, 1]}, "sample_weight must be >= 0"),
    ({"y_true": [1, np.inf, 0]}, "y_true contains NaN or infinity"),
    ({"y_true": [[1], [0], [2]]}, "y_true has shape"),
    ({"y_true": [1, 1, 1]}, "no preference"),
    ({"sample_weight": [1, 0, 0]}, "no preference"),
    ({"pairs": [(0, 1)]}, "y_true and pairs are both given"),
    ({"y_true": None}, "give y_true or pairs"),
    ({"pair_weight": [1]}, "pair_weight is given without pairs"),
    ({"y_true": None, "pairs": [(0, 3)]}, "out of range"),
    ({"y_true": None, "pairs": np.empty((0, 2), int)}, "no preference"),
    ({"y_true": None, "pairs": [(0, 1)], "pair_weight": [1, 2]}, "pair_weight has 2 entries"),
    ({"y_true": None, "pairs": [(0, 1), (1, 2)], "qid": [7, 7, 8]}, r"pairs\[1\] = \(1, 2\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    arguments = {"y_true": [2, 1, 0], "y_score": [1.0, 2.0, 3.0], **change}
    with pytest.raises(ValueError, match=message):
        pairwise_accuracy(**arguments)
