"""RankRLS on Dask: the training rows stay on the workers of a cluster.

`fit` takes a pipeline of a scaler and a ranker.

Requires the extra ``dask``: ``pip install 'rankrls[dask]'``.
"""

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError(f"rankrls.dask needs Dask ({error}): pip install 'rankrls[dask]'") from error

from rankrls.dask._dask_rankers import RankRLS, RankRLSCV, fit

__all__ = ["RankRLS", "RankRLSCV", "fit"]
