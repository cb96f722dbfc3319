"""Model files of conditional rankers: round trips, and what is refused."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from model_files import edit
from rankrls import ConditionalRankRLS, ConditionalRankRLSCV
from rankrls.io import describe_model, load_model, save_model

rng = np.random.default_rng(0)
X, Z = rng.standard_normal((12, 3)), rng.standard_normal((9, 2))
Y = rng.standard_normal((12, 9))
SQUARE = rng.standard_normal((12, 12))
SYMMETRIC = SQUARE + SQUARE.T
NEW, NEW_Z = rng.standard_normal((4, 3)), rng.standard_normal((5, 2))
K, G = X @ X.T, Z @ Z.T

#: Name: (fitted, arguments of predict).
RANKERS = {
    "one kind": lambda: (ConditionalRankRLS(0.5).fit(X, SQUARE), (NEW,)),
    "two kinds": lambda: (
        ConditionalRankRLS(kernel="rbf", object_kernel="linear", gamma=0.3).fit(X, Y, Z),
        (NEW, NEW_Z),
    ),
    "two kernels": lambda: (ConditionalRankRLS(object_kernel="rbf").fit(X, SQUARE), (NEW,)),
    "symmetric": lambda: (
        ConditionalRankRLS(relation="symmetric", kernel="rbf").fit(X, SYMMETRIC),
        (NEW,),
    ),
    "columns": lambda: (
        ConditionalRankRLS(condition_on="columns", loss="regression").fit(X, Y, Z),
        (NEW, NEW_Z),
    ),
    "sparse": lambda: (
        ConditionalRankRLS().fit(sparse.csr_array(X), Y, sparse.csr_array(Z)),
        (NEW, NEW_Z),
    ),
    "precomputed": lambda: (
        ConditionalRankRLS(kernel="precomputed").fit(K, Y, G),
        (NEW @ X.T, NEW_Z @ Z.T),
    ),
    "stopped early": lambda: (
        ConditionalRankRLS(0.0, kernel="rbf", early_stopping=True, random_state=0).fit(X, SQUARE),
        (NEW,),
    ),
    "chosen": lambda: (
        ConditionalRankRLSCV([0.1, 1.0, 10.0], cv="edges", random_state=0).fit(X, Y, Z),
        (NEW, NEW_Z),
    ),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


@pytest.mark.filterwarnings("ignore:the best alpha", "ignore:early stopping reached")
@pytest.mark.parametrize("name", RANKERS)
def test_round_trip(name, path):
    ranker, new = RANKERS[name]()
    save_model(ranker, path)
    loaded = load_model(path)
    assert loaded.get_params().keys() == ranker.get_params().keys()
    np.testing.assert_array_equal(loaded.predict(*new), ranker.predict(*new))
    np.testing.assert_array_equal(loaded.dual_coef_, ranker.dual_coef_)
    few_features = hasattr(ranker, "_weights")  # whose labels are not stored
    assert vars(loaded).keys() == vars(ranker).keys() - ({"_labels"} if few_features else set())
    before = path.read_bytes()
    save_model(loaded, path)
    assert path.read_bytes() == before
    about = describe_model(path)
    assert about["type"] == type(ranker).__name__
    assert about["summary"]["n_edges_"] == ranker.n_edges_


def test_in_a_pipeline(path):
    pipe = make_pipeline(StandardScaler(), ConditionalRankRLS(relation="symmetric"))
    save_model(pipe.fit(X, SYMMETRIC), path)
    np.testing.assert_array_equal(load_model(path).predict(NEW), pipe.predict(NEW))


def test_a_function_cannot_be_saved(path):
    ranker = ConditionalRankRLS(object_kernel=lambda a, b: float(a @ b)).fit(X, Y, Z)
    with pytest.raises(ValueError, match=r"object_kernel.*a function cannot be stored as data"):
        save_model(ranker, path)


CHANGES = {
    "weights of other features": lambda m: m["fields"].update(
        _columns=m["fields"]["_rows"], _two_domains=True
    ),
    "objects of other than 4 features": lambda m: m["fields"].update(n_features_in_=4),
    "two kinds of objects, and one of them is missing": lambda m: m["fields"].update(
        _columns=None, _two_domains=True
    ),
    "relation must be one of": lambda m: m["params"].update(relation="none"),
    "loss must be one of": lambda m: m["params"].update(loss="hinge"),
    "condition_on must be one of": lambda m: m["params"].update(condition_on="x"),
    "alpha must be finite and > 0": lambda m: m["params"].update(alpha=-1),
    "coefficients of other objects": lambda m: m["fields"].pop("_weights"),
    "dual_coef_ of ConditionalRankRLS must be": lambda m: m["fields"].update(dual_coef_=1),
    "has no 'spare'": lambda m: m["fields"].update(spare=1),
}


@pytest.mark.parametrize("message", CHANGES)
def test_files_that_do_not_fit_together(message, path):
    one_kind = message.startswith("two kinds")
    model = ConditionalRankRLS().fit(X, SQUARE) if one_kind else TWO_KINDS
    save_model(model, path)
    edit(path, lambda manifest: CHANGES[message](manifest["model"]) and None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            load_model(path)


TWO_KINDS = ConditionalRankRLS().fit(X, Y, Z)


def test_a_symmetric_relation_of_two_kinds_is_refused(path):
    save_model(ConditionalRankRLS(object_kernel="rbf").fit(X, SQUARE), path)

    def change(manifest):
        manifest["model"]["params"].update(relation="symmetric", object_kernel=None)

    edit(path, change)
    with pytest.raises(ValueError, match="a symmetric relation of two kinds of objects"):
        load_model(path)
