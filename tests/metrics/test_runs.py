"""Values of runs against lists of labels, trec_eval, gdeval and ir_measures."""

import shutil
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import oracles as oracle
from rankrls.metrics import compare_rankers, compare_runs, evaluate, evaluate_run, ndcg
from rankrls.rankings import Qrels, RankTable

NAMES = ("ndcg", "ndcg@3", "map", "map@4", "mrr", "precision@5", "recall@4", "err@20")


def made(seed, *, ties=True, n_queries=7):
    """Judgements and a run: unjudged documents, unretrieved ones, queries without this or that."""
    rng = np.random.default_rng(seed)
    query, id, grade, run_query, run_id = [], [], [], [], []
    for q in range(n_queries):
        pool = [f"d{i:02d}" for i in rng.permutation(30)]
        n_judged, n_found = rng.integers(1, 12), rng.integers(1, 15)
        if q != 5:
            query += [f"q{q}"] * n_judged
            id += pool[:n_judged]
            grade += (rng.integers(-1, 5, n_judged) if q != 2 else np.zeros(n_judged)).tolist()
        if q != 3:
            found = rng.permutation(pool[: 2 * n_judged + 2])[:n_found]
            run_query += [f"q{q}"] * len(found)
            run_id += found.tolist()
    n = len(run_id)
    score = rng.integers(0, 5, n) / 4 if ties else rng.permutation(n) / 8 - 3
    qrels = Qrels(np.array(query), np.array(id), np.array(grade, dtype=float))
    return qrels, RankTable.from_scores(score, qid=run_query, ids=run_id)


@pytest.mark.parametrize("options", [{}, {"gain": "linear", "relevance_threshold": 3}])
def test_ties_are_averaged_over_all_orders(options):
    qrels, run = made(0)
    for query in set(run.query.tolist()) & set(qrels.query.tolist()):
        mine = (run.query == query) & (run.rank <= 6)  # few enough orders of ties to try them all
        run_of = RankTable(*(column[mine] for column in run.columns.values()))
        options |= {"metrics": [*NAMES, "precision", "recall", "mrr@2"], "average": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing of the query was found
            averaged = evaluate_run(run_of, qrels, **options)
            by_order = [
                evaluate_run(replace(run_of, id=run_of.id[order]), qrels, ties="rank", **options)
                for order in oracle.orders(run_of.score.tolist())
            ]
        place = averaged["query"].tolist().index(query)
        for name in options["metrics"]:
            expected = np.mean([values[name][place] for values in by_order])
            np.testing.assert_allclose(averaged[name][place], expected, rtol=1e-12, err_msg=name)


needs_ir_measures = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="ir_measures uses ast.Num, which Python 3.14 does not have"
)


def as_lists(qrels, run):
    import ir_measures

    judged = [ir_measures.Qrel(q, d, int(g)) for q, d, g in zip(
        qrels.query.tolist(), qrels.id.tolist(), qrels.grade.tolist(), strict=True)]  # fmt: skip
    found = [ir_measures.ScoredDoc(q, d, s) for q, d, s in zip(
        run.query.tolist(), run.id.tolist(), run.score.tolist(), strict=True)]  # fmt: skip
    return judged, found


@needs_ir_measures
@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_ir_measures(seed):
    """trec_eval's definitions: linear gain, ties by id, 0 for queries without a relevant row."""
    ir_measures = pytest.importorskip("ir_measures")
    qrels, run = made(seed)
    judged, found = as_lists(qrels, run)
    pairs = {
        "ndcg": "nDCG", "ndcg@3": "nDCG@3", "map": "AP", "map@4": "AP@4", "mrr": "RR",
        "precision@5": "P@5", "recall@4": "R@4",
    }  # fmt: skip
    measures = {name: ir_measures.parse_measure(text) for name, text in pairs.items()}
    theirs = ir_measures.calc_aggregate(list(measures.values()), judged, found)
    trec = {"gain": "linear", "ties": "id", "undefined": 0}
    ours = evaluate_run(run, qrels, metrics=list(pairs), **trec)
    for name, measure in measures.items():
        assert ours[name] == pytest.approx(theirs[measure], rel=1e-12), name
    each = evaluate_run(run, qrels, metrics=list(pairs), average=None, **trec)
    place = {query: i for i, query in enumerate(each["query"].tolist())}
    for name, measure in measures.items():
        for value in ir_measures.iter_calc([measure], judged, found):
            assert each[name][place[value.query_id]] == pytest.approx(value.value, rel=1e-12)
    strict = evaluate_run(run, qrels, metrics="map", relevance_threshold=3, **trec)
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure("AP(rel=3)")], judged, found)
    assert [*strict.values()] == pytest.approx([*theirs.values()], rel=1e-12)


@needs_ir_measures
@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_gdeval(seed):
    """ERR and NDCG of exponential gains, printed with five digits."""
    ir_measures = pytest.importorskip("ir_measures")
    if not shutil.which("perl"):
        pytest.skip("gdeval is a program in Perl")
    qrels, run = made(seed, ties=False)
    qrels, run = (replace(table, query=np.char.lstrip(table.query, "q")) for table in (qrels, run))
    judged, found = as_lists(qrels, run)
    measures = [ir_measures.parse_measure(text) for text in ("ERR@20", "nDCG(dcg='exp-log2')@5")]
    theirs = ir_measures.calc_aggregate(measures, judged, found)
    ours = evaluate_run(run, qrels, metrics="err@20,ndcg@5", undefined=0)
    assert [*ours.values()] == pytest.approx([theirs[m] for m in measures], abs=2e-5)


@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_trec_eval(seed):
    """Without ``-c``: queries that are not in the run are left out."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels, run = made(seed)
    judged: dict = {}
    for q, d, g in zip(*(c.tolist() for c in qrels.columns.values()), strict=True):
        judged.setdefault(q, {})[d] = int(g)
    found: dict = {}
    for q, _, d, s in zip(*(c.tolist() for c in run.columns.values()), strict=True):
        found.setdefault(q, {})[d] = s
    names = {"map": "map", "ndcg_cut.5": "ndcg@5", "recip_rank": "mrr", "P.5": "precision@5",
             "recall.5": "recall@5", "set_P": "precision"}  # fmt: skip
    values = pytrec_eval.RelevanceEvaluator(judged, set(names)).evaluate(found)
    ours = evaluate_run(
        run, qrels, metrics=list(names.values()), gain="linear", ties="id", undefined=0,
        missing_queries="skip",
    )  # fmt: skip
    for theirs, name in names.items():
        expected = np.mean([value[theirs.replace(".", "_")] for value in values.values()])
        assert ours[name] == pytest.approx(expected, rel=1e-12), name


def test_a_run_of_all_rows_has_the_values_of_the_rows():
    rng = np.random.default_rng(1)
    qid, y, score = rng.integers(0, 9, 80), rng.integers(0, 5, 80), rng.integers(0, 7, 80)
    ids = np.arange(80)
    run, qrels = RankTable.from_scores(score, qid=qid, ids=ids), Qrels(qid, ids, y)
    names = [*NAMES, "precision", "recall"]
    of_rows = evaluate(y, score, qid=qid, metrics=names)
    assert evaluate_run(run, qrels, metrics=names) == pytest.approx(of_rows, rel=1e-12)
    each = evaluate(y, score, qid=qid, metrics=names, average=None)
    assert each["query"].tolist() == sorted(set(qid.tolist()))
    np.testing.assert_array_equal(each["ndcg@3"], ndcg(y, score, qid=qid, k=3, average=None))
    pairs = evaluate(y, score, qid=qid, metrics="pairwise_accuracy,pairwise_error,map")
    assert pairs["pairwise_accuracy"] == 1 - pairs["pairwise_error"]
    whole = evaluate(y, score, metrics=["concordance_index"])
    assert 0 < whole["concordance_index"] < 1


def test_ties_by_rank_are_the_order_of_the_table():
    qrels = Qrels(np.array(["q", "q"]), np.array(["b", "z"]), np.array([1.0, 0.0]))
    run = RankTable.from_scores([1.0, 1.0, 1.0], qid=["q"] * 3, ids=["c", "b", "a"])
    values = {ties: evaluate_run(run, qrels, metrics="mrr", ties=ties)["mrr"]
              for ties in ("rank", "id", "expected")}  # fmt: skip
    assert values == pytest.approx(
        {"rank": 1 / 2, "id": 1 / 2, "expected": (1 + 1 / 2 + 1 / 3) / 3}
    )
    turned = RankTable.from_scores([1.0, 1.0, 1.0], qid=["q"] * 3, ids=["b", "c", "a"])
    assert evaluate_run(turned, qrels, metrics="mrr", ties="rank") == {"mrr": 1.0}
    assert evaluate_run(turned, qrels, metrics="mrr", ties="id") == {"mrr": 1 / 2}


def test_comparison_of_runs():
    rng = np.random.default_rng(2)
    qid, y = np.repeat(np.arange(10, 40), 8), rng.integers(0, 4, 240)
    a, b = y + rng.normal(size=240), y + 3 * rng.normal(size=240)
    ids = np.arange(240)
    runs = [RankTable.from_scores(score, qid=qid, ids=ids) for score in (a, b)]
    options = {"metric": "ndcg@5", "random_state": 0, "n_permutations": 199}
    of_rows = compare_rankers(y, a, b, qid=qid, **options)
    of_runs = compare_runs(*runs, Qrels(qid, ids, y), **options)
    for name in ("mean_a", "mean_b", "p_value", "difference"):
        assert getattr(of_runs, name) == pytest.approx(getattr(of_rows, name), rel=1e-12)
    assert of_runs.n_queries == of_rows.n_queries
    with pytest.raises(ValueError, match="metric must be one of 'ndcg'"):
        compare_runs(*runs, Qrels(qid, ids, y), metric="pairwise_accuracy")


def test_ids_that_never_match_are_a_warning():
    run = RankTable.from_scores([2.0, 1.0], qid=["q", "q"], ids=["a", "b"])
    judged = Qrels(np.array(["q", "q"]), np.array(["A", "B"]), np.array([1.0, 0.0]))
    message = "no document .* was judged .* of the run is 'a', the first judged id is 'A'"
    with pytest.warns(UserWarning, match=message):
        assert evaluate_run(run, judged, metrics="map") == {"map": 0.0}
    one = replace(judged, id=np.array(["a", "B"]))
    assert evaluate_run(run, one, metrics="map") == {"map": 1.0}  # warnings are errors


def test_what_is_wrong_with_an_evaluation():
    qrels, run = made(0)
    for call, message in (
        (lambda: evaluate_run(run, run), "qrels must be a Qrels; got RankTable"),
        (lambda: evaluate_run(run, qrels, metrics="pairwise_error"), "one of 'ndcg', 'average"),
        (lambda: evaluate_run(replace(run, score=run.score + np.inf), qrels), "run.score contains"),
        (lambda: evaluate_run(replace(run, id=run.id[1:]), qrels), "run.id has .* entries for"),
        (
            lambda: evaluate_run(RankTable(*(c[:0] for c in run.columns.values())), qrels),
            "run is empty",
        ),
        (lambda: evaluate_run(run, qrels, missing_queries=0), "missing_queries must be one of"),
        (lambda: evaluate_run(run, qrels, relevance_threshold=0), "must be above 0"),
        (
            lambda: evaluate_run(run, qrels, metrics="map", relevance_threshold=9),
            "map is undefined",
        ),
        (
            lambda: evaluate_run(RankTable.from_scores([1.0], qid=["x"]), qrels),
            "the first query of the run is 'x', the first judged query is 'q0'",
        ),
        (
            lambda: evaluate_run(run, Qrels(*(np.repeat(c, 2) for c in qrels.columns.values()))),
            "qrels has an id twice in one query",
        ),
        (
            lambda: evaluate([1, 0], [1, 2], metrics="concordance_index", average=None),
            "no value by query",
        ),
        (lambda: evaluate([[1, 0]], [[1, 2]]), "must be 1-D"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
