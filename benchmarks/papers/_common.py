"""What the scripts of the papers share: RLS regression, and the helpers of the other benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.linalg import eigh

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from timing import need, parse, read_lines, seconds, table

__all__ = ["GRID", "need", "parse", "read_lines", "rls_path", "seconds", "table"]

#: The regularisation parameters of P1 §5.
GRID = 2.0 ** np.arange(-15, 16)


def rls_path(K: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Coefficients (n_alphas, m[, n_outputs]) of RLS regression, (K + alpha I)⁻¹ y: no intercept.

    With an intercept that is not penalised it would be RankRLS on all pairs, of magnitude y_h − y_j
    (both centre the residuals), up to a factor of alpha: the papers' regression has none.
    """
    values, V = eigh(K)
    Y = y[:, None] if y.ndim == 1 else y
    out = V @ ((V.T @ Y) / (np.maximum(values, 0)[:, None] + alphas[:, None, None]))
    return out[..., 0] if y.ndim == 1 else out
