"""Feature maps: explicit features, kernels and the Nyström map."""

from rankrls.feature_maps._kernels import Kernel, check_gram
from rankrls.feature_maps._nystroem import NystroemMap, choose_basis

__all__ = ["Kernel", "NystroemMap", "check_gram", "choose_basis"]
