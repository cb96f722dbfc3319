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

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.complete import CompleteSpectrum, closed_form, damped, row_centred
from rankrls.core.relations.labels import Observations, TableOffsets
from rankrls.core.relations.pairwise_kernels import SideValues
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side, Spectrum

__all__ = ["CompleteHoldout", "holdout_error", "holdout_errors"]

Array = NDArray[Any]

#: Shortcuts lose too many digits if M is less than this fraction of its largest value.
SINGULAR = 1e-9

#: Number of decomposed parts of the two sides that are kept.
KEPT = 16

#: Eigenvalues are treated as equal if their difference, relative to the largest eigenvalue, is
#: smaller than this. The gradient then ignores rotations of their eigenvectors.
EQUAL = 1e-11


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

    def without(self, axis: int) -> tuple[Array, Array]:
        """Predict every row (0) or column (1) without its labels, and mark those to refit.

        Predictions of rows are in the basis U, those of columns in the basis V.
        """
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
    problem : RelationProblem
        With a sign, with offsets of columns, or of rows for regression, and with pairwise kernels
        that are not spectral, only `block` is available. Alphas of two-step regression are pairs,
        of shape (n_alphas, 2).
    Y : ndarray of shape (p, g)
        The labels.
    """

    def __init__(self, problem: RelationProblem, Y: Array) -> None:
        self.problem, self.Y, self.loss = problem, Y, problem.loss
        self.sides, self.ranking = problem.sides, problem.ranking
        self._parts: dict[tuple[int, bytes], Side] = {}
        self._latest: tuple[bytes, Filter] | None = None

    @cached_property
    def form(self) -> CompleteSpectrum:
        """The closed form with all labels."""
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

        def values(at: tuple[Array, Array]) -> Array:
            if not pairwise.plain:
                first, second = (
                    SideValues(
                        side.K[np.ix_(objects, of)],
                        sparse.csr_array((objects[:, None] == of).astype(np.float64)),
                    )
                    for side, objects, of in zip(self.sides, at, train, strict=True)
                )
                return np.stack(
                    [pairwise.table(first, second, A) for A in model.coefficients(alphas)]
                )
            left, right = (
                side.images(spectrum, objects, of)
                for side, spectrum, objects, of in zip(self.sides, spectra, at, train, strict=True)
            )
            return np.stack([left @ model.inner(alpha) @ right.T for alpha in alphas])

        out = values(test)
        if any(self.loss.offsets):
            residuals = labels - values(train)
            cells = Observations.from_matrix(residuals[0]).cells
            best = TableOffsets(cells, self.loss.free)
            for F, residual in zip(out, residuals, strict=True):
                fitted = best.fit(cells, residual.ravel())
                fitted = fitted.without_rows() if self.ranking else fitted
                every = [np.zeros(n) for n in self.Y.shape]  # new objects have no offset
                every[0][rows], every[1][cols] = fitted.rows, fitted.columns
                F += fitted.constant + every[0][test[0]][:, None] + every[1][test[1]]
        return out

    def _part(self, side: int, objects: Array) -> Side:
        """Select objects of a side, and cache them with their decomposition."""
        key = side, np.asarray(objects, dtype=np.int64).tobytes()
        if key not in self._parts:
            if len(self._parts) >= KEPT:
                self._parts.clear()
            self._parts[key] = self.sides[side].select(objects)
        return self._parts[key]

    def fold(self, rows: Array | None, cols: Array | None, alphas: Array) -> Array:
        """Predict pairs of some rows and columns by a model without all labels of these.

        None stands for all rows or columns, whose labels are used. For ranking, predictions have
        the offsets that the module describes. The shape is (n_alphas, n_rows, n_columns).
        """
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
        """Predict every row with the model fitted without its labels.

        Returns predictions (n_alphas, p, g), and the number of refits for every alpha.
        """
        p, g = self.Y.shape
        held, unsafe = np.empty((len(alphas), p, g)), np.empty((len(alphas), p), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = Filter(self.form, alpha)
            found, unsafe[a] = made.without(0)
            np.matmul(found, made.U.T, out=held[a])
        for i in np.flatnonzero(unsafe.any(axis=0)):
            at = unsafe[:, i]
            held[at, i] = self.fold(np.array([i]), None, alphas[at])[:, 0]
        return held, unsafe.sum(axis=1)

    def columns(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every column with the model fitted without its labels, as `rows`."""
        p, g = self.Y.shape
        held, unsafe = np.empty((len(alphas), p, g)), np.empty((len(alphas), g), dtype=bool)
        for a, alpha in enumerate(alphas):
            made = Filter(self.form, alpha)
            found, unsafe[a] = made.without(1)
            np.matmul(made.V, found, out=held[a])
        if self.ranking:  # from mean zero over all columns to the mean of the other labels
            Y = row_centred(self.Y)
            others = (Y.sum(axis=1, keepdims=True) - Y) / max(g - 1, 1)
            held *= g / max(g - 1, 1)
            held += others + (self.Y - Y)[:, :1]
        for j in np.flatnonzero(unsafe.any(axis=0)):
            at = unsafe[:, j]
            held[at, :, j] = self.fold(None, np.array([j]), alphas[at])[:, :, 0]
        return held, unsafe.sum(axis=1)

    def both(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every entry with the model fitted without its row and column, as `rows`."""
        p, g = self.Y.shape
        held = np.empty((len(alphas), p, g))
        n_refits = np.zeros(len(alphas), dtype=int)
        for i in range(p):
            row, stay = np.array([i]), np.delete(np.arange(p), i)
            held[:, row], unsafe = self._both_out(row, stay, alphas)
            for j in np.flatnonzero(unsafe.any(axis=0)):
                at = unsafe[:, j]
                held[at, i, j] = self.fold(row, np.array([j]), alphas[at])[:, 0, 0]
            n_refits += unsafe.sum(axis=1)
        return held, n_refits

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
        problem = CompleteSpectrum(spectrum, self.form.right, self.Y[stay], self.loss)
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

    def entries(self, alphas: Array) -> tuple[Array, Array]:
        """Predict every entry with the model fitted without its label, as `rows`."""
        held = np.empty((len(alphas), *self.Y.shape))
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = Filter(self.form, alpha)
            V, U, left, right = made.V, made.U, made.V**2, (made.U**2).T
            m = left @ made.rest @ right
            if made.ones is not None:
                m -= (V @ (made.ones * made.rest) @ U.T) ** 2 / made.total
            unsafe = self._unsafe(m, made)
            x = (V @ (made.rest * made.labels) @ U.T) / np.where(unsafe, 1.0, m)
            if made.anchored(self.ranking):
                held[a] = self.Y - x
            else:
                held[a] = V @ (made.phi * made.labels) @ U.T - (left @ made.phi @ right) * x
            n_refits[a] = unsafe.sum()
            for i, j in np.argwhere(unsafe):
                held[a, i, j] = self._refit(np.array([i]), np.array([j]), alphas[[a]])[0, 0]
        return held, n_refits

    def entry_folds(self, folds: list[Array], alphas: Array) -> tuple[Array, Array]:
        """Predict every entry without the labels of its row in its fold of columns, as `rows`.

        Notes
        -----
        With the weights w_i = ((V∘V)(1 − φ))_i of row i, M_BB = U_B diag(w_i) U_Bᵀ for a fold B.
        The matrices of all rows are one product with the outer products of the rows of U_B.
        """
        held = np.full((len(alphas), *self.Y.shape), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            made = Filter(self.form, alpha)
            V, U, squares = made.V, made.U, made.V**2
            E, F = (V @ (part * made.labels) for part in (made.rest, made.phi))
            m, h = (squares @ part for part in (made.rest, made.phi))
            t = None if made.ones is None else V @ (made.ones * made.rest) / np.sqrt(made.total)
            for fold in folds:
                part = U[fold]
                outer = (part[:, None, :] * part[None, :, :]).reshape(-1, U.shape[1])
                M = (m @ outer.T).reshape(len(V), len(fold), len(fold))
                if t is not None:
                    M -= (t @ part.T)[:, :, None] * (t @ part.T)[:, None, :]
                x, unsafe = self._solved(M, E @ part.T, made)
                if made.anchored(self.ranking):
                    held[a][:, fold] = self.Y[:, fold] - x
                else:
                    H = (h @ outer.T).reshape(M.shape)
                    held[a][:, fold] = F @ part.T - (H @ x[..., None])[..., 0]
                n_refits[a] += unsafe.sum()
                for i in np.flatnonzero(unsafe):
                    held[a, i, fold] = self._refit(np.full(len(fold), i), fold, alphas[[a]])[0]
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
            anchored = made.anchored(self.ranking)
            held[a] = self.Y[rows, cols] - x[0] if anchored else F - H @ x[0]
        return held, unsafe

    def _filter(self, alpha: Any) -> Filter:
        """The filter of all labels, cached for the latest alpha."""
        key = np.asarray(alpha).tobytes()
        if self._latest is None or self._latest[0] != key:
            self._latest = key, Filter(self.form, alpha)
        return self._latest[1]

    def _unsafe(self, m: Array, made: Filter) -> Array:
        return (m < SINGULAR * made.rest.max(initial=0.0)) & (not self.problem.two_step)

    def _solved(self, M: Array, E: Array, made: Filter) -> tuple[Array, Array]:
        """Solve M x = E for every fold, shape (n, k); mark those that lose digits, shape (n,)."""
        values, vectors = np.linalg.eigh(M)
        unsafe = self._unsafe(values[:, 0], made)
        values = np.where(values > 0, values, made.rest.max(initial=0.0))
        inner = (vectors.transpose(0, 2, 1) @ E[..., None]) / values[..., None]
        return (vectors @ inner)[..., 0], unsafe

    def _refit(self, rows: Array, cols: Array, alphas: Array) -> Array:
        """Predict pairs of one row by a refit without their labels, shape (n_alphas, n)."""
        g, i = self.Y.shape[1], int(rows[0])
        edges = self.problem.observations.lists
        kept = ~((edges[0] == i) & np.isin(edges[1], cols))
        every = np.full(g, i), np.arange(g)
        values = self.problem.predict_without(~kept, *every, alphas)
        if self.ranking:
            stay = np.delete(np.arange(g), cols)
            values += (self.Y[i] - values)[:, stay].mean(axis=1, keepdims=True)
        return values[:, cols]


# ---------------------------------------------------------------------- squared error and gradient


def holdout_error(
    problem: CompleteSpectrum, alpha: float, held: str
) -> tuple[float, float, Array, Array]:
    """Compute the held-out squared error of a complete problem, and its derivatives.

    Parameters
    ----------
    problem : CompleteSpectrum
        A problem with the kernel K ⊗ G, without a sign. A free constant is treated as known and
        equal to the mean of Y.
    alpha : float
    held : {"rows", "columns", "entries", "both"}
        What is held out, one at a time. "both" is the sum of the errors of rows and of columns.
        There is no closed form for holding out a row and a column at once.

    Returns
    -------
    value : float
        Σ (y − f)² over all labels, each held out once; infinite if digits are lost.
    slope : float
        Derivative with respect to alpha.
    left, right : ndarray of shape (p, p) and (g, g)
        Gradients with respect to K and G, symmetric.

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
        return np.inf, 0.0, np.zeros((len(V),) * 2), np.zeros((len(U),) * 2)
    if held == "entries":
        return _entries(lam, V, sigma, U, labels, D)
    parts = []
    if held in ("rows", "both"):
        parts.append(_rows(lam, V, sigma, U, labels, D))
    if held in ("columns", "both"):
        value, slope, right_part, left_part = _rows(sigma, U, lam, V, labels.T, D.T)
        parts.append((value, slope, left_part, right_part))
    value, slope, first, second = (sum(several) for several in zip(*parts, strict=True))
    return value, slope, first, second


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


def _rows(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> Any:
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
    return (
        float(np.vdot(r, r)),
        -float(np.vdot(labels * dB + dm, D**2)),
        V @ _of_first(lam, V, sigma, u, dB, dm, B, D) @ V.T,
        U @ inner @ U.T,
    )


def _entries(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> Any:
    B, left, right = labels * D, V**2, U**2
    m = left @ D @ right.T
    r = (V @ B @ U.T) / m
    w = 2.0 * r / m
    u = -r * w
    dB = V.T @ w @ U
    first, second = u @ right, u.T @ left
    dm = left.T @ first
    return (
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
