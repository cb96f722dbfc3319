"""Held-out predictions of complete relations, without rows, columns, entries or both.

For complete relations without a symmetry, held-out predictions are computed from the eigenvectors
of the two kernels. The diagonals of the hat matrix H and of M = I − H are sums of positive terms.
Therefore

    f without the held-out labels = f − H M⁻¹ (y − f)

is accurate for any alpha, unless M is tiny relative to its largest possible value, because rounding
errors in y − f are divided by M. In that case, and for other relations, a model is refitted
without the held-out labels. The Cartesian kernel has the same eigenvectors as K ⊗ G, and differs
in the eigenvalues only.

A constant that is free adds a term of rank one: M/alpha = D − s sᵀ/τ in the notation of
`CompleteSpectrum`, with s = (K ⊗ G + alpha I)⁻¹ 1 and τ = 1ᵀs.

With the ranking loss, held-out predictions include an offset for each row, which does not affect
rankings. If the row has labels left, their residuals have mean zero. Otherwise, the predictions of
the training columns have mean zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped
from rankrls.core.relations.labels import (
    NO_OFFSETS,
    FreeOffsets,
    Observations,
    TableOffsets,
    free_offsets,
)
from rankrls.core.relations.pairwise import KRONECKER, PairwiseKernel, SideValues
from rankrls.core.relations.sides import Side

__all__ = ["CompleteHoldout", "HeldOutTable", "without"]

Array = NDArray[Any]

#: Shortcuts lose too many digits if M is less than this fraction of its largest value.
SINGULAR = 1e-7


@dataclass(frozen=True)
class HeldOutTable:
    """Held-out predictions of all pairs.

    Attributes
    ----------
    predictions : ndarray of shape (n_alphas, p, g)
    n_refits : ndarray of shape (n_alphas,), int
        Number of refits that replaced a shortcut that would have lost digits.
    """

    predictions: Array
    n_refits: Array


class CompleteHoldout:
    """Held-out predictions of a complete problem.

    Parameters
    ----------
    rows : Side of p objects
    columns : Side of g objects
    Y : ndarray of shape (p, g)
    ranking : bool
    sign : {0, 1, −1}
        With a sign, only `block` is available, with the same objects on both sides.
    offsets : FreeOffsets
        With offsets of columns, or of rows for regression, only `block` is available.
    pairwise : PairwiseKernel
        A spectral pairwise kernel.
    """

    def __init__(
        self,
        rows: Side,
        columns: Side,
        Y: Array,
        *,
        ranking: bool,
        sign: int = 0,
        offsets: FreeOffsets = NO_OFFSETS,
        pairwise: PairwiseKernel = KRONECKER,
    ) -> None:
        self.sides = (rows, columns)
        self.Y = Y
        self.ranking, self.sign, self.offsets = ranking, sign, offsets
        self.pairwise = pairwise
        self._parts: dict[tuple[int, bytes], Side] = {}

    @cached_property
    def problem(self) -> CompleteSpectrum:
        """The problem with all labels."""
        form = closed_form(*self.sides, self.Y, **self._loss)
        assert isinstance(form, CompleteSpectrum)
        return form

    @property
    def _loss(self) -> dict[str, Any]:
        return {
            "ranking": self.ranking,
            "sign": self.sign,
            "offsets": self.offsets,
            "pairwise": self.pairwise,
        }

    def block(self, train: tuple[Array, Array], test: tuple[Array, Array], alphas: Array) -> Array:
        """Predict pairs of test rows and columns with a model of training rows and columns.

        Parameters
        ----------
        train, test : tuple of two int arrays
            Rows and columns. The model is fitted to the labels of all pairs in ``train``.
        alphas : ndarray of shape (n_alphas,)

        Returns
        -------
        ndarray of shape (n_alphas, len(test[0]), len(test[1]))
            For ranking, predictions are determined up to a constant for each row.
        """
        rows, cols = train
        if len(rows) == 0 or len(cols) == 0:
            return np.zeros((len(alphas), len(test[0]), len(test[1])))
        left = self._part(0, rows)
        right = left if self.sign else self._part(1, cols)
        labels = self.Y[np.ix_(rows, cols)]
        model = closed_form(left, right, labels, **self._loss)
        spectra = model.left.range, model.right.range
        if any(self.offsets):  # functions are not centred, as in fitted models
            spectra = replace(spectra[0], mean=None), replace(spectra[1], mean=None)

        def values(at: tuple[Array, Array]) -> Array:
            if not self.pairwise.plain:
                parts = (
                    SideValues(side.K[np.ix_(objects, of)], _same(objects, of))
                    for side, objects, of in zip(self.sides, at, train, strict=True)
                )
                first, second = parts
                tables = model.coefficients(alphas)
                return np.stack([self.pairwise.table(first, second, A) for A in tables])
            images = [
                side.images(spectrum, objects, of)
                for side, spectrum, objects, of in zip(self.sides, spectra, at, train, strict=True)
            ]
            return model.predict(images[0], images[1], alphas)

        out = values(test)
        if any(self.offsets):
            self._add_offsets(out, labels - values(train), train, test)
        return out

    def _add_offsets(
        self, out: Array, residuals: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> None:
        """Add the offsets of residuals (n_alphas, p, g) to predictions, in place."""
        free = free_offsets(self.offsets, ranking=self.ranking)
        best = TableOffsets(np.ones(residuals.shape[1:]), free)
        cells = Observations.from_matrix(residuals[0]).cells
        places = []
        for known, asked, n in zip(train, test, self.Y.shape, strict=True):
            place = np.full(n, len(known))  # new objects have an index after the last one
            place[known] = np.arange(len(known))
            places.append(place[asked])
        for values, residual in zip(out, residuals, strict=True):
            fitted = best.fit(cells, residual.ravel())
            if self.ranking:
                fitted = fitted.without_rows()
            values += fitted.constant
            values += np.append(fitted.rows, 0.0)[places[0]][:, None]
            values += np.append(fitted.columns, 0.0)[places[1]]

    def _part(self, side: int, objects: Array) -> Side:
        """Select objects of a side, and cache them with their decomposition."""
        key = side, np.asarray(objects, dtype=np.int64).tobytes()
        if key not in self._parts:
            self._parts[key] = self.sides[side].select(objects)
        return self._parts[key]

    def _forget(self, side: int) -> None:
        self._parts = {key: part for key, part in self._parts.items() if key[0] != side}

    def rows(self, alphas: Array) -> HeldOutTable:
        """Predict every row with the model fitted without its labels."""
        p, g = self.Y.shape
        every = np.arange(g)
        held, unsafe = _stack([self._rows_out(alpha) for alpha in alphas])
        for i in np.flatnonzero(unsafe.any(axis=0)):
            at = unsafe[:, i]
            again = self.block((without(p, i), every), (np.array([i]), every), alphas[at])
            if self.ranking:
                again -= again.mean(axis=2, keepdims=True)
            held[at, i] = again[:, 0]
            self._forget(0)
        return HeldOutTable(held, unsafe.sum(axis=1))

    def columns(self, alphas: Array) -> HeldOutTable:
        """Predict every column with the model fitted without its labels."""
        p, g = self.Y.shape
        every = np.arange(p)
        held, unsafe = _stack([self._columns_out(alpha) for alpha in alphas])
        for j in np.flatnonzero(unsafe.any(axis=0)):
            at, stay = unsafe[:, j], without(g, j)
            again = self.block((every, stay), (every, np.arange(g)), alphas[at])
            if self.ranking:
                again += (self.Y - again)[:, :, stay].mean(axis=2, keepdims=True)
            held[at, :, j] = again[:, :, j]
            self._forget(1)
        return HeldOutTable(held, unsafe.sum(axis=1))

    def entries(self, alphas: Array) -> HeldOutTable:
        """Predict every entry with the model fitted without its label."""
        held, unsafe = _stack([self._entry_out(alpha) for alpha in alphas])
        for a in np.flatnonzero(unsafe.any(axis=(1, 2))):
            given = self._given_others(alphas[a])
            for i, j in np.argwhere(unsafe[a]):
                held[a, i, j] = given(i, np.array([j]), anchored=True)[0]
        return HeldOutTable(held, unsafe.sum(axis=(1, 2)))

    def entry_folds(self, folds: list[Array], alphas: Array) -> HeldOutTable:
        """Predict every entry without the labels of its row in its fold of columns.

        For ranking, predictions are determined up to a constant for each row and fold.
        """
        held = np.full((len(alphas), *self.Y.shape), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            parts, unsafe = self._entries_out(alpha, folds)
            for fold, part in zip(folds, parts, strict=True):
                held[a][:, fold] = part
            n_refits[a] = unsafe.sum()
            given = self._given_others(alpha) if n_refits[a] else None
            for i, number in np.argwhere(unsafe):
                assert given is not None
                held[a, i, folds[number]] = given(i, folds[number], anchored=False)
        return HeldOutTable(held, n_refits)

    def both(self, row_folds: list[Array], alphas: Array) -> HeldOutTable:
        """Predict every entry with the model fitted without its fold of rows and its column."""
        p, g = self.Y.shape
        held = np.full((len(alphas), p, g), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for rows in row_folds:
            stay = np.setdiff1d(np.arange(p), rows)
            held[:, rows], unsafe = self._both_out(rows, alphas)
            for j in np.flatnonzero(unsafe.any(axis=0)):
                at, cols = unsafe[:, j], without(g, j)
                again = self.block((stay, cols), (rows, np.arange(g)), alphas[at])
                if self.ranking:
                    again -= again[:, :, cols].mean(axis=2, keepdims=True)
                held[np.ix_(at, rows, [j])] = again[:, :, [j]]
                self._forget(1)
            n_refits += unsafe.sum(axis=1)
            self._forget(0)
        return HeldOutTable(held, n_refits)

    def _rows_out(self, alpha: Any) -> tuple[Array, Array]:
        return _rows_out(self.problem, alpha)

    def _columns_out(self, alpha: Any) -> tuple[Array, Array]:
        return _columns_out(self.problem, alpha)

    def _entry_out(self, alpha: Any) -> tuple[Array, Array]:
        return _entry_out(self.problem, alpha)

    def _entries_out(self, alpha: Any, folds: list[Array]) -> tuple[list[Array], Array]:
        return _entries_out(self.problem, alpha, folds)

    def _both_out(self, rows: Array, alphas: Array) -> tuple[Array, Array]:
        if self.pairwise.plain:
            return _both_out(self.problem, self.sides[0], rows, alphas)
        # K ⊗ I + I ⊗ G is zero between new pairs and others. Only a constant remains, by refits.
        shape = len(alphas), self.Y.shape[1]
        return np.zeros((shape[0], len(rows), shape[1])), np.full(shape, self.problem.constant)

    def cell_folds(
        self, folds: list[tuple[Array, Array]], alphas: Array
    ) -> tuple[list[Array], Array]:
        """Predict the pairs of each fold with the model fitted without their labels.

        Parameters
        ----------
        folds : list of tuples of two int arrays of shape (n,)
            Rows and columns of the pairs of each fold.
        alphas : ndarray of shape (n_alphas,)

        Returns
        -------
        list of ndarray of shape (n_alphas, n)
        ndarray of shape (n_alphas, n_folds), bool
            Folds to refit, because the shortcut would lose digits.
        """
        parts = [_cells_out(self.problem, alpha, folds) for alpha in alphas]
        values = [np.stack([part[0][k] for part in parts]) for k in range(len(folds))]
        return values, np.stack([part[1] for part in parts])

    def _given_others(self, alpha: float) -> Any:
        """Return a function that refits one row given the others as a Gaussian process prior."""
        mean = self.rows(np.array([alpha])).predictions[0]
        variances, level = _row_variances(self.problem, alpha)
        U, one = self.problem.right.complete.vectors, Side(np.ones((1, 1)))
        g, first = self.Y.shape[1], np.array([0])

        def refit(i: int, fold: Array, *, anchored: bool) -> Array:
            covariance = (U * variances[i]) @ U.T
            if level is not None:
                covariance += np.outer(level[i], level[i])
            prior = Side(covariance)
            stay = np.setdiff1d(np.arange(g), fold)
            rest = self.Y[i] - mean[i]
            model = closed_form(
                one, prior.select(stay), rest[None, stay], ranking=self.ranking, sign=0
            )
            left = one.images(model.left.range, first, first)
            right = prior.images(model.right.range, np.arange(g), stay)
            values = mean[i] + model.predict(left, right, np.array([alpha]))[0, 0]
            if self.ranking and anchored:
                values += (self.Y[i] - values)[stay].mean()
            return values[fold]

        return refit


def _rows_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Predict every row without its labels, shape (p, g); mark rows to refit, shape (p,).

    In the basis U of the columns, the problem separates into one regression for each column, with
    the kernel σ_j K (or K + σ_j I) and its own hat matrix.
    """
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    squares = V**2
    m = squares @ D  # M/alpha
    unsafe = (m < SINGULAR * D.max(axis=0, initial=0.0)) & (products != 0.0).any(axis=0)
    if problem.constant:
        level = _Level(problem, D)
        x = level.solve(V @ (level.labels * D), m, V @ (level.ones * D))
        return problem.Y - x @ U.T, unsafe.any(axis=1)
    ratio = V @ (labels * D)
    ratio /= m
    D *= products
    held = V @ (labels * D)
    held -= (squares @ D) * ratio
    return held @ U.T, unsafe.any(axis=1)


def _columns_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Predict every column without its labels, shape (p, g); mark columns to refit, shape (g,)."""
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    squares = (U**2).T
    m = D @ squares
    live = (products != 0.0).any(axis=1, keepdims=True)
    unsafe = ((m < SINGULAR * D.max(axis=1, initial=0.0)[:, None]) & live).any(axis=0)
    if problem.constant:
        level = _Level(problem, D)
        x = level.solve(*(part.T for part in ((level.labels * D) @ U.T, m, (level.ones * D) @ U.T)))
        return problem.Y - V @ x.T, unsafe
    ratio = (labels * D) @ U.T
    ratio /= m
    if problem.ranking:
        return problem.Y - V @ ratio, unsafe
    D *= products
    held = (labels * D) @ U.T
    held -= (D @ squares) * ratio
    return V @ held, unsafe


def _entry_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Predict every entry without its label, and mark entries to refit, both of shape (p, g)."""
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    left, right = V**2, (U**2).T
    m = left @ D @ right
    unsafe = m < SINGULAR * D.max(initial=0.0)
    if problem.constant:
        level = _Level(problem, D)
        m -= (V @ (level.ones * D) @ U.T) ** 2 / level.total
        unsafe = m < SINGULAR * D.max(initial=0.0)
        return problem.Y - (V @ (level.labels * D) @ U.T) / np.where(unsafe, 1.0, m), unsafe
    ratio = V @ (labels * D) @ U.T
    ratio /= m
    if problem.ranking:
        return problem.Y - ratio, unsafe
    D *= products
    return V @ (labels * D) @ U.T - (left @ D @ right) * ratio, unsafe


def _both_out(
    problem: CompleteSpectrum, side: Side, rows: Array, alphas: Array
) -> tuple[Array, Array]:
    """Predict entries of some rows without these rows and without the column of the entry.

    Parameters
    ----------
    problem : CompleteSpectrum
    side : Side of p objects
    rows : ndarray of shape (n_rows,), int
    alphas : ndarray of shape (n_alphas,)

    Returns
    -------
    ndarray of shape (n_alphas, n_rows, g)
    ndarray of shape (n_alphas, g), bool
        Columns to refit.

    Notes
    -----
    K without the rows is decomposed once. For each of its eigenvectors, the columns are a problem
    with the coefficients b = (D∘ỹ)Uᵀ and P = U D Uᵀ. Without column j, the coefficients are

        b − P_j b_j/P_jj,     with the value (G b)_j − (GP)_jj b_j/P_jj at column j.

    A constant connects the problems of the eigenvectors (see `_Level`).
    """
    stay = np.setdiff1d(np.arange(len(side)), rows)
    sigma, U = _parts(problem)[1]
    left = side.select(stay).spectrum().range
    part = CompleteSpectrum(
        side.select(stay).spectrum() if problem.constant else left,
        problem.right,
        problem.Y[stay],
        ranking=problem.ranking,
        constant=problem.constant,
    )
    if problem.constant:
        return _both_out_with_constant(part, side.images(part.left.range, rows, stay), alphas)
    labels = part.labels(left.vectors, U)
    products = np.outer(left.values, sigma)
    squares = (U**2).T
    basis = side.images(left, rows, stay)
    g = problem.Y.shape[1]
    # Offset: predictions have mean zero over all columns, and need it over the other columns.
    scale = g / (g - 1) if problem.ranking else 1.0
    out = np.empty((len(alphas), len(rows), g))
    unsafe = np.empty((len(alphas), g), dtype=bool)
    for a, alpha in enumerate(alphas):
        D = damped(products, alpha)
        m = D @ squares
        unsafe[a] = (m < SINGULAR * D.max(axis=1, initial=0.0)[:, None]).any(axis=0)
        ratio = (labels * D) @ U.T
        ratio /= m
        D *= sigma
        out[a] = basis @ (scale * ((labels * D) @ U.T - (D @ squares) * ratio))
    return out, unsafe


def _both_out_with_constant(
    part: CompleteSpectrum, basis: Array, alphas: Array
) -> tuple[Array, Array]:
    """Compute `_both_out` with a constant, for rows with images ``basis`` outside ``part``."""
    (lam, _), (sigma, U) = _parts(part)
    images = np.zeros((len(basis), len(lam)))
    images[:, part.left.complete.live] = basis
    squares, products = (U**2).T, np.outer(lam, sigma)
    g = len(U)
    out = np.empty((len(alphas), len(basis), g))
    unsafe = np.empty((len(alphas), g), dtype=bool)
    for a, alpha in enumerate(alphas):
        D = damped(products, alpha)
        level = _Level(part, D)
        m, s = D @ squares, level.ones * D
        b = level.labels * D
        unsafe[a] = (m < SINGULAR * D.max(axis=1, initial=0.0)[:, None]).any(axis=0)
        x = level.solve((b @ U.T).T, m.T, (s @ U.T).T).T  # in the basis V, for every column
        shift = np.einsum("ij,ij->j", s @ U.T, x) / level.total
        values = (b * sigma) @ U.T - ((D * sigma) @ squares) * x + ((s * sigma) @ U.T) * shift
        out[a] = images @ values + (level.constant - shift)
    return out, unsafe


class _Level:
    """A free constant in the eigenvectors of a complete problem, for one alpha.

    Attributes
    ----------
    ones : ndarray of shape (r, s)
        Vᵀ1 1ᵀU.
    total : float
        τ = Σ ones∘D∘ones.
    labels : ndarray of shape (r, s)
        Labels of the problem without the constant.
    constant : float
    """

    def __init__(self, problem: CompleteSpectrum, D: Array) -> None:
        (_, V), (_, U) = _parts(problem)
        self.ones = np.outer(V.sum(axis=0), U.sum(axis=0))
        weighted = self.ones * D
        self.total = float(np.vdot(weighted, self.ones))
        constant = float(np.vdot(weighted, problem.all_labels)) / self.total
        self.labels = problem.all_labels - constant * self.ones
        self.constant = constant + float(problem.Y.mean())

    def solve(self, e: Array, m: Array, t: Array) -> Array:
        """Compute (diag(m_i) − t_i t_iᵀ/τ)⁻¹ e_i for every row i, shape (n, s)."""
        scaled = t / m
        rest = self.total - np.vecdot(t, scaled)
        return e / m + scaled * (np.vecdot(scaled, e) / rest)[:, None]


def _entries_out(
    problem: CompleteSpectrum, alpha: float, folds: list[Array]
) -> tuple[list[Array], Array]:
    """Predict entries in folds of columns, each row without *its* labels in that fold.

    Parameters
    ----------
    problem : CompleteSpectrum
    alpha : float
    folds : list of int arrays
        Columns of each fold. The model that predicts a row uses all labels of other rows.

    Returns
    -------
    list of ndarray of shape (p, len(fold))
        For ranking, predictions are determined up to a constant for each row and fold.
    ndarray of shape (p, n_folds), bool
        Rows and folds to refit.

    Notes
    -----
    With the weights w_i = ((V∘V) alpha D)_i of row i, M_BB = U_B diag(w_i) U_Bᵀ for a fold B. The
    matrices of all rows are one product with the outer products of the rows of U_B.
    """
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    largest = D.max(initial=0.0)
    labels = problem.all_labels
    level = _Level(problem, D) if problem.constant else None
    if level is not None:
        labels, ones = level.labels, V @ (level.ones * D) / np.sqrt(level.total)
    squares = V**2
    E, m = V @ (labels * D), squares @ D
    D *= products
    F, h = V @ (labels * D), squares @ D
    held, unsafe = [], np.empty((len(V), len(folds)), dtype=bool)
    for number, fold in enumerate(folds):
        part = U[fold]
        outer = (part[:, None, :] * part[None, :, :]).reshape(-1, U.shape[1])
        shape = (len(V), len(fold), len(fold))
        M, H = (m @ outer.T).reshape(shape), (h @ outer.T).reshape(shape)
        if level is not None:
            s = ones @ part.T
            M -= s[:, :, None] * s[:, None, :]
        values, vectors = np.linalg.eigh(M)
        unsafe[:, number] = values[:, 0] < SINGULAR * largest
        values = np.where(values > 0, values, largest)[:, :, None]
        ratio = (E @ part.T)[:, :, None]
        ratio = vectors @ ((vectors.transpose(0, 2, 1) @ ratio) / values)
        if level is not None:
            held.append(problem.Y[:, fold] - ratio[:, :, 0])
            continue
        held.append(F @ part.T - (H @ ratio)[:, :, 0])
    return held, unsafe


def _cells_out(
    problem: CompleteSpectrum, alpha: float, folds: list[tuple[Array, Array]]
) -> tuple[list[Array], Array]:
    """Predict folds of arbitrary pairs without their labels; mark folds to refit, (n_folds,).

    The blocks M_BB and H_BB of a fold B are sums over products of eigenvectors. The terms of one
    eigenvector of K are computed together by a matrix product of the order of the fold.
    """
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    level = _Level(problem, D) if problem.constant else None
    if level is not None:
        labels, ones = level.labels, V @ (level.ones * D) @ U.T / np.sqrt(level.total)
    E, hat = V @ (labels * D) @ U.T, D * products
    F = V @ (labels * hat) @ U.T
    held, unsafe = [], np.empty(len(folds), dtype=bool)
    for number, (rows, cols) in enumerate(folds):
        left, right = V[rows], U[cols]
        M, H = np.zeros((2, len(rows), len(rows)))
        for k in range(len(lam)):
            outer = np.outer(left[:, k], left[:, k])
            M += outer * ((right * D[k]) @ right.T)
            H += outer * ((right * hat[k]) @ right.T)
        if level is not None:
            M -= np.outer(ones[rows, cols], ones[rows, cols])
        values, vectors = np.linalg.eigh(M)
        unsafe[number] = values[0] < SINGULAR * D.max(initial=0.0)
        values = np.where(values > 0, values, np.inf)
        ratio = vectors @ ((vectors.T @ E[rows, cols]) / values)
        anchored = level is not None or problem.ranking
        held.append(problem.Y[rows, cols] - ratio if anchored else F[rows, cols] - H @ ratio)
    return held, unsafe


def _row_variances(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array | None]:
    """Compute the variances of each row given the other rows, in the basis U, shape (p, s).

    In the Gaussian process interpretation, row i without its labels has the covariance
    U diag(c_i) Uᵀ with c = alpha H/M. A constant adds r_i r_iᵀ. The second result is r of shape
    (p, g), or None without a constant.
    """
    (lam, V), (sigma, U) = _parts(problem)
    products = problem.products(lam, sigma)
    D = damped(products, alpha)
    squares = V**2
    m = squares @ D
    level = None
    if problem.constant:
        made = _Level(problem, D)
        t = V @ (made.ones * D)
        rest = made.total - np.vecdot(t, t / m)
        level = ((t / m) @ U.T) / np.sqrt(rest)[:, None]
    D *= products
    return (squares @ D) / m, level


def _parts(problem: CompleteSpectrum) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    left, right = problem.left.complete, problem.right.complete
    return (left.values, left.vectors), (right.values, right.vectors)


def without(n: int, one: Any) -> Array:
    """Return the indices below n except one or several."""
    return np.delete(np.arange(n), one)


def _same(objects: Array, of: Array) -> sparse.csr_array:
    """Indicator matrix of equal indices of ``objects`` and ``of``, shape (n', n)."""
    return sparse.csr_array((objects[:, None] == of).astype(np.float64))


def _stack(results: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    values, unsafe = zip(*results, strict=True)
    return np.stack(values), np.stack(unsafe)
