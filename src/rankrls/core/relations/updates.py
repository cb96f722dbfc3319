"""Update complete relations for changed objects and labels without a new decomposition.

A complete relation is solved in the eigenvectors of its two kernel matrices. Let U and σ be the
eigenvectors and eigenvalues of one side. Every column of Y U is then a ridge regression over the
objects of the other side, with the matrix σK + alpha I. If objects of that side are added or
removed, its decomposition K = V diag(λ) Vᵀ can still be used:

- an added object borders the matrix with one more row and column;
- a removed object has zero coefficients, and its label is free.

Each column is solved with V and a small system, with one equation per change. An unobserved label
is free in the same way: it takes the value for which its coefficient is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from rankrls.core.relations.complete import damped
from rankrls.core.relations.relation_problem import RelationModel, RelationProblem
from rankrls.core.relations.sides import Side, Spectrum

__all__ = ["ChangedSide", "solve_changed"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Maximal number of changed objects, and their maximal fraction, before a new decomposition.
MAX_CHANGES, MAX_SHARE = 64, 1 / 8
#: Maximal number of unobserved labels, and of rows or columns that contain them.
MAX_GAPS, MAX_LINES = 2000, 64
#: Relative rounding error of predictions above which the kernel matrix is decomposed again.
ACCURATE = 1e-9


@dataclass(frozen=True)
class ChangedSide:
    """Objects of a side, with those added or removed since its decomposition.

    Attributes
    ----------
    base : Side of n₀ objects
        The side as it is decomposed. The decomposition is computed when it is first needed.
    K : ndarray of shape (n₁, n₁), or None
        Kernel matrix of the objects of ``base`` and of all added objects, including those removed
        later. None means the kernel matrix of ``base``.
    present : ndarray of shape (n,), int
        Indices of the present objects in ``K``.
    """

    base: Side
    K: Array | None
    present: Array

    @classmethod
    def of(cls, side: Side) -> ChangedSide:
        """Wrap a side without changes."""
        return cls(side, None, np.arange(len(side)))

    def __len__(self) -> int:
        return len(self.present)

    @property
    def matrix(self) -> Array:
        """Kernel matrix of the objects of ``base`` and all added objects."""
        return self.base.K if self.K is None else self.K

    @property
    def n_changes(self) -> int:
        """Number of present added objects plus number of removed objects of ``base``."""
        n_added = int((self.present >= len(self.base)).sum())
        return n_added + len(self.base) - (len(self) - n_added)

    @property
    def side(self) -> Side:
        """The present objects, without a decomposition if they have changed."""
        return Side(self.matrix[np.ix_(*[self.present] * 2)]) if self.n_changes else self.base

    def add(self, between: Array, among: Array) -> ChangedSide:
        """Add t objects.

        Parameters
        ----------
        between : ndarray of shape (n₁, t)
            Kernel values between the objects of ``matrix`` and the new objects.
        among : ndarray of shape (t, t)
            Kernel values among the new objects.
        """
        K = np.block([[self.matrix, between], [between.T, among]])
        new = np.arange(len(self.matrix), len(K))
        return ChangedSide(self.base, K, np.append(self.present, new))

    def keep(self, kept: Array) -> ChangedSide:
        """Keep some of the present objects, given by ascending indices."""
        return ChangedSide(self.base, self.K, self.present[kept])

    @property
    def few(self) -> bool:
        """Whether the number of changes is small enough to keep the decomposition."""
        return self.n_changes <= max(1, min(MAX_CHANGES, MAX_SHARE * len(self.base)))

    def settled(self) -> ChangedSide:
        """Return the side with a new decomposition if objects were added or removed."""
        return ChangedSide.of(self.side)


def solve_changed(
    problem: RelationProblem, sides: tuple[ChangedSide, ChangedSide], alpha: float
) -> tuple[RelationModel, tuple[ChangedSide, ChangedSide]] | None:
    """Compute the coefficients of a relation after changes of its objects.

    Parameters
    ----------
    problem : RelationProblem
        A problem with ``pairwise="kronecker"``, two different sides and no sign. Each pair has at
        most one label.
    sides : tuple of two ChangedSide
        The two sides of the problem.
    alpha : float

    Returns
    -------
    model : RelationModel
    sides : tuple of two ChangedSide
        The sides, with new decompositions where they were needed.

    None is returned instead if there are too many gaps or rounding errors would be too large.
    """
    free = problem.free
    centred = (free.columns, free.rows)  # which decompositions are centred
    gaps = _Gaps.of(problem)
    if gaps is None:
        return None
    settled = [
        side if not side.n_changes or (side.few and not centre) else side.settled()
        for side, centre in zip(sides, centred, strict=True)
    ]
    if all(side.n_changes for side in settled):  # one decomposition can be kept
        smaller = int(len(settled[1]) < len(settled[0]))
        settled[smaller] = settled[smaller].settled()
    changed = 0 if settled[0].n_changes else 1 if settled[1].n_changes else gaps.fewer
    if gaps.n_lines(changed) > MAX_LINES:
        if settled[changed].n_changes:
            return None
        changed = 1 - changed
        if gaps.n_lines(changed) > MAX_LINES:
            return None
    other = settled[1 - changed].base.spectrum(centred=centred[1 - changed])
    own = settled[changed].base.spectrum(centred=centred[changed])
    rounding = EPS * own.top * other.top * np.sqrt(len(settled[changed])) / alpha
    if rounding > ACCURATE:
        return None
    A = _coefficients(
        settled[changed],
        own.complete,
        other.complete if len(gaps) or free.constant else other.range,  # sums over all
        gaps if changed == 0 else gaps.T,
        alpha,
        constant=free.constant,
    )
    if A is None:
        return None
    model = RelationModel((A if changed == 0 else A.T)[None], "closed", 1)
    return problem.with_offsets(model), (settled[0], settled[1])


@dataclass(frozen=True)
class _Gaps:
    """Labels of shape (n, g), with the few unobserved places (rows, cols)."""

    Y: Array
    rows: Array
    cols: Array

    @classmethod
    def of(cls, problem: RelationProblem) -> _Gaps | None:
        observations = problem.observations
        none = np.empty(0, dtype=np.int64)
        if observations.matrix is not None:
            return cls(observations.matrix, none, none)
        p, g = observations.shape
        rows, cols, y = observations.lists
        if not 0 <= p * g - len(y) <= MAX_GAPS:
            return None
        Y = np.full((p, g), np.nan)
        Y[rows, cols] = y
        places = np.nonzero(np.isnan(Y))
        return cls(Y, *places) if len(places[0]) == p * g - len(y) else None  # no pair twice

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def T(self) -> _Gaps:
        """The transposed labels and places."""
        return _Gaps(self.Y.T, self.cols, self.rows)

    def n_lines(self, axis: int) -> int:
        """Return the number of rows (0) or columns (1) with a gap."""
        return len(np.unique((self.rows, self.cols)[axis]))

    @property
    def fewer(self) -> int:
        """The axis with fewer lines that contain a gap: rows (0) or columns (1)."""
        return int(self.n_lines(1) < self.n_lines(0))


def _coefficients(
    side: ChangedSide, own: Spectrum, other: Spectrum, gaps: _Gaps, alpha: float, *, constant: bool
) -> Array | None:
    """Compute A of shape (n, g), with row objects ``side``; None if a system is not definite."""
    regressions = _Regressions.of(side, own, other.values, alpha)
    if regressions is None:
        return None
    U = other.vectors
    places = (gaps.rows, gaps.cols)
    lines, line = np.unique(gaps.rows, return_inverse=True)
    factor = _factor_of_gaps(regressions, lines, line, U[gaps.cols]) if len(gaps) else None

    def solved(labels: Array) -> Array:
        right = regressions.read(labels @ U)
        if factor is not None:
            at_gaps = regressions.write(regressions.solve(right), lines)[line]
            free = cho_solve(factor, np.vecdot(at_gaps, U[gaps.cols]), check_finite=False)
            table = np.zeros((len(lines), U.shape[1]))
            np.add.at(table, line, free[:, None] * U[gaps.cols])
            right = right.minus(regressions.read(table, lines))
        A = regressions.write(regressions.solve(right)) @ U.T
        A[places] = 0.0
        return A

    Y = gaps.Y - _levels(gaps.Y, own, other, constant=constant)
    Y[places] = 0.0
    A = solved(Y)
    if constant:  # such that the coefficients sum to zero
        ones = solved(np.ones_like(Y))
        A -= A.sum() / ones.sum() * ones
    return A


def _levels(Y: Array, own: Spectrum, other: Spectrum, *, constant: bool) -> Any:
    """Compute means to subtract, so that large free offsets cost no digits; Y may contain NaN."""
    if other.centred or own.centred:
        axis = 1 if other.centred else 0
        seen = np.maximum((~np.isnan(Y)).sum(axis=axis, keepdims=True), 1)
        return np.nansum(Y, axis=axis, keepdims=True) / seen
    return np.nanmean(Y) if constant else 0.0


def _factor_of_gaps(regressions: _Regressions, lines: Array, line: Array, U: Array) -> Any:
    """Cholesky factor of the matrix from labels at the q gaps to coefficients at the gaps.

    Parameters
    ----------
    regressions : _Regressions
    lines : ndarray of shape (r,), int
        Objects with gaps.
    line : ndarray of shape (q,), int
        Index into ``lines`` for each gap.
    U : ndarray of shape (q, s)
        Eigenvectors of the other side at the gaps.
    """
    N = np.empty((len(line), len(line)))
    members = [np.flatnonzero(line == number) for number in range(len(lines))]
    ones = np.ones((1, U.shape[1]))
    for a, own in enumerate(members):
        right = regressions.read(ones, lines[[a]])
        responses = regressions.write(regressions.solve(right), lines)
        for others, response in zip(members, responses, strict=True):
            N[np.ix_(own, others)] = (U[own] * response) @ U[others].T
    return cho_factor(N, lower=True, overwrite_a=True, check_finite=False)


class _Coordinates(NamedTuple):
    """Labels or coefficients in the eigenvectors (n₀, s) and for added objects (t, s)."""

    base: Array
    added: Array

    def minus(self, other: _Coordinates) -> _Coordinates:
        return _Coordinates(self.base - other.base, self.added - other.added)


class _Regressions:
    """(σK + alpha I)⁻¹ over the present objects, for every eigenvalue σ of the other side.

    Notes
    -----
    Let M = V diag(1/(λσ + alpha)) Vᵀ over the objects of the decomposition. Let B be the kernel
    values between these and the added objects, N the kernel matrix of the added objects, and E
    the columns of I that belong to removed objects. The coefficients x of the decomposed objects
    and z of the added objects satisfy

        [σN + alpha I − σ²BᵀMB    −σBᵀME] [z]   [y_added − σBᵀMy]
        [−σEᵀMB                   −EᵀME ] [μ] = [−EᵀMy          ],     x = M(y − σBz − Eμ).
    """

    def __init__(
        self, side: ChangedSide, own: Spectrum, D: Array, W: Array, scale: Array, system: Array
    ) -> None:
        self.D, self.W, self.scale, self.system = D, W, scale, system
        self.kept = side.present < len(side.base)
        self.n_added = int((~self.kept).sum())
        # Index of every object in the decomposition, or among the added objects.
        self.place = np.where(self.kept, np.cumsum(self.kept), np.cumsum(~self.kept)) - 1
        self.V = own.vectors[side.present[self.kept]] if side.n_changes else own.vectors

    @classmethod
    def of(
        cls, side: ChangedSide, own: Spectrum, sigma: Array, alpha: float
    ) -> _Regressions | None:
        """Factorise the systems; None if one is not definite at floating-point precision."""
        V, K, n_base = own.vectors, side.matrix, len(side.base)
        D = damped(np.outer(own.values, sigma), alpha)  # (n₀, s)
        added = side.present[side.present >= n_base]
        removed = np.setdiff1d(np.arange(n_base), side.present)
        W = np.hstack([V.T @ K[:n_base, added], V[removed].T])
        n_added, k = len(added), W.shape[1]
        scale = np.ones((len(sigma), k))
        scale[:, :n_added] = sigma[:, None]
        system = np.empty((len(sigma), k, k))
        for u in range(k):
            system[:, u] = -(D.T @ (W * W[:, [u]])) * scale * scale[:, [u]]
        new = system[:, :n_added, :n_added]
        new += np.multiply.outer(sigma, K[np.ix_(added, added)])
        new += alpha * np.eye(n_added)
        diagonal = np.einsum("sii->si", system)
        if (diagonal[:, :n_added] <= 0).any() or (diagonal[:, n_added:] >= 0).any():
            return None
        return cls(side, own, D, W, scale, system)

    def read(self, Y: Array, rows: Array | None = None) -> _Coordinates:
        """Coordinates of labels Y (r, s) of the objects ``rows``; other labels are zero."""
        if rows is None:
            return _Coordinates(self.V.T @ Y[self.kept], Y[~self.kept])
        kept, place = self.kept[rows], self.place[rows]
        added = np.zeros((self.n_added, Y.shape[1]))
        added[place[~kept]] = Y[~kept]
        return _Coordinates(self.V[place[kept]].T @ Y[kept], added)

    def write(self, X: _Coordinates, rows: Array | None = None) -> Array:
        """Coefficients (r, s) of the present objects ``rows``, all by default."""
        kept, place = (
            (self.kept, self.place) if rows is None else (self.kept[rows], self.place[rows])
        )
        V = self.V if rows is None else self.V[place[kept]]
        out = np.empty((len(kept), X.base.shape[1]))
        out[kept], out[~kept] = V @ X.base, X.added[place[~kept]]
        return out

    def solve(self, right: _Coordinates) -> _Coordinates:
        """Solve for the coefficients of given labels."""
        D, W, scale = self.D, self.W, self.scale
        T, added = right
        if not W.shape[1]:
            return _Coordinates(D * T, added)
        small = -(W.T @ (D * T)).T * scale
        small[:, : self.n_added] += added.T
        # Scale the system, because entries of the two blocks differ by orders of magnitude.
        size = 1.0 / np.sqrt(np.abs(np.einsum("sii->si", self.system)))
        scaled = self.system * size[:, :, None] * size[:, None, :]
        z = size * np.linalg.solve(scaled, (size * small)[..., None])[..., 0]
        return _Coordinates(D * (T - W @ (scale * z).T), z[:, : self.n_added].T)
