"""Exact hold-out on complete relations: shortcuts where they are safe, refits where not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations import leave_out as _leave_out
from rankrls.core.relations.complete import ClosedForm, CompleteSpectrum
from rankrls.core.relations.paired import PairedRanking
from rankrls.core.relations.spectrum import Spectrum, centred_spectrum, spectrum

__all__ = ["CompleteHoldout", "Held", "closed_form"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Held:
    """Held-out predictions.

    Attributes
    ----------
    predictions : ndarray of shape (n_alphas, p, g)
    n_refits : ndarray of shape (n_alphas,), int
        How often a refit replaced a shortcut that would have lost digits.
    """

    predictions: Array
    n_refits: Array


def closed_form(
    K: Array, G: Array, Y: Array, *, ranking: bool, sign: int, spectra: Any = None
) -> ClosedForm:
    """The solution of a complete problem, for every alpha.

    Parameters
    ----------
    K : ndarray of shape (p, p)
    G : ndarray of shape (g, g)
        With a sign, K itself.
    Y : ndarray of shape (p, g)
    ranking : bool
    sign : {0, 1, −1}
        Symmetric (1) and reciprocal (−1) regression is plain regression on symmetrised labels
        (P5, Proposition 4.7).
    spectra : tuple of Spectrum, optional
        Of K, and of G (of C G C for ranking), where they are known.
    """
    if sign == 0:
        if spectra is not None:
            return CompleteSpectrum(spectra[0], spectra[1], Y, ranking=ranking)
        return CompleteSpectrum.of(K, G, Y, ranking=ranking)
    left = spectrum(K) if spectra is None else spectra[0]
    if ranking:
        return PairedRanking(left, Y, sign)
    return CompleteSpectrum(left, left, 0.5 * (Y + sign * Y.T), ranking=False)


class CompleteHoldout:
    """Questions to a complete problem about models without some of its labels.

    Parameters
    ----------
    K : ndarray of shape (p, p)
    G : ndarray of shape (g, g)
    Y : ndarray of shape (p, g)
    ranking : bool
    sign : {0, 1, −1}
        With a sign only `block` may be asked, with the same objects on both sides.
    """

    def __init__(self, K: Array, G: Array, Y: Array, *, ranking: bool, sign: int = 0) -> None:
        self.K, self.G, self.Y = K, G, Y
        self.ranking, self.sign = ranking, sign
        self._left: dict[bytes, Spectrum] = {}
        self._right: dict[bytes, Spectrum] = {}

    @cached_property
    def problem(self) -> CompleteSpectrum:
        """All labels."""
        return CompleteSpectrum.of(self.K, self.G, self.Y, ranking=self.ranking)

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
        left = _remember(self._left, rows, lambda: spectrum(self.K[np.ix_(rows, rows)]))
        if self.sign:
            spectra = (left, left)
        else:
            decompose = centred_spectrum if self.ranking else spectrum
            part = np.ix_(cols, cols)
            spectra = (left, _remember(self._right, cols, lambda: decompose(self.G[part])))
        model = closed_form(
            self.K, self.G, self.Y[np.ix_(rows, cols)],
            ranking=self.ranking, sign=self.sign, spectra=spectra,
        )  # fmt: skip
        return model.predict(self.K[np.ix_(test[0], rows)], self.G[np.ix_(test[1], cols)], alphas)

    def rows(self, alphas: Array) -> Held:
        """Every row by the model without its labels."""
        p, g = self.Y.shape
        every = np.arange(g)
        held, unsafe = _stack([_leave_out.rows_out(self.problem, alpha) for alpha in alphas])
        for i in np.flatnonzero(unsafe.any(axis=0)):
            at = unsafe[:, i]
            again = self.block((_without(p, i), every), (np.array([i]), every), alphas[at])
            if self.ranking:
                again -= again.mean(axis=2, keepdims=True)
            held[at, i] = again[:, 0]
            self._left.clear()
        return Held(held, unsafe.sum(axis=1))

    def columns(self, alphas: Array) -> Held:
        """Every column by the model without its labels."""
        p, g = self.Y.shape
        every = np.arange(p)
        held, unsafe = _stack([_leave_out.columns_out(self.problem, alpha) for alpha in alphas])
        for j in np.flatnonzero(unsafe.any(axis=0)):
            at, stay = unsafe[:, j], _without(g, j)
            again = self.block((every, stay), (every, np.arange(g)), alphas[at])
            if self.ranking:
                again += (self.Y - again)[:, :, stay].mean(axis=2, keepdims=True)
            held[at, :, j] = again[:, :, j]
            self._right.clear()
        return Held(held, unsafe.sum(axis=1))

    def entries(self, alphas: Array) -> Held:
        """Every entry by the model without its label."""
        held, unsafe = _stack([_leave_out.entry_out(self.problem, alpha) for alpha in alphas])
        for a in np.flatnonzero(unsafe.any(axis=(1, 2))):
            given = self._given_others(alphas[a])
            for i, j in np.argwhere(unsafe[a]):
                held[a, i, j] = given(i, np.array([j]), anchored=True)[0]
        return Held(held, unsafe.sum(axis=(1, 2)))

    def entry_folds(self, folds: list[Array], alphas: Array) -> Held:
        """Every entry by the model without the labels of its row in its fold of columns.

        Up to a constant for each row and fold, for ranking.
        """
        held = np.full((len(alphas), *self.Y.shape), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for a, alpha in enumerate(alphas):
            parts, unsafe = _leave_out.entries_out(self.problem, alpha, folds)
            for fold, part in zip(folds, parts, strict=True):
                held[a][:, fold] = part
            n_refits[a] = unsafe.sum()
            given = self._given_others(alpha) if n_refits[a] else None
            for i, number in np.argwhere(unsafe):
                assert given is not None
                held[a, i, folds[number]] = given(i, folds[number], anchored=False)
        return Held(held, n_refits)

    def both(self, row_folds: list[Array], alphas: Array) -> Held:
        """Every entry by the model without its fold of rows and without its column."""
        p, g = self.Y.shape
        held = np.full((len(alphas), p, g), np.nan)
        n_refits = np.zeros(len(alphas), dtype=int)
        for rows in row_folds:
            stay = np.setdiff1d(np.arange(p), rows)
            held[:, rows], unsafe = _leave_out.both_out(self.problem, self.K, rows, alphas)
            for j in np.flatnonzero(unsafe.any(axis=0)):
                at, cols = unsafe[:, j], _without(g, j)
                again = self.block((stay, cols), (rows, np.arange(g)), alphas[at])
                if self.ranking:
                    again -= again[:, :, cols].mean(axis=2, keepdims=True)
                held[np.ix_(at, rows, [j])] = again[:, :, [j]]
                self._right.clear()
            n_refits += unsafe.sum(axis=1)
            self._left.clear()
        return Held(held, n_refits)

    def _given_others(self, alpha: float) -> Any:
        """Refits of one row beside all others, which enter as a Gaussian process prior."""
        mean = self.rows(np.array([alpha])).predictions[0]
        variances = _leave_out.row_variances(self.problem, alpha)
        U, one = self.problem.right.vectors, np.ones((1, 1))
        g = self.Y.shape[1]

        def refit(i: int, fold: Array, *, anchored: bool) -> Array:
            S = (U * variances[i]) @ U.T
            stay = np.setdiff1d(np.arange(g), fold)
            rest = self.Y[i] - mean[i]
            part = S[np.ix_(stay, stay)]
            model = CompleteSpectrum.of(one, part, rest[None, stay], ranking=self.ranking)
            values = mean[i] + model.predict(one, S[:, stay], np.array([alpha]))[0, 0]
            if self.ranking and anchored:
                values += (self.Y[i] - values)[stay].mean()
            return values[fold]

        return refit


def _remember(known: dict[bytes, Spectrum], objects: Array, decompose: Any) -> Spectrum:
    key = np.asarray(objects, dtype=np.int64).tobytes()
    if key not in known:
        known[key] = decompose()
    return known[key]


def _without(n: int, one: Any) -> Array:
    return np.delete(np.arange(n), one)


def _stack(results: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    values, unsafe = zip(*results, strict=True)
    return np.stack(values), np.stack(unsafe)
