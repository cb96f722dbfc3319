"""Conjugate gradients for (G + alpha I) w = c, for all alphas from one Krylov sequence.

All systems of a grid share the Krylov space of G and c. Conjugate gradients for the smallest alpha
(the seed) compute residuals r_j. For any larger alpha the residual is ζ_j r_j, with a number ζ_j in
(0, 1] that follows from the two coefficients of the seed. One product with G per iteration is
therefore enough for the whole grid. Any linear function of the iterates (the coefficients
themselves, or predictions for other rows) follows from its image of r_j by the same recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

__all__ = ["DirectionSum", "MultiShiftCG", "ShiftedSum", "overflow_error"]

Array = NDArray[Any]

#: Number of residuals collected before coefficients are updated in one matrix product.
BLOCK = 16


class MultiShiftCG:
    """Conjugate gradients for (G + alpha I) W = C, all alphas and columns of C.

    ``step`` performs one iteration, with a single product for the columns that have not converged.

    Parameters
    ----------
    product : function
        V ↦ G V for V of shape (n, k'), G symmetric positive semi-definite of shape (n, n).
    C : ndarray of shape (n, k)
    alphas : ndarray of shape (n_alphas,) or (n_alphas, k), >= 0, increasing along the first axis
    tol : float or ndarray of shape (k,)
        A column has converged for an alpha when ‖residual‖ <= tol ‖c‖ and, if ``bounded``, the
        error is also small (see Notes). Its iterate is then frozen.
    bounded : bool
        Whether ``tol`` limits the relative error of the iterates as well.
    eps : float
        Precision of the products.
    precondition : function, optional
        (R, columns) ↦ M⁻¹R for R of shape (n, k'), the residuals of the columns with these indices;
        M is symmetric positive definite. Requires one alpha for each column.

    Attributes
    ----------
    n_iter : int
    residual : ndarray of shape (n_alphas, k)
        ‖residual‖/‖c‖ by the recurrence; true residuals must be computed by the caller.
    frozen : ndarray of shape (n_alphas, k), bool
        Iterates that no longer change.
    iterates : ShiftedSum
        The solutions so far.

    Notes
    -----
    With steps a_j = ‖r_j‖²/p_jᵀ(G + σ)p_j and b_j = ‖r_j‖²/‖r_{j−1}‖² of the seed σ and
    ρ_j = ζ_j/ζ_{j−1}, an alpha larger by δ has

        1/ρ_{j+1} = 1 + δ a_j + (a_j b_j/a_{j−1}) (1 − ρ_j)

    and steps a_j ρ_{j+1} and b_{j+1} ρ²_{j+1}. All terms are positive and ρ is at most one, so
    there is no overflow or cancellation.

    If alpha is small, a small residual does not imply a small error e = (G + alpha I)⁻¹ residual.
    An iterate has converged when ‖residual‖ <= tol alpha ‖w‖, since ‖e‖ <= ‖residual‖/alpha, or
    when the residual is of the size of rounding errors, eps ‖G + alpha I‖ ‖w‖.

    The norm of the iterates follows from x_{j+1} ⟂ r_{j+1}:
    xᵀp ← b (xᵀp + a‖p‖²), ‖p‖² ← ‖r‖² + b²‖p‖². With a preconditioner the norms of
    this recurrence are those of M, and r is replaced by M⁻¹r in the update of directions.
    """

    def __init__(
        self,
        product: Callable[[Array], Array],
        C: Array,
        alphas: Array,
        *,
        tol: float | Array,
        bounded: bool = True,
        eps: float = float(np.finfo(np.float64).eps),
        precondition: Callable[[Array, Array], Array] | None = None,
    ) -> None:
        self.product, self.precondition = product, precondition
        self.bounded, self.eps = bounded, eps
        k = C.shape[1]
        self.tol = np.broadcast_to(np.asarray(tol, dtype=float), (k,))
        alphas = alphas[:, None] if alphas.ndim == 1 else alphas
        assert precondition is None or len(alphas) == 1
        self.alphas = np.broadcast_to(alphas, (len(alphas), k))
        self.seed = self.alphas[0]
        self.delta = self.alphas - self.seed
        self.scale = np.linalg.norm(C, axis=0)
        if not np.isfinite(self.scale).all():
            raise overflow_error()
        self.R = np.divide(C, self.scale, out=np.zeros_like(C), where=self.scale > 0)
        Z = self.R if precondition is None else precondition(self.R, np.arange(k))
        self.P = Z.copy()
        self.square = np.einsum("ij,ij->j", self.R, Z)  # rᵀM⁻¹r, relative to ‖c‖²
        self.start = np.where(self.square > 0, np.sqrt(self.square), 1.0)
        self.norm = (self.scale > 0).astype(float)
        self.a = np.ones(k)
        self.b = np.zeros(k)
        self.rho = np.ones_like(self.delta)
        self.zeta = np.ones_like(self.delta)
        self.frozen = np.zeros(self.delta.shape, dtype=bool)
        self.frozen[:, self.square <= 0] = True
        self.sizes = _Sizes(self.square, len(alphas))
        self.last_size: Array | None = None
        self.coefficients: list[tuple[Array, Array]] = []
        self.made = np.zeros(k, dtype=np.int64)  # iterations of each column
        self.n_iter = 0
        self.work = np.empty_like(self.P)
        self.observers: list[tuple[Callable[[Array], Array], ShiftedSum]] = []
        self.followers: list[tuple[Callable[[], Array], DirectionSum]] = []
        self.iterates: ShiftedSum | DirectionSum
        if len(alphas) > 1:
            self.iterates = self.observe(lambda R: R, block=BLOCK)
        else:
            self.iterates = DirectionSum(self.P.shape, self.P.dtype)

    def observe(self, image: Callable[[Array], Array], block: int = 1) -> ShiftedSum:
        """Follow a linear function of the iterates, given for columns: (n, k') to (d, k')."""
        assert self.n_iter == 0
        follower = ShiftedSum(image(self.P), len(self.delta), block)
        self.observers.append((image, follower))
        return follower

    def follow(self, latest: Callable[[], Array], n_rows: int) -> DirectionSum:
        """Follow a linear function of the iterates computed with the products, for one alpha.

        Parameters
        ----------
        latest : function
            Returns its values for the columns of the last product, shape (n_rows, k').
        n_rows : int
        """
        assert self.n_iter == 0
        assert len(self.delta) == 1
        follower = DirectionSum((n_rows, self.P.shape[1]), np.float64)
        self.followers.append((latest, follower))
        return follower

    @property
    def residual(self) -> Array:
        """‖residual‖/‖c‖ for each alpha and column."""
        return self.zeta * self.norm

    @property
    def active(self) -> Array:
        """Columns with an alpha that has not been frozen."""
        return np.flatnonzero(~self.frozen.all(axis=0))

    def freeze(self, which: Array) -> None:
        """Freeze the iterates of some alphas, given by a mask of shape (n_alphas,)."""
        self.frozen[which] = True

    def step(self) -> bool:
        """Do one iteration; return False, without doing anything, if everything is frozen."""
        on = self.active
        if not len(on):
            return False
        # Use views if all columns are active, to avoid copies of large vectors.
        whole = len(on) == self.P.shape[1]
        columns: Any = slice(None) if whole else on
        P, R, work = self.P[:, columns], self.R[:, columns], self.work[:, : len(on)]
        GP = self.product(P)
        if self.seed[on].any():
            GP = GP + np.multiply(P, self.seed[on], out=work)
        curvature = np.einsum("ij,ij->j", P, GP)
        if not np.isfinite(curvature).all():
            raise overflow_error()
        # No curvature: the residual is zero up to rounding.
        alive = curvature > 0
        a = np.divide(self.square[on], curvature, out=np.zeros(len(on)), where=alive)
        growth = a * self.b[on] / self.a[on]
        rho = 1.0 / (1.0 + self.delta[:, on] * a + growth * (1.0 - self.rho[:, on]))
        R -= np.multiply(GP, a, out=work)
        Z = R if self.precondition is None else self.precondition(R, on)
        square = np.where(alive, np.einsum("ij,ij->j", R, Z), 0.0)
        b = np.divide(square, self.square[on], out=np.zeros(len(on)), where=self.square[on] > 0)
        moving = ~self.frozen[:, on]
        zeta = np.where(moving, self.zeta[:, on] * rho, self.zeta[:, on])
        steps = np.where(moving, a * rho, 0.0)
        if isinstance(self.iterates, DirectionSum):
            self.iterates.add(columns, np.multiply(P, steps[0], out=work))
        for latest, along in self.followers:
            along.add(columns, steps[0] * latest())
        P *= b
        P += Z
        if not whole:
            self.R[:, on], self.P[:, on] = R, P
        self.square[on], self.a[on], self.b[on] = square, np.where(alive, a, 1.0), b
        self.norm[on] = np.sqrt(square) if self.precondition is None else np.linalg.norm(R, axis=0)
        self.rho[:, on], self.zeta[:, on] = rho, zeta
        self.sizes.advance(on, curvature, a * rho, b, b * rho**2, steps, zeta, square)
        self.coefficients.append((self.a.copy(), self.b.copy()))
        self.made[on] += alive
        self.n_iter += 1
        for image, follower in self.observers:
            follower.advance(on, steps)
            follower.turn(on, image(Z), zeta, b * rho**2)
        self.frozen[:, on] |= self._converged(on) | ~alive
        return True

    def _converged(self, on: Array) -> Array:
        """Whether iterates have converged (see Notes), shape (n_alphas, len(on))."""
        tol, alphas, residual = self.tol[on], self.alphas[:, on], self.residual[:, on]
        # The norm that is minimised is that of M⁻¹.
        norm = self.zeta[:, on] * np.sqrt(self.square[on])
        small = norm <= tol * self.start[on]
        if not self.bounded or not small.any():
            return small
        top = self.sizes.top[on] + self.delta[:, on]
        converged = norm <= self.sizes.of(on, self.eps * top)
        if self.precondition is None:
            converged |= residual <= self.sizes.of(on, tol * alphas)
        else:
            # This norm does not follow from the recurrence, but hardly changes at this point.
            if self.last_size is None or self.n_iter % BLOCK == 0:
                self.last_size = np.linalg.norm(self.iterates.one(0), axis=0)
            converged |= residual <= tol * alphas * self.last_size[on]
        return small & (residual <= tol) & converged

    def smallest_ritz(self, column: int) -> float:
        """The smallest Ritz value of G + seed (of M⁻¹(G + seed)) in the Krylov space of a column.

        They are the eigenvalues of the tridiagonal matrix with the diagonal
        1/a_j + b_j/a_{j−1} and √b_{j+1}/a_j beside it.
        """
        made = self.coefficients[: self.made[column]]
        if not made:
            return np.inf
        a = np.array([a[column] for a, _ in made])
        b = np.array([b[column] for _, b in made[:-1]])
        diagonal = 1.0 / a
        diagonal[1:] += b / a[:-1]
        beside = np.sqrt(b) / a[:-1]
        size = float(diagonal.max())  # squares of entries must not overflow
        values = eigvalsh_tridiagonal(
            diagonal / size, beside / size, select="i", select_range=(0, 0)
        )
        return max(float(values[0]) * size, float(self.seed[column]))

    def solutions(self) -> Array:
        """The iterates W of all alphas, shape (n_alphas, n, k)."""
        return self.iterates.all() * self.scale

    def solution(self, index: int) -> Array:
        """The iterate of one alpha, shape (n, k)."""
        return self.iterates.one(index) * self.scale


class _Sizes:
    """Norms of the iterates of every alpha and column: the last recurrence of `MultiShiftCG`.

    Steps are measured in units of the first step of their alpha, so that no alpha overflows.

    Parameters
    ----------
    square : ndarray of shape (k,)
        ‖r‖² of the first residual.
    n_alphas : int

    Attributes
    ----------
    top : ndarray of shape (k,)
        The largest pᵀ(G + seed)p/‖p‖² so far, approximately ‖G + seed‖.
    """

    def __init__(self, square: Array, n_alphas: int) -> None:
        shape = (n_alphas, len(square))
        self.unit = np.zeros(shape)
        self.xx, self.xp = np.zeros(shape), np.zeros(shape)
        self.pp = np.repeat(square[None], n_alphas, axis=0)
        self.seed_pp = square.copy()
        self.top = np.zeros(len(square))

    def advance(
        self,
        on: Array,
        curvature: Array,
        first: Array,
        b: Array,
        b_alpha: Array,
        steps: Array,
        zeta: Array,
        square: Array,
    ) -> None:
        """One iteration of columns ``on``: x ← x + steps p,  p ← ζ r + b p.

        ``curvature``, ``b`` and ``square`` = ‖r‖² are the seed's, shape (len(on),); the others
        have the shape (n_alphas, len(on)). ``first`` is the unit of the first steps.
        """
        rayleigh = np.divide(
            curvature, self.seed_pp[on], out=np.zeros(len(on)), where=self.seed_pp[on] > 0
        )
        self.top[on] = np.maximum(self.top[on], rayleigh)
        self.seed_pp[on] = square + b**2 * self.seed_pp[on]
        new = self.unit[:, on] == 0
        self.unit[:, on] = unit = np.where(new, first, self.unit[:, on])
        s = np.divide(steps, unit, out=np.zeros_like(steps), where=unit > 0)
        pp, xp = self.pp[:, on], self.xp[:, on]
        self.xx[:, on] += s * (2 * xp + s * pp)
        self.xp[:, on] = b_alpha * (xp + s * pp)
        self.pp[:, on] = zeta**2 * square + b_alpha**2 * pp

    def of(self, on: Array, factor: Array) -> Array:
        """Factor · ‖x‖ for columns ``on``, both of shape (n_alphas, len(on))."""
        return factor * self.unit[:, on] * np.sqrt(self.xx[:, on])


class DirectionSum:
    """x ← x + a p for one alpha, with p the directions themselves.

    Parameters
    ----------
    shape : tuple of int
        (d, k).
    dtype : of x
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.x = np.zeros(shape, dtype=dtype)

    def add(self, columns: Any, step: Array) -> None:
        """x ← x + step for some columns."""
        self.x[:, columns] += step

    def all(self) -> Array:
        """X, shape (1, d, k)."""
        return self.x[None]

    def one(self, index: int) -> Array:
        """X, shape (d, k)."""
        return self.x


class ShiftedSum:
    """x ← x + a p,  p ← ζ r + b p for every alpha, where r is the same for all of them.

    The d-vectors x and p of each alpha are updated once in ``block`` steps, by a matrix product; in
    between only their coefficients on the r of the block are stored.

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
        # Larger alphas are frozen first, so nothing changes beyond the last active one.
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
    """Error for numbers that are no longer finite."""
    return ValueError("the numbers overflow; scale the features, the scores or the weights down")
