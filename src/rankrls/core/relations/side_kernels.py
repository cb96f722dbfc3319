"""Several kernels of one side of a relation, added up; kernels of the labels themselves.

Beside kernels of features there are three that need none: "identity" (an object is like itself
only), "profile" (objects with similar labels are similar) and "constant" (all objects are alike).
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

#: Kernels that do not look at features.
FEATURELESS = ("identity", "profile", "constant")

#: Kernels that are positive semi-definite whatever the features are.
POSITIVE = (*FEATURELESS, "linear", "rbf", "laplacian", "cosine", "chi2")


@dataclass(frozen=True)
class KernelSum:
    """Σ w k(x, x') over several kernels of the same objects.

    Attributes
    ----------
    kernels : tuple of Kernel
        The metric of one may be a name of `FEATURELESS`.
    weights : ndarray of shape (n_kernels,)
        w ≥ 0.
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
        """Whether rows of X are rows of kernel matrices, side by side."""
        return self.n_blocks > 0

    @property
    def n_blocks(self) -> int:
        """How many kernel matrices X consists of."""
        return sum(kernel.precomputed for kernel in self.kernels)

    @property
    def featureless(self) -> bool:
        """Whether no kernel looks at features."""
        return all(is_featureless(kernel) for kernel in self.kernels)

    @property
    def blind(self) -> bool:
        """Whether all values of an object without features or labels are zero."""
        return all(kernel.metric in ("identity", "profile") for kernel in self.kernels)

    @property
    def profiles(self) -> list[tuple[float, float]]:
        """Weight and gamma of every profile kernel."""
        return [(w, profile_gamma(kernel)) for w, kernel in self if kernel.metric == "profile"]

    @property
    def positive(self) -> bool:
        """Whether all kernels are known to be positive semi-definite."""
        return all(kernel.metric in POSITIVE for kernel in self.kernels)

    @property
    def identity_weight(self) -> float:
        """The weight of all identity kernels together."""
        return float(sum(w for w, kernel in self if kernel.metric == "identity"))

    @property
    def profiled(self) -> bool:
        """Whether a kernel is made of labels."""
        return any(kernel.metric == "profile" for kernel in self.kernels)

    def __iter__(self) -> Any:
        """Weights and kernels."""
        return zip(self.weights.tolist(), self.kernels, strict=True)


def is_featureless(kernel: Kernel) -> bool:
    """Whether it is a kernel of `FEATURELESS`."""
    return isinstance(kernel.metric, str) and kernel.metric in FEATURELESS


def profile_gamma(kernel: Kernel) -> float:
    """The parameter gamma of a profile kernel, 1 by default."""
    return float(kernel.params.get("gamma") or 1.0)


def profile_kernel(observations: Observations, free: FreeOffsets) -> Array:
    """Gaussian kernel of the labels of the row objects, shape (p, p).

    The profile of an object is its row of labels, less the offsets that the model has too (at
    least the mean of all labels); what is unobserved is zero. The width is the mean squared length
    of profiles (van Laarhoven, Nabuurs, Marchiori, Bioinformatics 27, 2011). An object without
    labels has no profile: its values are zero. Powers of the values are those of other widths.
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
    rounding = 16.0 * np.finfo(float).eps * float(np.abs(cells.y).max())  # of labels less offsets
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
    """Objects whose kernel is, in part, one of their labels.

    Parameters
    ----------
    fixed : ndarray of shape (n, n)
        The kernel matrix without profiles.
    parts : list of (weight, gamma)
        Profile kernels, whose widths differ.
    profile : ndarray of shape (n, n)
        That of all labels with gamma = 1.
    free : FreeOffsets
        What is subtracted from labels, as seen from these objects as rows.
    floor : float
        As of a `Side`.
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
        """The same objects, whose labels are those of the rows of ``observations`` only."""
        profile = profile_kernel(observations, self._free)
        return ProfiledSide(self._fixed, self._parts, profile, self._free, floor=self.floor)


def mixed_profiles(parts: list[tuple[float, float]], profile: Array) -> Array:
    """The sum of profile kernels with these weights and gammas, shape of ``profile``."""
    out = np.zeros_like(profile)
    for weight, gamma in parts:
        out += weight * (profile if gamma == 1.0 else profile**gamma)
    return out
