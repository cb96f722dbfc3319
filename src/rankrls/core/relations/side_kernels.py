"""Sums of kernels of one side of a relation, and kernels computed from labels.

Three kernels need no features: "identity" (an object is similar to itself only), "profile"
(objects with similar labels are similar) and "constant" (all objects are equally similar).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.observations import Observations
from rankrls.core.relations.offsets import FreeOffsets, TableOffsets
from rankrls.core.relations.sides import Side
from rankrls.core.spaces.spaces import Kernel

__all__ = [
    "FEATURELESS",
    "KernelSum",
    "ProfiledSide",
    "is_featureless",
    "mixed_profiles",
    "profile_gamma",
    "profile_kernel",
]

Array = NDArray[Any]

#: Kernels that do not use features.
FEATURELESS = ("identity", "profile", "constant")

#: Kernels that are positive semi-definite for all features.
POSITIVE = (*FEATURELESS, "linear", "rbf", "laplacian", "cosine", "chi2")


@dataclass(frozen=True)
class KernelSum:
    """Σ w k(x, x') over several kernels of the same objects.

    Attributes
    ----------
    kernels : tuple of Kernel
        The kernels. A metric may be one of `FEATURELESS`.
    weights : ndarray of shape (n_kernels,)
        The weights w ≥ 0.
    """

    kernels: tuple[Kernel, ...]
    weights: Array

    linear = False

    @property
    def metric(self) -> list[Any]:
        """The metrics of all kernels."""
        return [kernel.metric for kernel in self.kernels]

    @property
    def precomputed(self) -> bool:
        """Whether X consists of precomputed kernel matrices, stacked horizontally."""
        return self.n_blocks > 0

    @property
    def n_blocks(self) -> int:
        """Number of kernel matrices in X."""
        return sum(kernel.precomputed for kernel in self.kernels)

    @property
    def featureless(self) -> bool:
        """Whether no kernel uses features."""
        return all(is_featureless(kernel) for kernel in self.kernels)

    @property
    def blind(self) -> bool:
        """Whether all kernel values of an object without features and labels are zero."""
        return all(kernel.metric in ("identity", "profile") for kernel in self.kernels)

    @property
    def profiles(self) -> list[tuple[float, float]]:
        """Weights and gammas of the profile kernels."""
        return [(w, profile_gamma(kernel)) for w, kernel in self if kernel.metric == "profile"]

    @property
    def positive(self) -> bool:
        """Whether all kernels are known to be positive semi-definite."""
        return all(kernel.metric in POSITIVE for kernel in self.kernels)

    @property
    def identity_weight(self) -> float:
        """Total weight of the identity kernels."""
        return float(sum(w for w, kernel in self if kernel.metric == "identity"))

    @property
    def profiled(self) -> bool:
        """Whether a kernel is computed from labels."""
        return any(kernel.metric == "profile" for kernel in self.kernels)

    def __iter__(self) -> Any:
        """Iterate over pairs of a weight and a kernel."""
        return zip(self.weights.tolist(), self.kernels, strict=True)


def is_featureless(kernel: Kernel) -> bool:
    """Whether the metric of a kernel is one of `FEATURELESS`."""
    return isinstance(kernel.metric, str) and kernel.metric in FEATURELESS


def profile_gamma(kernel: Kernel) -> float:
    """Return the parameter gamma of a profile kernel, 1 by default."""
    return float(kernel.params.get("gamma") or 1.0)


def profile_kernel(observations: Observations, free: FreeOffsets) -> Array:
    """Compute the Gaussian kernel of the labels of the row objects, shape (p, p).

    The profile of an object is its row of labels minus the offsets of the model (at least the
    mean of all labels). Unobserved entries are zero. The width is the mean squared length of the
    profiles (van Laarhoven, Nabuurs, Marchiori, Bioinformatics 27, 2011). An object without labels
    has no profile, and its kernel values are zero. Powers of the values give other widths.
    """
    cells = observations.cells
    p, _ = observations.shape
    if not len(cells):
        return np.zeros((p, p))
    free = free if free.rows or free.columns else FreeOffsets(constant=True)
    y = cells.y - TableOffsets(cells, free).fit(cells, cells.y).at(cells.rows, cells.cols)
    table = sparse.csr_array((y, (cells.rows, cells.cols)), shape=observations.shape)
    dense = 5 * len(cells) > p * observations.shape[1]
    P = table.toarray() if dense else table
    S = P @ P.T
    S = S if dense else S.toarray()
    square = S.diagonal().copy()
    seen = np.bincount(cells.rows, minlength=p) > 0
    width = float(square[seen].mean())
    rounding = 16.0 * np.finfo(float).eps * float(np.abs(cells.y).max())  # labels minus offsets
    width = width if width > len(cells) * rounding**2 else 1.0
    S *= 2.0
    S -= square
    S -= square[:, None]
    np.minimum(S, 0.0, out=S)
    S /= width
    np.exp(S, out=S)
    S[~seen] = 0.0
    S[:, ~seen] = 0.0
    return S


class ProfiledSide(Side):
    """Objects with a kernel that is partly computed from their labels.

    Parameters
    ----------
    fixed : ndarray of shape (n, n)
        The kernel matrix without profiles.
    parts : list of (weight, gamma)
        Profile kernels of different widths.
    profile : ndarray of shape (n, n)
        The profile kernel of all labels with gamma = 1.
    free : FreeOffsets
        The offsets subtracted from labels, with these objects as rows.
    floor : float
        As in `Side`.
    """

    profiled = True

    def __init__(
        self,
        fixed: Array,
        parts: list[tuple[float, float]],
        profile: Array,
        free: FreeOffsets,
        *,
        floor: float = 0.0,
    ) -> None:
        super().__init__(fixed + mixed_profiles(parts, profile), floor=floor)
        self._fixed, self._parts, self._free = fixed, parts, free

    def given(self, observations: Observations) -> Side:
        """Return the objects with profiles computed from ``observations`` only."""
        profile = profile_kernel(observations, self._free)
        return ProfiledSide(self._fixed, self._parts, profile, self._free, floor=self.floor)


def mixed_profiles(parts: list[tuple[float, float]], profile: Array) -> Array:
    """Sum profile kernels with given weights and gammas; the shape is that of ``profile``."""
    out = np.zeros_like(profile)
    for weight, gamma in parts:
        out += weight * (profile if gamma == 1.0 else profile**gamma)
    return out
