"""RankRLS on Dask: the training rows stay on the workers of a cluster.

Requires the extra ``dask``: ``pip install 'rankrls[dask]'``.
"""

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError(f"rankrls.dask needs Dask ({error}): pip install 'rankrls[dask]'") from error

from rankrls.dask._dask_cv import RankRLSCV
from rankrls.dask._estimator import RankRLS

__all__ = ["RankRLS", "RankRLSCV"]
