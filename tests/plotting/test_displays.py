"""Displays: what they compute against loops, and what they draw against what they compute."""

import itertools
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from rankrls import ConditionalRankRLSCV, RankRLS, RankRLSCV, metrics, regularization_path
from rankrls.model_selection import (
    leave_pair_out_score,
    leave_pair_out_tournament,
    leave_query_out_predict,
    tournament_scores,
)
from rankrls.plotting import (
    EarlyStoppingDisplay,
    LeavePairOutRocDisplay,
    RegularizationPathDisplay,
    ReliabilityDisplay,
)

pytest.importorskip("matplotlib").use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")

ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def data(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1)
    y = np.round(X @ rng.normal(size=d) / 2 + 2 * rng.normal(size=n))
    return X, y - y.min(), np.arange(n) % 6


def draw(display):
    display.figure_.canvas.draw()  # warnings are errors
    return display


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# --------------------------------------------------------------------- regularisation path


def fit_path(**options):
    X, y, qid = data()
    return RankRLSCV(ALPHAS, query_weighting="size", **options).fit(X, y, qid=qid)


def test_path_of_an_estimator():
    pd = pytest.importorskip("pandas")
    X, y, qid = data(d=9)
    X = pd.DataFrame(X, columns=list("abcdefghi"))
    ranker = RankRLSCV(ALPHAS, query_weighting="size").fit(X, y, qid=qid)
    display = draw(RegularizationPathDisplay.from_estimator(ranker, X, y, qid=qid))
    base = RankRLS(query_weighting="size")
    held_out = leave_query_out_predict(base, X, y, qid=qid, alphas=ALPHAS)
    accuracy = [metrics.pairwise_accuracy(y, row, qid=qid, average=None) for row in held_out]
    mean, error = np.mean(accuracy, axis=1), np.std(accuracy, axis=1) / np.sqrt(6)
    assert_allclose(display.score_line_.get_ydata(), mean, rtol=1e-10)
    assert_array_equal(display.score_line_.get_xdata(), ALPHAS)
    band = display.spread_.get_paths()[0].vertices[:, 1]
    assert_allclose([band.min(), band.max()], [min(mean - error), max(mean + error)])
    coef = regularization_path(base, X, y, alphas=ALPHAS, qid=qid).coef
    assert_allclose(display.coef, coef, rtol=1e-12)
    best = coef[list(ALPHAS).index(ranker.alpha_)]
    largest = np.argsort(-np.abs(best))[:6]
    largest = largest[np.argsort(-best[largest])]
    assert texts(display.axes_[1]) == [*X.columns[largest], "3 more"]
    for line, feature in zip(display.coef_lines_, largest, strict=True):
        assert_allclose(line.get_ydata(), coef[:, feature], rtol=1e-12)
    assert display.ax_ is display.axes_[0]
    assert display.ax_.get_xscale() == display.axes_[1].get_xscale() == "log"
    assert display.ax_.get_ylabel() == "pairwise accuracy"
    assert display.axes_[1].get_xlabel() == "alpha (regularisation)"
    assert display.ax_.get_title() == "RankRLSCV"
    assert f"alpha = {ranker.alpha_:.4g}: {ranker.best_score_:.3f}" in texts(display.ax_)
    assert display.plot() is display


def test_path_without_coefficients_and_in_given_axes():
    X, y, qid = data()
    ranker = fit_path(kernel="rbf", scoring="ndcg@3")
    display = draw(RegularizationPathDisplay.from_estimator(ranker, name="mine"))
    assert len(display.axes_) == 1
    assert (display.ax_.get_title(), display.ax_.get_ylabel()) == ("mine", "ndcg@3")
    with pytest.raises(ValueError, match="kernel='rbf' has no feature"):
        RegularizationPathDisplay.from_estimator(ranker, X, y, qid=qid)
    figure, axes = plt.subplots(1, 2)
    linear = fit_path()
    display = RegularizationPathDisplay.from_estimator(linear, X, y, qid=qid, ax=axes[0])
    assert display.figure_ is figure
    assert display.ax_ is axes[0]
    assert len(display.axes_) == 1
    assert not axes[1].lines
    both = RegularizationPathDisplay.from_estimator(linear, X, y, qid=qid, ax=axes)
    assert both.axes_.tolist() == axes.tolist()
    assert {text.split()[0] for text in texts(axes[1])} == {"feature"}
    with pytest.raises(ValueError, match="ax must be one Axes"):
        RegularizationPathDisplay.from_estimator(linear, ax=axes)
    pairs = RankRLSCV(ALPHAS, cv="leave-pair-out").fit(X, y)  # no spread
    assert draw(RegularizationPathDisplay.from_estimator(pairs)).spread_ is None
    outputs = RankRLSCV(ALPHAS).fit(X, np.c_[y, -y], qid=qid)
    with pytest.raises(ValueError, match="several outputs"):
        RegularizationPathDisplay.from_estimator(outputs, X, np.c_[y, -y], qid=qid)
    judged = {"pairs": [(i, i + 1) for i in range(0, 20, 2)]}
    ranker = RankRLSCV(ALPHAS).fit(X, **judged)
    display = RegularizationPathDisplay.from_estimator(ranker, X, **judged)
    assert_allclose(display.coef[display.best_index], ranker.coef_, rtol=1e-8)


def test_path_of_conditional_rankers_and_of_early_stopping():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(12, 3)), rng.normal(size=(10, 2))
    Y = X[:, :1] * Z[:, 0] + 0.5 * rng.normal(size=(12, 10))
    ranker = ConditionalRankRLSCV([0.01, 1.0, 100.0], cv="rows").fit(X, Y, Z)
    display = draw(RegularizationPathDisplay.from_estimator(ranker))
    assert_array_equal(display.score_line_.get_ydata(), ranker.cv_results_["mean_score"])
    X, y, qid = data()
    early = RankRLSCV([0.0, 1.0, 100.0], early_stopping=True, random_state=0).fit(X, y, qid=qid)
    display = draw(RegularizationPathDisplay.from_estimator(early))
    assert display.ax_.get_xscale() == "symlog"
    with pytest.raises(ValueError, match="EarlyStoppingDisplay"):
        RegularizationPathDisplay.from_estimator(early, X, y, qid=qid)


@pytest.mark.parametrize("gamma", [[0.01, 1.0], [1.0, 0.01]])
def test_of_several_gammas_the_chosen_one_is_shown(gamma):
    X, y, qid = data()
    ranker = RankRLSCV(ALPHAS, kernel="rbf", gamma=gamma).fit(X, y, qid=qid)
    display = draw(RegularizationPathDisplay.from_estimator(ranker))
    alone = RankRLSCV(ALPHAS, kernel="rbf", gamma=ranker.gamma_).fit(X, y, qid=qid)
    assert_allclose(display.mean_score, alone.cv_results_["mean_score"])
    assert display.mean_score[display.best_index] == ranker.best_score_
    stopped = {"early_stopping": True, "random_state": 0}
    ranker = RankRLSCV(ALPHAS, kernel="rbf", gamma=gamma, **stopped).fit(X, y, qid=qid)
    display = EarlyStoppingDisplay.from_estimator(ranker)
    assert_allclose(display.best_point_.get_ydata(), 1 - ranker.best_score_)


def test_path_of_predictions():
    X, y, qid = data()
    alphas = ALPHAS[::-1]  # in any order
    held_out = leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=alphas)
    display = RegularizationPathDisplay.from_predictions(y, held_out, alphas=alphas, qid=qid)
    draw(display)
    expected = [metrics.pairwise_accuracy(y, row, qid=qid) for row in held_out]
    assert_allclose(display.mean_score, expected, rtol=1e-12)
    assert_allclose(display.score_line_.get_ydata(), expected[::-1], rtol=1e-12)
    assert display.n_scores == 6
    best = max(a for a, s in zip(alphas, display.mean_score, strict=True) if s == max(expected))
    assert alphas[display.best_index] == best
    one = RegularizationPathDisplay.from_predictions(y, held_out, alphas=alphas, scoring="ndcg@5")
    assert one.std_score is None
    assert_allclose(one.mean_score, [metrics.ndcg(y, row, k=5) for row in held_out])
    with pytest.raises(ValueError, match="5 entries for 1 alphas"):
        RegularizationPathDisplay.from_predictions(y, held_out, alphas=[1.0])
    with pytest.raises(ValueError, match="needs a fitted RankRLSCV"):
        RegularizationPathDisplay.from_estimator(RankRLS().fit(X, y))


# --------------------------------------------------------------------------- early stopping


def test_early_stopping():
    X, y, qid = data(120, 8)
    train, held = slice(0, 72), slice(72, None)
    ranker = RankRLS(0, early_stopping=True, n_iter_no_change=4)
    ranker.fit(X[train], y[train], qid=qid[train], eval_set=(X[held], y[held], qid[held]))
    display = EarlyStoppingDisplay.from_estimator(ranker)
    draw(display)
    line = display.validation_line_
    assert_array_equal(line.get_xdata(), ranker.validation_iterations_)
    assert_array_equal(line.get_ydata(), ranker.validation_curve_)
    best = ranker.best_iteration_
    assert display.best_point_.get_xdata() == [best]
    assert display.best_point_.get_ydata() == [ranker.validation_curve_.min()]
    assert display.ax_.get_ylabel() == "pairwise error"
    assert texts(display.ax_)[0] == "validation"


def test_early_stopping_of_a_grid():
    X, y, qid = data(120, 8)
    ranker = RankRLSCV([0.1, 10.0, 1000.0], early_stopping=True, random_state=0).fit(X, y, qid=qid)
    _, ax = plt.subplots()
    display = draw(EarlyStoppingDisplay.from_estimator(ranker, ax=ax, name="grid"))
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    chosen = [0.1, 10.0, 1000.0].index(ranker.alpha_)
    curve = ranker.validation_curve_[:, chosen]
    assert_array_equal(display.validation_line_.get_ydata(), curve[~np.isnan(curve)])
    assert ax.get_title() == "grid"
    lists = RankRLSCV([1.0, 10.0], early_stopping=True, random_state=0, scoring="ndcg@5")
    display = EarlyStoppingDisplay.from_estimator(lists.fit(X, y, qid=qid))
    assert display.ax_.get_ylabel() == "1 − ndcg@5"


def test_early_stopping_of_given_errors():
    display = EarlyStoppingDisplay.from_predictions(
        [5, 10, 15], [0.3, 0.2, 0.2], training_error=[0.3, 0.1, 0.05]
    )
    draw(display)
    assert display.best_iteration == 10
    assert display.training_line_.get_ydata().tolist() == [0.3, 0.1, 0.05]
    assert EarlyStoppingDisplay.from_predictions([1], [0.5]).best_iteration == 1
    last = EarlyStoppingDisplay.from_predictions([1, 2], [0.1, 0.3], best_iteration=2)
    assert last.best_point_.get_ydata() == [0.3]
    for iterations, error, best, message in [
        ([1, 2], [0.1], None, "validation_error has 1 entries for 2 iterations"),
        ([], [], None, "iterations is empty"),
        ([1, 2], [0.1, 0.2], 7, "best_iteration=7"),
    ]:
        with pytest.raises(ValueError, match=message):
            EarlyStoppingDisplay.from_predictions(iterations, error, best_iteration=best)
    X, y, _ = data()
    with pytest.raises(ValueError, match="early_stopping=True"):
        EarlyStoppingDisplay.from_estimator(RankRLS().fit(X, y))


# ------------------------------------------------------------------------------------- ROC


def literal_tournament(make, X, y):
    """A refit for every pair of rows: pairs, predictions and the part of wins."""
    n = len(y)
    pairs, predictions, wins = [], [], np.zeros(n)
    for i, j in itertools.combinations(range(n), 2):
        rest = np.setdiff1d(np.arange(n), [i, j])
        f = make().fit(X[rest], y[rest]).predict(X[[i, j]])
        pairs.append((i, j))
        predictions.append(f)
        wins[[i, j]] += (np.sign([f[0] - f[1], f[1] - f[0]]) + 1) / 2
    return np.array(pairs), np.array(predictions), wins / (n - 1)


def two_classes(n=22, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X[:, 0] + rng.normal(size=n) > 0.3).astype(float)


def test_roc_is_that_of_the_literal_tournament():
    X, y = two_classes()
    ranker = RankRLS(0.3, kernel="rbf")
    _, _, wins = literal_tournament(lambda: RankRLS(0.3, kernel="rbf"), X, y)
    assert_allclose(leave_pair_out_tournament(ranker, X, y), wins, rtol=1e-12)
    display = draw(LeavePairOutRocDisplay.from_estimator(ranker, X, y))
    assert np.isclose(display.roc_auc, roc_auc_score(y, wins))
    assert np.isclose(display.leave_pair_out_auc, leave_pair_out_score(ranker, X, y))
    assert display.roc_auc != display.leave_pair_out_auc  # they contradict each other somewhere
    area = np.trapezoid(display.line_.get_ydata(), display.line_.get_xdata())
    assert np.isclose(area, display.roc_auc)
    label = texts(display.ax_)[0]
    assert f"leave-pair-out AUC = {display.leave_pair_out_auc:.3f}" in label
    assert label.startswith("RankRLS\n")
    assert display.ax_.get_xlabel() == "false positive rate"
    names = np.where(y == 1, "yes", "no")
    assert LeavePairOutRocDisplay.from_estimator(ranker, X, names).roc_auc == display.roc_auc


def test_roc_of_another_estimator():
    X, y = two_classes()
    pairs, predictions, wins = literal_tournament(Ridge, X, y)
    shuffled = np.random.default_rng(0).permutation(len(pairs))
    turned = predictions[shuffled][:, ::-1], pairs[shuffled][:, ::-1]
    display = draw(LeavePairOutRocDisplay.from_predictions(y, turned[0], pairs=turned[1]))
    assert np.isclose(display.roc_auc, roc_auc_score(y, wins))
    refitted = LeavePairOutRocDisplay.from_estimator(Ridge(), X, y)
    assert np.isclose(refitted.roc_auc, display.roc_auc)
    assert np.isclose(refitted.leave_pair_out_auc, display.leave_pair_out_auc)
    _, ax = plt.subplots()
    again = display.plot(ax)
    assert again.ax_ is ax
    assert texts(ax)[0].startswith("leave-pair-out AUC")
    assert_array_equal(again.chance_level_.get_xdata(), [0.0, 1.0])


def test_bad_tournaments():
    X, y = two_classes()
    pairs = np.array(list(itertools.combinations(range(22), 2)))
    scores = np.zeros((len(pairs), 2))
    for wrong in (pairs[1:], np.r_[pairs[1:], pairs[1:2]], np.r_[pairs, pairs[:1]]):
        with pytest.raises(ValueError, match="pairs must be all 231 pairs"):
            LeavePairOutRocDisplay.from_predictions(y, scores[: len(wrong)], pairs=wrong)
    with pytest.raises(ValueError, match="two levels"):
        LeavePairOutRocDisplay.from_predictions(np.arange(22), scores, pairs=pairs)
    with pytest.raises(ValueError, match="pairs of the same class"):
        LeavePairOutRocDisplay.from_estimator(RankRLS(ties="drop"), X, y)
    with pytest.raises(ValueError, match="two scores for each of 231 pairs"):
        tournament_scores(pairs, scores[1:], 22)
    with pytest.raises(ValueError, match="row 22 is in no pair"):
        tournament_scores(pairs, scores, 23)


# ------------------------------------------------------------------------------------- all


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'rankrls\[plot\]'"):
        EarlyStoppingDisplay.from_predictions([1, 2], [0.3, 0.2])


# ------------------------------------------------------------------ reliability


def judged(seed=0, m=40, n_pairs=400):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 4))
    pairs = rng.integers(0, m, (n_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    better = (X[pairs[:, 0], 0] - X[pairs[:, 1], 0] + rng.logistic(size=len(pairs))) > 0
    pairs = np.where(better[:, None], pairs, pairs[:, ::-1])
    magnitude = (rng.random(len(pairs)) < 0.9).astype(float)
    return X, pairs, magnitude, rng


def test_reliability_of_predictions_against_loops():
    rng = np.random.default_rng(1)
    p = rng.random(200)
    won = rng.choice([0.0, 0.5, 1.0], 200)
    weight = rng.integers(0, 3, 200).astype(float)
    display = ReliabilityDisplay.from_predictions(p, won, sample_weight=weight, n_bins=5)
    edges = np.quantile(p[weight > 0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    edges[-1] = np.inf
    for b in range(5):
        inside = (edges[b] <= p) & (p < edges[b + 1]) & (weight > 0)
        assert display.counts[b] == inside.sum()
        for found, values in ((display.prob_pred, p), (display.prob_true, won)):
            assert np.isclose(found[b], np.average(values[inside], weights=weight[inside]))
    loss = -(won * np.log(p) + (1 - won) * np.log(1 - p))
    assert np.isclose(display.log_loss, np.average(loss, weights=weight))
    assert (display.prob_low < display.prob_true).all()
    assert (display.prob_high > display.prob_true).all()
    assert_array_equal(display.line_.get_ydata(), display.prob_true)
    again = ReliabilityDisplay.from_predictions(p, won, ax=display.ax_, name="again")
    assert again.diagonal_ is None
    assert again.line_.get_color() != display.line_.get_color()
    assert texts(display.ax_)[-1] == f"again, log loss = {again.log_loss:.3f}"
    assert np.ptp(again.counts) <= 1  # of equal numbers


@pytest.mark.parametrize(
    ("by", "options"),
    [
        ("judgement", {"kernel": "rbf", "gamma": [0.1, 1.0], "basis": 15, "random_state": 0}),
        ("group", {}),
    ],
)
def test_reliability_is_of_held_out_judgements(by, options):
    X, pairs, magnitude, rng = judged()
    C = rng.standard_normal((len(pairs), 1))
    groups = rng.integers(0, 5, len(pairs)) if by == "group" else None
    given = {"magnitude": magnitude, "pair_features": C}
    if by == "group":
        given["groups"] = groups
    ranker = RankRLSCV(scoring="log_loss", **options).fit(X, pairs=pairs, **given)
    display = ReliabilityDisplay.from_estimator(ranker, X, pairs, **given)
    assert display.counts.sum() == len(pairs)
    assert (display.prob_pred >= 0.5).all()
    # The calibration's own log loss is of the same held-out judgements.
    assert np.isclose(display.log_loss, ranker.calibration_.log_loss, rtol=1e-9)
    assert texts(display.ax_)[-1].startswith("RankRLSCV, log loss = 0.")


def test_reliability_of_refits_and_of_new_judgements():
    X, pairs, magnitude, _ = judged(n_pairs=30)
    display = ReliabilityDisplay.from_estimator(RankRLS(2.0), X, pairs, magnitude=magnitude)
    p = []
    for i, (a, b) in enumerate(pairs):
        rest = np.delete(np.arange(len(pairs)), i)
        model = RankRLS(2.0).fit(X, pairs=pairs[rest], magnitude=magnitude[rest])
        p.append(model.preference_proba(X[[a]], X[[b]], noisy=True)[0])
    won = np.where(magnitude == 0, 0.5, 1.0)
    loss = -np.mean(won * np.log(p) + (1 - won) * np.log1p(-np.array(p)))
    assert np.isclose(display.log_loss, loss, rtol=1e-9)

    more = judged(seed=2)[1]
    ranker = RankRLSCV(scoring="log_loss").fit(X, pairs=pairs)
    new = ReliabilityDisplay.from_estimator(ranker, X, more, held_out=False)
    q = ranker.preference_proba(X[more[:, 0]], X[more[:, 1]])
    assert np.isclose(new.log_loss, -np.log(q).mean(), rtol=1e-9)


def test_reliability_with_scores_beside_judgements():
    X, pairs, _, rng = judged()
    scores = {"y": X[:, 0] + rng.standard_normal(len(X)), "qid": np.arange(len(X)) % 3}
    scores["sample_weight"] = rng.random(len(X)) + 0.5
    ranker = RankRLSCV(scoring="log_loss").fit(X, pairs=pairs, **scores)
    display = ReliabilityDisplay.from_estimator(ranker, X, pairs, **scores)
    assert np.isclose(display.log_loss, ranker.calibration_.log_loss, rtol=1e-9)
    with pytest.raises(ValueError, match="qid can be used only with held_out"):
        ReliabilityDisplay.from_estimator(ranker, X, pairs, qid=scores["qid"], held_out=False)
    with pytest.raises(NotFittedError):
        ReliabilityDisplay.from_estimator(RankRLSCV(), X, pairs)
    ranker.fit(X, pairs=pairs, pair_features=rng.standard_normal((len(pairs), 1)))
    with pytest.raises(ValueError, match="was fitted with pair_features"):
        ReliabilityDisplay.from_estimator(ranker, X, pairs)


def test_reliability_of_bad_input():
    for proba, outcome, message in (
        ([0.5, 1.2], [0, 1], "proba must be between 0 and 1; got 1.2 at row 1"),
        ([0.5, 0.2], [0], "outcome has 1"),
        ([], [], "no judgement to plot"),
    ):
        with pytest.raises(ValueError, match=message):
            ReliabilityDisplay.from_predictions(proba, outcome)
