"""Conjugate gradients for every alpha at once: (G + alpha I) w = c from one Krylov sequence.

All the systems of a grid share the Krylov space of G and c. Conjugate gradients for the smallest
alpha (the seed) make its residuals r_j, and for any larger alpha the residual is ζ_j r_j with a
number ζ_j in (0, 1] that follows from the seed's two coefficients. So one product with G for each
iteration serves the whole grid, and anything that is linear in the iterates (the coefficients
themselves, or predictions for other rows) follows from its image of r_j by the same recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MultiShiftCG", "ShiftedSum", "overflow_error"]

Array = NDArray[Any]

#: Residuals that are gathered before coefficients are brought up to date, in one matrix product.
BLOCK = 16


class MultiShiftCG:
    """Conjugate gradients for (G + alpha I) W = C, all alphas and columns of C.

    ``step`` makes one iteration: a single product with G for the columns that have not converged.

    Parameters
    ----------
    product : function
        V ↦ G V for V of shape (n, k'), G symmetric positive semi-definite of shape (n, n).
    C : ndarray of shape (n, k)
    alphas : ndarray of shape (n_alphas,) or (n_alphas, k), >= 0, increasing along the first axis
    tol : float
        A column has converged for an alpha when ‖residual‖ <= tol ‖c‖; its iterate is frozen.
    metric : ndarray of shape (n, 1), optional
        Norms are those of metric · residual, with one alpha: for preconditioned systems.

    Attributes
    ----------
    n_iter : int
    residual : ndarray of shape (n_alphas, k)
        ‖residual‖/‖c‖, as the recurrence has it.
    frozen : ndarray of shape (n_alphas, k), bool
        Iterates that change no more.
    iterates : ShiftedSum
        The solutions so far.

    Notes
    -----
    With steps a_j = ‖r_j‖²/p_jᵀ(G + σ)p_j and b_j = ‖r_j‖²/‖r_{j−1}‖² of the seed σ and
    ρ_j = ζ_j/ζ_{j−1}, an alpha larger by δ has

        1/ρ_{j+1} = 1 + δ a_j + (a_j b_j/a_{j−1}) (1 − ρ_j)

    and steps a_j ρ_{j+1} and b_{j+1} ρ²_{j+1}. All terms are positive and ρ is at most one: nothing
    overflows or cancels.
    """

    def __init__(
        self,
        product: Callable[[Array], Array],
        C: Array,
        alphas: Array,
        *,
        tol: float,
        metric: Array | None = None,
    ) -> None:
        self.product = product
        self.tol = tol
        self.metric = metric
        k = C.shape[1]
        alphas = alphas[:, None] if alphas.ndim == 1 else alphas
        self.seed = np.broadcast_to(alphas[0], (k,))
        self.delta = np.broadcast_to(alphas - alphas[0], (len(alphas), k))
        self.scale = np.linalg.norm(C, axis=0)
        if not np.isfinite(self.scale).all():
            raise overflow_error()
        self.R = np.divide(C, self.scale, out=np.zeros_like(C), where=self.scale > 0)
        self.P = self.R.copy()
        self.square = (self.scale > 0).astype(float)  # ‖r‖², relative to ‖c‖²
        self.size = np.ones(k) if metric is None else np.linalg.norm(metric * self.R, axis=0)
        self.norm = self.square.copy()
        self.a = np.ones(k)
        self.b = np.zeros(k)
        self.rho = np.ones_like(self.delta)
        self.zeta = np.ones_like(self.delta)
        self.frozen = np.zeros(self.delta.shape, dtype=bool)
        self.frozen[:, self.scale == 0] = True
        self.n_iter = 0
        self.observers: list[tuple[Callable[[Array], Array], ShiftedSum]] = []
        self.iterates = self.observe(lambda R: R, block=BLOCK)

    def observe(self, image: Callable[[Array], Array], block: int = 1) -> ShiftedSum:
        """Follow a linear function of the iterates, given for columns: (n, k') to (d, k')."""
        assert self.n_iter == 0
        follower = ShiftedSum(image(self.R), len(self.delta), block)
        self.observers.append((image, follower))
        return follower

    @property
    def residual(self) -> Array:
        """‖residual‖/‖c‖ for every alpha and column."""
        return self.zeta * self.norm

    @property
    def active(self) -> Array:
        """Columns with an alpha that has not been frozen."""
        return np.flatnonzero(~self.frozen.all(axis=0))

    def freeze(self, which: Array) -> None:
        """Let the iterates of some alphas, given by a mask of shape (n_alphas,), change no more."""
        self.frozen[which] = True

    def step(self) -> bool:
        """One iteration; False, with nothing done, if everything is frozen."""
        on = self.active
        if not len(on):
            return False
        P = self.P[:, on]
        GP = self.product(P) + self.seed[on] * P
        curvature = np.einsum("ij,ij->j", P, GP)
        if not np.isfinite(curvature).all():
            raise overflow_error()
        # No curvature left: the residual is zero but for rounding.
        alive = curvature > 0
        a = np.divide(self.square[on], curvature, out=np.zeros(len(on)), where=alive)
        growth = a * self.b[on] / self.a[on]
        rho = 1.0 / (1.0 + self.delta[:, on] * a + growth * (1.0 - self.rho[:, on]))
        R = self.R[:, on] - a * GP
        square = np.where(alive, np.einsum("ij,ij->j", R, R), 0.0)
        b = np.divide(square, self.square[on], out=np.zeros(len(on)), where=self.square[on] > 0)
        moving = ~self.frozen[:, on]
        zeta = np.where(moving, self.zeta[:, on] * rho, self.zeta[:, on])
        steps = np.where(moving, a * rho, 0.0)
        self.R[:, on] = R
        self.P[:, on] = R + b * P
        self.square[on], self.a[on], self.b[on] = square, np.where(alive, a, 1.0), b
        self.norm[on] = self._norm(R, square, on)
        self.rho[:, on], self.zeta[:, on] = rho, zeta
        self.n_iter += 1
        for image, follower in self.observers:
            follower.advance(on, steps)
            follower.turn(on, image(R), zeta, b * rho**2)
        self.frozen[:, on] |= (self.residual[:, on] <= self.tol) | ~alive
        return True

    def _norm(self, R: Array, square: Array, on: Array) -> Array:
        if self.metric is None:
            return np.sqrt(square)
        return np.linalg.norm(self.metric * R, axis=0) / self.size[on]

    def solutions(self) -> Array:
        """The iterates W of all alphas, shape (n_alphas, n, k)."""
        return self.iterates.all() * self.scale

    def solution(self, index: int) -> Array:
        """The iterate of one alpha, shape (n, k)."""
        return self.iterates.one(index) * self.scale


class ShiftedSum:
    """x ← x + a p,  p ← ζ r + b p for every alpha, where r is the same for all of them.

    The d-vectors x and p of every alpha are brought up to date once in ``block`` steps, by a
    product of matrices; in between only their coefficients on the r of the block are kept.

    Parameters
    ----------
    r : ndarray of shape (d, k)
        The first r.
    n_alphas : int
    block : int
    """

    def __init__(self, r: Array, n_alphas: int, block: int) -> None:
        d, k = r.shape
        self.block = block
        self.r = np.zeros((k, block, d))
        self.x = np.zeros((k, n_alphas, d))
        self.p = np.zeros((k, n_alphas, d))
        # x = x_old + x_p p_old + x_r · r,  p = p_p p_old + p_r · r
        self.x_p, self.p_p = np.zeros((k, n_alphas)), np.zeros((k, n_alphas))
        self.x_r, self.p_r = np.zeros((k, n_alphas, block)), np.zeros((k, n_alphas, block))
        self.used = 1
        self.r[:, 0] = r.T
        self.p_r[:, :, 0] = 1.0

    def advance(self, on: Array, a: Array) -> None:
        """x ← x + a p for columns ``on``, a of shape (n_alphas, len(on))."""
        a = a.T
        self.x_p[on] += a * self.p_p[on]
        self.x_r[on] += a[:, :, None] * self.p_r[on]

    def turn(self, on: Array, r: Array, zeta: Array, b: Array) -> None:
        """p ← ζ r + b p, r of shape (d, len(on)), ζ and b of shape (n_alphas, len(on))."""
        if self.used == self.block:
            self._flush()
        self.p_p[on] *= b.T
        self.p_r[on] *= b.T[:, :, None]
        self.r[on, self.used] = r.T
        self.p_r[on, :, self.used] = zeta.T
        self.used += 1

    def _flush(self) -> None:
        # Larger alphas are frozen first: beyond the last that still moves nothing changes.
        moving = np.flatnonzero((self.x_p != 0).any(axis=0) | (self.x_r != 0).any(axis=(0, 2)))
        top = int(moving[-1]) + 1 if len(moving) else 0
        x, p = self.x[:, :top], self.p[:, :top]
        x += self.x_p[:, :top, None] * p
        x += self.x_r[:, :top] @ self.r
        p *= self.p_p[:, :top, None]
        p += self.p_r[:, :top] @ self.r
        self.x_p[:], self.p_p[:] = 0.0, 1.0
        self.x_r[:], self.p_r[:] = 0.0, 0.0
        self.used = 0

    def all(self) -> Array:
        """X for every alpha, shape (n_alphas, d, k)."""
        x = self.x + self.x_p[:, :, None] * self.p + self.x_r @ self.r
        return np.moveaxis(x, 0, 2)

    def one(self, index: int) -> Array:
        """X for one alpha, shape (d, k)."""
        x = self.x[:, index] + self.x_p[:, index, None] * self.p[:, index]
        x += (self.x_r[:, index, None] @ self.r)[:, 0]
        return x.T


def overflow_error() -> ValueError:
    """What to tell when numbers are no longer finite."""
    return ValueError("the numbers overflow: scale the features, the scores or the weights down")
