"""Held-out predictions of two-step regression: compositions of one-sided hold-outs.

With the smoothers S = K (K + alpha₁ I)⁻¹ of the rows and T = G (G + alpha₂ I)⁻¹ of the columns the
model has the values S Y T. Without row i it is a regression over the other rows: the leave-one-out
prediction of one side, smoothed by the other. Without row i and column j both are leave-one-out.

The regressions need complete rows and columns, so that a single label cannot simply be removed. The
model without label (i, j), or without several labels, is the one in which these labels equal their
own predictions:

    y* = [(S ⊗ T) y*]  at the held-out pairs,  y* = y elsewhere.

The ranking loss has a free offset for each row; T is then the smoother of C G C, and

    S ⊗ T + I ⊗ 11ᵀ/g

replaces S ⊗ T. I − S is computed as alpha (K + alpha I)⁻¹, which avoids cancellation.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.complete import damped, row_centred
from rankrls.core.relations.holdout import SINGULAR, CompleteHoldout, HeldOutTable, without
from rankrls.core.relations.sides import Spectrum

__all__ = ["TwoStepHoldout"]

Array = NDArray[Any]


class _Smoother:
    """S = V diag(λ/(λ + alpha)) Vᵀ of one side, and I − S."""

    def __init__(self, spectrum: Spectrum, alpha: float) -> None:
        self.values, self.vectors, self.alpha = spectrum.values, spectrum.vectors, alpha
        self.centred = spectrum.centred
        self.D = damped(self.values, alpha)

    @cached_property
    def rest(self) -> Array:
        """alpha (K + alpha I)⁻¹ = I − S (without the constants, if centred), shape (n, n)."""
        return (self.vectors * (self.alpha * self.D)) @ self.vectors.T

    @cached_property
    def S(self) -> Array:
        """The smoother S, shape (n, n)."""
        return (self.vectors * (self.values * self.D)) @ self.vectors.T

    @cached_property
    def off_diagonal(self) -> Array:
        """S without its diagonal, computed from ``rest``."""
        out = -self.rest
        if self.centred:
            out -= 1.0 / len(out)
        np.fill_diagonal(out, 0.0)
        return out

    def smooth(self, Y: Array) -> Array:
        """Compute S Y."""
        return self.vectors @ ((self.values * self.D)[:, None] * (self.vectors.T @ Y))

    def without(self, Y: Array) -> tuple[Array, Array]:
        """Predict every row of Y (n, k) from the others; also which rows lost digits, shape (n,).

        If centred, the offset is such that the mean prediction of the other rows is zero.
        """
        labels = self.vectors.T @ Y
        squares = self.vectors**2
        m = squares @ self.D
        unsafe = m < SINGULAR * self.D.max(initial=0.0)
        ratio = (self.vectors @ (self.D[:, None] * labels)) / m[:, None]
        filtered = self.values * self.D
        held = self.vectors @ (filtered[:, None] * labels) - (squares @ filtered)[:, None] * ratio
        if self.centred:  # from mean zero over all rows to mean zero over the other rows
            held *= len(held) / max(len(held) - 1, 1)
        return held, unsafe


class TwoStepHoldout(CompleteHoldout):
    """`CompleteHoldout` of two-step regression; alphas are pairs, of shape (n_alphas, 2)."""

    def _smoothers(self, alpha: Any) -> tuple[_Smoother, _Smoother]:
        left, right = self.problem.left.complete, self.problem.right.complete
        return _Smoother(left, float(alpha[0])), _Smoother(right, float(alpha[1]))

    def _rows_out(self, alpha: Any) -> tuple[Array, Array]:
        left, right = self._smoothers(alpha)
        return left.without(right.smooth(self._shifted[0].T).T)

    def _columns_out(self, alpha: Any) -> tuple[Array, Array]:
        left, right = self._smoothers(alpha)
        Y, offset = self._shifted
        held, unsafe = right.without(left.smooth(Y).T)
        if self.ranking:
            return held.T + _mean_of_others(Y) + offset, unsafe
        return held.T, unsafe

    def both(self, row_folds: list[Array], alphas: Array) -> HeldOutTable:
        """Predict every entry by the model without its fold of rows and without its column."""
        if any(len(rows) != 1 for rows in row_folds):
            return super().both(row_folds, alphas)
        p, g = self.Y.shape
        rows = np.concatenate(row_folds)
        held = np.full((len(alphas), p, g), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            left, right = self._smoothers(alpha)
            by_rows, first = left.without(self._shifted[0])
            by_both, second = right.without(by_rows.T)
            held[a, rows] = by_both.T[rows]
            for i, j in np.argwhere(first[:, None] | second):
                if i in rows:
                    held[a, i, j] = self._refit(i, j, alphas[a])
                    n_refits[a] += 1
        return HeldOutTable(held, n_refits)

    def _refit(self, i: int, j: int, alpha: Array) -> float:
        """Predict entry (i, j) by a model fitted without its row and its column."""
        p, g = self.Y.shape
        others = without(g, j)
        every = np.array([i]), np.arange(g)
        values = self.block((without(p, i), others), every, alpha[None])[0, 0]
        return float(values[j] - (values[others].mean() if self.ranking else 0.0))

    def _both_out(self, rows: Array, alphas: Array) -> tuple[Array, Array]:
        p, g = self.Y.shape
        stay = np.setdiff1d(np.arange(p), rows)
        part = self._part(0, stay).spectrum().range
        images = self.sides[0].images(part, rows, stay)
        labels = part.vectors.T @ self._shifted[0][stay]
        out = np.empty((len(alphas), len(rows), g))
        unsafe = np.empty((len(alphas), g), dtype=bool)
        for a, alpha in enumerate(alphas):
            right = self._smoothers(alpha)[1]
            smoothed = images @ (damped(part.values, float(alpha[0]))[:, None] * labels)
            held, unsafe[a] = right.without(smoothed.T)
            out[a] = held.T
        return out, unsafe

    @cached_property
    def _shifted(self) -> tuple[Array, Array]:
        """Labels minus an offset of each row (zero unless ranking), and the offsets, (p, 1)."""
        Y = row_centred(self.Y) if self.ranking else self.Y
        return Y, (self.Y - Y)[:, :1]

    def _entry_out(self, alpha: Any) -> tuple[Array, Array]:
        left, right = self._smoothers(alpha)
        Y, offset = self._shifted
        g = Y.shape[1]
        own, other = left.S.diagonal()[:, None], left.rest.diagonal()[:, None]
        mean = 1.0 / g if self.ranking else 0.0
        # sum of all labels except one, and 1 minus the weight of that label
        values = own * (Y @ right.off_diagonal) + left.off_diagonal @ (Y @ right.S)
        values += mean * (Y.sum(axis=1, keepdims=True) - Y)
        m = other * (1.0 - mean) + own * right.rest.diagonal()
        unsafe = np.zeros(Y.shape, dtype=bool)
        return values / m + offset, unsafe

    def _entries_out(self, alpha: Any, folds: list[Array]) -> tuple[list[Array], Array]:
        left, right = self._smoothers(alpha)
        Y, offset = self._shifted
        p, g = Y.shape
        own, other = left.S.diagonal()[:, None, None], left.rest.diagonal()[:, None, None]
        mean = 1.0 / g if self.ranking else 0.0
        others = left.off_diagonal @ (Y @ right.S)
        held = []
        for fold in folds:
            stay = np.setdiff1d(np.arange(g), fold)
            values = own[:, :, 0] * (Y[:, stay] @ right.off_diagonal[np.ix_(stay, fold)])
            values += others[:, fold] + mean * Y[:, stay].sum(axis=1, keepdims=True)
            M = other * (np.eye(len(fold)) - mean) + own * right.rest[np.ix_(fold, fold)]
            held.append(np.linalg.solve(M, values[:, :, None])[:, :, 0] + offset)
        return held, np.zeros((p, len(folds)), dtype=bool)

    def cell_folds(
        self, folds: list[tuple[Array, Array]], alphas: Array
    ) -> tuple[list[Array], Array]:
        """Predict some pairs by the model in which their labels equal their predictions."""
        Y, offset = self._shifted
        mean = 1.0 / Y.shape[1] if self.ranking else 0.0
        held = [np.empty((len(alphas), len(rows))) for rows, _ in folds]
        for a, alpha in enumerate(alphas):
            left, right = self._smoothers(alpha)
            values = left.S @ Y @ right.S + mean * Y.sum(axis=1, keepdims=True)
            for out, (rows, cols) in zip(held, folds, strict=True):
                H = left.S[np.ix_(rows, rows)] * right.S[np.ix_(cols, cols)]
                H += mean * (rows[:, None] == rows)
                y = Y[rows, cols]
                solved = np.linalg.solve(np.eye(len(H)) - H, values[rows, cols] - H @ y)
                out[a] = solved + offset[rows, 0]
        return held, np.zeros((len(alphas), len(folds)), dtype=bool)


def _mean_of_others(Y: Array) -> Array:
    """Compute, for every entry, the mean of the other entries of its row; shape of Y."""
    g = Y.shape[1]
    return (Y.sum(axis=1, keepdims=True) - Y) / max(g - 1, 1)
