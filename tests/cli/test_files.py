"""Names for the features of LETOR text, and reports on several files."""

import html
import re
from pathlib import Path

import pytest

from rankrls import RankRLSCV
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model
from report_cases import values_of_code

NAMES = ["bm25", "page rank", "clicks", "length", "<age>"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = make_ranking(n_queries=45, n_features=5, random_state=0)
    X = rows.data * [1, 10, 100, 1, 0.1]
    for part in range(3):
        keep = rows.qid % 3 == part
        dump_letor(X[keep], rows.target[keep], f"S{part}.txt", qid=rows.qid[keep])
    Path("names.txt").write_text("\n".join(NAMES), encoding="utf-8-sig")  # as some editors do
    return X, rows.target, rows.qid


@pytest.mark.parametrize("how", ["", "--stream"])
def test_a_model_of_letor_text_has_names(folder, run, how):
    run(f"fit S0.txt -m named --alpha 1 --feature-names @names.txt {how}")
    run(f"fit S0.txt -m plain --alpha 1 {how}")
    assert load_model("named").feature_names_in_.tolist() == NAMES
    assert run("predict S1.txt -m named").out == run("predict S1.txt -m plain").out
    found = run("weights -m named --json").json["weights"]
    given = run("weights -m plain --feature-names @names.txt --json")
    assert found == given.json["weights"]
    assert {row["feature"] for row in found} == set(NAMES)
    Path("turned.txt").write_text("\n".join(NAMES[::-1]), encoding="utf-8")
    for command in ("weights -m named", "export -m named --to sql"):
        err = run(f"{command} --feature-names @turned.txt", code=2).err
        assert "the model's own name of feature 4: give other names in the order" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit S0.txt -m x --feature-names a,b,c", "S0.txt:1: feature id in '4:.*ids up to 3"),
        ("fit S0.txt -m x --feature-names a,b,c,d,a", "--feature-names: 'a' comes twice"),
        ("weights -m model --feature-names a,b", "feature_names has 2 names for 5 features"),
        ("fit t.csv -m x --feature-names a,b", "--feature-names is for LETOR text, and t.csv is a"),
    ],
)  # fmt: skip
def test_refused(folder, run, words, message):
    run("fit S0.txt -m model --alpha 1")
    Path("t.csv").write_text("qid,label,a\n1,1,2\n1,0,3\n")
    assert re.search(message, run(words, code=2).err)


def test_a_report_on_several_files(folder, run):
    words = "--test S2.txt --feature-names @names.txt --json"
    found = run(f"report S0.txt S1.txt -o page.html {words}").json
    text = html.unescape(Path("page.html").read_text())
    assert all(f">{name}<" in text for name in NAMES)
    *_, error, gain = values_of_code(Path("page.html").read_text(), space := {})
    assert error == pytest.approx(found["pairwise_error"], abs=1e-9)
    assert gain == pytest.approx(found["ndcg@10"], abs=1e-9)
    model = RankRLSCV().fit(space["X"], space["y"], qid=space["qid"])  # X has been scaled
    assert model.alpha_ == found["alpha"]


def test_tests_in_several_files(folder, run):
    page = run("report S0.txt --test S1.txt --test S2.txt -o page.html --json")
    run("fit S0.txt -m model")
    both = run("evaluate S1.txt S2.txt -m model --json").json
    assert page.json["pairwise_error"] == pytest.approx(both["pairwise_error"])


def test_weights_stand_on_the_page(folder, run):
    run("report S0.txt -o page.html --feature-names @names.txt --scale none")
    run("fit S0.txt -m model --scale none")
    weights = run("weights -m model --json").json["weights"]
    text = Path("page.html").read_text()
    table = text[text.index("features with the largest effect") :]
    assert ">Weight</th>" in table
    for row in weights:
        shown = f"{row['weight']:.3g}".replace("-", "−")
        assert shown in table, row
