"""One BLAS thread per worker: the matrices are tiny, and the workers are many."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def single_thread():
    with threadpool_limits(limits=1):
        yield
