"""Held-out predictions of complete relations: by models without rows, columns, entries or both.

On complete relations without a symmetry held-out predictions are read off the eigenvectors of the
two kernels. The diagonals of the hat matrix H and of M = I − H are sums of positive terms, so that

    f without the held-out labels = f − H M⁻¹ (y − f)

keeps its digits whatever alpha is, as long as M is not tiny beside the largest value that it
can have (rounding in y − f is divided by it). Where it is, and on other relations, a model is
refitted without the held-out labels. Kernels of pairs with the eigenvectors of K ⊗ G, as the
Cartesian one, differ in their eigenvalues only.

A constant that is free adds a term of rank one: M/alpha = D − s sᵀ/τ in the notation of
`CompleteSpectrum`, with s = (K ⊗ G + alpha I)⁻¹ 1 and τ = 1ᵀs.

Held-out predictions of the ranking loss come with an offset for each row, which a ranking does
not see: where the row has labels left, the offset with which their residuals have mean zero;
where it has none, the one with which the predictions of the training columns have mean zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.offsets import NO_OFFSETS, FreeOffsets, TableOffsets, free_offsets
from rankrls.core.relations.pairwise_kernels import KRONECKER, PairwiseKernel, SideValues
from rankrls.core.relations.sides import Side

__all__ = ["CompleteHoldout", "HeldOutTable", "without"]

Array = NDArray[Any]

#: Where M is smaller than this part of its largest value, too many digits are lost.
SINGULAR = 1e-7


@dataclass(frozen=True)
class HeldOutTable:
    """Held-out predictions of all pairs.

    Attributes
    ----------
    predictions : ndarray of shape (n_alphas, p, g)
    n_refits : ndarray of shape (n_alphas,), int
        How often a refit replaced a shortcut that would have lost digits.
    """

    predictions: Array
    n_refits: Array


class CompleteHoldout:
    """Questions to a complete problem about models without some of its labels.

    Parameters
    ----------
    rows : Side of p objects
    columns : Side of g objects
    Y : ndarray of shape (p, g)
    ranking : bool
    sign : {0, 1, −1}
        With a sign only `block` may be asked, with the same objects on both sides.
    offsets : FreeOffsets
        With those of columns, or of rows for regression, only `block` may be asked.
    pairwise : PairwiseKernel
        A spectral one.
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
        """All labels."""
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
        """Predict the pairs of some rows and columns by the model of others.

        Parameters
        ----------
        train, test : tuple of two int arrays
            Rows and columns. All labels of the pairs in ``train`` are in the model.
        alphas : ndarray of shape (n_alphas,)

        Returns
        -------
        ndarray of shape (n_alphas, len(test[0]), len(test[1]))
            Up to a constant for each row, for ranking.
        """
        rows, cols = train
        if len(rows) == 0 or len(cols) == 0:
            return np.zeros((len(alphas), len(test[0]), len(test[1])))
        left = self._part(0, rows)
        right = left if self.sign else self._part(1, cols)
        labels = self.Y[np.ix_(rows, cols)]
        model = closed_form(left, right, labels, **self._loss)
        spectra = model.left.range, model.right.range
        if any(self.offsets):  # functions that are not centred, as those of fitted models
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
            place = np.full(n, len(known))  # after the last one: new objects
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
        """Some objects of a side, remembered with their decomposition."""
        key = side, np.asarray(objects, dtype=np.int64).tobytes()
        if key not in self._parts:
            self._parts[key] = self.sides[side].select(objects)
        return self._parts[key]

    def _forget(self, side: int) -> None:
        self._parts = {key: part for key, part in self._parts.items() if key[0] != side}

    def rows(self, alphas: Array) -> HeldOutTable:
        """Every row by the model without its labels."""
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
        """Every column by the model without its labels."""
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
        """Every entry by the model without its label."""
        held, unsafe = _stack([self._entry_out(alpha) for alpha in alphas])
        for a in np.flatnonzero(unsafe.any(axis=(1, 2))):
            given = self._given_others(alphas[a])
            for i, j in np.argwhere(unsafe[a]):
                held[a, i, j] = given(i, np.array([j]), anchored=True)[0]
        return HeldOutTable(held, unsafe.sum(axis=(1, 2)))

    def entry_folds(self, folds: list[Array], alphas: Array) -> HeldOutTable:
        """Every entry by the model without the labels of its row in its fold of columns.

        Up to a constant for each row and fold, for ranking.
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
        """Every entry by the model without its fold of rows and without its column."""
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
        # K ⊗ I + I ⊗ G is zero between new pairs and others: a constant is left, by refits.
        shape = len(alphas), self.Y.shape[1]
        return np.zeros((shape[0], len(rows), shape[1])), np.full(shape, self.problem.constant)

    def cell_folds(
        self, folds: list[tuple[Array, Array]], alphas: Array
    ) -> tuple[list[Array], Array]:
        """Some pairs by the model without their labels, for each of several folds.

        Parameters
        ----------
        folds : list of tuples of two int arrays of shape (n,)
            Rows and columns of the pairs of each fold.
        alphas : ndarray of shape (n_alphas,)

        Returns
        -------
        list of ndarray of shape (n_alphas, n)
        ndarray of shape (n_alphas, n_folds), bool
            Which to refit: there the shortcut would lose digits.
        """
        parts = [_cells_out(self.problem, alpha, folds) for alpha in alphas]
        values = [np.stack([part[0][k] for part in parts]) for k in range(len(folds))]
        return values, np.stack([part[1] for part in parts])

    def _given_others(self, alpha: float) -> Any:
        """Refits of one row beside all others, which enter as a Gaussian process prior."""
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
    """Every row without its labels, shape (p, g), and which rows to refit, shape (p,).

    In the basis U of the columns the problem falls apart into one regression for each column,
    with the kernel σ_j K (or K + σ_j I) and its own hat matrix.
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
    """Every column without its labels, shape (p, g), and which columns to refit, shape (g,)."""
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
    """Every entry without its label, and which entries to refit, both of shape (p, g)."""
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
    """Entries of some rows, by the model without these rows and without the entry's column.

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
        Which columns to refit.

    Notes
    -----
    One decomposition of K without the rows. For each of its eigenvectors the columns are a
    problem with coefficients b = (D∘ỹ)Uᵀ, P = U D Uᵀ, and without column j

        b − P_j b_j/P_jj,     whose value at column j is (G b)_j − (GP)_jj b_j/P_jj.

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
    # Offset: the predictions of all columns have mean zero, those of the others shall have it.
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
    """`_both_out` with a constant: ``part`` has no labels of the rows with images ``basis``."""
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
        x = level.solve((b @ U.T).T, m.T, (s @ U.T).T).T  # in the basis V, of every column
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
        Those of the problem without the constant.
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
        """(diag(m_i) − t_i t_iᵀ/τ)⁻¹ e_i for every row i, shape (n, s)."""
        scaled = t / m
        rest = self.total - np.vecdot(t, scaled)
        return e / m + scaled * (np.vecdot(scaled, e) / rest)[:, None]


def _entries_out(
    problem: CompleteSpectrum, alpha: float, folds: list[Array]
) -> tuple[list[Array], Array]:
    """Entries in folds of columns, each row by the model without *its* labels in that fold.

    Parameters
    ----------
    problem : CompleteSpectrum
    alpha : float
    folds : list of int arrays
        Columns. The model that predicts a row has the labels of all other rows.

    Returns
    -------
    list of ndarray of shape (p, len(fold))
        Up to a constant for each row and fold, for ranking.
    ndarray of shape (p, n_folds), bool
        Which to refit.

    Notes
    -----
    With the weights w_i = ((V∘V) alpha D)_i of row i, M_BB = U_B diag(w_i) U_Bᵀ for a fold B. All
    rows together are one product with the outer products of the rows of U_B.
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
    """Folds of any pairs without their labels, and which folds to refit, shape (n_folds,).

    The blocks M_BB and H_BB of a fold B are sums over products of eigenvectors; the terms of one
    eigenvector of K at a time are a product of matrices of the order of the fold.
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
    """What the labels of the other rows leave open of each row, in the basis U: shape (p, s).

    In the reading as a Gaussian process, row i without its labels has the covariance
    U diag(c_i) Uᵀ with c = alpha H/M. A constant adds r_i r_iᵀ; the second result is r of shape
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
    """The numbers below n but one, or some."""
    return np.delete(np.arange(n), one)


def _same(objects: Array, of: Array) -> sparse.csr_array:
    """Which of the objects ``of`` others are, by number, shape (n', n)."""
    return sparse.csr_array((objects[:, None] == of).astype(np.float64))


def _stack(results: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    values, unsafe = zip(*results, strict=True)
    return np.stack(values), np.stack(unsafe)
