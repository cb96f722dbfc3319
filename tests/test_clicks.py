"""Click logs: examination against the truth and plain alternation, labels, values of rankings."""

import itertools

import numpy as np
import pytest

from rankrls import RankRLSCV
from rankrls.clicks import click_labels, estimate_examination, expected_clicks
from rankrls.metrics import ndcg


def sessions(n=40_000, n_queries=60, n_items=12, k=6, eta=1.0, seed=0, shuffle=0.3):
    """A log of single impressions, and the relevance (n_queries, n_items)."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 3, size=(n_queries, n_items))
    theta = np.arange(1, k + 1.0) ** -eta
    q = rng.integers(n_queries, size=n)
    first = rng.normal(size=(n_queries, n_items))  # a logging ranker that knows nothing
    order = np.argsort(-(first[q] + shuffle * rng.normal(size=(n, n_items))), axis=1)[:, :k]
    clicked = rng.random((n, k)) < theta * relevance[q[:, None], order]
    log = {
        "query": np.repeat(q, k),
        "item": order.ravel(),
        "position": np.tile(np.arange(1, k + 1), n),
        "clicks": clicked.ravel().astype(int),
    }
    return log, relevance, theta


def counted(log):
    """The log as counts of (query, item, position)."""
    keys = np.stack([log["query"], log["item"], log["position"]], axis=1)
    unique, code = np.unique(keys, axis=0, return_inverse=True)
    names = ("query", "item", "position")
    return dict(zip(names, unique.T, strict=True)) | {
        "clicks": np.bincount(code, log["clicks"]),
        "n": np.bincount(code),
    }


@pytest.mark.parametrize("eta", [0.5, 1.5])
def test_examination_is_recovered(eta):
    log, _, theta = sessions(eta=eta)
    found = estimate_examination(log)
    assert (np.abs(found.examination - theta) < 4 * found.std + 1e-12).all()
    np.testing.assert_allclose(found.examination, theta, rtol=0.15)
    frame = found.to_frame()
    assert frame.columns.tolist() == ["position", "examination", "std", "n_clicks", "group"]


def test_the_maximum_is_that_of_alternation():
    log, _, _ = sessions(n=4000)
    counts = counted(log)
    found = estimate_examination(counts, impressions="n")
    np.testing.assert_allclose(estimate_examination(log).examination, found.examination, rtol=1e-9)
    row = np.unique(counts["query"] * 100 + counts["item"], return_inverse=True)[1]
    place = counts["position"] - 1
    theta = np.ones(6)
    for _ in range(3000):
        r = np.bincount(row, counts["clicks"]) / np.bincount(row, counts["n"] * theta[place])
        theta = np.bincount(place, counts["clicks"]) / np.bincount(place, counts["n"] * r[row])
        theta /= theta[0]
    np.testing.assert_allclose(found.examination, theta, rtol=1e-6)


def test_standard_errors_are_those_of_repeated_logs():
    found = [estimate_examination(sessions(n=3000, seed=seed)[0]) for seed in range(40)]
    spread = np.std([f.examination for f in found], axis=0, ddof=1)
    claimed = np.mean([f.std for f in found], axis=0)
    np.testing.assert_allclose(claimed[1:], spread[1:], rtol=0.45)


def test_labels_are_unbiased_where_click_rates_are_not():
    log, relevance, _ = sessions(n=60_000)
    found = estimate_examination(log)
    labels = click_labels(log, examination=found)
    truth = relevance[labels.query, labels.item]
    rate = labels.clicks / labels.impressions
    weight = labels.weight
    assert np.average(labels.label - truth, weights=weight) == pytest.approx(0, abs=0.01)
    error = [np.average((x - truth) ** 2, weights=weight) for x in (labels.label, rate)]
    assert error[0] < 0.5 * error[1]
    np.testing.assert_allclose(labels.label, labels.clicks / labels.examined)
    frame = labels.to_frame()
    assert frame.columns[:4].tolist() == ["query", "item", "label", "weight"]
    with pytest.warns(UserWarning, match="at positions 3 and below"):
        by_hand = click_labels(log, examination=[1.0, 1.0])
    np.testing.assert_allclose(by_hand.label, rate)


def test_a_ranker_learns_the_relevance():
    rng = np.random.default_rng(0)
    log, relevance, _ = sessions(n=30_000, seed=3)
    X = np.log(relevance)[..., None] * rng.normal(1, 0.2, size=(*relevance.shape, 3))
    labels = click_labels(log, examination=estimate_examination(log))
    ranker = RankRLSCV(scoring="pairwise_r2")
    ranker.fit(X[labels.query, labels.item], labels.label, qid=labels.query,
               sample_weight=labels.weight)  # fmt: skip
    scores = ranker.predict(X.reshape(-1, 3))
    qid = np.repeat(np.arange(60), 12)
    assert ndcg(relevance.ravel(), scores, qid=qid) > 0.9


def test_files_frames_and_several_logs_add_up(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    import pyarrow.parquet

    log, _, _ = sessions(n=500)
    expected = estimate_examination(log)
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    pd.DataFrame(log).to_csv(tmp_path / "log.csv", index=False)
    frame = pd.DataFrame(log)
    halves = [frame[:1000], frame[1000:]]
    frame.to_csv(tmp_path / "log.tsv", index=False, sep="\t")
    frame.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    frame.to_feather(tmp_path / "log.feather")
    (tmp_path / "days").mkdir()
    halves[0].to_parquet(tmp_path / "days" / "1.parquet")
    halves[1].to_parquet(tmp_path / "days" / "2.parquet")
    texts = frame.astype({"query": str}).astype({"query": "category"})
    frames = [frame, pl.LazyFrame(log), pa.table(log), texts[::-1], frame.astype({"position": str})]
    files = [tmp_path / name for name in ("log.jsonl", "log.feather", "days")]
    logs = [halves, iter(halves), pa.table(log).to_batches()]
    for given in (*frames, *files, *logs, str(tmp_path / "log.tsv")):
        found = estimate_examination(given)
        np.testing.assert_allclose(found.examination, expected.examination, rtol=1e-9)
    dd = pytest.importorskip("dask.dataframe")
    lazy = dd.from_pandas(frame, npartitions=3)
    np.testing.assert_allclose(estimate_examination(lazy).std, expected.std, rtol=1e-9)
    labels = click_labels(lazy, examination=expected)
    np.testing.assert_allclose(labels.label, click_labels(log, examination=expected).label)


def test_positions_without_moves_are_pooled_or_refused():
    log, _, _ = sessions(n=5000, shuffle=0.0)
    with pytest.raises(ValueError, match="no item with a click was shown at two positions"):
        estimate_examination(log)
    log, _, _ = sessions(n=2000)
    log["position"] = np.where(log["position"] == 6, 40 + log["item"], log["position"])
    found = estimate_examination(log)
    assert found.group[-1] < len(found.positions) - 1
    assert (found.n_clicks[found.group == 0] >= 20).any()
    rising, _, _ = sessions(n=3000, eta=-0.2)
    assert (np.diff(estimate_examination(rising, monotone=True).examination) <= 0).all()


def test_additive_effects_of_positions():
    log, relevance, _ = sessions(n=20_000)
    rng = np.random.default_rng(1)
    effect = np.array([0.0, -0.3, -0.5, -0.6, -0.7, -0.75])
    graded = relevance[log["query"], log["item"]] + effect[log["position"] - 1]
    log["clicks"] = graded + 1 + 0.1 * rng.normal(size=len(graded))
    found = estimate_examination(log, model="additive")
    np.testing.assert_allclose(found.examination, effect, atol=0.02)
    labels = click_labels(log, examination=found)
    truth = 1 + relevance[labels.query, labels.item]
    assert np.average(np.abs(labels.label - truth), weights=labels.examined) < 0.02


def test_the_value_of_another_ranking():
    log, relevance, theta = sessions(n=60_000, shuffle=1.0)
    found = estimate_examination(log)

    def best(labels):
        return relevance[labels.query, labels.item]

    value = expected_clicks(log, best, examination=found, k=6)
    truth = np.mean([(theta * np.sort(r)[::-1][:6]).sum() for r in relevance])
    assert value.low < truth < value.high
    assert value.coverage > 0.99
    labels = click_labels(log, examination=found)
    difference = expected_clicks(log, best, other=np.zeros(len(labels)), examination=found, k=6)
    assert difference.low > 0
    assert difference.p_value < 1e-3
    few = {key: values[:60] for key, values in log.items()}
    with pytest.warns(UserWarning, match="hardly examined"):
        expected_clicks(few, best, examination=[1.0, *[0.05] * 5], k=6)
    with pytest.warns(UserWarning, match="lists have 12 items, and the log tells about 6"):
        expected_clicks(log, best, examination=found)
    with pytest.raises(ValueError, match="one score for each"):
        expected_clicks(log, [1.0], examination=found)


def test_items_of_equal_score_count_as_the_mean_of_all_their_orders():
    log = {"query": np.repeat([1, 2], 4), "item": np.tile(np.arange(4), 2), "position": [1] * 8}
    log |= {"clicks": [9, 5, 1, 3, 0, 8, 7, 2], "n": [10] * 8}
    given = {"impressions": "n", "examination": [1.0, 0.5, 0.2, 0.1], "k": 3}
    one = [3.0, 1.0, 1.0, 1.0]
    orders = [
        expected_clicks(log, np.tile(np.add(one, [0, *r]), 2), **given).by_query
        for r in itertools.permutations([0.1, 0.2, 0.3])
    ]
    found = expected_clicks(log, np.tile(one, 2), **given).by_query
    np.testing.assert_allclose(found, np.mean(orders, axis=0))
    assert (np.ptp(orders, axis=0) > 0.1).all()


@pytest.mark.parametrize(
    ("name", "cell", "match"),
    [
        ("clicks", -1, r"'clicks' .* numbers >= 0; got -1 to 1"),
        ("clicks", "yes", r"'clicks' .* numbers >= 0: .*'yes'"),
        ("position", -1, "got -1 to 6 .*unknown"),
        ("query", None, "'query' of the log is empty in 1 of 600 rows"),
        ("query", "", "'query' of the log is empty in 1 of 600 rows"),
    ],
)
def test_bad_columns(name, cell, match):
    log, _, _ = sessions(n=100)
    values = log[name].astype(str if isinstance(cell, str) else object)
    values[5] = cell
    with pytest.raises(ValueError, match=match):
        estimate_examination(log | {name: values})
    with pytest.raises(ValueError, match="expected length"):
        estimate_examination(log | {name: [1, 2]})


def test_bad_logs(tmp_path):
    pd = pytest.importorskip("pandas")
    log, _, _ = sessions(n=100)
    frame = pd.DataFrame(log)
    found = [1.0] * 6
    for call, match in (
        (lambda: estimate_examination(log, position="rank"), "no column 'rank'"),
        (lambda: estimate_examination(log, clicks="position"), "must be different columns"),
        (lambda: estimate_examination(7), "must be a data frame"),
        (lambda: estimate_examination(iter([])), "an iterator can be read only once"),
        (lambda: estimate_examination(pd.concat([frame, frame[["item"]]], axis=1)), "unique"),
        (lambda: estimate_examination([frame, frame.astype({"item": str})]), "different types"),
        (lambda: estimate_examination(frame.assign(item=["a", *frame["item"][1:]])), "one type"),
        (lambda: click_labels(log, examination=[[1.0]]), "examination must"),
        (lambda: click_labels(log, examination={1: 1.0}), "examination must"),
        (lambda: estimate_examination(frame.assign(item=[[1]] * 600)), "numbers or text: list"),
        (lambda: estimate_examination(frame.assign(item=[b"caf\xe9"] * 600)), "no text in UTF-8"),
        (lambda: click_labels(frame.assign(position=frame["position"] - 1), examination=found),
         "counted from 0"),
        (lambda: expected_clicks(log, [1.0], examination=found, k=0), "k must be"),
        (lambda: expected_clicks(log, [1.0], examination=found, confidence=95), "confidence must"),
        (lambda: expected_clicks(log, lambda rows: rows.label * np.nan, examination=found), "NaN"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.warns(UserWarning, match="only 24 clicks of the log tell positions apart"):
        estimate_examination(log)
    with pytest.warns(UserWarning, match="positions that are no integers, such as 1.5"):
        click_labels(frame.assign(position=frame["position"] + 0.5), examination=[1.0] * 7)


def test_more_clicks_than_impressions():
    log = {"query": [1, 1, 1, 1], "item": ["a", "a", "b", "b"], "position": [1, 2, 1, 2]}
    log |= {"clicks": [30, 15, 40, 20], "n": [25, 100, 100, 100]}
    with pytest.warns(UserWarning, match="1 of 4 counts .* more clicks than impressions"):
        click_labels(log, impressions="n", examination=[1.0, 0.5])
    fewer = log | {"clicks": [20, 50, 40, 20]}
    with pytest.warns(UserWarning, match="1 of 2 labels are above 1 by more than chance"):
        click_labels(fewer, impressions="n", examination=[1.0, 0.01])
    with pytest.warns(UserWarning, match="more clicks than impressions"):
        estimate_examination(log)  # rows of counts, without the column of impressions
    with pytest.warns(UserWarning, match="only 4 impressions of the log tell positions apart"):
        estimate_examination(log, model="additive")  # feedback that is no count


def test_clicks_without_impressions_tell_nothing_about_positions():
    log = counted(sessions(n=4000)[0])
    lost = {"query": [0, 0], "item": [999, 0], "position": [2, 7], "clicks": [5, 5], "n": [0, 0]}
    both = {name: np.concatenate([log[name], lost[name]]) for name in log}
    with pytest.warns(UserWarning, match="more clicks than impressions"):
        found = estimate_examination(both, impressions="n").examination
    np.testing.assert_allclose(found[:6], estimate_examination(log, impressions="n").examination)
