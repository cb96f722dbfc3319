"""Feature maps: explicit features, kernels and the Nyström map."""

from rankrls.feature_maps._kernels import Kernel, check_gram
from rankrls.feature_maps._nystroem import DEFAULT_BASIS, Basis, NystroemMap, choose_basis
from rankrls.feature_maps._products import Products

__all__ = [
    "DEFAULT_BASIS",
    "Basis",
    "Kernel",
    "NystroemMap",
    "Products",
    "check_gram",
    "choose_basis",
]
