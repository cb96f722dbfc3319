"""Residuals of ridge regression without any of its terms, without refitting.

RankRLS is ridge regression of targets t on the rows ψ of a matrix Ψ. Its terms are the coordinates
of a factor L = F Fᵀ (whole queries, or rows of a query) or given pairs. With H = Ψ(S + alpha I)⁻¹Ψᵀ
for S = ΨᵀΨ, and J = I − H restricted to the terms U that are left out,

    e_U = (J_UU)⁻¹ (J t)_U

are the residuals of U by the model without U, and that model is the solution for the right side
Ψᵀt − Ψ_Uᵀe_U. Free offsets of queries, with orthonormal columns N, are part of H: J = I − NNᵀ − H.

The error behaves like eps/λ_min(J_UU): where λ_min is below `SINGULAR`, the fold must be refitted.
With kernels, J is a sum of positive terms, and there is no such limit: for the eigenvectors V, σ of
S, J = C + V diag(alpha/(σ + alpha)) Vᵀ, where C = I − VVᵀ (− NNᵀ) is a projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._resources import few_threads
from rankrls._validation import show
from rankrls.core.linalg.factorizations import EigenFactorization, Factorization
from rankrls.core.preferences.laplacian import Laplacian
from rankrls.core.spaces.spaces import Space

Array = NDArray[Any]

#: A fold is refitted if the smallest eigenvalue of J_UU is below the first number, or up to the
#: second one if its relative error may exceed the third.
SINGULAR, MOST_SINGULAR, MAX_ERROR = 1e-7, 1e-2, 1e-4

#: Eigenvalues of C below this count as zero.
CUT = 1e-10

#: Maximum size of a work array, and of one that should stay in cache.
WORK, CACHE = 2**21, 2**17


# -- folds ------------------------------------------------------------------------------------


class Folds(Sequence[Array]):
    """Members (rows, coordinates or judgements) of folds of some sizes, which may overlap.

    ``what`` is the kind of fold in messages, ``labels`` the names of folds that have no number.
    """

    def __init__(
        self, members: Array, sizes: Array, what: str = "fold", labels: Any = None
    ) -> None:
        self.members, self.sizes = members, sizes
        self.starts = np.cumsum(sizes) - sizes
        self.what, self.labels = what, labels

    @classmethod
    def single(cls, n: int) -> Folds:
        """One fold for each of n judgements."""
        return cls(np.arange(n), np.ones(n, dtype=np.int64), "judgement")

    @classmethod
    def of_groups(cls, codes: Array, labels: Any = None) -> Folds:
        """One fold for each of the numbers 0, 1, … in ``codes``, all of which occur."""
        what = "fold" if labels is None else "group"
        return cls(np.argsort(codes, kind="stable"), np.bincount(codes), what, labels)

    @classmethod
    def of_items(cls, pairs: Array) -> tuple[Folds, Array]:
        """One fold with all judgements of each item; also returns the items (rows)."""
        items, codes = np.unique(pairs, return_inverse=True)
        codes = codes.ravel()
        members = np.argsort(codes, kind="stable") // 2
        return cls(members, np.bincount(codes), "item", items), items

    @classmethod
    def of_list(cls, folds: Sequence[Array]) -> Folds:
        """Folds given as a list."""
        if isinstance(folds, Folds):
            return folds
        members = np.concatenate(folds) if len(folds) else np.empty(0, dtype=np.int64)
        return cls(members, np.array([len(fold) for fold in folds], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: Any) -> Any:
        start = int(self.starts[number])
        return self.members[start : start + int(self.sizes[number])]

    def name(self, number: int) -> str:
        """Name of a fold in messages."""
        label = number if self.labels is None else self.labels[number]
        return f"{self.what} {show(label.item() if isinstance(label, np.generic) else label)}"

    def sums(self, values: Array) -> Array:
        """Sum values of shape (l,) over each fold, shape (n_folds,)."""
        values = values.astype(np.int64) if values.dtype == bool else values
        out, some = np.zeros(len(self), dtype=values.dtype), np.flatnonzero(self.sizes)
        if len(some):
            out[some] = np.add.reduceat(values[self.members], self.starts[some])
        return out

    def take(self, numbers: Array) -> Folds:
        """Select folds."""
        labels = numbers if self.labels is None else np.asarray(self.labels)[numbers]
        members = self.members[self.places(numbers)]
        return Folds(members, self.sizes[numbers], self.what, labels)

    def places(self, numbers: Array) -> Array:
        """Positions of the members of some folds, concatenated, shape (total,), int."""
        sizes = self.sizes[numbers]
        offset = np.repeat(self.starts[numbers] - np.cumsum(sizes) + sizes, sizes)
        return offset + np.arange(int(sizes.sum()))


@dataclass(frozen=True)
class HeldOut:
    """Predictions (n_alphas, total, n_outputs) of each fold by the model without it.

    Those of rows are determined up to a constant for each fold and query. ``n_refits``, of shape
    (n_alphas,), counts the folds that were refitted.
    """

    folds: Folds
    values: Array
    n_refits: Array
    variance: Array | None = None

    @property
    def rows(self) -> Array:
        """Row (or judgement) of each prediction, shape (total,)."""
        return self.folds.members

    @property
    def predictions(self) -> list[Array]:
        """Predictions of each fold, as arrays of shape (n_alphas, len(fold), n_outputs)."""
        return np.split(self.values, self.folds.starts[1:], axis=1)

    def by_row(self, n_rows: int) -> Array:
        """Predictions in the order of the rows, (n_alphas, n_rows, n_outputs); NaN if missing."""
        if np.array_equal(self.rows, np.arange(n_rows)):
            return self.values
        out = np.full((len(self.values), n_rows, self.values.shape[2]), np.nan)
        out[:, self.rows] = self.values
        return out


def query_folds(codes: Array) -> list[Array]:
    """Rows of each query, in the order of the query numbers."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def equalize(values: Array, folds: Folds, together: Array, first: Array) -> None:
    """Give equal rows of a fold equal predictions, so that rounding does not break ties.

    ``values`` is changed in place; rows of the same number in ``together`` can be compared, and
    ``first`` is from `first_equal`.
    """
    repeated = np.bincount(first, minlength=len(first))[first] > 1
    if not repeated.any():
        return
    rows, fold = folds.members, np.repeat(np.arange(len(folds)), folds.sizes)
    places = np.flatnonzero(repeated[rows])
    keys = np.column_stack([fold, together[rows], first[rows]])[places]
    _, start, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    source = places[start[group.ravel()]]
    moved = source != places
    values[:, places[moved]] = values[:, source[moved]]


def split_folds(laplacian: Laplacian, folds: Sequence[Array]) -> Array:
    """Whether each fold splits a component (has some but not all of its rows), shape (n_folds,)."""
    component = laplacian.components()
    size = np.bincount(component)
    folds = Folds.of_list(folds)
    number = np.repeat(np.arange(len(folds)), folds.sizes)
    # Number of rows of each (fold, component) that occurs.
    key, count = np.unique(
        number * np.int64(len(size)) + component[folds.members], return_counts=True
    )
    cut = count != size[key % len(size)]
    return np.bincount(key[cut] // len(size), minlength=len(folds)) > 0


# -- residuals --------------------------------------------------------------------------------


class Residuals:
    """Ridge regression of t on the rows of Ψ, and its models without some of the rows.

    ``vectors`` returns the rows ψ of terms U, shape (*U.shape, q), rotated to the eigenvectors of
    ``made``, the factorised S = ΨᵀΨ, if it has them; ``b`` is Ψᵀt in the same coordinates. With
    eigenvalues ``sigma`` (kernels), they are rows of V, and Vᵀt. ``free`` are the columns N of
    offsets, which are left out with all their terms, and ``root`` the factors w of given pairs.
    """

    def __init__(
        self,
        vectors: Callable[[Array], Array],
        t: Array,
        made: Factorization,
        b: Array,
        *,
        sigma: Array | None = None,
        free: Any = None,
        root: Array | None = None,
    ) -> None:
        self.vectors, self.t, self.made, self.b = vectors, t, made, b
        self.free, self.root, self.exact = free, root, sigma is not None
        spectral = made.values if isinstance(made, EigenFactorization) else np.empty(0)
        self.sigma = spectral if sigma is None else sigma

    def coordinates(self, M: Array, alpha: float) -> Array:
        """Rows A with H = A diag(w) Aᵀ for the `weights` w, from rows of Ψ."""
        return M if self.exact else self.made.metric(M, alpha)[0]

    def weights(self, alphas: Array) -> Array:
        """The weights w of `coordinates`, shape (q, n_alphas)."""
        if self.exact:
            return self.sigma[:, None] / (self.sigma[:, None] + alphas)
        if not len(self.sigma):
            return np.ones((len(self.b), len(alphas)))
        found = [self.made.metric(self.b.T, float(alpha))[1] for alpha in alphas]
        return np.array(found).T

    def products(self, alpha: float) -> Array:
        """AᵀA over all terms: (q,) if diagonal, otherwise (q, q)."""
        if self.exact:
            return np.ones(len(self.b))
        if len(self.sigma):
            return self.sigma
        W = self.made.whiten(np.eye(len(self.b)), alpha)
        return np.eye(len(self.b)) - alpha * (W @ W.T)

    def least(self, alpha: float) -> float:
        """Smallest eigenvalue of J_UU that is reliable: its error is eps times the condition."""
        if self.exact:
            return SINGULAR
        error = float(np.finfo(np.float64).eps) * self.made.condition(alpha)
        return float(np.clip(error / MAX_ERROR, SINGULAR, max(SINGULAR, MOST_SINGULAR)))

    @cached_property
    def _offset(self) -> tuple[Array, Array]:
        """The column of N in which each term is, and its entry, shape (p,) each."""
        number, entry = np.zeros(len(self.t), dtype=np.int64), np.zeros(len(self.t))
        N = self.free.tocoo()  # no two columns share a row
        number[N.row], entry[N.row] = N.col, N.data
        return number, entry

    def _system(self, U: Array, alphas: Array) -> tuple[Array, Array, Array, Array, Array]:
        """J_UU (n_alphas, B, u, u) and (J t)_U for terms U, (B, u), with A, b and w.

        With ``exact``, the terms are rotated to the eigenvectors of C_UU, whose zeros are exact.
        """
        A, b, W, C = self.vectors(U), self.b, self.weights(alphas), np.eye(U.shape[1])
        if self.free is not None:  # N_U N_Uᵀ of the offsets that lie only partly in the terms
            number, entry = (values[U] for values in self._offset)
            same = number[:, :, None] == number[:, None]
            entry = entry * ((same @ np.square(entry)[..., None])[..., 0] <= 1 - 1e-9)
            C = C - same * entry[:, :, None] * entry[:, None]
        if not self.exact:
            A, b = (self.coordinates(M, float(alphas[0])) for M in (A, b.T))
            b = b.T
            return C - _products(A, A, W), self.t[U] - _of_alphas(A, W, b), A, b, W
        values, T = np.linalg.eigh(C - A @ A.transpose(0, 2, 1))
        values, turned = np.where(values < CUT, 0.0, values)[..., None], T.transpose(0, 2, 1)
        rest = np.where(values > 0, turned @ (self.t[U] - A @ b), 0.0)
        A, shrinkage = turned @ A, alphas / (self.sigma[:, None] + alphas)
        J = values * np.eye(U.shape[1]) + _products(A, A, shrinkage)
        return J, rest + _of_alphas(A, shrinkage, b), A, b, W

    def residuals(self, U: Array, alpha: float) -> tuple[Array, Array]:
        """(J t)_U, shape (u, k), and the diagonal of J_UU, for terms U of shape (u,) one by one."""
        J, rho, *_ = self._system(U[:, None], np.array([alpha]))
        return rho[0, :, 0], J[0, :, 0, 0]

    def without(
        self,
        terms: Folds,
        points: Callable[[Array], Array],
        folds: Folds,
        alphas: Array,
        *,
        variances: bool = False,
        ratio: Array | None = None,
        constraints: Sequence[Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """Predict ``points`` of members of each fold by the model without its terms.

        ``ratio`` is a factor of alpha, and E w = 0 for the weights w and the ``constraints`` E,
        (n_constraints, q), for each fold. Returns predictions (n_alphas, total, k), their
        variances (n_alphas, total), and whether folds must be refitted, (n_alphas, n_folds).
        """
        q, k = len(self.b), self.b.shape[1]
        values = np.zeros((len(alphas), len(folds.members), k))
        variance = np.zeros(values.shape[:2] if variances else (len(alphas), 0))
        unsafe = np.zeros((len(alphas), len(terms)), dtype=bool)
        n_constraints = [0] * len(terms) if constraints is None else list(map(len, constraints))
        keys = np.column_stack([terms.sizes, folds.sizes, n_constraints])
        for numbers in _batches(keys, q) if q else ():  # otherwise nothing varies
            U = terms.members[terms.places(numbers)].reshape(len(numbers), -1)
            where = folds.places(numbers)
            P = points(folds.members[where]).reshape(len(numbers), -1, q)
            E = np.empty((len(numbers), 0, q))
            if constraints is not None:
                E = np.stack([constraints[i] for i in numbers])
            solve = self._downdated if U.shape[1] >= max(q, 2) else self._folds
            # Folds of the same size have the same ratio.
            scaled = alphas if ratio is None else alphas * ratio[numbers[0]]
            found, spread, unsafe[:, numbers] = solve(U, P, E, scaled, variances)
            values[:, where] = found.reshape(len(alphas), -1, k)
            if variances:
                variance[:, where] = spread.reshape(len(alphas), -1)
        return values, variance, unsafe

    def _folds(
        self, U: Array, P: Array, E: Array, alphas: Array, variances: bool
    ) -> tuple[Array, Array, Array]:
        """Folds of a few terms each, by a stack of small systems J for each alpha.

        Returns predictions (n_alphas, B, r, k), variances of the points (n_alphas, B, r) and
        whether the folds must be refitted, (n_alphas, B). With constraints, the weights
        w (b − Ψ_Uᵀe − Eᵀλ) satisfy E times them = 0.
        """
        (B, u), k = U.shape, self.b.shape[1]
        found = np.empty((len(alphas), B, P.shape[1], k))
        spread, bad = np.empty(found.shape[:3]), np.zeros((len(alphas), B), dtype=bool)
        ascending, risky = np.argsort(alphas, kind="stable"), np.ones(B, dtype=bool)
        # Eigenvectors serve all alphas; a Cholesky factor is that of one.
        for some in [ascending] if len(self.sigma) else ascending[:, None]:
            systems, residuals, A, b, W = self._system(U, alphas[some])
            E_a = self.coordinates(E, float(alphas[some[0]]))
            P_a = self.coordinates(P, float(alphas[some[0]]))
            fitted, products = _of_alphas(P_a, W, b), variances or k >= u
            H_P = _products(A, P_a, W) if products else np.empty((len(some), B, u, 0))
            H_E = np.empty((len(some), B, u, 0))
            if E.shape[1]:
                H_E, E_P, E_E = (_products(M, N, W) for M, N in ((A, E_a), (E_a, P_a), (E_a, E_a)))
                fitted_E = _of_alphas(E_a, W, b)
            for i, a in enumerate(some):
                J, alpha = systems[i], float(alphas[a])
                scale = np.sqrt(np.maximum(np.einsum("nii->ni", J), np.finfo(float).tiny))
                scale = scale[..., None]
                J = J / (scale * scale.transpose(0, 2, 1))
                if u and risky.any():  # the smallest alpha has the smallest eigenvalues
                    smallest = np.linalg.eigvalsh(J[risky])[:, 0]
                    if not self.exact:
                        smallest = smallest * np.square(scale[risky]).min(axis=(1, 2))
                    bad[a, risky] = smallest < self.least(alpha)
                    risky = bad[a].copy()
                J[bad[a]] = np.eye(u)
                right = (
                    np.concatenate([residuals[i], H_E[i], *[H_P[i]] * variances], axis=2) / scale
                )
                solved = (right / J if u == 1 else np.linalg.solve(J, right)) / scale
                e = solved[..., :k]
                found[a] = fitted[i]
                if E.shape[1]:
                    Y, H = solved[..., k : k + E.shape[1]], H_E[i].transpose(0, 2, 1)
                    inverse = np.linalg.pinv(E_E[i] + H @ Y, hermitian=True)
                    multipliers = inverse @ (fitted_E[i] - H @ e)
                    e = e + Y @ multipliers
                    found[a] -= E_P[i].transpose(0, 2, 1) @ multipliers
                if products:
                    found[a] -= H_P[i].transpose(0, 2, 1) @ e
                else:
                    found[a] -= P_a @ (W[:, i, None] * (A.transpose(0, 2, 1) @ e))
                if variances:
                    added = np.einsum("nur,nur->nr", H_P[i], solved[..., k + E.shape[1] :])
                    spread[a] = alpha * (np.square(P_a) @ W[:, i] + added)
        return found, spread, bad

    def _downdated(
        self, U: Array, P: Array, E: Array, alphas: Array, variances: bool
    ) -> tuple[Array, Array, Array]:
        """Folds of at least q terms, by subtracting them from S; returns as `_folds`.

        With the columns of Q an orthonormal basis of the w that satisfy E w = 0,

            w = Q (QᵀS'Q + alpha I)⁻¹ Qᵀc',   S' = S − Ψ_Uᵀ C⁻¹ Ψ_U,   c' = b − Ψ_Uᵀ C⁻¹ t_U,

        where C⁻¹ = I + n nᵀ/(1 − nᵀn) for each offset of which U holds the part n. No eigenvalue of
        J exceeds 1, so that 1/λ_min(J_UU) is at most the trace of (S + alpha I)(S' + alpha I)⁻¹
        less all but one. Features of very different scales have no eigenvectors: refits.
        """
        found = np.zeros((len(alphas), *P.shape[:2], self.b.shape[1]))
        spread, bad = np.zeros(found.shape[:3]), np.ones((len(alphas), len(U)), dtype=bool)
        if not len(self.sigma):
            return found, spread, bad
        live, scale = np.ones(len(self.b), dtype=bool), np.ones(len(self.b))
        if self.exact:
            live, scale = self.sigma > 0, np.sqrt(np.maximum(self.sigma, 0.0))
        elif isinstance(self.made, EigenFactorization):
            live = ~self.made.dropped(float(alphas.min()))
        scale, S = scale[live], np.diag(self.sigma[live])
        least = np.array([self.least(float(alpha)) for alpha in alphas])
        P, E, b = P[..., live] * scale, E[..., live] * scale, self.b[live] * scale[:, None]
        Psi, t = self.vectors(U)[..., live] * scale, self.t[U]
        turned = Psi.transpose(0, 2, 1)
        S_rest, before, c = S - turned @ Psi, S, b - turned @ t
        for i, terms in enumerate(U if self.free is not None else ()):
            N = self.free[terms]
            squares = np.asarray(N.multiply(N).sum(axis=0)).ravel()
            part = np.flatnonzero((squares > 0) & (squares <= 1 - 1e-9))
            N = N[:, part].toarray() / np.sqrt(1 - squares[part])
            S_rest[i] -= (shift := turned[i] @ N) @ shift.T
            c[i] -= shift @ (N.T @ t[i])
        if E.shape[1]:
            Q = np.linalg.qr(E.transpose(0, 2, 1), mode="complete")[0][..., E.shape[1] :]
            S_rest, before, c = (Q.transpose(0, 2, 1) @ M for M in (S_rest, before, c))
            S_rest, before, P = S_rest @ Q, before @ Q, P @ Q
        with few_threads(len(S)):
            sigma, V = np.linalg.eigh((S_rest + S_rest.transpose(0, 2, 1)) / 2)
        rows, c = P @ V, V.transpose(0, 2, 1) @ c
        diagonal = np.einsum("bij,bij->bj", V, before @ V)
        left = sigma[..., None] + alphas  # (B, q, n_alphas)
        w = 1.0 / np.where(left > 0, left, np.inf)
        limit = ((diagonal[..., None] + alphas) * w).sum(axis=1) - sigma.shape[1] + 1
        bad = ~((left > 0).all(axis=1) & (limit * least < 1)).T
        shape = (len(alphas), c.shape[2])
        weights = (w[..., None] * c[:, :, None]).reshape(*c.shape[:2], shape[0] * shape[1])
        found = np.moveaxis((rows @ weights).reshape(*rows.shape[:2], *shape), 2, 0)
        if variances:
            spread = np.moveaxis(alphas * (np.square(rows) @ w), 2, 0)
        return found, spread, bad


def _batches(keys: Array, q: int) -> Iterator[Array]:
    """Indices of folds with equal keys (sizes), as many as fit into a work array."""
    order = np.lexsort(keys.T)
    starts = np.flatnonzero((np.diff(keys[order], axis=0) != 0).any(axis=1)) + 1
    for same in np.split(order, starts):
        size = keys[same[0]].sum()
        step = max(256, CACHE // q) if size <= 2 else max(1, WORK // (size * max(q, size)))
        yield from np.split(same, range(step, len(same), step))


def _of_alphas(rows: Array, W: Array, b: Array) -> Array:
    """Rows diag(w) b for each column w of W: (n_alphas, …, k)."""
    n_alphas, k = W.shape[1], b.shape[1]
    joined = (W[:, :, None] * b[:, None]).reshape(len(b), n_alphas * k)
    return np.moveaxis((rows @ joined).reshape(*rows.shape[:-1], n_alphas, k), -2, 0)


def _products(A: Array, B: Array, W: Array) -> Array:
    """A diag(w) Bᵀ of stacks (B, u, q), (B, v, q) for each column w of W: (n_alphas, B, u, v)."""
    if A.shape[1] == B.shape[1] == 1:  # a single product
        return np.moveaxis((A * B) @ W, -1, 0)[..., None]
    return np.stack([(A * w) @ B.transpose(0, 2, 1) for w in W.T])


def basis_constraints(space: Space, folds: Folds) -> tuple[list[Array], Array]:
    """Constraints on the weights of Nyström features when basis vectors are left out with a fold.

    Kernel coefficients are a = Z⁻ᵀ w, and those of left-out vectors must be zero. Returns E for
    each fold, (n_constraints, q), with E w = 0, and whether the fold must be refitted, (n_folds,):
    if only w = 0 is left, or if basis vectors depend on each other, so that others could take the
    place of those that leave.
    """
    basis = space.basis
    assert basis is not None
    back = basis.coefficients(np.eye(len(basis.kept))[None])[0]  # Z⁻ᵀ
    dependent = len(basis.kept) < len(basis.indices)
    constraints, doubtful = [], np.zeros(len(folds), dtype=bool)
    for number, rows in enumerate(folds):
        gone = np.isin(basis.kept, rows)
        doubtful[number] = gone.all() or (dependent and gone.any())
        constraints.append(back[gone][: 0 if doubtful[number] else None])
    return constraints, doubtful
