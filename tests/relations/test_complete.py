"""Kronecker operators, the theorems of P5, closed forms and exact hold-outs against refits."""

import numpy as np
import pytest
from scipy.linalg import block_diag

import oracles
import relation_cases as cases
from rankrls.core.relations.complete import closed_form as closed_form_of_sides
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.incomplete import CellLoss
from rankrls.core.relations.labels import FreeOffsets, Observations
from rankrls.core.relations.pairwise_kernels import RelationLoss
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.estimators.relation_search import object_folds, pair_folds

ALPHAS = (1e-9, 1e-6, 1e-3, 1.0, 1e4, 1e9)
LOSSES = (False, True)  # whether it is the ranking loss


def commutation(p):
    """P5 Definition 4.1."""
    P = np.zeros((p * p, p * p))
    for i in range(p):
        for j in range(p):
            P[i * p + j, j * p + i] = 1.0
    return P


def swapped_kernel(K, sign):
    P = commutation(len(K))
    return 0.5 * (np.eye(len(P)) + sign * P) @ np.kron(K, K)


def centred_spectrum(G):
    return Side(G).spectrum(centred=True)


def closed_form(K, G, Y, *, ranking, sign):
    rows = Side(K)
    columns = rows if G is K else Side(G)
    return closed_form_of_sides(rows, columns, Y, RelationLoss(ranking, sign))


def complete_holdout(K, G, Y, *, ranking, sign=0):
    rows = Side(K)
    sides = rows, rows if G is K else Side(G)
    labels, loss = Observations.read(Y), RelationLoss(ranking, sign)
    return CompleteHoldout(RelationProblem(*sides, labels, loss), Y)


def close(a, b, tolerance=1e-10):
    assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-300)


# ---------------------------------------------------------------------- operators


@pytest.mark.parametrize("observed", cases.OBSERVED)
@pytest.mark.parametrize("ranking", LOSSES)
def test_factor_of_the_loss(observed, ranking):
    """F Fᵀ over cells is the centring (P5 (31)) over edges, and Fᵀy its target."""
    rng = np.random.default_rng(0)
    rows, cols = cases.edges(observed, 5, 4, rng)
    y = rng.standard_normal(len(rows))
    observations = Observations(rows, cols, y, (5, 4))
    cells = observations.cells
    loss = CellLoss(cells, FreeOffsets(rows=ranking))
    B = np.zeros((len(rows), len(cells)))  # edges by cells
    B[np.arange(len(rows)), np.searchsorted(cells.flat, rows * 4 + cols)] = 1.0
    L = np.eye(len(rows))
    if ranking:
        order = np.argsort(rows, kind="stable")
        _, counts = np.unique(rows, return_counts=True)
        blocks = block_diag(*[np.eye(n) - 1.0 / n for n in counts])
        L[np.ix_(order, order)] = blocks
    close(loss.apply(np.eye(len(cells))), B.T @ L @ B)
    close(loss.forward(np.eye(len(cells))).T, loss.back(np.eye(len(cells))))
    close(loss.forward(loss.target), B.T @ L @ y)


@pytest.mark.parametrize("ranking", LOSSES)
def test_blocks_are_found(ranking):
    def block(Y, **options):
        return Observations.read(np.array(Y, float)).block(ranking=ranking, **options)

    gap = np.nan
    whole = block([[1, 2], [3, 4]])
    assert whole.Y.shape == (2, 2)
    empty = block([[1, gap, 2], [gap, gap, gap], [3, gap, 4]])
    assert (empty.rows.tolist(), empty.cols.tolist()) == ([0, 2], [0, 2])
    assert block([[1, 2], [3, gap]]) is None or ranking
    single = block([[1, 2, 5], [3, gap, gap]])
    assert (single is not None) == ranking
    assert block([[gap, 1], [gap, 2]], square=True) is None
    twice = Observations(np.tile([0, 0, 1, 1], 2), np.tile([0, 1, 0, 1], 2), np.arange(8.0), (2, 2))
    found = twice.block(ranking=ranking)
    assert found.multiplicity == 2
    assert found.Y.tolist() == [[2, 3], [4, 5]]
    uneven = Observations(np.array([0, 0, 0]), np.array([0, 1, 1]), np.arange(3.0), (1, 2))
    assert uneven.block(ranking=ranking) is None


# ---------------------------------------------------------------------- theorems of P5


def paired_problem(p=4, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((p, rank or p + 1))
    return X @ X.T, rng.standard_normal((p, p))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rank", [None, 2])
def test_symmetrised_labels_are_the_symmetric_kernel(sign, rank):
    """Proposition 4.7, also for labels that are not symmetric themselves."""
    K, Y = paired_problem(rank=rank)
    for alpha in (1e-3, 1.0):
        kernel = swapped_kernel(K, sign)
        a = np.linalg.solve(kernel + alpha * np.eye(16), Y.ravel())
        model = closed_form(K, K, Y, ranking=False, sign=sign)
        ordinary = closed_form(K, K, 0.5 * (Y + sign * Y.T), ranking=False, sign=0)
        F = K @ model.coefficients(np.array([alpha]))[0] @ K
        close(F, (kernel @ a).reshape(4, 4))
        close(F, K @ ordinary.coefficients(np.array([alpha]))[0] @ K)


@pytest.mark.parametrize("rank", [None, 2])
def test_ranking_is_regression_with_the_centred_kernel(rank):
    """Lemma 4.9: the minimiser of (38) minimises (37)."""
    K, Y = paired_problem(rank=rank)
    p, alpha = 4, 0.5
    C = np.eye(p) - 1.0 / p
    L, kernel = np.kron(np.eye(p), C), np.kron(K, K)
    a = np.linalg.solve(L @ kernel @ L + alpha * np.eye(16), L @ Y.ravel())
    A = closed_form(K, K, Y, ranking=True, sign=0).coefficients(np.array([alpha]))[0]
    close(K @ A @ K, (kernel @ a).reshape(p, p))
    assert np.abs(A.sum(axis=1)).max() < 1e-12 * np.abs(A).max()
    # A stationary point of (37), which is convex.
    r = Y.ravel() - kernel @ A.ravel()
    gradient = -2 * kernel @ L @ r + 2 * alpha * kernel @ A.ravel()
    assert np.abs(gradient).max() < 1e-11 * np.abs(kernel @ L @ Y.ravel()).max()


# ---------------------------------------------------------------------- spectra


@pytest.mark.parametrize("n", [1, 2, 7])
def test_centred_spectrum(n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)) + 1e3
    G = X @ X.T
    found = centred_spectrum(G)
    U = found.vectors
    assert U.shape == (n, n - 1)
    assert np.abs(U.sum(axis=0)).max(initial=0.0) < 1e-13
    assert np.allclose(U.T @ U, np.eye(n - 1), atol=1e-13)
    C = np.eye(n) - 1.0 / n
    assert np.allclose((U * found.values) @ U.T, C @ G @ C, atol=1e-7)
    assert (found.values != 0).sum() == min(3, n - 1)


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

    def __init__(self, K, G, Y, alpha, ranking):
        self.K, self.G, self.Y, self.alpha, self.ranking = K, G, Y, alpha, ranking

    def without(self, out):
        """Predictions of all pairs by the model without the pairs of a mask."""
        rows, cols = np.nonzero(~out)
        A = oracles.relation_coefficients(
            self.K, self.G, rows, cols, self.Y[rows, cols], self.alpha, ranking=self.ranking
        )
        return self.K @ A @ self.G

    def anchored(self, out):
        """The same with the documented offsets, if the loss is that of ranking."""
        F = self.without(out)
        if not self.ranking:
            return F
        left = ~out
        columns = left.any(axis=0)
        for i in range(len(F)):
            if left[i].any():
                F[i] += (self.Y[i] - F[i])[left[i]].mean()
            else:
                F[i] -= F[i][columns].mean()
        return F


@pytest.mark.parametrize("ranking", LOSSES)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["full", "low rank", "duplicates", "alone"])
def test_leave_out_equals_refits(kind, alpha, ranking):
    K, G, Y = holdout_problem(kind)
    p, g = Y.shape
    refits = Refits(K, G, Y, alpha, ranking)
    holdout = complete_holdout(K, G, Y, ranking=ranking)
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
        assert error <= 1e-8 * scale + 1e-300, (name, error / scale)
        assert n_refits.shape == (1,)


@pytest.mark.parametrize("ranking", LOSSES)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["full", "low rank", "duplicates", "alone"])
def test_leaving_out_pairs_of_a_row_equals_refits(kind, alpha, ranking):
    K, G, Y = holdout_problem(kind)
    p, g = Y.shape
    refits = Refits(K, G, Y, alpha, ranking)
    folds = [np.array([0, 3]), np.array([1, 2, 4]), np.array([5])]
    held, _ = complete_holdout(K, G, Y, ranking=ranking).entry_folds(folds, np.array([alpha]))
    for fold in folds:
        expected = np.empty((p, len(fold)))
        for i in range(p):
            out = np.zeros((p, g), dtype=bool)
            out[i, fold] = True
            expected[i] = refits.without(out)[i, fold]
        found = held[0][:, fold]
        if ranking:
            expected = expected - expected.mean(axis=1, keepdims=True)
            found = found - found.mean(axis=1, keepdims=True)
        scale = max(np.abs(expected).max(), 1e-6 * np.abs(Y).max())
        assert np.abs(found - expected).max() <= 1e-8 * scale


def test_shortcuts_are_shortcuts():
    """No refit on well-conditioned data; refits where M is tiny beside its largest value."""
    for kind, alpha, refits in (("full", 1e-9, 0), ("low rank", 1e-9, 0), ("alone", 1e-9, 1)):
        K, G, Y = holdout_problem(kind)
        for ranking in LOSSES:
            _, found = complete_holdout(K, G, Y, ranking=ranking).rows(np.array([alpha, 1.0]))
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


def test_too_few_objects_to_fold():
    rng = np.random.RandomState(0)
    with pytest.raises(ValueError, match="3 columns are too few to hold some of them out"):
        object_folds(3, None, rng, "columns", least=2)
    with pytest.raises(ValueError, match="8 rows cannot be held out in 9 folds"):
        object_folds(8, 9, rng, "rows", least=1)
    assert len(object_folds(8, None, rng, "rows", least=1)) == 2
    assert len(object_folds(200, None, rng, "rows", least=1)) == 10
