"""``rankrls fit`` says when a result is hardly better than a random order."""

import numpy as np
import pytest
from sklearn.utils import Bunch

from rankrls import AutoRanker, RankRLSCV
from rankrls.cli import main
from rankrls.cli._training import _doubt

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha")


rng = np.random.default_rng(3)
X = rng.standard_normal((240, 4))
qid = np.repeat(np.arange(24), 10)
NOISE = rng.integers(0, 3, 240)
SIGNAL = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(240), [-0.5, 0.5])


def doubt(ranker, y, qid, X=X):
    found = _doubt(ranker, Bunch(data=X, target=y, qid=qid, feature_names=None)) or ""
    return found if "random order" in found else None


@pytest.mark.parametrize("scoring", ["pairwise_accuracy", "ndcg@5", "map", "concordance_index"])
@pytest.mark.parametrize("queries", [qid, None])
def test_signal_is_not_doubted(scoring, queries):
    cv = "auto" if queries is not None else 5
    ranker = RankRLSCV([0.1, 1.0, 10.0], scoring=scoring, cv=cv).fit(X, SIGNAL, qid=queries)
    assert doubt(ranker, SIGNAL, queries) is None


def test_automatic_rankers():
    for y, doubted in ((NOISE, True), (SIGNAL, False)):
        ranker = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
        assert (doubt(ranker, y, qid) is not None) == doubted


@pytest.mark.parametrize(("y", "doubted"), [(NOISE, True), (SIGNAL, False)])
def test_the_command_line_warns(y, doubted, tmp_path, capsys):
    path = tmp_path / "rows.txt"
    rows = zip(y, qid, X, strict=True)
    path.write_text(
        "".join(
            f"{label} qid:{q} " + " ".join(f"{j + 1}:{v:.5f}" for j, v in enumerate(x)) + "\n"
            for label, q, x in rows
        )
    )
    model = str(tmp_path / "model.rankrls")
    options = ["--kernel", "rbf", "--alpha", "auto"]
    assert main(["fit", str(path), "--model", model, *options]) in (0, None)
    out, err = capsys.readouterr()
    assert "cv score" in out
    assert ("not better than that of a random order" in err) == doubted
    # The chance of other metrics needs all labels, and the error of pairwise_r2 is not known.
    for how in ("--stream", "--in-memory"):
        options = ["--alpha", "auto", "--cv", "4", how]
        assert main(["fit", str(path), "--model", model, *options]) in (0, None)
        err = capsys.readouterr().err
        assert ("not better than that of a random order, 0.5000" in err) == doubted


def test_the_best_of_many_alphas_is_doubted():
    """Scores of these are two to three standard errors above chance."""
    qid = np.repeat(np.arange(30), 20)
    for seed in (4, 13, 15, 19):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(600, 8)), rng.integers(0, 3, 600).astype(float)
        assert "not better than" in doubt(RankRLSCV().fit(X, y, qid=qid), y, qid, X)


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_a_column_that_a_linear_model_cannot_use_is_named():
    rng = np.random.default_rng(0)
    skewed = np.exp(4 * rng.standard_normal(240))
    y = np.digitize(np.log(skewed) + rng.standard_normal(240), [-2, 2])
    data = np.column_stack([skewed, rng.standard_normal((240, 3))])
    ranker = RankRLSCV().fit(data, y, qid=qid)
    rows = Bunch(data=data, target=y, qid=qid, feature_names=["price", "b", "c", "d"])
    assert "is not better than that of sorting by 'price' alone, largest" in _doubt(ranker, rows)
