"""Predictions of held-out rows by the model without them, without refitting.

A *fold* is a set U of left-out coordinates of the factor L = F Fᵀ, and the rows to predict. In
these coordinates RankRLS is ridge regression of t on FᵀΦ (Φ the features), and the residuals of U
in the model without U follow from a system of the size of U. There are two kinds of folds:

- whole components of the preference graph (queries, or unions of them): no edge connects U with
  the rest, and L without U is L with U's block removed;
- rows of a query in which every pair has the same weight (cost magnitude, ties kept, no weights):
  over the n remaining rows, Σ_{a<b} (s_a − s_b − (f_a − f_b))² = n min_b Σ_a (s_a − f_a − b)²,
  ridge regression with a free intercept. With κ = c n the factor of that sum, leaving rows out
  changes κ, which is a change of alpha, and the null vector of F (the constant) is not left out.

Predictions are determined up to a constant for each fold and query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from rankrls.core.linalg.factorizations import EigenFactorization, Factorization, factorize
from rankrls.core.preferences.laplacian import Factor, Laplacian
from rankrls.core.preferences.query_weights import row_blocks

__all__ = [
    "SINGULAR",
    "Folds",
    "HeldOut",
    "LeavingBasis",
    "check_fold",
    "equalize",
    "leave_out_features",
    "leave_out_kernel",
    "query_folds",
    "split_folds",
    "weights_without",
]

Array = NDArray[Any]

#: A fold is refitted if the ratio of the smallest to the largest possible eigenvalue of its small
#: system is below this, because the system is then too inaccurate.
SINGULAR = 1e-7

#: Maximum size of the work arrays of folds, which should stay in cache, or for kernels in memory.
CACHE, WORK = 2**17, 2**23

#: Singular values below the first number count as zero, above the second as non-zero; in between,
#: the dependence of basis vectors is uncertain.
_ZERO, _NOT_ZERO = 1e-9, 1e-3


@dataclass(frozen=True)
class HeldOut:
    """Predictions of each fold by the model without it.

    Attributes
    ----------
    folds : sequence of int arrays
        The rows of every fold.
    values : ndarray of shape (n_alphas, total number of rows, n_outputs)
        Predictions, concatenated over folds, determined up to a constant for each fold (and query).
    n_refits : ndarray of shape (n_alphas,), int
        Number of folds that were refitted because the shortcut was unavailable or inaccurate.
    variance : ndarray of the shape of ``values``, or None
        Posterior variances of held-out judgements, if requested.
    """

    folds: Sequence[Array]
    values: Array
    n_refits: Array
    variance: Array | None = None

    @cached_property
    def rows(self) -> Array:
        """Row (or judgement) of each prediction, shape (total,)."""
        members = getattr(self.folds, "members", None)
        return np.concatenate(self.folds) if members is None else members

    @cached_property
    def fold(self) -> Array:
        """Fold index of each prediction, shape (total,)."""
        return np.repeat(np.arange(len(self.folds)), [len(rows) for rows in self.folds])

    @property
    def predictions(self) -> list[Array]:
        """Predictions of each fold, as arrays of shape (n_alphas, len(fold), n_outputs)."""
        borders = np.cumsum([len(rows) for rows in self.folds])[:-1]
        return np.split(self.values, borders, axis=1)

    def by_row(self, n_rows: int) -> Array:
        """Predictions in the order of the rows, (n_alphas, n_rows, n_outputs); NaN if missing."""
        if np.array_equal(self.rows, np.arange(n_rows)):
            return self.values
        out = np.full((len(self.values), n_rows, self.values.shape[2]), np.nan)
        out[:, self.rows] = self.values
        return out


# -- folds ------------------------------------------------------------------------------------


def query_folds(codes: Array) -> list[Array]:
    """Rows of each query, in the order of the query numbers."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def equalize(values: Array, folds: Sequence[Array], together: Array, first: Array) -> None:
    """Give equal rows of a fold and query equal predictions, which rounding made different.

    Otherwise ties would be broken by the order of the rows.

    Parameters
    ----------
    values : ndarray of shape (n_alphas, total number of rows, n_outputs), modified in place
    together : ndarray of shape (m,)
        The query of each row, or other sets of rows whose predictions can be compared.
    first : ndarray of shape (m,)
        From `first_equal`.
    """
    repeated = np.bincount(first, minlength=len(first))[first] > 1
    if not repeated.any():
        return
    rows = np.concatenate(folds)
    fold = np.repeat(np.arange(len(folds)), [len(rows) for rows in folds])
    places = np.flatnonzero(repeated[rows])
    keys = np.column_stack([fold, together[rows], first[rows]])[places]
    _, start, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    source = places[start[group.ravel()]]
    moved = source != places
    values[:, places[moved]] = values[:, source[moved]]


def check_fold(number: int, fold: Any, n_rows: int, name: str = "folds") -> Array:
    """Return the rows of a fold as int64, checked to be distinct and valid."""
    rows = np.asarray(fold)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        hint = ""
        if rows.ndim == 0:
            hint = "; from a label for each row: [np.flatnonzero(g == k) for k in np.unique(g)]"
        raise ValueError(f"{name}[{number}] must be a non-empty array of row numbers{hint}")
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"{name}[{number}] has row numbers outside 0 to {n_rows - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ValueError(f"{name}[{number}] names a row twice")
    return rows.astype(np.int64)


def split_folds(laplacian: Laplacian, folds: Sequence[Array]) -> Array:
    """Whether each fold splits a component (has some but not all of its rows), shape (n_folds,)."""
    component = laplacian.components()
    size = np.bincount(component)
    if not len(folds):
        return np.zeros(0, dtype=bool)
    rows = component[np.concatenate(folds)]
    number = np.repeat(np.arange(len(folds)), [len(fold) for fold in folds])
    # Number of rows of each (fold, component) that occurs.
    key, count = np.unique(number * np.int64(len(size)) + rows, return_counts=True)
    cut = count != size[key % len(size)]
    return np.bincount(key[cut] // len(size), minlength=len(folds)) > 0


class Folds:
    """Rows and coordinates of all folds, and the factors of their penalties.

    Parameters
    ----------
    factor : Factor
    folds : sequence of int arrays
    ratio : ndarray of shape (n_folds,), or None
        alpha of the model without a fold, relative to that of the full problem: κ/κ', with κ' the
        factor of the remaining rows, if rows of a query are left out. None means 1, for folds of
        whole components.
    """

    def __init__(self, factor: Factor, folds: Sequence[Array], ratio: Array | None) -> None:
        self.rows = folds
        self.cut = ratio is not None
        self.ratio = np.ones(len(folds)) if ratio is None else ratio
        self.factor = factor
        order = np.argsort(factor.owner, kind="stable")
        owners = factor.owner[order]
        plain = len(owners) == factor.shape[0] and np.array_equal(
            factor.owner, np.arange(len(owners))
        )
        self.coordinates = list(folds) if plain else [_owned(order, owners, f) for f in folds]
        self.starts = np.cumsum([0, *(len(rows) for rows in folds)])

    @cached_property
    def null(self) -> Any:
        """Null vectors of F, see `Factor.null`."""
        return self.factor.null()

    def places(self, numbers: Any) -> Array:
        """Positions of the predictions of folds of equal length, shape (n_folds, len(fold)).

        For a single number: shape (len(fold),).
        """
        first = self.starts[numbers]
        length = int(self.starts[np.max(numbers) + 1] - self.starts[np.max(numbers)])
        return np.asarray(first)[..., None] + np.arange(length)

    def __len__(self) -> int:
        return len(self.rows)

    def null_block(self, coordinates: Array) -> Array:
        """N_U N_Uᵀ, shape (u, u), of null vectors that lie entirely in the fold."""
        N = self.null[coordinates]
        whole = np.asarray(N.multiply(N).sum(axis=0)).ravel() > 1 - 1e-9
        N = N[:, np.flatnonzero(whole)].toarray()
        return N @ N.T

    def constant_block(self, coordinates: Array) -> Array:
        """N_U N_Uᵀ, shape (u, u), of null vectors that lie only partly in the fold."""
        N = self.null[coordinates]
        squares = np.asarray(N.multiply(N).sum(axis=0)).ravel()
        N = N[:, np.flatnonzero((squares > 0) & (squares <= 1 - 1e-9))].toarray()
        return N @ N.T

    def groups(self, width: int, work: int, extra: Array | None = None) -> Iterator[Array]:
        """Indices of folds of equal size (and ``extra``), in batches of limited work space.

        ``width`` values are kept for each row and coordinate of a fold.
        """
        sizes = np.array(
            [(len(r), len(c)) for r, c in zip(self.rows, self.coordinates, strict=True)]
        )
        keys = np.column_stack([sizes, np.zeros(len(sizes), int) if extra is None else extra])
        different, kind = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(kind.ravel(), kind="stable")
        borders = np.cumsum(np.bincount(kind.ravel()))
        for number, size in enumerate(different):
            same = order[borders[number - 1] if number else 0 : borders[number]]
            step = max(1, work // max(1, width * int(size.sum())))
            for start in range(0, len(same), step):
                yield same[start : start + step]


def _owned(order: Array, owners: Array, rows: Array) -> Array:
    first = np.searchsorted(owners, rows, side="left")
    last = np.searchsorted(owners, rows, side="right")
    lengths = last - first
    starts = np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    return order[starts + np.arange(int(lengths.sum()))]


# -- kernels ----------------------------------------------------------------------------------


def leave_out_kernel(
    factorization: EigenFactorization,
    t: Array,
    KF: Callable[[], Array],
    folds: Folds,
    alphas: Array,
    out: Array,
) -> Array:
    """Held-out predictions of a kernel model.

    Parameters
    ----------
    factorization : EigenFactorization
        Factorisation of S = FᵀKF, without the null space of F.
    t : ndarray of shape (p, k)
    KF : function that gives K F, shape (m, p)
        Called only if the factor cannot recover rows from coordinates.
    folds : Folds
    alphas : ndarray of shape (n_alphas,)
    out : ndarray of shape (n_alphas, total number of rows, k)
        Output array for the predictions, concatenated over folds.

    Returns
    -------
    ndarray of shape (n_alphas, n_folds), bool
        Whether the fold must be refitted.

    Notes
    -----
    With S = V diag(σ) Vᵀ, everything restricted to U's coordinates,

        J = V diag(alpha/(σ + alpha)) Vᵀ,   P = K F V diag(1/(σ + alpha)) Vᵀ,   f = P t,
        f_U without U = f_U − P_UU (J_UU)⁻¹ (J t)_U.

    J is a sum of positive terms, so there is no cancellation however small alpha is.
    """
    values, V, factor = factorization.values, factorization.vectors, folds.factor
    Q = factor.recover(V * values)
    if Q is None:
        Q = np.where(factorization.null, 0.0, KF() @ V)  # K F v = 0 for null vectors v
    b = V.T @ t
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    for numbers in folds.groups(len(values), WORK):
        rows = np.stack([folds.rows[i] for i in numbers])
        coordinates = np.stack([folds.coordinates[i] for i in numbers])
        Q_U, V_U = Q[rows], V[coordinates]
        # t and the residuals are orthogonal to N; adding N Nᵀ makes J_UU invertible there.
        N_U = np.stack([folds.null_block(c) for c in coordinates])
        for a, alpha in enumerate(alphas):
            for ratio in np.unique(folds.ratio[numbers]):
                mine = np.flatnonzero(folds.ratio[numbers] == ratio)
                nu = alpha * ratio
                weight = 1.0 / (values + nu)
                scaled = V_U[mine] * weight
                largest = float(weight.max(initial=0.0))
                J_UU = scaled @ V_U[mine].transpose(0, 2, 1) + largest * N_U[mine]  # J/alpha
                residual = scaled @ b  # (J t)_U/alpha
                correction, bad = _solve_positive(J_UU, residual, largest)
                kept = np.where(factorization.dropped(nu), 0.0, weight)
                w = kept[:, None] * (b - V_U[mine].transpose(0, 2, 1) @ correction)
                predictions = Q_U[mine] @ w
                unsafe[a, numbers[mine]] = bad
                out[a][folds.places(numbers[mine])] = predictions
    return unsafe


def _solve_positive(J: Array, B: Array, largest: float) -> tuple[Array, Array]:
    """Compute J⁻¹B for a stack of small positive matrices, and which of them are nearly singular.

    ``largest`` is an upper bound of the eigenvalues of J; rounding errors are eps times that.
    """
    if J.shape[1] == 0:
        return B, np.zeros(len(J), dtype=bool)
    values, vectors = np.linalg.eigh(J)
    bad = values[:, 0] < SINGULAR * largest
    safe = np.where(values > 0, values, largest)
    solution = vectors @ ((vectors.transpose(0, 2, 1) @ B) / safe[:, :, None])
    return solution, bad


# -- features ---------------------------------------------------------------------------------


def leave_out_features(
    Phi: Any,
    factorization: Factorization,
    gram: Callable[[], Array],
    cross: Array,
    t: Array,
    folds: Folds,
    alphas: Array,
    out: Array,
    leaving: LeavingBasis | None = None,
) -> Array:
    """Held-out predictions of a model of explicit or Nyström features.

    Parameters
    ----------
    Phi : ndarray or sparse array of shape (m, q)
    factorization : Factorization
        Factorisation of G = ΦᵀLΦ.
    gram : function that gives G, shape (q, q)
    cross : ndarray of shape (q, k)
        c = Φᵀr.
    t : ndarray of shape (p, k)
    folds : Folds
    alphas : ndarray of shape (n_alphas,)
    out : ndarray of shape (n_alphas, total number of rows, k)
        Output array for the predictions, concatenated over folds.
    leaving : LeavingBasis, optional
        The basis vectors that are left out with a fold.

    Returns
    -------
    ndarray of shape (n_alphas, n_folds), bool
        Whether the fold must be refitted.

    Notes
    -----
    With W = (G + alpha I)⁻¹, Φ_U the fold's rows of FᵀΦ, C_U = I (minus the part of F's null
    vectors in U, if rows of a query are left out) and E the constraints of left-out basis vectors,
    the weights without the fold are w = W(c + Φ_Uᵀp − Eᵀλ) where

        [[C_U − Φ_U W Φ_Uᵀ, Φ_U W Eᵀ], [E W Φ_Uᵀ, −E W Eᵀ]] [p; λ] = [Φ_U W c − t_U; −E W c].

    Explicit features are the case without constraints. A fold of q coordinates or more leaves
    G − Φ_UᵀΦ_U, which is factorised again (`weights_without`).
    """
    q = Phi.shape[1]
    rows_F = folds.factor.rows_of(Phi)
    if folds.cut:
        rows_F = _centred_rows(rows_F, folds.null, q)
    centre = np.asarray(Phi.mean(axis=0), dtype=np.float64).ravel()
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    constraints: list[Array] = []
    for i, rows in enumerate(folds.rows if leaving is not None else ()):
        assert leaving is not None
        E, doubtful = leaving.constraints(rows)
        constraints.append(E)
        unsafe[:, i] = doubtful
    sizes = np.array([len(E) for E in constraints], dtype=np.int64) if constraints else None
    large = np.array([len(c) >= q for c in folds.coordinates], dtype=bool)
    for i in np.flatnonzero(large).tolist():
        if unsafe[0, i]:
            continue
        E = constraints[i] if constraints else np.empty((0, q))
        null = folds.null if folds.cut else None
        held, penalties = folds.coordinates[i], alphas * folds.ratio[i]
        W = weights_without(rows_F, held, gram(), cross, t, E, penalties, null)
        if W is None:
            unsafe[:, i] = True
        else:
            out[:, folds.places(i)] = (_dense(Phi[folds.rows[i]]) - centre) @ W
    for numbers in folds.groups(q, CACHE, sizes):
        numbers = numbers[~large[numbers]]
        if not len(numbers):
            continue
        rows = np.concatenate([folds.rows[i] for i in numbers])
        coordinates = np.stack([folds.coordinates[i] for i in numbers])
        E = np.vstack([constraints[i] for i in numbers]) if constraints else np.empty((0, q))
        (B, u), r, e = coordinates.shape, len(rows) // len(numbers), len(E) // len(numbers)
        M = np.vstack([rows_F(coordinates.ravel()), -E, _dense(Phi[rows]) - centre, cross.T])
        identity = np.zeros((B, u + e, u + e))
        identity[:, np.arange(u), np.arange(u)] = 1.0
        if folds.cut:
            identity[:, :u, :u] -= np.stack([folds.constant_block(c) for c in coordinates])
        t_U = t[coordinates]
        for ratio in np.unique(folds.ratio[numbers]):
            mine = folds.ratio[numbers] == ratio
            for a, W in _ascending(factorization, M, alphas * ratio):
                # Rows of the fold's coordinates and constraints, of the points, and c.
                width = W.shape[1]
                F = W[: B * u].reshape(B, u, width)
                E_w = W[B * u : B * (u + e)].reshape(B, e, width)
                A = np.concatenate([F, E_w], axis=1) if e else F
                Y = W[B * (u + e) : B * (u + e + r)].reshape(B, r, width)
                b = W[B * (u + e + r) :].T
                small = identity - A @ A.transpose(0, 2, 1)
                right = A @ b
                right[:, :u] -= t_U
                if a == 0:  # the smallest alpha, which has the largest leverages
                    risky = np.linalg.eigvalsh(small[:, :u, :u])[:, 0] < SINGULAR if u else None
                    bad = np.zeros(B, dtype=bool) if risky is None else risky
                elif risky is not None and risky.any():
                    bad = risky.copy()
                    bad[risky] = np.linalg.eigvalsh(small[risky][:, :u, :u])[:, 0] < SINGULAR
                which = order_of(alphas)[a]
                unsafe[which, numbers[mine & bad]] = True
                p = _solve(small, right, bad)
                predictions = Y @ (b + A.transpose(0, 2, 1) @ p)
                out[which][folds.places(numbers[mine])] = predictions[mine]
    return unsafe


def _centred_rows(
    rows_F: Callable[[Array], Array], null: Any, n_columns: int
) -> Callable[[Array], Array]:
    """The rows of FᵀΦ without rounding errors along F's null vectors N.

    NᵀFᵀΦ is zero up to the rounding errors of the means of features with an offset; if part of a
    query is left out, these would remain as a component of the rest.
    """
    left = np.zeros((null.shape[1], n_columns))
    for block in row_blocks(null.shape[0], n_columns):
        coordinates = np.arange(block.start, block.stop)
        left += null[coordinates].T @ rows_F(coordinates)
    return lambda coordinates: rows_F(coordinates) - null[coordinates] @ left


def order_of(alphas: Array) -> Array:
    """Indices that sort the alphas in ascending order."""
    return np.argsort(alphas, kind="stable")


def _ascending(
    factorization: Factorization, M: Array, alphas: Array
) -> Iterator[tuple[int, Array]]:
    return enumerate(factorization.whitened_rows(M, alphas[order_of(alphas)]))


def _solve(small: Array, right: Array, bad: Array) -> Array:
    """Solve a stack of small systems, skipping those that are ``bad``."""
    if small.shape[1] == 0:
        return right
    if bad.any():
        small = np.where(bad[:, None, None], np.eye(small.shape[1]), small)
    try:
        return np.linalg.solve(small, right)
    except np.linalg.LinAlgError:  # dependent constraints
        return np.linalg.pinv(small) @ right


def weights_without(
    rows_F: Callable[[Array], Array],
    held: Array,
    G: Array,
    c: Array,
    t: Array,
    E: Array,
    penalties: Array,
    null: Any = None,
) -> Array | None:
    """Weights of all alphas without the coordinates of a fold, under E w = 0: (n_alphas, q, k).

    None if nothing remains from which a model could be fitted.

    Parameters
    ----------
    rows_F : function that gives rows of FᵀΦ
    held : ndarray of shape (u,), int
        The left-out coordinates.
    G : ndarray of shape (q, q)
    c : ndarray of shape (q, k)
        G = ΦᵀLΦ and c = Φᵀr of all rows.
    t : ndarray of shape (p, k)
    E : ndarray of shape (n_constraints, q)
        Constraints of full rank, with fewer than q rows.
    penalties : ndarray of shape (n_alphas,)
    null : sparse array of shape (p, c), optional
        Null vectors of F, if rows of queries are left out; the remaining rows are centred again.

    Notes
    -----
    With the columns of N an orthonormal basis of the w that satisfy E w = 0,

        w = N (NᵀG'N + alpha I)⁻¹ Nᵀc',   G' = G − Φ_Uᵀ C_U⁻¹ Φ_U,   c' = c − Φ_Uᵀ C_U⁻¹ t_U,

    where C_U⁻¹ = I for whole components. For rows of one query with the unit null vector u, of
    whose squared norm the remaining rows hold the fraction s, C_U⁻¹ = I + u_U u_Uᵀ/s. The sums are
    computed as differences, unless the left-out rows carry nearly all of the weight; then the
    remaining terms are summed.
    """
    size = float(G.diagonal().max(initial=0.0))
    F, t_U = rows_F(held), t[held]
    G_rest, c_rest = G - F.T @ F, c - F.T @ t_U
    if null is not None:
        U_held = null[held]
        squares = np.asarray(U_held.multiply(U_held).sum(axis=0)).ravel()
        part = np.flatnonzero((squares > 0) & (squares <= 1 - 1e-9))
        U = U_held[:, part].toarray() / np.sqrt(1 - squares[part])
        FU, tU = F.T @ U, U.T @ t_U
        G_rest -= FU @ FU.T
        c_rest -= FU @ tU
    if G_rest.diagonal().max(initial=0.0) < 1e-3 * size:
        stay = np.setdiff1d(np.arange(len(t)), held)
        F, s = rows_F(stay), t[stay]
        if null is not None:
            # Centred by the null vectors of the remaining rows.
            U_stay = null[stay]
            norms = np.sqrt(np.asarray(U_stay.multiply(U_stay).sum(axis=0)).ravel())
            used = np.flatnonzero(norms > 0)
            U = U_stay[:, used].toarray() / norms[used]
            F, s = F - U @ (U.T @ F), s - U @ (U.T @ s)
        G_rest, c_rest = F.T @ F, F.T @ s
        size = float(G_rest.diagonal().max(initial=0.0))
        if not size > 0:
            return None
    N = None
    if len(E):
        N = qr(E.T, check_finite=False)[0][:, len(E) :]
        G_rest, c_rest = N.T @ G_rest @ N, N.T @ c_rest
    G_rest = (G_rest + G_rest.T) / 2
    noise = float(np.finfo(float).eps) * size  # of a difference of sums of this size
    made = factorize(G_rest, penalties, c_rest, in_range=True, scaled=N is None, noise=noise)
    W = made.solve_path(c_rest, penalties)
    return W if N is None else N @ W


class LeavingBasis:
    """Constraints on the weights of Nyström features when basis vectors are left out.

    Kernel coefficients are a = Z⁻ᵀ w. Those of left-out vectors B must be zero, unless vectors that
    depend on the basis remain: with φ(d) = Σ_j C_dj φ(basis_j) for such a vector d, a_B may be any
    combination of the rows C_dB. So N a_B = 0, with N the complement of these rows.

    Parameters
    ----------
    Phi : ndarray of shape (m, q)
        Features Φ = K_MR Z⁻ᵀ.
    back : ndarray of shape (q, q)
        Z⁻ᵀ.
    basis : ndarray of shape (q,), int
        The row of each basis vector.
    spare : ndarray of int
        Rows of basis vectors that depend on these and therefore have no feature.
    """

    def __init__(self, Phi: Array, back: Array, basis: Array, spare: Array) -> None:
        self.back, self.basis, self.spare = back, basis, spare
        self.C = Phi[spare] @ back.T  # Φ_basis = Z, hence C = Φ_spare Z⁻¹
        pivots = 1.0 / np.abs(back.diagonal())
        rounding = np.finfo(float).eps * (pivots.max() / pivots.min()) ** 2
        self.rough = len(spare) > 0 and rounding > _ZERO  # dependent, or nearly so?

    def constraints(self, rows: Array) -> tuple[Array, bool]:
        """Constraints E with E w = 0, shape (n_constraints, q), and whether they are unreliable.

        They are unreliable if their number is uncertain, or if only w = 0 satisfies them.
        """
        gone, staying = np.isin(self.basis, rows), ~np.isin(self.spare, rows)
        E, filled = self.back[gone], self.C[staying][:, gone]
        if self.rough and (gone.any() or not staying.all()):
            return E, True
        if not filled.size:
            return E, len(E) == len(self.back)
        _, sigma, Vt = np.linalg.svd(filled)
        doubtful = bool(((sigma > _ZERO) & (sigma < _NOT_ZERO)).any())
        E = Vt[int((sigma >= _NOT_ZERO).sum()) :] @ E
        return E, doubtful or len(E) == len(self.back)


def _dense(V: Any) -> Array:
    return np.asarray(V.toarray() if sparse.issparse(V) else V, dtype=np.float64)
