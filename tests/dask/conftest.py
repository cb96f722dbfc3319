"""Dask's threads, two of them, unless a test asks for the cluster."""

import pytest

import dask


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield
