"""Exact hold-outs of complete relations against refits, and folds of pairs."""

import numpy as np
import pytest

import oracles
import relation_cases as cases
from rankrls._relation_labels import FreeOffsets, Observations
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.pairwise_kernels import RelationLoss
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.estimators.relation_search import pair_folds

ALPHAS = (1e-9, 1e-6, 1e-3, 1.0, 1e4, 1e9)
LOSSES = {
    "regression": RelationLoss(False),
    "ranking": RelationLoss(True),
    "constant": RelationLoss(False, offsets=FreeOffsets(constant=True)),
}


def complete_holdout(K, G, Y, loss):
    labels = Observations.read(Y)
    return CompleteHoldout(RelationProblem(Side(K), Side(G), labels, LOSSES[loss]), Y)


# ---------------------------------------------------------------------- hold-out


def holdout_problem(kind, p=7, g=6, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "alone":  # an object that shares nothing with the others
        K, G = np.zeros((p, p)), np.zeros((g, g))
        K[0, 0] = G[0, 0] = 1.0
        K[1:, 1:], G[1:, 1:] = 1.0, 2.0
    elif kind == "duplicates":
        K, G = np.eye(p) + 1.0, np.eye(g) + 1.0
        K[0, 1] = K[1, 0] = G[2, 3] = G[3, 2] = 2.0
    else:
        X, Z = cases.features(kind, p, rng), cases.features(kind, g, rng)
        K, G = X @ X.T, Z @ Z.T
    return K, G, rng.standard_normal((p, g))


class Refits:
    """Explicit refits by the dense system."""

    def __init__(self, K, G, Y, alpha, loss):
        self.K, self.G, self.Y, self.alpha, self.loss = K, G, Y, alpha, loss

    def without(self, out):
        """Predictions of all pairs by the model without the pairs of a mask."""
        rows, cols = np.nonzero(~out)
        free = {"ranking": self.loss == "ranking", "constant": self.loss == "constant"}
        A = oracles.relation_coefficients(
            self.K, self.G, rows, cols, self.Y[rows, cols], self.alpha, **free
        )
        return self.K @ A @ self.G

    def anchored(self, out):
        """The same with the documented offsets, if the model has any."""
        F, left = self.without(out), ~out
        if self.loss != "ranking":
            return F + (self.loss == "constant") * (self.Y - F)[left].mean()
        columns = left.any(axis=0)
        for i in range(len(F)):
            if left[i].any():
                F[i] += (self.Y[i] - F[i])[left[i]].mean()
            else:
                F[i] -= F[i][columns].mean()
        return F


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["full", "low rank", "duplicates", "alone"])
def test_leave_out_equals_refits(kind, alpha, loss):
    K, G, Y = holdout_problem(kind)
    p, g = Y.shape
    refits = Refits(K, G, Y, alpha, loss)
    holdout = complete_holdout(K, G, Y, loss)
    alphas = np.array([alpha])
    expected = {name: np.empty((p, g)) for name in ("rows", "columns", "entries", "both")}
    for i in range(p):
        out = np.zeros((p, g), dtype=bool)
        out[i] = True
        expected["rows"][i] = refits.anchored(out)[i]
    for j in range(g):
        out = np.zeros((p, g), dtype=bool)
        out[:, j] = True
        expected["columns"][:, j] = refits.anchored(out)[:, j]
    for i, j in np.ndindex(p, g):
        out = np.zeros((p, g), dtype=bool)
        out[i, j] = True
        expected["entries"][i, j] = refits.anchored(out)[i, j]
        out[i], out[:, j] = True, True
        expected["both"][i, j] = refits.anchored(out)[i, j]
    for name, values in expected.items():
        held, n_refits = getattr(holdout, name)(alphas)
        scale = np.abs(values).max()
        error = np.abs(held[0] - values).max()
        tolerance = max(1e-8, 1e-14 / alpha if loss == "constant" else 0.0)
        assert error <= tolerance * scale + 1e-300, (name, error / scale)
        assert n_refits.shape == (1,)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["full", "low rank", "duplicates", "alone"])
def test_leaving_out_pairs_of_a_row_equals_refits(kind, alpha, loss):
    K, G, Y = holdout_problem(kind)
    p, g = Y.shape
    refits = Refits(K, G, Y, alpha, loss)
    folds = [np.array([0, 3]), np.array([1, 2, 4]), np.array([5])]
    held, _ = complete_holdout(K, G, Y, loss).entry_folds(folds, np.array([alpha]))
    for fold in folds:
        expected = np.empty((p, len(fold)))
        for i in range(p):
            out = np.zeros((p, g), dtype=bool)
            out[i, fold] = True
            expected[i] = refits.anchored(out)[i, fold]
        found = held[0][:, fold]
        if loss == "ranking":
            expected = expected - expected.mean(axis=1, keepdims=True)
            found = found - found.mean(axis=1, keepdims=True)
        scale = max(np.abs(expected).max(), 1e-6 * np.abs(Y).max())
        assert np.abs(found - expected).max() <= 1e-8 * scale


def test_shortcuts_are_shortcuts():
    """No refit on well-conditioned data; refits where M is tiny beside its largest value."""
    for kind, alpha, refits in (("full", 1e-9, 0), ("low rank", 1e-9, 0), ("alone", 1e-9, 1)):
        K, G, Y = holdout_problem(kind)
        for loss in LOSSES:
            _, found = complete_holdout(K, G, Y, loss).rows(np.array([alpha, 1.0]))
            assert found.tolist() == [refits, 0]


# ---------------------------------------------------------------------- what is held out


@pytest.mark.parametrize("paired", [False, True])
def test_folds_of_pairs(paired):
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((20, 20)) < 0.4)
    cells = Observations(rows, cols, np.zeros(len(rows)), (20, 20)).cells
    fold, k = pair_folds(cells, None, np.random.RandomState(0), paired=paired)
    assert k == 10
    assert fold.max() < k
    if paired:
        table = np.full((20, 20), -5)
        table[cells.rows, cells.cols] = fold
        both = (table != -5) & (table.T != -5)
        assert (table == table.T)[both].all()
        return
    for row in range(20):
        _, counts = np.unique(fold[(cells.rows == row) & (fold >= 0)], return_counts=True)
        assert counts.min() >= 2
    assert (fold >= 0).mean() > 0.9
