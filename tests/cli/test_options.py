"""Every option of every command is used or refused; every example of the help runs."""

import contextlib
import gzip
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rankrls
from rankrls import RankRLSCV
from rankrls.cli import main
from rankrls.cli._commands import cli
from rankrls.datasets import dump_letor, load_ranking, make_ranking
from rankrls.io import load_model

ROOT = os.path.dirname(os.path.dirname(rankrls.__file__))


@pytest.fixture(scope="module")
def data():
    made = make_ranking(n_queries=30, n_docs=(4, 9), n_features=4, random_state=1)
    return made.data, made.target, made.qid


@pytest.fixture
def folder(files, monkeypatch):
    monkeypatch.chdir(files)
    return files


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """The same rows as LETOR text, CSV and Parquet, with some extra columns, and models."""
    made = tmp_path_factory.mktemp("options")
    with contextlib.chdir(made):
        write_files(*data)
    return made


def write_files(X, y, qid):
    rng = np.random.default_rng(0)
    dump_letor(X, y, "train.dat", qid=qid)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["qid"], frame["label"] = qid, y
    frame.to_csv("plain.csv", index=False)
    holes = frame.copy()
    holes.loc[::7, "b"] = np.nan
    holes.to_csv("holes.csv", index=False)
    frame["noise"] = rng.normal(size=len(y))
    frame["grades"], frame["sessions"] = rng.integers(0, 3, len(y)), qid // 2
    frame["w"] = rng.integers(1, 6, len(y)).astype(float)
    frame.to_csv("train.csv", index=False)
    frame.to_parquet("train.parquet")
    gaps = frame.copy()
    gaps.loc[::7, "b"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    dump_letor(np.column_stack([X, y]), y, "zero.dat", qid=qid, zero_based=True)
    dump_letor(X, y, "zero4.dat", qid=qid, zero_based=True)
    np.savetxt("scores.txt", X[:, 0])
    dump_letor(X, y, "others.dat", qid=qid + 1000)
    dump_letor(X[qid < 5], y[qid < 5], "some.dat", qid=qid[qid < 5] + 1000)
    dump_letor(X, y, "flat.dat")
    sizes = np.bincount(qid)
    np.savetxt("sizes.txt", sizes, fmt="%d")
    np.savetxt("halves.txt", np.column_stack([sizes // 2, sizes - sizes // 2]).ravel(), fmt="%d")
    for words in (
        "fit plain.csv -m model",
        "fit train.dat -m nameless --scale query-standard --alpha 1",
        "fit gaps.csv -m filled --missing mean",
        "fit others.dat -m grown --alpha 1",
    ):
        assert main(words.split()) == 0


def outcome(capsys, words):
    """Exit code, all that was written (without times and file names), and stderr."""
    capsys.readouterr()
    for name in ("out.model", "out.txt", "out.html", "out.svg"):
        if os.path.exists(name):
            os.remove(name)
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    found = [re.sub(r'"seconds": [\d.]+|time +[\d.]+ s', "", out, flags=re.M)]
    if os.path.exists("out.model"):
        ranker = load_model("out.model")
        last = ranker.steps[-1][1] if hasattr(ranker, "steps") else ranker
        found += [getattr(last, name, None) for name in ("coef_", "dual_coef_", "alpha_")]
        found += [last.get_params(), os.path.getsize("out.model")]
    for name in ("out.txt", "out.html"):
        if os.path.exists(name):
            found.append(Path(name).read_text())
    return code, repr(found) + str(os.path.exists("out.svg")), err


FIT = "fit {} -m out.model --json"
CV = "cv {} --json --alphas 0.1,1,10,100"
REPORT = "report {} -o out.html --json --alphas 0.1,1,10,100"
PREDICT = "predict {} -m nameless"
EVALUATE = "evaluate {} -m nameless --json"
UPDATE = "update grown {} -o out.model --json"
COMPARE = "compare nameless scores.txt --data {} --json"

#: For options of what is learned: further words, and the option with another value.
MODEL = {
    "kernel": ("", "--kernel rbf"),
    "gamma": ("--kernel rbf", "--gamma 0.01"),
    "degree": ("--kernel poly", "--degree 2"),
    "coef0": ("--kernel poly", "--coef0 3"),
    "cost": ("", "--cost unit"),
    "ties": ("", "--ties drop"),
    "query_weighting": ("", "--query-weighting query"),
    "solver": ("", "--solver cg"),
    "basis": ("--kernel rbf", "--basis 8"),
    "scale": ("", "--scale none"),
    "max_iter": ("--solver cg --tol 1e-12", "--max-iter 1"),
    "tol": ("--solver cg", "--tol 0.9"),
    "random_state": ("--kernel rbf --basis 8", "--random-state 7"),
}

#: For options about files: the file, further words, and the option.
DATA = {
    "format": ("train.dat", "", "--format csv"),
    "target": ("train.csv", "", "--label grades"),
    "qid": ("train.csv", "", "--qid-column sessions"),
    "one_ranking": ("train.dat", "", "--one-ranking"),
    "features": ("train.csv", "", "--features a,noise"),
    "feature_names": ("train.dat", "", "--feature-names a,b,c,d,e"),
    "drop": ("train.csv", "", "--drop a,noise"),
    "sample_weight": ("train.csv", "--drop grades", "--weight w"),
    "no_header": ("train.csv", "", "--no-header"),
    "delimiter": ("train.csv", "", "--delimiter ;"),
    "zero_based": ("zero.dat", "", "--zero-based"),
    "missing": ("gaps.csv", "", "--missing zero"),
    "group": ("flat.dat", "--group sizes.txt", "--group halves.txt"),
    "unlabelled": None,
}

#: The same for a model of four features without names.
ROWS = DATA | {
    "target": ("plain.csv", "", "--label a"),
    "qid": ("plain.csv", "", "--qid-column a"),
    "features": ("plain.csv", "", "--features d,c,b,a"),
    "drop": ("train.csv", "", "--drop noise,grades,sessions,w"),
    "sample_weight": ("plain.csv", "", "--weight a"),
    "no_header": ("plain.csv", "", "--no-header"),
    "delimiter": ("plain.csv", "", "--delimiter ;"),
}

OWN = {
    "fit": {
        "alpha": ("train.dat", "", "--alpha 3"),
        "alphas": ("train.dat", "", "--alphas 7,8"),
        "cv": ("train.dat", "--alphas 0.1,1000", "--cv 2"),
        "scoring": ("train.dat", "", "--scoring ndcg@2"),
        "loss": ("train.dat", "", "--loss hinge"),
        "auto": ("train.dat", "", "--auto --effort quick"),
        "effort": ("train.dat", "", "--effort quick"),
        "c": ("train.dat", "--loss hinge", "-c 7"),
        "stream": ("train.dat", "", "--stream"),
    },
    "predict": {
        "format": ("train.dat", "", "--format trec"),
        "top": ("train.dat", "--format csv", "--top 1"),
        "doc_id": ("plain.csv", "--format csv --features a,b,c,d", "--doc-id label"),
    },
    "evaluate": {
        "metrics": ("train.dat", "", "--metrics map"),
        "gain": ("train.dat", "", "--gain linear"),
        "max_grade": ("train.dat", "--metrics err", "--max-grade 5"),
        "ties": ("train.dat", "", "--ties id"),
        "missing_queries": ("train.dat", "", "--missing-queries skip"),
        "relevance_threshold": ("train.dat", "", "--relevant 3"),
        "undefined": ("train.dat", "", "--undefined 1"),
        "per_query": ("train.dat", "", "--per-query"),
    },
    "compare": {
        "metric": ("train.dat", "", "--metric map"),
        "method": ("train.dat", "", "--method t"),
        "confidence_level": ("train.dat", "", "--confidence-level 0.5"),
        "relevance_threshold": ("train.dat", "--metric map", "--relevant 3"),
        "gain": ("train.dat", "", "--gain linear"),
        "max_grade": ("train.dat", "--metric err", "--max-grade 5"),
        "undefined": ("train.dat", "", "--undefined 1"),
        "ties": ("train.dat", "", "--ties id"),
        "missing_queries": ("train.dat", "", "--missing-queries skip"),
    },
    "update": {
        "forget": ("train.dat", "", "--forget some.dat"),
    },
    "cv": {
        "cv": ("train.dat", "", "--cv 3"),
        "scoring": ("train.dat", "", "--scoring ndcg@2"),
        "plot": ("train.dat", "", "--plot out.svg"),
        "effort": ("train.dat", "", "--effort quick"),
    },
    "report": {
        "test": ("train.dat", "", "--test plain.csv"),
        "scoring": ("train.dat", "", "--scoring ndcg@2"),
        "title": ("train.dat", "", "--title Hello"),
        "effort": ("train.dat", "", "--effort quick"),
    },
}  # fmt: skip
#: Options that other tests are about.
ELSEWHERE = {
    "fit": "model json",
    "predict": "model output duplicates",
    "evaluate": "model scores run qrels json",
    "compare": "qrels json",
    "update": "check dry_run backup output json",
    "cv": "alphas auto json",
    "report": "output alphas auto json",
}
BASES = {"fit": FIT, "cv": CV, "report": REPORT, "predict": PREDICT, "evaluate": EVALUATE,
         "compare": COMPARE, "update": UPDATE}  # fmt: skip


#: Options whose wrong value shows in the rows: the error is about these.
ABOUT_ROWS = ("format", "input_format", "no_header", "delimiter", "features", "qid")


def cases():
    for command, base in BASES.items():
        rows = command in ("predict", "evaluate", "compare", "update")
        table = dict(ROWS if rows else DATA) | OWN[command]
        table |= dict.fromkeys(ELSEWHERE[command].split())
        if rows:
            table.pop("feature_names")
            table.pop("missing")
            if command != "update":
                table.pop("sample_weight")
        if command == "update":  # weights count
            table.pop("group")
            table["sample_weight"] = ("train.csv", "--features a,b,c,d", "--weight w")
            table["zero_based"] = ("zero4.dat", "", "--zero-based")
        if command == "predict":  # --format says what is written
            table.pop("unlabelled")
            table["input_format"] = ("train.dat", "", "--input-format csv")
        if command == "compare":  # NDCG refuses labels below 0
            table["target"] = ("plain.csv", "--metric pairwise_accuracy", "--label a")
        if command == "fit":
            table |= {name: ("train.dat", *words) for name, words in MODEL.items()}
        if command in ("cv", "report"):  # they make the same rankers of the same rows
            table |= dict.fromkeys([*DATA, *MODEL])
        for name, words in table.items():
            yield command, name, base, words


def test_all_options_are_in_the_tables():
    """None: other tests are about it."""
    for command in BASES:
        known = {name for other, name, *_ in cases() if other == command}
        options = {param.name for param in cli.commands[command].params}
        options -= {"a", "b"} | ({"model"} if command == "update" else set())
        assert options - {"data", "clicks", "position", "item", "impressions"} == known, command


@pytest.mark.parametrize(
    ("command", "name", "base", "words"),
    [case for case in cases() if case[3] is not None],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_an_option_is_used_or_refused(folder, capsys, command, name, base, words):
    file, more, option = words
    plain = f"{base.format(file)} {more}"
    code, before, _ = outcome(capsys, plain)
    assert code == 0 or name in ("missing", "zero_based", "drop")
    code, after, err = outcome(capsys, f"{plain} {option}")
    assert code in (0, 2), err
    if code == 0:
        assert after != before
    else:  # what was tried is named, or why the file cannot be read so
        word = option.split()[0]
        assert word in err or name in err or name in ABOUT_ROWS, err
        assert sum("error: " in line for line in err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit train.dat -m x --gamma 1", "--gamma is for --kernel rbf or poly or sigmoid"),
        ("fit train.dat -m x --max-iter 3", "--max-iter is for solvers that iterate"),
        ("fit train.dat -m x --ties keep --cost unit", "--cost unit drops ties"),
        ("fit train.dat -m x --ties keep --loss hinge", "--ties is for --loss squared"),
        ("cv train.dat --basis 5 --solver dual", "--basis is for --solver nystroem"),
        ("fit train.dat -m x --alpha 1 --alphas 1,2", "--alphas is what --alpha auto chooses"),
        ("fit train.dat -m x --alpha 1 --cv 3", "--cv is for --alpha auto"),
        ("fit train.dat -m x --kernel precomputed --scale minmax", "--scale is for features"),
        ("fit train.dat -m x --no-header", "--no-header is for CSV files, and train.dat is LETOR"),
        ("evaluate train.csv --scores scores.txt --features a", "--features is for a model"),
        ("predict gaps.csv -m model", "rankrls fit --missing mean or --missing zero"),
        ("predict train.csv -m model --drop a", "--drop 'a': the model was fitted to this column"),
        ("export -m model --to onnx", "an ONNX model is not text: name a file by -o"),
        ("export -m model --to onnx --name x -o m", "--name is not for --to onnx"),
        ("evaluate train.dat -m model --metrics map --gain linear", "--gain is for ndcg"),
        (
            "evaluate train.dat -m model --metrics err --relevant 2",
            "--relevance-threshold is for map, mrr",
        ),
        ("evaluate train.dat -m model --metric map", "Did you mean"),
        ("evaluate train.dat -m model --metrics MAP", "it is called 'map' here"),
        ("compare model scores.txt --data train.dat --metric cindex", "of 'pairwise_accuracy', 'n"),
        (
            "evaluate train.dat -m model --metrics pairwise_error --undefined 0",
            "--undefined is for",
        ),
        ("evaluate train.dat -m model --ties id", "--ties is for runs with --qrels"),
        ("evaluate train.dat -m model --run x --qrels y", "leave out a file of rows"),
        ("evaluate --run x --qrels y -m model", "leave out -m"),
        ("evaluate --run x --qrels y --qid q", "--qid is for a file of rows"),
        ("evaluate --run x", "--run and --qrels go together"),
        ("evaluate", "name a file of rows, or give a run and judgements"),
        ("predict train.dat -m model --format scores --top 3", "--top is for ranked lists"),
        ("compare model scores.txt", "by --data, or the judgements for two runs by --qrels"),
        ("compare model - --data train.dat", "name files: stdin cannot be read"),
        ("compare model scores.txt --data train.dat --one-ranking", "there are none"),
        ("cv train.dat --scoring auc", "of two classes 'pairwise_accuracy' is the AUC"),
        ("fit flat.dat -m x", "no file flat.dat.query has sizes of queries; pass qid=None"),
        ("fit flat.dat -m x --one-ranking --group sizes.txt", "exclude each other"),
        ("fit flat.dat ./flat.dat -m x", "flat.dat is given twice"),
        ("fit a.csv a.csv -m x --clicks c --position p", "a.csv is given twice"),
        ("fit train.dat train.csv -m x", "train.csv: this is a file of the kind 'csv'"),
    ],
)
def test_options_without_effect_are_refused(folder, run, words, message):
    before = sorted(os.listdir())
    out, err = run(words, code=2)
    assert out == ""
    assert err.splitlines()[-1].startswith("rankrls: error: ")
    assert message in err
    assert sorted(os.listdir()) == before


def test_the_other_options(folder, capsys, run):
    """Files that are written, --json, exports: what they do is what they say."""
    assert run("predict plain.csv -m model -o out.txt").out == ""
    scores = np.array(run("predict plain.csv -m model").out.split(), float)
    np.testing.assert_array_equal(np.loadtxt("out.txt"), scores)
    by_file = run("evaluate train.dat --scores scores.txt --json").json
    assert run("evaluate train.dat -m nameless --json").json != by_file
    assert outcome(capsys, "cv train.dat --alphas 1,2") != outcome(capsys, "cv train.dat")
    for words, text in (
        ("solr --store x --name y", '"store": "x"'),
        ("solr --store x --name y", '"name": "y"'),
        ("solr --feature-names p,q,r,s --drop-zeros", '"name": "p"'),
        ("solr --normalizers", "StandardNormalizer"),
        ("opensearch --drop-zeros --normalizers", "feature_normalizers"),
        ("sql", '"a"'),
        ("vespa --name shop", "rank-profile shop inherits"),
    ):
        told = run(f"export -m model --to {words}")
        assert text in told.out
        plain = words.startswith("solr") and "--normalizers" not in words
        assert ("scores of solr are those of rankrls predict less" in told.err) == plain


def test_a_column_whose_name_has_a_comma(folder, run):
    frame = pd.read_csv("plain.csv").rename(columns={"a": "x,y"})
    frame.to_csv("comma.csv", index=False)
    run("fit comma.csv -m out.model --drop x,y")
    assert load_model("out.model").feature_names_in_.tolist() == ["b", "c", "d"]
    run("fit plain.csv -m out.model --drop 'a, b' --drop c")
    assert load_model("out.model").feature_names_in_.tolist() == ["d"]


def test_parameters_of_python_are_options():
    """Readers and estimators: what the command line has of them, it calls by the same name."""
    options = {text for param in cli.commands["fit"].params for text in param.opts}
    called = {name.removeprefix("--").replace("-", "_") for name in options}
    reader = {"path", "dtype", "n_features", "sparse", "beyond", "header", "text", "need"}
    assert set(inspect.signature(load_ranking).parameters) - called == reader
    fitting = {"early_stopping", "validation_fraction", "n_iter_no_change", "kernel_params"}
    running = {"n_jobs", "verbose", "store_cv_predictions", "link"}
    assert set(inspect.signature(RankRLSCV).parameters) - called == fitting | running


def examples():
    """Commands in the help texts, with what they are piped to."""
    texts = [cli.epilog] + [command.epilog or "" for command in cli.commands.values()]
    found = []
    for text in texts:
        for line in text.splitlines():
            for start in re.finditer(r"(?:(?:zcat|cut) [^|]*\| )?rankrls [a-z]+ ", line):
                words = re.split(r"\s{3,}|\)\"", line[start.start() :])[0].strip()
                found.append(words.removesuffix(" | source"))
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def example_folder(data, tmp_path_factory):
    """The files that the examples speak of."""
    folder = tmp_path_factory.mktemp("examples")
    X, y, qid = data
    for name, rows in (("train", qid < 20), ("test", qid >= 20)):
        dump_letor(X[rows], y[rows], folder / f"{name}.dat", qid=qid[rows])
    dump_letor(X, y, folder / "train.dat.gz", qid=qid)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["session"], frame["grade"], frame["clicks"] = qid, y, y
    frame["doc"] = np.arange(len(y)) % 100
    frame.to_csv(folder / "train.csv", index=False)
    frame.rename(columns={"session": "qid"}).to_csv(folder / "all.csv", index=False)
    rng = np.random.default_rng(0)
    log = {"query": np.repeat(np.arange(40), 50), "item": rng.integers(4, size=2000)}
    log |= {"position": rng.integers(1, 4, size=2000), "price": 1.0 * log["item"]}
    log["clicks"] = (rng.random(2000) < (0.2 + 0.2 * log["item"]) / log["position"]).astype(int)
    pd.DataFrame(log).to_csv(folder / "log.csv", index=False)
    names = np.array(["x", "y", "z"])
    battles = {"model_a": names[np.arange(90) % 3], "model_b": names[np.arange(1, 91) % 3]}
    battles |= {"winner": np.where(np.arange(90) % 4 > 1, "model_a", "model_b")}
    battles |= {"length": X[:90, 0], "prompt": np.arange(90) // 3}
    pd.DataFrame(battles).to_csv(folder / "battles.csv", index=False)
    frame = frame.rename(columns={"session": "qid"}).drop(columns=["clicks", "doc"])
    frame.to_parquet(folder / "train.parquet")
    frame[frame.qid < 5].to_parquet(folder / "old.parquet")
    frame.assign(qid=frame.qid + 100).to_parquet(folder / "new.parquet")
    for name, later in (("monday", 200), ("tuesday", 300)):
        frame.assign(qid=frame.qid + later).to_csv(folder / f"{name}.csv", index=False)
    text = (folder / "train.dat").read_bytes()
    for name, part in (("part1", text), ("part2", (folder / "test.dat").read_bytes())):
        (folder / f"{name}.gz").write_bytes(gzip.compress(part))
    np.savetxt(folder / "other.txt", X[qid >= 20][:, 0])
    rows = [(q, f"d{i}", score, label) for i, (q, score, label) in
            enumerate(zip(qid, X[:, 0], y, strict=True))]  # fmt: skip
    for name, sign in (("run.txt", 1), ("other_run.txt", -1)):
        lines = [f"{q} Q0 {d} 0 {sign * score} x\n" for q, d, score, _ in rows]
        (folder / name).write_text("".join(lines))
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {d} {label:g}\n" for q, d, _, label in rows))
    (folder / "names.txt").write_text("a\nb\nc\nd\n")
    with contextlib.chdir(folder):
        assert main(["fit", "train.parquet", "-m", "fitted"]) == 0
        assert main(["fit", "train.parquet", "--auto", "--effort", "quick", "-m", "auto"]) == 0
    return folder


@pytest.mark.parametrize("line", examples())
def test_examples_of_the_help_run(example_folder, monkeypatch, capsys, line):
    monkeypatch.chdir(example_folder)
    for name in ("model", "model.rankrls"):
        shutil.copy("fitted", name)
    if "|" not in line:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
        return
    if os.name == "nt" or not shutil.which("bash"):
        pytest.skip("needs a shell")
    place = line[: line.index("rankrls ")].count("|")
    script = f'rankrls() {{ "{sys.executable}" -m rankrls "$@"; }}\n'
    if not shutil.which("jq"):
        script += f"jq() {{ \"{sys.executable}\" -c 'import json, sys; json.load(sys.stdin)'; }}\n"
    script += f"{line}\nexit ${{PIPESTATUS[{place}]}}"
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True)
    assert done.returncode in (0, 141), done.stderr  # head may have read enough
    assert b"error" not in done.stderr


def test_features_of_a_model_with_names_cannot_be_mixed_up(folder, run):
    def scores(words):
        return np.array(run(words).out.split(), float)

    expected = scores("predict plain.csv -m model")
    turned = scores("predict plain.csv -m model --features d,c,b,a")
    np.testing.assert_allclose(turned, expected, rtol=1e-12)
    err = run("predict plain.csv -m model --features a,b,c,label", code=2).err
    assert "--features: the model was fitted to 'a', 'b', 'c', 'd', which are found by" in err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("fit train.dat -m out.model --alpha=3 --loss squared --alpha 3", "--alpha"),
        ("fit plain.csv -m out.model --label label --target a", "--target or --label"),
        ("fit train.dat -m out.model --stream --in-memory", "--stream or --in-memory"),
        ("compare nameless scores.txt --data train.dat --metric map --metric mrr", "--metric"),
    ],
)
def test_an_option_given_twice_is_refused(folder, capsys, words, option):
    code, _, err = outcome(capsys, words)
    assert code == 2
    assert f"error: {option} is given more than once" in err


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ("fit train.csv -m out.model --features a --features b,c",
         "fit train.csv -m out.model --features a,b,c"),
        ("fit train.dat -m out.model --feature-names a,b --feature-names c,d",
         "fit train.dat -m out.model --feature-names a,b,c,d"),
        ("evaluate train.dat -m nameless --metrics ndcg@5 --metrics map,mrr --json --json",
         "evaluate train.dat -m nameless --metrics ndcg@5,map,mrr --json"),
        ("weights -m nameless --feature-names a,b --feature-names c,d",
         "weights -m nameless --feature-names a,b,c,d"),
    ],
)  # fmt: skip
def test_options_that_collect_their_values(folder, capsys, several, one):
    expected = outcome(capsys, one)
    assert expected[0] == 0
    assert outcome(capsys, several) == expected


def test_models_are_compared_on_several_files(folder, run):
    Path("twice.txt").write_text(Path("scores.txt").read_text() * 2)
    once = run("compare nameless scores.txt --data train.dat --json").json["n_queries"]
    both = run("compare nameless twice.txt --data train.dat --data others.dat --json").json
    assert both["n_queries"] == 2 * once > 0
