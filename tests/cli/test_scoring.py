"""Ranked lists on the command line: predict --top, evaluate --run, compare, weights."""

import io
import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankrls import rank
from rankrls.datasets import (
    dump_letor,
    ids_from_comments,
    load_ids,
    load_qrels,
    load_ranking,
    load_run,
    make_ranking,
)
from rankrls.io import load_model
from rankrls.metrics import compare_rankers, compare_runs, evaluate, evaluate_run, ndcg


@pytest.fixture(scope="module")
def frame():
    made = make_ranking(n_queries=25, n_docs=(2, 9), n_features=3, random_state=4)
    rows = pd.DataFrame(made.data * [1, 50, 0.01] + 3, columns=["bm25", "clicks", "age"])
    rows["doc"] = [f"d{i}, é" if i % 7 == 0 else f"d{i}" for i in range(len(rows))]
    rows["qid"], rows["label"] = [f"q{q}" for q in made.qid], made.target
    return rows


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rankings")
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    words = frame.assign(doc=frame["doc"].str.split(",").str[0])
    words.to_csv(folder / "words.csv", index=False)
    comments = [f"docid = {doc} inc = 1" for doc in words["doc"]]
    X = frame[["bm25", "clicks", "age"]].to_numpy()
    dump_letor(X, frame["label"], folder / "rows.dat", qid=frame["qid"], comments=comments)
    lines = zip(frame["qid"], words["doc"], frame["label"], strict=True)
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {d} {y:g}\n" for q, d, y in lines))
    return folder


@pytest.fixture(autouse=True)
def here(files, monkeypatch):
    monkeypatch.chdir(files)


@pytest.fixture
def model(run):
    run("fit rows.csv -m model --drop doc --alpha 1")
    return load_model("model")


@pytest.mark.parametrize("file", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("top", [None, 1, 3])
def test_lists_are_those_of_rank(run, model, frame, file, top):
    expected = rank(model, frame, qid="qid", ids="doc", k=top).to_frame()
    words = f"predict {file} -m model --doc-id doc" + f" --top {top}" * (top is not None)
    made = pd.read_csv(io.StringIO(run(words + " --format csv").out))
    pd.testing.assert_frame_equal(made, expected, check_exact=False, rtol=1e-12)
    assert run(words).out == run(words + " --format csv").out
    lines = pd.read_json(io.StringIO(run(words + " --format json").out), lines=True)
    pd.testing.assert_frame_equal(lines, expected, check_exact=False, rtol=1e-12)


def test_rows_without_names_are_numbered(run, model, frame):
    expected = rank(model, frame, qid="qid", k=2)
    made = pd.read_csv(io.StringIO(run("predict rows.csv -m model --top 2").out))
    assert made["id"].tolist() == expected.id.tolist()
    one = pd.read_csv(io.StringIO(run("predict rows.csv -m model --top 3 --one-ranking").out))
    assert one["query"].tolist() == [0, 0, 0]


def test_runs_are_read_again_and_evaluated(run, model, frame):
    run("predict words.csv -m model --doc-id doc --format trec -o run.txt")
    table = load_run("run.txt")
    expected = rank(model, pd.read_csv("words.csv"), qid="qid", ids="doc")
    assert table.id.tolist() == expected.id.tolist()
    np.testing.assert_allclose(table.score, expected.score, rtol=1e-12)
    asked = "ndcg@3,map,mrr,recall@2,err@5,precision@4"
    found = run(f"evaluate --run run.txt --qrels qrels.txt --metrics {asked} --json").json
    rows = run(f"evaluate words.csv -m model --metrics {asked} --json").json
    values = evaluate(frame["label"], model.predict(frame[["bm25", "clicks", "age"]]),
                      qid=frame["qid"], metrics=asked)  # fmt: skip
    for name in asked.split(","):
        assert found[name] == pytest.approx(rows[name]) == pytest.approx(values[name])
    assert found["n_judged"] == len(frame)
    trec = "--gain linear --ties id --undefined 0 --missing-queries skip --relevant 2"
    words = f"evaluate --run run.txt --qrels qrels.txt --metrics {asked} {trec}"
    each = run(words + " --json --per-query").json
    expected = evaluate_run(
        table, load_qrels("qrels.txt"), metrics=asked, gain="linear", ties="id", undefined=0,
        missing_queries="skip", relevance_threshold=2, average=None,
    )  # fmt: skip
    assert [line["qid"] for line in each["queries"]] == expected["query"].tolist()
    np.testing.assert_allclose([line["map"] for line in each["queries"]], expected["map"])
    assert each["map"] == pytest.approx(expected["map"].mean())
    assert len(run(words + " --per-query").out.splitlines()) == 1 + len(expected["query"])
    piped = run("evaluate --run - --qrels qrels.txt --json", stdin=Path("run.txt").read_bytes())
    assert piped.json["n_retrieved"] == len(table)


def test_letor_text_has_ids_in_comments(run, frame):
    run("fit rows.dat -m plain --alpha 1 --scale query-standard")
    made = pd.read_csv(io.StringIO(run("predict rows.dat -m plain --doc-id docid --top 2").out))
    bunch = load_ranking("rows.dat")
    ids = ids_from_comments(bunch.comments)
    assert ids.tolist() == load_ids("rows.dat", "docid").tolist()
    expected = rank(load_model("plain"), bunch, ids=ids, k=2)
    assert made["id"].tolist() == expected.id.tolist()
    rows = Path("rows.dat").read_bytes()
    assert run("predict - -m plain --doc-id docid --top 2", stdin=rows).out.count("\n") > 10
    # A model without names reads a table by position: the ids are no feature there.
    by_table = run("predict words.csv -m plain --doc-id doc --top 2").out
    assert pd.read_csv(io.StringIO(by_table))["id"].tolist() == expected.id.tolist()
    words = Path("words.csv").read_bytes()
    assert run("predict - -m plain --doc-id doc --top 2", stdin=words).out == by_table


def test_comparisons_are_those_of_the_library(run, model, frame):
    run("fit rows.dat -m other --alpha 1000000 --scale none")
    np.savetxt("scores.txt", frame["age"])
    y, qid = frame["label"], frame["qid"]
    a = model.predict(frame[["bm25", "clicks", "age"]])
    words = "compare model scores.txt --data rows.csv --drop doc --json"
    found = run(words).json
    expected = compare_rankers(
        y, a, frame["age"].to_numpy(), qid=qid, metric="ndcg@10", random_state=0
    )
    assert found["p_value"] == expected.p_value
    assert found["difference"] == pytest.approx(expected.difference)
    linear = run(f"{words} --gain linear --metric ndcg@2").json
    by_hand = partial(ndcg, k=2, gain="linear")
    assert linear["mean_a"] == pytest.approx(by_hand(y, a, qid=qid))
    assert linear["metric"] == "ndcg@2"
    two = run("compare model other --data rows.csv --drop doc --metric pairwise_accuracy").out
    assert two.startswith("a = model\nb = other\npairwise_accuracy over ")
    run("predict words.csv -m model --doc-id doc --format trec -o a.run")
    run("predict words.csv -m other --doc-id doc --format trec -o b.run")
    runs = run("compare a.run b.run --qrels qrels.txt --metric map --json").json
    expected = compare_runs(
        load_run("a.run"), load_run("b.run"), load_qrels("qrels.txt"), metric="map", random_state=0
    )
    assert runs["p_value"] == expected.p_value
    assert runs["mean_a"] == expected.mean_a


@pytest.mark.parametrize("how", ["--scale standard", "--scale none", "--scale minmax",
                                 "--missing mean"])  # fmt: skip
def test_weights_are_those_of_the_columns(run, frame, how):
    run(f"fit rows.csv -m model --drop doc --alpha 1 {how}")
    made = run("weights -m model --json").json
    weight = {line["feature"]: line["weight"] for line in made["weights"]}
    X = frame[["bm25", "clicks", "age"]]
    scores = sum(weight[name] * X[name] for name in X) + made["constant"]
    np.testing.assert_allclose(scores, load_model("model").predict(X), rtol=1e-9)
    key = "weight" if how == "--scale none" else "scaled_weight"
    sizes = [abs(line[key]) for line in made["weights"]]
    assert sizes == sorted(sizes, reverse=True)
    assert ("scaled_weight" in made["weights"][0]) == (how != "--scale none")
    printed = run("weights -m model --top 2").out.splitlines()
    assert [line.split()[0] for line in printed] == ["feature"] + [
        line["feature"] for line in made["weights"][:2]
    ]


def test_weights_that_are_not_there(run, frame):
    run("fit rows.dat -m by_query --alpha 1 --scale query-minmax")
    told = run("weights -m by_query")
    assert told.out.split()[:3] == ["feature", "scaled", "weight"]
    assert "scaled within each query" in told.err
    run("fit rows.dat -m kernel --alpha 1 --kernel rbf")
    assert "this RankRLS has no weights" in run("weights -m kernel", code=2).err


def test_a_comparison_without_a_relevant_row(run):
    with open("zero.csv", "w") as file:
        file.write("label,qid,a\n0,1,1\n0,1,2\n")
    with open("two.txt", "w") as file:
        file.write("1\n2\n")
    told = run("compare two.txt two.txt --data zero.csv", code=2).err
    assert "ndcg@10 is defined for no query" in told


def test_compare_with_a_third_file(run):
    told = run("compare a b rows.dat", code=2).err
    assert "extra argument (rows.dat): rows are named by --data (see rankrls compare" in told


def test_ids_of_files(files, frame):
    for name, column in (("rows.csv", "doc"), ("rows.parquet", "doc")):
        assert load_ids(files / name, column).tolist() == frame["doc"].tolist()
    assert load_ids(files / "rows.dat", "inc").tolist() == ["1"] * len(frame)
    assert load_ids(io.BytesIO(b"1 qid:1 0:2 # docid = a\n"), "docid").tolist() == ["a"]
    plain = io.BytesIO(b"1 qid:1 1:2 # a b\n0 qid:1 1:3 # c\n")
    assert load_ids(plain, "comment").tolist() == ["a b", "c"]
    for content, column, message in (
        (b"doc,qid,label,x\na,1,2,3\n,1,2,3\n", "doc", r":3: column 'doc' is empty"),
        (b"doc,qid,label,x\na,1,2,3\n", "dox", r"no column 'dox' for ids \(did you mean 'doc'"),
        (b"1 qid:1 1:2 # doc = a\n0 qid:1 1:2\n", "doc", "row 1 has no doc: there is no comment"),
    ):
        with pytest.raises(ValueError, match=message):
            load_ids(io.BytesIO(content), column)
    pd.DataFrame({"doc": ["a", None], "x": [1, 2]}).to_parquet(files / "gap.parquet")
    with pytest.raises(ValueError, match=r"gap.parquet.*column 'doc' is empty"):
        load_ids(files / "gap.parquet", "doc")


def test_lists_without_a_pair_of_different_labels(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    for name, label in (("ones", 1), ("zeros", 0)):
        Path(name).write_text("".join(f"{label} qid:{q} 1:0\n" for q in (1, 1, 2)))
    Path("scores").write_text("3\n2\n1\n")
    found = run("evaluate ones --scores scores --metrics ndcg@5,mrr --json").json
    expected = evaluate([1, 1, 1], [3, 2, 1], qid=[1, 1, 2], metrics="ndcg@5,mrr")
    assert {name: found[name] for name in expected} == expected
    assert found["pairwise_error"] is None
    out = run("evaluate zeros --scores scores --undefined 0").out
    assert re.search("^ndcg@10 +0, ", out, re.M)
    run("evaluate zeros --scores scores --metrics mrr --undefined 0 --per-query")
    for words, message in (
        ("ones", "there is no preference to evaluate"),
        ("ones --metrics mrr,pairwise_accuracy", "there is no preference to evaluate"),
        ("zeros --metrics mrr", "no query has a relevant row"),
    ):
        assert message in run(f"evaluate {words} --scores scores", code=2).err
