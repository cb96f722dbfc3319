"""Held-out predictions of complete relations, without rows, columns, entries or both.

Complete relations are filters in the eigenvectors of the two kernels: f = V(φ ∘ VᵀYU)Uᵀ, with
φ = μ/(μ + alpha) for the eigenvalues μ of the pairwise kernel, or for two-step regression
φ = λ/(λ + alpha₁) · σ/(σ + alpha₂). With the hat matrix H of the filter and M = I − H,

    f without the held-out labels = f − H M⁻¹ (y − f),

with blocks of H and M over these labels. Where M is tiny relative to its largest possible value, a
model is refitted. A free constant adds a term of rank one (`docs/mathematics.md`, 7). With the
ranking loss, residuals of the labels that a row keeps have mean zero, or else its predictions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._relation_labels import CompleteBlock
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped, row_centred
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Spectrum

__all__ = ["CompleteHoldout", "holdout_error", "refitted"]

Array = NDArray[Any]

#: Shortcuts lose too many digits if M is less than this fraction of its largest value.
SINGULAR = 1e-9

#: Eigenvalues are treated as equal if their difference, relative to the largest eigenvalue, is
#: smaller than this. The gradient then ignores rotations of their eigenvectors.
EQUAL = 1e-11


class Filter:
    """The filter of a complete problem for one alpha, with all eigenvectors or ``left``."""

    def __init__(self, problem: CompleteSpectrum, alpha: Any, left: Spectrum | None = None) -> None:
        whole, right = problem.left.complete, problem.right.complete
        left = whole if left is None else left
        self.V, self.U, self.Y = left.vectors, right.vectors, problem.Y
        self.steps: tuple[Array, Array] | None = None
        # phi and rest are φ and 1 − φ, without cancellation, of shape (r, s).
        if problem.pairwise.name == "two-step":
            first, second = (float(one) for one in alpha)
            D, E = damped(left.values, first)[:, None], damped(right.values, second)[None]
            self.steps = left.values[:, None] * D, right.values * E
            self.rests = first * D, second * E
            self.phi = self.steps[0] * self.steps[1]
            self.rest = self.rests[0] + self.steps[0] * self.rests[1]
        else:
            products = problem.pairwise.eigenvalues(left.values, right.values)
            D = damped(products, alpha)
            self.phi, self.rest = products * D, alpha * D
        self.labels = problem.all_labels if left is whole else problem.labels(self.V, self.U)
        self.ones: Array | None = None  # Vᵀ1 1ᵀU, if there is a free constant
        self.total, self.constant = 1.0, 0.0
        if problem.constant:
            self.ones = np.outer(self.V.sum(axis=0), self.U.sum(axis=0))
            self.total = float(np.vdot(self.ones * self.rest, self.ones))
            constant = float(np.vdot(self.ones * self.rest, self.labels)) / self.total
            self.labels = self.labels - constant * self.ones
            self.constant = constant + float(problem.Y.mean())
        #: Whether y − M⁻¹(y − f) has the right offset.
        self.anchored = problem.constant or problem.right.centred

    def along(self, axis: int) -> tuple[Array, Array, Any]:
        """Return φ and 1 − φ of the regression over a side, and the filter of the other side."""
        if self.steps is None:
            return self.phi, self.rest, 1.0
        return self.steps[axis], self.rests[axis], self.steps[1 - axis]

    def without(self, axis: int) -> tuple[Array, Array]:
        """Predict rows (0) in U, or columns (1) in V, without labels; mark those to refit."""
        phi, rest, after = self.along(axis)
        V, labels, ones = self.V, self.labels, self.ones
        if axis == 1:
            V, labels, ones = self.U, labels.T, None if ones is None else ones.T
            phi, rest, after = phi.T, rest.T, np.transpose(after)
        held, x, unsafe = _one_out(V, phi, rest, labels, ones, self.total)
        if ones is not None:
            held = (self.Y @ self.U if axis == 0 else self.Y.T @ self.V) - x
        else:
            held = held * after
        return held if axis == 0 else held.T, unsafe


def _one_out(
    V: Array, phi: Array, rest: Array, labels: Array, ones: Array | None, total: float
) -> tuple[Array, Array, Array]:
    """Leave out each object: predictions (n, s), y minus these, and which objects to refit (n,)."""
    squares = V**2
    m = squares @ rest
    # A filter of zero does not depend on the labels that are left out.
    unsafe = (m < SINGULAR * rest.max(axis=0, initial=0.0)) & (phi != 0.0).any(axis=0)
    x = (V @ (rest * labels)) / m
    if ones is not None:  # (diag(m_i) − t_i t_iᵀ/τ)⁻¹ e_i for every object i
        t = V @ (ones * rest)
        scaled = t / m
        x += scaled * (np.vecdot(t, x) / (total - np.vecdot(t, scaled)))[:, None]
    return V @ (phi * labels) - (squares @ phi) * x, x, unsafe.any(axis=1)


class CompleteHoldout:
    """Held-out predictions of a complete problem with labels Y; `block` is for any problem."""

    def __init__(self, problem: RelationProblem, Y: Array) -> None:
        self.problem, self.Y, self.loss = problem, Y, problem.loss
        self.sides, self.ranking = problem.sides, problem.ranking
        self._latest: tuple[bytes, Filter] | None = None

    @cached_property
    def form(self) -> CompleteSpectrum:
        """The closed form with all labels."""
        return closed_form(*self.sides, self.Y, self.loss)

    def block(self, train: tuple[Array, Array], test: tuple[Array, Array], alphas: Array) -> Array:
        """Predict all pairs of test rows and columns with a model of training rows and columns."""
        shape = len(alphas), len(test[0]), len(test[1])
        if len(train[0]) == 0 or len(train[1]) == 0:
            return np.zeros(shape)
        block = CompleteBlock(*train, self.Y[np.ix_(*train)])
        rows, cols = (part.ravel() for part in np.meshgrid(*test, indexing="ij"))
        model = self.problem.solve_block(block, alphas)
        return model.predict(self.sides, rows, cols).reshape(shape)

    def fold(self, rows: Array | None, cols: Array | None, alphas: Array) -> Array:
        """Predict pairs of some rows and columns (None: all) by a model without their labels."""
        every = [np.arange(n) for n in self.Y.shape]
        train = [
            all_objects if out is None else np.delete(all_objects, out)
            for all_objects, out in zip(every, (rows, cols), strict=True)
        ]
        asked, stay = every[0] if rows is None else rows, train[1]
        block = self.block((train[0], stay), (asked, every[1]), alphas)
        if self.ranking and len(stay):
            level = self.Y[np.ix_(asked, stay)] if rows is None else 0.0
            block += (level - block[:, :, stay]).mean(axis=2, keepdims=True)
        return block if cols is None else block[:, :, cols]

    # ------------------------------------------------------------------ rows and columns

    def rows(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every row without its labels (n_alphas, p, g), and count the refits."""
        return self._one_side_out(0, alphas)

    def columns(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every column with the model fitted without its labels, as `rows`."""
        return self._one_side_out(1, alphas)

    def _one_side_out(self, axis: int, alphas: Array) -> tuple[Array, Array]:
        held = np.empty((len(alphas), *self.Y.shape))
        unsafe = np.empty((len(alphas), self.Y.shape[axis]), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = self._filter(alpha)
            found, unsafe[a] = made.without(axis)
            np.matmul(*((found, made.U.T) if axis == 0 else (made.V, found)), out=held[a])
        if axis == 1 and self.ranking:  # from mean zero of all columns to the mean of the others
            Y, n = row_centred(self.Y), max(self.Y.shape[1] - 1, 1)
            held *= self.Y.shape[1] / n
            held += (Y.sum(axis=1, keepdims=True) - Y) / n + (self.Y - Y)[:, :1]
        for i in np.flatnonzero(unsafe.any(axis=0)):
            at, one = unsafe[:, i], np.array([i])
            if axis == 0:
                held[at, i] = self.fold(one, None, alphas[at])[:, 0]
            else:
                held[at, :, i] = self.fold(None, one, alphas[at])[:, :, 0]
        return held, unsafe.sum(axis=1)

    def both(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every entry with the model fitted without its row and column, as `rows`."""
        held = np.empty((len(alphas), *self.Y.shape))
        n_refits = np.zeros(len(alphas), dtype=int)
        for i in range(len(self.Y)):
            row = np.array([i])
            held[:, i], unsafe = self._both_out(row, alphas)
            for j in np.flatnonzero(unsafe.any(axis=0)):
                at = unsafe[:, j]
                held[at, i, j] = self.fold(row, np.array([j]), alphas[at])[:, 0, 0]
            n_refits += unsafe.sum(axis=1)
        return held, n_refits

    def _both_out(self, row: Array, alphas: Array) -> tuple[Array, Array]:
        """Predict entries of a row without it and their column; mark columns to refit."""
        p, g = self.Y.shape
        out, unsafe = np.zeros((len(alphas), g)), np.zeros((len(alphas), g), dtype=bool)
        constant = self.loss.free.constant
        if not self.loss.pairwise.plain:
            # K ⊗ I + I ⊗ G is zero between new pairs and others. A constant remains, by refits.
            unsafe[:] = constant
            return out, unsafe
        stay = np.delete(np.arange(p), row)
        spectrum = self.sides[0].select(stay).spectrum()
        problem = CompleteSpectrum(spectrum, self.form.right, self.Y[stay], self.loss)
        left = spectrum.complete if constant else spectrum.range
        live = left.values != 0.0
        images = np.zeros(len(live))
        images[live] = self.sides[0].images(spectrum.range.among(stay, p), row)[0]
        inverse = np.divide(1.0, left.values, out=np.zeros(len(live)), where=live)
        scale = g / max(g - 1, 1) if self.ranking else 1.0
        for a, alpha in enumerate(alphas):
            made = Filter(problem, alpha, left)
            ones = None if made.ones is None else made.ones.T
            phi, rest, after = made.along(1)
            if made.steps is None:
                phi, after = phi * inverse[:, None], np.ones((len(live), 1))
            else:
                after = after * inverse[:, None]
            held, x, unsafe[a] = _one_out(made.U, phi.T, rest.T, made.labels.T, ones, made.total)
            held = held.T * after
            if made.ones is not None:
                t = (made.ones * made.rest) @ made.U.T
                shift = np.vecdot(t.T, x) / made.total
                held += ((made.ones * phi) @ made.U.T) * shift
                out[a] += made.constant - shift
            out[a] += images @ (scale * held)
        return out, unsafe

    # ------------------------------------------------------------------ entries

    def entries(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every entry with the model fitted without its label, as `rows`."""
        held, n_refits = np.empty((len(alphas), *self.Y.shape)), np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = self._filter(alpha)
            V, U = made.V, made.U
            E, F = (V @ (part * made.labels) @ U.T for part in (made.rest, made.phi))
            m, h = (V**2 @ part @ (U**2).T for part in (made.rest, made.phi))
            if made.ones is not None:
                m -= (V @ (made.ones * made.rest) @ U.T) ** 2 / made.total
            x, unsafe = self._solved(m.reshape(-1, 1, 1), E.reshape(-1, 1), made)
            x, unsafe = x.reshape(m.shape), unsafe.reshape(m.shape)
            held[a] = self.Y - x if made.anchored else F - h * x
            n_refits[a] = unsafe.sum()
            for i, j in np.argwhere(unsafe):
                held[a, i, j] = self._refit(int(i), np.array([j]), alpha)[0]
        return held, n_refits

    def entry_folds(self, folds: list[Array], alphas: Array) -> tuple[Array, Array]:
        """Predict every entry without the labels of its row in its fold of columns, as `rows`."""
        held = np.full((len(alphas), *self.Y.shape), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = self._filter(alpha)
            V, U, squares = made.V, made.U, made.V**2
            E, F = (V @ (part * made.labels) for part in (made.rest, made.phi))
            m, h = (squares @ part for part in (made.rest, made.phi))
            t = None if made.ones is None else V @ (made.ones * made.rest) / np.sqrt(made.total)
            for fold in folds:
                # M = U_B diag(m_i) U_Bᵀ of row i and fold B, for all rows by one product
                part = U[fold]
                outer = (part[:, None, :] * part[None, :, :]).reshape(-1, U.shape[1])
                M = (m @ outer.T).reshape(len(V), len(fold), len(fold))
                if t is not None:
                    M -= (t @ part.T)[:, :, None] * (t @ part.T)[:, None, :]
                x, unsafe = self._solved(M, E @ part.T, made)
                if made.anchored:
                    held[a][:, fold] = self.Y[:, fold] - x
                else:
                    H = (h @ outer.T).reshape(M.shape)
                    held[a][:, fold] = F @ part.T - (H @ x[..., None])[..., 0]
                n_refits[a] += unsafe.sum()
                for i in np.flatnonzero(unsafe):
                    held[a, i, fold] = self._refit(int(i), fold, alphas[a])
        return held, n_refits

    def cell_fold(self, rows: Array, cols: Array, alphas: Array) -> tuple[Array, Array]:
        """Predict pairs (n_alphas, n) without all their labels, and mark alphas to refit."""
        held, unsafe = np.empty((len(alphas), len(rows))), np.zeros(len(alphas), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = self._filter(alpha)
            V, U = made.V[rows], made.U[cols]
            E, F = (np.vecdot(V @ (part * made.labels), U) for part in (made.rest, made.phi))
            M, H = np.zeros((2, len(rows), len(rows)))
            for v, rest, phi in zip(V.T, made.rest, made.phi, strict=True):
                M += np.outer(v, v) * ((U * rest) @ U.T)
                H += np.outer(v, v) * ((U * phi) @ U.T)
            if made.ones is not None:
                ones = np.vecdot(V @ (made.ones * made.rest), U)
                M -= np.outer(ones, ones) / made.total
            x, bad = self._solved(M[None], E[None], made)
            unsafe[a] = bad[0]
            held[a] = self.Y[rows, cols] - x[0] if made.anchored else F - H @ x[0]
        return held, unsafe

    def _filter(self, alpha: Any) -> Filter:
        """The filter of an alpha; the latest one is kept."""
        key = np.asarray(alpha).tobytes()
        if self._latest is None or self._latest[0] != key:
            self._latest = key, Filter(self.form, alpha)
        return self._latest[1]

    def _solved(self, M: Array, E: Array, made: Filter) -> tuple[Array, Array]:
        """Solve M x = E for every fold, shape (n, k); mark those that lose digits, shape (n,)."""
        values, vectors = np.linalg.eigh(M)
        largest = made.rest.max(initial=0.0)
        unsafe = (values[:, 0] < SINGULAR * largest) & (not self.problem.two_step)
        values = np.where(values > 0, values, largest)
        inner = (vectors.transpose(0, 2, 1) @ E[..., None]) / values[..., None]
        return (vectors @ inner)[..., 0], unsafe

    def _refit(self, row: int, cols: Array, alpha: Any) -> Array:
        """Predict pairs of one row by a refit without their labels, shape (n,)."""
        out = np.zeros(self.Y.shape, dtype=bool)
        out[row, cols] = True
        return refitted(self.problem, out, out, np.asarray(alpha)[None])[0, row, cols]


def refitted(
    problem: RelationProblem,
    out: Array,
    new: Array,
    alphas: Array,
    solver: str = "auto",
    options: IterationOptions | None = None,
) -> Array:
    """Predict all pairs (n_alphas, p, g) without labels ``out``; ``new`` pairs set no offsets."""
    p, g = problem.observations.shape
    rows, cols, y = problem.observations.lists
    left_out = out[rows, cols]
    every = np.arange(p).repeat(g), np.tile(np.arange(g), p)
    values = problem.predict_without(left_out, *every, alphas, solver, options)
    tables = values.reshape(-1, p, g)
    if problem.ranking and not left_out.all():
        rows, cols, y = (part[~left_out] for part in (rows, cols, y))
        counts = np.bincount(rows, minlength=p)
        for F in tables:
            sums = np.bincount(rows, weights=y - F[rows, cols], minlength=p)
            alone = -np.where(new, 0.0, F).sum(axis=1) / np.maximum((~new).sum(axis=1), 1)
            F += np.where(counts > 0, sums / np.maximum(counts, 1), alone)[:, None]
    return tables


# ---------------------------------------------------------------------- squared error and gradient


def holdout_error(
    problem: CompleteSpectrum, alpha: float, held: str
) -> tuple[float, float, Array, Array]:
    """Compute the squared error of held-out labels, and its derivatives by alpha, K and G.

    A free constant is taken as the mean of Y, and "both" is the sum of the errors of rows and of
    columns. The error is infinite if digits are lost. With D = 1/(λσᵀ + alpha) and B = Ỹ∘D, the
    held-out residuals are r = e/m, with e = V B, m = (V∘V) D for rows, in the basis U, and
    e = V B Uᵀ, m = (V∘V) D (U∘U)ᵀ for entries. Columns are the rows of Yᵀ. The derivatives are
    w = 2r/m by e, u = −r∘w by m, and, as σ_j D_kj D_lj = (D_kj − D_lj)/(λ_l − λ_k),

        ∂B = Vᵀw (VᵀwU),    ∂K = V [−(σ∘D∘∂B) Bᵀ + (Q − Qᵀ)/(λ_k − λ_l)] Vᵀ,   Q = (V∘(uDᵀ))ᵀV.
    """
    left, right = problem.left.complete, problem.right.complete
    D, labels = damped(np.outer(left.values, right.values), alpha), problem.all_labels
    total, slope = 0.0, 0.0
    gradients = [np.zeros((len(side.vectors),) * 2) for side in (left, right)]
    # Columns are the rows of the transposed problem.
    parts = {"both": ("rows", "columns")}.get(held, (held,))
    for part in parts:
        turned = part == "columns"
        sides = (right, left) if turned else (left, right)
        tables = (labels.T, D.T) if turned else (labels, D)
        value, by_alpha, *by_sides = _error(*sides, *tables, entries=part == "entries")
        total, slope = total + value, slope + by_alpha
        for gradient, change in zip(gradients, by_sides[::-1] if turned else by_sides, strict=True):
            gradient += change
    return total, slope, gradients[0], gradients[1]


def _error(left: Spectrum, right: Spectrum, labels: Array, D: Array, *, entries: bool) -> Any:
    """Compute `holdout_error` of rows or entries."""
    lam, V, sigma, U = left.values, left.vectors, right.values, right.vectors
    B, squares = labels * D, V**2
    e, m, largest = V @ B, squares @ D, D.max(axis=0, initial=0.0)
    if entries:
        e, m, largest = e @ U.T, m @ (U**2).T, D.max(initial=0.0)
    if (m < SINGULAR * largest).any():
        return np.inf, 0.0, 0.0, 0.0
    r = e / m
    w = 2.0 * r / m
    u = -r * w
    dB, first = V.T @ w, u
    if entries:
        dB, first = dB @ U, u @ U**2
    dm = squares.T @ first
    of_left = _of_first(lam, V, sigma, first, dB, dm, B, D)
    if entries:
        of_right = _of_first(sigma, U, lam, u.T @ squares, dB.T, dm.T, B.T, D.T)
    else:
        # Terms Σ_i w_ia r_ib (m_ia − m_ib)/(σ_b − σ_a) instead of those of squares of U
        mixed = w.T @ e
        of_right = -(lam[:, None] * D * dB).T @ B
        of_right = 0.5 * (of_right + of_right.T + _divided(mixed.T - mixed, sigma))
        np.einsum("ii->i", of_right)[:] -= (dm * lam[:, None] * D**2).sum(axis=0)
    slope = -float(np.vdot(labels * dB + dm, D**2))
    return float(np.vdot(r, r)), slope, V @ of_left @ V.T, U @ of_right @ U.T


def _of_first(
    lam: Array, V: Array, sigma: Array, u: Array, dB: Array, dm: Array, B: Array, D: Array
) -> Array:
    """Compute VᵀXV for the gradient X with respect to K; u (p, s) is that of m = (V∘V) D."""
    inner = -(sigma * D * dB) @ B.T
    mixed = (V * (u @ D.T)).T @ V
    inner = 0.5 * (inner + inner.T) - _divided(mixed - mixed.T, lam)
    np.einsum("ii->i", inner)[:] -= (dm * sigma * D**2).sum(axis=1)
    return inner


def _divided(differences: Array, values: Array) -> Array:
    """Divide element (k, l) by values_l − values_k; return 0 where the values are equal."""
    gaps = values - values[:, None]
    equal = np.abs(gaps) <= EQUAL * float(np.abs(values).max(initial=0.0))
    gaps[equal] = np.inf
    return differences / gaps
