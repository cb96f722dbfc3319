"""scikit-learn's own checks, over the configurations that take different code paths."""

import warnings
from collections import Counter

import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_estimator,
)

from rankrls import RankRLS, RankRLSCV, RankSVM

CONFIGURATIONS = {
    "default": RankRLS(),
    "primal": RankRLS(solver="primal", query_weighting="size"),
    "dual": RankRLS(solver="dual", ties="drop", query_weighting="query"),
    "rbf": RankRLS(kernel="rbf", solver="dual"),
    "nystroem": RankRLS(kernel="rbf", basis=20, cost="unit", random_state=0),
    "relative": RankRLS(cost="relative"),
    # tol: the checks of sample weights compare predictions to 1e-7. (Early stopping is not here: it
    # holds out rows at random, so that weights and repeated rows are not the same to it.)
    "cg": RankRLS(solver="cg", tol=1e-12),
    # alpha: check_estimators_dtypes rounds a kernel matrix to integers, which makes it indefinite
    # (smallest eigenvalue -38.5); a smaller alpha is refused, and rightly so.
    "precomputed": RankRLS(alpha=100.0, kernel="precomputed"),
    # With an alpha that covers the negative part of the kernels of some checks.
    "precomputed-nystroem": RankRLS(alpha=1e6, kernel="precomputed", solver="nystroem"),
    # tol: as for "cg".
    "svm": RankSVM(query_weighting="query", tol=1e-13),
    "svm-squared": RankSVM(loss="squared_hinge", query_weighting="size", solver="dual", tol=1e-13),
    "svm-rbf": RankSVM(kernel="rbf", query_weighting="query", tol=1e-13),
    "svm-precomputed": RankSVM(kernel="precomputed", query_weighting="query", tol=1e-13),
    "svm-nystroem": RankSVM(kernel="rbf", basis=20, random_state=0, tol=1e-13),
    "cv": RankRLSCV((0.1, 1.0, 10.0), random_state=0),
    "cv-one-alpha": RankRLSCV([1.0], kernel="rbf", query_weighting="query", ties="drop", cv=3),
    "cv-precomputed": RankRLSCV((100.0, 1000.0), kernel="precomputed", random_state=0),
}

# RankSVM refuses indefinite kernel matrices whatever alpha is.
REFUSED = {
    "svm-precomputed": {"check_estimators_dtypes": "rounds a kernel matrix to integers: indefinite"}
}

# Checks that scikit-learn itself leaves out on this machine, and why that is fine.
SKIPPED = {
    "check_array_api_input": "needs SCIPY_ARRAY_API=1 before SciPy is imported; RankRLS does not "
    "claim array API support",
}

# Of 49 (45 for precomputed kernels) in scikit-learn 1.9.
AT_LEAST = 44


@pytest.mark.filterwarnings("ignore:basis=20 is more than the", "ignore:the best alpha")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_check_passes(name):
    refused = REFUSED.get(name, {})
    results = check_estimator(
        CONFIGURATIONS[name], on_skip=None, on_fail=None, expected_failed_checks=refused
    )
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    statuses = Counter(result["status"] for result in results)
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(refused)
    assert set(statuses) <= {"passed", "skipped", "xfail"}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= set(SKIPPED)
    assert statuses["passed"] >= AT_LEAST - len(SKIPPED) - len(refused)


@pytest.mark.parametrize("alpha", [0, 1])
def test_early_stopping(alpha):
    """Rows that are held out at random have a pair, whatever the seed."""
    weights = {
        f"check_sample_weight_equivalence_on_{kind}_data": "rows are held out at random"
        for kind in ("dense", "sparse")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # the seed is scikit-learn's in some checks, and none in others
            ranker = RankRLS(alpha, early_stopping=True)
            results = check_estimator(
                ranker, on_skip=None, on_fail=None, expected_failed_checks=weights
            )
            assert [r["check_name"] for r in results if r["status"] == "failed"] == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.filterwarnings("ignore:basis=20 is more than the", "ignore:the best alpha")
def test_names_of_columns(name):
    """One that scikit-learn runs on its own estimators only: feature_names_in_ and its use."""
    pytest.importorskip("pandas")
    check_dataframe_column_names_consistency(name, CONFIGURATIONS[name])
