"""Held-out predictions of complete relations, without rows, columns, entries or both.

The models of complete relations are filters in the eigenvectors of the two kernels: with the labels
Ỹ = VᵀYU, the values of f are V(φ ∘ Ỹ)Uᵀ. Ridge regression with the eigenvalues μ of the pairwise
kernel, λσ or λ + σ (Cartesian), has φ = μ/(μ + alpha). Two-step regression is a filter of the rows,
then of the columns, φ = λ/(λ + alpha₁) · σ/(σ + alpha₂). With the hat matrix H of the filter and
M = I − H,

    f without the held-out labels = f − H M⁻¹ (y − f),

where H and M are blocks over the held-out labels. Their diagonals are sums of positive terms, so
that this is accurate for any alpha, unless M is tiny relative to its largest possible value. In
that case, and for other relations, a model is refitted without the held-out labels.

Two-step regression needs complete rows and columns. Without a row, its first step is refitted and
the second one is applied to the result. Without single labels, it is the model in which these
labels equal their own predictions, which is the formula above.

A constant that is free adds a term of rank one: M/alpha = D − s sᵀ/τ in the notation of
`CompleteSpectrum`, with s = (K ⊗ G + alpha I)⁻¹ 1 and τ = 1ᵀs. With the ranking loss, held-out
predictions include an offset for each row, which does not affect rankings. If the row has labels
left, their residuals have mean zero. Otherwise, the predictions of the training columns have mean
zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped, row_centred
from rankrls.core.relations.labels import Observations, TableOffsets
from rankrls.core.relations.pairwise_kernels import RelationLoss, SideValues
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "CompleteHoldout",
    "HeldOutTable",
    "HoldoutError",
    "holdout_error",
    "holdout_errors",
    "without",
]

Array = NDArray[Any]

#: Shortcuts lose too many digits if M is less than this fraction of its largest value.
SINGULAR = 1e-7

#: Eigenvalues are treated as equal if their difference, relative to the largest eigenvalue, is
#: smaller than this. The gradient then ignores rotations of their eigenvectors.
EQUAL = 1e-11


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


class Filter:
    """The filter of a complete problem for one alpha.

    Attributes
    ----------
    V, U : ndarray of shape (p, r) and (g, s)
        All eigenvectors, with the null spaces, or those of ``left``.
    phi, rest : ndarray of shape (r, s)
        φ and 1 − φ, without cancellation.
    labels : ndarray of shape (r, s)
        Labels in the eigenvectors, without a free constant.
    ones : ndarray of shape (r, s), or None
        Vᵀ1 1ᵀU, if there is a free constant.
    total : float
        Σ ones∘rest∘ones.
    constant : float
        The constant.
    """

    def __init__(self, problem: CompleteSpectrum, alpha: Any, left: Spectrum | None = None) -> None:
        left = problem.left.complete if left is None else left
        right = problem.right.complete
        self.V, self.U, self.Y = left.vectors, right.vectors, problem.Y
        self.steps: tuple[Array, Array] | None = None
        if problem.pairwise.name == "two-step":
            first, second = (float(one) for one in alpha)
            D, E = damped(left.values, first)[:, None], damped(right.values, second)[None]
            self.steps = left.values[:, None] * D, right.values * E
            self.rests = first * D, second * E
            self.phi = self.steps[0] * self.steps[1]
            self.rest = self.rests[0] + self.steps[0] * self.rests[1]
        else:
            products = problem.products(left.values, right.values)
            D = damped(products, alpha)
            self.phi, self.rest = products * D, alpha * D
        self.ones: Array | None = None
        self.total, self.constant = 1.0, 0.0
        whole = left is problem.left.complete
        self.labels = problem.all_labels if whole else problem.labels(self.V, self.U)
        if problem.constant:
            self.ones = np.outer(self.V.sum(axis=0), self.U.sum(axis=0))
            self.total = float(np.vdot(self.ones * self.rest, self.ones))
            constant = float(np.vdot(self.ones * self.rest, self.labels)) / self.total
            self.labels = self.labels - constant * self.ones
            self.constant = constant + float(problem.Y.mean())

    def along(self, axis: int) -> tuple[Array, Array, Any]:
        """Return φ and 1 − φ of the regression over a side, and the filter of the other side."""
        if self.steps is None:
            return self.phi, self.rest, 1.0
        return self.steps[axis], self.rests[axis], self.steps[1 - axis]

    def without_rows(self) -> tuple[Array, Array]:
        """Predict every row without its labels, in the basis U, and mark those to refit."""
        phi, rest, after = self.along(0)
        held, x, unsafe = _one_out(self.V, phi, rest, self.labels, self.ones, self.total)
        return self.Y @ self.U - x if self.ones is not None else held * after, unsafe

    def without_columns(self) -> tuple[Array, Array]:
        """Predict every column without its labels, in the basis V, and mark those to refit."""
        phi, rest, after = (np.transpose(part) for part in self.along(1))
        ones = None if self.ones is None else self.ones.T
        held, x, unsafe = _one_out(self.U, phi, rest, self.labels.T, ones, self.total)
        return self.V.T @ self.Y - x.T if ones is not None else (held * after).T, unsafe

    def anchored(self, ranking: bool) -> bool:
        """Whether y − M⁻¹(y − f) has the right offset."""
        return ranking or self.ones is not None


def _one_out(
    V: Array, phi: Array, rest: Array, labels: Array, ones: Array | None, total: float
) -> tuple[Array, Array, Array]:
    """Leave out each object of a side with the eigenvectors V (n, r).

    Every column of ``labels`` (r, s) is a regression with its own filter, or all have the same one.
    Returns held-out predictions (n, s), y minus predictions (n, s), and objects to refit (n,).
    """
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
    """Held-out predictions of a complete problem.

    Parameters
    ----------
    rows : Side of p objects
    columns : Side of g objects
    Y : ndarray of shape (p, g)
    loss : RelationLoss
        With a sign, with offsets of columns, or of rows for regression, and with pairwise kernels
        that are not spectral, only `block` is available. Alphas of two-step regression are pairs,
        of shape (n_alphas, 2).
    """

    def __init__(self, rows: Side, columns: Side, Y: Array, loss: RelationLoss) -> None:
        self.sides = (rows, columns)
        self.Y, self.loss, self.ranking = Y, loss, loss.ranking
        self.two_step = loss.pairwise.name == "two-step"
        self._parts: dict[tuple[int, bytes], Side] = {}

    @cached_property
    def problem(self) -> CompleteSpectrum:
        """The problem with all labels."""
        form = closed_form(*self.sides, self.Y, self.loss)
        assert isinstance(form, CompleteSpectrum)
        return form

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
        right = left if self.loss.sign else self._part(1, cols)
        labels, pairwise = self.Y[np.ix_(rows, cols)], self.loss.pairwise
        model = closed_form(left, right, labels, self.loss)
        spectra = model.left.range, model.right.range
        if any(self.loss.offsets):  # functions are not centred, as in fitted models
            spectra = replace(spectra[0], mean=None), replace(spectra[1], mean=None)

        def values(at: tuple[Array, Array]) -> Array:
            if not pairwise.plain:
                first, second = (
                    SideValues(side.K[np.ix_(objects, of)], _same(objects, of))
                    for side, objects, of in zip(self.sides, at, train, strict=True)
                )
                return np.stack(
                    [pairwise.table(first, second, A) for A in model.coefficients(alphas)]
                )
            images = [
                side.images(spectrum, objects, of)
                for side, spectrum, objects, of in zip(self.sides, spectra, at, train, strict=True)
            ]
            return model.predict(images[0], images[1], alphas)

        out = values(test)
        if any(self.loss.offsets):
            self._add_offsets(out, labels - values(train), train, test)
        return out

    def _add_offsets(
        self, out: Array, residuals: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> None:
        """Add the offsets of residuals (n_alphas, p, g) to predictions, in place."""
        cells = Observations.from_matrix(residuals[0]).cells
        best = TableOffsets(cells, self.loss.free)
        for values, residual in zip(out, residuals, strict=True):
            fitted = best.fit(cells, residual.ravel())
            fitted = fitted.without_rows() if self.ranking else fitted
            values += fitted.constant
            for axis, own in enumerate((fitted.rows, fitted.columns)):
                every = np.zeros(self.Y.shape[axis])  # new objects have no offset
                every[train[axis]] = own
                values += every[test[axis]][:, None] if axis == 0 else every[test[axis]]

    def _part(self, side: int, objects: Array) -> Side:
        """Select objects of a side, and cache them with their decomposition."""
        key = side, np.asarray(objects, dtype=np.int64).tobytes()
        if key not in self._parts:
            self._parts[key] = self.sides[side].select(objects)
        return self._parts[key]

    def _forget(self, side: int) -> None:
        self._parts = {key: part for key, part in self._parts.items() if key[0] != side}

    # ------------------------------------------------------------------ rows and columns

    def rows(self, alphas: Array) -> HeldOutTable:
        """Predict every row with the model fitted without its labels."""
        p, g = self.Y.shape
        every = np.arange(g)
        held, unsafe = np.empty((len(alphas), p, g)), np.empty((len(alphas), p), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            found, unsafe[a] = made.without_rows()
            np.matmul(found, made.U.T, out=held[a])
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
        held, unsafe = np.empty((len(alphas), p, g)), np.empty((len(alphas), g), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            found, unsafe[a] = made.without_columns()
            np.matmul(made.V, found, out=held[a])
        if self.ranking:  # from mean zero over all columns to the mean of the other labels
            Y = row_centred(self.Y)
            others = (Y.sum(axis=1, keepdims=True) - Y) / max(g - 1, 1)
            held *= g / max(g - 1, 1)
            held += others + (self.Y - Y)[:, :1]
        for j in np.flatnonzero(unsafe.any(axis=0)):
            at, stay = unsafe[:, j], without(g, j)
            every = np.arange(p), np.arange(g)
            again = self.block((every[0], stay), every, alphas[at])
            if self.ranking:
                again += (self.Y - again)[:, :, stay].mean(axis=2, keepdims=True)
            held[at, :, j] = again[:, :, j]
            self._forget(1)
        return HeldOutTable(held, unsafe.sum(axis=1))

    def both(self, row_folds: list[Array], alphas: Array) -> HeldOutTable:
        """Predict every entry with the model fitted without its fold of rows and its column."""
        p, g = self.Y.shape
        held = np.full((len(alphas), p, g), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        if self.two_step and all(len(rows) == 1 for rows in row_folds):
            return self._two_steps_out(np.concatenate(row_folds), alphas)
        for rows in row_folds:
            stay = np.setdiff1d(np.arange(p), rows)
            held[:, rows], unsafe = self._both_out(rows, stay, alphas)
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

    def _two_steps_out(self, rows: Array, alphas: Array) -> HeldOutTable:
        """Compose the two steps, each without one object; single rows need no decomposition."""
        (p, g), every = self.Y.shape, np.arange(self.Y.shape[1])
        held = np.full((len(alphas), p, g), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            phi, rest, _ = made.along(0)
            by_rows, _, first = _one_out(made.V, phi, rest, made.labels, None, 1.0)
            phi, rest, _ = made.along(1)
            by_both, _, second = _one_out(made.U, phi.T, rest.T, by_rows.T, None, 1.0)
            held[a, rows] = by_both.T[rows] * (g / max(g - 1, 1) if self.ranking else 1.0)
            for i, j in np.argwhere(first[rows, None] | second):
                cols = without(g, j)
                again = self.block((without(p, rows[i]), cols), (rows[[i]], every), alphas[[a]])
                level = again[0, 0, cols].mean() if self.ranking else 0.0
                held[a, rows[i], j] = again[0, 0, j] - level
                n_refits[a] += 1
        return HeldOutTable(held, n_refits)

    def _both_out(self, rows: Array, stay: Array, alphas: Array) -> tuple[Array, Array]:
        """Predict entries of some rows without these rows and without the column of the entry.

        K without the rows is decomposed once. For each of its eigenvectors, the columns are a
        regression. New rows have the values images · φ/λ of the remaining rows. Returns
        predictions (n_alphas, n_rows, g) and columns to refit (n_alphas, g).
        """
        g = self.Y.shape[1]
        out, unsafe = np.zeros((len(alphas), len(rows), g)), np.zeros((len(alphas), g), dtype=bool)
        constant = self.loss.free.constant
        if not self.loss.pairwise.plain:
            # K ⊗ I + I ⊗ G is zero between new pairs and others. A constant remains, by refits.
            unsafe[:] = constant
            return out, unsafe
        spectrum = self._part(0, stay).spectrum()
        problem = CompleteSpectrum(spectrum, self.problem.right, self.Y[stay], self.loss)
        left = spectrum.complete if constant else spectrum.range
        live = left.values != 0.0
        images = np.zeros((len(rows), len(live)))
        images[:, live] = self.sides[0].images(spectrum.range, rows, stay)
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

    def entries(self, alphas: Array) -> HeldOutTable:
        """Predict every entry with the model fitted without its label."""
        held = np.empty((len(alphas), *self.Y.shape))
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            V, U, left, right = made.V, made.U, made.V**2, (made.U**2).T
            m = left @ made.rest @ right
            if made.ones is not None:
                m -= (V @ (made.ones * made.rest) @ U.T) ** 2 / made.total
            unsafe = (m < SINGULAR * made.rest.max(initial=0.0)) & (not self.two_step)
            x = (V @ (made.rest * made.labels) @ U.T) / np.where(unsafe, 1.0, m)
            if made.anchored(self.ranking):
                held[a] = self.Y - x
            else:
                held[a] = V @ (made.phi * made.labels) @ U.T - (left @ made.phi @ right) * x
            n_refits[a] = unsafe.sum()
            given = self._given_others(alpha) if n_refits[a] else None
            for i, j in np.argwhere(unsafe):
                assert given is not None
                held[a, i, j] = given(i, np.array([j]), anchored=True)[0]
        return HeldOutTable(held, n_refits)

    def entry_folds(self, folds: list[Array], alphas: Array) -> HeldOutTable:
        """Predict every entry without the labels of its row in its fold of columns.

        For ranking, predictions are determined up to a constant for each row and fold.

        Notes
        -----
        With the weights w_i = ((V∘V)(1 − φ))_i of row i, M_BB = U_B diag(w_i) U_Bᵀ for a fold B.
        The matrices of all rows are one product with the outer products of the rows of U_B.
        """
        held = np.full((len(alphas), *self.Y.shape), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            V, U, squares = made.V, made.U, made.V**2
            E, F = (V @ (part * made.labels) for part in (made.rest, made.phi))
            m, h = (squares @ part for part in (made.rest, made.phi))
            t = None if made.ones is None else V @ (made.ones * made.rest) / np.sqrt(made.total)
            given = None
            for fold in folds:
                part = U[fold]
                outer = (part[:, None, :] * part[None, :, :]).reshape(-1, U.shape[1])
                M = (m @ outer.T).reshape(len(V), len(fold), len(fold))
                if t is not None:
                    M -= (t @ part.T)[:, :, None] * (t @ part.T)[:, None, :]
                x, unsafe = self._solved(M, E @ part.T, made)
                if made.ones is not None:
                    held[a][:, fold] = self.Y[:, fold] - x
                else:
                    H = (h @ outer.T).reshape(M.shape)
                    held[a][:, fold] = F @ part.T - (H @ x[..., None])[..., 0]
                n_refits[a] += unsafe.sum()
                for i in np.flatnonzero(unsafe):
                    given = self._given_others(alpha) if given is None else given
                    held[a, i, fold] = given(i, fold, anchored=False)
        return HeldOutTable(held, n_refits)

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
        held = [np.empty((len(alphas), len(rows))) for rows, _ in folds]
        unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = Filter(self.problem, alpha)
            V, U = made.V, made.U
            E, F = (V @ (part * made.labels) @ U.T for part in (made.rest, made.phi))
            ones = np.zeros_like(E) if made.ones is None else V @ (made.ones * made.rest) @ U.T
            for number, (rows, cols) in enumerate(folds):
                M, H = np.zeros((2, len(rows), len(rows)))
                for v, rest, phi in zip(V[rows].T, made.rest, made.phi, strict=True):
                    M += np.outer(v, v) * ((U[cols] * rest) @ U[cols].T)
                    H += np.outer(v, v) * ((U[cols] * phi) @ U[cols].T)
                M -= np.outer(ones[rows, cols], ones[rows, cols]) / made.total
                x, bad = self._solved(M[None], E[rows, cols][None], made)
                unsafe[a, number] = bad[0]
                anchored = made.anchored(self.ranking)
                values = self.Y[rows, cols] - x[0] if anchored else F[rows, cols] - H @ x[0]
                held[number][a] = values
        return held, unsafe

    def _solved(self, M: Array, E: Array, made: Filter) -> tuple[Array, Array]:
        """Solve M x = E for every fold, shape (n, k); mark those that lose digits, shape (n,)."""
        values, vectors = np.linalg.eigh(M)
        largest = made.rest.max(initial=0.0)
        unsafe = (values[:, 0] < SINGULAR * largest) & (not self.two_step)
        values = np.where(values > 0, values, largest)
        inner = (vectors.transpose(0, 2, 1) @ E[..., None]) / values[..., None]
        return (vectors @ inner)[..., 0], unsafe

    def _given_others(self, alpha: float) -> Any:
        """Return a function that refits one row given the others as a Gaussian process prior.

        Row i without its labels has the covariance U diag(c_i) Uᵀ with c = alpha H/M. A constant
        adds a term of rank one.
        """
        mean = self.rows(np.array([alpha])).predictions[0]
        made = Filter(self.problem, alpha)
        squares, V, U = made.V**2, made.V, made.U
        m = squares @ made.rest
        variances, level = alpha * (squares @ made.phi) / m, None
        if made.ones is not None:
            t = V @ (made.ones * made.rest)
            rest = made.total - np.vecdot(t, t / m)
            level = np.sqrt(alpha) * ((t / m) @ U.T) / np.sqrt(rest)[:, None]
        one, first, g = Side(np.ones((1, 1))), np.array([0]), self.Y.shape[1]

        def refit(i: int, fold: Array, *, anchored: bool) -> Array:
            covariance = (U * variances[i]) @ U.T
            if level is not None:
                covariance += np.outer(level[i], level[i])
            prior, stay = Side(covariance), np.setdiff1d(np.arange(g), fold)
            labels = (self.Y[i] - mean[i])[None, stay]
            model = closed_form(one, prior.select(stay), labels, RelationLoss(self.ranking))
            left = one.images(model.left.range, first, first)
            right = prior.images(model.right.range, np.arange(g), stay)
            values = mean[i] + model.predict(left, right, np.array([alpha]))[0, 0]
            if self.ranking and anchored:
                values += (self.Y[i] - values)[stay].mean()
            return values[fold]

        return refit


def without(n: int, one: Any) -> Array:
    """Return the indices below n except one or several."""
    return np.delete(np.arange(n), one)


def _same(objects: Array, of: Array) -> sparse.csr_array:
    """Indicator matrix of equal indices of ``objects`` and ``of``, shape (n', n)."""
    return sparse.csr_array((objects[:, None] == of).astype(np.float64))


# ---------------------------------------------------------------------- squared error and gradient


@dataclass(frozen=True)
class HoldoutError:
    """Squared error of held-out predictions, and its derivatives.

    Attributes
    ----------
    value : float
        Σ (y − f)² over all labels, each held out once.
    alpha : float
        Derivative with respect to alpha.
    left : ndarray of shape (p, p)
        Gradient with respect to K, symmetric.
    right : ndarray of shape (g, g)
        Gradient with respect to G.
    """

    value: float
    alpha: float
    left: Array
    right: Array

    def __add__(self, other: HoldoutError) -> HoldoutError:
        return HoldoutError(
            self.value + other.value,
            self.alpha + other.alpha,
            self.left + other.left,
            self.right + other.right,
        )


def holdout_error(problem: CompleteSpectrum, alpha: float, held: str) -> HoldoutError:
    """Compute the held-out squared error of a complete problem with the kernel K ⊗ G.

    Parameters
    ----------
    problem : CompleteSpectrum
        A problem without a sign. A free constant is treated as known and equal to the mean of Y.
    alpha : float
    held : {"rows", "columns", "entries", "both"}
        What is held out, one at a time. "both" is the sum of the errors of rows and of columns.
        There is no closed form for holding out a row and a column at once.

    Notes
    -----
    Let S = (K ⊗ G + alpha I)⁻¹, with centred kernels if there are offsets, D = 1/(λσᵀ + alpha) and
    B = Ỹ∘D. Held-out residuals are r = e/m, with e = V B, m = (V∘V) D for rows, in the basis U, and
    e = V B Uᵀ, m = (V∘V) D (U∘U)ᵀ for entries. Columns are the rows of Yᵀ. The error is Σ r². Its
    gradient costs about as much as the two decompositions. A change of K changes S by
    −S (dK ⊗ G) S. In the eigenvectors, σ_j D_kj D_lj is the divided difference
    (D_kj − D_lj)/(λ_l − λ_k), so that sums over j become matrix products.

    With ∂r = 2r, the derivatives are w = ∂r/m with respect to e, u = −r∘w with respect to m, and

        ∂B = Vᵀw (VᵀwU),    ∂K = V [ −(σ∘D∘∂B) Bᵀ + X/(λ_k − λ_l) ] Vᵀ,   X = Q − Qᵀ,

    where Q = (V∘(uDᵀ))ᵀV. The diagonal has the limit Σ −σ D² (V∘V)ᵀu.
    """
    left, right = problem.left.complete, problem.right.complete
    lam, V = left.values, left.vectors
    sigma, U = right.values, right.vectors
    D = damped(np.outer(lam, sigma), alpha)
    labels = problem.all_labels
    if not np.isfinite(_squared_error(problem, alpha, held)):
        return HoldoutError(np.inf, 0.0, np.zeros((len(V),) * 2), np.zeros((len(U),) * 2))
    if held == "entries":
        return _entries(lam, V, sigma, U, labels, D)
    error = _rows(lam, V, sigma, U, labels, D) if held in ("rows", "both") else None
    if held == "rows":
        assert error is not None
        return error
    turned = _rows(sigma, U, lam, V, labels.T, D.T)
    columns = HoldoutError(turned.value, turned.alpha, turned.right, turned.left)
    return columns if error is None else error + columns


def holdout_errors(problem: CompleteSpectrum, alphas: Array, held: str) -> Array:
    """Compute only the values of `holdout_error` for several alphas, shape (n_alphas,)."""
    return np.array([_squared_error(problem, float(alpha), held) for alpha in alphas])


def _squared_error(problem: CompleteSpectrum, alpha: float, held: str) -> float:
    """Compute Σ (e/m)²; it is infinite if m is so small that it loses digits."""
    left, right = problem.left.complete, problem.right.complete
    V, U = left.vectors, right.vectors
    D = damped(np.outer(left.values, right.values), alpha)
    B, first, second = problem.all_labels * D, V**2, (U**2).T
    parts = {
        "entries": [(V @ B @ U.T, first @ D @ second, D.max(initial=0.0))],
        "rows": [(V @ B, first @ D, D.max(axis=0, initial=0.0))],
        "columns": [(B @ U.T, D @ second, D.max(axis=1, initial=0.0, keepdims=True))],
    }
    parts["both"] = parts["rows"] + parts["columns"]
    if any((m < SINGULAR * largest).any() for _, m, largest in parts[held]):
        return np.inf
    return float(sum(np.vdot(e / m, e / m) for e, m, _ in parts[held]))


def _rows(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> HoldoutError:
    B, squares = labels * D, V**2
    e, m = V @ B, squares @ D
    r = e / m
    w = 2.0 * r / m
    u = -r * w
    dB = V.T @ w
    dm = squares.T @ u
    # The gradient with respect to G also has the terms Σ_i w_ia r_ib (m_ia − m_ib)/(σ_b − σ_a).
    mixed = w.T @ e
    inner = -(lam[:, None] * D * dB).T @ B
    inner = 0.5 * (inner + inner.T + _divided(mixed.T - mixed, sigma))
    np.einsum("ii->i", inner)[:] -= (dm * lam[:, None] * D**2).sum(axis=0)
    return HoldoutError(
        float(np.vdot(r, r)),
        -float(np.vdot(labels * dB + dm, D**2)),
        V @ _of_first(lam, V, sigma, u, dB, dm, B, D) @ V.T,
        U @ inner @ U.T,
    )


def _entries(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> HoldoutError:
    B, left, right = labels * D, V**2, U**2
    m = left @ D @ right.T
    r = (V @ B @ U.T) / m
    w = 2.0 * r / m
    u = -r * w
    dB = V.T @ w @ U
    first, second = u @ right, u.T @ left
    dm = left.T @ first
    return HoldoutError(
        float(np.vdot(r, r)),
        -float(np.vdot(labels * dB + dm, D**2)),
        V @ _of_first(lam, V, sigma, first, dB, dm, B, D) @ V.T,
        U @ _of_first(sigma, U, lam, second, dB.T, dm.T, B.T, D.T) @ U.T,
    )


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
