"""Uncertainties against a dense Gaussian process on explicit differences."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal, norm
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

import oracles
from cases import COSTS, WEIGHTINGS, Case
from rankrls import RankRLS
from rankrls.core.ridge import models

KERNELS = {"linear": linear_kernel, "rbf": lambda A, B=None: rbf_kernel(A, B, gamma=0.3)}

GRID = [
    {"cost": cost, "ties": "drop", "query_weighting": weighting} | extra
    for cost in COSTS
    for weighting in WEIGHTINGS
    for extra in (
        {"kind": "continuous", "qid": "one"},
        {"weight": "zeros"},
        {"n_pairs": 3},
        {"n_pairs": 40},
    )
] + [{"ties": "keep", "kind": "graded"}, {"scored": False, "n_pairs": 12}]


class Process:
    """Posterior of f given z_e = f_h − f_j + noise, by dense covariance matrices."""

    def __init__(self, case, k, X, alpha):
        self.k, self.X = k, X
        M, z, C = oracles.difference_process(case.edges, k(X, X), alpha)
        self.M, self.z, self.C = M, z, C
        self.weight = case.system().row_weight()
        self.weight = self.weight / self.weight.sum()

    def posterior(self, A):
        """Mean and covariance of f at the rows of A."""
        cross = self.k(A, self.X) @ self.M
        mean = cross @ np.linalg.solve(self.C, self.z)
        return mean, self.k(A, A) - cross @ np.linalg.solve(self.C, cross.T)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e3])
def test_posterior(name, options, alpha):
    case = Case(20, **options)
    X = case.rng.standard_normal((case.m, 3))
    new = case.rng.standard_normal((6, 3))
    process = Process(case, KERNELS[name], X, alpha)
    everything = np.vstack([new, X])
    mean, cov = process.posterior(everything)
    # The score of a row relative to the (weighted) mean of the training rows with an edge.
    relative = np.hstack([np.eye(6), -np.tile(process.weight, (6, 1))])
    expected_std = np.sqrt(np.einsum("ij,jk,ik->i", relative, cov, relative))
    swap = np.hstack([np.eye(3), -np.eye(3), np.zeros((3, case.m))])
    variance = np.einsum("ij,jk,ik->i", swap, cov, swap)
    density = multivariate_normal(np.zeros(len(process.z)), process.C, allow_singular=False)
    likelihood = density.logpdf(process.z)
    solvers = ["dual", "nystroem"] + (["primal"] if name == "linear" else [])
    for solver in solvers:
        basis = np.arange(case.m) if solver == "nystroem" else None
        ranker = RankRLS(alpha, kernel=name, gamma=0.3, solver=solver, basis=basis, **case.options)
        layouts = ((X, new), (sparse.csr_array(X), sparse.csr_array(new)))
        for data, rows in layouts if alpha == 1.0 else layouts[alpha > 1.0 :][:1]:
            ranker.fit(data, case.y, **case.fit)
            _, std = ranker.predict(rows, return_std=True)
            np.testing.assert_allclose(std, expected_std, rtol=1e-5, atol=1e-7)
            for noise in (0.0, alpha):
                expected = norm.cdf((swap @ mean) / np.sqrt(variance + noise))
                actual = ranker.preference_proba(rows[:3], rows[3:], noisy=noise > 0)
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(ranker.log_marginal_likelihood(), likelihood, rtol=1e-8)


def test_many_rows_are_computed_in_blocks(monkeypatch):
    X = np.random.default_rng(0).standard_normal((40, 3))
    ranker = RankRLS(kernel="rbf").fit(X, np.arange(40) % 3)
    expected = ranker.predict(X, return_std=True)[1], ranker.preference_proba(X, X[::-1])
    monkeypatch.setattr(models, "WORK", 7 * len(X))  # blocks of seven rows
    np.testing.assert_allclose(ranker.predict(X, return_std=True)[1], expected[0], rtol=1e-12)
    np.testing.assert_allclose(ranker.preference_proba(X, X[::-1]), expected[1], rtol=1e-12)
