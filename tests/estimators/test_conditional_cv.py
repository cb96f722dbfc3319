"""ConditionalRankRLSCV, held-out predictions and scores against explicit refits."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls._relation_labels import Observations
from rankrls.estimators.relation_search import pair_folds
from rankrls.metrics import conditional_scores
from rankrls.model_selection import conditional_cross_val_score, relation_holdout_predict

ALPHAS = np.array([0.01, 1.0, 100.0])
LOSSES = ("ranking", "regression")
SIGNS = {None: 0, "symmetric": 1, "reciprocal": -1}
quiet = pytest.mark.filterwarnings("ignore:the best alpha")


def two_domains(seed=0, p=12, g=11, gaps=0.0):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((p, 3)), rng.standard_normal((g, 2))
    Y = np.tanh(X[:, :1] * Z[:, 0]) + 0.5 * rng.standard_normal((p, g))
    Y[rng.random((p, g)) < gaps] = np.nan
    return X, Y, Z


def one_domain(relation, seed=0, p=14, gaps=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((p, 3))
    Y = np.tanh(X[:, :1] * X[:, 1]) + 0.3 * rng.standard_normal((p, p))
    Y = Y + SIGNS[relation] * Y.T
    hidden = np.triu(rng.random((p, p)) < gaps)
    Y[hidden | hidden.T] = np.nan
    return X, Y


def refit(ranker, X, Y, Z, out):
    """Predictions of all pairs by a model that has not seen some of them."""
    return clone(ranker).fit(X, np.where(out, np.nan, Y), Z).predict(X, Z)


def drawn(n, k, rng):
    """The folds of n objects that cross-validation draws."""
    order = rng.permutation(n)
    return [np.sort(order[start::k]) for start in range(k)]


def block(shape, rows, cols):
    """A mask of all pairs of some rows and columns; None: all of them."""
    mask = np.zeros(shape, dtype=bool)
    parts = zip(shape, (rows, cols), strict=True)
    mask[np.ix_(*(np.arange(n) if part is None else part for n, part in parts))] = True
    return mask


def rest(n, fold):
    return np.setdiff1d(np.arange(n), fold)


def check_scores(model, X, Y, Z, folds, **options):
    """That scores are those of refits: ``folds`` are masks of left-out and of predicted pairs."""
    by = options.get("condition_on", "rows")
    for alpha, score in zip(ALPHAS, model.cv_results_["mean_score"], strict=True):
        ranker, values = ConditionalRankRLS(alpha, **options), []
        for out, test in folds:
            F = refit(ranker, X, Y, Z, out)
            lists = conditional_scores(np.where(test, Y, np.nan), F, condition_on=by)
            values += lists[~np.isnan(lists)].tolist()
        assert np.isclose(score, np.mean(values))


# ---------------------------------------------------------------------- cross-validation


@quiet
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_leave_one_out_on_complete_relations(loss, condition_on):
    X, Y, Z = two_domains()
    options = {"loss": loss, "condition_on": condition_on, "kernel": "rbf"}
    model = ConditionalRankRLSCV(ALPHAS, cv=condition_on, **options).fit(X, Y, Z)
    by_rows = condition_on == "rows"
    folds = [
        (block(Y.shape, [i], None) if by_rows else block(Y.shape, None, [i]),) * 2
        for i in range(len(Y) if by_rows else Y.shape[1])
    ]
    check_scores(model, X, Y, Z, folds, **options)
    best = model.cv_results_["mean_score"].max()
    chosen = ALPHAS[model.cv_results_["mean_score"] == best].max()
    assert (model.alpha_, model.best_score_) == (chosen, best)
    again = ConditionalRankRLS(model.alpha_, **options).fit(X, Y, Z)
    assert np.array_equal(model.dual_coef_, again.dual_coef_)


@quiet
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("structure", ["rows", "columns", "both"])
def test_folds_between_two_kinds_of_objects(structure, loss, gaps):
    X, Y, Z = two_domains(gaps=gaps)
    options = {"loss": loss, "kernel": "rbf", "gamma": 0.3}
    model = ConditionalRankRLSCV(ALPHAS, cv=structure, n_folds=3, random_state=1, **options)
    model.fit(X, Y, Z)
    rng, (p, g) = np.random.RandomState(1), Y.shape
    columns = [None] if structure == "rows" else drawn(g, 3, rng)
    rows = [None] if structure == "columns" else drawn(p, 3, rng)
    folds = []
    for i in rows:
        for j in columns:
            train = [None if k is None else rest(n, k) for n, k in ((p, i), (g, j))]
            folds.append((~block(Y.shape, *train), block(Y.shape, i, j)))
    check_scores(model, X, Y, Z, folds, **options)
    assert (model.cv_results_["n_refits"] == (len(folds) if gaps else 0)).all()


@quiet
@pytest.mark.parametrize("gaps", [0.0, 0.2])
@pytest.mark.parametrize(
    ("relation", "cv"),
    [
        (relation, cv)
        for relation in SIGNS
        for cv in ("rows", "columns", "both", 3, "splits")
        # Without a symmetry rows and columns are held out as between two kinds of objects.
        if relation or cv not in ("rows", "columns")
    ],
)
def test_folds_of_objects_of_one_kind(relation, cv, gaps):
    """With a symmetry, or for "both", objects are held out with all their pairs."""
    X, Y = one_domain(relation, gaps=gaps)
    n = len(X)
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    options = {"relation": relation, "kernel": "rbf", "gamma": 0.3}
    model = ConditionalRankRLSCV(
        ALPHAS, cv=splits if cv == "splits" else cv, n_folds=3, random_state=1, **options
    ).fit(X, Y)
    if cv != "splits":
        splits = [(rest(n, fold), fold) for fold in drawn(n, 3, np.random.RandomState(1))]
    folds = []
    for train, test in splits:
        sides = {"rows": (test, train), "columns": (train, test)}.get(cv, (test, test))
        folds.append((~block(Y.shape, train, train), block(Y.shape, *sides)))
    check_scores(model, X, Y, None, folds, **options)


@quiet
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("kernel", ["linear", ["rbf", "profile"]], ids=str)
@pytest.mark.parametrize(
    ("loss", "fit_offsets"), list(product(LOSSES, (True, "rows", "columns", "both")))
)
def test_folds_have_the_offsets_and_profiles_of_refits(
    loss, fit_offsets, kernel, condition_on, gaps
):
    X, Y, Z = two_domains(gaps=gaps)
    rng = np.random.default_rng(1)
    Y += rng.standard_normal((len(X), 1)) + 2 * rng.standard_normal(len(Z)) + 4
    options = {"loss": loss, "fit_offsets": fit_offsets, "condition_on": condition_on}
    options["kernel"] = kernel
    weights = {} if kernel == "linear" else {"kernel_weights": [1, 1]}
    weights |= {f"object_{name}": value for name, value in weights.items()}
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = ConditionalRankRLSCV(ALPHAS, cv=splits, **weights, **options).fit(X, Y, Z)
    folds = [(block(Y.shape, test, None),) * 2 for _, test in splits]
    check_scores(model, X, Y, Z, folds, **weights, **options)


@quiet
@pytest.mark.parametrize("loss", LOSSES)
def test_single_pairs_of_complete_relations(loss):
    X, Y, Z = two_domains(p=8)
    model = ConditionalRankRLSCV(ALPHAS, cv="edges", loss=loss, n_folds=4, random_state=3)
    model.fit(X, Y, Z)
    columns = drawn(Y.shape[1], 4, np.random.RandomState(3))
    folds = [(block(Y.shape, [i], fold),) * 2 for i in range(len(Y)) for fold in columns]
    check_scores(model, X, Y, Z, folds, loss=loss)
    assert model.cv_results_["n_refits"].tolist() == [0, 0, 0]


@quiet
@pytest.mark.parametrize("relation", SIGNS)
def test_pairs_of_incomplete_relations(relation):
    X, Y = one_domain(relation, gaps=0.2)
    options = {"relation": relation, "kernel": "rbf"}
    model = ConditionalRankRLSCV(ALPHAS, cv="edges", n_folds=3, random_state=3, **options)
    model.fit(X, Y)
    cells = Observations.read(Y).cells
    fold, k = pair_folds(cells, 3, np.random.RandomState(3), paired=relation is not None)
    table = np.full(Y.shape, -1)
    table[cells.rows, cells.cols] = fold
    assert (table >= 0).mean() > 0.5
    if relation:
        assert np.array_equal(table, table.T)
    check_scores(model, X, Y, None, [(table == i,) * 2 for i in range(k)], **options)
    assert model.cv_results_["n_refits"].tolist() == [3, 3, 3]


@quiet
def test_scoring_by_another_metric():
    X, Y, Z = two_domains()
    graded = np.digitize(Y, [-0.5, 0.5]).astype(float)
    model = ConditionalRankRLSCV(ALPHAS, scoring="ndcg@3").fit(X, graded, Z)

    def negative_error(y, score, qid):
        return -float(np.mean((y - score) ** 2))

    press = ConditionalRankRLSCV(ALPHAS, scoring=negative_error, loss="regression").fit(X, Y, Z)
    held = relation_holdout_predict(
        ConditionalRankRLS(loss="regression"), X, Y, Z, leave_out="rows", alphas=ALPHAS
    )
    expected = -((Y - held) ** 2).mean(axis=(1, 2))
    assert np.allclose(press.cv_results_["mean_score"], expected)
    assert 0 < model.best_score_ <= 1


# ---------------------------------------------------------------------- scores of procedures


@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("cv", ["rows", "columns", "both", "edges"])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_cross_val_score(cv, condition_on, gaps):
    """Refitting on a part of the objects is the same as cross-validating with one alpha."""
    X, Y, Z = two_domains(gaps=gaps)
    options = {"condition_on": condition_on, "kernel": "rbf", "gamma": 0.2}
    ranker = ConditionalRankRLS(0.5, **options)
    scores = conditional_cross_val_score(ranker, X, Y, Z, cv=cv, n_folds=3, random_state=0)
    assert len(scores) == (9 if cv == "both" else 3)
    if cv == "edges":
        assert (scores > 0.4).all()
        return
    model = ConditionalRankRLSCV([0.5], cv=cv, n_folds=3, random_state=0, **options).fit(X, Y, Z)
    # Means over lists and means of folds differ a little where folds have unequal sizes.
    assert np.isclose(model.best_score_, scores.mean(), atol=0.02)


@quiet
@pytest.mark.parametrize("relation", SIGNS)
@pytest.mark.parametrize("cv", ["rows", "columns", "both", "edges", 3])
def test_nested_cross_validation_of_one_kind_of_objects(relation, cv):
    X, Y = one_domain(relation, p=30)
    inner = ConditionalRankRLSCV(ALPHAS, relation=relation, kernel="rbf", random_state=0)
    scores = conditional_cross_val_score(inner, X, Y, cv=cv, n_folds=3, random_state=0)
    assert len(scores) == 3
    assert np.nanmean(scores) > 0.6


@quiet
def test_precomputed_kernels_are_split_on_both_sides():
    X, Y, Z = two_domains()
    K, G = rbf_kernel(X, gamma=0.2), rbf_kernel(Z, gamma=0.2)
    for cv in ("rows", "columns", "both", "edges"):
        named = conditional_cross_val_score(
            ConditionalRankRLS(kernel="rbf", gamma=0.2), X, Y, Z, cv=cv, n_folds=3, random_state=0
        )
        given = conditional_cross_val_score(
            ConditionalRankRLS(kernel="precomputed"), K, Y, G, cv=cv, n_folds=3, random_state=0
        )
        assert np.allclose(named, given)


def test_multi_edges_stay_together():
    """Copies of a pair are held out together: a copy would tell the label."""
    X, Y, Z = two_domains()
    rows, cols = (a.ravel() for a in np.indices(Y.shape))
    twice = sparse.coo_array(
        (np.tile(Y.ravel(), 2), (np.tile(rows, 2), np.tile(cols, 2))), shape=Y.shape
    )
    noise = ConditionalRankRLS(1e-6, kernel="rbf", gamma=50.0)  # overfits
    scores = conditional_cross_val_score(noise, X, twice, Z, cv="edges", random_state=0)
    assert scores.mean() < 0.8


@pytest.mark.parametrize("condition_on", ["rows", "columns"])
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("cv", ["rows", "columns", "both", "edges"])
@pytest.mark.parametrize("known", ["rows", "columns"])
def test_objects_that_no_kernel_knows_are_not_held_out_silently(known, cv, complete, condition_on):
    rng = np.random.default_rng(0)
    X, Z, Y = rng.standard_normal((12, 2)), rng.standard_normal((10, 2)), rng.random((12, 10))
    if not complete:
        Y[rng.random(Y.shape) < 0.2] = np.nan
    kernels = ["identity", "profile"], "rbf"
    kernel, object_kernel = kernels if known == "rows" else kernels[::-1]
    search = ConditionalRankRLSCV(
        [1.0, 2.0], kernel=kernel, object_kernel=object_kernel, cv=cv, n_folds=3,
        condition_on=condition_on, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, Y, Z)
    told = [str(w.message) for w in caught if "kernels know nothing" in str(w.message)]
    assert len(told) == (cv in (known, "both"))
    assert all(f"holds out {known}," in text for text in told)


@pytest.mark.parametrize("value", [np.ones(3), "good", None])
def test_scoring_functions_return_numbers(value):
    X, Y, Z = two_domains()
    ranker = ConditionalRankRLSCV([1.0, 2.0], scoring=lambda y_true, y_score, qid=None: value)
    with pytest.raises(ValueError, match="scoring must return one number, higher = better; got"):
        ranker.fit(X, Y, Z)
