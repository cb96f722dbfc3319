"""Reports of an AutoRanker: its members, its held-out scores, raw tables."""

import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

import rankrls
from rankrls import AutoRanker
from rankrls.datasets import make_ranking
from rankrls.metrics import ndcg, pairwise_error
from rankrls.report import write_report
from report_cases import values_of_code


@pytest.fixture  # for each test: before pandas 3 a frame of X may change X
def rows():
    return make_ranking(n_queries=30, n_features=4, random_state=1, return_X_y_qid=True)


@pytest.fixture
def quick():
    return AutoRanker(effort="quick", random_state=0)


def words_of(path):
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"<(svg|script|style).*?</\1>", "", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_errors_are_those_of_the_held_out_scores(rows, quick, tmp_path):
    X, y, qid = rows
    made = write_report(tmp_path / "page.html", X, y, qid, estimator=quick)
    ranker = quick.fit(X, y, qid=qid)
    assert made.method == "leave-query-out"
    assert made.alpha is None
    np.testing.assert_array_equal(made.model.held_out_scores_, ranker.held_out_scores_)
    assert made.error.value == pytest.approx(pairwise_error(y, ranker.nested_scores_, qid=qid))
    assert made.ndcg.value == pytest.approx(ndcg(y, ranker.nested_scores_, qid=qid, k=10))
    np.testing.assert_array_equal(made.model.predict(X, qid=qid), ranker.predict(X, qid=qid))


def test_members_are_listed(rows, quick, tmp_path):
    X, y, qid = rows
    made = write_report(tmp_path / "page.html", X, y, qid, estimator=quick)
    text, members = words_of(tmp_path / "page.html"), made.model.members_
    n = len(made.model.estimators_)
    assert f"the mean of {n} rankers, chosen from {len(members['view'])} candidates" in text
    assert f"ndcg@10 {made.model.best_score_:.4g}"[:14] in text
    assert "View Kernel Blocks Cost Compared alpha Held out Weight" in text
    for k in range(n):
        row = [str(members[key][k]) for key in ("view", "kernel", "blocks", "cost", "compared")]
        assert " ".join(row) in text
        assert f"{members['score'][k]:.4f} {members['weight'][k]:.3g}" in text
    assert "Choice of alpha" not in text
    assert "The members are chosen without the fold of the query" in text
    assert "slightly optimistic" not in text  # as its nested scores are
    assert "pairwise_error(y, model.nested_scores_, qid=qid)" in text


@pytest.mark.parametrize("with_test", [False, True])
def test_raw_tables(rows, quick, tmp_path, with_test):
    """The table is fitted as it is; the code on the page gives the same numbers."""
    X, y, qid = rows
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[::7, "b"] = np.nan
    frame["group"] = np.where(np.arange(len(X)) % 3, "one", "two")
    frame["currency"] = "EUR"
    train = qid < 20
    test = (frame[~train], y[~train], qid[~train]) if with_test else None
    args = (frame[train], y[train], qid[train])
    made = write_report(tmp_path / "page.html", *args, test=test, estimator=quick)
    assert "6 features" in words_of(tmp_path / "page.html")
    ranker = quick.fit(args[0], args[1], qid=args[2])
    scores = made.model.predict(frame, qid=qid)
    np.testing.assert_array_equal(scores, ranker.predict(frame, qid=qid))
    np.testing.assert_array_equal(made.model.nested_scores_, ranker.nested_scores_)
    names = {"X": args[0], "y": args[1], "qid": args[2]}
    if with_test:
        names |= {"X_test": test[0], "y_test": test[1], "qid_test": test[2]}
    values = values_of_code((tmp_path / "page.html").read_text(), names)
    assert len(values) == 1 + 2 * with_test
    if with_test:
        assert made.method == "test"
        assert made.error.value == pytest.approx(
            pairwise_error(y[~train], scores[~train], qid=qid[~train])
        )


def test_missing_values_in_the_test_data_alone(rows, quick, tmp_path):
    X, y, qid = rows
    train, holes = qid < 20, X.copy()
    holes[::5, 1] = np.nan
    test = (holes[~train], y[~train], qid[~train])
    args = (X[train], y[train], qid[train])
    made = write_report(tmp_path / "page.html", *args, test=test, estimator=quick)
    assert 0 < made.error.value < 0.5


def test_one_ranking_and_large_data_are_refitted(rows, quick, tmp_path, monkeypatch):
    """Where held-out scores do not cover all rows by query, folds are refitted."""
    X, y, qid = rows
    made = write_report(tmp_path / "page.html", X, y, estimator=quick)
    assert made.method == "refits"
    assert "on held-out folds" in words_of(tmp_path / "page.html")
    few = rankrls.estimators.auto.EFFORTS["quick"].__class__
    effort = rankrls.estimators.auto.EFFORTS["quick"]
    small = few(**{**vars(effort), "n_rows": len(X) // 2})
    monkeypatch.setitem(rankrls.estimators.auto.EFFORTS, "quick", small)
    made = write_report(tmp_path / "page.html", X, y, qid, estimator=quick)
    assert made.method == "refits"
    text = words_of(tmp_path / "page.html")
    assert f"compared on a sample of {made.model.n_compared_:,} rows in whole queries" in text


def test_alphas_are_refused(rows, quick, tmp_path):
    with pytest.raises(ValueError, match="the estimator is AutoRanker, so leave alphas out"):
        write_report(tmp_path / "page.html", *rows, alphas=[1.0], estimator=quick)
