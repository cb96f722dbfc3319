"""Ranking on Dask: rows that stay where they are, on the workers of a cluster.

Needs the extra ``dask``: ``pip install 'rankrls[dask]'``.
"""

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError(f"rankrls.dask needs Dask ({error}): pip install 'rankrls[dask]'") from error

from rankrls.dask._dask_cv import RankRLSCV
from rankrls.dask._estimator import RankRLS

__all__ = ["RankRLS", "RankRLSCV"]
