"""One BLAS thread per worker (the matrices are tiny), and no browser unless it is asked for."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def single_thread():
    with threadpool_limits(limits=1):
        yield


def pytest_ignore_collect(collection_path, config):
    """Leave tests/browser to ``make test-browser`` (-m browser): they need a driver."""
    if collection_path.name == "browser" and config.option.markexpr != "browser":
        return True
    return None
