"""Tables of a few columns, which become data frames where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["frame"]


def frame(columns: Mapping[str, NDArray[Any]]) -> Any:
    """A pandas data frame of columns of equal length."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install pandas") from error
    return pd.DataFrame({name: np.asarray(values) for name, values in columns.items()})
